//! The order of the rows: by the values of keys, and by ids if all keys are equal.

use std::cmp::Ordering;

use crate::Snapshot;
use crate::field::{Context, Field, Row, Set, Value, since_boot};

/// One key that rows are sorted by.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Key {
    /// The field whose values are compared.
    pub field: &'static Field,
    /// Does the largest value come first?
    pub descending: bool,
}

impl Key {
    /// A key from the name of a column. With `-` before it, the largest value comes first; `+` is
    /// also allowed and changes nothing. `None` if the set has no such column.
    pub fn parse(set: &Set, item: &str) -> Option<Key> {
        let (descending, name) = Key::name(item);
        set.find(name).map(|named| Key { field: named.field, descending })
    }
    /// The two parts of a key's text: whether the largest value comes first, and the name.
    pub fn name(item: &str) -> (bool, &str) {
        match item.strip_prefix('-') {
            Some(name) => (true, name),
            None => (false, item.strip_prefix('+').unwrap_or(item)),
        }
    }
}

/// A value that can be compared. A missing value comes before everything.
#[derive(Debug, PartialEq, PartialOrd)]
enum Rank {
    /// A missing value.
    Missing,
    /// A number.
    Int(i128),
    /// A number with a fraction.
    Float(f64),
    /// Bytes.
    Text(Vec<u8>),
    /// Numbers.
    List(Vec<u32>),
}

fn rank(cx: &Context, value: Value<'_>) -> Rank {
    match value {
        Value::Missing(_) => Rank::Missing,
        Value::Uint(v) | Value::Nanos(v) | Value::Mask(v) => Rank::Int(v.into()),
        Value::Instant(v) => Rank::Int(since_boot(v).into()),
        Value::Unlimited => Rank::Int(i128::MAX),
        Value::Bool(b) => Rank::Int(b.into()),
        Value::Int(v) => Rank::Int(v.into()),
        Value::Tty(v) => Rank::Int(v.into()),
        Value::Percent(p) => Rank::Float(p),
        Value::Bytes { data, .. } | Value::Args { data, .. } => Rank::Text(data.into_owned()),
        Value::Word(w) => Rank::Text(w.into()),
        Value::Short(s) => Rank::Text(s.as_bytes().into()),
        Value::User(id) => name(cx.names.user(id), id),
        Value::Group(id) => name(cx.names.group(id), id),
        Value::Ids(v) | Value::GroupList(v) => Rank::List(v),
    }
}

fn name(name: Option<std::sync::Arc<[u8]>>, id: u32) -> Rank {
    Rank::Text(name.map_or_else(|| id.to_string().into_bytes(), |n| n.to_vec()))
}

/// Sort indices of tasks by the keys, then by process and thread id.
pub fn sort(rows: &mut Vec<u32>, snapshot: &Snapshot, cx: &Context, keys: &[Key]) {
    let stream = snapshot.stream();
    let ids = |i: u32| stream.get(i as usize).map_or((0, 0), |t| (t.tgid(), t.pid()));
    // Engines usually answer in this order, or in a few sorted parts, which a stable sort uses. It
    // compares each task several times, so the ids are read once before.
    let mut tasks: Vec<_> = rows.iter().map(|i| (ids(*i), *i)).collect();
    if !tasks.is_sorted() {
        tasks.sort();
        *rows = tasks.into_iter().map(|(_, i)| i).collect();
    }
    let mut ranks = Ranks::default();
    if !keys.is_empty() {
        for i in rows.iter() {
            if let Some(task) = stream.get(*i as usize) {
                let row = Row::new(task);
                ranks.push(cx, keys.iter().map(|k| (k.field.get)(cx, &row)));
            }
        }
        *rows = ranks.order(keys).into_iter().map(|i| rows[i]).collect();
    }
}

/// Sorts rows of any kind: push the values of the keys for each row, then ask for the order.
#[derive(Debug, Default)]
pub struct Ranks(Vec<Vec<Rank>>);

impl Ranks {
    /// The values of the keys for the next row.
    pub fn push<'a>(&mut self, cx: &Context, values: impl Iterator<Item = Value<'a>>) {
        self.0.push(values.map(|v| rank(cx, v)).collect());
    }
    /// Indices of the rows in order. Rows with equal keys keep their order.
    pub fn order(&self, keys: &[Key]) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.0.len()).collect();
        order.sort_by(|a, b| {
            for ((a, b), key) in self.0[*a].iter().zip(&self.0[*b]).zip(keys) {
                let o = a.partial_cmp(b).unwrap_or(Ordering::Equal);
                let o = if key.descending { o.reverse() } else { o };
                if o.is_ne() {
                    return o;
                }
            }
            Ordering::Equal
        });
        order
    }
}
