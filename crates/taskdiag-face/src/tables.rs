//! The kinds of tables that faces make of processes and cgroups: in SQL, for osquery, and of
//! recordings.

use taskdiag::Group;
use taskdiag::field::{CGROUPS, FILES, Field, MAPS, MEMORY, Set, TASKS};
use taskdiag::view::Query;

/// A kind of table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A row for each process.
    Processes,
    /// A row for each thread.
    Threads,
    /// A row for each open file of a process.
    Files,
    /// A row for each open socket of a process.
    Sockets,
    /// A row for each file that a process has mapped.
    MappedFiles,
    /// A row for each mapping of a process.
    Maps,
    /// A row for each process that has memory of its own.
    Memory,
    /// A row for each cgroup.
    Cgroups,
}

impl Kind {
    /// The tables of `taskdiag-sql`, in the order in which they are listed.
    pub const IN_SQL: [Kind; 7] = [
        Kind::Processes,
        Kind::Threads,
        Kind::Files,
        Kind::Sockets,
        Kind::Maps,
        Kind::Memory,
        Kind::Cgroups,
    ];
    /// The tables that `taskdiag convert` makes of a recording.
    pub const OF_RECORDINGS: [Kind; 6] =
        [Kind::Processes, Kind::Threads, Kind::Sockets, Kind::Files, Kind::MappedFiles, Kind::Maps];

    /// The name in SQL, and of files.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Processes => "processes",
            Kind::Threads => "threads",
            Kind::Files => "files",
            Kind::Sockets => "sockets",
            Kind::MappedFiles => "mapped_files",
            Kind::Maps => "maps",
            Kind::Memory => "memory",
            Kind::Cgroups => "cgroups",
        }
    }
    /// The kind of rows.
    pub fn set(self) -> &'static Set {
        match self {
            Kind::Processes | Kind::Threads => &TASKS,
            Kind::Files | Kind::Sockets => &FILES,
            Kind::MappedFiles | Kind::Maps => &MAPS,
            Kind::Memory => &MEMORY,
            Kind::Cgroups => &CGROUPS,
        }
    }
    /// The list of a process whose entries are the rows.
    pub fn list(self) -> Option<Group> {
        match self {
            Kind::Processes | Kind::Threads | Kind::Memory | Kind::Cgroups => None,
            Kind::Files | Kind::Sockets => Some(Group::Fd),
            Kind::MappedFiles | Kind::Maps => Some(Group::Vma),
        }
    }
    /// The column that names a row, or the process of a row.
    pub fn id_column(self) -> &'static str {
        if self == Kind::Cgroups { "path" } else { "pid" }
    }
    /// A query of these columns of all rows of the set. Which of them are rows of this table, the
    /// face adds as a condition.
    pub fn query(self, columns: impl IntoIterator<Item = &'static Field>) -> Query {
        let mut query = Query::new(self.set(), columns);
        query.threads = self == Kind::Threads;
        query
    }
}
