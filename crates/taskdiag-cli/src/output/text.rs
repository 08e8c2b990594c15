//! The table as text.
//!
//! Columns have fixed least widths, as in procps, so that the first line can be written before
//! the last task is looked at. A value that is too long is never cut in a pipe: it pushes the
//! columns after it to the right, and blanks won back later bring them into line again. On a
//! terminal, lines end at its edge.

use std::io;

use taskdiag::field::{self, Context, Row, Text, Value};
use unicode_width::UnicodeWidthStr;

use super::terminal::Terminal;
use super::{Item, Sink, Table, Tally};
use crate::columns::Column;
use crate::tree::Tree;

const BOLD: &str = "\x1b[1m";
const DIM: &str = "\x1b[2m";
const RED: &str = "\x1b[31m";
const RESET: &[u8] = b"\x1b[0m";

/// Width of escaped text in cells.
fn cells(text: &[u8]) -> usize {
    if text.is_ascii() {
        return text.len();
    }
    std::str::from_utf8(text).map_or(text.len(), UnicodeWidthStr::width)
}

/// Lays cells out in lines.
struct Line<'a> {
    columns: &'a [Column],
    /// Blanks before each cell of the line before: mostly right for this one too.
    blanks: Vec<usize>,
    /// Where the line begins in the buffer.
    start: usize,
    /// Cells so far, and where the next column should begin.
    actual: usize,
    correct: usize,
}

impl<'a> Line<'a> {
    fn new(columns: &'a [Column]) -> Line<'a> {
        Line { columns, blanks: vec![0; columns.len()], start: 0, actual: 0, correct: 0 }
    }
    fn begin(&mut self, buf: &[u8]) {
        (self.start, self.actual, self.correct) = (buf.len(), 0, 0);
    }
    /// Add the i-th cell. How many blanks go before it is known when its text is there; so it is
    /// written behind the number of blanks that the line before had, and rarely has to move.
    fn cell(&mut self, buf: &mut Vec<u8>, i: usize, write: impl FnOnce(&mut Vec<u8>)) {
        let column = &self.columns[i];
        let (before, guess) = (buf.len(), self.blanks[i]);
        buf.resize(before + guess, b' ');
        let begin = before + guess;
        write(buf);
        let width = cells(&buf[begin..]);
        let pad = if column.is_left() { 0 } else { column.width.saturating_sub(width) };
        let least = usize::from(i > 0);
        let space = (self.correct + pad).saturating_sub(self.actual).max(least);
        if space != guess {
            let end = buf.len();
            buf.resize(end + space.saturating_sub(guess), b' ');
            buf.copy_within(begin..end, before + space);
            buf[before..before + space].fill(b' ');
            buf.truncate(end + space - guess);
            self.blanks[i] = space;
        }
        self.actual += space + width;
        self.correct += column.width + 1;
    }
    /// Add the i-th cell, a number at the right edge of its column.
    #[inline]
    fn number(&mut self, buf: &mut Vec<u8>, i: usize, mut v: u64) {
        let mut cell = [b' '; 64];
        let mut at = cell.len();
        loop {
            at -= 1;
            cell[at] = b'0' + (v % 10) as u8;
            v /= 10;
            if v == 0 {
                break;
            }
        }
        let column_width = self.columns[i].width;
        let width = cell.len() - at;
        let pad = column_width.saturating_sub(width);
        let space = (self.correct + pad).saturating_sub(self.actual).max(usize::from(i > 0));
        match at.checked_sub(space) {
            Some(begin) => buf.extend_from_slice(&cell[begin..]),
            None => {
                buf.resize(buf.len() + space, b' ');
                buf.extend_from_slice(&cell[at..]);
            }
        }
        self.blanks[i] = space;
        self.actual += space + width;
        self.correct += column_width + 1;
    }
    /// End the line at the terminal's edge.
    fn end(&self, buf: &mut Vec<u8>, terminal: &Terminal, color: Option<&str>) {
        if let Some(width) = terminal.width {
            if self.actual > width {
                let keep = prefix(&buf[self.start..], width);
                buf.truncate(self.start + keep);
            }
        }
        if let (true, Some(color)) = (terminal.color, color) {
            buf.splice(self.start..self.start, color.bytes());
            buf.extend_from_slice(RESET);
        }
        buf.push(b'\n');
    }
}

/// Length in bytes of the longest beginning that fits into `width` cells.
fn prefix(line: &[u8], width: usize) -> usize {
    let Ok(text) = std::str::from_utf8(line) else { return width.min(line.len()) };
    let mut used = 0;
    for (at, c) in text.char_indices() {
        used += unicode_width::UnicodeWidthChar::width(c).unwrap_or(0);
        if used > width {
            return at;
        }
    }
    line.len()
}

/// What is written beside the rows themselves.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// A line of headers?
    pub headers: bool,
    /// What standard output is.
    pub terminal: Terminal,
}

/// Write the header.
pub fn header(sink: &mut Sink, columns: &[Column], options: &Options) {
    if !options.headers || columns.iter().all(|c| c.header.is_empty()) {
        return;
    }
    let buf = sink.buf();
    let mut line = Line::new(columns);
    line.begin(buf);
    for (i, c) in columns.iter().enumerate() {
        line.cell(buf, i, |out| field::escape(out, c.header.as_bytes()));
    }
    line.end(buf, &options.terminal, Some(BOLD));
}

/// Colour of a row.
fn color_of(row: &Row<'_>) -> Option<&'static str> {
    if row.is_zombie() {
        Some(RED)
    } else if row.is_kthread() {
        Some(DIM)
    } else {
        None
    }
}

/// Write the rows, and add them up; gives their number.
pub fn rows(
    sink: &mut Sink,
    table: &Table<'_>,
    tree: Option<&Tree>,
    options: &Options,
    tally: &mut Tally,
    mut totals: Option<&mut Totals>,
) -> io::Result<usize> {
    let mut lines = Lines::new(table, tree, options);
    table.rows.each(&mut |item| {
        lines.write(sink.buf(), &item, tally, totals.as_deref_mut());
        sink.settle()
    })?;
    Ok(lines.count)
}

/// Writes rows one by one.
pub struct Lines<'a> {
    cx: &'a Context,
    columns: &'a [Column],
    tree: Option<&'a Tree>,
    terminal: Terminal,
    /// The drawing of a tree stands before the first column that names the command.
    trunk: Option<usize>,
    line: Line<'a>,
    /// Rows so far.
    pub count: usize,
}

impl<'a> Lines<'a> {
    /// For the columns of this table.
    pub fn new(table: &Table<'a>, tree: Option<&'a Tree>, options: &Options) -> Lines<'a> {
        let Table { cx, columns, .. } = *table;
        let trunk = columns.iter().position(|c| matches!(c.form, Text::Args | Text::Comm));
        let line = Line::new(columns);
        Lines { cx, columns, tree, terminal: options.terminal, trunk, line, count: 0 }
    }
    /// Append a row.
    #[inline]
    pub fn write(
        &mut self,
        buf: &mut Vec<u8>,
        item: &Item<'_, '_>,
        tally: &mut Tally,
        mut totals: Option<&mut Totals>,
    ) {
        let last = self.columns.len().saturating_sub(1);
        self.line.begin(buf);
        for (c, column) in self.columns.iter().enumerate() {
            let value = item.value(self.cx, column.field, c);
            if let Some(m) = value.missing() {
                tally.count_in(item, c, m);
                if let (Some(totals), true) = (&mut totals, m.is_amiss()) {
                    totals.lack(c);
                }
            }
            if item.is_partial(c) {
                if let (Some(totals), Value::Uint(v)) = (&mut totals, &value) {
                    totals.add(c, *v);
                    totals.lack(c);
                }
                self.line.cell(buf, c, |out| {
                    out.extend_from_slice(AT_LEAST);
                    field::text(out, self.cx, column.form, None, &value);
                });
                continue;
            }
            if let Value::Uint(v) = value {
                if let Some(totals) = &mut totals {
                    totals.add(c, v);
                }
                // Most cells of most tables.
                let digits = match column.form {
                    Text::Kib => Some(v / 1024),
                    Text::Plain | Text::Pid => Some(v),
                    _ => None,
                };
                if let Some(n) = digits.filter(|_| !column.is_left()) {
                    self.line.number(buf, c, n);
                    continue;
                }
            }
            self.line.cell(buf, c, |out| {
                if let (Some(tree), true) = (self.tree, self.trunk == Some(c)) {
                    out.extend_from_slice(tree.art(self.count));
                }
                let begin = out.len();
                field::text(out, self.cx, column.form, item.row(), &value);
                if column.form == Text::Cut && c < last {
                    let keep = prefix(&out[begin..], column.width);
                    out.truncate(begin + keep);
                }
            });
        }
        self.line.end(buf, &self.terminal, item.row().and_then(color_of));
        self.count += 1;
    }
}

/// Before a sum that lacks some of its parts.
const AT_LEAST: &[u8] = b">=";

/// The sums of columns of bytes.
#[derive(Clone, Debug)]
pub struct Totals {
    /// `None`: the column does not add up.
    sums: Vec<Option<Total>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Total {
    sum: u64,
    /// There is a value.
    known: bool,
    /// There is a row whose value is not known.
    lacking: bool,
}

impl Totals {
    /// For these columns.
    pub fn new(columns: &[Column]) -> Totals {
        let adds_up = |c: &Column| (c.field.text == Text::Kib).then(Total::default);
        Totals { sums: columns.iter().map(adds_up).collect() }
    }
    /// Add a value of a column, the c-th.
    #[inline]
    pub fn add(&mut self, c: usize, v: u64) {
        if let Some(total) = &mut self.sums[c] {
            total.sum = total.sum.saturating_add(v);
            total.known = true;
        }
    }
    /// A row has no value in a column that it should have.
    #[cold]
    pub fn lack(&mut self, c: usize) {
        if let Some(total) = &mut self.sums[c] {
            total.lacking = true;
        }
    }
    /// Write the line of totals, where a column adds up.
    pub fn write(&self, sink: &mut Sink, cx: &Context, columns: &[Column], options: &Options) {
        if self.sums.iter().all(Option::is_none) {
            return;
        }
        let label = self.sums.iter().position(Option::is_none);
        let buf = sink.buf();
        let mut line = Line::new(columns);
        line.begin(buf);
        for (c, column) in columns.iter().enumerate() {
            line.cell(buf, c, |out| match self.sums[c] {
                Some(Total { known: false, lacking: true, .. }) => out.push(b'?'),
                Some(total) => {
                    if total.lacking {
                        out.extend_from_slice(AT_LEAST);
                    }
                    field::text(out, cx, column.form, None, &Value::Uint(total.sum));
                }
                None if label == Some(c) => out.extend_from_slice(b"total"),
                None => {}
            });
        }
        while buf.last() == Some(&b' ') {
            buf.pop();
        }
        line.end(buf, &options.terminal, Some(BOLD));
    }
}
