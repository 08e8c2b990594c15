//! The values of fields. Presence is part of a value: a missing value has the reason.

use std::borrow::Cow;

use taskdiag_wire::Reason;

use super::number::{digits_at_end, hex_digits};

/// Why there is no value: it was not requested, or the engine has a reason. There is no third case,
/// so the enum is exhaustive; engines may get more reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The group of the value was not requested.
    NotAsked,
    /// The reason of the engine. It is [`Reason::Unsupported`] also if the group is there without
    /// this member.
    Reason(Reason),
}

impl Missing {
    /// The name that users see.
    pub fn name(self) -> &'static str {
        match self {
            Missing::NotAsked => "not_asked",
            Missing::Reason(r) => r.name(),
        }
    }
    /// Is the missing value a gap? It is none if the task cannot have such a value, or has ended
    /// since.
    pub fn is_amiss(self) -> bool {
        !matches!(self, Missing::Reason(Reason::Absent | Reason::Vanished))
    }
    /// Is it a value that the task cannot have, so that it is not a gap?
    pub fn is_absent(self) -> bool {
        self == Missing::Reason(Reason::Absent)
    }
}

/// Up to 15 bytes of text without an allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Short {
    len: u8,
    bytes: [u8; 15],
}

impl Short {
    /// Bytes that fit.
    pub const ROOM: usize = 15;
    /// Appends a byte; one that does not fit is left out.
    pub fn push(&mut self, b: u8) {
        if let Some(slot) = self.bytes.get_mut(usize::from(self.len)) {
            *slot = b;
            self.len += 1;
        }
    }
    /// Append bytes; those that do not fit are left out.
    pub fn push_bytes(&mut self, bytes: &[u8]) {
        let room = &mut self.bytes[usize::from(self.len)..];
        let n = bytes.len().min(room.len());
        room[..n].copy_from_slice(&bytes[..n]);
        self.len += n as u8;
    }
    /// Append a number in decimal; digits that do not fit are left out.
    pub fn push_uint(&mut self, v: u64) {
        let mut cell = [0; 20];
        let at = digits_at_end(&mut cell, v);
        self.push_bytes(&cell[at..]);
    }
    /// Appends a number with at least this many hexadecimal digits, and leaves out those that do
    /// not fit.
    pub fn push_hex(&mut self, v: u64, digits: u32) {
        hex_digits(v, digits).for_each(|digit| self.push(digit));
    }
    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// The value of a field for one task, in the units of the library.
///
/// The enum is exhaustive, because programs that show values must handle each kind. So a new kind
/// needs a new major version.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// There is no value, for this reason.
    Missing(Missing),
    /// A number, or a size in bytes if that is the unit.
    Uint(u64),
    /// A limit that is not set: larger than every number.
    Unlimited,
    /// True or false.
    Bool(bool),
    /// A signed number.
    Int(i64),
    /// Per cent.
    Percent(f64),
    /// A duration, ns.
    Nanos(u64),
    /// An instant, ns since boot; [`Context::unix_ns`](super::Context::unix_ns) turns it
    /// into wall-clock time.
    Instant(u64),
    /// A set of bits.
    Mask(u64),
    /// Text: any bytes. `cut`: the true value is longer.
    Bytes {
        /// The bytes.
        data: Cow<'a, [u8]>,
        /// Whether only the start of the value is there.
        cut: bool,
    },
    /// A word from a fixed list.
    Word(&'static str),
    /// A few letters.
    Short(Short),
    /// Arguments, NUL between them.
    Args {
        /// The bytes, without the NUL that ends the last one.
        data: Cow<'a, [u8]>,
        /// Whether only the start of the value is there.
        cut: bool,
    },
    /// A uid that is shown as a name.
    User(u32),
    /// A gid that is shown as a name.
    Group(u32),
    /// A terminal, by device number; 0 is none.
    Tty(u32),
    /// Several ids.
    Ids(Vec<u32>),
    /// Several gids that are shown as names.
    GroupList(Vec<u32>),
}

impl<'a> Value<'a> {
    /// The value is not known, although its group is in the answer.
    pub const UNKNOWN: Value<'static> = Value::Missing(Missing::Reason(Reason::Unsupported));
    /// The task cannot have such a value.
    pub const ABSENT: Value<'static> = Value::Missing(Missing::Reason(Reason::Absent));

    /// Complete text.
    pub fn bytes(data: &'a [u8]) -> Value<'a> {
        Value::Bytes { data: Cow::Borrowed(data), cut: false }
    }
    /// An owned copy.
    pub fn into_owned(self) -> Value<'static> {
        match self {
            Value::Missing(m) => Value::Missing(m),
            Value::Uint(v) => Value::Uint(v),
            Value::Unlimited => Value::Unlimited,
            Value::Bool(b) => Value::Bool(b),
            Value::Int(v) => Value::Int(v),
            Value::Percent(p) => Value::Percent(p),
            Value::Nanos(ns) => Value::Nanos(ns),
            Value::Instant(ns) => Value::Instant(ns),
            Value::Mask(m) => Value::Mask(m),
            Value::Bytes { data, cut } => Value::Bytes { data: Cow::Owned(data.into_owned()), cut },
            Value::Word(w) => Value::Word(w),
            Value::Short(s) => Value::Short(s),
            Value::Args { data, cut } => Value::Args { data: Cow::Owned(data.into_owned()), cut },
            Value::User(id) => Value::User(id),
            Value::Group(id) => Value::Group(id),
            Value::Tty(dev) => Value::Tty(dev),
            Value::Ids(ids) => Value::Ids(ids),
            Value::GroupList(ids) => Value::GroupList(ids),
        }
    }
    /// Why it is missing or incomplete.
    pub fn missing(&self) -> Option<Missing> {
        match self {
            Value::Missing(m) => Some(*m),
            Value::Bytes { cut: true, .. } | Value::Args { cut: true, .. } => {
                Some(Missing::Reason(Reason::Truncated))
            }
            _ => None,
        }
    }
}
