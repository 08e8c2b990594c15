//! Errors in an expression, with their place.

use std::fmt;
use std::ops::Range;

use crate::field::escape;

/// Why an expression is not accepted. The text has three lines: the error and a hint, the line of
/// the expression, and a mark under the place.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FilterError {
    what: String,
    /// The line of the expression with the error, escaped.
    line: String,
    /// Number of blanks before the mark, and its length.
    mark: (usize, usize),
}

impl FilterError {
    /// `what` at these bytes of `text`.
    pub(super) fn new(text: &str, at: Range<usize>, what: String) -> FilterError {
        let start = text[..at.start].rfind('\n').map_or(0, |n| n + 1);
        let end = text[at.start..].find('\n').map_or(text.len(), |n| at.start + n);
        let shown = |part: &str| {
            let mut out = Vec::new();
            escape(&mut out, part.as_bytes());
            String::from_utf8_lossy(&out).into_owned()
        };
        let width = |part: &str| shown(part).chars().count();
        let mark = (width(&text[start..at.start]), width(&text[at.start..at.end.min(end)]).max(1));
        FilterError { what, line: shown(&text[start..end]), mark }
    }
    /// The lines. They have no unprintable characters.
    pub fn lines(&self) -> [String; 3] {
        let (blanks, marks) = self.mark;
        [
            self.what.clone(),
            format!("  {}", self.line),
            format!("  {}{}", " ".repeat(blanks), "^".repeat(marks)),
        ]
    }
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.lines().join("\n"))
    }
}

impl std::error::Error for FilterError {}
