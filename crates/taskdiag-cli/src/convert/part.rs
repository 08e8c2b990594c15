//! A Parquet file of a table. A file has no final name until all files of its hour are complete, so
//! that readers see all of them or none.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use parquet::arrow::ArrowWriter;
use parquet::file::metadata::KeyValue;
use taskdiag_face::parquet::{failed, properties};

/// Rows in a row group. A reader can skip a whole row group by the smallest and largest values of
/// its columns.
const GROUP: usize = 1 << 16;

/// A complete file that does not have its name yet. It is removed if it never gets its name.
#[derive(Debug)]
pub struct Part {
    /// The temporary name of the file.
    part: PathBuf,
    /// The name that it will have.
    file: PathBuf,
    has_name: bool,
    /// Its rows.
    pub rows: usize,
    /// Its size.
    pub bytes: u64,
}

impl Part {
    /// Writes a file that will have this name. Makes its directory.
    ///
    /// # Errors
    /// It cannot be written. Nothing is left of it.
    pub fn write(
        file: &Path,
        batch: &RecordBatch,
        metadata: &BTreeMap<&'static str, String>,
    ) -> io::Result<Part> {
        let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", file.display()));
        let mut part = Part {
            part: with_dot(file),
            file: file.to_owned(),
            has_name: false,
            rows: batch.num_rows(),
            bytes: 0,
        };
        part.bytes = part.fill(batch, metadata).map_err(named)?;
        Ok(part)
    }
    fn fill(
        &self,
        batch: &RecordBatch,
        metadata: &BTreeMap<&'static str, String>,
    ) -> io::Result<u64> {
        let directory = self.file.parent().unwrap_or(Path::new("."));
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        // An existing file was left by a command that was killed. It can be overwritten, because we
        // hold the lock of the lake, so no other command is running.
        let mut options = OpenOptions::new();
        let mut out =
            options.write(true).create(true).truncate(true).mode(0o600).open(&self.part)?;
        let pairs: HashMap<String, String> =
            metadata.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
        let schema: SchemaRef = Arc::new(batch.schema().as_ref().clone().with_metadata(pairs));
        // Sorted, so that the same rows always give the same bytes.
        let pairs =
            metadata.iter().map(|(key, value)| KeyValue::new((*key).to_owned(), value.clone()));
        let properties = properties()
            .set_max_row_group_row_count(Some(GROUP))
            .set_key_value_metadata(Some(pairs.collect()))
            .build();
        let batch =
            RecordBatch::try_new(schema.clone(), batch.columns().to_vec()).map_err(failed)?;
        let mut writer =
            ArrowWriter::try_new(&mut out, schema, Some(properties)).map_err(failed)?;
        writer.write(&batch).map_err(failed)?;
        writer.close().map_err(failed)?;
        out.flush()?;
        out.sync_all()?;
        Ok(out.metadata()?.len())
    }
    /// Gives it its name. An existing file is replaced.
    ///
    /// # Errors
    /// The system refuses it.
    pub fn name(mut self) -> io::Result<()> {
        fs::rename(&self.part, &self.file)?;
        self.has_name = true;
        Ok(())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.has_name {
            // Remove the incomplete file: it would only take space, and the disk may be full.
            let _ = fs::remove_file(&self.part);
        }
    }
}

/// The name of a file that is not complete.
fn with_dot(file: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(file.file_name().unwrap_or_default());
    name.push(".part");
    file.with_file_name(name)
}

/// Removes files that killed commands have left in a directory, and makes sure that the names in it
/// are on the disk.
///
/// # Errors
/// The directory cannot be read, or a file cannot be removed.
pub fn tidy(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with('.') && name.ends_with(".parquet.part") {
            fs::remove_file(&path)?;
        }
    }
    File::open(directory)?.sync_all()
}
