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

fn time_all(_: &Context, row: &Row<'_>) -> Value<'static> {
    let own = match cpu_ns(row) {
        Ok(ns) => ns,
        Err(missing) => return missing,
    };
    match row.stat.map(|s| (s.cutime_ns(), s.cstime_ns())) {
        Some((Some(u), Some(s))) => Value::Nanos(own.saturating_add(u).saturating_add(s)),
        _ => Value::UNKNOWN,
    }
}

/// The sum of two counters.
macro_rules! sum {
    ($own:ident $of_children:ident) => {
        |_, row| match row.stat.map(|s| (s.$own(), s.$of_children())) {
            Some((Some(own), Some(more))) => Value::Uint(own.saturating_add(more)),
            Some(_) => Value::UNKNOWN,
            None => row.missing(Group::Stat),
        }
    };
}

/// CPU time over the time since the start, as in procps.
fn pcpu(cx: &Context, row: &Row<'_>) -> Value<'static> {
    let threads = if cx.threads { Some(1) } else { row.stat.and_then(|s| s.num_threads()) };
    cpu_ns(row).map_or_else(|missing| missing, |ns| share(cx, row, ns, threads))
}

/// As `pcpu`, with the CPU time of reaped children. The number of their threads is not known.
fn pcpu_with_children(cx: &Context, row: &Row<'_>) -> Value<'static> {
    let own = match cpu_ns(row) {
        Ok(ns) => ns,
        Err(missing) => return missing,
    };
    let children = row.stat.and_then(|s| Some(s.cutime_ns()?.saturating_add(s.cstime_ns()?)));
    children.map_or(Value::UNKNOWN, |ns| share(cx, row, own.saturating_add(ns), None))
}

/// This CPU time as a share of the time since the start. `threads`: the number of threads that can
/// have used it.
fn share(cx: &Context, row: &Row<'_>, cpu_ns: u64, threads: Option<u32>) -> Value<'static> {
    let Some(base) = row.base else { return row.missing(Group::Base) };
    let Some(start) = base.start_time_ns() else { return Value::UNKNOWN };
    // If the number of CPUs is not known, there is no limit.
    let cpus = if cx.info.ncpus == 0 { u32::MAX } else { cx.info.ncpus };
    let most = threads.map_or(cpus, |n| n.max(1).min(cpus));
    let share = Share { cpu_ns, age_ns: cx.age_ns(start), took_ns: cx.took_ns };
    Value::Percent(share.percent(most).min(100.0 * f64::from(cpus)))
}

/// CPU time of a task, and its age. The age is that at the start of the answer, and the CPU time
/// was read somewhat later.
struct Share {
    cpu_ns: u64,
    age_ns: u64,
    took_ns: Option<u64>,
}

/// The assumed time to make a saved answer, because the answer does not have it.
const MAY_TAKE_NS: u64 = 1_000_000_000;

impl Share {
    /// In percent, as if it was read in the middle of the answer. The upper limit is the time that
    /// this many threads can have used, and the lower limit is the value for a read at the end.
    /// (Threads that have ended may have used more than the remaining ones.)
    fn percent(&self, threads: u32) -> f64 {
        let of = |age: u64| match (self.cpu_ns, age) {
            (0, _) => 0.0,
            (cpu, age) => cpu as f64 * 100.0 / age as f64,
        };
        let likely = of(self.age_ns.saturating_add(self.took_ns.unwrap_or(0) / 2));
        let least = of(self.age_ns.saturating_add(self.took_ns.unwrap_or(MAY_TAKE_NS)));
        likely.min(100.0 * f64::from(threads)).max(least)
    }
}

const POLICIES: &[&str] = &["TS", "FF", "RR", "B", "ISO", "IDL", "DLN", "EXT"];

fn class(_: &Context, row: &Row<'_>) -> Value<'static> {
    match row.stat.map(|s| s.policy()) {
        Some(Some(p)) => {
            let number = || {
                let mut s = Short::default();
                s.push_uint(p.into());
                Value::Short(s)
            };
            POLICIES.get(p as usize).map_or_else(number, |w| Value::Word(w))
        }
        Some(None) => Value::UNKNOWN,
        None => row.missing(Group::Stat),
    }
}

/// Nice only has an effect for SCHED_OTHER and SCHED_BATCH.
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

/// The stream has the processor; its node is only known on the same machine.
fn numa(cx: &Context, row: &Row<'_>) -> Value<'static> {
    let Some(stat) = row.stat else { return row.missing(Group::Stat) };
    let node = stat.processor().and_then(|cpu| cx.numa_node(cpu));
    node.map_or(Value::UNKNOWN, |n| Value::Uint(u64::from(n)))
}

macro_rules! pri {
    ($name:literal $header:literal $what:literal {$($alias:literal $ah:literal),*} $f:expr) => {
        row!($name $header 3 Right [STAT(priority)] Signed None Plain, "/proc/PID/stat 18", $what,
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
    row!("bsdtime_all" "TIME" 6 Right [STAT(utime_ns stime_ns cutime_ns cstime_ns)] Number Seconds Minutes, "/proc/PID/stat 14+15+16+17",
        "CPU time including reaped children, M:SS", {}, time_all),
    row!("cputimes" "TIME" 8 Right [STAT(utime_ns stime_ns)] Number Seconds Seconds, "/proc/PID/stat 14+15",
        "CPU time in seconds", {"times" "TIME"}, time),
    ns!("usertime" "UTIME" "/proc/PID/stat 14" "CPU time in user mode" utime_ns),
    ns!("systime" "STIME" "/proc/PID/stat 15" "CPU time in the kernel" stime_ns),
    ns!("cutime" "CUTIME" "/proc/PID/stat 16" "User CPU time of reaped children" cutime_ns),
    ns!("cstime" "CSTIME" "/proc/PID/stat 17" "System CPU time of reaped children" cstime_ns),
    ns!("guest_time" "GUEST" "/proc/PID/stat 43" "The part of usertime that virtual processors (KVM) have used" guest_ns),
    ns!("cguest_time" "CGUEST" "/proc/PID/stat 44" "The same part of cutime" cguest_ns),
    row!("pcpu" "%CPU" 4 Right [BASE(start_time_ns) STAT(utime_ns stime_ns num_threads)] Number Percent Percent, "/proc/PID/stat 14+15 and 22",
        "CPU time over the time since the start", {"%cpu" "%CPU"}, pcpu),
    row!("c" "C" 2 Right [BASE(start_time_ns) STAT(utime_ns stime_ns num_threads)] Number Percent Percent99, "/proc/PID/stat 14+15 and 22",
        "As pcpu, without decimals, at most 99", {"util" "C"}, pcpu),
    row!("cp" "CP" 3 Right [BASE(start_time_ns) STAT(utime_ns stime_ns num_threads)] Number Percent PerMille, "/proc/PID/stat 14+15 and 22",
        "As pcpu, text in tenths of a percent", {}, pcpu),
    row!("cuu" "%CUU" 6 Right [BASE(start_time_ns) STAT(utime_ns stime_ns num_threads)] Number Percent Percent3, "/proc/PID/stat 14+15 and 22",
        "As pcpu, with three decimals", {}, pcpu),
    row!("cuc" "%CUC" 7 Right [BASE(start_time_ns) STAT(utime_ns stime_ns cutime_ns cstime_ns)] Number Percent Percent3, "/proc/PID/stat 14 to 17 and 22",
        "As cuu, including the CPU time of reaped children", {}, pcpu_with_children),
    faults!("minflt" "MINFLT" "/proc/PID/stat 10" "Minor faults" minflt {"min_flt" "MINFL"}),
    faults!("majflt" "MAJFLT" "/proc/PID/stat 12" "Major faults" majflt
        {"maj_flt" "MAJFL", "pagein" "PAGEIN"}),
    row!("minflt_all" "MINFLT" 6 Right [STAT(minflt cminflt)] Integer Count Plain, "/proc/PID/stat 10+11",
        "Minor faults including reaped children", {}, sum!(minflt cminflt)),
    row!("majflt_all" "MAJFLT" 6 Right [STAT(majflt cmajflt)] Integer Count Plain, "/proc/PID/stat 12+13",
        "Major faults including reaped children", {}, sum!(majflt cmajflt)),
    faults!("cminflt" "CMINFLT" "/proc/PID/stat 11" "Minor faults of reaped children" cminflt
        {"cmin_flt" "CMINFL"}),
    faults!("cmajflt" "CMAJFLT" "/proc/PID/stat 13" "Major faults of reaped children" cmajflt
        {"cmaj_flt" "CMAJFL"}),
    pri!("pri" "PRI" "Priority, higher is more" {} |p| 39 - p),
    pri!("opri" "PRI" "Priority, 60 more than the kernel's" {"intpri" "PRI"} |p| 60 + p),
    pri!("priority" "PRI" "Priority as the kernel shows it, lower is more" {} |p| p),
    pri!("pri_foo" "FOO" "Priority around 0" {} |p| p - 20),
    pri!("pri_bar" "BAR" "Priority from 1, real time below" {} |p| p + 1),
    pri!("pri_baz" "BAZ" "The kernel's own number, from 0" {} |p| p + 100),
    pri!("pri_api" "API" "Priority, for real time as in sched_setscheduler(2)" {} |p: i64| -1 - p),
    row!("ni" "NI" 3 Right [STAT(policy nice)] Signed None Plain, "/proc/PID/stat 19",
        "Nice value; - if the policy has none", {"nice" "NI"}, nice),
    row!("rtprio" "RTPRIO" 6 Right [STAT(policy rt_priority)] Integer None Plain, "/proc/PID/stat 40",
        "Real-time priority; - if the policy has none", {}, rtprio),
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
    row!("numa" "NUMA" 4 Right [STAT(processor)] Integer None Plain,
        "/proc/PID/stat 39, /sys/devices/system/node/node*/cpulist",
        "NUMA node of the CPU it last ran on; ? for a saved answer", {}, numa),
    row!("nlwp" "NLWP" 4 Right [STAT(num_threads)] Integer Count Plain, "/proc/PID/stat 20",
        "Threads of the process", {"thcount" "THCNT"}, uint!(Stat stat.num_threads)),
    row!("exit_signal" "EXITSIG" 7 Right [STAT(exit_signal)] Signed None Plain, "/proc/PID/stat 38",
        "Signal to the parent at exit; -1 for a thread", {},
        member!(Stat stat.exit_signal, |v| Value::Int(i64::from(v)))),
];

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn percent(cpu_ns: u64, age_ns: u64, took_ns: Option<u64>, threads: u32) -> f64 {
        Share { cpu_ns, age_ns, took_ns }.percent(threads)
    }

    #[test]
    fn old_processes_may_have_more_than_a_cpu_for_each_thread() {
        assert_eq!(percent(50 * S, 100 * S, None, 1), 50.0);
        // Threads that have ended had four CPUs.
        assert!((399.0..400.0).contains(&percent(4_000 * S, 1_000 * S, Some(S), 1)));
        assert_eq!(percent(0, 0, None, 1), 0.0);
    }

    #[test]
    fn young_processes_have_at_most_a_cpu_for_each_thread() {
        for took in [None, Some(S / 10)] {
            // The process began 2 ms before the clock was read, and its CPU time was read 90 ms
            // after the clock.
            assert_eq!(percent(S / 11, S / 500, took, 1), 100.0);
            assert_eq!(percent(S / 11 * 2, S / 500, took, 2), 200.0);
            // The process began after the clock was read.
            let of_the_walk = if took.is_some() { 40.0 } else { 100.0 };
            assert_eq!(percent(S / 50, 0, took, 1), of_the_walk);
            assert_eq!(percent(0, 0, took, 1), 0.0);
        }
        // All of its threads except for one have ended.
        assert_eq!(percent(S / 50, 0, Some(S / 100), 1), 200.0);
    }
}
