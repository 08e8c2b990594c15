//! Why a step of a task ended early, and errors that are not about a task.

use rustix::io::Errno;
use taskdiag_wire::Reason;

use crate::error::Error;

/// Why a step of a task ended early.
#[derive(Debug)]
pub(super) enum Stop {
    /// This group is missing, for this reason. The other groups may be there.
    Gap(Reason),
    /// The task has ended.
    Gone,
    /// One of our own limits is reached, so that no task can be read.
    Failed(Error),
    /// Another thread has taken over the work of this one, which has nothing more to do.
    Lost,
}

/// The error for a limit of our own, not of a task.
pub(super) fn exhausted(e: Errno) -> Error {
    let what = match e {
        Errno::MFILE => "reading /proc (raise the limit of open files: ulimit -n)",
        Errno::NFILE => "reading /proc (raise the limit of open files: sysctl fs.file-max)",
        _ => "reading /proc",
    };
    Error::io(what, e)
}
