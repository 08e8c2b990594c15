//! Reads command lines and environments that BPF reports as BLOCKED, because the text is not in
//! memory (swapped out, say). BPF programs cannot wait. So the text is read from /proc, where a
//! read can be supervised.
//!
//! This module never takes text from another task that has reused the pid meanwhile.

use std::collections::{HashMap, HashSet};

use taskdiag_wire::{
    A_MISSING, AlignedBuf, Done, Group, Groups, Info, MissingEntry, MissingHdr, NlAttr, Plain,
    Reason, Stream, StreamWriter, TaskView,
};

use super::join;
use crate::bytes::Bytes;
use crate::engine::procfs::Procfs;
use crate::engine::room::{self, Several};
use crate::engine::{Cost, Engine};
use crate::error::Error;
use crate::request::{Members, Request};
use crate::task_id::TaskId;

/// Up to this many processes are requested one by one. More are requested all at once.
const FEW: usize = 64;

/// The groups and members to request from BPF: those of the request, and the start time, to
/// recognize the task later.
pub fn with_identity(groups: Groups, members: Members) -> (Groups, Members) {
    let start = Members::of(Groups::BASE, &["start_time_ns"]);
    match (groups.intersects(Groups::TEXTS), groups.contains(Groups::BASE)) {
        (false, _) => (groups, members),
        (true, true) => (groups, members.union(start)),
        (true, false) => (groups | Groups::BASE, Members { base: start.base, ..members }),
    }
}

/// The answer with the BLOCKED texts filled in from /proc, and the number of tasks for which that
/// was possible. If /proc does not have them either, the answer is unchanged.
pub fn complete(req: &Request, answer: Bytes) -> Result<(Bytes, usize, Cost), Error> {
    let text = req.groups & Groups::TEXTS;
    let none = Cost::default();
    let blocked = taskdiag_wire::decode::done(answer.as_ref()).is_some_and(|d| d.blocked != 0);
    if text.is_empty() || !blocked || req.is_stopped() {
        return Ok((answer, 0, none));
    }
    let main = Stream::parse(answer.as_ref())?;
    let lacking: Vec<(u32, u32)> = main
        .tasks()
        .filter(|t| text.iter().any(|g| t.reason(g) == Some(Reason::Blocked)))
        .map(|t| (t.pid(), t.tgid()))
        .collect();
    let Ok(procfs) = Procfs::new() else { return Ok((answer, 0, none)) };
    let used = room::bytes_of_text(&main);
    let (more, cost) = read(req, text, &lacking, used, procfs)?;
    let more = Stream::parse(more)?;
    Ok(match replaced(&main, &more, text) {
        Some(tail) => {
            let n = tail.n;
            (tail.put(answer.into_owned(), more.info()).into(), n, cost)
        }
        None => (answer, 0, cost),
    })
}

/// A new end of a stream. Most of a long stream stays unchanged, because missing texts are mostly
/// those of new processes, which come last.
struct Tail {
    /// The number of bytes of the stream that stay.
    at: usize,
    /// The tasks after these bytes.
    tasks: StreamWriter,
    /// The totals of the stream, without those of `tasks`.
    done: Done,
    /// The number of tasks that got their text.
    n: usize,
}

impl Tail {
    /// Replaces the end of the stream. `served`: the engines that provided the texts.
    fn put(self, stream: AlignedBuf, served: &Info) -> AlignedBuf {
        let mut w = StreamWriter::resume(stream, self.at);
        w.mark_served(served);
        w.append(self.tasks);
        w.finish(self.done)
    }
}

/// The answer of procfs about these tasks. `used` bytes of the space for text are used already.
fn read(
    req: &Request,
    groups: Groups,
    lacking: &[(u32, u32)],
    used: u64,
    mut procfs: Procfs,
) -> Result<(AlignedBuf, Cost), Error> {
    let threads = !lacking.iter().all(|(pid, tgid)| pid == tgid);
    let pids: HashSet<u32> = lacking.iter().map(|(_, tgid)| *tgid).collect();
    let ask = |pid| if threads { Request::threads(pid, groups) } else { Request::one(pid, groups) };
    let like = |r: Request| Request {
        groups: groups | Groups::BASE,
        members: Members::of(Groups::BASE, &["start_time_ns"]),
        watch: req.watch.clone(),
        processes: req.processes,
        ..r
    };
    let mut reqs: Vec<Request> = pids.into_iter().map(ask).map(like).collect();
    if reqs.len() > FEW {
        reqs = vec![like(Request::new(req.strategy, req.pid, groups))];
    }
    let (mut streams, mut cost) = (Vec::new(), Cost::default());
    let mut room = Several::new(req.limits, reqs.len(), used);
    for r in reqs {
        match procfs.run(&Request { limits: room.next(req.limits), ..r }) {
            Ok(a) => {
                cost = cost.plus(a.cost);
                let stream = a.stream.into_owned();
                room.spend(&Stream::parse(stream.as_bytes())?, stream.as_bytes().len());
                streams.push(stream);
            }
            Err(Error::NoSuchProcess(_)) => {}
            Err(e) => return Err(e),
        }
    }
    Ok((join::concat(streams)?, cost))
}

/// `main` with BLOCKED texts replaced by those of `more`, from the first task on for which `more`
/// has the same task with its text. `None` if there is no such task.
fn replaced(main: &Stream<&[u8]>, more: &Stream<AlignedBuf>, text: Groups) -> Option<Tail> {
    let by_pid: HashMap<u32, TaskView<'_>> = more.tasks().map(|t| (t.pid(), t)).collect();
    let same = |a: &TaskView<'_>, b: &TaskView<'_>| {
        TaskId::of(a).zip(TaskId::of(b)).is_some_and(|(a, b)| a.is_same(&b))
    };
    let (mut w, mut done, mut n, mut at) = (StreamWriter::new(), *main.done(), 0, 0);
    for t in main.tasks() {
        let other = by_pid.get(&t.pid()).filter(|o| same(&t, o));
        // The replacement for BLOCKED: nothing if /proc has the text, or another reason, or that
        // the task has ended.
        let instead = |g: Group| other.map_or(Some(Reason::Vanished), |o| o.reason(g));
        let found: Vec<Group> = text
            .iter()
            .filter(|g| t.reason(*g) == Some(Reason::Blocked))
            .filter(|g| instead(*g) != Some(Reason::Blocked))
            .collect();
        if found.is_empty() {
            if n > 0 {
                w.raw(t.messages());
            }
            continue;
        }
        if n == 0 {
            at = t.messages().as_ptr().addr() - main.bytes().as_ptr().addr();
        }
        n += 1;
        w.begin_task(t.pid(), t.tgid());
        for (kind, bytes) in t.attrs() {
            // Leave out the beginning of a replaced text, which `main` may have.
            if kind != A_MISSING && !found.iter().any(|g| kind == *g as u16) {
                w.raw_attr(bytes);
            }
        }
        w.raw_attr(&still_missing(&t, &found));
        for (kind, bytes) in other.iter().flat_map(|o| o.attrs()) {
            if found.iter().any(|g| kind == *g as u16) {
                w.raw_attr(bytes);
            }
        }
        for g in &found {
            if let Some(reason) = instead(*g) {
                w.missing(*g, reason);
            }
        }
        w.end_task();
        // The writer counts the task, but it is counted already.
        done.tasks -= 1;
        let rest = t.asked().iter().filter(|g| !found.contains(g));
        let still = rest.into_iter().any(|g| t.reason(g) == Some(Reason::Blocked));
        done.blocked -= u64::from(!still).min(done.blocked);
    }
    (n > 0).then_some(Tail { at, tasks: w, done, n })
}

/// The attribute with the missing groups of a task without those that were found. It is empty if
/// none is left.
fn still_missing(t: &TaskView<'_>, found: &[Group]) -> Vec<u8> {
    let reasons = t.asked().iter().filter(|g| !found.contains(g));
    let entries: Vec<MissingEntry> = reasons
        .filter_map(|g| Some(MissingEntry { group: g as u32, reason: t.reason(g)? as u32 }))
        .collect();
    if entries.is_empty() {
        return Vec::new();
    }
    let len = size_of::<MissingHdr>() + size_of_val(&entries[..]);
    let nla = NlAttr { len: len as u16, kind: A_MISSING };
    let mut attr = MissingHdr { nla, count: entries.len() as u32 }.as_bytes().to_vec();
    attr.extend_from_slice(MissingEntry::slice_as_bytes(&entries));
    attr
}

#[cfg(test)]
mod tests {
    use super::*;
    use taskdiag_wire::{Base, build};

    fn stream(tasks: &[(u32, u64, Result<&str, Reason>)]) -> AlignedBuf {
        let mut w = StreamWriter::new();
        let groups = Groups::BASE | Groups::CMDLINE | Groups::IO;
        w.info(&build!(Info {
            show_flags: groups.bits(),
            clk_tck: 100,
            ..StreamWriter::blank_info()
        }));
        for (pid, start, text) in tasks {
            w.begin_task(*pid, *pid);
            let mut b = Base::new();
            b.valid = Base::ALL_VALID;
            b.start_time_ns = *start;
            w.put(&b);
            w.missing(Group::Io, Reason::Denied);
            match text {
                Ok(text) => w.put_blob(Group::Cmdline as u16, 0, 0, text.as_bytes(), text.len()),
                Err(reason) => w.missing(Group::Cmdline, *reason),
            }
            w.end_task();
        }
        w.finish(Done::default())
    }

    #[test]
    fn blocked_text_is_that_of_the_same_task() {
        let blocked = Err(Reason::Blocked);
        let second = 1_000_000_000;
        let main = stream(&[
            (1, second, Ok("one")),
            (2, second, blocked),
            (3, second, blocked),
            (4, second, blocked),
            (5, second, Err(Reason::Absent)),
        ]);
        // Task 2 is the same within a tick. Task 3 is another one by now, so the requested one has
        // ended. Task 4 is blocked in /proc, too, and 5 was not requested.
        let more = stream(&[
            (2, second + 9_000_000, Ok("two")),
            (3, 2 * second, Ok("another")),
            (4, second, blocked),
            (5, second, Ok("five")),
        ]);
        let (main, more) = (Stream::parse(main.as_bytes()).unwrap(), Stream::parse(more).unwrap());
        assert_eq!((main.done().tasks, main.done().blocked, main.done().denied), (5, 3, 5));
        let tail = replaced(&main, &more, Groups::TEXTS).expect("two texts are there");
        assert_eq!(tail.n, 2);
        let second_task = main.task(2).unwrap().messages().as_ptr().addr();
        assert_eq!(tail.at, second_task - main.bytes().as_ptr().addr());
        let made = tail.put(AlignedBuf::copy_of(main.bytes()), more.info());
        let made = Stream::parse(made).unwrap();
        let d = made.done();
        assert_eq!((d.tasks, d.blocked, d.denied, made.len()), (5, 1, 5, 5));
        let text = |t: &TaskView<'_>| t.cmdline().map(|b| b.data.to_vec());
        let seen: Vec<_> =
            made.tasks().map(|t| (t.pid(), text(&t), t.reason(Group::Cmdline))).collect();
        assert_eq!(
            seen,
            [
                (1, Some(b"one".to_vec()), None),
                (2, Some(b"two".to_vec()), None),
                (3, None, Some(Reason::Vanished)),
                (4, None, Some(Reason::Blocked)),
                (5, None, Some(Reason::Absent)),
            ]
        );
        assert!(made.tasks().all(|t| t.reason(Group::Io) == Some(Reason::Denied)));
    }

    #[test]
    fn identity_is_asked_for_with_text() {
        let (groups, members) = with_identity(Groups::CMDLINE, Members::NONE);
        assert_eq!(groups, Groups::CMDLINE | Groups::BASE);
        assert_eq!(members, Members::of(Groups::BASE, &["start_time_ns"]));
        assert_eq!(with_identity(Groups::STAT, Members::NONE), (Groups::STAT, Members::NONE));
        assert_eq!(with_identity(Groups::TEXTS | Groups::BASE, Members::ALL).1, Members::ALL);
    }
}
