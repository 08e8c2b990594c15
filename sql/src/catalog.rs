// SPDX-License-Identifier: MIT OR Apache-2.0
//! The schemas: `live`, `recording`, `lake` and `osquery`. A table is made when a statement names
//! it, so that a start is short.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::{MemorySchemaProvider, SchemaProvider, TableProvider};
use datafusion::common::{DataFusionError, Result, plan_err};
use datafusion::datasource::ViewTable;
use datafusion::execution::context::SessionContext;

use crate::system;
use crate::tables::{Kind, Source, Table};

/// A view: its name, and the query.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// The name.
    pub name: &'static str,
    /// The query.
    pub query: &'static str,
}

const VIEWS: &str = include_str!("views/taskdiag.sql");
const OSQUERY: &str = include_str!("views/osquery.sql");

/// The views of a file. Each is `create view NAME as` and a query, up to a semicolon at the end of
/// a line.
fn views(text: &'static str) -> Vec<View> {
    let view = |statement: &'static str| {
        let begin = statement.find("create view ")?;
        let (name, query) = statement[begin..].strip_prefix("create view ")?.split_once(" as\n")?;
        Some(View { name, query: query.trim() })
    };
    text.split(";\n").filter_map(view).collect()
}

/// The source of a schema's tables.
#[derive(Clone, Debug)]
enum TableSource {
    Tables(Source),
    Osquery,
}

/// A schema.
pub struct Schema {
    made: TableSource,
    views: Vec<View>,
    /// Tables that statements have added.
    added: MemorySchemaProvider,
    /// Where views are planned.
    session: SessionContext,
}

impl std::fmt::Debug for Schema {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Schema").field("made", &self.made).finish_non_exhaustive()
    }
}

impl Schema {
    /// The tables of a source.
    pub fn tables(session: &SessionContext, source: Source) -> Schema {
        // Over all moments of a recording, the view would add up rows of different times.
        let views = if matches!(source, Source::Live) { views(VIEWS) } else { Vec::new() };
        Schema::new(session, TableSource::Tables(source), views)
    }
    /// The tables of osquery.
    pub fn osquery(session: &SessionContext) -> Schema {
        Schema::new(session, TableSource::Osquery, views(OSQUERY))
    }
    fn new(session: &SessionContext, made: TableSource, views: Vec<View>) -> Schema {
        Schema { made, views, added: MemorySchemaProvider::new(), session: session.clone() }
    }
    fn is_own(&self, name: &str) -> bool {
        self.own().contains(&name) || self.views.iter().any(|v| v.name == name)
    }
    fn own(&self) -> Vec<&'static str> {
        match &self.made {
            TableSource::Tables(_) => Kind::IN_SQL.map(Kind::name).to_vec(),
            TableSource::Osquery => vec!["users", "groups", "user_groups", "uptime"],
        }
    }
}

#[async_trait]
impl SchemaProvider for Schema {
    fn table_names(&self) -> Vec<String> {
        let own = self.own().into_iter().chain(self.views.iter().map(|v| v.name));
        own.map(str::to_owned).chain(self.added.table_names()).collect()
    }
    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        if let Some(added) = self.added.table(name).await? {
            return Ok(Some(added));
        }
        if let Some(view) = self.views.iter().find(|v| v.name == name) {
            let plan = self.session.state().create_logical_plan(view.query).await?;
            return Ok(Some(Arc::new(ViewTable::new(plan, Some(view.query.to_owned())))));
        }
        match (&self.made, name) {
            (TableSource::Tables(source), name) => {
                let kind = Kind::IN_SQL.into_iter().find(|k| k.name() == name);
                Ok(kind.map(|k| Arc::new(Table::new(k, source.clone())) as Arc<dyn TableProvider>))
            }
            (TableSource::Osquery, "users") => Ok(Some(system::users()?)),
            (TableSource::Osquery, "groups") => Ok(Some(system::groups()?)),
            (TableSource::Osquery, "user_groups") => Ok(Some(system::user_groups()?)),
            (TableSource::Osquery, "uptime") => Ok(Some(system::uptime()?)),
            (TableSource::Osquery, _) => Ok(None),
        }
    }
    fn register_table(
        &self,
        name: String,
        table: Arc<dyn TableProvider>,
    ) -> Result<Option<Arc<dyn TableProvider>>> {
        if self.is_own(&name) {
            return plan_err!("the table '{name}' is part of the program: take another name");
        }
        self.added.register_table(name, table)
    }
    fn deregister_table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        if self.is_own(name) {
            return plan_err!("the table '{name}' is part of the program, so it cannot be dropped");
        }
        self.added.deregister_table(name)
    }
    fn table_exist(&self, name: &str) -> bool {
        self.table_names().iter().any(|n| n == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_are_found_in_their_files() {
        for (text, least) in [(VIEWS, 1), (OSQUERY, 6)] {
            let found = views(text);
            assert!(found.len() >= least);
            assert_eq!(found.len(), text.matches("create view ").count());
            assert!(
                found
                    .iter()
                    .all(|v| !v.name.contains(char::is_whitespace) && v.query.contains("select"))
            );
        }
    }
}
