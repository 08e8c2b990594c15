//! Adds up each task of a tree with all its descendants, and decides which rows are folded away.

use std::collections::HashSet;

use taskdiag::field::{Field, Missing, Value};

use super::scan::{Frame, Id, Shape};
use crate::forest::Tree;

/// How the numbers of a column are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Count,
    Nanos,
    Percent,
}

/// The sums of a column, by the row of the tree.
#[derive(Debug)]
struct Column {
    field: &'static Field,
    kind: Kind,
    totals: Vec<f64>,
    /// Is any part known? Is one amiss?
    known: Vec<bool>,
    partial: Vec<bool>,
}

/// The sums of all columns that add up.
#[derive(Debug, Default)]
pub struct Subtrees {
    columns: Vec<Column>,
}

/// The row of the parent of each row of a tree.
fn parents(levels: &[u32]) -> Vec<Option<usize>> {
    let mut line: Vec<usize> = Vec::new();
    let parent = |(at, level): (usize, &u32)| {
        line.truncate(*level as usize);
        let parent = line.last().copied();
        line.push(at);
        parent
    };
    levels.iter().enumerate().map(parent).collect()
}

impl Subtrees {
    /// Adds up the columns of a tree, and the values that its rows are sorted by.
    pub fn new(frame: &Frame<'_>, shape: &Shape, tree: &Tree) -> Subtrees {
        let mut fields: Vec<&'static Field> = Vec::new();
        for field in shape.columns.iter().map(|c| c.field).chain(shape.sort.iter().map(|k| k.field))
        {
            if field.adds_up() && !fields.iter().any(|f| std::ptr::eq(*f, field)) {
                fields.push(field);
            }
        }
        let parents = parents(&tree.levels);
        let columns = fields.into_iter().map(|field| Column::new(frame, field, tree, &parents));
        Subtrees { columns: columns.collect() }
    }
    fn of(&self, field: &Field) -> Option<&Column> {
        self.columns.iter().find(|c| std::ptr::eq(c.field, field))
    }
    /// The sum of a column at a row, and whether it lacks some of its parts. `None`: the column
    /// does not add up, or nothing is known.
    pub fn value(&self, field: &Field, row: usize) -> Option<(Value<'static>, bool)> {
        let column = self.of(field)?;
        let total = *column.totals.get(row).filter(|_| column.known[row])?;
        let value = match column.kind {
            Kind::Count => Value::Uint(total as u64),
            Kind::Nanos => Value::Nanos(total as u64),
            Kind::Percent => Value::Percent(total),
        };
        Some((value, column.partial[row]))
    }
    /// The number by which siblings are ordered.
    pub fn total(&self, field: &Field, row: usize) -> Option<f64> {
        let column = self.of(field)?;
        column.known[row].then(|| column.totals[row])
    }
}

impl Column {
    fn new(
        frame: &Frame<'_>,
        field: &'static Field,
        tree: &Tree,
        parents: &[Option<usize>],
    ) -> Column {
        let len = tree.rows.len();
        let mut column = Column {
            field,
            kind: Kind::Count,
            totals: vec![0.0; len],
            known: vec![false; len],
            partial: vec![false; len],
        };
        // Children come after their parent, so from the end each row is whole when it is added.
        for at in (0..len).rev() {
            let value = frame.row(tree.rows[at] as usize).map(|row| (field.get)(frame.cx, &row));
            let number = match value {
                Some(Value::Uint(n)) => Some((Kind::Count, n as f64)),
                Some(Value::Nanos(n)) => Some((Kind::Nanos, n as f64)),
                Some(Value::Percent(n)) => Some((Kind::Percent, n)),
                Some(Value::Missing(m)) => {
                    column.partial[at] |= Missing::is_amiss(m);
                    None
                }
                _ => None,
            };
            if let Some((kind, number)) = number {
                column.kind = kind;
                column.totals[at] += number;
                column.known[at] = true;
            }
            if let Some(parent) = parents[at] {
                column.totals[parent] += column.totals[at];
                column.known[parent] |= column.known[at];
                column.partial[parent] |= column.partial[at];
            }
        }
        column
    }
}

/// The rows of a tree that are shown, and for each how many rows below it are folded away.
pub fn unfolded(frame: &Frame<'_>, tree: &Tree, folded: &HashSet<Id>) -> Vec<(u32, u32)> {
    let mut out: Vec<(u32, u32)> = Vec::with_capacity(tree.rows.len());
    // The level below which rows are hidden.
    let mut hidden_below = u32::MAX;
    for (at, level) in tree.levels.iter().enumerate() {
        if *level > hidden_below {
            if let Some(last) = out.last_mut() {
                last.1 += 1;
            }
            continue;
        }
        hidden_below = u32::MAX;
        out.push((at as u32, 0));
        if folded.is_empty() {
            continue;
        }
        if frame.id(tree.rows[at]).is_some_and(|id| folded.contains(&id)) {
            hidden_below = *level;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_of_a_row_is_the_last_one_a_level_above() {
        assert_eq!(parents(&[0, 1, 2, 1, 0, 1]), [None, Some(0), Some(1), Some(0), None, Some(4)]);
    }
}
