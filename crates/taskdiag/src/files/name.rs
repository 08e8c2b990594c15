//! Writes the NAME of an open file as in lsof: a path, the addresses of a socket, the kind of an
//! anonymous inode, and the processes at the other ends. The bytes are not changed, so programs
//! must escape them before they print them.

use taskdiag_wire::{Entry, Fd, FdType, Socket};

use super::{End, Files, OpenFile, detail, socket, words};
use crate::field::write_uint;

/// The number of other ends that a name lists. Further ends are counted.
const NAMED_ENDS: usize = 4;
/// The number of ends in a list of ends.
const LISTED_ENDS: usize = 100;

impl<'a> Files<'a> {
    /// Appends the name of a file.
    pub fn write_name(&self, out: &mut Vec<u8>, file: &OpenFile<'_>) {
        let Some(kind) = file.fd_type() else {
            write_path(out, file);
            return;
        };
        let fd = file.fd().expect("it has a type");
        match kind {
            FdType::Socket => match file.socket() {
                Some(s) => self.write_socket(out, file, &s),
                None => {
                    write_path(out, file);
                    self.write_ends(out, [self.ends().of_socket(fd.raw.inode), &[]], file);
                }
            },
            FdType::Pipe | FdType::Fifo => {
                if kind == FdType::Pipe {
                    out.extend_from_slice(b"pipe");
                } else {
                    write_path(out, file);
                }
                self.write_ends(out, self.ends().opposite(&fd), file);
            }
            FdType::Other
            | FdType::Ns
            | FdType::Mqueue
            | FdType::Userfaultfd
            | FdType::PerfEvent
                if file.path.is_some() =>
            {
                write_path(out, file);
            }
            FdType::Reg | FdType::Dir | FdType::Chr | FdType::Blk | FdType::Lnk | FdType::Memfd => {
                write_path(out, file);
            }
            _ => {
                let command = |pid| self.command(pid);
                let text = detail::text(kind, file.owner.details(fd.raw.fd), command);
                out.extend_from_slice(text.as_bytes());
            }
        }
    }

    /// The command name of a process that is in the answer.
    fn command(&self, pid: u32) -> Option<String> {
        let at = self.owners().partition_point(|o| o.row.view.tgid() < pid);
        let owner = self.owners().get(at).filter(|o| o.row.view.tgid() == pid)?;
        Some(String::from_utf8_lossy(owner.row.comm?).into_owned())
    }

    fn write_socket(&self, out: &mut Vec<u8>, file: &OpenFile<'_>, s: &Entry<'_, Socket>) {
        match i32::from(s.raw.family) {
            _ if s.family().is_none() => out.extend_from_slice(b"of an unknown protocol"),
            libc::AF_INET | libc::AF_INET6 => socket::write_inet(out, s),
            libc::AF_UNIX => {
                self.write_unix(out, file, s);
            }
            family => {
                match words::family_name(family as u16) {
                    _ if matches!(family, libc::AF_NETLINK | libc::AF_PACKET) => {}
                    Some(name) => out.extend_from_slice(format!("{name} ").as_bytes()),
                    None => out.extend_from_slice(format!("family {family} ").as_bytes()),
                }
                if let Some(protocol) = socket::protocol(s) {
                    out.extend_from_slice(protocol.as_bytes());
                }
                match s.r#type().and_then(words::socket_kind) {
                    Some(kind) if family != libc::AF_NETLINK => {
                        out.extend_from_slice(format!(" type={kind}").as_bytes());
                    }
                    _ => {}
                }
                if let Some(port) = s.portid().filter(|p| *p != 0 && family == libc::AF_NETLINK) {
                    out.extend_from_slice(format!(" port={port}").as_bytes());
                }
            }
        }
        if let Some(netns) =
            s.netns().filter(|n| *n != 0 && self.own_netns.is_some_and(|own| own != *n))
        {
            out.extend_from_slice(format!(" net:[{netns}]").as_bytes());
        }
    }

    /// Writes `/run/x type=STREAM (CONNECTED) ->INO=12 34,sh,3u`.
    fn write_unix(&self, out: &mut Vec<u8>, file: &OpenFile<'_>, s: &Entry<'_, Socket>) {
        let path = s.name().filter(|n| *n != 0).and_then(|n| file.owner.row.view.name(n));
        if let Some(path) = path {
            out.extend_from_slice(&path.data);
            out.push(b' ');
        }
        let kind = s.r#type().and_then(words::socket_kind).unwrap_or("?");
        out.extend_from_slice(format!("type={kind}").as_bytes());
        if let Some(state) = socket::state(s) {
            out.extend_from_slice(format!(" ({state})").as_bytes());
        }
        if let Some(peer) = s.peer_inode().filter(|p| *p != 0) {
            out.extend_from_slice(format!(" ->INO={peer}").as_bytes());
            self.write_ends(out, [self.ends().of_socket(peer), &[]], file);
        }
    }

    /// Writes ` 34,sh,3u` for the first few ends other than the file itself. A pipe that thousands
    /// of processes inherited has thousands of rows, so no row may look at all ends.
    fn write_ends(&self, out: &mut Vec<u8>, ends: [&[End]; 2], file: &OpenFile<'_>) {
        let all = ends[0].len() + ends[1].len();
        let mut seen = 0;
        let mut named = 0;
        for end in ends.into_iter().flatten() {
            if named == NAMED_ENDS {
                break;
            }
            seen += 1;
            if !self.is_own(end, file) {
                out.push(b' ');
                self.write_end(out, end);
                named += 1;
            }
        }
        if all > seen {
            out.extend_from_slice(b" and ");
            write_uint(out, (all - seen) as u64);
            out.extend_from_slice(b" more");
        }
    }

    fn is_own(&self, end: &End, file: &OpenFile<'_>) -> bool {
        file.fd().is_some_and(|fd| fd.raw.fd == end.fd)
            && std::ptr::eq(&raw const self.owners()[end.owner], file.owner)
    }

    /// Writes `34,sh,3u`.
    fn write_end(&self, out: &mut Vec<u8>, end: &End) {
        let row = &self.owners()[end.owner].row;
        write_uint(out, u64::from(row.view.pid()));
        out.push(b',');
        out.extend_from_slice(row.comm.unwrap_or(b"?"));
        out.push(b',');
        write_uint(out, u64::from(end.fd));
        out.extend_from_slice(end.access.letter().as_bytes());
    }

    /// The other ends of a pipe or socket, each as `34,sh,3u`. For a pipe, these are all other
    /// descriptors, and for a unix socket the descriptors of its peer. After the first hundred,
    /// their number follows. `None` if the file has no other ends.
    pub fn other_ends(&self, file: &OpenFile<'_>) -> Option<Vec<Vec<u8>>> {
        let fd: Entry<'_, Fd> = file.fd()?;
        let ends = match file.fd_type()? {
            FdType::Pipe | FdType::Fifo => self.ends().of_pipe(&fd),
            FdType::Socket => self.ends().of_socket(file.socket()?.peer_inode()?),
            _ => return None,
        };
        let listed = &ends[..ends.len().min(LISTED_ENDS)];
        let text = |end: &End| {
            let mut out = Vec::new();
            self.write_end(&mut out, end);
            out
        };
        let mut all: Vec<Vec<u8>> =
            listed.iter().filter(|e| !self.is_own(e, file)).map(text).collect();
        if ends.len() > listed.len() {
            all.push(format!("and {} more", ends.len() - listed.len()).into_bytes());
        }
        Some(all)
    }
}

/// Writes the path, and whether it is deleted.
fn write_path(out: &mut Vec<u8>, file: &OpenFile<'_>) {
    let Some(path) = file.path else { return };
    if let Some(why) = path.reason {
        out.extend_from_slice(format!("({why})").as_bytes());
        return;
    }
    out.extend_from_slice(path.bytes);
    if path.cut {
        out.extend_from_slice(b" (cut)");
    }
    if file.has_mark() {
        out.extend_from_slice(b" (deleted)");
    }
}
