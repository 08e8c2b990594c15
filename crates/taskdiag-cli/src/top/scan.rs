//! Requests all tasks at each refresh, and details for the rows on the screen.
//!
//! A session requests, for all tasks, the values by which rows are sorted, filtered and added up,
//! and columns that cost little. Everything else, such as arguments, is requested only for the rows
//! on the screen.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::time::{Duration, Instant};

use taskdiag::field::{Context, Field, Part, Row, Value};
use taskdiag::view::{Filter, Query};
use taskdiag::{
    ByteLimits, Choice, EngineId, Groups, Members, Rates, Request, Session, Snapshot, Stat,
    Strategy, TaskId, query_each,
};

use crate::args::top::SET;
use crate::columns::Column;
use crate::exit::Exit;
use crate::order::Key;

/// The id of a task and its start time, because the id may be used again.
pub type Id = (u32, u64);

/// What is shown.
#[derive(Clone, Debug)]
pub struct Shape {
    /// The columns.
    pub columns: Vec<Column>,
    /// Sort keys.
    pub sort: Vec<Key>,
    /// Which rows.
    pub filter: Option<Filter>,
    /// One row for each value of this column.
    pub by: Option<Column>,
    /// Threads instead of processes?
    pub threads: bool,
    /// Children below their parents?
    pub tree: bool,
    /// Leave out kernel threads?
    pub users_only: bool,
    /// Leave out tasks that used no CPU time since the last refresh?
    pub busy_only: bool,
    /// In the tree, show the sums over each process and all its descendants?
    pub subtrees: bool,
    /// The processes of the tree whose descendants are not shown.
    pub folded: HashSet<Id>,
    /// Request all columns for all tasks? If not, some are requested only for visible rows.
    pub everything: bool,
}

impl Shape {
    /// Are the sums of subtrees shown? Threads have none below them.
    pub fn adds_up_subtrees(&self) -> bool {
        self.subtrees && self.tree && self.by.is_none() && !self.threads
    }
}

/// How long values that rarely change are kept before they are requested again.
const KEEP: Duration = Duration::from_secs(5);
/// The numbers of tasks above which owners and memory of all tasks cost more than two files for
/// each row on the screen: the first number for /proc, the second for a BPF program that walks the
/// tasks.
const MANY_FILES: usize = 300;
const MANY_TASKS: usize = 4000;
/// The number of answers for which an ended task is named.
const NAMED_FOR: u64 = 2;
/// The largest number of ended tasks that are named in one answer.
const NAMED: usize = 64;

/// A task that ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Its id.
    pub pid: u32,
    /// Its command name.
    pub comm: Vec<u8>,
    /// The CPU time that it had used when it was last seen.
    pub cpu_ns: Option<u64>,
    /// The number of the first answer without it.
    pub scan: u64,
}

/// Asks for tasks.
#[derive(Debug)]
pub struct Scanner {
    choice: Choice,
    session: Option<Session>,
    /// Activity of the tasks since the previous answer.
    pub rates: Rates,
    context: Option<(Context, Instant)>,
    scanned: (Groups, Members),
    lean: bool,
    /// The number of answers so far.
    pub scans: u64,
    /// How long the last one took.
    pub took: Duration,
    /// How old an answer of the service may be.
    pub max_age: Duration,
    /// Tasks that ended recently, those that used most CPU time first.
    pub ended: Vec<Ended>,
    /// How many ended since the previous answer.
    pub ended_now: usize,
    /// The recording to read instead of this machine.
    #[cfg(feature = "record")]
    pub replay: Option<super::replay::Replay>,
}

impl Scanner {
    /// No request has been made yet.
    pub fn new(choice: Choice) -> Scanner {
        Scanner {
            choice,
            session: None,
            rates: Rates::new(),
            context: None,
            scanned: (Groups::NONE, Members::NONE),
            lean: false,
            scans: 0,
            took: Duration::ZERO,
            max_age: Duration::ZERO,
            ended: Vec::new(),
            ended_now: 0,
            #[cfg(feature = "record")]
            replay: None,
        }
    }
    /// Do the answers come from a recording?
    pub fn is_replay(&self) -> bool {
        #[cfg(feature = "record")]
        return self.replay.is_some();
        #[cfg(not(feature = "record"))]
        false
    }
    /// Requests all tasks.
    pub fn scan(&mut self, shape: &Shape) -> Result<(), Exit> {
        #[cfg(feature = "record")]
        if self.replay.is_some() {
            return self.turn();
        }
        let begin = Instant::now();
        let request = self.request(shape);
        let other = |s: &Session| {
            let had = s.request();
            (had.groups, had.strategy) != (request.groups, request.strategy)
                || had.members.union(request.members) != had.members
        };
        // The previous answer is needed to name the tasks that ended.
        let mut retired = None;
        if self.session.as_ref().is_none_or(other) {
            retired = self.session.take();
            let changes_kind =
                retired.as_ref().is_some_and(|r| r.request().strategy != request.strategy);
            if changes_kind {
                // Processes and threads cannot be compared.
                (self.rates, retired) = (Rates::new(), None);
                self.ended.clear();
            }
            self.session = Some(Session::open(request.clone(), self.choice)?);
        }
        let session = self.session.as_mut().expect("it was just opened");
        self.scanned = (session.request().groups, session.request().members);
        session.accept_age(self.max_age);
        session.refresh()?;
        let snapshot = session.snapshot().expect("it was just refreshed");
        self.rates.update(snapshot);
        self.scans += 1;
        let reads_files = snapshot.served().iter().any(|s| s.engine == EngineId::Procfs);
        let many = if reads_files { MANY_FILES } else { MANY_TASKS };
        // The limit to switch back is half as high, so that a number of tasks near the limit does
        // not cause a switch at each scan.
        self.lean = snapshot.tasks().len() > if self.lean { many / 2 } else { many };
        let before = retired.as_ref().map_or(session.previous(), Session::snapshot);
        name_ended(&mut self.ended, &self.rates, before, self.scans);
        self.ended_now = self.rates.ended().len();
        renew(&mut self.context, snapshot, shape.threads);
        self.took = begin.elapsed();
        Ok(())
    }
    /// Take the wanted frame of the recording.
    #[cfg(feature = "record")]
    fn turn(&mut self) -> Result<(), Exit> {
        use super::replay::Turned;
        let replay = self.replay.as_mut().expect("there is one");
        match replay.turn(&mut self.rates)? {
            Turned::Same => return Ok(()),
            Turned::Next => {}
            Turned::Other => self.ended.clear(),
        }
        self.scans += 1;
        let now = replay.now().expect("it was just read");
        // Columns show by themselves that they were not recorded.
        self.scanned = (Groups::from_bits(u64::MAX), Members::ALL);
        name_ended(&mut self.ended, &self.rates, replay.before(), self.scans);
        self.ended_now = self.rates.ended().len();
        renew(&mut self.context, now, now.stream().strategy().is_threads());
        Ok(())
    }
    fn snapshot(&self) -> Option<&Snapshot> {
        #[cfg(feature = "record")]
        if let Some(replay) = &self.replay {
            return replay.now();
        }
        self.session.as_ref()?.snapshot()
    }
    /// The frame of a recording that is shown, and the one before it.
    pub fn frames(&self) -> (Option<&Snapshot>, Option<&Snapshot>) {
        #[cfg(feature = "record")]
        if let Some(replay) = &self.replay {
            return (replay.now(), replay.before());
        }
        (None, None)
    }
    fn request(&self, shape: &Shape) -> Request {
        let columns = shape.columns.iter().filter(|c| is_of_all(shape, c.field, self.lean));
        let mut query = Query::new(SET, columns.map(|c| c.field));
        query.filter = shape.filter.clone();
        query.sort = shape.sort.clone();
        query.by = shape.by.as_ref().map(|c| c.field);
        query.groups = Groups::BASE | Groups::STAT;
        query.members = Members::of(Groups::BASE, &["state", "start_time_ns", "comm", "flags"])
            .union(Members::of(Groups::STAT, &["utime_ns", "stime_ns", "num_threads"]));
        if shape.tree {
            query.members = query.members.union(Members::of(Groups::BASE, &["ppid"]));
        }
        let strategy = if shape.threads { Strategy::AllThread } else { Strategy::All };
        Request::new(strategy, 0, query.groups())
            .with_members(query.members())
            .with_text_bytes(ByteLimits::SHORT_TEXT)
    }
    /// The last answer. `None`: there is none yet.
    pub fn frame(&self) -> Option<Frame<'_>> {
        let snapshot = self.snapshot()?;
        let cx = &self.context.as_ref()?.0;
        Some(Frame { snapshot, rates: &self.rates, cx, scanned: self.scanned })
    }
    /// The engine that answered.
    pub fn engines(&self) -> String {
        let served = self.frame().map(|f| f.snapshot.served().to_vec()).unwrap_or_default();
        served.iter().map(|s| s.engine.name()).collect::<Vec<_>>().join("+")
    }
    /// Requests the arguments of all processes once, and returns those in which `is_match` finds
    /// something. For a recording, nothing is requested.
    pub fn with_arguments(
        &self,
        is_match: impl Fn(&[u8]) -> bool,
    ) -> Result<HashSet<u32>, taskdiag::Error> {
        let args = SET.find("args").expect("a column of the table").field;
        let found = |snapshot: &Snapshot| {
            let cx = Context::of(snapshot, false);
            let has = |task: &taskdiag::TaskView<'_>| {
                let row = Row::new(*task);
                matches!((args.get)(&cx, &row), Value::Args { data, .. } if is_match(&data))
            };
            snapshot.tasks().filter(has).map(|t| t.tgid()).collect()
        };
        if self.is_replay() {
            return Ok(self.snapshot().map(found).unwrap_or_default());
        }
        let query = Query::new(SET, [args]);
        let request = Request::new(Strategy::All, 0, query.groups())
            .with_members(query.members())
            .with_text_bytes(ByteLimits::SHORT_TEXT);
        Ok(found(&taskdiag::query_with(&request, self.choice)?))
    }
    /// Requests the columns that these tasks lack. Values that rarely change are kept for some
    /// seconds.
    pub fn look(&self, shape: &Shape, tasks: &[u32], details: &mut Details) {
        let Some(frame) = self.frame().filter(|_| !self.is_replay()) else { return };
        let lacking = shape.columns.iter().map(|c| c.field).filter(|f| !frame.has(f));
        let (steady, moving): (Vec<_>, Vec<_>) = lacking.partition(|f| is_steady(f));
        let row = |i: &u32| Some(Row::new(frame.snapshot.stream().get(*i as usize)?));
        let rows: Vec<Row<'_>> = tasks.iter().filter_map(row).collect();
        for (cache, fields) in [(&mut details.steady, steady), (&mut details.moving, moving)] {
            cache.fill(&fields, &rows, self.choice);
        }
    }
}

/// Is the column requested for all tasks? `lean`: request only columns that cost nothing more.
fn is_of_all(shape: &Shape, field: &Field, lean: bool) -> bool {
    if shape.everything || shape.by.is_some() || shape.adds_up_subtrees() && field.adds_up() {
        return true;
    }
    // BASE is in each answer, and rates need the sums in each answer. Other records cost little for
    // all tasks only if a BPF program walks the tasks.
    let cheap = if lean { Groups::SUMS } else { Groups::LITE_RECORDS };
    let rest = field.groups - Groups::BASE;
    // A value that all threads of a process share can be requested from the process.
    let is_of_threads = shape.threads && !(rest - Groups::OF_ALL_THREADS).is_empty();
    (rest - cheap).is_empty() || is_of_threads
}

/// The context for another answer. Names of users and the time zone are looked up again after a
/// while.
fn renew(context: &mut Option<(Context, Instant)>, snapshot: &Snapshot, threads: bool) {
    match context {
        Some((cx, made)) if made.elapsed() < Duration::from_secs(60) => {
            cx.info = *snapshot.stream().info();
            cx.took_ns = snapshot.took().map(|t| t.as_nanos() as u64);
            cx.threads = threads;
        }
        _ => *context = Some((Context::of(snapshot, threads), Instant::now())),
    }
}

/// Adds tasks that have ended to the list, and removes old entries.
fn name_ended(all: &mut Vec<Ended>, rates: &Rates, before: Option<&Snapshot>, scan: u64) {
    all.retain(|e| e.scan + NAMED_FOR > scan);
    let Some(before) = before else { return };
    let task = |i: &u32| before.stream().get(*i as usize);
    let cpu = |i: &u32| {
        let stat = task(i)?.record::<Stat>()?;
        Some(stat.utime_ns()?.saturating_add(stat.stime_ns()?))
    };
    let mut now: Vec<(Option<u64>, u32)> = rates.ended().iter().map(|i| (cpu(i), *i)).collect();
    now.sort_unstable_by_key(|(cpu, i)| (std::cmp::Reverse(*cpu), *i));
    let named = now.into_iter().take(NAMED).filter_map(|(cpu_ns, i)| {
        let task = task(&i)?;
        Some(Ended { pid: task.pid(), comm: task.comm().unwrap_or(b"?").to_vec(), cpu_ns, scan })
    });
    all.splice(0..0, named);
}

/// An answer, and the activity of its tasks since the previous one.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// The answer.
    pub snapshot: &'a Snapshot,
    /// The activity of its tasks.
    pub rates: &'a Rates,
    /// The context that getters of values need.
    pub cx: &'a Context,
    scanned: (Groups, Members),
}

impl<'a> Frame<'a> {
    /// The i-th task as a row.
    pub fn row(&self, i: usize) -> Option<Row<'a>> {
        let row = Row::new(self.snapshot.stream().get(i)?);
        Some(self.rated(row, i))
    }
    /// The identity of the i-th task.
    pub fn id(&self, i: u32) -> Option<Id> {
        let row = self.row(i as usize)?;
        Some((row.view.pid(), row.base?.start_time_ns()?))
    }
    /// A row of the i-th task with its rates.
    pub fn rated(&self, row: Row<'a>, i: usize) -> Row<'a> {
        match self.rates.get(i) {
            Some(rate) => row.with_part(Part::Rate(rate)),
            None => row,
        }
    }
    /// Was the column requested for all tasks?
    pub fn has(&self, field: &Field) -> bool {
        let (groups, members) = self.scanned;
        (field.groups - groups).is_empty() && members.union(field.members) == members
    }
}

/// Whether the value of a column rarely changes except by an exec.
fn is_steady(field: &Field) -> bool {
    // BASE is in each answer.
    (field.groups - Groups::STEADY - Groups::BASE).is_empty()
}

/// The details of single processes.
#[derive(Debug, Default)]
pub struct Details {
    steady: Cache,
    moving: Cache,
}

impl Details {
    /// The details of a task that contain this column, if they belong to exactly this task. A
    /// thread has the details of its process.
    fn of(&self, row: &Row<'_>, field: &Field) -> Option<Row<'_>> {
        let cache = if is_steady(field) { &self.steady } else { &self.moving };
        cache.of(row)
    }
}

/// Answers about single processes for the same groups.
#[derive(Debug, Default)]
struct Cache {
    groups: Groups,
    kept: HashMap<u32, CachedTask>,
}

#[derive(Debug)]
struct CachedTask {
    answer: Rc<Snapshot>,
    at: usize,
    when: Instant,
}

impl CachedTask {
    fn row(&self) -> Option<Row<'_>> {
        Some(Row::new(self.answer.stream().get(self.at)?))
    }
    /// Whether the kept values belong to this task, and it has run no other program since.
    fn is_of(&self, row: &Row<'_>) -> bool {
        self.row().is_some_and(|kept| {
            let same_name = !row.view.is_leader() || kept.comm == row.comm;
            same_name && is_same(&kept, row)
        })
    }
}

impl Cache {
    /// Requests these columns for the processes of these rows, and forgets all other processes.
    fn fill(&mut self, fields: &[&'static Field], rows: &[Row<'_>], choice: Choice) {
        if fields.is_empty() {
            self.kept.clear();
            return;
        }
        let query = Query::new(SET, fields.iter().copied());
        let members =
            query.members().union(Members::of(Groups::BASE, &["start_time_ns", "state", "comm"]));
        let groups = query.groups() | Groups::BASE;
        if groups != self.groups {
            (self.groups, self.kept) = (groups, HashMap::new());
        }
        let keep = fields.iter().all(|f| is_steady(f));
        let mut before = std::mem::take(&mut self.kept);
        let mut pids: Vec<u32> = Vec::new();
        for row in rows {
            let pid = row.view.tgid();
            match before.remove(&pid) {
                Some(kept) if keep && kept.when.elapsed() < KEEP && kept.is_of(row) => {
                    self.kept.insert(pid, kept);
                }
                _ if self.kept.contains_key(&pid) => {}
                _ => pids.push(pid),
            }
        }
        pids.sort_unstable();
        pids.dedup();
        let one = |pid: &u32| {
            Request::one(*pid, groups)
                .with_members(members)
                .with_budget(Duration::from_millis(200))
                .with_text_bytes(ByteLimits::SHORT_TEXT)
        };
        let requests: Vec<Request> = pids.iter().map(one).collect();
        if requests.is_empty() {
            return;
        }
        // Rows without details show "?".
        let Ok((answer, _)) = query_each(&requests, choice) else { return };
        let (answer, when) = (Rc::new(answer), Instant::now());
        let kept = answer.tasks().enumerate();
        self.kept
            .extend(kept.map(|(at, t)| (t.pid(), CachedTask { answer: answer.clone(), at, when })));
    }
    fn of(&self, row: &Row<'_>) -> Option<Row<'_>> {
        let kept = self.kept.get(&row.view.tgid())?.row()?;
        is_same(&kept, row).then_some(kept)
    }
}

/// Do these details belong to this row, or to the process of this thread?
fn is_same(details: &Row<'_>, row: &Row<'_>) -> bool {
    match (TaskId::of(&details.view), TaskId::of(&row.view)) {
        (Some(its), Some(ours)) if row.view.is_leader() => its.is_same(&ours),
        // A process began before its threads.
        (Some(its), Some(ours)) => its.is_no_younger(&ours),
        _ => false,
    }
}

/// The value of a column, from all tasks or from the details. A value that was not requested, or
/// belongs to a task that has ended, is missing.
pub fn with_value<T>(
    frame: &Frame<'_>,
    details: &Details,
    row: &Row<'_>,
    field: &Field,
    f: impl FnOnce(&Row<'_>, Value<'_>) -> T,
) -> T {
    if frame.has(field) {
        return f(row, (field.get)(frame.cx, row));
    }
    match details.of(row, field) {
        Some(more) => f(&more, (field.get)(frame.cx, &more)),
        None => {
            f(row, Value::Missing(taskdiag::field::Missing::Reason(taskdiag::Reason::Vanished)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(threads: bool) -> Shape {
        Shape {
            columns: Vec::new(),
            sort: Vec::new(),
            filter: None,
            by: None,
            threads,
            tree: false,
            users_only: false,
            busy_only: false,
            subtrees: false,
            folded: HashSet::new(),
            everything: false,
        }
    }
    fn column(name: &str) -> &'static Field {
        SET.find(name).unwrap_or_else(|| panic!("{name} is a column")).field
    }

    #[test]
    fn values_of_a_process_are_not_asked_of_each_thread() {
        for name in ["oom_score", "ag_id", "args", "exe", "rss"] {
            assert!(!is_of_all(&shape(true), column(name), true), "{name}");
        }
        for name in ["label", "luid", "wchan"] {
            assert!(is_of_all(&shape(true), column(name), true), "{name}");
        }
    }

    #[test]
    fn sums_are_asked_of_all_tasks_and_owners_only_where_that_is_cheap() {
        for lean in [false, true] {
            assert!(is_of_all(&shape(false), column("time"), lean));
            assert!(!is_of_all(&shape(false), column("args"), lean));
            assert_eq!(is_of_all(&shape(false), column("user"), lean), !lean);
        }
    }

    #[test]
    fn names_and_limits_are_kept_and_counters_are_not() {
        for name in ["label", "luid", "ag_id", "args", "cgroup"] {
            assert!(is_steady(column(name)), "{name}");
        }
        // The score follows the use of memory.
        for name in ["oom_score", "wchan", "rss"] {
            assert!(!is_steady(column(name)), "{name}");
        }
    }
}
