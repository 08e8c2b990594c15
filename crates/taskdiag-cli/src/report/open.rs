//! Open files on the page: sockets that listen, and with `--files` the largest files.
//!
//! These tables need a second, expensive request, because it includes threads, which may have open
//! files of their own.

use std::collections::BTreeMap;

use taskdiag::field::{FILES, Missing};
use taskdiag::view::{Filter, Query};
use taskdiag::{Group, Snapshot};

use super::about::About;
use super::cells::{self, Cells};
use crate::args::report::ReportArgs;
use crate::columns::{self, Column};
use crate::exit::{Asked, Exit, Lack};
use crate::output::{Tally, tally};
use crate::{answer, order};

/// The largest numbers of rows.
const MOST_SOCKETS: usize = 2000;
const MOST_FILES: usize = 2000;
const SOCKETS: &str = "family,protocol,laddr,lport,path,pid,command,user";
const OPENED: &str = "pid,command,user,fd,type,size,deleted,name";
const LISTENING: &str = "sockstate == LISTEN";

/// The JSON of both tables if there is no answer about open files.
const NOTHING: &[u8] = b"\"sockets\":null,\"files\":null,";

/// Writes both tables as members of an object. A table that was not requested is `null`.
pub fn write(
    out: &mut Vec<u8>,
    args: &ReportArgs,
    processes: &Snapshot,
    cells: &mut Cells,
    about: &mut About,
) -> Result<(), Exit> {
    let sockets = query(SOCKETS, Some(LISTENING), None)?;
    let opened = query(OPENED, None, Some("-size"))?;
    let asked;
    // A saved answer is used as it is, with or without open files.
    let snapshot = match &args.source.from {
        Some(_) => processes,
        None => {
            let both = if args.files { &opened } else { &sockets };
            asked = match args.source.ask(both.0.plan()) {
                Ok(snapshot) => snapshot,
                // An engine that was chosen with --engine may have processes but no open files.
                Err(Exit::Failed(why)) => {
                    let line = format!("open files are not shown: {why}");
                    about.add_missing([Lack { line, from: Asked::Named }]);
                    out.extend_from_slice(NOTHING);
                    return Ok(());
                }
                Err(e) => return Err(e),
            };
            about.add_answer("open files", &asked);
            &asked
        }
    };
    if !snapshot.stream().asked().has(Group::Fd) {
        let count = snapshot.tasks().len();
        let lack = tally::line(Missing::NotAsked, count, "open files", Group::Fd, snapshot);
        about.add_missing(if args.files { lack } else { lack.map(Lack::if_named) });
        out.extend_from_slice(NOTHING);
        return Ok(());
    }
    let is_saved = args.source.from.is_some();
    out.extend_from_slice(b"\"sockets\":");
    table(out, &sockets, snapshot, is_saved, MOST_SOCKETS, cells, about)?;
    out.extend_from_slice(b",\"files\":");
    match args.files {
        true => table(out, &opened, snapshot, is_saved, MOST_FILES, cells, about)?,
        false => out.extend_from_slice(b"null"),
    }
    out.push(b',');
    Ok(())
}

/// A query and its columns.
fn query(
    names: &str,
    filter: Option<&str>,
    key: Option<&str>,
) -> Result<(Query, Vec<Column>), Exit> {
    let columns = columns::view(&FILES, names)?;
    let mut query = Query::new(&FILES, columns.iter().map(|c| c.field));
    query.filter = filter.map(|f| Filter::parse(&FILES, f)).transpose().map_err(Exit::Where)?;
    query.sort = order::keys(&FILES, key.into_iter().collect())?;
    query.threads = true;
    Ok((query, columns))
}

/// Writes one table: its first rows, the number of all rows, and the number of each type.
fn table(
    out: &mut Vec<u8>,
    (query, columns): &(Query, Vec<Column>),
    snapshot: &Snapshot,
    is_saved: bool,
    most: usize,
    cells: &mut Cells,
    about: &mut About,
) -> Result<(), Exit> {
    let mut view = query.view(snapshot);
    if let Some(files) = view.files_mut() {
        files.own_netns = crate::files::own_netns(files, is_saved);
    }
    let mut tally = Tally::new(columns.len());
    let kind = columns.iter().position(|c| ["type", "protocol"].contains(&c.field.name));
    let mut kinds: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
    let mut count = 0;
    out.extend_from_slice(b"{\"columns\":");
    cells::columns(out, columns);
    out.extend_from_slice(b",\"rows\":[");
    view.rows(false, &mut |_, _, _| {}).each(&mut |item| {
        if let Some(c) = kind {
            let mut text = Vec::new();
            let value = item.value(view.cx(), columns[c].field, c);
            taskdiag::field::text(&mut text, view.cx(), columns[c].form, item.row(), &value);
            *kinds.entry(text).or_default() += 1;
        }
        if count < most {
            if count > 0 {
                out.push(b',');
            }
            cells.row(out, view.cx(), columns, &item, 200, &mut tally);
        }
        count += 1;
        Ok(())
    })?;
    let kinds: Vec<(String, u64)> = kinds
        .into_iter()
        .map(|(text, n)| (String::from_utf8_lossy(&text).into_owned(), n))
        .collect();
    let rest = format!("],\"count\":{count},\"kinds\":{}}}", serde_json::json!(kinds));
    out.extend_from_slice(rest.as_bytes());
    let gaps = view.files().into_iter().flat_map(|f| f.gaps());
    let gaps = crate::files::of_processes(gaps.filter(|g| g.group == Group::Fd).copied());
    let mut lacks = tally::lines_of(gaps, false, |_| "open files", snapshot);
    lacks.extend(tally::left_out(&view.left(), snapshot).into_iter().map(|l| Lack {
        line: l.line.replace("left out by --where", "left out of sockets that listen"),
        ..l
    }));
    lacks.extend(tally.lines(columns, snapshot));
    let lacks = lacks.into_iter().map(Lack::if_named).collect();
    about.add_verdict(answer::verdict_of(snapshot, false, lacks, Asked::All));
    Ok(())
}
