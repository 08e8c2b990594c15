//! Runs reads that may wait for another task, in such a way that the answer does not wait for them.
//!
//! Reading the memory or the mappings of a task waits for the lock of its address space, and for whoever
//! must bring a page in. Asking about a file may wait for a server that is gone. Nothing tells so
//! beforehand, and such a wait cannot be taken back: it ends when the lock is free, or with our process. So
//! a reading thread first puts what it has written where another thread can take it, which costs two moves
//! under an uncontended lock, and then reads. If the read does not end, a new thread takes over the writing,
//! states the group as blocked and goes on. The old thread stays in its wait, and ends when it finds that
//! its work has gone. `supervise` is the other side.

use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use taskdiag_wire::{Groups, Reason, StreamWriter};

use super::read::Reader;
use super::shares::Shares;
use super::task::{Place, Stop, Worker};

/// The groups whose reads may wait.
pub(super) const RISKY: Groups =
    Groups::CMDLINE.union(Groups::ENVIRON).union(MEMORY).union(Groups::FD);
/// The groups whose reads wait for the lock of the address space only.
const MEMORY: Groups =
    Groups::VMA.union(Groups::VMA_STAT).union(Groups::ROLLUP).union(Groups::SWAP);

/// The number of threads of this process that wait for other tasks and were left behind.
static STUCK: AtomicUsize = AtomicUsize::new(0);
/// At most this many threads are left behind. Once there are so many, groups that may wait are not read.
const MAX_STUCK: usize = 64;

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
    /// The groups that cannot be read of this process, with those that are being read.
    pub(super) blocked: Groups,
}

/// Where a reading thread and its supervisor meet.
#[derive(Debug, Default)]
pub(super) struct Slot {
    state: Mutex<State>,
    /// The id of the reading thread, or 0 before it has begun.
    pub(super) tid: AtomicI32,
}

#[derive(Debug, Default)]
struct State {
    parked: Option<Parked>,
    /// The number of reads so far.
    ticket: u64,
}

impl Slot {
    fn state(&self) -> MutexGuard<'_, State> {
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

/// Called when a thread whose work was taken ends.
pub(super) fn ended() {
    STUCK.fetch_sub(1, Ordering::Relaxed);
}

impl Worker<'_> {
    /// Runs a read for the groups `what` that may block on the target.
    ///
    /// # Errors
    /// [`Stop::Lost`] if another thread has taken over meanwhile; [`Stop::Gap`] if it is known that the read
    /// would wait.
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
        // Whoever holds the lock blocks all of these groups.
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
