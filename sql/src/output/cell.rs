// SPDX-License-Identifier: MIT OR Apache-2.0
//! A value of a result, whatever Arrow array it is in.

use datafusion::arrow::array::{
    Array, AsArray, DurationMicrosecondArray, DurationMillisecondArray, DurationNanosecondArray,
    DurationSecondArray,
};
use datafusion::arrow::datatypes::{DataType, Float16Type, Float32Type, Float64Type, TimeUnit};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// None.
    Null,
    /// Digits, in the form of JSON numbers.
    Number(String),
    /// True or false.
    Bool(bool),
    /// Text, which others may have chosen.
    Text(String),
    /// Several.
    List(Vec<Cell>),
}

/// The value in a row of an array.
///
/// # Errors
/// The array has a type that cannot be shown.
pub fn cell(array: &dyn Array, row: usize) -> Result<Cell, ArrowError> {
    if array.is_null(row) {
        return Ok(Cell::Null);
    }
    let shown =
        || ArrayFormatter::try_new(array, &FormatOptions::default())?.value(row).try_to_string();
    Ok(match array.data_type() {
        DataType::Null => Cell::Null,
        DataType::Boolean => Cell::Bool(array.as_boolean().value(row)),
        DataType::Utf8 => Cell::Text(array.as_string::<i32>().value(row).to_owned()),
        DataType::LargeUtf8 => Cell::Text(array.as_string::<i64>().value(row).to_owned()),
        DataType::Utf8View => Cell::Text(array.as_string_view().value(row).to_owned()),
        DataType::Float16 => float(f64::from(array.as_primitive::<Float16Type>().value(row))),
        DataType::Float32 => float(f64::from(array.as_primitive::<Float32Type>().value(row))),
        DataType::Float64 => float(array.as_primitive::<Float64Type>().value(row)),
        kind if kind.is_numeric() => Cell::Number(shown()?),
        DataType::Duration(unit) => Cell::Number(seconds(duration_ns(array, *unit, row))),
        DataType::Dictionary(_, _) => {
            let dictionary = array.as_any_dictionary();
            return cell(dictionary.values().as_ref(), dictionary.normalized_keys()[row]);
        }
        DataType::List(_) => list(array.as_list::<i32>().value(row).as_ref())?,
        DataType::LargeList(_) => list(array.as_list::<i64>().value(row).as_ref())?,
        DataType::FixedSizeList(_, _) => list(array.as_fixed_size_list().value(row).as_ref())?,
        _ => Cell::Text(shown()?),
    })
}

fn list(items: &dyn Array) -> Result<Cell, ArrowError> {
    (0..items.len()).map(|i| cell(items, i)).collect::<Result<_, _>>().map(Cell::List)
}

/// JSON has no NaN or infinity.
fn float(value: f64) -> Cell {
    match value {
        v if v.is_nan() => Cell::Text("NaN".to_owned()),
        v if v.is_infinite() => {
            Cell::Text(if v > 0.0 { "Infinity" } else { "-Infinity" }.to_owned())
        }
        v => Cell::Number(format!("{v}")),
    }
}

fn duration_ns(array: &dyn Array, unit: TimeUnit, row: usize) -> i128 {
    let any = array.as_any();
    let of = |value: Option<i64>, ns: i128| i128::from(value.unwrap_or_default()) * ns;
    match unit {
        TimeUnit::Second => {
            of(any.downcast_ref::<DurationSecondArray>().map(|a| a.value(row)), 1_000_000_000)
        }
        TimeUnit::Millisecond => {
            of(any.downcast_ref::<DurationMillisecondArray>().map(|a| a.value(row)), 1_000_000)
        }
        TimeUnit::Microsecond => {
            of(any.downcast_ref::<DurationMicrosecondArray>().map(|a| a.value(row)), 1000)
        }
        TimeUnit::Nanosecond => {
            of(any.downcast_ref::<DurationNanosecondArray>().map(|a| a.value(row)), 1)
        }
    }
}

/// Seconds with all their decimals.
fn seconds(ns: i128) -> String {
    let (sign, ns) = if ns < 0 { ("-", -ns) } else { ("", ns) };
    let (whole, part) = (ns / 1_000_000_000, ns % 1_000_000_000);
    match part {
        0 => format!("{sign}{whole}"),
        part => format!("{sign}{whole}.{}", format!("{part:09}").trim_end_matches('0')),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_seconds() {
        for (ns, want) in
            [(0, "0"), (1_500_000_000, "1.5"), (-1, "-0.000000001"), (7_000_000_000, "7")]
        {
            assert_eq!(seconds(ns), want);
        }
    }

    #[test]
    fn numbers_are_written_in_full_and_nan_is_text() {
        assert_eq!(float(0.5), Cell::Number("0.5".to_owned()));
        assert_eq!(float(1e300), Cell::Number(format!("1{}", "0".repeat(300))));
        assert_eq!(float(f64::NAN), Cell::Text("NaN".to_owned()));
    }
}
