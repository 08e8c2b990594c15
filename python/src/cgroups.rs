// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cgroups as tables: one listing, those of a session that keeps the files open and knows how much
//! the counters have grown, or those of a recording.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use taskdiag::cgroups::{Bounds, Cgroups, Session, path_of};
use taskdiag::recording::Recording;
use taskdiag::view::{CgroupRows, Rows as _};
use taskdiag::{Error, Snapshot};

use crate::args::{self, Names, shown};
use crate::ask::{Ask, Common, TableData};
use crate::session::Exclusive;
use crate::table::Table;
use crate::{error, worker};

const DEFAULT: &str = "path,tasks,time,cpu_max,throttled,memory,memory_max,swap,oom_kills,read_bytes,write_bytes,\
    cpu_some,memory_some,io_some";
const DEFAULT_OF_SESSION: &str =
    "path,tasks,cpu_now,throttled_now,memory,memory_max,oom_kills,read_now,write_now";

/// How many damaged places of a recording are named.
const DAMAGE_NAMED: usize = 3;

/// Paths of cgroups: one, or several.
#[derive(Clone, Debug)]
pub struct Paths(Vec<Vec<u8>>);

impl<'py> FromPyObject<'_, 'py> for Paths {
    type Error = PyErr;
    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Paths> {
        let what = || {
            let text = "paths is the path of a cgroup or a list of them, as in '/system.slice'";
            error::bad_argument(format!("{text}, not {}", shown(&given)))
        };
        let one = |path: &Bound<'py, PyAny>| {
            let path: PathBuf = path.extract().map_err(|_| what())?;
            let path: &OsStr = path.as_os_str();
            Ok(path_of(path.as_bytes()).to_vec())
        };
        if let Ok(path) = one(&given) {
            return Ok(Paths(vec![path]));
        }
        let all = given.try_iter().map_err(|_| what())?;
        all.map(|path| one(&path?)).collect::<PyResult<_>>().map(Paths)
    }
}

/// What is listed.
#[derive(Clone, Debug)]
struct Want {
    ask: Ask,
    /// With those below them. `None`: all.
    paths: Option<Paths>,
}

impl Want {
    fn open(&self, descriptors: usize) -> Result<Session, Error> {
        let files = self.ask.query.cgroup_files();
        let session = Session::new(files, Bounds::default(), descriptors)?;
        match &self.paths {
            Some(paths) => session.below(paths.0.iter().map(Vec::as_slice)),
            None => Ok(session),
        }
    }
    /// A listing as a table.
    fn list(&self, session: &mut Session) -> Result<TableData, Error> {
        self.table(&session.list()?)
    }
    /// The cgroups that were kept with an answer as a table.
    fn kept(&self, from: &Path, at: Option<SystemTime>) -> Result<TableData, Error> {
        let (cgroups, caveats) = kept(from, at)?;
        let mut cgroups = cgroups.ok_or_else(|| {
            Error::Recording(format!(
                "{} has no cgroups{}: 'taskdiag record --cgroups' records them",
                from.display(),
                at.map_or("", |_| " at that time")
            ))
        })?;
        if let Some(paths) = &self.paths {
            cgroups.only(paths.0.iter().map(Vec::as_slice))?;
        }
        let mut made = self.table(&cgroups)?;
        made.caveats.extend(caveats);
        Ok(made)
    }
    fn table(&self, all: &Cgroups) -> Result<TableData, Error> {
        let query = &self.ask.query;
        let rows = CgroupRows::new(query, all)?;
        let mut builder = self.ask.builder(self.ask.specs.clone());
        let done = rows.each(&mut |item| {
            builder.push(rows.cx(), |c| item.value(rows.cx(), query.columns[c], c));
            Ok(())
        });
        debug_assert!(done.is_ok(), "taking a row does not fail");
        let left = rows.left().iter().map(|l| (l.field.name, l.why, l.tasks)).collect();
        let mut made = TableData::new(builder, rows.snapshot(), left);
        made.caveats.extend(all.remarks().into_iter().map(|text| (text, true)));
        Ok(made)
    }
}

/// Cgroups that were kept with an answer, and remarks as in [`TableData`].
type Recorded = (Option<Cgroups>, Vec<(String, bool)>);

/// The cgroups of a saved answer, or of the answer of a recording that is the last one up to a time
/// or of all, and remarks. `None`: this answer has none.
fn kept(from: &Path, at: Option<SystemTime>) -> Result<Recorded, Error> {
    if !from.is_dir() && from.extension().is_none_or(|e| e != "tdr") {
        if at.is_some() {
            return Err(Error::Recording(format!(
                "at chooses from a recording, and {} is not one: leave at out",
                from.display()
            )));
        }
        let file = File::open(from).map_err(|e| Error::io(from.display().to_string(), e))?;
        return Ok((Cgroups::of(&Snapshot::read_from(file)?), Vec::new()));
    }
    let recording = Recording::open(from)?;
    let number = match at {
        Some(time) => recording.find(time),
        None => recording.len().checked_sub(1),
    };
    let number = number.ok_or_else(|| {
        Error::Recording(match recording.is_empty() {
            true => format!("{} has no answer yet", from.display()),
            false => format!("nothing was recorded before that time in {}", from.display()),
        })
    })?;
    let cgroups = Cgroups::of_frame(&recording, number)?;
    let mut caveats: Vec<(String, bool)> =
        recording.damage().iter().take(DAMAGE_NAMED).map(|d| (d.to_string(), true)).collect();
    let time = at.unwrap_or_else(SystemTime::now);
    if recording.info(number).is_some_and(|info| info.is_stale_at(time)) {
        let text = "nothing was recorded right before that time: table.info['time'] has the time of this answer";
        caveats.push((text.to_owned(), false));
    }
    Ok((cgroups, caveats))
}

/// Cgroups as rows: what each uses and may use, as `taskdiag cgroups` shows it.
///
/// `paths` is the path of a cgroup, or a list of them, each with those below it; without it, all
/// cgroups are rows. `columns`, `where` and `sort` are those of `snapshot()`, with the columns that
/// `columns('cgroups')` lists. Only the files that they need are read.
///
/// `from_` is a recording that `taskdiag record --cgroups` made, or a saved answer. `at`, which is
/// a datetime or seconds since 1970, chooses the last answer of a recording up to that time;
/// without it, the newest one counts. `table.info` has its time and host. Columns whose names end
/// in _now are rates since the previous answer. Without `from_`, they need a `CgroupSession`.
#[pyfunction]
#[pyo3(signature = (paths=None, columns=None, *, r#where=None, sort=None, from_=None, at=None))]
pub fn cgroups(
    py: Python<'_>,
    paths: Option<Paths>,
    columns: Option<Names>,
    #[pyo3(from_py_with = args::condition)] r#where: Option<String>,
    sort: Option<Names>,
    #[pyo3(from_py_with = args::from)] from_: Option<PathBuf>,
    #[pyo3(from_py_with = args::at)] at: Option<SystemTime>,
) -> PyResult<Table> {
    if at.is_some() && from_.is_none() {
        let text = "at chooses an answer of a recording: name it with from_";
        return Err(error::bad_query(py, text.to_owned()));
    }
    let common = Common { columns, filter: r#where, sort, ..Common::default() };
    let want = Want { ask: Ask::cgroups(py, common, DEFAULT)?, paths };
    // A listing has bounds, and ends before Ctrl-C is noticed.
    let work = move || match &from_ {
        Some(path) => want.kept(path, at),
        None => want.list(&mut want.open(0)?),
    };
    let made = worker::run(py, work, || {})?;
    made.map(Table::new).map_err(|e| error::raise(py, &e))
}

/// Lists cgroups repeatedly. It keeps their files open, which makes a listing faster, and
/// knows how much the counters have grown: columns whose names end in _now are rates since the
/// previous listing, and None in the first one.
///
/// The arguments are those of `cgroups()`. It uses at most half of the descriptors that the process
/// may have, and not more than 8192; `descriptors` sets another limit. A session belongs to one
/// thread at a time.
#[pyclass(frozen, module = "taskdiag", weakref)]
pub struct CgroupSession {
    want: Arc<Want>,
    descriptors: usize,
    state: Exclusive<Box<Session>>,
}

#[pymethods]
impl CgroupSession {
    #[new]
    #[pyo3(signature = (paths=None, columns=None, *, r#where=None, sort=None, descriptors=None))]
    fn new(
        py: Python<'_>,
        paths: Option<Paths>,
        columns: Option<Names>,
        #[pyo3(from_py_with = args::condition)] r#where: Option<String>,
        sort: Option<Names>,
        #[pyo3(from_py_with = args::count)] descriptors: Option<usize>,
    ) -> PyResult<CgroupSession> {
        let common = Common { columns, filter: r#where, sort, ..Common::default() };
        let want = Arc::new(Want { ask: Ask::cgroups(py, common, DEFAULT_OF_SESSION)?, paths });
        let descriptors = descriptors.unwrap_or_else(Session::descriptors);
        let session = want.open(descriptors).map_err(|e| error::raise(py, &e))?;
        Ok(CgroupSession { want, descriptors, state: Exclusive::new(Box::new(session)) })
    }
    /// Lists the cgroups, and returns the rows.
    fn refresh(&self, py: Python<'_>) -> PyResult<Table> {
        let mut session = self.state.take(py)?;
        let want = Arc::clone(&self.want);
        let work = move || {
            let made = want.list(&mut session);
            (session, made)
        };
        match worker::run(py, work, || {}) {
            Ok((session, made)) => {
                self.state.put(Some(session));
                made.map(Table::new).map_err(|e| error::raise(py, &e))
            }
            Err(e) => {
                // Ctrl-C drops the listing with its session.
                self.state.put(self.want.open(self.descriptors).ok().map(Box::new));
                Err(e)
            }
        }
    }
    fn __repr__(&self) -> String {
        let names: Vec<&str> = self.want.ask.specs.iter().map(|s| s.name.as_str()).collect();
        format!("<taskdiag.CgroupSession of {}{}>", names.join(", "), self.state.words())
    }
    fn __reduce__(&self) -> PyResult<()> {
        let text = "a CgroupSession holds open files and cannot be pickled; pickle its tables";
        Err(pyo3::exceptions::PyTypeError::new_err(text))
    }
    /// Closes the files.
    fn close(&self) {
        self.state.put(None);
    }
    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }
    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, PyTuple>) {
        self.close();
    }
}
