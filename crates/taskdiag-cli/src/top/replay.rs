//! Answers from a recording instead of this machine, for `taskdiag top --replay`.

use std::path::Path;
use std::time::SystemTime;

use taskdiag::recording::Recording;
use taskdiag::{Rates, Snapshot};

use crate::exit::Exit;
use crate::moment::{self, At};
use crate::recorded;

/// A recording, and the position in it.
#[derive(Debug)]
pub struct Replay {
    recording: Recording,
    /// The frame that is wanted.
    wanted: usize,
    /// The frame that is shown, and the one before it.
    shown: Option<usize>,
    now: Option<Snapshot>,
    before: Option<Snapshot>,
}

/// The change that a frame caused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turned {
    /// The frame is the same.
    Same,
    /// The frame follows the previous one.
    Next,
    /// The frame is elsewhere in the recording. The tasks that ended before it are not known.
    Other,
}

impl Replay {
    /// Opens a recording at a time, or at its end.
    pub fn open(path: &Path, at: Option<At>) -> Result<Replay, Exit> {
        let recording = recorded::open(path)?;
        let wanted = recorded::whole(&recording, at)?.number;
        Ok(Replay { recording, wanted, shown: None, now: None, before: None })
    }
    /// Goes this many frames forward or back. Returns false if there are no more.
    pub fn step(&mut self, by: isize) -> bool {
        let last = self.recording.len() - 1;
        let wanted = self.wanted.saturating_add_signed(by).min(last);
        let moves = wanted != self.wanted;
        self.wanted = wanted;
        moves
    }
    /// Goes to the last frame up to a time. Returns an error if there is none.
    pub fn go(&mut self, at: At) -> Result<(), String> {
        let last = self.recording.info(self.recording.len() - 1).expect("there is one");
        let time = at.moment(last.time, last.every, SystemTime::now())?;
        self.wanted = self.recording.find(time).ok_or_else(|| {
            let first = self.recording.info(0).expect("there is one");
            format!("the recording begins at {}", moment::zoned(first.time))
        })?;
        Ok(())
    }
    /// Reads the wanted frame, and updates the rates. If it cannot be read, the frame that is shown
    /// stays.
    pub fn turn(&mut self, rates: &mut Rates) -> Result<Turned, Exit> {
        let (wanted, shown) = (self.wanted, self.shown);
        if shown == Some(wanted) {
            return Ok(Turned::Same);
        }
        let read = |number: usize| match self.recording.read(number) {
            Ok(frame) => Ok(frame.snapshot),
            Err(e) => Err(Exit::Failed(e.to_string())),
        };
        let now = read(wanted).inspect_err(|_| self.wanted = shown.unwrap_or(wanted))?;
        let is_next = shown.is_some_and(|n| n + 1 == wanted);
        let before = match wanted.checked_sub(1) {
            _ if is_next => self.now.take(),
            // Rates need the previous frame.
            Some(number) => read(number).ok(),
            None => None,
        };
        // Threads cannot be compared with processes, and after another boot all tasks are new.
        let is_alike = |old: &Snapshot| {
            let (old, new) = (old.stream(), now.stream());
            old.strategy() == new.strategy()
                && old.info().boot_id.is_same(&new.info().boot_id) != Some(false)
                && old.info().boottime_ns < new.info().boottime_ns
        };
        let before = before.filter(is_alike);
        if !is_next || before.is_none() {
            *rates = Rates::new();
            if let Some(before) = &before {
                rates.update(before);
            }
        }
        rates.update(&now);
        (self.shown, self.now, self.before) = (Some(wanted), Some(now), before);
        Ok(if is_next { Turned::Next } else { Turned::Other })
    }
    /// The frame that is shown.
    pub fn now(&self) -> Option<&Snapshot> {
        self.now.as_ref()
    }
    /// The frame before it.
    pub fn before(&self) -> Option<&Snapshot> {
        self.before.as_ref()
    }
    /// When it was recorded, and where in the recording it is.
    pub fn line(&self) -> String {
        let number = self.shown.unwrap_or(self.wanted);
        let info = self.recording.info(number).expect("it is there");
        let gap = match self.recording.gap_before(number) {
            Some(gap) => format!(", the first after {} without any", moment::length(gap)),
            None => String::new(),
        };
        format!(
            "{}, frame {} of {}{gap}",
            moment::shown(info.time),
            number + 1,
            self.recording.len()
        )
    }
}
