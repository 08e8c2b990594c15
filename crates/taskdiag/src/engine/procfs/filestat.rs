//! Reads FILE_STAT. It costs one statx() for each of executable, working directory and root of a
//! task, and one for each mapped file. A mapped file is looked at once, however many tasks map it.
//! No server is asked.

use std::ffi::CString;

use rustix::fs::{CWD, Statx, StatxFlags};
use rustix::io::Errno;
use taskdiag_wire::device::device;
use taskdiag_wire::{FileStat, FileUse, Groups, Reason, Vma, build};

use super::lists::{Entries, MappedFiles};
use super::parse::{self, MapLine};
use super::path::TaskDir;
use super::stop::Stop;
use super::worker::Worker;

const USES: [(FileUse, &str); 3] =
    [(FileUse::Exe, "exe"), (FileUse::Cwd, "cwd"), (FileUse::Root, "root")];
/// Kernels before 5.8 do not return the mount.
const WITHOUT_MOUNT: u32 = FileStat::ALL_VALID & !parse::bit(FileStat::MEMBERS, "mnt_id");

impl Worker<'_> {
    pub(super) fn file_stat(&mut self, mut at: TaskDir<'_>) -> Result<(), Stop> {
        let mut entries = Entries::default();
        let mut failed: Option<Errno> = None;
        for (r#as, file) in USES {
            match self.risky(at, Groups::FILE_STAT, |r| r.statx(at.dir, at.path.file(file)))? {
                Ok(s) => entries.add(file_stat(r#as, &s), tells_mount(&s)),
                // If one of them is denied, all are.
                Err(Errno::ACCESS | Errno::PERM) if failed.is_none() => {
                    return Err(Stop::Gap(Reason::Denied));
                }
                Err(e) => failed = Some(e),
            }
        }
        let none = entries.is_empty();
        self.put_file_stats(&entries);
        match failed {
            Some(e) if none => Err(match self.meaning(at, e) {
                // The directory of the task is there, but the link has no target.
                Stop::Gap(Reason::Unsupported) if e == Errno::NOENT => Stop::Gap(Reason::Absent),
                stop => stop,
            }),
            _ => Ok(()),
        }
    }

    fn put_file_stats(&mut self, entries: &Entries) {
        for (list, valid) in entries.lists.iter().zip([FileStat::ALL_VALID, WITHOUT_MOUNT]) {
            if !list.is_empty() {
                self.out.put_list(valid, list);
            }
        }
    }

    /// Notes a mapping, if its file must be looked up. `name` belongs to a file that is not
    /// deleted.
    pub(super) fn note_mapped(&mut self, line: &MapLine<'_>, name: Option<&[u8]>) {
        let key = (line.vma.dev, line.vma.inode);
        let new = |m: &mut MappedFiles| !m.seen.contains(&key) && m.noted.insert(key);
        // The first SysV segment has inode 0, but it has a device.
        if key == (0, 0) || !self.run.wants(Groups::FILE_STAT) || !new(&mut self.mapped) {
            return;
        }
        let name = name.filter(|n| n.starts_with(b"/"));
        self.mapped.todo.push((line.vma, name.map_or_else(Vec::new, <[u8]>::to_vec)));
    }

    /// Looks at the files that were noted. A file that cannot be looked at gets no entry.
    pub(super) fn look_at_mapped(&mut self, at: TaskDir<'_>) -> Result<(), Stop> {
        for (vma, name) in std::mem::take(&mut self.mapped.todo) {
            let Some((s, by_name)) = self.mapped_stat(at, &vma, &name)? else { continue };
            let entry = build!(FileStat { dev: vma.dev, inode: vma.inode, ..s });
            self.mapped.entries.add(entry, !by_name);
            self.mapped.seen.insert((vma.dev, vma.inode));
        }
        Ok(())
    }

    /// Writes the known data of the files that were noted.
    pub(super) fn mapped_stats(&mut self, at: TaskDir<'_>) -> Result<(), Stop> {
        let looked = self.look_at_mapped(at);
        self.mapped.noted.clear();
        let entries = std::mem::take(&mut self.mapped.entries);
        looked?;
        self.put_file_stats(&entries);
        Ok(())
    }

    /// Looks at one file. The flag in the result means that the file was found by its name, so that
    /// the mount may belong to another namespace.
    fn mapped_stat(
        &mut self,
        at: TaskDir<'_>,
        vma: &Vma,
        name: &[u8],
    ) -> Result<Option<(FileStat, bool)>, Stop> {
        if !self.mapped.by_name_only {
            let path = at.path.map_file(self.run.threads, at.pid, vma.start..vma.end);
            match self.risky(at, Groups::FILE_STAT, |r| r.statx(at.dir, &path))? {
                Ok(s) => return Ok(Some((file_stat(FileUse::Mapped, &s), !tells_mount(&s)))),
                Err(Errno::ACCESS | Errno::PERM) => self.mapped.by_name_only = true,
                Err(_) => {}
            }
        }
        let Some(path) = CString::new(name).ok().filter(|p| !p.is_empty()) else { return Ok(None) };
        let got = self.risky(at, Groups::FILE_STAT, |r| r.statx(CWD, &path))?;
        let found = got.ok().map(|s| file_stat(FileUse::Mapped, &s));
        // By now, or seen from our root, the name may lead to another file.
        Ok(found.filter(|f| (f.dev, f.inode) == (vma.dev, vma.inode)).map(|f| (f, true)))
    }
}

fn tells_mount(s: &Statx) -> bool {
    s.stx_mask & StatxFlags::MNT_ID.bits() != 0
}

fn file_stat(r#as: FileUse, s: &Statx) -> FileStat {
    build!(FileStat {
        r#as: r#as as u32,
        dev: device(s.stx_dev_major, s.stx_dev_minor),
        inode: s.stx_ino,
        size_bytes: s.stx_size,
        mode: s.stx_mode.into(),
        nlink: s.stx_nlink,
        // The mount id has 31 bits, because STATX_MNT_ID_UNIQUE is not asked for.
        mnt_id: s.stx_mnt_id as u32,
        rdev: device(s.stx_rdev_major, s.stx_rdev_minor),
        stat_dev: device(s.stx_dev_major, s.stx_dev_minor),
    })
}
