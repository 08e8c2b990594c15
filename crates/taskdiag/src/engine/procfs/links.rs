//! Reads the groups that come from links (PATHS, NS), and SCHED, which is summed over threads.

use std::os::fd::AsFd;

use rustix::io::Errno;
use taskdiag_wire::{
    A_NSPID, BLOB_DELETED, DELETED, Group, Groups, Ns, PathKind, Reason, SCHED_LIVE_ONLY, Sched,
};

use super::parse;
use super::path::{Path, TaskDir};
use super::read::FileId;
use super::stop::Stop;
use super::worker::Worker;
use crate::engine::room::NAME_LEAST;

const PATHS: [(PathKind, &str); 3] =
    [(PathKind::Exe, "exe"), (PathKind::Cwd, "cwd"), (PathKind::Root, "root")];

pub(super) const NS_FILES: [&str; 10] = [
    "ns/cgroup",
    "ns/ipc",
    "ns/mnt",
    "ns/net",
    "ns/pid",
    "ns/pid_for_children",
    "ns/time",
    "ns/time_for_children",
    "ns/user",
    "ns/uts",
];

impl Worker<'_> {
    /// Writes the chain of pids from the status file.
    fn nspid(&mut self) {
        let ids = &self.status.nspid;
        if !ids.is_empty() {
            self.out.put_blob(A_NSPID, 0, 0, ids, ids.len());
        }
    }

    pub(super) fn paths(&mut self, mut at: TaskDir<'_>) -> Result<(), Stop> {
        const ATTR: u16 = Group::Paths as u16;
        let mut failed: [Option<Errno>; 3] = [None; 3];
        let mut any = false;
        self.list_room(at);
        for (i, (kind, file)) in PATHS.into_iter().enumerate() {
            let len = match self.reader.link(at.dir, at.path.file(file)) {
                Ok(text) => text.len(),
                // If one of them is denied, all are.
                Err(Errno::ACCESS | Errno::PERM) if i == 0 => {
                    return Err(Stop::Gap(Reason::Denied));
                }
                Err(e) => {
                    failed[i] = Some(e);
                    continue;
                }
            };
            any = true;
            let text = self.reader.text(len);
            let mut flags = 0;
            if text.ends_with(DELETED) {
                let text = text.to_vec();
                if self.is_deleted(at, file, &text) {
                    flags = BLOB_DELETED;
                }
                let text = &text[..len.min(self.name_most)];
                self.out.put_blob(ATTR, kind as u32, flags, text, len);
            } else {
                let text = &text[..len.min(self.name_most)];
                self.out.put_blob(ATTR, kind as u32, flags, text, len);
            }
            if len.min(self.name_most) > NAME_LEAST {
                self.take_list_room(at, len);
            }
        }
        let mut reasons = [None; 3];
        for (reason, e) in reasons.iter_mut().zip(failed) {
            *reason = match e {
                None => None,
                // Another link could be read, so the task exists, and this link has no target.
                Some(Errno::NOENT) if any => Some(Reason::Absent),
                Some(e) => match self.meaning(at, e) {
                    // The directory of the task is there, but the link has no target.
                    Stop::Gap(Reason::Unsupported) if e == Errno::NOENT => Some(Reason::Absent),
                    Stop::Gap(r) => Some(r),
                    Stop::Gone if any => Some(Reason::Vanished),
                    stop => return Err(stop),
                },
            };
        }
        // If all three are denied for the same reason, the group is marked once. If the task just
        // has none of them, each is marked.
        if let [Some(r), b, c] = reasons {
            if r != Reason::Absent && b == Some(r) && c == Some(r) {
                return Err(Stop::Gap(r));
            }
        }
        for ((kind, _), reason) in PATHS.into_iter().zip(reasons) {
            if let Some(r) = reason {
                self.out.put_blob_missing(ATTR, kind as u32, r);
            }
        }
        Ok(())
    }

    /// Whether the ` (deleted)` at the end of a path was written by the kernel and is not part of
    /// the name.
    fn is_deleted(&mut self, mut at: TaskDir<'_>, file: &'static str, text: &[u8]) -> bool {
        let Ok(target) = self.reader.statx(at.dir, at.path.file(file)) else {
            return false;
        };
        if target.stx_nlink == 0 {
            return true;
        }
        // The file has another name (a hard link), or its name ends in the mark. So check whether
        // the path leads to the file. The path is relative to our root, or to the root of another
        // mount namespace.
        let target = FileId::of(&target);
        let other = |found: Result<FileId, Errno>| match found {
            Ok(found) => found != target,
            Err(e) => e == Errno::NOENT,
        };
        let ours = self.reader.id_of_path(text);
        other(ours) && other(self.reader.id_below(at.dir, at.path.file("root"), text))
    }

    pub(super) fn ns(&mut self, mut at: TaskDir<'_>) -> Result<(), Stop> {
        let mut record = Ns::new();
        let mut last = Errno::NOENT;
        for (i, file) in NS_FILES.into_iter().enumerate() {
            match self.reader.link(at.dir, at.path.file(file)) {
                Ok(text) => {
                    if let Some(inode) = parse::ns_inode(text) {
                        *ns_member(&mut record, i) = inode;
                        record.valid |= 1 << i;
                    }
                }
                // If one of them is denied, all are.
                Err(e @ (Errno::ACCESS | Errno::PERM)) => {
                    last = e;
                    break;
                }
                Err(e) => last = e,
            }
        }
        // The status file has the pids even for readers who may not read the links.
        self.nspid();
        if record.valid == 0 {
            return Err(self.meaning(at, last));
        }
        self.out.put(&record);
        Ok(())
    }

    pub(super) fn sched(&mut self, at: TaskDir<'_>) -> Result<(), Stop> {
        // The time of the process is read before those of its threads. So time that the threads use
        // meanwhile is not taken for time of ended threads.
        let process = if self.run.own_times && !self.run.threads {
            self.reader.process_time(at.pid)
        } else {
            None
        };
        let mut sum = SchedSum::default();
        if self.run.threads || self.status.threads == Some(1) {
            let [time, delay, slices] = self.schedstat(at)?;
            sum.add([time, delay, slices, self.status.nvcsw, self.status.nivcsw]);
        } else {
            self.sum_threads(at, &mut sum)?;
        }
        let has_all = self.run.threads || process.is_some_and(|time| sum.complete(time));
        let Some(mut record) = sum.record() else {
            return Err(Stop::Gap(Reason::Unsupported));
        };
        if !has_all {
            // Threads may have ended before.
            record.flags = SCHED_LIVE_ONLY;
        }
        self.out.put(&record);
        Ok(())
    }

    /// Returns run_time, run_delay and timeslices. `None`: the kernel does not keep the number.
    fn schedstat(&mut self, mut at: TaskDir<'_>) -> Result<[Option<u64>; 3], Stop> {
        match self.reader.file(at.dir, at.path.file("schedstat")) {
            Ok(bytes) => Ok(parse::schedstat(bytes).map_or([None; 3], |n| n.map(Some))),
            Err(e) => match self.meaning(at, e) {
                Stop::Gap(_) => Ok([None; 3]),
                stop => Err(stop),
            },
        }
    }

    fn sum_threads(&mut self, mut at: TaskDir<'_>, sum: &mut SchedSum) -> Result<(), Stop> {
        let dir = match self.reader.open_dir(at.dir, at.path.file("task")) {
            Ok(dir) => dir,
            Err(e) => return Err(self.meaning(at, e)),
        };
        self.reader.syscalls += 1; // close
        let mut tids = std::mem::take(&mut self.tids);
        let listed = self.reader.pids(dir.as_fd(), &mut tids);
        let mut result = listed.map_err(|e| self.meaning(at, e));
        if result.is_ok() {
            for &tid in &tids {
                let thread = TaskDir { dir: dir.as_fd(), path: Path::id(tid), pid: tid, ..at };
                match self.thread_sched(thread) {
                    Ok(numbers) => sum.add(numbers),
                    Err(Stop::Failed(e)) => {
                        result = Err(Stop::Failed(e));
                        break;
                    }
                    // This thread has ended. The sums count the living threads.
                    Err(_) => {}
                }
            }
            if result.is_ok() && sum.threads == 0 {
                result = Err(Stop::Gone);
            }
        }
        self.tids = tids;
        result
    }

    fn thread_sched(&mut self, mut at: TaskDir<'_>) -> Result<[Option<u64>; 5], Stop> {
        let [time, delay, slices] = self.schedstat(at)?;
        match self.reader.file(at.dir, at.path.file("status")) {
            Ok(bytes) => self.status.parse(bytes, Groups::SCHED),
            Err(e) => return Err(self.meaning(at, e)),
        }
        Ok([time, delay, slices, self.status.nvcsw, self.status.nivcsw])
    }
}

/// The member of NS for bit `i` of `valid`.
fn ns_member(ns: &mut Ns, i: usize) -> &mut u32 {
    match i {
        0 => &mut ns.cgroup,
        1 => &mut ns.ipc,
        2 => &mut ns.mnt,
        3 => &mut ns.net,
        4 => &mut ns.pid,
        5 => &mut ns.pid_for_children,
        6 => &mut ns.time,
        7 => &mut ns.time_for_children,
        8 => &mut ns.user,
        _ => &mut ns.uts,
    }
}

/// Sums SCHED over one or more threads. A sum is known only if the number of each thread is known.
#[derive(Debug, Default)]
struct SchedSum {
    threads: usize,
    /// The sums of run_time, run_delay, timeslices, nvcsw and nivcsw.
    values: [u64; 5],
    unknown: [bool; 5],
}

impl SchedSum {
    fn add(&mut self, numbers: [Option<u64>; 5]) {
        self.threads += 1;
        for (i, n) in numbers.into_iter().enumerate() {
            match n {
                Some(n) => self.values[i] = self.values[i].saturating_add(n),
                None => self.unknown[i] = true,
            }
        }
    }
    /// Completes the sums over the living threads of a process with its ended threads. /proc has no
    /// values of ended threads. Their time is the CPU time of the process minus the time of its
    /// living threads. Their context switches are not known, so the context switches of the process
    /// are not known either. `false`: it is not known whether threads have ended.
    ///
    /// The time that living threads use while they are read can hide an equal time of ended ones.
    fn complete(&mut self, process_ns: u64) -> bool {
        let [run_time, _, _, nvcsw, nivcsw] = &mut self.unknown;
        // A kernel that does not count the times of threads shows zeros.
        if *run_time || self.values[0] == 0 && process_ns > 0 {
            return false;
        }
        if process_ns > self.values[0] {
            self.values[0] = process_ns;
            (*nvcsw, *nivcsw) = (true, true);
        }
        true
    }
    /// The record, or `None` if all members are unknown.
    fn record(&self) -> Option<Sched> {
        let mut r = Sched::new();
        let members = [
            &mut r.run_time_ns,
            &mut r.run_delay_ns,
            &mut r.timeslices,
            &mut r.nvcsw,
            &mut r.nivcsw,
        ];
        for (i, member) in members.into_iter().enumerate() {
            if !self.unknown[i] {
                *member = self.values[i];
                r.valid |= 1 << i;
            }
        }
        if r.valid == 0 {
            return None;
        }
        r.valid |= 1 << 5; // flags
        Some(r)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ns_files_are_in_bit_order() {
        let names: Vec<_> = NS_FILES.iter().map(|f| f.strip_prefix("ns/").unwrap()).collect();
        assert_eq!(names, Ns::MEMBERS);
        for (i, name) in Ns::MEMBERS.iter().enumerate() {
            let mut ns = Ns::new();
            *ns_member(&mut ns, i) = 7;
            ns.valid = 1 << i;
            assert!(ns.knows(name).unwrap());
            assert!(format!("{ns:?}").contains(&format!(" {name}: 7")), "{name}");
        }
    }

    #[test]
    fn sums_of_sched_know_a_member_only_if_each_thread_has_it() {
        let mut s = SchedSum::default();
        assert_eq!(s.threads, 0);
        s.add([Some(1), Some(2), Some(3), Some(4), Some(u64::MAX)]);
        s.add([Some(10), Some(20), Some(30), None, Some(1)]);
        let r = s.record().unwrap();
        assert_eq!(
            (r.known().run_time_ns(), r.known().run_delay_ns(), r.known().timeslices()),
            (Some(11), Some(22), Some(33))
        );
        assert_eq!((r.known().nvcsw(), r.known().nivcsw()), (None, Some(u64::MAX)));
        assert_eq!(r.knows("flags"), Some(true));
        let mut s = SchedSum::default();
        s.add([None; 5]);
        assert_eq!(s.record(), None);
    }

    #[test]
    fn context_switches_are_unknown_where_ended_threads_have_used_cpu_time() {
        let living = |process_ns| {
            let mut s = SchedSum::default();
            s.add([Some(100), Some(2), Some(3), Some(4), Some(5)]);
            let has_all = s.complete(process_ns);
            let r = s.record().expect("a record");
            let known = r.known();
            (has_all, known.run_time_ns(), known.nvcsw(), known.nivcsw(), known.timeslices())
        };
        assert_eq!(living(100), (true, Some(100), Some(4), Some(5), Some(3)));
        // The threads ran after the time of the process was read.
        assert_eq!(living(90), (true, Some(100), Some(4), Some(5), Some(3)));
        assert_eq!(living(101), (true, Some(101), None, None, Some(3)));
    }

    #[test]
    fn a_kernel_without_times_of_threads_says_nothing_about_ended_ones() {
        for time in [None, Some(0)] {
            let mut s = SchedSum::default();
            s.add([time, time, time, Some(4), Some(5)]);
            assert!(!s.complete(7));
            assert_eq!(s.record().expect("a record").known().nvcsw(), Some(4));
        }
    }
}
