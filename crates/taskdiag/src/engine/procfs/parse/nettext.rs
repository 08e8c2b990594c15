//! Parses sockets from the text of /proc/PID/net, where sock_diag(7) does not list them. Parts of
//! sock_diag are kernel modules, which may be missing or not be loadable.

use taskdiag_wire::{Socket, build};

use super::Sock;
use super::bit;
use super::sockdiag::bits;
use super::sockdiag::{ALL, NAME, PORTS, TCP_CLOSE, TCP_LISTEN};

const TCP_ESTABLISHED: u16 = 1;
/// `__SO_ACCEPTCON` of linux/net.h: the socket listens.
const ACCEPTS: u32 = 1 << 16;
/// `SS_CONNECTING` and `SS_CONNECTED` of linux/net.h.
const CONNECTED: [u16; 2] = [2, 3];

/// The sockets in a file of /proc/PID/net. There are none if the name of the file is not known
/// here.
pub fn net_text<'a>(file: &str, text: &'a [u8]) -> impl Iterator<Item = Sock> + 'a {
    let line: fn(&[u8]) -> Option<Sock> = match file {
        "net/tcp" | "net/tcp6" => |l| inet(l, libc::IPPROTO_TCP as u16),
        "net/udp" | "net/udp6" => |l| inet(l, libc::IPPROTO_UDP as u16),
        "net/udplite" | "net/udplite6" => |l| inet(l, libc::IPPROTO_UDPLITE as u16),
        "net/raw" | "net/raw6" => |l| inet(l, libc::IPPROTO_RAW as u16),
        "net/unix" => unix,
        "net/netlink" => netlink,
        "net/packet" => packet,
        _ => |_| None,
    };
    super::small::complete_lines(text).filter_map(line)
}

/// `sl local remote st tx:rx tr:when retrnsmt uid timeout inode`, as written by tcp4_seq_show() and
/// similar functions.
fn inet(line: &[u8], protocol: u16) -> Option<Sock> {
    let f = Words::new(line);
    let (local_addr, local, family) = address(f.at(1)?)?;
    let (peer_addr, peer, _) = address(f.at(2)?)?;
    let state = hex(f.at(3)?)? as u16;
    let (peer_addr, peer) = if state == TCP_CLOSE { ([0; 16], 0) } else { (peer_addr, peer) };
    let queues = f.at(4)?;
    let colon = queues.iter().position(|b| *b == b':')?;
    let raw = i32::from(protocol) == libc::IPPROTO_RAW;
    let kind = match i32::from(protocol) {
        libc::IPPROTO_TCP => libc::SOCK_STREAM,
        libc::IPPROTO_RAW => libc::SOCK_RAW,
        _ => libc::SOCK_DGRAM,
    };
    let mut record = build!(Socket {
        inode: decimal(f.at(9)?)?,
        local_port: local,
        peer_port: peer,
        family: family as u16,
        r#type: kind as u16,
        // A raw socket has its protocol in place of its port, in the kernel too.
        protocol: if raw { local } else { protocol },
        state,
        local_addr,
        peer_addr,
        ..Socket::default()
    });
    let mut valid = ALL | PORTS | bits!(local_addr peer_addr recv_queue_bytes);
    record.recv_queue_bytes = hex(&queues[colon + 1..])?.into();
    // For a listening socket, the text has the number of waiting connections, but not the limit.
    if state != TCP_LISTEN {
        record.send_queue_bytes = hex(&queues[..colon])?.into();
        valid |= bits!(send_queue_bytes);
    }
    Some(Sock { record, valid, name: None })
}

/// `sk: refcount protocol flags type st inode [path]`, as unix_seq_show() writes it. An abstract
/// name begins with `@` and has another one for each NUL. The file does not have the peer.
fn unix(line: &[u8]) -> Option<Sock> {
    let f = Words::new(line);
    let listens = hex(f.at(3)?)? & ACCEPTS != 0;
    let connected = CONNECTED.contains(&(hex(f.at(5)?)? as u16));
    let end = f.end(6)?;
    let name = line.get(end + 1..).filter(|n| !n.is_empty());
    Some(Sock {
        record: build!(Socket {
            inode: decimal(f.at(6)?)?,
            family: libc::AF_UNIX as u16,
            r#type: hex(f.at(4)?)? as u16,
            state: match (listens, connected) {
                (true, _) => TCP_LISTEN,
                (false, true) => TCP_ESTABLISHED,
                (false, false) => TCP_CLOSE,
            },
            ..Socket::default()
        }),
        valid: ALL | NAME,
        name: name.map(Into::into),
    })
}

/// `sk protocol portid groups rmem wmem dump locks drops inode`, as netlink_native_seq_show().
fn netlink(line: &[u8]) -> Option<Sock> {
    let f = Words::new(line);
    Some(Sock {
        record: build!(Socket {
            inode: decimal(f.at(9)?)?,
            family: libc::AF_NETLINK as u16,
            protocol: decimal(f.at(1)?)? as u16,
            portid: decimal(f.at(2)?)? as u32,
            ..Socket::default()
        }),
        valid: bits!(inode family protocol portid),
        name: None,
    })
}

/// `sk refcount type protocol interface running rmem user inode`, as packet_seq_show().
fn packet(line: &[u8]) -> Option<Sock> {
    let f = Words::new(line);
    Some(Sock {
        record: build!(Socket {
            inode: decimal(f.at(8)?)?,
            family: libc::AF_PACKET as u16,
            r#type: decimal(f.at(2)?)? as u16,
            protocol: hex(f.at(3)?)? as u16,
            ifindex: decimal(f.at(4)?)? as u32,
            ..Socket::default()
        }),
        valid: ALL & !bits!(state) | bits!(ifindex),
        name: None,
    })
}

/// The words of a line.
struct Words<'a> {
    line: &'a [u8],
}

impl<'a> Words<'a> {
    fn new(line: &'a [u8]) -> Words<'a> {
        Words { line }
    }
    /// Word number `n`.
    fn at(&self, n: usize) -> Option<&'a [u8]> {
        self.line.split(u8::is_ascii_whitespace).filter(|w| !w.is_empty()).nth(n)
    }
    /// The end of word number `n`.
    fn end(&self, n: usize) -> Option<usize> {
        let word = self.at(n)?;
        Some(word.as_ptr().addr() - self.line.as_ptr().addr() + word.len())
    }
}

fn decimal(word: &[u8]) -> Option<u64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

fn hex(word: &[u8]) -> Option<u32> {
    super::hex(word)?.try_into().ok()
}

/// Parses `address:port`. The address is written as 32-bit numbers of this machine.
fn address(word: &[u8]) -> Option<([u8; 16], u16, libc::c_int)> {
    let colon = word.iter().position(|b| *b == b':')?;
    let (digits, port) = (&word[..colon], hex(&word[colon + 1..])?);
    let family = match digits.len() {
        8 => libc::AF_INET,
        32 => libc::AF_INET6,
        _ => return None,
    };
    let mut addr = [0; 16];
    for (to, from) in addr.chunks_exact_mut(4).zip(digits.chunks_exact(8)) {
        to.copy_from_slice(&hex(from)?.to_ne_bytes());
    }
    Some((addr, u16::try_from(port).ok()?, family))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(file: &str, line: &str) -> Sock {
        let text = format!("  sl  a header\n{line}\n");
        let mut found = net_text(file, text.as_bytes());
        let s = found.next().expect("a socket");
        assert_eq!(found.next(), None);
        for n in 0..line.len() {
            // A line without a newline at its end is cut.
            assert_eq!(net_text(file, &line.as_bytes()[..n]).count(), 0);
            let _ = net_text(file, format!("{}\n", &line[..n]).as_bytes()).count();
        }
        s
    }

    #[test]
    fn internet_sockets_are_parsed_from_text() {
        let s = one(
            "net/tcp",
            "   1: 0100007F:0050 0200007F:A001 01 00000006:00000005 00:00000000 00000000  0 0 77 1 00000000f58e326b 20",
        );
        let r = s.record;
        assert_eq!((r.inode, r.family, r.r#type, r.protocol, r.state), (77, 2, 1, 6, 1));
        assert_eq!((r.local_port, r.peer_port), (80, 0xa001));
        assert_eq!(
            (&r.local_addr[..5], &r.peer_addr[..4]),
            (&[127, 0, 0, 1, 0][..], &[127, 0, 0, 2][..])
        );
        assert_eq!((r.recv_queue_bytes, r.send_queue_bytes), (5, 6));
        let l =
            one("net/tcp", "0: 00000000:07E8 00000000:0000 0A 00000000:00000003 00:0 0 0 0 578 1");
        assert_eq!((l.record.recv_queue_bytes, l.record.state), (3, 10));
        assert_eq!(l.valid & bits!(recv_queue_bytes send_queue_bytes), bits!(recv_queue_bytes));
        let six = "0: 00000000000000000000000001000000:0035 00000000000000000000000000000000:0000";
        let u = one("net/udp6", &format!("{six} 07 0:0 00:0 0 0 0 9 2")).record;
        assert_eq!(
            (u.family, u.local_addr, u.local_port),
            (10, std::net::Ipv6Addr::LOCALHOST.octets(), 53)
        );
        let raw = one("net/raw", "1: 00000000:0001 00000000:0000 07 0:0 00:0 0 0 0 9 2");
        assert_eq!((raw.record.protocol, raw.record.r#type), (1, 3));
        assert_eq!((raw.record.local_port, raw.valid & PORTS), (1, PORTS));
    }

    #[test]
    fn unix_sockets_are_parsed_from_text() {
        let s = one("net/unix", "00000000c6b0a327: 00000002 00000000 00010000 0001 01 12 /a b ");
        assert_eq!(s.name.as_deref(), Some(&b"/a b "[..]));
        assert_eq!((s.record.inode, s.record.state, s.record.r#type), (12, 10, 1));
        assert_eq!(s.valid & bits!(peer_inode), 0);
        let s = one("net/unix", "0: 00000003 00000000 00000000 0005 03   575");
        assert_eq!((s.name, s.record.inode, s.record.state), (None, 575, 1));
        assert_eq!(one("net/unix", "0: 2 0 0 2 01 5 @x").record.state, 7);
    }

    #[test]
    fn netlink_and_packet() {
        let s = one("net/netlink", "00000000b5f3fe71 15   5 00000000 0 0 0 2 0 487");
        assert_eq!((s.record.protocol, s.record.portid, s.record.inode), (15, 5, 487));
        assert_eq!(s.valid & bits!(state), 0);
        let s = one("net/packet", "00000000b5f3fe71 3 3 0003 2 1 0 0 8");
        assert_eq!(
            (s.record.r#type, s.record.protocol, s.record.ifindex, s.record.inode),
            (3, 3, 2, 8)
        );
    }
}
