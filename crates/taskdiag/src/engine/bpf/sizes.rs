//! How much memory a request takes: chunks of output, and tasks that the walk may note. Pure, but for the number of
//! tasks of the machine.

use taskdiag_wire::{Group, Groups, Strategy};

use super::SHARED;
use super::shared::*;
use crate::engine::estimate;
use crate::request::Request;

/// Chunks of output at most, 9 MB: to make, map and give back kernel memory holds a CPU, for 150 ms where it
/// was large enough for any answer. A larger answer is copied out whenever this is full.
pub const OUT_CHUNKS: usize = 16;

/// Chunks to do with where memory is limited.
pub const FEW_CHUNKS: usize = CHUNKS_RESERVE + 2;

/// How large to make the maps.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Chunks of output.
    pub chunks: usize,
    /// Tasks that the walk may see.
    pub tasks: u32,
}

impl Sizes {
    /// From the number of tasks on the machine, so that the whole answer fits if it is not huge.
    /// A wrong guess costs time only: chunks are emptied and reused, and too short a list of tasks
    /// is noticed and the walk repeated.
    pub fn estimate(req: &Request, mappings: u64) -> Sizes {
        let tasks = match req.strategy {
            Strategy::One => {
                let mappings = usize::try_from(mappings).unwrap_or(usize::MAX);
                // A third more than was estimated: what does not fit is copied, with all the rest.
                let bytes = mappings.saturating_mul(size_of::<taskdiag_wire::Vma>() * 4 / 3);
                let chunks = bytes / CHUNK_FULL + reserve(req.groups) + 1;
                return Sizes { chunks: chunks.min(CHUNKS_MAX), tasks: 2 };
            }
            Strategy::All | Strategy::Children => estimate::processes(),
            Strategy::AllThread | Strategy::Thread => estimate::threads(),
        };
        let size = |groups: Groups| groups.iter().map(typical_bytes).sum::<usize>();
        let part = |n: usize| match req.strategy {
            Strategy::All | Strategy::AllThread => n,
            _ => n / 4,
        };
        // Threads mostly share what they can share, and say so.
        let shared = req.groups & SHARED;
        let says = shared.iter().count() * size_of::<taskdiag_wire::Shared>();
        let processes = if shared.is_empty() { 0 } else { estimate::processes() };
        let answer =
            part(tasks) * (32 + size(req.groups - SHARED) + says) + part(processes) * size(shared);
        let chunks = answer.div_ceil(CHUNK_FULL) + reserve(req.groups) + 1;
        Sizes { chunks: chunks.min(CHUNKS_MAX), tasks: (2 * tasks + 2048) as u32 }
    }
}

/// Chunks to keep for a task that is begun, beside the one that it is begun in: a task may have many groups
/// of users and long paths; a value that is no list may begin a chunk; what is of a fixed size fits.
pub fn reserve(groups: Groups) -> usize {
    const FIXED: Groups = Groups::BASE
        .union(Groups::STAT)
        .union(Groups::STATM)
        .union(Groups::IO)
        .union(Groups::SCHED)
        .union(Groups::FD_COUNT);
    const IN_PIECES: Groups = Groups::CMDLINE.union(Groups::VMA);
    match (FIXED.contains(groups), FIXED.union(IN_PIECES).contains(groups)) {
        (true, _) => 0,
        (false, true) => 1,
        (false, false) => CHUNKS_RESERVE,
    }
}

fn typical_bytes(g: Group) -> usize {
    match g {
        Group::Base => size_of::<taskdiag_wire::Base>() + 16,
        Group::Cred => size_of::<taskdiag_wire::Cred>() + 24,
        Group::Stat => size_of::<taskdiag_wire::Stat>(),
        Group::Statm => size_of::<taskdiag_wire::Statm>(),
        Group::FdCount => size_of::<taskdiag_wire::FdCount>(),
        Group::Cmdline => 96,
        Group::Paths => 160,
        Group::FileStat => 3 * size_of::<taskdiag_wire::FileStat>() + 24,
        Group::Cgroup => 360,
        Group::Vma => 30 * size_of::<taskdiag_wire::Vma>(),
        Group::Fd => 12 * size_of::<taskdiag_wire::Fd>(),
        _ => 80,
    }
}
