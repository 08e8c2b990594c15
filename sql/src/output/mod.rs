// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results as a table, as JSON or as CSV. Names of tasks and files are chosen by others, so in none
//! of the three forms can they control a terminal.

mod cell;
mod csv;
mod json;
mod table;

use std::io::Write;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use taskdiag_face::exit::Exit;

/// How results are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Columns of text for a person.
    Table,
    /// An array of objects.
    Json,
    /// RFC 4180, in the form of `docs/reference/csv.md`.
    Csv,
}

impl Format {
    /// The format with this name.
    pub fn from_name(name: &str) -> Option<Format> {
        match name {
            "table" => Some(Format::Table),
            "json" => Some(Format::Json),
            "csv" => Some(Format::Csv),
            _ => None,
        }
    }
}

/// Writes one result.
pub enum Writer<'o> {
    /// As a table, which is written when its widths are known.
    Table(table::Table<'o>),
    /// As JSON.
    Json(json::Json<'o>),
    /// As CSV.
    Csv(Box<csv::Csv<'o>>),
}

impl<'o> Writer<'o> {
    /// Begins a result. `is_plan`: it is one of EXPLAIN, of several lines.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn begin(
        format: Format,
        out: &'o mut (dyn Write + Send),
        schema: &SchemaRef,
        is_plan: bool,
    ) -> Result<Writer<'o>, Exit> {
        let names: Vec<String> = schema.fields().iter().map(|f| f.name().clone()).collect();
        Ok(match format {
            Format::Table => Writer::Table(table::Table::new(out, schema, is_plan)),
            Format::Json => Writer::Json(json::Json::begin(out, &names)?),
            Format::Csv => Writer::Csv(Box::new(csv::Csv::begin(out, &names)?)),
        })
    }
    /// Writes rows.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn rows(&mut self, batch: &RecordBatch) -> Result<(), Exit> {
        for row in 0..batch.num_rows() {
            let cell =
                |column: &datafusion::arrow::array::ArrayRef| cell::cell(column.as_ref(), row);
            let cells: Result<Vec<cell::Cell>, _> = batch.columns().iter().map(cell).collect();
            let cells = cells.map_err(|e| Exit::Failed(e.to_string()))?;
            match self {
                Writer::Table(table) => table.row(cells),
                Writer::Json(json) => json.row(cells)?,
                Writer::Csv(csv) => csv.row(cells)?,
            }
        }
        Ok(())
    }
    /// Ends the result.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn end(self) -> Result<(), Exit> {
        match self {
            Writer::Table(table) => table.end(),
            Writer::Json(json) => json.end(),
            Writer::Csv(csv) => csv.end(),
        }
    }
}
