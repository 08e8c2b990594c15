//! Groups, strategies and reasons as Rust types.

use std::fmt;
use std::ops::{BitAnd, BitOr, BitOrAssign, Not, Sub};

macro_rules! named {
    ($(#[$m:meta])* $name:ident: $repr:ty { $($(#[$vm:meta])* $v:ident = $n:literal $s:literal,)* }) => {
        $(#[$m])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[$vm])* $v = $n,)* }
        impl $name {
            /// All of them, in order of their numbers.
            pub const ALL: &'static [$name] = &[$($name::$v,)*];
            /// The name that users type and see.
            pub fn name(self) -> &'static str {
                match self { $($name::$v => $s,)* }
            }
            /// From its number in `uapi/task_diag.h`.
            pub fn from_number(n: $repr) -> Option<$name> {
                match n { $($n => Some($name::$v),)* _ => None }
            }
            /// From its name.
            pub fn from_name(s: &str) -> Option<$name> {
                match s { $($s => Some($name::$v),)* _ => None }
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.pad(self.name()) }
        }
    };
}

named! {
    /// A set of attributes that cost the same to get and are asked for together.
    Group: u32 {
        /// Ids, state, start time, command name.
        Base = 0 "base",
        /// Uids, gids, capabilities, tracer.
        Cred = 1 "cred",
        /// Memory mappings.
        Vma = 2 "vma",
        /// Memory use per mapping.
        VmaStat = 3 "vma_stat",
        /// Faults, CPU time, scheduling parameters, terminal.
        Stat = 4 "stat",
        /// Size of the address space.
        Statm = 5 "statm",
        /// Arguments.
        Cmdline = 6 "cmdline",
        /// Executable, working directory, root.
        Paths = 7 "paths",
        /// Bytes and calls of I/O.
        Io = 8 "io",
        /// Run time, run delay, context switches.
        Sched = 9 "sched",
        /// Namespaces.
        Ns = 10 "ns",
        /// Control groups.
        Cgroup = 11 "cgroup",
        /// Open files.
        Fd = 12 "fd",
        /// Environment.
        Environ = 13 "environ",
        /// Resource limits.
        Limits = 14 "limits",
        /// Signal masks.
        Signals = 15 "signals",
    }
}

named! {
    /// Which tasks a request is about.
    Strategy: u64 {
        /// All processes.
        All = 0 "all",
        /// One process.
        One = 1 "one",
        /// All threads of all processes.
        AllThread = 2 "all-thread",
        /// The children of a process.
        Children = 3 "children",
        /// The threads of a process.
        Thread = 4 "thread",
    }
}

named! {
    /// Why something that was asked for is not in the answer.
    Reason: u32 {
        /// The engine or the kernel cannot tell.
        Unsupported = 1 "unsupported",
        /// The reader may not know.
        Denied = 2 "denied",
        /// The task ended first.
        Vanished = 3 "vanished",
        /// Reading would have waited for the task.
        Blocked = 4 "blocked",
        /// Did not fit.
        Truncated = 5 "truncated",
        /// The task has none.
        Absent = 6 "absent",
    }
}

named! {
    /// Which path a blob of PATHS is.
    PathKind: u32 {
        /// The executable.
        Exe = 0 "exe",
        /// The working directory.
        Cwd = 1 "cwd",
        /// The root directory.
        Root = 2 "root",
    }
}

impl Strategy {
    /// Does a message stand for a single thread (and its times for that thread alone)?
    pub fn is_threads(self) -> bool {
        matches!(self, Strategy::AllThread | Strategy::Thread)
    }
    /// Is the request about one given pid?
    pub fn takes_pid(self) -> bool {
        matches!(self, Strategy::One | Strategy::Children | Strategy::Thread)
    }
}

/// A set of [`Group`]s: `show_flags`.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Groups(u64);

macro_rules! group_consts {
    ($($c:ident = $g:ident,)*) => {
        impl Groups {
            $(#[doc = concat!("Only [`Group::", stringify!($g), "`].")]
              pub const $c: Groups = Groups(1 << Group::$g as u64);)*
        }
    };
}
group_consts! {
    BASE = Base, CRED = Cred, VMA = Vma, VMA_STAT = VmaStat, STAT = Stat, STATM = Statm,
    CMDLINE = Cmdline, PATHS = Paths, IO = Io, SCHED = Sched, NS = Ns, CGROUP = Cgroup,
    FD = Fd, ENVIRON = Environ, LIMITS = Limits, SIGNALS = Signals,
}

impl Groups {
    /// The empty set.
    pub const NONE: Groups = Groups(0);

    /// The bits of `show_flags`.
    pub const fn bits(self) -> u64 {
        self.0
    }
    /// From `show_flags`; unknown bits are kept.
    pub const fn from_bits(bits: u64) -> Groups {
        Groups(bits)
    }
    /// Is nothing in it?
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
    /// Both sets; `|` for constants.
    pub const fn union(self, other: Groups) -> Groups {
        Groups(self.0 | other.0)
    }
    /// The groups in it, in order. Bits without a name are left out.
    pub fn iter(self) -> impl Iterator<Item = Group> {
        Group::ALL.iter().copied().filter(move |g| self.has(*g))
    }
}

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
