//! Files of processes that stay open between the answers of a session: `stat`, and `statm` if it is
//! read.
//!
//! Reading an open file again takes a third of the time of opening, reading and closing it. A file
//! belongs to one task: after the task has ended, reading fails with ESRCH, even if a later task
//! has the same pid. Each open file keeps an inode of /proc, a descriptor and a page for its text.
//! So there is a limit, and files of tasks that are not listed any more are closed after each
//! answer.

use std::collections::HashMap;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::io::Errno;

use super::path::TaskDir;
use super::read::Reader;

/// The limit of open files, which is two for each of 4,096 processes. It is also at most half of
/// the descriptors that the process may have.
const HELD_MAX: usize = 8192;

/// The open files, by process and name.
#[derive(Debug)]
pub(super) struct HeldFiles {
    most: AtomicUsize,
    answer: AtomicU32,
    files: Mutex<HashMap<FileKey, File>>,
}

/// The pid of a process, and the name of a file in its directory.
type FileKey = (u32, &'static str);

#[derive(Debug)]
struct File {
    fd: Arc<OwnedFd>,
    /// The answer in which it was last read.
    answer: u32,
}

impl HeldFiles {
    pub(super) fn new() -> HeldFiles {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let half = limit.map_or(HELD_MAX, |n| usize::try_from(n / 2).unwrap_or(HELD_MAX));
        HeldFiles {
            most: half.min(HELD_MAX).into(),
            answer: AtomicU32::new(0),
            files: Mutex::default(),
        }
    }

    fn files(&self) -> std::sync::MutexGuard<'_, HashMap<FileKey, File>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the descriptors of all files.
    pub(super) fn descriptors(&self, all: &mut Vec<RawFd>) {
        all.extend(self.files().values().map(|f| f.fd.as_raw_fd()));
    }

    /// Reads a file that the kernel makes in one piece, from the open file of an earlier answer if
    /// there is one. Its text is the first [`text`](Reader::text) of the returned length. `at` is
    /// the directory of the process itself.
    pub(super) fn read(
        &self,
        reader: &mut Reader,
        mut at: TaskDir<'_>,
        name: &'static str,
    ) -> Result<usize, Errno> {
        let key = (at.pid, name);
        if let Some(fd) = self.get(key) {
            match reader.again(&fd) {
                Ok(len) => return Ok(len),
                // That process has ended. Another one may have its pid by now.
                Err(_) => {
                    self.files().remove(&key);
                    reader.syscalls += 1; // close
                }
            }
        }
        let (len, fd) = reader.file_and_fd(at.dir, at.path.file(name))?;
        reader.syscalls += u64::from(!self.keep(key, fd)); // close
        Ok(len)
    }

    fn get(&self, key: FileKey) -> Option<Arc<OwnedFd>> {
        let mut files = self.files();
        let file = files.get_mut(&key)?;
        file.answer = self.answer.load(Ordering::Relaxed);
        Some(Arc::clone(&file.fd))
    }

    /// Keeps this file open. Returns false if the limit is reached, and it was closed.
    fn keep(&self, key: FileKey, fd: OwnedFd) -> bool {
        let mut files = self.files();
        let may = files.len() < self.most.load(Ordering::Relaxed);
        if may {
            let answer = self.answer.load(Ordering::Relaxed);
            files.insert(key, File { fd: Arc::new(fd), answer });
        }
        may
    }

    /// The program needs descriptors: closes most held files, and lowers the limit to the number
    /// that stays open. Returns false if there was no open file.
    pub(super) fn shrink(&self) -> bool {
        let mut files = self.files();
        let (before, left) = (files.len(), files.len() / 4);
        self.most.store(left, Ordering::Relaxed);
        let mut kept = 0;
        files.retain(|_, _| {
            kept += 1;
            kept <= left
        });
        before > left
    }

    /// Closes the files that this answer, which is complete, did not read. Returns how many were
    /// closed.
    pub(super) fn close_others(&self) -> usize {
        let answer = self.answer.fetch_add(1, Ordering::Relaxed);
        let mut files = self.files();
        let before = files.len();
        files.retain(|_, f| f.answer == answer);
        before - files.len()
    }
}
