//! Arguments: one clap definition for each command. The parser, `--help`, the man page and the
//! completions are all made from it.

pub mod bsd;
pub mod dump;
pub mod files;
pub mod limits;
pub mod lists;
mod lsof;
pub mod maps;
pub mod memory;
pub mod ps;
pub mod table;
pub mod tree;

use std::ffi::OsString;

use clap::{Arg, ArgAction, ArgMatches, Command};
use taskdiag::Choice;

use crate::exit::{self, Exit};

/// What was asked for.
#[derive(Debug)]
pub enum Cli {
    /// `taskdiag ps`
    Ps(Box<ps::Args>),
    /// `taskdiag maps`
    Maps(Box<maps::Args>),
    /// `taskdiag memory`
    Memory(Box<memory::Args>),
    /// `taskdiag files`
    Files(Box<files::Args>),
    /// `taskdiag tree`
    Tree(Box<tree::Args>),
    /// `taskdiag fields`; JSON?
    Fields(bool),
    /// `taskdiag engines`; JSON?
    Engines(bool),
    /// `taskdiag dump`
    Dump(dump::Args),
    /// `taskdiag generate`: what
    Generate(String),
}

fn json() -> Arg {
    Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print JSON")
}

/// `--engine`, which several commands have.
pub fn engine() -> Arg {
    Arg::new("engine")
        .long("engine")
        .value_name("NAME")
        .default_value("auto")
        .value_parser(|s: &str| s.parse::<Choice>())
        .help("Who answers: auto, kernel, bpf, procfs")
}

/// The whole command line.
pub fn command() -> Command {
    Command::new("taskdiag")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Every process of this machine, asked for once, from the fastest source there is")
        .after_help(exit::codes_text())
        .arg_required_else_help(true)
        .subcommand_required(true)
        .subcommand(ps::command())
        .subcommand(maps::command())
        .subcommand(memory::command())
        .subcommand(files::command())
        .subcommand(tree::command())
        .subcommand(
            Command::new("fields")
                .about("List every column: groups, unit, type, names, source")
                .arg(json()),
        )
        .subcommand(
            Command::new("engines")
                .about("Show which engine provides which group here, who would answer, and why")
                .arg(json()),
        )
        .subcommand(dump::command())
        .subcommand(
            Command::new("generate")
                .about("Print the man page or a completion script")
                .hide(true)
                .arg(
                    Arg::new("what")
                        .required(true)
                        .value_parser(["man", "bash", "zsh", "fish"])
                        .help("What to print"),
                ),
        )
}

/// Parse the whole command line.
pub fn parse(argv: Vec<OsString>) -> Result<Cli, Exit> {
    // A command does not pay for building the options of the others.
    let alone = |c: Command| {
        let name = format!("taskdiag {}", c.get_name());
        c.bin_name(name).no_binary_name(true).try_get_matches_from(&argv[2..])
    };
    match argv.get(1).and_then(|a| a.to_str()) {
        Some("ps") => return Ok(Cli::Ps(Box::new(ps::parse(argv[2..].to_vec())?))),
        Some("files") => return Ok(Cli::Files(Box::new(files::parse(&argv[2..])?))),
        Some("maps") => {
            let m = alone(maps::command())?;
            return Ok(Cli::Maps(Box::new(maps::Args::from_matches(&m)?)));
        }
        Some("memory") => {
            let m = alone(memory::command())?;
            return Ok(Cli::Memory(Box::new(memory::Args::from_matches(&m)?)));
        }
        Some("tree") => {
            let m = alone(tree::command())?;
            return Ok(Cli::Tree(Box::new(tree::Args::from_matches(&m)?)));
        }
        Some("dump") => return Ok(Cli::Dump(dump::Args::from_matches(&alone(dump::command())?)?)),
        _ => {}
    }
    let matches = command().try_get_matches_from(argv)?;
    Ok(match matches.subcommand() {
        Some(("ps", m)) => Cli::Ps(Box::new(ps::Args::from_matches(m)?)),
        Some(("maps", m)) => Cli::Maps(Box::new(maps::Args::from_matches(m)?)),
        Some(("memory", m)) => Cli::Memory(Box::new(memory::Args::from_matches(m)?)),
        Some(("files", m)) => Cli::Files(Box::new(files::Args::from_matches(m)?)),
        Some(("tree", m)) => Cli::Tree(Box::new(tree::Args::from_matches(m)?)),
        Some(("fields", m)) => Cli::Fields(m.get_flag("json")),
        Some(("engines", m)) => Cli::Engines(m.get_flag("json")),
        Some(("dump", m)) => Cli::Dump(dump::Args::from_matches(m)?),
        Some(("generate", m)) => Cli::Generate(text(m, "what").unwrap_or_default()),
        other => unreachable!("clap knows no such command: {other:?}"),
    })
}

/// The value of an option as text.
fn text(m: &ArgMatches, id: &str) -> Option<String> {
    m.get_one::<String>(id).cloned()
}
