// SPDX-License-Identifier: MIT OR Apache-2.0
//! The extension module of the Python package taskdiag: calls of Python to requests of the library,
//! and answers to tables. What users see is documented in `taskdiag/_native.pyi`.
//!
//! No Python object is made for a process until a program uses it. Answers are columns in
//! memory, which Arrow consumers read as they are.

mod args;
mod arrow;
mod ask;
mod cgroups;
mod error;
mod held;
mod pickled;
mod session;
mod single;
mod table;
mod worker;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use taskdiag::Watch;
use taskdiag::field::SETS;

use args::Names;
use ask::{Ask, Bytes, Common, Limits, Pids, TextBytes};
use table::{ColumnInfo, Table};

fn limits(
    py: Python<'_>,
    budget: Option<f64>,
    max_rss: Option<Bytes>,
    args: Option<TextBytes>,
) -> PyResult<Limits> {
    let seconds = budget.map(|b| Duration::try_from_secs_f64(b).map_err(|_| b)).transpose();
    let budget = seconds.map_err(|given| {
        error::bad_query(py, format!("budget is a number of seconds from 0 on, not {given}"))
    })?;
    let (max_rss, text_bytes) = (max_rss.map(|bytes| bytes.0), args.map(|bytes| bytes.0));
    Ok(Limits { budget, max_rss, text_bytes })
}

fn answer(py: Python<'_>, ask: Ask) -> PyResult<Table> {
    let watch = Arc::new(Watch::new());
    let theirs = Arc::clone(&watch);
    let quick = ask.is_quick();
    let work = move || ask.answer(&theirs);
    let made = match quick {
        true => Ok(py.detach(work)),
        false => worker::run(py, work, || watch.stop()),
    };
    made?.map(Table::new).map_err(|e| error::raise(py, &e))
}

/// Processes, or with `threads` all threads.
///
/// `columns` names the columns ("pid,rss,comm" or a list; `columns()` lists them). Only what they
/// need is read. `where` is a condition, as "rss > 1G and user == web". `sort` names columns;
/// "-rss" puts the largest value first. `pids` is one process id, which has to be there, or
/// several; an empty list selects none. `engine` is kernel, bpf, service or procfs; without it, the
/// fastest one that works here answers. `budget` (seconds) and `max_rss` (bytes) limit the sums
/// over pages (pss, uss, swap). `args` is how many bytes of the arguments, and of the environment,
/// of each process are read, or "all". Without it, these are 128 KiB, and all of a few processes
/// that `pids` names. A value that was cut is "truncated" in `missing`. `proc` is another proc
/// filesystem, or a directory tree like one, that the engine procfs reads.
#[pyfunction]
#[pyo3(signature = (columns=None, *, threads=false, r#where=None, sort=None, pids=None, engine=None, budget=None, max_rss=None, args=None, proc=None))]
#[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
fn snapshot(
    py: Python<'_>,
    columns: Option<Names>,
    #[pyo3(from_py_with = args::flag)] threads: bool,
    #[pyo3(from_py_with = args::condition)] r#where: Option<String>,
    sort: Option<Names>,
    pids: Option<Pids>,
    #[pyo3(from_py_with = args::engine)] engine: Option<String>,
    #[pyo3(from_py_with = args::budget)] budget: Option<f64>,
    max_rss: Option<Bytes>,
    args: Option<TextBytes>,
    #[pyo3(from_py_with = args::proc)] proc: Option<PathBuf>,
) -> PyResult<Table> {
    let limits = limits(py, budget, max_rss, args)?;
    let common = Common { columns, filter: r#where, sort, engine, pids, limits, proc };
    answer(py, Ask::tasks(py, common, threads)?)
}

/// Memory mappings of one process, of several, or of all. A process whose mappings are not known
/// has one row with the reason.
#[pyfunction]
#[pyo3(signature = (pids=None, columns=None, *, r#where=None, sort=None, engine=None, budget=None, max_rss=None, args=None, proc=None))]
#[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
fn maps(
    py: Python<'_>,
    pids: Option<Pids>,
    columns: Option<Names>,
    #[pyo3(from_py_with = args::condition)] r#where: Option<String>,
    sort: Option<Names>,
    #[pyo3(from_py_with = args::engine)] engine: Option<String>,
    #[pyo3(from_py_with = args::budget)] budget: Option<f64>,
    max_rss: Option<Bytes>,
    args: Option<TextBytes>,
    #[pyo3(from_py_with = args::proc)] proc: Option<PathBuf>,
) -> PyResult<Table> {
    let limits = limits(py, budget, max_rss, args)?;
    let common = Common { columns, filter: r#where, sort, engine, pids, limits, proc };
    answer(py, Ask::maps(py, common)?)
}

/// What processes have in memory and in swap, shared pages shared out (pss). Kernel threads and
/// zombies have none and no row. The kernel walks over all pages of a process for it, which takes
/// milliseconds a GiB.
#[pyfunction]
#[pyo3(signature = (pids=None, columns=None, *, r#where=None, sort=None, engine=None, budget=None, max_rss=None, args=None))]
#[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
fn memory(
    py: Python<'_>,
    pids: Option<Pids>,
    columns: Option<Names>,
    #[pyo3(from_py_with = args::condition)] r#where: Option<String>,
    sort: Option<Names>,
    #[pyo3(from_py_with = args::engine)] engine: Option<String>,
    #[pyo3(from_py_with = args::budget)] budget: Option<f64>,
    max_rss: Option<Bytes>,
    args: Option<TextBytes>,
) -> PyResult<Table> {
    let limits = limits(py, budget, max_rss, args)?;
    let common = Common { columns, filter: r#where, sort, engine, pids, limits, proc: None };
    answer(py, Ask::memory(py, common)?)
}

/// Open files of one process, of several, or of all: descriptors, with `paths` also working and
/// root directory and program, with `mapped` also mapped files. A table of descriptors that threads
/// share is there once.
#[pyfunction]
#[pyo3(signature = (pids=None, columns=None, *, r#where=None, sort=None, paths=false, mapped=false, engine=None, args=None, proc=None))]
#[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
fn files(
    py: Python<'_>,
    pids: Option<Pids>,
    columns: Option<Names>,
    #[pyo3(from_py_with = args::condition)] r#where: Option<String>,
    sort: Option<Names>,
    #[pyo3(from_py_with = args::flag)] paths: bool,
    #[pyo3(from_py_with = args::flag)] mapped: bool,
    #[pyo3(from_py_with = args::engine)] engine: Option<String>,
    args: Option<TextBytes>,
    #[pyo3(from_py_with = args::proc)] proc: Option<PathBuf>,
) -> PyResult<Table> {
    let limits = limits(py, None, None, args)?;
    let common = Common { columns, filter: r#where, sort, engine, pids, limits, proc };
    answer(py, Ask::files(py, common, paths, mapped)?)
}

/// The columns that rows of a kind have. Mappings and files have those of their task, too.
#[pyfunction]
#[pyo3(signature = (of=String::from("tasks")), text_signature = "(of='tasks')")]
fn columns(
    py: Python<'_>,
    #[pyo3(from_py_with = args::rows)] of: String,
) -> PyResult<Vec<ColumnInfo>> {
    let Some(set) = SETS.iter().find(|s| s.name == of) else {
        let names: Vec<&str> = SETS.iter().map(|s| s.name).collect();
        let text = format!("there are no rows called '{of}'; there are {}", names.join(", "));
        return Err(error::bad_query(py, text));
    };
    Ok(set.own().map(ColumnInfo::of).collect())
}

/// An OSError with this errno, which Python turns into a PermissionError or another subclass.
fn system_error() -> PyErr {
    let error = std::io::Error::last_os_error();
    pyo3::exceptions::PyOSError::new_err((error.raw_os_error(), error.to_string()))
}

/// `IOPRIO_WHO_PROCESS` of linux/ioprio.h.
const WHO_PROCESS: libc::c_int = 1;

/// The I/O priority of a process, from ioprio_get(2). Private: `taskdiag.psutil` uses it.
#[pyfunction]
fn ioprio_get(pid: libc::pid_t) -> PyResult<i64> {
    // SAFETY: the call takes two numbers.
    match unsafe { libc::syscall(libc::SYS_ioprio_get, WHO_PROCESS, pid) } {
        -1 => Err(system_error()),
        priority => Ok(priority),
    }
}

/// Sets it.
#[pyfunction]
fn ioprio_set(pid: libc::pid_t, priority: libc::c_int) -> PyResult<()> {
    // SAFETY: the call takes three numbers.
    match unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, pid, priority) } {
        -1 => Err(system_error()),
        _ => Ok(()),
    }
}

#[pymodule(gil_used = false)]
mod _native {
    #[pymodule_export]
    use super::cgroups::{CgroupSession, cgroups};
    #[pymodule_export]
    use super::held::{Held, pid_in_proc};
    #[pymodule_export]
    use super::pickled::{_column, _table};
    #[pymodule_export]
    use super::session::{_changes, Changes, PySession};
    #[pymodule_export]
    use super::single::{Single, tty_name};
    #[pymodule_export]
    use super::table::{Binary, ColumnInfo, Table};
    #[pymodule_export]
    use super::{columns, files, ioprio_get, ioprio_set, maps, memory, snapshot};

    /// The number that stands for "unlimited" in a column of numbers.
    #[pymodule_export]
    const UNLIMITED: u64 = u64::MAX;

    /// The version of the package.
    #[expect(non_upper_case_globals, reason = "it is the name in Python")]
    #[pymodule_export]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
