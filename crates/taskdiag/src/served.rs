//! The engines that served an answer, and their cost. This is separate from the engines, because
//! errors and saved answers name them, too.

use std::fmt;
use std::time::Duration;

/// The engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EngineId {
    /// `/proc/task_diag` of a patched kernel.
    Kernel,
    /// BPF task iterators.
    Bpf,
    /// `taskdiagd`, which keeps BPF programs loaded for everyone.
    Service,
    /// The text files of /proc.
    Procfs,
}

impl EngineId {
    /// All, the fastest first.
    pub const ALL: [EngineId; 4] =
        [EngineId::Kernel, EngineId::Bpf, EngineId::Service, EngineId::Procfs];
    /// The name that users type and see.
    pub fn name(self) -> &'static str {
        match self {
            EngineId::Kernel => "kernel",
            EngineId::Bpf => "bpf",
            EngineId::Service => "service",
            EngineId::Procfs => "procfs",
        }
    }
}

impl fmt::Display for EngineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The cost of an answer.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Cost {
    /// System calls made for it, as the engine counts them.
    pub syscalls: u64,
    /// Time from request to answer.
    pub wall: Duration,
    /// How much of the request's budget it used: the time that VMA_STAT and ROLLUP took.
    pub walked: Duration,
}

impl Cost {
    /// The cost of both.
    pub(crate) fn plus(self, other: Cost) -> Cost {
        Cost {
            syscalls: self.syscalls + other.syscalls,
            wall: self.wall + other.wall,
            walked: self.walked + other.walked,
        }
    }
}
