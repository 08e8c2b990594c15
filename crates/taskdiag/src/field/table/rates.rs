//! Activity of a task since the previous answer, per second or in percent. A single answer does not
//! have these columns.

use taskdiag_wire::{Group, Groups, Reason};

use super::super::part::Part;
use super::super::*;

/// A value from the rates of a row. It is not known before the second answer.
fn of(
    row: &Row<'_>,
    group: Group,
    get: impl FnOnce(&Rate<'_>) -> Option<Value<'static>>,
) -> Value<'static> {
    let rate = match row.part {
        Part::Rate(rate) if rate.interval_ns() > 0 => rate,
        _ => return Value::UNKNOWN,
    };
    get(&rate).unwrap_or_else(|| match row.missing(group) {
        Value::Missing(Missing::Reason(Reason::Unsupported)) => Value::UNKNOWN,
        why => why,
    })
}

/// Time as a share of the interval.
fn share(
    row: &Row<'_>,
    group: Group,
    get: impl FnOnce(&Rate<'_>) -> Option<u64>,
) -> Value<'static> {
    of(row, group, |rate| {
        Some(Value::Percent(get(rate)? as f64 * 100.0 / rate.interval_ns() as f64))
    })
}

/// An amount for each second.
fn second(
    row: &Row<'_>,
    group: Group,
    get: impl FnOnce(&Rate<'_>) -> Option<u64>,
) -> Value<'static> {
    of(row, group, |rate| Some(each_second(get(rate)?, rate)))
}

/// An amount of the interval, for each second.
pub(super) fn each_second(amount: u64, rate: &Rate<'_>) -> Value<'static> {
    let interval = u128::from(rate.interval_ns());
    let amount = u128::from(amount) * 1_000_000_000;
    Value::Uint(u64::try_from((amount + interval / 2) / interval).unwrap_or(u64::MAX))
}

/// How long the task has been still, if that is defined for its state.
fn still(row: &Row<'_>, is_it: impl FnOnce(u8) -> bool) -> Value<'static> {
    match (row.part, row.state()) {
        (Part::Rate(rate), Some(state)) if is_it(state) => Value::Nanos(rate.still_ns()),
        (Part::Rate(_), Some(_)) => Value::ABSENT,
        (Part::Rate(_), None) => row.missing(Group::Base),
        _ => Value::UNKNOWN,
    }
}

macro_rules! share {
    ($name:literal $header:literal [$($g:ident $(($($m:ident)*))?)*] $source:literal $what:literal $group:ident $get:ident) => {
        row!($name $header 5 Right [BASE(start_time_ns) $($g $(($($m)*))?)*] Number Percent Percent, $source, $what,
            {}, |_, row| share(row, Group::$group, |r| r.$get()))
    };
}
macro_rules! count {
    ($name:literal $header:literal [$($g:ident $(($($m:ident)*))?)*] $unit:ident $text:ident $source:literal $what:literal
     $group:ident $get:ident) => {
        row!($name $header 6 Right [BASE(start_time_ns) $($g $(($($m)*))?)*] Integer $unit $text, $source, $what,
            {}, |_, row| second(row, Group::$group, |r| r.$get()))
    };
}

pub const FIELDS: &[Field] = &[
    share!("cpu_now" "%CPU" [STAT(utime_ns stime_ns)] "/proc/PID/stat 14+15"
        "CPU time since the last refresh, in % of one CPU" Stat cpu_ns),
    share!("user_now" "%USR" [STAT(utime_ns)] "/proc/PID/stat 14" "The part of cpu_now in user mode" Stat user_ns),
    share!("sys_now" "%SYS" [STAT(stime_ns)] "/proc/PID/stat 15" "The part of cpu_now in the kernel" Stat system_ns),
    share!("wait_now" "%RDY" [SCHED] "/proc/PID/schedstat 2"
        "Time ready and waiting for a CPU since the last refresh, in % of that time; of live threads"
        Sched run_delay_ns),
    count!("read_now" "READ/s" [IO] Bytes Human "/proc/PID/io read_bytes" "Bytes read from storage per second"
        Io read_bytes),
    count!("write_now" "WRIT/s" [IO] Bytes Human "/proc/PID/io write_bytes" "Bytes written to storage per second"
        Io write_bytes),
    count!("minflt_now" "MINF/s" [STAT(minflt)] Count Plain "/proc/PID/stat 10" "Minor faults per second" Stat minflt),
    count!("majflt_now" "MAJF/s" [STAT(majflt)] Count Plain "/proc/PID/stat 12" "Major faults per second" Stat majflt),
    count!("nvcsw_now" "VCSW/s" [SCHED] Count Plain "/proc/PID/status voluntary_ctxt_switches"
        "Voluntary context switches per second" Sched nvcsw),
    count!("nivcsw_now" "ICSW/s" [SCHED] Count Plain "/proc/PID/status nonvoluntary_ctxt_switches"
        "Involuntary context switches per second" Sched nivcsw),
    row!("still" "STILL" 8 Right [BASE(start_time_ns state) STAT(utime_ns stime_ns)] Number Seconds Elapsed,
        "/proc/PID/stat 3, 14+15",
        "Minimum time in its state without using CPU time", {}, |_, row| still(row, |_| true)),
    row!("blocked" "BLOCKED" 8 Right [BASE(start_time_ns state) STAT(utime_ns stime_ns)] Number Seconds Elapsed,
        "/proc/PID/stat 3, 14+15",
        "The same in state D, in which no signal wakes it; - in other states", {}, |_, row| still(row, |s| s == b'D')),
];
