//! A thread of the engine that reads tasks: the state that it keeps from task to task, and helpers
//! that every step needs. The steps are in the modules above this one, and `task` runs them.

use rustix::io::Errno;
use taskdiag_wire::{Groups, Reason, StreamWriter};

use super::carriers::Shares;
use super::cgroup::Ids;
use super::handover::Slot;
use super::lists::{FileLists, Lists, MappedFiles};
use super::names::SeenNames;
use super::parse::{self, StatFile, StatusFile};
use super::path::TaskDir;
use super::read::Reader;
use super::run::Run;
use super::stop::{Stop, exhausted};
use super::taskstats::TaskStats;
use crate::engine::room::NAME_LEAST;

/// Reads tasks and writes them, one after the other. Each thread of the engine has one worker.
#[derive(Debug)]
pub(super) struct Worker<'a> {
    pub(super) run: &'a Run,
    pub(super) reader: Reader,
    pub(super) out: StreamWriter,
    pub(super) status: StatusFile,
    pub(super) tids: Vec<u32>,
    /// Which thread of the current process carries the groups that its threads share.
    pub(super) shares: Shares,
    pub(super) known: SeenNames,
    /// How many names were known before the current task.
    pub(super) names_before: usize,
    pub(super) lists: Lists,
    pub(super) files: FileLists,
    pub(super) mapped: MappedFiles,
    /// A process, and its real user id.
    user: (u32, u32),
    /// The limit for names of the current task, in bytes.
    pub(super) name_most: usize,
    /// A buffer for the text of a link.
    pub(super) link: Vec<u8>,
    pub(super) ids: Ids,
    pub(super) task_stats: TaskStats,
    /// The groups of the current task that are already written, or stated as missing.
    pub(super) said: Groups,
    /// The slot where the supervisor of this thread finds its state, if it has one.
    pub(super) slot: Option<&'a Slot>,
    /// A process, and the groups of it that cannot be read without waiting.
    pub(super) blocked: (u32, Groups),
    /// The index of the current task among the tasks of a job.
    pub(super) item: usize,
    /// Whether another thread has taken over the work.
    pub(super) lost: bool,
}

impl<'a> Worker<'a> {
    pub(super) fn new(run: &'a Run, reader: Reader, out: StreamWriter) -> Worker<'a> {
        Worker {
            run,
            reader,
            out,
            status: StatusFile::default(),
            tids: Vec::new(),
            shares: Shares::default(),
            known: SeenNames::default(),
            names_before: 0,
            lists: Lists::default(),
            files: FileLists::default(),
            mapped: MappedFiles::default(),
            user: (0, 0),
            name_most: usize::MAX,
            link: Vec::new(),
            ids: Ids::default(),
            task_stats: TaskStats::default(),
            said: Groups::NONE,
            slot: None,
            blocked: (0, Groups::NONE),
            item: 0,
            lost: false,
        }
    }

    /// The bytes of lists and names that this task may add. If it is 0, names are cut, too.
    pub(super) fn list_room(&mut self, at: TaskDir<'_>) -> usize {
        let run = self.run;
        let room = run.lists.list_bytes(|| self.uid(at));
        self.name_most = if room == 0 { NAME_LEAST } else { usize::MAX };
        room
    }

    /// Accounts for the bytes that this task has added.
    pub(super) fn take_list_room(&mut self, at: TaskDir<'_>, bytes: usize) {
        let run = self.run;
        run.lists.take_list(bytes, || self.uid(at));
    }

    /// Accounts for a list, if it counts. The answer had `before` bytes without it and its names.
    /// It has a name once, however many tasks have it in their lists.
    pub(super) fn list_added(&mut self, at: TaskDir<'_>, before: usize, counts: bool) {
        if counts {
            self.take_list_room(at, self.out.len() - before);
        }
    }

    fn uid(&mut self, at: TaskDir<'_>) -> u32 {
        if self.user.0 != at.tgid {
            self.user = (at.tgid, self.reader.real_uid(at));
        }
        self.user.1
    }

    /// Whether any of these groups was requested and is not done yet.
    pub(super) fn wants(&self, groups: Groups) -> bool {
        (self.run.groups - self.said).intersects(groups)
    }

    /// Whether an empty file means that the task has no memory, and not that the file itself is
    /// empty.
    pub(super) fn has_no_memory(
        &mut self,
        at: TaskDir<'_>,
        stat: Option<&StatFile>,
    ) -> Result<bool, Stop> {
        Ok(match stat {
            Some(s) => s.has_no_memory(),
            None => match self.stat_file(at) {
                Ok(s) => s.has_no_memory(),
                // The file is empty, and the stat file cannot say why.
                Err(Stop::Gap(_)) => false,
                Err(stop) => return Err(stop),
            },
        })
    }

    /// Notes that a step is done: its groups are written or stated as missing.
    pub(super) fn settle(&mut self, groups: Groups, got: Result<(), Stop>) -> Result<(), Stop> {
        match got {
            Ok(()) => {}
            Err(Stop::Gap(reason)) => {
                for group in groups.iter() {
                    self.out.missing(group, reason);
                }
            }
            Err(stop) => return Err(stop),
        }
        self.said |= groups;
        Ok(())
    }

    /// The meaning of a failed system call on a file of this task.
    pub(super) fn meaning(&mut self, mut at: TaskDir<'_>, e: Errno) -> Stop {
        match e {
            Errno::SRCH => Stop::Gone,
            Errno::ACCESS | Errno::PERM => Stop::Gap(Reason::Denied),
            Errno::MFILE | Errno::NFILE | Errno::NOMEM => Stop::Failed(exhausted(e)),
            // Either the task has ended, or the kernel was built without this file.
            Errno::NOENT => match self.reader.stat(at.dir, at.path.file("")) {
                Ok(_) => Stop::Gap(Reason::Unsupported),
                Err(_) => Stop::Gone,
            },
            Errno::NAMETOOLONG => Stop::Gap(Reason::Truncated),
            _ => Stop::Gap(Reason::Unsupported),
        }
    }

    /// Reads and parses the stat file.
    pub(super) fn stat_file(&mut self, mut at: TaskDir<'_>) -> Result<StatFile, Stop> {
        match self.reader.file(at.dir, at.path.file("stat")).map(<[u8]>::len) {
            Ok(len) => self.parsed_stat(len),
            Err(e) => Err(self.meaning(at, e)),
        }
    }

    pub(super) fn parsed_stat(&mut self, len: usize) -> Result<StatFile, Stop> {
        match parse::stat(self.reader.text(len), self.run.tick_ns) {
            Some(s) if s.is_reaped() => Err(Stop::Gone),
            Some(s) => Ok(s),
            None => Err(Stop::Gap(Reason::Unsupported)),
        }
    }
}
