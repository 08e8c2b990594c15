//! The values of rows, kept from frame to frame in little memory. A text that several rows have,
//! such as the path of a file that all processes map, is stored once.

use std::borrow::{Borrow, Cow};
use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use taskdiag::field::{Missing, Value};

/// A text of [`Texts`], which rows share. It takes the room of one pointer in each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text(Arc<Box<[u8]>>);

impl Borrow<[u8]> for Text {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl Hash for Text {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self.0).hash(state);
    }
}

/// The texts of all rows.
#[derive(Debug, Default)]
pub struct Texts {
    all: HashSet<Text>,
    /// The bytes of all texts, and of the texts that were in use at the last sweep.
    bytes: usize,
    used: usize,
}

impl Texts {
    /// How much memory they take.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
    fn keep(&mut self, text: &[u8]) -> Text {
        if let Some(known) = self.all.get(text) {
            return known.clone();
        }
        let new = Text(Arc::new(text.into()));
        self.bytes += cost(text);
        self.all.insert(new.clone());
        new
    }
    /// Forgets texts that no row has any more, once they may take as much space as the texts in
    /// use.
    pub fn sweep(&mut self) {
        if self.bytes <= 2 * self.used {
            return;
        }
        let bytes = &mut self.bytes;
        self.all.retain(|text| {
            let is_used = Arc::strong_count(&text.0) > 1;
            if !is_used {
                *bytes -= cost(&text.0);
            }
            is_used
        });
        self.used = self.bytes;
    }
}

/// The memory of a text with its allocations and its place in the set.
fn cost(text: &[u8]) -> usize {
    text.len() + 80
}

/// A value of a row.
#[derive(Debug)]
pub enum StoredValue {
    /// A text: is it cut?
    Text(Text, bool),
    /// Arguments: are they cut?
    Args(Text, bool),
    /// [`Value::Missing`].
    Missing(Missing),
    /// [`Value::Uint`].
    Uint(u64),
    /// [`Value::Int`].
    Int(i64),
    /// [`Value::Nanos`].
    Nanos(u64),
    /// [`Value::Instant`].
    Instant(u64),
    /// [`Value::Bool`].
    Bool(bool),
    /// [`Value::User`].
    User(u32),
    /// Any other value. A row has few of them.
    Other(Box<Value<'static>>),
}

impl StoredValue {
    /// Keeps a value.
    pub fn of(value: &Value<'_>, texts: &mut Texts) -> StoredValue {
        match value {
            Value::Bytes { data, cut } => StoredValue::Text(texts.keep(data), *cut),
            Value::Args { data, cut } => StoredValue::Args(texts.keep(data), *cut),
            Value::Missing(why) => StoredValue::Missing(*why),
            Value::Uint(n) => StoredValue::Uint(*n),
            Value::Int(n) => StoredValue::Int(*n),
            Value::Nanos(ns) => StoredValue::Nanos(*ns),
            Value::Instant(ns) => StoredValue::Instant(*ns),
            Value::Bool(b) => StoredValue::Bool(*b),
            Value::User(uid) => StoredValue::User(*uid),
            other => StoredValue::Other(Box::new(other.clone().into_owned())),
        }
    }
    /// The value again, without a copy of its text.
    pub fn lend(&self) -> Value<'_> {
        match self {
            StoredValue::Text(text, cut) => {
                Value::Bytes { data: Cow::Borrowed(&text.0), cut: *cut }
            }
            StoredValue::Args(text, cut) => Value::Args { data: Cow::Borrowed(&text.0), cut: *cut },
            StoredValue::Missing(why) => Value::Missing(*why),
            StoredValue::Uint(n) => Value::Uint(*n),
            StoredValue::Int(n) => Value::Int(*n),
            StoredValue::Nanos(ns) => Value::Nanos(*ns),
            StoredValue::Instant(ns) => Value::Instant(*ns),
            StoredValue::Bool(b) => Value::Bool(*b),
            StoredValue::User(uid) => Value::User(*uid),
            StoredValue::Other(value) => Value::clone(value),
        }
    }
    /// Is it this value?
    pub fn is(&self, value: &Value<'_>) -> bool {
        match self {
            StoredValue::Other(own) => **own == *value,
            own => own.lend() == *value,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use taskdiag::Reason;

    #[test]
    fn values_come_back_as_they_were_and_are_small() {
        let mut texts = Texts::default();
        let text = |cut| Value::Bytes { data: Cow::Borrowed(b"/a/path"), cut };
        let args = Value::Args { data: Cow::Borrowed(b"a\0b"), cut: true };
        let all = [
            text(false),
            text(true),
            args,
            Value::Missing(Missing::Reason(Reason::Denied)),
            Value::Uint(u64::MAX),
            Value::Int(-1),
            Value::Nanos(7),
            Value::Instant(7),
            Value::Bool(true),
            Value::User(7),
            Value::Group(7),
            Value::Unlimited,
            Value::Word("a"),
            Value::Percent(0.5),
            Value::Ids(vec![1, 2]),
        ];
        let kept: Vec<StoredValue> = all.iter().map(|v| StoredValue::of(v, &mut texts)).collect();
        for (i, kept) in kept.iter().enumerate() {
            for (j, value) in all.iter().enumerate() {
                assert_eq!((kept.is(value), kept.lend() == *value), (i == j, i == j), "{value:?}");
            }
        }
        assert!(size_of::<StoredValue>() <= 16, "{}", size_of::<StoredValue>());
        assert_eq!(texts.bytes(), cost(b"/a/path") + cost(b"a\0b"), "each text once");
        drop(kept);
        texts.sweep();
        assert_eq!(texts.bytes(), 0);
    }
}
