//! Whose process ids a /proc has. It is mounted for a pid namespace, which need not be the reader's: after
//! `unshare --pid` it is that of before, after entering the mounts of a container it is the container's.

use rustix::fs::CWD;

/// Is /proc that of our own pid namespace? Two system calls, which make no inode: it shows us under our own
/// number, or under another, or not at all.
///
/// Where we have the same number in both namespaces by chance, this cannot tell; what is decided by it only
/// ever costs time or a note.
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
        // NSpid of a task: its number in the pid namespace of /proc, and in those below.
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let ns = status.lines().find_map(|l| l.strip_prefix("NSpid:")).unwrap();
        assert_eq!(super::proc_is_own(), ns.split_whitespace().count() == 1);
    }
}
