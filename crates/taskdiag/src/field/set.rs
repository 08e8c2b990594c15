//! The tables of columns, by the kind of row. Rows of a list have their own columns and all columns
//! of the task. If both have a name, it means the column of the list, and `task.NAME` that of the
//! task.

use super::{Field, Named, table};

/// The columns of one kind of row.
#[derive(Debug)]
#[non_exhaustive]
pub struct Set {
    /// The kind of the rows: `tasks`, `maps`, `memory`, `files`, `top` or `cgroups`.
    pub name: &'static str,
    own: &'static [&'static [Field]],
    /// Do rows also have the columns of their task?
    beside: bool,
}

/// Rows are tasks.
pub static TASKS: Set = Set { name: "tasks", own: table::TABLES, beside: false };
/// Rows are memory mappings.
pub static MAPS: Set = Set { name: "maps", own: table::MAPS, beside: true };
/// Rows are tasks, or several together.
pub static MEMORY: Set = Set { name: "memory", own: table::MEMORY, beside: true };
/// Rows are files that are in use.
pub static FILES: Set = Set { name: "files", own: table::FILES, beside: true };
/// Rows are tasks, or several together, with their activity since the previous answer
/// ([`Part::Rate`](super::Part::Rate)).
pub static TOP: Set = Set { name: "top", own: table::TOP, beside: true };
/// Rows are cgroups.
pub static CGROUPS: Set = Set { name: "cgroups", own: table::CGROUPS, beside: false };
/// All sets.
pub static SETS: &[&Set] = &[&TASKS, &MAPS, &MEMORY, &FILES, &TOP, &CGROUPS];

/// Words that are no columns of tasks, and the columns that are meant.
const MEANT: &[(&[&str], &str)] = &[
    (&["name", "command_name", "process"], "the name of a process is comm"),
    (&["threads"], "the number of threads is nlwp"),
    (&["mem", "memory", "ram"], "memory is rss, and its share is %mem"),
    (&["cpu%", "cpu_percent"], "the share of CPU time is %cpu"),
    (&["cmdline", "commandline"], "the command line is args"),
    (&["parent"], "the parent is ppid"),
    (&["status"], "the state is s, or stat"),
];

/// Words that people try for columns of cgroups, and the sentence about each.
const MEANT_OF_CGROUPS: &[(&[&str], &str)] = &[
    (&["cgroup_path", "cgname"], "the path of a cgroup is path"),
    (&["mem", "ram", "rss", "resident"], "the memory of a cgroup is memory"),
    (&["limit", "max"], "limits are memory_max, swap_max, cpu_max and pids_max"),
    (&["threads", "nlwp"], "the number of threads is tasks"),
    (&["processes", "nprocs"], "the number of processes is procs"),
    (&["cpu", "%cpu", "pcpu", "cpu%", "cpu_percent"], "CPU time is time, and with -d 1s, cpu_now"),
    (&["io"], "I/O is read_bytes and write_bytes, and with -d 1s, read_now and write_now"),
];

const OF_TASK: &str = "task.";

fn names_of(tables: &'static [&'static [Field]]) -> impl Iterator<Item = Named> {
    tables.iter().flat_map(|t| t.iter()).flat_map(|field| {
        std::iter::once((field.name, field.header))
            .chain(field.aliases.iter().copied())
            .map(move |(name, header)| Named { field, name, header })
    })
}

/// The known name nearest to a misspelt one. `None`: no name is near.
pub fn nearest<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // If two names are equally near, the one with the same first letter is more likely: `user` for
    // `usr`, not `psr`.
    let is_other_start = |name: &str| word.chars().next() != name.chars().next();
    let near =
        |name: &'a str| (strsim::damerau_levenshtein(word, name), is_other_start(name), name);
    let (distance, _, name) = names.into_iter().map(near).min()?;
    // A third of the letters may be wrong, and two of a short word.
    let is_near = distance <= (word.chars().count() / 3).max(2) && distance < name.len();
    is_near.then_some(name)
}

impl Set {
    /// The command of the program that lists these rows.
    pub fn command(&self) -> &'static str {
        if std::ptr::eq(self, &TASKS) { "ps" } else { self.name }
    }
    /// A sentence that names the column for a word that people try, but that is no column of these
    /// rows, such as `threads` for `nlwp`.
    pub fn meant(&self, word: &str) -> Option<&'static str> {
        let words = if std::ptr::eq(self, &CGROUPS) { MEANT_OF_CGROUPS } else { MEANT };
        let found = words.iter().find(|(words, _)| words.contains(&word)).map(|(_, meant)| *meant);
        found.filter(|_| self.find(word).is_none())
    }
    /// A sentence for a name that is no column of these rows, with the column that may be meant.
    pub fn no_column(&self, name: &str) -> String {
        let near = || nearest(name, self.all_names().map(|n| n.name));
        let hint = match (self.meant(name), self.elsewhere(name)) {
            (Some(meant), _) => format!(": {meant}"),
            (_, Some(other)) => format!("; it is a column of {}", other.name),
            _ => near().map_or_else(String::new, |near| format!(" (did you mean '{near}'?)")),
        };
        format!("{} have no column '{name}'{hint}", self.name)
    }
    /// Do its rows also have the columns of their task?
    pub fn has_task_columns(&self) -> bool {
        self.beside
    }
    /// The columns that only these rows have, in the order of the table.
    pub fn own(&self) -> impl Iterator<Item = &'static Field> {
        self.own.iter().flat_map(|t| t.iter())
    }
    /// Every name that [`find`](Self::find) knows, except for those with `task.` before them.
    pub fn all_names(&self) -> impl Iterator<Item = Named> {
        let tasks: &[&[Field]] = if self.beside { table::TABLES } else { &[] };
        names_of(self.own).chain(names_of(tasks))
    }
    /// The set that has a column with this name or alias, if this set does not.
    pub fn elsewhere(&self, name: &str) -> Option<&'static Set> {
        let other = || SETS.iter().copied().find(|s| s.find(name).is_some());
        self.find(name).map_or_else(other, |_| None)
    }
    /// The column with this name or alias.
    pub fn find(&self, name: &str) -> Option<Named> {
        if let (Some(of_task), true) = (name.strip_prefix(OF_TASK), self.beside) {
            return names_of(table::TABLES).find(|n| n.name == of_task);
        }
        self.all_names().find(|n| n.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_names_the_column_that_is_meant() {
        for (name, want) in [
            ("threads", "tasks have no column 'threads': the number of threads is nlwp"),
            ("address", "tasks have no column 'address'; it is a column of maps"),
            ("rsss", "tasks have no column 'rsss' (did you mean 'rss'?)"),
            ("no such thing", "tasks have no column 'no such thing'"),
        ] {
            assert_eq!(TASKS.no_column(name), want);
        }
    }

    #[test]
    fn a_word_that_is_no_column_is_explained_by_columns() {
        for (set, words) in [(&TASKS, MEANT), (&CGROUPS, MEANT_OF_CGROUPS)] {
            for (word, meant) in
                words.iter().flat_map(|(w, meant)| w.iter().map(move |w| (w, meant)))
            {
                assert!(set.find(word).is_none(), "{word} is a column of {}", set.name);
                assert_eq!(set.meant(word), Some(*meant));
                let named = meant.split([' ', ',']).filter(|w| set.find(w).is_some()).count();
                assert!(named > 0, "{meant}");
            }
        }
        assert_eq!(
            (FILES.meant("name"), TASKS.meant("pid"), CGROUPS.meant("name")),
            (None, None, None)
        );
    }
}
