//! Completes the records of WAIT: what a task waits for follows from the name of a function and the
//! number of a system call, and a program would compare texts for a long time.

use taskdiag_wire::{TaskMsg, Wait};
use zerocopy::FromBytes;

use super::attrs::each_attr;
use crate::engine::{numbering, waits};

/// Completes all records in this stream, and replaces the addresses of locks in them. Returns the
/// number of system calls.
pub(super) fn complete(stream: &mut [u8]) -> u64 {
    let (mut calls, mut is_own) = (0, None);
    each_attr(stream, |task, kind, bytes| {
        if kind != Wait::TYPE {
            return;
        }
        let Ok((wait, _)) = Wait::mut_from_prefix(bytes) else { return };
        let fd = waits::descriptor(wait);
        // The numbers in another /proc belong to other processes.
        let mut is_own = || *is_own.get_or_insert_with(numbering::proc_is_own);
        let target = fd.filter(|_| is_own()).and_then(|fd| {
            calls += 4;
            link(task, wait, fd)
        });
        waits::complete(wait, task.tgid);
        if let Some(target) = target {
            waits::set_by_link(wait, &target);
        }
    });
    calls
}

/// The target of the link to an open file of a thread. `None`: after the link was read, the thread
/// no longer waited as in its record.
fn link(task: &TaskMsg, wait: &Wait, fd: u32) -> Option<Vec<u8>> {
    let dir = format!("/proc/{}/task/{}", task.tgid, task.pid);
    let target = rustix::fs::readlink(format!("{dir}/fd/{fd}"), Vec::new()).ok()?;
    let [a, b, c, d, e, f] = wait.args;
    let (nr, sp, pc) = (wait.syscall_nr, wait.user_sp, wait.user_pc);
    let same = format!("{nr} {a:#x} {b:#x} {c:#x} {d:#x} {e:#x} {f:#x} {sp:#x} {pc:#x}\n");
    let is_same = std::fs::read(format!("{dir}/syscall")).is_ok_and(|now| now == same.as_bytes());
    is_same.then(|| target.into_bytes())
}
