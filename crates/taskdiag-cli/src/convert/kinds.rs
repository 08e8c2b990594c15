//! Finds out whether the answers of an hour are of processes or of threads, which decides its
//! tables.
//!
//! A recorder records either processes or threads. If its options were changed, an hour can have
//! answers of both. Then it has both tables, because rows of processes and of threads must not be
//! mixed in one table.

use taskdiag::field::TASKS;
use taskdiag::recording::{Frame, Recording};

use crate::args::convert::{Table, TableArgs};
use crate::columns;
use crate::exit::Exit;

/// Whether the answers of an hour are of processes, of threads, or of both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kinds {
    /// Some answers have the threads of each process.
    pub threads: bool,
    /// Some answers have only processes.
    pub processes: bool,
}

/// Whether an answer has threads.
pub fn has_threads(frame: &Frame) -> bool {
    frame.snapshot.stream().strategy().is_threads()
}

impl Kinds {
    /// Looks at these frames. It reads only the first frame of each writer, because a writer makes
    /// the same request each time.
    pub fn of(recording: &Recording, frames: &[usize]) -> Kinds {
        let mut kinds = Kinds::default();
        // Must more frames of this writer be read? Its first one may be damaged.
        let mut is_due = true;
        for number in frames {
            is_due |= recording.info(*number).is_some_and(|info| info.begins);
            if let Some(frame) = is_due.then(|| recording.read(*number).ok()).flatten() {
                is_due = false;
                match has_threads(&frame) {
                    true => kinds.threads = true,
                    false => kinds.processes = true,
                }
            }
        }
        kinds
    }
}

/// The tables of an hour with these answers. The first table is the table of tasks.
pub fn tables(wanted: &[TableArgs], kinds: Kinds) -> Result<Vec<TableArgs>, Exit> {
    if !kinds.threads {
        return Ok(wanted.to_vec());
    }
    let mut tables = Vec::new();
    for table in wanted {
        let mut table = table.clone();
        if table.table == Table::Processes {
            if kinds.processes {
                tables.push(table.clone());
            }
            table.table = Table::Threads;
        }
        // A thread may have open files of its own. All threads have the same mappings.
        let has_tid = matches!(table.table, Table::Threads | Table::Sockets | Table::Files);
        if has_tid && !table.columns.iter().any(|c| c.key == "tid") {
            table.columns.insert(1, columns::view(&TASKS, "tid")?.remove(0));
        }
        tables.push(table);
    }
    Ok(tables)
}
