//! The row of each process. An answer about threads has the times and counts of each thread by
//! itself, and none of threads that have ended. So the times and counts of processes come from a
//! second answer.

use taskdiag::field::{Context, Row};
use taskdiag::wire::TaskView;
use taskdiag::{Groups, Snapshot, TaskId};

use crate::forest::Forest;

/// Whether values of these groups need a second answer, about processes. They differ if the value
/// of a process is a sum over its threads, or if its first thread has ended and the value is that
/// of a living thread. Arguments are the same in both answers.
pub fn needs_processes(groups: Groups) -> bool {
    groups.intersects(Groups::SUMS.union(Groups::OF_PROCESS) - Groups::CMDLINE)
}

/// The rows of the processes in a forest.
pub struct Rows<'a> {
    /// The answer that the forest was made of.
    pub snapshot: &'a Snapshot,
    pub cx: &'a Context,
    pub forest: &'a Forest,
    /// An answer about processes, if the first one is about threads and does not have their values.
    pub processes: Option<(&'a Snapshot, &'a Context)>,
}

impl<'a> Rows<'a> {
    /// The row of a process, and its context.
    pub fn get(&self, at: usize) -> Option<(&'a Context, Row<'a>)> {
        let stream = self.snapshot.stream();
        let tasks = || self.forest.nodes[at].rows.iter().filter_map(|i| stream.get(*i as usize));
        let leader = tasks().find(TaskView::is_leader).or_else(|| tasks().next())?;
        let Some((processes, cx)) = self.processes else {
            return Some((self.cx, Row::new(leader)));
        };
        // A process that has ended since the first answer has no values. Another process that has
        // got its id is not mistaken for it.
        let id = TaskId::of(&leader);
        let same = |t: &TaskView<'_>| id.zip(TaskId::of(t)).is_some_and(|(a, b)| a.is_same(&b));
        match processes.task(self.forest.nodes[at].tgid).filter(same) {
            Some(process) => Some((cx, Row::new(process))),
            None => Some((self.cx, Row::new(leader))),
        }
    }
}
