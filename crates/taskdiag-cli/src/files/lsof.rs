//! The table of lsof, byte for byte: its columns, which are as wide as what is in them, and what it knows of sockets, which is
//! less than `taskdiag files` shows.
//!
//! What is selected is the same as for any other table. lsof also shows the kernel's address of a unix socket as its device. The
//! answer does not have it, since it helps only who attacks.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::ffi::CStr;
use std::net::{IpAddr, SocketAddr};

use taskdiag::field::{self, Context, FILES, Field, OpenRow, Part, Row, Value};
use taskdiag::files::{self, OpenFile, Side, What};
use taskdiag::wire::{Entry, Socket};
use taskdiag::{FdType, PathKind};

use super::Shown;
use super::select::FileSelection;
use crate::args::files::FilesArgs;
use crate::exit::Exit;
use crate::output::Sink;

/// What the table shows.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// `-o`: the offset, not the size.
    pub offset: bool,
    /// `-s`: the size only.
    pub size: bool,
    /// `+L`: the number of links.
    pub links: bool,
    /// `-g`: the process group.
    pub groups: bool,
    /// `+c`: the most letters of the command that are shown.
    pub command: usize,
    /// `-n`: addresses, not the names of hosts.
    pub numeric_hosts: bool,
    /// `-P`: numbers, not the names of services.
    pub numeric_ports: bool,
    /// `-l`: uids, not the names of users.
    pub numeric_users: bool,
}

impl Default for Layout {
    fn default() -> Layout {
        Layout {
            offset: false,
            size: false,
            links: false,
            groups: false,
            command: 9,
            numeric_hosts: false,
            numeric_ports: false,
            numeric_users: false,
        }
    }
}

/// An offset with more digits is shown in hexadecimal.
const OFFSET_DIGITS: usize = 8;

/// What is in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cell {
    Command,
    Pid,
    Parent,
    Group,
    User,
    Fd,
    Type,
    Device,
    Size,
    Links,
    Node,
    Name,
}

/// The fields that cells are made from.
const FIELDS: &[(Cell, &str)] = &[
    (Cell::Command, "command"),
    (Cell::Pid, "task.pid"),
    (Cell::Parent, "task.ppid"),
    (Cell::Group, "task.pgid"),
    (Cell::User, "task.user"),
    (Cell::Fd, "fd_lock"),
    (Cell::Type, "type"),
    (Cell::Device, "device"),
    (Cell::Size, "size_off"),
    (Cell::Links, "nlink"),
    (Cell::Node, "node"),
    (Cell::Name, "name"),
];

/// The fields of the table.
pub fn fields() -> impl Iterator<Item = &'static Field> {
    FIELDS.iter().map(|(_, name)| field_of(name))
}

fn field_of(name: &str) -> &'static Field {
    FILES.find(name).expect("the table has it").field
}

struct Column {
    cell: Cell,
    title: &'static str,
    width: usize,
    field: &'static Field,
}

/// The columns that are shown, as wide as their titles.
fn columns(args: &FilesArgs, layout: &Layout) -> Vec<Column> {
    let size = match (layout.offset, layout.size) {
        (true, _) => "OFFSET",
        (_, true) => "SIZE",
        _ => "SIZE/OFF",
    };
    let all = [
        (Cell::Command, "COMMAND", true),
        (Cell::Pid, "PID", true),
        (Cell::Parent, "PPID", args.parents),
        (Cell::Group, "PGID", args.groups),
        (Cell::User, "USER", true),
        // Blanks stand below the letters of access and lock.
        (Cell::Fd, "FD  ", true),
        (Cell::Type, "TYPE", true),
        (Cell::Device, "DEVICE", true),
        (Cell::Size, size, true),
        (Cell::Links, "NLINK", layout.links),
        (Cell::Node, "NODE", true),
        (Cell::Name, "NAME", true),
    ];
    let shown = all.into_iter().filter(|(_, _, shown)| *shown);
    let column = |(cell, title, _): (Cell, &'static str, bool)| {
        let (_, name) = FIELDS.iter().find(|(c, _)| *c == cell).expect("each cell has a field");
        Column { cell, title, width: title.len(), field: field_of(name) }
    };
    shown.map(column).collect()
}

/// Writes the table; was there any row?
pub(super) fn write(
    all: &Shown<'_>,
    cx: &Context,
    args: &FilesArgs,
    layout: &Layout,
) -> Result<bool, Exit> {
    let table = LsofTable { all, cx, layout, names: RefCell::default() };
    let mut columns = columns(args, layout);
    let rows = || all.opened.owners().flat_map(|owner| all.opened.files_of(owner));
    let shown = |file: &OpenFile<'_>| {
        (args.select.inet.is_empty() || !table.is_unknown(file))
            && file.path.is_none_or(|p| p.reason.is_none())
            && !(is_unmapped(file) && (args.select.deleted || args.select.links_below.is_some()))
    };
    let mut any = false;
    for file in rows().filter(shown) {
        any = true;
        let row = file.owner.row.with_part(Part::File(OpenRow::new(&file, all.files)));
        for column in columns.iter_mut().filter(|c| c.cell != Cell::Name) {
            let len = table.cell(column, &row, &file, layout.command).len();
            column.width = column.width.max(len);
        }
    }
    let mut sink = Sink::stdout();
    if any {
        line(sink.buf(), &columns, |c| c.title.into());
    }
    for file in rows().filter(shown) {
        let row = file.owner.row.with_part(Part::File(OpenRow::new(&file, all.files)));
        line(sink.buf(), &columns, |c| table.cell(c, &row, &file, c.width));
        sink.settle()?;
    }
    sink.finish()?;
    Ok(any)
}

/// Has it an inode in no directory, with a size that means nothing?
fn is_of_inode(file: &OpenFile<'_>) -> bool {
    file.lsof_type() == "a_inode" || matches!(file.fd_type(), Some(FdType::Ns | FdType::Mqueue))
}

/// The size of such an inode. That of a queue is the kernel's FILENT_SIZE.
fn inode_size(file: &OpenFile<'_>) -> u32 {
    if file.fd_type() == Some(FdType::Mqueue) { 80 } else { 0 }
}

/// Is it a mapped file that was deleted?
fn is_unmapped(file: &OpenFile<'_>) -> bool {
    matches!(file.what, What::Mapped(_)) && file.has_mark()
}

/// Was everything found that was looked for? If not, lsof ends with 1.
pub(super) fn is_all_found(all: &Shown<'_>, select: &FileSelection) -> bool {
    let owners = || all.opened.owners().map(|o| &o.row);
    let rows = || all.opened.owners().flat_map(|owner| all.opened.files_of(owner));
    let seen: HashSet<(u32, u64)> = match select.places.is_empty() {
        true => HashSet::new(),
        false => rows().filter_map(|f| f.dev().zip(f.inode())).collect(),
    };
    select.pids.only.iter().all(|pid| owners().any(|r| r.view.tgid() == *pid))
        && select
            .pgids
            .only
            .iter()
            .all(|id| owners().any(|r| r.base.and_then(|b| b.pgid()) == Some(*id)))
        && select
            .uids
            .only
            .iter()
            .all(|uid| owners().any(|r| r.cred.and_then(|c| c.euid()) == Some(*uid)))
        && select
            .commands
            .only
            .iter()
            .all(|name| owners().any(|r| r.comm.is_some_and(|comm| name.is(comm))))
        && select
            .inet
            .iter()
            .all(|inet| rows().any(|f| f.socket().is_some_and(|s| inet.matches(&s))))
        && select.places.iter().all(|place| place.is_found_in(&seen))
}

fn line(out: &mut Vec<u8>, columns: &[Column], text: impl Fn(&Column) -> Vec<u8>) {
    for column in columns {
        let text = text(column);
        let blanks = vec![b' '; column.width.saturating_sub(text.len())];
        match column.cell {
            Cell::Command => {
                out.extend_from_slice(&text);
                out.extend_from_slice(&blanks);
            }
            Cell::Name => {
                out.push(b' ');
                out.extend_from_slice(&text);
            }
            _ => {
                out.push(b' ');
                out.extend_from_slice(&blanks);
                out.extend_from_slice(&text);
            }
        }
    }
    out.push(b'\n');
}

struct LsofTable<'a> {
    all: &'a Shown<'a>,
    cx: &'a Context,
    layout: &'a Layout,
    /// Names of hosts and services that were looked up.
    names: RefCell<HashMap<Address, (String, String)>>,
}

/// An address, a port, and whether it is one of UDP.
type Address = (IpAddr, u16, bool);

impl LsofTable<'_> {
    fn cell(&self, column: &Column, row: &Row<'_>, file: &OpenFile<'_>, most: usize) -> Vec<u8> {
        let socket = file.socket();
        match (column.cell, socket) {
            (Cell::Command, _) => return safe(row.comm.unwrap_or_default(), true, most),
            (Cell::User, _) => return self.user(row),
            // Numbers, cwd and rtd have room for four digits, and letters of access and lock behind them.
            (Cell::Fd, _)
                if matches!(
                    file.what,
                    What::Fd(_) | What::Path(PathKind::Cwd | PathKind::Root, _)
                ) =>
            {
                let mut text = self.text(column.field, row);
                // lsof does not see that a file opened with O_PATH can be neither read nor written.
                let bare = file.access().filter(|_| text.ends_with(b"  "));
                if let (Some(_), [.., access, _]) = (bare, &mut text[..]) {
                    *access = b'u';
                }
                return [&b"    "[..6usize.saturating_sub(text.len()).min(4)], &text[..]].concat();
            }
            // It is known from the list of mappings only, which has no size.
            (Cell::Size | Cell::Links, _) if is_unmapped(file) => return Vec::new(),
            (Cell::Name, _) if is_unmapped(file) => {
                let path = file.path.map_or(&b""[..], |p| p.bytes);
                return safe(path, false, usize::MAX);
            }
            (Cell::Size, _) => return self.size(column, row, file),
            (Cell::Links, _) => {
                let known = file.nlink().filter(|_| file.fd_type() != Some(FdType::Socket));
                return known.map_or(Vec::new(), |n| format!(" {n}").into());
            }
            (Cell::Name, socket) => return safe(&self.name(row, file, socket), false, usize::MAX),
            // lsof knows neither namespaces nor queues.
            (Cell::Type, _) if matches!(file.fd_type(), Some(FdType::Ns | FdType::Mqueue)) => {
                return b"REG".to_vec();
            }
            (cell, Some(s)) => {
                if let Some(text) = self.of_socket(cell, file, &s) {
                    return text;
                }
            }
            _ => {}
        }
        self.text(column.field, row)
    }
    fn text(&self, field: &Field, row: &Row<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        match (field.get)(self.cx, row) {
            Value::Missing(_) => {}
            value => field::text(&mut out, self.cx, field.text, Some(row), &value),
        }
        out
    }
    fn user(&self, row: &Row<'_>) -> Vec<u8> {
        let Some(uid) = row.cred.and_then(|c| c.euid()) else { return Vec::new() };
        let name = if self.layout.numeric_users { None } else { self.cx.names.user(uid) };
        name.map_or_else(|| format!("{uid:8}").into(), |name| name.to_vec())
    }
    fn size(&self, column: &Column, row: &Row<'_>, file: &OpenFile<'_>) -> Vec<u8> {
        let offset = || {
            let text = file.pos_bytes().map(|pos| match pos.checked_ilog10() {
                Some(n) if n as usize >= OFFSET_DIGITS => format!("0x{pos:x}"),
                _ => format!("0t{pos}"),
            });
            text.map_or(Vec::new(), String::into_bytes)
        };
        let size = || match file.size_bytes() {
            Some(size) => size.to_string().into(),
            // They have an inode, and lsof shows its size.
            None if is_of_inode(file) => inode_size(file).to_string().into(),
            None => Vec::new(),
        };
        match (self.layout.offset, self.layout.size) {
            (true, _) => offset(),
            (_, true) => size(),
            _ if is_of_inode(file) || file.size_bytes().is_some() => size(),
            _ if file.fd().is_some() => offset(),
            _ => self.text(column.field, row),
        }
    }
    /// Is it a socket that lsof finds in none of the lists of the kernel: one of another network namespace, or without an
    /// address?
    fn is_unknown(&self, file: &OpenFile<'_>) -> bool {
        file.fd_type() == Some(FdType::Socket)
            && file.socket().is_none_or(|s| is_raw(&s) || self.kernels_protocol(&s).is_some())
    }
    /// The kernel's name of the protocol of such a socket.
    fn kernels_protocol(&self, s: &Entry<'_, Socket>) -> Option<&'static str> {
        let foreign = s.netns().filter(|n| *n != 0).zip(self.all.files.own_netns);
        let foreign = foreign.is_some_and(|(ns, own)| ns != own);
        let unbound = || s.local_port() == Some(0) && s.peer_port() == Some(0);
        let (v6, protocol) = (i32::from(s.raw.family) == libc::AF_INET6, files::protocol(s));
        match (i32::from(s.raw.family), protocol.as_deref()) {
            (libc::AF_INET | libc::AF_INET6, Some("TCP")) if foreign || unbound() => {
                Some(if v6 { "TCPv6" } else { "TCP" })
            }
            (libc::AF_INET | libc::AF_INET6, Some("UDP")) if foreign || unbound() => {
                Some(if v6 { "UDPv6" } else { "UDP" })
            }
            // The kernel's list has those that are bound.
            (libc::AF_NETLINK, _) if foreign || s.portid().is_none_or(|p| p == 0) => {
                Some("NETLINK")
            }
            (libc::AF_VSOCK, _) => Some("AF_VSOCK"),
            (libc::AF_XDP, _) => Some("XDP"),
            (libc::AF_ALG, _) => Some("ALG"),
            (libc::AF_UNIX, _) if foreign => Some("UNIX"),
            (libc::AF_PACKET, _) if foreign => Some("PACKET"),
            _ => None,
        }
    }
    /// What lsof has for a socket, where it is not what `files` has.
    fn of_socket(&self, cell: Cell, file: &OpenFile<'_>, s: &Entry<'_, Socket>) -> Option<Vec<u8>> {
        let inode = || file.inode().map(|i| i.to_string().into_bytes());
        let is_packet = i32::from(s.raw.family) == libc::AF_PACKET;
        match cell {
            Cell::Type if is_raw(s) => Some(b"raw".to_vec()),
            Cell::Device if is_raw(s) => Some(Vec::new()),
            Cell::Node if is_raw(s) => inode(),
            Cell::Type if self.kernels_protocol(s).is_some() => Some(b"sock".to_vec()),
            Cell::Device if self.kernels_protocol(s).is_some() => {
                let (major, minor) = files::major_minor(file.dev()?);
                Some(format!("{major},{minor}").into())
            }
            Cell::Node if self.kernels_protocol(s).is_some() => inode(),
            Cell::Device if i32::from(s.raw.family) == libc::AF_NETLINK => Some(Vec::new()),
            Cell::Device if is_packet => inode(),
            Cell::Node if is_packet => files::protocol(s).map(String::into_bytes),
            _ => None,
        }
    }
    fn name(
        &self,
        row: &Row<'_>,
        file: &OpenFile<'_>,
        socket: Option<Entry<'_, Socket>>,
    ) -> Vec<u8> {
        let field = field_of("name");
        let plain = || match (field.get)(self.cx, row) {
            Value::Bytes { data, .. } => data.into_owned(),
            _ => Vec::new(),
        };
        match (file.fd_type(), socket) {
            (Some(FdType::Pipe), _) => b"pipe".to_vec(),
            // Without who has the other ends.
            (Some(FdType::Fifo), _) => {
                let mut path = file.path.map_or(Vec::new(), |p| p.bytes.to_vec());
                path.extend_from_slice(if file.has_mark() { b" (deleted)" } else { b"" });
                path
            }
            (_, Some(s)) => self.socket_name(file, &s).unwrap_or_else(plain),
            // As the kernel names them.
            (Some(FdType::Inotify), _) => b"inotify".to_vec(),
            (Some(FdType::BpfMap), _) => b"bpf-map".to_vec(),
            (Some(FdType::BpfProg), _) => b"bpf-prog".to_vec(),
            (Some(FdType::BpfLink), _) => b"bpf_link".to_vec(),
            // net:[4026531833]
            (Some(FdType::Ns), _) => {
                let name = plain();
                name.split(|b| *b == b':').next().unwrap_or_default().to_vec()
            }
            // Without what is particular about a descriptor: `[eventfd:4] count=3`.
            _ if file.lsof_type() == "a_inode" => {
                let name = plain();
                let end = name.iter().position(|b| *b == b']').map_or(name.len(), |at| at + 1);
                name[..if name.starts_with(b"[") { end } else { name.len() }].to_vec()
            }
            _ => plain(),
        }
    }
    fn socket_name(&self, file: &OpenFile<'_>, s: &Entry<'_, Socket>) -> Option<Vec<u8>> {
        if let Some(protocol) = self.kernels_protocol(s) {
            return Some(format!("protocol: {protocol}").into());
        }
        let mut out = Vec::new();
        match i32::from(s.raw.family) {
            // As the kernel has it in /proc/net/raw.
            libc::AF_INET if is_raw(s) => {
                let text = |side| {
                    let (ip, port) = files::address(s, side)?;
                    let IpAddr::V4(ip) = ip else { return None };
                    Some(format!("{:08X}:{port:04X}", u32::from_ne_bytes(ip.octets())))
                };
                let (local, peer) = (text(Side::Local)?, text(Side::Peer)?);
                out.extend(format!("{local}->{peer} st={:02X}", s.state()?).bytes());
            }
            libc::AF_INET | libc::AF_INET6 => {
                let (ip, port) = files::address(s, Side::Local)?;
                self.write_address(&mut out, s, ip, port);
                let peer = files::address(s, Side::Peer);
                if let Some((ip, port)) = peer.filter(|(ip, p)| *p != 0 || !ip.is_unspecified()) {
                    out.extend_from_slice(b"->");
                    self.write_address(&mut out, s, ip, port);
                }
                out.push(b' ');
                if let Some(state) = files::state(s) {
                    out.extend_from_slice(format!("({state})").as_bytes());
                }
            }
            libc::AF_UNIX => {
                if let Some(path) = s.name().filter(|n| *n != 0) {
                    out.extend_from_slice(&file.owner.row.view.name(path)?.data);
                    out.push(b' ');
                }
                out.extend_from_slice(format!("type={}", files::protocol(s)?).as_bytes());
                if let Some(state) = files::state(s) {
                    out.extend_from_slice(format!(" ({state})").as_bytes());
                }
            }
            libc::AF_NETLINK => out.extend(files::protocol(s)?.bytes()),
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
    fn write_address(&self, out: &mut Vec<u8>, s: &Entry<'_, Socket>, ip: IpAddr, port: u16) {
        // lsof shows an IPv4 address that a socket of IPv6 has as one of IPv4.
        let ip = ip.to_canonical();
        let mut numeric = Vec::new();
        files::write_address(&mut numeric, ip, port);
        if self.layout.numeric_hosts && self.layout.numeric_ports {
            return out.extend_from_slice(&numeric);
        }
        let numeric = String::from_utf8_lossy(&numeric).into_owned();
        let (host, service) = numeric.rsplit_once(':').expect("it has a port");
        let udp = files::protocol(s).is_some_and(|p| p != "TCP");
        let mut names = self.names.borrow_mut();
        let (host_name, service_name) =
            names.entry((ip, port, udp)).or_insert_with(|| look_up(ip, port, udp));
        let is_named = !self.layout.numeric_hosts && !ip.is_unspecified() && !host_name.is_empty();
        out.extend_from_slice(if is_named { host_name } else { host }.as_bytes());
        out.push(b':');
        let is_named = !self.layout.numeric_ports && port != 0 && !service_name.is_empty();
        out.extend_from_slice(if is_named { service_name } else { service }.as_bytes());
    }
}

fn is_raw(s: &Entry<'_, Socket>) -> bool {
    i32::from(s.raw.family) == libc::AF_INET && s.r#type() == Some(libc::SOCK_RAW as u16)
}

/// The names of a host and of a service; empty: they have none.
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
    // each buffer has the given length.
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

/// Text of which nothing is obeyed by a terminal, cut after `most` cells but not within what stands for a byte. `blanks`: do
/// they stand for themselves no more?
fn safe(text: &[u8], blanks: bool, most: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for chunk in text.utf8_chunks() {
        let chars = chunk.valid().chars().map(|c| (c, Vec::new()));
        let invalid = chunk.invalid().iter().map(|b| ('\0', vec![*b]));
        for (c, bytes) in chars.chain(invalid) {
            let mut unit = Vec::new();
            match c {
                '\0' => bytes.iter().for_each(|b| unsafe_byte(&mut unit, *b)),
                ' ' if blanks => unsafe_byte(&mut unit, b' '),
                c if c == '\\' || c.is_ascii_control() => unsafe_byte(&mut unit, c as u8),
                c => unit.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
            if out.len() + unit.len() > most {
                return out;
            }
            out.append(&mut unit);
        }
    }
    out
}

fn unsafe_byte(out: &mut Vec<u8>, b: u8) {
    match b {
        0x08 => out.extend_from_slice(b"\\b"),
        0x0c => out.extend_from_slice(b"\\f"),
        b'\n' => out.extend_from_slice(b"\\n"),
        b'\r' => out.extend_from_slice(b"\\r"),
        b'\t' => out.extend_from_slice(b"\\t"),
        b'\\' => out.extend_from_slice(b"\\\\"),
        0..0x20 => out.extend_from_slice(&[b'^', b + 0x40]),
        _ => out.extend_from_slice(format!("\\x{b:02x}").as_bytes()),
    }
}
