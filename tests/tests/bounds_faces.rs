//! No face of the program takes the memory that the arguments of a crowd of processes have
//! together: see `bounds.rs`, and docs/operate/limits.md for the figures.
//!
//! This is a separate program, because the kernel counts the memory of the process that starts
//! another one as memory of the new one. So this one has to be small.

use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use taskdiag_tests::busy::worth;
use taskdiag_tests::{Mktask, Source, cli, engines, skip};

const MIB: usize = 1 << 20;

/// How a run of the program ended: its largest memory in bytes, and its time.
fn run(args: &[&str]) -> (usize, Duration) {
    let begin = Instant::now();
    let mut command = Command::new(cli::taskdiag());
    command.args(args).env_remove("TASKDIAG_ENGINE").stdin(Stdio::null()).stdout(Stdio::null());
    let (status, peak) = taskdiag_tests::peak::run(command.stderr(Stdio::null()));
    let code = libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status));
    // 1: no process meets the condition.
    let finds_nothing = args.contains(&"--where") && code == Some(1);
    assert!(matches!(code, Some(0 | 3)) || finds_nothing, "taskdiag {args:?} exits with {code:?}");
    (peak, begin.elapsed())
}

/// One crowd at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn no_face_takes_the_memory_of_a_crowd() {
    let _alone = alone();
    let Some(m) =
        Mktask::or_skip("no_face_takes_the_memory_of_a_crowd", &["crowd", "6000000", "200"])
    else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name).to_str().expect("a plain path").to_owned();
    let (html, record) = (path("page.html"), path("recording"));
    let pid = m.pid().to_string();
    let faces: &[(usize, &[&str])] = &[
        (64, &["ps", "aux"]),
        (64, &["ps", "aux", "--json"]),
        (64, &["ps", "aux", "--csv", "--sort", "-rss"]),
        (64, &["ps", "-eo", "pid,comm"]),
        (64, &["ps", "--where", "args ~ nosuch"]),
        (64, &["ps", "-p", &pid, "-o", "args"]),
        (96, &["ps", "-eo", "pid,args,environ"]),
        (96, &["tree", "-a"]),
        (96, &["tree", "-a", "--json"]),
        (64, &["top", "--once"]),
        (64, &["top", "--once", "--json"]),
        (64, &["export", "--once"]),
        (64, &["record", "-n", "1", &record]),
        (64, &["report", "-o", &html]),
        (96, &["dump", "-g", "ps,tree"]),
    ];
    for engine in ["bpf", "procfs"] {
        let is_here =
            engines().iter().any(|s| matches!(s, Source::Engine(e) if e.name() == engine));
        if !is_here {
            skip("no_face_takes_the_memory_of_a_crowd", &format!("no engine {engine} here"));
            continue;
        }
        for (most, args) in faces {
            let _ = std::fs::remove_dir_all(dir.path().join("recording"));
            let args: Vec<&str> = [*args, &["--engine", engine]].concat();
            let (bytes, time) = run(&args);
            assert!(bytes <= most * MIB, "taskdiag {args:?}: {} MiB", bytes / MIB);
            assert!(worth(time) < Duration::from_secs(20), "taskdiag {args:?}: {time:?}");
        }
    }
}

/// The engines that can divide a list, where they work.
fn dividing() -> Vec<&'static str> {
    let is_here =
        |name: &&str| engines().iter().any(|s| matches!(s, Source::Engine(e) if e.name() == *name));
    // /proc takes some 10 ms for each process on a busy machine.
    let is_long = std::env::var_os("TASKDIAG_LONG").is_some();
    let all = if is_long { &["bpf", "procfs"][..] } else { &["bpf"] };
    all.iter().copied().filter(is_here).collect()
}

#[test]
fn a_dump_of_many_processes_takes_the_memory_of_a_part() {
    let _alone = alone();
    let test = "a_dump_of_many_processes_takes_the_memory_of_a_part";
    if dividing().is_empty() {
        return skip(test, "no engine bpf here; TASKDIAG_LONG=1 tries procfs, too");
    }
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("now.tdg");
    let groups = "base,stat,cred,cmdline,vma,fd";
    let peak_of = |count: &str, engine: &str| {
        let m = Mktask::or_skip(test, &["crowd", "100", count])?;
        let out = std::fs::File::create(&path).expect("a file");
        let mut command = Command::new(cli::taskdiag());
        command.args(["dump", "-g", groups, "--engine", engine]).env_remove("TASKDIAG_ENGINE");
        command.stdin(Stdio::null()).stdout(out).stderr(Stdio::null());
        let (status, peak) = taskdiag_tests::peak::run(&mut command);
        let code = libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status));
        assert!(matches!(code, Some(0 | 3)), "{engine}: {code:?}");
        // Another process reads it, so that this one stays small.
        let saved = path.to_str().expect("a plain path");
        let list = cli::Sandbox::new().run(&["ps", "--from", saved, "-eo", "pid", "--csv"]);
        let mut pids: Vec<u32> =
            list.stdout.lines().skip(1).map_while(|l| l.parse().ok()).collect();
        let all = pids.len();
        pids.sort_unstable();
        pids.dedup();
        assert_eq!(pids.len(), all, "{engine}: a process is there twice");
        let crowd = m.list("crowd");
        assert!(crowd.iter().all(|pid| pids.binary_search(pid).is_ok()), "{engine}: {list}");
        for pid in [crowd[0], crowd[crowd.len() - 1]] {
            let pid = pid.to_string();
            let maps = ["maps", "--from", saved, "-p", &pid, "-o", "path"];
            let maps = cli::Sandbox::new().run(&maps);
            assert!(maps.stdout.contains("/mktask"), "{engine}: {maps}");
        }
        Some((peak, path.metadata().expect("it was written").len()))
    };
    for engine in dividing() {
        let Some((some, small)) = peak_of("1100", engine) else { return };
        let Some((many, large)) = peak_of("4400", engine) else { return };
        assert!(large > small * 2, "{engine}: {small} and {large} bytes");
        assert!(many < some + 8 * MIB, "{engine}: {} and {} MiB", some / MIB, many / MIB);
    }
}
