// SPDX-License-Identifier: MIT OR Apache-2.0
//! JSON: an array with an object for each row.

use std::collections::HashSet;
use std::io::{self, Write};

use taskdiag::field;
use taskdiag_face::exit::Exit;

use super::cell::Cell;

/// A result as JSON.
pub struct Json<'o> {
    out: io::BufWriter<&'o mut (dyn Write + Send)>,
    /// The names as they are written.
    keys: Vec<String>,
    is_first: bool,
}

impl<'o> Json<'o> {
    /// Begins a result with these columns. If two columns have the same name, the later one gets a
    /// number.
    pub fn begin(out: &'o mut (dyn Write + Send), names: &[String]) -> Result<Json<'o>, Exit> {
        let mut seen = HashSet::new();
        let mut keys = Vec::new();
        for name in names {
            let mut unique = name.clone();
            let mut n = 0;
            while !seen.insert(unique.clone()) {
                n += 1;
                unique = format!("{name}_{n}");
            }
            keys.push(text(&unique));
        }
        let mut out = io::BufWriter::new(out);
        out.write_all(b"[")?;
        Ok(Json { out, keys, is_first: true })
    }
    /// Writes a row.
    pub fn row(&mut self, cells: Vec<Cell>) -> Result<(), Exit> {
        let pairs: Vec<String> = self
            .keys
            .iter()
            .zip(&cells)
            .map(|(key, cell)| format!("{key}: {}", value(cell)))
            .collect();
        let before = if self.is_first { "\n" } else { ",\n" };
        self.is_first = false;
        write!(self.out, "{before}  {{{}}}", pairs.join(", "))?;
        Ok(())
    }
    /// Ends the result.
    pub fn end(mut self) -> Result<(), Exit> {
        self.out.write_all(if self.is_first { b"]\n" } else { b"\n]\n" })?;
        Ok(self.out.flush()?)
    }
}

fn value(cell: &Cell) -> String {
    match cell {
        Cell::Null => "null".to_owned(),
        Cell::Number(digits) => digits.clone(),
        Cell::Bool(b) => b.to_string(),
        Cell::Text(t) => text(t),
        Cell::List(items) => {
            format!("[{}]", items.iter().map(value).collect::<Vec<_>>().join(", "))
        }
    }
}

/// A string in quotes. Characters that JSON allows but that control a terminal are escaped.
fn text(s: &str) -> String {
    let mut out = String::new();
    for c in serde_json::Value::from(s).to_string().chars() {
        match field::is_odd(c) {
            true => c
                .encode_utf16(&mut [0; 2])
                .iter()
                .for_each(|u| out.push_str(&format!("\\u{u:04x}"))),
            false => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_do_not_control_a_terminal() {
        let odd = "a\x1b[2J\u{9b}\"\\\u{202e}\u{e0001}z";
        let made = text(odd);
        assert!(made.chars().all(|c| !field::is_odd(c)), "{made}");
        assert_eq!(serde_json::from_str::<String>(&made).expect("it is JSON"), odd);
    }

    #[test]
    fn names_are_unique() {
        let mut out: Vec<u8> = Vec::new();
        let mut json = Json::begin(&mut out, &["a".to_owned(), "a".to_owned()]).expect("memory");
        json.row(vec![Cell::Null, Cell::List(vec![Cell::Bool(true)])]).expect("memory");
        json.end().expect("memory");
        let value: serde_json::Value = serde_json::from_slice(&out).expect("it is JSON");
        assert_eq!(value, serde_json::json!([{"a": null, "a_1": [true]}]));
    }
}
