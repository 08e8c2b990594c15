//! `taskdiag report`: a page of HTML about all processes, which opens from a file.
//!
//! `cells` writes the data, `chosen` chooses the processes with a row, `open` has sockets and
//! files, `timeline` the values of a recording over time, `about` what the page says about itself,
//! and `page` the page around the data, with its policy, style and scripts. `tests/report` drives a
//! browser.

mod about;
mod cells;
mod chosen;
mod open;
mod page;
#[cfg(feature = "record")]
mod timeline;

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::Instant;

use taskdiag::field::{Field, Row, TASKS};
use taskdiag::view::{Query, Rows, Tasks, View};
use taskdiag::{Group, Snapshot};

use self::about::About;
use self::cells::Cells;
use crate::answer;
use crate::args::report::ReportArgs;
use crate::columns::{self, Column};
use crate::exit::{Asked, Exit, Lack};
use crate::output::{Tally, json, sink, tally};

/// The version of the data in the page.
const FORMAT: u32 = 1;
/// The bytes for the arguments of all processes together, and the smallest and largest limit for
/// one process. On most machines all processes have a row, so the size is limited by cutting
/// arguments.
const ARGS: usize = 1_200_000;
const ARGS_OF_ONE: std::ops::RangeInclusive<usize> = 40..=400;

/// Run it.
pub fn run(args: &ReportArgs) -> Result<(), Exit> {
    if args.output.is_none() && std::io::stdout().is_terminal() && !sink::is_silent() {
        return Err(Exit::Usage(
            "the page is HTML: send it to a file, as in 'taskdiag report -o report.html'"
                .to_owned(),
        ));
    }
    page::check(args.output.as_deref())?;
    let begin = Instant::now();
    let mut about = About::new(args);
    let snapshot = args.source.get(|| query(&columns(args, args.pss)))?;
    about.add_answer("processes", &snapshot);
    let columns = columns(args, args.pss || snapshot.stream().asked().has(Group::Rollup));
    let query = query(&columns);
    let view = query.view(&snapshot);
    let mut cells = Cells::default();
    let mut tally = Tally::new(columns.len());
    let mut out = format!("{{\"format\":{FORMAT},").into_bytes();
    tasks(&mut out, &view, &snapshot, &columns, &mut cells, &mut tally)?;
    // The user did not choose the columns of the page, so it need not have all of them.
    let mut lacks = tally::left_out(&view.left(), &snapshot);
    lacks.extend(tally.lines(&columns, &snapshot));
    let lacks = lacks.into_iter().map(Lack::if_named).collect();
    about.add_verdict(answer::verdict_of(&snapshot, view.tasks().is_empty(), lacks, Asked::All));
    open::write(&mut out, args, &snapshot, &mut cells, &mut about)?;
    #[cfg(feature = "record")]
    timeline::write(&mut out, args, &snapshot, &mut about);
    about.write(&mut out, &snapshot, view.cx(), begin);
    cells.lists(&mut out);
    out.push(b'}');
    page::write(&page::page(&out), args.output.as_deref())?;
    about.verdict()
}

/// The column of tasks with this name.
fn field(name: &str) -> &'static Field {
    TASKS.find(name).expect("a column of the table").field
}

fn columns(args: &ReportArgs, pss: bool) -> Vec<Column> {
    let names = format!(
        "pid,comm,user,s,{}rss,swap,time,nlwp,fds,read_bytes,write_bytes,start,ppid,slice,unit,container,\
         container_name,image,pod_namespace,pod_name{}",
        if pss { "pss," } else { "" },
        if args.args { ",args" } else { "" },
    );
    columns::view(&TASKS, &names).expect("columns of the table")
}

fn query(columns: &[Column]) -> Query {
    Query::new(&TASKS, columns.iter().map(|c| c.field))
}

/// Writes the processes with and without a row, and sums over all of them.
fn tasks(
    out: &mut Vec<u8>,
    view: &View<'_>,
    snapshot: &Snapshot,
    columns: &[Column],
    cells: &mut Cells,
    tally: &mut Tally,
) -> Result<(), Exit> {
    let cx = view.cx();
    let has_pss = columns.iter().any(|c| c.field.name == "pss");
    let memory = if has_pss { "pss" } else { "rss" };
    let all = Tasks { snapshot, indices: view.tasks() };
    let kept = chosen::choose(cx, all, field(memory), chosen::MOST);
    let longest = ARGS / kept.rows.len().max(1);
    let longest = longest.clamp(*ARGS_OF_ONE.start(), *ARGS_OF_ONE.end());

    out.extend_from_slice(format!("\"memory\":\"{memory}\",\"tasks\":{{\"columns\":").as_bytes());
    cells::columns(out, columns);
    out.extend_from_slice(b",\"rows\":[");
    let mut is_first = true;
    Tasks { snapshot, indices: &kept.rows }.each(&mut |item| {
        if !std::mem::take(&mut is_first) {
            out.push(b',');
        }
        cells.row(out, cx, columns, &item, longest, tally);
        Ok(())
    })?;
    // Missing values of processes without a row count, too.
    Tasks { snapshot, indices: &kept.without }.each(&mut |item| {
        for (c, column) in columns.iter().enumerate() {
            if let Some(m) = item.value(cx, column.field, c).missing() {
                tally.count_in(&item, c, m);
            }
        }
        Ok(())
    })?;
    out.extend_from_slice(b"]},\"others\":");
    json::list(out, kept.others.iter(), |out, (place, others)| {
        let [slice, unit, container] = place.each_ref().map(|text| cells.word(text, 200));
        let [rss, pss] = others.bytes;
        let count = others.count;
        out.extend_from_slice(
            format!("[{slice},{unit},{container},{count},{rss},{pss}]").as_bytes(),
        );
    });
    out.push(b',');
    sums(out, all, view);
    Ok(())
}

/// Write the sums over all processes, each with the number of processes whose value is not known,
/// and the number of processes in each state.
fn sums(out: &mut Vec<u8>, all: Tasks<'_>, view: &View<'_>) {
    let cx = view.cx();
    let names = ["rss", "pss", "swap", "time", "nlwp", "fds", "read_bytes", "write_bytes"];
    let fields = names.map(field);
    let mut sums = [(0u64, 0u64); 8];
    let mut states: BTreeMap<char, u64> = BTreeMap::new();
    let mut kernel = 0;
    let stream = all.snapshot.stream();
    for row in all.indices.iter().filter_map(|i| stream.get(*i as usize)).map(Row::new) {
        for ((sum, lacking), field) in sums.iter_mut().zip(fields) {
            let value = (field.get)(cx, &row);
            match chosen::amount(cx, field, &row) {
                Some(v) => *sum = sum.saturating_add(v),
                None if value.missing().is_some_and(|m| m.is_absent()) => {}
                None => *lacking += 1,
            }
        }
        *states.entry(row.state().map_or('?', char::from)).or_default() += 1;
        kernel += u64::from(row.is_kthread());
    }
    let mut members = serde_json::Map::new();
    for ((name, field), (sum, lacking)) in names.iter().zip(fields).zip(sums) {
        let is_time = field.unit == taskdiag::field::Unit::Seconds;
        let sum = if is_time { serde_json::json!(sum as f64 / 1e9) } else { sum.into() };
        members.insert((*name).to_owned(), serde_json::json!([sum, lacking]));
    }
    members.insert("processes".to_owned(), all.indices.len().into());
    members.insert("kernel".to_owned(), kernel.into());
    let states: Vec<(String, u64)> =
        states.into_iter().map(|(s, n)| (s.escape_default().to_string(), n)).collect();
    let text = format!(
        "\"totals\":{},\"states\":{},",
        serde_json::Value::from(members),
        serde_json::json!(states)
    );
    out.extend_from_slice(text.as_bytes());
}
