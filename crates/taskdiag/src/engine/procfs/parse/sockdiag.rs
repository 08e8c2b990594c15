//! Parses answers of sock_diag(7), which are netlink messages, into sockets.

use taskdiag_wire::device::device;
use taskdiag_wire::{Net, Socket, build};

use super::bit;

/// A socket, with the members that sock_diag provides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sock {
    /// The record. Its members `fd`, `netns` and `name` are not set.
    pub record: Socket,
    /// The known members of the record.
    pub valid: u32,
    /// For AF_UNIX, the path, or `@` and the abstract name.
    pub name: Option<Box<[u8]>>,
    /// The traffic of the socket, if it was requested.
    pub net: Option<Box<Traffic>>,
}

/// The traffic of a socket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// The record. Its members `fd` and `inode` are not set.
    pub record: Net,
    /// The known members of the record.
    pub valid: u32,
}

macro_rules! net_bits {
    ($($member:ident)*) => { 0 $(| bit(Net::MEMBERS, stringify!($member)))* };
}
const BYTES: u32 = net_bits!(sent_bytes acked_bytes received_bytes retrans_bytes);
const OF_TCP: u32 = BYTES | net_bits!(sent_segs received_segs retrans_segs cwnd_segs);

impl Traffic {
    /// Adds the attribute INET_DIAG_INFO of a socket of this protocol, or the same from a socket
    /// option.
    pub fn info(&mut self, protocol: u16, info: &[u8]) {
        let _ = match i32::from(protocol) {
            libc::IPPROTO_TCP => self.tcp_info(info),
            libc::IPPROTO_MPTCP => self.mptcp_info(info),
            _ => None,
        };
    }
    /// `struct tcp_info`. Before Linux 4.19 it ends before the bytes that were sent.
    fn tcp_info(&mut self, b: &[u8]) -> Option<()> {
        let state = u16::from(*b.first()?);
        let s = &mut self.record;
        (s.acked_bytes, s.received_bytes) = (u64_at(b, 120)?, u64_at(b, 128)?);
        (s.sent_bytes, s.retrans_bytes) = (u64_at(b, 200)?, u64_at(b, 208)?);
        // A listener has no connection.
        if state == TCP_LISTEN {
            self.valid |= BYTES;
            return Some(());
        }
        (s.sent_segs, s.received_segs) = (u32_at(b, 136)?, u32_at(b, 140)?);
        (s.retrans_segs, s.cwnd_segs) = (u32_at(b, 100)?, u32_at(b, 80)?);
        self.valid |= OF_TCP;
        let us = |at| Some(u64::from(u32_at(b, at)?) * 1000);
        let (rtt, var) = (us(68)?, us(72)?);
        if rtt != 0 {
            (s.rtt_ns, s.rtt_var_ns) = (rtt, var);
            self.valid |= net_bits!(rtt_ns rtt_var_ns);
        }
        if state != TCP_CLOSE && state != TCP_SYN_SENT {
            let ms = |at| Some(u64::from(u32_at(b, at)?) * 1_000_000);
            (s.since_sent_ns, s.since_received_ns) = (ms(44)?, ms(52)?);
            self.valid |= net_bits!(since_sent_ns since_received_ns);
        }
        Some(())
    }
    /// `struct mptcp_info`. It has these bytes since Linux 6.5.
    fn mptcp_info(&mut self, b: &[u8]) -> Option<()> {
        let s = &mut self.record;
        (s.retrans_bytes, s.sent_bytes) = (u64_at(b, 48)?, u64_at(b, 56)?);
        (s.received_bytes, s.acked_bytes) = (u64_at(b, 64)?, u64_at(b, 72)?);
        self.valid |= BYTES;
        Some(())
    }
    /// Adds the numbers `SK_MEMINFO_*`. The ninth number counts drops, since Linux 4.7.
    pub fn memory(&mut self, numbers: &[u8]) {
        if let Some(drops) = u32_at(numbers, 32) {
            self.record.drops = drops;
            self.valid |= net_bits!(drops);
        }
    }
    /// Adds the name of the algorithm.
    pub fn congestion(&mut self, name: &[u8]) {
        let name = name.split(|b| *b == 0).next().unwrap_or_default();
        let to = &mut self.record.congestion;
        to.fill(0);
        let len = name.len().min(to.len());
        to[..len].copy_from_slice(&name[..len]);
        self.valid |= net_bits!(congestion);
    }
    /// Sets the family and the protocol.
    pub fn is_of(&mut self, family: u16, protocol: u16) {
        (self.record.family, self.record.protocol) = (family, protocol);
        self.valid |= net_bits!(family);
        // A packet socket has its protocol elsewhere.
        if i32::from(family) == libc::AF_PACKET {
            self.record.protocol = 0;
        } else {
            self.valid |= net_bits!(protocol);
        }
    }
    /// The traffic in a box, or `None` if no member is known.
    pub fn known(self) -> Option<Box<Traffic>> {
        (self.valid != 0).then(|| Box::new(self))
    }
}

macro_rules! bits {
    ($($member:ident)*) => { 0 $(| bit(Socket::MEMBERS, stringify!($member)))* };
}
pub(super) use bits;

/// The members that are known for every socket.
pub(super) const ALL: u32 = bits!(inode family protocol state) | bit(Socket::MEMBERS, "type");
const INET: u32 = ALL | bits!(ifindex local_addr peer_addr);
pub(super) const PORTS: u32 = bits!(local_port peer_port);
pub(super) const QUEUES: u32 = bits!(recv_queue_bytes send_queue_bytes);
pub(super) const NAME: u32 = bits!(name);

pub(super) const TCP_LISTEN: u16 = 10;
/// The state of a socket that is not connected.
pub(super) const TCP_CLOSE: u16 = 7;
const TCP_SYN_SENT: u16 = 2;

fn u16_at(b: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(b.get(at..at + 2)?.try_into().ok()?))
}
fn u32_at(b: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(b.get(at..at + 4)?.try_into().ok()?))
}
fn u64_at(b: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(b.get(at..at + 8)?.try_into().ok()?))
}
fn addr_at(b: &[u8], at: usize) -> Option<[u8; 16]> {
    b.get(at..at + 16)?.try_into().ok()
}

/// A socket about which only the name of its protocol is known (the attribute
/// `system.sockprotoname`).
pub fn sock_of_protocol(name: &[u8]) -> Sock {
    let name = name.strip_suffix(b"\0").unwrap_or(name);
    let of = |family: i32, rest: Option<(i32, i32)>| Sock {
        record: build!(Socket {
            family: family as u16,
            r#type: rest.map_or(0, |r| r.0) as u16,
            protocol: rest.map_or(0, |r| r.1) as u16,
            ..Socket::default()
        }),
        valid: match rest {
            Some(_) => bits!(family protocol) | bit(Socket::MEMBERS, "type"),
            None => bits!(family),
        },
        ..Sock::default()
    };
    let (inet, version) = match name.strip_suffix(b"v6") {
        Some(inet) => (inet, libc::AF_INET6),
        None => (name, libc::AF_INET),
    };
    match (inet, name) {
        (b"TCP", _) => of(version, Some((libc::SOCK_STREAM, libc::IPPROTO_TCP))),
        (b"UDP", _) => of(version, Some((libc::SOCK_DGRAM, libc::IPPROTO_UDP))),
        (b"UDP-Lite" | b"UDPLITE", _) => {
            of(version, Some((libc::SOCK_DGRAM, libc::IPPROTO_UDPLITE)))
        }
        (b"MPTCP", _) => of(version, Some((libc::SOCK_STREAM, libc::IPPROTO_MPTCP))),
        (b"PING" | b"RAW" | b"SCTP", _) => of(version, None),
        (_, b"UNIX" | b"UNIX-STREAM") => of(libc::AF_UNIX, None),
        (_, b"NETLINK") => of(libc::AF_NETLINK, None),
        (_, b"PACKET") => of(libc::AF_PACKET, None),
        (_, b"AF_VSOCK" | b"VSOCK") => of(libc::AF_VSOCK, None),
        (_, b"XDP") => of(libc::AF_XDP, None),
        (_, b"ALG") => of(libc::AF_ALG, None),
        (_, b"TIPC") => of(libc::AF_TIPC, None),
        (_, b"KEY") => of(libc::AF_KEY, None),
        _ => Sock::default(),
    }
}

/// Attributes of linux/inet_diag.h.
const INET_DIAG_INFO: u16 = 2;
const INET_DIAG_CONG: u16 = 4;
const INET_DIAG_SKMEMINFO: u16 = 7;
/// The bits of a request that ask for these.
pub const INET_DIAG_EXTENSIONS: u8 =
    1 << (INET_DIAG_INFO - 1) | 1 << (INET_DIAG_CONG - 1) | 1 << (INET_DIAG_SKMEMINFO - 1);

/// `struct inet_diag_msg` of a socket of this protocol, and its attributes.
pub fn inet_diag(b: &[u8], protocol: u16) -> Option<Sock> {
    let family = u16::from(*b.first()?);
    let state = u16::from(*b.get(1)?);
    let (local, peer) = (u16_at(b, 4)?.to_be(), u16_at(b, 6)?.to_be());
    let (mut local_addr, mut peer_addr) = (addr_at(b, 8)?, addr_at(b, 24)?);
    if i32::from(family) == libc::AF_INET {
        local_addr[4..].fill(0);
        peer_addr[4..].fill(0);
    }
    // The address may be left over from a connection that failed or has ended. getpeername(2) does
    // not return it.
    let peer = if state == TCP_CLOSE { 0 } else { peer };
    if state == TCP_CLOSE {
        peer_addr.fill(0);
    }
    let raw = i32::from(protocol) == libc::IPPROTO_RAW;
    let kind = match i32::from(protocol) {
        libc::IPPROTO_TCP | libc::IPPROTO_MPTCP => libc::SOCK_STREAM,
        libc::IPPROTO_RAW => libc::SOCK_RAW,
        _ => libc::SOCK_DGRAM,
    };
    let mut net = Traffic::default();
    for (kind, data) in attrs(b.get(72..).unwrap_or(&[])) {
        match kind {
            INET_DIAG_INFO => net.info(protocol, data),
            INET_DIAG_CONG if state != TCP_LISTEN => net.congestion(data),
            INET_DIAG_SKMEMINFO => net.memory(data),
            _ => {}
        }
    }
    Some(Sock {
        record: build!(Socket {
            inode: u32_at(b, 68)?.into(),
            family,
            r#type: kind as u16,
            // A raw socket has its protocol in place of its port, in the kernel too.
            protocol: if raw { local } else { protocol },
            state,
            local_port: local,
            peer_port: peer,
            ifindex: u32_at(b, 40)?,
            local_addr,
            peer_addr,
            recv_queue_bytes: u32_at(b, 56)?.into(),
            send_queue_bytes: u32_at(b, 60)?.into(),
            ..Socket::default()
        }),
        // For a listening socket, the queues are the number of waiting connections, and the limit
        // of that.
        valid: INET | PORTS | QUEUES,
        name: None,
        net: net.known(),
    })
}

/// `struct unix_diag_msg` and its attributes.
pub fn unix_diag(b: &[u8]) -> Option<Sock> {
    let state = u16::from(*b.get(2)?);
    let mut s = Sock {
        record: build!(Socket {
            family: u16::from(*b.first()?),
            r#type: u16::from(*b.get(1)?),
            state,
            inode: u32_at(b, 4)?.into(),
            ..Socket::default()
        }),
        // If the kernel returns no name or peer, the socket has none.
        valid: ALL | NAME | bits!(peer_inode),
        ..Sock::default()
    };
    let mut net = Traffic::default();
    for (kind, data) in attrs(b.get(16..)?) {
        match kind {
            0 => s.name = unix_name(data),
            2 => s.record.peer_inode = u32_at(data, 0).unwrap_or(0).into(),
            4 => {
                if let (Some(r), Some(w)) = (u32_at(data, 0), u32_at(data, 4)) {
                    (s.record.recv_queue_bytes, s.record.send_queue_bytes) = (r.into(), w.into());
                    s.valid |= QUEUES;
                }
            }
            // UNIX_DIAG_MEMINFO
            5 => net.memory(data),
            _ => {}
        }
    }
    s.net = net.known();
    Some(s)
}

/// The inode of a unix socket, and inode and device of the file that it is bound to.
pub fn unix_vfs(b: &[u8]) -> Option<(u64, u32, u32)> {
    let (_, data) = attrs(b.get(16..)?).find(|(kind, _)| *kind == 1)?;
    let (inode, dev) = (u32_at(data, 0)?, u32_at(data, 4)?);
    // The kernel's own form of a device number.
    Some((u32_at(b, 4)?.into(), inode, device(dev >> 20, dev & 0xf_ffff)))
}

/// A path ends with a NUL. An abstract name begins with one, and may contain more.
fn unix_name(data: &[u8]) -> Option<Box<[u8]>> {
    match data {
        [] => None,
        [0, rest @ ..] => Some([b"@", rest].concat().into()),
        path => {
            let end = path.iter().position(|b| *b == 0).unwrap_or(path.len());
            Some(path[..end].into())
        }
    }
}

/// `struct netlink_diag_msg` and its attributes.
pub fn netlink_diag(b: &[u8]) -> Option<Sock> {
    let mut s = Sock {
        record: build!(Socket {
            family: u16::from(*b.first()?),
            r#type: u16::from(*b.get(1)?),
            protocol: u16::from(*b.get(2)?),
            state: u16::from(*b.get(3)?),
            portid: u32_at(b, 4)?,
            inode: u32_at(b, 16)?.into(),
            ..Socket::default()
        }),
        valid: ALL | bits!(portid),
        ..Sock::default()
    };
    let mut net = Traffic::default();
    for (kind, data) in attrs(b.get(28..).unwrap_or(&[])) {
        // The first and the third number of SK_MEMINFO_*: the memory of received data and of data
        // to send.
        if let (0, Some(r), Some(w)) = (kind, u32_at(data, 0), u32_at(data, 8)) {
            (s.record.recv_queue_bytes, s.record.send_queue_bytes) = (r.into(), w.into());
            s.valid |= QUEUES;
            net.memory(data);
        }
    }
    s.net = net.known();
    Some(s)
}

/// `struct packet_diag_msg` and its attributes.
pub fn packet_diag(b: &[u8]) -> Option<Sock> {
    let mut s = Sock {
        record: build!(Socket {
            family: u16::from(*b.first()?),
            r#type: u16::from(*b.get(1)?),
            protocol: u16_at(b, 2)?,
            inode: u32_at(b, 4)?.into(),
            ..Socket::default()
        }),
        valid: ALL & !bits!(state),
        ..Sock::default()
    };
    let mut net = Traffic::default();
    for (kind, data) in attrs(b.get(16..)?) {
        match (kind, u32_at(data, 0)) {
            (0, Some(index)) => {
                s.record.ifindex = index;
                s.valid |= bits!(ifindex);
            }
            // PACKET_DIAG_MEMINFO
            (6, _) => net.memory(data),
            _ => {}
        }
    }
    s.net = net.known();
    Some(s)
}

/// The netlink attributes of a message as type and data, up to the first that is malformed.
pub(super) fn attrs(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let len = usize::from(u16_at(rest, 0)?);
        let kind = u16_at(rest, 2)?;
        let data = rest.get(4..len)?;
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        Some((kind, data))
    })
}

/// The messages in a received buffer, as type and payload.
pub fn nl_messages(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let len = u32_at(rest, 0)? as usize;
        let kind = u16_at(rest, 4)?;
        let payload = rest.get(16..len)?;
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        Some((kind, payload))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::attr;

    #[test]
    fn internet_sockets_are_parsed_from_messages() {
        let mut b = vec![0u8; 72];
        (b[0], b[1]) = (libc::AF_INET as u8, 1);
        b[4..8].copy_from_slice(&[0, 80, 1, 2]);
        b[8..12].copy_from_slice(&[127, 0, 0, 1]);
        b[12] = 9; // not an address of AF_INET
        b[40] = 3;
        b[56] = 5;
        b[60] = 6;
        b[68] = 77;
        let s = inet_diag(&b, 6).unwrap();
        let r = s.record;
        assert_eq!((r.local_port, r.peer_port, r.ifindex, r.inode), (80, 258, 3, 77));
        assert_eq!((&r.local_addr[..5], r.state, r.protocol), (&[127, 0, 0, 1, 0][..], 1, 6));
        assert_eq!((r.recv_queue_bytes, r.send_queue_bytes), (5, 6));
        assert_eq!(i32::from(r.r#type), libc::SOCK_STREAM);
        let raw = inet_diag(&b, 255).unwrap();
        assert_eq!((raw.record.protocol, raw.record.local_port), (80, 80));
        assert_eq!(raw.valid & PORTS, PORTS);
        b[1] = TCP_LISTEN as u8;
        let l = inet_diag(&b, 6).unwrap();
        assert_eq!((l.valid & QUEUES, l.record.recv_queue_bytes), (QUEUES, 5));
        let m = inet_diag(&b, 262).unwrap().record;
        assert_eq!((m.protocol, i32::from(m.r#type)), (262, libc::SOCK_STREAM));
        assert!(inet_diag(&b[..71], 6).is_none());
    }

    #[test]
    fn unix_sockets_are_parsed_from_messages() {
        let head = [[1u8, 1, 1, 0], 7u32.to_ne_bytes(), [0; 4], [0; 4]].concat();
        let queues = [3u32.to_ne_bytes(), 4u32.to_ne_bytes()].concat();
        let b = [&head[..], &attr(0, b"/a\0"), &attr(2, &9u32.to_ne_bytes()), &attr(4, &queues)]
            .concat();
        let s = unix_diag(&b).unwrap();
        assert_eq!(s.name.as_deref(), Some(&b"/a"[..]));
        assert_eq!((s.record.inode, s.record.peer_inode), (7, 9));
        assert_eq!((s.record.recv_queue_bytes, s.record.send_queue_bytes), (3, 4));
        let s = unix_diag(&[&head[..], &attr(0, b"\0x\0y")].concat()).unwrap();
        assert_eq!(s.name.as_deref(), Some(&b"@x\0y"[..]));
        assert_eq!(unix_diag(&head).unwrap().name, None);
        assert_eq!(unix_vfs(&head), None);
        let file = [9u32.to_ne_bytes(), (8u32 << 20 | 1).to_ne_bytes()].concat();
        assert_eq!(unix_vfs(&[&head[..], &attr(1, &file)].concat()), Some((7, 9, 0x801)));
        for n in 0..b.len() {
            let _ = unix_diag(&b[..n]);
        }
    }

    #[test]
    fn answers_about_netlink_and_packet_sockets_are_parsed() {
        let b =
            [&[16u8, 3, 15, 7][..], &5u32.to_ne_bytes(), &[0; 8], &66u32.to_ne_bytes()].concat();
        let s = netlink_diag(&b).unwrap();
        assert_eq!((s.record.protocol, s.record.portid, s.record.inode), (15, 5, 66));
        assert_eq!(s.valid & QUEUES, 0);
        let memory = [7u32, 0, 9].map(u32::to_ne_bytes).concat();
        let s = netlink_diag(&[&b[..], &[0; 8], &attr(0, &memory)].concat()).unwrap();
        assert_eq!((s.record.recv_queue_bytes, s.record.send_queue_bytes), (7, 9));
        assert_eq!(s.valid & QUEUES, QUEUES);
        let head = [[17u8, 3, 3, 0], 8u32.to_ne_bytes(), [0; 4], [0; 4]].concat();
        let s = packet_diag(&[&head[..], &attr(0, &[2, 0, 0, 0])].concat()).unwrap();
        assert_eq!((s.record.protocol, s.record.ifindex, s.record.inode), (3, 2, 8));
    }

    #[test]
    fn whole_messages_of_netlink_are_taken_apart() {
        let m = |kind: u16, data: &[u8]| {
            let mut m = ((data.len() + 16) as u32).to_ne_bytes().to_vec();
            m.extend(kind.to_ne_bytes());
            m.extend([0; 10]);
            m.extend(data);
            m.resize(m.len().next_multiple_of(4), 0);
            m
        };
        let b = [m(20, b"abc"), m(3, b"")].concat();
        let got: Vec<_> = nl_messages(&b).collect();
        assert_eq!(got, [(20, &b"abc"[..]), (3, &b""[..])]);
        assert_eq!(nl_messages(&b[..17]).count(), 0);
        assert_eq!(nl_messages(&[0; 16]).count(), 0);
    }
}
