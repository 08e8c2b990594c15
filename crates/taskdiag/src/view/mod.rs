//! A view of an answer: its rows, their order, their columns, and how they are added up.
//!
//! A [`Query`] describes the data that a program wants to show. [`Query::plan`] makes requests from
//! it, which read only the data that the columns, keys and conditions need. [`Query::view`] returns
//! the rows of an answer, live or saved. The command uses these, and so can any other program that
//! shows tables. Widths, headers and the text of values are left to the program.
//!
//! ```
//! use taskdiag::field::TASKS;
//! use taskdiag::view::{Filter, Key, Query, Rows};
//! use taskdiag::Choice;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let columns = ["pid", "rss", "comm"].map(|name| TASKS.find(name).unwrap().field);
//! let mut query = Query::new(&TASKS, columns);
//! query.sort.extend(Key::parse(&TASKS, "-rss"));
//! query.filter = Some(Filter::parse(&TASKS, "rss > 100M and not state == Z")?);
//! let snapshot = query.plan().ask(Choice::Auto)?.snapshot;
//! let view = query.view(&snapshot);
//! view.rows(false, &mut |_, _, _| {}).each(&mut |item| {
//!     for (c, field) in query.columns.iter().enumerate() {
//!         print!("{:?} ", item.value(view.cx(), field, c));
//!     }
//!     println!();
//!     Ok(())
//! })?;
//! # Ok(())
//! # }
//! ```

mod again;
mod by;
mod cgroups;
mod files;
mod filter;
mod maps;
mod narrow;
mod order;
mod pattern;
mod plan;
mod query;
mod rows;
mod select;

pub use again::Again;
pub use by::{MemoryOnce, Summed, Sums};
pub use cgroups::CgroupRows;
pub use files::Opened;
pub use filter::{Filter, FilterError, Left, Sieve, Truth};
pub use filter::{parse_duration, parse_size};
pub use maps::{Mappings, is_gap};
pub use narrow::Narrow;
pub use order::{Key, Ranks, sort};
pub use pattern::Pattern;
pub use plan::{Answered, FEW_PIDS, Plan};
pub use query::{Query, View};
pub use rows::{Item, Rows, Sum, Take, Tasks};
pub use select::{PidfdInodes, Selection, Simple};

use std::sync::Arc;

use crate::field::Row;

/// A test of rows that the program provides.
pub type Keep = Arc<dyn Fn(&Row<'_>) -> bool + Send + Sync>;

/// Answers a request about all tasks.
type Answerer<'a> = &'a dyn Fn(&crate::Request) -> Result<crate::Snapshot, crate::Error>;
