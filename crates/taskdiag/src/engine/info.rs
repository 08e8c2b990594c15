//! Makes the head of a stream: the request, the time, and the facts that a reader on another
//! machine needs to print it.
//!
//! All engines share it, so that their answers only differ in the engine. The engine itself sets
//! the groups that it served.

use std::ops::RangeInclusive;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::time::{ClockId, Timespec, clock_gettime};
use taskdiag_wire::{Info, StreamWriter, build};

use crate::cpulist::ranges;
use crate::request::Request;

/// The number of system calls that [`info`] makes, for [`Cost`](crate::engine::Cost): sysinfo, and
/// open, read and close for the CPUs. The clocks are read in user space.
pub(crate) const SYSCALLS: u64 = 4;

/// INFO for an answer that starts now. The `*_groups` masks are 0.
pub(crate) fn info(req: &Request) -> Info {
    let sys = rustix::system::sysinfo();
    // The clocks are read one right after the other, because the reader takes them as one moment.
    let boottime_ns = ns(clock_gettime(ClockId::Boottime));
    let realtime_ns = ns(clock_gettime(ClockId::Realtime));
    build!(Info {
        show_flags: req.groups.bits(),
        dump_strategy: req.strategy as u64,
        pid: req.pid,
        ncpus: online_cpus(),
        realtime_ns,
        boottime_ns,
        mem_total_bytes: mem_total(&sys),
        page_size: rustix::param::page_size() as u32,
        clk_tck: rustix::param::clock_ticks_per_second() as u32,
        ..StreamWriter::blank_info()
    })
}

/// A time before the epoch is replaced by the epoch.
fn ns(t: Timespec) -> u64 {
    u64::try_from(t.tv_sec).unwrap_or(0) * 1_000_000_000 + t.tv_nsec as u64
}

// The members are as wide as a `long`, which is not u64 on every machine.
#[allow(clippy::useless_conversion, clippy::unnecessary_cast)]
fn mem_total(sys: &rustix::system::Sysinfo) -> u64 {
    sys.totalram as u64 * u64::from(sys.mem_unit)
}

/// The online CPUs of the machine. If /sys is not mounted, those that this process may use.
fn online_cpus() -> u32 {
    read_online().and_then(|list| count(&list)).unwrap_or_else(|| {
        std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(1))
    })
}

fn read_online() -> Option<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(CWD, c"/sys/devices/system/cpu/online", flags, Mode::empty());
    let mut buf = vec![0; 4096];
    let n = rustix::io::read(fd.ok()?, &mut buf).ok()?;
    buf.truncate(n);
    Some(buf)
}

/// The number of CPUs in a list. `None` if it is not such a list, or an empty one.
fn count(list: &[u8]) -> Option<u32> {
    let one = |range: RangeInclusive<u32>| (range.end() - range.start()).checked_add(1);
    let all = ranges(list)?.into_iter().try_fold(0u32, |sum, range| sum.checked_add(one(range)?));
    all.filter(|n| *n > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use taskdiag_wire::Groups;

    #[test]
    fn cpu_lists() {
        assert_eq!(count(b"0\n"), Some(1));
        assert_eq!(count(b"0-3,8,10-11\n"), Some(7));
        for bad in ["", "\n", "x", "0-4294967295"] {
            assert_eq!(count(bad.as_bytes()), None, "{bad:?}");
        }
    }

    #[test]
    fn this_machine() {
        let i = info(&Request::one(7, Groups::BASE));
        assert_eq!((i.show_flags, i.dump_strategy, i.pid), (1, 1, 7));
        assert!(i.ncpus >= 1 && i.page_size >= 4096 && i.clk_tck >= 1);
        let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap();
        let kb = meminfo.lines().next().unwrap().split_ascii_whitespace().nth(1).unwrap();
        assert_eq!(i.mem_total_bytes, kb.parse::<u64>().unwrap() * 1024);
        let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
        let s: f64 = uptime.split(' ').next().unwrap().parse().unwrap();
        assert!((i.boottime_ns as f64 / 1e9 - s).abs() < 5.0);
        // The time must be later than when this test was written.
        assert!(i.realtime_ns > 1_700_000_000_000_000_000);
    }
}
