//! The threads of a process, with their state and CPU time. `cargo run --example threads -- 1`

use taskdiag::{Base, Groups, Request, Stat};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pid = match std::env::args().nth(1) {
        Some(pid) => pid.parse()?,
        None => std::process::id(),
    };
    let snapshot = taskdiag::query(&Request::threads(pid, Groups::BASE | Groups::STAT))?;
    for thread in snapshot.tasks() {
        // A record has methods, whose values are None where they are not known.
        let state = thread.record::<Base>().and_then(|base| base.state()).map(char::from);
        let cpu_ns = thread.record::<Stat>().and_then(|s| Some(s.utime_ns()? + s.stime_ns()?));
        let name = String::from_utf8_lossy(thread.comm().unwrap_or(b"?"));
        println!("{:>8} {} {:?} {name}", thread.pid(), state.unwrap_or('?'), cpu_ns);
    }
    Ok(())
}
