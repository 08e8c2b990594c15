//! The details of one task as lines of text: values, files, mappings, stacks, limits and
//! environment.

use std::time::Duration;

use taskdiag::field::{self, Context, FILES, Field, MAPS, Row, Set, TASKS, Value};
use taskdiag::view::{Item, Plan, Query};
use taskdiag::{Choice, Groups, Request, Snapshot, TaskId};

use super::act::Target;

/// A page of the pane.
#[derive(Debug)]
pub struct Page {
    /// Its name.
    pub name: &'static str,
    /// The group that only this page shows.
    group: Groups,
}

const fn page(name: &'static str, group: Groups) -> Page {
    Page { name, group }
}

/// The pages, in the order of the keys.
pub const PAGES: &[Page] = &[
    page("values", Groups::NONE),
    page("files", Groups::FD),
    page("maps", Groups::VMA),
    page("stack", Groups::KSTACK),
    page("limits", Groups::LIMITS),
    page("environment", Groups::ENVIRON),
];

/// Is the column on the first page? Details of other pages, and details that may take long, are not
/// requested.
fn is_on_first_page(field: &Field) -> bool {
    let of_others = PAGES.iter().fold(Groups::SLOW, |all, page| all | page.group);
    !field.groups.intersects(of_others)
}

/// The pane.
#[derive(Debug)]
pub struct Detail {
    /// The task.
    pub target: Target,
    /// Which of [`PAGES`].
    pub page: usize,
    /// The text.
    pub lines: Vec<String>,
    /// The first line that is shown.
    pub top: usize,
}

impl Detail {
    /// One of [`PAGES`].
    pub fn new(target: Target, page: usize, choice: Choice) -> Detail {
        let mut detail = Detail { target, page, lines: Vec::new(), top: 0 };
        detail.load(choice);
        detail
    }
    /// Another page.
    pub fn turn(&mut self, page: usize, choice: Choice) {
        (self.page, self.top) = (page, 0);
        self.load(choice);
    }
    /// Read the page again.
    pub fn load(&mut self, choice: Choice) {
        self.lines = match self.read(choice) {
            Ok(lines) if lines.is_empty() => vec![String::from("There are none.")],
            Ok(lines) => lines,
            Err(why) => vec![why],
        };
        self.top = self.top.min(self.lines.len().saturating_sub(1));
    }
    fn read(&self, choice: Choice) -> Result<Vec<String>, String> {
        match PAGES[self.page].name {
            "files" => self.list(&FILES, &["fd", "access", "type", "size_off", "name"], choice),
            "maps" => self.list(&MAPS, &["address", "size", "perms", "mapping"], choice),
            "stack" => self.stacks(choice),
            "limits" => self.values(choice, |f| f.groups.intersects(Groups::LIMITS)),
            "environment" => self.environment(choice),
            _ => self.values(choice, is_on_first_page),
        }
    }
    fn ask(&self, request: &Request, choice: Choice) -> Result<Snapshot, String> {
        let request = request.clone().with_budget(Duration::from_millis(500));
        let answer = taskdiag::query_with(&request, choice).map_err(|e| e.to_string())?;
        self.check(&answer)?;
        Ok(answer)
    }
    /// Is the answer about this process, and not about a later one with the same id?
    fn check(&self, answer: &Snapshot) -> Result<(), String> {
        let id = self.target.tid.unwrap_or(self.target.pid);
        // A list of files has threads under their process.
        let task = answer.task(id).or_else(|| answer.task(self.target.pid));
        let is_it = task.and_then(|t| TaskId::of(&t)).is_some_and(|its| {
            // A process began before its threads.
            its.is_no_younger(&TaskId::new(its.pid(), self.target.start_ns, its.tick()))
        });
        if is_it { Ok(()) } else { Err(format!("{} has ended", self.target)) }
    }
    /// A line for each column.
    fn values(
        &self,
        choice: Choice,
        which: impl Fn(&Field) -> bool,
    ) -> Result<Vec<String>, String> {
        let fields: Vec<&'static Field> = TASKS.own().filter(|f| which(f)).collect();
        let groups = field::groups_of(fields.iter().copied()) | Groups::BASE;
        let answer = self.ask(&self.request(groups), choice)?;
        let cx = Context::of(&answer, self.target.tid.is_some());
        let Some(row) = self.row(&answer) else { return Err(format!("{} has ended", self.target)) };
        let line = |f: &&'static Field| {
            let value = (f.get)(&cx, &row);
            let mut text = Vec::new();
            match value {
                // `?` as in ps would say here that it is not known.
                Value::Tty(0) => text.push(b'-'),
                value => field::text(&mut text, &cx, f.text, Some(&row), &value),
            }
            let text = String::from_utf8_lossy(&text).trim().to_owned();
            format!("{:<16} {text:<24} {}", f.name, f.help)
        };
        Ok(fields.iter().map(line).collect())
    }
    fn request(&self, groups: Groups) -> Request {
        match self.target.tid {
            Some(_) => Request::threads(self.target.pid, groups),
            None => Request::one(self.target.pid, groups),
        }
    }
    fn row<'a>(&self, answer: &'a Snapshot) -> Option<Row<'a>> {
        answer.task(self.target.tid.unwrap_or(self.target.pid)).map(Row::new)
    }
    /// A line for each entry of a list.
    fn list(
        &self,
        set: &'static Set,
        names: &[&str],
        choice: Choice,
    ) -> Result<Vec<String>, String> {
        let field = |name: &&str| set.find(name).expect("a column of the table").field;
        let mut query = Query::new(set, names.iter().map(field));
        query.select.pids = vec![self.target.pid];
        query.groups |= Groups::BASE;
        query.members = taskdiag::Members::ALL;
        let mut plan = query.plan();
        plan.requests(|r| r.budget = Some(Duration::from_millis(500)));
        let answer = match &plan {
            Plan::One(request) => self.ask(request, choice)?,
            plan => plan.ask(choice).map_err(|e| e.to_string())?.snapshot,
        };
        let view = query.view(&answer);
        let mut rows: Vec<Vec<String>> = Vec::new();
        let each = view.rows(true, &mut |_, _, _| {}).each(&mut |item: Item<'_, '_>| {
            let cells = query.columns.iter().enumerate().map(|(c, field)| {
                let mut text = Vec::new();
                let value = item.value(view.cx(), field, c);
                field::text(&mut text, view.cx(), field.text, item.row(), &value);
                String::from_utf8_lossy(&text).into_owned()
            });
            rows.push(cells.collect());
            Ok(())
        });
        each.map_err(|e| e.to_string())?;
        Ok(in_columns(&query, &rows))
    }
    fn stacks(&self, choice: Choice) -> Result<Vec<String>, String> {
        let groups = Groups::BASE | Groups::WCHAN | Groups::KSTACK;
        let answer = self.ask(&Request::threads(self.target.pid, groups), choice)?;
        let cx = Context::of(&answer, true);
        let mut lines = Vec::new();
        for task in answer.tasks().filter(|t| self.target.tid.is_none_or(|tid| tid == t.pid())) {
            let row = Row::new(task);
            let cell = |name: &str| {
                let mut out = Vec::new();
                let f = TASKS.find(name).expect("a column of the table").field;
                match (f.get)(&cx, &row) {
                    // A value of several lines takes several lines.
                    Value::Bytes { data, .. } => data.into_owned(),
                    other => {
                        field::text(&mut out, &cx, f.text, Some(&row), &other);
                        out
                    }
                }
            };
            let safe = |bytes: &[u8]| {
                let mut out = Vec::new();
                field::escape(&mut out, bytes);
                String::from_utf8_lossy(&out).into_owned()
            };
            let (comm, wchan) = (safe(row.comm.unwrap_or(b"?")), safe(&cell("wchan")));
            let state = char::from(row.state().unwrap_or(b'?'));
            lines.push(format!("thread {} ({comm}), state {state}, sleeps in {wchan}", task.pid()));
            let stack = cell("kstack");
            lines.extend(
                stack
                    .split(|b| *b == b'\n')
                    .filter(|l| !l.is_empty())
                    .map(|l| format!("    {}", safe(l))),
            );
        }
        Ok(lines)
    }
    fn environment(&self, choice: Choice) -> Result<Vec<String>, String> {
        let answer =
            self.ask(&Request::one(self.target.pid, Groups::BASE | Groups::ENVIRON), choice)?;
        let cx = Context::of(&answer, false);
        let field = TASKS.find("environ").expect("a column of the table").field;
        let Some(row) = answer.task(self.target.pid).map(Row::new) else {
            return Err(format!("{} has ended", self.target));
        };
        match (field.get)(&cx, &row) {
            Value::Args { data, .. } => {
                let line = |variable: &[u8]| {
                    let mut out = Vec::new();
                    field::escape(&mut out, variable);
                    String::from_utf8_lossy(&out).into_owned()
                };
                Ok(data.split(|b| *b == 0).filter(|v| !v.is_empty()).map(line).collect())
            }
            Value::Missing(why) => Err(format!("? ({})", why.name())),
            _ => Ok(Vec::new()),
        }
    }
}

/// Cells below each other, with the headers above them.
fn in_columns(query: &Query, rows: &[Vec<String>]) -> Vec<String> {
    let width = |c: usize| {
        let header = query.columns[c].header.trim().len();
        rows.iter().map(|r| r[c].chars().count()).max().unwrap_or(0).max(header)
    };
    let widths: Vec<usize> = (0..query.columns.len()).map(width).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut out = String::new();
        for ((cell, width), field) in cells.zip(&widths).zip(&query.columns) {
            match field.align {
                field::Align::Right => out.push_str(&format!("{cell:>width$} ")),
                field::Align::Left => out.push_str(&format!("{cell:<width$} ")),
            }
        }
        out.trim_end().to_owned()
    };
    let mut out = vec![line(&mut query.columns.iter().map(|f| f.header.trim()))];
    out.extend(rows.iter().map(|r| line(&mut r.iter().map(String::as_str))));
    out
}
