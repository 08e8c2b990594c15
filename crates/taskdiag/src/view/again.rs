//! A second look at processes whose arguments were cut. Without it, it is not known whether they
//! meet a condition.
//!
//! A list has only the beginning of long arguments, and a condition may depend on the rest. So the
//! arguments of some such processes are read whole, one process at a time. Only the result of the
//! condition is kept, so the memory of the answer does not grow.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;

use super::filter::{Filter, Sieve, Truth};
use super::select::{Selection, Sorted};
use crate::field::{Context, Missing, Row};
use crate::request::{ByteLimits, Members};
use crate::snapshot::Decided;
use crate::{
    Choice, Error, Groups, Reason, Request, Snapshot, Strategy, TaskId, TaskView, query_with,
};

/// At most this many processes of an answer are read again. More could take long: any user can have
/// hundreds of processes with 6 MB of arguments.
const MOST: usize = 32;

/// The member that identifies a task, together with its pid.
const START: Members = Members::of(Groups::BASE, &["start_time_ns"]);

/// A second look at some processes of the answer to a list.
#[derive(Clone, Debug)]
pub struct Again {
    select: Sorted,
    filter: Filter,
}

impl Again {
    /// A second look for these conditions. `None`: none of them is about text that a list may lack.
    pub(super) fn new(select: &Selection, filter: &Filter) -> Option<Again> {
        let is_about_text = filter.parts().any(|p| p.is_about_text());
        is_about_text.then(|| Again { select: Sorted::new(select), filter: filter.clone() })
    }
    /// Changes a request of the list. The start time shows that a process is still the same one.
    pub(super) fn prepare(request: &mut Request) {
        (request.groups, request.members) = with_identity(request.groups, request.members);
    }
    /// The answer to the request `all`, with the results of the second look.
    pub(super) fn look(&self, all: &Request, snapshot: Snapshot, choice: Choice) -> Snapshot {
        // With a limit that the caller chose, there is no second look.
        if all.limits.text_bytes != ByteLimits::LIST.text_bytes {
            return snapshot;
        }
        let text = || self.filter.parts().filter(|p| p.is_about_text());
        let groups = text().fold(Groups::NONE, |groups, p| groups | p.groups());
        let members = text().fold(Members::NONE, |members, p| members.union(p.members()));
        let (groups, members) = with_identity(groups, members);
        let (strategy, limits) = (Strategy::One, ByteLimits::ONE);
        let one = Request { strategy, groups, members, limits, ..all.clone() };
        let mut results = HashMap::new();
        for id in self.open(&snapshot) {
            if one.is_stopped() {
                break;
            }
            let request = Request { pid: id.pid(), ..one.clone() };
            let whole = match query_with(&request, choice) {
                Ok(whole) => whole,
                // The process has ended, so it is not shown.
                Err(Error::NoSuchProcess(_)) => {
                    results.insert(id.pid(), false);
                    continue;
                }
                // The process cannot be read alone, so its match stays undecided.
                Err(_) => continue,
            };
            let is_it = |task: &TaskView<'_>| TaskId::of(task).is_some_and(|now| now.is_same(&id));
            let Some(task) = whole.task(id.pid()).filter(is_it) else {
                results.insert(id.pid(), false);
                continue;
            };
            let sieve = Sieve::new(Some(&self.filter));
            let cx = Context::of(&whole, false);
            match sieve.test_parts(&cx, &Row::new(task), |p| p.is_about_text()) {
                Truth::True => _ = results.insert(id.pid(), true),
                Truth::False => _ = results.insert(id.pid(), false),
                Truth::Unknown(..) => {}
            }
        }
        snapshot.with_decided(Decided { filter: self.filter.to_string(), results })
    }
    /// The processes to look at again: text that was cut decides about them, and nothing else does.
    fn open(&self, snapshot: &Snapshot) -> Vec<TaskId> {
        let (cx, sieve) = (Context::of(snapshot, false), Sieve::new(Some(&self.filter)));
        let is_open = |row: &Row<'_>| {
            let is_cut =
                |truth| matches!(truth, Truth::Unknown(_, Missing::Reason(Reason::Truncated)));
            (self.select.is_everything() || self.select.matches(row))
                && is_cut(sieve.test_parts(&cx, row, |p| p.is_about_text()))
                && !matches!(sieve.test_parts(&cx, row, |p| p.is_about_task()), Truth::False)
        };
        // Threads have the text of their process.
        let leaders = snapshot.tasks().filter(|task| task.is_leader());
        let tasks = leaders.filter(|task| is_open(&Row::new(*task)));
        by_turns(tasks.filter_map(|task| TaskId::of(&task)).collect())
    }
}

/// These groups and members, and the start time to recognize the task.
fn with_identity(groups: Groups, members: Members) -> (Groups, Members) {
    match groups.contains(Groups::BASE) {
        true => (groups, members.union(START)),
        false => (groups | Groups::BASE, Members { base: START.base, ..members }),
    }
}

/// At most [`MOST`] of these processes: one of each user in turn, so that a user with many
/// processes leaves room for the others.
fn by_turns(mut all: Vec<TaskId>) -> Vec<TaskId> {
    if all.len() <= MOST {
        return all;
    }
    let mut turns: HashMap<Option<u32>, u32> = HashMap::new();
    all.sort_by_cached_key(|id| {
        let dir = std::fs::metadata(format!("/proc/{}", id.pid())).ok();
        let turn = turns.entry(dir.map(|dir| dir.uid())).or_default();
        *turn += 1;
        *turn
    });
    all.truncate(MOST);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::TASKS;
    use crate::view::{Plan, Query};

    fn plan(columns: &str, filter: &str) -> Plan {
        let field = |n| TASKS.find(n).expect("a column of tasks").field;
        let mut query = Query::new(&TASKS, columns.split(',').map(field));
        query.filter = Some(Filter::parse(&TASKS, filter).expect("it is right"));
        query.plan()
    }

    #[test]
    fn conditions_on_text_are_looked_at_again() {
        for (columns, filter, want) in [
            ("pid", "args ~ x", true),
            ("pid,rss", "rss > 1G and args ~ x", true),
            ("pid,args", "comm == x", false),
            ("pid,rss", "comm == x and rss > 1G", false),
        ] {
            assert_eq!(matches!(plan(columns, filter), Plan::Again(..)), want, "{filter}");
        }
        let Plan::Again(first, _) = plan("pid", "args ~ x") else { panic!("as before") };
        let Plan::One(all) = &*first else { panic!("one step: {first:?}") };
        assert_eq!(all.groups, Groups::BASE | Groups::CMDLINE);
        assert_eq!(all.members.base & START.base, START.base);
    }
}
