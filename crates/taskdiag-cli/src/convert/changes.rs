//! Which rows of a frame are written: those that are new or have changed, and now and then all.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use taskdiag::field::Value;
use taskdiag::recording::FrameInfo;

/// What names a task for as long as the machine runs: its id, and its start in ticks since the boot.
pub type Key = (u32, u64);

/// Why a row is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The frame has a row for each task.
    Full,
    /// The task was not in the frame before.
    New,
    /// One of its values has changed.
    Changed,
    /// It is no longer there. The values are the last ones that were known.
    Ended,
}

impl Change {
    /// All, by their numbers.
    pub const NAMES: [&str; 4] = ["full", "new", "changed", "ended"];
}

struct Last {
    values: Vec<Value<'static>>,
    frame: u64,
}

/// The tasks of the frame before.
pub struct Changes {
    full_every: Duration,
    tasks: HashMap<Key, Last>,
    /// The number of this frame.
    frame: u64,
    /// When all tasks were written, and the boot clock of the frame before.
    full: Option<SystemTime>,
    boottime: Duration,
    /// Whether all tasks are written now.
    is_full: bool,
}

impl Changes {
    /// There is no frame yet, so the first one is full.
    pub fn new(full_every: Duration) -> Changes {
        let (frame, boottime) = (0, Duration::ZERO);
        Changes { full_every, tasks: HashMap::new(), frame, full: None, boottime, is_full: true }
    }
    /// Begins a frame. Returns whether the machine has booted since the one before.
    pub fn begin(&mut self, info: &FrameInfo) -> bool {
        let has_booted = info.boottime < self.boottime;
        // Where the clock was set back, the age is an error, and a full frame is due as well.
        let is_due = |full: SystemTime| {
            info.time.duration_since(full).is_ok_and(|age| age < self.full_every)
        };
        self.is_full = has_booted || info.begins || !self.full.is_some_and(is_due);
        if self.is_full {
            self.full = Some(info.time);
        }
        self.frame += 1;
        self.boottime = info.boottime;
        has_booted
    }
    /// Enters a task of the frame. Returns why it has to be written, or `None` if it is as before.
    pub fn see(&mut self, key: Key, values: &[Value<'_>]) -> Option<Change> {
        let own = || values.iter().map(|v| v.clone().into_owned()).collect();
        let frame = self.frame;
        let change = match self.tasks.get_mut(&key) {
            None => {
                self.tasks.insert(key, Last { values: own(), frame });
                Some(Change::New)
            }
            Some(last) => {
                last.frame = frame;
                // A value borrows another length of time here, which only the compiler cares about.
                let is_same = last.values.iter().zip(values).all(|(a, b)| a == b);
                if !is_same {
                    last.values = own();
                }
                (!is_same).then_some(Change::Changed)
            }
        };
        if self.is_full { Some(Change::Full) } else { change }
    }
    /// The tasks of the frame before that are not in this one.
    pub fn ended(&mut self) -> Vec<(Key, Vec<Value<'static>>)> {
        let frame = self.frame;
        let mut gone = Vec::new();
        self.tasks.retain(|key, last| {
            let is_here = last.frame == frame;
            if !is_here {
                gone.push((*key, std::mem::take(&mut last.values)));
            }
            is_here
        });
        gone
    }
    /// Forgets all tasks, so that the next frame is full.
    pub fn forget(&mut self) {
        self.tasks.clear();
        self.full = None;
    }
}
