//! Changes between two answers to the same request.
//!
//! Tasks are found again by their [`TaskId`].

use std::time::Duration;

use taskdiag_wire::{Io, Sched, Stat, TaskView};

use crate::snapshot::Snapshot;
use crate::task_id::TaskId;

/// Changes between an older snapshot and a newer one: see [`Snapshot::since`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Changes<'a> {
    /// Tasks that only the newer snapshot has.
    pub began: Vec<TaskView<'a>>,
    /// Tasks that only the older snapshot has.
    pub ended: Vec<TaskView<'a>>,
    /// Tasks that are in both, in the order of the newer one.
    pub stayed: Vec<Stayed<'a>>,
    /// Tasks of one snapshot that could not be searched for in the other one. Either their start
    /// time is not known, or the other snapshot ended early and does not have their pid.
    pub unknown: Vec<TaskView<'a>>,
    /// Time between the starts of the two answers, on the boot clock. If the machine has booted
    /// meanwhile, by the time of day.
    pub interval: Duration,
}

/// A task in two snapshots.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Stayed<'a> {
    /// As it was.
    pub old: TaskView<'a>,
    /// As it is.
    pub new: TaskView<'a>,
}

impl Stayed<'_> {
    /// CPU time used meanwhile, user and system together. `None`: STAT is not known in both.
    ///
    /// The time of a process is the sum over its threads.
    pub fn cpu_time(&self) -> Option<Duration> {
        let of = |t: &TaskView<'_>| {
            let stat = t.record::<Stat>()?;
            Some(stat.utime_ns()?.saturating_add(stat.stime_ns()?))
        };
        Some(Duration::from_nanos(of(&self.new)?.saturating_sub(of(&self.old)?)))
    }
    /// CPUs used on average: 1.0 is one CPU all the time. `None`: as [`cpu_time`](Self::cpu_time),
    /// or no time has passed.
    pub fn cpus(&self, interval: Duration) -> Option<f64> {
        let seconds = interval.as_secs_f64();
        (seconds > 0.0).then_some(self.cpu_time()?.as_secs_f64() / seconds)
    }
    /// Page faults between the two answers: minor and major ones. `None`: STAT is not known in
    /// both.
    pub fn faults(&self) -> Option<(u64, u64)> {
        self.both::<(u64, u64)>(|t| {
            let stat = t.record::<Stat>()?;
            Some((stat.minflt()?, stat.majflt()?))
        })
        .map(|(old, new)| (new.0.saturating_sub(old.0), new.1.saturating_sub(old.1)))
    }
    /// Bytes read from and written to storage meanwhile. `None`: IO is not known in both.
    pub fn storage_bytes(&self) -> Option<(u64, u64)> {
        self.both::<(u64, u64)>(|t| {
            let io = t.record::<Io>()?;
            Some((io.read_bytes()?, io.write_bytes()?))
        })
        .map(|(old, new)| (new.0.saturating_sub(old.0), new.1.saturating_sub(old.1)))
    }
    /// Context switches between the two answers: voluntary and involuntary ones. `None`: SCHED is
    /// not known in both.
    pub fn switches(&self) -> Option<(u64, u64)> {
        self.both::<(u64, u64)>(|t| {
            let sched = t.record::<Sched>()?;
            Some((sched.nvcsw()?, sched.nivcsw()?))
        })
        .map(|(old, new)| (new.0.saturating_sub(old.0), new.1.saturating_sub(old.1)))
    }
    fn both<T>(&self, of: impl Fn(&TaskView<'_>) -> Option<T>) -> Option<(T, T)> {
        Some((of(&self.old)?, of(&self.new)?))
    }
}

impl Snapshot {
    /// Changes since an older snapshot of the same request. Both need BASE, because it has the
    /// start time of a task.
    ///
    /// A counter that is lower than before counts as 0; this only happens if a counter of the
    /// kernel wrapped.
    pub fn since<'a>(&'a self, old: &'a Snapshot) -> Changes<'a> {
        // No task survives a reboot. A task of another boot may have the same pid and time since
        // boot.
        let (before, now) = (old.stream().info(), self.stream().info());
        let has_booted = before.boot_id.is_same(&now.boot_id) == Some(false);
        let same = |id: &TaskId, other: Option<TaskView<'a>>| {
            other.filter(|o| !has_booted && TaskId::of(o).is_some_and(|o| o.is_same(id)))
        };
        let ns = |s: &Snapshot| s.stream().info().boottime_ns;
        let interval_ns = match has_booted {
            true => now.realtime_ns.saturating_sub(before.realtime_ns),
            false => ns(self).saturating_sub(ns(old)),
        };
        let is_cut = |s: &Snapshot| s.stream().done().error != 0;
        let mut changes = Changes {
            began: Vec::new(),
            ended: Vec::new(),
            stayed: Vec::with_capacity(self.tasks().len()),
            unknown: Vec::new(),
            interval: Duration::from_nanos(interval_ns),
        };
        for new in self.tasks() {
            let Some(id) = TaskId::of(&new) else {
                changes.unknown.push(new);
                continue;
            };
            match same(&id, old.task(new.pid())) {
                Some(old) => changes.stayed.push(Stayed { old, new }),
                None if is_cut(old) && !has_booted && !id.may_have_begun_since(ns(old)) => {
                    changes.unknown.push(new)
                }
                None => changes.began.push(new),
            }
        }
        for gone in old.tasks() {
            match TaskId::of(&gone) {
                None => changes.unknown.push(gone),
                Some(id) if same(&id, self.task(gone.pid())).is_none() => {
                    // If another task has the pid by now, the task that had it has ended.
                    let is_missing = self.task(gone.pid()).is_none();
                    match is_cut(self) && is_missing {
                        true => changes.unknown.push(gone),
                        false => changes.ended.push(gone),
                    }
                }
                Some(_) => {}
            }
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use taskdiag_wire::{Base, Done, Info, StreamWriter, build};

    /// Tasks by pid, start time and CPU time in seconds; the answer was begun at this second.
    fn snapshot(at: u64, tasks: &[(u32, Option<u64>, u64)]) -> Snapshot {
        answer(at, tasks, 0)
    }

    /// An answer with these tasks that ended early with this error.
    fn answer(at: u64, tasks: &[(u32, Option<u64>, u64)], error: i32) -> Snapshot {
        const SECOND: u64 = 1_000_000_000;
        let mut w = StreamWriter::new();
        w.info(&build!(Info {
            boottime_ns: at * SECOND,
            clk_tck: 100,
            ..StreamWriter::blank_info()
        }));
        for (pid, start, cpu) in tasks {
            w.begin_task(*pid, *pid);
            let mut base = Base::new();
            if let Some(ns) = start {
                base.valid = Base::ALL_VALID;
                base.start_time_ns = *ns;
            }
            w.put(&base);
            let mut stat = Stat::new();
            stat.valid = Stat::ALL_VALID;
            stat.utime_ns = cpu * SECOND;
            w.put(&stat);
            w.end_task();
        }
        Snapshot::parse(w.finish(build!(Done { error, ..Done::default() }))).expect("it is whole")
    }

    #[test]
    fn tasks_missing_from_a_cut_answer_neither_ended_nor_began() {
        let at = |ms: u64| Some(ms * 1_000_000);
        let whole = snapshot(10, &[(1, at(1), 5), (2, at(100), 7)]);
        let cut = answer(11, &[(1, at(1), 5)], -libc::EINTR);
        let later = snapshot(12, &[(1, at(1), 5), (2, at(100), 7), (3, at(11_500), 1)]);
        let pids = |tasks: &[TaskView<'_>]| tasks.iter().map(TaskView::pid).collect::<Vec<_>>();
        let all = |c: &Changes<'_>| [&c.began, &c.ended, &c.unknown].map(|t| pids(t));
        assert_eq!(all(&cut.since(&whole)), [vec![], vec![], vec![2]]);
        assert_eq!(all(&later.since(&cut)), [vec![3], vec![], vec![2]]);
        // Another task has the pid, so the previous one has ended.
        let again = answer(12, &[(2, at(10_500), 0)], -libc::EINTR);
        assert_eq!(all(&again.since(&whole)), [vec![2], vec![2], vec![1]]);
    }

    #[test]
    fn cpu_time_beyond_all_bounds_is_no_failure() {
        let using = |ns: u64| {
            let mut w = StreamWriter::new();
            w.info(&StreamWriter::blank_info());
            w.begin_task(1, 1);
            w.put(&build!(Base { valid: Base::ALL_VALID, ..Base::new() }));
            w.put(&build!(Stat {
                valid: Stat::ALL_VALID,
                utime_ns: ns,
                stime_ns: ns,
                ..Stat::new()
            }));
            w.end_task();
            Snapshot::parse(w.finish(Done::default())).expect("it is whole")
        };
        let (old, new) = (using(0), using(u64::MAX));
        let changes = new.since(&old);
        assert_eq!(changes.stayed[0].cpu_time(), Some(Duration::from_nanos(u64::MAX)));
    }

    #[test]
    fn tasks_are_the_same_by_pid_and_start_time() {
        let ms = |n: u64| Some(n * 1_000_000);
        let old = snapshot(10, &[(1, ms(1), 5), (2, ms(100), 0), (3, ms(200), 7), (5, None, 0)]);
        // 1 within a tick, 2 ended, 3 another one by now, 4 new
        let new = snapshot(12, &[(1, ms(11), 8), (3, ms(900), 1), (4, ms(950), 0), (5, None, 0)]);
        let changes = new.since(&old);
        let pids = |tasks: &[TaskView<'_>]| tasks.iter().map(TaskView::pid).collect::<Vec<_>>();
        assert_eq!(pids(&changes.began), [3, 4]);
        assert_eq!(pids(&changes.ended), [2, 3]);
        assert_eq!(pids(&changes.unknown), [5, 5]);
        assert_eq!(changes.interval, Duration::from_secs(2));
        let [one] = &changes.stayed[..] else { panic!("{:?}", changes.stayed) };
        assert_eq!((one.new.pid(), one.cpu_time()), (1, Some(Duration::from_secs(3))));
        assert_eq!(one.cpus(changes.interval), Some(1.5));
        assert_eq!(one.cpus(Duration::ZERO), None);
        assert_eq!(one.storage_bytes(), None);
    }
}
