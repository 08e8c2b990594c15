//! Lines on standard error. A path in them may come from another user, so control characters are
//! escaped.

use std::io::Write as _;

use taskdiag::field::escape;

/// Writes a line. A write error is ignored.
pub fn say(line: std::fmt::Arguments<'_>) {
    let _ = std::io::stderr().write_all(&escaped(&format!("taskdiagd: {line}")));
}

fn escaped(line: &str) -> Vec<u8> {
    let mut text = Vec::new();
    escape(&mut text, line.as_bytes());
    text.push(b'\n');
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn control_characters_are_escaped() {
        let text = super::escaped("/x\u{1b}[31m\u{9b}1m\n\u{202e}: no");
        let text = String::from_utf8(text).expect("text");
        assert!(text.ends_with(": no\n") && text.starts_with("/x"), "{text:?}");
        let odd = |c: char| c.is_control() || c == '\u{202e}';
        assert!(!text.trim_end().contains(odd), "{text:?}");
    }
}
