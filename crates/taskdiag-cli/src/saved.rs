//! Saved answers: the groups that each command needs in one, and how it is read.

use std::cell::RefCell;
use std::path::Path;

use taskdiag::engine::GROUPS;
use taskdiag::{Error, Group, Groups, Snapshot};

use crate::aside;
use crate::exit::{Exit, shown};
use crate::interrupt;

/// The values that commands show, by the names of the commands. The sets are written by hand,
/// because they follow the output of the commands and not a property of groups.
pub const COMMANDS: [(&str, Groups); 5] = {
    // The process and its owner.
    let identity = Groups::BASE.union(Groups::CRED).union(Groups::CMDLINE);
    // Mappings, and the files that are mapped.
    let lists = identity.union(Groups::VMA).union(Groups::FILE_STAT);
    [
        // The last three are added by the options -l, s and v of ps.
        ("ps", GROUPS.union(Groups::WCHAN).union(Groups::SIGNALS).union(Groups::LAYOUT)),
        ("files", lists.union(Groups::FD).union(Groups::FD_COUNT).union(Groups::PATHS)),
        ("maps", lists),
        ("memory", identity.union(Groups::STATM).union(Groups::ROLLUP)),
        ("tree", identity),
    ]
};

/// The groups that are recorded without `--groups` and `-o`: what ps, tree and top show, and what
/// costs little.
pub const RECORDED: Groups = Groups::CHEAP;

/// The groups that are saved by default.
pub fn default_groups() -> Groups {
    COMMANDS.iter().fold(Groups::NONE, |all, (_, groups)| all | *groups)
}

/// The command that saves these groups, for a user whose saved answer lacks some of them.
pub fn how_to_make(groups: Groups) -> String {
    let list = |default: Groups, rest: Groups| {
        let first = (!default.is_empty()).then_some("default");
        let names: Vec<&str> =
            first.into_iter().chain((rest - default).iter().map(Group::name)).collect();
        names.join(",")
    };
    let all = default_groups();
    if groups.contains(all) {
        return format!("'taskdiag dump --groups {}'", list(all, groups));
    }
    // 'taskdiag dump --groups ps' has more than a recording usually has.
    let [(_, ps), ..] = COMMANDS;
    if cfg!(feature = "record") && groups.contains(RECORDED) && !groups.contains(ps) {
        return format!("'taskdiag record --groups {}'", list(RECORDED, groups));
    }
    let list = list(Groups::NONE, groups);
    match cfg!(feature = "record") {
        true => {
            format!("'taskdiag dump --groups {list}', or 'taskdiag record' with the same groups")
        }
        false => format!("'taskdiag dump --groups {list}'"),
    }
}

/// The message if a saved answer has no threads.
pub fn no_threads() -> Exit {
    let record = if cfg!(feature = "record") { " or 'taskdiag record --threads'" } else { "" };
    Exit::Failed(format!(
        "the saved answer holds processes, not threads: make it with 'taskdiag dump --strategy all-thread'{record}"
    ))
}

thread_local! {
    /// The bytes used in place of the file of `--from`, see [`stand_in`].
    static STAND_IN: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
}

/// Use these bytes as the next saved stream in this thread, instead of the named file.
#[cfg(feature = "testing")]
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

/// The error if a saved answer cannot be read.
pub fn unread(path: &Path, e: &Error) -> Exit {
    let why = match e {
        Error::Io { source, .. } => source.to_string(),
        e => e.to_string(),
    };
    Exit::Failed(format!("--from {}: {why}{}", shown(path), rights(e)))
}

/// A hint if this user may not read a saved answer or a recording, because often only the owner
/// may.
pub fn rights(e: &Error) -> &'static str {
    match e {
        Error::Io { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => {
            "; run it as root or as the owner"
        }
        _ => "",
    }
}
