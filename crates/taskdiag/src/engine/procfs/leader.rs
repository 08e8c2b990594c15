//! Finds the memory of a process whose first thread has ended before others (`pthread_exit()` in
//! `main()`).
//!
//! The files about memory are empty in the directory of such a process, because a thread that has
//! ended has no memory. The other threads still have it. So the files of another thread are read
//! instead, in `/proc/TID`, which has all files of a process although no listing shows it.

use std::os::fd::AsFd;

use taskdiag_wire::Reason;

use super::parse::{StatFile, StatusFile};
use super::path::{Path, TaskDir};
use super::stop::Stop;
use super::worker::Worker;

impl Worker<'_> {
    /// Runs a step that reads the memory of the task. If the task has none and is the first thread
    /// of a process that has memory, runs the step again for a living thread. A step writes nothing
    /// if there is no memory.
    pub(super) fn of_memory(
        &mut self,
        at: TaskDir<'_>,
        stat: Option<&StatFile>,
        step: impl Fn(&mut Self, TaskDir<'_>, Option<&StatFile>) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        match step(self, at, stat) {
            Err(Stop::Gap(Reason::Absent)) => self.of_live_thread(at, stat, step),
            got => got,
        }
    }

    /// Runs a step for a living thread of a process whose first thread has lost its memory.
    pub(super) fn of_live_thread(
        &mut self,
        at: TaskDir<'_>,
        stat: Option<&StatFile>,
        step: impl Fn(&mut Self, TaskDir<'_>, Option<&StatFile>) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        let Some(live) = self.live_thread(at, stat)? else {
            return Err(Stop::Gap(Reason::Absent));
        };
        let got = match stat.map(|_| self.stat_file(live)).transpose() {
            Ok(stat) => step(self, live, stat.as_ref()),
            Err(stop) => Err(stop),
        };
        // The process exists.
        got.map_err(|stop| match stop {
            Stop::Gone => Stop::Gap(Reason::Vanished),
            stop => stop,
        })
    }

    /// Completes the values of the status file about memory, and returns the directory with more
    /// about it.
    pub(super) fn status_of_memory<'p>(
        &mut self,
        at: TaskDir<'p>,
        stat: Option<&StatFile>,
    ) -> Result<TaskDir<'p>, Stop> {
        if self.status.statm.valid != 0 || self.status.swap_bytes.is_some() {
            return Ok(at);
        }
        let Some(mut live) = self.live_thread(at, stat)? else { return Ok(at) };
        let mut status = StatusFile::default();
        if let Ok(text) = self.reader.file(live.dir, live.path.file("status")) {
            status.parse(text, self.run.groups);
            (self.status.statm, self.status.swap_bytes) = (status.statm, status.swap_bytes);
            self.status.fd_size = status.fd_size;
        }
        Ok(live)
    }

    /// The directory for values that a first thread loses when it ends: files, directories,
    /// namespaces, and its control group. It costs nothing if the state of the task is known.
    pub(super) fn place_of<'p>(
        &mut self,
        at: TaskDir<'p>,
        stat: Option<&StatFile>,
    ) -> Result<TaskDir<'p>, Stop> {
        match stat {
            Some(stat) if stat.base.state == b'Z' => {
                Ok(self.live_thread(at, Some(stat))?.unwrap_or(at))
            }
            _ => Ok(at),
        }
    }

    /// A thread that has memory, for a process whose first thread is a zombie.
    fn live_thread<'p>(
        &mut self,
        mut at: TaskDir<'p>,
        stat: Option<&StatFile>,
    ) -> Result<Option<TaskDir<'p>>, Stop> {
        if self.run.threads {
            return Ok(None);
        }
        let stat = match stat.map_or_else(|| self.stat_file(at), |s| Ok(*s)) {
            Ok(stat) => stat,
            Err(Stop::Gap(_)) => return Ok(None),
            Err(stop) => return Err(stop),
        };
        if stat.base.state != b'Z' || stat.stat.known().num_threads().is_none_or(|n| n < 2) {
            return Ok(None);
        }
        let Ok(dir) = self.reader.open_dir(at.dir, at.path.file("task")) else { return Ok(None) };
        self.reader.syscalls += 1; // close
        let mut tids = Vec::new();
        if self.reader.pids(dir.as_fd(), &mut tids).is_err() {
            return Ok(None);
        }
        for tid in tids.into_iter().filter(|tid| *tid != at.pid) {
            let mut path = Path::id(tid);
            // The first word is the size of its memory, or 0.
            let text = self.reader.file(at.dir, path.file("statm"));
            if text.is_ok_and(|t| !t.starts_with(b"0 ")) {
                return Ok(Some(TaskDir { path, ..at }));
            }
        }
        Ok(None)
    }
}
