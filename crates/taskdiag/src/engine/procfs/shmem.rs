//! Finds out how much of a range of a shared memory object is swapped out, from counters of the
//! kernel. It does not know which processes map the object.
//!
//! - `cachestat(2)` (Linux 6.5) steps through the pages of the object, in 20 to 100 ns each. The
//!   pages that it calls evicted are shown as Swap in smaps. - The object keeps a counter of its
//!   swapped pages. The kernel shows it in smaps of a process
//!   that maps the whole object and cannot write to it privately. So this process maps it for a
//!   moment, at a low address, where its line is the first one of our own smaps. This takes 15 µs
//!   for an object of any size. For a part of an object that has swapped pages, the kernel walks
//!   over the pages of that part.
//!
//! So a few pages are counted by the first way and more by the second, and each way replaces the
//! other where that is not possible.

use std::collections::HashMap;
use std::ffi::CString;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Mutex;

use rustix::fs::{CWD, FileType, MemfdFlags, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::engine::found::Found;

/// `TMPFS_MAGIC` of linux/magic.h. All shared memory has it.
const TMPFS_MAGIC: u64 = 0x0102_1994;
/// The number is the same on all machines but alpha.
const SYS_CACHESTAT: libc::c_long = 451;
/// This many pages are counted one by one in the time that a mapping takes.
const FEW_PAGES: u64 = 256;
/// An address below the usual place of programs. If it is taken, the kernel chooses another one.
const LOW: usize = 1 << 32;

/// How much of smaps is read first. A mapping of a memfd with a short name has 765 bytes there, and
/// Swap begins at 656.
const FIRST_READ: usize = 704;

/// The addresses are this far apart.
const APART: usize = 1 << 38;

/// The addresses in use. A thread never waits for one: if another thread holds it during a fork, it
/// is never released in the child.
static OWN: [Mutex<()>; 8] = [const { Mutex::new(()) }; 8];

/// A range of an object: device, inode, offset and length.
pub(super) type Range = (u32, u64, u64, u64);

/// The results about shared memory objects so far. The readers of an answer share it.
#[derive(Debug, Default)]
pub(super) struct Objects {
    /// Swapped bytes of a range, or `None` if they cannot be known.
    pub(super) ranges: Mutex<HashMap<Range, Option<u64>>>,
    /// Swapped bytes of whole objects, by device and inode, or `None` if they cannot be known.
    pub(super) whole: Mutex<HashMap<(u32, u64), Option<u64>>>,
    /// Whether the file system with this device is one of shared memory.
    pub(super) devices: Mutex<HashMap<u32, bool>>,
}

/// A shared memory object that may be looked at.
#[derive(Debug)]
pub(super) struct Object {
    file: OwnedFd,
    pub(super) size_bytes: u64,
    /// Bytes of its pages, in memory or swapped out.
    held_bytes: u64,
}

/// The shared memory object of a file, or `None` if the file is not shared memory.
///
/// `file` must have been opened with `O_PATH`, because opening a device or a file on a server could
/// have side effects.
pub(super) fn object(file: BorrowedFd<'_>) -> Result<Option<Object>, Errno> {
    if rustix::fs::fstatfs(file)?.f_type as u64 != TMPFS_MAGIC {
        return Ok(None);
    }
    let stat = rustix::fs::fstat(file)?;
    // devtmpfs is such a file system, and has devices.
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Ok(None);
    }
    let path = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd())).expect("no NUL in it");
    let file = rustix::fs::openat(CWD, &path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    Ok(Some(Object::of(file, &stat)))
}

/// The device, as `st_dev`, of the kernel's own mount of shared memory. Objects that have no name
/// in a directory (memfd, SysV, `/dev/zero`) are on it. Such a file system has only shared memory,
/// so a file on it may be opened without a check.
pub(super) fn own_mount() -> Option<u64> {
    static DEVICE: Found<Option<u64>> = Found::new();
    *DEVICE.get_or_find(|| {
        let file = rustix::fs::memfd_create("taskdiag", MemfdFlags::CLOEXEC).ok()?;
        Some(rustix::fs::fstat(&file).ok()?.st_dev)
    })
}

/// The object of a file on [`own_mount`] that was opened for reading.
pub(super) fn object_of_own_mount(file: OwnedFd) -> Result<Option<Object>, Errno> {
    let stat = rustix::fs::fstat(&file)?;
    Ok(Some(Object::of(file, &stat)))
}

/// The number of system calls that [`object`] makes.
pub(super) const OBJECT_SYSCALLS: u64 = 4;

impl Object {
    fn of(file: OwnedFd, stat: &Stat) -> Object {
        Object {
            file,
            size_bytes: u64::try_from(stat.st_size).unwrap_or(0).next_multiple_of(page()),
            held_bytes: u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512),
        }
    }

    /// How many bytes of a range are swapped out, or `None` if the kernel does not show it.
    pub(super) fn swapped(&self, offset: u64, len: u64, syscalls: &mut u64) -> Option<u64> {
        if len == 0 || self.held_bytes == 0 {
            return Some(0);
        }
        let few = len.min(self.held_bytes) / page() <= FEW_PAGES;
        if few { self.evicted(offset, len, syscalls) } else { self.counter(offset, len, syscalls) }
            .or_else(|| {
                if few {
                    self.counter(offset, len, syscalls)
                } else {
                    self.evicted(offset, len, syscalls)
                }
            })
    }

    /// As [`swapped`](Self::swapped), by stepping through the pages. This is for short ranges.
    pub(super) fn evicted(&self, offset: u64, len: u64, syscalls: &mut u64) -> Option<u64> {
        // struct cachestat_range and struct cachestat. The fourth of the five counters is
        // `evicted`.
        let range = [offset, len];
        let mut stat = [0u64; 5];
        *syscalls += 1;
        // SAFETY: both structs are there for the call, and as large as the kernel's.
        let r =
            unsafe { libc::syscall(SYS_CACHESTAT, self.file.as_raw_fd(), &range, &mut stat, 0) };
        (r == 0).then(|| stat[3] * page())
    }

    /// As [`swapped`](Self::swapped), from the counter of the object, or by the kernel's own walk
    /// for a part of the object.
    fn counter(&self, offset: u64, len: u64, syscalls: &mut u64) -> Option<u64> {
        let free = OWN.iter().enumerate().find_map(|(n, own)| Some((n, own.try_lock().ok()?)));
        let number = free.as_ref().map_or(OWN.len(), |(n, _)| *n);
        *syscalls += 2;
        let mapping = ObjectRange::of(self.file.as_fd(), LOW + number * APART, offset, len)?;
        own_swap(mapping.address() as u64, syscalls)
    }
}

fn page() -> u64 {
    rustix::param::page_size() as u64
}

/// A range of an object that is mapped into our own address space without access.
struct ObjectRange {
    at: NonNull<libc::c_void>,
    len: usize,
}

impl ObjectRange {
    fn of(file: BorrowedFd<'_>, hint: usize, offset: u64, len: u64) -> Option<ObjectRange> {
        let (offset, len) = (libc::off_t::try_from(offset).ok()?, usize::try_from(len).ok()?);
        let (hint, flags) = (hint as *mut libc::c_void, libc::MAP_PRIVATE | libc::MAP_NORESERVE);
        // SAFETY: without MAP_FIXED, nothing that is mapped is replaced.
        let at = unsafe { libc::mmap(hint, len, libc::PROT_NONE, flags, file.as_raw_fd(), offset) };
        let at = NonNull::new(at).filter(|at| at.as_ptr() != libc::MAP_FAILED)?;
        Some(ObjectRange { at, len })
    }
    fn address(&self) -> usize {
        self.at.as_ptr() as usize
    }
}

impl Drop for ObjectRange {
    fn drop(&mut self) {
        // SAFETY: this is the mapping that was just made, and its address is not used elsewhere.
        unsafe { libc::munmap(self.at.as_ptr(), self.len) };
    }
}

/// `Swap` in bytes of our own mapping that begins at `start`.
fn own_swap(start: u64, syscalls: &mut u64) -> Option<u64> {
    let mut smaps = std::fs::File::open("/proc/self/smaps").ok()?;
    *syscalls += 2; // and close
    let (mut text, mut chunk) = (Vec::new(), [0; 4096]);
    // The kernel only looks at mappings that fit into the buffer. This size usually includes the
    // line Swap, but not the end of the first mapping.
    for room in std::iter::once(FIRST_READ).chain(std::iter::repeat(chunk.len())) {
        *syscalls += 1;
        let n = smaps.read(&mut chunk[..room]).ok()?;
        text.extend_from_slice(&chunk[..n]);
        if let found @ Some(_) = swap_of(&text, start) {
            return found;
        }
        if n == 0 {
            break;
        }
    }
    None
}

/// `Swap` of the mapping that begins at `start`, if it is in the text that was read.
fn swap_of(text: &[u8], start: u64) -> Option<u64> {
    let head = format!("{start:08x}-");
    let mut lines = text.split_inclusive(|b| *b == b'\n').filter(|l| l.ends_with(b"\n"));
    lines.find(|l| l.starts_with(head.as_bytes()))?;
    let line = lines.find_map(|l| l.strip_prefix(b"Swap:"))?;
    let kib: u64 =
        std::str::from_utf8(line).ok()?.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// `PAGEMAP_SCAN` of linux/fs.h, since Linux commit 52526ca7fdb9 ("fs/proc/task_mmu: implement
/// IOCTL to get and optionally clear info about PTEs") (in v6.7).
const PAGEMAP_SCAN: libc::c_ulong = 0xc060_6610;
const PAGE_IS_FILE: u64 = 1 << 2;
const PAGE_IS_PRESENT: u64 = 1 << 3;
const PAGE_IS_SWAPPED: u64 = 1 << 4;

/// `struct pm_scan_arg`.
#[repr(C)]
struct ScanArg {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `struct page_region`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

/// Calls `each` with the ranges in `start..end` in which the process has its own pages, in memory
/// or swapped out. Returns `None` if the kernel does not support this, or if `each` stopped.
pub(super) fn own_pages(
    pagemap: BorrowedFd<'_>,
    start: u64,
    end: u64,
    syscalls: &mut u64,
    mut each: impl FnMut(u64, u64, &mut u64) -> Option<()>,
) -> Option<()> {
    let mut regions = [Region::default(); 256];
    let mut arg = ScanArg {
        size: size_of::<ScanArg>() as u64,
        flags: 0,
        start,
        end,
        walk_end: 0,
        vec: regions.as_mut_ptr() as u64,
        vec_len: regions.len() as u64,
        max_pages: 0,
        category_inverted: PAGE_IS_FILE,
        category_mask: PAGE_IS_FILE,
        category_anyof_mask: PAGE_IS_PRESENT | PAGE_IS_SWAPPED,
        // Pages that are next to each other form one region, wherever they are kept.
        return_mask: PAGE_IS_FILE,
    };
    while arg.start < end {
        *syscalls += 1;
        // SAFETY: the argument and its array live across the call, and have the kernel's layout.
        let n = unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN as _, &mut arg) };
        let found = regions.get(..usize::try_from(n).ok()?)?;
        found.iter().try_for_each(|r| each(r.start, r.end, syscalls))?;
        if arg.walk_end <= arg.start {
            return None;
        }
        arg.start = arg.walk_end;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memfd(pages: u64) -> (OwnedFd, Object) {
        let file = rustix::fs::memfd_create("shmem", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let bytes = vec![1; usize::try_from(pages * page()).unwrap()];
        assert_eq!(rustix::io::pwrite(&file, &bytes, 0), Ok(bytes.len()));
        let object = object(file.as_fd()).unwrap().expect("it is shared memory");
        (file, object)
    }

    #[test]
    fn both_ways_agree_where_nothing_is_swapped() {
        let (_file, o) = memfd(4);
        assert_eq!((o.size_bytes, o.held_bytes), (4 * page(), 4 * page()));
        let mut calls = 0;
        for (offset, len) in [(0, 4), (1, 2), (0, 8), (4, 1)] {
            let (offset, len) = (offset * page(), len * page());
            assert_eq!(o.counter(offset, len, &mut calls), Some(0));
            assert_eq!(o.swapped(offset, len, &mut calls), Some(0));
        }
        assert!(calls > 0);
    }

    #[test]
    fn nothing_of_ours_stays_mapped() {
        let (_file, o) = memfd(1);
        assert_eq!(o.counter(0, page(), &mut 0), Some(0));
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        assert!(!maps.contains("memfd:shmem"), "{maps}");
    }

    #[test]
    fn devices_and_other_files_are_not_opened() {
        for path in ["/dev/null", "/proc/self/maps", "/proc/self/exe"] {
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            let file = rustix::fs::open(path, flags, Mode::empty()).unwrap();
            // The program itself may be on a tmpfs.
            let shmem = object(file.as_fd()).unwrap().is_some();
            assert!(!shmem || path.ends_with("exe"), "{path}");
        }
    }

    #[test]
    fn swap_is_read_from_the_lines_of_one_mapping() {
        let text = b"00400000-00401000 r--p 00000000 00:01 5  /x\nRss: 4 kB\nSwap:      0 kB\n\
            100000000-100001000 ---p 00000000 00:01 7  /memfd:x (deleted)\nRss:   0 kB\nSwap:   12 kB\n";
        assert_eq!(swap_of(text, 0x40_0000), Some(0));
        assert_eq!(swap_of(text, 0x1_0000_0000), Some(12 * 1024));
        assert_eq!(swap_of(text, 0x1_0000_1000), None);
        // The text ends in the middle of the line, so more must be read.
        assert_eq!(swap_of(&text[..text.len() - 4], 0x1_0000_0000), None);
    }

    #[test]
    fn pages_that_a_process_has_copied_are_counted() {
        let (file, _) = memfd(6);
        let len = usize::try_from(6 * page()).unwrap();
        let rw = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping of a file that is large enough; only its bytes are written.
        let at = unsafe {
            let at =
                libc::mmap(std::ptr::null_mut(), len, rw, libc::MAP_PRIVATE, file.as_raw_fd(), 0);
            assert_ne!(at, libc::MAP_FAILED);
            for i in [1, 2, 4] {
                at.cast::<u8>().add(i * page() as usize).write_volatile(2);
            }
            // This page is only read, so it still belongs to the file.
            at.cast::<u8>().read_volatile();
            at as u64
        };
        let map = std::fs::File::open("/proc/self/pagemap").unwrap();
        let (mut got, mut calls) = (Vec::new(), 0);
        let told = own_pages(map.as_fd(), at, at + 6 * page(), &mut calls, |start, end, _| {
            got.push(((start - at) / page(), (end - at) / page()));
            Some(())
        });
        // SAFETY: the mapping from above.
        unsafe { libc::munmap(at as *mut libc::c_void, len) };
        // Kernels before Linux 6.7 do not support it.
        assert!(told.is_none() || got == [(1, 3), (4, 5)], "{got:?}");
        assert_eq!(told.is_none(), got.is_empty());
    }
}
