//! Who holds the pipes and the locks on files that threads wait for.

use std::collections::{HashMap, HashSet};
use std::io::Read as _;

use taskdiag_wire::{Entry, Fd, FdType, Groups, Reason, WaitKind};

use super::Look;
use crate::files::{Access, End, Files, Owner};
use crate::why::filelocks::{self, Blocked, Class};
use crate::why::task::{self, Place};
use crate::why::wait::{Holder, How, NoHolder};
use crate::{Request, query_with};

/// At most this much is read of the list of file locks.
const LOCKS: u64 = 16 << 20;
/// The largest number of descriptors that are asked for their locks.
const DESCRIPTORS: usize = 4096;

/// For a kind of lock and an inode, the processes with an open file that has such a lock.
type LockHolders = HashMap<(Class, u64), Vec<u32>>;

/// The holder of a lock, by the kind of the lock, its inode, and the process that asks for it.
type HeldBy = HashMap<(Class, u64, Option<u32>), Result<Holder, NoHolder>>;

pub(super) struct OpenFile {
    pub fd: u32,
    inode: Option<u64>,
}

impl Look<'_> {
    /// All waits for pipes and for locks on files.
    pub(super) fn by_files(&mut self) {
        let is_open = |at: &usize| self.waits.all[*at].holder == Err(NoHolder::NotKept);
        let of: Vec<usize> = (0..self.waits.all.len()).filter(is_open).collect();
        for (at, found) in self.files_held(&of) {
            self.is_done[at] = true;
            self.waits.all[at].holder = self.settled(at, found);
        }
    }

    /// Who holds the pipes and the locks on files that some of these threads wait for. They are
    /// looked up together, because the open files of all processes and the list of locks are read
    /// once.
    pub(super) fn files_held(&mut self, of: &[usize]) -> Vec<(usize, Result<Holder, NoHolder>)> {
        use WaitKind::{Flock, OfdLock, PipeRead, PipeWrite, PosixLock};
        let mut all = Vec::new();
        let mut pipes = Vec::new();
        let mut locks = Vec::new();
        for &at in of {
            let class = match self.waits.all[at].kind {
                Some(PipeRead | PipeWrite) => None,
                Some(PosixLock) => Some(Class::Posix),
                Some(OfdLock) => Some(Class::OpenFile),
                Some(Flock) => Some(Class::Flock),
                _ => continue,
            };
            match (self.open_file(at), class) {
                (Err(why), _) => all.push((at, Err(why))),
                (Ok(file), None) => pipes.push((at, file)),
                (Ok(file), Some(class)) => locks.push((at, class, file.inode)),
            }
        }
        let blocked = match locks.is_empty() {
            true => Ok(Vec::new()),
            false => self.within(0, || read_locks().map(|text| filelocks::blocked(&text))),
        };
        let of_open_files = |b: &Blocked| b.held != Class::Posix;
        let is_needed = blocked.as_ref().is_ok_and(|all| all.iter().any(of_open_files));
        let snapshot = (is_needed || !pipes.is_empty())
            .then(|| query_with(&Request::all(Groups::BASE | Groups::FD), self.choice).ok())
            .flatten();
        let files = snapshot.as_ref().map(Files::new);
        match &files {
            None => all.extend(pipes.into_iter().map(|(at, _)| (at, Err(NoHolder::NotKnown)))),
            Some(files) => {
                let of = |(at, file): &(usize, OpenFile)| (self.waits.all[*at].tgid, file.fd);
                let open = OpenFiles::new(files, pipes.iter().map(of));
                let mut others = Others::new(files);
                all.extend(pipes.into_iter().map(|(at, file)| {
                    let (tgid, kind) = (self.waits.all[at].tgid, self.waits.all[at].kind);
                    let reads = kind == Some(PipeRead);
                    let pipe = open.get(tgid, &file);
                    (at, pipe.and_then(|(_, pipe)| others.of_pipe(&pipe, reads, tgid)))
                }));
            }
        }
        let holders = match (&blocked, &files) {
            (Ok(blocked), Some(files)) => self.lock_holders(files, blocked),
            _ => LockHolders::new(),
        };
        let held = blocked.map(|all| self.held_by(&all, &holders));
        for (at, class, inode) in locks {
            let tgid = self.waits.all[at].tgid;
            let by = Some(tgid).filter(|_| class != Class::OpenFile);
            let found = match (&held, inode) {
                (Err(why), _) => Err(*why),
                (_, None) => Err(NoHolder::NotKnown),
                (Ok(held), Some(inode)) => {
                    *held.get(&(class, inode, by)).unwrap_or(&Err(NoHolder::Changed))
                }
            };
            all.push((at, found));
        }
        all
    }

    /// The holder, if the thread has not run since the look at its file began.
    pub(super) fn settled(
        &mut self,
        at: usize,
        found: Result<Holder, NoHolder>,
    ) -> Result<Holder, NoHolder> {
        let holder = found?;
        let (place, _) = self.wait(at);
        let stand = self.stands.get(&at).copied().ok_or(NoHolder::Changed)?;
        self.within(place.tgid, move || place.is_still(&stand))?;
        Ok(holder)
    }

    /// The file whose descriptor is the first argument of the system call that the thread waits in.
    pub(super) fn open_file(&mut self, at: usize) -> Result<OpenFile, NoHolder> {
        let (place, call) = self.wait(at);
        let call = call.ok_or(NoHolder::NotKnown)?;
        let fd = call.descriptor().ok_or(NoHolder::NotKnown)?;
        let before = self.waits.all[at].switches;
        let (stand, name, inode) = self.within(place.tgid, move || {
            let stand = place.stand_in(&call, before)?;
            Ok((stand, place.link(fd), place.inode(fd)?))
        })?;
        self.stands.insert(at, stand);
        self.waits.all[at].file = name;
        Ok(OpenFile { fd, inode })
    }

    /// The processes that have an open file with a lock on one of these inodes. Processes that
    /// share an open file are read one after another, and the lock may come or go meanwhile. So
    /// only those count that two looks find, and an inode for which the looks differ has no entry.
    fn lock_holders(&mut self, files: &Files<'_>, blocked: &[Blocked]) -> LockHolders {
        let inodes: HashSet<u64> =
            blocked.iter().filter(|b| b.held != Class::Posix).map(|b| b.inode).collect();
        let mut candidates = Vec::new();
        for owner in files.owners() {
            let task = owner.row.view;
            let fds = owner.table.iter().filter_map(|t| t.owner.list::<Fd>()).flatten();
            let fds = fds.filter(|fd| fd.inode().is_some_and(|i| inodes.contains(&i)));
            candidates.extend(fds.map(|fd| (task.tgid(), task.pid(), fd.raw.fd)));
        }
        candidates.truncate(DESCRIPTORS);
        let mut first = self.with_locks(&candidates);
        let second = self.with_locks(&candidates);
        first.retain(|lock, processes| second.get(lock) == Some(processes));
        first
    }

    fn with_locks(&mut self, candidates: &[(u32, u32, u32)]) -> LockHolders {
        let mut holders = LockHolders::new();
        for &(tgid, tid, fd) in candidates {
            let place = Place { tgid, tid };
            let locks = self.within(tgid, move || Ok(place.locks(fd))).unwrap_or_default();
            for (class, inode) in locks {
                let of: &mut Vec<u32> = holders.entry((class, inode)).or_default();
                if of.last() != Some(&tgid) {
                    of.push(tgid);
                }
            }
        }
        holders
    }

    /// The holder for each kind of request. If their waits have different holders, it is not known
    /// which wait a thread belongs to.
    fn held_by(&self, blocked: &[Blocked], holders: &LockHolders) -> HeldBy {
        let mut held = HeldBy::new();
        for b in blocked {
            let found = self.lock_holder(b, holders);
            held.entry((b.class, b.inode, b.by))
                .and_modify(|before| {
                    if *before != found {
                        *before = Err(NoHolder::Several(2));
                    }
                })
                .or_insert(found);
        }
        held
    }

    fn lock_holder(&self, b: &Blocked, holders: &LockHolders) -> Result<Holder, NoHolder> {
        let (pid, how, is_sure) = match b.held {
            Class::Posix => (b.holder.ok_or(NoHolder::OtherNumbers)?, How::PosixLock, true),
            class => {
                let all = holders.get(&(class, b.inode)).map_or(&[][..], Vec::as_slice);
                // The pids are sorted, as the processes are.
                let took_it = b.holder.filter(|pid| all.binary_search(pid).is_ok());
                match (took_it, all) {
                    // Each process that has the open file can give the lock back, such as a child
                    // of the one that took it.
                    (Some(pid), all) if class == Class::Flock => (pid, How::Flock, all.len() == 1),
                    (_, [pid]) => (*pid, How::OpenFileLock, true),
                    (_, []) => return Err(NoHolder::NotKnown),
                    (_, all) => return Err(NoHolder::Several(all.len() as u32)),
                }
            }
        };
        if self.waits.find(pid).is_none() {
            return Err(NoHolder::Changed);
        }
        Ok(Holder { tid: pid, tgid: pid, is_process: true, is_sure, how })
    }
}

/// Descriptors that were asked for, by process and number.
pub(super) struct OpenFiles<'a>(HashMap<(u32, u32), (&'a Owner<'a>, Entry<'a, Fd>)>);

impl<'a> OpenFiles<'a> {
    /// Finds these descriptors. Each table is gone through once, because it may have a million.
    pub fn new(files: &'a Files<'a>, of: impl Iterator<Item = (u32, u32)>) -> OpenFiles<'a> {
        let mut wanted: HashMap<u32, HashSet<u32>> = HashMap::new();
        for (tgid, fd) in of {
            wanted.entry(tgid).or_default().insert(fd);
        }
        let mut found = HashMap::new();
        for (tgid, fds) in wanted {
            let all = files.owners();
            let first = all.partition_point(|o| o.row.view.tgid() < tgid);
            let Some(owner) = all.get(first).filter(|o| o.row.view.tgid() == tgid) else {
                continue;
            };
            let table = owner.table.iter().filter_map(|t| t.owner.list::<Fd>()).flatten();
            let of_wanted = table.filter(|fd| fds.contains(&fd.raw.fd));
            found.extend(of_wanted.map(|fd| ((tgid, fd.raw.fd), (owner, fd))));
        }
        OpenFiles(found)
    }
    /// A descriptor and its owner. The descriptor must still be of the same file.
    pub fn get(
        &self,
        tgid: u32,
        file: &OpenFile,
    ) -> Result<(&'a Owner<'a>, Entry<'a, Fd>), NoHolder> {
        let found = self.0.get(&(tgid, file.fd)).copied();
        // Linux before 5.14 has no inode in fdinfo.
        let is_same = |entry: &Entry<'_, Fd>| file.inode.is_none_or(|i| entry.inode() == Some(i));
        found.filter(|(_, entry)| is_same(entry)).ok_or(NoHolder::Changed)
    }
}

/// The processes with the other ends of pipes and sockets. Thousands of threads may wait for one
/// pipe that thousands of processes have, so each pipe is looked at once.
pub(super) struct Others<'f, 'a> {
    files: &'f Files<'a>,
    /// Whether the files of all processes are seen.
    is_whole: bool,
    /// By device, inode, and whether readers of it wait: one process, and how many there are.
    known: HashMap<(Option<u32>, u64, bool), (u32, usize)>,
}

impl<'f, 'a> Others<'f, 'a> {
    pub fn new(files: &'f Files<'a>) -> Others<'f, 'a> {
        let is_unseen = |reason| matches!(reason, Reason::Denied | Reason::Blocked);
        let is_whole = !files.gaps().iter().any(|g| is_unseen(g.reason));
        Others { files, is_whole, known: HashMap::new() }
    }
    /// Who can write, or read, so that a reader, or a writer, of this pipe continues.
    fn of_pipe(
        &mut self,
        pipe: &Entry<'_, Fd>,
        reads: bool,
        tgid: u32,
    ) -> Result<Holder, NoHolder> {
        let kind = FdType::from_number(pipe.raw.r#type);
        if !matches!(kind, Some(FdType::Pipe | FdType::Fifo)) {
            return Err(NoHolder::NotKnown);
        }
        let ends = self.files.ends().of_pipe(pipe).iter().filter(|e| match e.access {
            Access::Both => true,
            Access::Read => !reads,
            Access::Write => reads,
            Access::Path => false,
        });
        let dev = if kind == Some(FdType::Fifo) { pipe.dev() } else { None };
        let how = if reads { How::Writer } else { How::Reader };
        self.only(ends, (dev, pipe.raw.inode, reads), tgid, how)
    }
    /// Who has the socket with this inode, which is the other end of one of `tgid`.
    pub fn of_socket(&mut self, inode: u64, how: How, tgid: u32) -> Result<Holder, NoHolder> {
        let ends = self.files.ends().of_socket(inode).iter();
        self.only(ends, (None, inode, false), tgid, how)
    }
    /// The only process, other than `tgid`, that has one of these ends.
    fn only<'e>(
        &mut self,
        ends: impl Iterator<Item = &'e End>,
        key: (Option<u32>, u64, bool),
        tgid: u32,
        how: How,
    ) -> Result<Holder, NoHolder> {
        let (process, count) = *self.known.entry(key).or_insert_with(|| {
            let owners = self.files.owners();
            let all: HashSet<u32> = ends.map(|e| owners[e.owner].row.view.tgid()).collect();
            (all.iter().next().copied().unwrap_or(0), all.len())
        });
        match count {
            // A signal handler of the process itself may use the other end.
            1 if process != tgid => {
                let is_sure = self.is_whole;
                Ok(Holder { tid: process, tgid: process, is_process: true, is_sure, how })
            }
            0 if !self.is_whole => Err(NoHolder::NoRight),
            0 | 1 => Err(NoHolder::NotKept),
            n => Err(NoHolder::Several(n as u32)),
        }
    }
}

fn read_locks() -> Result<String, NoHolder> {
    let mut text = Vec::new();
    let file = std::fs::File::open("/proc/locks");
    let read = file.and_then(|f| f.take(LOCKS).read_to_end(&mut text));
    read.map_err(|e| task::why(&e))?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}
