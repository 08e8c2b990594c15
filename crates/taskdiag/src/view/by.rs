//! Adds rows up: there is one sum for each value of a column.

use std::collections::HashMap;
use std::io;

use super::order::{Key, Ranks};
use super::rows::{Item, Rows, Sum, Take};
use crate::Groups;
use crate::field::{self, Context, Field, LACKING, Missing, PROCS, Row, Value};

/// Groups whose values are the same for all tasks that share their memory.
const OF_MEMORY: Groups =
    Groups::VMA.union(Groups::VMA_STAT).union(Groups::ROLLUP).union(Groups::SWAP);

/// The sum of a column so far.
#[derive(Clone, Debug)]
struct Cell {
    /// The sum of the known values.
    total: Value<'static>,
    /// How many values are known.
    known: u64,
    /// Why a value is missing, if one is.
    lacking: Option<Missing>,
    /// For columns that do not add up: the value, as long as all rows have the same.
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
    /// Does the sum lack a part that it should have?
    fn is_partial(&self) -> bool {
        self.known > 0 && self.lacking.is_some_and(Missing::is_amiss)
    }
}

/// The sums of all columns for one value of the key.
#[derive(Clone, Debug)]
struct GroupSums {
    sums: Vec<Cell>,
    last_task: u32,
    /// How many processes lack something in the sums, and the last of them.
    lacking: u64,
    last_lacking: u32,
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
    /// The task of the last row, and whether its memory is counted with another.
    last: (u32, bool),
    /// The task whose rows count for shared memory: the first one in the answer of those that share it.
    counted: HashMap<u32, u32>,
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
        let counted = HashMap::new();
        Sums { cx, key, columns, keys, lines, index, text, last: (0, false), counted }
    }
    /// Add a row. `lack` is called with the number of each column that has no value, and the reason.
    pub fn add(&mut self, row: &Row<'_>, lack: &mut dyn FnMut(usize, Missing)) {
        let pid = row.view.pid();
        if pid != self.last.0 {
            let owner = OF_MEMORY.iter().find_map(|g| row.view.shared(g)).unwrap_or(pid);
            self.last = (pid, *self.counted.entry(owner).or_insert(pid) != pid);
        }
        let at = self.line(row);
        let line = &mut self.lines[at];
        let new = line.last_task != pid;
        line.last_task = pid;
        let fields = self.columns.iter().copied().chain(self.keys.iter().map(|k| k.field));
        for (i, field) in fields.enumerate() {
            if field.name == PROCS && !new
                || self.last.1 && field.groups.intersects(OF_MEMORY) && field.adds_up()
            {
                continue;
            }
            let value = (field.get)(self.cx, row);
            if let (Some(m), true) = (value.missing(), i < self.columns.len()) {
                lack(i, m);
                if !m.is_absent() && line.last_lacking != pid {
                    line.lacking += 1;
                    line.last_lacking = pid;
                }
            }
            line.sums[i].add(field, value);
        }
    }
    fn line(&mut self, row: &Row<'_>) -> usize {
        self.text.clear();
        if let Some(key) = self.key {
            match (key.get)(self.cx, row) {
                // The bytes are not escaped, because two names could look the same then.
                Value::Bytes { data, .. } => self.text.extend_from_slice(&data),
                v => field::text(&mut self.text, self.cx, key.text, Some(row), &v),
            }
        }
        if let Some(at) = self.index.get(&self.text) {
            return *at;
        }
        let sums = vec![Cell::default(); self.columns.len() + self.keys.len()];
        self.lines.push(GroupSums { sums, last_task: 0, lacking: 0, last_lacking: 0 });
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
