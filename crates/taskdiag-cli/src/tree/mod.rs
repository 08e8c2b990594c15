//! The process tree as `taskdiag tree` draws it: equal subtrees are merged ([`compact`]) and drawn
//! ([`draw`]), or written as JSON ([`document`]).

mod compact;
mod document;
mod draw;
mod rows;
mod run;

pub use run::run;
