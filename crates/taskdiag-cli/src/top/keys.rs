//! The actions of keys and the mouse.

use ratatui::crossterm::event::{
    Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};
use taskdiag::EngineId;
use taskdiag::field::{self, Value};

use super::act::{self, Action, SIGNALS, Target};
use super::app::{App, Mode, Next};
use super::detail::{Detail, PAGES};
use super::head;
use super::help::HELP;
use super::list::{Kind, List};
use super::prompt::{For, Prompt, erase};
use super::scan::with_value;
use super::views::VIEWS;
use crate::args::top::SET;
use crate::columns;
use crate::exit::Exit;

/// How many tasks can be marked at once.
const MARKS_MAX: usize = 256;

impl App {
    /// The task with the cursor. `None` if there is none, or if the row is a sum.
    fn target(&mut self) -> Option<Target> {
        // Keys that came at once with this one may have moved the cursor.
        self.see();
        let task = *self.visible.get(self.cursor.checked_sub(self.offset)?)?;
        self.target_of(task)
    }
    /// A task of the last answer as the target of an action.
    fn target_of(&self, task: u32) -> Option<Target> {
        let frame = self.scanner.frame()?;
        let row = frame.row(task as usize)?;
        let mut comm = Vec::new();
        field::escape(&mut comm, row.comm.unwrap_or(b"?"));
        Some(Target {
            pid: row.view.tgid(),
            tid: self.shape.threads.then(|| row.view.pid()),
            start_ns: row.base?.start_time_ns()?,
            comm: String::from_utf8_lossy(&comm).into_owned(),
            has_number_of_proc: frame
                .snapshot
                .served()
                .iter()
                .all(|s| matches!(s.engine, EngineId::Procfs | EngineId::Kernel)),
        })
    }
    /// Calls `f` with the task under the cursor.
    fn on_target(&mut self, f: impl FnOnce(&mut App, Target) -> Mode) -> Next {
        match self.target() {
            Some(target) => (self.mode, self.unseen) = (f(self, target), true),
            None => self.message = Some(String::from("There is no single task here.")),
        }
        Next::Draw
    }
    /// Calls `f` for the marked tasks or, if no task is marked, for the task under the cursor. `f`
    /// gets the first of several tasks.
    fn on_marked(&mut self, f: impl FnOnce(&mut App, Target) -> Mode) -> Next {
        match self.marks.first().cloned() {
            Some(first) => (self.mode, self.unseen) = (f(self, first), true),
            None => return self.on_target(f),
        }
        Next::Draw
    }
    /// Marks the task under the cursor, in the tree with all below it, or takes its mark away.
    fn mark(&mut self) -> Next {
        let Some(target) = self.target() else {
            self.message = Some(String::from("There is no single task here."));
            return Next::Draw;
        };
        if self.marks.contains(&target) {
            self.marks.retain(|m| *m != target);
            self.message = Some(format!("{target} is not marked any more."));
            return Next::Draw;
        }
        let below: Vec<u32> = match self.shape.threads {
            true => Vec::new(),
            false => self.rows.below(self.cursor).iter().copied().skip(1).collect(),
        };
        let more = below.iter().filter_map(|task| self.target_of(*task));
        let mut new: Vec<Target> = [target].into_iter().chain(more).collect();
        new.retain(|t| !self.marks.contains(t));
        if self.marks.len() + new.len() > MARKS_MAX {
            self.message = Some(format!("At most {MARKS_MAX} tasks can be marked at once."));
            return Next::Draw;
        }
        self.marks.extend(new);
        self.message = Some(format!(
            "{} marked: k, r and a are for all of them; U takes the marks away.",
            self.marks.len()
        ));
        Next::Draw
    }
    /// Hides the rows below the one under the cursor in the tree, or shows them again.
    fn fold(&mut self, folds: bool) -> Next {
        if !self.shape.tree || self.shape.by.is_some() {
            self.message = Some(String::from("+ and - are for the tree, which the key t shows."));
            return Next::Draw;
        }
        if let Some(id) = self.id_at_cursor() {
            match folds {
                true => self.shape.folded.insert(id),
                false => self.shape.folded.remove(&id),
            };
            self.choose();
        }
        Next::Draw
    }
    /// Acts on one task, or on all that are marked.
    fn act(&mut self, target: &Target, action: &Action) -> String {
        if self.marks.is_empty() {
            return act::act(target, action).unwrap_or_else(|why| why);
        }
        let all = std::mem::take(&mut self.marks);
        let failed: Vec<String> = all.iter().filter_map(|t| act::act(t, action).err()).collect();
        match failed.first() {
            None => format!("It was done to all {} marked tasks.", all.len()),
            Some(why) => {
                format!("It was done to {} of {} tasks: {why}", all.len() - failed.len(), all.len())
            }
        }
    }
    /// A line in which a nice value is typed, with the present one changed by this much.
    fn renice(&mut self, by: Option<i64>) -> Next {
        let now = by.and_then(|by| Some((self.nice_at_cursor()? + by).clamp(-20, 19).to_string()));
        self.on_marked(|_, t| {
            let text = now.unwrap_or_default();
            Mode::Prompt(Prompt { what: For::Nice(t), text, wrong: None })
        })
    }
    fn nice_at_cursor(&mut self) -> Option<i64> {
        self.see();
        let task = *self.visible.get(self.cursor.checked_sub(self.offset)?)?;
        let frame = self.scanner.frame()?;
        let row = frame.row(task as usize)?;
        let nice = SET.find("ni")?.field;
        with_value(&frame, &self.details, &row, nice, |_, value| match value {
            Value::Int(n) => Some(n),
            _ => None,
        })
    }
    /// Shows only the rows of the sum under the cursor.
    fn open_sum(&mut self) -> Next {
        let Some(by) = self.shape.by.clone() else { return Next::Draw };
        let value = self.shape.columns.iter().position(|c| std::ptr::eq(c.field, by.field));
        let value = value.and_then(|c| self.rows.sums.get(self.cursor)?.values.get(c));
        let (Some(value), Some(frame)) = (value, self.scanner.frame()) else { return Next::Draw };
        let condition = match value {
            Value::Missing(_) => columns::condition(&by, None),
            value => {
                let mut text = Vec::new();
                // An expression compares the original bytes, not the escaped text on the screen.
                match value {
                    Value::Bytes { data, .. } => text.extend_from_slice(data),
                    value => field::text(&mut text, frame.cx, by.form, None, value),
                }
                let Some(text) = quoted(&text) else {
                    self.message = Some(format!(
                        "No expression can have this {}: it has both kinds of quotes, or characters that are not shown.",
                        by.name
                    ));
                    return Next::Draw;
                };
                columns::condition(&by, Some(&text))
            }
        };
        let condition = match &self.filter {
            Some(before) => format!("({before}) and ({condition})"),
            None => condition,
        };
        match self.condition(Some(condition), self.user.clone()) {
            Ok(()) => self.set_view(self.view),
            Err(why) => self.message = Some(why.lines().next().unwrap_or_default().to_owned()),
        }
        Next::Scan
    }
    /// Handles an event of the terminal.
    ///
    /// # Errors
    /// The errors of a scan: the rows that earlier events requested are read before an event
    /// that acts on a row.
    pub fn on(&mut self, event: &Event) -> Result<Next, Exit> {
        if self.stale && matches!(self.mode, Mode::Table) && is_about_rows(event, self.page) {
            self.scan()?;
        }
        let next = match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => self.on_key(*key),
            Event::Mouse(mouse) => self.on_mouse(*mouse),
            _ => Next::Draw,
        };
        self.stale |= next == Next::Scan;
        Ok(next)
    }
    fn on_mouse(&mut self, mouse: MouseEvent) -> Next {
        let by = match mouse.kind {
            MouseEventKind::ScrollUp => -3,
            MouseEventKind::ScrollDown => 3,
            MouseEventKind::Down(MouseButton::Left) => {
                return self.on_click(mouse.column, mouse.row);
            }
            _ => return Next::Draw,
        };
        match &mut self.mode {
            Mode::Table => self.step(by),
            Mode::Help(top) => *top = scrolled(*top, by, HELP.len(), self.page),
            Mode::Detail(d) => {
                d.top = d.top.saturating_add_signed(by).min(d.lines.len().saturating_sub(1))
            }
            Mode::List(list) => list.step(by),
            Mode::Groups(groups) => groups.step(by, self.page),
            _ => {}
        }
        Next::Draw
    }
    fn on_click(&mut self, x: u16, y: u16) -> Next {
        if !matches!(self.mode, Mode::Table) {
            return Next::Draw;
        }
        let (line, cells) = &self.headers;
        if y == *line {
            let column = cells.iter().find(|(range, _)| range.contains(&x)).map(|(_, c)| *c);
            // A key that came at once with the click may have taken the column away.
            if let Some(column) = column.and_then(|c| self.shape.columns.get(c)) {
                self.sort_by(column.field);
                return Next::Scan;
            }
        } else if y > *line && usize::from(y - line) <= self.page {
            self.move_to(self.offset + usize::from(y - line - 1));
        }
        Next::Draw
    }
    fn on_key(&mut self, key: KeyEvent) -> Next {
        self.message = None;
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        let code = match key.code {
            KeyCode::Char('c') if is_control => return Next::Quit,
            KeyCode::Char('z') if is_control => return Next::Suspend,
            // Backspace of some terminals.
            KeyCode::Char('h') if is_control => KeyCode::Backspace,
            KeyCode::Char(letter) if is_control => return self.on_control(letter),
            code => code,
        };
        match std::mem::replace(&mut self.mode, Mode::Table) {
            Mode::Table => self.on_table(code),
            Mode::Help(top) => {
                match moved(code, self.page) {
                    Some(by) => {
                        self.mode = Mode::Help(scrolled(top, by, HELP.len(), self.page));
                    }
                    None if code == KeyCode::Char(' ') => {
                        let by = self.page as isize;
                        self.mode = Mode::Help(scrolled(top, by, HELP.len(), self.page));
                    }
                    None if matches!(
                        code,
                        KeyCode::Char('q' | '?' | 'h')
                            | KeyCode::Esc
                            | KeyCode::Enter
                            | KeyCode::F(1 | 10)
                    ) => {}
                    None => self.mode = Mode::Help(top),
                }
                Next::Draw
            }
            Mode::Prompt(prompt) => self.on_prompt(prompt, code),
            Mode::List(list) => self.on_list(list, code),
            Mode::Confirm(target, action) => {
                match code {
                    KeyCode::Char('y' | 'Y') if !self.unseen => {
                        self.message = Some(self.act(&target, &action));
                        return Next::Scan;
                    }
                    KeyCode::Char('n' | 'N' | 'q') | KeyCode::Esc => {
                        self.message = Some(String::from("Nothing was done."));
                    }
                    _ => self.mode = Mode::Confirm(target, action),
                }
                Next::Draw
            }
            Mode::Detail(detail) => self.on_detail(detail, code),
            Mode::Groups(groups) => self.on_groups(groups, code),
        }
    }
    /// A letter with Ctrl edits text as in a shell, and does not type the letter.
    fn on_control(&mut self, letter: char) -> Next {
        match &mut self.mode {
            Mode::Prompt(prompt) => {
                erase(&mut prompt.text, letter);
                prompt.wrong = None;
            }
            Mode::List(list) => list.erase(letter),
            _ => {}
        }
        Next::Draw
    }
    fn on_table(&mut self, key: KeyCode) -> Next {
        if let Some(by) = moved(key, self.page) {
            self.step(by);
            return Next::Draw;
        }
        if self.scanner.is_replay() {
            if let Some(next) = self.on_replay(key) {
                return next;
            }
        }
        match key {
            KeyCode::Char('q') | KeyCode::F(10) => return Next::Quit,
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.mode = Mode::Help(0),
            KeyCode::F(3) if self.search.is_some() => self.find_next(false),
            KeyCode::Char('/' | 'L') | KeyCode::F(3) => self.ask_for(For::Search, String::new()),
            KeyCode::Char('&') => self.find_next(false),
            KeyCode::Char('n') if self.search.is_some() => self.find_next(false),
            KeyCode::Char('\\' | 'o' | 'O') | KeyCode::F(4) => {
                self.ask_for(For::Filter, self.filter.clone().unwrap_or_default());
            }
            KeyCode::Char('u') => self.ask_for(For::User, self.user.clone().unwrap_or_default()),
            KeyCode::Char('d') => self.ask_for(For::Delay, String::new()),
            KeyCode::Esc | KeyCode::Char('=') => return self.clear(),
            KeyCode::Char('0') => return self.turn_view(0),
            KeyCode::Char(digit @ '2'..='5') => {
                return self.turn_view(digit as usize - '1' as usize);
            }
            KeyCode::Tab => return self.turn_view((self.view + 1) % VIEWS.len()),
            KeyCode::BackTab => {
                return self.turn_view((self.view + VIEWS.len() - 1) % VIEWS.len());
            }
            KeyCode::Char('t' | 'V') | KeyCode::F(5) => {
                self.shape.tree = !self.shape.tree && self.shape.by.is_none();
                return Next::Scan;
            }
            KeyCode::Char('S') => {
                self.shape.subtrees = !self.shape.subtrees;
                self.message = Some(String::from(match (self.shape.subtrees, self.shape.tree) {
                    (true, true) => "Each row of the tree has the sum over all below it.",
                    (true, false) => {
                        "In the tree (t), each row will have the sum over all below it."
                    }
                    (false, _) => "Each row of the tree has its own values.",
                }));
                return Next::Scan;
            }
            KeyCode::Char('+') => return self.fold(false),
            KeyCode::Char('-') => return self.fold(true),
            KeyCode::Char('H') => {
                self.shape.threads = !self.shape.threads;
                if !self.own_columns {
                    self.set_columns();
                }
                self.marks.clear();
                return Next::Scan;
            }
            KeyCode::Char('K') => {
                self.shape.users_only = !self.shape.users_only;
                self.choose();
            }
            KeyCode::Char('i') => {
                self.shape.busy_only = !self.shape.busy_only;
                self.choose();
            }
            KeyCode::Char('b') => {
                self.next_by();
                return Next::Scan;
            }
            KeyCode::Char('R' | 'I') => {
                self.shape.sort.iter_mut().for_each(|k| k.descending = !k.descending);
                self.choose();
            }
            KeyCode::Char('<' | ',') | KeyCode::Left => {
                self.sort_beside(-1);
                return Next::Scan;
            }
            KeyCode::Char('>' | '.') | KeyCode::Right => {
                self.sort_beside(1);
                return Next::Scan;
            }
            KeyCode::Char(letter @ ('P' | 'M' | 'T')) => {
                self.sort_by_name(match letter {
                    'P' => "cpu_now",
                    'M' => "pmem",
                    _ => "time",
                });
                return Next::Scan;
            }
            KeyCode::Char('N') => {
                self.sort_by(SET.find("pid").expect("a column of the table").field);
                return Next::Scan;
            }
            KeyCode::F(6) => self.mode = Mode::List(List::columns(Kind::Sort)),
            KeyCode::Char('f' | 'C') | KeyCode::F(2) => {
                self.mode = Mode::List(List::columns(Kind::Columns))
            }
            KeyCode::Char('Z') => self.paused = !self.paused,
            KeyCode::Char(' ') if self.scanner.is_replay() => self.paused = !self.paused,
            KeyCode::Char(' ') => return Next::Scan,
            KeyCode::Enter if self.shape.by.is_some() => return self.open_sum(),
            KeyCode::Enter => return self.open_page("values"),
            KeyCode::Char('l') => return self.open_page("files"),
            KeyCode::Char('s') => return self.open_page("stack"),
            KeyCode::Char('k') | KeyCode::F(9) => {
                return self.on_marked(|_, t| Mode::List(List::signals(t, SIGNALS)));
            }
            KeyCode::Char('r' | 'n') => return self.renice(None),
            KeyCode::F(7) | KeyCode::Char(']') => return self.renice(Some(-1)),
            KeyCode::F(8) | KeyCode::Char('[') => return self.renice(Some(1)),
            KeyCode::Char('a') => {
                return self.on_marked(|_, t| {
                    Mode::Prompt(Prompt { what: For::Cpus(t), text: String::new(), wrong: None })
                });
            }
            KeyCode::Char('c') => return self.mark(),
            KeyCode::Char('U') => {
                self.marks.clear();
                self.message = Some(String::from("No task is marked."));
            }
            KeyCode::Char('F') => self.toggle_follow(),
            KeyCode::Char('G') => return self.open_groups(),
            KeyCode::Char('p') => {
                self.next_command();
                return Next::Scan;
            }
            KeyCode::Char('W') => self.message = Some(self.settings().save()),
            KeyCode::Char(letter) => self.on_look(letter),
            _ => {}
        }
        Next::Draw
    }
    /// Keys that only change how things look.
    fn on_look(&mut self, letter: char) {
        match letter {
            '1' => self.per_cpu = Some(!head::has_meters(self)),
            'm' => self.bars = !self.bars,
            'E' => self.summary_units = self.summary_units.next_on_screen(),
            'e' => {
                self.args.units = self.args.units.next_on_screen();
                self.widths.clear();
            }
            'z' => self.args.color = !self.args.color,
            'x' => self.marks_order = !self.marks_order,
            'y' => self.marks_running = !self.marks_running,
            _ => {}
        }
    }
    fn ask_for(&mut self, what: For, text: String) {
        self.mode = Mode::Prompt(Prompt { what, text, wrong: None });
    }
    fn turn_view(&mut self, view: usize) -> Next {
        self.set_view(view);
        Next::Scan
    }
    /// Shows a page about the task under the cursor.
    fn open_page(&mut self, name: &str) -> Next {
        let page = PAGES.iter().position(|p| p.name == name).unwrap_or(0);
        self.on_target(|app, t| Mode::Detail(Detail::new(t, page, app.args.engine)))
    }
    /// Show all rows again.
    fn clear(&mut self) -> Next {
        match self.condition(None, None) {
            Ok(()) => Next::Scan,
            Err(_) => Next::Draw,
        }
    }
}

/// A text, quoted as a value of an expression, which has no escapes. `None`: the text cannot be
/// quoted, or has unprintable characters.
fn quoted(text: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(text).ok().filter(|t| !t.contains(field::is_odd))?;
    let quote = ['"', '\''].into_iter().find(|q| !text.contains(*q))?;
    Some(format!("{quote}{text}{quote}"))
}

/// Does an event of the table depend on its rows, or on their number?
fn is_about_rows(event: &Event, page: usize) -> bool {
    use KeyCode::{Char, Enter, F};
    match event {
        Event::Mouse(_) => true,
        Event::Key(key) => {
            moved(key.code, page).is_some()
                || matches!(
                    key.code,
                    Enter
                        | F(3 | 7 | 8 | 9)
                        | Char(
                            'k' | 'n'
                                | 'r'
                                | 'a'
                                | '['
                                | ']'
                                | 's'
                                | 'l'
                                | 'c'
                                | 'F'
                                | '&'
                                | '+'
                                | '-'
                        )
                )
        }
        _ => false,
    }
}

/// The first line of a window that is shown after a move, so that the last line is at its end. The
/// window has the room of the table: a page of rows and the headers, less its own two edges.
fn scrolled(top: usize, by: isize, lines: usize, page: usize) -> usize {
    top.saturating_add_signed(by).min(lines.saturating_sub(page.saturating_sub(1).max(1)))
}

/// The distance that a key moves.
fn moved(key: KeyCode, page: usize) -> Option<isize> {
    let page = page.max(1) as isize;
    Some(match key {
        KeyCode::Up => -1,
        KeyCode::Down => 1,
        KeyCode::PageUp => -page,
        KeyCode::PageDown => page,
        KeyCode::Home => isize::MIN / 2,
        KeyCode::End => isize::MAX / 2,
        _ => return None,
    })
}

mod pages;

#[cfg(test)]
mod tests;
