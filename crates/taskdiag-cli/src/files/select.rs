//! Which open files are shown: conditions of several kinds, joined by "or", or by "and" with `-a`,
//! as in lsof. Exclusions (`^`) always apply.

use std::sync::atomic::{AtomicU64, Ordering};

use memchr::memmem;
use taskdiag::Groups;
use taskdiag::field::Row;
use taskdiag::files::{OpenFile, What, is_inet};
use taskdiag::view::PidfdInodes;

use super::inet::{Inet, States};
use super::place::Place;

/// A condition on values: the wanted ones, or the excluded ones.
#[derive(Clone, Debug)]
pub struct Among<T> {
    /// The accepted values; empty: any value.
    pub only: Vec<T>,
    /// None of these.
    pub not: Vec<T>,
}

impl<T> Default for Among<T> {
    fn default() -> Among<T> {
        Among { only: Vec::new(), not: Vec::new() }
    }
}

/// A condition on command names.
#[derive(Clone, Debug)]
pub enum CommandName {
    /// It begins so.
    Begins(Vec<u8>),
    /// This is in it.
    Matches(taskdiag::view::Pattern),
}

impl CommandName {
    /// Does this command name match?
    pub fn is(&self, comm: &[u8]) -> bool {
        match self {
            CommandName::Begins(begin) => comm.starts_with(begin),
            CommandName::Matches(regex) => regex.is_match(comm),
        }
    }
}

/// A descriptor in the words of `-d`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Label {
    /// cwd, rtd, txt, mem, DEL.
    Word(&'static str),
    /// fd: all descriptors.
    Fds,
    /// Descriptors in a range.
    Range(u32, u32),
}

/// Rows that are not descriptors, by label.
pub const WORDS: [&str; 5] = ["cwd", "rtd", "txt", "mem", "DEL"];

/// Which open files to show. Empty: all.
#[derive(Clone, Debug, Default)]
pub struct FileSelection {
    /// Processes.
    pub pids: Among<u32>,
    /// The inodes that the pidfds of some of them have.
    pub inodes: PidfdInodes,
    /// Effective uids.
    pub uids: Among<u32>,
    /// Process groups.
    pub pgids: Among<u32>,
    /// How the command's name begins.
    pub commands: Among<CommandName>,
    /// Internet sockets.
    pub inet: Vec<Inet>,
    /// Which of the internet sockets.
    pub states: Vec<States>,
    /// Unix sockets.
    pub unix: bool,
    /// Descriptors.
    pub labels: Among<Label>,
    /// Types of file: names of lsof in lower case, or of ours.
    pub types: Vec<String>,
    /// Files that are deleted.
    pub deleted: bool,
    /// Files with fewer hard links.
    pub links_below: Option<u32>,
    /// Sockets of these network namespaces.
    pub netns: Vec<u32>,
    /// Files of the directory tree.
    pub places: Vec<Place>,
    /// The places that are words instead of files: open files of processes with the word in their
    /// name or arguments are shown, too.
    pub words: Words,
    /// Must rows match all kinds of conditions?
    pub and: bool,
    /// The rows cwd, rtd and txt of `--paths`, and mem of `--mem`.
    pub paths: bool,
    /// See `paths`.
    pub mapped: bool,
}

/// Words to find processes by.
#[derive(Debug, Default)]
pub struct Words {
    all: Vec<Vec<u8>>,
    /// This process and those that run it. They have the words in their own arguments, and are
    /// left out.
    except: Vec<u32>,
    /// The task that was checked last, and in the lowest bit whether it has a word. A task has many
    /// files, and its arguments may be long.
    last: AtomicU64,
}

impl Clone for Words {
    fn clone(&self) -> Words {
        Words::new(self.all.clone(), self.except.clone())
    }
}

impl Words {
    /// A search for these words that never finds the processes `except`.
    pub fn new(all: Vec<Vec<u8>>, except: Vec<u32>) -> Words {
        Words { all, except, last: AtomicU64::new(0) }
    }
    /// Is this one of them?
    pub fn has(&self, word: &[u8]) -> bool {
        self.all.iter().any(|w| w == word)
    }
    /// Has the task one of them in its name or arguments?
    fn are_in(&self, row: &Row<'_>) -> bool {
        if self.all.is_empty() || self.except.contains(&row.view.tgid()) {
            return false;
        }
        let task = u64::from(row.view.pid()) << 1;
        let last = self.last.load(Ordering::Relaxed);
        if last & !1 == task {
            return last & 1 == 1;
        }
        // Arguments are joined with blanks, and a word has no blank.
        let args = row.view.cmdline().filter(|blob| blob.reason.is_none());
        let has = |text: &[u8]| self.all.iter().any(|word| memmem::find(text, word).is_some());
        let is = row.comm.is_some_and(has) || args.is_some_and(|blob| has(&blob.data));
        self.last.store(task | u64::from(is), Ordering::Relaxed);
        is
    }
}

impl<T> Among<T> {
    fn excludes(&self, is: impl Fn(&T) -> bool) -> bool {
        self.not.iter().any(is)
    }
    fn is_empty(&self) -> bool {
        self.only.is_empty() && self.not.is_empty()
    }
}

/// Combines several conditions. A condition that is not set is `None`, and so is the result if none
/// is set.
fn joined(and: bool, conditions: impl IntoIterator<Item = Option<bool>>) -> Option<bool> {
    conditions.into_iter().flatten().fold(None, |all, one| match all {
        None => Some(one),
        Some(all) => Some(if and { all && one } else { all || one }),
    })
}

fn if_set(set: bool, is: impl FnOnce() -> bool) -> Option<bool> {
    set.then(is)
}

impl FileSelection {
    /// The pids, if no other condition can add processes.
    pub fn only_pids(&self) -> Option<&[u32]> {
        let alone = self.uids.only.is_empty()
            && self.pgids.only.is_empty()
            && self.commands.only.is_empty()
            && !self.has_file_condition();
        (!self.pids.only.is_empty() && (self.and || alone)).then_some(&self.pids.only)
    }
    /// Are there no conditions on processes?
    pub fn takes_all_processes(&self) -> bool {
        self.pids.is_empty()
            && self.uids.is_empty()
            && self.pgids.is_empty()
            && self.commands.is_empty()
    }
    /// Are there conditions on the files themselves, and not only on their processes?
    pub fn has_file_condition(&self) -> bool {
        !self.labels.only.is_empty() || self.has_conditions_without_labels()
    }
    /// The groups that the conditions and rows need.
    pub fn groups(&self) -> Groups {
        self.rows() | self.about_rows() | self.process_groups()
    }
    /// The groups that have the rows.
    pub fn rows(&self) -> Groups {
        let of = |wanted, group| if wanted { group } else { Groups::NONE };
        of(self.wants_fds(), Groups::FD)
            | of(self.wants_paths(), Groups::PATHS)
            | of(self.wants_mapped(), Groups::VMA)
    }
    /// The groups with device, inode and size of rows that are not descriptors.
    fn about_rows(&self) -> Groups {
        match self.wants_paths() || self.wants_mapped() {
            true => Groups::FILE_STAT,
            false => Groups::NONE,
        }
    }
    /// The groups that the conditions about processes need.
    pub fn process_groups(&self) -> Groups {
        let mut g = self.inodes.groups();
        if !self.uids.is_empty() {
            g |= Groups::CRED;
        }
        if !self.commands.is_empty() || !self.pgids.is_empty() {
            g |= Groups::BASE;
        }
        if !self.words.all.is_empty() {
            g |= Groups::BASE | Groups::CMDLINE;
        }
        g
    }
    /// Users who look for the users of a file, or of deleted files, want to see all kinds of use.
    fn wants_all_ways(&self) -> bool {
        !self.places.is_empty() || self.deleted
    }
    fn wants_label(&self, words: &[&str]) -> bool {
        self.labels.only.iter().any(|l| matches!(l, Label::Word(w) if words.contains(w)))
    }
    fn wants_paths(&self) -> bool {
        // A mapping with the program's path is txt, not mem.
        self.paths || self.wants_all_ways() || self.wants_label(&["cwd", "rtd", "txt", "mem"])
    }
    fn wants_mapped(&self) -> bool {
        self.mapped || self.wants_all_ways() || self.wants_label(&["mem", "DEL"])
    }
    /// `-d cwd`, with or without `-a`, selects no numbered descriptors.
    fn wants_fds(&self) -> bool {
        let labels = &self.labels.only;
        let words_only = !labels.is_empty() && labels.iter().all(|l| matches!(l, Label::Word(_)));
        let alone = self.pids.only.is_empty()
            && self.uids.only.is_empty()
            && self.pgids.only.is_empty()
            && self.commands.only.is_empty()
            && self.inet.is_empty()
            && !self.unix
            && self.types.is_empty()
            && !self.deleted
            && self.links_below.is_none()
            && self.netns.is_empty()
            && self.places.is_empty();
        !(words_only && (self.and || alone))
    }
    /// Is the process of the row excluded?
    pub fn is_excluded(&self, row: &Row<'_>) -> bool {
        let uid = row.cred.and_then(|c| c.euid());
        self.pids.excludes(|p| *p == row.view.tgid() && self.inodes.admit(*p, row))
            || self.uids.excludes(|u| Some(*u) == uid)
            || self.pgids.excludes(|p| Some(*p) == row.base.and_then(|b| b.pgid()))
            || self.commands.excludes(|c| row.comm.is_some_and(|comm| c.is(comm)))
    }
    fn process(&self, row: &Row<'_>) -> [Option<bool>; 4] {
        let uid = row.cred.and_then(|c| c.euid());
        let pgid = row.base.and_then(|b| b.pgid());
        let is = |c: &CommandName| row.comm.is_some_and(|comm| c.is(comm));
        let ids = [row.view.tgid(), row.view.pid()];
        [
            if_set(!self.pids.only.is_empty(), || {
                ids.iter().any(|i| self.pids.only.contains(i) && self.inodes.admit(*i, row))
            }),
            if_set(!self.uids.only.is_empty(), || uid.is_some_and(|u| self.uids.only.contains(&u))),
            if_set(!self.commands.only.is_empty(), || self.commands.only.iter().any(is)),
            if_set(!self.pgids.only.is_empty(), || {
                pgid.is_some_and(|p| self.pgids.only.contains(&p))
            }),
        ]
    }
    /// Is the process selected as a whole, or is there no selection of processes?
    pub fn takes_process(&self, row: &Row<'_>) -> bool {
        let asked = joined(self.and, self.process(row)).unwrap_or(!self.has_file_condition());
        asked && !self.is_excluded(row)
    }
    /// Is there a condition about files other than about their labels?
    pub fn has_conditions_without_labels(&self) -> bool {
        !self.inet.is_empty()
            || self.unix
            || !self.types.is_empty()
            || self.deleted
            || self.links_below.is_some()
            || !self.netns.is_empty()
            || !self.places.is_empty()
    }
    /// Is this label selected? `None`: the request selects no labels.
    pub fn takes_label(&self, label: &str) -> Option<bool> {
        let only = &self.labels.only;
        (!only.is_empty()).then(|| only.iter().any(|l| l.is(label)))
    }
    /// Is this label excluded?
    pub fn leaves_out(&self, label: &str) -> bool {
        self.labels.excludes(|l| l.is(label))
    }
    /// Is any condition about processes set that says which are wanted?
    pub fn wants_processes(&self) -> bool {
        let Self { pids, uids, pgids, commands, .. } = self;
        !(pids.only.is_empty()
            && uids.only.is_empty()
            && pgids.only.is_empty()
            && commands.only.is_empty())
    }
    /// May files of this process be shown?
    pub fn may_match(&self, row: &Row<'_>) -> bool {
        if self.is_excluded(row) {
            return false;
        }
        let by_process = joined(self.and, self.process(row));
        by_process.unwrap_or(true) || !self.and && self.has_file_condition()
    }
    /// Are all files of a process that [may match](Self::may_match) shown, and are descriptors the
    /// only rows of the answer?
    fn takes_all_fds(&self) -> bool {
        !self.has_file_condition()
            && self.labels.is_empty()
            && self.states.is_empty()
            && self.rows() == Groups::FD
    }
    /// Is this file of a process that [may match](Self::may_match) shown?
    pub fn matches(&self, file: &OpenFile<'_>) -> bool {
        if matches!(file.what, What::Fd(_)) && self.takes_all_fds() {
            return true;
        }
        let wanted = match file.what {
            What::Fd(_) => self.wants_fds(),
            What::Path(..) => self.wants_paths(),
            What::Mapped(_) => self.wants_mapped(),
            _ => true,
        };
        if !wanted {
            return false;
        }
        if !self.labels.not.is_empty() && self.leaves_out(&file.label()) {
            return false;
        }
        let states = || {
            // Without -i, -s applies to all rows.
            !self.inet.is_empty()
                || file.socket().is_none_or(|s| self.states.iter().all(|f| f.passes(&s)))
        };
        self.condition(file, true).unwrap_or(true) && states()
    }
    /// Does a condition other than that on internet sockets select this file?
    pub fn matches_without_inet(&self, file: &OpenFile<'_>) -> bool {
        !self.and && self.condition(file, false) == Some(true)
    }
    /// Whether the conditions are true for a file, or `None` if there are no conditions.
    fn condition(&self, file: &OpenFile<'_>, with_inet: bool) -> Option<bool> {
        let label = || file.label();
        let socket = file.socket();
        let inet = || {
            let Some(s) = &socket else { return false };
            self.inet.iter().any(|i| i.matches(s)) && self.states.iter().all(|f| f.passes(s))
        };
        let conditions = [
            if_set(with_inet && !self.inet.is_empty(), inet),
            if_set(self.unix, || file.lsof_type() == "unix"),
            if_set(!self.labels.only.is_empty(), || {
                self.labels.only.iter().any(|l| l.is(&label()))
            }),
            if_set(!self.types.is_empty(), || self.is_of_type(file)),
            if_set(self.deleted, || file.is_deleted()),
            if_set(self.links_below.is_some(), || {
                file.nlink().is_some_and(|n| Some(n) < self.links_below)
            }),
            if_set(!self.netns.is_empty(), || {
                socket.and_then(|s| s.netns()).is_some_and(|n| self.netns.contains(&n))
            }),
            if_set(!self.places.is_empty(), || {
                self.places.iter().any(|p| p.holds(file)) || self.is_found_by_word(file)
            }),
        ];
        joined(self.and, self.process(&file.owner.row).into_iter().chain(conditions))
    }
    /// Is it an open file of a process that has a word? The rows for working directories and
    /// mappings are only for users of a file.
    fn is_found_by_word(&self, file: &OpenFile<'_>) -> bool {
        let is_shown = match file.what {
            What::Path(..) => self.paths,
            What::Mapped(_) => self.mapped,
            _ => true,
        };
        is_shown && self.words.are_in(&file.owner.row)
    }
    fn is_of_type(&self, file: &OpenFile<'_>) -> bool {
        let names = [
            Some(file.lsof_type()),
            file.fd_type().map(|t| t.name()),
            file.socket().filter(|s| is_inet(s.raw)).map(|_| "inet"),
        ];
        let mut names = names.into_iter().flatten();
        names.any(|n| self.types.iter().any(|t| t.eq_ignore_ascii_case(n)))
    }
}

impl Label {
    fn is(&self, label: &str) -> bool {
        match self {
            Label::Word(w) => *w == label,
            Label::Fds => label.bytes().all(|b| b.is_ascii_digit()),
            Label::Range(from, to) => {
                label.parse::<u32>().is_ok_and(|n| (*from..=*to).contains(&n))
            }
        }
    }
}
