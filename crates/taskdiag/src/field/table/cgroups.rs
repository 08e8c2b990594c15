//! Columns of cgroups. The names of values are those of the kernel's files, with `_` for `.`.

use std::borrow::Cow;
use std::time::Duration;

use taskdiag_wire::Groups;

use super::super::*;
use super::places::value_of;
use crate::cgroup;
use crate::cgroups::{Cgroup, Known, Member, TYPES};
use crate::containers::{ContainerNames, Named};

fn of<'a>(row: &Row<'a>, get: impl FnOnce(&'a Cgroup) -> Value<'a>) -> Value<'a> {
    match row.part {
        Part::Cgroup(cgroup) => get(cgroup),
        _ => Value::UNKNOWN,
    }
}

/// A value of the library as one of a column.
fn known(known: Known, wrap: impl FnOnce(u64) -> Value<'static>) -> Value<'static> {
    match known {
        Known::Missing(why) => Value::Missing(Missing::Reason(why)),
        Known::NotAsked => Value::Missing(Missing::NotAsked),
        Known::Unlimited => Value::Unlimited,
        Known::Number(n) => wrap(n),
    }
}

fn member<'a>(row: &Row<'a>, m: Member, wrap: fn(u64) -> Value<'static>) -> Value<'a> {
    of(row, |c| known(c.get(m), wrap))
}

/// A part of the path that has a meaning to systemd or to a container runtime.
fn part<'a>(row: &Row<'a>, get: fn(&'a [u8]) -> Option<Cow<'a, [u8]>>) -> Value<'a> {
    of(row, |c| match get(c.path()) {
        Some(data) => Value::Bytes { data, cut: false },
        None => Value::ABSENT,
    })
}

fn runtime<'a>(_: &Context, row: &Row<'a>) -> Value<'a> {
    of(row, |c| match cgroup::container(c.path()) {
        Some(container) => container.runtime.map_or(Value::UNKNOWN, Value::Word),
        None => Value::ABSENT,
    })
}

/// A name of the container or pod that the cgroup belongs to.
fn named<'a>(cx: &Context, row: &Row<'a>, get: impl Fn(&ContainerNames) -> &Named) -> Value<'a> {
    of(row, |c| cx.containers.with(c.path(), |names| value_of(get(names))).unwrap_or(Value::ABSENT))
}

/// The limit of CPU time in thousandths of a CPU.
fn cpu_max<'a>(_: &Context, row: &Row<'a>) -> Value<'a> {
    of(row, |c| match (c.get(Member::CpuQuota), c.get(Member::CpuPeriod)) {
        (Known::Number(quota), Known::Number(period)) if period > 0 => {
            let thousandths = u128::from(quota) * 1000 / u128::from(period);
            Value::Uint(u64::try_from(thousandths).unwrap_or(u64::MAX))
        }
        (Known::Number(_), period) => known(period, |_| Value::UNKNOWN),
        (quota, _) => known(quota, |_| Value::UNKNOWN),
    })
}

/// The share of its limit that is in use.
fn memory_share<'a>(_: &Context, row: &Row<'a>) -> Value<'a> {
    of(row, |c| match (c.get(Member::Memory), c.get(Member::MemoryMax)) {
        (Known::Number(used), Known::Number(max)) if max > 0 => {
            Value::Percent(used as f64 * 100.0 / max as f64)
        }
        (Known::Number(_), Known::Unlimited | Known::Number(_)) => Value::ABSENT,
        (Known::Number(_), max) => known(max, |_| Value::UNKNOWN),
        (used, _) => known(used, |_| Value::UNKNOWN),
    })
}

/// The largest of the three shares. It is missing if one of them is.
fn pressure<'a>(_: &Context, row: &Row<'a>) -> Value<'a> {
    of(row, |c| {
        let mut largest = 0;
        for m in [Member::CpuSome10, Member::MemorySome10, Member::IoSome10] {
            match c.get(m) {
                Known::Number(n) => largest = n.max(largest),
                other => return known(other, |_| Value::UNKNOWN),
            }
        }
        Value::Percent(largest as f64 / 100.0)
    })
}

/// The growth of a counter. There is none without an earlier listing that has the cgroup, or if the
/// counter began again; a value that is missing now has its reason.
fn growth<'a>(row: &Row<'a>, m: Member, wrap: fn(u64, Duration) -> Value<'static>) -> Value<'a> {
    of(row, |c| match c.growth(m) {
        Some((n, time)) if !time.is_zero() => wrap(n, time),
        _ => known(c.get(m), |_| Value::ABSENT),
    })
}

fn share_of(ns: u64, time: Duration) -> Value<'static> {
    Value::Percent(ns as f64 * 100.0 / time.as_nanos() as f64)
}

fn per_second(n: u64, time: Duration) -> Value<'static> {
    let (n, time) = (u128::from(n) * 1_000_000_000, time.as_nanos());
    Value::Uint(u64::try_from((n + time / 2) / time).unwrap_or(u64::MAX))
}

/// A column that is made from these files.
macro_rules! column {
    ($name:literal $header:literal $width:literal $align:ident [$($file:ident)*] $kind:ident $unit:ident $text:ident
     $source:literal $help:literal {$($alias:literal $ah:literal),*} $get:expr) => {
        Field {
            cgroup_files: Files::NONE$(.union(Files::$file))*,
            ..row!($name $header $width $align [] $kind $unit $text, $source, $help, {$($alias $ah),*}, $get)
        }
    };
}

/// A column of a name from the files of container runtimes.
macro_rules! named {
    ($name:literal $header:literal $width:literal $help:literal $member:ident) => {
        row!($name $header $width Left [] Text None Plain, "files of the runtime, found by the path", $help, {},
            |cx, row| named(cx, row, |n| &n.$member))
    };
}

/// A column of one value.
macro_rules! value {
    ($name:literal $header:literal $width:literal $kind:ident $unit:ident $text:ident $member:ident $wrap:expr,
     $source:literal $help:literal {$($alias:literal $ah:literal),*}) => {
        Field {
            cgroup_files: Files::of(Member::$member),
            ..row!($name $header $width Right [] $kind $unit $text, $source, $help, {$($alias $ah),*},
                |_, row| member(row, Member::$member, $wrap))
        }
    };
}
macro_rules! bytes {
    ($name:literal $header:literal $member:ident $source:literal $help:literal {$($alias:literal $ah:literal),*}) => {
        value!($name $header 9 Integer Bytes Plain $member Value::Uint, $source $help {$($alias $ah),*})
    };
}
macro_rules! count {
    ($name:literal $header:literal $width:literal $member:ident $source:literal $help:literal) => {
        value!($name $header $width Integer Count Plain $member Value::Uint, $source $help {})
    };
}
macro_rules! limit {
    ($name:literal $header:literal $width:literal $member:ident $source:literal $help:literal $by:literal) => {
        value!($name $header $width Integer None Plain $member |n| Value::Uint(n / $by), $source $help {})
    };
}
macro_rules! time {
    ($name:literal $header:literal $member:ident $source:literal $help:literal) => {
        value!($name $header 8 Number Seconds Clock $member Value::Nanos, $source $help {})
    };
}
macro_rules! is {
    ($name:literal $header:literal $member:ident $source:literal $help:literal) => {
        value!($name $header 6 Boolean None Plain $member |n| Value::Bool(n != 0), $source $help {})
    };
}
/// Shares of PSI are in hundredths of a percent.
macro_rules! avg10 {
    ($name:literal $header:literal $member:ident $source:literal $help:literal) => {
        value!($name $header 5 Number Percent Share $member |n| Value::Percent(n as f64 / 100.0), $source $help {})
    };
}
macro_rules! share {
    ($name:literal $header:literal $member:ident $source:literal $help:literal) => {
        Field {
            cgroup_files: Files::of(Member::$member),
            ..row!($name $header 5 Right [] Number Percent Share, $source, $help, {},
                |_, row| growth(row, Member::$member, share_of))
        }
    };
}
macro_rules! rate {
    ($name:literal $header:literal $unit:ident $member:ident $source:literal $help:literal) => {
        Field {
            cgroup_files: Files::of(Member::$member),
            ..row!($name $header 6 Right [] Integer $unit Plain, $source, $help, {},
                |_, row| growth(row, Member::$member, per_second))
        }
    };
}

pub const IDENTITY: &[Field] = &[
    column!("path" "CGROUP" 30 Left [] Text None Plain "/sys/fs/cgroup"
        "Path from the root that this process sees, as in /proc/PID/cgroup" {"cgroup" "CGROUP"}
        |_, row| of(row, |c| Value::bytes(c.path()))),
    column!("name" "NAME" 20 Left [] Text None Plain "/sys/fs/cgroup"
        "The last part of the path; / for the root" {} |_, row| of(row, |c| Value::bytes(c.name()))),
    column!("branch" "CGROUP" 20 Left [] Text None Comm "/sys/fs/cgroup"
        "As name, but the whole path if the parent is not in the list" {}
        |_, row| of(row, |c| Value::bytes(if c.parent().is_some() { c.name() } else { c.path() }))),
    column!("id" "ID" 8 Right [] Integer None Plain "inode of the directory"
        "Its inode number, which is its id for BPF programs" {}
        |_, row| of(row, |c| if c.id() == 0 { Value::UNKNOWN } else { Value::Uint(c.id()) })),
    column!("level" "LEVEL" 5 Right [] Integer None Plain "/sys/fs/cgroup"
        "How many levels it is below the root" {} |_, row| of(row, |c| Value::Uint(c.level() as u64))),
    column!("version" "VER" 3 Right [] Integer None Plain "/proc/self/mountinfo"
        "Version of cgroups: 2, or 1 if only hierarchies of version 1 have it" {}
        |_, row| of(row, |c| Value::Uint(if c.is_of_version_2() { 2 } else { 1 }))),
    column!("type" "TYPE" 8 Left [TYPE] Text None Plain "cgroup.type"
        "domain, threaded, domain threaded or domain invalid; the root has none" {}
        |_, row| member(row, Member::Type, |n| TYPES.get(n as usize).map_or(Value::UNKNOWN, |w| Value::Word(w)))),
    column!("unit" "UNIT" 31 Left [] Text None Plain "/sys/fs/cgroup" "Unit of systemd that it belongs to" {}
        |_, row| part(row, |p| cgroup::unit(p).map(Cow::Borrowed))),
    column!("slice" "SLICE" 31 Left [] Text None Plain "/sys/fs/cgroup"
        "Slice of systemd; -.slice is the root of all" {}
        |_, row| part(row, |p| Some(Cow::Borrowed(cgroup::slice(p))))),
    column!("container" "CONTAINER" 12 Left [] Text None Plain "/sys/fs/cgroup"
        "Id of its container, or the name if its runtime only has names" {}
        |_, row| part(row, |p| cgroup::container(p).map(|c| c.id))),
    column!("runtime" "RUNTIME" 10 Left [] Text None Plain "/sys/fs/cgroup" "Runtime of its container" {} runtime),
    column!("pod" "POD" 36 Left [] Text None Plain "/sys/fs/cgroup" "Uid of its Kubernetes pod" {}
        |_, row| part(row, cgroup::pod)),
    named!("container_name" "CNAME" 20 "Name of its container" name),
    named!("image" "IMAGE" 30 "Name of the image of its container" image),
    named!("pod_name" "PODNAME" 30 "Name of its Kubernetes pod" pod_name),
    named!("pod_namespace" "NAMESPACE" 16 "Kubernetes namespace of its pod" pod_namespace),
    named!("container_runtime" "CRUNTIME" 10
        "Runtime of its container, also where only the files of the runtime tell it" runtime),
];

pub const USE: &[Field] = &[
    column!("tasks" "TASKS" 6 Right [TASK_COUNT] Integer Count Plain "pids.current, or cgroup.threads"
        "Tasks (threads) in it and below" {} |_, row| of(row, |c| known(c.tasks(), Value::Uint))),
    column!("procs" "PROCS" 6 Right [PROCS] Integer Count Plain "cgroup.procs"
        "Processes in it and below" {} |_, row| of(row, |c| known(c.processes(), Value::Uint))),
    count!("own_procs" "OWNPR" 6 Procs "cgroup.procs" "Processes in it, without those below"),
    count!("own_tasks" "OWNTH" 6 Threads "cgroup.threads; tasks" "Tasks (threads) in it, without those below"),
    count!("descendants" "DESC" 5 Descendants "cgroup.stat nr_descendants" "Cgroups below it"),
    count!("dying" "DYING" 5 Dying "cgroup.stat nr_dying_descendants"
        "Removed cgroups below it that something still uses, such as pages in the cache"),
    is!("populated" "POPUL" Populated "cgroup.events populated" "Is there a process in it or below?"),
    is!("frozen" "FROZEN" Frozen "cgroup.events frozen; freezer.state" "Is everything in it frozen by now?"),
    is!("freeze" "FREEZE" Freeze "cgroup.freeze; freezer.self_freezing" "Is it to be frozen?"),
    count!("pids" "PIDS" 6 Pids "pids.current" "Tasks in it and below, as the controller counts them"),
    count!("pids_peak" "PIDSPK" 6 PidsPeak "pids.peak" "The most tasks that were ever in it and below"),
    limit!("pids_max" "PIDSMAX" 9 PidsMax "pids.max" "Limit of tasks" 1),
    time!("time" "TIME" CpuUsage "cpu.stat usage_usec; cpuacct.usage" "CPU time, [DD-]HH:MM:SS"),
    time!("usertime" "UTIME" CpuUser "cpu.stat user_usec; cpuacct.stat user" "CPU time in user mode"),
    time!("systime" "STIME" CpuSystem "cpu.stat system_usec; cpuacct.stat system" "CPU time in the kernel"),
    column!("cpu_max" "CPUMAX" 9 Right [CPU_MAX] Integer None Plain "cpu.max; cpu.cfs_quota_us"
        "Limit of CPU time in thousandths of a CPU: 1500 is one and a half CPUs" {} cpu_max),
    limit!("cpu_quota_us" "QUOTA" 9 CpuQuota "cpu.max; cpu.cfs_quota_us" "CPU time that it may use in a period, in us" 1_000),
    limit!("cpu_period_us" "PERIOD" 7 CpuPeriod "cpu.max; cpu.cfs_period_us" "The period of the limit, in us" 1_000),
    limit!("cpu_weight" "WEIGHT" 6 CpuWeight "cpu.weight" "Share of CPU time in relation to its siblings; 100 is usual" 1),
    limit!("cpu_shares" "SHARES" 6 CpuShares "cpu.shares" "The same in version 1, where 1024 is usual" 1),
    count!("periods" "PERIODS" 7 Periods "cpu.stat nr_periods" "Periods of the CPU limit in which something ran"),
    count!("throttles" "THROTTL" 7 Throttles "cpu.stat nr_throttled" "Periods in which the limit of CPU time was reached"),
    time!("throttled" "THROTIME" Throttled "cpu.stat throttled_usec; throttled_time"
        "Time that its tasks had to wait for that, summed over CPUs"),
    bytes!("read_bytes" "READ" ReadBytes "io.stat rbytes; blkio.throttle.io_service_bytes_recursive" "Bytes read, of all devices" {}),
    bytes!("write_bytes" "WRITE" WriteBytes "io.stat wbytes; blkio.throttle.io_service_bytes_recursive" "Bytes written, of all devices" {}),
    bytes!("discard_bytes" "DISCARD" DiscardBytes "io.stat dbytes; blkio.throttle.io_service_bytes_recursive"
        "Bytes discarded, of all devices" {}),
    count!("reads" "READS" 7 Reads "io.stat rios; blkio.throttle.io_serviced_recursive" "Reads, of all devices"),
    count!("writes" "WRITES" 7 Writes "io.stat wios; blkio.throttle.io_serviced_recursive" "Writes, of all devices"),
];

pub const MEMORY: &[Field] = &[
    bytes!("memory" "MEMORY" Memory "memory.current; memory.usage_in_bytes" "Memory in use, with page cache, by it and below"
        {"memory_current" "MEMORY"}),
    bytes!("memory_peak" "PEAK" MemoryPeak "memory.peak; memory.max_usage_in_bytes" "The most memory that was ever in use" {}),
    bytes!("memory_min" "MIN" MemoryMin "memory.min" "Memory that is never taken away from it" {}),
    bytes!("memory_low" "LOW" MemoryLow "memory.low" "Memory that is taken away only if nobody else has any to give" {}),
    bytes!("memory_high" "HIGH" MemoryHigh "memory.high" "Memory from which on its tasks are slowed down" {}),
    bytes!("memory_max" "LIMIT" MemoryMax "memory.max; memory.limit_in_bytes" "Limit of memory" {}),
    column!("memory_share" "%LIMIT" 6 Right [MEMORY_CURRENT MEMORY_MAX] Number Percent Share
        "memory.current, memory.max" "Memory in use as a share of its own limit; - if there is no limit" {} memory_share),
    bytes!("swap" "SWAP" Swap "memory.swap.current; memory.stat total_swap" "Swap in use" {"swap_current" "SWAP"}),
    bytes!("swap_max" "SWAPMAX" SwapMax "memory.swap.max" "Limit of swap" {}),
    count!("events_low" "EVLOW" 5 EventsLow "memory.events low" "How often memory below memory_low was taken away"),
    count!("events_high" "EVHIGH" 6 EventsHigh "memory.events high" "How often its tasks were slowed down at memory_high"),
    count!("events_max" "EVMAX" 5 EventsMax "memory.events max; memory.failcnt" "How often it would have exceeded memory_max"),
    count!("oom" "OOM" 4 EventsOom "memory.events oom" "How often it had no memory left at its limit"),
    count!("oom_kills" "OOMKILL" 7 OomKills "memory.events oom_kill; memory.oom_control oom_kill" "Processes that the OOM killer ended"),
    count!("oom_group_kills" "OOMGRP" 6 OomGroupKills "memory.events oom_group_kill"
        "How often the OOM killer ended all of its processes together"),
    bytes!("anon" "ANON" Anon "memory.stat anon; total_rss" "Anonymous memory" {}),
    bytes!("file" "FILE" File "memory.stat file; total_cache" "Memory of files in the page cache, with shared memory" {}),
    bytes!("kernel" "KERNEL" Kernel "memory.stat kernel" "Memory of the kernel" {}),
    bytes!("slab" "SLAB" Slab "memory.stat slab" "Memory of the kernel for its objects" {}),
    bytes!("sock" "SOCK" Sock "memory.stat sock" "Memory for the network" {}),
    bytes!("shmem" "SHMEM" Shmem "memory.stat shmem; total_shmem" "Shared memory and tmpfs" {}),
    bytes!("file_mapped" "MAPPED" FileMapped "memory.stat file_mapped; total_mapped_file" "Pages of files that are mapped" {}),
    bytes!("file_dirty" "DIRTY" FileDirty "memory.stat file_dirty; total_dirty" "Pages of files that are to be written" {}),
    bytes!("file_writeback" "WBACK" FileWriteback "memory.stat file_writeback; total_writeback"
        "Pages of files that are being written" {}),
    count!("pgfault" "PGFAULT" 8 Faults "memory.stat pgfault; total_pgfault" "Page faults"),
    count!("pgmajfault" "PGMAJF" 6 MajorFaults "memory.stat pgmajfault; total_pgmajfault" "Page faults that had to wait for storage"),
];

pub const WAITING: &[Field] = &[
    column!("pressure" "%WAIT" 5 Right [CPU_PRESSURE MEMORY_PRESSURE IO_PRESSURE] Number Percent Share
        "cpu.pressure, memory.pressure, io.pressure" "The largest of cpu_some, memory_some and io_some" {} pressure),
    avg10!("cpu_some" "%CPUW" CpuSome10 "cpu.pressure some avg10"
        "Share of the last ten seconds in which some of its tasks waited for a CPU"),
    avg10!("cpu_full" "%CPUF" CpuFull10 "cpu.pressure full avg10" "Share of the last ten seconds in which all its tasks that were not idle waited for a CPU"),
    avg10!("memory_some" "%MEMW" MemorySome10 "memory.pressure some avg10"
        "Share of the last ten seconds in which some of its tasks waited for memory"),
    avg10!("memory_full" "%MEMF" MemoryFull10 "memory.pressure full avg10" "Share of the last ten seconds in which all its tasks that were not idle waited for memory"),
    avg10!("io_some" "%IOW" IoSome10 "io.pressure some avg10"
        "Share of the last ten seconds in which some of its tasks waited for I/O"),
    avg10!("io_full" "%IOF" IoFull10 "io.pressure full avg10" "Share of the last ten seconds in which all its tasks that were not idle waited for I/O"),
    time!("cpu_some_time" "CPUWAIT" CpuSome "cpu.pressure some total" "Time in which some of its tasks waited for a CPU"),
    time!("cpu_full_time" "CPUFULL" CpuFull "cpu.pressure full total" "Time in which all its tasks that were not idle waited for a CPU"),
    time!("memory_some_time" "MEMWAIT" MemorySome "memory.pressure some total" "Time in which some of its tasks waited for memory"),
    time!("memory_full_time" "MEMFULL" MemoryFull "memory.pressure full total" "Time in which all its tasks that were not idle waited for memory"),
    time!("io_some_time" "IOWAIT" IoSome "io.pressure some total" "Time in which some of its tasks waited for I/O"),
    time!("io_full_time" "IOFULL" IoFull "io.pressure full total" "Time in which all its tasks that were not idle waited for I/O"),
];

pub const RATES: &[Field] = &[
    share!("cpu_now" "%CPU" CpuUsage "cpu.stat usage_usec; cpuacct.usage" "CPU time in the time of --delay, in % of one CPU"),
    share!("user_now" "%USR" CpuUser "cpu.stat user_usec" "The part of cpu_now in user mode"),
    share!("sys_now" "%SYS" CpuSystem "cpu.stat system_usec" "The part of cpu_now in the kernel"),
    share!("throttled_now" "%THR" Throttled "cpu.stat throttled_usec"
        "Time that its tasks had to wait for their limit of CPU time, summed over CPUs, in % of the time of --delay"),
    rate!("read_now" "READ/s" Bytes ReadBytes "io.stat rbytes" "Bytes read per second"),
    rate!("write_now" "WRIT/s" Bytes WriteBytes "io.stat wbytes" "Bytes written per second"),
    rate!("reads_now" "RD/s" Count Reads "io.stat rios" "Reads per second"),
    rate!("writes_now" "WR/s" Count Writes "io.stat wios" "Writes per second"),
    rate!("majflt_now" "MAJF/s" Count MajorFaults "memory.stat pgmajfault" "Page faults per second that had to wait for storage"),
];
