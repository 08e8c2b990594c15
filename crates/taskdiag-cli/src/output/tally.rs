//! Counts the missing values of the shown rows by column, and words the messages about them.

use std::collections::HashSet;

use taskdiag::field::{Missing, Part};
use taskdiag::view::Left;
use taskdiag::{Group, Groups, Reason, Snapshot};

use super::Item;
use crate::columns::Column;
use crate::exit::{Asked, Lack};
use crate::saved;

const KINDS: usize = 7;

/// Counts of missing values. A task that cannot have the value, or has ended, does not count.
#[derive(Debug)]
pub struct Tally {
    counts: Vec<[u64; KINDS]>,
    /// Column, kind and task of values that several rows of a task lack, so that the task counts
    /// once.
    seen: HashSet<(usize, usize, u32)>,
    /// Whether only rows of entries are counted. A task whose whole list is missing has a row
    /// without an entry.
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
        // Denied values, and reasons that this version does not know.
        Missing::Reason(_) => Some(4),
    }
}

impl Tally {
    /// A tally of this many columns.
    pub fn new(columns: usize) -> Tally {
        Tally { counts: vec![[0; KINDS]; columns], seen: HashSet::new(), only_entries: false }
    }
    /// A tally for rows that are entries of lists. Other lines report which tasks lack the whole
    /// list.
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
            (Some(kind), Some(row)) => self.seen.insert((column, kind, row.view.tgid())),
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
    /// Messages about columns that lack values for some tasks, and what to do: one message for each
    /// reason.
    pub fn lines(&self, columns: &[Column], snapshot: &Snapshot) -> Vec<Lack> {
        let kinds = (0..KINDS).filter(|kind| self.counts.iter().any(|c| c[*kind] > 0));
        kinds.map(|kind| self.line(kind, columns, snapshot)).collect()
    }
    fn line(&self, kind: usize, columns: &[Column], snapshot: &Snapshot) -> Lack {
        let lacking = || self.counts.iter().zip(columns).filter(|(c, _)| c[kind] > 0);
        // If the list of mappings is missing, all of its columns are.
        let list = Groups::VMA | Groups::VMA_STAT;
        let is_list =
            lacking().any(|(_, c)| c.field.groups == Groups::VMA) && lacking().count() > 1;
        let is_of_list = |c: &Column| is_list && c.field.groups.intersects(list);
        let others = lacking().filter(|(_, c)| !is_of_list(c)).map(|(_, c)| c.name.as_str());
        let names: Vec<&str> = is_list.then_some("mappings").into_iter().chain(others).collect();
        let groups = lacking().fold(Groups::NONE, |all, (_, c)| all | c.field.groups);
        let numbers = || lacking().map(|(c, _)| c[kind]);
        let count = numbers().max().unwrap_or(0);
        let who = Who {
            threads: snapshot.stream().strategy().is_threads() && !self.only_entries,
            cgroups: lacking().any(|(_, c)| !c.field.cgroup_files.is_empty()),
            all_alike: numbers().all(|n| n == count),
        };
        sentence(kind, count, who, &names.join(", "), groups, asked_when_saved(snapshot))
    }
}

/// The message about tasks of this answer that lack the named values. `None` if all is well.
pub fn line(
    m: Missing,
    count: usize,
    names: &str,
    group: Group,
    snapshot: &Snapshot,
) -> Option<Lack> {
    let (who, saved) = (Who::of(snapshot), asked_when_saved(snapshot));
    slot(m).map(|kind| sentence(kind, count as u64, who, names, group.into(), saved))
}

/// The lines about tasks of this answer that are left out because values that `--where` needs are
/// missing.
pub fn left_out(left: &[Left], snapshot: &Snapshot) -> Vec<Lack> {
    let line = |l: &Left| {
        let kind = slot(l.why)?;
        let cgroups = !l.field.cgroup_files.is_empty();
        let who = Who { cgroups, ..Who::of(snapshot) };
        let why =
            sentence(kind, l.tasks, who, l.field.name, l.field.groups, asked_when_saved(snapshot));
        Some(Lack { line: format!("left out by --where: {}", why.line), ..why })
    };
    left.iter().filter_map(line).collect()
}

/// Messages about data that tasks of this answer lack: one for each reason. If `threads` is false,
/// there is at most one gap for each process.
pub fn lines_of<'n>(
    gaps: impl Iterator<Item = (Group, Reason)>,
    threads: bool,
    names: impl Fn(Group) -> &'n str,
    snapshot: &Snapshot,
) -> Vec<Lack> {
    let mut counts: Vec<(Reason, Vec<(Group, u64)>)> = Vec::new();
    for (group, reason) in gaps {
        let at = counts.iter().position(|c| c.0 == reason).unwrap_or_else(|| {
            counts.push((reason, Vec::new()));
            counts.len() - 1
        });
        match counts[at].1.iter_mut().find(|c| c.0 == group) {
            Some(c) => c.1 += 1,
            None => counts[at].1.push((group, 1)),
        }
    }
    let line = |(reason, groups): (Reason, Vec<(Group, u64)>)| {
        let kind = slot(Missing::Reason(reason))?;
        let all: Vec<&str> = groups.iter().map(|(g, _)| names(*g)).collect();
        let count = groups.iter().map(|(_, n)| *n).max()?;
        let who =
            Who { threads, cgroups: false, all_alike: groups.iter().all(|(_, n)| *n == count) };
        let groups = groups.into_iter().map(|(g, _)| g).collect();
        Some(sentence(kind, count, who, &all.join(", "), groups, asked_when_saved(snapshot)))
    };
    counts.into_iter().filter_map(line).collect()
}

/// Who lacks something.
#[derive(Clone, Copy)]
struct Who {
    /// Threads, or else processes?
    threads: bool,
    /// Are they cgroups?
    cgroups: bool,
    /// Does each of the names lack this number of values?
    all_alike: bool,
}

impl Who {
    fn of(snapshot: &Snapshot) -> Who {
        let threads = snapshot.stream().strategy().is_threads();
        Who { threads, cgroups: false, all_alike: true }
    }
}

/// The groups that were requested from a saved answer. `None` if it is not a saved answer.
fn asked_when_saved(snapshot: &Snapshot) -> Option<Groups> {
    snapshot.served().is_empty().then(|| snapshot.stream().asked())
}

fn sentence(
    kind: usize,
    count: u64,
    who: Who,
    names: &str,
    groups: Groups,
    saved: Option<Groups>,
) -> Lack {
    let whose = match (who.threads, count) {
        _ if who.cgroups => {
            if count == 1 {
                "cgroup"
            } else {
                "cgroups"
            }
        }
        (false, 1) => "process",
        (false, _) => "processes",
        (true, 1) => "thread",
        (true, _) => "threads",
    };
    let up_to = if who.all_alike { "" } else { "up to " };
    let of = format!("{names} of {up_to}{count} {whose}");
    // Names of columns are words such as rss, fds and args.
    let is_plural = names.contains(", ")
        || names.ends_with(')')
        || names.ends_with('s') && !names.ends_with("ss");
    let (is, was) = if is_plural { ("are", "were") } else { ("is", "was") };
    let (from, line) = match kind {
        0 if saved.is_none() && !who.cgroups => (
            Asked::Named,
            format!(
                "{of} {is} not known, because processes that were not read may share with it: without -p, all are read"
            ),
        ),
        0 if who.cgroups => (
            Asked::All,
            format!(
                "{names} of cgroups {is} not recorded: 'taskdiag cgroups' shows the present values"
            ),
        ),
        0 => {
            let how = saved::how_to_make(groups | saved.unwrap_or_default());
            (Asked::All, format!("the saved answer does not hold {names}: make it with {how}"))
        }
        1 if saved.is_some() => {
            (Asked::Named, format!("{of} {was} not shown to the user who saved the answer"))
        }
        1 if rustix::process::geteuid().is_root() => (
            Asked::Named,
            format!(
                "{of} {is} not shown, even to root: a sandbox, a container or a security module hides them"
            ),
        ),
        1 => (Asked::Named, format!("{of} {is} not shown: run as root")),
        // The owner of a process can cause this, so it is a failure only for a caller who named the
        // process.
        2 => (Asked::Pids, format!("reading {of} would have blocked: try again later")),
        3 if who.cgroups => {
            let how =
                if saved.is_some() { "were recorded" } else { "are read: name those to show" };
            (Asked::Pids, format!("{of} {is} not known, because there are more cgroups than {how}"))
        }
        3 if saved.is_none() && groups.intersects(Groups::TEXTS) => (
            Asked::Pids,
            format!(
                "{of} {is} cut short: 'taskdiag ps' with --args all, or with -p PID, reads all of it"
            ),
        ),
        3 => (Asked::Pids, format!("{of} {is} cut short: only the beginning was read")),
        5 => (
            Asked::Pids,
            format!(
                "{of} {was} not read, over a limit that was given: raise --budget or --max-rss"
            ),
        ),
        6 => (Asked::Pids, format!("{of} {was} not read: it was stopped before")),
        _ if who.cgroups && saved.is_none() => (
            Asked::Named,
            format!(
                "{of} {is} not known: no mounted hierarchy of cgroups has it, or this kernel is too old"
            ),
        ),
        _ if groups == Groups::DELAYS => (
            Asked::Named,
            format!(
                "{of} {is} not counted: the kernel counts for tasks that begin while kernel.task_delayacct is 1"
            ),
        ),
        _ if saved.is_some() => (
            Asked::Named,
            format!("{of} {was} not known to the engine or kernel that the answer was saved from"),
        ),
        _ => (
            Asked::Named,
            format!(
                "{of} {is} not known to this engine or kernel: 'taskdiag engines' says who can tell"
            ),
        ),
    };
    Lack { line, from }
}
