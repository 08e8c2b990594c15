//! Writes rows. Each form has a file of its own, and all use one buffered writer.

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

/// The rows and columns of an answer that are to be written.
#[derive(Clone, Copy)]
pub struct Table<'a> {
    /// The context that getters of values need.
    pub cx: &'a Context,
    /// The columns.
    pub columns: &'a [Column],
    /// The rows.
    pub rows: &'a dyn Rows,
}
