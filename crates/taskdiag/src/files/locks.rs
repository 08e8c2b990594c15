//! The locks on files, which /proc/PID/fdinfo lists for each descriptor. An answer does not have
//! them, so a program that shows the columns `lock` and `fd_lock` reads them and stores the result
//! in [`Files::locks`](super::Files).
//!
//! /proc/locks alone does not identify the holder of a lock. A lock of an open file (`F_OFD_SETLK`)
//! has no process there. The kernel records the process that took a lock of flock(2), which may
//! have ended while another process still has the file open. And if a process has a file open
//! twice, only one of the two descriptors has the lock. But /proc/locks shows which files are
//! locked at all, and these are few.

use std::collections::{HashMap, HashSet};

use taskdiag_wire::{Entry, Fd, FdType};

use super::{Files, OpenFile, Owner, What};

/// The locks of descriptors on their files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Locks {
    /// Indexed by task id and descriptor. `None`: it is not known whether there is a lock.
    locks: HashMap<(u32, u32), Option<Lock>>,
}

/// How a file is locked, in the letters of lsof, the weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lock {
    /// A read lock on a part.
    Read,
    /// A read lock on the whole file.
    ReadAll,
    /// A write lock on a part.
    Write,
    /// A write lock on the whole file.
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

/// Whether a file is locked by the descriptor that it is open as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locked {
    /// The file is locked.
    By(Lock),
    /// The file is not locked. Only descriptors have locks.
    No,
    /// Not known: the reader has no right to read it, or the descriptor was closed since.
    Unknown,
}

impl Locks {
    /// Finds the locks of these owners. `locked` has the locked inodes, if they are known
    /// ([`locked_inodes`](Locks::locked_inodes)); descriptors of other files are skipped. `fdinfo`
    /// reads this file of /proc, which is `/proc/TASK/fdinfo/FD`.
    pub fn find<'a>(
        files: &'a Files<'a>,
        wanted: impl Fn(&Owner<'a>) -> bool,
        locked: Option<&HashSet<u64>>,
        mut fdinfo: impl FnMut(&str) -> Option<Vec<u8>>,
    ) -> Locks {
        let mut locks = HashMap::new();
        for owner in files.owners().iter().filter(|o| wanted(o)) {
            let task = owner.row.view.pid();
            let fds = owner.table.iter().filter_map(|t| t.owner.list::<Fd>()).flatten();
            for fd in fds.filter(|fd| may_be_locked(fd, locked)) {
                let path = owner.proc_dir().map(|dir| format!("{dir}/fdinfo/{}", fd.raw.fd));
                let text = path.and_then(|path| fdinfo(&path)).filter(|text| is_of(text, &fd));
                match text.map(|text| Locks::of_fdinfo(&text)) {
                    Some(Some(lock)) => locks.insert((task, fd.raw.fd), Some(lock)),
                    Some(None) => None,
                    None => locks.insert((task, fd.raw.fd), None),
                };
            }
        }
        Locks { locks }
    }
    /// The inodes in the text of /proc/locks. The device is ignored, because file systems may have
    /// several. So these are all inodes that may be locked.
    pub fn locked_inodes(text: &[u8]) -> HashSet<u64> {
        let inode = |line: &[u8]| {
            let place = std::str::from_utf8(line)
                .ok()?
                .split_ascii_whitespace()
                .find(|w| w.matches(':').count() == 2)?;
            place.rsplit(':').next()?.parse().ok()
        };
        text.split(|b| *b == b'\n').filter_map(inode).collect()
    }
    /// The strongest lock in the text of a file in fdinfo.
    pub fn of_fdinfo(text: &[u8]) -> Option<Lock> {
        let lines = text.split(|b| *b == b'\n').filter_map(|l| l.strip_prefix(b"lock:"));
        lines.filter_map(line).max()
    }
    /// Whether this file is locked.
    pub fn of(&self, file: &OpenFile<'_>) -> Locked {
        let What::Fd(fd) = file.what else { return Locked::No };
        match self.locks.get(&(file.owner.row.view.pid(), fd.raw.fd)) {
            Some(Some(lock)) => Locked::By(*lock),
            Some(None) => Locked::Unknown,
            None => Locked::No,
        }
    }
}

/// Whether there may be a lock on this file. Only files with a path can be locked.
fn may_be_locked(fd: &Entry<'_, Fd>, locked: Option<&HashSet<u64>>) -> bool {
    use FdType::{Blk, Chr, Dir, Fifo, Memfd, Reg};
    let kind = FdType::from_number(fd.raw.r#type);
    kind.is_none_or(|k| matches!(k, Blk | Chr | Dir | Fifo | Memfd | Reg))
        && locked.is_none_or(|all| fd.inode().is_none_or(|i| all.contains(&i)))
}

/// Is the text about the same file as in the answer? The descriptor may have been reused since
/// then, and so may the id of the task.
fn is_of(text: &[u8], fd: &Entry<'_, Fd>) -> bool {
    let value = |name: &[u8]| {
        let mut lines = text.split(|b| *b == b'\n');
        let value = lines.find_map(|l| l.strip_prefix(name)?.strip_prefix(b":"))?;
        Some(std::str::from_utf8(value).ok()?.trim())
    };
    let same = |known: Option<u32>, text: Option<&str>, radix| {
        let text = text.and_then(|t| u32::from_str_radix(t, radix).ok());
        known.is_none() || text.is_none() || known == text
    };
    same(fd.flags(), value(b"flags"), 8) && same(fd.mnt_id(), value(b"mnt_id"), 10)
}

/// `1: FLOCK ADVISORY WRITE 4711 fe:00:123 0 EOF`; `->` after the number marks a waiting request
/// for a lock.
fn line(line: &[u8]) -> Option<Lock> {
    let mut words = std::str::from_utf8(line).ok()?.split_ascii_whitespace().skip(1);
    let _kind = words.next().filter(|w| *w != "->")?;
    let _how = words.next()?;
    let mode = words.next()?;
    let (_pid, _place) = (words.next()?, words.next()?);
    let is_all = (words.next()?, words.next()?) == ("0", "EOF");
    match (mode, is_all) {
        ("READ", true) => Some(Lock::ReadAll),
        ("READ", false) => Some(Lock::Read),
        ("WRITE", true) => Some(Lock::WriteAll),
        ("WRITE", false) => Some(Lock::Write),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_are_read_from_lines_of_the_kernel() {
        let text = b"1: FLOCK  ADVISORY  WRITE 4711 fe:00:123 0 EOF\n\
            1: -> FLOCK  ADVISORY  WRITE 4712 fe:00:124 0 EOF\n\
            5: OFDLCK ADVISORY  WRITE -1 00:1f:11 0 EOF\n\
            9: FLOCK\n";
        assert_eq!(Locks::locked_inodes(text), HashSet::from([123, 124, 11]));
        for (text, lock) in [
            ("1: FLOCK  ADVISORY  WRITE 4711 fe:00:123 0 EOF", Some(Lock::WriteAll)),
            ("1: -> FLOCK  ADVISORY  WRITE 4712 fe:00:123 0 EOF", None),
            ("2: POSIX  ADVISORY  READ 4711 08:101:124 10 19", Some(Lock::Read)),
            ("3: POSIX  ADVISORY  WRITE 5 00:1f:9 0 9", Some(Lock::Write)),
            ("4: POSIX  ADVISORY  READ 5 00:1f:10 0 EOF", Some(Lock::ReadAll)),
            ("5: OFDLCK ADVISORY  WRITE -1 00:1f:11 0 EOF", Some(Lock::WriteAll)),
            ("6: LEASE  BREAKING  UNLCK 5 00:1f:12 0 EOF", None),
            ("6: LEASE  ACTIVE    READ 5 00:1f:12 0 EOF", Some(Lock::ReadAll)),
            ("9: FLOCK", None),
        ] {
            let text = format!("pos:\t0\nflags:\t0100002\nmnt_id:\t27\nino:\t123\nlock:\t{text}\n");
            assert_eq!(Locks::of_fdinfo(text.as_bytes()), lock, "{text}");
        }
        let two = b"lock:\t1: POSIX  ADVISORY  WRITE 5 00:1f:13 0 4\nlock:\t2: POSIX  ADVISORY  READ 5 00:1f:13 5 EOF\n";
        assert_eq!(Locks::of_fdinfo(two), Some(Lock::Write));
        assert_eq!(Locks::of_fdinfo(b"pos:\t0\n"), None);
    }
}
