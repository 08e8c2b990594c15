//! Parses the short files (io, schedstat, cgroup, mountinfo), and the texts of links and names.

use taskdiag_wire::{Autogroup, Io, Limits};

use super::{Fields, hex, number, set};
use crate::mountinfo::{self, Line, unescape};

/// A process or thread id from the name of a directory in /proc. `None` for every other name.
pub fn pid(name: &[u8]) -> Option<u32> {
    // The kernel writes no leading zeros, and no task has id 0.
    if name.first().is_none_or(|b| !(b'1'..=b'9').contains(b)) {
        return None;
    }
    number(name).and_then(|n| u32::try_from(n).ok())
}

/// A file descriptor from the name of a link in /proc/PID/fd.
pub fn fd(name: &[u8]) -> Option<u32> {
    number(name).and_then(|n| u32::try_from(n).ok())
}

/// The lines of /proc/PID/limits, in the order of RLIMIT_* (asm-generic).
const LIMITS: [&str; 16] = [
    "Max cpu time",
    "Max file size",
    "Max data size",
    "Max stack size",
    "Max core file size",
    "Max resident set",
    "Max processes",
    "Max open files",
    "Max locked memory",
    "Max address space",
    "Max file locks",
    "Max pending signals",
    "Max msgqueue size",
    "Max nice priority",
    "Max realtime priority",
    "Max realtime timeout",
];

/// Parses /proc/PID/limits. `None` if it is incomplete.
pub fn limits(bytes: &[u8]) -> Option<Limits> {
    let mut limits = Limits::new();
    let mut seen = 0u32;
    for line in complete_lines(bytes) {
        let Some(i) = LIMITS.iter().position(|name| line.starts_with(name.as_bytes())) else {
            continue;
        };
        let mut words = line[LIMITS[i].len()..].split(|b| *b == b' ').filter(|w| !w.is_empty());
        let mut value = || match words.next()? {
            b"unlimited" => Some(u64::MAX),
            digits => number(digits),
        };
        (limits.soft[i], limits.hard[i]) = (value()?, value()?);
        seen |= 1 << i;
    }
    limits.valid = Limits::ALL_VALID;
    (seen == 0xffff).then_some(limits)
}

/// Parses /proc/PID/io. `None` if all of it is unknown.
pub fn io(bytes: &[u8]) -> Option<Io> {
    let mut io = Io::new();
    let mut f = Fields::new(bytes);
    while let Some(key) = f.next() {
        let value = f.u64();
        match key {
            b"rchar:" => set!(io, Io.rchar, value),
            b"wchar:" => set!(io, Io.wchar, value),
            b"syscr:" => set!(io, Io.syscr, value),
            b"syscw:" => set!(io, Io.syscw, value),
            b"read_bytes:" => set!(io, Io.read_bytes, value),
            b"write_bytes:" => set!(io, Io.write_bytes, value),
            b"cancelled_write_bytes:" => set!(io, Io.cancelled_write_bytes, value),
            _ => {}
        }
    }
    (io.valid != 0).then_some(io)
}

/// Parses /proc/PID/schedstat: time on a CPU in ns, time waiting for one in ns, and the number of
/// times that it got one.
pub fn schedstat(bytes: &[u8]) -> Option<[u64; 3]> {
    let mut f = Fields::new(bytes);
    Some([f.u64()?, f.u64()?, f.u64()?])
}

/// A file with a single number, such as oom_score_adj and loginuid. The kernel ends some with a
/// newline.
pub fn lone_number<T: std::str::FromStr>(bytes: &[u8]) -> Option<T> {
    std::str::from_utf8(bytes.strip_suffix(b"\n").unwrap_or(bytes)).ok()?.parse().ok()
}

/// /proc/PID/autogroup: `/autogroup-123 nice 0`.
pub fn autogroup(bytes: &[u8]) -> Option<Autogroup> {
    let text = std::str::from_utf8(bytes.strip_suffix(b"\n")?).ok()?;
    let (id, nice) = text.strip_prefix("/autogroup-")?.split_once(" nice ")?;
    let mut record = Autogroup::new();
    (record.id, record.nice) = (id.parse().ok()?, nice.parse().ok()?);
    record.valid = Autogroup::ALL_VALID;
    Some(record)
}

/// /proc/PID/personality, a number of eight hexadecimal digits.
pub fn personality(bytes: &[u8]) -> Option<u32> {
    hex(bytes.strip_suffix(b"\n")?).and_then(|n| u32::try_from(n).ok())
}

/// /proc/PID/uid_map, whose lines have three numbers, as bytes of
/// [`A_UID_MAP`](taskdiag_wire::A_UID_MAP). `None` if it is something else.
pub fn id_map(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut map = Vec::new();
    for line in complete_lines(bytes) {
        let ids = line.split(|b| *b == b' ').filter(|w| !w.is_empty());
        let ids: Vec<u32> = ids.map(|id| number(id)?.try_into().ok()).collect::<Option<_>>()?;
        let range: [u32; 3] = ids.try_into().ok()?;
        range.iter().for_each(|id| map.extend_from_slice(&id.to_ne_bytes()));
    }
    (bytes.is_empty() || bytes.ends_with(b"\n")).then_some(map)
}

/// /proc/PID/attr/current, which ends with a newline (AppArmor), a NUL (SELinux), or neither.
pub fn label(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|b| !matches!(b, b'\n' | 0)).map_or(0, |i| i + 1);
    &bytes[..end]
}

/// The inode in the text of a link like `mnt:[4026531832]`.
pub fn ns_inode(link: &[u8]) -> Option<u32> {
    let open = link.iter().position(|b| *b == b'[')?;
    let digits = link[open + 1..].strip_suffix(b"]")?;
    number(digits).and_then(|n| u32::try_from(n).ok())
}

/// A line of /proc/PID/cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CgroupLine<'a> {
    /// Hierarchy id; 0: cgroup v2.
    pub hierarchy: u32,
    /// `controllers:path`.
    pub text: &'a [u8],
    /// The path alone.
    pub path: &'a [u8],
}

impl CgroupLine<'_> {
    /// Is it the root of a hierarchy of version 1?
    pub fn is_old_root(&self) -> bool {
        self.hierarchy != 0 && self.path == b"/"
    }
}

/// The complete and well-formed lines of /proc/PID/cgroup. The name of a cgroup contains no
/// newline.
pub fn cgroup_lines(bytes: &[u8]) -> impl Iterator<Item = CgroupLine<'_>> {
    complete_lines(bytes).filter_map(|line| {
        let colon = line.iter().position(|b| *b == b':')?;
        let hierarchy = number(&line[..colon]).and_then(|n| u32::try_from(n).ok())?;
        let text = &line[colon + 1..];
        let colon = text.iter().position(|b| *b == b':')?;
        Some(CgroupLine { hierarchy, text, path: &text[colon + 1..] })
    })
}

/// A mount of cgroup v2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupMount {
    /// Device number of the filesystem: major, minor.
    pub dev: (u32, u32),
    /// The cgroup at the mount point.
    pub root: Vec<u8>,
    /// The mount point.
    pub point: Vec<u8>,
}

/// The cgroup v2 mounts of a mountinfo file, in its order.
pub fn cgroup2_mounts(bytes: &[u8]) -> Vec<CgroupMount> {
    let v2 = |(mount, of_v1): (CgroupMount, Option<&[u8]>)| of_v1.is_none().then_some(mount);
    cgroup_mounts(bytes).filter_map(v2).collect()
}

/// The cgroup mounts of a mountinfo file, in its order. A mount of version 1 has the options of its
/// hierarchy, such as `rw,cpu,cpuacct`.
pub fn cgroup_mounts(bytes: &[u8]) -> impl Iterator<Item = (CgroupMount, Option<&[u8]>)> {
    mountinfo::lines(bytes).filter_map(cgroup_mount)
}

fn cgroup_mount<'a>(line: Line<'a>) -> Option<(CgroupMount, Option<&'a [u8]>)> {
    let of_v1 = match line.kind {
        b"cgroup2" => None,
        b"cgroup" => Some(line.options),
        _ => return None,
    };
    let colon = line.dev.iter().position(|b| *b == b':')?;
    let part = |digits| number(digits).and_then(|n| u32::try_from(n).ok());
    let dev = (part(&line.dev[..colon])?, part(&line.dev[colon + 1..])?);
    Some((CgroupMount { dev, root: unescape(line.root), point: unescape(line.point) }, of_v1))
}

/// Lines without their newline. Text after the last newline is a cut line and is left out.
pub(super) fn complete_lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let end = memchr::memchr(b'\n', rest)?;
        let line = &rest[..end];
        rest = &rest[end + 1..];
        Some(line)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lone_numbers_are_parsed() {
        assert_eq!(lone_number::<i32>(b"-1000\n"), Some(-1000));
        assert_eq!(lone_number::<u32>(b"4294967295"), Some(u32::MAX));
        for bad in [&b""[..], b"\n", b"x\n", b"1 2\n", b"4294967296", b"-1"] {
            assert_eq!(lone_number::<u32>(bad), None);
        }
    }

    #[test]
    fn autogroups_are_parsed() {
        let a = autogroup(b"/autogroup-39440 nice -5\n").expect("one");
        assert_eq!((a.known().id(), a.known().nice()), (Some(39440), Some(-5)));
        for bad in [&b""[..], b"\n", b"/autogroup-1 nice 0", b"/autogroup- nice 0\n", b"/x\n"] {
            assert_eq!(autogroup(bad), None);
        }
    }

    #[test]
    fn personalities_are_parsed() {
        assert_eq!(personality(b"00440000\n"), Some(0x44_0000));
        for bad in [&b""[..], b"00440000", b"x\n", b"100000000\n"] {
            assert_eq!(personality(bad), None);
        }
    }

    #[test]
    fn maps_of_ids_are_parsed() {
        let text = b"         0      50000        100\n       100 4294967295          1\n";
        let want: Vec<u8> = [0, 50000, 100, 100, u32::MAX, 1]
            .iter()
            .flat_map(|id: &u32| id.to_ne_bytes())
            .collect();
        assert_eq!(id_map(text), Some(want));
        assert_eq!(id_map(b""), Some(Vec::new()));
        for bad in ["0 1\n", "0 1 2", "0 1 2 3\n", "a 1 2\n", "0 1 4294967296\n", "\n"] {
            assert_eq!(id_map(bad.as_bytes()), None, "{bad:?}");
        }
    }

    #[test]
    fn labels_of_security_modules_are_parsed() {
        assert_eq!(label(b"unconfined\n"), b"unconfined");
        assert_eq!(label(b"system_u:system_r:init_t:s0\0"), b"system_u:system_r:init_t:s0");
        assert_eq!(label(b"/usr/sbin/cupsd (enforce)\n"), b"/usr/sbin/cupsd (enforce)");
        assert_eq!(label(b"_"), b"_");
        assert_eq!(label(b"\0"), b"");
    }

    #[test]
    fn only_names_of_digits_are_pids() {
        assert_eq!(pid(b"1"), Some(1));
        assert_eq!(pid(b"4294967295"), Some(u32::MAX));
        for bad in
            ["", "0", "01", "4294967296", "self", "1a", ".", "..", "-1", "99999999999999999999"]
        {
            assert_eq!(pid(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn only_names_of_digits_are_descriptors() {
        assert_eq!((fd(b"0"), fd(b"17")), (Some(0), Some(17)));
        assert_eq!((fd(b"."), fd(b".."), fd(b"4294967296")), (None, None, None));
    }

    #[test]
    fn the_io_file_is_parsed() {
        let text = b"rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 5\nwrite_bytes: 6\n\
            cancelled_write_bytes: 7\n";
        let i = io(text).unwrap();
        assert_eq!((i.rchar, i.wchar, i.syscr, i.syscw), (1, 2, 3, 4));
        assert_eq!((i.read_bytes, i.write_bytes, i.cancelled_write_bytes), (5, 6, 7));
        assert_eq!(i.valid, Io::ALL_VALID);
        assert_eq!(io(&text[..text.len() - 1]).unwrap().known().cancelled_write_bytes(), None);
        assert_eq!(io(b""), None);
        assert_eq!(io(b"rchar: x\n"), None);
        assert_eq!(io(b"rchar:"), None);
    }

    #[test]
    fn the_limits_file_is_parsed() {
        let mut text = String::from("Limit                     Soft Limit    Hard Limit   Units\n");
        for (i, name) in LIMITS.iter().enumerate() {
            let hard = if i == 3 { "unlimited".to_string() } else { (i * 10).to_string() };
            text += &format!("{name:<26}{i:<21}{hard:<21}units\n");
        }
        let l = limits(text.as_bytes()).unwrap();
        assert_eq!(l.known().soft().unwrap(), std::array::from_fn(|i| i as u64));
        assert_eq!(
            l.known().hard().unwrap(),
            std::array::from_fn(|i| if i == 3 { u64::MAX } else { i as u64 * 10 })
        );
        assert!(limits(&text.as_bytes()[..text.len() - 1]).is_none());
        assert!(limits(text.replace("12", "x").as_bytes()).is_none());
        assert!(limits(b"Max cpu time\n").is_none());
    }

    #[test]
    fn the_schedstat_file_is_parsed() {
        assert_eq!(schedstat(b"100 20 3\n"), Some([100, 20, 3]));
        for bad in ["", "1 2\n", "1 2 3", "a b c\n"] {
            assert_eq!(schedstat(bad.as_bytes()), None, "{bad:?}");
        }
    }

    #[test]
    fn links_of_namespaces_are_parsed() {
        assert_eq!(ns_inode(b"mnt:[4026531832]"), Some(4026531832));
        for bad in ["", "mnt:", "mnt:[", "mnt:[]", "mnt:[1", "mnt:[4294967296]"] {
            assert_eq!(ns_inode(bad.as_bytes()), None, "{bad:?}");
        }
    }

    #[test]
    fn cgroup_lines_are_parsed() {
        let text = b"9:name=systemd:/a\n2:cpu,cpuacct:/x:y\nbad\nx:y:z\n0::/b c\n0::/cut";
        let got: Vec<_> = cgroup_lines(text).map(|l| (l.hierarchy, l.text, l.path)).collect();
        let want: [(u32, &[u8], &[u8]); 3] = [
            (9, b"name=systemd:/a", b"/a"),
            (2, b"cpu,cpuacct:/x:y", b"/x:y"),
            (0, b":/b c", b"/b c"),
        ];
        assert_eq!(got, want);
    }

    #[test]
    fn mount_lines_are_parsed() {
        let text = b"31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
            41 31 0:38 /a\\040b /cg\\134\\0402 rw shared:5 master:1 - cgroup2 cgroup2 rw\n\
            bad\n42 31 x / /y rw - cgroup2 cgroup2 rw\n43 1 0:1 / / rw - cgroup2";
        let want = CgroupMount { dev: (0, 38), root: b"/a b".into(), point: b"/cg\\ 2".into() };
        assert_eq!(cgroup2_mounts(text), [want]);
        let text = b"30 1 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
            31 1 0:28 / /c rw shared:5 - cgroup systemd\n";
        let all: Vec<_> = cgroup_mounts(text).map(|(m, of_v1)| (m.dev, of_v1)).collect();
        assert_eq!(all, [((0, 27), Some(&b"rw,cpu,cpuacct"[..]))]);
    }
}
