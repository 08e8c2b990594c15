//! The paths of the files of an hour, and which of them exist.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use chrono::DateTime;
use parquet::file::metadata::ParquetMetaDataReader;
use taskdiag::Host;
use taskdiag_face::arrow;

use crate::args::convert::{Table, TableArgs};

/// The keys in a file's metadata that say whether the file was written after its hour was over,
/// which tables were written with it, and how many frames the recording had of the hour.
const COMPLETE: &str = "taskdiag.complete";
const TABLES: &str = "taskdiag.tables";
const FRAMES: &str = "taskdiag.frames";

/// The place where files are written, and the host that they are about.
#[derive(Clone, Copy, Debug)]
pub struct Lake<'a> {
    /// The directory of all files.
    pub directory: &'a Path,
    /// The name of the host in the path.
    pub name: &'a str,
    /// The machine that was recorded.
    pub host: &'a Host,
}

/// Where the files of an hour go.
pub struct Partition {
    /// Its directory.
    pub directory: PathBuf,
    /// The table of tasks. The first file of an hour gets its name last, so its metadata describes
    /// all files.
    tasks: Table,
    tables: Vec<Table>,
    frames: u64,
    /// The metadata of each file.
    pub metadata: BTreeMap<&'static str, String>,
}

impl Partition {
    /// The partition of an hour, which is counted from 1970. `is_over`: the hour had ended when the
    /// recording was opened, so nothing will be added to it. `frames`: how many the recording has
    /// of it.
    pub fn new(
        lake: &Lake<'_>,
        hour: u64,
        tables: &[TableArgs],
        is_over: bool,
        frames: u64,
    ) -> Partition {
        // The hours come from the clock of a machine, so they are in the range of the calendar.
        let begin = DateTime::from_timestamp(hour as i64 * 3600, 0).unwrap_or_default();
        let directory = lake
            .directory
            .join(begin.format("date=%Y-%m-%d/hour=%H").to_string())
            .join(format!("host={}", lake.name));
        let tables: Vec<Table> = tables.iter().map(|t| t.table).collect();
        let names: Vec<&str> = tables.iter().map(|t| t.name()).collect();
        let mut metadata = BTreeMap::from([
            ("taskdiag.schema", arrow::SCHEMA.to_owned()),
            ("taskdiag.host", lake.name.to_owned()),
            (COMPLETE, is_over.to_string()),
            (TABLES, names.join(",")),
            (FRAMES, frames.to_string()),
        ]);
        let of_host = [("taskdiag.kernel", &lake.host.kernel), ("taskdiag.arch", &lake.host.arch)];
        for (key, text) in of_host {
            metadata.extend(text.as_ref().map(|t| (key, String::from_utf8_lossy(t).into_owned())));
        }
        Partition { directory, tasks: tables[0], tables, frames, metadata }
    }
    /// The n-th file of a table, from 0.
    pub fn file(&self, table: Table, n: usize) -> PathBuf {
        let name = table.name();
        self.directory.join(if n == 0 {
            format!("{name}.parquet")
        } else {
            format!("{name}-{n}.parquet")
        })
    }
    /// Were all of the tables written after the hour was over, with all frames? If the clock was
    /// wrong then, frames may have come later. There may be fewer frames by now, because old ones
    /// are removed.
    pub fn is_complete(&self) -> bool {
        let read = || -> Option<bool> {
            let file = File::open(self.file(self.tasks, 0)).ok()?;
            let metadata = ParquetMetaDataReader::new().parse_and_finish(&file).ok()?;
            let pairs = metadata.file_metadata().key_value_metadata()?;
            let value = |key| pairs.iter().find(|p| p.key == key)?.value.as_deref();
            let there: Vec<&str> = value(TABLES)?.split(',').collect();
            let has_all = self.tables.iter().all(|t| there.contains(&t.name()));
            // Files of earlier versions lack this key.
            let frames = value(FRAMES).map_or(Ok(u64::MAX), str::parse).ok()?;
            Some(has_all && frames >= self.frames && value(COMPLETE)? == "true")
        };
        read().unwrap_or(false)
    }
    /// Removes the n-th file of a table and those after it.
    ///
    /// # Errors
    /// One of them cannot be removed.
    pub fn remove_from(&self, table: Table, n: usize) -> io::Result<()> {
        for n in n.. {
            match fs::remove_file(self.file(table, n)) {
                Err(e) if e.kind() == ErrorKind::NotFound => break,
                done => done?,
            }
        }
        Ok(())
    }
}
