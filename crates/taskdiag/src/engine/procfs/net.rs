//! Reads what has gone over the open sockets of a task, the group NET. Each descriptor costs one
//! readlinkat(), and each network namespace a few requests of sock_diag(7). A socket that is in no
//! list is queried itself, see `unlisted`.

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

impl Worker<'_> {
    pub(super) fn net(&mut self, at: TaskDir<'_>) -> Result<(), Stop> {
        let mut lists = std::mem::take(&mut self.files);
        lists.clear();
        let before = self.out.len();
        let got = self.read_net(at, &mut lists);
        if got.is_ok() {
            self.put_runs(&lists.net, true);
            self.list_added(at, before, lists.net.0.len() > LIST_LEAST);
        }
        self.files = lists;
        got
    }

    fn read_net(&mut self, mut at: TaskDir<'_>, lists: &mut FileLists) -> Result<(), Stop> {
        let dir = match self.reader.open_dir(at.dir, at.path.file("fd")) {
            Ok(dir) => dir,
            Err(e) => return Err(self.meaning(at, e)),
        };
        self.reader.syscalls += 1; // close
        if let Err(e) = self.reader.numbers(dir.as_fd(), &mut lists.fds) {
            return Err(self.meaning(at, e));
        }
        if lists.fds.is_empty() {
            return self.has_files(at);
        }
        let room = self.list_room(at);
        let mut table: Option<Arc<SocketsByInode>> = None;
        for &fd in &lists.fds {
            let List(net) = &mut lists.net;
            if net.len() >= LIST_LEAST && net.len() * size_of::<Net>() >= room {
                self.out.missing(Group::Net, Reason::Truncated);
                break;
            }
            let inode = match self.reader.link(dir.as_fd(), Digits::new().of(fd)) {
                Ok(text) => {
                    let link = parse::fd_link(text);
                    link.inode.filter(|_| link.kind == Some(FdType::Socket))
                }
                // Either it was closed since, or it is a long path.
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

    /// What has gone over a socket: from the list of its task's namespace, from that of another
    /// one, or from the socket itself.
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
