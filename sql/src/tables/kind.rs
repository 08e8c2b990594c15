// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tables there are, and their columns, which come from the field table of the library.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field as ArrowField, Schema, SchemaRef, TimeUnit};
use taskdiag::Groups;
use taskdiag::columns::Spec;
use taskdiag::field::{Field, TASKS};
use taskdiag::view::{Filter, Query};
use taskdiag_face::arrow::Form;
pub use taskdiag_face::tables::Kind;

/// Columns of rows that the command has added up.
const SUMMED: &[&str] = &["procs", "lacking", "maps"];
/// A column for trees.
const OF_TREES: &str = "branch";
/// The end of the names of rates, which need two listings.
const RATE: &str = "_now";
/// Columns about threads that have files of their own, which are not in the table `files`.
const OF_THREADS: &[&str] = &["threads", "task"];
/// The columns of files that sockets have.
const OF_SOCKETS: &[&str] = &[
    "command",
    "sharers",
    "fd",
    "fdnum",
    "access",
    "type",
    "flags",
    "inode",
    "path",
    "family",
    "protocol",
    "sockstate",
    "laddr",
    "lport",
    "raddr",
    "rport",
    "recvq",
    "sendq",
    "sock_netns",
    "peer_inode",
    "ends",
    "name",
];

/// The column that identifies sockets, and its value for them.
pub const IS_SOCKET: (&str, &str) = ("kind", "socket");

/// The columns of the rows, and then the columns of the process. If the rows have a column of the
/// same name, the column of the process is `task_NAME`.
pub fn columns(kind: Kind) -> Vec<Column> {
    let set = kind.set();
    let is_task = |f: &Field| TASKS.own().any(|t| std::ptr::eq(t, f));
    let has = |f: &&Field| match kind {
        Kind::Cgroups => f.name != OF_TREES && !f.name.ends_with(RATE),
        _ if SUMMED.contains(&f.name) => false,
        Kind::Memory => true,
        // A walk over the mappings or pages of each process would do harm in `select * from
        // processes`.
        _ if is_task(f) => !f.groups.intersects(Groups::WALKS),
        Kind::Sockets => OF_SOCKETS.contains(&f.name),
        Kind::Files => !OF_THREADS.contains(&f.name),
        _ => true,
    };
    let own: Vec<&'static Field> = set.own().filter(has).collect();
    let mut columns: Vec<Column> = Vec::new();
    // The ids always come first.
    let is_of_process = set.name != TASKS.name && kind != Kind::Cgroups;
    let beside: Vec<&'static Field> =
        if is_of_process { TASKS.own().filter(has).collect() } else { Vec::new() };
    let first = beside.iter().filter(|f| f.name == "pid").copied();
    for field in first.chain(own.iter().copied()) {
        columns.push(Column::of(field, field.name.to_owned(), field.name.to_owned()));
    }
    for field in beside.into_iter().filter(|f| f.name != "pid") {
        let is_taken = set.own().any(|o| is_called(o, field.name));
        let (name, of_view) = match is_taken {
            true => (format!("task_{}", field.name), format!("task.{}", field.name)),
            false => (field.name.to_owned(), field.name.to_owned()),
        };
        columns.push(Column::of(field, name, of_view));
    }
    columns
}

/// A query of these columns of all rows.
pub fn query(kind: Kind, columns: impl IntoIterator<Item = &'static Field>) -> Query {
    let mut query = kind.query(columns);
    if kind == Kind::Sockets {
        let (column, value) = IS_SOCKET;
        query.filter = Filter::parse(kind.set(), &format!("{column} == {value}")).ok();
        debug_assert!(query.filter.is_some(), "it is an expression of the library");
    }
    query
}

/// Is this one of the names of a field?
fn is_called(field: &Field, name: &str) -> bool {
    field.name == name || field.aliases.iter().any(|(alias, _)| *alias == name)
}

/// The column with the name of the host.
pub const HOST: &str = "host";

/// A column of a table.
#[derive(Clone, Debug)]
pub struct Column {
    /// The name of the column in SQL.
    pub name: String,
    /// What it has.
    pub what: What,
}

/// The content of a column.
#[derive(Clone, Debug)]
pub enum What {
    /// A field of the library.
    Field {
        /// Which.
        field: &'static Field,
        /// The name of the column in expressions of the library.
        name: String,
    },
    /// The moment of a frame of a recording.
    Moment,
    /// The name of the host.
    Host,
}

impl Column {
    fn of(field: &'static Field, name: String, of_view: String) -> Column {
        Column { name, what: What::Field { field, name: of_view } }
    }
    /// The additional columns of recordings.
    pub fn of_recordings() -> [Column; 2] {
        [
            Column { name: "ts".to_owned(), what: What::Moment },
            Column { name: HOST.to_owned(), what: What::Host },
        ]
    }
    /// The field of the library, if it has one.
    pub fn field(&self) -> Option<&'static Field> {
        match &self.what {
            What::Field { field, .. } => Some(field),
            _ => None,
        }
    }
    /// How Arrow describes it.
    pub fn arrow(&self) -> ArrowField {
        match &self.what {
            What::Field { field, .. } => Form::Queried.field(&Spec::of(&self.name, field)),
            What::Moment => {
                let kind = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
                ArrowField::new(&self.name, kind, false)
            }
            What::Host => ArrowField::new(&self.name, DataType::Utf8, false),
        }
    }
}

/// The schema of these columns.
pub fn schema(columns: &[Column]) -> SchemaRef {
    Arc::new(Schema::new(columns.iter().map(Column::arrow).collect::<Vec<_>>()))
}

#[cfg(test)]
mod tests {

    use super::*;
    use std::collections::HashSet;
    use taskdiag::field::{CGROUPS, FILES, MAPS};

    #[test]
    fn columns_have_names_of_their_own() {
        for kind in Kind::IN_SQL {
            let columns = super::columns(kind);
            let names: HashSet<&str> = columns.iter().map(|c| c.name.as_str()).collect();
            assert_eq!(names.len(), columns.len(), "{}", kind.name());
            assert_eq!(columns[0].name, kind.id_column(), "{}", kind.name());
            for column in &columns {
                let What::Field { field, name } = &column.what else { panic!("{column:?}") };
                let found = kind.set().find(name).expect("the library knows it").field;
                assert_eq!(
                    (found.name, found.source),
                    (field.name, field.source),
                    "{}",
                    column.name
                );
            }
        }
    }

    #[test]
    fn a_star_does_not_walk_over_pages() {
        for kind in [Kind::Processes, Kind::Threads, Kind::Files, Kind::Sockets] {
            let fields = columns(kind).into_iter().filter_map(|c| c.field());
            assert!(!query(kind, fields).groups().intersects(Groups::WALKS), "{}", kind.name());
        }
        assert!(columns(Kind::Memory).iter().any(|c| c.name == "pss"));
    }

    #[test]
    fn lists_of_columns_name_columns() {
        let is_of_files = |name: &str| FILES.own().any(|f| f.name == name);
        assert!(OF_SOCKETS.iter().chain(OF_THREADS).all(|name| is_of_files(name)));
        assert!(CGROUPS.find(OF_TREES).is_some() && CGROUPS.own().any(|f| f.name.ends_with(RATE)));
        assert!(SUMMED.iter().all(|n| MAPS.own().any(|f| f.name == *n)));
    }
}
