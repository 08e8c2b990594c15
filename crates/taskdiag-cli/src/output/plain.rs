//! Writes text as procps does: characters that cannot be printed become `?`. They cannot be told from question marks. So
//! only commands that must match procps to the letter do this, and all others escape ([`field::escape`]).

use std::sync::OnceLock;

use taskdiag::field::{self, Context, Row, TextForm, Value};
use unicode_width::UnicodeWidthChar;

use super::terminal;

/// Append a value in this form.
pub fn text(
    out: &mut Vec<u8>,
    cx: &Context,
    form: TextForm,
    row: Option<&Row<'_>>,
    value: &Value<'_>,
) {
    match value {
        Value::Args { data, .. } if !data.is_empty() => {
            let end = data.iter().rposition(|b| *b != 0).map_or(0, |i| i + 1);
            let joined: Vec<u8> = data[..end]
                .iter()
                .map(|b| if matches!(b, 0 | b'\n') { b' ' } else { *b })
                .collect();
            printable(out, &joined);
        }
        Value::Bytes { data, .. } if form != TextForm::Fname => printable(out, data),
        Value::User(uid) => match cx.names.user(*uid) {
            Some(name) => printable(out, &name),
            None => field::write_uint(out, u64::from(*uid)),
        },
        other => field::text(out, cx, form, row, other),
    }
}

/// Does the locale have more characters than ASCII?
fn is_utf8() -> bool {
    static IS: OnceLock<bool> = OnceLock::new();
    *IS.get_or_init(terminal::is_utf8)
}

fn printable(out: &mut Vec<u8>, bytes: &[u8]) {
    if !is_utf8() {
        out.extend(bytes.iter().map(|b| if matches!(b, 0x20..=0x7e) { *b } else { b'?' }));
        return;
    }
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c.width() {
                Some(_) if !field::is_odd(c) => {
                    out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                }
                _ => out.push(b'?'),
            }
        }
        out.extend(chunk.invalid().iter().map(|_| b'?'));
    }
}
