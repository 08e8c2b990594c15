//! The ready-made views: their columns and sort keys.

use crate::args::top::SET;
use crate::columns::{self, Column};
use crate::order::Key;

/// A ready-made view.
#[derive(Debug)]
pub struct View {
    /// Its name.
    pub name: &'static str,
    columns: &'static str,
    sort: &'static str,
}

/// All of them. The keys 1 to 5 choose one.
pub const VIEWS: &[View] = &[
    View {
        name: "cpu",
        columns: "pid,user,ni,s,nlwp,cpu_now,pmem,rss:6,time,args",
        sort: "-cpu_now",
    },
    View {
        name: "memory",
        columns: "pid,user,s,pmem,rss:6,rss_anon:6,rss_shmem:6,swap:6,vsz:6,majflt_now,args",
        sort: "-rss",
    },
    View {
        name: "I/O",
        columns: "pid,user,s,read_now,write_now,read_bytes:6,write_bytes:6,cpu_now,args",
        sort: "-write_now,-read_now",
    },
    View {
        name: "scheduling",
        columns: "pid,user,s,nlwp,cpu_now,user_now,sys_now,wait_now,nvcsw_now,nivcsw_now,minflt_now,majflt_now,args",
        sort: "-wait_now",
    },
    View {
        name: "waits",
        columns: "pid,user,s,blocked,still,wchan:18,args",
        sort: "-blocked,-still",
    },
];

/// The columns that are added up in rows that represent several tasks.
const SUMS: &str = "procs:6,nlwp:6,cpu_now,pmem,rss:6,swap:6,read_now,write_now,time";

/// The columns that rows can be added up by, in the order of the key `b`.
pub const BYS: &[&str] =
    &["unit", "slice", "container_name", "pod_name", "image", "user", "comm", "exe"];

/// The columns with the command of a task, in the order of the key that changes them.
pub const COMMANDS: [&str; 3] = ["args", "comm", "exe"];

impl View {
    /// The columns.
    pub fn columns(&self, threads: bool) -> Vec<Column> {
        let mut all =
            columns::view(SET, self.columns).expect("the view names columns of the table");
        if threads {
            let tid = columns::view(SET, "tid").expect("it is in the table");
            all.splice(1..1, tid);
            all.retain(|c| c.field.name != "nlwp");
        }
        all
    }
    /// The sort keys.
    pub fn sort(&self) -> Vec<Key> {
        let keys: Option<Vec<Key>> = self.sort.split(',').map(|k| Key::parse(SET, k)).collect();
        keys.expect("the view is sorted by columns of the table")
    }
}

/// The columns of sums for each value of this column.
pub fn sums(by: &Column) -> Vec<Column> {
    let mut all = columns::view(SET, SUMS).expect("they are in the table");
    all.push(by.clone());
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_have_the_columns_they_are_sorted_by() {
        for view in VIEWS {
            let columns = view.columns(true);
            for key in view.sort() {
                assert!(columns.iter().any(|c| c.field.name == key.field.name), "{}", view.name);
            }
        }
        for by in BYS {
            assert!(sums(&columns::view(SET, by).unwrap()[0]).len() > 5);
        }
    }
}
