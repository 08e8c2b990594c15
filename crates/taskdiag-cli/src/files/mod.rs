//! `taskdiag files`: ask, join, select, arrange, write.

mod count;
pub mod inet;
mod look;
pub mod place;
pub mod select;

use std::io;
use std::time::Instant;

use taskdiag::engine::auto;
use taskdiag::field::{self, Context, FILES, Missing, OpenRow, Part, Row};
use taskdiag::files::{Files, Gap, OpenFile, Owner};
use taskdiag::view::{Filter, Key, Query, Ranks, Sieve};
use taskdiag::{Choice, EngineId, Group, Groups, Members, Reason, Snapshot};

use self::select::Selection;
use crate::answer;
use crate::args::files::Args;
use crate::args::ps::Form;
use crate::args::table;
use crate::columns::{self, Column};
use crate::exit::{Exit, say, shown};
use crate::output::{Item, Rows, Sink, Table, Take, Tally, csv, json, tally, text};

/// Run it.
pub fn run(args: &Args) -> Result<(), Exit> {
    if args.count {
        return count::run(args);
    }
    let begin = Instant::now();
    for path in &args.nowhere {
        say(format_args!("taskdiag: {} is not there: only its name is looked for", shown(path)));
    }
    let table = &args.table;
    let snapshot = table.source.get(|| query(args, &columns(args, false)))?;
    let asked = Instant::now();
    let mut files = Files::new(&snapshot);
    files.own_netns = own_netns(&files, table.source.from.is_some());
    let cx = Context::of(&snapshot, snapshot.stream().strategy().is_threads());
    let sieve = Sieve::new(table.filter.as_ref());
    let all = Shown {
        files: &files,
        select: &args.select,
        cx: &cx,
        sieve: &sieve,
        gaps: table.form != Form::Text,
    };
    if args.terse {
        return terse(&all, &snapshot, &args.unseen);
    }
    let unshared = all.owners().any(Owner::is_unshared);
    let mut columns = columns(args, unshared);
    columns::fit_pids(&mut columns, answer::largest_pid(&snapshot, table.source.from.is_some()));
    all.fit_commands(&mut columns);
    let sorted;
    let rows: &dyn Rows = if table.sort.is_empty() {
        &all
    } else {
        sorted = Sorted::new(&all, &cx, &table.sort)?;
        &sorted
    };
    let mut tally = Tally::new(columns.len());
    let count = write(table, &Table { cx: &cx, columns: &columns, rows }, &mut tally)?;
    if table.stats {
        crate::commands::stats::print(&snapshot, snapshot.tasks().len(), begin, asked);
    }
    let mut lines = args.unseen.clone();
    lines.extend(all.lacking(&snapshot));
    lines.extend(tally.lines(&columns, &snapshot));
    answer::verdict_of(&snapshot, count == 0, lines)
}

/// Write a table in the form that was asked for. Gives the number of rows.
fn write(args: &table::Args, table: &Table<'_>, tally: &mut Tally) -> Result<usize, Exit> {
    let mut sink = Sink::stdout();
    let count = match args.form {
        Form::Text => {
            let options = text::Options::new(args.headers, args.terminal());
            text::header(&mut sink, table.columns, &options);
            text::rows(&mut sink, table, None, &options, tally, None)?
        }
        Form::Json => json::rows(&mut sink, table, false, tally)?,
        Form::JsonLines => json::rows(&mut sink, table, true, tally)?,
        Form::Csv => csv::rows(&mut sink, table, args.headers, tally)?,
    };
    sink.finish()?;
    Ok(count)
}

/// For programs: each thing on its own, in numbers where it is one.
const PLAIN: &str = "pid,tid,threads,command,user,fd,access,type,kind,dev,rdev,size,offset,inode,\
     path,deleted,protocol,sockstate,laddr,lport,raddr,rport,sock_netns,name";

/// `unshared`: is a thread with files of its own among the rows?
fn columns(args: &Args, unshared: bool) -> Vec<Column> {
    if !args.table.columns.is_empty() {
        return args.table.columns.clone();
    }
    if args.table.form != Form::Text {
        return columns::parse_of(&FILES, PLAIN).expect("columns of the table");
    }
    let tid = if unshared { "tid," } else { "" };
    let ppid = if args.parents { "ppid," } else { "" };
    let user = if args.numeric_users { "uid=USER" } else { "user" };
    let view = format!("command,pid,{tid}{ppid}threads,{user},fd,type,device,size_off,node,name");
    columns::parse_of(&FILES, &view).expect("columns of the table")
}

/// What to ask: columns and conditions decide the groups. Threads may have files of their own, so
/// all are asked for; what they share is in the answer once.
fn query(args: &Args, columns: &[Column]) -> Query {
    let select = &args.select;
    let conditions = || args.table.filter.iter().flat_map(Filter::fields);
    let keys = args.table.sort.iter().map(|k| k.field);
    let fields = columns.iter().map(|c| c.field).chain(keys).chain(conditions());
    let wanted = match args.terse {
        true => field::groups_of(conditions()),
        false => field::groups_of(fields.clone()),
    };
    let groups = (wanted - Files::GROUPS) | select.groups();
    let mut query = Query::new(&FILES, []);
    query.groups = groups - lacking(args.table.source.engine, groups);
    // The name is looked at by conditions, and for who has the other end of a pipe.
    query.members = field::members_of(fields).union(Members::of(Groups::BASE, &["comm"]));
    query.select.pids = select.only_pids().unwrap_or(&[]).to_vec();
    query.threads = groups.has(Group::Fd);
    query
}

/// What tells more of rows, and is left out, and said to be, where the one engine that may answer has
/// the rows only.
fn lacking(engine: Choice, groups: Groups) -> Groups {
    match auto::resolved(engine) {
        Ok(Choice::Only(engine @ EngineId::Kernel)) if groups.has(Group::FileStat) => {
            auto::open(engine).map_or(Groups::NONE, |e| Groups::FILE_STAT - e.support().groups)
        }
        _ => Groups::NONE,
    }
}

/// The network namespace that goes without saying: our own; of a saved answer, that of the first
/// process with a socket.
fn own_netns(files: &Files<'_>, saved: bool) -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    let first = files.netns().next()?;
    if saved {
        return Some(first);
    }
    let own = std::fs::metadata("/proc/self/ns/net").ok()?.ino();
    u32::try_from(own).ok()
}

/// The files that are shown.
struct Shown<'a> {
    files: &'a Files<'a>,
    select: &'a Selection,
    cx: &'a Context,
    sieve: &'a Sieve<'a>,
    /// Also a row for each task whose files are not in the answer?
    gaps: bool,
}

impl<'a> Shown<'a> {
    fn owners(&self) -> impl Iterator<Item = &'a Owner<'a>> {
        let may_match =
            |row: &Row<'_>| self.select.may_match(row) && self.sieve.passes_task(self.cx, row);
        self.files.owners().iter().filter(move |o| may_match(&o.row))
    }
    fn each_file(&self, f: &mut dyn FnMut(OpenFile<'a>) -> io::Result<()>) -> io::Result<()> {
        for owner in self.owners() {
            self.files_of(owner).try_for_each(&mut *f)?;
        }
        Ok(())
    }
    fn files_of(&self, owner: &'a Owner<'a>) -> impl Iterator<Item = OpenFile<'a>> {
        let passes = |f: &OpenFile<'_>| self.sieve.passes(self.cx, &self.row(f));
        self.files.of(owner).filter(move |f| self.select.matches(f) && passes(f))
    }
    /// Call `f` with each file as a row.
    fn row_of(&self, file: &OpenFile<'_>, f: &mut Take<'_>) -> io::Result<()> {
        f(Item::Row(&self.row(file)))
    }
    fn row<'f>(&'f self, file: &'f OpenFile<'f>) -> Row<'f> {
        Row { part: Part::File(OpenRow { file, files: self.files }), ..file.owner.row }
    }
    fn gaps(&self) -> impl Iterator<Item = Gap<'a>> {
        let wanted = self.select.rows();
        let gaps = self.files.gaps().iter().filter(move |g| wanted.has(g.group)).copied();
        gaps.filter(|g| self.select.may_match(&Row::new(g.task)))
    }
    /// Rows for tasks whose descriptors are not in the answer. Where only certain files are
    /// selected, none of theirs is known to be one.
    fn gap_rows(&self, f: &mut Take<'_>) -> io::Result<()> {
        if !self.gaps || self.select.has_file_condition() {
            return Ok(());
        }
        let is_amiss = |r: Reason| r != Reason::Vanished;
        let mut fds = self.gaps().filter(|g| g.group == Group::Fd && is_amiss(g.reason));
        fds.try_for_each(|g| {
            let row = Row { part: Part::Without, ..Row::new(g.task) };
            if self.sieve.passes(self.cx, &row) { f(Item::Row(&row)) } else { Ok(()) }
        })
    }
    /// Lines that say what the answer lacks.
    fn lacking(&self, snapshot: &Snapshot) -> Vec<String> {
        let asked = snapshot.stream().asked();
        let names = |g: Group| match g {
            Group::Fd => "open files",
            Group::Paths => "paths (cwd, rtd, txt)",
            _ => "mapped files",
        };
        let mut lines = tally::left_out(&self.sieve.left(), snapshot);
        for group in self.select.rows().iter() {
            if !asked.has(group) {
                let tasks = snapshot.tasks().len();
                lines.extend(tally::line(Missing::NotAsked, tasks, names(group), group, snapshot));
            }
        }
        // In the answers of text and terse; rows say it in the other forms, and here, too.
        lines.extend(tally::lines_of(self.gaps().map(|g| (g.group, g.reason)), names, snapshot));
        let doubts = self.files.doubts().iter();
        let selected = doubts.filter(|g| self.select.may_match(&Row::new(g.task)));
        lines.extend(count::lacking(snapshot, selected, count::SHARING));
        lines
    }
    /// Wide enough for the longest name of a command, which has 15 bytes at most but for some
    /// kernel threads.
    fn fit_commands(&self, columns: &mut [Column]) {
        let longest = self.owners().filter_map(|o| o.row.comm).map(<[u8]>::len).max();
        for c in columns.iter_mut().filter(|c| c.name == "command" && !c.fixed) {
            c.width = c.width.max(longest.unwrap_or(0).min(15));
        }
    }
}

impl Rows for Shown<'_> {
    fn each(&self, take: &mut Take<'_>) -> io::Result<()> {
        self.each_file(&mut |file| self.row_of(&file, take))?;
        self.gap_rows(take)
    }
}

/// Files in another order.
struct Sorted<'a> {
    all: &'a Shown<'a>,
    rows: Vec<OpenFile<'a>>,
    order: Vec<usize>,
}

impl<'a> Sorted<'a> {
    fn new(all: &'a Shown<'a>, cx: &Context, keys: &[Key]) -> io::Result<Sorted<'a>> {
        let (mut rows, mut ranks) = (Vec::new(), Ranks::default());
        all.each_file(&mut |file| {
            all.row_of(&file, &mut |item| {
                ranks.push(cx, keys.iter().filter_map(|k| Some((k.field.get)(cx, item.row()?))));
                Ok(())
            })?;
            rows.push(file);
            Ok(())
        })?;
        Ok(Sorted { all, order: ranks.order(keys), rows })
    }
}

impl Rows for Sorted<'_> {
    fn each(&self, take: &mut Take<'_>) -> io::Result<()> {
        self.order.iter().try_for_each(|i| self.all.row_of(&self.rows[*i], take))?;
        self.all.gap_rows(take)
    }
}

/// `-t`: the pids, each once.
fn terse(all: &Shown<'_>, snapshot: &Snapshot, unseen: &[String]) -> Result<(), Exit> {
    let mut sink = Sink::stdout();
    let mut last = None;
    let mut any = false;
    for owner in all.owners() {
        let pid = owner.row.view.tgid();
        if last != Some(pid) && all.files_of(owner).next().is_some() {
            field::write_uint(sink.buf(), u64::from(pid));
            sink.buf().push(b'\n');
            (last, any) = (Some(pid), true);
            sink.settle()?;
        }
    }
    sink.finish()?;
    let lines = [unseen, &all.lacking(snapshot)].concat();
    answer::verdict_of(snapshot, !any, lines)
}
