//! The process tree: parents and children ([`forest`]), the tree as rows of `ps` ([`rows`]), and the drawing of
//! `taskdiag tree` ([`compact`], [`draw`]).

mod compact;
mod draw;
mod forest;
mod rows;
mod run;

pub use compact::Labels;
pub use rows::{ASCII, INDENTED, LINES, PLAIN, Tree};
pub use run::run;
