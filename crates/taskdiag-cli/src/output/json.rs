//! JSON: one document, or one object a line.
//!
//! `docs/reference/json.md` says what programs may rely on. Keys are the names of fields, or
//! requested headers. Values are in the library's units: bytes, seconds, seconds since 1970. Text
//! is always a string; if it is not valid UTF-8, another key has its bytes, so nothing is lost. A
//! value that is not known is `null`, and `missing` says why. If a task cannot have a value, an
//! amount is 0, and for all others the key is absent.

use std::io;

use base64::Engine;
use taskdiag::field::{self, Context, Kind, Missing, TextForm, Value};

use super::{Item, Sink, Table, Tally};
use crate::columns::Column;

/// Append bytes as a JSON string. Bytes that are not UTF-8 become U+FFFD. Characters that control a
/// terminal or are invisible are escaped, such as \u009b, which makes the same string.
pub fn text(out: &mut Vec<u8>, bytes: &[u8]) {
    let start = out.len();
    let s = String::from_utf8_lossy(bytes);
    // Writing to a Vec cannot fail, and every str is valid.
    serde_json::to_writer(&mut *out, &*s).expect("a string is valid JSON");
    if s.bytes().any(|b| b >= 0x7f) {
        escape_odd(out, start);
    }
}

/// Escape the characters from `start` on that JSON allows unescaped but a terminal obeys.
fn escape_odd(out: &mut Vec<u8>, start: usize) {
    let written = out.split_off(start);
    for c in String::from_utf8_lossy(&written).chars() {
        if field::is_odd(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                out.extend_from_slice(format!("\\u{unit:04x}").as_bytes());
            }
        } else {
            out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }
}

/// Nanoseconds as seconds, exactly.
pub fn seconds(out: &mut Vec<u8>, ns: i128) {
    if ns < 0 {
        out.push(b'-');
    }
    let ns = ns.unsigned_abs();
    field::write_uint(out, (ns / 1_000_000_000) as u64);
    let mut rest = (ns % 1_000_000_000) as u64;
    out.push(b'.');
    let mut scale = 100_000_000;
    loop {
        out.push(b'0' + (rest / scale) as u8);
        rest %= scale;
        scale /= 10;
        if rest == 0 || scale == 0 {
            break;
        }
    }
}

/// An array.
pub fn list<T>(
    out: &mut Vec<u8>,
    items: impl Iterator<Item = T>,
    mut each: impl FnMut(&mut Vec<u8>, T),
) {
    out.push(b'[');
    for (i, item) in items.enumerate() {
        if i > 0 {
            out.push(b',');
        }
        each(out, item);
    }
    out.push(b']');
}

fn group(out: &mut Vec<u8>, cx: &Context, gid: u32) {
    match cx.names.group(gid) {
        Some(name) => text(out, &name),
        None => text(out, gid.to_string().as_bytes()),
    }
}

/// Appends a value. A missing one is `null`.
pub fn value(out: &mut Vec<u8>, cx: &Context, v: &Value<'_>) {
    match v {
        Value::Missing(_) => out.extend_from_slice(b"null"),
        Value::Uint(v) => field::write_uint(out, *v),
        Value::Unlimited => out.extend_from_slice(b"\"unlimited\""),
        Value::Bool(b) => out.extend_from_slice(if *b { b"true" } else { b"false" }),
        Value::Int(v) => out.extend_from_slice(v.to_string().as_bytes()),
        Value::Percent(p) => out.extend_from_slice(format!("{p:.3}").as_bytes()),
        Value::Nanos(ns) => seconds(out, i128::from(*ns)),
        // Whole seconds, because the fraction differs from answer to answer.
        Value::Instant(ns) => seconds(out, i128::from(cx.unix_seconds_floor(*ns)) * 1_000_000_000),
        Value::Mask(m) => out.extend_from_slice(format!("\"{m:016x}\"").as_bytes()),
        Value::Bytes { data, .. } => text(out, data),
        Value::Word(w) => text(out, w.as_bytes()),
        Value::Short(s) => text(out, s.as_bytes()),
        Value::Args { data, .. } if data.is_empty() => out.extend_from_slice(b"[]"),
        Value::Args { data, .. } => list(out, data.split(|b| *b == 0), text),
        Value::User(uid) => match cx.names.user(*uid) {
            Some(name) => text(out, &name),
            None => text(out, uid.to_string().as_bytes()),
        },
        Value::Group(gid) => group(out, cx, *gid),
        Value::Tty(0) => out.extend_from_slice(b"null"),
        Value::Tty(dev) => text(out, &cx.tty_name(*dev)),
        Value::Ids(ids) => list(out, ids.iter(), |out, id| field::write_uint(out, u64::from(*id))),
        Value::GroupList(ids) => list(out, ids.iter(), |out, id| group(out, cx, *id)),
    }
}

/// The columns with their keys as JSON. A column that was requested twice occurs once.
fn keys(columns: &[Column]) -> Vec<(usize, Vec<u8>)> {
    let mut out: Vec<(usize, Vec<u8>)> = Vec::new();
    for (i, c) in columns.iter().enumerate() {
        let mut key = Vec::new();
        text(&mut key, c.key.as_bytes());
        key.push(b':');
        if !out.iter().any(|(_, k)| *k == key) {
            out.push((i, key));
        }
    }
    out
}

/// The columns of one row as members of an object. Missing values come last.
pub fn members(out: &mut Vec<u8>, cx: &Context, columns: &[Column], item: Item<'_, '_>) {
    let mut lacking = Vec::new();
    write_members(out, cx, columns, &keys(columns), item, &mut lacking, |_, _| {});
}

fn write_members(
    out: &mut Vec<u8>,
    cx: &Context,
    columns: &[Column],
    keys: &[(usize, Vec<u8>)],
    item: Item<'_, '_>,
    lacking: &mut Vec<(usize, &'static str)>,
    mut missing: impl FnMut(usize, Missing),
) {
    lacking.clear();
    let start = out.len();
    for (k, (c, key)) in keys.iter().enumerate() {
        let column = &columns[*c];
        let v = item.value(cx, column.field, *c);
        let why = v.missing();
        if let Some(m) = why {
            missing(*c, m);
        }
        let amount = match why {
            Some(m) if m.is_absent() => match absent(column) {
                Some(amount) => Some(amount),
                // The task cannot have such a value, so there is no key.
                None => continue,
            },
            Some(m) => {
                lacking.push((k, m.name()));
                None
            }
            None if matches!(v, Value::Tty(0)) => continue,
            None => None,
        };
        if out.len() > start {
            out.push(b',');
        }
        out.extend_from_slice(key);
        match amount {
            Some(amount) => out.extend_from_slice(amount.as_bytes()),
            None => value(out, cx, &v),
        }
        odd_bytes(out, key, &v);
    }
    if !lacking.is_empty() {
        out.extend_from_slice(if out.len() > start { b",\"missing\":{" } else { b"\"missing\":{" });
        for (j, (k, why)) in lacking.iter().enumerate() {
            if j > 0 {
                out.push(b',');
            }
            out.extend_from_slice(&keys[*k].1);
            text(out, why.as_bytes());
        }
        out.push(b'}');
    }
}

/// The value for a task that cannot have one: 0 for memory, and an empty list. A file without a
/// size has no value, and not 0.
pub fn absent(column: &Column) -> Option<&'static str> {
    match (column.field.kind, column.field.text) {
        (Kind::TextList | Kind::IntegerList, _) => Some("[]"),
        (_, TextForm::Kib | TextForm::Pages | TextForm::Human) => Some("0"),
        (_, TextForm::Percent | TextForm::Percent99 | TextForm::PerMille) => Some("0.0"),
        _ => None,
    }
}

/// For text that is not UTF-8, add its bytes in base64 as `KEY_bytes`. For a list, all of its texts
/// are added.
fn odd_bytes(out: &mut Vec<u8>, key: &[u8], v: &Value<'_>) {
    let is_odd = |bytes: &[u8]| std::str::from_utf8(bytes).is_err();
    let odd = match v {
        Value::Bytes { data, .. } | Value::Args { data, .. } => is_odd(data),
        Value::Short(s) => is_odd(s.as_bytes()),
        _ => false,
    };
    if !odd {
        return;
    }
    let base64 = |out: &mut Vec<u8>, bytes: &[u8]| {
        let encoded = base64::engine::general_purpose::STANDARD.encode(bytes);
        out.extend_from_slice(format!("\"{encoded}\"").as_bytes());
    };
    out.push(b',');
    // "KEY": becomes "KEY_bytes":
    out.extend_from_slice(&key[..key.len() - 2]);
    out.extend_from_slice(b"_bytes\":");
    match v {
        Value::Args { data, .. } => list(out, data.split(|b| *b == 0), base64),
        Value::Bytes { data, .. } => base64(out, data),
        Value::Short(s) => base64(out, s.as_bytes()),
        _ => {}
    }
}

/// Writes the rows. `lines`: one object a line instead of one array. Returns the number of rows.
pub fn rows(
    sink: &mut Sink,
    table: &Table<'_>,
    lines: bool,
    tally: &mut Tally,
) -> io::Result<usize> {
    let Table { cx, columns, .. } = *table;
    let keys = keys(columns);
    let mut lacking: Vec<(usize, &'static str)> = Vec::new();
    if !lines {
        sink.buf().push(b'[');
    }
    let mut count = 0;
    table.rows.each(&mut |item| {
        let out = sink.buf();
        if !lines {
            out.extend_from_slice(if count == 0 { b"\n" } else { b",\n" });
        }
        count += 1;
        out.push(b'{');
        let missing = |c, m| tally.count_in(&item, c, m);
        write_members(out, cx, columns, &keys, item, &mut lacking, missing);
        out.push(b'}');
        if lines {
            out.push(b'\n');
        }
        sink.settle()
    })?;
    if !lines {
        sink.buf().extend_from_slice(b"\n]\n");
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(f: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        f(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn seconds_are_written_exactly() {
        assert_eq!(made(|o| seconds(o, 0)), "0.0");
        assert_eq!(made(|o| seconds(o, 1_500_000_000)), "1.5");
        assert_eq!(made(|o| seconds(o, 1_000_000_001)), "1.000000001");
        assert_eq!(made(|o| seconds(o, -50_000_000)), "-0.05");
    }

    #[test]
    fn any_bytes_become_valid_json() {
        assert_eq!(made(|o| text(o, b"a\"\n\x01")), "\"a\\\"\\n\\u0001\"");
        assert_eq!(made(|o| text(o, b"a\xff")), "\"a\u{fffd}\"");
        let odd = Value::Bytes { data: b"\xff\xfe"[..].into(), cut: false };
        assert_eq!(made(|o| odd_bytes(o, b"\"k\":", &odd)), ",\"k_bytes\":\"//4=\"");
        let odd = "\u{7f}é\u{9b}31m\u{202e}\u{e0001}";
        let escaped = "\"\\u007fé\\u009b31m\\u202e\\udb40\\udc01\"";
        assert_eq!(made(|o| text(o, odd.as_bytes())), escaped);
        assert_eq!(serde_json::from_str::<String>(escaped).unwrap(), odd);
    }
}
