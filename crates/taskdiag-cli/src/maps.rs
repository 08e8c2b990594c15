//! `taskdiag maps`: gets, selects, sorts and writes memory mappings.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use taskdiag::field::{self, Context, MAPS, Map, Missing, Part, Row, TASKS};
use taskdiag::view::{self, Mappings, Query};
use taskdiag::{Members, Reason, Snapshot};

use crate::answer;
use crate::args::maps::{MapsArgs, MapsView};
use crate::columns::{self, Column};
use crate::exit::Exit;
use crate::order::{self, Key};
use crate::output::Form;
use crate::output::maplines::MapLines;
use crate::output::text::{self, Totals};
use crate::output::{self, Item, Sink, Table, Tally};
use crate::units::Units;

/// Run it.
pub fn run(args: &MapsArgs) -> Result<(), Exit> {
    let begin = Instant::now();
    let table = &args.table;
    let alone = table.select.only_pids().is_some_and(|p| p.len() == 1);
    let mut columns = columns(args, alone)?;
    let titled = alone && table.form == Form::Text && table.headers && args.by.is_none();
    let query = |columns: &[Column]| query(args, columns, titled);
    let snapshot = {
        let query = query(&columns)?;
        table.source.get(|| query)?
    };
    let asked = Instant::now();
    columns::fit_pids(&mut columns, answer::largest_pid(&snapshot, table.source.from.is_some()));

    let gaps = table.form != Form::Text && args.by.is_none();
    if args.view == MapsView::Everything && table.columns.is_empty() && args.by.is_none() {
        let query = query(&columns)?;
        drop_unknown(&mut columns, &query.view(&snapshot));
    }
    table.units.apply(&mut columns);
    let query = query(&columns)?;
    let view = query.view(&snapshot);
    let cx = view.cx();
    let all = view.mappings(gaps);
    let mut tally = Tally::new(columns.len());
    if !gaps {
        count_gaps(&all, &columns, cx, &mut tally);
    }
    let rows = view.rows(gaps, &mut |row, c, m| tally.count_in(&Item::Row(row), c, m));

    let shown = Table { cx, columns: &columns, rows: &*rows };
    let mut sink = Sink::stdout();
    let count = match table.form {
        Form::Text => {
            let options = text::Options::new(table.headers, table.terminal());
            if titled {
                title(sink.buf(), cx, &snapshot, view.tasks());
            }
            text::header(&mut sink, &columns, &options);
            let mut totals = Totals::new(&columns);
            let plain = options.terminal.width.is_none() && !options.terminal.color;
            let count = if plain && args.is_default_view() && table.units == Units::Auto {
                by_hand(&mut sink, &shown, &all, &options, &mut tally, &mut totals)?
            } else {
                text::rows(&mut sink, &shown, None, &options, &mut tally, Some(&mut totals))?
            };
            if table.headers && count > 0 {
                totals.write(&mut sink, cx, &columns, &options);
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
    answer::verdict(
        &snapshot,
        count == 0,
        &view.left(),
        &tally,
        &columns,
        table.source.asked(&table.select),
    )
}

/// Writes the default view directly from the records. Only unusual rows go through values and
/// cells.
fn by_hand(
    sink: &mut Sink,
    table: &Table<'_>,
    all: &Mappings<'_>,
    options: &text::Options,
    tally: &mut Tally,
    totals: &mut Totals,
) -> io::Result<usize> {
    let size = table.columns.iter().position(|c| c.field.name == "size").unwrap_or(0);
    let mut by_hand = MapLines::new((size > 1).then(|| table.columns[0].width));
    let mut odd = text::Lines::new(table, None, options);
    let mut count = 0;
    all.each_row(&mut |row| {
        match by_hand.line(sink.buf(), row) {
            Some(bytes) => {
                totals.begin(row);
                totals.add(size, bytes);
                count += 1;
            }
            None => odd.write(sink.buf(), &Item::Row(row), tally, Some(totals)),
        }
        sink.settle()
    })?;
    Ok(count + odd.count)
}

/// A field of tasks that exists.
fn field(name: &str) -> &'static field::Field {
    TASKS.find(name).expect("a field of the table").field
}

const EVERYTHING: &str = "address,perm,offset,device,inode,size,rss,pss,pss_dirty,shared_clean,\
     shared_dirty,private_clean,private_dirty,referenced,anonymous,ksm,lazyfree,anon_huge,\
     shmem_huge,file_huge,shared_hugetlb,private_hugetlb,swap,swap_pss,locked,thp_eligible,\
     protection_key,vmflags,mapping";

fn columns(args: &MapsArgs, alone: bool) -> Result<Vec<Column>, Exit> {
    if !args.table.columns.is_empty() {
        return Ok(args.table.columns.clone());
    }
    let text = args.table.form == Form::Text;
    if let Some(by) = &args.by {
        let sums = match args.view {
            MapsView::Default => "procs,maps,kbytes",
            MapsView::Extended => "procs,maps,kbytes,rss=RSS,dirty",
            MapsView::Everything => "procs,maps,kbytes,rss,pss,uss,swap",
        };
        let mut columns = columns::view(&MAPS, sums)?;
        let at = if by.is_left() { columns.len() } else { 0 };
        columns.insert(at, by.clone());
        if !text {
            columns.extend(columns::view(&MAPS, "lacking")?);
        }
        return Ok(columns);
    }
    let view = match (args.view, text) {
        (MapsView::Default, true) => "address,kbytes,mode,mapping",
        (MapsView::Extended, true) => "address,kbytes,rss=RSS,dirty,mode,mapping",
        (MapsView::Default, false) => {
            "address,end,size,perms,offset,device,inode,kind,path,deleted"
        }
        (MapsView::Extended, false) => {
            "address,end,size,rss,dirty,perms,offset,device,inode,kind,path,deleted"
        }
        (MapsView::Everything, _) => EVERYTHING,
    };
    // Text about one process has a title that names it. In all other output, each row needs the
    // pid.
    let view = if alone && text { view.to_owned() } else { format!("pid,{view}") };
    columns::view(&MAPS, &view)
}

/// The query. If `titled` is true, a title names the process above its mappings.
fn query(args: &MapsArgs, columns: &[Column], titled: bool) -> Result<Query, Exit> {
    let mut query = Query::new(&MAPS, columns.iter().map(|c| c.field));
    query.select = args.table.select.clone();
    query.filter = args.table.filter.clone();
    query.by = args.by.as_ref().map(|c| c.field);
    query.sort = keys(args)?;
    query.members = Members::ALL;
    if titled {
        query.groups |= field("args").groups;
    }
    if !args.paths.is_empty() || args.deleted {
        let (paths, deleted) = (args.paths.clone(), args.deleted);
        query.keep = Some(Arc::new(move |row| is_wanted(row, &paths, deleted)));
    }
    Ok(query)
}

/// Does the path of the mapping contain one of these texts, and is the file deleted if that is
/// asked for?
fn is_wanted(row: &Row<'_>, paths: &[Vec<u8>], deleted: bool) -> bool {
    let Part::Map(map) = row.part else { return false };
    let named = |m: &Map<'_>| {
        let name = m.name.map_or(&b""[..], |n| n.bytes);
        paths.iter().any(|p| memchr::memmem::find(name, p).is_some())
    };
    (!deleted || map.is_deleted() == Some(true)) && (paths.is_empty() || named(&map))
}

fn keys(args: &MapsArgs) -> Result<Vec<Key>, Exit> {
    match &args.by {
        Some(_) if args.table.sort.is_empty() => {
            let keys = match args.view {
                MapsView::Default => vec!["-procs", "-size"],
                _ => vec!["-rss"],
            };
            order::keys(&MAPS, keys)
        }
        _ => Ok(args.table.sort.clone()),
    }
}

/// Writes the title as pmap does: the pid and the arguments.
fn title(out: &mut Vec<u8>, cx: &Context, snapshot: &Snapshot, tasks: &[u32]) {
    let Some(task) = tasks.first().and_then(|i| snapshot.stream().get(*i as usize)) else { return };
    let row = Row::new(task);
    let saved_without = row.view.cmdline().is_none() && row.comm.is_some();
    let args = if saved_without { field("comm") } else { field("args") };
    field::write_uint(out, u64::from(task.tgid()));
    out.extend_from_slice(b":   ");
    field::text(out, cx, args.text, Some(&row), &(args.get)(cx, &row));
    out.push(b'\n');
}

/// Counts missing values of tasks whose mappings are not all in the answer.
fn count_gaps(all: &Mappings<'_>, columns: &[Column], cx: &Context, tally: &mut Tally) {
    let lacks = |t: &Row<'_>| {
        let there = matches!(t.each_map(|_| Err(())), Ok(true) | Err(()));
        !there || view::is_gap(t, there)
    };
    for task in all.tasks().filter(lacks) {
        let row = task.with_part(Part::Without);
        for (c, column) in columns.iter().enumerate() {
            if let Some(m) = (column.field.get)(cx, &row).missing() {
                tally.count(c, m);
            }
        }
    }
}

/// Leaves out the columns that this kernel's smaps does not have.
fn drop_unknown(columns: &mut Vec<Column>, view: &view::View<'_>) {
    let unsupported = Some(Missing::Reason(Reason::Unsupported));
    // The first mapping with values decides, and ends the search.
    let _ = view.mappings(false).each_row(&mut |row| match row.part {
        Part::Map(Map { stat: Some(_), .. }) => {
            columns.retain(|c| (c.field.get)(view.cx(), row).missing() != unsupported);
            Err(())
        }
        _ => Ok(()),
    });
}
