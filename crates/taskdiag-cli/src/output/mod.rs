//! Writing rows: one form each in its own file, over one buffered writer.

pub mod csv;
pub mod json;
pub mod maplines;
pub mod plain;
pub mod sink;
pub mod tally;
pub mod terminal;
pub mod text;

pub use sink::Sink;
pub use tally::Tally;

use taskdiag::field::Context;
pub use taskdiag::view::{Item, Rows, Take};

use crate::columns::Column;

/// What is to be written: these rows and columns of an answer.
#[derive(Clone, Copy)]
pub struct Table<'a> {
    /// What its values need to be read.
    pub cx: &'a Context,
    /// The columns.
    pub columns: &'a [Column],
    /// The rows.
    pub rows: &'a dyn Rows,
}
