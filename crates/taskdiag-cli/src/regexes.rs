//! Regular expressions over names and arguments, which are bytes and need not be UTF-8. Classes such as `\w` are of ASCII.

use regex::bytes::{Regex, RegexBuilder};

/// A regular expression may take this much memory, in bytes.
const SIZE: usize = 1 << 20;

/// A regular expression.
///
/// # Errors
/// What is wrong with it, in one line.
pub fn compile(text: &str, ignore_case: bool) -> Result<Regex, String> {
    let mut builder = RegexBuilder::new(text);
    builder.unicode(false).case_insensitive(ignore_case).size_limit(SIZE).build().map_err(|e| {
        // The library's message has several lines. The last one says what is wrong, and those above it draw the place.
        let e = e.to_string();
        let why = e.lines().last().unwrap_or_default().trim_start_matches("error: ");
        format!("the regular expression '{text}' is wrong: {why}")
    })
}
