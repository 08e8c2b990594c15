//! Selections by `-i` and `-s`: `[4|6][protocol][@host][:ports]` and `protocol:states`, as in lsof.

use std::net::{IpAddr, ToSocketAddrs};
use std::ops::RangeInclusive;

use taskdiag::files::{self, Side};
use taskdiag::wire::{Entry, Socket};

use crate::exit::Exit;

/// One `-i`. Parts that are not given match everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inet {
    family: Option<u16>,
    /// Name in capitals.
    protocol: Option<String>,
    hosts: Option<Vec<Host>>,
    ports: Option<Vec<RangeInclusive<u16>>>,
}

/// An address, and the number of the interface that it belongs to, if one was given.
type Host = (IpAddr, Option<u32>);

const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;

/// Protocols that users may name: TCP, UDP, and others of the kernel.
const PROTOCOLS: &[&str] =
    &["TCP", "UDP", "UDPLITE", "SCTP", "DCCP", "MPTCP", "ICMP", "ICMPV6", "RAW"];

fn bad(spec: &str, why: &str) -> Exit {
    Exit::Usage(format!(
        "-i {spec}: {why}; it takes [4|6][protocol][@host][:ports], as in -i :443 or \
         -i 4TCP@127.0.0.1:80,8000-8080"
    ))
}

impl Inet {
    /// The word after `-i`. If it is empty, all sockets of both families match.
    pub fn parse(spec: &str) -> Result<Inet, Exit> {
        let mut out = Inet::default();
        let mut rest = spec;
        if let Some(after) = rest.strip_prefix(['4', '6']) {
            out.family = Some(if rest.starts_with('4') { AF_INET } else { AF_INET6 });
            rest = after;
        }
        let end = rest.find(['@', ':']).unwrap_or(rest.len());
        let (protocol, after) = rest.split_at(end);
        if !protocol.is_empty() {
            let name = protocol.to_ascii_uppercase();
            if !PROTOCOLS.contains(&name.as_str()) {
                return Err(bad(spec, &format!("there is no protocol '{protocol}'")));
            }
            out.protocol = Some(name);
        }
        rest = after;
        if let Some(after) = rest.strip_prefix('@') {
            // An IPv6 address stands in brackets, as lsof wants it; a bare one has no port.
            let (host, after) = match after.strip_prefix('[') {
                Some(v6) => match v6.split_once(']') {
                    Some(parts) => parts,
                    None => return Err(bad(spec, "the ']' is missing")),
                },
                None if scoped(after).is_some() => (after, ""),
                None => after.split_at(after.find(':').unwrap_or(after.len())),
            };
            out.hosts = Some(hosts(spec, host)?);
            rest = after;
        }
        if let Some(list) = rest.strip_prefix(':') {
            out.ports = Some(ports(spec, list, out.protocol.as_deref())?);
        } else if !rest.is_empty() {
            return Err(bad(spec, &format!("'{rest}' is left over")));
        }
        Ok(out)
    }
    /// Does this socket match? Host and port may be those of either end, but both must match the
    /// same end.
    pub fn matches(&self, s: &Entry<'_, Socket>) -> bool {
        if !files::is_inet(s.raw) {
            return false;
        }
        if self.protocol.as_deref().is_some_and(|p| !is_protocol(s, p)) {
            return false;
        }
        let family = |is: u16| self.family.is_none_or(|f| f == is);
        if self.hosts.is_none() && self.ports.is_none() {
            return family(s.raw.family);
        }
        [Side::Local, Side::Peer].into_iter().any(|side| {
            let Some((ip, port)) = files::address(s, side) else { return false };
            // A socket that listens or is not connected has no peer, and must not match port 0.
            if side == Side::Peer && port == 0 && ip.is_unspecified() {
                return false;
            }
            // An IPv4-mapped address of an IPv6 socket counts as IPv4, as in lsof.
            let ip = ip.to_canonical();
            let host = |hosts: &Vec<Host>| {
                hosts.iter().any(|(h, scope)| {
                    *h == ip && scope.is_none_or(|n| files::scope(s, ip) == Some(n))
                })
            };
            family(if ip.is_ipv4() { AF_INET } else { AF_INET6 })
                && self.hosts.as_ref().is_none_or(host)
                && self.ports.as_ref().is_none_or(|p| p.iter().any(|r| r.contains(&port)))
        })
    }
}

/// Is this the name of its protocol? Multipath TCP is TCP, too.
fn is_protocol(s: &Entry<'_, Socket>, name: &str) -> bool {
    match name {
        "MPTCP" => files::is_multipath(s),
        _ => files::protocol(s).is_some_and(|p| p == name),
    }
}

/// An address, which may have a scope: the number or the name of an interface.
fn scoped(text: &str) -> Option<Host> {
    let Some((ip, scope)) = text.split_once('%') else {
        return text.parse::<IpAddr>().ok().map(|ip| (ip.to_canonical(), None));
    };
    let ip: std::net::Ipv6Addr = ip.parse().ok()?;
    let index = scope.parse().ok().or_else(|| {
        let name = std::ffi::CString::new(scope).ok()?;
        // SAFETY: the name ends in NUL.
        Some(unsafe { libc::if_nametoindex(name.as_ptr()) }).filter(|n| *n != 0)
    })?;
    Some((ip.into(), Some(index)))
}

fn hosts(spec: &str, host: &str) -> Result<Vec<Host>, Exit> {
    if let Some(host) = scoped(host) {
        return Ok(vec![host]);
    }
    let found = (host, 0).to_socket_addrs();
    let found = found.map_err(|e| bad(spec, &format!("the host '{host}' is not found ({e})")))?;
    Ok(found.map(|a| (a.ip().to_canonical(), None)).collect())
}

fn ports(spec: &str, list: &str, protocol: Option<&str>) -> Result<Vec<RangeInclusive<u16>>, Exit> {
    let mut out = Vec::new();
    for item in list.split(',') {
        let number = |s: &str| s.parse::<u16>().ok();
        let range = item.split_once('-').and_then(|(a, b)| Some(number(a)?..=number(b)?));
        match (number(item), range) {
            (Some(n), _) => out.push(n..=n),
            (_, Some(r)) if !r.is_empty() => out.push(r),
            _ => {
                let known = services(item, protocol);
                if known.is_empty() {
                    return Err(bad(spec, &format!("'{item}' is not a port, range or service")));
                }
                out.extend(known.into_iter().map(|n| n..=n));
            }
        }
    }
    Ok(out)
}

/// Ports of a service by its name in /etc/services.
fn services(name: &str, protocol: Option<&str>) -> Vec<u16> {
    let text = std::fs::read_to_string("/etc/services").unwrap_or_default();
    let line = |l: &str| -> Option<u16> {
        let mut words = l.split('#').next()?.split_whitespace();
        let (first, port) = (words.next()?, words.next()?);
        let (number, of) = port.split_once('/')?;
        let named = first == name || words.any(|w| w == name);
        let right = protocol.is_none_or(|p| p.eq_ignore_ascii_case(of));
        number.parse().ok().filter(|_| named && right)
    };
    let mut all: Vec<u16> = text.lines().filter_map(line).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// An option `-s`: selects sockets of a protocol by their states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct States {
    protocol: String,
    only: Vec<&'static str>,
    not: Vec<&'static str>,
}

impl States {
    /// From `TCP:LISTEN,^CLOSE_WAIT`.
    pub fn parse(spec: &str) -> Result<States, Exit> {
        let bad = |why: String| {
            Exit::Usage(format!("-s {spec}: {why}; it takes protocol:states, as in -s TCP:LISTEN"))
        };
        let Some((protocol, list)) = spec.split_once(':') else {
            return Err(bad(String::from("the ':' is missing")));
        };
        let mut out = States { protocol: protocol.to_ascii_uppercase(), only: vec![], not: vec![] };
        if !["TCP", "MPTCP", "UDP", "UDPLITE"].contains(&out.protocol.as_str()) {
            return Err(bad(format!("'{protocol}' has no states here")));
        }
        for item in list.split(',') {
            let (name, not) = match item.strip_prefix('^') {
                Some(name) => (name, true),
                None => (item, false),
            };
            let number = files::state_number(name);
            let Some(state) = number.and_then(files::state_name) else {
                return Err(bad(format!("there is no state '{name}'")));
            };
            if not { out.not.push(state) } else { out.only.push(state) }
        }
        Ok(out)
    }
    /// Does this socket pass? If wanted states are named, a socket of another protocol does not.
    pub fn passes(&self, s: &Entry<'_, Socket>) -> bool {
        if !files::is_inet(s.raw) {
            return true;
        }
        if !is_protocol(s, &self.protocol) {
            return self.only.is_empty();
        }
        let Some(state) = files::state(s) else { return self.only.is_empty() };
        (self.only.is_empty() || self.only.contains(&state)) && !self.not.contains(&state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use taskdiag::wire::build;

    fn socket(family: u16, protocol: u16, local: (u8, u16), peer: (u8, u16)) -> Socket {
        let address = |last: u8| {
            let mut a = [0; 16];
            match family {
                _ if last == 0 => {}
                2 => a[..4].copy_from_slice(&[127, 0, 0, last]),
                _ => a[15] = last,
            }
            a
        };
        build!(Socket {
            family,
            r#type: if protocol == 6 { 1 } else { 2 },
            protocol,
            state: if peer.1 == 0 { 10 } else { 1 },
            local_addr: address(local.0),
            local_port: local.1,
            peer_addr: address(peer.0),
            peer_port: peer.1,
            ..Socket::default()
        })
    }

    fn selects(spec: &str) -> String {
        let inet = Inet::parse(spec).unwrap_or_else(|e| panic!("{spec}: {e:?}"));
        let all = [
            ("t", socket(2, 6, (1, 443), (9, 5000))),
            ("l", socket(2, 6, (1, 22), (0, 0))),
            ("u", socket(2, 17, (1, 53), (0, 0))),
            ("6", socket(10, 6, (1, 22), (1, 443))),
            ("x", socket(1, 0, (1, 22), (1, 443))),
        ];
        let hit = |s: &Socket| inet.matches(&Entry { valid: Socket::ALL_VALID, raw: s });
        all.iter().filter(|(_, s)| hit(s)).map(|(n, _)| *n).collect()
    }

    #[test]
    fn an_address_selects_the_same_sockets_as_in_lsof() {
        for (spec, want) in [
            ("", "tlu6"),
            ("4", "tlu"),
            ("6", "6"),
            ("TCP", "tl6"),
            ("udp", "u"),
            ("4TCP", "tl"),
            (":22", "l6"),
            (":443", "t6"),
            ("TCP:22", "l6"),
            ("6tcp:22", "6"),
            (":20-60", "lu6"),
            (":1,53,5000", "tu"),
            ("@127.0.0.1", "tlu"),
            ("@127.0.0.9", "t"),
            ("@127.0.0.1:22", "l"),
            // Host of one end and port of the other do not make a match.
            ("@127.0.0.9:443", ""),
            ("@[::1]:443", "6"),
            ("@::1", "6"),
            ("TCP@127.0.0.9:5000", "t"),
            (":domain", "u"),
            // A socket without a peer does not match port 0.
            (":0", ""),
            (":0-60", "lu6"),
        ] {
            assert_eq!(selects(spec), want, "{spec}");
        }
        for bad in
            ["x", "4x", ":99999", ":", ":5-2", "@[::1", "@[::1]x", "TCPx:22", "@no such host"]
        {
            assert!(Inet::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn mapped_addresses_are_of_ipv4_where_addresses_count() {
        let mut s = socket(10, 6, (1, 22), (1, 443));
        for a in [&mut s.local_addr, &mut s.peer_addr] {
            *a = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 127, 0, 0, 1];
        }
        for (spec, want) in [
            ("4", false),
            ("6", true),
            ("4:22", true),
            ("6:22", false),
            ("4@127.0.0.1", true),
            ("6@127.0.0.1", false),
            ("@127.0.0.1:443", true),
        ] {
            let inet = Inet::parse(spec).expect(spec);
            let got = inet.matches(&Entry { valid: Socket::ALL_VALID, raw: &s });
            assert_eq!(got, want, "{spec}");
        }
    }

    #[test]
    fn conditions_on_states_select_sockets() {
        let passes = |spec: &str, s: &Socket| {
            States::parse(spec).expect(spec).passes(&Entry { valid: Socket::ALL_VALID, raw: s })
        };
        let (up, listen) = (socket(2, 6, (1, 1), (1, 1)), socket(2, 6, (1, 1), (0, 0)));
        assert!(passes("TCP:LISTEN", &listen) && !passes("TCP:LISTEN", &up));
        assert!(passes("tcp:listen,established", &up));
        assert!(passes("TCP:^LISTEN", &up) && !passes("TCP:^LISTEN", &listen));
        assert!(!passes("TCP:LISTEN", &socket(2, 17, (1, 1), (0, 0))));
        assert!(passes("TCP:^LISTEN", &socket(2, 17, (1, 1), (0, 0))));
        for bad in ["LISTEN", "TCP:", "TCP:NOSUCH", "UDP:Idle"] {
            assert!(States::parse(bad).is_err(), "{bad}");
        }
    }
}
