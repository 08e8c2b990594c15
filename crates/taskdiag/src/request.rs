//! What to ask.

use std::num::NonZeroU64;
use std::time::Duration;

use taskdiag_wire::{Groups, Strategy};

use crate::watch::Watch;

/// Which tasks, and which groups of attributes of each.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Which tasks.
    pub strategy: Strategy,
    /// The process that ONE, CHILDREN and THREAD are about; otherwise 0.
    pub pid: u32,
    /// Which groups.
    pub groups: Groups,
    /// Leave VMA_STAT and ROLLUP of processes with more resident memory than this out, and say so
    /// ([`Reason::OverBudget`](crate::Reason::OverBudget)). Reading them takes milliseconds a GiB,
    /// for which the process cannot change its mappings.
    pub max_rss_bytes: Option<NonZeroU64>,
    /// Time for all VMA_STAT and ROLLUP of the answer together; what is not read by then is left
    /// out, and the answer says so.
    pub budget: Option<Duration>,
    /// Who looks on and may end it early.
    pub watch: Option<&'static Watch>,
}

impl PartialEq for Request {
    /// Do they ask the same? Who looks on does not matter.
    fn eq(&self, o: &Request) -> bool {
        (self.strategy, self.pid, self.groups) == (o.strategy, o.pid, o.groups)
            && (self.max_rss_bytes, self.budget) == (o.max_rss_bytes, o.budget)
    }
}

impl Eq for Request {}

impl Request {
    /// A request without limits. `pid` is for ONE, CHILDREN and THREAD, otherwise 0.
    pub fn new(strategy: Strategy, pid: u32, groups: Groups) -> Request {
        Request { strategy, pid, groups, max_rss_bytes: None, budget: None, watch: None }
    }
    /// For engines, between tasks: did the caller end it? Then DONE says `-EINTR`.
    pub fn is_stopped(&self) -> bool {
        self.watch.is_some_and(Watch::is_stopped)
    }
    /// For engines: so many tasks are to be done.
    pub fn expect(&self, tasks: usize) {
        if let Some(watch) = self.watch {
            watch.expect(tasks as u64);
        }
    }
    /// For engines: so many more tasks are done.
    pub fn advance(&self, tasks: usize) {
        if let Some(watch) = self.watch {
            watch.advance(tasks as u64);
        }
    }
    /// All processes.
    pub fn all(groups: Groups) -> Request {
        Request::new(Strategy::All, 0, groups)
    }
    /// All threads of all processes.
    pub fn all_threads(groups: Groups) -> Request {
        Request::new(Strategy::AllThread, 0, groups)
    }
    /// The process that `pid` (a process or a thread of it) belongs to.
    pub fn one(pid: u32, groups: Groups) -> Request {
        Request::new(Strategy::One, pid, groups)
    }
    /// The processes whose parent is process `pid`.
    pub fn children(pid: u32, groups: Groups) -> Request {
        Request::new(Strategy::Children, pid, groups)
    }
    /// The threads of the process that `pid` belongs to.
    pub fn threads(pid: u32, groups: Groups) -> Request {
        Request::new(Strategy::Thread, pid, groups)
    }
}
