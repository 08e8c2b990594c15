//! The memory that a program has used, which `Child::wait()` does not return.

use std::mem::MaybeUninit;
use std::process::Command;

/// Runs a program to its end. Returns its wait status, and the most memory that it had resident, in
/// bytes.
#[expect(clippy::zombie_processes, reason = "wait4() tells the memory, which wait() does not")]
pub fn run(command: &mut Command) -> (i32, usize) {
    let child = command.spawn().expect("the program is there");
    let (mut status, mut usage) = (0, MaybeUninit::<libc::rusage>::zeroed());
    // SAFETY: the child is ours, is waited for only here, and there is room for both results.
    let usage = unsafe {
        let waited = libc::wait4(child.id() as i32, &mut status, 0, usage.as_mut_ptr());
        assert_eq!(waited, child.id() as i32);
        usage.assume_init()
    };
    (status, usage.ru_maxrss as usize * 1024)
}
