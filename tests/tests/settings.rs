//! PIDFD of every engine, against what the system calls tell of processes and threads.

use std::os::fd::{FromRawFd, OwnedFd};

use taskdiag::{Group, Groups, Reason, Request};
use taskdiag_tests::answer::engines_with;
use taskdiag_tests::{Mktask, read, skip};

/// The inode of a pidfd, as util-linux has it in `PID:INODE`. `None`: this kernel has none.
fn inode(id: u32, flags: i32) -> Option<u64> {
    // SAFETY: takes numbers, and returns a descriptor that nobody else has.
    let fd = unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, id, flags);
        OwnedFd::from_raw_fd(i32::try_from(fd).ok().filter(|fd| *fd >= 0)?)
    };
    taskdiag::pidfd_inode(fd).expect("it is open")
}

#[test]
fn pidfds_have_the_inodes_that_fstat_tells() {
    let test = "pidfds_have_the_inodes_that_fstat_tells";
    let Some(m) = Mktask::or_skip(test, &["threads", "3"]) else { return };
    let process = inode(m.pid(), 0);
    if process.is_none() {
        skip(test, "pidfds have no inodes of their own before Linux 6.9");
    }
    let groups = Groups::BASE | Groups::PIDFD;
    let engines = engines_with(Group::Pidfd);
    assert!(!engines.is_empty());
    for engine in engines {
        for req in [Request::one(m.pid(), groups), Request::threads(m.pid(), groups)] {
            let answer = read(engine, &req).expect("an answer");
            let pids = answer.pids();
            assert_eq!(pids.len(), if req.strategy.is_threads() { 4 } else { 1 }, "{answer}");
            for id in pids {
                let task = answer.task(id);
                let Some(process) = process else {
                    assert_eq!(task.missing("pidfd"), Some(Reason::Unsupported), "{answer}");
                    continue;
                };
                assert_eq!(task.num("pidfd.process_ino"), process.into(), "{answer} of {id}");
                let own = match req.strategy.is_threads() {
                    true => inode(id, libc::O_EXCL).expect("PIDFD_THREAD is as old as the inodes"),
                    false => process,
                };
                assert_eq!(task.num("pidfd.ino"), own.into(), "{answer} of {id}");
                let is_leader = id == m.pid();
                assert_eq!(is_leader, own == process, "{answer} of {id}: each has its own");
            }
        }
    }
}
