//! A filter: an expression over any column, as in `rss > 1G and user == "web" and args ~
//! "java.*kafka"`. `docs/reference/where.md` is the reference of the language.
//!
//! An expression is checked against the table of fields before anything is read. So a wrong word
//! costs nothing, and the error points at its place. If a value is not known, a test of it is
//! neither true nor false. Then the row is left out, and [`Sieve::left`] returns the number of such
//! tasks, and the reason.

mod error;
mod eval;
mod lex;
mod literal;
mod parse;
mod sieve;

use std::fmt;

pub use error::FilterError;
pub use eval::Truth;
pub use literal::{parse_duration, parse_size};
pub use sieve::{Left, Sieve};

use self::eval::Test;
use crate::Groups;
use crate::field::{self, Context, Field, MEMORY, Row, Set, TASKS, TOP};
use crate::request::Members;

/// A checked expression about the rows of a set.
#[derive(Clone)]
pub struct Filter {
    text: String,
    /// The parts, which are joined by "and".
    parts: Vec<Part>,
}

/// One of the expressions that must all be true.
#[derive(Clone, Debug)]
pub(in crate::view) struct Part {
    expr: Expr,
    fields: Vec<&'static Field>,
    /// Does it depend on the task only, so that it is true for all entries of the task or for none?
    about_task: bool,
}

/// A tree of tests.
#[derive(Clone, Debug)]
enum Expr {
    And(Vec<Expr>),
    Or(Vec<Expr>),
    Not(Box<Expr>),
    Test(Test),
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Filter").field(&self.text).finish()
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Filter {
    /// Parse and check an expression about rows of this set.
    ///
    /// # Errors
    /// If the expression is wrong: what is wrong, where, and what to write instead.
    pub fn parse(set: &'static Set, text: &str) -> Result<Filter, FilterError> {
        let expr = parse::parse(set, text)?;
        let mut parts = Vec::new();
        add(&mut parts, set, expr);
        Ok(Filter { text: text.to_owned(), parts })
    }
    /// Rows of tasks that have this word in their name or in their arguments. Callers leave out
    /// themselves with [`Filter::without`], because they have the word in their own arguments.
    ///
    /// # Errors
    /// If it is not one word: letters, digits and `_ . % - / : @ +`.
    pub fn word(set: &'static Set, word: &str) -> Result<Filter, FilterError> {
        if !lex::is_word(word) {
            // Parsing it as an expression gives the error message.
            return Filter::parse(set, word);
        }
        let word = regex::escape(word);
        Filter::parse(set, &format!(r#"comm ~ "{word}" or args ~ "{word}""#))
    }
    /// The same without the rows of these processes.
    ///
    /// # Errors
    /// If rows of this set have no pid.
    pub fn without(self, set: &'static Set, pids: &[u32]) -> Result<Filter, FilterError> {
        pids.iter().try_fold(self, |filter, pid| {
            Ok(filter.and(Filter::parse(set, &format!("pid != {pid}"))?))
        })
    }
    /// Joins two expressions by "and". Both must be about the same set.
    #[must_use]
    pub fn and(mut self, other: Filter) -> Filter {
        self.text = format!("({}) and ({})", self.text, other.text);
        self.parts.extend(other.parts);
        self
    }
    /// The fields that it needs.
    pub fn fields(&self) -> impl Iterator<Item = &'static Field> + Clone {
        self.parts.iter().flat_map(|p| p.fields.iter().copied())
    }
    /// The groups that it needs.
    pub fn groups(&self) -> Groups {
        field::groups_of(self.fields())
    }
    /// Is it true of a row?
    pub fn test(&self, cx: &Context, row: &Row<'_>) -> Truth {
        eval::all(self.parts.iter().map(|p| p.expr.test(cx, row)))
    }
    pub(super) fn parts(&self) -> impl Iterator<Item = &Part> {
        self.parts.iter()
    }
}

impl Part {
    pub(super) fn is_about_task(&self) -> bool {
        self.about_task
    }
    /// Is it about arguments or the environment of the task, of which a list may have a part only?
    pub(super) fn is_about_text(&self) -> bool {
        self.about_task && self.groups().intersects(Groups::TEXTS)
    }
    pub(super) fn groups(&self) -> Groups {
        field::groups_of(self.fields.iter().copied())
    }
    pub(super) fn members(&self) -> Members {
        field::members_of(self.fields.iter().copied())
    }
    /// Is it likely to be true for only a few rows? A negation is likely to be true for most.
    pub(super) fn is_narrow(&self) -> bool {
        !matches!(self.expr, Expr::Not(_))
    }
    /// Is the expression likely to select few rows, as `comm == x` is and `user == x` is not?
    pub(super) fn is_rare(&self) -> bool {
        self.expr.is_rare()
    }
    pub(super) fn test(&self, cx: &Context, row: &Row<'_>) -> Truth {
        self.expr.test(cx, row)
    }
}

/// Split an expression at its "and"s.
fn add(parts: &mut Vec<Part>, set: &Set, expr: Expr) {
    match expr {
        Expr::And(all) => all.into_iter().for_each(|e| add(parts, set, e)),
        expr => {
            let mut fields = Vec::new();
            expr.fields(&mut fields);
            let whole = [TASKS.name, MEMORY.name, TOP.name].contains(&set.name);
            let about_task = whole || !fields.iter().any(|f| is_own(set, f));
            parts.push(Part { expr, fields, about_task });
        }
    }
}

/// Is it a field of entries, which tasks do not have?
fn is_own(set: &Set, field: &'static Field) -> bool {
    set.own().any(|f| std::ptr::eq(f, field))
}

impl Expr {
    fn is_rare(&self) -> bool {
        match self {
            Expr::And(all) => all.iter().any(Expr::is_rare),
            Expr::Or(some) => some.iter().all(Expr::is_rare),
            Expr::Not(_) => false,
            // Users and states do not count, since one user may have most processes, and most
            // processes sleep.
            Expr::Test(t) => {
                t.how.is_exact() && t.field.name != "s" && !t.field.groups.intersects(Groups::CRED)
            }
        }
    }
    fn fields(&self, out: &mut Vec<&'static Field>) {
        match self {
            Expr::And(all) | Expr::Or(all) => all.iter().for_each(|e| e.fields(out)),
            Expr::Not(e) => e.fields(out),
            Expr::Test(t) if !out.iter().any(|f| std::ptr::eq(*f, t.field)) => out.push(t.field),
            Expr::Test(_) => {}
        }
    }
    fn test(&self, cx: &Context, row: &Row<'_>) -> Truth {
        match self {
            Expr::And(all) => eval::all(all.iter().map(|e| e.test(cx, row))),
            Expr::Or(some) => eval::any(some.iter().map(|e| e.test(cx, row))),
            Expr::Not(e) => e.test(cx, row).not(),
            Expr::Test(t) => t.test(cx, row),
        }
    }
}

#[cfg(test)]
mod tests;
