//! Answers of the service have the same values as the caller's own /proc.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use taskdiag::service::shown;
use taskdiag::{Group, Groups, Strategy, field};
use taskdiag_tests::busy::Patience;
use taskdiag_tests::{Ended, Mktask, is_root, skip};

use crate::daemon::{Daemon, NOBODY, text};
use crate::helper::{ARGS, WHAT};

/// Rows by process or thread.
type Rows = BTreeMap<u64, serde_json::Map<String, Value>>;

/// Kinds of callers to whom /proc shows everything.
const CALLERS: &[&[&str]] = &[
    NOBODY,
    &["setpriv", "--reuid=4242", "--regid=0", "--groups=4,27"],
    &["setpriv", "--reuid=0", "--regid=4242", "--clear-groups", "--bounding-set=-all"],
    &[],
];

/// States of tasks that do not change by themselves.
const STATES: &[&[&str]] = &[
    &["threads", "3"],
    &["zombie"],
    &["leader-gone"],
    &["stopped"],
    &["traced-stopped"],
    &["odd-comm"],
    &["cmdline", "5000"],
    &["argc0"],
    &["cmdline-none"],
    &["cmdline-wiped"],
    &["cmdline-rewritten"],
    &["cmdline-titled"],
    &["creds"],
    &["user", "4711"],
    &["seccomp-filter"],
    &["undumpable"],
    &["namespaces"],
    &["pidns"],
    &["userns"],
    &["children"],
    &["dead-threads"],
    &["memory"],
];

/// The columns of groups that the service shows, without the column that counts all processes of a
/// user, because other tests change it.
fn columns(strategy: Strategy) -> Vec<&'static str> {
    let shown = shown::groups(strategy);
    let own = |f: &&field::Field| !f.groups.is_empty() && shown.contains(f.groups);
    field::all().filter(own).map(|f| f.name).filter(|n| *n != "sigqueued").collect()
}

fn rows(daemon: &Daemon, before: &[&str], engine: &str, strategy: Strategy) -> Rows {
    let columns = format!("pid,tid,{}", columns(strategy).join(","));
    let mut args = vec!["ps", "-e", "--jsonl", "--engine", engine, "-o", &columns];
    if strategy == Strategy::AllThread {
        args.push("-T");
    }
    let out = daemon.taskdiag(before, &args);
    assert!(matches!(out.status.code(), Some(0 | 3)), "{args:?}: {}", text(&out.stderr));
    let key = if strategy == Strategy::AllThread { "tid" } else { "pid" };
    let parsed = text(&out.stdout);
    let rows = parsed.lines().map(|l| serde_json::from_str(l).expect("a line of JSON"));
    rows.map(|row: serde_json::Map<String, Value>| (row[key].as_u64().expect("a number"), row))
        .collect()
}

/// The states that this machine can make.
fn made() -> Vec<Mktask> {
    let start = |args: &&[&str]| Mktask::or_skip(&format!("the service and {args:?}"), args);
    STATES.iter().filter_map(start).collect()
}

/// Compares an answer of the service with two of /proc, before and after it. Values that do not
/// change in /proc must be the same. Returns how many values were the same.
fn compare(daemon: &Daemon, before: &[&str], strategy: Strategy, of: &[u64]) -> usize {
    let read = |engine| rows(daemon, before, engine, strategy);
    let (a, here, b) = (read("procfs"), read("service"), read("procfs"));
    let mut same = 0;
    for pid in of {
        let get =
            |rows: &Rows| rows.get(pid).unwrap_or_else(|| panic!("{before:?}: no {pid}")).clone();
        let (a, here, b) = (get(&a), get(&here), get(&b));
        for (name, value) in &a {
            // The answer of procfs may have a flag that the service lacks, if procfs read the file
            // with that flag for another group.
            if b.get(name) == Some(value) {
                assert_eq!(here.get(name), Some(value), "{before:?}: {name} of {pid}");
                same += 1;
            }
        }
    }
    same
}

/// Waits until the service has read the command lines of these processes, so that it shows them.
fn knows_texts(daemon: &Daemon, of: &[u64]) {
    let mut patience = Patience::new(Duration::from_secs(30));
    let ask = |engine| {
        let args = ["ps", "-e", "--jsonl", "--engine", engine, "-o", "pid,args"];
        let said = text(&daemon.taskdiag(NOBODY, &args).stdout);
        let line = |pid: &u64| {
            let line = said.lines().find(|l| l.contains(&format!("\"pid\":{pid},")));
            line.expect("it is there").to_owned()
        };
        of.iter().map(line).collect()
    };
    loop {
        let (own, told): (Vec<String>, Vec<String>) = (ask("procfs"), ask("service"));
        if own == told {
            return;
        }
        assert!(!patience.is_over(), "{own:?} {told:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn processes_have_the_same_values_from_the_service() {
    let Some(daemon) = Daemon::start("processes_have_the_same_values_from_the_service") else {
        return;
    };
    let made = made();
    let pids: Vec<u64> = made.iter().map(|m| u64::from(m.pid())).collect();
    assert!(!pids.is_empty(), "no state can be made");
    knows_texts(&daemon, &pids);
    for before in CALLERS {
        let same = compare(&daemon, before, Strategy::All, &pids);
        assert!(same >= pids.len() * 40, "{before:?}: {same} values only");
    }
}

#[test]
fn threads_have_the_same_values_from_the_service() {
    let Some(daemon) = Daemon::start("threads_have_the_same_values_from_the_service") else {
        return;
    };
    let Ok(task) = Mktask::start(&["threads", "3"]) else { panic!("always possible") };
    let pid = task.pid();
    let tids = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it lives");
    let tids: Vec<u64> = tids
        .map(|t| t.expect("a thread").file_name().to_string_lossy().parse().expect("a number"))
        .collect();
    for before in CALLERS {
        let same = compare(&daemon, before, Strategy::AllThread, &tids);
        assert!(same >= tids.len() * 40, "{before:?}: {same} values only");
    }
}

/// The answer has exactly the processes of the caller's /proc.
#[test]
fn the_service_lists_the_processes_of_the_callers_proc() {
    let Some(daemon) = Daemon::start("the_service_lists_the_processes_of_the_callers_proc") else {
        return;
    };
    let read = |engine: &str| {
        let args = ["ps", "-e", "--engine", engine, "--no-headers", "-o", "pid,ppid,comm"];
        let out = daemon.taskdiag(NOBODY, &args);
        text(&out.stdout)
            .lines()
            .map(|l| l.trim().to_owned())
            .collect::<std::collections::BTreeSet<_>>()
    };
    // The name of a kernel thread shows its present work, and may change for a moment. A process
    // that the service lacks must be missing each time.
    let mut patience = Patience::new(Duration::from_secs(5));
    loop {
        let (a, here, b) = (read("procfs"), read("service"), read("procfs"));
        let is_other = |l: &&String| l.split(' ').next() != Some("1");
        let stayed: Vec<_> = a.intersection(&b).filter(is_other).collect();
        assert!(stayed.len() > 3);
        let lacking: Vec<_> = stayed.into_iter().filter(|l| !here.contains(*l)).collect();
        if lacking.is_empty() {
            return;
        }
        assert!(!patience.is_over(), "the service lacks {lacking:?}");
    }
}

/// A process may make its arguments unreadable. BPF reads them nevertheless, so the service must
/// not show them.
#[test]
fn arguments_that_proc_hides_are_not_shown_by_the_service() {
    let test = "arguments_that_proc_hides_are_not_shown_by_the_service";
    let Some(daemon) = Daemon::start(test) else { return };
    let mut command = daemon.command(&[], "helper", ARGS);
    let hides = command.env(WHAT, "hide-args").stdout(Stdio::piped()).spawn();
    let mut hides = Ended(hides.expect("it runs"));
    let mut said = BufReader::new(hides.0.stdout.take().expect("piped")).lines();
    let pid = said
        .find_map(|l| l.ok()?.split_once("hidden ")?.1.trim().parse::<u32>().ok())
        .expect("it reports that");
    let mut patience = Patience::new(Duration::from_secs(20));
    while std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|text| !text.is_empty()) {
        assert!(!patience.is_over(), "/proc shows its arguments still");
        std::thread::sleep(Duration::from_millis(5));
    }
    let of = |engine: &str, who: &[&str]| {
        let out =
            daemon.taskdiag(who, &["ps", "-e", "--jsonl", "--engine", engine, "-o", "pid,args"]);
        let said = text(&out.stdout);
        said.lines()
            .find(|l| l.contains(&format!("\"pid\":{pid},")))
            .expect("it is there")
            .to_owned()
    };
    if !of("bpf", &[]).contains("helper::run") {
        skip(test, "BPF does not read such pages here, so nothing can leak");
    }
    for _ in 0..5 {
        let line = of("service", NOBODY);
        assert!(!line.contains("helper::run"), "{line}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Public values come from the service, and private ones from the caller's own /proc, if it shows
/// them.
#[test]
fn private_groups_are_joined() {
    let Some(daemon) = Daemon::start("private_groups_are_joined") else { return };
    let of_root = Mktask::start(&["threads", "2"]).expect("always possible");
    let ask = |who: &[&str], columns: &str| {
        let out = daemon.taskdiag(who, &["ps", "-e", "--jsonl", "--stats", "-o", columns]);
        let (said, stats) = (text(&out.stdout), text(&out.stderr));
        let line = said.lines().find(|l| l.contains(&format!("\"pid\":{},", of_root.pid())));
        (line.expect("it is there").to_owned(), stats)
    };
    let (line, stats) = ask(NOBODY, "pid,rss,nice,exe,rbytes");
    if !stats.contains("engine service") {
        // On a machine with very few processes /proc is cheaper.
        skip("private_groups_are_joined", "auto chooses another engine here");
        return;
    }
    assert!(stats.contains("engine procfs"), "{stats}");
    let row: Value = serde_json::from_str(&line).expect("JSON");
    assert!(row["rss"].as_u64().is_some_and(|n| n > 0) && row["ni"].is_i64(), "{line}");
    assert!(row["exe"].is_null() && row["read_bytes"].is_null(), "of another user: {line}");
}

/// The table of public data has no group that needs the right to trace.
#[test]
fn the_table_has_nothing_private() {
    let private = [
        Group::Vma,
        Group::VmaStat,
        Group::Paths,
        Group::Io,
        Group::Ns,
        Group::Fd,
        Group::Environ,
        Group::Rollup,
        Group::Wchan,
        Group::Kstack,
        Group::FileStat,
        Group::Net,
    ];
    let all = shown::groups(Strategy::All) | shown::groups(Strategy::AllThread);
    for group in private {
        assert!(!all.contains(Groups::from(group)), "{group}");
    }
    for row in shown::TABLE {
        for file in row.files {
            // Everyone can open the file of another user's process, seen as a user without any
            // rights.
            let out = std::process::Command::new("setpriv")
                .args(["--reuid=65534", "--regid=65534", "--clear-groups", "cat"])
                .arg(format!("/proc/{}/{file}", std::process::id()))
                .output();
            if !is_root() {
                skip("the_table_has_nothing_private", "needs root, to be another user");
                return;
            }
            assert!(out.expect("setpriv runs").status.success(), "{file}");
        }
    }
}
