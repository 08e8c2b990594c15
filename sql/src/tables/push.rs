// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decides which conditions of a query the library evaluates, so that it requests fewer processes.
//!
//! Every condition is tested by DataFusion once more, so a condition of the library may let more
//! rows pass, and never fewer. A value that a task does not have is NULL in SQL and "missing" for
//! the library, and both leave the row out. But an amount of it, such as the memory of a kernel
//! thread, is 0 in SQL, so conditions that are true of 0 stay with DataFusion.

use std::collections::BTreeSet;

use datafusion::arrow::datatypes::{DataType as ArrowType, TimeUnit};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};
use taskdiag::columns::{Absent, Spec};
use taskdiag::field::{DataType, Field, Set};
use taskdiag::view::Filter;

use super::kind::{Column, What};

/// The conditions that the library evaluates.
#[derive(Clone, Debug, Default)]
pub struct Pushed {
    /// The processes, if they are named.
    pub pids: Option<BTreeSet<u32>>,
    /// Expressions of the library, all of which must be true.
    pub filters: Vec<Filter>,
    /// The first moment of frames of a recording, in us since 1970.
    pub from: Option<i64>,
    /// The last one.
    pub to: Option<i64>,
}

/// A condition that the library can evaluate.
enum Piece {
    Pids(BTreeSet<u32>),
    Filter(Box<Filter>),
    Moment(Operator, i64),
}

/// Can the library evaluate this condition?
pub fn is_pushed(set: &'static Set, columns: &[Column], expr: &Expr) -> bool {
    piece(set, columns, expr).is_some()
}

impl Pushed {
    /// Finds the conditions that the library evaluates among these, which are joined by "and".
    pub fn of(set: &'static Set, columns: &[Column], filters: &[Expr]) -> Pushed {
        let mut all = Pushed::default();
        for piece in filters.iter().filter_map(|f| piece(set, columns, f)) {
            match piece {
                Piece::Pids(pids) => {
                    all.pids = Some(match all.pids.take() {
                        Some(before) => before.intersection(&pids).copied().collect(),
                        None => pids,
                    });
                }
                Piece::Filter(filter) => all.filters.push(*filter),
                Piece::Moment(op, us) => all.moment(op, us),
            }
        }
        all
    }
    fn moment(&mut self, op: Operator, us: i64) {
        if matches!(op, Operator::Eq | Operator::Gt | Operator::GtEq) {
            self.from = Some(self.from.map_or(us, |from| from.max(us)));
        }
        if matches!(op, Operator::Eq | Operator::Lt | Operator::LtEq) {
            self.to = Some(self.to.map_or(us, |to| to.min(us)));
        }
    }
}

fn piece(set: &'static Set, columns: &[Column], expr: &Expr) -> Option<Piece> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => {
            match (piece(set, columns, left)?, piece(set, columns, right)?) {
                (Piece::Pids(a), Piece::Pids(b)) => {
                    Some(Piece::Pids(a.union(&b).copied().collect()))
                }
                (Piece::Filter(a), Piece::Filter(b)) => parsed(set, format!("({a}) or ({b})")),
                _ => None,
            }
        }
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            let (column, op, value) = match (column(columns, left), column(columns, right)) {
                (Some(column), None) => (column, *op, literal(right)?),
                (None, Some(column)) => (column, op.swap()?, literal(left)?),
                _ => return None,
            };
            comparison(set, column, op, value)
        }
        Expr::InList(list) if !list.negated => {
            let column = column(columns, &list.expr)?;
            let values: Option<Vec<&ScalarValue>> = list.list.iter().map(literal).collect();
            one_of(set, column, &values?)
        }
        Expr::Like(like)
            if !like.negated && !like.case_insensitive && like.escape_char.is_none() =>
        {
            let (_, name, kind) = field(column(columns, &like.expr)?)?;
            let pattern = text(literal(&like.pattern)?).filter(|_| kind == DataType::Text)?;
            parsed(set, format!("{name} ~ {}", quoted(&regex(pattern)?)?))
        }
        Expr::Column(_) => {
            let (_, name, kind) = field(column(columns, expr)?)?;
            if kind == DataType::Bool { parsed(set, name.to_owned()) } else { None }
        }
        _ => None,
    }
}

/// The column of an expression. A moment may have been converted to another unit, if that loses no
/// microseconds. In whole seconds, all moments of a second are equal, and the bounds would exclude
/// most of them.
fn column<'c>(columns: &'c [Column], expr: &Expr) -> Option<&'c Column> {
    match expr {
        Expr::Column(c) => columns.iter().find(|column| column.name == c.name),
        Expr::Cast(cast) if is_fine(cast.field.data_type()) => {
            column(columns, &cast.expr).filter(|c| matches!(c.what, What::Moment))
        }
        _ => None,
    }
}

/// Whether the type has a value for each moment of a frame.
fn is_fine(kind: &ArrowType) -> bool {
    matches!(kind, ArrowType::Timestamp(TimeUnit::Microsecond | TimeUnit::Nanosecond, _))
}

fn literal(expr: &Expr) -> Option<&ScalarValue> {
    match expr {
        Expr::Literal(value, _) if !value.is_null() => Some(value),
        _ => None,
    }
}

fn field(column: &Column) -> Option<(&'static Field, &str, DataType)> {
    match &column.what {
        What::Field { field, name } => Some((field, name.as_str(), field.data_type())),
        _ => None,
    }
}

fn comparison(
    set: &'static Set,
    column: &Column,
    op: Operator,
    value: &ScalarValue,
) -> Option<Piece> {
    if let What::Moment = column.what {
        return Some(Piece::Moment(op, micros(value)?));
    }
    if op == Operator::Eq {
        return one_of(set, column, &[value]);
    }
    let (field, name, kind) = field(column)?;
    let sign = match op {
        Operator::NotEq => "!=",
        Operator::Lt => "<",
        Operator::LtEq => "<=",
        Operator::Gt => ">",
        Operator::GtEq => ">=",
        _ => return None,
    };
    let is_number = matches!(kind, DataType::U64 | DataType::I64 | DataType::Bytes);
    if is_number {
        let n = number(value)?;
        let is_true_of_0 = match op {
            Operator::NotEq => n != 0,
            Operator::Lt => 0 < n,
            Operator::LtEq => 0 <= n,
            Operator::Gt => 0 > n,
            _ => 0 >= n,
        };
        if is_true_of_0 && has_zero(field) {
            return None;
        }
        return parsed(set, format!("{name} {sign} {n}"));
    }
    // A condition on text that is true for most rows saves nothing.
    None
}

fn one_of(set: &'static Set, column: &Column, values: &[&ScalarValue]) -> Option<Piece> {
    if let (What::Moment, [value]) = (&column.what, values) {
        return Some(Piece::Moment(Operator::Eq, micros(value)?));
    }
    let (field, name, kind) = field(column)?;
    if name == "pid" {
        let pids: Option<Vec<i128>> = values.iter().map(|v| number(v)).collect();
        // A number outside of the range of pids matches no process.
        return Some(Piece::Pids(
            pids?.into_iter().filter_map(|n| u32::try_from(n).ok()).collect(),
        ));
    }
    let words: Option<Vec<String>> = match kind {
        DataType::U64 | DataType::I64 | DataType::Bytes => {
            let numbers: Vec<i128> = values.iter().map(|v| number(v)).collect::<Option<_>>()?;
            if numbers.contains(&0) && has_zero(field) {
                return None;
            }
            Some(numbers.iter().map(i128::to_string).collect())
        }
        DataType::Text => values.iter().map(|v| quoted(text(v)?)).collect(),
        _ => None,
    };
    parsed(set, format!("{name} in ({})", words?.join(", ")))
}

/// Is a value that a task cannot have 0 in SQL?
fn has_zero(field: &'static Field) -> bool {
    Spec::of(field.name, field).absent == Absent::Zero
}

fn parsed(set: &'static Set, text: String) -> Option<Piece> {
    Filter::parse(set, &text).ok().map(|filter| Piece::Filter(Box::new(filter)))
}

/// A number far below the one for "unlimited", which the library compares differently.
fn number(value: &ScalarValue) -> Option<i128> {
    let n: i128 = match value {
        ScalarValue::Int8(Some(n)) => (*n).into(),
        ScalarValue::Int16(Some(n)) => (*n).into(),
        ScalarValue::Int32(Some(n)) => (*n).into(),
        ScalarValue::Int64(Some(n)) => (*n).into(),
        ScalarValue::UInt8(Some(n)) => (*n).into(),
        ScalarValue::UInt16(Some(n)) => (*n).into(),
        ScalarValue::UInt32(Some(n)) => (*n).into(),
        ScalarValue::UInt64(Some(n)) => (*n).into(),
        _ => return None,
    };
    (n < i128::from(i64::MAX)).then_some(n)
}

fn text(value: &ScalarValue) -> Option<&str> {
    match value {
        ScalarValue::Utf8(Some(s))
        | ScalarValue::Utf8View(Some(s))
        | ScalarValue::LargeUtf8(Some(s)) => Some(s),
        _ => None,
    }
}

/// Text in quotes. A replacement character would be compared with the original bytes.
fn quoted(text: &str) -> Option<String> {
    if text.contains('\u{fffd}') || text.contains('\0') {
        return None;
    }
    match (text.contains('"'), text.contains('\'')) {
        (false, _) => Some(format!("\"{text}\"")),
        (_, false) => Some(format!("'{text}'")),
        _ => None,
    }
}

/// The pattern of LIKE as a regular expression on bytes. One character may be several bytes, so
/// there is none for `_`.
fn regex(pattern: &str) -> Option<String> {
    let mut out = String::from("(?s)^");
    for c in pattern.chars() {
        match c {
            '_' | '\\' => return None,
            '%' => out.push_str(".*"),
            c if c.is_ascii_punctuation() => out.extend(['\\', c]),
            c => out.push(c),
        }
    }
    out.push('$');
    Some(out)
}

fn micros(value: &ScalarValue) -> Option<i64> {
    match value {
        ScalarValue::TimestampSecond(Some(s), _) => s.checked_mul(1_000_000),
        ScalarValue::TimestampMillisecond(Some(ms), _) => ms.checked_mul(1000),
        ScalarValue::TimestampMicrosecond(Some(us), _) => Some(*us),
        // Frames have whole microseconds, so no frame is lost.
        ScalarValue::TimestampNanosecond(Some(ns), _) => Some(ns.div_euclid(1000)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::logical_expr::{Cast, col, lit};
    use taskdiag::field::TASKS;

    #[test]
    fn a_moment_of_a_coarser_unit_is_no_bound() {
        let columns = Column::of_recordings();
        let bounds = |unit: Option<TimeUnit>| {
            let made =
                |unit| Expr::Cast(Cast::new(Box::new(col("ts")), ArrowType::Timestamp(unit, None)));
            let ts = unit.map_or(col("ts"), made);
            let condition = ts.eq(lit(ScalarValue::TimestampSecond(Some(7), None)));
            let pushed = Pushed::of(&TASKS, &columns, &[condition]);
            (pushed.from, pushed.to)
        };
        for unit in [None, Some(TimeUnit::Microsecond), Some(TimeUnit::Nanosecond)] {
            assert_eq!(bounds(unit), (Some(7_000_000), Some(7_000_000)), "{unit:?}");
        }
        for unit in [TimeUnit::Second, TimeUnit::Millisecond] {
            assert_eq!(bounds(Some(unit)), (None, None), "{unit:?}");
        }
    }
}
