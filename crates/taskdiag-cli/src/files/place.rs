//! Which files FILE, `+d` and `+D` stand for: by device and inode, or by path.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use taskdiag::files::OpenFile;

/// A place in the directory tree, and what counts as open there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    path: Vec<u8>,
    reach: Reach,
    /// Device of its file system, and inode, where it could be looked at.
    file: Option<(u32, u64)>,
    /// All on this file system: a mount point, or a device that is mounted.
    mounted: Option<u32>,
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
        let file = meta.map(|m| (new_encode_dev(m.dev()), m.ino()));
        Place { path, reach, file, mounted: None }
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
        if self.file.is_some() && dev.zip(f.inode()) == self.file {
            return true;
        }
        if let Some(name) = f.socket().and_then(|s| s.name()).filter(|n| *n != 0) {
            return f.owner.row.view.name(name).is_some_and(|n| self.holds_path(&n.data));
        }
        f.path.is_some_and(|p| self.holds_path(p.bytes))
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
