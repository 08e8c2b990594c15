//! Finds the frames of a day file: from its index, and beyond the end of the index from the heads
//! in the file itself.

use std::fs::File;
use std::io::{self, Read as _};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::SystemTime;

use super::layout::{FRAME_MAGIC, FileHead, FrameHead, HEAD, read_file_head};
use super::owner::open_to_read;

/// The content of a day file.
#[derive(Debug, Default)]
pub struct Scan {
    /// The heads of its frames, in order.
    pub frames: Vec<FrameHead>,
    /// Bytes that belong neither to its head nor to a frame.
    pub damage: Vec<Range<u64>>,
    /// The number of frames at the start that are in the index.
    pub indexed: usize,
    /// The size of the file.
    pub size: u64,
    /// The version of the format if it differs from ours. Then nothing else was read.
    pub newer: Option<u32>,
    /// The head of the file is damaged, or it is not a day file.
    pub is_foreign: bool,
}

impl Scan {
    /// The end of the last frame; 0 in a file without frames.
    pub fn end(&self) -> u64 {
        self.frames.last().map_or(0, FrameHead::end)
    }
    /// The bytes after the last frame, or after the head of the file.
    pub fn tail(&self) -> Range<u64> {
        let head = if self.size < HEAD as u64 { 0 } else { HEAD as u64 };
        self.end().max(head)..self.size
    }
    /// Removes the last frame if its data does not fit the checksum in its head, as after a loss of
    /// power. Then checks the previous one.
    pub fn check_last(&mut self, file: &File) -> io::Result<()> {
        while let Some(last) = self.frames.last() {
            if is_whole(file, last)? {
                break;
            }
            self.frames.pop();
            self.indexed = self.indexed.min(self.frames.len());
            let tail = self.tail();
            self.damage.retain(|d| d.end <= tail.start);
            self.damage.push(tail);
        }
        Ok(())
    }
}

/// The frames of a file. `index` is its index, which may be incomplete.
pub fn scan(file: &File, index: &[u8]) -> io::Result<Scan> {
    let mut scan = Scan { size: file.metadata()?.len(), ..Scan::default() };
    let mut head = [0; HEAD];
    let mut at = HEAD as u64;
    if scan.size < at {
        if scan.size > 0 {
            scan.damage.push(0..scan.size);
        }
        return Ok(scan);
    }
    file.read_exact_at(&mut head, 0)?;
    match read_file_head(&head) {
        FileHead::Known => {}
        FileHead::Newer(version) => {
            scan.newer = Some(version);
            return Ok(scan);
        }
        // The frames may still be intact.
        FileHead::Foreign => {
            scan.is_foreign = true;
            scan.damage.push(0..at);
        }
    }
    take_index(&mut scan, file, index)?;
    at = at.max(scan.end());
    while at < scan.size {
        let found = frame_at(file, at, scan.size)?;
        let frame = match found {
            Some(frame) => frame,
            None => {
                let found = next_frame(file, at + 8, scan.size)?;
                scan.damage.push(at..found.map_or(scan.size, |f| f.at));
                let Some(frame) = found else { break };
                frame
            }
        };
        at = frame.end();
        scan.frames.push(frame);
    }
    Ok(scan)
}

/// Does the data of a frame fit the checksum in its head?
pub fn is_whole(file: &File, frame: &FrameHead) -> io::Result<bool> {
    Ok(crc32fast::hash(&data_of(file, frame)?) == frame.data_crc)
}

/// The data of a frame, which is inside of the file.
pub fn data_of(file: &File, frame: &FrameHead) -> io::Result<Vec<u8>> {
    let mut data = vec![0; frame.data_len as usize];
    file.read_exact_at(&mut data, frame.at + HEAD as u64)?;
    Ok(data)
}

/// The index of a day file, or nothing if there is none. Readers do not need it, so if it is not a
/// regular file, it counts as missing. No more of it is read than the frames of a file of this size
/// need.
pub fn read_index(path: &Path, size: u64) -> io::Result<Vec<u8>> {
    let file = match open_to_read(path) {
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::Unsupported) => {
            return Ok(Vec::new());
        }
        other => other?,
    };
    let mut index = Vec::new();
    file.take(size).read_to_end(&mut index)?;
    Ok(index)
}

/// The time of the last frame of a day file. `None`: there is none.
pub fn last_time(path: &Path) -> io::Result<Option<SystemTime>> {
    let file = open_to_read(path)?;
    let size = file.metadata()?.len();
    // The index is short, but may lack the last heads. They are in the file.
    let index = read_index(&path.with_extension("idx"), size)?;
    Ok(scan(&file, &index)?.frames.last().map(FrameHead::time))
}

/// Takes the frames from the index, if it is the index of this file.
fn take_index(scan: &mut Scan, file: &File, index: &[u8]) -> io::Result<()> {
    let mut at = HEAD as u64;
    let mut frames = Vec::with_capacity(index.len() / HEAD);
    for entry in index.chunks_exact(HEAD) {
        // After a gap, frames are searched in the file itself.
        match FrameHead::from_bytes(entry) {
            Some(frame) if frame.at == at && frame.end() <= scan.size => frames.push(frame),
            _ => break,
        }
        at = frames.last().map_or(at, FrameHead::end);
    }
    let Some(last) = frames.last() else { return Ok(()) };
    // An entry has the offset, the time and the checksum of its frame. So comparing the last one
    // shows whether the index belongs to this file.
    if frame_at(file, last.at, scan.size)? == Some(*last) {
        scan.indexed = frames.len();
        scan.frames = frames;
    }
    Ok(())
}

/// The frame at this offset. `None`: there is none, or its end is missing.
fn frame_at(file: &File, at: u64, size: u64) -> io::Result<Option<FrameHead>> {
    if size - at < HEAD as u64 {
        return Ok(None);
    }
    let mut head = [0; HEAD];
    file.read_exact_at(&mut head, at)?;
    Ok(FrameHead::from_bytes(&head).filter(|f| f.at == at && f.end() <= size))
}

/// The first frame at or after this offset. Frames begin at multiples of 8.
fn next_frame(file: &File, from: u64, size: u64) -> io::Result<Option<FrameHead>> {
    let mut piece = vec![0; 1 << 18];
    let mut at = from;
    while at < size {
        let n = piece.len().min((size - at) as usize);
        file.read_exact_at(&mut piece[..n], at)?;
        for (i, bytes) in piece[..n].chunks(8).enumerate() {
            if bytes.starts_with(&FRAME_MAGIC) {
                if let Some(frame) = frame_at(file, at + 8 * i as u64, size)? {
                    return Ok(Some(frame));
                }
            }
        }
        at += n as u64;
    }
    Ok(None)
}
