// SPDX-License-Identifier: MIT OR Apache-2.0
//! A session: schemas, statements, and messages about their results.

use std::io::Write;
use std::sync::Arc;

use datafusion::common::{Column, DataFusionError, SchemaError};
use datafusion::execution::context::{SessionConfig, SessionContext};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::stream::RecordBatchReceiverStream;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::sql::parser::{DFParserBuilder, Statement as Parsed};
use datafusion::sql::sqlparser::dialect::{Dialect, PostgreSqlDialect, SQLiteDialect};
use futures::StreamExt;
use taskdiag::{Choice, field};
use taskdiag_face::aside;
use taskdiag_face::exit::{Asked, Exit, Lack, remark};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

use crate::args::Places;
use crate::catalog::Schema;
use crate::interrupt;
use crate::lake;
use crate::output::{Format, Writer};
use crate::rewrite;
use crate::tables::Source;
use crate::tables::kind::Kind;
use crate::tables::recorded::Recorded;
use crate::tables::request::Statement;
use crate::tables::scan::NoAnswer;
use taskdiag_face::limits::PageLimits;

/// The name of the one catalog.
const CATALOG: &str = "taskdiag";

/// A session.
pub struct Session {
    context: SessionContext,
    choice: Choice,
    limits: PageLimits,
    osquery: bool,
    /// Is all missing data a failure?
    strict: bool,
    /// The schema whose tables need no prefix.
    pub schema: &'static str,
}

/// The result of a statement.
#[derive(Debug, Default)]
pub struct Ran {
    /// The number of rows. `None`: it was not a query.
    pub rows: Option<usize>,
    /// Messages that are not about missing data.
    pub remarks: Vec<String>,
    /// Messages about missing data.
    pub lacks: Vec<Lack>,
    /// How exactly the statement names what it is about.
    pub asked: Asked,
}

impl Session {
    /// A session with the tables of these places.
    ///
    /// # Errors
    /// A recording or the files of a lake cannot be read.
    pub async fn open(
        places: &Places,
        choice: Choice,
        limits: PageLimits,
        osquery: bool,
        strict: bool,
    ) -> Result<Session, Exit> {
        let schema = match places {
            _ if osquery => "osquery",
            Places { recording: Some(_), .. } => "recording",
            Places { lake: Some(_), .. } => "lake",
            _ => "live",
        };
        let config = SessionConfig::new()
            .with_default_catalog_and_schema(CATALOG, schema)
            .with_information_schema(true)
            // The views below are made before the first statement begins.
            .with_extension(Arc::new(Statement::new(choice, limits)));
        let context = SessionContext::new_with_config(config);
        let failed = |e: DataFusionError| Exit::Failed(e.to_string());
        let catalog = context
            .catalog(CATALOG)
            .ok_or_else(|| Exit::Failed("there is no catalog".to_owned()))?;
        let add = |name: &str, schema: Schema| {
            catalog.register_schema(name, Arc::new(schema)).map_err(failed)
        };
        add("live", Schema::tables(&context, Source::Live))?;
        add("osquery", Schema::osquery(&context))?;
        if let Some(path) = &places.recording {
            let (recorded, remarks) =
                Recorded::open(path, places.at, places.host.clone()).map_err(Exit::Failed)?;
            remarks.iter().for_each(|line| remark(line));
            add("recording", Schema::tables(&context, Source::Recording(Arc::new(recorded))))?;
        }
        if let Some(path) = &places.lake {
            lake::add(&context, CATALOG, path).await?;
        }
        Ok(Session { context, choice, limits, osquery, strict, schema })
    }
    /// The statements of a text.
    ///
    /// # Errors
    /// It is not valid SQL.
    pub fn parse(&self, sql: &str) -> Result<Vec<Parsed>, Exit> {
        let usage = |e: DataFusionError| Exit::Usage(message(&e));
        // The generic dialect allows a comma after the last column, and so reads `pid, offset` as a
        // list with one column.
        let dialect: &dyn Dialect =
            if self.osquery { &SQLiteDialect {} } else { &PostgreSqlDialect {} };
        let mut parser = DFParserBuilder::new(sql).with_dialect(dialect).build().map_err(usage)?;
        let mut statements: Vec<Parsed> = parser.parse_statements().map_err(usage)?.into();
        let columns = if self.osquery { self.columns_of_osquery() } else { Vec::new() };
        for statement in &mut statements {
            rewrite::columns(statement);
            if self.osquery {
                rewrite::sqlite(statement, &|name| columns.iter().any(|c| c == name));
            }
        }
        Ok(statements)
    }
    /// Runs a statement, and writes its result.
    ///
    /// # Errors
    /// It cannot be run, or fails midway.
    pub async fn run(
        &self,
        parsed: Parsed,
        format: Format,
        out: &mut (dyn Write + Send),
    ) -> Result<Ran, Exit> {
        let statement = Arc::new(Statement::new(self.choice, self.limits));
        self.context.state_ref().write().config_mut().set_extension(statement.clone());
        let done = self.stream(parsed, format, out);
        let rows = tokio::select! {
            done = done => done,
            () = interrupt::pressed() => {
                statement.watch.stop();
                return Err(Exit::Stopped(vec![Lack::always("stopped by Ctrl-C".to_owned())]));
            }
        };
        let lacks = std::mem::take(&mut *statement.lacks.lock().unwrap_or_else(|e| e.into_inner()));
        let asked = if self.strict { Asked::Strict } else { statement.asked() };
        Ok(Ran { rows: rows?, remarks: lacks.remarks().to_vec(), lacks: lacks.lines(), asked })
    }
    async fn stream(
        &self,
        parsed: Parsed,
        format: Format,
        out: &mut (dyn Write + Send),
    ) -> Result<Option<usize>, Exit> {
        let workers = Workers::start()?;
        let mut planned = workers.spawn(planned(self.context.clone(), parsed));
        let planned = match tokio::time::timeout(aside::PATIENCE, &mut planned).await {
            Ok(planned) => planned,
            Err(_) => {
                let patience = aside::PATIENCE.as_secs();
                remark(&format!(
                    "the statement is not planned after {patience} s, perhaps because a file does not answer; Ctrl-C stops waiting"
                ));
                planned.await
            }
        };
        let planned = planned.map_err(|e| Exit::Failed(e.to_string()))?;
        let Planned { plan, tasks, is_plan, is_query } = planned.map_err(|e| self.unplanned(&e))?;
        let schema = plan.schema();
        let mut batches = workers.stream(plan, tasks);
        if !is_query {
            while let Some(batch) = batches.next().await {
                batch.map_err(|e| unanswered(&e))?;
            }
            return Ok(None);
        }
        let mut writer = Writer::begin(format, out, &schema, is_plan)?;
        let mut rows = 0;
        while let Some(batch) = batches.next().await {
            let batch = batch.map_err(|e| unanswered(&e))?;
            rows += batch.num_rows();
            writer.rows(&batch)?;
        }
        writer.end()?;
        Ok(Some(rows))
    }
    /// The names of tables. Names outside the default schema have a prefix.
    pub fn tables(&self) -> Vec<String> {
        let Some(catalog) = self.context.catalog(CATALOG) else { return Vec::new() };
        let mut all = Vec::new();
        for name in catalog.schema_names() {
            let tables = catalog.schema(&name).map(|s| s.table_names()).unwrap_or_default();
            all.extend(tables.into_iter().map(|table| match name == self.schema {
                true => table,
                false => format!("{name}.{table}"),
            }));
        }
        all.sort();
        all
    }
    /// The names of the columns of a table.
    pub async fn columns(&self, table: &str) -> Vec<String> {
        match self.context.table_provider(table).await {
            Ok(table) => table.schema().fields().iter().map(|f| f.name().clone()).collect(),
            Err(_) => Vec::new(),
        }
    }
    /// The names of all columns of osquery's tables.
    fn columns_of_osquery(&self) -> Vec<String> {
        let catalog = self.context.catalog(CATALOG);
        let schema = catalog.and_then(|c| c.schema("osquery"));
        let tables = schema.map(|s| s.table_names()).unwrap_or_default();
        let all = tables.iter().map(|t| self.columns_now(&format!("osquery.{t}")));
        all.flatten().collect()
    }
    /// As [`columns`](Self::columns), without async: none of our tables waits.
    fn columns_now(&self, table: &str) -> Vec<String> {
        futures::executor::block_on(self.columns(table))
    }
    /// Why a statement cannot be planned, with a suggestion.
    fn unplanned(&self, error: &DataFusionError) -> Exit {
        let cause = error.find_root();
        if let DataFusionError::SchemaError(e, _) = cause
            && let SchemaError::FieldNotFound { field, valid_fields } = &**e
        {
            return Exit::Usage(no_column(field, valid_fields));
        }
        if let DataFusionError::External(e) = cause
            && e.is::<NoAnswer>()
        {
            return Exit::Failed(e.to_string());
        }
        let text = message(error);
        // DataFusion also reports this for a table that cannot be dropped.
        let dropped = text.strip_prefix("Table '").and_then(|t| t.strip_suffix("' doesn't exist."));
        if let Some(name) = dropped.filter(|name| self.tables().iter().any(|t| t == name)) {
            return Exit::Usage(format!(
                "the table '{name}' is part of the program, so it cannot be dropped"
            ));
        }
        match text.strip_suffix("' not found").and_then(|t| t.strip_prefix("table '")) {
            Some(name) => Exit::Usage(self.no_table(name)),
            None => Exit::Usage(text),
        }
    }
    fn no_table(&self, full: &str) -> String {
        let name = full.strip_prefix(&format!("{CATALOG}.{}.", self.schema)).unwrap_or(full);
        let name = name.strip_prefix(&format!("{CATALOG}.")).unwrap_or(name);
        let tables = self.tables();
        let near = field::nearest(name, tables.iter().map(String::as_str));
        let hint = near.map_or_else(String::new, |near| format!(" (did you mean '{near}'?)"));
        format!("there is no table '{name}'{hint}; 'show tables' lists them")
    }
}

/// A statement that is to be computed.
struct Planned {
    plan: Arc<dyn ExecutionPlan>,
    tasks: Arc<TaskContext>,
    /// Does it show a plan?
    is_plan: bool,
    /// Has it rows?
    is_query: bool,
}

/// Plans a statement. That of an external table opens its files.
async fn planned(context: SessionContext, parsed: Parsed) -> Result<Planned, DataFusionError> {
    let plan = context.state().statement_to_plan(parsed).await?;
    let is_plan = matches!(plan, LogicalPlan::Explain(_) | LogicalPlan::Analyze(_));
    let is_query =
        !matches!(plan, LogicalPlan::Ddl(_) | LogicalPlan::Statement(_) | LogicalPlan::Dml(_));
    let frame = context.execute_logical_plan(plan).await?;
    let tasks = Arc::new(frame.task_ctx());
    let plan = frame.create_physical_plan().await?;
    Ok(Planned { plan, tasks, is_plan, is_query })
}

/// The threads that plan and compute a statement. A join may compute for minutes without a point at
/// which it can be stopped. So the threads of a stopped statement are abandoned, and the next one
/// gets new ones.
struct Workers(Option<Runtime>);

impl Workers {
    fn start() -> Result<Workers, Exit> {
        let runtime = Builder::new_multi_thread().enable_all().build();
        let runtime =
            runtime.map_err(|e| Exit::Failed(format!("no thread can be started: {e}")))?;
        Ok(Workers(Some(runtime)))
    }
    /// Runs a computation in a worker thread. If it opens a file that does not answer, no caller
    /// has to wait for it.
    fn spawn<T: Send + 'static>(
        &self,
        what: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.0.as_ref().expect("it is taken by drop() only").spawn(what)
    }
    /// The rows of a plan.
    fn stream(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        tasks: Arc<TaskContext>,
    ) -> SendableRecordBatchStream {
        let mut builder = RecordBatchReceiverStream::builder(plan.schema(), 2);
        let sender = builder.tx();
        let compute = async move {
            let mut batches = execute_stream(plan, tasks)?;
            while let Some(batch) = batches.next().await {
                if sender.send(batch).await.is_err() {
                    break;
                }
            }
            Ok(())
        };
        if let Some(runtime) = &self.0 {
            builder.spawn_on(compute, runtime.handle());
        }
        builder.build()
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// The message without the names of DataFusion's own errors before it.
fn message(error: &DataFusionError) -> String {
    match error.find_root() {
        DataFusionError::Plan(text)
        | DataFusionError::Execution(text)
        | DataFusionError::NotImplemented(text) => text.clone(),
        DataFusionError::SQL(e, _) => {
            e.to_string().trim_start_matches("sql parser error: ").to_owned()
        }
        other => other.to_string(),
    }
}

/// Why a planned query fails.
fn unanswered(error: &DataFusionError) -> Exit {
    match error.find_root() {
        DataFusionError::External(e) if e.is::<NoAnswer>() => Exit::Failed(e.to_string()),
        // Errors that depend on values, such as a division by zero.
        DataFusionError::ArrowError(e, _) => Exit::Usage(e.to_string()),
        DataFusionError::Execution(text) => Exit::Usage(text.clone()),
        other => Exit::Failed(other.to_string()),
    }
}

fn no_column(wanted: &Column, valid: &[Column]) -> String {
    let of = wanted.relation.as_ref().map_or_else(String::new, |r| format!(" in {r}"));
    let name = &wanted.name;
    // Another name of the command for a column.
    let other = Kind::IN_SQL.iter().find_map(|kind| {
        let found = kind.set().find(name)?.field.name;
        (found != name && valid.iter().any(|c| c.name == found)).then_some(found)
    });
    let near = other.or_else(|| field::nearest(name, valid.iter().map(|c| c.name.as_str())));
    let hint = near.map_or_else(String::new, |near| format!(" (did you mean '{near}'?)"));
    format!("there is no column '{name}'{of}{hint}; 'describe TABLE' lists those of a table")
}
