//! `taskdiag why`: how processes are chosen, and how those that wait for one are drawn.

use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::{Duration, Instant};

use taskdiag::wire::{Done, StreamWriter, build};
use taskdiag::{Base, Group, Groups, Reason, Wait, WaitKind};

use super::common::{Ended, Saved, parts, run};

#[test]
fn a_word_explains_processes_with_it_in_their_name_or_arguments() {
    let word = format!("word-of-a-waiter-{}", std::process::id());
    let mut sleep = Command::new("sleep");
    let sleep = Ended(sleep.arg0(&word).arg("100").spawn().expect("sleep"));
    let pid = sleep.0.id();
    let ends = Instant::now() + Duration::from_secs(20);
    let has_begun = || {
        let args = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        args.starts_with(word.as_bytes())
    };
    while !has_begun() {
        assert!(Instant::now() < ends, "sleep has not begun");
        std::thread::sleep(Duration::from_millis(5));
    }
    let (code, out, err) = parts(&run(&["why", &word]));
    assert!(code == 0 && out.starts_with(&format!("process {pid} (")), "{code} {out}{err}");
    let (code, out, err) = parts(&run(&["why", "-p", &pid.to_string()]));
    assert!(code == 0 && out.starts_with(&format!("process {pid} (")), "{code} {out}{err}");
    let (code, out, err) = parts(&run(&["why", &word, "--json"]));
    assert!(code == 0 && out.contains(&format!("\"tid\":{pid},")), "{code} {out}{err}");
    let (code, out, err) = parts(&run(&["why", &format!("no{word}")]));
    assert_eq!((code, out.as_str()), (1, ""), "{err}");
    assert!(err.contains(&format!("no process has 'no{word}' in its name or arguments")), "{err}");
}

#[test]
fn waiters_of_one_process_are_drawn_on_one_level() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("held");
    let flock = || {
        let child =
            Command::new("flock").arg("--no-fork").arg(&path).args(["sleep", "100"]).spawn();
        Ended(child.expect("flock of util-linux"))
    };
    let all = [flock(), flock(), flock()];
    let pids: Vec<u32> = all.iter().map(|c| c.0.id()).collect();
    let ends = Instant::now() + Duration::from_secs(20);
    let drawn = loop {
        let (_, out, err) = parts(&run(&["why", "--longer", "1ms", "--where", "comm == flock"]));
        let is_drawn =
            |line: &&str| pids.iter().any(|p| line.contains(&format!("\\_ process {p} (")));
        let drawn: Vec<String> = out.lines().filter(is_drawn).map(str::to_owned).collect();
        if drawn.len() == 2 {
            break drawn;
        }
        assert!(Instant::now() < ends, "{out}{err}");
        std::thread::sleep(Duration::from_millis(20));
    };
    // Standard output is no terminal, so the lines are ASCII.
    assert!(
        drawn.iter().all(|line| line.starts_with("   \\_ process ") && line.is_ascii()),
        "{drawn:?}"
    );
}

#[test]
fn a_selection_that_matches_no_thread_is_no_report_about_the_machine() {
    for args in [&["--where", "comm == 'no such name'"][..], &["--unit", "no-such-unit"]] {
        let (code, out, err) = parts(&run(&[&["why"], args].concat()));
        assert_eq!((code, out.as_str()), (1, ""), "{args:?}: {err}");
        assert!(err.contains("no thread is known to match"), "{args:?}: {err}");
    }
    let own = format!("tid == {}", std::process::id());
    let (code, out, err) = parts(&run(&["why", "--longer", "1h", "--where", &own]));
    assert!(code == 0 && out.contains("1 thread"), "{out}{err}");
}

#[test]
fn a_thread_that_ended_while_it_was_read_is_no_gap() {
    for (reason, code) in [(Reason::Vanished, 0), (Reason::Denied, 3), (Reason::Unsupported, 3)] {
        let mut w = StreamWriter::new();
        let mut info = StreamWriter::blank_info();
        info.show_flags = (Groups::BASE | Groups::WAIT).bits();
        info.dump_strategy = taskdiag::Strategy::AllThread as u64;
        w.info(&info);
        for tid in [5, 6] {
            w.begin_task(tid, 5);
            w.put(&build!(Base { state: b'S', ..Base::default() }));
            if tid == 5 {
                let (kind, valid) = (WaitKind::Sleep as u32, Wait::ALL_VALID);
                w.put(&build!(Wait { valid, kind, state: b'S', ..Wait::default() }));
            } else {
                w.missing(Group::Wait, reason);
            }
            w.end_task();
        }
        let saved = Saved::bytes(w.finish(Done::default()).as_bytes());
        let path = saved.path();
        let from = path.to_str().expect("a name in UTF-8");
        let (got, out, err) = parts(&run(&["why", "--from", from, "5"]));
        assert_eq!(got, code, "{reason:?}: {out}{err}");
        assert_eq!(err.is_empty(), code == 0, "{reason:?}: {err}");
        let is_said = out.contains("thread 6") && out.contains("ended while it was looked at");
        assert_eq!(is_said, code == 0, "{reason:?}: {out}");
    }
}
