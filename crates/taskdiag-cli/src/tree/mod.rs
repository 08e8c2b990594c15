//! The process tree as `taskdiag tree` draws it: equal subtrees are put together ([`compact`]) and drawn ([`draw`]),
//! or as JSON has it ([`document`]).

mod compact;
mod document;
mod draw;
mod run;

pub use run::run;
