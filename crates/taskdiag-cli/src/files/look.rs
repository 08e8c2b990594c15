//! Looks at a path that the user gives, in a child process that can be abandoned (`aside.rs`). The
//! child sends its findings piece by piece, so that findings from before a file system stopped
//! answering are used.
//!
//! No file server is asked if the kernel knows enough: for example, the device mounted at a path is
//! known even if the mount does not answer.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, FileType, StatxAttributes, StatxFlags};
use rustix::io::Errno;

use crate::aside::Child;

/// Which files count as open at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The file itself.
    File,
    /// Files in the directory match, too.
    Directory,
    /// The directory, and files at any depth below it.
    Below,
}

/// At most this many entries of a directory are identified by inode, because listing them takes a
/// second.
pub const ENTRIES_MAX: usize = 1_000_000;
/// Entries are sent when there are this many, or after this time.
const BATCH: usize = 4096;
const BATCH_TIME: Duration = Duration::from_millis(200);

/// Findings about a path.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The absolute form of the path without symbolic links; empty: not known.
    pub path: PathBuf,
    /// Device and inode.
    pub file: Option<(u32, u64)>,
    /// The device of the file system that is mounted there, or of the block device that it is.
    pub mounted: Option<u32>,
    /// The mount that it is on.
    pub mnt_id: Option<u32>,
    /// Is it the root of a mount?
    pub is_mount_root: bool,
    /// Is it a block device?
    pub is_block: bool,
    /// Inodes of its entries.
    pub entries: HashSet<u64>,
    /// Are these all? `None`: the child did not get to the end.
    pub is_whole: Option<bool>,
}

/// Kinds of pieces.
const FILE: u8 = b'F';
const MOUNTED: u8 = b'M';
const PATH: u8 = b'P';
const MOUNT: u8 = b'I';
const MOUNT_ROOT: u8 = b'R';
const BLOCK: u8 = b'B';
const ENTRIES: u8 = b'E';
const END: u8 = b'A';

fn say(to: &mut dyn Write, kind: u8, bytes: &[u8]) -> io::Result<()> {
    let mut piece = Vec::with_capacity(5 + bytes.len());
    piece.push(kind);
    piece.extend_from_slice(&(bytes.len() as u32).to_ne_bytes());
    piece.extend_from_slice(bytes);
    to.write_all(&piece)
}

impl Seen {
    /// Parses the child's output, which may end anywhere.
    pub fn read(mut said: &[u8]) -> Seen {
        let mut seen = Seen::default();
        let u32_of = |b: &[u8]| b.try_into().ok().map(u32::from_ne_bytes);
        let u64_of = |b: &[u8]| b.try_into().ok().map(u64::from_ne_bytes);
        while let Some((head, rest)) = said.split_at_checked(5) {
            let len = u32_of(&head[1..]).unwrap_or(0) as usize;
            let Some((bytes, rest)) = rest.split_at_checked(len) else { break };
            match head[0] {
                FILE if len == 12 => seen.file = u32_of(&bytes[..4]).zip(u64_of(&bytes[4..])),
                MOUNTED => seen.mounted = u32_of(bytes),
                PATH => seen.path = OsString::from_vec(bytes.to_vec()).into(),
                MOUNT => seen.mnt_id = u32_of(bytes),
                MOUNT_ROOT => seen.is_mount_root = true,
                BLOCK => seen.is_block = true,
                ENTRIES => seen.entries.extend(bytes.chunks_exact(8).filter_map(u64_of)),
                END => seen.is_whole = Some(bytes == [1]),
                _ => break,
            }
            said = rest;
        }
        seen
    }
}

/// The kernel's 32-bit form of a device number, which the stream has.
fn new_encode_dev(dev: u64) -> u32 {
    let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
    (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)
}

/// Properties of a file that never change.
struct Identity {
    dev: u64,
    ino: u64,
    rdev: u64,
    kind: FileType,
    /// This fails on kernels before 5.8.
    mnt_id: Option<u32>,
    is_mount_root: bool,
}

impl Identity {
    /// Without asking the file server for properties that the kernel knows.
    fn of(path: &Path, follow: bool) -> io::Result<Identity> {
        let mut flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
        flags.set(AtFlags::SYMLINK_NOFOLLOW, !follow);
        match rustix::fs::statx(
            CWD,
            path,
            flags,
            StatxFlags::TYPE | StatxFlags::INO | StatxFlags::MNT_ID,
        ) {
            Ok(s) => Ok(Identity {
                dev: rustix::fs::makedev(s.stx_dev_major, s.stx_dev_minor),
                ino: s.stx_ino,
                rdev: rustix::fs::makedev(s.stx_rdev_major, s.stx_rdev_minor),
                kind: FileType::from_raw_mode(s.stx_mode.into()),
                mnt_id: (s.stx_mask & StatxFlags::MNT_ID.bits() != 0)
                    .then_some(s.stx_mnt_id as u32),
                is_mount_root: s.stx_attributes.contains(StatxAttributes::MOUNT_ROOT),
            }),
            // A seccomp filter that does not know statx().
            Err(Errno::NOSYS | Errno::PERM) => {
                let meta = if follow { path.metadata() } else { path.symlink_metadata() }?;
                Ok(Identity {
                    dev: meta.dev(),
                    ino: meta.ino(),
                    rdev: meta.rdev(),
                    kind: FileType::from_raw_mode(meta.mode()),
                    mnt_id: None,
                    is_mount_root: false,
                })
            }
            Err(e) => Err(e.into()),
        }
    }
}

/// Looks at a path, and sends the findings.
pub fn at(path: &Path, reach: Reach, to: &mut Child) -> io::Result<()> {
    let file = Identity::of(path, true).ok();
    if let Some(file) = &file {
        let dev = new_encode_dev(file.dev);
        say(to, FILE, &[&dev.to_ne_bytes()[..], &file.ino.to_ne_bytes()].concat())?;
        if let (Reach::File, Some(dev)) = (reach, mounted(path, file)) {
            say(to, MOUNTED, &new_encode_dev(dev).to_ne_bytes())?;
        }
    }
    // The kernel's paths of open files have no symbolic links. A file that is gone may still be
    // open.
    let whole = std::fs::canonicalize(path).or_else(|_| std::path::absolute(path));
    let whole = whole.unwrap_or_else(|_| path.to_path_buf());
    say(to, PATH, whole.as_os_str().as_bytes())?;
    if let Some(file) = &file {
        if let Some(id) = file.mnt_id {
            say(to, MOUNT, &id.to_ne_bytes())?;
        }
        if file.is_mount_root {
            say(to, MOUNT_ROOT, &[])?;
        }
        if file.kind == FileType::BlockDevice {
            say(to, BLOCK, &[])?;
        }
    }
    let mut is_whole = true;
    if let (Some(file), Reach::Directory | Reach::Below) = (&file, reach) {
        if file.kind == FileType::Directory {
            is_whole = list(&whole, file.dev, reach == Reach::Below, to)?;
        }
    }
    say(to, END, &[u8::from(is_whole)])
}

/// The file system that is mounted at this path, or on this device.
fn mounted(path: &Path, file: &Identity) -> Option<u64> {
    match file.kind {
        FileType::BlockDevice => Some(file.rdev),
        FileType::Directory => {
            let above = Identity::of(&path.join(".."), true).ok()?;
            (above.dev != file.dev || above.ino == file.ino).then_some(file.dev)
        }
        _ => None,
    }
}

/// Sends the inodes of the entries of a directory, or of everything below it. Returns whether these
/// are all.
fn list(dir: &Path, dev: u64, below: bool, to: &mut Child) -> io::Result<bool> {
    let (mut batch, mut last) = (Vec::with_capacity(BATCH * 8), Instant::now());
    let mut tell = |ino: Option<u64>| {
        to.is_busy();
        batch.extend(ino.map(u64::to_ne_bytes).into_iter().flatten());
        if batch.len() < BATCH * 8 && last.elapsed() < BATCH_TIME && ino.is_some() {
            return Ok(());
        }
        last = Instant::now();
        say(to, ENTRIES, &std::mem::take(&mut batch))
    };
    let all = entries(dir, dev, below, ENTRIES_MAX, &mut |ino| tell(Some(ino)))?;
    tell(None)?;
    Ok(all)
}

/// Calls `found` with the inodes of the entries of a directory, or of everything below it, on
/// device `dev`. Returns whether these are all.
fn entries(
    dir: &Path,
    dev: u64,
    below: bool,
    max: usize,
    found: &mut dyn FnMut(u64) -> io::Result<()>,
) -> io::Result<bool> {
    let (mut count, mut todo) = (0, vec![dir.to_path_buf()]);
    while let Some(dir) = todo.pop() {
        // A directory that may not be read, or is gone, counts as empty.
        let Ok(list) = std::fs::read_dir(&dir) else { continue };
        for entry in list.flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_symlink() {
                continue;
            }
            if kind.is_dir() {
                // A file system that is mounted on it has another device.
                let path = entry.path();
                if !Identity::of(&path, false).is_ok_and(|f| f.dev == dev) {
                    continue;
                }
                if below {
                    todo.push(path);
                }
            }
            if count == max {
                return Ok(false);
            }
            count += 1;
            found(entry.ino())?;
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_a_directory_are_found_by_inode() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let [file, sub, deep, link] = ["f", "s", "s/d", "l"].map(|n| dir.path().join(n));
        std::fs::create_dir(&sub).expect("made");
        for f in [&file, &deep] {
            std::fs::write(f, b"").expect("written");
        }
        // This link leads back, and must not be followed.
        std::os::unix::fs::symlink(dir.path(), &link).expect("linked");
        let meta = |p: &Path| std::fs::metadata(p).expect("it is there");
        let inodes = |of: &[&PathBuf]| of.iter().map(|p| meta(p).ino()).collect::<HashSet<_>>();
        let dev = meta(dir.path()).dev();
        let entries = |dev, below, max| {
            let mut found = HashSet::new();
            let mut take = |ino| {
                found.insert(ino);
                Ok(())
            };
            let all = super::entries(dir.path(), dev, below, max, &mut take).expect("taken");
            (found, all)
        };
        assert_eq!(entries(dev, false, 9), (inodes(&[&file, &sub]), true));
        assert_eq!(entries(dev, true, 9), (inodes(&[&file, &sub, &deep]), true));
        assert!(entries(dev, true, 3).1);
        let (few, all) = entries(dev, true, 2);
        assert_eq!((few.len(), all), (2, false));
        // As where another file system is mounted on each of them.
        assert_eq!(entries(dev + 1, true, 9), (inodes(&[&file]), true));
    }

    #[test]
    fn findings_that_are_cut_anywhere_are_used() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        std::fs::write(dir.path().join("f"), b"").expect("written");
        let (said, end) = crate::aside::ask(|to| at(dir.path(), Reach::Below, to));
        assert!(end.is_ok(), "{end:?}");
        let whole = Seen::read(&said);
        assert_eq!((whole.entries.len(), whole.is_whole), (1, Some(true)));
        assert_eq!(whole.path, dir.path().canonicalize().expect("it is there"));
        for cut in 0..said.len() {
            let seen = Seen::read(&said[..cut]);
            assert_eq!(seen.is_whole, None);
            assert!(seen.file.is_none() || seen.file == whole.file);
        }
    }
}
