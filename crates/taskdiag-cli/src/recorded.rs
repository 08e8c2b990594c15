//! Answers of a recording, for `--from DIR --at TIME`.

use std::path::Path;
use std::time::SystemTime;

use taskdiag::recording::{Frame, FrameInfo, Recording};
use taskdiag::wire::{CUT_OTHERS, Cut};
use taskdiag::{Error, Snapshot};

use crate::exit::{Exit, Lack, say, say_all, shown};
use crate::interrupt;
use crate::moment::{self, At};
use crate::saved;

/// The largest number of damaged places that are named.
const NAMED: usize = 3;

/// The saved answer of a file, or an answer of a recording: the last one, or the last one up to a
/// time.
pub fn read(path: &Path, at: Option<At>) -> Result<Snapshot, Exit> {
    Ok(find_answer(path, at)?.0)
}

/// As [`read`]. A recording also gives the previous answer, if it has one of the same boot.
pub fn read_with_earlier(
    path: &Path,
    at: Option<At>,
) -> Result<(Snapshot, Option<Snapshot>), Exit> {
    let (snapshot, place) = find_answer(path, at)?;
    let Some((recording, number)) = place.filter(|(_, number)| *number > 0) else {
        return Ok((snapshot, None));
    };
    let earlier = match recording.read(number - 1) {
        Ok(frame) => Some(frame.snapshot),
        Err(e) => {
            say(format_args!("taskdiag: {e}, so nothing is known about the time since then"));
            None
        }
    };
    let is_same_boot = |e: &Snapshot| e.host().is_same_boot(&snapshot.host()) != Some(false);
    let earlier = earlier.filter(is_same_boot);
    Ok((snapshot, earlier))
}

/// The answer, with its recording and its number there if it is from one.
fn find_answer(
    path: &Path,
    at: Option<At>,
) -> Result<(Snapshot, Option<(Recording, usize)>), Exit> {
    if path.extension().is_some_and(|e| e == "tdr") {
        return frame(path, at);
    }
    match saved::read(path) {
        // Another process has opened and read the path, so its file system answers.
        Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::IsADirectory => {
            frame(path, at)
        }
        Err(e) => Err(saved::unread(path, &e)),
        Ok(_) if at.is_some() => Err(Exit::Usage(format!(
            "--at chooses from a recording, and {} is one answer: leave --at out, or name a directory of 'taskdiag record'",
            shown(path)
        ))),
        Ok(snapshot) => Ok((snapshot, None)),
    }
}

/// Opens a recording.
pub fn read_heads(path: &Path) -> Result<Recording, Exit> {
    crate::aside::answers(path).map_err(|e| Exit::Failed(format!("{}: {e}", shown(path))))?;
    Recording::open(path).map_err(|e| Exit::Failed(format!("{e}{}", saved::rights(&e))))
}

/// Opens a recording, and reports the parts of it that cannot be read. A recording without answers
/// is an error.
pub fn open(path: &Path) -> Result<Recording, Exit> {
    let recording = read_heads(path)?;
    if recording.is_empty() && saved::read(path).is_ok() {
        return Err(Exit::Failed(format!(
            "{} is one answer of 'taskdiag dump' and no recording: ps, files, maps, memory and tree show it with --from",
            shown(path)
        )));
    }
    say_all(damage(&recording).iter().map(|lack| &lack.line));
    if recording.is_empty() {
        return Err(Exit::Failed(format!(
            "{} has no answer yet: 'taskdiag record' writes the first one when it starts",
            shown(path)
        )));
    }
    Ok(recording)
}

/// Messages about the damaged parts of a recording, of which a few are named.
pub fn damage(recording: &Recording) -> Vec<Lack> {
    let damage = recording.damage();
    let mut lines: Vec<String> = damage.iter().take(NAMED).map(ToString::to_string).collect();
    if damage.len() > NAMED {
        let more = damage.len() - NAMED;
        lines.push(format!("{more} more places of the recording are damaged"));
    }
    lines.into_iter().map(Lack::always).collect()
}

/// Data that a recorder left out of an answer, to keep room for other users.
pub fn cuts(cuts: &[Cut]) -> String {
    let mut parts: Vec<String> = cuts.iter().take(NAMED).filter_map(taken).collect();
    if cuts.len() > NAMED {
        parts.push(format!("and of {} more users", cuts.len() - NAMED));
    }
    let answers: u64 = cuts.iter().map(|c| c.answers).fold(0, u64::saturating_add);
    if answers > 0 {
        parts.push(format!("{answers} earlier answers"));
    }
    parts.join(", ")
}

fn taken(cut: &Cut) -> Option<String> {
    let whose = match cut.uid {
        CUT_OTHERS => String::from("of other users"),
        uid => format!("of uid {uid}"),
    };
    match (cut.tasks, cut.cut_tasks, cut.cut_bytes.div_ceil(1000)) {
        (0, 0, _) => None,
        (0, tasks, kb) => Some(format!("{kb} kB of values of {tasks} tasks {whose}")),
        (left, 0, _) => Some(format!("{left} tasks {whose}")),
        (left, tasks, kb) => {
            Some(format!("{left} tasks, and {kb} kB of values of {tasks} tasks, {whose}"))
        }
    }
}

/// Reports the data that the recorder left out of an answer.
fn say_cuts(snapshot: &Snapshot) {
    // The command 'cgroups' reports the cgroups that it lacks.
    let all = snapshot.stream().cuts().iter().filter(|c| c.tasks | c.cut_tasks | c.answers > 0);
    let all: Vec<Cut> = all.copied().collect();
    if !all.is_empty() {
        say(format_args!(
            "taskdiag: the recorder had no room for all of this answer, and left out: {}",
            cuts(&all)
        ));
    }
}

fn info(recording: &Recording, number: usize) -> FrameInfo {
    recording.info(number).expect("there is one")
}

/// The number of the frame for a time, and that time. Without one, the newest frame.
fn find(recording: &Recording, at: Option<At>) -> Result<(usize, Option<SystemTime>), Exit> {
    let (first, last) = (info(recording, 0), info(recording, recording.len() - 1));
    let Some(at) = at else { return Ok((recording.len() - 1, None)) };
    let time = at
        .moment(last.time, last.every, SystemTime::now())
        .map_err(|why| Exit::Usage(format!("--at: {why}")))?;
    let number = recording.find(time).ok_or_else(|| {
        Exit::Failed(format!(
            "nothing was recorded at {}: the recording begins at {}",
            moment::zoned(time),
            moment::zoned(first.time)
        ))
    })?;
    Ok((number, Some(time)))
}

fn say_gap(frame: &FrameInfo, time: SystemTime) {
    if frame.is_stale_at(time) {
        let age = moment::length(time.duration_since(frame.time).unwrap_or_default());
        let (when, wanted) = (moment::zoned(frame.time), moment::zoned(time));
        say(format_args!(
            "taskdiag: nothing was recorded for {age} before {wanted}: this is of {when}"
        ));
    }
}

/// Prints a warning if the newest frame is old.
fn say_age(recording: &Recording) {
    let (last, now) = (info(recording, recording.len() - 1), SystemTime::now());
    if last.is_stale_at(now) {
        let age = moment::length(now.duration_since(last.time).unwrap_or_default());
        let when = moment::zoned(last.time);
        say(format_args!(
            "taskdiag: the newest answer is of {when}, {age} ago: is 'taskdiag record' still running?"
        ));
    }
}

/// The frame for a time. If that frame is damaged, the last intact frame before it, with a message.
fn frame(path: &Path, at: Option<At>) -> Result<(Snapshot, Option<(Recording, usize)>), Exit> {
    let recording = open(path)?;
    let frame = whole(&recording, at)?;
    interrupt::answered();
    Ok((frame.snapshot, Some((recording, frame.number))))
}

/// The frame for a time, from an open recording.
pub fn whole(recording: &Recording, at: Option<At>) -> Result<Frame, Exit> {
    let (number, time) = find(recording, at)?;
    if time.is_none() {
        say_age(recording);
    }
    let mut damaged = None;
    // If the clock was set back, some earlier frames have later times.
    let is_due = |n: &usize| time.is_none_or(|time| info(recording, *n).time <= time);
    for n in (0..=number).rev().filter(is_due) {
        match recording.read(n) {
            Ok(frame) => {
                match (damaged, time) {
                    (Some(why), _) => say(format_args!(
                        "taskdiag: {why}; this is the last whole answer before it, of {}",
                        moment::zoned(frame.info.time)
                    )),
                    (None, Some(time)) => say_gap(&frame.info, time),
                    (None, None) => {}
                }
                say_cuts(&frame.snapshot);
                return Ok(frame);
            }
            Err(e) => _ = damaged.get_or_insert(e),
        }
    }
    Err(Exit::Failed(damaged.expect("the frame for the time was read").to_string()))
}
