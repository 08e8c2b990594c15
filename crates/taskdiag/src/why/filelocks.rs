//! Finds the holders of file locks that other tasks wait for, from `/proc/locks`.
//!
//! A line for a request that waits comes after the lock that it waits for, with `->` before its
//! kind. A request may also wait for another waiting request, and is then indented more. All
//! requests below a lock conflict with it, because each was tried against that lock first.

/// The kind of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Class {
    /// A lock of a process, by `fcntl(2)`.
    Posix,
    /// A lock of an open file, by `fcntl(2)`.
    OpenFile,
    /// A lock of an open file, by `flock(2)`.
    Flock,
}

/// A request that waits, and the lock that it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Blocked {
    /// The kind of lock that the waiting process asked for.
    pub(super) class: Class,
    /// The process that asked; `None` for locks of open files.
    pub(super) by: Option<u32>,
    /// The inode of the file.
    pub(super) inode: u64,
    /// The kind of the lock that is in the way.
    pub(super) held: Class,
    /// The process that took it. It may have ended, if it is not a lock of a process.
    pub(super) holder: Option<u32>,
}

struct Line {
    is_waiting: bool,
    class: Option<Class>,
    pid: Option<u32>,
    inode: u64,
}

/// `1: -> FLOCK  ADVISORY  WRITE 4712 fe:00:123 0 EOF`
fn line(line: &str) -> Option<Line> {
    let mut words = line.split_ascii_whitespace().skip(1).peekable();
    let is_waiting = words.next_if_eq(&"->").is_some();
    let class = match words.next()? {
        "POSIX" => Some(Class::Posix),
        "OFDLCK" => Some(Class::OpenFile),
        "FLOCK" => Some(Class::Flock),
        _ => None,
    };
    let mut words = words.skip(2);
    let pid = words.next()?.parse::<i64>().ok().and_then(|pid| u32::try_from(pid).ok());
    let inode = words.next()?.rsplit(':').next()?.parse().ok()?;
    Some(Line { is_waiting, class, pid: pid.filter(|p| *p != 0), inode })
}

/// The requests that wait. Leases are left out: they are broken, not waited for, by most calls.
pub(super) fn blocked(text: &str) -> Vec<Blocked> {
    let mut all = Vec::new();
    let mut held: Option<Line> = None;
    for line in text.lines().filter_map(line) {
        if !line.is_waiting {
            held = Some(line);
            continue;
        }
        let Some(lock) = &held else { continue };
        if let (Some(class), Some(of)) = (line.class, lock.class) {
            let (by, holder) = (line.pid, lock.pid);
            if line.inode == lock.inode {
                all.push(Blocked { class, by, inode: line.inode, held: of, holder });
            }
        }
    }
    all
}

/// The locks in the text of a file in fdinfo, with their inodes.
pub(super) fn held(text: &str) -> Vec<(Class, u64)> {
    let lines = text.lines().filter_map(|l| line(l.strip_prefix("lock:")?));
    lines.filter(|l| !l.is_waiting).filter_map(|l| Some((l.class?, l.inode))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_waits_for_the_lock_above_it() {
        let text = "\
1: FLOCK  ADVISORY  WRITE 4711 fe:00:123 0 EOF
1: -> FLOCK  ADVISORY  WRITE 4712 fe:00:123 0 EOF
1:  -> FLOCK  ADVISORY  READ 4713 fe:00:123 0 EOF
2: POSIX  ADVISORY  WRITE 5 00:1f:9 0 9
3: OFDLCK ADVISORY  WRITE -1 00:1f:11 0 EOF
3: -> POSIX  ADVISORY  WRITE 8 00:1f:11 0 EOF
4: LEASE  ACTIVE    READ 5 00:1f:12 0 EOF
4: -> OFDLCK ADVISORY  WRITE -1 00:1f:12 0 EOF
";
        let flock = |by| Blocked {
            class: Class::Flock,
            by: Some(by),
            inode: 123,
            held: Class::Flock,
            holder: Some(4711),
        };
        let other = Blocked {
            class: Class::Posix,
            by: Some(8),
            inode: 11,
            held: Class::OpenFile,
            holder: None,
        };
        assert_eq!(blocked(text), [flock(4712), flock(4713), other]);
        assert_eq!(blocked("1: -> FLOCK ADVISORY WRITE 4712 fe:00:123 0 EOF\nnonsense\n"), []);
    }
}
