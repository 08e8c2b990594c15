//! The structs of `uapi/task_diag.h`, member for member.
//!
//! The C header is the original. `tests/layout.rs` compiles it and compares
//! every offset and size with the tables that `record!` makes here.

use crate::names::{Groups, Strategy};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::table::c_name;
pub use crate::table::{Attribute, CStruct, Entry, GroupRecord, ListEntry, Member, bit};

plain! {
    /// `struct nlattr`.
    NlAttr = "nlattr" {
        /// Length in bytes, header included.
        len: u16,
        /// Attribute type (`nla_type`).
        kind: u16,
    }
}

plain! {
    /// `struct nlmsghdr`.
    NlMsgHdr = "nlmsghdr" {
        /// Length in bytes, header included.
        len: u32,
        /// Message type.
        kind: u16,
        /// `NLM_F_*`.
        flags: u16,
        /// Sequence number of the request.
        seq: u32,
        /// Port id; 0 here.
        pid: u32,
    }
}

plain! {
    /// A request: which tasks, which groups.
    Req = "task_diag_req", least 24 {
        /// Groups asked for, bit n = group n.
        show_flags: u64,
        /// `TASK_DIAG_DUMP_*`.
        dump_strategy: u64,
        /// For ONE, CHILDREN and THREAD; otherwise 0.
        pid: u32,
        /// 0.
        reserved: u32,
        /// Leave out VMA_STAT and ROLLUP of processes with more resident memory than this. 0: no limit.
        max_rss_bytes: u64,
        /// Time for all VMA_STAT and ROLLUP of the answer together, ns. 0: no limit.
        budget_ns: u64,
        /// Members of BASE that need not be there: bits of its `valid`.
        skip_base: u32,
        /// Members of STAT that need not be there: bits of its `valid`.
        skip_stat: u32,
    }
}

impl Req {
    /// A request without limits.
    pub fn new(strategy: Strategy, pid: u32, groups: Groups) -> Req {
        Req { show_flags: groups.bits(), dump_strategy: strategy as u64, pid, ..Req::default() }
    }
    /// Which tasks; `None`: a strategy that this version does not know.
    pub fn strategy(&self) -> Option<Strategy> {
        Strategy::from_number(self.dump_strategy)
    }
    /// Which groups. There may be some that this version does not know.
    pub fn groups(&self) -> Groups {
        Groups::from_bits(self.show_flags)
    }
}

plain! {
    /// What an engine supports.
    Features = "task_diag_features", least 24 {
        /// `TASK_DIAG_VERSION` of the writer.
        version: u32,
        /// 0.
        reserved: u32,
        /// Supported groups, bit n = group n.
        groups: u64,
        /// Supported strategies, bit n = strategy n.
        strategies: u64,
    }
}

plain! {
    /// The first message of a stream: what was asked, when, on which machine, and who served it.
    Info = "task_diag_info", least 88 {
        /// `MAGIC`.
        magic: u32,
        /// `VERSION`.
        version: u32,
        /// Groups asked for.
        show_flags: u64,
        /// Strategy asked for.
        dump_strategy: u64,
        /// Pid asked for, or 0.
        pid: u32,
        /// Online CPUs.
        ncpus: u32,
        /// `CLOCK_REALTIME` at the start of the walk, ns.
        realtime_ns: u64,
        /// `CLOCK_BOOTTIME` at the same moment, ns.
        boottime_ns: u64,
        /// Total memory, bytes; 0: not known.
        mem_total_bytes: u64,
        /// Page size, bytes.
        page_size: u32,
        /// Clock ticks a second.
        clk_tck: u32,
        /// Groups that the kernel engine served.
        kernel_groups: u64,
        /// Groups that the bpf engine served.
        bpf_groups: u64,
        /// Groups that the procfs engine served.
        procfs_groups: u64,
    }
}

plain! {
    /// Head of a task's message, after the `nlmsghdr`.
    TaskMsg = "task_diag_msg" {
        /// Thread id (of the leader, for a process).
        pid: u32,
        /// Process id.
        tgid: u32,
        /// `FLAG_CONT`.
        flags: u32,
        /// 0.
        reserved: u32,
    }
}

plain! {
    /// Payload of the DONE message.
    Done = "task_diag_done", least 56 {
        /// 0, or a negative errno that ended the walk early.
        error: i32,
        /// 0.
        reserved: u32,
        /// Tasks in the stream.
        tasks: u64,
        /// Tasks in the stream that lack a group because the reader has not the right to it.
        denied: u64,
        /// Tasks that ended during the walk, and are left out or incomplete.
        vanished: u64,
        /// Tasks that lack a group because reading it would have waited.
        blocked: u64,
        /// Tasks with a value that is cut.
        truncated: u64,
        /// Tasks that lack a group because of a limit in the request.
        over_budget: u64,
    }
}

plain! {
    /// Head of the MISSING attribute.
    MissingHdr = "task_diag_missing" {
        /// Length and type.
        nla: NlAttr,
        /// Entries that follow.
        count: u32,
    }
}

plain! {
    /// One entry of the MISSING attribute.
    MissingEntry = "task_diag_missing_entry" {
        /// Group number.
        group: u32,
        /// `TASK_DIAG_R_*`.
        reason: u32,
    }
}

plain! {
    /// Head of an attribute of variable length.
    BlobHdr = "task_diag_blob" {
        /// Length and type.
        nla: NlAttr,
        /// PATHS: which path; CGROUP_PATH: hierarchy id; else 0.
        kind: u32,
        /// Bytes of data in this attribute.
        len: u32,
        /// Offset of this data in the whole value.
        offset: u32,
        /// Bytes of the whole value.
        total: u32,
        /// `BLOB_*`.
        flags: u16,
        /// Not 0: there is no value; `TASK_DIAG_R_*`.
        reason: u16,
    }
}

plain! {
    /// Head of an attribute that holds (part of) a list.
    ArrayHdr = "task_diag_array" {
        /// Length and type.
        nla: NlAttr,
        /// Bit i: the i-th member of each entry is known.
        valid: u32,
        /// Bytes of an entry.
        size: u32,
        /// Entries that follow.
        count: u32,
    }
}

plain! {
    /// The group's value is that of another task in the stream.
    Shared = "task_diag_shared", least 16 {
        /// Length and type.
        nla: NlAttr,
        /// Group number.
        group: u32,
        /// Thread id of the task that has the value.
        pid: u32,
        /// 0.
        reserved: u32,
    }
}

record! {
    /// BASE: who it is. Source: `/proc/PID/stat`, `task_struct`. Only kernel threads have command names of
    /// more than 15 bytes. The whole of such a name is in an attribute of its own, and
    /// [`TaskView::comm`](crate::TaskView::comm) returns it.
    Base = "task_diag_base", least 56;
    {
        /// Parent process. 0: none is visible to the reader.
        ppid: u32,
        /// Process group.
        pgid: u32,
        /// Session.
        sid: u32,
        /// `TASK_KTHREAD`, `TASK_EXITING`.
        flags: u32,
        /// `PF_*`.
        task_flags: u32,
        /// State letter, as in `/proc/PID/stat`.
        state: u8,
    } pad { reserved: [u8; 3], } then {
        /// Start time since boot, suspended time included, ns.
        start_time_ns: u64,
        /// Command name, filled with NULs, the last byte always NUL.
        comm: [u8; 16],
    }
}

impl Base {
    /// The bit of `valid` for the command name.
    pub const KNOWS_COMM: u32 = bit(Base::MEMBERS, "comm");
}

record! {
    /// CRED: whose it is and who controls it. Source: `/proc/PID/status`, `task->real_cred`.
    Cred = "task_diag_cred", least 104;
    {
        /// Real uid.
        uid: u32,
        /// Effective uid.
        euid: u32,
        /// Saved uid.
        suid: u32,
        /// File-system uid.
        fsuid: u32,
        /// Real gid.
        gid: u32,
        /// Effective gid.
        egid: u32,
        /// Saved gid.
        sgid: u32,
        /// File-system gid.
        fsgid: u32,
        /// Thread id of the ptracer, or 0.
        tracer_pid: u32,
        /// `SECBIT_*`; not in /proc.
        securebits: u32,
        /// 0 or 1.
        no_new_privs: u32,
        /// 0 off, 1 strict, 2 filter.
        seccomp: u32,
        /// Inheritable capability set.
        cap_inheritable: u64,
        /// Permitted capability set.
        cap_permitted: u64,
        /// Effective capability set.
        cap_effective: u64,
        /// Capability bounding set.
        cap_bounding: u64,
        /// Ambient capability set.
        cap_ambient: u64,
        /// Number of supplementary gids.
        ngroups: u32,
    } pad { reserved: u32, } then {}
}

record! {
    /// STAT: what it has used, how it is scheduled. Source: `/proc/PID/stat`, `task_struct`, `signal_struct`.
    Stat = "task_diag_stat", least 112;
    {
        /// Minor faults.
        minflt: u64,
        /// Major faults.
        majflt: u64,
        /// Minor faults of waited-for children.
        cminflt: u64,
        /// Major faults of waited-for children.
        cmajflt: u64,
        /// User CPU time, ns.
        utime_ns: u64,
        /// System CPU time, ns.
        stime_ns: u64,
        /// User CPU time of waited-for children, ns.
        cutime_ns: u64,
        /// System CPU time of waited-for children, ns.
        cstime_ns: u64,
        /// -20 to 19.
        nice: i32,
        /// 20 + nice, or negative for real-time policies.
        priority: i32,
        /// Real-time priority, 0 to 99.
        rt_priority: u32,
        /// `SCHED_*`.
        policy: u32,
        /// CPU it last ran on.
        processor: u32,
        /// Threads of the process.
        num_threads: u32,
        /// Device number of the controlling terminal, 0: none.
        tty_nr: u32,
        /// Foreground process group of the terminal, -1: none.
        tty_pgrp: i32,
        /// Signal sent to the parent at exit, -1 for a thread.
        exit_signal: i32,
        /// `STAT_LOCKED`; not in `/proc/PID/stat`.
        flags: u32,
    }
}

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

record! {
    /// IO: bytes and calls of input and output. Source: `/proc/PID/io`, `task->ioac`.
    Io = "task_diag_io", least 64;
    {
        /// Bytes through read calls.
        rchar: u64,
        /// Bytes through write calls.
        wchar: u64,
        /// Read calls.
        syscr: u64,
        /// Write calls.
        syscw: u64,
        /// Bytes fetched from storage.
        read_bytes: u64,
        /// Bytes sent to storage.
        write_bytes: u64,
        /// Bytes of dirty page cache that were dropped before they were written.
        cancelled_write_bytes: u64,
    }
}

record! {
    /// SCHED: times on and waiting for a CPU. Source: `/proc/PID/schedstat`, `/proc/PID/status`,
    /// `task->sched_info`.
    Sched = "task_diag_sched", least 56;
    {
        /// Time on a CPU, ns.
        run_time_ns: u64,
        /// Time ready but waiting for a CPU, ns; live threads only.
        run_delay_ns: u64,
        /// Times it was given a CPU; live threads only.
        timeslices: u64,
        /// Voluntary context switches.
        nvcsw: u64,
        /// Involuntary context switches.
        nivcsw: u64,
        /// `SCHED_LIVE_ONLY`.
        flags: u32,
    } pad { reserved: u32, } then {}
}

record! {
    /// NS: inode numbers of the namespaces. Source: `/proc/PID/ns`, `task->nsproxy`.
    Ns = "task_diag_ns", least 48;
    {
        /// Cgroup namespace.
        cgroup: u32,
        /// IPC namespace.
        ipc: u32,
        /// Mount namespace.
        mnt: u32,
        /// Network namespace.
        net: u32,
        /// Pid namespace.
        pid: u32,
        /// Pid namespace of its future children.
        pid_for_children: u32,
        /// Time namespace.
        time: u32,
        /// Time namespace of its future children.
        time_for_children: u32,
        /// User namespace.
        user: u32,
        /// UTS namespace.
        uts: u32,
    }
}

record! {
    /// CGROUP: the v2 cgroup's id. Source: `/proc/PID/cgroup`, `task->cgroups`.
    Cgroup = "task_diag_cgroup", least 16;
    {
        /// Inode number of the directory of its v2 cgroup.
        id: u64,
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
        /// Not of any file.
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
    /// ROLLUP: how much of all mappings together is in memory, bytes. Source: `/proc/PID/smaps_rollup`.
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
        /// Not of any file.
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
        /// By how much `shmem_bytes` may be too large. In private writable mappings, copies of
        /// pages cannot be told from pages of the object. 0: `shmem_bytes` is exact.
        private_shmem_bytes: u64,
    }
}

record! {
    /// FD_COUNT: how many files are open. Source: `/proc/PID/fd`, `files_struct`.
    FdCount = "task_diag_fd_count", least 16;
    {
        /// Open file descriptors.
        open: u32,
        /// Size of the table.
        size: u32,
    }
}

entry! {
    /// FD: one open file. Source: `/proc/PID/fd`, `/proc/PID/fdinfo`, `struct file`.
    Fd = "task_diag_fd", least 64;
    {
        /// File descriptor.
        fd: u32,
        /// A [`FdType`](crate::names::FdType).
        r#type: u32,
        /// File position, bytes.
        pos_bytes: u64,
        /// Inode.
        inode: u64,
        /// Device number of the file system.
        dev: u32,
        /// Device number of a device file, else 0.
        rdev: u32,
        /// `O_*`, with `O_CLOEXEC` of the descriptor.
        flags: u32,
        /// `S_IF*` and permissions, as in `st_mode`.
        mode: u32,
        /// Mount, as in `/proc/PID/mountinfo`.
        mnt_id: u32,
        /// Number of its name ([`TaskView::name`](crate::TaskView::name)), 0: none.
        name: u32,
        /// Size of the file, bytes.
        size_bytes: u64,
        /// Hard links.
        nlink: u32,
    } pad { reserved: u32, }
}

entry! {
    /// FILE_STAT: a file that a task uses without a descriptor. Source: `stat(2)` of
    /// `/proc/PID/{exe,cwd,root}` and of mapped files, `struct inode`.
    FileStat = "task_diag_file_stat", least 40;
    {
        /// A [`FileUse`](crate::names::FileUse).
        r#as: u32,
        /// Device number of the file system.
        dev: u32,
        /// Inode.
        inode: u64,
        /// Size of the file, bytes.
        size_bytes: u64,
        /// `S_IF*` and permissions, as in `st_mode`.
        mode: u32,
        /// Hard links.
        nlink: u32,
        /// Mount, as in `/proc/PID/mountinfo`.
        mnt_id: u32,
        /// Device number of a device file, else 0.
        rdev: u32,
    }
}

entry! {
    /// One open socket. Source: `sock_diag(7)`, `/proc/PID/net`, `struct sock`.
    Socket = "task_diag_socket", least 96;
    {
        /// Inode, as in [`Fd`].
        inode: u64,
        /// File descriptor.
        fd: u32,
        /// Inode number of its network namespace.
        netns: u32,
        /// `AF_*`.
        family: u16,
        /// `SOCK_*`.
        r#type: u16,
        /// `IPPROTO_*`, `NETLINK_*`; for `AF_PACKET` the ethertype.
        protocol: u16,
        /// `TCP_*`, also for `AF_UNIX`: 1 connected, 7 unconnected, 10 listening.
        state: u16,
        /// Local port.
        local_port: u16,
        /// Remote port.
        peer_port: u16,
        /// Bound interface, or 0.
        ifindex: u32,
        /// Local address, network byte order; `AF_INET`: the first 4 bytes.
        local_addr: [u8; 16],
        /// Remote address.
        peer_addr: [u8; 16],
        /// `AF_UNIX`: inode of the other end, or 0.
        peer_inode: u64,
        /// `AF_UNIX`: number of its path, or of `@` and its abstract name.
        name: u32,
        /// `AF_NETLINK`: port id.
        portid: u32,
        /// Bytes not yet received by the process.
        recv_queue_bytes: u64,
        /// Bytes not yet sent or acknowledged.
        send_queue_bytes: u64,
    }
}

entry! {
    /// Details of one descriptor that are particular to its type. Source: `/proc/PID/fdinfo`.
    FdDetail = "task_diag_fd_detail", least 48;
    {
        /// File descriptor.
        fd: u32,
        /// A [`FdDetailKind`](crate::names::FdDetailKind), which tells what the values are.
        kind: u32,
        /// Values.
        value: [u64; 5],
    }
}

record! {
    /// LIMITS: resource limits by the number of `RLIMIT_*`. All ones mean unlimited. Source: `/proc/PID/limits`.
    Limits = "task_diag_limits", least 264;
    {
        /// Soft limits.
        soft: [u64; 16],
        /// Hard limits.
        hard: [u64; 16],
    }
}

record! {
    /// SIGNALS: bit n-1 stands for signal n. Source: `/proc/PID/status`.
    Signals = "task_diag_signals", least 56;
    {
        /// Pending for the thread.
        pending: u64,
        /// Pending for the process.
        shared_pending: u64,
        /// Blocked.
        blocked: u64,
        /// Ignored.
        ignored: u64,
        /// Caught.
        caught: u64,
        /// Signals queued for the real uid.
        queued: u32,
    } pad { reserved: u32, } then {}
}

record! {
    /// OOM: how soon it is killed when memory runs out. Source: `/proc/PID/oom_score`,
    /// `/proc/PID/oom_score_adj`.
    Oom = "task_diag_oom", least 16;
    {
        /// The kernel's score: 0 to 2000, the highest is killed first.
        score: u32,
        /// The user's adjustment: -1000 (never) to 1000.
        score_adj: i32,
    }
}

record! {
    /// AUTOGROUP: the group of tasks that it shares CPU time with. Source: `/proc/PID/autogroup`,
    /// `signal->autogroup`.
    Autogroup = "task_diag_autogroup", least 24;
    {
        /// Number of the group.
        id: u64,
        /// Nice value of the group.
        nice: i32,
    } pad { reserved: u32, } then {}
}

record! {
    /// LOGIN: who logged in, even if the process has changed its ids since. All ones: it belongs to no login.
    /// Source: `/proc/PID/loginuid`, `/proc/PID/sessionid`, `task->loginuid`.
    Login = "task_diag_login", least 16;
    {
        /// Uid of the login.
        uid: u32,
        /// Audit session.
        session: u32,
    }
}

/// The structs that frame those of the [registry](mod@crate::registry).
pub const FRAMES: &[&CStruct] = &[
    &NlAttr::C,
    &NlMsgHdr::C,
    &Req::C,
    &Features::C,
    &Info::C,
    &TaskMsg::C,
    &Done::C,
    &MissingHdr::C,
    &MissingEntry::C,
    &BlobHdr::C,
    &ArrayHdr::C,
];

/// Every struct of the header, for the test that pins their layout.
pub fn c_structs() -> impl Iterator<Item = &'static CStruct> {
    FRAMES.iter().copied().chain(crate::registry::STRUCTS.iter().map(|s| s.table))
}
