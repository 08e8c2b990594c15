//! CSV as in RFC 4180, in the units of JSON. `docs/reference/csv.md` says what programs may rely
//! on.
//!
//! The names of tasks, files and users are chosen by others. Unprintable characters in them are
//! escaped as in tables, and a backslash is doubled. So a row is one line, it is safe on a
//! terminal, and the original bytes can be restored. The start of a formula in a spreadsheet is
//! escaped in the same way. A list has blanks between its texts, so blanks inside of them are
//! escaped.

use std::io;

use taskdiag::field::{self, Context, Row, Value};

use super::{Sink, Table, Tally};
use crate::columns::Column;
use crate::output::json;

/// Append text.
fn text(out: &mut Vec<u8>, bytes: &[u8]) {
    for (i, part) in bytes.split(|b| *b == b'\\').enumerate() {
        if i > 0 {
            out.extend_from_slice(b"\\\\");
        }
        field::escape(out, part);
    }
}

/// Text that others have chosen, for a cell of its own.
pub fn foreign_text(bytes: &[u8]) -> Vec<u8> {
    let mut cell = Vec::new();
    text(&mut cell, bytes);
    disarm(&mut cell);
    cell
}

/// Append a list of texts.
fn list<'a>(out: &mut Vec<u8>, texts: impl Iterator<Item = &'a [u8]>) {
    for (i, one) in texts.enumerate() {
        if i > 0 {
            out.push(b' ');
        }
        for (i, word) in one.split(|b| *b == b' ').enumerate() {
            if i > 0 {
                out.extend_from_slice(b"\\x20");
            }
            text(out, word);
        }
    }
}

/// Prefixes of formulas: in ASCII, and as wide characters, which some spreadsheets treat alike.
const FORMULA: [char; 8] = ['=', '+', '-', '@', '\u{ff1d}', '\u{ff0b}', '\u{ff0d}', '\u{ff20}'];

/// Escapes a formula prefix at the start of the cell, or after `;`, which separates cells where the
/// decimal mark is a comma.
fn disarm(cell: &mut Vec<u8>) {
    let at_risk = |c: &u8| c.is_ascii_punctuation() || !c.is_ascii();
    if !cell.first().is_some_and(at_risk) && !cell.contains(&b';') {
        return;
    }
    let text = String::from_utf8_lossy(cell).into_owned();
    cell.clear();
    let mut is_begin = true;
    for c in text.chars() {
        match c {
            _ if !is_begin || !FORMULA.contains(&c) => {
                cell.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            }
            c if c.is_ascii() => cell.extend_from_slice(format!("\\x{:02x}", c as u8).as_bytes()),
            c => cell.extend_from_slice(c.escape_unicode().to_string().as_bytes()),
        }
        is_begin = c == ';';
    }
}

fn group(cx: &Context, gid: u32) -> Vec<u8> {
    cx.names.group(gid).map_or_else(|| gid.to_string().into(), |name| name.to_vec())
}

fn cell(out: &mut Vec<u8>, cx: &Context, column: &Column, row: Option<&Row<'_>>, v: &Value<'_>) {
    match v {
        Value::Missing(m) if m.is_absent() => {
            let nothing = json::absent(column).filter(|text| *text != "[]");
            out.extend_from_slice(nothing.unwrap_or_default().as_bytes());
        }
        Value::Missing(_) | Value::Tty(0) => {}
        Value::Nanos(ns) => json::seconds(out, i128::from(*ns)),
        Value::Instant(ns) => {
            json::seconds(out, i128::from(cx.unix_seconds_floor(*ns)) * 1_000_000_000);
        }
        Value::Uint(v) => field::write_uint(out, *v),
        Value::Bool(b) => out.extend_from_slice(if *b { b"true" } else { b"false" }),
        Value::Percent(p) => out.extend_from_slice(format!("{p:.3}").as_bytes()),
        Value::Ids(ids) => {
            let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
            out.extend_from_slice(ids.join(" ").as_bytes());
        }
        Value::Short(s) => text(out, s.as_bytes()),
        Value::Bytes { .. }
        | Value::Args { .. }
        | Value::User(_)
        | Value::Group(_)
        | Value::Tty(_)
        | Value::GroupList(_) => {
            foreign(out, cx, v);
            disarm(out);
        }
        other => field::text(out, cx, column.form, row, other),
    }
}

/// Text that others have chosen.
fn foreign(out: &mut Vec<u8>, cx: &Context, v: &Value<'_>) {
    match v {
        Value::Bytes { data, .. } => text(out, data),
        Value::Args { data, .. } => list(out, data.split(|b| *b == 0)),
        Value::User(uid) => match cx.names.user(*uid) {
            Some(name) => text(out, &name),
            None => field::write_uint(out, u64::from(*uid)),
        },
        Value::Group(gid) => text(out, &group(cx, *gid)),
        Value::Tty(dev) => text(out, &cx.tty_name(*dev)),
        Value::GroupList(ids) => {
            let names: Vec<Vec<u8>> = ids.iter().map(|gid| group(cx, *gid)).collect();
            list(out, names.iter().map(Vec::as_slice));
        }
        _ => {}
    }
}

/// Writes the rows. Returns their number.
pub fn rows(
    sink: &mut Sink,
    table: &Table<'_>,
    headers: bool,
    tally: &mut Tally,
) -> io::Result<usize> {
    let Table { cx, columns, .. } = *table;
    let io = |e: csv::Error| match e.into_kind() {
        csv::ErrorKind::Io(e) => e,
        other => io::Error::other(format!("{other:?}")),
    };
    let mut writer = csv::WriterBuilder::new().from_writer(&mut *sink);
    if headers {
        writer.write_record(columns.iter().map(|c| c.key.as_bytes())).map_err(io)?;
    }
    let mut value = Vec::new();
    let mut count = 0;
    table.rows.each(&mut |item| {
        count += 1;
        for (c, column) in columns.iter().enumerate() {
            let v = item.value(cx, column.field, c);
            if let Some(m) = v.missing() {
                tally.count_in(&item, c, m);
            }
            value.clear();
            cell(&mut value, cx, column, item.row(), &v);
            writer.write_field(&value).map_err(io)?;
        }
        writer.write_record(None::<&[u8]>).map_err(io)
    })?;
    writer.flush()?;
    Ok(count)
}
