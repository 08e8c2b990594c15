//! The engine that reads the text files of /proc: any kernel, no privilege.
//!
//! It opens only the files that the groups need, each with one openat(), one read() and one
//! close() relative to the directory of /proc, and parses bytes by hand. Nothing stays open
//! between requests. It knows nothing of the other engines.
//!
//! - `read`: files and directories;
//! - [`parse`]: their text to records;
//! - `task`, `links`, `memory`, `swap`, `files`, `text`: the groups of one task;
//! - `leader`: the memory of a process whose first thread has ended;
//! - `shmem`: what of a shared memory object is swapped out;
//! - `sockets`: what sock_diag(7) knows of the sockets among the files;
//! - `unlisted`: what a socket says of itself that is in no list;
//! - `shares`, `names`: what several tasks have and the answer has once;
//! - `walk`: which tasks, and by how many threads;
//! - `guard`, `supervise`: the same for what may wait for a task, so that the answer does not;
//! - `cgroup`: ids of cgroups.
//!
//! It does not open the directory of a task first: measured, that gains nothing even where 20 of
//! its files are read.

mod cgroup;
mod files;
mod filestat;
mod guard;
mod leader;
mod links;
mod memory;
mod names;
#[doc(hidden)]
pub mod parse;
mod read;
mod shares;
mod shmem;
mod sockets;
mod supervise;
mod swap;
mod tags;
mod task;
mod text;
mod unlisted;
mod walk;

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use taskdiag_wire::{Done, Group, Groups, Strategy, StreamWriter};

use self::cgroup::Cgroups;
use self::memory::Limits;
use self::names::Names;
use self::read::Reader;
use self::shares::FILES;
use self::sockets::Sockets;
use self::supervise::Job;
use self::swap::Objects;
use self::task::{Plan, Worker, exhausted};
use crate::engine::{Answer, Cost, Engine, EngineId, Support, info};
use crate::error::Error;
use crate::request::Request;

/// `PROC_SUPER_MAGIC` of linux/magic.h.
const PROC_SUPER_MAGIC: u64 = 0x9fa0;

/// The groups that this engine answers.
pub const GROUPS: Groups = Groups::ALL;

/// The engine that reads the text files of /proc.
///
/// [`Cost::syscalls`] counts every call on /proc; those of the allocator and of starting threads
/// are not in it.
#[derive(Debug)]
pub struct Procfs {
    root: PathBuf,
}

impl Procfs {
    /// On `/proc`.
    ///
    /// # Errors
    /// [`Error::Unavailable`] where no proc filesystem is mounted there.
    pub fn new() -> Result<Procfs, Error> {
        Procfs::with_root("/proc")
    }

    /// On a proc filesystem that is mounted elsewhere, or on a directory tree like one.
    ///
    /// # Errors
    /// [`Error::Unavailable`] where `root` is neither.
    pub fn with_root(root: impl Into<PathBuf>) -> Result<Procfs, Error> {
        let engine = Procfs { root: root.into() };
        let dir = engine.open()?;
        let is_proc = rustix::fs::fstatfs(&dir).is_ok_and(|s| s.f_type as u64 == PROC_SUPER_MAGIC);
        if !is_proc {
            let mut pids = Vec::new();
            let listed = Reader::new().pids(dir.as_fd(), &mut pids);
            if listed.is_err() || pids.is_empty() {
                return Err(engine.unavailable("no proc filesystem is mounted there"));
            }
        }
        Ok(engine)
    }

    /// Where its files are.
    pub fn root(&self) -> &Path {
        &self.root
    }

    fn open(&self) -> Result<OwnedFd, Error> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat(CWD, &self.root, flags, Mode::empty()).map_err(|e| match e {
            Errno::NOENT | Errno::NOTDIR => self.unavailable("there is no such directory"),
            Errno::ACCESS | Errno::PERM => self.unavailable("it may not be read"),
            e => exhausted(e),
        })
    }

    fn unavailable(&self, why: &str) -> Error {
        let root = self.root.display();
        let why = format!("{root}: {why}; mount one with: mount -t proc proc {root}");
        Error::Unavailable { engine: EngineId::Procfs, why }
    }
}

impl Engine for Procfs {
    fn id(&self) -> EngineId {
        EngineId::Procfs
    }

    fn support(&self) -> Support {
        let notes = [
            (Group::Cred, "securebits are not in /proc"),
            (
                Group::Stat,
                "locked pages are known where cred, statm, sched or ns are asked for too",
            ),
            (Group::Sched, "of a process: sums over its live threads, and reads the files of each"),
            (Group::Ns, "links are readable with the rights of a debugger only; NSpid always"),
            (Group::Paths, "readable with the rights of a debugger only"),
            (Group::FileStat, "readable with the rights of a debugger only"),
            (Group::Io, "readable with the rights of a debugger only"),
            (Group::Vma, "flags are known where vma_stat is asked for too"),
            (
                Group::VmaStat,
                "sums are in KiB; pss_anon, pss_file and pss_shmem are of rollup only",
            ),
            (
                Group::Fd,
                "readable with the rights of a debugger only; sockets of inet, unix, netlink and packet",
            ),
            (Group::FdCount, "size is known where cred, statm, sched, signals or ns are asked for"),
            (Group::Wchan, "readable with the rights of a debugger only"),
            (Group::Kstack, "readable by root only"),
            (Group::Cgroup, "the id is known where the task's cgroup v2 directory is mounted"),
        ];
        Support {
            groups: GROUPS,
            strategies: Strategy::ALL.to_vec(),
            notes: notes.map(|(group, note)| (group, String::from(note))).to_vec(),
        }
    }

    fn run(&mut self, req: &Request) -> Result<Answer, Error> {
        let start = Instant::now();
        let unsupported = req.groups - GROUPS;
        if !unsupported.is_empty() {
            return Err(Error::Unsupported { engine: EngineId::Procfs, groups: unsupported });
        }
        let mut info = info::info(req);
        info.procfs_groups = req.groups.bits();
        let root = self.open()?;
        let mut reader = Reader::new();
        reader.syscalls = info::SYSCALLS + 2; // open and close of root
        let find_cgroups = req.groups.has(Group::Cgroup);
        let plan = Plan {
            groups: req.groups,
            threads: req.strategy.is_threads(),
            tick_ns: 1_000_000_000 / u64::from(info.clk_tck.max(1)),
            own_pids: (req.groups.has(Group::Fd)
                || (req.strategy.is_threads() && req.groups.intersects(FILES)))
                && reader.is_own(root.as_fd()),
            watch: req.watch,
            limits: Limits::of(req),
            swap_used: req.groups.has(Group::Swap) && swap::is_used(),
            objects: Objects::default(),
            own_netns: if req.groups.has(Group::Fd) { reader.own_netns() } else { 0 },
            sockets: Sockets::default(),
            names: Names::default(),
            cgroups: find_cgroups.then(|| Cgroups::find(root.as_fd(), &mut reader)).flatten(),
        };
        let mut out = StreamWriter::new();
        out.info(&info);
        let mut worker = Worker::new(&plan, reader, out);
        let (mut out, mut syscalls, walked);
        if supervise::is_for(req.groups) {
            let (pids, tgid) = walk::processes(root.as_fd(), req, &mut worker.reader)?;
            let items = if plan.threads {
                walk::all_threads(root.as_fd(), &pids, &mut worker)?
            } else {
                pids.into_iter().map(|pid| (pid, 0)).collect()
            };
            (out, syscalls) = (worker.out, worker.reader.syscalls);
            let children_of = (req.strategy == Strategy::Children).then_some(tgid);
            let job = Arc::new(Job { plan, root, items, children_of });
            supervise::read_all(&job, &mut out, &mut syscalls)?;
            walked = job.plan.limits.spent();
            walk::found(req, &out)?;
        } else {
            walk::walk(root.as_fd(), req, &mut worker)?;
            (out, syscalls) = (worker.out, worker.reader.syscalls);
            walked = plan.limits.spent();
        }
        let error = if req.is_stopped() { -libc::EINTR } else { 0 };
        let stream = out.finish(Done { error, ..Done::default() });
        let cost = Cost { syscalls, wall: start.elapsed(), walked };
        Ok(Answer { stream: stream.into(), cost })
    }
}
