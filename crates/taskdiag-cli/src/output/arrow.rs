//! Apache Arrow and Apache Parquet. `docs/reference/arrow.md` says what programs may rely on.
//!
//! The columns are those of [`taskdiag::columns`], with the keys of JSON as names. They already
//! have Arrow's layout, so most are moved into its arrays and not copied. Text columns with few
//! different values are dictionaries, because consumers then store and compare numbers.

use std::collections::HashMap;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use arrow_array::builder::StringDictionaryBuilder;
use arrow_array::types::Int32Type;
use arrow_array::{
    ArrayRef, BooleanArray, DurationNanosecondArray, Float64Array, Int64Array, ListArray,
    RecordBatch, RecordBatchOptions, StringArray, TimestampMicrosecondArray, UInt32Array,
    UInt64Array,
};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, DataType, Field, Schema, TimeUnit};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder};
use taskdiag::columns::{self, Batch, Builder, Data, Spec, Text, Texts, Type};
use taskdiag::field::Context;

use super::{Sink, Table, Tally};
use crate::replace::replace;

/// The version of the schemas. A later one may add columns and metadata, and changes no type.
pub const SCHEMA: &str = "1";

/// Text that usually differs in each row.
const DISTINCT: &[&str] = &["kstack", "name"];

/// Converts an error of the libraries. They wrap errors of the file, which have to be unwrapped,
/// because a closed pipe is not a failure.
pub fn failed(e: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&e);
    while let Some(e) = cause {
        if let Some(io) = e.downcast_ref::<io::Error>() {
            return match io.raw_os_error() {
                Some(n) => io::Error::from_raw_os_error(n),
                None => io::Error::new(io.kind(), io.to_string()),
            };
        }
        cause = match e.downcast_ref::<ArrowError>() {
            Some(ArrowError::IoError(_, io)) => Some(io),
            _ => e.source(),
        };
    }
    io::Error::other(e)
}

fn is_dictionary(spec: &Spec) -> bool {
    spec.kind == Type::Text && !DISTINCT.contains(&spec.name.as_str())
}

fn item(kind: DataType) -> Arc<Field> {
    Arc::new(Field::new("item", kind, true))
}

fn data_type(spec: &Spec) -> DataType {
    match spec.kind {
        Type::U64 => DataType::UInt64,
        Type::I64 => DataType::Int64,
        Type::F64 => DataType::Float64,
        Type::Bool => DataType::Boolean,
        Type::Duration => DataType::Duration(TimeUnit::Nanosecond),
        Type::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        Type::Text if is_dictionary(spec) => {
            DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
        }
        Type::Text => DataType::Utf8,
        Type::TextList => DataType::List(item(DataType::Utf8)),
        Type::U32List => DataType::List(item(DataType::UInt32)),
    }
}

/// The field of the schema for a column.
pub fn field(spec: &Spec) -> Field {
    let mut metadata = HashMap::from([
        ("taskdiag.help".to_owned(), spec.help.to_owned()),
        ("taskdiag.source".to_owned(), spec.source.to_owned()),
    ]);
    // Arrow's own types have the unit of a duration and of a moment.
    if !spec.unit.is_empty() && !matches!(spec.kind, Type::Duration | Type::Timestamp) {
        metadata.insert("taskdiag.unit".to_owned(), spec.unit.to_owned());
    }
    Field::new(&spec.name, data_type(spec), true).with_metadata(metadata)
}

fn schema(cx: &Context, specs: &[Spec]) -> Schema {
    let fields: Vec<Field> = specs.iter().map(field).collect();
    let metadata = HashMap::from([
        ("taskdiag.schema".to_owned(), SCHEMA.to_owned()),
        ("taskdiag.realtime_ns".to_owned(), cx.info.realtime_ns.to_string()),
        ("taskdiag.boottime_ns".to_owned(), cx.info.boottime_ns.to_string()),
    ]);
    Schema::new_with_metadata(fields, metadata)
}

fn offsets(offsets: Vec<i32>) -> OffsetBuffer<i32> {
    OffsetBuffer::new(ScalarBuffer::from(offsets))
}

fn texts(t: Texts, nulls: Option<NullBuffer>) -> StringArray {
    StringArray::new(offsets(t.offsets), Buffer::from_vec(t.bytes), nulls)
}

fn utf8(t: Text) -> Texts {
    t.lossy.unwrap_or(t.raw)
}

fn dictionary(t: &Texts, nulls: Option<&NullBuffer>) -> ArrayRef {
    let mut out = StringDictionaryBuilder::<Int32Type>::new();
    for i in 0..t.len() {
        // `utf8()` gave these texts, so no character of them is lost here.
        match nulls.is_none_or(|n| n.is_valid(i)) {
            true => out.append_value(String::from_utf8_lossy(t.get(i))),
            false => out.append_null(),
        }
    }
    Arc::new(out.finish())
}

fn array(spec: &Spec, column: columns::Column) -> ArrayRef {
    let rows = column.len();
    let nulls = (!column.validity.is_empty())
        .then(|| NullBuffer::new(BooleanBuffer::new(Buffer::from_vec(column.validity), 0, rows)));
    match column.data {
        Data::U64(v) => Arc::new(UInt64Array::new(v.into(), nulls)),
        Data::I64(v) => match spec.kind {
            Type::Duration => Arc::new(DurationNanosecondArray::new(v.into(), nulls)),
            Type::Timestamp => {
                Arc::new(TimestampMicrosecondArray::new(v.into(), nulls).with_timezone("UTC"))
            }
            _ => Arc::new(Int64Array::new(v.into(), nulls)),
        },
        Data::F64(v) => Arc::new(Float64Array::new(v.into(), nulls)),
        Data::Bool(bits, n) => {
            Arc::new(BooleanArray::new(BooleanBuffer::new(Buffer::from_vec(bits), 0, n), nulls))
        }
        Data::Text(t) if is_dictionary(spec) => dictionary(&utf8(t), nulls.as_ref()),
        Data::Text(t) => Arc::new(texts(utf8(t), nulls)),
        Data::TextList(ends, t) => {
            let values = Arc::new(texts(utf8(t), None));
            Arc::new(ListArray::new(item(DataType::Utf8), offsets(ends), values, nulls))
        }
        Data::U32List(ends, v) => {
            let values = Arc::new(UInt32Array::new(v.into(), None));
            Arc::new(ListArray::new(item(DataType::UInt32), offsets(ends), values, nulls))
        }
    }
}

/// The columns of a batch.
pub fn arrays(specs: &[Spec], batch: Batch) -> Vec<ArrayRef> {
    specs.iter().zip(batch.columns).map(|(s, c)| array(s, c)).collect()
}

fn record_batch(schema: &Arc<Schema>, specs: &[Spec], batch: Batch) -> io::Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(batch.rows));
    RecordBatch::try_new_with_options(schema.clone(), arrays(specs, batch), &options)
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

/// How Parquet files are written.
pub fn properties() -> WriterPropertiesBuilder {
    WriterProperties::builder()
        .set_created_by(concat!("taskdiag ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
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
