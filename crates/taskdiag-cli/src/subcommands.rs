//! The subcommands, one row each, and the programs that this one can stand in for. The parser, the
//! help, the man page and the completions take them from here, so a new one needs its row and its
//! own files, and nothing else.

use std::ffi::OsString;
use std::fmt;
use std::path::Path;

use clap::{ArgMatches, Command};

use crate::args::{self, table};
use crate::commands::{self, dump, engines, fields, generate, wait};
use crate::exit::{self, Exit};

/// The requested action, with its arguments. It can be done several times.
pub struct Job(Box<dyn Fn() -> Result<(), Exit>>);

impl Job {
    fn new(run: impl Fn() -> Result<(), Exit> + 'static) -> Job {
        Job(Box::new(run))
    }
    /// Do it.
    pub fn run(&self) -> Result<(), Exit> {
        (self.0)()
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Job")
    }
}

/// A subcommand.
struct Subcommand {
    /// What it is for: its heading in the help, which leaves it out if this is empty.
    heading: &'static str,
    name: &'static str,
    /// Its options.
    command: fn() -> Command,
    /// Parses the arguments after its name, and returns the action.
    parse: fn(&[OsString]) -> Result<Job, Exit>,
}

/// A row: its heading in the help, its name, its options, a function that makes its arguments from
/// the result of clap or from the command line, and a function that runs it.
macro_rules! row {
    ($heading:literal: $name:literal, $command:expr, matches $from:expr, $run:expr) => {
        row!($heading: $name, $command, typed |typed: &[OsString]| $from(&matched($name, $command(), typed)?), $run)
    };
    ($heading:literal: $name:literal, $command:expr, typed $parse:expr, $run:expr) => {
        Subcommand {
            heading: $heading,
            name: $name,
            command: $command,
            parse: |typed| {
                let args = $parse(typed)?;
                Ok(Job::new(move || ($run)(&args)))
            },
        }
    };
}

/// In the order of the help.
const SUBCOMMANDS: &[Subcommand] = &[
    row!("Look": "ps", args::ps::command, typed args::ps::parse, crate::ps::run),
    row!("Look": "tree", args::tree::command, matches args::tree::TreeArgs::from_matches, crate::tree::run),
    #[cfg(feature = "top")]
    row!("Look": "top", args::top::command, matches args::top::TopArgs::from_matches, crate::top::run),
    row!("Look": "files", crate::files::args::command, typed crate::files::args::parse, crate::files::run),
    row!("Look": "maps", args::maps::command, typed maps, crate::maps::run),
    row!("Look": "memory", args::memory::command, matches args::memory::MemoryArgs::from_matches, crate::memory::run),
    row!("Look": "cgroups", args::cgroups::command, matches args::cgroups::CgroupsArgs::from_matches, crate::cgroups::run),
    row!("Look": "why", args::why::command, matches args::why::WhyArgs::from_matches, crate::why::run),
    #[cfg(feature = "record")]
    row!("Keep and send": "record", args::record::command, matches args::record::RecordArgs::from_matches, commands::record::run),
    row!("Keep and send": "dump", args::dump::command, matches args::dump::DumpArgs::from_matches, dump::run),
    row!("Keep and send": "report", args::report::command, matches args::report::ReportArgs::from_matches, crate::report::run),
    #[cfg(feature = "export")]
    row!("Keep and send": "export", taskdiag_export::command, matches taskdiag_export::ExportArgs::from_matches, taskdiag_export::run),
    #[cfg(all(feature = "arrow", feature = "record"))]
    row!("Keep and send": "convert", args::convert::command, matches args::convert::ConvertArgs::from_matches, crate::convert::run),
    row!("Find out": "fields", fields::command, matches fields::from_matches, fields::run),
    row!("Find out": "engines", engines::command, matches args::json_flag, |json: &bool| engines::run(*json)),
    row!("Find out": "wait", args::wait::command, matches args::wait::WaitArgs::from_matches, wait::run),
    row!("Make procps faster": "run", args::run::command, matches args::run::from_matches, crate::dropin::run::run),
    row!("Make procps faster": "dropin", args::dropin::command, matches args::dropin::from_matches, |what: &args::dropin::What| crate::dropin::machine::run(*what)),
    row!("Set up": "completions", generate::completions, matches generate::from_matches, |shell: &str| generate::run(shell, command())),
    row!("Set up": "man", generate::man_command, matches generate::from_matches, |of: &str| generate::page(of, command())),
    row!("": "nvidia-helper", commands::nvidia::command, matches commands::nvidia::from_matches, commands::nvidia::run),
    row!("": "generate", generate::command, matches generate::from_matches, |what: &str| generate::run(what, command())),
];

/// Parses the arguments of a program that this one can replace, and returns the action.
type StandIn = fn(&[OsString]) -> Result<Job, Exit>;

/// The programs that this one can stand in for.
const STAND_INS: &[(&str, StandIn)] = &[
    ("ps", |typed| {
        let args = args::ps::parse_strict(typed)?;
        Ok(Job::new(move || crate::ps::run(&args)))
    }),
    ("pmap", |typed| {
        let args = args::pmap::parse(typed)?;
        Ok(Job::new(move || crate::pmap::run(&args)))
    }),
    ("pstree", |typed| {
        let args = args::tree::TreeArgs::strict(typed)?;
        Ok(Job::new(move || crate::tree::run(&args)))
    }),
    ("lsof", |typed| {
        let args = crate::files::FilesArgs::strict(typed)?;
        Ok(Job::new(move || crate::files::run(&args)))
    }),
];

/// The whole command line.
pub fn command() -> Command {
    let all: Vec<Command> = SUBCOMMANDS.iter().map(|s| (s.command)()).collect();
    Command::new("taskdiag")
        .help_template(template(&all))
        .version(env!("CARGO_PKG_VERSION"))
        .long_version(args::version::LONG)
        .about(
            "Show the processes of this machine, their memory and files, from the fastest source",
        )
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
        .subcommands(all)
}

/// The layout of the help of the program. A heading begins with one blank and a command with two,
/// so that the list stays one paragraph.
fn template(all: &[Command]) -> String {
    let (mut list, mut heading) = (String::new(), "");
    for (sub, command) in SUBCOMMANDS.iter().zip(all).filter(|(sub, _)| !sub.heading.is_empty()) {
        if heading != sub.heading {
            heading = sub.heading;
            list.push_str(&format!(" {heading}:\n"));
        }
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        list.push_str(&format!("  {:<12} {about}\n", sub.name));
    }
    list.push_str("  help         Print this message, or the help of a command\n");
    format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\nCommands:\n{list}\nOptions:\n{{options}}\n      \
         --as <TOOL>  Print just what ps, pmap, pstree or lsof prints,\n                   as in 'taskdiag --as ps \
         aux'{{after-help}}"
    )
}

/// Parse the whole command line.
pub fn parse(argv: &[OsString]) -> Result<Job, Exit> {
    // Stand in for another program: by the name of the link, or with `--as`.
    let name = argv.first().and_then(|a| Path::new(a).file_name()).and_then(|n| n.to_str());
    let stand_in = |name: &str| STAND_INS.iter().find(|(n, _)| *n == name);
    let others = || STAND_INS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    if let Some((_, parse)) = name.and_then(stand_in) {
        return parse(&argv[1..]);
    }
    if let Some((tool, rest)) = args::instead_of(argv)? {
        let Some((_, parse)) = stand_in(&tool) else {
            return Err(args::no_stand_in(&format!("--as {tool}"), &tool, &others()));
        };
        return parse(rest);
    }
    // A link with the name of a tool stands for that tool.
    if let Some(tool) = name.filter(|n| args::LINKED.contains(n)) {
        return Err(args::no_stand_in(tool, tool, &others()));
    }
    if let Some([first, topic]) = argv.get(1..3).filter(|w| w[0] == "help") {
        debug_assert!(first == "help", "only help has topics");
        match topic.to_str() {
            Some("exit-codes") => return Ok(Job::new(commands::exit_codes)),
            Some("letters") => return Ok(Job::new(commands::letters)),
            _ => {}
        }
    }
    let word = argv.get(1).and_then(|a| a.to_str());
    // Only the options of the given command are built, to save time.
    if let Some(sub) = word.and_then(|w| SUBCOMMANDS.iter().find(|s| s.name == w)) {
        return (sub.parse)(&argv[2..]);
    }
    if let Some(instead) = word.and_then(args::of_another_tool) {
        return Err(Exit::Usage(instead));
    }
    // The word is no subcommand, so clap prints the help or an error.
    let matches = command().try_get_matches_from(argv)?;
    unreachable!("no subcommand, and no error: {matches:?}")
}

/// The arguments of a subcommand, as parsed by clap.
fn matched(name: &str, command: Command, typed: &[OsString]) -> Result<ArgMatches, Exit> {
    let command = command
        .max_term_width(table::HELP_WIDTH)
        .bin_name(format!("taskdiag {name}"))
        .no_binary_name(true);
    Ok(command.try_get_matches_from(typed)?)
}

fn maps(typed: &[OsString]) -> Result<args::maps::MapsArgs, Exit> {
    args::maps::refuse_words_of_pmap(typed)?;
    args::maps::MapsArgs::from_matches(&matched("maps", args::maps::command(), typed)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_has_the_name_of_its_command() {
        for sub in SUBCOMMANDS {
            assert_eq!((sub.command)().get_name(), sub.name);
        }
        command().debug_assert();
    }

    #[test]
    fn a_word_after_two_dashes_is_no_subcommand() {
        let typed = ["taskdiag", "--", "ps"].map(OsString::from);
        assert!(matches!(parse(&typed), Err(Exit::Clap(_))));
    }

    /// A command that parses one of these options parses all of them.
    #[test]
    fn named_conditions_are_options_of_each_command_that_has_where() {
        let mut n = 0;
        for sub in command().get_subcommands() {
            let has = |id: &str| sub.get_arguments().any(|a| a.get_id() == id);
            if has("where")
                && !["record", "report", "wait", "dump", "convert"].contains(&sub.get_name())
            {
                let name = sub.get_name();
                assert!(["container", "pod", "unit"].into_iter().all(has), "{name}");
                n += 1;
            }
        }
        assert!(n > 5);
    }

    #[test]
    fn the_help_lists_each_command_once_in_80_columns() {
        let help = command().render_help().to_string();
        let shown = command()
            .get_subcommands()
            .filter(|c| !c.is_hide_set())
            .map(|c| c.get_name().to_owned())
            .collect::<Vec<_>>();
        assert!(shown.len() > 10);
        let list = help.split("Commands:").nth(1).expect("it has a list");
        for name in shown {
            assert_eq!(help.matches(&format!("\n  {name} ")).count(), 1, "{name}\n{help}");
        }
        assert!(list.lines().all(|l| l.len() <= 80) && help.contains("--as <TOOL>"), "{help}");
    }
}
