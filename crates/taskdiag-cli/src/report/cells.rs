//! Writes tables as JSON for the page. The form is compact, since a page may have thousands of
//! rows.
//!
//! A row is an array with a cell for each column. The cell of a number is the value in the unit of
//! the column, as in `--json`. The cell of a text is the index of the text in `words`, a list for
//! the whole page, because users, units and commands are often the same. These texts are what
//! `taskdiag ps` shows, with everything escaped that is not printable. A value that the task does
//! not have is -1. A value that is not known is -2, -3 and so on, which stand for the entries of
//! `reasons`.

use std::collections::HashMap;

use taskdiag::field::{self, Context, Kind, Missing, TextForm, Value};

use crate::columns::Column;
use crate::output::{Item, Tally, json};

/// The words and reasons of a page.
#[derive(Debug, Default)]
pub struct Cells {
    words: Vec<Vec<u8>>,
    index: HashMap<Vec<u8>, usize>,
    reasons: Vec<&'static str>,
    text: Vec<u8>,
}

/// The largest size of a text in the page, in bytes, except for arguments.
const LONGEST: usize = 200;

/// Marks the end of a text that was cut.
const CUT: &str = "\u{2026}";

impl Cells {
    /// Write a row. Arguments are cut where they take more than `longest` bytes.
    pub fn row(
        &mut self,
        out: &mut Vec<u8>,
        cx: &Context,
        columns: &[Column],
        item: &Item<'_, '_>,
        longest: usize,
        tally: &mut Tally,
    ) {
        json::list(out, columns.iter().enumerate(), |out, (c, column)| {
            let value = item.value(cx, column.field, c);
            if let Some(m) = value.missing() {
                tally.count_in(item, c, m);
            }
            self.cell(out, cx, column, item, &value, longest);
        });
    }
    fn cell(
        &mut self,
        out: &mut Vec<u8>,
        cx: &Context,
        column: &Column,
        item: &Item<'_, '_>,
        value: &Value<'_>,
        longest: usize,
    ) {
        let is_args = column.form == TextForm::Args;
        match value {
            Value::Missing(m) if m.is_absent() && is_args => {}
            Value::Missing(m) => return self.missing(out, column, *m),
            Value::Bool(is) => return out.push(b'0' + u8::from(*is)),
            _ if !is_text(column) => return json::value(out, cx, value),
            _ => {}
        }
        let mut text = std::mem::take(&mut self.text);
        text.clear();
        field::text(&mut text, cx, column.form, item.row(), value);
        let number = self.word(&text, if is_args { longest } else { LONGEST });
        field::write_uint(out, number as u64);
        self.text = text;
    }
    fn missing(&mut self, out: &mut Vec<u8>, column: &Column, why: Missing) {
        if why.is_absent() {
            let amount = json::absent(column).filter(|a| *a != "[]");
            return out.extend_from_slice(amount.unwrap_or("-1").as_bytes());
        }
        let name = why.name();
        let known = self.reasons.iter().position(|r| *r == name);
        let at = known.unwrap_or_else(|| {
            self.reasons.push(name);
            self.reasons.len() - 1
        });
        out.extend_from_slice(format!("-{}", at + 2).as_bytes());
    }
    /// The index of a text in `words`. It is cut if it takes more bytes in the page than `longest`.
    pub fn word(&mut self, text: &[u8], longest: usize) -> usize {
        let cut = end_of(text, longest).map(|end| [&text[..end], CUT.as_bytes()].concat());
        let text = cut.as_deref().unwrap_or(text);
        if let Some(at) = self.index.get(text) {
            return *at;
        }
        self.words.push(text.to_vec());
        self.index.insert(text.to_vec(), self.words.len() - 1);
        self.words.len() - 1
    }
    /// Write the lists of words and reasons as members of an object.
    pub fn lists(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"\"words\":");
        json::list(out, self.words.iter(), |out, word| json::text(out, word));
        out.extend_from_slice(b",\"reasons\":");
        json::list(out, self.reasons.iter(), |out, word| json::text(out, word.as_bytes()));
    }
}

/// Where to cut a text that takes more bytes in the page than `longest`. `None`: the text is short
/// enough.
fn end_of(text: &[u8], longest: usize) -> Option<usize> {
    // A character takes six bytes at most (\u003c).
    if text.len() * 6 <= longest {
        return None;
    }
    let mut size = 0;
    let text = std::str::from_utf8(text).expect("escaped text is UTF-8");
    let too_far = text.char_indices().find(|(_, c)| {
        size += match c {
            '<' => 6,
            '"' | '\\' => 2,
            c => c.len_utf8(),
        };
        size > longest
    });
    too_far.map(|(end, _)| end)
}

fn is_text(column: &Column) -> bool {
    matches!(column.field.kind, Kind::Text | Kind::TextList | Kind::IntegerList)
}

/// Write the description of the columns.
pub fn columns(out: &mut Vec<u8>, columns: &[Column]) {
    json::list(out, columns.iter(), |out, c| {
        let kind = match c.field.kind {
            Kind::Boolean => "bool",
            _ if is_text(c) => "text",
            _ => "number",
        };
        let head = serde_json::json!({
            "name": c.field.name,
            // The arguments have the same header, so the name gets another one.
            "head": if c.field.name == "comm" { "NAME" } else { c.header.as_str() },
            "kind": kind,
            "unit": c.field.unit.name(),
            "help": c.field.help,
        });
        out.extend_from_slice(head.to_string().as_bytes());
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_cut_between_characters() {
        let mut cells = Cells::default();
        assert_eq!(cells.word("aéé".as_bytes(), 4), 0);
        assert_eq!(cells.word("aé…".as_bytes(), 100), 0);
        assert_eq!(cells.word("aéé".as_bytes(), 5), 1);
        assert_eq!(cells.word(b"<<\\\"<", 16), 2);
        assert_eq!(cells.word(b"<<\\\"<", 22), 3);
        let mut out = Vec::new();
        cells.lists(&mut out);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            r#""words":["aé…","aéé","<<\\\"…","<<\\\"<"],"reasons":[]"#
        );
    }
}
