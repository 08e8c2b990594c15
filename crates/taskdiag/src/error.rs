//! The errors, and what to do about them. A task that ends or denies access is not an error, but
//! data in the answer.

use std::{fmt, io};

use taskdiag_wire::Groups;

use crate::served::EngineId;

/// Why there is no answer.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The process that the request is about does not exist (or may not be seen).
    NoSuchProcess(u32),
    /// The process exists, but this engine cannot see it.
    #[non_exhaustive]
    Hidden {
        /// Which engine.
        engine: EngineId,
        /// The process.
        pid: u32,
    },
    /// An environment variable has an invalid value.
    Setting(String),
    /// The engine does not work here at all.
    #[non_exhaustive]
    Unavailable {
        /// Which engine.
        engine: EngineId,
        /// The cause, for programs.
        cause: Cause,
        /// The reason and what would help, for users.
        why: String,
    },
    /// The engine works, but not for these groups.
    #[non_exhaustive]
    Unsupported {
        /// Which engine.
        engine: EngineId,
        /// The groups it cannot answer.
        groups: Groups,
        /// A clause that says what the groups need, or empty text.
        why: String,
    },
    /// The system refused something.
    #[non_exhaustive]
    Io {
        /// The action that failed.
        what: String,
        /// The error of the system.
        source: io::Error,
    },
    /// A recording cannot be written or read: the reason and what to do, for users.
    Recording(String),
    /// The bytes are not a complete stream.
    Stream(taskdiag_wire::decode::Error),
}

/// Why an engine does not work here, for programs that react to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// The caller lacks the rights: root, or CAP_BPF and CAP_PERFMON for the bpf engine. A seccomp
    /// filter or a security module may refuse in the same way.
    NoPermission,
    /// The kernel lacks something: the system call, the file, a feature, or its own type
    /// information (BTF).
    NotSupported,
    /// A limit of memory or descriptors was reached; it may work later.
    Limit,
    /// No proc filesystem is mounted.
    NoProc,
    /// The administrator has turned it off in `/etc/taskdiag.conf`.
    TurnedOff,
    /// This build does not have it: a feature of the crate is off.
    NotBuilt,
    /// Something else.
    Other,
}

impl Error {
    /// An [`Error::Io`].
    pub fn io(what: impl Into<String>, source: impl Into<io::Error>) -> Error {
        Error::Io { what: what.into(), source: source.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NoSuchProcess(pid) => write!(f, "no process {pid}"),
            Error::Hidden { engine, pid } => write!(
                f,
                "process {pid} is hidden from the {engine} engine here, as some sandboxes do; \
                 the procfs engine sees it"
            ),
            Error::Setting(why) | Error::Recording(why) => f.write_str(why),
            Error::Unavailable { engine, why, .. } => {
                write!(f, "the {engine} engine cannot be used: {why}")
            }
            Error::Unsupported { engine, groups, why } => {
                write!(
                    f,
                    "the {engine} engine does not provide {groups}{why}; \
                     'taskdiag engines' says who does"
                )
            }
            Error::Io { what, source } => write!(f, "{what}: {source}"),
            Error::Stream(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { source, .. } => Some(source),
            Error::Stream(e) => Some(e),
            _ => None,
        }
    }
}

impl From<taskdiag_wire::decode::Error> for Error {
    fn from(e: taskdiag_wire::decode::Error) -> Error {
        Error::Stream(e)
    }
}
