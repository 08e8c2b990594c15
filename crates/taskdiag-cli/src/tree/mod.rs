//! The process tree: who is whose child ([`forest`]), as rows of `ps` ([`rows`]), and as
//! `taskdiag tree` draws it ([`compact`], [`draw`]).

mod compact;
mod draw;
mod forest;
mod rows;
mod run;

pub use compact::Labels;
pub use rows::{ASCII, INDENTED, LINES, PLAIN, Tree};
pub use run::run;
