//! Counts the missing values of the shown rows by column, and words the messages about them.

use std::collections::HashSet;

use taskdiag::field::{Missing, Part};
use taskdiag::view::Left;
use taskdiag::{Group, Groups, Reason, Snapshot};

use super::Item;
use crate::columns::Column;
use crate::saved;

const KINDS: usize = 7;

/// Counts of missing values. A task that cannot have the value, or that ended meanwhile, does not
/// count.
#[derive(Debug)]
pub struct Tally {
    counts: Vec<[u64; KINDS]>,
    /// Column, kind and task of values that several rows of a task lack, so that the task counts
    /// once.
    seen: HashSet<(usize, usize, u32)>,
    /// Are rows ignored that represent a task whose whole list is missing?
    only_entries: bool,
}

fn slot(m: Missing) -> Option<usize> {
    match m {
        Missing::NotAsked => Some(0),
        Missing::Reason(Reason::Denied) => Some(1),
        Missing::Reason(Reason::Blocked) => Some(2),
        Missing::Reason(Reason::Truncated) => Some(3),
        Missing::Reason(Reason::OverBudget) => Some(5),
        Missing::Reason(Reason::Stopped) => Some(6),
        Missing::Reason(Reason::Absent | Reason::Vanished) => None,
        // And reasons that this version does not know.
        Missing::Reason(_) => Some(4),
    }
}

impl Tally {
    /// A tally of this many columns.
    pub fn new(columns: usize) -> Tally {
        Tally { counts: vec![[0; KINDS]; columns], seen: HashSet::new(), only_entries: false }
    }
    /// The same for rows that are entries of lists, where other lines say which tasks lack the whole list.
    pub fn of_entries(columns: usize) -> Tally {
        Tally { only_entries: true, ..Tally::new(columns) }
    }
    /// Is nothing missing?
    pub fn is_empty(&self) -> bool {
        self.counts.iter().all(|c| *c == [0; KINDS])
    }
    /// Inserts a column at this place.
    pub fn insert(&mut self, column: usize) {
        self.counts.insert(column, [0; KINDS]);
    }
    /// Counts a missing value of this column in a row, which may be an entry of a task's list.
    #[cold]
    pub fn count_in(&mut self, item: &Item<'_, '_>, column: usize, m: Missing) {
        let entry = item.row().filter(|row| !matches!(row.part, Part::Whole));
        if self.only_entries && entry.is_some_and(|row| matches!(row.part, Part::Without)) {
            return;
        }
        let new = match (slot(m), entry) {
            (Some(kind), Some(row)) => self.seen.insert((column, kind, row.view.pid())),
            _ => true,
        };
        if new {
            self.count(column, m);
        }
    }
    /// A value of this column is missing.
    #[cold]
    pub fn count(&mut self, column: usize, m: Missing) {
        if let Some(kind) = slot(m) {
            self.counts[column][kind] += 1;
        }
    }
    /// Lines that say which columns lack what for how many tasks, and what to do: one for each
    /// reason and number of tasks.
    pub fn lines(&self, columns: &[Column], snapshot: &Snapshot) -> Vec<String> {
        let saved = asked_when_saved(snapshot);
        let mut lines = Vec::new();
        for kind in 0..KINDS {
            let mut numbers: Vec<u64> = self.counts.iter().map(|c| c[kind]).collect();
            numbers.sort_unstable_by(|a, b| b.cmp(a));
            numbers.dedup();
            let numbers = numbers.into_iter().filter(|n| *n > 0);
            lines.extend(numbers.map(|n| self.line(kind, n, columns, saved)));
        }
        lines
    }
    fn line(&self, kind: usize, count: u64, columns: &[Column], saved: Option<Groups>) -> String {
        let lacking = || self.counts.iter().zip(columns).filter(|(c, _)| c[kind] == count);
        let names: Vec<&str> = lacking().map(|(_, c)| c.name.as_str()).collect();
        let groups = lacking().fold(Groups::NONE, |all, (_, c)| all | c.field.groups);
        sentence(kind, count, &names.join(", "), groups, saved)
    }
}

/// The message about tasks of this answer that lack the named values. `None`: nothing is wrong.
pub fn line(
    m: Missing,
    count: usize,
    names: &str,
    group: Group,
    snapshot: &Snapshot,
) -> Option<String> {
    slot(m)
        .map(|kind| sentence(kind, count as u64, names, group.into(), asked_when_saved(snapshot)))
}

/// The lines about tasks of this answer that are left out, since what `--where` looks at is missing.
pub fn left_out(left: &[Left], snapshot: &Snapshot) -> Vec<String> {
    let line = |l: &Left| {
        let kind = slot(l.why)?;
        let name = l.field.name;
        let why = sentence(kind, l.tasks, name, l.field.groups, asked_when_saved(snapshot));
        Some(format!("left out, since --where looks at {name}: {why}"))
    };
    left.iter().filter_map(line).collect()
}

/// The lines about what tasks of this answer lack: one for each reason and number of tasks.
pub fn lines_of<'n>(
    gaps: impl Iterator<Item = (Group, Reason)>,
    names: impl Fn(Group) -> &'n str,
    snapshot: &Snapshot,
) -> Vec<String> {
    let mut counts: Vec<((Group, Reason), u64)> = Vec::new();
    for gap in gaps {
        match counts.iter_mut().find(|c| c.0 == gap) {
            Some(c) => c.1 += 1,
            None => counts.push((gap, 1)),
        }
    }
    let mut alike: Vec<((Reason, u64), Vec<Group>)> = Vec::new();
    for ((group, reason), n) in counts {
        match alike.iter_mut().find(|a| a.0 == (reason, n)) {
            Some(a) => a.1.push(group),
            None => alike.push(((reason, n), vec![group])),
        }
    }
    let line = |((reason, n), groups): ((Reason, u64), Vec<Group>)| {
        let kind = slot(Missing::Reason(reason))?;
        let all: Vec<&str> = groups.iter().map(|g| names(*g)).collect();
        Some(sentence(
            kind,
            n,
            &all.join(", "),
            groups.into_iter().collect(),
            asked_when_saved(snapshot),
        ))
    };
    alike.into_iter().filter_map(line).collect()
}

/// The groups that were requested from a saved answer. `None`: it is not a saved one.
fn asked_when_saved(snapshot: &Snapshot) -> Option<Groups> {
    snapshot.served().is_empty().then(|| snapshot.stream().asked())
}

fn sentence(kind: usize, count: u64, names: &str, groups: Groups, saved: Option<Groups>) -> String {
    let tasks = if count == 1 { "task" } else { "tasks" };
    match kind {
        0 => {
            let how = saved::how_to_make(groups | saved.unwrap_or_default());
            format!("the saved answer does not hold {names}: make it with {how}")
        }
        1 if saved.is_some() => {
            format!("{count} {tasks} denied {names} to the user who saved the answer")
        }
        1 if rustix::process::geteuid().is_root() => format!(
            "{count} {tasks} denied {names}, even to root: a sandbox, a container or a security \
             module hides them from this process; all others are shown"
        ),
        1 => format!("{count} {tasks} denied {names}: run as root to see it"),
        2 => {
            format!("{count} {tasks} would have blocked the reading of {names}: try again later")
        }
        3 if saved.is_none() && groups.intersects(Groups::CMDLINE | Groups::ENVIRON) => format!(
            "{count} {tasks} with {names} cut short: only the beginning was read; 'taskdiag ps' with --args all, or with \
             -p PID, reads all of it"
        ),
        3 => format!("{count} {tasks} with {names} cut short: it is longer than what was read"),
        5 => format!(
            "{count} {tasks} without {names}, over a limit that was given: raise --budget or \
             --max-rss"
        ),
        6 => format!("{count} {tasks} without {names}: the reading was stopped before"),
        _ if saved.is_some() => format!(
            "{count} {tasks} without {names}: the engine or kernel that the answer was saved from \
             could not tell"
        ),
        _ => format!(
            "{count} {tasks} without {names}: this engine or kernel cannot tell; \
             'taskdiag engines' says who can"
        ),
    }
}
