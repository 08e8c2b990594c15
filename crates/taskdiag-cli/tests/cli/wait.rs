//! `taskdiag wait`.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Ended, parts, run, taskdiag};

fn sleeper() -> Ended {
    Ended(Command::new("sleep").arg("600").spawn().expect("sleep"))
}

#[test]
fn waits_for_all_and_reports_how_they_ended() {
    let mut exits = Command::new("sh")
        .args(["-c", "read x; exit 4"])
        .stdin(Stdio::piped())
        .spawn()
        .expect("sh");
    let killed = sleeper();
    let (one, other) = (exits.id().to_string(), killed.pid());
    let waits = taskdiag()
        .args(["wait", "--jsonl", &format!("{one},{other}"), &one])
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    // The parent has not reaped these processes, so they still exist whenever the command begins.
    drop(exits.stdin.take());
    let kill = Command::new("kill").args(["-TERM", &other]).status().expect("kill");
    assert!(kill.success());
    let (code, out, _) = parts(&waits.wait_with_output().expect("it ends"));
    exits.wait().expect("it is mine");
    assert_eq!(code, 0, "{out}");
    let rows: Vec<serde_json::Value> =
        out.lines().map(|l| serde_json::from_str(l).expect("JSON")).collect();
    assert_eq!(rows.len(), 2, "{out}");
    let of = |pid: &str| rows.iter().find(|r| r["pid"].to_string().as_str() == pid).expect("a row");
    assert_eq!(of(&one)["exit_code"], 4, "{out}");
    assert_eq!(of(&one)["status"], "exited 4", "{out}");
    assert_eq!(of(&other)["signal"], 15, "{out}");
    assert_eq!(of(&other)["status"], "killed by SIGTERM", "{out}");
    assert_eq!(of(&other)["core_dumped"], false, "{out}");
}

#[test]
fn any_waits_for_the_first_end() {
    let (stays, mut ends) = (sleeper(), sleeper());
    ends.0.kill().expect("it is mine");
    let (code, out, err) = parts(&run(&["wait", "--any", &stays.pid(), &ends.pid()]));
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.len(), 2, "{out}");
    assert!(lines[1].trim_start().starts_with(&ends.pid()), "{out}");
    assert!(lines[1].ends_with("killed by SIGKILL"), "{out}");
}

/// `--container`, `--pod` and `--unit` are conditions, too.
#[test]
fn those_that_match_at_the_start_are_waited_for() {
    let (mut ends, stays) = (sleeper(), sleeper());
    let condition = format!("pid in ({}, {}) and comm == sleep", ends.pid(), std::process::id());
    // It has the name of its program after the exec.
    let until = Instant::now() + Duration::from_secs(60);
    let comm = || std::fs::read_to_string(format!("/proc/{}/comm", ends.pid()));
    while !comm().is_ok_and(|name| name == "sleep\n") {
        assert!(Instant::now() < until, "it does not start");
        std::thread::sleep(Duration::from_millis(5));
    }
    let (code, out, err) = parts(&run(&["wait", "-t", "300ms", "--where", &condition]));
    assert_eq!((code, out.lines().count()), (3, 1), "{out}{err}");
    ends.0.kill().expect("it is mine");
    let (code, out, err) = parts(&run(&["wait", "--where", &condition]));
    // A zombie still matches, and counts as one that ends now.
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    assert!(out.lines().nth(1).is_some_and(|l| l.ends_with("killed by SIGKILL")), "{out}");
    drop(stays);
    let (code, out, _) = parts(&run(&["wait", "--unit", "taskdiag-no-such-unit"]));
    assert_eq!((code, out.as_str()), (1, ""));
    for wrong in [&["wait"][..], &["wait", "1", "--unit", "x"], &["wait", "--where", "nosuch > 1"]]
    {
        assert_eq!(parts(&run(wrong)).0, 2, "{wrong:?}");
    }
}

#[test]
fn a_time_limit_ends_the_wait() {
    let stays = sleeper();
    let begun = Instant::now();
    let (code, out, err) = parts(&run(&["wait", "-t", "200ms", &stays.pid()]));
    assert!(begun.elapsed() >= Duration::from_millis(200));
    assert_eq!((code, out.lines().count()), (3, 1), "{out}");
    let words =
        format!("taskdiag: the time is over, and 1 process has not ended: {}\n", stays.pid());
    assert_eq!(err, words);
}

#[test]
fn a_missing_process_is_an_error_of_wait() {
    let (code, out, err) = parts(&run(&["wait", "2147483647"]));
    assert_eq!((code, out.as_str(), err.as_str()), (1, "", "taskdiag: no process 2147483647\n"));
    for bad in [&["wait"][..], &["wait", "x"], &["wait", "0"], &["wait", ","]] {
        assert_eq!(parts(&run(bad)).0, 2, "{bad:?}");
    }
}

#[test]
fn wait_reports_the_last_name_of_a_process() {
    // A shell forks, and the child becomes another program a while later. The test reaps it, which
    // happens after the report.
    let late = Command::new("sh").args(["-c", "sleep .3; exec sleep .3"]).spawn().expect("sh");
    let (code, out, err) = parts(&run(&["wait", "--jsonl", &late.id().to_string()]));
    assert_eq!((code, &err[..]), (0, ""), "{out}");
    assert!(out.contains("\"comm\":\"sleep\""), "{out}");
    Ended(late);
}

#[test]
fn a_zombie_has_a_name() {
    let mut zombie = Command::new("sh").args(["-c", "exit 3"]).spawn().expect("sh");
    let stat = format!("/proc/{}/stat", zombie.id());
    while !std::fs::read_to_string(&stat).expect("it is not reaped").contains(") Z ") {
        std::thread::sleep(Duration::from_millis(5));
    }
    let (code, out, err) = parts(&run(&["wait", "--jsonl", &zombie.id().to_string()]));
    assert_eq!((code, &err[..]), (0, ""), "{out}");
    assert!(out.contains("\"comm\":\"sh\"") && out.contains("\"exit_code\":3"), "{out}");
    zombie.wait().expect("it is mine");
}

/// The inode of a process's pidfd, or `None` where this kernel has none (before Linux 6.9).
fn inode(pid: u32) -> Option<u64> {
    let pid = rustix::process::Pid::from_raw(pid as i32).expect("a pid");
    let fd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty());
    taskdiag::pidfd_inode(fd.expect("it is mine")).expect("it is open")
}

#[test]
fn another_process_with_the_pid_counts_as_gone() {
    let here = sleeper();
    let pid = here.pid();
    let Some(inode) = inode(here.0.id()) else {
        let (code, _, err) = parts(&run(&["wait", &format!("{pid}:1")]));
        assert!(code == 4 && err.contains("Linux 6.9"), "{code} {err}");
        return;
    };
    let (this, other) = (format!("{pid}:{inode}"), format!("{pid}:{}", inode + 1));
    let (code, out, err) = parts(&run(&["wait", &other]));
    assert_eq!((code, out, err), (1, String::new(), format!("taskdiag: no process {pid}\n")));
    assert_eq!(parts(&run(&["wait", "-t", "10ms", &this])).0, 3);
    // The last word of each is the place of the process.
    for typed in [
        &["ps", "-o", "pid", "-p"][..],
        &["ps", "-o", "pid", "-q"],
        &["ps", "--threads", "-o", "pid", "-p"],
        &["ps"],
        &["memory", "-p"],
        &["tree", "-p"],
        &["files", "-p"],
        &["files", "--count", "-p"],
        &["why"],
        &["top", "--once", "--rows", "9", "-p"],
        &["top", "--once", "--threads", "--rows", "9", "-p"],
    ] {
        let with = |last: &str| parts(&run(&[typed, &[last]].concat()));
        let (code, out, err) = with(&this);
        assert!(code == 0 && out.contains(&pid), "{typed:?}: {code} {out} {err}");
        // The others name what they show, so there is nothing to show.
        let (code, out, err) = with(&other);
        let shows = out.lines().any(|l| l.contains("sleep") && l.contains(&pid));
        assert!(!shows && (code == 1 || typed[0] == "top"), "{typed:?}: {code} {out} {err}");
    }
    for bad in ["1:", "1:x", "1:-1", ":1", "x:1", "1:+1"] {
        assert_eq!(parts(&run(&["wait", bad])).0, 2, "{bad}");
        assert_eq!(parts(&run(&["ps", "-p", bad])).0, 2, "{bad}");
    }
}
