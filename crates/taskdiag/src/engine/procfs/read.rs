//! Reading files below a directory of /proc with as few system calls as there can be: one to
//! open, one to read, one to close. Knows nothing of what is in them.

use std::ffi::{CStr, CString};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RawDir, Stat};
use rustix::io::Errno;

use super::parse;
use super::task::Place;

/// Every status and stat file fits; longer files make it grow.
const FIRST_SIZE: usize = 32 * 1024;
/// One getdents64() returns some ten thousand entries.
const DIR_SIZE: usize = 256 * 1024;

/// A buffer grows by no more than this at a time.
const GROWTH: usize = 4 << 20;
/// A part of a text that is read in parts: stays in the cache, and is worth taking.
const PART_SIZE: usize = 128 << 10;
/// A mapping of smaps with a usual name. The kernel makes records for a read until a page is full or the read
/// has what it asked for; the record that a page has no room for is thrown away and made again. So a read
/// asks for a page without a record, which takes a tenth less time.
const RECORD_SIZE: usize = 780;
/// The buffer does not stay larger than this.
const KEEP_SIZE: usize = 8 << 20;

/// A text that was read, and the buffer it is in.
#[derive(Debug)]
pub(super) struct Text {
    buf: Vec<u8>,
    len: usize,
}

impl Text {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.buf[..self.len]
    }
}

/// Opens and reads into one buffer, and counts the system calls.
#[derive(Debug)]
pub(super) struct Reader {
    buf: Vec<u8>,
    dir: Vec<u8>,
    /// System calls made so far.
    pub(super) syscalls: u64,
}

impl Reader {
    pub(super) fn new() -> Reader {
        Reader { buf: vec![0; FIRST_SIZE], dir: Vec::new(), syscalls: 0 }
    }

    /// Open a directory for listing and as the base of paths.
    pub(super) fn open_dir(&mut self, at: BorrowedFd<'_>, path: &CStr) -> Result<OwnedFd, Errno> {
        self.open(at, path, OFlags::RDONLY | OFlags::DIRECTORY)
    }

    /// Open a file only to ask about it.
    pub(super) fn open_path(&mut self, at: BorrowedFd<'_>, path: &CStr) -> Result<OwnedFd, Errno> {
        self.open(at, path, OFlags::PATH)
    }

    /// Open a file for more than reading it here.
    pub(super) fn open_read(&mut self, at: BorrowedFd<'_>, path: &CStr) -> Result<OwnedFd, Errno> {
        self.syscalls += 1; // close
        self.open(at, path, OFlags::RDONLY)
    }

    /// The network namespace of this thread; 0: not known.
    pub(super) fn own_netns(&mut self) -> u32 {
        self.link(CWD, c"/proc/thread-self/ns/net").ok().and_then(parse::ns_inode).unwrap_or(0)
    }

    fn open(&mut self, at: BorrowedFd<'_>, path: &CStr, how: OFlags) -> Result<OwnedFd, Errno> {
        self.syscalls += 1;
        // NONBLOCK and NOCTTY for roots that are not a real /proc: a FIFO there must not hang us.
        let flags = how | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        rustix::fs::openat(at, path, flags, Mode::empty())
    }

    /// All of a file of /proc that the kernel makes in one piece: one read, and more only where
    /// that filled the buffer.
    pub(super) fn file(&mut self, at: BorrowedFd<'_>, path: &CStr) -> Result<&[u8], Errno> {
        let fd = self.open(at, path, OFlags::RDONLY)?;
        let n = self.fill(&fd, true);
        self.syscalls += 1; // close
        Ok(&self.buf[..n?])
    }

    /// All of a file that comes in several short reads.
    pub(super) fn long_file(&mut self, at: BorrowedFd<'_>, path: &CStr) -> Result<&[u8], Errno> {
        let fd = self.open(at, path, OFlags::RDONLY)?;
        let n = self.fill(&fd, false);
        self.syscalls += 1; // close
        Ok(&self.buf[..n?])
    }

    /// All of a file that the kernel makes from the task's memory, piece by piece. The task may
    /// end, or become another program, before the last one: then the file just ends, and this
    /// says so by `SRCH`. `TIMEDOUT`: `go_on` said no.
    ///
    /// The text is taken out of this reader: [`give_back`](Self::give_back) it.
    pub(super) fn live_file(
        &mut self,
        at: BorrowedFd<'_>,
        path: &CStr,
        go_on: impl Fn() -> bool,
    ) -> Result<Text, Errno> {
        match self.try_live_file(at, path, &go_on) {
            // Perhaps it has become another program: then that one's memory can be read.
            Err(Errno::SRCH) => self.try_live_file(at, path, &go_on),
            got => got,
        }
    }

    fn try_live_file(
        &mut self,
        at: BorrowedFd<'_>,
        path: &CStr,
        go_on: &impl Fn() -> bool,
    ) -> Result<Text, Errno> {
        let fd = self.open(at, path, OFlags::RDONLY)?;
        self.syscalls += 1; // close
        let (mut n, mut reads) = (0, 0);
        loop {
            let got = self.read_at(&fd, n)?;
            n += got;
            if got == 0 {
                break;
            }
            reads += 1;
            if !go_on() {
                return Err(Errno::TIMEDOUT);
            }
            if n == self.buf.len() {
                // Twice as much as tens of megabytes would be touched for nothing.
                self.buf.resize(n + n.min(GROWTH), 0);
            }
        }
        // The end of the text, or of the memory.
        if reads > 0 {
            self.still_there(&fd)?;
        }
        Ok(Text { buf: std::mem::take(&mut self.buf), len: n })
    }

    /// As [`live_file`](Self::live_file), in parts that stay in the CPU's cache: what there is, whether it is the
    /// last, and back how much of it was whole and is done with. After `SRCH`, try again.
    pub(super) fn live_parts(
        &mut self,
        at: BorrowedFd<'_>,
        path: &CStr,
        go_on: impl Fn() -> bool,
        mut take: impl FnMut(&[u8], bool) -> usize,
    ) -> Result<(), Errno> {
        let fd = self.open(at, path, OFlags::RDONLY)?;
        self.syscalls += 1; // close
        let piece = rustix::param::page_size() - RECORD_SIZE;
        let (mut n, mut reads) = (0, 0);
        loop {
            if n == self.buf.len() {
                let done = if n < PART_SIZE { 0 } else { take(&self.buf[..n], false) };
                self.buf.copy_within(done..n, 0);
                n -= done;
                if done == 0 {
                    self.buf.resize((n * 2).max(PART_SIZE), 0);
                }
            }
            let got = self.read_some(&fd, n..self.buf.len().min(n + piece))?;
            n += got;
            if got == 0 {
                break;
            }
            reads += 1;
            if !go_on() {
                return Err(Errno::TIMEDOUT);
            }
        }
        take(&self.buf[..n], true);
        // The end of the text, or of the memory.
        if reads > 0 {
            self.still_there(&fd)?;
        }
        self.buf.truncate(KEEP_SIZE);
        self.buf.shrink_to(KEEP_SIZE);
        Ok(())
    }

    /// `SRCH` where the memory that a file was made from has gone: its first byte can be read as long as that
    /// is there.
    fn still_there(&mut self, fd: &OwnedFd) -> Result<(), Errno> {
        self.syscalls += 1;
        match rustix::io::pread(fd, &mut [0u8; 1][..], 0)? {
            0 => Err(Errno::SRCH),
            _ => Ok(()),
        }
    }

    /// Have the buffer of a text back.
    pub(super) fn give_back(&mut self, text: Text) {
        self.buf = text.buf;
        // A huge one is not kept: there is one for each thread.
        self.buf.truncate(KEEP_SIZE);
        self.buf.shrink_to(KEEP_SIZE);
    }

    /// What comes next in a file, to this place of the buffer and on; how many bytes.
    fn read_at(&mut self, fd: &OwnedFd, n: usize) -> Result<usize, Errno> {
        self.read_some(fd, n..self.buf.len())
    }

    fn read_some(&mut self, fd: &OwnedFd, place: Range<usize>) -> Result<usize, Errno> {
        loop {
            self.syscalls += 1;
            match rustix::io::read(fd, &mut self.buf[place.clone()]) {
                Err(Errno::INTR) => {}
                got => return got,
            }
        }
    }

    fn fill(&mut self, fd: &OwnedFd, short_is_end: bool) -> Result<usize, Errno> {
        let mut n = 0;
        loop {
            let got = self.read_at(fd, n)?;
            n += got;
            if got == 0 || (short_is_end && n < self.buf.len()) {
                return Ok(n);
            }
            if n == self.buf.len() {
                self.buf.resize(n * 2, 0);
            }
        }
    }

    /// The text of a link.
    pub(super) fn link(&mut self, at: BorrowedFd<'_>, path: &CStr) -> Result<&[u8], Errno> {
        self.syscalls += 1;
        let n = rustix::fs::readlinkat_raw(at, path, &mut self.buf[..])?;
        Ok(&self.buf[..n])
    }

    /// stat() of what the path leads to.
    pub(super) fn stat(&mut self, at: BorrowedFd<'_>, path: &CStr) -> Result<Stat, Errno> {
        self.syscalls += 1;
        rustix::fs::statat(at, path, AtFlags::empty())
    }

    /// stat() of an absolute path, as this process sees it.
    pub(super) fn stat_path(&mut self, path: &[u8]) -> Result<Stat, Errno> {
        self.syscalls += 1;
        rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// stat() of an absolute path, as seen by a task with this root.
    pub(super) fn stat_below(
        &mut self,
        at: BorrowedFd<'_>,
        root: &CStr,
        path: &[u8],
    ) -> Result<Stat, Errno> {
        let root = self.open(at, root, OFlags::PATH | OFlags::DIRECTORY)?;
        self.syscalls += 2; // stat, close
        let path = path.strip_prefix(b"/").unwrap_or(path);
        rustix::fs::statat(root, path, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// What the last call of [`link`](Self::link) or [`file`](Self::file) gave.
    pub(super) fn text(&self, len: usize) -> &[u8] {
        &self.buf[..len]
    }

    /// Is this directory the /proc of our own pid namespace? Counts only where threads may share.
    pub(super) fn is_own(&mut self, root: BorrowedFd<'_>) -> bool {
        let me = std::process::id().to_string();
        self.link(root, c"self").is_ok_and(|text| text == me.as_bytes())
    }

    /// Is the task still there?
    pub(super) fn exists(&mut self, mut at: Place<'_>) -> bool {
        self.stat(at.dir, at.path.file("")).is_ok()
    }

    /// How many numbers are in a directory.
    pub(super) fn count(&mut self, at: BorrowedFd<'_>, path: &CStr) -> Result<u64, Errno> {
        let dir = self.open_dir(at, path)?;
        self.syscalls += 1; // close
        let mut fds = Vec::new();
        self.numbers(dir.as_fd(), &mut fds)?;
        Ok(fds.len() as u64)
    }

    /// The links of a directory that are numbers (fds), ascending, and what they lead to.
    pub(super) fn links(
        &mut self,
        at: BorrowedFd<'_>,
        path: &CStr,
    ) -> Result<Vec<(u32, Vec<u8>)>, Errno> {
        let dir = self.open_dir(at, path)?;
        self.syscalls += 1; // close
        let mut fds = Vec::new();
        self.numbers(dir.as_fd(), &mut fds)?;
        let mut links = Vec::with_capacity(fds.len());
        for fd in fds {
            let name = CString::new(fd.to_string()).expect("digits");
            links.push((fd, self.link(dir.as_fd(), &name)?.to_vec()));
        }
        Ok(links)
    }

    /// The entries of a directory that are numbers (fds), ascending.
    pub(super) fn numbers(&mut self, dir: BorrowedFd<'_>, out: &mut Vec<u32>) -> Result<(), Errno> {
        self.list(dir, out, parse::fd)
    }

    /// The entries of a directory that are pids, ascending.
    pub(super) fn pids(&mut self, dir: BorrowedFd<'_>, out: &mut Vec<u32>) -> Result<(), Errno> {
        self.list(dir, out, parse::pid)
    }

    fn list(
        &mut self,
        dir: BorrowedFd<'_>,
        out: &mut Vec<u32>,
        number: impl Fn(&[u8]) -> Option<u32>,
    ) -> Result<(), Errno> {
        out.clear();
        self.dir.reserve(DIR_SIZE);
        let mut entries = RawDir::new(dir, self.dir.spare_capacity_mut());
        loop {
            self.syscalls += u64::from(entries.is_buffer_empty());
            match entries.next() {
                None => break,
                Some(Ok(e)) => out.extend(number(e.file_name().to_bytes())),
                // The process whose threads these are has ended.
                Some(Err(Errno::NOENT | Errno::SRCH)) => break,
                Some(Err(Errno::INTR)) => {}
                Some(Err(e)) => return Err(e),
            }
        }
        // The kernel lists processes in order, and threads as they came. A walk that goes on
        // after a thread has died may see another one twice.
        if !out.is_sorted_by(|a, b| a < b) {
            out.sort_unstable();
            out.dedup();
        }
        Ok(())
    }
}

/// A relative path on the stack: ids, then the name of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    bytes: [u8; Path::MAX],
    /// Length of the part that all files of a task share; ends with `/`.
    prefix: usize,
}

impl Path {
    /// `4294967295/task/4294967295/ns/time_for_children` and its NUL fit.
    const MAX: usize = 64;

    /// No ids yet.
    pub(super) fn new() -> Path {
        Path { bytes: [0; Path::MAX], prefix: 0 }
    }
    /// `ID/`
    pub(super) fn id(id: u32) -> Path {
        Path::new().join_id(id)
    }
    /// With `ID/` appended.
    pub(super) fn join_id(mut self, id: u32) -> Path {
        let mut digits = [0; 10];
        let mut at = digits.len();
        let mut rest = id;
        loop {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        self.push(&digits[at..]);
        self.push(b"/");
        self
    }
    /// With `task/` appended.
    pub(super) fn join_task(mut self) -> Path {
        self.push(b"task/");
        self
    }
    /// The path of a file in the directory of the process. Is this the path of a thread?
    pub(super) fn of_process(&self, thread: bool, name: &str) -> CString {
        let ids = &self.bytes[..self.prefix];
        let up: &[u8] = if thread { b"../../" } else { b"" };
        CString::new([ids, up, name.as_bytes()].concat()).expect("ids and names hold no NUL")
    }
    fn push(&mut self, part: &[u8]) {
        self.bytes[self.prefix..][..part.len()].copy_from_slice(part);
        self.prefix += part.len();
    }
    /// The path of a file in the directory that the ids name.
    pub(super) fn file(&mut self, name: &'static str) -> &CStr {
        let end = self.prefix + name.len();
        self.bytes[self.prefix..end].copy_from_slice(name.as_bytes());
        self.bytes[end] = 0;
        CStr::from_bytes_with_nul(&self.bytes[..=end]).expect("ids and names hold no NUL")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn paths() {
        let mut p = Path::id(u32::MAX).join_task().join_id(u32::MAX);
        let want = c"4294967295/task/4294967295/ns/time_for_children";
        assert_eq!(p.file("ns/time_for_children"), want);
        assert_eq!(p.file("io"), c"4294967295/task/4294967295/io");
        assert_eq!(Path::id(7).file("stat"), c"7/stat");
        assert_eq!(Path::new().file("."), c".");
        assert_eq!(Path::id(7).of_process(false, "a").as_c_str(), c"7/a");
        assert_eq!(Path::id(7).of_process(true, "a").as_c_str(), c"7/../../a");
    }

    #[test]
    fn whole_files_of_every_length() {
        let dir = tempfile::tempdir().unwrap();
        let mut r = Reader::new();
        for len in [0, 1, FIRST_SIZE - 1, FIRST_SIZE, FIRST_SIZE + 1, FIRST_SIZE * 9] {
            let data: Vec<u8> = (0..len).map(|i| i as u8).collect();
            std::fs::write(dir.path().join("stat"), &data).unwrap();
            let root = std::fs::File::open(dir.path()).unwrap();
            assert!(r.file(root.as_fd(), c"stat").unwrap() == data, "{len} bytes");
            assert!(r.long_file(root.as_fd(), c"stat").unwrap() == data, "{len} bytes");
        }
    }

    #[test]
    fn a_file_of_proc_is_three_calls() {
        let proc = rustix::fs::open("/proc/self", OFlags::RDONLY, Mode::empty()).unwrap();
        let mut r = Reader::new();
        assert!(r.file(proc.as_fd(), c"stat").unwrap().ends_with(b"\n"));
        assert_eq!(r.syscalls, 3);
        assert_eq!(r.file(CWD, c"/nonexistent"), Err(Errno::NOENT));
        assert_eq!(r.syscalls, 4);
    }

    #[test]
    fn pids_only_and_in_order() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["10", "9", "100", "self", "0", "01", "1x"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        let fd = std::fs::File::open(dir.path()).unwrap();
        let mut out = vec![5];
        Reader::new().pids(fd.as_fd(), &mut out).unwrap();
        assert_eq!(out, [9, 10, 100]);
    }
}
