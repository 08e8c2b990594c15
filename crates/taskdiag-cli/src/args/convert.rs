//! The options of `taskdiag convert`.

use std::path::PathBuf;
use std::time::Duration;

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint, value_parser};
use taskdiag::field::TASKS;
use taskdiag_face::options;
pub use taskdiag_face::tables::Kind as Table;

use crate::columns::{self, Column};
use crate::exit::{self, Exit};
use crate::{limits, nearest};

/// Parsed options of `taskdiag convert`.
#[derive(Clone, Debug)]
pub struct ConvertArgs {
    /// The recording.
    pub recording: PathBuf,
    /// The directory below which the files are written.
    pub directory: PathBuf,
    /// The tables to write. The first one is the table of processes.
    pub tables: Vec<TableArgs>,
    /// Time between two full frames, in which unchanged rows are written, too.
    pub full_every: Duration,
    /// The name of the host in the path. `None`: the one that the recording has.
    pub host: Option<String>,
    /// Rewrite hours that are already there.
    pub again: bool,
}

/// A table, and how it is written.
#[derive(Clone, Debug)]
pub struct TableArgs {
    /// The table.
    pub table: Table,
    /// Its columns.
    pub columns: Vec<Column>,
    /// Was it named in --tables?
    pub is_named: bool,
}

/// The tables of lists, in the order in which they are written.
const LISTS: [Table; 4] = [Table::Sockets, Table::Files, Table::MappedFiles, Table::Maps];

/// The columns of a table of a recording.
trait Columns {
    /// Columns that are always written.
    fn keys(self) -> &'static str;
    /// The other default columns.
    fn columns(self) -> &'static str;
}

impl Columns for Table {
    /// Columns that are always written, because they identify a row.
    fn keys(self) -> &'static str {
        match self {
            Table::Processes | Table::Threads | Table::Memory => "pid,start_ticks,boot_id",
            Table::Sockets | Table::Files => "pid,start_ticks,boot_id,fdnum",
            Table::MappedFiles => "pid,start_ticks,boot_id,device,inode,path",
            Table::Maps => "pid,start_ticks,boot_id,address",
            Table::Cgroups => "path,id",
        }
    }
    /// The other default columns: those that operators use most. Arguments are left out, because
    /// they may contain secrets and the files leave the host. The position in a file and its size
    /// are left out, because they change so often.
    fn columns(self) -> &'static str {
        match self {
            Table::Processes | Table::Threads | Table::Memory => {
                "start,ppid,user,s,nlwp,ni,usertime,systime,majflt,rss,vsz,swap,read_bytes,write_bytes,nvcsw,nivcsw,fds,\
                 oom_score_adj,slice,unit,container,comm,exe"
            }
            Table::Sockets => {
                "comm,user,unit,container,family,protocol,sockstate,laddr,lport,raddr,rport,path,sock_netns,inode"
            }
            Table::Files => "comm,user,unit,container,access,kind,dev,inode,path,deleted",
            Table::MappedFiles => "comm,user,unit,container,deleted",
            Table::Maps => {
                "comm,user,unit,container,end,size,perms,offset,device,inode,kind,path,deleted"
            }
            // No recording has them.
            Table::Cgroups => "",
        }
    }
}

const INTRO: &str = "\
Each hour becomes a file DIR/date=YYYY-MM-DD/hour=HH/host=NAME/processes.parquet, in UTC. If open files or mappings were \
recorded (taskdiag record --groups default,fd,vma), sockets.parquet and mapped_files.parquet are in the same directory. DuckDB, Spark, \
ClickHouse and others read all of them as one table. A row is written when a process, socket or file is new, has changed or \
has ended, and one for each every ten minutes (--full-every). Hours that are over and were written before are left as they \
are, so the command can run each hour. docs/reference/arrow.md describes the files.";

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
                .help("Write the files below this directory, which is created if it does not exist"),
        )
        .arg(
            Arg::new("format")
                .long("format")
                .short('o')
                .value_name("COLUMNS")
                .action(ArgAction::Append)
                .help(
                    "Write these columns of 'taskdiag fields', such as pid,comm,rss; for another table, put its name before them, \
                     such as sockets:comm,lport; columns that identify a row are always written",
                ),
        )
        .arg(
            Arg::new("tables")
                .long("tables")
                .value_name("LIST")
                .default_value("sockets,mapped_files")
                .help(
                    "Write these tables in addition to the processes, if the recording has what they need: sockets, files (all that \
                     are open), mapped_files (each once for a process), maps (all mappings), or none",
                ),
        )
        .arg(
            Arg::new("args")
                .long("args")
                .action(ArgAction::SetTrue)
                .help("Add the arguments, which may contain secrets"),
        )
        .arg(
            Arg::new("full-every")
                .long("full-every")
                .value_name("TIME")
                .default_value("10m")
                .value_parser(full_every)
                .help("Write a row for each process, socket and so on this often, such as 10m; 0 writes one for each frame"),
        )
        .arg(
            Arg::new("host")
                .long("host")
                .value_name("NAME")
                .help("Use this name of the host in the path; without it, the name of the host that was recorded"),
        )
        .arg(
            Arg::new("again")
                .long("again")
                .action(ArgAction::SetTrue)
                .help("Write all hours again, including those that exist already"),
        )
        .after_help(exit::examples(&[
            ("sudo taskdiag convert /var/lib/taskdiag lake", "write what was recorded"),
            ("sudo duckdb -c \"from 'lake/**/processes*.parquet' limit 9\"", "look at it"),
        ]))
}

/// Time between two frames that are written in full. It may be 0.
fn full_every(text: &str) -> Result<Duration, String> {
    match text {
        "0" | "0s" => Ok(Duration::ZERO),
        text => limits::duration(text),
    }
}

/// Checks that a name can be a part of a path and of a Hive partition.
pub fn host(name: String) -> Result<String, Exit> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    if name.is_empty() || name.starts_with('.') || !name.chars().all(is_plain) {
        return Err(Exit::Usage(format!(
            "the host name '{}' cannot be a part of a path: give one of letters, digits, '.', '-' and '_' with --host",
            exit::shown(name.as_ref())
        )));
    }
    Ok(name)
}

/// The tables in addition to that of the processes.
fn lists_of(list: &str) -> Result<Vec<Table>, Exit> {
    let mut tables = Vec::new();
    for name in options::split(list) {
        match LISTS.into_iter().find(|t| t.name() == name) {
            Some(table) => tables.push(table),
            None if ["none", "processes"].contains(&name) => {}
            None => {
                let hint = nearest::hint(name, LISTS.map(Table::name));
                return Err(Exit::Usage(format!(
                    "there is no table '{name}'{hint}; --tables takes sockets, files, mapped_files, maps, or none"
                )));
            }
        }
    }
    // Sorted, without duplicates.
    Ok(LISTS.into_iter().filter(|t| tables.contains(t)).collect())
}

/// The table of one `-o`, and the names of its columns.
fn columns_of(spec: &str) -> Result<(Table, &str), Exit> {
    let Some((name, columns)) = spec.split_once(':') else { return Ok((Table::Processes, spec)) };
    let mut all = [Table::Processes].into_iter().chain(LISTS);
    match all.find(|t| t.name() == name.trim()) {
        Some(table) => Ok((table, columns)),
        None => Err(Exit::Usage(format!(
            "there is no table '{name}' in -o {spec}: write -o sockets:COLUMNS for one of processes, sockets, files, \
             mapped_files and maps, or -o COLUMNS for the processes"
        ))),
    }
}

impl TableArgs {
    /// A table with these columns, or with its usual ones if there are none.
    fn new(table: Table, names: &[&str], is_named: bool) -> Result<TableArgs, Exit> {
        let usual = if names.is_empty() { table.columns() } else { "" };
        let names =
            table.keys().split(',').chain(options::split(usual)).chain(names.iter().copied());
        let mut columns: Vec<Column> = Vec::new();
        for name in names {
            let column = columns::view(table.set(), name)?.remove(0);
            if !columns.iter().any(|c| c.key == column.key) {
                columns.push(column);
            }
        }
        Ok(TableArgs { table, columns, is_named })
    }
}

impl ConvertArgs {
    /// From parsed options.
    pub fn from_matches(m: &ArgMatches) -> Result<ConvertArgs, Exit> {
        let list = m.get_one::<String>("tables").expect("it has a default");
        let is_named = m.value_source("tables") == Some(ValueSource::CommandLine);
        let mut chosen = vec![Table::Processes];
        chosen.extend(lists_of(list)?);
        let given = m.get_many::<String>("format").into_iter().flatten();
        let given: Vec<(Table, &str)> =
            given.map(|spec| columns_of(spec)).collect::<Result<_, _>>()?;
        if let Some((table, _)) = given.iter().find(|(table, _)| !chosen.contains(table)) {
            let name = table.name();
            return Err(Exit::Usage(format!(
                "-o chooses columns of {name}, which is not written: add it to --tables"
            )));
        }
        let mut tables = Vec::new();
        for table in chosen {
            let own = given.iter().filter(|(t, _)| *t == table).map(|(_, columns)| *columns);
            let own: Vec<&str> = own.flat_map(options::split).collect();
            tables.push(TableArgs::new(table, &own, is_named)?);
        }
        if m.get_flag("args") && !tables[0].columns.iter().any(|c| c.key == "args") {
            tables[0].columns.push(columns::view(&TASKS, "args")?.remove(0));
        }
        let path = |id: &str| m.get_one::<PathBuf>(id).expect("it is required").clone();
        Ok(ConvertArgs {
            recording: path("recording"),
            directory: path("directory"),
            tables,
            full_every: m.get_one::<Duration>("full-every").copied().expect("it has a default"),
            host: m.get_one("host").cloned().map(host).transpose()?,
            again: m.get_flag("again"),
        })
    }
}
