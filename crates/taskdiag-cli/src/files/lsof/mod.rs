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
use super::layout::{Ends, Form, Layout};
use super::request::FilesArgs;
use crate::exit::Exit;
use crate::output::Sink;

/// The version of lsof whose output this is.
pub const VERSION: &str = "4.99.7";

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

/// The fields from which all output is made.
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
        "lsof version information:\n    revision: {VERSION}\n    not lsof itself, but taskdiag {} with the options and the output of lsof\n",
        env!("CARGO_PKG_VERSION")
    )
}
