//! A description of the rows and columns to show, and the resulting rows of an answer.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

use super::Keep;
use super::again::Again;
use super::by::{Summed, Sums};
use super::files::{Opened, SortedFiles};
use super::filter::{Filter, Left, Sieve};
use super::maps::{Mappings, SortedMappings};
use super::narrow::Narrow;
use super::order::{self, Key};
use super::plan::Plan;
use super::rows::{Rows, Tasks};
use super::select::{Selection, Sorted};
use crate::field::{self, Context, FILES, Field, MAPS, MEMORY, Missing, Part, Row, Set};
use crate::files::{Files, What};
use crate::request::Members;
use crate::{Groups, Reason, Snapshot};

/// A description of the rows and columns to show.
#[derive(Clone)]
#[non_exhaustive]
pub struct Query {
    /// The kind of the rows: tasks, mappings, files.
    pub set: &'static Set,
    /// The columns.
    pub columns: Vec<&'static Field>,
    /// Which tasks.
    pub select: Selection,
    /// The conditions on rows.
    pub filter: Option<Filter>,
    /// The sort keys. If all are equal, ids decide.
    pub sort: Vec<Key>,
    /// Add the rows up, with one sum for each value of this field.
    pub by: Option<&'static Field>,
    /// Show threads instead of processes.
    pub threads: bool,
    /// Groups to read in addition to those that the fields and conditions need. [`Query::new`] sets
    /// the groups that provide the rows, so that the rows never depend on the columns: VMA for
    /// mappings, and STATM for memory, because kernel threads and zombies have no mappings. For
    /// files, it sets FD for descriptors. More groups can be added there: PATHS for program,
    /// working directory and root, VMA for mapped files, and FILE_STAT for details of both.
    pub groups: Groups,
    /// Members of BASE, CRED, STAT and STATM to read in addition to those that the fields and
    /// conditions need.
    pub members: Members,
    /// A test of tasks that have files, in addition to the conditions.
    pub tasks: Option<Keep>,
    /// A test of entries of lists (mappings, files), in addition to the conditions.
    pub keep: Option<Keep>,
}

impl fmt::Debug for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.columns.iter().map(|c| c.name).collect();
        f.debug_struct("Query")
            .field("set", &self.set.name)
            .field("columns", &names)
            .field("select", &self.select)
            .finish_non_exhaustive()
    }
}

impl Query {
    /// A query for these columns of all tasks, or of all entries of their lists.
    pub fn new(set: &'static Set, columns: impl IntoIterator<Item = &'static Field>) -> Query {
        Query {
            set,
            columns: columns.into_iter().collect(),
            select: Selection::default(),
            filter: None,
            sort: Vec::new(),
            by: None,
            threads: false,
            groups: match set {
                _ if is(set, &MAPS) => Groups::VMA,
                _ if is(set, &FILES) => Groups::FD,
                _ if is(set, &MEMORY) => Groups::STATM,
                _ => Groups::NONE,
            },
            members: Members::NONE,
            tasks: None,
            keep: None,
        }
    }
    /// Makes the rows open descriptors; with `paths` also programs and directories, and with
    /// `mapped` also mapped files. It replaces [`Query::keep`]. Threads may have files of their
    /// own, so all threads are requested; shared files are in the answer once.
    #[must_use]
    pub fn with_files(mut self, paths: bool, mapped: bool) -> Query {
        self.threads = true;
        if paths || mapped {
            // A mapping of the program is known by the program's path.
            self.groups |= Groups::PATHS | Groups::FILE_STAT;
        }
        if mapped {
            self.groups |= Groups::VMA;
        }
        self.keep = Some(Arc::new(move |row: &Row<'_>| match row.part {
            Part::File(open) => match open.file.what {
                What::Fd(_) => true,
                What::Path(..) => paths,
                _ => mapped,
            },
            _ => true,
        }));
        self
    }
    /// All fields that are needed.
    pub(super) fn fields(&self) -> impl Iterator<Item = &'static Field> {
        let keys = self.sort.iter().map(|k| k.field);
        let filter = self.filter.iter().flat_map(Filter::fields);
        self.columns.iter().copied().chain(keys).chain(self.by).chain(filter)
    }
    /// The groups that are needed.
    pub fn groups(&self) -> Groups {
        let mut groups = field::groups_of(self.fields());
        if is(self.set, &FILES) {
            // PATHS stays, unlike the other groups for files, because columns of the process (exe,
            // cwd) may need it.
            groups = groups - (Files::GROUPS - Groups::PATHS);
        }
        groups |= self.select.groups() | self.groups;
        // BASE is the cheapest group, so it is used for a list of pids only.
        if groups.is_empty() { Groups::BASE } else { groups }
    }
    /// The members of BASE, CRED, STAT and STATM that are needed.
    pub fn members(&self) -> Members {
        let rows = match self.set {
            // The names of files contain the commands at the other ends of pipes, and files are
            // selected by the user of their process.
            set if is(set, &FILES) => {
                Members::of(Groups::BASE, &["comm"]).union(Members::of(Groups::CRED, &["euid"]))
            }
            set if is(set, &MEMORY) => Members::of(Groups::STATM, &["rss_bytes"]),
            _ => Members::NONE,
        };
        let fields = field::members_of(self.fields());
        fields.union(self.select.members()).union(self.members).union(rows)
    }
    /// The requests to make.
    pub fn plan(&self) -> Plan {
        let mut plan = Plan::new(self.groups(), &self.select, self.threads);
        plan.requests(|r| r.members = self.members());
        // For files there are no two steps, because the other ends of pipes and sockets may be in
        // any process.
        let narrow = match &plan {
            Plan::One(all) if !all.strategy.takes_pid() && !is(self.set, &FILES) => {
                Narrow::new(all.clone(), &self.select, self.filter.as_ref())
            }
            _ => None,
        };
        let plan = narrow.map_or(plan, |n| Plan::Narrow(Box::new(n)));
        plan.then_again(self.filter.as_ref().and_then(|f| Again::new(&self.select, f)))
    }
    /// The rows of an answer.
    pub fn view<'a>(&'a self, snapshot: &'a Snapshot) -> View<'a> {
        let stream = snapshot.stream();
        // Only an answer with threads shows which of them share a table of files. A saved one may
        // lack threads.
        let threads = match is(self.set, &FILES) {
            true => stream.strategy().is_threads(),
            false => self.threads,
        };
        let cx = Context::of(snapshot, threads);
        // If the answer has threads but processes are shown, the leader represents its process.
        let leaders = !self.threads && stream.strategy().is_threads();
        let memory = is(self.set, &MEMORY);
        let everything = self.select.is_everything();
        let select = Sorted::new(&self.select);
        let sieve = Sieve::new(self.filter.as_ref()).knowing(snapshot);
        let selected = |task| {
            let row = Row::new(task);
            (everything || select.matches(&row)) && sieve.passes_task(&cx, &row)
        };
        let all = everything && self.filter.is_none();
        let wanted = |(i, task): (usize, crate::TaskView<'a>)| {
            let there = (!leaders || task.is_leader())
                && (!memory || has_memory(&task))
                && (all || selected(task));
            there.then_some(i as u32)
        };
        let files = is(self.set, &FILES).then(|| Files::new(snapshot));
        let tasks: Vec<u32> = snapshot.tasks().enumerate().filter_map(wanted).collect();
        let mut view = View { query: self, snapshot, cx, tasks, sieve, files };
        if !is(self.set, &MAPS) && view.files.is_none() && self.by.is_none() {
            order::sort(&mut view.tasks, snapshot, &view.cx, &self.sort);
        }
        view
    }
}

/// Is it this set?
fn is(set: &Set, other: &Set) -> bool {
    set.name == other.name
}

/// Kernel threads and zombies have no memory of their own.
fn has_memory(task: &crate::TaskView<'_>) -> bool {
    let absent = |g| task.reason(g) == Some(Reason::Absent);
    !absent(crate::Group::Rollup) && !absent(crate::Group::Statm)
}

/// The rows that an answer has for a query.
#[derive(Debug)]
pub struct View<'a> {
    query: &'a Query,
    snapshot: &'a Snapshot,
    cx: Context,
    tasks: Vec<u32>,
    sieve: Sieve<'a>,
    files: Option<Files<'a>>,
}

impl<'a> View<'a> {
    /// The context that getters of values need.
    pub fn cx(&self) -> &Context {
        &self.cx
    }
    /// The selected tasks, as indices in the answer. They are sorted if tasks are the rows.
    pub fn tasks(&self) -> &[u32] {
        &self.tasks
    }
    /// The mappings of the selected tasks. With `gaps` there is also a row for each task whose
    /// mappings are missing in the answer.
    pub fn mappings(&self, gaps: bool) -> Mappings<'_> {
        let keep = self.query.keep.as_deref();
        Mappings {
            snapshot: self.snapshot,
            tasks: &self.tasks,
            keep: keep.map(|k| k as _),
            sieve: self.query.filter.is_some().then_some((&self.sieve, &self.cx)),
            gaps,
        }
    }
    /// The files of the selected tasks, or `None` if the rows are not files. With `gaps` there is
    /// also a row for each task whose descriptors are missing in the answer.
    pub fn opened(&self, gaps: bool) -> Option<Opened<'_>> {
        let query = self.query;
        self.files.as_ref().map(|files| Opened {
            files,
            tasks: query.tasks.as_ref(),
            keep: query.keep.as_ref(),
            sieve: query.filter.is_some().then_some((&self.sieve, &self.cx)),
            gaps,
        })
    }
    /// All files of the answer, if the rows are files.
    pub fn files_mut(&mut self) -> Option<&mut Files<'a>> {
        self.files.as_mut()
    }
    /// See [`View::files_mut`].
    pub fn files(&self) -> Option<&Files<'a>> {
        self.files.as_ref()
    }
    /// The tasks that the filter leaves out because it is not known whether they match. For entries
    /// of lists, only rows visited so far count.
    pub fn left(&self) -> Vec<Left> {
        self.sieve.left()
    }
    /// The rows in their order. `gaps` is as for [`View::mappings`]. If rows are added up, `lack`
    /// is called for each value that is missing in one of them, with the number of its column.
    pub fn rows(
        &self,
        gaps: bool,
        lack: &mut dyn FnMut(&Row<'_>, usize, Missing),
    ) -> Box<dyn Rows + '_> {
        let maps = is(self.query.set, &MAPS);
        let keys = &self.query.sort;
        if let (Some(opened), None) = (self.opened(gaps), self.query.by) {
            return match keys.is_empty() {
                true => Box::new(opened),
                false => Box::new(SortedFiles::new(opened, &self.cx, keys)),
            };
        }
        match self.query.by {
            Some(_) => Box::new(self.sums(lack)),
            None if !maps => Box::new(Tasks { snapshot: self.snapshot, indices: &self.tasks }),
            None if self.query.sort.is_empty() => Box::new(self.mappings(gaps)),
            None => Box::new(SortedMappings::new(self.mappings(gaps), &self.cx, &self.query.sort)),
        }
    }
    fn sums(&self, lack: &mut dyn FnMut(&Row<'_>, usize, Missing)) -> Summed {
        let query = self.query;
        let mut sums = Sums::new(&self.cx, query.by, &query.columns, &query.sort);
        let mut add = |row: &Row<'_>| sums.add(row, &mut |c, m| lack(row, c, m));
        if let Some(opened) = self.opened(false) {
            let done = opened.each(&mut |item| {
                item.row().into_iter().for_each(&mut add);
                Ok(())
            });
            debug_assert!(done.is_ok(), "adding up does not fail");
            return sums.finish();
        }
        if is(query.set, &MAPS) {
            let Ok(()) = self.mappings(false).each_row(&mut |row| {
                add(row);
                Ok::<(), Infallible>(())
            });
        } else {
            let stream = self.snapshot.stream();
            let tasks = self.tasks.iter().filter_map(|i| stream.get(*i as usize));
            tasks.for_each(|t| add(&Row::new(t)));
        }
        sums.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Strategy;
    use crate::field::TASKS;

    fn query(names: &str) -> Query {
        let field = |n| TASKS.find(n).expect("a column of tasks").field;
        Query::new(&TASKS, names.split(',').map(field))
    }

    #[test]
    fn queries_can_go_to_another_thread() {
        fn goes<T: Send + Sync + 'static>() {}
        goes::<Query>();
        goes::<Plan>();
    }

    #[test]
    fn rows_that_are_files_have_the_groups_that_are_named() {
        let named = |n: &str| FILES.find(n).expect("a column of files").field;
        let files = |n: &str| Query::new(&FILES, n.split(',').map(named));
        assert_eq!(files("pid,fd,size,user").groups(), Groups::FD | Groups::CRED);
        assert_eq!(files("fd,exe").groups(), Groups::FD | Groups::PATHS);
    }

    #[test]
    fn columns_and_conditions_decide_groups() {
        assert_eq!(query("pid").groups(), Groups::BASE);
        assert_eq!(query("pid,ppid,comm").groups(), Groups::BASE);
        assert_eq!(query("pid,user").groups(), Groups::CRED);
        assert_eq!(query("pid,rss").groups(), Groups::STATM);
        let select = Selection { euids: vec![1], ..Selection::default() };
        let by_user = Query { select, ..query("pid") };
        assert_eq!(by_user.groups(), Groups::BASE | Groups::CRED);
        let sort = vec![Key::parse(&TASKS, "-rss").expect("a column")];
        assert_eq!(Query { sort, ..query("ppid") }.groups(), Groups::BASE | Groups::STATM);
    }

    #[test]
    fn columns_and_conditions_decide_members() {
        let wanted = Members::of(Groups::BASE, &["ppid"])
            .union(Members::of(Groups::STAT, &["utime_ns", "stime_ns"]));
        assert_eq!(query("pid,ppid,time").members(), wanted);
        let select = Selection { commands: vec![b"sh".to_vec()], ..Selection::default() };
        let named = Query { select, ..query("pid,ppid,time") };
        assert_eq!(named.members(), wanted.union(Members::of(Groups::BASE, &["comm"])));
        let Plan::Narrow(steps) = named.plan() else { panic!("STAT is requested for a few tasks") };
        assert_eq!((steps.all.strategy, steps.all.members), (Strategy::All, named.members()));
    }
}
