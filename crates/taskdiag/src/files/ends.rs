//! Finds the processes at the ends of pipes and sockets, by an index from inodes to descriptors.

use taskdiag_wire::{Entry, Fd, FdType};

use super::{Access, Owner};

/// A descriptor that is an end of a pipe or socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct End {
    // The index is sorted by these members in order, so that ends with the same access are
    // adjacent.
    key: EndKey,
    /// How the descriptor is open.
    pub access: Access,
    /// The owner, as an index into [`Files::owners`](super::Files::owners).
    pub owner: usize,
    /// The number of the descriptor.
    pub fd: u32,
}

/// Inode numbers of pipes are unique on a machine, and so are inode numbers of sockets. Inode
/// numbers of named pipes are unique only within a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct EndKey {
    // The first key, because it distinguishes most of them.
    inode: u64,
    kind: u32,
    dev: u32,
}

/// All ends in an answer.
#[derive(Debug)]
pub struct Ends {
    sorted: Vec<End>,
    /// The inode of each. They are in a separate array, because then many of them fit into a cache
    /// line for the search.
    inodes: Vec<u64>,
}

fn key(fd: &Entry<'_, Fd>) -> Option<EndKey> {
    let kind = fd.raw.r#type;
    let named = kind == FdType::Fifo as u32;
    if !named && kind != FdType::Pipe as u32 && kind != FdType::Socket as u32 {
        return None;
    }
    let inode = fd.inode().filter(|i| *i != 0)?;
    Some(EndKey { kind, dev: if named { fd.dev()? } else { 0 }, inode })
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
        let inodes = sorted.iter().map(|e: &End| e.key.inode).collect();
        Ends { sorted, inodes }
    }
    fn of(&self, key: EndKey) -> &[End] {
        let from = self.inodes.partition_point(|inode| *inode < key.inode);
        let to = self.inodes.partition_point(|inode| *inode <= key.inode);
        let same = &self.sorted[from..to];
        if same.first().is_some_and(|e| e.key == key) && same.last().is_some_and(|e| e.key == key) {
            return same;
        }
        let from = same.partition_point(|e| e.key < key);
        let to = same.partition_point(|e| e.key <= key);
        &same[from..to]
    }
    /// All descriptors of the same pipe as this one, itself included.
    pub fn of_pipe(&self, fd: &Entry<'_, Fd>) -> &[End] {
        key(fd).filter(|k| k.kind != FdType::Socket as u32).map_or(&[], |k| self.of(k))
    }
    /// The descriptors of the same pipe that are open the other way. For a reader, these are all
    /// except readers; for a writer, all except writers; and for a descriptor that reads and
    /// writes, all. They come in two parts.
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
        self.of(EndKey { kind: FdType::Socket as u32, dev: 0, inode })
    }
}
