//! CSV as RFC 4180 has it, in the units of JSON. Text is quoted where it must be, and what is not printable
//! is escaped so that it can be had back: a backslash is doubled, and what follows a single one is as in
//! tables. So a row is a line. Lists and arguments have blanks between their parts; a value that is not
//! there is an empty cell.

use std::io;

use taskdiag::field::{self, Context, Row, Value};

use super::{Sink, Table, Tally};
use crate::columns::Column;
use crate::output::json;

/// Append text, with all escaped that is not printable, and the backslash.
fn text(out: &mut Vec<u8>, bytes: &[u8]) {
    for (i, part) in bytes.split(|b| *b == b'\\').enumerate() {
        if i > 0 {
            out.extend_from_slice(b"\\\\");
        }
        field::escape(out, part);
    }
}

fn group(out: &mut Vec<u8>, cx: &Context, gid: u32) {
    match cx.names.group(gid) {
        Some(name) => text(out, &name),
        None => field::write_uint(out, u64::from(gid)),
    }
}

fn cell(out: &mut Vec<u8>, cx: &Context, column: &Column, row: Option<&Row<'_>>, v: &Value<'_>) {
    match v {
        Value::Missing(_) | Value::Tty(0) => {}
        Value::Nanos(ns) => json::seconds(out, i128::from(*ns)),
        Value::Instant(ns) => {
            json::seconds(out, i128::from(cx.unix_seconds_floor(*ns)) * 1_000_000_000);
        }
        Value::Uint(v) => field::write_uint(out, *v),
        Value::Percent(p) => out.extend_from_slice(format!("{p:.3}").as_bytes()),
        Value::Bytes { data, .. } => text(out, data),
        Value::Short(s) => text(out, s.as_bytes()),
        Value::Args { data, .. } => {
            for (i, arg) in data.split(|b| *b == 0).enumerate() {
                if i > 0 {
                    out.push(b' ');
                }
                text(out, arg);
            }
        }
        Value::User(uid) => match cx.names.user(*uid) {
            Some(name) => text(out, &name),
            None => field::write_uint(out, u64::from(*uid)),
        },
        Value::Group(gid) => group(out, cx, *gid),
        Value::Tty(dev) => text(out, &cx.tty_name(*dev)),
        Value::Ids(ids) => {
            let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
            out.extend_from_slice(ids.join(" ").as_bytes());
        }
        Value::GroupList(ids) => {
            for (i, gid) in ids.iter().enumerate() {
                if i > 0 {
                    out.push(b' ');
                }
                group(out, cx, *gid);
            }
        }
        other => field::text(out, cx, column.form, row, other),
    }
}

/// Write the rows; gives their number.
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
