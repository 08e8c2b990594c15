//! Stands in for the kernel engine in a build without the feature `kernel`: it says that it is not there, so that who
//! chooses among the engines need not know of features.

use crate::engine::{Answer, Engine, EngineId, Support};
use crate::error::Error;
use crate::request::Request;

/// An engine that is not there. There is no value of this type.
#[derive(Debug)]
pub(crate) enum Kernel {}

impl Kernel {
    pub(crate) fn new() -> Result<Kernel, Error> {
        Err(super::not_built(EngineId::Kernel, "kernel"))
    }
    pub(crate) fn sees_all(&self) -> bool {
        match *self {}
    }
}

impl Engine for Kernel {
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
