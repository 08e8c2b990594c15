//! The groups that come from one or two tiny files of other kernel subsystems: OOM, LABEL,
//! AUTOGROUP, LOGIN; and PIDFD, which is in no file.

use rustix::io::Errno;
use taskdiag_wire::{Group, Login, Oom, Pidfd, Reason};

use super::parse::{self, set};
use super::path::TaskDir;
use super::stop::Stop;
use super::worker::Worker;
use crate::pidfd::{self, PIDFD_THREAD};

impl Worker<'_> {
    /// The number in one of the task's files. `None`: the text is not a number.
    fn number<T: std::str::FromStr>(
        &mut self,
        mut at: TaskDir<'_>,
        name: &'static str,
    ) -> Result<Option<T>, Stop> {
        match self.reader.file(at.dir, at.path.file(name)) {
            Ok(text) => Ok(parse::lone_number(text)),
            Err(e) => Err(self.meaning(at, e)),
        }
    }

    pub(super) fn oom(&mut self, at: TaskDir<'_>) -> Result<(), Stop> {
        let mut record = Oom::new();
        set!(record, Oom.score, self.number(at, "oom_score")?);
        set!(record, Oom.score_adj, self.number(at, "oom_score_adj")?);
        self.out.put(&record);
        Ok(())
    }

    pub(super) fn login(&mut self, at: TaskDir<'_>) -> Result<(), Stop> {
        let mut record = Login::new();
        set!(record, Login.uid, self.number(at, "loginuid")?);
        set!(record, Login.session, self.number(at, "sessionid")?);
        self.out.put(&record);
        Ok(())
    }

    pub(super) fn pidfd(&mut self, at: TaskDir<'_>) -> Result<(), Stop> {
        // The kernel takes the number as one of our own pid namespace.
        if !self.run.own_times {
            return Err(Stop::Gap(Reason::Unsupported));
        }
        let mut record = Pidfd::new();
        set!(record, Pidfd.process_ino, Some(self.pidfd_inode(at, at.tgid, 0)?));
        let ino = match self.run.threads {
            true => self.pidfd_inode(at, at.pid, PIDFD_THREAD)?,
            false => record.process_ino,
        };
        set!(record, Pidfd.ino, Some(ino));
        self.out.put(&record);
        Ok(())
    }

    fn pidfd_inode(&mut self, at: TaskDir<'_>, id: u32, flags: i32) -> Result<u64, Stop> {
        self.reader.syscalls += 4; // pidfd_open, fstatfs, fstat, close
        match pidfd::open(id, flags).and_then(pidfd::inode) {
            Ok(inode) => inode.ok_or(Stop::Gap(Reason::Unsupported)),
            Err(e) => Err(self.meaning(at, e)),
        }
    }

    /// All threads of a process are in one group, and only the directory of the process has the
    /// file.
    pub(super) fn autogroup(&mut self, at: TaskDir<'_>) -> Result<(), Stop> {
        let path = at.path.of_process(self.run.threads, "autogroup");
        match self.reader.file(at.dir, &path) {
            // Tasks that no session has started are in no such group.
            Ok(b"") => Err(Stop::Gap(Reason::Absent)),
            Ok(text) => {
                let record = parse::autogroup(text).ok_or(Stop::Gap(Reason::Unsupported))?;
                self.out.put(&record);
                Ok(())
            }
            Err(e) => Err(self.meaning(at, e)),
        }
    }

    pub(super) fn label(&mut self, mut at: TaskDir<'_>) -> Result<(), Stop> {
        match self.reader.file(at.dir, at.path.file("attr/current")) {
            Ok(text) => {
                let label = parse::label(text);
                self.out.put_blob(Group::Label as u16, 0, 0, label, label.len());
                Ok(())
            }
            // No security module labels tasks here.
            Err(Errno::INVAL) => Err(Stop::Gap(Reason::Absent)),
            Err(e) => Err(self.meaning(at, e)),
        }
    }
}
