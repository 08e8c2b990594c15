//! Chooses and orders the rows: conditions, sort keys, the tree, sums.
//!
//! Only the rows on the screen are sorted. The others are just divided into those before and those
//! after the screen, which takes one pass; sorting 100,000 rows takes seventeen.

use std::cmp::Ordering;
use std::ops::Range;

use taskdiag::field::{self, Row, Value, since_boot};
use taskdiag::view::{Sum, Sums, Truth};

use super::scan::{Frame, Shape};
use super::subtree::{self, Subtrees};
use crate::args::top::SET;
use crate::forest::{self, Tree};
use crate::order::Key;

/// The rows.
#[derive(Debug, Default)]
pub struct Rows {
    /// The tasks with their sort keys; the order is right within `sorted` only.
    tasks: Vec<(u128, u32)>,
    sorted: Range<usize>,
    /// The order and drawings of a tree.
    tree: Option<Tree>,
    /// The rows of the tree that are shown, and how many are folded away below each.
    unfolded: Vec<(u32, u32)>,
    /// The sums of subtrees, if they are shown.
    subtrees: Option<Subtrees>,
    /// The sums, instead of tasks.
    pub sums: Vec<Sum>,
    /// How many tasks are in each state, by its letter.
    pub states: Vec<(u8, usize)>,
    /// All tasks, including those that are not shown.
    pub all: usize,
    /// The number of threads of these tasks, as far as it is known.
    pub threads: u64,
    /// How many tasks are left out because a value that is tested is not known.
    pub unknown: usize,
}

/// An integer that has the same order as the values. A missing value comes before all others.
/// `None`: the value is not a number.
fn number(value: &Value<'_>) -> Option<u64> {
    Some(match value {
        Value::Missing(_) => 0,
        Value::Uint(v) | Value::Nanos(v) | Value::Mask(v) => v.saturating_add(1),
        Value::Instant(v) => (since_boot(*v) as u64 ^ 1 << 63).max(1),
        Value::Unlimited => u64::MAX,
        Value::Bool(b) => u64::from(*b) + 1,
        Value::Int(v) => (*v as u64 ^ 1 << 63).max(1),
        // The bits of floating-point numbers that are not negative have the order of the numbers.
        Value::Percent(p) => p.max(0.0).to_bits() + 1,
        Value::Tty(dev) => u64::from(*dev) + 1,
        _ => return None,
    })
}

/// The bytes by which a text is compared.
fn words(frame: &Frame<'_>, row: &Row<'_>, field: &field::Field, value: &Value<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    match value {
        Value::Bytes { data, .. } | Value::Args { data, .. } => out.extend_from_slice(data),
        value => field::text(&mut out, frame.cx, field.text, Some(row), value),
    }
    out
}

/// Compares tasks by the sort keys.
struct Order<'a> {
    frame: &'a Frame<'a>,
    keys: &'a [Key],
    /// How many of the keys the integer contains that is compared first.
    packed: usize,
}

impl<'a> Order<'a> {
    fn new(frame: &'a Frame<'a>, keys: &'a [Key]) -> Order<'a> {
        use field::DataType::{Text, TextList, U32List};
        let is_number = |k: &Key| !matches!(k.field.data_type(), Text | TextList | U32List);
        let packed = keys.iter().take(2).take_while(|k| is_number(k)).count();
        Order { frame, keys, packed }
    }
    /// The integer that is compared first. Smaller ones come first.
    fn key(&self, row: &Row<'_>) -> u128 {
        let value = |k: &Key| (k.field.get)(self.frame.cx, row);
        let turned = |k: &Key, n: u64| if k.descending { !n } else { n };
        let mut out = 0;
        for (i, key) in self.keys[..self.packed].iter().enumerate() {
            let n = turned(key, number(&value(key)).unwrap_or(0));
            out |= u128::from(n) << (64 * (1 - i));
        }
        if let (0, Some(key)) = (self.packed, self.keys.first()) {
            let text = words(self.frame, row, key.field, &value(key));
            let mut head = [0; 16];
            let n = text.len().min(16);
            head[..n].copy_from_slice(&text[..n]);
            out = u128::from_be_bytes(head);
            out = if key.descending { !out } else { out };
        }
        out
    }
    fn compare(&self, a: &(u128, u32), b: &(u128, u32)) -> Ordering {
        let first = a.0.cmp(&b.0);
        if first.is_ne() || self.packed == self.keys.len() {
            return first.then(a.1.cmp(&b.1));
        }
        let rows = (self.frame.row(a.1 as usize), self.frame.row(b.1 as usize));
        let (Some(x), Some(y)) = rows else { return a.1.cmp(&b.1) };
        for key in &self.keys[self.packed..] {
            let value = |row| (key.field.get)(self.frame.cx, row);
            let (v, w) = (value(&x), value(&y));
            let order = match (number(&v), number(&w)) {
                (Some(v), Some(w)) => v.cmp(&w),
                _ => {
                    words(self.frame, &x, key.field, &v).cmp(&words(self.frame, &y, key.field, &w))
                }
            };
            let order = if key.descending { order.reverse() } else { order };
            if order.is_ne() {
                return order;
            }
        }
        a.1.cmp(&b.1)
    }
}

/// The tasks of a tree in the order of the sums of their subtrees, if rows are sorted by a column
/// that adds up.
fn by_sums(shape: &Shape, tree: &Tree, sums: &Subtrees) -> Option<Vec<u32>> {
    let key = shape.sort.first().filter(|k| k.field.adds_up())?;
    let mut places: Vec<usize> = (0..tree.rows.len()).collect();
    let total = |at: &usize| sums.total(key.field, *at).unwrap_or(-1.0);
    // Stable, so that equal ones keep the order of the table.
    places.sort_by(|a, b| {
        let order = total(a).total_cmp(&total(b));
        if key.descending { order.reverse() } else { order }
    });
    Some(places.into_iter().map(|at| tree.rows[at]).collect())
}

impl Rows {
    /// Choose the rows of an answer again.
    pub fn choose(&mut self, frame: &Frame<'_>, shape: &Shape, lines: forest::Style) {
        self.tasks.clear();
        self.states.clear();
        self.sums.clear();
        self.unfolded.clear();
        (self.sorted, self.tree, self.subtrees) = (0..0, None, None);
        (self.all, self.threads, self.unknown) = (0, 0, 0);
        let nlwp = SET.find("nlwp").expect("a column of the table").field;
        let cpu_now = SET.find("cpu_now").expect("a column of the table").field;
        let own = shape.threads.then_some(Value::Uint(1));
        let mut states = [0usize; 256];
        let order = Order::new(frame, &shape.sort);
        let fields: Vec<&'static field::Field> = shape.columns.iter().map(|c| c.field).collect();
        let by = shape.by.as_ref();
        let mut sums = by.map(|by| Sums::new(frame.cx, Some(by.field), &fields, &shape.sort));
        for (i, task) in frame.snapshot.tasks().enumerate() {
            let row = frame.rated(Row::new(task), i);
            self.all += 1;
            states[usize::from(row.state().unwrap_or(b'?'))] += 1;
            if let Value::Uint(n) = own.clone().unwrap_or_else(|| (nlwp.get)(frame.cx, &row)) {
                self.threads += n;
            }
            if shape.users_only && row.is_kthread() {
                continue;
            }
            // Before there are rates, nothing is known to be idle.
            let is_idle = || matches!((cpu_now.get)(frame.cx, &row), Value::Percent(p) if p <= 0.0);
            if shape.busy_only && is_idle() {
                continue;
            }
            match shape.filter.as_ref().map_or(Truth::True, |f| f.test(frame.cx, &row)) {
                Truth::True => {}
                Truth::False => continue,
                Truth::Unknown(_, why) => {
                    self.unknown += usize::from(why.is_amiss());
                    continue;
                }
            }
            match &mut sums {
                Some(sums) => sums.add(&row, &mut |_, _| {}),
                None => self.tasks.push((order.key(&row), i as u32)),
            }
        }
        let letters = (0..=255u8).filter(|s| states[usize::from(*s)] > 0);
        self.states = letters.map(|s| (s, states[usize::from(s)])).collect();
        if let Some(sums) = sums {
            self.sums = sums.finish().0;
        }
        if shape.tree && by.is_none() {
            self.tasks.sort_unstable_by(|a, b| order.compare(a, b));
            let indices: Vec<u32> = self.tasks.iter().map(|t| t.1).collect();
            let mut tree = Tree::new(&indices, frame.snapshot, lines);
            if shape.adds_up_subtrees() {
                let sums = Subtrees::new(frame, shape, &tree);
                let (tree_by_sums, sums) = match by_sums(shape, &tree, &sums) {
                    // The sums belong to the places in the new order.
                    Some(indices) => {
                        let again = Tree::new(&indices, frame.snapshot, lines);
                        let sums = Subtrees::new(frame, shape, &again);
                        (again, sums)
                    }
                    None => (tree, sums),
                };
                (tree, self.subtrees) = (tree_by_sums, Some(sums));
            }
            self.unfolded = subtree::unfolded(frame, &tree, &shape.folded);
            self.tasks = self.unfolded.iter().map(|(at, _)| (0, tree.rows[*at as usize])).collect();
            self.sorted = 0..self.tasks.len();
            self.tree = Some(tree);
        }
    }
    /// The drawing before the command of a row, with the number of rows that are folded away.
    pub fn art(&self, row: usize) -> Option<String> {
        let (at, hidden) = *self.unfolded.get(row)?;
        let art = String::from_utf8_lossy(self.tree.as_ref()?.art(at as usize)).into_owned();
        Some(if hidden > 0 { format!("{art}[+{hidden}] ") } else { art })
    }
    /// The sum of a column over a row and its descendants in the tree, and whether parts are
    /// missing.
    pub fn subtree(&self, field: &field::Field, row: usize) -> Option<(Value<'static>, bool)> {
        self.subtrees.as_ref()?.value(field, self.unfolded.get(row)?.0 as usize)
    }
    /// The tasks below a row of the tree, with the task of the row.
    pub fn below(&self, row: usize) -> &[u32] {
        let Some((tree, (at, _))) = self.tree.as_ref().zip(self.unfolded.get(row)) else {
            return &[];
        };
        let at = *at as usize;
        let deeper = |level: &&u32| **level > tree.levels[at];
        let end = at + 1 + tree.levels[at + 1..].iter().take_while(deeper).count();
        &tree.rows[at..end]
    }
    /// Are all rows sorted, and not only those on the screen?
    fn is_sorted(&self) -> bool {
        self.sorted == (0..self.tasks.len())
    }
    /// The row of a task. `None`: the task has no row.
    pub fn place(&self, frame: &Frame<'_>, shape: &Shape, task: u32) -> Option<usize> {
        let at = self.tasks.iter().position(|t| t.1 == task)?;
        if self.is_sorted() {
            return Some(at);
        }
        let order = Order::new(frame, &shape.sort);
        let its = self.tasks[at];
        Some(self.tasks.iter().filter(|t| order.compare(t, &its).is_lt()).count())
    }
    /// The next row after `from` whose task matches, or the first one of all. `back` searches the
    /// other way. Returns the row, and how many match.
    pub fn find(
        &self,
        frame: &Frame<'_>,
        shape: &Shape,
        from: usize,
        back: bool,
        is_match: impl Fn(u32) -> bool,
    ) -> Option<(usize, usize)> {
        let found: Vec<(u128, u32)> =
            self.tasks.iter().copied().filter(|t| is_match(t.1)).collect();
        let mut places: Vec<usize> = match self.is_sorted() {
            true => {
                let is_found = |(_, t): &(usize, &(u128, u32))| is_match(t.1);
                self.tasks.iter().enumerate().filter(is_found).map(|(at, _)| at).collect()
            }
            // The places of the nearest ones are enough; each costs a pass over all rows.
            false => self.nearest(frame, shape, from, &found),
        };
        places.sort_unstable();
        let next = match back {
            false => places.iter().find(|p| **p > from).or(places.first()),
            true => places.iter().rev().find(|p| **p < from).or(places.last()),
        };
        next.map(|place| (*place, found.len()))
    }
    /// The places of the first and the last of these tasks, and of the nearest ones around a row.
    fn nearest(
        &self,
        frame: &Frame<'_>,
        shape: &Shape,
        from: usize,
        found: &[(u128, u32)],
    ) -> Vec<usize> {
        let order = Order::new(frame, &shape.sort);
        let compare = |a: &&(u128, u32), b: &&(u128, u32)| order.compare(a, b);
        let here = self.tasks.get(from).filter(|_| self.sorted.contains(&from));
        let after = |t: &&(u128, u32)| here.is_some_and(|h| order.compare(t, h).is_gt());
        let before = |t: &&(u128, u32)| here.is_some_and(|h| order.compare(t, h).is_lt());
        let picked = [
            found.iter().min_by(compare),
            found.iter().max_by(compare),
            found.iter().filter(after).min_by(compare),
            found.iter().filter(before).max_by(compare),
        ];
        picked.into_iter().flatten().filter_map(|t| self.place(frame, shape, t.1)).collect()
    }
    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.tasks.len().max(self.sums.len())
    }
    /// The tasks of these rows, in order. None if the rows are sums.
    pub fn window(&mut self, frame: &Frame<'_>, shape: &Shape, rows: Range<usize>) -> Vec<u32> {
        let rows = rows.start.min(self.tasks.len())..rows.end.min(self.tasks.len());
        let is_sorted = self.sorted.start <= rows.start && rows.end <= self.sorted.end;
        if !is_sorted && !rows.is_empty() {
            let order = Order::new(frame, &shape.sort);
            let compare = |a: &(u128, u32), b: &(u128, u32)| order.compare(a, b);
            self.tasks.select_nth_unstable_by(rows.start, compare);
            let rest = &mut self.tasks[rows.start..];
            if rows.len() < rest.len() {
                rest.select_nth_unstable_by(rows.len() - 1, compare);
            }
            rest[..rows.len()].sort_unstable_by(compare);
            self.sorted = rows.clone();
        }
        self.tasks[rows].iter().map(|t| t.1).collect()
    }
}
