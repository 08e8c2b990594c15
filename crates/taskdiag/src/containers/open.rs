//! Reads the files of container runtimes. The files of rootless runtimes belong to ordinary users,
//! and the reader is often root. So no link is followed below the base directory, only regular
//! files of the right owner are read, no file system is waited for, and every file has a limit.

use std::ffi::OsStr;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, StatxFlags};
use rustix::io::Errno;
use taskdiag_wire::Reason;

use crate::mountinfo::unescape;

/// The owner whose files are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// A directory that only root can change, so links to it are root's.
    Root,
    /// Files in the home directory of this user, who may put anything there.
    User(u32),
}

/// Identifies one state of a file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    device: (u32, u32),
    inode: u64,
    modified: (i64, u32),
    changed: (i64, u32),
    size: u64,
}

/// A place below a directory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The directory. Links on the way to it are followed.
    pub base: PathBuf,
    /// The way from there, on which no link is followed.
    pub below: PathBuf,
}

/// What was found.
pub type Found<T> = Result<Option<T>, Reason>;

fn none_or<T>(e: Errno) -> Found<T> {
    match e {
        Errno::NOENT | Errno::NOTDIR => Ok(None),
        Errno::ACCESS | Errno::PERM => Err(Reason::Denied),
        // A lease of another process, or a look-up that raced with a rename.
        Errno::AGAIN => Err(Reason::Blocked),
        _ => Err(Reason::Unsupported),
    }
}

fn stamp(stat: &rustix::fs::Statx) -> Stamp {
    Stamp {
        device: (stat.stx_dev_major, stat.stx_dev_minor),
        inode: stat.stx_ino,
        modified: (stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec),
        changed: (stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec),
        size: stat.stx_size,
    }
}

fn stat_of(fd: BorrowedFd<'_>) -> Result<rustix::fs::Statx, Errno> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    rustix::fs::statx(fd, c"", flags, StatxFlags::BASIC_STATS)
}

/// Opens a place. `flags` are added to those that every open has.
fn open(place: &Place, owner: Owner, flags: OFlags) -> Result<OwnedFd, Errno> {
    let mut common = OFlags::CLOEXEC;
    // openat2(2) refuses other flags beside this one.
    if !flags.contains(OFlags::PATH) {
        common |= OFlags::NOCTTY | OFlags::NONBLOCK;
    }
    let directory = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let base = match owner {
        Owner::Root => rustix::fs::open(&place.base, directory, Mode::empty())?,
        Owner::User(_) => home_directory(&place.base, directory)?,
    };
    let mut resolve =
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    if owner != Owner::Root {
        // A user may mount file systems that answer when they want to.
        resolve |= ResolveFlags::NO_XDEV;
    }
    let flags = flags | common | OFlags::NOFOLLOW;
    match rustix::fs::openat2(&base, &place.below, flags, Mode::empty(), resolve) {
        // Before Linux 5.6, and in sandboxes that do not know the call.
        Err(Errno::NOSYS | Errno::PERM) if owner == Owner::Root => {
            rustix::fs::openat(&base, &place.below, flags, Mode::empty())
        }
        Err(Errno::NOSYS) => Err(Errno::OPNOTSUPP),
        result => result,
    }
}

/// A directory of a user, if its file system answers at once. A link on the way, or a mount made
/// since the last time, could lead to a file system that does not.
fn home_directory(path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let mounts = std::fs::read("/proc/self/mountinfo").map_err(|_| Errno::OPNOTSUPP)?;
    let check = |path: &Path| if is_local(&mounts, path) { Ok(()) } else { Err(Errno::AGAIN) };
    check(path)?;
    let mut path = path.to_owned();
    // Some distributions make /home a link to /var/home.
    if let (Some(parent), Some(name)) = (path.parent(), path.file_name()) {
        if let Ok(to) = std::fs::read_link(parent) {
            path = parent.parent().unwrap_or(parent).join(to).join(name);
            check(&path)?;
        }
    }
    match rustix::fs::openat2(CWD, &path, flags, Mode::empty(), resolve) {
        Err(Errno::NOSYS) => Err(Errno::OPNOTSUPP),
        result => result,
    }
}

/// The content of a file, with its stamp.
pub fn read(place: &Place, owner: Owner, most: u64) -> Found<(Vec<u8>, Stamp)> {
    let file = match open(place, owner, OFlags::RDONLY) {
        Ok(file) => file,
        Err(e) => return none_or(e),
    };
    let stat = stat_of(file.as_fd()).map_err(|_| Reason::Unsupported)?;
    let is_regular = FileType::from_raw_mode(stat.stx_mode.into()) == FileType::RegularFile;
    if !is_regular || !may_own(stat.stx_uid, owner) || owner != Owner::Root && stat.stx_nlink > 1 {
        return Err(Reason::Unsupported);
    }
    if stat.stx_size > most {
        return Err(Reason::Truncated);
    }
    let mut data = Vec::with_capacity(stat.stx_size as usize);
    let mut file = std::fs::File::from(file).take(most + 1);
    match file.read_to_end(&mut data) {
        Ok(_) if data.len() as u64 > most => Err(Reason::Truncated),
        Ok(_) => Ok(Some((data, stamp(&stat)))),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Err(Reason::Blocked),
        Err(_) => Err(Reason::Unsupported),
    }
}

/// A file of a runtime belongs to root or to the user who runs it. The reader's own files are as
/// trustworthy as the reader.
fn may_own(uid: u32, owner: Owner) -> bool {
    let is_users = matches!(owner, Owner::User(user) if uid == user);
    uid == 0 || is_users || uid == rustix::process::geteuid().as_raw()
}

/// The stamp of a place as it is now. `None`: it is not there, or cannot be looked at.
pub fn look(place: &Place, owner: Owner) -> Option<Stamp> {
    let stat = match owner {
        Owner::Root => {
            let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_DONT_SYNC;
            let path = place.base.join(&place.below);
            rustix::fs::statx(CWD, path, flags, StatxFlags::BASIC_STATS).ok()?
        }
        Owner::User(_) => stat_of(open(place, owner, OFlags::PATH).ok()?.as_fd()).ok()?,
    };
    Some(stamp(&stat))
}

/// The names in a directory of root's, with its stamp. Names after the first `most` are left out.
pub fn list(place: &Place, most: usize) -> Found<(Vec<Vec<u8>>, Stamp)> {
    let directory = match open(place, Owner::Root, OFlags::RDONLY | OFlags::DIRECTORY) {
        Ok(directory) => directory,
        Err(e) => return none_or(e),
    };
    let stat = stat_of(directory.as_fd()).map_err(|_| Reason::Unsupported)?;
    let entries = Dir::new(directory).map_err(|_| Reason::Unsupported)?;
    let mut names = Vec::new();
    for entry in entries.take(most) {
        let Ok(entry) = entry else { break };
        names.push(entry.file_name().to_bytes().to_vec());
    }
    Ok(Some((names, stamp(&stat))))
}

/// The file systems that answer at once. Other file systems belong to a server or a program, which
/// may never answer.
const LOCAL: [&[u8]; 16] = [
    b"bcachefs",
    b"btrfs",
    b"ecryptfs",
    b"erofs",
    b"ext2",
    b"ext3",
    b"ext4",
    b"f2fs",
    b"jfs",
    b"overlay",
    b"ramfs",
    b"rootfs",
    b"squashfs",
    b"tmpfs",
    b"xfs",
    b"zfs",
];

/// Is this directory in a file system that answers at once? `mounts` is `/proc/self/mountinfo`.
fn is_local(mounts: &[u8], directory: &Path) -> bool {
    let mut best: Option<(usize, bool)> = None;
    for line in mounts.split(|b| *b == b'\n') {
        let mut words = line.split(|b| *b == b' ');
        let Some(point) = words.nth(4) else { continue };
        let point = unescape(point);
        let kind = words.skip_while(|w| *w != b"-").nth(1).unwrap_or_default();
        if directory.starts_with(Path::new(OsStr::from_bytes(&point))) {
            // If there are several mounts at this place, the last one is on top.
            if best.is_none_or(|(len, _)| point.len() >= len) {
                best = Some((point.len(), LOCAL.contains(&kind)));
            }
        }
    }
    best.is_some_and(|(_, is_local)| is_local)
}

/// An absolute path of the machine whose files are below `root`.
pub fn below(root: &Path, path: &[u8]) -> PathBuf {
    let begin = path.iter().position(|b| *b != b'/').unwrap_or(path.len());
    root.join(OsStr::from_bytes(&path[begin..]))
}

/// The home directory of a user, from the passwd file below `root`.
pub fn home(root: &Path, uid: u32) -> Found<PathBuf> {
    let passwd = Place { base: root.to_owned(), below: "etc/passwd".into() };
    let Some((text, _)) = read(&passwd, Owner::Root, 8 << 20)? else { return Ok(None) };
    let digits = uid.to_string();
    let line = text.split(|b| *b == b'\n').find_map(|line| {
        let fields: Vec<&[u8]> = line.split(|b| *b == b':').collect();
        (fields.len() >= 6 && fields[2] == digits.as_bytes()).then(|| fields[5])
    });
    // A user whom only a name service of the network knows. It may take long to answer.
    let Some(home) = line.filter(|home| home.starts_with(b"/")) else {
        return Err(Reason::Unsupported);
    };
    let home = below(root, home);
    Ok(Some(home))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_local_file_systems_are_waited_for() {
        let mounts = b"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
            30 22 0:40 / /home rw,relatime shared:1 - autofs systemd-1 rw\n\
            31 22 0:41 / /srv/a\\040b rw - xfs /dev/b rw\n\
            32 22 0:42 / /srv/net rw - nfs4 host:/x rw\n\
            33 32 0:43 / /srv/net rw - tmpfs tmpfs rw\n";
        for (directory, want) in [
            ("/root", true),
            ("/home/alice", false),
            ("/homestead/alice", true),
            ("/srv/a b/alice", true),
            ("/srv/net/alice", true),
        ] {
            assert_eq!(is_local(mounts, Path::new(directory)), want, "{directory}");
        }
        assert!(!is_local(b"", Path::new("/root")));
    }

    /// Otherwise what was read once would be read again at each look.
    #[test]
    fn a_file_that_did_not_change_has_the_stamp_of_when_it_was_read() {
        let dir = tempfile::tempdir().expect("a directory");
        let base = dir.path().canonicalize().expect("it is there");
        std::fs::write(base.join("file"), "text").expect("it can be written");
        let place = Place { base, below: "file".into() };
        let user = Owner::User(rustix::process::geteuid().as_raw());
        for owner in [Owner::Root, user] {
            let (_, stamp) =
                read(&place, owner, 100).expect("it can be read").expect("it is there");
            assert_eq!(look(&place, owner), Some(stamp), "{owner:?}");
        }
    }
}
