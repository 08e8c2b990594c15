//! `taskdiag fields`: the field tables as they are.

use clap::{Arg, ArgAction, ArgMatches, Command};
use taskdiag::field::{Field, SETS};

use crate::args;
use crate::exit::{self, Exit};
use crate::output::{Sink, json, terminal};

/// Names of the groups that a column needs.
pub fn groups(f: &Field) -> Vec<&'static str> {
    if f.groups.is_empty() { vec!["any"] } else { f.groups.iter().map(|g| g.name()).collect() }
}

/// Notes about the table, which are also in the man page.
pub const NOTES: &str = "\
Text shows a value as ps does: memory in KiB, times as [DD-]HH:MM:SS. JSON and CSV have the unit of the
table: bytes, seconds, seconds since 1970. Their key is the first name here, or the header that was asked
for, as in pid=ID.
A value that is not known is ? in text, null in JSON and an empty cell in CSV. JSON has the reason under
\"missing\": denied, unsupported, vanished, blocked, truncated, over_budget (--budget or --max-rss), stopped, or
not_asked (a saved answer without the group; or who shares memory or files, if only processes with -p were read).
What a task simply does not have is - or 0 in text.
Times, faults and io are those of the process, or of the thread where each thread has a row.
In text, bytes that cannot be printed are \\n, \\t, \\r, \\x1b or \\u{202e}. In JSON, text that is not UTF-8
has all its bytes in base64 under KEY_bytes (docs/reference/json.md). In CSV, \\x1b stands for a byte, \\u{9b} for a
character, \\\\ for a backslash, and \\x20 for a blank inside of an argument (docs/reference/csv.md).
Where a row is an entry of a list, all columns of tasks are there too. task.NAME is that of the task if the
list has a column of the same name.";

/// The options.
pub fn command() -> Command {
    Command::new("fields")
        .about("List all columns, with their unit, type, names and source")
        .arg(args::json())
        .arg(
            Arg::new("word")
                .value_name("WORD")
                .action(ArgAction::Append)
                .help("List only columns with these words in their names, sources or descriptions"),
        )
        .after_help(exit::examples(&[
            ("taskdiag fields | less", "look at all of them"),
            ("taskdiag fields memory", "find columns about memory"),
            ("taskdiag fields --json", "print them for a program"),
        ]))
}

/// Whether JSON is wanted, and the words to find, in lower case.
pub struct FieldsArgs {
    json: bool,
    words: Vec<String>,
}

/// The arguments.
pub fn from_matches(m: &ArgMatches) -> Result<FieldsArgs, Exit> {
    let words = m.get_many::<String>("word").into_iter().flatten();
    Ok(FieldsArgs { json: args::json_flag(m)?, words: words.map(|w| w.to_lowercase()).collect() })
}

/// Run it.
pub fn run(FieldsArgs { json: as_json, words }: &FieldsArgs) -> Result<(), Exit> {
    let is_wanted = |f: &Field| is_about(f, words);
    if !SETS.iter().flat_map(|set| set.own()).any(is_wanted) {
        return Err(Exit::Usage(format!(
            "no column has '{}' in its names, source or description; 'taskdiag fields' lists all columns",
            words.join(" ")
        )));
    }
    let mut sink = Sink::stdout();
    if *as_json {
        write_json(sink.buf(), words);
    } else {
        write_text(sink.buf(), words, terminal::window_width());
    }
    Ok(sink.finish()?)
}

/// Are all these words, which are in lower case, in the names, source or description of the column?
fn is_about(f: &Field, words: &[String]) -> bool {
    let mut text = format!("{} {} {} {}", f.name, f.header, f.source, f.help);
    for (alias, header) in f.aliases {
        text.push_str(&format!(" {alias} {header}"));
    }
    let text = text.to_lowercase();
    words.iter().all(|word| text.contains(word.as_str()))
}

/// The cells before the description: name, groups, type, unit.
const CELLS: [usize; 4] = [20, 12, 10, 13];

/// A column is a line: its name, groups, type, unit and description, and below it the source and
/// the other names. On a terminal, the description is wrapped to its width.
fn write_text(out: &mut Vec<u8>, words: &[String], width: Option<usize>) {
    let indent = CELLS.iter().sum::<usize>() + CELLS.len();
    let room = width.map_or(usize::MAX, |w| w.saturating_sub(indent).max(24));
    let line = |out: &mut Vec<u8>, first: [&str; 4], text: &str| {
        let mut begin = String::new();
        for (cell, width) in first.iter().zip(CELLS) {
            begin.push_str(&format!("{cell:<width$} "));
        }
        // A long cell shifts the other cells of its line, but not the cells of the lines below.
        for (n, piece) in wrapped(text, room).into_iter().enumerate() {
            let begin = if n == 0 { begin.as_str() } else { "" };
            out.extend_from_slice(format!("{begin:<indent$}{piece}").trim_end().as_bytes());
            out.push(b'\n');
        }
    };
    line(out, ["NAME", "GROUPS", "TYPE", "UNIT"], "WHAT, SOURCE AND OTHER NAMES");
    for set in SETS {
        let mut is_first = true;
        for f in set.own().filter(|f| is_about(f, words)) {
            // Columns of tasks come first, because all rows have them.
            if std::mem::take(&mut is_first) && !std::ptr::eq(*set, SETS[0]) {
                let and_tasks =
                    if set.has_task_columns() { ", in addition to those of tasks" } else { "" };
                let text = format!("In 'taskdiag {}'{and_tasks}:", set.name);
                out.extend_from_slice(format!("\n{text}\n").as_bytes());
            }
            let aliases: Vec<&str> = f.aliases.iter().map(|a| a.0).collect();
            let aliases = match aliases.is_empty() {
                true => String::new(),
                false => format!("; also {}", aliases.join(", ")),
            };
            let text = format!("{} ({}{aliases})", f.help, f.source);
            line(out, [f.name, &groups(f).join(","), f.kind.name(), f.unit.name()], &text);
        }
    }
    if words.is_empty() {
        out.push(b'\n');
        out.extend_from_slice(NOTES.as_bytes());
        out.push(b'\n');
    }
}

/// The lines of a text, each at most as long if its words allow it.
fn wrapped(text: &str, room: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.last_mut().expect("there is one");
        if !last.is_empty() && last.chars().count() + 1 + word.chars().count() > room {
            lines.push(word.to_owned());
            continue;
        }
        if !last.is_empty() {
            last.push(' ');
        }
        last.push_str(word);
    }
    lines
}

fn write_json(out: &mut Vec<u8>, words: &[String]) {
    let key = |out: &mut Vec<u8>, key: &str, value: &str| {
        json::text(out, key.as_bytes());
        out.push(b':');
        json::text(out, value.as_bytes());
        out.push(b',');
    };
    let strings = |out: &mut Vec<u8>, items: Vec<&str>| {
        json::list(out, items.into_iter(), |out, s| json::text(out, s.as_bytes()));
    };
    let all = SETS.iter().flat_map(|set| set.own().map(|f| (set.name, f)));
    let all = all.filter(|(_, f)| is_about(f, words));
    for (i, (of, f)) in all.enumerate() {
        out.extend_from_slice(if i == 0 { b"[\n{" } else { b",\n{" });
        key(out, "name", f.name);
        key(out, "of", of);
        key(out, "header", f.header);
        key(out, "type", f.kind.name());
        key(out, "unit", f.unit.name());
        key(out, "help", f.help);
        key(out, "source", f.source);
        out.extend_from_slice(b"\"groups\":");
        strings(out, groups(f));
        out.extend_from_slice(b",\"aliases\":");
        strings(out, f.aliases.iter().map(|a| a.0).collect());
        out.push(b'}');
    }
    out.extend_from_slice(b"\n]\n");
}
