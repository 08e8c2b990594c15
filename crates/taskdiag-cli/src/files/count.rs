//! `taskdiag files --count`: how many files each process has open. No descriptor is looked at.

use std::io;
use std::time::Instant;

use taskdiag::field::{Context, FILES, Field, Missing, Part, Row};
use taskdiag::files::{Files, Gap, Holder, Holders};
use taskdiag::view::{Filter, Query, Ranks, Sieve};
use taskdiag::{Group, Groups, Members, Snapshot};

use crate::answer;
use crate::columns;
use crate::exit::{Exit, Lack};
use crate::files::request::FilesArgs;
use crate::output::{Item, Rows, Table, Take, Tally, tally};

/// Run it.
pub fn run(args: &FilesArgs) -> Result<(), Exit> {
    let begin = Instant::now();
    let (table, select) = (&args.table, &args.select);
    if let Some(field) = table.filter.iter().flat_map(Filter::fields).find(|f| looks_at_files(f)) {
        return Err(Exit::Usage(format!(
            "--where '{}': --count looks at no file; it has columns of processes, and threads, sharers, fds",
            field.name
        )));
    }
    // Only a saved answer may lack threads.
    let columns = |unshared: bool, threads: bool| match table.columns.is_empty() {
        true if unshared => columns::view(&FILES, "pid,tid,threads,fds,command"),
        true if threads => columns::view(&FILES, "pid,threads,fds,command"),
        true => columns::view(&FILES, "pid,fds,command"),
        false => Ok(table.columns.clone()),
    };
    let asked_columns = columns(false, true)?;
    let snapshot = table.source.get(|| {
        let mut query = Query::new(&FILES, asked_columns.iter().map(|c| c.field));
        query.filter = table.filter.clone();
        query.sort = table.sort.clone();
        // The count is enough to find the tasks that share a table.
        query.groups = Groups::FD_COUNT | select.process_groups();
        query.select.inodes = select.inodes.clone();
        query.select.pids = select.only_pids().unwrap_or(&[]).to_vec();
        query.threads = true;
        if !select.process_groups().is_empty() {
            query.members = Members::ALL;
        }
        query
    })?;
    let asked = Instant::now();
    let (mut tables, gaps) = Holders::new(&snapshot, Group::FdCount);
    if !select.takes_all_processes() {
        tables.retain(|t| select.may_match(&Row::new(t.task)));
    }
    let cx = Context::of(&snapshot, snapshot.stream().strategy().is_threads());
    let sieve = Sieve::new(table.filter.as_ref()).knowing(&snapshot);
    if table.filter.is_some() {
        tables.retain(|t| sieve.passes(&cx, &row(t)));
    }
    let mut columns = columns(tables.iter().any(|t| t.is_unshared()), cx.threads)?;
    columns::fit_pids(&mut columns, answer::largest_pid(&snapshot, table.source.from.is_some()));
    let mut order = None;
    if !table.sort.is_empty() {
        let mut ranks = Ranks::default();
        for t in tables.iter() {
            let row = row(&t);
            ranks.push(&cx, table.sort.iter().map(|k| (k.field.get)(&cx, &row)));
        }
        order = Some(ranks.order(&table.sort));
    }
    let rows = Counts { tables: &tables, order: order.as_deref() };
    let mut tally = Tally::new(columns.len());
    let count =
        super::write(table, &Table { cx: &cx, columns: &columns, rows: &rows }, &mut tally)?;
    if table.stats {
        crate::stats::print(&snapshot, tables.len(), begin, asked);
    }
    let selected = |g: &&Gap<'_>| select.may_match(&Row::new(g.task));
    let of_processes = super::of_processes(gaps.iter().filter(selected).copied());
    let mut lines = tally::lines_of(of_processes, false, |_| "fds", &snapshot);
    lines.extend(lacking(&snapshot, tables.doubts().iter().filter(selected), SHARING));
    if !snapshot.stream().asked().has(Group::FdCount) {
        let count = snapshot.tasks().len();
        lines = tally::line(Missing::NotAsked, count, "fds", Group::FdCount, &snapshot)
            .into_iter()
            .collect();
    }
    lines.extend(tally::left_out(&sieve.left(), &snapshot));
    lines.extend(tally.lines(&columns, &snapshot));
    answer::verdict_of(&snapshot, count == 0, lines, args.asked(count == 0))
}

/// The missing data of threads that are assumed to share the files of their process.
pub const SHARING: &str = "open files of their own, if there are any,";

/// Messages with the number of tasks with unknown values, and the reasons.
pub fn lacking<'a>(
    snapshot: &Snapshot,
    gaps: impl Iterator<Item = &'a Gap<'a>>,
    what: &str,
) -> Vec<Lack> {
    tally::lines_of(gaps.map(|g| (Group::FdCount, g.reason)), true, |_| what, snapshot)
}

/// Is it a column of single files?
fn looks_at_files(field: &Field) -> bool {
    field.groups.intersects(Files::GROUPS - Groups::PATHS)
        && !["threads", "sharers"].contains(&field.name)
}

fn row<'a>(table: &'a Holder<'a>) -> Row<'a> {
    Row::new(table.task).with_part(Part::Table(table))
}

/// Tables of open files, sorted if there are keys.
struct Counts<'a> {
    tables: &'a Holders<'a>,
    order: Option<&'a [usize]>,
}

impl Rows for Counts<'_> {
    fn each(&self, take: &mut Take<'_>) -> io::Result<()> {
        match self.order {
            None => self.tables.iter().try_for_each(|t| take(Item::Row(&row(&t)))),
            Some(order) => {
                let mut all = order.iter().filter_map(|i| self.tables.get(*i));
                all.try_for_each(|t| take(Item::Row(&row(&t))))
            }
        }
    }
}
