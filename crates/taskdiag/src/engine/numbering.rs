//! Finds out which pid namespace a /proc belongs to. It is mounted for a pid namespace, which may
//! differ from that of the reader. After `unshare --pid`, /proc belongs to the old namespace, and
//! after entering the mounts of a container, to the container's namespace.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Mutex;

use rustix::fs::CWD;

use crate::served::EngineId;
use crate::snapshot::Snapshot;

/// The process and the proc filesystem (its device number) for which the slow check has shown that
/// they have the same pids.
static PROVEN: Mutex<Option<(u32, u64)>> = Mutex::new(None);

/// Whether /proc belongs to our own pid namespace. After the first time it takes three system
/// calls, which make no inode.
pub(crate) fn proc_is_own() -> bool {
    let proc = Path::new("/proc");
    if !shows_us_as_ourselves(proc) {
        return false;
    }
    let now = rustix::fs::stat(proc).ok().map(|s| (std::process::id(), s.st_dev));
    let proven = || PROVEN.lock().unwrap_or_else(|e| e.into_inner());
    if now.is_some() && *proven() == now {
        return true;
    }
    let is_own = has_one_number(proc);
    if is_own {
        *proven() = now;
    }
    is_own
}

/// Checks the proc filesystem at this path, without a cache, for actions by pid that must not hit
/// another process.
pub(crate) fn is_own(proc: &Path) -> bool {
    shows_us_as_ourselves(proc) && has_one_number(proc)
}

/// Whether the tasks of an answer have the same numbers in /proc. A saved answer may be of another
/// machine. BPF has the numbers of our own pid namespace, and /proc may belong to another one.
pub fn is_numbered_as_proc(snapshot: &Snapshot) -> bool {
    let served = snapshot.served();
    let mut others = served.iter().map(|s| s.engine);
    !served.is_empty()
        && (others.all(|e| matches!(e, EngineId::Kernel | EngineId::Procfs)) || proc_is_own())
}

/// /proc shows us under our own number, under another one, or not at all. We can have the same
/// number in both namespaces by chance.
fn shows_us_as_ourselves(proc: &Path) -> bool {
    let me = std::process::id().to_string();
    let mut text = [0u8; 16];
    rustix::fs::readlinkat_raw(CWD, proc.join("self"), &mut text)
        .is_ok_and(|len| text[..len] == *me.as_bytes())
}

/// NSpid of a task has its number in the pid namespace of the proc filesystem first, and then those
/// in the namespaces below, down to its own. So it has only one number if both are the same
/// namespace. A namespace that is not an ancestor of ours does not show us.
fn has_one_number(proc: &Path) -> bool {
    let mut text = Vec::with_capacity(4096);
    let read =
        File::open(proc.join("self/status")).and_then(|f| f.take(1 << 16).read_to_end(&mut text));
    let line = text.split(|b| *b == b'\n').find_map(|l| l.strip_prefix(b"NSpid:"));
    let words = |l: &[u8]| l.split(u8::is_ascii_whitespace).filter(|w| !w.is_empty()).count();
    match (read, line) {
        (Ok(_), Some(line)) => words(line) == 1,
        // A kernel without pid namespaces has no such line, and only one set of pids.
        (Ok(_), None) => !Path::new("/proc/self/ns/pid").exists(),
        (Err(_), _) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_is_ours_where_the_process_has_one_pid() {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let ns = status.lines().find_map(|l| l.strip_prefix("NSpid:")).unwrap();
        let is_own = ns.split_whitespace().count() == 1;
        for _ in 0..2 {
            assert_eq!(proc_is_own(), is_own);
        }
        assert_eq!(super::is_own(Path::new("/proc")), is_own);
        assert!(!super::is_own(Path::new("/nosuchproc")));
    }
}
