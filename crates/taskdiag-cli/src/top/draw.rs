//! Draws the screen: the lines above the table, the table, windows over it, and the line of keys.

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::style::{Color, Modifier, Style};
use taskdiag::field::{self, TextForm, Value};
use unicode_width::UnicodeWidthStr as _;

use super::act::{Action, signal_name};
use super::app::{App, Mode};
use super::detail::PAGES;
use super::head;
use super::list::Kind;
use super::scan::with_value;
use crate::columns::Column;

/// The smallest screen.
const LEAST: (u16, u16) = (20, 10);

/// The keys in the last line, the most important ones first.
const FOOTER: &[(&str, &str)] = &[
    ("q", "quit"),
    ("?", "help"),
    ("/", "filter"),
    ("<>", "sort"),
    ("o", "columns"),
    ("1-5", "views"),
    ("t", "tree"),
    ("H", "threads"),
    ("b", "sums"),
    ("Enter", "details"),
    ("k", "signal"),
    ("n", "nice"),
    ("u", "user"),
    ("d", "delay"),
    ("r", "reverse"),
    ("K", "kernel"),
    ("a", "CPUs"),
    ("s", "sort by"),
    ("Space", "pause"),
];

/// All keys, each in a line that fits 80 columns.
const HELP: &[(&str, &str)] = &[
    ("Up Down PgUp PgDn Home End", "move; the mouse wheel does, too"),
    ("1 2 3 4 5", "views: CPU, memory, I/O, scheduling, waits"),
    ("< >  or Left Right", "sort by the next column; so does a click on it"),
    ("s", "sort by any column"),
    ("r", "reverse the order"),
    ("o", "choose columns"),
    ("/", "filter by an expression, as with --where"),
    ("u", "show only tasks of a user"),
    ("Esc", "show all rows again"),
    ("t", "show children below their parents"),
    ("H", "show threads instead of processes"),
    ("K", "leave out kernel threads"),
    ("b", "add up by unit, slice, container, user, command, ..."),
    ("Enter  or i", "show all about a task, or what is in a sum"),
    ("k", "choose a signal, and send it"),
    ("n", "set the nice value"),
    ("a", "set the CPUs that it may run on"),
    ("d", "set the interval"),
    ("Space", "pause"),
    ("[ ] { }", "with --replay: go 1 or 60 frames back or forward"),
    ("g  and Space", "with --replay: go to a time; play"),
    ("Ctrl-Z", "stop, until the shell continues it"),
    ("q  or Ctrl-C", "quit"),
    ("", ""),
    ("?", "a value that is not known"),
    ("-", "a value that the task does not have"),
    ("Ended", "tasks that ended within the last two refreshes"),
    ("+3 -2", "tasks that began and ended since the last refresh"),
    ("slowed", "scans would take more than their share (--share)"),
];

/// Styles. People who cannot tell red from green can tell yellow, cyan and blue apart. Each style
/// also has another sign: a letter, bold text, or reversed text.
struct Looks {
    color: bool,
}

impl Looks {
    fn fore(&self, color: Color) -> Style {
        if self.color { Style::new().fg(color) } else { Style::new() }
    }
    fn header(&self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }
    fn sorted(&self) -> Style {
        self.header().add_modifier(Modifier::BOLD | Modifier::UNDERLINED)
    }
    fn cursor(&self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }
    fn state(&self, state: Option<u8>) -> Style {
        match state {
            Some(b'D') => self.fore(Color::Yellow).add_modifier(Modifier::BOLD),
            Some(b'R') => self.fore(Color::Cyan),
            Some(b'Z' | b'T' | b't') => self.fore(Color::Blue).add_modifier(Modifier::BOLD),
            _ => Style::new(),
        }
    }
    fn key(&self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }
}

/// Draws the whole screen.
pub fn draw(app: &mut App, frame: &mut Frame<'_>) {
    let area = frame.area();
    if area.width < LEAST.0 || area.height < LEAST.1 {
        put(frame.buffer_mut(), area, 0, "The terminal is too small.", Style::new());
        return;
    }
    let looks = Looks { color: app.color() };
    let keys = Rect { y: area.height - 1, height: 1, ..area };
    let body = Rect { height: area.height - 1, ..area };
    let cursor = match &app.mode {
        Mode::Detail(_) => {
            detail(app, frame.buffer_mut(), body, &looks);
            None
        }
        _ => {
            for (y, line) in head::lines(app).iter().enumerate() {
                put(frame.buffer_mut(), area, y as u16, line, Style::new());
            }
            let table =
                Rect { y: head::LINES as u16, height: body.height - head::LINES as u16, ..area };
            draw_table(app, frame.buffer_mut(), table, &looks);
            over(app, frame.buffer_mut(), table, &looks)
        }
    };
    last_line(app, frame.buffer_mut(), keys, &looks);
    if let Some(at) = cursor {
        frame.set_cursor_position(at);
    }
}

/// How many rows of the table fit on a screen of this height.
pub fn page(height: u16) -> usize {
    usize::from(height).saturating_sub(head::LINES + 2).max(1)
}

/// A line of text, cut at the edge.
fn put(buf: &mut Buffer, area: Rect, y: u16, text: &str, style: Style) {
    if y < area.height {
        buf.set_stringn(area.x, area.y + y, text, usize::from(area.width), style);
    }
}

/// The cells of a row, with the style of each.
struct Line {
    cells: Vec<String>,
    style: Style,
}

fn cell(app: &App, column: &Column, value: &Value<'_>, row: Option<&field::Row<'_>>) -> String {
    let Some(frame) = app.scanner.frame() else { return String::new() };
    let form = app.args.units.of_screen(column);
    let mut out = Vec::new();
    field::text(&mut out, frame.cx, form, row, value);
    String::from_utf8_lossy(&out).into_owned()
}

fn task_lines(app: &App, looks: &Looks) -> Vec<Line> {
    let Some(frame) = app.scanner.frame() else { return Vec::new() };
    let trunk =
        app.shape.columns.iter().position(|c| matches!(c.form, TextForm::Args | TextForm::Comm));
    let line = |(at, i): (usize, &u32)| {
        let row = frame.row(*i as usize)?;
        let mut cells: Vec<String> = Vec::with_capacity(app.shape.columns.len());
        for (c, column) in app.shape.columns.iter().enumerate() {
            let text = with_value(&frame, &app.details, &row, column.field, |row, value| {
                cell(app, column, &value, Some(row))
            });
            cells.push(match &app.rows.tree {
                Some(tree) if trunk == Some(c) => {
                    String::from_utf8_lossy(tree.art(app.offset + at)).into_owned() + &text
                }
                _ => text,
            });
        }
        let mut style = looks.state(row.state());
        if frame.rates.began().binary_search(i).is_ok() {
            style = style.add_modifier(Modifier::BOLD);
        }
        Some(Line { cells, style })
    };
    app.visible.iter().enumerate().filter_map(line).collect()
}

fn sum_lines(app: &App) -> Vec<Line> {
    let sums = app.rows.sums.iter().skip(app.offset).take(app.page);
    let line = |sum: &taskdiag::view::Sum| {
        let cells = app.shape.columns.iter().enumerate().map(|(c, column)| {
            let text = cell(app, column, &sum.values[c], None);
            // A sum that lacks some of its parts is a lower bound.
            if sum.partial[c] { format!(">={text}") } else { text }
        });
        Line { cells: cells.collect(), style: Style::new() }
    };
    sums.map(line).collect()
}

fn draw_table(app: &mut App, buf: &mut Buffer, area: Rect, looks: &Looks) {
    let lines = if app.shape.by.is_some() { sum_lines(app) } else { task_lines(app, looks) };
    fit(app, &lines);
    let columns = &app.shape.columns;
    let last = columns.len() - 1;
    let width_of = |c: usize, x: u16| {
        let left = usize::from(area.width.saturating_sub(x));
        if c == last && columns[c].is_left() { left } else { app.widths[c].min(left) }
    };
    buf.set_style(Rect { height: 1, ..area }, looks.header());
    let mut headers = Vec::new();
    let mut x = 0;
    for (c, column) in columns.iter().enumerate() {
        let width = width_of(c, x);
        let is_key = app.shape.sort.first().is_some_and(|k| std::ptr::eq(k.field, column.field));
        let style = if is_key { looks.sorted() } else { looks.header() };
        set_cell(buf, area.x + x, area.y, &column.header, width, column.is_left(), style);
        let end = x.saturating_add(width as u16).saturating_add(1);
        headers.push((x..end, c));
        x = end;
    }
    for (n, line) in lines.iter().enumerate() {
        let y = area.y + 1 + n as u16;
        if y >= area.bottom() {
            break;
        }
        let style = if app.offset + n == app.cursor {
            line.style.patch(looks.cursor())
        } else {
            line.style
        };
        buf.set_style(Rect { y, height: 1, ..area }, style);
        let mut x = 0;
        for (c, text) in line.cells.iter().enumerate() {
            let width = width_of(c, x);
            set_cell(buf, area.x + x, y, text, width, columns[c].is_left(), style);
            x = x.saturating_add(width as u16).saturating_add(1);
        }
    }
    app.headers = (area.y, headers);
}

/// Makes columns of numbers as wide as their values. No column becomes narrower.
fn fit(app: &mut App, lines: &[Line]) {
    app.widths.resize(app.shape.columns.len(), 0);
    for (c, column) in app.shape.columns.iter().enumerate() {
        let mut width = column.width.max(column.header.width()).max(app.widths[c]);
        if !column.is_left() && !column.fixed {
            width = lines.iter().map(|l| l.cells[c].width()).fold(width, usize::max);
        }
        app.widths[c] = width;
    }
}

/// Text in a cell of this width, cut if it is longer.
fn set_cell(buf: &mut Buffer, x: u16, y: u16, text: &str, width: usize, left: bool, style: Style) {
    if x >= buf.area.right() {
        return;
    }
    let used = if left { 0 } else { width.saturating_sub(text.width()) };
    buf.set_stringn(x + used as u16, y, text, width - used, style);
}

/// Draws the window over the table. Returns the cursor of the input line.
fn over(app: &App, buf: &mut Buffer, area: Rect, looks: &Looks) -> Option<Position> {
    match &app.mode {
        Mode::Help(top) => {
            let lines: Vec<String> =
                HELP.iter().map(|(key, what)| format!("{key:<27} {what}")).collect();
            let room = usize::from(area.height.saturating_sub(2));
            let top = (*top).min(lines.len().saturating_sub(room));
            window(buf, area, "Keys (Esc closes)", &lines[top..], None, looks);
            None
        }
        Mode::List(list) => {
            let room = usize::from(area.height.saturating_sub(2)).max(1);
            let top = (list.at + 1).saturating_sub(room);
            let has =
                |n: usize| app.shape.columns.iter().any(|c| std::ptr::eq(c.field, list.fields[n]));
            let line = |n: &usize| match list.kind {
                Kind::Columns => format!("[{}] {}", if has(*n) { 'x' } else { ' ' }, list.text(*n)),
                _ => list.text(*n).to_owned(),
            };
            let lines: Vec<String> = list.shown[top..].iter().map(line).collect();
            window(buf, area, &list.title(), &lines, Some(list.at - top), looks);
            None
        }
        Mode::Confirm(target, action) => {
            let what = match action {
                Action::Signal(number) => format!("Send {} to {target}?", signal_name(*number)),
                other => format!("{other:?} for {target}?"),
            };
            let lines = [what, String::from("y: yes    n: no")];
            window(buf, area, "Are you sure?", &lines, None, looks);
            None
        }
        Mode::Prompt(prompt) => {
            let mut lines = vec![format!("> {}", prompt.text)];
            lines.extend(prompt.wrong.iter().flat_map(|w| w.lines().map(str::to_owned)));
            let inner = window(buf, area, &prompt.title(), &lines, None, looks);
            let x = inner.x + 2 + prompt.text.width() as u16;
            Some(Position { x: x.min(inner.right().saturating_sub(1)), y: inner.y })
        }
        Mode::Table | Mode::Detail(_) => None,
    }
}

/// A framed window at the top of an area. Returns its inside.
fn window(
    buf: &mut Buffer,
    area: Rect,
    title: &str,
    lines: &[String],
    chosen: Option<usize>,
    looks: &Looks,
) -> Rect {
    let height = (lines.len() as u16 + 2).min(area.height);
    let outer = Rect { height, ..area };
    let blank = " ".repeat(usize::from(outer.width));
    for y in 0..outer.height {
        put(buf, outer, y, &blank, Style::reset());
    }
    let rule = "-".repeat(usize::from(outer.width));
    put(buf, outer, 0, &format!("--- {title} {rule}"), looks.key());
    put(buf, outer, height - 1, &rule, Style::new());
    let inner = Rect { y: outer.y + 1, height: height.saturating_sub(2), ..outer };
    for (n, line) in lines.iter().enumerate().take(usize::from(inner.height)) {
        let style = if chosen == Some(n) { looks.cursor() } else { Style::new() };
        buf.set_style(Rect { y: inner.y + n as u16, height: 1, ..inner }, style);
        put(buf, inner, n as u16, line, style);
    }
    inner
}

fn detail(app: &App, buf: &mut Buffer, area: Rect, looks: &Looks) {
    let Mode::Detail(detail) = &app.mode else { return };
    put(buf, area, 0, &detail.target.to_string(), looks.key());
    let mut x = 0;
    for (n, page) in PAGES.iter().enumerate() {
        let text = format!(" {} {} ", n + 1, page.name);
        let style = if n == detail.page { looks.cursor() } else { Style::new() };
        let line = Rect { x, width: area.width.saturating_sub(x), ..area };
        put(buf, line, 1, &text, style);
        x += text.len() as u16;
    }
    let room = usize::from(area.height.saturating_sub(2));
    for (n, line) in detail.lines.iter().skip(detail.top).take(room).enumerate() {
        put(buf, area, n as u16 + 2, line, Style::new());
    }
}

fn last_line(app: &App, buf: &mut Buffer, area: Rect, looks: &Looks) {
    if let Some(message) = &app.message {
        put(buf, area, 0, message, looks.fore(Color::Yellow).add_modifier(Modifier::BOLD));
        return;
    }
    let keys: &[(&str, &str)] = match app.mode {
        Mode::Detail(_) => {
            &[("q", "back"), ("Tab", "next page"), ("1-6", "page"), ("r", "read again")]
        }
        Mode::Table => FOOTER,
        _ => &[("Esc", "back")],
    };
    let mut x = 0;
    for (key, what) in keys {
        let width = (key.width() + what.width() + 3) as u16;
        if x + width > area.width {
            break;
        }
        let at = |x| Rect { x, width: area.width - x, ..area };
        put(buf, at(x), 0, key, looks.key());
        put(buf, at(x + key.width() as u16 + 1), 0, what, Style::new());
        x += width;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_keys_fits_80_columns() {
        for (key, what) in HELP {
            assert!(key.len() <= 27 && 28 + what.len() <= 80, "{key}: {what}");
        }
    }
}
