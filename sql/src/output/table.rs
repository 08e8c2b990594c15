// SPDX-License-Identifier: MIT OR Apache-2.0
//! A table for a person: numbers at the right, text at the left, and NULL where there is no value.

use std::io::{self, Write};

use datafusion::arrow::datatypes::{DataType, SchemaRef};
use taskdiag::field;
use taskdiag_face::exit::Exit;
use unicode_width::UnicodeWidthStr;

use super::cell::Cell;

/// A result as a table.
pub struct Table<'o> {
    out: &'o mut (dyn Write + Send),
    headers: Vec<String>,
    is_right: Vec<bool>,
    rows: Vec<Vec<String>>,
    is_plan: bool,
}

impl<'o> Table<'o> {
    /// No rows of these columns. `is_plan`: the rows have several lines.
    pub fn new(out: &'o mut (dyn Write + Send), schema: &SchemaRef, is_plan: bool) -> Table<'o> {
        let headers = schema.fields().iter().map(|f| safe(f.name())).collect();
        let is_right = schema.fields().iter().map(|f| is_number(f.data_type())).collect();
        Table { out, headers, is_right, rows: Vec::new(), is_plan }
    }
    /// Keeps a row. All are needed for the widths.
    pub fn row(&mut self, cells: Vec<Cell>) {
        let lines = |cell: &Cell| match cell {
            Cell::Text(text) if self.is_plan => {
                text.lines().map(safe).collect::<Vec<_>>().join("\n")
            }
            other => value(other),
        };
        self.rows.push(cells.iter().map(lines).collect());
    }
    /// Writes the table.
    pub fn end(self) -> Result<(), Exit> {
        let mut out = io::BufWriter::new(self.out);
        if self.is_plan {
            for row in &self.rows {
                writeln!(out, "{}", row.join(":\n"))?;
            }
            return Ok(out.flush()?);
        }
        let width = |c: usize| {
            let cells = self.rows.iter().map(|row| row[c].as_str());
            cells.chain([self.headers[c].as_str()]).map(UnicodeWidthStr::width).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.headers.len()).map(width).collect();
        let rule: Vec<String> = widths.iter().map(|w| "-".repeat(*w)).collect();
        for row in [&self.headers, &rule].into_iter().chain(&self.rows) {
            let mut line = String::new();
            for (c, cell) in row.iter().enumerate() {
                let pad = " ".repeat(widths[c].saturating_sub(cell.width()));
                line.push_str(if c > 0 { "  " } else { "" });
                match self.is_right[c] {
                    true => line.extend([pad.as_str(), cell]),
                    false => line.extend([cell, pad.as_str()]),
                }
            }
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(out.flush()?)
    }
}

fn is_number(kind: &DataType) -> bool {
    kind.is_numeric() || matches!(kind, DataType::Duration(_))
}

fn value(cell: &Cell) -> String {
    match cell {
        Cell::Null => "NULL".to_owned(),
        Cell::Number(digits) => digits.clone(),
        Cell::Bool(b) => b.to_string(),
        Cell::Text(t) => safe(t),
        Cell::List(items) => items.iter().map(value).collect::<Vec<_>>().join(" "),
    }
}

fn safe(text: &str) -> String {
    let mut out = Vec::new();
    field::escape(&mut out, text.as_bytes());
    String::from_utf8_lossy(&out).into_owned()
}
