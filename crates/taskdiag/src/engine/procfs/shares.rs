//! Reads a group that the threads of a process share from one of them. The others refer to that
//! thread.
//!
//! The threads of a process always share its memory. They share its open files unless a thread has
//! unshared its table, which kcmp(2) shows with one call for each thread. If kcmp(2) is not
//! allowed, threads are assumed to share their files unless these look different. Then the answer
//! reports that this is not certain, and why.

use std::ffi::CStr;

use rustix::io::Errno;
use taskdiag_wire::{Group, Groups, Reason};

use super::carriers::Carrier;
use super::path::TaskDir;
use super::stop::Stop;
use super::worker::Worker;

/// `KCMP_FILES` of linux/kcmp.h.
const KCMP_FILES: libc::c_long = 2;

impl Worker<'_> {
    /// Returns the requested groups among `groups` that must be read from this task. For the
    /// others, it writes a reference to the thread that has them.
    pub(super) fn unshared(&mut self, at: TaskDir<'_>, groups: Groups) -> Result<Groups, Stop> {
        let mut left = (self.run.groups - self.said) & groups;
        for g in left.iter() {
            let owner = match self.shares.owners[g as usize] {
                Some(Carrier::Task(owner)) => owner,
                Some(Carrier::Nobody(reason)) => {
                    self.settle(g.into(), Err(Stop::Gap(reason)))?;
                    left = left - g.into();
                    continue;
                }
                None => continue,
            };
            let same = match Groups::SHARED_MEMORY.has(g) {
                true => Same::Yes,
                false => self.same_files(at, owner, g)?,
            };
            if same == Same::No {
                continue;
            }
            self.out.shared(g, owner);
            if let Same::Presumed(why) = same {
                self.out.missing(g, why);
            }
            self.settle(g.into(), Ok(()))?;
            left = left - g.into();
        }
        Ok(left)
    }

    /// As `settle`, for groups that this task has itself. Other threads of the process may refer to
    /// it.
    pub(super) fn settle_own(
        &mut self,
        at: TaskDir<'_>,
        groups: Groups,
        got: Result<(), Stop>,
    ) -> Result<(), Stop> {
        if self.run.threads {
            let owner = match got {
                Ok(()) => Some(Carrier::Task(at.pid)),
                Err(Stop::Gap(r @ (Reason::Blocked | Reason::OverBudget))) => {
                    Some(Carrier::Nobody(r))
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

    /// Whether two threads have the same open files, for this group.
    fn same_files(&mut self, at: TaskDir<'_>, owner: u32, group: Group) -> Result<Same, Stop> {
        if !self.run.own_pids {
            return Ok(self.same_by_look(at, owner, group, Reason::Unsupported));
        }
        self.reader.syscalls += 1;
        // SAFETY: takes numbers only.
        let r = unsafe { libc::syscall(libc::SYS_kcmp, owner, at.pid, KCMP_FILES, 0, 0) };
        match r {
            0 => return Ok(Same::Yes),
            r if r > 0 => return Ok(Same::No),
            _ => {}
        }
        let denied = match Errno::from_io_error(&std::io::Error::last_os_error()) {
            Some(Errno::SRCH) if !self.reader.exists(at) => return Err(Stop::Gone),
            // The other thread has ended.
            Some(Errno::SRCH) => return Ok(Same::No),
            Some(Errno::PERM | Errno::ACCESS) => Reason::Denied,
            _ => Reason::Unsupported,
        };
        Ok(self.same_by_look(at, owner, group, denied))
    }

    /// As `same_files`, if kcmp(2) is not allowed: threads count as sharing unless their files look
    /// different. A file that was opened between two looks proves nothing.
    fn same_by_look(&mut self, mut at: TaskDir<'_>, owner: u32, group: Group, why: Reason) -> Same {
        let theirs = at.path.of_process(self.run.threads, &format!("task/{owner}/fd"));
        let mut look = |path: &CStr| match group {
            // The size is 0 before Linux 6.2.
            Group::FdCount => match self.reader.stat(at.dir, path).ok()?.st_size {
                0 => self.reader.count(at.dir, path).ok().map(Look::Number),
                n => Some(Look::Number(n as u64)),
            },
            _ => self.reader.links(at.dir, path).ok().map(Look::Links),
        };
        let before = look(&theirs);
        let ours = look(at.path.file("fd"));
        if before == ours {
            return Same::Presumed(why);
        }
        let after = look(&theirs);
        // If the files cannot be looked at, the answer does not have them either.
        match before.is_some() && before == after && ours.is_some() {
            true => Same::No,
            false => Same::Presumed(why),
        }
    }
}

/// Whether threads share their open files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Same {
    Yes,
    No,
    /// Probably, but it cannot be known for this reason.
    Presumed(Reason),
}

/// The visible properties of a directory of open files.
#[derive(Debug, PartialEq, Eq)]
enum Look {
    /// The number of open files.
    Number(u64),
    /// The descriptors and their targets.
    Links(Vec<(u32, Vec<u8>)>),
}
