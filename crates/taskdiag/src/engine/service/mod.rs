//! The service engine asks `taskdiagd`, which keeps BPF programs loaded, over a socket.
//!
//! The service shows the public part of /proc ([`shown`]), and only to callers whose own /proc
//! shows everything to everyone. It refuses other callers, and they read /proc. It may end at any
//! moment, and it may be slow. So each step here has a time limit, and after any failure `auto`
//! uses another engine.
//!
//! The service is trusted as little as possible: it must run as root or as the caller, or have been
//! started by root (systemd opens the socket), and its answer is checked like any stream.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use taskdiag_wire::encode::{encode_features_request, encode_request};
use taskdiag_wire::properties::Public;
use taskdiag_wire::{
    AlignedBuf, Features, Groups, MSG_FEATURES, NlMsgHdr, Plain, Req, Strategy, build,
};

use crate::bytes::populate;
use crate::engine::estimate;
use crate::engine::{Answer, Cost, Engine, EngineId, NOT_IN_PARTS, Support};
use crate::error::{Cause, Error};
use crate::large;
use crate::request::{ByteLimits, Request};
use crate::service::{Ask, INLINE_MAX, PROOF, Reply, SOCKET, SOCKET_ENV, shown, sock};

/// How long the service may take for one answer, if no other engine can answer instead. This
/// includes its start by systemd.
const PATIENCE: Duration = Duration::from_secs(2);
/// The time that it may take for each task in addition. An unoptimized build takes up to 35 µs.
const PATIENCE_FOR_TASK: Duration = Duration::from_micros(100);
/// The longest time to wait for the service, for any number of tasks.
const PATIENCE_MOST: Duration = Duration::from_secs(15);
/// If another engine can answer, the service may take half of that engine's time, but at least this
/// long. So a slow service, for example one that is busy with other requests, costs little.
const PATIENCE_LEAST: Duration = Duration::from_millis(20);
/// If the service was slow or busy, `auto` does not use it in this process for this long.
const SLOW: Duration = Duration::from_secs(5);
/// The end of that time: CLOCK_BOOTTIME in ms.
static SLOW_UNTIL: AtomicU64 = AtomicU64::new(0);
/// How often to try to connect if the queue is full, and how long to wait between attempts.
const CONNECT_TRIES: u32 = 20;
const CONNECT_PAUSE: Duration = Duration::from_millis(5);
/// The largest answer that is accepted.
const ANSWER_MAX: u64 = 4 << 30;

/// The engine that asks `taskdiagd`.
#[derive(Debug, Default)]
pub struct Service {
    keep: bool,
    kept: Option<Connection>,
    /// Memory for the next answer.
    spare: AlignedBuf,
    /// The time that another engine would take. `None`: no other engine can answer.
    other: Option<Duration>,
}

/// An open connection.
#[derive(Debug)]
struct Connection {
    fd: OwnedFd,
    /// The process that connected. The service answers only this process on the connection.
    owner: u32,
}

/// The groups that the service would answer, if there is one. This costs one stat(2), without a
/// connection.
pub(crate) fn groups(strategy: Strategy) -> Option<Groups> {
    let groups = shown::groups(strategy);
    let is_socket = |m: std::fs::Metadata| m.file_type().is_socket();
    if now_ms() < SLOW_UNTIL.load(Relaxed) {
        return None;
    }
    (!groups.is_empty() && std::fs::metadata(path()).is_ok_and(is_socket)).then_some(groups)
}

/// The groups of `all` that the service answers completely enough for the request: it returns no
/// more of a text than lists of tasks usually have.
pub(crate) fn with_room(req: &Request, all: Groups) -> Groups {
    if req.limits.text_bytes > ByteLimits::LIST.text_bytes { all - Groups::CMDLINE } else { all }
}

/// The socket. The environment is ignored if the caller has fewer rights.
fn path() -> PathBuf {
    // SAFETY: this reads a number that the kernel gave to the process at its start.
    let is_elevated = unsafe { libc::getauxval(libc::AT_SECURE) != 0 };
    let named = std::env::var_os(SOCKET_ENV).filter(|v| !v.is_empty() && !is_elevated);
    named.map_or_else(|| PathBuf::from(SOCKET), PathBuf::from)
}

impl Service {
    /// Asks the service for the groups that it answers.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if there is none, or it does not answer this process.
    pub fn new() -> Result<Service, Error> {
        let mut service = Service::default();
        let answer = service.ask(&Ask::new(Duration::ZERO, encode_features_request()), 0)?;
        let features = NlMsgHdr::read_from_prefix(answer.as_bytes())
            .filter(|(head, _)| head.kind == MSG_FEATURES)
            .and_then(|(_, body)| Features::read_from_prefix(body));
        match features {
            Some((f, _)) if f.version == taskdiag_wire::VERSION => Ok(service),
            _ => Err(other("it speaks another version of the format; restart it after an upgrade")),
        }
    }

    /// An engine that is not tried yet. It keeps its connection if `keep`.
    pub(crate) fn open(keep: bool) -> Service {
        Service { keep, ..Service::default() }
    }

    /// The time that another engine would take for the same answer. The service gets half of it.
    pub(crate) fn instead_of(&mut self, other: Duration) {
        self.other = Some(other);
    }

    /// How long the service may take for an answer about this many tasks.
    fn patience(&self, tasks: usize) -> Duration {
        let tasks = u32::try_from(tasks).unwrap_or(u32::MAX);
        let most = PATIENCE_FOR_TASK.saturating_mul(tasks).saturating_add(PATIENCE);
        let most = most.min(PATIENCE_MOST);
        self.other.map_or(most, |other| (other / 2).clamp(PATIENCE_LEAST, most))
    }

    /// Gives back the memory of an answer that is not needed any more, so that the next answer can
    /// use it.
    pub(crate) fn recycle(&mut self, memory: AlignedBuf) {
        if self.keep {
            self.spare = memory;
        }
    }

    /// Adds the file descriptor of the connection, if it is kept.
    pub(crate) fn descriptors(&self, all: &mut Vec<RawFd>) {
        all.extend(self.kept.iter().map(|kept| kept.fd.as_raw_fd()));
    }

    /// Asks about this many tasks.
    fn ask(&mut self, ask: &Ask, tasks: usize) -> Result<AlignedBuf, Error> {
        let result = self.try_to_ask(ask, self.patience(tasks));
        // A service that was slow or busy is not used for a while. After other errors, it may be
        // used again at once.
        if let (Some(_), Err(Error::Unavailable { cause: Cause::Limit, .. })) =
            (self.other, &result)
        {
            SLOW_UNTIL.store(now_ms() + SLOW.as_millis() as u64, Relaxed);
        }
        result
    }

    fn try_to_ask(&mut self, ask: &Ask, patience: Duration) -> Result<AlignedBuf, Error> {
        let until = Instant::now() + patience;
        rustix::fs::openat(CWD, PROOF, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map_err(
            |e| denied(format!("{PROOF} cannot be opened ({e}), so /proc shows less here")),
        )?;
        // The service ends or closes connections after a long idle time. So a kept connection may
        // fail once, and a new one is tried.
        let me = std::process::id();
        if let Some(kept) = self.kept.take().filter(|k| k.owner == me) {
            match kept.ask(ask, until, std::mem::take(&mut self.spare)) {
                Ok(answer) => {
                    self.kept = Some(kept);
                    return Ok(answer);
                }
                Err(Failed::Lost(_)) => {}
                Err(e) => return Err(e.into()),
            }
        }
        let tries = if self.other.is_some() { 0 } else { CONNECT_TRIES };
        let new = Connection::open(&path(), tries)?;
        let answer = new.ask(ask, until, std::mem::take(&mut self.spare))?;
        self.kept = self.keep.then_some(new);
        Ok(answer)
    }
}

/// The error of a question.
enum Failed {
    /// The connection is gone.
    Lost(io::Error),
    /// Anything else.
    For(Error),
}

impl From<Failed> for Error {
    fn from(f: Failed) -> Error {
        match f {
            Failed::Lost(e) => other(format!("it ended or closed the connection ({e})")),
            Failed::For(e) => e,
        }
    }
}

impl From<io::Error> for Failed {
    fn from(e: io::Error) -> Failed {
        Failed::Lost(e)
    }
}

impl Connection {
    /// If the queue is full, tries again up to `tries` times.
    fn open(path: &Path, tries: u32) -> Result<Connection, Error> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let fd = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
            .map_err(|e| Error::io("making a socket", e))?;
        let address = SocketAddrUnix::new(path.as_os_str().as_bytes())
            .map_err(|e| other(format!("{}: {e}", path.display())))?;
        // Other clients connect, too: the queue may have room again in a moment.
        let mut tries = 0..tries;
        let connected = loop {
            match rustix::net::connect(&fd, &address) {
                Err(rustix::io::Errno::AGAIN) if tries.next().is_some() => {
                    std::thread::sleep(CONNECT_PAUSE);
                }
                done => break done,
            }
        };
        connected.map_err(|e| {
            let cause = match e {
                rustix::io::Errno::ACCESS | rustix::io::Errno::PERM => Cause::NoPermission,
                rustix::io::Errno::AGAIN => {
                    return because(Cause::Limit, "too many clients are waiting to connect to it");
                }
                _ => Cause::Other,
            };
            let why = format!("{}: {e}; is taskdiagd.socket started?", path.display());
            Error::Unavailable { engine: EngineId::Service, cause, why }
        })?;
        // These are the ids of the process that listens, which is systemd if systemd opened the
        // socket.
        let uid = sockopt::socket_peercred(&fd).map(|c| c.uid);
        let me = rustix::process::geteuid();
        match uid {
            Ok(uid) if uid.is_root() || uid == me => {}
            _ => {
                return Err(denied(format!(
                    "{} is neither root's nor of this user",
                    path.display()
                )));
            }
        }
        Ok(Connection { fd, owner: std::process::id() })
    }

    /// `memory` is the memory of an older answer, or empty.
    fn ask(&self, ask: &Ask, until: Instant, memory: AlignedBuf) -> Result<AlignedBuf, Failed> {
        let question = ask.encode();
        let sent = sock::send(self.fd.as_fd(), &question, None)?;
        if sent != question.len() {
            return Err(Failed::For(other("it did not accept the whole request")));
        }
        let mut head = [0; Reply::LEN];
        let mut file = None;
        self.fill(&mut head, &mut file, until)?;
        let odd = || Failed::For(other("its reply does not follow the protocol"));
        match Reply::decode(&head).ok_or_else(odd)? {
            Reply::Refused(why) => {
                let (engine, cause) = (EngineId::Service, why.cause());
                Err(Failed::For(Error::Unavailable { engine, cause, why: why.to_string() }))
            }
            Reply::Here(len) if len <= INLINE_MAX as u64 => {
                let mut answer = AlignedBuf::zeroed((len as usize).next_multiple_of(8));
                self.fill(&mut answer.as_mut_bytes()[..len as usize], &mut None, until)?;
                Ok(answer)
            }
            Reply::File(len) if len <= ANSWER_MAX => {
                read_file(&file.ok_or_else(odd)?, len, memory).map_err(Failed::For)
            }
            _ => Err(odd()),
        }
    }

    /// Receives this many bytes, and the descriptor that comes with them.
    fn fill(
        &self,
        to: &mut [u8],
        file: &mut Option<OwnedFd>,
        until: Instant,
    ) -> Result<(), Failed> {
        let mut at = 0;
        while at < to.len() {
            match sock::receive(self.fd.as_fd(), &mut to[at..], true) {
                Ok(got) if got.len == 0 => {
                    return Err(io::Error::from(ErrorKind::UnexpectedEof).into());
                }
                Ok(got) => {
                    at += got.len;
                    *file = got.fd.or(file.take());
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => self.wait(until)?,
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    fn wait(&self, until: Instant) -> Result<(), Failed> {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: left.as_secs() as _, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => {
                let why = format!("it did not answer within {} ms", left.as_millis());
                Err(Failed::For(because(Cause::Limit, why)))
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(io::Error::from(e).into()),
        }
    }
}

/// A copy of an answer in a file. The service truncates the file after some seconds to free the
/// memory, so a copy is good if the file is still complete afterwards. `answer` has the memory for
/// it, if it is not empty.
fn read_file(file: &OwnedFd, len: u64, mut answer: AlignedBuf) -> Result<AlignedBuf, Error> {
    let gone = || because(Cause::Limit, "it took back the answer before it was read");
    let has_all = || {
        rustix::fs::fstat(file).is_ok_and(|s| {
            FileType::from_raw_mode(s.st_mode) == FileType::RegularFile && s.st_size as u64 == len
        })
    };
    if !has_all() {
        return Err(gone());
    }
    let bytes = (len as usize).next_multiple_of(8);
    if answer.is_empty() {
        answer = AlignedBuf::zeroed(bytes);
        large::prefer(answer.as_mut_bytes());
        populate(answer.as_mut_bytes());
    }
    answer.truncate(bytes);
    answer.grow(bytes);
    let mut at = 0;
    while at < len as usize {
        let to = &mut answer.as_mut_bytes()[at..len as usize];
        match rustix::io::retry_on_intr(|| rustix::io::pread(file, &mut *to, at as u64)) {
            Ok(0) => return Err(gone()),
            Ok(n) => at += n,
            Err(e) => return Err(Error::io("reading the answer of the service", e)),
        }
    }
    has_all().then_some(answer).ok_or_else(gone)
}

impl Engine for Service {
    fn id(&self) -> EngineId {
        EngineId::Service
    }

    fn support(&self) -> Support {
        let notes = shown::TABLE.iter().filter_map(|s| {
            let only = match s.group.properties().public {
                Public::OfProcesses => "of processes only; ",
                Public::OfThreads => "of threads only; ",
                _ => "",
            };
            let note = format!("{only}{}", s.less);
            (!note.is_empty()).then_some((s.group, note))
        });
        Support {
            groups: shown::groups(Strategy::All) | shown::groups(Strategy::AllThread),
            strategies: vec![Strategy::All, Strategy::AllThread],
            notes: notes.collect(),
        }
    }

    fn run(&mut self, req: &Request) -> Result<Answer, Error> {
        let begin = Instant::now();
        let unsupported = req.groups - shown::groups(req.strategy);
        if !unsupported.is_empty() || req.strategy.takes_pid() {
            return Err(Error::Unsupported {
                engine: EngineId::Service,
                groups: req.groups,
                why: String::new(),
            });
        }
        if !req.processes.is_all() {
            return Err(because(Cause::NotSupported, NOT_IN_PARTS));
        }
        let (skip_base, skip_stat) = req.members.skipped();
        let asked = build!(Req { skip_base, skip_stat, ..Req::new(req.strategy, 0, req.groups) });
        let ask = Ask::new(req.max_age, encode_request(&asked));
        let stream = self.ask(&ask, estimate::of(req.strategy))?;
        // The service may be in another UTS namespace, and does not say its names.
        let stream = crate::engine::info::with_host(stream);
        // open and close of /proc/1/stat, socket, connect, getsockopt, sendmsg, poll, recvmsg,
        // uname, and the number of tasks
        let syscalls = 9 + if req.strategy.is_threads() { 5 } else { 1 };
        let cost = Cost { syscalls, wall: begin.elapsed(), ..Cost::default() };
        Ok(Answer { stream: stream.into(), cost })
    }
}

fn now_ms() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    t.tv_sec as u64 * 1000 + t.tv_nsec as u64 / 1_000_000
}

fn other(why: impl Into<String>) -> Error {
    because(Cause::Other, why)
}

fn denied(why: impl Into<String>) -> Error {
    because(Cause::NoPermission, why)
}

fn because(cause: Cause, why: impl Into<String>) -> Error {
    Error::Unavailable { engine: EngineId::Service, cause, why: why.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_service_gets_more_time_for_more_tasks() {
        let seconds = Duration::from_secs;
        let mut service = Service::open(false);
        assert_eq!(service.patience(0), PATIENCE);
        assert_eq!(service.patience(100_000), seconds(12));
        assert_eq!(service.patience(usize::MAX), PATIENCE_MOST);
        // If another engine would be faster, the service gets half of its time.
        for (other, tasks, most) in [(1, 100, 0.5), (20, 100_000, 10.0), (20, 100, 2.01)] {
            service.instead_of(seconds(other));
            assert_eq!(service.patience(tasks), Duration::from_secs_f64(most), "{other} {tasks}");
        }
        service.instead_of(Duration::from_millis(1));
        assert_eq!(service.patience(10), PATIENCE_LEAST);
    }

    #[test]
    fn memory_of_an_older_answer_is_reused_without_its_bytes() {
        let bytes: Vec<u8> = (0..4000u32).flat_map(u32::to_ne_bytes).collect();
        let file = rustix::fs::memfd_create("answer", rustix::fs::MemfdFlags::CLOEXEC)
            .expect("there is memory");
        assert_eq!(rustix::io::pwrite(&file, &bytes, 0), Ok(bytes.len()));
        for older in [0, 8, bytes.len() - 8, bytes.len(), bytes.len() + 8, 10 * bytes.len()] {
            let memory = AlignedBuf::copy_of(&vec![0xff; older]);
            let answer = read_file(&file, bytes.len() as u64, memory).expect("it is all there");
            assert_eq!(answer.as_bytes(), bytes, "{older} bytes before");
        }
        let short = read_file(&file, bytes.len() as u64 + 8, AlignedBuf::new());
        assert!(short.is_err(), "the file has less than was announced");
    }
}
