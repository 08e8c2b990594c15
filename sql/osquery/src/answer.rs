// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows for osquery, which takes every value as text. A value that is not known has no text at all,
//! and is NULL there.

use osquery_rust_ng::plugin::{ColumnDef, ReadOnlyTable};
use osquery_rust_ng::{
    ExtensionPluginRequest, ExtensionPluginResponse, ExtensionResponse, ExtensionStatus,
};
use taskdiag::cgroups::{Bounds, Cgroups};
use taskdiag::columns::{self, Batch, Builder, Data, Spec, Type};
use taskdiag::field::{Missing, Part};
use taskdiag::view::{CgroupRows, Query, Rows as _};
use taskdiag::{Choice, Group, Groups, Reason};
use taskdiag_face::tables::Kind;

use crate::context::Context;
use crate::tables::{Column, Table};

/// The limit for lists in an answer. osquery gets all rows at once, each value as text with the
/// name of its column, so a mapping takes about 30 times the memory that it takes in an answer.
const LIST_BYTES: u64 = 64 << 20;
/// The limit for the text of all rows. An answer has the name of a file once, and each row a copy.
const TEXT_LIMIT: usize = 64 << 20;

/// A table that osquery can ask for rows.
#[derive(Debug)]
pub struct QueriedTable {
    /// Which.
    pub table: &'static Table,
    /// Who answers.
    pub choice: Choice,
    /// The largest number of bytes of the arguments, and of the environment, of a process, if that
    /// was chosen.
    pub text_bytes: Option<u32>,
}

impl ReadOnlyTable for QueriedTable {
    fn name(&self) -> String {
        self.table.name.to_owned()
    }
    fn columns(&self) -> Vec<ColumnDef> {
        self.table.columns().iter().map(Column::definition).collect()
    }
    fn generate(&self, request: ExtensionPluginRequest) -> ExtensionResponse {
        let all = self.table.columns();
        let json = request.get("context").map_or("", String::as_str);
        let context = Context::parse(self.table, &all, json);
        let needed: Vec<Column> = all.into_iter().filter(|c| context.needs(c)).collect();
        let (code, why, rows) = match self.rows(&needed, context) {
            Ok(rows) => (0, "OK".to_owned(), rows),
            Err(why) => (1, why, Vec::new()),
        };
        ExtensionResponse::new(ExtensionStatus::new(code, why, None), rows)
    }
    fn shutdown(&self) {}
}

impl QueriedTable {
    fn rows(
        &self,
        columns: &[Column],
        context: Context,
    ) -> Result<ExtensionPluginResponse, String> {
        let mut query = self.table.query(columns.iter());
        query.select.pids = context.pid.into_iter().collect();
        query.filter = context.filter;
        if self.table.kind == Kind::Cgroups {
            return self.cgroups(columns, &query);
        }
        let mut plan = query.plan();
        plan.requests(|r| {
            if let Some(bytes) = self.text_bytes {
                r.limits = r.limits.with_texts_of(bytes);
            }
            r.limits.all_list_bytes = r.limits.all_list_bytes.min(LIST_BYTES);
        });
        let answered = plan.ask(self.choice).map_err(|e| e.to_string())?;
        for caveat in answered.snapshot.caveats().iter().filter(|c| c.is_lack()) {
            log::warn!("{}: {caveat}", self.table.name);
        }
        let view = query.view(&answered.snapshot);
        let most = self.text_bytes.map_or(TEXT_LIMIT, |bytes| TEXT_LIMIT.max(bytes as usize * 2));
        let specs = columns.iter().map(|c| c.spec.clone()).collect();
        let mut builder = Builder::new(specs).with_text_limit(most);
        let list = self.table.kind.list().unwrap_or(Group::Fd);
        let (mut without, mut cut_lists) = (0, 0);
        let done = view.rows(true, &mut |_, _, _| {}).each(&mut |item| {
            if let Some(row) = item.row().filter(|row| matches!(row.part, Part::Without)) {
                // This is not a row, but the reason for missing rows.
                match row.view.reason(list).unwrap_or(Reason::Truncated) {
                    Reason::Truncated => cut_lists += 1,
                    why => without += u64::from(Missing::Reason(why).is_amiss()),
                }
                return Ok(());
            }
            builder.push(view.cx(), |c| item.value(view.cx(), columns[c].field, c));
            Ok(())
        });
        debug_assert!(done.is_ok(), "taking a row does not fail");
        let of = |count: u64| match count {
            1 => "1 process".to_owned(),
            _ => format!("{count} processes"),
        };
        if without > 0 {
            log::warn!(
                "{}: no rows of {}, because a list could not be read",
                self.table.name,
                of(without)
            );
        }
        if cut_lists > 0 {
            let command = if list == Group::Vma { "maps" } else { "files" };
            log::warn!(
                "{}: not all rows of {}, because a list was cut: 'taskdiag {command} -p PID' reads more of it",
                self.table.name,
                of(cut_lists)
            );
        }
        let is_named = !query.select.pids.is_empty();
        let has_list = self.table.kind.list().is_some();
        let (specs, batches, lacks) = builder.finish();
        for (column, lacks) in columns.iter().zip(&lacks) {
            let cut = Missing::Reason(Reason::Truncated);
            let count = lacks.iter().filter(|(_, why)| *why == cut).count();
            if count > 0 {
                let name = &column.spec.name;
                let is_text = column.field.groups.intersects(Groups::TEXTS);
                let how = if is_text && self.text_bytes.is_some() {
                    "the extension's option --args says how much is read"
                } else if is_named || (has_list && !is_text) {
                    "the answer has no room for more"
                } else if has_list {
                    "a query with pid = N has more"
                } else {
                    "a query with pid = N has all of it"
                };
                log::warn!(
                    "{}: {name} of {count} rows is cut short or NULL: {how}",
                    self.table.name
                );
            }
        }
        Ok(texts(&specs, &batches))
    }
    fn cgroups(
        &self,
        columns: &[Column],
        query: &Query,
    ) -> Result<ExtensionPluginResponse, String> {
        let files = query.cgroup_files();
        let all = Cgroups::read(files, Bounds::default()).map_err(|e| e.to_string())?;
        for remark in all.remarks() {
            log::warn!("{}: {remark}", self.table.name);
        }
        let rows = CgroupRows::new(query, &all).map_err(|e| e.to_string())?;
        let specs = columns.iter().map(|c| c.spec.clone()).collect();
        let mut builder = Builder::new(specs).with_text_limit(TEXT_LIMIT);
        let done = rows.each(&mut |item| {
            builder.push(rows.cx(), |c| item.value(rows.cx(), columns[c].field, c));
            Ok(())
        });
        debug_assert!(done.is_ok(), "taking a row does not fail");
        let (specs, batches, _) = builder.finish();
        Ok(texts(&specs, &batches))
    }
}

/// The rows as osquery takes them.
fn texts(specs: &[Spec], batches: &[Batch]) -> ExtensionPluginResponse {
    let mut rows = Vec::new();
    for batch in batches {
        for row in 0..batch.rows {
            let values = specs.iter().zip(&batch.columns);
            let pairs = values.filter_map(|(spec, column)| {
                let text = (!column.is_null(row)).then(|| text(spec.kind, column, row))?;
                Some((spec.name.clone(), text))
            });
            rows.push(pairs.collect());
        }
    }
    rows
}

/// A value in osquery's form: durations and moments are seconds, yes is 1, and a list has blanks
/// between its items, as in osquery's `cmdline`.
fn text(kind: Type, column: &columns::Column, row: usize) -> String {
    let items = |ends: &[i32]| ends[row] as usize..ends[row + 1] as usize;
    match &column.data {
        // SQLite has no unsigned numbers. "No limit" is larger than every other number.
        Data::U64(v) if v[row] == u64::MAX => i64::MAX.to_string(),
        Data::U64(v) => (v[row] as i64).to_string(),
        Data::I64(v) => match kind {
            Type::Duration => format!("{}", v[row] as f64 / 1e9),
            Type::Timestamp => v[row].div_euclid(1_000_000).to_string(),
            _ => v[row].to_string(),
        },
        Data::F64(v) => v[row].to_string(),
        Data::Bool(bits, _) => (bits[row / 8] >> (row % 8) & 1).to_string(),
        Data::Text(t) => utf8(t.utf8().get(row)),
        Data::TextList(ends, t) => {
            items(ends).map(|i| utf8(t.utf8().get(i))).collect::<Vec<_>>().join(" ")
        }
        Data::U32List(ends, v) => {
            v[items(ends)].iter().map(u32::to_string).collect::<Vec<_>>().join(" ")
        }
    }
}

fn utf8(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
