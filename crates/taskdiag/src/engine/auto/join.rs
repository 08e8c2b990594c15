//! Joins streams: several answers one after the other, or the groups of one engine added to the
//! tasks of another. It works on bytes, so values stay as the engines wrote them.
//!
//! Two kinds of references in a stream need care. Numbers of names may be the same in two answers
//! of one engine. And a task may share a value with another one that is not in the joined answer.
//! `refs` finds both kinds.

use std::collections::{HashMap, HashSet};

use taskdiag_wire::decode::first_pid;
use taskdiag_wire::registry::group_of;
use taskdiag_wire::{
    A_COMM, A_MISSING, A_NAME, A_SHARED, AlignedBuf, Base, Done, Group, Groups, Info, NlMsgHdr,
    Reason, Stream, StreamWriter, TaskView, build,
};

use super::refs::{KnownNames, NameNumbers, Renumber, number_of, patched, shared};
use crate::bytes::Bytes;
use crate::error::Error;
use crate::task_id::TaskId;

/// The totals of two streams over different tasks.
pub(super) fn sum(a: &Done, b: &Done) -> Done {
    build!(Done {
        error: if a.error != 0 { a.error } else { b.error },
        reserved: 0,
        tasks: a.tasks + b.tasks,
        denied: a.denied + b.denied,
        vanished: a.vanished + b.vanished,
        blocked: a.blocked + b.blocked,
        truncated: a.truncated + b.truncated,
        over_budget: a.over_budget + b.over_budget,
    })
}

/// The head of an answer that is joined from two: the first one, with the engines of both.
pub(super) fn both_infos(a: &Info, b: &Info) -> Info {
    build!(Info {
        show_flags: a.show_flags | b.show_flags,
        kernel_groups: a.kernel_groups | b.kernel_groups,
        bpf_groups: a.bpf_groups | b.bpf_groups,
        procfs_groups: a.procfs_groups | b.procfs_groups,
        ..*a
    })
}

/// All tasks of `streams`, in order. A pid that an earlier stream has is left out.
pub fn concat(streams: Vec<AlignedBuf>) -> Result<AlignedBuf, Error> {
    let mut joined = Joined::default();
    for stream in streams {
        joined.add(&Stream::parse(stream)?);
    }
    Ok(joined.finish())
}

/// A stream that is joined from others one after the other, so that only one of the others is in
/// memory at a time. A name that several streams have is in the result once.
#[derive(Debug, Default)]
pub(super) struct Joined {
    w: StreamWriter,
    info: Option<Info>,
    done: Done,
    numbers: NameNumbers,
    names: KnownNames,
    /// The tasks so far. Each has the tasks that it shares a group with.
    seen: HashMap<u32, Vec<(Group, u32)>>,
}

impl Joined {
    /// Nothing was added yet.
    pub(super) fn is_empty(&self) -> bool {
        self.info.is_none()
    }
    /// How many bytes it has so far.
    pub(super) fn len(&self) -> usize {
        self.w.len()
    }

    /// Adds a head and totals.
    pub(super) fn head(&mut self, info: &Info, done: &Done) {
        match &mut self.info {
            Some(all) => *all = both_infos(all, info),
            none => {
                self.w.info(info);
                *none = Some(*info);
            }
        }
        self.done = sum(&self.done, done);
    }

    /// Adds the tasks of a stream. A pid that was added already is left out.
    pub(super) fn add<B: AsRef<[u8]>>(&mut self, s: &Stream<B>) {
        let mut d = *s.done();
        self.head(s.info(), &Done::default());
        let known = self.names.of(s);
        let map = self.numbers.admit(s).with(&known);
        let is_known = |a: &(u16, &[u8])| a.0 == A_NAME && known.contains_key(&number_of(a.1));
        let mut names = Vec::new();
        let mut new = HashMap::new();
        for t in s.tasks() {
            if self.seen.contains_key(&t.pid()) {
                d.tasks -= 1;
                names.extend(t.attrs().filter(|a| a.0 == A_NAME && !is_known(a)).map(|a| a.1));
                continue;
            }
            // The owner of a shared value may be in an earlier stream, where it may share the value
            // with yet another task.
            let pid_of = |g: Group, pid: u32| {
                let shared = self.seen.get(&pid).and_then(|all| all.iter().find(|s| s.0 == g));
                shared.map_or(pid, |s| s.1)
            };
            let messages = patched(t.messages(), t.attrs(), &map, pid_of);
            if t.attrs().any(|a| is_known(&a)) {
                // The task is counted again here.
                d.tasks -= 1;
                self.w.begin_task(t.pid(), t.tgid());
                for attr in t.attrs().filter(|a| !is_known(a)).map(|a| a.1) {
                    let at = attr.as_ptr().addr() - t.messages().as_ptr().addr();
                    self.w.raw_attr(&messages[at..at + attr.len()]);
                }
                self.w.end_task();
            } else {
                self.w.raw(&messages);
            }
            for attr in t.attrs().filter(|a| a.0 == A_NAME && !is_known(a)).map(|a| a.1) {
                self.names.add(&map.attr(A_NAME, attr));
            }
            if !names.is_empty() {
                self.w.continue_task(t.pid(), t.tgid());
                for name in names.drain(..).map(|n| map.attr(A_NAME, n)) {
                    self.names.add(&name);
                    self.w.raw_attr(&name);
                }
                self.w.end_task();
            }
            let shared = t.attrs().filter(|a| a.0 == A_SHARED).map(|a| shared(a.1));
            let shared = shared.filter_map(|s| Some((Group::from_number(s.group)?, s.pid)));
            new.entry(t.pid()).or_insert_with(|| shared.collect());
        }
        self.seen.extend(new);
        self.done = sum(&self.done, &d);
    }

    /// The whole stream.
    pub(super) fn finish(mut self) -> AlignedBuf {
        if let Some(info) = &self.info {
            self.w.replace_info(info);
        }
        self.w.finish(self.done)
    }
}

/// Appends the tasks of `more` to `main`, in place. No task may be in both.
pub fn append(main: Bytes, more: &[u8]) -> Result<Bytes, Error> {
    let more = Stream::parse(more)?;
    let messages: Vec<u8> = more.tasks().flat_map(|t| t.messages()).copied().collect();
    let mut main = main;
    if main.append(&messages, more.done(), more.info()) {
        return Ok(main);
    }
    let Some((mut w, done)) = StreamWriter::reopen(main.into_owned()) else {
        return Err(taskdiag_wire::Error::Cut(0).into());
    };
    w.mark_served(more.info());
    w.raw(&messages);
    Ok(w.finish(sum(&done, more.done())).into())
}

/// [`add_groups`] for answers about one task that have no group in common. It works in place if
/// `more` has no references.
pub fn add_to_one(main: Bytes, more: &[u8]) -> Result<Bytes, Error> {
    let added = Stream::parse(more)?;
    let tasks: Vec<_> = added.tasks().collect();
    let plain = |t: &TaskView<'_>| t.attrs().all(|a| a.0 != A_NAME && a.0 != A_SHARED);
    let mut main = main;
    match &tasks[..] {
        [task]
            if main.may_grow() && first_pid(main.as_ref()) == Some(task.pid()) && plain(task) =>
        {
            let mut w = StreamWriter::new();
            w.continue_task(task.pid(), task.tgid());
            task.attrs().for_each(|a| w.raw_attr(a.1));
            w.end_task();
            let messages = w.finish(Done::default());
            let len = messages.len() - size_of::<NlMsgHdr>() - size_of::<Done>();
            // The task is counted already.
            let totals = build!(Done { tasks: 0, ..*added.done() });
            if main.append(&messages.as_bytes()[..len], &totals, added.info()) {
                return Ok(main);
            }
        }
        _ => {}
    }
    Ok(add_groups(main.as_ref(), more)?.into())
}

/// The tasks of `main`, each with the groups that `more` has for the same task. If `more` does not
/// have the task, or only a new process with the same pid but another start time, the groups of
/// `more` are marked as vanished, or as stopped if `more` ended early. If a task of `more` is not
/// in `main`, its names and the values that others share with it are kept.
pub fn add_groups(main: &[u8], more: &[u8]) -> Result<AlignedBuf, Error> {
    let (main, more) = (Stream::parse(main)?, Stream::parse(more)?);
    let by_pid: HashMap<u32, TaskView<'_>> = more.tasks().map(|t| (t.pid(), t)).collect();
    let same = |t: &TaskView<'_>| {
        by_pid.get(&t.pid()).copied().filter(|o| match (TaskId::of(t), TaskId::of(o)) {
            (Some(a), Some(b)) => a.is_same(&b),
            _ => true,
        })
    };
    // If `more` ended early, so does the joined answer, and it is not known which tasks have
    // vanished.
    let error = more.done().error;
    let absent = if error == 0 { Reason::Vanished } else { Reason::Stopped };
    let mut numbers = NameNumbers::default();
    numbers.admit(&main);
    let mut adder = Adder {
        new: more.asked() - main.asked(),
        has_base: main.asked().has(Group::Base),
        map: numbers.admit(&more),
        kept: main.tasks().filter_map(|t| same(&t)).map(|t| t.pid()).collect(),
        by_pid: &by_pid,
        heirs: HashMap::new(),
        w: StreamWriter::with_capacity(main.bytes().len() + more.bytes().len()),
    };
    adder.w.info(&both_infos(main.info(), more.info()));
    let mut orphans: Vec<_> = more.tasks().filter(|t| !adder.kept.contains(&t.pid())).collect();
    for t in main.tasks() {
        adder.w.raw(t.messages());
        adder.w.continue_task(t.pid(), t.tgid());
        for lost in orphans.drain(..) {
            for (kind, name) in lost.attrs().filter(|a| a.0 == A_NAME) {
                adder.w.raw_attr(&adder.map.attr(kind, name));
            }
        }
        match same(&t) {
            Some(o) => adder.add(&o),
            None => adder.new.iter().for_each(|g| adder.w.missing(g, absent)),
        }
        adder.w.end_task();
    }
    let error = if main.done().error != 0 { main.done().error } else { error };
    let truncated = main.done().truncated + more.done().truncated;
    Ok(adder.w.finish(build!(Done { error, truncated, ..*main.done() })))
}

/// The state of [`add_groups`].
struct Adder<'a> {
    /// Groups to add.
    new: Groups,
    has_base: bool,
    map: Renumber,
    /// Tasks of the added stream that are in the answer.
    kept: HashSet<u32>,
    by_pid: &'a HashMap<u32, TaskView<'a>>,
    /// Maps a group and a task that is not in the answer to the task that got its value.
    heirs: HashMap<(u32, u32), u32>,
    w: StreamWriter,
}

impl Adder<'_> {
    /// Add the attributes of the other stream to the open task.
    fn add(&mut self, o: &TaskView<'_>) {
        for (kind, bytes) in o.attrs() {
            match kind {
                A_MISSING => {}
                Base::TYPE | A_COMM if self.has_base => {}
                A_SHARED => self.share(o.pid(), bytes),
                _ => self.w.raw_attr(&self.map.attr(kind, bytes)),
            }
        }
        for g in self.new.iter() {
            if let Some(reason) = o.reason(g) {
                self.w.missing(g, reason);
            }
        }
    }

    /// Task `pid` shares a group with another task. If that one is not in the answer, the first
    /// task that shares the group gets the value, and the others share it with that task.
    fn share(&mut self, pid: u32, bytes: &[u8]) {
        let s = shared(bytes);
        let Some(group) = Group::from_number(s.group).filter(|_| !self.kept.contains(&s.pid))
        else {
            return self.w.raw_attr(bytes);
        };
        if let Some(heir) = self.heirs.get(&(s.group, s.pid)) {
            return self.w.shared(group, *heir);
        }
        let Some(lost) = self.by_pid.get(&s.pid) else {
            return self.w.missing(group, Reason::Vanished);
        };
        self.heirs.insert((s.group, s.pid), pid);
        for (kind, bytes) in lost.attrs().filter(|a| group_of(a.0) == Some(group)) {
            self.w.raw_attr(&self.map.attr(kind, bytes));
        }
        if let Some(reason) = lost.reason(group) {
            self.w.missing(group, reason);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use taskdiag_wire::{Fd, Io, Socket, Vma};

    fn stream(groups: Groups, tasks: &[(u32, u64)], io: Option<u64>) -> AlignedBuf {
        let mut w = StreamWriter::new();
        w.info(&build!(Info {
            show_flags: groups.bits(),
            clk_tck: 100,
            ..StreamWriter::blank_info()
        }));
        for (pid, start) in tasks {
            w.begin_task(*pid, *pid);
            let mut b = Base::new();
            b.valid = Base::ALL_VALID;
            b.start_time_ns = *start;
            w.put(&b);
            match io {
                Some(rchar) => {
                    let mut i = Io::new();
                    i.valid = 1;
                    i.rchar = rchar;
                    w.put(&i);
                }
                None if groups.has(Group::Io) => w.missing(Group::Io, Reason::Denied),
                None => {}
            }
            w.end_task();
        }
        w.finish(Done::default())
    }

    #[test]
    fn groups_are_added_to_the_same_task_only() {
        let main = stream(Groups::BASE, &[(1, 5_000_000), (2, 70_000_000), (3, 0)], None);
        // Task 1 is the same within a tick, 2 is another process, 3 is gone, and 4 is new.
        let more = stream(Groups::BASE | Groups::IO, &[(1, 0), (2, 0), (4, 0)], Some(9));
        let s = Stream::parse(add_groups(main.as_bytes(), more.as_bytes()).unwrap()).unwrap();
        assert_eq!(s.len(), 3);
        assert_eq!(s.asked(), Groups::BASE | Groups::IO);
        let t: Vec<_> = s.tasks().collect();
        assert_eq!(t[0].record::<Io>().unwrap().rchar(), Some(9));
        assert_eq!(t[0].record::<Base>().unwrap().raw().start_time_ns, 5_000_000);
        assert_eq!(t[0].attrs().filter(|a| a.0 == Base::TYPE).count(), 1);
        for gone in &t[1..] {
            assert!(gone.record::<Io>().is_none());
            assert_eq!(gone.reason(Group::Io), Some(Reason::Vanished));
        }
    }

    #[test]
    fn a_join_with_a_stopped_answer_is_incomplete() {
        let main = stream(Groups::BASE, &[(1, 0), (2, 0)], None);
        let all = stream(Groups::BASE | Groups::IO, &[(1, 0)], Some(9));
        let mut w = StreamWriter::new();
        let all = Stream::parse(all).unwrap();
        w.info(all.info());
        w.raw(all.get(0).unwrap().messages());
        let more = w.finish(build!(Done { error: -libc::EINTR, ..*all.done() }));
        let s = Stream::parse(add_groups(main.as_bytes(), more.as_bytes()).unwrap()).unwrap();
        assert_eq!((s.len(), s.done().error), (2, -libc::EINTR));
        let t: Vec<_> = s.tasks().collect();
        assert_eq!(t[0].record::<Io>().unwrap().rchar(), Some(9));
        assert_eq!(t[1].reason(Group::Io), Some(Reason::Stopped));
    }

    #[test]
    fn reasons_are_carried_over() {
        let main = stream(Groups::BASE, &[(1, 0)], None);
        let more = stream(Groups::BASE | Groups::IO, &[(1, 0)], None);
        let s = Stream::parse(add_groups(main.as_bytes(), more.as_bytes()).unwrap()).unwrap();
        assert_eq!(s.get(0).unwrap().reason(Group::Io), Some(Reason::Denied));
        assert_eq!(s.done().denied, 1);
    }

    #[test]
    fn appending_adds_tasks_and_their_engines() {
        let a = stream(Groups::BASE, &[(2, 0), (3, 0)], None);
        let mut w = StreamWriter::new();
        w.info(&build!(Info { procfs_groups: 1, ..StreamWriter::blank_info() }));
        w.begin_task(1, 1);
        w.end_task();
        let s =
            Stream::parse(append(a.into(), w.finish(Done::default()).as_bytes()).unwrap()).unwrap();
        assert_eq!(s.tasks().map(|t| t.pid()).collect::<Vec<_>>(), [2, 3, 1]);
        assert_eq!(s.info().procfs_groups, 1);
        assert_eq!(s.asked(), Groups::BASE);
    }

    #[test]
    fn concatenation_keeps_each_task_once() {
        let a = stream(Groups::BASE, &[(1, 0), (2, 0)], None);
        let b = stream(Groups::BASE, &[(2, 0), (3, 0)], None);
        let s = Stream::parse(concat(vec![a, b]).unwrap()).unwrap();
        assert_eq!(s.tasks().map(|t| t.pid()).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(s.done().tasks, 3);
    }

    /// A stream about files: each task has one file with a name, or shares another task's table.
    fn files(tasks: &[(u32, Result<&str, u32>)]) -> AlignedBuf {
        let mut w = StreamWriter::new();
        let info = build!(Info { show_flags: Groups::FD.bits(), ..StreamWriter::blank_info() });
        w.info(&info);
        for (n, (pid, what)) in (0x3000_0001..).zip(tasks) {
            w.begin_task(*pid, *pid);
            match what {
                Ok(name) => {
                    w.put_name(n, 0, name.as_bytes());
                    w.put_list(Fd::ALL_VALID, &[build!(Fd { fd: 5, name: n, ..Fd::default() })]);
                    w.put_list(
                        Socket::ALL_VALID,
                        &[build!(Socket { name: n, ..Socket::default() })],
                    );
                }
                Err(other) => w.shared(Group::Fd, *other),
            }
            w.end_task();
        }
        w.finish(Done::default())
    }

    /// Parses what [`files`] wrote: the name of the file, or the task that shares its table.
    fn file_of(t: &TaskView<'_>) -> Result<String, u32> {
        let text =
            |n: Option<u32>| String::from_utf8(t.name(n.unwrap()).unwrap().data.to_vec()).unwrap();
        match t.shared(Group::Fd) {
            Some(pid) => Err(pid),
            None => {
                let name = text(t.list::<Fd>().unwrap().next().unwrap().name());
                assert_eq!(text(t.list::<Socket>().unwrap().next().unwrap().name()), name);
                Ok(name)
            }
        }
    }

    #[test]
    fn names_of_two_answers_stay_apart() {
        let s = concat(vec![files(&[(1, Ok("a")), (2, Ok("b"))]), files(&[(3, Ok("c"))])]).unwrap();
        let s = Stream::parse(s).unwrap();
        let got: Vec<_> = s.tasks().map(|t| file_of(&t).unwrap()).collect();
        assert_eq!(got, ["a", "b", "c"]);
    }

    #[test]
    fn a_name_of_several_answers_is_in_the_joined_one_once() {
        let long = "x".repeat(3000);
        let of = |pids: [u32; 2]| files(&pids.map(|pid| (pid, Ok(long.as_str()))));
        let one = concat(vec![of([1, 2])]).unwrap().as_bytes().len();
        let s = concat((0..10).map(|n| of([2 * n + 1, 2 * n + 2])).collect()).unwrap();
        assert!(s.as_bytes().len() < one + 9 * 2 * 500, "{one} and {}", s.as_bytes().len());
        let s = Stream::parse(s).unwrap();
        let got: Vec<_> = s.tasks().map(|t| (t.pid(), file_of(&t).unwrap())).collect();
        let wanted: Vec<_> = (1..=20).map(|pid| (pid, long.clone())).collect();
        assert_eq!(got, wanted);
        assert_eq!(s.done().tasks, 20);
    }

    #[test]
    fn a_task_that_is_left_out_leaves_its_names_and_shared_values() {
        let first = files(&[(1, Ok("a")), (2, Err(1))]);
        // Task 4 uses the name that comes with 2. Task 3 shares with 2, which shares with 1.
        let mut w = StreamWriter::new();
        w.info(&build!(Info { show_flags: Groups::FD.bits(), ..StreamWriter::blank_info() }));
        w.begin_task(2, 2);
        w.put_name(0x3000_0001, 0, b"z");
        w.end_task();
        w.begin_task(3, 3);
        w.shared(Group::Fd, 2);
        w.end_task();
        w.begin_task(4, 4);
        let n = 0x3000_0001;
        w.put_list(Fd::ALL_VALID, &[build!(Fd { name: n, ..Fd::default() })]);
        w.put_list(Socket::ALL_VALID, &[build!(Socket { name: n, ..Socket::default() })]);
        w.end_task();
        let s = concat(vec![first, w.finish(Done::default())]).unwrap();
        let s = Stream::parse(s).unwrap();
        let got: Vec<_> = s.tasks().map(|t| (t.pid(), file_of(&t))).collect();
        let a = (1, Ok(String::from("a")));
        assert_eq!(got, [a, (2, Err(1)), (3, Err(1)), (4, Ok(String::from("z")))]);
        assert_eq!(s.done().tasks, 4);
    }

    #[test]
    fn values_shared_with_a_missing_task_are_kept() {
        let main = stream(Groups::BASE, &[(2, 0), (3, 0), (4, 0), (5, 0)], None);
        // Task 1 is not in the main stream.
        let more = files(&[(1, Ok("a")), (2, Err(1)), (3, Err(1)), (5, Err(9))]);
        let s = Stream::parse(add_groups(main.as_bytes(), more.as_bytes()).unwrap()).unwrap();
        let t: Vec<_> = s.tasks().collect();
        assert_eq!(file_of(&t[0]), Ok(String::from("a")));
        assert_eq!(file_of(&t[1]), Err(2));
        assert_eq!(t[2].reason(Group::Fd), Some(Reason::Vanished));
        assert_eq!(
            (t[3].reason(Group::Fd), t[3].shared(Group::Fd)),
            (Some(Reason::Vanished), None)
        );
    }

    #[test]
    fn names_of_an_added_group_stay_apart() {
        let main = files(&[(1, Ok("a")), (2, Ok("b"))]);
        let mut w = StreamWriter::new();
        w.info(&build!(Info { show_flags: Groups::VMA.bits(), ..StreamWriter::blank_info() }));
        for (pid, n, name) in [(7, 0x3000_0001, "lost"), (1, 0x3000_0002, "own")] {
            w.begin_task(pid, pid);
            w.put_name(n, 0, name.as_bytes());
            let v = |name| build!(Vma { name, ..Vma::default() });
            w.put_list(Vma::ALL_VALID, &[v(0x3000_0001), v(n), v(0)]);
            w.end_task();
        }
        let more = w.finish(Done::default());
        let s = Stream::parse(add_groups(main.as_bytes(), more.as_bytes()).unwrap()).unwrap();
        let t: Vec<_> = s.tasks().collect();
        assert_eq!((file_of(&t[0]), file_of(&t[1])), (Ok("a".into()), Ok("b".into())));
        let vmas = t[0].list::<Vma>().unwrap().map(|v| v.name().unwrap());
        let names: Vec<_> = vmas.map(|n| t[0].name(n).map(|b| b.data.to_vec())).collect();
        assert_eq!(names, [Some(b"lost".to_vec()), Some(b"own".to_vec()), None]);
    }
}
