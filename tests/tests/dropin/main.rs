//! Programs of procps with and without the drop-in for libproc2.
//!
//! The processes are the same as in the test `peers`, and stand still in a separate pid namespace.
//! Each invocation runs once without and once with the drop-in, with the same process id, and both
//! outputs must be the same to the byte. Rows of the program itself are not compared, because it
//! has one more library in memory, and lines with clocks and loads are left out. Nothing may differ
//! on purpose.

mod bounds;
#[path = "../peers/cases.rs"]
#[expect(
    dead_code,
    reason = "the invocations of ps are used, and what differs on purpose there does not here"
)]
mod cases;
mod machine;
mod more;
#[path = "../peers/moving.rs"]
mod moving;
#[path = "../peers/typed/mod.rs"]
mod typed;
#[path = "../peers/world.rs"]
#[expect(dead_code, reason = "the processes of the workload are enough")]
mod world;

use std::fmt::Write as _;
use std::process::Command;
use std::time::Duration;

use taskdiag_tests::{cli, is_root, skip};
use world::{Ran, World};

/// How often a pair that differs is run again.
const TRIES: usize = 4;
/// The number of times that a differing case is run again after all others, a second apart. BPF has
/// CPU time in nanoseconds, and the share of the CPU that a young process used differs from that in
/// clock ticks.
const LATER: usize = 6;

/// By how much Pss may differ.
const PSS_KIB: i64 = 8;

/// Starts a process whose name, arguments and environment have bytes that versions of procps show
/// in different ways: characters for private use, control characters of two bytes, surrogates, and
/// bytes that are no text. Its process id is small, so the ids of the compared programs stay free.
const ODD: &str = r#"
name=$'\xc3\xbc\xee\x80\x80\xc2\x85\xff'; cp "$(command -v sleep)" "$SCRATCH/$name"
run sh -c 'echo 500 >/proc/sys/kernel/ns_last_pid'
run env -i $'ODD=a\tb \xed\xa0\x80 \xc3' bash -c 'exec -a "$0" "$1" 7040' \
    $'odd \x01 \xc2\x85 \xee\x80\x80 \xf3\xb0\x80\x80 \xed\xa0\x80 \xff end' "$SCRATCH/$name" >/dev/null &
for i in $(seq 600); do run pgrep -xf '.*7040' >/dev/null && break; sleep 0.1; done; run pgrep -c -f ' end 7040'"#;

/// Lines with clocks, loads, and the memory of the whole machine.
const MOVING: &[&str] = &["top - ", "%Cpu", "MiB Mem", "MiB Swap", "KiB Mem", " load average: "];

/// The lines to compare, without lines about the program itself and about values that always
/// change.
fn compared(ran: &Ran) -> (i32, String, String) {
    let own = world::OWN_PID.to_string();
    let is_own = |l: &str| l.split(|c: char| !c.is_ascii_digit()).any(|w| w == own);
    let is_moving = |l: &str| MOVING.iter().any(|m| l.contains(m));
    let lines = |text: &str| {
        text.split_inclusive('\n').filter(|l| !is_own(l) && !is_moving(l)).collect::<String>()
    };
    (ran.code, lines(&ran.stdout), lines(&ran.stderr))
}

/// Whether both outputs are the same. Pss may differ a little: the program that prints it maps
/// pages of the C library itself, and more of them with the drop-in, so that the share of each
/// mapping of such a page differs.
fn is_same(command: &str, without: &Ran, with: &Ran) -> bool {
    let (a, b) = (compared(without), compared(with));
    if !command.contains("pss") {
        return a == b;
    }
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let (theirs, ours) = (words(&a.1), words(&b.1));
    let is_near = |(a, b): (&String, &String)| match (a.parse::<i64>(), b.parse::<i64>()) {
        (Ok(a), Ok(b)) => (a - b).abs() <= PSS_KIB,
        _ => a == b,
    };
    (a.0, &a.2) == (b.0, &b.2)
        && theirs.len() == ours.len()
        && theirs.iter().zip(&ours).all(is_near)
}

/// Whether our output differs from the outputs before and after it only in values that moved.
fn is_between(before: &Ran, ours: &Ran, after: &Ran) -> bool {
    let (a, b, c) = (compared(before), compared(ours), compared(after));
    let ends = |of: &(i32, String, String)| (of.0, of.2.clone());
    (ends(&b) == ends(&a) || ends(&b) == ends(&c)) && moving::is_between(&a.1, &b.1, &c.1)
}

/// An invocation, without and with the drop-in.
struct Pair {
    without: String,
    with: String,
}

impl Pair {
    fn new(engine: &str, command: &str) -> Pair {
        let path = "PATH=/usr/sbin:/usr/bin:/sbin:/bin";
        // A program that is not linked to libproc2 names that after the drop-in.
        let (alone, behind) = match more::library(command) {
            Some(library) => (format!("LD_PRELOAD={library} "), format!(":{library}")),
            None => (String::new(), String::new()),
        };
        Pair {
            without: format!("{alone}{path} {command}"),
            with: format!(
                "LD_PRELOAD=$SCRATCH/dropin.so{behind} TASKDIAG_ENGINE={engine} {path} {command}"
            ),
        }
    }

    /// `None` if both are the same; otherwise both outputs.
    fn difference(&self, world: &mut World, tries: usize) -> Option<String> {
        let mut before = world.run(&self.without);
        let mut last = None;
        for _ in 0..=tries {
            let ours = world.run(&self.with);
            if is_same(&self.with, &before, &ours) {
                return None;
            }
            let after = world.run(&self.without);
            if is_same(&self.with, &after, &ours) || is_between(&before, &ours, &after) {
                return None;
            }
            last = Some(self.show(&after, &ours));
            before = after;
        }
        last
    }

    /// The first lines that differ.
    fn show(&self, without: &Ran, with: &Ran) -> String {
        let (a, b) = (compared(without), compared(with));
        let mut out = format!("{}\n  exit {} against {}\n", self.with, a.0, b.0);
        for (a, b) in [(&a.1, &b.1), (&a.2, &b.2)] {
            let (a, b): (Vec<_>, Vec<_>) = (a.lines().collect(), b.lines().collect());
            let differ = |n: &usize| a.get(*n) != b.get(*n);
            for n in (0..a.len().max(b.len())).filter(differ).take(3) {
                let _ = writeln!(out, "  -{:?}\n  +{:?}", a.get(n), b.get(n));
            }
        }
        out
    }
}

/// Compares all these invocations, and panics with the differences.
fn compare(name: &str, engine: &str, commands: &[String]) {
    if engine == "bpf" && !taskdiag_tests::engines().iter().any(|e| e.id().name() == "bpf") {
        return skip(&format!("dropin::{name}"), "BPF cannot be used here");
    }
    let mut world = match World::new() {
        Ok(world) => world,
        Err(why) => return skip(&format!("dropin::{name}"), &why),
    };
    // Other users run it, too, so it is copied to a directory that they may enter.
    let copied =
        world.run(&format!("install -m755 {} $SCRATCH/dropin.so", cli::dropin().display()));
    assert_eq!(copied.code, 0, "the drop-in is not copied: {}", copied.stderr);
    let stats =
        world.run(&format!("TASKDIAG_STATS=1 {} >/dev/null", Pair::new(engine, "run ps ax").with));
    if stats.stderr.contains("which is not known") {
        return skip(
            &format!("dropin::{name}"),
            "libproc2 is of a version that the drop-in passes through",
        );
    }
    let odd = world.run(ODD);
    assert_eq!((odd.code, &*odd.stdout), (0, "1\n"), "{}", odd.stderr);
    // Otherwise, it would compare the real library with itself.
    assert!(stats.stderr.contains("calls answered: 1,"), "it does not answer: {}", stats.stderr);
    assert!(stats.stderr.contains(&format!("from {engine}")), "{}", stats.stderr);
    let mut wrong = String::new();
    let mut again = Vec::new();
    for command in commands {
        let pair = Pair::new(engine, command);
        if pair.difference(&mut world, TRIES).is_some() {
            again.push(pair);
        }
    }
    for pair in again {
        let mut last = None;
        for _ in 0..LATER {
            std::thread::sleep(Duration::from_secs(1));
            last = pair.difference(&mut world, 1);
            if last.is_none() {
                break;
            }
        }
        wrong += last.as_deref().unwrap_or("");
    }
    println!("{name}: {} invocations", commands.len());
    assert!(wrong.is_empty(), "of {} invocations, these differ:\n{wrong}", commands.len());
}

/// The invocations of ps that the test `peers` has, as the shell runs them.
fn ps() -> Vec<String> {
    let all = cases::of("ps").into_iter().map(|c| c.peer.replace("PATH=/usr/bin:/bin ", ""));
    // `ps axlm` ends with a segmentation fault, with the drop-in and without it, which fills the
    // kernel's log.
    all.filter(|c| !c.contains("axlm")).collect()
}

fn by_user(commands: &[&str]) -> Vec<String> {
    let user = "run setpriv --reuid 4242 --regid 4242 --clear-groups";
    commands.iter().map(|c| c.replacen("run", user, 1)).collect()
}

fn texts(commands: &[&str]) -> Vec<String> {
    commands.iter().map(|c| (*c).to_owned()).collect()
}

#[test]
fn ps_by_procfs() {
    compare("ps_by_procfs", "procfs", &ps());
}

#[test]
fn ps_by_bpf() {
    compare("ps_by_bpf", "bpf", &ps());
}

#[test]
fn each_column_by_procfs() {
    compare("each_column_by_procfs", "procfs", &more::columns());
}

#[test]
fn each_column_by_bpf() {
    compare("each_column_by_bpf", "bpf", &more::columns());
}

#[test]
fn others_by_procfs() {
    compare("others_by_procfs", "procfs", &texts(more::OTHERS));
}

#[test]
fn others_by_bpf() {
    compare("others_by_bpf", "bpf", &texts(more::OTHERS));
}

#[test]
fn each_item_by_procfs() {
    compare("each_item_by_procfs", "procfs", &more::items());
}

#[test]
fn each_item_by_bpf() {
    compare("each_item_by_bpf", "bpf", &more::items());
}

#[test]
fn programs_of_another_user_print_the_same() {
    compare("programs_of_another_user_print_the_same", "procfs", &by_user(more::BY_ANOTHER_USER));
}

/// `taskdiag run` finds the library, which is copied to its directory, and ps gets its data from
/// there.
#[test]
fn taskdiag_run_finds_its_library() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let bin = dir.path().join("bin");
    let lib = dir.path().join("lib/taskdiag");
    let install = |mode: &str, from: &std::path::Path, to: std::path::PathBuf| {
        let status = Command::new("install").args(["-D", mode]).arg(from).arg(&to).status();
        assert!(status.expect("install runs").success(), "{}", to.display());
    };
    install("-m755", cli::taskdiag(), bin.join("taskdiag"));
    install("-m644", cli::dropin(), lib.join("libtaskdiag-procps.so"));
    let pid = std::process::id().to_string();
    let run = |args: &[&str]| {
        let mut command = Command::new(bin.join("taskdiag"));
        command.arg("run").args(args).env("TASKDIAG_STATS", "1").env_remove("TASKDIAG_PROCPS_LIB");
        let out = command.output().expect("it runs");
        let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
        (out.status.code(), text(&out.stdout), text(&out.stderr))
    };
    let (code, out, err) = run(&["ps", "-eo", "pid="]);
    assert_eq!(code, Some(0), "{err}");
    assert!(out.lines().any(|l| l.trim() == pid), "{out}");
    assert!(err.contains("taskdiag-procps: in front of"), "{err}");
    // A shell passes the library on to the programs that it starts.
    let (code, out, err) = run(&["sh", "-c", "pgrep -x no-such-name-there; echo $?"]);
    assert_eq!((code, &*out), (Some(0), "1\n"), "{err}");
    assert!(err.contains("taskdiag-procps: in front of"), "{err}");
}

/// Where /proc is not mounted, as in a rescue shell, the program still runs.
#[test]
fn a_program_is_run_without_the_drop_in_where_the_library_cannot_be_found() {
    const NAME: &str =
        "dropin::a_program_is_run_without_the_drop_in_where_the_library_cannot_be_found";
    if !is_root() {
        return skip(NAME, "a mount namespace needs root");
    }
    let run = |library: Option<&std::path::Path>| {
        let script = "mount --make-rprivate / && umount -l /proc && exec \"$0\" run sh -c 'exit 5'";
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script]).arg(cli::taskdiag());
        command.env_remove("TASKDIAG_PROCPS_LIB");
        command.envs(library.map(|path| ("TASKDIAG_PROCPS_LIB", path)));
        let out = command.output().expect("unshare runs");
        (out.status.code(), String::from_utf8_lossy(&out.stderr).into_owned())
    };
    let (code, said) = run(None);
    assert_eq!(code, Some(5), "{said}");
    assert!(said.contains("run: without the drop-in: "), "{said}");
    assert_eq!(run(Some(cli::dropin())), (Some(5), String::new()));
}
