//! `taskdiag convert`: a recording as Parquet files, an hour each. `docs/arrow.md` describes them.

mod changes;
mod entries;
mod hour;
mod part;
mod partition;
mod rows;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::FlockOperation;
use taskdiag::field::TASKS;
use taskdiag::recording::Recording;

use crate::args::convert::{ConvertArgs, Table, TableArgs};
use crate::columns;
use crate::exit::{Exit, shown};
use crate::{interrupt, recorded, sink};
use hour::Hour;
use partition::Partition;
use rows::Lacks;

const HOUR: u64 = 3600;

/// Run it.
pub fn run(args: &ConvertArgs) -> Result<(), Exit> {
    // Ctrl-C may end it anywhere, because a file gets its name only when it is complete.
    interrupt::rest();
    let opened = SystemTime::now();
    let recording = recorded::read_heads(&args.recording)?;
    let mut lacking = recorded::damage(&recording);
    let mut unread = Vec::new();
    let _lock = lock(&args.directory)?;
    let tables = match has_threads(&recording) {
        true => of_threads(&args.tables)?,
        false => args.tables.clone(),
    };
    let mut lacks = vec![Lacks::default(); tables.len()];
    for (number, frames) in hours(&recording) {
        let end = UNIX_EPOCH + Duration::from_secs((number + 1) * HOUR);
        let partition = Partition::new(&args.directory, number, &args.host, &tables, opened >= end);
        if !args.again && partition.is_complete() {
            continue;
        }
        let mut hour = Hour::new(partition, &tables, args.full_every);
        for frame in frames {
            match recording.read(frame) {
                Ok(frame) => hour.add(&frame).map_err(Exit::Output)?,
                Err(e) => unread.push(e.to_string()),
            }
        }
        for line in hour.write().map_err(Exit::Output)? {
            sink::write_all(line.as_bytes())?;
        }
        for (sum, rows) in lacks.iter_mut().zip(&hour.tables) {
            sum.add(&rows.lacks);
        }
    }
    lacking.extend(tables.iter().zip(&lacks).flat_map(|(table, lacks)| lines(table, lacks)));
    if let Some(first) = unread.first() {
        let count = unread.len();
        lacking.push(format!(
            "{count} answers of the recording could not be read and are not in the files; the first: {first}"
        ));
    }
    match lacking.is_empty() {
        true => Ok(()),
        false => Err(Exit::Partial(lacking)),
    }
}

/// The tables of a recording of threads.
fn of_threads(tables: &[TableArgs]) -> Result<Vec<TableArgs>, Exit> {
    let mut tables = tables.to_vec();
    for table in &mut tables {
        if table.table == Table::Processes {
            table.table = Table::Threads;
        }
        // A thread may have open files of its own. All threads have the same mappings.
        let has_tid = matches!(table.table, Table::Threads | Table::Sockets | Table::Files);
        if has_tid && !table.columns.iter().any(|c| c.key == "tid") {
            table.columns.insert(1, columns::view(&TASKS, "tid")?.remove(0));
        }
    }
    Ok(tables)
}

/// Lines about what the answers lack of the list that a table is made of.
fn lines(table: &TableArgs, lacks: &Lacks) -> Vec<String> {
    let Some((group, list)) = table.table.list() else { return Vec::new() };
    let name = table.table.name();
    let Lacks { with, without, unread } = lacks;
    let how = format!("record them with 'taskdiag record --groups default,{}'", group.name());
    let mut lines = Vec::new();
    match (*with, *without) {
        (_, 0) => {}
        // Most recordings have no lists. It is no news, unless the table was asked for.
        (0, _) if table.is_named => {
            lines.push(format!("the table {name} is not written, because the recording has no {list}: {how}"));
        }
        (0, _) => {}
        (with, without) => lines.push(format!(
            "{without} of {} answers were recorded without {list}, so the table {name} tells nothing about their time: {how}",
            with + without
        )),
    }
    for (reason, count) in unread {
        lines.push(format!(
            "the {list} of a process could not be read {count} times ({reason}): the table {name} has what was known of them before"
        ));
    }
    lines
}

/// Keeps a second command from writing to the directory at the same time.
fn lock(directory: &Path) -> Result<File, Exit> {
    let failed = |e: std::io::Error| Exit::Failed(format!("{}: {e}", shown(directory)));
    // Only the owner may look at what others run.
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
    made.map_err(|e| match e.kind() {
        ErrorKind::AlreadyExists => Exit::Failed(format!(
            "{} is not a directory: name one, which is made if it is not there",
            shown(directory)
        )),
        _ => failed(e),
    })?;
    let file = File::open(directory).map_err(failed)?;
    let there = file.metadata().map_err(failed)?;
    // Whoever else may put links there could make root overwrite any file.
    if there.uid() != 0 && there.uid() != rustix::process::geteuid().as_raw() {
        return Err(Exit::Failed(format!(
            "{} belongs to another user (uid {}), who could make this overwrite other files: name a directory of yours",
            shown(directory),
            there.uid()
        )));
    }
    if there.mode() & 0o022 != 0 {
        return Err(Exit::Failed(format!(
            "other users may write to {}, and could make this overwrite other files: run 'chmod go-w' on it, or name a directory \
             in it, which is made",
            shown(directory)
        )));
    }
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(Exit::Failed(format!(
            "another 'taskdiag convert' writes to {}: wait until it has ended",
            shown(directory)
        ))),
        Err(e) => Err(failed(e.into())),
    }
}

/// Whether the recording is one of threads.
fn has_threads(recording: &Recording) -> bool {
    let first = recording.iter().find_map(Result::ok);
    first.is_some_and(|f| f.snapshot.stream().strategy().is_threads())
}

/// The numbers of the frames in each hour since 1970. If the clock was set back, an hour has frames that were written at two
/// different times.
fn hours(recording: &Recording) -> BTreeMap<u64, Vec<usize>> {
    let mut hours: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (number, info) in recording.infos().enumerate() {
        let since = info.time.duration_since(UNIX_EPOCH).unwrap_or_default();
        hours.entry(since.as_secs() / HOUR).or_default().push(number);
    }
    hours
}
