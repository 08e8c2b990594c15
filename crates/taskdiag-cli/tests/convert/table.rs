//! The rows of a table that `taskdiag convert` wrote.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    DurationNanosecondType, Int8Type, Int32Type, TimestampMicrosecondType, UInt64Type,
};
use arrow_array::{Array, ArrayAccessor, RecordBatch, StringArray};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

pub struct Batch<'a>(&'a RecordBatch);

impl Batch<'_> {
    fn column(&self, name: &str) -> &dyn Array {
        self.0.column_by_name(name).unwrap_or_else(|| panic!("{name}"))
    }
    pub fn number(&self, name: &str, i: usize) -> Option<u64> {
        let column = self.column(name).as_primitive::<UInt64Type>();
        column.is_valid(i).then(|| column.value(i))
    }
    pub fn ns(&self, name: &str, i: usize) -> i64 {
        self.column(name).as_primitive::<DurationNanosecondType>().value(i)
    }
    pub fn word(&self, name: &str, i: usize) -> Option<String> {
        let column = self.column(name).as_dictionary::<Int32Type>();
        let column = column.downcast_dict::<StringArray>().expect("text");
        column.is_valid(i).then(|| column.value(i).to_owned())
    }
    pub fn bool(&self, name: &str, i: usize) -> bool {
        self.column(name).as_boolean().value(i)
    }
}

#[derive(Clone, Debug)]
pub struct Row<V> {
    pub pid: u64,
    pub ts: i64,
    pub change: String,
    pub value: V,
}

/// The rows that existed at a moment, by the rule of docs/reference/arrow.md. `key` has the
/// columns that identify a row, in addition to the pid.
pub fn at<V: Clone, K: Ord>(rows: &[Row<V>], ts: i64, key: fn(&V) -> K) -> BTreeMap<(u64, K), V> {
    let full = rows.iter().filter(|r| r.ts <= ts && r.change == "full").map(|r| r.ts).max();
    let mut last: BTreeMap<(u64, K), &Row<V>> = BTreeMap::new();
    for row in rows.iter().filter(|r| Some(r.ts) >= full && r.ts <= ts) {
        last.insert((row.pid, key(&row.value)), row);
    }
    let there = last.into_iter().filter(|(_, row)| row.change != "ended");
    there.map(|(key, row)| (key, row.value.clone())).collect()
}

/// The rows of a file, with a value of each.
pub fn rows<V>(file: &Path, value: fn(&Batch<'_>, usize) -> V) -> Vec<Row<V>> {
    let file = File::open(file).expect("it is there");
    let reader = ParquetRecordBatchReaderBuilder::try_new(file)
        .and_then(ParquetRecordBatchReaderBuilder::build)
        .expect("it is a Parquet file");
    let mut rows = Vec::new();
    for batch in reader {
        let batch = batch.expect("it can be read");
        let of = Batch(&batch);
        let ts = of.0.column_by_name("ts").expect("ts");
        let ts = ts.as_primitive::<TimestampMicrosecondType>();
        let change = of.0.column_by_name("change").expect("change").as_dictionary::<Int8Type>();
        let change = change.downcast_dict::<StringArray>().expect("text");
        rows.extend((0..batch.num_rows()).map(|i| Row {
            pid: of.number("pid", i).expect("each has one"),
            ts: ts.value(i),
            change: change.value(i).to_owned(),
            value: value(&of, i),
        }));
    }
    rows
}
