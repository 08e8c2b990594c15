//! DELAYS: how long a task has waited, from netlink, one question for each thread. /proc has only
//! some of it.

use std::os::fd::AsFd;

use taskdiag_wire::Reason;

use super::parse::DelayCounts;
use super::path::TaskDir;
use super::stop::Stop;
use super::worker::Worker;

impl Worker<'_> {
    pub(super) fn delays(&mut self, mut at: TaskDir<'_>) -> Result<(), Stop> {
        // The kernel takes the number as one of our own pid namespace.
        if !self.run.own_times {
            return Err(Stop::Gap(Reason::Unsupported));
        }
        if self.run.threads {
            let counts = self.task_stats.of(at.tgid, at.pid, &mut self.reader.syscalls)?;
            self.out.put(&counts.record());
            return Ok(());
        }
        let dir = match self.reader.open_dir(at.dir, at.path.file("task")) {
            Ok(dir) => dir,
            Err(e) => return Err(self.meaning(at, e)),
        };
        self.reader.syscalls += 1; // close
        let mut tids = std::mem::take(&mut self.tids);
        let listed = self.reader.pids(dir.as_fd(), &mut tids);
        let mut sum: Result<Option<DelayCounts>, Stop> =
            listed.map(|_| None).map_err(|e| self.meaning(at, e));
        for &tid in &tids {
            let Ok(so_far) = sum else { break };
            sum = match self.task_stats.of(at.tgid, tid, &mut self.reader.syscalls) {
                Ok(counts) => Ok(Some(so_far.map_or(counts, |sum| sum.with(counts)))),
                // This thread has ended. The sums count the living threads.
                Err(Stop::Gone) => Ok(so_far),
                Err(stop) => Err(stop),
            };
        }
        self.tids = tids;
        self.out.put(&sum?.ok_or(Stop::Gone)?.record());
        Ok(())
    }
}
