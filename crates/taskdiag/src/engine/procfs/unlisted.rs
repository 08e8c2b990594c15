//! Queries sockets that are in no list of their network namespace. TCP, UDP and netlink do not list
//! a socket that has no address yet. A socket may also be missing because it belongs to another
//! namespace than its task, or is newer than the list. So the socket itself is queried, through a
//! descriptor that pidfd_getfd(2) copies for a moment. This works if the caller may trace the task.

use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use taskdiag_wire::{Socket, build};

use super::parse::{self, Sock, Traffic};
use crate::pidfd::PIDFD_THREAD;

/// `SIOCGSKNS` of linux/sockios.h: the network namespace of a socket.
const SIOCGSKNS: libc::Ioctl = 0x894c;
macro_rules! bits {
    ($($member:literal)*) => { 0 $(| parse::bit(Socket::MEMBERS, $member))* };
}
const KNOWN: u32 = bits!("family" "type" "protocol" "state");
const ADDRESSES: u32 = bits!("local_addr" "local_port" "peer_addr" "peer_port");
const PORTID: u32 = bits!("portid");
const QUEUES: u32 = bits!("recv_queue_bytes" "send_queue_bytes");

/// `SO_MEMINFO` of asm-generic/socket.h, which the older C libraries lack.
const SO_MEMINFO: i32 = 55;
const TCP_ESTABLISHED: u16 = 1;
const TCP_LISTEN: i32 = 10;
/// The state of a socket that is not connected. Other protocols use it, too.
pub(super) const TCP_CLOSE: u16 = 7;

/// Is a socket of this kind queried? For other kinds, holding a copy has side effects, or the
/// socket has no information.
pub(super) fn is_for(sock: &Sock) -> bool {
    matches!(i32::from(sock.record.family), libc::AF_INET | libc::AF_INET6 | libc::AF_NETLINK)
}

/// Can the counters of this socket only be had from the socket itself? A TCP socket that is bound
/// and not connected is listed without `struct tcp_info` since Linux 6.8, see
/// inet_diag_dump_icsk().
pub(super) fn counts_alone(sock: &Sock) -> bool {
    let s = &sock.record;
    i32::from(s.protocol) == libc::IPPROTO_TCP && s.state == TCP_CLOSE
}

/// The task itself. It may have files of its own, or be a thread that still runs after the first
/// thread of its process has ended. Kernels before 6.9 know processes only, which means their first
/// threads.
fn pidfd((tgid, tid): (u32, Option<u32>), calls: &mut u64) -> Option<OwnedFd> {
    let mut open = |id: u32, flags: i32| {
        owned(calls, || {
            // SAFETY: takes numbers, gives a new descriptor that nobody else has.
            unsafe { libc::syscall(libc::SYS_pidfd_open, id, flags) }
        })
    };
    let thread = tid.filter(|tid| *tid != tgid);
    thread.and_then(|tid| open(tid, PIDFD_THREAD)).or_else(|| open(tgid, 0))
}

/// A copy of the descriptor of a socket of the process `of.0` or of its thread `of.1`. `None` if it
/// may not be copied.
fn copy(of: (u32, Option<u32>), fd: u32, inode: u64, calls: &mut u64) -> Option<OwnedFd> {
    let pidfd = pidfd(of, calls)?;
    let socket = owned(calls, || {
        // SAFETY: as above.
        unsafe { libc::syscall(libc::SYS_pidfd_getfd, pidfd.as_raw_fd(), fd, 0) }
    })?;
    *calls += 3; // fstat, and close of both
    // The descriptor may have been closed, or may belong to a thread with files of its own.
    (rustix::fs::fstat(&socket).ok()?.st_ino == inode).then_some(socket)
}

/// The traffic of a socket, found like the properties in [`ask`]. `None` if it may not be queried.
pub(super) fn ask_traffic(
    of: (u32, Option<u32>),
    fd: u32,
    inode: u64,
    calls: &mut u64,
) -> Option<Box<Traffic>> {
    const SOL_MPTCP: i32 = 284;
    const MPTCP_INFO: i32 = 1;
    let socket = copy(of, fd, inode, calls)?;
    *calls += 6;
    let mut net = Traffic::default();
    let mut room = [0u8; 256];
    let protocol = number(&socket, libc::SOL_SOCKET, libc::SO_PROTOCOL)?;
    let is_stream = number(&socket, libc::SOL_SOCKET, libc::SO_TYPE)? == libc::SOCK_STREAM;
    let info = match protocol {
        libc::IPPROTO_TCP if is_stream => (libc::IPPROTO_TCP, libc::TCP_INFO),
        libc::IPPROTO_MPTCP => (SOL_MPTCP, MPTCP_INFO),
        _ => (-1, -1),
    };
    if let Some(info) = value(&socket, info, &mut room) {
        net.info(protocol as u16, info);
        let is_listener = info.first().is_some_and(|state| i32::from(*state) == TCP_LISTEN);
        if protocol == libc::IPPROTO_TCP && !is_listener {
            let name = value(&socket, (libc::IPPROTO_TCP, libc::TCP_CONGESTION), &mut room);
            name.into_iter().for_each(|name| net.congestion(name));
        }
    }
    let memory = value(&socket, (libc::SOL_SOCKET, SO_MEMINFO), &mut room);
    memory.into_iter().for_each(|numbers| net.memory(numbers));
    net.is_of(number(&socket, libc::SOL_SOCKET, libc::SO_DOMAIN)? as u16, protocol as u16);
    net.known()
}

/// The value of a socket option, as far as there is room.
fn value<'r>(
    socket: &OwnedFd,
    (level, name): (i32, i32),
    room: &'r mut [u8; 256],
) -> Option<&'r [u8]> {
    let mut len = room.len() as libc::socklen_t;
    // SAFETY: there is room for the size that is given.
    let r = unsafe {
        let to = room.as_mut_ptr().cast();
        libc::getsockopt(socket.as_raw_fd(), level, name, to, &raw mut len)
    };
    room.get(..len as usize).filter(|_| r == 0)
}

/// The properties of a socket of the process `of.0` or of its thread `of.1`, and its network
/// namespace. `None` if it may not be queried.
pub(super) fn ask(
    of: (u32, Option<u32>),
    fd: u32,
    inode: u64,
    calls: &mut u64,
) -> Option<(Sock, Option<u32>)> {
    let socket = copy(of, fd, inode, calls)?;
    let mut option = |level, name| {
        *calls += 1;
        number(&socket, level, name)
    };
    let family = option(libc::SOL_SOCKET, libc::SO_DOMAIN)?;
    let kind = option(libc::SOL_SOCKET, libc::SO_TYPE)?;
    let protocol = option(libc::SOL_SOCKET, libc::SO_PROTOCOL)?;
    // The first byte of struct tcp_info.
    let tcp = matches!(protocol, libc::IPPROTO_TCP | libc::IPPROTO_MPTCP);
    let is_inet = matches!(family, libc::AF_INET | libc::AF_INET6);
    let state = (tcp && is_inet).then(|| option(libc::IPPROTO_TCP, libc::TCP_INFO)).flatten();
    let ifindex = is_inet.then(|| option(libc::SOL_SOCKET, libc::SO_BINDTOIFINDEX)).flatten();
    *calls += 4; // names, queues, and the namespace
    let own = address(&socket, libc::getsockname)?;
    let peer = address(&socket, libc::getpeername);
    // A socket of netlink says that its peer is the kernel, also where it is not connected.
    let connected = peer.is_some() && is_inet;
    let unconnected = if connected { TCP_ESTABLISHED } else { TCP_CLOSE };
    // A listener counts connections, not bytes.
    let is_listener = state.is_some_and(|s| s & 0xff == TCP_LISTEN);
    let mut s = Sock::default();
    s.record = build!(Socket {
        inode,
        family: family as u16,
        r#type: kind as u16,
        protocol: protocol as u16,
        state: state.map_or(unconnected, |s| s as u16 & 0xff),
        ..Socket::default()
    });
    s.valid = KNOWN;
    // The kernel reports the state of the first subflow only. The connection may be in another
    // state.
    let of_connection = connected || s.record.state == TCP_ESTABLISHED;
    if protocol == libc::IPPROTO_MPTCP && of_connection && !is_listener {
        s.valid &= !bits!("state");
    }
    if is_inet {
        (s.record.local_addr, s.record.local_port) = inet(&own)?;
        (s.record.peer_addr, s.record.peer_port) = peer.as_ref().and_then(inet).unwrap_or_default();
        s.valid |= ADDRESSES;
    } else if let Some(id) = own.get(4..8).filter(|_| family == libc::AF_NETLINK) {
        s.record.portid = u32::from_ne_bytes(id.try_into().expect("4 bytes"));
        s.valid |= PORTID;
    }
    if let Some(index) = ifindex {
        s.record.ifindex = index as u32;
        s.valid |= bits!("ifindex");
    }
    if let Some((received, sent)) = queues(&socket, protocol).filter(|_| !is_listener) {
        s.record.recv_queue_bytes = received.into();
        s.record.send_queue_bytes = sent.into();
        s.valid |= QUEUES;
    }
    Some((s, netns(&socket, calls)))
}

fn owned(calls: &mut u64, call: impl FnOnce() -> libc::c_long) -> Option<OwnedFd> {
    *calls += 1;
    let fd = i32::try_from(call()).ok().filter(|fd| *fd >= 0)?;
    // SAFETY: the call has just created it for us.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The first bytes of a socket option, as a number.
fn number(socket: &OwnedFd, level: i32, name: i32) -> Option<i32> {
    let mut value = 0i32;
    let mut len = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the value has the size that is given.
    let r = unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, name, (&raw mut value).cast(), &raw mut len)
    };
    (r == 0).then_some(value)
}

type Call = unsafe extern "C" fn(i32, *mut libc::sockaddr, *mut libc::socklen_t) -> libc::c_int;

/// An address of the socket, as bytes.
fn address(socket: &OwnedFd, call: Call) -> Option<[u8; 28]> {
    let mut bytes = [0u8; 28];
    let mut len = bytes.len() as libc::socklen_t;
    // SAFETY: there is room for the size that is given.
    let r = unsafe { call(socket.as_raw_fd(), bytes.as_mut_ptr().cast(), &raw mut len) };
    (r == 0).then_some(bytes)
}

/// Address and port of a sockaddr_in or sockaddr_in6.
fn inet(bytes: &[u8; 28]) -> Option<([u8; 16], u16)> {
    let mut addr = [0; 16];
    match i32::from(u16::from_ne_bytes([bytes[0], bytes[1]])) {
        libc::AF_INET => addr[..4].copy_from_slice(&bytes[4..8]),
        libc::AF_INET6 => addr.copy_from_slice(&bytes[8..24]),
        _ => return None,
    }
    Some((addr, u16::from_be_bytes([bytes[2], bytes[3]])))
}

/// The bytes that wait to be read, and the bytes that wait to be sent, as counted by sock_diag(7).
fn queues(socket: &OwnedFd, protocol: i32) -> Option<(u32, u32)> {
    if protocol == libc::IPPROTO_TCP {
        let count = |request| {
            let mut n: libc::c_int = 0;
            // SAFETY: the call writes a number, for which there is room.
            let r = unsafe { libc::ioctl(socket.as_raw_fd(), request, &raw mut n) };
            (r == 0).then_some(n as u32)
        };
        return Some((count(libc::FIONREAD)?, count(libc::TIOCOUTQ)?));
    }
    // SK_MEMINFO_RMEM_ALLOC and SK_MEMINFO_WMEM_ALLOC of linux/sock_diag.h are the first and the
    // third.
    let mut memory = [0u32; 9];
    let mut len = size_of_val(&memory) as libc::socklen_t;
    // SAFETY: there is room for the size that is given.
    let r = unsafe {
        let to = memory.as_mut_ptr().cast();
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, SO_MEMINFO, to, &raw mut len)
    };
    (r == 0 && len >= 12).then_some((memory[0], memory[2]))
}

/// The network namespace of the socket. Only administrators of that namespace get it.
fn netns(socket: &OwnedFd, calls: &mut u64) -> Option<u32> {
    let ns = owned(calls, || {
        // SAFETY: takes numbers, gives a new descriptor that nobody else has.
        i64::from(unsafe { libc::ioctl(socket.as_raw_fd(), SIOCGSKNS) })
    })?;
    *calls += 2; // fstat, close
    u32::try_from(rustix::fs::fstat(ns).ok()?.st_ino).ok()
}
