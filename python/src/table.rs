// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rows of an answer as Python sees them.

use std::sync::Arc;

use pyo3::exceptions::{PyIndexError, PyKeyError, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCapsule, PyDict, PyList, PySlice, PyString, PyTuple};
use taskdiag::Host;
use taskdiag::columns::{Batch, Builder, Column, Data, Spec, Text, Type};
use taskdiag::field::{Field, Missing};
use taskdiag::wire::Info;

use crate::args;
use crate::arrow::{self, Shared};
use crate::ask::TableData;
use crate::pickled;

/// The type and the unit of a column.
#[pyclass(frozen, module = "taskdiag", name = "Column", get_all)]
#[derive(Debug)]
pub struct ColumnInfo {
    /// Its name.
    name: String,
    /// The Arrow type of its values.
    r#type: &'static str,
    /// The unit of its values, or None.
    unit: Option<&'static str>,
    /// The source: a file of /proc, or a member of a struct of the kernel.
    source: &'static str,
    /// What it is.
    help: &'static str,
    /// Other names for it, among them those of ps -o.
    aliases: Vec<&'static str>,
}

impl ColumnInfo {
    fn new(s: &Spec, aliases: Vec<&'static str>) -> ColumnInfo {
        let unit = (!s.unit.is_empty()).then_some(s.unit);
        ColumnInfo::whole(s.name.clone(), s.kind.name(), unit, s.source, s.help, aliases)
    }
    /// A column with all of these.
    pub fn whole(
        name: String,
        r#type: &'static str,
        unit: Option<&'static str>,
        source: &'static str,
        help: &'static str,
        aliases: Vec<&'static str>,
    ) -> ColumnInfo {
        ColumnInfo { name, r#type, unit, source, help, aliases }
    }
    /// A column that can be asked for.
    pub fn of(field: &'static Field) -> ColumnInfo {
        let aliases = field.aliases.iter().map(|(name, _)| *name).collect();
        ColumnInfo::new(&Spec::of(field.name, field), aliases)
    }
}

#[pymethods]
impl ColumnInfo {
    fn __repr__(&self) -> String {
        let unit = self.unit.map_or_else(String::new, |u| format!(" in {u}"));
        format!("<taskdiag.Column {}: {}{unit}>", self.name, self.r#type)
    }
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let make = py.import("taskdiag._native")?.getattr("_column")?;
        let of = (&self.name, self.r#type, self.unit, self.source, self.help, &self.aliases);
        (make, of).into_pyobject(py)
    }
}

/// Rows of an answer, in columns.
///
/// table["rss"] is the list of a column, table[0] and table[-1] are rows, and table[:10] is a table
/// of some rows. A table can be pickled, and a notebook shows its first rows.
///
/// polars.DataFrame(table), pyarrow.table(table), pandas.DataFrame.from_arrow(table),
/// duckdb.sql("from name_of_table") and nanoarrow.ArrayStream(table) read it as it lies in memory.
/// Arrow has text as UTF-8, with U+FFFD for other bytes; `binary` has the bytes. table.to_pandas()
/// makes a data frame, and keeps numbers whole where some are not known.
///
/// As Python objects, durations are seconds, moments are seconds since 1970, and text that is not
/// UTF-8 has lone surrogates, so that os.fsencode() gives its bytes back. None stands for a value
/// that is not known, or that the task does not have: `why()` tells which.
#[pyclass(frozen, module = "taskdiag", weakref)]
pub struct Table {
    made: TableData,
    rows: usize,
    /// The class of the rows as Python objects.
    class: PyOnceLock<Py<PyAny>>,
}

impl Table {
    /// A table of these rows.
    pub fn new(made: TableData) -> Table {
        let rows = made.shared.batches.iter().map(|b| b.rows).sum();
        Table { made, rows, class: PyOnceLock::new() }
    }
    /// How many rows it has.
    pub fn rows(&self) -> usize {
        self.rows
    }
    fn specs(&self) -> &[Spec] {
        &self.made.shared.specs
    }
    fn place(&self, name: &str) -> PyResult<usize> {
        let at = self.specs().iter().position(|s| s.name == name);
        at.ok_or_else(|| PyKeyError::new_err(format!("the table has no column '{name}'")))
    }
    /// The batch with a row, and its number there.
    fn find(&self, mut row: usize) -> Option<(&Batch, usize)> {
        self.made.shared.batches.iter().find_map(|batch| match row.checked_sub(batch.rows) {
            None => Some((batch, row)),
            Some(later) => {
                row = later;
                None
            }
        })
    }
    /// The number of a row that may be counted from the end.
    fn row_at(&self, row: i64) -> PyResult<usize> {
        let row = if row < 0 { row + self.rows as i64 } else { row };
        let row = usize::try_from(row).ok().filter(|row| *row < self.rows);
        row.ok_or_else(|| PyIndexError::new_err(format!("the table has {} rows", self.rows)))
    }
    /// A table of these rows. What is known about the whole answer stays.
    fn take(&self, rows: impl Iterator<Item = usize>) -> Table {
        let mut builder = Builder::new(self.specs().to_vec());
        for row in rows {
            let Some((batch, at)) = self.find(row) else { continue };
            let pushed = builder.push_cells(|c| {
                let lacks = &self.made.lacks[c];
                let found = lacks.binary_search_by_key(&(row as u32), |(r, _)| *r);
                (batch.columns[c].cell(at), found.ok().map(|i| lacks[i].1))
            });
            debug_assert!(pushed.is_ok(), "the columns are the same");
        }
        let (specs, batches, lacks) = builder.finish();
        let m = &self.made;
        Table::new(TableData {
            shared: Arc::new(Shared { specs, batches }),
            lacks,
            left: m.left.clone(),
            nobody: m.nobody.clone(),
            caveats: m.caveats.clone(),
            served: m.served.clone(),
            errno: m.errno,
            info: m.info,
        })
    }
    /// Makes rows of Python from tuples.
    fn maker<'py>(&self, py: Python<'py>) -> PyResult<Maker<'py>> {
        let class = self.class.get_or_try_init(py, || {
            let make = py.import("taskdiag._rows")?.getattr("row_class")?;
            make.call1((self.columns(),)).map(Bound::unbind)
        })?;
        let new = py.get_type::<PyTuple>().getattr("__new__")?;
        Ok(Maker { new, class: class.bind(py).clone() })
    }
    fn row<'py>(
        &self,
        py: Python<'py>,
        maker: &Maker<'py>,
        batch: &Batch,
        row: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        let columns = self.specs().iter().zip(&batch.columns);
        let values: PyResult<Vec<_>> = columns.map(|(s, c)| value(py, s, c, row)).collect();
        maker.new.call1((&maker.class, PyTuple::new(py, values?)?))
    }
    /// Calls `f` with each row of each batch.
    fn each(&self, mut f: impl FnMut(&Batch, usize) -> PyResult<()>) -> PyResult<()> {
        let batches = self.made.shared.batches.iter();
        batches.flat_map(|b| (0..b.rows).map(move |r| (b, r))).try_for_each(|(b, r)| f(b, r))
    }
}

/// Makes rows of Python.
struct Maker<'py> {
    /// `tuple.__new__`
    new: Bound<'py, PyAny>,
    class: Bound<'py, PyAny>,
}

/// The beginning of a text: at most this many bytes, and only whole characters.
fn beginning(bytes: &[u8], most: usize) -> &[u8] {
    let Some(next) = bytes.get(most) else { return bytes };
    let mut end = most;
    if next & 0xc0 == 0x80 {
        // A character has at most three bytes after the first.
        let first = (most.saturating_sub(3)..most).rev().find(|i| bytes[*i] & 0xc0 != 0x80);
        end = first.unwrap_or(most);
    }
    &bytes[..end]
}

/// Text in Python's form for names of the system: invalid bytes are lone surrogates, so that
/// `os.fsencode()` restores the bytes.
pub fn text<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    match std::str::from_utf8(bytes) {
        Ok(s) => Ok(PyString::new(py, s).into_any()),
        Err(_) => PyString::from_encoded_object(
            &pyo3::types::PyBytes::new(py, bytes),
            Some(c"utf-8"),
            Some(c"surrogateescape"),
        )
        .map(Bound::into_any),
    }
}

fn texts<'py>(py: Python<'py>, t: &Text, from: i32, to: i32) -> PyResult<Bound<'py, PyAny>> {
    let list: PyResult<Vec<_>> = (from..to).map(|i| text(py, t.raw.get(i as usize))).collect();
    Ok(PyList::new(py, list?)?.into_any())
}

fn value<'py>(
    py: Python<'py>,
    spec: &Spec,
    column: &Column,
    row: usize,
) -> PyResult<Bound<'py, PyAny>> {
    if column.is_null(row) {
        return Ok(py.None().into_bound(py));
    }
    Ok(match &column.data {
        Data::U64(v) => v[row].into_pyobject(py)?.into_any(),
        Data::I64(v) => match spec.kind {
            Type::Duration => (v[row] as f64 / 1e9).into_pyobject(py)?.into_any(),
            Type::Timestamp => (v[row] as f64 / 1e6).into_pyobject(py)?.into_any(),
            _ => v[row].into_pyobject(py)?.into_any(),
        },
        Data::F64(v) => v[row].into_pyobject(py)?.into_any(),
        Data::Bool(bits, _) => {
            (bits[row / 8] >> (row % 8) & 1 == 1).into_pyobject(py)?.to_owned().into_any()
        }
        Data::Text(t) => text(py, t.raw.get(row))?,
        Data::TextList(offsets, t) => texts(py, t, offsets[row], offsets[row + 1])?,
        Data::U32List(offsets, v) => {
            let (from, to) = (offsets[row] as usize, offsets[row + 1] as usize);
            PyList::new(py, &v[from..to])?.into_any()
        }
    })
}

/// Appends the values of a column.
fn column_values<'py>(
    py: Python<'py>,
    spec: &Spec,
    column: &Column,
    list: &Bound<'py, PyList>,
) -> PyResult<()> {
    match &column.data {
        Data::U64(v) if column.nulls.is_empty() => v.iter().try_for_each(|n| list.append(n)),
        Data::Text(t) => {
            // Neighbours often have the same text, and can have the same object.
            let mut last: Option<(&[u8], Bound<'py, PyAny>)> = None;
            (0..t.raw.len()).try_for_each(|row| {
                let bytes = t.raw.get(row);
                if column.is_null(row) {
                    return list.append(py.None());
                }
                let made = match &last {
                    Some((same, made)) if *same == bytes => made.clone(),
                    _ => text(py, bytes)?,
                };
                list.append(&made)?;
                last = Some((bytes, made));
                Ok(())
            })
        }
        _ => (0..column.len()).try_for_each(|row| list.append(value(py, spec, column, row)?)),
    }
}

#[pymethods]
impl Table {
    /// The table itself, because it never changes.
    fn __copy__(slf: Py<Self>) -> Py<Self> {
        slf
    }
    /// The same.
    #[pyo3(signature = (_memo, /))]
    fn __deepcopy__(slf: Py<Self>, _memo: &Bound<'_, PyAny>) -> Py<Self> {
        slf
    }
    fn __len__(&self) -> usize {
        self.rows
    }
    fn __repr__(&self) -> String {
        let names: Vec<&str> = self.specs().iter().map(|s| s.name.as_str()).collect();
        let rows = if self.rows == 1 { "row" } else { "rows" };
        format!("<taskdiag.Table of {} {rows}: {}>", self.rows, names.join(", "))
    }
    /// The names of the columns.
    #[getter]
    fn columns(&self) -> Vec<&str> {
        self.specs().iter().map(|s| s.name.as_str()).collect()
    }
    /// What the columns are: types and units.
    #[getter]
    fn schema(&self) -> Vec<ColumnInfo> {
        self.specs().iter().map(|s| ColumnInfo::new(s, Vec::new())).collect()
    }
    /// The values of a column, a row by its number, or a table of some rows.
    fn __getitem__<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if let Ok(name) = key.cast::<PyString>() {
            let at = self.place(&name.to_string_lossy())?;
            let list = PyList::empty(py);
            for batch in &self.made.shared.batches {
                column_values(py, &self.specs()[at], &batch.columns[at], &list)?;
            }
            return Ok(list.into_any());
        }
        if let Ok(slice) = key.cast::<PySlice>() {
            let i = slice.indices(self.rows as isize)?;
            let rows = (0..i.slicelength).map(|n| (i.start + n as isize * i.step) as usize);
            let table = py.detach(|| self.take(rows));
            return Ok(Bound::new(py, table)?.into_any());
        }
        if key.hasattr("__index__")? {
            let row = self.row_at(args::row(key)?)?;
            let (batch, at) = self.find(row).expect("the row is there");
            return self.row(py, &self.maker(py)?, batch, at);
        }
        Err(PyTypeError::new_err(format!(
            "a table takes the name of a column, the number of a row or a slice of rows, not {}",
            args::shown(key)
        )))
    }
    /// Is there a column of this name?
    fn __contains__(&self, name: &Bound<'_, PyAny>) -> bool {
        name.cast::<PyString>().is_ok_and(|name| self.place(&name.to_string_lossy()).is_ok())
    }
    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(self.py_rows(py)?.into_any().try_iter()?.into_any())
    }
    /// The rows as tuples, whose values also have the names of their columns: row.pid.
    #[pyo3(name = "rows")]
    fn py_rows<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        let maker = self.maker(py)?;
        self.each(|b, r| list.append(self.row(py, &maker, b, r)?))?;
        Ok(list)
    }
    /// The beginning of the first rows for `taskdiag._show`: at most this many bytes of a text, and
    /// this many texts and numbers of a list.
    fn _beginning<'py>(
        &self,
        py: Python<'py>,
        rows: usize,
        most: usize,
    ) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for row in 0..rows.min(self.rows) {
            let Some((batch, at)) = self.find(row) else { break };
            let values = self.specs().iter().zip(&batch.columns).map(|(spec, column)| {
                if column.is_null(at) {
                    return Ok(py.None().into_bound(py));
                }
                match &column.data {
                    Data::Text(t) => text(py, beginning(t.raw.get(at), most)),
                    Data::TextList(offsets, t) => {
                        let each = (offsets[at]..offsets[at + 1]).take(most);
                        let each = each.scan(0, |sum, i| {
                            let bytes = t.raw.get(i as usize);
                            let room = most.checked_sub(*sum).filter(|room| *room > 0)?;
                            *sum += bytes.len() + 1;
                            Some(text(py, beginning(bytes, room)))
                        });
                        Ok(PyList::new(py, each.collect::<PyResult<Vec<_>>>()?)?.into_any())
                    }
                    Data::U32List(offsets, v) => {
                        let (from, to) = (offsets[at] as usize, offsets[at + 1] as usize);
                        Ok(PyList::new(py, &v[from..to.min(from.saturating_add(most))])?.into_any())
                    }
                    _ => value(py, spec, column, at),
                }
            });
            list.append(PyTuple::new(py, values.collect::<PyResult<Vec<_>>>()?)?)?;
        }
        Ok(list)
    }
    /// The first rows for a terminal.
    fn __str__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("taskdiag._show")?.call_method1("text", (slf,))
    }
    /// The first rows for a notebook.
    fn _repr_html_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("taskdiag._show")?.call_method1("as_html", (slf,))
    }
    /// The table as a DataFrame of pandas, which must be installed. Numbers and truth values have
    /// types that can be NA, so that none becomes a fraction; durations and moments have the types
    /// of pandas.
    fn to_pandas<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("taskdiag._frames")?.call_method1("to_pandas", (slf,))
    }
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        pickled::reduced(py, &self.made)
    }
    /// The rows as dictionaries.
    fn to_dicts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let keys: Vec<_> = self.specs().iter().map(|s| PyString::intern(py, &s.name)).collect();
        let list = PyList::empty(py);
        self.each(|b, r| {
            let row = PyDict::new(py);
            for (i, spec) in self.specs().iter().enumerate() {
                row.set_item(&keys[i], value(py, spec, &b.columns[i], r)?)?;
            }
            list.append(row)
        })?;
        Ok(list)
    }
    /// Why a value is None or incomplete. None: it is complete.
    fn why(
        &self,
        #[pyo3(from_py_with = args::row)] row: i64,
        #[pyo3(from_py_with = args::column)] column: String,
    ) -> PyResult<Option<&'static str>> {
        let at = self.place(&column)?;
        let row = self.row_at(row)?;
        let lacks = &self.made.lacks[at];
        let found = lacks.binary_search_by_key(&(row as u32), |(r, _)| *r);
        Ok(found.ok().map(|i| lacks[i].1.name()))
    }
    /// Why rows lack the value of a column, or have only its beginning, by the number of the row.
    /// With `absent`, rows that have no such value are included.
    #[pyo3(signature = (column, absent=false))]
    fn lacks<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = args::column)] column: String,
        #[pyo3(from_py_with = args::flag)] absent: bool,
    ) -> PyResult<Bound<'py, PyDict>> {
        let rows = PyDict::new(py);
        let lacks = self.made.lacks[self.place(&column)?].iter();
        lacks
            .filter(|(_, why)| absent || !why.is_absent())
            .try_for_each(|(row, why)| rows.set_item(row, why.name()))?;
        Ok(rows)
    }
    /// How many values are lacking in which column, and why: denied, vanished, blocked, truncated,
    /// unsupported ... What a task just does not have, such as the program of a kernel thread, is
    /// not among them.
    #[getter]
    fn missing<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let all = PyDict::new(py);
        for (spec, lacks) in self.specs().iter().zip(&self.made.lacks) {
            let mut counts: Vec<(Missing, usize)> = Vec::new();
            for (_, why) in lacks.iter().filter(|(_, why)| !why.is_absent()) {
                match counts.iter_mut().find(|(w, _)| w == why) {
                    Some((_, n)) => *n += 1,
                    None => counts.push((*why, 1)),
                }
            }
            if !counts.is_empty() {
                let column = PyDict::new(py);
                counts.iter().try_for_each(|(why, n)| column.set_item(why.name(), n))?;
                all.set_item(&spec.name, column)?;
            }
        }
        Ok(all)
    }
    /// Tasks that the condition leaves out because it is not known whether they match: (column,
    /// why, how many).
    #[getter]
    fn left_out(&self) -> Vec<(&'static str, &'static str, u64)> {
        self.made.left.iter().map(|(column, why, n)| (*column, why.name(), *n)).collect()
    }
    /// Requested process ids that do not exist.
    #[getter]
    fn nobody(&self) -> Vec<u32> {
        self.made.nobody.clone()
    }
    /// Remarks about the answer.
    #[getter]
    fn caveats(&self) -> Vec<&str> {
        self.made.caveats.iter().map(|(text, _)| text.as_str()).collect()
    }
    /// The engines that answered: (engine, groups of values, why this engine, seconds).
    #[getter]
    fn served(&self) -> Vec<(&'static str, &str, &str, f64)> {
        let served = self.made.served.iter();
        served.map(|(e, g, w, t)| (*e, g.as_str(), w.as_str(), t.as_secs_f64())).collect()
    }
    /// Is the answer complete?
    #[getter]
    fn complete(&self) -> bool {
        let amiss = |l: &(u32, Missing)| l.1.is_amiss();
        self.made.errno == 0
            && self.made.left.is_empty()
            && self.made.nobody.is_empty()
            && !self.made.caveats.iter().any(|(_, lack)| *lack)
            && !self.made.lacks.iter().flatten().any(amiss)
    }
    /// The machine that the rows are of, and when: host, kernel, arch, boot_id (of this boot),
    /// cpus, memory (bytes), time (seconds since 1970) and uptime (seconds). What is not known is
    /// None.
    #[getter]
    fn info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let all = PyDict::new(py);
        let info = self.made.info;
        let host = info.as_ref().map_or_else(Host::default, Host::of);
        let named = [("host", host.name), ("kernel", host.kernel), ("arch", host.arch)];
        for (key, value) in named {
            all.set_item(key, value.map(|bytes| text(py, &bytes)).transpose()?)?;
        }
        all.set_item("boot_id", host.boot_id.map(|id| id.to_string()))?;
        let known = |number: fn(&Info) -> u64| info.as_ref().map(number).filter(|n| *n > 0);
        all.set_item("cpus", known(|i| u64::from(i.ncpus)))?;
        all.set_item("memory", known(|i| i.mem_total_bytes))?;
        let seconds = |ns: u64| ns as f64 / 1e9;
        all.set_item("time", known(|i| i.realtime_ns).map(seconds))?;
        all.set_item("uptime", known(|i| i.boottime_ns).map(seconds))?;
        Ok(all)
    }
    /// The errno of a walk that ended early, so that rows are missing. 0: it did not.
    #[getter]
    fn errno(&self) -> i32 {
        self.made.errno
    }
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        arrow::stream(py, &self.made.shared, requested_schema, false)
    }
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        arrow::schema(py, &self.made.shared, false)
    }
    /// The same rows, but Arrow gets text as the kernel's bytes.
    #[getter]
    fn binary(slf: Py<Self>) -> Binary {
        Binary { table: slf }
    }
}

/// A table whose text is bytes for Arrow.
#[pyclass(frozen, module = "taskdiag")]
#[derive(Debug)]
pub struct Binary {
    table: Py<Table>,
}

#[pymethods]
impl Binary {
    fn __repr__(&self) -> String {
        let of = self.table.get().__repr__();
        format!("<taskdiag.Binary of {of}>")
    }
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let get = py.import("builtins")?.getattr("getattr")?;
        (get, (self.table.clone_ref(py), "binary")).into_pyobject(py)
    }
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        arrow::stream(py, &self.table.get().made.shared, requested_schema, true)
    }
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        arrow::schema(py, &self.table.get().made.shared, true)
    }
}
