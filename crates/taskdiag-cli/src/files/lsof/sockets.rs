//! The data that lsof has about sockets. It looks them up in the kernel's lists for its own network
//! namespace.

use std::net::IpAddr;

use taskdiag::FdType;
use taskdiag::files::{self, OpenFile, Side};
use taskdiag::wire::{Entry, Socket};

use super::cell::{Cells, Device};
use super::kernel::Kernel;
use super::record::Record;

/// `TCP_CLOSE` and `TCP_BOUND_INACTIVE`: a socket in one of these states is in no list.
const NOT_LISTED: [u16; 2] = [7, 13];

/// Is it a socket that lsof finds in none of the lists for internet sockets: one of another network
/// namespace, or without an address?
pub(super) fn is_unknown(cells: &Cells<'_>, file: &OpenFile<'_>) -> bool {
    let is_known =
        |s: &Entry<'_, Socket>| !is_raw(s) && !is_ping(s) && kernels_protocol(cells, s).is_none();
    cells.strict
        && file.fd_type() == Some(FdType::Socket)
        && !file.socket().as_ref().is_some_and(is_known)
}

fn is_inet(s: &Entry<'_, Socket>) -> bool {
    files::is_inet(s.raw)
}

fn is_v6(s: &Entry<'_, Socket>) -> bool {
    i32::from(s.raw.family) == libc::AF_INET6
}

fn is_raw(s: &Entry<'_, Socket>) -> bool {
    is_inet(s) && s.r#type() == Some(libc::SOCK_RAW as u16)
}

fn is_ping(s: &Entry<'_, Socket>) -> bool {
    is_inet(s) && !is_v6(s) && !is_raw(s) && files::protocol(s).is_some_and(|p| p == "ICMP")
}

fn is_packet(s: &Entry<'_, Socket>) -> bool {
    i32::from(s.raw.family) == libc::AF_PACKET
}

/// The kernel's name of the protocol of a socket that is in no list.
fn kernels_protocol(cells: &Cells<'_>, s: &Entry<'_, Socket>) -> Option<&'static str> {
    if !cells.strict {
        return None;
    }
    let foreign = s.netns().filter(|n| *n != 0).zip(cells.all.files.own_netns);
    let foreign = foreign.is_some_and(|(ns, own)| ns != own);
    let unbound = || s.local_port() == Some(0) && s.peer_port() == Some(0);
    let closed = || s.state().is_some_and(|state| NOT_LISTED.contains(&state));
    let protocol = files::protocol(s);
    match (i32::from(s.raw.family), protocol.as_deref()) {
        (libc::AF_INET | libc::AF_INET6, Some("TCP")) if foreign || unbound() || closed() => {
            Some(if is_v6(s) { "TCPv6" } else { "TCP" })
        }
        (libc::AF_INET | libc::AF_INET6, Some("UDP")) if foreign || unbound() => {
            Some(if is_v6(s) { "UDPv6" } else { "UDP" })
        }
        (libc::AF_INET6, Some("ICMPV6")) if !is_raw(s) => Some("PINGv6"),
        (libc::AF_INET, Some("ICMP")) if foreign && !is_raw(s) => Some("PING"),
        (libc::AF_INET | libc::AF_INET6, _) if foreign && is_raw(s) => {
            Some(if is_v6(s) { "RAWv6" } else { "RAW" })
        }
        // The kernel's list has the bound ones.
        (libc::AF_NETLINK, _) if foreign || s.portid().is_none_or(|p| p == 0) => Some("NETLINK"),
        (libc::AF_VSOCK, _) => Some("AF_VSOCK"),
        (libc::AF_XDP, _) => Some("XDP"),
        (libc::AF_ALG, _) => Some("ALG"),
        (libc::AF_UNIX, _) if foreign => Some("UNIX"),
        (libc::AF_PACKET, _) if foreign => Some("PACKET"),
        _ => None,
    }
}

/// The name that `files` has for a socket, without the state.
pub(super) fn without_state(file: &OpenFile<'_>, mut name: Vec<u8>) -> Vec<u8> {
    let Some(s) = file.socket() else { return name };
    let Some(state) = files::state(&s).map(|state| format!(" ({state})")) else { return name };
    let at = match i32::from(s.raw.family) {
        // After the path, which may have any text in it.
        libc::AF_UNIX => {
            let path = s.name().filter(|n| *n != 0).and_then(|n| file.owner.row.view.name(n));
            let kind = files::protocol(&s).map_or(0, |kind| kind.len() + "type=".len());
            Some(path.map_or(0, |p| p.data.len() + 1) + kind)
        }
        _ => memchr::memmem::rfind(&name, state.as_bytes()),
    };
    let range = at.map(|at| at..at + state.len());
    if let Some(range) = range.filter(|r| name.get(r.clone()) == Some(state.as_bytes())) {
        name.drain(range);
    }
    name
}

/// Is it one of the sockets that `-X` does not look at?
fn is_skipped(cells: &Cells<'_>, s: &Entry<'_, Socket>) -> bool {
    cells.strict
        && cells.layout.without_inet
        && is_inet(s)
        && (is_v6(s) || !is_raw(s) && !is_ping(s))
}

fn is_in_no_list(cells: &Cells<'_>, s: &Entry<'_, Socket>) -> bool {
    is_skipped(cells, s) || kernels_protocol(cells, s).is_some()
}

/// The type, if it differs from the one in `files`.
pub(super) fn kind(cells: &Cells<'_>, file: &OpenFile<'_>) -> Option<&'static str> {
    let s = file.socket().filter(|_| cells.strict)?;
    match () {
        () if is_in_no_list(cells, &s) => Some("sock"),
        () if is_raw(&s) => Some(if is_v6(&s) { "raw6" } else { "raw" }),
        () if is_ping(&s) => Some("icmp"),
        () => None,
    }
}

/// The text in the column DEVICE.
pub(super) fn device(cells: &Cells<'_>, file: &OpenFile<'_>) -> Option<Device> {
    let s = file.socket()?;
    if !cells.strict {
        let inode = file.inode().filter(|_| is_inet(&s));
        return inode.map(|inode| Device::Text(inode.to_string()));
    }
    if is_in_no_list(cells, &s) {
        return None;
    }
    Some(match i32::from(s.raw.family) {
        libc::AF_INET | libc::AF_INET6 if is_raw(&s) || is_ping(&s) => Device::None,
        libc::AF_INET | libc::AF_INET6 | libc::AF_PACKET => {
            file.inode().map_or(Device::None, |inode| Device::Text(inode.to_string()))
        }
        libc::AF_NETLINK => Device::None,
        libc::AF_UNIX => {
            let address = file.inode().and_then(|inode| cells.kernel.unix_address(inode));
            address.map_or(Device::None, |text| Device::Text(text.to_owned()))
        }
        _ => return None,
    })
}

/// The protocol, which lsof shows in place of an inode.
pub(super) fn node(cells: &Cells<'_>, file: &OpenFile<'_>) -> Option<String> {
    let s = file.socket()?;
    if !cells.strict {
        return files::protocol(&s).filter(|_| is_inet(&s));
    }
    let has_protocol = is_inet(&s) && !is_raw(&s) && !is_ping(&s) || is_packet(&s);
    files::protocol(&s).filter(|_| has_protocol && !is_in_no_list(cells, &s))
}

/// Is its name made of addresses, which lsof's JSON does not have?
pub(super) fn has_addresses(cells: &Cells<'_>, file: &OpenFile<'_>) -> bool {
    let is =
        |s: &Entry<'_, Socket>| is_inet(s) && !is_raw(s) && !is_ping(s) && !is_in_no_list(cells, s);
    file.socket().as_ref().is_some_and(is)
}

/// The name without the state. `None`: use the name that `files` shows.
pub(super) fn name(cells: &Cells<'_>, file: &OpenFile<'_>) -> Option<Vec<u8>> {
    let s = file.socket().filter(|_| cells.strict)?;
    if cells.layout.without_inet && is_in_no_list(cells, &s) {
        return Some(b"can't identify protocol (-X specified)".to_vec());
    }
    if let Some(protocol) = kernels_protocol(cells, &s) {
        let asked = Kernel::protocol(file);
        return Some(format!("protocol: {}", asked.as_deref().unwrap_or(protocol)).into());
    }
    let mut out = Vec::new();
    match i32::from(s.raw.family) {
        // As the kernel has it in /proc/net/raw, raw6 and icmp.
        libc::AF_INET | libc::AF_INET6 if is_raw(&s) || is_ping(&s) => {
            let text = |side| {
                let (ip, port) = files::address(&s, side)?;
                Some(format!("{}:{port:04X}", kernels_hex(ip)))
            };
            out.extend(format!("{}->{}", text(Side::Local)?, text(Side::Peer)?).bytes());
            if !is_ping(&s) {
                out.extend(format!(" st={:02X}", s.state()?).bytes());
            }
        }
        libc::AF_INET | libc::AF_INET6 => {
            let (ip, port) = files::address(&s, Side::Local)?;
            let udp = files::protocol(&s).is_some_and(|p| p != "TCP");
            cells.hosts.write(cells.layout, &mut out, ip, port, udp);
            let peer = files::address(&s, Side::Peer);
            if let Some((ip, port)) = peer.filter(|(ip, p)| *p != 0 || !ip.is_unspecified()) {
                out.extend_from_slice(b"->");
                cells.hosts.write(cells.layout, &mut out, ip, port, udp);
            }
        }
        libc::AF_UNIX => {
            if let Some(path) = s.name().filter(|n| *n != 0) {
                let path = file.owner.row.view.name(path)?;
                // In abstract names, the kernel's list has @ for NUL.
                out.extend(path.data.iter().map(|b| if *b == 0 { b'@' } else { *b }));
                out.push(b' ');
            }
            out.extend_from_slice(format!("type={}", files::protocol(&s)?).as_bytes());
        }
        libc::AF_NETLINK => out.extend(files::protocol(&s)?.bytes()),
        libc::AF_PACKET => {
            let kind = match i32::from(s.r#type()?) {
                libc::SOCK_RAW => "SOCK_RAW",
                libc::SOCK_DGRAM => "SOCK_DGRAM",
                _ => "SOCK_PACKET",
            };
            out.extend_from_slice(format!("type={kind}").as_bytes());
        }
        _ => return None,
    }
    Some(out)
}

/// An address in the form of the kernel's lists: in words of the machine's byte order.
fn kernels_hex(ip: IpAddr) -> String {
    let word = |b: &[u8]| format!("{:08X}", u32::from_ne_bytes(b.try_into().expect("four")));
    match ip {
        IpAddr::V4(ip) => word(&ip.octets()),
        IpAddr::V6(ip) => ip.octets().chunks(4).map(word).collect(),
    }
}

/// The state of a socket, and the number of bytes in its queues.
pub(super) struct State {
    pub is_unix: bool,
    pub state: Option<&'static str>,
    /// Received, to be sent.
    pub queues: Option<(u64, u64)>,
}

/// `None`: lsof shows no state for this socket.
pub(super) fn state(cells: &Cells<'_>, r: &Record<'_>) -> Option<State> {
    let s = r.file?.socket().filter(|s| !is_in_no_list(cells, s))?;
    let is_unix = i32::from(s.raw.family) == libc::AF_UNIX;
    if is_unix {
        return Some(State { is_unix, state: files::state(&s), queues: None });
    }
    let protocol = files::protocol(&s).filter(|_| is_inet(&s) && !is_raw(&s))?;
    if !matches!(protocol.as_str(), "TCP" | "UDP" | "UDPLITE") {
        return None;
    }
    let state = files::state(&s).filter(|_| protocol != "UDPLITE");
    // The backlog of a listener is in no list of the kernel.
    let sent = match state {
        Some("LISTEN") => Some(0),
        _ => s.send_queue_bytes(),
    };
    Some(State { is_unix, state, queues: s.recv_queue_bytes().zip(sent) })
}

/// The text that follows the name in the table.
pub(super) fn state_cell(cells: &Cells<'_>, r: &Record<'_>) -> Option<String> {
    let asked = cells.layout.states;
    if !(asked.state || asked.queues || asked.flags) {
        return None;
    }
    let State { is_unix, state, queues } = state(cells, r)?;
    let mut words = Vec::new();
    words.extend(state.filter(|_| asked.state).map(String::from));
    if let Some((received, sent)) = queues.filter(|_| asked.queues && !is_unix) {
        words.extend([format!("QR={received}"), format!("QS={sent}")]);
    }
    Some(if words.is_empty() { String::new() } else { format!("({})", words.join(" ")) })
}
