//! The options of `taskdiag memory`.

use clap::{Arg, ArgMatches, Command};
use taskdiag::field::MEMORY;

use super::table;
use crate::columns::{self, Column};
use crate::exit::{self, Exit};

/// Parsed options of `taskdiag memory`.
#[derive(Clone, Debug)]
pub struct MemoryArgs {
    /// The options that all tables have.
    pub table: table::TableArgs,
    /// One row for each value of this column.
    pub by: Option<Column>,
}

const EXAMPLES: &[(&str, &str)] = &[
    ("taskdiag memory --by user", "show the memory of each user"),
    ("taskdiag memory --sort -swap", "sort by swapped-out memory"),
    ("taskdiag memory --budget 500ms", "walk over pages for half a second at most"),
];

/// Explains the three sizes, and their cost.
const INTRO: &str = "\
USS is the memory that only this process has. PSS also counts its share of shared pages. RSS counts \
shared pages in full. For USS and PSS the kernel walks over all pages of a process, which takes milliseconds a GiB; \
--budget and --max-rss limit that.";

/// The options.
pub fn command() -> Command {
    table::options(
        Command::new("memory")
            .about("Show memory and swap of processes, the largest first")
            .before_help(INTRO)
            .help_template(table::TEMPLATE)
            .override_usage("taskdiag memory [OPTIONS] [PID...]"),
    )
    .next_help_heading("Rows")
    .arg(
        Arg::new("by")
            .long("by")
            .value_name("COLUMN")
            .help("Print a row for each value of a column, such as user, command, unit, container, pod, image or exe"),
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
