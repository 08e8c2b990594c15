//! The options of lsof that choose the content and the form of its output.

use super::letters::Fields;
use crate::exit::Exit;

/// What is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// A table.
    #[default]
    Table,
    /// `-F`: a line for each value.
    Lines,
    /// `-t`: pids.
    Terse,
    /// `-J`: one JSON object.
    Json,
    /// `-j`: a JSON object for each file.
    JsonLines,
}

impl Form {
    /// Combines two requested forms.
    pub fn and(self, other: Form) -> Result<Form, Exit> {
        use Form::{Json, JsonLines, Lines, Table, Terse};
        let excluded = |a, b| Err(Exit::Usage(format!("{a} and {b} are mutually exclusive")));
        match (self, other) {
            (Table, form) | (form, Table) => Ok(form),
            (Json | JsonLines, Lines) => Ok(self),
            (Lines, Json | JsonLines) => Ok(other),
            (Json, JsonLines) | (JsonLines, Json) => excluded("-J", "-j"),
            (Terse, Lines) | (Lines, Terse) => excluded("-F", "-t"),
            (Terse, Json | JsonLines) | (Json | JsonLines, Terse) => excluded("-J/-j", "-t"),
            _ => Ok(self),
        }
    }
}

/// The processes at the other ends of pipes, sockets, terminals, queues and eventfds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ends {
    /// Nobody asked.
    #[default]
    No,
    /// `-E`: they are named.
    Named,
    /// `+E`: the other ends are listed, too.
    Listed,
}

/// `-T`: which parts of the state of a socket are printed.
#[derive(Clone, Copy, Debug, Default)]
pub struct States {
    /// Its state.
    pub state: bool,
    /// The bytes that wait in its queues.
    pub queues: bool,
    /// The options of the socket, which Linux does not report.
    pub flags: bool,
}

/// The contents and the form of the output.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Table, lines, JSON.
    pub form: Form,
    /// `-F`: which values.
    pub fields: Option<Fields>,
    /// `-o`: the offset, not the size.
    pub offset: bool,
    /// `-o N`: offsets with more digits are hexadecimal; 0: none are.
    pub offset_digits: usize,
    /// `-s`: the size only.
    pub size: bool,
    /// `-H`: sizes with units.
    pub human: bool,
    /// `+L`: the number of links.
    pub links: bool,
    /// `-g`: the process group.
    pub groups: bool,
    /// `+c`: how many letters of the command are shown at most.
    pub command: usize,
    /// `-n`: addresses, not the names of hosts.
    pub numeric_hosts: bool,
    /// `-P`: numbers, not the names of services.
    pub numeric_ports: bool,
    /// `-l`: uids, not the names of users.
    pub numeric_users: bool,
    /// `+f g`: how files were opened.
    pub flags: bool,
    /// `+f G`: the flags as a number.
    pub numeric_flags: bool,
    /// `-T`.
    pub states: States,
    /// `-E`, `+E`.
    pub ends: Ends,
    /// `-X`: TCP and UDP are not looked at.
    pub without_inet: bool,
    /// `-w`: no rows that only report a denial.
    pub quiet: bool,
    /// `-V`: prints what was not found.
    pub verbose: bool,
    /// `-Q`: nothing found is no failure.
    pub nothing_is_fine: bool,
    /// `-K`: threads, too; `-K i`: no threads.
    pub tasks: Option<bool>,
}

impl Default for Layout {
    fn default() -> Layout {
        Layout {
            form: Form::Table,
            fields: None,
            offset: false,
            offset_digits: 8,
            size: false,
            human: false,
            links: false,
            groups: false,
            command: 9,
            numeric_hosts: false,
            numeric_ports: false,
            numeric_users: false,
            flags: false,
            numeric_flags: false,
            states: States { state: true, ..States::default() },
            ends: Ends::No,
            without_inet: false,
            quiet: false,
            verbose: false,
            nothing_is_fine: false,
            tasks: None,
        }
    }
}

impl Layout {
    /// For the lines of `taskdiag files -F`.
    pub fn of_lines(fields: Fields, numeric_users: bool) -> Layout {
        Layout {
            form: Form::Lines,
            fields: Some(fields),
            numeric_hosts: true,
            numeric_ports: true,
            numeric_users,
            quiet: true,
            ..Layout::default()
        }
    }
}
