//! Tests of the command as a user meets it. One program, so that its parts share [`common`].

#[cfg(feature = "top")]
#[allow(
    dead_code,
    reason = "taskdiag-tests uses the rest; a dependency on it would add features to the library"
)]
#[path = "../../../../tests/src/busy.rs"]
mod busy;
mod cgroups;
mod common;
mod errors;
mod files;
mod files_oracle;
#[cfg(feature = "top")]
mod foreign;
mod formats;
mod generate;
mod host;
mod maps;
mod memory;
mod names;
mod pages;
#[cfg(feature = "record")]
mod record;
mod run;
mod schema;
mod stack;
mod terminal;
mod text;
#[cfg(feature = "top")]
mod top;
mod tree;
mod units;
mod wait;
mod where_;
mod why;
