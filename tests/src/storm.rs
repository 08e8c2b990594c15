//! The facts about the tasks of `tests/vm/storm`, and the check of an answer against them.
//!
//! The storm writes into its file `truth` which directories it renames, and which tasks are its
//! sentinels. A sentinel changes its values all the time, but each value names the sentinel (see
//! `tests/vm/storm/sentinels.c`). So a value in an answer is either one that this task could have
//! had, or it is wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use taskdiag::wire::BLOB_DELETED;
use taskdiag::{Base, Blob, Cred, Fd, Group, PathKind, TaskView, Vma, VmaKind};

use crate::Answer;

/// A task whose values are known.
#[derive(Clone, Debug)]
pub struct Sentinel {
    /// Its number.
    pub number: u32,
    /// Has its first thread ended, so that it has no working directory?
    pub is_headless: bool,
    /// The other effective user that the task has at times.
    pub user: u32,
}

/// The content of the storm's file `truth`.
#[derive(Clone, Debug, Default)]
pub struct Truth {
    base: String,
    exe: String,
    parent: u32,
    cgroups: bool,
    /// For each level of directories, from the top, the two names that alternate.
    levels: Vec<[String; 2]>,
    /// Other names of directories.
    rooms: BTreeSet<String>,
    /// The sentinels by process id.
    pub sentinels: BTreeMap<u32, Sentinel>,
}

/// The checks of answers, and the errors found.
#[derive(Debug, Default)]
pub struct Found {
    /// Tasks in answers.
    pub rows: u64,
    /// How many values of sentinels were compared with the facts, by kind.
    pub values: BTreeMap<&'static str, u64>,
    /// How many values of sentinels were missing, by kind and reason.
    pub missing: BTreeMap<String, u64>,
    /// How many values were missing, by kind, although the sentinels have them at nearly all times.
    lost: BTreeMap<&'static str, u64>,
    /// Descriptions of wrong values.
    pub wrong: Vec<String>,
}

impl Found {
    /// Add the findings about another answer.
    pub fn add(&mut self, other: Found) {
        self.rows += other.rows;
        for (kind, n) in other.values {
            *self.values.entry(kind).or_default() += n;
        }
        for (kind, n) in other.missing {
            *self.missing.entry(kind).or_default() += n;
        }
        for (kind, n) in other.lost {
            *self.lost.entry(kind).or_default() += n;
        }
        self.wrong.extend(other.wrong);
    }

    /// Called at the end. A kind of value that was missing more often than not counts as wrong.
    pub fn judge(&mut self) {
        for (kind, lost) in &self.lost {
            let there = self.values.get(kind).copied().unwrap_or_default();
            if *lost > there {
                self.wrong.push(format!("{kind} was there {there} times, and lost {lost} times"));
            }
        }
    }
}

impl Truth {
    /// Read the file `truth` in the directory of a storm, or `None` if it does not exist (yet, or
    /// any more).
    ///
    /// # Panics
    /// If the file is not one that the storm writes.
    pub fn read(base: &Path) -> Option<Truth> {
        std::fs::read_to_string(base.join("truth")).ok().map(|text| Truth::parse(&text))
    }

    fn parse(text: &str) -> Truth {
        let mut truth = Truth::default();
        let number = |word: &str| word.parse::<u32>().expect("a number in the file `truth`");
        for line in text.lines() {
            match line.split(' ').collect::<Vec<_>>()[..] {
                ["base", base] => truth.base = base.into(),
                ["exe", exe] => truth.exe = exe.into(),
                ["parent", pid] => truth.parent = number(pid),
                ["cgroups", there] => truth.cgroups = there == "1",
                ["level", a, b] => truth.levels.push([a.into(), b.into()]),
                ["room", name] => drop(truth.rooms.insert(name.into())),
                ["sentinel", n, pid, kind, user] => {
                    let is_headless = kind == "headless";
                    let one = Sentinel { number: number(n), is_headless, user: number(user) };
                    truth.sentinels.insert(number(pid), one);
                }
                _ => panic!("the file `truth` has a line that is not known: {line}"),
            }
        }
        assert!(!truth.sentinels.is_empty(), "the file `truth` has no sentinel");
        truth
    }

    /// The parent of all sentinels.
    pub fn parent(&self) -> u32 {
        self.parent
    }

    /// The part of a path below the renamed directories, or `None` if the path does not lead
    /// through them.
    fn below<'a>(&self, path: &'a str) -> Option<&'a str> {
        let mut rest = path.strip_prefix(self.base.as_str())?.strip_prefix('/')?;
        for names in &self.levels {
            let (name, more) = rest.split_once('/')?;
            names.iter().find(|n| *n == name)?;
            rest = more;
        }
        Some(rest)
    }

    /// Is this path a directory of this sentinel?
    fn is_place(&self, n: u32, path: &str) -> bool {
        let is = |r: &str| ["a", "b"].iter().any(|x| r == format!("s-{n}-{x}"));
        self.below(path).is_some_and(is)
    }

    /// Is this path the program of this sentinel?
    fn is_program(&self, n: u32, path: &str) -> bool {
        let parts = path.rsplit_once('/');
        parts.is_some_and(|(dir, name)| name == format!("prog-{n}") && self.is_place(n, dir))
    }

    /// Is this path a file of this sentinel? If `which` is given, only the file with that number
    /// counts.
    fn is_file(&self, n: u32, which: Option<u32>, path: &str) -> bool {
        let of = |i: u32| path.strip_suffix(&format!("/f-{n}-{i}"));
        let mut dirs = (0..FILES).filter(|i| which.is_none_or(|w| w == *i)).filter_map(of);
        dirs.any(|dir| self.is_place(n, dir))
    }

    /// Can this sentinel have this path open as this descriptor?
    fn is_open(&self, n: u32, fd: u32, path: &str, deleted: bool) -> bool {
        let place = |x| self.is_place(n, path) && path.ends_with(x) && !deleted;
        let cgroup = |x| path == format!("/sys/fs/cgroup/storm-{n}-{x}/cgroup.procs") && !deleted;
        match fd {
            0..=2 => path == "/dev/null" && !deleted,
            10 => place("-a"),
            11 => place("-b"),
            12 => cgroup("a"),
            13 => cgroup("b"),
            20.. if fd < 20 + FILES => self.is_file(n, Some(fd - 20), path),
            // The file has just been opened, and does not have its final descriptor yet.
            _ => self.is_file(n, None, path),
        }
    }

    /// Can another task of the storm be in this directory?
    fn is_storm_place(&self, path: &str) -> bool {
        let of_base = |name: &str| self.base.split('/').any(|b| b == name);
        let of_level = |name: &str| self.levels.iter().flatten().any(|l| l == name);
        let of_worker = |name: &str| {
            name.strip_prefix("place-").is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()))
        };
        let known = |name: &str| {
            of_base(name) || of_level(name) || of_worker(name) || self.rooms.contains(name)
        };
        let names = path.strip_prefix('/').map(|p| p.split('/').filter(|n| !n.is_empty()));
        names.is_some_and(|mut names| names.all(known))
    }

    /// The number of the sentinel with this command name.
    fn number_of(&self, comm: &[u8]) -> Option<u32> {
        let n = std::str::from_utf8(comm).ok()?.strip_prefix("prog-")?.parse().ok()?;
        self.sentinels.values().any(|s| s.number == n).then_some(n)
    }

    /// Compare an answer with the facts. The processes `must` have to be in it.
    pub fn check(&self, answer: &Answer, must: &[u32], found: &mut Found) {
        for pid in must {
            if !answer.has(*pid) {
                found.wrong.push(format!("{answer} has no sentinel {pid}"));
            }
        }
        let tasks = answer.snapshot.tasks();
        if answer.done.tasks != tasks.len() as u64 {
            found.wrong.push(format!(
                "{answer} has {} tasks, and says {:?}",
                tasks.len(),
                answer.done
            ));
        }
        for view in tasks {
            found.rows += 1;
            let sentinel = self.sentinels.get(&view.tgid());
            // A process whose first thread has ended has no working directory.
            let is_whole = sentinel.is_some_and(|s| !s.is_headless);
            let mut look = Look { truth: self, view, is_whole, answer, found };
            match (sentinel, view.comm()) {
                (Some(s), _) => look.sentinel(s),
                (None, Some(comm)) => match self.number_of(comm) {
                    // This is a child of a sentinel.
                    Some(n) => look.values(n),
                    None if comm == b"storm" => look.storm(),
                    None => {}
                },
                (None, None) => {}
            }
        }
    }
}

/// The number of files of a sentinel, as in sentinels.c.
const FILES: u32 = 8;

/// One task of an answer.
struct Look<'a> {
    truth: &'a Truth,
    view: TaskView<'a>,
    /// Is it a sentinel that has all values at nearly all times?
    is_whole: bool,
    answer: &'a Answer,
    found: &'a mut Found,
}

impl<'a> Look<'a> {
    fn value(&mut self, kind: &'static str, is_right: bool, value: impl FnOnce() -> String) {
        *self.found.values.entry(kind).or_default() += 1;
        if !is_right {
            let comm = self.view.comm().unwrap_or_default().escape_ascii().to_string();
            let (pid, tgid) = (self.view.pid(), self.view.tgid());
            let value = value();
            self.found.wrong.push(format!(
                "{kind} of task {pid} of process {tgid} ({comm}) in {} is {value}",
                self.answer
            ));
        }
    }

    fn missing(&mut self, kind: &'static str, why: impl std::fmt::Display) {
        *self.found.missing.entry(format!("{kind}: {why}")).or_default() += 1;
        if self.is_whole {
            *self.found.lost.entry(kind).or_default() += 1;
        }
    }

    fn blob(
        &mut self,
        kind: &'static str,
        group: Group,
        blob: Option<Blob<'_>>,
        is: impl Fn(&str, bool) -> bool,
    ) {
        if !self.view.asked().has(group) {
            return;
        }
        let Some(b) = blob else {
            let reason = self.view.reason(group);
            return self.missing(kind, reason.map_or("no reason".into(), |r| r.to_string()));
        };
        if let Some(reason) = b.reason {
            return self.missing(kind, reason);
        }
        // During an exec there are no arguments yet.
        if b.data.is_empty() && matches!(group, Group::Cmdline | Group::Environ) {
            return self.missing(kind, "empty");
        }
        let deleted = b.flags & BLOB_DELETED != 0;
        let right = std::str::from_utf8(&b.data).is_ok_and(|text| is(text, deleted));
        self.value(kind, right && !b.is_cut(), || {
            format!("\"{}\", flags {:#x}", b.data.escape_ascii(), b.flags)
        });
    }

    /// Check a sentinel, or a thread of one.
    fn sentinel(&mut self, s: &Sentinel) {
        if let Some(comm) = self.view.comm() {
            let right = comm == format!("prog-{}", s.number).as_bytes();
            self.value("comm", right, || format!("\"{}\"", comm.escape_ascii()));
        }
        if let Some(base) = self.view.record::<Base>() {
            if let Some(ppid) = base.ppid() {
                let parent = self.truth.parent;
                self.value("ppid", ppid == parent, || format!("{ppid}, not {parent}"));
            }
        }
        if let Some(c) = self.view.record::<Cred>() {
            let user = s.user;
            let (uid, suid) = (c.uid(), c.suid());
            let (euid, fsuid) = (c.euid(), c.fsuid());
            let right = [uid, suid].iter().flatten().all(|u| *u == 0)
                && [euid, fsuid].iter().flatten().all(|u| *u == 0 || *u == user);
            self.value("user", right, || format!("{uid:?} {euid:?} {suid:?} {fsuid:?}"));
        }
        self.values(s.number);
    }

    /// Check the values that a sentinel and its children have.
    fn values(&mut self, n: u32) {
        let (t, v) = (self.truth, self.view);
        for kind in [PathKind::Cwd, PathKind::Root] {
            let name = if kind == PathKind::Cwd { "cwd" } else { "root" };
            let is = |path: &str, deleted: bool| t.is_place(n, path) && !deleted;
            self.blob(name, Group::Paths, v.path(kind), is);
        }
        let is = |path: &str, deleted: bool| t.is_program(n, path) && !deleted;
        self.blob("exe", Group::Paths, v.path(PathKind::Exe), is);
        self.blob("cmdline", Group::Cmdline, v.cmdline(), |text, _| {
            let mut words = text.split('\0');
            let mut next = || words.next().unwrap_or_default();
            next() == "sentinel"
                && next() == n.to_string()
                && matches!(next(), "headless" | "threads" | "alone")
                && matches!(next(), "a" | "b")
                && next().is_empty()
        });
        let variable = format!("SENTINEL={n}\0");
        self.blob("environ", Group::Environ, v.environ(), |text, _| text == variable);
        if t.cgroups && v.asked().has(Group::Cgroup) && !v.cgroups().any(|c| c.0 == 0) {
            self.missing(
                "cgroup",
                v.reason(Group::Cgroup).map_or("no reason".into(), |r| r.to_string()),
            );
        }
        // fork(2) adds a task to the list of tasks before it moves it from the machine's first
        // cgroup to its parent's (copy_process(), cgroup_post_fork()). /proc shows that, too. A
        // sentinel itself has long been forked.
        let may_be_in_fork = !t.sentinels.contains_key(&v.tgid());
        for (hierarchy, path) in v.cgroups().filter(|c| c.0 == 0 && t.cgroups) {
            if may_be_in_fork && path.strip_prefix(b":").unwrap_or(path) == b"/" {
                self.missing("cgroup", "in fork");
                continue;
            }
            let right = [b'a', b'b'].iter().any(|x| {
                path.strip_prefix(b":").unwrap_or(path)
                    == format!("/storm-{n}-{}", char::from(*x)).as_bytes()
            });
            self.value("cgroup", right, || format!("{hierarchy}:{}", path.escape_ascii()));
        }
        self.files(n);
        self.mappings(n);
    }

    /// The task whose message has this list. If the list is shared, that is another task of the
    /// same sentinel.
    fn owner(&mut self, group: Group, kind: &'static str) -> Option<TaskView<'a>> {
        if !self.view.asked().has(group) {
            return None;
        }
        if let Some(reason) = self.view.reason(group) {
            self.missing(kind, reason);
            return None;
        }
        let owner = self.view.owner(group);
        if owner.is_none() {
            self.value(kind, false, || "shared with a task that is not in the answer".into());
        }
        owner
    }

    /// Check the open files.
    fn files(&mut self, n: u32) {
        let Some(owner) = self.owner(Group::Fd, "fd") else { return };
        let mut entries = owner.list::<Fd>().into_iter().flatten().peekable();
        if entries.peek().is_none() {
            self.missing("fd", "none");
        }
        for e in entries {
            let (Some(fd), Some(number)) = (e.fd(), e.name()) else { continue };
            let Some((name, deleted)) = named(&owner, number) else {
                self.missing("fd", "no name");
                continue;
            };
            let right = self.truth.is_open(n, fd, &name, deleted);
            self.value("fd", right, || format!("{fd} -> \"{}\", {deleted}", name.escape_debug()));
        }
    }

    /// Check the mappings of files.
    fn mappings(&mut self, n: u32) {
        let Some(owner) = self.owner(Group::Vma, "mapping") else { return };
        let mut entries = owner.list::<Vma>().into_iter().flatten().peekable();
        if entries.peek().is_none() {
            self.missing("mapping", "none");
        }
        for e in entries {
            let (Some(kind), Some(number)) = (e.kind(), e.name()) else { continue };
            if kind != VmaKind::File as u32 {
                continue;
            }
            let Some((name, deleted)) = named(&owner, number) else {
                self.missing("mapping", "no name");
                continue;
            };
            let t = self.truth;
            let right = t.is_file(n, None, &name) || t.is_program(n, &name) && !deleted;
            let start = e.start().unwrap_or_default();
            self.value("mapping", right, || format!("{start:#x} \"{}\"", name.escape_debug()));
        }
    }

    /// Check another task of the storm, which is somewhere below the storm's directory.
    fn storm(&mut self) {
        let (t, v) = (self.truth, self.view);
        for kind in [PathKind::Cwd, PathKind::Root] {
            let is = |path: &str, _| t.is_storm_place(path);
            self.blob("place of the storm", Group::Paths, v.path(kind), is);
        }
        let is = |path: &str, _| path == t.exe;
        self.blob("exe of the storm", Group::Paths, v.path(PathKind::Exe), is);
    }
}

/// The name with this number, and whether the file is deleted.
fn named(owner: &TaskView<'_>, number: u32) -> Option<(String, bool)> {
    let blob = owner.name(number)?;
    Some((String::from_utf8_lossy(&blob.data).into_owned(), blob.flags & BLOB_DELETED != 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn truth() -> Truth {
        Truth::parse(
            "base /t/storm\nexe /lab/storm\nparent 5\ncgroups 1\nlevel up-a up-bb\nlevel left right\n\
             level mid-c mid-dd\nroom room-e\nsentinel 3 70 headless 10003\nsentinel 4 71 alone 10004\n",
        )
    }

    #[test]
    fn only_the_places_of_a_sentinel_are_right() {
        let t = truth();
        assert!(t.is_place(3, "/t/storm/up-a/right/mid-dd/s-3-a"));
        assert!(t.is_place(3, "/t/storm/up-bb/left/mid-c/s-3-b"));
        for wrong in [
            "/t/storm/up-a/right/mid-dd/s-4-a", // the place of another sentinel
            "/t/storm/up-bbb/left/mid-c/s-3-b", // two names mixed
            "/t/storm/left/mid-c/s-3-b",
            "/up-a/right/mid-dd/s-3-a",
            "/t/storm/up-a/right/mid-dd/s-3-a/",
            "/t/storm/up-a/right/mid-dd/s-3-",
            "kkkkkkkk",
            "/",
            "",
        ] {
            assert!(!t.is_place(3, wrong), "{wrong}");
        }
        assert!(t.is_program(4, "/t/storm/up-a/right/mid-dd/s-4-a/prog-4"));
        assert!(!t.is_program(4, "/t/storm/up-a/right/mid-dd/s-4-a/prog-3"));
        assert!(!t.is_program(4, "/t/storm/up-a/right/mid-dd/s-3-a/prog-4"));
    }

    #[test]
    fn a_file_belongs_to_its_descriptor() {
        let t = truth();
        let dir = "/t/storm/up-a/left/mid-c/s-4-b";
        assert!(t.is_open(4, 20, &format!("{dir}/f-4-0"), true));
        assert!(t.is_open(4, 5, &format!("{dir}/f-4-7"), false));
        assert!(!t.is_open(4, 21, &format!("{dir}/f-4-0"), false));
        assert!(!t.is_open(4, 28, &format!("{dir}/f-4-8"), false));
        assert!(t.is_open(4, 11, dir, false) && !t.is_open(4, 10, dir, false));
        assert!(!t.is_open(4, 11, dir, true));
        assert!(t.is_open(4, 0, "/dev/null", false) && !t.is_open(4, 3, "/dev/null", false));
        assert!(t.is_open(4, 13, "/sys/fs/cgroup/storm-4-b/cgroup.procs", false));
    }

    #[test]
    fn values_that_are_mostly_missing_are_wrong() {
        let mut found = Found::default();
        found.values.insert("cwd", 10);
        found.lost.insert("cwd", 10);
        found.judge();
        assert_eq!(found.wrong, Vec::<String>::new());
        found.lost.insert("root", 1);
        found.judge();
        assert_eq!(found.wrong.len(), 1);
    }

    #[test]
    fn the_storm_stays_in_its_rooms() {
        let t = truth();
        for right in ["/", "/t/storm", "/t/storm/place-7/room-e", "/room-e"] {
            assert!(t.is_storm_place(right), "{right}");
        }
        for wrong in ["", "t/storm", "/t/storm/place-7/room-f", "/proc", "/place-x"] {
            assert!(!t.is_storm_place(wrong), "{wrong}");
        }
    }
}
