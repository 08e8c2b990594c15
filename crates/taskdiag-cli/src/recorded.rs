//! Answers of a recording, for `--from DIR --at TIME`.

use std::path::Path;
use std::time::SystemTime;

use taskdiag::recording::{Frame, FrameInfo, Recording};
use taskdiag::{Error, Snapshot};

use crate::exit::{Exit, say, say_all, shown};
use crate::interrupt;
use crate::moment::{self, At};
use crate::saved;

/// How many damaged places are named.
const NAMED: usize = 3;

/// The saved answer of a file, or an answer of a recording: the last one, or the last one up to a time.
pub fn read(path: &Path, at: Option<At>) -> Result<Snapshot, Exit> {
    if path.extension().is_some_and(|e| e == "tdr") {
        return Ok(frame(path, at)?.snapshot);
    }
    match saved::read(path) {
        // Another process has opened and read the path, so its file system answers.
        Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::IsADirectory => {
            Ok(frame(path, at)?.snapshot)
        }
        Err(e) => Err(saved::unread(path, &e)),
        Ok(_) if at.is_some() => Err(Exit::Usage(format!(
            "--at chooses from a recording, and {} is one answer: leave --at out, or name a directory of 'taskdiag record'",
            shown(path)
        ))),
        Ok(snapshot) => Ok(snapshot),
    }
}

/// Opens a recording.
pub fn read_heads(path: &Path) -> Result<Recording, Exit> {
    Recording::open(path).map_err(|e| Exit::Failed(format!("{e}{}", saved::rights(&e))))
}

/// Opens a recording, and says what of it cannot be read. One without answers is an error.
pub fn open(path: &Path) -> Result<Recording, Exit> {
    let recording = read_heads(path)?;
    say_all(&damage(&recording));
    if recording.is_empty() {
        return Err(Exit::Failed(format!(
            "{} has no answer yet: 'taskdiag record' writes the first one when it starts",
            shown(path)
        )));
    }
    Ok(recording)
}

/// Lines about the parts of a recording that are damaged, of which a few are named.
pub fn damage(recording: &Recording) -> Vec<String> {
    let damage = recording.damage();
    let mut lines: Vec<String> = damage.iter().take(NAMED).map(ToString::to_string).collect();
    if damage.len() > NAMED {
        let more = damage.len() - NAMED;
        lines.push(format!("{more} more places of the recording are damaged"));
    }
    lines
}

/// The number of the frame for a time. Says so if nothing was recorded for a while before that.
pub fn choose(recording: &Recording, at: Option<At>) -> Result<usize, Exit> {
    let info = |number| recording.info(number).expect("there is one");
    let (first, last) = (info(0), info(recording.len() - 1));
    let now = SystemTime::now();
    let Some(at) = at else {
        if last.is_stale_at(now) {
            let age = moment::length(now.duration_since(last.time).unwrap_or_default());
            let when = moment::zoned(last.time);
            say(format_args!(
                "taskdiag: the newest answer is of {when}, {age} ago: is 'taskdiag record' still running?"
            ));
        }
        return Ok(recording.len() - 1);
    };
    let time = at.moment(last.time, last.every, now);
    let number = recording.find(time).ok_or_else(|| {
        Exit::Failed(format!(
            "nothing was recorded at {}: the recording begins at {}",
            moment::zoned(time),
            moment::zoned(first.time)
        ))
    })?;
    say_gap(&info(number), time);
    Ok(number)
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

fn frame(path: &Path, at: Option<At>) -> Result<Frame, Exit> {
    let recording = open(path)?;
    let number = choose(&recording, at)?;
    let frame = recording.read(number).map_err(|e| Exit::Failed(e.to_string()))?;
    interrupt::answered();
    Ok(frame)
}
