//! The rows of a table that are not in a file yet, and the files that are complete.

use std::io;
use std::sync::Arc;

use arrow_array::{
    ArrayRef, DictionaryArray, Int8Array, RecordBatch, StringArray, TimestampMicrosecondArray,
    UInt32Array,
};
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use taskdiag::columns::{Builder, Spec};
use taskdiag::field::{Context, Value};
use taskdiag_face::arrow::Form;
use taskdiag_face::parquet::failed;

use super::changes::{Change, Key};
use super::part::Part;
use super::partition::Partition;
use crate::args::convert::{Table, TableArgs};

/// A new file is begun after this many rows, or bytes of them, because all rows of a file are
/// sorted in memory. Tables of lists have fewer, because several of them are in memory at a time.
/// Each row may have a path of 4 KiB, so a number of rows alone would limit nothing.
const ROWS: usize = 1 << 20;
const ROWS_OF_LISTS: usize = 1 << 18;
const BYTES: usize = 96 << 20;
const BYTES_OF_LISTS: usize = 32 << 20;

/// The rows of a table.
pub struct Out {
    /// The files that are complete.
    pub parts: Vec<Part>,
    table: Table,
    builder: Builder,
    /// The key, `ts`, and `change` of each row.
    keys: Vec<Key>,
    at: Vec<i64>,
    change: Vec<i8>,
    bytes: usize,
    /// The bytes of all rows, including rows that are in files already.
    all_bytes: u64,
}

impl Out {
    /// No rows yet.
    pub fn new(args: &TableArgs) -> Out {
        let specs = args.columns.iter().map(|c| Spec::of(&c.key, c.field)).collect();
        Out {
            parts: Vec::new(),
            table: args.table,
            builder: Builder::new(specs),
            keys: Vec::new(),
            at: Vec::new(),
            change: Vec::new(),
            bytes: 0,
            all_bytes: 0,
        }
    }
    /// The bytes of all rows so far.
    pub fn bytes(&self) -> u64 {
        self.all_bytes
    }
    /// Must a new file begin? A file begins with a full frame, and the last full frame had `rows`
    /// rows and `bytes` bytes. The limits leave room for further frames after a large one. If there
    /// is no such room, [`push`](Self::push) begins new files within frames.
    pub fn is_full(&self, rows: usize, bytes: u64) -> bool {
        let limit = if self.table.list().is_some() { ROWS_OF_LISTS } else { ROWS };
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).saturating_mul(2);
        self.keys.len() > limit.max(2 * rows) || self.bytes > self.most_bytes().max(bytes)
    }
    fn most_bytes(&self) -> usize {
        if self.table.list().is_some() { BYTES_OF_LISTS } else { BYTES }
    }
    /// Adds a row.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn push(
        &mut self,
        partition: &Partition,
        cx: &Context,
        (key, at, change): (Key, i64, Change),
        values: &[Value<'_>],
    ) -> io::Result<()> {
        self.builder.push(cx, |c| values[c].clone());
        self.keys.push(key);
        self.at.push(at);
        self.change.push(change as i8);
        let row = size_of::<Key>() + 16 + values.iter().map(bytes_of).sum::<usize>();
        self.bytes += row;
        self.all_bytes += row as u64;
        if self.bytes > self.most_bytes() / 2 * 3 {
            self.end_file(partition)?;
        }
        Ok(())
    }
    /// Ends a file with the rows so far.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn end_file(&mut self, partition: &Partition) -> io::Result<()> {
        if self.keys.is_empty() {
            return Ok(());
        }
        self.bytes = 0;
        let specs = self.builder.specs.clone();
        let builder = std::mem::replace(&mut self.builder, Builder::new(specs));
        let (specs, batches, _) = builder.finish();
        let (keys, at) = (std::mem::take(&mut self.keys), std::mem::take(&mut self.at));
        let change = std::mem::take(&mut self.change);
        let schema = schema(&specs);
        let mut pieces = Vec::new();
        let mut row = 0;
        for batch in batches {
            let rows = row..row + batch.rows;
            row = rows.end;
            let mut columns: Vec<ArrayRef> = vec![
                Arc::new(
                    TimestampMicrosecondArray::from(at[rows.clone()].to_vec()).with_timezone("UTC"),
                ),
                Arc::new(changes_of(&change[rows])?),
            ];
            columns.extend(Form::Stored.arrays(&specs, batch));
            pieces.push(RecordBatch::try_new(schema.clone(), columns).map_err(failed)?);
        }
        let all = arrow_select::concat::concat_batches(&schema, &pieces).map_err(failed)?;
        drop(pieces);
        // The rows of a task are next to each other, so that they compress well, and a reader finds
        // them in one place.
        let mut order: Vec<u32> = (0..all.num_rows() as u32).collect();
        order.sort_by_key(|i| (keys[*i as usize], at[*i as usize]));
        let order = UInt32Array::from(order);
        let sorted = arrow_select::take::take_record_batch(&all, &order).map_err(failed)?;
        drop(all);
        let file = partition.file(self.table, self.parts.len());
        self.parts.push(Part::write(&file, &sorted, &partition.metadata)?);
        Ok(())
    }
}

/// The bytes that a value takes in a column.
fn bytes_of(value: &Value<'_>) -> usize {
    match value {
        Value::Bytes { data, .. } | Value::Args { data, .. } => 8 + data.len(),
        Value::Ids(ids) | Value::GroupList(ids) => 8 + ids.len() * 12,
        // Names of users are short, and a missing value has its reason beside it.
        _ => 16,
    }
}

fn changes_of(numbers: &[i8]) -> io::Result<DictionaryArray<arrow_array::types::Int8Type>> {
    let names = Arc::new(StringArray::from(Change::NAMES.to_vec()));
    DictionaryArray::try_new(Int8Array::from(numbers.to_vec()), names).map_err(failed)
}

fn schema(specs: &[Spec]) -> SchemaRef {
    let help = |text: &str| [("taskdiag.help".to_owned(), text.to_owned())].into();
    let at = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    let change = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8));
    let mut fields = vec![
        Field::new("ts", at, false).with_metadata(help("The time of the frame")),
        Field::new("change", change, false)
            .with_metadata(help("Why the row is there: full, new, changed, ended")),
    ];
    fields.extend(specs.iter().map(|spec| Form::Stored.field(spec)));
    Arc::new(Schema::new(fields))
}
