//! Regular expressions over names and arguments, with the syntax and semantics of Go's `regexp`
//! (RE2).
//!
//! Names are bytes and may be invalid UTF-8. As in Go, a character is a code point, and each
//! invalid byte matches like U+FFFD. The classes `\w`, `\d` and `\s` and the boundary `\b` are
//! ASCII; `(?i)` and `\p{...}` cover all of Unicode. The regex crate has a similar engine with a
//! slightly different syntax, so an expression is translated.

use std::borrow::Cow;

use regex::{Regex, RegexBuilder};

/// An expression may take this much memory, in bytes.
const SIZE: usize = 4 << 20;
/// The longest character, in bytes. A condition such as `$` and `\b` looks at one character after a
/// match.
const CHAR: usize = 4;
/// The replacement for an invalid byte, which counts as one character, as in Go.
const REPLACED: char = '\u{fffd}';

/// The classes of characters that have a name in brackets.
const POSIX: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct",
    "space", "upper", "word", "xdigit",
];
/// How often a repetition may repeat, as in Go.
const REPEATS: u32 = 1000;

/// A regular expression.
#[derive(Clone, Debug)]
pub struct Pattern {
    regex: Regex,
    /// The names of groups, each with its number. Go allows names that the regex crate refuses, and
    /// two groups of one name.
    names: Vec<(usize, String)>,
}

impl Pattern {
    /// Reads an expression.
    ///
    /// # Errors
    /// What is wrong with it, in one line.
    pub fn new(text: &str, ignore_case: bool) -> Result<Pattern, String> {
        let Translated { out, names, .. } = translate(text)?;
        let mut builder = RegexBuilder::new(&out);
        builder.case_insensitive(ignore_case).octal(true).size_limit(SIZE);
        builder.build().map(|regex| Pattern { regex, names }).map_err(|e| match &e {
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
        self.regex.is_match(&characters(text))
    }
    /// Does a part of this prefix of a text match, independent of what follows?
    pub fn matches_beginning(&self, text: &[u8]) -> bool {
        // The last character may have been cut.
        let whole = match text.utf8_chunks().last() {
            Some(last) => &text[..text.len() - last.invalid().len()],
            None => text,
        };
        let text = characters(whole);
        self.regex.shortest_match(&text).is_some_and(|end| end + CHAR <= text.len())
    }
    /// The named groups of the first match, with the parts of the text that they match. A group of
    /// flags without a part is empty.
    pub fn captures(&self, text: &[u8]) -> Option<Vec<(&str, Vec<u8>)>> {
        let changed = characters(text);
        let found = self.regex.captures(&changed)?;
        let named = self.names.iter().map(|(number, name)| {
            let part = found.get(*number).map_or(0..0, |part| part.range());
            let bytes = match &changed {
                Cow::Borrowed(text) => text[part].into(),
                Cow::Owned(_) => text[place(text, part.start)..place(text, part.end)].to_vec(),
            };
            (name.as_str(), bytes)
        });
        Some(named.collect())
    }
}

/// The text with U+FFFD in place of each invalid byte.
fn characters(text: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(text) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for chunk in text.utf8_chunks() {
        out.push_str(chunk.valid());
        chunk.invalid().iter().for_each(|_| out.push(REPLACED));
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
        if left <= invalid * REPLACED.len_utf8() {
            return before + valid + left / REPLACED.len_utf8();
        }
        left -= invalid * REPLACED.len_utf8();
        before += valid + invalid;
    }
    before
}

/// An expression in the syntax of the regex crate.
#[derive(Debug, Default)]
struct Translated {
    out: String,
    names: Vec<(usize, String)>,
    groups: usize,
}

/// Translates an expression of Go to the syntax of the regex crate, which reports most errors.
fn translate(text: &str) -> Result<Translated, String> {
    let mut to = Translated { out: String::with_capacity(text.len() + 16), ..Default::default() };
    let (mut rest, mut is_repeated) = (text, false);
    while let Some(c) = rest.chars().next() {
        let tail = &rest[c.len_utf8()..];
        let repeats = matches!(c, '*' | '+' | '?') || c == '{' && is_repetition(tail);
        if repeats && is_repeated {
            return Err(format!("nested repetition operator: {c}"));
        }
        is_repeated = repeats;
        rest = match c {
            '\\' => escape(tail, false, &mut to.out),
            '[' => class(tail, &mut to.out)?,
            '(' => group(tail, &mut to)?,
            '*' | '+' | '?' | '{' if repeats => {
                let end = if c == '{' { tail.find('}').map_or(0, |at| at + 1) } else { 0 };
                let counts =
                    tail[..end].split(|c: char| !c.is_ascii_digit()).filter(|n| !n.is_empty());
                if counts
                    .into_iter()
                    .any(|n| n.parse().is_ok_and(|n: u32| n > REPEATS) || n.len() > 9)
                {
                    return Err(format!("a repetition repeats at most {REPEATS} times"));
                }
                to.out.push(c);
                to.out.push_str(&tail[..end]);
                let tail = &tail[end..];
                // It prefers fewer.
                match tail.strip_prefix('?') {
                    Some(after) => {
                        to.out.push('?');
                        after
                    }
                    None => tail,
                }
            }
            // A brace that is not a repetition is a character.
            '{' => {
                to.out.push_str("\\{");
                tail
            }
            _ => {
                to.out.push(c);
                tail
            }
        };
    }
    Ok(to)
}

/// Translates the start of a group after its opening parenthesis, and returns the rest of the
/// pattern.
fn group<'a>(tail: &'a str, to: &mut Translated) -> Result<&'a str, String> {
    let Some(kind) = tail.strip_prefix('?') else {
        to.groups += 1;
        to.out.push('(');
        return Ok(tail);
    };
    let named = kind.strip_prefix("P<").or(kind.strip_prefix('<'));
    if let Some((name, after)) = named.and_then(|n| n.split_once('>')) {
        let is_word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
        if !name.is_empty() && name.bytes().all(is_word) {
            to.groups += 1;
            to.names.push((to.groups, name.to_owned()));
            // The regex crate would read `(?` as something else.
            to.out.push_str(&format!("(?P<g{}>", to.groups));
            return Ok(after);
        }
        // `(?<=` and `(?<!` get the error about look-around below.
        if !name.starts_with(['=', '!']) {
            return Err(format!("a group has letters, digits and _ in its name, not {name}"));
        }
    }
    let end = kind.find([':', ')']).unwrap_or(kind.len());
    let (set, clear) = kind[..end].split_once('-').unwrap_or((&kind[..end], ""));
    let is_flag = |c: char| "imsU".contains(c);
    if !kind[..end].chars().all(|c| is_flag(c) || c == '-') {
        // The regex crate reports all other errors, but it accepts flags that Go does not have.
        let flags = kind[..end].chars().all(|c| c.is_ascii_alphabetic() || c == '-');
        return match flags {
            true => Err(format!("unknown flags: {}", &kind[..end])),
            false => {
                to.out.push('(');
                Ok(tail)
            }
        };
    }
    if kind[..end].contains('-') && clear.is_empty() || clear.contains('-') {
        return Err(String::from("a hyphen without flags after it"));
    }
    let once = |flags: &str, not: &str| -> String {
        "imsU".chars().filter(|c| flags.contains(*c) && !not.contains(*c)).collect()
    };
    let (set, clear) = (once(set, clear), once(clear, ""));
    let after = &kind[end..];
    if set.is_empty() && clear.is_empty() && after.starts_with(')') {
        // Flags that change nothing.
        to.out.push_str("(?u)");
        return Ok(&after[1..]);
    }
    to.out.push_str("(?");
    to.out.push_str(&set);
    if !clear.is_empty() {
        to.out.push('-');
        to.out.push_str(&clear);
    }
    Ok(after)
}

/// Is it `n}`, `n,}` or `n,m}`?
fn is_repetition(tail: &str) -> bool {
    let is_number = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    tail.split_once('}').is_some_and(|(inside, _)| match inside.split_once(',') {
        None => is_number(inside),
        Some((least, most)) => is_number(least) && (most.is_empty() || is_number(most)),
    })
}

/// Translates an escape after its backslash, and returns the rest of the pattern.
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
        // A single digit would be a reference to a group.
        '1'..='7' if !after.starts_with(|c: char| ('0'..='7').contains(&c)) => {
            out.push_str("\\8");
        }
        // Go has no such escape.
        'u' => out.push_str("\\8"),
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
            // A property of one letter.
            if let ('p' | 'P', Some(letter)) = (c, after.chars().next()) {
                out.push(letter);
                return &after[letter.len_utf8()..];
            }
        }
    }
    after
}

/// Translates a class of characters after its bracket, and returns the rest of the pattern.
fn class<'a>(tail: &'a str, out: &mut String) -> Result<&'a str, String> {
    out.push('[');
    let mut rest = tail;
    if let Some(after) = rest.strip_prefix('^') {
        out.push('^');
        rest = after;
    }
    // A bracket at the beginning is a character.
    let (begin, mut may_begin_range) = (rest.len(), false);
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        let is_range = c == '-' && may_begin_range && !after.starts_with(']');
        let escaped = after.strip_prefix('\\').and_then(|e| e.chars().next());
        may_begin_range = !is_range;
        rest = match c {
            ']' if rest.len() != begin => {
                out.push(']');
                return Ok(after);
            }
            '-' if is_range => {
                out.push('-');
                let end = after.chars().next().unwrap_or('-');
                match end {
                    '\\' if escaped.is_some_and(|e| "dDsSwWpP".contains(e)) => {
                        return Err(String::from("a range ends with a class of characters"));
                    }
                    '\\' => escape(&after[1..], true, out),
                    _ => {
                        push_character(end, out);
                        after.get(end.len_utf8()..).unwrap_or_default()
                    }
                }
            }
            '\\' => {
                let is_class = after.starts_with(|c| "dDsSwWpP".contains(c));
                may_begin_range = !is_class;
                escape(after, true, out)
            }
            // [:alpha:] and similar classes, which are ASCII in both.
            '[' if after.starts_with(':') && after.contains(":]") => {
                let end = after.find(":]").map_or(0, |at| at + 2);
                let name = after[1..end - 2].trim_start_matches('^');
                if !POSIX.contains(&name) {
                    return Err(format!("there is no class of characters [:{name}:]"));
                }
                may_begin_range = false;
                out.push('[');
                out.push_str(&after[..end]);
                &after[end..]
            }
            _ => {
                push_character(c, out);
                after
            }
        };
    }
    Ok(rest)
}

/// Adds a character of a class. The regex crate has nested classes, intersections and differences;
/// Go does not.
fn push_character(c: char, out: &mut String) {
    if matches!(c, '[' | ']' | '&' | '~' | '-' | '^') {
        out.push('\\');
    }
    out.push(c);
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
        (r"(?P<n>x*\B)", "Aüa", "-"),
        (r"(?P<n>[\pN--a]+)", "x7-A", "7-A"),
        (r"(?P<n>[[:alpha:]]+)", "é12ab", "ab"),
        (r"(?P<n>\x{fc}|\x41)", "ü", "ü"),
        (r"(?P<n>\101)", "A", "A"),
        ("(?P<n>.)$", "a\nb", "b"),
        ("^(?P<n>a.)", "a\n", "-"),
        ("(?P<n>x*)b", "b", ""),
    ];

    #[test]
    fn expressions_mean_the_same_as_in_go() {
        for (text, name, want) in NAMES {
            let pattern = pattern(text);
            let found = pattern.captures(name.as_bytes());
            let found = found.map(|all| String::from_utf8(all[0].1.clone()).expect("text"));
            assert_eq!(found.as_deref().unwrap_or("-"), *want, "{text} in {name}");
        }
    }

    /// The patterns that Go 1.26 accepts, separated by blanks. The patterns that it refuses follow.
    const ACCEPTED: &str = r"(?P<n>a)(?P<n>b) (?P<1a>x) (?) (?ii)a \12 (?i-i)a (?<n>x) (|a)* ^* $+ \b* (?:a*)* x{2}? x{,3} \
        [[:word:]] \pN \z \A \a \v \- \_ ] } a{2 () (?P<a>) (?s). (?U)a+ \Q (?i:a) (?im-s:a) (?<1>a) a{1000} a?? a+?";
    const REFUSED: &str = r"a** a+?* a{2}{3} a{1001} \1 \8 (?x)a (?u)a (?-)a (?i-)a (?i)* a|* (*) x{2}?? x*+ [[:foo:]] \C \Z \e \é \
        (?P<é>x) (?P<a.b>x) \x{110000} \x4 [z-a] \h \R \N \G \K \u0041 \cA [\b] [\B] [a-\d] \E (?P<n>?x) ((?)?:x) (?P=n) (?#c) (?>a) (?P<n>a)\k<n>";

    #[test]
    fn expressions_that_go_refuses_are_errors() {
        let each = |all: &'static str| all.split_whitespace().filter(|text| *text != "\\");
        for text in each(ACCEPTED) {
            assert!(Pattern::new(text, false).is_ok(), "{text}: {:?}", Pattern::new(text, false));
        }
        for text in each(REFUSED) {
            assert!(Pattern::new(text, false).is_err(), "{text}");
        }
        let both = pattern("(?P<1>a)|(?P<n>b)(?P<n>c)");
        let all = both.captures(b"bc").expect("it matches");
        let all: Vec<_> = all.iter().map(|(name, part)| (*name, part.as_slice())).collect();
        assert_eq!(all, [("1", &b""[..]), ("n", b"b"), ("n", b"c")]);
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
            ("(a{1000}){1000}", "too much memory"),
            ("a**", "nested repetition"),
            ("a{1001}", "at most 1000 times"),
            ("(?x)a", "unknown flags: x"),
            ("(?i-)a", "hyphen"),
            ("(?=a)", "look-around"),
            (r"\", "incomplete escape"),
        ] {
            let why = Pattern::new(text, false).expect_err(text);
            assert!(why.contains(want) && !why.contains('\n'), "{text}: {why}");
        }
        assert!(Pattern::new("ü{100}.{500}", true).is_ok());
    }
}
