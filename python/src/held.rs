// SPDX-License-Identifier: MIT OR Apache-2.0
//! A process that is acted on, for `taskdiag.psutil`: `taskdiag::act` for Python.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::PathBuf;

use pyo3::exceptions::{PyOSError, PyPermissionError, PyProcessLookupError};
use pyo3::prelude::*;
use taskdiag::act::{self, NotDone};

/// A process, identified by its open directory in a proc filesystem. Private: `taskdiag.psutil`
/// uses it.
#[pyclass(frozen)]
#[derive(Debug)]
pub struct Held(act::Held);

fn raise(e: NotDone) -> PyErr {
    match e {
        NotDone::Ended => {
            PyProcessLookupError::new_err((libc::ESRCH, "the process has ended".to_owned()))
        }
        NotDone::Refused(e) => system(&e),
        // An exception without a number shows the text.
        e => PyPermissionError::new_err(e.to_string()),
    }
}

/// The exception of a class that goes with the number of an error.
fn system(e: &io::Error) -> PyErr {
    PyOSError::new_err((e.raw_os_error(), e.to_string()))
}

#[pymethods]
impl Held {
    #[new]
    fn new(proc: PathBuf, pid: u32) -> PyResult<Held> {
        act::Held::open_in(&proc, pid).map(Held).map_err(raise)
    }

    /// Its start time in clock ticks.
    fn start_ticks(&self) -> PyResult<u64> {
        self.0.start_ticks().map_err(raise)
    }

    /// Does the process have the same pid in our own pid namespace?
    fn has_own_number(&self) -> bool {
        self.0.has_own_number()
    }

    /// Sends it a signal.
    fn send_signal(&self, signal: i32) -> PyResult<()> {
        self.0.send_signal(signal).map_err(raise)
    }

    /// Calls the function with the pid of the process, for system calls that only take a pid, and
    /// returns its result.
    fn by_number(&self, function: Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let done = self.0.by_number(|pid| function.call1((pid,)).map(Bound::unbind));
        done.map_err(raise)?
    }
}

/// The pid of the process of a pidfd in /proc. None if /proc does not show it.
#[pyfunction]
pub fn pid_in_proc(pidfd: i32) -> Option<u32> {
    if pidfd < 0 {
        return None;
    }
    // SAFETY: the caller has it open, and it is only borrowed here.
    let pidfd = unsafe { BorrowedFd::borrow_raw(pidfd) };
    act::of_pidfd(pidfd.as_fd()).map(|held| held.pid())
}
