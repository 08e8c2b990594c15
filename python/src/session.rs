// SPDX-License-Identifier: MIT OR Apache-2.0
//! Repeated requests, and what changed between two answers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use taskdiag::field::Value;
use taskdiag::view::Query;
use taskdiag::{ByteLimits, Error, Groups, Members, Request, Session, Stayed, Strategy, Watch};

use crate::args::{self, Names};
use crate::ask::{Ask, Bytes, Common, TableData, TextBytes, each};
use crate::table::Table;
use crate::{error, worker};
use taskdiag::columns::{Absent, Spec, Type};

/// A counter whose growth is a column.
struct Delta {
    /// Its name in `deltas`.
    name: &'static str,
    groups: Groups,
    members: fn() -> Members,
    columns: &'static [(&'static str, Type, &'static str, &'static str)],
    /// The values of its columns.
    of: fn(&Stayed<'_>, std::time::Duration) -> Vec<Option<Value<'static>>>,
}

fn pair(both: Option<(u64, u64)>) -> Vec<Option<Value<'static>>> {
    vec![both.map(|b| Value::Uint(b.0)), both.map(|b| Value::Uint(b.1))]
}

static DELTAS: [Delta; 4] = [
    Delta {
        name: "time",
        groups: Groups::STAT,
        members: || Members::of(Groups::STAT, &["utime_ns", "stime_ns"]),
        columns: &[
            ("delta_time", Type::Duration, "seconds", "CPU time used meanwhile, user and system"),
            ("delta_pcpu", Type::F64, "percent", "Per cent of one CPU used meanwhile"),
        ],
        of: |s, interval| {
            let time = s.cpu_time().map(|t| u64::try_from(t.as_nanos()).unwrap_or(u64::MAX));
            vec![time.map(Value::Nanos), s.cpus(interval).map(|c| Value::Percent(100.0 * c))]
        },
    },
    Delta {
        name: "faults",
        groups: Groups::STAT,
        members: || Members::of(Groups::STAT, &["minflt", "majflt"]),
        columns: &[
            ("delta_minflt", Type::U64, "count", "Minor page faults meanwhile"),
            ("delta_majflt", Type::U64, "count", "Major page faults meanwhile"),
        ],
        of: |s, _| pair(s.faults()),
    },
    Delta {
        name: "io",
        groups: Groups::IO,
        members: || Members::NONE,
        columns: &[
            ("delta_read_bytes", Type::U64, "bytes", "Bytes read from storage meanwhile"),
            ("delta_write_bytes", Type::U64, "bytes", "Bytes written to storage meanwhile"),
        ],
        of: |s, _| pair(s.storage_bytes()),
    },
    Delta {
        name: "switches",
        groups: Groups::SCHED,
        members: || Members::NONE,
        columns: &[
            ("delta_nvcsw", Type::U64, "count", "Voluntary context switches meanwhile"),
            ("delta_nivcsw", Type::U64, "count", "Involuntary context switches meanwhile"),
        ],
        of: |s, _| pair(s.switches()),
    },
];

impl Delta {
    fn specs(&self) -> impl Iterator<Item = Spec> {
        self.columns.iter().map(|(name, kind, unit, help)| Spec {
            name: (*name).to_owned(),
            kind: *kind,
            unit,
            source: "the difference of two answers",
            help,
            absent: Absent::Null,
        })
    }
}

/// The part that another thread may use.
struct Inner {
    session: Session,
    watch: Arc<Watch>,
}

/// The part that does not change.
#[derive(Debug)]
struct Fixed {
    ask: Ask,
    deltas: Vec<&'static Delta>,
}

impl std::fmt::Debug for Delta {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl Fixed {
    fn open(&self) -> Result<Inner, Error> {
        let query: &Query = &self.ask.query;
        let deltas = self.deltas.iter();
        let (groups, members) = deltas.fold((query.groups(), query.members()), |(g, m), d| {
            (g | d.groups, m.union((d.members)()))
        });
        let strategy = if query.threads { Strategy::AllThread } else { Strategy::All };
        let watch = Arc::new(Watch::new());
        // A session holds two answers, as programs do that repeat requests.
        let mut request = Request::new(strategy, 0, groups)
            .with_members(members)
            .with_text_bytes(ByteLimits::SHORT_TEXT)
            .with_watch(Arc::clone(&watch));
        self.ask.limits.put_into(&mut request);
        Ok(Inner { session: Session::open(request, self.ask.choice)?, watch })
    }
}

/// The state between two calls.
enum State<T> {
    Ready(T),
    /// Another thread works with it.
    Busy,
    Closed,
}

/// Something that one thread uses at a time.
pub struct Exclusive<T>(Mutex<State<T>>);

impl<T> Exclusive<T> {
    /// It is ready.
    pub fn new(inner: T) -> Exclusive<T> {
        Exclusive(Mutex::new(State::Ready(inner)))
    }
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Puts it back. `None` closes it.
    pub fn put(&self, inner: Option<T>) {
        *self.lock() = inner.map_or(State::Closed, State::Ready);
    }
    /// Takes it. Other threads get an error until it is put back.
    pub fn take(&self, py: Python<'_>) -> PyResult<T> {
        let mut state = self.lock();
        match std::mem::replace(&mut *state, State::Busy) {
            State::Ready(inner) => Ok(inner),
            State::Busy => {
                let text = "the session answers another thread: give each thread a session";
                Err(error::busy(py, text))
            }
            State::Closed => {
                *state = State::Closed;
                Err(error::busy(py, "the session was closed: make another one"))
            }
        }
    }
    /// The state, for the end of a list.
    pub fn words(&self) -> &'static str {
        match *self.lock() {
            State::Ready(_) => "",
            State::Busy => ", busy",
            State::Closed => ", closed",
        }
    }
}

/// Repeats a request. The BPF programs stay loaded, so that only the first answer pays for loading
/// them.
///
/// `deltas` says which counters `changes()` compares: time (delta_time, delta_pcpu), faults
/// (delta_minflt, delta_majflt), io (delta_read_bytes, delta_write_bytes), switches (delta_nvcsw,
/// delta_nivcsw).
///
/// `budget`, `max_rss` and `args` are those of `snapshot()`. A session holds two answers, so
/// without `args` it reads only 4096 bytes of the arguments, and of the environment, of each
/// process.
///
/// A session belongs to one thread at a time. After Ctrl-C in `refresh()` it starts again without
/// answers.
#[pyclass(frozen, module = "taskdiag", name = "Session", weakref)]
pub struct PySession {
    fixed: Arc<Fixed>,
    state: Exclusive<Box<Inner>>,
}

impl PySession {
    /// Uses the session without the GIL, so that a signal can end it.
    fn with<T: Send + 'static>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Inner, &Fixed) -> T + Send + 'static,
    ) -> PyResult<T> {
        let mut inner = self.state.take(py)?;
        let (fixed, watch) = (Arc::clone(&self.fixed), Arc::clone(&inner.watch));
        let done = worker::run(
            py,
            move || {
                let result = work(&mut inner, &fixed);
                (inner, result)
            },
            || watch.stop(),
        );
        match done {
            Ok((inner, result)) => {
                self.state.put(Some(inner));
                Ok(result)
            }
            Err(e) => {
                // A watch that was stopped stays stopped, so the session needs a new one.
                self.state.put(self.fixed.open().ok().map(Box::new));
                Err(e)
            }
        }
    }
}

#[pymethods]
impl PySession {
    #[new]
    #[pyo3(signature = (columns=None, *, threads=false, r#where=None, sort=None, deltas=None, engine=None, budget=None, max_rss=None, args=None))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn new(
        py: Python<'_>,
        columns: Option<Names>,
        #[pyo3(from_py_with = args::flag)] threads: bool,
        #[pyo3(from_py_with = args::condition)] r#where: Option<String>,
        sort: Option<Names>,
        deltas: Option<Names>,
        #[pyo3(from_py_with = args::engine)] engine: Option<String>,
        #[pyo3(from_py_with = args::budget)] budget: Option<f64>,
        max_rss: Option<Bytes>,
        args: Option<TextBytes>,
    ) -> PyResult<PySession> {
        let limits = crate::limits(py, budget, max_rss, args)?;
        let common = Common { columns, filter: r#where, sort, engine, limits, ..Common::default() };
        let ask = Ask::tasks(py, common, threads)?;
        let names = deltas.map_or_else(|| vec![String::from("time")], |names| names.0);
        let mut wanted: Vec<&'static Delta> = Vec::new();
        for name in &names {
            let Some(delta) = DELTAS.iter().find(|d| d.name == name) else {
                let known: Vec<&str> = DELTAS.iter().map(|d| d.name).collect();
                let text = format!("there is no delta '{name}'; there are {}", known.join(", "));
                return Err(error::bad_query(py, text));
            };
            if !wanted.iter().any(|d| d.name == name) {
                wanted.push(delta);
            }
        }
        let fixed = Arc::new(Fixed { ask, deltas: wanted });
        let inner = fixed.open().map_err(|e| error::raise(py, &e))?;
        Ok(PySession { fixed, state: Exclusive::new(Box::new(inner)) })
    }
    /// Makes the request again, and returns the rows.
    fn refresh(&self, py: Python<'_>) -> PyResult<Table> {
        let made = self.with(py, |inner, fixed| {
            let snapshot = inner.session.refresh()?;
            Ok(TableData::of(&fixed.ask, snapshot, |_| true))
        })?;
        made.map(Table::new).map_err(|e: Error| error::raise(py, &e))
    }
    /// What changed between the last two answers. None before there are two.
    fn changes(&self, py: Python<'_>) -> PyResult<Option<Changes>> {
        let Some(c) = self.with(py, |inner, fixed| changes(&inner.session, fixed))? else {
            return Ok(None);
        };
        let table = |made| Py::new(py, Table::new(made));
        Ok(Some(Changes {
            began: table(c.began)?,
            ended: table(c.ended)?,
            stayed: table(c.stayed)?,
            unknown: c.unknown,
            interval: c.interval,
        }))
    }
    fn __repr__(&self) -> String {
        let names: Vec<&str> = self.fixed.ask.specs.iter().map(|s| s.name.as_str()).collect();
        let deltas: Vec<&str> = self.fixed.deltas.iter().map(|d| d.name).collect();
        let state = self.state.words();
        format!("<taskdiag.Session of {}, deltas {}{state}>", names.join(", "), deltas.join(", "))
    }
    fn __reduce__(&self) -> PyResult<()> {
        let text = "a Session holds open engines and cannot be pickled; pickle its tables";
        Err(pyo3::exceptions::PyTypeError::new_err(text))
    }
    /// Closes the engines.
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

/// What changed between two answers of a session.
#[pyclass(frozen, module = "taskdiag", get_all)]
pub struct Changes {
    /// The rows that are new.
    began: Py<Table>,
    /// The rows that are gone, with their last values.
    ended: Py<Table>,
    /// The rows that are in both, with their current values, and columns delta_... for the growth
    /// of counters.
    stayed: Py<Table>,
    /// How many tasks of one answer could not be searched for in the other one. Either their start
    /// time is not known, or the other answer ended early and does not have their pid.
    unknown: usize,
    /// Seconds between the two answers.
    interval: f64,
}

#[pymethods]
impl Changes {
    fn __repr__(&self) -> String {
        let (began, ended, stayed) = (self.began.get(), self.ended.get(), self.stayed.get());
        let rows = |table: &Table| table.rows();
        format!(
            "<taskdiag.Changes within {:.2} s: {} began, {} ended, {} stayed>",
            self.interval,
            rows(began),
            rows(ended),
            rows(stayed)
        )
    }
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let make = py.import("taskdiag._native")?.getattr("_changes")?;
        let tables = [&self.began, &self.ended, &self.stayed].map(|t| t.clone_ref(py));
        (make, (tables, self.unknown, self.interval)).into_pyobject(py)
    }
}

/// Changes that were pickled. Private: pickles name it.
#[pyfunction]
pub fn _changes(tables: [Py<Table>; 3], unknown: usize, interval: f64) -> Changes {
    let [began, ended, stayed] = tables;
    Changes { began, ended, stayed, unknown, interval }
}

fn changes(session: &Session, fixed: &Fixed) -> Option<Changed> {
    let (now, before) = (session.snapshot()?, session.previous()?);
    let changes = session.changes()?;
    let pids = |tasks: &[taskdiag::TaskView<'_>]| {
        tasks.iter().map(|t| t.pid()).collect::<std::collections::HashSet<u32>>()
    };
    let (began, ended) = (pids(&changes.began), pids(&changes.ended));
    let query = &fixed.ask.query;
    let specs = || fixed.ask.specs.clone();
    let stayed: HashMap<u32, &Stayed<'_>> =
        changes.stayed.iter().map(|s| (s.new.pid(), s)).collect();
    let columns = query.columns.len();
    let all = specs().into_iter().chain(fixed.deltas.iter().flat_map(|d| d.specs())).collect();
    let mut builder = fixed.ask.builder(all);
    let view = query.view(now);
    each(&view, &mut |item| {
        let pid = item.row().map(|row| row.view.pid());
        let Some(both) = pid.and_then(|pid| stayed.get(&pid)) else { return };
        let deltas: Vec<_> =
            fixed.deltas.iter().flat_map(|d| (d.of)(both, changes.interval)).collect();
        builder.push(view.cx(), |c| match c.checked_sub(columns) {
            None => item.value(view.cx(), query.columns[c], c),
            Some(d) => deltas[d].clone().unwrap_or(Value::UNKNOWN),
        });
    });
    let left = view.left().iter().map(|l| (l.field.name, l.why, l.tasks)).collect();
    Some(Changed {
        stayed: TableData::new(builder, now, left),
        began: TableData::of(&fixed.ask, now, |row| began.contains(&row.view.pid())),
        ended: TableData::of(&fixed.ask, before, |row| ended.contains(&row.view.pid())),
        unknown: changes.unknown.len(),
        interval: changes.interval.as_secs_f64(),
    })
}

/// [`Changes`], made without the GIL.
struct Changed {
    began: TableData,
    ended: TableData,
    stayed: TableData,
    unknown: usize,
    interval: f64,
}
