//! Collects the rows of a table in an hour, and writes them to one file, or to several if there are
//! very many.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use taskdiag::field::{Context, Missing, Value};
use taskdiag::recording::Frame;
use taskdiag::view::Query;

use super::changes::{Change, Changes, Key};
use super::entries::Entries as _;
use super::kinds::has_threads;
use super::out::Out;
use super::partition::Partition;
use crate::args::convert::{Table, TableArgs};
use crate::files::own_netns;

/// The largest amount of memory that the rows of the previous frame may take. Tables of lists have
/// less, because several of them are in memory at a time. A frame with more is written in full, as
/// is the next.
const KNOWN: usize = 192 << 20;
const KNOWN_OF_LISTS: usize = 96 << 20;

/// Counts the answers of a recording that lack a list.
#[derive(Clone, Debug, Default)]
pub struct Lacks {
    /// Answers that have the list.
    pub with: u64,
    /// Answers that were recorded without it.
    pub without: u64,
    /// Answers about threads if the table is about processes, or the other way round.
    pub other: u64,
    /// How often the list of a process could not be read, by the reason.
    pub unread: BTreeMap<&'static str, u64>,
}

impl Lacks {
    /// Adds the missing data of another hour.
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
    /// The rows, and the files that are complete.
    pub out: Out,
    query: Query,
    changes: Changes,
    cx: Option<Context>,
    /// Whether the last frame was one of threads.
    had_threads: Option<bool>,
    /// The bytes of the last full frame.
    full: u64,
}

impl Rows {
    /// No rows yet.
    pub fn new(args: &TableArgs, full_every: Duration) -> Rows {
        let most = if args.table.list().is_some() { KNOWN_OF_LISTS } else { KNOWN };
        Rows {
            table: args.table,
            lacks: Lacks::default(),
            out: Out::new(args),
            query: args.table.rows(&args.columns),
            changes: Changes::new(full_every, most),
            cx: None,
            had_threads: None,
            full: 0,
        }
    }
    /// Do rows of this table come from a frame of this kind? Frames of processes and frames of
    /// threads belong to different tables.
    pub fn is_of(&self, frame: &Frame) -> bool {
        match self.table {
            Table::Processes | Table::Memory => !has_threads(frame),
            Table::Threads => has_threads(frame),
            Table::Sockets | Table::Files | Table::MappedFiles | Table::Maps => true,
            Table::Cgroups => false,
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
        // Each file begins with a full frame, if that is not too large for a file.
        if self.out.is_full(self.changes.len(), self.full) {
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
        let (table, changes, out) = (self.table, &mut self.changes, &mut self.out);
        let before = out.bytes();
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
                out.push(partition, cx, (key, at, why), &values)?;
            }
            Ok(())
        })?;
        let gaps = table.gaps(&view);
        for reason in gaps.values().filter(|reason| Missing::Reason(**reason).is_amiss()) {
            *self.lacks.unread.entry(reason.name()).or_default() += 1;
        }
        let unknown: HashSet<u32> = gaps.into_keys().collect();
        let is_full = changes.is_full();
        changes.end(&unknown, |key, values| {
            out.push(partition, cx, (key, at, Change::Ended), values)
        })?;
        if is_full {
            self.full = out.bytes() - before;
        }
        Ok(())
    }
    /// Ends a file with the rows so far. The next file begins with a full frame.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn end_file(&mut self, partition: &Partition) -> io::Result<()> {
        self.changes.forget();
        self.out.end_file(partition)
    }
}

/// Borrows a value, without a copy of its text.
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
