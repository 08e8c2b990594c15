//! The options of `taskdiag dump`.

use clap::{Arg, ArgMatches, Command};
use taskdiag::{Choice, Group, Groups, Request, Strategy};

use super::engine;
use crate::exit::{self, Asked, Exit};
use crate::limits::PageLimits;
use crate::nearest;
use crate::saved::{COMMANDS, default_groups};

/// Parsed options of `taskdiag dump`.
#[derive(Clone, Copy, Debug)]
pub struct DumpArgs {
    /// Which tasks.
    pub strategy: Strategy,
    /// The pid, for the strategies that take one.
    pub pid: u32,
    /// The groups.
    pub groups: Groups,
    /// Who answers.
    pub engine: Choice,
    /// How much of the machine's time the answer may take.
    pub limits: PageLimits,
    /// Whether anything that is lacking is a failure.
    pub strict: bool,
}

/// The content and cost of an answer.
const INTRO: &str = "\
The answer is a binary stream on standard output. ps, files, maps, memory and tree show it with --from.

Without --groups, it has what these five show without further options. That is nearly all there is to know, so it costs \
more than any one of them. Most of it is the memory of 'taskdiag memory', for which the kernel walks over all pages of \
each process, milliseconds a GiB. --groups ps,files,maps,tree leaves it out, and --budget and --max-rss limit it.

Some options show more, such as 'maps -x' or 'ps -o environ'. With --from, they say which --groups they lack. An answer \
has threads only with --strategy all-thread, and its times and counts are then those of threads.";

/// The options.
pub fn command() -> Command {
    Command::new("dump")
        .about("Save one answer, to show it later or on another machine")
        .before_help(INTRO)
        .help_template(super::table::TEMPLATE)
        .arg(
            Arg::new("groups")
                .long("groups")
                .short('g')
                .value_name("LIST")
                .default_value("default")
                .help("Save these groups, such as base,cred,fd, or those of commands, such as ps,files; all means every group"),
        )
        .arg(
            Arg::new("strategy")
                .long("strategy")
                .value_name("NAME")
                .value_parser(clap::builder::PossibleValuesParser::new(
                    Strategy::ALL.iter().map(|s| s.name()),
                ))
                .help("Choose the tasks: without this, all processes, or the one of --pid"),
        )
        .arg(
            Arg::new("pid")
                .long("pid")
                .short('p')
                .value_name("PID")
                .value_parser(clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))
                .help("Save this process, its children or its threads, as --strategy says"),
        )
        .arg(engine())
        .args(PageLimits::options())
        .arg(PageLimits::args_option())
        .arg(super::table::strict())
        .after_help(exit::examples(&[
            ("taskdiag dump > now.tdg", "save an answer"),
            ("taskdiag ps --from now.tdg aux", "show it later, elsewhere"),
            ("taskdiag dump -g default,vma_stat > now.tdg", "add what 'maps -x' shows"),
        ]))
}

/// The groups of a list.
fn groups(list: &str) -> Result<Groups, Exit> {
    groups_with(list, default_groups())
}

/// The groups of a list in which the usual ones are called `default`.
pub fn groups_with(list: &str, default: Groups) -> Result<Groups, Exit> {
    let mut out = Groups::NONE;
    for name in list.split([',', ' ', '|']).filter(|s| !s.is_empty()) {
        let of_command = COMMANDS.iter().find(|(command, _)| *command == name);
        match Group::from_name(name).map(Groups::from).or(of_command.map(|(_, groups)| *groups)) {
            Some(groups) => out |= groups,
            None if name == "default" => out |= default,
            None if name == "all" => out |= Group::ALL.iter().copied().collect(),
            None => {
                let names: Vec<&str> = Group::ALL.iter().map(|g| g.name()).collect();
                let hint = nearest::hint(name, names.iter().copied());
                return Err(Exit::Usage(format!(
                    "there is no group '{name}'{hint}; there are {}, and those of ps, files, maps, \
                     memory, tree, default and all",
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

impl DumpArgs {
    /// From parsed options.
    pub fn from_matches(m: &ArgMatches) -> Result<DumpArgs, Exit> {
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
        Ok(DumpArgs {
            strategy,
            pid: pid.unwrap_or(0),
            groups: groups(m.get_one::<String>("groups").map_or("default", String::as_str))?,
            engine: m.get_one::<Choice>("engine").copied().unwrap_or_default(),
            limits: PageLimits::from_matches(m),
            strict: m.get_flag("strict"),
        })
    }
    /// How exactly the caller names the subject of the answer.
    pub fn asked(&self) -> Asked {
        match (self.strict, self.strategy.takes_pid()) {
            (true, _) => Asked::Strict,
            (false, true) => Asked::Pids,
            (false, false) => Asked::All,
        }
    }
    /// The request.
    pub fn request(&self) -> Request {
        Request::new(self.strategy, self.pid, self.groups)
    }
}
