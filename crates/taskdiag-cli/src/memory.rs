//! `taskdiag memory`: how much memory each process, user or other group has, the largest first.

use std::io;
use std::time::Instant;

use taskdiag::Members;
use taskdiag::field::{Field, MEMORY, Value};
use taskdiag::view::Query;

use crate::answer;
use crate::args::memory::MemoryArgs;
use crate::columns::{self, Column};
use crate::exit::Exit;
use crate::order;
use crate::output::Form;
use crate::output::terminal::Terminal;
use crate::output::text::{self, Totals};
use crate::output::{self, Item, Rows, Sink, Table, Take, Tally};
use crate::units::Units;

/// Run it.
pub fn run(args: &MemoryArgs) -> Result<(), Exit> {
    let begin = Instant::now();
    let table = &args.table;
    let terminal = table.terminal();
    let mut columns = columns(args)?;
    let query = query(args, &columns)?;
    let snapshot = table.source.get(|| query.clone())?;
    let asked = Instant::now();
    columns::fit_pids(&mut columns, answer::largest_pid(&snapshot, table.source.from.is_some()));
    let units = match table.units {
        Units::Auto if terminal.person => Units::Human,
        units => units,
    };
    units.apply(&mut columns);

    let view = query.view(&snapshot);
    let cx = view.cx();
    let mut tally = Tally::new(columns.len());
    let rows = view.rows(false, &mut |row, c, m| tally.count_in(&Item::Row(row), c, m));

    let mut sink = Sink::stdout();
    let shown = Table { cx, columns: &columns, rows: &*rows };
    let barred = match table.form {
        Form::Text if terminal.person => Barred::new(&shown, &terminal),
        _ => None,
    };
    if let Some(b) = &barred {
        tally.insert(b.at);
    }
    let count = match table.form {
        Form::Text => {
            let options = text::Options::new(table.headers, terminal);
            let shown = match &barred {
                Some(b) => Table { columns: &b.columns, rows: b, ..shown },
                None => shown,
            };
            let mut totals = Totals::new(shown.columns);
            text::header(&mut sink, shown.columns, &options);
            let count =
                text::rows(&mut sink, &shown, None, &options, &mut tally, Some(&mut totals))?;
            if table.headers && count > 1 {
                totals.write(&mut sink, cx, shown.columns, &options);
            }
            count
        }
        _ => output::rows(&mut sink, &table.form, &shown, table.headers, &mut tally)?,
    };
    sink.finish()?;
    if table.stats {
        crate::stats::print(&snapshot, view.tasks().len(), begin, asked);
    }
    if count == 0 && tally.is_empty() {
        answer::say_no_memory(&snapshot, &table.select);
    }
    let columns = barred.as_ref().map_or(&columns[..], |b| &b.columns);
    answer::verdict(
        &snapshot,
        count == 0,
        &view.left(),
        &tally,
        columns,
        table.source.asked(&table.select),
    )
}

fn columns(args: &MemoryArgs) -> Result<Vec<Column>, Exit> {
    if !args.table.columns.is_empty() {
        return Ok(args.table.columns.clone());
    }
    let Some(by) = &args.by else {
        return columns::view(&MEMORY, "pid,user,swap:7,uss:7,pss:7,rss:7,args");
    };
    let mut columns = columns::view(&MEMORY, "procs,swap:7,uss:7,pss:7,rss:7")?;
    if args.table.form != Form::Text {
        columns.extend(columns::view(&MEMORY, "lacking")?);
    }
    columns.insert(if by.is_left() { columns.len() } else { 0 }, by.clone());
    Ok(columns)
}

fn query(args: &MemoryArgs, columns: &[Column]) -> Result<Query, Exit> {
    let mut query = Query::new(&MEMORY, columns.iter().map(|c| c.field));
    query.select = args.table.select.clone();
    query.filter = args.table.filter.clone();
    query.by = args.by.as_ref().map(|c| c.field);
    query.sort = match args.table.sort.is_empty() {
        true => order::keys(&MEMORY, vec!["-pss", "-rss"])?,
        false => args.table.sort.clone(),
    };
    query.members = Members::ALL;
    Ok(query)
}

const BAR: usize = 12;

/// The field of the bar, which is drawn in the column before the last one.
static BAR_FIELD: Field = Field::drawn("bar", " ", BAR, "pss, else rss", "Share of the largest");

/// Rows with a bar in each. It shows the share of the largest value, in the column that the rows
/// are sorted by.
struct Barred<'a> {
    inner: Table<'a>,
    columns: Vec<Column>,
    at: usize,
    of: usize,
    largest: u64,
    blocks: bool,
}

impl<'a> Barred<'a> {
    /// The rows with bars, or `None` if there is no column to draw.
    fn new(table: &Table<'a>, terminal: &Terminal) -> Option<Barred<'a>> {
        let of = ["pss", "rss", "uss"]
            .into_iter()
            .find_map(|n| table.columns.iter().position(|c| c.field.name == n))?;
        let at = table.columns.len() - 1;
        let mut columns = table.columns.to_vec();
        let form = BAR_FIELD.text;
        let (name, header) = (BAR_FIELD.name.to_owned(), BAR_FIELD.header.to_owned());
        let key = name.clone();
        columns.insert(
            at,
            Column {
                name,
                key,
                header,
                width: BAR,
                fixed: true,
                joined: false,
                field: &BAR_FIELD,
                form,
                align: BAR_FIELD.align,
            },
        );
        let mut largest = 1;
        let look = &mut |item: Item<'_, '_>| {
            if let Value::Uint(v) = item.value(table.cx, table.columns[of].field, of) {
                largest = v.max(largest);
            }
            Ok(())
        };
        table.rows.each(look).ok()?;
        Some(Barred { inner: *table, columns, at, of, largest, blocks: terminal.lines })
    }
    fn bar(&self, value: &Value<'_>) -> Value<'static> {
        let Value::Uint(v) = value else { return Value::bytes(b"") };
        let steps = if self.blocks { 8 } else { 1 };
        let eighths = (u128::from(*v) * (BAR * steps) as u128 / u128::from(self.largest)) as usize;
        let mut out = String::new();
        for _ in 0..eighths / steps {
            out.push(if self.blocks { '\u{2588}' } else { '#' });
        }
        if self.blocks && eighths % 8 > 0 {
            // The left blocks go from U+258F for one eighth to U+2589 for seven.
            out.extend(char::from_u32(0x2590 - (eighths % 8) as u32));
        }
        Value::Bytes { data: out.into_bytes().into(), cut: false }
    }
}

impl Rows for Barred<'_> {
    fn each(&self, take: &mut Take<'_>) -> io::Result<()> {
        let Table { cx, columns, rows } = self.inner;
        rows.each(&mut |item| {
            let bar = self.bar(&item.value(cx, columns[self.of].field, self.of));
            take(Item::With(&item, self.at, &bar))
        })
    }
}
