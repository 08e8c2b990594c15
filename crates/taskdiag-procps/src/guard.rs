//! Runs an engine in a separate thread, which can be abandoned.
//!
//! An engine allocates in many places, and in threads that it starts. After a failed allocation,
//! the thread can neither continue nor unwind, because destructors of half-made values would not be
//! safe. So each thread of the engine that gets no memory sleeps for ever, and the thread that
//! waits for the engine returns without an answer. The memory of the engine is never used again.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use taskdiag::without_signals;

use crate::memory;

/// Why there is no answer.
#[derive(Debug)]
pub enum Failed {
    /// There is too little memory.
    Memory,
    /// A thread cannot be made.
    Thread(io::Error),
}

/// Wakes the waiting threads after a change.
static EVENT: (Mutex<()>, Condvar) = (Mutex::new(()), Condvar::new());

fn event() -> MutexGuard<'static, ()> {
    EVENT.0.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The number of threads that are guarded or abandoned.
static GUARDED: AtomicUsize = AtomicUsize::new(0);

/// Is there a thread that may be abandoned?
pub fn is_used() -> bool {
    GUARDED.load(Ordering::Acquire) > 0
}

/// The stack of the thread, as large as that of any thread of an engine.
const STACK: usize = 2 << 20;

/// Runs this, and returns its result. Signals are blocked there, because handlers of the host
/// expect its own threads.
pub fn run<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Failed> {
    if memory::is_short() {
        return Err(Failed::Memory);
    }
    let place = Arc::new(Mutex::new(None));
    let result = Arc::clone(&place);
    let there = move || {
        let done = catch_unwind(AssertUnwindSafe(work));
        let _held = event();
        *result.lock().unwrap_or_else(PoisonError::into_inner) = Some(done);
        EVENT.1.notify_all();
    };
    GUARDED.fetch_add(1, Ordering::AcqRel);
    let thread = without_signals(|| thread::Builder::new().stack_size(STACK).spawn(there));
    let thread = thread.map_err(|e| {
        GUARDED.fetch_sub(1, Ordering::AcqRel);
        Failed::Thread(e)
    })?;
    let mut held = event();
    loop {
        if let Some(done) = place.lock().unwrap_or_else(PoisonError::into_inner).take() {
            drop(held);
            // The thread ends at once, and leaves nothing behind.
            let _ = thread.join();
            GUARDED.fetch_sub(1, Ordering::AcqRel);
            return Ok(done.unwrap_or_else(|panic| resume_unwind(panic)));
        }
        if memory::is_short() {
            return Err(Failed::Memory);
        }
        held = EVENT.1.wait(held).unwrap_or_else(PoisonError::into_inner);
    }
}

/// Called by a thread that got no memory: stops it, and wakes the threads that wait for it.
pub fn stop() -> ! {
    {
        let _held = event();
        memory::set_short();
        EVENT.1.notify_all();
    }
    loop {
        // SAFETY: it takes nothing. Only a signal makes it return.
        unsafe { libc::pause() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// A size larger than any address space.
    const TOO_MUCH: usize = 1 << 46;

    /// In a separate process, because no later call in the same process is answered.
    #[test]
    fn an_engine_without_memory_is_abandoned() {
        const CHILD: &str = "TASKDIAG_TEST_WITHOUT_MEMORY";
        if std::env::var_os(CHILD).is_none() {
            let mut child = Command::new(std::env::current_exe().expect("it is known"));
            let name = "guard::tests::an_engine_without_memory_is_abandoned";
            let out = child.args(["--exact", name]).env(CHILD, "1").output().expect("it runs");
            assert_eq!(out.status.code(), Some(7), "{out:?}");
            return;
        }
        let _host = memory::host();
        assert_eq!(run(|| 7).ok(), Some(7));
        let in_thread = run(|| {
            thread::scope(|s| s.spawn(|| Vec::<u8>::with_capacity(TOO_MUCH).len()).join().ok())
        });
        assert!(matches!(in_thread, Err(Failed::Memory)) && memory::is_short());
        assert!(matches!(run(|| 7), Err(Failed::Memory)));
        std::process::exit(7);
    }

    #[test]
    fn a_panic_arrives_and_signals_are_as_before() {
        let _host = memory::host();
        let ran = catch_unwind(|| run(|| std::panic::resume_unwind(Box::new("this"))));
        let panic = ran.map(|r: Result<(), Failed>| r.is_ok()).expect_err("it arrives");
        assert_eq!(panic.downcast_ref(), Some(&"this"));
        // SAFETY: the sets are filled by the calls.
        let is_blocked = unsafe {
            let mut now: libc::sigset_t = std::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::null(), &mut now);
            libc::sigismember(&now, libc::SIGTERM)
        };
        assert_eq!(is_blocked, 0);
    }
}
