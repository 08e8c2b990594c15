//! All processes with user, memory and arguments. `cargo run --example processes`

use taskdiag::ProcessList;

fn main() -> Result<(), taskdiag::Error> {
    let all = ProcessList::read()?;
    for process in all.iter() {
        // An unknown value is not 0: a kernel thread has neither memory nor arguments.
        let memory = process.memory().map_or(String::from("-"), |b| format!("{} KiB", b / 1024));
        let user = process.user().unwrap_or_else(|| String::from("?"));
        let args = process.args().unwrap_or_default();
        let args: Vec<_> = args.iter().map(|a| a.to_string_lossy()).collect();
        println!("{:>8} {user:<12} {memory:>12} {}", process.pid(), args.join(" "));
    }
    Ok(())
}
