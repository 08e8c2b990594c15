//! Columns of rows that stand for several: how many. On a row of its own each is 1.

use taskdiag_wire::Groups;

use super::super::part::Part;
use super::super::*;

/// The number of processes counts each process once, however many of its rows there are; who adds
/// up knows it by this name.
pub const PROCS: &str = "procs";

/// As is this one: processes that a sum lacks something of.
pub const LACKING: &str = "lacking";

pub const PROCESSES: &[Field] = &[
    row!("procs" "Procs" 5 Right [] Integer Count Plain, "task_struct.tgid; /proc/PID",
        "Processes in the row, with --by", {}, |_, _| Value::Uint(1)),
    row!("lacking" "Lacking" 7 Right [] Integer Count Plain, "task_struct.tgid; /proc/PID",
        "Processes of which a sum in the row lacks something, with --by", {}, |_, _| Value::Uint(0)),
];

pub const MAPPINGS: &[Field] = &[row!("maps" "Maps" 6 Right [VMA] Integer Count Plain,
"/proc/PID/maps", "Mappings in the row, with --by", {}, |_, row| match row.part {
    Part::Map(_) => Value::Uint(1),
    _ => row.missing(taskdiag_wire::Group::Vma),
})];
