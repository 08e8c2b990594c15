//! The locks on files that /proc/locks lists. An answer does not have them, so whoever wants the columns `lock`
//! and `fd_lock` reads that file and puts the result in [`Files::locks`](super::Files).

use std::collections::BTreeMap;

use super::OpenFile;

/// Which process has locked which file, and how. There are few locks, and each file of the machine is looked up here, so it
/// is a map that needs no hash of its key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Locks(BTreeMap<(u32, u32, u64), Lock>);

/// How a file is locked, in the letters of lsof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// To read a part of it.
    Read,
    /// To read all of it.
    ReadAll,
    /// To write a part of it.
    Write,
    /// To write all of it.
    WriteAll,
}

impl Lock {
    /// `r`, `R`, `w` or `W`.
    pub fn letter(self) -> &'static str {
        match self {
            Lock::Read => "r",
            Lock::ReadAll => "R",
            Lock::Write => "w",
            Lock::WriteAll => "W",
        }
    }
}

impl Locks {
    /// From the text of /proc/locks. Where a process has several locks on a file, the last line counts, as in
    /// lsof. Locks that no process owns (`F_OFD_SETLK`) are left out, and so are those that are waited for.
    pub fn parse(text: &[u8]) -> Locks {
        Locks(text.split(|b| *b == b'\n').filter_map(line).collect())
    }
    /// The lock of the process that has this file in use, on this file.
    pub fn of(&self, file: &OpenFile<'_>) -> Option<Lock> {
        let (dev, inode) = file.dev().zip(file.inode())?;
        self.0.get(&(file.owner.row.view.tgid(), dev, inode)).copied()
    }
}

/// `1: FLOCK  ADVISORY  WRITE 4711 fe:00:123 0 EOF`; behind the number is `->` where the lock is waited for.
fn line(line: &[u8]) -> Option<((u32, u32, u64), Lock)> {
    let mut words = std::str::from_utf8(line).ok()?.split_ascii_whitespace().skip(1);
    let _kind = words.next().filter(|w| *w != "->")?;
    let _how = words.next()?;
    let mode = words.next()?;
    let pid = words.next()?.parse().ok()?;
    let mut place = words.next()?.split(':');
    let mut hex = || u32::from_str_radix(place.next()?, 16).ok();
    let (major, minor) = (hex()?, hex()?);
    let inode = place.next()?.parse().ok()?;
    let is_all = (words.next()?, words.next()?) == ("0", "EOF");
    let lock = match (mode, is_all) {
        ("READ", true) => Lock::ReadAll,
        ("READ", false) => Lock::Read,
        ("WRITE", true) => Lock::WriteAll,
        ("WRITE", false) => Lock::Write,
        _ => return None,
    };
    // As the kernel's new_encode_dev().
    let dev = minor & 0xff | major << 8 | (minor & !0xff) << 12;
    Some(((pid, dev, inode), lock))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernel() {
        let text = b"1: FLOCK  ADVISORY  WRITE 4711 fe:00:123 0 EOF\n\
            1: -> FLOCK  ADVISORY  WRITE 4712 fe:00:123 0 EOF\n\
            2: POSIX  ADVISORY  READ 4711 08:101:124 10 19\n\
            3: POSIX  ADVISORY  WRITE 5 00:1f:9 0 9\n\
            4: POSIX  ADVISORY  READ 5 00:1f:10 0 EOF\n\
            5: OFDLCK ADVISORY  WRITE -1 00:1f:11 0 EOF\n\
            6: LEASE  BREAKING  UNLCK 5 00:1f:12 0 EOF\n\
            7: POSIX  ADVISORY  READ 5 00:1f:13 5 EOF\n\
            8: POSIX  ADVISORY  WRITE 5 00:1f:13 0 4\n\
            9: FLOCK\n";
        let wanted = [
            ((4711, 0xfe00, 123), Lock::WriteAll),
            ((4711, 0x10_0801, 124), Lock::Read),
            ((5, 0x1f, 9), Lock::Write),
            ((5, 0x1f, 10), Lock::ReadAll),
            ((5, 0x1f, 13), Lock::Write),
        ];
        assert_eq!(Locks::parse(text), Locks(wanted.into()));
    }
}
