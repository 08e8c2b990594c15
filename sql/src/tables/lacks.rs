// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counts values that rows lack, and describes them. A value that is not known is NULL. A query may
//! easily turn it into a 0 or drop it, so standard error reports how many there were. As in the
//! command, it depends on the caller whether that is a failure.

use std::collections::BTreeMap;

use taskdiag::field::{Missing, TASKS};
use taskdiag::view::Left;
use taskdiag::{Groups, Reason, Snapshot};
use taskdiag_face::exit::{Asked, Lack};
use taskdiag_face::tables::Kind;

/// Why values are missing, in the order of the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Why {
    NotAsked,
    Denied,
    Blocked,
    Truncated,
    OverBudget,
    Stopped,
    Unknown,
}

impl Why {
    /// `None`: the missing value is not a gap.
    fn of(missing: Missing) -> Option<Why> {
        Some(match missing {
            Missing::NotAsked => Why::NotAsked,
            Missing::Reason(Reason::Absent | Reason::Vanished) => return None,
            Missing::Reason(Reason::Denied) => Why::Denied,
            Missing::Reason(Reason::Blocked) => Why::Blocked,
            Missing::Reason(Reason::Truncated) => Why::Truncated,
            Missing::Reason(Reason::OverBudget) => Why::OverBudget,
            Missing::Reason(Reason::Stopped) => Why::Stopped,
            Missing::Reason(_) => Why::Unknown,
        })
    }
    fn words(self, is_live: bool, table: &str) -> &'static str {
        // SAFETY: the call only returns a number.
        let is_root = unsafe { libc::geteuid() } == 0;
        match self {
            Why::NotAsked if is_live => {
                "other processes, which were not read, may share it; without a condition on pid, all are read"
            }
            Why::NotAsked if table == Kind::Cgroups.name() => {
                "it was not recorded; live.cgroups has the present values"
            }
            Why::NotAsked => "it was not recorded; 'taskdiag record --groups' changes that",
            Why::Denied if !is_live => "it was denied to the user who recorded",
            Why::Denied if is_root => {
                "it was denied, even to root, by a sandbox, a container or a security module"
            }
            Why::Denied => "it was denied; run as root to see it",
            Why::Blocked => "reading it would have blocked; try again later",
            Why::Truncated => "it was too long, and was cut",
            Why::OverBudget => "it was over a limit",
            Why::Stopped => "the reading was stopped before",
            Why::Unknown if !is_live => "the engine or kernel that recorded does not provide it",
            Why::Unknown => {
                "this engine or kernel does not provide it; 'taskdiag engines' lists those that do"
            }
        }
    }
}

impl Why {
    /// The callers for whom it is a failure, as in the command.
    fn from(self, is_live: bool) -> Asked {
        match self {
            Why::NotAsked if is_live => Asked::Named,
            Why::NotAsked => Asked::All,
            Why::Denied | Why::Unknown => Asked::Named,
            // The owner of a process can make these happen.
            Why::Blocked | Why::Truncated | Why::OverBudget | Why::Stopped => Asked::Pids,
        }
    }
    /// The option that would help to read these columns, after a semicolon.
    fn how(self, columns: &[&str]) -> &'static str {
        let is_text = |name: &&str| {
            TASKS.find(name).is_some_and(|n| n.field.groups.intersects(Groups::TEXTS))
        };
        match self {
            Why::Truncated if columns.iter().any(is_text) => "; --args all reads all of it",
            Why::OverBudget => "; raise --budget or --max-rss",
            _ => "",
        }
    }
}

/// Counts of missing values.
#[derive(Debug, Default)]
pub struct Lacks {
    /// By the reason, whether the table is live, the table and the column.
    values: BTreeMap<(Why, bool, &'static str, String), u64>,
    /// The counts, by the reason, whether the source is live, the table, and the column that a
    /// condition uses.
    left: BTreeMap<(Why, bool, &'static str, String), u64>,
    /// Processes whose rows are missing, by the reason, whether the table is live, and the table.
    lists: BTreeMap<(Why, bool, &'static str), u64>,
    /// Other messages about missing data.
    lines: Vec<Lack>,
    /// Messages that are not about missing data.
    remarks: Vec<String>,
}

impl Lacks {
    /// Adds a value.
    pub fn value(&mut self, table: &'static str, column: &str, is_live: bool, missing: Missing) {
        if let Some(why) = Why::of(missing) {
            *self.values.entry((why, is_live, table, column.to_owned())).or_default() += 1;
        }
    }
    /// Adds a process whose list is missing or was cut, so that the table lacks all or some of its
    /// rows.
    pub fn list(&mut self, table: &'static str, is_live: bool, missing: Missing, processes: u64) {
        if let Some(why) = Why::of(missing) {
            *self.lists.entry((why, is_live, table)).or_default() += processes;
        }
    }
    /// Adds tasks that a condition leaves out because it is not known whether they match.
    pub fn left(&mut self, table: &'static str, is_live: bool, left: &Left) {
        if let Some(why) = Why::of(left.why) {
            *self.left.entry((why, is_live, table, left.field.name.to_owned())).or_default() +=
                left.tasks;
        }
    }
    /// Adds a message about missing data, which is a failure for callers from `from` on.
    pub fn line(&mut self, line: String, from: Asked) {
        let lack = Lack { line, from };
        if !self.lines.contains(&lack) {
            self.lines.push(lack);
        }
    }
    /// Adds a message about data that is not missing.
    pub fn remark(&mut self, text: String) {
        if !self.remarks.contains(&text) {
            self.remarks.push(text);
        }
    }
    /// Adds the messages of an answer.
    pub fn answer(&mut self, snapshot: &Snapshot) {
        for caveat in snapshot.caveats() {
            match caveat.is_lack() {
                true => self.line(caveat.to_string(), Asked::Pids),
                false => self.remark(caveat.to_string()),
            }
        }
        let error = -snapshot.stream().done().error;
        if error != 0 && error != libc::EINTR {
            let why = std::io::Error::from_raw_os_error(error);
            self.line(format!("the list of processes ended early: {why}"), Asked::All);
        }
    }
    /// Adds all of these.
    pub fn add(&mut self, more: Lacks) {
        for (key, n) in more.values {
            *self.values.entry(key).or_default() += n;
        }
        for (key, n) in more.left {
            *self.left.entry(key).or_default() += n;
        }
        for (key, n) in more.lists {
            *self.lists.entry(key).or_default() += n;
        }
        more.lines.into_iter().for_each(|lack| self.line(lack.line, lack.from));
        more.remarks.into_iter().for_each(|text| self.remark(text));
    }
    /// The messages about data that is not missing.
    pub fn remarks(&self) -> &[String] {
        &self.remarks
    }
    /// The messages about missing data. Columns that are missing in the same number of rows for the
    /// same reason share a message.
    pub fn lines(&self) -> Vec<Lack> {
        let mut lines = self.lines.clone();
        let mut alike: BTreeMap<(Why, bool, &str, u64), Vec<&str>> = BTreeMap::new();
        for ((why, is_live, table, column), n) in &self.values {
            alike.entry((*why, *is_live, table, *n)).or_default().push(column);
        }
        for ((why, is_live, table, n), columns) in alike {
            let rows = if n == 1 { "row" } else { "rows" };
            let what = match columns.len() {
                0..8 => columns.join(", "),
                more => format!("{} and {} more columns", columns[..6].join(", "), more - 6),
            };
            let how = if is_live { why.how(&columns) } else { "" };
            let line =
                format!("{n} {rows} of {table} without {what}: {}{how}", why.words(is_live, table));
            lines.push(Lack { line, from: why.from(is_live) });
        }
        for ((why, is_live, table), n) in &self.lists {
            let processes = if *n == 1 { "process has" } else { "processes have" };
            let line = match why {
                // The table has the entries before the end of a cut list.
                Why::Truncated => {
                    format!("{n} {processes} not all rows in {table}: a list was cut")
                }
                _ => format!("{n} {processes} no rows in {table}: {}", why.words(*is_live, table)),
            };
            lines.push(Lack { line, from: why.from(*is_live) });
        }
        for ((why, is_live, table, column), n) in &self.left {
            let tasks = if *n == 1 { "task was" } else { "tasks were" };
            let how = if *is_live { why.how(&[column]) } else { "" };
            let line = format!(
                "{n} {tasks} left out of {table}, as a condition looks at {column}: {}{how}",
                why.words(*is_live, table)
            );
            lines.push(Lack { line, from: why.from(*is_live) });
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_with_one_reason_are_one_line() {
        let mut lacks = Lacks::default();
        let denied = Missing::Reason(Reason::Denied);
        for column in ["exe", "cwd"] {
            lacks.value("processes", column, true, denied);
            lacks.value("processes", column, true, denied);
        }
        lacks.value("processes", "rss", true, Missing::Reason(Reason::Absent));
        let lines = lacks.lines();
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(
            lines[0].line.starts_with("2 rows of processes without cwd, exe: it was denied"),
            "{lines:?}"
        );
        assert_eq!(lines[0].from, Asked::Named);
    }

    #[test]
    fn a_text_that_was_cut_has_the_option_that_reads_it() {
        let cut = Missing::Reason(Reason::Truncated);
        for (column, is_live, has_how) in [
            ("args", true, true),
            ("environ", true, true),
            ("args", false, false),
            ("exe", true, false),
        ] {
            let mut lacks = Lacks::default();
            lacks.value("processes", column, is_live, cut);
            let lines = lacks.lines();
            assert_eq!(lines[0].line.contains("--args all"), has_how, "{lines:?}");
            assert_eq!(lines[0].from, Asked::Pids);
        }
    }

    #[test]
    fn a_list_that_was_cut_has_rows() {
        let mut lacks = Lacks::default();
        lacks.list("maps", true, Missing::Reason(Reason::Truncated), 1);
        lacks.list("maps", true, Missing::Reason(Reason::Blocked), 2);
        let lines: Vec<String> = lacks.lines().into_iter().map(|l| l.line).collect();
        let blocked =
            "2 processes have no rows in maps: reading it would have blocked; try again later";
        assert_eq!(lines, [blocked, "1 process has not all rows in maps: a list was cut"]);
    }

    #[test]
    fn values_that_a_task_cannot_have_are_not_missing() {
        let mut lacks = Lacks::default();
        lacks.value("processes", "exe", true, Missing::Reason(Reason::Absent));
        lacks.value("processes", "exe", true, Missing::Reason(Reason::Vanished));
        lacks.remark("a remark".to_owned());
        assert_eq!(lacks.lines(), []);
        assert_eq!(lacks.remarks(), ["a remark"]);
    }
}
