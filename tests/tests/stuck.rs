//! Tests that no command waits for a file system that does not answer, whatever path leads there.

use std::fs::File;
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use taskdiag_tests::busy::{Patience, crowd, wait_for_sleep};
use taskdiag_tests::cli::{Ran, Sandbox, taskdiag};
use taskdiag_tests::{Ended, Mktask, skip};

/// No command takes longer than this, counted as on a machine that has nothing else to do. It waits
/// two seconds for a sign of life.
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
        let task = Mktask::or_skip(test, &["stuck-mount", dir.path().to_str().expect("plain")])?;
        Some(Stuck { task, dir })
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
            // The server ends with the supervisor, and then the wait ends, too. SAFETY: our own
            // child.
            unsafe { libc::kill(self.task.supervisor() as libc::pid_t, libc::SIGKILL) };
            panic!("taskdiag {args:?} waits for the file system")
        })
    }
}

/// Commands that write a file or open a recording, on a file system that does not answer.
fn writers<'a>(lost: &'a str, dir: &'a str) -> [Vec<&'a str>; 6] {
    [
        vec!["report", "-o", lost],
        vec!["record", dir, "-n", "1"],
        vec!["record", lost, "-n", "1"],
        vec!["top", "--once", "--replay", lost],
        vec!["export", "--once", "--config", lost],
        vec!["export", "--once", "--textfile", lost],
    ]
}

#[test]
fn writing_to_a_stuck_mount_is_an_error() {
    let Some(stuck) = Stuck::new("stuck: writing_to_a_stuck_mount_is_an_error") else { return };
    let (lost, dir) = (stuck.path("lost"), stuck.path(""));
    for args in writers(&lost, &dir) {
        let ran = stuck.run(&args);
        assert!(!matches!(ran.code, Some(0) | None), "{args:?} {ran}");
        assert!(ran.stderr.contains("does not answer"), "{args:?} {ran}");
    }
}

/// Commands of builds with the feature `arrow`, which write their files there.
#[test]
fn writing_tables_to_a_stuck_mount_is_an_error() {
    const NAME: &str = "stuck: writing_tables_to_a_stuck_mount_is_an_error";
    let Some(stuck) = Stuck::new(NAME) else { return };
    let (lost, dir) = (stuck.path("lost"), stuck.path(""));
    let recording = tempfile::tempdir().expect("a directory");
    let from = recording.path().to_str().expect("plain");
    let made = stuck.run(&["record", from, "-n", "1"]);
    assert_eq!(made.code, Some(0), "{made}");
    for args in [
        &["ps", "--parquet", &lost][..],
        &["files", "--parquet", &lost],
        &["convert", from, &lost],
        &["convert", from, &dir],
    ] {
        let ran = stuck.run(args);
        assert!(!matches!(ran.code, Some(0) | None), "{args:?} {ran}");
        if ran.stderr.contains("left out of this build") || ran.stderr.contains("built without") {
            return skip(NAME, "the program was built without the feature arrow");
        }
        assert!(ran.stderr.contains("does not answer"), "{args:?} {ran}");
    }
}

/// Ctrl-C must not lead to another wait.
#[test]
fn an_interrupt_ends_the_waiting_at_once() {
    let Some(stuck) = Stuck::new("stuck: an_interrupt_ends_the_waiting_at_once") else { return };
    let (lost, dir) = (stuck.path("lost"), stuck.path(""));
    let readers = [vec!["ps", "--from", &lost], vec!["files", &lost]];
    for args in writers(&lost, &dir).into_iter().chain(readers) {
        // Some begin to wait when they have an answer about the machine. It is tried until it was
        // interrupted in time.
        let mut was_in_time = false;
        for after in [300, 600, 1200, 2400].map(Duration::from_millis) {
            let sandbox = stuck.sandbox().interrupt_after(after);
            let begun = Instant::now();
            let ran = stuck.run_in(sandbox, &args);
            let took = begun.elapsed();
            // Otherwise, the interrupt came before the end of the wait, so the program ends early.
            if !ran.stderr.contains("does not answer") {
                assert_eq!(ran.code, Some(130), "{args:?} {ran}");
                assert!(
                    took < after + Duration::from_secs(1).mul_f64(crowd()),
                    "{args:?} {took:?} {ran}"
                );
                was_in_time = true;
                break;
            }
        }
        assert!(was_in_time, "{args:?}");
    }
}

#[test]
fn a_place_below_a_stuck_mount_is_reported_as_without_answer() {
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

/// If the server of a mount is gone, users ask who keeps the mount busy. The kernel's own knowledge
/// is enough to answer.
#[test]
fn users_of_a_stuck_mount_are_listed() {
    let Some(stuck) = Stuck::new("stuck: the mount itself") else { return };
    let x = stuck.path("x");
    let mounts = File::open(format!("/proc/{}/ns/mnt", stuck.task.pid())).expect("it lives");
    let mut reader = Command::new("sh");
    reader.args(["-c", "exec 5< \"$1\"; echo there; exec sleep 100", "sh", &x]);
    // SAFETY: a system call on a descriptor that lives until the program begins.
    unsafe {
        reader.pre_exec(move || match libc::setns(mounts.as_raw_fd(), libc::CLONE_NEWNS) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    let mut reader = Ended(reader.stdout(Stdio::piped()).spawn().expect("sh runs"));
    let mut word = [0; 5];
    let out = reader.0.stdout.as_mut().expect("piped");
    out.read_exact(&mut word).expect("it has opened the file");
    let ran = stuck.run(&["files", "-t", &stuck.path("")]);
    assert!(ran.stdout.lines().any(|l| l == reader.0.id().to_string()), "{ran}");
    assert!(!ran.stderr.contains("does not answer"), "{ran}");
}

/// A name that ends in the kernel's mark of deleted files has to be looked up. The path of this
/// file is below a mount that does not answer.
#[test]
fn names_below_a_stuck_mount_are_shown() {
    let dir = tempfile::tempdir().expect("a directory");
    let below = dir.path().join("lost/sub (deleted)");
    std::fs::create_dir_all(&below).expect("it is made");
    let program = below.join("program (deleted)");
    std::fs::copy("/bin/sleep", &program).expect("it is copied");
    let mut child = Command::new(&program);
    // The sleep of busybox goes by the name that it is called with.
    let child = child.arg0("sleep").arg("1000").current_dir(&below).spawn();
    let child = Ended(child.expect("it runs"));
    wait_for_sleep(child.0.id());
    let pid = child.0.id().to_string();
    let ran = Stuck::over("stuck: names below it", dir).map(|stuck| {
        [
            &["ps", "-p", &pid, "-o", "exe,cwd"][..],
            &["ps", "-p", &pid, "-o", "exe,cwd", "--engine", "procfs"],
            &["maps", "-p", &pid, "--engine", "procfs"],
            &["files", "-p", &pid, "--mem", "--engine", "procfs"],
        ]
        .map(|args| stuck.run(args))
    });
    drop(child);
    for ran in ran.into_iter().flatten() {
        assert_eq!(ran.code, Some(0), "{ran}");
        assert!(ran.stdout.contains("lost/sub (deleted)"), "{ran}");
    }
}

#[test]
fn a_saved_answer_on_a_stuck_mount_is_an_error() {
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
fn ctrl_c_ends_a_wait_for_a_stuck_mount() {
    let Some(stuck) = Stuck::new("stuck: Ctrl-C") else { return };
    let (lost, x) = (stuck.path("lost"), stuck.path("x"));
    for args in [&["files", &lost][..], &["ps", "--from", &x]] {
        // On a busy machine it may not have begun by then, or may have given up, so it is tried
        // again.
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

/// The program, which waits for input that may be slow.
struct Waits {
    child: Child,
    /// The output of the program on standard error.
    says: Lines<BufReader<ChildStderr>>,
}

impl Waits {
    fn start(args: &[&str], input: Stdio) -> Waits {
        let mut command = Command::new(taskdiag());
        command.args(args).env("NO_COLOR", "1").env_remove("TASKDIAG_ENGINE").stdin(input);
        // SAFETY: a plain system call. The signal may be ignored if the test runs in the background
        // of a shell.
        unsafe {
            command.pre_exec(|| {
                libc::signal(libc::SIGINT, libc::SIG_DFL);
                Ok(())
            });
        }
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let says = BufReader::new(child.stderr.take().expect("piped")).lines();
        Waits { child, says }
    }
    /// Waits for the program. Returns its exit code, its output, and the rest of its standard
    /// error.
    fn end(mut self) -> (Option<i32>, String, String) {
        // The output is short, so the program does not wait for a reader.
        let mut out = String::new();
        let stdout = self.child.stdout.as_mut().expect("piped");
        stdout.read_to_string(&mut out).expect("it is text");
        let says: Vec<String> = self.says.map(|l| l.expect("it is text")).collect();
        (self.child.wait().expect("it is ours").code(), out, says.join("\n"))
    }
}

/// Makes a FIFO.
fn fifo(dir: &tempfile::TempDir) -> String {
    let path = dir.path().join("pipe").to_str().expect("plain").to_owned();
    let status = Command::new("mkfifo").arg(&path).status();
    assert!(status.expect("mkfifo runs").success());
    path
}

/// Messages that are allowed on a machine so busy that the program's helper does not even begin
/// within two seconds. Then the test is repeated.
const TOO_BUSY: &str = "its file system does not answer";

/// The program waits for input that may be slow, and reports that. Ctrl-C ends it.
#[test]
fn a_pipe_without_a_writer_is_waited_for_with_a_message() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = fifo(&dir);
    let mut patience = Patience::new(Duration::from_secs(50));
    loop {
        let mut waits = Waits::start(&["ps", "--from", &path], Stdio::null());
        let first = waits.says.next().expect("it says something").expect("it is text");
        if first.contains(TOO_BUSY) && !patience.is_over() {
            waits.end();
            continue;
        }
        assert!(first.contains("no data for 2 s"), "{first}");
        assert!(first.contains(&path), "{first}");
        // SAFETY: our own child, which nobody has waited for.
        unsafe { libc::kill(waits.child.id() as libc::pid_t, libc::SIGINT) };
        let (code, out, says) = waits.end();
        assert_eq!(code, Some(130), "{out}\n{says}");
        return;
    }
}

/// Builds with the feature `arrow` write a table to a pipe, and say that they wait for its reader.
#[test]
fn a_pipe_without_a_reader_is_waited_for_with_a_message() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = fifo(&dir);
    let mut waits = Waits::start(&["ps", "-p", "1", "--parquet", &path], Stdio::null());
    let mut first = waits.says.next().expect("it says something").expect("it is text");
    if first.contains("built without") {
        return skip(
            "a_pipe_without_a_reader_is_waited_for_with_a_message",
            "the program was built without the feature arrow",
        );
    }
    // Something about the process may come before it.
    while !first.contains("nobody has read from it for 2 s") {
        first = waits.says.next().expect("it says that it waits").expect("it is text");
    }
    assert!(first.contains(&path), "{first}");
    // SAFETY: our own child, which nobody has waited for.
    unsafe { libc::kill(waits.child.id() as libc::pid_t, libc::SIGINT) };
    let (code, out, says) = waits.end();
    assert_eq!(code, Some(130), "{out}\n{says}");
}

/// How many bytes are in a pipe.
fn bytes_in(pipe: &File) -> libc::c_int {
    let mut n = 0;
    // SAFETY: the kernel writes one int.
    assert_eq!(unsafe { libc::ioctl(pipe.as_raw_fd(), libc::FIONREAD, &mut n) }, 0);
    n
}

/// Input that pauses for longer than two seconds after its start is read to its end, without a
/// message.
#[test]
fn a_slow_pipe_is_read_to_its_end() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("saved").to_str().expect("plain").to_owned();
    let saved = Sandbox::new().through(&["sh", "-c", "exec \"$0\" dump -g base >\"$1\""]);
    let saved = saved.run(&[&file]);
    // Somebody's process may have a value that cannot be read.
    assert!(matches!(saved.code, Some(0 | 3)), "{saved}");
    let bytes = std::fs::read(&file).expect("it is there");
    let (begin, rest) = bytes.split_at(1000);
    let ps = |from, input| Waits::start(&["ps", "--from", from, "-o", "pid"], input).end();
    let whole = ps(&file, Stdio::null());
    assert!(whole.0 == Some(0) && whole.1.lines().count() > 2, "{whole:?}");
    let path = fifo(&dir);
    let mut patience = Patience::new(Duration::from_secs(15));
    let mut all = Vec::new();
    loop {
        // The start of the input is there before the program. One end is opened for both, since an
        // open of one end waits for the other.
        let both = File::options().read(true).write(true).open(&path).expect("a pipe");
        let mut writer = File::options().write(true).open(&path).expect("it has a reader");
        let input = File::open(&path).expect("it has a writer");
        drop(both);
        writer.write_all(begin).expect("there is room");
        let mut slow = Waits::start(&["ps", "--from", "-", "-o", "pid"], input.into());
        let has_given_up = |slow: &mut Waits| slow.child.try_wait().expect("it is ours").is_some();
        while bytes_in(&writer) > 0 && !has_given_up(&mut slow) {
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(Duration::from_secs(3));
        // This fails if it has given up.
        let _ = writer.write_all(rest);
        drop(writer);
        all.push(slow.end());
        // On a busy machine the helper may take two seconds to begin or to pass on what it has
        // read. This cannot happen each time.
        if all.last() == Some(&whole) {
            return;
        }
        assert!(!patience.is_over(), "{all:?}\nis not {whole:?}");
    }
}
