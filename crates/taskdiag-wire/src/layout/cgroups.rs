//! The structs of control groups in recordings. They have no values of a task.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::table::{Attribute, CStruct, Entry, ListEntry, Member, c_name};

plain! {
    /// The head of the list of control groups.
    CgroupList = "task_diag_cgroup_list", least 48 {
        /// `CLOCK_BOOTTIME` when the first of them was read, ns.
        boottime_ns: u64,
        /// Groups that were seen and not read, because there are too many.
        left_out: u64,
        /// Groups that were seen and not read, because they are too many levels deep.
        too_deep: u64,
        /// Groups that a recorder took out of the stream, to keep room for others' data.
        no_room: u64,
        /// The most groups that are read.
        most: u32,
        /// The most levels below the root that are read.
        levels: u32,
        /// `CG_HAS_V1`.
        flags: u32,
        /// 0.
        reserved: u32,
    }
}

plain! {
    /// Head of the message of a control group, after the `nlmsghdr`.
    CgroupMsg = "task_diag_cgroup_msg" {
        /// Inode number of its directory. 0: not known.
        id: u64,
        /// When its files were read, counted from `boottime_ns` of the list, ns. A recorder may
        /// round it down.
        after_ns: u64,
        /// `CG_IS_V2`, `CG_HAS_OWNER`.
        flags: u32,
        /// With `CG_HAS_OWNER`: the owner of the outermost directory above it that is not the
        /// root's, who may have made it.
        uid: u32,
    }
}

entry! {
    /// A value of a control group.
    CgroupValue = "task_diag_cgroup_value", least 16;
    {
        /// The value, in the unit of its member.
        value: u64,
        /// A [`CgroupMember`](crate::CgroupMember).
        member: u32,
        /// Not 0: there is no value; `TASK_DIAG_R_*`.
        reason: u16,
        /// `CG_UNLIMITED`.
        flags: u16,
    }
}
