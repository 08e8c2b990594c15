//! Compares with the `procfs` crate, on states of mktask and on everything that runs here. `peers`
//! compares with `ps` of procps.

use std::collections::BTreeMap;

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
