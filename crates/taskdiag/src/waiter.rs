//! Waits until processes end: any of many, children or not.
//!
//! Each process is identified by a pidfd, so that a later process with the same pid is not mistaken
//! for it. One epoll instance watches all of them, so the cost of an end does not depend on how
//! many are watched.

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::{Error, act, pidfd};

/// The number of ends that are read from the kernel at once.
const AT_ONCE: usize = 256;

/// A process that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ended {
    /// The pid of the process, which another process may have by now.
    pub pid: u32,
    /// How it ended, or `None` if that is not available. The parent always gets it. Other callers
    /// get it from Linux 6.15 on (`PIDFD_GET_INFO`); before that, only while the process is a
    /// zombie, and only with the right to trace it (`/proc/PID/stat`).
    pub status: Option<ExitStatus>,
}

/// Waits for processes, in the order in which they end.
///
/// It needs one file descriptor for each process. Threads other than the first one of a process
/// cannot be waited for. A process that has ended is not reaped; its parent still has to do that.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut child = std::process::Command::new("sh").args(["-c", "exit 3"]).spawn()?;
/// let mut waiter = taskdiag::Waiter::new()?;
/// waiter.add(child.id())?;
/// let ended = waiter.wait(None)?.expect("there is no time limit");
/// assert_eq!(ended.pid, child.id());
/// assert_eq!(ended.status.and_then(|s| s.code()), Some(3));
/// child.wait()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Waiter {
    epoll: OwnedFd,
    /// The pids and pidfds, indexed by the number of the pidfd. A map would cost more cache misses
    /// at each end.
    watched: Vec<Option<(u32, OwnedFd)>>,
    /// The number of these.
    count: usize,
    /// Ends that the kernel has reported, and [`wait`](Self::wait) has not returned yet.
    ready: VecDeque<Token>,
}

/// The data that the kernel keeps with each pidfd, and returns when the process has ended.
#[derive(Clone, Copy, Debug)]
struct Token {
    pid: u32,
    /// The place of the pidfd.
    at: u32,
}

impl Token {
    fn data(self) -> EventData {
        EventData::new_u64(u64::from(self.at) << 32 | u64::from(self.pid))
    }
    fn of(data: EventData) -> Token {
        let both = data.u64();
        Token { pid: both as u32, at: (both >> 32) as u32 }
    }
}

impl Waiter {
    /// A waiter without processes.
    ///
    /// # Errors
    /// [`Error::Io`] where there are no more file descriptors.
    pub fn new() -> Result<Waiter, Error> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)
            .map_err(|e| Error::io("making an epoll instance", e))?;
        Ok(Waiter { epoll, watched: Vec::new(), count: 0, ready: VecDeque::new() })
    }

    /// Waits for this process, too. A process that has ended and is not reaped counts as one that
    /// ends now. Returns its pidfd, which becomes readable when it has ended, and through which a
    /// signal reaches no other process.
    ///
    /// # Errors
    /// [`Error::NoSuchProcess`] if there is none; [`Error::Io`] if `pid` is a thread, or where
    /// there are no more file descriptors (`EMFILE`).
    pub fn add(&mut self, pid: u32) -> Result<BorrowedFd<'_>, Error> {
        self.add_if(pid, None)
    }

    /// As [`add`](Self::add), for the process whose pidfd has this inode
    /// ([`pidfd_inode`](crate::pidfd_inode)). Another process with its pid counts as none.
    ///
    /// # Errors
    /// As [`add`](Self::add), and [`Error::Io`] where pidfds have no inodes (before Linux 6.9).
    pub fn add_with_inode(&mut self, pid: u32, inode: u64) -> Result<BorrowedFd<'_>, Error> {
        self.add_if(pid, Some(inode))
    }

    fn add_if(&mut self, pid: u32, inode: Option<u64>) -> Result<BorrowedFd<'_>, Error> {
        let failed = |e: Errno| match e {
            Errno::SRCH => Error::NoSuchProcess(pid),
            Errno::MFILE => Error::io(
                format!("opening process {pid} (raise the limit of open files: ulimit -n)"),
                e,
            ),
            // Kernels before 6.9 return the first error, later ones the second.
            Errno::INVAL | Errno::NOENT => {
                Error::io(format!("{pid} is a thread; wait for its process"), e)
            }
            e => Error::io(format!("opening process {pid}"), e),
        };
        let number = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let number = number.ok_or(Error::NoSuchProcess(pid))?;
        let process = pidfd_open(number, PidfdFlags::empty()).map_err(failed)?;
        if let Some(inode) = inode {
            match pidfd::inode(&process) {
                Ok(Some(own)) if own == inode => {}
                Ok(Some(_)) => return Err(Error::NoSuchProcess(pid)),
                Ok(None) => {
                    let what = format!("looking at the inode of process {pid} (needs Linux 6.9)");
                    return Err(Error::io(what, Errno::OPNOTSUPP));
                }
                Err(e) => return Err(failed(e)),
            }
        }
        // A descriptor is never negative.
        let at = process.as_raw_fd() as u32;
        epoll::add(&self.epoll, &process, Token { pid, at }.data(), EventFlags::IN)
            .map_err(|e| Error::io(format!("watching process {pid}"), e))?;
        let at = at as usize;
        if self.watched.len() <= at {
            self.watched.resize_with(at + 1, || None);
        }
        self.count += 1;
        Ok(self.watched[at].insert((pid, process)).1.as_fd())
    }

    /// The pids and pidfds of the watched processes.
    pub fn processes(&self) -> impl Iterator<Item = (u32, BorrowedFd<'_>)> {
        self.watched.iter().flatten().map(|(pid, process)| (*pid, process.as_fd()))
    }

    /// The number of watched processes.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Is no process watched?
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Waits until one of the processes ends, and stops watching it. `None`: the time is over, or
    /// no process is left.
    ///
    /// # Errors
    /// [`Error::Io`] where epoll fails. A signal does not end the wait.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<Option<Ended>, Error> {
        Ok(self.wait_with(timeout, |_| ())?.map(|(ended, ())| ended))
    }

    /// Like `wait`, and returns the result of `look`, which gets the pidfd of that process before
    /// it is closed, for example to read its last name with [`act::of_pidfd`]. The process has
    /// ended, and may be reaped at any time.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_with<T>(
        &mut self,
        timeout: Option<Duration>,
        look: impl FnOnce(BorrowedFd<'_>) -> T,
    ) -> Result<Option<(Ended, T)>, Error> {
        let end = timeout.and_then(|t| Instant::now().checked_add(t));
        while self.ready.is_empty() && self.count != 0 {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            self.take(left)?;
            if left.is_some_and(|left| left.is_zero()) {
                break;
            }
        }
        let Some(&Token { pid, at }) = self.ready.front() else { return Ok(None) };
        let Some((_, process)) = &self.watched[at as usize] else { return Ok(None) };
        // The process is watched until it is returned, so that the epoll instance stays readable
        // for an event loop. Closing the pidfd would not be enough if another process has a copy,
        // as a child has between its fork and exec.
        epoll::delete(&self.epoll, process).map_err(|e| Error::io("waiting for processes", e))?;
        // This comes first, because status() needs another way if the process is reaped in between.
        let looked = look(process.as_fd());
        let status = status(process);
        self.watched[at as usize] = None;
        self.count -= 1;
        self.ready.pop_front();
        Ok(Some((Ended { pid, status }, looked)))
    }

    /// Reads the ends that the kernel reports within this time. It repeats them until `wait` has
    /// removed them, so this is only called when nothing is ready.
    fn take(&mut self, left: Option<Duration>) -> Result<(), Error> {
        let mut events = [MaybeUninit::uninit(); AT_ONCE];
        let left = left.and_then(|left| left.try_into().ok());
        let events = match epoll::wait(&self.epoll, &mut events, left.as_ref()) {
            Ok((events, _)) => events,
            Err(Errno::INTR) => return Ok(()),
            Err(e) => return Err(Error::io("waiting for processes", e)),
        };
        for event in events {
            // Processes that are not watched any more were removed from the epoll instance, so each
            // one is watched.
            self.ready.push_back(Token::of(event.data));
        }
        Ok(())
    }
}

/// For an event loop: it is readable as long as [`Waiter::wait`] can return an end without waiting.
impl AsFd for Waiter {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

/// How a process has ended, from any source. `PIDFD_GET_INFO` only has it after the process is
/// reaped, so it is tried again if the process was reaped while /proc was read.
fn status(process: &OwnedFd) -> Option<ExitStatus> {
    let raw = of_child(process)
        .or_else(|| of_reaped(process))
        .or_else(|| of_zombie(process))
        .or_else(|| of_reaped(process))?;
    Some(ExitStatus::from_raw(raw))
}

/// The status that waitid(2) returns to the parent, without reaping the child.
fn of_child(process: &OwnedFd) -> Option<i32> {
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: a siginfo may be all zeros, and is only written to. Its members are as for a SIGCHLD.
    let (code, status) = unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let id = process.as_raw_fd() as libc::id_t;
        if libc::waitid(libc::P_PIDFD, id, &mut info, flags) != 0 || info.si_pid() == 0 {
            return None;
        }
        (info.si_code, info.si_status())
    };
    Some(match code {
        libc::CLD_EXITED => status << 8,
        libc::CLD_DUMPED => status | 0x80,
        _ => status,
    })
}

/// The status of a reaped process, which the kernel shows to everyone.
fn of_reaped(process: &OwnedFd) -> Option<i32> {
    /// The first version of `struct pidfd_info`, 64 bytes, as far as it matters here.
    #[repr(C)]
    struct PidfdInfo {
        mask: u64,
        others: [u32; 13],
        exit_code: i32,
    }
    const PIDFD_INFO_EXIT: u64 = 1 << 3;
    /// `_IOWR(0xff, 11, struct pidfd_info)`
    const PIDFD_GET_INFO: u64 = 3 << 30 | (size_of::<PidfdInfo>() as u64) << 16 | 0xff << 8 | 11;
    const { assert!(size_of::<PidfdInfo>() == 64) };
    let mut info = PidfdInfo { mask: PIDFD_INFO_EXIT, others: [0; 13], exit_code: 0 };
    // SAFETY: the kernel writes at most the number of bytes that the call gives.
    let failed = unsafe { libc::ioctl(process.as_raw_fd(), PIDFD_GET_INFO as _, &mut info) };
    (failed == 0 && info.mask & PIDFD_INFO_EXIT != 0).then_some(info.exit_code)
}

/// The status in /proc of a process that is not reaped, for callers who may trace it.
fn of_zombie(process: &OwnedFd) -> Option<i32> {
    act::of_pidfd(process.as_fd())?.exit_code()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;
    use std::io::BufRead as _;
    use std::process::{Child, Command, Stdio};

    fn child(script: &str) -> Child {
        Command::new("sh").args(["-c", script]).spawn().expect("sh")
    }

    #[test]
    fn children_tell_how_they_end() {
        let mut waiter = Waiter::new().expect("it opens");
        let mut all = [child("exit 7"), child("kill -9 $$"), child("exit 0")];
        for c in &all {
            waiter.add(c.id()).expect("it is there");
        }
        assert_eq!(waiter.len(), 3);
        let mut seen = HashMap::new();
        while let Some(ended) = waiter.wait(None).expect("it waits") {
            seen.insert(ended.pid, ended.status.expect("a parent gets the status"));
        }
        assert!(waiter.is_empty());
        assert_eq!(seen[&all[0].id()].code(), Some(7));
        assert_eq!(seen[&all[1].id()].signal(), Some(9));
        assert!(seen[&all[2].id()].success());
        // None of the children was reaped.
        for c in &mut all {
            let status = c.wait().expect("it is mine");
            assert_eq!(seen[&c.id()], status);
        }
    }

    #[test]
    fn the_waiter_is_readable_until_all_ends_are_returned() {
        let mut waiter = Waiter::new().expect("it opens");
        let mut all = [child("exit 1"), child("exit 2"), child("exit 3")];
        let mut ended: Vec<OwnedFd> = Vec::new();
        for c in &all {
            let process = waiter.add(c.id()).expect("it is there");
            ended.push(process.try_clone_to_owned().expect("another descriptor"));
        }
        let is_readable = |fd: BorrowedFd<'_>, timeout: i32| {
            let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: it is one pollfd.
            unsafe { libc::poll(&mut poll, 1, timeout) == 1 }
        };
        assert!(ended.iter().all(|process| is_readable(process.as_fd(), -1)));
        let mut pids = std::collections::HashSet::new();
        for _ in 0..3 {
            assert!(is_readable(waiter.as_fd(), 0));
            let one = waiter.wait(Some(Duration::ZERO)).expect("it waits").expect("one ended");
            pids.insert(one.pid);
        }
        assert_eq!(pids, all.iter().map(Child::id).collect());
        assert!(!is_readable(waiter.as_fd(), 0));
        for c in &mut all {
            c.wait().expect("it is mine");
        }
    }

    #[test]
    fn a_time_limit_is_kept() {
        let mut sleeper = child("exec sleep 600");
        let mut waiter = Waiter::new().expect("it opens");
        waiter.add(sleeper.id()).expect("it is there");
        let begun = Instant::now();
        assert_eq!(waiter.wait(Some(Duration::from_millis(30))).expect("it waits"), None);
        assert!(begun.elapsed() >= Duration::from_millis(30));
        assert_eq!(waiter.wait(Some(Duration::ZERO)).expect("it looks"), None);
        assert_eq!(waiter.len(), 1);
        sleeper.kill().expect("it is mine");
        let ended = waiter.wait(None).expect("it waits").expect("it ended");
        assert_eq!((ended.pid, ended.status.and_then(|s| s.signal())), (sleeper.id(), Some(9)));
        sleeper.wait().expect("it is mine");
        assert_eq!(waiter.wait(None).expect("none is left"), None);
    }

    /// A shell whose child ends with this code when the pipe is closed, while the shell runs
    /// `then`. With the child's pid.
    fn grandchild(code: i32, then: &str) -> (Child, u32) {
        let script =
            format!("exec 3<&0; sh -c 'read x <&3; exit {code}' & exec 3<&-; echo $!; {then}");
        let mut parent = Command::new("sh")
            .args(["-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("sh");
        let mut line = String::new();
        let out = parent.stdout.take().expect("a pipe");
        std::io::BufReader::new(out).read_line(&mut line).expect("a line");
        (parent, line.trim().parse().expect("a pid"))
    }

    #[test]
    fn a_zombie_of_another_parent_has_ended() {
        let (mut parent, pid) = grandchild(5, "exec sleep 600");
        // Until the parent is a process that reaps nothing.
        let comm = format!("/proc/{}/comm", parent.id());
        while std::fs::read(&comm).expect("it lives") != b"sleep\n" {
            std::thread::sleep(Duration::from_millis(5));
        }
        let mut waiter = Waiter::new().expect("it opens");
        waiter.add(pid).expect("it lives");
        drop(parent.stdin.take());
        let ended = waiter.wait(None).expect("it waits").expect("it ended");
        let may_see = std::fs::read_link(format!("/proc/{pid}/ns/user")).is_ok();
        assert_eq!(ended.pid, pid);
        assert_eq!(ended.status.and_then(|s| s.code()), may_see.then_some(5));
        parent.kill().expect("it is mine");
        parent.wait().expect("it is mine");
    }

    #[test]
    fn a_process_that_another_parent_reaps_is_returned() {
        let (mut parent, pid) = grandchild(6, "wait");
        let mut waiter = Waiter::new().expect("it opens");
        waiter.add(pid).expect("it lives");
        drop(parent.stdin.take());
        parent.wait().expect("it is mine");
        let ended = waiter.wait(None).expect("it waits").expect("it ended");
        assert_eq!(ended.pid, pid);
        let release = rustix::system::uname().release().to_string_lossy().into_owned();
        let mut numbers = release.split('.').map(|n| n.parse::<u32>().unwrap_or(0));
        let told = (numbers.next(), numbers.next()) >= (Some(6), Some(15));
        assert_eq!(ended.status.and_then(|s| s.code()), told.then_some(6), "{release}");
    }

    #[test]
    fn a_missing_process_is_an_error() {
        let mut waiter = Waiter::new().expect("it opens");
        for pid in [0, u32::MAX, 1 << 30] {
            assert!(matches!(waiter.add(pid), Err(Error::NoSuchProcess(p)) if p == pid));
        }
        assert_eq!(waiter.wait(None).expect("it waits for nothing"), None);
    }

    #[test]
    fn a_thread_is_not_a_process() {
        let (send, receive) = std::sync::mpsc::channel();
        let (done, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            // SAFETY: a plain system call.
            send.send(unsafe { libc::gettid() } as u32).expect("it listens");
            wait.recv().ok();
        });
        let tid = receive.recv().expect("it sends");
        let e = Waiter::new().expect("it opens").add(tid).expect_err("it is a thread");
        assert!(e.to_string().contains("is a thread"), "{e}");
        drop(done);
        thread.join().expect("it ends");
    }
}
