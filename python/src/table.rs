// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rows of an answer as Python sees them.

use pyo3::exceptions::{PyIndexError, PyKeyError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyList, PyString, PyTuple};
use taskdiag::Host;
use taskdiag::field::{Field, Missing};
use taskdiag::wire::Info;

use crate::arrow;
use crate::ask::Made;
use taskdiag::columns::{Batch, Column, Data, Spec, Text, Type};

/// What a column is.
#[pyclass(frozen, module = "taskdiag", name = "Column", get_all)]
#[derive(Debug)]
pub struct ColumnInfo {
    /// Its name.
    name: String,
    /// The Arrow type of its values.
    r#type: &'static str,
    /// The unit of its values, or None.
    unit: Option<&'static str>,
    /// The kernel field or file.
    source: &'static str,
    /// What it is.
    help: &'static str,
    /// Other names for it.
    aliases: Vec<&'static str>,
}

impl ColumnInfo {
    fn new(s: &Spec, aliases: Vec<&'static str>) -> ColumnInfo {
        ColumnInfo {
            name: s.name.clone(),
            r#type: s.kind.name(),
            unit: (!s.unit.is_empty()).then_some(s.unit),
            source: s.source,
            help: s.help,
            aliases,
        }
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
}

/// Rows of an answer.
#[pyclass(frozen, module = "taskdiag", weakref)]
#[derive(Debug)]
pub struct Table {
    made: Made,
    rows: usize,
}

impl Table {
    /// A table of these rows.
    pub fn new(made: Made) -> Table {
        let rows = made.shared.batches.iter().map(|b| b.rows).sum();
        Table { made, rows }
    }
    fn specs(&self) -> &[Spec] {
        &self.made.shared.specs
    }
    fn place(&self, name: &str) -> PyResult<usize> {
        let at = self.specs().iter().position(|s| s.name == name);
        at.ok_or_else(|| PyKeyError::new_err(format!("the table has no column '{name}'")))
    }
    /// Calls `f` with each row of each batch.
    fn each(&self, mut f: impl FnMut(&Batch, usize) -> PyResult<()>) -> PyResult<()> {
        let batches = self.made.shared.batches.iter();
        batches.flat_map(|b| (0..b.rows).map(move |r| (b, r))).try_for_each(|(b, r)| f(b, r))
    }
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
    /// The properties of the columns: types and units.
    #[getter]
    fn schema(&self) -> Vec<ColumnInfo> {
        self.specs().iter().map(|s| ColumnInfo::new(s, Vec::new())).collect()
    }
    /// The values of a column.
    fn __getitem__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyList>> {
        let at = self.place(name)?;
        let list = PyList::empty(py);
        for batch in &self.made.shared.batches {
            column_values(py, &self.specs()[at], &batch.columns[at], &list)?;
        }
        Ok(list)
    }
    fn __contains__(&self, name: &str) -> bool {
        self.place(name).is_ok()
    }
    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(self.rows(py)?.into_any().try_iter()?.into_any())
    }
    /// The rows as tuples.
    fn rows<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        self.each(|b, r| {
            let columns = self.specs().iter().zip(&b.columns);
            let row: PyResult<Vec<_>> = columns.map(|(s, c)| value(py, s, c, r)).collect();
            list.append(PyTuple::new(py, row?)?)
        })?;
        Ok(list)
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
    fn why(&self, row: isize, column: &str) -> PyResult<Option<&'static str>> {
        let at = self.place(column)?;
        let rows = self.rows as isize;
        let row = if row < 0 { row + rows } else { row };
        if !(0..rows).contains(&row) {
            return Err(PyIndexError::new_err(format!("the table has {rows} rows")));
        }
        let lacks = &self.made.lacks[at];
        let found = lacks.binary_search_by_key(&(row as u32), |(r, _)| *r);
        Ok(found.ok().map(|i| lacks[i].1.name()))
    }
    /// The rows of a column whose value is missing or incomplete, with the reason. `absent`:
    /// include tasks that cannot have the value.
    #[pyo3(signature = (column, absent=false))]
    fn lacks<'py>(
        &self,
        py: Python<'py>,
        column: &str,
        absent: bool,
    ) -> PyResult<Bound<'py, PyDict>> {
        let rows = PyDict::new(py);
        let lacks = self.made.lacks[self.place(column)?].iter();
        lacks
            .filter(|(_, why)| absent || !why.is_absent())
            .try_for_each(|(row, why)| rows.set_item(row, why.name()))?;
        Ok(rows)
    }
    /// How many values are missing in each column, and why. Values that a task cannot have do not
    /// count.
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
    /// Remarks about the answer for users.
    #[getter]
    fn caveats(&self) -> Vec<&str> {
        self.made.caveats.iter().map(|(text, _)| text.as_str()).collect()
    }
    /// The engines with their groups, reasons and seconds.
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
    /// The machine that the rows are of, and when: host, kernel, arch, boot_id, cpus, memory, time
    /// and uptime. What is not known is None.
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
