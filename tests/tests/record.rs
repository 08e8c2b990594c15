//! `taskdiag record` under bad conditions: killed at any moment, asked to end, next to another one,
//! and on a full disk. Only the frame that is being written may be lost.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use taskdiag::recording::Recording;
use taskdiag_tests::busy::{Patience, worth};
use taskdiag_tests::cli::{Sandbox, taskdiag};
use taskdiag_tests::{Ended, is_root, skip};

struct Recorder {
    child: Ended,
    said: PathBuf,
}

impl Recorder {
    /// Records to `dir`, where `before` is run in the child first.
    fn start(
        dir: &Path,
        said: PathBuf,
        mut before: impl FnMut() -> io::Result<()> + Send + Sync + 'static,
    ) -> Recorder {
        let mut command = Command::new(taskdiag());
        // Few groups make small frames. A small disk has room for some of them even on a machine
        // with many processes.
        command.args(["record", "--every", "100ms", "-g", "base,stat"]).arg(dir);
        command.stdin(Stdio::null()).stderr(File::create(&said).expect("there is room"));
        let prepare = move || {
            for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
                // SAFETY: no handler is installed. A shell without job control starts programs with
                // SIGINT ignored, and taskdiag leaves ignored signals so.
                unsafe { libc::signal(signal, libc::SIG_DFL) };
            }
            before()
        };
        // SAFETY: what runs before exec() makes system calls only.
        unsafe { command.pre_exec(prepare) };
        Recorder { child: Ended(command.spawn().expect("it starts")), said }
    }
    fn said(&self) -> String {
        fs::read_to_string(&self.said).expect("it is there")
    }
    /// Waits until it has printed this.
    fn wait_for(&self, text: &str) {
        let mut wait = Patience::new(Duration::from_secs(20));
        while !self.said().contains(text) {
            assert!(!wait.is_over(), "it does not say '{text}': {}", self.said());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    fn signal(&self, signal: i32) {
        // SAFETY: a signal to our own child, which was not waited for.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, signal) }, 0);
    }
    /// Ends the recorder. Returns its exit code, and how long its end took.
    fn end(&mut self) -> (Option<i32>, Duration) {
        let (begin, mut wait) = (Instant::now(), Patience::new(Duration::from_secs(60)));
        loop {
            if let Some(status) = self.child.0.try_wait().expect("it is ours") {
                return (status.code(), begin.elapsed());
            }
            assert!(!wait.is_over(), "it does not end: {}", self.said());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Every frame can be read. Returns the number of frames, and the number of bytes at the end that
/// belong to none.
fn check(dir: &Path) -> (usize, u64) {
    let recording = Recording::open(dir).expect("it opens");
    for frame in recording.iter() {
        let frame = frame.expect("it is whole");
        assert_eq!(frame.snapshot.tasks().len() as u32, frame.info.tasks);
    }
    assert!(recording.damage().iter().all(|d| d.is_tail), "{:?}", recording.damage());
    (recording.len(), recording.damage().iter().map(|d| d.bytes).sum())
}

/// Waits until there are more frames than this, and nothing else. Returns how many there are. A
/// frame that is being written, or did not fit and is about to be cut off, is seen in part for a
/// moment.
fn whole_frames(dir: &Path, than: usize) -> usize {
    let mut wait = Patience::new(Duration::from_secs(20));
    loop {
        let (frames, torn) = check(dir);
        if frames > than && torn == 0 {
            return frames;
        }
        assert!(!wait.is_over(), "{frames} frames, not more than {than}, and {torn} bytes");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_recorder_that_is_killed_often_loses_no_frame() {
    let home = tempfile::tempdir().expect("there is room");
    let dir = home.path().join("r");
    let mut before = 0;
    for round in 0..20u64 {
        let mut recorder = Recorder::start(&dir, home.path().join("said"), || Ok(()));
        recorder.wait_for("recording to");
        // At any moment between two frames.
        std::thread::sleep(Duration::from_millis(100 + round * 37 % 200));
        let (reading, _) = check(&dir);
        recorder.signal(libc::SIGKILL);
        assert_eq!(recorder.end().0, None);
        let (frames, torn) = check(&dir);
        assert!(reading > before && frames >= reading, "{before}, {reading}, {frames}, {torn}");
        before = frames;
    }
    // The end of the last frame is cut off, which a kill does only rarely: the next writer
    // continues nevertheless.
    let recording = Recording::open(&dir).expect("it opens");
    let day = fs::read_dir(&dir).expect("it is there").map(|e| e.expect("it is there").path());
    let newest =
        day.filter(|p| p.extension().is_some_and(|e| e == "tdr")).max().expect("one is there");
    let file = File::options().write(true).open(&newest).expect("it opens");
    file.set_len(file.metadata().expect("it is there").len() - 3).expect("it is cut");
    assert_eq!(check(&dir).0, recording.len() - 1);
    let mut recorder = Recorder::start(&dir, home.path().join("said"), || Ok(()));
    recorder.wait_for("removed an incomplete frame");
    recorder.wait_for("recording to");
    recorder.signal(libc::SIGTERM);
    assert_eq!(recorder.end().0, Some(0));
    let (frames, torn) = check(&dir);
    assert!(frames >= recording.len() && torn == 0, "{frames} {torn}");
}

#[test]
fn a_recorder_ends_at_a_signal_with_a_whole_file() {
    let home = tempfile::tempdir().expect("there is room");
    let dir = home.path().join("r");
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        let mut recorder = Recorder::start(&dir, home.path().join("said"), || Ok(()));
        recorder.wait_for("recording to");
        recorder.signal(signal);
        let (code, took) = recorder.end();
        assert_eq!(code, Some(0), "{}", recorder.said());
        assert!(worth(took) < Duration::from_secs(10), "{took:?}");
        assert_eq!(recorder.said().lines().count(), 1, "{}", recorder.said());
    }
    let (frames, torn) = check(&dir);
    assert!(frames >= 3 && torn == 0);
}

#[test]
fn a_directory_has_one_recorder() {
    let home = tempfile::tempdir().expect("there is room");
    let dir = home.path().join("r");
    let first = Recorder::start(&dir, home.path().join("said"), || Ok(()));
    first.wait_for("recording to");
    let mut second = Recorder::start(&dir, home.path().join("said2"), || Ok(()));
    assert_eq!(second.end().0, Some(4));
    let said = second.said();
    assert!(said.contains(&format!("(process {})", first.child.id())), "{said}");
    assert!(said.contains("record to another directory"), "{said}");
}

/// Writes more small frames than fit on a disk on which a frame of usual size has no room.
const FITS: usize = 8;
/// The size of the file system, most of which is filled at first.
const DISK: u64 = 32 << 20;

/// Gives this process a small file system at `dir`, which is full except for `free` bytes. Makes
/// system calls only.
fn small_disk(dir: &CString, ballast: &CString, free: u64) -> io::Result<()> {
    let call = |rc: i32| if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(rc) };
    // SAFETY: all strings live across the calls, and the descriptor is ours.
    unsafe {
        call(libc::unshare(libc::CLONE_NEWNS))?;
        let flags = libc::MS_REC | libc::MS_PRIVATE;
        call(libc::mount(
            std::ptr::null(),
            c"/".as_ptr(),
            std::ptr::null(),
            flags,
            std::ptr::null(),
        ))?;
        let (kind, size) = (c"tmpfs".as_ptr(), c"size=32m,mode=755".as_ptr());
        call(libc::mount(kind, dir.as_ptr(), kind, 0, size.cast()))?;
        let fd = call(libc::open(
            ballast.as_ptr(),
            libc::O_CREAT | libc::O_WRONLY | libc::O_CLOEXEC,
            0o600,
        ))?;
        match libc::posix_fallocate(fd, 0, (DISK - free) as i64) {
            0 => call(libc::close(fd)).map(drop),
            e => Err(io::Error::from_raw_os_error(e)),
        }
    }
}

#[test]
fn a_recorder_survives_a_full_disk() {
    if !is_root() {
        return skip(
            "record::a_recorder_survives_a_full_disk",
            "a file system of its own needs root",
        );
    }
    let home = tempfile::tempdir().expect("there is room");
    let disk = home.path().join("disk");
    fs::create_dir(&disk).expect("there is room");
    let c = |path: &Path| CString::new(path.to_str().expect("a path of ours")).expect("no NUL");
    // The first frame has all processes of the machine, and the later ones need less.
    let first = home.path().join("first");
    let ran =
        Sandbox::new().run(&["record", "-n", "1", "-g", "base,stat", &*first.to_string_lossy()]);
    assert_eq!(ran.code, Some(0), "{ran}");
    let files =
        fs::read_dir(&first).expect("it is there").map(|e| e.expect("it is there").metadata());
    let first: u64 = files.map(|m| m.expect("it is there").len().next_multiple_of(4096)).sum();
    assert!(first < DISK / 4, "{first}");
    // The disk is full at another point of a frame each time.
    for free in [24, 28, 36].map(|kib| (first * 5 / 4).next_multiple_of(4096) + (kib << 10)) {
        let (at, ballast) = (c(&disk), c(&disk.join("ballast")));
        let make = move || small_disk(&at, &ballast, free);
        let mut recorder = Recorder::start(&disk.join("r"), home.path().join("said"), make);
        recorder.wait_for("recording to");
        let inside = |path: &Path| {
            let root = PathBuf::from(format!("/proc/{}/root", recorder.child.id()));
            root.join(path.strip_prefix("/").expect("it is absolute"))
        };
        recorder.wait_for("answers are lost until this is fixed");
        assert!(recorder.said().contains("No space left"), "{}", recorder.said());
        // A reader finds all frames, and no incomplete one.
        let dir = inside(&disk.join("r"));
        let full = whole_frames(&dir, 0);
        std::thread::sleep(Duration::from_millis(250));
        fs::remove_file(inside(&disk.join("ballast"))).expect("it is there");
        // A smaller frame may still have had room, so that it printed this before. So frames are
        // counted, too.
        recorder.wait_for("recording again");
        whole_frames(&dir, full + FITS);
        recorder.signal(libc::SIGTERM);
        assert_eq!(recorder.end().0, Some(0), "{}", recorder.said());
    }
    // No room for the first frame is an error.
    let (at, ballast) = (c(&disk), c(&disk.join("ballast")));
    let make = move || small_disk(&at, &ballast, 4096);
    let mut recorder = Recorder::start(&disk.join("r"), home.path().join("said"), make);
    assert_eq!(recorder.end().0, Some(4), "{}", recorder.said());
    assert!(recorder.said().contains("No space left"), "{}", recorder.said());
}

/// A recording is for its owner only, so other users get a hint.
#[test]
fn an_error_tells_another_user_what_to_do() {
    if !is_root() {
        return skip(
            "record::an_error_tells_another_user_what_to_do",
            "only root can be another user",
        );
    }
    let home = tempfile::tempdir().expect("there is room");
    let dir = home.path().join("r");
    let name = dir.to_str().expect("text");
    let ran = Sandbox::new().run(&["record", "-n", "1", "-g", "base", name]);
    assert_eq!(ran.code, Some(0), "{ran}");
    // The directory above may be entered, and the recording may not.
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
    for (args, want) in [
        (&["ps", "--from", name][..], "run it as root or as the owner"),
        (&["top", "--once", "--replay", name], "run it as root or as the owner"),
        (&["record", "-n", "1", name], "name a directory that you may write to"),
    ] {
        let ran = Sandbox::new().user(65534).run(args);
        assert!(ran.code == Some(4) && ran.stderr.contains("Permission denied"), "{ran}");
        assert!(ran.stderr.contains(want), "{ran}");
    }
}
