//! Writes text as procps does: characters that cannot be printed become `?`. They look like real
//! question marks. So only commands that must match procps exactly do this, and all others escape
//! ([`field::escape`]).

use std::sync::OnceLock;

use taskdiag::field::{self, Context, Field, Row, TextForm, Value};
use unicode_width::UnicodeWidthChar;

use super::terminal;
use crate::columns::Column;

/// The value that procps prints in place of a missing one. procps does not distinguish this from a
/// denied value. If procps may not see the size of the code, it subtracts nothing, so all memory
/// counts as the rest.
pub fn nothing(row: &Row<'_>, field: &Field) -> Value<'static> {
    match (field.name, row.statm.and_then(|r| r.size_bytes())) {
        ("drs", Some(size)) => Value::Uint(size),
        ("vsz_bytes", None) => Value::Uint(0),
        _ => Value::ABSENT,
    }
}

/// Append the text of a cell.
pub fn cell(
    out: &mut Vec<u8>,
    cx: &Context,
    column: &Column,
    row: Option<&Row<'_>>,
    value: &Value<'_>,
) {
    let begin = out.len();
    let before_environ = match column.field.name {
        "args_environ" => Some("args"),
        "comm_environ" => Some("comm"),
        _ => None,
    };
    match (before_environ, row) {
        (Some(name), Some(row)) => {
            text(out, cx, column.form, Some(row), &named(name, cx, row));
            environment(out, cx, row);
        }
        _ => text(out, cx, column.form, row, value),
    }
    widen(out, begin, column.field);
}

/// The value of a column of tasks.
fn named<'a>(name: &str, cx: &Context, row: &Row<'a>) -> Value<'a> {
    let field = field::find(name).expect("the table has it").field;
    (field.get)(cx, row)
}

/// Puts blanks before a number. procps counts them as a part of the number: they stay if the
/// columns before it are too wide.
fn widen(out: &mut Vec<u8>, begin: usize, field: &Field) {
    let least = match field.name {
        "pmem" => "99.9".len(),
        "cp" => "999".len(),
        _ => return,
    };
    let blanks = least.saturating_sub(out.len() - begin);
    out.splice(begin..begin, std::iter::repeat_n(b' ', blanks));
}

/// Append a value in this form.
pub fn text(
    out: &mut Vec<u8>,
    cx: &Context,
    form: TextForm,
    row: Option<&Row<'_>>,
    value: &Value<'_>,
) {
    match value {
        Value::Args { data, .. } if data.iter().all(|b| *b == 0) && form == TextForm::Args => {
            let read = row.and_then(|r| r.view.cmdline());
            match data.is_empty() && read.is_none_or(|b| b.data.is_empty()) {
                // The process has no arguments at all, so its name is shown in brackets.
                true => field::text(out, cx, form, row, value),
                // The process has arguments, but all of them are empty.
                false => out.push(b'?'),
            }
        }
        Value::Args { data, .. } if !data.is_empty() => joined(out, data),
        Value::Bytes { data, .. } => {
            let room = if form == TextForm::Fname { FNAME } else { usize::MAX };
            printable(out, data, room, is_utf8());
        }
        Value::User(uid) => match cx.names.user(*uid) {
            Some(name) => printable(out, &name, usize::MAX, is_utf8()),
            None => field::write_uint(out, u64::from(*uid)),
        },
        Value::Unlimited if form == TextForm::Kib => out.extend_from_slice(b"xx"),
        Value::Missing(m) if m.is_absent() && form == TextForm::Hex => {
            field::text(out, cx, form, row, &Value::Mask(0));
        }
        other => field::text(out, cx, form, row, other),
    }
}

/// Append a blank and the environment, unless it is empty.
fn environment(out: &mut Vec<u8>, cx: &Context, row: &Row<'_>) {
    match named("environ", cx, row) {
        Value::Args { data, .. } if data.iter().any(|b| *b != 0) => {
            out.push(b' ');
            joined(out, &data);
        }
        _ => {}
    }
}

/// Append strings with a blank between them; NULs at the end are dropped.
fn joined(out: &mut Vec<u8>, data: &[u8]) {
    let end = data.iter().rposition(|b| *b != 0).map_or(0, |i| i + 1);
    let blank = |b: &u8| if matches!(b, 0 | b'\n') { b' ' } else { *b };
    let text: Vec<u8> = data[..end].iter().map(blank).collect();
    printable(out, &text, usize::MAX, is_utf8());
}

/// The cells of the column `fname`, even if it is the last one.
const FNAME: usize = 8;

/// Does the locale have characters beyond ASCII?
fn is_utf8() -> bool {
    static IS: OnceLock<bool> = OnceLock::new();
    *IS.get_or_init(terminal::is_utf8)
}

/// The cells of a character in the C library, where a soft hyphen takes one cell.
pub fn width(c: char) -> usize {
    match c {
        '\u{ad}' => 1,
        c => c.width().unwrap_or(0),
    }
}

/// Joiners have no cells and do not control the terminal, and words of some languages and some
/// emoji need them.
fn is_joiner(c: char) -> bool {
    matches!(c, '\u{200c}' | '\u{200d}')
}

/// Is it one of the numbers that Unicode never gives to a character?
fn is_no_character(c: char) -> bool {
    matches!(c, '\u{fdd0}'..='\u{fdef}') || u32::from(c) & 0xfffe == 0xfffe
}

/// Appends the beginning of a text that fits into this many cells. Without UTF-8, a control
/// character becomes a dot, as in procps.
fn printable(out: &mut Vec<u8>, bytes: &[u8], room: usize, utf8: bool) {
    if !utf8 {
        let shown = |b: &u8| match b {
            0x20..=0x7e => *b,
            0..=0x1f | 0x7f => b'.',
            0x80.. => b'?',
        };
        out.extend(bytes.iter().take(room).map(shown));
        return;
    }
    let mut left = room;
    for chunk in bytes.utf8_chunks() {
        let valid = chunk.valid().chars().map(|c| match c.width() {
            Some(_) if is_joiner(c) => c,
            Some(_) if !field::is_odd(c) && !is_no_character(c) => c,
            _ => '?',
        });
        let invalid = chunk.invalid().iter().map(|_| '?');
        for c in valid.chain(invalid) {
            if left == 0 || width(c) > left {
                return;
            }
            left -= width(c);
            out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(bytes: &[u8], room: usize, utf8: bool) -> String {
        let mut out = Vec::new();
        printable(&mut out, bytes, room, utf8);
        String::from_utf8(out).expect("it is text")
    }

    #[test]
    fn a_name_is_cleaned_before_it_is_cut() {
        for (name, utf8, ascii) in [
            (b"line\ntw\x1bab".as_slice(), "line?tw?", "line.tw."),
            (b"\xff\xfe.", "??.", "??."),
            (b"abcdefg\xc3", "abcdefg?", "abcdefg?"),
            (b"abcdefg\xc3\xa9xyz", "abcdefg\u{e9}", "abcdefg?"),
            (b"1234567\xf0\x9f\x98\x80", "1234567", "1234567?"),
            (b"\x01\x7f\xc2\x9b", "???", "..??"),
            (b"a\xef\xbf\xbfb", "a?b", "a???b"),
            (b"a\\b\tc", "a\\b?c", "a\\b.c"),
        ] {
            assert_eq!(shown(name, FNAME, true), utf8, "{name:?}");
            assert_eq!(shown(name, FNAME, false), ascii, "{name:?}");
        }
    }

    #[test]
    fn a_share_of_memory_has_two_digits_before_the_point() {
        let widened = |name: &str, text: &str| {
            let mut out = format!("x{text}").into_bytes();
            widen(&mut out, 1, field::find(name).expect("a column").field);
            String::from_utf8(out).expect("it is text")
        };
        assert_eq!(widened("pmem", "0.1"), "x 0.1");
        assert_eq!(widened("pmem", "10.1"), "x10.1");
        assert_eq!(widened("cp", "7"), "x  7");
        assert_eq!(widened("pcpu", "0.1"), "x0.1");
    }

    #[test]
    fn joiners_stay_and_marks_of_direction_do_not() {
        let family = "\u{1f468}\u{200d}\u{1f469} \u{645}\u{6cc}\u{200c}\u{62e}";
        assert_eq!(shown(family.as_bytes(), usize::MAX, true), family);
        assert_eq!(shown("a\u{202e}b\u{200f}".as_bytes(), usize::MAX, true), "a?b?");
    }
}
