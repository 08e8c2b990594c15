//! Makes the head of a stream: the request, the time, and the facts that a reader on another
//! machine needs to print it.
//!
//! All engines share it, so that their answers only differ in the engine. The engine itself sets
//! the groups that it served.

use std::ops::RangeInclusive;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::time::{ClockId, Timespec, clock_gettime};
use taskdiag_wire::{
    AlignedBuf, BootId, Fixed, Info, MSG_INFO, NlMsgHdr, Plain, StreamWriter, build,
};

use crate::cpulist::ranges;
use crate::engine::found::Found;
use crate::request::Request;

/// The number of system calls that [`info`] makes, for [`Cost`](crate::engine::Cost): sysinfo,
/// uname, and open, read and close for the CPUs. The clocks are read in user space, and the id of
/// the boot only once per process.
pub(crate) const SYSCALLS: u64 = 5;

/// INFO for an answer that starts now. The `*_groups` masks are 0.
pub(crate) fn info(req: &Request) -> Info {
    let sys = rustix::system::sysinfo();
    // The clocks are read one right after the other, because the reader takes them as one moment.
    let boottime_ns = ns(clock_gettime(ClockId::Boottime));
    let realtime_ns = ns(clock_gettime(ClockId::Realtime));
    let mut info = build!(Info {
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
    });
    name_host(&mut info);
    info
}

/// Says on which machine the answer was made. Our UTS namespace may get another name at any time,
/// so it is asked for each time. An answer that already names its host gets our names, too, because
/// it may be from a program in another namespace.
pub(crate) fn name_host(info: &mut Info) {
    let system = rustix::system::uname();
    info.boot_id = boot_id();
    info.nodename = Fixed::new(system.nodename().to_bytes());
    info.release = Fixed::new(system.release().to_bytes());
    info.machine = Fixed::new(system.machine().to_bytes());
}

/// [`name_host`] for an answer that another program made. An INFO that is too short is extended,
/// which copies the answer.
pub(crate) fn with_host(mut stream: AlignedBuf) -> AlignedBuf {
    const HDR: usize = size_of::<NlMsgHdr>();
    let Some((head, body)) = NlMsgHdr::read_from_prefix(stream.as_bytes()) else { return stream };
    let len = head.len as usize;
    // The parser reports anything that is not a stream.
    if head.kind != MSG_INFO || len > stream.len() || len < HDR + Info::C.least || len % 8 != 0 {
        return stream;
    }
    let payload = &body[..len - HDR];
    let Some((mut info, _)) = Info::read_from_prefix(payload) else {
        let mut whole = AlignedBuf::with_capacity(stream.len() + size_of::<Info>());
        let head = NlMsgHdr { len: (HDR + size_of::<Info>()) as u32, ..head };
        whole.extend_padded(head.as_bytes());
        whole.extend_padded(payload);
        whole.grow(HDR + size_of::<Info>());
        whole.extend_padded(&stream.as_bytes()[len..]);
        return with_host(whole);
    };
    name_host(&mut info);
    stream.as_mut_bytes()[HDR..HDR + size_of::<Info>()].copy_from_slice(info.as_bytes());
    stream
}

/// The boot of this machine. It is remembered once it is known.
fn boot_id() -> BootId {
    static KNOWN: Found<BootId> = Found::new();
    if let Some(known) = KNOWN.get() {
        return *known;
    }
    let mut text = [0; 64];
    let mut read = || {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let path = c"/proc/sys/kernel/random/boot_id";
        let fd = rustix::fs::openat(CWD, path, flags, Mode::empty()).ok()?;
        let n = rustix::io::read(fd, &mut text).ok()?;
        BootId::parse(&text[..n])
    };
    // Do not keep a failure: the id may be readable later, for example when /proc is mounted.
    read().map_or_else(BootId::default, |id| *KNOWN.keep(id))
}

/// A time before the epoch is replaced by the epoch.
fn ns(t: Timespec) -> u64 {
    u64::try_from(t.tv_sec).unwrap_or(0) * 1_000_000_000 + t.tv_nsec as u64
}

// The members of sysinfo are as wide as a `long`, which is not u64 on every machine.
#[allow(clippy::useless_conversion, clippy::unnecessary_cast)]
fn mem_total(sys: &rustix::system::Sysinfo) -> u64 {
    sys.totalram as u64 * u64::from(sys.mem_unit)
}

/// The online CPUs of the machine. If /sys is not mounted, the processors that this process may
/// use.
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
    use taskdiag_wire::{Done, Groups, Stream};

    #[test]
    fn processors_of_a_list_are_counted() {
        assert_eq!(count(b"0\n"), Some(1));
        assert_eq!(count(b"0-3,8,10-11\n"), Some(7));
        for bad in ["", "\n", "x", "0-4294967295"] {
            assert_eq!(count(bad.as_bytes()), None, "{bad:?}");
        }
    }

    #[test]
    fn info_describes_this_machine() {
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
        let read = |name: &str| std::fs::read(format!("/proc/sys/kernel/{name}")).unwrap();
        assert_eq!(format!("{}\n", i.boot_id).into_bytes(), read("random/boot_id"));
        let line = |text: &Fixed<64>| [text.get().unwrap(), b"\n"].concat();
        assert_eq!(line(&i.nodename), read("hostname"));
        assert_eq!(line(&i.release), read("osrelease"));
        assert!(i.machine.get().is_some());
    }

    #[test]
    fn an_answer_of_another_program_gets_the_names_of_this_machine() {
        let short = |len: usize, text: &[u8]| {
            let mut w = StreamWriter::new();
            let nodename = Fixed::new(text);
            w.info(&build!(Info { clk_tck: 250, nodename, ..StreamWriter::blank_info() }));
            w.begin_task(7, 7);
            w.end_task();
            let whole = w.finish(Done::default());
            let (bytes, end) = (whole.as_bytes(), size_of::<NlMsgHdr>() + size_of::<Info>());
            let head = size_of::<NlMsgHdr>() + len;
            let mut stream = AlignedBuf::copy_of(&[&bytes[..head], &bytes[end..]].concat());
            stream.as_mut_bytes()[..4].copy_from_slice(&(head as u32).to_ne_bytes());
            stream
        };
        let want = info(&Request::one(7, Groups::BASE));
        for (len, name) in [(88, "elsewhere"), (104, ""), (size_of::<Info>(), "elsewhere")] {
            let s = Stream::parse(with_host(short(len, name.as_bytes()))).unwrap();
            let got = s.info();
            assert_eq!((got.clk_tck, s.len(), s.get(0).unwrap().pid()), (250, 1, 7));
            assert_eq!((got.boot_id, got.nodename), (want.boot_id, want.nodename));
            assert_eq!((got.release, got.machine), (want.release, want.machine));
        }
        for junk in [&b""[..], &[1; 8], &[0; 16], &[0xff; 400]] {
            assert_eq!(with_host(AlignedBuf::copy_of(junk)).as_bytes(), junk);
        }
    }
}
