//! Tests that nothing waits for a task. The lock of the task's memory may be held, or its pages may
//! never arrive. The rest of the answer is complete in time nevertheless.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use taskdiag::wire::VmaStat;
use taskdiag::{Group, Groups, Reason, Request, Rollup, TaskView};
use taskdiag_tests::answer::engines_with;
use taskdiag_tests::busy::{Patience, worth};
use taskdiag_tests::cli::taskdiag;
use taskdiag_tests::rows::rows;
use taskdiag_tests::{Mktask, Source, engines, read};

const WAITING: [Group; 6] =
    [Group::Cmdline, Group::Environ, Group::Vma, Group::VmaStat, Group::Rollup, Group::Swap];
/// A time that is far less than for ever, counted as on an idle machine.
const IN_TIME: Duration = Duration::from_secs(20);

fn held(dir: &tempfile::TempDir) -> Option<Mktask> {
    Mktask::if_possible(&["held-lock", dir.path().to_str().expect("a plain path")])
}

/// The groups that may wait and that this engine has.
fn groups_of(source: Source) -> Groups {
    let has = |g: &Group| engines_with(*g).contains(&source);
    WAITING.into_iter().filter(has).collect()
}

fn is_there(t: &TaskView<'_>, g: Group) -> bool {
    t.reason(g).is_none()
}

/// The major version of Linux.
fn major() -> u32 {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("it is there");
    release.split('.').next().and_then(|n| n.parse().ok()).expect("a number")
}

#[test]
fn a_held_lock_stops_no_other_process() {
    let dir = tempfile::tempdir().expect("dir");
    let (Some(m), Some(other)) = (held(&dir), Mktask::if_possible(&["idle"])) else { return };
    for engine in engines() {
        let groups = groups_of(*engine) | Groups::BASE;
        for req in [
            Request::all(groups),
            Request::all_threads(groups),
            Request::one(m.pid(), groups),
            Request::threads(m.pid(), groups),
        ] {
            let begin = Instant::now();
            let a = read(*engine, &req).expect("an answer");
            assert!(worth(begin.elapsed()) < IN_TIME, "{a} took {:?}", begin.elapsed());
            let find = |pid| a.snapshot.tasks().find(|t| t.pid() == pid);
            let t = find(m.pid()).expect("the task is there");
            assert!(is_there(&t, Group::Base), "{a}");
            let mut blocked = 0;
            for g in groups.iter().filter(|g| *g != Group::Base) {
                match t.reason(g) {
                    // Newer kernels do not need the lock for some groups.
                    None => {}
                    Some(Reason::Blocked) => blocked += 1,
                    other => panic!("{a}: {g} is {other:?}"),
                }
            }
            // A walk over all pages needs the lock on every kernel, and smaps needs it before Linux
            // 7.
            if groups.has(Group::Rollup) {
                assert_eq!(t.reason(Group::Rollup), Some(Reason::Blocked), "{a}: rollup");
            }
            if groups.has(Group::VmaStat) && is_there(&t, Group::VmaStat) {
                assert!(major() >= 7, "{a}: vma_stat was not blocked");
                assert!(!rows::<VmaStat>(&t).is_empty(), "{a}: vma_stat is empty");
            }
            // If all tasks are requested, tasks of other tests or of other users may be blocked,
            // too.
            let is_blocked =
                |t: &TaskView<'_>| Group::ALL.iter().any(|g| t.reason(*g) == Some(Reason::Blocked));
            let all = a.snapshot.tasks().filter(is_blocked).count() as u64;
            assert_eq!(is_blocked(&t), blocked > 0, "{a}");
            assert!(a.done.blocked >= all, "{a}: {all}, {:?}", a.done);
            if req.strategy.takes_pid() {
                assert_eq!(a.done.blocked > 0, all > 0, "{a}: {:?}", a.done);
            }
            if let Some(t) = find(other.pid()) {
                for g in groups.iter().filter(|g| engine.finds(*g)) {
                    assert!(is_there(&t, g), "{a}: {g} of another task: {:?}", t.reason(g));
                }
            }
        }
    }
}

#[test]
fn the_program_ends_while_the_lock_is_held() {
    let dir = tempfile::tempdir().expect("dir");
    let Some(m) = held(&dir) else { return };
    for engine in engines_with(Group::Rollup) {
        let mut child = Command::new(taskdiag())
            .args([
                "dump",
                "--engine",
                engine.id().name(),
                "-g",
                "base,cmdline,environ,vma_stat,rollup",
            ])
            .stdout(Stdio::null())
            .spawn()
            .expect("it starts");
        let mut wait = Patience::new(IN_TIME);
        let end = loop {
            match child.try_wait().expect("it is ours") {
                Some(end) => break end,
                None if wait.is_over() => {
                    let _ = child.kill();
                    panic!("{engine}: it did not end in {IN_TIME:?}");
                }
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        assert!(end.code().is_some(), "{engine}: {end}");
    }
    drop(m);
}

/// A process that no longer blocks is read again, even by a reader whose threads are still stuck.
#[test]
fn a_released_process_is_read_again() {
    let dir = tempfile::tempdir().expect("dir");
    let Some(m) = held(&dir) else { return };
    let source = *engines().last().expect("one at least");
    for _ in 0..3 {
        let a = read(source, &Request::one(m.pid(), Groups::ROLLUP)).expect("an answer");
        assert_eq!(a.done.blocked, 1);
    }
    drop(m);
    let mut wait = Patience::new(IN_TIME);
    let threads = || std::fs::read_dir("/proc/self/task").expect("it is there").count();
    let others = || {
        let tasks = std::fs::read_dir("/proc/self/task").expect("it is there");
        tasks
            .flatten()
            .filter_map(|t| std::fs::read_to_string(t.path().join("comm")).ok())
            .filter(|comm| comm == "procfs\n")
            .count()
    };
    while others() > 0 {
        assert!(!wait.is_over(), "{} threads stay, {} of them ours", threads(), others());
        std::thread::sleep(Duration::from_millis(5));
    }
    let me = std::process::id();
    let a = read(source, &Request::one(me, Groups::ROLLUP)).expect("an answer");
    assert!(a.snapshot.tasks().next().expect("me").record::<Rollup>().is_some());
}

#[test]
fn arguments_that_never_come_are_blocked_and_not_empty() {
    let Some(m) = Mktask::if_possible(&["uffd-arguments"]) else { return };
    for engine in engines() {
        let begin = Instant::now();
        let req = Request::one(m.pid(), Groups::BASE | Groups::CMDLINE);
        let a = read(*engine, &req).expect("an answer");
        let t = a.snapshot.tasks().next().expect("the task");
        // There is no value, or a value that is marked as cut.
        match (t.reason(Group::Cmdline), t.cmdline()) {
            (Some(Reason::Blocked), None) => {}
            (None, Some(b)) if b.is_cut() => {}
            other => panic!("{a}: {other:?}"),
        }
        assert!(worth(begin.elapsed()) < IN_TIME, "{a}");
    }
}
