//! Which files FILE, `+d` and `+D` stand for: by device and inode, and by path.
//!
//! A file that is there is known by device and inode, whatever paths lead to it; one of another inode that
//! has, or had, its path is not it. Of a directory all entries are known that way, as in lsof: links are
//! not followed, and what is mounted below is not entered. What was opened by a path in it counts, too, also
//! where it is deleted by now, and where it is of another file system.

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirEntryExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxFlags};
use taskdiag::files::OpenFile;

use crate::exit::say;

/// No more entries of a directory than these are known by inode: to list them takes a second.
const ENTRIES_MAX: usize = 1_000_000;

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
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    File,
    Directory,
    Below,
}

/// The kernel's 32-bit form of a device number, which the stream has.
fn new_encode_dev(dev: u64) -> u32 {
    let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
    (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)
}

impl Place {
    /// A file, or all of a file system that is mounted here. `look`: is it a path of this machine?
    /// The paths of a saved answer are those of another one.
    pub fn file(path: &Path, look: bool) -> Place {
        let mut place = Place::new(path, Reach::File, look);
        let Some(meta) = look.then(|| std::fs::metadata(path).ok()).flatten() else { return place };
        if meta.file_type().is_block_device() {
            place.mounted = Some(new_encode_dev(meta.rdev()));
        } else if meta.is_dir() {
            let above = std::fs::metadata(path.join(".."));
            let is_root = || above.as_ref().is_ok_and(|a| a.ino() == meta.ino());
            if above.as_ref().is_ok_and(|a| a.dev() != meta.dev()) || is_root() {
                place.mounted = Some(new_encode_dev(meta.dev()));
            }
        }
        place
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
        let meta = look.then(|| std::fs::metadata(path).ok()).flatten();
        let whole = match look {
            // The kernel knows no symbolic links in the paths of open files. What is not there any
            // more may still be open.
            true => std::fs::canonicalize(path).or_else(|_| std::path::absolute(path)),
            false => Ok(PathBuf::from(path)),
        };
        let whole = whole.unwrap_or_else(|_| path.to_path_buf());
        let mut path = whole.as_os_str().as_bytes().to_vec();
        while path.len() > 1 && path.ends_with(b"/") {
            path.pop();
        }
        let entries = match (&meta, reach) {
            (Some(m), Reach::Directory | Reach::Below) if m.is_dir() => {
                let below = reach == Reach::Below;
                let (found, all) = entries(&whole, m.dev(), below, ENTRIES_MAX);
                if !all {
                    say(format_args!(
                        "taskdiag: {}: more than {ENTRIES_MAX} entries: the others are found by their path only",
                        whole.display()
                    ));
                }
                found
            }
            _ => HashSet::new(),
        };
        let is_exact = meta.as_ref().is_some_and(|m| is_device_of_mount(&whole, m.dev()));
        let file = meta.map(|m| (new_encode_dev(m.dev()), m.ino()));
        Place { path, reach, file, mounted: None, entries, is_exact }
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

/// Is this the device of the file system that is mounted there, which open files have?
fn is_device_of_mount(path: &Path, dev: u64) -> bool {
    let mount = || {
        let s = rustix::fs::statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID).ok()?;
        let id = s.stx_mnt_id.to_string();
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
        let mut lines = mounts.lines().map(|l| l.split(' '));
        lines.find_map(|mut l| (l.next()? == id).then(|| l.nth(1).map(str::to_owned))?)
    };
    let own = format!("{}:{}", rustix::fs::major(dev), rustix::fs::minor(dev));
    mount().is_some_and(|m| m == own)
}

/// Inodes of what is in a directory, or below it, of device `dev`; and are these all?
fn entries(dir: &Path, dev: u64, below: bool, max: usize) -> (HashSet<u64>, bool) {
    let (mut found, mut todo) = (HashSet::new(), vec![dir.to_path_buf()]);
    while let Some(dir) = todo.pop() {
        // What may not be read, or has gone, has no entries for us.
        let Ok(list) = std::fs::read_dir(&dir) else { continue };
        for entry in list.flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_symlink() {
                continue;
            }
            if kind.is_dir() {
                // What is mounted on it has another device.
                let path = entry.path();
                if !std::fs::symlink_metadata(&path).is_ok_and(|m| m.dev() == dev) {
                    continue;
                }
                if below {
                    todo.push(path);
                }
            }
            if found.len() == max {
                return (found, false);
            }
            found.insert(entry.ino());
        }
    }
    (found, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_a_directory() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let [file, sub, deep, link] = ["f", "s", "s/d", "l"].map(|n| dir.path().join(n));
        std::fs::create_dir(&sub).expect("made");
        for f in [&file, &deep] {
            std::fs::write(f, b"").expect("written");
        }
        // Which leads back, and is not followed.
        std::os::unix::fs::symlink(dir.path(), &link).expect("linked");
        let meta = |p: &Path| std::fs::metadata(p).expect("it is there");
        let inodes = |of: &[&PathBuf]| of.iter().map(|p| meta(p).ino()).collect::<HashSet<_>>();
        let dev = meta(dir.path()).dev();
        assert_eq!(entries(dir.path(), dev, false, 9), (inodes(&[&file, &sub]), true));
        assert_eq!(entries(dir.path(), dev, true, 9), (inodes(&[&file, &sub, &deep]), true));
        assert!(entries(dir.path(), dev, true, 3).1);
        let (few, all) = entries(dir.path(), dev, true, 2);
        assert_eq!((few.len(), all), (2, false));
        // As where another file system is mounted on each of them.
        assert_eq!(entries(dir.path(), dev + 1, true, 9), (inodes(&[&file]), true));
    }

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
