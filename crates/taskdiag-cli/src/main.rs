//! The program `taskdiag`. This file only has what a process needs at its start and end. Everything
//! else is in the library of this crate.

#![cfg_attr(not(test), no_main)]

mod oom;

use std::ffi::{CStr, OsStr, OsString, c_char, c_int};
use std::os::unix::ffi::OsStrExt as _;

#[global_allocator]
static MEMORY: oom::OrEnd = oom::OrEnd;

/// The C library calls this directly. That skips the start of Rust's runtime with its fifteen
/// system calls. Most of these calls read the process's own mappings, to recognize an overflow of
/// the stack. The useful rest is in [`like_rust`].
///
/// # Safety
/// As for any `main`: `argv` has `argc` strings.
#[cfg_attr(not(test), unsafe(export_name = "main"))]
#[cfg_attr(test, expect(dead_code, reason = "unit tests have a main of their own"))]
unsafe extern "C" fn begin(argc: c_int, argv: *const *const c_char) -> c_int {
    like_rust();
    oom::grow_stack();
    few_memory_calls();
    taskdiag_cli::catch_interrupts();
    if let Some(why) = taskdiag_face::elevated::reason() {
        return c_int::from(taskdiag_cli::refuse(why));
    }
    let text = |i| {
        // SAFETY: `i` is below `argc`.
        let text = unsafe { CStr::from_ptr(*argv.add(i)) };
        OsStr::from_bytes(text.to_bytes()).to_owned()
    };
    let argv: Vec<OsString> = (0..usize::try_from(argc).unwrap_or(0)).map(text).collect();
    taskdiag_cli::ask_nvidia();
    c_int::from(taskdiag_cli::run(argv))
}

/// The part of the start of Rust's runtime that is kept. It makes sure that standard input, output
/// and error are open, because otherwise a file that is opened later would get one of their
/// numbers. It also makes a write return an error instead of raising a signal if the reader is
/// gone.
fn like_rust() {
    let mut fds = [0, 1, 2].map(|fd| libc::pollfd { fd, events: 0, revents: 0 });
    // SAFETY: the array has three entries, and these are plain system calls.
    unsafe {
        if libc::poll(fds.as_mut_ptr(), 3, 0) > 0 {
            for f in fds.iter().filter(|f| f.revents & libc::POLLNVAL != 0) {
                // A write to it is an error, as if it were still closed.
                let how = if f.fd == 0 { libc::O_RDWR } else { libc::O_RDONLY };
                libc::open(c"/dev/null".as_ptr(), how);
            }
        }
        libc::signal(libc::SIGPIPE, libc::SIG_IGN);
    }
}

/// Make the allocator take memory from the system in large steps and keep it, because a command
/// soon ends and each of its buffers would be mapped and unmapped separately. Unused parts take no
/// memory. This is called before there are threads.
fn few_memory_calls() {
    #[cfg(target_env = "gnu")]
    for (what, bytes) in [
        (libc::M_TOP_PAD, 1 << 20),
        (libc::M_TRIM_THRESHOLD, 1 << 26),
        (libc::M_MMAP_THRESHOLD, 1 << 20),
    ] {
        // SAFETY: this sets a number in the allocator. If the allocator refuses it, nothing
        // changes.
        unsafe { libc::mallopt(what, bytes) };
    }
}
