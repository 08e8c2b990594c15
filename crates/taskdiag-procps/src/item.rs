//! The items of `enum pids_item` and their sources.
//!
//! With this table, a tool only pays for the items that it requests. Each item names its groups of
//! taskdiag, and their members. For an item without a source here, the real library is used, for
//! that item only.
//!
//! The two binary interfaces have different numbers for most items, because the enum is in
//! alphabetical order and got new members in between. So a number is meaningless without its
//! interface.

use std::ffi::c_int;

use taskdiag::{Groups, Members};

use crate::abi::Abi;

/// Which file of /proc the real library reads for an item. It decides details of other items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum File {
    /// `stat`.
    Stat,
    /// `status`.
    Status,
    /// Either of the two. `stat` is read only if no other item needs one of them.
    Either,
    /// Another file, or no file.
    Other,
}

/// How an item's value is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// A number.
    Number,
    /// A string.
    Str,
    /// A list of strings.
    Strv,
}

/// The source of an item.
#[derive(Clone, Copy, Debug)]
pub struct Need {
    /// Groups of taskdiag.
    pub groups: Groups,
    /// Members of these.
    pub members: Members,
    /// The file that the real library reads for the item.
    pub file: File,
    /// Its stored form.
    pub kind: ValueKind,
    /// Is it the difference to the last fetch?
    pub is_delta: bool,
    /// Does it come from the real library?
    pub is_old: bool,
    /// Whether the item is a sum over threads in the row of a process, and the value of one thread
    /// in the row of a thread.
    pub is_sum: bool,
    /// Is it in libproc2.so.1 only?
    pub is_new: bool,
}

const NOTHING: Need = Need {
    groups: Groups::NONE,
    members: Members::NONE,
    file: File::Other,
    kind: ValueKind::Number,
    is_delta: false,
    is_old: false,
    is_sum: false,
    is_new: false,
};

impl Need {
    const fn file(self, file: File) -> Need {
        Need { file, ..self }
    }
    const fn str(self) -> Need {
        Need { kind: ValueKind::Str, ..self }
    }
    const fn strv(self) -> Need {
        Need { kind: ValueKind::Strv, ..self }
    }
    const fn sum(self) -> Need {
        Need { is_sum: true, ..self }
    }
    const fn delta(self) -> Need {
        Need { is_delta: true, is_sum: true, ..self }
    }
    const fn new_in_so1(self) -> Need {
        Need { is_new: true, ..self }
    }
}

const fn group(groups: Groups) -> Need {
    // The real library shows the paths of all hierarchies.
    let members = match groups.contains(Groups::CGROUP) {
        true => Members::of(Groups::CGROUP, &[]),
        false => Members::NONE,
    };
    Need { groups, members, ..NOTHING }
}

const fn members(groups: Groups, names: &[&str], file: File) -> Need {
    Need { groups, members: Members::of(groups, names), file, ..NOTHING }
}

/// Members of BASE, which the real library reads from `stat`.
const fn base(names: &[&str]) -> Need {
    members(Groups::BASE, names, File::Stat)
}

/// Members of STAT, which the real library reads from `stat`.
const fn stat(names: &[&str]) -> Need {
    members(Groups::STAT, names, File::Stat)
}

/// Times that also need the start of the task.
const fn since(names: &[&str]) -> Need {
    let start = Members::of(Groups::BASE, &["start_time_ns"]);
    let own = stat(names);
    Need { groups: Groups::STAT.union(Groups::BASE), members: own.members.union(start), ..own }
}

/// Members of STATM, which the real library reads from `status` or `statm`.
const fn size(names: &[&str], file: File) -> Need {
    members(Groups::STATM, names, file)
}

/// A member of CRED, which the real library reads from `status`.
const fn cred(name: &str) -> Need {
    members(Groups::CRED, &[name], File::Status)
}

/// Arguments, and the name where there are none.
const fn cmdline() -> Need {
    let name = Members::of(Groups::BASE, &["comm", "state"]);
    Need { groups: Groups::CMDLINE.union(Groups::BASE), members: name, ..NOTHING }
}

/// From the real library.
const fn old(file: File) -> Need {
    Need { is_old: true, file, ..NOTHING }
}

macro_rules! items {
    ($($name:ident $need:expr;)*) => {
        /// An item, named as in `enum pids_item`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[expect(non_camel_case_types, clippy::upper_case_acronyms, reason = "the names are the same as in the header")]
        pub enum Item { $($name,)* }

        impl Item {
            /// All items in the order of libproc2.so.1.
            pub const ALL: &[Item] = &[$(Item::$name,)*];

            /// Its source.
            pub const fn need(self) -> Need {
                match self { $(Item::$name => const { $need },)* }
            }

            /// The name of the item in the header, without `PIDS_`.
            pub const fn name(self) -> &'static str {
                match self { $(Item::$name => stringify!($name),)* }
            }
        }
    };
}

/// How many items libproc2.so.0 has.
const IN_SO0: usize = 157;

/// The items of libproc2.so.0, in its order.
const SO0: [Item; IN_SO0] = {
    let mut items = [Item::NOOP; IN_SO0];
    let (mut from, mut to) = (0, 0);
    while from < Item::ALL.len() {
        if !Item::ALL[from].need().is_new {
            items[to] = Item::ALL[from];
            to += 1;
        }
        from += 1;
    }
    assert!(to == IN_SO0, "the same number as in the header");
    items
};

/// The number of each item in libproc2.so.0. Items that it does not have are never requested there.
const SO0_NUMBERS: [c_int; Item::ALL.len()] = {
    let mut numbers = [-1; Item::ALL.len()];
    let mut number = 0;
    while number < IN_SO0 {
        numbers[SO0[number] as usize] = number as c_int;
        number += 1;
    }
    numbers
};

impl Item {
    /// All items of an interface, in the order of their numbers.
    pub const fn all(abi: Abi) -> &'static [Item] {
        match abi {
            Abi::So0 => &SO0,
            Abi::So1 => Item::ALL,
        }
    }

    /// The item that has this number.
    pub fn of(number: c_int, abi: Abi) -> Option<Item> {
        Item::all(abi).get(usize::try_from(number).ok()?).copied()
    }

    /// Its number.
    pub fn number(self, abi: Abi) -> c_int {
        match abi {
            Abi::So0 => SO0_NUMBERS[self as usize],
            Abi::So1 => self as c_int,
        }
    }
}

use File::{Either, Other, Stat, Status};

items! {
    NOOP NOTHING;
    EXTRA NOTHING;
    ADDR_CODE_END old(Stat);
    ADDR_CODE_START old(Stat);
    ADDR_CURR_EIP old(Stat);
    ADDR_CURR_ESP old(Stat);
    ADDR_STACK_START old(Stat);
    AUTOGRP_ID group(Groups::AUTOGROUP);
    AUTOGRP_NICE group(Groups::AUTOGROUP);
    CAPS_PERMITTED cred("cap_permitted").str().new_in_so1();
    CGNAME group(Groups::CGROUP).str();
    CGROUP group(Groups::CGROUP).str();
    CGROUP_V group(Groups::CGROUP).strv();
    CMD base(&["comm"]).file(Either).str();
    CMDLINE cmdline().str();
    CMDLINE_V group(Groups::CMDLINE).strv();
    DOCKER_ID group(Groups::CGROUP).str().new_in_so1();
    DOCKER_ID_64 group(Groups::CGROUP).str().new_in_so1();
    ENVIRON group(Groups::ENVIRON).str();
    ENVIRON_V group(Groups::ENVIRON).strv();
    EXE old(Other).str();
    EXIT_SIGNAL stat(&["exit_signal"]);
    FLAGS base(&["task_flags"]);
    FLT_MAJ stat(&["majflt"]).sum();
    FLT_MAJ_C stat(&["majflt", "cmajflt"]).sum();
    FLT_MAJ_DELTA stat(&["majflt"]).delta();
    FLT_MIN stat(&["minflt"]).sum();
    FLT_MIN_C stat(&["minflt", "cminflt"]).sum();
    FLT_MIN_DELTA stat(&["minflt"]).delta();
    // The real library takes the effective ids from the owner of the directory in /proc. The kernel
    // makes them the effective ids of the task for directories of mode 0555, also if the process
    // may not be dumped (task_dump_owner()).
    ID_EGID cred("egid").file(Other);
    ID_EGROUP cred("egid").file(Other).str();
    ID_EUID cred("euid").file(Other);
    ID_EUSER cred("euid").file(Other).str();
    ID_FGID cred("fsgid");
    ID_FGROUP cred("fsgid").str();
    ID_FUID cred("fsuid");
    ID_FUSER cred("fsuid").str();
    ID_LOGIN group(Groups::LOGIN);
    ID_PGRP base(&["pgid"]);
    ID_PID NOTHING;
    ID_PPID base(&["ppid"]).file(Either);
    ID_RGID cred("gid");
    ID_RGROUP cred("gid").str();
    ID_RUID cred("uid");
    ID_RUSER cred("uid").str();
    ID_SESSION base(&["sid"]);
    ID_SGID cred("sgid");
    ID_SGROUP cred("sgid").str();
    ID_SUID cred("suid");
    ID_SUSER cred("suid").str();
    ID_TGID NOTHING;
    ID_TID NOTHING;
    ID_TPGID stat(&["tty_pgrp"]);
    IO_READ_BYTES group(Groups::IO).sum();
    IO_READ_CHARS group(Groups::IO).sum();
    IO_READ_OPS group(Groups::IO).sum();
    IO_WRITE_BYTES group(Groups::IO).sum();
    IO_WRITE_CBYTES group(Groups::IO).sum();
    IO_WRITE_CHARS group(Groups::IO).sum();
    IO_WRITE_OPS group(Groups::IO).sum();
    LXCNAME old(Other).str();
    MEM_CODE old(Other);
    MEM_CODE_PGS old(Other);
    MEM_DATA size(&["data_bytes", "stack_bytes"], Other);
    MEM_DATA_PGS size(&["data_bytes", "stack_bytes"], Other);
    MEM_RES size(&["rss_bytes"], Other);
    MEM_RES_PGS size(&["rss_bytes"], Other);
    MEM_SHR size(&["rss_bytes", "rss_anon_bytes"], Other);
    MEM_SHR_PGS size(&["rss_bytes", "rss_anon_bytes"], Other);
    MEM_VIRT size(&["size_bytes"], Other);
    MEM_VIRT_PGS size(&["size_bytes"], Other);
    NICE stat(&["nice"]);
    NLWP stat(&["num_threads"]).file(Either);
    NS_CGROUP group(Groups::NS);
    NS_IPC group(Groups::NS);
    NS_MNT group(Groups::NS);
    NS_NET group(Groups::NS);
    NS_PID group(Groups::NS);
    NS_TIME group(Groups::NS);
    NS_USER group(Groups::NS);
    NS_UTS group(Groups::NS);
    OOM_ADJ group(Groups::OOM);
    OOM_SCORE group(Groups::OOM);
    OPEN_FILES group(Groups::FD_COUNT).new_in_so1();
    PRIORITY stat(&["priority"]);
    PRIORITY_RT stat(&["rt_priority"]);
    PROCESSOR stat(&["processor"]);
    PROCESSOR_NODE old(Stat);
    RSS size(&["rss_bytes"], Stat);
    RSS_RLIM old(Stat);
    SCHED_CLASS stat(&["policy"]);
    SCHED_CLASSSTR stat(&["policy"]).str().new_in_so1();
    SD_MACH old(Other).str();
    SD_OUID old(Other).str();
    SD_SEAT old(Other).str();
    SD_SESS old(Other).str();
    SD_SLICE old(Other).str();
    SD_UNIT old(Other).str();
    SD_UUNIT old(Other).str();
    SIGBLOCKED group(Groups::SIGNALS).file(Status).str();
    SIGCATCH group(Groups::SIGNALS).file(Status).str();
    SIGIGNORE group(Groups::SIGNALS).file(Status).str();
    SIGNALS group(Groups::SIGNALS).file(Status).str();
    SIGPENDING group(Groups::SIGNALS).file(Status).str();
    SMAP_ANONYMOUS group(Groups::ROLLUP);
    SMAP_HUGE_ANON group(Groups::ROLLUP);
    SMAP_HUGE_FILE group(Groups::ROLLUP);
    SMAP_HUGE_SHMEM group(Groups::ROLLUP);
    SMAP_HUGE_TLBPRV group(Groups::ROLLUP);
    SMAP_HUGE_TLBSHR group(Groups::ROLLUP);
    SMAP_LAZY_FREE group(Groups::ROLLUP);
    SMAP_LOCKED group(Groups::ROLLUP);
    SMAP_PRV_CLEAN group(Groups::ROLLUP);
    SMAP_PRV_DIRTY group(Groups::ROLLUP);
    SMAP_PRV_TOTAL group(Groups::ROLLUP);
    SMAP_PSS group(Groups::ROLLUP);
    SMAP_PSS_ANON group(Groups::ROLLUP);
    SMAP_PSS_FILE group(Groups::ROLLUP);
    SMAP_PSS_SHMEM group(Groups::ROLLUP);
    SMAP_REFERENCED group(Groups::ROLLUP);
    SMAP_RSS group(Groups::ROLLUP);
    SMAP_SHR_CLEAN group(Groups::ROLLUP);
    SMAP_SHR_DIRTY group(Groups::ROLLUP);
    SMAP_SWAP group(Groups::ROLLUP);
    SMAP_SWAP_PSS group(Groups::ROLLUP);
    STATE base(&["state"]).file(Either);
    SUPGIDS cred("ngroups").str();
    SUPGROUPS cred("ngroups").str();
    TICS_ALL stat(&["utime_ns", "stime_ns"]).sum();
    TICS_ALL_C stat(&["utime_ns", "stime_ns", "cutime_ns", "cstime_ns"]).sum();
    TICS_ALL_DELTA stat(&["utime_ns", "stime_ns"]).delta();
    TICS_BEGAN base(&["start_time_ns"]);
    TICS_BLKIO old(Stat);
    TICS_GUEST old(Stat);
    TICS_GUEST_C old(Stat);
    TICS_SYSTEM stat(&["stime_ns"]).sum();
    TICS_SYSTEM_C stat(&["stime_ns", "cstime_ns"]).sum();
    TICS_USER stat(&["utime_ns"]).sum();
    TICS_USER_C stat(&["utime_ns", "cutime_ns"]).sum();
    TIME_ALL stat(&["utime_ns", "stime_ns"]).sum();
    TIME_ALL_C stat(&["utime_ns", "stime_ns", "cutime_ns", "cstime_ns"]).sum();
    TIME_ELAPSED base(&["start_time_ns"]);
    TIME_START base(&["start_time_ns"]);
    TTY stat(&["tty_nr"]);
    TTY_NAME stat(&["tty_nr"]).str();
    TTY_NUMBER stat(&["tty_nr"]).str();
    UTILIZATION since(&["utime_ns", "stime_ns"]).sum();
    UTILIZATION_C since(&["utime_ns", "stime_ns", "cutime_ns", "cstime_ns"]).sum();
    VM_DATA size(&["data_bytes"], Status);
    VM_EXE size(&["text_bytes"], Status);
    VM_LIB size(&["lib_bytes"], Status);
    VM_RSS size(&["rss_bytes"], Status);
    VM_RSS_ANON size(&["rss_anon_bytes"], Status);
    VM_RSS_FILE size(&["rss_file_bytes"], Status);
    VM_RSS_LOCKED size(&["locked_bytes"], Status);
    VM_RSS_SHARED size(&["rss_shmem_bytes"], Status);
    VM_SIZE size(&["size_bytes"], Status);
    VM_STACK size(&["stack_bytes"], Status);
    VM_SWAP size(&["swap_bytes"], Status);
    VM_USED size(&["rss_bytes", "swap_bytes"], Status);
    VSIZE_BYTES size(&["size_bytes"], Stat);
    WCHAN_NAME old(Other).str();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_as_many_as_in_the_headers() {
        assert_eq!((Item::all(Abi::So0).len(), Item::all(Abi::So1).len()), (157, 162));
        for abi in [Abi::So0, Abi::So1] {
            for (number, item) in (0..).zip(Item::all(abi)) {
                assert_eq!((item.number(abi), Item::of(number, abi)), (number, Some(*item)));
            }
            let end = Item::all(abi).len() as c_int;
            assert_eq!((Item::of(end, abi), Item::of(-1, abi)), (None, None));
        }
        // Some items that are easily confused with their neighbours.
        for (item, so0, so1) in [
            (Item::AUTOGRP_NICE, 8, 8),
            (Item::CMD, 12, 13),
            (Item::ENVIRON, 15, 18),
            (Item::ID_PID, 36, 39),
            (Item::PRIORITY, 80, 84),
            (Item::SD_MACH, 87, 92),
            (Item::WCHAN_NAME, 156, 161),
        ] {
            assert_eq!((item.number(Abi::So0), item.number(Abi::So1)), (so0, so1), "{item:?}");
        }
        let new: Vec<c_int> = Item::ALL
            .iter()
            .filter(|i| i.number(Abi::So0) < 0)
            .map(|i| i.number(Abi::So1))
            .collect();
        assert_eq!(new, [9, 16, 17, 83, 91]);
    }

    #[test]
    fn each_item_has_one_source() {
        let free = [Item::NOOP, Item::EXTRA, Item::ID_PID, Item::ID_TGID, Item::ID_TID];
        for item in Item::ALL {
            let need = item.need();
            let has = need.is_old || !need.groups.is_empty();
            assert_eq!(has, !free.contains(item), "{}", item.name());
            assert!(!need.is_old || need.groups.is_empty(), "{}", item.name());
        }
    }
}
