//! Reads the words of an expression one by one. A word after a column is read as a value, which may
//! have more kinds of characters than a name.

use std::ops::Range;

/// Reads words.
#[derive(Clone, Debug)]
pub(super) struct Lexer<'t> {
    text: &'t str,
    at: usize,
}

/// A value as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word<'t> {
    pub text: &'t str,
    /// Was it between quotes?
    pub quoted: bool,
    /// Its place, including the quotes.
    pub span: Range<usize>,
}

/// How a value is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    Match,
    NoMatch,
}

/// The operators. Longer operators come first, since some begin with a shorter one.
const OPS: &[(&str, Op)] = &[
    ("==", Op::Eq),
    ("!=", Op::Ne),
    ("<=", Op::Le),
    (">=", Op::Ge),
    ("!~", Op::NoMatch),
    ("<", Op::Lt),
    (">", Op::Gt),
    ("~", Op::Match),
];

/// May this character be in the name of a column? These are letters, digits, and the signs in
/// `%cpu`, `task.rss`, `rss_anon`.
fn in_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '%')
}

/// May this character be in a value without quotes, such as `www-data`, `pts/0`, `kworker/0:1`,
/// `1.5G`, `-20`?
fn in_value(c: char) -> bool {
    in_name(c) || matches!(c, '-' | '/' | ':' | '@' | '+') || !c.is_ascii() && c.is_alphanumeric()
}

/// Is the text one value without quotes, and nothing else?
pub(super) fn is_word(text: &str) -> bool {
    !text.is_empty() && text.chars().all(in_value)
}

impl<'t> Lexer<'t> {
    pub fn new(text: &'t str) -> Lexer<'t> {
        Lexer { text, at: 0 }
    }
    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }
    fn skip_blanks(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }
    fn take(&mut self, len: usize) -> Range<usize> {
        let span = self.at..self.at + len;
        self.at = span.end;
        span
    }
    /// The place of the next word's first character, or of the end.
    pub fn here(&mut self) -> Range<usize> {
        self.skip_blanks();
        let len = self.rest().chars().next().map_or(0, char::len_utf8);
        self.at..self.at + len
    }
    pub fn is_at_end(&mut self) -> bool {
        self.skip_blanks();
        self.rest().is_empty()
    }
    /// Take this sign, if it is next.
    pub fn sign(&mut self, sign: &str) -> Option<Range<usize>> {
        self.skip_blanks();
        self.rest().starts_with(sign).then(|| self.take(sign.len()))
    }
    fn name_len(&self) -> usize {
        self.rest().find(|c| !in_name(c)).unwrap_or(self.rest().len())
    }
    /// Take this word, if it is next.
    pub fn keyword(&mut self, word: &str) -> Option<Range<usize>> {
        self.skip_blanks();
        let len = self.name_len();
        self.rest()[..len].eq_ignore_ascii_case(word).then(|| self.take(len))
    }
    /// Take a name, if one is next.
    pub fn name(&mut self) -> Option<(&'t str, Range<usize>)> {
        self.skip_blanks();
        let len = self.name_len();
        (len > 0).then(|| {
            let span = self.take(len);
            (&self.text[span.clone()], span)
        })
    }
    /// Take an operator, if one is next.
    pub fn op(&mut self) -> Option<(Op, Range<usize>)> {
        self.skip_blanks();
        let (sign, op) = OPS.iter().find(|(sign, _)| self.rest().starts_with(sign))?;
        Some((*op, self.take(sign.len())))
    }
    /// Take a value, if one is next.
    ///
    /// # Errors
    /// The place of a quote that is not closed.
    pub fn value(&mut self) -> Result<Option<Word<'t>>, Range<usize>> {
        self.skip_blanks();
        let rest = self.rest();
        if let Some(quote) = rest.chars().next().filter(|c| matches!(c, '"' | '\'')) {
            let Some(len) = rest[1..].find(quote) else { return Err(self.at..self.at + 1) };
            let span = self.take(len + 2);
            return Ok(Some(Word { text: &rest[1..=len], quoted: true, span }));
        }
        let len = rest.find(|c| !in_value(c)).unwrap_or(rest.len());
        Ok((len > 0).then(|| {
            let span = self.take(len);
            Word { text: &rest[..len], quoted: false, span }
        }))
    }
}
