// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sets of groups.

use std::fmt;
use std::ops::{BitAnd, BitOr, BitOrAssign, Not, Sub};

use crate::names::Group;

/// A set of [`Group`]s: `show_flags`.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Groups(u64);

impl Groups {
    /// The empty set.
    pub const NONE: Groups = Groups(0);
    /// Every group that this version of the format has.
    pub const ALL: Groups = Groups((1 << Group::ALL.len()) - 1);

    /// The bits of `show_flags`.
    pub const fn bits(self) -> u64 {
        self.0
    }
    /// From `show_flags`; unknown bits are kept.
    pub const fn from_bits(bits: u64) -> Groups {
        Groups(bits)
    }
    /// Is it empty?
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
    /// Is this group in it?
    pub const fn has(self, g: Group) -> bool {
        self.0 & (1 << g as u64) != 0
    }
    /// Are all of `other` in it?
    pub const fn contains(self, other: Groups) -> bool {
        self.0 & other.0 == other.0
    }
    /// Is any of `other` in it?
    pub const fn intersects(self, other: Groups) -> bool {
        self.0 & other.0 != 0
    }
    /// The union of both sets; like `|`, but usable in constants.
    pub const fn union(self, other: Groups) -> Groups {
        Groups(self.0 | other.0)
    }
    /// The groups in it, in order. Bits without a name are left out.
    pub fn iter(self) -> impl Iterator<Item = Group> {
        Group::ALL.iter().copied().filter(move |g| self.has(*g))
    }
}

/// The set of each group alone, from the registry.
macro_rules! constants {
    ([] records { $($(#[$rm:meta])* $r:ident = $rn:literal $rs:ident $rc:ident $rp:tt,)* }
     lists { $($(#[$lm:meta])* $l:ident = $ln:literal $ls:ident $lc:ident $lp:tt,)* }
     blobs { $($(#[$bm:meta])* $b:ident = $bn:literal $bs:ident $bc:ident $bp:tt,)* }
     attribute_records $ar:tt attribute_lists $al:tt attribute_blobs $ab:tt) => {
        impl Groups {
            $(#[doc = concat!("Only [`Group::", stringify!($r), "`].")]
              pub const $rc: Groups = Groups(1 << Group::$r as u64);)*
            $(#[doc = concat!("Only [`Group::", stringify!($l), "`].")]
              pub const $lc: Groups = Groups(1 << Group::$l as u64);)*
            $(#[doc = concat!("Only [`Group::", stringify!($b), "`].")]
              pub const $bc: Groups = Groups(1 << Group::$b as u64);)*
        }
    };
}
crate::registry!(constants);

impl From<Group> for Groups {
    fn from(g: Group) -> Groups {
        Groups(1 << g as u64)
    }
}
impl FromIterator<Group> for Groups {
    fn from_iter<I: IntoIterator<Item = Group>>(it: I) -> Groups {
        it.into_iter().fold(Groups::NONE, |a, g| a | g.into())
    }
}
impl BitOr for Groups {
    type Output = Groups;
    fn bitor(self, o: Groups) -> Groups {
        Groups(self.0 | o.0)
    }
}
impl BitOrAssign for Groups {
    fn bitor_assign(&mut self, o: Groups) {
        self.0 |= o.0;
    }
}
impl BitAnd for Groups {
    type Output = Groups;
    fn bitand(self, o: Groups) -> Groups {
        Groups(self.0 & o.0)
    }
}
impl Sub for Groups {
    type Output = Groups;
    fn sub(self, o: Groups) -> Groups {
        Groups(self.0 & !o.0)
    }
}
impl Not for Groups {
    type Output = Groups;
    fn not(self) -> Groups {
        Groups(!self.0)
    }
}
impl fmt::Debug for Groups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Groups({self})")
    }
}
impl fmt::Display for Groups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sep = "";
        for g in self.iter() {
            write!(f, "{sep}{g}")?;
            sep = "|";
        }
        let rest = self.0 >> Group::ALL.len();
        if rest != 0 {
            write!(f, "{sep}{:#x}", rest << Group::ALL.len())?;
        } else if sep.is_empty() {
            f.write_str("none")?;
        }
        Ok(())
    }
}
