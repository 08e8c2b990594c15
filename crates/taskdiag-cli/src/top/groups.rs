//! The tree of cgroups, in the place of the table of tasks: what each uses and may use.
//!
//! It is opened by a key, keeps its files open while it is shown, and closes them afterwards. A
//! recording has the cgroups of its frames.

use std::time::{Duration, Instant};

use taskdiag::Snapshot;
use taskdiag::cgroups::{Bounds, Cgroups, Session};
use taskdiag::field::{self, CGROUPS, Field, Value};
use taskdiag::view::{CgroupRows, Item, Query, Rows as _};

use super::meters::bar;
use crate::columns::{self, Column};
use crate::forest::{self, Tree};
use crate::order::Key;
use crate::units::Units;

/// The most cgroups that are read at a refresh.
const MOST: usize = 5_000;
/// The columns. The limit is drawn as a bar.
const VIEW: &str = "tasks,cpu_now,throttled_now,memory,memory_max:20,memory_some,branch";
/// The column that is drawn as a bar, and the column with the length of the bar.
const BAR: (&str, &str) = ("memory_max", "memory_share");

/// A row of the tree.
#[derive(Clone, Debug)]
pub struct GroupRow {
    /// The path of the cgroup.
    pub path: Vec<u8>,
    /// Does version 2 have it?
    pub is_v2: bool,
    /// The cells, in the order of the columns.
    pub cells: Vec<String>,
}

/// The tree.
#[derive(Debug)]
pub struct Groups {
    /// `None`: the cgroups are those of a recording.
    session: Option<Session>,
    /// The columns.
    pub columns: Vec<Column>,
    /// The column by which siblings are ordered. `None`: by name.
    sort: Option<Key>,
    /// The rows.
    pub rows: Vec<GroupRow>,
    /// The row with the cursor.
    pub cursor: usize,
    /// The first row on the screen.
    pub offset: usize,
    /// Why there are no rows, or what they lack.
    pub remark: Option<String>,
    /// How long the last refresh took.
    pub took: Duration,
}

/// A key of the columns of cgroups.
fn key(name: &str) -> Option<Key> {
    Key::parse(&CGROUPS, name)
}

impl Groups {
    /// The cgroups of this machine, or of a recording. Nothing is read yet.
    pub fn new(is_replay: bool) -> Result<Groups, taskdiag::Error> {
        let columns = columns::view(&CGROUPS, VIEW).expect("they are in the table");
        let mut groups = Groups {
            session: None,
            columns,
            sort: key("-cpu_now"),
            rows: Vec::new(),
            cursor: 0,
            offset: 0,
            remark: None,
            took: Duration::ZERO,
        };
        if !is_replay {
            let mut bounds = Bounds::default();
            bounds.cgroups = MOST;
            let files = groups.query().cgroup_files();
            groups.session = Some(Session::new(files, bounds, Session::descriptors())?);
        }
        Ok(groups)
    }
    fn query(&self) -> Query {
        let share = field_of(BAR.1);
        let mut query = Query::new(&CGROUPS, self.columns.iter().map(|c| c.field).chain([share]));
        query.sort = self.sort.iter().cloned().collect();
        query
    }
    /// Reads the cgroups again. For a recording, from the frame that is shown and the previous one.
    pub fn refresh(
        &mut self,
        frames: (Option<&Snapshot>, Option<&Snapshot>),
        units: Units,
        lines: forest::Style,
    ) {
        let begin = Instant::now();
        let read = match &mut self.session {
            Some(session) => session.list().map_err(|e| e.to_string()),
            None => of_frames(frames),
        };
        let shown = read.and_then(|all| {
            self.remark = all.remarks().into_iter().next();
            self.show(&all, units, lines).map_err(|e| e.to_string())
        });
        if let Err(why) = shown {
            self.rows.clear();
            self.remark = Some(why);
        }
        self.took = begin.elapsed();
    }
    /// Makes the rows.
    fn show(
        &mut self,
        all: &Cgroups,
        units: Units,
        lines: forest::Style,
    ) -> Result<(), taskdiag::Error> {
        let at = self.rows.get(self.cursor).map(|row| row.path.clone());
        let query = self.query();
        let mut rows = CgroupRows::new(&query, all)?;
        let mut tree = Tree::new(&rows.with_ancestors(), rows.snapshot(), lines);
        let order = std::mem::take(&mut tree.rows);
        rows.show(order.clone());
        let mut new = Vec::with_capacity(order.len());
        let each = rows.each(&mut |item: Item<'_, '_>| {
            let n = new.len();
            let text = |(c, column): (usize, &Column)| {
                let is_name = column.field.name == "branch";
                let mut out = if is_name { tree.art(n).to_vec() } else { Vec::new() };
                let value = item.value(rows.cx(), column.field, c);
                field::text(&mut out, rows.cx(), units.of_screen(column), item.row(), &value);
                let text = String::from_utf8_lossy(&out).into_owned();
                if column.field.name != BAR.0 {
                    return text;
                }
                match item.value(rows.cx(), field_of(BAR.1), c) {
                    Value::Percent(share) => {
                        format!("[{}]", bar(&[('|', share / 100.0)], &text, column.width - 2))
                    }
                    _ => text,
                }
            };
            let cells = self.columns.iter().enumerate().map(text).collect();
            let cgroup = order.get(n).and_then(|at| all.list().get(*at as usize));
            let path = cgroup.map(|c| c.path().to_vec()).unwrap_or_default();
            let is_v2 = cgroup.is_some_and(|c| c.is_of_version_2());
            new.push(GroupRow { path, is_v2, cells });
            Ok(())
        });
        debug_assert!(each.is_ok(), "nothing is written");
        self.rows = new;
        // The cursor stays on its cgroup.
        let place = at.and_then(|path| self.rows.iter().position(|row| row.path == path));
        self.cursor = place.unwrap_or(self.cursor).min(self.rows.len().saturating_sub(1));
        Ok(())
    }
    /// Moves the cursor, and scrolls to it.
    pub fn step(&mut self, by: isize, page: usize) {
        let last = self.rows.len().saturating_sub(1);
        self.cursor = self.cursor.saturating_add_signed(by).min(last);
        self.scroll(page);
    }
    /// Scrolls so that the row with the cursor is on a screen with this many rows.
    pub fn scroll(&mut self, page: usize) {
        let first = (self.cursor + 1).saturating_sub(page);
        self.offset = self.offset.clamp(first, self.cursor);
    }
    /// Orders siblings by a column, the largest value first, or by name.
    pub fn sort_by(&mut self, name: Option<&str>) {
        self.sort = name.and_then(|name| key(&format!("-{name}")));
    }
    /// Are siblings ordered by this column?
    pub fn is_sorted_by(&self, column: &Column) -> bool {
        match &self.sort {
            Some(key) => std::ptr::eq(key.field, column.field),
            None => column.field.name == "branch",
        }
    }
    /// The row with the cursor.
    pub fn chosen(&self) -> Option<&GroupRow> {
        self.rows.get(self.cursor)
    }
}

fn field_of(name: &str) -> &'static Field {
    CGROUPS.find(name).expect("it is in the table").field
}

/// The cgroups of a frame, with their growth since the one before it.
fn of_frames((now, before): (Option<&Snapshot>, Option<&Snapshot>)) -> Result<Cgroups, String> {
    let none = "This frame has no cgroups: 'taskdiag record --cgroups' records them.";
    let mut all = now.and_then(Cgroups::of).ok_or(none)?;
    if let Some(before) = before.and_then(Cgroups::of) {
        all.compare(&before);
    }
    Ok(all)
}

/// The condition for tasks in a cgroup or below it. `None`: all tasks are. The error is a message:
/// no expression can have this path.
pub fn condition(row: &GroupRow) -> Result<Option<String>, &'static str> {
    if row.path == b"/" {
        return Ok(None);
    }
    if !row.is_v2 {
        return Err("Tasks are known by their cgroup of version 2, and this one is of version 1.");
    }
    let text = std::str::from_utf8(&row.path).ok();
    let text = text.filter(|t| !t.contains(field::is_odd) && !t.contains('"'));
    let text = text.ok_or("No expression can have this path.")?;
    let pattern = regex::escape(text);
    Ok(Some(format!("cgroup_path ~ \"^{pattern}(/|$)\"")))
}

#[cfg(test)]
mod tests {
    use taskdiag::view::Filter;

    use super::*;
    use crate::args::top::SET;

    fn row(path: &str, is_v2: bool) -> GroupRow {
        GroupRow { path: path.into(), is_v2, cells: Vec::new() }
    }

    #[test]
    fn the_condition_of_a_cgroup_is_an_expression_with_its_exact_path() {
        let of = |path| condition(&row(path, true));
        assert_eq!(of("/"), Ok(None));
        let want = r#"cgroup_path ~ "^/a\.slice/x\\x2dy(/|$)""#;
        assert_eq!(of(r"/a.slice/x\x2dy"), Ok(Some(want.to_owned())));
        for path in ["/a b", "/user@0.service", "/a[1]{2}(3)|4^5$", "/ä'"] {
            let text = of(path).expect("it can be said").expect("it is not the root");
            assert!(Filter::parse(SET, &text).is_ok(), "{text}");
        }
        assert!(of("/a\"b").is_err() && of("/a\nb").is_err());
        assert!(condition(&row("/a", false)).is_err());
        assert!(matches!(condition(&row("/", false)), Ok(None)));
    }
}
