//! Files in use as rows.

use std::convert::Infallible;
use std::io;

use super::Keep;
use super::filter::Sieve;
use super::order::{Key, Ranks};
use super::rows::{Item, Rows, Take};
use crate::field::{Context, OpenRow, Part, Row};
use crate::files::{Files, OpenFile, Owner};
use crate::{Group, Reason};

/// The files that tasks have in use, in the order of the answer.
#[derive(Clone, Copy)]
pub struct Opened<'a> {
    pub(super) files: &'a Files<'a>,
    /// The selected tasks and files. `None` means all.
    pub(super) tasks: Option<&'a Keep>,
    pub(super) keep: Option<&'a Keep>,
    pub(super) sieve: Option<(&'a Sieve<'a>, &'a Context)>,
    /// Whether each task whose descriptors are missing in the answer has a row, too.
    pub(super) gaps: bool,
}

impl<'a> Opened<'a> {
    fn has_task(&self, row: &Row<'_>) -> bool {
        self.tasks.is_none_or(|keep| keep(row))
            && self.sieve.is_none_or(|(sieve, cx)| sieve.passes_task(cx, row))
    }
    fn passes(&self, row: &Row<'_>) -> bool {
        self.sieve.is_none_or(|(sieve, cx)| sieve.passes(cx, row))
    }
    /// The tasks whose files may be among the rows.
    pub fn owners(&self) -> impl Iterator<Item = &'a Owner<'a>> + use<'a> {
        let all = *self;
        self.files.owners().iter().filter(move |o| all.has_task(&o.row))
    }
    /// The files of a task that are rows.
    pub fn files_of(&self, owner: &'a Owner<'a>) -> impl Iterator<Item = OpenFile<'a>> + use<'a> {
        let all = *self;
        self.files.of(owner).filter(move |file| {
            let row = row(all.files, file);
            all.keep.is_none_or(|keep| keep(&row)) && all.passes(&row)
        })
    }
    /// Call `f` for each file.
    ///
    /// # Errors
    /// The error of `f`, which ends the rows.
    fn each_file<E>(&self, f: &mut dyn FnMut(OpenFile<'a>) -> Result<(), E>) -> Result<(), E> {
        for owner in self.owners() {
            self.files_of(owner).try_for_each(&mut *f)?;
        }
        Ok(())
    }
    fn gap_rows(&self, take: &mut Take<'_>) -> io::Result<()> {
        let is_gap = |reason| reason != Reason::Vanished;
        let all = self.files.gaps().iter().filter(|_| self.gaps);
        for gap in all.filter(|g| g.group == Group::Fd && is_gap(g.reason)) {
            let task = Row::new(gap.task);
            let row = Row { part: Part::Without, ..task };
            if self.has_task(&task) && self.passes(&row) {
                take(Item::Row(&row))?;
            }
        }
        Ok(())
    }
}

fn row<'f>(files: &'f Files<'f>, file: &'f OpenFile<'f>) -> Row<'f> {
    Row { part: Part::File(OpenRow { file, files }), ..file.owner.row }
}

impl Rows for Opened<'_> {
    fn each(&self, take: &mut Take<'_>) -> io::Result<()> {
        self.each_file(&mut |file| take(Item::Row(&row(self.files, &file))))?;
        self.gap_rows(take)
    }
}

/// The files, sorted by keys.
pub(super) struct SortedFiles<'a> {
    all: Opened<'a>,
    rows: Vec<OpenFile<'a>>,
    order: Vec<usize>,
}

impl<'a> SortedFiles<'a> {
    pub(super) fn new(all: Opened<'a>, cx: &Context, keys: &[Key]) -> SortedFiles<'a> {
        let (mut rows, mut ranks) = (Vec::new(), Ranks::default());
        let Ok(()) = all.each_file(&mut |file| {
            let row = row(all.files, &file);
            ranks.push(cx, keys.iter().map(|k| (k.field.get)(cx, &row)));
            rows.push(file);
            Ok::<(), Infallible>(())
        });
        SortedFiles { all, order: ranks.order(keys), rows }
    }
}

impl Rows for SortedFiles<'_> {
    fn each(&self, take: &mut Take<'_>) -> io::Result<()> {
        let files = self.all.files;
        self.order.iter().try_for_each(|i| take(Item::Row(&row(files, &self.rows[*i]))))?;
        self.all.gap_rows(take)
    }
}
