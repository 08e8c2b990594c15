//! No face of the program takes the memory that the arguments of a crowd of processes have
//! together: see `bounds.rs`, and docs/operate/limits.md for the figures.
//!
//! This is a separate program, because the kernel counts the memory of the process that starts
//! another one as memory of the new one. So this one has to be small.

use std::process::{Command, Stdio};
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
    assert!(matches!(code, Some(0 | 3)), "taskdiag {args:?} exits with {code:?}");
    (peak, begin.elapsed())
}

#[test]
fn no_face_takes_the_memory_of_a_crowd() {
    let m = match Mktask::start(&["crowd", "6000000", "200"]) {
        Ok(m) => m,
        Err(why) => return skip("no_face_takes_the_memory_of_a_crowd", &why),
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
