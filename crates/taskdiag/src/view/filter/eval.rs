//! The result of a test of a row: true, false, or not known.

use std::borrow::Cow;
use std::cmp::Ordering;

use super::literal::ONE;
use crate::Reason;
use crate::field::{Context, Field, Missing, Row, Value};
use crate::view::Pattern;

/// Is an expression true of a row?
#[derive(Clone, Copy, Debug)]
pub enum Truth {
    /// The test is true.
    True,
    /// The test is false.
    False,
    /// Not known, because the value of this field is missing for this reason.
    Unknown(&'static Field, Missing),
}

impl Truth {
    /// Is it known to be true?
    pub fn is_true(self) -> bool {
        matches!(self, Truth::True)
    }
    /// The negation, which is not known if the value is not known.
    #[must_use]
    #[expect(clippy::should_implement_trait, reason = "an operator would need an import")]
    pub fn not(self) -> Truth {
        match self {
            Truth::True => Truth::False,
            Truth::False => Truth::True,
            unknown => unknown,
        }
    }
}

impl From<bool> for Truth {
    fn from(b: bool) -> Truth {
        if b { Truth::True } else { Truth::False }
    }
}

/// Are all tests true? If one is false, so is the result, even if others are not known.
pub(super) fn all(tests: impl Iterator<Item = Truth>) -> Truth {
    let mut out = Truth::True;
    for t in tests {
        match (t, out) {
            (Truth::False, _) => return t,
            (Truth::Unknown(..), Truth::True) => out = t,
            _ => {}
        }
    }
    out
}

/// Is one of the tests true? If one is, so is the result, even if others are not known.
pub(super) fn any(tests: impl Iterator<Item = Truth>) -> Truth {
    all(tests.map(Truth::not)).not()
}

/// A test of one field.
#[derive(Clone, Debug)]
pub(super) struct Test {
    pub field: &'static Field,
    pub how: How,
}

/// The kind of test.
#[derive(Clone, Debug)]
pub(super) enum How {
    /// Is the value missing?
    Missing,
    /// Is it true?
    True,
    /// Does the function accept its ordering relative to this number, in billionths?
    Number(fn(Ordering) -> bool, i128),
    /// Is it one of these numbers, in billionths?
    Numbers(Vec<i128>),
    /// Is the value one of these texts, or a user or group whose id is one of these?
    Texts(Vec<TextLiteral>),
    /// Does the expression match it?
    Match(Pattern),
}

impl How {
    /// Does the test name single values, so that it is false for most?
    pub fn is_exact(&self) -> bool {
        match self {
            How::Missing | How::True => false,
            How::Number(is, _) => !is(Ordering::Less) && !is(Ordering::Greater),
            How::Numbers(_) | How::Texts(_) | How::Match(_) => true,
        }
    }
}

/// A text to compare with.
#[derive(Clone, Debug)]
pub(super) struct TextLiteral {
    pub bytes: Vec<u8>,
    /// The text as a number, if it is one.
    pub id: Option<u32>,
}

impl Test {
    pub fn test(&self, cx: &Context, row: &Row<'_>) -> Truth {
        let value = (self.field.get)(cx, row);
        // A process without a terminal has the number 0.
        let missing = match value {
            Value::Missing(m) => Some(m),
            Value::Tty(0) => Some(Missing::Reason(Reason::Absent)),
            _ => None,
        };
        match (&self.how, missing) {
            (How::Missing, m) => m.is_some().into(),
            (_, Some(m)) => Truth::Unknown(self.field, m),
            (How::True, None) => matches!(value, Value::Bool(true)).into(),
            (How::Number(is, n), None) => numbers(cx, &value).iter().any(|v| is(v.cmp(n))).into(),
            (How::Numbers(all), None) => numbers(cx, &value).iter().any(|v| all.contains(v)).into(),
            (How::Texts(all), None) => self.is_one_of(cx, &value, all),
            (How::Match(regex), None) => self.matches(cx, &value, regex),
        }
    }
    /// The result if the value is cut, so that its end is not known.
    fn cut(&self) -> Truth {
        Truth::Unknown(self.field, Missing::Reason(Reason::Truncated))
    }
    fn is_one_of(&self, cx: &Context, value: &Value<'_>, all: &[TextLiteral]) -> Truth {
        let id = match value {
            Value::User(id) | Value::Group(id) => Some(*id),
            _ => None,
        };
        if id.is_some() && all.iter().any(|t| t.id == id) {
            return Truth::True;
        }
        each_text(cx, value, &mut |text, cut| match cut {
            false => all.iter().any(|t| t.bytes == text).into(),
            true if all.iter().any(|t| t.bytes.starts_with(text)) => self.cut(),
            true => Truth::False,
        })
    }
    fn matches(&self, cx: &Context, value: &Value<'_>, regex: &Pattern) -> Truth {
        each_text(cx, value, &mut |text, cut| match cut {
            false => regex.is_match(text).into(),
            // The text after a match that ends before the last character does not matter.
            true if regex.matches_beginning(text) => Truth::True,
            true => self.cut(),
        })
    }
}

/// The numbers of a value in billionths. Only lists have several values.
fn numbers(cx: &Context, value: &Value<'_>) -> Numbers {
    let one = |v: i128| Numbers::One([v]);
    match value {
        Value::Uint(v) | Value::Mask(v) => one(i128::from(*v) * ONE),
        Value::Int(v) => one(i128::from(*v) * ONE),
        Value::Nanos(ns) => one((*ns).into()),
        Value::Instant(ns) => one(cx.unix_ns(*ns)),
        Value::Unlimited => one(i128::MAX),
        // A share is far below the limits of i128, and NaN becomes 0.
        Value::Percent(p) => one((p * ONE as f64) as i128),
        Value::Ids(ids) => Numbers::Some(ids.iter().map(|id| i128::from(*id) * ONE).collect()),
        _ => Numbers::Some(Vec::new()),
    }
}

enum Numbers {
    One([i128; 1]),
    Some(Vec<i128>),
}

impl Numbers {
    fn iter(&self) -> std::slice::Iter<'_, i128> {
        match self {
            Numbers::One(one) => one.iter(),
            Numbers::Some(all) => all.iter(),
        }
    }
}

/// Is `test` true for one of the texts of a value? The second argument of `test` says whether the
/// text is cut.
fn each_text(cx: &Context, value: &Value<'_>, test: &mut dyn FnMut(&[u8], bool) -> Truth) -> Truth {
    let number = |id: u32| id.to_string().into_bytes();
    match value {
        Value::Bytes { data, cut } => test(data, *cut),
        Value::Word(w) => test(w.as_bytes(), false),
        Value::Short(s) => test(s.as_bytes(), false),
        Value::Tty(dev) => test(&cx.tty_name(*dev), false),
        Value::User(id) => match cx.names.user(*id) {
            Some(name) => test(&name, false),
            None => test(&number(*id), false),
        },
        Value::Group(id) => test(&group(cx, *id), false),
        Value::Args { data, cut } => {
            let line = match memchr::memchr(0, data) {
                None => Cow::Borrowed(&**data),
                Some(_) => data.iter().map(|b| if *b == 0 { b' ' } else { *b }).collect(),
            };
            test(&line, *cut)
        }
        Value::GroupList(ids) => any(ids.iter().map(|id| test(&group(cx, *id), false))),
        _ => Truth::False,
    }
}

fn group(cx: &Context, id: u32) -> Vec<u8> {
    cx.names.group(id).map_or_else(|| id.to_string().into_bytes(), |name| name.to_vec())
}
