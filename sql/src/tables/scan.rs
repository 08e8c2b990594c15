// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables as DataFusion sees them: which parts of a query the library handles, and how an answer
//! becomes rows.

use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{
    ArrayRef, RecordBatch, RecordBatchOptions, StringArray, TimestampMicrosecondArray,
};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{DataFusionError, Result, internal_datafusion_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchReceiverStream;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
};
use taskdiag::cgroups::Cgroups;
use taskdiag::columns::{Batch, Builder, Spec};
use taskdiag::field::{Context, Missing, Part};
use taskdiag::view::{CgroupRows, Filter, Query, Rows};
use taskdiag::{Reason, Snapshot};
use taskdiag_face::arrow::Form;
use taskdiag_face::exit::Asked;

use super::kind::{self, Column, HOST, IS_SOCKET, Kind, What, schema};
use super::lacks::Lacks;
use super::push::{Pushed, is_pushed};
use super::recorded::{Recorded, micros};
use super::request::{Ask, Listing, Statement};

/// Where rows come from.
#[derive(Clone, Debug)]
pub enum Source {
    /// What runs now.
    Live,
    /// A recording.
    Recording(Arc<Recorded>),
}

impl Source {}

/// A table.
#[derive(Debug)]
pub struct Table {
    kind: Kind,
    source: Source,
    columns: Vec<Column>,
    schema: SchemaRef,
}

impl Table {
    /// A table of this kind.
    pub fn new(kind: Kind, source: Source) -> Table {
        let mut columns = kind::columns(kind);
        if let Source::Recording(_) = source {
            // The library's column of this name does not have the name of `--host`.
            columns.retain(|c| c.name != HOST);
            columns.splice(0..0, Column::of_recordings());
        }
        Table { kind, source, schema: schema(&columns), columns }
    }
}

#[async_trait]
impl TableProvider for Table {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
    fn table_type(&self) -> TableType {
        TableType::Base
    }
    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        let support = |expr: &&Expr| match is_pushed(self.kind.set(), &self.columns, expr) {
            true => TableProviderFilterPushDown::Inexact,
            false => TableProviderFilterPushDown::Unsupported,
        };
        Ok(filters.iter().map(support).collect())
    }
    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let columns: Vec<Column> = match projection {
            Some(some) => some.iter().map(|i| self.columns[*i].clone()).collect(),
            None => self.columns.clone(),
        };
        let pushed = Pushed::of(self.kind.set(), &self.columns, filters);
        let mut query = kind::query(self.kind, columns.iter().filter_map(Column::field));
        query.select.pids = pushed.pids.iter().flatten().copied().collect();
        query.filter =
            query.filter.take().into_iter().chain(pushed.filters.clone()).reduce(Filter::and);
        let statement = state
            .config()
            .get_extension::<Statement>()
            .ok_or_else(|| internal_datafusion_err!("a table is read outside of a statement"))?;
        if pushed.pids.is_some() {
            statement.names_pids();
        }
        let from = match &self.source {
            Source::Live if self.kind == Kind::Cgroups => From::Cgroups(statement.list(&query)),
            Source::Live => From::Ask(statement.ask(&query, pushed.pids.clone())),
            Source::Recording(recorded) => {
                let frames = match &pushed.pids {
                    Some(pids) if pids.is_empty() => Vec::new(),
                    _ => recorded.frames(pushed.from, pushed.to),
                };
                From::Frames(recorded.clone(), frames)
            }
        };
        Ok(Arc::new(Scan::new(self.kind, Work { columns, query, from, statement })))
    }
}

/// The source of rows.
#[derive(Clone, Debug)]
enum From {
    Ask(Arc<Ask>),
    Frames(Arc<Recorded>, Vec<usize>),
    Cgroups(Arc<Listing>),
}

/// The work for the rows of a table.
#[derive(Clone, Debug)]
struct Work {
    columns: Vec<Column>,
    query: Query,
    from: From,
    statement: Arc<Statement>,
}

/// The rows of a table in a plan.
#[derive(Debug)]
struct Scan {
    kind: Kind,
    work: Work,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl Scan {
    fn new(kind: Kind, work: Work) -> Scan {
        let schema = schema(&work.columns);
        let properties = Arc::new(PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        ));
        Scan { kind, work, properties, metrics: ExecutionPlanMetricsSet::new() }
    }
}

/// The text for EXPLAIN.
impl DisplayAs for Scan {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Work { columns, query, from, .. } = &self.work;
        let names: Vec<&str> = columns.iter().map(|c| c.name.as_str()).collect();
        write!(f, "TaskdiagScan: table={}, columns=[{}]", self.kind.name(), names.join(", "))?;
        if let Some(filter) = &query.filter {
            write!(f, ", where=[{filter}]")?;
        }
        match from {
            From::Ask(ask) => write!(f, ", request=[{ask}]"),
            From::Cgroups(listing) => write!(f, ", request=[{listing}]"),
            From::Frames(recorded, frames) => {
                if !query.select.pids.is_empty() {
                    write!(f, ", pids={:?}", query.select.pids)?;
                }
                write!(f, ", frames={} of {}", frames.len(), recorded.recording.len())
            }
        }
    }
}

impl ExecutionPlan for Scan {
    fn name(&self) -> &str {
        "TaskdiagScan"
    }
    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }
    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }
    fn with_new_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }
    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
    fn execute(&self, partition: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let mut builder = RecordBatchReceiverStream::builder(self.schema(), 2);
        let (tx, kind, work, schema) = (builder.tx(), self.kind, self.work.clone(), self.schema());
        let rows = MetricBuilder::new(&self.metrics).output_rows(partition);
        // An answer is made by system calls, which may take a while.
        builder.spawn_blocking(move || {
            work.run(kind, &schema, &mut |batch| {
                rows.add(batch.num_rows());
                tx.blocking_send(Ok(batch)).is_ok()
            })
        });
        Ok(builder.build())
    }
}

impl Work {
    /// Calls `take` with the rows, until it returns false.
    fn run(
        &self,
        kind: Kind,
        schema: &SchemaRef,
        take: &mut dyn FnMut(RecordBatch) -> bool,
    ) -> Result<()> {
        match &self.from {
            From::Ask(ask) => {
                if let Some(snapshot) = ask.answer(&self.statement).map_err(failed)? {
                    self.rows(kind, schema, snapshot, None, take)?;
                }
            }
            From::Cgroups(listing) => {
                let all = listing.answer(&self.statement).map_err(failed)?;
                self.cgroups(kind, schema, all, None, take)?;
            }
            From::Frames(recorded, frames) => {
                let mut gaps = CgroupGaps::default();
                for number in frames {
                    if self.statement.watch.is_stopped() {
                        break;
                    }
                    let frame = match recorded.recording.read(*number) {
                        Ok(frame) => frame,
                        Err(e) => {
                            let mut lacks = Lacks::default();
                            lacks.line(e.to_string(), Asked::All);
                            self.statement.lack(lacks);
                            continue;
                        }
                    };
                    let host = recorded.host_of(&frame.snapshot);
                    let at = Some((micros(frame.info.time), host.as_str()));
                    let goes_on = if kind != Kind::Cgroups {
                        self.rows(kind, schema, &frame.snapshot, at, take)?
                    } else if let Some(all) = Cgroups::of(&frame.snapshot) {
                        gaps.see(&all);
                        self.cgroups(kind, schema, &all, at, take)?
                    } else {
                        gaps.without += 1;
                        true
                    };
                    if !goes_on {
                        break;
                    }
                }
                self.statement.lack(gaps.lacks());
            }
        }
        Ok(())
    }
    /// Calls `take` with the rows of a list of cgroups. Returns whether to continue.
    fn cgroups(
        &self,
        kind: Kind,
        schema: &SchemaRef,
        all: &Cgroups,
        at: Option<(i64, &str)>,
        take: &mut dyn FnMut(RecordBatch) -> bool,
    ) -> Result<bool> {
        let rows = CgroupRows::new(&self.query, all).map_err(|e| failed(e.to_string()))?;
        let mut lacks = Lacks::default();
        rows.left().iter().for_each(|left| lacks.left(kind.name(), at.is_none(), left));
        let goes_on = self.pass(kind, schema, (rows.cx(), &rows), at, &mut lacks, take);
        self.statement.lack(lacks);
        goes_on
    }
    /// Calls `take` with the rows of an answer. Returns whether to continue.
    fn rows(
        &self,
        kind: Kind,
        schema: &SchemaRef,
        snapshot: &Snapshot,
        at: Option<(i64, &str)>,
        take: &mut dyn FnMut(RecordBatch) -> bool,
    ) -> Result<bool> {
        let (table, is_live) = (kind.name(), at.is_none());
        let mut lacks = Lacks::default();
        if !is_live {
            lacks.answer(snapshot);
        }
        if let Some(list) = kind.list()
            && !snapshot.stream().asked().intersects(list.into())
        {
            let text = format!(
                "{table} has no rows, since {list} was not recorded: 'taskdiag record --groups' says what is"
            );
            lacks.line(text, Asked::All);
            self.statement.lack(lacks);
            return Ok(true);
        }
        let mut view = self.query.view(snapshot);
        if let Some(files) = view.files_mut() {
            // The names of sockets of our own namespace do without its number.
            let own = std::fs::metadata("/proc/self/ns/net").ok();
            files.own_netns = own.and_then(|m| u32::try_from(m.ino()).ok());
        }
        for left in view.left() {
            match kind == Kind::Sockets && left.field.name == IS_SOCKET.0 {
                true => lacks.list(table, is_live, left.why, left.tasks),
                false => lacks.left(table, is_live, &left),
            }
        }
        let shown = view.rows(true, &mut |_, _, _| {});
        let goes_on = self.pass(kind, schema, (view.cx(), &*shown), at, &mut lacks, take);
        self.statement.lack(lacks);
        goes_on
    }
    /// Calls `take` with rows, and adds what they lack. Returns whether to continue.
    fn pass(
        &self,
        kind: Kind,
        schema: &SchemaRef,
        (cx, rows): (&Context, &dyn Rows),
        at: Option<(i64, &str)>,
        lacks: &mut Lacks,
        take: &mut dyn FnMut(RecordBatch) -> bool,
    ) -> Result<bool> {
        let (table, is_live) = (kind.name(), at.is_none());
        let fields = &self.query.columns;
        let names: Vec<&str> =
            self.columns.iter().filter(|c| c.field().is_some()).map(|c| c.name.as_str()).collect();
        let specs = fields.iter().zip(&names).map(|(field, name)| Spec::of(name, field)).collect();
        let mut builder = Builder::new(specs);
        let specs = builder.specs.clone();
        let mut send = |batch: Batch| -> Result<bool> {
            let rows = batch.rows;
            let mut of_fields = Form::Queried.arrays(&specs, batch).into_iter();
            let array = |column: &Column| -> ArrayRef {
                match (&column.what, at) {
                    (What::Field { .. }, _) => {
                        of_fields.next().expect("there is one for each field")
                    }
                    (What::Moment, Some((us, _))) => Arc::new(
                        TimestampMicrosecondArray::from(vec![us; rows]).with_timezone("UTC"),
                    ),
                    (What::Host, Some((_, host))) => Arc::new(StringArray::from(vec![host; rows])),
                    (What::Moment | What::Host, None) => {
                        unreachable!("only recordings have these columns")
                    }
                }
            };
            let arrays: Vec<ArrayRef> = self.columns.iter().map(array).collect();
            let options = RecordBatchOptions::new().with_row_count(Some(rows));
            Ok(take(RecordBatch::try_new_with_options(schema.clone(), arrays, &options)?))
        };
        // Rows are passed on while more are made, so that a long list is never there as a whole.
        let mut sent = Ok(true);
        let done = rows.each(&mut |item| {
            if let Some(row) = item.row().filter(|row| matches!(row.part, Part::Without)) {
                // This is not a row, but the reason for missing rows.
                let reason =
                    kind.list().and_then(|list| row.view.reason(list)).unwrap_or(Reason::Truncated);
                lacks.list(table, is_live, Missing::Reason(reason), 1);
                return Ok(());
            }
            builder.push(cx, |c| item.value(cx, fields[c], c));
            for batch in builder.take_batches() {
                sent = send(batch);
                if !matches!(sent, Ok(true)) {
                    return Err(io::ErrorKind::BrokenPipe.into());
                }
            }
            Ok(())
        });
        debug_assert!(done.is_ok() || !matches!(sent, Ok(true)), "taking a row does not fail");
        let (_, batches, missing) = builder.finish();
        for (name, all) in names.iter().zip(&missing) {
            all.iter().for_each(|(_, why)| lacks.value(table, name, is_live, *why));
        }
        if !matches!(sent, Ok(true)) {
            return sent;
        }
        for batch in batches {
            if !send(batch)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn failed(why: String) -> DataFusionError {
    DataFusionError::External(Box::new(NoAnswer(why)))
}

/// What recorded answers lack of cgroups. A recording has thousands of answers, so they are
/// counted, and only the answer that lacks most is described.
#[derive(Default)]
struct CgroupGaps {
    /// Answers with cgroups.
    with: u64,
    /// Answers without cgroups.
    without: u64,
    /// Answers that lack some of their cgroups.
    cut: u64,
    /// The number of cgroups that one of these lacks at most, with its remarks.
    most: u64,
    remarks: Vec<String>,
}

impl CgroupGaps {
    fn see(&mut self, all: &Cgroups) {
        self.with += 1;
        let left = all.left_out();
        let lacking =
            [left.cgroups, left.deep, left.no_room].into_iter().fold(0, u64::saturating_add);
        self.cut += u64::from(lacking > 0);
        if lacking > self.most {
            (self.most, self.remarks) = (lacking, all.remarks());
        }
    }
    fn lacks(self) -> Lacks {
        let mut lacks = Lacks::default();
        if self.without > 0 {
            let all = self.with + self.without;
            let line = format!(
                "{} of {all} answers have no rows in cgroups, since their cgroups were not recorded: 'taskdiag record --cgroups' records them",
                self.without
            );
            lacks.line(line, Asked::All);
        }
        let of = match self.cut {
            0 | 1 => String::new(),
            n => format!(" (cgroups are missing in {n} answers, and this one lacks most)"),
        };
        self.remarks.iter().for_each(|text| lacks.line(format!("{text}{of}"), Asked::Named));
        lacks
    }
}

/// There is no answer, for this reason.
#[derive(Debug)]
pub struct NoAnswer(String);

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NoAnswer {}
