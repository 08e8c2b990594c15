//! SWAP: what of a process is swapped out, never a page at a time and not once for each mapping.
//!
//! - its anonymous memory: VmSwap, a counter of the kernel's;
//! - nothing at all where nothing of the machine is swapped out;
//! - shared memory objects (tmpfs, memfd, SysV): one cachestat(2) for each object and range, whoever
//!   maps it. Of such objects it counts the swapped pages as evicted: what smaps has as Swap.
//!
//! cachestat needs Linux 6.5, and the objects of others CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE;
//! without either the shared part is not known. There is no cheap way there: smaps has it.

use std::collections::HashMap;
use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;
use taskdiag_wire::{Groups, Reason, Swap, VMA_SHARED, VMA_WRITE, Vma, VmaKind};

use super::parse;
use super::read::Reader;
use super::task::{Place, Stop, Worker};

/// `TMPFS_MAGIC` of linux/magic.h, of all shared memory.
const TMPFS_MAGIC: u64 = 0x0102_1994;
/// The same on all machines but alpha.
const SYS_CACHESTAT: libc::c_long = 451;

/// An object, and a range of it: device, inode, offset, length.
type Range = (u32, u64, u64, u64);

/// What was found out about shared memory objects so far. The readers of an answer share it.
#[derive(Debug, Default)]
pub(super) struct Objects {
    /// Swapped bytes; `None`: cannot be known.
    ranges: Mutex<HashMap<Range, Option<u64>>>,
    /// Is the file system with this device one of shared memory?
    devices: Mutex<HashMap<u32, bool>>,
}

/// Is anything of this machine swapped out?
pub(super) fn is_used() -> bool {
    let s = rustix::system::sysinfo();
    s.freeswap < s.totalswap
}

impl Worker<'_> {
    pub(super) fn swap(&mut self, at: Place<'_>) -> Result<(), Stop> {
        if self.unshared(at, Groups::SWAP)?.is_empty() {
            return Ok(());
        }
        let Some(anon_bytes) = self.status.swap_bytes else {
            return self.settle_own(at, Groups::SWAP, Err(Stop::Gap(Reason::Absent)));
        };
        let mut record = Swap::new();
        (record.anon_bytes, record.valid) = (anon_bytes, 1);
        let shared = if self.plan.swap_used { self.swapped_objects(at) } else { Ok(Some((0, 0))) };
        let got = match shared {
            Ok(shared) => {
                if let Some((all, private)) = shared {
                    (record.shmem_bytes, record.private_shmem_bytes) = (all, private);
                    record.valid = Swap::ALL_VALID;
                }
                self.out.put(&record);
                Ok(())
            }
            // The counter is known all the same.
            Err(Stop::Gap(Reason::Denied | Reason::Unsupported)) => {
                self.out.put(&record);
                Ok(())
            }
            Err(stop) => Err(stop),
        };
        self.settle_own(at, Groups::SWAP, got)
    }

    /// Swapped bytes of the objects that are mapped, and those of private writable mappings.
    /// `None`: cannot be known.
    fn swapped_objects(&mut self, mut at: Place<'_>) -> Result<Option<(u64, u64)>, Stop> {
        let got =
            self.risky(at, Groups::SWAP, |r| r.live_file(at.dir, at.path.file("maps"), || true))?;
        let text = match got {
            Ok(text) => text,
            Err(e) => return Err(self.no_memory(at, e)),
        };
        let mut sum = Some((0u64, 0u64));
        for line in parse::maps_lines(text.bytes()) {
            let v = line.vma;
            // Shared memory has no block device below it.
            if v.kind != VmaKind::File as u32 || v.dev & 0xfff00 != 0 {
                continue;
            }
            match (sum, self.swapped(at, &v)?) {
                (Some((all, private)), Some(n)) => {
                    let is_private = v.perms & (VMA_SHARED | VMA_WRITE) == VMA_WRITE;
                    sum = Some((all + n, if is_private { private + n } else { private }));
                }
                _ => {
                    sum = None;
                    break;
                }
            }
        }
        self.reader.give_back(text);
        Ok(sum)
    }

    /// Swapped bytes of one mapping; 0 of one that is not of shared memory.
    fn swapped(&mut self, at: Place<'_>, v: &Vma) -> Result<Option<u64>, Stop> {
        let objects = &self.plan.objects;
        let range = (v.dev, v.inode, v.offset_bytes, v.end - v.start);
        let known =
            objects.ranges.lock().unwrap_or_else(PoisonError::into_inner).get(&range).copied();
        if let Some(n) = known {
            return Ok(n);
        }
        let is_shmem = |d: &Mutex<HashMap<u32, bool>>| {
            d.lock().unwrap_or_else(PoisonError::into_inner).get(&v.dev).copied()
        };
        if is_shmem(&objects.devices) == Some(false) {
            return Ok(Some(0));
        }
        let n = match self.risky(at, Groups::SWAP, |r| open_mapping(r, at, v))? {
            Ok(file) => {
                self.reader.syscalls += 3; // fstatfs, cachestat, close
                let shmem =
                    rustix::fs::fstatfs(&file).is_ok_and(|s| s.f_type as u64 == TMPFS_MAGIC);
                let mut devices = objects.devices.lock().unwrap_or_else(PoisonError::into_inner);
                devices.insert(v.dev, shmem);
                if !shmem {
                    return Ok(Some(0));
                }
                evicted_bytes(&file, v)
            }
            // Unmapped meanwhile.
            Err(Errno::NOENT) => return Ok(Some(0)),
            Err(_) => None,
        };
        objects.ranges.lock().unwrap_or_else(PoisonError::into_inner).insert(range, n);
        Ok(n)
    }
}

fn open_mapping(reader: &mut Reader, mut at: Place<'_>, v: &Vma) -> Result<OwnedFd, Errno> {
    let name = format!("{:x}-{:x}", v.start, v.end);
    let dir = at.path.file("map_files/").to_bytes();
    let path = CString::new([dir, name.as_bytes()].concat()).expect("no NUL in it");
    reader.open_read(at.dir, &path)
}

/// Pages of a range of a shared memory object that are swapped out, in bytes.
fn evicted_bytes(file: &OwnedFd, v: &Vma) -> Option<u64> {
    // struct cachestat_range, struct cachestat: evicted is the fourth of five.
    let range = [v.offset_bytes, v.end - v.start];
    let mut stat = [0u64; 5];
    // SAFETY: both structs are there for the call, and as large as the kernel's.
    let r = unsafe {
        libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), range.as_ptr(), stat.as_mut_ptr(), 0)
    };
    (r == 0).then(|| stat[3] * rustix::param::page_size() as u64)
}
