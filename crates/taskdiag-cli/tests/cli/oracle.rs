//! Against what users trust today: procps `ps`, on processes that do not change meanwhile.
//!
//! Whole output is compared byte by byte, headers, widths and all.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::common::{parts, run, wait_for_sleep};

/// Processes that stand still, ended with the value.
struct Still(Vec<Child>);

impl Still {
    fn new() -> Still {
        let spawn = |program: &str, args: &[&str]| {
            let mut c = Command::new(program);
            c.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            c.spawn().ok()
        };
        let all = [
            spawn("sleep", &["1000"]),
            spawn("nice", &["-n", "5", "sleep", "1001"]),
            spawn("setsid", &["sleep", "1002"]),
            spawn("sh", &["-c", "kill -STOP $$; exit"]),
            // Needs privilege; without it there is one process less.
            spawn("chrt", &["-f", "10", "sleep", "1003"]),
            spawn("chrt", &["-b", "0", "sleep", "1004"]),
            // A zombie until it is waited for.
            spawn("true", &[]),
        ];
        let all: Vec<Child> = all.into_iter().flatten().collect();
        all.iter().for_each(|child| wait_for_sleep(child.id(), "sleep"));
        Still(all)
    }
    fn pids(&self) -> String {
        let pids: Vec<String> = self.0.iter().map(|c| c.id().to_string()).collect();
        pids.join(",")
    }
}

impl Drop for Still {
    fn drop(&mut self) {
        for c in &mut self.0 {
            // It may have ended already.
            let _ = c.kill();
            let _ = c.wait();
        }
    }
}

fn procps(args: &[&str]) -> Option<String> {
    let o = Command::new("ps").env("LC_ALL", "C.UTF-8").args(args).output().ok()?;
    o.status.success().then(|| String::from_utf8_lossy(&o.stdout).into_owned())
}

/// What we and procps say to the same arguments; `None`: procps does not take them. What differs
/// is asked again: a clock may tick, or someone set the largest pid, between the two.
fn settled(args: &[&str]) -> Option<(String, String)> {
    // Only some versions mark the name of a zombie.
    let plain = |s: String| s.replace(" <defunct>", "");
    let mut pair = (String::new(), plain(procps(args)?));
    for _ in 0..20 {
        pair.0 = plain(parts(&run(&[&["ps"], args].concat())).1);
        if pair.0 == pair.1 {
            break;
        }
        pair.1 = plain(procps(args)?);
    }
    Some(pair)
}

/// Say loudly what is not tested: in the list that `make test` prints at its end.
pub fn skip(test: &str, why: &str) {
    let required = std::env::var("TASKDIAG_REQUIRE").unwrap_or_default();
    assert!(!required.split(',').any(|r| r == "procps"), "procps is required, but {why}");
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("it is in the target");
    let list = File::options().create(true).append(true).open(target.join("taskdiag-skips.txt"));
    writeln!(list.expect("the target can be written"), "{test}: {why}").expect("written");
}

#[test]
fn columns_as_procps_has_them() {
    if procps(&["--version"]).is_none_or(|v| !v.contains("procps")) {
        return skip("columns_as_procps_has_them", "procps ps is not installed");
    }
    let still = Still::new();
    let pids = still.pids();
    // An older procps may not know all columns; ps L lists those that it knows.
    let list = procps(&["L"]).expect("procps lists its columns");
    let known: Vec<&str> = list.lines().filter_map(|l| l.split_whitespace().next()).collect();
    let columns: Vec<&str> = COLUMNS.iter().copied().filter(|c| known.contains(c)).collect();
    assert!(columns.len() > 60, "only {columns:?} can be compared");
    let same = |columns: &str| {
        let (got, want) = settled(&["-p", &pids, "-o", columns]).expect("procps answers");
        (got == want, got, want)
    };
    // All at once, since procps looks at every process each time; which one, if they differ.
    let all = same(&columns.join(","));
    for column in columns.iter().filter(|_| !all.0) {
        let (_, got, want) = same(column);
        assert_eq!(got, want, "column {column}");
    }
    assert_eq!(all.1, all.2);
    // These are cut by procps unless they are the last.
    for column in ["args", "command", "cmd"] {
        let (_, got, want) = same(column);
        assert_eq!(got, want, "column {column}");
    }
}

/// Columns that stand still with their process.
const COLUMNS: &[&str] = &[
    "pid",
    "ppid",
    "pgid",
    "pgrp",
    "sid",
    "sess",
    "tpgid",
    "tty",
    "tt",
    "tname",
    "stat",
    "s",
    "state",
    "f",
    "uid",
    "euid",
    "ruid",
    "suid",
    "fsuid",
    "user",
    "euser",
    "ruser",
    "uname",
    "gid",
    "egid",
    "rgid",
    "group",
    "rgroup",
    "nlwp",
    "thcount",
    "ni",
    "nice",
    "pri",
    "opri",
    "priority",
    "pri_foo",
    "pri_bar",
    "pri_baz",
    "pri_api",
    "cls",
    "class",
    "policy",
    "sched",
    "rtprio",
    "psr",
    "vsz",
    "vsize",
    "rss",
    "rsz",
    "rssize",
    "pmem",
    "sz",
    "size",
    "lstart",
    "start",
    "stime",
    "start_time",
    "bsdstart",
    "time",
    "cputime",
    "bsdtime",
    "cputimes",
    "minflt",
    "majflt",
    "tid",
    "lwp",
    "spid",
    "supgid",
    "pending",
    "sig",
    "tsig",
    "blocked",
    "sigmask",
    "ignored",
    "caught",
    "wchan",
];

#[test]
fn views_as_procps_has_them() {
    if procps(&["--version"]).is_none_or(|v| !v.contains("procps")) {
        return skip("views_as_procps_has_them", "procps ps is not installed");
    }
    let still = Still::new();
    let pids = still.pids();
    for view in [
        "-f",
        "-F",
        "-fL",
        "-fj",
        "-l",
        "-lf",
        "l",
        "u",
        "j",
        "s",
        "-ouser,pid,args",
        "-o pid= -o comm=",
    ] {
        let mut wanted: Vec<&str> = view.split(' ').collect();
        wanted.extend(["-p", &pids]);
        let (got, want) = settled(&wanted).expect("procps answers");
        assert_eq!(got, want, "view {view}");
    }
}

#[test]
fn all_processes_are_there() {
    let Some(want) = procps(&["-eo", "pid=,ppid=,comm="]) else {
        return skip("all_processes_are_there", "procps ps is not installed");
    };
    let (_, got, _) = parts(&run(&["ps", "-eo", "pid=,ppid=,comm="]));
    let again = procps(&["-eo", "pid=,ppid=,comm="]).expect("it just did");
    let mut same = 0;
    // What is there before and after must be there in between. A worker thread renames itself.
    // procps has a question mark for each byte of a name that it cannot print, where we escape it.
    for line in want.lines().filter(|l| !l.contains("kworker") && !l.contains('?')) {
        if again.lines().any(|l| l == line) {
            let (line, got) = (line.replace(" <defunct>", ""), got.replace(" <defunct>", ""));
            assert!(got.lines().any(|l| l == line), "{line:?} is missing in\n{got}");
            same += 1;
        }
    }
    assert!(same > 0, "nothing was compared");
}
