//! `stat` files that stay open between the answers of a session.
//!
//! Reading an open one again takes a third of the time that opening, reading and closing it takes. A file stands for one
//! task: when that has ended, reading fails with ESRCH, also where a later task has the same pid. Each open file
//! keeps an inode of /proc and a descriptor, so there is a limit, and those of tasks that are not listed any more are
//! closed after each answer.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// At most so many are open, and at most half of the descriptors that the process may have.
const HELD_MAX: usize = 4096;

/// The open files, by pid.
#[derive(Debug)]
pub(super) struct Held {
    most: usize,
    answer: AtomicU32,
    files: Mutex<HashMap<u32, File>>,
}

#[derive(Debug)]
struct File {
    fd: Arc<OwnedFd>,
    /// The answer in which it was last read.
    answer: u32,
}

impl Held {
    pub(super) fn new() -> Held {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let half = limit.map_or(HELD_MAX, |n| usize::try_from(n / 2).unwrap_or(HELD_MAX));
        Held { most: half.min(HELD_MAX), answer: AtomicU32::new(0), files: Mutex::default() }
    }

    fn files(&self) -> std::sync::MutexGuard<'_, HashMap<u32, File>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The open file of this task.
    pub(super) fn get(&self, pid: u32) -> Option<Arc<OwnedFd>> {
        let mut files = self.files();
        let file = files.get_mut(&pid)?;
        file.answer = self.answer.load(Ordering::Relaxed);
        Some(Arc::clone(&file.fd))
    }

    /// Keep this file open. False: there may be no more, and it was closed.
    pub(super) fn keep(&self, pid: u32, fd: OwnedFd) -> bool {
        let mut files = self.files();
        let may = files.len() < self.most;
        if may {
            let answer = self.answer.load(Ordering::Relaxed);
            files.insert(pid, File { fd: Arc::new(fd), answer });
        }
        may
    }

    /// Close the file of a task that has ended.
    pub(super) fn drop_one(&self, pid: u32) {
        self.files().remove(&pid);
    }

    /// An answer is complete: close those that it did not read. How many were closed.
    pub(super) fn close_others(&self) -> usize {
        let answer = self.answer.fetch_add(1, Ordering::Relaxed);
        let mut files = self.files();
        let before = files.len();
        files.retain(|_, f| f.answer == answer);
        before - files.len()
    }
}
