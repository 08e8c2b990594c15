// SPDX-License-Identifier: MIT OR Apache-2.0
//! The description of a query that osquery passes when it asks for rows: the columns that it needs,
//! and the conditions on them. It tests the conditions itself afterwards, so a condition that is
//! left out here costs time but changes no answer.

use serde_json::Value;
use taskdiag::columns::{Absent, Type};
use taskdiag::view::Filter;

use crate::tables::{Column, Table};

/// The usable parts of a query.
#[derive(Debug, Default)]
pub struct Context {
    /// Names of the needed columns. `None`: all.
    columns: Option<Vec<String>>,
    key: &'static str,
    /// The process, if the query is limited to a single one.
    pub pid: Option<u32>,
    /// Other conditions.
    pub filter: Option<Filter>,
}

impl Context {
    /// From the JSON in the request. Unknown parts are left out.
    pub fn parse(table: &Table, columns: &[Column], json: &str) -> Context {
        let json: Value = serde_json::from_str(json).unwrap_or_default();
        let mut context = Context { key: table.kind.id_column(), ..Context::default() };
        if let Some(used) = json["colsUsed"].as_array() {
            context.columns =
                Some(used.iter().filter_map(Value::as_str).map(str::to_owned).collect());
        }
        let constraints = json["constraints"].as_array().into_iter().flatten();
        for (name, one) in constraints.flat_map(|c| {
            let name = c["name"].as_str().unwrap_or_default();
            // Without conditions, some versions send an empty text for the list.
            c["list"].as_array().into_iter().flatten().map(move |one| (name, one))
        }) {
            let Some(column) = columns.iter().find(|c| c.spec.name == name) else { continue };
            let (Some(op), Some(number)) = (operator(&one["op"]), number(&one["expr"])) else {
                continue;
            };
            match (name, op, u32::try_from(number)) {
                ("pid", "==", Ok(pid)) if context.pid.is_none_or(|p| p == pid) => {
                    context.pid = Some(pid)
                }
                _ => context.narrow(table, column, op, number),
            }
        }
        context
    }
    /// Removes rows that do not fulfil a condition on a whole number.
    fn narrow(&mut self, table: &Table, column: &Column, op: &str, number: i64) {
        let is_fit = match column.spec.kind {
            Type::U64 => number >= 0,
            Type::I64 => true,
            _ => false,
        };
        // A kernel thread's memory is 0 for osquery, and unknown for a filter.
        if !is_fit || column.spec.absent != Absent::Null {
            return;
        }
        let more =
            Filter::parse(table.kind.set(), &format!("{} {op} {number}", column.spec.name)).ok();
        self.filter = self.filter.take().into_iter().chain(more).reduce(Filter::and);
    }
    /// Is this column needed? The process id or the path always is: it costs nothing, and a row
    /// needs some column.
    pub fn needs(&self, column: &Column) -> bool {
        let name = column.spec.name.as_str();
        name == self.key || self.columns.as_ref().is_none_or(|used| used.iter().any(|u| u == name))
    }
}

/// osquery uses SQLite's numbers of operators; old versions send them as text.
fn operator(op: &Value) -> Option<&'static str> {
    let number = op.as_u64().or_else(|| op.as_str()?.parse().ok())?;
    Some(match number {
        2 => "==",
        4 => ">",
        8 => "<=",
        16 => "<",
        32 => ">=",
        _ => return None,
    })
}

fn number(expression: &Value) -> Option<i64> {
    expression.as_i64().or_else(|| expression.as_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::TABLES;

    fn context(json: &str) -> (Context, Vec<String>) {
        let (table, columns) = (&TABLES[0], TABLES[0].columns());
        let context = Context::parse(table, &columns, json);
        let needed =
            columns.iter().filter(|c| context.needs(c)).map(|c| c.spec.name.clone()).collect();
        (context, needed)
    }
    fn filter(json: &str) -> Option<String> {
        context(json).0.filter.map(|f| f.to_string())
    }

    #[test]
    fn columns_and_conditions_are_used() {
        let (context, needed) = context(
            r#"{"constraints":[{"name":"pid","list":[{"op":2,"expr":"7"}],"affinity":"BIGINT"},
                {"name":"comm","list":"","affinity":"TEXT"}],"colsUsed":["comm","pid"],"colsUsedBitset":129}"#,
        );
        assert_eq!((context.pid, needed), (Some(7), vec!["pid".to_owned(), "comm".to_owned()]));
        assert!(context.filter.is_none());
    }

    #[test]
    fn an_empty_list_of_columns_is_not_a_missing_one() {
        assert_eq!(context(r#"{"constraints":[],"colsUsed":[]}"#).1, ["pid"]);
        assert_eq!(context(r#"{"constraints":[]}"#).1.len(), TABLES[0].columns().len());
        assert_eq!(context("no JSON").1.len(), TABLES[0].columns().len());
    }

    #[test]
    fn only_conditions_that_mean_the_same_are_left_to_the_library() {
        let of = |name: &str, op: &str, text: &str| {
            filter(&format!(
                r#"{{"constraints":[{{"name":"{name}","list":[{{"op":{op},"expr":"{text}"}}]}}]}}"#
            ))
        };
        assert_eq!(of("uid", "2", "0").as_deref(), Some("uid == 0"));
        assert_eq!(of("uid", r#""32""#, "1000").as_deref(), Some("uid >= 1000"));
        assert_eq!(of("ni", "16", "-5").as_deref(), Some("ni < -5"));
        // No process has two pids. Osquery itself checks the second condition.
        let two =
            r#"{"constraints":[{"name":"pid","list":[{"op":2,"expr":"1"},{"op":2,"expr":"2"}]}]}"#;
        assert_eq!(context(two).0.pid, Some(1));
        for (name, op, text) in [
            ("uid", "2", "-1"),  // is no uid
            ("uid", "2", "1.5"), // nor this
            ("uid", "65", "1%"), // LIKE
            ("rss", "2", "0"),   // of a kernel thread
            ("comm", "2", "sh"), // osquery does not look at case
            ("start", "4", "0"), // seconds there, and something finer here
            ("nosuch", "2", "1"),
        ] {
            assert_eq!(of(name, op, text), None, "{name} {op} {text}");
        }
    }
}
