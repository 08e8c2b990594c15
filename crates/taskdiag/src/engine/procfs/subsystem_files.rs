//! The groups that come from one or two tiny files of other kernel subsystems: OOM, LABEL,
//! AUTOGROUP, LOGIN.

use rustix::io::Errno;
use taskdiag_wire::{Group, Login, Oom, Reason};

use super::parse::{self, set};
use super::path::TaskDir;
use super::stop::Stop;
use super::worker::Worker;

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

    /// All threads of a process are in one group, and only the directory of the process has the
    /// file.
    pub(super) fn autogroup(&mut self, at: TaskDir<'_>) -> Result<(), Stop> {
        let path = at.path.of_process(self.run.threads, "autogroup");
        match self.reader.file(at.dir, &path) {
            // Tasks that were not begun by a session are in no such group.
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
