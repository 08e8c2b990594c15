// SPDX-License-Identifier: MIT OR Apache-2.0
//! The library's columns as Arrow arrays. The types are those of `docs/reference/arrow.md`, except
//! that text has no dictionary here: an answer is read once, and a dictionary costs more than it
//! saves.

use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, BooleanArray, DurationNanosecondArray, Float64Array, Int64Array, ListArray,
    StringArray, TimestampMicrosecondArray, UInt32Array, UInt64Array,
};
use datafusion::arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use datafusion::arrow::datatypes::{DataType, Field, TimeUnit};
use taskdiag::columns::{Column, Data, Spec, Text, Texts, Type};

fn item(kind: DataType) -> Arc<Field> {
    Arc::new(Field::new("item", kind, true))
}

fn data_type(kind: Type) -> DataType {
    match kind {
        Type::U64 => DataType::UInt64,
        Type::I64 => DataType::Int64,
        Type::F64 => DataType::Float64,
        Type::Bool => DataType::Boolean,
        Type::Duration => DataType::Duration(TimeUnit::Nanosecond),
        Type::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        Type::Text => DataType::Utf8,
        Type::TextList => DataType::List(item(DataType::Utf8)),
        Type::U32List => DataType::List(item(DataType::UInt32)),
    }
}

/// How Arrow describes a column.
pub fn field(spec: &Spec) -> Field {
    // Without metadata, because in a union DataFusion 54 treats columns that only differ in
    // metadata as different.
    Field::new(&spec.name, data_type(spec.kind), true)
}

fn offsets(offsets: Vec<i32>) -> OffsetBuffer<i32> {
    OffsetBuffer::new(ScalarBuffer::from(offsets))
}

fn texts(t: Texts, nulls: Option<NullBuffer>) -> StringArray {
    StringArray::new(offsets(t.offsets), Buffer::from_vec(t.bytes), nulls)
}

fn utf8(t: Text) -> Texts {
    t.lossy.unwrap_or(t.raw)
}

/// The values of a column.
pub fn array(kind: Type, column: Column) -> ArrayRef {
    let rows = column.len();
    let nulls = (!column.validity.is_empty())
        .then(|| NullBuffer::new(BooleanBuffer::new(Buffer::from_vec(column.validity), 0, rows)));
    match column.data {
        Data::U64(v) => Arc::new(UInt64Array::new(v.into(), nulls)),
        Data::I64(v) => match kind {
            Type::Duration => Arc::new(DurationNanosecondArray::new(v.into(), nulls)),
            Type::Timestamp => {
                Arc::new(TimestampMicrosecondArray::new(v.into(), nulls).with_timezone("UTC"))
            }
            _ => Arc::new(Int64Array::new(v.into(), nulls)),
        },
        Data::F64(v) => Arc::new(Float64Array::new(v.into(), nulls)),
        Data::Bool(bits, n) => {
            Arc::new(BooleanArray::new(BooleanBuffer::new(Buffer::from_vec(bits), 0, n), nulls))
        }
        Data::Text(t) => Arc::new(texts(utf8(t), nulls)),
        Data::TextList(ends, t) => {
            let values = Arc::new(texts(utf8(t), None));
            Arc::new(ListArray::new(item(DataType::Utf8), offsets(ends), values, nulls))
        }
        Data::U32List(ends, v) => {
            let values = Arc::new(UInt32Array::new(v.into(), None));
            Arc::new(ListArray::new(item(DataType::UInt32), offsets(ends), values, nulls))
        }
    }
}
