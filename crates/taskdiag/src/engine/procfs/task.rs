//! Reads one task: the table of steps has the order of its groups, and where each is read. The
//! records from `stat`, `status` and other short files are made here, too.

use taskdiag_wire::{A_CGROUP_PATH, A_GROUPS, BLOB_REWRITTEN, Cgroup, Group, Groups, Reason};

use super::parse::{self, StatFile};
use super::path::TaskDir;
use super::sizes::SizesFrom;
use super::stop::Stop;
use super::worker::Worker;
use crate::error::Error;

/// How some groups are read. The steps run in this order, which is also the order of the
/// attributes.
struct Step {
    groups: Groups,
    needs: Needs,
    read: for<'w> fn(&mut Worker<'w>, TaskDir<'_>, Option<&StatFile>) -> Result<(), Stop>,
}

/// The task, and the files of it, that a step reads.
#[derive(Clone, Copy)]
enum Needs {
    /// Files of the task itself.
    Task,
    /// The status file, which was read before. If it could not be read, the groups are missing for
    /// the same reason.
    Status,
    /// `status`, and the files about memory of the same thread.
    StatusOfMemory,
    /// Memory of the task, or of a living thread if the first thread has ended.
    Memory,
    /// Files that a first thread loses when it ends. A living thread's files are read then.
    Place,
    /// VMA and VMA_STAT, which come from one file or from two. Their step records itself which of
    /// them is missing.
    Mappings,
}

const fn step(
    groups: Groups,
    needs: Needs,
    read: for<'w> fn(&mut Worker<'w>, TaskDir<'_>, Option<&StatFile>) -> Result<(), Stop>,
) -> Step {
    Step { groups, needs, read }
}

/// All groups but BASE and STAT, whose file says where others are read.
const STEPS: &[Step] = &[
    step(Groups::CRED, Needs::Status, |w, _, _| w.cred()),
    step(Groups::STATM, Needs::Status, |w, at, stat| match w.run.sizes_from {
        SizesFrom::Status => w.statm(),
        _ => w.sizes(at, stat),
    }),
    step(Groups::SIGNALS, Needs::Status, |w, _, _| w.signals()),
    step(Groups::FD_COUNT, Needs::Place, |w, at, _| w.fd_count(at)),
    step(Groups::SWAP, Needs::StatusOfMemory, |w, at, _| w.swap(at)),
    step(Groups::CMDLINE, Needs::Memory, |w, at, stat| w.cmdline(at, stat)),
    step(Groups::LAYOUT, Needs::Memory, |w, at, stat| w.layout(at, stat)),
    step(Groups::PATHS, Needs::Place, |w, at, _| w.paths(at)),
    step(Groups::FILE_STAT, Needs::Place, |w, at, _| w.file_stat(at)),
    step(Groups::IO, Needs::Task, |w, at, _| w.io(at)),
    step(Groups::SETTINGS, Needs::Status, |w, at, _| w.settings(at)),
    // NSpid and SETTINGS must be read before SCHED, because SCHED reads the status files of other
    // threads into the same buffer.
    step(Groups::NS, Needs::Place, |w, at, _| w.ns(at)),
    step(Groups::SCHED, Needs::Status, |w, at, _| w.sched(at)),
    step(Groups::CGROUP, Needs::Place, |w, at, _| w.cgroup(at)),
    step(Groups::LIMITS, Needs::Task, |w, at, _| w.limits(at)),
    step(Groups::WCHAN, Needs::Task, |w, at, _| w.wchan(at)),
    step(Groups::KSTACK, Needs::Task, |w, at, _| w.kstack(at)),
    step(Groups::WAIT, Needs::Task, |w, at, _| w.wait(at)),
    step(Groups::DELAYS, Needs::Task, |w, at, _| w.delays(at)),
    step(Groups::OOM, Needs::Task, |w, at, _| w.oom(at)),
    step(Groups::LABEL, Needs::Task, |w, at, _| w.label(at)),
    step(Groups::AUTOGROUP, Needs::Task, |w, at, _| w.autogroup(at)),
    step(Groups::LOGIN, Needs::Task, |w, at, _| w.login(at)),
    step(Groups::PERSONA, Needs::Task, |w, at, _| w.persona(at)),
    step(Groups::CPUSET, Needs::Task, |w, at, _| w.cpuset(at)),
    step(Groups::NS_ID, Needs::Place, |w, at, _| w.ns_id(at)),
    step(Groups::PIDFD, Needs::Task, |w, at, _| w.pidfd(at)),
    step(Groups::ENVIRON, Needs::Memory, |w, at, stat| w.environ(at, stat)),
    step(Groups::VMA.union(Groups::VMA_STAT), Needs::Mappings, |w, at, stat| w.mappings(at, stat)),
    step(Groups::ROLLUP, Needs::Memory, |w, at, _| w.rollup(at)),
    step(Groups::FD, Needs::Place, |w, at, _| w.files(at)),
    // Both use the list of FD, and NET clears it.
    step(Groups::GPU, Needs::Place, |w, at, _| w.gpu(at)),
    step(Groups::NET, Needs::Place, |w, at, _| w.net(at)),
];

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
        self.names_before = self.known.len();
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
            // Other tasks may use a name that is written with this one.
            Err(_) if self.said.is_empty() && self.known.len() == self.names_before => {
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
        // The file is not read only for the size of the table of files: FD_COUNT has its number
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
        let no_status = match status {
            Ok(()) => None,
            Err(Stop::Gap(reason)) => Some(reason),
            Err(stop) => return Err(stop),
        };
        let mut memory_at = at;
        if from_status && no_status.is_none() && self.wants(Groups::STATM | Groups::SWAP) {
            memory_at = self.status_of_memory(at, stat.as_ref())?;
        }
        let place = self.place_of(at, stat.as_ref())?;
        for step in STEPS {
            if !self.wants(step.groups) {
                continue;
            }
            let from = match (step.needs, no_status) {
                (Needs::Status | Needs::StatusOfMemory, Some(reason)) => {
                    self.settle(step.groups, Err(Stop::Gap(reason)))?;
                    continue;
                }
                (Needs::Mappings, _) => {
                    (step.read)(self, at, stat.as_ref())?;
                    continue;
                }
                (Needs::StatusOfMemory, _) => memory_at,
                (Needs::Place, _) => place,
                (Needs::Task | Needs::Status | Needs::Memory, _) => at,
            };
            let is_shared = step.groups.intersects(Groups::SHARED);
            if is_shared && self.unshared(from, step.groups)?.is_empty() {
                continue;
            }
            let got = match step.needs {
                Needs::Memory => self.of_memory(from, stat.as_ref(), step.read),
                _ => (step.read)(self, from, stat.as_ref()),
            };
            match is_shared {
                true => self.settle_own(from, step.groups, got)?,
                false => self.settle(step.groups, got)?,
            }
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
                // Without version 2, the root of systemd's own hierarchy tells where the task is.
                let lines = || parse::cgroup_lines(bytes);
                let roots = self.run.cgroup_roots || !lines().any(|l| l.hierarchy == 0);
                for line in lines().filter(|l| roots || !l.is_old_root()) {
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
