//! The data that lsof has about a file, before it is written as a row, as lines, or as JSON.

use taskdiag::FdType;
use taskdiag::field::Row;
use taskdiag::files::{Access, OpenFile, What};
use taskdiag::wire::Reason;

/// A file in the list, or a row that represents files that may not be seen.
pub(super) struct Record<'r> {
    /// Its process.
    pub row: Row<'r>,
    /// `None`: see `denied`.
    pub file: Option<&'r OpenFile<'r>>,
    /// For a row without a file: the kind of file that is denied, in the words of the column FD.
    pub denied: &'static str,
    /// The thread that has the file, if threads are listed: its name, and its id, which is not
    /// shown for a main thread.
    pub task: Option<(Option<u32>, &'r [u8])>,
}

/// The letter of access; a blank if it is no descriptor.
pub(super) fn access(file: &OpenFile<'_>) -> u8 {
    match file.access() {
        Some(Access::Read) => b'r',
        Some(Access::Write) => b'w',
        // lsof does not distinguish files opened with O_PATH, which can be neither read nor
        // written.
        Some(_) => b'u',
        None => b' ',
    }
}

impl<'r> Record<'r> {
    /// Why its path is not known.
    pub(super) fn reason(&self) -> Option<Reason> {
        self.file?.path?.reason
    }
    /// The text of the column FD without the letters.
    pub(super) fn label(&self) -> String {
        self.file.map_or_else(|| self.denied.to_owned(), |f| f.label().into_owned())
    }
    pub(super) fn is_descriptor(&self) -> bool {
        self.file.is_some_and(|f| f.fd().is_some())
    }
    pub(super) fn access(&self) -> u8 {
        self.file.map_or(b' ', access)
    }
    pub(super) fn flags(&self) -> Option<u32> {
        self.file?.fd()?.flags()
    }
    pub(super) fn size(&self) -> Option<u64> {
        let file = self.file.filter(|f| !is_unmapped(f))?;
        let kind = file.fd_type();
        if is_of_inode(file) {
            return Some(inode_size(file).into());
        }
        // A device has no size for lsof.
        if kind == Some(FdType::Blk) || file.rdev().is_some() {
            return None;
        }
        file.size_bytes()
    }
    pub(super) fn offset(&self) -> Option<u64> {
        self.file?.pos_bytes()
    }
    pub(super) fn links(&self) -> Option<u32> {
        let file = self.file.filter(|f| !is_unmapped(f))?;
        file.nlink().filter(|_| file.fd_type() != Some(FdType::Socket))
    }
}

/// Is its inode in no directory, so that its size has no meaning?
pub(super) fn is_of_inode(file: &OpenFile<'_>) -> bool {
    file.lsof_type() == "a_inode" || matches!(file.fd_type(), Some(FdType::Ns | FdType::Mqueue))
}

/// The size of an inode for which [`is_of_inode`] is true. For a message queue, it is the kernel's
/// FILENT_SIZE.
fn inode_size(file: &OpenFile<'_>) -> u32 {
    if file.fd_type() == Some(FdType::Mqueue) { 80 } else { 0 }
}

/// Is it a mapped file that was deleted? A deleted mapped file is known from the list of mappings
/// only, which has neither size nor links.
pub(super) fn is_unmapped(file: &OpenFile<'_>) -> bool {
    matches!(file.what, What::Mapped(_)) && file.has_mark()
}
