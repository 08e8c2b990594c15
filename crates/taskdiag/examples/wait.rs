//! Waits until a process ends, without asking repeatedly. `cargo run --example wait -- 1234`

use std::process::Command;
use std::time::Duration;

use taskdiag::Waiter;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Without a pid, a child of its own.
    let mut child = None;
    let pid = match std::env::args().nth(1) {
        Some(pid) => pid.parse()?,
        None => child.insert(Command::new("sleep").arg("0.1").spawn()?).id(),
    };
    let mut waiter = Waiter::new()?;
    waiter.add(pid)?;
    match waiter.wait(Some(Duration::from_secs(60)))? {
        Some(ended) => println!("{} has ended", ended.pid),
        None => println!("{pid} still runs after a minute"),
    }
    // A child stays a zombie until its parent waits for it.
    if let Some(mut child) = child {
        child.wait()?;
    }
    Ok(())
}
