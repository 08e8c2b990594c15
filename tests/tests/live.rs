//! Compares the engines on the whole machine as it is: they must report the same about all tasks.
//! Values that change between readings are left out, so this also works on a busy machine.

use std::collections::{BTreeMap, BTreeSet};

use taskdiag::{EngineId, Strategy};
use taskdiag_tests::compare::{Outcome, compare};
use taskdiag_tests::state::ask;
use taskdiag_tests::{Source, Task, engines, is_root, skip};

type Tasks = BTreeMap<u32, Task>;

/// A difference counts if it appears in each of this many rounds. As soon as no difference was in
/// all rounds so far, the remaining rounds are skipped. There are many rounds because of processes
/// of other tests that change all the time. Such a process may look the same before and after an
/// answer but different in it, several times in a row.
const ROUNDS: usize = 10;

/// The tasks that are the same ones in all three answers.
fn common(a1: &Tasks, b: &Tasks, a2: &Tasks) -> Vec<u32> {
    let same = |pid: &u32| {
        let id = a1[pid].identity();
        let is_it = |t: &Task| t.identity() == id;
        b.get(pid).is_some_and(is_it) && a2.get(pid).is_some_and(is_it)
    };
    a1.keys().copied().filter(same).collect()
}

/// Whether process 1 is hidden from BPF here. Some sandboxes do that.
fn hides_pid_1(engine: Source) -> bool {
    engine.id() == EngineId::Bpf && !ask(engine, Strategy::All, 0).has(1)
}

fn whole_machine(strategy: Strategy) {
    let engines = engines();
    if engines.len() < 2 {
        return skip(&format!("whole machine, {strategy}"), "there is one engine only");
    }
    for pair in engines.windows(2) {
        let (fast, slow) = (pair[0], pair[1]);
        let hidden = hides_pid_1(fast);
        if hidden {
            skip("process 1 on the bpf engine", "this machine hides it from BPF");
        }
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        let (mut compared, mut tasks) = (0, 0);
        for done in 1..=ROUNDS {
            let a1 = ask(slow, strategy, 0).tasks();
            let b = ask(fast, strategy, 0).tasks();
            let a2 = ask(slow, strategy, 0).tasks();
            let mut round = Outcome::default();
            let common = common(&a1, &b, &a2);
            // The reader itself changes while it reads.
            let me = std::process::id();
            for pid in common.iter().filter(|p| a1[*p].tgid != me) {
                round.add(compare(&a1[pid], &b[pid], &a2[pid]));
            }
            // A task that existed before and after also existed in between.
            for (pid, t) in &a1 {
                let lasting = a2.get(pid).is_some_and(|l| l.identity() == t.identity());
                if lasting && !b.contains_key(pid) && !(hidden && t.tgid == 1) {
                    round.differences.insert(format!("task {pid} is not in the answer of {fast}"));
                }
            }
            compared += round.compared;
            tasks = tasks.max(common.len());
            let mut keys = BTreeSet::new();
            for d in round.differences {
                // The key has the field, because the values may differ from round to round.
                let key = d.split(':').next().unwrap_or(&d).to_string();
                keys.insert(key);
                seen.entry(d).or_default();
            }
            for key in keys {
                *seen.entry(key).or_default() += 1;
            }
            if seen.values().all(|times| *times < done) {
                break;
            }
        }
        assert!(tasks >= 3 && compared > 100, "{tasks} tasks, {compared} fields: nothing compared");
        let bad: Vec<_> = seen.iter().filter(|s| *s.1 >= ROUNDS).map(|s| s.0.as_str()).collect();
        let all: Vec<_> = seen.keys().map(String::as_str).collect();
        assert!(
            bad.is_empty(),
            "{fast} and {slow} differ on {strategy} in all rounds:\n{}\n\nof all differences:\n{}",
            bad.join("\n"),
            all.join("\n")
        );
    }
}

#[test]
fn all_processes_of_the_machine_agree_between_engines() {
    whole_machine(Strategy::All);
}

#[test]
fn all_threads_of_the_machine_agree_between_engines() {
    whole_machine(Strategy::AllThread);
}

#[test]
fn kernel_threads_say_what_they_are() {
    use taskdiag::Reason;
    let root = is_root();
    for engine in engines() {
        let a = ask(*engine, Strategy::All, 0);
        let tasks = a.tasks();
        let kthreads: Vec<_> =
            tasks.values().filter(|t| t.num("base.flags") & 1 != 0).take(20).collect();
        if kthreads.is_empty() {
            skip("kernel_threads_say_what_they_are", "no kernel thread is visible (a container?)");
            continue;
        }
        for t in kthreads {
            for group in ["statm", "cmdline"] {
                let reason = t.missing(group);
                assert_eq!(reason, Some(Reason::Absent), "{a}: {group} of kthread {}", t.pid);
            }
            // Without rights, an engine cannot know that a task has no program.
            let exe = t.missing("paths.exe").or(t.missing("paths"));
            let reason = if root { Reason::Absent } else { Reason::Denied };
            assert_eq!(exe, Some(reason), "{a}: exe of kthread {}", t.pid);
            assert!(matches!(t.num("base.ppid"), 0 | 2), "{a}: parent of kthread {}", t.pid);
        }
    }
}

#[test]
fn the_totals_of_done_are_those_of_the_tasks() {
    use taskdiag::Reason;
    use taskdiag_tests::Value;
    for engine in engines() {
        for strategy in [Strategy::All, Strategy::AllThread] {
            let a = ask(*engine, strategy, 0);
            let tasks = a.tasks();
            assert_eq!(a.done.tasks, tasks.len() as u64, "{a}");
            let lacking = |r: Reason| {
                let lacks = |v: &Value| *v == Value::Missing(r);
                tasks.values().filter(|t| t.fields.values().any(lacks)).count() as u64
            };
            // The task lacks a group, or a part of one.
            assert!(a.done.denied <= lacking(Reason::Denied), "{a}: {:?}", a.done);
            assert!(a.done.blocked <= lacking(Reason::Blocked), "{a}: {:?}", a.done);
        }
    }
}
