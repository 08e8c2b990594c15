//! Memory mappings as rows.

use std::convert::Infallible;
use std::io;

use super::filter::Sieve;
use super::order::{Key, Ranks};
use super::rows::{Item, Rows, Take};
use crate::field::{Context, Part, Row};
use crate::{Group, Reason, Snapshot};

/// The mappings of tasks, in the order of the tasks.
#[derive(Clone, Copy)]
pub struct Mappings<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) tasks: &'a [u32],
    /// Which mappings are shown. `None` means all.
    pub(super) keep: Option<&'a dyn Fn(&Row<'_>) -> bool>,
    /// The filter.
    pub(super) sieve: Option<(&'a Sieve<'a>, &'a Context)>,
    /// Whether each task whose mappings are missing in the answer has a row, too.
    pub(super) gaps: bool,
}

impl<'a> Mappings<'a> {
    /// The tasks.
    pub fn tasks(&self) -> impl Iterator<Item = Row<'a>> + use<'a> {
        let stream = self.snapshot.stream();
        self.tasks.iter().filter_map(|i| stream.get(*i as usize)).map(Row::new)
    }
    /// Call `f` for each row.
    ///
    /// # Errors
    /// The error of `f`, which ends the rows.
    pub fn each_row<E>(&self, f: &mut dyn FnMut(&Row<'a>) -> Result<(), E>) -> Result<(), E> {
        let passes = |row: &Row<'_>| self.sieve.is_none_or(|(sieve, cx)| sieve.passes(cx, row));
        for task in self.tasks() {
            let there =
                task.each_map(|row| match self.keep.is_none_or(|keep| keep(row)) && passes(row) {
                    true => f(row),
                    false => Ok(()),
                })?;
            if self.gaps && is_gap(&task, there) {
                let gap = Row { part: Part::Without, ..task };
                if passes(&gap) {
                    f(&gap)?;
                }
            }
        }
        Ok(())
    }
}

/// Does the answer lack mappings of a task: all of them, or those after the end of an incomplete
/// list? `there`: the task has a list. Kernel threads, zombies and ended processes have no
/// mappings, which is not a gap.
pub fn is_gap(task: &Row<'_>, there: bool) -> bool {
    match task.view.reason(Group::Vma) {
        Some(Reason::Absent | Reason::Vanished) => false,
        Some(_) => true,
        None => !there,
    }
}

impl Rows for Mappings<'_> {
    fn each(&self, take: &mut Take<'_>) -> io::Result<()> {
        self.each_row(&mut |row| take(Item::Row(row)))
    }
}

/// The mappings, sorted by keys.
pub(super) struct SortedMappings<'a> {
    tasks: Vec<Row<'a>>,
    /// The index of the task, and the mapping.
    rows: Vec<(usize, Part<'a>)>,
    order: Vec<usize>,
}

impl<'a> SortedMappings<'a> {
    pub(super) fn new(all: Mappings<'a>, cx: &Context, keys: &[Key]) -> SortedMappings<'a> {
        let (mut tasks, mut rows, mut ranks) =
            (Vec::<Row<'a>>::new(), Vec::new(), Ranks::default());
        let Ok(()) = all.each_row(&mut |row| {
            if tasks.last().is_none_or(|t| t.view.pid() != row.view.pid()) {
                tasks.push(Row { part: Part::Whole, ..*row });
            }
            ranks.push(cx, keys.iter().map(|k| (k.field.get)(cx, row)));
            rows.push((tasks.len() - 1, row.part));
            Ok::<(), Infallible>(())
        });
        SortedMappings { tasks, rows, order: ranks.order(keys) }
    }
}

impl Rows for SortedMappings<'_> {
    fn each(&self, take: &mut Take<'_>) -> io::Result<()> {
        self.order.iter().try_for_each(|i| {
            let (task, part) = self.rows[*i];
            take(Item::Row(&Row { part, ..self.tasks[task] }))
        })
    }
}
