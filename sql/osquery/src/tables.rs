// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tables that osquery gets, and the types of their columns. The definition of the columns is
//! in the field table of the library.

use osquery_rust_ng::plugin::{ColumnDef, ColumnOptions, ColumnType};
use taskdiag::columns::{Spec, Type};
use taskdiag::view::Query;
use taskdiag_face::tables::Kind;

/// A table.
#[derive(Debug)]
pub struct Table {
    /// The name of the table in osquery, which reserves names such as `processes` for itself.
    pub name: &'static str,
    /// The kind of the rows.
    pub kind: Kind,
    /// Names of the library's columns, with blanks between them. A table has at most 63. osquery
    /// could not pass on whether a query needs further columns, and would request all of them.
    pub columns: &'static str,
}

/// All tables.
pub static TABLES: [Table; 7] = [
    Table {
        name: "taskdiag_processes",
        kind: Kind::Processes,
        columns: "pid ppid pgid sid tty s start comm args exe cwd root user uid ruid suid gid rgid nnp seccomp tracer \
            usertime systime cutime cstime pcpu minflt majflt ni rtprio cls psr nlwp vsz rss peak_rss rss_anon \
            rss_file rss_shmem locked swap read_bytes write_bytes run_delay nvcsw nivcsw mntns netns pidns \
            userns cgroup_path wchan fds oom_score oom_score_adj label luid unit slice machine container runtime \
            pod",
    },
    Table {
        name: "taskdiag_threads",
        kind: Kind::Threads,
        columns: "pid tid s start comm user uid usertime systime pcpu minflt majflt ni rtprio cls psr read_bytes \
            write_bytes run_time run_delay timeslices nvcsw nivcsw wchan unit container",
    },
    Table {
        name: "taskdiag_waits",
        kind: Kind::Threads,
        columns: "pid tid comm s waits_on waited waits_for waits_for_comm waits_for_how syscall wchan user unit container",
    },
    Table {
        name: "taskdiag_memory",
        kind: Kind::Memory,
        columns: "pid comm user rss pss uss swap pss_anon pss_file pss_shmem shared_clean shared_dirty private_clean \
            private_dirty referenced anonymous ksm lazyfree anon_huge shmem_huge file_huge swap_pss unit \
            container",
    },
    Table {
        name: "taskdiag_memory_map",
        kind: Kind::Maps,
        columns: "pid address end size perms offset device inode kind path deleted vmflags rss pss uss dirty \
            shared_clean shared_dirty private_clean private_dirty referenced anonymous anon_huge swap swap_pss \
            locked",
    },
    Table {
        name: "taskdiag_open_files",
        kind: Kind::Files,
        columns: "pid command fd fdnum access lock type kind dev rdev size offset inode nlink flags deleted path \
            family protocol sockstate laddr lport raddr rport recvq sendq sock_netns peer_inode ends name",
    },
    Table {
        name: "taskdiag_cgroups",
        kind: Kind::Cgroups,
        columns: "path name id level unit slice container runtime pod container_name image pod_name pod_namespace tasks procs \
            populated frozen pids_max time usertime systime cpu_quota_us cpu_period_us cpu_weight periods throttles \
            throttled read_bytes write_bytes reads writes memory memory_peak memory_min memory_low memory_high memory_max \
            swap swap_max events_high events_max oom oom_kills anon file kernel shmem file_dirty pgmajfault cpu_some \
            cpu_full memory_some memory_full io_some io_full cpu_some_time memory_some_time io_some_time",
    },
];

/// A column of a table.
#[derive(Debug)]
pub struct Column {
    /// The library's description.
    pub field: &'static taskdiag::field::Field,
    /// How the values are stored.
    pub spec: Spec,
}

impl Column {
    /// The type in osquery.
    fn kind(&self) -> ColumnType {
        match self.spec.kind {
            Type::U64 | Type::I64 | Type::Timestamp => ColumnType::BigInt,
            Type::Bool => ColumnType::Integer,
            Type::F64 | Type::Duration => ColumnType::Double,
            Type::Text | Type::TextList | Type::U32List => ColumnType::Text,
        }
    }
    /// The description for osquery. With this option, osquery joins on the process id with one
    /// request per process, which is cheap.
    pub fn definition(&self) -> ColumnDef {
        let options = match self.spec.name.as_str() {
            "pid" => ColumnOptions::INDEX,
            _ => ColumnOptions::DEFAULT,
        };
        ColumnDef::new(&self.spec.name, self.kind(), options)
    }
}

impl Table {
    /// The columns, in order.
    pub fn columns(&self) -> Vec<Column> {
        let column = |name: &'static str| {
            let field = self.kind.set().find(name).expect("a test looks up each name").field;
            Column { field, spec: Spec::of(name, field) }
        };
        self.columns.split_whitespace().map(column).collect()
    }
    /// A query of these columns of all rows.
    pub fn query<'a>(&self, columns: impl Iterator<Item = &'a Column>) -> Query {
        self.kind.query(columns.map(|c| c.field))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use taskdiag::Groups;

    #[test]
    fn columns_are_the_librarys_and_osquery_can_tell_them_apart() {
        for table in &TABLES {
            let columns = table.columns();
            assert!(columns.len() <= 63, "{}: {}", table.name, columns.len());
            assert_eq!(columns[0].spec.name, table.kind.id_column(), "{}", table.name);
            let fields: HashSet<*const _> =
                columns.iter().map(|c| std::ptr::from_ref(c.field)).collect();
            assert_eq!(fields.len(), columns.len(), "{}: a column is there twice", table.name);
        }
    }

    #[test]
    fn the_documentation_has_each_table() {
        let text = include_str!("../../../docs/use/sql.md");
        assert!(TABLES.iter().all(|t| text.contains(&format!("\n| `{}` |", t.name))));
    }

    #[test]
    fn a_star_of_processes_does_not_walk_over_pages() {
        for table in TABLES.iter().filter(|t| t.kind.list().is_none() && t.kind != Kind::Memory) {
            let groups = table.query(table.columns().iter()).groups();
            assert!(!groups.intersects(Groups::WALKS), "{}", table.name);
        }
    }
}
