//! Finds out which mounts are ours. A path of an open file names our file of this path only if it
//! leads through a mount of ours: a container has its own `/etc`, and a file system that was lazily
//! unmounted has no path any more.
//!
//! No file system is asked. Everything comes from /proc/PID/mountinfo.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{AtFlags, CWD, StatxFlags};
use taskdiag::files::{OpenFile, Owner, What};
use taskdiag::wire::PathKind;

/// A mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The device of the file system (`s_dev`). On btrfs and overlay it differs from the one in
    /// stat(2).
    pub dev: u32,
    /// The directory of the file system that is mounted.
    root: Vec<u8>,
    /// Where it is mounted.
    point: Vec<u8>,
    /// The source of the mount: a block device, or any word.
    source: Vec<u8>,
}

type Table = HashMap<u32, Mount>;

/// Our mounts, and the mounts of other processes that were read so far.
#[derive(Debug)]
pub struct Mounts {
    ours: Table,
    /// Mounts by process. They are read on demand, because there may be a mount namespace for each
    /// container, but only few have a matching file.
    others: Mutex<HashMap<u32, Arc<Table>>>,
}

impl Mounts {
    /// Our mounts now. There are no entries if they are not known, because /proc is not there, or
    /// belongs to a pid namespace that does not show us.
    pub fn ours() -> Mounts {
        let ours = parse(&fs::read("/proc/self/mountinfo").unwrap_or_default());
        Mounts { ours, others: Mutex::default() }
    }
    /// A mount of ours.
    pub fn get(&self, id: u32) -> Option<&Mount> {
        self.ours.get(&id)
    }
    /// A mount of a process, which may be in another mount namespace.
    pub fn of_process(&self, owner: &Owner<'_>, id: u32) -> Option<Mount> {
        if let Some(mount) = self.ours.get(&id) {
            return Some(mount.clone());
        }
        let (pid, dir) = (owner.row.view.tgid(), owner.proc_dir_of_process()?);
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        let read = || {
            let text = fs::read(format!("{dir}/mountinfo"));
            Arc::new(text.map_or_else(|_| Table::new(), |text| parse(&text)))
        };
        Arc::clone(others.entry(pid).or_insert_with(read)).get(&id).cloned()
    }
    /// The mount of a process, if we have the same directory of the same file system at the same
    /// place.
    pub fn shared(&self, owner: &Owner<'_>, id: u32) -> Option<Mount> {
        let mount = self.of_process(owner, id)?;
        let is_ours = self.ours.contains_key(&id)
            || self.ours.values().any(|own| mount.is_at_same_place(own));
        is_ours.then_some(mount)
    }
    /// The devices of the file systems that are mounted from this block device.
    pub fn devices_of(&self, block: &Path) -> HashSet<u32> {
        let mut names = siblings(block);
        names.insert(block.as_os_str().as_encoded_bytes().to_vec());
        self.ours.values().filter(|m| names.contains(&m.source)).map(|m| m.dev).collect()
    }
}

impl Mount {
    /// Whether both show the same directory of one file system at the same place.
    pub fn is_at_same_place(&self, other: &Mount) -> bool {
        (self.dev, &self.root, &self.point) == (other.dev, &other.root, &other.point)
    }
    /// Whether it is mounted at this path or below it.
    pub fn is_below(&self, path: &[u8]) -> bool {
        match self.point.strip_prefix(path) {
            Some(rest) => path == b"/" || rest.is_empty() || rest.starts_with(b"/"),
            None => false,
        }
    }
}

/// The other block devices of a btrfs with several.
fn siblings(block: &Path) -> HashSet<Vec<u8>> {
    let name = block.file_name().unwrap_or_default();
    let systems = fs::read_dir("/sys/fs/btrfs").into_iter().flatten().flatten();
    let lists = systems.map(|s| s.path().join("devices")).filter(|d| d.join(name).exists());
    let devices = lists.flat_map(|d| fs::read_dir(d).into_iter().flatten().flatten());
    devices.map(|d| [b"/dev/", d.file_name().as_encoded_bytes()].concat()).collect()
}

/// `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue`
fn parse(text: &[u8]) -> Table {
    text.split(|b| *b == b'\n').filter_map(line).collect()
}

fn line(line: &[u8]) -> Option<(u32, Mount)> {
    let number = |b: &[u8]| std::str::from_utf8(b).ok()?.parse::<u32>().ok();
    let mut words = line.split(|b| *b == b' ');
    let id = number(words.next()?)?;
    let mut dev = words.nth(1)?.split(|b| *b == b':');
    let (major, minor) = (number(dev.next()?)?, number(dev.next()?)?);
    let (root, point) = (unescape(words.next()?), unescape(words.next()?));
    words.find(|w| *w == b"-")?;
    let source = unescape(words.nth(1)?);
    Some((id, Mount { dev: taskdiag::wire::device::device(major, minor), root, point, source }))
}

/// mountinfo writes blank, tab, newline and backslash as a backslash and three octal digits.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, tail)) = rest.split_first() {
        rest = match rest {
            [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..] => {
                out.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                after
            }
            _ => {
                out.push(*first);
                tail
            }
        };
    }
    out
}

/// Device and inode of an open file from stat(2), for file systems whose files have different ones
/// in an answer. No file server is asked.
pub fn identity(file: &OpenFile<'_>) -> Option<(u32, u64)> {
    let (task, process) = (file.owner.proc_dir()?, file.owner.proc_dir_of_process()?);
    let path = match &file.what {
        What::Fd(fd) => format!("{task}/fd/{}", fd.raw.fd),
        What::Path(PathKind::Cwd, _) => format!("{task}/cwd"),
        What::Path(PathKind::Root, _) => format!("{task}/root"),
        What::Path(PathKind::Exe, _) => format!("{task}/exe"),
        What::Mapped(vma) => {
            format!("{process}/map_files/{:x}-{:x}", vma.raw.start, vma.raw.end)
        }
        _ => return None,
    };
    let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
    let s = rustix::fs::statx(CWD, path, flags, StatxFlags::INO).ok()?;
    Some((taskdiag::wire::device::device(s.stx_dev_major, s.stx_dev_minor), s.stx_ino))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_read_from_lines_of_the_kernel() {
        let text =
            b"36 35 98:300 /mnt1 /mnt\\0402 rw master:1 - ext3 /dev/root rw,errors=continue\n\
            37 35 0:39 / / rw - btrfs /dev/loop0 rw\n38 cut";
        let table = parse(text);
        assert_eq!(table.len(), 2);
        let m = &table[&36];
        assert_eq!((&m.root[..], &m.point[..]), (&b"/mnt1"[..], &b"/mnt 2"[..]));
        assert_eq!((m.dev, &m.source[..]), (98 << 8 | 0x2c | 0x100 << 12, &b"/dev/root"[..]));
        assert!(m.is_below(b"/") && m.is_below(b"/mnt 2") && !m.is_below(b"/mnt"));
        assert!(!m.is_at_same_place(&table[&37]));
    }
}
