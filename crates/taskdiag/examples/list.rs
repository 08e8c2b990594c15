//! All processes: pid, resident memory, command line. `cargo run --example list`

use taskdiag::{Groups, Request, Statm};

fn main() -> Result<(), taskdiag::Error> {
    let request = Request::all(Groups::BASE | Groups::STATM | Groups::CMDLINE);
    let snapshot = taskdiag::query(&request)?;
    for task in snapshot.tasks() {
        // Each value may be unknown, which is not 0: a kernel thread has no memory of its own.
        let rss = task.record::<Statm>().and_then(|m| m.rss_bytes());
        let rss = rss.map_or(String::from("-"), |bytes| format!("{} KiB", bytes / 1024));
        let args = task.cmdline().map(|args| args.data.into_owned()).unwrap_or_default();
        let args: Vec<_> = args.split(|b| *b == 0).map(String::from_utf8_lossy).collect();
        println!("{:>8} {rss:>12} {}", task.pid(), args.join(" "));
    }
    Ok(())
}
