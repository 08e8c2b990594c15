//! Process information on Linux: one request, one binary answer, from the fastest source the
//! machine has.
//!
//! Start with [`ProcessList`], which has processes with the values that most programs want:
//!
//! ```
//! # fn main() -> Result<(), taskdiag::Error> {
//! for process in taskdiag::ProcessList::read()?.iter() {
//!     let (name, user) = (process.name().unwrap_or_default(), process.user().unwrap_or_default());
//!     println!("{:>8} {user:<10} {name} {:?}", process.pid(), process.memory());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! - [`ProcessList`], [`Process`] and [`OpenSocket`]: processes, with users, arguments and sockets.
//! - [`query`], and [`query_with`] for an engine of your choice: exactly the values that you want.
//! - [`Session`] and [`Rates`]: the same request each second, and what changed.
//! - [`Waiter`]: waits until processes end.
//! - [`Snapshot::write_to`], [`Snapshot::read_from`] and [`Host`]: saves an answer and reads it
//!   elsewhere.
//! - `view::Query` and [`field`]: rows and columns as the command has them.
//! - [`files`]: who uses files and sockets.
//!
//! `examples/` of the source has a program for each of these.
//!
//! A [`Request`] names the tasks (a [`Strategy`]) and the [`Groups`] of attributes wanted. An
//! [engine] answers it with a stream in the task_diag format, and a [`Snapshot`] gives
//! typed views over those bytes, whether they came from this machine or from a saved file.
//!
//! ```
//! use taskdiag::{Base, Groups, Request};
//!
//! # fn main() -> Result<(), taskdiag::Error> {
//! let snapshot = taskdiag::query(&Request::all(Groups::BASE))?;
//! for task in snapshot.tasks() {
//!     if let (Some(base), Some(comm)) = (task.record::<Base>(), task.comm()) {
//!         println!("{} {:?} {}", task.pid(), base.ppid(), String::from_utf8_lossy(comm));
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//!
//! Most are on by default. /proc is always read. `bpf` adds the BPF engine and its programs,
//! `kernel` the engine for a patched kernel, and `view` the module `view` with
//! its filters, which need the crate regex. Two are off by default: `record` adds the module
//! `recording` and needs libzstd, and `user-stack` lets [`why::Stacks`] read the stacks of threads
//! in their programs and needs the crate gimli. `serve` and `testing` are for the crates of this
//! repository only, and no version keeps what they add. An engine that is not built reports that
//! ([`Cause::NotBuilt`]), and the others answer.
//!
//! # What may change
//!
//! Types that later versions may extend are `#[non_exhaustive]`: make them with their functions,
//! and set members afterwards. The structs of the format are made with [`wire::build!`].

pub mod act;
mod bytes;
pub mod calendar;
pub mod cgroup;
pub mod cgroups;
mod changes;
pub mod columns;
pub mod containers;
mod cpulist;
pub mod engine;
mod error;
pub mod field;
pub mod files;
mod host;
mod large;
mod mountinfo;
mod pidfd;
mod process;
mod rates;
#[cfg(feature = "record")]
pub mod recording;
mod request;
mod served;
pub mod service;
mod signals;
mod snapshot;
pub mod syscalls;
mod task_id;
#[cfg(test)]
mod testing;
#[cfg(feature = "view")]
pub mod view;
mod waiter;
mod watch;
pub mod why;

pub use bytes::Bytes;
pub use changes::{Changes, Stayed};
#[doc(inline)]
pub use engine::auto::{
    Choice, InParts, Part, Repeated, Session, SessionCache, comes_in_parts, query, query_each,
    query_with,
};
#[cfg(feature = "view")]
pub(crate) use engine::auto::{Found, in_two_steps};
pub use engine::{Answer, Cost, Engine, EngineId, Support};
pub use error::{Cause, Error};
pub use field::{Missing, Rate};
pub use host::Host;
pub use pidfd::pidfd_inode;
pub use process::{OpenSocket, Process, ProcessList};
pub use rates::Rates;
pub use request::{ByteLimits, Members, Processes, Request};
pub use signals::without_signals;
pub use snapshot::{Caveat, Served, Snapshot};
pub use task_id::{TaskId, Tick};
pub use taskdiag_wire as wire;
pub use taskdiag_wire::{
    Blob, BootId, Entry, FdDetailKind, FdType, FileUse, Group, Groups, OwnerHow, PathKind, RanBy,
    Reason, Record, Strategy, TaskView, VmaKind, WaitKind,
};
pub use waiter::{Ended, Waiter};
pub use watch::Watch;

/// The records and entries of lists.
macro_rules! exports {
    ($($t:ident)*) => { pub use taskdiag_wire::{$($t),*}; };
}
taskdiag_wire::for_each_record!(exports);
taskdiag_wire::for_each_list!(exports);
