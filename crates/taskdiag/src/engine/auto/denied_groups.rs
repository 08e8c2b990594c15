//! Handles callers with CAP_BPF and CAP_PERFMON but without CAP_SYS_PTRACE. /proc denies them much
//! about processes of other users, and BPF does not.
//!
//! The cost model only considers time. So if the answer of procfs has gaps that BPF can fill, the
//! request is planned and made again without these groups of procfs. For all other callers, this
//! costs nothing, or one capget(2) if something was denied.

use rustix::thread::CapabilitySet;
use taskdiag_wire::{Groups, Reason};

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

/// The groups that procfs was denied in this answer, and that BPF has.
pub(super) fn found(parts: &[EnginePart], snapshot: &Snapshot, bpf: Option<Groups>) -> Groups {
    let of_procfs = parts.iter().filter(|p| p.engine == EngineId::Procfs);
    let groups = of_procfs.fold(Groups::NONE, |all, p| all | p.groups);
    let groups = groups & bpf.unwrap_or(Groups::NONE);
    if groups.is_empty() || snapshot.stream().done().denied == 0 || !has_bpf_only() {
        return Groups::NONE;
    }
    let is_denied = |g| snapshot.tasks().any(|t| t.reason(g) == Some(Reason::Denied));
    groups.iter().filter(|g| is_denied(*g)).collect()
}

/// May the caller load BPF programs, but not trace other users' processes?
fn has_bpf_only() -> bool {
    let bpf = CapabilitySet::BPF | CapabilitySet::PERFMON;
    rustix::thread::capabilities(None).is_ok_and(|has| {
        let has = has.effective;
        !has.contains(CapabilitySet::SYS_PTRACE)
            && (has.contains(bpf) || has.contains(CapabilitySet::SYS_ADMIN))
    })
}
