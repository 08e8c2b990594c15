//! The arguments of procps `ps`, parsed as procps parses them.
//!
//! [`argv`] reads the words, [`layout`] makes the columns of them, this file makes the selection.
//! Nothing here looks at processes: procps' habit of showing only the caller's own processes, where
//! no selection is given, becomes conditions like any other.

mod argv;
mod layout;
mod table;

pub use argv::{is_long, parse, parse_with_words, wants_value};
pub use layout::{columns, fill, keys, sort_as_procps, specs, take_format};

pub use table::{bsd_letters, letter_of, options};

use taskdiag::view::{PidfdInodes, Selection, Simple};

use super::lists;
use crate::exit::Exit;

/// Conditions that select whole kinds of processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kinds {
    /// `-a`: those with a terminal, but no session leaders.
    pub unix_a: bool,
    /// `-d`: no session leaders.
    pub unix_d: bool,
    /// `a`: also those of other users.
    pub bsd_a: bool,
    /// `g`: also session leaders, which are shown anyway.
    pub bsd_g: bool,
    /// `x`: also those without a terminal.
    pub bsd_x: bool,
}

/// A list that selects processes, as typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    Pid(Vec<u32>),
    Parent(Vec<u32>),
    Group(Vec<u32>),
    Session(Vec<u32>),
    EffectiveUser(Vec<u32>),
    RealUser(Vec<u32>),
    EffectiveGroup(Vec<u32>),
    RealGroup(Vec<u32>),
    Terminal(Vec<u32>),
    /// The terminal that the caller is on.
    OwnTerminal,
    Command(Vec<Vec<u8>>),
}

/// How a forest is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForestStyle {
    /// With lines: `f`, `--forest`.
    Drawn,
    /// By indentation alone: `-H`.
    Indented,
}

/// How often a line of headers is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Headers {
    Never,
    EachPage,
}

/// How a list of columns or keys was given, which decides how it is parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TypedAs {
    /// `-o`, `o`, `--format`: columns.
    Columns,
    /// `-O`: columns between those of the System V view.
    UnixAmong,
    /// `O`: keys of one letter, or columns between those of the BSD view.
    BsdAmong,
    /// `--sort`, `k`: keys.
    Keys,
}

/// A ready-made BSD view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bsd {
    Jobs,
    Long,
    Signals,
    User,
    Memory,
    Registers,
    Context,
}

/// What was typed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Typed {
    /// Any word in BSD style: its default columns are shown.
    pub bsd: bool,
    /// `-e`, `-A`.
    pub all: bool,
    pub kinds: Kinds,
    pub lists: Vec<Selector>,
    /// The inodes that some of the listed processes stand with.
    pub inodes: PidfdInodes,
    /// `-N`.
    pub deselect: bool,
    /// `r`.
    pub running: bool,
    /// `-q`: rows in the order of the list.
    pub quick: bool,
    /// `-f`, and with more columns `-F`.
    pub full: bool,
    pub extra_full: bool,
    /// `-l`, and with RSS instead of F and ADDR `-y`.
    pub long: bool,
    pub with_rss: bool,
    /// `-j`, `-c`, `-P`, `-M`.
    pub jobs: bool,
    pub class: bool,
    pub processor: bool,
    pub label: bool,
    pub bsd_views: Vec<Bsd>,
    /// Columns and keys in the order in which they were typed.
    pub specs: Vec<(TypedAs, String)>,
    /// `-L`, `-T`, `H`.
    pub lwp: bool,
    pub spid: bool,
    pub thread_rows: bool,
    /// `m`, `-m`: a row for the process, and one for each thread below it.
    pub both: bool,
    pub forest: Option<ForestStyle>,
    pub headers: Option<Headers>,
    /// How often `w` was given.
    pub wide: u32,
    pub columns: Option<usize>,
    pub lines: Option<usize>,
    pub delimiter: Option<u8>,
    /// `n`: numbers for users.
    pub numeric: bool,
    /// `c`: the name of the command instead of its arguments.
    pub command_name: bool,
    /// `e`: the environment after the arguments.
    pub environment: bool,
    /// `S`: with the time of children that were waited for.
    pub cumulative: bool,
    /// `-V`, `L`, `--info`, `--help`: no processes are listed.
    pub instead: Option<Instead>,
}

/// Another output that is printed instead of processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instead {
    Version,
    Columns,
    Help,
}

impl Typed {
    /// Is there anything that selects or arranges processes as only procps does? `-o`, `--sort` and
    /// the width of the output do not: `taskdiag ps -o pid,comm` lists all processes.
    pub fn is_procps(&self) -> bool {
        let only_output = Typed {
            specs: self.specs.clone(),
            headers: self.headers,
            wide: self.wide,
            columns: self.columns,
            lines: self.lines,
            delimiter: self.delimiter,
            ..Typed::default()
        };
        *self != only_output
    }
    /// Are rows threads?
    pub fn threads(&self) -> bool {
        self.lwp || self.spid || self.thread_rows
    }
    /// Which processes are meant.
    pub fn selection(&self) -> Result<Selection, Exit> {
        let mut s = Selection::default();
        (s.all, s.running, s.deselect) = (self.all, self.running, self.deselect);
        s.inodes = self.inodes.clone();
        for list in &self.lists {
            match list {
                Selector::Pid(ids) => s.pids.extend(ids),
                Selector::Parent(ids) => s.ppids.extend(ids),
                Selector::Group(ids) => s.pgids.extend(ids),
                Selector::Session(ids) => s.sids.extend(ids),
                Selector::EffectiveUser(ids) => s.euids.extend(ids),
                Selector::RealUser(ids) => s.ruids.extend(ids),
                Selector::EffectiveGroup(ids) => s.egids.extend(ids),
                Selector::RealGroup(ids) => s.rgids.extend(ids),
                Selector::Terminal(ids) => s.ttys.extend(ids),
                Selector::OwnTerminal => s.ttys.push(lists::own_tty()),
                Selector::Command(names) => s.commands.extend(names.iter().cloned()),
            }
        }
        if self.all {
            return Ok(s);
        }
        let none = Kinds::default();
        let unix = Kinds { bsd_g: false, bsd_x: false, bsd_a: false, ..self.kinds };
        if unix != none && (self.kinds.bsd_a || self.kinds.bsd_x) {
            return Err(Exit::Usage(String::from(
                "-a and -d cannot be joined with the letters a and x: one selects as System V, the other as BSD",
            )));
        }
        // If there is a list of processes, kinds count only if one is named.
        if !self.lists.is_empty() && self.kinds == none {
            return Ok(s);
        }
        let own = Some(rustix::process::geteuid().as_raw());
        let simple = |own, with_tty, not_leaders| Simple { own, with_tty, not_leaders, tty: None };
        match (unix.unix_a, unix.unix_d) {
            (true, true) => {
                s.simple = vec![simple(None, true, false), simple(None, false, true)];
            }
            (true, false) => s.simple.push(simple(None, true, true)),
            (false, true) => s.simple.push(simple(None, false, true)),
            (false, false) => match (self.kinds.bsd_a, self.kinds.bsd_x) {
                (true, true) => s.all = true,
                (true, false) => s.simple.push(simple(None, true, false)),
                (false, true) => s.simple.push(simple(own, false, false)),
                (false, false) if self.bsd => s.simple.push(simple(own, true, false)),
                (false, false) => {
                    let tty = Some(lists::own_tty());
                    s.simple.push(Simple { tty, ..simple(own, false, false) });
                }
            },
        }
        Ok(s)
    }
}
