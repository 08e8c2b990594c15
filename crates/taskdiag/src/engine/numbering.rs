//! Tells whose process ids a /proc has. It is mounted for a pid namespace, which need not be that of the
//! reader. After `unshare --pid` it is the namespace before, and after entering the mounts of a container it
//! is that of the container.

use rustix::fs::CWD;

/// Whether /proc is that of our own pid namespace. It takes two system calls, which make no inode. /proc
/// shows us under our own number, under another one, or not at all.
///
/// If we have the same number in both namespaces by chance, this cannot tell. Decisions that rest on it cost
/// only time or a note, or tell how a zombie ended by the numbers of another one.
pub(crate) fn proc_is_own() -> bool {
    let me = std::process::id().to_string();
    let mut text = [0u8; 16];
    rustix::fs::readlinkat_raw(CWD, c"/proc/self", &mut text)
        .is_ok_and(|len| text[..len] == *me.as_bytes())
}

#[cfg(test)]
mod tests {
    #[test]
    fn this_machine() {
        // NSpid of a task has its number in the pid namespace of /proc first, and then those in the
        // namespaces below.
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let ns = status.lines().find_map(|l| l.strip_prefix("NSpid:")).unwrap();
        assert_eq!(super::proc_is_own(), ns.split_whitespace().count() == 1);
    }
}
