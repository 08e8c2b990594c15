//! The arguments of `taskdiag run`.

use std::ffi::OsString;

use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint, value_parser};

use crate::exit::{self, Exit};

/// The program and its arguments.
pub fn command() -> Command {
    Command::new("run")
        .about("Run ps, top or another program of procps, unmodified and faster")
        .before_help(
            "The program and its output do not change: a library is loaded before its libproc2, which \
             gets the processes from taskdiag. Programs that it starts use the library, too. With TASKDIAG_STATS=1 in the \
             environment, it says what it did.",
        )
        .help_template(super::table::TEMPLATE)
        .arg(
            Arg::new("command")
                .value_name("PROGRAM")
                .num_args(1..)
                .action(ArgAction::Append)
                .trailing_var_arg(true)
                .allow_hyphen_values(true)
                .required(true)
                .value_parser(value_parser!(OsString))
                .value_hint(ValueHint::CommandWithArguments)
                .help("Run this program, with these arguments"),
        )
        .after_help(exit::examples(&[
            ("taskdiag run ps aux", "run ps of procps"),
            ("taskdiag run -- top -H", "run top of procps, with threads"),
            ("sudo taskdiag run pgrep -f nginx", "run it as root; sudo comes first"),
        ]))
}

/// The program and its arguments.
pub fn from_matches(m: &ArgMatches) -> Result<Vec<OsString>, Exit> {
    Ok(m.get_many::<OsString>("command").into_iter().flatten().cloned().collect())
}
