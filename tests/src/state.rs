//! Checks one state on every engine with every strategy: the facts of mktask must be in each
//! answer, and the answers must be the same.

use taskdiag::{EngineId, Group, Reason, Request, Strategy};

use crate::answer::{groups_of, is_by_proc_tasks, is_not_in_proc_tasks};
use crate::compare::{Outcome, compare};
use crate::{Answer, Mktask, Source, Task, Value, engines, read, skip};

/// How often a comparison may be repeated before a difference counts. Another process may have
/// changed shared things (memory that can be reclaimed, the CPU of a wake-up).
const TRIES: usize = 10;
const PROCFS: Source = Source::Engine(EngineId::Procfs);

/// Facts with the names of their fields. Every answer must have exactly these values.
const FACTS: &[(&str, &str)] = &[
    ("ppid", "base.ppid"),
    ("pgid", "base.pgid"),
    ("sid", "base.sid"),
    ("uid", "cred.uid"),
    ("euid", "cred.euid"),
    ("suid", "cred.suid"),
    ("fsuid", "cred.fsuid"),
    ("gid", "cred.gid"),
    ("egid", "cred.egid"),
    ("sgid", "cred.sgid"),
    ("fsgid", "cred.fsgid"),
    ("tracer", "cred.tracer_pid"),
    ("no_new_privs", "cred.no_new_privs"),
    ("seccomp", "cred.seccomp"),
    ("cap_inheritable", "cred.cap_inheritable"),
    ("cap_permitted", "cred.cap_permitted"),
    ("cap_effective", "cred.cap_effective"),
    ("cap_bounding", "cred.cap_bounding"),
    ("cap_ambient", "cred.cap_ambient"),
    ("ngroups", "cred.ngroups"),
    ("threads", "stat.num_threads"),
    ("nice", "stat.nice"),
    ("priority", "stat.priority"),
    ("rt_priority", "stat.rt_priority"),
    ("policy", "stat.policy"),
    ("processor", "stat.processor"),
    ("tty_nr", "stat.tty_nr"),
    ("tty_pgrp", "stat.tty_pgrp"),
    ("ns_cgroup", "ns.cgroup"),
    ("ns_ipc", "ns.ipc"),
    ("ns_mnt", "ns.mnt"),
    ("ns_net", "ns.net"),
    ("ns_pid", "ns.pid"),
    ("ns_pid_for_children", "ns.pid_for_children"),
    ("ns_time", "ns.time"),
    ("ns_time_for_children", "ns.time_for_children"),
    ("ns_user", "ns.user"),
    ("ns_uts", "ns.uts"),
];

/// Facts that are bytes.
const BYTE_FACTS: &[(&str, &str)] = &[
    ("comm", "base.comm"),
    ("cmdline", "cmdline"),
    ("cwd", "paths.cwd"),
    ("root", "paths.root"),
    ("exe", "paths.exe"),
];

/// The requests whose answers must have this task: requests about it, and with `wide` requests
/// about all tasks.
fn requests(m: &Mktask, wide: bool) -> Vec<(Strategy, u32)> {
    let mut all = vec![(Strategy::One, m.pid()), (Strategy::Thread, m.pid())];
    if wide {
        all.extend([(Strategy::All, 0), (Strategy::AllThread, 0)]);
    }
    if m.has("ppid") {
        all.push((Strategy::Children, m.num("ppid")));
    }
    all
}

/// Asks one engine for all groups that it has.
///
/// # Panics
/// If there is no answer.
pub fn ask(engine: Source, strategy: Strategy, pid: u32) -> Answer {
    let req = Request::new(strategy, pid, groups_of(engine));
    read(engine, &req).unwrap_or_else(|e| panic!("{engine}/{strategy} of {pid}: {e}"))
}

/// Makes the state and checks it: its facts in every answer, then `check` on every answer, then
/// each engine against the others.
///
/// # Panics
/// On any difference, and if nothing was compared.
pub fn parity(test: &str, args: &[&str], check: impl Fn(&Mktask, &Answer, &Task)) {
    check_state(test, args, true, check);
}

/// [`parity`] without the requests about all tasks, which take longer the more tasks the machine
/// has. It is for further states of the same kind.
///
/// # Panics
/// As [`parity`].
pub fn parity_near(test: &str, args: &[&str], check: impl Fn(&Mktask, &Answer, &Task)) {
    check_state(test, args, false, check);
}

fn check_state(test: &str, args: &[&str], wide: bool, check: impl Fn(&Mktask, &Answer, &Task)) {
    let m = match Mktask::start(args) {
        Ok(m) => m,
        Err(why) => return skip(test, &why),
    };
    let mut checked = 0;
    for engine in engines() {
        for (strategy, pid) in requests(&m, wide) {
            let answer = ask(*engine, strategy, pid);
            let mut task = answer.task(m.pid());
            if !engine.finds(Group::Cmdline) {
                take_text_of_proc(&mut task, &ask(PROCFS, strategy, pid).task(m.pid()));
            }
            checked += facts(&m, &answer, &task);
            check(&m, &answer, &task);
        }
    }
    assert!(checked > 0, "{test} compared no fact with any answer");
    against_each_other(test, &m, wide);
}

/// Gives a task the arguments that /proc shows, if they are BLOCKED in it. So does `auto`.
fn take_text_of_proc(task: &mut Task, other: &Task) {
    if task.missing("cmdline") != Some(Reason::Blocked) {
        return;
    }
    let of_text = |key: &String| key.split('.').next() == Some("cmdline");
    task.fields.retain(|key, _| !of_text(key));
    let text = other.fields.iter().filter(|f| of_text(f.0));
    task.fields.extend(text.map(|(key, value)| (key.clone(), value.clone())));
}

/// Compares the facts of mktask with an answer. Returns how many there were.
fn facts(m: &Mktask, answer: &Answer, task: &Task) -> usize {
    let mut n = 0;
    let text = |v: &[u8]| v.escape_ascii().to_string();
    let can_have = |field| !is_by_proc_tasks(answer.source) || !is_not_in_proc_tasks(field);
    for (fact, field) in FACTS.iter().filter(|f| m.has(f.0) && can_have(f.1)) {
        assert_eq!(task.num(field), m.num::<i128>(fact), "{field} of {answer} of {}", m.state());
        n += 1;
    }
    for (fact, field) in BYTE_FACTS.iter().filter(|f| m.has(f.0)) {
        let (got, want) = (text(task.bytes(field)), text(&m.bytes(fact)));
        assert_eq!(got, want, "{field} of {answer} of {}", m.state());
        n += 1;
    }
    for (fact, field) in [("groups", "cred.groups"), ("nspid", "ns.nspid")] {
        if m.has(fact) && can_have(field) {
            let want = format!("{:?}", m.list(fact)).into_bytes();
            assert_eq!(text(task.bytes(field)), text(&want), "{field} of {answer}");
            n += 1;
        }
    }
    n
}

/// Whether one engine reports that there is no value, and another has the value of a living thread.
fn is_of_ended_thread(difference: &str) -> bool {
    let Some((of, values)) = difference.split_once(": ") else { return false };
    let is_of = |group: &str| {
        of.split(' ').next_back().is_some_and(|key| key.split('.').next() == Some(group))
    };
    let is_none = values.starts_with("None, elsewhere Some(")
        || values.starts_with("Some(<absent>), elsewhere None");
    (is_of("ns") || is_of("paths")) && is_none
}

/// Checks that all engines give the same tasks and values on all requests about one state.
fn against_each_other(test: &str, m: &Mktask, wide: bool) {
    let engines = engines();
    for pair in engines.windows(2) {
        let mut compared = 0;
        for (strategy, pid) in requests(m, wide) {
            let mut last = Outcome::default();
            for attempt in 0..TRIES {
                std::thread::sleep(std::time::Duration::from_millis(20 * attempt as u64));
                let a1 = ask(pair[1], strategy, pid);
                let b = ask(pair[0], strategy, pid);
                let a2 = ask(pair[1], strategy, pid);
                last = compare_tree(m, &a1, &b, &a2);
                if pair[0].id() == EngineId::Kernel && m.state() == "leader-gone" {
                    last.differences.retain(|d| !is_of_ended_thread(d));
                    skip(
                        "places and namespaces of a dead first thread on the kernel engine",
                        "the series does not look at another thread for them",
                    );
                }
                if last.differences.is_empty() {
                    break;
                }
            }
            let list: Vec<_> = last.differences.iter().map(String::as_str).collect();
            assert!(list.is_empty(), "{test}: {}/{strategy}:\n{}", pair[0], list.join("\n"));
            compared += last.compared;
        }
        assert!(compared > 0, "{test} compared nothing between {} and {}", pair[0], pair[1]);
    }
}

/// The tasks of this state in three answers: its process and the threads of it.
fn compare_tree(m: &Mktask, a1: &Answer, b: &Answer, a2: &Answer) -> Outcome {
    let mut out = Outcome::default();
    let (ours, theirs) = (a1.pids_of(m.pid()), b.pids_of(m.pid()));
    if ours != theirs {
        out.differences.insert(format!("{a1} has {ours:?}, {b} has {theirs:?}"));
    }
    for pid in ours {
        if let (Some(a1), Some(b), Some(a2)) = (a1.get(pid), b.get(pid), a2.get(pid)) {
            out.add(compare(&a1, &b, &a2));
        }
    }
    out
}

/// Checks that a value of a task lies in a range.
///
/// # Panics
/// If it does not.
pub fn between(answer: &Answer, task: &Task, field: &str, low: i128, high: i128) {
    let n = task.num(field);
    assert!(low <= n && n <= high, "{field} of {answer} is {n}, not in {low}..={high}");
}

/// Checks the letter of a task's state.
///
/// # Panics
/// If it is not one of `letters`.
pub fn in_state(answer: &Answer, task: &Task, letters: &str) {
    let Some(Value::Num(n)) = task.get("base.state") else {
        panic!("{answer}: no state of task {}", task.pid)
    };
    let letter = char::from(*n as u8);
    assert!(letters.contains(letter), "{answer}: task {} is in state {letter}", task.pid);
}
