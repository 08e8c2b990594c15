//! The output of lsof, byte for byte: its table with columns as wide as their content, its lines
//! for programs, and its JSON. Where versions of lsof differ, this follows 4.99.7.
//!
//! The selection of files is the same as for any other table. lsof knows less about sockets and
//! other kernel objects than `taskdiag files` shows.

mod cell;
mod ends;
mod found;
mod hosts;
mod json;
mod kernel;
mod lines;
mod record;
mod safe;
mod sockets;

pub(super) use self::cell::denied;
pub(super) use self::found::say_what_was_not_found;

use taskdiag::field::{FILES, Field};

use self::cell::Cells;
use self::record::Record;
use super::Shown;
use super::letters::Fields;
use crate::args::files::FilesArgs;
use crate::exit::Exit;
use crate::output::Sink;

/// The version of lsof whose output this is.
pub const VERSION: &str = "4.99.7";

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
    /// Both were asked for.
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
    /// Its options, which Linux does not report.
    pub flags: bool,
}

/// What is shown, and how.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Table, lines, JSON.
    pub form: Form,
    /// `-F`: which values.
    pub fields: Option<Fields>,
    /// `-o`: the offset, not the size.
    pub offset: bool,
    /// `-o N`: offsets with more digits are hexadecimal; with 0, none are.
    pub offset_digits: usize,
    /// `-s`: the size only.
    pub size: bool,
    /// `-H`: sizes with units.
    pub human: bool,
    /// `+L`: the number of links.
    pub links: bool,
    /// `-g`: the process group.
    pub groups: bool,
    /// `+c`: the most letters of the command that are shown.
    pub command: usize,
    /// `-n`: addresses, not the names of hosts.
    pub numeric_hosts: bool,
    /// `-P`: numbers, not the names of services.
    pub numeric_ports: bool,
    /// `-l`: uids, not the names of users.
    pub numeric_users: bool,
    /// `+f g`: how files were opened.
    pub flags: bool,
    /// `+f G`: the same as a number.
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
    /// `-Q`: finding nothing is no failure.
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

/// The fields whose groups are needed.
const FIELDS: &[&str] = &[
    "command",
    "task.pid",
    "task.ppid",
    "task.pgid",
    "task.user",
    "fd_lock",
    "type",
    "device",
    "size_off",
    "nlink",
    "node",
    "name",
];

/// The fields that everything is made from.
pub fn fields() -> impl Iterator<Item = &'static Field> {
    FIELDS.iter().map(|name| FILES.find(name).expect("the table has it").field)
}

/// The content of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cell {
    Command,
    Pid,
    Tid,
    TaskCommand,
    Parent,
    Group,
    User,
    Fd,
    Type,
    Flags,
    Device,
    Size,
    Links,
    Node,
    Name,
}

struct Column {
    cell: Cell,
    title: &'static str,
    width: usize,
}

/// The columns that are shown, as wide as their titles.
fn columns(args: &FilesArgs, layout: &Layout, tasks: bool) -> Vec<Column> {
    let size = match (layout.offset, layout.size) {
        (_, true) => "SIZE",
        (true, _) => "OFFSET",
        _ => "SIZE/OFF",
    };
    let all = [
        (Cell::Command, "COMMAND", true),
        (Cell::Pid, "PID", true),
        (Cell::Tid, "TID", tasks),
        (Cell::TaskCommand, "TASKCMD", tasks),
        (Cell::Parent, "PPID", args.parents),
        (Cell::Group, "PGID", args.groups),
        (Cell::User, "USER", true),
        (Cell::Fd, "FD", true),
        (Cell::Type, "TYPE", true),
        (Cell::Flags, "FILE-FLAG", layout.flags),
        (Cell::Device, "DEVICE", true),
        (Cell::Size, size, true),
        (Cell::Links, "NLINK", layout.links),
        (Cell::Node, "NODE", true),
        (Cell::Name, "NAME", true),
    ];
    let shown = all.into_iter().filter(|(_, _, shown)| *shown);
    shown.map(|(cell, title, _)| Column { cell, title, width: title.len() }).collect()
}

/// Writes all rows. Returns whether there were any.
pub(super) fn write(
    all: &Shown<'_>,
    cx: &taskdiag::field::Context,
    args: &FilesArgs,
    layout: &Layout,
) -> Result<bool, Exit> {
    let cells = Cells::new(all, cx, args, layout);
    let mut sink = Sink::stdout();
    let any = match layout.form {
        Form::Table => table(&cells, &mut sink)?,
        Form::Lines => lines::write(&cells, &mut sink)?,
        Form::Terse => terse(&cells, &mut sink)?,
        Form::Json => json::object(&cells, &mut sink)?,
        Form::JsonLines => json::lines(&cells, &mut sink)?,
    };
    sink.finish()?;
    Ok(any)
}

fn table(cells: &Cells<'_>, sink: &mut Sink) -> Result<bool, Exit> {
    let (args, layout) = (cells.args, cells.layout);
    let tasks = cells.has_tasks();
    let mut columns = columns(args, layout, tasks);
    let mut any = false;
    cells.each(&mut |record: &Record<'_>| {
        any = true;
        for column in columns.iter_mut().filter(|c| c.cell != Cell::Name) {
            let most = match column.cell {
                Cell::Command | Cell::TaskCommand => layout.command,
                _ => usize::MAX,
            };
            column.width = column.width.max(cells.cell(column.cell, record, most).len());
        }
        Ok(())
    })?;
    if any {
        line(sink.buf(), &columns, |c| match c.cell {
            // Blanks stand above the letters of access and lock. As in lsof, that may be one more
            // than in the rows.
            Cell::Fd => format!("{:>1$}  ", c.title, c.width.saturating_sub(2)).into(),
            _ => c.title.into(),
        });
    }
    cells.each(&mut |record: &Record<'_>| {
        line(sink.buf(), &columns, |c| cells.cell(c.cell, record, c.width));
        sink.settle().map_err(Exit::from)
    })?;
    Ok(any)
}

fn line(out: &mut Vec<u8>, columns: &[Column], text: impl Fn(&Column) -> Vec<u8>) {
    for column in columns {
        let text = text(column);
        let blanks = vec![b' '; column.width.saturating_sub(text.len())];
        match column.cell {
            Cell::Command => {
                out.extend_from_slice(&text);
                out.extend_from_slice(&blanks);
            }
            Cell::TaskCommand => {
                out.push(b' ');
                out.extend_from_slice(&text);
                out.extend_from_slice(&blanks);
            }
            Cell::Name => {
                out.push(b' ');
                out.extend_from_slice(&text);
            }
            _ => {
                out.push(b' ');
                out.extend_from_slice(&blanks);
                out.extend_from_slice(&text);
            }
        }
    }
    out.push(b'\n');
}

/// `-t`: the pids, each once.
fn terse(cells: &Cells<'_>, sink: &mut Sink) -> Result<bool, Exit> {
    let mut last = None;
    cells.each(&mut |record: &Record<'_>| {
        let pid = record.row.view.tgid();
        if last.replace(pid) != Some(pid) {
            sink.buf().extend_from_slice(format!("{pid}\n").as_bytes());
        }
        sink.settle().map_err(Exit::from)
    })?;
    Ok(last.is_some())
}

/// `-v`: the version of lsof whose options and output are implemented, because scripts use it to
/// choose options, and the name of this program.
pub fn version() -> String {
    format!(
        "lsof version information:\n    revision: {VERSION}\n    not lsof itself: taskdiag {}, which takes its options and prints what it prints\n",
        env!("CARGO_PKG_VERSION")
    )
}
