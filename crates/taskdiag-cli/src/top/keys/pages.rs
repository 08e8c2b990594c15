//! Keys while top shows something else than the table: cgroups, a prompt, a list, or a page about a
//! task.

use ratatui::crossterm::event::KeyCode;
use taskdiag::field;

use super::moved;
use crate::args::top::SET;
use crate::columns;
use crate::top::act::{self, Action, SIGNALS};
use crate::top::app::{App, Mode, Next};
use crate::top::detail::{Detail, PAGES};
use crate::top::groups::{self, Groups};
use crate::top::list::{Kind, List};
use crate::top::prompt::{For, Prompt};

impl App {
    /// Shows the tree of cgroups in the place of the table.
    pub(super) fn open_groups(&mut self) -> Next {
        match Groups::new(self.scanner.is_replay()) {
            Ok(groups) => {
                self.mode = Mode::Groups(Box::new(groups));
                self.look_at_groups();
            }
            Err(why) => self.message = Some(why.to_string()),
        }
        Next::Draw
    }
    pub(super) fn on_groups(&mut self, mut groups: Box<Groups>, key: KeyCode) -> Next {
        let is_replay = self.scanner.is_replay();
        match key {
            KeyCode::Esc | KeyCode::Char('q' | 'G') => return Next::Draw,
            KeyCode::Enter => return self.open_group(groups),
            KeyCode::Char('P') => groups.sort_by(Some("cpu_now")),
            KeyCode::Char('M') => groups.sort_by(Some("memory")),
            KeyCode::Char('N') => groups.sort_by(None),
            KeyCode::Char('Z') => self.paused = !self.paused,
            KeyCode::Char('[' | ']' | '{' | '}' | ' ') if is_replay => {
                let next = self.on_replay(key);
                self.mode = Mode::Groups(groups);
                return next.unwrap_or(Next::Draw);
            }
            KeyCode::Char(' ') => {
                self.mode = Mode::Groups(groups);
                return Next::Scan;
            }
            key => {
                if let Some(by) = moved(key, self.page) {
                    groups.step(by, self.page);
                }
                self.mode = Mode::Groups(groups);
                return Next::Draw;
            }
        }
        self.mode = Mode::Groups(groups);
        self.look_at_groups();
        Next::Draw
    }
    /// Shows the tasks in the cgroup under the cursor and below it, within the conditions.
    fn open_group(&mut self, groups: Box<Groups>) -> Next {
        let Some(row) = groups.chosen() else { return Next::Draw };
        let wrong = match groups::condition(row) {
            Ok(None) => return Next::Draw,
            Err(why) => Some(why.to_owned()),
            Ok(Some(condition)) => {
                let condition = match &self.filter {
                    Some(before) => format!("({before}) and {condition}"),
                    None => condition,
                };
                let user = self.user.clone();
                self.condition(Some(condition), user).err()
            }
        };
        match wrong {
            None => Next::Scan,
            Some(why) => {
                self.message = why.lines().next().map(str::to_owned);
                self.mode = Mode::Groups(groups);
                Next::Draw
            }
        }
    }
    pub(super) fn on_prompt(&mut self, mut prompt: Prompt, key: KeyCode) -> Next {
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
            For::Search => {
                self.search = given;
                if self.search.is_some() {
                    self.find_next(false);
                }
                return Ok(Next::Draw);
            }
            For::Filter => self.condition(given, self.user.clone())?,
            For::User => self.condition(self.filter.clone(), given)?,
            For::Delay => self.delay = crate::limits::duration(text)?,
            For::Moment => self.go(text)?,
            For::Nice(target) => {
                let value = text.parse().ok().filter(|v| (-20..=19).contains(v));
                let value = value.ok_or("a nice value is a number from -20 to 19")?;
                self.message = Some(self.act(target, &Action::Nice(value)));
            }
            For::Cpus(target) => {
                let action = Action::Cpus(act::cpus(text)?);
                self.message = Some(self.act(target, &action));
            }
        }
        Ok(Next::Scan)
    }
    pub(super) fn on_list(&mut self, mut list: List, key: KeyCode) -> Next {
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
    pub(super) fn on_detail(&mut self, mut detail: Detail, key: KeyCode) -> Next {
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
