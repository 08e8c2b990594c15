//! The small commands.

mod complete;
pub mod dump;
pub mod engines;
pub mod fields;
pub mod generate;
pub mod nvidia;
#[cfg(feature = "record")]
pub mod record;
mod schema;
pub mod wait;

use crate::args::procps;
use crate::exit::{self, Exit};
use crate::output::sink;

/// `taskdiag help exit-codes`
pub fn exit_codes() -> Result<(), Exit> {
    let text = exit::codes_text() + "\n";
    Ok(sink::write_all(text.as_bytes())?)
}

/// The help on letters without a dash.
pub const LETTERS: &str = "Letters without a dash, as in aux or axo pid,comm: a and x together select all processes, a alone those \
                           with a terminal, x alone your own. Without a set of columns, a and x show PID TTY STAT TIME COMMAND. \
                           Numbers are process ids. The letters mean:";

/// `taskdiag help letters`
pub fn letters() -> Result<(), Exit> {
    let mut text = exit::wrapped("", LETTERS);
    for (letter, help) in procps::bsd_letters() {
        text.push('\n');
        text += &exit::wrapped(&format!("  {letter}  "), help);
    }
    text.push('\n');
    Ok(sink::write_all(text.as_bytes())?)
}
