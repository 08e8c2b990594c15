// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables of live or recorded data.

pub mod kind;
pub mod lacks;
pub mod push;
pub mod recorded;
pub mod request;
pub mod scan;

pub use kind::Kind;
pub use scan::{Source, Table};
