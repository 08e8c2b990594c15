// SPDX-License-Identifier: MIT OR Apache-2.0
//! From the arguments of a call to a query of the library, and from its answer to a table.

use std::num::NonZeroU64;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use taskdiag::engine::procfs::Procfs;
use taskdiag::field::{CGROUPS, FILES, MAPS, MEMORY, Missing, Row, Set, TASKS};
use taskdiag::view::{Filter, Item, Key, Plan, Query, View};
use taskdiag::wire::Info;
use taskdiag::{ByteLimits, Choice, Engine, Error, Groups, Request, SessionCache, Snapshot, Watch};

use crate::args::{Names, shown};
use crate::arrow::Shared;
use crate::error;
use taskdiag::columns::{Builder, Lacks, Spec};

/// Python programs repeat requests through functions that cannot hold loaded BPF programs, so this
/// module keeps them.
static CACHE: SessionCache = SessionCache::new();

/// One process id or several.
#[derive(Clone, Debug)]
pub enum Pids {
    /// One process, which must exist.
    One(u32),
    /// Several processes, some of which may not exist.
    Several(Vec<u32>),
}

impl<'py> FromPyObject<'_, 'py> for Pids {
    type Error = PyErr;
    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Pids> {
        let is_number = |one: &Bound<'py, PyAny>| one.hasattr("__index__").unwrap_or(false);
        if is_number(&given) {
            return pid(&given).map(Pids::One);
        }
        let what = || {
            let given = shown(&given);
            error::bad_argument(format!("pids is a process id or a list of them, not {given}"))
        };
        if given.is_instance_of::<PyString>() || given.is_instance_of::<PyBytes>() {
            return Err(what());
        }
        let all = given.try_iter().map_err(|_| what())?;
        let each = all.map(|one| match one {
            Ok(one) if is_number(&one) => pid(&one),
            Ok(_) => Err(what()),
            Err(e) => Err(e),
        });
        each.collect::<PyResult<_>>().map(Pids::Several)
    }
}

fn pid(given: &Bound<'_, PyAny>) -> PyResult<u32> {
    given.extract().map_err(|_| {
        let text = given.repr().map_or_else(|_| String::from("this"), |text| text.to_string());
        error::bad_query(
            given.py(),
            format!("{text} is not a process id, which is a number from 1 on, below 2**32"),
        )
    })
}

/// Bytes of memory.
#[derive(Clone, Copy, Debug)]
pub struct Bytes(pub NonZeroU64);

impl<'py> FromPyObject<'_, 'py> for Bytes {
    type Error = PyErr;
    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Bytes> {
        let text = "max_rss is a number of bytes from 1 on, below 2**64";
        if !given.hasattr("__index__")? {
            return Err(error::bad_argument(format!("{text}, not {}", shown(&given))));
        }
        let number = given.extract().ok().and_then(NonZeroU64::new);
        number.map(Bytes).ok_or_else(|| error::bad_query(given.py(), text.to_owned()))
    }
}

/// How much of the arguments and of the environment of each process is read: bytes, or `"all"`.
#[derive(Clone, Copy, Debug)]
pub struct TextBytes(pub u32);

impl<'py> FromPyObject<'_, 'py> for TextBytes {
    type Error = PyErr;
    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<TextBytes> {
        let text = "args is a number of bytes from 0 on, or 'all'";
        let most = ByteLimits::ONE.text_bytes;
        if given.extract::<&str>().is_ok_and(|word| word == "all") {
            return Ok(TextBytes(most));
        }
        if !given.hasattr("__index__")? {
            return Err(error::bad_argument(format!("{text}, not {}", shown(&given))));
        }
        let number = given.extract::<u64>();
        let number = number.map_err(|_| error::bad_query(given.py(), text.to_owned()))?;
        Ok(TextBytes(u32::try_from(number).unwrap_or(most).min(most)))
    }
}

/// Limits for sums over pages, and for arguments.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// Time for all sums over pages together.
    pub budget: Option<Duration>,
    /// Resident memory of the largest process.
    pub max_rss: Option<NonZeroU64>,
    /// The largest number of bytes of the arguments, and of the environment, of a process.
    pub text_bytes: Option<u32>,
}

impl Limits {
    /// Makes them part of a request.
    pub fn put_into(&self, request: &mut Request) {
        (request.budget, request.max_rss_bytes) = (self.budget, self.max_rss);
        if let Some(bytes) = self.text_bytes {
            request.limits = request.limits.with_texts_of(bytes);
        }
    }
}

/// The arguments that all calls share.
#[derive(Clone, Debug, Default)]
pub struct Common {
    /// The columns; `None`: those of the view.
    pub columns: Option<Names>,
    /// Which rows.
    pub filter: Option<String>,
    /// Their order.
    pub sort: Option<Names>,
    /// Who answers.
    pub engine: Option<String>,
    /// Which processes.
    pub pids: Option<Pids>,
    /// The limits.
    pub limits: Limits,
    /// The proc filesystem to read, if that is not `/proc`.
    pub proc: Option<PathBuf>,
}

/// A checked query, and the names of its columns.
#[derive(Clone, Debug)]
pub struct Ask {
    /// What to show.
    pub query: Query,
    /// The columns.
    pub specs: Vec<Spec>,
    /// Who answers.
    pub choice: Choice,
    /// How much may be read.
    pub limits: Limits,
    /// The process that must exist.
    one: Option<u32>,
    /// An empty list of processes was given, which selects none. An empty list in `query.select`
    /// selects all.
    of_none: bool,
    proc: Option<PathBuf>,
}

const DEFAULT_TASKS: &str = "pid,ppid,user,s,nlwp,time,rss,start,comm,args";
const DEFAULT_THREADS: &str = "pid,tid,ppid,user,s,time,rss,start,comm,args";
const DEFAULT_MAPS: &str = "pid,address,end,size,perms,offset,device,inode,kind,path,deleted";
const DEFAULT_MEMORY: &str = "pid,user,swap,uss,pss,rss,comm";
const DEFAULT_FILES: &str =
    "pid,tid,threads,command,user,fd,access,type,kind,size,offset,inode,path,deleted,name";

fn no_column(py: Python<'_>, set: &'static Set, name: &str) -> PyErr {
    let lists = format!("taskdiag.columns('{}') lists them", set.name);
    error::bad_query(py, format!("{}; {lists}", set.no_column(name)))
}

impl Ask {
    fn new(py: Python<'_>, set: &'static Set, default: &str, common: Common) -> PyResult<Ask> {
        let names = common.columns.unwrap_or_else(|| Names::split(default)).0;
        if names.is_empty() {
            let text = "columns names no column, as in columns='pid,comm'";
            return Err(error::bad_query(py, text.to_owned()));
        }
        let mut fields = Vec::new();
        for (i, name) in names.iter().enumerate() {
            if names[..i].contains(name) {
                return Err(error::bad_query(py, format!("the column '{name}' is named twice")));
            }
            fields.push(set.find(name).ok_or_else(|| no_column(py, set, name))?.field);
        }
        let specs = names.iter().zip(&fields).map(|(name, field)| Spec::of(name, field)).collect();
        let mut query = Query::new(set, fields);
        if let Some(text) = &common.filter {
            let filter = Filter::parse(set, text);
            query.filter = Some(filter.map_err(|e| error::bad_query(py, e.to_string()))?);
        }
        for item in common.sort.map(|names| names.0).unwrap_or_default() {
            match Key::parse(set, &item) {
                Some(key) => query.sort.push(key),
                None => return Err(no_column(py, set, Key::name(&item).1)),
            }
        }
        let choice = match common.engine.as_deref() {
            None => Choice::Auto,
            Some(name) => name.parse().map_err(|e| error::bad_query(py, e))?,
        };
        let mut one = None;
        let of_none = matches!(&common.pids, Some(Pids::Several(pids)) if pids.is_empty());
        match common.pids {
            None => {}
            Some(Pids::One(pid)) => (one, query.select.pids) = (Some(pid), vec![pid]),
            Some(Pids::Several(pids)) => query.select.pids = pids,
        }
        if common.proc.is_some() && common.engine.is_some_and(|e| e != "procfs") {
            let text =
                "only the engine procfs reads another proc filesystem: leave out engine or proc";
            return Err(error::bad_query(py, text.to_owned()));
        }
        Ok(Ask { query, specs, choice, limits: common.limits, one, of_none, proc: common.proc })
    }
    /// Processes, or threads.
    pub fn tasks(py: Python<'_>, common: Common, threads: bool) -> PyResult<Ask> {
        let default = if threads { DEFAULT_THREADS } else { DEFAULT_TASKS };
        let mut ask = Ask::new(py, &TASKS, default, common)?;
        ask.query.threads = threads;
        Ok(ask)
    }
    /// Mappings.
    pub fn maps(py: Python<'_>, common: Common) -> PyResult<Ask> {
        Ask::new(py, &MAPS, DEFAULT_MAPS, common)
    }
    /// Processes that have memory of their own.
    pub fn memory(py: Python<'_>, common: Common) -> PyResult<Ask> {
        Ask::new(py, &MEMORY, DEFAULT_MEMORY, common)
    }
    /// Files: descriptors, with `paths` also the program and directories, with `mapped` also mapped
    /// files.
    pub fn files(py: Python<'_>, common: Common, paths: bool, mapped: bool) -> PyResult<Ask> {
        let ask = Ask::new(py, &FILES, DEFAULT_FILES, common)?;
        Ok(Ask { query: ask.query.with_files(paths, mapped), ..ask })
    }
    /// Cgroups.
    pub fn cgroups(py: Python<'_>, common: Common, default: &str) -> PyResult<Ask> {
        Ask::new(py, &CGROUPS, default, common)
    }
    /// Makes columns. An answer has the name of a file once, and columns have a copy in each row.
    /// So the text of columns has a limit of its own: that of the lists of an answer, or the limit
    /// for the arguments that were asked for if this is larger.
    pub fn builder(&self, specs: Vec<Spec>) -> Builder {
        let limits = match self.limits.text_bytes {
            Some(bytes) => ByteLimits::LIST.with_texts_of(bytes),
            None => ByteLimits::LIST,
        };
        let most = limits.all_list_bytes.max(limits.all_text_bytes);
        Builder::new(specs).with_text_limit(usize::try_from(most).unwrap_or(usize::MAX))
    }
    /// Is the answer available at once, so that it need not be interruptible?
    pub fn is_quick(&self) -> bool {
        // A request for one process takes microseconds, unless it walks over pages or mappings.
        let walks = self.query.groups().intersects(Groups::WALKS);
        self.of_none || self.one.is_some() && !walks
    }
    /// Asks the proc filesystem that is named.
    fn read(&self, proc: &Path, watch: &Arc<Watch>) -> Result<TableData, Error> {
        let groups = self.query.plan().groups();
        let request = match (self.one, self.query.threads) {
            (Some(pid), true) => Request::threads(pid, groups),
            (Some(pid), false) => Request::one(pid, groups),
            (None, true) => Request::all_threads(groups),
            (None, false) => Request::all(groups),
        };
        let mut request = request.with_members(self.query.members()).with_watch(Arc::clone(watch));
        self.limits.put_into(&mut request);
        let answer = Procfs::with_root(proc)?.run(&request)?;
        let snapshot = Snapshot::parse(answer.stream)?;
        let made = TableData::of(self, &snapshot, |_| true);
        let wanted = self.query.select.pids.iter().copied();
        Ok(TableData { nobody: wanted.filter(|p| snapshot.task(*p).is_none()).collect(), ..made })
    }
    /// Makes the request, and a table of the answer. It does not use Python.
    pub fn answer(&self, watch: &Arc<Watch>) -> Result<TableData, Error> {
        if self.of_none {
            return Ok(TableData::empty(self.specs.clone()));
        }
        if let Some(proc) = &self.proc {
            return self.read(proc, watch);
        }
        let mut plan: Plan = self.query.plan();
        plan.requests(|r| {
            r.watch = Some(Arc::clone(watch));
            self.limits.put_into(r);
        });
        let answered = plan.ask_cached(self.choice, &CACHE)?;
        if let Some(pid) = self.one.filter(|pid| answered.nobody.contains(pid)) {
            return Err(Error::NoSuchProcess(pid));
        }
        let made = TableData::of(self, &answered.snapshot, |_| true);
        Ok(TableData { nobody: answered.nobody, ..made })
    }
}

/// The rows of an answer, and remarks about it.
#[derive(Debug)]
pub struct TableData {
    /// The rows.
    pub shared: Arc<Shared>,
    /// Why values are missing, for each column.
    pub lacks: Vec<Lacks>,
    /// Tasks that the filter leaves out since it is not known whether they match: the column, why,
    /// and how many.
    pub left: Vec<(&'static str, Missing, u64)>,
    /// Requested pids that do not exist.
    pub nobody: Vec<u32>,
    /// Remarks for users, and whether something is missing because of each.
    pub caveats: Vec<(String, bool)>,
    /// The engines with their groups, reasons and times.
    pub served: Vec<(&'static str, String, String, Duration)>,
    /// The errno of a walk that ended early; 0: it did not.
    pub errno: i32,
    /// The head of the answer. `None`: there was no request.
    pub info: Option<Info>,
}

impl TableData {
    /// The rows of a snapshot of which `wanted` is true.
    pub fn of(ask: &Ask, snapshot: &Snapshot, wanted: impl Fn(&Row<'_>) -> bool) -> TableData {
        let query = &ask.query;
        let mut view = query.view(snapshot);
        if let Some(files) = view.files_mut() {
            // The names of sockets of our own namespace do without its number.
            let own = std::fs::metadata("/proc/self/ns/net").ok();
            files.own_netns = own.and_then(|m| u32::try_from(m.ino()).ok());
        }
        let mut builder = ask.builder(ask.specs.clone());
        each(&view, &mut |item| {
            if item.row().is_none_or(&wanted) {
                builder.push(view.cx(), |c| item.value(view.cx(), query.columns[c], c));
            }
        });
        let left = view.left();
        TableData::new(
            builder,
            snapshot,
            left.iter().map(|l| (l.field.name, l.why, l.tasks)).collect(),
        )
    }
    /// No rows, without a request.
    fn empty(specs: Vec<Spec>) -> TableData {
        let (specs, batches, lacks) = Builder::new(specs).finish();
        TableData {
            shared: Arc::new(Shared { specs, batches }),
            lacks,
            left: Vec::new(),
            nobody: Vec::new(),
            caveats: Vec::new(),
            served: Vec::new(),
            errno: 0,
            info: None,
        }
    }
    /// A table that was built from a snapshot.
    pub fn new(
        builder: Builder,
        snapshot: &Snapshot,
        left: Vec<(&'static str, Missing, u64)>,
    ) -> TableData {
        let (specs, batches, lacks) = builder.finish();
        let served = snapshot.served().iter();
        TableData {
            shared: Arc::new(Shared { specs, batches }),
            lacks,
            left,
            nobody: Vec::new(),
            caveats: snapshot.caveats().iter().map(|c| (c.to_string(), c.is_lack())).collect(),
            served: served
                .map(|s| (s.engine.name(), s.groups.to_string(), s.why.clone(), s.cost.wall))
                .collect(),
            errno: -snapshot.stream().done().error,
            info: Some(*snapshot.stream().info()),
        }
    }
}

/// Calls `f` for each row. If the answer lacks the list of a task, a row says why.
pub fn each(view: &View<'_>, f: &mut dyn FnMut(Item<'_, '_>)) {
    let done = view.rows(true, &mut |_, _, _| {}).each(&mut |item| {
        f(item);
        Ok(())
    });
    debug_assert!(done.is_ok(), "taking a row does not fail");
}
