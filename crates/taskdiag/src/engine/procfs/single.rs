//! Values of one process, for callers that repeatedly ask about a process, as `taskdiag.psutil`
//! does. No request is built and no answer is written: a call reads one file and returns what is in
//! it. The files and parsers are those of the engine.
//!
//! A pid can be that of another process by the time of a call, so each call finds out whether it
//! still is the process that was seen first. The start time is in the stat file only, which takes
//! longest, because the kernel adds up the times of all threads for it. So the inode of the
//! process's directory is compared instead, and the start time only if the inode differs. Each
//! process gets a directory of its own, with a new inode number. The kernel may forget a directory
//! and make it again, so a new number alone does not mean a new process.

use std::cell::RefCell;
use std::ffi::CStr;
use std::io::Write as _;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::CWD;
use rustix::io::Errno;
use taskdiag_wire::{Groups, Io};

use super::parse::{self, StatFile, StatusFile};
use super::read::Reader;
use crate::task_id::Tick;

/// A process that was seen in a proc filesystem. It keeps nothing open.
#[derive(Debug)]
pub struct Single {
    pid: u32,
    start_ticks: u64,
    /// The inode number of a directory that is known to belong to the process. 0: no directory is
    /// known.
    inode: AtomicU64,
}

/// Why a value could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotRead {
    /// The system refused it. `NOENT` and `SRCH`: there is no process with this pid.
    System(Errno),
    /// Another process has the pid.
    Reused,
    /// The pid is the id of a thread.
    Thread,
    /// The file has an unknown form.
    Odd,
}

impl From<Errno> for NotRead {
    fn from(e: Errno) -> NotRead {
        NotRead::System(e)
    }
}

/// The buffers that a thread of this program reads with.
struct Tools {
    reader: Reader,
    path: Vec<u8>,
}

thread_local! {
    static TOOLS: RefCell<Option<Tools>> = const { RefCell::new(None) };
}

/// Paths begin with the root of the proc filesystem, so no directory has to be open.
const AT: BorrowedFd<'static> = CWD;

impl Tools {
    /// Calls `f` with the tools of this thread.
    fn with<T>(f: impl FnOnce(&mut Tools) -> T) -> T {
        TOOLS.with_borrow_mut(|tools| {
            f(tools.get_or_insert_with(|| Tools { reader: Reader::new(), path: Vec::new() }))
        })
    }

    /// Writes `ROOT/PID/NAME`.
    fn go(&mut self, root: &[u8], pid: u32, name: &str) {
        self.path.clear();
        self.path.extend_from_slice(root);
        write!(self.path, "/{pid}/{name}\0").expect("a vector takes all");
    }

    fn path(path: &[u8]) -> Result<&CStr, Errno> {
        CStr::from_bytes_with_nul(path).map_err(|_| Errno::NOENT)
    }

    fn file(&mut self, root: &[u8], pid: u32, name: &str) -> Result<&[u8], Errno> {
        self.go(root, pid, name);
        self.reader.file(AT, Self::path(&self.path)?)
    }

    fn stat(&mut self, root: &[u8], pid: u32) -> Result<StatFile, NotRead> {
        let text = self.file(root, pid, "stat")?;
        let stat = parse::stat(text, Tick::here().ns()).ok_or(NotRead::Odd)?;
        if stat.is_reaped() { Err(Errno::SRCH.into()) } else { Ok(stat) }
    }

    fn inode(&mut self, root: &[u8], pid: u32) -> Result<u64, Errno> {
        self.go(root, pid, "");
        Ok(self.reader.stat(AT, Self::path(&self.path)?)?.st_ino)
    }
}

/// The start time in clock ticks.
fn start_ticks(stat: &StatFile) -> Result<u64, NotRead> {
    let ns = stat.base.known().start_time_ns().ok_or(NotRead::Odd)?;
    Ok(ns / Tick::here().ns())
}

/// Only the first thread of a process has an exit signal.
fn is_thread(stat: &StatFile) -> bool {
    stat.stat.known().exit_signal().is_some_and(|signal| signal < 0)
}

impl Single {
    /// The process or thread that has this id in the proc filesystem at `root` now.
    ///
    /// # Errors
    /// [`NotRead`].
    pub fn open(root: &[u8], pid: u32) -> Result<Single, NotRead> {
        Tools::with(|tools| {
            // Read the inode first: if another process gets the pid in between, the inode is that
            // of the earlier process, and never matches a later one.
            let inode = tools.inode(root, pid)?;
            let stat = tools.stat(root, pid)?;
            let inode = if is_thread(&stat) { 0 } else { inode };
            Ok(Single { pid, start_ticks: start_ticks(&stat)?, inode: AtomicU64::new(inode) })
        })
    }

    /// The process with this pid that started at this time.
    pub fn known(pid: u32, start_ticks: u64) -> Single {
        Single { pid, start_ticks, inode: AtomicU64::new(0) }
    }

    /// The start time of the process in clock ticks since boot.
    pub fn start_ticks(&self) -> u64 {
        self.start_ticks
    }

    /// Its stat file.
    ///
    /// # Errors
    /// [`NotRead`].
    pub fn stat(&self, root: &[u8]) -> Result<StatFile, NotRead> {
        let stat = Tools::with(|tools| tools.stat(root, self.pid))?;
        self.check(&stat)?;
        Ok(stat)
    }

    fn check(&self, stat: &StatFile) -> Result<(), NotRead> {
        match stat {
            _ if start_ticks(stat)? != self.start_ticks => Err(NotRead::Reused),
            _ if is_thread(stat) => Err(NotRead::Thread),
            _ => Ok(()),
        }
    }

    /// Reads something of the process, and finds out whether it was this process.
    fn read<T>(
        &self,
        root: &[u8],
        read: impl FnOnce(&mut Tools) -> Result<T, NotRead>,
    ) -> Result<T, NotRead> {
        Tools::with(|tools| {
            let got = read(tools)?;
            // A process keeps its pid to its end. If it has it now, it had it during the read.
            let inode = tools.inode(root, self.pid)?;
            if inode != self.inode.load(Ordering::Relaxed) {
                self.check(&tools.stat(root, self.pid)?)?;
                self.inode.store(inode, Ordering::Relaxed);
            }
            Ok(got)
        })
    }

    /// The numbers of its statm file in bytes, in their order: size, resident, shared, text,
    /// library, data, dirty.
    ///
    /// # Errors
    /// [`NotRead`]; [`NotRead::Odd`] if there is no memory, which another thread of the process may
    /// have if the first one has ended.
    pub fn sizes(&self, root: &[u8]) -> Result<[u64; 7], NotRead> {
        self.read(root, |tools| {
            let text = tools.file(root, self.pid, "statm")?;
            let sizes = parse::statm_sizes(text, rustix::param::page_size() as u64);
            sizes.filter(|sizes| sizes[0] != 0).ok_or(NotRead::Odd)
        })
    }

    /// Reads the status file of the process, for these groups.
    ///
    /// # Errors
    /// [`NotRead`].
    pub fn status(&self, root: &[u8], groups: Groups) -> Result<StatusFile, NotRead> {
        self.read(root, |tools| {
            let mut status = StatusFile::default();
            status.parse(tools.file(root, self.pid, "status")?, groups);
            Ok(status)
        })
    }

    /// Its io file.
    ///
    /// # Errors
    /// [`NotRead`].
    pub fn io(&self, root: &[u8]) -> Result<Io, NotRead> {
        self.read(root, |tools| parse::io(tools.file(root, self.pid, "io")?).ok_or(NotRead::Odd))
    }

    /// The text of a link of the process, such as `exe`.
    ///
    /// # Errors
    /// [`NotRead`].
    pub fn link(&self, root: &[u8], name: &'static str) -> Result<Vec<u8>, NotRead> {
        self.read(root, |tools| {
            tools.go(root, self.pid, name);
            Ok(tools.reader.link(AT, Tools::path(&tools.path)?)?.to_vec())
        })
    }

    /// The number of its open descriptors, as the kernel has it since Linux 6.2.
    ///
    /// # Errors
    /// [`NotRead`]; [`NotRead::Odd`] if the kernel does not have it, or it is 0.
    pub fn descriptors(&self, root: &[u8]) -> Result<u64, NotRead> {
        self.read(root, |tools| {
            tools.go(root, self.pid, "fd");
            let size = tools.reader.stat(AT, Tools::path(&tools.path)?)?.st_size;
            u64::try_from(size).ok().filter(|n| *n > 0).ok_or(NotRead::Odd)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Ended;
    use std::process::Command;

    const ROOT: &[u8] = b"/proc";

    #[test]
    fn a_process_has_the_values_of_its_files() {
        // The values of a process that still starts would change between two reads.
        let stop = Command::new("sh").args(["-c", "kill -STOP $$"]).spawn();
        let child = Ended(stop.expect("sh is there"));
        let single = Single::open(ROOT, child.0.id()).expect("it runs");
        while single.stat(ROOT).unwrap().base.known().state() != Some(b'T') {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let stat = single.stat(ROOT).unwrap();
        assert_eq!(stat.base.known().ppid(), Some(std::process::id()));
        assert!(stat.io_wait_ns.is_some());
        let path = |name: &str| format!("/proc/{}/{name}", child.0.id());
        let statm = std::fs::read_to_string(path("statm")).unwrap();
        let page = rustix::param::page_size() as u64;
        let sizes: Vec<u64> =
            statm.split_whitespace().map(|n| n.parse::<u64>().unwrap() * page).collect();
        assert_eq!(single.sizes(ROOT).unwrap().as_slice(), sizes);
        let status = single.status(ROOT, Groups::CRED | Groups::SCHED).unwrap();
        assert!(status.cred.known().uid().is_some() && status.nvcsw.is_some());
        assert!(single.io(ROOT).unwrap().known().rchar().is_some());
        let exe = std::fs::read_link(path("exe")).unwrap();
        assert_eq!(single.link(ROOT, "exe").unwrap(), exe.as_os_str().as_encoded_bytes());
    }

    #[test]
    fn another_process_with_the_pid_has_no_values() {
        let child = Ended::sleep();
        let now = Single::open(ROOT, child.0.id()).expect("it runs");
        let other = Single::known(child.0.id(), now.start_ticks() - 1);
        assert_eq!(other.stat(ROOT).unwrap_err(), NotRead::Reused);
        assert_eq!(other.sizes(ROOT).unwrap_err(), NotRead::Reused);
        assert_eq!(other.status(ROOT, Groups::CRED).unwrap_err(), NotRead::Reused);
        assert_eq!(other.io(ROOT).unwrap_err(), NotRead::Reused);
        assert_eq!(other.link(ROOT, "cwd").unwrap_err(), NotRead::Reused);
        // The directory of the same process was made again.
        now.inode.store(1, Ordering::Relaxed);
        assert!(now.sizes(ROOT).is_ok());
        assert_ne!(now.inode.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_process_that_ended_has_no_values() {
        let mut child = Ended::sleep();
        let single = Single::open(ROOT, child.0.id()).expect("it runs");
        child.0.kill().unwrap();
        child.0.wait().unwrap();
        for gone in [single.sizes(ROOT).err(), single.stat(ROOT).err(), single.io(ROOT).err()] {
            assert!(matches!(gone, Some(NotRead::System(Errno::NOENT | Errno::SRCH))), "{gone:?}");
        }
    }

    #[test]
    fn a_thread_is_no_process() {
        std::thread::spawn(|| {
            let tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
            let single = Single::open(ROOT, tid).expect("a thread has a directory, too");
            assert_eq!(single.sizes(ROOT).unwrap_err(), NotRead::Thread);
            assert_eq!(single.stat(ROOT).unwrap_err(), NotRead::Thread);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_directory_tree_is_read_like_proc() {
        let root = std::env::temp_dir().join(format!("taskdiag-single-{}", std::process::id()));
        std::fs::create_dir_all(root.join("7")).unwrap();
        std::fs::write(root.join("7/stat"), "7 (a) S 1 1\n").unwrap();
        let name = root.as_os_str().as_encoded_bytes();
        // The stat file has no start time.
        let odd = Single::open(name, 7).map(|s| s.start_ticks());
        let nul = Single::open(b"/proc\0", 7).map(|s| s.start_ticks());
        std::fs::remove_dir_all(&root).unwrap();
        assert_eq!(odd, Err(NotRead::Odd));
        assert_eq!(nul, Err(NotRead::System(Errno::NOENT)));
    }
}
