//! The arguments typed for each tool. The same words go to the peer and to taskdiag.

mod lsof;
mod pmap;
mod ps;
mod pstree;

pub use lsof::*;
pub use pmap::*;
pub use ps::*;
pub use pstree::*;
