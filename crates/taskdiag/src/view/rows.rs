//! Rows one by one, of any kind.

use std::io;

use crate::Snapshot;
use crate::field::{Context, Field, Row, Value};

/// A row of a view.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Item<'r, 'a> {
    /// A task, or an entry of one of its lists.
    Row(&'r Row<'a>),
    /// Several rows added up.
    Sum(&'r Sum),
    /// Another row with one more column: the place of that column, and its value.
    With(&'r Item<'r, 'a>, usize, &'r Value<'a>),
}

impl<'a> Item<'_, 'a> {
    /// The value of a field, which is the column with number `c`.
    #[inline]
    pub fn value(&self, cx: &Context, field: &Field, c: usize) -> Value<'a> {
        match self {
            Item::Row(row) => (field.get)(cx, row),
            Item::Sum(sum) => sum.values[c].clone(),
            Item::With(_, at, value) if c == *at => (*value).clone(),
            Item::With(inner, at, _) => inner.value(cx, field, c - usize::from(c > *at)),
        }
    }
    /// Is the value in column `c` a sum that lacks some of its parts?
    pub fn is_partial(&self, c: usize) -> bool {
        match self {
            Item::Row(_) => false,
            Item::Sum(sum) => sum.partial[c],
            Item::With(_, at, _) if c == *at => false,
            Item::With(inner, at, _) => inner.is_partial(c - usize::from(c > *at)),
        }
    }
    /// The task or entry of the row, or `None` for a sum.
    pub fn row(&self) -> Option<&Row<'a>> {
        match self {
            Item::Row(row) => Some(row),
            Item::With(inner, ..) => inner.row(),
            Item::Sum(_) => None,
        }
    }
}

/// Several rows added up.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Sum {
    /// The value of each column.
    pub values: Vec<Value<'static>>,
    /// Marks the values that lack some of their parts, so that each is a lower bound.
    pub partial: Vec<bool>,
}

impl Sum {
    /// A sum of these values. It is complete.
    pub fn whole(values: Vec<Value<'static>>) -> Sum {
        Sum { partial: vec![false; values.len()], values }
    }
}

/// Takes rows one by one. An error ends the rows.
pub type Take<'f> = dyn FnMut(Item<'_, '_>) -> io::Result<()> + 'f;

/// Rows in order.
pub trait Rows {
    /// Call `take` for each row.
    ///
    /// # Errors
    /// The error of `take`, which ends the rows.
    fn each(&self, take: &mut Take<'_>) -> io::Result<()>;
}

/// Whole tasks, by their indices in the answer.
#[derive(Clone, Copy, Debug)]
pub struct Tasks<'a> {
    /// The answer.
    pub snapshot: &'a Snapshot,
    /// Its tasks, in order.
    pub indices: &'a [u32],
}

impl Rows for Tasks<'_> {
    fn each(&self, take: &mut Take<'_>) -> io::Result<()> {
        let stream = self.snapshot.stream();
        let tasks = self.indices.iter().filter_map(|i| stream.get(*i as usize));
        tasks.map(Row::new).try_for_each(|row| take(Item::Row(&row)))
    }
}
