//! The parts that the tests of the whole project share: tasks in known states ([`mktask`]), answers
//! of each engine as plain values ([`answer`]), their comparison ([`compare`]), lists ([`rows`]),
//! file systems ([`mounts`]), waits with an end ([`busy`]), the memory of programs ([`peak`]),
//! storms of tasks ([`storm`]), and loud skips ([`skips`]). The tests are in `tests/`.

/// The example of the README, which is built and run with the examples in the documentation.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;

pub mod answer;
pub mod busy;
pub mod cli;
pub mod compare;
pub mod memcg;
pub mod mktask;
pub mod mounts;
pub mod peak;
pub mod pid_max;
pub mod rows;
pub mod skips;
pub mod state;
pub mod storm;

pub use answer::{Answer, Source, Task, Value, engines, read};
pub use mktask::{Ended, Mktask};
pub use skips::skip;

/// An empty directory, and its path without links.
pub fn plain_dir() -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().expect("dir");
    let path = std::fs::canonicalize(dir.path()).expect("it exists");
    (dir, path.to_str().expect("a plain path").to_string())
}

/// Does this test run as root?
pub fn is_root() -> bool {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Does this kernel note for which of its locks a task waits? It can for mutexes since Linux 6.15
/// and for rwsems since 6.17, if it was configured for that.
pub fn notes_blockers() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("it is there");
    let mut numbers = release.split('.').map_while(|n| n.parse::<u32>().ok());
    let types = std::fs::read("/sys/kernel/btf/vmlinux").unwrap_or_default();
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    version >= (6, 17) && types.windows(9).any(|w| w == b"\0blocker\0")
}

/// Does this test run as root? If not, it is reported as skipped.
pub fn needs_root(test: &str) -> bool {
    if !is_root() {
        skip(test, "needs root");
    }
    is_root()
}
