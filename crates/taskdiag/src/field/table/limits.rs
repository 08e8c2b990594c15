//! Resource limits: `rlimit_NAME` is the soft limit, and `rlimit_NAME_hard` the hard one. Names are
//! RLIMIT_* in lower case.

use taskdiag_wire::{Group, Groups, Limits, Record};

use super::super::*;

fn limit(
    row: &Row<'_>,
    get: impl FnOnce(Record<'_, Limits>) -> Option<[u64; 16]>,
    number: usize,
) -> Value<'static> {
    match row.limits {
        Some(l) => match get(l).map(|all| all[number]) {
            None => Value::UNKNOWN,
            Some(u64::MAX) => Value::Unlimited,
            Some(v) => Value::Uint(v),
        },
        None => row.missing(Group::Limits),
    }
}

macro_rules! limits {
    ($($number:literal $name:literal $hard:literal $header:literal $unit:ident $proc:literal
        $what:literal,)*) => {
        pub const FIELDS: &[Field] = &[$(
            row!($name $header 9 Right [LIMITS] Integer $unit Plain,
                concat!("/proc/PID/limits ", $proc), concat!("Soft limit: ", $what), {},
                |_, row| limit(row, |r| r.soft(), $number)),
            row!($hard $header 9 Right [LIMITS] Integer $unit Plain,
                concat!("/proc/PID/limits ", $proc), concat!("Hard limit: ", $what), {},
                |_, row| limit(row, |r| r.hard(), $number)),
        )*];
    };
}

// The numbers of RLIMIT_* in asm-generic/resource.h.
limits! {
    0 "rlimit_cpu" "rlimit_cpu_hard" "CPU" Count "cpu time" "CPU time, seconds",
    1 "rlimit_fsize" "rlimit_fsize_hard" "FSIZE" Bytes "file size" "size of a file that it writes",
    2 "rlimit_data" "rlimit_data_hard" "DATA" Bytes "data size" "data segment",
    3 "rlimit_stack" "rlimit_stack_hard" "STACK" Bytes "stack size" "stack",
    4 "rlimit_core" "rlimit_core_hard" "CORE" Bytes "core file size" "core dump",
    5 "rlimit_rss" "rlimit_rss_hard" "RSS" Bytes "resident set" "resident memory (not enforced)",
    6 "rlimit_nproc" "rlimit_nproc_hard" "NPROC" Count "processes" "tasks of its user",
    7 "rlimit_nofile" "rlimit_nofile_hard" "NOFILE" Count "open files" "file descriptors",
    8 "rlimit_memlock" "rlimit_memlock_hard" "MEMLOCK" Bytes "locked memory" "locked memory",
    9 "rlimit_as" "rlimit_as_hard" "AS" Bytes "address space" "address space",
    10 "rlimit_locks" "rlimit_locks_hard" "LOCKS" Count "file locks" "file locks (not enforced)",
    11 "rlimit_sigpending" "rlimit_sigpending_hard" "SIGPENDING" Count "pending signals"
        "signals queued for its user",
    12 "rlimit_msgqueue" "rlimit_msgqueue_hard" "MSGQUEUE" Bytes "msgqueue size"
        "POSIX message queues of its user",
    13 "rlimit_nice" "rlimit_nice_hard" "NICE" Count "nice priority" "20 - nice",
    14 "rlimit_rtprio" "rlimit_rtprio_hard" "RTPRIO" Count "realtime priority"
        "real-time priority",
    15 "rlimit_rttime" "rlimit_rttime_hard" "RTTIME" Count "realtime timeout"
        "real-time CPU time without a blocking call, microseconds",
}
