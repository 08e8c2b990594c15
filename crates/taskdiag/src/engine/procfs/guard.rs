//! Reads that may wait for another task, and how not to wait for them.
//!
//! Reading the memory of a task or its mappings waits for the lock of its address space, and for
//! whoever must bring a page in; asking about a file may wait for a server that is gone. Nothing
//! tells beforehand, and such a wait cannot be taken back: it ends when the lock is free, or with
//! our process. So the reading thread puts what it has written so far where another can take it
//! (two moves under an uncontended lock), and reads. If the read does not end, a new thread takes
//! the writing over, states the group as blocked and goes on; the old one stays in its wait, and
//! ends when it finds its work gone. `supervise` is that other side.

use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use taskdiag_wire::{Groups, Reason, StreamWriter};

use super::read::Reader;
use super::shares::Shares;
use super::task::{Place, Stop, Worker};

/// The groups that may wait.
pub(super) const RISKY: Groups =
    Groups::CMDLINE.union(Groups::ENVIRON).union(MEMORY).union(Groups::FD);
/// Those that wait for the lock of the address space only.
const MEMORY: Groups =
    Groups::VMA.union(Groups::VMA_STAT).union(Groups::ROLLUP).union(Groups::SWAP);

/// Threads of this process that wait for other tasks, and that nobody waits for.
static STUCK: AtomicUsize = AtomicUsize::new(0);
/// More than this are not left behind: then what may wait is not read.
const MAX_STUCK: usize = 64;

/// What a reading thread has, while it is in a read that may not end.
#[derive(Debug)]
pub(super) struct Parked {
    pub(super) out: StreamWriter,
    /// Groups of the task at hand that are done.
    pub(super) said: Groups,
    pub(super) shares: Shares,
    pub(super) syscalls: u64,
    /// The item it is at.
    pub(super) item: usize,
    pub(super) tgid: u32,
    /// What cannot be read of that process; the groups being read included.
    pub(super) blocked: Groups,
}

/// Where a reading thread and its supervisor meet.
#[derive(Debug, Default)]
pub(super) struct Slot {
    state: Mutex<State>,
    /// The reading thread; 0: it has not begun.
    pub(super) tid: AtomicI32,
}

#[derive(Debug, Default)]
struct State {
    parked: Option<Parked>,
    /// Counts the reads.
    ticket: u64,
}

impl Slot {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// The number of the read that the thread is in; `None`: in none.
    pub(super) fn waiting(&self) -> Option<u64> {
        let s = self.state();
        s.parked.is_some().then_some(s.ticket)
    }
    /// Take the work of the thread, which is still in that read.
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

/// A thread whose work was taken ends now.
pub(super) fn ended() {
    STUCK.fetch_sub(1, Ordering::Relaxed);
}

impl Worker<'_> {
    /// Do a read for `what` of a task that may wait for the task.
    ///
    /// # Errors
    /// [`Stop::Lost`] where another thread has taken over meanwhile; a gap where it is known that
    /// it would wait.
    pub(super) fn risky<T>(
        &mut self,
        at: Place<'_>,
        what: Groups,
        read: impl FnOnce(&mut Reader) -> T,
    ) -> Result<T, Stop> {
        let Some(slot) = self.slot else { return Ok(read(&mut self.reader)) };
        if self.blocked.0 != at.tgid {
            self.blocked = (at.tgid, Groups::NONE);
        }
        if self.blocked.1.intersects(what) || STUCK.load(Ordering::Relaxed) >= MAX_STUCK {
            return Err(Stop::Gap(Reason::Blocked));
        }
        // Who holds the lock keeps all of these waiting.
        let kin = MEMORY.union(Groups::CMDLINE).union(Groups::ENVIRON);
        let also = if what.intersects(MEMORY) { kin } else { what };
        let parked = Parked {
            out: std::mem::take(&mut self.out),
            said: self.said,
            shares: self.shares,
            syscalls: self.reader.syscalls,
            item: self.item,
            tgid: at.tgid,
            blocked: self.blocked.1 | what | also,
        };
        {
            let mut s = slot.state();
            s.ticket += 1;
            s.parked = Some(parked);
        }
        let got = read(&mut self.reader);
        let back = slot.state().parked.take();
        match back {
            Some(parked) => {
                self.out = parked.out;
                Ok(got)
            }
            None => {
                self.lost = true;
                Err(Stop::Lost)
            }
        }
    }
}
