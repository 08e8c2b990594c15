//! The machine that an answer comes from. `cargo run --example where_from -- saved.tdg`

use std::fs::File;
use std::io::BufReader;

use taskdiag::{Groups, Host, Request, Snapshot};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let snapshot = match std::env::args_os().nth(1) {
        Some(path) => Snapshot::read_from(BufReader::new(File::open(path)?))?,
        None => taskdiag::query(&Request::all(Groups::BASE))?,
    };
    let host = snapshot.host();
    println!("{} processes of {host}", snapshot.tasks().len());
    match host.is_same_boot(&Host::here()) {
        Some(true) => println!("this machine, since it was booted"),
        Some(false) => println!("another machine, or this one before it was booted"),
        None => println!("an older version saved it, without the name of its machine"),
    }
    Ok(())
}
