//! The library of taskdiag for programs in C: `libtaskdiag.so.0`, with `include/taskdiag.h`, which
//! documents it for its users.
//!
//! Columns are found in the field table by name, and each has one of a few types. So a new column
//! needs nothing here. There is no public struct, so every part may grow.
//!
//! A call never ends the program: a panic becomes an error. The library prints nothing and handles
//! no signal. Memory is the exception: if none is left, the program ends, as with all code that
//! allocates in Rust.

mod ask;
mod call;
mod exports;
mod failure;
mod table;
