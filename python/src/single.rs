// SPDX-License-Identifier: MIT OR Apache-2.0
//! One process for `taskdiag.psutil`, which asks about it repeatedly: each call reads a file of
//! /proc, and makes no request.

use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use pyo3::exceptions::{PyOSError, PyProcessLookupError};
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use taskdiag::Groups;
use taskdiag::engine::procfs::single::{self, NotRead};
use taskdiag::field::Context;

use crate::table::text;

/// A process, identified by its pid and start time. Private: `taskdiag.psutil` uses it.
///
/// A method returns None if the file has an unusual form, which the caller leaves to a request.
/// OSError is that of the system, and a ProcessLookupError without a number says that the pid is
/// that of another process or of a thread.
#[pyclass(frozen)]
#[derive(Debug)]
pub struct Single(single::Single);

/// The directory of a proc filesystem, without a copy if it is text.
enum Root<'a> {
    Text(&'a str),
    Path(PathBuf),
}

impl Root<'_> {
    fn of<'a>(given: &'a Bound<'_, PyAny>) -> PyResult<Root<'a>> {
        match given.cast::<PyString>().ok().and_then(|text| text.to_str().ok()) {
            Some(text) => Ok(Root::Text(text)),
            None => Ok(Root::Path(given.extract()?)),
        }
    }
    fn bytes(&self) -> &[u8] {
        match self {
            Root::Text(text) => text.as_bytes(),
            Root::Path(path) => path.as_os_str().as_bytes(),
        }
    }
}

/// The value, or None for the caller to make a request.
fn found<T>(read: Result<T, NotRead>) -> PyResult<Option<T>> {
    let text = match read {
        Ok(value) => return Ok(Some(value)),
        Err(NotRead::Odd) => return Ok(None),
        Err(NotRead::System(e)) => {
            let e = io::Error::from(e);
            return Err(PyOSError::new_err((e.raw_os_error(), e.to_string())));
        }
        Err(NotRead::Reused) => REUSED,
        Err(NotRead::Thread) => THREAD,
    };
    Err(PyProcessLookupError::new_err(text))
}

/// Texts of psutil and of `taskdiag.psutil`.
const REUSED: &str = "process no longer exists and its PID has been reused";
const THREAD: &str = "the PID is the id of a thread";

#[pymethods]
impl Single {
    /// The current process with the pid, or the process with the pid that started at this time.
    #[new]
    #[pyo3(signature = (proc, pid, start_ticks=None))]
    fn new(
        py: Python<'_>,
        proc: &Bound<'_, PyAny>,
        pid: u32,
        start_ticks: Option<u64>,
    ) -> PyResult<Single> {
        if let Some(start_ticks) = start_ticks {
            return Ok(Single(single::Single::known(pid, start_ticks)));
        }
        let root = Root::of(proc)?;
        let opened = found(py.detach(|| single::Single::open(root.bytes(), pid)))?;
        // A file of another form has no start time.
        opened
            .map(Single)
            .ok_or_else(|| PyProcessLookupError::new_err((libc::ESRCH, "no stat file")))
    }

    /// Its start time in clock ticks.
    #[getter]
    fn start_ticks(&self) -> u64 {
        self.0.start_ticks()
    }

    /// Of the stat file: state, ppid, name, terminal, user and system time, those of children,
    /// time waiting for disks (seconds), nice, processor, threads, start time in clock ticks.
    fn stat<'py>(
        &self,
        py: Python<'py>,
        proc: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let root = Root::of(proc)?;
        let Some(file) = found(py.detach(|| self.0.stat(root.bytes())))? else { return Ok(None) };
        let (base, stat) = (file.base.known(), file.stat.known());
        let (Some(state), Some(ppid), Some(tty), Some(nice), Some(cpu), Some(threads)) = (
            base.state(),
            base.ppid(),
            stat.tty_nr(),
            stat.nice(),
            stat.processor(),
            stat.num_threads(),
        ) else {
            return Ok(None);
        };
        let (Some(user), Some(system), Some(of_children), Some(system_of_children)) =
            (stat.utime_ns(), stat.stime_ns(), stat.cutime_ns(), stat.cstime_ns())
        else {
            return Ok(None);
        };
        let seconds = |ns: u64| (ns as f64 / 1e9).into_pyobject(py).map(Bound::into_any);
        let number = |n: u64| n.into_pyobject(py).map(Bound::into_any);
        let values = [
            PyString::new(py, char::from(state).encode_utf8(&mut [0; 4])).into_any(),
            number(ppid.into())?,
            text(py, file.comm())?,
            number(tty.into())?,
            seconds(user)?,
            seconds(system)?,
            seconds(of_children)?,
            seconds(system_of_children)?,
            // The field is there since Linux 2.6.18.
            seconds(file.io_wait_ns.unwrap_or(0))?,
            nice.into_pyobject(py)?.into_any(),
            number(cpu.into())?,
            number(threads.into())?,
            number(self.0.start_ticks())?,
        ];
        PyTuple::new(py, values).map(Some)
    }

    /// Its sizes in bytes: resident, size, shared, text, library, data, dirty.
    fn memory<'py>(
        &self,
        py: Python<'py>,
        proc: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let root = Root::of(proc)?;
        let sizes = found(py.detach(|| self.0.sizes(root.bytes())))?;
        let Some([size, rss, shared, text, lib, data, dirty]) = sizes else { return Ok(None) };
        PyTuple::new(py, [rss, size, shared, text, lib, data, dirty]).map(Some)
    }

    /// Its ids (real, effective, saved uid; the same of gids), and the context switches of its
    /// first thread (voluntary, involuntary).
    #[expect(clippy::type_complexity, reason = "it is three tuples")]
    fn status(
        &self,
        py: Python<'_>,
        proc: &Bound<'_, PyAny>,
    ) -> PyResult<Option<((u32, u32, u32), (u32, u32, u32), (u64, u64))>> {
        let root = Root::of(proc)?;
        let groups = Groups::CRED | Groups::SCHED;
        let Some(file) = found(py.detach(|| self.0.status(root.bytes(), groups)))? else {
            return Ok(None);
        };
        let c = file.cred.known();
        let three = |a: Option<u32>, b: Option<u32>, c: Option<u32>| Some((a?, b?, c?));
        let made = || {
            let uids = three(c.uid(), c.euid(), c.suid())?;
            let gids = three(c.gid(), c.egid(), c.sgid())?;
            Some((uids, gids, (file.nvcsw?, file.nivcsw?)))
        };
        Ok(made())
    }

    /// Its I/O counters: calls to read and to write, bytes of storage, bytes.
    fn io<'py>(
        &self,
        py: Python<'py>,
        proc: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let root = Root::of(proc)?;
        let Some(io) = found(py.detach(|| self.0.io(root.bytes())))? else { return Ok(None) };
        let io = io.known();
        let calls = io.syscr().zip(io.syscw());
        let storage = io.read_bytes().zip(io.write_bytes());
        let (Some(calls), Some(storage), Some(all)) = (calls, storage, io.rchar().zip(io.wchar()))
        else {
            return Ok(None);
        };
        PyTuple::new(py, [calls.0, calls.1, storage.0, storage.1, all.0, all.1]).map(Some)
    }

    /// The path of its program.
    fn exe<'py>(
        &self,
        py: Python<'py>,
        proc: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.link(py, proc, "exe")
    }

    /// The path of its working directory.
    fn cwd<'py>(
        &self,
        py: Python<'py>,
        proc: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.link(py, proc, "cwd")
    }

    /// The number of its descriptors. None: the kernel does not have it.
    fn num_fds(&self, py: Python<'_>, proc: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
        let root = Root::of(proc)?;
        found(py.detach(|| self.0.descriptors(root.bytes())))
    }
}

impl Single {
    fn link<'py>(
        &self,
        py: Python<'py>,
        proc: &Bound<'py, PyAny>,
        name: &'static str,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let root = Root::of(proc)?;
        let link = found(py.detach(|| self.0.link(root.bytes(), name)))?;
        link.map(|path| text(py, &path)).transpose()
    }
}

/// The name of a terminal by its device number, without `/dev/`.
#[pyfunction]
pub fn tty_name(py: Python<'_>, device: u32) -> PyResult<Bound<'_, PyAny>> {
    let context = Context::new(&taskdiag::wire::Info::default(), false);
    text(py, &context.tty_name(device))
}
