//! A condition on arguments sees all of them, although a list has only the beginning of long ones.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use taskdiag_tests::busy::wait_for_sleep;
use taskdiag_tests::{Ended, Source, cli, engines, is_root, skip};

/// More than the 128 KiB of a list.
const LONG: usize = 100_000;
const PARTS: usize = 3;

/// A process that waits, with long arguments that end with this word.
fn with_last_word(word: &str, uid: Option<u32>) -> Ended {
    let mut command = Command::new("sh");
    command.args(["-c", "read x"]).args([&"x".repeat(LONG); PARTS]).arg(word);
    command.stdin(Stdio::piped()).stdout(Stdio::null());
    if let Some(uid) = uid {
        command.uid(uid);
    }
    let child = Ended(command.spawn().expect("there is sh"));
    wait_for_sleep(child.0.id());
    child
}

/// Lets one test run at a time, because its processes would match the conditions of other tests.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A condition that is about the children of this test alone. The number of processes that are
/// looked at again is limited, and a test that runs at the same time may have a crowd with long
/// arguments.
fn own(condition: &str) -> String {
    format!("{condition} and ppid == {}", std::process::id())
}

/// The engines that a user can name, where they work.
fn names() -> Vec<&'static str> {
    let name = |s: &Source| match s {
        Source::Engine(e) if ["bpf", "procfs"].contains(&e.name()) => Some(e.name()),
        _ => None,
    };
    engines().iter().filter_map(name).collect()
}

fn run(args: &[&str], engine: &str) -> cli::Ran {
    cli::Sandbox::new().run(&[args, &["--engine", engine]].concat())
}

#[test]
fn a_condition_sees_the_end_of_long_arguments() {
    let _alone = alone();
    let (there, other) = (with_last_word("lastword-a", None), with_last_word("lastword-b", None));
    let (pid, not) = (there.0.id().to_string(), other.0.id().to_string());
    let of = &own("args ~ 'lastword-[a]$'");
    let without = own("not args ~ 'lastword-[a]$'");
    for engine in names() {
        let faces = [
            &["ps", "-o", "pid"][..],
            &["ps", "-o", "pid,rss"],
            &["ps", "--json", "-o", "pid"],
            &["ps", "--threads", "-o", "pid"],
            &["maps", "-o", "pid,path"],
            &["memory", "-o", "pid,rss"],
            &["files", "-o", "pid,fd"],
            &["tree", "-p"],
        ];
        // All faces treat the answer of an engine in the same way.
        let few = if engine == "bpf" { 2 } else { faces.len() };
        for face in faces.into_iter().take(few) {
            let ran = run(&[face, &["--where", of]].concat(), engine);
            assert!(ran.stdout.contains(&pid) && !ran.stdout.contains(&not), "{engine}: {ran}");
            assert!(!ran.stderr.contains("args"), "{engine}: {ran}");
            assert_eq!(ran.code, Some(0), "{engine}: {ran}");
            let ran = run(&[face, &["--where", &without]].concat(), engine);
            assert!(ran.stdout.contains(&not) && !ran.stdout.contains(&pid), "{engine}: {ran}");
            assert!(!ran.stderr.contains("args"), "{engine}: {ran}");
        }
        // The word is a condition on the name or on the arguments.
        let ran = run(&["ps", "lastword-a", "-o", "pid"], engine);
        assert!(ran.stdout.contains(&pid) && !ran.stdout.contains(&not), "{engine}: {ran}");
        // A shown value still has the limit of the list.
        let ran = run(&["ps", "--where", of, "-o", "pid,args", "--csv"], engine);
        assert!(ran.stdout.contains(&pid) && !ran.stdout.contains("lastword-a"), "{engine}: {ran}");
        assert!(ran.stderr.contains("args of 1 process are cut short"), "{engine}: {ran}");
    }
}

#[test]
fn a_limit_that_was_chosen_holds_and_is_stated() {
    let _alone = alone();
    let there = with_last_word("lastword-c", None);
    for engine in names() {
        let of = own("args ~ 'lastword-[c]$'");
        let ran = run(&["ps", "-o", "pid", "--args", "1K", "--where", &of], engine);
        assert!(!ran.stdout.contains(&there.0.id().to_string()), "{engine}: {ran}");
        assert!(ran.stderr.contains("left out by --where: args of"), "{engine}: {ran}");
    }
}

#[test]
fn a_user_with_many_processes_leaves_looks_for_others() {
    if !is_root() {
        let why = "only root can start processes of another user";
        return skip("many_processes_of_a_user_do_not_keep_those_of_others", why);
    }
    let _alone = alone();
    const CROWD: u32 = 50;
    let crowd: Vec<Ended> =
        (0..CROWD).map(|_| with_last_word("lastword-d", Some(54_321))).collect();
    let other = with_last_word("lastword-d", Some(54_322));
    for engine in names() {
        let ran = run(&["ps", "-o", "pid", "--where", &own("args ~ 'lastword-[d]$'")], engine);
        let has = |child: &Ended| {
            ran.stdout.split_whitespace().any(|pid| pid == child.0.id().to_string())
        };
        assert!(has(&other), "{engine}: {ran}");
        let found = crowd.iter().filter(|c| has(c)).count();
        assert_eq!(found, 31, "{engine}: {ran}");
        // A message reports how many processes were not decided.
        let said = ran.stderr.lines().find(|l| l.contains("left out by --where: args of"));
        let left = said.and_then(|l| l.split_whitespace().find_map(|w| w.parse::<usize>().ok()));
        assert_eq!(left, Some(CROWD as usize - found), "{engine}: {ran}");
    }
}
