//! Applies a filter to rows, and counts the tasks for which the result is not known.

use std::cell::RefCell;
use std::collections::HashSet;

use super::eval::Truth;
use super::{Filter, Part};
use crate::Snapshot;
use crate::field::{Context, Field, Missing, Row};
use crate::snapshot::Decided;

/// Tasks that are left out because it is not known whether they match.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Left {
    /// The field whose value is missing.
    pub field: &'static Field,
    /// Why it is missing.
    pub why: Missing,
    /// How many tasks.
    pub tasks: u64,
}

/// Selects the rows for which an expression is true.
#[derive(Debug)]
pub struct Sieve<'f> {
    filter: Option<&'f Filter>,
    /// The results of a second look at the text of some tasks.
    decided: Option<&'f Decided>,
    /// For each missing field and reason, the tasks that lack it. A task is counted once, however
    /// many of its rows are tested, and however often.
    left: RefCell<Vec<(&'static Field, Missing, HashSet<u32>)>>,
}

impl<'f> Sieve<'f> {
    /// A sieve for this filter. Without one, every row passes.
    pub fn new(filter: Option<&'f Filter>) -> Sieve<'f> {
        Sieve { filter, decided: None, left: RefCell::new(Vec::new()) }
    }
    /// This sieve, prepared for the rows of an answer. If the answer has the results of a second
    /// look for this filter, they count.
    #[must_use]
    pub fn knowing(self, snapshot: &'f Snapshot) -> Sieve<'f> {
        let text = self.filter.map(Filter::to_string);
        Sieve { decided: snapshot.decided().filter(|d| Some(&d.filter) == text.as_ref()), ..self }
    }
    /// Does this row pass?
    pub fn passes(&self, cx: &Context, row: &Row<'_>) -> bool {
        self.passes_parts(cx, row, |_| true)
    }
    /// Does this task pass the parts that are about tasks only? If not, none of its rows passes.
    pub fn passes_task(&self, cx: &Context, row: &Row<'_>) -> bool {
        self.passes_parts(cx, row, Part::is_about_task)
    }
    /// Does the row pass these parts of the filter?
    fn passes_parts(&self, cx: &Context, row: &Row<'_>, which: impl Fn(&Part) -> bool) -> bool {
        match self.test_parts(cx, row, which) {
            Truth::True => true,
            Truth::False => false,
            Truth::Unknown(field, why) => {
                self.leave(field, why, row.view.pid());
                false
            }
        }
    }
    /// Are these parts of the filter true for a row? A row that is left out is not counted.
    pub(in crate::view) fn test_parts(
        &self,
        cx: &Context,
        row: &Row<'_>,
        which: impl Fn(&Part) -> bool,
    ) -> Truth {
        let parts = self.filter.into_iter().flat_map(Filter::parts).filter(|p| which(p));
        let Some(found) = self.decided.and_then(|d| d.results.get(&row.view.tgid())) else {
            return super::eval::all(parts.map(|p| p.test(cx, row)));
        };
        super::eval::all(parts.map(|p| match p.is_about_text() {
            true => Truth::from(*found),
            false => p.test(cx, row),
        }))
    }
    #[cold]
    fn leave(&self, field: &'static Field, why: Missing, pid: u32) {
        if !why.is_amiss() {
            return;
        }
        let mut left = self.left.borrow_mut();
        match left.iter_mut().find(|l| std::ptr::eq(l.0, field) && l.1 == why) {
            Some(l) => _ = l.2.insert(pid),
            None => left.push((field, why, HashSet::from([pid]))),
        }
    }
    /// The tasks that are left out so far. A task does not count if it cannot have such a value,
    /// such as memory of a kernel thread.
    pub fn left(&self) -> Vec<Left> {
        let left = self.left.borrow();
        left.iter()
            .map(|(field, why, t)| Left { field, why: *why, tasks: t.len() as u64 })
            .collect()
    }
}
