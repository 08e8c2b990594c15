//! Rows and columns of an answer, and their values for C.

use std::ffi::{CStr, CString, c_int};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use taskdiag::columns::{Absent, Batch, Builder, Cell, Column, Data, Lacks, Spec, Texts, Type};
use taskdiag::field::{Missing, Set};
use taskdiag::view::Left;
use taskdiag::{Reason, Snapshot};

use crate::failure::{Failure, c_text, code};

/// The number of [`Missing::NotAsked`]; all other reasons have the numbers of the format.
const NOT_ASKED: c_int = 255;

/// The number of a reason.
fn number(why: Missing) -> c_int {
    match why {
        Missing::NotAsked => NOT_ASKED,
        Missing::Reason(reason) => reason as c_int,
    }
}

/// The name of the reason with this number, with a NUL at its end.
pub fn reason_name(n: c_int) -> &'static CStr {
    /// The names by their numbers. This is not a LazyLock, because a child that another thread
    /// forks meanwhile would wait for ever.
    static NAMES: AtomicPtr<Vec<CString>> = AtomicPtr::new(null_mut());
    let name = |n: c_int| match u32::try_from(n).ok().and_then(Reason::from_number) {
        Some(reason) => reason.name(),
        None if n == code::OK => "known",
        None if n == NOT_ASKED => Missing::NotAsked.name(),
        None => "unknown",
    };
    if NAMES.load(Ordering::Acquire).is_null() {
        let made = (0..=NOT_ASKED).map(|n| c_text(name(n).to_owned())).collect();
        let made = Box::into_raw(Box::new(made));
        if NAMES.compare_exchange(null_mut(), made, Ordering::AcqRel, Ordering::Acquire).is_err() {
            // SAFETY: it is from the line above, and nobody else has it.
            drop(unsafe { Box::from_raw(made) });
        }
    }
    // SAFETY: it is not NULL, and is never freed.
    let names = unsafe { &*NAMES.load(Ordering::Acquire) };
    usize::try_from(n).ok().and_then(|n| names.get(n)).map_or(c"unknown", CString::as_c_str)
}

/// The number of a type in `taskdiag.h`.
fn type_number(kind: Type) -> c_int {
    match kind {
        Type::U64 => 1,
        Type::I64 => 2,
        Type::F64 => 3,
        Type::Bool => 4,
        Type::Duration => 5,
        Type::Timestamp => 6,
        Type::Text => 7,
        Type::TextList => 8,
        Type::U32List => 9,
    }
}

/// A number of a column.
enum Number {
    Uint(u64),
    Int(i64),
    Float(f64),
}

/// The properties of a column, for C.
#[derive(Debug)]
struct Head {
    name: CString,
    unit: CString,
    kind: Type,
}

/// A table.
#[derive(Debug)]
pub struct Table {
    heads: Vec<Head>,
    batches: Vec<Batch>,
    /// The first row of each batch, and the number of all rows.
    starts: Vec<usize>,
    lacks: Vec<Lacks>,
    pub nobody: Vec<u32>,
    pub remarks: Vec<CString>,
    pub engines: CString,
    pub errno: c_int,
}

/// A value that is there, or is not for a reason, with the number of the reason or 0.
pub type Found<T> = Result<(T, c_int), Failure>;

impl Table {
    /// The rows of a builder, and nothing about an answer.
    pub fn new(builder: Builder) -> Table {
        let (specs, batches, lacks) = builder.finish();
        let mut starts = vec![0];
        batches.iter().for_each(|b| starts.push(starts[starts.len() - 1] + b.rows));
        let head = |s: &Spec| Head {
            name: c_text(s.name.clone()),
            unit: c_text(s.unit.to_owned()),
            kind: s.kind,
        };
        Table {
            heads: specs.iter().map(head).collect(),
            batches,
            starts,
            lacks,
            nobody: Vec::new(),
            remarks: Vec::new(),
            engines: CString::default(),
            errno: 0,
        }
    }
    /// The rows of an answer.
    pub fn of(builder: Builder, snapshot: &Snapshot, nobody: Vec<u32>, left: &[Left]) -> Table {
        let engines: Vec<&str> = snapshot.served().iter().map(|s| s.engine.name()).collect();
        let mut remarks: Vec<CString> =
            snapshot.caveats().iter().map(|c| c_text(c.to_string())).collect();
        remarks.extend(left.iter().map(|l| {
            let (name, why) = (l.field.name, l.why.name());
            let tasks = l.tasks;
            c_text(format!("tasks left out, because their {name} is not known ({why}): {tasks}"))
        }));
        Table {
            nobody,
            remarks,
            engines: c_text(engines.join(",")),
            errno: -snapshot.stream().done().error,
            ..Table::new(builder)
        }
    }
    /// The columns that a kind of rows has, one in each row.
    pub fn describing(set: &Set) -> Result<Table, Failure> {
        let names = ["column", "type", "unit", "help", "source"];
        let spec = |name: &str| Spec {
            name: name.to_owned(),
            kind: Type::Text,
            unit: "",
            source: "the field table",
            help: "",
            absent: Absent::Null,
        };
        let mut builder = Builder::new(names.map(spec).to_vec());
        for field in set.own() {
            let s = Spec::of(field.name, field);
            let texts = [field.name, s.kind.name(), s.unit, s.help, s.source];
            let pushed = builder.push_cells(|c| (Cell::Text(texts[c].as_bytes()), None));
            pushed.map_err(|_| Failure::new(code::INTERNAL, "a text is no text"))?;
        }
        Ok(Table::new(builder))
    }
    pub fn rows(&self) -> usize {
        self.starts.last().copied().unwrap_or(0)
    }
    pub fn columns(&self) -> usize {
        self.heads.len()
    }
    /// The number of the column with this name.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.heads.iter().position(|h| h.name.as_bytes() == name.as_bytes())
    }
    fn head(&self, column: usize) -> Result<&Head, Failure> {
        self.heads.get(column).ok_or_else(|| Failure::argument("there is no such column"))
    }
    pub fn name(&self, column: usize) -> Result<&CString, Failure> {
        Ok(&self.head(column)?.name)
    }
    pub fn unit(&self, column: usize) -> Result<&CString, Failure> {
        Ok(&self.head(column)?.unit)
    }
    pub fn kind(&self, column: usize) -> Result<c_int, Failure> {
        Ok(type_number(self.head(column)?.kind))
    }
    /// The part of a column with a row, the number of the row in it, and the reason why the value
    /// is missing or incomplete, or 0.
    fn at(&self, row: usize, column: usize) -> Result<(&Column, usize, c_int), Failure> {
        self.head(column)?;
        if row >= self.rows() {
            return Err(Failure::argument("there is no such row"));
        }
        let batch = self.starts.partition_point(|start| *start <= row) - 1;
        let lacks = &self.lacks[column];
        let lack = lacks.binary_search_by_key(&row, |(at, _)| *at as usize).ok();
        let why = lack.map_or(0, |at| number(lacks[at].1));
        Ok((&self.batches[batch].columns[column], row - self.starts[batch], why))
    }
    fn number(&self, row: usize, column: usize) -> Found<Number> {
        let (values, row, why) = self.at(row, column)?;
        let number = match &values.data {
            Data::U64(v) => Number::Uint(v[row]),
            Data::I64(v) => Number::Int(v[row]),
            Data::F64(v) => Number::Float(v[row]),
            Data::Bool(bits, _) => Number::Uint(u64::from(bits[row / 8] >> (row % 8) & 1)),
            _ => return Err(not_of_type("a number")),
        };
        Ok((number, why))
    }
    /// A whole number that is not negative.
    pub fn u64(&self, row: usize, column: usize) -> Found<u64> {
        let (number, why) = self.number(row, column)?;
        let number = match number {
            Number::Uint(n) => n,
            Number::Int(n) => u64::try_from(n).map_err(|_| not_in_range())?,
            Number::Float(_) => return Err(not_of_type("a whole number")),
        };
        Ok((number, why))
    }
    /// A whole number.
    pub fn i64(&self, row: usize, column: usize) -> Found<i64> {
        let (number, why) = self.number(row, column)?;
        let number = match number {
            Number::Uint(n) => i64::try_from(n).map_err(|_| not_in_range())?,
            Number::Int(n) => n,
            Number::Float(_) => return Err(not_of_type("a whole number")),
        };
        Ok((number, why))
    }
    /// A number in the unit of its column.
    pub fn double(&self, row: usize, column: usize) -> Found<f64> {
        let (number, why) = self.number(row, column)?;
        let number = match (number, self.head(column)?.kind) {
            (Number::Uint(u64::MAX), _) => f64::INFINITY,
            (Number::Uint(n), _) => n as f64,
            (Number::Int(n), Type::Duration) => n as f64 / 1e9,
            (Number::Int(n), Type::Timestamp) => n as f64 / 1e6,
            (Number::Int(n), _) => n as f64,
            (Number::Float(n), _) => n,
        };
        Ok((number, why))
    }
    /// The bytes of a text.
    pub fn text(&self, row: usize, column: usize) -> Found<&[u8]> {
        let (values, row, why) = self.at(row, column)?;
        match &values.data {
            Data::Text(t) => Ok((t.raw.get(row), why)),
            _ => Err(not_of_type("a text")),
        }
    }
    /// The texts of a list: all texts of the batch, and which of them.
    pub fn texts(&self, row: usize, column: usize) -> Found<(&Texts, std::ops::Range<usize>)> {
        let (values, row, why) = self.at(row, column)?;
        match &values.data {
            Data::TextList(ends, t) => {
                Ok(((&t.raw, ends[row] as usize..ends[row + 1] as usize), why))
            }
            _ => Err(not_of_type("a list of texts")),
        }
    }
    /// The numbers of a list.
    pub fn u32s(&self, row: usize, column: usize) -> Found<&[u32]> {
        let (values, row, why) = self.at(row, column)?;
        match &values.data {
            Data::U32List(ends, v) => Ok((&v[ends[row] as usize..ends[row + 1] as usize], why)),
            _ => Err(not_of_type("a list of numbers")),
        }
    }
}

fn not_of_type(what: &str) -> Failure {
    Failure::new(code::TYPE, format!("the column does not have {what} in each row"))
}

fn not_in_range() -> Failure {
    Failure::new(code::RANGE, "the number does not fit the type that was asked for")
}

#[cfg(test)]
mod tests {
    use super::*;
    use taskdiag::field::{SETS, TASKS};

    /// The constants of `taskdiag.h`: names and numbers.
    fn constants() -> Vec<(String, c_int)> {
        let header = include_str!("../include/taskdiag.h");
        let line = |line: &str| {
            let (name, rest) = line.trim().strip_prefix("TASKDIAG_")?.split_once(" = ")?;
            let number = rest.split([',', ' ', '\t']).next()?.parse().ok()?;
            Some((name.to_owned(), number))
        };
        header.lines().filter_map(line).collect()
    }

    #[test]
    fn the_header_has_each_reason_and_each_type_with_its_number() {
        let constants = constants();
        let has = |name: &str| constants.iter().find(|(n, _)| n == name).map(|(_, n)| *n);
        for reason in Reason::ALL {
            let name = format!("MISSING_{}", reason.name().to_uppercase());
            assert_eq!(has(&name), Some(*reason as c_int), "{name}");
            assert_eq!(reason_name(*reason as c_int).to_str(), Ok(reason.name()));
        }
        assert_eq!(has("MISSING_NOT_ASKED"), Some(NOT_ASKED));
        let others = [0, NOT_ASKED, NOT_ASKED + 1, -1, 100].map(reason_name);
        assert_eq!(others, [c"known", c"not_asked", c"unknown", c"unknown", c"unknown"]);
        let types = [
            (Type::U64, "U64"),
            (Type::I64, "I64"),
            (Type::F64, "DOUBLE"),
            (Type::Bool, "BOOL"),
            (Type::Duration, "DURATION_NS"),
            (Type::Timestamp, "TIMESTAMP_US"),
            (Type::Text, "TEXT"),
            (Type::TextList, "TEXT_LIST"),
            (Type::U32List, "U32_LIST"),
        ];
        for (kind, name) in types {
            assert_eq!(has(&format!("TYPE_{name}")), Some(type_number(kind)), "{name}");
        }
        let of_kind = |kind: &str| constants.iter().filter(|(n, _)| n.starts_with(kind)).count();
        assert_eq!(of_kind("TYPE_"), types.len());
        assert_eq!(of_kind("MISSING_"), Reason::ALL.len() + 1);
    }

    #[test]
    fn the_header_has_each_error_with_its_number() {
        let numbers: Vec<c_int> = constants()
            .into_iter()
            .filter(|(name, _)| name == "OK" || name.starts_with("ERROR_"))
            .map(|(_, number)| number)
            .collect();
        assert_eq!(numbers, (code::INTERNAL..=code::OK).rev().collect::<Vec<_>>());
        let has = |name: &str| constants().iter().find(|(n, _)| n == name).map(|(_, n)| *n);
        for (name, number) in [
            ("ERROR_ARGUMENT", code::ARGUMENT),
            ("ERROR_QUERY", code::QUERY),
            ("ERROR_TYPE", code::TYPE),
            ("ERROR_RANGE", code::RANGE),
            ("ERROR_UNAVAILABLE", code::UNAVAILABLE),
            ("ERROR_UNSUPPORTED", code::UNSUPPORTED),
            ("ERROR_SETTING", code::SETTING),
            ("ERROR_SYSTEM", code::SYSTEM),
            ("ERROR_STREAM", code::STREAM),
            ("ERROR_OTHER", code::OTHER),
            ("ERROR_INTERNAL", code::INTERNAL),
        ] {
            assert_eq!(has(name), Some(number), "{name}");
        }
    }

    #[test]
    fn the_header_has_each_option_with_its_number() {
        use crate::ask::option;
        let of_header: Vec<(String, c_int)> =
            constants().into_iter().filter(|(name, _)| name.starts_with("OPTION_")).collect();
        let known = [
            ("OPTION_THREADS", option::THREADS),
            ("OPTION_PATHS", option::PATHS),
            ("OPTION_MAPPED", option::MAPPED),
            ("OPTION_TEXT_BYTES", option::TEXT_BYTES),
            ("OPTION_BUDGET_NS", option::BUDGET_NS),
            ("OPTION_MAX_RSS_BYTES", option::MAX_RSS_BYTES),
            ("OPTION_MAX_AGE_NS", option::MAX_AGE_NS),
        ];
        assert_eq!(of_header, known.map(|(name, number)| (name.to_owned(), number)));
    }

    #[test]
    fn each_column_is_described() {
        for set in SETS {
            let table = Table::describing(set).expect("it is made");
            assert_eq!(table.rows(), set.own().count());
        }
        let table = Table::describing(&TASKS).expect("it is made");
        let text = |row, column| table.text(row, column).expect("a text").0;
        let rss = (0..table.rows()).find(|row| text(*row, 0) == b"rss").expect("a column");
        assert_eq!((text(rss, 1), text(rss, 2)), (&b"uint64"[..], &b"bytes"[..]));
    }
}
