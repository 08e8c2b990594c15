//! Whether all requested files were found. If not, lsof ends with 1, and with `-V` prints what it
//! did not find.

use std::cell::OnceCell;
use std::collections::HashSet;

use taskdiag::Snapshot;
use taskdiag::field::{Context, Field, Row, TASKS};
use taskdiag::files::OpenFile;
use taskdiag::view::Query;

use super::Layout;
use super::cell::Cells;
use super::record::Record;
use super::{safe::Locale, sockets};
use crate::exit::Exit;
use crate::files::Shown;
use crate::files::request::FilesArgs;
use crate::files::select::CommandName;
use crate::output::sink;

/// Processes that were not read, because with `-a` only those are read that fulfil all conditions.
/// A process id, process group or user of one condition counts as found if any process has it.
struct Others<'a> {
    args: &'a FilesArgs,
    all: OnceCell<Option<Snapshot>>,
}

impl<'a> Others<'a> {
    fn new(args: &'a FilesArgs) -> Others<'a> {
        Others { args, all: OnceCell::new() }
    }
    fn any(&self, is: impl Fn(&Row<'_>) -> bool) -> bool {
        let (select, source) = (&self.args.select, &self.args.table.source);
        let kinds = [&select.pids.only, &select.pgids.only, &select.uids.only];
        let is_narrow = select.and && kinds.iter().filter(|only| !only.is_empty()).count() > 1;
        if !is_narrow || source.from.is_some() {
            return false;
        }
        let ask = || source.ask(Query::new(&TASKS, FIELDS.iter().filter_map(field)).plan()).ok();
        let all = self.all.get_or_init(ask).as_ref();
        all.is_some_and(|all| all.tasks().any(|task| is(&Row::new(task))))
    }
}

/// The columns that [`Others`] looks at.
const FIELDS: &[&str] = &["pgid", "uid"];

fn field(name: &&str) -> Option<&'static Field> {
    TASKS.find(name).map(|named| named.field)
}

/// Reports what was not found, and returns whether everything was found.
pub(in crate::files) fn say_what_was_not_found(
    all: &Shown<'_>,
    cx: &Context,
    args: &FilesArgs,
    layout: &Layout,
) -> Result<bool, Exit> {
    let select = &args.select;
    let owners = || all.opened.owners().map(|o| &o.row);
    let rows = || all.opened.owners().flat_map(|owner| all.opened.files_of(owner));
    let cells = Cells::new(all, cx, args, layout);
    let mut missing: Vec<Vec<u8>> = Vec::new();
    let mut miss = |what: &str, value: &[u8]| {
        let locale = Locale::of_environment();
        missing.push([what.as_bytes(), &locale.name(value)].concat());
    };
    // In the order of lsof: the last name first, and expressions after names.
    let commands = || args.commands.iter().zip(&select.commands.only).rev();
    let is_found = |name: &CommandName| owners().any(|r| r.comm.is_some_and(|comm| name.is(comm)));
    let is_regex = |name: &CommandName| matches!(name, CommandName::Matches(_));
    for (typed, _) in commands().filter(|(_, name)| !is_regex(name) && !is_found(name)) {
        miss("command not located: ", typed);
    }
    // lsof never finds a command that it leaves out, so `-c ^NAME` always ends with 1.
    for typed in &args.excluded_commands {
        miss("command not located: ", typed);
    }
    for (typed, _) in commands().rev().filter(|(_, name)| is_regex(name) && !is_found(name)) {
        // Cut the slashes and the text after them.
        let text = typed.strip_prefix(b"/").unwrap_or(typed);
        let end = text.iter().rposition(|b| *b == b'/').unwrap_or(text.len());
        miss("no command found for regex: ", &text[..end]);
    }
    let seen: HashSet<(u32, u64)> = match select.places.is_empty() {
        true => HashSet::new(),
        false => rows().filter_map(|f| f.dev().zip(f.inode())).collect(),
    };
    for place in select.places.iter().rev() {
        let by_socket = || rows().any(|f| f.socket().is_some() && place.holds(&f));
        if !place.is_found_in(&seen) && !by_socket() {
            let what = match place.is_of_file_system() {
                true => "no file system use located: ",
                false => "no file use located: ",
            };
            miss(what, place.path());
        }
    }
    // A socket counts if it is found in the lists of the kernel.
    let is_known = |f: &OpenFile<'_>| !sockets::is_unknown(&cells, f);
    for (typed, inet) in args.inet.iter().zip(&select.inet).rev() {
        let is = |f: &OpenFile<'_>| f.socket().is_some_and(|s| inet.matches(&s)) && is_known(f);
        // A family alone is no address, so a listed file must match it.
        let is_address = !matches!(typed.as_str(), "" | "4" | "6");
        let found = match is_address {
            true => rows().any(|f| is(&f)),
            false => {
                let mut found = false;
                cells.each(&mut |r: &Record<'_>| {
                    found |= r.file.is_some_and(&is);
                    Ok(())
                })?;
                found
            }
        };
        match (found, is_address) {
            (true, _) => {}
            (false, true) => miss("Internet address not located: ", typed.as_bytes()),
            (false, false) => miss("no Internet files located", b""),
        }
    }
    let others = Others::new(args);
    for pid in &select.pids.only {
        let is = |r: &Row<'_>| r.view.tgid() == *pid;
        if !owners().any(is) && !others.any(is) {
            miss("process ID not located: ", pid.to_string().as_bytes());
        }
    }
    if layout.tasks == Some(true) {
        let mut any = false;
        cells.each(&mut |r: &Record<'_>| {
            any |= r.task.is_some_and(|(tid, _)| tid.is_some());
            Ok(())
        })?;
        if !any {
            miss("no tasks located", b"");
        }
    }
    for id in &select.pgids.only {
        let is = |r: &Row<'_>| r.base.and_then(|b| b.pgid()) == Some(*id);
        if !owners().any(is) && !others.any(is) {
            miss("process group ID not located: ", id.to_string().as_bytes());
        }
    }
    for uid in &select.uids.only {
        let is = |r: &Row<'_>| r.cred.and_then(|c| c.euid()) == Some(*uid);
        if !owners().any(is) && !others.any(is) {
            miss("user ID not located: ", uid.to_string().as_bytes());
        }
    }
    if layout.verbose {
        let mut out = Vec::new();
        for line in &missing {
            out.extend_from_slice(b"lsof: ");
            out.extend_from_slice(line);
            out.push(b'\n');
        }
        sink::write_all(&out)?;
    }
    Ok(missing.is_empty())
}
