//! The table as text.
//!
//! Columns have fixed least widths, as in procps, so that the first line can be written before all
//! tasks are read. A number that is too long pushes the columns after it to the right. Where a
//! later cell leaves blanks, the columns are aligned again. `ps` cuts text that is too long as
//! procps does ([`Cells`]), except in the last column, which may continue to the end of the line.
//! All other commands cut nothing in a pipe, and end their lines at the edge of a terminal.

use std::io;

use taskdiag::Reason;
use taskdiag::field::{self, Context, Missing, Row, TextForm, Value};
use taskdiag::view::MemoryOnce;
use unicode_width::UnicodeWidthStr;

use super::terminal::Terminal;
use super::{Item, Sink, Table, Tally, plain};
use crate::columns::Column;
use crate::forest::Tree;

const BOLD: &str = "\x1b[1m";
const DIM: &str = "\x1b[2m";
const RED: &str = "\x1b[31m";
const RESET: &[u8] = b"\x1b[0m";

/// Width of escaped text in cells.
fn cells(text: &[u8], plain: bool) -> usize {
    if text.is_ascii() {
        return text.len();
    }
    // procps adds up characters, and terminals join them to emoji.
    if let (true, Ok(text)) = (plain, std::str::from_utf8(text)) {
        return text.chars().map(plain::width).sum();
    }
    std::str::from_utf8(text).map_or(text.len(), UnicodeWidthStr::width)
}

/// How a cell that is wider than its column is cut, if cells are cut at all.
#[derive(Clone, Copy, Debug)]
enum Cut {
    /// A wide cell is not cut.
    No,
    /// The line ends at the width.
    Chop,
    /// The name of a user or group ends with `+`. If even that does not fit, the number is written.
    Plus(u32),
}

impl Cut {
    fn of(column: &Column, value: &Value<'_>) -> Cut {
        match (column.form, value) {
            (TextForm::Args | TextForm::Comm | TextForm::Cut | TextForm::Fname, _) => Cut::Chop,
            (_, Value::User(id) | Value::Group(id)) => Cut::Plus(*id),
            (_, Value::Bytes { .. } | Value::Args { .. } | Value::Ids(_) | Value::GroupList(_)) => {
                Cut::Chop
            }
            _ => Cut::No,
        }
    }
}

/// How wide the lines of `ps` may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cells {
    /// Cells in a line.
    pub line: usize,
    /// Is there room for all digits of sets of signals?
    pub wide_signals: bool,
}

impl Cells {
    /// The width for these columns on a screen with this many cells. If they do not fit into one
    /// line, lines are several times as long, as in procps.
    pub fn fit(columns: &[Column], screen: usize) -> Cells {
        let mut total = 0usize;
        let mut signals = 0;
        let mut was_column = false;
        for (i, c) in columns.iter().enumerate() {
            let is_last = i + 1 == columns.len();
            let unlimited = matches!(c.form, TextForm::Args | TextForm::Comm)
                || matches!(c.field.kind, field::Kind::TextList | field::Kind::IntegerList);
            let width = match c.form {
                TextForm::Signals => {
                    signals += 1;
                    SHORT_SIGNALS
                }
                _ if unlimited && is_last => 3,
                _ => c.width,
            };
            total += width + usize::from(was_column && !c.is_literal());
            was_column = !c.is_literal() && !c.joined;
        }
        let line = screen.saturating_mul(total.div_ceil(screen).max(1));
        Cells { line, wide_signals: total + signals * (ALL_SIGNALS - SHORT_SIGNALS) <= line }
    }
}

/// The width of a set of signals if there is no room for all digits.
pub const SHORT_SIGNALS: usize = 9;
/// The width if there is room.
pub const ALL_SIGNALS: usize = 16;

/// Lays cells out in lines.
struct CellLine<'a> {
    columns: &'a [Column],
    /// The blanks before each cell in the previous line, because this line usually has the same.
    blanks: Vec<usize>,
    /// The fewest blanks before each cell: one between two columns, none next to literal text of
    /// the format.
    least: Vec<usize>,
    /// Cells from the beginning of each column to that of the next.
    steps: Vec<usize>,
    /// The widths to cut cells at, if they are cut.
    cells: Option<Cells>,
    /// Whether cells are counted as procps does.
    plain: bool,
    /// The text between columns, in place of blanks.
    delimiter: Option<u8>,
    /// Where the line begins in the buffer.
    start: usize,
    /// The cells so far, and the cell where the next column should begin.
    actual: usize,
    correct: usize,
}

impl<'a> CellLine<'a> {
    fn new(columns: &'a [Column], options: &Options) -> CellLine<'a> {
        let is_column = |i: usize| columns.get(i).is_some_and(|c| !c.is_literal());
        let joined = |i: usize| columns[i].joined;
        let apart = |i: usize| usize::from(is_column(i) && is_column(i + 1) && !joined(i));
        CellLine {
            columns,
            blanks: vec![0; columns.len()],
            least: (0..columns.len()).map(|i| i.checked_sub(1).map_or(0, apart)).collect(),
            steps: columns.iter().enumerate().map(|(i, c)| c.width + apart(i)).collect(),
            cells: options.cells,
            plain: options.plain,
            delimiter: options.delimiter,
            start: 0,
            actual: 0,
            correct: 0,
        }
    }
    fn begin(&mut self, buf: &[u8]) {
        (self.start, self.actual, self.correct) = (buf.len(), 0, 0);
    }
    /// The largest number of cells that text in the i-th column may have.
    fn room(&self, i: usize) -> usize {
        match self.cells {
            Some(_) if i + 1 < self.columns.len() => self.columns[i].width,
            Some(cells) => {
                let begin = self.correct.max(self.actual + self.least[i]);
                // If the columns before it are wider than the line, procps cuts nothing.
                cells.line.checked_sub(begin).unwrap_or(usize::MAX)
            }
            None if self.columns[i].form == TextForm::Cut && i + 1 < self.columns.len() => {
                self.columns[i].width
            }
            None => usize::MAX,
        }
    }
    /// The cells before the text of the i-th column, of which `pad` cells align it.
    fn space(&self, i: usize, pad: usize) -> usize {
        match self.delimiter {
            Some(_) => self.least[i],
            None => (self.correct + pad).saturating_sub(self.actual).max(self.least[i]),
        }
    }
    /// Add the i-th cell. The number of blanks before it is known only when its text is written. So
    /// it is first written after as many blanks as in the previous line, which is usually right.
    fn cell(&mut self, buf: &mut Vec<u8>, i: usize, cut: Cut, write: impl FnOnce(&mut Vec<u8>)) {
        let column = &self.columns[i];
        let (before, guess) = (buf.len(), self.blanks[i]);
        buf.resize(before + guess, b' ');
        let begin = before + guess;
        write(buf);
        let mut width = cells(&buf[begin..], self.plain);
        let room = self.room(i);
        if width > room && !matches!(cut, Cut::No) {
            let keep = match prefix(&buf[begin..], room) {
                keep if self.plain => begin + keep,
                keep => begin + before_escape(&buf[begin..], keep),
            };
            match cut {
                Cut::Plus(_) if self.cells.is_some() && buf[begin..keep].is_ascii() && room > 0 => {
                    buf.truncate(keep - 1);
                    buf.push(b'+');
                }
                Cut::Plus(id) if self.cells.is_some() => {
                    buf.truncate(begin);
                    field::write_uint(buf, u64::from(id));
                }
                Cut::Plus(_) | Cut::No => {}
                Cut::Chop => buf.truncate(keep),
            }
            width = cells(&buf[begin..], self.plain);
        }
        let pad = if column.is_left() { 0 } else { column.width.saturating_sub(width) };
        let space = self.space(i, pad);
        if space != guess {
            let end = buf.len();
            buf.resize(end + space.saturating_sub(guess), b' ');
            buf.copy_within(begin..end, before + space);
            buf[before..before + space].fill(b' ');
            buf.truncate(end + space - guess);
            self.blanks[i] = space;
        }
        if let Some(c) = self.delimiter {
            buf[before..before + space].fill(c);
        }
        self.actual += space + width;
        self.correct += self.steps[i];
    }
    /// Add the i-th cell, a number at the right edge of its column.
    #[inline]
    fn number(&mut self, buf: &mut Vec<u8>, i: usize, v: u64) {
        let mut cell = [b' '; 64];
        let at = field::digits_at_end(&mut cell, v);
        let width = cell.len() - at;
        let pad = self.columns[i].width.saturating_sub(width);
        let space = self.space(i, pad);
        if let Some(c) = self.delimiter {
            cell[..at].fill(c);
        }
        match at.checked_sub(space) {
            Some(begin) => buf.extend_from_slice(&cell[begin..]),
            None => {
                buf.resize(buf.len() + space, b' ');
                buf.extend_from_slice(&cell[at..]);
            }
        }
        self.blanks[i] = space;
        self.actual += space + width;
        self.correct += self.steps[i];
    }
    /// End the line at the terminal's edge.
    fn end(&self, buf: &mut Vec<u8>, terminal: &Terminal, color: Option<&str>) {
        if let (Some(width), None) = (terminal.width, self.cells) {
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

/// The length in bytes of the longest prefix that fits into `width` cells.
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

/// Where to cut escaped text that does not fit: not inside an escape, because its rest would be
/// read as other text.
fn before_escape(text: &[u8], at: usize) -> usize {
    // The longest one is \u{10ffff}.
    let last = text[..at].iter().rposition(|b| *b == b'\\').filter(|begin| at - begin < 10);
    let Some(begin) = last else { return at };
    let rest = &text[begin + 1..];
    let length = match rest {
        [b'n' | b't' | b'r', ..] => 2,
        [b'x', a, b, ..] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit() => 4,
        [b'u', b'{', digits @ ..] => {
            let count = digits.iter().take_while(|d| d.is_ascii_hexdigit()).count();
            if digits.get(count) == Some(&b'}') { count + 4 } else { 1 }
        }
        _ => 1,
    };
    if begin + length > at { begin } else { at }
}

/// How rows are written.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Whether there is a line of headers.
    pub headers: bool,
    /// The properties of standard output.
    pub terminal: Terminal,
    /// The widths to cut cells and lines at, if they are cut.
    pub cells: Option<Cells>,
    /// Whether characters that cannot be printed become `?`, as in procps, instead of being
    /// escaped.
    pub plain: bool,
    /// The character between columns, if there is one in place of blanks.
    pub delimiter: Option<u8>,
    /// The number of rows after which the headers are repeated.
    pub page: Option<usize>,
}

impl Options {
    /// The options of all commands but `ps`, which cut nothing in a pipe.
    pub fn new(headers: bool, terminal: Terminal) -> Options {
        Options { headers, terminal, cells: None, plain: false, delimiter: None, page: None }
    }
}

/// Write the header.
pub fn header(sink: &mut Sink, columns: &[Column], options: &Options) {
    if !options.headers || columns.iter().all(|c| c.header.is_empty() || c.is_literal()) {
        return;
    }
    write_header(sink.buf(), columns, options);
}

fn write_header(buf: &mut Vec<u8>, columns: &[Column], options: &Options) {
    let mut line = CellLine::new(columns, options);
    line.begin(buf);
    for (i, c) in columns.iter().enumerate() {
        line.cell(buf, i, Cut::No, |out| field::escape(out, c.header.as_bytes()));
    }
    line.end(buf, &options.terminal, Some(BOLD));
}

/// The colour of a row.
fn color_of(row: &Row<'_>) -> Option<&'static str> {
    if row.is_zombie() {
        Some(RED)
    } else if row.is_kthread() {
        Some(DIM)
    } else {
        None
    }
}

/// Write the rows and add them up. Returns their number.
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
    options: Options,
    /// The column with the drawing of a tree: the first one that names the command.
    trunk: Option<usize>,
    line: CellLine<'a>,
    /// Rows so far.
    pub count: usize,
}

impl<'a> Lines<'a> {
    /// Lines with the columns of this table.
    pub fn new(table: &Table<'a>, tree: Option<&'a Tree>, options: &Options) -> Lines<'a> {
        let Table { cx, columns, .. } = *table;
        let trunk = columns.iter().position(|c| matches!(c.form, TextForm::Args | TextForm::Comm));
        let line = CellLine::new(columns, options);
        Lines { cx, columns, tree, options: *options, trunk, line, count: 0 }
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
        if let (Some(page), true) = (self.options.page, self.count > 0) {
            if self.count % page.max(1) == 0 {
                write_header(buf, self.columns, &self.options);
            }
        }
        if let (Some(totals), Item::Row(row)) = (&mut totals, item) {
            totals.begin(row);
        }
        self.line.begin(buf);
        for (c, column) in self.columns.iter().enumerate() {
            let mut value = item.value(self.cx, column.field, c);
            const NONE: [Missing; 2] =
                [Missing::Reason(Reason::Denied), Missing::Reason(Reason::Absent)];
            if self.options.plain && value.missing().is_some_and(|m| NONE.contains(&m)) {
                value = match item {
                    Item::Row(row) => plain::nothing(row, column.field),
                    _ => Value::ABSENT,
                };
            }
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
                self.line.cell(buf, c, Cut::No, |out| {
                    out.extend_from_slice(AT_LEAST);
                    field::text(out, self.cx, column.form, None, &value);
                });
                continue;
            }
            if let Value::Uint(v) = value {
                if let Some(totals) = &mut totals {
                    totals.add(c, v);
                }
                // This is the fast way for most cells of most tables.
                let digits = match column.form {
                    TextForm::Kib => Some(v / 1024),
                    TextForm::Plain | TextForm::Pid => Some(v),
                    _ => None,
                };
                if let Some(n) = digits.filter(|_| !column.is_left()) {
                    self.line.number(buf, c, n);
                    continue;
                }
            }
            if column.is_literal() {
                self.line.cell(buf, c, Cut::No, |out| field::escape(out, column.header.as_bytes()));
                continue;
            }
            let narrow = self.options.cells.is_some_and(|c| !c.wide_signals);
            if let (TextForm::Signals, true, Value::Mask(mask)) = (column.form, narrow, &value) {
                self.line.cell(buf, c, Cut::No, |out| short_signals(out, *mask));
                continue;
            }
            self.line.cell(buf, c, Cut::of(column, &value), |out| {
                if let (Some(tree), true) = (self.tree, self.trunk == Some(c)) {
                    out.extend_from_slice(tree.art(self.count));
                }
                match self.options.plain {
                    true => plain::cell(out, self.cx, column, item.row(), &value),
                    false => {
                        // The form of the field decides whether a row without a value shows 0.
                        let form = if value.missing().is_some_and(Missing::is_absent) {
                            column.field.text
                        } else {
                            column.form
                        };
                        field::text(out, self.cx, form, item.row(), &value);
                    }
                }
            });
        }
        self.line.end(buf, &self.options.terminal, item.row().and_then(color_of));
        self.count += 1;
    }
}

/// Writes the last eight digits, with `<` before them if there are more.
fn short_signals(out: &mut Vec<u8>, mask: u64) {
    let low = format!("{:08x}", mask & 0xffff_ffff);
    if mask > 0xffff_ffff {
        out.push(b'<');
    }
    out.extend_from_slice(low.as_bytes());
}

/// The sign before a sum that lacks some of its parts.
const AT_LEAST: &[u8] = b">=";

/// The sums of columns of bytes.
#[derive(Clone, Debug)]
pub struct Totals {
    /// The sum of each column, or `None` if the column does not add up.
    sums: Vec<Option<Total>>,
    /// The columns of memory that processes may share.
    of_memory: Vec<bool>,
    once: MemoryOnce,
    was_counted: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Total {
    sum: u64,
    /// Some row has a value.
    known: bool,
    /// Some row has an unknown value.
    lacking: bool,
}

impl Totals {
    /// Totals of these columns.
    pub fn new(columns: &[Column]) -> Totals {
        let adds_up = |c: &Column| (c.field.text == TextForm::Kib).then(Total::default);
        Totals {
            sums: columns.iter().map(adds_up).collect(),
            of_memory: columns.iter().map(|c| MemoryOnce::is_about(c.field)).collect(),
            once: MemoryOnce::default(),
            was_counted: false,
        }
    }
    /// Begin the values of a row. Memory that it shares with an earlier row is not counted again.
    pub fn begin(&mut self, row: &Row<'_>) {
        self.was_counted = self.once.was_counted(row);
    }
    /// Add a value of a column, the c-th.
    #[inline]
    pub fn add(&mut self, c: usize, v: u64) {
        if self.was_counted && self.of_memory[c] {
            return;
        }
        if let Some(total) = &mut self.sums[c] {
            total.sum = total.sum.saturating_add(v);
            total.known = true;
        }
    }
    /// Note that a row lacks a value that it should have.
    #[cold]
    pub fn lack(&mut self, c: usize) {
        if let Some(total) = &mut self.sums[c] {
            total.lacking = true;
        }
    }
    /// Write the line of totals, if any column adds up.
    pub fn write(&self, sink: &mut Sink, cx: &Context, columns: &[Column], options: &Options) {
        if self.sums.iter().all(Option::is_none) {
            return;
        }
        let label = self.sums.iter().position(Option::is_none);
        let buf = sink.buf();
        let mut line = CellLine::new(columns, options);
        line.begin(buf);
        for (c, column) in columns.iter().enumerate() {
            line.cell(buf, c, Cut::No, |out| match self.sums[c] {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_not_cut_inside_an_escape() {
        for (text, at, keep) in [
            (r"process-name-t\xc3", 15, "process-name-t"),
            (r"process-name-t\xc3", 17, "process-name-t"),
            (r"process-name-t\xc3", 18, r"process-name-t\xc3"),
            (r"a\u{202e}bc", 5, "a"),
            (r"a\u{202e}bc", 9, r"a\u{202e}"),
            (r"line\ntwo", 5, "line"),
            (r"line\ntwo", 6, r"line\n"),
            // A backslash of the text itself is no escape.
            (r"back\slash", 5, r"back\"),
        ] {
            assert_eq!(&text[..before_escape(text.as_bytes(), at)], keep, "{text} at {at}");
        }
    }
}
