//! Reads files below a directory of /proc with the fewest system calls: one to open, one to read,
//! one to close. It does not look at the content.

use std::ffi::{CStr, CString};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RawDir, ResolveFlags, Stat, Statx, StatxFlags};
use rustix::io::Errno;

use super::parse;
use super::path::TaskDir;

/// The first size of the buffer. Every status and stat file fits, and a longer file makes it grow.
const FIRST_SIZE: usize = 32 * 1024;
/// The size of the buffer for getdents64(), which returns about ten thousand entries in one call.
const DIR_SIZE: usize = 256 * 1024;

/// The buffer grows by at most this much at a time.
const GROWTH: usize = 4 << 20;
/// The size of one part if a text is read in parts. A part stays in the cache and is long enough to
/// be worth a system call.
const PART_SIZE: usize = 128 << 10;
/// A buffer that has grown beyond this is shrunk again.
const KEEP_SIZE: usize = 8 << 20;

/// The part of a text that is always read. If a process wrote a title over its arguments, the title
/// ends within it, so it can be recognized.
const TITLE_MAX: usize = 4096;
/// The largest length of a text that is reported, as in the BPF programs.
pub(super) const TOTAL_MAX: usize = 0x7fff_ffff;

/// A text that was read, together with its buffer.
#[derive(Debug)]
pub(super) struct FileText {
    buf: Vec<u8>,
    len: usize,
}

/// A text of a task that was read.
#[derive(Debug)]
pub(super) struct Text {
    /// How many bytes of it to keep: the first ones of [`Reader::text`].
    pub(super) len: usize,
    /// The length of all of it, if it was read to its end.
    pub(super) total: Option<usize>,
    /// The open file, if there is more.
    pub(super) more: Option<OwnedFd>,
}

impl FileText {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.buf[..self.len]
    }
}

/// A file: its device and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileId {
    pub(super) dev: u64,
    pub(super) ino: u64,
}

impl FileId {
    pub(super) fn of(s: &Statx) -> FileId {
        FileId { dev: rustix::fs::makedev(s.stx_dev_major, s.stx_dev_minor), ino: s.stx_ino }
    }
}

/// Opens and reads files into one buffer, and counts the system calls.
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

    /// Opens a directory, for listing it and as the base of paths.
    pub(super) fn open_dir(&mut self, at: BorrowedFd<'_>, path: &CStr) -> Result<OwnedFd, Errno> {
        self.open(at, path, OFlags::RDONLY | OFlags::DIRECTORY)
    }

    /// Opens a file only to ask about it.
    pub(super) fn open_path(&mut self, at: BorrowedFd<'_>, path: &CStr) -> Result<OwnedFd, Errno> {
        self.open(at, path, OFlags::PATH)
    }

    /// Opens a file for a caller that does more than read it.
    pub(super) fn open_read(&mut self, at: BorrowedFd<'_>, path: &CStr) -> Result<OwnedFd, Errno> {
        self.syscalls += 1; // close
        self.open(at, path, OFlags::RDONLY)
    }

    /// The network namespace of this thread, or 0 if it is not known.
    pub(super) fn own_netns(&mut self) -> u32 {
        self.link(CWD, c"/proc/thread-self/ns/net").ok().and_then(parse::ns_inode).unwrap_or(0)
    }

    fn open(&mut self, at: BorrowedFd<'_>, path: &CStr, how: OFlags) -> Result<OwnedFd, Errno> {
        self.syscalls += 1;
        // NONBLOCK and NOCTTY are for roots that are not a real /proc, where a FIFO would make us
        // wait.
        let flags = how | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        rustix::fs::openat(at, path, flags, Mode::empty())
    }

    /// Reads all of a file that the kernel makes in one piece. It takes one read, and more only if
    /// that read filled the buffer.
    pub(super) fn file(&mut self, at: BorrowedFd<'_>, path: &CStr) -> Result<&[u8], Errno> {
        let fd = self.open(at, path, OFlags::RDONLY)?;
        let n = self.fill(&fd, true);
        self.syscalls += 1; // close
        Ok(&self.buf[..n?])
    }

    /// Reads the arguments or the environment of a task.
    ///
    /// `take` gets the length of the text, at most one byte over the limit, and a function that
    /// returns the real user id of the task. It returns the number of bytes to keep.
    pub(super) fn task_text(
        &mut self,
        mut at: TaskDir<'_>,
        file: &'static str,
        most: usize,
        take: impl FnOnce(usize, &mut dyn FnMut() -> u32) -> usize,
    ) -> Result<Text, Errno> {
        let fd = self.open(at.dir, at.path.file(file), OFlags::RDONLY)?;
        self.syscalls += 1; // close
        let end = most.max(TITLE_MAX) + 1;
        let mut n = 0;
        loop {
            let got = self.read_some(&fd, n..self.buf.len().min(end))?;
            n += got;
            if got == 0 || n < self.buf.len().min(end) {
                break;
            }
            if n == end {
                let len = take(n, &mut || self.real_uid(at)).min(n);
                return Ok(Text { len, total: None, more: Some(fd) });
            }
            self.buf.resize((n * 2).min(end), 0);
        }
        let len = take(n, &mut || self.real_uid(at)).min(n);
        Ok(Text { len, total: Some(n), more: None })
    }

    /// The length of a text that is longer than the `from` bytes that were read. It is searched
    /// with reads of one byte, because the kernel only shows the length to readers who may trace
    /// the task.
    pub(super) fn text_length(&mut self, fd: &OwnedFd, from: usize) -> usize {
        let mut byte = [0u8; 1];
        let mut has = |at: usize| {
            self.syscalls += 1;
            matches!(rustix::io::pread(fd, &mut byte[..], at as u64), Ok(1))
        };
        let (mut low, mut high) = (from, from.saturating_mul(2).min(TOTAL_MAX));
        while high < TOTAL_MAX && has(high - 1) {
            (low, high) = (high, high.saturating_mul(2).min(TOTAL_MAX));
        }
        while low < high {
            let middle = low + (high - low) / 2;
            if has(middle) { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// The real user id of a task, or the id of the user nobody if it cannot be read. It leaves the
    /// text in the buffer alone.
    pub(super) fn real_uid(&mut self, mut at: TaskDir<'_>) -> u32 {
        let mut status = [0u8; 1024];
        let fd = self.open(at.dir, at.path.file("status"), OFlags::RDONLY);
        let Ok(fd) = fd else { return u32::MAX };
        self.syscalls += 2; // read, close
        let n = rustix::io::read(&fd, &mut status[..]).unwrap_or(0);
        parse::real_uid(&status[..n]).unwrap_or(u32::MAX)
    }

    /// Reads all of a file that comes in several short reads.
    pub(super) fn long_file(&mut self, at: BorrowedFd<'_>, path: &CStr) -> Result<&[u8], Errno> {
        let fd = self.open(at, path, OFlags::RDONLY)?;
        let n = self.fill(&fd, false);
        self.syscalls += 1; // close
        Ok(&self.buf[..n?])
    }

    /// Reads all of a file that the kernel makes from the task's memory, piece by piece. The task
    /// may end, or call exec, before the last piece. Then the file just ends, and this returns
    /// `SRCH`. It returns `TIMEDOUT` if `go_on` returns false.
    ///
    /// The text is moved out of this reader, so call [`give_back`](Self::give_back) afterwards.
    pub(super) fn live_file(
        &mut self,
        at: BorrowedFd<'_>,
        path: &CStr,
        go_on: impl Fn() -> bool,
    ) -> Result<FileText, Errno> {
        match self.try_live_file(at, path, &go_on) {
            // The task may have called exec, so that the memory of another program is read.
            Err(Errno::SRCH) => self.try_live_file(at, path, &go_on),
            got => got,
        }
    }

    fn try_live_file(
        &mut self,
        at: BorrowedFd<'_>,
        path: &CStr,
        go_on: &impl Fn() -> bool,
    ) -> Result<FileText, Errno> {
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
                // Doubling tens of megabytes would touch memory needlessly.
                self.buf.resize(n + n.min(GROWTH), 0);
            }
        }
        // This is the end of the text, or the memory is gone.
        if reads > 0 {
            self.still_there(&fd)?;
        }
        Ok(FileText { buf: std::mem::take(&mut self.buf), len: n })
    }

    /// As [`live_file`](Self::live_file), but in parts that stay in the cache of the CPU. `take`
    /// gets the current bytes and whether they are the last, and returns how many of them it has
    /// processed. After `SRCH`, try again.
    ///
    /// The kernel makes records, most of which have `record` bytes, until a page is full or the
    /// read has enough. It throws away a record that no longer fits and makes it again. So a read
    /// asks for a page minus one record, which takes a tenth less time.
    pub(super) fn live_parts(
        &mut self,
        at: BorrowedFd<'_>,
        path: &CStr,
        record: usize,
        go_on: impl Fn() -> bool,
        mut take: impl FnMut(&[u8], bool) -> usize,
    ) -> Result<(), Errno> {
        let fd = self.open(at, path, OFlags::RDONLY)?;
        self.syscalls += 1; // close
        let piece = rustix::param::page_size() - record;
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
        // This is the end of the text, or the memory is gone.
        if reads > 0 {
            self.still_there(&fd)?;
        }
        self.buf.truncate(KEEP_SIZE);
        self.buf.shrink_to(KEEP_SIZE);
        Ok(())
    }

    /// Returns `SRCH` if the memory that a file was made from is gone. As long as it exists, the
    /// first byte of the file can be read.
    fn still_there(&mut self, fd: &OwnedFd) -> Result<(), Errno> {
        self.syscalls += 1;
        match rustix::io::pread(fd, &mut [0u8; 1][..], 0)? {
            0 => Err(Errno::SRCH),
            _ => Ok(()),
        }
    }

    /// Returns a buffer for reuse.
    pub(super) fn give_back(&mut self, text: FileText) {
        self.buf = text.buf;
        // A huge buffer is not kept, because each thread has one.
        self.buf.truncate(KEEP_SIZE);
        self.buf.shrink_to(KEEP_SIZE);
    }

    /// Reads a file that the kernel makes in one piece, and leaves it open. The text of the file is
    /// the first part of [`text`](Self::text) with this length.
    pub(super) fn file_and_fd(
        &mut self,
        at: BorrowedFd<'_>,
        path: &CStr,
    ) -> Result<(usize, OwnedFd), Errno> {
        let fd = self.open(at, path, OFlags::RDONLY)?;
        let n = self.fill(&fd, true)?;
        Ok((n, fd))
    }

    /// Reads an open file again from its start. The kernel must make its content in one piece.
    pub(super) fn again(&mut self, fd: &OwnedFd) -> Result<usize, Errno> {
        loop {
            self.syscalls += 1;
            match rustix::io::pread(fd, &mut self.buf[..], 0) {
                Err(Errno::INTR) => {}
                Ok(n) if n == self.buf.len() => self.buf.resize(n * 2, 0),
                got => return got,
            }
        }
    }

    /// Reads the next bytes of a file to this place of the buffer, and returns how many there were.
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

    /// Reads the text of a link.
    pub(super) fn link(&mut self, at: BorrowedFd<'_>, path: &CStr) -> Result<&[u8], Errno> {
        self.syscalls += 1;
        let n = rustix::fs::readlinkat_raw(at, path, &mut self.buf[..])?;
        Ok(&self.buf[..n])
    }

    /// Calls stat() on a file of /proc.
    pub(super) fn stat(&mut self, at: BorrowedFd<'_>, path: &CStr) -> Result<Stat, Errno> {
        self.syscalls += 1;
        rustix::fs::statat(at, path, AtFlags::empty())
    }

    /// The file that an absolute path leads to, as this process sees it. See
    /// [`file_id`](Self::file_id).
    pub(super) fn id_of_path(&mut self, path: &[u8]) -> Result<FileId, Errno> {
        self.file_id(CWD, path)
    }

    /// The file that an absolute path leads to, as a task with this root sees it. See
    /// [`file_id`](Self::file_id).
    pub(super) fn id_below(
        &mut self,
        at: BorrowedFd<'_>,
        root: &CStr,
        path: &[u8],
    ) -> Result<FileId, Errno> {
        let root = self.open(at, root, OFlags::PATH | OFlags::DIRECTORY)?;
        self.syscalls += 1; // close
        self.file_id(root.as_fd(), path.strip_prefix(b"/").unwrap_or(path))
    }

    /// The file at a path, if the kernel knows it without asking a file server. The server may be
    /// gone, and a request to it would wait for ever. The kernel knows a file that a task uses,
    /// unless its server has to confirm each name; such a file is `NOENT` here. Kernels before 5.12
    /// do not support this, and may wait.
    fn file_id(&mut self, dir: BorrowedFd<'_>, path: &[u8]) -> Result<FileId, Errno> {
        self.syscalls += 1;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let known = rustix::fs::openat2(dir, path, flags, Mode::empty(), ResolveFlags::CACHED);
        let how = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
        let ask = StatxFlags::BASIC_STATS;
        let s = match known {
            Ok(file) => {
                self.syscalls += 2; // statx, close
                rustix::fs::statx(file, c"", how | AtFlags::EMPTY_PATH, ask)?
            }
            Err(Errno::AGAIN) => return Err(Errno::NOENT),
            Err(Errno::NOSYS | Errno::INVAL | Errno::PERM) => {
                self.syscalls += 1;
                rustix::fs::statx(dir, path, how, ask)?
            }
            Err(e) => return Err(e),
        };
        Ok(FileId::of(&s))
    }

    /// The bytes that the last call of [`link`](Self::link) or [`file`](Self::file) returned.
    pub(super) fn text(&self, len: usize) -> &[u8] {
        &self.buf[..len]
    }

    /// Whether this directory is the /proc of our own pid namespace. This only matters if threads
    /// may share something.
    pub(super) fn is_own(&mut self, root: BorrowedFd<'_>) -> bool {
        let me = std::process::id().to_string();
        self.link(root, c"self").is_ok_and(|text| text == me.as_bytes())
    }

    /// The CPU time of a process of our own pid namespace, in ns, with that of its ended threads.
    /// Every user may read this clock for any process. `None`: the process does not exist, or the
    /// kernel has no such clock.
    pub(super) fn process_time(&mut self, pid: u32) -> Option<u64> {
        self.syscalls += 1;
        // The kernel makes the number of the clock from the pid: CPUCLOCK_SCHED, of a process.
        let clock = !(i32::try_from(pid).ok()?) << 3 | 2;
        // SAFETY: the struct is ours, zeros are a value of it, and the kernel writes nothing else.
        let time = unsafe {
            let mut time: libc::timespec = std::mem::zeroed();
            (libc::clock_gettime(clock, &mut time) == 0).then_some(time)?
        };
        let ns = u64::try_from(time.tv_sec).ok()?.checked_mul(1_000_000_000)?;
        ns.checked_add(u64::try_from(time.tv_nsec).ok()?)
    }

    /// Does the task still exist?
    pub(super) fn exists(&mut self, mut at: TaskDir<'_>) -> bool {
        self.stat(at.dir, at.path.file("")).is_ok()
    }

    /// The number of entries of a directory that are numbers.
    pub(super) fn count(&mut self, at: BorrowedFd<'_>, path: &CStr) -> Result<u64, Errno> {
        let dir = self.open_dir(at, path)?;
        self.syscalls += 1; // close
        let mut fds = Vec::new();
        self.numbers(dir.as_fd(), &mut fds)?;
        Ok(fds.len() as u64)
    }

    /// The links of a directory whose names are numbers (fds), in ascending order, with their
    /// targets.
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

    /// The entries of a directory that are numbers (fds), in ascending order.
    pub(super) fn numbers(&mut self, dir: BorrowedFd<'_>, out: &mut Vec<u32>) -> Result<(), Errno> {
        self.list(dir, out, parse::fd)
    }

    /// The entries of a directory that are pids, in ascending order.
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
                // The process that these threads belong to has ended.
                Some(Err(Errno::NOENT | Errno::SRCH)) => break,
                Some(Err(Errno::INTR)) => {}
                Some(Err(e)) => return Err(e),
            }
        }
        // The kernel lists processes in order, and threads in the order of their creation. If a
        // thread dies during a listing, another thread may be returned twice.
        if !out.is_sorted_by(|a, b| a < b) {
            out.sort_unstable();
            out.dedup();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn files_of_every_length_are_read_whole() {
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
    fn a_directory_gives_pids_alone_in_their_order() {
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
