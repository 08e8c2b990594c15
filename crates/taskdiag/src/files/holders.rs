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
    /// All processes that have the value, by pid; empty where it is this one alone.
    pub processes: Rc<[u32]>,
}

impl Holder<'_> {
    /// Is it that of a thread which does not share with its leader?
    pub fn is_unshared(&self) -> bool {
        !self.task.is_leader()
    }
    /// Other processes that have the same value.
    pub fn others(&self) -> impl Iterator<Item = u32> + '_ {
        self.processes.iter().copied().filter(|p| *p != self.task.tgid())
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
    // What holds the value of each task, and which tasks have one to share.
    let mut places = Vec::with_capacity(snapshot.tasks().len());
    let mut owners = HashMap::new();
    for task in snapshot.tasks() {
        let place = place(&task, group);
        if let Place::Here = place {
            owners.entry(task.pid()).or_insert(task);
        }
        places.push(place);
    }
    let mut holders: Vec<Holder<'_>> = Vec::new();
    let mut gaps = Vec::new();
    let mut known: HashMap<(u32, u32), usize> = HashMap::new();
    // Threads of a process mostly follow each other.
    let mut last = None;
    for (task, place) in snapshot.tasks().zip(places) {
        let owner = match place {
            Place::Here => Some(task),
            Place::With(pid) => owners.get(&pid).copied(),
            Place::Nowhere => None,
        };
        let Some(owner) = owner else {
            let reason = task.reason(group).unwrap_or(Reason::Unsupported);
            gaps.push(Gap { task, group, reason });
            continue;
        };
        let key = (task.tgid(), owner.pid());
        let at = match last {
            Some((k, at)) if k == key => at,
            _ => *known.entry(key).or_insert_with(|| {
                holders.push(Holder { task, owner, threads: 0, processes: Rc::new([]) });
                holders.len() - 1
            }),
        };
        last = Some((key, at));
        let holder = &mut holders[at];
        holder.threads += 1;
        let rank = |t: &TaskView<'_>| (!t.is_leader(), t.pid());
        if rank(&task) < rank(&holder.task) {
            holder.task = task;
        }
    }
    holders.sort_by_key(|h| (h.task.tgid(), !h.task.is_leader(), h.task.pid()));
    acquaint(&mut holders);
    (holders, gaps)
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
            h.processes = Rc::clone(pids);
        }
    }
}
