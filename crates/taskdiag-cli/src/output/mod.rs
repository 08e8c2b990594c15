//! Writes rows. Each form has a file of its own, and all use one buffered writer.

#[cfg(feature = "arrow")]
pub mod arrow;
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

use std::io;
use std::path::PathBuf;

use taskdiag::field::Context;
pub use taskdiag::view::{Item, Rows, Take};

use crate::columns::Column;

/// The form of the output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Form {
    /// A table.
    Text,
    /// One JSON document.
    Json,
    /// A JSON object a line.
    JsonLines,
    /// CSV.
    Csv,
    /// An Arrow IPC stream.
    Arrow,
    /// A Parquet file of this name; `-` is standard output.
    Parquet(PathBuf),
}

impl Form {
    /// Can this build write it?
    pub fn is_built(&self) -> bool {
        cfg!(feature = "arrow") || !matches!(self, Form::Arrow | Form::Parquet(_))
    }
}

/// Writes rows in a form for programs, not as text. Returns their number.
pub fn rows(
    sink: &mut Sink,
    form: &Form,
    table: &Table<'_>,
    headers: bool,
    tally: &mut Tally,
) -> io::Result<usize> {
    match form {
        Form::Csv => csv::rows(sink, table, headers, tally),
        #[cfg(feature = "arrow")]
        Form::Arrow => arrow::stream(sink, table, tally),
        #[cfg(feature = "arrow")]
        Form::Parquet(file) => arrow::parquet(sink, file, table, tally),
        Form::JsonLines => json::rows(sink, table, true, tally),
        _ => json::rows(sink, table, false, tally),
    }
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
