//! The number of open files.

use taskdiag_wire::{FdCount, Group, Groups, Record};

use super::super::*;

/// Threads share the count of their process, and only one task has it.
fn count<'a>(row: &Row<'a>, get: impl FnOnce(Record<'_, FdCount>) -> Option<u32>) -> Value<'a> {
    let shared = || match row.part {
        Part::Table(table) => table.owner.record::<FdCount>(),
        _ => row.view.owner(Group::FdCount)?.record::<FdCount>(),
    };
    match row.fd_count.or_else(shared) {
        Some(c) => get(c).map_or(Value::UNKNOWN, |n| Value::Uint(n.into())),
        None => row.missing(Group::FdCount),
    }
}

pub const FIELDS: &[Field] = &[
    row!("fds" "FDS" 5 Right [FD_COUNT] Integer Count Plain, "/proc/PID/fd, files_struct",
        "Open file descriptors", {}, |_, row| count(row, |r| r.open())),
    row!("fdsize" "FDSIZE" 6 Right [FD_COUNT] Integer Count Plain, "/proc/PID/status FDSize",
        "Size of the table of file descriptors", {}, |_, row| count(row, |r| r.size())),
];
