//! Finds the sockets that threads wait for, and the processes at their other ends.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Instant;

use taskdiag_wire::{Entry, Fd, FdType, Groups, Socket, WaitKind};

use super::Look;
use super::files::{OpenFile, OpenFiles, Others};
use crate::files::{self, Files, Owner, Side};
use crate::why::wait::{How, NoHolder};
use crate::{Request, query_with};

/// How many sockets of a chain are followed. For each, the open files of all processes are read.
pub(super) const ROUNDS: usize = 4;
/// At most this many waits for sockets are looked up together.
const MOST: usize = 4096;

/// Address and port of both ends, and the network namespace.
type Connection = ([(IpAddr, u16); 2], u32);

/// The other end of a socket.
enum Other {
    /// The inode of a connected unix socket.
    Unix(u64),
    /// The connection as the other end has it, which may be on another machine.
    Tcp(Connection),
}

impl Look<'_> {
    /// Marks the waits for sockets that were found so far, from this one on, as not looked at.
    pub(super) fn leave_sockets(&mut self, from: usize) {
        for at in self.for_sockets.drain(from..) {
            self.waits.all[at].holder = Err(NoHolder::NotLookedAt);
        }
    }

    /// Looks up the waits for sockets that were found so far, and returns them.
    pub(super) fn sockets(&mut self) -> Vec<usize> {
        self.leave_sockets(self.for_sockets.len().min(MOST));
        let of_all = std::mem::take(&mut self.for_sockets);
        let mut open = Vec::new();
        for at in &of_all {
            match self.open_file(*at) {
                Ok(file) => open.push((*at, file)),
                Err(why) => self.waits.all[*at].holder = Err(why),
            }
        }
        if open.is_empty() {
            return of_all;
        }
        let has_time = Instant::now() < self.end;
        let request = Request::all(Groups::BASE | Groups::FD);
        let answer = has_time.then(|| query_with(&request, self.choice).ok()).flatten();
        let Some(files) = answer.as_ref().map(Files::new) else {
            let why = if has_time { NoHolder::NotKnown } else { NoHolder::NotLookedAt };
            for (at, _) in open {
                self.waits.all[at].holder = Err(why);
            }
            return of_all;
        };
        let of = |(at, file): &(usize, OpenFile)| (self.waits.all[*at].tgid, file.fd);
        let descriptors = OpenFiles::new(&files, open.iter().map(of));
        let mut ends = Vec::new();
        for (at, file) in open {
            let wait = &mut self.waits.all[at];
            let socket = descriptors.get(wait.tgid, &file).and_then(|(owner, entry)| {
                let is_socket = entry.raw.r#type == FdType::Socket as u32;
                let socket = owner.socket(file.fd).filter(|_| is_socket);
                Ok((owner, socket.ok_or(NoHolder::NotKnown)?))
            });
            let other = socket.map(|(owner, socket)| {
                wait.file = Some(name(owner, &socket));
                other(&socket, wait.kind)
            });
            ends.push((at, other));
        }
        let by_address = inodes(&files, &ends);
        let mut others = Others::new(&files);
        for (at, other) in ends {
            let wait = &self.waits.all[at];
            let is_send = wait.kind == Some(WaitKind::Send);
            let how = if is_send { How::Receiver } else { How::Sender };
            let found = other.and_then(|other| {
                let inode = match other.ok_or(NoHolder::NotKept)? {
                    Other::Unix(inode) => inode,
                    Other::Tcp(connection) => *by_address
                        .get(&connection)
                        .and_then(Option::as_ref)
                        .ok_or(NoHolder::NotKept)?,
                };
                others.of_socket(inode, how, wait.tgid)
            });
            self.waits.all[at].holder = self.settled(at, found);
        }
        of_all
    }

    /// Two threads that wait for data of each other are no deadlock: a receive may have a limit of
    /// time, which no file shows, and data may be on its way. So the other end of such a socket is
    /// taken for one of several things that can end the wait.
    pub(super) fn open_cycles_of_sockets(&mut self) {
        let mut is_changed = true;
        while std::mem::take(&mut is_changed) {
            for at in self.in_cycles() {
                if let Ok(holder) = &mut self.waits.all[at].holder {
                    let is_socket = matches!(holder.how, How::Sender | How::Receiver);
                    is_changed |= is_socket && std::mem::take(&mut holder.is_sure);
                }
            }
        }
    }
}

/// `TCP 127.0.0.1:80->127.0.0.1:5000 (ESTABLISHED)`, `unix /run/x`.
fn name(owner: &Owner<'_>, socket: &Entry<'_, Socket>) -> Vec<u8> {
    let family = i32::from(socket.raw.family);
    let protocol = match family {
        libc::AF_UNIX => String::from("unix"),
        libc::AF_NETLINK => String::from("netlink"),
        _ => files::protocol(socket).unwrap_or_else(|| String::from("?")),
    };
    let mut name = protocol.into_bytes();
    let path = socket.name().filter(|n| *n != 0).and_then(|n| owner.row.view.name(n));
    if let Some(path) = path {
        name.push(b' ');
        name.extend_from_slice(&path.data);
    }
    if files::is_inet(socket.raw) {
        name.push(b' ');
        files::write_inet(&mut name, socket);
    }
    name
}

/// The other end of a socket through which data goes both ways.
fn other(socket: &Entry<'_, Socket>, kind: Option<WaitKind>) -> Option<Other> {
    if !matches!(kind, Some(WaitKind::Receive | WaitKind::Send)) {
        return None;
    }
    if let Some(inode) = socket.peer_inode().filter(|i| *i != 0) {
        // Anybody may send to a datagram socket, whether or not it has a peer.
        let is_stream = socket.r#type() != Some(libc::SOCK_DGRAM as u16);
        return is_stream.then_some(Other::Unix(inode));
    }
    connection(socket).map(|([own, peer], netns)| Other::Tcp(([peer, own], netns)))
}

/// The connection of a TCP socket.
fn connection(socket: &Entry<'_, Socket>) -> Option<Connection> {
    let is_tcp = socket
        .protocol()
        .is_some_and(|p| matches!(i32::from(p), libc::IPPROTO_TCP | libc::IPPROTO_MPTCP));
    if !files::is_inet(socket.raw) || !is_tcp {
        return None;
    }
    let end = |side| {
        let (ip, port) = files::address(socket, side)?;
        (port != 0).then_some((ip.to_canonical(), port))
    };
    Some(([end(Side::Local)?, end(Side::Peer)?], socket.netns()?))
}

/// The inodes of the sockets with these connections. `None`: several sockets have the connection.
/// Two interfaces may have the same link-local addresses.
fn inodes(
    files: &Files<'_>,
    of: &[(usize, Result<Option<Other>, NoHolder>)],
) -> HashMap<Connection, Option<u64>> {
    let wanted = of.iter().filter_map(|(_, other)| match other {
        Ok(Some(Other::Tcp(connection))) => Some((*connection, Vec::new())),
        _ => None,
    });
    let mut found: HashMap<Connection, Vec<u64>> = wanted.collect();
    if found.is_empty() {
        return HashMap::new();
    }
    for owner in files.owners() {
        let of = |s: &Entry<'_, Socket>| connection(s).filter(|c| found.contains_key(c));
        let sockets = owner.sockets().iter().filter_map(|s| Some((s.raw.fd, of(s)?)));
        let sockets: HashMap<u32, Connection> = sockets.collect();
        if sockets.is_empty() {
            continue;
        }
        for fd in owner.table.iter().filter_map(|t| t.owner.list::<Fd>()).flatten() {
            let all = sockets.get(&fd.raw.fd).and_then(|c| found.get_mut(c));
            if let (Some(all), Some(inode)) = (all, fd.inode()) {
                all.extend(Some(inode).filter(|inode| all.len() < 2 && !all.contains(inode)));
            }
        }
    }
    let only = |all: Vec<u64>| if let [inode] = all[..] { Some(inode) } else { None };
    found.into_iter().map(|(connection, all)| (connection, only(all))).collect()
}
