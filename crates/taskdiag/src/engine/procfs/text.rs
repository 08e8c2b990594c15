//! Reads the groups that are a short text each (ENVIRON, LIMITS, SIGNALS, WCHAN, KSTACK), and
//! FD_COUNT.

use rustix::io::Errno;
use taskdiag_wire::{FdCount, Group, Groups, Reason};

use super::parse::{self, StatFile, StatusFile};
use super::path::TaskDir;
use super::read::{TOTAL_MAX, Text};
use super::stop::Stop;
use super::worker::Worker;

impl Worker<'_> {
    pub(super) fn environ(&mut self, at: TaskDir<'_>, stat: Option<&StatFile>) -> Result<(), Stop> {
        if stat.is_some_and(StatFile::has_never_memory) {
            return Err(Stop::Gap(Reason::Absent));
        }
        let (text, total) = match self.text(at, Groups::ENVIRON, "environ")? {
            Ok(text) => self.text_total(text, stat.and_then(|s| s.environ_len)),
            // A page of the text can only be read with the help of its owner.
            Err(Errno::IO | Errno::FAULT) => return Err(Stop::Gap(Reason::Blocked)),
            Err(e) => return Err(self.no_memory(at, e)),
        };
        if total == 0 && self.has_no_memory(at, stat)? {
            return Err(Stop::Gap(Reason::Absent));
        }
        self.out.put_blob(Group::Environ as u16, 0, 0, self.reader.text(text), total);
        Ok(())
    }

    /// Reads as much of a text as fits into the limits.
    pub(super) fn text(
        &mut self,
        at: TaskDir<'_>,
        group: Groups,
        file: &'static str,
    ) -> Result<Result<Text, Errno>, Stop> {
        let room = &self.run.texts;
        self.risky(at, group, |r| {
            r.task_text(at, file, room.most(), |len, uid| room.take(len, uid))
        })
    }

    /// How many bytes of a text were read, and its length. `known` is the length that the kernel
    /// reports.
    pub(super) fn text_total(&mut self, text: Text, known: Option<u64>) -> (usize, usize) {
        let total = match (text.total, &text.more) {
            (Some(total), _) => total,
            (None, Some(fd)) => match known.filter(|n| *n > text.len as u64) {
                Some(n) => usize::try_from(n).unwrap_or(TOTAL_MAX).min(TOTAL_MAX),
                None => self.reader.text_length(fd, text.len),
            },
            (None, None) => text.len,
        };
        (text.len, total)
    }

    pub(super) fn limits(&mut self, mut at: TaskDir<'_>) -> Result<(), Stop> {
        match self.reader.file(at.dir, at.path.file("limits")) {
            Ok(text) => {
                let limits = parse::limits(text).ok_or(Stop::Gap(Reason::Unsupported))?;
                self.out.put(&limits);
                Ok(())
            }
            Err(e) => Err(self.meaning(at, e)),
        }
    }

    /// Writes SIGNALS from the status file.
    pub(super) fn signals(&mut self) -> Result<(), Stop> {
        if self.status.signals.valid == 0 {
            return Err(Stop::Gap(Reason::Unsupported));
        }
        self.out.put(&self.status.signals);
        Ok(())
    }

    pub(super) fn wchan(&mut self, mut at: TaskDir<'_>) -> Result<(), Stop> {
        let mut len = match self.reader.file(at.dir, at.path.file("wchan")) {
            Ok(text) => text.len(),
            Err(e) => return Err(self.meaning(at, e)),
        };
        if self.reader.text(len) == b"0" {
            // The task does not sleep, or we may not see where. Other files show whether access is
            // denied.
            if let Err(e @ (Errno::ACCESS | Errno::PERM)) =
                self.reader.link(at.dir, at.path.file("exe"))
            {
                return Err(self.meaning(at, e));
            }
            len = 0;
        }
        self.out.put_blob(Group::Wchan as u16, 0, 0, self.reader.text(len), len);
        Ok(())
    }

    pub(super) fn kstack(&mut self, mut at: TaskDir<'_>) -> Result<(), Stop> {
        match self.reader.file(at.dir, at.path.file("stack")) {
            Ok(text) => {
                self.out.put_blob(Group::Kstack as u16, 0, 0, text, text.len());
                Ok(())
            }
            Err(e) => Err(self.meaning(at, e)),
        }
    }

    /// The number of open files is the size of the directory fd since Linux 6.2. Before, that size
    /// is 0.
    pub(super) fn fd_count(&mut self, mut at: TaskDir<'_>) -> Result<(), Stop> {
        let open = match self.reader.stat(at.dir, at.path.file("fd")) {
            Ok(s) if s.st_size > 0 => s.st_size as u64,
            Ok(_) => match self.reader.count(at.dir, at.path.file("fd")) {
                Ok(n) => n,
                Err(e) => return Err(self.meaning(at, e)),
            },
            Err(e) => return Err(self.meaning(at, e)),
        };
        if open == 0 {
            self.has_files(at)?;
        }
        let mut record = FdCount::new();
        record.open = u32::try_from(open).unwrap_or(u32::MAX);
        record.valid = 1;
        let mut size = self.status.fd_size;
        if size == Some(0) && open > 0 {
            // The status file belonged to a first thread that has ended.
            let mut live = StatusFile::default();
            if let Ok(text) = self.reader.file(at.dir, at.path.file("status")) {
                live.parse(text, Groups::FD_COUNT);
            }
            size = live.fd_size.filter(|n| *n > 0);
        }
        if let Some(size) = size {
            (record.size, record.valid) = (size, FdCount::ALL_VALID);
        }
        self.out.put(&record);
        Ok(())
    }
}
