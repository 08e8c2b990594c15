//! CSV as RFC 4180 has it, in the units of JSON. Text is as it is, quoted where it must be; lists
//! and arguments have blanks between their parts; a value that is not there is an empty cell.

use std::io;

use taskdiag::field::{self, Context, Row, Value};

use super::{Sink, Table, Tally};
use crate::columns::Column;
use crate::output::json;

fn cell(out: &mut Vec<u8>, cx: &Context, column: &Column, row: Option<&Row<'_>>, v: &Value<'_>) {
    match v {
        Value::Missing(_) | Value::Tty(0) => {}
        Value::Nanos(ns) => json::seconds(out, i128::from(*ns)),
        Value::Instant(ns) => json::seconds(out, cx.unix_ns(*ns)),
        Value::Uint(v) => field::write_uint(out, *v),
        Value::Percent(p) => out.extend_from_slice(format!("{p:.3}").as_bytes()),
        Value::Bytes { data, .. } => out.extend_from_slice(data),
        Value::Args { data, .. } => {
            out.extend(data.iter().map(|b| if *b == 0 { b' ' } else { *b }));
        }
        Value::Ids(ids) => {
            let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
            out.extend_from_slice(ids.join(" ").as_bytes());
        }
        Value::GroupList(ids) => {
            for (i, gid) in ids.iter().enumerate() {
                if i > 0 {
                    out.push(b' ');
                }
                match cx.names.group(*gid) {
                    Some(name) => out.extend_from_slice(&name),
                    None => field::write_uint(out, u64::from(*gid)),
                }
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
        writer.write_record(columns.iter().map(|c| c.name.as_bytes())).map_err(io)?;
    }
    let mut text = Vec::new();
    let mut count = 0;
    table.rows.each(&mut |item| {
        count += 1;
        for (c, column) in columns.iter().enumerate() {
            let v = item.value(cx, column, c);
            if let Some(m) = v.missing() {
                tally.count_in(&item, c, m);
            }
            text.clear();
            cell(&mut text, cx, column, item.row(), &v);
            writer.write_field(&text).map_err(io)?;
        }
        writer.write_record(None::<&[u8]>).map_err(io)
    })?;
    writer.flush()?;
    Ok(count)
}
