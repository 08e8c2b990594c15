//! Which values are missing, and why. `cargo run --example missing`, best as an ordinary user

use std::collections::BTreeMap;

use taskdiag::{Group, Groups, Request};

fn main() -> Result<(), taskdiag::Error> {
    let snapshot = taskdiag::query(&Request::all(Groups::BASE | Groups::IO | Groups::PATHS))?;
    let mut counts: BTreeMap<(Group, &str), u32> = BTreeMap::new();
    for task in snapshot.tasks() {
        for group in snapshot.stream().asked().iter() {
            if let Some(reason) = task.reason(group) {
                *counts.entry((group, reason.name())).or_default() += 1;
            }
        }
    }
    for ((group, reason), count) in counts {
        println!("{group}: {reason} for {count} processes");
    }
    // Remarks about the whole answer.
    snapshot.caveats().iter().for_each(|caveat| println!("{caveat}"));
    Ok(())
}
