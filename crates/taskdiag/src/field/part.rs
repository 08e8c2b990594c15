//! What of a task a row is of: the task as a whole, or one entry of a list that it has. A list
//! with no row of its own for a task ([`Part::Without`]) still says why.

use taskdiag_wire::{Entry, Reason, Vma, VmaStat};

use crate::files::{Files, Holder, OpenFile, PathName};

/// What of its task a row is of.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub enum Part<'a> {
    /// The task itself.
    #[default]
    Whole,
    /// The list is not in the answer for this task: its columns say why.
    Without,
    /// A memory mapping.
    Map(Map<'a>),
    /// A file that it has in use.
    File(OpenRow<'a>),
    /// A table of open files.
    Table(&'a Holder<'a>),
}

/// A file that a process has in use, among those of the answer.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct OpenRow<'a> {
    /// The file.
    pub file: &'a OpenFile<'a>,
    /// All of them: who has the other ends.
    pub files: &'a Files<'a>,
}

impl<'a> OpenRow<'a> {
    /// A file, and all files of its answer.
    pub fn new(file: &'a OpenFile<'a>, files: &'a Files<'a>) -> OpenRow<'a> {
        OpenRow { file, files }
    }
}

/// A memory mapping.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Map<'a> {
    /// What it is.
    pub vma: Entry<'a, Vma>,
    /// What of it is in memory; `None`: not in the answer.
    pub stat: Option<Entry<'a, VmaStat>>,
    /// Why it has none, where VMA_STAT is in the answer for the task: the list ended before it, or
    /// the mapping came or went meanwhile.
    pub without_stat: Option<Reason>,
    /// Its name, where it has one.
    pub name: Option<PathName<'a>>,
    /// Thread id of the task that it was read from, where this one shares the memory of another.
    pub shared_with: Option<u32>,
}
