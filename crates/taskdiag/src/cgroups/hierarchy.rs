//! The hierarchies of cgroups that this process sees: that of version 2, and those of version 1,
//! each with its controllers.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, StatxFlags};
use rustix::io::Errno;

use super::members::{Files, Source, V1, V2};
use super::read::{DIRECTORY, Reader};
use crate::engine::procfs::parse::cgroup_mounts;
use crate::error::Error;

/// The controllers of version 1 whose files are read.
const OF_V1: [&[u8]; 6] = [b"cpu", b"cpuacct", b"memory", b"pids", b"blkio", b"freezer"];

/// A hierarchy.
#[derive(Debug)]
pub(super) struct Hierarchy {
    /// The directory of its root, or of the cgroup at the root of this process's namespace.
    pub root: OwnedFd,
    pub version: u8,
    /// Its controllers.
    pub controllers: Vec<String>,
    /// Does it have the root of all cgroups, and not that of a namespace?
    pub is_whole: bool,
    /// Files without a controller that this kernel does not have, and those whose controller has
    /// another hierarchy.
    lacks: Files,
}

impl Hierarchy {
    fn new(root: OwnedFd, controllers: Option<Vec<String>>) -> Hierarchy {
        let is_there =
            |name: &CStr| rustix::fs::statat(&root, name, AtFlags::SYMLINK_NOFOLLOW).is_ok();
        let version = if controllers.is_none() { 2 } else { 1 };
        let controllers = controllers
            .unwrap_or_else(|| Reader::default().controllers(root.as_fd()).unwrap_or_default());
        // The root cgroup has files of PSI, but no file about itself.
        let is_whole = version == 1 || !is_there(c"cgroup.type");
        let mut lacks = Files::NONE;
        for source in if version == 2 { V2 } else { &[] } {
            let is_pressure = source.name.to_bytes().ends_with(b".pressure");
            let of_another = !source.controller.is_empty()
                && !controllers.iter().any(|c| c == source.controller);
            if of_another || is_pressure && !is_there(source.name) {
                lacks = lacks.union(source.file);
            }
        }
        Hierarchy { root, version, controllers, is_whole, lacks }
    }

    /// The files of the hierarchy that have values of this set.
    pub fn sources(&self, asked: Files) -> Vec<&'static Source> {
        let all = if self.version == 2 { V2 } else { V1 };
        let is_here = |s: &Source| {
            s.controller.is_empty()
                || self.version == 2
                || self.controllers.iter().any(|c| c == s.controller)
        };
        all.iter().filter(|s| asked.has(s.file) && !self.lacks.has(s.file) && is_here(s)).collect()
    }
}

fn open(path: &[u8]) -> Result<OwnedFd, Errno> {
    let path = CString::new(path).map_err(|_| Errno::INVAL)?;
    rustix::fs::openat(CWD, &path, DIRECTORY, Mode::empty())
}

/// Opens a directory if it is on this device. A file system whose server does not answer may be
/// mounted over it, so only the cached device number is requested.
fn open_mount(point: &[u8], dev: (u32, u32)) -> Option<OwnedFd> {
    let path = CString::new(point).ok()?;
    let place = rustix::fs::openat(CWD, &path, DIRECTORY | OFlags::PATH, Mode::empty()).ok()?;
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = rustix::fs::statx(&place, c"", flags, StatxFlags::empty()).ok()?;
    let is_it = (stat.stx_dev_major, stat.stx_dev_minor) == dev;
    is_it.then(|| open_below(place.as_fd(), c".").ok()).flatten()
}

/// A directory below one of a hierarchy. A user may own cgroups, and mount a file system there that
/// answers when it wants to.
pub(super) fn open_below(dir: BorrowedFd<'_>, path: &CStr) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    match rustix::fs::openat2(dir, path, DIRECTORY, Mode::empty(), resolve) {
        // Before Linux 5.6, and in sandboxes that do not know the call.
        Err(Errno::NOSYS | Errno::PERM) => rustix::fs::openat(dir, path, DIRECTORY, Mode::empty()),
        result => result,
    }
}

/// The hierarchies that are mounted for this process.
///
/// # Errors
/// [`Error::Io`]: /proc is not mounted, or no cgroup file system is.
pub(super) fn find() -> Result<Vec<Hierarchy>, Error> {
    let path = "/proc/self/mountinfo";
    let text = std::fs::read(path).map_err(|e| Error::io(format!("reading {path}"), e))?;
    let mut found: Vec<Hierarchy> = Vec::new();
    let mounts: Vec<_> = cgroup_mounts(&text).collect();
    // A mount of the whole hierarchy has all cgroups, so it comes before one of a part.
    let whole = mounts.iter().filter(|m| m.0.root == b"/");
    let parts = mounts.iter().filter(|m| m.0.root != b"/");
    let mut seen = Vec::new();
    for (mount, of_v1) in whole.chain(parts) {
        if seen.contains(&mount.dev) {
            continue;
        }
        let controllers = of_v1.map(|options| {
            let all = options
                .split(|b| *b == b',')
                .filter(|o| OF_V1.contains(o) || o.starts_with(b"name="));
            all.map(|o| String::from_utf8_lossy(o).into_owned()).collect::<Vec<_>>()
        });
        // A hierarchy of controllers whose files are not read has nothing to show.
        if controllers.as_ref().is_some_and(Vec::is_empty) {
            continue;
        }
        if let Some(root) = open_mount(&mount.point, mount.dev) {
            seen.push(mount.dev);
            found.push(Hierarchy::new(root, controllers));
        }
    }
    if found.is_empty() {
        let none = std::io::Error::new(std::io::ErrorKind::NotFound, "none is mounted");
        return Err(Error::io(
            "looking for the cgroup file system ('mount -t cgroup2 none /sys/fs/cgroup' mounts it)",
            none,
        ));
    }
    Ok(found)
}

/// Sorts hierarchies into the order in which they are read. Values of version 2 take precedence.
/// The hierarchy that counts tasks is the first of version 1, so that the others need not be read
/// for it.
pub(super) fn sort(all: &mut [Hierarchy]) {
    all.sort_by_key(|h| (h.version == 1, !h.controllers.iter().any(|c| c == "pids")));
}

/// The hierarchies in these directories: of version 2, and of version 1 with their controllers.
///
/// # Errors
/// A directory that cannot be opened.
pub(super) fn at(v2: Option<&Path>, v1: &[(&str, &Path)]) -> Result<Vec<Hierarchy>, Error> {
    use std::os::unix::ffi::OsStrExt as _;
    let opened = |path: &Path| {
        let io = |e: Errno| Error::io(format!("opening {}", path.display()), e);
        open(path.as_os_str().as_bytes()).map_err(io)
    };
    let mut found = Vec::new();
    if let Some(path) = v2 {
        found.push(Hierarchy::new(opened(path)?, None));
    }
    for (controllers, path) in v1 {
        let controllers = controllers.split(',').map(str::to_owned).collect();
        found.push(Hierarchy::new(opened(path)?, Some(controllers)));
    }
    Ok(found)
}
