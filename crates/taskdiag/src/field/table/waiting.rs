//! Where a task is in the kernel.

use std::borrow::Cow;

use taskdiag_wire::{Blob, Group, Groups};

use super::super::*;

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

pub const FIELDS: &[Field] = &[
    row!("eip" "EIP" 16 Right [] Text None Hex, "none",
        "Instruction pointer: always 0, which the kernel shows of live tasks, too", {},
        |_, _| Value::Mask(0)),
    row!("esp" "ESP" 16 Right [] Text None Hex, "none",
        "Stack pointer: always 0, which the kernel shows of live tasks, too", {},
        |_, _| Value::Mask(0)),
    row!("timeout" "TMOUT" 5 Right [] Text None Plain, "none",
        "Always -, for those who expect the column", {"tmout" "TMOUT"}, |_, _| Value::ABSENT),
    row!("alarm" "ALARM" 5 Right [] Text None Plain, "none",
        "Always -, for those who expect the column", {}, |_, _| Value::ABSENT),
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
];
