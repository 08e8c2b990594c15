// SPDX-License-Identifier: MIT OR Apache-2.0
//! Changes of a parsed statement before DataFusion sees it.
//!
//! `user` is a column here, which the parser takes for a function. With `--osquery`, statements are
//! interpreted as in SQLite: LIKE ignores case, text in double quotes that names no column is text,
//! a query in the place of a value has one row, and some functions of SQLite and osquery are
//! replaced by equivalent ones of DataFusion.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::parser::{CopyToSource, Statement};
use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, Query, SelectItem,
    SetExpr, Value, Visit, VisitMut, Visitor, VisitorMut,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;

/// Makes `user` a column.
pub fn columns(statement: &mut Statement) {
    change(statement, &mut |expr| {
        if let Expr::Function(f) = expr
            && name_of(f) == "user"
            && matches!(f.args, FunctionArguments::None)
        {
            *expr = Expr::Identifier(Ident::new("user"));
        }
    });
}

/// Makes a statement of SQLite one of DataFusion. `is_column` tells whether a table has a column of
/// this name.
pub fn sqlite(statement: &mut Statement, is_column: &dyn Fn(&str) -> bool) {
    let aliases = aliases(statement);
    change(statement, &mut |expr| match expr {
        Expr::Like { negated, any, expr: of, pattern, escape_char } => {
            *expr = Expr::ILike {
                negated: *negated,
                any: *any,
                expr: of.clone(),
                pattern: pattern.clone(),
                escape_char: escape_char.clone(),
            };
        }
        Expr::Identifier(ident) if ident.quote_style == Some('"') => {
            let name = ident.value.to_lowercase();
            if !is_column(&name) && !aliases.contains(&name) {
                *expr = Expr::value(Value::SingleQuotedString(ident.value.clone()));
            }
        }
        Expr::Subquery(query) => first_row(query),
        Expr::Function(f) => {
            if let Some(other) = function(f) {
                *expr = other;
            }
        }
        _ => {}
    });
}

/// For a subquery used as a value, SQLite takes the first row, and DataFusion refuses a subquery
/// that may have several rows. So this takes the smallest value, which is the only one if there is
/// one row, as intended.
fn first_row(query: &mut Query) {
    let SetExpr::Select(select) = &mut *query.body else { return };
    if let [SelectItem::UnnamedExpr(e) | SelectItem::ExprWithAlias { expr: e, .. }] =
        &mut select.projection[..]
        && matches!(e, Expr::Identifier(_) | Expr::CompoundIdentifier(_))
        && let Some(least) = parsed(&format!("min({e})"))
    {
        *e = least;
        (query.limit_clause, query.order_by) = (None, None);
    }
}

fn parsed(text: &str) -> Option<Expr> {
    Parser::new(&GenericDialect {}).try_with_sql(text).ok()?.parse_expr().ok()
}

/// The function of DataFusion for a function of SQLite, if it has another name or shape.
fn function(f: &Function) -> Option<Expr> {
    let FunctionArguments::List(list) = &f.args else { return None };
    let argument = |arg: &FunctionArg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(e)) => Some(e.to_string()),
        _ => None,
    };
    let args: Vec<String> = list.args.iter().map(argument).collect::<Option<_>>()?;
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let distinct = if list.duplicate_treatment.is_some() { "distinct " } else { "" };
    let text = match (name_of(f).as_str(), &args[..]) {
        ("group_concat", [what]) => format!("string_agg({distinct}cast({what} as varchar), ',')"),
        ("group_concat", [what, between]) => {
            format!("string_agg({distinct}cast({what} as varchar), {between})")
        }
        ("iif", [test, yes, no]) => format!("case when {test} then {yes} else {no} end"),
        ("datetime", [seconds, "'unixepoch'"]) => {
            format!("to_char(to_timestamp_seconds(cast({seconds} as bigint)), '%Y-%m-%d %H:%M:%S')")
        }
        ("datetime", ["'now'"]) => "to_char(now(), '%Y-%m-%d %H:%M:%S')".to_owned(),
        ("strftime", ["'%s'", "'now'"]) => "cast(date_part('epoch', now()) as bigint)".to_owned(),
        // SQLite numbers the parts from 0.
        ("split", [text, between, n]) => format!("split_part({text}, {between}, {n} + 1)"),
        ("total", [what]) => format!("coalesce(sum({what}), 0.0)"),
        _ => return None,
    };
    parsed(&text)
}

fn name_of(f: &Function) -> String {
    f.name.to_string().to_lowercase()
}

/// Names that a statement gives to its columns.
fn aliases(statement: &Statement) -> HashSet<String> {
    struct Aliases(HashSet<String>);
    impl Visitor for Aliases {
        type Break = ();
        fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
            if let SetExpr::Select(select) = &*query.body {
                for item in &select.projection {
                    if let SelectItem::ExprWithAlias { alias, .. } = item {
                        self.0.insert(alias.value.to_lowercase());
                    }
                }
            }
            ControlFlow::Continue(())
        }
    }
    let mut all = Aliases(HashSet::new());
    // The visitor never stops early, so its result carries no information.
    let _ = match inner(statement) {
        Some(Inner::Statement(statement)) => statement.visit(&mut all),
        Some(Inner::Query(query)) => query.visit(&mut all),
        None => ControlFlow::Continue(()),
    };
    all.0
}

enum Inner<S, Q> {
    Statement(S),
    Query(Q),
}

type Ast = datafusion::sql::sqlparser::ast::Statement;

fn inner(statement: &Statement) -> Option<Inner<&Ast, &Query>> {
    match statement {
        Statement::Statement(s) => Some(Inner::Statement(s)),
        Statement::Explain(explain) => inner(&explain.statement),
        Statement::CopyTo(copy) => match &copy.source {
            CopyToSource::Query(query) => Some(Inner::Query(query)),
            CopyToSource::Relation(_) => None,
        },
        _ => None,
    }
}

/// Calls `f` with each expression of a statement, the inner ones first.
fn change(statement: &mut Statement, f: &mut dyn FnMut(&mut Expr)) {
    struct Change<'f>(&'f mut dyn FnMut(&mut Expr));
    impl VisitorMut for Change<'_> {
        type Break = ();
        fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            (self.0)(expr);
            ControlFlow::Continue(())
        }
    }
    match statement {
        Statement::Statement(s) => {
            let _ = s.visit(&mut Change(f));
        }
        Statement::Explain(explain) => change(&mut explain.statement, f),
        Statement::CopyTo(copy) => {
            if let CopyToSource::Query(query) = &mut copy.source {
                let _ = query.visit(&mut Change(f));
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::sql::parser::DFParserBuilder;

    fn rewritten(sql: &str) -> String {
        let mut parser = DFParserBuilder::new(sql).build().expect("it is SQL");
        let mut statement = parser.parse_statements().expect("it is SQL").pop_front().expect("one");
        columns(&mut statement);
        sqlite(&mut statement, &|name| name == "name");
        statement.to_string()
    }

    #[test]
    fn statements_for_sqlite_are_rewritten() {
        for (sql, want) in [
            ("SELECT user FROM t", "SELECT user FROM t"),
            ("SELECT 1 FROM t WHERE name LIKE 'a%'", "SELECT 1 FROM t WHERE name ILIKE 'a%'"),
            ("SELECT 1 FROM t WHERE name = \"x\"", "SELECT 1 FROM t WHERE name = 'x'"),
            ("SELECT \"name\" FROM t", "SELECT \"name\" FROM t"),
            ("SELECT 1 AS \"n\" FROM t ORDER BY \"n\"", "SELECT 1 AS \"n\" FROM t ORDER BY \"n\""),
            ("SELECT group_concat(a) FROM t", "SELECT string_agg(CAST(a AS VARCHAR), ',') FROM t"),
            ("SELECT iif(a, b, \"c\") FROM t", "SELECT CASE WHEN a THEN b ELSE 'c' END FROM t"),
            (
                "SELECT (SELECT a FROM t AS u WHERE u.b = t.c LIMIT 1) FROM t",
                "SELECT (SELECT min(a) FROM t AS u WHERE u.b = t.c) FROM t",
            ),
            ("EXPLAIN SELECT user FROM t", "EXPLAIN SELECT user FROM t"),
        ] {
            assert_eq!(rewritten(sql), want);
        }
    }
}
