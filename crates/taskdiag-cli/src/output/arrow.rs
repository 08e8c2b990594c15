//! Apache Arrow and Apache Parquet. `docs/reference/arrow.md` says what programs may rely on.
//!
//! The columns are those of [`taskdiag::columns`], with the keys of JSON as names.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_ipc::writer::StreamWriter;
use arrow_schema::Schema;
use parquet::arrow::ArrowWriter;
use taskdiag::columns::{Batch, Builder, Spec};
use taskdiag_face::arrow::{Form, schema};
use taskdiag_face::parquet::{failed, properties};

use super::{Sink, Table, Tally};
use crate::replace::replace;

/// A group of rows of Parquet ends when it takes as much memory.
const GROUP_BYTES: usize = 64 << 20;

fn record_batch(schema: &Arc<Schema>, specs: &[Spec], batch: Batch) -> io::Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(batch.rows));
    RecordBatch::try_new_with_options(schema.clone(), Form::Stored.arrays(specs, batch), &options)
        .map_err(failed)
}

/// The columns of a table.
fn specs(table: &Table<'_>) -> Vec<Spec> {
    table.columns.iter().map(|c| Spec::of(&c.key, c.field)).collect()
}

/// Makes batches of the rows, and passes each on before it makes the next one: a row has copies of
/// names that an answer has once, so all rows together may be much larger than the answer. Returns
/// the number of rows.
fn each_batch(
    table: &Table<'_>,
    tally: &mut Tally,
    schema: &Arc<Schema>,
    write: &mut dyn FnMut(&RecordBatch) -> io::Result<()>,
) -> io::Result<usize> {
    let Table { cx, columns, .. } = *table;
    let specs = specs(table);
    let mut builder = Builder::new(specs.clone());
    let mut count = 0;
    let mut pass_on = |batches: Vec<Batch>| -> io::Result<()> {
        batches.into_iter().try_for_each(|b| write(&record_batch(schema, &specs, b)?))
    };
    table.rows.each(&mut |item| {
        count += 1;
        builder.push(cx, |c| {
            let value = item.value(cx, columns[c].field, c);
            if let Some(missing) = value.missing() {
                tally.count_in(&item, c, missing);
            }
            value
        });
        pass_on(builder.take_batches())
    })?;
    pass_on(builder.finish().1)?;
    Ok(count)
}

/// Writes the rows as an Arrow IPC stream. Returns their number.
pub fn stream(sink: &mut Sink, table: &Table<'_>, tally: &mut Tally) -> io::Result<usize> {
    let schema = Arc::new(schema(table.cx, &specs(table)));
    let mut out = StreamWriter::try_new(&mut *sink, &schema).map_err(failed)?;
    let count = each_batch(table, tally, &schema, &mut |batch| out.write(batch).map_err(failed))?;
    out.finish().map_err(failed)?;
    Ok(count)
}

/// Writes the rows as a Parquet file, or to standard output if its name is `-`. Returns their
/// number.
///
/// The file gets its name when it is complete. An existing one is replaced.
pub fn parquet(
    sink: &mut Sink,
    file: &Path,
    table: &Table<'_>,
    tally: &mut Tally,
) -> io::Result<usize> {
    if file == Path::new("-") {
        return write_parquet(sink, table, tally);
    }
    let named =
        |e: io::Error| io::Error::new(e.kind(), format!("--parquet {}: {e}", file.display()));
    crate::aside::answers(file).map_err(named)?;
    // A path that is not a regular file, such as a pipe, is written to and not replaced.
    if std::fs::metadata(file).is_ok_and(|m| !m.is_file()) {
        let mut out = crate::aside::open_to_write(file).map_err(named)?;
        return write_parquet(&mut out, table, tally).map_err(named);
    }
    // Arguments may contain secrets, so only the owner may read the file, even if the umask allows
    // more.
    let mut count = 0;
    let write = |out: &mut File| {
        count = write_parquet(out, table, tally)?;
        Ok(())
    };
    replace(file, 0o600, write).map_err(named)?;
    Ok(count)
}

fn write_parquet(
    out: impl Write + Send,
    table: &Table<'_>,
    tally: &mut Tally,
) -> io::Result<usize> {
    let schema = Arc::new(schema(table.cx, &specs(table)));
    let mut out =
        ArrowWriter::try_new(out, schema.clone(), Some(properties().build())).map_err(failed)?;
    let count = each_batch(table, tally, &schema, &mut |batch| {
        out.write(batch).map_err(failed)?;
        // The writer keeps rows in memory until a group is complete.
        if out.memory_size() > GROUP_BYTES { out.flush().map_err(failed) } else { Ok(()) }
    })?;
    out.close().map_err(failed)?;
    Ok(count)
}
