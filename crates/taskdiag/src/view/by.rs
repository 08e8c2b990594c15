//! Adds rows up: there is one sum for each value of a column.

use std::collections::{HashMap, HashSet};
use std::io;

use super::order::{Key, Ranks};
use super::rows::{Item, Rows, Sum, Take};
use crate::Groups;
use crate::field::{self, Context, Field, LACKING, Missing, PROCS, Part, Row, Value};

/// Finds rows whose memory was counted with an earlier row: rows of processes and threads that
/// share it.
#[derive(Clone, Debug, Default)]
pub struct MemoryOnce {
    /// The task of the last row, and whether its memory was counted with another task.
    last: (u32, bool),
    /// For shared memory, the rows of one task count: the first task that shares it.
    counted: HashMap<u32, u32>,
}

impl MemoryOnce {
    /// Is it a column of memory that can be added up?
    pub fn is_about(field: &Field) -> bool {
        field.groups.intersects(Groups::OF_MEMORY) && field.adds_up()
    }
    /// Whether the memory of this row's task was counted with an earlier task. Rows of one task
    /// follow each other.
    pub fn was_counted(&mut self, row: &Row<'_>) -> bool {
        let pid = row.view.pid();
        if pid != self.last.0 {
            let owner = Groups::OF_MEMORY.iter().find_map(|g| row.view.shared(g)).unwrap_or(pid);
            self.last = (pid, *self.counted.entry(owner).or_insert(pid) != pid);
        }
        self.last.1
    }
}

/// The groups that have a value for each file of a process.
const OF_FILES: Groups = Groups::LISTS_OF_FILES.union(Groups::FILE_STAT);

/// The sum of a column so far.
#[derive(Clone, Debug)]
struct Cell {
    /// The sum of the known values.
    total: Value<'static>,
    /// How many values are known.
    known: u64,
    /// Why a value is missing, if one is.
    lacking: Option<Missing>,
    /// For columns that do not add up: the value, as long as all rows have the same one.
    same: Option<Value<'static>>,
    differs: bool,
}

impl Default for Cell {
    fn default() -> Cell {
        Cell { total: Value::ABSENT, known: 0, lacking: None, same: None, differs: false }
    }
}

impl Cell {
    fn add(&mut self, field: &Field, value: Value<'_>) {
        match value {
            Value::Missing(m) => self.lacking = self.lacking.filter(|l| l.is_amiss()).or(Some(m)),
            Value::Uint(_) | Value::Nanos(_) | Value::Percent(_) if field.adds_up() => {
                self.total = match (&self.total, value) {
                    (Value::Uint(a), Value::Uint(b)) => Value::Uint(a.saturating_add(b)),
                    (Value::Nanos(a), Value::Nanos(b)) => Value::Nanos(a.saturating_add(b)),
                    (Value::Percent(a), Value::Percent(b)) => Value::Percent(a + b),
                    (_, first) => first.into_owned(),
                };
                self.known += 1;
            }
            _ if self.differs => {}
            v => match &self.same {
                None => self.same = Some(v.into_owned()),
                Some(same) if *same != v => self.differs = true,
                Some(_) => {}
            },
        }
    }
    fn value(&self, field: &Field) -> Value<'static> {
        match (&self.same, self.lacking) {
            _ if field.adds_up() && self.known > 0 => self.total.clone(),
            (_, Some(why)) => Value::Missing(why),
            (Some(same), None) if !self.differs => same.clone(),
            _ => Value::ABSENT,
        }
    }
    /// Is the sum incomplete?
    fn is_partial(&self) -> bool {
        self.known > 0 && self.lacking.is_some_and(Missing::is_amiss)
    }
}

/// The sums of all columns for one value of the key.
#[derive(Clone, Debug)]
struct GroupSums {
    sums: Vec<Cell>,
    last_task: u32,
    /// The number of processes with missing values in the sums, and the last of them.
    lacking: u64,
    last_lacking: u32,
    /// The sockets and the clients of graphics processors that were counted, by column, since
    /// processes may share them.
    shared: HashMap<usize, HashSet<u64>>,
}

/// If rows are threads: the values of each process that were counted. Threads share the memory and
/// other values of their process, so these count once in each line.
#[derive(Debug)]
struct OfProcesses {
    /// The index of each column's mark, if its value belongs to the process.
    places: Vec<Option<usize>>,
    /// The number of marks of a process in a line. The last one means that the process was counted
    /// as incomplete.
    len: usize,
    marks: Vec<bool>,
    /// The index of the first mark, by line and process.
    begins: HashMap<(usize, u32), usize>,
    last: ((usize, u32), usize),
}

impl OfProcesses {
    fn new<'f>(fields: impl Iterator<Item = &'f &'static Field>) -> OfProcesses {
        let mut len = 0;
        let mut place = |f: &&Field| {
            let is_once = f.name == PROCS || f.is_of_process() && f.adds_up();
            len += usize::from(is_once);
            is_once.then(|| len - 1)
        };
        let places = fields.map(&mut place).collect();
        let last = ((usize::MAX, 0), 0);
        OfProcesses { places, len: len + 1, marks: Vec::new(), begins: HashMap::new(), last }
    }
    /// The index of the first mark of a process within a line.
    fn of(&mut self, line: usize, tgid: u32) -> usize {
        // Threads of a process mostly follow each other.
        if self.last.0 != (line, tgid) {
            let new = self.marks.len();
            let begin = *self.begins.entry((line, tgid)).or_insert(new);
            if begin == new {
                self.marks.resize(new + self.len, false);
            }
            self.last = ((line, tgid), begin);
        }
        self.last.1
    }
}

/// Adds up rows.
#[derive(Debug)]
pub struct Sums<'a> {
    cx: &'a Context,
    key: Option<&'static Field>,
    columns: &'a [&'static Field],
    keys: &'a [Key],
    lines: Vec<GroupSums>,
    index: HashMap<Vec<u8>, usize>,
    text: Vec<u8>,
    once: MemoryOnce,
    /// `None` if rows are not threads.
    of_processes: Option<OfProcesses>,
}

impl<'a> Sums<'a> {
    /// Sums of these columns for each value of `key`, or for all rows together if it is `None`.
    pub fn new(
        cx: &'a Context,
        key: Option<&'static Field>,
        columns: &'a [&'static Field],
        keys: &'a [Key],
    ) -> Sums<'a> {
        let (lines, index, text) = (Vec::new(), HashMap::new(), Vec::new());
        let once = MemoryOnce::default();
        let fields = || columns.iter().chain(keys.iter().map(|k| &k.field));
        let of_processes = cx.threads.then(|| OfProcesses::new(fields()));
        Sums { cx, key, columns, keys, lines, index, text, once, of_processes }
    }
    /// Add a row. `lack` is called with the number of each column that has no value, and the
    /// reason.
    pub fn add(&mut self, row: &Row<'_>, lack: &mut dyn FnMut(usize, Missing)) {
        let pid = row.view.pid();
        let was_counted = self.once.was_counted(row);
        let at = self.line(row);
        let marks = self.of_processes.as_mut().map(|p| p.of(at, row.view.tgid()));
        let line = &mut self.lines[at];
        let new = line.last_task != pid;
        line.last_task = pid;
        let fields = self.columns.iter().copied().chain(self.keys.iter().map(|k| k.field));
        for (i, field) in fields.enumerate() {
            if field.name == PROCS && !new || was_counted && MemoryOnce::is_about(field) {
                continue;
            }
            let mut of_process = self.of_processes.as_mut().zip(marks);
            let mark = of_process.as_mut().and_then(|(p, begin)| {
                // Each file of a process has values of its own.
                let is_of_file =
                    matches!(row.part, Part::File(_)) && field.groups.intersects(OF_FILES);
                let place = p.places[i].filter(|_| !is_of_file)?;
                Some(&mut p.marks[*begin + place])
            });
            if mark.as_ref().is_some_and(|m| **m) {
                continue;
            }
            let once = field::sum_once(field, row, || line.shared.entry(i).or_default());
            let value = once.unwrap_or_else(|| (field.get)(self.cx, row));
            // If this thread lacks the value, because it has ended, another thread may have it.
            if let Some(mark) = mark {
                *mark = value.missing().is_none();
            }
            if let (Some(m), true) = (value.missing(), i < self.columns.len()) {
                lack(i, m);
                if !m.is_absent() {
                    let new = match of_process {
                        Some((p, at)) => !std::mem::replace(&mut p.marks[at + p.len - 1], true),
                        None => std::mem::replace(&mut line.last_lacking, pid) != pid,
                    };
                    line.lacking += u64::from(new);
                }
            }
            line.sums[i].add(field, value);
        }
    }
    fn line(&mut self, row: &Row<'_>) -> usize {
        self.text.clear();
        if let Some(key) = self.key {
            match (key.get)(self.cx, row) {
                // The bytes are not escaped, because two names could look the same if they were.
                Value::Bytes { data, .. } => self.text.extend_from_slice(&data),
                v => field::text(&mut self.text, self.cx, key.text, Some(row), &v),
            }
        }
        if let Some(at) = self.index.get(&self.text) {
            return *at;
        }
        let sums = vec![Cell::default(); self.columns.len() + self.keys.len()];
        let shared = HashMap::new();
        self.lines.push(GroupSums { sums, last_task: 0, lacking: 0, last_lacking: 0, shared });
        self.index.insert(self.text.clone(), self.lines.len() - 1);
        self.lines.len() - 1
    }
    /// The rows, sorted by the keys.
    pub fn finish(self) -> Summed {
        let fields: Vec<&Field> =
            self.columns.iter().copied().chain(self.keys.iter().map(|k| k.field)).collect();
        let values = |l: &GroupSums| {
            let value = |(s, f): (&Cell, &&Field)| match f.name {
                LACKING => Value::Uint(l.lacking),
                _ => s.value(f),
            };
            Sum {
                values: l.sums.iter().zip(&fields).map(value).collect(),
                partial: l.sums.iter().map(Cell::is_partial).collect(),
            }
        };
        let mut rows: Vec<Sum> = self.lines.iter().map(values).collect();
        let mut ranks = Ranks::default();
        for row in &rows {
            ranks.push(self.cx, row.values[self.columns.len()..].iter().cloned());
        }
        let order = ranks.order(self.keys);
        Summed(order.into_iter().map(|i| std::mem::take(&mut rows[i])).collect())
    }
}

/// Rows that were added up.
#[derive(Clone, Debug)]
pub struct Summed(pub Vec<Sum>);

impl Rows for Summed {
    fn each(&self, take: &mut Take<'_>) -> io::Result<()> {
        self.0.iter().try_for_each(|sum| take(Item::Sum(sum)))
    }
}

#[cfg(test)]
mod tests {
    use taskdiag_wire::{Base, Done, Group, Reason, Stat, Statm, Stream, StreamWriter, build};

    use super::*;
    use crate::field::TOP;

    /// Processes 10 and 20 of 2 and 3 threads, with 4 KiB and 8 KiB of memory. The leader of 20 has
    /// ended.
    fn threads() -> Stream<taskdiag_wire::AlignedBuf> {
        let mut w = StreamWriter::new();
        let groups = Groups::BASE | Groups::STAT | Groups::STATM;
        w.info(&build!(taskdiag_wire::Info {
            show_flags: groups.bits(),
            ..StreamWriter::blank_info()
        }));
        // The threads of the two processes are interleaved.
        for (tid, tgid, state) in
            [(10, 10, b'S'), (20, 20, b'Z'), (11, 10, b'R'), (21, 20, b'S'), (22, 20, b'S')]
        {
            w.begin_task(tid, tgid);
            w.put(&build!(Base { valid: Base::ALL_VALID, state, ..Base::new() }));
            w.put(&build!(Stat {
                valid: Stat::ALL_VALID,
                num_threads: if tgid == 10 { 2 } else { 3 },
                utime_ns: 1_000_000_000,
                cutime_ns: 5_000_000_000,
                ..Stat::new()
            }));
            match tid {
                20 => w.missing(Group::Statm, Reason::Absent),
                _ => w.put(&build!(Statm {
                    valid: Statm::ALL_VALID,
                    rss_bytes: if tgid == 10 { 4096 } else { 8192 },
                    ..Statm::new()
                })),
            }
            w.end_task();
        }
        Stream::parse(w.finish(Done::default())).expect("it is well formed")
    }

    #[test]
    fn shared_values_of_threads_count_once_per_process() {
        let stream = threads();
        let cx = Context::new(stream.info(), true);
        let field = |name: &str| TOP.find(name).expect("a column").field;
        let columns = ["procs", "nlwp", "rss", "cutime", "usertime"].map(field);
        let sums = |key: Option<&str>| {
            let mut sums = Sums::new(&cx, key.map(field), &columns, &[]);
            stream.tasks().for_each(|t| sums.add(&Row::new(t), &mut |_, _| {}));
            let number = |v: &Value<'_>| match v {
                Value::Uint(n) => *n,
                Value::Nanos(ns) => *ns / 1_000_000_000,
                Value::Missing(_) => 0,
                other => panic!("{other:?}"),
            };
            let lines = sums.finish().0;
            lines.iter().map(|l| l.values.iter().map(number).collect()).collect::<Vec<Vec<u64>>>()
        };
        assert_eq!(sums(None), [[2, 5, 12_288, 10, 5]]);
        // In each line, the whole process.
        let mut by_process = sums(Some("tgid"));
        by_process.sort();
        assert_eq!(by_process, [[1, 2, 4096, 5, 2], [1, 3, 8192, 5, 3]]);
        let mut by_state = sums(Some("s"));
        by_state.retain(|l| l[4] > 1);
        assert_eq!(by_state, [[2, 5, 12_288, 10, 3]]);
    }
}
