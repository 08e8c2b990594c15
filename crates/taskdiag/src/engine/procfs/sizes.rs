//! Chooses the source of a task's memory sizes (STATM). Three files have some of them, and the
//! cheapest one with all needed members is read:
//!
//! - `stat` has the virtual size, and is always read for BASE and STAT;
//! - `statm` has the virtual, the resident and the anonymous size;
//! - `status` has all sizes, and takes the kernel longer to make than the other two.
//!
//! `stat` also has a resident size, but it differs, so it is not used. Since Linux kernel commit
//! f1a7941243c1 ("mm: convert mm's rss stats into percpu_counter") (in v6.2), each CPU batches its
//! last changes of each counter: fewer than 32 pages, and more on a machine with more than 16 CPUs.
//! `stat` leaves out batched changes, which may be all of a small process. `status` and `statm`
//! always have the same number: both left out these last changes at first, and include them since
//! Linux kernel commit 82241a83cd15 ("mm: fix the inaccurate memory statistics issue for users")
//! (in v6.16, and in stable series such as 6.12). The BPF engine always includes them. Before v6.2,
//! the kernel batched changes for each thread. There, the three files and BPF have the same number,
//! without the batched changes.
//!
//! Only `status` shows whether pages are locked, which is in the flags of STAT. `status` is read if
//! a request names this member. A request for all of STAT is no reason to read it, because it costs
//! more than the rest of STAT.

use taskdiag_wire::layout::bit;
use taskdiag_wire::{Groups, Stat, Statm};

use crate::request::Members;

/// The members that `stat` has.
const IN_STAT: u32 = bit(Statm::MEMBERS, "size_bytes");
/// The members that `statm` has.
const IN_STATM: u32 =
    IN_STAT | bit(Statm::MEMBERS, "rss_bytes") | bit(Statm::MEMBERS, "rss_anon_bytes");

/// The member with the flag for locked pages.
const FLAGS: u32 = bit(Stat::MEMBERS, "flags");

/// Is the flag for locked pages named, so that `status` is read even if no other group needs it?
pub(in crate::engine) fn names_locked(groups: Groups, members: Members) -> bool {
    // `Members::of` without names sets bits beyond those of members.
    let is_named = members.stat != u32::MAX;
    groups.contains(Groups::STAT) && is_named && members.stat & FLAGS != 0
}

/// The file that STATM is read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum SizesFrom {
    Stat,
    Statm,
    Status,
}

impl SizesFrom {
    /// The file for a request about these groups and members.
    pub(in crate::engine) fn of(groups: Groups, members: Members) -> SizesFrom {
        let locked = groups.contains(Groups::STAT) && members.stat & FLAGS != 0;
        let is_within = |has: u32| members.statm & Statm::ALL_VALID & !has == 0;
        let others = Groups::IN_STATUS - Groups::STATM;
        if groups.intersects(others) || locked || !is_within(IN_STATM) {
            SizesFrom::Status
        } else if is_within(IN_STAT) && groups.intersects(Groups::BASE | Groups::STAT) {
            SizesFrom::Stat
        } else {
            SizesFrom::Statm
        }
    }
}
