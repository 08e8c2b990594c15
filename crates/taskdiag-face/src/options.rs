//! Options that subcommands share, and lists as options take them.

use clap::{Arg, ArgAction};
use taskdiag::Choice;

/// The layout of `--help` for commands with an introduction (`before_help`) between title and
/// usage.
pub const TEMPLATE: &str =
    "{about-with-newline}\n{before-help}{usage-heading} {usage}\n\n{all-args}{after-help}";

/// A switch.
pub fn flag(id: &'static str, help: &'static str) -> Arg {
    Arg::new(id).long(id).action(ArgAction::SetTrue).help(help)
}

/// A list that may be given several times.
pub fn list(id: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(id).long(id).action(ArgAction::Append).value_name(value).help(help)
}

/// `--engine`, which several commands have.
pub fn engine() -> Arg {
    Arg::new("engine")
        .long("engine")
        .value_name("NAME")
        .value_parser(|s: &str| s.parse::<Choice>())
        .help("Ask this engine: auto, kernel, bpf, service or procfs; without it, that of TASKDIAG_ENGINE, or auto")
}

/// The items of all occurrences of an option.
pub fn items<'a>(args: impl IntoIterator<Item = &'a String>) -> Vec<&'a str> {
    args.into_iter().flat_map(|list| split(list)).collect()
}

/// The items of one list.
pub fn split(list: &str) -> impl Iterator<Item = &str> {
    list.split([',', ' ', '\t', '\n']).filter(|s| !s.is_empty())
}
