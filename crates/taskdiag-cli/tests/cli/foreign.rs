//! Actions on processes while /proc belongs to another pid namespace: `taskdiag top` in the pid
//! namespace of one container and with the mounts of another, as after `nsenter -t PID -m`. The
//! pids in that container belong to other processes here.

use std::fs::File;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use super::busy::Patience;
use super::common::{parts, skip};
use super::top::Tmux;

const LIMIT: Duration = Duration::from_secs(50);
/// How many processes each namespace has, so that most numbers exist in both.
const MANY: usize = 12;

/// Two nested pid namespaces, each with its own /proc, whose processes all sleep.
struct Scene {
    outer: Child,
    /// The process 1 of each namespace, by its pid here.
    inits: [u32; 2],
}

impl Scene {
    fn new(test: &str) -> Option<Scene> {
        Scene::with_files(test, [None; 3], "")
    }
    /// Makes the scene with descriptors 5, 6 and 7, and runs this script in the inner namespace
    /// first.
    fn with_files(test: &str, files: [Option<i32>; 3], inner_begins: &str) -> Option<Scene> {
        // SAFETY: no arguments, cannot fail.
        if unsafe { libc::geteuid() } != 0 {
            skip(test, "namespaces need root");
            return None;
        }
        let inner =
            format!("{inner_begins} for i in $(seq {MANY}); do sleep 3000 & done; exec sleep 3001");
        let unshare = "unshare --mount --pid --fork --kill-child --mount-proc";
        let script = format!(
            "for i in $(seq {MANY}); do sleep 3000 & done; {unshare} sh -c '{inner}' & exec sleep 3001"
        );
        let words: Vec<&str> = unshare.split(' ').collect();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).args(["sh", "-c", &script]);
        let inherit = move || {
            for (file, to) in files.iter().zip(5..) {
                // SAFETY: a plain system call.
                if file.is_some_and(|file| unsafe { libc::dup2(file, to) } < 0) {
                    return Err(std::io::Error::last_os_error());
                }
            }
            Ok(())
        };
        // SAFETY: only dup2() is called, with descriptors above those that it makes.
        let outer = unsafe { command.pre_exec(inherit) }.spawn().unwrap();
        let mut scene = Scene { outer, inits: [0; 2] };
        let mut patience = Patience::new(LIMIT);
        let mut wait = |is_true: &dyn Fn() -> bool| {
            while !is_true() {
                assert!(!patience.is_over(), "the namespaces are not made");
                std::thread::sleep(Duration::from_millis(20));
            }
        };
        let first = scene.outer.id();
        wait(&|| children(first).len() == 1);
        scene.inits[0] = children(first)[0];
        let a = scene.inits[0];
        let inner_of = |a: u32| children(a).into_iter().find(|c| comm(*c) == "unshare");
        wait(&|| inner_of(a).is_some_and(|u| children(u).len() == 1));
        scene.inits[1] = children(inner_of(a).unwrap())[0];
        let b = scene.inits[1];
        wait(&|| sleepers(a).len() == MANY && sleepers(b).len() == MANY);
        Some(scene)
    }
    /// A shell command that runs another one in the outer pid namespace, with the mounts of the
    /// inner one.
    fn between(&self, command: &str) -> String {
        let [a, b] = self.inits;
        format!("nsenter --pid=/proc/{a}/ns/pid --mount=/proc/{b}/ns/mnt -- {command}")
    }
    /// The sleeping processes of both, by their numbers here.
    fn sleepers(&self) -> [Vec<u32>; 2] {
        self.inits.map(sleepers)
    }
    /// Two processes with the same pid, one in the outer namespace and one in the inner.
    fn same_number(&self) -> (u32, u32, u32) {
        let [a, b] = self.sleepers();
        let number = |pid: u32, at: usize| {
            let line = status(pid, "NSpid:");
            line.split_whitespace().nth_back(at).unwrap().parse::<u32>().unwrap()
        };
        let same = a.iter().flat_map(|x| b.iter().map(move |y| (*x, *y)));
        let (x, y) = same.into_iter().find(|(x, y)| number(*x, 0) == number(*y, 0)).unwrap();
        (number(x, 0), x, y)
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        // The option --kill-child ends the processes in the namespaces.
        let _ = self.outer.kill();
        let _ = self.outer.wait();
    }
}

fn children(pid: u32) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    text.unwrap_or_default().split_whitespace().filter_map(|n| n.parse().ok()).collect()
}

fn comm(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
}

fn sleepers(init: u32) -> Vec<u32> {
    children(init).into_iter().filter(|c| comm(*c) == "sleep" && state(*c) == 'S').collect()
}

fn status(pid: u32, name: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    text.lines().find_map(|l| l.strip_prefix(name)).unwrap_or_default().trim().to_owned()
}

fn state(pid: u32) -> char {
    status(pid, "State:").chars().next().unwrap_or('-')
}

fn nice(pid: u32) -> String {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.split(' ').nth(18).unwrap_or_default().to_owned()
}

#[test]
fn top_acts_on_the_process_that_it_shows_or_on_none() {
    let test = "top_acts_on_the_process_that_it_shows_or_on_none";
    let Some(scene) = Scene::new(test) else { return };
    let (number, outer, inner) = scene.same_number();
    let program = env!("CARGO_BIN_EXE_taskdiag");
    let top =
        format!("env LC_ALL=C {program} top -d 300ms -o pid:9,s,comm --where 'pid == {number}'");
    let tmux = Tmux::new(100, 24, &format!("{}; exec cat", scene.between(&top)));
    let row = format!("{number:>9} S sleep");
    tmux.until("the row and the warning", |s| {
        s.contains(&row) && s.contains("/proc of another pid namespace")
    });
    // The test may run with a nice value itself.
    let has = |pid| (nice(pid), status(pid, "Cpus_allowed_list:"));
    let before = [has(outer), has(inner)];
    assert!(before.iter().all(|(nice, _)| nice != "19"), "{before:?}");
    // A nice value and CPUs are set by number only, and the number belongs to another process.
    for (key, text) in [("n", "19"), ("a", "0")] {
        tmux.keys(&[key]);
        tmux.until_has(&format!("process {number} (sleep)"));
        tmux.keys(&[text, "Enter"]);
        tmux.until_has("Nothing was done: /proc is of another pid namespace");
        tmux.keys(&["R"]);
        tmux.until("the message is gone", |s| !s.contains("Nothing was done"));
    }
    assert_eq!([has(outer), has(inner)], before);
    // A signal goes to the very process.
    tmux.keys(&["k", "Enter"]);
    tmux.until_has(&format!("Send SIGTERM to process {number} (sleep)?"));
    tmux.keys(&["y"]);
    tmux.until_has(&format!("SIGTERM was sent to process {number} (sleep)"));
    let mut patience = Patience::new(LIMIT);
    while matches!(state(inner), 'S' | 'R') {
        assert!(!patience.is_over(), "the process that top showed got no signal");
        std::thread::sleep(Duration::from_millis(20));
    }
    let [a, b] = scene.sleepers();
    assert!(a.contains(&outer) && !b.contains(&inner));
    assert_eq!((a.len(), b.len()), (MANY, MANY - 1));
}

#[test]
fn no_signal_leaves_the_pid_namespace() {
    let Some(scene) = Scene::new("no_signal_leaves_the_pid_namespace") else { return };
    let [a, b] = scene.inits;
    let (number, outer, inner) = scene.same_number();
    let program = env!("CARGO_BIN_EXE_taskdiag");
    // In the inner pid namespace, with the mounts of the outer one.
    let enter = format!("nsenter --pid=/proc/{b}/ns/pid --mount=/proc/{a}/ns/mnt --");
    let top =
        format!("env LC_ALL=C {program} top -d 300ms -o pid:9,s,comm --where 'pid == {number}'");
    let tmux = Tmux::new(100, 24, &format!("{enter} {top}; exec cat"));
    tmux.until_has(&format!("{number:>9} S sleep"));
    tmux.keys(&["k", "Enter"]);
    tmux.until_has(&format!("Send SIGTERM to process {number} (sleep)?"));
    tmux.keys(&["y"]);
    tmux.until_has("Nothing was done: /proc is of another pid namespace");
    assert_eq!((state(outer), state(inner)), ('S', 'S'));
    // Rows of BPF have pids of our own namespace, which are other processes in this /proc.
    let o = Command::new("sh")
        .args(["-c", &format!("{enter} {program} ps --engine bpf -p 1")])
        .output();
    if parts(&o.unwrap()).0 != 0 {
        return skip("no_signal_leaves_the_pid_namespace", "no BPF here");
    }
    let bpf = format!("{top} --engine bpf");
    let tmux = Tmux::new(100, 24, &format!("{enter} {bpf}; exec cat"));
    tmux.until_has(&format!("{number:>9} S sleep"));
    tmux.keys(&["k", "Enter"]);
    tmux.until_has("Send SIGTERM to process");
    tmux.keys(&["y"]);
    tmux.until_has("Nothing was done: the rows are not from /proc");
    assert_eq!((state(outer), state(inner)), ('S', 'S'));
}

#[test]
fn top_once_says_that_pids_are_foreign() {
    let Some(scene) = Scene::new("top_once_says_that_pids_are_foreign") else { return };
    let program = env!("CARGO_BIN_EXE_taskdiag");
    let shell = scene.between(&format!("{program} top --once -d 50ms"));
    let (code, out, err) = parts(&Command::new("sh").args(["-c", &shell]).output().unwrap());
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("/proc is of another pid namespace"), "{err}");
    assert!(out.contains("sleep"), "{out}");
}

/// This file again, with a number that a shell does not use.
fn high(file: &File) -> OwnedFd {
    // SAFETY: a plain system call, whose result is a new descriptor without another owner.
    unsafe {
        let fd = libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 100);
        assert!(fd >= 100, "{}", std::io::Error::last_os_error());
        OwnedFd::from_raw_fd(fd)
    }
}

/// The master of a new terminal and the terminal itself, with numbers that a shell does not use.
fn terminal() -> (OwnedFd, OwnedFd, String) {
    let master = File::options().read(true).write(true).open("/dev/ptmx").unwrap();
    let (mut number, unlock) = (0, 0);
    // SAFETY: both get the address of an int.
    unsafe {
        assert_eq!(libc::ioctl(master.as_raw_fd(), libc::TIOCGPTN, &mut number), 0);
        assert_eq!(libc::ioctl(master.as_raw_fd(), libc::TIOCSPTLCK, &unlock), 0);
    }
    let path = format!("/dev/pts/{number}");
    let mut options = File::options();
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NOCTTY);
    let slave = options.read(true).write(true).open(&path).unwrap();
    (high(&master), high(&slave), path)
}

/// lsof -E reads the number of a terminal from the descriptor of its master.
#[test]
fn a_master_has_no_terminal_of_a_process_with_its_number_in_a_foreign_proc() {
    let test = "a_master_has_no_terminal_of_a_process_with_its_number_in_a_foreign_proc";
    let (outer, ..) = terminal();
    let (inner, slave, path) = terminal();
    let files = [&outer, &inner, &slave].map(|f| Some(f.as_raw_fd()));
    let Some(scene) = Scene::with_files(test, files, "exec 5>&6 6>&- 7>&-;") else { return };
    let (number, ..) = scene.same_number();
    let [a, _] = scene.inits;
    let program = env!("CARGO_BIN_EXE_taskdiag");
    let lsof = |enter: &str, fd: u32| {
        let command = format!("{enter} {program} --as lsof -E -a -p {number} -d {fd}");
        let mut shell = Command::new("sh");
        shell.args(["-c", &command]).env("TASKDIAG_ENGINE", "bpf");
        parts(&shell.output().unwrap())
    };
    let within = format!("nsenter --pid=/proc/{a}/ns/pid --mount=/proc/{a}/ns/mnt --");
    let (code, own, err) = lsof(&within, 6);
    if code == 4 {
        return skip(test, "no BPF here");
    }
    assert!(own.contains(&path), "{code} {own} {err}");
    let (code, foreign, err) = lsof(&scene.between(""), 5);
    assert!(foreign.contains("/dev/ptmx"), "{code} {foreign} {err}");
    assert!(!foreign.contains(&path), "{foreign}");
}

/// The locks of a descriptor are in its fdinfo, which is found by the number of its process.
#[test]
fn a_descriptor_has_no_lock_of_a_process_with_its_number_in_a_foreign_proc() {
    let test = "a_descriptor_has_no_lock_of_a_process_with_its_number_in_a_foreign_proc";
    let file = tempfile::NamedTempFile::new().unwrap();
    // They are one file, so the lock could be that of the other descriptor.
    let [outer, inner] = [0; 2].map(|_| high(&File::open(file.path()).unwrap()));
    let files = [Some(outer.as_raw_fd()), Some(inner.as_raw_fd()), None];
    let Some(scene) = Scene::with_files(test, files, "exec 5>&6; flock -x 5;") else { return };
    let (number, ..) = scene.same_number();
    let [a, _] = scene.inits;
    let program = env!("CARGO_BIN_EXE_taskdiag");
    let lock = |enter: &str, fd: u32| {
        let command = format!(
            "{enter} {program} files -a -p {number} -d {fd} --no-headers -o lock --engine bpf"
        );
        parts(&Command::new("sh").args(["-c", &command]).output().unwrap())
    };
    let within = format!("nsenter --pid=/proc/{a}/ns/pid --mount=/proc/{a}/ns/mnt --");
    let (code, own, err) = lock(&within, 6);
    if code == 4 {
        return skip(test, "no BPF here");
    }
    assert_eq!(own.trim(), "W", "{code} {err}");
    assert_eq!(lock(&within, 5).1.trim(), "-");
    let (code, foreign, err) = lock(&scene.between(""), 5);
    assert!(!foreign.contains('W') && !foreign.trim().is_empty(), "{code} {foreign} {err}");
}

#[test]
fn wait_names_the_process_that_ended() {
    let Some(scene) = Scene::new("wait_names_the_process_that_ended") else { return };
    let program = env!("CARGO_BIN_EXE_taskdiag");
    let dir = tempfile::tempdir().unwrap();
    let renamed = dir.path().join("renamed");
    std::os::unix::fs::symlink("/bin/sleep", &renamed).unwrap();
    let renamed = renamed.display();
    // Here /proc belongs to the namespace above, and shows us. The shell has reaped the processes
    // or has not.
    let script = format!("{renamed} .3 & {renamed} .4 & exec {program} wait --jsonl $(jobs -p)");
    let o = Command::new("unshare").args(["--pid", "--fork", "bash", "-c", &script]).output();
    let (code, out, err) = parts(&o.unwrap());
    assert_eq!(code, 0, "{err}");
    assert_eq!(out.matches("\"comm\":\"renamed\"").count(), 2, "{out}");
    assert_eq!(out.matches("\"exit_code\":0").count(), 2, "{out}");
    // This /proc does not show us, so it cannot tell which of its processes these are.
    let script = format!("{renamed} .3 & exec {program} wait --jsonl $!");
    std::fs::write(dir.path().join("script"), script).unwrap();
    let script = dir.path().join("script");
    let shell = scene.between(&format!("bash {}", script.display()));
    let (code, out, err) = parts(&Command::new("sh").args(["-c", &shell]).output().unwrap());
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("\"comm\":null") && out.contains("\"exit_code\":0"), "{out}");
    assert!(Path::new("/proc/self").exists());
}

#[test]
fn a_search_in_a_foreign_proc_hides_no_process_with_our_number() {
    let test = "a_search_in_a_foreign_proc_hides_no_process_with_our_number";
    let Some(scene) = Scene::new(test) else { return };
    // A number that the inner namespace uses, and the outer one gives to taskdiag.
    let next = "echo 4999 > /proc/sys/kernel/ns_last_pid";
    let run = |script: &str| {
        let words = scene.between("sh -c");
        let words: Vec<&str> = words.split(' ').chain([script]).collect();
        parts(&super::common::output(words[0], &words[1..]))
    };
    let [_, inner] = scene.inits;
    let enter = format!("--pid=/proc/{inner}/ns/pid --mount=/proc/{inner}/ns/mnt");
    let script = format!("{next}; sleep 3000 > /dev/null 2>&1 & echo $!");
    let words: Vec<&str> = enter.split(' ').chain(["--", "sh", "-c", &script]).collect();
    let (_, out, err) = parts(&super::common::output("nsenter", &words));
    assert_eq!(out.trim(), "5000", "{err}");
    let program = env!("CARGO_BIN_EXE_taskdiag");
    let (_, out, err) =
        run(&format!("{next}; {program} ps --engine procfs -o args= sleep & echo $!; wait"));
    let mut lines = out.lines();
    assert_eq!(lines.next(), Some("5000"), "{out}{err}");
    assert_eq!(lines.filter(|l| *l == "sleep 3000").count(), MANY + 1, "{out}{err}");
}
