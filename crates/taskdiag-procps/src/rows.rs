//! The rows of one fetch, in the layout for the caller.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::null_mut;

use crate::abi::{PidsResult, PidsStack};
use crate::arena::Arena;
use crate::guard::Failed;
use crate::memory::{grow, tried};

/// The smallest number of rows to allocate.
const LEAST: usize = 64;

/// Memory for some rows.
struct Extent {
    results: *mut PidsResult,
    layout: Layout,
    /// The heads of the rows, to which the caller gets pointers.
    stacks: Box<[PidsStack]>,
}

impl Extent {
    /// `None`: there is no memory.
    fn new(rows: usize, width: usize) -> Option<Extent> {
        let layout = Layout::array::<PidsResult>(rows.checked_mul(width)?).ok()?;
        let mut stacks = Vec::new();
        tried(|| stacks.try_reserve_exact(rows)).ok()?;
        // SAFETY: there is at least one row, and it has at least the mark of its end.
        let results = tried(|| unsafe { alloc_zeroed(layout) }).cast::<PidsResult>();
        if results.is_null() {
            return None;
        }
        stacks.extend((0..rows).map(|row| PidsStack { head: results.wrapping_add(row * width) }));
        Some(Extent { results, layout, stacks: stacks.into() })
    }
}

impl Drop for Extent {
    fn drop(&mut self) {
        // SAFETY: it was allocated with this layout, and has no other owner.
        unsafe { dealloc(self.results.cast(), self.layout) };
    }
}

/// The rows. The next fetch reuses their memory, so an item that must not change keeps its value.
#[derive(Default)]
pub struct Rows {
    extents: Vec<Extent>,
    /// Memory of rows with another width, which the caller may still read until the next fetch.
    former: Vec<Extent>,
    /// A row for each task, and spare ones for more tasks.
    all: Vec<*mut PidsStack>,
    /// Results of a row, with the mark of its end.
    width: usize,
    /// How many are in use.
    pub len: usize,
    /// Their strings.
    pub arena: Arena,
    /// The strings of all rows of a walk that has one row at a time.
    pub kept: Arena,
    /// The task of each row.
    pub ids: Vec<u32>,
    /// The array for the caller, who may sort it: a copy of `all`, which ends with NULL.
    pub shown: Vec<*mut PidsStack>,
}

impl Rows {
    /// Begins a fetch with approximately this many rows of this many items.
    pub fn begin(&mut self, items: usize, expected: usize) -> Result<(), Failed> {
        self.former.clear();
        self.arena.clear();
        self.ids.clear();
        self.len = 0;
        self.width = items + 1;
        self.reserve(expected)
    }

    /// Drops all rows, because the items change. Their memory stays until the next fetch.
    pub fn retire(&mut self) {
        self.former.append(&mut self.extents);
        self.all.clear();
        self.ids.clear();
        self.len = 0;
    }

    fn reserve(&mut self, rows: usize) -> Result<(), Failed> {
        let no_memory = |_| Failed::Memory;
        if let Some(lacking) = rows.checked_sub(self.all.len()).filter(|n| *n > 0) {
            let lacking = lacking.max(LEAST);
            grow(&mut self.all, lacking).map_err(no_memory)?;
            grow(&mut self.extents, 1).map_err(no_memory)?;
            let mut extent = Extent::new(lacking, self.width).ok_or(Failed::Memory)?;
            self.all.extend(extent.stacks.iter_mut().map(std::ptr::from_mut));
            self.extents.push(extent);
        }
        let lacking = self.all.len() - self.ids.len();
        grow(&mut self.ids, lacking).map_err(no_memory)?;
        self.shown.clear();
        grow(&mut self.shown, self.all.len() + 1).map_err(no_memory)
    }

    /// The results of the next row. It counts when [`keep`](Self::keep) is called.
    pub fn next(&mut self) -> Result<&mut [PidsResult], Failed> {
        if self.len == self.all.len() {
            self.reserve(self.len + self.len / 4 + 1)?;
        }
        // SAFETY: the rows live as long as the extents, and each has this many results. Nobody else
        // has a reference to one of them, since callers have pointers only.
        Ok(unsafe { std::slice::from_raw_parts_mut((*self.all[self.len]).head, self.width) })
    }

    /// The arena and the next row at once.
    pub fn next_with_arena(&mut self) -> Result<(&mut [PidsResult], &mut Arena), Failed> {
        let row = std::ptr::from_mut(self.next()?);
        // SAFETY: the row is not a part of the arena.
        Ok((unsafe { &mut *row }, &mut self.arena))
    }

    /// Counts the next row, which is about this task.
    pub fn keep(&mut self, id: u32) {
        self.ids.push(id);
        self.len += 1;
    }

    /// The first row.
    pub fn first(&self) -> *mut PidsStack {
        self.all[0]
    }

    /// Ends a fetch.
    pub fn end(&mut self) {
        self.shown.clear();
        self.shown.extend_from_slice(&self.all[..self.len]);
        self.shown.push(null_mut());
    }
}
