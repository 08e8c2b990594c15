//! One process: program, working directory, start, sockets. `cargo run --example process -- 1`

use taskdiag::{Group, ProcessList};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pid = match std::env::args().nth(1) {
        Some(pid) => pid.parse()?,
        None => std::process::id(),
    };
    // A process that does not exist is an error, not an empty answer.
    let list = ProcessList::read_one(pid)?;
    let process = list.get(pid).ok_or("it has ended")?;
    println!("{pid} {:?}, a child of {:?}", process.name().unwrap_or_default(), process.parent());
    println!("program {:?}, in {:?}", process.exe(), process.cwd());
    println!("began {:?}, has used {:?} of CPU", process.started(), process.cpu_time());
    match process.sockets() {
        Some(sockets) => println!("{} sockets", sockets.len()),
        // An ordinary user may not see the sockets of others.
        None => println!("its sockets are not known: {:?}", process.why(Group::Fd)),
    }
    Ok(())
}
