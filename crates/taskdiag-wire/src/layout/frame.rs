//! The structs of requests and answers, and the headers of messages and attributes. They have no
//! values of a task.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::fixed::{BootId, Fixed};
use crate::groups::Groups;
use crate::names::Strategy;
use crate::table::{CStruct, Member, c_name};

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
    /// A request: the tasks and the groups.
    Req = "task_diag_req", least 24 {
        /// Requested groups, bit n = group n.
        show_flags: u64,
        /// `TASK_DIAG_DUMP_*`.
        dump_strategy: u64,
        /// For ONE, CHILDREN and THREAD; otherwise 0.
        pid: u32,
        /// 0.
        reserved: u32,
        /// Leave out VMA_STAT and ROLLUP of processes with more resident memory than this. 0: no
        /// limit.
        max_rss_bytes: u64,
        /// Time for all VMA_STAT and ROLLUP of the answer together, ns. 0: no limit.
        budget_ns: u64,
        /// Members of BASE that may be missing: bits of its `valid`.
        skip_base: u32,
        /// Members of STAT that may be missing: bits of its `valid`.
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
    /// The features that an engine supports.
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
    /// The first message of a stream: the request, its time, the machine, and the engines.
    Info = "task_diag_info", least 88 {
        /// `MAGIC`.
        magic: u32,
        /// `VERSION`.
        version: u32,
        /// Requested groups.
        show_flags: u64,
        /// Requested strategy.
        dump_strategy: u64,
        /// Requested pid, or 0.
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
        /// The boot of the machine.
        boot_id: BootId,
        /// The name of the host, as uname(2) gave it to the reader of the values.
        nodename: Fixed<64>,
        /// The release of its kernel, from uname(2).
        release: Fixed<64>,
        /// Its architecture, from uname(2).
        machine: Fixed<32>,
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
    /// The data that a recorder removed from the stream of one user's tasks.
    Cut = "task_diag_cut", least 40 {
        /// Real uid of the tasks, or [`CUT_OTHERS`](crate::CUT_OTHERS).
        uid: u32,
        /// Control groups of this owner that are left out of the stream.
        cgroups: u32,
        /// Tasks that are left out of the stream.
        tasks: u64,
        /// Tasks in the stream with values that are cut or left out.
        cut_tasks: u64,
        /// Bytes of such values.
        cut_bytes: u64,
        /// Answers before this one that were left out completely. Only for `CUT_OTHERS`.
        answers: u64,
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
        /// Tasks in the stream that lack a group because the reader has no right to it.
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
    /// The group's value is shared with another task in the stream.
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
