//! Reads one directory or one file of a cgroup.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, RawDir, SeekFrom};
use rustix::io::Errno;

use super::members::Form;
use super::parse;
use super::value::{Known, Values};

pub(super) const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW);
const FILE: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW);

/// A read that returns fewer bytes has reached the end of a list of ids. A page has at least 4,096
/// bytes, and an id with its newline has at most 11.
const SHORT: usize = 4000;

/// Bytes of one file that are read at most.
const FILE_BYTES: u64 = 64 << 20;

/// Reads files into memory that it keeps.
#[derive(Debug)]
pub(super) struct Reader {
    buf: Vec<u8>,
    entries: Vec<MaybeUninit<u8>>,
    /// System calls so far.
    pub syscalls: u64,
}

impl Default for Reader {
    fn default() -> Reader {
        Reader {
            buf: vec![0; 16 << 10],
            entries: vec![MaybeUninit::uninit(); 32 << 10],
            syscalls: 0,
        }
    }
}

impl Reader {
    /// Opens a file of a directory. Its close is counted, too.
    pub fn open(&mut self, dir: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
        self.syscalls += 2;
        rustix::fs::openat(dir, name, FILE, Mode::empty())
    }
    /// Reads an open file from its start into values.
    pub fn read(
        &mut self,
        fd: BorrowedFd<'_>,
        form: Form,
        values: &mut Values,
    ) -> Result<(), Errno> {
        if let Form::Lines(member) = form {
            values.put(member, Known::Number(self.lines(fd)?));
            return Ok(());
        }
        let len = self.text(fd)?;
        parse::parse(form, &self.buf[..len], values);
        Ok(())
    }
    /// The words of `cgroup.controllers`.
    pub fn controllers(&mut self, dir: BorrowedFd<'_>) -> Result<Vec<String>, Errno> {
        use std::os::fd::AsFd as _;
        let fd = self.open(dir, c"cgroup.controllers")?;
        let len = self.text(fd.as_fd())?;
        let text = String::from_utf8_lossy(&self.buf[..len]).into_owned();
        Ok(text.split_ascii_whitespace().map(str::to_owned).collect())
    }
    /// Reads an open file from its start into the buffer. The kernel makes the text in one piece,
    /// so a read that does not fill the buffer has all of it.
    fn text(&mut self, fd: BorrowedFd<'_>) -> Result<usize, Errno> {
        let mut len = 0;
        loop {
            self.syscalls += 1;
            let n = rustix::io::pread(fd, &mut self.buf[len..], len as u64)?;
            len += n;
            if n == 0 || len < self.buf.len() {
                return Ok(len);
            }
            if len as u64 >= FILE_BYTES {
                return Err(Errno::FBIG);
            }
            self.buf.resize(2 * len, 0);
        }
    }
    /// The number of lines of an open file, which the kernel makes in pieces of a page or more. A
    /// piece that is much shorter is the last one.
    fn lines(&mut self, fd: BorrowedFd<'_>) -> Result<u64, Errno> {
        let (mut lines, mut at) = (0, 0);
        loop {
            self.syscalls += 1;
            let n = rustix::io::pread(fd, &mut self.buf[..], at)?;
            lines += memchr::memchr_iter(b'\n', &self.buf[..n]).count() as u64;
            at += n as u64;
            if n < SHORT {
                return Ok(lines);
            }
            if at >= FILE_BYTES {
                return Err(Errno::FBIG);
            }
        }
    }
    /// Calls `each` with the name and the inode number of each directory in a directory.
    pub fn children(
        &mut self,
        dir: BorrowedFd<'_>,
        mut each: impl FnMut(&[u8], u64),
    ) -> Result<(), Errno> {
        self.syscalls += 3;
        rustix::fs::seek(dir, SeekFrom::Start(0))?;
        let mut entries = RawDir::new(dir, &mut self.entries);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if entry.file_type() == FileType::Directory && name != b"." && name != b".." {
                each(name, entry.ino());
            }
        }
        Ok(())
    }
}
