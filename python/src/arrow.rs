// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Arrow C data and stream interfaces, by hand: a table is given to polars, pandas, duckdb or
//! pyarrow as it lies in memory. <https://arrow.apache.org/docs/format/CDataInterface.html> has the rules.
//!
//! The crate arrow-array has these interfaces, too, but makes this module a fifth larger: 5.6 MB
//! instead of 4.7. So they are written here, and the package does not use `taskdiag-face`.
//!
//! An exported array keeps the batches of its table alive, and its release callback lets go of
//! them. A callback may run in any thread, with or without the GIL, so none of them touches Python.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::{NonNull, null, null_mut};
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use pyo3::{exceptions, ffi};

use taskdiag::columns::{Batch, Column, Data, Spec, Text, Texts, Type};

/// `struct ArrowSchema`.
#[repr(C)]
pub struct Schema {
    format: *const c_char,
    name: *const c_char,
    metadata: *const c_char,
    flags: i64,
    n_children: i64,
    children: *mut *mut Schema,
    dictionary: *mut Schema,
    release: Option<unsafe extern "C" fn(*mut Schema)>,
    private_data: *mut c_void,
}

/// `struct ArrowArray`.
#[repr(C)]
pub struct Array {
    length: i64,
    null_count: i64,
    offset: i64,
    n_buffers: i64,
    n_children: i64,
    buffers: *mut *const c_void,
    children: *mut *mut Array,
    dictionary: *mut Array,
    release: Option<unsafe extern "C" fn(*mut Array)>,
    private_data: *mut c_void,
}

/// `struct ArrowArrayStream`.
#[repr(C)]
pub struct Stream {
    get_schema: Option<unsafe extern "C" fn(*mut Stream, *mut Schema) -> c_int>,
    get_next: Option<unsafe extern "C" fn(*mut Stream, *mut Array) -> c_int>,
    get_last_error: Option<unsafe extern "C" fn(*mut Stream) -> *const c_char>,
    release: Option<unsafe extern "C" fn(*mut Stream)>,
    private_data: *mut c_void,
}

const NULLABLE: i64 = 2;

/// The shared data of a table: its columns and rows, which do not change any more.
#[derive(Debug)]
pub struct Shared {
    /// What the columns are.
    pub specs: Vec<Spec>,
    /// The rows.
    pub batches: Vec<Batch>,
}

// --- schema ---

/// The private data of a schema.
struct SchemaOwned {
    format: CString,
    name: CString,
    metadata: Vec<u8>,
    children: Vec<*mut Schema>,
}

impl Schema {
    /// A schema that owns its children. `format` and `name` have no NUL.
    fn new(
        format: &str,
        name: &str,
        flags: i64,
        metadata: &[(&str, &str)],
        children: Vec<Schema>,
    ) -> Schema {
        // A column's name comes from the field table, so that it has no NUL.
        let c_string = |s: &str| CString::new(s).unwrap_or_default();
        let owned = Box::new(SchemaOwned {
            format: c_string(format),
            name: c_string(name),
            metadata: encode(metadata),
            children: children.into_iter().map(|c| Box::into_raw(Box::new(c))).collect(),
        });
        let owned = Box::into_raw(owned);
        // SAFETY: it was just made, and nobody else has it.
        let o = unsafe { &mut *owned };
        Schema {
            format: o.format.as_ptr(),
            name: o.name.as_ptr(),
            metadata: if o.metadata.is_empty() { null() } else { o.metadata.as_ptr().cast() },
            flags,
            n_children: o.children.len() as i64,
            children: if o.children.is_empty() { null_mut() } else { o.children.as_mut_ptr() },
            dictionary: null_mut(),
            release: Some(release_schema),
            private_data: owned.cast(),
        }
    }
    /// The schema of a table: a struct with a member for each column. `binary`: text is given as
    /// bytes.
    pub fn of(specs: &[Spec], binary: bool) -> Schema {
        let text = if binary { "z" } else { "u" };
        let column = |s: &Spec| {
            let (format, item) = match s.kind {
                Type::U64 => ("L", None),
                Type::I64 => ("l", None),
                Type::F64 => ("g", None),
                Type::Bool => ("b", None),
                Type::Duration => ("tDn", None),
                Type::Timestamp => ("tsu:UTC", None),
                Type::Text => (text, None),
                Type::TextList => ("+l", Some(text)),
                Type::U32List => ("+l", Some("I")),
            };
            let child = item.map(|f| Schema::new(f, "item", 0, &[], Vec::new()));
            let mut metadata = vec![("taskdiag.help", s.help), ("taskdiag.source", s.source)];
            // The unit of a duration or a moment is a part of Arrow's type.
            if !s.unit.is_empty() && !matches!(s.kind, Type::Duration | Type::Timestamp) {
                metadata.push(("taskdiag.unit", s.unit));
            }
            Schema::new(format, &s.name, NULLABLE, &metadata, child.into_iter().collect())
        };
        Schema::new("+s", "", 0, &[], specs.iter().map(column).collect())
    }
}

/// Pairs of strings in the format of the interface: their number, then each with its length before
/// it.
fn encode(pairs: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    if pairs.is_empty() {
        return out;
    }
    out.extend_from_slice(&(pairs.len() as i32).to_ne_bytes());
    for text in pairs.iter().flat_map(|(k, v)| [k, v]) {
        out.extend_from_slice(&(text.len() as i32).to_ne_bytes());
        out.extend_from_slice(text.as_bytes());
    }
    out
}

/// Releases a schema and those of its children that were not moved away.
unsafe extern "C" fn release_schema(schema: *mut Schema) {
    // SAFETY: the consumer gives a schema that we made and that was not released; this runs once
    // for each, as `release` is cleared.
    unsafe {
        let owned = Box::from_raw((*schema).private_data.cast::<SchemaOwned>());
        for child in &owned.children {
            if let Some(release) = (**child).release {
                release(*child);
            }
            drop(Box::from_raw(*child));
        }
        (*schema).release = None;
        (*schema).private_data = null_mut();
    }
}

// --- arrays ---

/// The private data of an array.
struct ArrayOwned {
    /// Keeps the buffers alive.
    _table: Arc<Shared>,
    buffers: Vec<*const c_void>,
    children: Vec<*mut Array>,
}

impl Array {
    /// An array of these buffers of a table, and of these children.
    fn new(
        table: &Arc<Shared>,
        length: usize,
        nulls: usize,
        buffers: Vec<*const c_void>,
        children: Vec<Array>,
    ) -> Array {
        let owned = Box::into_raw(Box::new(ArrayOwned {
            _table: Arc::clone(table),
            buffers,
            children: children.into_iter().map(|c| Box::into_raw(Box::new(c))).collect(),
        }));
        // SAFETY: it was just made, and nobody else has it.
        let o = unsafe { &mut *owned };
        Array {
            length: length as i64,
            null_count: nulls as i64,
            offset: 0,
            n_buffers: o.buffers.len() as i64,
            n_children: o.children.len() as i64,
            buffers: o.buffers.as_mut_ptr(),
            children: if o.children.is_empty() { null_mut() } else { o.children.as_mut_ptr() },
            dictionary: null_mut(),
            release: Some(release_array),
            private_data: owned.cast(),
        }
    }
    /// A batch of a table.
    fn of(table: &Arc<Shared>, batch: &Batch, binary: bool) -> Array {
        let column = |c: &Column| Array::of_column(table, c, binary);
        let children = batch.columns.iter().map(column).collect();
        Array::new(table, batch.rows, 0, vec![null()], children)
    }
    fn of_column(table: &Arc<Shared>, column: &Column, binary: bool) -> Array {
        let validity = match column.validity.is_empty() {
            true => null(),
            false => column.validity.as_ptr().cast(),
        };
        let texts = |t| if binary { raw(t) } else { Text::utf8(t) };
        let (values, child): (Vec<*const c_void>, Option<Array>) = match &column.data {
            Data::U64(v) => (vec![v.as_ptr().cast()], None),
            Data::I64(v) => (vec![v.as_ptr().cast()], None),
            Data::F64(v) => (vec![v.as_ptr().cast()], None),
            Data::Bool(v, _) => (vec![v.as_ptr().cast()], None),
            Data::Text(t) => (text_buffers(texts(t)), None),
            Data::TextList(offsets, t) => {
                let t = texts(t);
                let buffers = [vec![null()], text_buffers(t)].concat();
                let child = Array::new(table, t.len(), 0, buffers, Vec::new());
                (vec![offsets.as_ptr().cast()], Some(child))
            }
            Data::U32List(offsets, v) => {
                let buffers = vec![null(), v.as_ptr().cast()];
                let child = Array::new(table, v.len(), 0, buffers, Vec::new());
                (vec![offsets.as_ptr().cast()], Some(child))
            }
        };
        let buffers = [vec![validity], values].concat();
        Array::new(table, column.len(), column.nulls.len(), buffers, child.into_iter().collect())
    }
}

fn raw(t: &Text) -> &Texts {
    &t.raw
}

fn text_buffers(t: &Texts) -> Vec<*const c_void> {
    vec![t.offsets.as_ptr().cast(), t.bytes.as_ptr().cast()]
}

/// Releases an array and those of its children that were not moved away.
unsafe extern "C" fn release_array(array: *mut Array) {
    // SAFETY: as for `release_schema`.
    unsafe {
        let owned = Box::from_raw((*array).private_data.cast::<ArrayOwned>());
        for child in &owned.children {
            if let Some(release) = (**child).release {
                release(*child);
            }
            drop(Box::from_raw(*child));
        }
        (*array).release = None;
        (*array).private_data = null_mut();
    }
}

// --- stream ---

/// The private data of a stream.
struct StreamOwned {
    table: Arc<Shared>,
    next: usize,
    binary: bool,
}

impl Stream {
    fn new(table: &Arc<Shared>, binary: bool) -> Stream {
        let owned = Box::new(StreamOwned { table: Arc::clone(table), next: 0, binary });
        Stream {
            get_schema: Some(get_schema),
            get_next: Some(get_next),
            get_last_error: Some(get_last_error),
            release: Some(release_stream),
            private_data: Box::into_raw(owned).cast(),
        }
    }
}

unsafe extern "C" fn get_schema(stream: *mut Stream, out: *mut Schema) -> c_int {
    // SAFETY: the consumer gives a stream that we made and that was not released, and room for a
    // schema.
    unsafe {
        let owned = &*(*stream).private_data.cast::<StreamOwned>();
        out.write(Schema::of(&owned.table.specs, owned.binary));
    }
    0
}

unsafe extern "C" fn get_next(stream: *mut Stream, out: *mut Array) -> c_int {
    // SAFETY: as for `get_schema`; a consumer calls it from one thread at a time.
    unsafe {
        let owned = &mut *(*stream).private_data.cast::<StreamOwned>();
        match owned.table.batches.get(owned.next) {
            Some(batch) => {
                owned.next += 1;
                out.write(Array::of(&owned.table, batch, owned.binary));
            }
            // A released array marks the end. All zeroes are a released array.
            None => out.write_bytes(0, 1),
        }
    }
    0
}

/// Nothing here fails.
unsafe extern "C" fn get_last_error(_: *mut Stream) -> *const c_char {
    null()
}

unsafe extern "C" fn release_stream(stream: *mut Stream) {
    // SAFETY: as for `release_schema`.
    unsafe {
        drop(Box::from_raw((*stream).private_data.cast::<StreamOwned>()));
        (*stream).release = None;
        (*stream).private_data = null_mut();
    }
}

// --- capsules ---

/// A structure of the interface, which a capsule owns.
trait Exported: Sized {
    const NAME: &'static CStr;
    /// Releases what it points to, if no consumer has moved it away or released it.
    unsafe fn release_once(this: *mut Self);
}

impl Exported for Schema {
    const NAME: &'static CStr = c"arrow_schema";
    unsafe fn release_once(this: *mut Schema) {
        // SAFETY: the caller has a structure that is there.
        unsafe { (*this).release.into_iter().for_each(|release| release(this)) }
    }
}

impl Exported for Stream {
    const NAME: &'static CStr = c"arrow_array_stream";
    unsafe fn release_once(this: *mut Stream) {
        // SAFETY: as above.
        unsafe { (*this).release.into_iter().for_each(|release| release(this)) }
    }
}

/// Python calls this when the last reference to the capsule is gone.
unsafe extern "C" fn destroy<T: Exported>(capsule: *mut ffi::PyObject) {
    // SAFETY: the capsule was made by `capsule` below with this name and a box of this type.
    unsafe {
        let this = ffi::PyCapsule_GetPointer(capsule, T::NAME.as_ptr()).cast::<T>();
        if this.is_null() {
            // Another program has renamed the capsule, and so taken over its content.
            ffi::PyErr_Clear();
            return;
        }
        T::release_once(this);
        drop(Box::from_raw(this));
    }
}

fn capsule<T: Exported>(py: Python<'_>, value: T) -> PyResult<Bound<'_, PyCapsule>> {
    let pointer = NonNull::from(Box::leak(Box::new(value)));
    // SAFETY: the capsule owns the box, and `destroy` frees it.
    let made = unsafe {
        PyCapsule::new_with_pointer_and_destructor(py, pointer.cast(), T::NAME, Some(destroy::<T>))
    };
    made.inspect_err(|_| {
        // SAFETY: no capsule has it.
        unsafe {
            T::release_once(pointer.as_ptr());
            drop(Box::from_raw(pointer.as_ptr()));
        }
    })
}

/// The schema of a table.
pub fn schema<'py>(
    py: Python<'py>,
    table: &Shared,
    binary: bool,
) -> PyResult<Bound<'py, PyCapsule>> {
    capsule(py, Schema::of(&table.specs, binary))
}

/// The rows of a table. A consumer may want another schema, and has to take ours.
pub fn stream<'py>(
    py: Python<'py>,
    table: &Arc<Shared>,
    requested: Option<&Bound<'py, PyAny>>,
    binary: bool,
) -> PyResult<Bound<'py, PyCapsule>> {
    if let Some(other) = requested.filter(|r| !r.is_none()) {
        // It is only a preference, but anything other than a schema is an error of the caller.
        let capsule = other.cast::<PyCapsule>()?;
        if !capsule.is_valid_checked(Some(Schema::NAME)) {
            let why = "requested_schema must be a capsule named arrow_schema";
            return Err(exceptions::PyValueError::new_err(why));
        }
    }
    capsule(py, Stream::new(table, binary))
}
