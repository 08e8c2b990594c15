// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arguments of calls, each with a sentence that says what to pass if something else was passed.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyString};

use crate::error;

/// The largest number of characters of a value that an error shows.
const SHOWN: usize = 60;

/// A value as an error shows it.
pub fn shown(given: &Bound<'_, PyAny>) -> String {
    let kind = given.get_type().name().map_or_else(|_| String::from("object"), |n| n.to_string());
    let text = match given.repr() {
        Ok(text) => text.to_string_lossy().into_owned(),
        // An object that cannot be shown.
        Err(_) => return format!("an object of the type {kind}"),
    };
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}… ({kind})", &text[..end]),
        None => format!("{text} ({kind})"),
    }
}

fn wrong(what: &str, given: &Bound<'_, PyAny>) -> PyErr {
    PyTypeError::new_err(format!("{what}, not {}", shown(given)))
}

/// Text. Lone surrogates, which no name has, become U+FFFD.
fn text(given: &Bound<'_, PyAny>) -> Option<String> {
    Some(given.cast::<PyString>().ok()?.to_string_lossy().into_owned())
}

/// `None` for None.
fn optional<T>(
    given: &Bound<'_, PyAny>,
    get: impl FnOnce() -> Option<T>,
    what: &str,
) -> PyResult<Option<T>> {
    if given.is_none() {
        return Ok(None);
    }
    get().map(Some).ok_or_else(|| wrong(what, given))
}

/// A condition.
pub fn condition(given: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    let what = "where is a condition as text, as in where='rss > 1G'";
    let is_utf8 = given.cast::<PyString>().is_ok_and(|text| text.to_str().is_ok());
    if !is_utf8 && given.is_instance_of::<PyString>() {
        let text =
            "where is text without lone surrogates, which stand for bytes that are not UTF-8";
        return Err(error::bad_query(given.py(), text.to_owned()));
    }
    optional(given, || text(given), what)
}

/// The name of an engine.
pub fn engine(given: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    let what = "engine is the name of an engine as text: kernel, bpf, service or procfs";
    optional(given, || text(given), what)
}

/// Seconds.
pub fn budget(given: &Bound<'_, PyAny>) -> PyResult<Option<f64>> {
    let what = "budget is a number of seconds, as in budget=0.5";
    optional(given, || given.extract().ok(), what)
}

/// How many descriptors.
pub fn count(given: &Bound<'_, PyAny>) -> PyResult<Option<usize>> {
    let what = "descriptors is a number of descriptors from 0 on";
    optional(given, || given.extract().ok(), what)
}

/// A directory.
pub fn proc(given: &Bound<'_, PyAny>) -> PyResult<Option<PathBuf>> {
    let what = "proc is the path of a directory, as in proc='/proc'";
    optional(given, || given.extract().ok(), what)
}

/// The path of a recording or of a saved answer.
pub fn from(given: &Bound<'_, PyAny>) -> PyResult<Option<PathBuf>> {
    let what =
        "from_ is the path of a recording or of a saved answer, as in from_='/var/lib/taskdiag'";
    optional(given, || given.extract().ok(), what)
}

/// A moment: seconds since 1970, or a datetime.
pub fn at(given: &Bound<'_, PyAny>) -> PyResult<Option<SystemTime>> {
    let what = "at is a number of seconds since 1970 or a datetime, as in at=time.time() - 300";
    // A datetime without a time zone is in local time.
    let seconds = || match given.getattr("timestamp") {
        Ok(method) => method.call0().ok()?.extract::<f64>().ok(),
        Err(_) => given.extract::<f64>().ok(),
    };
    let Some(seconds) = optional(given, seconds, what)? else { return Ok(None) };
    let since = Duration::try_from_secs_f64(seconds).ok();
    let time = since.and_then(|since| UNIX_EPOCH.checked_add(since));
    let no_time = || format!("{seconds} seconds since 1970 is no moment of a recording");
    time.map(Some).ok_or_else(|| error::bad_query(given.py(), no_time()))
}

/// True or false.
pub fn flag(given: &Bound<'_, PyAny>) -> PyResult<bool> {
    // A bool of NumPy is not one of Python.
    let is_bool = given.get_type().name().is_ok_and(|n| n == "bool" || n == "bool_");
    match given.cast::<PyBool>() {
        Ok(b) => Ok(b.is_true()),
        Err(_) if is_bool => given.is_truthy(),
        Err(_) => Err(wrong("threads, paths, mapped and absent are True or False", given)),
    }
}

/// The name of a kind of rows.
pub fn rows(given: &Bound<'_, PyAny>) -> PyResult<String> {
    let what = "of is the name of a kind of rows as text, as in columns('maps')";
    text(given).ok_or_else(|| wrong(what, given))
}

/// The name of a column.
pub fn column(given: &Bound<'_, PyAny>) -> PyResult<String> {
    text(given).ok_or_else(|| wrong("column is the name of a column as text, as in 'rss'", given))
}

/// The number of a row. One that does not fit is larger than any table, or before its beginning.
pub fn row(given: &Bound<'_, PyAny>) -> PyResult<i64> {
    if !given.hasattr("__index__")? {
        return Err(wrong("row is the number of a row", given));
    }
    match given.extract::<i64>() {
        Err(e) if e.is_instance_of::<PyOverflowError>(given.py()) => Ok(i64::MAX),
        got => got,
    }
}

/// `"pid,comm"` or `["pid", "comm"]`.
#[derive(Clone, Debug)]
pub struct Names(pub Vec<String>);

impl Names {
    /// The names in a text with commas or blanks between them.
    pub fn split(text: &str) -> Names {
        let names = text.split([',', ' ', '\t', '\n']).filter(|n| !n.is_empty());
        Names(names.map(str::to_owned).collect())
    }
}

impl<'py> FromPyObject<'_, 'py> for Names {
    type Error = PyErr;
    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Names> {
        if let Some(joined) = text(&given) {
            return Ok(Names::split(&joined));
        }
        let what = "columns, sort and deltas take names: 'pid,comm' or ['pid', 'comm']";
        let is_bytes = given.is_instance_of::<PyBytes>();
        let each = given.try_iter().ok().filter(|_| !is_bytes);
        let each = each.ok_or_else(|| wrong(what, &given))?;
        each.map(|one| {
            let one = one?;
            text(&one).ok_or_else(|| wrong(what, &one))
        })
        .collect::<PyResult<_>>()
        .map(Names)
    }
}
