// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a request without the GIL, in such a way that Ctrl-C ends it.
//!
//! Python runs the handlers of signals in the main thread and between two steps of Python code. A
//! request that is made from the main thread therefore runs in another one, while the main thread
//! looks for signals every 50 ms. If a handler raises, the request is stopped, and the exception
//! reaches the caller. Other threads get no signals and do the work themselves.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// How long Ctrl-C may wait before it is noticed.
const LOOK: Duration = Duration::from_millis(50);

/// The state that the two threads share.
struct SharedWork<F, T> {
    state: Mutex<(Option<F>, Option<thread::Result<T>>)>,
    done: Condvar,
}

impl<F: FnOnce() -> T, T> SharedWork<F, T> {
    fn lock(&self) -> MutexGuard<'_, (Option<F>, Option<thread::Result<T>>)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Does the work, if no other thread has taken it.
    fn work(&self) {
        let Some(work) = self.lock().0.take() else { return };
        // Data from before a panic is dropped without being used.
        let result = catch_unwind(AssertUnwindSafe(work));
        self.lock().1 = Some(result);
        self.done.notify_all();
    }
    /// Waits a while for the result.
    fn wait(&self, long: Duration) -> Option<thread::Result<T>> {
        let state = self.lock();
        let waited = self.done.wait_timeout_while(state, long, |s| s.1.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.1.take()
    }
}

/// Runs `work`. If a signal handler raises, `stop` is called, and `work` must end soon after that.
/// Its result is dropped then.
pub fn run<T, F>(py: Python<'_>, work: F, stop: impl FnOnce()) -> PyResult<T>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    // SAFETY: these ask for two numbers.
    let is_main = unsafe { libc::gettid() == libc::getpid() };
    if !is_main {
        return Ok(py.detach(work));
    }
    let place =
        Arc::new(SharedWork { state: Mutex::new((Some(work), None)), done: Condvar::new() });
    let other = Arc::clone(&place);
    if thread::Builder::new().name(String::from("taskdiag")).spawn(move || other.work()).is_err() {
        // If no thread can be started, Ctrl-C waits for the answer.
        py.detach(|| place.work());
    }
    let result = loop {
        if let Some(result) = py.detach(|| place.wait(LOOK)) {
            break result;
        }
        if let Err(signal) = py.check_signals() {
            stop();
            py.detach(|| while place.wait(LOOK).is_none() {});
            return Err(signal);
        }
    };
    result.map_err(|panic| {
        let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        PyRuntimeError::new_err(format!("a fault in taskdiag, please report it: {text}"))
    })
}
