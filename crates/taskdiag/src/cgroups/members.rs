//! The values of a cgroup, and the file that each is in: for version 2, and for version 1 where it
//! has them.

use std::ffi::CStr;

pub use taskdiag_wire::CgroupMember as Member;

/// A set of files to read. A file of version 2 stands for the files of version 1 with the same
/// values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Files(u32);

macro_rules! files {
    ($($name:ident $bit:literal $file:literal,)*) => {
        impl Files {
            $(#[doc = concat!("`", $file, "`")]
              pub const $name: Files = Files(1 << $bit);)*
            /// All of them.
            pub const ALL: Files = Files(0 $(| 1 << $bit)*);
        }
    };
}

files! {
    PROCS 0 "cgroup.procs",
    THREADS 1 "cgroup.threads",
    TYPE 2 "cgroup.type",
    EVENTS 3 "cgroup.events",
    FREEZE 4 "cgroup.freeze",
    STAT 5 "cgroup.stat",
    CPU_STAT 6 "cpu.stat",
    CPU_MAX 7 "cpu.max",
    CPU_WEIGHT 8 "cpu.weight",
    CPU_SHARES 9 "cpu.shares, of version 1",
    MEMORY_CURRENT 10 "memory.current",
    MEMORY_PEAK 11 "memory.peak",
    MEMORY_MIN 12 "memory.min",
    MEMORY_LOW 13 "memory.low",
    MEMORY_HIGH 14 "memory.high",
    MEMORY_MAX 15 "memory.max",
    SWAP_CURRENT 16 "memory.swap.current",
    SWAP_MAX 17 "memory.swap.max",
    MEMORY_EVENTS 18 "memory.events",
    MEMORY_STAT 19 "memory.stat",
    PIDS_CURRENT 20 "pids.current",
    PIDS_PEAK 21 "pids.peak",
    PIDS_MAX 22 "pids.max",
    IO_STAT 23 "io.stat",
    CPU_PRESSURE 24 "cpu.pressure",
    MEMORY_PRESSURE 25 "memory.pressure",
    IO_PRESSURE 26 "io.pressure",
    TASK_COUNT 27 "pids.current, or cgroup.threads where there is none",
}

impl Files {
    /// None of them.
    pub const NONE: Files = Files(0);
    /// The files of both sets.
    #[must_use]
    pub const fn union(self, other: Files) -> Files {
        Files(self.0 | other.0)
    }
    /// Are all files of the other set in this one?
    pub const fn has(self, other: Files) -> bool {
        self.0 & other.0 == other.0
    }
    /// The files to read for [`TASK_COUNT`](Files::TASK_COUNT), and the other ones.
    #[must_use]
    pub(super) const fn expanded(self) -> Files {
        match self.has(Files::TASK_COUNT) {
            true => self.union(Files::PIDS_CURRENT).union(Files::THREADS),
            false => self,
        }
    }
    /// Is any file in both sets?
    pub const fn intersects(self, other: Files) -> bool {
        self.0 & other.0 != 0
    }
    /// The files with limits, which may be `max`.
    pub const LIMITS: Files = Files::CPU_MAX
        .union(Files::MEMORY_MIN)
        .union(Files::MEMORY_LOW)
        .union(Files::MEMORY_HIGH)
        .union(Files::MEMORY_MAX)
        .union(Files::SWAP_MAX)
        .union(Files::PIDS_MAX);
    /// How many they are.
    pub const fn count(self) -> u32 {
        self.0.count_ones()
    }
    /// Is no file in it?
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl Files {
    /// The file that has a value.
    pub const fn of(member: Member) -> Files {
        match member {
            Member::Procs | Member::AllProcs => Files::PROCS,
            Member::Threads => Files::THREADS,
            Member::Type => Files::TYPE,
            Member::Populated | Member::Frozen => Files::EVENTS,
            Member::Freeze => Files::FREEZE,
            Member::Descendants | Member::Dying => Files::STAT,
            Member::CpuUsage
            | Member::CpuUser
            | Member::CpuSystem
            | Member::Periods
            | Member::Throttles
            | Member::Throttled => Files::CPU_STAT,
            Member::CpuQuota | Member::CpuPeriod => Files::CPU_MAX,
            Member::CpuWeight => Files::CPU_WEIGHT,
            Member::CpuShares => Files::CPU_SHARES,
            Member::Memory => Files::MEMORY_CURRENT,
            Member::MemoryPeak => Files::MEMORY_PEAK,
            Member::MemoryMin => Files::MEMORY_MIN,
            Member::MemoryLow => Files::MEMORY_LOW,
            Member::MemoryHigh => Files::MEMORY_HIGH,
            Member::MemoryMax => Files::MEMORY_MAX,
            Member::Swap => Files::SWAP_CURRENT,
            Member::SwapMax => Files::SWAP_MAX,
            Member::EventsLow
            | Member::EventsHigh
            | Member::EventsMax
            | Member::EventsOom
            | Member::OomKills
            | Member::OomGroupKills => Files::MEMORY_EVENTS,
            Member::Anon
            | Member::File
            | Member::Kernel
            | Member::Slab
            | Member::Sock
            | Member::Shmem
            | Member::FileMapped
            | Member::FileDirty
            | Member::FileWriteback
            | Member::Faults
            | Member::MajorFaults => Files::MEMORY_STAT,
            Member::Pids => Files::PIDS_CURRENT,
            Member::PidsPeak => Files::PIDS_PEAK,
            Member::PidsMax => Files::PIDS_MAX,
            Member::ReadBytes
            | Member::WriteBytes
            | Member::Reads
            | Member::Writes
            | Member::DiscardBytes => Files::IO_STAT,
            Member::CpuSome10 | Member::CpuSome | Member::CpuFull10 | Member::CpuFull => {
                Files::CPU_PRESSURE
            }
            Member::MemorySome10
            | Member::MemorySome
            | Member::MemoryFull10
            | Member::MemoryFull => Files::MEMORY_PRESSURE,
            Member::IoSome10 | Member::IoSome | Member::IoFull10 | Member::IoFull => {
                Files::IO_PRESSURE
            }
            Member::AllTasks => Files::TASK_COUNT,
            // A member of a later version of the format.
            _ => Files::NONE,
        }
    }
}

/// The types of `cgroup.type`.
pub const TYPES: [&str; 4] = ["domain", "domain threaded", "domain invalid", "threaded"];

/// A key of a file, its member, and what its numbers are multiplied by.
pub(super) type Key = (&'static str, Member, u64);

/// How a file is read.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form {
    /// A number, or `max`; multiplied by the second member.
    Number(Member, u64),
    /// A number that is a limit, in version 1: a number near the largest one, or one below 0, is
    /// none.
    Limit(Member, u64),
    /// Lines of a key and a number.
    Keys(&'static [Key]),
    /// `some` and `full` of PSI: for each the share in ten seconds, and the total.
    Pressure([Member; 4]),
    /// The quota, or `max`, and the period.
    CpuMax,
    /// A line for each device, with `key=number`.
    IoStat,
    /// A line for each device and kind of operation, in version 1.
    Blkio(&'static [(&'static str, Member)]),
    /// As many as there are lines. Such a file may be long.
    Lines(Member),
    /// One of these words; the member is the index of the word.
    Word(Member, &'static [&'static str]),
}

/// A file of the kernel.
#[derive(Debug)]
pub(super) struct Source {
    pub name: &'static CStr,
    /// The set with this file, as requests name it.
    pub file: Files,
    /// The controller that has it. Empty: every cgroup has it.
    pub controller: &'static str,
    pub form: Form,
}

const US: u64 = 1000;
/// A tick of `cpuacct.stat`: USER_HZ is 100 on every architecture that has cgroups.
const TICK: u64 = 10_000_000;

macro_rules! sources {
    ($($name:literal $file:ident $controller:literal $form:expr,)*) => {
        &[$(Source { name: $name, file: Files::$file, controller: $controller, form: $form },)*]
    };
}

/// The files of version 2.
pub(super) static V2: &[Source] = sources! {
    c"cgroup.procs" PROCS "" Form::Lines(Member::Procs),
    c"cgroup.type" TYPE "" Form::Word(Member::Type, &TYPES),
    c"cgroup.events" EVENTS "" Form::Keys(&[
        ("populated", Member::Populated, 1), ("frozen", Member::Frozen, 1),
    ]),
    c"cgroup.freeze" FREEZE "" Form::Number(Member::Freeze, 1),
    c"cgroup.stat" STAT "" Form::Keys(&[
        ("nr_descendants", Member::Descendants, 1), ("nr_dying_descendants", Member::Dying, 1),
    ]),
    // Every cgroup has the first three keys, with or without the controller.
    c"cpu.stat" CPU_STAT "" Form::Keys(&[
        ("usage_usec", Member::CpuUsage, US),
        ("user_usec", Member::CpuUser, US),
        ("system_usec", Member::CpuSystem, US),
        ("nr_periods", Member::Periods, 1),
        ("nr_throttled", Member::Throttles, 1),
        ("throttled_usec", Member::Throttled, US),
    ]),
    c"cpu.max" CPU_MAX "cpu" Form::CpuMax,
    c"cpu.weight" CPU_WEIGHT "cpu" Form::Number(Member::CpuWeight, 1),
    c"memory.current" MEMORY_CURRENT "memory" Form::Number(Member::Memory, 1),
    c"memory.peak" MEMORY_PEAK "memory" Form::Number(Member::MemoryPeak, 1),
    c"memory.min" MEMORY_MIN "memory" Form::Number(Member::MemoryMin, 1),
    c"memory.low" MEMORY_LOW "memory" Form::Number(Member::MemoryLow, 1),
    c"memory.high" MEMORY_HIGH "memory" Form::Number(Member::MemoryHigh, 1),
    c"memory.max" MEMORY_MAX "memory" Form::Number(Member::MemoryMax, 1),
    c"memory.swap.current" SWAP_CURRENT "memory" Form::Number(Member::Swap, 1),
    c"memory.swap.max" SWAP_MAX "memory" Form::Number(Member::SwapMax, 1),
    c"memory.events" MEMORY_EVENTS "memory" Form::Keys(&[
        ("low", Member::EventsLow, 1),
        ("high", Member::EventsHigh, 1),
        ("max", Member::EventsMax, 1),
        ("oom", Member::EventsOom, 1),
        ("oom_kill", Member::OomKills, 1),
        ("oom_group_kill", Member::OomGroupKills, 1),
    ]),
    c"memory.stat" MEMORY_STAT "memory" Form::Keys(&[
        ("anon", Member::Anon, 1),
        ("file", Member::File, 1),
        ("kernel", Member::Kernel, 1),
        ("slab", Member::Slab, 1),
        ("sock", Member::Sock, 1),
        ("shmem", Member::Shmem, 1),
        ("file_mapped", Member::FileMapped, 1),
        ("file_dirty", Member::FileDirty, 1),
        ("file_writeback", Member::FileWriteback, 1),
        ("pgfault", Member::Faults, 1),
        ("pgmajfault", Member::MajorFaults, 1),
    ]),
    c"pids.current" PIDS_CURRENT "pids" Form::Number(Member::Pids, 1),
    c"pids.peak" PIDS_PEAK "pids" Form::Number(Member::PidsPeak, 1),
    c"pids.max" PIDS_MAX "pids" Form::Number(Member::PidsMax, 1),
    // After pids.current, where it is read only if that is not known.
    c"cgroup.threads" THREADS "" Form::Lines(Member::Threads),
    c"io.stat" IO_STAT "io" Form::IoStat,
    c"cpu.pressure" CPU_PRESSURE "" Form::Pressure([
        Member::CpuSome10, Member::CpuSome, Member::CpuFull10, Member::CpuFull,
    ]),
    c"memory.pressure" MEMORY_PRESSURE "" Form::Pressure([
        Member::MemorySome10, Member::MemorySome, Member::MemoryFull10, Member::MemoryFull,
    ]),
    c"io.pressure" IO_PRESSURE "" Form::Pressure([
        Member::IoSome10, Member::IoSome, Member::IoFull10, Member::IoFull,
    ]),
};

/// The files of version 1, by the controller whose hierarchy has them.
pub(super) static V1: &[Source] = sources! {
    c"cgroup.procs" PROCS "" Form::Lines(Member::Procs),
    c"cpuacct.usage" CPU_STAT "cpuacct" Form::Number(Member::CpuUsage, 1),
    c"cpuacct.stat" CPU_STAT "cpuacct" Form::Keys(&[
        ("user", Member::CpuUser, TICK), ("system", Member::CpuSystem, TICK),
    ]),
    c"cpu.stat" CPU_STAT "cpu" Form::Keys(&[
        ("nr_periods", Member::Periods, 1),
        ("nr_throttled", Member::Throttles, 1),
        ("throttled_time", Member::Throttled, 1),
    ]),
    c"cpu.cfs_quota_us" CPU_MAX "cpu" Form::Limit(Member::CpuQuota, US),
    c"cpu.cfs_period_us" CPU_MAX "cpu" Form::Number(Member::CpuPeriod, US),
    c"cpu.shares" CPU_SHARES "cpu" Form::Number(Member::CpuShares, 1),
    c"memory.usage_in_bytes" MEMORY_CURRENT "memory" Form::Number(Member::Memory, 1),
    c"memory.max_usage_in_bytes" MEMORY_PEAK "memory" Form::Number(Member::MemoryPeak, 1),
    c"memory.limit_in_bytes" MEMORY_MAX "memory" Form::Limit(Member::MemoryMax, 1),
    c"memory.failcnt" MEMORY_EVENTS "memory" Form::Number(Member::EventsMax, 1),
    c"memory.oom_control" MEMORY_EVENTS "memory" Form::Keys(&[("oom_kill", Member::OomKills, 1)]),
    c"memory.stat" MEMORY_STAT "memory" Form::Keys(&[
        ("total_rss", Member::Anon, 1),
        ("total_cache", Member::File, 1),
        ("total_shmem", Member::Shmem, 1),
        ("total_mapped_file", Member::FileMapped, 1),
        ("total_dirty", Member::FileDirty, 1),
        ("total_writeback", Member::FileWriteback, 1),
        ("total_pgfault", Member::Faults, 1),
        ("total_pgmajfault", Member::MajorFaults, 1),
    ]),
    c"memory.stat" SWAP_CURRENT "memory" Form::Keys(&[("total_swap", Member::Swap, 1)]),
    c"pids.current" PIDS_CURRENT "pids" Form::Number(Member::Pids, 1),
    c"pids.peak" PIDS_PEAK "pids" Form::Number(Member::PidsPeak, 1),
    c"pids.max" PIDS_MAX "pids" Form::Number(Member::PidsMax, 1),
    // As cgroup.threads of version 2.
    c"tasks" THREADS "" Form::Lines(Member::Threads),
    c"blkio.throttle.io_service_bytes_recursive" IO_STAT "blkio" Form::Blkio(&[
        ("Read", Member::ReadBytes),
        ("Write", Member::WriteBytes),
        ("Discard", Member::DiscardBytes),
    ]),
    c"blkio.throttle.io_serviced_recursive" IO_STAT "blkio" Form::Blkio(&[
        ("Read", Member::Reads), ("Write", Member::Writes),
    ]),
    c"freezer.self_freezing" FREEZE "freezer" Form::Number(Member::Freeze, 1),
    c"freezer.state" EVENTS "freezer" Form::Word(Member::Frozen, &["THAWED", "FROZEN", "FREEZING"]),
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_of_the_format_has_a_file_and_its_number_is_its_place() {
        for (place, member) in Member::ALL.iter().enumerate() {
            assert!(!Files::of(*member).is_empty(), "{member} has no file");
            assert_eq!(*member as usize, place, "{member}");
        }
    }
}
