//! `taskdiag convert`: a recording as Parquet files, an hour each. `docs/arrow.md` describes them.

mod changes;
mod hour;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::FlockOperation;
use taskdiag::field::TASKS;
use taskdiag::recording::Recording;

use crate::args::convert::ConvertArgs;
use crate::columns;
use crate::exit::{Exit, shown};
use crate::{interrupt, recorded, sink};
use hour::{Hour, Partition};

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
    let threads = has_threads(&recording);
    let mut columns = args.columns.clone();
    if threads && !columns.iter().any(|c| c.key == "tid") {
        columns.insert(1, columns::view(&TASKS, "tid")?.remove(0));
    }
    for (number, frames) in hours(&recording) {
        let end = UNIX_EPOCH + Duration::from_secs((number + 1) * HOUR);
        let partition = Partition::new(&args.directory, number, &args.host, threads);
        if !args.again && partition.is_complete() {
            continue;
        }
        let mut hour = Hour::new(&columns, args.full_every, threads, opened >= end);
        for frame in frames {
            match recording.read(frame) {
                Ok(frame) => hour.add(&frame).map_err(Exit::Output)?,
                Err(e) => unread.push(e.to_string()),
            }
        }
        if let Some(line) = hour.write(&partition).map_err(Exit::Output)? {
            sink::write_all(line.as_bytes())?;
        }
    }
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
