//! Sockets by inode, from sock_diag(7): all of a network namespace with a few requests, the first
//! time that one of its sockets is met. The readers of an answer share the tables.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use super::parse::{self, Sock};

/// The sockets of a network namespace.
pub(super) type Table = HashMap<u64, Sock>;

/// The sockets of the network namespaces that were looked at.
#[derive(Debug, Default)]
pub(super) struct Sockets {
    tables: Mutex<HashMap<u32, Arc<Table>>>,
}

impl Sockets {
    /// The sockets of namespace `netns`. `enter` opens it, where it is not ours (`own`). Counts
    /// system calls. What cannot be known is not in the table.
    pub(super) fn table(
        &self,
        netns: u32,
        own: u32,
        enter: impl FnOnce() -> Option<OwnedFd>,
        calls: &mut u64,
    ) -> Arc<Table> {
        // One reader asks, the others wait: they need the same.
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || {
            if netns == own {
                return dump(calls);
            }
            let Some(ns) = enter() else { return Table::new() };
            dump_elsewhere(&ns, calls)
        };
        Arc::clone(tables.entry(netns).or_insert_with(|| Arc::new(new())))
    }
}

/// Ask in another namespace, by a thread that goes there and ends.
fn dump_elsewhere(ns: &OwnedFd, calls: &mut u64) -> Table {
    thread::scope(|scope| {
        let there = || {
            let mut calls = 1;
            // SAFETY: takes a descriptor and a number; changes this thread only.
            if unsafe { libc::setns(ns.as_raw_fd(), libc::CLONE_NEWNET) } != 0 {
                return (Table::new(), calls);
            }
            (dump(&mut calls), calls)
        };
        let thread = thread::Builder::new().spawn_scoped(scope, there);
        let (table, n) = thread.ok().and_then(|t| t.join().ok()).unwrap_or_default();
        *calls += n;
        table
    })
}

/// `NETLINK_SOCK_DIAG`, `SOCK_DIAG_BY_FAMILY` of linux/sock_diag.h.
const NETLINK_SOCK_DIAG: i32 = 4;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// All states but TIME_WAIT and those of requests, which have no inode.
const STATES: u32 = !(1 << 6 | 1 << 3 | 1 << 12);
/// UDIAG_SHOW_NAME, UDIAG_SHOW_PEER, UDIAG_SHOW_RQLEN.
const UNIX_SHOW: u32 = 0x1 | 0x4 | 0x10;
/// PACKET_SHOW_INFO.
const PACKET_SHOW: u32 = 0x1;

fn dump(calls: &mut u64) -> Table {
    let mut table = Table::new();
    *calls += 2; // socket, close
    let Ok(socket) = open() else { return table };
    let mut add = |s: Option<Sock>| {
        if let Some(s) = s.filter(|s| s.record.inode != 0) {
            table.insert(s.record.inode, s);
        }
    };
    // A family or protocol that the kernel does not have is an error, and has no sockets.
    for protocol in [libc::IPPROTO_TCP, libc::IPPROTO_UDP, libc::IPPROTO_RAW] {
        for family in [libc::AF_INET, libc::AF_INET6] {
            // struct inet_diag_req_v2
            let mut req = [0u8; 56];
            (req[0], req[1]) = (family as u8, protocol as u8);
            req[4..8].copy_from_slice(&STATES.to_ne_bytes());
            let _ = ask(&socket, &req, calls, |b| add(parse::inet_diag(b, protocol as u8)));
        }
    }
    // struct unix_diag_req
    let mut req = [0u8; 24];
    req[0] = libc::AF_UNIX as u8;
    req[4..8].copy_from_slice(&u32::MAX.to_ne_bytes());
    req[12..16].copy_from_slice(&UNIX_SHOW.to_ne_bytes());
    let _ = ask(&socket, &req, calls, |b| add(parse::unix_diag(b)));
    // struct netlink_diag_req, of all protocols
    let mut req = [0u8; 20];
    (req[0], req[1]) = (libc::AF_NETLINK as u8, 255);
    let _ = ask(&socket, &req, calls, |b| add(parse::netlink_diag(b)));
    // struct packet_diag_req
    let mut req = [0u8; 20];
    req[0] = libc::AF_PACKET as u8;
    req[8..12].copy_from_slice(&PACKET_SHOW.to_ne_bytes());
    let _ = ask(&socket, &req, calls, |b| add(parse::packet_diag(b)));
    table
}

fn open() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: takes numbers, gives a new descriptor that nobody else has.
    unsafe {
        let fd = libc::socket(libc::AF_NETLINK, kind, NETLINK_SOCK_DIAG);
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd)) }
    }
}

fn ask(
    socket: &OwnedFd,
    req: &[u8],
    calls: &mut u64,
    mut each: impl FnMut(&[u8]),
) -> io::Result<()> {
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16;
    let mut message = ((16 + req.len()) as u32).to_ne_bytes().to_vec();
    message.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    message.extend([0; 8]);
    message.extend(req);
    *calls += 1;
    // SAFETY: the bytes are valid for the call.
    let sent = unsafe { libc::send(socket.as_raw_fd(), message.as_ptr().cast(), message.len(), 0) };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut buf = vec![0u8; 64 << 10];
    loop {
        *calls += 1;
        // SAFETY: the buffer is valid for the call.
        let n = unsafe { libc::recv(socket.as_raw_fd(), buf.as_mut_ptr().cast(), buf.len(), 0) };
        if n < 0 {
            match io::Error::last_os_error() {
                e if e.kind() == io::ErrorKind::Interrupted => continue,
                e => return Err(e),
            }
        }
        let mut any = false;
        for (kind, payload) in parse::nl_messages(&buf[..n as usize]) {
            any = true;
            match i32::from(kind) {
                libc::NLMSG_DONE => return Ok(()),
                libc::NLMSG_ERROR => return Err(io::Error::other("refused")),
                _ => each(payload),
            }
        }
        if !any {
            return Err(io::Error::other("not netlink"));
        }
    }
}
