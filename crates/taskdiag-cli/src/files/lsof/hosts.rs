//! The names of hosts and services, as lsof shows them without `-n` and `-P`.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::CStr;
use std::net::{IpAddr, SocketAddr};

use taskdiag::files;

use super::Layout;

/// An address, a port, and whether the port is a UDP port.
type Address = (IpAddr, u16, bool);

/// Names of hosts and services that were looked up.
#[derive(Default)]
pub(super) struct Hosts(RefCell<HashMap<Address, (String, String)>>);

impl Hosts {
    /// Writes an address with its port, or their names.
    pub(super) fn write(
        &self,
        layout: &Layout,
        out: &mut Vec<u8>,
        ip: IpAddr,
        port: u16,
        udp: bool,
    ) {
        // If a socket of IPv6 has an IPv4 address, lsof shows it as one of IPv4.
        let ip = ip.to_canonical();
        let mut numeric = Vec::new();
        files::write_address(&mut numeric, ip, port);
        if layout.numeric_hosts && layout.numeric_ports {
            return out.extend_from_slice(&numeric);
        }
        let numeric = String::from_utf8_lossy(&numeric).into_owned();
        let (host, service) = numeric.rsplit_once(':').expect("it has a port");
        let mut names = self.0.borrow_mut();
        let (host_name, service_name) =
            names.entry((ip, port, udp)).or_insert_with(|| look_up(ip, port, udp));
        let is_named = !layout.numeric_hosts && !ip.is_unspecified() && !host_name.is_empty();
        out.extend_from_slice(if is_named { host_name } else { host }.as_bytes());
        out.push(b':');
        let is_named = !layout.numeric_ports && port != 0 && !service_name.is_empty();
        out.extend_from_slice(if is_named { service_name } else { service }.as_bytes());
    }
}

/// The names of a host and of a service; empty if they have none.
fn look_up(ip: IpAddr, port: u16, udp: bool) -> (String, String) {
    let address = SocketAddr::new(ip, port);
    let look = |flags| name_of(&address, flags | if udp { libc::NI_DGRAM } else { 0 });
    let host = look(libc::NI_NAMEREQD | libc::NI_NUMERICSERV).map(|(host, _)| host);
    let service = look(libc::NI_NUMERICHOST).map(|(_, service)| service);
    (host.unwrap_or_default(), service.unwrap_or_default())
}

fn name_of(address: &SocketAddr, flags: i32) -> Option<(String, String)> {
    let (mut host, mut service) = ([0u8; 1025], [0u8; 64]);
    // SAFETY: plain data, for which all zeroes are a valid value.
    let mut v4: libc::sockaddr_in = unsafe { std::mem::zeroed() };
    // SAFETY: the same.
    let mut v6: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
    let (raw, size): (*const libc::sockaddr, usize) = match address {
        SocketAddr::V4(a) => {
            v4.sin_family = libc::AF_INET as u16;
            v4.sin_port = a.port().to_be();
            v4.sin_addr.s_addr = u32::from_ne_bytes(a.ip().octets());
            ((&raw const v4).cast(), size_of_val(&v4))
        }
        SocketAddr::V6(a) => {
            v6.sin6_family = libc::AF_INET6 as u16;
            v6.sin6_port = a.port().to_be();
            v6.sin6_addr.s6_addr = a.ip().octets();
            ((&raw const v6).cast(), size_of_val(&v6))
        }
    };
    // SAFETY: the address is one of `size` bytes that lives until the end of this function, and
    // each buffer has as many bytes as the length passed with it.
    let failed = unsafe {
        libc::getnameinfo(
            raw,
            size as libc::socklen_t,
            host.as_mut_ptr().cast(),
            host.len() as libc::socklen_t,
            service.as_mut_ptr().cast(),
            service.len() as libc::socklen_t,
            flags,
        )
    };
    let text = |bytes: &[u8]| {
        let text = CStr::from_bytes_until_nul(bytes).ok()?;
        Some(text.to_string_lossy().into_owned())
    };
    if failed == 0 { Some((text(&host)?, text(&service)?)) } else { None }
}
