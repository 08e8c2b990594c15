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
