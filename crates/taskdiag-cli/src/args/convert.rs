//! The options of `taskdiag convert`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint, value_parser};
use taskdiag::field::TASKS;

use super::lists;
use crate::columns::{self, Column};
use crate::exit::{self, Exit};
use crate::limits;

/// What `taskdiag convert` was asked for.
#[derive(Clone, Debug)]
pub struct ConvertArgs {
    /// The recording.
    pub recording: PathBuf,
    /// The directory below which the files are written.
    pub directory: PathBuf,
    /// The columns.
    pub columns: Vec<Column>,
    /// How often all tasks are written, and not only those that have changed.
    pub full_every: Duration,
    /// The name of the host in the path.
    pub host: String,
    /// Write the hours again that were written before.
    pub again: bool,
}

/// The columns without `-o`: what operators usually ask about hosts. Arguments are left out, because they may hold secrets and
/// the files leave the host.
const COLUMNS: &str = "pid,start_ticks,start,ppid,user,s,nlwp,ni,usertime,systime,majflt,rss,vsz,swap,read_bytes,write_bytes,\
     nvcsw,nivcsw,fds,oom_score_adj,slice,unit,container,comm,exe";

const INTRO: &str = "\
Each hour becomes a file DIR/date=YYYY-MM-DD/hour=HH/host=NAME/processes.parquet, in UTC. DuckDB, Spark, ClickHouse and \
others read all of them as one table. A row is written when a process is new, has changed or has ended, and one for each \
process every ten minutes (--full-every). Hours that are over and were written before are left as they are, so the command \
can run each hour. docs/arrow.md describes the files.";

/// The options.
pub fn command() -> Command {
    Command::new("convert")
        .about("Write a recording as Apache Parquet files, an hour each")
        .before_help(INTRO)
        .help_template(super::table::TEMPLATE)
        .arg(
            Arg::new("recording")
                .value_name("RECORDING")
                .required(true)
                .value_parser(value_parser!(PathBuf))
                .value_hint(ValueHint::AnyPath)
                .help("The directory of 'taskdiag record', or one day file of it"),
        )
        .arg(
            Arg::new("directory")
                .value_name("DIR")
                .required(true)
                .value_parser(value_parser!(PathBuf))
                .value_hint(ValueHint::DirPath)
                .help("Write the files below this directory, which is made if it is not there"),
        )
        .arg(
            Arg::new("format")
                .long("format")
                .short('o')
                .value_name("COLUMNS")
                .action(ArgAction::Append)
                .help("Write these columns of 'taskdiag fields', with commas; pid and start_ticks are always written"),
        )
        .arg(
            Arg::new("args")
                .long("args")
                .action(ArgAction::SetTrue)
                .help("Add the arguments, which may hold secrets"),
        )
        .arg(
            Arg::new("full-every")
                .long("full-every")
                .value_name("TIME")
                .default_value("10m")
                .value_parser(full_every)
                .help("Write a row for each process this often, such as 10m; 0 writes one for each frame"),
        )
        .arg(
            Arg::new("host")
                .long("host")
                .value_name("NAME")
                .help("Use this name of the host in the path; without it, the host name of this machine"),
        )
        .arg(
            Arg::new("again")
                .long("again")
                .action(ArgAction::SetTrue)
                .help("Write all hours again, also those that are written already"),
        )
        .after_help(exit::examples(&[
            ("sudo taskdiag convert /var/lib/taskdiag lake", "write what was recorded"),
            ("sudo duckdb -c \"from 'lake/**/*.parquet' limit 9\"", "look at it"),
        ]))
}

/// Time between two frames that are written in full. It may be 0.
fn full_every(text: &str) -> Result<Duration, String> {
    match text {
        "0" | "0s" => Ok(Duration::ZERO),
        text => limits::duration(text),
    }
}

/// A name that can be a part of a path and of a Hive partition.
fn host(given: Option<&String>) -> Result<String, Exit> {
    let name = match given {
        Some(name) => name.clone(),
        None => rustix::system::uname().nodename().to_string_lossy().into_owned(),
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    if name.is_empty() || name.starts_with('.') || !name.chars().all(is_plain) {
        return Err(Exit::Usage(format!(
            "the host name '{}' cannot be a part of a path: give one of letters, digits, '.', '-' and '_' with --host",
            exit::shown(name.as_ref())
        )));
    }
    Ok(name)
}

impl ConvertArgs {
    /// From parsed options.
    pub fn from_matches(m: &ArgMatches) -> Result<ConvertArgs, Exit> {
        let given: Vec<&String> = m.get_many("format").into_iter().flatten().collect();
        let mut names: Vec<&str> = vec!["pid", "start_ticks"];
        match given.is_empty() {
            true => names.extend(COLUMNS.split(',')),
            false => names.extend(lists::items(given)),
        }
        if m.get_flag("args") {
            names.push("args");
        }
        let mut columns: Vec<Column> = Vec::new();
        for name in names {
            let column = columns::view(&TASKS, name)?.remove(0);
            if !columns.iter().any(|c| c.key == column.key) {
                columns.push(column);
            }
        }
        let path = |id: &str| m.get_one::<PathBuf>(id).expect("it is required").clone();
        Ok(ConvertArgs {
            recording: path("recording"),
            directory: path("directory"),
            columns,
            full_every: m.get_one::<Duration>("full-every").copied().expect("it has a default"),
            host: host(m.get_one("host"))?,
            again: m.get_flag("again"),
        })
    }
}
