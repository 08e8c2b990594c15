//! Decides which open files FILE, `+d` and `+D` match: by device and inode, and by path.
//!
//! An existing file is identified by device and inode, not by its paths; a different inode that
//! has, or had, the same path does not match. The entries of a directory are identified in the same
//! way, as in lsof: links are not followed, and file systems that are mounted below are not
//! entered. Files that were opened by a path in the directory match, too, even if they are deleted
//! by now or on another file system. But they match only through a mount of ours, because a
//! container has other files at the same paths.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use taskdiag::files::{self, OpenFile};
use taskdiag::wire::{Entry, Socket};

use super::look::{self, Reach, Seen};
use super::mounts::{self, Mount, Mounts};
use crate::aside;
use crate::exit::{say, shown};

/// Device and inode of the files that unix sockets are bound to, by the inode of the socket.
type BoundSockets = HashMap<u64, (u32, u32)>;

/// A place in the directory tree, and what counts as open there.
#[derive(Clone, Debug)]
pub struct Place {
    path: Vec<u8>,
    reach: Reach,
    /// The device of the file system and the inode, if the place could be looked at.
    file: Option<(u32, u64)>,
    /// Matches all files on the file system with these devices: for a mount point, or a mounted
    /// device. A btrfs has one device in stat(2) and another one in /proc/PID/maps.
    mounted: Vec<u32>,
    /// Matches all files on this mount, which shows a directory of a file system that is also
    /// mounted elsewhere.
    bound: Option<u32>,
    /// Inodes of its entries on the same file system.
    entries: HashSet<u64>,
    /// The device that open files report instead of the device in stat(2), on file systems that are
    /// made of others (overlay) or have several devices (btrfs).
    inexact: Option<u32>,
    /// The mount that it is on.
    mount: Option<Mount>,
    /// `None`: the paths belong to another machine.
    mounts: Option<Arc<Mounts>>,
    sockets: Arc<OnceLock<Result<BoundSockets, String>>>,
    /// Set once the command has printed that some of these sockets may be missing.
    printed: Arc<OnceLock<()>>,
    /// Why some of this is not known.
    silent: Option<String>,
    /// Match only by device and inode if it exists, as lsof does.
    strict: bool,
}

/// The meaning of a FILE argument.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlaceKind {
    /// All of a file system where it is mounted, or else the file.
    #[default]
    Any,
    /// `-f`: the file itself.
    PlainFile,
    /// `+f`: all of a file system.
    FileSystem,
}

impl Place {
    /// Interprets a FILE as the option demands. Returns whether that is possible. Is it that?
    pub fn be(&mut self, kind: PlaceKind) -> bool {
        if kind == PlaceKind::PlainFile {
            self.mounted.clear();
            self.bound = None;
        }
        kind != PlaceKind::FileSystem || self.is_of_file_system()
    }
    /// Does it stand for all of a file system?
    pub fn is_of_file_system(&self) -> bool {
        !self.mounted.is_empty() || self.bound.is_some()
    }
    /// Was it named as a FILE?
    pub fn is_file(&self) -> bool {
        self.reach == Reach::File
    }
    /// Its path.
    pub fn path(&self) -> &[u8] {
        &self.path
    }
    /// A file, or all files of a file system that is mounted here. `look`: is it a path of this
    /// machine? The paths of a saved answer may belong to another machine.
    pub fn file(path: &Path, look: bool) -> Place {
        Place::new(path, Reach::File, look)
    }
    /// A directory and its entries, but not the entries of its subdirectories.
    pub fn directory(path: &Path, look: bool) -> Place {
        Place::new(path, Reach::Directory, look)
    }
    /// A directory and all below it.
    pub fn below(path: &Path, look: bool) -> Place {
        Place::new(path, Reach::Below, look)
    }
    fn new(path: &Path, reach: Reach, look: bool) -> Place {
        let mut seen = Seen { path: path.to_path_buf(), ..Seen::default() };
        let mut silent = None;
        if look {
            let (said, end) = aside::ask(|to| look::at(path, reach, to));
            seen = Seen::read(&said);
            // If the child sent nothing, only the name is known.
            if seen.path.as_os_str().is_empty() {
                seen.path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
            }
            match (end, seen.is_whole) {
                (Err(e), _) => silent = Some(e.to_string()),
                (Ok(()), Some(false)) => say(format_args!(
                    "taskdiag: {}: more than {} entries: the others are found only by their path",
                    shown(path),
                    look::ENTRIES_MAX
                )),
                (Ok(()), Some(true)) => {}
                (Ok(()), None) => silent = Some(String::from("the look at it ended early")),
            }
        }
        let mut path = seen.path.into_os_string().into_vec();
        while path.len() > 1 && path.ends_with(b"/") {
            path.pop();
        }
        let mounts = look.then(Mounts::ours);
        let mount = mounts.as_ref().zip(seen.mnt_id).and_then(|(m, id)| m.get(id)).cloned();
        let of_mount = mount.as_ref().map(|m| m.dev);
        let Seen { file, mounted, entries, .. } = seen;
        let inexact = of_mount.filter(|dev| file.is_some_and(|f| f.0 != *dev));
        let mut all: Vec<u32> = mounted.into_iter().collect();
        match (&mounts, seen.is_block) {
            (Some(mounts), true) => {
                all.extend(mounts.devices_of(Path::new(OsStr::from_bytes(&path))));
            }
            _ if mounted.is_some() => all.extend(of_mount),
            _ => {}
        }
        let bound =
            seen.mnt_id.filter(|_| reach == Reach::File && seen.is_mount_root && all.is_empty());
        Place {
            path,
            reach,
            file,
            mounted: all,
            bound,
            entries,
            inexact,
            mount,
            mounts: mounts.map(Arc::new),
            sockets: Arc::default(),
            printed: Arc::default(),
            silent,
            strict: false,
        }
    }
    /// From now on, match files only by device and inode, if it exists.
    pub fn be_strict(&mut self) {
        self.strict = true;
    }
    /// Whether these files include it and everything that counts as open there.
    pub fn is_found_in(&self, seen: &HashSet<(u32, u64)>) -> bool {
        if !self.mounted.is_empty() {
            return seen.iter().any(|(d, _)| self.mounted.contains(d));
        }
        self.file.is_some_and(|(dev, inode)| {
            seen.contains(&(dev, inode)) && self.entries.iter().all(|e| seen.contains(&(dev, *e)))
        })
    }
    /// The error if looking at it was incomplete, because it did not answer in time.
    pub fn is_silent(&self) -> Option<&str> {
        self.silent.as_deref()
    }
    /// Could the place be looked at?
    pub fn is_there(&self) -> bool {
        self.file.is_some()
    }
    /// Does this file match?
    pub fn holds(&self, f: &OpenFile<'_>) -> bool {
        if self.is_on_mounted(f) {
            return true;
        }
        let key = f.dev().zip(f.inode());
        if key.is_some_and(|key| self.is_one_of(f, key)) {
            return true;
        }
        if let Some(socket) = f.socket() {
            return self.holds_socket(f, &socket);
        }
        if self.strict && self.file.is_some() {
            return false;
        }
        // The file at this path is now a different one.
        let is_known = self.inexact.is_none() && self.mount.is_some() && key.is_some();
        let is_other = self.file.is_some() && (f.has_mark() || is_known);
        f.path.is_some_and(|p| {
            !(is_other && p.bytes == self.path.as_slice())
                && self.holds_path(p.bytes)
                && self.leads_here(f)
        })
    }
    /// Is it on the file system or the mount of this place?
    fn is_on_mounted(&self, f: &OpenFile<'_>) -> bool {
        if self.bound.is_some() && f.mnt_id() == self.bound {
            return true;
        }
        let Some(dev) = f.dev().filter(|_| !self.mounted.is_empty()) else { return false };
        // A device without a major number may be one of several that a file system has.
        let is_anonymous = dev >> 8 & 0xfff == 0;
        let of_mount = || {
            let mount = self.mounts.as_ref()?.of_process(f.owner, f.mnt_id()?)?;
            Some(self.mounted.contains(&mount.dev))
        };
        self.mounted.contains(&dev) || is_anonymous && of_mount().unwrap_or(false)
    }
    /// Is it the file, or one in the directory, by device and inode?
    fn is_one_of(&self, f: &OpenFile<'_>, key: (u32, u64)) -> bool {
        let Some(file) = self.file else { return false };
        let is = |(dev, inode)| dev == file.0 && (inode == file.1 || self.entries.contains(&inode));
        if Some(key.0) == self.inexact {
            // Each subvolume of a btrfs has its own inode numbers, so stat(2) has to identify the
            // file.
            return is((file.0, key.1)) && mounts::identity(f).is_some_and(is);
        }
        is(key)
    }
    /// Is it bound to a matching file? Its path in the answer may be relative, or of another mount
    /// namespace.
    fn holds_socket(&self, f: &OpenFile<'_>, socket: &Entry<'_, Socket>) -> bool {
        let name = socket.name().filter(|n| *n != 0).and_then(|n| f.owner.row.view.name(n));
        if let (Some(file), Some(_)) = (self.file, &self.mounts) {
            let bound = self.sockets.get_or_init(|| {
                let all = files::bound_sockets().map_err(|e| e.to_string())?;
                Ok(all.into_iter().map(|s| (s.socket, (s.dev, s.inode))).collect())
            });
            match (bound, &name) {
                (Ok(bound), _) => {
                    if let Some((dev, inode)) = socket.inode().and_then(|i| bound.get(&i)) {
                        let is = |n: &u64| *n as u32 == *inode;
                        let is_dev = *dev == file.0 || Some(*dev) == self.inexact;
                        return is_dev && (is(&file.1) || self.entries.iter().any(is));
                    }
                }
                // Other families and abstract sockets have no path.
                (Err(e), Some(name))
                    if socket.family() == Some(libc::AF_UNIX as u16)
                        && !name.data.starts_with(b"/")
                        && !name.data.starts_with(b"@") =>
                {
                    if self.printed.set(()).is_ok() {
                        say(format_args!(
                            "taskdiag: {}: sockets that were bound by a relative path are missing: \
                             sock_diag(7) does not list unix sockets here: {e}",
                            shown(Path::new(OsStr::from_bytes(&self.path)))
                        ));
                    }
                }
                (Err(_), _) => {}
            }
        }
        name.is_some_and(|n| self.holds_path(&n.data)) && self.has_our_root(f)
    }
    /// Does the path of this file lead to our file at this path?
    fn leads_here(&self, f: &OpenFile<'_>) -> bool {
        let Some(mounts) = &self.mounts else { return true };
        // Kernels before 5.8 do not show the mount of all files.
        let Some(id) = f.mnt_id() else { return true };
        let Some(mount) = mounts.shared(f.owner, id) else { return false };
        // A mount other than that of the place must be mounted below the place; otherwise, the
        // place is mounted over the file.
        let is_same = |own: &Mount| own.is_at_same_place(&mount);
        self.mount.as_ref().is_none_or(is_same) || mount.is_below(&self.path)
    }
    /// Is its process in our mount namespace, so that its paths are ours? The mount of a socket is
    /// not known.
    fn has_our_root(&self, f: &OpenFile<'_>) -> bool {
        if self.mounts.is_none() {
            return true;
        }
        let of = |dir: &str| std::fs::read_link(format!("{dir}/ns/mnt")).ok();
        let its = f.owner.proc_dir_of_process().and_then(|dir| of(&dir));
        its.is_some() && its == of("/proc/self")
    }
    fn holds_path(&self, path: &[u8]) -> bool {
        let Some(rest) = path.strip_prefix(&self.path[..]) else { return false };
        // The path of the root already ends in a slash.
        let inside = match self.path.as_slice() {
            b"/" => Some(rest),
            _ => rest.strip_prefix(b"/"),
        };
        match self.reach {
            _ if rest.is_empty() => true,
            Reach::File => false,
            Reach::Directory => inside.is_some_and(|n| !n.contains(&b'/')),
            Reach::Below => inside.is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_has_the_paths_that_lie_in_it() {
        let p = Path::new;
        for (place, within, without) in [
            (Place::file(p("/a/b"), false), &["/a/b"][..], &["/a", "/a/b/c", "/a/bc", "/"][..]),
            (
                Place::directory(p("/a/b/"), false),
                &["/a/b", "/a/b/c"],
                &["/a", "/a/b/c/d", "/a/bc"],
            ),
            (Place::below(p("/a/b"), false), &["/a/b", "/a/b/c", "/a/b/c/d"], &["/a", "/a/bc"]),
            (Place::below(p("/"), false), &["/", "/a", "/a/b"], &["pipe", ""]),
            (Place::directory(p("/"), false), &["/", "/a"], &["/a/b", "socket"]),
        ] {
            for path in within {
                assert!(place.holds_path(path.as_bytes()), "{place:?} {path}");
            }
            for path in without {
                assert!(!place.holds_path(path.as_bytes()), "{place:?} {path}");
            }
        }
    }

    #[test]
    fn only_places_of_this_machine_are_looked_at() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (file, link) = (dir.path().join("f"), dir.path().join("l"));
        std::fs::write(&file, b"").expect("written");
        std::os::unix::fs::symlink(&file, &link).expect("linked");
        let key = |p: &Path| (Place::file(p, true).path, Place::file(p, true).file);
        assert_eq!(key(&link), key(&file));
        assert!(Place::file(&file, true).is_there());
        assert!(!Place::file(&dir.path().join("no"), true).is_there());
        assert!(Place::file(&file, true).mounted.is_empty());
        assert!(!Place::file(Path::new("/proc"), true).mounted.is_empty());
        assert!(!Place::file(Path::new("/"), true).mounted.is_empty());
        // A saved answer comes from another machine.
        assert!(!Place::file(&file, false).is_there());
    }
}
