//! Where address space is limited (`ulimit -v`), the stack of the main thread cannot grow later
//! than other memory does: the kernel ends a program whose stack cannot grow with SIGSEGV. So the
//! program takes the stack that it needs before anything else.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use super::common::{Ended, taskdiag, wait_for_sleep};

/// The stack that it takes, in KiB (`STACK` in oom.rs).
const STACK_KIB: u64 = 512;
/// Address space that is enough for everything.
const MUCH: u64 = 4 << 30;

/// The program with these limits, as soft and hard ones.
fn limited(limits: &[(u32, u64)]) -> Command {
    let mut command = taskdiag();
    let limits = limits.to_vec();
    let set = move || {
        limits.iter().try_for_each(|(which, most)| {
            let limit = libc::rlimit { rlim_cur: *most, rlim_max: *most };
            // SAFETY: the struct is valid.
            match unsafe { libc::setrlimit(*which, &limit) } {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        })
    };
    // SAFETY: between fork and exec only system calls.
    unsafe { command.pre_exec(set) };
    command
}

/// A full pipe. A program that writes to it sleeps.
fn full_pipe() -> (OwnedFd, OwnedFd) {
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).expect("one");
    let flags = rustix::fs::fcntl_getfl(&writer).expect("its flags");
    rustix::fs::fcntl_setfl(&writer, flags | rustix::fs::OFlags::NONBLOCK).expect("set");
    let mut file = File::from(writer);
    while file.write(&[b' '; 4096]).is_ok() {}
    while file.write(b" ").is_ok() {}
    rustix::fs::fcntl_setfl(&file, flags).expect("set");
    (reader, file.into())
}

/// The stack, in KiB, of the program while it waits for a reader of its first output.
fn stack_with(limits: &[(u32, u64)]) -> u64 {
    let (_reader, writer) = full_pipe();
    let mut command = limited(limits);
    command.arg("--version").stdin(Stdio::null()).stdout(writer).stderr(Stdio::null());
    let child = Ended(command.spawn().expect("it starts"));
    wait_for_sleep(child.0.id(), "taskdiag");
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.0.id()));
    let status = status.expect("it is our child");
    let line = status.lines().find_map(|l| l.strip_prefix("VmStk:"));
    let kib = line.unwrap_or_else(|| panic!("it has ended: {status}"));
    kib.trim().trim_end_matches(" kB").parse().expect("a number")
}

#[test]
fn the_stack_is_taken_at_the_start_where_address_space_is_limited() {
    let limited = stack_with(&[(libc::RLIMIT_AS, MUCH)]);
    assert!(limited >= STACK_KIB, "{limited} KiB");
    // So the limit is the reason, and nothing that the command itself does.
    let usual = stack_with(&[]);
    assert!(usual < STACK_KIB, "{usual} KiB without a limit");
    // With such a limit of the stack, that much of it would end the program.
    let small = stack_with(&[(libc::RLIMIT_AS, MUCH), (libc::RLIMIT_STACK, STACK_KIB << 10)]);
    assert!(small < STACK_KIB, "{small} KiB with a small limit of the stack");
}

/// The steps are smaller than the stack, so at least one of them has room for the loader and the
/// program, but not for the stack.
#[test]
fn too_little_room_for_the_stack_is_an_error_with_advice() {
    let (mut said, mut is_enough) = (0, false);
    for kib in (1024..256 << 10).step_by(STACK_KIB as usize / 2) {
        let mut command = limited(&[(libc::RLIMIT_AS, kib << 10)]);
        // The kernel may refuse to load the program.
        let Ok(out) = command.arg("--version").stdin(Stdio::null()).output() else { continue };
        let error = String::from_utf8_lossy(&out.stderr);
        match out.status.code() {
            Some(0) => is_enough = true,
            Some(4) => {
                assert!(error.starts_with("taskdiag: out of memory: raise the limit"), "{error}");
                said += 1;
            }
            // The kernel or the loader, before the program runs.
            _ => assert!(said == 0 && !is_enough, "{kib} KiB: {:?}: {error}", out.status),
        }
        if is_enough {
            break;
        }
    }
    assert!(said > 0 && is_enough, "{said} limits were too small");
}
