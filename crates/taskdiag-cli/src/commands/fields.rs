//! `taskdiag fields`: the field tables as they are.

use taskdiag::field::{Field, SETS};

use crate::exit::Exit;
use crate::output::{Sink, json};

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
not_asked (a saved answer without the group). What a task simply does not have is - or 0 in text.
Times, faults and io are those of the process, or of the thread where each thread has a row.
In text, bytes that cannot be printed are \\n, \\t, \\r, \\x1b or \\u{202e}. In JSON, text that is not UTF-8
has all its bytes in base64 under KEY_bytes (docs/json.md). In CSV, \\x1b stands for a byte, \\u{9b} for a
character, \\\\ for a backslash, and \\x20 for a blank inside of an argument (docs/csv.md).
Where a row is an entry of a list, all columns of tasks are there too. task.NAME is that of the task if the
list has a column of the same name.";

/// Run it.
pub fn run(as_json: bool) -> Result<(), Exit> {
    let mut sink = Sink::stdout();
    if as_json {
        write_json(sink.buf())
    } else {
        write_text(sink.buf())
    }
    Ok(sink.finish()?)
}

fn write_text(out: &mut Vec<u8>) {
    let line = |out: &mut Vec<u8>, c: [&str; 7]| {
        let text = format!(
            "{:<22} {:<17} {:<16} {:<12} {:<42} {:<30} {}",
            c[0], c[1], c[2], c[3], c[4], c[5], c[6]
        );
        out.extend_from_slice(text.trim_end().as_bytes());
        out.push(b'\n');
    };
    for (i, set) in SETS.iter().enumerate() {
        if i > 0 {
            let text = format!("In 'taskdiag {}', in addition to those of tasks:\n", set.name);
            out.extend_from_slice(text.as_bytes());
        }
        line(out, ["NAME", "GROUPS", "TYPE", "UNIT", "SOURCE", "ALIASES", "WHAT"]);
        for f in set.own() {
            let aliases: Vec<&str> = f.aliases.iter().map(|a| a.0).collect();
            let (aliases, groups) = (aliases.join(","), groups(f).join(","));
            let unit = f.unit.name();
            line(out, [f.name, &groups, f.kind.name(), unit, f.source, &aliases, f.help]);
        }
        out.push(b'\n');
    }
    out.extend_from_slice(NOTES.as_bytes());
    out.push(b'\n');
}

fn write_json(out: &mut Vec<u8>) {
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
