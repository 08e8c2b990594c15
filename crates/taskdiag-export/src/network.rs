//! Bytes over the TCP connections of processes, as counters that do not fall when connections end.

use std::collections::{HashMap, HashSet};

use taskdiag::Group;
use taskdiag::field::Row;
use taskdiag::wire::Net;

/// The largest number of sockets that are followed. Traffic over others is not counted.
const SOCKETS_MOST: usize = 1 << 18;

/// The traffic of a socket, and the process that it counts for.
#[derive(Clone, Copy, Debug)]
struct Counted {
    sent: u64,
    received: u64,
    pid: u32,
}

/// The sockets of the last answers, by inode.
#[derive(Debug, Default)]
pub struct Sockets {
    last: HashMap<u64, Counted>,
    now: HashMap<u64, Counted>,
    /// The processes whose sockets the answer lacks.
    without: HashSet<u32>,
}

impl Sockets {
    /// Begins an answer.
    pub fn begin(&mut self) {
        self.keep();
        std::mem::swap(&mut self.last, &mut self.now);
        self.now.clear();
        self.without.clear();
    }
    /// The sockets of processes that the last answer lacks stay, so that they are not new in a
    /// later one.
    fn keep(&mut self) {
        if self.without.is_empty() {
            return;
        }
        for (inode, socket) in &self.last {
            if self.without.contains(&socket.pid) {
                self.now.entry(*inode).or_insert(*socket);
            }
        }
    }
    /// The bytes that a process has sent and received since the last answer. A socket that several
    /// processes have counts for the first of them. `None`: the answer lacks its sockets.
    pub fn grown(&mut self, row: &Row<'_>) -> Option<[u64; 2]> {
        let pid = row.view.pid();
        let Some(list) = row.view.owner(Group::Net).and_then(|t| t.list::<Net>()) else {
            self.without.insert(pid);
            return None;
        };
        let mut by = [0u64; 2];
        for e in list {
            let (Some(sent), Some(received)) = (e.sent_bytes(), e.received_bytes()) else {
                continue;
            };
            let inode = e.raw.inode;
            if self.now.contains_key(&inode) || self.now.len() >= SOCKETS_MOST {
                continue;
            }
            self.now.insert(inode, Counted { sent, received, pid });
            let (was_sent, was_received) =
                self.last.get(&inode).map_or((0, 0), |l| (l.sent, l.received));
            by[0] = by[0].saturating_add(sent.saturating_sub(was_sent));
            by[1] = by[1].saturating_add(received.saturating_sub(was_received));
        }
        Some(by)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use taskdiag::Groups;
    use taskdiag::Reason;
    use taskdiag::Snapshot;
    use taskdiag::wire::{Base, Done, Info, StreamWriter, build};

    /// Processes with their sockets, each with its inode and the bytes sent. `None`: the sockets
    /// are not known.
    type Processes<'a> = &'a [(u32, Option<&'a [(u64, u64)]>)];

    fn sent(sockets: &mut Sockets, processes: Processes<'_>) -> Vec<Option<u64>> {
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
        let of = |task| sockets.grown(&Row::new(task)).map(|by| by[0]);
        answer.tasks().map(of).collect()
    }

    #[test]
    fn bytes_of_a_socket_count_once_and_do_not_fall() {
        let mut s = Sockets::default();
        assert_eq!(
            sent(&mut s, &[(1, Some(&[(7, 10)])), (2, Some(&[(7, 10), (8, 1)]))]),
            [Some(10), Some(1)]
        );
        // A connection ends, one begins, and one is now with another process only.
        let next: Processes<'_> = &[(1, Some(&[(9, 4)])), (2, Some(&[(7, 15)]))];
        assert_eq!(sent(&mut s, next), [Some(4), Some(5)]);
        // Traffic that was counted before a gap in the values is not counted again.
        assert_eq!(sent(&mut s, &[(1, None), (2, Some(&[(7, 15)]))]), [None, Some(0)]);
        assert_eq!(sent(&mut s, &[(1, None), (2, None)]), [None, None]);
        assert_eq!(
            sent(&mut s, &[(1, Some(&[(9, 6)])), (2, Some(&[(7, 16)]))]),
            [Some(2), Some(1)]
        );
    }
}
