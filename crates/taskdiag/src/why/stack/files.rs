//! The files with the code of processes: opens them, and keeps their tables for one answer.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Statx, StatxFlags};
use rustix::io::Errno;
use taskdiag_wire::Vma;
use taskdiag_wire::device::device;

use super::StackEnd;
use super::elf::{Elf, Source};
use crate::why::task::Place;

/// How many bytes of files are read for an answer.
pub(super) const BYTES: u64 = 256 << 20;

/// One state of a file. Any change of its content changes the time.
type Key = (u32, u64, u64, i64, u32);

/// The tables of files that were read.
#[derive(Debug)]
pub(super) struct Files {
    known: HashMap<Key, Result<Arc<Elf>, StackEnd>>,
    left: Arc<AtomicU64>,
}

impl Files {
    /// No files yet. `left` is how many bytes may be read.
    pub(super) fn new(left: Arc<AtomicU64>) -> Files {
        Files { known: HashMap::new(), left }
    }

    /// The tables of the file of a mapping. `path` is its path as the process sees it.
    pub(super) fn get(
        &mut self,
        place: Place,
        vma: &Vma,
        path: &[u8],
    ) -> Result<Arc<Elf>, StackEnd> {
        let (fd, stat) = open(place, vma, path)?;
        let (device, changed) = (device_of(&stat), stat.stx_ctime);
        let key = (device, stat.stx_ino, stat.stx_size, changed.tv_sec, changed.tv_nsec);
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        // The file is known by now, so opening it again reaches no FIFO and no device.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        let again = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let file = rustix::fs::openat(CWD, again, flags, Mode::empty()).map_err(why)?;
        let found = self.read(&Source::File(File::from(file)));
        self.known.insert(key, found.clone());
        found
    }

    /// The tables of the code that the kernel puts into each process.
    pub(super) fn of_memory(&mut self, bytes: Vec<u8>) -> Result<Arc<Elf>, StackEnd> {
        self.read(&Source::Memory(bytes))
    }

    fn read(&self, source: &Source) -> Result<Arc<Elf>, StackEnd> {
        let before = self.left.load(Ordering::Relaxed);
        let mut left = before;
        let found = Elf::read(source, &mut left).map(Arc::new);
        // Another thread may have read at the same time.
        let used = |now: u64| Some(now.saturating_sub(before - left));
        _ = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, used);
        found
    }
}

fn why(e: Errno) -> StackEnd {
    match e {
        Errno::ACCESS | Errno::PERM => StackEnd::NoRight,
        _ => StackEnd::OtherFile,
    }
}

fn device_of(stat: &Statx) -> u32 {
    device(stat.stx_dev_major, stat.stx_dev_minor)
}

/// Opens the file of a mapping, without reading it.
fn open(place: Place, vma: &Vma, path: &[u8]) -> Result<(OwnedFd, Statx), StackEnd> {
    let open = |path: &[u8]| {
        let fd = rustix::fs::openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let stat = rustix::fs::statx(&fd, c"", flags, StatxFlags::BASIC_STATS)?;
        Ok((fd, stat))
    };
    let is_file =
        |stat: &Statx| FileType::from_raw_mode(stat.stx_mode.into()) == FileType::RegularFile;
    // This link is the mapped file itself, even if it is deleted or in another mount namespace. The
    // link needs the right to administrate the system.
    let tgid = place.tgid;
    let link = format!("/proc/{tgid}/map_files/{:x}-{:x}", vma.start, vma.end);
    match open(link.as_bytes()) {
        Ok((fd, stat)) if is_file(&stat) => return Ok((fd, stat)),
        Ok(_) => return Err(StackEnd::OtherFile),
        Err(Errno::NOENT)
            if std::fs::exists(format!("/proc/{tgid}/map_files")).unwrap_or(false) =>
        {
            return Err(StackEnd::Changed);
        }
        Err(_) => {}
    }
    if !path.starts_with(b"/") {
        return Err(StackEnd::OtherFile);
    }
    let (fd, stat) =
        open(&[format!("/proc/{tgid}/root").as_bytes(), path].concat()).map_err(why)?;
    let is_mapped = (device_of(&stat), stat.stx_ino) == (vma.dev, vma.inode);
    if is_file(&stat) && is_mapped { Ok((fd, stat)) } else { Err(StackEnd::OtherFile) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_one_answer_share_its_bytes() {
        // Enough for the header of one file, which is none of ELF.
        let left = Arc::new(AtomicU64::new(100));
        let mut all = [Files::new(Arc::clone(&left)), Files::new(left)];
        let ends = all.each_mut().map(|files| files.of_memory(vec![0; 200]).map(drop));
        assert_eq!(ends, [Err(StackEnd::BadFile), Err(StackEnd::NotLookedAt)]);
    }
}
