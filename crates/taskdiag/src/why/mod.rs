//! What tasks wait for, who holds it, and who is at the head of the queue.
//!
//! A [`Wait`] is a thread with the kind of its wait and, if somebody is known to hold what it waits
//! for, the [`Holder`]. [`Waits::of`] makes them from an answer. [`Waits::look_up`] finds the
//! holders that only the memory of the process, the kernel's list of file locks or the open files
//! name. [`Graph`] joins waits and holders to chains and cycles.
//!
//! **A wrong holder is worse than none.** A holder is named only if somebody keeps it: the kernel,
//! or a lock of the GNU C library with all the marks of one. The holder must be a living thread of
//! a process that has the lock. Two reads must name the same holder, and the waiting thread must
//! not have run between them. In all other cases there is a [`NoHolder`] with a reason. Condition
//! variables and semaphores have no holder. The locks of programs in Go, Java or Rust do not record
//! one.
//!
//! # Bounds
//!
//! Any user can make many threads wait for long chains of locks. Nothing here is recursive. A
//! thread has at most one holder, so the work and the memory are proportional to the number of
//! threads. Reads that may wait have a limit of time each and all together ([`Limits`]), and what
//! was not looked at is marked as such.
//!
//! It never stops or traces a process, and changes nothing in it. Reading a page that is swapped
//! out brings it back into memory.

mod call;
mod filelocks;
mod graph;
mod holders;
mod lockword;
mod lookup;
mod patience;
mod stack;
mod task;
mod wait;

pub use call::Call;
pub use graph::{Behind, Graph, Node};
pub(crate) use holders::{Held, Holders, recorded};
pub use lookup::Limits;
pub use stack::{FRAMES, Frame, Function, StackEnd, Stacks, UserStack};
pub use wait::{Holder, How, Mount, NoHolder, Wait, Waits};
