//! Completes the values of stat(2) that the programs cannot find out. On an overlay of several file
//! systems, the device of a file is that of its layer. On btrfs, it is the device of the subvolume,
//! whose place in memory is not known if btrfs is a module. An overlay also counts the links of a
//! directory in its own way, and so does /proc, which adds processes or threads. The size of
//! /proc/PID/fd is the number of open files since Linux 6.2. A mapped file is found by one of its
//! mappings in the same answer.
//!
//! The programs leave this unknown, in a list with this one entry, and write the value of the
//! inode. Here stat(2) is called for it, on the link in /proc. If the answer is the device of the
//! file system, it holds for all files of that file system, and no further call is made: an overlay
//! on one file system costs one call, and one for each directory in use. Files that cannot be
//! looked up stay unknown.
//!
//! No server is asked. A file that was closed since, or whose descriptor now leads to another file,
//! stays unknown.

use std::cell::{Cell, OnceCell};
use std::collections::{HashMap, HashSet};
use std::mem::offset_of;

use rustix::fs::{AtFlags, CWD, StatxFlags};
use taskdiag_wire::device::device;
use taskdiag_wire::layout::bit;
use taskdiag_wire::{ArrayHdr, Fd, FileStat, FileUse, Group, Plain, Vma};

use super::attrs::each_attr;
use crate::engine::numbering;

const LIST: usize = size_of::<ArrayHdr>();

/// The values of stat(2) for a file.
#[derive(Clone, Copy)]
struct FileIds {
    dev: u32,
    inode: u64,
    nlink: u32,
    size_bytes: u64,
}

/// The files of an answer that still have to be looked up, and the facts known about file systems.
struct Devices<'s> {
    stat: &'s mut dyn FnMut(&str) -> Option<FileIds>,
    /// Finds the carrier of a process whose first thread has ended: a living thread, which still
    /// has its files.
    carrier: &'s mut dyn FnMut(u32) -> Option<u32>,
    /// The carriers of the processes that were asked for.
    carriers: HashMap<u32, Option<u32>>,
    /// The file systems whose files have the device of the file system.
    plain: HashSet<u32>,
    /// The links and sizes of directories, by device and inode.
    directories: HashMap<(u32, u64), (u32, u64)>,
    /// The links in /proc to mapped files that have to be looked up, by device and inode of the
    /// mapping.
    mapped: HashMap<(u32, u64), String>,
}

/// Fills in the devices that the BPF program left open in this stream. Returns the number of system
/// calls.
pub(super) fn complete(stream: &mut [u8]) -> u64 {
    let (calls, own) = (Cell::new(0), OnceCell::new());
    // The numbers in another /proc belong to other processes.
    let is_own = || *own.get_or_init(numbering::proc_is_own);
    let mut stat = |path: &str| {
        if !is_own() {
            return None;
        }
        calls.set(calls.get() + 1);
        let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
        let wanted = StatxFlags::INO | StatxFlags::NLINK | StatxFlags::SIZE;
        let s = rustix::fs::statx(CWD, path, flags, wanted).ok()?;
        let dev = device(s.stx_dev_major, s.stx_dev_minor);
        Some(FileIds { dev, inode: s.stx_ino, nlink: s.stx_nlink, size_bytes: s.stx_size })
    };
    let mut carrier = |pid| is_own().then(|| living_thread(pid, &calls)).flatten();
    Devices::new(&mut stat, &mut carrier).stream(stream);
    calls.get()
}

/// How many threads of a process are looked at to find a living one.
const THREADS: usize = 64;

/// A thread that still has a working directory, if the first thread of the process has ended and so
/// has none. Only the beginning of the list of threads is looked at.
fn living_thread(pid: u32, calls: &Cell<u64>) -> Option<u32> {
    let has_directory = |task: &str| {
        calls.set(calls.get() + 1);
        std::fs::read_link(format!("{task}/cwd")).is_ok()
    };
    let process = format!("/proc/{pid}");
    if has_directory(&process) {
        return None;
    }
    calls.set(calls.get() + 3); // open, getdents, close
    let threads = std::fs::read_dir(format!("{process}/task")).ok()?.flatten().take(THREADS);
    let mut ids = threads.filter_map(|t| t.file_name().to_str()?.parse::<u32>().ok());
    ids.find(|tid| has_directory(&format!("{process}/task/{tid}")))
}

/// The number at a place of an entry, or 0 if it is shorter.
fn number(entry: &[u8], at: usize) -> u32 {
    entry.get(at..at + 4).map_or(0, |b| u32::from_ne_bytes(b.try_into().expect("4")))
}

fn long_number(entry: &[u8], at: usize) -> u64 {
    u64::from(number(entry, at)) | u64::from(number(entry, at + 4)) << 32
}

impl<'s> Devices<'s> {
    fn new(
        stat: &'s mut dyn FnMut(&str) -> Option<FileIds>,
        carrier: &'s mut dyn FnMut(u32) -> Option<u32>,
    ) -> Devices<'s> {
        let (plain, directories, mapped) = (HashSet::new(), HashMap::new(), HashMap::new());
        Devices { stat, carrier, carriers: HashMap::new(), plain, directories, mapped }
    }

    fn stream(&mut self, stream: &mut [u8]) {
        self.find_mappings(stream);
        each_attr(stream, |task, kind, list| match kind {
            k if k == Group::Fd as u16 => self.list(task.pid, list, FD),
            k if k == Group::FileStat as u16 => self.list(task.pid, list, FILE_STAT),
            _ => {}
        });
    }

    /// Finds a mapping of each mapped file that has to be looked up. This takes a second walk over
    /// the answer, and a third one if there are such files.
    fn find_mappings(&mut self, stream: &mut [u8]) {
        let mut wanted = HashSet::new();
        each_attr(stream, |_, kind, list| {
            let Some((hdr, entry)) = ArrayHdr::read_from_prefix(list) else { return };
            let is_mapped = number(entry, FILE_STAT.which) == FileUse::Mapped as u32;
            if kind == Group::FileStat as u16 && hdr.valid & STAT_DEV.bit == 0 && is_mapped {
                wanted
                    .insert((number(entry, FILE_STAT.dev.at), long_number(entry, FILE_STAT.inode)));
            }
        });
        if wanted.is_empty() {
            return;
        }
        each_attr(stream, |task, kind, list| {
            let Some((hdr, entries)) = ArrayHdr::read_from_prefix(list) else { return };
            if kind != Group::Vma as u16 || (hdr.size as usize) < size_of::<Vma>() {
                return;
            }
            for vma in entries.chunks_exact(hdr.size as usize).take(hdr.count as usize) {
                let dev = number(vma, offset_of!(Vma, dev));
                let key = (dev, long_number(vma, offset_of!(Vma, inode)));
                if wanted.remove(&key) {
                    let [from, to] = [offset_of!(Vma, start), offset_of!(Vma, end)]
                        .map(|at| long_number(vma, at));
                    self.mapped
                        .insert(key, format!("/proc/{}/map_files/{from:x}-{to:x}", task.pid));
                }
            }
        });
    }

    fn list(&mut self, pid: u32, list: &mut [u8], of: Members) {
        let Some((mut hdr, entry)) = ArrayHdr::read_from_prefix(list) else { return };
        let devices = of.dev.bit | of.stat_dev.map_or(0, |m| m.bit);
        let lacks = (devices | of.nlink.bit) & !hdr.valid;
        if lacks == 0 || hdr.count != 1 || entry.len() < hdr.size as usize {
            return;
        }
        let (which, dev) = (number(entry, of.which), number(entry, of.dev.at));
        let inode = long_number(entry, of.inode);
        let mut ask = || {
            let mapping = self.mapped.get(&(dev, inode)).filter(|_| of.is_mapped(which));
            if let Some(path) = mapping {
                return (self.stat)(path).filter(|s| s.inode == inode);
            }
            let file = (of.path)(which)?;
            let own = (self.stat)(&format!("/proc/{pid}/{file}"));
            let found = own.or_else(|| {
                let carrier = *self.carriers.entry(pid).or_insert_with(|| (self.carrier)(pid));
                (self.stat)(&format!("/proc/{pid}/task/{}/{file}", carrier?))
            });
            found.filter(|s| s.inode == inode)
        };
        let (members, found) = if lacks & devices != 0 {
            let is_plain = self.plain.contains(&dev);
            let found = if is_plain { Some(dev) } else { ask().map(|s| s.dev) };
            if found == Some(dev) {
                self.plain.insert(dev);
            }
            ([Some(of.dev), of.stat_dev], found)
        } else {
            let known = self.directories.get(&(dev, inode)).copied();
            let asked = || ask().filter(|s| s.dev == dev).map(|s| (s.nlink, s.size_bytes));
            let found = known.or_else(asked);
            if let Some(both) = found {
                self.directories.insert((dev, inode), both);
            }
            // Unknown members are zero.
            let size_bytes = found.map_or(0, |(_, size_bytes)| size_bytes);
            let at = LIST + of.size.at;
            list[at..at + 8].copy_from_slice(&size_bytes.to_ne_bytes());
            if found.is_some() {
                hdr.valid |= of.size.bit;
            }
            ([Some(of.nlink), None], found.map(|(nlink, _)| nlink))
        };
        // For a mapped file, `dev` is known: it is not the device from stat(2).
        for member in members.into_iter().flatten().filter(|m| lacks & m.bit != 0) {
            // Unknown members are zero.
            let at = LIST + member.at;
            list[at..at + 4].copy_from_slice(&found.unwrap_or(0).to_ne_bytes());
            if found.is_some() {
                hdr.valid |= member.bit;
            }
        }
        list[..LIST].copy_from_slice(hdr.as_bytes());
    }
}

/// The offsets of the members that this module needs in an entry.
#[derive(Clone, Copy)]
struct Members {
    which: usize,
    dev: Member,
    stat_dev: Option<Member>,
    nlink: Member,
    size: Member,
    inode: usize,
    path: fn(u32) -> Option<String>,
}

impl Members {
    /// Whether the entry is that of a mapped file, by the value of `which`.
    fn is_mapped(&self, which: u32) -> bool {
        self.stat_dev.is_some() && which == FileUse::Mapped as u32
    }
}

/// A member: its bit of `valid`, and its place.
#[derive(Clone, Copy)]
struct Member {
    bit: u32,
    at: usize,
}

const STAT_DEV: Member =
    Member { bit: bit(FileStat::MEMBERS, "stat_dev"), at: offset_of!(FileStat, stat_dev) };
const FD: Members = Members {
    which: offset_of!(Fd, fd),
    dev: Member { bit: bit(Fd::MEMBERS, "dev"), at: offset_of!(Fd, dev) },
    stat_dev: None,
    nlink: Member { bit: bit(Fd::MEMBERS, "nlink"), at: offset_of!(Fd, nlink) },
    size: Member { bit: bit(Fd::MEMBERS, "size_bytes"), at: offset_of!(Fd, size_bytes) },
    inode: offset_of!(Fd, inode),
    path: |fd| Some(format!("fd/{fd}")),
};
const FILE_STAT: Members = Members {
    which: offset_of!(FileStat, r#as),
    dev: Member { bit: bit(FileStat::MEMBERS, "dev"), at: offset_of!(FileStat, dev) },
    stat_dev: Some(STAT_DEV),
    nlink: Member { bit: bit(FileStat::MEMBERS, "nlink"), at: offset_of!(FileStat, nlink) },
    size: Member {
        bit: bit(FileStat::MEMBERS, "size_bytes"),
        at: offset_of!(FileStat, size_bytes),
    },
    inode: offset_of!(FileStat, inode),
    path: |r#as| {
        let name = match r#as {
            n if n == FileUse::Exe as u32 => "exe",
            n if n == FileUse::Cwd as u32 => "cwd",
            n if n == FileUse::Root as u32 => "root",
            _ => return None,
        };
        Some(name.to_owned())
    },
};

#[cfg(test)]
mod tests {
    use super::*;
    use taskdiag_wire::{StreamWriter, build};

    /// A stream with a descriptor for each device, of which only device 1 is known, and the results
    /// of stat(2) for the others.
    fn completed(said: &[(u32, Option<u32>)]) -> (Vec<Option<u32>>, usize) {
        let mut w = StreamWriter::new();
        w.info(&StreamWriter::blank_info());
        w.begin_task(7, 7);
        w.put_list(Fd::ALL_VALID, &[build!(Fd { fd: 9, dev: 1, inode: 5, ..Fd::default() })]);
        for (fd, (dev, _)) in (0..).zip(said) {
            let fd = build!(Fd { fd, dev: *dev, inode: 5, ..Fd::default() });
            w.put_list(Fd::ALL_VALID & !FD.dev.bit, &[fd]);
        }
        w.end_task();
        let mut stream = w.finish(taskdiag_wire::Done::default());
        let mut asked = 0;
        let mut stat = |path: &str| {
            asked += 1;
            let fd: usize = path.rsplit('/').next()?.parse().ok()?;
            said[fd].1.map(|dev| FileIds { dev, inode: 5, nlink: 2, size_bytes: 6 })
        };
        Devices::new(&mut stat, &mut |_| None).stream(stream.as_mut_bytes());
        let stream = taskdiag_wire::Stream::parse(stream).expect("it is still one");
        let task = stream.get(0).expect("a task");
        let devices = task.list::<Fd>().expect("a list").map(|f| f.dev()).collect();
        (devices, asked)
    }

    #[test]
    fn a_file_system_is_asked_once_if_its_files_have_its_device() {
        let (devices, asked) = completed(&[(3, Some(3)), (3, Some(8)), (3, None)]);
        assert_eq!((devices, asked), (vec![Some(1), Some(3), Some(3), Some(3)], 1));
    }

    #[test]
    fn links_of_a_directory_are_requested_once() {
        let mut w = StreamWriter::new();
        w.info(&StreamWriter::blank_info());
        for pid in [7, 8] {
            w.begin_task(pid, pid);
            let cwd =
                build!(FileStat { r#as: 1, dev: 3, inode: 5, nlink: 1, ..FileStat::default() });
            let lacks = FILE_STAT.nlink.bit | FILE_STAT.size.bit;
            w.put_list(FileStat::ALL_VALID & !lacks, &[cwd]);
            w.end_task();
        }
        let mut stream = w.finish(taskdiag_wire::Done::default());
        let mut asked = Vec::new();
        let mut stat = |path: &str| {
            asked.push(path.to_owned());
            Some(FileIds { dev: 3, inode: 5, nlink: 4, size_bytes: 6 })
        };
        Devices::new(&mut stat, &mut |_| None).stream(stream.as_mut_bytes());
        let stream = taskdiag_wire::Stream::parse(stream).expect("it is still one");
        let values = |task: taskdiag_wire::TaskView<'_>| {
            let entry = task.list::<FileStat>()?.next()?;
            Some((entry.nlink()?, entry.size_bytes()?))
        };
        let all: Vec<_> = stream.tasks().map(values).collect();
        assert_eq!((all, asked), (vec![Some((4, 6)); 2], vec!["/proc/7/cwd".to_owned()]));
    }

    #[test]
    fn a_file_of_a_dead_first_thread_is_asked_for_through_a_living_one() {
        let mut w = StreamWriter::new();
        w.info(&StreamWriter::blank_info());
        w.begin_task(7, 7);
        let lacks = FILE_STAT.nlink.bit | FILE_STAT.size.bit;
        for r#as in [FileUse::Cwd, FileUse::Root] {
            let file =
                build!(FileStat { r#as: r#as as u32, dev: 3, inode: 5, ..FileStat::default() });
            w.put_list(FileStat::ALL_VALID & !lacks, &[file]);
        }
        w.end_task();
        let mut stream = w.finish(taskdiag_wire::Done::default());
        let mut stat = |path: &str| {
            let is_living = path.starts_with("/proc/7/task/9/");
            is_living.then_some(FileIds { dev: 3, inode: 5, nlink: 4, size_bytes: 6 })
        };
        let mut asked = 0;
        let mut carrier = |pid| {
            asked += 1;
            (pid == 7).then_some(9)
        };
        Devices::new(&mut stat, &mut carrier).stream(stream.as_mut_bytes());
        let stream = taskdiag_wire::Stream::parse(stream).expect("it is still one");
        let task = stream.get(0).expect("a task");
        let links: Vec<_> = task.list::<FileStat>().expect("lists").map(|f| f.nlink()).collect();
        assert_eq!((links, asked), (vec![Some(4); 2], 1));
    }

    #[test]
    fn a_mapped_file_is_asked_for_through_one_of_its_mappings() {
        let mut w = StreamWriter::new();
        w.info(&StreamWriter::blank_info());
        w.begin_task(7, 7);
        let (start, end) = (0x1000, 0x3000);
        let mapped = FileUse::Mapped as u32;
        let file = build!(FileStat { r#as: mapped, dev: 3, inode: 5, ..FileStat::default() });
        w.put_list(FileStat::ALL_VALID & !STAT_DEV.bit, &[file]);
        let other = build!(Vma { start: 1, end: 2, dev: 3, inode: 6, ..Vma::default() });
        let vma = build!(Vma { start, end, dev: 3, inode: 5, ..Vma::default() });
        w.put_list(Vma::ALL_VALID, &[other, vma]);
        w.end_task();
        let mut stream = w.finish(taskdiag_wire::Done::default());
        let mut asked = Vec::new();
        let mut stat = |path: &str| {
            asked.push(path.to_owned());
            Some(FileIds { dev: 8, inode: 5, nlink: 1, size_bytes: 6 })
        };
        Devices::new(&mut stat, &mut |_| None).stream(stream.as_mut_bytes());
        let stream = taskdiag_wire::Stream::parse(stream).expect("it is still one");
        let task = stream.get(0).expect("a task");
        let entry = task.list::<FileStat>().expect("a list").next().expect("an entry");
        assert_eq!((entry.dev(), entry.stat_dev()), (Some(3), Some(8)));
        assert_eq!(asked, ["/proc/7/map_files/1000-3000"]);
    }

    #[test]
    fn each_file_is_asked_for_if_devices_differ() {
        let (devices, asked) = completed(&[(3, Some(8)), (3, Some(9)), (3, None)]);
        assert_eq!((devices, asked), (vec![Some(1), Some(8), Some(9), None], 3));
    }
}
