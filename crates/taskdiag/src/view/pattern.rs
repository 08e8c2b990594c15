//! Regular expressions over names and arguments, with the syntax and semantics of Go's `regexp`
//! (RE2).
//!
//! Names are bytes and may be invalid UTF-8. As in Go, a character is a code point, and each
//! invalid byte matches like U+FFFD. The classes `\w`, `\d` and `\s` and the boundary `\b` are
//! ASCII; `(?i)` and `\p{...}` cover all of Unicode. The regex crate has a similar engine with a
//! slightly different syntax, so an expression is translated.

use std::borrow::Cow;

use regex::bytes::{Regex, RegexBuilder};

/// An expression may take this much memory, in bytes.
const SIZE: usize = 4 << 20;
/// The longest character, in bytes. A condition such as `$` and `\b` looks at one character after a
/// match.
const CHAR: usize = 4;
/// The replacement for an invalid byte, which counts as one character, as in Go.
const REPLACED: &[u8] = "\u{fffd}".as_bytes();

/// A regular expression.
#[derive(Clone, Debug)]
pub struct Pattern(Regex);

impl Pattern {
    /// Reads an expression.
    ///
    /// # Errors
    /// What is wrong with it, in one line.
    pub fn new(text: &str, ignore_case: bool) -> Result<Pattern, String> {
        let translated = translate(text);
        let mut builder = RegexBuilder::new(&translated);
        builder.case_insensitive(ignore_case).octal(true).size_limit(SIZE);
        builder.build().map(Pattern).map_err(|e| match &e {
            regex::Error::CompiledTooBig(_) => String::from("it takes too much memory"),
            // The last line is the error. The lines above it draw the place.
            e => {
                let text = e.to_string();
                text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned()
            }
        })
    }
    /// Does a part of the text match?
    pub fn is_match(&self, text: &[u8]) -> bool {
        self.0.is_match(&characters(text))
    }
    /// Does a part of this prefix of a text match, independent of what follows?
    pub fn matches_beginning(&self, text: &[u8]) -> bool {
        // The last character may have been cut.
        let whole = match text.utf8_chunks().last() {
            Some(last) => &text[..text.len() - last.invalid().len()],
            None => text,
        };
        let text = characters(whole);
        self.0.shortest_match(&text).is_some_and(|end| end + CHAR <= text.len())
    }
    /// The named groups of the first match, with the parts of the text that they match. One without
    /// a part is empty.
    pub fn captures(&self, text: &[u8]) -> Option<Vec<(&str, Vec<u8>)>> {
        let changed = characters(text);
        let found = self.0.captures(&changed)?;
        let names = self.0.capture_names().zip(found.iter());
        let named = names.filter_map(|(name, part)| {
            let part = part.map_or(0..0, |part| part.range());
            let bytes = match &changed {
                Cow::Borrowed(text) => text[part].to_vec(),
                Cow::Owned(_) => text[place(text, part.start)..place(text, part.end)].to_vec(),
            };
            Some((name?, bytes))
        });
        Some(named.collect())
    }
}

/// The text with U+FFFD in place of each invalid byte.
fn characters(text: &[u8]) -> Cow<'_, [u8]> {
    if std::str::from_utf8(text).is_ok() {
        return Cow::Borrowed(text);
    }
    let mut out = Vec::with_capacity(text.len() + 16);
    for chunk in text.utf8_chunks() {
        out.extend_from_slice(chunk.valid().as_bytes());
        chunk.invalid().iter().for_each(|_| out.extend_from_slice(REPLACED));
    }
    Cow::Owned(out)
}

/// Translates an offset in [`characters`] to an offset in the text.
fn place(text: &[u8], changed: usize) -> usize {
    let (mut before, mut left) = (0, changed);
    for chunk in text.utf8_chunks() {
        let (valid, invalid) = (chunk.valid().len(), chunk.invalid().len());
        if left <= valid {
            return before + left;
        }
        left -= valid;
        if left <= invalid * REPLACED.len() {
            return before + valid + left / REPLACED.len();
        }
        left -= invalid * REPLACED.len();
        before += valid + invalid;
    }
    before
}

/// Translates an expression of Go to the syntax of the regex crate, which reports errors.
fn translate(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let tail = &rest[c.len_utf8()..];
        rest = match c {
            '\\' => escape(tail, false, &mut out),
            '[' => class(tail, &mut out),
            // A brace that is not a repetition is a character.
            '{' if !is_repetition(tail) => {
                out.push_str("\\{");
                tail
            }
            _ => {
                out.push(c);
                tail
            }
        };
    }
    out
}

/// Is it `n}`, `n,}` or `n,m}`?
fn is_repetition(tail: &str) -> bool {
    let is_number = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    tail.split_once('}').is_some_and(|(inside, _)| match inside.split_once(',') {
        None => is_number(inside),
        Some((least, most)) => is_number(least) && (most.is_empty() || is_number(most)),
    })
}

/// Translates what follows a backslash, and returns what follows that.
fn escape<'a>(tail: &'a str, in_class: bool, out: &mut String) -> &'a str {
    let Some(c) = tail.chars().next() else {
        out.push('\\');
        return tail;
    };
    let after = &tail[c.len_utf8()..];
    match c {
        // These classes are ASCII in Go, and their negations match whole characters.
        'd' => out.push_str("[0-9]"),
        'D' => out.push_str("[^0-9]"),
        's' => out.push_str("[\\t\\n\\x0C\\r ]"),
        'S' => out.push_str("[^\\t\\n\\x0C\\r ]"),
        'w' => out.push_str("[0-9A-Za-z_]"),
        'W' => out.push_str("[^0-9A-Za-z_]"),
        'b' if !in_class => out.push_str("(?-u:\\b)"),
        'B' if !in_class => out.push_str("(?-u:\\B)"),
        // Other languages use these for the ends of words.
        '<' | '>' => out.push(c),
        'Q' if !in_class => {
            let (literal, after) = after.split_once("\\E").unwrap_or((after, ""));
            out.push_str(&regex::escape(literal));
            return after;
        }
        'E' if !in_class => {}
        'p' | 'P' if after.starts_with("{^") => {
            out.push_str(if c == 'p' { "\\P{" } else { "\\p{" });
            return &after[2..];
        }
        _ => {
            out.push('\\');
            out.push(c);
            // The braces of \p{...} and \x{...} are not repetitions.
            if matches!(c, 'p' | 'P' | 'x') && after.starts_with('{') {
                let end = after.find('}').map_or(after.len(), |at| at + 1);
                out.push_str(&after[..end]);
                return &after[end..];
            }
        }
    }
    after
}

/// Translates a class of characters after its bracket, and returns what follows it.
fn class<'a>(tail: &'a str, out: &mut String) -> &'a str {
    out.push('[');
    let mut rest = tail;
    if let Some(after) = rest.strip_prefix('^') {
        out.push('^');
        rest = after;
    }
    // A bracket at the beginning is a character.
    if let Some(after) = rest.strip_prefix(']') {
        out.push_str("\\]");
        rest = after;
    }
    let begin = rest.len();
    while let Some(c) = rest.chars().next() {
        let is_first = rest.len() == begin;
        let after = &rest[c.len_utf8()..];
        rest = match c {
            ']' => {
                out.push(']');
                return after;
            }
            '\\' => escape(after, true, out),
            // [:alpha:] and similar classes, which are ASCII in both.
            '[' if after.starts_with(':') && after.contains(":]") => {
                let end = after.find(":]").map_or(0, |at| at + 2);
                out.push('[');
                out.push_str(&after[..end]);
                &after[end..]
            }
            // The regex crate has nested classes and intersections; Go does not.
            '[' | '&' | '~' => {
                out.extend(['\\', c]);
                after
            }
            // Two hyphens mean a difference there. In Go, they are a range that starts or ends with
            // a hyphen.
            '-' if after.starts_with('-') && is_first => {
                out.push_str("\\-");
                after
            }
            '-' if after.starts_with('-') => {
                out.push_str("-\\-");
                &after[1..]
            }
            _ => {
                out.push(c);
                after
            }
        };
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> Pattern {
        Pattern::new(text, false).unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    /// Expression, text, and the match of the group `n` in Go. `-`: nothing matches.
    const NAMES: &[(&str, &str, &str)] = &[
        ("job=(?P<n>m.ller)", "job=müller-straße-æ", "müller"),
        ("(?i)job=(?P<n>MÜLLER)", "job=müller-straße-æ", "müller"),
        ("job=(?P<n>m[ü]ller)", "job=müller-straße-æ", "müller"),
        ("(?P<n>m[^a-z]ller)", "müller", "müller"),
        ("^(?P<n>..)$", "日本", "日本"),
        ("(?P<n>[一-龥]+)", "job 采集进程 7", "采集进程"),
        (r"(?P<n>\p{Han}+)", "x-采集-y", "采集"),
        (r"(?P<n>\p{Cyrillic}{3})", "ab-почта", "поч"),
        ("(?i)(?P<n>ПОЧТА)", "почта", "почта"),
        ("(?i)(?P<n>ΣΊΣΥΦΟΣ)", "σίσυφος", "σίσυφος"),
        (r"(?P<n>\pL+)", "--żółć--", "żółć"),
        (r"(?P<n>\p{^L}+)", "ab12cd", "12"),
        (r"(?P<n>\P{^L}+)", "12ab", "ab"),
        ("(?P<n>.{4})", "समय है", "समय "),
        ("(?P<n>[ก-๙]+)", "x ทดสอบ y", "ทดสอบ"),
        ("(?P<n>[א-ת]+)", "a שלום b", "שלום"),
        ("(?P<n>ا.ع)", "xا-عx", "ا-ع"),
        (r"(?P<n>\w+)", "ümlaut", "mlaut"),
        (r"(?P<n>\W)", "ü", "ü"),
        (r"(?P<n>\d+)", "٣42", "42"),
        (r"\b(?P<n>lle)", "mülle", "lle"),
        (r"(?P<n>[\w.]+)", "-a.b_c-", "a.b_c"),
        (r"(?P<n>[^\s]+)", "  né x", "né"),
        ("(?i)(?P<n>k+)", "K\u{212a}", "K\u{212a}"),
        (r"(?P<n>\Qa.b[\E+)", "a.b[[", "a.b[["),
        ("(?P<n>a{,2})", "a{,2}", "a{,2}"),
        ("(?P<n>{x})", "{x}", "{x}"),
        ("(?P<n>a{2,3})", "aaaa", "aaa"),
        ("(?P<n>[[a&&b]+)", "[&ab", "[&ab"),
        ("(?P<n>[+--]+)", "+,-.", "+,-"),
        ("(?P<n>[--/]+)", "+-./0", "-./"),
        (r"(?P<n>\<x\>)", "<x>", "<x>"),
        (r"(?P<n>[]x]+)", "]x", "]x"),
        (r"(?P<n>[[:alpha:]]+)", "é12ab", "ab"),
        (r"(?P<n>\x{fc}|\x41)", "ü", "ü"),
        (r"(?P<n>\101)", "A", "A"),
        ("(?P<n>.)$", "a\nb", "b"),
        ("^(?P<n>a.)", "a\n", "-"),
        ("(?P<n>x*)b", "b", ""),
    ];

    #[test]
    fn expressions_mean_what_they_mean_in_go() {
        for (text, name, want) in NAMES {
            let pattern = pattern(text);
            let found = pattern.captures(name.as_bytes());
            let found = found.map(|all| String::from_utf8(all[0].1.clone()).expect("text"));
            assert_eq!(found.as_deref().unwrap_or("-"), *want, "{text} in {name}");
        }
    }

    #[test]
    fn a_byte_that_is_no_character_is_one_place() {
        let of = |text: &str, name: &[u8]| pattern(text).captures(name).map(|all| all[0].1.clone());
        // A name that was cut inside a character.
        assert_eq!(of("^(?P<n>..)$", b"a\xe9"), Some(b"a\xe9".to_vec()));
        assert_eq!(of("^a(?P<n>..)$", b"a\xe9\x9b"), Some(b"\xe9\x9b".to_vec()));
        assert_eq!(
            of("(?P<n>[^a-z]+)b", b"a\xff\xfe\xc3\xbcb"),
            Some(b"\xff\xfe\xc3\xbc".to_vec())
        );
        assert_eq!(of("\u{fffd}(?P<n>b)", b"a\xffb"), Some(b"b".to_vec()));
        assert_eq!(of("(?P<n>ü)$", b"\xff\xff\xc3\xbc"), Some("ü".into()));
        assert_eq!(of("(?P<n>)", b"\xff"), Some(Vec::new()));
        // All texts of four of these bytes, against all places.
        let bytes = [b'a', 0xc3, 0xbc, 0xff, 0xe9];
        let three = pattern("^(?P<a>.*?)(?P<b>.)(?P<c>.*)$");
        for n in 0..5usize.pow(4) {
            let text: Vec<u8> = (0..4).map(|i| bytes[n / 5usize.pow(i) % 5]).collect();
            let parts = three.captures(&text).expect("it matches");
            let all: Vec<u8> = parts.iter().flat_map(|(_, part)| part.clone()).collect();
            assert_eq!(all, text);
        }
    }

    #[test]
    fn a_text_that_was_cut_matches_only_before_its_end() {
        assert!(pattern("ü").matches_beginning("aü-abcd".as_bytes()));
        assert!(!pattern("^.*$").matches_beginning("aü-abcd".as_bytes()));
        assert!(!pattern("[^a]").matches_beginning(b"aaaaaa\xe9\x9b"));
        assert!(!pattern("a").matches_beginning(b""));
    }

    #[test]
    fn errors_in_a_pattern_are_one_line() {
        for (text, want) in [
            ("(", "unclosed group"),
            ("[a", "unclosed character class"),
            (r"\p{Nonsense}", "Unicode property not found"),
            ("a{1000}{1000}", "too much memory"),
            ("(?=a)", "look-around"),
            (r"\", "incomplete escape"),
        ] {
            let why = Pattern::new(text, false).expect_err(text);
            assert!(why.contains(want) && !why.contains('\n'), "{text}: {why}");
        }
        assert!(Pattern::new("ü{100}.{500}", true).is_ok());
    }
}
