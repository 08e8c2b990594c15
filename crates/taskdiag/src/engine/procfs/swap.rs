//! Reads SWAP: how much of a process is swapped out. It never looks at single pages, and looks at
//! each object only once, not once for each mapping.
//!
//! - Anonymous memory is VmSwap, a counter of the kernel.
//! - If nothing on the machine is swapped out, nothing more is read.
//! - Shared memory objects (tmpfs, memfd, SysV) are looked at once for all processes. An object
//!   without swapped pages costs nothing more. An object that is mapped as a whole costs a
//!   read of its counter, and any other one a query for each range (`shmem`).
//! - If a private writable mapping shows an object with swapped pages, the pages that the process
//!   has copied do not count. PAGEMAP_SCAN (Linux 6.7) finds them, and each run of them is a query.
//!
//! PAGEMAP_SCAN cannot show how much of an object is swapped out, because the page table has no
//! entries for such pages. Looking at objects of other processes needs CAP_SYS_ADMIN or
//! CAP_CHECKPOINT_RESTORE, and looking at our own objects needs a path that leads to them.
//! Otherwise the shared part is not known. Only smaps has it, and that is expensive.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use rustix::fs::makedev;
use rustix::io::Errno;
use taskdiag_wire::{Groups, Reason, Swap, VMA_SHARED, VMA_WRITE, Vma, VmaKind};

use super::parse::{self, MapLine};
use super::path::TaskDir;
use super::read::{FileText, Reader};
use super::shmem::{self, OBJECT_SYSCALLS, Object};
use super::stop::Stop;
use super::worker::Worker;

/// Whether anything on this machine is swapped out.
pub(super) fn is_used() -> bool {
    let s = rustix::system::sysinfo();
    s.freeswap < s.totalswap
}

impl Worker<'_> {
    pub(super) fn swap(&mut self, at: TaskDir<'_>) -> Result<(), Stop> {
        let anon_bytes = self.status.swap_bytes.ok_or(Stop::Gap(Reason::Absent))?;
        let mut record = Swap::new();
        (record.anon_bytes, record.valid) = (anon_bytes, 1);
        let shared = if self.run.swap_used { self.swapped_objects(at) } else { Ok(Some((0, 0))) };
        match shared {
            Ok(shared) => {
                if let Some((all, private)) = shared {
                    (record.shmem_bytes, record.private_shmem_bytes) = (all, private);
                    record.valid = Swap::ALL_VALID;
                }
                self.out.put(&record);
                Ok(())
            }
            // The counter of anonymous memory is still known.
            Err(Stop::Gap(Reason::Denied | Reason::Unsupported)) => {
                self.out.put(&record);
                Ok(())
            }
            Err(stop) => Err(stop),
        }
    }

    /// Swapped bytes of the mapped objects, and how many of these bytes are in private writable
    /// mappings. `None` if they cannot be known.
    fn swapped_objects(&mut self, mut at: TaskDir<'_>) -> Result<Option<(u64, u64)>, Stop> {
        let got =
            self.risky(at, Groups::SWAP, |r| r.live_file(at.dir, at.path.file("maps"), || true))?;
        let text = match got {
            Ok(text) => text,
            Err(e) => return Err(self.no_memory(at, e)),
        };
        let sum = self.sum_of_objects(at, &text);
        self.reader.give_back(text);
        sum
    }

    fn sum_of_objects(
        &mut self,
        at: TaskDir<'_>,
        text: &FileText,
    ) -> Result<Option<(u64, u64)>, Stop> {
        let mut sum = (0u64, 0u64);
        for line in parse::maps_lines(text.bytes()) {
            let v = line.vma;
            // Shared memory is never on a block device.
            if v.kind != VmaKind::File as u32 || v.dev & 0xfff00 != 0 {
                continue;
            }
            let Some(n) = self.swapped(at, &line)? else { return Ok(None) };
            let is_private = v.perms & (VMA_SHARED | VMA_WRITE) == VMA_WRITE;
            let (n, bound) = match n {
                n if n > 0 && is_private => match self.copied(at, &line)? {
                    Some(copied) => (n.saturating_sub(copied), 0),
                    None => (n, n),
                },
                n => (n, 0),
            };
            sum = (sum.0 + n, sum.1 + bound);
        }
        Ok(Some(sum))
    }

    /// Swapped bytes of the object of one mapping. They are 0 if it is not shared memory.
    fn swapped(&mut self, at: TaskDir<'_>, line: &MapLine<'_>) -> Result<Option<u64>, Stop> {
        let (v, objects) = (&line.vma, &self.run.objects);
        let len = v.end - v.start;
        let range = (v.dev, v.inode, v.offset_bytes, len);
        if let Some(n) = get(&objects.ranges, &range) {
            return Ok(n);
        }
        if get(&objects.devices, &v.dev) == Some(false) {
            return Ok(Some(0));
        }
        let whole = get(&objects.whole, &(v.dev, v.inode));
        if let Some(Some(0)) = whole {
            return Ok(Some(0));
        }
        let got = self.risky(at, Groups::SWAP, |r| {
            let Some(object) = find(r, at, line)? else { return Ok(None) };
            let whole = match whole {
                Some(n) => n,
                None => object.swapped(0, object.size_bytes, &mut r.syscalls),
            };
            let part = match whole {
                n if n == Some(0) || (v.offset_bytes == 0 && len >= object.size_bytes) => n,
                _ => object.swapped(v.offset_bytes, len, &mut r.syscalls),
            };
            Ok(Some((whole, part)))
        })?;
        let n = match got {
            Ok(found) => {
                put(&objects.devices, v.dev, found.is_some());
                let Some((whole, part)) = found else { return Ok(Some(0)) };
                put(&objects.whole, (v.dev, v.inode), whole);
                part
            }
            // The object was unmapped since.
            Err(Errno::NOENT) => return Ok(Some(0)),
            Err(_) => None,
        };
        put(&objects.ranges, range, n);
        Ok(n)
    }

    /// Bytes of the object's swapped pages that this mapping has copies of, because the process
    /// wrote to them. `None` if they cannot be known.
    fn copied(&mut self, mut at: TaskDir<'_>, line: &MapLine<'_>) -> Result<Option<u64>, Stop> {
        let v = &line.vma;
        self.risky(at, Groups::SWAP, |r| {
            let pagemap = r.open_read(at.dir, at.path.file("pagemap")).ok()?;
            let mut object = None;
            let mut sum = 0;
            let syscalls = &mut 0;
            let told =
                shmem::own_pages(pagemap.as_fd(), v.start, v.end, syscalls, |from, to, n| {
                    if object.is_none() {
                        object = find(r, at, line).ok()?;
                    }
                    sum += object.as_ref()?.evicted(
                        v.offset_bytes + (from - v.start),
                        to - from,
                        n,
                    )?;
                    Some(())
                });
            r.syscalls += *syscalls;
            told.map(|()| sum)
        })
    }
}

fn get<K: std::hash::Hash + Eq, V: Copy>(map: &Mutex<HashMap<K, V>>, key: &K) -> Option<V> {
    map.lock().unwrap_or_else(PoisonError::into_inner).get(key).copied()
}

fn put<K: std::hash::Hash + Eq, V>(map: &Mutex<HashMap<K, V>>, key: K, value: V) {
    map.lock().unwrap_or_else(PoisonError::into_inner).insert(key, value);
}

/// The object of a mapping, or `None` if it is not shared memory.
///
/// # Errors
/// `NOENT` if it is no longer mapped.
fn find(reader: &mut Reader, at: TaskDir<'_>, line: &MapLine<'_>) -> Result<Option<Object>, Errno> {
    if shmem::own_mount() == Some(device(line.vma.dev)) {
        let file = open_mapping(reader, at, &line.vma, Reader::open_read)?;
        reader.syscalls += 1;
        return shmem::object_of_own_mount(file);
    }
    let file = match open_mapping(reader, at, &line.vma, Reader::open_path) {
        Err(e @ (Errno::PERM | Errno::ACCESS)) => open_name(reader, at, line).ok_or(e)?,
        file => file?,
    };
    reader.syscalls += OBJECT_SYSCALLS + 1; // close
    shmem::object(file.as_fd())
}

fn open_mapping(
    reader: &mut Reader,
    mut at: TaskDir<'_>,
    v: &Vma,
    open: impl FnOnce(&mut Reader, BorrowedFd<'_>, &CStr) -> Result<OwnedFd, Errno>,
) -> Result<OwnedFd, Errno> {
    let name = format!("{:x}-{:x}", v.start, v.end);
    let dir = at.path.file("map_files/").to_bytes();
    let path = CString::new([dir, name.as_bytes()].concat()).expect("no NUL in it");
    open(reader, at.dir, &path)
}

/// A device number of the stream, in the form of `st_dev`.
fn device(dev: u32) -> u64 {
    let (major, minor) = taskdiag_wire::device::major_minor(dev);
    makedev(major, minor)
}

/// Opens the object by its path as the task sees it, if that leads to the same file. A path with
/// `\012` has a newline there, or these four characters.
fn open_name(reader: &mut Reader, mut at: TaskDir<'_>, line: &MapLine<'_>) -> Option<OwnedFd> {
    if line.is_deleted() || !line.text.starts_with(b"/") {
        return None;
    }
    let root = at.path.file("root").to_bytes();
    let plain = line.is_ambiguous().then_some(Cow::Borrowed(line.text));
    [parse::newlines(line.text)].into_iter().chain(plain).find_map(|path| {
        let path = CString::new([root, path.as_ref()].concat()).ok()?;
        let file = reader.open_path(at.dir, &path).ok()?;
        reader.syscalls += 1;
        let stat = rustix::fs::fstat(&file).ok()?;
        let is_same = (stat.st_dev, stat.st_ino) == (device(line.vma.dev), line.vma.inode);
        is_same.then_some(file)
    })
}
