//! Measures how much it costs to wait for the next end among many processes. `waits WHO PROCESSES
//! ENDS` starts PROCESSES idle children and ends one at a time, ENDS times. It prints the median
//! CPU time in nanoseconds that this thread needs to find out which child has ended. A new child
//! replaces each ended one.
//!
//! WHO is `waiter` or `waitpid`, which is waitpid(-1). With a fourth argument, `cold`, other memory
//! is in the CPU's caches when an end comes, as in a program that does something between two ends.
//! Otherwise, the memory for 100 processes stays in the caches, and the memory for 10,000 does not.

use std::collections::HashMap;
use std::process::ExitCode;

use rustix::time::{ClockId, clock_gettime};
use taskdiag::Waiter;

/// Each child needs a stack for one system call.
const STACK: usize = 4096;
/// More memory than the caches of a CPU hold, as a number of u64.
const SWEPT: usize = (96 << 20) / 8;

extern "C" fn idle(_: *mut libc::c_void) -> libc::c_int {
    loop {
        // SAFETY: plain system calls.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            libc::pause();
        }
    }
}

/// A child that shares the memory of this process, so that 50,000 of them fit. It shares the
/// descriptors, too, because a copy of 19,000 pidfds for each new child displaced them from the
/// CPU's caches, and the misses were measured. With copies, the end of a child would not close the
/// last descriptor of its pidfd, either.
fn child(stack: *mut u8) -> Result<u32, String> {
    // SAFETY: the stack belongs to no other child that lives, and idle() uses little of it.
    let pid = unsafe {
        let top = stack.add(STACK).cast();
        libc::clone(
            idle,
            top,
            libc::CLONE_VM | libc::CLONE_FILES | libc::SIGCHLD,
            std::ptr::null_mut(),
        )
    };
    u32::try_from(pid).map_err(|_| format!("clone: {}", std::io::Error::last_os_error()))
}

fn now_ns() -> u64 {
    let t = clock_gettime(ClockId::ThreadCPUTime);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

fn run(who: &str, processes: usize, ends: usize, is_cold: bool) -> Result<u64, String> {
    let mut swept = vec![1_u64; if is_cold { SWEPT } else { 0 }];
    let mut stacks = vec![0_u64; processes * STACK / 8];
    let base: *mut u8 = stacks.as_mut_ptr().cast();
    let mut waiter = Waiter::new().map_err(|e| e.to_string())?;
    let uses_waiter = match who {
        "waiter" => true,
        "waitpid" => false,
        _ => return Err(format!("WHO is waiter or waitpid, not {who}")),
    };
    let mut children = HashMap::new();
    for i in 0..processes {
        // SAFETY: inside the stacks.
        children.insert(child(unsafe { base.add(i * STACK) })?, i);
    }
    for pid in children.keys().filter(|_| uses_waiter) {
        waiter.add(*pid).map_err(|e| e.to_string())?;
    }
    // Spread over all of them, in no order.
    let mut victims: Vec<u32> = children.keys().copied().collect();
    victims.rotate_left(processes / 3);
    let mut times = Vec::new();
    for victim in victims.iter().cycle().take(ends.min(processes)) {
        // Write one word of each cache line.
        swept.iter_mut().step_by(8).for_each(|n| *n += 1);
        std::hint::black_box(&swept);
        // SAFETY: a child that is not reaped.
        unsafe { libc::kill(*victim as i32, libc::SIGKILL) };
        let before = now_ns();
        let ended = if uses_waiter {
            waiter.wait(None).map_err(|e| e.to_string())?.map_or(0, |e| e.pid)
        } else {
            // SAFETY: no status is wanted.
            unsafe { libc::waitpid(-1, std::ptr::null_mut(), 0) as u32 }
        };
        times.push(now_ns() - before);
        if ended != *victim {
            return Err(format!("{ended} ended, not {victim}"));
        }
        if uses_waiter {
            // SAFETY: no status is wanted.
            unsafe { libc::waitpid(ended as i32, std::ptr::null_mut(), 0) };
        }
        let i = children.remove(&ended).ok_or("it is no child")?;
        // SAFETY: this is the stack of the child that has ended.
        let new = child(unsafe { base.add(i * STACK) })?;
        children.insert(new, i);
        if uses_waiter {
            waiter.add(new).map_err(|e| e.to_string())?;
        }
    }
    for pid in children.keys() {
        // SAFETY: children that are not reaped. They use the stacks until they have ended.
        unsafe {
            libc::kill(*pid as i32, libc::SIGKILL);
            libc::waitpid(*pid as i32, std::ptr::null_mut(), 0);
        }
    }
    times.sort_unstable();
    Ok(times[times.len() / 2])
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let numbers = |i: usize| args.get(i).and_then(|a| a.parse().ok()).filter(|n| *n > 0);
    let (Some(who), Some(processes), Some(ends)) = (args.get(1), numbers(2), numbers(3)) else {
        eprintln!("usage: waits waiter|waitpid PROCESSES ENDS [cold]");
        return ExitCode::from(2);
    };
    match run(who, processes, ends, args.get(4).is_some_and(|a| a == "cold")) {
        Ok(ns) => {
            println!("{ns} {processes}");
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("waits: {e}");
            ExitCode::FAILURE
        }
    }
}
