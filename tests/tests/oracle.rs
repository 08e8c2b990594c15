//! Compares with programs that users trust today: `ps` of procps and the `procfs` crate, on states
//! of mktask and on everything that runs here.

use std::collections::BTreeMap;
use std::process::Command;

use procfs::process::Process;
use taskdiag::Strategy;
use taskdiag_tests::state::ask;
use taskdiag_tests::{Mktask, Task, Value, engines, skip};

/// How often a comparison is repeated before a difference counts. Other processes change what is
/// shared.
const TRIES: usize = 20;

/// The states that are compared.
const STATES: &[&[&str]] = &[
    &["idle"],
    &["zombie"],
    &["leader-gone"],
    &["stopped"],
    &["traced-stopped"],
    &["creds"],
    &["tty"],
    &["threads", "20"],
    &["sched", "fifo", "7"],
    &["sched", "idle", "0"],
    &["sched", "other", "-5"],
    &["cmdline", "5000"],
    &["memory"],
    &["burn", "100"],
];

fn states() -> Vec<Mktask> {
    let mut all = Vec::new();
    for args in STATES {
        match Mktask::start(args) {
            Ok(m) => all.push(m),
            Err(why) => skip(&format!("oracles on {args:?}"), &why),
        }
    }
    assert!(!all.is_empty(), "no state to look at");
    all
}

/// The output of ps as pid → fields. The last column may have blanks.
fn ps(columns: &[&str], pids: &str) -> BTreeMap<u32, Vec<String>> {
    let list = format!("pid:12,{}", columns.join(","));
    let out = Command::new("ps").args(["ww", "--no-headers", "-o", &list, "-p", pids]).output();
    let out = out.expect("ps runs");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let line = |l: &str| {
        let mut rest = l.trim();
        let mut words = Vec::new();
        for _ in 0..columns.len() {
            let (word, tail) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
            words.push(word.to_string());
            rest = tail.trim_start();
        }
        words.push(rest.to_string());
        (words.remove(0).parse().expect("a pid"), words)
    };
    text.lines().map(line).collect()
}

fn have_ps(test: &str) -> bool {
    let have = Command::new("ps").arg("--version").output().is_ok();
    if !have {
        skip(test, "there is no ps: install procps");
    }
    have
}

/// The letters that ps prints for a scheduling policy.
fn class(policy: i128) -> &'static str {
    match policy {
        0 => "TS",
        1 => "FF",
        2 => "RR",
        3 => "B",
        5 => "IDL",
        6 => "DLN",
        _ => "?",
    }
}

/// A column of ps, and a function that makes the same text from a task.
type Column = (&'static str, fn(&Task) -> String);

const COLUMNS: &[Column] = &[
    ("ppid:12", |t| t.num("base.ppid").to_string()),
    ("pgid:12", |t| t.num("base.pgid").to_string()),
    ("sid:12", |t| t.num("base.sid").to_string()),
    ("uid:12", |t| t.num("cred.euid").to_string()),
    ("ruid:12", |t| t.num("cred.uid").to_string()),
    ("suid:12", |t| t.num("cred.suid").to_string()),
    ("fsuid:12", |t| t.num("cred.fsuid").to_string()),
    ("gid:12", |t| t.num("cred.egid").to_string()),
    ("nlwp:12", |t| t.num("stat.num_threads").to_string()),
    ("cls:12", |t| class(t.num("stat.policy")).to_string()),
    ("rtprio:12", |t| match t.num("stat.policy") {
        0 => "-".to_string(),
        _ => t.num("stat.rt_priority").to_string(),
    }),
    ("ni:12", |t| match t.num("stat.policy") {
        0 | 3 => t.num("stat.nice").to_string(),
        _ => "-".to_string(),
    }),
    ("opri:12", |t| (60 + t.num("stat.priority")).to_string()),
    ("tpgid:12", |t| t.num("stat.tty_pgrp").to_string()),
    ("vsz:16", |t| size(t, "statm.size_bytes")),
    ("rss:16", |t| size(t, "statm.rss_bytes")),
    ("s:12", |t| char::from(t.num("base.state") as u8).to_string()),
    ("min_flt:16", |t| t.num("stat.minflt").to_string()),
    ("maj_flt:16", |t| t.num("stat.majflt").to_string()),
];

fn size(t: &Task, key: &str) -> String {
    // ps prints 0 for a task without an address space.
    if t.missing("statm").is_some() { "0".into() } else { (t.num(key) / 1024).to_string() }
}

#[test]
fn ps_agrees() {
    if !have_ps("ps_agrees") {
        return;
    }
    let names: Vec<&str> = COLUMNS.iter().map(|c| c.0).collect();
    let states = states();
    for m in &states {
        for engine in engines() {
            let mut differences = Vec::new();
            for _ in 0..TRIES {
                differences.clear();
                let theirs = ps(&names, &m.pid().to_string());
                let a = ask(*engine, Strategy::One, m.pid());
                let row = &theirs[&m.pid()];
                // ps does not read the threads of a process whose first thread has ended.
                let blind =
                    |name: &str| m.state() == "leader-gone" && ["vsz", "rss"].contains(&name);
                let columns = COLUMNS.iter().zip(row);
                for (column, got) in columns.filter(|c| !blind(c.0.0.trim_end_matches(":16"))) {
                    let ours = (column.1)(&a.task(m.pid()));
                    if ours != *got {
                        differences.push(format!("{}: ours {ours}, ps {got}", column.0));
                    }
                }
                if differences.is_empty() {
                    break;
                }
            }
            let list = differences.join("\n");
            assert!(list.is_empty(), "{engine} and ps of {}:\n{list}", m.state());
        }
    }
}

#[test]
fn ps_agrees_on_arguments_and_start() {
    if !have_ps("ps_agrees_on_arguments_and_start") {
        return;
    }
    for m in &states() {
        let pid = m.pid().to_string();
        let before = boottime_ns();
        let theirs = ps(&["etimes:12", "args"], &pid);
        let after = boottime_ns();
        let row = &theirs[&m.pid()];
        for engine in engines() {
            let a = ask(*engine, Strategy::One, m.pid());
            let t = a.task(m.pid());
            // The age at the time of ps. Two clocks give the range in which it must be.
            let age = |now: i128| (now - t.num("base.start_time_ns")) / 1_000_000_000;
            let (low, high) = (age(before) - 2, age(after) + 2);
            let etimes: i128 = row[0].parse().expect("seconds");
            assert!((low..=high).contains(&etimes), "{a}: {low} to {high} s old, ps says {etimes}");
            if let Some(Value::Bytes(cmdline)) = t.get("cmdline") {
                let args = String::from_utf8_lossy(cmdline.strip_suffix(b"\0").unwrap_or(cmdline));
                // ps shows a '?' for each character that is not printable.
                let plain = args.bytes().all(|b| b == 0 || (32..127).contains(&b));
                // ps sees no arguments of a process whose first thread has ended.
                if plain && !row[1].trim_end().ends_with("<defunct>") {
                    assert_eq!(args.replace('\0', " ").trim_end(), row[1].trim_end(), "{a}");
                }
            }
        }
    }
}

fn boottime_ns() -> i128 {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec of ours.
    let rc = unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &mut ts) };
    assert_eq!(rc, 0);
    i128::from(ts.tv_sec) * 1_000_000_000 + i128::from(ts.tv_nsec)
}

#[test]
fn ps_sees_the_same_processes() {
    if !have_ps("ps_sees_the_same_processes") {
        return;
    }
    for engine in engines() {
        let a1 = ask(*engine, Strategy::All, 0);
        let out = Command::new("ps").args(["-e", "--no-headers", "-o", "pid"]).output();
        let out = out.expect("ps runs");
        let theirs: Vec<u32> = String::from_utf8_lossy(&out.stdout)
            .split_whitespace()
            .map(|p| p.parse().expect("a pid"))
            .collect();
        let a2 = ask(*engine, Strategy::All, 0);
        // A pid may belong to another process by then.
        let lasting = a1
            .pids()
            .into_iter()
            .filter(|p| a2.get(*p).is_some_and(|later| later.identity() == a1.task(*p).identity()));
        let mut n = 0;
        for pid in lasting {
            assert!(theirs.contains(&pid), "{a1} has {pid}, ps has not");
            n += 1;
        }
        assert!(n >= 2, "{a1}: only {n} processes were compared");
    }
}

#[test]
fn the_procfs_crate_agrees() {
    for m in &states() {
        for engine in engines() {
            let mut differences = Vec::new();
            for _ in 0..TRIES {
                let a = ask(*engine, Strategy::One, m.pid());
                differences = against_crate(&a.task(m.pid()));
                if differences.is_empty() {
                    break;
                }
            }
            let list = differences.join("\n");
            assert!(list.is_empty(), "{engine} and the procfs crate of {}:\n{list}", m.state());
        }
    }
}

#[test]
fn the_procfs_crate_agrees_on_the_whole_machine() {
    for engine in engines() {
        let mut repeated: BTreeMap<String, usize> = BTreeMap::new();
        let mut n = 0;
        for done in 1..=TRIES {
            let a = ask(*engine, Strategy::All, 0);
            n = 0;
            // The threads of this process also run other tests.
            for t in a.tasks().values().filter(|t| t.tgid != std::process::id()) {
                // Other processes are busy meanwhile.
                for d in against_crate(t).into_iter().filter(|d| lasts(d)) {
                    let key = format!("{} {}", t.pid, d.split(':').next().unwrap_or(&d));
                    *repeated.entry(key).or_default() += 1;
                }
                n += 1;
            }
            // No difference appeared each time.
            if repeated.values().all(|times| *times < done) {
                break;
            }
        }
        assert!(n >= 2, "{engine}: only {n} processes");
        let bad: Vec<_> = repeated.into_iter().filter(|r| r.1 >= TRIES).map(|r| r.0).collect();
        assert!(bad.is_empty(), "{engine} and the procfs crate differ each time:\n{bad:#?}");
    }
}

/// Whether the difference is about a value that does not change for most tasks.
fn lasts(difference: &str) -> bool {
    // Some tests start and end threads all the time, and their states are compared by
    // `the_procfs_crate_agrees`.
    let counts = [
        "io.",
        "statm.",
        "stat.minflt",
        "stat.cminflt",
        "stat.processor",
        "stat.num_threads",
        "base.state",
    ];
    !counts.iter().any(|c| difference.starts_with(c))
}

/// The differences between a task of ours and the values that the crate reads now.
fn against_crate(t: &Task) -> Vec<String> {
    let Ok(p) = Process::new(t.pid as i32) else { return Vec::new() };
    let mut out = Vec::new();
    let mut check = |field: &str, theirs: Option<i128>| {
        if let (Some(Value::Num(ours)), Some(theirs)) = (t.get(field), theirs) {
            if *ours != theirs {
                out.push(format!("{field}: ours {ours}, theirs {theirs}"));
            }
        }
    };
    let Ok(stat) = p.stat() else { return Vec::new() };
    let tick = 10_000_000;
    check("base.ppid", Some(stat.ppid.into()));
    check("base.pgid", Some(stat.pgrp.into()));
    check("base.sid", Some(stat.session.into()));
    check("base.state", Some(u32::from(stat.state).into()));
    check("base.task_flags", Some(stat.flags.into()));
    check("stat.tty_nr", Some(stat.tty_nr.into()));
    check("stat.tty_pgrp", Some(stat.tpgid.into()));
    check("stat.priority", Some(stat.priority.into()));
    check("stat.nice", Some(stat.nice.into()));
    check("stat.num_threads", Some(stat.num_threads.into()));
    check("stat.processor", stat.processor.map(Into::into));
    check("stat.rt_priority", stat.rt_priority.map(Into::into));
    check("stat.policy", stat.policy.map(Into::into));
    check("stat.exit_signal", stat.exit_signal.map(Into::into));
    check("stat.minflt", Some(stat.minflt.into()));
    check("stat.cminflt", Some(stat.cminflt.into()));
    if let Ok(s) = p.status() {
        let kib = |v: Option<u64>| v.map(|k| i128::from(k) * 1024);
        check("cred.uid", Some(s.ruid.into()));
        check("cred.euid", Some(s.euid.into()));
        check("cred.suid", Some(s.suid.into()));
        check("cred.fsuid", Some(s.fuid.into()));
        check("cred.fsgid", Some(s.fgid.into()));
        check("cred.tracer_pid", Some(s.tracerpid.into()));
        check("cred.cap_effective", Some(s.capeff.into()));
        check("cred.cap_bounding", s.capbnd.map(Into::into));
        check("cred.no_new_privs", s.nonewprivs.map(Into::into));
        check("cred.seccomp", s.seccomp.map(Into::into));
        check("statm.size_bytes", kib(s.vmsize));
        check("statm.peak_size_bytes", kib(s.vmpeak));
        check("statm.rss_bytes", kib(s.vmrss));
        check("statm.rss_anon_bytes", kib(s.rssanon));
        check("statm.rss_shmem_bytes", kib(s.rssshmem));
        check("statm.data_bytes", kib(s.vmdata));
        check("statm.stack_bytes", kib(s.vmstk));
        check("statm.text_bytes", kib(s.vmexe));
        check("statm.lib_bytes", kib(s.vmlib));
        check("statm.locked_bytes", kib(s.vmlck));
        check("statm.page_tables_bytes", kib(s.vmpte));
        check("statm.swap_bytes", kib(s.vmswap));
    }
    if let Ok(io) = p.io() {
        check("io.rchar", Some(io.rchar.into()));
        check("io.syscw", Some(io.syscw.into()));
    }
    if let Some(Value::Num(ours)) = t.get("base.start_time_ns") {
        if ours / tick != i128::from(stat.starttime) {
            out.push(format!("start_time: ours {ours} ns, theirs {} ticks", stat.starttime));
        }
    }
    out
}
