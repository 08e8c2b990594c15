//! Writes recordings: one writer for each directory, frames at the end of the newest day file, old
//! files removed.
//!
//! A frame and its head are written with one call at the end of the file. If that fails, or the
//! process is killed during it, the file ends with bytes that are not a frame. They are cut off at
//! once, or by the next writer. Nothing else is ever changed.

use std::fmt;
use std::fs::{DirBuilder, File};
use std::io::{self, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{FlockOperation, flock};

use taskdiag_wire::{AlignedBuf, Cut, Stream};

use super::layout::{FrameHead, HEAD, STREAM_MAX, file_head};
use super::names::Part;
use super::owner::{check_owner, open};
use super::room::Room;
use super::share::share;
use super::{codec, parts, scan};
use crate::error::Error;
use crate::snapshot::Snapshot;

/// The file whose lock a writer holds. It has the pid of the writer.
const LOCK: &str = "writer.lock";
/// A key frame is followed by at most this many frames that need it.
const KEY_EVERY: u32 = 60;
/// And by at least this many. If much data is always new, such as random arguments, another key
/// frame saves nothing.
const KEY_LEAST: u32 = 15;
/// If the size of the recording is limited, a file may have this part of the limit, so that
/// removing the oldest file removes only a small part of the recording.
const FILES: u64 = 16;
/// An answer that is too long for a frame is shortened to this.
const SHORTENED: u64 = STREAM_MAX / 4;
/// The parts of a frame's room to try for the users' shares, until the result fits. Sizes are only
/// estimated from samples, and all together may compress better.
const PARTS: [f64; 4] = [1.5, 1.0, 0.6, 0.2];

/// How a recording is written.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Options {
    /// The interval in which frames will be appended. Readers use it to find gaps.
    pub every: Duration,
    /// Remove the files of days that ended longer ago than this.
    pub keep: Option<Duration>,
    /// Remove the oldest files if all of them would take more bytes than this.
    pub max_bytes: Option<u64>,
    /// `max_bytes` never removes a file with a frame younger than this. Instead, less is recorded
    /// about the users who take most: first less text, then fewer lists, then fewer tasks, and
    /// finally fewer answers.
    pub keep_at_least: Option<Duration>,
}

impl Options {
    /// A recording that is never removed.
    pub fn new(every: Duration) -> Options {
        Options { every, keep: None, max_bytes: None, keep_at_least: None }
    }
}

/// The result of appending an answer: a frame, unless there was no room for one.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Written {
    /// Bytes that it takes in the files.
    pub bytes: u64,
    /// Whether it can be read without another frame.
    pub is_key: bool,
    /// Old day files that were removed.
    pub removed: Vec<PathBuf>,
    /// The data that was removed from the answer because of [`Options::keep_at_least`], or because
    /// it was too long. The frame has the same information.
    pub cuts: Vec<Cut>,
    /// Was nothing written, because not even a few rows of each user fitted? The next frame counts
    /// such answers.
    pub is_left_out: bool,
}

/// The data that a writer removed at its start, because the previous writer was interrupted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Repair {
    /// The day file.
    pub file: PathBuf,
    /// The number of bytes of the unfinished frame.
    pub bytes: u64,
}

impl fmt::Display for Repair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Repair { file, bytes } = self;
        write!(f, "{}: removed an incomplete frame ({bytes} bytes)", file.display())
    }
}

/// Appends frames to the recording in a directory.
#[derive(Debug)]
pub struct Writer {
    dir: PathBuf,
    options: Options,
    lock: File,
    /// All day files, in the order in which they were written.
    parts: Vec<DayFile>,
    room: Room,
    /// Answers without room since the last frame.
    left_out: u64,
    current: Option<Current>,
    key: Option<Key>,
    begins: bool,
    repaired: Option<Repair>,
    packed: Vec<u8>,
}

/// An existing day file.
#[derive(Debug)]
struct DayFile {
    part: Part,
    /// The size of the file, including its index.
    bytes: u64,
    /// The time of the last frame in the file. `None`: the time is not known, or there is no frame.
    last: Option<SystemTime>,
}

/// The file that is written to, which is the last part.
#[derive(Debug)]
struct Current {
    data: File,
    index: File,
    /// The offset of the next frame. 0: the head of the file is not written yet, either.
    end: u64,
    index_end: u64,
    /// Heads of frames that are not in the index yet.
    behind: Vec<u8>,
    /// Whether there may be bytes after `end` that are not a frame.
    is_torn: bool,
}

/// The key frame that the next frames refer to.
#[derive(Debug)]
struct Key {
    at: u64,
    stream: AlignedBuf,
    data_len: usize,
    followers: u32,
}

impl Writer {
    /// Creates the directory and its parents if they do not exist, for their owner only, and
    /// becomes its writer. Removes a frame that an earlier writer did not finish.
    ///
    /// # Errors
    /// [`Error::Recording`] if there is another writer, the path is not a directory, or another
    /// user may write to it. [`Error::Io`] if a file cannot be made, read or written, is a link, or
    /// belongs to another user than this one and root.
    pub fn open(dir: impl AsRef<Path>, options: Options) -> Result<Writer, Error> {
        let dir = dir.as_ref().to_owned();
        let io = |e: io::Error| Error::io(format!("opening the recording {}", dir.display()), e);
        DirBuilder::new().recursive(true).mode(0o700).create(&dir).map_err(|e| match e.kind() {
            io::ErrorKind::AlreadyExists => Error::Recording(format!(
                "{} is not a directory: name one, which is made if it is not there",
                dir.display()
            )),
            _ => io(e),
        })?;
        check_owner(&dir)?;
        let lock = lock(&dir)?;
        let mut writer = Writer {
            options,
            lock,
            parts: Vec::new(),
            room: Room::default(),
            left_out: 0,
            current: None,
            key: None,
            begins: true,
            repaired: None,
            packed: Vec::new(),
            dir: dir.clone(),
        };
        for part in parts(&dir).map_err(io)? {
            let bytes = size_of_part(part, &dir).map_err(io)?;
            // A file that cannot be read counts as old as its day.
            let last = options.keep_at_least.and_then(|_| scan::last_time(&part.data(&dir)).ok());
            writer.parts.push(DayFile { part, bytes, last: last.flatten() });
        }
        if let Some(part) = writer.parts.last().map(|f| f.part) {
            writer.reopen(part).map_err(io)?;
        }
        Ok(writer)
    }
    /// What [`Self::open`] removed.
    pub fn repaired(&self) -> Option<&Repair> {
        self.repaired.as_ref()
    }
    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
    /// Bytes of all files of the recording.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|f| f.bytes).sum()
    }
    /// Opens the newest file, and repairs its end and its index.
    fn reopen(&mut self, part: Part) -> io::Result<()> {
        let data = open(&part.data(&self.dir), false)?;
        let index = open(&part.index(&self.dir), false)?;
        let entries = scan::read_index(&part.index(&self.dir), data.metadata()?.len())?;
        let mut scan = scan::scan(&data, &entries)?;
        if scan.newer.is_some() || scan.is_foreign {
            // The file is left as it is, and a new one begins.
            return Ok(());
        }
        scan.check_last(&data)?;
        let (tail, end) = (scan.tail(), scan.end());
        if !tail.is_empty() {
            data.set_len(end)?;
            let bytes = tail.end - tail.start;
            self.repaired = Some(Repair { file: part.data(&self.dir), bytes });
        }
        // A file with only its head has `end` 0, so its head is written again with its first frame.
        let index_end = (scan.indexed * HEAD) as u64;
        index.set_len(index_end)?;
        let behind = scan.frames[scan.indexed..].iter().flat_map(|f| f.to_bytes()).collect();
        let mut current = Current { data, index, end, index_end, behind, is_torn: end == 0 };
        current.catch_up();
        self.current = Some(current);
        self.count_current();
        Ok(())
    }
    /// Appends an answer as the next frame.
    ///
    /// # Errors
    /// [`Error::Io`] if it could not be written, for example because the disk is full. Then the
    /// files contain no part of it, and the next call may succeed. [`Error::Recording`] if no later
    /// call can: the directory was removed, or a frame is larger than the recording may be.
    pub fn append(&mut self, snapshot: &Snapshot) -> Result<Written, Error> {
        self.check_lock()?;
        // The runtimes forget a container when it ends.
        let named = snapshot.with_container_names();
        let full = named.as_ref().unwrap_or(snapshot).stream();
        let now = UNIX_EPOCH + Duration::from_nanos(full.info().realtime_ns);
        let mut written = Written::default();
        if self.must_turn(now) {
            self.turn(now)?;
        }
        self.remove_expired(now, &mut written)?;
        let room = self.room_at(now);
        let is_written = if full.bytes().len() as u64 > STREAM_MAX {
            let less = share(full, self.key()?.as_ref(), SHORTENED, self.left_out, true);
            self.try_append(&Stream::parse(less.stream)?, room, now, &mut written)?
        } else {
            // The next frame has the number of omitted answers, so it is made again, too.
            self.left_out == 0 && self.try_append(full, room, now, &mut written)?
                || self.append_less(full, room, now, &mut written)?
        };
        if !is_written && self.parts.iter().all(|f| f.bytes == 0) {
            return Err(Error::Recording(format!(
                "not even a short answer fits into a frame of {room} bytes: raise --max-size, or lower --keep-at-least"
            )));
        }
        self.left_out = if is_written { 0 } else { self.left_out + 1 };
        written.is_left_out = !is_written;
        Ok(written)
    }
    /// Appends the part of an answer that fits. `false`: not even a small part for each user fits.
    fn append_less<B: AsRef<[u8]>>(
        &mut self,
        full: &Stream<B>,
        room: u64,
        now: SystemTime,
        written: &mut Written,
    ) -> Result<bool, Error> {
        for part in PARTS {
            let part = (room as f64 * part) as u64;
            let less = share(full, self.key()?.as_ref(), part, self.left_out, false);
            if less.is_tight && !self.room.is_full() {
                return Ok(false);
            }
            if self.try_append(&Stream::parse(less.stream)?, room, now, written)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
    /// Appends a stream if its frame fits into this room.
    fn try_append<B: AsRef<[u8]>>(
        &mut self,
        stream: &Stream<B>,
        room: u64,
        now: SystemTime,
        written: &mut Written,
    ) -> Result<bool, Error> {
        let frame = loop {
            let frame = self.pack(stream)?;
            let bytes = self.bytes_of(&frame);
            if bytes > room {
                return Ok(false);
            }
            if self.make_room(bytes, now, written)? {
                (written.bytes, written.is_key) = (bytes, frame.is_key());
                break frame;
            }
            // Only the current file is left. A new file lets it be removed.
            if !self.is_removable(self.parts.len() - 1, now) {
                return Ok(false);
            }
            self.turn(now)?;
        };
        self.write(&frame, now)?;
        self.room.take(written.bytes);
        self.remember(&frame, stream.bytes());
        // The cgroups that were too many for the recorder to read take no room.
        let is_for_room = |c: &&Cut| c.tasks | c.cut_tasks | c.answers > 0;
        written.cuts = stream.cuts().iter().filter(is_for_room).copied().collect();
        Ok(true)
    }
    /// The stream of the key frame.
    fn key(&self) -> Result<Option<Stream<&[u8]>>, Error> {
        Ok(self.key.as_ref().map(|k| Stream::parse(k.stream.as_bytes())).transpose()?)
    }
    /// The bytes that a frame may take.
    fn room_at(&mut self, now: SystemTime) -> u64 {
        let (Some(max), Some(floor)) = (self.options.max_bytes, self.options.keep_at_least) else {
            return u64::MAX;
        };
        // The files from the first one on that must stay.
        let old = (0..self.parts.len()).take_while(|i| self.is_removable(*i, now)).count();
        let stays: u64 = self.parts[old..].iter().map(|f| f.bytes).sum();
        self.room.next(max.saturating_sub(stays), floor, self.options.every, now)
    }
    /// May this file be removed to make room?
    fn is_removable(&self, number: usize, now: SystemTime) -> bool {
        let Some(floor) = self.options.keep_at_least else { return true };
        let file = &self.parts[number];
        let last = file.last.unwrap_or_else(|| file.part.day_end());
        match now.duration_since(last) {
            Ok(age) => age >= floor,
            // The clock was wrong when it was written, or is wrong now. Such a file stays at most
            // twice as long.
            Err(ahead) => ahead.duration() > floor,
        }
    }
    /// Whether the next frame belongs in another file.
    fn must_turn(&self, now: SystemTime) -> bool {
        let (Some(current), Some(file)) = (&self.current, self.parts.last()) else {
            return true;
        };
        // If the clock was set back, the file is continued.
        let is_new_day = Part::first_of(now).day > file.part.day;
        let is_full = self.options.max_bytes.is_some_and(|max| file.bytes >= max / FILES);
        // The file may have been truncated by another program. Then frames could not be read before
        // the next key frame.
        let is_gone =
            current.data.metadata().is_ok_and(|m| m.nlink() == 0 || m.len() < current.end);
        (is_new_day || is_full) && current.end > 0 || is_gone
    }
    /// Begins another file.
    fn turn(&mut self, now: SystemTime) -> Result<(), Error> {
        (self.current, self.key) = (None, None);
        let dir = &self.dir;
        self.parts.retain(|f| f.part.data(dir).exists());
        let mut part = Part::first_of(now);
        if let Some(last) = self.parts.last().filter(|last| last.part >= part) {
            part = last.part.next();
        }
        let data = loop {
            match open(&part.data(dir), true) {
                // An earlier call made the file and then failed.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => part = part.next(),
                other => break other,
            }
        };
        let io = |e| Error::io(format!("making {}", part.data(dir).display()), e);
        let data = data.map_err(io)?;
        let index =
            open(&part.index(dir), false).and_then(|f| f.set_len(0).map(|()| f)).map_err(io)?;
        let behind = Vec::new();
        self.current = Some(Current { data, index, end: 0, index_end: 0, behind, is_torn: false });
        self.parts.push(DayFile { part, bytes: 0, last: None });
        Ok(())
    }
    /// Compresses an answer into `packed`, and returns the head of its frame.
    fn pack<B: AsRef<[u8]>>(&mut self, stream: &Stream<B>) -> Result<FrameHead, Error> {
        let (info, tasks) = (stream.info(), stream.len() as u32);
        let stream = stream.bytes();
        let at = self.current.as_ref().map_or(0, |c| c.end).max(HEAD as u64);
        let prefix = self.key.as_ref().map_or(&[][..], |k| k.stream.as_bytes());
        codec::compress(stream, prefix, &mut self.packed)
            .map_err(|why| Error::Recording(format!("an answer could not be compressed: {why}")))?;
        Ok(FrameHead {
            at,
            key_at: self.key.as_ref().map_or(at, |k| k.at),
            realtime_ns: info.realtime_ns,
            boottime_ns: info.boottime_ns,
            data_crc: crc32fast::hash(&self.packed),
            data_len: self.packed.len() as u32,
            stream_len: stream.len() as u32,
            every_ms: u32::try_from(self.options.every.as_millis()).unwrap_or(u32::MAX),
            tasks,
            begins: self.begins,
        })
    }
    /// Bytes that a frame adds to the files.
    fn bytes_of(&self, frame: &FrameHead) -> u64 {
        frame.end() - self.current.as_ref().map_or(0, |c| c.end) + HEAD as u64
    }
    fn write(&mut self, frame: &FrameHead, now: SystemTime) -> Result<(), Error> {
        let file = self.parts.last().expect("the current one is the last");
        let path = file.part.data(&self.dir);
        let current = self.current.as_mut().expect("there is one");
        let io = |e| Error::io(format!("writing to {}", path.display()), e);
        current.mend().map_err(io)?;
        let mut bytes = Vec::with_capacity(2 * HEAD + self.packed.len() + 8);
        if current.end == 0 {
            bytes.extend_from_slice(&file_head(now));
        }
        bytes.extend_from_slice(&frame.to_bytes());
        bytes.extend_from_slice(&self.packed);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        if let Err(e) = current.data.write_all_at(&bytes, current.end) {
            current.is_torn = true;
            // If this fails, it is tried again before the next frame.
            let _ = current.mend();
            return Err(io(e));
        }
        current.end += bytes.len() as u64;
        current.behind.extend_from_slice(&frame.to_bytes());
        current.catch_up();
        self.begins = false;
        self.count_current();
        if let Some(file) = self.parts.last_mut() {
            file.last = Some(frame.time());
        }
        Ok(())
    }
    /// Keeps the stream of a key frame, or drops it if the next frame has to be a key frame.
    fn remember(&mut self, frame: &FrameHead, stream: &[u8]) {
        if frame.is_key() {
            let data_len = self.packed.len();
            self.key = Some(Key {
                at: frame.at,
                stream: AlignedBuf::copy_of(stream),
                data_len,
                followers: 0,
            });
        } else if let Some(key) = &mut self.key {
            key.followers += 1;
            // If this much has changed, a new key frame makes later frames smaller.
            let is_large = self.packed.len() > key.data_len / 2 && key.followers >= KEY_LEAST;
            if key.followers >= KEY_EVERY || is_large {
                self.key = None;
            }
        }
    }
    fn count_current(&mut self) {
        if let (Some(current), Some(file)) = (&self.current, self.parts.last_mut()) {
            file.bytes = current.end + current.index_end;
        }
    }
    /// Removes old files until there is room for this many bytes. False: the next file must stay,
    /// or only the current file is left, and it has frames.
    fn make_room(
        &mut self,
        more: u64,
        now: SystemTime,
        written: &mut Written,
    ) -> Result<bool, Error> {
        let Some(max) = self.options.max_bytes else { return Ok(true) };
        while self.bytes() + more > max {
            if self.parts.len() > 1 && !self.is_removable(0, now) {
                return Ok(false);
            }
            if self.parts.len() > 1 {
                self.remove_first(written)?;
            } else if self.current.as_ref().is_some_and(|c| c.end > 0) {
                return Ok(false);
            } else {
                return Err(Error::Recording(format!(
                    "a frame takes {more} bytes, and the recording may have {max}: raise --max-size"
                )));
            }
        }
        Ok(true)
    }
    fn remove_expired(&mut self, now: SystemTime, written: &mut Written) -> Result<(), Error> {
        let Some(keep) = self.options.keep else { return Ok(()) };
        let is_old = |part: &Part| now.duration_since(part.day_end()).is_ok_and(|age| age >= keep);
        while self.parts.len() > 1 && is_old(&self.parts[0].part) {
            self.remove_first(written)?;
        }
        Ok(())
    }
    fn remove_first(&mut self, written: &mut Written) -> Result<(), Error> {
        let part = self.parts[0].part;
        let data = part.data(&self.dir);
        // The index first, so that there is never one without its file.
        for path in [part.index(&self.dir), data.clone()] {
            match std::fs::remove_file(&path) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => {
                    return Err(Error::io(format!("removing {}", path.display()), e));
                }
                _ => {}
            }
        }
        self.parts.remove(0);
        written.removed.push(data);
        Ok(())
    }
    /// Fails if the lock file was removed, because then another writer could have the directory.
    fn check_lock(&self) -> Result<(), Error> {
        let ours = self.lock.metadata().map_err(|e| Error::io("reading the lock", e))?;
        if ours.nlink() > 0 {
            return Ok(());
        }
        Err(Error::Recording(format!(
            "the files of {} were removed while it was written to: start again",
            self.dir.display()
        )))
    }
}

impl Current {
    /// Cuts off the bytes after `end`.
    fn mend(&mut self) -> io::Result<()> {
        if self.is_torn {
            self.data.set_len(self.end)?;
            self.is_torn = false;
        }
        Ok(())
    }
    /// Writes the heads that the index lacks. If that fails, it is tried again with the next frame,
    /// because readers do not need them.
    fn catch_up(&mut self) {
        if self.index.write_all_at(&self.behind, self.index_end).is_ok() {
            self.index_end += self.behind.len() as u64;
            self.behind.clear();
        }
    }
}

fn size_of_part(part: Part, dir: &Path) -> io::Result<u64> {
    let size = |path: PathBuf| match path.metadata() {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(0),
        other => other.map(|m| m.len()),
    };
    Ok(size(part.data(dir))? + size(part.index(dir))?)
}

/// Takes the lock of the directory. The kernel releases it at the end of this process, however it
/// ends.
fn lock(dir: &Path) -> Result<File, Error> {
    let path = dir.join(LOCK);
    let io = |e: io::Error| Error::io(format!("locking {}", path.display()), e);
    let mut file = open(&path, false).map_err(io)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {
            let pid = format!("{}\n", std::process::id());
            // The pid is only for messages of other writers, so an error is ignored.
            let _ = file.set_len(0).and_then(|()| file.write_all_at(pid.as_bytes(), 0));
            Ok(file)
        }
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let mut pid = String::new();
            let _ = file.read_to_string(&mut pid);
            let who =
                pid.trim().parse::<u32>().map_or(String::new(), |pid| format!(" (process {pid})"));
            Err(Error::Recording(format!(
                "another writer{who} records to {}: end it first, or record to another directory",
                dir.display()
            )))
        }
        Err(e) => Err(io(e.into())),
    }
}
