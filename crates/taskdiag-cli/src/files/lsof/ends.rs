//! `-E` and `+E`: the processes that have the other ends of pipes, sockets, terminals, message
//! queues and eventfds.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use taskdiag::FdType;
use taskdiag::files::{self, OpenFile, Side};
use taskdiag::wire::FdDetailKind;

use super::cell::Cells;

/// More ends than these are counted: a pipe that thousands have inherited would otherwise have
/// millions of them in the list.
const NAMED: usize = 1000;
/// The numbers that the kernel gives to its terminals (`UNIX98_PTY_SLAVE_MAJOR`), and to their
/// masters.
const TERMINAL_MAJORS: std::ops::Range<u32> = 136..144;
const MASTER: (u32, u32) = (5, 2);

/// A key that both ends of a connection have in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    Pipe(u32, u64),
    Unix(u64),
    /// Family, protocol, local and remote address.
    Inet(u16, String, (IpAddr, u16), (IpAddr, u16)),
    Master(u32),
    Terminal(u32),
    Queue(u32, u64),
    Eventfd(u64),
}

/// A descriptor: process, number.
pub(super) type At = (u32, u32);

struct End {
    at: At,
    command: Vec<u8>,
    access: u8,
}

/// All ends in the answer, and the ends that are listed because another file leads to them.
#[derive(Default)]
pub(super) struct EndIndex {
    all: HashMap<Key, Vec<End>>,
    listed: HashSet<At>,
}

/// The connection of which this file is one end.
fn own(file: &OpenFile<'_>) -> Option<Key> {
    let fd = file.fd()?;
    Some(match file.fd_type()? {
        FdType::Pipe => Key::Pipe(0, file.inode()?),
        FdType::Fifo => Key::Pipe(file.dev()?, file.inode()?),
        FdType::Mqueue => Key::Queue(file.dev()?, file.inode()?),
        FdType::Eventfd => {
            let details = file.owner.details(fd.raw.fd);
            let detail = details.iter().find(|d| d.raw.kind == FdDetailKind::Eventfd as u32)?;
            Key::Eventfd(detail.value()?[1])
        }
        FdType::Chr => match files::major_minor(file.rdev()?) {
            device if device == MASTER => Key::Master(super::kernel::Kernel::terminal(file)?),
            (major, minor) if TERMINAL_MAJORS.contains(&major) => Key::Terminal(minor),
            _ => return None,
        },
        FdType::Socket => {
            let s = file.socket()?;
            match i32::from(s.family()?) {
                libc::AF_UNIX => Key::Unix(file.inode()?),
                libc::AF_INET | libc::AF_INET6 => {
                    let local = files::address(&s, Side::Local)?;
                    let peer = files::address(&s, Side::Peer)?;
                    let has_peer = peer.1 != 0 || !peer.0.is_unspecified();
                    has_peer.then_some(())?;
                    Key::Inet(s.family()?, files::protocol(&s)?, local, peer)
                }
                _ => return None,
            }
        }
        _ => return None,
    })
}

/// The connections of the other ends of this file.
fn other(file: &OpenFile<'_>, own: &Key) -> Option<Key> {
    Some(match own {
        Key::Unix(_) => Key::Unix(file.socket()?.peer_inode().filter(|i| *i != 0)?),
        Key::Inet(family, protocol, local, peer) => {
            Key::Inet(*family, protocol.clone(), *peer, *local)
        }
        Key::Master(n) => Key::Terminal(*n),
        Key::Terminal(n) => Key::Master(*n),
        own => own.clone(),
    })
}

fn at(file: &OpenFile<'_>) -> Option<At> {
    Some((file.owner.row.view.pid(), file.fd()?.raw.fd))
}

impl EndIndex {
    /// Looks at all files. `is_selected`: is it in the list by its own?
    pub(super) fn new<'a, I: Iterator<Item = OpenFile<'a>>>(
        list: bool,
        all: impl Fn() -> I,
        is_selected: impl Fn(&OpenFile<'_>) -> bool,
    ) -> EndIndex {
        let mut index = EndIndex::default();
        for file in all() {
            let Some(key) = own(&file) else { continue };
            let end = End {
                at: at(&file).expect("it is a descriptor"),
                command: super::safe::one_line(file.owner.row.comm.unwrap_or_default()),
                access: super::record::access(&file),
            };
            index.all.entry(key).or_default().push(end);
        }
        if list {
            for file in all().filter(|f| is_selected(f)) {
                let others = index.others(&file);
                index.listed.extend(others.1.iter().map(|e| e.at).collect::<Vec<_>>());
            }
        }
        index
    }
    /// Whether it is listed because it is the other end of a file in the list.
    pub(super) fn is_listed(&self, file: &OpenFile<'_>) -> bool {
        at(file).is_some_and(|at| self.listed.contains(&at))
    }
    /// The other ends of a file in the order of lsof, and the text before them.
    fn others(&self, file: &OpenFile<'_>) -> (String, Vec<&End>) {
        let none = (String::new(), Vec::new());
        let Some(own) = own(file) else { return none };
        let Some(other) = other(file, &own) else { return none };
        let before = match &other {
            Key::Unix(peer) => format!("->INO={peer}"),
            Key::Terminal(n) if matches!(own, Key::Master(_)) => format!("->/dev/pts/{n}"),
            _ => String::new(),
        };
        let itself = at(file);
        let found = self.all.get(&other).map_or(&[][..], |all| all);
        let mut ends: Vec<&End> = found.iter().filter(|e| Some(e.at) != itself).collect();
        match other {
            // lsof puts each socket that it finds before the earlier ones.
            Key::Unix(_) | Key::Inet(..) => ends.reverse(),
            Key::Terminal(_) if ends.is_empty() => return none,
            _ => {}
        }
        (before, ends)
    }
    /// Text that is appended to the name of a file.
    pub(super) fn text(&self, cells: &Cells<'_>, file: &OpenFile<'_>) -> Vec<u8> {
        let (before, ends) = self.others(file);
        let mut out = before.into_bytes();
        for end in ends.iter().take(NAMED) {
            if !out.is_empty() {
                out.push(b' ');
            }
            let command = &end.command[..end.command.len().min(cells.layout.command)];
            out.extend_from_slice(format!("{},", end.at.0).as_bytes());
            out.extend_from_slice(command);
            out.extend_from_slice(format!(",{}", end.at.1).as_bytes());
            out.push(end.access);
        }
        if ends.len() > NAMED {
            out.extend_from_slice(format!(" and {} more", ends.len() - NAMED).as_bytes());
        }
        out
    }
}
