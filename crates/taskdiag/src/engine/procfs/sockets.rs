//! Finds sockets by inode with sock_diag(7). A few requests return all sockets of a network
//! namespace; they are made at its first socket. The readers of an answer share the tables. Parts
//! of sock_diag are kernel modules that may be missing; then /proc/PID/net is read instead.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::net::Ipv6Addr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use taskdiag_wire::Socket;

use super::handover::is_running;
use super::parse::{self, Sock};
use super::unlisted::TCP_CLOSE;

/// The sockets of a network namespace, by inode.
pub(super) type SocketsByInode = HashMap<u64, Sock>;

/// The sockets of the network namespaces that were looked at.
#[derive(Debug, Default)]
pub(super) struct Sockets {
    tables: Mutex<HashMap<u32, Arc<SocketsByInode>>>,
}

/// A task that is in the namespace.
pub(super) trait Inhabitant {
    /// The network namespace of the task, to enter it.
    fn netns(&mut self) -> Option<OwnedFd>;
    /// A file of the task's directory in /proc. It is empty if it cannot be read.
    fn text(&mut self, file: &'static str) -> Vec<u8>;
}

impl Sockets {
    /// The sockets of namespace `netns`. `task` is in that namespace, and `own` is the number of
    /// ours. System calls are counted in `calls`. A socket that cannot be known is not in the
    /// table.
    pub(super) fn table(
        &self,
        netns: u32,
        own: u32,
        task: &mut impl Inhabitant,
        calls: &mut u64,
    ) -> Arc<SocketsByInode> {
        // One reader asks while the others wait for the same table.
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        let mut new = || {
            let (mut table, refused, lists_mptcp) = if netns == own {
                dump(Detail::Addresses, calls)
            } else {
                task.netns().map_or_else(nothing, |ns| dump_elsewhere(&ns, calls))
            };
            for file in &refused {
                for s in parse::net_text(file, &task.text(file)) {
                    add(&mut table, s);
                }
            }
            if refused.iter().any(|file| file.ends_with('6')) {
                find_interfaces(&mut table, || task.text("net/if_inet6"));
            }
            if !lists_mptcp && has_mptcp() {
                forget_protocols(&mut table);
            }
            table
        };
        Arc::clone(tables.entry(netns).or_insert_with(|| Arc::new(new())))
    }

    /// A socket of another network namespace that was looked at, and that namespace. A thread in a
    /// separate namespace has the sockets of its process.
    pub(super) fn elsewhere(&self, inode: u64) -> Option<(u32, Sock)> {
        let tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        tables.iter().find_map(|(netns, table)| Some((*netns, table.get(&inode)?.clone())))
    }
}

/// The traffic of the sockets of the network namespaces that were looked at.
///
/// To report traffic, the kernel waits for the lock of each TCP socket. A process can hold the lock
/// as long as it wants, by sending data from memory that a file system or another process has to
/// provide. So each table is read by a separate thread, which is abandoned if it waits for such a
/// socket.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    tables: Mutex<HashMap<u32, Arc<Pending>>>,
}

/// A table that a thread reads.
#[derive(Debug, Default)]
struct Pending {
    table: Mutex<Option<Arc<SocketsByInode>>>,
    ready: Condvar,
    /// The thread that reads it.
    tid: AtomicI32,
    /// Whether that was found waiting for too long.
    is_stuck: AtomicBool,
}

/// The interval of looks at a thread that reads, and how often in a row it must be found waiting.
const LOOK: Duration = Duration::from_millis(20);
const LOOKS: u32 = 10;

impl Traffic {
    /// The sockets of namespace `netns`, which `open` gives if it is not ours. `None`: the kernel
    /// waits for a socket of it.
    pub(super) fn table(
        &self,
        netns: u32,
        open: impl FnOnce() -> Option<OwnedFd>,
        calls: &mut u64,
    ) -> Option<Arc<SocketsByInode>> {
        let (pending, is_new) = {
            let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
            let is_new = !tables.contains_key(&netns);
            (Arc::clone(tables.entry(netns).or_default()), is_new)
        };
        if is_new {
            let (to, ns) = (Arc::clone(&pending), open());
            let read = move || to.read(ns.as_ref());
            *calls += 30; // thread, setns, socket, requests
            thread::Builder::new().name(String::from("sock_diag")).spawn(read).ok()?;
        }
        pending.wait()
    }
    /// A socket of a namespace that was looked at.
    pub(super) fn elsewhere(&self, inode: u64) -> Option<Sock> {
        let tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        tables.values().find_map(|p| p.known()?.get(&inode).cloned())
    }
}

impl Pending {
    fn known(&self) -> Option<Arc<SocketsByInode>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
    fn read(&self, ns: Option<&OwnedFd>) {
        // SAFETY: takes no arguments, and cannot fail.
        let tid = unsafe { libc::syscall(libc::SYS_gettid) };
        self.tid.store(tid as i32, Ordering::Relaxed);
        let is_there = ns.is_none_or(|ns| {
            // SAFETY: takes a descriptor and a number; changes this thread only.
            unsafe { libc::setns(ns.as_raw_fd(), libc::CLONE_NEWNET) == 0 }
        });
        let (mut table, _, lists_mptcp) =
            if is_there { dump(Detail::Traffic, &mut 0) } else { nothing() };
        if !lists_mptcp && has_mptcp() {
            forget_protocols(&mut table);
        }
        *self.table.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(table));
        self.ready.notify_all();
    }
    fn wait(&self) -> Option<Arc<SocketsByInode>> {
        let mut looks = 0;
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        while table.is_none() && !self.is_stuck.load(Ordering::Relaxed) {
            (table, _) =
                self.ready.wait_timeout(table, LOOK).unwrap_or_else(PoisonError::into_inner);
            let tid = self.tid.load(Ordering::Relaxed);
            looks = if tid == 0 || is_running(tid) { 0 } else { looks + 1 };
            if looks >= LOOKS {
                self.is_stuck.store(true, Ordering::Relaxed);
            }
        }
        table.clone()
    }
}

/// The sockets, the files in /proc/net for kinds that sock_diag does not list, and whether it lists
/// multipath TCP.
type Dumped = (SocketsByInode, Vec<&'static str>, bool);

/// The result if sock_diag cannot be used.
fn nothing() -> Dumped {
    (SocketsByInode::new(), FILES.into_iter().flatten().collect(), false)
}

/// Whether the kernel has multipath TCP. The code that lists its sockets is in a module, which may
/// be missing.
fn has_mptcp() -> bool {
    std::path::Path::new("/proc/sys/net/mptcp").exists()
}

/// Without a list of multipath TCP, its subflows are in that of TCP with the inode of their socket,
/// and only the socket itself says which protocol it speaks.
fn forget_protocols(table: &mut SocketsByInode) {
    for s in table.values_mut().filter(|s| i32::from(s.record.protocol) == libc::IPPROTO_TCP) {
        s.valid &= !parse::bit(Socket::MEMBERS, "protocol");
    }
}

/// The files of sockets do not have the interface of a link-local address. A socket can only have
/// such an address on an interface with that address. So if exactly one interface has it, the
/// interface is known.
fn find_interfaces(table: &mut SocketsByInode, addresses: impl FnOnce() -> Vec<u8>) {
    let bit = parse::bit(Socket::MEMBERS, "ifindex");
    let is_link_local = |s: &Sock| {
        i32::from(s.record.family) == libc::AF_INET6
            && Ipv6Addr::from(s.record.local_addr).is_unicast_link_local()
    };
    let mut unknown = table.values_mut().filter(|s| s.valid & bit == 0 && is_link_local(s));
    let Some(first) = unknown.next() else { return };
    let interfaces = parse::interfaces(&addresses());
    for s in std::iter::once(first).chain(unknown) {
        if let Some(index) = interfaces.get(&s.record.local_addr) {
            s.record.ifindex = *index;
            s.valid |= bit;
        }
    }
}

fn add(table: &mut SocketsByInode, s: Sock) {
    if s.record.inode == 0 {
        return;
    }
    match table.entry(s.record.inode) {
        Entry::Vacant(place) => _ = place.insert(s),
        Entry::Occupied(mut known) => of_subflow(&mut known.get_mut().record, &s.record),
    }
}

/// Only the subflow of a multipath socket has the interface of a link-local address. The subflow of
/// a socket that is not connected is in no list.
fn of_subflow(known: &mut Socket, subflow: &Socket) {
    let end = |s: &Socket| (s.family, s.local_addr, s.local_port);
    let is_multipath = i32::from(known.protocol) == libc::IPPROTO_MPTCP && known.state != TCP_CLOSE;
    if is_multipath && known.ifindex == 0 && end(known) == end(subflow) {
        known.ifindex = subflow.ifindex;
    }
}

/// Asks in another namespace, from a thread that enters it and then ends.
fn dump_elsewhere(ns: &OwnedFd, calls: &mut u64) -> Dumped {
    thread::scope(|scope| {
        let there = || {
            let mut calls = 1;
            // SAFETY: takes a descriptor and a number; changes this thread only.
            if unsafe { libc::setns(ns.as_raw_fd(), libc::CLONE_NEWNET) } != 0 {
                return (nothing(), calls);
            }
            (dump(Detail::Addresses, &mut calls), calls)
        };
        let thread = thread::Builder::new().spawn_scoped(scope, there);
        let done = thread.ok().and_then(|t| t.join().ok());
        let (dumped, n) = done.unwrap_or_else(|| (nothing(), 0));
        *calls += n;
        dumped
    })
}

/// `NETLINK_SOCK_DIAG`, `SOCK_DIAG_BY_FAMILY` of linux/sock_diag.h.
const NETLINK_SOCK_DIAG: i32 = 4;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// All states except TIME_WAIT and the two of half-open connections, whose sockets have no inode.
const STATES: u32 = !(1 << 6 | 1 << 3 | 1 << 12);
/// UDIAG_SHOW_NAME, UDIAG_SHOW_PEER, UDIAG_SHOW_RQLEN.
const UNIX_SHOW: u32 = 0x1 | 0x4 | 0x10;
/// UDIAG_SHOW_VFS.
const UNIX_SHOW_VFS: u32 = 0x2;
/// UDIAG_SHOW_MEMINFO.
const UNIX_SHOW_MEMINFO: u32 = 0x20;
/// NDIAG_SHOW_MEMINFO.
const NETLINK_SHOW: u32 = 0x1;
/// PACKET_SHOW_INFO.
const PACKET_SHOW: u32 = 0x1;
/// PACKET_SHOW_MEMINFO.
const PACKET_SHOW_MEMINFO: u32 = 0x10;

/// `INET_DIAG_REQ_PROTOCOL` of linux/inet_diag.h.
const INET_DIAG_REQ_PROTOCOL: u16 = 3;

/// For each request of [`dump`], in the same order, the file that lists the same sockets.
const FILES: [Option<&str>; 13] = [
    None,
    None,
    Some("net/tcp"),
    Some("net/tcp6"),
    Some("net/udp"),
    Some("net/udp6"),
    Some("net/udplite"),
    Some("net/udplite6"),
    Some("net/raw"),
    Some("net/raw6"),
    Some("net/unix"),
    Some("net/netlink"),
    Some("net/packet"),
];

/// Which details are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Detail {
    /// Addresses, states and queues.
    Addresses,
    /// Addresses, and the traffic of each socket. The kernel takes the lock of each TCP socket for
    /// it, one after the other.
    Traffic,
}

fn dump(detail: Detail, calls: &mut u64) -> Dumped {
    let more = |bits: u32| if detail == Detail::Traffic { bits } else { 0 };
    let extensions = more(parse::INET_DIAG_EXTENSIONS.into()) as u8;
    let mut table = SocketsByInode::new();
    let mut refused = Vec::new();
    *calls += 2; // socket, close
    let Ok(socket) = open() else { return nothing() };
    let mut lists_mptcp = true;
    let mut files = FILES.iter();
    let mut request = |req: &[u8], parse: &dyn Fn(&[u8]) -> Option<Sock>| {
        let file = files.next().expect("an entry for each request");
        let each = |b: &[u8]| {
            if let Some(s) = parse(b) {
                add(&mut table, s);
            }
        };
        let is_refused = ask(&socket, req, calls, each).is_err();
        if is_refused {
            refused.extend(*file);
        }
        !is_refused
    };
    // Multipath TCP comes before TCP: its subflows are TCP sockets with the same inode, and other
    // addresses. A kernel that cannot list it lists at least these.
    for family in [libc::AF_INET, libc::AF_INET6] {
        let mut req = [0u8; 64];
        (req[0], req[2]) = (family as u8, extensions);
        req[4..8].copy_from_slice(&STATES.to_ne_bytes());
        // The number is larger than a byte, so it is in an attribute.
        req[56..58].copy_from_slice(&8u16.to_ne_bytes());
        req[58..60].copy_from_slice(&INET_DIAG_REQ_PROTOCOL.to_ne_bytes());
        req[60..].copy_from_slice(&(libc::IPPROTO_MPTCP as u32).to_ne_bytes());
        lists_mptcp &= request(&req, &|b| parse::inet_diag(b, libc::IPPROTO_MPTCP as u16));
    }
    for protocol in [libc::IPPROTO_TCP, libc::IPPROTO_UDP, libc::IPPROTO_UDPLITE, libc::IPPROTO_RAW]
    {
        for family in [libc::AF_INET, libc::AF_INET6] {
            // struct inet_diag_req_v2
            let mut req = [0u8; 56];
            (req[0], req[1], req[2]) = (family as u8, protocol as u8, extensions);
            req[4..8].copy_from_slice(&STATES.to_ne_bytes());
            request(&req, &|b| parse::inet_diag(b, protocol as u16));
        }
    }
    request(&unix_request(UNIX_SHOW | more(UNIX_SHOW_MEMINFO)), &parse::unix_diag);
    // struct netlink_diag_req, of all protocols
    let mut req = [0u8; 20];
    (req[0], req[1]) = (libc::AF_NETLINK as u8, 255);
    req[8..12].copy_from_slice(&NETLINK_SHOW.to_ne_bytes());
    request(&req, &parse::netlink_diag);
    // struct packet_diag_req
    let mut req = [0u8; 20];
    req[0] = libc::AF_PACKET as u8;
    let show = PACKET_SHOW | more(PACKET_SHOW_MEMINFO);
    req[8..12].copy_from_slice(&show.to_ne_bytes());
    request(&req, &parse::packet_diag);
    (table, refused, lists_mptcp)
}

/// The file that a unix socket is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BoundSocket {
    /// The inode of the socket.
    pub socket: u64,
    /// The device of the file system, as encoded by `new_encode_dev()`.
    pub dev: u32,
    /// The low half of the inode of the file. The kernel returns no more.
    pub inode: u32,
}

/// The unix sockets of this network namespace that are bound to a file. The name of a socket is the
/// path of its bind(), which may be relative; this identifies the file. Fails where sock_diag(7)
/// cannot list unix sockets.
pub fn bound_sockets() -> io::Result<Vec<BoundSocket>> {
    let mut all = Vec::new();
    ask(&open()?, &unix_request(UNIX_SHOW_VFS), &mut 0, |b| {
        if let Some((socket, inode, dev)) = parse::unix_vfs(b) {
            all.push(BoundSocket { socket, dev, inode });
        }
    })?;
    Ok(all)
}

/// The text that `/proc/net/unix` has as the address of each unix socket of this network namespace,
/// by inode. Lines that may be a part of another socket's name do not count.
pub fn unix_addresses() -> io::Result<HashMap<u64, String>> {
    let text = std::fs::read("/proc/net/unix")?;
    let all = parse::unix_addresses(&text).into_iter();
    Ok(all.map(|(inode, a)| (inode, String::from_utf8_lossy(a).into_owned())).collect())
}

/// struct unix_diag_req
fn unix_request(show: u32) -> [u8; 24] {
    let mut req = [0u8; 24];
    req[0] = libc::AF_UNIX as u8;
    req[4..8].copy_from_slice(&u32::MAX.to_ne_bytes());
    req[12..16].copy_from_slice(&show.to_ne_bytes());
    req
}

fn open() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: takes numbers, and returns a new descriptor without another owner.
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
                libc::NLMSG_DONE => {
                    // This is an error for the whole request, for example that the protocol is not
                    // known.
                    let error = payload.first_chunk().map_or(0, |b| i32::from_ne_bytes(*b));
                    return if error < 0 {
                        Err(io::Error::from_raw_os_error(-error))
                    } else {
                        Ok(())
                    };
                }
                libc::NLMSG_ERROR => return Err(io::Error::other("refused")),
                _ => each(payload),
            }
        }
        if !any {
            return Err(io::Error::other("not netlink"));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::unix::net::UnixListener;

    use taskdiag_wire::build;

    use super::*;

    #[test]
    fn where_multipath_tcp_is_not_listed_a_tcp_socket_does_not_say_its_protocol() {
        let sock = |inode, protocol: i32| Sock {
            record: build!(Socket { inode, protocol: protocol as u16, ..Socket::default() }),
            valid: u32::MAX,
            ..Sock::default()
        };
        let mut table = SocketsByInode::new();
        add(&mut table, sock(1, libc::IPPROTO_TCP));
        add(&mut table, sock(2, libc::IPPROTO_UDP));
        forget_protocols(&mut table);
        let bit = parse::bit(Socket::MEMBERS, "protocol");
        assert_eq!([1, 2].map(|inode| table[&inode].valid), [!bit, u32::MAX]);
        // Whether multipath TCP is listed is decided by its own request only.
        let (_, refused, lists) = nothing();
        assert!(!lists && refused.len() == FILES.iter().flatten().count());
    }

    /// Any user can bind a socket whose name contains a newline. The kernel writes the name as it
    /// is, so the file has a line that looks like the line of another socket.
    #[test]
    fn a_bound_name_with_a_line_feed_does_not_describe_another_socket() {
        use std::os::linux::net::SocketAddrExt;
        use std::os::unix::net::{SocketAddr, UnixDatagram};
        let inode = |fd: i32| -> u64 {
            let link = std::fs::read_link(format!("/proc/self/fd/{fd}")).unwrap();
            let link = link.to_str().unwrap().to_owned();
            link.trim_start_matches("socket:[").trim_end_matches(']').parse().unwrap()
        };
        // The victim is no unix socket, so that no line of the kernel is about it.
        let victim = TcpListener::bind("127.0.0.1:0").unwrap();
        let number = inode(victim.as_raw_fd());
        let line = format!("00: 00000002 00000000 00010000 0001 01 {number} /run/trusted");
        let forger = UnixDatagram::unbound().unwrap();
        let name = format!("x{}\n{line}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let forger = UnixDatagram::bind_addr(&address).inspect(|_| drop(forger)).unwrap();
        let text = std::fs::read("/proc/self/net/unix").unwrap();
        let has = |part: &[u8]| text.windows(part.len()).any(|w| w == part);
        assert!(has(format!("\n{line}\n").as_bytes()), "the kernel writes it as it is");
        let all: Vec<Sock> = parse::net_text("net/unix", &text).collect();
        assert!(all.iter().all(|s| s.record.inode != number), "the line is believed");
        // The text has no name that sock_diag does not have. A socket without a name in the answer
        // may have been bound by another program since then.
        let (asked, ..) = dump(Detail::Addresses, &mut 0);
        let named = || all.iter().filter(|s| s.name.is_some());
        for s in named().filter(|s| s.record.inode != inode(forger.as_raw_fd())) {
            assert!(asked.get(&s.record.inode).is_none_or(|a| a.name == s.name), "{s:?}");
        }
        let known = all.iter().filter(|s| asked.contains_key(&s.record.inode)).count();
        let unix = asked.values().filter(|s| s.record.family == libc::AF_UNIX as u16).count();
        println!("{known} of {unix} unix sockets are known from the text");
        assert!(known > 0, "some are known");
    }

    /// Checks that sockets of all unprivileged kinds are the same from the text, except for members
    /// that the text lacks.
    #[test]
    fn text_tells_the_same() {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(tcp.local_addr().unwrap()).unwrap();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let dir = tempfile::tempdir().unwrap();
        // The line of this socket is too long to be a part of a name.
        let name = format!("a socket {}", "x".repeat(50));
        let unix = UnixListener::bind(dir.path().join(name)).unwrap();
        let netlink = open().unwrap();
        // A netlink socket is listed once it has an address, which it gets when it sends.
        let _ = ask(&netlink, &[0; 56], &mut 0, |_| ());
        let fds = [
            tcp.as_raw_fd(),
            client.as_raw_fd(),
            udp.as_raw_fd(),
            unix.as_raw_fd(),
            netlink.as_raw_fd(),
        ];
        let (asked, refused, _) = dump(Detail::Addresses, &mut 0);
        let mut compared = 0;
        for fd in fds {
            let link = std::fs::read_link(format!("/proc/self/fd/{fd}")).unwrap();
            let link = link.to_str().unwrap();
            let inode: u64 =
                link.trim_start_matches("socket:[").trim_end_matches(']').parse().unwrap();
            let read = FILES.iter().flatten().find_map(|f| {
                let text = std::fs::read(format!("/proc/self/{f}")).unwrap_or_default();
                parse::net_text(f, &text).find(|s| s.record.inode == inode)
            });
            let read = read.unwrap_or_else(|| panic!("{link} is not in the text"));
            let Some(asked) = asked.get(&inode) else {
                assert!(!refused.is_empty(), "{link} is not in what sock_diag told");
                continue;
            };
            assert_eq!(read.valid & !asked.valid, 0);
            let known = |s: &Sock| {
                let r = s.record;
                let r = build!(Socket {
                    ifindex: 0,
                    peer_inode: 0,
                    recv_queue_bytes: 0,
                    send_queue_bytes: 0,
                    ..r
                });
                let netlink = i32::from(r.family) == libc::AF_NETLINK;
                (
                    if netlink { build!(Socket { state: 0, r#type: 0, ..r }) } else { r },
                    s.name.clone(),
                )
            };
            assert_eq!(known(&read), known(asked), "{link}");
            compared += 1;
        }
        assert!(
            compared > 0 || refused.len() == FILES.iter().flatten().count(),
            "nothing was compared"
        );
    }
}
