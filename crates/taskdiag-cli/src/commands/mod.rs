//! The small commands, and the choice of the command to run.

mod dump;
mod engines;
mod fields;
mod generate;
#[cfg(feature = "record")]
mod record;
mod schema;
mod wait;

use crate::args::Cli;
use crate::exit::Exit;

/// Run a command.
pub fn run(cli: &Cli) -> Result<(), Exit> {
    match cli {
        Cli::Ps(args) => crate::ps::run(args),
        Cli::Pmap(args) => crate::pmap::run(args),
        Cli::Maps(args) => crate::maps::run(args),
        Cli::Memory(args) => crate::memory::run(args),
        Cli::Files(args) => crate::files::run(args),
        Cli::Tree(args) => crate::tree::run(args),
        #[cfg(feature = "top")]
        Cli::Top(args) => crate::top::run(args),
        #[cfg(all(feature = "arrow", feature = "record"))]
        Cli::Convert(args) => crate::convert::run(args),
        #[cfg(feature = "export")]
        Cli::Export(args) => crate::export::run(args),
        Cli::Report(args) => crate::report::run(args),
        Cli::Fields(json) => fields::run(*json),
        Cli::Engines(json) => engines::run(*json),
        Cli::Dump(args) => dump::run(args),
        #[cfg(feature = "record")]
        Cli::Record(args) => record::run(args),
        Cli::Wait(args) => wait::run(args),
        Cli::Run(argv) => crate::dropin::run::run(argv),
        Cli::Dropin(what) => crate::dropin::machine::run(*what),
        Cli::ExitCodes => {
            let text = crate::exit::codes_text() + "\n";
            Ok(crate::output::sink::write_all(text.as_bytes())?)
        }
        Cli::Generate(what) => generate::run(what),
    }
}
