//! The order of the rows: `--sort` keys, and ids where they leave a tie.

use std::cmp::Ordering;

use taskdiag::Snapshot;
use taskdiag::field::{Context, Field, Row, Value};

/// One key of `--sort`.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// What to sort by.
    pub field: &'static Field,
    /// Largest first?
    pub descending: bool,
}

/// A value that can be compared. What is missing comes before everything.
#[derive(Debug, PartialEq, PartialOrd)]
enum Rank {
    Missing,
    Int(i128),
    Float(f64),
    Text(Vec<u8>),
    List(Vec<u32>),
}

fn rank(cx: &Context, field: &Field, row: &Row<'_>) -> Rank {
    match (field.get)(cx, row) {
        Value::Missing(_) => Rank::Missing,
        Value::Uint(v) | Value::Nanos(v) | Value::Instant(v) | Value::Mask(v) => {
            Rank::Int(v.into())
        }
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

fn name(name: Option<std::rc::Rc<[u8]>>, id: u32) -> Rank {
    Rank::Text(name.map_or_else(|| id.to_string().into_bytes(), |n| n.to_vec()))
}

/// Sort indices of tasks by the keys, then by process and thread id.
pub fn sort(rows: &mut Vec<u32>, snapshot: &Snapshot, cx: &Context, keys: &[Key]) {
    let stream = snapshot.stream();
    let ids = |i: u32| stream.get(i as usize).map_or((0, 0), |t| (t.tgid(), t.pid()));
    // Engines mostly answer in this order, and then this is all.
    if !rows.is_sorted_by_key(|i| ids(*i)) {
        rows.sort_by_key(|i| ids(*i));
    }
    if keys.is_empty() {
        return;
    }
    let mut ranked: Vec<(Vec<Rank>, u32)> = rows
        .iter()
        .filter_map(|i| {
            let row = Row::new(stream.get(*i as usize)?);
            Some((keys.iter().map(|k| rank(cx, k.field, &row)).collect(), *i))
        })
        .collect();
    ranked.sort_by(|(a, _), (b, _)| {
        for ((a, b), key) in a.iter().zip(b).zip(keys) {
            let o = a.partial_cmp(b).unwrap_or(Ordering::Equal);
            let o = if key.descending { o.reverse() } else { o };
            if o.is_ne() {
                return o;
            }
        }
        Ordering::Equal
    });
    *rows = ranked.into_iter().map(|(_, i)| i).collect();
}
