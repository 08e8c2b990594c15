//! Who has a value that tasks share: threads have the open files, and the count of them, of their
//! process in common, unless one of them unshared its own.
//!
//! An engine reads a shared value once and says of all other tasks which one has it. This turns
//! that around: for each process, and each value that some task of it uses, one holder.

use std::collections::HashMap;
use std::rc::Rc;

use taskdiag_wire::{A_SHARED, Group, Reason, Shared, TaskView};
use zerocopy::FromBytes;

use crate::snapshot::Snapshot;

/// A process, and one value that tasks of it have in common.
#[derive(Clone, Debug)]
pub struct Holder<'a> {
    /// The task it is named after: the leader where that has the value, else the first that does.
    pub task: TaskView<'a>,
    /// The task in whose messages the value is: this one, or one that shares it.
    pub owner: TaskView<'a>,
    /// Tasks of the process that have the value, those in the answer.
    pub threads: u32,
    /// All processes that have the value, by pid; `None` where it is this one alone.
    pub processes: Option<Rc<[u32]>>,
}

impl Holder<'_> {
    /// Is it that of a thread which does not share with its leader?
    pub fn is_unshared(&self) -> bool {
        !self.task.is_leader()
    }
    /// Other processes that have the same value.
    pub fn others(&self) -> impl Iterator<Item = u32> + '_ {
        let all = self.processes.iter().flat_map(|p| p.iter().copied());
        all.filter(|p| *p != self.task.tgid())
    }
}

/// A task without the value, or with a part of it, and why.
#[derive(Clone, Copy, Debug)]
pub struct Gap<'a> {
    /// The task.
    pub task: TaskView<'a>,
    /// Of which group.
    pub group: Group,
    /// Why it has none. [`Reason::Unsupported`] also where it points to a task that is not there.
    pub reason: Reason,
}

/// Where the value of a task is.
enum Place {
    Here,
    With(u32),
    Nowhere,
}

fn place(task: &TaskView<'_>, group: Group) -> Place {
    for (kind, attr) in task.attrs() {
        if kind == group as u16 {
            return Place::Here;
        }
        if kind == A_SHARED {
            if let Ok((s, _)) = Shared::read_from_prefix(attr) {
                if s.group == group as u32 {
                    return Place::With(s.pid);
                }
            }
        }
    }
    Place::Nowhere
}

/// The holders of a group's values in the order of process and thread ids, and the tasks without.
pub fn holders(snapshot: &Snapshot, group: Group) -> (Vec<Holder<'_>>, Vec<Gap<'_>>) {
    let (holders, gaps) = Holders::new(snapshot, group);
    (holders.iter().collect(), gaps)
}

/// Holders, in little memory: of 50,000 processes they would be 6 MB, which cost more than to find them.
#[derive(Debug)]
pub struct Holders<'a> {
    snapshot: &'a Snapshot,
    all: Vec<Held>,
    /// The processes that have the value of this task, where there are several.
    several: HashMap<u32, Rc<[u32]>>,
    doubts: Vec<Gap<'a>>,
}

/// A [`Holder`], its tasks by their place in the answer.
#[derive(Clone, Copy, Debug)]
struct Held {
    task: u32,
    owner: u32,
    threads: u32,
}

impl<'a> Holders<'a> {
    /// Of this group, in the order of process and thread ids, and the tasks without.
    pub fn new(snapshot: &'a Snapshot, group: Group) -> (Holders<'a>, Vec<Gap<'a>>) {
        let places: Vec<Place> = snapshot.tasks().map(|t| place(&t, group)).collect();
        let owners = Owners::new(snapshot, &places);
        let values = places.iter().filter(|p| matches!(p, Place::Here)).count();
        let all = Vec::with_capacity(values);
        let (several, doubts) = (HashMap::new(), Vec::new());
        let mut holders = Holders { snapshot, all, several, doubts };
        let mut gaps = Vec::new();
        let mut last = None;
        for (i, (task, place)) in (0u32..).zip(snapshot.tasks().zip(&places)) {
            let owner = match place {
                Place::Here => Some((i, task.pid())),
                Place::With(pid) => owners.find(*pid).map(|at| (at, *pid)),
                Place::Nowhere => None,
            };
            let Some((owner, pid)) = owner else {
                let reason = task.reason(group).unwrap_or(Reason::Unsupported);
                gaps.push(Gap { task, group, reason });
                continue;
            };
            match (place, task.reason(group)) {
                (Place::With(_), Some(reason)) => holders.doubts.push(Gap { task, group, reason }),
                // The list ended before its end.
                (_, Some(reason)) => gaps.push(Gap { task, group, reason }),
                _ => {}
            }
            let one = Held { task: i, owner, threads: 1 };
            let key = Some((task.tgid(), pid));
            // Threads of a process mostly follow each other.
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

    /// Join those that are one holder and did not follow each other, and put all in order. Mostly they
    /// are already.
    fn arrange(&mut self) {
        let mut all = std::mem::take(&mut self.all);
        let key = |h: &Held| (self.view(h.task).tgid(), self.view(h.owner).pid());
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

    /// Two parts of one holder.
    fn joined(&self, a: Held, b: Held) -> Held {
        let first = rank(&self.view(a.task)) <= rank(&self.view(b.task));
        let task = if first { a.task } else { b.task };
        Held { task, owner: a.owner, threads: a.threads + b.threads }
    }

    /// Find the values that several processes have. Few are of a task in another process; only these
    /// are looked at twice.
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

    fn expand(&self, h: &Held) -> Holder<'a> {
        let owner = self.view(h.owner);
        let processes = match self.several.is_empty() {
            true => None,
            false => self.several.get(&owner.pid()).cloned(),
        };
        Holder { task: self.view(h.task), owner, threads: h.threads, processes }
    }

    /// Tasks of which it is not certain that they share, and why that cannot be known.
    pub fn doubts(&self) -> &[Gap<'a>] {
        &self.doubts
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// None?
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// One by its number.
    pub fn get(&self, i: usize) -> Option<Holder<'a>> {
        self.all.get(i).map(|h| self.expand(h))
    }

    /// Each in order.
    pub fn iter(&self) -> impl Iterator<Item = Holder<'a>> + '_ {
        self.all.iter().map(|h| self.expand(h))
    }

    /// Without those that `keep` refuses.
    pub fn retain(&mut self, mut keep: impl FnMut(&Holder<'a>) -> bool) {
        let mut all = std::mem::take(&mut self.all);
        all.retain(|h| keep(&self.expand(h)));
        self.all = all;
    }
}

/// Which task of a process stands for it: the least.
fn rank(task: &TaskView<'_>) -> (bool, u32) {
    (!task.is_leader(), task.pid())
}

/// The tasks that others share a value with: few, or most have as many threads.
struct Owners {
    /// Pid and place in the answer, by pid.
    tasks: Vec<(u32, u32)>,
}

impl Owners {
    fn new(snapshot: &Snapshot, places: &[Place]) -> Owners {
        let mut wanted: Vec<u32> = Vec::new();
        for place in places {
            match place {
                Place::With(pid) if wanted.last() != Some(pid) => wanted.push(*pid),
                _ => {}
            }
        }
        wanted.sort_unstable();
        wanted.dedup();
        let mut tasks = Vec::with_capacity(wanted.len());
        if !wanted.is_empty() {
            let all = snapshot.tasks().zip(places).zip(0u32..);
            let here = all.filter(|((_, place), _)| matches!(place, Place::Here));
            let here = here.map(|((task, _), i)| (task.pid(), i));
            tasks.extend(here.filter(|(pid, _)| wanted.binary_search(pid).is_ok()));
            tasks.sort_unstable();
        }
        Owners { tasks }
    }
    /// Where the first one of this pid is.
    fn find(&self, pid: u32) -> Option<u32> {
        let at = self.tasks.partition_point(|t| t.0 < pid);
        self.tasks.get(at).filter(|t| t.0 == pid).map(|t| t.1)
    }
}
