//! Decides which tasks of a frame, or which entries of their lists, get a row: those that are new
//! or have changed, and all of them in full frames.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, SystemTime};

use taskdiag::BootId;
use taskdiag::field::Value;
use taskdiag::recording::FrameInfo;

use super::stored::{StoredValue, Texts};

/// Identifies a row. Rows are sorted by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The id of the task.
    pub pid: u32,
    /// The start of the task in ticks since boot.
    pub start_ticks: u64,
    /// Identifies an entry of the task's list. Zeroes if the row is the task itself.
    pub entry: [u64; 3],
    /// How often the machine was booted before in these frames. A task of another boot may have the
    /// same pid and ticks.
    pub boot: u32,
}

/// The reason for a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The frame has a row for everything.
    Full,
    /// The row was not in the previous frame.
    New,
    /// A value of the row has changed.
    Changed,
    /// The row has gone. Its values are the last known ones.
    Ended,
}

impl Change {
    /// The names of the changes, indexed by number.
    pub const NAMES: [&str; 4] = ["full", "new", "changed", "ended"];
}

/// The values from the last frame that had it.
struct Last {
    values: Box<[StoredValue]>,
    /// The number of that frame.
    frame: u64,
    /// Does the last full frame lack it, because it could not be read then? It gets a row when it
    /// is seen again.
    is_due: bool,
}

/// Compares each frame with the previous one.
pub struct Changes {
    full_every: Duration,
    /// The largest amount of memory that the known rows may take.
    most: usize,
    known: HashMap<Key, Last>,
    texts: Texts,
    /// The bytes of `known`, and whether this frame has more rows than may be known.
    bytes: usize,
    is_over: bool,
    /// The number of this frame.
    frame: u64,
    /// The time of the last full frame.
    full: Option<SystemTime>,
    /// The time since boot of the previous frame.
    boottime: Duration,
    /// When the machine had booted, by the clocks of that frame.
    boot: Option<SystemTime>,
    /// The id of that boot.
    boot_id: BootId,
    /// How often the machine was booted.
    boots: u32,
    /// Whether this frame is written in full.
    is_full: bool,
}

/// The clocks of a boot drift against each other while its time is corrected. No machine boots
/// within this time.
const SLACK: Duration = Duration::from_secs(2);

fn apart(a: SystemTime, b: SystemTime) -> Duration {
    a.duration_since(b).unwrap_or_else(|e| e.duration())
}

impl Changes {
    /// State before the first frame, which will be full. The rows of a frame may take `most` bytes;
    /// if they take more, the next frame is full, too.
    pub fn new(full_every: Duration, most: usize) -> Changes {
        Changes {
            full_every,
            most,
            known: HashMap::new(),
            texts: Texts::default(),
            bytes: 0,
            is_over: false,
            frame: 0,
            full: None,
            boottime: Duration::ZERO,
            boot: None,
            boot_id: BootId::default(),
            boots: 0,
            is_full: true,
        }
    }
    /// Begins a frame of this boot. Returns whether the machine has booted since the previous one.
    pub fn begin(&mut self, info: &FrameInfo, boot_id: BootId) -> bool {
        let boot = info.time.checked_sub(info.boottime);
        // Older versions did not record the id of the boot. After a boot, the time since boot can
        // still be larger than in the last frame before it. A writer does not survive a boot, so if
        // the clocks differ and the writer is the same, the clock was set.
        let is_other = match (boot, self.boot.filter(|_| info.begins)) {
            (Some(now), Some(before)) => apart(now, before) > SLACK,
            _ => false,
        };
        let by_clocks = info.boottime < self.boottime || is_other;
        let has_booted = self.boot_id.is_same(&boot_id).map_or(by_clocks, |is_same| !is_same);
        // If the clock was set back, there is no age, and a full frame is due.
        let is_recent = |full: SystemTime| {
            info.time.duration_since(full).is_ok_and(|age| age < self.full_every)
        };
        self.is_full = has_booted || info.begins || !self.full.is_some_and(is_recent);
        if self.is_full {
            self.full = Some(info.time);
        }
        self.frame += 1;
        (self.boottime, self.boot, self.boot_id) = (info.boottime, boot, boot_id);
        self.boots += u32::from(has_booted);
        has_booted
    }
    /// How often the machine was booted before this frame.
    pub fn boots(&self) -> u32 {
        self.boots
    }
    /// Notes a row of this frame. Returns why it is written. `None`: it is not written, because
    /// nothing has changed, or because this frame already has the key.
    pub fn see(&mut self, key: Key, values: &[Value<'_>]) -> Option<Change> {
        let frame = self.frame;
        let texts = &mut self.texts;
        let change = match self.known.get_mut(&key) {
            None => {
                let row = row_bytes(values.len());
                self.is_over |= self.bytes + row + texts.bytes() > self.most;
                // Until the frame ends, only the key is needed.
                let values = if self.is_over { &[] } else { values };
                let values: Box<[StoredValue]> =
                    values.iter().map(|v| StoredValue::of(v, texts)).collect();
                self.bytes += row_bytes(values.len());
                self.known.insert(key, Last { values, frame, is_due: false });
                Some(Change::New)
            }
            Some(last) if last.frame == frame => return None,
            Some(last) => {
                last.frame = frame;
                let is_due = std::mem::take(&mut last.is_due);
                let is_same = last.values.iter().zip(values).all(|(a, b)| a.is(b));
                if !is_same {
                    last.values = values.iter().map(|v| StoredValue::of(v, texts)).collect();
                }
                (!is_same || is_due).then_some(Change::Changed)
            }
        };
        if self.is_full { Some(Change::Full) } else { change }
    }
    /// Ends a frame. Calls a function with the rows of the previous frame that this frame lacks,
    /// with their last values. Entries of the processes in `unknown` may still exist, and are kept.
    ///
    /// # Errors
    /// The first one of the function.
    pub fn end<E>(
        &mut self,
        unknown: &HashSet<u32>,
        mut ended: impl FnMut(Key, &[Value<'_>]) -> Result<(), E>,
    ) -> Result<(), E> {
        let (frame, is_full, bytes) = (self.frame, self.is_full, &mut self.bytes);
        let mut result = Ok(());
        self.known.retain(|key, last| {
            if last.frame == frame {
                return true;
            }
            if unknown.contains(&key.pid) {
                last.is_due |= is_full;
                return true;
            }
            *bytes -= row_bytes(last.values.len());
            if result.is_ok() {
                let values: Vec<Value<'_>> = last.values.iter().map(StoredValue::lend).collect();
                result = ended(*key, &values);
            }
            false
        });
        self.texts.sweep();
        if self.is_over {
            self.forget();
        }
        result
    }
    /// Whether this frame is written in full.
    pub fn is_full(&self) -> bool {
        self.is_full
    }
    /// The number of known rows.
    pub fn len(&self) -> usize {
        self.known.len()
    }
    /// Forgets everything, so that the next frame is full.
    pub fn forget(&mut self) {
        (self.known, self.texts) = (HashMap::new(), Texts::default());
        (self.bytes, self.is_over) = (0, false);
        self.full = None;
    }
}

/// The bytes in memory of a known row with this number of values, without its texts.
fn row_bytes(values: usize) -> usize {
    // A table of hashes is between half and seven eighths full.
    size_of::<(Key, Last)>() * 3 / 2 + values * size_of::<StoredValue>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use taskdiag::Snapshot;
    use taskdiag::recording::{Options, Recording, Writer};
    use taskdiag::wire::{Done, Info, StreamWriter, build};

    const S: u64 = 1_000_000_000;

    /// Returns the frames at which the machine has booted, for frames at these seconds of the two
    /// clocks, grouped by writer, without ids of boots.
    fn boots(writers: &[&[(u64, u64)]]) -> Vec<bool> {
        let unknown = BootId::default();
        boots_with(&writers.iter().map(|frames| (unknown, *frames)).collect::<Vec<_>>())
    }

    /// As `boots`, with the boot id of each writer.
    fn boots_with(writers: &[(BootId, &[(u64, u64)])]) -> Vec<bool> {
        let dir = tempfile::tempdir().expect("there is room");
        for (boot, frames) in writers {
            let options = Options::new(Duration::from_secs(10));
            let mut writer = Writer::open(dir.path().join("r"), options).expect("it opens");
            let boot = *boot;
            for (time, boottime) in *frames {
                let mut w = StreamWriter::new();
                let (realtime_ns, boottime_ns) = (time * S, boottime * S);
                let head = StreamWriter::blank_info();
                w.info(&build!(Info { realtime_ns, boottime_ns, boot_id: boot, ..head }));
                let answer = Snapshot::parse(w.finish(Done::default())).expect("it is whole");
                writer.append(&answer).expect("it is written");
            }
        }
        let recording = Recording::open(dir.path().join("r")).expect("it opens");
        let mut changes = Changes::new(Duration::from_secs(600), 1 << 20);
        let mut begin = |n| {
            let boot_id = recording.read(n).expect("one").snapshot.stream().info().boot_id;
            changes.begin(&recording.info(n).expect("one"), boot_id)
        };
        (0..recording.len()).map(&mut begin).collect()
    }

    #[test]
    fn the_id_of_a_boot_tells_more_than_the_clocks() {
        let begin = 1_795_317_000;
        let (a, b) = (BootId::new([1; 16]), BootId::new([2; 16]));
        // Within the slack of the clocks, and a clock that was set while nothing was recorded.
        let (one, next) = ([(begin, 100)], [(begin + 60, 160)]);
        assert_eq!(boots_with(&[(a, &one), (b, &next)]), [false, true]);
        assert_eq!(boots_with(&[(a, &one), (a, &[(begin + 3600, 110)])]), [false, false]);
        // An older version wrote one of them.
        assert_eq!(boots_with(&[(BootId::default(), &one), (b, &next)]), [false, false]);
        assert_eq!(boots_with(&[(a, &one), (BootId::default(), &[(begin + 9, 5)])]), [false, true]);
    }

    #[test]
    fn another_boot_is_seen_however_long_it_has_been_up() {
        let begin = 1_795_317_000;
        let one = [(begin, 100), (begin + 10, 110)];
        // The time since boot is smaller, the same, and larger than in the old one.
        for (later, up) in [(200, 50), (500, 110), (900, 700)] {
            assert_eq!(boots(&[&one, &[(begin + later, up)]]), [false, false, true], "{up}");
        }
        // The writer was started again, or the clock was set while it ran.
        assert_eq!(boots(&[&one, &[(begin + 60, 160)]]), [false; 3]);
        assert_eq!(boots(&[&one[..1], &[(begin + 61, 160)]]), [false; 2]);
        assert_eq!(boots(&[&[one[0], (begin + 3600, 110)]]), [false; 2]);
    }

    #[test]
    fn a_frame_that_is_too_large_is_written_in_full_with_the_next_one_and_forgotten() {
        let dir = tempfile::tempdir().expect("there is room");
        let path = dir.path().join("r");
        let options = Options::new(Duration::from_secs(10));
        let mut writer = Writer::open(&path, options).expect("it opens");
        for n in 0..5 {
            let mut w = StreamWriter::new();
            let (realtime_ns, boottime_ns) = ((1_795_317_000 + n * 10) * S, (100 + n * 10) * S);
            w.info(&build!(Info { realtime_ns, boottime_ns, ..StreamWriter::blank_info() }));
            let answer = Snapshot::parse(w.finish(Done::default())).expect("it is whole");
            writer.append(&answer).expect("it is written");
        }
        drop(writer);
        let recording = Recording::open(&path).expect("it opens");
        let most = 100_000;
        let mut changes = Changes::new(Duration::from_secs(600), most);
        // Each row has a text of its own. The second frame and the third one have too many.
        let counts = [10, 2000, 2000, 10, 9];
        let mut seen = Vec::new();
        for (n, count) in counts.into_iter().enumerate() {
            changes.begin(&recording.info(n).expect("one"), BootId::default());
            let mut whys = Vec::new();
            for pid in 0..count {
                let text = format!("{:0100}", pid);
                let key = Key { pid, start_ticks: 1, entry: [0; 3], boot: 0 };
                let values = [Value::Uint(pid.into()), Value::bytes(text.as_bytes())];
                whys.extend(changes.see(key, &values));
                assert_eq!(changes.see(key, &values), None, "the frame has it already");
                let keys = row_bytes(0) * changes.len();
                assert!(changes.bytes + changes.texts.bytes() <= most + keys, "frame {n}");
            }
            let mut gone = Vec::new();
            let end = changes.end(&HashSet::new(), |key, values| {
                gone.push((key.pid, values.len()));
                Ok::<(), ()>(())
            });
            end.expect("nothing fails");
            whys.dedup();
            seen.push((whys, gone.len()));
            assert!(gone.iter().all(|(_, values)| *values == 2), "their values are known");
        }
        let full = |gone| (vec![Change::Full], gone);
        // Rows that were not there are new. Once a frame is too large, the next one is full.
        let want = [full(0), (vec![Change::New], 0), full(0), full(0), (vec![], 1)];
        assert_eq!(seen, want);
    }
}
