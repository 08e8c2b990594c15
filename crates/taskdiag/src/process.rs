//! Processes with the values that most programs want, by name.
//!
//! It is a thin face over [`Snapshot`]: one request, and each value is read from the answer when it
//! is asked for. For other values, [`Process::task`] has the whole task.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use taskdiag_wire::{
    Base, Cred, Entry, Group, Groups, PathKind, Reason, Socket, Stat, Statm, TaskView,
};

use crate::engine::auto::query;
use crate::error::Error;
use crate::field::{Context, Missing};
use crate::files::{self, Side};
use crate::host::Host;
use crate::request::Request;
use crate::snapshot::Snapshot;

/// The groups that [`ProcessList::read`] requests.
fn usual() -> Groups {
    Groups::BASE | Groups::CRED | Groups::STAT | Groups::STATM | Groups::CMDLINE
}

/// The processes of one answer.
///
/// ```
/// # fn main() -> Result<(), taskdiag::Error> {
/// let all = taskdiag::ProcessList::read()?;
/// let me = all.get(std::process::id()).expect("this process");
/// println!("{} {} {}", me.pid(), me.name().unwrap_or_default(), me.user().unwrap_or_default());
/// assert!(me.memory().is_some_and(|bytes| bytes > 0));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ProcessList {
    snapshot: Snapshot,
    cx: Context,
    /// Whether this machine's names of users apply to the answer.
    has_names: bool,
}

impl ProcessList {
    /// All processes, with all values of [`Process`] but the program, the working directory and
    /// sockets.
    ///
    /// # Errors
    /// As [`query`].
    pub fn read() -> Result<ProcessList, Error> {
        ProcessList::read_with(Groups::NONE)
    }
    /// As [`ProcessList::read`], with these additional groups: [`Groups::PATHS`] for
    /// [`Process::exe`] and [`Process::cwd`], [`Groups::FD`] for [`Process::sockets`], others for
    /// [`Process::task`].
    ///
    /// # Errors
    /// As [`query`].
    pub fn read_with(more: Groups) -> Result<ProcessList, Error> {
        query(&Request::all(usual() | more)).map(ProcessList::of)
    }
    /// One process, with all values of [`Process`].
    ///
    /// # Errors
    /// As [`query`]: [`Error::NoSuchProcess`] if there is none with this pid.
    pub fn read_one(pid: u32) -> Result<ProcessList, Error> {
        let groups = usual() | Groups::PATHS | Groups::FD;
        query(&Request::one(pid, groups)).map(ProcessList::of)
    }
    /// The processes of an answer, which may be a saved one.
    pub fn of(snapshot: Snapshot) -> ProcessList {
        let threads = snapshot.stream().strategy().is_threads();
        let here = || Host::here().name == snapshot.host().name;
        let has_names = snapshot.took().is_some() || here();
        let cx = Context::of(&snapshot, threads);
        ProcessList { snapshot, cx, has_names }
    }
    /// Iterates over the processes, in the order of the answer.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Process<'_>> {
        self.snapshot.tasks().map(|task| Process { task, list: self })
    }
    /// The process with this pid.
    pub fn get(&self, pid: u32) -> Option<Process<'_>> {
        self.snapshot.task(pid).map(|task| Process { task, list: self })
    }
    /// The whole answer.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }
}

/// A process of an answer. Each value is `None` if it is not known, or if the process has none:
/// [`why`](Self::why) tells which.
#[derive(Clone, Copy, Debug)]
pub struct Process<'a> {
    task: TaskView<'a>,
    list: &'a ProcessList,
}

impl<'a> Process<'a> {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.task.tgid()
    }
    /// The process id of its parent, if it is visible.
    pub fn parent(&self) -> Option<u32> {
        self.task.record::<Base>()?.ppid().filter(|pid| *pid != 0)
    }
    /// Its command name, with U+FFFD in place of what is not UTF-8.
    pub fn name(&self) -> Option<Cow<'a, str>> {
        self.task.comm().map(String::from_utf8_lossy)
    }
    /// Its real uid.
    pub fn uid(&self) -> Option<u32> {
        self.task.record::<Cred>()?.uid()
    }
    /// The name of its user. `None` also if the user has none, or if a saved answer is of another
    /// machine, whose users this one does not know.
    pub fn user(&self) -> Option<String> {
        let uid = self.uid().filter(|_| self.list.has_names)?;
        let name = self.list.cx.names.user(uid)?;
        Some(String::from_utf8_lossy(&name).into_owned())
    }
    /// The state of the process: `R` running, `S` sleeping, `D` waiting, `Z` ended and not yet
    /// waited for, or another letter of `/proc/PID/stat`.
    pub fn state(&self) -> Option<char> {
        self.task.record::<Base>()?.state().map(char::from)
    }
    /// The arguments of the process. The first one is the name that it was started with. A long
    /// command line may be cut.
    pub fn args(&self) -> Option<Vec<Cow<'a, OsStr>>> {
        let text = self.task.cmdline().filter(|text| text.reason.is_none())?.data;
        let mut all: Vec<Cow<'a, OsStr>> = match text {
            Cow::Borrowed(text) => {
                text.split(|b| *b == 0).map(|a| Cow::Borrowed(OsStr::from_bytes(a))).collect()
            }
            Cow::Owned(text) => text
                .split(|b| *b == 0)
                .map(|a| Cow::Owned(OsStr::from_bytes(a).to_owned()))
                .collect(),
        };
        // The last one ends with a NUL, too.
        if all.last().is_some_and(|last| last.is_empty()) {
            all.pop();
        }
        Some(all)
    }
    /// Its program. Needs [`Groups::PATHS`].
    pub fn exe(&self) -> Option<PathBuf> {
        self.path(PathKind::Exe)
    }
    /// Its working directory. Needs [`Groups::PATHS`].
    pub fn cwd(&self) -> Option<PathBuf> {
        self.path(PathKind::Cwd)
    }
    fn path(&self, kind: PathKind) -> Option<PathBuf> {
        let path = self.task.path(kind).filter(|path| path.reason.is_none())?;
        Some(PathBuf::from(OsStr::from_bytes(&path.data)))
    }
    /// When it began.
    pub fn started(&self) -> Option<SystemTime> {
        let start = self.task.record::<Base>()?.start_time_ns()?;
        let ns = u64::try_from(self.list.cx.unix_ns(start)).ok()?;
        Some(UNIX_EPOCH + Duration::from_nanos(ns))
    }
    /// The CPU time of all its threads, including ended ones.
    pub fn cpu_time(&self) -> Option<Duration> {
        let stat = self.task.record::<Stat>()?;
        Some(Duration::from_nanos(stat.utime_ns()?.saturating_add(stat.stime_ns()?)))
    }
    /// How many threads it has.
    pub fn threads(&self) -> Option<u32> {
        self.task.record::<Stat>()?.num_threads()
    }
    /// Its resident memory in bytes. Pages that are shared with other processes count in full.
    pub fn memory(&self) -> Option<u64> {
        self.task.record::<Statm>()?.rss_bytes()
    }
    /// Its open sockets. Needs [`Groups::FD`].
    pub fn sockets(&self) -> Option<Vec<OpenSocket<'a>>> {
        let owner = self.task.owner(Group::Fd)?;
        if self.why(Group::Fd).is_some() {
            return None;
        }
        let sockets = owner.list::<Socket>().into_iter().flatten();
        Some(sockets.map(|entry| OpenSocket { entry, task: owner }).collect())
    }
    /// Why a group of values is missing. `None`: the group is in the answer.
    ///
    /// ```
    /// # fn main() -> Result<(), taskdiag::Error> {
    /// use taskdiag::{Group, Missing, Reason};
    ///
    /// let all = taskdiag::ProcessList::read()?;
    /// let me = all.get(std::process::id()).expect("this process");
    /// assert_eq!((me.memory().is_some(), me.why(Group::Statm)), (true, None));
    /// // It was not asked for, so nobody looked.
    /// assert!(me.exe().is_none());
    /// assert_eq!(me.why(Group::Paths), Some(Missing::NotAsked));
    /// # Ok(())
    /// # }
    /// ```
    pub fn why(&self, group: Group) -> Option<Missing> {
        if !self.task.asked().has(group) {
            return Some(Missing::NotAsked);
        }
        let owner = self.task.owner(group).unwrap_or(self.task);
        let reason = owner.reason(group).or_else(|| self.blob_reason(group));
        reason.map(Missing::Reason)
    }
    /// The reason in the text of a group that is a text.
    fn blob_reason(&self, group: Group) -> Option<Reason> {
        match group {
            Group::Cmdline => self.task.cmdline()?.reason,
            Group::Paths => self.task.path(PathKind::Exe)?.reason,
            _ => None,
        }
    }
    /// The task in the answer.
    pub fn task(&self) -> TaskView<'a> {
        self.task
    }
}

/// An open socket of a process. Each value is `None` if it is not known, or if such a socket has
/// none.
#[derive(Clone, Copy, Debug)]
pub struct OpenSocket<'a> {
    entry: Entry<'a, Socket>,
    task: TaskView<'a>,
}

impl<'a> OpenSocket<'a> {
    /// Its descriptor.
    pub fn fd(&self) -> Option<u32> {
        self.entry.fd()
    }
    /// Its protocol in a word, such as `TCP`, `UDP`, or `STREAM` of a unix socket.
    pub fn protocol(&self) -> Option<String> {
        files::protocol(&self.entry)
    }
    /// Its state in a word, such as `LISTEN`.
    pub fn state(&self) -> Option<&'static str> {
        files::state(&self.entry)
    }
    /// The local address and port of an internet socket.
    pub fn local(&self) -> Option<SocketAddr> {
        self.address(Side::Local)
    }
    /// Address and port of the other end, if it is an internet socket that is connected.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.address(Side::Peer).filter(|peer| peer.port() != 0)
    }
    fn address(&self, side: Side) -> Option<SocketAddr> {
        let (ip, port) = files::address(&self.entry, side)?;
        let mut address = SocketAddr::new(ip, port);
        if let (SocketAddr::V6(v6), Some(scope)) = (&mut address, files::scope(&self.entry, ip)) {
            v6.set_scope_id(scope);
        }
        Some(address)
    }
    /// The name of a unix socket: a path, or `@` and an abstract name.
    pub fn name(&self) -> Option<Cow<'a, [u8]>> {
        let number = self.entry.name().filter(|number| *number != 0)?;
        self.task.name(number).map(|name| name.data)
    }
    /// Whether this is an address of this machine only, or the socket is a unix socket.
    pub fn is_local_only(&self) -> Option<bool> {
        match self.local() {
            Some(address) => Some(match address.ip() {
                IpAddr::V4(ip) => ip.is_loopback(),
                IpAddr::V6(ip) => ip.is_loopback(),
            }),
            None => (i32::from(self.entry.family()?) == libc::AF_UNIX).then_some(true),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixListener;

    use super::*;
    use taskdiag_wire::{Done, Fixed, Info, StreamWriter, build};

    #[test]
    fn a_process_has_the_values_that_it_knows_of_itself() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let client = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("socket");
        let unix = UnixListener::bind(&path).expect("it is new");
        let me = std::process::id();
        let list = ProcessList::read_one(me).expect("this process is there");
        let process = list.get(me).expect("this process is there");
        assert_eq!(process.parent(), Some(std::os::unix::process::parent_id()));
        assert_eq!(process.uid(), Some(rustix::process::getuid().as_raw()));
        assert_eq!(process.cwd(), std::env::current_dir().ok());
        assert_eq!(process.exe(), std::env::current_exe().ok());
        let args: Vec<_> = std::env::args_os().collect();
        assert_eq!(process.args().expect("it has arguments"), args);
        let age = process.started().expect("it began").elapsed().expect("it was before");
        assert!(age < Duration::from_secs(3600), "{age:?}");
        assert!(process.threads() >= Some(1) && process.cpu_time().is_some());
        let sockets = process.sockets().expect("its own are known");
        let of = |fd: i32| {
            let is_it = |s: &&OpenSocket<'_>| s.fd() == u32::try_from(fd).ok();
            *sockets.iter().find(is_it).expect("it is open")
        };
        let tcp = of(listener.as_raw_fd());
        assert_eq!(tcp.local(), listener.local_addr().ok());
        assert_eq!(
            (tcp.peer(), tcp.state(), tcp.is_local_only()),
            (None, Some("LISTEN"), Some(true))
        );
        let ends = (of(client.as_raw_fd()).local(), of(client.as_raw_fd()).peer());
        assert_eq!(ends, (client.local_addr().ok(), client.peer_addr().ok()));
        let name = of(unix.as_raw_fd()).name().expect("it is bound").into_owned();
        assert_eq!(name, path.as_os_str().as_bytes());
    }

    #[test]
    fn users_of_another_machine_have_no_name_here() {
        let of = |host: &[u8]| {
            let mut w = StreamWriter::new();
            let (nodename, show_flags) = (Fixed::new(host), Groups::CRED.bits());
            w.info(&build!(Info { nodename, show_flags, ..StreamWriter::blank_info() }));
            w.begin_task(7, 7);
            w.put(&build!(Cred { valid: Cred::ALL_VALID, uid: 0 }));
            w.end_task();
            ProcessList::of(Snapshot::parse(w.finish(Done::default())).expect("it is whole"))
        };
        let user = |list: &ProcessList| list.get(7).expect("it is there").user();
        assert_eq!(user(&of(b"\x01nowhere")), None);
        let here = Host::here().name.expect("it has a name");
        assert_eq!(user(&of(&here)).as_deref(), Some("root"));
        assert_eq!(of(&here).get(7).expect("it is there").uid(), Some(0));
    }

    #[test]
    fn a_value_not_requested_has_a_reason() {
        let me = std::process::id();
        let list = ProcessList::read().expect("/proc is there");
        let process = list.get(me).expect("this process is there");
        assert_eq!((process.sockets().is_none(), process.exe()), (true, None));
        assert_eq!(process.why(Group::Fd), Some(Missing::NotAsked));
        assert_eq!(process.why(Group::Statm), None);
        assert!(list.iter().len() > 1);
    }
}
