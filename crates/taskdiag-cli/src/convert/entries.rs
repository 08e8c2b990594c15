//! Defines the rows of each table: the list of a process, the entries of it that count, and the
//! columns that identify an entry.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use taskdiag::field::{Part, Row};
use taskdiag::files::OpenFile;
use taskdiag::view::{Query, View};
use taskdiag::{FdType, Group, Reason, VmaKind};

use super::changes::Key;
use crate::args::convert::Table;
use crate::columns::Column;

/// The rows of a table of a recording.
pub trait Entries: Sized {
    /// The list whose entries are the rows, in words for people.
    fn list_name(self) -> &'static str;
    /// A query of these columns of all rows.
    fn rows(self, columns: &[Column]) -> Query;
    /// The key of a row whose task began at this time.
    fn key(self, row: &Row<'_>, start_ticks: u64) -> Key;
    /// The processes whose lists are missing or incomplete in an answer, and why. Processes that
    /// cannot have such a list are left out, such as kernel threads, which have no mappings.
    fn gaps(self, view: &View<'_>) -> HashMap<u32, Reason>;
}

impl Entries for Table {
    fn list_name(self) -> &'static str {
        if self.list() == Some(Group::Fd) { "open files" } else { "mappings" }
    }
    fn rows(self, columns: &[Column]) -> Query {
        let mut query = self.query(columns.iter().map(|c| c.field));
        query.keep = match self {
            Table::Sockets => Some(Arc::new(|row| {
                descriptor(row).is_some_and(|f| f.fd_type() == Some(FdType::Socket))
            })),
            // The answer may have mapped files and paths, too.
            Table::Files => Some(Arc::new(|row| descriptor(row).is_some())),
            Table::MappedFiles => Some(Arc::new(
                |row| matches!(row.part, Part::Map(map) if map.kind() == Some(VmaKind::File)),
            )),
            Table::Processes | Table::Threads | Table::Maps | Table::Memory | Table::Cgroups => {
                None
            }
        };
        query
    }
    fn key(self, row: &Row<'_>, start_ticks: u64) -> Key {
        let (pid, tid) = (row.view.tgid(), row.view.pid());
        match row.part {
            // A thread may have a table of open files of its own.
            Part::File(open) => {
                let fd = open.file.fd().map_or(0, |fd| fd.raw.fd);
                Key { pid, start_ticks, entry: [tid.into(), fd.into(), 0], boot: 0 }
            }
            Part::Map(map) if self == Table::MappedFiles => {
                // On file systems such as btrfs, several files of one device can have the same
                // inode number, so the path is needed, too.
                let mut path = DefaultHasher::new();
                map.name.map(|n| n.bytes).hash(&mut path);
                let vma = map.vma.raw;
                Key { pid, start_ticks, entry: [vma.dev.into(), vma.inode, path.finish()], boot: 0 }
            }
            Part::Map(map) => Key { pid, start_ticks, entry: [map.vma.raw.start, 0, 0], boot: 0 },
            _ => Key { pid: tid, start_ticks, entry: [0; 3], boot: 0 },
        }
    }
    fn gaps(self, view: &View<'_>) -> HashMap<u32, Reason> {
        match self.list() {
            None => HashMap::new(),
            Some(Group::Vma) => {
                let gap = |task: Row<'_>| {
                    let is_there = || task.each_map(|_| Err(())) != Ok(false);
                    match task.view.reason(Group::Vma) {
                        Some(Reason::Absent) => None,
                        Some(reason) => Some((task.view.tgid(), reason)),
                        None => (!is_there()).then_some((task.view.tgid(), Reason::Unsupported)),
                    }
                };
                view.mappings(false).tasks().filter_map(gap).collect()
            }
            Some(group) => {
                let gaps = view.files().into_iter().flat_map(|files| files.gaps());
                let gaps = gaps.filter(|g| g.group == group && g.reason != Reason::Absent);
                gaps.map(|g| (g.task.tgid(), g.reason)).collect()
            }
        }
    }
}

/// The file of a row, if it is open as a descriptor.
fn descriptor<'a>(row: &Row<'a>) -> Option<&'a OpenFile<'a>> {
    match row.part {
        Part::File(open) if open.file.fd().is_some() => Some(open.file),
        _ => None,
    }
}
