//! The identity of a task: ids, relations, state, start.

use taskdiag_wire::{Group, Groups, STAT_LOCKED, TASK_KTHREAD};

use super::super::*;

fn tgid(_: &Context, row: &Row<'_>) -> Value<'static> {
    Value::Uint(u64::from(row.view.tgid()))
}

fn tid(_: &Context, row: &Row<'_>) -> Value<'static> {
    Value::Uint(u64::from(row.view.pid()))
}

/// The letters of procps' STAT: state, then `<` `N` by nice, `L` locked pages, `s` session leader,
/// `l` threads, `+` foreground. /proc/PID/stat does not show locked pages, so the procfs engine
/// only knows them if the size of the process is requested, too.
fn stat(_: &Context, row: &Row<'_>) -> Value<'static> {
    let (Some(base), Some(stat)) = (row.base, row.stat) else {
        return row.missing(if row.base.is_none() { Group::Base } else { Group::Stat });
    };
    let Some(state) = base.state() else { return Value::UNKNOWN };
    let mut s = Short::default();
    s.push(state);
    match stat.nice() {
        Some(n) if n < 0 => s.push(b'<'),
        Some(n) if n > 0 => s.push(b'N'),
        _ => {}
    }
    let locked = match stat.flags() {
        Some(flags) => flags & STAT_LOCKED != 0,
        None => row.statm.and_then(|m| m.locked_bytes()).is_some_and(|b| b > 0),
    };
    if locked {
        s.push(b'L');
    }
    if base.sid() == Some(row.view.tgid()) {
        s.push(b's');
    }
    if stat.num_threads().is_some_and(|n| n > 1) {
        s.push(b'l');
    }
    if let (Some(pgid), Some(fg)) = (base.pgid(), stat.tty_pgrp()) {
        if i64::from(pgid) == i64::from(fg) {
            s.push(b'+');
        }
    }
    Value::Short(s)
}

fn state(_: &Context, row: &Row<'_>) -> Value<'static> {
    match row.base {
        Some(base) => base.state().map_or(Value::UNKNOWN, |c| {
            let mut s = Short::default();
            s.push(c);
            Value::Short(s)
        }),
        None => row.missing(Group::Base),
    }
}

const START: Get = member!(Base base.start_time_ns, Value::Instant);

fn age(cx: &Context, row: &Row<'_>) -> Value<'static> {
    match row.base {
        Some(base) => base.start_time_ns().map_or(Value::UNKNOWN, |ns| Value::Nanos(cx.age_ns(ns))),
        None => row.missing(Group::Base),
    }
}

/// Each engine gives the same number, because the kernel rounds ticks down, too.
fn start_ticks(cx: &Context, row: &Row<'_>) -> Value<'static> {
    let Some(base) = row.base else { return row.missing(Group::Base) };
    let ticks = |ns: u64| u128::from(ns) * u128::from(cx.info.clk_tck.max(1)) / 1_000_000_000;
    let known = base.start_time_ns().map(ticks);
    known.map_or(Value::UNKNOWN, |t| Value::Uint(u64::try_from(t).unwrap_or(u64::MAX)))
}

pub const FIELDS: &[Field] = &[
    row!("pid" "PID" 5 Right [] Integer None Pid, "task_struct.tgid; /proc/PID",
        "Process id", {"tgid" "TGID"}, tgid),
    row!("tid" "TID" 5 Right [] Integer None Pid, "task_struct.pid; /proc/PID/task/TID",
        "Thread id; for a process, that of its leader", {"lwp" "LWP", "spid" "SPID"}, tid),
    row!("ppid" "PPID" 5 Right [BASE(ppid)] Integer None Pid, "/proc/PID/stat 4",
        "Process id of the parent; 0: none visible", {}, uint!(Base base.ppid)),
    row!("pgid" "PGID" 5 Right [BASE(pgid)] Integer None Pid, "/proc/PID/stat 5",
        "Process group", {"pgrp" "PGRP"}, uint!(Base base.pgid)),
    row!("sid" "SID" 5 Right [BASE(sid)] Integer None Pid, "/proc/PID/stat 6",
        "Session", {"sess" "SESS", "session" "SESS"}, uint!(Base base.sid)),
    row!("tpgid" "TPGID" 5 Right [STAT(tty_pgrp)] Signed None Pid, "/proc/PID/stat 8",
        "Foreground process group of its terminal; -1: none", {},
        member!(Stat stat.tty_pgrp, |v| Value::Int(i64::from(v)))),
    row!("tty" "TT" 8 Left [STAT(tty_nr)] Text None Plain, "/proc/PID/stat 7",
        "Controlling terminal", {"tt" "TT", "tname" "TTY", "tty8" "TTY", "longtname" "TTY"},
        member!(Stat stat.tty_nr, Value::Tty)),
    row!("s" "S" 1 Left [BASE(state)] Text None Plain, "/proc/PID/stat 3",
        "State: R run, S sleep, D disk sleep, T stopped, t traced, Z zombie, X dead, I idle, P parked",
        {"state" "S"}, state),
    row!("stat" "STAT" 4 Left [BASE(state sid pgid) STAT(nice flags num_threads tty_pgrp)] Text None Plain, "/proc/PID/stat, mm.locked_vm",
        "State and: < high priority, N nice, L locked pages, s session leader, l threads, + foreground",
        {}, stat),
    row!("f" "F" 1 Right [BASE(task_flags)] Integer None Octal, "/proc/PID/stat 9",
        "1: forked but did not exec, 4: used super-user rights", {"flags" "F", "flag" "F"},
        member!(Base base.task_flags, |v| Value::Uint(u64::from(v >> 6 & 7)))),
    row!("kthread" "KTHREAD" 7 Right [BASE(flags)] Boolean None Plain, "/proc/PID/status Kthread",
        "Is it a kernel thread?", {},
        member!(Base base.flags, |v| Value::Bool(v & TASK_KTHREAD != 0))),
    row!("task_flags" "TASK_FLAGS" 16 Right [BASE(task_flags)] Text None Hex, "/proc/PID/stat 9",
        "The kernel's PF_* bits", {}, member!(Base base.task_flags, |v| Value::Mask(u64::from(v)))),
    row!("start" "STARTED" 8 Right [BASE(start_time_ns)] Number UnixSeconds StartDate, "/proc/PID/stat 22",
        "Start time, HH:MM:SS or Mon DD", {}, START),
    row!("lstart" "STARTED" 24 Right [BASE(start_time_ns)] Number UnixSeconds Date, "/proc/PID/stat 22",
        "Start time in full", {}, START),
    row!("stime" "STIME" 5 Right [BASE(start_time_ns)] Number UnixSeconds ShortDate, "/proc/PID/stat 22",
        "Start time, HH:MM or MonDD or year", {"start_time" "START"}, START),
    row!("bsdstart" "START" 6 Right [BASE(start_time_ns)] Number UnixSeconds BsdDate, "/proc/PID/stat 22",
        "Start time, HH:MM or Mon DD", {}, START),
    row!("start_ticks" "TICKS" 10 Right [BASE(start_time_ns)] Integer None Plain, "/proc/PID/stat 22",
        "Start time in clock ticks since boot; with the pid, it identifies a process until the next boot", {},
        start_ticks),
    row!("pidfd_ino" "PIDFDINO" 8 Right [PIDFD] Integer None Plain, "struct pid.ino; fstat(2) of pidfd_open(2)",
        "Inode of its pidfd, which no other task has until the next boot, as in the PID:INODE of util-linux (Linux 6.9)",
        {}, uint!(Pidfd pidfd.process_ino)),
    row!("tidfd_ino" "TIDFDINO" 8 Right [PIDFD] Integer None Plain, "struct pid.ino; fstat(2) of pidfd_open(2)",
        "The same of the thread's own pidfd; for a process, that of its pidfd", {}, uint!(Pidfd pidfd.ino)),
    row!("etime" "ELAPSED" 11 Right [BASE(start_time_ns)] Number Seconds Elapsed, "/proc/PID/stat 22",
        "Time since the start, [[DD-]HH:]MM:SS", {}, age),
    row!("etimes" "ELAPSED" 7 Right [BASE(start_time_ns)] Number Seconds Seconds, "/proc/PID/stat 22",
        "Time since the start, in seconds", {}, age),
];
