// SPDX-License-Identifier: MIT OR Apache-2.0
//! The options and arguments of the command line.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint};
use taskdiag::Choice;
use taskdiag_face::exit::Exit;
use taskdiag_face::limits::PageLimits;
use taskdiag_face::moment::At;

use crate::output::Format;

/// The parsed arguments.
#[derive(Debug)]
pub struct Args {
    /// Statements, instead of those of standard input.
    pub commands: Vec<String>,
    /// How results are written.
    pub format: Format,
    /// The engine for live tables.
    pub choice: Choice,
    /// How much live tables may read.
    pub limits: PageLimits,
    /// The sources of tables.
    pub places: Places,
    /// Are the tables those of osquery?
    pub osquery: bool,
    /// Is all missing data a failure?
    pub strict: bool,
}

/// The sources of tables, in addition to live ones.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// A recording.
    pub recording: Option<PathBuf>,
    /// The chosen moment. `None`: all.
    pub at: Option<At>,
    /// A directory of `taskdiag convert`.
    pub lake: Option<PathBuf>,
    /// The name of the host that recorded, or `None` for the name in the recording.
    pub host: Option<String>,
}

fn command() -> Command {
    Command::new("taskdiag-sql")
        .version(env!("CARGO_PKG_VERSION"))
        .about("SQL over the processes of this machine, recordings of them, and Parquet files of many hosts")
        .arg(
            Arg::new("command")
                .short('c')
                .long("command")
                .value_name("SQL")
                .action(ArgAction::Append)
                .help("Run these statements; without it, those of standard input, or of a shell if that is a terminal"),
        )
        .arg(
            Arg::new("output")
                .short('o')
                .long("output")
                .value_name("FORMAT")
                .value_parser(["table", "json", "csv"])
                .default_value("table")
                .help("Write results as a table, as JSON or as CSV"),
        )
        .arg(
            Arg::new("recording")
                .long("recording")
                .value_name("DIR")
                .value_hint(ValueHint::DirPath)
                .value_parser(clap::value_parser!(PathBuf))
                .help("Query the recording of 'taskdiag record' in this directory, with the columns ts and host"),
        )
        .arg(
            Arg::new("at")
                .long("at")
                .value_name("TIME")
                .requires("recording")
                .allow_hyphen_values(true)
                .value_parser(|text: &str| text.parse::<At>())
                .help("Only that moment of the recording: 03:10, '2026-11-22 03:10', -5m, @SECONDS"),
        )
        .arg(
            Arg::new("host")
                .long("host")
                .value_name("NAME")
                .requires("recording")
                .help("The name of the host in rows of the recording; without it, the one that was recorded"),
        )
        .arg(
            Arg::new("lake")
                .long("lake")
                .value_name("DIR")
                .value_hint(ValueHint::DirPath)
                .value_parser(clap::value_parser!(PathBuf))
                .help("Query the Parquet files that 'taskdiag convert' wrote below this directory"),
        )
        .arg(
            Arg::new("osquery")
                .long("osquery")
                .action(ArgAction::SetTrue)
                .help("The tables have osquery's names and columns, and SQL follows SQLite"),
        )
        .arg(
            Arg::new("engine")
                .long("engine")
                .value_name("ENGINE")
                .value_parser(|text: &str| text.parse::<Choice>())
                .help("The engine for live tables: auto, kernel, bpf, service, procfs"),
        )
        .arg(
            Arg::new("strict")
                .long("strict")
                .action(ArgAction::SetTrue)
                .help("End with 3 if anything could not be read, not only of processes that a statement names with pid = N"),
        )
        .args(PageLimits::options())
        .arg(PageLimits::args_option())
        .after_help(
            "Tables: processes, threads, files, sockets, maps, memory, namespaces. 'describe TABLE' lists columns.\n\
             Exit codes are those of taskdiag: 'taskdiag help exit-codes'. docs/use/sql.md has more.\n\n\
             Examples:\n  \
             taskdiag-sql -c 'select pid, comm, rss from processes order by rss desc limit 10'\n  \
             taskdiag-sql -o json -c \"select comm, lport from sockets where sockstate = 'LISTEN'\"\n  \
             taskdiag-sql --osquery -c 'select pid, name, resident_size from processes'",
        )
}

impl Args {
    /// From the arguments of the program.
    ///
    /// # Errors
    /// They are wrong, or ask for help.
    pub fn parse() -> Result<Args, Exit> {
        let m = command().try_get_matches()?;
        let path = |id: &str| m.get_one::<PathBuf>(id).cloned();
        Ok(Args {
            commands: m.get_many("command").into_iter().flatten().cloned().collect(),
            format: format(&m),
            choice: m.get_one::<Choice>("engine").copied().unwrap_or(Choice::Auto),
            limits: PageLimits::from_matches(&m),
            places: Places {
                recording: path("recording"),
                at: m.get_one::<At>("at").copied(),
                lake: path("lake"),
                host: m.get_one::<String>("host").cloned(),
            },
            osquery: m.get_flag("osquery"),
            strict: m.get_flag("strict"),
        })
    }
}

fn format(m: &ArgMatches) -> Format {
    let name = m.get_one::<String>("output").map_or("table", String::as_str);
    Format::from_name(name).expect("clap knows the names")
}
