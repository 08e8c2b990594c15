//! Finds the id of a v2 cgroup from its path. The id is the inode number of its directory.
//!
//! /proc/PID/cgroup has paths relative to the reader's cgroup namespace, and mountinfo has the
//! cgroup at the mount point. Both are needed to find the directory.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, Mode, OFlags};

use super::parse::{self, CgroupMount};
use super::read::Reader;

/// The mount point of cgroup v2, opened for look-ups.
#[derive(Debug)]
pub(super) struct Cgroups {
    fd: OwnedFd,
    /// The path of the cgroup at the mount point, without a slash at its end.
    root: Vec<u8>,
}

impl Cgroups {
    /// Finds the mount in `self/mountinfo` of a /proc. Returns `None` if no mount can be used.
    pub(super) fn find(proc: BorrowedFd<'_>, reader: &mut Reader) -> Option<Cgroups> {
        let mounts = parse::cgroup2_mounts(reader.long_file(proc, c"self/mountinfo").ok()?);
        // A mount of the whole hierarchy has all paths.
        let whole = mounts.iter().filter(|m| m.root == b"/");
        let parts = mounts.iter().filter(|m| m.root != b"/");
        whole.chain(parts).find_map(|m| Cgroups::open(m, reader))
    }

    fn open(mount: &CgroupMount, reader: &mut Reader) -> Option<Cgroups> {
        reader.syscalls += 3; // open, stat, and close in the end
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(CWD, &mount.point[..], flags, Mode::empty()).ok()?;
        let stat = rustix::fs::fstat(&fd).ok()?;
        // Another filesystem may have been mounted over it.
        let dev = (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
        let root = mount.root.strip_suffix(b"/").unwrap_or(&mount.root).to_vec();
        (dev == mount.dev).then_some(Cgroups { fd, root })
    }

    fn id(&self, path: &[u8], syscalls: &mut u64) -> Option<u64> {
        let below = relative(&self.root, path)?;
        *syscalls += 1;
        let stat = if below.is_empty() {
            rustix::fs::fstat(&self.fd)
        } else {
            rustix::fs::statat(self.fd.as_fd(), below, AtFlags::SYMLINK_NOFOLLOW)
        };
        stat.ok().map(|s| s.st_ino)
    }
}

/// `path` relative to the directory that shows `root`, or `None` if it is not below it.
fn relative<'a>(root: &[u8], path: &'a [u8]) -> Option<&'a [u8]> {
    let below = path.strip_prefix(root)?;
    match below.strip_prefix(b"/") {
        // The path leads out of the reader's cgroup namespace.
        Some(b"..") => None,
        Some(p) if p.starts_with(b"../") => None,
        Some(p) => Some(p),
        None => below.is_empty().then_some(below),
    }
}

/// The ids that were looked up in one request. They are not kept longer, because a path may be
/// another cgroup later.
#[derive(Debug, Default)]
pub(super) struct Ids {
    known: HashMap<Vec<u8>, Option<u64>>,
}

impl Ids {
    /// The id of the v2 cgroup at `path`.
    pub(super) fn get(
        &mut self,
        cgroups: &Cgroups,
        path: &[u8],
        syscalls: &mut u64,
    ) -> Option<u64> {
        if let Some(id) = self.known.get(path) {
            return *id;
        }
        let id = cgroups.id(path, syscalls);
        self.known.insert(path.to_vec(), id);
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_relative_to_the_shown_root() {
        let cases = [
            ("", "/", Some("")),
            ("", "/a/b", Some("a/b")),
            ("/a", "/a", Some("")),
            ("/a", "/a/b", Some("b")),
            ("/a", "/ab", None),
            ("/a", "/b", None),
            ("", "/..", None),
            ("", "/../x", None),
            ("", "/..x", Some("..x")),
        ];
        for (root, path, want) in cases {
            let got = relative(root.as_bytes(), path.as_bytes());
            assert_eq!(got, want.map(str::as_bytes), "{root} {path}");
        }
    }
}
