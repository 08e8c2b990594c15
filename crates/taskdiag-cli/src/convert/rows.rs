//! Collects the rows of a table in an hour, and writes them to one file, or to several if there are
//! very many.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arrow_array::{
    ArrayRef, DictionaryArray, Int8Array, RecordBatch, StringArray, TimestampMicrosecondArray,
    UInt32Array,
};
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use taskdiag::columns::{Builder, Spec};
use taskdiag::field::{Context, Missing, Value};
use taskdiag::recording::Frame;
use taskdiag::view::Query;
use taskdiag_face::arrow::Form;
use taskdiag_face::parquet::failed;

use super::changes::{Change, Changes, Key};
use super::entries::Entries as _;
use super::kinds::has_threads;
use super::part::Part;
use super::partition::Partition;
use crate::args::convert::{Table, TableArgs};
use crate::files::own_netns;

/// A new file is begun after this many rows, because all rows of a file are sorted in memory.
/// Tables of lists have fewer, because several of them are in memory at a time.
const ROWS: usize = 1 << 20;
const ROWS_OF_LISTS: usize = 1 << 18;

/// Counts the answers of a recording that lack a list.
#[derive(Clone, Debug, Default)]
pub struct Lacks {
    /// Answers that have the list.
    pub with: u64,
    /// Answers that were recorded without it.
    pub without: u64,
    /// Answers of threads if the table is of processes, or the other way round.
    pub other: u64,
    /// How often the list of a process could not be read, by the reason.
    pub unread: BTreeMap<&'static str, u64>,
}

impl Lacks {
    /// Adds those of another hour.
    pub fn add(&mut self, other: &Lacks) {
        self.with += other.with;
        self.without += other.without;
        self.other += other.other;
        for (reason, count) in &other.unread {
            *self.unread.entry(reason).or_default() += count;
        }
    }
}

/// The rows of a table in an hour.
pub struct Rows {
    /// The table.
    pub table: Table,
    /// How many answers lack its list.
    pub lacks: Lacks,
    /// The files that are complete.
    pub parts: Vec<Part>,
    query: Query,
    changes: Changes,
    cx: Option<Context>,
    /// Whether the last frame was one of threads.
    had_threads: Option<bool>,
    builder: Builder,
    /// The key, `ts`, and `change` of each row.
    keys: Vec<Key>,
    at: Vec<i64>,
    change: Vec<i8>,
}

impl Rows {
    /// No rows yet.
    pub fn new(args: &TableArgs, full_every: Duration) -> Rows {
        let specs = args.columns.iter().map(|c| Spec::of(&c.key, c.field)).collect();
        Rows {
            table: args.table,
            lacks: Lacks::default(),
            parts: Vec::new(),
            query: args.table.rows(&args.columns),
            changes: Changes::new(full_every),
            cx: None,
            had_threads: None,
            builder: Builder::new(specs),
            keys: Vec::new(),
            at: Vec::new(),
            change: Vec::new(),
        }
    }
    /// Do rows of this table come from such a frame? Frames of processes and frames of threads
    /// belong to different tables.
    pub fn is_of(&self, frame: &Frame) -> bool {
        match self.table {
            Table::Processes | Table::Memory => !has_threads(frame),
            Table::Threads => has_threads(frame),
            Table::Sockets | Table::Files | Table::MappedFiles | Table::Maps => true,
        }
    }
    /// Adds the rows of a frame: those that have changed since the previous frame, or all.
    ///
    /// # Errors
    /// The rows do not fit into columns, or cannot be written.
    pub fn add(&mut self, frame: &Frame, partition: &Partition) -> io::Result<()> {
        if !self.is_of(frame) {
            self.lacks.other += 1;
            return Ok(());
        }
        let list = self.table.list();
        if list.is_some_and(|group| !frame.snapshot.stream().asked().has(group)) {
            self.lacks.without += 1;
            return Ok(());
        }
        // Each file begins with a full frame. The limit must leave room for further frames, even if
        // that is very large.
        let limit = if list.is_some() { ROWS_OF_LISTS } else { ROWS };
        if self.keys.len() > limit.max(2 * self.changes.len()) {
            self.end_file(partition)?;
        }
        self.lacks.with += 1;
        // An answer of processes does not show whether the open files of a thread have ended, so
        // the next frame is written in full.
        let has_threads = has_threads(frame);
        if self.had_threads.replace(has_threads).is_some_and(|had| had != has_threads) {
            self.changes.forget();
        }
        let boot_id = frame.snapshot.stream().info().boot_id;
        let has_booted = self.changes.begin(&frame.info, boot_id);
        if has_booted || self.cx.is_none() {
            // All frames of an hour use one context. The start time of a process is computed from
            // the clocks in it, and would differ a little from frame to frame otherwise.
            self.cx = Some(Context::of(&frame.snapshot, self.query.threads));
        }
        let at = micros(frame.info.time);
        let mut view = self.query.view(&frame.snapshot);
        if let Some(files) = view.files_mut() {
            files.own_netns = own_netns(files, true);
        }
        let cx = self.cx.as_ref().expect("it was made above");
        let fields = &self.query.columns;
        let start = fields.iter().position(|f| f.name == "start_ticks");
        // The entries of a task follow each other, and there may be thousands of them. Values of
        // the task itself are looked up once.
        let is_own = |c: usize| self.table.set().own().any(|f| f.name == fields[c].name);
        let of_task: Vec<bool> = (0..fields.len()).map(|c| list.is_some() && !is_own(c)).collect();
        let boot = self.changes.boots();
        let mut last: (Option<u32>, Vec<Value<'static>>) = (None, Vec::new());
        let (table, changes, builder) = (self.table, &mut self.changes, &mut self.builder);
        let (keys, ats, whys) = (&mut self.keys, &mut self.at, &mut self.change);
        let mut push = |key: Key, why: Change, values: &[Value<'_>]| {
            builder.push(cx, |c| values[c].clone());
            keys.push(key);
            ats.push(at);
            whys.push(why as i8);
        };
        view.rows(false, &mut |_, _, _| {}).each(&mut |item| {
            let Some(row) = item.row() else { return Ok(()) };
            let get = |c: usize| item.value(cx, fields[c], c);
            if list.is_some() && last.0 != Some(row.view.pid()) {
                let own = |c: usize| if of_task[c] { get(c).into_owned() } else { Value::ABSENT };
                last = (Some(row.view.pid()), (0..fields.len()).map(own).collect());
            }
            let value = |c: usize| if of_task[c] { lent(&last.1[c]) } else { get(c) };
            let values: Vec<Value<'_>> = (0..fields.len()).map(value).collect();
            let start_ticks = match start.map(|c| &values[c]) {
                Some(Value::Uint(ticks)) => *ticks,
                _ => 0,
            };
            let key = Key { boot, ..table.key(row, start_ticks) };
            if let Some(why) = changes.see(key, &values) {
                push(key, why, &values);
            }
            Ok(())
        })?;
        let gaps = table.gaps(&view);
        for reason in gaps.values().filter(|reason| Missing::Reason(**reason).is_amiss()) {
            *self.lacks.unread.entry(reason.name()).or_default() += 1;
        }
        let unknown: HashSet<u32> = gaps.into_keys().collect();
        for (key, values) in changes.ended(&unknown) {
            push(key, Change::Ended, &values);
        }
        Ok(())
    }
    /// Ends a file with the rows so far. The next file begins with a full frame.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn end_file(&mut self, partition: &Partition) -> io::Result<()> {
        if self.keys.is_empty() {
            return Ok(());
        }
        let specs = self.builder.specs.clone();
        let builder = std::mem::replace(&mut self.builder, Builder::new(specs));
        let (specs, batches, _) = builder.finish();
        let (keys, at) = (std::mem::take(&mut self.keys), std::mem::take(&mut self.at));
        let change = std::mem::take(&mut self.change);
        self.changes.forget();
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

/// The same value, without a copy of its text.
fn lent<'v>(value: &'v Value<'static>) -> Value<'v> {
    match value {
        Value::Bytes { data, cut } => Value::Bytes { data: Cow::Borrowed(&**data), cut: *cut },
        Value::Args { data, cut } => Value::Args { data: Cow::Borrowed(&**data), cut: *cut },
        other => other.clone(),
    }
}

fn micros(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
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
