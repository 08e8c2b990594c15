//! A library that the dynamic linker puts before libproc2, so that unmodified `ps`, `top`, `pgrep`
//! and others get their processes from taskdiag: `taskdiag run -- ps aux`, or for a whole machine
//! `taskdiag dropin install`.
//!
//! It implements the functions of libproc2 about processes, and passes the rest to the real
//! library: calls for single processes, items without a source here, everything if the version is
//! not known, and any call that fails here. `docs/use/dropin.md` explains it.

mod abi;
mod arena;
mod context;
mod exports;
mod fill;
mod guard;
mod item;
mod memory;
mod names;
mod old;
mod parts;
mod plan;
mod proctext;
mod real;
mod rows;
mod sources;
mod stats;
mod text;
mod tty;
