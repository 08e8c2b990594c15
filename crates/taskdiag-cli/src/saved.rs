//! Saved answers: which groups one holds, so that every command can show it, and how it is read.

use std::cell::RefCell;
use std::path::Path;

use taskdiag::engine::GROUPS;
use taskdiag::{Error, Group, Groups, Snapshot};

use crate::aside;
use crate::exit::{Exit, shown};
use crate::interrupt;

/// What commands show, by their names.
pub const COMMANDS: [(&str, Groups); 5] = [
    // The last two are what the options -l and s of ps add.
    ("ps", GROUPS.union(Groups::WCHAN).union(Groups::SIGNALS)),
    ("files", LISTS.union(Groups::FD).union(Groups::FD_COUNT).union(Groups::PATHS)),
    ("maps", LISTS),
    ("memory", IDENTITY.union(Groups::STATM).union(Groups::ROLLUP)),
    ("tree", IDENTITY),
];
/// Which process, and whose.
const IDENTITY: Groups = Groups::BASE.union(Groups::CRED).union(Groups::CMDLINE);
/// What tells of mapped files.
const LISTS: Groups = IDENTITY.union(Groups::VMA).union(Groups::FILE_STAT);

/// What is saved where no groups are named.
pub fn default_groups() -> Groups {
    COMMANDS.iter().fold(Groups::NONE, |all, (_, groups)| all | *groups)
}

/// A value of `--groups` for an answer that has these groups.
pub fn list_of(groups: Groups) -> String {
    let default = default_groups();
    let (first, rest) = match groups.contains(default) {
        true => (Some("default"), groups - default),
        false => (None, groups),
    };
    let names: Vec<&str> = first.into_iter().chain(rest.iter().map(Group::name)).collect();
    names.join(",")
}

thread_local! {
    /// The bytes used in place of the file of `--from`, see [`stand_in`].
    static STAND_IN: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
}

/// Use these bytes as the next saved stream in this thread, whatever file is named.
pub fn stand_in(bytes: &[u8]) {
    STAND_IN.set(Some(bytes.to_vec()));
}

/// Read a saved stream.
pub fn read(path: &Path) -> Result<Snapshot, Error> {
    let result = match STAND_IN.take() {
        Some(bytes) => Snapshot::read_from(&bytes[..]),
        None => {
            aside::read(path).map_err(|e| Error::io("opening it", e)).and_then(Snapshot::read_from)
        }
    };
    interrupt::answered();
    result
}

/// Why there is no saved answer.
pub fn unread(path: &Path, e: &Error) -> Exit {
    let why = match e {
        Error::Io { source, .. } => source.to_string(),
        e => e.to_string(),
    };
    Exit::Failed(format!("--from {}: {why}", shown(path)))
}
