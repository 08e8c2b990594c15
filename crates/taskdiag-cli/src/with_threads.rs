//! `ps m` and `-m`: a row for each process, and below it one for each of its threads. Columns of
//! processes are `-` in the rows of threads, and the other way round, as in procps.

use std::collections::HashMap;
use std::io;

use taskdiag::Snapshot;
use taskdiag::field::{Context, Row, Value};

use crate::columns::Column;
use crate::output::plain;
use taskdiag::view::{Item, Rows, Sum, Take};

/// Columns of threads, which the row of a process does not have.
const THREADS: &[&str] = &[
    "blocked",
    "cap_prm",
    "caught",
    "class",
    "cls",
    "eip",
    "esp",
    "ignored",
    "ni",
    "opri",
    "pri",
    "pri_api",
    "pri_bar",
    "pri_baz",
    "pri_foo",
    "priority",
    "psr",
    "rchar",
    "read_bytes",
    "rtprio",
    "s",
    "sched",
    "stat",
    "syscr",
    "syscw",
    "tid",
    "wchan",
    "wchar",
    "write_bytes",
    "cancelled_write_bytes",
];
/// Columns of processes, which the row of a thread does not have.
const PROCESSES: &[&str] = &[
    "args",
    "args_environ",
    "cgroup",
    "comm",
    "comm_environ",
    "drs",
    "environ",
    "exe",
    "fds",
    "fname",
    "nlwp",
    "pgid",
    "pid",
    "pmem",
    "ppid",
    "pss",
    "rss",
    "sid",
    "size",
    "stackp",
    "supgid",
    "supgrp",
    "sz",
    "tpgid",
    "trs",
    "tty",
    "uss",
    "vsz",
];

/// The rows: processes of one answer, and threads of a second answer that was made right after the
/// first.
pub struct WithThreads<'a> {
    columns: &'a [Column],
    cx: &'a Context,
    processes: &'a Snapshot,
    /// The indices of the processes that are shown.
    tasks: &'a [u32],
    threads: &'a Snapshot,
    thread_cx: Context,
    /// The indices of the threads of each process.
    of: HashMap<u32, Vec<u32>>,
}

impl<'a> WithThreads<'a> {
    /// Rows of these processes with all their threads.
    pub fn new(
        columns: &'a [Column],
        cx: &'a Context,
        processes: &'a Snapshot,
        tasks: &'a [u32],
        threads: &'a Snapshot,
    ) -> WithThreads<'a> {
        let mut of: HashMap<u32, Vec<u32>> = HashMap::new();
        for (i, task) in threads.tasks().enumerate() {
            of.entry(task.tgid()).or_default().push(i as u32);
        }
        let thread_cx = Context::of(threads, true);
        WithThreads { columns, cx, processes, tasks, threads, thread_cx, of }
    }
    /// A row in which the columns `without` are `-`. Values whose text depends on the task are made
    /// text here.
    fn row(&self, cx: &Context, row: &Row<'_>, without: &[&str]) -> Sum {
        let value = |c: &Column| {
            if without.contains(&c.field.name) {
                return Value::Word("-");
            }
            match (c.field.get)(cx, row) {
                value @ (Value::Missing(_) | Value::Args { .. }) => {
                    let mut text = Vec::new();
                    plain::cell(&mut text, cx, c, Some(row), &value);
                    Value::Bytes { data: text.into(), cut: false }
                }
                value => value.into_owned(),
            }
        };
        let values: Vec<_> = self.columns.iter().map(value).collect();
        Sum::whole(values)
    }
}

impl Rows for WithThreads<'_> {
    fn each(&self, take: &mut Take<'_>) -> io::Result<()> {
        let stream = self.processes.stream();
        for task in self.tasks.iter().filter_map(|i| stream.get(*i as usize)) {
            let of_process = self.row(self.cx, &Row::new(task), THREADS);
            take(Item::Sum(&of_process))?;
            for i in self.of.get(&task.tgid()).into_iter().flatten() {
                let Some(thread) = self.threads.stream().get(*i as usize) else { continue };
                take(Item::Sum(&self.row(&self.thread_cx, &Row::new(thread), PROCESSES)))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_threads_and_processes_exist_and_differ() {
        for name in THREADS.iter().chain(PROCESSES) {
            let own = taskdiag::field::find(name).is_some_and(|n| n.field.name == *name);
            assert!(own, "{name} is no field's own name");
            assert!(!(THREADS.contains(name) && PROCESSES.contains(name)), "{name}");
        }
    }
}
