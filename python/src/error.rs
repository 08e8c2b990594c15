// SPDX-License-Identifier: MIT OR Apache-2.0
//! The library's errors as exceptions of `taskdiag._errors`.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use taskdiag::{Cause, Error};

/// An exception of ours with these arguments and attributes.
fn exception<'py>(
    py: Python<'py>,
    class: &str,
    args: impl pyo3::call::PyCallArgs<'py>,
    attributes: &[(&str, Bound<'py, PyAny>)],
) -> PyResult<PyErr> {
    // The module is not kept in a static: a child that is forked while another thread initializes
    // it would wait for ever.
    let made = py.import("taskdiag._errors")?.getattr(class)?.call1(args)?;
    attributes.iter().try_for_each(|(name, value)| made.setattr(name, value))?;
    Ok(PyErr::from_value(made))
}

fn cause(cause: Cause) -> &'static str {
    match cause {
        Cause::NoPermission => "no-permission",
        Cause::NotSupported => "not-supported",
        Cause::Limit => "limit",
        Cause::NoProc => "no-proc",
        Cause::TurnedOff => "turned-off",
        _ => "other",
    }
}

/// The exception for an error of the library.
pub fn raise(py: Python<'_>, error: &Error) -> PyErr {
    made(py, error).unwrap_or_else(|e| e)
}

fn made(py: Python<'_>, error: &Error) -> PyResult<PyErr> {
    let text = error.to_string();
    let object = |v: &str| v.into_pyobject(py).map(Bound::into_any).map_err(PyErr::from);
    match error {
        Error::NoSuchProcess(pid) => no_such_process(py, *pid),
        Error::Hidden { engine, pid, .. } => {
            let pid = pid.into_pyobject(py)?.into_any();
            exception(py, "Hidden", (text,), &[("pid", pid), ("engine", object(engine.name())?)])
        }
        Error::Unavailable { engine, cause: why, .. } => {
            let attributes = [("engine", object(engine.name())?), ("cause", object(cause(*why))?)];
            exception(py, "Unavailable", (text,), &attributes)
        }
        Error::Unsupported { engine, groups, .. } => {
            let groups = object(&groups.to_string())?;
            exception(
                py,
                "Unsupported",
                (text,),
                &[("engine", object(engine.name())?), ("groups", groups)],
            )
        }
        Error::Setting(_) => exception(py, "SettingError", (text,), &[]),
        Error::Io { source, .. } => match source.raw_os_error() {
            Some(errno) => exception(py, "SystemCallError", (errno, text), &[]),
            None => exception(py, "SystemCallError", (text,), &[]),
        },
        Error::Stream(_) => exception(py, "StreamError", (text,), &[]),
        // The library may get more kinds of errors.
        _ => exception(py, "Error", (text,), &[]),
    }
}

/// There is no such process.
pub fn no_such_process(py: Python<'_>, pid: u32) -> PyResult<PyErr> {
    let text = format!("there is no process {pid}, or you may not see it");
    exception(
        py,
        "NoSuchProcess",
        (libc::ESRCH, text),
        &[("pid", pid.into_pyobject(py)?.into_any())],
    )
}

/// An invalid argument.
pub fn bad_query(py: Python<'_>, text: String) -> PyErr {
    exception(py, "QueryError", (text,), &[]).unwrap_or_else(|e| e)
}

/// An argument of another type.
pub fn bad_argument(text: String) -> PyErr {
    PyTypeError::new_err(text)
}

/// Something that cannot be done now.
pub fn busy(py: Python<'_>, text: &str) -> PyErr {
    exception(py, "Error", (text,), &[]).unwrap_or_else(|e| e)
}
