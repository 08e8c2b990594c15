//! The counters of a task, its present values, and the values that an answer lacks.

use std::collections::HashMap;

use taskdiag::field::Row;
use taskdiag::wire::GroupRecord;
use taskdiag::{FdCount, Group, Reason, Record, Rollup, Stat, Statm};

use super::ledger::{Account, Counts, NONE};

/// The present values of a process. `None`: the value is not known.
#[derive(Clone, Copy, Debug, Default)]
pub struct Gauges {
    /// When it started, ns since boot.
    pub start_ns: u64,
    /// Threads.
    pub threads: Option<u64>,
    /// Resident memory, bytes.
    pub rss: Option<u64>,
    /// Virtual memory, bytes.
    pub size: Option<u64>,
    /// Swapped-out memory, bytes.
    pub swap: Option<u64>,
    /// Resident memory with shared pages shared out, bytes.
    pub pss: Option<u64>,
    /// Swapped-out memory with shared pages shared out, bytes.
    pub swap_pss: Option<u64>,
    /// Memory for graphics processors, bytes. Memory that processes share counts for the first of
    /// them.
    pub gpu_memory: Option<u64>,
    /// Open files.
    pub open: Option<u64>,
    /// Open files divided by their limit.
    pub open_share: Option<f64>,
}

impl Gauges {
    /// From a row of an answer.
    pub fn of(row: &Row<'_>, start_ns: u64, threads: Option<u32>) -> Gauges {
        // A kernel thread and a zombie have no memory, so the value is known to be 0.
        let none = |group| is_without(row, group).then_some(0);
        let memory = |get: fn(Record<'_, Statm>) -> Option<u64>| match row.statm {
            Some(statm) => get(statm),
            None => none(Group::Statm),
        };
        // If processes share their memory or their table of files, the values count for one of
        // them.
        let pages = |get: fn(Record<'_, Rollup>) -> Option<u64>| match of_owner::<Rollup>(
            row,
            Group::Rollup,
        ) {
            Some(rollup) => get(rollup),
            None => none(Group::Rollup),
        };
        let open = match of_owner::<FdCount>(row, Group::FdCount) {
            Some(count) => count.open().map(u64::from),
            None => none(Group::FdCount),
        };
        let limit = row.limits.and_then(|l| l.soft()).map(|soft| soft[NOFILE]);
        let share = |open: u64, limit: u64| (limit > 0).then(|| open as f64 / limit as f64);
        Gauges {
            start_ns,
            threads: threads.map(u64::from),
            rss: memory(|r| r.rss_bytes()),
            size: memory(|r| r.size_bytes()),
            swap: memory(|r| r.swap_bytes()),
            pss: pages(|r| r.pss_bytes()),
            swap_pss: pages(|r| r.swap_pss_bytes()),
            // It is counted once for several processes, see the tracker.
            gpu_memory: None,
            open,
            open_share: open.zip(limit).and_then(|(open, limit)| share(open, limit)),
        }
    }
    /// Adds these values and the growth of the counters to an account.
    pub fn add_to(&self, account: &mut Account, by: &Counts) {
        account.grow(by);
        let now = &mut account.now;
        now.tasks += 1;
        now.threads.add(self.threads);
        now.rss.add(self.rss);
        now.size.add(self.size);
        now.swap.add(self.swap);
        now.pss.add(self.pss);
        now.swap_pss.add(self.swap_pss);
        now.gpu_memory.add(self.gpu_memory);
        now.open.add(self.open);
        now.worst = [now.worst, self.open_share].into_iter().flatten().reduce(f64::max);
        now.oldest_ns = Some(now.oldest_ns.map_or(self.start_ns, |o| o.min(self.start_ns)));
    }
}

/// `RLIMIT_NOFILE`.
const NOFILE: usize = libc::RLIMIT_NOFILE as usize;

/// The values of this group, which a task may share with another one that has them in the answer.
fn of_owner<'a, R: GroupRecord>(row: &Row<'a>, group: Group) -> Option<Record<'a, R>> {
    row.view.owner(group)?.record::<R>()
}

/// Is the group missing because the task cannot have it, such as memory of a kernel thread? Then
/// its values are 0.
pub fn is_without(row: &Row<'_>, group: Group) -> bool {
    row.is_kthread() || row.is_zombie() || row.view.reason(group) == Some(Reason::Absent)
}

/// The counters of a task.
pub fn counts(row: &Row<'_>) -> Counts {
    let stat = |get: fn(Record<'_, Stat>) -> Option<u64>| row.stat.and_then(get).unwrap_or(NONE);
    let none = |group: Group| if is_without(row, group) { 0 } else { NONE };
    let io = |get: fn(Record<'_, taskdiag::Io>) -> Option<u64>| match row.io {
        Some(io) => get(io).unwrap_or(NONE),
        None => none(Group::Io),
    };
    let sched = |get: fn(Record<'_, taskdiag::Sched>) -> Option<u64>| match row.sched {
        Some(sched) => get(sched).unwrap_or(NONE),
        None => none(Group::Sched),
    };
    [
        stat(|r| r.utime_ns()),
        stat(|r| r.stime_ns()),
        io(|r| r.read_bytes()),
        io(|r| r.write_bytes()),
        stat(|r| r.majflt()),
        stat(|r| r.minflt()),
        sched(|r| r.nvcsw()),
        sched(|r| r.nivcsw()),
        // These are counted by socket and by engine, see `shared`.
        NONE,
        NONE,
        NONE,
    ]
}

/// Counts the groups that the answer lacks for a task, but should have.
pub fn note_gaps(row: &Row<'_>, gaps: &mut HashMap<(Group, Reason), u64>) {
    let there = [
        (Group::Stat, row.stat.is_some()),
        (Group::Statm, row.statm.is_some()),
        (Group::Io, row.io.is_some()),
        // Only the context switches may be unknown, if threads have ended.
        (Group::Sched, row.sched.is_some_and(|r| r.nvcsw().is_some())),
        (Group::FdCount, of_owner::<FdCount>(row, Group::FdCount).is_some()),
        (Group::Limits, row.limits.is_some()),
        (Group::Gpu, !row.view.asked().has(Group::Gpu) || row.view.owner(Group::Gpu).is_some()),
        (Group::Net, !row.view.asked().has(Group::Net) || row.view.owner(Group::Net).is_some()),
        (
            Group::Rollup,
            !row.view.asked().has(Group::Rollup)
                || of_owner::<Rollup>(row, Group::Rollup).is_some(),
        ),
    ];
    for (group, _) in there.into_iter().filter(|(_, is_there)| !is_there) {
        let reason = row.view.reason(group).unwrap_or(Reason::Unsupported);
        if reason != Reason::Absent && !is_without(row, group) {
            *gaps.entry((group, reason)).or_default() += 1;
        }
    }
}
