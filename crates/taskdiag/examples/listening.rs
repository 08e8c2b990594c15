//! Who listens on which port. `cargo run --example listening`

use taskdiag::{Group, Groups, ProcessList};

fn main() -> Result<(), taskdiag::Error> {
    let all = ProcessList::read_with(Groups::FD)?;
    let mut unknown = 0;
    for process in all.iter() {
        let Some(sockets) = process.sockets() else {
            unknown += u32::from(process.why(Group::Fd).is_some_and(|why| why.is_amiss()));
            continue;
        };
        for socket in sockets.iter().filter(|s| s.state() == Some("LISTEN")) {
            let (Some(address), Some(protocol)) = (socket.local(), socket.protocol()) else {
                continue;
            };
            let name = process.name().unwrap_or_default();
            println!("{:>8} {name:<16} {protocol} {address}", process.pid());
        }
    }
    if unknown > 0 {
        println!("the sockets of {unknown} processes may not be seen: run it as root");
    }
    Ok(())
}
