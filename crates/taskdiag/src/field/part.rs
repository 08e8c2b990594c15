//! The part of a task that a row describes: the whole task, or one entry of one of its lists. If an
//! answer lacks the list of a task, one row ([`Part::Without`]) gives the reason.

use taskdiag_wire::{Entry, Reason, Vma, VmaStat};

use crate::cgroups::Cgroup;
use crate::files::{Files, Holder, OpenFile, PathName};

use super::rate::Rate;

/// Which part of a task a row describes.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub enum Part<'a> {
    /// The task itself.
    #[default]
    Whole,
    /// The answer lacks the list of this task. The columns of the row have the reason.
    Without,
    /// A memory mapping.
    Map(Map<'a>),
    /// A file that it has in use.
    File(OpenRow<'a>),
    /// A table of open files.
    Table(&'a Holder<'a>),
    /// The task itself, and its activity since the previous answer.
    Rate(Rate<'a>),
    /// A cgroup. The task has only its number in the list, and that of its parent.
    Cgroup(&'a Cgroup),
}

/// A file that a process has in use, among those of the answer.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct OpenRow<'a> {
    /// The file.
    pub file: &'a OpenFile<'a>,
    /// All files of the answer, to look up the other ends of pipes and sockets.
    pub files: &'a Files<'a>,
}

impl<'a> OpenRow<'a> {
    /// Makes a row of a file and all files of its answer.
    pub fn new(file: &'a OpenFile<'a>, files: &'a Files<'a>) -> OpenRow<'a> {
        OpenRow { file, files }
    }
}

/// A memory mapping.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Map<'a> {
    /// The addresses, permissions, offset and file of the mapping.
    pub vma: Entry<'a, Vma>,
    /// The memory use of the mapping, or `None` if the answer does not have it.
    pub stat: Option<Entry<'a, VmaStat>>,
    /// The reason why `stat` is `None` although the task has VMA_STAT: the list ended before this
    /// mapping, or the mapping began or ended in between.
    pub without_stat: Option<Reason>,
    /// The path or other name of the mapping, if it has one.
    pub name: Option<PathName<'a>>,
    /// If the task shares the memory of another one, the thread id of that one.
    pub shared_with: Option<u32>,
}
