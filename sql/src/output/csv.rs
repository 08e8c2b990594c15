// SPDX-License-Identifier: MIT OR Apache-2.0
//! CSV as the command writes it, see `docs/reference/csv.md`: RFC 4180, and what is not printable
//! or begins a formula is escaped.

use std::io::{self, Write};

use taskdiag::field;
use taskdiag_face::exit::Exit;

use super::cell::Cell;

/// A result as CSV.
pub struct Csv<'o> {
    writer: ::csv::Writer<&'o mut (dyn Write + Send)>,
}

fn io(e: ::csv::Error) -> io::Error {
    match e.into_kind() {
        ::csv::ErrorKind::Io(e) => e,
        other => io::Error::other(format!("{other:?}")),
    }
}

impl<'o> Csv<'o> {
    /// Begins a result with these columns.
    pub fn begin(out: &'o mut (dyn Write + Send), names: &[String]) -> Result<Csv<'o>, Exit> {
        let mut writer = ::csv::WriterBuilder::new().from_writer(out);
        let names: Vec<Vec<u8>> = names.iter().map(|n| text(n)).collect();
        writer.write_record(names).map_err(io)?;
        Ok(Csv { writer })
    }
    /// Writes a row.
    pub fn row(&mut self, cells: Vec<Cell>) -> Result<(), Exit> {
        let cells: Vec<Vec<u8>> = cells.iter().map(value).collect();
        Ok(self.writer.write_record(cells).map_err(io)?)
    }
    /// Ends the result.
    pub fn end(mut self) -> Result<(), Exit> {
        Ok(self.writer.flush()?)
    }
}

fn value(cell: &Cell) -> Vec<u8> {
    match cell {
        Cell::Null => Vec::new(),
        Cell::Number(digits) => digits.clone().into_bytes(),
        Cell::Bool(b) => b.to_string().into_bytes(),
        Cell::Text(t) => text(t),
        // A blank separates items, so one inside of an item is escaped.
        Cell::List(items) => {
            let items: Vec<Vec<u8>> = items.iter().map(item).collect();
            disarmed(items.join(&b' '))
        }
    }
}

fn item(cell: &Cell) -> Vec<u8> {
    match cell {
        Cell::Text(t) => {
            let words: Vec<Vec<u8>> = t.split(' ').map(escaped).collect();
            words.join(&b"\\x20"[..])
        }
        other => value(other),
    }
}

fn text(s: &str) -> Vec<u8> {
    disarmed(escaped(s))
}

fn escaped(s: &str) -> Vec<u8> {
    let mut out = Vec::new();
    for (i, part) in s.split('\\').enumerate() {
        if i > 0 {
            out.extend_from_slice(b"\\\\");
        }
        field::escape(&mut out, part.as_bytes());
    }
    out
}

/// Prefixes of formulas: in ASCII, and as wide characters, which some spreadsheets treat alike.
const FORMULA: [char; 8] = ['=', '+', '-', '@', '\u{ff1d}', '\u{ff0b}', '\u{ff0d}', '\u{ff20}'];

/// Escapes a formula prefix at the start of the cell, or after `;`, which separates cells where the
/// decimal mark is a comma.
fn disarmed(cell: Vec<u8>) -> Vec<u8> {
    let mut out = String::new();
    let mut is_begin = true;
    for c in String::from_utf8_lossy(&cell).chars() {
        match c {
            c if !is_begin || !FORMULA.contains(&c) => out.push(c),
            c if c.is_ascii() => out.push_str(&format!("\\x{:02x}", c as u8)),
            c => out.extend(c.escape_unicode()),
        }
        is_begin = c == ';';
    }
    out.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_those_of_the_command() {
        for (made, want) in [
            (Cell::Text("-bash".to_owned()), "\\x2dbash"),
            (Cell::Text("a;=1".to_owned()), "a;\\x3d1"),
            (Cell::Text("a\\b\n\u{9b}".to_owned()), "a\\\\b\\n\\u{9b}"),
            (Cell::Number("-7".to_owned()), "-7"),
            (Cell::Null, ""),
            (
                Cell::List(vec![Cell::Text("a b".to_owned()), Cell::Text("c".to_owned())]),
                "a\\x20b c",
            ),
        ] {
            assert_eq!(String::from_utf8(value(&made)).expect("UTF-8"), want);
        }
    }
}
