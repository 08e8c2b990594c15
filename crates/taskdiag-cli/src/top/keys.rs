//! The actions of keys and the mouse.

use ratatui::crossterm::event::{
    Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};
use taskdiag::EngineId;
use taskdiag::field::{self, Value};

use super::act::{self, Action, SIGNALS, Target};
use super::app::{App, Mode, Next};
use super::detail::{Detail, PAGES};
use super::list::{Kind, List};
use super::prompt::{For, Prompt, erase};
use crate::args::top::SET;
use crate::columns;
use crate::exit::Exit;

impl App {
    /// The task with the cursor. `None` if there is none, or if the row is a sum.
    fn target(&mut self) -> Option<Target> {
        // Keys that came at once with this one may have moved the cursor.
        self.see();
        let frame = self.scanner.frame()?;
        let i = *self.visible.get(self.cursor.checked_sub(self.offset)?)?;
        let row = frame.row(i as usize)?;
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
    /// Shows only the rows of the sum under the cursor.
    fn open_sum(&mut self) -> Next {
        let Some(by) = self.shape.by.clone() else { return Next::Draw };
        let value = self.shape.columns.iter().position(|c| std::ptr::eq(c.field, by.field));
        let value = value.and_then(|c| self.rows.sums.get(self.cursor)?.values.get(c));
        let (Some(value), Some(frame)) = (value, self.scanner.frame()) else { return Next::Draw };
        let condition = match value {
            Value::Missing(_) => format!("{} missing", by.name),
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
                format!("{} == {text}", by.name)
            }
        };
        let condition = match &self.filter {
            Some(before) => format!("({before}) and {condition}"),
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
    /// # Errors Those of a scan: before an event that acts on a row, the rows that earlier events
    /// requested must be read.
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
            Mode::Help(top) => *top = top.saturating_add_signed(by),
            Mode::Detail(d) => {
                d.top = d.top.saturating_add_signed(by).min(d.lines.len().saturating_sub(1))
            }
            Mode::List(list) => list.step(by),
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
                    Some(by) => self.mode = Mode::Help(top.saturating_add_signed(by)),
                    None if matches!(
                        code,
                        KeyCode::Char('q' | '?') | KeyCode::Esc | KeyCode::Enter
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
                        let done = act::act(&target, &action);
                        self.message = Some(done.unwrap_or_else(|why| why));
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
            KeyCode::Char('q') => return Next::Quit,
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.mode = Mode::Help(0),
            KeyCode::Char('/') | KeyCode::F(4) => {
                let text = self.filter.clone().unwrap_or_default();
                self.mode = Mode::Prompt(Prompt { what: For::Filter, text, wrong: None });
            }
            KeyCode::Char('u') => {
                let text = self.user.clone().unwrap_or_default();
                self.mode = Mode::Prompt(Prompt { what: For::User, text, wrong: None });
            }
            KeyCode::Char('d') => {
                self.mode =
                    Mode::Prompt(Prompt { what: For::Delay, text: String::new(), wrong: None });
            }
            KeyCode::Esc => return self.clear(),
            KeyCode::Char(digit @ '1'..='5') => {
                self.set_view(digit as usize - '1' as usize);
                return Next::Scan;
            }
            KeyCode::Char('t') | KeyCode::F(5) => {
                self.shape.tree = !self.shape.tree && self.shape.by.is_none();
                return Next::Scan;
            }
            KeyCode::Char('H') => {
                self.shape.threads = !self.shape.threads;
                if !self.own_columns {
                    self.set_columns();
                }
                return Next::Scan;
            }
            KeyCode::Char('K') => {
                self.shape.users_only = !self.shape.users_only;
                self.choose();
            }
            KeyCode::Char('b') => {
                self.next_by();
                return Next::Scan;
            }
            KeyCode::Char('r') => {
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
            KeyCode::Char('s') | KeyCode::F(6) => self.mode = Mode::List(List::columns(Kind::Sort)),
            KeyCode::Char('o') | KeyCode::F(2) => {
                self.mode = Mode::List(List::columns(Kind::Columns))
            }
            KeyCode::Char(' ') => self.paused = !self.paused,
            KeyCode::Enter | KeyCode::Char('i') if self.shape.by.is_some() => {
                return self.open_sum();
            }
            KeyCode::Enter | KeyCode::Char('i') => {
                return self.on_target(|app, t| Mode::Detail(Detail::new(t, app.args.engine)));
            }
            KeyCode::Char('k') | KeyCode::F(9) => {
                return self.on_target(|_, t| Mode::List(List::signals(t, SIGNALS)));
            }
            KeyCode::Char('n') => {
                return self.on_target(|_, t| {
                    Mode::Prompt(Prompt { what: For::Nice(t), text: String::new(), wrong: None })
                });
            }
            KeyCode::Char('a') => {
                return self.on_target(|_, t| {
                    Mode::Prompt(Prompt { what: For::Cpus(t), text: String::new(), wrong: None })
                });
            }
            _ => {}
        }
        Next::Draw
    }
    /// Show all rows again.
    fn clear(&mut self) -> Next {
        match self.condition(None, None) {
            Ok(()) => Next::Scan,
            Err(_) => Next::Draw,
        }
    }
    fn on_prompt(&mut self, mut prompt: Prompt, key: KeyCode) -> Next {
        match key {
            KeyCode::Esc => return Next::Draw,
            KeyCode::Backspace => _ = prompt.text.pop(),
            KeyCode::Char(c) if !field::is_odd(c) => prompt.text.push(c),
            // The user has not seen yet which task the question names.
            KeyCode::Enter if self.unseen && prompt.is_about_task() => {}
            KeyCode::Enter => match self.typed(&prompt) {
                Ok(next) => return next,
                Err(why) => prompt.wrong = Some(why),
            },
            _ => {}
        }
        if key != KeyCode::Enter {
            prompt.wrong = None;
        }
        self.mode = Mode::Prompt(prompt);
        Next::Draw
    }
    /// Handles a typed line. Returns the error, if there is one.
    fn typed(&mut self, prompt: &Prompt) -> Result<Next, String> {
        let text = prompt.text.trim();
        let given = (!text.is_empty()).then(|| text.to_owned());
        match &prompt.what {
            For::Filter => self.condition(given, self.user.clone())?,
            For::User => self.condition(self.filter.clone(), given)?,
            For::Delay => self.delay = crate::limits::duration(text)?,
            For::Moment => self.go(text)?,
            For::Nice(target) => {
                let value = text.parse().ok().filter(|v| (-20..=19).contains(v));
                let value = value.ok_or("a nice value is a number from -20 to 19")?;
                self.message =
                    Some(act::act(target, &Action::Nice(value)).unwrap_or_else(|why| why));
            }
            For::Cpus(target) => {
                let action = Action::Cpus(act::cpus(text)?);
                self.message = Some(act::act(target, &action).unwrap_or_else(|why| why));
            }
        }
        Ok(Next::Scan)
    }
    fn on_list(&mut self, mut list: List, key: KeyCode) -> Next {
        let mut next = Next::Draw;
        match key {
            KeyCode::Esc => return next,
            KeyCode::Enter => match (&list.kind, list.chosen()) {
                (Kind::Signals(target), Some(n)) => {
                    self.mode = Mode::Confirm(target.clone(), Action::Signal(SIGNALS[n].0));
                    self.unseen = true;
                    return next;
                }
                (Kind::Sort, Some(n)) => {
                    self.sort_by(list.fields[n]);
                    return Next::Scan;
                }
                _ => return Next::Scan,
            },
            KeyCode::Char(' ') if list.kind == Kind::Columns => {
                if let Some(n) = list.chosen() {
                    self.toggle(list.fields[n]);
                    next = Next::Scan;
                }
            }
            KeyCode::Char(c) if !matches!(list.kind, Kind::Signals(_)) => list.search(Some(c)),
            KeyCode::Backspace => list.search(None),
            key => {
                if let Some(by) = moved(key, 10) {
                    list.step(by);
                }
            }
        }
        self.mode = Mode::List(list);
        next
    }
    /// Show a column, or hide it.
    fn toggle(&mut self, field: &'static field::Field) {
        let columns = &mut self.shape.columns;
        match columns.iter().position(|c| std::ptr::eq(c.field, field)) {
            Some(_) if columns.len() == 1 => return,
            Some(at) => _ = columns.remove(at),
            None => {
                // The command is last, because it takes the rest of the line.
                let at = columns.len() - usize::from(columns.last().is_some_and(|c| c.is_left()));
                columns.splice(at..at, columns::view(SET, field.name).unwrap_or_default());
            }
        }
        self.own_columns = true;
        self.fit_pids();
        self.widths.clear();
    }
    fn on_detail(&mut self, mut detail: Detail, key: KeyCode) -> Next {
        let pages = PAGES.len();
        match key {
            KeyCode::Esc | KeyCode::Char('q') | KeyCode::Enter => return Next::Draw,
            KeyCode::Tab | KeyCode::Right => {
                detail.turn((detail.page + 1) % pages, self.args.engine)
            }
            KeyCode::BackTab | KeyCode::Left => {
                detail.turn((detail.page + pages - 1) % pages, self.args.engine);
            }
            KeyCode::Char(digit @ '1'..='6') => {
                detail.turn(digit as usize - '1' as usize, self.args.engine);
            }
            KeyCode::Char('r') => detail.load(self.args.engine),
            key => {
                if let Some(by) = moved(key, self.page) {
                    let last = detail.lines.len().saturating_sub(1);
                    detail.top = detail.top.saturating_add_signed(by).min(last);
                }
            }
        }
        self.mode = Mode::Detail(detail);
        Next::Draw
    }
}

/// A text as a value of an expression, which has no escapes. `None`: it cannot be quoted, or has
/// unprintable characters.
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
                || matches!(key.code, Enter | F(9) | Char('i' | 'k' | 'n' | 'a'))
        }
        _ => false,
    }
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

#[cfg(test)]
mod tests;
