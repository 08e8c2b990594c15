//! What is on the screen, and what keys and the mouse do to it. It draws nothing.

use std::ops::Range;
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{
    Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};
use taskdiag::field::{self, Value};
use taskdiag::view::Filter;

use super::act::{self, Action, SIGNALS, Target};
use super::detail::{Detail, PAGES};
use super::list::{Kind, List};
use super::machine::Machine;
use super::prompt::{For, Prompt};
use super::rows::Rows;
use super::scan::{Details, Scanner, Shape};
use super::views::{self, BYS, VIEWS};
use crate::args::top::{SET, TopArgs};
use crate::columns;
use crate::exit::Exit;
use crate::forest;
use crate::order::Key;
use crate::output::terminal;

/// What the keys are for at the moment.
#[derive(Debug)]
pub enum Mode {
    /// The table.
    Table,
    /// The list of keys; its first line that is shown.
    Help(usize),
    /// A line of text is typed.
    Prompt(Prompt),
    /// Something is chosen from a list.
    List(List),
    /// Yes or no?
    Confirm(Target, Action),
    /// All about one task.
    Detail(Detail),
}

/// Go on, or end?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Draw again.
    Draw,
    /// Ask again at once, then draw.
    Scan,
    /// Stop as by Ctrl-Z.
    Suspend,
    /// End.
    Quit,
}

/// The state of the program.
#[derive(Debug)]
pub struct App {
    args: TopArgs,
    /// Makes the requests.
    pub scanner: Scanner,
    /// The rows.
    pub rows: Rows,
    /// What is shown.
    pub shape: Shape,
    view: usize,
    /// Were the columns or sort keys changed by hand?
    own_columns: bool,
    /// The condition, as text.
    pub filter: Option<String>,
    /// The user.
    pub user: Option<String>,
    /// The machine at the last answer.
    pub machine: Machine,
    /// The machine at the answer before.
    pub before: Machine,
    /// The row with the cursor.
    pub cursor: usize,
    /// The first row on the screen.
    pub offset: usize,
    /// The tasks on the screen.
    pub visible: Vec<u32>,
    /// Their details, from a request of their own.
    pub details: Details,
    /// What the keys are for.
    pub mode: Mode,
    /// A message about what was done last.
    pub message: Option<String>,
    /// Is it paused, so that there are no new requests?
    pub paused: bool,
    delay: Duration,
    /// Cells in a line of the screen.
    pub width: u16,
    /// Rows of the table on the screen.
    pub page: usize,
    /// Widths of columns, which only grow, so that the table does not jump.
    pub widths: Vec<usize>,
    /// Where the headers are on the screen: the line, and the cells of each column.
    pub headers: (u16, Vec<(Range<u16>, usize)>),
    lines: forest::Style,
}

impl App {
    /// From the arguments. There is no request yet.
    pub fn new(args: &TopArgs) -> Result<App, Exit> {
        let view = &VIEWS[0];
        let shape = Shape {
            columns: match (&args.by, args.columns.is_empty()) {
                (_, false) => args.columns.clone(),
                (Some(by), true) => views::sums(by),
                (None, true) => view.columns(args.threads),
            },
            sort: if args.sort.is_empty() { view.sort() } else { args.sort.clone() },
            filter: None,
            by: args.by.clone(),
            threads: args.threads,
            tree: args.tree,
            users_only: false,
            everything: args.once,
        };
        let mut app = App {
            args: args.clone(),
            scanner: Scanner::new(args.engine),
            rows: Rows::default(),
            shape,
            view: 0,
            own_columns: !args.columns.is_empty(),
            filter: args.filter.as_ref().map(ToString::to_string),
            user: args.user.clone(),
            machine: Machine::default(),
            before: Machine::default(),
            cursor: 0,
            offset: 0,
            visible: Vec::new(),
            details: Details::default(),
            mode: Mode::Table,
            message: None,
            paused: false,
            delay: args.delay,
            width: 80,
            page: 1,
            widths: Vec::new(),
            headers: (0, Vec::new()),
            lines: if terminal::is_utf8() { forest::LINES } else { forest::PLAIN },
        };
        #[cfg(feature = "record")]
        if let Some(dir) = &args.replay {
            app.scanner.replay = Some(super::replay::Replay::open(dir, args.at)?);
            app.paused = true;
        }
        app.fit_pids();
        app.condition(app.filter.clone(), app.user.clone()).map_err(Exit::Usage)?;
        Ok(app)
    }
    /// The name of the view.
    pub fn view_name(&self) -> &'static str {
        if self.own_columns { "own" } else { VIEWS[self.view].name }
    }
    /// Time between two answers. A scan takes no more than its share of it.
    pub fn interval(&self) -> Duration {
        if self.args.once {
            return self.delay;
        }
        self.delay.max(self.scanner.took.mul_f64(100.0 / self.args.share.max(1.0)).min(LONGEST))
    }
    /// Is that longer than the delay that was asked for?
    pub fn is_slowed(&self) -> bool {
        self.interval() > self.delay
    }
    /// May colours be used?
    pub fn color(&self) -> bool {
        self.args.color
    }
    /// Ask again.
    pub fn scan(&mut self) -> Result<(), Exit> {
        match self.scanner.scan(&self.shape) {
            // A frame that is damaged is no reason to end, as long as there is another on the screen.
            Err(Exit::Failed(why)) if self.scanner.is_replay() && self.scanner.scans > 0 => {
                (self.message, self.paused) = (Some(why), true);
                return Ok(());
            }
            other => other?,
        }
        let machine = match self.scanner.frame().filter(|_| self.scanner.is_replay()) {
            None => Machine::read(),
            Some(frame) => {
                let threads = frame.snapshot.stream().strategy().is_threads();
                let machine = Machine::recorded(frame.snapshot.stream().info());
                if threads != self.shape.threads {
                    self.shape.threads = threads;
                    if !self.own_columns {
                        self.set_columns();
                    }
                }
                machine
            }
        };
        if self.args.threads && !self.shape.threads && self.scanner.is_replay() {
            return Err(crate::saved::no_threads());
        }
        self.before = std::mem::replace(&mut self.machine, machine);
        self.choose();
        Ok(())
    }
    /// Choose the rows again, without a request.
    fn choose(&mut self) {
        if let Some(frame) = self.scanner.frame() {
            self.rows.choose(&frame, &self.shape, self.lines);
        }
        self.move_to(self.cursor);
    }
    /// Request the details that rows on the screen lack.
    pub fn look(&mut self) {
        let Some(frame) = self.scanner.frame() else { return };
        self.visible = self.rows.window(&frame, &self.shape, self.offset..self.offset + self.page);
        self.scanner.look(&self.shape, &self.visible, &mut self.details);
    }
    /// Put the cursor on a row, and that row on the screen.
    pub fn move_to(&mut self, row: usize) {
        self.cursor = row.min(self.rows.len().saturating_sub(1));
        let first = (self.cursor + 1).saturating_sub(self.page);
        self.offset = self.offset.clamp(first, self.cursor);
        // No empty lines below the last row where there are rows above the first.
        self.offset = self.offset.min(self.rows.len().saturating_sub(self.page));
    }
    fn step(&mut self, by: isize) {
        self.move_to(self.cursor.saturating_add_signed(by));
    }
    fn fit_pids(&mut self) {
        let limit = std::fs::read_to_string("/proc/sys/kernel/pid_max");
        let limit = limit.ok().and_then(|t| t.trim().parse::<u32>().ok()).unwrap_or(32768);
        columns::fit_pids(&mut self.shape.columns, limit.saturating_sub(1));
    }
    /// Show rows that match both; what is wrong, if something is.
    fn condition(&mut self, filter: Option<String>, user: Option<String>) -> Result<(), String> {
        let parse = |text: &str| {
            Filter::parse(SET, text).map_err(|e| {
                let [what, below @ ..] = e.lines();
                below.iter().fold(what, |all, line| format!("{all}\n{line}"))
            })
        };
        let mut all = filter.as_deref().map(parse).transpose()?;
        if let Some(user) = &user {
            let id = crate::args::lists::uid("user", user)
                .map_err(|_| format!("there is no user '{user}'"))?;
            let one = parse(&format!("uid == {id}"))?;
            all = Some(match all {
                Some(before) => before.and(one),
                None => one,
            });
        }
        (self.shape.filter, self.filter, self.user) = (all, filter, user);
        Ok(())
    }
    fn set_columns(&mut self) {
        self.shape.columns = match &self.shape.by {
            Some(by) => views::sums(by),
            None => VIEWS[self.view].columns(self.shape.threads),
        };
        self.own_columns = false;
        self.fit_pids();
        self.widths.clear();
    }
    fn set_view(&mut self, view: usize) {
        (self.view, self.shape.by) = (view, None);
        self.shape.sort = VIEWS[view].sort();
        self.set_columns();
    }
    /// The next column to add up by, or none after the last.
    fn next_by(&mut self) {
        let now = self.shape.by.as_ref().and_then(|by| BYS.iter().position(|b| *b == by.name));
        let next = now.map_or(0, |n| n + 1);
        self.shape.by = BYS.get(next).and_then(|name| columns::view(SET, name).ok()?.pop());
        self.shape.tree = false;
        if !self.shape.sort.iter().all(|k| k.field.adds_up()) {
            self.shape.sort = VIEWS[0].sort();
        }
        self.set_columns();
    }
    fn sort_by(&mut self, field: &'static field::Field) {
        use field::DataType::{Text, TextList, U32List};
        let is_text = matches!(field.data_type(), Text | TextList | U32List);
        let was = self.shape.sort.first().filter(|k| std::ptr::eq(k.field, field));
        let descending = was.map_or(!is_text && field.name != "pid", |k| !k.descending);
        let name = if descending { format!("-{}", field.name) } else { field.name.to_owned() };
        if let Some(key) = Key::parse(SET, &name) {
            self.shape.sort = vec![key];
        }
    }
    /// The neighbour of the column that rows are sorted by.
    fn sort_beside(&mut self, step: isize) {
        let fields: Vec<_> = self.shape.columns.iter().map(|c| c.field).collect();
        let now = self
            .shape
            .sort
            .first()
            .and_then(|k| fields.iter().position(|f| std::ptr::eq(*f, k.field)));
        let next = now.map_or(0, |n| n.saturating_add_signed(step).min(fields.len() - 1));
        if now != Some(next) {
            self.sort_by(fields[next]);
        }
    }
    /// The task with the cursor. `None` if there is none, or if the row is a sum.
    fn target(&self) -> Option<Target> {
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
        })
    }
    /// Do something with the task under the cursor.
    fn on_target(&mut self, f: impl FnOnce(&mut App, Target) -> Mode) -> Next {
        match self.target() {
            Some(target) => self.mode = f(self, target),
            None => self.message = Some(String::from("There is no single task here.")),
        }
        Next::Draw
    }
    /// Show only what is in the sum under the cursor.
    fn open_sum(&mut self) -> Next {
        let Some(by) = self.shape.by.clone() else { return Next::Draw };
        let value = self.shape.columns.iter().position(|c| std::ptr::eq(c.field, by.field));
        let value = value.and_then(|c| self.rows.sums.get(self.cursor)?.values.get(c));
        let (Some(value), Some(frame)) = (value, self.scanner.frame()) else { return Next::Draw };
        let condition = match value {
            Value::Missing(_) => format!("{} missing", by.name),
            value => {
                let mut text = Vec::new();
                field::text(&mut text, frame.cx, by.form, None, value);
                let text =
                    String::from_utf8_lossy(&text).replace('\\', "\\\\").replace('"', "\\\"");
                format!("{} == \"{text}\"", by.name)
            }
        };
        match self.condition(Some(condition), self.user.clone()) {
            Ok(()) => self.set_view(self.view),
            Err(why) => self.message = Some(why.lines().next().unwrap_or_default().to_owned()),
        }
        Next::Scan
    }
    /// An event of the terminal.
    pub fn on(&mut self, event: &Event) -> Next {
        match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => self.on_key(*key),
            Event::Mouse(mouse) => self.on_mouse(*mouse),
            _ => Next::Draw,
        }
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
            if let Some(c) = column {
                self.sort_by(self.shape.columns[c].field);
                return Next::Scan;
            }
        } else if y > *line && usize::from(y - line) <= self.page {
            self.move_to(self.offset + usize::from(y - line - 1));
        }
        Next::Draw
    }
    fn on_key(&mut self, key: KeyEvent) -> Next {
        self.message = None;
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            match key.code {
                KeyCode::Char('c') => return Next::Quit,
                KeyCode::Char('z') => return Next::Suspend,
                _ => {}
            }
        }
        match std::mem::replace(&mut self.mode, Mode::Table) {
            Mode::Table => self.on_table(key.code),
            Mode::Help(top) => {
                match moved(key.code, self.page) {
                    Some(by) => self.mode = Mode::Help(top.saturating_add_signed(by)),
                    None if matches!(
                        key.code,
                        KeyCode::Char('q' | '?') | KeyCode::Esc | KeyCode::Enter
                    ) => {}
                    None => self.mode = Mode::Help(top),
                }
                Next::Draw
            }
            Mode::Prompt(prompt) => self.on_prompt(prompt, key.code),
            Mode::List(list) => self.on_list(list, key.code),
            Mode::Confirm(target, action) => {
                match key.code {
                    KeyCode::Char('y' | 'Y') => {
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
            Mode::Detail(detail) => self.on_detail(detail, key.code),
        }
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
    /// A line was typed: what is wrong with it, if something is.
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

/// The longest delay, however long a scan takes.
const LONGEST: Duration = Duration::from_secs(60);

/// How far a key moves.
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

/// When the next answer is due, after one that was asked for at this moment.
pub fn due(app: &App, asked: Instant) -> Instant {
    // The first two follow each other soon, because there are no rates before the second.
    let first = Duration::from_millis(300).min(app.interval());
    asked + if app.scanner.scans < 2 { first } else { app.interval() }
}
