//! Completes the records of WAIT: what a task waits for follows from the name of a function and the
//! number of a system call, and a program would compare texts for a long time.

use taskdiag_wire::Wait;
use zerocopy::FromBytes;

use super::attrs::each_attr;
use crate::engine::waits;

/// Completes all records in this stream, and replaces the addresses of locks in them.
pub(super) fn complete(stream: &mut [u8]) {
    each_attr(stream, |task, kind, bytes| {
        if kind != Wait::TYPE {
            return;
        }
        if let Ok((wait, _)) = Wait::mut_from_prefix(bytes) {
            waits::complete(wait, task.tgid);
        }
    });
}
