//! The clock of the scheduler, which measures the times in `/proc/PID/sched`.

use rustix::fs::CWD;
use rustix::time::ClockId;
use taskdiag_wire::{RanBy, Wait};

use super::parse::{self, set};
use super::read::Reader;

/// The clock of the scheduler is set at least once in this time while its CPU runs something.
pub(super) const TICK_NS: u64 = 10_000_000;

/// How the clock of the scheduler relates to the boot clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct SchedClock {
    /// The clock of the scheduler at a moment, and the boot clock at the same moment.
    sched_ns: u64,
    pub(super) boot_ns: u64,
    /// By how much a time may be wrong. The clock of each CPU leaves out interrupts and the time
    /// that a hypervisor took away.
    error_ns: u64,
}

impl SchedClock {
    /// Finds the clock by reading the times of our own running thread. `None`: the kernel does not
    /// show them.
    pub(super) fn find(reader: &mut Reader, tick_ns: u64) -> Option<SchedClock> {
        let lost = reader.file(CWD, c"/proc/stat").ok().and_then(parse::lost_ticks)?;
        let sched = parse::sched(reader.file(CWD, c"/proc/thread-self/sched").ok()?);
        let now = rustix::time::clock_gettime(ClockId::Boottime);
        Some(SchedClock {
            sched_ns: sched.exec_start_ns?,
            boot_ns: now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64,
            error_ns: lost.saturating_mul(tick_ns).saturating_add(TICK_NS),
        })
    }

    /// Enters when a task last ran, from the time that the scheduler noted.
    pub(super) fn put(&self, wait: &mut Wait, exec_start_ns: u64) {
        let ago = self.sched_ns.saturating_sub(exec_start_ns);
        set!(wait, Wait.last_ran_ns, Some(self.boot_ns.saturating_sub(ago)));
        set!(wait, Wait.ran_error_ns, Some(self.error_ns));
        set!(wait, Wait.ran_by, Some(RanBy::ExecStart as u32));
    }
}
