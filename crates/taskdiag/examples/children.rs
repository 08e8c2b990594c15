//! A tree of processes from one of them. `cargo run --example children -- 1`

use taskdiag::{Process, ProcessList};

fn show(all: &ProcessList, process: Process<'_>, depth: usize) {
    let name = process.name().unwrap_or_default();
    println!("{:width$}{} {name}", "", process.pid(), width = depth * 2);
    let children = all.iter().filter(|other| other.parent() == Some(process.pid()));
    // Any user can nest processes deeper than a stack is.
    if depth < 40 {
        children.for_each(|child| show(all, child, depth + 1));
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pid = match std::env::args().nth(1) {
        Some(pid) => pid.parse()?,
        None => std::os::unix::process::parent_id(),
    };
    let all = ProcessList::read()?;
    let first = all.get(pid).ok_or("there is no such process")?;
    show(&all, first, 0);
    Ok(())
}
