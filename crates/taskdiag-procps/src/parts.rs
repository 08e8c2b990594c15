//! Divides the processes into parts. The next part is requested after the rows of the previous one
//! are made, so only the answer about one part is in memory.

use std::collections::TryReserveError;

use taskdiag::Processes;

use crate::memory::{grow, tasks};

/// About how many tasks a part has.
const TASKS: usize = 1_000;
/// The most parts. The BPF programs look at all processes for each part.
const MOST: usize = 20;

/// The parts of a list of all processes, in the order of their ids, and about how many processes
/// there are.
#[derive(Debug, PartialEq, Eq)]
pub struct Parts {
    pub parts: Vec<Processes>,
    pub count: usize,
}

impl Parts {
    /// The parts of the processes that exist now. There is only one part if there are few tasks, or
    /// if `divides` is false.
    ///
    /// # Errors
    /// There is no memory for the ids.
    pub fn now(divides: impl FnOnce() -> bool) -> Result<Parts, TryReserveError> {
        // A machine where that is not known has no /proc, which the listing needs as well.
        let all = tasks().unwrap_or(0);
        let mut ids: Vec<u32> = Vec::new();
        if all >= 2 * TASKS && divides() {
            for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
                let id: Option<u32> = entry.file_name().to_str().and_then(|name| name.parse().ok());
                grow(&mut ids, 1)?;
                ids.extend(id);
            }
        }
        ids.sort_unstable();
        Ok(Parts { parts: divided(&ids, (all / TASKS).min(MOST)), count: ids.len() })
    }
}

/// So many ranges with about the same number of these ids, which have all that there can be between
/// them.
fn divided(ids: &[u32], count: usize) -> Vec<Processes> {
    let mut parts = Vec::new();
    let mut first = Processes::ALL.first;
    for n in 1..count.clamp(1, ids.len().max(1)) {
        let last = ids[n * ids.len() / count];
        if last > first {
            parts.push(Processes { first, last: last - 1 });
            first = last;
        }
    }
    parts.push(Processes { first, last: Processes::ALL.last });
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_process_is_in_one_part() {
        let many: Vec<u32> = (1..50_000).filter(|n| n % 3 == 0).collect();
        for (ids, count, want) in
            [(&many[..], 20, 20), (&many, 1, 1), (&many, 0, 1), (&[], 20, 1), (&[7, 8], 20, 2)]
        {
            let parts = divided(ids, count);
            assert_eq!(parts.len(), want);
            assert_eq!((parts[0].first, parts[want - 1].last), (0, u32::MAX));
            assert!(parts.windows(2).all(|w| w[0].last + 1 == w[1].first), "{parts:?}");
            let most = parts.iter().map(|p| ids.iter().filter(|id| p.has(**id)).count()).max();
            assert!(most <= Some(ids.len() / want + 1), "{most:?} of {}", ids.len());
        }
    }
}
