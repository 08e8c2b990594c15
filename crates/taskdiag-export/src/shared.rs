//! Counters of objects that processes may share: bytes over TCP connections, and the time of
//! graphics processors. They do not fall when a connection ends or a client closes its device.

use std::collections::{HashMap, HashSet};

use taskdiag::Group;
use taskdiag::field::{Row, gpu_engines};
use taskdiag::wire::Net;

/// The largest number of connections, or of engines of clients, that are followed. Counters of
/// further ones are left out.
const MOST: usize = 1 << 18;

/// The counted values, and the process that they count for.
#[derive(Clone, Copy, Debug)]
struct Counted<const N: usize> {
    totals: [u64; N],
    pid: u32,
}

/// Things that have `N` counters, by a number that is the same in all processes that have them.
#[derive(Debug, Default)]
pub struct Shared<const N: usize> {
    last: HashMap<u64, Counted<N>>,
    now: HashMap<u64, Counted<N>>,
    /// The processes whose connections or engines the answer lacks.
    without: HashSet<u32>,
}

impl<const N: usize> Shared<N> {
    /// Begins an answer.
    pub fn begin(&mut self) {
        self.keep();
        std::mem::swap(&mut self.last, &mut self.now);
        self.now.clear();
        self.without.clear();
    }
    /// If the last answer lacks the things of a process, the known ones stay, so that they are not
    /// new in a later answer.
    fn keep(&mut self) {
        if self.without.is_empty() {
            return;
        }
        for (key, one) in &self.last {
            if self.without.contains(&one.pid) {
                self.now.entry(*key).or_insert(*one);
            }
        }
    }
    /// By how much the counters of a process have grown since the last answer. A thing of several
    /// processes counts for the first of them. `None`: the answer lacks it.
    fn grown(
        &mut self,
        pid: u32,
        list: Option<impl Iterator<Item = (u64, [u64; N])>>,
    ) -> Option<[u64; N]> {
        let Some(list) = list else {
            self.without.insert(pid);
            return None;
        };
        let mut by = [0u64; N];
        for (key, totals) in list {
            if self.now.contains_key(&key) || self.now.len() >= MOST {
                continue;
            }
            self.now.insert(key, Counted { totals, pid });
            let before = self.last.get(&key).map_or([0; N], |l| l.totals);
            for ((by, new), old) in by.iter_mut().zip(totals).zip(before) {
                *by = by.saturating_add(new.saturating_sub(old));
            }
        }
        Some(by)
    }
}

impl Shared<2> {
    /// The bytes that a process has sent and received over its connections.
    pub fn sockets(&mut self, row: &Row<'_>) -> Option<[u64; 2]> {
        let list = row.view.owner(Group::Net).and_then(|t| t.list::<Net>());
        let bytes = |e: taskdiag::wire::Entry<'_, Net>| {
            Some((e.raw.inode, [e.sent_bytes()?, e.received_bytes()?]))
        };
        self.grown(row.view.pid(), list.map(|all| all.filter_map(bytes)))
    }
}

impl Shared<1> {
    /// The time in which engines of graphics processors worked for a process, ns.
    pub fn engines(&mut self, row: &Row<'_>) -> Option<[u64; 1]> {
        let list = gpu_engines(row).map(|all| all.into_iter().map(|(key, ns)| (key, [ns])));
        self.grown(row.view.pid(), list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use taskdiag::Groups;
    use taskdiag::Reason;
    use taskdiag::Snapshot;
    use taskdiag::field::gpu_memory_once;
    use taskdiag::wire::{Base, Done, Gpu, Info, StreamWriter, build};

    /// Processes with their sockets: the inode, and the number of bytes that were sent. `None`:
    /// they are not known.
    type Processes<'a> = &'a [(u32, Option<&'a [(u64, u64)]>)];

    fn sent(sockets: &mut Shared<2>, processes: Processes<'_>) -> Vec<Option<u64>> {
        let mut w = StreamWriter::new();
        let show_flags = (Groups::BASE | Groups::NET).bits();
        w.info(&build!(Info { show_flags, ..StreamWriter::blank_info() }));
        for (pid, list) in processes {
            w.begin_task(*pid, *pid);
            w.put(&build!(Base { valid: Base::ALL_VALID, ..Base::new() }));
            match list {
                Some(list) => {
                    let entry = |(inode, sent_bytes): &(u64, u64)| {
                        let (inode, sent_bytes) = (*inode, *sent_bytes);
                        build!(Net { inode, sent_bytes, ..Net::default() })
                    };
                    let all: Vec<Net> = list.iter().map(entry).collect();
                    w.put_list(Net::ALL_VALID, &all);
                }
                None => w.missing(Group::Net, Reason::Blocked),
            }
            w.end_task();
        }
        let answer = Snapshot::parse(w.finish(Done::default())).expect("it is whole");
        sockets.begin();
        let of = |task| sockets.sockets(&Row::new(task)).map(|by| by[0]);
        answer.tasks().map(of).collect()
    }

    #[test]
    fn bytes_of_a_socket_count_once_and_do_not_fall() {
        let mut s = Shared::default();
        assert_eq!(
            sent(&mut s, &[(1, Some(&[(7, 10)])), (2, Some(&[(7, 10), (8, 1)]))]),
            [Some(10), Some(1)]
        );
        // A connection ends, one begins, and one is now with another process only.
        let next: Processes<'_> = &[(1, Some(&[(9, 4)])), (2, Some(&[(7, 15)]))];
        assert_eq!(sent(&mut s, next), [Some(4), Some(5)]);
        // Bytes that were unknown in some answers are not counted again.
        assert_eq!(sent(&mut s, &[(1, None), (2, Some(&[(7, 15)]))]), [None, Some(0)]);
        assert_eq!(sent(&mut s, &[(1, None), (2, None)]), [None, None]);
        assert_eq!(
            sent(&mut s, &[(1, Some(&[(9, 6)])), (2, Some(&[(7, 16)]))]),
            [Some(2), Some(1)]
        );
    }

    /// Processes with their engines: the client, its busy time and its memory.
    type Users<'a> = &'a [(u32, &'a [(u64, u64, u64)])];

    fn gpu(engines: &mut Shared<1>, processes: Users<'_>) -> Vec<(u64, u64)> {
        let mut w = StreamWriter::new();
        let show_flags = (Groups::BASE | Groups::GPU).bits();
        w.info(&build!(Info { show_flags, ..StreamWriter::blank_info() }));
        for (pid, list) in processes {
            w.begin_task(*pid, *pid);
            w.put(&build!(Base { valid: Base::ALL_VALID, ..Base::new() }));
            let entry = |(client, busy_ns, resident_bytes): &(u64, u64, u64)| {
                let (client, busy_ns, resident_bytes) = (*client, *busy_ns, *resident_bytes);
                build!(Gpu { client, dev: 1, busy_ns, resident_bytes, ..Gpu::default() })
            };
            let all: Vec<Gpu> = list.iter().map(entry).collect();
            w.put_list(Gpu::ALL_VALID, &all);
            w.end_task();
        }
        let answer = Snapshot::parse(w.finish(Done::default())).expect("it is whole");
        engines.begin();
        let mut seen = HashSet::new();
        let of = |task| {
            let row = Row::new(task);
            let by = engines.engines(&row).expect("it is known")[0];
            (by, gpu_memory_once(&row, &mut seen).expect("it is known"))
        };
        answer.tasks().map(of).collect()
    }

    #[test]
    fn a_client_of_a_gpu_counts_once_and_its_time_does_not_fall() {
        let mut s = Shared::default();
        let both: Users<'_> = &[(1, &[(7, 10, 100)]), (2, &[(7, 10, 100), (8, 5, 50)])];
        assert_eq!(gpu(&mut s, both), [(10, 100), (5, 50)]);
        assert_eq!(gpu(&mut s, both), [(0, 100), (0, 50)]);
        // The first process closes its client, which the other one keeps, and opens another one.
        let next: Users<'_> = &[(1, &[(9, 3, 1)]), (2, &[(7, 12, 100)]), (3, &[])];
        assert_eq!(gpu(&mut s, next), [(3, 1), (2, 100), (0, 0)]);
    }
}
