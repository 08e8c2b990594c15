//! The files with the code of processes: opens them, and keeps their tables for one answer.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Statx, StatxFlags};
use rustix::io::Errno;
use taskdiag_wire::Vma;
use taskdiag_wire::device::device;

use super::StackEnd;
use super::elf::{Elf, Source};
use crate::why::task::Place;

/// How many bytes of files are read for an answer.
const BYTES: u64 = 256 << 20;

/// One state of a file. Any change of its content changes the time.
type Key = (u32, u64, u64, i64, u32);

/// The tables of files that were read.
#[derive(Debug)]
pub(super) struct Files {
    known: HashMap<Key, Result<Arc<Elf>, StackEnd>>,
    left: u64,
}

impl Default for Files {
    fn default() -> Files {
        Files { known: HashMap::new(), left: BYTES }
    }
}

impl Files {
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
        let found = Elf::read(&Source::File(File::from(file)), &mut self.left).map(Arc::new);
        self.known.insert(key, found.clone());
        found
    }

    /// The tables of the code that the kernel puts into each process.
    pub(super) fn of_memory(&mut self, bytes: Vec<u8>) -> Result<Arc<Elf>, StackEnd> {
        Elf::read(&Source::Memory(bytes), &mut self.left).map(Arc::new)
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
