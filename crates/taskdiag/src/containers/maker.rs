//! Finds the user who could have made a control group. A user may name a group below a delegated
//! one after the container of another user, so the name of a group proves nothing about its
//! container.

use std::ffi::OsStr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, StatxFlags};
use rustix::io::Errno;

use super::open::Owner;
use crate::cgroup;
use crate::mountinfo::{self, unescape};

/// How long the list of mounts is used.
const KEPT: Duration = Duration::from_secs(60);
/// Directories below /sys/fs/cgroup that a hierarchy is mounted on, where the files of the machine
/// are those of another root. The first one is /sys/fs/cgroup itself.
const USUAL: [&str; 5] = ["", "unified", "systemd", "memory", "pids"];

/// Finds the directories of control groups.
#[derive(Debug, Default)]
pub struct Makers {
    roots: Option<(Instant, Vec<PathBuf>)>,
}

impl Makers {
    /// The user whose container may be in the group with this path. `None`: several users could
    /// make the group. If its directory is not visible, the slice alone decides.
    pub fn of(&mut self, root: &Path, path: &[u8]) -> Option<Owner> {
        // A group in the slice of a user was made by that user, whatever its name.
        if let Some(uid) = cgroup::owner(path).filter(|uid| *uid != 0) {
            return Some(Owner::User(uid));
        }
        let end = path.iter().rposition(|b| *b == b'/').unwrap_or(0);
        let above = Path::new(OsStr::from_bytes(path[..end].strip_prefix(b"/").unwrap_or(b"")));
        let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
        let mut owner = Owner::Root;
        for base in self.roots(root) {
            match writers(base, above) {
                Some(Writers::Root) | None => {}
                Some(Writers::User(uid)) => owner = Owner::User(uid),
                Some(Writers::Several) => return None,
            }
        }
        Some(owner)
    }

    fn roots(&mut self, root: &Path) -> &[PathBuf] {
        if self.roots.as_ref().is_none_or(|(at, _)| at.elapsed() >= KEPT) {
            let mut found = mounted();
            if root != Path::new("/") {
                found.extend(USUAL.map(|name| root.join("sys/fs/cgroup").join(name)));
            }
            self.roots = Some((Instant::now(), found));
        }
        self.roots.as_ref().map_or(&[], |(_, found)| found)
    }
}

fn mounted() -> Vec<PathBuf> {
    let Ok(text) = std::fs::read("/proc/self/mountinfo") else { return Vec::new() };
    let whole = mountinfo::lines(&text)
        .filter(|m| m.root == b"/" && (m.kind == b"cgroup" || m.kind == b"cgroup2"));
    whole.map(|m| PathBuf::from(OsStr::from_bytes(&unescape(m.point)))).collect()
}

/// Who may make directories in a directory.
enum Writers {
    Root,
    User(u32),
    Several,
}

/// `None`: the directory is not there, or cannot be looked at.
fn writers(base: &Path, below: &Path) -> Option<Writers> {
    let stat = open(base, below).and_then(|directory| {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        rustix::fs::statx(directory.as_fd(), c"", flags, StatxFlags::BASIC_STATS)
    });
    let stat = stat.ok()?;
    let mode = Mode::from_raw_mode(stat.stx_mode.into());
    let is_shared =
        mode.contains(Mode::WOTH) || mode.contains(Mode::WGRP) && stat.stx_gid != stat.stx_uid;
    Some(match stat.stx_uid {
        _ if is_shared => Writers::Several,
        0 => Writers::Root,
        uid => Writers::User(uid),
    })
}

/// Opens a directory without asking a file system that a user may have mounted there.
fn open(base: &Path, below: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let base = rustix::fs::openat(CWD, base, flags, Mode::empty())?;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    rustix::fs::openat2(&base, below, flags, Mode::empty(), resolve)
}
