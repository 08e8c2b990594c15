//! Decides which tasks of a frame, or which entries of their lists, get a row: those that are new or have changed, and at
//! times all.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, SystemTime};

use taskdiag::field::Value;
use taskdiag::recording::FrameInfo;

/// Identifies a row until the next boot. Rows are sorted by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The id of the task.
    pub pid: u32,
    /// Its start in ticks since boot.
    pub start_ticks: u64,
    /// What tells an entry of its list from the others. Zeroes if the row is the task itself.
    pub entry: [u64; 3],
}

/// Why a row is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The frame has a row for everything.
    Full,
    /// It was not in the frame before.
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

/// What is known from the last frame that had it.
struct Last {
    values: Vec<Value<'static>>,
    /// The number of that frame.
    frame: u64,
    /// Whether a full frame lacks it, because it was not known then. It gets a row when it is seen again.
    is_due: bool,
}

/// Compares each frame with the one before.
pub struct Changes {
    full_every: Duration,
    known: HashMap<Key, Last>,
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
        Changes { full_every, known: HashMap::new(), frame, full: None, boottime, is_full: true }
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
    /// Notes a row of this frame. Returns why it is written, or `None` if it is not: because nothing has changed, or because
    /// this frame has had the key before.
    pub fn see(&mut self, key: Key, values: &[Value<'_>]) -> Option<Change> {
        let own = || values.iter().map(|v| v.clone().into_owned()).collect();
        let frame = self.frame;
        let change = match self.known.get_mut(&key) {
            None => {
                self.known.insert(key, Last { values: own(), frame, is_due: false });
                Some(Change::New)
            }
            Some(last) if last.frame == frame => return None,
            Some(last) => {
                last.frame = frame;
                let is_due = std::mem::take(&mut last.is_due);
                // Not `==` of the vectors: their values borrow for different lifetimes.
                let is_same = last.values.iter().zip(values).all(|(a, b)| a == b);
                if !is_same {
                    last.values = own();
                }
                (!is_same || is_due).then_some(Change::Changed)
            }
        };
        if self.is_full { Some(Change::Full) } else { change }
    }
    /// What the frame before had and this one has not, with the last values. Forgets it. What belongs to one of the
    /// processes in `unknown` may still be there, and is kept.
    pub fn ended(&mut self, unknown: &HashSet<u32>) -> Vec<(Key, Vec<Value<'static>>)> {
        let (frame, is_full) = (self.frame, self.is_full);
        let mut gone = Vec::new();
        self.known.retain(|key, last| {
            if last.frame == frame {
                return true;
            }
            if unknown.contains(&key.pid) {
                last.is_due |= is_full;
                return true;
            }
            gone.push((*key, std::mem::take(&mut last.values)));
            false
        });
        gone
    }
    /// How much is known.
    pub fn len(&self) -> usize {
        self.known.len()
    }
    /// Forgets everything, so that the next frame is full.
    pub fn forget(&mut self) {
        self.known.clear();
        self.full = None;
    }
}
