//! The lists of one task before they are written. Each worker keeps them from task to task, so that
//! they allocate once.

use std::collections::HashSet;
use std::ops::Range;

use crate::engine::room::LIST_LEAST;
use taskdiag_wire::{Fd, FdDetail, FileStat, Net, Socket, Vma, VmaStat};

/// The names of a list are kept in pieces of this size until they are in the answer. Each piece is
/// freed then, so that there are never two copies of all of them. The C library returns a piece of
/// this size to the system, and would keep a smaller one.
pub(super) const NAME_PIECE: usize = 32 << 20;

/// The FILE_STAT entries of files, with and without a known mount.
#[derive(Debug, Default)]
pub(super) struct Entries {
    pub(super) lists: [Vec<FileStat>; 2],
}

impl Entries {
    pub(super) fn add(&mut self, entry: FileStat, has_mount: bool) {
        self.lists[usize::from(!has_mount)].push(entry);
    }
    pub(super) fn is_empty(&self) -> bool {
        self.lists.iter().all(Vec::is_empty)
    }
}

/// The mappings of a task.
#[derive(Debug, Default)]
pub(super) struct Lists {
    pub(super) vmas: Vec<Vma>,
    pub(super) stats: Vec<VmaStat>,
    /// The names of `vmas`, in pieces.
    pub(super) names: Vec<NamePiece>,
    name_bytes: usize,
}

/// The names of some mappings that follow each other.
#[derive(Debug, Default)]
pub(super) struct NamePiece {
    /// For each of the mappings, the range of its name in `text`.
    pub(super) spans: Vec<Range<usize>>,
    pub(super) text: Vec<u8>,
}

impl Lists {
    pub(super) fn clear(&mut self) {
        self.vmas.clear();
        self.stats.clear();
        self.names.truncate(1);
        if let Some(first) = self.names.first_mut() {
            first.spans.clear();
            first.text.clear();
        }
        self.name_bytes = 0;
    }
    /// Whether they count for the space of the answer.
    pub(super) fn count(&self) -> bool {
        self.vmas.len().max(self.stats.len()) > LIST_LEAST
    }
    fn bytes(&self) -> usize {
        size_of_val(&self.vmas[..]) + size_of_val(&self.stats[..]) + self.name_bytes
    }
    /// Whether the space for this many bytes is used up.
    pub(super) fn is_full(&self, room: usize) -> bool {
        self.vmas.len().max(self.stats.len()) >= LIST_LEAST && self.bytes() >= room
    }
    /// Keeps the name of a mapping. Mappings of one file follow each other, so their name is kept
    /// once.
    pub(super) fn keep(&mut self, text: &[u8]) {
        let is_full = |piece: &NamePiece| piece.text.len() + text.len() > NAME_PIECE;
        if self.names.last().is_none_or(is_full) {
            self.names.push(NamePiece::default());
        }
        let Some(piece) = self.names.last_mut() else { return };
        let span = match piece.spans.last() {
            Some(last) if piece.text[last.clone()] == *text => last.clone(),
            _ => {
                let begin = piece.text.len();
                piece.text.extend_from_slice(text);
                self.name_bytes += text.len();
                begin..piece.text.len()
            }
        };
        piece.spans.push(span);
    }
}

/// The entries of a list, each with its known members.
#[derive(Debug)]
pub(super) struct List<T>(pub(super) Vec<(u32, T)>);

impl<T> Default for List<T> {
    fn default() -> List<T> {
        List(Vec::new())
    }
}

/// The files of a task before they are written. The memory is reused.
#[derive(Debug, Default)]
pub(super) struct FileLists {
    pub(super) fds: Vec<u32>,
    pub(super) files: List<Fd>,
    pub(super) sockets: List<Socket>,
    pub(super) net: List<Net>,
    pub(super) details: Vec<FdDetail>,
    /// The text of the names that are not in the answer yet. Each name has an entry with the file
    /// or socket that it belongs to, its range in this text, and whether the file is deleted.
    pub(super) text: Vec<u8>,
    pub(super) names: Vec<NameRange>,
    name_bytes: usize,
    /// The process and the thread that have these files, if the list is complete.
    pub(super) of: Option<(u32, Option<u32>)>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct NameRange {
    pub(super) of_socket: bool,
    pub(super) at: usize,
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) deleted: bool,
}

impl FileLists {
    pub(super) fn clear(&mut self) {
        self.of = None;
        self.fds.clear();
        self.files.0.clear();
        self.sockets.0.clear();
        self.net.0.clear();
        self.details.clear();
        self.forget_names();
        self.name_bytes = 0;
    }
    /// To be called when the names are in the answer.
    pub(super) fn forget_names(&mut self) {
        self.text.clear();
        self.names.clear();
    }
    /// Whether they count for the space of the answer.
    pub(super) fn count(&self) -> bool {
        self.files.0.len() > LIST_LEAST
    }
    fn bytes(&self) -> usize {
        let sockets = self.sockets.0.len() * size_of::<Socket>();
        let files = self.files.0.len() * size_of::<Fd>();
        files + sockets + size_of_val(&self.details[..]) + self.name_bytes
    }
    /// Whether the space for this many bytes is used up.
    pub(super) fn is_full(&self, room: usize) -> bool {
        self.files.0.len() >= LIST_LEAST && self.bytes() >= room
    }
    /// Sets the name of the last file or socket.
    pub(super) fn name(&mut self, of_socket: bool, text: &[u8], deleted: bool) {
        let at = if of_socket { self.sockets.0.len() } else { self.files.0.len() } - 1;
        let start = self.text.len();
        self.text.extend_from_slice(text);
        self.name_bytes += text.len();
        self.names.push(NameRange { of_socket, at, start, end: self.text.len(), deleted });
    }
}

/// The state of mapped files.
#[derive(Debug, Default)]
pub(super) struct MappedFiles {
    /// The files that are in the answer already.
    pub(super) seen: HashSet<(u32, u64)>,
    /// The mappings of the current task that must still be looked at, each with its path, or an
    /// empty path.
    pub(super) todo: Vec<(Vma, Vec<u8>)>,
    /// The mapped files of the current task that were looked at.
    pub(super) entries: Entries,
    /// The files of `todo`. A task may map 100,000 files, so the list is not searched for each.
    pub(super) noted: HashSet<(u32, u64)>,
    /// Is map_files denied to us? It needs CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE.
    pub(super) by_name_only: bool,
}
