//! The files of an hour: for each table, one or several.

use std::io;
use std::path::Path;
use std::time::Duration;

use taskdiag::recording::Frame;

use super::part::{Part, tidy};
use super::partition::Partition;
use super::rows::Rows;
use crate::args::convert::TableArgs;
use crate::exit::shown;

/// The rows of an hour.
pub struct Hour {
    partition: Partition,
    frames: u64,
    /// The rows of each table. The tasks come first.
    pub tables: Vec<Rows>,
}

impl Hour {
    /// No rows yet.
    pub fn new(partition: Partition, tables: &[TableArgs], full_every: Duration) -> Hour {
        let tables = tables.iter().map(|args| Rows::new(args, full_every)).collect();
        Hour { partition, frames: 0, tables }
    }
    /// Is there a table for the kind of tasks in this frame, which is processes or threads?
    pub fn takes(&self, frame: &Frame) -> bool {
        self.tables.iter().any(|rows| rows.table.list().is_none() && rows.is_of(frame))
    }
    /// Adds the rows of a frame.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn add(&mut self, frame: &Frame) -> io::Result<()> {
        self.frames += 1;
        self.tables.iter_mut().try_for_each(|rows| rows.add(frame, &self.partition))
    }
    /// Writes the files. Returns a line for each table with the number of rows written.
    ///
    /// # Errors
    /// A file cannot be written. Existing files stay.
    pub fn write(&mut self) -> io::Result<Vec<String>> {
        let partition = &self.partition;
        for rows in &mut self.tables {
            rows.end_file(partition)?;
        }
        if self.tables.iter().all(|rows| rows.out.parts.is_empty()) {
            return Ok(Vec::new());
        }
        let mut lines = Vec::new();
        // `is_complete()` looks at the first file of the tasks, so that file gets its name last.
        for rows in self.tables.iter_mut().rev() {
            let parts = std::mem::take(&mut rows.out.parts);
            // Removes files of an earlier conversion that had more files.
            partition.remove_from(rows.table, parts.len())?;
            if !parts.is_empty() {
                lines.push(line(&partition.file(rows.table, 0), self.frames, &parts));
            }
            parts.into_iter().rev().try_for_each(Part::name)?;
        }
        tidy(&partition.directory)?;
        lines.reverse();
        Ok(lines)
    }
}

fn line(file: &Path, frames: u64, parts: &[Part]) -> String {
    let rows: usize = parts.iter().map(|p| p.rows).sum();
    let bytes: u64 = parts.iter().map(|p| p.bytes).sum();
    format!("{}: {frames} frames, {rows} rows, {bytes} bytes\n", shown(file))
}
