//! Tests of the BPF programs themselves, on the kernel that runs.
//!
//! The newest program loads for every request, if it loads at all. A group whose code the verifier
//! of this kernel refuses would be answered by the program for older kernels. That answer would be
//! correct, but that program steps through all threads. The test has a process of its own, because
//! the choice is remembered.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use taskdiag::engine::bpf::{self, Bpf};
use taskdiag::{Engine, Groups, Request, Snapshot};
use taskdiag_tests::{Mktask, skip};

/// Does the newest program work here? If not, the test is skipped with the reason.
fn is_newest(test: &str) -> bool {
    let asked = Bpf::untried().run(&Request::one(std::process::id(), Groups::BASE));
    let why = match asked {
        Ok(_) if !Bpf::fell_back() => return true,
        Ok(_) => String::from("this kernel has no task iterators in programs"),
        Err(e) => e.to_string(),
    };
    skip(test, &why);
    false
}

#[test]
fn the_newest_program_loads_for_every_request() {
    if !is_newest("the_newest_program_loads_for_every_request") {
        return;
    }
    let me = std::process::id();
    let files = Groups::FD | Groups::PATHS | Groups::VMA | Groups::FILE_STAT;
    let alone = bpf::GROUPS.iter().map(Groups::from);
    let without = bpf::GROUPS.iter().map(|g| bpf::GROUPS - g.into());
    for groups in alone.chain(without).chain([files, bpf::GROUPS]) {
        // Two requests look ahead, each in its own way, which is more code.
        for (mut engine, req) in [
            (Bpf::untried(), Request::threads(me, groups)),
            (Bpf::untried().looking_ahead(), Request::threads(me, groups)),
            (Bpf::untried().looking_ahead(), Request::all(groups)),
        ] {
            let asked = engine.run(&req);
            assert!(asked.is_ok(), "{groups}: {asked:?}");
            let strategy = req.strategy;
            assert!(
                !Bpf::fell_back(),
                "the verifier refuses the newest program for {strategy} of {groups}"
            );
        }
    }
}

/// With TASKDIAG_TRIM=0, in a separate program, because all threads here share the environment.
#[test]
fn programs_as_compiled_give_the_same_answers() {
    if !is_newest("programs_as_compiled_give_the_same_answers") {
        return;
    }
    let still = Mktask::start(&["idle"]).expect("always possible");
    let pid = still.pid().to_string();
    let said = |trim: &str, args: &[&str]| {
        let mut command = Command::new(taskdiag_tests::cli::taskdiag());
        let ran =
            command.args(args).args(["-p", &pid, "--engine", "bpf"]).env("TASKDIAG_TRIM", trim);
        let ran = ran.output().expect("it runs");
        (ran.status.code(), String::from_utf8_lossy(&ran.stdout).into_owned())
    };
    for args in [
        &["ps", "-o", "pid,ppid,comm,args,user,stat,rss,vsz,nlwp,lstart,cgroup,exe,cwd,ipcns"][..],
        &["ps", "-L", "-o", "pid,tid,comm,time,wchan,kstack,policy,sigmask"],
        &["files"],
        &["files", "--count"],
        &["maps"],
    ] {
        let (trimmed, compiled) = (said("1", args), said("0", args));
        assert!(trimmed.1.contains(&pid), "{args:?}: {trimmed:?}");
        assert_eq!(compiled, trimmed, "{args:?}");
    }
}

/// A walk that loses its place, because all tasks that it remembers have ended, begins again. No
/// task is lost or twice.
#[test]
fn a_walk_that_loses_its_place_begins_again() {
    // The program for older kernels remembers no tasks.
    if !is_newest("a_walk_that_loses_its_place_begins_again") {
        return;
    }
    // On an idle machine it takes less than a second. On an emulator, threads may take longer to
    // begin than a walk rests.
    const LONG: Duration = Duration::from_secs(200);
    let (repeats, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let stable = Mktask::start(&["threads", "20"]).expect("a process");
    std::thread::scope(|scope| {
        // Each of 64 threads is replaced by a new one after a moment. So if a walk pauses after
        // these threads, all tasks that it remembers have ended when it continues.
        for _ in 0..64 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let short = || std::thread::sleep(Duration::from_micros(500));
                    let _ =
                        std::thread::Builder::new().spawn(short).map(std::thread::JoinHandle::join);
                }
            });
        }
        let asking = || {
            let mut engine = Bpf::untried().forgetful().keeping();
            let end = Instant::now() + LONG;
            while repeats.load(Ordering::Relaxed) < 3 && Instant::now() < end {
                let asked = engine.run(&Request::all_threads(Groups::BASE)).expect("an answer");
                let snapshot = Snapshot::parse(asked.stream).expect("a stream");
                let mut seen = BTreeSet::new();
                assert!(snapshot.tasks().all(|t| seen.insert(t.pid())), "a task is twice");
                let own = snapshot.tasks().filter(|t| t.tgid() == stable.pid());
                assert_eq!(own.count(), 21, "a thread is lost");
                repeats.store(engine.repeats(), Ordering::Relaxed);
            }
        };
        let asked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(asking));
        stop.store(true, Ordering::Relaxed);
        asked.unwrap_or_else(|e| std::panic::resume_unwind(e));
    });
    assert!(repeats.load(Ordering::Relaxed) >= 3, "no walk lost its place within {LONG:?}");
}

/// All sources with reads by offset.
const SOURCES: &[&str] = &[
    include_str!("../../bpf/details.h"),
    include_str!("../../bpf/files.h"),
    include_str!("../../bpf/filestat.h"),
    include_str!("../../bpf/names.h"),
    include_str!("../../bpf/net.h"),
    include_str!("../../bpf/open.h"),
    include_str!("../../bpf/paths.h"),
    include_str!("../../bpf/sockets.h"),
    include_str!("../../bpf/state.h"),
    include_str!("../../bpf/vma.h"),
];

/// The macros that read a member, and what each puts before its name.
const MACROS: &[(&str, &str)] =
    &[("RD(", ""), ("RD_MAY(", ""), ("FILE(", "FILE_"), ("INODE(", "INODE_")];

/// The widest read of each member, in bytes, as in `RD(u32, p, NAME)`.
fn reads() -> BTreeMap<String, u32> {
    let mut all = BTreeMap::new();
    let lines = SOURCES.iter().flat_map(|s| s.lines()).filter(|l| !l.starts_with("#define"));
    let calls = lines.flat_map(|line| {
        MACROS.iter().flat_map(move |(name, before)| {
            let is_word =
                move |at: usize| !line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
            let found = line.match_indices(name).filter(move |(at, _)| is_word(*at));
            found.map(move |(at, _)| (&line[at + name.len()..], *before))
        })
    });
    for (rest, before) in calls {
        let mut depth = 1;
        let end = rest.find(|c| {
            depth += i32::from(c == '(') - i32::from(c == ')');
            depth == 0
        });
        let arguments = &rest[..end.expect("a call is on one line")];
        let (kind, name) = arguments.split_once(',').expect("it has arguments");
        let bytes = match kind {
            "u8" => 1,
            "__u16" => 2,
            "u32" => 4,
            "u64" => 8,
            other => panic!("a read of an unknown width: {other}"),
        };
        let name = name.rsplit(',').next().unwrap_or_default().trim();
        let widest = all.entry(format!("{before}{name}")).or_insert(0);
        *widest = bytes.max(*widest);
    }
    all
}

/// A read that is wider than the member also returns the bytes next to it. In Linux 7.3, the int
/// that says whether a task runs became a byte, and all tasks seemed to run.
#[test]
fn reads_by_offset_are_not_wider_than_members() {
    const NAME: &str = "reads_by_offset_are_not_wider_than_members";
    let reads = reads();
    assert!(reads.len() > 100, "the sources are read in another way: {reads:?}");
    let members: BTreeMap<&str, u32> = Bpf::member_widths().into_iter().collect();
    if members.is_empty() {
        return skip(NAME, "this kernel has no types that can be read");
    }
    let known: BTreeSet<&str> =
        reads.keys().map(String::as_str).filter(|name| members.contains_key(name)).collect();
    assert!(known.len() > 80, "few of the members are known: {known:?}");
    let wider: Vec<_> = known
        .iter()
        .filter(|name| reads[**name] > members[**name])
        .map(|name| format!("{name}: {} bytes are read of {}", reads[*name], members[*name]))
        .collect();
    assert!(wider.is_empty(), "{wider:#?}");
}
