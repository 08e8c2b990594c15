//! Columns with the number of rows that were added up. In a row that is not a sum, each is 1.

use taskdiag_wire::Groups;

use super::super::part::Part;
use super::super::*;

/// This column counts each process once, even if it has several rows. The code that adds up
/// identifies it by this name.
pub const PROCS: &str = "procs";

/// This column, too, is identified by its name. It counts processes for which a sum is incomplete.
pub const LACKING: &str = "lacking";

pub const PROCESSES: &[Field] = &[
    row!("procs" "Procs" 5 Right [] Integer Count Plain, "task_struct.tgid; /proc/PID",
        "Processes in the row, with --by or --summary", {}, |_, _| Value::Uint(1)),
    row!("lacking" "Lacking" 7 Right [] Integer Count Plain, "task_struct.tgid; /proc/PID",
        "Processes for which a sum in the row is incomplete, with --by or --summary", {}, |_, _| Value::Uint(0)),
];

pub const MAPPINGS: &[Field] = &[row!("maps" "Maps" 6 Right [VMA] Integer Count Plain,
"/proc/PID/maps", "Mappings in the row, with --by", {}, |_, row| match row.part {
    Part::Map(_) => Value::Uint(1),
    _ => row.missing(taskdiag_wire::Group::Vma),
})];

pub const FILES: &[Field] = &[row!("files" "Files" 6 Right [FD] Integer Count Plain,
"/proc/PID/fd", "Open files in the row, with --summary", {}, |_, row| match row.part {
    Part::File(_) => Value::Uint(1),
    _ => row.missing(taskdiag_wire::Group::Fd),
})];
