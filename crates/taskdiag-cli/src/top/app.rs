//! The state of the screen. `keys` changes it, and `draw` draws it.

use std::collections::HashSet;
use std::ops::Range;
use std::time::{Duration, Instant};

use taskdiag::field;
use taskdiag::view::Filter;

use super::act::{Action, Target};
use super::detail::Detail;
use super::groups::Groups;
use super::list::List;
use super::machine::Machine;
use super::prompt::Prompt;
use super::rows::Rows;
use super::scan::{Details, Id, Scanner, Shape};
use super::settings::{self, Settings};
use super::views::{self, BYS, COMMANDS, VIEWS};
use crate::answer::pid_max;
use crate::args::top::{DELAY, SET, TopArgs};
use crate::columns;
use crate::exit::Exit;
use crate::forest;
use crate::order::Key;
use crate::output::terminal;
use crate::units::Units;

/// The rows on which the keys currently act.
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
    /// The details of one task.
    Detail(Detail),
    /// The tree of cgroups.
    Groups(Box<Groups>),
}

/// Go on, or end?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Draw again.
    Draw,
    /// Refresh, then draw.
    Scan,
    /// Stop as by Ctrl-Z.
    Suspend,
    /// End.
    Quit,
}

/// The state of the program.
#[derive(Debug)]
pub struct App {
    /// The arguments.
    pub(super) args: TopArgs,
    /// Makes the requests.
    pub scanner: Scanner,
    /// The rows.
    pub rows: Rows,
    /// What is shown.
    pub shape: Shape,
    /// The number of the view.
    pub(super) view: usize,
    /// Were the columns or sort keys changed by hand?
    pub(super) own_columns: bool,
    /// The condition, as text.
    pub filter: Option<String>,
    /// The user.
    pub user: Option<String>,
    /// The machine at the last answer.
    pub machine: Machine,
    /// The machine at the previous answer.
    pub before: Machine,
    /// The row with the cursor.
    pub cursor: usize,
    /// The first row on the screen.
    pub offset: usize,
    /// The tasks on the screen.
    pub visible: Vec<u32>,
    /// Has a key requested other rows than those of the last answer?
    pub stale: bool,
    /// Has the open question about a task not been on the screen yet?
    pub unseen: bool,
    /// The details of the visible rows, from a separate request.
    pub details: Details,
    /// The rows on which the keys act.
    pub mode: Mode,
    /// A message about the last action.
    pub message: Option<String>,
    /// Is it paused, so that there are no new requests?
    pub paused: bool,
    /// The requested interval.
    pub(super) delay: Duration,
    /// The text of the search.
    pub search: Option<String>,
    /// The task that the cursor follows.
    pub follow: Option<Id>,
    /// The tasks that were marked, on which actions act together.
    pub marks: Vec<Target>,
    /// The column with the command: arguments, name or program.
    pub(super) command: &'static str,
    /// Is there a meter for each CPU? `None`: if there is room.
    pub per_cpu: Option<bool>,
    /// Meters as bars? If not, as numbers.
    pub bars: bool,
    /// Sizes in the lines above the table.
    pub summary_units: Units,
    /// Is the column that rows are sorted by marked?
    pub marks_order: bool,
    /// Are tasks that run marked?
    pub marks_running: bool,
    /// Cells in a line of the screen, and lines.
    pub width: u16,
    pub height: u16,
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
        // Printed output must not depend on settings that were saved for the screen.
        let (saved, wrong) = match args.once {
            true => (Settings::default(), None),
            false => settings::read(),
        };
        let number = saved.view.unwrap_or(0);
        let view = &VIEWS[number];
        let is_plain = args.columns.is_empty() && args.by.is_none();
        let by = args.by.clone().or(saved.by.filter(|_| args.columns.is_empty()));
        let own = if is_plain { saved.columns } else { None };
        let own_columns = !args.columns.is_empty() || own.is_some();
        let shape = Shape {
            columns: match (&by, args.columns.is_empty()) {
                (_, false) => args.columns.clone(),
                (None, true) => own.unwrap_or_else(|| view.columns(args.threads)),
                (Some(by), true) => own.unwrap_or_else(|| views::sums(by)),
            },
            sort: match (args.sort.is_empty(), saved.sort) {
                (false, _) => args.sort.clone(),
                (true, Some(sort)) if is_plain => sort,
                _ => view.sort(),
            },
            filter: None,
            threads: args.threads || saved.threads,
            tree: (args.tree || saved.tree) && by.is_none(),
            by,
            users_only: saved.users_only,
            busy_only: args.busy || saved.busy_only,
            subtrees: saved.subtrees,
            folded: HashSet::new(),
            everything: args.once,
        };
        let mut app = App {
            args: args.clone(),
            scanner: Scanner::new(args.engine),
            rows: Rows::default(),
            shape,
            view: number,
            own_columns,
            filter: args.filter.as_ref().map(ToString::to_string),
            user: args.user.clone(),
            machine: Machine::default(),
            before: Machine::default(),
            cursor: 0,
            offset: 0,
            visible: Vec::new(),
            stale: false,
            unseen: false,
            details: Details::default(),
            mode: Mode::Table,
            message: wrong,
            paused: false,
            delay: args.delay.or(saved.delay).unwrap_or(DELAY),
            search: None,
            follow: None,
            marks: Vec::new(),
            command: "args",
            per_cpu: if args.per_cpu { Some(true) } else { saved.per_cpu },
            bars: !args.once && saved.bars.unwrap_or(true),
            summary_units: args.units,
            marks_order: false,
            marks_running: true,
            width: 80,
            height: 24,
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
        if args.arguments {
            app.set_command("args");
        } else if let Some(command) = saved.command.filter(|_| !app.own_columns) {
            app.set_command(command);
        }
        app.fit_pids();
        app.condition(app.filter.clone(), app.user.clone()).map_err(Exit::Usage)?;
        Ok(app)
    }
    /// The settings that the key `W` saves.
    pub(super) fn settings(&self) -> Settings {
        let shape = &self.shape;
        Settings {
            view: Some(self.view),
            columns: self.own_columns.then(|| shape.columns.clone()),
            sort: Some(shape.sort.clone()),
            by: shape.by.clone(),
            command: (!self.own_columns).then_some(self.command),
            delay: Some(self.delay),
            threads: shape.threads,
            tree: shape.tree,
            subtrees: shape.subtrees,
            users_only: shape.users_only,
            busy_only: shape.busy_only,
            bars: Some(self.bars),
            per_cpu: self.per_cpu,
        }
    }
    /// The name of the view.
    pub fn view_name(&self) -> &'static str {
        if self.own_columns { "own" } else { VIEWS[self.view].name }
    }
    /// The interval in use, which keeps scans within their share of the time.
    pub fn interval(&self) -> Duration {
        if self.args.once && !self.args.batch {
            return self.delay;
        }
        self.delay.max(self.scanner.took.mul_f64(100.0 / self.args.share.max(1.0)).min(LONGEST))
    }
    /// Is it longer than the requested interval?
    pub fn is_slowed(&self) -> bool {
        self.interval() > self.delay
    }
    /// May colours be used?
    pub fn color(&self) -> bool {
        self.args.color
    }
    /// Ask again.
    pub fn scan(&mut self) -> Result<(), Exit> {
        self.stale = false;
        match self.scanner.scan(&self.shape) {
            // A damaged frame is not a reason to end if another one is on the screen.
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
        self.look_at_groups();
        Ok(())
    }
    /// Reads the cgroups again, if they are shown. Their time counts as a part of the scan.
    pub(super) fn look_at_groups(&mut self) {
        let Mode::Groups(groups) = &mut self.mode else { return };
        let frames = self.scanner.frames();
        groups.refresh(frames, self.args.units, self.lines);
        groups.scroll(self.page);
        self.scanner.took += groups.took;
    }
    /// Choose the rows again, without a request.
    pub(super) fn choose(&mut self) {
        if let Some(frame) = self.scanner.frame() {
            self.rows.choose(&frame, &self.shape, self.lines);
        }
        self.move_to(self.cursor);
        self.keep_up();
    }
    /// Look up which tasks are on the screen when it is drawn next.
    pub fn see(&mut self) {
        let Some(frame) = self.scanner.frame() else { return };
        let rows = self.offset..self.offset.saturating_add(self.page);
        self.visible = self.rows.window(&frame, &self.shape, rows);
    }
    /// Request the details that rows on the screen lack.
    pub fn look(&mut self) {
        self.see();
        self.scanner.look(&self.shape, &self.visible, &mut self.details);
    }
    /// Moves the cursor to a row, and scrolls to it.
    pub fn move_to(&mut self, row: usize) {
        self.cursor = row.min(self.rows.len().saturating_sub(1));
        let first = (self.cursor + 1).saturating_sub(self.page);
        self.offset = self.offset.clamp(first, self.cursor);
        // Leave no empty lines below the last row if there are rows above the first visible one.
        self.offset = self.offset.min(self.rows.len().saturating_sub(self.page));
    }
    pub(super) fn step(&mut self, by: isize) {
        self.follow = None;
        self.move_to(self.cursor.saturating_add_signed(by));
    }
    pub(super) fn fit_pids(&mut self) {
        let limit = pid_max().unwrap_or(32768);
        columns::fit_pids(&mut self.shape.columns, limit.saturating_sub(1));
    }
    /// Shows rows that match both conditions. Returns the error, if there is one.
    pub(super) fn condition(
        &mut self,
        filter: Option<String>,
        user: Option<String>,
    ) -> Result<(), String> {
        let parse = |text: &str| {
            Filter::parse(SET, text).map_err(|e| {
                let [what, below @ ..] = e.lines();
                below.iter().fold(what, |all, line| format!("{all}\n{line}"))
            })
        };
        // A single word that is not an expression searches names and arguments, as in less and
        // htop.
        let own = self.own_pid();
        let parse_filter = |text: &str| match Filter::parse(SET, text) {
            Err(_) => Filter::word(SET, text.trim())
                .and_then(|filter| filter.without(SET, own.as_slice()))
                .or_else(|_| parse(text)),
            Ok(filter) => Ok(filter),
        };
        let mut all = filter.as_deref().map(parse_filter).transpose()?;
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
    pub(super) fn set_columns(&mut self) {
        self.shape.columns = match &self.shape.by {
            Some(by) => views::sums(by),
            None => VIEWS[self.view].columns(self.shape.threads),
        };
        self.own_columns = false;
        self.set_command(self.command);
        self.fit_pids();
        self.widths.clear();
    }
    /// Shows the arguments, the name or the program in the column of the command.
    pub(super) fn set_command(&mut self, name: &'static str) {
        self.command = name;
        let shown = self.shape.columns.iter().position(|c| COMMANDS.contains(&c.field.name));
        let Some(at) = shown.filter(|_| self.shape.by.is_none()) else { return };
        if let Some(column) = columns::view(SET, name).ok().and_then(|mut all| all.pop()) {
            self.shape.columns[at] = column;
            self.widths.clear();
        }
    }
    /// The next form of the command.
    pub(super) fn next_command(&mut self) {
        let now = COMMANDS.iter().position(|name| *name == self.command).unwrap_or(0);
        self.set_command(COMMANDS[(now + 1) % COMMANDS.len()]);
    }
    /// Sorts by a column of this name, the largest value first.
    pub(super) fn sort_by_name(&mut self, name: &str) {
        if let Some(key) = Key::parse(SET, &format!("-{name}")) {
            self.shape.sort = vec![key];
        }
    }
    pub(super) fn set_view(&mut self, view: usize) {
        (self.view, self.shape.by) = (view, None);
        self.shape.sort = VIEWS[view].sort();
        self.set_columns();
    }
    /// Switches to the next column to add up by, or to none after the last.
    pub(super) fn next_by(&mut self) {
        let now = self.shape.by.as_ref().and_then(|by| BYS.iter().position(|b| *b == by.name));
        let next = now.map_or(0, |n| n + 1);
        self.shape.by = BYS.get(next).and_then(|name| columns::by(SET, name).ok()?);
        self.shape.tree = false;
        if !self.shape.sort.iter().all(|k| k.field.adds_up()) {
            self.shape.sort = VIEWS[0].sort();
        }
        self.set_columns();
    }
    pub(super) fn sort_by(&mut self, field: &'static field::Field) {
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
    pub(super) fn sort_beside(&mut self, step: isize) {
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
}

/// The longest interval, even if scans take longer.
const LONGEST: Duration = Duration::from_secs(60);

/// The time at which the next answer is due, after a request at this moment.
pub fn due(app: &App, asked: Instant) -> Instant {
    // The second answer follows the first one soon, because rates need two.
    let first = Duration::from_millis(300).min(app.interval());
    // If the clock cannot express the time, it is never.
    let next = if app.scanner.scans < 2 { first } else { app.interval().min(NEVER) };
    asked + next
}

/// A century.
const NEVER: Duration = Duration::from_secs(100 * 365 * 86_400);
