//! Reads one task: decides the order of its groups, and makes the records from `stat`, `status` and
//! other short files.

use taskdiag_wire::{A_CGROUP_PATH, A_GROUPS, BLOB_REWRITTEN, Cgroup, Group, Groups, Reason};

use super::parse::{self, StatFile};
use super::path::TaskDir;
use super::sizes::SizesFrom;
use super::stop::Stop;
use super::worker::Worker;
use crate::error::Error;

impl Worker<'_> {
    /// Writes the requested groups of one task. `stat` is its stat file, if that was read already.
    /// A task that ended before anything was known about it is left out and counted.
    ///
    /// # Errors
    /// Only errors that would hit every task, such as too many open files.
    pub(super) fn task(&mut self, at: TaskDir<'_>, stat: Option<StatFile>) -> Result<(), Error> {
        if self.run.watch.as_ref().is_some_and(|w| w.is_stopped()) {
            return Ok(());
        }
        self.out.begin_task(at.pid, at.tgid);
        self.said = Groups::NONE;
        self.finish(at, stat)
    }

    /// Continues with a task that another thread began.
    pub(super) fn go_on(&mut self, at: TaskDir<'_>) -> Result<(), Error> {
        self.finish(at, None)
    }

    fn finish(&mut self, at: TaskDir<'_>, stat: Option<StatFile>) -> Result<(), Error> {
        self.status.fd_size = None;
        let got = self.groups(at, stat);
        if let (Some(watch), false) = (&self.run.watch, self.lost) {
            watch.advance(1);
        }
        match got {
            Ok(()) => {}
            Err(Stop::Lost) => return Ok(()),
            Err(Stop::Failed(e)) => {
                self.out.abandon_task();
                return Err(e);
            }
            Err(_) if self.said.is_empty() => {
                self.out.abandon_task();
                return Ok(());
            }
            Err(_) => {
                for group in (self.run.groups - self.said).iter() {
                    self.out.missing(group, Reason::Vanished);
                }
            }
        }
        self.out.end_task();
        Ok(())
    }

    /// Counts a process that ended before its tasks were known.
    pub(super) fn vanished(&mut self, tgid: u32) {
        self.out.begin_task(tgid, tgid);
        self.out.abandon_task();
    }

    fn groups(&mut self, at: TaskDir<'_>, mut stat: Option<StatFile>) -> Result<(), Stop> {
        if self.wants(Groups::BASE | Groups::STAT) {
            let got = self.base(at, &mut stat);
            let none = if got.is_err() { Groups::STAT } else { Groups::NONE };
            self.settle(self.run.groups & (Groups::BASE | none), got)?;
        }
        // For the size of the table of files alone, the file is not read: FD_COUNT has its number
        // without it.
        let for_group = self.wants(Groups::IN_STATUS - Groups::FD_COUNT);
        let mut status = Ok(());
        let from_status = self.run.sizes_from == SizesFrom::Status;
        let for_stat = self.run.names_locked && self.wants(Groups::STAT);
        if from_status && (for_stat || for_group) {
            status = self.status(at);
        }
        if let Some(s) = stat.as_ref().filter(|_| self.run.wants(Groups::STAT)) {
            self.stat(s);
        }
        if matches!(status, Err(Stop::Gone | Stop::Failed(_) | Stop::Lost)) {
            return status;
        }
        let mut memory_at = at;
        if from_status && status.is_ok() && self.wants(Groups::STATM | Groups::SWAP) {
            memory_at = self.status_of_memory(at, stat.as_ref())?;
        }
        let reason = match &status {
            Err(Stop::Gap(r)) => Some(*r),
            _ => None,
        };
        if self.wants(Groups::CRED) {
            let got = reason.map_or_else(|| self.cred(), |r| Err(Stop::Gap(r)));
            self.settle(Groups::CRED, got)?;
        }
        if self.wants(Groups::STATM) {
            let got = match reason {
                Some(r) => Err(Stop::Gap(r)),
                None if from_status => self.statm(),
                None => self.sizes(at, stat.as_ref()),
            };
            self.settle(Groups::STATM, got)?;
        }
        if self.wants(Groups::SIGNALS) {
            let got = reason.map_or_else(|| self.signals(), |r| Err(Stop::Gap(r)));
            self.settle(Groups::SIGNALS, got)?;
        }
        let place = self.place_of(at, stat.as_ref())?;
        if self.wants(Groups::FD_COUNT) && !self.unshared(at, Groups::FD_COUNT)?.is_empty() {
            let got = self.fd_count(place);
            self.settle_own(at, Groups::FD_COUNT, got)?;
        }
        if self.wants(Groups::SWAP) {
            match reason {
                Some(r) => self.settle(Groups::SWAP, Err(Stop::Gap(r)))?,
                None => self.swap(memory_at)?,
            }
        }
        if self.wants(Groups::CMDLINE) {
            let got = self.of_memory(at, stat.as_ref(), Self::cmdline);
            self.settle(Groups::CMDLINE, got)?;
        }
        if self.wants(Groups::LAYOUT) {
            let got = self.of_memory(at, stat.as_ref(), Self::layout);
            self.settle(Groups::LAYOUT, got)?;
        }
        if self.wants(Groups::PATHS) {
            let got = self.paths(place);
            self.settle(Groups::PATHS, got)?;
        }
        if self.wants(Groups::FILE_STAT) {
            let got = self.file_stat(place);
            self.settle(Groups::FILE_STAT, got)?;
        }
        if self.wants(Groups::IO) {
            let got = self.io(at);
            self.settle(Groups::IO, got)?;
        }
        // NSpid must be read before SCHED, because SCHED reads the status files of other threads
        // into the same buffer.
        if self.wants(Groups::NS) {
            let got = self.ns(place);
            self.settle(Groups::NS, got)?;
        }
        if self.wants(Groups::SCHED) {
            let got = reason.map_or_else(|| self.sched(at), |r| Err(Stop::Gap(r)));
            self.settle(Groups::SCHED, got)?;
        }
        if self.wants(Groups::CGROUP) {
            let got = self.cgroup(place);
            self.settle(Groups::CGROUP, got)?;
        }
        if self.wants(Groups::LIMITS) {
            let got = self.limits(at);
            self.settle(Groups::LIMITS, got)?;
        }
        if self.wants(Groups::WCHAN) {
            let got = self.wchan(at);
            self.settle(Groups::WCHAN, got)?;
        }
        if self.wants(Groups::KSTACK) {
            let got = self.kstack(at);
            self.settle(Groups::KSTACK, got)?;
        }
        self.tags(at)?;
        if self.wants(Groups::ENVIRON) {
            let got = self.of_memory(at, stat.as_ref(), Self::environ);
            self.settle(Groups::ENVIRON, got)?;
        }
        if self.wants(Groups::VMA | Groups::VMA_STAT) {
            self.mappings(at, stat.as_ref())?;
        }
        if self.wants(Groups::ROLLUP) {
            self.rollup(at, stat.as_ref())?;
        }
        if self.wants(Groups::FD) {
            self.files(place)?;
        }
        Ok(())
    }

    fn base(&mut self, at: TaskDir<'_>, stat: &mut Option<StatFile>) -> Result<(), Stop> {
        if stat.is_none() {
            *stat = Some(match &self.run.held {
                Some(held) => match held.read(&mut self.reader, at, "stat") {
                    Ok(len) => self.parsed_stat(len)?,
                    Err(e) => return Err(self.meaning(at, e)),
                },
                None => self.stat_file(at)?,
            });
        }
        if let Some(s) = stat.as_ref().filter(|_| self.run.wants(Groups::BASE)) {
            self.out.put_base(&s.base, s.comm());
        }
        Ok(())
    }

    /// Writes STAT. Its flags come from the status file, so they are known only if another group
    /// needed that file.
    fn stat(&mut self, s: &StatFile) {
        self.out.put(&s.stat_with_locked(self.status.locked_bytes));
        self.said |= Groups::STAT;
    }

    fn status(&mut self, mut at: TaskDir<'_>) -> Result<(), Stop> {
        match self.reader.file(at.dir, at.path.file("status")) {
            Ok(bytes) => {
                self.status.parse(bytes, self.run.groups);
                Ok(())
            }
            Err(e) => {
                self.status.parse(b"", self.run.groups);
                Err(self.meaning(at, e))
            }
        }
    }

    fn cred(&mut self) -> Result<(), Stop> {
        if self.status.cred.valid == 0 {
            return Err(Stop::Gap(Reason::Unsupported));
        }
        self.out.put(&self.status.cred);
        let gids = &self.status.gids;
        if !gids.is_empty() {
            self.out.put_blob(A_GROUPS, 0, 0, gids, gids.len());
        }
        Ok(())
    }

    fn statm(&mut self) -> Result<(), Stop> {
        // The status file of a task without memory does not have these lines.
        if self.status.statm.valid == 0 {
            return Err(Stop::Gap(Reason::Absent));
        }
        self.out.put(&self.status.statm);
        Ok(())
    }

    fn cmdline(&mut self, at: TaskDir<'_>, stat: Option<&StatFile>) -> Result<(), Stop> {
        // The file would be empty.
        if stat.is_some_and(StatFile::has_never_memory) {
            return Err(Stop::Gap(Reason::Absent));
        }
        let text = match self.text(at, Groups::CMDLINE, "cmdline")? {
            Ok(text) => text,
            Err(e) => return Err(self.meaning(at, e)),
        };
        if text.total == Some(0) {
            let stat = match stat {
                Some(s) => Some(*s),
                None => match self.stat_file(at) {
                    Ok(s) => Some(s),
                    // The file is empty, and the stat file cannot say why.
                    Err(Stop::Gap(_)) => None,
                    Err(stop) => return Err(stop),
                },
            };
            if stat.is_some_and(|s| s.has_no_memory()) {
                return Err(Stop::Gap(Reason::Absent));
            }
            // The task has arguments, but the kernel returns none of them. Their page is not in
            // memory, and another task has to provide it (userfaultfd).
            if stat.and_then(|s| s.args_len).is_some_and(|len| len > 0) {
                return Err(Stop::Gap(Reason::Blocked));
            }
            self.out.put_blob(Group::Cmdline as u16, 0, 0, &[], 0);
            return Ok(());
        }
        // The kernel returns exactly what lies between its marks, unless the process has
        // overwritten its last NUL. In that case it looks for the end elsewhere (get_mm_cmdline()),
        // which is within a page.
        let args_len = stat.and_then(|s| s.args_len);
        let is_title = text.total.is_some_and(|n| args_len.is_some_and(|args| args != n as u64));
        let (len, total) = self.text_total(text, args_len);
        let flags = if is_title { BLOB_REWRITTEN } else { 0 };
        self.out.put_blob(Group::Cmdline as u16, 0, flags, self.reader.text(len), total);
        Ok(())
    }

    fn layout(&mut self, at: TaskDir<'_>, stat: Option<&StatFile>) -> Result<(), Stop> {
        let layout = match stat {
            Some(stat) => stat.layout,
            None => self.stat_file(at)?.layout,
        };
        self.out.put(&layout.map_err(Stop::Gap)?);
        Ok(())
    }

    fn io(&mut self, mut at: TaskDir<'_>) -> Result<(), Stop> {
        match self.reader.file(at.dir, at.path.file("io")) {
            Ok(bytes) => {
                let io = parse::io(bytes).ok_or(Stop::Gap(Reason::Unsupported))?;
                self.out.put(&io);
                Ok(())
            }
            Err(e) => Err(self.meaning(at, e)),
        }
    }

    fn cgroup(&mut self, mut at: TaskDir<'_>) -> Result<(), Stop> {
        let e = match self.reader.file(at.dir, at.path.file("cgroup")) {
            Ok(bytes) => {
                let mut record = Cgroup::new();
                let mut calls = 0;
                if let Some(cgroups) = &self.run.cgroups {
                    let v2 = parse::cgroup_lines(bytes).find(|l| l.hierarchy == 0);
                    let id = v2.and_then(|l| self.ids.get(cgroups, l.path, &mut calls));
                    if let Some(id) = id {
                        record.id = id;
                        record.valid = Cgroup::ALL_VALID;
                    }
                }
                self.out.put(&record);
                for line in parse::cgroup_lines(bytes) {
                    self.out.put_blob(A_CGROUP_PATH, line.hierarchy, 0, line.text, line.text.len());
                }
                self.reader.syscalls += calls;
                return Ok(());
            }
            Err(e) => e,
        };
        Err(self.meaning(at, e))
    }
}
