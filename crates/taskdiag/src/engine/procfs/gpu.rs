//! Reads the group GPU: the use of graphics processors, from the open descriptors of DRM devices.
//! On a machine with such a device, each open descriptor costs one statx(), unless FD was read
//! before, and each descriptor of the device costs one more read of its fdinfo. NVIDIA's devices
//! have nothing there, so `nvidia` is asked about them. A driver may wait for a lock there. On a
//! machine without such a device, nothing is read.

use std::collections::HashSet;
use std::os::fd::{AsFd, BorrowedFd};

use taskdiag_wire::device::{device, major_minor};
use taskdiag_wire::{Fd, Gpu, Group, Groups, Reason, build};

use super::files::Digits;
use super::lists::{FileLists, List};
use super::nvidia;
use super::parse;
use super::path::TaskDir;
use super::read::Reader;
use super::stop::Stop;
use super::worker::Worker;
use crate::engine::room::LIST_LEAST;

/// The members that do not come from a driver.
const OF_DESCRIPTOR: u32 = parse::bit(Gpu::MEMBERS, "fd") | parse::bit(Gpu::MEMBERS, "dev");
/// `DRM_MAJOR` of the kernel.
const DRM_MAJOR: u32 = 226;
/// Where the kernel lists its DRM devices, next to a file `version`.
const DRM_CLASS: &str = "/sys/class/drm";

/// Is this the device of a graphics processor?
fn is_gpu(rdev: (u32, u32)) -> bool {
    rdev.0 == DRM_MAJOR || rdev.0 == nvidia::MAJOR && rdev.1 < nvidia::CONTROL
}

/// Whether there is a DRM device. `None`: it is not known.
fn class_has_devices() -> Option<bool> {
    let names = match std::fs::read_dir(DRM_CLASS) {
        Ok(names) => names,
        // Without the driver, sysfs has no such directory.
        Err(_) if std::path::Path::new("/sys/class/tty").exists() => return Some(false),
        Err(_) => return None,
    };
    Some(names.flatten().any(|n| n.file_name() != "version"))
}

/// Whether this machine has a DRM device, or one of NVIDIA. `is_own`: the root is our own /proc.
pub(super) fn is_there(reader: &mut Reader, root: BorrowedFd<'_>, is_own: bool) -> bool {
    if let (true, Some(has)) = (is_own, class_has_devices()) {
        return has || nvidia::is_there();
    }
    let has_major = |text: &[u8]| {
        let mut lines = text.split(|b| *b == b'\n').map(<[u8]>::trim_ascii);
        lines.any(|l| l == b"226 drm" || l.starts_with(b"195 nvidia"))
    };
    // If the file cannot be read, the descriptors must be looked at.
    reader.file(root, c"devices").map_or(true, has_major)
}

impl Worker<'_> {
    pub(super) fn gpu(&mut self, at: TaskDir<'_>) -> Result<(), Stop> {
        let mut list = List::default();
        let before = self.out.len();
        if self.run.has_gpu {
            let mut lists = std::mem::take(&mut self.files);
            let got = self.read_gpu(at, &mut lists, &mut list);
            self.files = lists;
            got?;
        }
        self.put_runs(&list, true);
        self.list_added(at, before, list.0.len() > LIST_LEAST);
        Ok(())
    }

    /// The descriptors of DRM devices, and their devices.
    fn read_gpu(
        &mut self,
        mut at: TaskDir<'_>,
        lists: &mut FileLists,
        list: &mut List<Gpu>,
    ) -> Result<(), Stop> {
        let is_gpu = |f: &&(u32, Fd)| is_gpu(major_minor(f.1.rdev));
        let devices: Vec<(u32, u32)> = match lists.of == Some((at.tgid, at.path.last_id())) {
            true => lists.files.0.iter().filter(is_gpu).map(|(_, f)| (f.fd, f.rdev)).collect(),
            false => self.gpus_among_all(at, lists)?,
        };
        let is_drm = |d: &(u32, u32)| major_minor(d.1).0 == DRM_MAJOR;
        let (devices, others): (Vec<_>, Vec<_>) = devices.into_iter().partition(is_drm);
        if !others.is_empty() {
            self.nvidia(at.tgid, others, list);
        }
        if devices.is_empty() {
            return Ok(());
        }
        let infos = match self.reader.open_dir(at.dir, at.path.file("fdinfo")) {
            Ok(dir) => dir,
            Err(e) => return Err(self.meaning(at, e)),
        };
        self.reader.syscalls += 1; // close
        let room = self.list_room(at);
        // A set, because a user may open a device a million times.
        let mut seen = HashSet::new();
        for (fd, dev) in devices {
            if list.0.len() >= LIST_LEAST && list.0.len() * size_of::<Gpu>() >= room {
                self.out.missing(Group::Gpu, Reason::Truncated);
                break;
            }
            let read = |r: &mut Reader| r.file(infos.as_fd(), Digits::new().of(fd)).map(parse::drm);
            let Ok(found) = self.risky(at, Groups::GPU, read)? else { continue };
            if found.client.is_some_and(|client| !seen.insert((dev, client))) {
                continue;
            }
            let entry = |(valid, g)| (valid | OF_DESCRIPTOR, build!(Gpu { fd, dev, ..g }));
            list.0.extend(found.entries.into_iter().map(entry));
        }
        Ok(())
    }

    /// The values of a process that has these devices of NVIDIA open.
    fn nvidia(&self, pid: u32, mut devices: Vec<(u32, u32)>, list: &mut List<Gpu>) {
        // A process opens each of them many times.
        devices.sort_unstable_by_key(|(_, dev)| *dev);
        devices.dedup_by_key(|(_, dev)| *dev);
        // The library has the numbers of our own pid namespace.
        let is_ours = self.run.own_pids;
        let known = is_ours.then(|| self.run.nvidia.get_or_init(nvidia::ask).as_ref()).flatten();
        let known = known.and_then(|all| all.get(&pid)).into_iter().flatten();
        let known: Vec<(u32, Gpu)> = known.copied().collect();
        let is_known = |dev: u32| known.iter().any(|(_, g)| g.dev == dev);
        let blank = devices.iter().filter(|(_, dev)| !is_known(*dev));
        list.0.extend(blank.map(|(fd, dev)| nvidia::unknown(*fd, *dev)));
        list.0.extend(known);
    }

    fn gpus_among_all(
        &mut self,
        mut at: TaskDir<'_>,
        lists: &mut FileLists,
    ) -> Result<Vec<(u32, u32)>, Stop> {
        lists.clear();
        let dir = match self.reader.open_dir(at.dir, at.path.file("fd")) {
            Ok(dir) => dir,
            Err(e) => return Err(self.meaning(at, e)),
        };
        self.reader.syscalls += 1; // close
        if let Err(e) = self.reader.numbers(dir.as_fd(), &mut lists.fds) {
            return Err(self.meaning(at, e));
        }
        if lists.fds.is_empty() {
            self.has_files(at)?;
        }
        let mut devices = Vec::new();
        for fd in std::mem::take(&mut lists.fds) {
            let stat = |r: &mut Reader| r.statx(dir.as_fd(), Digits::new().of(fd));
            match self.risky(at, Groups::GPU, stat)? {
                Ok(s) if is_gpu((s.stx_rdev_major, s.stx_rdev_minor)) => {
                    devices.push((fd, device(s.stx_rdev_major, s.stx_rdev_minor)));
                }
                _ => {}
            }
        }
        Ok(devices)
    }
}
