//! Asks the kernel about single memory mappings: about how many a process has, and the name of the
//! file of one.
//!
//! The number is estimated from a sample of the process's addresses, without reading its mappings.
//! Nothing in /proc has that number. But `statm` has the size of all mappings together, and
//! PROCMAP_QUERY (Linux 6.11) tells which mapping an address is in. Where a process has many
//! mappings, they lie next to each other, in the stretch where mmap(2) puts them. Each sampled
//! address stands for an equal share of that stretch, and counts for as many mappings as would fit
//! into the share if all had the size of the mapping found there. This is expensive only where it
//! is worth it: for most processes, `statm` alone shows that they cannot have many mappings.
//!
//! `auto::cost` decides how the number is used. Mappings outside of that range are not seen, even
//! if there are many.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Errno;

/// `PROCMAP_QUERY` of linux/fs.h, since Linux commit ed5d583a88a9 ("fs/procfs: implement efficient
/// VMA querying API for /proc/<pid>/maps") (in v6.11).
const PROCMAP_QUERY: libc::c_ulong = 0xc068_6611;
const COVERING_OR_NEXT_VMA: u64 = 0x10;

/// `struct procmap_query`.
#[repr(C)]
#[derive(Default)]
struct ProcmapQuery {
    size: u64,
    query_flags: u64,
    query_addr: u64,
    vma_start: u64,
    vma_end: u64,
    vma_flags: u64,
    vma_page_size: u64,
    vma_offset: u64,
    inode: u64,
    dev_major: u32,
    dev_minor: u32,
    vma_name_size: u32,
    build_id_size: u32,
    vma_name_addr: u64,
    build_id_addr: u64,
}

/// The number of addresses in a sample.
const SAMPLES: u64 = 64;
/// This many addresses with the highest counts are ignored, because in a process with few mappings
/// they hit the smallest ones by chance.
const ODD: usize = 4;

/// The approximate number of mappings of process `pid`, or `None` if there seem to be fewer than
/// `many`.
pub(crate) fn about(pid: u32, many: u64) -> Option<u64> {
    let mut text = [0; 128];
    let n = File::open(format!("/proc/{pid}/statm")).ok()?.read(&mut text).ok()?;
    let pages: u64 = std::str::from_utf8(&text[..n]).ok()?.split(' ').next()?.parse().ok()?;
    // No mapping is smaller than a page.
    if pages < many {
        return None;
    }
    let maps = File::open(format!("/proc/{pid}/maps")).ok()?;
    let total = pages.saturating_mul(rustix::param::page_size() as u64);
    let begin = query(&maps, below_ours())?.0;
    let number = from_samples(total, |at| {
        let at = begin.checked_add(at)?;
        let (start, end) = query(&maps, at)?;
        (start <= at).then(|| end - start)
    });
    (number >= many).then_some(number)
}

/// An address below everything that mmap(2) places and above the rest. It is seven eighths of the
/// way to our own stack.
fn below_ours() -> u64 {
    let here = 0u8;
    std::ptr::from_ref(&here).addr() as u64 / 8 * 7
}

/// The mapping at an address, or the next one after it.
fn query(maps: &File, at: u64) -> Option<(u64, u64)> {
    let mut q = ProcmapQuery {
        size: size_of::<ProcmapQuery>() as u64,
        query_flags: COVERING_OR_NEXT_VMA,
        query_addr: at,
        ..ProcmapQuery::default()
    };
    // SAFETY: the struct lives across the call, and has the kernel's layout.
    let r = unsafe { libc::ioctl(maps.as_raw_fd(), PROCMAP_QUERY as _, &mut q) };
    (r == 0 && q.vma_end > q.vma_start).then_some((q.vma_start, q.vma_end))
}

/// The unescaped name of a mapping, for names that have escapes in the text of `maps`. `None`:
/// another mapping is at this address by now. It is also an error if the kernel does not have the
/// call, or if the name is longer than `PATH_MAX`.
pub(super) fn name(maps: impl AsFd, start: u64, inode: u64) -> Result<Option<Vec<u8>>, Errno> {
    let mut name = vec![0u8; libc::PATH_MAX as usize];
    let mut q = ProcmapQuery {
        size: size_of::<ProcmapQuery>() as u64,
        query_addr: start,
        vma_name_size: libc::PATH_MAX as u32,
        vma_name_addr: name.as_mut_ptr().expose_provenance() as u64,
        ..ProcmapQuery::default()
    };
    // SAFETY: the struct and the buffer for the name live during the call, and have the layout of
    // the kernel.
    if unsafe { libc::ioctl(maps.as_fd().as_raw_fd(), PROCMAP_QUERY as _, &mut q) } != 0 {
        return match Errno::from_io_error(&std::io::Error::last_os_error()) {
            Some(Errno::NOENT) => Ok(None),
            e => Err(e.unwrap_or(Errno::INVAL)),
        };
    }
    // The length counts the NUL.
    name.truncate((q.vma_name_size as usize).saturating_sub(1));
    Ok((q.vma_start == start && q.inode == inode).then_some(name))
}

/// The number of mappings on `total` bytes, from the sizes of the mappings at some addresses. An
/// address may be in no mapping.
fn from_samples(total: u64, mut size_at: impl FnMut(u64) -> Option<u64>) -> u64 {
    let share = total / SAMPLES;
    let mut each: Vec<u64> = (0..SAMPLES)
        .map(|i| {
            // The samples have irregular distances, because mappings may be at regular ones (stacks
            // and their guards).
            let within = (share as u128 * u128::from(i * 40_503 % 65_536) / 65_536) as u64;
            size_at(i * share + within).map_or(0, |size| share.div_ceil(size.max(1)))
        })
        .collect();
    each.sort_unstable();
    each[..each.len() - ODD].iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn many_mappings_of_one_size_are_counted() {
        let n = from_samples(240 * MIB, |_| Some(4096));
        assert!((50_000..=61_440).contains(&n), "{n}");
        let n = from_samples(240 * MIB, |at| (at < 200 * MIB).then_some(8192));
        assert!((20_000..=25_600).contains(&n), "{n}");
    }

    #[test]
    fn a_few_large_mappings_are_counted_as_few() {
        // The process has stacks with guards, and 2 MiB of small mappings in 64 GiB.
        let stacks = |at: u64| Some(if at % (8 * MIB + 4096) < 4096 { 4096 } else { 8 * MIB });
        assert!(from_samples(4096 * MIB, stacks) < 1_000);
        let heap = |at: u64| Some(if at < 2 * MIB { 4096 } else { 65_536 * MIB });
        assert!(from_samples(65_536 * MIB, heap) < 100);
        assert_eq!(from_samples(MIB, |_| None), 0);
        assert_eq!(from_samples(0, |_| Some(4096)), 0);
    }

    #[test]
    fn this_process_has_few_mappings() {
        assert_eq!(about(std::process::id(), 20_000), None);
        assert_eq!(about(u32::MAX, 1), None);
    }

    #[test]
    fn mappings_that_were_made_are_found() {
        const N: usize = 4_000;
        let (page, rw) = (rustix::param::page_size(), libc::PROT_READ | libc::PROT_WRITE);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping, of which every other page is made read-only.
        let at = unsafe {
            let at = libc::mmap(std::ptr::null_mut(), N * page, rw, flags, -1, 0);
            assert_ne!(at, libc::MAP_FAILED);
            for i in (0..N).step_by(2) {
                assert_eq!(libc::mprotect(at.byte_add(i * page), page, libc::PROT_READ), 0);
            }
            at
        };
        let maps = File::open("/proc/self/maps").unwrap();
        let known = query(&maps, at.addr() as u64).is_some();
        let begin = at.addr() as u64;
        let n = from_samples((N * page) as u64, |o| {
            let (start, end) = query(&maps, begin + o)?;
            (start <= begin + o).then(|| end - start)
        });
        // SAFETY: the mapping from above.
        unsafe { libc::munmap(at, N * page) };
        // Before Linux 6.11 the number cannot be found.
        assert!(n == 0 && !known || (3_000..=4_032).contains(&n), "{n}");
    }
}
