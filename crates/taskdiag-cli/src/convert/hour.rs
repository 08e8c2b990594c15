//! Collects the rows of an hour, and writes them to one file, or to several if there are very many.

use std::collections::{BTreeMap, HashMap};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arrow_array::{
    ArrayRef, DictionaryArray, Int8Array, RecordBatch, StringArray, TimestampMicrosecondArray,
    UInt32Array,
};
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use chrono::DateTime;
use parquet::arrow::ArrowWriter;
use parquet::file::metadata::{KeyValue, ParquetMetaDataReader};
use taskdiag::columns::{Builder, Spec};
use taskdiag::field::{Context, TASKS, Value};
use taskdiag::recording::Frame;
use taskdiag::view::Query;

use super::changes::{Change, Changes, Key};
use crate::columns::Column;
use crate::exit::shown;
use crate::output::arrow;

/// A further file is begun after this many rows, because all rows of a file are sorted in memory.
const ROWS: usize = 1 << 20;
/// Rows in a row group. A reader can skip a whole row group by the smallest and largest values of its columns.
const GROUP: usize = 1 << 16;
/// The key in a file's metadata that says whether the file was written after its hour was over.
const COMPLETE: &str = "taskdiag.complete";

/// Where the files of an hour go.
pub struct Partition {
    directory: PathBuf,
    name: &'static str,
    host: String,
}

impl Partition {
    /// The partition of an hour, which is counted from 1970.
    pub fn new(lake: &Path, hour: u64, host: &str, threads: bool) -> Partition {
        // The hours come from the clock of a machine, so they are in the range of the calendar.
        let begin = DateTime::from_timestamp(hour as i64 * 3600, 0).unwrap_or_default();
        let directory = lake
            .join(begin.format("date=%Y-%m-%d/hour=%H").to_string())
            .join(format!("host={host}"));
        let name = if threads { "threads" } else { "processes" };
        Partition { directory, name, host: host.to_owned() }
    }
    /// The n-th file, from 0.
    fn file(&self, n: usize) -> PathBuf {
        let name = self.name;
        self.directory.join(if n == 0 {
            format!("{name}.parquet")
        } else {
            format!("{name}-{n}.parquet")
        })
    }
    /// Was it written after its hour was over?
    pub fn is_complete(&self) -> bool {
        let read = || -> Option<bool> {
            let file = File::open(self.file(0)).ok()?;
            let metadata = ParquetMetaDataReader::new().parse_and_finish(&file).ok()?;
            let pairs = metadata.file_metadata().key_value_metadata()?;
            Some(pairs.iter().any(|p| p.key == COMPLETE && p.value.as_deref() == Some("true")))
        };
        read().unwrap_or(false)
    }
}

/// The rows of an hour.
pub struct Hour {
    query: Query,
    threads: bool,
    is_over: bool,
    frames: u64,
    changes: Changes,
    cx: Option<Context>,
    builder: Builder,
    /// The columns `pid` and `start_ticks`, `ts`, and `change` of each row.
    keys: Vec<Key>,
    at: Vec<i64>,
    change: Vec<i8>,
    /// The sorted rows of files that are complete.
    files: Vec<RecordBatch>,
}

fn specs(columns: &[Column]) -> Vec<Spec> {
    columns.iter().map(|c| Spec::of(&c.key, c.field)).collect()
}

impl Hour {
    /// No rows yet. `is_over`: the hour had ended when the recording was opened, so nothing will be added to it.
    pub fn new(columns: &[Column], full_every: Duration, threads: bool, is_over: bool) -> Hour {
        Hour {
            query: Query::new(&TASKS, columns.iter().map(|c| c.field)),
            threads,
            is_over,
            frames: 0,
            changes: Changes::new(full_every),
            cx: None,
            builder: Builder::new(specs(columns)),
            keys: Vec::new(),
            at: Vec::new(),
            change: Vec::new(),
            files: Vec::new(),
        }
    }
    /// Adds the rows of a frame: those of tasks that have changed since the frame before, or of all tasks.
    ///
    /// # Errors
    /// The rows do not fit into columns.
    pub fn add(&mut self, frame: &Frame) -> io::Result<()> {
        if self.keys.len() > ROWS {
            self.end_file()?;
        }
        let has_booted = self.changes.begin(&frame.info);
        if has_booted || self.cx.is_none() {
            // The hour has one context. The start time of a process is computed from the clocks in it, and would differ a
            // little with the clocks of each frame.
            self.cx = Some(Context::of(&frame.snapshot, self.threads));
        }
        self.frames += 1;
        let at = micros(frame.info.time);
        let view = self.query.view(&frame.snapshot);
        let cx = self.cx.as_ref().expect("it was made above");
        let fields = &self.query.columns;
        let (changes, builder) = (&mut self.changes, &mut self.builder);
        let (keys, ats, whys) = (&mut self.keys, &mut self.at, &mut self.change);
        let mut push = |key: Key, why: Change, values: &[Value<'_>]| {
            builder.push(cx, |c| values[c].clone());
            keys.push(key);
            ats.push(at);
            whys.push(why as i8);
        };
        view.rows(false, &mut |_, _, _| {}).each(&mut |item| {
            let values: Vec<Value<'_>> =
                fields.iter().enumerate().map(|(c, field)| item.value(cx, field, c)).collect();
            let key = key(fields, &values, item.row().map_or(0, |row| row.view.pid()));
            if let Some(why) = changes.see(key, &values) {
                push(key, why, &values);
            }
            Ok(())
        })?;
        for (key, values) in changes.ended() {
            push(key, Change::Ended, &values);
        }
        Ok(())
    }
    /// Ends a file with the rows so far. The next file begins with a full frame.
    fn end_file(&mut self) -> io::Result<()> {
        let specs = self.builder.specs.clone();
        let builder = std::mem::replace(&mut self.builder, Builder::new(specs));
        let (specs, batches, _) = builder.finish();
        let (keys, at) = (std::mem::take(&mut self.keys), std::mem::take(&mut self.at));
        let change = std::mem::take(&mut self.change);
        self.changes.forget();
        let schema = schema(&specs);
        let mut parts = Vec::new();
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
            columns.extend(arrow::arrays(&specs, batch));
            parts.push(RecordBatch::try_new(schema.clone(), columns).map_err(arrow::failed)?);
        }
        let all = arrow_select::concat::concat_batches(&schema, &parts).map_err(arrow::failed)?;
        // The rows of a task are next to each other, so that they compress well, and a reader finds them in one place.
        let mut order: Vec<u32> = (0..all.num_rows() as u32).collect();
        order.sort_by_key(|i| (keys[*i as usize], at[*i as usize]));
        let order = UInt32Array::from(order);
        let sorted = arrow_select::take::take_record_batch(&all, &order).map_err(arrow::failed)?;
        self.files.push(sorted);
        Ok(())
    }
    /// Writes the files. Returns a line that says what was written, or `None` if there is nothing to write.
    ///
    /// # Errors
    /// A file cannot be written. The file that was there before stays.
    pub fn write(mut self, partition: &Partition) -> io::Result<Option<String>> {
        if !self.keys.is_empty() {
            self.end_file()?;
        }
        if self.files.is_empty() {
            return Ok(None);
        }
        DirBuilder::new().recursive(true).mode(0o700).create(&partition.directory)?;
        let (mut rows, mut bytes) = (0, 0);
        // The first file tells `is_complete()`, so it is written last, when all others are there.
        for (n, batch) in self.files.iter().enumerate().rev() {
            let file = partition.file(n);
            let metadata = HashMap::from([
                ("taskdiag.schema".to_owned(), arrow::SCHEMA.to_owned()),
                ("taskdiag.host".to_owned(), partition.host.clone()),
                (COMPLETE.to_owned(), self.is_over.to_string()),
            ]);
            let size = write(&file, batch, metadata)
                .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", file.display())))?;
            rows += batch.num_rows();
            bytes += size;
        }
        let file = shown(&partition.file(0));
        Ok(Some(format!("{file}: {} frames, {rows} rows, {bytes} bytes\n", self.frames)))
    }
}

/// Writes a file under another name, and gives it its own name when it is complete. Returns its size.
fn write(file: &Path, batch: &RecordBatch, metadata: HashMap<String, String>) -> io::Result<u64> {
    let mut name = std::ffi::OsString::from(".");
    name.push(file.file_name().unwrap_or_default());
    name.push(".part");
    let part = file.with_file_name(name);
    // A file that is there was left by a command that was killed. It can be overwritten, because the lock of the directory says
    // that no other command is running.
    let mut out =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&part)?;
    let written = (|| {
        let schema: SchemaRef =
            Arc::new(batch.schema().as_ref().clone().with_metadata(metadata.clone()));
        // Sorted, so that the same rows always give the same bytes.
        let pairs = metadata.into_iter().collect::<BTreeMap<_, _>>().into_iter();
        let pairs = pairs.map(|(key, value)| KeyValue::new(key, value)).collect();
        let properties = arrow::properties()
            .set_max_row_group_size(GROUP)
            .set_key_value_metadata(Some(pairs))
            .build();
        let batch = RecordBatch::try_new(schema.clone(), batch.columns().to_vec())
            .map_err(arrow::failed)?;
        let mut writer =
            ArrowWriter::try_new(&mut out, schema, Some(properties)).map_err(arrow::failed)?;
        writer.write(&batch).map_err(arrow::failed)?;
        writer.close().map_err(arrow::failed)?;
        out.flush()?;
        out.sync_all()?;
        let size = out.metadata()?.len();
        std::fs::rename(&part, file)?;
        File::open(file.parent().unwrap_or(Path::new(".")))?.sync_all()?;
        Ok(size)
    })();
    if written.is_err() {
        // It would only take space, and the disk may be full.
        let _ = std::fs::remove_file(&part);
    }
    written
}

fn micros(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// The key of a task: its id, and its start if that is known.
fn key(fields: &[&'static taskdiag::field::Field], values: &[Value<'_>], pid: u32) -> Key {
    let start = fields.iter().position(|f| f.name == "start_ticks");
    match start.map(|c| &values[c]) {
        Some(Value::Uint(ticks)) => (pid, *ticks),
        _ => (pid, 0),
    }
}

fn changes_of(numbers: &[i8]) -> io::Result<DictionaryArray<arrow_array::types::Int8Type>> {
    let names = Arc::new(StringArray::from(Change::NAMES.to_vec()));
    DictionaryArray::try_new(Int8Array::from(numbers.to_vec()), names).map_err(arrow::failed)
}

fn schema(specs: &[Spec]) -> SchemaRef {
    let help = |text: &str| HashMap::from([("taskdiag.help".to_owned(), text.to_owned())]);
    let at = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    let change = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8));
    let mut fields = vec![
        Field::new("ts", at, false).with_metadata(help("The time of the frame")),
        Field::new("change", change, false)
            .with_metadata(help("Why the row is there: full, new, changed, ended")),
    ];
    fields.extend(specs.iter().map(arrow::field));
    Arc::new(Schema::new(fields))
}
