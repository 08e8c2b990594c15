//! The small commands.

mod complete;
pub mod dump;
pub mod engines;
pub mod fields;
pub mod generate;
#[cfg(feature = "record")]
pub mod record;
mod schema;
pub mod wait;

use crate::exit::{self, Exit};
use crate::output::sink;

/// `taskdiag help exit-codes`
pub fn exit_codes() -> Result<(), Exit> {
    let text = exit::codes_text() + "\n";
    Ok(sink::write_all(text.as_bytes())?)
}
