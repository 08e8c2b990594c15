//! `taskdiag ps`: ask, select, arrange, write.

use std::time::Instant;

use taskdiag::field::TASKS;
use taskdiag::view::{Query, Tasks};
use taskdiag::{Groups, Members};

use crate::answer;
use crate::args::ps::{Args, Form, TreeStyle};
use crate::columns::{self, Column, ThreadColumns};
use crate::exit::Exit;
use crate::output::terminal::Terminal;
use crate::output::{Sink, Table, Tally, csv, json, text};
use crate::tree::{self, Tree};

/// Run it.
pub fn run(args: &Args) -> Result<(), Exit> {
    let begin = Instant::now();
    let mut terminal = Terminal::detect(args.color, args.wide);
    terminal.width = args.width.or(terminal.width);
    let snapshot =
        args.source.get(|| query(args, &columns(args, args.threads), &terminal, args.threads))?;
    let is_threads = snapshot.stream().strategy().is_threads();
    let saved = args.source.from.is_some();
    if saved && args.threads && !is_threads {
        return Err(Exit::Failed(format!(
            "the saved answer holds processes ('{}'), not threads: make it with \
             'taskdiag dump --strategy all-thread'",
            snapshot.stream().strategy()
        )));
    }
    let threads = args.threads || saved && is_threads;
    let asked = Instant::now();
    let mut columns = columns(args, threads);
    columns::fit_pids(&mut columns, answer::largest_pid(&snapshot, saved));

    let query = query(args, &columns, &terminal, threads);
    let view = query.view(&snapshot);
    let tree = args.tree.map(|style| {
        let style = match style {
            TreeStyle::Auto if terminal.lines => tree::LINES,
            _ => tree::ASCII,
        };
        Tree::new(view.tasks(), &snapshot, style)
    });
    let rows = tree.as_ref().map_or(view.tasks(), |t| &t.rows);

    let shown = Tasks { snapshot: &snapshot, indices: rows };
    let table = Table { cx: view.cx(), columns: &columns, rows: &shown };
    let mut sink = Sink::stdout();
    let mut tally = Tally::new(columns.len());
    match args.form {
        Form::Text => {
            let options = text::Options { headers: args.headers, terminal };
            text::header(&mut sink, &columns, &options);
            text::rows(&mut sink, &table, tree.as_ref(), &options, &mut tally, None)?;
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
    answer::verdict(&snapshot, rows.is_empty(), &view.left(), &tally, &columns)
}

fn query(args: &Args, columns: &[Column], terminal: &Terminal, threads: bool) -> Query {
    let mut query = Query::new(&TASKS, columns.iter().map(|c| c.field));
    query.select = args.select.clone();
    query.filter = args.filter.clone();
    query.sort = args.sort.clone();
    query.threads = threads;
    if args.tree.is_some() {
        query.groups = Groups::BASE;
    }
    // A tree looks at who began before whom, colours at what kind of process it is.
    if args.tree.is_some() || terminal.color {
        query.members = Members::ALL;
    }
    query
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
