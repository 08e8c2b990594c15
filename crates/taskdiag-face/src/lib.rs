//! Code that the faces of taskdiag share. A face is a program or package on top of the library
//! `taskdiag`: the command, `taskdiag-sql`, the extension of osquery.
//!
//! This interface may change in each version. Programs of other projects should use the library.

#[cfg(feature = "arrow")]
pub mod arrow;
#[cfg(feature = "program")]
pub mod aside;
pub mod elevated;
#[cfg(feature = "program")]
pub mod exit;
#[cfg(feature = "program")]
pub mod interrupt;
#[cfg(feature = "program")]
pub mod limits;
#[cfg(feature = "program")]
pub mod moment;
pub mod nearest;
#[cfg(feature = "program")]
pub mod options;
#[cfg(feature = "parquet")]
pub mod parquet;
pub mod replace;
pub mod sink;
pub mod tables;
