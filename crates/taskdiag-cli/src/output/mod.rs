//! Writing rows: one form each in its own file, over one buffered writer.

pub mod csv;
pub mod json;
pub mod sink;
pub mod tally;
pub mod terminal;
pub mod text;

pub use sink::Sink;
pub use tally::Tally;

use taskdiag::Snapshot;
use taskdiag::field::{Context, Row};

use crate::columns::Column;

/// What is to be written: these rows and columns of an answer.
#[derive(Clone, Copy, Debug)]
pub struct Table<'a> {
    /// The answer.
    pub snapshot: &'a Snapshot,
    /// What its values need to be read.
    pub cx: &'a Context,
    /// The columns.
    pub columns: &'a [Column],
    /// The rows, as indices of tasks.
    pub rows: &'a [u32],
}

impl<'a> Table<'a> {
    /// The tasks to write, in order.
    pub fn tasks(&self) -> impl Iterator<Item = Row<'a>> + use<'a> {
        let stream = self.snapshot.stream();
        self.rows.iter().filter_map(|i| stream.get(*i as usize).map(Row::new))
    }
}
