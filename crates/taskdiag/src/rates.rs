//! Activity of tasks between two answers to the same request, for programs that repeat it.
//!
//! [`Snapshot::since`](crate::Snapshot::since) compares two answers and gives pairs of tasks.
//! [`Rates`] only keeps the counters of the previous answer, in arrays that are reused. So it needs
//! no allocation per task, and looks a task up only if its position has changed.

use std::collections::HashMap;
use std::time::Duration;

use taskdiag_wire::{BootId, Gpu, Group, Groups, Net};

use crate::field::{GpuGrowth, NONE, RATES, Rate, Row, SocketGrowth, gpu, since_boot};
use crate::snapshot::Snapshot;
use crate::task_id::{TaskId, Tick};

/// The counters, in the order of the arrays.
const COUNTERS: [fn(&Row<'_>) -> Option<u64>; RATES] = [
    |r| r.stat.and_then(|r| r.utime_ns()),
    |r| r.stat.and_then(|r| r.stime_ns()),
    |r| r.stat.and_then(|r| r.minflt()),
    |r| r.stat.and_then(|r| r.majflt()),
    |r| r.io.and_then(|r| r.read_bytes()),
    |r| r.io.and_then(|r| r.write_bytes()),
    |r| r.sched.and_then(|r| r.nvcsw()),
    |r| r.sched.and_then(|r| r.nivcsw()),
    |r| r.sched.and_then(|r| r.run_delay_ns()),
];
const UTIME: usize = 0;
const STIME: usize = 1;

/// The kept part of an answer, with an entry in each array for each task.
#[derive(Debug, Default)]
struct CpuTimes {
    boot_id: BootId,
    begin_ns: u64,
    /// Tasks that began later are not in the answer.
    end_ns: u64,
    /// Whether it ended early, so that tasks may be missing from it.
    is_cut: bool,
    pid: Vec<u32>,
    start_ns: Vec<u64>,
    state: Vec<u8>,
    /// Since when it is in its state without using CPU time.
    since_ns: Vec<u64>,
    counters: [Vec<u64>; COUNTERS.len()],
    /// Whether its sockets are known.
    has_net: Vec<bool>,
    /// The bytes sent and received over each socket, by inode.
    sockets: HashMap<u64, [u64; 2]>,
    /// Whether the counters of each task's GPU clients are known, and the counters by key.
    has_gpu: Vec<bool>,
    gpu: HashMap<u64, [u64; 3]>,
}

impl CpuTimes {
    fn clear(&mut self) {
        self.pid.clear();
        self.start_ns.clear();
        self.state.clear();
        self.since_ns.clear();
        self.counters.iter_mut().for_each(Vec::clear);
        self.has_net.clear();
        self.sockets.clear();
        self.has_gpu.clear();
        self.gpu.clear();
    }
}

/// Activity of the tasks of an answer since the previous one. Give it each answer with
/// [`update`](Self::update).
///
/// A task is the same in both if its pid and its start time are the same; start times may differ by
/// a tick, because /proc counts in ticks.
#[derive(Debug, Default)]
pub struct Rates {
    now: CpuTimes,
    old: CpuTimes,
    /// How much each counter has grown.
    grown: [Vec<u64>; COUNTERS.len()],
    sockets_grown: SocketGrowth,
    gpu_grown: GpuGrowth,
    began: Vec<u32>,
    ended: Vec<u32>,
    seen: Vec<bool>,
    /// Index of the pids of the old answer, made when it is needed.
    places: HashMap<u32, u32>,
    answers: u64,
}

impl Rates {
    /// Starts without an answer.
    pub fn new() -> Rates {
        Rates::default()
    }
    /// Takes the next answer. It needs BASE with the start times, or no task is found again.
    pub fn update(&mut self, snapshot: &Snapshot) {
        let info = snapshot.stream().info();
        if self.now.boot_id.is_same(&info.boot_id) == Some(false) {
            // After a reboot, all tasks are new, and no counter has a growth.
            *self = Rates::new();
        }
        std::mem::swap(&mut self.now, &mut self.old);
        let tick = Tick::of(info);
        let took_ns = snapshot.took().map_or(0, |t| t.as_nanos() as u64);
        self.now.clear();
        self.now.is_cut = snapshot.stream().done().error != 0;
        self.now.boot_id = info.boot_id;
        self.now.begin_ns = info.boottime_ns;
        self.now.end_ns = info.boottime_ns.saturating_add(took_ns).saturating_add(tick.ns());
        self.grown.iter_mut().for_each(Vec::clear);
        self.sockets_grown.clear();
        self.gpu_grown.clear();
        let groups = Groups::from_bits(info.show_flags);
        let (with_net, with_gpu) = (groups.has(Group::Net), groups.has(Group::Gpu));
        self.began.clear();
        self.ended.clear();
        self.places.clear();
        self.seen.clear();
        self.seen.resize(self.old.pid.len(), false);
        let mut next = 0;
        for (i, task) in snapshot.tasks().enumerate() {
            let row = Row::new(task);
            let start = row.base.and_then(|b| b.start_time_ns()).unwrap_or(NONE);
            let id = TaskId::new(task.pid(), start, tick);
            let place = self.find(&id, next);
            // A task that a complete answer does not have is new.
            let is_later = id.may_have_begun_since(self.old.begin_ns);
            let is_new = self.answers > 0 && start != NONE && (is_later || !self.old.is_cut);
            if let Some(at) = place {
                next = at + 1;
                self.seen[at] = true;
            } else if is_new {
                self.began.push(i as u32);
            }
            self.keep(&row, start, place, is_new);
            if with_net {
                self.keep_sockets(&row, place, is_new);
            }
            if with_gpu {
                self.keep_gpu(&row, place, is_new);
            }
        }
        // If an answer ended early, a task that is missing from it may still be alive.
        if self.answers > 0 && !self.now.is_cut {
            let gone = |at: &usize| !self.seen[*at] && self.old.start_ns[*at] != NONE;
            let all = 0..self.old.pid.len();
            self.ended.extend(all.filter(gone).map(|at| at as u32));
        }
        self.answers += 1;
    }
    /// Where the task is in the old answer. Tasks mostly keep their order, so `next` is the likely
    /// place.
    fn find(&mut self, id: &TaskId, next: usize) -> Option<usize> {
        const AHEAD: usize = 8;
        let (pid, start) = (id.pid(), id.start_ns());
        if start == NONE || since_boot(start) > since_boot(self.old.end_ns) {
            return None;
        }
        let pids = &self.old.pid;
        let ahead = pids.get(next..pids.len().min(next + AHEAD)).unwrap_or_default();
        let at = match ahead.iter().position(|p| *p == pid) {
            Some(ahead) => next + ahead,
            None => {
                if self.places.is_empty() {
                    self.places.extend(pids.iter().enumerate().map(|(at, pid)| (*pid, at as u32)));
                }
                *self.places.get(&pid)? as usize
            }
        };
        let old = self.old.start_ns[at];
        let is_same = old != NONE && id.is_same(&TaskId::new(pid, old, id.tick()));
        (is_same && !self.seen[at]).then_some(at)
    }
    /// Keeps a task. `is_new`: it began after the previous answer.
    fn keep(&mut self, row: &Row<'_>, start: u64, place: Option<usize>, is_new: bool) {
        for (c, get) in COUNTERS.iter().enumerate() {
            let new = get(row).unwrap_or(NONE);
            self.now.counters[c].push(new);
            let old = match place {
                Some(at) => self.old.counters[c][at],
                // All activity of a new task counts. If the previous answer ended before a task,
                // the counts since then are not known.
                None if is_new => 0,
                None => NONE,
            };
            let known = new != NONE && old != NONE;
            self.grown[c].push(if known { new.saturating_sub(old) } else { NONE });
        }
        let state = row.state().unwrap_or(0);
        let last = |c: usize| self.grown[c].last().copied().unwrap_or(NONE);
        let ran = [UTIME, STIME].iter().any(|c| !matches!(last(*c), 0 | NONE));
        let since = match place {
            Some(at) if self.old.state[at] == state && !ran => self.old.since_ns[at],
            _ => self.now.begin_ns,
        };
        self.now.pid.push(row.view.pid());
        self.now.start_ns.push(start);
        self.now.state.push(state);
        self.now.since_ns.push(since);
    }
    /// Keeps the counters of the sockets of a task. If its sockets were known before, all bytes of
    /// a new socket count.
    fn keep_sockets(&mut self, row: &Row<'_>, place: Option<usize>, is_new: bool) {
        let list = row.view.owner(Group::Net).and_then(|t| t.list::<Net>());
        self.now.has_net.push(list.is_some());
        let was_known = was_known(&self.old.has_net, place, is_new);
        for e in list.into_iter().flatten() {
            if let (Some(sent), Some(received)) = (e.sent_bytes(), e.received_bytes()) {
                let maps = (&mut self.now.sockets, &self.old.sockets, &mut self.sockets_grown);
                grow(maps, e.raw.inode, [sent, received], was_known);
            }
        }
    }
    /// Keeps the GPU counters of the row, as `keep_sockets` does for sockets.
    fn keep_gpu(&mut self, row: &Row<'_>, place: Option<usize>, is_new: bool) {
        let list = row.view.owner(Group::Gpu).and_then(|t| t.list::<Gpu>());
        self.now.has_gpu.push(list.is_some());
        let was_known = was_known(&self.old.has_gpu, place, is_new);
        for e in list.into_iter().flatten() {
            if let (Some(key), Some(new)) = (gpu::key(&e), gpu::counters(&e)) {
                let maps = (&mut self.now.gpu, &self.old.gpu, &mut self.gpu_grown);
                grow(maps, key, new, was_known);
            }
        }
    }
    /// Activity of the i-th task of the last answer. `None`: there is no such task.
    pub fn get(&self, i: usize) -> Option<Rate<'_>> {
        let since = *self.now.since_ns.get(i)?;
        let still_ns = self.now.begin_ns.saturating_sub(since);
        let grown = std::array::from_fn(|c| self.grown[c][i]);
        let (sockets, gpu) = (&self.sockets_grown, &self.gpu_grown);
        Some(Rate::new(self.interval_ns(), still_ns, grown, sockets, gpu))
    }
    fn interval_ns(&self) -> u64 {
        if self.answers < 2 { 0 } else { self.now.begin_ns.saturating_sub(self.old.begin_ns) }
    }
    /// Time between the starts of the last two answers, or `None` before there are two.
    pub fn interval(&self) -> Option<Duration> {
        (self.answers > 1).then(|| Duration::from_nanos(self.interval_ns()))
    }
    /// Tasks that began since the previous answer, as indices in the last answer. If the previous
    /// answer ended early, only tasks with a later start time count as new.
    pub fn began(&self) -> &[u32] {
        &self.began
    }
    /// Tasks that ended since the previous answer, as indices in that answer. None if the last
    /// answer ended early, because tasks that are missing from it may still be alive.
    pub fn ended(&self) -> &[u32] {
        &self.ended
    }
}

/// The counters of the answer, those of the previous one, and how they have grown.
type Maps<'m, const N: usize> =
    (&'m mut HashMap<u64, [u64; N]>, &'m HashMap<u64, [u64; N]>, &'m mut HashMap<u64, [u64; N]>);

/// Whether all that a task had was known before: it was in the previous answer, or began after it.
fn was_known(had: &[bool], place: Option<usize>, is_new: bool) -> bool {
    place.map_or(is_new, |at| had.get(at) == Some(&true))
}

/// Keeps the counters of one key. If its task was known before, all of a new one counts.
fn grow<const N: usize>(maps: Maps<'_, N>, key: u64, new: [u64; N], was_known: bool) {
    let (now, before, grown) = maps;
    now.insert(key, new);
    let old = match before.get(&key) {
        Some(old) => *old,
        None if was_known => [0; N],
        None => return,
    };
    grown.insert(key, std::array::from_fn(|i| new[i].saturating_sub(old[i])));
}

#[cfg(test)]
mod tests {
    use super::*;
    use taskdiag_wire::{Base, Done, Info, Stat, StreamWriter, build};

    const SECOND: u64 = 1_000_000_000;

    /// Tasks by pid, start time in ms, CPU time in s and state; the answer was begun at this
    /// second.
    fn snapshot(at: u64, tasks: &[(u32, u64, u64, u8)]) -> Snapshot {
        answer(at, tasks, 0)
    }

    /// An answer about these tasks that ended early with this error.
    fn answer(at: u64, tasks: &[(u32, u64, u64, u8)], error: i32) -> Snapshot {
        let mut w = StreamWriter::new();
        let head = StreamWriter::blank_info();
        w.info(&build!(Info { boottime_ns: at * SECOND, clk_tck: 100, ..head }));
        for (pid, start, cpu, state) in tasks {
            w.begin_task(*pid, *pid);
            let mut base = Base::new();
            (base.valid, base.state) = (Base::ALL_VALID, *state);
            base.start_time_ns = start.wrapping_mul(1_000_000);
            w.put(&base);
            let mut stat = Stat::new();
            (stat.valid, stat.utime_ns) = (Stat::ALL_VALID, cpu * SECOND);
            w.put(&stat);
            w.end_task();
        }
        Snapshot::parse(w.finish(build!(Done { error, ..Done::default() }))).expect("it is whole")
    }

    #[test]
    fn tasks_older_than_the_time_namespace_are_not_new_in_each_answer() {
        // Two seconds and 5 ms before the boot time of the namespace, in the kernel's format.
        let before = |ms: u64| 0u64.wrapping_sub(ms * 1_000_000) / 10_000_000 * 10;
        let (old, edge) = (before(2000), before(5));
        let mut rates = Rates::new();
        rates.update(&snapshot(10, &[(1, old, 5, b'S'), (2, edge, 0, b'S')]));
        rates.update(&snapshot(11, &[(1, old, 6, b'S'), (2, 0, 0, b'S')]));
        assert!(rates.began().is_empty() && rates.ended().is_empty());
        assert_eq!(rates.get(0).expect("it is there").cpu_ns(), Some(SECOND));
    }

    #[test]
    fn nothing_has_grown_since_another_boot() {
        let of = |boot: u8, at: u64| {
            let mut bytes = snapshot(at, &[(1, 1, at, b'S')]).stream().bytes().to_vec();
            let place = size_of::<taskdiag_wire::NlMsgHdr>() + std::mem::offset_of!(Info, boot_id);
            bytes[place..place + 16].fill(boot);
            Snapshot::parse(taskdiag_wire::AlignedBuf::copy_of(&bytes)).expect("it is whole")
        };
        let mut rates = Rates::new();
        rates.update(&of(1, 10));
        rates.update(&of(1, 11));
        assert_eq!(rates.get(0).expect("it is there").cpu_ns(), Some(SECOND));
        // The clock of the new boot is ahead, and its process 1 began at the same time after it.
        rates.update(&of(2, 12));
        assert_eq!((rates.get(0).expect("it is there").cpu_ns(), rates.interval()), (None, None));
        let (old, new) = (of(1, 11), of(2, 12));
        let changes = new.since(&old);
        assert_eq!((changes.began.len(), changes.ended.len(), changes.stayed.len()), (1, 1, 0));
        // An older version did not say which boot it was.
        assert_eq!(of(0, 12).since(&old).stayed.len(), 1);
    }

    #[test]
    fn growth_begins_and_ends_are_reported() {
        let mut rates = Rates::new();
        rates.update(&snapshot(10, &[(1, 1, 5, b'S'), (2, 100, 0, b'S'), (3, 200, 7, b'D')]));
        assert_eq!(rates.interval(), None);
        let first = rates.get(0).expect("it is there");
        assert_eq!((first.cpu_ns(), first.interval_ns()), (None, 0));
        // Task 1 starts within a tick of its old start, 2 has ended, 3 is a new task with an old
        // pid, 4 is new. 3 comes last.
        let new = [(4, 11_500, 1, b'R'), (1, 11, 8, b'S'), (3, 11_900, 2, b'D')];
        rates.update(&snapshot(12, &new));
        assert_eq!((rates.began(), rates.ended()), (&[0, 2][..], &[1, 2][..]));
        let cpu = |rates: &Rates, i| rates.get(i).expect("it is there").cpu_ns();
        assert_eq!(rates.interval(), Some(Duration::from_secs(2)));
        let all: Vec<_> = (0..3).map(|i| cpu(&rates, i)).collect();
        assert_eq!(all, [Some(SECOND), Some(3 * SECOND), Some(2 * SECOND)]);
        assert_eq!(rates.get(0).and_then(|r| r.read_bytes()), None);
        assert_eq!(rates.get(3), None);
    }

    #[test]
    fn bytes_over_the_network_grow_by_socket() {
        // Process 7 and its sockets: the inode, and the bytes that were sent and received.
        let of = |at: u64, sockets: &[(u64, u64, u64)], is_known: bool| {
            let mut w = StreamWriter::new();
            let head = StreamWriter::blank_info();
            let show_flags = (Groups::BASE | Groups::NET).bits();
            w.info(&build!(Info { boottime_ns: at * SECOND, clk_tck: 100, show_flags, ..head }));
            w.begin_task(7, 7);
            let mut base = Base::new();
            (base.valid, base.start_time_ns) = (Base::ALL_VALID, SECOND);
            w.put(&base);
            let entry = |(inode, sent, received): &(u64, u64, u64)| {
                let (inode, sent_bytes, received_bytes) = (*inode, *sent, *received);
                build!(Net { inode, sent_bytes, received_bytes, ..Net::default() })
            };
            match is_known {
                true => {
                    let list: Vec<Net> = sockets.iter().map(entry).collect();
                    w.put_list(Net::ALL_VALID, &list);
                }
                false => w.missing(Group::Net, taskdiag_wire::Reason::Denied),
            }
            w.end_task();
            Snapshot::parse(w.finish(Done::default())).expect("it is whole")
        };
        let mut rates = Rates::new();
        let mut grown = |snapshot: &Snapshot, inode| {
            rates.update(snapshot);
            rates.get(0).expect("it is there").socket(inode)
        };
        assert_eq!(grown(&of(10, &[(1, 50, 60)], true), 1), None);
        assert_eq!(grown(&of(11, &[(1, 55, 67), (2, 9, 8)], true), 1), Some([5, 7]));
        assert_eq!(grown(&of(12, &[(1, 55, 67), (2, 9, 9), (3, 4, 5)], true), 3), Some([4, 5]));
        assert_eq!(grown(&of(13, &[(1, 55, 67), (2, 9, 9)], true), 3), None);
        // Earlier bytes are not known, so the present total does not count as new.
        assert_eq!(grown(&of(14, &[], false), 1), None);
        assert_eq!(grown(&of(15, &[(1, 70, 70)], true), 1), None);
        assert_eq!(grown(&of(16, &[(1, 71, 70)], true), 1), Some([1, 0]));
    }

    #[test]
    fn a_cut_answer_gives_no_rates_of_the_tasks_that_it_lacks() {
        let all = [(1, 1, 5, b'S'), (2, 100, 7, b'S')];
        let mut rates = Rates::new();
        rates.update(&snapshot(10, &all));
        rates.update(&answer(11, &all[..1], -libc::EINTR));
        assert_eq!((rates.began(), rates.ended()), (&[][..], &[][..]));
        rates.update(&snapshot(12, &[all[0], (2, 100, 8, b'S'), (3, 11_500, 1, b'S')]));
        assert_eq!((rates.began(), rates.ended()), (&[2][..], &[][..]));
        let cpu: Vec<_> = (0..3).map(|i| rates.get(i).and_then(|r| r.cpu_ns())).collect();
        assert_eq!(cpu, [Some(0), None, Some(SECOND)]);
    }

    #[test]
    fn the_time_since_a_task_last_ran_is_counted() {
        let mut rates = Rates::new();
        for (at, cpu, state) in [(10, 1, b'S'), (11, 1, b'D'), (14, 1, b'D'), (15, 1, b'D')] {
            rates.update(&snapshot(at, &[(7, 0, cpu, state)]));
        }
        assert_eq!(rates.get(0).expect("it is there").still_ns(), 4 * SECOND);
        // The task is in the same state as before, but has run in between.
        rates.update(&snapshot(16, &[(7, 0, 2, b'D')]));
        assert_eq!(rates.get(0).expect("it is there").still_ns(), 0);
    }

    #[test]
    fn rates_do_not_depend_on_the_order_of_tasks() {
        let mut rates = Rates::new();
        let tasks: Vec<(u32, u64, u64, u8)> = (1..200).map(|n| (n, 0, 0, b'S')).collect();
        rates.update(&snapshot(10, &tasks));
        let turned: Vec<_> = tasks.iter().rev().map(|t| (t.0, 0, u64::from(t.0), b'S')).collect();
        rates.update(&snapshot(11, &turned));
        assert!(rates.began().is_empty() && rates.ended().is_empty());
        let cpu = |i| rates.get(i).and_then(|r| r.cpu_ns());
        assert!((0..199).all(|i| cpu(i) == Some(u64::from(turned[i].0) * SECOND)));
    }
}
