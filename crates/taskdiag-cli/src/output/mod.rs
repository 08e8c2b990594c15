//! Writing rows: one form each in its own file, over one buffered writer.

pub mod csv;
pub mod json;
pub mod maplines;
pub mod plain;
pub mod sink;
pub mod tally;
pub mod terminal;
pub mod text;

pub use sink::Sink;
pub use tally::Tally;

use std::io;

use taskdiag::Snapshot;
use taskdiag::field::{Context, Row, Value};

use crate::columns::Column;

/// A row to write.
#[derive(Clone, Copy, Debug)]
pub enum Item<'r, 'a> {
    /// A task, or an entry of one of its lists.
    Row(&'r Row<'a>),
    /// Several together.
    Sum(&'r Sum),
    /// Another row with one column more: which, and its value.
    With(&'r Item<'r, 'a>, usize, &'r Value<'a>),
}

impl<'a> Item<'_, 'a> {
    /// The value in a column, the c-th.
    #[inline]
    pub fn value(&self, cx: &Context, column: &Column, c: usize) -> Value<'a> {
        match self {
            Item::Row(row) => (column.field.get)(cx, row),
            Item::Sum(sum) => sum.values[c].clone(),
            Item::With(_, at, value) if c == *at => (*value).clone(),
            Item::With(inner, at, _) => inner.value(cx, column, c - usize::from(c > *at)),
        }
    }
    /// Is the value in the c-th column a sum that lacks some of its parts?
    pub fn is_partial(&self, c: usize) -> bool {
        match self {
            Item::Row(_) => false,
            Item::Sum(sum) => sum.partial[c],
            Item::With(_, at, _) if c == *at => false,
            Item::With(inner, at, _) => inner.is_partial(c - usize::from(c > *at)),
        }
    }
    /// The row, where it is one.
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
pub struct Sum {
    /// The value of each column.
    pub values: Vec<Value<'static>>,
    /// Which of them lack some of their parts: it is at least so much.
    pub partial: Vec<bool>,
}

/// Takes rows one by one.
pub type Take<'f> = dyn FnMut(Item<'_, '_>) -> io::Result<()> + 'f;

/// Rows in order.
pub trait Rows {
    /// Call `take` for each of them.
    ///
    /// # Errors
    /// That of `take`, which ends it.
    fn each(&self, take: &mut Take<'_>) -> io::Result<()>;
}

/// What is to be written: these rows and columns of an answer.
#[derive(Clone, Copy)]
pub struct Table<'a> {
    /// What its values need to be read.
    pub cx: &'a Context,
    /// The columns.
    pub columns: &'a [Column],
    /// The rows.
    pub rows: &'a dyn Rows,
}

/// Whole tasks, by their indices.
#[derive(Clone, Copy, Debug)]
pub struct Tasks<'a> {
    /// The answer.
    pub snapshot: &'a Snapshot,
    /// Which of its tasks, in order.
    pub indices: &'a [u32],
}

impl Rows for Tasks<'_> {
    fn each(&self, take: &mut Take<'_>) -> io::Result<()> {
        let stream = self.snapshot.stream();
        let tasks = self.indices.iter().filter_map(|i| stream.get(*i as usize));
        tasks.map(Row::new).try_for_each(|row| take(Item::Row(&row)))
    }
}
