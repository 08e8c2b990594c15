//! The inode numbers of pidfds, which no two processes share until the next boot.

use std::io;
use std::os::fd::{AsFd, FromRawFd as _, OwnedFd};

use rustix::io::Errno;

/// `PIDFD_THREAD` of linux/pidfd.h.
pub(crate) const PIDFD_THREAD: i32 = libc::O_EXCL;

/// `PID_FS_MAGIC` of linux/magic.h. Before Linux 6.9, all pidfds have the inode of one file.
const PID_FS_MAGIC: u64 = 0x5049_4446;

/// The number that the `PID:INODE` of util-linux has, or `None` if this kernel gives pidfds no
/// inodes of their own (before Linux 6.9). Source: `fstat(2)` of a pidfd.
///
/// # Errors
/// As fstat(2).
pub fn pidfd_inode(pidfd: impl AsFd) -> io::Result<Option<u64>> {
    Ok(inode(pidfd)?)
}

pub(crate) fn inode(pidfd: impl AsFd) -> Result<Option<u64>, Errno> {
    if rustix::fs::fstatfs(&pidfd)?.f_type as u64 != PID_FS_MAGIC {
        return Ok(None);
    }
    Ok(Some(rustix::fs::fstat(&pidfd)?.st_ino))
}

/// A pidfd of a process, or with [`PIDFD_THREAD`] of a thread (since Linux 6.9).
pub(crate) fn open(id: u32, flags: i32) -> Result<OwnedFd, Errno> {
    // SAFETY: takes numbers, and returns a new descriptor that nobody else has.
    unsafe {
        match libc::syscall(libc::SYS_pidfd_open, id, flags) {
            fd @ 0.. => Ok(OwnedFd::from_raw_fd(fd as i32)),
            _ => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::INVAL)),
        }
    }
}
