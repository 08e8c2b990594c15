//! What of a task a row is of: the task as a whole, or one entry of a list that it has. A list
//! with no row of its own for a task ([`Part::Without`]) still says why.

use std::borrow::Cow;

use taskdiag_wire::{BLOB_DELETED, Entry, Group, Reason, TaskView, Vma, VmaStat};

use super::row::Row;
use crate::files::{Files, Holder, OpenFile};

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

/// A name of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Name<'a> {
    /// Any bytes but NUL.
    pub bytes: &'a [u8],
    /// No longer in the directory tree?
    pub deleted: bool,
    /// Is it only the beginning?
    pub cut: bool,
}

impl<'a> Name<'a> {
    /// The name with this number; `None`: it is not in the stream.
    pub fn find(task: &TaskView<'a>, number: u32) -> Option<Name<'a>> {
        let blob = task.name(number)?;
        let (cut, deleted) = (blob.is_cut(), blob.flags & BLOB_DELETED != 0);
        match blob.data {
            Cow::Borrowed(bytes) => Some(Name { bytes, deleted, cut }),
            Cow::Owned(_) => None,
        }
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
    pub name: Option<Name<'a>>,
    /// Thread id of the task that it was read from, where this one shares the memory of another.
    pub shared_with: Option<u32>,
}

impl<'a> Row<'a> {
    /// Call `f` for each memory mapping of the task, with this row made one of that mapping.
    /// Those of shared memory come from the task that has them. `false`: the list is not in the
    /// answer, and `f` was not called.
    ///
    /// # Errors
    /// That of `f`, which ends it.
    pub fn each_map<E>(&self, mut f: impl FnMut(&Row<'a>) -> Result<(), E>) -> Result<bool, E> {
        let shared_with = self.view.shared(Group::Vma);
        let Some(view) = self.view.owner(Group::Vma) else { return Ok(false) };
        let Some(vmas) = view.list::<Vma>() else { return Ok(false) };
        let stats = view.list::<VmaStat>();
        let ended = || view.reason(Group::VmaStat).unwrap_or(Reason::Vanished);
        let without_stat = stats.is_some().then(ended);
        let mut stats = stats.into_iter().flatten().peekable();
        let mut row = *self;
        // Neighbours mostly have the same name.
        let mut last: (u32, Option<Name<'a>>) = (0, None);
        for vma in vmas {
            let number = vma.raw.name;
            if number != last.0 {
                last = (number, Name::find(&view, number));
            }
            while stats.next_if(|s| s.raw.start < vma.raw.start).is_some() {}
            let stat = stats.next_if(|s| s.raw.start == vma.raw.start && s.raw.end == vma.raw.end);
            row.part = Part::Map(Map { vma, stat, without_stat, name: last.1, shared_with });
            f(&row)?;
        }
        Ok(true)
    }
}
