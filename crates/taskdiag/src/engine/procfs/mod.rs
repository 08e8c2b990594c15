//! The engine that reads the text files of /proc: any kernel, no privilege.
//!
//! It opens only the files that the groups need. Each costs one openat(), one read() and one
//! close(), relative to the directory of /proc. The bytes are parsed by hand. Nothing stays open
//! between requests, except for the `stat` and `statm` files of a session. The engine does not know
//! the other engines.
//!
//! - `path`, `read` and `held_files` name and read files and directories;
//! - `parse` turns their text into records;
//! - `run` is what all threads that read have in common, and `worker` is one of these threads;
//! - `task` goes through the groups of one task, and `links`, `memory`, `swap`, `files` and `text`
//!   read them;
//! - `sizes` chooses the file for the sizes of memory;
//! - `taskstats` asks netlink how long tasks have waited;
//! - `leader` finds the memory of a process whose first thread has ended;
//! - `shmem` tells how much of a shared memory object is swapped out;
//! - `sockets` asks sock_diag(7) about the sockets among the files;
//! - `unlisted` asks a socket itself where no list has it;
//! - `gpu` reads what descriptors of graphics processors use;
//! - `carriers`, `shares` and `names` find values that several tasks have, so that the answer has
//!   them once;
//! - `walk` decides which tasks are read, and by how many threads;
//! - `handover`, `guard` and `supervise` do the same for reads that may wait for a task, so that
//!   the answer does not wait;
//! - `cgroup` finds the ids of cgroups;
//! - `single` reads values of one process without a request, for `taskdiag.psutil`.
//!
//! It does not open the directory of a task first. A measurement showed that this gains nothing,
//! even where 20 files of a task are read.

mod carriers;
mod cgroup;
mod clock;
mod delays;
mod files;
mod filestat;
mod gpu;
mod guard;
mod handover;
mod held_files;
mod leader;
mod limits;
mod links;
mod lists;
mod memory;
mod names;
mod net;
pub mod nvidia;
#[cfg(not(feature = "testing"))]
pub(crate) mod parse;
#[cfg(feature = "testing")]
pub mod parse;
mod path;
mod read;
mod run;
mod settings;
mod shares;
mod shmem;
#[doc(hidden)]
pub mod single;
mod sizes;
mod sockets;
mod stop;
mod subsystem_files;
mod supervise;
mod swap;
mod task;
mod taskstats;
mod text;
mod unlisted;
mod waits;
mod walk;
mod worker;

pub use sockets::{BoundSocket, bound_sockets, unix_addresses};

use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use taskdiag_wire::{Done, Group, Groups, Strategy, StreamWriter, build};

use self::cgroup::Cgroups;
use self::held_files::HeldFiles;
use self::limits::Budget;
use self::names::FileNames;
use self::read::Reader;
use self::run::Run;
use self::shmem::Objects;
pub(in crate::engine) use self::sizes::{SizesFrom, names_locked};
use self::sockets::{Sockets, Traffic};
use self::stop::exhausted;
use self::supervise::Job;
use self::worker::Worker;
use crate::engine::room::Room;
use crate::engine::{Answer, Cost, Engine, EngineId, Support, info, numbering};
use crate::error::{Cause, Error};
use crate::request::Request;
use crate::task_id::Tick;

/// `PROC_SUPER_MAGIC` of linux/magic.h.
const PROC_SUPER_MAGIC: u64 = 0x9fa0;

/// The groups that this engine answers.
pub const GROUPS: Groups = Groups::ALL;

/// The engine that reads the text files of /proc.
///
/// [`Cost::syscalls`] counts every call on /proc. It does not count calls of the allocator or calls
/// that start threads.
#[derive(Debug)]
pub struct Procfs {
    root: PathBuf,
    /// Files that stay open between answers.
    held: Option<Arc<HeldFiles>>,
}

impl Procfs {
    /// An engine that reads `/proc`.
    ///
    /// # Errors
    /// [`Error::Unavailable`] where no proc filesystem is mounted there.
    pub fn new() -> Result<Procfs, Error> {
        Procfs::with_root("/proc")
    }

    /// An engine that reads a proc filesystem which is mounted elsewhere, or a directory tree like
    /// one.
    ///
    /// # Errors
    /// [`Error::Unavailable`] where `root` is neither.
    pub fn with_root(root: impl Into<PathBuf>) -> Result<Procfs, Error> {
        let engine = Procfs { root: root.into(), held: None };
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

    /// Keeps the `stat` and `statm` files of processes open between answers: up to 8,192 files, and
    /// at most half of the descriptors that this process may have.
    pub fn keeping(self) -> Procfs {
        Procfs { held: Some(Arc::new(HeldFiles::new())), ..self }
    }

    /// Adds the file descriptors that are open between answers.
    pub(crate) fn descriptors(&self, all: &mut Vec<RawFd>) {
        if let Some(held) = &self.held {
            held.descriptors(all);
        }
    }

    /// The directory that the engine reads.
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
        Error::Unavailable { engine: EngineId::Procfs, cause: Cause::NoProc, why }
    }
}

impl Engine for Procfs {
    fn id(&self) -> EngineId {
        EngineId::Procfs
    }

    fn support(&self) -> Support {
        let own = [
            (Group::Cred, "securebits are not in /proc"),
            (
                Group::Stat,
                "locked pages are known if flags are named, or if cred, statm, sched or ns are requested, too",
            ),
            (
                Group::Sched,
                "for a process, it is the sum over its living threads, whose files are all read",
            ),
            (Group::Ns, "only NSpid is shown to everyone"),
            (Group::Vma, "flags are known where vma_stat is asked for too"),
            (
                Group::VmaStat,
                "sums are whole KiB; pss_anon, pss_file and pss_shmem are known for rollup only",
            ),
            (Group::Fd, "knows sockets of inet, unix, netlink and packet"),
            (Group::Net, "drops are known of sockets of inet, unix, netlink and packet"),
            (Group::Gpu, "drivers of DRM devices have it; the command asks libnvidia-ml, too"),
            (Group::FdCount, "size is known where cred, statm, sched, signals or ns are asked for"),
            (Group::Kstack, "only root may read it"),
            (Group::Delays, "needs CAP_NET_ADMIN; not known of a task without a delay"),
            (Group::Cgroup, "the id is known if the task's cgroup v2 directory is mounted"),
        ];
        let note = |g: &Group| {
            let right = Groups::GUARDED.has(*g).then_some("needs the right to trace the process");
            let own = own.iter().find(|(of, _)| of == g).map(|(_, note)| *note);
            let note: Vec<&str> = right.into_iter().chain(own).collect();
            (!note.is_empty()).then(|| (*g, note.join("; ")))
        };
        Support {
            groups: GROUPS,
            strategies: Strategy::ALL.to_vec(),
            notes: Group::ALL.iter().filter_map(note).collect(),
        }
    }

    fn run(&mut self, req: &Request) -> Result<Answer, Error> {
        loop {
            match self.answer(req) {
                Err(e)
                    if lacks_descriptors(&e) && self.held.as_ref().is_some_and(|h| h.shrink()) => {}
                answer => return answer,
            }
        }
    }
}

/// Whether a request failed because too many files are open.
fn lacks_descriptors(e: &Error) -> bool {
    let Error::Io { source, .. } = e else { return false };
    matches!(source.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

impl Procfs {
    /// Whether the pids of this proc filesystem belong to our own pid namespace, for certain.
    fn has_own_pids(&self) -> bool {
        match self.root.to_str() {
            Some("/proc") => numbering::proc_is_own(),
            _ => numbering::is_own(&self.root),
        }
    }
    fn answer(&self, req: &Request) -> Result<Answer, Error> {
        let start = Instant::now();
        let unsupported = req.groups - GROUPS;
        if !unsupported.is_empty() {
            return Err(Error::Unsupported {
                engine: EngineId::Procfs,
                groups: unsupported,
                why: String::new(),
            });
        }
        let mut info = info::info(req);
        info.procfs_groups = req.groups.bits();
        let root = self.open()?;
        let mut reader = Reader::new();
        reader.syscalls = info::SYSCALLS + 2; // open and close of root
        let find_cgroups = req.groups.has(Group::Cgroup);
        let run = Run {
            groups: req.groups,
            threads: req.strategy.is_threads(),
            page_size: rustix::param::page_size() as u64,
            sizes_from: SizesFrom::of(req.groups, req.members),
            names_locked: names_locked(req.groups, req.members),
            tick_ns: Tick::of(&info).ns(),
            own_pids: (req.groups.intersects(Groups::LISTS_OF_FILES)
                || (req.strategy.is_threads() && req.groups.intersects(Groups::SHARED_FILES)))
                && reader.is_own(root.as_fd()),
            own_times: (req.groups.has(Group::Sched) && !req.strategy.is_threads()
                || req.groups.intersects(Groups::DELAYS | Groups::PIDFD | Groups::SETTINGS))
                && {
                    reader.syscalls += 3;
                    self.has_own_pids()
                },
            sched_clock: if req.groups.has(Group::Wait) {
                clock::SchedClock::find(&mut reader, Tick::of(&info).ns())
            } else {
                None
            },
            watch: req.watch.clone(),
            texts: Room::new(req.limits),
            lists: Room::new(req.limits),
            limits: Budget::of(req),
            swap_used: req.groups.has(Group::Swap) && swap::is_used(),
            objects: Objects::default(),
            own_netns: if req.groups.intersects(Groups::LISTS_OF_FILES) {
                reader.own_netns()
            } else {
                0
            },
            sockets: Sockets::default(),
            traffic: Traffic::default(),
            names: FileNames::default(),
            held: self.held.clone().filter(|_| !req.strategy.is_threads()),
            has_gpu: req.groups.has(Group::Gpu) && {
                let is_own = self.root == Path::new("/proc");
                gpu::is_there(&mut reader, root.as_fd(), is_own)
            },
            nvidia: nvidia::Known::new(),
            cgroup_roots: req.members.cgroup_roots,
            cgroups: find_cgroups.then(|| Cgroups::find(root.as_fd(), &mut reader)).flatten(),
        };
        let mut out = StreamWriter::new();
        out.info(&info);
        let mut worker = Worker::new(&run, reader, out);
        let (mut out, mut syscalls, walked);
        if supervise::is_for(req.groups) {
            let (pids, tgid) = walk::processes(root.as_fd(), req, &mut worker.reader)?;
            let items = if run.threads {
                walk::all_threads(root.as_fd(), &pids, &mut worker)?
            } else {
                pids.into_iter().map(|pid| (pid, 0)).collect()
            };
            (out, syscalls) = (worker.out, worker.reader.syscalls);
            let readers = walk::readers_for(items.len());
            let run = Run { lists: run.lists.with_readers(readers), ..run };
            let children_of = (req.strategy == Strategy::Children).then_some(tgid);
            let job = Arc::new(Job { run, root, items, children_of });
            supervise::read_all(&job, &mut out, &mut syscalls)?;
            walked = job.run.limits.spent();
            walk::found(req, &out)?;
        } else {
            walk::walk(root.as_fd(), req, &mut worker)?;
            (out, syscalls) = (worker.out, worker.reader.syscalls);
            walked = run.limits.spent();
        }
        if let Some(held) = &self.held {
            syscalls += held.close_others() as u64;
        }
        let error = if req.is_stopped() { -libc::EINTR } else { 0 };
        let stream = out.finish(build!(Done { error, ..Done::default() }));
        let cost = Cost { syscalls, wall: start.elapsed(), walked };
        Ok(Answer { stream: stream.into(), cost })
    }
}
