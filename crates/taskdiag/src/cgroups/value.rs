//! A value of a cgroup. A missing one has its reason.

use taskdiag_wire::Reason;

use super::members::{Files, Member};

/// A value of a cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// The value is not known, for this reason. [`Reason::Absent`]: this cgroup cannot have it,
    /// because it is the root, or because its controller is not enabled for it.
    Missing(Reason),
    /// The file of the value was not requested.
    NotAsked,
    /// A number, in the unit of the [`Member`].
    Number(u64),
    /// There is no limit: `max`.
    Unlimited,
}

impl Known {
    /// The number, if it is one.
    pub fn number(self) -> Option<u64> {
        match self {
            Known::Number(n) => Some(n),
            _ => None,
        }
    }
    /// Is there a value?
    pub fn is_known(self) -> bool {
        matches!(self, Known::Number(_) | Known::Unlimited)
    }
}

/// All values of a cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Values([Known; Member::ALL.len()]);

impl Values {
    /// Values of these files, all of them missing for these reasons.
    pub fn missing(asked: Files, why: impl Fn(Files) -> Reason) -> Values {
        let mut values = Values([Known::NotAsked; Member::ALL.len()]);
        for member in Member::ALL.iter().filter(|m| asked.has(Files::of(**m))) {
            values.0[*member as usize] = Known::Missing(why(Files::of(*member)));
        }
        values
    }
    pub fn get(&self, member: Member) -> Known {
        self.0[member as usize]
    }
    /// Puts a value, unless another hierarchy has given one.
    pub fn put(&mut self, member: Member, known: Known) {
        let slot = &mut self.0[member as usize];
        if !slot.is_known() {
            *slot = known;
        }
    }
    /// Replaces a value.
    pub fn set(&mut self, member: Member, known: Known) {
        self.0[member as usize] = known;
    }
    /// Adds a number to a value.
    pub fn add(&mut self, member: Member, n: u64) {
        let slot = &mut self.0[member as usize];
        *slot = Known::Number(slot.number().unwrap_or(0).saturating_add(n));
    }
}
