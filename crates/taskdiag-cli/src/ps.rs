//! `taskdiag ps`: gets, selects, sorts and writes processes and threads.

use std::borrow::Cow;
use std::collections::HashMap;
use std::time::Instant;

use taskdiag::field::{Row, TASKS, TextForm};
use taskdiag::view::{Query, Rows, Selection, Tasks, View};
use taskdiag::{Groups, Members, Snapshot, Tick};

use crate::answer;
use crate::args::procps::Instead;
use crate::args::ps::{PsArgs, TreeStyle};
use crate::columns::{self, Column};
use crate::exit::{self, Exit};
use crate::forest::{self, Tree};
use crate::output::Form;
use crate::output::terminal::{self, Terminal};
use crate::output::{self, Sink, Table, Tally, text};
use crate::with_threads::WithThreads;

/// Run it.
pub fn run(args: &PsArgs) -> Result<(), Exit> {
    if let Some(instead) = args.instead {
        return print(instead);
    }
    let begin = Instant::now();
    let mut terminal = Terminal::detect(args.color, true);
    terminal.color &= !args.strict;
    let snapshot = snapshot(args, &terminal)?;
    let is_threads = snapshot.stream().strategy().is_threads();
    let saved = args.source.from.is_some();
    if saved && args.threads && !is_threads {
        return Err(crate::saved::no_threads());
    }
    let threads = args.threads || saved && is_threads;
    let asked = Instant::now();
    let mut columns = columns(args, threads);
    columns::fit_pids(&mut columns, answer::largest_pid(&snapshot, saved));
    args.units.apply(&mut columns);

    let query = query(args, &columns, &terminal, threads);
    let view = query.view(&snapshot);
    let rows = in_order(args, &view, &snapshot);
    let rows = match args.tree {
        Some(TreeStyle::Ascii | TreeStyle::Indented) if args.sort.is_empty() => {
            by_start(rows.into_owned(), &snapshot).into()
        }
        _ => rows,
    };
    let tree = args.tree.map(|style| {
        let style = match style {
            TreeStyle::Auto if terminal.lines => forest::LINES,
            TreeStyle::Indented => forest::INDENTED,
            TreeStyle::Auto => forest::PLAIN,
            TreeStyle::Ascii => forest::ASCII,
        };
        Tree::new(&rows, &snapshot, style)
    });
    let rows = tree.as_ref().map_or(&rows[..], |t| &t.rows);

    let cells = text::Cells::fit(&columns, screen(args));
    if args.form == Form::Text && !cells.wide_signals {
        for c in columns.iter_mut().filter(|c| c.form == TextForm::Signals) {
            if !c.fixed {
                c.width = text::SHORT_SIGNALS;
            } else {
                // A typed width was replaced by the width of all digits.
                c.width -= text::ALL_SIGNALS - text::SHORT_SIGNALS;
                if !c.header.is_empty() {
                    c.header = format!("{:>1$}", c.header.trim_start(), text::SHORT_SIGNALS);
                }
            }
        }
    }
    let shown = Tasks { snapshot: &snapshot, indices: rows };
    let threads_too = args.both.then(|| threads_of(args, &columns, &terminal)).transpose()?;
    let both =
        threads_too.as_ref().map(|t| WithThreads::new(&columns, view.cx(), &snapshot, rows, t));
    let shown: &dyn Rows = both.as_ref().map_or(&shown, |b| b as &dyn Rows);
    let table = Table { cx: view.cx(), columns: &columns, rows: shown };
    let mut sink = Sink::stdout();
    let mut tally = Tally::new(columns.len());
    match args.form {
        Form::Text => {
            let page = args.page.map(|lines| lines.saturating_sub(1).max(1));
            let page = page.filter(|_| args.headers);
            let options = text::Options {
                headers: args.headers,
                terminal,
                cells: Some(cells),
                plain: args.strict,
                delimiter: args.delimiter,
                page,
            };
            text::header(&mut sink, &columns, &options);
            text::rows(&mut sink, &table, tree.as_ref(), &options, &mut tally, None)?;
        }
        _ => _ = output::rows(&mut sink, &args.form, &table, args.headers, &mut tally)?,
    }
    sink.finish()?;
    if args.stats {
        crate::stats::print(&snapshot, rows.len(), begin, asked);
    }
    let asked = args.source.asked(&args.select);
    let end = answer::verdict(&snapshot, rows.is_empty(), &view.left(), &tally, &columns, asked);
    match end {
        // procps has no exit code for that, but the reasons are still printed.
        Err(Exit::Partial(partial)) if args.strict => {
            partial.say();
            if partial.is_empty { Err(Exit::NoMatch) } else { Ok(()) }
        }
        end => end,
    }
}

/// The saved answer, or one of this machine.
fn snapshot(args: &PsArgs, terminal: &Terminal) -> Result<Snapshot, Exit> {
    let columns = columns(args, args.threads);
    let query = query(args, &columns, terminal, args.threads);
    exit::quietly(args.strict, || args.source.get(|| query.clone()))
}

/// The threads of all processes of the selection.
fn threads_of(args: &PsArgs, columns: &[Column], terminal: &Terminal) -> Result<Snapshot, Exit> {
    args.source.get(|| {
        let mut query = query(args, columns, terminal, true);
        // The selection was applied to the processes, so their threads need no check.
        if query.select.only_pids().is_none() {
            query.select = Selection::default();
        }
        query
    })
}

fn query(args: &PsArgs, columns: &[Column], terminal: &Terminal, threads: bool) -> Query {
    let mut query = Query::new(&TASKS, columns.iter().map(|c| c.field));
    query.select = args.select.clone();
    query.filter = args.filter.clone();
    query.sort = args.sort.clone();
    query.threads = threads;
    if args.tree.is_some() {
        query.groups = Groups::BASE;
    }
    // A tree needs the start times, and colours need the kind of process. WithThreads are in BASE.
    if args.tree.is_some() || terminal.color {
        query.members = Members::of(Groups::BASE, &[]);
    }
    query
}

fn columns(args: &PsArgs, threads: bool) -> Vec<Column> {
    match args.columns.is_empty() {
        true => columns::default_view(threads, args.form != Form::Text),
        false => args.columns.clone(),
    }
}

/// The rows in sorted order, or in the order in which their pids were typed.
fn in_order<'v>(args: &PsArgs, view: &'v View<'_>, snapshot: &Snapshot) -> Cow<'v, [u32]> {
    if !args.as_listed {
        return Cow::Borrowed(view.tasks());
    }
    let pid = |i: &u32| snapshot.stream().get(*i as usize).map(|t| t.tgid());
    Cow::Owned(as_listed(view.tasks(), &args.select.pids, pid))
}

/// The rows in the order of a list of pids. If a pid is in the list twice, its first place counts.
/// The places are a table, because the list may have as many pids as the machine has processes.
fn as_listed(rows: &[u32], listed: &[u32], mut pid: impl FnMut(&u32) -> Option<u32>) -> Vec<u32> {
    let mut places = HashMap::with_capacity(listed.len());
    for (place, pid) in listed.iter().enumerate() {
        places.entry(*pid).or_insert(place);
    }
    let mut rows = rows.to_vec();
    rows.sort_by_cached_key(|row| pid(row).and_then(|pid| places.get(&pid).copied()));
    rows
}

/// The rows sorted by start time, the order in which procps lists children of a process.
fn by_start(mut rows: Vec<u32>, snapshot: &Snapshot) -> Vec<u32> {
    let tick = Tick::of(snapshot.stream().info());
    let start = |i: &u32| {
        let task = snapshot.stream().get(*i as usize)?;
        Some(tick.floor(Row::new(task).base?.start_time_ns()?))
    };
    rows.sort_by_key(start);
    rows
}

/// The width of a line in cells. As in procps, COLUMNS counts in a pipe, too.
fn screen(args: &PsArgs) -> usize {
    let env = std::env::var("COLUMNS").ok().and_then(|c| c.parse().ok());
    let env = env.filter(|c| (1..UNLIMITED).contains(c));
    let width = args.width.or(env).or_else(terminal::window_width).unwrap_or(UNLIMITED);
    match args.wide {
        0 => width,
        1 => width.max(132),
        _ => UNLIMITED,
    }
}

/// A width larger than any line. Arguments may have megabytes.
const UNLIMITED: usize = 1 << 40;

/// Prints information that was requested instead of processes.
fn print(what: Instead) -> Result<(), Exit> {
    let mut out = Vec::new();
    match what {
        Instead::Version => {
            out.extend_from_slice(concat!("taskdiag ", env!("CARGO_PKG_VERSION"), "\n").as_bytes());
        }
        Instead::Columns => {
            for named in TASKS.all_names() {
                out.extend_from_slice(format!("{:<12} {}\n", named.name, named.header).as_bytes());
            }
        }
        Instead::Help => {
            out.extend_from_slice(
                crate::args::ps::command().render_long_help().to_string().as_bytes(),
            );
        }
    }
    crate::output::sink::write_all(&out)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_in_the_order_of_the_list_and_each_is_looked_at_once() {
        // Rows of the first pids that are listed twice, and threads, which stay together.
        let pids = [7, 8, 8, 9, 7];
        let of = |row: &u32| pids.get(*row as usize).copied();
        assert_eq!(as_listed(&[0, 1, 2, 3, 4], &[9, 8, 7, 9, 5, 8], of), [3, 1, 2, 0, 4]);
        // A second time for each would be 10,000,000,000.
        let many: Vec<u32> = (0..100_000).collect();
        let listed: Vec<u32> = many.iter().rev().copied().collect();
        let mut looks = 0;
        let begun = Instant::now();
        let sorted = as_listed(&many, &listed, |row| {
            looks += 1;
            Some(*row)
        });
        assert_eq!((sorted, looks), (listed, many.len()));
        assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
    }
}
