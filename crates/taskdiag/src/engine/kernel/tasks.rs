//! Asks `PROC_TASKS`, an ioctl on the root directory of a mount of procfs, which the patches in
//! `kernel/send/task-ioctl` add, and writes the stream.
//!
//! Nothing is kept between two calls, not even in the kernel: the request has the pid at which a
//! call continues. The options of the mount decide whom an answer shows, by the rights of the
//! caller at each call, as they do for the files of /proc. So an answer has the tasks that the
//! procfs engine would find.
//!
//! No call waits for a task. If a command line could only be read by waiting, or if a record has no
//! room for all of it, it is BLOCKED, and `auto` reads it from /proc, where reads are supervised.

use std::fs::DirEntry;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};
use taskdiag_wire::{
    AlignedBuf, BLOB_REWRITTEN, Done, Group, Groups, Info, Reason, Strategy, StreamWriter, build,
};

use super::records::{self, BasePart, CredPart, MEMORY, Record, StatPart, StatmPart, TasksReq};
use crate::engine::info::{self, info};
use crate::engine::room::Room;
use crate::request::Request;

/// The room for the records of one call. More would not make a list cheaper.
const ROOM: usize = 256 << 10;

const PROC_TASKS: Opcode = opcode::read_write::<TasksReq>(b'f', 18);

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Failed {
    /// The directory cannot be opened.
    Opening(Errno),
    /// The call failed.
    Asking(Errno),
    /// There is no such process.
    Nobody,
}

/// The root directory of a mount of procfs.
#[derive(Debug)]
struct Proc {
    dir: OwnedFd,
    syscalls: u64,
}

impl Proc {
    fn open(root: &Path) -> Result<Proc, Failed> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::openat(CWD, root, flags, Mode::empty()).map_err(Failed::Opening)?;
        Ok(Proc { dir, syscalls: 2 }) // open and close
    }

    /// Puts the records from this pid on into the room. Returns how many bytes they have, and the
    /// pid at which the next call continues, or 0 if there are no more.
    fn ask(&mut self, req: TasksReq, room: &mut [u8]) -> Result<(usize, u32), Failed> {
        let buf = room.as_mut_ptr().expose_provenance() as u64;
        let mut req = TasksReq { buf, buf_size: room.len() as u32, ..req };
        self.call(&mut req)?;
        Ok(((req.buf_used as usize).min(room.len()), req.pid))
    }

    fn call(&mut self, req: &mut TasksReq) -> Result<(), Failed> {
        self.syscalls += 1;
        // SAFETY: the number of the call has the size of this struct, which the kernel reads and
        // writes. It writes to the memory at `buf`, too, which `ask` has borrowed.
        let done = unsafe { ioctl(self.dir.as_fd(), Updater::<PROC_TASKS, TasksReq>::new(req)) };
        done.map_err(Failed::Asking)
    }
}

/// The groups that the kernel answers at this mount.
pub(super) fn supported(root: &Path) -> Result<Groups, Failed> {
    let mut req = TasksReq::default();
    Proc::open(root)?.call(&mut req)?;
    Ok(records::groups(req.supported_mask))
}

/// Makes the answer. Returns the stream and the number of system calls. `guess` bytes are expected.
/// `uid` finds the real user id of a task.
pub(super) fn answer(
    root: &Path,
    req: &Request,
    guess: usize,
    uid: impl Fn(u32) -> Option<u32>,
) -> Result<(AlignedBuf, u64), Failed> {
    let mut out = StreamWriter::with_capacity(guess);
    out.info(&build!(Info { kernel_groups: req.groups.bits(), ..info(req) }));
    let mut walk = Walk {
        root,
        req,
        uid,
        proc: Proc::open(root)?,
        mask: records::mask(req.groups),
        flags: if req.strategy.is_threads() { records::THREADS } else { 0 },
        page_size: rustix::param::page_size() as u64,
        texts: Room::new(req.limits),
        out,
    };
    match req.strategy {
        Strategy::All | Strategy::AllThread => walk.list(None)?,
        Strategy::Children => {
            let parent = walk.process_of(req.pid)?;
            walk.list(Some(parent))?;
        }
        Strategy::One | Strategy::Thread => {
            let tgid = walk.process_of(req.pid)?;
            let threads = req.strategy == Strategy::Thread;
            // If the threads cannot be listed, the first one is known.
            let all = if threads { walk.threads_of(tgid) } else { Vec::new() };
            let pids = if all.is_empty() { vec![tgid] } else { all };
            req.expect(pids.len());
            walk.some(tgid, &pids)?;
            if walk.out.tasks() == 0 && !req.is_stopped() {
                return Err(Failed::Nobody);
            }
        }
    }
    let error = if req.is_stopped() { -libc::EINTR } else { 0 };
    let syscalls = walk.proc.syscalls + info::SYSCALLS;
    Ok((walk.out.finish(build!(Done { error, ..Done::default() })), syscalls))
}

/// An answer that is being made.
struct Walk<'a, U> {
    root: &'a Path,
    req: &'a Request,
    uid: U,
    proc: Proc,
    mask: u64,
    flags: u32,
    page_size: u64,
    texts: Room,
    out: StreamWriter,
}

impl<U: Fn(u32) -> Option<u32>> Walk<'_, U> {
    /// Writes all tasks, or all children of a process.
    fn list(&mut self, parent: Option<u32>) -> Result<(), Failed> {
        let (mut room, mut next) = (vec![0; ROOM], 1);
        // The parent of a task that is denied is not known.
        let is_of = |r: &Record<'_>| {
            parent.is_none_or(|p| r.part::<BasePart>().is_some_and(|base| base.ppid == p))
        };
        while next != 0 && !self.req.is_stopped() {
            let used;
            let from = TasksReq { pid: next, ..self.wanted() };
            (used, next) = self.proc.ask(from, &mut room)?;
            let mut seen = 0;
            for record in records::records(&room[..used]) {
                seen += 1;
                if is_of(&record) {
                    self.task(&record)?;
                }
            }
            self.req.expect(seen);
            self.req.advance(seen);
        }
        Ok(())
    }

    /// Writes these tasks of a process, which are in ascending order.
    fn some(&mut self, tgid: u32, pids: &[u32]) -> Result<(), Failed> {
        let (mut room, mut rest) = (Vec::new(), pids);
        while let Some(&first) = rest.first().filter(|_| !self.req.is_stopped()) {
            // One call has tasks whose numbers follow each other, and none of other processes.
            let row = rest.iter().zip(first..).take_while(|(pid, n)| *pid == n).count();
            let from = TasksReq { pid: first, ..self.wanted() };
            let (used, next) = self.few(from, row, &mut room)?;
            let end = if next == 0 { u32::MAX } else { next.max(first + 1) };
            let here;
            (here, rest) = rest.split_at(rest.partition_point(|pid| *pid < end));
            let mut found = records::records(&room[..used]).peekable();
            for &pid in here {
                while found.next_if(|r| r.head.pid < pid).is_some() {}
                match found.next_if(|r| r.head.pid == pid && r.head.tgid == tgid) {
                    Some(record) => self.task(&record)?,
                    None => {
                        // It has ended meanwhile.
                        self.out.begin_task(pid, tgid);
                        self.out.abandon_task();
                    }
                }
                self.req.advance(1);
            }
        }
        Ok(())
    }

    fn wanted(&self) -> TasksReq {
        TasksReq { mask: self.mask, flags: self.flags, ..TasksReq::default() }
    }

    /// As [`Proc::ask`], with room for about this many records.
    fn few(
        &mut self,
        req: TasksReq,
        count: usize,
        room: &mut Vec<u8>,
    ) -> Result<(usize, u32), Failed> {
        room.resize((count * records::record_size(req.mask)).min(ROOM), 0);
        match self.proc.ask(req, room) {
            // The records of a newer kernel are longer.
            Err(Failed::Asking(Errno::OVERFLOW)) => {
                room.resize(ROOM, 0);
                self.proc.ask(req, room)
            }
            done => done,
        }
    }

    /// The process that this process or thread belongs to.
    fn process_of(&mut self, pid: u32) -> Result<u32, Failed> {
        let mut room = Vec::new();
        let req = TasksReq { pid, flags: records::THREADS, ..TasksReq::default() };
        let (used, _) = self.few(req, 1, &mut room)?;
        let first = records::records(&room[..used]).next();
        first.filter(|r| r.head.pid == pid).map(|r| r.head.tgid).ok_or(Failed::Nobody)
    }

    /// The threads of a process in ascending order. There are none if the caller may not know them.
    fn threads_of(&mut self, tgid: u32) -> Vec<u32> {
        self.proc.syscalls += 5; // open, stat, two reads, close
        let tid = |e: DirEntry| e.file_name().to_str()?.parse().ok();
        let dir = std::fs::read_dir(self.root.join(format!("{tgid}/task")));
        let mut tids: Vec<u32> =
            dir.into_iter().flatten().filter_map(|e| e.ok().and_then(tid)).collect();
        tids.sort_unstable();
        tids
    }

    /// Finds a living thread of a process whose first thread has ended, and puts its record, with
    /// the parts about memory, into the room. Returns the length of the record, or 0.
    fn living(&mut self, tgid: u32, room: &mut Vec<u8>) -> Result<usize, Failed> {
        for pid in self.threads_of(tgid) {
            let req =
                TasksReq { mask: MEMORY, pid, flags: records::THREADS, ..TasksReq::default() };
            let (used, _) = self.few(req, 1, room)?;
            let first = records::records(&room[..used]).next();
            let is_it = |r: &Record<'_>| r.head.tgid == tgid && r.part::<StatmPart>().is_some();
            if let Some(record) = first.filter(is_it) {
                return Ok(record.head.size as usize);
            }
        }
        Ok(0)
    }

    /// Writes a task.
    fn task(&mut self, record: &Record<'_>) -> Result<(), Failed> {
        let (pid, tgid) = (record.head.pid, record.head.tgid);
        let mut room = Vec::new();
        let Some(base) = record.part::<BasePart>() else {
            self.out.begin_task(pid, tgid);
            let why = if record.is_denied() { Reason::Denied } else { Reason::Unsupported };
            self.req.groups.iter().for_each(|g| self.out.missing(g, why));
            self.out.end_task();
            return Ok(());
        };
        let mut memory = *record;
        if self.mask & MEMORY != 0 && self.flags == 0 && base.is_dead_leader() {
            let len = self.living(tgid, &mut room)?;
            memory = records::records(&room[..len]).next().unwrap_or(memory);
        }
        let wants = |g| self.req.groups.contains(g);
        let out = &mut self.out;
        out.begin_task(pid, tgid);
        if wants(Groups::BASE) {
            out.put_base(&base.base(), base.name());
        }
        if wants(Groups::CRED) {
            match record.part::<CredPart>() {
                Some(cred) => out.put(&cred.cred()),
                None => out.missing(Group::Cred, Reason::Unsupported),
            }
        }
        if wants(Groups::STAT) {
            match record.part::<StatPart>() {
                Some(stat) => out.put(&stat.stat(&base)),
                None => out.missing(Group::Stat, Reason::Unsupported),
            }
        }
        if wants(Groups::STATM) {
            match memory.part::<StatmPart>() {
                Some(statm) => out.put(&statm.statm(self.page_size)),
                None => out.missing(Group::Statm, Reason::Absent),
            }
        }
        if wants(Groups::CMDLINE) {
            self.cmdline(&memory, pid, &base);
        }
        self.out.end_task();
        Ok(())
    }

    /// Writes the command line of a task, if all that the request may have of it is in the record.
    fn cmdline(&mut self, record: &Record<'_>, pid: u32, base: &BasePart) {
        let Some((part, text)) = record.cmdline() else {
            let has_memory = !base.has_no_memory() || record.part::<StatmPart>().is_some();
            let why = if has_memory { Reason::Blocked } else { Reason::Absent };
            return self.out.missing(Group::Cmdline, why);
        };
        let total = usize::try_from(part.total).unwrap_or(usize::MAX);
        // The length of a title that is not whole is not known.
        let is_enough = total == text.len()
            || total > text.len() && self.req.limits.text_bytes as usize <= text.len();
        if !is_enough {
            return self.out.missing(Group::Cmdline, Reason::Blocked);
        }
        let flags = if part.flags & records::TITLE != 0 { BLOB_REWRITTEN } else { 0 };
        let keep = self.texts.take(total, || (self.uid)(pid).unwrap_or(u32::MAX)).min(text.len());
        self.out.put_blob(Group::Cmdline as u16, 0, flags, &text[..keep], total);
    }
}

#[cfg(test)]
mod tests {
    use super::super::records::tests::{base, record};
    use super::*;
    use crate::request::ByteLimits;
    use taskdiag_wire::Stream;
    use zerocopy::IntoBytes;

    #[test]
    fn a_directory_without_the_ioctl_is_told_from_one_that_is_not_there() {
        let here = std::env::temp_dir();
        assert!(matches!(supported(&here), Err(Failed::Asking(Errno::NOTTY))));
        assert!(matches!(supported(&here.join("none")), Err(Failed::Opening(Errno::NOENT))));
    }

    /// The stream with the tasks of these records.
    fn stream(req: &Request, bytes: &[u8]) -> Stream<AlignedBuf> {
        let mut out = StreamWriter::new();
        out.info(&build!(Info { show_flags: req.groups.bits(), ..StreamWriter::blank_info() }));
        let root = Path::new("/proc");
        let (mask, flags) = (records::mask(req.groups), 0);
        let proc = Proc::open(root).expect("/proc is there");
        let texts = Room::new(req.limits);
        let uid = |_| None;
        let mut walk = Walk { root, req, uid, proc, mask, flags, page_size: 4096, texts, out };
        for record in records::records(bytes) {
            walk.task(&record).expect("it is written");
        }
        Stream::parse(walk.out.finish(Done::default())).expect("a stream")
    }

    /// The part CMDLINE with this text.
    fn cmdline(text: &[u8], total: u64, flags: u32) -> Vec<u8> {
        let mut bytes = [&[0; 32], text].concat();
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        let size = bytes.len() as u32;
        let head = records::PartHead { kind: 1 << 4, size, reserved: 0 };
        let text_size = text.len() as u32;
        let part = records::CmdlinePart { head, total, text_size, flags };
        bytes[..32].copy_from_slice(part.as_bytes());
        bytes
    }

    #[test]
    fn a_missing_value_has_its_reason() {
        let (user, mut kernel, mut zombie) = (base(1), base(2), base(3));
        kernel.flags |= 0x20_0000;
        (zombie.state, zombie.num_threads) = (b'Z', 1);
        let alone: Vec<u8> = [user, kernel, zombie]
            .iter()
            .flat_map(|b| record(b.ppid, 0, &[b.as_bytes()]))
            .collect();
        let bytes = [alone, record(9, 1, &[])].concat();
        let req = Request::all(Groups::BASE | Groups::CRED | Groups::STATM | Groups::CMDLINE);
        let s = stream(&req, &bytes);
        let why = |i: usize, g| s.get(i).expect("a task").reason(g);
        assert_eq!(why(0, Group::Cmdline), Some(Reason::Blocked));
        for i in [1, 2] {
            assert_eq!(why(i, Group::Cmdline), Some(Reason::Absent));
            assert_eq!(why(i, Group::Statm), Some(Reason::Absent));
        }
        assert_eq!((why(0, Group::Base), why(0, Group::Cred)), (None, Some(Reason::Unsupported)));
        assert!(req.groups.iter().all(|g| why(3, g) == Some(Reason::Denied)));
        let done = s.done();
        assert_eq!((done.tasks, done.denied, done.blocked), (4, 1, 1));
        let first = s.get(0).expect("a task").record::<taskdiag_wire::Base>().expect("it is there");
        assert_eq!((first.ppid(), first.state()), (Some(2), Some(b'S')));
    }

    #[test]
    fn a_text_is_whole_or_blocked_unless_the_limit_is_reached() {
        let long = [b'x'; records::CMDLINE_MAX];
        let parts = [
            cmdline(b"a\0b\0", 4, 0),
            cmdline(b"", 0, 0),
            cmdline(b"title", 5, 1),
            cmdline(&long, 9000, 0),
            cmdline(b"no more fits", 0, 1),
        ];
        let of = |part: &Vec<u8>| record(1, 0, &[base(1).as_bytes(), part]);
        let bytes: Vec<u8> = parts.iter().flat_map(of).collect();
        let text = |limits| {
            let s = stream(&Request::all(Groups::CMDLINE).with_limits(limits), &bytes);
            let one = |t: taskdiag_wire::TaskView<'_>| {
                t.cmdline()
                    .map(|b| (b.data.to_vec(), b.flags, b.total))
                    .ok_or(t.reason(Group::Cmdline))
            };
            s.tasks().map(one).collect::<Vec<_>>()
        };
        let whole = text(ByteLimits::LIST);
        assert_eq!(whole[0], Ok((b"a\0b\0".to_vec(), 0, 4)));
        assert_eq!(whole[1], Ok((Vec::new(), 0, 0)));
        assert_eq!(whole[2], Ok((b"title".to_vec(), BLOB_REWRITTEN, 5)));
        assert_eq!(whole[3..], [Err(Some(Reason::Blocked)), Err(Some(Reason::Blocked))]);
        let short = text(ByteLimits { text_bytes: 3, ..ByteLimits::LIST });
        assert_eq!(short[0], Ok((b"a\0b".to_vec(), taskdiag_wire::BLOB_CUT, 4)));
        assert_eq!(short[3], Ok((b"xxx".to_vec(), taskdiag_wire::BLOB_CUT, 9000)));
    }
}
