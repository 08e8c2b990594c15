//! Draws the tree as pstree does: the first child to the right of its parent, and the others below.
//! If arguments are shown, each process has a line of its own.

use std::io;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::compact::{Shapes, SubtreeShape, octal};
use crate::args::tree::Labels;
use crate::output::Sink;
use crate::output::terminal::Terminal;

/// The pieces of a drawing.
#[derive(Clone, Copy, Debug)]
pub struct Pieces {
    /// Between a parent and its only child.
    single: &'static str,
    /// Between a parent and the first of its children.
    first: &'static str,
    /// The pieces before a child, and before the last child.
    branch: &'static str,
    last: &'static str,
    /// The pieces for a level whose line continues, and for a level whose line has ended.
    through: &'static str,
    gap: &'static str,
}

/// The pieces of pstree, for any terminal and for pipes.
pub const ASCII: Pieces =
    Pieces { single: "---", first: "-+-", branch: "|-", last: "`-", through: "| ", gap: "  " };
/// Pieces for a terminal that shows UTF-8.
pub const LINES: Pieces =
    Pieces {
        single: "───", first: "─┬─", branch: "├─", last: "└─", through: "│ ", gap: "  "
    };
/// The pieces of a VT100, which has lines among its other characters.
pub const VT100: Pieces = Pieces {
    single: "\x1b(0\x0fqqq\x1b(B",
    first: "\x1b(0\x0fqwq\x1b(B",
    branch: "\x1b(0\x0ftq\x1b(B",
    last: "\x1b(0\x0fmq\x1b(B",
    through: "\x1b(0\x0fx\x1b(B ",
    gap: "  ",
};

/// Deeper levels are drawn like this one. Otherwise lines would get longer and longer in a comb of
/// 10,000 processes, each with two children.
const DRAWN_LEVELS: usize = 64;

const BOLD: &[u8] = b"\x1b[1m";
const RESET: &[u8] = b"\x1b[0m";

/// A subtree that is to be drawn.
#[derive(Clone, Copy, Debug)]
struct Todo {
    shape: usize,
    count: usize,
    level: usize,
    first: bool,
    last: bool,
    /// How many brackets each leaf below it closes.
    closing: usize,
}

/// Draws into a sink.
#[derive(Debug)]
pub struct Drawing<'a> {
    /// The shapes to draw.
    pub shapes: &'a Shapes,
    /// The pieces to use.
    pub pieces: Pieces,
    /// The terminal to draw on.
    pub terminal: Terminal,
    /// The properties to show of each process.
    pub labels: Labels,
}

/// A line that is cut at the edge of the terminal, with a plus there.
#[derive(Debug, Default)]
struct CutLine {
    cells: usize,
    limit: Option<usize>,
    /// The place in the output for the plus, if the line turns out to be too long.
    cut: Option<usize>,
    /// As in pstree, each character counts as a cell, even in an escape sequence, and a line that
    /// just fits is cut, too.
    strict: bool,
}

impl CutLine {
    fn push(&mut self, out: &mut Vec<u8>, text: &[u8]) {
        let text = std::str::from_utf8(text).unwrap_or("?");
        if self.strict {
            return self.push_strictly(out, text);
        }
        let (before, width) = (self.cells, text.width());
        if let (Some(limit), None) = (self.limit, self.cut) {
            if before + width >= limit {
                let mut cells = before;
                let fits = text.char_indices().find(|(_, c)| {
                    cells += c.width().unwrap_or(0);
                    cells >= limit
                });
                self.cut = fits.map(|(at, _)| out.len() + at);
            }
        }
        out.extend_from_slice(text.as_bytes());
        self.cells += width;
    }
    fn push_strictly(&mut self, out: &mut Vec<u8>, text: &str) {
        for c in text.chars() {
            self.cells += 1;
            match self.limit {
                Some(limit) if self.cells > limit => {}
                Some(limit) if self.cells == limit => out.push(b'+'),
                _ => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
    }
    fn blanks(&mut self, out: &mut Vec<u8>, n: usize) {
        for _ in 0..n {
            self.push(out, b" ");
        }
    }
    fn end(&mut self, out: &mut Vec<u8>, color: bool) {
        if let (Some(cut), true) = (self.cut, self.limit.is_some_and(|l| self.cells > l)) {
            out.truncate(cut);
            out.extend_from_slice(if color { RESET } else { b"" });
            out.push(b'+');
        }
        out.push(b'\n');
        (self.cells, self.cut) = (0, None);
    }
    /// Writes arguments as pstree does. The first argument without room becomes three dots, and
    /// later ones are left out.
    fn push_args(&mut self, out: &mut Vec<u8>, args: &[Vec<u8>]) {
        for (i, arg) in args.iter().enumerate() {
            let is_last = i + 1 == args.len();
            if !is_last {
                self.push(out, b" ");
            }
            let printable = arg.iter().filter(|b| matches!(b, b' '..=b'~')).count();
            let width = 4 * arg.len() - 3 * printable;
            let room = self.limit.map(|limit| limit.saturating_sub(if is_last { 0 } else { 4 }));
            if room.is_some_and(|room| self.cells + 1 + width > room) {
                return self.push(out, b"...");
            }
            let mut text = Vec::new();
            octal(&mut text, arg);
            self.push(out, &text);
        }
    }
}

impl Drawing<'_> {
    /// Draw one tree, with this text before it.
    ///
    /// # Errors
    /// The error of a write.
    pub fn draw(&self, sink: &mut Sink, root: usize, title: &str) -> io::Result<()> {
        let strict = self.labels.strict;
        let mut line = CutLine { limit: self.terminal.width, strict, ..CutLine::default() };
        if !title.is_empty() {
            sink.buf().extend_from_slice(title.as_bytes());
            // pstree counts the previous line as a part of this one.
            line.cells = if strict { title.len() } else { 0 };
        }
        // For each level above: the width of the label, and whether more children follow.
        let mut levels: Vec<(usize, bool)> = Vec::new();
        let top = Todo { shape: root, count: 1, level: 0, first: true, last: true, closing: 0 };
        let mut stack = vec![top];
        while let Some(todo) = stack.pop() {
            levels.truncate(todo.level);
            let out = sink.buf();
            if self.labels.is_upright() || !todo.first {
                self.indent(out, &mut line, &levels, todo.last);
            }
            let shape = self.shapes.get(todo.shape);
            let before = line.cells;
            if todo.count > 1 {
                line.push(out, format!("{}*[", todo.count).as_bytes());
            }
            self.label(out, &mut line, shape);
            let width = match self.labels.is_upright() {
                true => usize::from(self.labels.args) + usize::from(shape.name_len > 1),
                false => line.cells - before + 1,
            };
            levels.push((width, !todo.last));
            let closing = todo.closing + usize::from(todo.count > 1);
            if shape.children.is_empty() || self.labels.is_upright() {
                if shape.children.is_empty() {
                    line.push(out, "]".repeat(closing).as_bytes());
                }
                line.end(out, self.terminal.color);
            } else {
                let single = shape.children.len() == 1;
                let piece = if single { self.pieces.single } else { self.pieces.first };
                if strict && line.limit.is_some_and(|limit| line.cells + 1 >= limit) {
                    // pstree leaves out children for which there is no room.
                    line.push(out, self.pieces.first.as_bytes());
                    line.push(out, b"+");
                    line.end(out, self.terminal.color);
                    continue;
                }
                line.push(out, piece.as_bytes());
            }
            let n = shape.children.len();
            for (i, (child, count)) in shape.children.iter().enumerate().rev() {
                stack.push(Todo {
                    shape: *child,
                    count: *count,
                    level: todo.level + 1,
                    first: i == 0,
                    last: i + 1 == n,
                    closing,
                });
            }
            sink.settle()?;
        }
        Ok(())
    }
    /// Writes the label of a process, with its colours.
    fn label(&self, out: &mut Vec<u8>, line: &mut CutLine, shape: &SubtreeShape) {
        let bold = shape.marked && self.terminal.color;
        out.extend_from_slice(shape.color);
        out.extend_from_slice(if bold { BOLD } else { b"" });
        line.push(out, &shape.label);
        line.push_args(out, &shape.args);
        let colored = bold || !shape.color.is_empty();
        out.extend_from_slice(if colored { RESET } else { b"" });
    }
    /// Begins a new line below the labels above.
    fn indent(&self, out: &mut Vec<u8>, line: &mut CutLine, levels: &[(usize, bool)], last: bool) {
        let drawn = levels.len().min(DRAWN_LEVELS);
        for (i, (width, _)) in levels.iter().take(drawn).enumerate() {
            line.blanks(out, *width);
            let goes_on = levels.get(i + 1).is_some_and(|l| l.1);
            line.push(out, self.knee(i + 1 == drawn, last, goes_on).as_bytes());
        }
    }
    fn knee(&self, here: bool, last: bool, goes_on: bool) -> &'static str {
        match (here, last, goes_on) {
            (true, true, _) => self.pieces.last,
            (true, false, _) => self.pieces.branch,
            (false, _, true) => self.pieces.through,
            (false, _, false) => self.pieces.gap,
        }
    }
}
