//! Describes sockets in words, with addresses as lsof writes them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use taskdiag_wire::{Entry, Socket};

use super::words;

/// An end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// This end.
    Local,
    /// The other end.
    Peer,
}

/// Whether the socket is of one of the internet families.
pub fn is_inet(s: &Socket) -> bool {
    matches!(i32::from(s.family), libc::AF_INET | libc::AF_INET6)
}

/// Address and port of an internet socket, if both are known.
pub fn address(s: &Entry<'_, Socket>, side: Side) -> Option<(IpAddr, u16)> {
    let (bytes, port) = match side {
        Side::Local => (s.local_addr()?, s.local_port()?),
        Side::Peer => (s.peer_addr()?, s.peer_port()?),
    };
    let ip = match i32::from(s.family()?) {
        libc::AF_INET => Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]).into(),
        libc::AF_INET6 => Ipv6Addr::from(bytes).into(),
        _ => return None,
    };
    Some((ip, port))
}

/// Whether this is a TCP socket with multipath TCP. Its [`protocol`] is TCP, because clients
/// connect to it with TCP, and `ss` and lsof list it so. Servers made with Go 1.24 or newer listen
/// on such sockets.
pub fn is_multipath(s: &Entry<'_, Socket>) -> bool {
    is_inet(s.raw) && s.protocol().is_some_and(|p| i32::from(p) == libc::IPPROTO_MPTCP)
}

/// The interface of a link-local address, without which such an address has no meaning. The numbers
/// of interfaces belong to the network namespace.
pub fn scope(s: &Entry<'_, Socket>, ip: IpAddr) -> Option<u32> {
    s.ifindex().filter(|index| needs_scope(ip) && *index != 0)
}

fn needs_scope(ip: IpAddr) -> bool {
    let IpAddr::V6(v6) = ip else { return false };
    v6.is_unicast_link_local() || matches!(v6.octets(), [0xff, b, ..] if b & 0xf == 2)
}

/// The text after an address: `%2` with the [`scope`], and `%?` if the address has one that is not
/// known.
fn scope_text(s: &Entry<'_, Socket>, ip: IpAddr) -> String {
    match scope(s, ip) {
        Some(index) => format!("%{index}"),
        None if needs_scope(ip) && s.ifindex().is_none() => String::from("%?"),
        None => String::new(),
    }
}

/// The address in text, with the scope of [`scope`]: `127.0.0.1`, `fe80::1%2`. If the interface is
/// not known, it is `fe80::1%?`.
pub fn address_text(s: &Entry<'_, Socket>, ip: IpAddr) -> String {
    format!("{ip}{}", scope_text(s, ip))
}

/// Writes `127.0.0.1:80`, `[::1]:80` or `*:80`. A port of 0 is `*`.
pub fn write_address(out: &mut Vec<u8>, ip: IpAddr, port: u16) {
    let text = match ip {
        _ if ip.is_unspecified() => String::from("*"),
        IpAddr::V4(v4) => v4.to_string(),
        IpAddr::V6(v6) => format!("[{v6}]"),
    };
    out.extend_from_slice(text.as_bytes());
    match port {
        0 => out.extend_from_slice(b":*"),
        n => out.extend_from_slice(format!(":{n}").as_bytes()),
    }
}

/// The protocol in a word, for any family: `TCP`, `STREAM`, `ROUTE`.
pub fn protocol(s: &Entry<'_, Socket>) -> Option<String> {
    let number = s.protocol();
    let (name, number) = match i32::from(s.family()?) {
        libc::AF_INET | libc::AF_INET6 if s.r#type() == Some(libc::SOCK_RAW as u16) => {
            (Some("RAW"), 0)
        }
        libc::AF_INET | libc::AF_INET6 if is_multipath(s) => (Some("TCP"), 0),
        libc::AF_INET | libc::AF_INET6 => (words::protocol_name(number?), number?),
        libc::AF_UNIX => (words::socket_kind(s.r#type()?), s.r#type()?),
        libc::AF_NETLINK => (words::netlink_name(number?), number?),
        libc::AF_PACKET => (words::ethertype_name(number?), number?),
        _ => (None, number?),
    };
    Some(name.map_or_else(|| number.to_string(), String::from))
}

/// The state in a word, for sockets with a state.
pub fn state(s: &Entry<'_, Socket>) -> Option<&'static str> {
    let state = s.state()?;
    match i32::from(s.family()?) {
        libc::AF_UNIX => words::unix_state(state),
        libc::AF_INET | libc::AF_INET6 => match i32::from(s.protocol()?) {
            libc::IPPROTO_TCP | libc::IPPROTO_MPTCP | libc::IPPROTO_SCTP | libc::IPPROTO_DCCP => {
                words::state_name(state)
            }
            // Other protocols have no connection states, but the kernel marks sockets with a peer.
            _ => words::state_name(state).filter(|s| *s == "ESTABLISHED"),
        },
        _ => None,
    }
}

/// Writes `127.0.0.1:80->127.0.0.1:5000 (ESTABLISHED)`.
pub(crate) fn write_inet(out: &mut Vec<u8>, s: &Entry<'_, Socket>) {
    let write = |out: &mut Vec<u8>, ip: IpAddr, port| {
        write_address(out, ip, port);
        let scope = scope_text(s, ip);
        if let (false, Some(at)) = (scope.is_empty(), out.iter().rposition(|b| *b == b']')) {
            out.splice(at..at, scope.bytes());
        }
    };
    match address(s, Side::Local) {
        Some((ip, port)) => write(out, ip, port),
        None => out.push(b'?'),
    }
    if let Some((ip, port)) =
        address(s, Side::Peer).filter(|(ip, p)| *p != 0 || !ip.is_unspecified())
    {
        out.extend_from_slice(b"->");
        write(out, ip, port);
    }
    if let Some(state) = state(s) {
        out.extend_from_slice(format!(" ({state})").as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use taskdiag_wire::build;
    use taskdiag_wire::layout::bit;

    #[test]
    fn an_address_whose_interface_is_not_known_ends_in_a_question_mark() {
        let text = |address: &str, ifindex: Option<u32>| {
            let ip: Ipv6Addr = address.parse().expect("an address");
            let raw = build!(Socket {
                family: libc::AF_INET6 as u16,
                local_addr: ip.octets(),
                ifindex: ifindex.unwrap_or(0),
                ..Socket::default()
            });
            let lacks = if ifindex.is_none() { bit(Socket::MEMBERS, "ifindex") } else { 0 };
            address_text(&Entry { valid: Socket::ALL_VALID & !lacks, raw: &raw }, ip.into())
        };
        for (address, ifindex, want) in [
            ("fe80::1", Some(2), "fe80::1%2"),
            ("fe80::1", Some(0), "fe80::1"),
            ("fe80::1", None, "fe80::1%?"),
            ("ff02::fb", None, "ff02::fb%?"),
            ("::1", None, "::1"),
            ("2001:db8::1", None, "2001:db8::1"),
            ("2001:db8::1", Some(2), "2001:db8::1"),
        ] {
            assert_eq!(text(address, ifindex), want);
        }
    }
}
