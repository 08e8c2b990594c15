//! The records of the memory of a process, and the entries of the list of its mappings.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::frame::NlAttr;
use crate::table::{Attribute, CStruct, Entry, GroupRecord, ListEntry, Member, Record, c_name};

record! {
    /// STATM: the address space, bytes. Source: `/proc/PID/status`, `mm_struct`.
    Statm = "task_diag_statm", least 128;
    {
        /// Virtual size (VmSize).
        size_bytes: u64,
        /// Peak virtual size (VmPeak).
        peak_size_bytes: u64,
        /// Resident set (VmRSS).
        rss_bytes: u64,
        /// Resident anonymous memory (RssAnon).
        rss_anon_bytes: u64,
        /// Resident file mappings (RssFile).
        rss_file_bytes: u64,
        /// Resident shared memory (RssShmem).
        rss_shmem_bytes: u64,
        /// Peak resident set (VmHWM).
        peak_rss_bytes: u64,
        /// Private data mappings (VmData).
        data_bytes: u64,
        /// Stack mappings (VmStk).
        stack_bytes: u64,
        /// Program text (VmExe).
        text_bytes: u64,
        /// Other executable mappings (VmLib).
        lib_bytes: u64,
        /// Locked memory (VmLck).
        locked_bytes: u64,
        /// Pinned memory (VmPin).
        pinned_bytes: u64,
        /// Page tables (VmPTE).
        page_tables_bytes: u64,
        /// Swapped-out anonymous memory (VmSwap).
        swap_bytes: u64,
        /// Pages of hugetlbfs (HugetlbPages), which are not in the resident set.
        hugetlb_bytes: u64,
    }
}

entry! {
    /// VMA: one memory mapping. Source: `/proc/PID/maps`, `vm_area_struct`.
    Vma = "task_diag_vma", least 56;
    {
        /// First address.
        start: u64,
        /// First address after it.
        end: u64,
        /// Offset of `start` in the file, bytes.
        offset_bytes: u64,
        /// Inode of the file, 0: none.
        inode: u64,
        /// Device number of the file system.
        dev: u32,
        /// Number of its name ([`TaskView::name`](crate::TaskView::name)), 0: none.
        name: u32,
        /// `VMA_*`.
        perms: u32,
        /// Bits of [`VMA_FLAGS`](crate::names::VMA_FLAGS).
        flags: u32,
        /// A [`VmaKind`](crate::names::VmaKind).
        kind: u32,
    } pad { reserved: u32, }
}

entry! {
    /// VMA_STAT: how much of one mapping is in memory, bytes. Source: `/proc/PID/smaps`.
    VmaStat = "task_diag_vma_stat", least 208;
    {
        /// First address.
        start: u64,
        /// First address after it.
        end: u64,
        /// Resident.
        rss_bytes: u64,
        /// Each page divided by the number of mappings that have it.
        pss_bytes: u64,
        /// The dirty part of pss.
        pss_dirty_bytes: u64,
        /// The anonymous part of pss.
        pss_anon_bytes: u64,
        /// The file part of pss.
        pss_file_bytes: u64,
        /// The shared-memory part of pss.
        pss_shmem_bytes: u64,
        /// Pages that others map, too, unchanged.
        shared_clean_bytes: u64,
        /// Pages that others map, too, changed.
        shared_dirty_bytes: u64,
        /// Pages of this mapping alone, unchanged.
        private_clean_bytes: u64,
        /// Pages of this mapping alone, changed.
        private_dirty_bytes: u64,
        /// Marked as accessed.
        referenced_bytes: u64,
        /// Mappings of no file.
        anonymous_bytes: u64,
        /// Merged by KSM.
        ksm_bytes: u64,
        /// `MADV_FREE`d and still there.
        lazyfree_bytes: u64,
        /// Anonymous huge pages.
        anon_huge_bytes: u64,
        /// Huge pages of shared memory, mapped as such (ShmemPmdMapped).
        shmem_huge_bytes: u64,
        /// Huge pages of files, mapped as such (FilePmdMapped).
        file_huge_bytes: u64,
        /// hugetlbfs pages that others map, too.
        shared_hugetlb_bytes: u64,
        /// hugetlbfs pages of this mapping alone.
        private_hugetlb_bytes: u64,
        /// Swapped out, of shared memory too.
        swap_bytes: u64,
        /// Swapped out, divided by users; not of shared memory.
        swap_pss_bytes: u64,
        /// The locked part of pss.
        locked_bytes: u64,
        /// 1: it may have huge pages (THPeligible).
        thp_eligible: u64,
        /// The memory protection key (`pkeys(7)`), if the processor has such keys.
        protection_key: u64,
    }
}

record! {
    /// ROLLUP: how much of all mappings together is in memory, bytes. Source:
    /// `/proc/PID/smaps_rollup`.
    Rollup = "task_diag_rollup", least 184;
    {
        /// Resident.
        rss_bytes: u64,
        /// Each page divided by the number of mappings that have it.
        pss_bytes: u64,
        /// The dirty part of pss.
        pss_dirty_bytes: u64,
        /// The anonymous part of pss.
        pss_anon_bytes: u64,
        /// The file part of pss.
        pss_file_bytes: u64,
        /// The shared-memory part of pss.
        pss_shmem_bytes: u64,
        /// Pages that others map, too, unchanged.
        shared_clean_bytes: u64,
        /// Pages that others map, too, changed.
        shared_dirty_bytes: u64,
        /// Pages of this mapping alone, unchanged.
        private_clean_bytes: u64,
        /// Pages of this mapping alone, changed.
        private_dirty_bytes: u64,
        /// Marked as accessed.
        referenced_bytes: u64,
        /// Mappings of no file.
        anonymous_bytes: u64,
        /// Merged by KSM.
        ksm_bytes: u64,
        /// `MADV_FREE`d and still there.
        lazyfree_bytes: u64,
        /// Anonymous huge pages.
        anon_huge_bytes: u64,
        /// Huge pages of shared memory, mapped as such (ShmemPmdMapped).
        shmem_huge_bytes: u64,
        /// Huge pages of files, mapped as such (FilePmdMapped).
        file_huge_bytes: u64,
        /// hugetlbfs pages that others map, too.
        shared_hugetlb_bytes: u64,
        /// hugetlbfs pages of this mapping alone.
        private_hugetlb_bytes: u64,
        /// Swapped out, of shared memory too.
        swap_bytes: u64,
        /// Swapped out, divided by users; not of shared memory.
        swap_pss_bytes: u64,
        /// The locked part of pss.
        locked_bytes: u64,
    }
}

record! {
    /// SWAP: swapped-out memory, found without a walk over pages. Source: `/proc/PID/status`,
    /// the counters of shared memory objects.
    Swap = "task_diag_swap", least 32;
    {
        /// Anonymous memory (VmSwap), bytes.
        anon_bytes: u64,
        /// Swapped-out pages of shared memory objects within the mapped ranges, bytes.
        shmem_bytes: u64,
        /// How much too large `shmem_bytes` may be. In private writable mappings, copies of pages
        /// cannot be distinguished from pages of the object. 0: `shmem_bytes` is exact.
        private_shmem_bytes: u64,
    }
}
