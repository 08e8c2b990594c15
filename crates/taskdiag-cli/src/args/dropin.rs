//! The arguments of `taskdiag dropin`.

use clap::{Arg, ArgMatches, Command};

use crate::exit::{self, Exit};

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Install it for all programs.
    Install,
    /// Is it installed, and does it work?
    Status,
    /// Undo it.
    Remove,
}

/// The options.
pub fn command() -> Command {
    Command::new("dropin")
        .about("Make all programs of procps on this machine faster, or undo that")
        .before_help(
            "All programs that use libproc2, such as ps, top and pgrep, get their processes from taskdiag then, as with \
             'taskdiag run' for one. 'install' puts a directory first in the search path of the dynamic linker, with one \
             file in /etc/ld.so.conf.d, and 'remove' takes both away. No file of the distribution changes.",
        )
        .help_template(super::table::TEMPLATE)
        .arg(
            Arg::new("what")
                .value_name("ACTION")
                .required(true)
                .value_parser(["install", "status", "remove"])
                .help("Install it, remove it, or report whether it is installed and works"),
        )
        .after_help(exit::examples(&[
            ("sudo taskdiag dropin install", "install it for all programs"),
            ("taskdiag dropin status", "see whether it is installed and works"),
            ("sudo taskdiag dropin remove", "undo that"),
        ]))
}

/// The requested action.
pub fn from_matches(m: &ArgMatches) -> Result<What, Exit> {
    Ok(match super::text(m, "what").as_deref() {
        Some("install") => What::Install,
        Some("remove") => What::Remove,
        _ => What::Status,
    })
}
