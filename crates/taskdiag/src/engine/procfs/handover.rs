//! Before a read that may not end, a reading thread puts its work here, so that its supervisor can
//! take it.

use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use taskdiag_wire::{Groups, StreamWriter};

use super::carriers::Shares;

/// The number of threads of this process that are stuck waiting for other tasks.
pub(super) static STUCK: AtomicUsize = AtomicUsize::new(0);
/// The work of a reading thread, parked while it is in a read that may not end.
#[derive(Debug)]
pub(super) struct Parked {
    pub(super) out: StreamWriter,
    /// The groups of the current task that are done.
    pub(super) said: Groups,
    pub(super) shares: Shares,
    pub(super) syscalls: u64,
    /// The index of the current item.
    pub(super) item: usize,
    pub(super) tgid: u32,
    /// The groups that cannot be read for this process, including those that are being read.
    pub(super) blocked: Groups,
}

/// The meeting point of a reading thread and its supervisor.
#[derive(Debug, Default)]
pub(super) struct Slot {
    state: Mutex<SlotState>,
    /// The id of the reading thread, or 0 before it has begun.
    pub(super) tid: AtomicI32,
}

#[derive(Debug, Default)]
pub(super) struct SlotState {
    pub(super) parked: Option<Parked>,
    /// The number of reads so far.
    pub(super) ticket: u64,
}

impl Slot {
    pub(super) fn state(&self) -> MutexGuard<'_, SlotState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// The number of the read that the thread is in, or `None` if it is in none.
    pub(super) fn waiting(&self) -> Option<u64> {
        let s = self.state();
        s.parked.is_some().then_some(s.ticket)
    }
    /// Takes the work of the thread, if it is still in that read.
    pub(super) fn take_over(&self, ticket: u64) -> Option<Parked> {
        let mut s = self.state();
        if s.ticket != ticket {
            return None;
        }
        let parked = s.parked.take();
        if parked.is_some() {
            STUCK.fetch_add(1, Ordering::Relaxed);
        }
        parked
    }
}

/// Called at the end of a thread whose work was taken.
pub(super) fn ended() {
    STUCK.fetch_sub(1, Ordering::Relaxed);
}

/// Whether this thread of ours is on a CPU, or ready to be.
pub(super) fn is_running(tid: i32) -> bool {
    let Ok(stat) = std::fs::read(format!("/proc/self/task/{tid}/stat")) else { return false };
    let state = stat.iter().rposition(|b| *b == b')').and_then(|at| stat.get(at + 2));
    state == Some(&b'R')
}
