//! CPU time, faults, and how a task is scheduled.

use taskdiag_wire::{Group, Groups};

use super::super::*;

fn cpu_ns(row: &Row<'_>) -> Result<u64, Value<'static>> {
    let stat = row.stat.ok_or_else(|| row.missing(Group::Stat))?;
    match (stat.utime_ns(), stat.stime_ns()) {
        (Some(u), Some(s)) => Ok(u.saturating_add(s)),
        _ => Err(Value::UNKNOWN),
    }
}

fn time(_: &Context, row: &Row<'_>) -> Value<'static> {
    cpu_ns(row).map_or_else(|m| m, Value::Nanos)
}

/// CPU time over the time since the start, as procps has it.
fn pcpu(cx: &Context, row: &Row<'_>) -> Value<'static> {
    let cpu = match cpu_ns(row) {
        Ok(ns) => ns,
        Err(missing) => return missing,
    };
    match row.base {
        None => row.missing(Group::Base),
        Some(base) => match base.start_time_ns().map(|s| cx.age_ns(s)) {
            Some(0) => Value::Percent(0.0),
            Some(age) => Value::Percent(cpu as f64 * 100.0 / age as f64),
            None => Value::UNKNOWN,
        },
    }
}

const POLICIES: &[&str] = &["TS", "FF", "RR", "B", "ISO", "IDL", "DLN", "EXT"];

fn class(_: &Context, row: &Row<'_>) -> Value<'static> {
    match row.stat.map(|s| s.policy()) {
        Some(Some(p)) => {
            POLICIES.get(p as usize).map_or(Value::Uint(u64::from(p)), |w| Value::Word(w))
        }
        Some(None) => Value::UNKNOWN,
        None => row.missing(Group::Stat),
    }
}

/// Nice means something for SCHED_OTHER and SCHED_BATCH only.
fn nice(_: &Context, row: &Row<'_>) -> Value<'static> {
    match row.stat.map(|s| (s.policy(), s.nice())) {
        Some((Some(0 | 3) | None, Some(n))) => Value::Int(i64::from(n)),
        Some((Some(_), Some(_))) => Value::ABSENT,
        Some(_) => Value::UNKNOWN,
        None => row.missing(Group::Stat),
    }
}

fn rtprio(_: &Context, row: &Row<'_>) -> Value<'static> {
    match row.stat.map(|s| (s.policy(), s.rt_priority())) {
        Some((Some(0), _)) => Value::ABSENT,
        Some((_, Some(p))) => Value::Uint(u64::from(p)),
        Some(_) => Value::UNKNOWN,
        None => row.missing(Group::Stat),
    }
}

macro_rules! pri {
    ($name:literal $header:literal $what:literal {$($alias:literal $ah:literal),*} $f:expr) => {
        row!($name $header 3 Right [STAT(priority)] Integer None Plain, "/proc/PID/stat 18", $what,
            {$($alias $ah),*}, member!(Stat stat.priority, |p| Value::Int($f(i64::from(p)))))
    };
}
macro_rules! ns {
    ($name:literal $header:literal $source:literal $what:literal $member:ident) => {
        row!($name $header 8 Right [STAT($member)] Number Seconds Clock, $source, $what, {},
            member!(Stat stat.$member, Value::Nanos))
    };
}
macro_rules! faults {
    ($name:literal $header:literal $source:literal $what:literal $member:ident {$($alias:literal $ah:literal),*}) => {
        row!($name $header 6 Right [STAT($member)] Integer Count Plain, $source, $what,
            {$($alias $ah),*}, uint!(Stat stat.$member))
    };
}

pub const FIELDS: &[Field] = &[
    row!("time" "TIME" 8 Right [STAT(utime_ns stime_ns)] Number Seconds Clock, "/proc/PID/stat 14+15",
        "CPU time, [DD-]HH:MM:SS", {"cputime" "TIME", "atime" "TIME"}, time),
    row!("bsdtime" "TIME" 6 Right [STAT(utime_ns stime_ns)] Number Seconds Minutes, "/proc/PID/stat 14+15",
        "CPU time, M:SS", {}, time),
    row!("cputimes" "TIME" 8 Right [STAT(utime_ns stime_ns)] Number Seconds Seconds, "/proc/PID/stat 14+15",
        "CPU time in seconds", {"times" "TIME"}, time),
    ns!("usertime" "UTIME" "/proc/PID/stat 14" "CPU time in user mode" utime_ns),
    ns!("systime" "STIME" "/proc/PID/stat 15" "CPU time in the kernel" stime_ns),
    ns!("cutime" "CUTIME" "/proc/PID/stat 16" "User CPU time of waited-for children" cutime_ns),
    ns!("cstime" "CSTIME" "/proc/PID/stat 17" "System CPU time of waited-for children" cstime_ns),
    row!("pcpu" "%CPU" 4 Right [BASE(start_time_ns) STAT(utime_ns stime_ns)] Number Percent Percent, "/proc/PID/stat 14+15 and 22",
        "CPU time over the time since the start", {"%cpu" "%CPU"}, pcpu),
    row!("c" "C" 2 Right [BASE(start_time_ns) STAT(utime_ns stime_ns)] Number Percent Percent99, "/proc/PID/stat 14+15 and 22",
        "As pcpu, without decimals, at most 99", {"util" "C"}, pcpu),
    row!("cp" "CP" 3 Right [BASE(start_time_ns) STAT(utime_ns stime_ns)] Number Percent PerMille, "/proc/PID/stat 14+15 and 22",
        "As pcpu, text in tenths of a percent", {}, pcpu),
    faults!("minflt" "MINFLT" "/proc/PID/stat 10" "Minor faults" minflt {"min_flt" "MINFL"}),
    faults!("majflt" "MAJFLT" "/proc/PID/stat 12" "Major faults" majflt
        {"maj_flt" "MAJFL", "pagein" "PAGEIN"}),
    faults!("cminflt" "CMINFLT" "/proc/PID/stat 11" "Minor faults of waited-for children" cminflt
        {"cmin_flt" "CMINFL"}),
    faults!("cmajflt" "CMAJFLT" "/proc/PID/stat 13" "Major faults of waited-for children" cmajflt
        {"cmaj_flt" "CMAJFL"}),
    pri!("pri" "PRI" "Priority, higher is more" {} |p| 39 - p),
    pri!("opri" "PRI" "Priority, 60 more than the kernel's" {"intpri" "PRI"} |p| 60 + p),
    pri!("priority" "PRI" "Priority as the kernel shows it, lower is more" {} |p| p),
    pri!("pri_foo" "FOO" "Priority around 0" {} |p| p - 20),
    pri!("pri_bar" "BAR" "Priority from 1, real time below" {} |p| p + 1),
    pri!("pri_baz" "BAZ" "The kernel's own number, from 0" {} |p| p + 100),
    pri!("pri_api" "API" "Priority, real time as sched_setscheduler(2) has it" {} |p: i64| -1 - p),
    row!("ni" "NI" 3 Right [STAT(policy nice)] Integer None Plain, "/proc/PID/stat 19",
        "Nice value; - where the policy has none", {"nice" "NI"}, nice),
    row!("rtprio" "RTPRIO" 6 Right [STAT(policy rt_priority)] Integer None Plain, "/proc/PID/stat 40",
        "Real-time priority; - where the policy has none", {}, rtprio),
    row!("cls" "CLS" 3 Right [STAT(policy)] Text None Plain, "/proc/PID/stat 41",
        "Policy: TS other, FF fifo, RR round robin, B batch, IDL idle, DLN deadline, EXT sched_ext",
        {}, class),
    row!("class" "CLS" 3 Left [STAT(policy)] Text None Plain, "/proc/PID/stat 41",
        "As cls", {"policy" "POL"}, class),
    row!("sched" "SCH" 3 Right [STAT(policy)] Integer None Plain, "/proc/PID/stat 41",
        "Policy as a number", {}, uint!(Stat stat.policy)),
    row!("psr" "PSR" 3 Right [STAT(processor)] Integer None Plain, "/proc/PID/stat 39",
        "CPU it last ran on", {"cpu" "CPU", "cpuid" "CPUID", "lastcpu" "C"},
        uint!(Stat stat.processor)),
    row!("nlwp" "NLWP" 4 Right [STAT(num_threads)] Integer Count Plain, "/proc/PID/stat 20",
        "Threads of the process", {"thcount" "THCNT"}, uint!(Stat stat.num_threads)),
    row!("exit_signal" "EXITSIG" 7 Right [STAT(exit_signal)] Integer None Plain, "/proc/PID/stat 38",
        "Signal to the parent at exit; -1 for a thread", {},
        member!(Stat stat.exit_signal, |v| Value::Int(i64::from(v)))),
];
