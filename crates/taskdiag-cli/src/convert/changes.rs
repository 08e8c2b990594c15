//! Decides which tasks of a frame get a row: those that are new or have changed, and at times all of them.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use taskdiag::field::Value;
use taskdiag::recording::FrameInfo;

/// Identifies a task until the next boot: its id, and its start in ticks since boot.
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
    /// Their names, by number.
    pub const NAMES: [&str; 4] = ["full", "new", "changed", "ended"];
}

/// What is known of a task from the last frame that had it.
struct Last {
    values: Vec<Value<'static>>,
    /// The number of that frame.
    frame: u64,
}

/// Compares each frame with the one before.
pub struct Changes {
    full_every: Duration,
    tasks: HashMap<Key, Last>,
    /// The number of this frame.
    frame: u64,
    /// The time of the last full frame.
    full: Option<SystemTime>,
    /// The time since boot of the frame before.
    boottime: Duration,
    /// Whether this frame is written in full.
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
        // If the clock was set back, there is no age, and a full frame is due.
        let is_recent = |full: SystemTime| {
            info.time.duration_since(full).is_ok_and(|age| age < self.full_every)
        };
        self.is_full = has_booted || info.begins || !self.full.is_some_and(is_recent);
        if self.is_full {
            self.full = Some(info.time);
        }
        self.frame += 1;
        self.boottime = info.boottime;
        has_booted
    }
    /// Notes a task of this frame. Returns why it gets a row, or `None` if it gets none because nothing has changed.
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
                // Not `==` of the vectors: their values borrow for different lifetimes.
                let is_same = last.values.iter().zip(values).all(|(a, b)| a == b);
                if !is_same {
                    last.values = own();
                }
                (!is_same).then_some(Change::Changed)
            }
        };
        if self.is_full { Some(Change::Full) } else { change }
    }
    /// The tasks of the frame before that are not in this one, with their last values. Forgets them.
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
