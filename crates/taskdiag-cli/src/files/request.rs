//! The request of a call of `taskdiag files`, made from its own options or from those of lsof.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use super::layout::Layout;
use super::letters::Fields;
use super::select::FileSelection;
use crate::args::table;
use crate::columns::Column;
use crate::exit::{Asked, Lack};

/// The request of a call of `taskdiag files`.
#[derive(Clone, Debug)]
pub struct FilesArgs {
    /// The options of all tables.
    pub table: table::TableArgs,
    /// Which files.
    pub select: FileSelection,
    /// Pids only?
    pub terse: bool,
    /// Lines of fields for programs.
    pub fields: Option<Fields>,
    /// A column for the process group?
    pub groups: bool,
    /// How many files are open, not which?
    pub count: bool,
    /// Numbers of files for each value of this column?
    pub summary: Option<Column>,
    /// List repeatedly?
    pub repeat: Option<Repeat>,
    /// Uids for users?
    pub numeric_users: bool,
    /// A column for the parent?
    pub parents: bool,
    /// The table of lsof, and its properties.
    pub strict: Option<Layout>,
    /// Places that do not exist; only their names can be searched for.
    pub nowhere: Vec<PathBuf>,
    /// The FILEs that do not exist, each with the reason that lsof prints.
    pub missing: Vec<(PathBuf, String)>,
    /// `-i` as it was typed.
    pub inet: Vec<String>,
    /// `-c` as it was typed.
    pub commands: Vec<Vec<u8>>,
    /// The names of `-c ^NAME`, without the `^`.
    pub excluded_commands: Vec<Vec<u8>>,
    /// A text instead of a list.
    pub instead: Option<Instead>,
    /// Messages about places that could not be checked, or only in part, because they do not
    /// answer.
    pub unseen: Vec<Lack>,
}

/// `-r`: a list after the other.
#[derive(Clone, Debug)]
pub struct Repeat {
    /// The time between them.
    pub every: Duration,
    /// `+r`: until there is nothing to list.
    pub while_any: bool,
    /// The largest number of lists.
    pub count: Option<u32>,
    /// The line between them, for strftime(3).
    pub format: Option<OsString>,
}

/// A text instead of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instead {
    /// `-h` and `-?`.
    Help,
    /// `-v`.
    Version,
    /// `-F ?`.
    Letters,
}

impl FilesArgs {
    /// How exactly the caller names the subject of the answer. A user who names a file and sees
    /// processes that use it has an answer. A user who sees no process cannot know whether there
    /// are any.
    pub fn asked(&self, is_empty: bool) -> Asked {
        let select = &self.select;
        let named = !select.uids.only.is_empty()
            || !select.pgids.only.is_empty()
            || !select.commands.only.is_empty()
            || !self.unseen.is_empty()
            || is_empty && !select.places.is_empty();
        match (self.table.source.strict, !select.pids.only.is_empty(), named) {
            (true, ..) => Asked::Strict,
            (false, true, _) => Asked::Pids,
            (false, false, true) => Asked::Named,
            (false, false, false) => Asked::All,
        }
    }
}
