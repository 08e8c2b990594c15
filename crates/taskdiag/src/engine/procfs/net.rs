//! Reads the traffic of the open sockets of a task, the group NET. Each descriptor costs one
//! readlinkat(), unless FD was read before, and each network namespace a few requests of
//! sock_diag(7). A socket that is in no list is queried itself, see `unlisted`.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustix::io::Errno;
use taskdiag_wire::{FdType, Group, Groups, Net, Reason, build};

use super::files::Digits;
use super::lists::{FileLists, List};
use super::parse::{self, Sock, Traffic};
use super::path::TaskDir;
use super::read::Reader;
use super::sockets::SocketsByInode;
use super::stop::Stop;
use super::unlisted;
use super::worker::Worker;
use crate::engine::room::LIST_LEAST;

macro_rules! bits {
    ($($member:literal)*) => { 0 $(| parse::bit(Net::MEMBERS, $member))* };
}

/// The inode of a socket, from the link of a descriptor.
fn socket_inode(link: &[u8]) -> Option<u64> {
    let link = parse::fd_link(link);
    link.inode.filter(|_| link.kind == Some(FdType::Socket))
}

impl Worker<'_> {
    pub(super) fn net(&mut self, at: TaskDir<'_>) -> Result<(), Stop> {
        let mut lists = std::mem::take(&mut self.files);
        let known = self.sockets_among(at, &lists);
        lists.clear();
        let before = self.out.len();
        let got = self.read_net(at, known, &mut lists);
        if got.is_ok() {
            self.put_runs(&lists.net, true);
            self.list_added(at, before, lists.net.0.len() > LIST_LEAST);
        }
        self.files = lists;
        got
    }

    /// The descriptors of sockets, and their inodes, if the list of files was just read.
    fn sockets_among(&self, at: TaskDir<'_>, lists: &FileLists) -> Option<Vec<(u32, Option<u64>)>> {
        if lists.of != Some((at.tgid, at.path.last_id())) {
            return None;
        }
        let List(files) = &lists.files;
        let sockets = files.iter().filter(|(_, f)| f.r#type == FdType::Socket as u32);
        Some(sockets.map(|(_, f)| (f.fd, Some(f.inode))).collect())
    }

    fn read_net(
        &mut self,
        mut at: TaskDir<'_>,
        known: Option<Vec<(u32, Option<u64>)>>,
        lists: &mut FileLists,
    ) -> Result<(), Stop> {
        let dir = match self.reader.open_dir(at.dir, at.path.file("fd")) {
            Ok(dir) => dir,
            Err(e) => return Err(self.meaning(at, e)),
        };
        self.reader.syscalls += 1; // close
        let fds = match known {
            Some(known) => known,
            None => {
                if let Err(e) = self.reader.numbers(dir.as_fd(), &mut lists.fds) {
                    return Err(self.meaning(at, e));
                }
                if lists.fds.is_empty() {
                    return self.has_files(at);
                }
                lists.fds.iter().map(|fd| (*fd, None)).collect()
            }
        };
        let room = self.list_room(at);
        let mut table: Option<Arc<SocketsByInode>> = None;
        for (fd, inode) in fds {
            let List(net) = &mut lists.net;
            if net.len() >= LIST_LEAST && net.len() * size_of::<Net>() >= room {
                self.out.missing(Group::Net, Reason::Truncated);
                break;
            }
            let inode = match inode {
                Some(inode) => Ok(Some(inode)),
                None => self.reader.link(dir.as_fd(), Digits::new().of(fd)).map(socket_inode),
            };
            let inode = match inode {
                Ok(inode) => inode,
                // Either the descriptor was closed since, or its path is too long.
                Err(Errno::NOENT | Errno::BADF | Errno::NAMETOOLONG) => None,
                Err(e) => return Err(self.meaning(at, e)),
            };
            let Some(inode) = inode else { continue };
            let sockets = match &table {
                Some(table) => table,
                None => table.insert(self.traffic_of(at)?),
            };
            let known = self.traffic(at, dir.as_fd(), fd, inode, sockets)?.unwrap_or_default();
            let entry = build!(Net { fd, inode, ..known.record });
            net.push((known.valid | bits!("fd" "inode"), entry));
        }
        Ok(())
    }

    /// The traffic of a socket: from the list of its task's namespace, from the list of another
    /// namespace, or from the socket itself.
    fn traffic(
        &mut self,
        at: TaskDir<'_>,
        dir: BorrowedFd<'_>,
        fd: u32,
        inode: u64,
        sockets: &SocketsByInode,
    ) -> Result<Option<Box<Traffic>>, Stop> {
        let elsewhere;
        let mut sock = sockets.get(&inode);
        if sock.is_none() {
            elsewhere = self.run.traffic.elsewhere(inode);
            sock = elsewhere.as_ref();
        }
        // A socket of multipath TCP may be listed as its first subflow.
        let is_itself = |s: &Sock, as_it_is: &Sock| s.record.protocol == as_it_is.record.protocol;
        let mut known = None;
        if let Some((sock, listed)) = sock.and_then(|s| Some((s, self.reader.listed(s, dir, fd)?)))
        {
            if is_itself(sock, &listed) {
                let mut counted = sock.net.clone().unwrap_or_default();
                counted.is_of(sock.record.family, sock.record.protocol);
                if !unlisted::counts_alone(sock) {
                    return Ok(Some(counted));
                }
                known = Some(counted);
            }
        }
        if !self.run.own_pids {
            return Ok(known);
        }
        let of = (at.tgid, at.path.last_id());
        let ask = |r: &mut Reader| unlisted::ask_traffic(of, fd, inode, &mut r.syscalls);
        Ok(self.risky(at, Groups::NET, ask)?.or(known))
    }

    /// The sockets in the network namespace of a task.
    fn traffic_of(&mut self, mut at: TaskDir<'_>) -> Result<Arc<SocketsByInode>, Stop> {
        let inode = |text: &[u8]| parse::ns_inode(text);
        let netns = self.reader.link(at.dir, at.path.file("ns/net")).ok().and_then(inode);
        let Some(netns) = netns else { return Ok(Arc::default()) };
        let (run, mut calls) = (self.run, 0);
        let mut there = None;
        if netns != run.own_netns {
            there = self.reader.open_read(at.dir, at.path.file("ns/net")).ok();
            if there.is_none() {
                return Ok(Arc::default());
            }
        }
        let table = run.traffic.table(netns, || there, &mut calls);
        self.reader.syscalls += calls;
        table.ok_or(Stop::Gap(Reason::Blocked))
    }
}
