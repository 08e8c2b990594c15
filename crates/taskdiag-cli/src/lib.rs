//! The `taskdiag` command as a library, for its own program and for tests that run it in their own
//! process: arguments in, text out. Everything that knows about tasks is in the library `taskdiag`;
//! everything here is made from its field table and this crate's option tables.

mod answer;
mod args;
mod argument_errors;
mod cgroups;
mod columns;
mod commands;
mod config;
#[cfg(all(feature = "arrow", feature = "record"))]
mod convert;
mod dropin;
mod files;
mod forest;
mod maps;
mod memory;
mod order;
mod output;
mod pmap;
mod progress;
mod ps;
#[cfg(feature = "record")]
mod recorded;
mod report;
mod saved;
mod stats;
mod subcommands;
mod this_program;
#[cfg(feature = "top")]
mod top;
mod tree;
mod units;
mod why;
mod with_threads;

use std::ffi::OsString;
use std::io::Write as _;

#[cfg(feature = "record")]
use taskdiag_face::moment;
use taskdiag_face::{aside, exit, interrupt, limits, nearest, replace, sink};

/// From now on, Ctrl-C ends a walk and shows what was read so far, or reports that nothing is
/// shown.
pub use interrupt::catch as catch_interrupts;

/// Makes messages begin with the name of this program.
fn name() {
    let wrong = Some(argument_errors::sentence as fn(&clap::Error) -> String);
    exit::is_program(exit::Program { name: "taskdiag", wrong, has_lines: false });
}

/// From now on, values of NVIDIA's graphics processors come from a child of this program.
pub fn ask_nvidia() {
    commands::nvidia::through();
}

/// Print that the program must not be started in this way. Returns the exit code.
pub fn refuse(why: &str) -> u8 {
    name();
    exit::report(Err(exit::Exit::Failed(format!(
        "it has more rights than the user who starts it ({why}), and would show everyone the data of others: remove \
         the bit ('chmod u-s,g-s') or the capabilities ('setcap -r'), and use sudo"
    ))))
}

/// Run the command with these arguments. The first is the name of the program, as in C. Returns the
/// exit code.
pub fn run(argv: Vec<OsString>) -> u8 {
    name();
    let code = exit::report(subcommands::parse(&argv).and_then(|job| job.run()));
    // An error here can no longer be reported.
    let _ = std::io::stdout().flush();
    code
}

/// A command that makes the text of saved answers from memory but writes nothing. It is for
/// fuzzing, since it goes the whole way from bytes to text.
#[cfg(feature = "testing")]
#[derive(Debug)]
pub struct Shows(subcommands::Job);

#[cfg(feature = "testing")]
impl Shows {
    /// The command with these arguments, which must read a saved answer (`--from -`).
    ///
    /// # Panics
    /// If the arguments are wrong.
    pub fn new(args: &[&str]) -> Shows {
        name();
        let argv: Vec<OsString> = ["taskdiag"].iter().chain(args).map(OsString::from).collect();
        Shows(subcommands::parse(&argv).unwrap_or_else(|e| panic!("{args:?}: {e:?}")))
    }
    /// Make the text of this answer, and return the exit code. From now on this process writes
    /// nothing.
    pub fn show(&self, bytes: &[u8]) -> u8 {
        output::sink::be_silent();
        saved::stand_in(bytes);
        exit::report(self.0.run())
    }
}
