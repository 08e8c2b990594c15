//! The library's columns as arrays of Apache Arrow. `docs/reference/arrow.md` says what programs
//! may rely on.
//!
//! The columns are those of [`taskdiag::columns`], with their names. They already have Arrow's
//! layout, so the arrays are views of them, and nothing is copied but the texts of dictionaries.

use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::Arc;

use arrow_array::builder::StringDictionaryBuilder;
use arrow_array::types::Int32Type;
use arrow_array::{
    ArrayRef, BooleanArray, DurationNanosecondArray, Float64Array, Int64Array, ListArray,
    StringArray, TimestampMicrosecondArray, UInt32Array, UInt64Array,
};
use arrow_buffer::{
    ArrowNativeType, BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer,
};
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use taskdiag::Host;
use taskdiag::columns::{Batch, Column, Data, Spec, Text, Type};
use taskdiag::field::Context;

/// The version of the schemas. A later one may add columns and metadata, and changes no type.
pub const SCHEMA: &str = "1";

/// Text that usually differs in each row.
const DISTINCT: &[&str] = &["kstack", "name"];

/// The purpose of the arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Arrays for files and for streams to other programs. Text columns with few different values
    /// are dictionaries, because consumers then store and compare numbers. Fields say where values
    /// come from.
    Stored,
    /// Arrays for one query. A dictionary would cost more than it saves for an answer that is read
    /// once. Fields have no metadata, because in a union DataFusion 54 treats columns that only
    /// differ in metadata as different.
    Queried,
}

impl Form {
    fn is_dictionary(self, spec: &Spec) -> bool {
        self == Form::Stored && spec.kind == Type::Text && !DISTINCT.contains(&spec.name.as_str())
    }
    fn data_type(self, spec: &Spec) -> DataType {
        match spec.kind {
            Type::U64 => DataType::UInt64,
            Type::I64 => DataType::Int64,
            Type::F64 => DataType::Float64,
            Type::Bool => DataType::Boolean,
            Type::Duration => DataType::Duration(TimeUnit::Nanosecond),
            Type::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Type::Text if self.is_dictionary(spec) => {
                DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
            }
            Type::Text => DataType::Utf8,
            Type::TextList => DataType::List(item(DataType::Utf8)),
            Type::U32List => DataType::List(item(DataType::UInt32)),
        }
    }
    /// The field of the schema for a column.
    pub fn field(self, spec: &Spec) -> Field {
        let field = Field::new(&spec.name, self.data_type(spec), true);
        if self == Form::Queried {
            return field;
        }
        let mut metadata = HashMap::from([
            ("taskdiag.help".to_owned(), spec.help.to_owned()),
            ("taskdiag.source".to_owned(), spec.source.to_owned()),
        ]);
        // The unit of a duration or a moment is a part of Arrow's type.
        if !spec.unit.is_empty() && !matches!(spec.kind, Type::Duration | Type::Timestamp) {
            metadata.insert("taskdiag.unit".to_owned(), spec.unit.to_owned());
        }
        field.with_metadata(metadata)
    }
    /// The columns of a batch, which stays in memory as long as one of them.
    pub fn arrays(self, specs: &[Spec], batch: Batch) -> Vec<ArrayRef> {
        let batch = Arc::new(batch);
        let array = |(spec, column)| Lent(&batch).array(self, spec, column);
        specs.iter().zip(&batch.columns).map(array).collect()
    }
}

fn item(kind: DataType) -> Arc<Field> {
    Arc::new(Field::new("item", kind, true))
}

/// The schema of a stream or file with these columns.
pub fn schema(cx: &Context, specs: &[Spec]) -> Schema {
    let fields: Vec<Field> = specs.iter().map(|spec| Form::Stored.field(spec)).collect();
    let mut metadata = HashMap::from([
        ("taskdiag.schema".to_owned(), SCHEMA.to_owned()),
        ("taskdiag.realtime_ns".to_owned(), cx.info.realtime_ns.to_string()),
        ("taskdiag.boottime_ns".to_owned(), cx.info.boottime_ns.to_string()),
    ]);
    let host = Host::of(&cx.info);
    let text = |text: Option<Vec<u8>>| text.map(|t| String::from_utf8_lossy(&t).into_owned());
    let of_host = [
        ("taskdiag.host", text(host.name)),
        ("taskdiag.boot_id", host.boot_id.map(|id| id.to_string())),
        ("taskdiag.kernel", text(host.kernel)),
        ("taskdiag.arch", text(host.arch)),
    ];
    // Unknown properties have no key.
    let known = of_host.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
    metadata.extend(known);
    Schema::new_with_metadata(fields, metadata)
}

/// A batch whose columns become buffers of Arrow.
struct Lent<'a>(&'a Arc<Batch>);

impl Lent<'_> {
    /// Values of a column of the batch.
    fn buffer<T>(&self, values: &[T]) -> Buffer {
        let first = NonNull::from(values).cast();
        // SAFETY: the values are of a column of the batch, as all callers are in this file. The
        // buffer has a reference to the batch, and nobody can change a batch that is shared.
        unsafe { Buffer::from_custom_allocation(first, size_of_val(values), self.0.clone()) }
    }
    fn numbers<T: ArrowNativeType>(&self, values: &[T]) -> ScalarBuffer<T> {
        ScalarBuffer::new(self.buffer(values), 0, values.len())
    }
    fn offsets(&self, offsets: &[i32]) -> OffsetBuffer<i32> {
        OffsetBuffer::new(self.numbers(offsets))
    }
    fn texts(&self, t: &Text, nulls: Option<NullBuffer>) -> ArrayRef {
        let t = t.utf8();
        Arc::new(StringArray::new(self.offsets(&t.offsets), self.buffer(&t.bytes), nulls))
    }
    fn array(&self, form: Form, spec: &Spec, column: &Column) -> ArrayRef {
        let bits = |bits: &[u8], len| BooleanBuffer::new(self.buffer(bits), 0, len);
        let nulls = (!column.validity.is_empty())
            .then(|| NullBuffer::new(bits(&column.validity, column.len())));
        match &column.data {
            Data::U64(v) => Arc::new(UInt64Array::new(self.numbers(v), nulls)),
            Data::I64(v) => match spec.kind {
                Type::Duration => Arc::new(DurationNanosecondArray::new(self.numbers(v), nulls)),
                Type::Timestamp => Arc::new(
                    TimestampMicrosecondArray::new(self.numbers(v), nulls).with_timezone("UTC"),
                ),
                _ => Arc::new(Int64Array::new(self.numbers(v), nulls)),
            },
            Data::F64(v) => Arc::new(Float64Array::new(self.numbers(v), nulls)),
            Data::Bool(v, len) => Arc::new(BooleanArray::new(bits(v, *len), nulls)),
            Data::Text(t) if form.is_dictionary(spec) => dictionary(t, nulls.as_ref()),
            Data::Text(t) => self.texts(t, nulls),
            Data::TextList(ends, t) => {
                let item = item(DataType::Utf8);
                let values = self.texts(t, None);
                Arc::new(ListArray::new(item, self.offsets(ends), values, nulls))
            }
            Data::U32List(ends, v) => {
                let item = item(DataType::UInt32);
                let values = Arc::new(UInt32Array::new(self.numbers(v), None));
                Arc::new(ListArray::new(item, self.offsets(ends), values, nulls))
            }
        }
    }
}

fn dictionary(t: &Text, nulls: Option<&NullBuffer>) -> ArrayRef {
    let t = t.utf8();
    let mut out = StringDictionaryBuilder::<Int32Type>::new();
    for i in 0..t.len() {
        // The texts in a dictionary are UTF-8, so no character is lost here.
        match nulls.is_none_or(|n| n.is_valid(i)) {
            true => out.append_value(String::from_utf8_lossy(t.get(i))),
            false => out.append_null(),
        }
    }
    Arc::new(out.finish())
}
