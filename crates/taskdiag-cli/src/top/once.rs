//! `--once`: two answers, one delay apart, and then the rows as text or JSON.

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
        crate::interrupt::rest();
        std::thread::sleep(args.delay);
        app.scan()?;
    }
    app.page = args.rows.unwrap_or(usize::MAX / 2);
    (app.cursor, app.offset) = (0, 0);
    app.look();
    let color = if args.color { Color::Auto } else { Color::Never };
    let terminal = Terminal::detect(color, false);
    app.width = terminal.width.unwrap_or(usize::from(u16::MAX)).min(usize::from(u16::MAX)) as u16;
    let Some(frame) = app.scanner.frame() else { return Err(Exit::NoMatch) };
    for caveat in frame.snapshot.caveats().iter().filter(|c| !c.is_lack()) {
        say(format_args!("taskdiag: {caveat}"));
    }
    args.units.apply(&mut app.shape.columns);
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
            for line in lines.iter().filter(|l| !l.starts_with("Rows ")) {
                sink.buf().extend_from_slice(line.as_bytes());
                sink.buf().push(b'\n');
            }
            sink.buf().push(b'\n');
            let options = text::Options::new(true, terminal);
            text::header(&mut sink, &app.shape.columns, &options);
            text::rows(&mut sink, &table, None, &options, &mut tally, None)?;
        }
    }
    sink.finish()?;
    let is_empty = app.visible.is_empty() && sums.is_empty();
    answer::verdict(frame.snapshot, is_empty, &[], &tally, &app.shape.columns, args.asked())
}
