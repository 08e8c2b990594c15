//! Computes the memory for a request: chunks of output, and room for the tasks that the walk sees.
//! It is pure, except that it asks for the number of tasks on the machine.

use taskdiag_wire::{Group, Groups, Strategy};

use super::shared::*;
use crate::engine::estimate;
use crate::request::Request;

/// The largest number of chunks of output for these groups: 1.1 MB, or 1.7 MB. The kernel clears
/// the pages of a map without a pause. A page takes 10 µs if the host of a virtual machine has to
/// allocate it first, so four chunks kept a CPU busy for 5 ms. A run of the program ends after a
/// millisecond, in which it fills a fifth of a chunk. A larger answer is copied out between two
/// runs.
pub fn most(groups: Groups) -> usize {
    reserve(groups).max(1) + 1
}

/// The largest number of tasks that a walk remembers at first. It continues after the last
/// remembered task that still exists, so it loses its place only if all of them end between two
/// runs. More would keep a CPU busy for longer, because the kernel clears 8 bytes for each without
/// a pause.
const SEEN_MAX: usize = 16384;
/// From this number of processes on, the walk loads memory of the next ones early (`bpf/ahead.h`).
/// The verifier takes about a millisecond for that code.
const MANY: usize = 2000;
/// From this number of threads on, listed or summed up, the walk loads their memory early
/// (`bpf/touch.h`). Each early load saves less than for processes.
const MANY_THREADS: usize = 5000;

/// How large to make the maps.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Chunks of output.
    pub chunks: usize,
    /// Tasks that the walk will probably see.
    pub tasks: usize,
    /// How many of them it remembers: a power of two.
    pub seen: u32,
    /// For tests: end each run soon, and rest after it, so that the walk often loses its place.
    pub forgetful: bool,
    /// Bits of `enum ahead_of`: the tasks whose memory is loaded early, because there are enough of
    /// them to pay for loading that code.
    pub ahead: u32,
}

impl Sizes {
    /// Estimate them from the number of tasks on the machine, so that the whole answer fits if it
    /// is not huge. A wrong guess only costs time: chunks are reused, and if too few tasks are
    /// remembered, the walk is repeated.
    pub fn estimate(req: &Request, mappings: u64) -> Sizes {
        let tasks = match req.strategy {
            Strategy::One => {
                let mappings = usize::try_from(mappings).unwrap_or(usize::MAX);
                // A third more than estimated, because an answer that does not fit has to be copied
                // as a whole.
                let bytes = mappings.saturating_mul(size_of::<taskdiag_wire::Vma>() * 4 / 3);
                let chunks = bytes / CHUNK_FULL + reserve(req.groups) + 1;
                let chunks = chunks.min(CHUNKS_MAX);
                return Sizes { chunks, tasks: 1, seen: 1, forgetful: false, ahead: 0 };
            }
            Strategy::All | Strategy::Children => estimate::processes(),
            Strategy::AllThread | Strategy::Thread => estimate::threads(),
        };
        let bytes = |g: Group| g.properties().price.bytes;
        let size = |groups: Groups| groups.iter().map(bytes).sum::<usize>();
        let part = |n: usize| match req.strategy {
            Strategy::All | Strategy::AllThread => n,
            _ => n / 4,
        };
        // Threads share most of these values; then only a note that names the owner is written.
        let shared = req.groups & Groups::SHARED;
        let says = shared.iter().count() * size_of::<taskdiag_wire::Shared>();
        let processes = if shared.is_empty() { 0 } else { estimate::processes() };
        let answer =
            part(tasks) * (32 + size(req.groups - shared) + says) + part(processes) * size(shared);
        let chunks = answer.div_ceil(CHUNK_FULL) + reserve(req.groups) + 1;
        // These groups take a chain of loads: each load needs the result of the previous one. For a
        // list of processes without any of them, prefetching would cost more than it saves.
        let chains = Groups::OF_MEMORY & Groups::BPF_LITE;
        let many_processes = is_by_process(req) && tasks >= MANY && req.groups.intersects(chains);
        let many_threads = match is_by_process(req) {
            true if req.groups.intersects(Groups::SUMS) => {
                estimate::threads() >= tasks + MANY_THREADS
            }
            true => false,
            false => tasks >= MANY_THREADS,
        };
        let ahead = if many_processes { AHEAD_OF_PROCESSES } else { 0 }
            | if many_threads { AHEAD_OF_THREADS } else { 0 };
        let seen = (tasks + tasks / 4 + 1024).next_power_of_two().min(SEEN_MAX) as u32;
        Sizes { chunks: chunks.min(CHUNKS_MAX), tasks, seen, forgetful: false, ahead }
    }
}

/// Does the walk follow the list of processes?
fn is_by_process(req: &Request) -> bool {
    matches!(req.strategy, Strategy::All | Strategy::Children)
}

/// The number of chunks to keep free for the rest of a task, in addition to its first one. Groups
/// of a fixed size fit into the first. Text and mappings may continue in one more. Other groups may
/// have many supplementary groups or long paths.
pub fn reserve(groups: Groups) -> usize {
    let rest = groups - Groups::FIXED_SIZE;
    if rest.is_empty() {
        0
    } else if (rest - Groups::CMDLINE - Groups::VMA).is_empty() {
        1
    } else {
        CHUNKS_RESERVE
    }
}
