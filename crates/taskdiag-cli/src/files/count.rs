//! `taskdiag files --count`: how many files each process has open. No descriptor is looked at.

use std::io;
use std::time::Instant;

use taskdiag::field::{self, Context, FILES, Missing, Part, Row};
use taskdiag::files::{Gap, Holder, Holders};
use taskdiag::view::{Filter, Query, Ranks, Sieve};
use taskdiag::{Group, Groups, Members, Snapshot};

use crate::answer;
use crate::args::files::Args;
use crate::columns;
use crate::exit::Exit;
use crate::output::{Item, Rows, Table, Take, Tally, tally};

/// Run it.
pub fn run(args: &Args) -> Result<(), Exit> {
    let begin = Instant::now();
    let (table, select) = (&args.table, &args.select);
    let columns = |unshared: bool| match table.columns.is_empty() {
        true if unshared => columns::view(&FILES, "pid,tid,threads,fds,command"),
        true => columns::view(&FILES, "pid,threads,fds,command"),
        false => Ok(table.columns.clone()),
    };
    let asked_columns = columns(false)?;
    let snapshot = table.source.get(|| {
        let fields = asked_columns.iter().map(|c| c.field);
        let keys = table.sort.iter().map(|k| k.field);
        let fields = fields.chain(keys).chain(table.filter.iter().flat_map(Filter::fields));
        let mut groups = field::groups_of(fields.clone());
        // The count is enough to know who shares.
        groups = (groups - Groups::FD) | Groups::FD_COUNT | select.process_groups();
        let mut query = Query::new(&FILES, []);
        query.groups = groups;
        query.select.pids = select.only_pids().unwrap_or(&[]).to_vec();
        query.threads = true;
        query.members = match select.process_groups().is_empty() {
            true => field::members_of(fields),
            false => Members::ALL,
        };
        query
    })?;
    let asked = Instant::now();
    let (mut tables, gaps) = Holders::new(&snapshot, Group::FdCount);
    if !select.takes_all_processes() {
        tables.retain(|t| select.may_match(&Row::new(t.task)));
    }
    let cx = Context::of(&snapshot, snapshot.stream().strategy().is_threads());
    let sieve = Sieve::new(table.filter.as_ref());
    if table.filter.is_some() {
        tables.retain(|t| sieve.passes(&cx, &row(t)));
    }
    let mut columns = columns(tables.iter().any(|t| t.is_unshared()))?;
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
        crate::commands::stats::print(&snapshot, tables.len(), begin, asked);
    }
    let selected = |g: &&Gap<'_>| select.may_match(&Row::new(g.task));
    let mut lines = lacking(&snapshot, gaps.iter().filter(selected), "fds");
    lines.extend(lacking(&snapshot, tables.doubts().iter().filter(selected), SHARING));
    if !snapshot.stream().asked().has(Group::FdCount) {
        let count = snapshot.tasks().len();
        lines = tally::line(Missing::NotAsked, count, "fds", Group::FdCount, &snapshot)
            .into_iter()
            .collect();
    }
    lines.extend(tally::left_out(&sieve.left(), &snapshot));
    lines.extend(tally.lines(&columns, &snapshot));
    answer::verdict_of(&snapshot, count == 0, lines)
}

/// What is not known of threads that are taken to share the files of their process.
pub const SHARING: &str = "whether they have open files of their own (shown as if they had none)";

/// Lines that say of how many tasks something is not known, and why.
pub fn lacking<'a>(
    snapshot: &Snapshot,
    gaps: impl Iterator<Item = &'a Gap<'a>>,
    what: &str,
) -> Vec<String> {
    tally::lines_of(gaps.map(|g| (Group::FdCount, g.reason)), |_| what, snapshot)
}

fn row<'a>(table: &'a Holder<'a>) -> Row<'a> {
    Row { part: Part::Table(table), ..Row::new(table.task) }
}

/// Tables of open files, in this order, or as they are.
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
