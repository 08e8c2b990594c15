//! Prints the tasks that used the CPU: three answers, a second apart, from a session. `cargo run
//! --example top`

use std::time::Duration;

use taskdiag::{Choice, Groups, Request, Session};

fn main() -> Result<(), taskdiag::Error> {
    let request = Request::all(Groups::BASE | Groups::STAT);
    let mut session = Session::open(request, Choice::Auto)?;
    session.refresh()?;
    for _ in 0..2 {
        std::thread::sleep(Duration::from_secs(1));
        session.refresh()?;
        let Some(changes) = session.changes() else { continue };
        println!("{} processes began, {} ended", changes.began.len(), changes.ended.len());
        let mut busy: Vec<_> = changes
            .stayed
            .iter()
            .filter_map(|task| Some((task.cpus(changes.interval)?, task.new)))
            .collect();
        busy.sort_by(|a, b| b.0.total_cmp(&a.0));
        for (cpus, task) in busy.iter().take(5) {
            let name = String::from_utf8_lossy(task.comm().unwrap_or(b"?"));
            println!("{:>8} {:>6.1} % {name}", task.pid(), cpus * 100.0);
        }
    }
    Ok(())
}
