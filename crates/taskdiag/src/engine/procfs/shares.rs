//! What the threads of a process share is read of one of them; the others say whose it is.
//!
//! Threads of a process always share its memory. They share its open files unless one unshared
//! them: kcmp(2) tells, in one call a thread.

use rustix::io::Errno;
use taskdiag_wire::{Group, Groups, Reason};

use super::task::{Place, Stop, Worker};

/// The groups about memory.
const MEMORY: Groups =
    Groups::VMA.union(Groups::VMA_STAT).union(Groups::ROLLUP).union(Groups::SWAP);
/// The groups about open files.
pub(super) const FILES: Groups = Groups::FD.union(Groups::FD_COUNT);
/// The groups that threads may share.
pub(super) const SHARED: Groups = MEMORY.union(FILES);

/// `KCMP_FILES` of linux/kcmp.h.
const KCMP_FILES: libc::c_long = 2;

/// Who of the process has a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// This thread.
    Task(u32),
    /// None, and trying again would take as long.
    Nobody(Reason),
}

/// What the threads of the process at hand share, as far as the answer has it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shares {
    owners: [Option<Owner>; Group::ALL.len()],
}

impl Shares {
    /// Is somebody known for each of `groups`?
    pub(super) fn settled(&self, groups: Groups) -> bool {
        (groups & SHARED).iter().all(|g| self.owners[g as usize].is_some())
    }
}

impl Worker<'_> {
    /// Of the asked ones of `groups`, those that must be read of this task. For the others it is
    /// said who has them.
    pub(super) fn unshared(&mut self, at: Place<'_>, groups: Groups) -> Result<Groups, Stop> {
        let mut left = (self.plan.groups - self.said) & groups;
        for g in left.iter() {
            let owner = self.shares.owners[g as usize];
            match owner {
                Some(Owner::Task(owner)) if MEMORY.has(g) || self.same_files(at, owner)? => {
                    self.out.shared(g, owner);
                    self.settle(g.into(), Ok(()))?;
                }
                Some(Owner::Nobody(reason)) => self.settle(g.into(), Err(Stop::Gap(reason)))?,
                _ => continue,
            }
            left = left - g.into();
        }
        Ok(left)
    }

    /// As `settle`, for groups that were read of this task: others of the process may refer to it.
    pub(super) fn settle_own(
        &mut self,
        at: Place<'_>,
        groups: Groups,
        got: Result<(), Stop>,
    ) -> Result<(), Stop> {
        if self.plan.threads {
            let owner = match got {
                Ok(()) => Some(Owner::Task(at.pid)),
                Err(Stop::Gap(r @ (Reason::Blocked | Reason::OverBudget))) => {
                    Some(Owner::Nobody(r))
                }
                Err(_) => None,
            };
            for g in groups.iter() {
                let known = &mut self.shares.owners[g as usize];
                *known = known.or(owner);
            }
        }
        self.settle(groups, got)
    }

    /// Do two threads have the same open files?
    fn same_files(&mut self, at: Place<'_>, owner: u32) -> Result<bool, Stop> {
        if !self.plan.own_pids {
            return Ok(false);
        }
        self.reader.syscalls += 1;
        // SAFETY: takes numbers only.
        let r = unsafe { libc::syscall(libc::SYS_kcmp, owner, at.pid, KCMP_FILES, 0, 0) };
        match r {
            0 => Ok(true),
            // Different; or not to be told, then each is read on its own.
            _ => match Errno::from_io_error(&std::io::Error::last_os_error()) {
                Some(Errno::SRCH) if r < 0 && !self.reader.exists(at) => Err(Stop::Gone),
                _ => Ok(false),
            },
        }
    }
}
