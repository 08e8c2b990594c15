// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes batches of columns from rows.

use taskdiag_wire::Reason;

use super::{Cell, Column, Spec};
use crate::field::{Context, Missing, Value};

/// A batch ends when a column of it has this much text, so that programs that take one batch after
/// the other never hold much.
const BATCH_TEXT: usize = 16 << 20;
/// The bytes that each text may have even if the limit for all texts is reached. Most paths are
/// shorter.
const TEXT_LEAST: usize = 128;

/// Rows that a consumer gets together.
#[derive(Debug)]
#[non_exhaustive]
pub struct Batch {
    /// How many.
    pub rows: usize,
    /// Their columns.
    pub columns: Vec<Column>,
}

/// Rows in a batch: consumers work on one while the next is made.
const BATCH: usize = 8192;

/// Why a value is missing, by its row.
pub type Lacks = Vec<(u32, Missing)>;

/// Makes batches of rows.
#[derive(Debug)]
pub struct Builder {
    /// The properties of the columns.
    pub specs: Vec<Spec>,
    columns: Vec<Column>,
    batches: Vec<Batch>,
    rows: usize,
    /// The rows of the batches that are complete.
    done: usize,
    lacks: Vec<Lacks>,
    /// The limit for the text of all rows, and how much there is.
    text_limit: usize,
    text: usize,
}

impl Builder {
    /// Starts without rows.
    pub fn new(specs: Vec<Spec>) -> Builder {
        let columns = Builder::empty(&specs);
        let lacks = specs.iter().map(|_| Lacks::new()).collect();
        let (text_limit, text) = (usize::MAX, 0);
        Builder { specs, columns, batches: Vec::new(), rows: 0, done: 0, lacks, text_limit, text }
    }
    /// Sets a limit for the text of all rows together, in bytes. A mapping has its name once in an
    /// answer, but a table of mappings has a copy in each row, so a small answer can be a large
    /// table. Texts beyond the limit are cut after 128 bytes, and those beyond twice the limit are
    /// null. Both are [`Reason::Truncated`].
    #[must_use]
    pub fn with_text_limit(self, text_limit: usize) -> Builder {
        Builder { text_limit, ..self }
    }
    fn empty(specs: &[Spec]) -> Vec<Column> {
        specs.iter().map(|s| Column::new(s.kind)).collect()
    }
    /// Appends a row: `value` gives the value of each column.
    #[inline]
    pub fn push<'v>(&mut self, cx: &Context, mut value: impl FnMut(usize) -> Value<'v>) {
        for (c, column) in self.columns.iter_mut().enumerate() {
            let before = column.text_bytes();
            let mut lack = column.push(cx, self.specs[c].absent, &value(c));
            let more = column.text_bytes() - before;
            if more > 0 {
                if self.text_limit - self.text.min(self.text_limit) < more {
                    let is_far = self.text / 2 >= self.text_limit;
                    if column.cut_last(if is_far { 0 } else { TEXT_LEAST }) {
                        lack = Some(Missing::Reason(Reason::Truncated));
                    }
                }
                self.text += column.text_bytes() - before;
            }
            if let Some(why) = lack {
                self.lacks[c].push((self.rows as u32, why));
            }
        }
        self.end_row();
    }
    /// Appends a row of values that were in columns before, each with the reason why it is missing
    /// or incomplete.
    ///
    /// # Errors
    /// The number of the column that the value does not fit. The builder is of no use then.
    pub fn push_cells<'v>(
        &mut self,
        mut cell: impl FnMut(usize) -> (Cell<'v>, Option<Missing>),
    ) -> Result<(), usize> {
        for (c, column) in self.columns.iter_mut().enumerate() {
            let (cell, why) = cell(c);
            if !column.push_cell(&cell) {
                return Err(c);
            }
            self.lacks[c].extend(why.map(|why| (self.rows as u32, why)));
        }
        self.end_row();
        Ok(())
    }
    fn end_row(&mut self) {
        self.rows += 1;
        if self.rows - self.done == BATCH
            || self.columns.iter().any(|c| c.text_bytes() > BATCH_TEXT)
        {
            self.end_batch();
        }
    }
    fn end_batch(&mut self) {
        let mut columns = std::mem::replace(&mut self.columns, Builder::empty(&self.specs));
        columns.iter_mut().for_each(Column::finish);
        self.batches.push(Batch { rows: self.rows - self.done, columns });
        self.done = self.rows;
    }
    /// The batches that are complete so far, for a program that passes them on while it makes the
    /// next ones. [`finish`](Builder::finish) has only the later ones then.
    pub fn take_batches(&mut self) -> Vec<Batch> {
        std::mem::take(&mut self.batches)
    }
    /// The batches, and why values are missing in each column.
    pub fn finish(mut self) -> (Vec<Spec>, Vec<Batch>, Vec<Lacks>) {
        if self.rows > self.done {
            self.end_batch();
        }
        (self.specs, self.batches, self.lacks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::columns::{Absent, Type};
    use taskdiag_wire::Info;

    fn spec(kind: Type) -> Spec {
        let name = kind.name().to_owned();
        Spec { name, kind, unit: "", source: "", help: "", absent: Absent::Null }
    }

    #[test]
    fn rows_can_be_copied_with_all_their_values() {
        let kinds = [
            Type::U64,
            Type::I64,
            Type::F64,
            Type::Bool,
            Type::Duration,
            Type::Text,
            Type::TextList,
            Type::U32List,
        ];
        let cx = Context::new(&Info::default(), false);
        let mut builder = Builder::new(kinds.map(spec).to_vec());
        let denied = || Value::Missing(Missing::Reason(Reason::Denied));
        for row in 0..2 * BATCH as u64 {
            builder.push(&cx, |c| match kinds[c] {
                _ if row % 3 == 1 => denied(),
                Type::U64 => Value::Uint(row),
                Type::I64 => Value::Int(-(row as i64)),
                Type::F64 => Value::Percent(row as f64 / 2.0),
                Type::Bool => Value::Bool(row % 2 == 0),
                Type::Duration => Value::Nanos(row),
                Type::Text => Value::Word("a\u{e9}"),
                Type::TextList => Value::GroupList(vec![u32::MAX, u32::MAX - 1]),
                _ => Value::Ids(vec![row as u32; row as usize % 3]),
            });
        }
        let (specs, batches, lacks) = builder.finish();
        assert_eq!(batches.len(), 2);
        let mut copy = Builder::new(specs);
        for (b, batch) in batches.iter().enumerate() {
            for row in 0..batch.rows {
                let at = (b * BATCH + row) as u32;
                let why = |c: usize| {
                    let of_row = lacks[c].iter().take_while(|_| at < 30).find(|(r, _)| *r == at);
                    of_row.map(|(_, why)| *why)
                };
                copy.push_cells(|c| (batch.columns[c].cell(row), why(c))).unwrap();
            }
        }
        let (_, again, why) = copy.finish();
        assert_eq!(format!("{again:?}"), format!("{batches:?}"));
        assert_eq!(why[0].len(), 10);
    }

    #[test]
    fn the_text_of_all_rows_has_a_limit_and_what_is_cut_says_so() {
        let kinds = [Type::Text, Type::TextList, Type::U64];
        let cx = Context::new(&Info::default(), false);
        let mut builder = Builder::new(kinds.map(spec).to_vec()).with_text_limit(3_000);
        let path = [&[b'x'; 127][..], "\u{e9}".as_bytes(), &[b'y'; 871]].concat();
        let args = [&[b'a'; 100][..], &[0], &[b'b'; 900]].concat();
        for _ in 0..100 {
            builder.push(&cx, |c| match kinds[c] {
                Type::Text => Value::Bytes { data: path.as_slice().into(), cut: false },
                Type::TextList => Value::Args { data: args.as_slice().into(), cut: false },
                _ => Value::Uint(1),
            });
        }
        let (_, batches, lacks) = builder.finish();
        let batch = &batches[0];
        let text: usize = batch.columns.iter().map(Column::text_bytes).sum();
        assert!((6_000..6_500).contains(&text), "{text}");
        assert_eq!(batch.columns[0].cell(0), Cell::Text(&path));
        assert_eq!(batch.columns[1].cell(0), Cell::TextList(args.split(|b| *b == 0).collect()));
        // The character at its end is left out, because it does not fit.
        assert_eq!(batch.columns[0].cell(2), Cell::Text(&path[..127]));
        let short = vec![&args[..100], &args[101..129]];
        assert_eq!(batch.columns[1].cell(2), Cell::TextList(short));
        assert_eq!(
            (batch.columns[0].cell(99), batch.columns[1].cell(99)),
            (Cell::Null, Cell::Null)
        );
        assert_eq!(batch.columns[2].cell(99), Cell::U64(1));
        let cut = Missing::Reason(Reason::Truncated);
        assert!(lacks[0].iter().all(|(_, why)| *why == cut) && lacks[0].len() == 98, "{lacks:?}");
        assert!(lacks[2].is_empty());
    }

    #[test]
    fn batches_can_be_taken_while_more_are_made() {
        let cx = Context::new(&Info::default(), false);
        let mut builder = Builder::new(vec![spec(Type::Text)]);
        let long = vec![b'x'; BATCH_TEXT / 4];
        let (mut rows, mut most) = (0, 0);
        for _ in 0..50 {
            builder.push(&cx, |_| Value::Bytes { data: long.as_slice().into(), cut: false });
            for batch in builder.take_batches() {
                rows += batch.rows;
                most = most.max(batch.columns[0].text_bytes());
            }
        }
        let rest: usize = builder.finish().1.iter().map(|b| b.rows).sum();
        assert_eq!(rows + rest, 50);
        assert!(rest < 6 && most <= BATCH_TEXT + long.len(), "{rest} {most}");
    }

    #[test]
    fn a_value_of_another_type_is_refused() {
        let mut builder = Builder::new(vec![spec(Type::U64), spec(Type::Text)]);
        assert_eq!(builder.push_cells(|_| (Cell::U64(1), None)), Err(1));
    }
}
