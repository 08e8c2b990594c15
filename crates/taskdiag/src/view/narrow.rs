//! Requests in two steps: first the values that the conditions need, for all tasks, and then the
//! rest, for the tasks that match. So a detailed list of a few processes costs little more than a
//! list of all names.
//!
//! The second answer is complete in itself, and the conditions are tested again on it. So they are
//! true for the values that are shown.

use std::collections::{HashMap, HashSet};

use super::filter::{Filter, Sieve, Truth};
use super::select::{Selection, Sorted};
use crate::field::{Context, Row};
use crate::request::Members;
use crate::{Choice, Error, Found, Groups, Request, Snapshot, Strategy, TaskId, in_two_steps};

/// The member that identifies a task, together with its pid.
const START: Members = Members::of(Groups::BASE, &["start_time_ns"]);

/// A request in two steps.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Narrow {
    /// Asks for the values that the conditions need, of all tasks.
    pub first: Request,
    /// Asks for everything, of all tasks.
    pub all: Request,
    select: Sorted,
    filter: Option<Filter>,
}

impl Narrow {
    /// The steps for this request. `None` if the conditions probably select many tasks, or need all
    /// groups anyway.
    pub(super) fn new(all: Request, select: &Selection, filter: Option<&Filter>) -> Option<Narrow> {
        let narrow = || filter.into_iter().flat_map(Filter::parts).filter(|p| first_looks_at(p));
        let selects = !select.is_everything() && !select.deselect;
        if !selects && narrow().next().is_none() {
            return None;
        }
        let nothing = Selection::default();
        let select = Sorted::new(if selects { select } else { &nothing });
        let groups = narrow().fold(select.groups(), |all, p| all | p.groups()) | Groups::BASE;
        let members = narrow().fold(select.members(), |all, p| all.union(p.members())).union(START);
        if (all.groups - groups).is_empty() {
            return None;
        }
        Some(Narrow {
            first: Request { groups, members, ..all.clone() },
            all,
            select,
            filter: filter.cloned(),
        })
    }
    /// Change both requests.
    pub(super) fn requests(&mut self, mut change: impl FnMut(&mut Request)) {
        change(&mut self.first);
        change(&mut self.all);
    }
    /// Do the conditions name few tasks?
    fn is_rare(&self) -> bool {
        let mut parts = self.filter.iter().flat_map(Filter::parts).filter(|p| first_looks_at(p));
        self.select.is_rare() || parts.any(super::filter::Part::is_rare)
    }
    /// May this task pass the conditions?
    fn may_pass(&self, sieve: &Sieve<'_>, cx: &Context, row: &Row<'_>) -> bool {
        if !self.select.is_everything() && !self.select.matches(row) {
            return false;
        }
        match sieve.test_parts(cx, row, first_looks_at) {
            Truth::True => true,
            Truth::False => false,
            // If the value is missing for a reason, the task is in the second answer, too, and is
            // counted there.
            Truth::Unknown(_, why) => why.is_amiss(),
        }
    }
    /// Ask. `query` answers the conditions about all tasks.
    pub(super) fn ask(
        &self,
        choice: Choice,
        query: super::Answerer<'_>,
    ) -> Result<Snapshot, Error> {
        let find = |first: &Snapshot| self.found(first);
        in_two_steps([&self.first, &self.all], self.is_rare(), choice, query, find)
    }
    /// The processes of this answer that may pass the conditions.
    fn found(&self, first: &Snapshot) -> Found {
        let threads = self.all.strategy == Strategy::AllThread;
        let (cx, sieve) = (Context::of(first, threads), Sieve::new(self.filter.as_ref()));
        let mut begun = HashMap::new();
        let mut processes = Vec::new();
        let mut seen = HashSet::new();
        for task in first.tasks() {
            let row = Row::new(task);
            if self.may_pass(&sieve, &cx, &row) {
                begun.insert(task.pid(), TaskId::of(&task));
                if seen.insert(task.tgid()) {
                    processes.push(task.tgid());
                }
            }
        }
        // If Ctrl-C ended the first step, the tasks that it found are still asked for and shown.
        let stopped = first.stream().done().error != 0;
        let one = Request {
            strategy: if threads { Strategy::Thread } else { Strategy::One },
            groups: self.all.groups | Groups::BASE,
            members: self.all.members.union(START),
            watch: self.all.watch.clone().filter(|_| !stopped),
            ..self.all.clone()
        };
        Found { processes, one, is_same: Box::new(move |answer| is_same(answer, &begun)) }
    }
}

/// Whether an answer about one process is still about the process that was found, and not about a
/// later one with its pid. `begun` has the tasks that were found.
fn is_same(answer: &Snapshot, begun: &HashMap<u32, Option<TaskId>>) -> bool {
    answer.tasks().any(|task| match (begun.get(&task.pid()), TaskId::of(&task)) {
        (None, _) => false,
        (Some(Some(a)), Some(b)) => a.is_same(&b),
        (Some(_), _) => true,
    })
}

/// Is this part of a filter tested in the first step? Tests that may take long, or need a look-up
/// for each table of files or memory, are not cheap for all tasks.
fn first_looks_at(part: &super::filter::Part) -> bool {
    let is_dear = part.groups().intersects(Groups::SLOW | Groups::SHARED);
    part.is_about_task() && part.is_narrow() && !is_dear
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::{MAPS, MEMORY, TASKS};
    use crate::view::{Plan, Query};

    fn plan(query: &Query) -> Option<(Groups, Groups)> {
        match query.plan() {
            Plan::Narrow(n) => Some((n.first.groups, n.all.groups)),
            Plan::One(_) => None,
            Plan::Each(_) => panic!("no pids are selected"),
            Plan::Again(first, _) => match *first {
                Plan::Narrow(n) => Some((n.first.groups, n.all.groups)),
                _ => None,
            },
        }
    }
    fn filtered(set: &'static crate::field::Set, columns: &str, filter: &str) -> Query {
        let field = |n| set.find(n).expect("a column of the set").field;
        let mut query = Query::new(set, columns.split(',').map(field));
        query.filter = Some(Filter::parse(set, filter).expect("it is right"));
        query
    }

    #[test]
    fn the_first_step_has_the_groups_of_conditions() {
        let base = Groups::BASE;
        for (columns, filter, want) in [
            ("pid,args", "comm == x", Some((base, base | Groups::CMDLINE))),
            ("pid,comm", "comm == x", None),
            ("pid,args", "args ~ x", None),
            (
                "pid,rss",
                "args ~ x",
                Some((base | Groups::CMDLINE, base | Groups::CMDLINE | Groups::STATM)),
            ),
            // A condition that is true for most tasks.
            ("pid,args", "comm != x", None),
            (
                "pid,args",
                "comm != x and user == y",
                Some((base | Groups::CRED, base | Groups::CRED | Groups::CMDLINE)),
            ),
            // An expensive condition is tested only for the tasks that pass the cheap one.
            ("pid", "pss > 1G", None),
            (
                "pid",
                "pss > 1G and user == y",
                Some((base | Groups::CRED, Groups::CRED | Groups::ROLLUP)),
            ),
        ] {
            assert_eq!(plan(&filtered(&TASKS, columns, filter)), want, "{columns} {filter}");
        }
        let memory = filtered(&MEMORY, "pss", "comm == x");
        // STATM shows which tasks have memory, so it is always requested.
        let memory_groups = base | Groups::STATM | Groups::ROLLUP;
        assert_eq!(plan(&memory), Some((base, memory_groups)));
        let maps = filtered(&MAPS, "size", "comm == x and size > 1G");
        assert_eq!(plan(&maps), Some((base, base | Groups::VMA)));
        assert_eq!(plan(&filtered(&MAPS, "size", "comm == x or size > 1G")), None);
    }

    #[test]
    fn conditions_on_names_are_rare_and_conditions_on_users_are_not() {
        let is_rare = |query: &Query| match query.plan() {
            Plan::Narrow(n) => n.is_rare(),
            _ => panic!("two steps"),
        };
        for (filter, want) in [
            ("comm == x", true),
            ("pid in (1, 2)", true),
            ("user == x and comm ~ x", true),
            ("user == x or comm == x", false),
            ("user == x", false),
            ("rss > 1M", false),
            ("s == S", false),
            ("pid known and ppid == 7", true),
        ] {
            assert_eq!(is_rare(&filtered(&TASKS, "pid,args", filter)), want, "{filter}");
        }
        let with = |select| Query { select, ..filtered(&TASKS, "pid,args", "pid known") };
        let named = Selection { commands: vec![b"x".to_vec()], ..Selection::default() };
        assert!(is_rare(&with(named.clone())));
        assert!(!is_rare(&with(Selection { euids: vec![0], ..named })));
    }

    #[test]
    fn a_later_process_with_the_same_pid_is_another() {
        use crate::task_id::Tick;
        use taskdiag_wire::{Base, Done, Info, StreamWriter, build};
        let info = build!(Info { clk_tck: 100, ..StreamWriter::blank_info() });
        let mut w = StreamWriter::new();
        w.info(&info);
        w.begin_task(7, 7);
        let mut base = Base::new();
        (base.valid, base.start_time_ns) = (Base::ALL_VALID, 50_000_000);
        w.put(&base);
        w.end_task();
        let answer = Snapshot::parse(w.finish(Done::default())).expect("it is well formed");
        for (pid, start, want) in [
            (7, Some(50_000_000), true),
            (7, Some(59_000_000), true),
            (7, Some(70_000_000), false),
            (7, None, true),
            (8, Some(50_000_000), false),
        ] {
            let begun =
                HashMap::from([(pid, start.map(|ns| TaskId::new(pid, ns, Tick::of(&info))))]);
            assert_eq!(is_same(&answer, &begun), want, "{pid} {start:?}");
        }
    }

    #[test]
    fn selections_are_narrowed_like_conditions() {
        let with = |select| Query { select, ..filtered(&TASKS, "pid,args", "pid known") };
        let named = Selection { commands: vec![b"x".to_vec()], ..Selection::default() };
        let base = Groups::BASE;
        let both = Some((base, base | Groups::CMDLINE));
        assert_eq!(plan(&with(named.clone())), both);
        assert_eq!(plan(&with(Selection { deselect: true, ..named.clone() })), None);
        assert_eq!(plan(&with(Selection::default())), None);
        let Plan::Narrow(n) = with(named).plan() else { panic!("two steps") };
        assert_eq!(n.first.members, START.union(Members::of(base, &["comm"])));
    }
}
