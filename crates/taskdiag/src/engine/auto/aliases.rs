//! Finds processes that share their memory (`CLONE_VM`) or their table of open files
//! (`CLONE_FILES`), if the engine did not. A BPF walk over all tasks sees that two tasks have the
//! same object. /proc does not show it, and neither do separate answers about single processes.
//! Without this, sums over such processes would count their memory several times.
//!
//! Processes whose lists look alike are compared with kcmp(2). The second one then refers to the
//! first one, as in an answer of BPF.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use taskdiag_wire::registry::group_of;
use taskdiag_wire::{Fd, Group, Groups, Rollup, StreamWriter, Swap, TaskView, Vma, build};

use super::refs::{Renumber, patched};
use crate::engine::{EngineId, numbering};
use crate::error::Error;
use crate::snapshot::Snapshot;

/// `KCMP_VM` and `KCMP_FILES` of linux/kcmp.h.
const KCMP_VM: libc::c_int = 1;
const KCMP_FILES: libc::c_int = 2;

/// The group whose values show whether two tasks may share group `g`. A sum over a list is shared
/// if the list is.
fn looked_at(g: Group) -> Group {
    match g {
        Group::VmaStat => Group::Vma,
        Group::FdCount => Group::Fd,
        g => g,
    }
}

/// The object that kcmp(2) compares for a group.
fn object(g: Group) -> libc::c_int {
    if Groups::SHARED_FILES.has(g) { KCMP_FILES } else { KCMP_VM }
}

/// The answer, with each memory and each table of files only once.
pub(super) fn joined(snapshot: Snapshot) -> Result<Snapshot, Error> {
    let asked = snapshot.stream().asked();
    let mut owners: HashMap<(Group, u32), u32> = HashMap::new();
    for group in (Groups::SHARED & asked).iter() {
        if looked_at(group) == group && !is_whole_walk(&snapshot, group) {
            find(&snapshot, group, object(group), &mut owners);
        }
    }
    if owners.is_empty() {
        return Ok(snapshot);
    }
    let stream = snapshot.stream();
    let mut w = StreamWriter::with_capacity(stream.bytes().len());
    w.info(stream.info());
    let owner = |g: Group, pid: u32| {
        let may_be = Groups::SHARED.has(g);
        may_be.then(|| owners.get(&(looked_at(g), pid)).copied()).flatten()
    };
    let mut rewritten = 0;
    for t in stream.tasks() {
        let here = |g: Group| owner(g, t.pid());
        if !Groups::SHARED.iter().any(|g| here(g).is_some()) {
            let keep = Renumber::default();
            w.raw(&patched(t.messages(), t.attrs(), &keep, |g, pid| owner(g, pid).unwrap_or(pid)));
            continue;
        }
        rewritten += 1;
        w.begin_task(t.pid(), t.tgid());
        for (kind, bytes) in t.attrs() {
            if group_of(kind).and_then(here).is_none() {
                w.raw_attr(bytes);
            }
        }
        for g in (Groups::SHARED & asked).iter() {
            if let Some(owner) = here(g) {
                w.shared(g, owner);
            }
        }
        w.end_task();
    }
    // The writer counts the tasks.
    let done = *stream.done();
    let done = build!(taskdiag_wire::Done { tasks: done.tasks.wrapping_sub(rewritten), ..done });
    let served = snapshot.served().to_vec();
    Snapshot::with_served(w.finish(done), served)
}

/// Whether one BPF walk over all tasks answered this group. Such a walk sees which tasks share it.
fn is_whole_walk(snapshot: &Snapshot, group: Group) -> bool {
    let sees = |e: EngineId| matches!(e, EngineId::Bpf | EngineId::Kernel);
    let by_pid = snapshot.stream().strategy().takes_pid();
    !by_pid && snapshot.served().iter().any(|s| sees(s.engine) && s.groups.has(group))
}

/// Adds the tasks that share their list with an earlier task: maps group and task to the earlier
/// task.
fn find(
    snapshot: &Snapshot,
    group: Group,
    object: libc::c_int,
    owners: &mut HashMap<(Group, u32), u32>,
) {
    let mut alike: HashMap<u64, Vec<TaskView<'_>>> = HashMap::new();
    for t in snapshot.tasks().filter(|t| t.shared(group).is_none() && t.reason(group).is_none()) {
        if let Some(look) = look(&t, group) {
            alike.entry(look).or_default().push(t);
        }
    }
    alike.retain(|_, tasks| tasks.len() > 1);
    if alike.is_empty() || !numbering::proc_is_own() {
        return;
    }
    for tasks in alike.into_values() {
        // Sorted by the order of kcmp(2), so that each task is only compared with a few.
        let mut known: Vec<u32> = Vec::new();
        for t in tasks.iter().filter(|t| is_alive(t.pid())) {
            let mut range = 0..known.len();
            let mut is_new = true;
            while !range.is_empty() {
                let at = range.start + range.len() / 2;
                match kcmp(t.pid(), known[at], object) {
                    0 => {
                        owners.insert((group, t.pid()), known[at]);
                        (is_new, range) = (false, 0..0);
                    }
                    1 => range = range.start..at,
                    2 => range = at + 1..range.end,
                    // One of them has ended, or access is denied.
                    _ => (is_new, range) = (false, 0..0),
                }
            }
            if is_new {
                known.insert(range.start, t.pid());
            }
        }
    }
}

/// A hash that is equal for lists that look alike. `None`: the list is missing or empty.
fn look(task: &TaskView<'_>, group: Group) -> Option<u64> {
    let mut hasher = DefaultHasher::new();
    let mut any = false;
    match group {
        Group::Vma => {
            for v in task.list::<Vma>()? {
                (v.raw.start, v.raw.end, v.raw.dev, v.raw.inode).hash(&mut hasher);
                any = true;
            }
        }
        // Sums over memory in use change from one read to the next, so all tasks are compared. That
        // costs little compared with the walk over the pages.
        Group::Rollup => any = task.record::<Rollup>().is_some(),
        Group::Swap => any = task.record::<Swap>().is_some(),
        _ => {
            for fd in task.list::<Fd>()? {
                (fd.raw.fd, fd.raw.r#type, fd.raw.inode).hash(&mut hasher);
                any = true;
            }
        }
    }
    any.then(|| hasher.finish())
}

/// Whether the task itself has memory. A task that has ended has no memory and no files, and
/// kcmp(2) finds it equal to all others that have ended.
fn is_alive(pid: u32) -> bool {
    std::fs::read(format!("/proc/{pid}/statm")).is_ok_and(|t| !t.starts_with(b"0 "))
}

fn kcmp(a: u32, b: u32, object: libc::c_int) -> libc::c_long {
    // SAFETY: takes numbers only.
    unsafe { libc::syscall(libc::SYS_kcmp, a, b, object, 0, 0) }
}
