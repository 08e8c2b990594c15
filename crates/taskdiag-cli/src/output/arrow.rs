//! Apache Arrow and Apache Parquet. `docs/reference/arrow.md` says what programs may rely on.
//!
//! The columns are those of [`taskdiag::columns`], with the keys of JSON as names.

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

fn record_batch(schema: &Arc<Schema>, specs: &[Spec], batch: Batch) -> io::Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(batch.rows));
    RecordBatch::try_new_with_options(schema.clone(), Form::Stored.arrays(specs, batch), &options)
        .map_err(failed)
}

/// The rows as batches of one schema, and their number.
fn batches(
    table: &Table<'_>,
    tally: &mut Tally,
) -> io::Result<(Arc<Schema>, Vec<RecordBatch>, usize)> {
    let Table { cx, columns, .. } = *table;
    let specs = columns.iter().map(|c| Spec::of(&c.key, c.field)).collect();
    let mut builder = Builder::new(specs);
    let mut count = 0;
    table.rows.each(&mut |item| {
        count += 1;
        builder.push(cx, |c| {
            let value = item.value(cx, columns[c].field, c);
            if let Some(missing) = value.missing() {
                tally.count_in(&item, c, missing);
            }
            value
        });
        Ok(())
    })?;
    let (specs, batches, _) = builder.finish();
    let schema = Arc::new(schema(cx, &specs));
    let batches: io::Result<_> =
        batches.into_iter().map(|b| record_batch(&schema, &specs, b)).collect();
    Ok((schema, batches?, count))
}

/// Writes the rows as an Arrow IPC stream. Returns their number.
pub fn stream(sink: &mut Sink, table: &Table<'_>, tally: &mut Tally) -> io::Result<usize> {
    let (schema, batches, count) = batches(table, tally)?;
    let mut out = StreamWriter::try_new(&mut *sink, &schema).map_err(failed)?;
    for batch in &batches {
        out.write(batch).map_err(failed)?;
    }
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
    let (schema, batches, count) = batches(table, tally)?;
    if file == Path::new("-") {
        write_parquet(sink, &schema, &batches)?;
        return Ok(count);
    }
    let named =
        |e: io::Error| io::Error::new(e.kind(), format!("--parquet {}: {e}", file.display()));
    crate::aside::answers(file).map_err(named)?;
    // A path that is not a regular file, such as a pipe, is written to and not replaced.
    if std::fs::metadata(file).is_ok_and(|m| !m.is_file()) {
        let mut out = std::fs::OpenOptions::new().write(true).open(file).map_err(named)?;
        write_parquet(&mut out, &schema, &batches).map_err(named)?;
        return Ok(count);
    }
    // Arguments may contain secrets, so only the owner may read the file, even if the umask allows
    // more.
    replace(file, 0o600, |out| write_parquet(out, &schema, &batches)).map_err(named)?;
    Ok(count)
}

fn write_parquet(
    out: impl Write + Send,
    schema: &Arc<Schema>,
    batches: &[RecordBatch],
) -> io::Result<()> {
    let mut out =
        ArrowWriter::try_new(out, schema.clone(), Some(properties().build())).map_err(failed)?;
    for batch in batches {
        out.write(batch).map_err(failed)?;
    }
    out.close().map_err(failed)?;
    Ok(())
}
