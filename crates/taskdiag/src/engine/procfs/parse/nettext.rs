//! Parses sockets from the text of /proc/PID/net, where sock_diag(7) does not list them. Parts of
//! sock_diag are kernel modules, which may be missing or not be loadable.

use std::collections::HashMap;

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

/// The sockets in a file of /proc/PID/net. A file with an unknown name gives no sockets. Lines that
/// a user may have made up are left out.
pub fn net_text<'a>(file: &str, text: &'a [u8]) -> Box<dyn Iterator<Item = Sock> + 'a> {
    let line: fn(&[u8]) -> Option<Sock> = match file {
        "net/unix" => {
            return Box::new(unix_lines(text).filter_map(|(first, rest)| {
                let mut sock = unix(first)?;
                if let Some(name) = sock.name.as_mut().filter(|_| !rest.is_empty()) {
                    *name = [&**name, b"\n", rest].concat().into();
                }
                Some(sock)
            }));
        }
        "net/tcp" | "net/tcp6" => |l| inet(l, libc::IPPROTO_TCP as u16),
        "net/udp" | "net/udp6" => |l| inet(l, libc::IPPROTO_UDP as u16),
        "net/udplite" | "net/udplite6" => |l| inet(l, libc::IPPROTO_UDPLITE as u16),
        "net/raw" | "net/raw6" => |l| inet(l, libc::IPPROTO_RAW as u16),
        "net/netlink" => netlink,
        "net/packet" => packet,
        _ => |_| None,
    };
    Box::new(super::small::complete_lines(text).filter_map(line))
}

/// The interfaces that have these IPv6 addresses, from the text of /proc/PID/net/if_inet6: `address
/// interface prefix scope flags name`. An address that several interfaces have is left out.
pub fn interfaces(text: &[u8]) -> HashMap<[u8; 16], u32> {
    let mut all = HashMap::new();
    let mut several = Vec::new();
    let line = |line: &[u8]| {
        let f = Words::new(line);
        Some((plain_address(f.at(0)?)?, hex(f.at(1)?)?))
    };
    for (address, index) in super::small::complete_lines(text).filter_map(line) {
        if all.insert(address, index).is_some_and(|before| before != index) {
            several.push(address);
        }
    }
    several.iter().for_each(|address| _ = all.remove(address));
    all
}

/// An address of 32 digits, in the order of the network.
fn plain_address(digits: &[u8]) -> Option<[u8; 16]> {
    let text = std::str::from_utf8(digits).ok().filter(|t| t.len() == 32)?;
    u128::from_str_radix(text, 16).ok().map(u128::to_be_bytes)
}

/// The largest number of bytes of a unix socket's name, `UNIX_PATH_MAX`.
const NAME_MAX: usize = 108;

/// The sockets in the text of /proc/PID/net/unix: the line of each, and the lines after it that
/// belong to its name.
///
/// The kernel writes names as they are, and a name may have line feeds. So a user can bind a socket
/// whose name ends with a line that looks like one of the kernel's, of any inode and with any name.
/// So a line is doubtful if its end is still within the longest possible name that begins where an
/// earlier name began. A doubtful line may be either, so it is left out, and nothing is known about
/// its socket.
pub fn unix_lines(text: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut at = 0;
    // Before this place, the bytes may be those of a name.
    let mut doubt = 0;
    let mut lines = super::small::complete_lines(text).peekable();
    std::iter::from_fn(move || {
        loop {
            let line = lines.next()?;
            let (begin, end) = (at, at + line.len());
            at = end + 1;
            let name = unix_name(line);
            let may_be_name = end <= doubt;
            if let Some(name) = name {
                doubt = doubt.max(begin + name + NAME_MAX);
            }
            if may_be_name || !is_of_unix(line) {
                continue;
            }
            // A line that does not look like a socket is a part of the name.
            let rest = at;
            while name.is_some() {
                let Some(next) = lines.peek() else { break };
                if at + next.len() > doubt || is_of_unix(next) {
                    break;
                }
                at += next.len() + 1;
                lines.next();
            }
            return Some((line, text.get(rest..at.saturating_sub(1)).unwrap_or_default()));
        }
    })
}

/// The address that the text of /proc/PID/net/unix has for each unix socket, by inode. If several
/// lines name a socket, only a line that is certainly the kernel's counts: see `unix_lines`.
pub fn unix_addresses(text: &[u8]) -> HashMap<u64, &[u8]> {
    let words = |line| {
        let f = Words::new(line);
        Some((decimal(f.at(6)?)?, f.at(0)?.strip_suffix(b":")?))
    };
    let mut all: HashMap<u64, Option<&[u8]>> = HashMap::new();
    for (inode, address) in
        super::small::complete_lines(text).filter(|l| is_of_unix(l)).filter_map(words)
    {
        all.entry(inode).and_modify(|a| *a = None).or_insert(Some(address));
    }
    for (inode, address) in unix_lines(text).filter_map(|(line, _)| words(line)) {
        all.insert(inode, Some(address));
    }
    all.into_iter().filter_map(|(inode, address)| Some((inode, address?))).collect()
}

/// Where the name of a line of a unix socket begins. `None`: the line is not about a unix socket,
/// or the socket has no name.
fn unix_name(line: &[u8]) -> Option<usize> {
    let end = is_of_unix(line).then(|| Words::new(line).end(6))??;
    (end < line.len()).then_some(end + 1)
}

/// Has it the form in which unix_seq_show() begins a line?
fn is_of_unix(line: &[u8]) -> bool {
    let f = Words::new(line);
    let is_hex = |n| f.at(n).and_then(hex).is_some();
    let is_address = f.at(0).is_some_and(|w| w.ends_with(b":"));
    is_address && (1..6).all(is_hex) && f.at(6).and_then(decimal).is_some()
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
    Some(Sock { record, valid, ..Sock::default() })
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
        net: None,
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
        net: None,
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
        net: None,
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

    /// The inode and the name of each socket that is believed.
    fn believed(text: &[u8]) -> Vec<(u64, Option<String>)> {
        let name = |n: Box<[u8]>| String::from_utf8_lossy(&n).into_owned();
        net_text("net/unix", text).map(|s| (s.record.inode, s.name.map(name))).collect()
    }

    const HEADER: &str = "Num       RefCount Protocol Flags    Type St Inode Path\n";

    /// A line as the kernel writes it.
    fn kernels(inode: u64, name: &str) -> String {
        let name = if name.is_empty() { String::new() } else { format!(" {name}") };
        format!("00000000c6b0a327: 00000002 00000000 00010000 0001 01 {inode:5}{name}\n")
    }

    #[test]
    fn a_name_forges_no_socket() {
        let forged = kernels(12, "/run/d");
        for name in [format!("@x\n{forged}"), format!("\n{forged}"), format!("/tmp/a\nb\n{forged}")]
        {
            let name = name.trim_end_matches('\n');
            assert!(name.len() <= NAME_MAX, "{}", name.len());
            let before = [HEADER.to_owned(), kernels(10, "")].concat();
            let text = [
                &before,
                &kernels(11, name),
                &kernels(77, "/run/a/path/that/is/long/enough/to/be/no/part/of/a/name")[..],
            ];
            let all: Vec<u64> =
                believed(text.concat().as_bytes()).into_iter().map(|s| s.0).collect();
            assert_eq!(all, [10, 11, 77], "{name:?}");
        }
        // The shortest lines that are taken for one, as many as there is room for.
        let short = "0: 0 0 0 0 0 9 /\n".repeat(6);
        let text = [HEADER.to_owned(), kernels(11, &format!("@\n{}", short.trim_end()))].concat();
        assert_eq!(believed(text.as_bytes()).len(), 1);
    }

    #[test]
    fn lines_that_no_name_can_contain_are_accepted() {
        let path = "/run/systemd/journal/stdout-and-more";
        let all = [
            kernels(1, ""),
            kernels(2, path),
            kernels(3, path),
            kernels(4, "@a"),
            kernels(5, path),
        ];
        let text = [&[HEADER.to_owned()][..], &all].concat().concat();
        let name = || Some(path.to_owned());
        let want = [(1, None), (2, name()), (3, name()), (4, Some("@a".to_owned())), (5, name())];
        // Only the line of socket 4 is so short that it may be a part of the name of socket 3.
        let found = believed(text.as_bytes());
        assert!(
            want.iter().filter(|w| w.0 != 4 && w.0 != 5).all(|w| found.contains(w)),
            "{found:?}"
        );
        assert!(found.iter().all(|f| want.contains(f)), "{found:?}");
    }

    #[test]
    fn a_line_of_a_name_is_no_address_of_another_socket() {
        let line = |address: &str, inode, name| {
            kernels(inode, name).replacen("00000000c6b0a327", address, 1)
        };
        let forged = line("bad", 12, "");
        let name = format!("@\n{}", forged.trim_end());
        let text =
            [line("1", 11, &name), line("2", 12, ""), line("3", 13, "@a"), line("4", 14, "")];
        let text = text.concat();
        let found = unix_addresses(text.as_bytes());
        let at = |inode| found.get(&inode).map(|a| String::from_utf8_lossy(a).into_owned());
        assert_eq!([11, 13, 14].map(at), ["1", "3", "4"].map(|a| Some(a.to_owned())));
        // The kernel's own line for the socket is short, too, so that both lines may be a part of a
        // name.
        assert!(at(12).is_none_or(|a| a == "2"), "{found:?}");
    }

    #[test]
    fn a_name_with_line_feeds_is_whole() {
        let text = [HEADER.to_owned(), kernels(5, "/tmp/a\nb\n\nc d"), kernels(6, "")].concat();
        let found = believed(text.as_bytes());
        assert_eq!(found[0], (5, Some("/tmp/a\nb\n\nc d".to_owned())), "{found:?}");
        // No name extends beyond the longest length of a name.
        let text =
            [HEADER.to_owned(), kernels(5, "/tmp/a"), format!("{}\n", "x".repeat(120))].concat();
        assert_eq!(believed(text.as_bytes()), [(5, Some("/tmp/a".to_owned()))]);
    }

    #[test]
    fn an_address_of_several_interfaces_tells_none() {
        let text = b"00000000000000000000000000000001 01 80 10 80       lo\n\
            fe800000000000000000000000000077 1f 40 20 80     eth0\n\
            fe800000000000000000000000000078 02 40 20 80     eth1\n\
            fe800000000000000000000000000078 03 40 20 80     eth2\n\
            fe80 04 40 20 80 eth3\n";
        let found = interfaces(text);
        let of = |address: &str| {
            found.get(&address.parse::<std::net::Ipv6Addr>().expect("an address").octets()).copied()
        };
        let asked = ["::1", "fe80::77", "fe80::78", "fe80::79"].map(of);
        assert_eq!(asked, [Some(1), Some(31), None, None]);
    }

    #[test]
    fn lines_of_netlink_and_packet_sockets_are_parsed() {
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
