//! Runs reads that may wait for another task, without making the answer wait.
//!
//! Reading the memory or the mappings of a task waits for the lock of its address space, and for
//! page faults that another process may have to serve. Asking about a file may wait for a server
//! that is gone. This cannot be known beforehand, and such a wait cannot be cancelled: it ends when
//! the lock is free, or with our process. So a reading thread first puts its output where another
//! thread can take it, which costs two moves under an uncontended lock, and then reads. If the read
//! does not end, a new thread takes over the output, marks the group as blocked and continues. The
//! old thread keeps waiting, and ends when it finds that its work was taken. `supervise` is the
//! other side.

use std::sync::atomic::Ordering;

use taskdiag_wire::{Groups, Reason};

use super::handover::{Parked, STUCK};
use super::path::TaskDir;
use super::read::Reader;
use super::stop::Stop;
use super::worker::Worker;

/// At most this many threads are abandoned. Beyond that number, groups that may wait are not read.
const MAX_STUCK: usize = 64;

impl Worker<'_> {
    /// Runs a read for the groups `what` that may block on the target.
    ///
    /// # Errors
    /// [`Stop::Lost`] if another thread has taken over meanwhile; [`Stop::Gap`] if it is known that
    /// the read would wait.
    pub(super) fn risky<T>(
        &mut self,
        at: TaskDir<'_>,
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
        // The holder of the lock blocks all of these groups.
        let waits_for_lock = what.intersects(Groups::SHARED_MEMORY);
        let also = if waits_for_lock { Groups::WAITS_FOR_MEMORY } else { what };
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
