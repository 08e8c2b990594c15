// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows as columns in memory, in the layout of Apache Arrow, so that an export copies nothing.
//!
//! A [`Builder`] takes the rows one by one and makes [`Batch`]es of them. Python's Arrow stream and
//! the command's `--arrow` and `--parquet` are made from these.
//!
//! A value that is not known is null and never 0. For a task that does not have a value, the rule
//! of the JSON output applies: an amount is 0, a list is empty, and everything else is null.

use crate::field::{Context, DataType, Field, Missing, TextForm as Form, Value};

mod builder;

pub use builder::{Batch, Builder, Lacks};

/// Type of a column.
///
/// The enum is exhaustive, because consumers must handle each type. So a new type needs a new major
/// version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// A number; 2^64-1 stands for "unlimited".
    U64,
    /// A number that may be negative.
    I64,
    /// A number with a fraction.
    F64,
    /// True or false.
    Bool,
    /// Nanoseconds.
    Duration,
    /// Microseconds since 1970, UTC.
    Timestamp,
    /// Text of any bytes.
    Text,
    /// A list of texts.
    TextList,
    /// A list of numbers.
    U32List,
}

impl Type {
    /// The type for the values of a field.
    pub fn of(field: &Field) -> Type {
        match field.data_type() {
            DataType::I64 => Type::I64,
            DataType::F64 => Type::F64,
            DataType::Bool => Type::Bool,
            DataType::DurationNs => Type::Duration,
            DataType::TimestampNs => Type::Timestamp,
            DataType::Text => Type::Text,
            DataType::TextList => Type::TextList,
            DataType::U32List => Type::U32List,
            // The list of types may grow. A type that does not fit is refused by `Column::push`.
            _ => Type::U64,
        }
    }
    /// The name that users see.
    pub fn name(self) -> &'static str {
        match self {
            Type::U64 => "uint64",
            Type::I64 => "int64",
            Type::F64 => "float64",
            Type::Bool => "bool",
            Type::Duration => "duration[ns]",
            Type::Timestamp => "timestamp[us, UTC]",
            Type::Text => "utf8",
            Type::TextList => "list<utf8>",
            Type::U32List => "list<uint32>",
        }
    }
}

/// The properties of a column.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Its requested name.
    pub name: String,
    /// Its type.
    pub kind: Type,
    /// The unit of the values; empty if there is none.
    pub unit: &'static str,
    /// The kernel field or file.
    pub source: &'static str,
    /// What it is.
    pub help: &'static str,
    /// The value for a task that cannot have one.
    pub absent: Absent,
}

/// The replacement for a value that a task cannot have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absent {
    /// An amount of nothing.
    Zero,
    /// A list without entries.
    Empty,
    /// No value.
    Null,
}

impl Spec {
    /// A column of a field under this name.
    pub fn of(name: &str, field: &'static Field) -> Spec {
        let kind = Type::of(field);
        let amount = matches!(
            field.text,
            Form::Kib
                | Form::Pages
                | Form::Human
                | Form::Percent
                | Form::Percent99
                | Form::PerMille
        );
        let absent = match kind {
            Type::TextList | Type::U32List => Absent::Empty,
            Type::U64 | Type::F64 if amount => Absent::Zero,
            _ => Absent::Null,
        };
        Spec {
            name: name.to_owned(),
            kind,
            unit: field.unit.name(),
            source: field.source,
            help: field.help,
            absent,
        }
    }
}

/// Texts one after the other, with the place where each ends.
#[derive(Debug)]
pub struct Texts {
    /// The start of each text, and the end of the last one.
    pub offsets: Vec<i32>,
    /// The bytes.
    pub bytes: Vec<u8>,
}

impl Texts {
    fn new() -> Texts {
        Texts { offsets: vec![0], bytes: Vec::new() }
    }
    /// How many there are.
    pub fn len(&self) -> usize {
        self.offsets.len() - 1
    }
    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// One of them.
    pub fn get(&self, i: usize) -> &[u8] {
        &self.bytes[self.offsets[i] as usize..self.offsets[i + 1] as usize]
    }
    /// Ends the text to which bytes were appended.
    fn end(&mut self) {
        self.offsets.push(self.bytes.len() as i32);
    }
    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.end();
    }
    /// Shortens the text that begins at `begin` to `most` bytes or less, so that its last character
    /// is whole. Returns whether it was longer.
    fn cut(&mut self, begin: usize, most: usize) -> bool {
        if self.bytes.len() <= begin + most {
            return false;
        }
        let is_within = |at: usize| at > begin && self.bytes[at] & 0xc0 == 0x80;
        let at = (0..4).map(|n| begin + most.saturating_sub(n)).find(|at| !is_within(*at));
        self.bytes.truncate(at.unwrap_or(begin + most));
        true
    }
    /// A copy of the texts with U+FFFD for invalid bytes. `None`: all texts are valid UTF-8.
    fn lossy(&self) -> Option<Texts> {
        if self.bytes.is_ascii() {
            return None;
        }
        let all = || (0..self.len()).map(|i| self.get(i));
        if all().all(|t| std::str::from_utf8(t).is_ok()) {
            return None;
        }
        let mut out = Texts::new();
        all().for_each(|t| out.push(String::from_utf8_lossy(t).as_bytes()));
        Some(out)
    }
}

/// Texts as they are, and as UTF-8.
#[derive(Debug)]
#[non_exhaustive]
pub struct Text {
    /// The bytes as they are.
    pub raw: Texts,
    /// Valid UTF-8, if that differs.
    pub lossy: Option<Texts>,
}

impl Text {
    fn new() -> Text {
        Text { raw: Texts::new(), lossy: None }
    }
    /// As UTF-8.
    pub fn utf8(&self) -> &Texts {
        self.lossy.as_ref().unwrap_or(&self.raw)
    }
}

/// The values of a column. A new kind needs a new major version, like a new [`Type`].
#[derive(Debug)]
pub enum Data {
    /// Numbers, and sets of bits.
    U64(Vec<u64>),
    /// Numbers, ns, and us since 1970.
    I64(Vec<i64>),
    /// Numbers with a fraction.
    F64(Vec<f64>),
    /// Bits, and how many.
    Bool(Vec<u8>, usize),
    /// Texts.
    Text(Text),
    /// The start of each list in the texts, and the end of the last one.
    TextList(Vec<i32>, Text),
    /// The start of each list in the numbers, and the end of the last one.
    U32List(Vec<i32>, Vec<u32>),
}

/// A value of a column, as its [`Data`] has it. A new kind needs a new major version.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell<'a> {
    /// No value.
    Null,
    /// Of [`Data::U64`].
    U64(u64),
    /// Of [`Data::I64`].
    I64(i64),
    /// Of [`Data::F64`].
    F64(f64),
    /// Of [`Data::Bool`].
    Bool(bool),
    /// The bytes of [`Data::Text`].
    Text(&'a [u8]),
    /// Of [`Data::TextList`].
    TextList(Vec<&'a [u8]>),
    /// Of [`Data::U32List`].
    U32List(&'a [u32]),
}

/// A column of a batch.
#[derive(Debug)]
#[non_exhaustive]
pub struct Column {
    /// The values; a null row has any value.
    pub data: Data,
    /// Whether each row is null, in order.
    pub nulls: Vec<u32>,
    /// A bit for each row, set if the value is not null. Empty: no value is null.
    pub validity: Vec<u8>,
}

fn set_bit(bits: &mut Vec<u8>, i: usize, bit: bool) {
    if i % 8 == 0 {
        bits.push(0);
    }
    bits[i / 8] |= u8::from(bit) << (i % 8);
}

impl Column {
    fn new(kind: Type) -> Column {
        let data = match kind {
            Type::U64 => Data::U64(Vec::new()),
            Type::I64 | Type::Duration | Type::Timestamp => Data::I64(Vec::new()),
            Type::F64 => Data::F64(Vec::new()),
            Type::Bool => Data::Bool(Vec::new(), 0),
            Type::Text => Data::Text(Text::new()),
            Type::TextList => Data::TextList(vec![0], Text::new()),
            Type::U32List => Data::U32List(vec![0], Vec::new()),
        };
        Column { data, nulls: Vec::new(), validity: Vec::new() }
    }
    /// How many rows there are.
    pub fn len(&self) -> usize {
        match &self.data {
            Data::U64(v) => v.len(),
            Data::I64(v) => v.len(),
            Data::F64(v) => v.len(),
            Data::Bool(_, n) => *n,
            Data::Text(t) => t.raw.len(),
            Data::TextList(offsets, _) | Data::U32List(offsets, _) => offsets.len() - 1,
        }
    }
    /// Are there no rows?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Is the value in this row null?
    pub fn is_null(&self, row: usize) -> bool {
        self.validity.get(row / 8).is_some_and(|b| b >> (row % 8) & 1 == 0)
    }
    /// The value in this row.
    pub fn cell(&self, row: usize) -> Cell<'_> {
        if self.is_null(row) {
            return Cell::Null;
        }
        let part = |offsets: &[i32]| offsets[row] as usize..offsets[row + 1] as usize;
        match &self.data {
            Data::U64(v) => Cell::U64(v[row]),
            Data::I64(v) => Cell::I64(v[row]),
            Data::F64(v) => Cell::F64(v[row]),
            Data::Bool(bits, _) => Cell::Bool(bits[row / 8] >> (row % 8) & 1 == 1),
            Data::Text(t) => Cell::Text(t.raw.get(row)),
            Data::TextList(offsets, t) => {
                Cell::TextList(part(offsets).map(|i| t.raw.get(i)).collect())
            }
            Data::U32List(offsets, v) => Cell::U32List(&v[part(offsets)]),
        }
    }
    fn text_bytes(&self) -> usize {
        match &self.data {
            Data::Text(t) | Data::TextList(_, t) => t.raw.bytes.len(),
            _ => 0,
        }
    }
    /// Shortens the text of the last value to `most` bytes, or makes it null if that is 0. Returns
    /// whether it was longer.
    fn cut_last(&mut self, most: usize) -> bool {
        let row = self.len() - 1;
        match &mut self.data {
            Data::Text(t) => {
                let begin = t.raw.offsets[row] as usize;
                if !t.raw.cut(begin, most) {
                    return false;
                }
                t.raw.offsets[row + 1] = t.raw.bytes.len() as i32;
            }
            Data::TextList(offsets, t) => {
                let first = offsets[row] as usize;
                let begin = t.raw.offsets[first] as usize;
                if !t.raw.cut(begin, most) {
                    return false;
                }
                // The last text that is left may have lost its end.
                let end = t.raw.bytes.len() as i32;
                let whole = t.raw.offsets[first..].iter().take_while(|o| **o < end).count();
                t.raw.offsets.truncate(first + whole);
                t.raw.offsets.push(end);
                offsets[row + 1] = t.raw.len() as i32;
            }
            _ => return false,
        }
        if most == 0 {
            self.nulls.push(row as u32);
        }
        true
    }
    fn push_null(&mut self) {
        self.nulls.push(self.len() as u32);
        self.push_zero();
    }
    /// 0, no text, or an empty list.
    fn push_zero(&mut self) {
        match &mut self.data {
            Data::U64(v) => v.push(0),
            Data::I64(v) => v.push(0),
            Data::F64(v) => v.push(0.0),
            Data::Bool(bits, n) => {
                set_bit(bits, *n, false);
                *n += 1;
            }
            Data::Text(t) => t.raw.end(),
            Data::TextList(offsets, t) => offsets.push(t.raw.len() as i32),
            Data::U32List(offsets, v) => offsets.push(v.len() as i32),
        }
    }
    /// Appends a value. Returns the reason if it is missing or incomplete.
    #[inline]
    fn push(&mut self, cx: &Context, absent: Absent, value: &Value<'_>) -> Option<Missing> {
        match (&mut self.data, value) {
            (_, Value::Missing(why)) => {
                let zero = why.is_absent() && absent != Absent::Null;
                if zero {
                    self.push_zero()
                } else {
                    self.push_null()
                }
                return Some(*why);
            }
            (Data::U64(v), Value::Uint(n) | Value::Mask(n)) => v.push(*n),
            (Data::U64(v), Value::Unlimited) => v.push(u64::MAX),
            (Data::I64(v), Value::Int(n)) => v.push(*n),
            (Data::I64(v), Value::Nanos(ns)) => v.push(i64::try_from(*ns).unwrap_or(i64::MAX)),
            (Data::I64(v), Value::Instant(ns)) => {
                // Whole seconds, as in all outputs: the clocks of each answer would give another
                // fraction.
                v.push(cx.unix_seconds_floor(*ns).saturating_mul(1_000_000));
            }
            (Data::F64(v), Value::Percent(p)) => v.push(*p),
            (Data::Bool(bits, n), Value::Bool(b)) => {
                set_bit(bits, *n, *b);
                *n += 1;
            }
            (Data::Text(_), Value::Tty(0)) => {
                self.push_null();
                return Value::ABSENT.missing();
            }
            (Data::Text(t), _) => push_text(&mut t.raw, cx, value),
            (Data::TextList(offsets, t), Value::Args { data, .. }) => {
                if !data.is_empty() {
                    data.split(|b| *b == 0).for_each(|arg| t.raw.push(arg));
                }
                offsets.push(t.raw.len() as i32);
            }
            (Data::TextList(offsets, t), Value::GroupList(ids)) => {
                ids.iter().for_each(|id| push_text(&mut t.raw, cx, &Value::Group(*id)));
                offsets.push(t.raw.len() as i32);
            }
            (Data::U32List(offsets, v), Value::Ids(ids)) => {
                v.extend_from_slice(ids);
                offsets.push(v.len() as i32);
            }
            // The field table defines the values of a type, and a test of the library checks that.
            (_, other) => {
                debug_assert!(false, "{other:?} does not fit its column");
                self.push_null();
                return Value::UNKNOWN.missing();
            }
        }
        value.missing()
    }
    /// Appends a value that was in a column before. False: it does not fit this column.
    fn push_cell(&mut self, cell: &Cell<'_>) -> bool {
        let room = i32::MAX as usize - self.text_bytes();
        let fits = |len: usize| len <= room;
        match (&mut self.data, cell) {
            (_, Cell::Null) => self.push_null(),
            (Data::U64(v), Cell::U64(n)) => v.push(*n),
            (Data::I64(v), Cell::I64(n)) => v.push(*n),
            (Data::F64(v), Cell::F64(n)) => v.push(*n),
            (Data::Bool(bits, n), Cell::Bool(b)) => {
                set_bit(bits, *n, *b);
                *n += 1;
            }
            (Data::Text(t), Cell::Text(bytes)) if fits(bytes.len()) => t.raw.push(bytes),
            (Data::TextList(offsets, t), Cell::TextList(texts))
                if fits(texts.iter().map(|t| t.len()).sum())
                    && texts.len() < i32::MAX as usize - t.raw.len() =>
            {
                texts.iter().for_each(|text| t.raw.push(text));
                offsets.push(t.raw.len() as i32);
            }
            (Data::U32List(offsets, v), Cell::U32List(ids))
                if ids.len() < i32::MAX as usize - v.len() =>
            {
                v.extend_from_slice(ids);
                offsets.push(v.len() as i32);
            }
            _ => return false,
        }
        true
    }
    fn finish(&mut self) {
        if let Data::Text(t) | Data::TextList(_, t) = &mut self.data {
            t.lossy = t.raw.lossy();
        }
        if self.nulls.is_empty() {
            return;
        }
        let rows = self.len();
        let mut bits = vec![0xff; rows.div_ceil(8)];
        self.nulls.iter().for_each(|n| bits[*n as usize / 8] &= !(1 << (n % 8)));
        self.validity = bits;
    }
}

fn push_text(out: &mut Texts, cx: &Context, value: &Value<'_>) {
    let name = |out: &mut Texts, name: Option<std::sync::Arc<[u8]>>, id: u32| match name {
        Some(name) => out.push(&name),
        None => out.push(id.to_string().as_bytes()),
    };
    match value {
        Value::Bytes { data, .. } => out.push(data),
        Value::Word(w) => out.push(w.as_bytes()),
        Value::Short(s) => out.push(s.as_bytes()),
        Value::User(uid) => name(out, cx.names.user(*uid), *uid),
        Value::Group(gid) => name(out, cx.names.group(*gid), *gid),
        Value::Tty(dev) => out.push(&cx.tty_name(*dev)),
        other => {
            debug_assert!(false, "{other:?} is no text");
            out.end();
        }
    }
}
