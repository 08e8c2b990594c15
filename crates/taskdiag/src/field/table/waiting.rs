//! Columns about waiting: where a task is in the kernel, what it waits for, and since when.

use std::borrow::Cow;

use taskdiag_wire::{Blob, Group, Groups, Reason, Record, WAIT_COMPAT, Wait, WaitKind};

use super::super::*;
use crate::syscalls::Machine;
use crate::why::{Held, NoHolder};

fn text<'a>(row: &Row<'a>, group: Group, blob: Option<Blob<'a>>) -> Value<'a> {
    match blob {
        Some(Blob { reason: Some(why), .. }) => Value::Missing(Missing::Reason(why)),
        Some(b) => Value::Bytes { cut: b.is_cut(), data: b.data },
        None => row.missing(group),
    }
}

fn wchan<'a>(_: &Context, row: &Row<'a>) -> Value<'a> {
    match text(row, Group::Wchan, row.view.wchan()) {
        // It runs.
        Value::Bytes { data, .. } if data.is_empty() || &*data == b"0" => Value::ABSENT,
        // As in procps: the underscores before the name of a function have little meaning.
        Value::Bytes { data: Cow::Borrowed(name), cut } => {
            let name = name.strip_prefix(b".").unwrap_or(name);
            let begin = name.iter().position(|b| *b != b'_').unwrap_or(0);
            Value::Bytes { data: Cow::Borrowed(&name[begin..]), cut }
        }
        other => other,
    }
}

/// A getter of WAIT.
macro_rules! of_wait {
    ($get:expr) => {
        |cx, row| match row.wait {
            Some(wait) => $get(cx, wait),
            None => row.missing(Group::Wait),
        }
    };
}

/// The kind of wait. `None` where it is newer than this program.
fn kind(wait: Record<'_, Wait>) -> Option<WaitKind> {
    wait.kind().and_then(WaitKind::from_number)
}

fn waits_on<'a>(_: &Context, wait: Record<'a, Wait>) -> Value<'a> {
    match kind(wait) {
        Some(WaitKind::Other) => {
            let name = &wait.raw().function;
            let end = name.iter().position(|b| *b == 0).unwrap_or(name.len());
            match &name[..end] {
                b"" => Value::Word(WaitKind::Other.name()),
                name => Value::Bytes {
                    data: Cow::Borrowed(name),
                    cut: end + 1 == wait.raw().function.len(),
                },
            }
        }
        Some(kind) => Value::Word(kind.name()),
        None => Value::UNKNOWN,
    }
}

fn waited(cx: &Context, wait: Record<'_, Wait>) -> Value<'static> {
    let since = match kind(wait) {
        // The task does not wait, or whether it does is not known.
        Some(WaitKind::OnCpu | WaitKind::Runnable) => return Value::ABSENT,
        Some(WaitKind::Cpu | WaitKind::Throttled) => wait.ready_ns().or(wait.last_ran_ns()),
        _ => wait.last_ran_ns(),
    };
    since.map_or(Value::UNKNOWN, |ns| Value::Nanos(cx.age_ns(ns)))
}

fn last_ran(_: &Context, wait: Record<'_, Wait>) -> Value<'static> {
    wait.last_ran_ns().map_or(Value::UNKNOWN, Value::Instant)
}

fn syscall(cx: &Context, wait: Record<'_, Wait>) -> Value<'static> {
    let nr = match wait.syscall_nr() {
        Some(nr) if nr >= 0 => nr,
        // The task is in no system call, or runs.
        _ => return Value::ABSENT,
    };
    let is_compat = wait.flags().is_some_and(|f| f & WAIT_COMPAT != 0);
    let machine = cx.info.machine.get().and_then(Machine::from_name);
    match machine.and_then(|m| m.syscall(nr, is_compat)) {
        Some(name) => Value::Word(name),
        None => Value::Bytes { data: Cow::Owned(nr.to_string().into_bytes()), cut: false },
    }
}

/// The value of a column about the task that keeps a thread waiting.
fn held<'a>(
    cx: &Context,
    row: &Row<'a>,
    get: impl FnOnce(Result<&Held, NoHolder>) -> Value<'a>,
) -> Value<'a> {
    match row.wait {
        Some(wait) => cx.holders.with(row.view.pid(), wait, get),
        None => row.missing(Group::Wait),
    }
}

/// The value where no holder is named.
fn no_holder(why: NoHolder) -> Value<'static> {
    match why {
        NoHolder::Nobody | NoHolder::NotKept | NoHolder::Several(_) => Value::ABSENT,
        NoHolder::NoRight => Value::Missing(Missing::Reason(Reason::Denied)),
        NoHolder::Blocked | NoHolder::NotLookedAt => {
            Value::Missing(Missing::Reason(Reason::Blocked))
        }
        NoHolder::Changed => Value::Missing(Missing::Reason(Reason::Vanished)),
        NoHolder::OtherNumbers | NoHolder::NotKnown => Value::UNKNOWN,
    }
}

fn waits_for<'a>(cx: &Context, row: &Row<'a>) -> Value<'a> {
    held(cx, row, |held| match held {
        Ok(held) => Value::Uint(held.tid.into()),
        Err(why) => no_holder(why),
    })
}

fn waits_for_comm<'a>(cx: &Context, row: &Row<'a>) -> Value<'a> {
    held(cx, row, |held| match held {
        Ok(Held { comm: Some(comm), .. }) => {
            Value::Bytes { data: Cow::Owned(comm.clone()), cut: false }
        }
        Ok(_) => Value::UNKNOWN,
        Err(why) => no_holder(why),
    })
}

fn waits_for_how<'a>(cx: &Context, row: &Row<'a>) -> Value<'a> {
    held(cx, row, |held| {
        Value::Word(match held {
            Ok(held) => held.how.name(),
            Err(why) => why.name(),
        })
    })
}

pub const FIELDS: &[Field] = &[
    row!("eip" "EIP" 16 Right [] Text None Hex, "none",
        "Instruction pointer: always 0, as the kernel shows it for live tasks", {},
        |_, _| Value::Mask(0)),
    row!("esp" "ESP" 16 Right [] Text None Hex, "none",
        "Stack pointer: always 0, as the kernel shows it for live tasks", {},
        |_, _| Value::Mask(0)),
    row!("timeout" "TMOUT" 5 Right [] Text None Plain, "none",
        "Always -, for scripts that expect the column", {"tmout" "TMOUT"}, |_, _| Value::ABSENT),
    row!("alarm" "ALARM" 5 Right [] Text None Plain, "none",
        "Always -, for scripts that expect the column", {}, |_, _| Value::ABSENT),
    row!("sgi_p" "P" 1 Right [BASE(state) STAT(processor)] Text None Plain, "/proc/PID/stat 3, 39",
    "The CPU that it runs on, or * if it does not run", {}, |_, row| match (row.state(), row.stat) {
        (Some(b'R'), Some(stat)) => stat.processor().map_or(Value::UNKNOWN, |cpu| {
            let mut s = Short::default();
            s.push_uint(cpu.into());
            Value::Short(s)
        }),
        (Some(b'R'), None) => row.missing(Group::Stat),
        (Some(_), _) => Value::Word("*"),
        (None, _) => row.missing(Group::Base),
    }),
    row!("addr" "ADDR" 4 Right [] Text None Plain, "none",
        "Address of the process in memory: always -, for scripts that expect the column", {},
        |_, _| Value::ABSENT),
    row!("wchan" "WCHAN" 6 Left [WCHAN] Text None Cut, "/proc/PID/wchan",
        "The kernel function it sleeps in, - where it runs; text ends at the column's width",
        {"wname" "WCHAN"}, wchan),
    row!("kstack" "KSTACK" 20 Left [KSTACK] Text None Plain, "/proc/PID/stack",
        "Its stack in the kernel; for root", {},
        |_, row| text(row, Group::Kstack, row.view.kstack())),
    row!("waits_on" "WAITS-ON" 14 Left [WAIT] Text None Plain, "/proc/PID/syscall, wchan",
        "The kind of wait: futex, pipe-read, mutex, sleep and others, or the kernel's function", {},
        of_wait!(waits_on)),
    row!("waits_for" "WAITS-FOR" 9 Right [WAIT] Integer None Plain, "taskdiag why",
        "The thread, or first thread of a process, that holds what it waits for; - if nobody is known \
         to", {}, waits_for),
    row!("waits_for_comm" "HOLDER" 15 Left [WAIT] Text None Plain, "taskdiag why",
        "The name of waits_for", {}, waits_for_comm),
    row!("waits_for_how" "HELD-BY" 13 Left [WAIT] Text None Plain, "taskdiag why",
        "How waits_for is known, or why there is none: not_kept, several, nobody and others", {},
        waits_for_how),
    row!("waited" "WAITED" 11 Right [WAIT] Number Seconds Elapsed, "/proc/PID/sched",
        "Time since it last ran, or since it waits for a CPU, [[DD-]HH:]MM:SS; - where it runs", {},
        of_wait!(waited)),
    row!("last_ran" "LAST-RAN" 8 Right [WAIT] Number UnixSeconds StartDate, "/proc/PID/sched",
        "When it last ran on a CPU", {}, of_wait!(last_ran)),
    row!("syscall" "SYSCALL" 15 Left [WAIT] Text None Plain, "/proc/PID/syscall",
        "The system call it sleeps in, a number where the name is not known; - where it is in none",
        {}, of_wait!(syscall)),
];
