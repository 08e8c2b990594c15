//! Finds the end of the machine's memory, and the address bits of a page table entry. The programs
//! need both to read page tables without ever reading from a device (`bpf/usermem.h`).
//!
//! The ranges are found once per process, when a request first needs them.

use rustix::fs::{CWD, Mode, OFlags};

use crate::engine::found::Found;

/// The end of ordinary memory as a physical address, and the address bits of an entry. Both are 0
/// if page tables are not supported, as on all architectures except x86-64.
pub fn limits() -> (u64, u64) {
    static FOUND: Found<(u64, u64)> = Found::new();
    *FOUND.get_or_find(|| match address_bits() {
        0 => (0, 0),
        bits => (iomem().unwrap_or_else(about), bits),
    })
}

/// Can the programs find text in the memory of a task?
pub fn is_understood() -> bool {
    cfg!(target_arch = "x86_64")
}

/// The end of memory from /proc/iomem, which shows addresses only to the administrator.
fn iomem() -> Option<u64> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(CWD, c"/proc/iomem", flags, Mode::empty()).ok()?;
    let mut text = Vec::new();
    let mut buf = [0; 8192];
    loop {
        match rustix::io::read(&fd, &mut buf) {
            Ok(0) => break,
            Ok(n) => text.extend_from_slice(&buf[..n]),
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return None,
        }
    }
    parse(&text)
}

/// The end of the last range of "System RAM", or `None` if there is none or the addresses are
/// hidden.
fn parse(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let ranges = text.lines().filter_map(|l| l.split_once(" : "));
    let ram = ranges.filter(|(_, what)| what.starts_with("System RAM"));
    let ends = ram.filter_map(|(range, _)| {
        u64::from_str_radix(range.trim_start().split_once('-')?.1, 16).ok()
    });
    ends.max().filter(|end| *end > 0).map(|end| end + 1)
}

/// An estimate of the end of memory: its size, plus room for devices below 4 GiB. Memory above this
/// is read from /proc and not through page tables, which costs time but loses nothing.
fn about() -> u64 {
    let sys = rustix::system::sysinfo();
    #[allow(clippy::unnecessary_cast)] // as wide as a `long`, which is not u64 everywhere
    let total = sys.totalram as u64 * u64::from(sys.mem_unit);
    (total + total / 8 + (4 << 30)).next_multiple_of(1 << 30)
}

/// The address bits of an entry, without the bit that marks a page as encrypted (AMD's SME and
/// SEV).
#[cfg(target_arch = "x86_64")]
fn address_bits() -> u64 {
    let highest = cpuid(0x8000_0000).eax;
    let bits = if highest >= 0x8000_0008 { cpuid(0x8000_0008).eax & 0xff } else { 36 };
    let mut mask = ((1u64 << bits.min(52)) - 1) & !0xfff;
    if highest >= 0x8000_001f {
        let sev = cpuid(0x8000_001f);
        if sev.eax & 3 != 0 {
            mask &= !(1u64 << (sev.ebx & 0x3f));
        }
    }
    mask
}

/// Newer Rust has `__cpuid()` as a safe function, but the oldest Rust that builds this does not.
#[cfg(target_arch = "x86_64")]
#[allow(unused_unsafe)]
fn cpuid(leaf: u32) -> std::arch::x86_64::CpuidResult {
    // SAFETY: every processor of this architecture has the instruction.
    unsafe { std::arch::x86_64::__cpuid(leaf) }
}

#[cfg(not(target_arch = "x86_64"))]
fn address_bits() -> u64 {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_memory_is_that_of_its_last_range() {
        let text = "00001000-0009fbff : System RAM\n000a0000-000fffff : Reserved\n\
            100000000-11fffffff : System RAM\n  101000000-101ffffff : Kernel code\n\
            380000000000-383fffffffff : PCI Bus 0000:00\n140000000-14fffffff : Persistent Memory\n  \
            148000000-14fffffff : dax0.0\n    148000000-14fffffff : System RAM (kmem)\n";
        assert_eq!(parse(text.as_bytes()), Some(0x1_5000_0000));
        assert_eq!(parse(b"00000000-00000000 : System RAM\n"), None);
        assert_eq!(parse(b""), None);
    }

    #[test]
    fn limits_of_memory_hold_for_this_machine() {
        let (end, bits) = limits();
        if cfg!(target_arch = "x86_64") {
            let sys = rustix::system::sysinfo();
            #[allow(clippy::unnecessary_cast)]
            let total = sys.totalram as u64 * u64::from(sys.mem_unit);
            assert!(end >= total, "{end:#x}");
            assert!(bits.trailing_zeros() == 12 && bits >> 52 == 0, "{bits:#x}");
        } else {
            assert_eq!((end, bits), (0, 0));
        }
    }
}
