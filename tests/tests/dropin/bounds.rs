//! The memory that the drop-in needs, and its behaviour if there is too little: the same as without
//! it.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use taskdiag_tests::memcg::{Memcg, limits_memory};
use taskdiag_tests::{Mktask, cli, is_root, skip};

const MIB: u64 = 1 << 20;
/// A crowd of one user: the number of processes, and the bytes of the arguments that they share.
const CROWD: usize = 100;
const LONG: usize = 6_000_000;
/// By how much the memory of a program may differ with the drop-in. With 5,000 processes on the
/// machine, pgrep takes 5.2 MiB more with the library as it is shipped, and 7.9 MiB more with a
/// debug build, whose code and data are larger.
const MORE: u64 = if cfg!(debug_assertions) { 10 } else { 8 } * MIB;

/// The programs, which end by themselves.
const PROGRAMS: &[&str] = &[
    "ps aux",
    "ps -eo pid,comm",
    "ps -eLo pid,tid,wchan,args",
    "pgrep -x no-such-name",
    "pgrep -c -f mktask",
    "pkill -x no-such-name",
    "pidwait -x no-such-name",
    "top -b -n1 -c -w512",
    "w -h",
];

/// The limits of a program.
#[derive(Clone, Copy, Debug)]
struct Limit {
    which: libc::__rlimit_resource_t,
    most: u64,
    /// The user that runs it. Root has no limit of processes.
    uid: Option<u32>,
}

/// How a program ended.
#[derive(Debug, PartialEq, Eq)]
struct Ended {
    /// The exit code of the program, or minus the signal.
    code: i32,
    /// How many lines it printed.
    lines: usize,
    /// The first line on standard error.
    error: String,
}

fn command(program: &str, engine: Option<&str>, limit: Option<Limit>) -> Command {
    let mut words = program.split(' ');
    let mut command = Command::new(words.next().expect("a name"));
    command.args(words).env_remove("LD_PRELOAD").stdin(Stdio::null());
    if let Some(engine) = engine {
        command.env("LD_PRELOAD", cli::dropin()).env("TASKDIAG_ENGINE", engine);
    }
    let set = move || -> io::Result<()> {
        let Some(Limit { which, most, uid }) = limit else { return Ok(()) };
        let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
        // SAFETY: plain system calls in a process that is about to call exec.
        let done = unsafe {
            libc::setrlimit(which, &limit) == 0
                && uid.is_none_or(|uid| {
                    libc::setgroups(0, std::ptr::null()) == 0
                        && libc::setgid(uid) == 0
                        && libc::setuid(uid) == 0
                })
        };
        if done { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    // SAFETY: between fork and exec only system calls.
    unsafe { command.pre_exec(set) };
    command
}

fn run(program: &str, engine: Option<&str>, limit: Limit) -> Ended {
    let out = command(program, engine, Some(limit)).output().expect("it is installed");
    let code = out.status.code().unwrap_or_else(|| {
        -std::os::unix::process::ExitStatusExt::signal(&out.status).expect("it has ended")
    });
    let error = String::from_utf8_lossy(&out.stderr);
    Ended {
        code,
        lines: out.stdout.iter().filter(|b| **b == b'\n').count(),
        error: error.lines().next().unwrap_or("").to_owned(),
    }
}

/// The largest amount of memory that a program had.
fn peak(program: &str, engine: Option<&str>) -> u64 {
    let (status, peak) =
        taskdiag_tests::peak::run(command(program, engine, None).stdout(Stdio::null()));
    assert!(libc::WIFEXITED(status), "{program} with {engine:?}: status {status:#x}");
    peak as u64
}

fn engines() -> Vec<&'static str> {
    let has_bpf = taskdiag_tests::engines().iter().any(|e| e.id().name() == "bpf");
    if has_bpf { vec!["procfs", "bpf"] } else { vec!["procfs"] }
}

/// Lets one test run at a time, because its programs see the processes of other tests.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn crowd(name: &str, count: usize) -> Option<Mktask> {
    let (long, count) = (LONG.to_string(), count.to_string());
    let is_root = is_root();
    let uid = is_root.then_some("54321");
    let args: Vec<&str> = ["crowd", &long, &count].into_iter().chain(uid).collect();
    Mktask::or_skip(&format!("dropin::bounds::{name}"), &args)
}

#[test]
fn memory_is_that_of_procps_beside_a_crowd_with_long_arguments() {
    let _alone = alone();
    let Some(_crowd) = crowd("memory_is_that_of_procps_beside_a_crowd_with_long_arguments", CROWD)
    else {
        return;
    };
    for program in PROGRAMS {
        let without = peak(program, None);
        for engine in engines() {
            let with = peak(program, Some(engine));
            assert!(
                with <= without + MORE,
                "{program} with {engine}: {} MiB, and {} without",
                with / MIB,
                without / MIB
            );
        }
    }
}

/// The number of processes, whose arguments have a page each. `TASKDIAG_LONG=1` uses the number of
/// processes measured for docs/use/dropin.md, which is half of the ids of a machine with default
/// settings.
fn many() -> usize {
    if std::env::var_os("TASKDIAG_LONG").is_some() { 20_000 } else { 5_000 }
}

/// The answer about all of them is not in memory at once, and has the same processes in the same
/// order.
#[test]
fn memory_is_that_of_procps_beside_many_processes() {
    let _alone = alone();
    let (bytes, count) = (String::from("4096"), many().to_string());
    let Some(crowd) = Mktask::or_skip(
        "dropin::bounds::memory_is_that_of_procps_beside_many",
        &["crowd", &bytes, &count],
    ) else {
        return;
    };
    let mut wrong = Vec::new();
    for program in ["ps aux", "pgrep -c -f mktask", "top -b -n1 -c -w512"] {
        let without = peak(program, None);
        for engine in engines() {
            let with = peak(program, Some(engine));
            println!("{program}, {engine}: {} KiB, {} without", with >> 10, without >> 10);
            if with > without + MORE {
                wrong.push(format!("{program}, {engine}: {} KiB, {}", with >> 10, without >> 10));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let parent = crowd.pid().to_string();
    for program in [
        format!("ps --ppid {parent} -o pid,ppid,user,stat,comm,args -ww"),
        format!("ps --ppid {parent} -L -o pid,tid,lwp,args"),
        format!("pgrep -P {parent} -a"),
    ] {
        let out = |engine| command(&program, engine, None).output().expect("it is installed");
        let without = out(None);
        let lines = without.stdout.iter().filter(|b| **b == b'\n').count();
        assert!(lines >= many(), "{program}: {lines} lines");
        for engine in engines() {
            let with = out(Some(engine));
            assert!(with == without, "{program} with {engine} differs");
        }
    }
}

/// The smallest address space is the one that the libraries of the programs take, including the
/// drop-in.
#[test]
fn programs_end_in_the_same_way_where_memory_is_short() {
    let _alone = alone();
    let Some(_crowd) = crowd("programs_end_in_the_same_way_where_memory_is_short", CROWD / 5)
    else {
        return;
    };
    // Debug builds of the library are larger by this.
    let from = if cfg!(debug_assertions) { 40 } else { 20 };
    let sizes = [from, from + 8, 64, 96, 160, 224, 256, 320, 600];
    let mut wrong = Vec::new();
    for (n, program) in PROGRAMS.iter().enumerate() {
        // Each program runs with a third of the sizes, and the next program with another third.
        for size in sizes.iter().skip(n % 3).step_by(3) {
            let most = size * MIB;
            for which in [libc::RLIMIT_AS, libc::RLIMIT_DATA] {
                let limit = Limit { which, most, uid: None };
                for engine in engines() {
                    if let Err((without, with)) = ends_alike(program, engine, limit) {
                        // A program that fails by itself may fail in another way.
                        if without.code <= 1 && without.error.is_empty() {
                            wrong.push(format!(
                                "{program}, {size} MiB, {engine}: {without:?} {with:?}"
                            ));
                        }
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// An engine cannot work without threads or descriptors.
#[test]
fn programs_end_in_the_same_way_without_threads_and_descriptors() {
    let _alone = alone();
    let own = Limit { which: libc::RLIMIT_NPROC, most: 1, uid: Some(54322) };
    if !is_root() {
        return skip("dropin::bounds", "a user without processes needs root");
    }
    let files =
        [4, 5, 6, 7, 8, 12].map(|most| Limit { which: libc::RLIMIT_NOFILE, most, uid: None });
    for program in PROGRAMS {
        for limit in [own].iter().chain(&files) {
            for engine in engines() {
                if let Err((without, with)) = ends_alike(program, engine, *limit) {
                    panic!("{program}, {limit:?}, {engine}: {without:?} {with:?}");
                }
            }
        }
    }
}

/// Runs the program without the drop-in and with it, at most three times, because a crowd of
/// another test may come or go between the two.
fn ends_alike(program: &str, engine: &str, limit: Limit) -> Result<(), (Ended, Ended)> {
    let both = || (run(program, None, limit), run(program, Some(engine), limit));
    let near = |(without, with): &(Ended, Ended)| is_near(without, with);
    let first = both();
    if near(&first) || near(&both()) {
        return Ok(());
    }
    let last = both();
    if near(&last) { Ok(()) } else { Err(last) }
}

/// Single processes of other tests come and go between two runs.
fn is_near(a: &Ended, b: &Ended) -> bool {
    (a.code, &a.error) == (b.code, &b.error) && a.lines.abs_diff(b.lines) <= 40 + a.lines / 4
}

/// procps takes 32 MiB there. Data that is read for the programs counts, too: BPF programs and
/// their maps.
#[test]
fn programs_live_in_a_control_group_of_64_mib() {
    let _alone = alone();
    let test = "programs_live_in_a_control_group_of_64_mib";
    let group = match Memcg::new(64 * MIB) {
        Ok(group) => group,
        Err(why) => return skip(&format!("dropin::bounds::{test}"), &why),
    };
    assert!(limits_memory(&group), "a group of 64 MiB does not limit memory");
    println!("memory is limited by control groups of version {}", group.version());
    if group.version() == 1 {
        let why = "this machine has memory in control groups of version 1; tests/vm/lab memcg tries version 2";
        skip(&format!("dropin::bounds::{test} in version 2"), why);
    }
    let Some(_crowd) = crowd(test, 2 * CROWD) else { return };
    for program in PROGRAMS {
        let run = |engine| {
            let mut command = command(program, engine, None);
            group.run_in(&mut command);
            let before = group.killed();
            let out = command.output().expect("it is installed");
            println!("{program} with {engine:?}: {}", out.status);
            assert_eq!(group.killed(), before, "{program} with {engine:?}");
            out.status
        };
        let without = run(None);
        // A program that fails by itself would prove nothing. 1: no process has the name.
        let works = if program.contains("no-such-name") { 1 } else { 0 };
        assert_eq!(without.code(), Some(works), "{program} by itself");
        for engine in engines() {
            assert_eq!(run(Some(engine)), without, "{program} with {engine}");
        }
    }
}
