//! State that is the same for all tasks of a request, and shared by all threads that read them.

use std::sync::Arc;

use taskdiag_wire::Groups;

use super::cgroup::Cgroups;
use super::clock::SchedClock;
use super::held_files::HeldFiles;
use super::limits::Budget;
use super::names::FileNames;
use super::nvidia;
use super::shmem::Objects;
use super::sizes::SizesFrom;
use super::sockets::{Sockets, Traffic};
use crate::engine::room::Room;
use crate::watch::Watch;

/// State that is the same for all tasks of a request.
#[derive(Debug)]
pub(super) struct Run {
    /// The requested groups.
    pub(super) groups: Groups,
    /// Is a record about a thread, and not about a process?
    pub(super) threads: bool,
    /// Length of a clock tick.
    pub(super) tick_ns: u64,
    /// Length of a page.
    pub(super) page_size: u64,
    /// The file that STATM is read from.
    pub(super) sizes_from: SizesFrom,
    /// Whether `status` is read for STAT.
    pub(super) names_locked: bool,
    /// How the times of the scheduler are read, if they were requested.
    pub(super) sched_clock: Option<SchedClock>,
    /// Where to look up the ids of cgroups, if they were requested and can be found.
    pub(super) cgroups: Option<Cgroups>,
    /// Are paths wanted even if they are the root of a version 1 hierarchy?
    pub(super) cgroup_roots: bool,
    /// Whether the pids in this /proc belong to our own pid namespace.
    pub(super) own_pids: bool,
    /// Whether clocks of processes are read, which have the CPU time of ended threads, or delays,
    /// pidfds or priorities of I/O. They are found by their pids, so these must be known to belong
    /// to our own pid namespace.
    pub(super) own_times: bool,
    /// The watch for progress and for stopping the walk.
    pub(super) watch: Option<Arc<Watch>>,
    /// The remaining space for texts, and for lists, names and paths.
    pub(super) texts: Room,
    pub(super) lists: Room,
    /// The budget for VMA_STAT and ROLLUP.
    pub(super) limits: Budget,
    /// Whether anything on this machine is swapped out.
    pub(super) swap_used: bool,
    /// The known facts about shared memory objects.
    pub(super) objects: Objects,
    /// The inode of our own network namespace.
    pub(super) own_netns: u32,
    /// The sockets of the network namespaces met so far.
    pub(super) sockets: Sockets,
    /// The traffic of the sockets, if it was requested.
    pub(super) traffic: Traffic,
    /// Whether this machine has a graphics processor, if GPU was requested.
    pub(super) has_gpu: bool,
    /// What NVIDIA's library knows, once a process with such a device was met.
    pub(super) nvidia: nvidia::Known,
    /// The names that the answer has so far.
    pub(super) names: FileNames,
    /// In a session about processes, the files that stay open.
    pub(super) held: Option<Arc<HeldFiles>>,
}

impl Run {
    pub(super) fn wants(&self, groups: Groups) -> bool {
        self.groups.intersects(groups)
    }
}
