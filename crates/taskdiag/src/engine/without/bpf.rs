//! Stands in for the bpf engine in a build without the feature `bpf`: it says that it is not there, so that who
//! chooses among the engines need not know of features.

use taskdiag_wire::{AlignedBuf, Groups};

use crate::engine::{Answer, Engine, EngineId, Support};
use crate::error::Error;
use crate::request::Request;

/// Whether this build has the engine.
pub(crate) const IS_BUILT: bool = false;

/// An engine that is not there. There is no value of this type.
#[derive(Debug)]
pub(crate) enum Bpf {}

impl Bpf {
    pub(crate) fn new() -> Result<Bpf, Error> {
        Err(super::not_built(EngineId::Bpf, "bpf"))
    }
    pub(crate) fn open(_: bool, _: u64) -> Result<Bpf, Error> {
        Bpf::new()
    }
    pub(crate) fn recycle(&mut self, _: AlignedBuf) {
        match *self {}
    }
}

impl Engine for Bpf {
    fn id(&self) -> EngineId {
        match *self {}
    }
    fn support(&self) -> Support {
        match *self {}
    }
    fn run(&mut self, _: &Request) -> Result<Answer, Error> {
        match *self {}
    }
}

pub(crate) fn groups(_: Groups) -> Groups {
    Groups::NONE
}
