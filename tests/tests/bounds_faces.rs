//! No face of the program takes the memory that the arguments of a crowd of processes have
//! together: see `bounds.rs`, and docs/operate/limits.md for the figures.
//!
//! This is a separate program, because the kernel counts the memory of the process that starts
//! another one as memory of the new one. This program is small, so that the count is of the face.

use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use taskdiag_tests::busy::worth;
use taskdiag_tests::pid_max::PidMax;
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

/// Lets only one crowd exist at a time.
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

fn is_root() -> bool {
    // SAFETY: it takes nothing and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// The engines that can divide a list, where they work.
fn dividing() -> Vec<&'static str> {
    let is_here =
        |name: &&str| engines().iter().any(|s| matches!(s, Source::Engine(e) if e.name() == *name));
    // //proc takes about 10 ms for each process on a busy machine.
    let all = if is_long() { &["bpf", "procfs"][..] } else { &["bpf"] };
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

fn is_long() -> bool {
    std::env::var_os("TASKDIAG_LONG").is_some()
}

/// The faces that list all processes, with the MiB that each may take, and the additional bytes for
/// each process. docs/operate/limits.md states both.
const OF_MANY: &[(usize, usize, &[&str])] = &[
    (64, 2 << 10, &["ps", "aux"]),
    (64, 2 << 10, &["ps", "aux", "--csv", "--sort", "-rss"]),
    (64, 1 << 10, &["ps", "-eo", "pid,comm"]),
    (96, 2 << 10, &["ps", "-eo", "pid,args,environ"]),
    (96, 3 << 10, &["tree", "-a"]),
    (64, 4 << 10, &["top", "--once"]),
    (64, 4 << 10, &["export", "--once"]),
    (64, 4 << 10, &["record", "-n", "1", "DIR"]),
    (64, 4 << 10, &["report", "-o", "DIR/page.html"]),
    (96, 0, &["dump", "-g", "ps,tree,environ"]),
];

/// 4 KiB of arguments and 4 KiB of environment for each of many processes.
#[test]
fn many_small_processes_take_what_is_stated_for_each() {
    let _alone = alone();
    let test = "many_small_processes_take_what_is_stated_for_each";
    let count = if is_long() { 100_000 } else { 2_000 };
    if !is_long() {
        skip(test, "TASKDIAG_LONG=1 tries 100,000 processes, this is done with 2,000");
    }
    let _ids = match PidMax::for_processes(count) {
        Ok(ids) => ids,
        Err(why) => return skip(test, &format!("no room for {count} processes: {why}")),
    };
    // A limit for each user may be below that, and not even root may always raise it.
    let half = (count / 2).to_string();
    let start = |uid: &str| {
        let args = ["crowd", "4096", &half, uid, "4096"];
        Mktask::attempt(if is_root() { &args } else { &args[..3] })
    };
    let crowds = match start("54321").and_then(|one| Ok([one, start("54322")?])) {
        Ok(crowds) => crowds,
        Err(why) => return skip(test, &format!("{count} processes: {why}")),
    };
    assert!(crowds.iter().all(|crowd| crowd.list("crowd").len() == count / 2));
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path().to_str().expect("a plain path");
    let mut wrong = Vec::new();
    for engine in dividing() {
        for (fixed, each, args) in OF_MANY {
            let _ = std::fs::remove_dir_all(format!("{dir}/recording"));
            let place = |word: &&str| match *word {
                "DIR" => format!("{dir}/recording"),
                word => word.replace("DIR", dir),
            };
            let args: Vec<String> = args.iter().chain(&["--engine", engine]).map(place).collect();
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            let (bytes, time) = run(&args);
            let most = fixed * MIB + each * count;
            println!("{count} processes, {args:?}: {} MiB, {time:?}", bytes / MIB);
            if bytes > most {
                wrong.push(format!("{args:?}: {} MiB, not {}", bytes / MIB, most / MIB));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The faces that show lists, and the MiB that each may take.
const OF_LISTS: &[(usize, &[&str])] = &[
    (768, &["maps", "--csv", "-o", "pid,address"]),
    (768, &["maps", "-p", "PID", "--json"]),
    (768, &["files", "--csv", "-o", "pid,fdnum"]),
    (768, &["files", "-p", "PID", "--paths", "--mem", "--json"]),
    (256, &["record", "--groups", "default,vma,fd", "-n", "1", "DIR/recording"]),
    (640, &["dump", "-g", "base,vma,fd"]),
];

/// A process with as many mapped files as the kernel allows, each with a path of 4 KB, and
/// processes that have these, too.
#[test]
fn long_names_and_long_lists_take_what_is_stated() {
    let _alone = alone();
    let test = "long_names_and_long_lists_take_what_is_stated";
    let (files, crowd) = if is_long() { ("60000", "165") } else { ("500", "20") };
    if !is_long() {
        skip(test, "TASKDIAG_LONG=1 tries 10 million mappings, this is done with 10,000");
    }
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let dir = dir.expect("a directory");
    let dir = dir.path().to_str().expect("a plain path");
    let m = match Mktask::start(&["long-names", dir, files, crowd]) {
        Ok(m) => m,
        Err(why) => return skip(test, &why),
    };
    let mut wrong = Vec::new();
    let out = tempfile::tempdir().expect("a directory");
    let out = out.path().to_str().expect("a plain path");
    for engine in dividing() {
        for (most, args) in OF_LISTS {
            let _ = std::fs::remove_dir_all(format!("{out}/recording"));
            let place = |word: &&str| word.replace("PID", &m.pid().to_string()).replace("DIR", out);
            let args: Vec<String> = args.iter().chain(&["--engine", engine]).map(place).collect();
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            let (bytes, time) = run(&args);
            println!("{files} files, {crowd} processes, {args:?}: {} MiB, {time:?}", bytes / MIB);
            if bytes > most * MIB {
                wrong.push(format!("{args:?}: {} MiB, not {most}", bytes / MIB));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Each named process is a separate request, but the answer has each name once.
#[test]
fn names_that_named_processes_share_take_space_once() {
    let _alone = alone();
    let test = "names_that_named_processes_share_take_space_once";
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let dir = dir.expect("a directory");
    let dir = dir.path().to_str().expect("a plain path");
    let m = match Mktask::start(&["long-names", dir, "1500", "12"]) {
        Ok(m) => m,
        Err(why) => return skip(test, &why),
    };
    let pids: Vec<String> = m.list("crowd").iter().map(u32::to_string).collect();
    assert_eq!(pids.len(), 12);
    let pids = pids.join(",");
    for engine in dividing() {
        for args in [&["maps", "-o", "pid,address"][..], &["files", "-o", "pid,fdnum"]] {
            let args = [args, &["-p", &pids, "--csv", "--engine", engine]].concat();
            let (bytes, _) = run(&args);
            println!("{args:?}: {} MiB", bytes / MIB);
            // The names of one process take 6 MB.
            assert!(bytes < 64 * MIB, "taskdiag {args:?}: {} MiB", bytes / MIB);
        }
    }
}

/// The engine has a name in the answer and while it reads the list, and nowhere else.
#[test]
fn long_names_are_in_memory_twice_at_most() {
    const FILES: usize = 4_000;
    const NAME: usize = 4_000;
    let _alone = alone();
    let test = "long_names_are_in_memory_twice_at_most";
    let peak_of = |files: usize, args: &[&str]| {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let dir = dir.expect("a directory");
        let dir = dir.path().to_str().expect("a plain path");
        let m = Mktask::start(&["long-names", dir, &files.to_string(), "1"]);
        let m = m.map_err(|why| skip(test, &why)).ok()?;
        let pid = m.pid().to_string();
        Some(run(&[args, &["-p", &pid, "--csv", "--engine", "procfs"]].concat()).0)
    };
    for args in [&["maps", "-o", "pid,address"][..], &["files", "-o", "pid,fdnum"]] {
        let (Some(few), Some(many)) = (peak_of(1, args), peak_of(FILES, args)) else { return };
        let each = many.saturating_sub(few) / FILES;
        println!("taskdiag {args:?}: {each} bytes for each file");
        assert!(each > NAME, "taskdiag {args:?}: {each} bytes, so no names were read");
        // The entry of the list, the two tables and the row come in addition.
        assert!(each < 2 * NAME + 2_000, "taskdiag {args:?}: {each} bytes for each file");
    }
}
