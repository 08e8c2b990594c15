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
        // If the number of tasks is not known, there is no /proc, and the listing fails as well.
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
        Ok(Parts { parts: Processes::divided(&ids, (all / TASKS).min(MOST)), count: ids.len() })
    }
}

#[cfg(test)]
mod tests {
    use taskdiag::Processes;

    #[test]
    fn each_process_is_in_one_part() {
        let many: Vec<u32> = (1..50_000).filter(|n| n % 3 == 0).collect();
        for (ids, count, want) in
            [(&many[..], 20, 20), (&many, 1, 1), (&many, 0, 1), (&[], 20, 1), (&[7, 8], 20, 2)]
        {
            let parts = Processes::divided(ids, count);
            assert_eq!(parts.len(), want);
            assert_eq!((parts[0].first, parts[want - 1].last), (0, u32::MAX));
            assert!(parts.windows(2).all(|w| w[0].last + 1 == w[1].first), "{parts:?}");
            let most = parts.iter().map(|p| ids.iter().filter(|id| p.has(**id)).count()).max();
            assert!(most <= Some(ids.len() / want + 1), "{most:?} of {}", ids.len());
        }
    }
}
