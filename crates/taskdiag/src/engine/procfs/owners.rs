//! Which thread of a process carries the groups that its threads share.

use taskdiag_wire::{Group, Groups, Reason};

/// The groups about memory.
pub(super) const MEMORY: Groups =
    Groups::VMA.union(Groups::VMA_STAT).union(Groups::ROLLUP).union(Groups::SWAP);
/// The groups about open files.
pub(super) const FILES: Groups = Groups::FD.union(Groups::FD_COUNT);
/// The groups that threads may share.
pub(super) const SHARED: Groups = MEMORY.union(FILES);

/// Which thread of the process carries a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Carrier {
    /// This thread.
    Task(u32),
    /// No thread has it. Trying again would take as long.
    Nobody(Reason),
}

/// The shared values of the current process that are in the answer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shares {
    pub(super) owners: [Option<Carrier>; Group::ALL.len()],
}

impl Shares {
    /// Whether each of `groups` has a known owner.
    pub(super) fn settled(&self, groups: Groups) -> bool {
        (groups & SHARED).iter().all(|g| self.owners[g as usize].is_some())
    }
}
