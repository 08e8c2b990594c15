//! Reads open files, the group FD. Each descriptor costs one readlinkat(), one statx(), and one
//! openat(), read() and close() of its fdinfo, which is five calls.
//!
//! statx() does not ask the server of a file (AT_STATX_DONT_SYNC), and it does not mount anything.

use std::borrow::Cow;
use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{AtFlags, Statx, StatxFlags};
use rustix::io::Errno;
use taskdiag_wire::device::device;
use taskdiag_wire::{
    DELETED, Fd, FdDetail, FdType, Groups, ListEntry, Reason, Socket, TASK_EXITING, build,
};

use super::lists::{FileLists, List, NAME_PIECE};
use super::parse::{self, FdInfo, FdLink, Sock};
use super::path::TaskDir;
use super::read::{FileId, Reader};
use super::sockets::{Inhabitant, SocketsByInode};
use super::stop::Stop;
use super::unlisted::{self, TCP_CLOSE};
use super::worker::Worker;

/// The state of a listener.
const TCP_LISTEN: u16 = 10;
/// `MQUEUE_MAGIC` of linux/magic.h.
const MQUEUE_MAGIC: u64 = 0x1980_0202;
/// The size of every message queue (`FILENT_SIZE` of ipc/mqueue.c).
const MQUEUE_SIZE: u64 = 80;

macro_rules! bits {
    ($($member:literal)*) => { 0 $(| parse::bit(Fd::MEMBERS, $member))* };
}
/// The members that statx() provides.
const FROM_STAT: u32 = bits!("inode" "dev" "rdev" "mode" "size_bytes" "nlink");
/// The members that the link provides.
const FROM_LINK: u32 = bits!("fd" "type" "name");

/// The data read about one descriptor.
struct Raw<'t> {
    link: FdLink<'t>,
    /// Is the name known? A path longer than PATH_MAX is not shown.
    has_name: bool,
    stat: Option<Statx>,
    /// The type, if it is known.
    kind: Option<FdType>,
    deleted: bool,
    /// The length of the fdinfo text, which is in the buffer of the reader.
    info: Option<usize>,
}

impl<'t> Raw<'t> {
    fn read(
        r: &mut Reader,
        at: TaskDir<'_>,
        dir: BorrowedFd<'_>,
        infos: BorrowedFd<'_>,
        fd: u32,
        text: &'t mut Vec<u8>,
    ) -> Result<Raw<'t>, Errno> {
        let mut digits = Digits::new();
        let number = digits.of(fd);
        text.clear();
        let has_name = match r.link(dir, number) {
            Ok(name) => {
                text.extend_from_slice(name);
                true
            }
            // The path is too long for readlink(). The file is listed without its name.
            Err(Errno::NAMETOOLONG) => false,
            Err(e) => return Err(e),
        };
        let link = parse::fd_link(text);
        let stat = r.statx(dir, number).ok();
        let mut kind = link.kind.filter(|_| has_name);
        if let (None, Some(s)) = (kind, &stat) {
            kind = Some(FdType::of_mode(s.stx_mode.into()));
            if kind == Some(FdType::Reg) && r.is_mqueue(dir, number, s) {
                kind = Some(FdType::Mqueue);
            }
        }
        let deleted = link.name.ends_with(DELETED) && r.is_deleted(at, link.name, stat.as_ref());
        let info = match r.file(infos, number) {
            Ok(text) => Some(text.len()),
            Err(e @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM)) => return Err(e),
            Err(_) => None,
        };
        Ok(Raw { link, has_name, stat, kind, deleted, info })
    }

    fn kind(&self) -> FdType {
        self.kind.unwrap_or(FdType::Other)
    }

    /// Adds the descriptor to the lists. Returns the inode if it is a socket.
    fn put(&self, fd: u32, info: Option<FdInfo>, lists: &mut FileLists) -> Option<u64> {
        let mut f = build!(Fd { fd, r#type: self.kind() as u32, ..Fd::default() });
        let mut valid = FROM_LINK;
        if self.kind.is_none() {
            valid &= !bits!("type");
        }
        if !self.has_name {
            valid &= !bits!("name");
        }
        if let Some(s) = &self.stat {
            (f.inode, f.size_bytes, f.nlink) = (s.stx_ino, s.stx_size, s.stx_nlink);
            f.mode = s.stx_mode.into();
            f.dev = device(s.stx_dev_major, s.stx_dev_minor);
            f.rdev = device(s.stx_rdev_major, s.stx_rdev_minor);
            valid |= FROM_STAT;
        } else if let Some(inode) = self.link.inode {
            f.inode = inode;
            valid |= bits!("inode");
        }
        if let Some(info) = info {
            let mut set = |known: bool, bit| valid |= if known { bit } else { 0 };
            set(info.pos.is_some(), bits!("pos_bytes"));
            set(info.flags.is_some(), bits!("flags"));
            set(info.mnt_id.is_some(), bits!("mnt_id"));
            f.pos_bytes = info.pos.unwrap_or(0);
            f.flags = info.flags.unwrap_or(0);
            f.mnt_id = info.mnt_id.unwrap_or(0);
            lists.details.extend(info.details.into_iter().map(|d| build!(FdDetail { fd, ..d })));
        }
        lists.files.0.push((valid, f));
        let name = self.link.name;
        if !name.is_empty() {
            let end = name.len() - if self.deleted { DELETED.len() } else { 0 };
            lists.name(false, &name[..end], self.deleted);
        }
        self.link.inode.filter(|_| self.link.kind == Some(FdType::Socket))
    }
}

/// The name of a descriptor's link, without an allocation.
pub(super) struct Digits([u8; 12]);

impl Digits {
    pub(super) fn new() -> Digits {
        Digits([0; 12])
    }
    pub(super) fn of(&mut self, n: u32) -> &CStr {
        let mut at = self.0.len() - 1;
        self.0[at] = 0;
        let mut rest = n;
        loop {
            at -= 1;
            self.0[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        CStr::from_bytes_with_nul(&self.0[at..]).expect("digits and a NUL")
    }
}

impl Worker<'_> {
    pub(super) fn files(&mut self, at: TaskDir<'_>) -> Result<(), Stop> {
        let mut lists = std::mem::take(&mut self.files);
        lists.clear();
        let before = self.out.len();
        let got = self.read_files(at, &mut lists);
        if got.is_ok() {
            self.put_files(&mut lists);
            self.list_added(at, before, lists.count());
        } else {
            lists.of = None;
        }
        self.files = lists;
        got
    }

    fn read_files(&mut self, mut at: TaskDir<'_>, lists: &mut FileLists) -> Result<(), Stop> {
        let dir = match self.reader.open_dir(at.dir, at.path.file("fd")) {
            Ok(dir) => dir,
            Err(e) => return Err(self.meaning(at, e)),
        };
        let infos = match self.reader.open_dir(at.dir, at.path.file("fdinfo")) {
            Ok(dir) => dir,
            Err(e) => return Err(self.meaning(at, e)),
        };
        self.reader.syscalls += 2; // close
        if let Err(e) = self.reader.numbers(dir.as_fd(), &mut lists.fds) {
            return Err(self.meaning(at, e));
        }
        let mut table: Option<(u32, Arc<SocketsByInode>)> = None;
        let fds = std::mem::take(&mut lists.fds);
        let mut got = Ok(());
        let room = self.list_room(at);
        lists.of = Some((at.tgid, at.path.last_id()));
        for &fd in &fds {
            if lists.is_full(room) {
                self.out.missing(taskdiag_wire::Group::Fd, Reason::Truncated);
                lists.of = None;
                break;
            }
            if lists.text.len() > NAME_PIECE {
                self.name_files(lists);
                lists.text = Vec::new();
            }
            match self.file(at, dir.as_fd(), infos.as_fd(), fd, lists)? {
                Ok(None) => {}
                Ok(Some(inode)) => {
                    let (netns, sockets) = table.get_or_insert_with(|| self.sockets_of(at));
                    let listed = sockets.get(&inode).filter(|s| !has_lost_port(s));
                    let listed = listed.and_then(|s| self.reader.listed(s, dir.as_fd(), fd));
                    let (sock, netns) = match listed {
                        Some(sock) => (sock, Some(*netns)),
                        None => {
                            let (sock, netns) = self.unlisted(at, dir.as_fd(), fd, inode)?;
                            (Cow::Owned(sock), netns)
                        }
                    };
                    put_socket(fd, inode, netns, &sock, lists);
                }
                // The descriptor was closed since.
                Err(Errno::NOENT | Errno::BADF) => {}
                Err(e) => {
                    got = Err(self.meaning(at, e));
                    break;
                }
            }
        }
        if got.is_ok() && lists.files.0.is_empty() {
            got = self.has_files(at);
        }
        lists.fds = fds;
        got
    }

    /// Checks that an empty list belongs to a task without open files, and not to a task without a
    /// list.
    pub(super) fn has_files(&mut self, at: TaskDir<'_>) -> Result<(), Stop> {
        match self.stat_file(at) {
            Ok(s) if s.base.state == b'Z' || s.base.flags & TASK_EXITING != 0 => {
                Err(Stop::Gap(Reason::Absent))
            }
            Err(Stop::Gap(_)) | Ok(_) => Ok(()),
            Err(stop) => Err(stop),
        }
    }

    /// Reads one descriptor. Returns the inode if it is a socket.
    fn file(
        &mut self,
        at: TaskDir<'_>,
        dir: BorrowedFd<'_>,
        infos: BorrowedFd<'_>,
        fd: u32,
        lists: &mut FileLists,
    ) -> Result<Result<Option<u64>, Errno>, Stop> {
        let mut text = std::mem::take(&mut self.link);
        let got = self.risky(at, Groups::FD, |r| Raw::read(r, at, dir, infos, fd, &mut text))?;
        let socket = got.map(|raw| {
            let info = raw.info.map(|len| parse::fdinfo(self.reader.text(len), raw.kind()));
            raw.put(fd, info, lists)
        });
        self.link = text;
        Ok(socket)
    }

    /// Queries a socket that is in no list of its task's network namespace, or whose port the list
    /// lacks. Returns its answer, and its namespace if that is known.
    fn unlisted(
        &mut self,
        at: TaskDir<'_>,
        dir: BorrowedFd<'_>,
        fd: u32,
        inode: u64,
    ) -> Result<(Sock, Option<u32>), Stop> {
        let listed = self.run.sockets.elsewhere(inode).and_then(|(netns, sock)| {
            Some((netns, self.reader.listed(&sock, dir, fd)?.into_owned()))
        });
        let known = match listed {
            Some((netns, sock)) if !has_lost_port(&sock) => return Ok((sock, Some(netns))),
            Some((netns, mut sock)) => {
                sock.valid &= !parse::bit(Socket::MEMBERS, "local_port");
                (sock, Some(netns))
            }
            None => (self.reader.sock(dir, fd), None),
        };
        if !self.run.own_pids || !unlisted::is_for(&known.0) {
            return Ok(known);
        }
        // The call waits for an exec of the task.
        let of = (at.tgid, at.path.last_id());
        let asked =
            self.risky(at, Groups::FD, |r| unlisted::ask(of, fd, inode, &mut r.syscalls))?;
        Ok(asked.unwrap_or(known))
    }

    /// The network namespace of a task, and the sockets in it.
    fn sockets_of(&mut self, mut at: TaskDir<'_>) -> (u32, Arc<SocketsByInode>) {
        let inode = |text: &[u8]| parse::ns_inode(text);
        let netns = self.reader.link(at.dir, at.path.file("ns/net")).ok().and_then(inode);
        let Some(netns) = netns else { return (0, Arc::default()) };
        let own = self.run.own_netns;
        let mut calls = 0;
        let mut task = InNetns { reader: &mut self.reader, at };
        let table = self.run.sockets.table(netns, own, &mut task, &mut calls);
        self.reader.syscalls += calls;
        (netns, table)
    }

    /// Gives files the numbers of their names, and forgets the names.
    fn name_files(&mut self, lists: &mut FileLists) {
        for n in &lists.names {
            let text = &lists.text[n.start..n.end];
            let number =
                self.known.number(&self.run.names, text, self.name_most, n.deleted, &mut self.out);
            if n.of_socket {
                lists.sockets.0[n.at].1.name = number;
            } else {
                lists.files.0[n.at].1.name = number;
            }
        }
        lists.forget_names();
    }

    fn put_files(&mut self, lists: &mut FileLists) {
        self.name_files(lists);
        self.put_runs(&lists.files, true);
        self.put_runs(&lists.sockets, false);
        if !lists.details.is_empty() {
            self.out.put_list(FdDetail::ALL_VALID, &lists.details);
        }
    }

    /// Writes a list in pieces; a new piece begins when the set of known members changes.
    pub(super) fn put_runs<T: ListEntry>(&mut self, list: &List<T>, even_none: bool) {
        for run in list.0.chunk_by(|a, b| a.0 == b.0) {
            let entries: Vec<T> = run.iter().map(|e| e.1).collect();
            self.out.put_list(run[0].0, &entries);
        }
        if list.0.is_empty() && even_none {
            self.out.put_list::<T>(u32::MAX >> 1, &[]);
        }
    }
}

/// Whether a list has no port of a socket that may have one. When a connection ends, the kernel
/// gives its port back, and lists 0. getsockname(2) still has the port. Of such sockets, only those
/// of multipath TCP stay in a list.
fn has_lost_port(listed: &Sock) -> bool {
    let s = &listed.record;
    i32::from(s.protocol) == libc::IPPROTO_MPTCP && s.state == TCP_CLOSE && s.local_port == 0
}

/// A task, to enter its network namespace.
struct InNetns<'r, 'a> {
    reader: &'r mut Reader,
    at: TaskDir<'a>,
}

impl Inhabitant for InNetns<'_, '_> {
    fn netns(&mut self) -> Option<OwnedFd> {
        self.reader.open_read(self.at.dir, self.at.path.file("ns/net")).ok()
    }
    fn text(&mut self, file: &'static str) -> Vec<u8> {
        self.reader
            .long_file(self.at.dir, self.at.path.file(file))
            .map_or_else(|_| Vec::new(), <[u8]>::to_vec)
    }
}

fn put_socket(fd: u32, inode: u64, netns: Option<u32>, sock: &Sock, lists: &mut FileLists) {
    let known =
        |members: &[&str]| members.iter().map(|m| parse::bit(Socket::MEMBERS, m)).sum::<u32>();
    let s = build!(Socket { fd, inode, netns: netns.unwrap_or(0), ..sock.record });
    let mut valid = sock.valid | known(&["fd", "inode"]);
    if netns.is_some() {
        valid |= known(&["netns"]);
    }
    lists.sockets.0.push((valid, s));
    if let Some(name) = sock.name.as_deref() {
        lists.name(true, name, false);
    }
}

impl Reader {
    /// Calls statx() on the file that a path leads to. It returns the data that is known without
    /// asking a server, and the mount.
    pub(super) fn statx(&mut self, dir: BorrowedFd<'_>, path: &CStr) -> Result<Statx, Errno> {
        self.syscalls += 1;
        let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
        rustix::fs::statx(dir, path, flags, StatxFlags::BASIC_STATS | StatxFlags::MNT_ID)
    }

    /// The record of a socket in a list, or `None` if the list has another socket for it: if a
    /// multipath TCP socket is in no list, its first subflow is in the list of TCP, with the inode
    /// of the socket. It is in no list of its own if the kernel has no such list, or while it is
    /// bound but neither listens nor is connected. The addresses and state of the two may differ,
    /// but the queues of a listener are those of its first subflow.
    pub(super) fn listed<'s>(
        &mut self,
        listed: &'s Sock,
        dir: BorrowedFd<'_>,
        fd: u32,
    ) -> Option<Cow<'s, Sock>> {
        let bit = parse::bit(Socket::MEMBERS, "protocol");
        let s = &listed.record;
        let is_known = listed.valid & bit != 0;
        if i32::from(s.protocol) != libc::IPPROTO_TCP || is_known && s.state != TCP_CLOSE {
            return Some(Cow::Borrowed(listed));
        }
        let is_subflow = i32::from(self.sock(dir, fd).record.protocol) == libc::IPPROTO_MPTCP;
        if is_subflow && s.state != TCP_LISTEN {
            return None;
        }
        if is_known {
            return Some(Cow::Borrowed(listed));
        }
        let mut sock = listed.clone();
        sock.valid |= bit;
        if is_subflow {
            sock.record.protocol = libc::IPPROTO_MPTCP as u16;
        }
        Some(Cow::Owned(sock))
    }

    /// Facts about a socket that is in no list, as far as the name of its protocol reveals them.
    fn sock(&mut self, dir: BorrowedFd<'_>, fd: u32) -> Sock {
        let path = format!("/proc/self/fd/{}/{fd}", dir.as_raw_fd());
        let mut name = [0u8; 64];
        self.syscalls += 1;
        match rustix::fs::getxattr(path, c"system.sockprotoname", &mut name[..]) {
            Ok(n) => parse::sock_of_protocol(&name[..n]),
            Err(_) => Sock::default(),
        }
    }

    /// Message queues look like regular files of one size, on a file system without a device.
    fn is_mqueue(&mut self, dir: BorrowedFd<'_>, path: &CStr, s: &Statx) -> bool {
        if s.stx_size != MQUEUE_SIZE || s.stx_dev_major != 0 {
            return false;
        }
        let Ok(file) = self.open_path(dir, path) else { return false };
        self.syscalls += 2; // fstatfs, close
        rustix::fs::fstatfs(file).is_ok_and(|fs| fs.f_type as u64 == MQUEUE_MAGIC)
    }

    /// Whether the mark of a deleted file was written by the kernel and is not part of the name.
    fn is_deleted(&mut self, at: TaskDir<'_>, text: &[u8], stat: Option<&Statx>) -> bool {
        let Some(s) = stat.filter(|s| s.stx_nlink > 0) else { return true };
        // The file has another name (a hard link), or its name ends in the mark. No path leads to a
        // file of a mount that is detached, so there a name with the mark counts as deleted.
        !self.leads_to(at, text, FileId::of(s))
    }

    /// Whether a path leads to this file. The kernel gives the path from our root, or from the root
    /// of another mount namespace.
    pub(super) fn leads_to(&mut self, mut at: TaskDir<'_>, path: &[u8], file: FileId) -> bool {
        self.id_of_path(path) == Ok(file)
            || self.id_below(at.dir, at.path.file("root"), path) == Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use taskdiag_wire::Entry;

    #[test]
    fn digits_are_those_of_the_number() {
        let mut d = Digits::new();
        for n in [0, 9, 10, 16384, u32::MAX] {
            assert_eq!(d.of(n).to_str(), Ok(n.to_string().as_str()));
        }
    }

    #[test]
    fn all_members_have_a_source() {
        let other = bits!("pos_bytes" "flags" "mnt_id");
        assert_eq!(FROM_STAT | FROM_LINK | other, Fd::ALL_VALID);
        let e = Entry { valid: FROM_LINK, raw: &Fd::default() };
        assert_eq!((e.fd(), e.mode()), (Some(0), None));
    }
}
