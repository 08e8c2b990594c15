//! `taskdiag convert`: a recording as Parquet files, an hour each. `docs/reference/arrow.md`
//! describes them.
//!
//! `entries` defines the rows of each table, `changes` decides which rows of a frame are written,
//! `kept` has the values of the previous frame for that, `rows` collects the rows of a table for an
//! hour, `out` writes them to files, and `hour` names the files of an hour.

mod changes;
mod entries;
mod hour;
mod kinds;
mod out;
mod part;
mod partition;
mod rows;
mod stored;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::FlockOperation;
use taskdiag::Host;
use taskdiag::recording::{Recording, check_owner};

use crate::args::convert::{ConvertArgs, Table, TableArgs};
use crate::exit::{Asked, Exit, Lack, Partial, shown};
use crate::{interrupt, recorded, sink};
use entries::Entries as _;
use hour::Hour;
use kinds::Kinds;
use partition::{Lake, Partition};
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
    let mut lacks: Vec<(TableArgs, Lacks)> = Vec::new();
    let mut strays = 0;
    for (number, frames) in hours(&recording) {
        let end = UNIX_EPOCH + Duration::from_secs((number + 1) * HOUR);
        let tables = kinds::tables(&args.tables, Kinds::of(&recording, &frames))?;
        let count = frames.len() as u64;
        let host = host(&recording, &frames);
        let name = match (&args.host, &host.name) {
            (Some(name), _) => name.clone(),
            (None, Some(name)) => crate::args::convert::host(String::from_utf8_lossy(name).into())?,
            // An older version recorded it, most likely here.
            (None, None) => own_name()?,
        };
        let lake = Lake { directory: &args.directory, name: &name, host: &host };
        let partition = Partition::new(&lake, number, &tables, opened >= end, count);
        if !args.again && partition.is_complete() {
            continue;
        }
        let mut hour = Hour::new(partition, &tables, args.full_every);
        for frame in frames {
            match recording.read(frame) {
                Ok(frame) if hour.takes(&frame) => hour.add(&frame).map_err(Exit::Output)?,
                Ok(_) => strays += 1,
                Err(e) => unread.push(e.to_string()),
            }
        }
        for line in hour.write().map_err(Exit::Output)? {
            sink::write_all(line.as_bytes())?;
        }
        for (args, rows) in tables.iter().zip(&hour.tables) {
            match lacks.iter_mut().find(|(known, _)| known.table == args.table) {
                Some((_, sum)) => sum.add(&rows.lacks),
                None => lacks.push((args.clone(), rows.lacks.clone())),
            }
        }
    }
    lacking.extend(lacks.iter().flat_map(|(table, lacks)| lines(table, lacks)));
    if strays > 0 {
        lacking.push(Lack::always(format!(
            "{strays} answers of the recording are not in the files: they have threads where the answers around them have processes, or the \
             other way round, although no new writer began there"
        )));
    }
    if let Some(first) = unread.first() {
        let count = unread.len();
        lacking.push(Lack::always(format!(
            "{count} answers of the recording could not be read and are not in the files; the first: {first}"
        )));
    }
    match lacking.is_empty() {
        true => Ok(()),
        false => Err(Exit::Partial(Partial::new(lacking, Asked::All, false))),
    }
}

/// The machine that an hour was recorded on, by its first frame that can be read. So the files of
/// an hour keep their place if the name changes later in it.
fn host(recording: &Recording, frames: &[usize]) -> Host {
    let mut hosts = frames.iter().filter_map(|n| Some(recording.read(*n).ok()?.snapshot.host()));
    hosts.next().unwrap_or_default()
}

/// The name of this machine.
fn own_name() -> Result<String, Exit> {
    let name = Host::here().name.unwrap_or_default();
    crate::args::convert::host(String::from_utf8_lossy(&name).into())
}

/// Messages about the entries that the answers lack in the list of a table.
fn lines(table: &TableArgs, lacks: &Lacks) -> Vec<Lack> {
    let name = table.table.name();
    let Lacks { with, without, unread, other } = lacks;
    let Some(group) = table.table.list() else {
        let (of, there) = match table.table {
            Table::Threads => ("processes", Table::Processes.name()),
            _ => ("threads", Table::Threads.name()),
        };
        let line = || {
            format!(
                "{other} of {} answers are of {of}, so the table {name} has no rows for their time: they are in the table {there}",
                with + other
            )
        };
        return (*other > 0).then(line).map(Lack::always).into_iter().collect();
    };
    let list = table.table.list_name();
    let how = format!("record them with 'taskdiag record --groups default,{}'", group.name());
    let mut lines = Vec::new();
    match (*with, *without) {
        (_, 0) => {}
        // Most recordings have no lists, so this is reported only if the table was requested.
        (0, _) if table.is_named => {
            lines.push(format!("the table {name} is not written, because the recording has no {list}: {how}"));
        }
        (0, _) => {}
        (with, without) => lines.push(format!(
            "{without} of {} answers were recorded without {list}, so the table {name} has no rows for their time: {how}",
            with + without
        )),
    }
    let mut lacks: Vec<Lack> = lines.into_iter().map(Lack::always).collect();
    // The user who made the recording had no right to see these values.
    lacks.extend(unread.iter().map(|(reason, count)| Lack {
        line: format!(
            "the {list} of a process could not be read {count} times ({reason}): the table {name} keeps their earlier rows"
        ),
        from: Asked::Named,
    }));
    lacks
}

/// Keeps a second command from writing to the directory at the same time.
fn lock(directory: &Path) -> Result<File, Exit> {
    let failed = |e: std::io::Error| Exit::Failed(format!("{}: {e}", shown(directory)));
    crate::aside::answers(directory).map_err(failed)?;
    // Only the owner may see the processes of other users.
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
    made.map_err(|e| match e.kind() {
        ErrorKind::AlreadyExists => Exit::Failed(format!(
            "{} is not a directory: name one, which is created if it does not exist",
            shown(directory)
        )),
        _ => failed(e),
    })?;
    let file = File::open(directory).map_err(failed)?;
    // Another user who can create links there could make root overwrite any file.
    check_owner(directory).map_err(|e| Exit::Failed(e.to_string()))?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(Exit::Failed(format!(
            "another 'taskdiag convert' writes to {}: wait until it has ended",
            shown(directory)
        ))),
        Err(e) => Err(failed(e.into())),
    }
}

/// The numbers of the frames in each hour since 1970. If the clock was set back, an hour has frames
/// that were written at two different times.
fn hours(recording: &Recording) -> BTreeMap<u64, Vec<usize>> {
    let mut hours: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (number, info) in recording.infos().enumerate() {
        let since = info.time.duration_since(UNIX_EPOCH).unwrap_or_default();
        hours.entry(since.as_secs() / HOUR).or_default().push(number);
    }
    hours
}
