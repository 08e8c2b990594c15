//! `taskdiag files`: ask, join, select, arrange, write.

pub mod args;
mod count;
pub mod inet;
mod layout;
pub mod letters;
mod look;
pub mod lsof;
mod mounts;
pub mod place;
mod request;
pub mod select;
mod time;

use std::collections::HashSet;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;
use std::time::Instant;

use taskdiag::engine::auto;
use taskdiag::field::{self, FILES, Field, Missing, Part, Row};
use taskdiag::files::{Files, Gap, Locks, Owner};
use taskdiag::view::{Filter, Left, Opened, Query};
use taskdiag::wire::TaskView;
use taskdiag::{Choice, EngineId, Group, Groups, Reason, Snapshot};

pub use self::request::FilesArgs;
use self::request::{Instead, Repeat};
use self::select::FileSelection;
use crate::answer;
use crate::args::table;
use crate::columns::{self, Column};
use crate::exit::{Asked, Exit, Lack, say, shown};
use crate::interrupt;
use crate::order;
use crate::output::Form;
use crate::output::terminal::Terminal;
use crate::output::{self, Sink, Table, Tally, sink, tally, text};

/// Run it.
pub fn run(args: &FilesArgs) -> Result<(), Exit> {
    match args.instead {
        Some(Instead::Version) => {
            lsof::version().lines().for_each(|line| say(format_args!("{line}")));
            return Ok(());
        }
        Some(Instead::Help) => return Ok(sink::write_all(args::as_lsof::help().as_bytes())?),
        Some(Instead::Letters) => return Ok(sink::write_all(letters::HELP.as_bytes())?),
        None => {}
    }
    if let Some(end) = lsof_without_files(args) {
        return end;
    }
    match &args.repeat {
        None => once(args, &mut false),
        Some(repeat) => again_and_again(args, repeat),
    }
}

/// As in lsof: reports FILEs that do not exist, and ends if none exists, unless finding nothing is
/// fine.
fn lsof_without_files(args: &FilesArgs) -> Option<Result<(), Exit>> {
    args.strict.as_ref().filter(|l| !l.nothing_is_fine)?;
    for (path, why) in &args.missing {
        say(format_args!("lsof: status error on {}: {why}", shown(path)));
    }
    let files = args.select.places.iter().filter(|p| p.is_file()).count();
    (files > 0 && args.missing.len() == files).then_some(Err(Exit::Code(1)))
}

/// `-r` and `+r`: one list after the other, with a line between them, as in lsof. Missing data is
/// reported if it differs from that of the previous list.
fn again_and_again(args: &FilesArgs, repeat: &Repeat) -> Result<(), Exit> {
    let mut said = Vec::new();
    let mut ever = false;
    let mut left = repeat.count;
    loop {
        let mut any = false;
        let mut end = once(args, &mut any);
        let is_last = left == Some(1);
        left = left.map(|n| n - 1);
        match &mut end {
            Ok(()) | Err(Exit::NoMatch | Exit::Code(_)) => {}
            Err(Exit::Partial(_)) if is_last => {}
            Err(Exit::Partial(partial)) if partial.lacks == said => {}
            Err(Exit::Partial(partial)) => {
                partial.say();
                said = std::mem::take(&mut partial.lacks);
            }
            Err(_) => return end,
        }
        if repeat.while_any && !any {
            return if ever { Ok(()) } else { Err(Exit::NoMatch) };
        }
        sink::write_all(&marker(args, repeat))?;
        ever |= any;
        if is_last {
            return end;
        }
        interrupt::rest();
        std::thread::sleep(repeat.every);
    }
}

/// The line between two lists.
fn marker(args: &FilesArgs, repeat: &Repeat) -> Vec<u8> {
    let form = args.strict.as_ref().map_or(layout::Form::Table, |l| l.form);
    let fields = args.fields.as_ref();
    let fields = fields.or(args.strict.as_ref().and_then(|l| l.fields.as_ref()));
    let text = repeat.format.as_ref().map(|format| time::formatted(format));
    match (form, fields) {
        (layout::Form::Json, _) => Vec::new(),
        (layout::Form::JsonLines, _) => b"\n".to_vec(),
        (_, None) => [text.as_deref().unwrap_or(b"======="), b"\n"].concat(),
        (_, Some(fields)) => {
            let end: &[u8] = if fields.is_nul() { b"\0\n" } else { b"\n" };
            [b"m", text.as_deref().unwrap_or_default(), end].concat()
        }
    }
}

/// One list. `any` says whether the list has rows.
fn once(args: &FilesArgs, any: &mut bool) -> Result<(), Exit> {
    if args.count {
        let end = count::run(args);
        *any = !matches!(end, Err(Exit::NoMatch));
        return end;
    }
    let begin = Instant::now();
    for path in args.nowhere.iter().filter(|_| args.strict.is_none()) {
        let or = match args.select.words.has(path.as_os_str().as_bytes()) {
            true => ", or this word in their name or arguments",
            false => "",
        };
        say(format_args!(
            "taskdiag: no such file: {}; looking for processes that have a deleted file of this name open{or}",
            shown(path)
        ));
    }
    let table = &args.table;
    let query = query(args);
    let locks = LocksAside::begin(&query, table.source.from.is_some());
    let snapshot = table.source.get(|| query.clone())?;
    let asked = Instant::now();
    let mut view = query.view(&snapshot);
    if let Some(files) = view.files_mut() {
        files.own_netns = own_netns(files, table.source.from.is_some());
        files.locks = locks.end(files, &args.select);
    }
    // If only certain files are selected, a task whose files are not known may have none of them.
    let gaps = table.form != Form::Text
        && args.summary.is_none()
        && !args.select.has_file_condition()
        && args.select.rows().has(Group::Fd);
    let (Some(files), Some(opened)) = (view.files(), view.opened(gaps)) else {
        unreachable!("the rows are files");
    };
    let threads = match args.strict.as_ref().and_then(|l| l.tasks) {
        Some(true) => threads(&snapshot),
        _ => Vec::new(),
    };
    let denied = lsof::denied(files);
    let all = Shown { files, opened, select: &args.select, threads, denied };
    if let Some(layout) = &args.strict {
        *any = lsof::write(&all, view.cx(), args, layout)?;
        let found = lsof::say_what_was_not_found(&all, view.cx(), args, layout)?;
        // As in lsof, denied files are in the list, or are not looked for.
        let lines = [&args.unseen[..], &tally::left_out(&view.left(), &snapshot)].concat();
        let is_fine = layout.nothing_is_fine || found && args.missing.is_empty();
        // lsof's exit code reports whether files were found, and not whether some are denied.
        let end = match answer::verdict_of(&snapshot, false, lines, Asked::All) {
            Err(Exit::Partial(partial)) => {
                partial.say();
                Ok(())
            }
            end => end,
        };
        return end.and(if is_fine { Ok(()) } else { Err(Exit::Code(1)) });
    }
    let without_table = match &args.fields {
        Some(fields) => {
            let layout = layout::Layout::of_lines(fields.clone(), args.numeric_users);
            Some(lsof::write(&all, view.cx(), args, &layout)?)
        }
        None if args.terse => Some(terse(&all)?),
        None => None,
    };
    if let Some(is_any) = without_table {
        *any = is_any;
        let lines = [&args.unseen[..], &all.lacking(&snapshot, &view.left())].concat();
        return answer::verdict_of(&snapshot, !is_any, lines, args.asked(!is_any));
    }
    let unshared = all.opened.owners().any(Owner::is_unshared);
    let threads = snapshot.stream().strategy().is_threads();
    let mut columns = columns(args, unshared, threads);
    table.units.apply(&mut columns);
    columns::fit_pids(&mut columns, answer::largest_pid(&snapshot, table.source.from.is_some()));
    all.fit_commands(&mut columns);
    let mut tally = Tally::of_entries(columns.len());
    let rows = view.rows(gaps, &mut |row, c, m| tally.count_in(&output::Item::Row(row), c, m));
    let count =
        write(table, &Table { cx: view.cx(), columns: &columns, rows: &*rows }, &mut tally)?;
    if table.stats {
        crate::stats::print(&snapshot, snapshot.tasks().len(), begin, asked);
    }
    let mut lines = args.unseen.clone();
    lines.extend(all.lacking(&snapshot, &view.left()));
    lines.extend(tally.lines(&columns, &snapshot));
    *any = count > 0;
    answer::verdict_of(&snapshot, count == 0, lines, args.asked(count == 0))
}

/// Write a table in the form that was asked for. Gives the number of rows.
fn write(args: &table::TableArgs, table: &Table<'_>, tally: &mut Tally) -> Result<usize, Exit> {
    let mut sink = Sink::stdout();
    let count = match args.form {
        Form::Text => {
            // As in lsof, names are never cut, unless a width is requested.
            let terminal = Terminal { width: args.width(), ..args.terminal() };
            let options = text::Options::new(args.headers, terminal);
            text::header(&mut sink, table.columns, &options);
            text::rows(&mut sink, table, None, &options, tally, None)?
        }
        _ => output::rows(&mut sink, &args.form, table, args.headers, tally)?,
    };
    sink.finish()?;
    Ok(count)
}

/// For programs: each value in a column of its own, as a number if it is one.
const PLAIN: &str = "pid,tid,{threads}command,user,fd,access,{lock}type,kind,dev,rdev,size,offset,inode,\
     path,deleted,protocol,sockstate,laddr,lport,raddr,rport,sock_netns,name";

/// `unshared`: is a thread with files of its own among the rows? `threads`: whether the answer has
/// threads, which only a saved one may lack.
fn columns(args: &FilesArgs, unshared: bool, threads: bool) -> Vec<Column> {
    if !args.table.columns.is_empty() {
        return args.table.columns.clone();
    }
    if let Some(column) = &args.summary {
        let mut columns = columns::view(&FILES, "files,procs").expect("columns of the table");
        columns.push(column.clone());
        return columns;
    }
    let threads = if threads { "threads," } else { "" };
    if args.table.form != Form::Text {
        // A saved answer does not contain locks, and the present locks are not its own.
        let lock = if args.table.source.from.is_none() { "lock," } else { "" };
        let plain = PLAIN.replace("{threads}", threads).replace("{lock}", lock);
        return columns::view(&FILES, &plain).expect("columns of the table");
    }
    // Nearly all rows belong to the whole process.
    let tid = if unshared { "task," } else { "" };
    let pgid = if args.groups { "pgid," } else { "" };
    let ppid = if args.parents { "ppid," } else { "" };
    let user = if args.numeric_users { "uid=USER" } else { "user" };
    let view = format!(
        "command,pid,{tid}{pgid}{ppid}{threads}{user},fd_lock,type,device,size_off,node,name"
    );
    columns::view(&FILES, &view).expect("columns of the table")
}

/// What to show. Threads may have files of their own, so all threads are requested; shared files
/// are in the answer once.
fn query(args: &FilesArgs) -> Query {
    let select = &args.select;
    let fields: Vec<&Field> = match &args.fields {
        _ if args.strict.is_some() && !args.terse => lsof::fields().collect(),
        Some(letters) => letters.fields().collect(),
        None if args.terse => Vec::new(),
        None => columns(args, false, true).iter().map(|c| c.field).collect(),
    };
    let mut query = Query::new(&FILES, fields);
    query.by = args.summary.as_ref().map(|column| column.field);
    query.filter = args.table.filter.clone();
    query.sort = match args.table.sort.is_empty() && args.summary.is_some() {
        true => order::keys(&FILES, vec!["-files"]).expect("a column of the table"),
        false => args.table.sort.clone(),
    };
    // The conditions decide about the rows.
    query.groups = select.groups();
    query.groups = query.groups - lacking(args.table.source.engine, query.groups);
    let layout = args.strict.as_ref();
    let tasks = layout.is_some_and(|l| l.tasks == Some(true));
    // Files at other ends, and files of threads, are selected when they are known.
    let is_all = tasks || layout.is_some_and(|l| l.ends != layout::Ends::No);
    if !is_all {
        query.select.inodes = select.inodes.clone();
        query.select.pids = select.only_pids().unwrap_or(&[]).to_vec();
    }
    // Like lsof, list files of threads only on request.
    query.threads = (query.groups.has(Group::Fd) || query.groups.has(Group::Paths))
        && (layout.is_none() || tasks);
    if is_all {
        return query;
    }
    let (tasks, files) = (Arc::new(select.clone()), Arc::new(select.clone()));
    query.tasks = Some(Arc::new(move |row| tasks.may_match(row)));
    query.keep = Some(Arc::new(move |row| match row.part {
        Part::File(open) => files.matches(open.file),
        _ => true,
    }));
    query
}

/// The groups that add details to rows. If the only possible engine has the rows but not these
/// groups, they are left out, and this is reported.
fn lacking(engine: Choice, groups: Groups) -> Groups {
    match auto::resolved(engine) {
        Ok(Choice::Only(engine @ EngineId::Kernel)) if groups.has(Group::FileStat) => {
            auto::open(engine).map_or(Groups::NONE, |e| Groups::FILE_STAT - e.support().groups)
        }
        _ => Groups::NONE,
    }
}

/// The network namespace that rows do not name: our own, or in a saved answer that of the first
/// process with a socket.
pub fn own_netns(files: &Files<'_>, saved: bool) -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    let first = files.netns().next()?;
    if saved {
        return Some(first);
    }
    let own = std::fs::metadata("/proc/self/ns/net").ok()?.ino();
    u32::try_from(own).ok()
}

/// The locks of the descriptors, where a column shows them. For a saved answer, they are not known.
///
/// A thread reads /proc/locks while the tasks are asked for: the kernel lets nobody change locks
/// meanwhile, and first waits for an RCU grace period (`locks_start()` takes `file_rwsem` for
/// writing), which is 5 to 30 ms without any work. The descriptors of files that have any lock are
/// then looked at one by one. There are few such descriptors.
struct LocksAside(Option<std::thread::JoinHandle<Option<HashSet<u64>>>>);

/// The inode of the first pid namespace (`PROC_PID_INIT_INO`).
const FIRST_PID_NAMESPACE: u64 = 0xEFFF_FFFC;

impl LocksAside {
    fn begin(query: &Query, saved: bool) -> LocksAside {
        let filtered = query.filter.iter().flat_map(Filter::fields);
        let sorted = query.sort.iter().map(|k| k.field);
        let mut fields = query.columns.iter().copied().chain(filtered).chain(sorted);
        if saved || !fields.any(|f| ["lock", "fd_lock"].contains(&f.name)) {
            return LocksAside(None);
        }
        LocksAside(std::thread::Builder::new().spawn(locked_inodes).ok())
    }
    fn end(self, files: &Files<'_>, select: &FileSelection) -> Option<Locks> {
        let locked = self.0?.join().ok()?;
        let fdinfo = |path: &str| std::fs::read(path).ok();
        Some(Locks::find(files, |o| select.may_match(&o.row), locked.as_ref(), fdinfo))
    }
}

/// The inodes that are locked, or `None` if not all are known. /proc/locks leaves out a lock if its
/// process has no number in the pid namespace of that /proc. In a container, this is so for a lock
/// of flock(2) whose process has ended.
fn locked_inodes() -> Option<HashSet<u64>> {
    use std::os::unix::fs::MetadataExt;
    let namespace = std::fs::metadata("/proc/self/ns/pid").ok()?.ino();
    if namespace != FIRST_PID_NAMESPACE {
        return None;
    }
    // A large buffer, because the kernel takes its locks again for each read.
    let mut text = Vec::with_capacity(64 << 10);
    std::fs::File::open("/proc/locks").ok()?.read_to_end(&mut text).ok()?;
    Some(Locks::locked_inodes(&text))
}

/// The files that are shown.
pub(super) struct Shown<'a> {
    files: &'a Files<'a>,
    opened: Opened<'a>,
    select: &'a FileSelection,
    /// The threads that are also listed, by process (lsof -K).
    threads: Vec<TaskView<'a>>,
    /// The processes for which these are denied.
    denied: HashSet<(u32, Group)>,
}

/// The threads that are no main threads, by process.
fn threads(snapshot: &Snapshot) -> Vec<TaskView<'_>> {
    let mut all: Vec<_> = snapshot.tasks().filter(|t| !t.is_leader()).collect();
    all.sort_by_key(|t| (t.tgid(), t.pid()));
    all
}

impl<'a> Shown<'a> {
    fn gaps(&self) -> impl Iterator<Item = Gap<'a>> {
        let wanted = self.select.rows();
        let gaps = self.files.gaps().iter().filter(move |g| wanted.has(g.group)).copied();
        gaps.filter(|g| self.select.may_match(&Row::new(g.task)))
    }
    /// Lines that say what the answer lacks.
    fn lacking(&self, snapshot: &Snapshot, left: &[Left]) -> Vec<Lack> {
        let asked = snapshot.stream().asked();
        let names = |g: Group| match g {
            Group::Fd => "open files",
            Group::Paths => "paths (cwd, rtd, txt)",
            _ => "mapped files",
        };
        let mut lines = tally::left_out(left, snapshot);
        for group in self.select.rows().iter() {
            if !asked.has(group) {
                let tasks = snapshot.tasks().len();
                lines.extend(tally::line(Missing::NotAsked, tasks, names(group), group, snapshot));
            }
        }
        // These lines are only for the forms text and terse. In other forms, the rows themselves
        // report missing data.
        lines.extend(tally::lines_of(of_processes(self.gaps()), false, names, snapshot));
        let doubts = self.files.doubts().iter();
        let selected = doubts.filter(|g| self.select.may_match(&Row::new(g.task)));
        lines.extend(count::lacking(snapshot, selected, count::SHARING));
        lines
    }
    /// Wide enough for the longest name of a command, which has 15 bytes at most except for some
    /// kernel threads.
    fn fit_commands(&self, columns: &mut [Column]) {
        let longest = self.opened.owners().filter_map(|o| o.row.comm).map(<[u8]>::len).max();
        for c in columns.iter_mut().filter(|c| c.field.name == "command" && !c.fixed) {
            c.width = c.width.max(longest.unwrap_or(0).min(15));
        }
    }
}

/// The missing values with their reasons, once for each process, because a request for a process is
/// not a request for its threads.
pub fn of_processes<'a>(
    gaps: impl Iterator<Item = Gap<'a>>,
) -> impl Iterator<Item = (Group, Reason)> {
    let mut seen = HashSet::new();
    let key = |g: &Gap<'a>| (g.task.tgid(), g.group as u16, g.reason as u16);
    gaps.filter(move |g| seen.insert(key(g))).map(|g| (g.group, g.reason))
}

/// `-t`: the pids, each once. Is there any?
fn terse(all: &Shown<'_>) -> Result<bool, Exit> {
    let mut sink = Sink::stdout();
    let mut last = None;
    let mut any = false;
    for owner in all.opened.owners() {
        let pid = owner.row.view.tgid();
        if last != Some(pid) && all.opened.files_of(owner).next().is_some() {
            field::write_uint(sink.buf(), u64::from(pid));
            sink.buf().push(b'\n');
            (last, any) = (Some(pid), true);
            sink.settle()?;
        }
    }
    sink.finish()?;
    Ok(any)
}
