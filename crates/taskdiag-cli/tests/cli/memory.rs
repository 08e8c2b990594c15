//! `taskdiag memory` from saved answers with known content.

use serde_json::{Value, json};
use taskdiag::wire::{Done, StreamWriter, build};
use taskdiag::{Base, Cred, Group, Groups, Reason, Rollup, Statm, Strategy};

use super::common::{Saved, parts, taskdiag};

const GROUPS: Groups = Groups::BASE
    .union(Groups::CRED)
    .union(Groups::CMDLINE)
    .union(Groups::STATM)
    .union(Groups::ROLLUP);

/// Pid, uid, command, resident MiB, and the results of the walk over the pages: proportional and
/// own MiB, or the reason why there are none.
type Task = (u32, u32, &'static str, u64, Result<(u64, u64), Reason>);

fn saved(tasks: &[Task]) -> Saved {
    let mut w = StreamWriter::new();
    let mut info = StreamWriter::blank_info();
    info.show_flags = GROUPS.bits();
    info.dump_strategy = Strategy::All as u64;
    w.info(&info);
    for (pid, uid, comm, rss, rollup) in tasks {
        w.begin_task(*pid, *pid);
        let base = build!(Base { valid: Base::ALL_VALID, state: b'S', ..Base::new() });
        w.put_base(&base, comm.as_bytes());
        w.put(&build!(Cred { valid: Cred::ALL_VALID, uid: *uid, euid: *uid, ..Cred::new() }));
        w.put_blob(Group::Cmdline as u16, 0, 0, comm.as_bytes(), comm.len());
        match rollup {
            Err(Reason::Absent) => w.missing(Group::Statm, Reason::Absent),
            _ => w.put(&build!(Statm {
                valid: Statm::ALL_VALID,
                rss_bytes: rss << 20,
                ..Statm::new()
            })),
        }
        match rollup {
            Ok((pss, uss)) => w.put(&build!(Rollup {
                valid: Rollup::ALL_VALID,
                pss_bytes: pss << 20,
                private_dirty_bytes: uss << 20,
                swap_bytes: 4096,
                ..Rollup::new()
            })),
            Err(why) => w.missing(Group::Rollup, *why),
        }
        w.end_task();
    }
    Saved::bytes(w.finish(Done::default()).as_bytes())
}

fn memory(saved: &Saved, args: &[&str]) -> (i32, String, String) {
    let o = taskdiag().arg("memory").arg("--from").arg(saved.path()).args(args).output();
    parts(&o.expect("the program runs"))
}

const MACHINE: &[Task] = &[
    (2, 0, "kthreadd", 0, Err(Reason::Absent)),
    (10, 0, "small", 10, Ok((4, 2))),
    (11, 3_999_999_999, "large", 100, Ok((80, 70))),
    (12, 0, "small", 12, Ok((6, 3))),
];

#[test]
fn memory_lists_the_largest_process_first() {
    let want = "\
  PID USER         SWAP    USS    PSS     RSS COMMAND
   11 3999999999      4  71680  81920  102400 large
   12 root            4   3072   6144   12288 small
   10 root            4   2048   4096   10240 small
total                12  76800  92160  124928
";
    let (code, out, err) = memory(&saved(MACHINE), &[]);
    let squeeze = |s: &str| -> Vec<String> {
        s.lines().map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    };
    assert_eq!((code, squeeze(&out), err.as_str()), (0, squeeze(want), ""));
}

#[test]
fn memory_is_added_up_by_user_and_by_command() {
    let (code, out, _) = memory(&saved(MACHINE), &["--by", "command", "--json"]);
    assert_eq!(code, 0);
    let all: Value = serde_json::from_str(&out).expect("valid JSON");
    assert_eq!(
        all[1],
        json!({"procs": 2, "swap": 8192, "uss": 5 << 20, "pss": 10 << 20, "rss": 22 << 20,
               "lacking": 0, "comm": "small"})
    );
    assert_eq!(all.as_array().map(Vec::len), Some(2));
    let (_, out, _) = memory(&saved(MACHINE), &["--by", "user", "--units", "human"]);
    assert_eq!(
        out.lines().nth(2).map(|l| l.split_whitespace().collect()),
        Some(vec!["2", "8.0K", "5.0M", "10.0M", "22.0M", "root"]),
        "{out}"
    );
}

#[test]
fn unknown_memory_is_a_question_mark_and_never_zero() {
    let mut tasks = MACHINE.to_vec();
    tasks.push((20, 0, "small", 500, Err(Reason::OverBudget)));
    tasks.push((21, 0, "small", 1, Err(Reason::Denied)));
    let saved = saved(&tasks);
    let (code, out, err) = memory(&saved, &["--no-headers"]);
    assert_eq!(code, 0, "nobody named these processes");
    assert!(err.contains("--max-rss") && err.contains("not shown"), "{err}");
    let line = out.lines().find(|l| l.starts_with("   20")).unwrap();
    let cells: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(cells, ["20", "root", "?", "?", "?", "512000", "small"]);
    // The sums also contain only known values.
    let words = |args: &[&str], line: usize| -> Vec<String> {
        let (_, out, _) = memory(&saved, args);
        out.lines().nth(line).unwrap().split_whitespace().map(Into::into).collect()
    };
    assert_eq!(words(&[], 6), ["total", ">=12", ">=76800", ">=92160", "637952"]);
    assert_eq!(words(&["-p", "20,21"], 3), ["total", "?", "?", "?", "513024"]);
    assert_eq!(words(&["--by", "comm"], 2), ["4", ">=8", ">=5120", ">=10240", "535552", "small"]);
    assert_eq!(words(&["--by", "comm"], 3), ["total", ">=12", ">=76800", ">=92160", "637952"]);
    let (_, out, _) = memory(&saved, &["--by", "comm", "--jsonl"]);
    let small = out.lines().find(|l| l.contains("small")).unwrap();
    assert!(small.contains("\"procs\":4") && small.contains("\"lacking\":2"), "{out}");
    let (_, out, _) = memory(&saved, &["--jsonl", "-p", "20", "-o", "pss"]);
    assert_eq!(out, "{\"pss\":null,\"missing\":{\"pss\":\"over_budget\"}}\n");
}

#[test]
fn a_terminal_gets_a_bar() {
    let saved = saved(MACHINE);
    let looks = |locale: &str| {
        let program = env!("CARGO_BIN_EXE_taskdiag");
        let command = format!(
            "stty cols 90 rows 20; {program} memory --color never --from {}",
            saved.path().display()
        );
        super::terminal::on_terminal(&command, &[("LC_ALL", locale)])
    };
    let out = looks("C.UTF-8");
    assert!(out.contains("80.0M") && out.contains(&"\u{2588}".repeat(12)), "{out}");
    assert!(looks("C").contains("############ large"), "{}", looks("C"));
    assert!(!memory(&saved, &[]).1.contains('#'));
}

#[test]
fn threads_have_no_memory_of_their_own() {
    let mut w = StreamWriter::new();
    let mut info = StreamWriter::blank_info();
    (info.show_flags, info.dump_strategy) = (GROUPS.bits(), Strategy::AllThread as u64);
    w.info(&info);
    for tid in [20, 21, 22] {
        w.begin_task(tid, 20);
        w.put_base(&build!(Base { valid: Base::ALL_VALID, state: b'S', ..Base::new() }), b"web");
        w.put(&build!(Cred { valid: Cred::ALL_VALID, ..Cred::new() }));
        w.put_blob(Group::Cmdline as u16, 0, 0, b"web", 3);
        w.put(&build!(Statm { valid: Statm::ALL_VALID, rss_bytes: 10 << 20, ..Statm::new() }));
        match tid {
            20 => w.put(&build!(Rollup {
                valid: Rollup::ALL_VALID,
                pss_bytes: 4 << 20,
                ..Rollup::new()
            })),
            _ => w.shared(Group::Rollup, 20),
        }
        w.end_task();
    }
    let saved = Saved::bytes(w.finish(Done::default()).as_bytes());
    let (code, out, err) = memory(&saved, &["--no-headers", "-o", "pid,pss,rss"]);
    assert_eq!(
        (code, out.split_whitespace().collect::<Vec<_>>()),
        (0, vec!["20", "4096", "10240"])
    );
    let (code, out, _) = memory(&saved, &["--by", "user", "--no-headers", "-o", "procs,rss"]);
    assert_eq!(
        (code, out.split_whitespace().collect::<Vec<_>>()),
        (0, vec!["1", "10240"]),
        "{err}"
    );
}

#[test]
fn limits_must_make_sense() {
    for (args, word) in [(["--budget", "x"], "500ms"), (["--max-rss", "0"], "2G")] {
        let (code, _, err) = memory(&saved(MACHINE), &args);
        assert_eq!(code, 2);
        assert!(err.contains(word), "{err}");
    }
}

/// After Ctrl-C during the walk, the data so far is shown and marked as partial. The walk reads a
/// file of each process, so the bytes read show how far it is. The moment of the signal cannot be
/// controlled, so it is sent at many places. Before the walk it ends the program, as usual. Every
/// command that asks this machine answers it in the same way.
#[test]
fn ctrl_c_shows_what_is_there() {
    for command in ["memory", "ps"] {
        stopped_in_the_walk(command);
    }
}

fn stopped_in_the_walk(command: &str) {
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Stdio};
    let start = || {
        let mut program = taskdiag();
        program.args([command, "--engine", "procfs", "--jsonl", "-o", "pid,pss"]);
        program.stdout(Stdio::piped()).stderr(Stdio::piped());
        // SAFETY: a plain system call. A shell starts background commands with the signal ignored.
        unsafe {
            program.pre_exec(|| {
                libc::signal(libc::SIGINT, libc::SIG_DFL);
                Ok(())
            });
        }
        program.spawn().expect("the program runs")
    };
    let has_read = |child: &Child| {
        let io = std::fs::read_to_string(format!("/proc/{}/io", child.id())).unwrap_or_default();
        let calls = io.lines().find_map(|l| l.strip_prefix("syscr: "));
        calls.and_then(|n| n.parse::<u64>().ok()).unwrap_or(u64::MAX)
    };
    let is_running = |child: &Child| {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id()));
        !stat.expect("it was not waited for").contains(") Z ")
    };
    // How many reads a whole run makes. The kernel reports the user of a zombie, too.
    let mut child = start();
    let mut out = Vec::new();
    std::io::Read::read_to_end(child.stdout.as_mut().expect("piped"), &mut out).expect("it ends");
    while is_running(&child) {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let whole = has_read(&child);
    child.wait().expect("it ends");
    assert!((1..u64::MAX).contains(&whole) && !out.is_empty(), "{whole} reads");
    for part in (1..400).map(|n| n * 7 % 100) {
        let child = start();
        while has_read(&child) < whole * part / 100 && is_running(&child) {}
        let pid = rustix::process::Pid::from_child(&child);
        // The process may have ended. Then it is a zombie, and the signal has no effect.
        rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("our child");
        let o = child.wait_with_output().expect("it ends");
        let err = String::from_utf8_lossy(&o.stderr).into_owned();
        if err.contains("only what was read until then is shown") {
            assert_eq!(o.status.code(), Some(130), "{err}");
            let out = String::from_utf8_lossy(&o.stdout).into_owned();
            for line in out.lines() {
                serde_json::from_str::<Value>(line).expect("each line is whole");
            }
            return;
        }
    }
    panic!("{command} never stopped in the middle of the walk");
}
