//! Lets a child process do work that may wait for a file system for ever, because a path from the
//! user may lead to a mount whose server is gone. If the child does not answer, it is abandoned.
//!
//! A thread would not do. A call that waits for such a server often cannot even be killed, and a
//! process ends only after all of its threads. The child has none of our files but its input and
//! two pipes, so no other process waits for it. It ends with us, or when the file system answers.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};

use crate::exit::say;

/// If the child sends nothing for this time, it counts as stuck, unless it only waits for a
/// processor.
pub const PATIENCE: Duration = Duration::from_secs(2);
/// The longest wait for a child that waits for a processor.
const STARVED: Duration = Duration::from_secs(30);
/// The largest number of entries of a directory that are read.
const ENTRIES_MAX: usize = 10_000;
/// How often the child gives a sign of life.
const PULSE: Duration = Duration::from_millis(200);
/// The descriptors of the pipes to us, in the child.
const DATA: RawFd = 1;
const STATUS: RawFd = 2;

/// Messages of the child about its work. Each message has two numbers.
const BUSY: i32 = 0;
const SLOW: i32 = 1;
const FAILED: i32 = 2;

/// The side that does the work, usually in a child process.
#[derive(Debug)]
pub struct Child {
    last_pulse: Instant,
    /// The output, if no child can be started and this process does the work.
    here: Option<Vec<u8>>,
}

impl Child {
    fn new(here: Option<Vec<u8>>) -> Child {
        Child { last_pulse: Instant::now(), here }
    }
    fn tell(&mut self, what: i32, value: i32) {
        if self.here.is_some() {
            return;
        }
        let mut message = [0; 8];
        message[..4].copy_from_slice(&what.to_ne_bytes());
        message[4..].copy_from_slice(&value.to_ne_bytes());
        // SAFETY: the bytes live across the call. An error means that the reader is gone, and is
        // ignored.
        unsafe { libc::write(STATUS, message.as_ptr().cast(), message.len()) };
        self.last_pulse = Instant::now();
    }
    /// Tell the parent now and then that the child is alive.
    pub fn is_busy(&mut self) {
        if self.last_pulse.elapsed() > PULSE {
            self.tell(BUSY, 0);
        }
    }
    /// Tell the parent that the input may come slowly, because another process writes it.
    fn is_slow(&mut self) {
        self.tell(SLOW, 0);
    }
}

impl Write for Child {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(here) = &mut self.here {
            return here.write(bytes);
        }
        // SAFETY: the bytes live across the call.
        let n = unsafe { libc::write(DATA, bytes.as_ptr().cast(), bytes.len()) };
        usize::try_from(n).map_err(|_| io::Error::last_os_error())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads the output of the child as it comes. [`io::ErrorKind::TimedOut`] means that the child does
/// not answer, and the text of the error says why.
#[derive(Debug)]
pub struct Aside {
    child: libc::pid_t,
    data: OwnedFd,
    status: OwnedFd,
    /// The name of the input, until data has come and no message about slow input is needed.
    name: Option<String>,
    is_slow: bool,
    silence: Silence,
}

/// The time since the child last sent something, in units of [`PATIENCE`].
#[derive(Clone, Copy, Debug, Default)]
struct Silence {
    times: u32,
    /// At the last look, it could run.
    was_runnable: bool,
}

impl Silence {
    /// Nothing has come for another period. Returns the reason if the parent must stop waiting for
    /// the child. A child that could run at the last look gets one more period, because it may have
    /// begun to wait for a file system only since then.
    fn goes_on(&mut self, is_runnable: bool) -> Option<String> {
        self.times += 1;
        if !is_runnable && !std::mem::replace(&mut self.was_runnable, false) {
            let patience = PATIENCE.as_secs();
            return Some(format!("its file system does not answer within {patience} s"));
        }
        self.was_runnable = is_runnable;
        (PATIENCE * self.times >= STARVED).then(|| {
            format!(
                "the process that reads it got too little processor time for {} s",
                STARVED.as_secs()
            )
        })
    }
}

/// Can this child run, so that it only waits for a processor? If /proc cannot be read, the answer
/// is no. In a /proc of another pid namespace, another process has this number, which is not our
/// child.
fn is_runnable(child: libc::pid_t) -> bool {
    let stat = std::fs::read(format!("/proc/{child}/stat")).unwrap_or_default();
    // The name may contain spaces and parentheses.
    let after_name = stat.iter().rposition(|b| *b == b')').map_or(stat.len(), |at| at + 1);
    let mut words = stat[after_name..].split(|b| *b == b' ').filter(|w| !w.is_empty());
    let state = words.next();
    state == Some(b"R") && words.next() == Some(std::process::id().to_string().as_bytes())
}

/// Do some work in a child process. `Err` if there can be no child.
pub fn start(work: impl FnOnce(&mut Child) -> io::Result<()>) -> io::Result<Aside> {
    start_with(None, work)
}

/// Starts a child, with this descriptor as its standard input.
fn start_with(
    input: Option<RawFd>,
    work: impl FnOnce(&mut Child) -> io::Result<()>,
) -> io::Result<Aside> {
    let (data, data_out) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let (status, status_out) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    // A larger pipe needs fewer rounds for a large file. This size is the limit for users without
    // privileges.
    let _ = rustix::pipe::fcntl_setpipe_size(&data, 1 << 20);
    // SAFETY: the program has one thread here. In tests it has more, but the C library keeps its
    // own locks free, and the child takes no lock of Rust's.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            settle(input, &data_out, &status_out);
            let mut child = Child::new(None);
            if let Err(e) = work(&mut child) {
                child.tell(FAILED, e.raw_os_error().unwrap_or(libc::EIO));
            }
            // SAFETY: this ends the child without the work that the parent does at its end.
            unsafe { libc::_exit(0) }
        }
        child => Ok(Aside {
            child,
            data,
            status,
            name: None,
            is_slow: false,
            silence: Silence::default(),
        }),
    }
}

/// Called in the child: keeps the input and the two pipes, and makes it end with the parent.
fn settle(input: Option<RawFd>, data: &OwnedFd, status: &OwnedFd) {
    // SAFETY: plain system calls. The descriptors that are closed are not used any more. The pipes
    // have numbers above 2, because the parent has 0 to 2 open.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        for signal in [libc::SIGINT, libc::SIGPIPE] {
            libc::signal(signal, libc::SIG_DFL);
        }
        // The descriptor may be 1 or 2, so it is moved first.
        if let Some(input) = input {
            libc::dup2(input, 0);
        }
        libc::dup2(data.as_raw_fd(), DATA);
        libc::dup2(status.as_raw_fd(), STATUS);
        let first = STATUS + 1;
        if libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, 0) != 0 {
            (first..1024).for_each(|fd| _ = libc::close(fd));
        }
    }
}

impl Aside {
    fn kill(&self) {
        // SAFETY: our own child, which was not waited for.
        unsafe { libc::kill(self.child, libc::SIGKILL) };
    }
    /// The next message of the child, or `None` if there is none now.
    fn word(&self) -> io::Result<Option<i32>> {
        let mut message = [0; 8];
        let n = retry_on_intr(|| rustix::io::read(&self.status, &mut message))?;
        if n < message.len() {
            return Ok(None);
        }
        let number = |i: usize| i32::from_ne_bytes([0, 1, 2, 3].map(|k| message[i + k]));
        match number(0) {
            FAILED => Err(io::Error::from_raw_os_error(number(4))),
            word => Ok(Some(word)),
        }
    }
    /// Wait for data or a message.
    fn wait(&mut self) -> io::Result<bool> {
        let flags = PollFlags::IN;
        let mut fds = [
            PollFd::from_borrowed_fd(self.status.as_fd(), flags),
            PollFd::from_borrowed_fd(self.data.as_fd(), flags),
        ];
        let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
        let patient = self.is_slow && self.name.is_none();
        let ready = match poll(&mut fds, if patient { None } else { Some(&patience) }) {
            Err(Errno::INTR) => return Ok(false),
            ready => ready?,
        };
        if ready == 0 && !self.is_slow {
            let Some(why) = self.silence.goes_on(is_runnable(self.child)) else { return Ok(false) };
            self.kill();
            return Err(io::Error::new(io::ErrorKind::TimedOut, why));
        }
        if ready == 0 {
            if let Some(name) = self.name.take() {
                say(format_args!(
                    "taskdiag: {name}: no data for {} s; Ctrl-C stops waiting",
                    PATIENCE.as_secs()
                ));
            }
            return Ok(false);
        }
        self.silence = Silence::default();
        if fds[0].revents().contains(PollFlags::IN) {
            self.is_slow |= self.word()? == Some(SLOW);
            return Ok(false);
        }
        Ok(!fds[1].revents().is_empty())
    }
}

impl Read for Aside {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while !self.wait()? {}
        let n = retry_on_intr(|| rustix::io::read(&self.data, &mut *buf))?;
        if n > 0 {
            // Data has come, so no message about slow input is needed.
            if self.is_slow {
                self.name = None;
            }
            return Ok(n);
        }
        // The last message comes before the end of the data.
        while self.word()?.is_some() {}
        Ok(0)
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        self.kill();
        // The child has usually ended. It is not waited for, because sometimes not even SIGKILL
        // ends it.
        for _ in 0..20 {
            // SAFETY: it is our own child, and the kernel writes no status.
            match unsafe { libc::waitpid(self.child, std::ptr::null_mut(), libc::WNOHANG) } {
                0 => std::thread::sleep(Duration::from_millis(1)),
                _ => break,
            }
        }
    }
}

/// The output of some work, and its result. If the child stops answering, the output up to then is
/// returned.
pub fn ask(work: impl Fn(&mut Child) -> io::Result<()>) -> (Vec<u8>, io::Result<()>) {
    let mut said = Vec::new();
    match start(&work) {
        Ok(mut aside) => {
            let end = aside.read_to_end(&mut said).map(drop);
            (said, end)
        }
        Err(_) => {
            let mut here = Child::new(Some(said));
            let end = work(&mut here);
            (here.here.unwrap_or_default(), end)
        }
    }
}

/// Does the file system of a path answer? A child looks at the path, and at the directory that it
/// names or is in, if they exist. This comes before this process opens the file, because that could
/// not even be interrupted.
///
/// # Errors
/// [`io::ErrorKind::TimedOut`], and why. Opening the file reports any other error.
pub fn answers(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let (_, end) = ask(|to| {
        for path in [path, parent] {
            let Ok(there) = std::fs::metadata(path) else { continue };
            to.is_busy();
            if there.is_dir() {
                for entry in std::fs::read_dir(path)?.take(ENTRIES_MAX) {
                    // The recordings and other files in it are opened later, too.
                    let _ = entry?.metadata();
                    to.is_busy();
                }
            }
        }
        Ok(())
    });
    match end {
        Err(e) if e.kind() == io::ErrorKind::TimedOut => Err(e),
        _ => Ok(()),
    }
}

/// The number of our descriptor that a path names, as in `/dev/fd/63`, which a shell makes of
/// `<(command)`.
fn descriptor(path: &Path) -> Option<RawFd> {
    let text = path.to_str()?;
    let number = text.strip_prefix("/dev/fd/").or_else(|| text.strip_prefix("/proc/self/fd/"))?;
    let number = number.parse().ok().filter(|n: &RawFd| *n >= 0)?;
    // SAFETY: a plain system call without side effects.
    (unsafe { libc::fcntl(number, libc::F_GETFD) } != -1).then_some(number)
}

/// The bytes of a file, or of standard input for `-`.
pub fn read(path: &Path) -> io::Result<Box<dyn Read>> {
    // The child has none of our other descriptors, and its /proc/self is its own.
    let input = descriptor(path);
    let is_dash = path == Path::new("-");
    let name = match is_dash {
        true => String::from("standard input"),
        false => crate::exit::shown(path),
    };
    let is_stdin = is_dash || input.is_some();
    let open = || match is_stdin {
        // SAFETY: standard input is open (see main.rs), and is not closed or used elsewhere.
        true => Ok(unsafe { File::from_raw_fd(0) }),
        false => File::open(path),
    };
    let copy = |child: &mut Child| {
        let look = || {
            // An open of a FIFO waits for a writer, so find out first what the file is.
            let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
            File::options().read(true).custom_flags(flags).open(path)
        };
        let first = if is_stdin { open()? } else { look()? };
        let kind = first.metadata()?.file_type();
        if !(kind.is_fifo() || kind.is_socket() || kind.is_char_device()) {
            return pour(&first, child);
        }
        child.is_slow();
        // The first descriptor stays open, because a writer may already have written to it.
        if is_stdin { pour(&first, child) } else { pour(&open()?, child) }
    };
    match start_with(input, copy) {
        Ok(mut aside) => {
            aside.name = Some(name);
            Ok(Box::new(aside))
        }
        // No child could be started, so the file is read here. A path such as /dev/fd/63 is valid
        // here.
        Err(_) if input.is_some() => Ok(Box::new(File::open(path)?)),
        Err(_) => Ok(Box::new(open()?)),
    }
}

/// Opens a path that is no regular file, such as a pipe, to write to it. A pipe may have no reader,
/// for which open(2) would wait silently.
///
/// # Errors
/// Those of open(2).
pub fn open_to_write(path: &Path) -> io::Result<File> {
    let begun = Instant::now();
    let mut is_said = false;
    loop {
        let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
        match File::options().write(true).custom_flags(flags).open(path) {
            // The error of a pipe without a reader, and of a device without a driver.
            Err(e) if e.raw_os_error() == Some(libc::ENXIO) => {
                if !std::fs::metadata(path)?.file_type().is_fifo() {
                    return Err(e);
                }
            }
            file => {
                let file = file?;
                let flags = rustix::fs::fcntl_getfl(&file)?;
                rustix::fs::fcntl_setfl(&file, flags - rustix::fs::OFlags::NONBLOCK)?;
                return Ok(file);
            }
        }
        if !is_said && begun.elapsed() >= PATIENCE {
            is_said = true;
            say(format_args!(
                "taskdiag: {}: nobody has read from it for {} s; Ctrl-C stops waiting",
                crate::exit::shown(path),
                PATIENCE.as_secs()
            ));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Write all of a file to us. splice(2) is not used, because it holds the lock of the pipe while it
/// reads the file, and we would wait for that lock.
fn pour(mut file: &File, to: &mut Child) -> io::Result<()> {
    let mut piece = vec![0; 1 << 18];
    loop {
        match file.read(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(n) => to.write_all(&piece[..n])?,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_is_opened_once_it_has_a_reader_and_a_write_waits_for_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RWXU,
            0,
        )
        .expect("a pipe");
        let reader = {
            let path = path.clone();
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(100));
                let mut file = File::open(path).expect("it has a writer");
                std::thread::sleep(Duration::from_millis(100));
                let mut all = Vec::new();
                file.read_to_end(&mut all).map(|_| all.len())
            })
        };
        // More than a pipe takes without a reader.
        let text = vec![b'x'; 1 << 20];
        open_to_write(&path).and_then(|mut file| file.write_all(&text)).expect("it is read");
        assert_eq!(reader.join().expect("it ends").expect("it reads"), text.len());
        let no_driver =
            open_to_write(&dir.path().join("nosuch/file")).expect_err("it is not there");
        assert_eq!(no_driver.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_child_that_can_run_is_waited_for() {
        let busy = PATIENCE + Duration::from_millis(1500);
        let (said, end) = ask(|to| {
            let begin = Instant::now();
            while begin.elapsed() < busy {}
            to.write_all(b"late")
        });
        assert!(end.is_ok(), "{end:?}");
        assert_eq!(said, b"late");
    }

    #[test]
    fn a_child_that_waits_is_left_behind() {
        let (said, end) = ask(|to| {
            to.write_all(b"first")?;
            std::thread::sleep(Duration::from_secs(1000));
            to.write_all(b"never")
        });
        let end = end.expect_err("it does not answer");
        assert_eq!(end.kind(), io::ErrorKind::TimedOut);
        assert!(end.to_string().contains("does not answer"), "{end}");
        assert_eq!(said, b"first");
    }

    #[test]
    fn nothing_is_waited_for_without_end() {
        let look = |looks: &[bool]| {
            let mut silence = Silence::default();
            looks.iter().map(|l| silence.goes_on(*l)).collect::<Vec<_>>()
        };
        let is_stuck =
            |why: &Option<String>| why.as_ref().is_some_and(|w| w.contains("file system"));
        assert!(is_stuck(&look(&[false])[0]));
        // The child may have begun to wait just now.
        let begun = look(&[true, false, false]);
        assert!(begun[..2].iter().all(Option::is_none) && is_stuck(&begun[2]), "{begun:?}");
        let often = look(&[true; 15]);
        assert!(often[..14].iter().all(Option::is_none), "{often:?}");
        assert!(
            often[14].as_ref().is_some_and(|w| w.contains("processor time for 30 s")),
            "{often:?}"
        );
        // At some of the checks it can run.
        assert!(look(&[true, false].repeat(8)[..15]).last().is_some_and(Option::is_some));
    }
}
