//! Which thread of a process carries the groups that its threads share.

use taskdiag_wire::{Group, Groups, Reason};

/// Which thread of the process carries a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Carrier {
    /// This thread.
    Task(u32),
    /// No thread has it. Trying again would take as long.
    Nobody(Reason),
}

/// The shared values of the current process that are in the answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shares {
    pub(super) owners: [Option<Carrier>; Group::ALL.len()],
}

impl Default for Shares {
    fn default() -> Shares {
        Shares { owners: [None; Group::ALL.len()] }
    }
}

impl Shares {
    /// Whether each of `groups` has a known owner.
    pub(super) fn settled(&self, groups: Groups) -> bool {
        (groups & Groups::SHARED).iter().all(|g| self.owners[g as usize].is_some())
    }
}
