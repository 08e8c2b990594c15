// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables as plain Python objects, for `pickle`, and back.
//!
//! A pickle has only values. A table is built from it row by row like one from an answer, so a
//! pickle that somebody has changed cannot make a table that breaks a reader of Arrow.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};
use taskdiag::Reason;
use taskdiag::columns::{Absent, Builder, Cell, Column, Spec, Type};
use taskdiag::field::Missing;
use taskdiag::wire::{Info, Plain as _};

use crate::arrow::Shared;
use crate::ask::TableData;
use crate::table::{ColumnInfo, Table};

/// Version of this form. A later one reads it, too.
const FORM: u32 = 1;

const TYPES: [Type; 9] = [
    Type::U64,
    Type::I64,
    Type::F64,
    Type::Bool,
    Type::Duration,
    Type::Timestamp,
    Type::Text,
    Type::TextList,
    Type::U32List,
];
const ABSENT: [(Absent, &str); 3] =
    [(Absent::Zero, "zero"), (Absent::Empty, "empty"), (Absent::Null, "null")];

/// Texts of columns live as long as the program. Each text of a pickle is kept once.
fn kept(text: &str) -> &'static str {
    static KEPT: Mutex<Option<HashSet<&'static str>>> = Mutex::new(None);
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    let kept = kept.get_or_insert_default();
    match kept.get(text) {
        Some(same) => same,
        None => {
            let text: &'static str = Box::leak(text.to_owned().into_boxed_str());
            kept.insert(text);
            text
        }
    }
}

fn bad(what: &str) -> PyErr {
    PyValueError::new_err(format!("this is no table that was pickled by taskdiag: {what}"))
}

fn missing(name: &str) -> PyResult<Missing> {
    let reasons = (0..=u8::MAX).filter_map(|n| Reason::from_number(n.into())).map(Missing::Reason);
    let mut all = std::iter::once(Missing::NotAsked).chain(reasons);
    all.find(|why| why.name() == name).ok_or_else(|| bad("a reason is not known"))
}

type SpecState = (String, String, String, String, String, String);

fn spec_state(s: &Spec) -> SpecState {
    let absent = ABSENT.iter().find(|(absent, _)| *absent == s.absent).map_or("null", |(_, n)| n);
    let owned = str::to_owned;
    let kind = s.kind.name();
    (s.name.clone(), owned(kind), owned(s.unit), owned(s.source), owned(s.help), owned(absent))
}

fn spec((name, kind, unit, source, help, absent): SpecState) -> PyResult<Spec> {
    let kind = TYPES.into_iter().find(|t| t.name() == kind).ok_or_else(|| bad("a type"))?;
    let absent = ABSENT.iter().find(|(_, n)| *n == absent).ok_or_else(|| bad("a rule"))?.0;
    // The interface of Arrow ends names with a NUL.
    if [&name, &unit, &source, &help].iter().any(|text| text.contains('\0')) {
        return Err(bad("a name has a NUL"));
    }
    Ok(Spec { name, kind, unit: kept(&unit), source: kept(&source), help: kept(&help), absent })
}

fn plain<'py>(py: Python<'py>, column: &Column, row: usize) -> PyResult<Bound<'py, PyAny>> {
    Ok(match column.cell(row) {
        Cell::Null => py.None().into_bound(py),
        Cell::U64(n) => n.into_pyobject(py)?.into_any(),
        Cell::I64(n) => n.into_pyobject(py)?.into_any(),
        Cell::F64(n) => n.into_pyobject(py)?.into_any(),
        Cell::Bool(b) => b.into_pyobject(py)?.to_owned().into_any(),
        Cell::Text(bytes) => PyBytes::new(py, bytes).into_any(),
        Cell::TextList(texts) => {
            PyList::new(py, texts.iter().map(|t| PyBytes::new(py, t)))?.into_any()
        }
        Cell::U32List(ids) => PyList::new(py, ids)?.into_any(),
    })
}

/// A value of a pickle, which a [`Cell`] borrows.
enum Value {
    Null,
    U64(u64),
    I64(i64),
    F64(f64),
    Bool(bool),
    Text(Vec<u8>),
    TextList(Vec<Vec<u8>>),
    U32List(Vec<u32>),
}

impl Value {
    fn of(given: &Bound<'_, PyAny>, kind: Type) -> PyResult<Value> {
        if given.is_none() {
            return Ok(Value::Null);
        }
        let bytes = |b: &Bound<'_, PyAny>| Ok(b.cast::<PyBytes>()?.as_bytes().to_vec());
        let got = || -> PyResult<Value> {
            Ok(match kind {
                Type::U64 => Value::U64(given.extract()?),
                Type::I64 | Type::Duration | Type::Timestamp => Value::I64(given.extract()?),
                Type::F64 => Value::F64(given.extract()?),
                Type::Bool => Value::Bool(given.extract()?),
                Type::Text => Value::Text(bytes(given)?),
                Type::TextList => {
                    let list = given.cast::<PyList>()?;
                    Value::TextList(list.iter().map(|b| bytes(&b)).collect::<PyResult<_>>()?)
                }
                Type::U32List => Value::U32List(given.extract()?),
            })
        };
        got().map_err(|_| bad("a value has the wrong type"))
    }
    fn cell(&self) -> Cell<'_> {
        match self {
            Value::Null => Cell::Null,
            Value::U64(n) => Cell::U64(*n),
            Value::I64(n) => Cell::I64(*n),
            Value::F64(n) => Cell::F64(*n),
            Value::Bool(b) => Cell::Bool(*b),
            Value::Text(bytes) => Cell::Text(bytes),
            Value::TextList(texts) => Cell::TextList(texts.iter().map(Vec::as_slice).collect()),
            Value::U32List(ids) => Cell::U32List(ids),
        }
    }
}

/// The parts of an answer other than its rows: tasks that are left out, processes that do not
/// exist, remarks, engines, an errno, and the bytes of its head.
type Rest = (
    Vec<(String, String, u64)>,
    Vec<u32>,
    Vec<(String, bool)>,
    Vec<(String, String, String, u64)>,
    i32,
    Option<Vec<u8>>,
);

/// The head of an answer from a pickle. Bytes that a shorter one lacks are zeroes, which stand for
/// values that are not known.
fn head(mut bytes: Vec<u8>) -> Option<Info> {
    bytes.resize(size_of::<Info>(), 0);
    Info::read_from_prefix(&bytes).map(|(info, _)| info)
}

/// A function and its arguments that make the table again.
pub fn reduced<'py>(py: Python<'py>, made: &TableData) -> PyResult<Bound<'py, PyTuple>> {
    let specs: Vec<SpecState> = made.shared.specs.iter().map(spec_state).collect();
    let columns = PyList::empty(py);
    for c in 0..specs.len() {
        let values = PyList::empty(py);
        for batch in &made.shared.batches {
            (0..batch.rows).try_for_each(|r| values.append(plain(py, &batch.columns[c], r)?))?;
        }
        columns.append(values)?;
    }
    let lacks: Vec<Vec<(u32, &str)>> = made
        .lacks
        .iter()
        .map(|lacks| lacks.iter().map(|(row, why)| (*row, why.name())).collect())
        .collect();
    let left = made.left.iter().map(|(c, why, n)| ((*c).to_owned(), why.name().to_owned(), *n));
    let served = made.served.iter().map(|(engine, groups, why, took)| {
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        ((*engine).to_owned(), groups.clone(), why.clone(), ns)
    });
    let rest: Rest = (
        left.collect(),
        made.nobody.clone(),
        made.caveats.clone(),
        served.collect(),
        made.errno,
        made.info.as_ref().map(|info| info.as_bytes().to_vec()),
    );
    let state = (FORM, specs, columns, lacks, rest).into_pyobject(py)?;
    let restore = py.import("taskdiag._native")?.getattr("_table")?;
    (restore, state).into_pyobject(py)
}

/// A table that was pickled. Private: pickles name it.
#[pyfunction]
pub fn _table(
    form: u32,
    specs: Vec<SpecState>,
    columns: Vec<Bound<'_, PyList>>,
    lacks: Vec<Vec<(u32, String)>>,
    rest: Rest,
) -> PyResult<Table> {
    if form != FORM {
        return Err(bad("it was made by a later version"));
    }
    if columns.len() != specs.len() || lacks.len() != specs.len() {
        return Err(bad("columns are missing"));
    }
    let rows = columns.first().map_or(0, |c| c.len());
    if columns.iter().any(|c| c.len() != rows) || u32::try_from(rows).is_err() {
        return Err(bad("the columns differ in length"));
    }
    let specs = specs.into_iter().map(spec).collect::<PyResult<Vec<Spec>>>()?;
    let kinds: Vec<Type> = specs.iter().map(|s| s.kind).collect();
    let mut whys = Vec::new();
    for of_column in lacks {
        let mut list = Vec::new();
        for (row, why) in of_column {
            list.push((row, missing(&why)?));
        }
        if !list.is_sorted_by(|(a, _), (b, _)| a < b) {
            return Err(bad("reasons are not in order"));
        }
        whys.push(list.into_iter().peekable());
    }
    let mut builder = Builder::new(specs);
    for row in 0..rows {
        let mut values = Vec::with_capacity(kinds.len());
        for (column, kind) in columns.iter().zip(&kinds) {
            values.push(Value::of(&column.get_item(row)?, *kind)?);
        }
        let pushed = builder.push_cells(|c| {
            let why = whys[c].next_if(|(at, _)| *at as usize == row).map(|(_, why)| why);
            (values[c].cell(), why)
        });
        pushed.map_err(|_| bad("a value does not fit"))?;
    }
    let (specs, batches, lacks) = builder.finish();
    let (left, nobody, caveats, served, errno, info) = rest;
    let left = left.into_iter().map(|(c, why, n)| Ok((kept(&c), missing(&why)?, n)));
    let left = left.collect::<PyResult<Vec<_>>>()?;
    let served = served
        .into_iter()
        .map(|(engine, groups, why, ns)| (kept(&engine), groups, why, Duration::from_nanos(ns)))
        .collect();
    let shared = Arc::new(Shared { specs, batches });
    Ok(Table::new(TableData {
        shared,
        lacks,
        left,
        nobody,
        caveats,
        served,
        errno,
        info: info.and_then(head),
    }))
}

/// A description of a column that was pickled. Private: pickles name it.
#[pyfunction]
pub fn _column(
    name: String,
    kind: &str,
    unit: Option<&str>,
    source: &str,
    help: &str,
    aliases: Vec<String>,
) -> PyResult<ColumnInfo> {
    let kind = TYPES.into_iter().find(|t| t.name() == kind).ok_or_else(|| bad("a type"))?;
    let aliases = aliases.iter().map(|a| kept(a)).collect();
    Ok(ColumnInfo::whole(name, kind.name(), unit.map(kept), kept(source), kept(help), aliases))
}
