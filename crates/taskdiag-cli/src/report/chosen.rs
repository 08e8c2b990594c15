//! Chooses the processes that get a row on the page, and adds up the others, because the size of
//! the page is limited.

use std::collections::BTreeMap;

use taskdiag::field::{Context, Field, Row, Value};
use taskdiag::view::Tasks;

use super::field;

/// The largest number of processes with a row that are chosen by their memory.
pub const MOST: usize = 20_000;
/// For each of `MEASURES`, this many processes with the largest values also have a row, even if
/// their memory is small.
const LARGEST: usize = 500;
/// The largest number of units of processes without a row. Further units, which have the fewest
/// processes, are added up.
const UNITS: usize = 1000;
const MEASURES: [&str; 6] = ["time", "nlwp", "fds", "read_bytes", "write_bytes", "swap"];

/// The processes without a row that are in the same slice and unit.
#[derive(Debug, Default)]
pub struct Others {
    /// How many processes they are.
    pub count: u64,
    /// The known memory of these processes, RSS and PSS.
    pub bytes: [u64; 2],
}

/// The processes with a row, and those without.
#[derive(Debug)]
pub struct ChosenProcesses {
    /// The processes with a row, in the order of the answer.
    pub rows: Vec<u32>,
    /// The processes without a row.
    pub without: Vec<u32>,
    /// The sums over processes without a row, by the text of slice, unit and container.
    pub others: BTreeMap<[Vec<u8>; 3], Others>,
}

/// The amount in a value. `None`: the value is not known, or not an amount.
pub fn amount(cx: &Context, field: &Field, row: &Row<'_>) -> Option<u64> {
    match (field.get)(cx, row) {
        Value::Uint(v) | Value::Nanos(v) => Some(v),
        _ => None,
    }
}

/// Chooses about `most` of these processes, those with the most memory first.
pub fn choose(
    cx: &Context,
    all: Tasks<'_>,
    memory: &'static Field,
    most: usize,
) -> ChosenProcesses {
    let stream = all.snapshot.stream();
    let (rows, without) = (all.indices.to_vec(), Vec::new());
    let mut kept = ChosenProcesses { rows, without, others: BTreeMap::new() };
    if kept.rows.len() <= most {
        return kept;
    }
    let mut chosen = vec![false; stream.len()];
    let fields = std::iter::once((memory, most));
    for (field, n) in fields.chain(MEASURES.map(|name| (field(name), LARGEST.min(most)))) {
        let row = |i: &u32| Some(Row::new(stream.get(*i as usize)?));
        let value = |i: &u32| Some((amount(cx, field, &row(i)?).unwrap_or(0), *i));
        let mut values: Vec<(u64, u32)> = kept.rows.iter().filter_map(value).collect();
        values.sort_unstable_by_key(|(v, i)| (std::cmp::Reverse(*v), *i));
        values.iter().take(n).for_each(|(_, i)| chosen[*i as usize] = true);
    }
    let places = ["slice", "unit", "container"].map(field);
    let named = field("container_name");
    let sizes = ["rss", "pss"].map(field);
    (kept.rows, kept.without) = kept.rows.iter().partition(|i| chosen[**i as usize]);
    for i in &kept.without {
        let Some(row) = stream.get(*i as usize).map(Row::new) else { continue };
        let mut place = places.map(|f| {
            let mut text = Vec::new();
            let value = (f.get)(cx, &row);
            taskdiag::field::text(&mut text, cx, f.text, Some(&row), &value);
            text
        });
        let name = (named.get)(cx, &row);
        if name.missing().is_none() {
            // A container with a name is known by it, and not by the unit that has its id.
            place[1] = b"container ".to_vec();
            taskdiag::field::text(&mut place[1], cx, named.text, Some(&row), &name);
        }
        let others = kept.others.entry(place).or_default();
        others.count += 1;
        for (sum, f) in others.bytes.iter_mut().zip(sizes) {
            *sum = sum.saturating_add(amount(cx, f, &row).unwrap_or(0));
        }
    }
    join(&mut kept.others);
    kept
}

/// If there are too many units, add up those with the fewest processes.
fn join(others: &mut BTreeMap<[Vec<u8>; 3], Others>) {
    if others.len() <= UNITS {
        return;
    }
    let mut all: Vec<_> = std::mem::take(others).into_iter().collect();
    all.sort_by_key(|(_, o)| std::cmp::Reverse(o.count));
    let mut rest = Others::default();
    for (_, o) in all.split_off(UNITS) {
        rest.count += o.count;
        rest.bytes[0] = rest.bytes[0].saturating_add(o.bytes[0]);
        rest.bytes[1] = rest.bytes[1].saturating_add(o.bytes[1]);
    }
    others.extend(all);
    others.insert([b"other slices".to_vec(), b"other units".to_vec(), b"-".to_vec()], rest);
}
