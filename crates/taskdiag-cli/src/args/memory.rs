//! The options of `taskdiag memory`.

use clap::{Arg, ArgMatches, Command};
use taskdiag::field::MEMORY;

use super::table;
use crate::columns::{self, Column};
use crate::exit::{self, Exit};

/// What `taskdiag memory` was asked for.
#[derive(Clone, Debug)]
pub struct MemoryArgs {
    /// What all tables have.
    pub table: table::TableArgs,
    /// One row for each value of this column.
    pub by: Option<Column>,
}

const EXAMPLES: &[(&str, &str)] = &[
    ("taskdiag memory --by user", "show the memory of each user"),
    ("taskdiag memory --sort -swap", "show who is swapped out most"),
    ("taskdiag memory --budget 500ms", "walk over pages for half a second at most"),
];

/// What the three sizes are, and what they cost.
const INTRO: &str = "\
USS is the memory that a process has alone. PSS is that and its share of the pages that it has with others. RSS counts \
shared pages in full. For USS and PSS the kernel walks over all pages of a process, which takes milliseconds a GiB; \
--budget and --max-rss limit that.";

/// The options.
pub fn command() -> Command {
    table::options(
        Command::new("memory")
            .about("Show what processes have in memory and in swap, the largest first")
            .before_help(INTRO)
            .help_template(table::TEMPLATE)
            .override_usage("taskdiag memory [OPTIONS] [PID...]"),
    )
    .next_help_heading("Rows")
    .arg(
        Arg::new("by")
            .long("by")
            .value_name("COLUMN")
            .help("Print a row for each value of a column, such as user, command, cgroup or exe"),
    )
    .after_help(format!("{}\n\n{}", table::WHERE, exit::examples(EXAMPLES)))
}

impl MemoryArgs {
    /// From parsed options.
    pub fn from_matches(m: &ArgMatches) -> Result<MemoryArgs, Exit> {
        let by = match m.get_one::<String>("by").map(String::as_str) {
            None => None,
            Some(name) => columns::by(&MEMORY, name)?,
        };
        Ok(MemoryArgs { table: table::TableArgs::from_matches(m, &MEMORY)?, by })
    }
}
