//! Engines, which answer a [`Request`] with a stream.
//!
//! Each engine has a probe (what works here, tried for real), a pure decision, the run, and pure
//! encoding. Engines know the wire format, and do not know each other; [`auto`] chooses.

#[cfg(not(all(feature = "bpf", feature = "kernel")))]
#[macro_use]
#[path = "without/absent.rs"]
mod absent;

pub mod auto;
#[cfg(feature = "bpf")]
pub mod bpf;
#[cfg(not(feature = "bpf"))]
#[path = "without/bpf.rs"]
pub(crate) mod bpf;
pub(crate) mod estimate;
pub(crate) mod found;
pub(crate) mod info;
#[cfg(feature = "kernel")]
pub mod kernel;
#[cfg(not(feature = "kernel"))]
#[path = "without/kernel.rs"]
pub(crate) mod kernel;
pub(crate) mod mappings;
pub(crate) mod numbering;
pub mod procfs;
pub(crate) mod room;
pub mod service;
pub(crate) mod waits;

use std::time::Duration;

use taskdiag_wire::{Group, Groups, Strategy};

use crate::bytes::Bytes;
use crate::error::Error;
use crate::request::Request;
pub use crate::served::{Cost, EngineId};

/// Why an engine refuses a request for some of the processes.
const NOT_IN_PARTS: &str = "it answers about all processes at once, and not in parts";

/// The shortest walk over pages: to open, read and close the file already takes longer. If less of
/// a budget is left, no read starts.
const LEAST_WALK: Duration = Duration::from_micros(10);

/// The groups of a process table: each engine answers them, and none of them lists objects of a
/// process (mappings, files) or makes it wait. [`Support::groups`] has all groups of an engine.
pub const GROUPS: Groups = Groups::USUAL;

/// The abilities of an engine here.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Support {
    /// Groups it answers.
    pub groups: Groups,
    /// Strategies it answers.
    pub strategies: Vec<Strategy>,
    /// The groups that it does not answer, or answers with gaps, and why.
    pub notes: Vec<(Group, String)>,
}

/// A complete stream (INFO, tasks, DONE) and its cost.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Answer {
    /// The bytes.
    pub stream: Bytes,
    /// What they cost.
    pub cost: Cost,
}

/// Answers requests. The engines of this crate implement it, and nothing else can, so that a later
/// version can add a method.
pub trait Engine: sealed::Sealed + Send {
    /// Which one it is.
    fn id(&self) -> EngineId;
    /// Its abilities here.
    fn support(&self) -> Support;
    /// Answer a request. Groups outside [`Support::groups`] are an error.
    fn run(&mut self, req: &Request) -> Result<Answer, Error>;
}

mod sealed {
    /// Implemented by the engines of this crate.
    pub trait Sealed {}
    impl Sealed for super::bpf::Bpf {}
    impl Sealed for super::kernel::Kernel {}
    impl Sealed for super::procfs::Procfs {}
    impl Sealed for super::service::Service {}
}
