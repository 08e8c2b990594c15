// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Parquet files of `taskdiag convert`, of one host or many, as tables. DataFusion reads them:
//! it looks only into the directories, files and row groups that a query needs.

use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::catalog::{MemorySchemaProvider, TableProvider};
use datafusion::common::DataFusionError;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::{
    ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl,
};
use datafusion::execution::context::SessionContext;
use datafusion::logical_expr::{Expr, cast, ident};
use taskdiag_face::exit::Exit;
use taskdiag_face::tables::Kind;

/// The table with the hour as a number.
fn with_numbers(
    context: &SessionContext,
    table: Arc<dyn TableProvider>,
) -> Result<Arc<dyn TableProvider>, DataFusionError> {
    let schema = table.schema();
    let column = |name: &String| match name.as_str() {
        "hour" => cast(ident(name), DataType::Int32).alias("hour"),
        _ => ident(name),
    };
    let columns: Vec<Expr> = schema.fields().iter().map(|f| column(f.name())).collect();
    Ok(context.read_table(table)?.select(columns)?.into_view())
}

/// The number of nested directories: date, hour and host.
const DEPTH: usize = 3;

/// Is there a file of this table? DataFusion skips everything but regular files, for example a
/// pipe.
fn has_file(directory: &Path, name: &str, depth: usize) -> bool {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.into_iter().any(|entry| {
        let called = entry.file_name().to_string_lossy().into_owned();
        match depth {
            0 if called.starts_with(name) && called.ends_with(".parquet") => {
                std::fs::metadata(entry.path()).is_ok_and(|there| there.is_file())
            }
            0 => false,
            _ => called.contains('=') && has_file(&entry.path(), name, depth - 1),
        }
    })
}

/// Adds the schema `lake`.
///
/// # Errors
/// There are no files of this table, or they cannot be read.
pub async fn add(context: &SessionContext, catalog: &str, path: &Path) -> Result<(), Exit> {
    let shown = path.display();
    let failed = |e: DataFusionError| Exit::Failed(format!("{shown}: {e}"));
    let directory = path.canonicalize().map_err(|e| Exit::Failed(format!("{shown}: {e}")))?;
    let catalog =
        context.catalog(catalog).ok_or_else(|| Exit::Failed("there is no catalog".to_owned()))?;
    catalog.register_schema("lake", Arc::new(MemorySchemaProvider::new())).map_err(failed)?;
    let mut there = 0;
    for name in Kind::OF_RECORDINGS.map(Kind::name) {
        if !has_file(&directory, name, DEPTH) {
            continue;
        }
        let url = ListingTableUrl::parse(format!("{}/{name}*.parquet", directory.display()))
            .map_err(failed)?;
        // DataFusion compares the value in a path with the value as it would write it itself. The
        // hour 3 is 03 in the path, so the column is text, and the view makes it a number.
        let columns = ["date", "hour", "host"].map(|name| (name.to_owned(), DataType::Utf8));
        let options = ListingOptions::new(Arc::new(ParquetFormat::default()))
            .with_file_extension(".parquet")
            .with_table_partition_cols(columns.to_vec());
        let state = context.state();
        let schema = options.infer_schema(&state, &url).await.map_err(failed)?;
        let config = ListingTableConfig::new(url).with_listing_options(options).with_schema(schema);
        let table = ListingTable::try_new(config).map_err(failed)?;
        let view = with_numbers(context, Arc::new(table)).map_err(failed)?;
        context.register_table(format!("lake.{name}"), view).map_err(failed)?;
        there += 1;
    }
    if there == 0 {
        return Err(Exit::Failed(format!(
            "{shown} has no files such as date=2026-11-22/hour=03/host=web1/processes.parquet: 'taskdiag convert' writes them"
        )));
    }
    Ok(())
}
