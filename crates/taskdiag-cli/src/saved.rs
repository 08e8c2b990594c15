//! Which groups a saved answer holds, so that every command can show it.

use taskdiag::engine::GROUPS;
use taskdiag::{Group, Groups};

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
