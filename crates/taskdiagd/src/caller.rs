//! Checks whether a caller's own /proc shows everything to everyone, so that the service shows it
//! nothing new.
//!
//! The service answers only if all of the following holds. The caller is in our pid namespace, and
//! its user ids mean the same as ours. Its boot-time clock is ours, because start times are times
//! since boot. Its /proc is the same proc file system as ours (so it has the same pid namespace and
//! options), mounted as a whole, without hidepid and subset, and nothing is mounted over the
//! directory of a process. No security module confines the caller, and neither seccomp nor
//! no_new_privs is set in any of its threads. Without no_new_privs, only root can enter a Landlock
//! domain. (Such a domain cannot be seen from outside. `docs/operate/service.md` describes the
//! remaining risk.)
//!
//! All of this is read from /proc/PID of the caller, which needs no rights. But the pid could
//! belong to another process by then. So the kernel provides a descriptor for the process that
//! connected (`SO_PEERPIDFD`), and the process must be alive *after* everything was read. The
//! credentials that the kernel adds to each question prove that this process sent it.
//!
//! The table of mounts is long, and a caller that polls would make the service read it for each
//! question. So the open file is kept. The kernel marks an open table when a mount of its namespace
//! changes. The first line of a newly opened table shows whether the caller still has that
//! namespace and that root directory: it has the number of a mount, which exists in one namespace
//! only, and the path of this mount from the root. So callers with the same first line share one
//! open table. Neither shows that a process of another namespace has changed the options of /proc.
//! The service has the same file system, so it checks its own before each walk.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::thread::CapabilitySet;
use taskdiag::service::Refusal;

use crate::threads;

/// `SO_PEERPIDFD` of Linux 6.5, which the crate libc does not have for every machine.
const SO_PEERPIDFD: libc::c_int = 77;
/// The files in which security modules show the label of a process.
const LABELS: [&str; 3] = ["attr/current", "attr/apparmor/current", "attr/smack/current"];
/// The longest file about a caller that is read. A table of mounts may be long.
const LONGEST: usize = 1 << 20;
/// The start of a table of mounts that is read, enough for the number and path of the first mount.
/// The kernel only generates the lines that are read.
const FIRST: usize = 64;
/// For how long the service trusts its own table of mounts.
const TABLE_AGE: Duration = Duration::from_secs(1);
/// The largest number of processes for which the time of the last check of their threads is kept.
const JUDGED: usize = 1024;
/// How often the mounts of a caller may change during a check.
const TRIES: usize = 3;

/// The properties of the service, with which callers are compared.
#[derive(Debug)]
pub struct Own {
    /// Device number of the proc file system.
    proc: (u32, u32),
    uid_map: Vec<u8>,
    gid_map: Vec<u8>,
    /// The clock offsets of its time namespace. `None`: the kernel has no such namespaces.
    offsets: Option<Vec<u8>>,
    /// The label files of the security modules of this machine. Modules are loaded at boot.
    labels: Vec<&'static str>,
    /// May the caller look into directories of other users' processes, even if `hidepid` denies
    /// that to most users?
    is_trusted: bool,
    /// The time of the last look at the caller's table of mounts.
    looked: Cell<Instant>,
    /// The tables that callers hold. An open table keeps its mount namespace alive, so this list
    /// does not keep tables open.
    tables: RefCell<Vec<Weak<Mounts>>>,
    /// The time of the last look at the threads of a process.
    threads: RefCell<HashMap<u32, Instant>>,
}

/// The process at the other end of a connection.
#[derive(Debug)]
pub struct Peer {
    pid: u32,
    /// The user who connected.
    pub uid: u32,
    pidfd: Option<OwnedFd>,
    held: Option<CallerFiles>,
}

/// The open files of a caller that was checked.
#[derive(Debug)]
struct CallerFiles {
    /// The directory of the caller in /proc. It and all files below belong to this process, even if
    /// another process gets its pid.
    dir: OwnedFd,
    status: OwnedFd,
    /// `None`: the kernel has no time namespaces.
    offsets: Option<OwnedFd>,
    mounts: Option<Arc<Mounts>>,
}

/// An open table of mounts that was found plain.
#[derive(Debug)]
struct Mounts {
    table: OwnedFd,
    /// The start of the table. `None`: the start proves too little, so this table is not shared,
    /// and it is read again for the next question.
    first: Option<First>,
    /// Has a mount changed? The kernel reports this once for each open table.
    has_changed: AtomicBool,
}

/// The start of a table of mounts: the number and path of the first mount, and maybe more.
#[derive(Debug, PartialEq, Eq)]
pub struct First([u8; FIRST]);

impl Own {
    /// Reads the properties of the service itself.
    ///
    /// # Errors
    /// Why the service cannot check callers here.
    pub fn look() -> Result<Own, String> {
        let me = std::process::id();
        let link = std::fs::read_link("/proc/self").map_err(|e| format!("/proc/self: {e}"))?;
        if link.as_os_str() != me.to_string().as_str() {
            return Err(String::from("/proc belongs to another pid namespace: mount your own one"));
        }
        let read = |name: &str| {
            let path = format!("/proc/self/{name}");
            read(CWD, &path).map_err(|e| format!("{path}: {e}"))
        };
        let table = open(CWD, "/proc/self/mountinfo").and_then(|table| read_long(&table));
        let table = table.map_err(|e| format!("/proc/self/mountinfo: {e}"))?;
        let proc = plain_proc(&table)
            .ok_or("/proc is not a plain mount (hidepid, subset, or something mounted on it)")?;
        let has = |name: &&str| !is_no_label(&self::read(CWD, &format!("/proc/self/{name}")));
        let labels = LABELS.into_iter().filter(has).collect();
        let offsets = offsets(CWD, "/proc/self/timens_offsets")
            .map_err(|e| format!("/proc/self/timens_offsets: {e}"))?;
        let traces = rustix::thread::capabilities(None)
            .map_or(true, |c| c.effective.contains(CapabilitySet::SYS_PTRACE));
        Ok(Own {
            proc,
            uid_map: read("uid_map")?,
            gid_map: read("gid_map")?,
            offsets,
            labels,
            is_trusted: traces || rustix::process::geteuid().is_root(),
            looked: Cell::new(Instant::now()),
            tables: RefCell::default(),
            threads: RefCell::default(),
        })
    }

    /// Does the proc file system still show everything to everyone?
    ///
    /// If not, an unprivileged service cannot look into the directory of process 1, unless `gid=`
    /// allows it. So the whole table is read once a second, and before each walk if the service is
    /// privileged.
    pub fn is_plain(&self) -> bool {
        let now = Instant::now();
        if !self.is_trusted && now.duration_since(self.looked.get()) < TABLE_AGE {
            return rustix::fs::stat("/proc/1/stat").is_ok();
        }
        let table = open(CWD, "/proc/self/mountinfo").and_then(|table| read_long(&table));
        let is_plain = table.is_ok_and(|table| plain_proc(&table) == Some(self.proc));
        if is_plain {
            self.looked.set(now);
        }
        is_plain
    }

    /// May this caller, whose question was received at this moment, see the public part of /proc?
    ///
    /// # Errors
    /// Why not.
    pub fn judge(&self, peer: &mut Peer, sender: Option<i32>, at: Instant) -> Result<(), Refusal> {
        let unknown = |_| Refusal::UnknownCaller;
        if peer.pid == 0 || sender != i32::try_from(peer.pid).ok() {
            return Err(Refusal::UnknownCaller);
        }
        let held = match &mut peer.held {
            Some(held) => held,
            none => none.insert(CallerFiles::open(peer.pid).map_err(unknown)?),
        };
        let status = read_short(&held.status).map_err(unknown)?;
        has_plain_status(&status, peer.pid)?;
        let read = |name: &str| read(&held.dir, name).map_err(unknown);
        if read("uid_map")? != self.uid_map || read("gid_map")? != self.gid_map {
            return Err(Refusal::UserNamespace);
        }
        // These offsets apply to new children of the caller. They differ from its own only if the
        // caller changed them, which misleads only itself.
        let its = held.offsets.as_ref().map(read_short).transpose().map_err(unknown)?;
        if its != self.offsets {
            return Err(Refusal::TimeNamespace);
        }
        have_no_bounds(held.dir.as_fd(), &self.labels)?;
        if threads::count(&status) != 1 && !self.has_judged_threads(peer.pid, at) {
            let begin = Instant::now();
            let first = first(&held.dir).map_err(unknown)?.ok_or(Refusal::Threads)?;
            threads::judge(&held.dir, peer.pid, &first, &self.labels)?;
            let mut judged = self.threads.borrow_mut();
            if judged.len() >= JUDGED {
                judged.clear();
            }
            judged.insert(peer.pid, begin);
        }
        let pidfd = peer.pidfd.as_ref().ok_or(Refusal::UnknownCaller)?;
        for _ in 0..TRIES {
            let first = first(&held.dir).map_err(unknown)?;
            let mounts = match held.mounts.take() {
                Some(mounts) if first.is_some() && mounts.first == first => mounts,
                _ => self.mounts(&held.dir, first.as_ref())?,
            };
            if mounts.are_quiet(pidfd)? {
                held.mounts = Some(mounts);
                return Ok(());
            }
            // A mount has changed, so the table is read again.
        }
        Err(Refusal::Busy)
    }

    /// Whether the threads of this process were checked after this moment. Then that check covers
    /// all questions that were received before. There are many if each thread of a program has a
    /// connection. The pid still belongs to the same process, because its pidfd is checked
    /// afterwards.
    fn has_judged_threads(&self, pid: u32, at: Instant) -> bool {
        self.threads.borrow().get(&pid).is_some_and(|judged| *judged >= at)
    }

    /// The table of mounts of a process whose table starts like this, shared with another caller if
    /// possible.
    fn mounts(&self, dir: &OwnedFd, first: Option<&First>) -> Result<Arc<Mounts>, Refusal> {
        let mut tables = self.tables.borrow_mut();
        tables.retain(|t| t.upgrade().is_some_and(|t| !t.has_changed.load(Relaxed)));
        let is_it = |t: &Arc<Mounts>| first.is_some() && t.first.as_ref() == first;
        if let Some(found) = tables.iter().filter_map(Weak::upgrade).find(is_it) {
            return Ok(found);
        }
        let read = Arc::new(Mounts::read(dir, self.proc)?);
        tables.push(Arc::downgrade(&read));
        Ok(read)
    }
}

impl CallerFiles {
    fn open(pid: u32) -> io::Result<CallerFiles> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::openat(CWD, format!("/proc/{pid}"), flags, Mode::empty())?;
        let offsets = match open(&dir, "timens_offsets") {
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            opened => Some(opened?),
        };
        Ok(CallerFiles { status: open(&dir, "status")?, offsets, dir, mounts: None })
    }
}

impl Mounts {
    /// Reads the table of a process.
    fn read(dir: &OwnedFd, proc: (u32, u32)) -> Result<Mounts, Refusal> {
        let unknown = |_| Refusal::UnknownCaller;
        let table = open(dir, "mountinfo").map_err(unknown)?;
        let bytes = read_long(&table).map_err(unknown)?;
        if plain_proc(&bytes) != Some(proc) {
            return Err(Refusal::Mounts);
        }
        let first = First::of(&bytes);
        Ok(Mounts { table, first, has_changed: AtomicBool::new(false) })
    }

    /// Has no mount of the table changed since it was opened?
    ///
    /// # Errors
    /// The process has ended.
    fn are_quiet(&self, pidfd: &OwnedFd) -> Result<bool, Refusal> {
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut both =
            [PollFd::new(pidfd, PollFlags::IN), PollFd::new(&self.table, PollFlags::PRI)];
        poll(&mut both, Some(&now)).map_err(|_| Refusal::UnknownCaller)?;
        if !both[1].revents().is_empty() {
            self.has_changed.store(true, Relaxed);
        }
        match both[0].revents().is_empty() {
            true => Ok(!self.has_changed.load(Relaxed)),
            false => Err(Refusal::UnknownCaller),
        }
    }
}

impl First {
    /// The start of a table, if it includes the first line up to the path of the mount, the fifth
    /// word. A part of a path proves nothing.
    fn of(table: &[u8]) -> Option<First> {
        let begin = &table[..table.len().min(FIRST)];
        let line = begin.split(|b| *b == b'\n').next()?;
        let is_there = line.iter().filter(|b| **b == b' ').count() >= 5;
        let mut first = [0; FIRST];
        first[..begin.len()].copy_from_slice(begin);
        is_there.then_some(First(first))
    }
}

/// The current start of a process's table of mounts.
pub fn first(dir: &OwnedFd) -> io::Result<Option<First>> {
    let mut bytes = [0; FIRST];
    let got = rustix::io::read(open(dir, "mountinfo")?, &mut bytes)?;
    Ok(First::of(&bytes[..got]))
}

impl Peer {
    /// The process that connected.
    ///
    /// # Errors
    /// The errors of getsockopt(2).
    pub fn of(connection: BorrowedFd<'_>) -> io::Result<Peer> {
        // SAFETY: all zeroes are a ucred.
        let mut who: libc::ucred = unsafe { std::mem::zeroed() };
        option(connection, libc::SO_PEERCRED, &mut who)?;
        let pid = u32::try_from(who.pid).unwrap_or(0);
        Ok(Peer { pid, uid: who.uid, pidfd: None, held: None })
    }

    /// Opens a pidfd, which shows whether the process is still alive.
    pub fn hold(&mut self, connection: BorrowedFd<'_>) {
        if self.pidfd.is_some() {
            return;
        }
        let mut fd: libc::c_int = -1;
        let pidfd = option(connection, SO_PEERPIDFD, &mut fd).is_ok() && fd >= 0;
        // SAFETY: the kernel has just made this descriptor for us.
        self.pidfd = pidfd.then(|| unsafe { OwnedFd::from_raw_fd(fd) });
    }

    /// Is it still alive, so that its pid is not reused? Before Linux 6.5, this cannot be known.
    pub fn is_alive(&self) -> bool {
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        self.pidfd.as_ref().is_some_and(|fd| {
            matches!(poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&now)), Ok(0))
        })
    }
}

fn option<T>(fd: BorrowedFd<'_>, name: libc::c_int, to: &mut T) -> io::Result<()> {
    let mut len = size_of::<T>() as libc::socklen_t;
    let to: *mut T = to;
    // SAFETY: the kernel writes at most `len` bytes there, which are all of a plain C type.
    let rc = unsafe {
        libc::getsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, name, to.cast(), &raw mut len)
    };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn open(dir: impl AsFd, name: &str) -> io::Result<OwnedFd> {
    Ok(rustix::fs::openat(dir, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

/// A whole file of short lines.
pub fn read(dir: impl AsFd, name: &str) -> io::Result<Vec<u8>> {
    read_short(&open(dir, name)?)
}

/// Reads a whole open file from its start. Its lines must be at most half a page long, or the
/// kernel must make all of it at once.
///
/// The kernel fills a page with lines, and stops when the next one does not fit. So a text that
/// leaves half of the page free is complete, and needs no second read to find its end. This does
/// not hold for tables of mounts, whose lines may be long.
fn read_short(file: &OwnedFd) -> io::Result<Vec<u8>> {
    let mut bytes = [0; 4096];
    match rustix::io::pread(file, &mut bytes, 0)? {
        got if got < bytes.len() / 2 => Ok(bytes[..got].to_vec()),
        _ => read_long(file),
    }
}

/// Reads a whole open file from its start. A text that is too long is an error, because a part of
/// it proves nothing.
fn read_long(file: &OwnedFd) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; 16 << 10];
    let mut len = 0;
    loop {
        match rustix::io::pread(file, &mut bytes[len..], len as u64)? {
            0 => break,
            got => len += got,
        }
        if len > LONGEST {
            return Err(io::Error::from(io::ErrorKind::FileTooLarge));
        }
        if len == bytes.len() {
            bytes.resize(2 * len, 0);
        }
    }
    bytes.truncate(len);
    Ok(bytes)
}

/// The clock offsets of a time namespace. `None`: the kernel has no such namespaces.
fn offsets(dir: impl AsFd, name: &str) -> io::Result<Option<Vec<u8>>> {
    match read(dir, name) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        found => found.map(Some),
    }
}

/// Is a task not confined by any security module? Its directory in /proc is open.
pub fn have_no_bounds(dir: BorrowedFd<'_>, labels: &[&str]) -> Result<(), Refusal> {
    for label in labels {
        match read(dir, label) {
            Ok(label) if is_unconfined(&label) => {}
            no if is_no_label(&no) => {}
            _ => return Err(Refusal::Confined),
        }
    }
    Ok(())
}

/// Does `status` show that the process is in the reader's pid namespace, and not confined?
fn has_plain_status(status: &[u8], pid: u32) -> Result<(), Refusal> {
    // A process in a child namespace has more than one pid.
    if value(status, b"NSpid:") != Some(pid.to_string().as_bytes()) {
        return Err(Refusal::PidNamespace);
    }
    is_free(status)
}

/// The value of the first line of `status` with this prefix.
fn value<'a>(status: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    status.split(|b| *b == b'\n').find_map(|l| l.strip_prefix(key)).map(<[u8]>::trim_ascii)
}

/// Does `status` show that neither no_new_privs nor seccomp is set?
pub fn is_free(status: &[u8]) -> Result<(), Refusal> {
    // A Landlock domain cannot be seen. To enter one, a process needs no_new_privs or
    // CAP_SYS_ADMIN.
    let seccomp = value(status, b"Seccomp:");
    if value(status, b"NoNewPrivs:") != Some(b"0") || seccomp.is_some_and(|v| v != b"0") {
        return Err(Refusal::Confined);
    }
    Ok(())
}

/// Is there no security module with labels?
fn is_no_label(read: &io::Result<Vec<u8>>) -> bool {
    matches!(read, Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::EINVAL)))
}

/// Does this label of a security module leave its process unconfined? An unknown label counts as
/// confining.
fn is_unconfined(label: &[u8]) -> bool {
    let label = label.trim_ascii_end();
    let label = label.strip_suffix(b"\0").unwrap_or(label);
    match label.split(|b| *b == b':').collect::<Vec<_>>()[..] {
        // AppArmor, or a module without a label for the process.
        [b"unconfined" | b""] => true,
        // SELinux: user, role, type, level.
        [_, _, kind, ..] => kind == b"unconfined_t",
        _ => false,
    }
}

/// The device of the proc file system at /proc, if it shows everything to everyone: one mount of
/// the whole, without `hidepid` and `subset`, and nothing mounted over the directory of a process.
fn plain_proc(mountinfo: &[u8]) -> Option<(u32, u32)> {
    let mut found = None;
    for line in mountinfo.split(|b| *b == b'\n').filter(|l| !l.is_empty()) {
        let line = String::from_utf8_lossy(line);
        let point = line.split(' ').nth(4)?;
        if let Some(below) = point.strip_prefix("/proc/") {
            let is_process = below.starts_with(|c: char| c.is_ascii_digit());
            if is_process || below.starts_with("self") || below.starts_with("thread-self") {
                return None;
            }
        }
        if point != "/proc" {
            continue;
        }
        let (head, tail) = line.split_once(" - ")?;
        let (device, root) = (head.split(' ').nth(2)?, head.split(' ').nth(3)?);
        let mut tail = tail.split(' ');
        let (kind, options) = (tail.next()?, tail.nth(1)?);
        let may = |o: &str| match o.split_once('=') {
            Some(("hidepid", level)) => level == "off" || level == "0",
            Some(("gid", _)) => true,
            Some(_) => false,
            None => matches!(o, "rw" | "ro"),
        };
        let (major, minor) = device.split_once(':')?;
        let device = (major.parse().ok()?, minor.parse().ok()?);
        let is_plain = kind == "proc" && root == "/" && options.split(',').all(may);
        if !is_plain || found.replace(device).is_some() {
            return None;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str = "21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n";
    const PROC: &str =
        "24 21 0:22 / /proc rw,nosuid,nodev,noexec,relatime shared:5 - proc proc rw\n";

    fn with(more: &str) -> Option<(u32, u32)> {
        plain_proc([ROOT, more].concat().as_bytes())
    }

    #[test]
    fn a_proc_that_hides_nothing_is_accepted() {
        assert_eq!(with(PROC), Some((0, 22)));
        let more = "40 24 0:35 / /proc/sys/fs/binfmt_misc rw,relatime shared:9 - autofs systemd-1 rw,fd=32\n";
        assert_eq!(with(&[PROC, more].concat()), Some((0, 22)));
        for options in ["rw,hidepid=off", "rw,hidepid=0", "ro", "rw,gid=4"] {
            let line = PROC.replace("proc proc rw", &format!("proc proc {options}"));
            assert_eq!(with(&line), Some((0, 22)), "{options}");
        }
    }

    #[test]
    fn a_proc_that_hides_something_is_refused() {
        for options in [
            "rw,hidepid=invisible",
            "rw,hidepid=1",
            "rw,gid=4,hidepid=ptraceable",
            "rw,subset=pid",
            "rw,new",
        ] {
            let line = PROC.replace("proc proc rw", &format!("proc proc {options}"));
            assert_eq!(with(&line), None, "{options}");
        }
        for (what, lines) in [
            ("none", String::new()),
            ("two", [PROC, PROC].concat()),
            ("something over it", [PROC, &PROC.replace("- proc proc", "- tmpfs tmpfs")].concat()),
            ("a part of it", PROC.replace("0:22 / /proc", "0:22 /sys /proc")),
            ("over a process", [PROC, &PROC.replace(" /proc ", " /proc/123 ")].concat()),
            ("over self", [PROC, &PROC.replace(" /proc ", " /proc/self/environ ")].concat()),
            ("cut", String::from("24 21 0:22 / /proc rw")),
            ("no device", PROC.replace("0:22", "x")),
        ] {
            assert_eq!(with(&lines), None, "{what}");
        }
    }

    #[test]
    fn the_beginning_of_a_table_identifies_it() {
        let of = |text: &str| First::of(text.as_bytes());
        assert!(of(ROOT).is_some());
        assert_eq!(of(PROC), of(&[PROC, ROOT].concat()));
        assert_ne!(of(PROC), of(&PROC.replace("24", "25")), "another mount");
        assert_ne!(of(PROC), of(&PROC.replace("/proc ", "/a/proc ")), "from another root");
        let deep = PROC.replace("/proc ", &format!("/{}/proc ", "d".repeat(FIRST)));
        assert!(of(&deep).is_none(), "the path is cut");
        assert!(of("").is_none() && of("24 21\n0:22 / /proc rw").is_none());
    }

    #[test]
    fn mounts_with_odd_names_are_refused_only_over_a_process() {
        let odd = b"50 21 0:40 / /mnt/\xff\xfe rw - tmpfs tmpfs rw\n";
        let all = |parts: &[&[u8]]| plain_proc(&parts.concat());
        assert_eq!(all(&[PROC.as_bytes(), odd]), Some((0, 22)));
        let over = b"50 24 0:40 / /proc/1\xff rw - tmpfs tmpfs rw\n";
        assert_eq!(all(&[PROC.as_bytes(), over]), None);
    }

    #[test]
    fn only_labels_without_rules_are_unconfined() {
        for free in [
            "",
            "unconfined",
            "unconfined\n",
            "unconfined_u:unconfined_r:unconfined_t:s0-s0:c0.c1023\0",
        ] {
            assert!(is_unconfined(free.as_bytes()), "{free:?}");
        }
        for bound in [
            "docker-default (enforce)\n",
            "unconfined (complain)",
            "user_u:user_r:user_t:s0",
            "kernel",
            "_",
            "a:b:container_t:s0",
            "unconfined_t",
            "x:unconfined",
        ] {
            assert!(!is_unconfined(bound.as_bytes()), "{bound:?}");
        }
    }

    #[test]
    fn callers_in_namespaces_or_under_seccomp_are_refused() {
        let status = |nspid: &str, nnp: &str, seccomp: &str| {
            format!("Name:\tNSpid:\t9\nNSpid:\t{nspid}\nNoNewPrivs:\t{nnp}\nSeccomp:\t{seccomp}\n")
        };
        let judged = |s: String| has_plain_status(s.as_bytes(), 7);
        assert_eq!(judged(status("7", "0", "0")), Ok(()));
        assert_eq!(judged(status("7\t1", "0", "0")), Err(Refusal::PidNamespace));
        assert_eq!(judged(status("8", "0", "0")), Err(Refusal::PidNamespace));
        assert_eq!(judged(status("7", "1", "0")), Err(Refusal::Confined));
        assert_eq!(judged(status("7", "0", "2")), Err(Refusal::Confined));
        assert_eq!(judged(String::from("NSpid:\t7\n")), Err(Refusal::Confined));
    }

    #[test]
    fn a_caller_like_the_service_is_accepted() {
        let own = Own::look().expect("tests run where /proc is plain");
        let mounts = std::fs::read("/proc/self/mountinfo").expect("it can be read");
        assert_eq!(plain_proc(&mounts), Some(own.proc));
        let mut me = Peer { pid: std::process::id(), uid: 0, pidfd: None, held: None };
        let sender = Some(me.pid as i32);
        let now = Instant::now();
        assert_eq!(
            own.judge(&mut me, sender, now),
            Err(Refusal::UnknownCaller),
            "it may have ended"
        );
        assert!(own.is_plain());
        // Tests run in threads. The threads were checked for this question, and not for a later
        // one.
        assert!(own.has_judged_threads(me.pid, now));
        assert!(!own.has_judged_threads(me.pid, now + Duration::from_secs(100)));
        assert!(!own.has_judged_threads(1, now));
    }
}
