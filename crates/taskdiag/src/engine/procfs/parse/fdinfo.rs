//! Parses the links of /proc/PID/fd and the files of /proc/PID/fdinfo.

use taskdiag_wire::device::device;
use taskdiag_wire::{DELETED, FdDetail, FdDetailKind, FdType, build};

use super::small::complete_lines;
use super::{hex, number};

/// The values that every fdinfo file has, and the details that only some have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FdInfo {
    /// Position.
    pub pos: Option<u64>,
    /// `O_*`.
    pub flags: Option<u32>,
    /// Mount id.
    pub mnt_id: Option<u32>,
    /// Details, `fd` not set.
    pub details: Vec<FdDetail>,
}

/// Names of `BPF_LINK_TYPE_*` as fdinfo has them, in order of their numbers.
const LINK_TYPES: [&[u8]; 15] = [
    b"",
    b"raw_tracepoint",
    b"tracing",
    b"cgroup",
    b"iter",
    b"netns",
    b"xdp",
    b"perf",
    b"kprobe_multi",
    b"struct_ops",
    b"netfilter",
    b"tcx",
    b"uprobe_multi",
    b"netkit",
    b"sockmap",
];

/// The number of a kind of link. Newer kernels have two names for some kinds, and no name for
/// others.
fn link_type(text: &[u8]) -> Option<u64> {
    let name = match text {
        b"kretprobe_multi" => b"kprobe_multi",
        b"uretprobe_multi" => b"uprobe_multi",
        name => name,
    };
    if let Some(unnamed) = name.strip_prefix(b"<").and_then(|n| n.strip_suffix(b">")) {
        return number(unnamed);
    }
    LINK_TYPES.iter().position(|t| *t == name).map(|n| n as u64)
}

/// The value after a key, without blanks around it.
fn value<'a>(line: &'a [u8], key: &str) -> Option<&'a [u8]> {
    line.strip_prefix(key.as_bytes()).map(<[u8]>::trim_ascii)
}

fn octal(digits: &[u8]) -> Option<u64> {
    let digit = |n: u64, b: &u8| match b {
        b'0'..=b'7' => n.checked_mul(8)?.checked_add(u64::from(b - b'0')),
        _ => None,
    };
    if digits.is_empty() { None } else { digits.iter().try_fold(0, digit) }
}

/// A decimal number that may be negative, in 64 bits of two's complement.
fn signed(digits: &[u8]) -> Option<u64> {
    match digits.strip_prefix(b"-") {
        Some(d) => number(d).map(u64::wrapping_neg),
        None => number(digits),
    }
}

fn word(line: &[u8], key: &[u8]) -> Option<u64> {
    let at = memchr::memmem::find(line, key)?;
    hex(word_of(line, at + key.len()))
}

fn decimal(line: &[u8], key: &[u8]) -> Option<u64> {
    let at = memchr::memmem::find(line, key)?;
    number(word_of(line, at + key.len()))
}

/// The word that begins at or after a place.
fn word_of(line: &[u8], at: usize) -> &[u8] {
    let rest = line[at..].trim_ascii_start();
    &rest[..rest.iter().position(|b| *b == b' ').unwrap_or(rest.len())]
}

/// The kernel's internal device number (in `sdev:`), in the form of new_encode_dev().
fn kernel_device(dev: u64) -> u64 {
    u64::from(device((dev >> 20) as u32, (dev & 0xf_ffff) as u32))
}

/// `(seconds, nanoseconds)`, in ns.
fn time(text: &[u8]) -> Option<u64> {
    let inner = text.strip_prefix(b"(")?.strip_suffix(b")")?;
    let comma = inner.iter().position(|b| *b == b',')?;
    let (s, ns) = (number(inner[..comma].trim_ascii())?, number(inner[comma + 1..].trim_ascii())?);
    s.checked_mul(1_000_000_000)?.checked_add(ns)
}

/// Parses the fdinfo file of a descriptor. Its link has named the `kind`.
pub fn fdinfo(bytes: &[u8], kind: FdType) -> FdInfo {
    let mut info = FdInfo::default();
    let mut one = [None; 5];
    let mut add = |kind: FdDetailKind, value: [u64; 5]| {
        info.details.push(build!(FdDetail { fd: 0, kind: kind as u32, value }));
    };
    for line in complete_lines(bytes) {
        if let Some(v) = value(line, "pos:") {
            info.pos = signed(v);
        } else if let Some(v) = value(line, "flags:") {
            info.flags = octal(v).and_then(|n| u32::try_from(n).ok());
        } else if let Some(v) = value(line, "mnt_id:") {
            info.mnt_id = number(v).and_then(|n| u32::try_from(n).ok());
        } else {
            match kind {
                FdType::Epoll => {
                    if let Some(v) = target(line) {
                        add(FdDetailKind::Epoll, v);
                    }
                }
                FdType::Inotify => {
                    if let Some(v) = watch(line) {
                        add(FdDetailKind::Inotify, v);
                    }
                }
                _ => member(line, kind, &mut one),
            }
        }
    }
    // The first `needed` values must be there. The others are 0 if the kernel does not provide
    // them.
    let (kind, needed) = match kind {
        FdType::Eventfd => (FdDetailKind::Eventfd, 1),
        FdType::Timerfd => (FdDetailKind::Timerfd, 5),
        FdType::Signalfd => (FdDetailKind::Signalfd, 1),
        FdType::Pidfd => (FdDetailKind::Pidfd, 1),
        FdType::BpfMap => (FdDetailKind::BpfMap, 3),
        FdType::BpfProg => (FdDetailKind::BpfProg, 2),
        FdType::BpfLink => (FdDetailKind::BpfLink, 1),
        FdType::IoUring => (FdDetailKind::IoUring, 2),
        _ => return info,
    };
    if one[..needed].iter().all(Option::is_some) {
        add(kind, one.map(Option::unwrap_or_default));
    }
    info
}

/// `tfd:        5 events:       19 data:                5  pos:0 ino:3d sdev:9`
fn target(line: &[u8]) -> Option<[u64; 5]> {
    Some([
        decimal(line, b"tfd:")?,
        word(line, b"events:")?,
        word(line, b"data:")?,
        word(line, b"ino:")?,
        kernel_device(word(line, b"sdev:")?),
    ])
}

/// `inotify wd:1 ino:f7c sdev:fe00000 mask:3c ignored_mask:0 fhandle-bytes:8 ...`
fn watch(line: &[u8]) -> Option<[u64; 5]> {
    line.starts_with(b"inotify ").then_some(())?;
    let (ino, dev) = (word(line, b"ino:")?, kernel_device(word(line, b"sdev:")?));
    Some([word(line, b"wd:")?, ino, dev, word(line, b" mask:")?, 0])
}

/// A line with one of the values of a descriptor's only detail.
fn member(line: &[u8], kind: FdType, to: &mut [Option<u64>; 5]) {
    let mut set = |i: usize, v: Option<u64>| {
        to[i] = v;
    };
    let at = |key| value(line, key);
    match kind {
        FdType::Eventfd => {
            if let Some(v) = at("eventfd-count:") {
                set(0, hex(v));
            } else if let Some(v) = at("eventfd-id:") {
                set(1, number(v));
            }
        }
        FdType::Timerfd => {
            if let Some(v) = at("clockid:") {
                set(0, number(v));
            } else if let Some(v) = at("ticks:") {
                set(1, number(v));
            } else if let Some(v) = at("settime flags:") {
                set(2, octal(v));
            } else if let Some(v) = at("it_value:") {
                set(3, time(v));
            } else if let Some(v) = at("it_interval:") {
                set(4, time(v));
            }
        }
        FdType::Signalfd => {
            if let Some(v) = at("sigmask:") {
                set(0, hex(v));
            }
        }
        FdType::Pidfd => {
            if let Some(v) = at("Pid:") {
                set(0, signed(v));
            }
        }
        FdType::BpfMap => {
            if let Some(v) = at("map_id:") {
                set(0, number(v));
            } else if let Some(v) = at("map_type:") {
                set(1, number(v));
            } else if let Some(v) = at("max_entries:") {
                set(2, number(v));
            } else if let Some(v) = at("memlock:") {
                set(3, number(v));
            }
        }
        FdType::BpfProg => {
            if let Some(v) = at("prog_id:") {
                set(0, number(v));
            } else if let Some(v) = at("prog_type:") {
                set(1, number(v));
            } else if let Some(v) = at("memlock:") {
                set(2, number(v));
            }
        }
        FdType::BpfLink => {
            if let Some(v) = at("link_id:") {
                set(0, number(v));
            } else if let Some(v) = at("link_type:") {
                set(1, link_type(v));
            } else if let Some(v) = at("prog_id:") {
                set(2, number(v));
            }
        }
        FdType::IoUring => {
            let entries = |v: &[u8]| hex(v.strip_prefix(b"0x")?)?.checked_add(1);
            if let Some(v) = at("SqMask:") {
                set(0, entries(v));
            } else if let Some(v) = at("CqMask:") {
                set(1, entries(v));
            }
        }
        _ => {}
    }
}

/// The parsed link of /proc/PID/fd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FdLink<'a> {
    /// The type. `None`: it is a path, whose type follows from its mode.
    pub kind: Option<FdType>,
    /// The name, if it contains more than the type. It includes the mark of a deleted file.
    pub name: &'a [u8],
    /// The inode of a file that has no path.
    pub inode: Option<u64>,
}

/// The link of a descriptor.
pub fn fd_link(text: &[u8]) -> FdLink<'_> {
    let plain = |kind, inode| FdLink { kind: Some(kind), name: b"", inode };
    if text.starts_with(b"/") {
        let memfd = text.starts_with(b"/memfd:") && text.ends_with(DELETED);
        return FdLink { kind: memfd.then_some(FdType::Memfd), name: text, inode: None };
    }
    if let Some(inner) = text.strip_prefix(b"anon_inode:") {
        let kind = match inner {
            b"[eventfd]" => FdType::Eventfd,
            b"[eventpoll]" => FdType::Epoll,
            b"[timerfd]" => FdType::Timerfd,
            b"[signalfd]" => FdType::Signalfd,
            b"inotify" => FdType::Inotify,
            b"[fanotify]" => FdType::Fanotify,
            b"[pidfd]" => FdType::Pidfd,
            b"[io_uring]" => FdType::IoUring,
            b"bpf-map" => FdType::BpfMap,
            b"bpf-prog" => FdType::BpfProg,
            // The kernel uses the first form for a link that was created, and the second for one
            // that was opened by id or path.
            b"bpf_link" | b"bpf-link" => FdType::BpfLink,
            b"[userfaultfd]" => FdType::Userfaultfd,
            b"[perf_event]" => FdType::PerfEvent,
            _ => return FdLink { kind: Some(FdType::Other), name: text, inode: None },
        };
        return plain(kind, None);
    }
    let numbered = |prefix: &str| {
        let digits = text.strip_prefix(prefix.as_bytes())?.strip_prefix(b":[")?;
        number(digits.strip_suffix(b"]")?)
    };
    if let Some(inode) = numbered("socket") {
        return plain(FdType::Socket, Some(inode));
    }
    if let Some(inode) = numbered("pipe") {
        return plain(FdType::Pipe, Some(inode));
    }
    if let Some(inode) = numbered("pidfd") {
        return plain(FdType::Pidfd, Some(inode));
    }
    const NS: [&str; 8] = ["cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts"];
    if let Some(inode) = NS.iter().find_map(|n| numbered(n)) {
        return FdLink { kind: Some(FdType::Ns), name: text, inode: Some(inode) };
    }
    FdLink { kind: Some(FdType::Other), name: text, inode: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn details(kind: FdType, text: &str) -> Vec<(u32, [u64; 5])> {
        let text = format!("pos:\t7\nflags:\t02004002\nmnt_id:\t15\nino:\t9\n{text}");
        let i = fdinfo(text.as_bytes(), kind);
        assert_eq!((i.pos, i.flags, i.mnt_id), (Some(7), Some(0o2004002), Some(15)));
        // A cut file must not yield a value that the complete file does not have.
        for n in 0..text.len() {
            let cut = fdinfo(&text.as_bytes()[..n], kind);
            assert!(cut.pos.is_none_or(|p| p == 7) && cut.mnt_id.is_none_or(|m| m == 15));
            assert!(cut.details.len() <= i.details.len());
        }
        i.details.iter().map(|d| (d.kind, d.value)).collect()
    }

    #[test]
    fn fdinfo_of_each_kind_is_parsed() {
        let e = "eventfd-count:               1f\neventfd-id: 12\neventfd-semaphore: 0\n";
        assert_eq!(details(FdType::Eventfd, e), [(1, [0x1f, 12, 0, 0, 0])]);
        let e = "tfd:        5 events:       19 data:         ffffffff  pos:0 ino:3d sdev:fe00001\n\
                 tfd:        6 events:        1 data:                6  pos:0 ino:3e sdev:9\n";
        assert_eq!(
            details(FdType::Epoll, e),
            [(2, [5, 0x19, 0xffff_ffff, 0x3d, 0xfe01]), (2, [6, 1, 6, 0x3e, 9])]
        );
        let e =
            "clockid: 1\nticks: 3\nsettime flags: 01\nit_value: (9, 500)\nit_interval: (1, 0)\n";
        assert_eq!(details(FdType::Timerfd, e), [(3, [1, 3, 1, 9_000_000_500, 1_000_000_000])]);
        assert_eq!(
            details(FdType::Signalfd, "sigmask:\t0000000000000200\n"),
            [(4, [0x200, 0, 0, 0, 0])]
        );
        let e = "inotify wd:2 ino:f7c sdev:fe00000 mask:3c ignored_mask:0 fhandle-bytes:8 \
                 fhandle-type:1 f_handle:7c0f\n";
        assert_eq!(details(FdType::Inotify, e), [(5, [2, 0xf7c, 0xfe00, 0x3c, 0])]);
        assert_eq!(details(FdType::Pidfd, "Pid:\t-1\nNSpid:\t-1\n"), [(6, [u64::MAX, 0, 0, 0, 0])]);
        let e = "map_type:\t2\nkey_size:\t4\nvalue_size:\t8\nmax_entries:\t10\nmap_flags:\t0x0\n\
                 memlock:\t4096\nmap_id:\t77\nfrozen:\t0\n";
        assert_eq!(details(FdType::BpfMap, e), [(7, [77, 2, 10, 4096, 0])]);
        let e = "prog_type:\t1\nprog_jited:\t1\nprog_tag:\t0\nmemlock:\t4096\nprog_id:\t5\n";
        assert_eq!(details(FdType::BpfProg, e), [(8, [5, 1, 4096, 0, 0])]);
        let e = "link_type:\titer\nlink_id:\t3\nprog_tag:\tx\nprog_id:\t4\n";
        assert_eq!(details(FdType::BpfLink, e), [(9, [3, 4, 4, 0, 0])]);
        let e = "SqMask:\t0x7\nSqHead:\t0\nCqMask:\t0xf\n";
        assert_eq!(details(FdType::IoUring, e), [(10, [8, 16, 0, 0, 0])]);
        assert_eq!(details(FdType::Eventfd, "eventfd-id: 12\n"), []);
        assert_eq!(details(FdType::Reg, "eventfd-count: 1\n"), []);
        assert_eq!(details(FdType::Timerfd, "clockid: x\nit_value: (1, 2\n"), []);
    }

    #[test]
    fn links_of_descriptors_give_their_type() {
        for (text, kind, name, inode) in [
            ("socket:[12]", Some(FdType::Socket), "", Some(12)),
            ("pipe:[13]", Some(FdType::Pipe), "", Some(13)),
            ("anon_inode:[eventfd]", Some(FdType::Eventfd), "", None),
            ("anon_inode:inotify", Some(FdType::Inotify), "", None),
            ("anon_inode:bpf-link", Some(FdType::BpfLink), "", None),
            ("anon_inode:[new]", Some(FdType::Other), "anon_inode:[new]", None),
            ("pidfd:[5]", Some(FdType::Pidfd), "", Some(5)),
            ("net:[4026531840]", Some(FdType::Ns), "net:[4026531840]", Some(4026531840)),
            ("net:[x]", Some(FdType::Other), "net:[x]", None),
            ("/memfd:a (deleted)", Some(FdType::Memfd), "/memfd:a (deleted)", None),
            ("/memfd:a", None, "/memfd:a", None),
            ("/dev/null", None, "/dev/null", None),
            ("", Some(FdType::Other), "", None),
        ] {
            assert_eq!(fd_link(text.as_bytes()), FdLink { kind, name: name.as_bytes(), inode });
        }
        assert_eq!(FdType::of_mode(libc::S_IFIFO | 0o600), FdType::Fifo);
        assert_eq!(FdType::of_mode(0o600), FdType::Other);
    }

    #[test]
    fn position_and_flags_are_parsed() {
        let pos = |t: &str| fdinfo(t.as_bytes(), FdType::Reg).pos;
        assert_eq!(pos("pos:\t-1\n"), Some(u64::MAX));
        assert_eq!(pos("pos:\tx\n"), None);
    }
}
