//! `taskdiag ps`: ask, select, arrange, write.

use std::fs::File;
use std::path::Path;
use std::time::Instant;

use rustix::io::Errno;
use taskdiag::field::{Context, Row};
use taskdiag::wire::{Done, Info, StreamWriter};
use taskdiag::{Choice, Error, Request, Snapshot, query_each, query_with};

use crate::args::ps::{Args, Form, TreeStyle};
use crate::columns::{self, Column, ThreadColumns};
use crate::exit::{Exit, say};
use crate::output::terminal::Terminal;
use crate::output::{Sink, Table, Tally, csv, json, text};
use crate::plan::{self, Plan};
use crate::tree::{self, Tree};

/// Run it.
pub fn run(args: &Args) -> Result<(), Exit> {
    let begin = Instant::now();
    let saved = args.from.as_deref().map(read).transpose()?;
    let threads =
        args.threads || saved.as_ref().is_some_and(|s| s.stream().strategy().is_threads());
    let mut columns = columns(args, threads);
    let groups = plan::groups(&columns, &args.sort, &args.select, args.tree.is_some());
    let snapshot = match saved {
        Some(s) if args.threads && !s.stream().strategy().is_threads() => {
            return Err(Exit::Failed(format!(
                "the saved answer holds processes ('{}'), not threads: make it with \
                 'taskdiag dump --strategy all-thread'",
                s.stream().strategy()
            )));
        }
        Some(s) => s,
        None => ask(plan::plan(groups, &args.select, threads), args.engine)?,
    };
    let asked = Instant::now();
    columns::fit_pids(&mut columns, largest_pid(&snapshot, args.from.is_some()));

    let cx = Context::new(snapshot.stream().info(), threads);
    let mut rows = selected(&snapshot, args);
    crate::order::sort(&mut rows, &snapshot, &cx, &args.sort);
    let mut terminal = Terminal::detect(args.color, args.wide);
    terminal.width = args.width.or(terminal.width);
    let tree = args.tree.map(|style| {
        let style = match style {
            TreeStyle::Auto if terminal.lines => tree::LINES,
            _ => tree::ASCII,
        };
        Tree::new(&rows, &snapshot, style)
    });
    if let Some(t) = &tree {
        rows.clone_from(&t.rows);
    }

    let table = Table { snapshot: &snapshot, cx: &cx, columns: &columns, rows: &rows };
    let mut sink = Sink::stdout();
    let mut tally = Tally::new(columns.len());
    match args.form {
        Form::Text => {
            let options = text::Options { headers: args.headers, terminal };
            text::header(&mut sink, &columns, &options);
            text::rows(&mut sink, &table, tree.as_ref(), &options, &mut tally)?;
        }
        Form::Json | Form::JsonLines => {
            let lines = args.form == Form::JsonLines;
            json::rows(&mut sink, &table, lines, &mut tally)?;
        }
        Form::Csv => {
            csv::rows(&mut sink, &table, args.headers, &mut tally)?;
        }
    }
    sink.finish()?;
    if args.stats {
        crate::commands::stats::print(&snapshot, rows.len(), begin, asked);
    }
    verdict(&snapshot, rows.is_empty(), &tally, &columns)
}

/// Complete, empty, or partial?
fn verdict(
    snapshot: &Snapshot,
    empty: bool,
    tally: &Tally,
    columns: &[Column],
) -> Result<(), Exit> {
    let mut lines = tally.lines(columns);
    let error = snapshot.stream().done().error;
    if error != 0 {
        let why = Errno::from_raw_os_error(error.saturating_neg());
        lines.push(format!("the list ended early, so tasks are missing: {why}"));
    }
    match (lines.is_empty(), empty) {
        (false, _) => Err(Exit::Partial(lines)),
        (true, true) => Err(Exit::NoMatch),
        (true, false) => Ok(()),
    }
}

fn columns(args: &Args, threads: bool) -> Vec<Column> {
    if !args.columns.is_empty() {
        return args.columns.clone();
    }
    let shown = match args.thread_columns {
        // A saved answer that holds threads.
        ThreadColumns::None if threads && !args.threads => ThreadColumns::Tid,
        other => other,
    };
    args.view.columns(shown)
}

fn ask(plan: Plan, engine: Choice) -> Result<Snapshot, Exit> {
    Ok(match plan {
        Plan::One(request) => match query_with(&request, engine) {
            Err(Error::NoSuchProcess(pid)) => {
                say_missing(&[pid]);
                nobody(&request)?
            }
            other => other?,
        },
        Plan::Each(requests) => {
            let (snapshot, missing) = query_each(&requests, engine)?;
            say_missing(&missing);
            snapshot
        }
    })
}

/// Pids that were asked for by number and do not exist.
fn say_missing(pids: &[u32]) {
    for pid in pids {
        say(format_args!("taskdiag: there is no process {pid}"));
    }
}

/// The answer about a process that does not exist: an empty table is written as any other, with
/// its header or as an empty JSON document.
fn nobody(request: &Request) -> Result<Snapshot, Exit> {
    let mut w = StreamWriter::new();
    w.info(&Info {
        show_flags: request.groups.bits(),
        dump_strategy: request.strategy as u64,
        pid: request.pid,
        ..StreamWriter::blank_info()
    });
    Ok(Snapshot::parse(w.finish(Done::default()))?)
}

/// The largest pid there can be, as procps has it; of a saved answer, the largest there is.
fn largest_pid(snapshot: &Snapshot, saved: bool) -> u32 {
    let limit = || std::fs::read_to_string("/proc/sys/kernel/pid_max").ok()?.trim().parse().ok();
    match if saved { None } else { limit() } {
        Some(limit) => u32::saturating_sub(limit, 1),
        None => snapshot.tasks().map(|t| t.pid()).max().unwrap_or(0),
    }
}

/// Read a saved stream.
pub fn read(path: &Path) -> Result<Snapshot, Exit> {
    let result = if path == Path::new("-") {
        Snapshot::read_from(std::io::stdin().lock())
    } else {
        let file = File::open(path)
            .map_err(|e| Exit::Failed(format!("--from {}: {e}", path.display())))?;
        Snapshot::read_from(file)
    };
    result.map_err(|e| Exit::Failed(format!("--from {}: {e}", path.display())))
}

fn selected(snapshot: &Snapshot, args: &Args) -> Vec<u32> {
    if args.select.is_everything() {
        return (0..snapshot.tasks().len() as u32).collect();
    }
    let all = snapshot.tasks().enumerate();
    all.filter(|(_, t)| args.select.matches(&Row::new(*t))).map(|(i, _)| i as u32).collect()
}
