//! SETTINGS, PERSONA, CPUSET and NS_ID: what a task has set for itself or got from others, from its
//! status file, small files and system calls.

use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::ioctl::{Getter, ioctl};
use taskdiag_wire::{A_CPUS, A_GID_MAP, A_MEMS, A_UID_MAP, Group, NsId, Persona, Reason, Settings};

use super::links::NS_FILES;
use super::parse::{self, set};
use super::path::TaskDir;
use super::stop::Stop;
use super::worker::Worker;

/// `NS_GET_ID` of linux/nsfs.h.
type GetId = Getter<{ rustix::ioctl::opcode::read::<u64>(0xb7, 13) }, u64>;

impl Worker<'_> {
    pub(super) fn settings(&mut self, at: TaskDir<'_>) -> Result<(), Stop> {
        let mut record = self.status.settings;
        // The kernel takes the number as one of our own pid namespace.
        if self.run.own_times {
            self.reader.syscalls += 1;
            set!(record, Settings.ioprio, io_priority(at.pid));
        }
        self.out.put(&record);
        for (attr, mask) in [(A_CPUS, &self.status.cpus), (A_MEMS, &self.status.mems)] {
            if !mask.is_empty() {
                self.out.put_blob(attr, 0, 0, mask, mask.len());
            }
        }
        Ok(())
    }

    pub(super) fn persona(&mut self, mut at: TaskDir<'_>) -> Result<(), Stop> {
        let mut record = Persona::new();
        let mut denied = Reason::Unsupported;
        match self.reader.file(at.dir, at.path.file("personality")) {
            Ok(text) => set!(record, Persona.personality, parse::personality(text)),
            Err(e) => denied = self.reason(at, e)?,
        }
        // The directory of a thread has no such file.
        let slack = at.path.of_task(self.run.threads, at.pid, "timerslack_ns");
        match self.reader.file(at.dir, &slack) {
            Ok(text) => set!(record, Persona.timer_slack_ns, parse::lone_number(text)),
            Err(e) => denied = self.reason(at, e)?,
        }
        if record.valid == 0 {
            return Err(Stop::Gap(denied));
        }
        self.out.put(&record);
        for (attr, file) in [(A_UID_MAP, "uid_map"), (A_GID_MAP, "gid_map")] {
            let read = self.reader.file(at.dir, at.path.file(file));
            match read.map(parse::id_map) {
                Ok(Some(map)) => self.out.put_blob(attr, 0, 0, &map, map.len()),
                Ok(None) => self.out.put_blob_missing(attr, 0, Reason::Unsupported),
                Err(e) => {
                    let reason = self.reason(at, e)?;
                    self.out.put_blob_missing(attr, 0, reason);
                }
            }
        }
        Ok(())
    }

    pub(super) fn cpuset(&mut self, mut at: TaskDir<'_>) -> Result<(), Stop> {
        match self.reader.file(at.dir, at.path.file("cpuset")) {
            Ok(text) => {
                let path = text.strip_suffix(b"\n").unwrap_or(text);
                self.out.put_blob(Group::Cpuset as u16, 0, 0, path, path.len());
                Ok(())
            }
            Err(e) => Err(self.meaning(at, e)),
        }
    }

    pub(super) fn ns_id(&mut self, mut at: TaskDir<'_>) -> Result<(), Stop> {
        let mut record = NsId::new();
        let mut last = Errno::NOENT;
        for (i, file) in NS_FILES.into_iter().enumerate() {
            let got = self.reader.open_read(at.dir, at.path.file(file)).and_then(|ns| {
                self.reader.syscalls += 1;
                // SAFETY: the kernel writes a u64, or refuses.
                unsafe { ioctl(ns.as_fd(), GetId::new()) }
            });
            match got {
                Ok(id) => {
                    *id_of(&mut record, i) = id;
                    record.valid |= 1 << i;
                }
                // If one of them is denied, all are.
                Err(e @ (Errno::ACCESS | Errno::PERM)) => {
                    last = e;
                    break;
                }
                // The kernel has no such numbers.
                Err(e @ Errno::NOTTY) => {
                    last = e;
                    break;
                }
                Err(e) => last = e,
            }
        }
        if record.valid == 0 {
            return Err(self.meaning(at, last));
        }
        self.out.put(&record);
        Ok(())
    }

    /// The reason for a value that cannot be read, or the end of the step if the task has ended.
    fn reason(&mut self, at: TaskDir<'_>, e: Errno) -> Result<Reason, Stop> {
        match self.meaning(at, e) {
            Stop::Gap(reason) => Ok(reason),
            stop => Err(stop),
        }
    }
}

/// The i-th number, in the order of the files.
fn id_of(record: &mut NsId, i: usize) -> &mut u64 {
    match i {
        0 => &mut record.cgroup,
        1 => &mut record.ipc,
        2 => &mut record.mnt,
        3 => &mut record.net,
        4 => &mut record.pid,
        5 => &mut record.pid_for_children,
        6 => &mut record.time,
        7 => &mut record.time_for_children,
        8 => &mut record.user,
        _ => &mut record.uts,
    }
}

/// The priority of I/O of a task. Without a class, its level has no meaning.
fn io_priority(tid: u32) -> Option<u32> {
    const WHO_PROCESS: i32 = 1;
    const CLASS_SHIFT: u32 = 13;
    // SAFETY: takes numbers only.
    let prio = unsafe { libc::syscall(libc::SYS_ioprio_get, WHO_PROCESS, tid) };
    let prio = u32::try_from(prio).ok()?;
    Some(if prio >> CLASS_SHIFT == 0 { 0 } else { prio })
}
