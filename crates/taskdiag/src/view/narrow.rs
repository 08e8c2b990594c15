//! Requests in two steps: first the values that the conditions need, for all tasks, and then the
//! rest, for the tasks that match. So a list of a few processes costs as much as a list of names.
//!
//! The second answer is complete in itself, and the conditions are tested again on it. So they are
//! true for the values that are shown.

use std::collections::{HashMap, HashSet};

use super::filter::{Filter, Sieve, Truth};
use super::select::{Selection, Sorted};
use crate::engine::auto::{Prices, few};
use crate::field::{Context, Row};
use crate::request::Members;
use crate::{Base, Choice, Error, Groups, Request, Snapshot, Strategy};

/// Groups that are not cheap for all tasks: lists, walks over pages, and values that tasks share.
const DEAR: Groups = Groups::VMA
    .union(Groups::VMA_STAT)
    .union(Groups::ROLLUP)
    .union(Groups::SWAP)
    .union(Groups::FD)
    .union(Groups::FD_COUNT)
    .union(Groups::FILE_STAT);

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
    /// The steps for this request. `None` if no condition is likely to let few tasks pass, or if the conditions need all
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
    /// Ask. `query` answers what is about all tasks.
    pub(super) fn ask(
        &self,
        choice: Choice,
        query: super::Answerer<'_>,
    ) -> Result<Snapshot, Error> {
        let prices = Prices::new(&self.all, choice)?;
        // If most tasks pass, the first step is wasted. So it is done only if it may save enough.
        let (first, all) = (prices.of(&self.first), prices.of(&self.all));
        let is_worth_it = if self.is_rare() { first * 11 <= all * 10 } else { first * 2 <= all };
        if !is_worth_it {
            return query(&self.all);
        }
        let first = query(&self.first)?;
        let threads = self.all.strategy == Strategy::AllThread;
        let (cx, sieve) = (Context::of(&first, threads), Sieve::new(self.filter.as_ref()));
        let mut begun = HashMap::new();
        let mut processes = Vec::new();
        let mut seen = HashSet::new();
        for task in first.tasks() {
            let row = Row::new(task);
            if self.may_pass(&sieve, &cx, &row) {
                begun.insert(task.pid(), row.base.and_then(Base::start_time_ns));
                if seen.insert(task.tgid()) {
                    processes.push(task.tgid());
                }
            }
        }
        let strategy = if threads { Strategy::Thread } else { Strategy::One };
        // If Ctrl-C ended the first step, the tasks that it found are still asked for and shown.
        let stopped = first.stream().done().error != 0;
        let one = Request {
            strategy,
            groups: self.all.groups | Groups::BASE,
            members: self.all.members.union(START),
            watch: self.all.watch.clone().filter(|_| !stopped),
            ..self.all.clone()
        };
        if !stopped && prices.of_each(&one, processes.len()) > prices.of(&self.all) {
            // Its memory would be held beside that of the next answer.
            drop(first);
            return query(&self.all);
        }
        let requests: Vec<Request> =
            processes.into_iter().map(|pid| Request { pid, ..one.clone() }).collect();
        let tick_ns = 1_000_000_000 / u64::from(first.stream().info().clk_tck.max(1));
        let is_same = |answer: &Snapshot| is_same(answer, &begun, tick_ns);
        few(&first, self.all.groups, &requests, choice, &is_same)
    }
}

/// Is an answer about one process still about the one that was found, and not about a later one with its pid? `begun` has
/// the tasks that were found, and their start times. Start times of /proc are in ticks, so they may differ by up to one.
fn is_same(answer: &Snapshot, begun: &HashMap<u32, Option<u64>>, tick_ns: u64) -> bool {
    answer.tasks().any(|task| {
        let start = task.record::<Base>().and_then(Base::start_time_ns);
        match (begun.get(&task.pid()), start) {
            (None, _) => false,
            (Some(Some(a)), Some(b)) => a.abs_diff(b) <= tick_ns,
            (Some(_), _) => true,
        }
    })
}

/// Is this part of a filter tested in the first step?
fn first_looks_at(part: &super::filter::Part) -> bool {
    part.is_about_task() && part.is_narrow() && !part.groups().intersects(DEAR)
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
    fn names_are_rare_and_users_are_not() {
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
        use taskdiag_wire::{Done, StreamWriter};
        let mut w = StreamWriter::new();
        w.info(&StreamWriter::blank_info());
        w.begin_task(7, 7);
        let mut base = Base::new();
        (base.valid, base.start_time_ns) = (Base::ALL_VALID, 50_000_000);
        w.put(&base);
        w.end_task();
        let answer = Snapshot::parse(w.finish(Done::default())).expect("it is well formed");
        let tick = 10_000_000;
        for (pid, start, want) in [
            (7, Some(50_000_000), true),
            (7, Some(59_000_000), true),
            (7, Some(70_000_000), false),
            (7, None, true),
            (8, Some(50_000_000), false),
        ] {
            let begun = HashMap::from([(pid, start)]);
            assert_eq!(is_same(&answer, &begun, tick), want, "{pid} {start:?}");
        }
    }

    #[test]
    fn tasks_that_were_not_accepted_have_vanished() {
        let me = std::process::id();
        let procfs = Choice::Only(crate::EngineId::Procfs);
        let one = Request::one(me, Groups::BASE);
        let first = crate::query_with(&one, procfs).expect("/proc is there");
        // No process can have the second pid.
        let requests = [one, Request::one(i32::MAX as u32, Groups::BASE)];
        for (taken, tasks) in [(true, 1), (false, 0)] {
            let answer =
                few(&first, Groups::BASE, &requests, procfs, &|_| taken).expect("it joins");
            let done = answer.stream().done();
            assert_eq!((answer.tasks().len() as u64, done.vanished), (tasks, 2 - tasks));
        }
    }

    #[test]
    fn selections_go_the_same_way() {
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
