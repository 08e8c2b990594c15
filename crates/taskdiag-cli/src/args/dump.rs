//! The options of `taskdiag dump`.

use clap::{Arg, ArgMatches, Command};
use taskdiag::engine::GROUPS;
use taskdiag::{Choice, Group, Groups, Request, Strategy};

use super::engine;
use crate::exit::{self, Exit};
use crate::nearest;

/// What `taskdiag dump` was asked for.
#[derive(Clone, Copy, Debug)]
pub struct Args {
    /// Which tasks.
    pub strategy: Strategy,
    /// The pid, for the strategies that take one.
    pub pid: u32,
    /// The groups.
    pub groups: Groups,
    /// Who answers.
    pub engine: Choice,
}

/// The options.
pub fn command() -> Command {
    Command::new("dump")
        .about("Write the answer as it is, a binary stream, to show or study later")
        .long_about(
            "Write the answer as it is, a binary stream. 'taskdiag ps --from FILE' shows it.",
        )
        .arg(
            Arg::new("groups")
                .long("groups")
                .short('g')
                .value_name("LIST")
                .default_value("all")
                .help("Groups with commas, such as base,cred,paths,vma,fd,file_stat; all: those of a process table; every: what files, maps and memory show, too"),
        )
        .arg(
            Arg::new("strategy")
                .long("strategy")
                .value_name("NAME")
                .value_parser(clap::builder::PossibleValuesParser::new(
                    Strategy::ALL.iter().map(|s| s.name()),
                ))
                .help("Which tasks; all processes without --pid, that process with it"),
        )
        .arg(
            Arg::new("pid")
                .long("pid")
                .short('p')
                .value_name("PID")
                .value_parser(clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))
                .help("The process that one, children and thread are about"),
        )
        .arg(engine())
        .after_help(exit::examples(&[
            ("taskdiag dump > now.tdg", "save the answer"),
            ("taskdiag dump --groups every > all.tdg", "with what files, maps and memory show, too"),
            ("taskdiag ps --from now.tdg aux", "and look at it later, elsewhere"),
        ]))
}

/// What files, maps and memory need beside the groups of a process table. Sums over pages make the kernel walk them.
const LISTS: Groups = Groups::FD
    .union(Groups::FD_COUNT)
    .union(Groups::PATHS)
    .union(Groups::FILE_STAT)
    .union(Groups::VMA)
    .union(Groups::VMA_STAT)
    .union(Groups::ROLLUP)
    .union(Groups::SWAP);

/// The groups of a list.
fn groups(list: &str) -> Result<Groups, Exit> {
    let mut out = Groups::NONE;
    for name in list.split([',', ' ', '|']).filter(|s| !s.is_empty()) {
        match Group::from_name(name) {
            Some(g) => out |= g.into(),
            None if name == "all" => out |= GROUPS,
            None if name == "every" => out |= GROUPS | LISTS,
            None => {
                let hint = nearest::hint(name, Group::ALL.iter().map(|g| g.name()));
                let names: Vec<&str> = Group::ALL.iter().map(|g| g.name()).collect();
                return Err(Exit::Usage(format!(
                    "there is no group '{name}'{hint}; there are {}",
                    names.join(", ")
                )));
            }
        }
    }
    if out.is_empty() {
        return Err(Exit::Usage("--groups needs at least one group".to_owned()));
    }
    Ok(out)
}

impl Args {
    /// From parsed options.
    pub fn from_matches(m: &ArgMatches) -> Result<Args, Exit> {
        let pid = m.get_one::<u32>("pid").copied();
        let named = m.get_one::<String>("strategy").and_then(|s| Strategy::from_name(s));
        let strategy = named.unwrap_or(if pid.is_some() { Strategy::One } else { Strategy::All });
        match (strategy.takes_pid(), pid) {
            (true, None) => {
                return Err(Exit::Usage(format!("--strategy {strategy} needs --pid PID")));
            }
            (false, Some(_)) => {
                return Err(Exit::Usage(format!(
                    "--strategy {strategy} takes no --pid; one, children and thread do"
                )));
            }
            _ => {}
        }
        Ok(Args {
            strategy,
            pid: pid.unwrap_or(0),
            groups: groups(m.get_one::<String>("groups").map_or("all", String::as_str))?,
            engine: m.get_one::<Choice>("engine").copied().unwrap_or_default(),
        })
    }
    /// The request.
    pub fn request(&self) -> Request {
        Request::new(self.strategy, self.pid, self.groups)
    }
}
