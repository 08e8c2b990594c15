//! What to ask.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use taskdiag_wire::layout::bit;
use taskdiag_wire::{Base, Cred, Group, Groups, Stat, Statm, Strategy};

use crate::watch::Watch;

/// A request names the tasks, and the groups of attributes to read of each.
///
/// A request is made with [`Request::all`], [`Request::one`] and so on. The `with_*` methods give
/// one that differs in one respect, and members can be set. Later versions may have more members,
/// so a request cannot be written out as a struct outside of this crate.
///
/// A request owns what it holds and is `Send`, so it can be asked in another thread and
/// [stopped](Watch::stop) from this one:
///
/// ```
/// use std::sync::Arc;
/// use taskdiag::{Groups, Request, Watch};
///
/// # fn main() -> Result<(), taskdiag::Error> {
/// let watch = Arc::new(Watch::new());
/// let request = Request::all(Groups::BASE).with_watch(watch.clone());
/// let answer = std::thread::spawn(move || taskdiag::query(&request));
/// watch.stop();
/// let snapshot = answer.join().expect("it does not panic")?;
/// println!("{} tasks, ended with {}", snapshot.tasks().len(), snapshot.stream().done().error);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Request {
    /// Which tasks.
    pub strategy: Strategy,
    /// The process that ONE, CHILDREN and THREAD are about; otherwise 0.
    pub pid: u32,
    /// Which groups.
    pub groups: Groups,
    /// Leave out VMA_STAT and ROLLUP of processes with more resident memory than this, and report
    /// that ([`Reason::OverBudget`](crate::Reason::OverBudget)). Reading them takes milliseconds a
    /// GiB, for which the process cannot change its mappings.
    pub max_rss_bytes: Option<NonZeroU64>,
    /// Time for all VMA_STAT and ROLLUP of the answer together; the rest is left out, and the
    /// answer reports that. The time is checked before each process, and within VMA_STAT. The
    /// kernel makes ROLLUP of a process in one piece, so one that began in time is finished.
    pub budget: Option<Duration>,
    /// The members of BASE, CRED, STAT and STATM that are needed; others may be unknown in the
    /// answer.
    pub members: Members,
    /// Limits for data that any user can make large.
    pub limits: ByteLimits,
    /// The processes to include, by their ids, for a strategy that lists processes. Only the bpf
    /// and procfs engines can leave out the others.
    pub processes: Processes,
    /// How old an answer of the service may be, so that callers who ask at about the same time
    /// share one. Zero, which is the default, demands an answer that was begun after the request.
    /// Other engines make a new answer for each request.
    pub max_age: Duration,
    /// Counts the finished tasks, and may end the answer early. Several requests may share one
    /// watch.
    pub watch: Option<Arc<Watch>>,
}

/// Limits for data that any user can make large. Values over the limits are cut and marked: the
/// value keeps its true length, and DONE counts the task as truncated. All other values of the
/// answer are complete.
///
/// Arguments and environments cost a process nothing, because fork() shares them: without limits, a
/// user with 6 MB of memory could make each answer about all processes take gigabytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ByteLimits {
    /// The limit for one text, which is CMDLINE or ENVIRON of a task, in bytes.
    pub text_bytes: u32,
    /// The approximate limit for all texts of the answer, in bytes. Users share it, so that none
    /// can use up the space of others: a user gets complete texts while the remaining space is
    /// larger than the space that this user has taken, then the first 4 KiB of each, and finally
    /// the first 256 bytes. Each task gets these last 256 bytes, even if the sum gets larger.
    pub all_text_bytes: u64,
    /// The approximate limit for all lists (VMA, VMA_STAT, FD) with their names, and for PATHS, in
    /// bytes. Users share them in the same way: after a user's share, a list ends after 16 entries,
    /// and names and paths after 128 bytes.
    pub all_list_bytes: u64,
}

impl ByteLimits {
    /// For lists of tasks: 128 KiB of each text, which is what procps reads, 32 MiB of all texts,
    /// and 256 MiB of lists.
    pub const LIST: ByteLimits =
        ByteLimits { text_bytes: 128 << 10, all_text_bytes: 32 << 20, all_list_bytes: 256 << 20 };
    /// For a named process: its texts are complete up to 6 MiB, which is as much as execve(2)
    /// takes.
    pub const ONE: ByteLimits = ByteLimits { text_bytes: 6 << 20, ..ByteLimits::LIST };
    /// The limit for one text in programs that keep or repeat answers, such as recorders.
    pub const SHORT_TEXT: u32 = 4096;

    /// These limits with another limit for each text, for a user who asks for it. If that is more
    /// than [`ByteLimits::LIST`] has, all texts of the answer may have 1 GiB.
    #[must_use]
    pub const fn with_texts_of(self, text_bytes: u32) -> ByteLimits {
        let is_more = text_bytes > ByteLimits::LIST.text_bytes;
        let all_text_bytes = if is_more { 1 << 30 } else { self.all_text_bytes };
        ByteLimits { text_bytes, all_text_bytes, ..self }
    }
}

/// A range of process ids. A long list can be requested in parts, so that only one part is in
/// memory at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Processes {
    /// The smallest id.
    pub first: u32,
    /// The largest id.
    pub last: u32,
}

impl Processes {
    /// All of them.
    pub const ALL: Processes = Processes { first: 0, last: u32::MAX };

    /// Whether these are all processes.
    pub fn is_all(self) -> bool {
        self == Processes::ALL
    }

    /// This many ranges, each with about the same number of these ids, which are in ascending
    /// order. Together, the ranges have all processes that there can be.
    pub fn divided(ids: &[u32], count: usize) -> Vec<Processes> {
        let mut parts = Vec::new();
        let mut first = Processes::ALL.first;
        for n in 1..count.clamp(1, ids.len().max(1)) {
            let last = ids[n * ids.len() / count];
            if last > first {
                parts.push(Processes { first, last: last - 1 });
                first = last;
            }
        }
        parts.push(Processes { first, last: Processes::ALL.last });
        parts
    }

    /// Whether it has the process with this id.
    pub const fn has(self, tgid: u32) -> bool {
        self.first <= tgid && tgid <= self.last
    }
}

/// Members of BASE, CRED, STAT and STATM, by the bits of their `valid`. The kernel keeps the
/// members of the first three in many places of its memory, and /proc has the members of STATM in
/// several files. A long list costs less if some members need not be read. Supplementary groups are
/// in the answer if `ngroups` of CRED is wanted.
///
/// CGROUP has a path for each hierarchy. Version 1 has a dozen hierarchies, and most tasks are at
/// the root of most of them. No column shows a root. So these paths are in the answer only if they
/// are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Members {
    /// Bits of the members of BASE, as in its `valid`.
    pub base: u32,
    /// Bits of the members of CRED, as in its `valid`.
    pub cred: u32,
    /// Bits of the members of STAT, as in its `valid`.
    pub stat: u32,
    /// Bits of the members of STATM, as in its `valid`.
    pub statm: u32,
    /// Paths of control groups that are the root of a hierarchy of version 1. Where the task has no
    /// path of version 2, they are always in the answer.
    pub cgroup_roots: bool,
}

impl Members {
    /// All of them.
    pub const ALL: Members = Members {
        base: u32::MAX,
        cred: u32::MAX,
        stat: u32::MAX,
        statm: u32::MAX,
        cgroup_roots: true,
    };
    /// None of them.
    pub const NONE: Members = Members { base: 0, cred: 0, stat: 0, statm: 0, cgroup_roots: false };

    /// Members of one group by name, or all of the group if there are no names. Groups other than
    /// BASE, CRED, STAT and STATM have no member sets, because they are always read as a whole.
    /// The only name of CGROUP is `below_root`: the group without the paths of
    /// [`cgroup_roots`](Self::cgroup_roots).
    ///
    /// # Panics
    /// If there is no such member. In a constant, this is an error of the compiler.
    pub const fn of(group: Groups, names: &[&str]) -> Members {
        let all = if group.bits() == Groups::BASE.bits() {
            Base::MEMBERS
        } else if group.bits() == Groups::CRED.bits() {
            Cred::MEMBERS
        } else if group.bits() == Groups::STAT.bits() {
            Stat::MEMBERS
        } else if group.bits() == Groups::STATM.bits() {
            Statm::MEMBERS
        } else if group.bits() == Groups::CGROUP.bits() && !names.is_empty() {
            assert!(
                matches!(names, [n] if matches!(n.as_bytes(), b"below_root")),
                "CGROUP has no such part"
            );
            return Members::NONE;
        } else {
            assert!(names.is_empty(), "members belong to BASE, CRED, STAT and STATM");
            return Members { cgroup_roots: group.has(Group::Cgroup), ..Members::NONE };
        };
        let mut bits = if names.is_empty() { u32::MAX } else { 0 };
        let mut n = 0;
        while n < names.len() {
            bits |= bit(all, names[n]);
            n += 1;
        }
        if group.bits() == Groups::BASE.bits() {
            Members { base: bits, ..Members::NONE }
        } else if group.bits() == Groups::CRED.bits() {
            Members { cred: bits, ..Members::NONE }
        } else if group.bits() == Groups::STAT.bits() {
            Members { stat: bits, ..Members::NONE }
        } else {
            Members { statm: bits, ..Members::NONE }
        }
    }
    /// The members that are in either set.
    #[must_use]
    pub const fn union(self, o: Members) -> Members {
        Members {
            base: self.base | o.base,
            cred: self.cred | o.cred,
            stat: self.stat | o.stat,
            statm: self.statm | o.statm,
            cgroup_roots: self.cgroup_roots || o.cgroup_roots,
        }
    }
    /// The form on the wire: the members of BASE and of STAT that may be missing.
    pub fn skipped(self) -> (u32, u32) {
        (!self.base & Base::ALL_VALID, !self.stat & Stat::ALL_VALID)
    }
}

impl PartialEq for Request {
    /// Equal if they ask for the same; the observer is ignored.
    fn eq(&self, o: &Request) -> bool {
        (self.strategy, self.pid, self.groups, self.limits)
            == (o.strategy, o.pid, o.groups, o.limits)
            && (self.max_rss_bytes, self.budget, self.members, self.processes)
                == (o.max_rss_bytes, o.budget, o.members, o.processes)
    }
}

impl Eq for Request {}

impl Request {
    /// A request for whole groups, with [`ByteLimits::ONE`] for ONE and THREAD, otherwise
    /// [`ByteLimits::LIST`]. `pid` is for ONE, CHILDREN and THREAD, otherwise 0.
    pub fn new(strategy: Strategy, pid: u32, groups: Groups) -> Request {
        let limits = match strategy {
            Strategy::One | Strategy::Thread => ByteLimits::ONE,
            _ => ByteLimits::LIST,
        };
        Request {
            strategy,
            pid,
            groups,
            max_rss_bytes: None,
            budget: None,
            members: Members::ALL,
            limits,
            processes: Processes::ALL,
            max_age: Duration::ZERO,
            watch: None,
        }
    }
    /// This request, with these groups added.
    #[must_use]
    pub fn with_groups(self, more: Groups) -> Request {
        Request { groups: self.groups | more, ..self }
    }
    /// This request, with at most this much time for VMA_STAT and ROLLUP together.
    #[must_use]
    pub fn with_budget(self, budget: Duration) -> Request {
        Request { budget: Some(budget), ..self }
    }
    /// This request, without VMA_STAT and ROLLUP of processes with more resident memory than this.
    #[must_use]
    pub fn with_max_rss(self, bytes: NonZeroU64) -> Request {
        Request { max_rss_bytes: Some(bytes), ..self }
    }
    /// This request, for these members of BASE, CRED, STAT and STATM only.
    #[must_use]
    pub fn with_members(self, members: Members) -> Request {
        Request { members, ..self }
    }
    /// This request, with these limits.
    #[must_use]
    pub fn with_limits(self, limits: ByteLimits) -> Request {
        Request { limits, ..self }
    }
    /// This request, with at most this many bytes of each text (CMDLINE, ENVIRON). 0 means no text
    /// at all.
    #[must_use]
    pub fn with_text_bytes(self, text_bytes: u32) -> Request {
        Request { limits: ByteLimits { text_bytes, ..self.limits }, ..self }
    }
    /// This request, with approximately this many bytes of all texts together.
    #[must_use]
    pub fn with_all_text_bytes(self, all_text_bytes: u64) -> Request {
        Request { limits: ByteLimits { all_text_bytes, ..self.limits }, ..self }
    }
    /// This request, with approximately this many bytes of all lists and names together.
    #[must_use]
    pub fn with_all_list_bytes(self, all_list_bytes: u64) -> Request {
        Request { limits: ByteLimits { all_list_bytes, ..self.limits }, ..self }
    }
    /// This request, for the processes with these ids only, and for their threads if the request
    /// lists threads. Only requests about all tasks can be limited in this way.
    #[must_use]
    pub fn with_processes(self, processes: Processes) -> Request {
        Request { processes, ..self }
    }
    /// This request, for an answer that the service may have made this long ago.
    #[must_use]
    pub fn with_max_age(self, max_age: Duration) -> Request {
        Request { max_age, ..self }
    }
    /// This request, with a watch, which counts tasks and may end the walk.
    #[must_use]
    pub fn with_watch(self, watch: Arc<Watch>) -> Request {
        Request { watch: Some(watch), ..self }
    }
    /// Has the caller stopped it? Engines check this between tasks, and DONE then has `-EINTR`.
    pub(crate) fn is_stopped(&self) -> bool {
        self.watch.as_deref().is_some_and(Watch::is_stopped)
    }
    /// Announces this many more tasks to the watch.
    pub(crate) fn expect(&self, tasks: usize) {
        if let Some(watch) = &self.watch {
            watch.expect(tasks as u64);
        }
    }
    /// Reports to the watch that this many more tasks are done.
    #[cfg(any(feature = "bpf", feature = "kernel"))]
    pub(crate) fn advance(&self, tasks: usize) {
        if let Some(watch) = &self.watch {
            watch.advance(tasks as u64);
        }
    }
    /// All processes.
    pub fn all(groups: Groups) -> Request {
        Request::new(Strategy::All, 0, groups)
    }
    /// All threads of all processes.
    pub fn all_threads(groups: Groups) -> Request {
        Request::new(Strategy::AllThread, 0, groups)
    }
    /// The process that `pid` (a process or a thread of it) belongs to.
    pub fn one(pid: u32, groups: Groups) -> Request {
        Request::new(Strategy::One, pid, groups)
    }
    /// The processes whose parent is process `pid`.
    pub fn children(pid: u32, groups: Groups) -> Request {
        Request::new(Strategy::Children, pid, groups)
    }
    /// The threads of the process that `pid` belongs to.
    pub fn threads(pid: u32, groups: Groups) -> Request {
        Request::new(Strategy::Thread, pid, groups)
    }
}
