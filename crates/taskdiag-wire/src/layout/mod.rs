//! The structs of `uapi/task_diag.h`, member for member.
//!
//! The C header is the original. `tests/layout.rs` compiles it and compares
//! every offset and size with the tables that `record!` makes here.
//!
//! `frame.rs` has the structs around the values, and `task.rs`, `memory.rs` and `files.rs` those of
//! the groups.

mod cgroups;
mod files;
mod frame;
mod memory;
mod task;

pub use self::cgroups::*;
pub use self::files::*;
pub use self::frame::*;
pub use self::memory::*;
pub use self::task::*;
pub use crate::table::{Attribute, CStruct, Entry, GroupRecord, ListEntry, Member, Record, bit};

/// The structs that frame those of the [registry](mod@crate::registry).
pub const FRAMES: &[&CStruct] = &[
    &NlAttr::C,
    &NlMsgHdr::C,
    &Req::C,
    &Features::C,
    &Info::C,
    &TaskMsg::C,
    &Done::C,
    &Cut::C,
    &CgroupList::C,
    &CgroupMsg::C,
    &MissingHdr::C,
    &MissingEntry::C,
    &BlobHdr::C,
    &ArrayHdr::C,
];

/// Every struct of the header, for the test that pins their layout.
pub fn c_structs() -> impl Iterator<Item = &'static CStruct> {
    FRAMES.iter().copied().chain(crate::registry::STRUCTS.iter().map(|s| s.table))
}
