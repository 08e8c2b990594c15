//! The identity of a task. A pid alone is not enough, because a later task may have the same
//! number.
//!
//! A task is identified by its pid and its start time. /proc rounds start times down to a clock
//! tick and BPF does not, so two start times that differ by at most a tick are the same: no pid is
//! used twice within a tick. The head of each stream has the length of a tick.

use taskdiag_wire::{Base, Info, TaskView};

use crate::calendar::since_boot;

/// The length of a clock tick, to which /proc rounds times down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tick(u32);

impl Tick {
    /// The tick of the machine that made a stream. Source: `clk_tck` of INFO.
    pub fn of(info: &Info) -> Tick {
        Tick::of_rate(u64::from(info.clk_tck))
    }
    /// The tick of this machine.
    pub fn here() -> Tick {
        Tick::of_rate(rustix::param::clock_ticks_per_second())
    }
    fn of_rate(per_second: u64) -> Tick {
        // More ticks than nanoseconds are nonsense, and 0 would divide by itself.
        Tick((1_000_000_000 / per_second.clamp(1, 1_000_000_000)) as u32)
    }
    /// The length of the tick in ns, at least 1.
    pub fn ns(self) -> u64 {
        u64::from(self.0)
    }
    /// The last whole tick at or before a time in ns, as in /proc.
    pub fn floor(self, ns: u64) -> u64 {
        ns - ns % self.ns()
    }
}

/// The identity of a task, which a later task with the same pid does not have.
///
/// ```
/// # fn main() -> Result<(), taskdiag::Error> {
/// use taskdiag::{Groups, Request, TaskId, query};
///
/// let request = Request::one(std::process::id(), Groups::BASE);
/// let (first, second) = (query(&request)?, query(&request)?);
/// let id = |answer: &taskdiag::Snapshot| TaskId::of(&answer.tasks().next()?);
/// assert!(id(&first).is_some_and(|a| id(&second).is_some_and(|b| a.is_same(&b))));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct TaskId {
    pid: u32,
    tick: Tick,
    start_ns: u64,
}

impl TaskId {
    /// The identity of a task of an answer, or `None` if the answer has no BASE of the task, and
    /// so no start time.
    pub fn of(task: &TaskView<'_>) -> Option<TaskId> {
        let start_ns = task.record::<Base>()?.start_time_ns()?;
        Some(TaskId::new(task.pid(), start_ns, Tick::of(task.info())))
    }
    /// From its parts: the pid, the start time in ns since boot, and the tick of the machine.
    pub fn new(pid: u32, start_ns: u64, tick: Tick) -> TaskId {
        TaskId { pid, tick, start_ns }
    }
    /// Thread id (of the leader, for a process).
    pub fn pid(&self) -> u32 {
        self.pid
    }
    /// When it began, in ns since boot, as exactly as the engine knows it.
    pub fn start_ns(&self) -> u64 {
        self.start_ns
    }
    /// The tick of the machine.
    pub fn tick(&self) -> Tick {
        self.tick
    }
    fn tick_ns(&self, other: &TaskId) -> u64 {
        self.tick.ns().max(other.tick.ns())
    }
    /// Is it the same task, and not a later one with the same pid?
    pub fn is_same(&self, other: &TaskId) -> bool {
        let between = since_boot(self.start_ns).abs_diff(since_boot(other.start_ns));
        self.pid == other.pid && between <= self.tick_ns(other)
    }
    /// Whether it began before the other task, or at the same time as far as the precision shows.
    /// Parents, and processes of threads, did.
    pub fn is_no_younger(&self, other: &TaskId) -> bool {
        let later = since_boot(other.start_ns).saturating_add_unsigned(self.tick_ns(other));
        since_boot(self.start_ns) <= later
    }
    /// May it have begun at this time in ns since boot, or later? A start time in /proc is rounded
    /// down to the previous tick.
    pub fn may_have_begun_since(&self, ns: u64) -> bool {
        since_boot(self.start_ns).saturating_add_unsigned(self.tick.ns()) >= since_boot(ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use taskdiag_wire::{StreamWriter, build};

    const SECOND: u64 = 1_000_000_000;

    fn tick(per_second: u32) -> Tick {
        Tick::of(&build!(Info { clk_tck: per_second, ..StreamWriter::blank_info() }))
    }

    #[test]
    fn start_times_within_a_tick_are_of_one_task() {
        let id = |pid, start_ns| TaskId::new(pid, start_ns, tick(100));
        let this = id(7, SECOND);
        assert!(
            this.is_same(&id(7, SECOND + 10_000_000)) && id(7, SECOND + 10_000_000).is_same(&this)
        );
        assert!(!this.is_same(&id(7, SECOND + 10_000_001)));
        assert!(!this.is_same(&id(8, SECOND)));
    }

    #[test]
    fn the_tick_is_that_of_the_stream() {
        // With ticks of a millisecond, start times that are 5 ms apart belong to different tasks.
        let id = |start_ns, hz| TaskId::new(7, start_ns, tick(hz));
        assert!(!id(SECOND, 1000).is_same(&id(SECOND + 5_000_000, 1000)));
        // Of two streams with different ticks, the longer tick has rounded more.
        assert!(id(SECOND, 1000).is_same(&id(SECOND + 5_000_000, 100)));
        assert_eq!([tick(0).ns(), tick(1000).ns(), tick(u32::MAX).ns()], [SECOND, 1_000_000, 1]);
        assert_eq!(tick(100).floor(SECOND + 19_999_999), SECOND + 10_000_000);
        assert!(Tick::here().ns() > 0);
    }

    #[test]
    fn a_task_from_before_the_boot_of_its_namespace_is_older() {
        // The kernel counts without a sign.
        let id = |start_ns: i64| TaskId::new(7, start_ns as u64, tick(100));
        assert!(id(-5_000_000).is_same(&id(4_000_000)));
        assert!(id(-20_000_000).is_no_younger(&id(0)) && !id(20_000_000).is_no_younger(&id(0)));
        assert!(id(5_000_000).is_no_younger(&id(0)));
        assert!(id(-5_000_000).may_have_begun_since(4_000_000));
        assert!(!id(-20_000_000).may_have_begun_since(4_000_000));
        assert!(id(i64::MAX).may_have_begun_since(0) && !id(i64::MAX).is_no_younger(&id(0)));
    }
}
