//! `files -F`: a line for each value, with a letter before it that identifies the field, which is
//! lsof's output for programs. A process comes before its files, and each set of values ends where
//! the next begins.

use taskdiag::field::{self, Context, FILES, Field, OpenRow, Part, Row, Value};
use taskdiag::files::OpenFile;

use super::Shown;
use crate::exit::Exit;
use crate::output::Sink;

/// Which values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fields {
    letters: String,
    /// NUL after each value; lines are then whole processes and files.
    nul: bool,
}

/// The letters that come once for a process, in this order.
const PROCESS: &[(char, &str)] = &[
    ('p', "task.pid"),
    ('g', "task.pgid"),
    ('R', "task.ppid"),
    ('c', "command"),
    ('u', "task.uid"),
    ('L', "task.user"),
];
/// The letters that come for each file, in this order.
const FILE: &[(char, &str)] = &[
    ('f', "fd"),
    ('a', "access"),
    ('l', "lock"),
    ('t', "type"),
    ('G', "flags"),
    ('D', "dev"),
    ('s', "size"),
    ('o', "offset"),
    ('i', "inode"),
    ('k', "nlink"),
    ('P', "protocol"),
    ('n', "name"),
];

impl Fields {
    /// All letters there are.
    pub const LETTERS: &str = "pgRcuLfaltGDsoikPn0";

    /// These letters, each of [`LETTERS`](Self::LETTERS). No letter means nearly all.
    pub fn new(text: &str) -> Fields {
        let nul = text.contains('0');
        let letters: String = text.chars().filter(|c| *c != '0').collect();
        // As in lsof, the offset is there only if it is requested or replaces the size.
        let letters = if letters.is_empty() { String::from("pgRcuLfaltGDsoikPn") } else { letters };
        Fields { letters, nul }
    }
    fn has(&self, letter: char) -> bool {
        // Without it, values could not be assigned to files.
        letter == 'p' || self.letters.contains(letter)
    }
    /// The fields that they are made from.
    pub fn fields(&self) -> impl Iterator<Item = &'static Field> {
        let all = PROCESS.iter().chain(FILE).filter(|(l, _)| self.has(*l));
        all.filter_map(|(_, name)| FILES.find(name)).map(|named| named.field)
    }
}

/// Writes all rows. Returns whether there was any.
pub(super) fn write(all: &Shown<'_>, cx: &Context, fields: &Fields) -> Result<bool, Exit> {
    let mut sink = Sink::stdout();
    let mut last = None;
    let mut any = false;
    let end: &[u8] = if fields.nul { b"\0" } else { b"\n" };
    for file in all.opened.owners().flat_map(|owner| all.opened.files_of(owner)) {
        any = true;
        let row = file.owner.row.with_part(Part::File(OpenRow::new(&file, all.files)));
        let out = sink.buf();
        let set = |out: &mut Vec<u8>, table: &[(char, &str)]| {
            for (letter, name) in table.iter().filter(|(l, _)| fields.has(*l)) {
                if let Some(text) = value(cx, &row, &file, *letter, name) {
                    out.push(*letter as u8);
                    out.extend_from_slice(&text);
                    out.extend_from_slice(end);
                }
            }
            if fields.nul {
                out.push(b'\n');
            }
        };
        if last != Some(row.view.pid()) {
            last = Some(row.view.pid());
            set(out, PROCESS);
        }
        set(out, FILE);
        sink.settle()?;
    }
    sink.finish()?;
    Ok(any)
}

/// The text for a letter. `None`: this file has none.
fn value(
    cx: &Context,
    row: &Row<'_>,
    file: &OpenFile<'_>,
    letter: char,
    name: &str,
) -> Option<Vec<u8>> {
    match letter {
        // Descriptors are plain numbers here; the access mode has its own letter.
        'f' if file.fd().is_some() => return Some(file.label().as_bytes().to_vec()),
        'l' => {
            let named = FILES.find(name)?;
            return match (named.field.get)(cx, row) {
                Value::Word(lock) => Some(lock.into()),
                Value::Missing(why) if why.is_absent() => Some(b" ".to_vec()),
                _ => None,
            };
        }
        'a' => {
            let access = file.access().map_or("", |a| a.letter());
            return Some(if access.is_empty() { b" ".to_vec() } else { access.into() });
        }
        // The second number exists on other systems only.
        'G' => return file.fd()?.flags().map(|bits| format!("0x{bits:x};0x0").into()),
        'D' => {
            let (major, minor) = taskdiag::files::major_minor(file.dev()?);
            return Some(format!("0x{:x}", major << 8 | minor).into());
        }
        // One or the other.
        'o' if file.size_bytes().is_some() => return None,
        'o' => return file.pos_bytes().map(|o| format!("0t{o}").into()),
        _ => {}
    }
    let named = FILES.find(name)?;
    let found = (named.field.get)(cx, row);
    match found {
        Value::Missing(_) => None,
        found => {
            let mut out = Vec::new();
            field::text(&mut out, cx, named.field.text, Some(row), &found);
            Some(out)
        }
    }
}
