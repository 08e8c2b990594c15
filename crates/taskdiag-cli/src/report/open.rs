//! The open files of the page: sockets that listen, and with `--files` the largest files.
//!
//! They are asked for in a request of their own, because they cost more than all else, and threads may have files of
//! their own.

use std::collections::BTreeMap;

use taskdiag::field::{FILES, Missing};
use taskdiag::view::{Filter, Query};
use taskdiag::{Group, Groups, Members, Snapshot};

use super::cells::{self, Cells};
use super::told::Told;
use crate::args::report::ReportArgs;
use crate::columns::{self, Column};
use crate::exit::Exit;
use crate::output::{Tally, tally};
use crate::{answer, order};

/// The longest tables.
const MOST_SOCKETS: usize = 2000;
const MOST_FILES: usize = 2000;
const SOCKETS: &str = "family,protocol,laddr,lport,path,pid,command,user";
const OPENED: &str = "pid,command,user,fd,type,size,deleted,name";
const LISTENING: &str = "sockstate == LISTEN";

/// Both tables, if there is no answer.
const NOTHING: &[u8] = b"\"sockets\":null,\"files\":null,";

/// Write both tables as members of an object. A table that was not asked for is `null`.
pub fn write(
    out: &mut Vec<u8>,
    args: &ReportArgs,
    processes: &Snapshot,
    cells: &mut Cells,
    told: &mut Told,
) -> Result<(), Exit> {
    let sockets = query(SOCKETS, Some(LISTENING), None)?;
    let opened = query(OPENED, None, Some("-size"))?;
    let asked;
    // A saved answer has them or not.
    let snapshot = match &args.source.from {
        Some(_) => processes,
        None => {
            let both = if args.files { &opened } else { &sockets };
            asked = match args.source.ask(both.0.plan()) {
                Ok(snapshot) => snapshot,
                // An engine that was asked for may have processes and no files.
                Err(Exit::Failed(why)) => {
                    told.lacks([format!("open files are not shown: {why}")]);
                    out.extend_from_slice(NOTHING);
                    return Ok(());
                }
                Err(e) => return Err(e),
            };
            told.answer("open files", &asked);
            &asked
        }
    };
    if !snapshot.stream().asked().has(Group::Fd) {
        let count = snapshot.tasks().len();
        told.lacks(tally::line(Missing::NotAsked, count, "open files", Group::Fd, snapshot));
        out.extend_from_slice(NOTHING);
        return Ok(());
    }
    let is_saved = args.source.from.is_some();
    out.extend_from_slice(b"\"sockets\":");
    table(out, &sockets, snapshot, is_saved, MOST_SOCKETS, cells, told)?;
    out.extend_from_slice(b",\"files\":");
    match args.files {
        true => table(out, &opened, snapshot, is_saved, MOST_FILES, cells, told)?,
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
    query.members = Members::of(Groups::BASE, &["comm"]);
    query.threads = true;
    Ok((query, columns))
}

/// Write one table: its first rows, the number of all rows, and how many there are of each type.
fn table(
    out: &mut Vec<u8>,
    (query, columns): &(Query, Vec<Column>),
    snapshot: &Snapshot,
    is_saved: bool,
    most: usize,
    cells: &mut Cells,
    told: &mut Told,
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
    let gaps = gaps.filter(|g| g.group == Group::Fd).map(|g| (g.group, g.reason));
    let mut lines = tally::lines_of(gaps, |_| "open files", snapshot);
    lines.extend(tally::left_out(&view.left(), snapshot).into_iter().map(|l| {
        l.replace("left out, since --where looks at sockstate", "left out of sockets that listen")
    }));
    lines.extend(tally.lines(columns, snapshot));
    told.ended(answer::verdict_of(snapshot, false, lines));
    Ok(())
}
