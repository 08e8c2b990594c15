//! What to ask.

use taskdiag_wire::{Groups, Strategy};

/// Which tasks, and which groups of attributes of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Which tasks.
    pub strategy: Strategy,
    /// The process that ONE, CHILDREN and THREAD are about; otherwise 0.
    pub pid: u32,
    /// Which groups.
    pub groups: Groups,
}

impl Request {
    /// All processes.
    pub fn all(groups: Groups) -> Request {
        Request { strategy: Strategy::All, pid: 0, groups }
    }
    /// All threads of all processes.
    pub fn all_threads(groups: Groups) -> Request {
        Request { strategy: Strategy::AllThread, pid: 0, groups }
    }
    /// The process that `pid` (a process or a thread of it) belongs to.
    pub fn one(pid: u32, groups: Groups) -> Request {
        Request { strategy: Strategy::One, pid, groups }
    }
    /// The processes whose parent is process `pid`.
    pub fn children(pid: u32, groups: Groups) -> Request {
        Request { strategy: Strategy::Children, pid, groups }
    }
    /// The threads of the process that `pid` belongs to.
    pub fn threads(pid: u32, groups: Groups) -> Request {
        Request { strategy: Strategy::Thread, pid, groups }
    }
}
