//! Stands in for the bpf engine in a build without the feature `bpf`.

use taskdiag_wire::{AlignedBuf, Groups};

/// Whether this build has the engine.
pub(crate) const IS_BUILT: bool = false;

absent!(Bpf, "bpf");

impl Bpf {
    pub(crate) fn open(_: bool, _: u64) -> Result<Bpf, Error> {
        Bpf::new()
    }
    pub(crate) fn descriptors(&self, _: &mut Vec<std::os::fd::RawFd>) {
        match *self {}
    }
    pub(crate) fn recycle(&mut self, _: AlignedBuf) {
        match *self {}
    }
}

pub(crate) fn groups(_: Groups) -> Groups {
    Groups::NONE
}
