//! The lists of one task before they are written. Each worker keeps them from task to task, so that
//! they allocate once.

use std::collections::HashSet;
use std::ops::Range;

use crate::engine::room::LIST_LEAST;
use taskdiag_wire::{Fd, FdDetail, Socket, Vma, VmaStat};

/// The mappings of a task.
#[derive(Debug, Default)]
pub(super) struct Lists {
    pub(super) vmas: Vec<Vma>,
    pub(super) stats: Vec<VmaStat>,
    /// For each of `vmas`, the range of its name in `texts`.
    pub(super) spans: Vec<Range<usize>>,
    pub(super) texts: Vec<u8>,
}

impl Lists {
    pub(super) fn clear(&mut self) {
        self.vmas.clear();
        self.stats.clear();
        self.spans.clear();
        self.texts.clear();
    }
    /// The bytes that they take of the space of the answer.
    pub(super) fn taken(&self) -> usize {
        if self.vmas.len().max(self.stats.len()) > LIST_LEAST { self.bytes() } else { 0 }
    }
    fn bytes(&self) -> usize {
        size_of_val(&self.vmas[..]) + size_of_val(&self.stats[..]) + self.texts.len()
    }
    /// Whether the space for this many bytes is used up.
    pub(super) fn is_full(&self, room: usize) -> bool {
        self.vmas.len().max(self.stats.len()) >= LIST_LEAST && self.bytes() >= room
    }
    /// Keeps the name of a mapping. Mappings of one file follow each other, so their name is kept
    /// once.
    pub(super) fn keep(&mut self, text: &[u8]) {
        let span = match self.spans.last() {
            Some(last) if self.texts[last.clone()] == *text => last.clone(),
            _ => {
                let begin = self.texts.len();
                self.texts.extend_from_slice(text);
                begin..self.texts.len()
            }
        };
        self.spans.push(span);
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
    pub(super) details: Vec<FdDetail>,
    /// The text of all names. Each name has an entry with the file or socket that it belongs to,
    /// its range in this text, and whether the file is deleted.
    pub(super) text: Vec<u8>,
    pub(super) names: Vec<NameRange>,
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
        self.fds.clear();
        self.files.0.clear();
        self.sockets.0.clear();
        self.details.clear();
        self.text.clear();
        self.names.clear();
    }
    /// The bytes that they take of the space of the answer.
    pub(super) fn taken(&self) -> usize {
        if self.files.0.len() > LIST_LEAST { self.bytes() } else { 0 }
    }
    fn bytes(&self) -> usize {
        let sockets = self.sockets.0.len() * size_of::<Socket>();
        let files = self.files.0.len() * size_of::<Fd>();
        files + sockets + size_of_val(&self.details[..]) + self.text.len()
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
    /// The files of `todo`. A task may map 100,000 files, so the list is not searched for each.
    pub(super) noted: HashSet<(u32, u64)>,
    /// Is map_files denied to us? It needs CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE.
    pub(super) by_name_only: bool,
}
