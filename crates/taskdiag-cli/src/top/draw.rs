//! Draws the screen: the lines above the table, the table, windows over it, and the line of keys.

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::style::{Color, Modifier, Style};
use taskdiag::field::{self, TextForm, Value};
use unicode_width::UnicodeWidthStr as _;

use super::act::{Action, Target, signal_name};
use super::app::{App, Mode};
use super::detail::PAGES;
use super::head;
use super::help::{FOOTER, HELP};
use super::list::Kind;
use super::scan::with_value;
use super::views::COMMANDS;
use crate::columns::Column;

/// The smallest screen.
const LEAST: (u16, u16) = (20, 10);

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
    /// The part of a meter that this character stands for.
    fn meter(&self, sign: char) -> Style {
        match sign {
            '|' => self.fore(Color::Cyan),
            '#' => self.fore(Color::Yellow),
            ':' | '=' => self.fore(Color::Blue),
            _ => Style::new(),
        }
    }
    fn marked(&self) -> Style {
        self.fore(Color::Yellow).add_modifier(Modifier::UNDERLINED | Modifier::BOLD)
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
            let lines = head::lines(app);
            for (y, line) in lines.iter().enumerate() {
                put(frame.buffer_mut(), area, y as u16, &line.text, Style::new());
                if line.is_meter {
                    paint(frame.buffer_mut(), area, y as u16, &looks);
                }
            }
            let above = (lines.len() as u16).min(body.height);
            let table = Rect { y: above, height: body.height - above, ..area };
            match app.mode {
                Mode::Groups(_) => draw_groups(app, frame.buffer_mut(), table, &looks),
                _ => draw_table(app, frame.buffer_mut(), table, &looks),
            }
            over(app, frame.buffer_mut(), table, &looks)
        }
    };
    last_line(app, frame.buffer_mut(), keys, &looks);
    if let Some(at) = cursor {
        frame.set_cursor_position(at);
    }
}

/// How many rows of the table fit on the screen.
pub fn page(app: &App) -> usize {
    usize::from(app.height).saturating_sub(head::lines(app).len() + 2).max(1)
}

/// Colours the meters of a line, which are in brackets.
fn paint(buf: &mut Buffer, area: Rect, y: u16, looks: &Looks) {
    let mut is_inside = false;
    for x in area.left()..area.right() {
        let Some(cell) = buf.cell_mut((x, area.y + y)) else { continue };
        match cell.symbol() {
            "[" => is_inside = true,
            "]" => is_inside = false,
            sign if is_inside => {
                let style = looks.meter(sign.chars().next().unwrap_or(' '));
                cell.set_style(style);
            }
            _ => {}
        }
    }
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
    // `?` as in ps would say here that it is not known.
    if matches!(value, Value::Tty(0)) {
        return String::from("-");
    }
    let form = app.args.units.of_screen(column);
    let mut out = Vec::new();
    field::text(&mut out, frame.cx, form, row, value);
    String::from_utf8_lossy(&out).into_owned()
}

fn task_lines(app: &App, looks: &Looks) -> Vec<Line> {
    let Some(frame) = app.scanner.frame() else { return Vec::new() };
    let is_command = |c: &Column| {
        matches!(c.form, TextForm::Args | TextForm::Comm) || COMMANDS.contains(&c.field.name)
    };
    let trunk = app.shape.columns.iter().position(is_command);
    let line = |(at, i): (usize, &u32)| {
        let row = frame.row(*i as usize)?;
        let mut cells: Vec<String> = Vec::with_capacity(app.shape.columns.len());
        for (c, column) in app.shape.columns.iter().enumerate() {
            let text = match app.rows.subtree(column.field, app.offset + at) {
                Some((value, is_partial)) => {
                    let text = cell(app, column, &value, Some(&row));
                    if is_partial { format!(">={text}") } else { text }
                }
                None => with_value(&frame, &app.details, &row, column.field, |row, value| {
                    cell(app, column, &value, Some(row))
                }),
            };
            cells.push(match app.rows.art(app.offset + at) {
                Some(art) if trunk == Some(c) => art + &text,
                _ => text,
            });
        }
        let mut style = match app.marks_running {
            true => looks.state(row.state()),
            false => Style::new(),
        };
        let start_ns = row.base.and_then(|b| b.start_time_ns());
        let is_marked =
            |t: &Target| t.tid.unwrap_or(t.pid) == row.view.pid() && Some(t.start_ns) == start_ns;
        if app.marks.iter().any(is_marked) {
            style = looks.marked();
        }
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
            let is_key = app.marks_order
                && app.shape.sort.first().is_some_and(|k| std::ptr::eq(k.field, columns[c].field));
            let style = if is_key { style.add_modifier(Modifier::BOLD) } else { style };
            set_cell(buf, area.x + x, y, text, width, columns[c].is_left(), style);
            x = x.saturating_add(width as u16).saturating_add(1);
        }
    }
    app.headers = (area.y, headers);
}

/// Draws the tree of cgroups.
fn draw_groups(app: &mut App, buf: &mut Buffer, area: Rect, looks: &Looks) {
    let page = app.page;
    let Mode::Groups(groups) = &mut app.mode else { return };
    groups.scroll(page);
    let room = usize::from(area.height.saturating_sub(1));
    let rows = &groups.rows[groups.offset.min(groups.rows.len())..];
    let rows = &rows[..rows.len().min(room)];
    let widths: Vec<usize> = (0..groups.columns.len())
        .map(|c| {
            let column = &groups.columns[c];
            let least = column.width.max(column.header.width());
            rows.iter().map(|row| row.cells[c].width()).fold(least, usize::max)
        })
        .collect();
    let line = |buf: &mut Buffer, y: u16, text: &dyn Fn(usize) -> (String, Style)| {
        let mut x = 0;
        for (c, column) in groups.columns.iter().enumerate() {
            let width = widths[c].min(usize::from(area.width.saturating_sub(x)));
            let (text, style) = text(c);
            set_cell(buf, area.x + x, y, &text, width, column.is_left(), style);
            x = x.saturating_add(width as u16).saturating_add(1);
        }
    };
    buf.set_style(Rect { height: 1, ..area }, looks.header());
    line(buf, area.y, &|c| {
        let column = &groups.columns[c];
        let style = if groups.is_sorted_by(column) { looks.sorted() } else { looks.header() };
        (column.header.clone(), style)
    });
    for (n, row) in rows.iter().enumerate() {
        let y = area.y + 1 + n as u16;
        let is_chosen = groups.offset + n == groups.cursor;
        let style = if is_chosen { looks.cursor() } else { Style::new() };
        buf.set_style(Rect { y, height: 1, ..area }, style);
        line(buf, y, &|c| (row.cells[c].clone(), style));
    }
    let left = room.saturating_sub(rows.len());
    if let Some(remark) = groups.remark.as_ref().filter(|_| left > 0) {
        put(buf, area, area.height - 1, remark, looks.key());
    }
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
            window(buf, area, "Keys (Esc closes)", (&lines, top), None, looks);
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
            let lines: Vec<String> = list.shown.iter().map(line).collect();
            window(buf, area, &list.title(), (&lines, top), Some(list.at - top), looks);
            None
        }
        Mode::Confirm(target, action) => {
            let whom = match app.marks.len() {
                0 | 1 => target.to_string(),
                n => format!("these {n} tasks"),
            };
            let what = match action {
                Action::Signal(number) => format!("Send {} to {whom}?", signal_name(*number)),
                other => format!("{other:?} for {whom}?"),
            };
            let mut lines = vec![what, String::from("y: yes    n: no")];
            lines.extend(app.marks.iter().map(Target::to_string));
            window(buf, area, "Are you sure?", (&lines, 0), None, looks);
            None
        }
        Mode::Prompt(prompt) => {
            let mut lines = vec![format!("> {}", prompt.text)];
            lines.extend(prompt.wrong.iter().flat_map(|w| w.lines().map(str::to_owned)));
            let about_marks = prompt.is_about_task() && !app.marks.is_empty();
            if about_marks {
                lines.extend(app.marks.iter().map(Target::to_string));
            }
            let title = match about_marks {
                true => format!("{} and all that are marked", prompt.title()),
                false => prompt.title(),
            };
            let inner = window(buf, area, &title, (&lines, 0), None, looks);
            let x = inner.x + 2 + prompt.text.width() as u16;
            Some(Position { x: x.min(inner.right().saturating_sub(1)), y: inner.y })
        }
        Mode::Table | Mode::Detail(_) | Mode::Groups(_) => None,
    }
}

/// A framed window at the top of an area, with lines from the given one on. Its edges say how many
/// lines are above and below. Returns its inside.
fn window(
    buf: &mut Buffer,
    area: Rect,
    title: &str,
    (lines, top): (&[String], usize),
    chosen: Option<usize>,
    looks: &Looks,
) -> Rect {
    let height = (lines.len().min(usize::from(u16::MAX) - 2) as u16 + 2).min(area.height);
    let outer = Rect { height, ..area };
    let blank = " ".repeat(usize::from(outer.width));
    for y in 0..outer.height {
        put(buf, outer, y, &blank, Style::reset());
    }
    let rule = "-".repeat(usize::from(outer.width));
    let inner = Rect { y: outer.y + 1, height: height.saturating_sub(2), ..outer };
    let below = lines.len().saturating_sub(top + usize::from(inner.height));
    let more = |n: usize, where_: &str| match n {
        0 => String::new(),
        n => format!("--- {n} more {where_} "),
    };
    put(buf, outer, 0, &format!("--- {title} {}{rule}", more(top, "above")), looks.key());
    put(buf, outer, height - 1, &format!("{}{rule}", more(below, "below")), Style::new());
    for (n, line) in
        lines[top.min(lines.len())..].iter().enumerate().take(usize::from(inner.height))
    {
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
    let below = detail.lines.len().saturating_sub(detail.top + room);
    if below > 0 && room > 1 {
        let text = format!("--- {below} more below ");
        let x = area.width.saturating_sub(text.len() as u16);
        put(buf, Rect { x, width: area.width - x, ..area }, area.height - 1, &text, looks.key());
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
        Mode::Groups(_) => {
            &[("q", "back"), ("Enter", "tasks"), ("P", "CPU"), ("M", "memory"), ("N", "name")]
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
