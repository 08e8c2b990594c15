//! The resident memory of each user. `cargo run --example memory_by_user`

use std::collections::BTreeMap;

use taskdiag::ProcessList;

fn main() -> Result<(), taskdiag::Error> {
    let all = ProcessList::read()?;
    let mut sums: BTreeMap<u32, (u64, Option<String>)> = BTreeMap::new();
    for process in all.iter() {
        let (Some(uid), Some(memory)) = (process.uid(), process.memory()) else { continue };
        let sum = sums.entry(uid).or_insert_with(|| (0, process.user()));
        sum.0 += memory;
    }
    for (uid, (memory, name)) in sums {
        // A user without a name still has a number.
        let name = name.unwrap_or_else(|| uid.to_string());
        println!("{name:<16} {:>8} MiB", memory >> 20);
    }
    Ok(())
}
