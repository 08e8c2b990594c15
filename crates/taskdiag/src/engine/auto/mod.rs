//! Chooses the engines that answer a request, falls back if one fails, and reports which engine
//! served what and why. This file is what programs call. `facts` says what is known before an
//! engine is tried, `cost` compares the engines, `plan` chooses and falls back, `run` asks them,
//! and `join` and `refs` join their answers.

mod aliases;
mod choice;
mod cost;
mod engines;
mod facts;
#[cfg(feature = "view")]
mod follow_up;
mod gaps;
mod guarded_session;
mod join;
mod parts;
mod plan;
mod refs;
mod repeated;
mod run;
mod session;
mod text;

use std::time::Duration;

use taskdiag_wire::{Groups, Info, Strategy};

pub use self::choice::{CONF, Choice, ENV};
use self::choice::{Ruled, brake, rule};
use self::cost::decide;
use self::engines::Engines;
use self::facts::facts;
#[cfg(feature = "view")]
pub(crate) use self::follow_up::{Found, in_two_steps};
use self::join::Joined;
pub use self::parts::{InParts, Part};
use self::plan::answer;
pub use self::repeated::{Repeated, SessionCache};
pub use self::session::Session;
use crate::engine::bpf::Bpf;
use crate::engine::kernel::Kernel;
use crate::engine::procfs::Procfs;
use crate::engine::room::Several;
use crate::engine::service::Service;
use crate::engine::{Engine, EngineId, Support, numbering};
use crate::error::{Cause, Error};
use crate::request::Request;
use crate::snapshot::{Caveat, Served, Snapshot};

/// Answers a request from the fastest source of this machine, or from the engine that [`ENV`] or
/// [`CONF`] name.
///
/// # Errors
/// [`Error::NoSuchProcess`] for a pid that does not exist, [`Error::Unavailable`] if no engine
/// works (no /proc is mounted, and BPF is not allowed), [`Error::Setting`] if the environment
/// variable does not name an engine.
pub fn query(req: &Request) -> Result<Snapshot, Error> {
    query_with(req, Choice::Auto)
}

/// As [`query`], but the caller chooses the engine.
///
/// # Errors
/// As [`query`]. With [`Choice::Only`], also if that engine does not work here, may not be used, or
/// does not have all groups, and [`Error::Hidden`].
pub fn query_with(req: &Request, choice: Choice) -> Result<Snapshot, Error> {
    answer(req, choice, &mut Engines::default(), &mut None)
}

/// For tests of the kernel engine: it answers the groups that it has, and procfs the others. The
/// answers are joined as any others are.
///
/// # Errors
/// As [`query`].
#[cfg(all(feature = "testing", feature = "kernel"))]
pub fn query_kernel_first(req: &Request) -> Result<Snapshot, Error> {
    let has = Kernel::new()?.support().groups;
    let part = |engine, groups| cost::EnginePart { engine, groups, why: String::from("a test") };
    let mut parts =
        vec![part(EngineId::Kernel, req.groups & has), part(EngineId::Procfs, req.groups - has)];
    parts.retain(|p| !p.groups.is_empty());
    let answer = run::run(req, &parts, None, &[], &mut Engines::default());
    aliases::joined(answer.map_err(|(_, e)| e)?)
}

/// Makes one answer to several requests for the same groups, for example for several pids. It has
/// each task once, in the order of the requests. Pids that do not exist are returned separately. A
/// budget applies to all requests together.
///
/// # Errors
/// As [`query`], except that pids that do not exist are no error.
pub fn query_each(reqs: &[Request], choice: Choice) -> Result<(Snapshot, Vec<u32>), Error> {
    let mut all = Joined::default();
    let Gathered { served, nobody } = gather(reqs, choice, Vec::new(), &|_| true, &mut all)?;
    if all.is_empty() {
        let (groups, strategy) =
            reqs.first().map_or((Groups::NONE, Strategy::One), |r| (r.groups, r.strategy));
        let info = crate::engine::info::info(&Request::new(strategy, 0, groups));
        all.head(&info, &taskdiag_wire::Done::default());
    }
    let snapshot = Snapshot::with_served(all.finish(), served)?;
    Ok((aliases::joined(snapshot)?, nobody))
}

/// The combined results of several requests.
struct Gathered {
    served: Vec<Served>,
    /// Pids that do not exist, or whose answer was not accepted.
    nobody: Vec<u32>,
}

/// Ask each request, and add the answers that `taken` accepts to `all`. `served` has the engines of
/// earlier requests.
fn gather(
    reqs: &[Request],
    choice: Choice,
    mut served: Vec<Served>,
    taken: &dyn Fn(&Snapshot) -> bool,
    all: &mut Joined,
) -> Result<Gathered, Error> {
    let mut nobody = Vec::new();
    let mut walked = Duration::ZERO;
    let mut room = reqs.first().map(|r| Several::new(r.limits, reqs.len(), 0));
    for req in reqs {
        let budget = req.budget.map(|b| b.saturating_sub(walked));
        let limits = room.as_mut().map_or(req.limits, |room| room.next(req.limits));
        match query_with(&Request { budget, limits, ..req.clone() }, choice) {
            Ok(s) => {
                for new in s.served() {
                    walked += new.cost.walked;
                    match served.iter_mut().find(|s| s.engine == new.engine) {
                        Some(old) => {
                            old.groups |= new.groups;
                            old.cost = old.cost.plus(new.cost);
                            old.add_caveats(new.caveats.iter().cloned());
                        }
                        None => served.push(new.clone()),
                    }
                }
                if !taken(&s) {
                    nobody.push(req.pid);
                    continue;
                }
                let before = all.len();
                all.add(s.stream());
                if let Some(room) = &mut room {
                    room.spend(s.stream(), all.len() - before);
                }
            }
            Err(Error::NoSuchProcess(pid)) => nobody.push(pid),
            Err(Error::Hidden { engine, .. }) => served.push(Served::hidden(engine)),
            Err(e) => return Err(e),
        }
    }
    Ok(Gathered { served, nobody })
}

/// Resolves a choice with the environment and the brake: to [`Choice::Only`] or
/// [`Choice::Fastest`].
///
/// # Errors
/// As [`query_with`], if the environment is wrong or the brake forbids the choice.
pub fn resolved(choice: Choice) -> Result<Choice, Error> {
    Ok(rule(choice)?.only.map_or(Choice::Fastest, |one| Choice::Only(one.engine)))
}

/// An engine, and the groups that it supports here or why it does not work.
pub type Tried = (EngineId, Result<Support, Error>);

/// Each engine, and the groups that it supports here or why it does not work. This tries each
/// engine, except those that [`ENV`] or [`CONF`] turn off.
///
/// # Errors
/// [`Error::Setting`] as [`query`].
pub fn survey() -> Result<Vec<Tried>, Error> {
    let procfs = rule(Choice::Auto)?.only.filter(|one| one.engine == EngineId::Procfs);
    let try_it = |engine| match &procfs {
        Some(one) if engine != EngineId::Procfs => {
            let why = format!("not tried: {}", one.why);
            Err(Error::Unavailable { engine, cause: Cause::TurnedOff, why })
        }
        _ => open(engine).map(|e| e.support()),
    };
    Ok(EngineId::ALL.into_iter().map(|e| (e, try_it(e))).collect())
}

/// The engines that would answer the groups of a request, and why.
///
/// # Errors
/// [`Error::Setting`] as [`query`].
pub fn explain(req: &Request) -> Result<Vec<(Groups, EngineId, String)>, Error> {
    if let Some(one) = rule(Choice::Auto)?.only {
        return Ok(vec![(req.groups, one.engine, one.why)]);
    }
    let mut facts = facts(req);
    if facts.bpf.is_some() {
        facts.bpf = Bpf::new().ok().map(|e| e.support().groups);
    }
    facts.service = facts.service.filter(|_| Service::new().is_ok());
    Ok(decide(req, &facts).parts.into_iter().map(|p| (p.groups, p.engine, p.why)).collect())
}

/// Whether an answer about all processes may be requested in parts (see
/// [`Request::with_processes`]): the engines that would give the whole answer can do so. It tries
/// none of them.
///
/// # Errors
/// [`Error::Setting`] as [`query`].
pub fn comes_in_parts(req: &Request, choice: Choice) -> Result<bool, Error> {
    let divides = |engine| matches!(engine, EngineId::Bpf | EngineId::Procfs);
    Ok(match rule(choice)?.only {
        Some(one) => divides(one.engine),
        None => decide(req, &facts(req)).parts.iter().all(|part| divides(part.engine)),
    })
}

/// Facts that a person should know about all answers here: whether [`ENV`] or [`CONF`] choose the
/// engine, and whether process ids belong to another pid namespace.
///
/// # Errors
/// [`Error::Setting`] as [`query`].
pub fn remarks() -> Result<Vec<String>, Error> {
    let Ruled { only, caveat } = rule(Choice::Auto)?;
    let only = only.map(|one| format!("the {} engine answers: {}", one.engine, one.why));
    let foreign = (Procfs::new().is_ok() && !numbering::proc_is_own())
        .then(|| Caveat::ForeignProc.to_string());
    Ok(only.into_iter().chain(caveat.map(|c| c.to_string())).chain(foreign).collect())
}

/// Open an engine after trying it.
///
/// # Errors
/// [`Error::Unavailable`] with the reason and what would help.
pub fn open(engine: EngineId) -> Result<Box<dyn Engine>, Error> {
    if let Some(brake) = brake().filter(|_| engine != EngineId::Procfs) {
        return Err(brake.refusal(engine));
    }
    match engine {
        EngineId::Kernel => Ok(Box::new(Kernel::new()?)),
        EngineId::Bpf => Ok(Box::new(Bpf::new()?)),
        EngineId::Service => Ok(Box::new(Service::new()?)),
        EngineId::Procfs => Ok(Box::new(Procfs::new()?)),
    }
}

/// The engines that served a stream, with their groups, by its head.
pub fn served_by(info: &Info) -> Vec<(EngineId, Groups)> {
    [
        (EngineId::Kernel, info.kernel_groups),
        (EngineId::Bpf, info.bpf_groups),
        (EngineId::Procfs, info.procfs_groups),
    ]
    .into_iter()
    .filter(|(_, bits)| *bits != 0)
    .map(|(e, bits)| (e, Groups::from_bits(bits)))
    .collect()
}
