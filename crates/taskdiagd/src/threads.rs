//! Checks whether a thread of a caller is confined, although the first thread is not.
//!
//! The kernel identifies the process that sends a question, but not the thread. Each thread has its
//! own seccomp mode, no_new_privs, security label, mount namespace and root directory. So each
//! thread is checked, and the process is refused if one is confined: otherwise, that thread could
//! learn from the service what its own /proc hides.

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Dir, Mode, OFlags};
use taskdiag::service::Refusal;

use crate::caller;

/// The largest number of threads that are looked at for a question. Each takes some system calls.
pub const THREADS: usize = 64;

/// The number of threads in `status`. 0: not known.
pub fn count(status: &[u8]) -> usize {
    let line = status.split(|b| *b == b'\n').find_map(|l| l.strip_prefix(b"Threads:"));
    line.and_then(|n| std::str::from_utf8(n).ok()?.trim().parse().ok()).unwrap_or(0)
}

/// Checks all threads of a process, whose directory in /proc is open. `first` is the start of the
/// first thread's table of mounts. A thread that ends meanwhile is skipped, because it gets no
/// answer.
///
/// # Errors
/// A thread is confined, has other mounts or another root directory, or there are too many to look
/// at.
pub fn judge(
    dir: &OwnedFd,
    leader: u32,
    first: &caller::First,
    labels: &[&str],
) -> Result<(), Refusal> {
    let unknown = |_| Refusal::UnknownCaller;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let tasks = rustix::fs::openat(dir, "task", flags, Mode::empty()).map_err(unknown)?;
    let mut seen = 0;
    for entry in Dir::read_from(&tasks).map_err(unknown)? {
        let entry = entry.map_err(unknown)?;
        let Some(tid) = number(entry.file_name()) else { continue };
        if tid == leader {
            continue;
        }
        seen += 1;
        if seen >= THREADS {
            return Err(Refusal::Threads);
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::openat(&tasks, entry.file_name(), flags, Mode::empty()) {
            Ok(thread) => one(thread, first, labels)?,
            Err(rustix::io::Errno::NOENT) => {}
            Err(_) => return Err(Refusal::UnknownCaller),
        }
    }
    Ok(())
}

fn one(thread: OwnedFd, first: &caller::First, labels: &[&str]) -> Result<(), Refusal> {
    let judged = caller::read(thread.as_fd(), "status")
        .map_err(|_| Refusal::UnknownCaller)
        .and_then(|status| caller::is_free(&status))
        .and_then(|()| caller::have_no_bounds(thread.as_fd(), labels))
        .and_then(|()| match caller::first(&thread) {
            Ok(Some(its)) if its == *first => Ok(()),
            Ok(_) => Err(Refusal::Mounts),
            Err(_) => Err(Refusal::UnknownCaller),
        });
    // The files of a thread that has ended are gone, or empty.
    let has_ended = || rustix::fs::statat(&thread, "status", rustix::fs::AtFlags::empty()).is_err();
    match judged {
        Err(_) if has_ended() => Ok(()),
        judged => judged,
    }
}

fn number(name: &CStr) -> Option<u32> {
    name.to_str().ok()?.parse().ok()
}
