//! Answers a request by the plan that the cost model makes, and makes another one if an engine
//! fails.

use std::time::{Duration, Instant};

use taskdiag_wire::Groups;

use super::aliases;
use super::choice::{Choice, Only, Ruled, rule};
use super::cost::{self, Facts, Split, decide};
use super::engines::Engines;
use super::facts::facts;
use super::gaps;
use super::run::{lacks_init, run};
use crate::engine::bpf::Bpf;
use crate::engine::procfs::Procfs;
use crate::engine::{EngineId, numbering};
use crate::error::Error;
use crate::request::Request;
use crate::snapshot::{Caveat, Served, Snapshot};

/// The plan of an earlier answer to the same request.
#[derive(Debug)]
pub(super) struct Planned {
    facts: Facts,
    plan: Split,
    /// An engine failed, maybe only once. It is tried again from this moment on.
    until: Option<Instant>,
}

/// How long a session does not use an engine that failed.
const TRY_AGAIN: Duration = Duration::from_secs(60);

/// [`query_with`] with engines that may be kept.
pub(super) fn answer(
    req: &Request,
    choice: Choice,
    engines: &mut Engines,
    planned: &mut Option<Planned>,
) -> Result<Snapshot, Error> {
    if req.pid != 0 && !req.strategy.takes_pid() {
        let why = "this strategy is about all tasks and takes no pid";
        return Err(taskdiag_wire::decode::Error::BadRequest(why).into());
    }
    let Ruled { only: one, caveat } = rule(choice)?;
    let mut snapshot = match one {
        Some(one) => only(req, &one, engines)?,
        None => auto(req, engines, planned)?,
    };
    snapshot.add_caveats(caveat);
    aliases::joined(snapshot)
}

fn only(req: &Request, one: &Only, engines: &mut Engines) -> Result<Snapshot, Error> {
    let engine = one.engine;
    let a = match engines.run(engine, None, req) {
        // Every pid namespace has a pid 1, so it is hidden.
        Err(Error::NoSuchProcess(pid @ 1)) if engine == EngineId::Bpf => {
            return Err(Error::Hidden { engine, pid });
        }
        a => a?,
    };
    let caveats = match engine {
        EngineId::Bpf | EngineId::Service if lacks_init(req, a.stream.as_ref()) => {
            vec![Caveat::InitHidden]
        }
        EngineId::Kernel | EngineId::Procfs if !numbering::proc_is_own() => {
            vec![Caveat::ForeignProc]
        }
        _ => Vec::new(),
    };
    let why = one.why.clone();
    let served = vec![Served { engine, groups: req.groups, why, cost: a.cost, caveats }];
    Snapshot::with_served(a.stream, served)
}

fn auto(
    req: &Request,
    engines: &mut Engines,
    planned: &mut Option<Planned>,
) -> Result<Snapshot, Error> {
    let is_due = |p: &Planned| p.until.is_some_and(|until| Instant::now() >= until);
    let (mut facts, mut before, mut until) = match planned.take().filter(|p| !is_due(p)) {
        Some(Planned { facts, plan, until }) => (facts, Some(plan), until),
        None => (Facts { is_session: engines.are_kept(), ..facts(req) }, None, None),
    };
    let mut failed = Vec::new();
    loop {
        let plan = before.take().unwrap_or_else(|| decide(req, &facts));
        if plan.parts.is_empty() || !plan.nobody.is_empty() {
            return Err(match failed.pop() {
                Some(e) => and_procfs(e),
                None => only_procfs(plan.nobody),
            });
        }
        // If the BPF part failed after a walk over pages, that walk would be done twice. So BPF is
        // tried first.
        let walks = plan.parts[0].groups.intersects(Groups::WALKS_PAGES);
        if walks && plan.parts[1..].iter().any(|p| p.engine == EngineId::Bpf) {
            if let Some(e) = Bpf::new().err() {
                (facts.bpf, until) = (None, Some(Instant::now() + TRY_AGAIN));
                failed.push(e);
                continue;
            }
        }
        if facts.service.is_some() && facts.procfs.is_some() {
            let takes = cost::estimate(EngineId::Procfs, req, &facts);
            engines.without_service_takes(Duration::from_nanos(takes));
        }
        let (engine, e) = match run(req, &plan.parts, facts.mappings, &failed, engines) {
            Ok(mut snapshot) => {
                let denied = gaps::found(&plan.parts, &snapshot, facts.bpf);
                if facts.denied.is_empty() && !denied.is_empty() {
                    facts.denied = denied;
                    continue;
                }
                snapshot.add_caveats(facts.foreign_proc.then_some(Caveat::ForeignProc));
                *planned = Some(Planned { facts, plan, until });
                return Ok(snapshot);
            }
            Err(failed) => failed,
        };
        // An engine that fails, or whose answer is not a stream, is not asked again. The remaining
        // engines answer.
        match (engine, &e) {
            // The kernel engine also reports this for a process that the caller may not trace, and
            // some sandboxes hide pid 1 from BPF. So other engines are tried.
            (EngineId::Bpf, Error::NoSuchProcess(1)) => facts.bpf = None,
            (EngineId::Bpf | EngineId::Procfs, Error::NoSuchProcess(_)) => return Err(e),
            (EngineId::Kernel, _) => facts.kernel = None,
            // The kernel lacks something that these groups need. The engine remembers that.
            (EngineId::Bpf, Error::Unsupported { groups, .. })
                if facts.bpf.is_some_and(|has| has.intersects(*groups)) =>
            {
                facts.bpf = facts.bpf.map(|has| has - *groups);
                failed.push(e);
                continue;
            }
            (EngineId::Bpf, _) => facts.bpf = None,
            (EngineId::Service, _) => facts.service = None,
            (EngineId::Procfs, Error::Unavailable { .. } | Error::Unsupported { .. }) => {
                facts.procfs = None;
            }
            (EngineId::Procfs, _) => return Err(e),
        }
        until = Some(Instant::now() + TRY_AGAIN);
        // Every pid namespace has a pid 1, so it is hidden.
        failed.push(match e {
            Error::NoSuchProcess(pid @ 1) if engine == EngineId::Bpf => {
                Error::Hidden { engine, pid }
            }
            e => e,
        });
    }
}

/// The error of another engine, with the reason why procfs, which needs no rights, could not
/// answer, either.
fn and_procfs(e: Error) -> Error {
    match (e, Procfs::new()) {
        (Error::Unavailable { engine, cause, why }, Err(procfs)) if engine != EngineId::Procfs => {
            Error::Unavailable { engine, cause, why: format!("{why}; and {procfs}") }
        }
        (e, _) => e,
    }
}

/// The error for groups that no engine here has. procfs has all groups, so the reason is why procfs
/// cannot be used.
fn only_procfs(groups: Groups) -> Error {
    let engine = EngineId::Procfs;
    match Procfs::new() {
        Err(Error::Unavailable { cause, why, .. }) => {
            let why = format!("{why} (no other engine has {groups} here)");
            Error::Unavailable { engine, cause, why }
        }
        Err(e) => e,
        Ok(_) => Error::Unsupported { engine, groups, why: String::new() },
    }
}
