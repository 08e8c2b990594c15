//! Fills gaps in answers of procfs with values from BPF, for callers who may use BPF. /proc denies
//! a caller without CAP_SYS_PTRACE much about processes of other users. It never shows the context
//! switches of threads that have ended.
//!
//! The cost model only considers time. So if the answer of procfs has gaps that BPF can fill, the
//! request is planned and made again without these groups of procfs. For all other callers, this
//! costs nothing, or one capget(2) if something is missing.

use rustix::thread::CapabilitySet;
use taskdiag_wire::{Group, Groups, Reason, Sched, TaskView};

use super::cost::EnginePart;
use crate::engine::EngineId;
use crate::request::Request;
use crate::snapshot::Snapshot;

/// The groups to expect as denied, without a costly walk over pages to find out.
pub(super) fn expected(req: &Request) -> Groups {
    let asked = req.groups & Groups::GUARDED;
    match req.groups.intersects(Groups::WALKS_PAGES) && !asked.is_empty() && has_bpf_only() {
        true => asked,
        false => Groups::NONE,
    }
}

/// The groups in which this answer of procfs lacks values that BPF has.
pub(super) fn found(parts: &[EnginePart], snapshot: &Snapshot, bpf: Option<Groups>) -> Groups {
    let of_procfs = parts.iter().filter(|p| p.engine == EngineId::Procfs);
    let groups = of_procfs.fold(Groups::NONE, |all, p| all | p.groups);
    let groups = groups & bpf.unwrap_or(Groups::NONE);
    let has_gap = |g| snapshot.tasks().any(|t| t.reason(g) == Some(Reason::Denied));
    let is_denied = !groups.is_empty() && snapshot.stream().done().denied != 0 && has_bpf_only();
    let mut found: Groups = groups.iter().filter(|g| is_denied && has_gap(*g)).collect();
    if groups.has(Group::Sched) && snapshot.tasks().any(lacks_switches) && may_use_bpf() {
        found |= Groups::SCHED;
    }
    found
}

/// Did some of its threads end? Then /proc lacks the number of its switches.
fn lacks_switches(task: TaskView<'_>) -> bool {
    task.record::<Sched>().is_some_and(|s| s.timeslices().is_some() && s.nvcsw().is_none())
}

fn may_use_bpf() -> bool {
    let bpf = CapabilitySet::BPF | CapabilitySet::PERFMON;
    rustix::thread::capabilities(None).is_ok_and(|has| {
        has.effective.contains(bpf) || has.effective.contains(CapabilitySet::SYS_ADMIN)
    })
}

/// May the caller load BPF programs, but not trace other users' processes?
fn has_bpf_only() -> bool {
    let has = rustix::thread::capabilities(None);
    may_use_bpf() && has.is_ok_and(|has| !has.effective.contains(CapabilitySet::SYS_PTRACE))
}
