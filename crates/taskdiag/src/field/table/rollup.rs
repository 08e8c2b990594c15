//! Sums over all mappings of a process, in memory and in swap.

use taskdiag_wire::{Group, Groups, Record, Rollup, Swap};

use super::super::*;

fn rollup(row: &Row<'_>, get: impl FnOnce(Record<'_, Rollup>) -> Option<u64>) -> Value<'static> {
    match row.rollup.or_else(|| row.view.owner(Group::Rollup)?.record()) {
        Some(r) => get(r).map_or(Value::UNKNOWN, Value::Uint),
        None => row.missing(Group::Rollup),
    }
}

fn swap(row: &Row<'_>, get: impl FnOnce(Record<'_, Swap>) -> Option<u64>) -> Value<'static> {
    match row.swap.or_else(|| row.view.owner(Group::Swap)?.record()) {
        Some(s) => get(s).map_or(Value::UNKNOWN, Value::Uint),
        None => row.missing(Group::Swap),
    }
}

macro_rules! rollup {
    ($name:literal $header:literal $source:literal $what:literal $get:expr) => {
        rollup!($name $header $source $what $get, {})
    };
    ($name:literal $header:literal $source:literal $what:literal $get:expr,
     {$($alias:literal $ah:literal),*}) => {
        row!($name $header 5 Right [ROLLUP] Integer Bytes Kib, $source, $what,
            {$($alias $ah),*}, |_, row| rollup(row, $get))
    };
}
macro_rules! swap {
    ($name:literal $header:literal $source:literal $what:literal $get:expr) => {
        row!($name $header 5 Right [SWAP] Integer Bytes Kib, $source, $what, {},
            |_, row| swap(row, $get))
    };
}

pub const FIELDS: &[Field] = &[
    rollup!("pss" "PSS" "/proc/PID/smaps_rollup Pss"
        "Resident, each page divided by the number of its users; text in KiB" |r| r.pss_bytes()),
    rollup!("uss" "USS" "/proc/PID/smaps_rollup Private_Clean+Private_Dirty"
        "Resident, in this process only; text in KiB"
        |r| Some(r.private_clean_bytes()?.saturating_add(r.private_dirty_bytes()?))),
    rollup!("map_rss" "RSS" "/proc/PID/smaps_rollup Rss"
        "Resident, counted by a walk over the pages; text in KiB" |r| r.rss_bytes()),
    rollup!("pss_dirty" "PSSDIRTY" "/proc/PID/smaps_rollup Pss_Dirty"
        "The dirty part of pss; text in KiB" |r| r.pss_dirty_bytes()),
    rollup!("pss_anon" "PSSANON" "/proc/PID/smaps_rollup Pss_Anon"
        "The anonymous part of pss; text in KiB" |r| r.pss_anon_bytes()),
    rollup!("pss_file" "PSSFILE" "/proc/PID/smaps_rollup Pss_File"
        "The part of pss in pages of files; text in KiB" |r| r.pss_file_bytes()),
    rollup!("pss_shmem" "PSSSHMEM" "/proc/PID/smaps_rollup Pss_Shmem"
        "The part of pss that is shared memory; text in KiB" |r| r.pss_shmem_bytes()),
    rollup!("shared_clean" "SHCLEAN" "/proc/PID/smaps_rollup Shared_Clean"
        "Resident, in several processes, not written to; text in KiB" |r| r.shared_clean_bytes()),
    rollup!("shared_dirty" "SHDIRTY" "/proc/PID/smaps_rollup Shared_Dirty"
        "Resident, in several processes, written to; text in KiB" |r| r.shared_dirty_bytes()),
    rollup!("private_clean" "PRCLEAN" "/proc/PID/smaps_rollup Private_Clean"
        "Resident, in this process only, not written to; text in KiB"
        |r| r.private_clean_bytes()),
    rollup!("private_dirty" "PRDIRTY" "/proc/PID/smaps_rollup Private_Dirty"
        "Resident, in this process only, written to; text in KiB" |r| r.private_dirty_bytes()),
    rollup!("referenced" "REF" "/proc/PID/smaps_rollup Referenced"
        "Resident and used recently; text in KiB" |r| r.referenced_bytes()),
    rollup!("anonymous" "ANONYM" "/proc/PID/smaps_rollup Anonymous"
        "Resident anonymous memory; text in KiB" |r| r.anonymous_bytes()),
    rollup!("ksm" "KSM" "/proc/PID/smaps_rollup KSM"
        "Merged with equal pages; text in KiB" |r| r.ksm_bytes()),
    rollup!("lazyfree" "LAZY" "/proc/PID/smaps_rollup LazyFree"
        "Released by madvise(MADV_FREE), but still there; text in KiB" |r| r.lazyfree_bytes()),
    rollup!("anon_huge" "THP" "/proc/PID/smaps_rollup AnonHugePages"
        "Anonymous memory in huge pages; text in KiB" |r| r.anon_huge_bytes()),
    rollup!("shmem_huge" "SHTHP" "/proc/PID/smaps_rollup ShmemPmdMapped"
        "Shared memory in huge pages; text in KiB" |r| r.shmem_huge_bytes()),
    rollup!("file_huge" "FILETHP" "/proc/PID/smaps_rollup FilePmdMapped"
        "Pages of files in huge pages; text in KiB" |r| r.file_huge_bytes()),
    rollup!("htshr" "HTSHR" "/proc/PID/smaps_rollup Shared_Hugetlb"
        "Pages of hugetlbfs, in several processes; text in KiB" |r| r.shared_hugetlb_bytes(),
        {"shared_hugetlb" "HTSHR"}),
    rollup!("htprv" "HTPRV" "/proc/PID/smaps_rollup Private_Hugetlb"
        "Pages of hugetlbfs, in this process only; text in KiB" |r| r.private_hugetlb_bytes(),
        {"private_hugetlb" "HTPRV"}),
    rollup!("map_swap" "SWAP" "/proc/PID/smaps_rollup Swap"
        "Swapped out, shared memory included; text in KiB" |r| r.swap_bytes()),
    rollup!("swap_pss" "SWAPPSS" "/proc/PID/smaps_rollup SwapPss"
        "Swapped out, each page divided by the number of its users; text in KiB"
        |r| r.swap_pss_bytes()),
    swap!("swap_anon" "SWANON" "/proc/PID/status VmSwap"
        "Swapped-out anonymous memory; text in KiB" |s| s.anon_bytes()),
    swap!("swap_shmem" "SWSHMEM" "/proc/PID/maps, /proc/self/smaps, cachestat(2)"
        "Swapped-out pages of the shared memory that it maps; text in KiB" |s| s.shmem_bytes()),
    swap!("swap_total" "SWAP" "/proc/PID/status VmSwap, /proc/PID/maps, /proc/self/smaps, cachestat(2)"
        "Swapped out, anonymous and shared, without a walk over its pages; text in KiB"
        |s| Some(s.anon_bytes()?.saturating_add(s.shmem_bytes()?))),
];

/// In the table of memory, `swap` includes shared memory.
pub const MEMORY: &[Field] = &[rollup!("swap" "SWAP" "/proc/PID/smaps_rollup Swap"
    "Swapped out, shared memory included; text in KiB" |r| r.swap_bytes())];
