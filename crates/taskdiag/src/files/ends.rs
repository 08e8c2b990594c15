//! Who has which end of a pipe or a socket: an index from inodes to descriptors.

use taskdiag_wire::{Entry, Fd, FdType};

use super::{Access, Owner};

/// A descriptor that is an end of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct End {
    // The order of the members is that of the index: ends that are open the same way lie together.
    key: Key,
    /// How it is open.
    pub access: Access,
    /// Whose, as index of [`Files::owners`](super::Files::owners).
    pub owner: usize,
    /// File descriptor.
    pub fd: u32,
}

/// Inode numbers are unique among the pipes, and among the sockets, of a machine; those of named
/// pipes only within a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    kind: u32,
    dev: u32,
    inode: u64,
}

/// All ends in an answer.
#[derive(Debug)]
pub struct Ends {
    sorted: Vec<End>,
}

fn key(fd: &Entry<'_, Fd>) -> Option<Key> {
    let kind = fd.raw.r#type;
    let named = kind == FdType::Fifo as u32;
    if !named && kind != FdType::Pipe as u32 && kind != FdType::Socket as u32 {
        return None;
    }
    let inode = fd.inode().filter(|i| *i != 0)?;
    Some(Key { kind, dev: if named { fd.dev()? } else { 0 }, inode })
}

impl Ends {
    pub(super) fn new(owners: &[Owner<'_>]) -> Ends {
        let mut sorted = Vec::new();
        for (i, owner) in owners.iter().enumerate() {
            let fds = owner.table.iter().filter_map(|t| t.owner.list::<Fd>()).flatten();
            sorted.extend(fds.filter_map(|fd| {
                let access = fd.flags().map_or(Access::Path, Access::of);
                Some(End { key: key(&fd)?, owner: i, fd: fd.raw.fd, access })
            }));
        }
        sorted.sort_unstable();
        Ends { sorted }
    }
    fn of(&self, key: Key) -> &[End] {
        let from = self.sorted.partition_point(|e| e.key < key);
        let to = self.sorted.partition_point(|e| e.key <= key);
        &self.sorted[from..to]
    }
    /// All descriptors of the pipe that this one is, itself included.
    pub fn of_pipe(&self, fd: &Entry<'_, Fd>) -> &[End] {
        key(fd).filter(|k| k.kind != FdType::Socket as u32).map_or(&[], |k| self.of(k))
    }
    /// Of the pipe that this descriptor is, those that are open the other way: for a reader all
    /// but the readers, for a writer all but the writers, for one that does both all. In two parts.
    pub fn opposite(&self, fd: &Entry<'_, Fd>) -> [&[End]; 2] {
        let all = self.of_pipe(fd);
        let own = fd.flags().map_or(Access::Path, Access::of);
        if !matches!(own, Access::Read | Access::Write) {
            return [all, &[]];
        }
        let from = all.partition_point(|e| e.access < own);
        let to = all.partition_point(|e| e.access <= own);
        [&all[..from], &all[to..]]
    }
    /// All descriptors of the socket with this inode.
    pub fn of_socket(&self, inode: u64) -> &[End] {
        self.of(Key { kind: FdType::Socket as u32, dev: 0, inode })
    }
}
