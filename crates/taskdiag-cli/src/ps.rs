//! `taskdiag ps`: ask, select, arrange, write.

use std::time::Instant;

use taskdiag::Members;
use taskdiag::field::Context;

use crate::answer;
use crate::args::ps::{Args, Form, TreeStyle};
use crate::columns::{self, Column, ThreadColumns};
use crate::exit::Exit;
use crate::output::terminal::Terminal;
use crate::output::{Sink, Table, Tally, Tasks, csv, json, text};
use crate::plan;
use crate::tree::{self, Tree};

/// Run it.
pub fn run(args: &Args) -> Result<(), Exit> {
    let begin = Instant::now();
    let saved = args.from.as_deref().map(answer::read).transpose()?;
    let threads =
        args.threads || saved.as_ref().is_some_and(|s| s.stream().strategy().is_threads());
    let mut columns = columns(args, threads);
    let groups = plan::groups(&columns, &args.sort, &args.select, args.tree.is_some());
    let mut terminal = Terminal::detect(args.color, args.wide);
    terminal.width = args.width.or(terminal.width);
    // A tree looks at who began before whom, colours at what kind of process it is.
    let members = match args.tree.is_some() || terminal.color {
        true => Members::ALL,
        false => plan::members(&columns, &args.sort, &args.select),
    };
    let snapshot = match saved {
        Some(s) if args.threads && !s.stream().strategy().is_threads() => {
            return Err(Exit::Failed(format!(
                "the saved answer holds processes ('{}'), not threads: make it with \
                 'taskdiag dump --strategy all-thread'",
                s.stream().strategy()
            )));
        }
        Some(s) => s,
        None => {
            let mut plan = plan::plan(groups, &args.select, threads);
            plan.requests(|r| {
                args.limits.put_into(r);
                r.members = members;
            });
            answer::ask(plan, args.engine)?
        }
    };
    let asked = Instant::now();
    columns::fit_pids(&mut columns, answer::largest_pid(&snapshot, args.from.is_some()));

    let cx = Context::of(&snapshot, threads);
    let mut rows = answer::selected(&snapshot, &args.select);
    crate::order::sort(&mut rows, &snapshot, &cx, &args.sort);
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

    let shown = Tasks { snapshot: &snapshot, indices: &rows };
    let table = Table { cx: &cx, columns: &columns, rows: &shown };
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
    answer::verdict(&snapshot, rows.is_empty(), &tally, &columns)
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
