//! Finds out whether a seccomp filter kills a program that calls bpf(2).
//!
//! A service of systemd with `SystemCallFilter=@system-service` has such a filter. The filter
//! cannot be read, and there is no other way to find out its effect. So a child process makes the
//! call first, but only in programs with a filter.

use std::io;

use crate::engine::found::Found;

/// The mode of a task with a filter, as prctl(2) returns it.
const MODE_FILTER: libc::c_int = 2;

/// Whether a call of bpf(2) would end this process. The result under a filter is kept. Without a
/// filter, it is checked again, because a program can install one at any time.
///
/// # Errors
/// No child could be made to find out.
pub fn kills() -> io::Result<bool> {
    static KILLS: Found<bool> = Found::new();
    if let Some(kills) = KILLS.get() {
        return Ok(*kills);
    }
    // SAFETY: this command takes no pointer.
    if unsafe { libc::prctl(libc::PR_GET_SECCOMP) } != MODE_FILTER {
        return Ok(false);
    }
    let kills = kills_a_child()?;
    Ok(*KILLS.keep(kills))
}

fn kills_a_child() -> io::Result<bool> {
    // SAFETY: fork(2) without a signal at the end of the child, so that the program does not take
    // it for one of its own children. The child makes system calls only, which are safe after a
    // fork of a program with threads, and does not return.
    let child = unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) };
    if child < 0 {
        return Err(io::Error::last_os_error());
    }
    if child == 0 {
        // SAFETY: none of the calls takes a pointer. bpf(2) fails, because it gets no attributes.
        unsafe {
            // The filter's signal would write a core file. The filter allows prctl(2), which was
            // called before.
            libc::prctl(libc::PR_SET_DUMPABLE, 0);
            libc::syscall(libc::SYS_bpf, 0, 0, 0);
            libc::_exit(0)
        }
    }
    let mut status = 0;
    // SAFETY: the status is alive during the call. __WALL is needed for a child without a signal.
    while unsafe { libc::waitpid(child as libc::pid_t, &mut status, libc::__WALL) } < 0 {
        let e = io::Error::last_os_error();
        if e.kind() != io::ErrorKind::Interrupted {
            return Err(e);
        }
    }
    Ok(libc::WIFSIGNALED(status))
}
