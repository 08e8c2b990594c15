//! Which files FILE, `+d` and `+D` stand for: by device and inode, and by path.
//!
//! A file that is there is known by device and inode, whatever paths lead to it; one of another inode that
//! has, or had, its path is not it. Of a directory all entries are known that way, as in lsof: links are
//! not followed, and what is mounted below is not entered. What was opened by a path in it counts, too, also
//! where it is deleted by now, and where it is of another file system.

use std::collections::HashSet;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use taskdiag::files::OpenFile;

use super::look::{self, Reach, Seen};
use crate::aside;
use crate::exit::{say, shown};

/// A place in the directory tree, and what counts as open there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    path: Vec<u8>,
    reach: Reach,
    /// Device of its file system, and inode, where it could be looked at.
    file: Option<(u32, u64)>,
    /// All on this file system: a mount point, or a device that is mounted.
    mounted: Option<u32>,
    /// Inodes of what is in it, on the same file system.
    entries: HashSet<u64>,
    /// Open files have the same device and inode. Not where a file system is made of others (overlay), or
    /// has several devices (btrfs).
    is_exact: bool,
    /// Why not all of this is known.
    silent: Option<String>,
    /// Only by device and inode where it is there, as lsof does it.
    strict: bool,
}

impl Place {
    /// A file, or all of a file system that is mounted here. `look`: is it a path of this machine?
    /// The paths of a saved answer are those of another one.
    pub fn file(path: &Path, look: bool) -> Place {
        Place::new(path, Reach::File, look)
    }
    /// A directory and what is in it, not in directories in it.
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
            // Without a word about it, there is only its name.
            if seen.path.as_os_str().is_empty() {
                seen.path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
            }
            match (end, seen.is_whole) {
                (Err(e), _) => silent = Some(e.to_string()),
                (Ok(()), Some(false)) => say(format_args!(
                    "taskdiag: {}: more than {} entries: the others are found by their path only",
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
        let Seen { file, mounted, is_exact, entries, .. } = seen;
        Place { path, reach, file, mounted, entries, is_exact, silent, strict: false }
    }
    /// Knows files by device and inode only, if it is there.
    pub fn be_strict(&mut self) {
        self.strict = true;
    }
    /// Are it and all that counts as open there among these files?
    pub fn is_found_in(&self, seen: &HashSet<(u32, u64)>) -> bool {
        if let Some(dev) = self.mounted {
            return seen.iter().any(|(d, _)| *d == dev);
        }
        self.file.is_some_and(|(dev, inode)| {
            seen.contains(&(dev, inode)) && self.entries.iter().all(|e| seen.contains(&(dev, *e)))
        })
    }
    /// Why it was not looked at, or not at all of it: it did not answer in time.
    pub fn is_silent(&self) -> Option<&str> {
        self.silent.as_deref()
    }
    /// Could it be looked at?
    pub fn is_there(&self) -> bool {
        self.file.is_some()
    }
    /// Is this file one of them?
    pub fn holds(&self, f: &OpenFile<'_>) -> bool {
        let dev = f.dev();
        if self.mounted.is_some() && dev == self.mounted {
            return true;
        }
        let key = dev.zip(f.inode());
        if let (Some(file), Some(key)) = (self.file, key) {
            if key == file || (key.0 == file.0 && self.entries.contains(&key.1)) {
                return true;
            }
        }
        if let Some(name) = f.socket().and_then(|s| s.name()).filter(|n| *n != 0) {
            return f.owner.row.view.name(name).is_some_and(|n| self.holds_path(&n.data));
        }
        if self.strict && self.file.is_some() {
            return false;
        }
        // What is at this path now is another file.
        let is_other = self.file.is_some() && (f.is_deleted() || (self.is_exact && key.is_some()));
        f.path.is_some_and(|p| {
            !(is_other && p.bytes == self.path.as_slice()) && self.holds_path(p.bytes)
        })
    }
    fn holds_path(&self, path: &[u8]) -> bool {
        let Some(rest) = path.strip_prefix(&self.path[..]) else { return false };
        // The root ends in the slash that goes before a name in any other directory.
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
    fn paths() {
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
    fn what_is_looked_at() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (file, link) = (dir.path().join("f"), dir.path().join("l"));
        std::fs::write(&file, b"").expect("written");
        std::os::unix::fs::symlink(&file, &link).expect("linked");
        assert_eq!(Place::file(&link, true), Place::file(&file, true));
        assert!(Place::file(&file, true).is_there());
        assert!(!Place::file(&dir.path().join("no"), true).is_there());
        assert!(Place::file(&file, true).mounted.is_none());
        assert!(Place::file(Path::new("/proc"), true).mounted.is_some());
        assert!(Place::file(Path::new("/"), true).mounted.is_some());
        // A saved answer is of another machine.
        assert!(!Place::file(&file, false).is_there());
    }
}
