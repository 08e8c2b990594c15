//! The process tree as `taskdiag tree` draws it: equal subtrees are put together ([`compact`]) and drawn ([`draw`]).

mod compact;
mod draw;
mod run;

pub use run::run;
