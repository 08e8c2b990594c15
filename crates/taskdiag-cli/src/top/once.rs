//! `--once` and `--batch`: two answers, one delay apart, and then the rows as text or JSON; with
//! `--batch`, again after each delay.

use std::io;

use taskdiag::view::{Item, Rows, Take};

use super::app::App;
use super::head;
use super::scan::Frame;
use crate::answer;
use crate::args::top::TopArgs;
use crate::exit::{Exit, say};
use crate::output::terminal::{Color, Terminal};
use crate::output::{Form, Sink, Table, Tally, json, text};

/// The rows that are printed.
struct Printed<'a> {
    frame: Frame<'a>,
    tasks: &'a [u32],
    sums: &'a [taskdiag::view::Sum],
}

impl Rows for Printed<'_> {
    fn each(&self, take: &mut Take<'_>) -> io::Result<()> {
        let rows = self.tasks.iter().filter_map(|i| self.frame.row(*i as usize));
        rows.into_iter().try_for_each(|row| take(Item::Row(&row)))?;
        self.sums.iter().try_for_each(|sum| take(Item::Sum(sum)))
    }
}

/// Run it.
pub fn run(args: &TopArgs, app: &mut App) -> Result<(), Exit> {
    app.scan()?;
    // A recorded answer has its rates already.
    if !app.scanner.is_replay() {
        rest(app);
        app.scan()?;
    }
    app.page = args.rows.unwrap_or(usize::MAX / 2);
    (app.cursor, app.offset) = (0, 0);
    let color = if args.color { Color::Auto } else { Color::Never };
    let mut terminal = Terminal::detect(color, false);
    match args.width {
        Some(usize::MAX) => terminal.width = None,
        Some(width) => terminal.width = Some(width),
        None => {}
    }
    app.width = terminal.width.unwrap_or(usize::from(u16::MAX)).min(usize::from(u16::MAX)) as u16;
    let Some(frame) = app.scanner.frame() else { return Err(Exit::NoMatch) };
    for caveat in frame.snapshot.caveats().iter().filter(|c| !c.is_lack()) {
        say(format_args!("taskdiag: {caveat}"));
    }
    args.units.apply(&mut app.shape.columns);
    let mut left = if args.batch { args.refreshes } else { Some(1) };
    loop {
        left = left.map(|n| n - 1);
        let is_last = left == Some(0);
        let end = print(args, app, &terminal, is_last)?;
        if is_last {
            return end;
        }
        rest(app);
        // A recording has an end.
        let shown = app.scanner.scans;
        app.go_on()?;
        if app.scanner.is_replay() && app.scanner.scans == shown {
            return end;
        }
    }
}

/// Waits for the next answer. Ctrl-C just ends the program.
fn rest(app: &App) {
    crate::interrupt::rest();
    std::thread::sleep(app.interval());
}

/// Prints an answer. The result says which data the answer lacks.
fn print(
    args: &TopArgs,
    app: &mut App,
    terminal: &Terminal,
    is_last: bool,
) -> Result<Result<(), Exit>, Exit> {
    app.look();
    let Some(frame) = app.scanner.frame() else { return Err(Exit::NoMatch) };
    let sums = &app.rows.sums[..app.rows.sums.len().min(app.page)];
    let printed = Printed { frame, tasks: &app.visible, sums };
    let table = Table { cx: frame.cx, columns: &app.shape.columns, rows: &printed };
    let mut sink = Sink::stdout();
    let mut tally = Tally::new(app.shape.columns.len());
    crate::interrupt::answered();
    match args.form {
        Form::Json => _ = json::rows(&mut sink, &table, false, &mut tally)?,
        _ => {
            let lines = head::lines(app);
            for line in lines.iter().filter(|l| !l.text.starts_with("Rows ")) {
                sink.buf().extend_from_slice(line.text.as_bytes());
                sink.buf().push(b'\n');
            }
            sink.buf().push(b'\n');
            let options = text::Options::new(true, *terminal);
            text::header(&mut sink, &app.shape.columns, &options);
            text::rows(&mut sink, &table, None, &options, &mut tally, None)?;
            if !is_last {
                sink.buf().push(b'\n');
            }
        }
    }
    sink.finish()?;
    let is_empty = app.visible.is_empty() && sums.is_empty();
    Ok(answer::verdict(frame.snapshot, is_empty, &[], &tally, &app.shape.columns, args.asked()))
}
