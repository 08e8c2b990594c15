//! Threads of a library in a program of others, whose signal handlers expect its own threads.

use std::ptr::null_mut;

/// Signals that a thread causes by its own actions. If one of them is blocked, it ends the program
/// instead of calling its handler. A sandbox may handle system calls with the last one, SIGSYS.
const OF_THREAD: [libc::c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

/// The signals that were blocked before. They are blocked again when it is dropped.
struct Before(libc::sigset_t);

impl Drop for Before {
    fn drop(&mut self) {
        // SAFETY: an earlier call has stored this set.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, null_mut()) };
    }
}

/// Runs this while signals are blocked in the calling thread, and unblocks them. A thread that it
/// starts has them blocked from its beginning. So a library can start threads in which no handler
/// of the program runs, except for signals that a thread causes itself, such as SIGSEGV and SIGSYS.
pub fn without_signals<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: both sets are filled by the calls.
    let before = unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        for signal in OF_THREAD {
            libc::sigdelset(&mut all, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &all, &mut before);
        Before(before)
    };
    let done = work();
    drop(before);
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_blocked(signal: libc::c_int) -> bool {
        // SAFETY: the set is filled by the call.
        unsafe {
            let mut now: libc::sigset_t = std::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::null(), &mut now);
            libc::sigismember(&now, signal) == 1
        }
    }

    #[test]
    fn signals_are_blocked_meanwhile_except_for_the_threads_own() {
        let of =
            |signals: &[libc::c_int]| signals.iter().map(|s| is_blocked(*s)).collect::<Vec<_>>();
        let others = [libc::SIGTERM, libc::SIGINT, libc::SIGCHLD, libc::SIGUSR1];
        let seen = without_signals(|| {
            let there = std::thread::spawn(move || (of(&others), of(&OF_THREAD)));
            there.join().expect("it does not panic")
        });
        assert_eq!(seen, (vec![true; 4], vec![false; 6]));
        assert!(!is_blocked(libc::SIGTERM));
        let panicked =
            std::panic::catch_unwind(|| without_signals(|| std::panic::resume_unwind(Box::new(1))));
        assert!(panicked.map(|()| 0).is_err() && !is_blocked(libc::SIGTERM));
    }
}
