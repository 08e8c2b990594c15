//! Arguments: one clap definition for each command. The parser, `--help`, the man page and the
//! completions are all made from it.

#[cfg(all(feature = "arrow", feature = "record"))]
pub mod convert;
pub mod dropin;
pub mod dump;
#[cfg(feature = "export")]
pub mod export;
pub mod files;
pub mod lists;
mod lsof;
pub mod maps;
pub mod memory;
#[cfg(feature = "export")]
mod otlp;
pub mod pmap;
pub mod procps;
pub mod ps;
#[cfg(feature = "record")]
pub mod record;
pub mod report;
pub mod run;
pub mod table;
#[cfg(feature = "top")]
pub mod top;
pub mod tree;
pub mod wait;

use std::ffi::OsString;

use clap::{Arg, ArgAction, ArgMatches, Command};
use taskdiag::Choice;

use crate::exit::{self, Exit};

/// The parsed command line.
#[derive(Debug)]
pub enum Cli {
    /// `taskdiag ps`
    Ps(Box<ps::PsArgs>),
    /// `pmap`
    Pmap(pmap::PmapArgs),
    /// `taskdiag maps`
    Maps(Box<maps::MapsArgs>),
    /// `taskdiag memory`
    Memory(Box<memory::MemoryArgs>),
    /// `taskdiag files`
    Files(Box<files::FilesArgs>),
    /// `taskdiag tree`
    Tree(Box<tree::TreeArgs>),
    /// `taskdiag top`
    #[cfg(feature = "top")]
    Top(Box<top::TopArgs>),
    /// `taskdiag convert`
    #[cfg(all(feature = "arrow", feature = "record"))]
    Convert(convert::ConvertArgs),
    /// `taskdiag export`
    #[cfg(feature = "export")]
    Export(Box<export::ExportArgs>),
    /// `taskdiag report`
    Report(Box<report::ReportArgs>),
    /// `taskdiag fields`; JSON?
    Fields(bool),
    /// `taskdiag engines`; JSON?
    Engines(bool),
    /// `taskdiag dump`
    Dump(dump::DumpArgs),
    /// `taskdiag record`
    #[cfg(feature = "record")]
    Record(record::RecordArgs),
    /// `taskdiag wait`
    Wait(wait::WaitArgs),
    /// `taskdiag run`: the program and its arguments
    Run(Vec<OsString>),
    /// `taskdiag dropin`
    Dropin(dropin::What),
    /// `taskdiag help exit-codes`
    ExitCodes,
    /// `taskdiag generate`: what
    Generate(String),
}

fn json() -> Arg {
    Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print one JSON document")
}

/// `--engine`, which several commands have.
pub fn engine() -> Arg {
    Arg::new("engine")
        .long("engine")
        .value_name("NAME")
        .value_parser(|s: &str| s.parse::<Choice>())
        .help("Ask this engine: auto, kernel, bpf, service or procfs; without it, that of TASKDIAG_ENGINE, or auto")
}

/// The whole command line.
pub fn command() -> Command {
    Command::new("taskdiag")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Show the processes of this machine, their memory and files, from the fastest source")
        .after_help(exit::examples(&[
            ("taskdiag ps aux", "show processes, with the options of ps"),
            ("taskdiag files -p 42", "show open files, with the options of lsof"),
            ("taskdiag maps 42", "show memory mappings"),
            ("taskdiag tree", "show processes as a tree"),
            ("taskdiag top", "live view of processes, on the whole screen"),
            ("taskdiag --as pmap -x 42", "print just what pmap prints"),
        ]))
        .max_term_width(table::HELP_WIDTH)
        .arg_required_else_help(true)
        .subcommand_required(true)
        .subcommand(ps::command())
        .subcommand(maps::command())
        .subcommand(memory::command())
        .subcommand(files::command())
        .subcommand(tree::command())
        .subcommands(top_command())
        .subcommands(export_command())
        .subcommand(report::command())
        .subcommand(
            Command::new("fields")
                .about("List all columns, with their groups, unit, type, names and source")
                .arg(json())
                .after_help(exit::examples(&[
                    ("taskdiag fields | less -S", "look at all of them"),
                    ("taskdiag fields --json", "print them for a program"),
                ])),
        )
        .subcommand(
            Command::new("engines")
                .about("Show which source (BPF, /proc, service) is used for which values on this machine, and why")
                .arg(json())
                .after_help(exit::examples(&[
                    ("taskdiag engines", "show why BPF is used here, or not"),
                    ("sudo taskdiag engines", "show what root could use"),
                ])),
        )
        .subcommand(dump::command())
        .subcommands(record_command())
        .subcommands(convert_command())
        .subcommand(wait::command())
        .subcommand(run::command())
        .subcommand(dropin::command())
        .subcommand(
            Command::new("generate")
                .about("Print the man page, a completion script or the page of all columns")
                .hide(true)
                .arg(
                    Arg::new("what")
                        .required(true)
                        .value_parser(["man", "bash", "zsh", "fish", "columns", "schema"])
                        .help("What to print"),
                ),
        )
}

/// Parse the whole command line.
pub fn parse(argv: Vec<OsString>) -> Result<Cli, Exit> {
    // Stand in for another program: by the name of the link, or with `--as`.
    let name =
        argv.first().map(|a| std::path::Path::new(a).file_name().unwrap_or_default().to_owned());
    if let Some(cli) = name.as_deref().and_then(|n| n.to_str()).and_then(|n| other(n, &argv[1..])) {
        return cli;
    }
    if let Some((who, rest)) = instead_of(&argv)? {
        return other(&who, rest).unwrap_or_else(|| Err(no_stand_in(&format!("--as {who}"), &who)));
    }
    // A link with such a name is meant to be that tool.
    let tool = name.as_deref().and_then(|n| n.to_str()).filter(|n| LINKED.contains(n));
    if let Some(tool) = tool {
        return Err(no_stand_in(tool, tool));
    }
    if argv.get(1..3).is_some_and(|w| w[0] == "help" && w[1] == "exit-codes") {
        return Ok(Cli::ExitCodes);
    }
    // Only the options of the given command are built, to save time.
    let alone = match argv.get(1).and_then(|a| a.to_str()) {
        Some("ps") => return Ok(Cli::Ps(Box::new(ps::parse(&argv[2..])?))),
        Some("files") => return Ok(Cli::Files(Box::new(files::parse(&argv[2..])?))),
        Some("maps") => {
            maps::refuse_words_of_pmap(&argv[2..])?;
            Some(maps::command())
        }
        Some("memory") => Some(memory::command()),
        Some("tree") => Some(tree::command()),
        Some("top") => top_command(),
        Some("export") => export_command(),
        Some("report") => Some(report::command()),
        Some("dump") => Some(dump::command()),
        Some("record") => record_command(),
        Some("convert") => convert_command(),
        Some("wait") => Some(wait::command()),
        Some("run") => Some(run::command()),
        Some("dropin") => Some(dropin::command()),
        _ => None,
    };
    if let Some(instead) = argv.get(1).and_then(|a| a.to_str()).and_then(of_another_tool) {
        return Err(Exit::Usage(instead));
    }
    if let Some(c) = alone {
        let name = c.get_name().to_owned();
        let c = c
            .max_term_width(table::HELP_WIDTH)
            .bin_name(format!("taskdiag {name}"))
            .no_binary_name(true);
        return parsed(&name, &c.try_get_matches_from(&argv[2..])?);
    }
    let matches = command().try_get_matches_from(argv)?;
    let (name, matches) = matches.subcommand().expect("clap asks for one");
    parsed(name, matches)
}

/// The command of a module, if its features are built in.
macro_rules! built_in {
    ($features:meta, $module:ident) => {{
        #[cfg($features)]
        let command = Some($module::command());
        #[cfg(not($features))]
        let command = None;
        command
    }};
}

fn top_command() -> Option<Command> {
    built_in!(feature = "top", top)
}

fn export_command() -> Option<Command> {
    built_in!(feature = "export", export)
}

fn record_command() -> Option<Command> {
    built_in!(feature = "record", record)
}

fn convert_command() -> Option<Command> {
    built_in!(all(feature = "arrow", feature = "record"), convert)
}

/// The names of other tools that are not commands here, and what to use instead.
const TOOLS: &[(&str, &str)] = &[
    (
        "lsof",
        "'taskdiag files' takes the options of lsof, and 'taskdiag --as lsof' prints what lsof prints",
    ),
    ("fuser", "'taskdiag files FILE' says who uses a file"),
    ("smem", "'taskdiag memory' shows what smem does"),
    #[cfg(not(feature = "top"))]
    (
        "top",
        "it was left out of this build (feature 'top'); 'taskdiag ps --sort -pcpu' shows who used the CPU",
    ),
    #[cfg(not(feature = "record"))]
    (
        "record",
        "it was left out of this build (feature 'record'); 'taskdiag dump' saves one answer",
    ),
    ("atop", "'taskdiag record' keeps what ran, and --from DIR --at TIME shows it"),
    #[cfg(not(all(feature = "arrow", feature = "record")))]
    (
        "convert",
        "it was left out of this build; 'cargo build --release -p taskdiag-cli --features arrow' makes one that has it",
    ),
    #[cfg(not(feature = "export"))]
    ("export", "it was left out of this build (feature 'export')"),
    ("htop", "'taskdiag top' shows who uses the CPU"),
    ("pgrep", "'taskdiag ps -C NAME -o pid=' prints the ids of processes with this name"),
    ("pidof", "'taskdiag ps -C NAME -o pid=' prints the ids of processes with this name"),
];

/// What to use if the first word is the name of another tool.
fn of_another_tool(word: &str) -> Option<String> {
    let instead = match word {
        "pmap" => {
            "'taskdiag maps' shows mappings, and 'taskdiag --as pmap' prints what pmap prints"
        }
        "pstree" => {
            "'taskdiag tree' takes the options of pstree, and 'taskdiag --as pstree' prints what pstree prints"
        }
        word => TOOLS.iter().find(|(tool, _)| *tool == word)?.1,
    };
    Some(format!("there is no command '{word}': {instead}"))
}

/// Tools that someone may have linked to this program, though it cannot stand in for them.
const LINKED: &[&str] = &["fuser", "smem", "pgrep", "pidof"];

/// Why this program does not stand in for a tool, and what to use instead.
fn no_stand_in(typed: &str, tool: &str) -> Exit {
    let of_tool = TOOLS.iter().find(|(t, _)| *t == tool);
    let more = of_tool.map_or(String::new(), |(_, instead)| format!("; {instead}"));
    let others = OTHERS.join(", ");
    Exit::Usage(format!("{typed}: taskdiag can stand in for {others}{more}"))
}

/// The programs that this one can stand in for.
const OTHERS: &[&str] = &["ps", "pmap", "pstree", "lsof"];

/// Parses the arguments of another program. `None`: taskdiag cannot stand in for it.
fn other(name: &str, args: &[OsString]) -> Option<Result<Cli, Exit>> {
    Some(match name {
        "ps" => ps::parse_strict(args).map(|a| Cli::Ps(Box::new(a))),
        "pstree" => tree::TreeArgs::strict(args).map(|a| Cli::Tree(Box::new(a))),
        "pmap" => pmap::parse(args).map(Cli::Pmap),
        "lsof" => files::FilesArgs::strict(args).map(|a| Cli::Files(Box::new(a))),
        _ => return None,
    })
}

/// `--as NAME`: the name, and the arguments after it.
fn instead_of(argv: &[OsString]) -> Result<Option<(String, &[OsString])>, Exit> {
    let Some(first) = argv.get(1).and_then(|a| a.to_str()) else { return Ok(None) };
    if let Some(name) = first.strip_prefix("--as=") {
        return Ok(Some((name.to_owned(), &argv[2..])));
    }
    match (first, argv.get(2).and_then(|a| a.to_str())) {
        ("--as", Some(name)) => Ok(Some((name.to_owned(), &argv[3..]))),
        ("--as", None) => {
            Err(Exit::Usage(String::from("--as needs the name of a program, such as ps")))
        }
        _ => Ok(None),
    }
}

fn parsed(name: &str, m: &ArgMatches) -> Result<Cli, Exit> {
    Ok(match name {
        "ps" => Cli::Ps(Box::new(ps::parse(&[])?)),
        "maps" => Cli::Maps(Box::new(maps::MapsArgs::from_matches(m)?)),
        "memory" => Cli::Memory(Box::new(memory::MemoryArgs::from_matches(m)?)),
        "files" => Cli::Files(Box::new(files::FilesArgs::from_matches(m)?)),
        "tree" => Cli::Tree(Box::new(tree::TreeArgs::from_matches(m)?)),
        #[cfg(all(feature = "arrow", feature = "record"))]
        "convert" => Cli::Convert(convert::ConvertArgs::from_matches(m)?),
        #[cfg(feature = "top")]
        "top" => Cli::Top(Box::new(top::TopArgs::from_matches(m)?)),
        #[cfg(feature = "export")]
        "export" => Cli::Export(Box::new(export::ExportArgs::from_matches(m)?)),
        "report" => Cli::Report(Box::new(report::ReportArgs::from_matches(m))),
        "fields" => Cli::Fields(m.get_flag("json")),
        "engines" => Cli::Engines(m.get_flag("json")),
        "dump" => Cli::Dump(dump::DumpArgs::from_matches(m)?),
        #[cfg(feature = "record")]
        "record" => Cli::Record(record::RecordArgs::from_matches(m)?),
        "wait" => Cli::Wait(wait::WaitArgs::from_matches(m)?),
        "run" => Cli::Run(run::from_matches(m)),
        "dropin" => Cli::Dropin(dropin::from_matches(m)),
        "generate" => Cli::Generate(text(m, "what").unwrap_or_default()),
        other => unreachable!("clap knows no such command: {other}"),
    })
}

/// The value of an option as text.
fn text(m: &ArgMatches, id: &str) -> Option<String> {
    m.get_one::<String>(id).cloned()
}
