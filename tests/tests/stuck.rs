//! Tests that no command waits for a file system that does not answer, whatever path leads there.

use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::time::Duration;

use taskdiag_tests::busy::{Patience, crowd};
use taskdiag_tests::cli::{Ran, Sandbox};
use taskdiag_tests::{Mktask, skip};

/// No command takes longer than this, counted as on a machine that has nothing else to do. It waits two seconds for a sign of life.
const SOON: Duration = Duration::from_secs(58);

/// A mount that does not answer as long as this value lives.
struct Stuck {
    task: Mktask,
    dir: tempfile::TempDir,
}

impl Stuck {
    fn new(test: &str) -> Option<Stuck> {
        Stuck::over(test, tempfile::tempdir().expect("a directory"))
    }
    /// On this directory, which may have something in it.
    fn over(test: &str, dir: tempfile::TempDir) -> Option<Stuck> {
        match Mktask::start(&["stuck-mount", dir.path().to_str().expect("plain")]) {
            Ok(task) => Some(Stuck { task, dir }),
            Err(why) => {
                skip(test, &why);
                None
            }
        }
    }
    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().expect("plain").to_owned()
    }
    fn sandbox(&self) -> Sandbox {
        Sandbox::new().mounts_of(self.task.pid())
    }
    /// Runs the program there, and not for long.
    fn run(&self, args: &[&str]) -> Ran {
        self.run_in(self.sandbox(), args)
    }
    fn run_in(&self, sandbox: Sandbox, args: &[&str]) -> Ran {
        let all: Vec<String> = args.iter().map(|a| (*a).to_owned()).collect();
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let args: Vec<&str> = all.iter().map(String::as_str).collect();
            let _ = tell.send(sandbox.run(&args));
        });
        told.recv_timeout(SOON.mul_f64(crowd())).unwrap_or_else(|_| {
            // Its server ends with it, and so does the waiting.
            // SAFETY: our own child.
            unsafe { libc::kill(self.task.supervisor() as libc::pid_t, libc::SIGKILL) };
            panic!("taskdiag {args:?} waits for the file system")
        })
    }
}

#[test]
fn places() {
    let Some(stuck) = Stuck::new("stuck: places") else { return };
    let (lost, dir, below) = (stuck.path("lost"), stuck.path("dir"), stuck.path("lost/below"));
    for args in [
        &["files", &lost][..],
        &["files", &below],
        &["files", "+D", &dir],
        &["files", "+d", &dir],
        &["files", "-t", &lost],
    ] {
        let ran = stuck.run(args);
        assert_eq!(ran.code, Some(3), "{ran}");
        assert!(ran.stderr.contains("does not answer"), "{ran}");
        assert!(!ran.stderr.contains("is not there"), "{ran}");
    }
    for args in [&["files", "--net", &lost][..], &["ps", "-t", &lost]] {
        let ran = stuck.run(args);
        assert_eq!(ran.code, Some(2), "{ran}");
    }
}

/// If the server of a mount is gone, users ask who keeps the mount busy. The kernel's own knowledge is
/// enough to answer.
#[test]
fn the_mount_itself() {
    let Some(stuck) = Stuck::new("stuck: the mount itself") else { return };
    let x = stuck.path("x");
    let mounts =
        std::fs::File::open(format!("/proc/{}/ns/mnt", stuck.task.pid())).expect("it lives");
    let mut reader = std::process::Command::new("sh");
    reader.args(["-c", "exec 5< \"$1\"; echo there; exec sleep 100", "sh", &x]);
    // SAFETY: a system call on a descriptor that lives until the program begins.
    unsafe {
        reader.pre_exec(move || match libc::setns(mounts.as_raw_fd(), libc::CLONE_NEWNS) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    let mut reader = reader.stdout(std::process::Stdio::piped()).spawn().expect("sh runs");
    let mut word = [0; 5];
    let out = reader.stdout.as_mut().expect("piped");
    std::io::Read::read_exact(out, &mut word).expect("it has opened the file");
    let ran = stuck.run(&["files", "-t", &stuck.path("")]);
    reader.kill().expect("it lives");
    reader.wait().expect("it ends");
    assert!(ran.stdout.lines().any(|l| l == reader.id().to_string()), "{ran}");
    assert!(!ran.stderr.contains("does not answer"), "{ran}");
}

/// A name that ends in the kernel's mark of deleted files has to be looked up. It leads below the mount, which does not answer.
#[test]
fn names_below_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let below = dir.path().join("lost/sub (deleted)");
    std::fs::create_dir_all(&below).expect("it is made");
    let program = below.join("program (deleted)");
    std::fs::copy("/bin/sleep", &program).expect("it is copied");
    let mut child = std::process::Command::new(&program);
    // That of busybox goes by the name that it is called with.
    let mut child = child.arg0("sleep").arg("1000").current_dir(&below).spawn().expect("it runs");
    let pid = child.id().to_string();
    let ran = Stuck::over("stuck: names below it", dir).map(|stuck| {
        [
            &["ps", "-p", &pid, "-o", "exe,cwd"][..],
            &["ps", "-p", &pid, "-o", "exe,cwd", "--engine", "procfs"],
            &["maps", "-p", &pid, "--engine", "procfs"],
            &["files", "-p", &pid, "--mem", "--engine", "procfs"],
        ]
        .map(|args| stuck.run(args))
    });
    child.kill().expect("it lives");
    child.wait().expect("it ends");
    for ran in ran.into_iter().flatten() {
        assert_eq!(ran.code, Some(0), "{ran}");
        assert!(ran.stdout.contains("lost/sub (deleted)"), "{ran}");
    }
}

#[test]
fn a_saved_answer() {
    let Some(stuck) = Stuck::new("stuck: a saved answer") else { return };
    for name in ["x", "lost"] {
        let path = stuck.path(name);
        for command in ["ps", "files", "maps", "memory", "tree"] {
            let ran = stuck.run(&[command, "--from", &path]);
            assert_eq!(ran.code, Some(4), "{ran}");
            assert!(ran.stderr.contains("does not answer"), "{ran}");
        }
    }
}

#[test]
fn ctrl_c() {
    let Some(stuck) = Stuck::new("stuck: Ctrl-C") else { return };
    let (lost, x) = (stuck.path("lost"), stuck.path("x"));
    for args in [&["files", &lost][..], &["ps", "--from", &x]] {
        // On a busy machine it may not have begun by then, or may have given up, so it is tried again.
        let mut all = Vec::new();
        let mut patience = Patience::new(Duration::from_secs(20));
        for ms in [500, 1000, 1500, 2000, 4000].into_iter().cycle() {
            let sandbox = stuck.sandbox().interrupt_after(Duration::from_millis(ms));
            all.push(stuck.run_in(sandbox, args));
            if all.last().is_some_and(|ran| ran.code == Some(130)) || patience.is_over() {
                break;
            }
        }
        let ran = all.last().expect("it ran");
        assert_eq!(ran.code, Some(130), "{all:?}");
        assert!(ran.stderr.contains("stopped by Ctrl-C: nothing is shown"), "{ran}");
    }
}

/// The program waits for input that may be slow, and says so. Ctrl-C ends it.
#[test]
fn a_pipe_without_a_writer() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("pipe");
    let status = std::process::Command::new("mkfifo").arg(&path).status();
    assert!(status.expect("mkfifo runs").success());
    let path = path.to_str().expect("plain");
    let word = "nothing has come for 2 s";
    let run = |secs| {
        let sandbox = Sandbox::new().interrupt_after(Duration::from_secs(secs));
        sandbox.run(&["ps", "--from", path])
    };
    let mut ran = run(4);
    if !ran.stderr.contains(word) {
        // The machine is busy.
        ran = run(40);
    }
    assert_eq!(ran.code, Some(130), "{ran}");
    assert!(ran.stderr.contains(word), "{ran}");
    assert!(ran.stderr.contains(path), "{ran}");
}

#[test]
fn a_slow_pipe() {
    let whole = Sandbox::new().run(&["ps", "-o", "pid"]);
    assert_eq!(whole.code, Some(0), "{whole}");
    // head(1) is not used, because that of busybox reads more than it writes.
    let slowly = "(\"$0\" dump -g base | (dd bs=1 count=1000 2>/dev/null; sleep 3; cat)) | \"$0\" ps --from - -o pid";
    let ran = Sandbox::new().through(&["sh", "-c", slowly]).run(&[]);
    assert_eq!(ran.code, Some(0), "{ran}");
    assert!(ran.stdout.lines().count() > 2, "{ran}");
    assert!(ran.stderr.is_empty(), "{ran}");
}
