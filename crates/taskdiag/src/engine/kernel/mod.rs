//! The kernel engine asks a kernel with our patches, in one of two forms. `PROC_TASKS`, an ioctl on
//! the root directory of /proc, is used where there is no `/proc/task_diag`: `tasks` says how. It
//! has five groups, and not all members of them ([`Kernel::answers`]).
//!
//! `/proc/task_diag` takes the request in one write, and reads return the finished stream. The
//! kernel answers with the rights of the reader, like a /proc that is mounted with hidepid=2: a
//! process that the reader may not trace is missing. [`Kernel::sees_all`] says whether an answer
//! about all processes is complete. Nothing stays open between requests. One thread opens, writes
//! and reads, because the kernel refuses (EPERM) threads whose credentials differ from those of the
//! opener.
//!
//! The kernel reads open files through references to 64 files at a time, with no lock held, and
//! continues after the number of a descriptor (of an epoll or inotify: after the key of its last
//! entry). It does not wait for an epoll that is locked; the targets of that epoll are "not known".
//!
//! A read ends if the kernel has work for the reader to do (`task_work_pending()`). An answer holds
//! references to files, and the last reference may be ours. Such a file is closed when the reader
//! is back in user mode. When a read continued with buffers of 128 KiB until a megabyte was full,
//! sockets that others had closed stayed open as long as the read took.
//!
//! It does not decide whether such an answer is enough for the caller (see `auto`).

mod arrive;
mod head;
mod records;
mod stop;
mod tasks;
mod trim;

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::thread::CapabilitySet;
use taskdiag_wire::encode::{encode_features_request, encode_request};
use taskdiag_wire::{
    Features, Group, Groups, MSG_FEATURES, NlMsgHdr, Plain, Req, Strategy, VERSION, build,
};

use self::tasks::Failed;
use crate::engine::found::Found;
use crate::engine::{Answer, Cost, Engine, EngineId, LEAST_WALK, NOT_IN_PARTS, Support, estimate};
use crate::error::{Cause, Error};
use crate::request::{Members, Request};

/// The room in a buffer in addition to that for tasks. INFO and DONE fit many times.
const ROOM: usize = 64 << 10;
/// The largest first guess, because under a memory limit even memory that is never written to
/// counts.
const GUESS_MAX: usize = 256 << 20;

/// The step that failed, for errors.
const OPENING: &str = "opening";
const ASKING: &str = "asking";
const READING: &str = "reading";

/// The engine that asks `/proc/task_diag` or `PROC_TASKS`.
#[derive(Clone, Debug)]
pub struct Kernel {
    root: PathBuf,
    form: Form,
    groups: Groups,
    strategies: u64,
}

/// How the kernel is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// By the file `task_diag`, which has the stream.
    File,
    /// By the ioctl `PROC_TASKS` on the directory, which has records.
    Ioctl,
}

impl Kernel {
    /// An engine that uses `/proc`. The kernel is asked once per process what it supports, and the
    /// answer is remembered. A temporary failure, such as a lack of descriptors or rights, is not.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the kernel has neither the file nor the ioctl, or they may not be
    /// used.
    pub fn new() -> Result<Kernel, Error> {
        static PROBED: Found<Result<Kernel, String>> = Found::new();
        let again = |probed: &Result<Kernel, String>| match probed {
            Ok(engine) => Ok(engine.clone()),
            Err(why) => Err(unavailable(why.clone())),
        };
        if let Some(probed) = PROBED.get() {
            return again(probed);
        }
        match Kernel::with_root("/proc") {
            Ok(engine) => again(PROBED.keep(Ok(engine))),
            Err(Error::Unavailable { cause: Cause::NotSupported, why, .. }) => {
                again(PROBED.keep(Err(why)))
            }
            Err(e) => Err(e),
        }
    }

    /// An engine that uses a proc filesystem which is mounted elsewhere. The answer is about the
    /// pid namespace of that mount.
    ///
    /// # Errors
    /// The same as for [`new`](Self::new).
    pub fn with_root(root: impl Into<PathBuf>) -> Result<Kernel, Error> {
        let mut engine = Kernel {
            root: root.into(),
            form: Form::File,
            groups: Groups::NONE,
            strategies: Strategy::ALL.iter().fold(0, |all, s| all | 1 << *s as u64),
        };
        let features = match engine.features() {
            Err(none @ Error::Unavailable { cause: Cause::NotSupported, .. }) => {
                engine.form = Form::Ioctl;
                engine.groups = tasks::supported(&engine.root).map_err(|e| match e {
                    Failed::Asking(Errno::NOTTY) | Failed::Opening(Errno::NOENT) => none,
                    e => engine.refused(e, 0),
                })?;
                return Ok(engine);
            }
            features => features?,
        };
        if features.version != VERSION {
            let why = format!(
                "the kernel speaks version {} of the format, this program {VERSION}; use a newer one",
                features.version
            );
            return Err(unavailable(why));
        }
        let known = Group::ALL.iter().fold(Groups::NONE, |all, g| all | Groups::from(*g));
        engine.groups = Groups::from_bits(features.groups & known.bits());
        engine.strategies = features.strategies;
        Ok(engine)
    }

    /// The groups that it answers with all members that are wanted. `PROC_TASKS` lacks some, which
    /// `/proc/PID/status` has.
    pub fn answers(&self, wanted: Members) -> Groups {
        match self.form {
            Form::File => self.groups,
            Form::Ioctl => self.groups - records::incomplete(wanted),
        }
    }

    /// Whether this caller sees every process in an answer that /proc shows. By `PROC_TASKS` it
    /// does, because the options of the mount decide about both. By the file, callers with
    /// CAP_SYS_PTRACE over the first process of the pid namespace do, if they are in the initial
    /// user namespace. In another user namespace, there may be a process that has entered from
    /// outside, which such callers may not trace.
    pub fn sees_all(&self) -> bool {
        // PROC_USER_INIT_INO, the same on every machine.
        const INITIAL: u64 = 0xEFFF_FFFD;
        if self.form == Form::Ioctl {
            return true;
        }
        if !rustix::fs::stat("/proc/self/ns/user").is_ok_and(|s| s.st_ino == INITIAL) {
            return false;
        }
        let traces = rustix::thread::capabilities(None)
            .is_ok_and(|c| c.effective.contains(CapabilitySet::SYS_PTRACE));
        traces && self.ask(&encode_request(&Req::new(Strategy::One, 1, Groups::NONE))).is_ok()
    }

    fn features(&self) -> Result<Features, Error> {
        let answer = self.ask(&encode_features_request())?;
        let (hdr, body) = NlMsgHdr::read_from_prefix(&answer)
            .ok_or_else(|| unavailable("its answer is not a message of the format"))?;
        if hdr.kind != MSG_FEATURES {
            return Err(unavailable("it does not report what it supports"));
        }
        Features::read_from_prefix(body)
            .map(|(features, _)| features)
            .ok_or_else(|| unavailable("it does not say what it supports"))
    }

    /// Sends a request that has a short answer.
    fn ask(&self, request: &[u8]) -> Result<Vec<u8>, Error> {
        let fd = self.open()?;
        self.write(&fd, request)?;
        let mut answer = vec![0; 4096];
        let n = read(&fd, &mut answer).map_err(|e| self.failed(READING, e))?;
        answer.truncate(n);
        Ok(answer)
    }

    fn open(&self) -> Result<OwnedFd, Error> {
        let path = self.root.join("task_diag");
        let file = path.display();
        rustix::fs::openat(CWD, &path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(
            |e| match e {
                Errno::NOENT => {
                    unavailable(format!("{file}: this kernel has none; kernel/README.md of the source says how to build one that has it"))
                }
                e => self.failed(OPENING, e),
            },
        )
    }

    fn write(&self, fd: &OwnedFd, request: &[u8]) -> Result<(), Error> {
        match retry(|| rustix::io::write(fd, request)) {
            Ok(n) if n == request.len() => Ok(()),
            Ok(_) => Err(unavailable("it accepts only a part of a request")),
            Err(e) => Err(self.failed(ASKING, e)),
        }
    }

    fn failed(&self, what: &str, e: Errno) -> Error {
        let path = match self.form {
            Form::File => self.root.join("task_diag"),
            Form::Ioctl => self.root.clone(),
        };
        let file = path.display();
        match (what, e) {
            (ASKING | READING, Errno::PERM) if self.form == Form::File => because(
                Cause::NoPermission,
                format!(
                    "{what} {file}: {e}: the credentials of this thread have changed since it opened \
                     the file (setuid, setgroups, a new user namespace); change them first, then ask \
                     again"
                ),
            ),
            _ => {
                let cause = match e {
                    Errno::PERM | Errno::ACCESS => Cause::NoPermission,
                    Errno::MFILE | Errno::NFILE | Errno::NOMEM => Cause::Limit,
                    _ => Cause::Other,
                };
                because(cause, format!("{what} {file}: {e}"))
            }
        }
    }

    /// The error of `PROC_TASKS`.
    fn refused(&self, why: Failed, pid: u32) -> Error {
        match why {
            Failed::Opening(e) => self.failed(OPENING, e),
            Failed::Asking(e) => self.failed(ASKING, e),
            Failed::Nobody => Error::NoSuchProcess(pid),
        }
    }

    /// The user that a task belongs to.
    fn user(&self, pid: u32) -> Option<u32> {
        let dir = self.root.join(pid.to_string());
        rustix::fs::stat(dir).ok().map(|s| s.st_uid)
    }

    /// A first guess at the size of an answer. Memory that is not written to costs nothing.
    fn guess(req: &Request) -> usize {
        let tasks = match req.strategy {
            Strategy::One => 1,
            Strategy::All | Strategy::Children => estimate::processes(),
            Strategy::AllThread | Strategy::Thread => estimate::threads(),
        };
        let each = 64 + req.groups.iter().map(|g| g.properties().price.bytes).sum::<usize>();
        // The buffer grows if that is not enough.
        ((tasks + tasks / 8) * each + ROOM).min(GUESS_MAX)
    }
}

/// The cost of an answer. The kernel does not report the time of walks over pages, so all of it
/// counts if they were requested.
fn cost(req: &Request, syscalls: u64, begin: Instant) -> Cost {
    let wall = begin.elapsed();
    let walks = req.groups.intersects(Groups::WALKS_PAGES);
    Cost { syscalls, wall, walked: if walks { wall } else { Duration::ZERO } }
}

impl Engine for Kernel {
    fn id(&self) -> EngineId {
        EngineId::Kernel
    }

    fn support(&self) -> Support {
        let has = |s: &&Strategy| self.strategies & (1 << **s as u64) != 0;
        Support {
            groups: self.groups,
            strategies: Strategy::ALL.iter().filter(has).copied().collect(),
            notes: if self.form == Form::Ioctl { records::notes() } else { Vec::new() },
        }
    }

    fn run(&mut self, req: &Request) -> Result<Answer, Error> {
        let begin = Instant::now();
        let unsupported = req.groups - self.groups;
        if !unsupported.is_empty() {
            return Err(Error::Unsupported {
                engine: EngineId::Kernel,
                groups: unsupported,
                why: String::new(),
            });
        }
        if !req.processes.is_all() {
            return Err(unavailable(NOT_IN_PARTS.to_owned()));
        }
        if req.strategy.takes_pid() && (req.pid == 0 || req.pid > i32::MAX as u32) {
            return Err(Error::NoSuchProcess(req.pid));
        }
        if req.is_stopped() {
            return Ok(Answer { stream: stop::nothing(req).into(), cost: cost(req, 0, begin) });
        }
        let guess = Kernel::guess(req);
        if self.form == Form::Ioctl {
            let (stream, syscalls) = tasks::answer(&self.root, req, guess, |pid| self.user(pid))
                .map_err(|e| self.refused(e, req.pid))?;
            return Ok(Answer { stream: stream.into(), cost: cost(req, syscalls, begin) });
        }
        let fd = self.open()?;
        let (skip_base, skip_stat) = req.members.skipped();
        // The kernel looks at the clock only after the first mapping of a process.
        let no_time = req.budget.is_some_and(|left| left < LEAST_WALK);
        self.write(
            &fd,
            &encode_request(&build!(Req {
                max_rss_bytes: if no_time { 1 } else { req.max_rss_bytes.map_or(0, u64::from) },
                budget_ns: req
                    .budget
                    // 0 would mean that there is no limit.
                    .map_or(0, |b| u64::try_from(b.as_nanos()).unwrap_or(u64::MAX).max(1)),
                skip_base,
                skip_stat,
                ..Req::new(req.strategy, req.pid, req.groups)
            })),
        )?;

        let next = |to: &mut [u8]| match read(&fd, to) {
            Err(Errno::SRCH) => Err(Error::NoSuchProcess(req.pid)),
            n => n.map_err(|e| self.failed(READING, e)),
        };
        let (stream, reads) = arrive::answer(req, guess, next, |pid| self.user(pid))?;
        // open, write, close; and uname
        Ok(Answer { stream: stream.into(), cost: cost(req, 4 + reads, begin) })
    }
}

fn read(fd: &OwnedFd, to: &mut [u8]) -> Result<usize, Errno> {
    retry(|| rustix::io::read(fd.as_fd(), &mut *to))
}

fn retry<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            r => return r,
        }
    }
}

/// The kernel lacks something that this engine requests.
fn unavailable(why: impl Into<String>) -> Error {
    because(Cause::NotSupported, why)
}

fn because(cause: Cause, why: impl Into<String>) -> Error {
    Error::Unavailable { engine: EngineId::Kernel, cause, why: why.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_credentials_are_told_from_other_refusals() {
        let (root, form, groups) = ("/proc".into(), Form::File, Groups::NONE);
        let engine = Kernel { root, form, groups, strategies: 0 };
        for what in [ASKING, READING] {
            let text = engine.failed(what, Errno::PERM).to_string();
            assert!(text.contains(what) && text.contains("ask again"), "{text}");
            assert!(!engine.failed(what, Errno::NOMEM).to_string().contains("credentials"));
        }
        // A security module refused, and credentials do not matter.
        assert!(!engine.failed(OPENING, Errno::PERM).to_string().contains("credentials"));
    }
}
