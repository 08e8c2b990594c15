//! Requests in two steps give the same as one request, on each engine. The second step asks only
//! for the tasks that passed the first.

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use taskdiag::field::{TASKS, text};
use taskdiag::view::{Filter, Item, Plan, Query};
use taskdiag::{Choice, EngineId, Request, Snapshot, Strategy, Watch, query_with};
use taskdiag_tests::busy::wait_for_sleep;
use taskdiag_tests::{Mktask, Source, engines};

/// Child processes that wait until this value is dropped.
struct Children(Vec<Child>);

impl Children {
    fn new(count: usize) -> Children {
        let child = || {
            let mut c = Command::new("cat");
            c.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("there is a cat")
        };
        let children = Children((0..count).map(|_| child()).collect());
        children.pids().into_iter().for_each(wait_for_sleep);
        children
    }
    fn pids(&self) -> Vec<u32> {
        self.0.iter().map(Child::id).collect()
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        for c in &mut self.0 {
            drop(c.stdin.take());
            let _ = c.wait();
        }
    }
}

fn query(columns: &str, filter: &str) -> Query {
    let field = |n| TASKS.find(n).expect("a column of tasks").field;
    let mut query = Query::new(&TASKS, columns.split(',').map(field));
    query.filter = Some(Filter::parse(&TASKS, filter).expect("it is right"));
    query
}

/// Rows by thread id: their values as text.
fn rows(query: &Query, snapshot: &Snapshot) -> BTreeMap<u32, Vec<String>> {
    let view = query.view(snapshot);
    let mut out = BTreeMap::new();
    let mut take = |item: Item<'_, '_>| {
        let row = item.row().expect("it is a task");
        let value = |(c, f): (usize, &&'static taskdiag::field::Field)| {
            let mut cell = Vec::new();
            let v = item.value(view.cx(), f, c);
            text(&mut cell, view.cx(), f.text, Some(row), &v);
            String::from_utf8(cell).expect("text is UTF-8")
        };
        out.insert(row.view.pid(), query.columns.iter().enumerate().map(value).collect());
        Ok(())
    };
    view.rows(false, &mut |_, _, _| {}).each(&mut take).expect("nothing fails");
    out
}

fn steps(query: &Query) -> Plan {
    let plan = query.plan();
    assert!(matches!(plan, Plan::Narrow(_)), "{plan:?}");
    plan
}

/// The choices to test: each engine alone, and the automatic choice.
fn choices() -> Vec<Choice> {
    let only = |s: &Source| match s {
        Source::Engine(id) => Some(Choice::Only(*id)),
        _ => None,
    };
    engines().iter().filter_map(only).chain([Choice::Auto]).collect()
}

#[test]
fn two_steps_give_the_answer_of_one() {
    let children = Children::new(12);
    let list: Vec<String> = children.pids().iter().map(u32::to_string).collect();
    let some = format!("pid in ({}) and comm == cat", list[3..5].join(","));
    let all = format!("ppid == {} and pid in ({})", std::process::id(), list.join(","));
    for choice in choices() {
        for (filter, count) in [(&some, 2), (&all, 12)] {
            let query = query("pid,ppid,args,uid,vsz,nlwp", filter);
            let answered = steps(&query).ask(choice).expect("it answers");
            let Plan::Narrow(narrow) = query.plan() else { unreachable!("as before") };
            let one = query_with(&narrow.all, choice).expect("it answers");
            let narrow = rows(&query, &answered.snapshot);
            assert_eq!(narrow.len(), count, "{choice:?} {filter}");
            assert_eq!(narrow, rows(&query, &one), "{choice:?} {filter}");
            assert_eq!(answered.snapshot.stream().strategy(), Strategy::All);
            assert!(answered.nobody.is_empty());
        }
    }
}

#[test]
fn only_matching_processes_are_asked_for_the_rest() {
    let children = Children::new(12);
    let filter = format!("pid in ({}, {})", children.pids()[0], children.pids()[1]);
    let procfs = Choice::Only(EngineId::Procfs);
    let query = query("pid,args,uid", &filter);
    let snapshot = steps(&query).ask(procfs).expect("/proc is there").snapshot;
    assert_eq!(snapshot.tasks().len(), 2);
    // If no task passes, there is no second request.
    let none = self::query("pid,args,uid", "comm == 'no such name'");
    let snapshot = steps(&none).ask(procfs).expect("/proc is there").snapshot;
    assert_eq!((snapshot.tasks().len(), rows(&none, &snapshot).len()), (0, 0));
    assert_eq!(snapshot.stream().asked(), none.groups() | query.groups());
}

#[test]
fn threads_of_few_processes_are_those_of_a_single_request() {
    let threads = Mktask::start(&["threads", "5"]).expect("any machine has threads");
    let (pid, _others) = (threads.pid(), Children::new(12));
    for choice in choices() {
        let mut query = query("pid,tid,args,uid", &format!("pid == {pid} and comm known"));
        query.threads = true;
        let snapshot = steps(&query).ask(choice).expect("it answers").snapshot;
        let found = rows(&query, &snapshot);
        let all = query_with(&Request::threads(pid, query.groups()), choice).expect("it answers");
        assert!(found.len() >= 5, "{choice:?}: {found:?}");
        assert_eq!(found.len(), all.tasks().len(), "{choice:?}");
    }
}

#[test]
fn a_stopped_request_returns_a_marked_answer() {
    let stopped = Arc::new(Watch::new());
    stopped.stop();
    let query = query("pid,args,uid", "comm == cat");
    let mut plan = steps(&query);
    plan.requests(|r| r.watch = Some(stopped.clone()));
    // procfs is asked, because BPF finishes a small answer before it checks for a stop.
    let snapshot = plan.ask(Choice::Only(EngineId::Procfs)).expect("it answers").snapshot;
    assert_eq!(snapshot.stream().done().error, -libc::EINTR);
}
