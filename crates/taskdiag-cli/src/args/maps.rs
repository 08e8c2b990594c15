//! The options of `taskdiag maps`.

use std::ffi::OsString;

use clap::{Arg, ArgMatches, Command};
use taskdiag::field::MAPS;

use super::lists;
use super::table::{self, flag, list};
use crate::columns::{self, Column};
use crate::exit::{self, Exit};

/// Parsed options of `taskdiag maps`.
#[derive(Clone, Debug)]
pub struct MapsArgs {
    /// The options that all tables have.
    pub table: table::TableArgs,
    /// The view, if there is no `-o`.
    pub view: MapsView,
    /// One row for each value of this column.
    pub by: Option<Column>,
    /// Only mappings whose name contains one of these.
    pub paths: Vec<Vec<u8>>,
    /// Only mappings of deleted files.
    pub deleted: bool,
}

/// A ready-made set of columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapsView {
    /// `pmap`.
    Default,
    /// `pmap -x`.
    Extended,
    /// All columns of smaps, as `pmap -X`.
    Everything,
}

const EXAMPLES: &[(&str, &str)] = &[
    ("taskdiag maps 42", "show the mappings of process 42"),
    ("taskdiag maps --by path --path libssl", "show who has a library mapped"),
    ("taskdiag maps --deleted --by path", "show deleted files still mapped"),
    ("taskdiag --as pmap -x 42", "print what pmap of procps prints"),
];

/// The options.
pub fn command() -> Command {
    table::options(
        Command::new("maps")
            .about("Show memory mappings, as pmap does")
            .override_usage("taskdiag maps [OPTIONS] [PID...]"),
    )
    .next_help_heading("Selection")
    .arg(list("path", "TEXT", "Show only mappings whose name contains TEXT"))
    .arg(flag("deleted", "Show only mappings of files that were deleted or replaced"))
    .next_help_heading("Rows")
    .arg(
        Arg::new("by").long("by").value_name("COLUMN").help(
            "Print a row for each value of a column, such as path, user, command, pid or kind",
        ),
    )
    .next_help_heading("Columns")
    .arg(
        flag(
            "extended",
            "Also show resident and dirty memory, for which the kernel walks over all pages",
        )
        .short('x'),
    )
    .arg(
        flag("everything", "Show all columns of smaps, for which the kernel walks over all pages")
            .short('X'),
    )
    .after_help(format!("{}\n\n{}", table::WHERE, exit::examples(EXAMPLES)))
}

/// For each option of pmap that `maps` lacks, what to use instead. Only `--as pmap` has the output
/// of pmap.
pub fn refuse_words_of_pmap(args: &[OsString]) -> Result<(), Exit> {
    const WORDS: &[(&str, &str)] = &[
        ("--pmap", ""),
        ("-d", "-d "),
        ("--device", "-d "),
        ("-q", "-q "),
        ("--quiet", "-q "),
        ("-A", "-A LOW,HIGH "),
        ("--range", "-A LOW,HIGH "),
        ("--show-path", "-p "),
        ("-XX", "-XX "),
    ];
    let words = args.iter().take_while(|a| *a != "--");
    match words.flat_map(|a| WORDS.iter().find(|(word, _)| a == word)).next() {
        None => Ok(()),
        Some((word, options)) => Err(Exit::Usage(format!(
            "maps has no option '{word}': 'taskdiag --as pmap {options}PID' prints what pmap prints"
        ))),
    }
}

impl MapsArgs {
    /// The default columns, in the order of the answer?
    pub fn is_default_view(&self) -> bool {
        let t = &self.table;
        self.view == MapsView::Default
            && self.by.is_none()
            && t.columns.is_empty()
            && t.sort.is_empty()
    }
    /// From parsed options.
    pub fn from_matches(m: &ArgMatches) -> Result<MapsArgs, Exit> {
        let by = match m.get_one::<String>("by").map(String::as_str) {
            None => None,
            // The last field of most lines of /proc/PID/maps is a path.
            Some("path") => columns::view(&MAPS, "mapping=Path")?.pop(),
            Some(name) => columns::by(&MAPS, name)?,
        };
        let paths = m.get_many::<String>("path").into_iter().flatten();
        Ok(MapsArgs {
            table: table::TableArgs::from_matches(m, &MAPS)?,
            view: match (m.get_flag("everything"), m.get_flag("extended")) {
                (true, _) => MapsView::Everything,
                (_, true) => MapsView::Extended,
                _ => MapsView::Default,
            },
            by,
            paths: lists::items(paths).into_iter().map(|s| s.as_bytes().to_vec()).collect(),
            deleted: m.get_flag("deleted"),
        })
    }
}
