//! Writes rows. Each form has a file of its own, and all use one buffered writer.

pub mod csv;
pub mod json;
pub mod maplines;
pub mod plain;
pub mod tally;
pub mod terminal;
pub mod text;

pub(crate) use crate::sink;
pub use crate::sink::Sink;
pub use tally::Tally;

use taskdiag::field::Context;
pub use taskdiag::view::{Item, Rows, Take};

use crate::columns::Column;

/// The form of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A table.
    Text,
    /// One JSON document.
    Json,
    /// A JSON object a line.
    JsonLines,
    /// CSV.
    Csv,
}

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
