//! Recordings: the history of a machine's processes over the last days, in a directory of day
//! files.
//!
//! A [`Writer`] appends an answer every few seconds as a *frame*: its stream, compressed with a
//! *key frame* as a prefix. A crash at any point loses at most the frame that was being written. A
//! [`Recording`] reads frames by their number or time. `docs/use/record.md` describes the files.
//!
//! ```
//! use std::time::{Duration, SystemTime};
//! use taskdiag::recording::{Options, Recording, Writer};
//! use taskdiag::{Choice, Groups, Request, Session};
//!
//! # fn main() -> Result<(), taskdiag::Error> {
//! # let dir = std::env::temp_dir().join(format!("taskdiag-doc-{}", std::process::id()));
//! # let dir = dir.as_path();
//! let mut session = Session::open(Request::all(Groups::BASE), Choice::Auto)?;
//! let mut writer = Writer::open(dir, Options::new(Duration::from_secs(10)))?;
//! writer.append(session.refresh()?)?;
//!
//! let recording = Recording::open(dir)?;
//! for frame in recording.iter() {
//!     let frame = frame?;
//!     println!("{:?}: {} tasks", frame.info.time, frame.snapshot.tasks().len());
//! }
//! let last = recording.at(SystemTime::now())?.expect("there is a frame");
//! assert_eq!(last.number, 0);
//! # std::fs::remove_dir_all(dir).expect("it is ours");
//! # Ok(())
//! # }
//! ```

mod codec;
mod layout;
mod names;
mod owner;
mod room;
mod scan;
mod share;
mod writer;

use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use taskdiag_wire::AlignedBuf;

use crate::error::Error;
use crate::snapshot::Snapshot;
use layout::FrameHead;
use names::Part;
pub use owner::check_owner;
use scan::Scan;
pub use writer::{Options, Repair, Writer, Written};

/// A recording for reading. It has the frames that existed when it was opened.
#[derive(Debug)]
pub struct Recording {
    files: Vec<PathBuf>,
    slots: Vec<Slot>,
    damage: Vec<Damage>,
    cache: Mutex<Cache>,
}

/// The metadata of a frame, which is known without reading its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FrameInfo {
    /// The start of the answer by the machine's clock, which may have been set since.
    pub time: SystemTime,
    /// The start of the answer as the time since boot. After a reboot, it is smaller than in the
    /// previous frame.
    pub boottime: Duration,
    /// The number of its tasks.
    pub tasks: u32,
    /// The interval of the writer.
    pub every: Duration,
    /// Whether it is the first frame after a start of the writer.
    pub begins: bool,
    /// Bytes that it takes in its file, the head included.
    pub stored_bytes: u64,
}

/// A frame.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Frame {
    /// The number of the frame in the recording, from 0.
    pub number: usize,
    /// Its metadata.
    pub info: FrameInfo,
    /// The recorded answer.
    pub snapshot: Snapshot,
}

/// Bytes of a day file that are not readable, and were skipped.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Damage {
    /// Which file.
    pub file: PathBuf,
    /// Where they begin.
    pub at: u64,
    /// How many there are.
    pub bytes: u64,
    /// Whether they are at the end of the newest file, as after an interrupted write of a frame.
    pub is_tail: bool,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Damage { file, at, bytes, is_tail } = self;
        let file = file.display();
        match is_tail {
            true => write!(f, "{file}: the last frame is incomplete ({bytes} bytes)"),
            false => write!(f, "{file}: {bytes} bytes at {at} are damaged and were skipped"),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    file: usize,
    head: FrameHead,
}

#[derive(Debug, Default)]
struct Cache {
    file: Option<(usize, File)>,
    /// The stream of the last key frame that was read: its file, its offset there, its bytes.
    key: Option<(usize, u64, AlignedBuf)>,
}

/// If the newest file does not end with a whole frame, a writer may be writing it. The file is
/// looked at again after this pause while it grows, at most `LOOKS` times.
const PAUSE: Duration = Duration::from_millis(10);
const LOOKS: u32 = 20;

impl Recording {
    /// Opens the recording in a directory, or a single day file. Reads the heads of all frames, but
    /// none of their data.
    ///
    /// # Errors
    /// [`Error::Io`] if the files cannot be read, [`Error::Recording`] if there are none. Damaged
    /// files are not errors: [`Self::damage`] has what could not be read.
    pub fn open(path: impl AsRef<Path>) -> Result<Recording, Error> {
        let path = path.as_ref();
        let io = |e| Error::io(format!("opening the recording {}", path.display()), e);
        let is_dir = path.metadata().map_err(io)?.is_dir();
        let files = if is_dir { day_files(path).map_err(io)? } else { vec![path.to_owned()] };
        let mut all = Recording {
            files: Vec::new(),
            slots: Vec::new(),
            damage: Vec::new(),
            cache: Mutex::default(),
        };
        let newest = files.last().cloned();
        for file in files {
            let is_newest = Some(&file) == newest.as_ref();
            match look(&file, is_newest) {
                Ok(scan) => all.add(file, scan, is_newest)?,
                // The writer removes old files.
                Err(e) if e.kind() == io::ErrorKind::NotFound && is_dir => {}
                Err(e) => return Err(Error::io(format!("reading {}", file.display()), e)),
            }
        }
        if all.files.is_empty() {
            return Err(Error::Recording(format!(
                "{} holds no recording: 'taskdiag record {0}' makes one",
                path.display()
            )));
        }
        Ok(all)
    }
    fn add(&mut self, file: PathBuf, scan: Scan, is_newest: bool) -> Result<(), Error> {
        if let Some(version) = scan.newer {
            return Err(Error::Recording(format!(
                "{} is of version {version} of the format, which this taskdiag cannot read: use a newer one",
                file.display()
            )));
        }
        let number = self.files.len();
        let tail = scan.tail();
        self.damage.extend(scan.damage.iter().map(|d| Damage {
            file: file.clone(),
            at: d.start,
            bytes: d.end - d.start,
            is_tail: is_newest && *d == tail,
        }));
        self.slots.extend(scan.frames.iter().map(|head| Slot { file: number, head: *head }));
        self.files.push(file);
        Ok(())
    }
    /// The number of frames.
    pub fn len(&self) -> usize {
        self.slots.len()
    }
    /// Whether there is no frame.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
    /// The metadata of each frame, in the order in which they were written.
    pub fn infos(&self) -> impl ExactSizeIterator<Item = FrameInfo> + Clone + '_ {
        self.slots.iter().map(|s| info(&s.head))
    }
    /// The metadata of the n-th frame.
    pub fn info(&self, number: usize) -> Option<FrameInfo> {
        Some(info(&self.slots.get(number)?.head))
    }
    /// The bytes that could not be read, in order.
    pub fn damage(&self) -> &[Damage] {
        &self.damage
    }
    /// The number of the last frame up to this time. If the clock was set back, it is the last
    /// frame written. `None`: all frames are later.
    pub fn find(&self, time: SystemTime) -> Option<usize> {
        self.slots.iter().rposition(|s| s.head.time() <= time)
    }
    /// The length of the gap before the n-th frame. `None`: there is no gap, or it is the first
    /// one.
    pub fn gap_before(&self, number: usize) -> Option<Duration> {
        let frame = self.info(number)?;
        let before = self.info(number.checked_sub(1)?)?;
        let time = frame.time.duration_since(before.time).unwrap_or_default();
        (time > patience(before.every)).then_some(time)
    }
    /// The last frame up to this time. `None`: all frames are later.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn at(&self, time: SystemTime) -> Result<Option<Frame>, Error> {
        self.find(time).map(|number| self.read(number)).transpose()
    }
    /// All frames, in the order in which they were written. A frame that cannot be read gives an
    /// error, and the next frame follows.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Result<Frame, Error>> + '_ {
        (0..self.len()).map(|number| self.read(number))
    }
    /// The n-th frame. Frames that are read in order cost least, because the key frame is kept.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be read, [`Error::Recording`] if the frame or its key frame
    /// is damaged or there is no such frame, [`Error::Stream`] if what was recorded is not a
    /// stream.
    pub fn read(&self, number: usize) -> Result<Frame, Error> {
        let slot = self.slots.get(number).ok_or_else(|| {
            Error::Recording(format!("there is no frame {number}: there are {}", self.len()))
        })?;
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let stream = self.stream(&mut cache, *slot)?;
        Ok(Frame { number, info: info(&slot.head), snapshot: Snapshot::parse(stream)? })
    }
    fn stream(&self, cache: &mut Cache, slot: Slot) -> Result<AlignedBuf, Error> {
        let (file, key_at) = (slot.file, slot.head.key_at);
        if !matches!(&cache.key, Some((f, at, _)) if (*f, *at) == (file, key_at)) {
            cache.key = None;
            let begin = self.slots.partition_point(|s| (s.file, s.head.at) < (file, key_at));
            let key = self.slots.get(begin).filter(|s| (s.file, s.head.at) == (file, key_at));
            let key = key
                .filter(|s| s.head.is_key())
                .ok_or_else(|| self.damaged(&slot, "its key frame is missing"))?;
            let stream = self.unpack(cache, key, &AlignedBuf::new())?;
            cache.key = Some((file, key_at, stream));
        }
        let (.., key) = cache.key.take().expect("it was read");
        let stream = match slot.head.is_key() {
            true => Ok(key.clone()),
            false => self.unpack(cache, &slot, &key),
        };
        cache.key = Some((file, key_at, key));
        stream
    }
    /// The stream of a frame, from its data and its key frame's stream.
    fn unpack(
        &self,
        cache: &mut Cache,
        slot: &Slot,
        key: &AlignedBuf,
    ) -> Result<AlignedBuf, Error> {
        let path = &self.files[slot.file];
        let io = |e| Error::io(format!("reading {}", path.display()), e);
        let file = match cache.file.take() {
            Some((number, file)) if number == slot.file => file,
            _ => owner::open_to_read(path).map_err(io)?,
        };
        let data = scan::data_of(&file, &slot.head);
        cache.file = Some((slot.file, file));
        let data = data.map_err(io)?;
        if crc32fast::hash(&data) != slot.head.data_crc {
            return Err(self.damaged(slot, "its bytes have changed"));
        }
        codec::decompress(&data, key.as_bytes(), slot.head.stream_len as usize)
            .map_err(|why| self.damaged(slot, why))
    }
    fn damaged(&self, slot: &Slot, why: &str) -> Error {
        let file = self.files[slot.file].display();
        Error::Recording(format!(
            "{file}: the frame at byte {} is damaged ({why}); others may be whole",
            slot.head.at
        ))
    }
}

/// How late a frame may be before it counts as a gap.
fn patience(every: Duration) -> Duration {
    every * 5 / 2
}

impl FrameInfo {
    /// Is there a gap between this frame, which is the last up to `time`, and `time`?
    pub fn is_stale_at(&self, time: SystemTime) -> bool {
        time.duration_since(self.time).is_ok_and(|age| age > patience(self.every))
    }
}

fn info(head: &FrameHead) -> FrameInfo {
    FrameInfo {
        time: head.time(),
        boottime: Duration::from_nanos(head.boottime_ns),
        tasks: head.tasks,
        every: Duration::from_millis(head.every_ms.into()),
        begins: head.begins,
        stored_bytes: head.end() - head.at,
    }
}

/// The day files of a directory in the order in which they were written.
fn day_files(dir: &Path) -> io::Result<Vec<PathBuf>> {
    Ok(parts(dir)?.into_iter().map(|part| part.data(dir)).collect())
}

fn parts(dir: &Path) -> io::Result<Vec<Part>> {
    let mut parts = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        parts.extend(entry?.file_name().to_str().and_then(Part::from_name));
    }
    parts.sort_unstable();
    Ok(parts)
}

/// The frames of a file. The end of the newest one is checked, and looked at again while a writer
/// may be writing it.
fn look(path: &Path, is_newest: bool) -> io::Result<Scan> {
    let file = owner::open_to_read(path)?;
    let mut seen = None;
    for _ in 0..LOOKS {
        let index = scan::read_index(&path.with_extension("idx"), file.metadata()?.len())?;
        let mut scan = scan::scan(&file, &index)?;
        if !is_newest || scan.newer.is_some() {
            return Ok(scan);
        }
        scan.check_last(&file)?;
        let now = (scan.size, scan.frames.len());
        if scan.tail().is_empty() || seen.replace(now) == Some(now) {
            return Ok(scan);
        }
        std::thread::sleep(PAUSE);
    }
    Err(io::Error::new(io::ErrorKind::ResourceBusy, "it keeps changing"))
}
