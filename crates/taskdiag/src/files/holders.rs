//! Finds the processes and threads that share a value. The threads of a process share their open
//! files, and the number of these, unless a thread has unshared its table.
//!
//! An engine reads a shared value once, and other tasks refer to the task whose message has it.
//! This module inverts that: it makes one holder for each process and each value that its tasks
//! use.

use std::collections::HashMap;
use std::sync::Arc;

use taskdiag_wire::{A_SHARED, Group, Plain, Reason, Shared, TaskView};

use crate::snapshot::Snapshot;

/// A process, and a value that its tasks share.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Holder<'a> {
    /// The task that represents the process: the leader if it has the value, and otherwise the
    /// first task with it.
    pub task: TaskView<'a>,
    /// The task whose messages have the value. It is this task or one that shares the value.
    pub owner: TaskView<'a>,
    /// The number of tasks in the answer that belong to the process and have the value.
    pub threads: u32,
    /// All processes that have the value, by pid. `None` if only this process has it.
    pub processes: Option<Arc<[u32]>>,
}

impl Holder<'_> {
    /// Whether a thread has a value of its own that it does not share with its leader.
    pub fn is_unshared(&self) -> bool {
        !self.task.is_leader()
    }
    /// Other processes that have the same value.
    pub fn others(&self) -> impl Iterator<Item = u32> + '_ {
        let all = self.processes.iter().flat_map(|p| p.iter().copied());
        all.filter(|p| *p != self.task.tgid())
    }
}

/// A task without the value, or with only a part of it, and the reason.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Gap<'a> {
    /// The task.
    pub task: TaskView<'a>,
    /// The group that is missing.
    pub group: Group,
    /// The reason. [`Reason::Unsupported`] also stands for a reference to a task that is not in the
    /// answer.
    pub reason: Reason,
}

/// Where the value of a task can be found.
enum ValueAt {
    Here,
    With(u32),
    Nowhere,
}

fn place(task: &TaskView<'_>, group: Group) -> ValueAt {
    for (kind, attr) in task.attrs() {
        if kind == group as u16 {
            return ValueAt::Here;
        }
        if kind == A_SHARED {
            if let Some((s, _)) = Shared::read_from_prefix(attr) {
                if s.group == group as u32 {
                    return ValueAt::With(s.pid);
                }
            }
        }
    }
    ValueAt::Nowhere
}

/// The holders of a group's values in the order of process and thread ids, and the tasks that lack
/// the value.
pub fn holders(snapshot: &Snapshot, group: Group) -> (Vec<Holder<'_>>, Vec<Gap<'_>>) {
    let (holders, gaps) = Holders::new(snapshot, group);
    (holders.iter().collect(), gaps)
}

/// The holders in a compact form. As [`Holder`]s, 50,000 processes would take 6 MB, which costs
/// more than finding them.
#[derive(Debug)]
pub struct Holders<'a> {
    snapshot: &'a Snapshot,
    all: Vec<HolderTasks>,
    /// For the value of a task, all processes that share it, if there are several.
    several: HashMap<u32, Arc<[u32]>>,
    doubts: Vec<Gap<'a>>,
}

/// A [`Holder`], with its tasks as indexes into the answer.
#[derive(Clone, Copy, Debug)]
struct HolderTasks {
    task: u32,
    owner: u32,
    threads: u32,
}

impl<'a> Holders<'a> {
    /// The holders of this group in the order of process and thread ids, and the tasks that lack
    /// the value.
    pub fn new(snapshot: &'a Snapshot, group: Group) -> (Holders<'a>, Vec<Gap<'a>>) {
        let places: Vec<ValueAt> = snapshot.tasks().map(|t| place(&t, group)).collect();
        let owners = Owners::new(snapshot, &places);
        let values = places.iter().filter(|p| matches!(p, ValueAt::Here)).count();
        let all = Vec::with_capacity(values);
        let (several, doubts) = (HashMap::new(), Vec::new());
        let mut holders = Holders { snapshot, all, several, doubts };
        let mut gaps = Vec::new();
        let mut last = None;
        for (i, (task, place)) in (0u32..).zip(snapshot.tasks().zip(&places)) {
            let owner = match place {
                ValueAt::Here => Some((i, task.pid())),
                ValueAt::With(pid) => owners.find(*pid).map(|at| (at, *pid)),
                ValueAt::Nowhere => None,
            };
            let Some((owner, pid)) = owner else {
                let reason = task.reason(group).unwrap_or(Reason::Unsupported);
                gaps.push(Gap { task, group, reason });
                continue;
            };
            match (place, task.reason(group)) {
                (ValueAt::With(_), Some(reason)) => {
                    holders.doubts.push(Gap { task, group, reason })
                }
                // The list is incomplete.
                (_, Some(reason)) => gaps.push(Gap { task, group, reason }),
                _ => {}
            }
            let one = HolderTasks { task: i, owner, threads: 1 };
            let key = Some((task.tgid(), pid));
            // Threads of a process usually follow each other.
            let before = holders.all.last().copied().filter(|_| last == key);
            let joined = before.map(|before| holders.joined(before, one));
            match (holders.all.last_mut(), joined) {
                (Some(last), Some(joined)) => *last = joined,
                _ => holders.all.push(one),
            }
            last = key;
        }
        holders.arrange();
        holders.acquaint();
        (holders, gaps)
    }

    /// Joins the parts of a holder that were not adjacent, and sorts the holders, which usually are
    /// in order already.
    fn arrange(&mut self) {
        let mut all = std::mem::take(&mut self.all);
        let key = |h: &HolderTasks| (self.view(h.task).tgid(), self.view(h.owner).pid());
        all.sort_by_key(key);
        all.dedup_by(|next, first| {
            let same = key(next) == key(first);
            if same {
                *first = self.joined(*first, *next);
            }
            same
        });
        all.sort_by_key(|h| {
            let task = self.view(h.task);
            (task.tgid(), rank(&task))
        });
        self.all = all;
    }

    /// Joins two parts of one holder.
    fn joined(&self, a: HolderTasks, b: HolderTasks) -> HolderTasks {
        let first = rank(&self.view(a.task)) <= rank(&self.view(b.task));
        let task = if first { a.task } else { b.task };
        HolderTasks { task, owner: a.owner, threads: a.threads + b.threads }
    }

    /// Finds the values that several processes share. Only values that belong to a task of another
    /// process are looked at twice, and there are few of these.
    fn acquaint(&mut self) {
        let mut users: HashMap<u32, Vec<u32>> = HashMap::new();
        for h in self.iter().filter(|h| h.owner.tgid() != h.task.tgid()) {
            users.entry(h.owner.pid()).or_default();
        }
        if users.is_empty() {
            return;
        }
        for h in self.iter() {
            if let Some(pids) = users.get_mut(&h.owner.pid()) {
                pids.push(h.task.tgid());
            }
        }
        self.several = users.into_iter().map(|(owner, pids)| (owner, pids.into())).collect();
    }

    fn view(&self, i: u32) -> TaskView<'a> {
        self.snapshot.stream().get(i as usize).expect("it was counted")
    }

    fn expand(&self, h: &HolderTasks) -> Holder<'a> {
        let owner = self.view(h.owner);
        let processes = match self.several.is_empty() {
            true => None,
            false => self.several.get(&owner.pid()).cloned(),
        };
        Holder { task: self.view(h.task), owner, threads: h.threads, processes }
    }

    /// The tasks that may or may not share the value, and why that is not known.
    pub fn doubts(&self) -> &[Gap<'a>] {
        &self.doubts
    }

    /// The number of holders.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there are no holders.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The holder with this index.
    pub fn get(&self, i: usize) -> Option<Holder<'a>> {
        self.all.get(i).map(|h| self.expand(h))
    }

    /// All holders, in order.
    pub fn iter(&self) -> impl Iterator<Item = Holder<'a>> + '_ {
        self.all.iter().map(|h| self.expand(h))
    }

    /// Removes the holders that `keep` refuses.
    pub fn retain(&mut self, mut keep: impl FnMut(&Holder<'a>) -> bool) {
        let mut all = std::mem::take(&mut self.all);
        all.retain(|h| keep(&self.expand(h)));
        self.all = all;
    }
}

/// The sort order of the tasks of a process. The first one represents the process.
fn rank(task: &TaskView<'_>) -> (bool, u32) {
    (!task.is_leader(), task.pid())
}

/// The tasks whose value other tasks share. There are few owners, or most have the same number of
/// threads.
struct Owners {
    /// Pid and index in the answer, sorted by pid.
    tasks: Vec<(u32, u32)>,
}

impl Owners {
    fn new(snapshot: &Snapshot, places: &[ValueAt]) -> Owners {
        let mut wanted: Vec<u32> = Vec::new();
        for place in places {
            match place {
                ValueAt::With(pid) if wanted.last() != Some(pid) => wanted.push(*pid),
                _ => {}
            }
        }
        wanted.sort_unstable();
        wanted.dedup();
        let mut tasks = Vec::with_capacity(wanted.len());
        if !wanted.is_empty() {
            let all = snapshot.tasks().zip(places).zip(0u32..);
            let here = all.filter(|((_, place), _)| matches!(place, ValueAt::Here));
            let here = here.map(|((task, _), i)| (task.pid(), i));
            tasks.extend(here.filter(|(pid, _)| wanted.binary_search(pid).is_ok()));
            tasks.sort_unstable();
        }
        Owners { tasks }
    }
    /// The first entry with this pid.
    fn find(&self, pid: u32) -> Option<u32> {
        let at = self.tasks.partition_point(|t| t.0 < pid);
        self.tasks.get(at).filter(|t| t.0 == pid).map(|t| t.1)
    }
}
