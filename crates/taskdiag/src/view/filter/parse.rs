//! Parses text into a checked expression.
//!
//! ```text
//! expression = conjunction { "or" conjunction }
//! conjunction = negation { "and" negation }
//! negation = "not" negation | "(" expression ")" | test
//! test = column [ operator value | ["not"] list | "missing" | "known" ]
//! list = "in" "(" value { "," value } ")"
//! ```

use std::cmp::Ordering;
use std::ops::Range;

use super::Expr;
use super::error::FilterError;
use super::eval::{How, Test, TextLiteral};
use super::lex::{Lexer, Op, Word};
use super::literal;
use crate::field::{DataType, Field, LACKING, PROCS, Set, nearest};
use crate::view::Pattern;

/// Parentheses and negations may be nested this deep. The limit is there because each level takes
/// stack.
const DEPTH: usize = 100;

pub(super) fn parse(set: &'static Set, text: &str) -> Result<Expr, FilterError> {
    let mut parser = Parser { set, text, lexer: Lexer::new(text), depth: 0 };
    if parser.lexer.is_at_end() {
        return parser.wrong(0..0, "the expression is empty: write one such as 'rss > 1G'");
    }
    let expr = parser.expression()?;
    if parser.lexer.is_at_end() {
        return Ok(expr);
    }
    let here = parser.lexer.here();
    match &text[here.clone()] {
        ")" => parser.wrong(here, "there is no '(' for this ')': remove it"),
        _ => parser.wrong(here, "'and' or 'or' must stand before this"),
    }
}

struct Parser<'t> {
    set: &'static Set,
    text: &'t str,
    lexer: Lexer<'t>,
    depth: usize,
}

type Parsed<T> = Result<T, FilterError>;

impl<'t> Parser<'t> {
    fn wrong<T>(&self, at: Range<usize>, what: impl Into<String>) -> Parsed<T> {
        Err(FilterError::new(self.text, at, what.into()))
    }
    fn expression(&mut self) -> Parsed<Expr> {
        let mut some = vec![self.conjunction()?];
        while self.lexer.keyword("or").or_else(|| self.lexer.sign("||")).is_some() {
            some.push(self.conjunction()?);
        }
        Ok(single(some, Expr::Or))
    }
    fn conjunction(&mut self) -> Parsed<Expr> {
        let mut all = vec![self.negation()?];
        while self.lexer.keyword("and").or_else(|| self.lexer.sign("&&")).is_some() {
            all.push(self.negation()?);
        }
        Ok(single(all, Expr::And))
    }
    fn negation(&mut self) -> Parsed<Expr> {
        if let Some(at) = self.lexer.keyword("not").or_else(|| self.lexer.sign("!")) {
            self.deeper(&at)?;
            let expr = self.negation()?;
            self.depth -= 1;
            return Ok(Expr::Not(Box::new(expr)));
        }
        let Some(open) = self.lexer.sign("(") else { return self.test() };
        self.deeper(&open)?;
        let expr = self.expression()?;
        self.depth -= 1;
        if self.lexer.sign(")").is_none() {
            let here = self.lexer.here();
            return match self.lexer.is_at_end() {
                true => self.wrong(open, "the ')' for this '(' is missing"),
                false => self.wrong(here, "'and', 'or' or ')' must stand before this"),
            };
        }
        Ok(expr)
    }
    fn deeper(&mut self, at: &Range<usize>) -> Parsed<()> {
        self.depth += 1;
        match self.depth > DEPTH {
            true => self.wrong(
                at.clone(),
                format!("more than {DEPTH} parentheses and 'not' are inside each other: use fewer"),
            ),
            false => Ok(()),
        }
    }
    fn test(&mut self) -> Parsed<Expr> {
        let Some((name, at)) = self.lexer.name() else {
            let here = self.lexer.here();
            return self.wrong(here, "a column must stand here, as in 'rss > 1G'");
        };
        let field = self.column(name, &at)?;
        let test = |how| Expr::Test(Test { field, how });
        let not = |e| Expr::Not(Box::new(e));
        if self.lexer.keyword("missing").is_some() {
            return Ok(test(How::Missing));
        }
        if self.lexer.keyword("known").is_some() {
            return Ok(not(test(How::Missing)));
        }
        let before = self.lexer.clone();
        let negated = self.lexer.keyword("not").is_some();
        if self.lexer.keyword("in").is_some() {
            let list = test(self.list(field)?);
            return Ok(if negated { not(list) } else { list });
        }
        self.lexer = before;
        let Some((op, sign)) = self.lexer.op() else {
            if field.data_type() == DataType::Bool {
                return Ok(test(How::True));
            }
            if let Some(sign) = self.lexer.sign("=") {
                return self.wrong(sign, "equality is written '=='");
            }
            return self.wrong(at, format!("'{name}' is {}: {}", is(field), example(field, name)));
        };
        let Some(word) = self.value()? else {
            let here = self.lexer.here();
            return self.wrong(here, format!("a value must stand here: {}", example(field, name)));
        };
        let (how, opposite) = self.how(field, name, op, &sign, &word)?;
        Ok(if opposite { not(test(how)) } else { test(how) })
    }
    fn column(&self, name: &str, at: &Range<usize>) -> Parsed<&'static Field> {
        let found = self.set.find(name).or_else(|| self.set.find(&name.to_lowercase()));
        let Some(named) = found else {
            if let Some(meant) = self.set.meant(&name.to_lowercase()) {
                return self
                    .wrong(at.clone(), format!("there is no column '{name}' here: {meant}"));
            }
            if let Some(other) = self.set.elsewhere(name) {
                return self.wrong(
                    at.clone(),
                    format!(
                        "'{name}' is a column of 'taskdiag {}', not of {} here",
                        other.command(),
                        self.set.name
                    ),
                );
            }
            let near = nearest(name, self.set.all_names().map(|n| n.name));
            let near = near.map_or(String::new(), |n| format!(" (did you mean '{n}'?)"));
            return self.wrong(
                at.clone(),
                format!("there is no column '{name}'{near}; 'taskdiag fields' lists them"),
            );
        };
        if [PROCS, LACKING].contains(&named.field.name) {
            return self.wrong(
                at.clone(),
                format!(
                    "'{name}' is known only after rows are added up, and rows are chosen before that"
                ),
            );
        }
        Ok(named.field)
    }
    fn value(&mut self) -> Parsed<Option<Word<'t>>> {
        let before = self.lexer.clone();
        match self.lexer.value() {
            Ok(Some(w)) if !w.quoted && is_keyword(w.text) => {
                self.lexer = before;
                Ok(None)
            }
            Ok(word) => Ok(word),
            Err(at) => self.wrong(at, "the quote that ends this text is missing"),
        }
    }
    /// The list `(a, b)` after `in`.
    fn list(&mut self, field: &'static Field) -> Parsed<How> {
        if self.lexer.sign("(").is_none() {
            let here = self.lexer.here();
            return self.wrong(here, "a list must stand here, as in 'user in (root, www-data)'");
        }
        let mut words = Vec::new();
        loop {
            let Some(word) = self.value()? else {
                let here = self.lexer.here();
                return self.wrong(here, "a value of the list must stand here");
            };
            words.push(word);
            if self.lexer.sign(",").is_some() {
                continue;
            }
            if self.lexer.sign(")").is_some() {
                break;
            }
            let here = self.lexer.here();
            return self.wrong(here, "',' or ')' must stand here");
        }
        match field.data_type() {
            DataType::Text | DataType::TextList => {
                let texts = words.iter().map(|w| self.literal_text(field, w));
                Ok(How::Texts(texts.collect::<Parsed<_>>()?))
            }
            DataType::Bool => {
                let at = words[0].span.clone();
                self.wrong(at, format!("'{}' is true or false: write its name alone", field.name))
            }
            _ => {
                let numbers = words.iter().map(|w| self.literal_number(field, w));
                Ok(How::Numbers(numbers.collect::<Parsed<_>>()?))
            }
        }
    }
    /// The test, and whether its opposite must be true.
    fn how(
        &self,
        field: &'static Field,
        name: &str,
        op: Op,
        sign: &Range<usize>,
        word: &Word<'_>,
    ) -> Parsed<(How, bool)> {
        let opposite = matches!(op, Op::Ne | Op::NoMatch);
        let is_text = matches!(field.data_type(), DataType::Text | DataType::TextList);
        match op {
            Op::Match | Op::NoMatch if is_text => Ok((How::Match(self.regex(word)?), opposite)),
            Op::Eq | Op::Ne if is_text => {
                Ok((How::Texts(vec![self.literal_text(field, word)?]), opposite))
            }
            Op::Eq | Op::Ne if field.data_type() == DataType::Bool => match word.text {
                "true" => Ok((How::True, opposite)),
                "false" => Ok((How::True, !opposite)),
                _ => self.wrong(word.span.clone(), format!("'{name}' is true or false")),
            },
            Op::Match | Op::NoMatch => self.wrong(
                sign.clone(),
                format!(
                    "'{name}' is {}, and only text has matches: {}",
                    is(field),
                    example(field, name)
                ),
            ),
            _ if is_text || field.data_type() == DataType::Bool => self.wrong(
                sign.clone(),
                format!("'{name}' is {}, which has no order: {}", is(field), example(field, name)),
            ),
            _ => {
                let is: fn(Ordering) -> bool = match op {
                    Op::Lt => Ordering::is_lt,
                    Op::Le => Ordering::is_le,
                    Op::Gt => Ordering::is_gt,
                    Op::Ge => Ordering::is_ge,
                    _ => Ordering::is_eq,
                };
                Ok((How::Number(is, self.literal_number(field, word)?), opposite))
            }
        }
    }
    fn literal_number(&self, field: &'static Field, word: &Word<'_>) -> Parsed<i128> {
        let text = word.text;
        let kind = field.data_type();
        let number = match kind {
            DataType::Bytes => literal::size(text),
            DataType::DurationNs => literal::duration(text),
            DataType::TimestampNs => match literal::moment(text).transpose() {
                Ok(moment) => moment,
                Err(why) => return self.wrong(word.span.clone(), why),
            },
            DataType::F64 => literal::plain(text, true),
            _ => literal::plain(text, false),
        };
        if text == "unlimited" && matches!(kind, DataType::U64 | DataType::Bytes) {
            return Ok(i128::MAX);
        }
        if let Some(n) = number {
            return Ok(n);
        }
        let column = !word.quoted && self.set.find(text).is_some();
        let what = if column {
            "a column is compared with a value, not with another column"
        } else {
            "this is not such a value"
        };
        self.wrong(
            word.span.clone(),
            format!(
                "'{}' is {}, and {what}: {}",
                field.name,
                is(field),
                example(field, field.name)
            ),
        )
    }
    fn literal_text(&self, field: &'static Field, word: &Word<'_>) -> Parsed<TextLiteral> {
        let text = match field.name {
            "s" => self.state(word)?,
            _ => word.text,
        };
        let id = if word.quoted { None } else { text.parse().ok() };
        Ok(TextLiteral { bytes: text.as_bytes().to_vec(), id })
    }
    /// A state by its letter or its name.
    fn state<'w>(&self, word: &Word<'w>) -> Parsed<&'w str> {
        let named = STATES.iter().find(|(letter, name)| word.text == *letter || word.text == *name);
        match named {
            Some((letter, _)) => Ok(letter),
            None => {
                let all: Vec<String> = STATES.iter().map(|(l, n)| format!("{l} {n}")).collect();
                let what =
                    format!("there is no state '{}'; there are {}", word.text, all.join(", "));
                self.wrong(word.span.clone(), what)
            }
        }
    }
    fn regex(&self, word: &Word<'_>) -> Parsed<Pattern> {
        Pattern::new(word.text, false).or_else(|why| {
            self.wrong(word.span.clone(), format!("this is no regular expression: {why}"))
        })
    }
}

const STATES: &[(&str, &str)] = &[
    ("R", "running"),
    ("S", "sleeping"),
    ("D", "blocked"),
    ("T", "stopped"),
    ("t", "traced"),
    ("Z", "zombie"),
    ("X", "dead"),
    ("I", "idle"),
    ("P", "parked"),
];

fn is_keyword(word: &str) -> bool {
    ["and", "or", "not", "in"].iter().any(|k| word.eq_ignore_ascii_case(k))
}

fn single(mut all: Vec<Expr>, join: fn(Vec<Expr>) -> Expr) -> Expr {
    if all.len() == 1 { all.remove(0) } else { join(all) }
}

fn is(field: &Field) -> &'static str {
    field.data_type().name()
}

/// Examples of tests for a column of this type.
fn example(field: &Field, name: &str) -> String {
    let known = format!("'{name} known' or '{name} missing'");
    match field.data_type() {
        DataType::Bytes => format!("write '{name} > 100M', {known}"),
        DataType::DurationNs => format!("write '{name} > 2h', {known}"),
        DataType::TimestampNs => format!("write '{name} > \"2026-01-31 12:00\"', {known}"),
        DataType::F64 => format!("write '{name} > 50', {known}"),
        DataType::U64 | DataType::U32List => format!("write '{name} > 10', {known}"),
        DataType::I64 => format!("write '{name} < -10', {known}"),
        DataType::Mask => format!("write '{name} == 0x1f', {known}"),
        DataType::Bool => format!("write '{name}', 'not {name}', {known}"),
        DataType::Text | DataType::TextList if field.name == "s" => {
            format!("write '{name} == R', '{name} in (D, Z)', {known}")
        }
        DataType::Text | DataType::TextList => {
            format!("write '{name} == \"text\"', '{name} ~ \"regular.*expression\"', {known}")
        }
    }
}
