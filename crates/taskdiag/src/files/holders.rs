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
    /// What is one holder: a process and a value.
    fn key(&self) -> (u32, u32) {
        (self.task.tgid(), self.owner.pid())
    }
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

impl<'a> Holder<'a> {
    /// Count the tasks of another one of the same key in.
    fn join(&mut self, other: &Holder<'a>) {
        self.threads += other.threads;
        if rank(&other.task) < rank(&self.task) {
            self.task = other.task;
        }
    }
}

/// A task without the value, and why.
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
    let places: Vec<Place> = snapshot.tasks().map(|t| place(&t, group)).collect();
    let owners = Owners::new(snapshot, &places);
    let values = places.iter().filter(|p| matches!(p, Place::Here)).count();
    let mut holders: Vec<Holder<'_>> = Vec::with_capacity(values);
    let mut gaps = Vec::new();
    for (task, place) in snapshot.tasks().zip(&places) {
        let owner = match place {
            Place::Here => Some(task),
            Place::With(pid) => owners.find(*pid),
            Place::Nowhere => None,
        };
        let Some(owner) = owner else {
            let reason = task.reason(group).unwrap_or(Reason::Unsupported);
            gaps.push(Gap { task, group, reason });
            continue;
        };
        let one = Holder { task, owner, threads: 1, processes: None };
        // Threads of a process mostly follow each other.
        match holders.last_mut() {
            Some(last) if last.key() == one.key() => last.join(&one),
            _ => holders.push(one),
        }
    }
    // Those that did not. Mostly all is in this order already.
    holders.sort_by_key(Holder::key);
    holders.dedup_by(|next, first| {
        let same = next.key() == first.key();
        if same {
            first.join(next);
        }
        same
    });
    holders.sort_by_key(|h| (h.task.tgid(), rank(&h.task)));
    acquaint(&mut holders);
    (holders, gaps)
}

/// Which task of a process stands for it: the least.
fn rank(task: &TaskView<'_>) -> (bool, u32) {
    (!task.is_leader(), task.pid())
}

/// The tasks that others share a value with: few, or most have as many threads.
struct Owners<'a> {
    /// By pid.
    tasks: Vec<TaskView<'a>>,
}

impl<'a> Owners<'a> {
    fn new(snapshot: &'a Snapshot, places: &[Place]) -> Owners<'a> {
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
            let here = snapshot.tasks().zip(places).filter(|(_, p)| matches!(p, Place::Here));
            let here = here.map(|(task, _)| task);
            tasks.extend(here.filter(|t| wanted.binary_search(&t.pid()).is_ok()));
            tasks.sort_by_key(TaskView::pid);
        }
        Owners { tasks }
    }
    /// The first one of this pid.
    fn find(&self, pid: u32) -> Option<TaskView<'a>> {
        let at = self.tasks.partition_point(|t| t.pid() < pid);
        self.tasks.get(at).filter(|t| t.pid() == pid).copied()
    }
}

/// Tell holders of one value in several processes of each other.
fn acquaint(holders: &mut [Holder<'_>]) {
    let mut users: HashMap<u32, Vec<u32>> = HashMap::new();
    // Few values are of a task in another process; only these are looked at twice.
    for h in holders.iter().filter(|h| h.owner.tgid() != h.task.tgid()) {
        users.entry(h.owner.pid()).or_default();
    }
    if users.is_empty() {
        return;
    }
    for h in holders.iter() {
        if let Some(pids) = users.get_mut(&h.owner.pid()) {
            pids.push(h.task.tgid());
        }
    }
    let users: HashMap<u32, Rc<[u32]>> =
        users.into_iter().map(|(owner, pids)| (owner, pids.into())).collect();
    for h in holders {
        if let Some(pids) = users.get(&h.owner.pid()) {
            h.processes = Some(Rc::clone(pids));
        }
    }
}
