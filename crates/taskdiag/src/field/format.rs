//! Values as text, in the forms of procps `ps`, appended to a buffer that the caller reuses:
//! no cell costs an allocation.
//!
//! A missing value is `?`. A value that the task cannot have is `-`, or 0 where procps shows 0
//! (memory of a kernel thread). Unprintable bytes are escaped, so that a row is one line and safe
//! on a terminal: `\n`, `\t`, `\r`, `\x1b` for other bytes and `\u{202e}` for characters. A
//! backslash itself is not doubled; JSON is the lossless form.

use taskdiag_wire::Reason;

use super::TextForm;
use super::context::Context;
use super::number::{HEX, hex_digits, write_uint};
use super::row::Row;
use super::value::{Missing, Value};

const MONTHS: &[u8; 36] = b"JanFebMarAprMayJunJulAugSepOctNovDec";
const DAYS: &[u8; 21] = b"SunMonTueWedThuFriSat";
const DAY_S: i64 = 24 * 3600;

/// Bytes with a letter for their unit, and a decimal if it is significant.
fn human(out: &mut Vec<u8>, v: u64) {
    let mut unit = 0;
    let mut tenths = u128::from(v) * 10;
    // From 999.95 on, the next unit is shorter.
    while tenths >= 9995 && unit + 1 < HUMAN.len() {
        tenths = (tenths + 512) / 1024;
        unit += 1;
    }
    write_uint(out, (tenths / 10) as u64);
    if unit > 0 && tenths < 1000 {
        out.push(b'.');
        write_uint(out, (tenths % 10) as u64);
    }
    if v > 0 {
        out.push(HUMAN[unit]);
    }
}

const HUMAN: &[u8; 6] = b"BKMGTP";

fn write_int(out: &mut Vec<u8>, v: i64) {
    if v < 0 {
        out.push(b'-');
    }
    write_uint(out, v.unsigned_abs());
}

/// At least `width` digits, filled with zeros.
fn write_padded(out: &mut Vec<u8>, v: u64, width: u32) {
    for w in (1..width).rev() {
        if v < 10u64.pow(w) {
            out.push(b'0');
        }
    }
    write_uint(out, v);
}

fn name3(out: &mut Vec<u8>, names: &[u8], i: u8) {
    let at = usize::from(i) * 3;
    out.extend_from_slice(names.get(at..at + 3).unwrap_or(b"???"));
}

/// Appends `bytes` with everything unprintable escaped.
pub fn escape(out: &mut Vec<u8>, bytes: &[u8]) {
    // Without an early exit, the compiler vectorizes this loop; text that needs escapes is rare.
    if bytes.iter().fold(true, |plain, b| plain & matches!(b, 0x20..=0x7e)) {
        out.extend_from_slice(bytes);
        return;
    }
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\n' => out.extend_from_slice(b"\\n"),
                '\t' => out.extend_from_slice(b"\\t"),
                '\r' => out.extend_from_slice(b"\\r"),
                _ if c.is_ascii_control() => hex_byte(out, c as u8),
                _ if is_odd(c) => {
                    out.extend_from_slice(c.escape_unicode().to_string().as_bytes());
                }
                _ => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        for b in chunk.invalid() {
            hex_byte(out, *b);
        }
    }
}

/// Characters that control a terminal or are invisible: controls, bidirectional marks, line
/// separators, zero-width ones, the byte order mark.
pub fn is_odd(c: char) -> bool {
    matches!(c, '\0'..='\x1f' | '\x7f'..='\u{9f}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e0fff}')
}

/// Sixteen digits.
fn hex16(out: &mut Vec<u8>, v: u64) {
    let digits: [u8; 16] = std::array::from_fn(|i| HEX[(v >> (60 - 4 * i) & 15) as usize]);
    out.extend_from_slice(&digits);
}

fn hex_byte(out: &mut Vec<u8>, b: u8) {
    out.extend_from_slice(b"\\x");
    out.push(HEX[usize::from(b >> 4)]);
    out.push(HEX[usize::from(b & 15)]);
}

/// Is it a size in digits, and is this a form of sizes?
fn is_size(form: TextForm, data: &[u8]) -> bool {
    matches!(form, TextForm::Kib | TextForm::Human)
        && (1..=19).contains(&data.len())
        && data.iter().all(u8::is_ascii_digit)
}

/// Appends a value in this form. `row` is its source; it is `None` for sums.
pub fn text(
    out: &mut Vec<u8>,
    cx: &Context,
    form: TextForm,
    row: Option<&Row<'_>>,
    value: &Value<'_>,
) {
    match value {
        Value::Missing(m) if m.is_absent() && form == TextForm::Args => no_args(out, row),
        Value::Missing(m) => missing(out, form, *m),
        Value::Uint(v) => match form {
            TextForm::Kib => write_uint(out, v / 1024),
            TextForm::Human => human(out, *v),
            TextForm::Pages => write_uint(out, v / u64::from(cx.info.page_size.max(1))),
            TextForm::Hex8 => hex(out, *v, 8),
            TextForm::Octal => out.extend_from_slice(format!("{v:o}").as_bytes()),
            _ => write_uint(out, *v),
        },
        Value::Unlimited => out.extend_from_slice(b"unlimited"),
        Value::Bool(b) => out.push(b'0' + u8::from(*b)),
        Value::Int(v) => write_int(out, *v),
        Value::Percent(p) => percent(out, form, *p),
        Value::Nanos(v) if form == TextForm::Millis => millis(out, *v),
        Value::Nanos(ns) => duration(out, form, ns / 1_000_000_000),
        Value::Instant(ns) => instant(out, cx, form, cx.unix_seconds_floor(*ns)),
        Value::Mask(v) => hex16(out, *v),
        // The column of sizes or offsets is text.
        Value::Bytes { data, .. } if form != TextForm::Plain && is_size(form, data) => {
            let size = std::str::from_utf8(data).ok().and_then(|t| t.parse().ok());
            text(out, cx, form, None, &Value::Uint(size.unwrap_or(0)));
        }
        Value::Bytes { data, .. } if form == TextForm::Fname => {
            // Whole characters; each counts as one of the eight.
            let end = match std::str::from_utf8(data) {
                Ok(s) => s.char_indices().nth(8).map_or(data.len(), |(i, _)| i),
                Err(_) => data.len().min(8),
            };
            escape(out, &data[..end]);
        }
        Value::Bytes { data, .. } => escape(out, data),
        Value::Word(w) => out.extend_from_slice(w.as_bytes()),
        Value::Short(s) => escape(out, s.as_bytes()),
        Value::Args { data, .. } if data.is_empty() && form == TextForm::Args => {
            no_args(out, row);
        }
        Value::Args { data, .. } if data.is_empty() => out.push(b'-'),
        Value::Args { data, .. } => args(out, data),
        Value::User(uid) => match cx.names.user(*uid) {
            Some(name) => escape(out, &name),
            None => write_uint(out, u64::from(*uid)),
        },
        Value::Group(gid) => group(out, cx, *gid),
        Value::Tty(dev) => cx.ttys.write(out, *dev),
        Value::Ids(ids) => list(out, ids, |out, id| write_uint(out, u64::from(id))),
        Value::GroupList(ids) => list(out, ids, |out, id| group(out, cx, id)),
    }
}

/// Appends at least this many hexadecimal digits.
fn hex(out: &mut Vec<u8>, v: u64, digits: u32) {
    out.extend(hex_digits(v, digits));
}

fn group(out: &mut Vec<u8>, cx: &Context, gid: u32) {
    match cx.names.group(gid) {
        Some(name) => escape(out, &name),
        None => write_uint(out, u64::from(gid)),
    }
}

fn list(out: &mut Vec<u8>, ids: &[u32], mut each: impl FnMut(&mut Vec<u8>, u32)) {
    if ids.is_empty() {
        out.push(b'-');
    }
    for (i, id) in ids.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        each(out, *id);
    }
}

/// Arguments with a space between them; NULs at the end are dropped.
fn args(out: &mut Vec<u8>, data: &[u8]) {
    let end = data.iter().rposition(|b| *b != 0).map_or(0, |i| i + 1);
    for (i, arg) in data[..end].split(|b| *b == 0).enumerate() {
        if i > 0 {
            out.push(b' ');
        }
        escape(out, arg);
    }
}

/// A kernel thread, a zombie, or a process that emptied its arguments.
fn no_args(out: &mut Vec<u8>, row: Option<&Row<'_>>) {
    out.push(b'[');
    escape(out, row.and_then(|r| r.comm).unwrap_or(b"?"));
    out.push(b']');
    if row.is_some_and(Row::is_zombie) {
        out.extend_from_slice(b" <defunct>");
    }
}

fn missing(out: &mut Vec<u8>, form: TextForm, m: Missing) {
    out.extend_from_slice(match m {
        Missing::Reason(Reason::Absent) => match form {
            TextForm::Kib | TextForm::Pages | TextForm::Human => b"0",
            TextForm::Percent => b"0.0",
            _ => b"-",
        },
        _ => b"?",
    });
}

fn percent(out: &mut Vec<u8>, form: TextForm, p: f64) {
    match form {
        TextForm::Percent99 => {
            let p = (p as u64).min(99);
            if p < 10 {
                out.push(b' ');
            }
            write_uint(out, p);
        }
        TextForm::PerMille => write_uint(out, ((p * 10.0) as u64).min(999)),
        TextForm::Percent3 => {
            let thousandths = ((p * 1000.0).round() as u64).min(99_999);
            write_uint(out, thousandths / 1000);
            out.push(b'.');
            write_padded(out, thousandths % 1000, 3);
        }
        _ => {
            let tenths = (p * 10.0) as u64;
            write_uint(out, tenths / 10);
            // As in procps, no decimal from 100 % on, so that the column keeps its width.
            if tenths < 1000 {
                out.push(b'.');
                write_uint(out, tenths % 10);
            }
        }
    }
}

fn millis(out: &mut Vec<u8>, ns: u64) {
    write_uint(out, ns / 1_000_000);
    if ns < 1_000_000_000 {
        out.push(b'.');
        write_padded(out, ns / 1000 % 1000, 3);
    }
}

fn duration(out: &mut Vec<u8>, form: TextForm, s: u64) {
    match form {
        TextForm::Seconds => write_uint(out, s),
        TextForm::Minutes => {
            let minutes = s / 60;
            for limit in [100, 10] {
                if minutes < limit {
                    out.push(b' ');
                }
            }
            write_uint(out, minutes);
            out.push(b':');
            write_padded(out, s % 60, 2);
        }
        _ => {
            let (days, hours) = (s / 86400, s / 3600 % 24);
            if days > 0 {
                write_uint(out, days);
                out.push(b'-');
            }
            if form != TextForm::Elapsed || days > 0 || hours > 0 {
                write_padded(out, hours, 2);
                out.push(b':');
            }
            write_padded(out, s / 60 % 60, 2);
            out.push(b':');
            write_padded(out, s % 60, 2);
        }
    }
}

fn instant(out: &mut Vec<u8>, cx: &Context, form: TextForm, unix: i64) {
    let t = cx.local.at(unix);
    let hhmm = |out: &mut Vec<u8>| {
        write_padded(out, u64::from(t.hour), 2);
        out.push(b':');
        write_padded(out, u64::from(t.minute), 2);
    };
    let seconds = |out: &mut Vec<u8>| {
        out.push(b':');
        write_padded(out, u64::from(t.second), 2);
    };
    let blank_day = |out: &mut Vec<u8>| {
        out.push(b' ');
        if t.day < 10 {
            out.push(b' ');
        }
        write_uint(out, u64::from(t.day));
    };
    match form {
        TextForm::Date => {
            name3(out, DAYS, t.weekday);
            out.push(b' ');
            name3(out, MONTHS, t.month);
            blank_day(out);
            out.push(b' ');
            hhmm(out);
            seconds(out);
            out.push(b' ');
            write_int(out, i64::from(t.year));
        }
        TextForm::ShortDate => {
            let now = cx.now_local();
            if now.year != t.year {
                write_int(out, i64::from(t.year));
            } else if now.yearday != t.yearday {
                name3(out, MONTHS, t.month);
                write_padded(out, u64::from(t.day), 2);
            } else {
                hhmm(out);
            }
        }
        TextForm::StartDate => {
            if unix + DAY_S > cx.now() {
                hhmm(out);
                seconds(out);
            } else {
                out.extend_from_slice(b"  ");
                name3(out, MONTHS, t.month);
                out.push(b' ');
                write_padded(out, u64::from(t.day), 2);
            }
        }
        _ => {
            if cx.now() - unix > DAY_S {
                name3(out, MONTHS, t.month);
                blank_day(out);
            } else {
                out.push(b' ');
                hhmm(out);
            }
        }
    }
}
