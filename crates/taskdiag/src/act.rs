//! Acts on a process by its identity: sends signals, and sets values that the kernel lets others
//! set.
//!
//! A pid is only a number. A later process can get it, and in a /proc of another pid namespace it
//! belongs to another process from the start. So a [`Held`] is a descriptor of the process's
//! directory in the /proc from which its pid came. The kernel ties such a directory to one process
//! for ever. The start time is read through the descriptor, and pidfd_send_signal(2) takes the
//! descriptor as it takes a pidfd.
//!
//! Some calls only take numbers: nice values, CPUs, I/O priorities and limits. They are made only
//! if this /proc is proven to belong to our own pid namespace, and only while the task still has
//! its directory.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags};

use crate::engine::numbering;
use crate::task_id::{TaskId, Tick};

/// The size of a buffer that is larger than any /proc/PID/stat.
const STAT_MAX: usize = 4096;

/// A process that was seen in a /proc before. No later process can be mistaken for it.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut child = std::process::Command::new("sleep").arg("60").spawn()?;
/// let held = taskdiag::act::Held::open(child.id())?;
/// held.send_signal(15)?;
/// child.wait()?;
/// assert!(held.has_ended());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Held {
    proc: PathBuf,
    pid: u32,
    dir: OwnedFd,
}

/// Why an action was not done, or not completely.
#[derive(Debug)]
#[non_exhaustive]
pub enum NotDone {
    /// The process has ended. Another one may have its pid.
    Ended,
    /// The action needs a pid, and the pids in this /proc are those of another pid namespace.
    ForeignNumbers,
    /// The process is neither in our pid namespace nor in a descendant of it, and signals do not
    /// leave a pid namespace.
    OutOfReach,
    /// The system refused it.
    Refused(io::Error),
    /// The action was refused for one thread, after it had succeeded for others.
    #[non_exhaustive]
    Partly {
        /// The number of threads for which it succeeded.
        done: usize,
        /// The number of threads that the process has.
        of: usize,
        /// The system's error.
        why: io::Error,
    },
}

impl fmt::Display for NotDone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotDone::Ended => f.write_str("it has ended"),
            NotDone::ForeignNumbers => f.write_str(
                "/proc is of another pid namespace, so its numbers name other processes here; run taskdiag in that \
                 namespace (nsenter --target PID --pid --mount)",
            ),
            NotDone::OutOfReach => f.write_str(
                "/proc is of another pid namespace, and the kernel sends no signal to a process outside of our own; run \
                 taskdiag in that namespace",
            ),
            NotDone::Refused(e) => e.fmt(f),
            NotDone::Partly { done, of, why } => {
                write!(f, "{why}; it was done to {done} of {of} threads")
            }
        }
    }
}

impl std::error::Error for NotDone {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            NotDone::Refused(e) | NotDone::Partly { why: e, .. } => Some(e),
            _ => None,
        }
    }
}

impl From<Errno> for NotDone {
    fn from(e: Errno) -> NotDone {
        match e {
            Errno::SRCH | Errno::NOENT => NotDone::Ended,
            e => NotDone::Refused(e.into()),
        }
    }
}

/// The needed values of a stat file.
struct Stat {
    comm: Vec<u8>,
    state: u8,
    threads: u64,
    start_ticks: u64,
    exit_code: Option<i32>,
}

impl Held {
    /// The process that has this pid in `/proc` now.
    ///
    /// # Errors
    /// [`NotDone::Ended`] if there is none; [`NotDone::Refused`] if it cannot be opened.
    pub fn open(pid: u32) -> Result<Held, NotDone> {
        Held::open_in(Path::new("/proc"), pid)
    }

    /// The process that has this pid in the proc filesystem at `proc`.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_in(proc: &Path, pid: u32) -> Result<Held, NotDone> {
        let dir = directory(CWD, &proc.join(pid.to_string()))?;
        Ok(Held { proc: proc.to_owned(), pid, dir })
    }

    /// The process with this pid in `/proc`, if it started at this time, in nanoseconds since boot.
    ///
    /// # Errors
    /// As [`open`](Self::open), and [`NotDone::Ended`] if another process has the pid, or if it is
    /// a zombie.
    pub fn open_started(pid: u32, start_ns: u64) -> Result<Held, NotDone> {
        let held = Held::open(pid)?;
        match is_task(held.dir.as_fd(), start_ns)? && !held.has_ended() {
            true => Ok(held),
            false => Err(NotDone::Ended),
        }
    }

    /// The process that has this pid in `/proc`, if it has a thread with this id that started at
    /// this time.
    ///
    /// # Errors
    /// As [`open_started`](Self::open_started).
    pub fn open_of_thread(pid: u32, tid: u32, start_ns: u64) -> Result<Held, NotDone> {
        let held = Held::open(pid)?;
        held.thread(tid, Some(start_ns))?;
        if held.has_ended() { Err(NotDone::Ended) } else { Ok(held) }
    }

    /// The pid, in the pid namespace of its proc filesystem.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The start time, in clock ticks since boot (`/proc/PID/stat`).
    ///
    /// # Errors
    /// [`NotDone::Ended`] if it has ended and is reaped.
    pub fn start_ticks(&self) -> Result<u64, NotDone> {
        Ok(stat(self.dir.as_fd())?.start_ticks)
    }

    /// Has the process ended? A zombie has. A process is alive if its first thread has ended but
    /// other threads live.
    pub fn has_ended(&self) -> bool {
        stat(self.dir.as_fd()).map_or(true, |s| matches!(s.state, b'Z' | b'X') && s.threads <= 1)
    }

    /// The command name (`/proc/PID/stat`). A zombie still has one.
    pub fn comm(&self) -> Option<Vec<u8>> {
        stat(self.dir.as_fd()).ok().map(|s| s.comm)
    }

    /// How a zombie ended, as in wait(2). The kernel shows 0 to callers who may not trace it, so
    /// they get `None`.
    pub(crate) fn exit_code(&self) -> Option<i32> {
        // Reading the user namespace of a process, which zombies also have, needs the same right.
        rustix::fs::readlinkat(&self.dir, "ns/user", Vec::new()).ok()?;
        stat(self.dir.as_fd()).ok().filter(|s| s.state == b'Z')?.exit_code
    }

    /// Sends it a signal. 0 sends nothing, and only checks whether a signal could be sent.
    ///
    /// # Errors
    /// Any [`NotDone`]; nothing was sent then. [`io::ErrorKind::Unsupported`] in
    /// [`NotDone::Refused`]: the kernel or a sandbox has no pidfd_send_signal(2).
    pub fn send_signal(&self, signal: i32) -> Result<(), NotDone> {
        let Err(e) = signal_by(self.dir.as_raw_fd(), signal) else { return Ok(()) };
        Err(match e.raw_os_error() {
            Some(libc::ESRCH) => NotDone::Ended,
            // The kernel returns the same error for an invalid signal number.
            Some(libc::EINVAL) if (0..=64).contains(&signal) => NotDone::OutOfReach,
            // A seccomp filter that does not know the call refuses it for this process, too.
            Some(libc::EPERM) if is_filtered() => NotDone::Refused(Errno::NOSYS.into()),
            _ => NotDone::Refused(e),
        })
    }

    /// Sets the nice value of all threads of the process, or of the thread with this id and start
    /// time.
    ///
    /// # Errors
    /// Any [`NotDone`].
    pub fn set_nice(&self, thread: Option<(u32, u64)>, value: i32) -> Result<(), NotDone> {
        self.each(thread, |tid| rustix::process::setpriority_process(Some(tid), value))
    }

    /// Restricts all threads of the process, or the thread with this id and start time, to these
    /// CPUs. CPU numbers of 1024 and more are refused.
    ///
    /// # Errors
    /// Any [`NotDone`].
    pub fn set_cpus(&self, thread: Option<(u32, u64)>, cpus: &[usize]) -> Result<(), NotDone> {
        let mut set = rustix::thread::CpuSet::new();
        if cpus.iter().any(|cpu| *cpu >= rustix::thread::CpuSet::MAX_CPU) {
            return Err(NotDone::Refused(Errno::INVAL.into()));
        }
        cpus.iter().for_each(|cpu| set.set(*cpu));
        self.each(thread, |tid| rustix::thread::sched_setaffinity(Some(tid), &set))
    }

    /// Calls `f` with the pid of the process in our own pid namespace, for system calls that only
    /// take a pid, such as prlimit(2). `f` must not keep the number. If the process has ended when
    /// `f` returns, another one may have had the number, and that is an error.
    ///
    /// # Errors
    /// [`NotDone::ForeignNumbers`] and [`NotDone::Ended`].
    pub fn by_number<T>(&self, f: impl FnOnce(u32) -> T) -> Result<T, NotDone> {
        self.check_numbers()?;
        by_number(self.dir.as_fd(), self.pid, |pid| f(pid.as_raw_pid() as u32))
    }

    /// Are the numbers in its proc filesystem those of our own pid namespace?
    pub fn has_own_number(&self) -> bool {
        numbering::is_own(&self.proc)
    }

    fn check_numbers(&self) -> Result<(), NotDone> {
        if self.has_own_number() { Ok(()) } else { Err(NotDone::ForeignNumbers) }
    }

    /// Calls a function with the ids of the process's threads.
    fn each(
        &self,
        thread: Option<(u32, u64)>,
        f: impl Fn(Pid) -> Result<(), Errno>,
    ) -> Result<(), NotDone> {
        self.check_numbers()?;
        let one = |tid: u32, start_ns: Option<u64>| {
            let dir = self.thread(tid, start_ns)?;
            by_number(dir.as_fd(), tid, &f)?.map_err(NotDone::from)
        };
        if let Some((tid, start_ns)) = thread {
            return one(tid, Some(start_ns));
        }
        let tids = self.threads()?;
        let mut done = 0;
        for tid in &tids {
            match one(*tid, None) {
                Ok(()) => done += 1,
                // A thread that has ended since.
                Err(NotDone::Ended) => {}
                Err(NotDone::Refused(why)) if done > 0 => {
                    return Err(NotDone::Partly { done, of: tids.len(), why });
                }
                Err(e) => return Err(e),
            }
        }
        if done > 0 { Ok(()) } else { Err(NotDone::Ended) }
    }

    /// The directory of a thread of this process with this start time. A thread of another process
    /// has no directory here.
    fn thread(&self, tid: u32, start_ns: Option<u64>) -> Result<OwnedFd, NotDone> {
        let dir = directory(&self.dir, Path::new(&format!("task/{tid}")))?;
        match start_ns {
            Some(start_ns) if !is_task(dir.as_fd(), start_ns)? => Err(NotDone::Ended),
            _ => Ok(dir),
        }
    }

    /// The ids of its threads.
    fn threads(&self) -> Result<Vec<u32>, NotDone> {
        let dir = directory(&self.dir, Path::new("task"))?;
        let mut tids = Vec::new();
        for entry in rustix::fs::Dir::new(dir)? {
            let entry = entry?;
            tids.extend(entry.file_name().to_str().ok().and_then(|n| n.parse::<u32>().ok()));
        }
        Ok(tids)
    }
}

/// Is this process not even allowed to check whether it could send itself a signal by a descriptor?
fn is_filtered() -> bool {
    match rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty()) {
        Ok(me) => signal_by(me.as_raw_fd(), 0).is_err(),
        Err(e) => matches!(e, Errno::PERM | Errno::NOSYS),
    }
}

/// pidfd_send_signal(2) with a pidfd, or with a directory of /proc.
fn signal_by(fd: RawFd, signal: i32) -> io::Result<()> {
    // SAFETY: no memory is given.
    let sent = unsafe {
        libc::syscall(libc::SYS_pidfd_send_signal, fd, signal, std::ptr::null::<u8>(), 0)
    };
    if sent == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The directory of a task. `dir` is not O_PATH, because pidfd_send_signal(2) takes none.
fn directory(dir: impl AsFd, path: &Path) -> Result<OwnedFd, NotDone> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat(dir, path, flags, Mode::empty())?)
}

/// Calls `f` with the id of a task in our own pid namespace. Its directory belongs to one task for
/// ever, and can be read as long as the task has its id. So if it can be read afterwards, the id
/// belonged to the task all the time.
fn by_number<T>(dir: BorrowedFd<'_>, number: u32, f: impl FnOnce(Pid) -> T) -> Result<T, NotDone> {
    let number = i32::try_from(number).ok().and_then(Pid::from_raw).ok_or(NotDone::Ended)?;
    stat(dir)?;
    let done = f(number);
    stat(dir)?;
    Ok(done)
}

/// The start time of the task with this directory, in ns since boot.
fn started(dir: BorrowedFd<'_>) -> Result<u64, NotDone> {
    Ok(stat(dir)?.start_ticks.saturating_mul(Tick::here().ns()))
}

/// Did the task with this directory start at this time, in ns since boot?
fn is_task(dir: BorrowedFd<'_>, start_ns: u64) -> Result<bool, NotDone> {
    // The directory belongs to one task for ever, so only the start time needs to be compared.
    let id = |start_ns| TaskId::new(0, start_ns, Tick::here());
    Ok(id(started(dir)?).is_same(&id(start_ns)))
}

/// Parses the stat file in this directory.
fn stat(dir: BorrowedFd<'_>) -> Result<Stat, NotDone> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = openat(dir, "stat", flags, Mode::empty())?;
    let mut text = Vec::with_capacity(512);
    match File::from(file).take(STAT_MAX as u64).read_to_end(&mut text) {
        Err(e) if e.raw_os_error() == Some(libc::ESRCH) => Err(NotDone::Ended),
        Err(e) => Err(NotDone::Refused(e)),
        Ok(_) => parse(&text).ok_or(NotDone::Ended),
    }
}

/// proc_pid_stat(5): the name is in parentheses, and may have any bytes in it. The fields from 3 on
/// follow the name.
fn parse(text: &[u8]) -> Option<Stat> {
    let open = text.iter().position(|b| *b == b'(')?;
    let close = text.iter().rposition(|b| *b == b')').filter(|close| *close > open)?;
    let fields = std::str::from_utf8(&text[close + 1..]).ok()?;
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    Some(Stat {
        comm: text[open + 1..close].to_vec(),
        state: *fields.first()?.as_bytes().first()?,
        threads: number(20)?,
        start_ticks: number(22)?,
        exit_code: fields.get(52 - 3).and_then(|f| f.parse().ok()),
    })
}

/// The process of a pidfd, in the pid namespace of `/proc`. `None` if it has ended and is reaped,
/// or if /proc does not show it because it or this process has no pid there.
pub fn of_pidfd(pidfd: BorrowedFd<'_>) -> Option<Held> {
    let info = std::fs::read(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd())).ok()?;
    let line = info.split(|b| *b == b'\n').find_map(|l| l.strip_prefix(b"Pid:"))?;
    let pid = std::str::from_utf8(line).ok()?.trim().parse().ok().filter(|pid| *pid > 0)?;
    let held = Held::open(pid).ok()?;
    // If the process of the pidfd still has its pid, the directory that was opened meanwhile
    // belongs to it.
    let is_there = match signal_by(pidfd.as_raw_fd(), 0) {
        Ok(()) => true,
        Err(e) => e.raw_os_error() == Some(libc::EPERM),
    };
    is_there.then_some(held)
}

/// Are the numbers in the proc filesystem at `proc` those of our own pid namespace?
pub fn has_own_numbers(proc: &Path) -> bool {
    !proc.as_os_str().as_bytes().is_empty() && numbering::is_own(proc)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Ended;

    fn sleeper() -> (Ended, u64) {
        let child = Ended::sleep();
        let held = Held::open(child.0.id()).expect("it runs");
        (child, started(held.dir.as_fd()).expect("it runs"))
    }

    #[test]
    fn a_signal_reaches_the_process_that_started_then() {
        use std::os::unix::process::ExitStatusExt as _;
        let (mut sleeper, start) = sleeper();
        let pid = sleeper.0.id();
        for other in [start + 2 * Tick::here().ns(), start - 2 * Tick::here().ns()] {
            assert!(matches!(Held::open_started(pid, other), Err(NotDone::Ended)));
        }
        let held = Held::open_started(pid, start).expect("it runs");
        assert!(matches!(held.send_signal(1000), Err(NotDone::Refused(_))));
        held.send_signal(libc::SIGTERM).expect("it is ours");
        assert_eq!(sleeper.0.wait().unwrap().signal(), Some(libc::SIGTERM));
        assert!(held.has_ended() && held.comm().is_none());
        assert!(matches!(held.send_signal(libc::SIGTERM), Err(NotDone::Ended)));
        assert!(matches!(held.set_nice(None, 1), Err(NotDone::Ended)));
    }

    #[test]
    fn a_zombie_has_a_name_and_has_ended() {
        let (mut sleeper, start) = sleeper();
        let held = Held::open_started(sleeper.0.id(), start).expect("it runs");
        sleeper.0.kill().unwrap();
        while !held.has_ended() {
            std::thread::yield_now();
        }
        assert_eq!(held.comm().as_deref(), Some(&b"sleep"[..]));
        assert!(matches!(Held::open_started(sleeper.0.id(), start), Err(NotDone::Ended)));
    }

    #[test]
    fn a_thread_of_another_process_is_not_found() {
        let (sleeper, start) = sleeper();
        let held = Held::open_started(sleeper.0.id(), start).expect("it runs");
        let me = std::process::id();
        let mine = started(Held::open(me).unwrap().dir.as_fd()).unwrap();
        assert!(matches!(held.set_nice(Some((me, mine)), 5), Err(NotDone::Ended)));
        let later = start + 2 * Tick::here().ns();
        assert!(matches!(held.set_nice(Some((sleeper.0.id(), later)), 5), Err(NotDone::Ended)));
        held.set_nice(Some((sleeper.0.id(), start)), 5).expect("it becomes nicer");
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", sleeper.0.id())).unwrap();
        assert_eq!(stat.split(' ').nth(18), Some("5"), "{stat}");
    }

    #[test]
    fn a_pidfd_leads_to_its_directory() {
        let (mut sleeper, _) = sleeper();
        let pid = Pid::from_child(&sleeper.0);
        let pidfd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
        let held = of_pidfd(pidfd.as_fd()).expect("it runs");
        assert_eq!((held.pid(), held.comm()), (sleeper.0.id(), Some(b"sleep".to_vec())));
        sleeper.0.kill().unwrap();
        sleeper.0.wait().unwrap();
        assert!(of_pidfd(pidfd.as_fd()).is_none());
    }

    #[test]
    fn a_name_may_have_parentheses() {
        let text = b"7 (a) R 1 (b)) S 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 3 0 4242 0 0\n";
        let stat = parse(text).expect("it is a stat file");
        assert_eq!((&stat.comm[..], stat.state), (&b"a) R 1 (b)"[..], b'S'));
        assert_eq!((stat.threads, stat.start_ticks), (3, 4242));
        assert!(parse(b"7 (a) S 1").is_none() && parse(b"").is_none());
    }
}
