//! Chooses the engines that answer a request, falls back if one fails, and reports which engine
//! served what and why. `cost` compares the engines; `join` and `refs` join their answers.

mod aliases;
mod choice;
mod cost;
mod denied_groups;
mod engines;
#[cfg(feature = "view")]
mod follow_up;
mod guarded_session;
mod join;
mod refs;
mod repeated;
mod session;
mod text;

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Mode, OFlags};
use taskdiag_wire::{AlignedBuf, Groups, Info, Strategy, Stream};

pub use self::choice::{CONF, Choice, ENV};
use self::choice::{Only, Ruled, brake, rule};
use self::cost::{EnginePart, Facts, Split, decide};
use self::engines::Engines;
#[cfg(feature = "view")]
pub(crate) use self::follow_up::{Found, in_two_steps};
pub use self::repeated::{Repeated, SessionCache};
pub use self::session::Session;
use crate::bytes::Bytes;
use crate::engine::bpf::{self, Bpf};
use crate::engine::kernel::Kernel;
use crate::engine::procfs::Procfs;
use crate::engine::room::Several;
use crate::engine::service::{self, Service};
use crate::engine::{Answer, Cost, Engine, EngineId, Support, estimate, mappings, numbering};
use crate::error::{Cause, Error};
use crate::request::{Members, Request};
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

/// The plan of an earlier answer to the same request.
#[derive(Debug)]
struct Planned {
    facts: Facts,
    plan: Split,
    /// An engine failed, maybe only once. It is tried again from this moment on.
    until: Option<Instant>,
}

/// How long a session does not use an engine that failed.
const TRY_AGAIN: Duration = Duration::from_secs(60);

/// [`query_with`] with engines that may be kept.
fn answer(
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

/// One answer to several requests for the same groups (for several pids, say). It has each task
/// once, in the order of the requests. Pids that do not exist are returned separately. A budget
/// applies to all requests together.
///
/// # Errors
/// As [`query`], except that pids that do not exist are no error.
pub fn query_each(reqs: &[Request], choice: Choice) -> Result<(Snapshot, Vec<u32>), Error> {
    let Gathered { mut streams, served, nobody } = gather(reqs, choice, Vec::new(), &|_| true)?;
    if streams.is_empty() {
        let (groups, strategy) =
            reqs.first().map_or((Groups::NONE, Strategy::One), |r| (r.groups, r.strategy));
        let mut w = taskdiag_wire::StreamWriter::new();
        w.info(&crate::engine::info::info(&Request::new(strategy, 0, groups)));
        streams.push(w.finish(taskdiag_wire::Done::default()));
    }
    let snapshot = Snapshot::with_served(join::concat(streams)?, served)?;
    Ok((aliases::joined(snapshot)?, nobody))
}

/// The answers to several requests.
struct Gathered {
    streams: Vec<AlignedBuf>,
    served: Vec<Served>,
    /// Pids that do not exist, or whose answer was not accepted.
    nobody: Vec<u32>,
}

/// Ask each request, and keep the answers that `taken` accepts. `served` has the engines of earlier
/// requests.
fn gather(
    reqs: &[Request],
    choice: Choice,
    mut served: Vec<Served>,
    taken: &dyn Fn(&Snapshot) -> bool,
) -> Result<Gathered, Error> {
    let mut streams = Vec::new();
    let mut nobody = Vec::new();
    let mut walked = Duration::ZERO;
    let mut room = reqs.first().map(|r| Several::new(r.limits, reqs.len(), 0));
    for req in reqs {
        let budget = req.budget.map(|b| b.saturating_sub(walked));
        let limits = room.as_mut().map_or(req.limits, |room| room.next(req.limits));
        match query_with(&Request { budget, limits, ..req.clone() }, choice) {
            Ok(s) => {
                if let Some(room) = &mut room {
                    room.spend(s.stream());
                }
                for new in s.served() {
                    walked += new.cost.walked;
                    match served.iter_mut().find(|s| s.engine == new.engine) {
                        Some(old) => {
                            old.groups |= new.groups;
                            old.cost = add(old.cost, new.cost);
                            old.add_caveats(new.caveats.iter().cloned());
                        }
                        None => served.push(new.clone()),
                    }
                }
                match taken(&s) {
                    true => streams.push(s.into_bytes().into_owned()),
                    false => nobody.push(req.pid),
                }
            }
            Err(Error::NoSuchProcess(pid)) => nobody.push(pid),
            Err(Error::Hidden { engine, .. }) => served.push(Served::hidden(engine)),
            Err(e) => return Err(e),
        }
    }
    Ok(Gathered { streams, served, nobody })
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
        // If the BPF part failed after a walk over pages, that would be done twice. So BPF is tried
        // first.
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
                let denied = denied_groups::found(&plan.parts, &snapshot, facts.bpf);
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
        Ok(_) => Error::Unsupported { engine, groups },
    }
}

type Failed = (EngineId, Error);

fn run(
    req: &Request,
    parts: &[EnginePart],
    mappings: Option<u64>,
    before: &[Error],
    engines: &mut Engines,
) -> Result<Snapshot, Failed> {
    let mut stream: Option<Bytes> = None;
    let mut served = Vec::new();
    // Parts of two engines are joined only if their start times show that they are about the same
    // process.
    let members = if parts.len() > 1 { Members::ALL } else { req.members };
    // For one process without BASE, it suffices that it exists until the end.
    let one = req.strategy == Strategy::One && !parts[0].groups.contains(Groups::BASE);
    let process = (one && parts.len() > 1).then(|| Process::open(req.pid)).flatten();
    for part in parts {
        let err = |e| (part.engine, e);
        let mut groups = part.groups;
        if parts.len() > 1 && !one {
            // BASE shows whether it is the same process.
            groups |= Groups::BASE;
        }
        let mut members = members;
        // The service walks with BPF, too.
        let by_bpf = matches!(part.engine, EngineId::Bpf | EngineId::Service);
        if by_bpf && !one {
            (groups, members) = text::with_identity(groups, members);
        }
        let asked = Request { groups, members, ..req.clone() };
        let a = engines.run(part.engine, mappings, &asked).map_err(err)?;
        let (mut bytes, mut why, mut cost) = (a.stream, part.why.clone(), a.cost);
        let mut caveats = Vec::new();
        if by_bpf {
            let (whole, n, extra) = text::complete(&asked, bytes).map_err(err)?;
            (bytes, cost) = (whole, add(cost, extra));
            if n > 0 {
                why += &format!("; {n} tasks' text was not in memory and was read from /proc");
            }
            if let Some(extra) = hidden_init(req, groups, &bytes).map_err(err)? {
                cost = add(cost, extra.cost);
                bytes = join::append(bytes, extra.stream.as_ref()).map_err(err)?;
                why += "; pid 1 is hidden from BPF here and was read from /proc";
            } else if lacks_init(req, bytes.as_ref()) {
                caveats.push(Caveat::InitHidden);
            }
        }
        // If this answer is well formed, the one that it is added to is not.
        let unfit = |e: Error| {
            let sound = Stream::parse(bytes.as_ref()).is_ok();
            (if sound { parts[0].engine } else { part.engine }, e)
        };
        stream = Some(match stream {
            None => bytes,
            Some(main) if one => join::add_to_one(main, bytes.as_ref()).map_err(unfit)?,
            Some(main) => join::add_groups(main.as_ref(), bytes.as_ref()).map_err(unfit)?.into(),
        });
        let (engine, groups) = (part.engine, part.groups);
        served.push(Served { engine, groups, why, cost, caveats });
    }
    if process.is_some_and(|p| !p.is_there()) {
        return Err((EngineId::Procfs, Error::NoSuchProcess(req.pid)));
    }
    for s in &mut served {
        for e in before {
            s.why += &format!("; {e}");
        }
    }
    // A malformed stream is reported for the engine that made it; for joined answers, for the first
    // engine.
    Snapshot::with_served(stream.expect("a plan has a part"), served)
        .map_err(|e| (parts[0].engine, e))
}

/// A process, identified by its open directory in /proc. A later process with the same pid cannot
/// appear there.
struct Process(OwnedFd);

impl Process {
    fn open(pid: u32) -> Option<Process> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::open(format!("/proc/{pid}"), flags, Mode::empty()).ok().map(Process)
    }
    fn is_there(&self) -> bool {
        rustix::fs::statat(&self.0, "stat", AtFlags::empty()).is_ok()
    }
}

/// Does an answer about all tasks lack pid 1? Every pid namespace has one, so the answer is not
/// complete then: some sandboxes hide it from BPF iterators.
///
/// A walk visits pid 1 first, because it is the oldest task of its namespace. An answer that was
/// stopped may lack it.
fn lacks_init(req: &Request, bytes: &[u8]) -> bool {
    matches!(req.strategy, Strategy::All | Strategy::AllThread)
        && req.processes.has(1)
        && !req.is_stopped()
        && taskdiag_wire::decode::first_pid(bytes) != Some(1)
}

/// The answer of procfs about pid 1, if that is hidden from BPF.
fn hidden_init(req: &Request, groups: Groups, bytes: &Bytes) -> Result<Option<Answer>, Error> {
    if !lacks_init(req, bytes.as_ref()) {
        return Ok(None);
    }
    let strategy = if req.strategy == Strategy::All { Strategy::One } else { Strategy::Thread };
    let Ok(mut procfs) = Procfs::new() else { return Ok(None) };
    match procfs.run(&Request { strategy, pid: 1, groups, ..req.clone() }) {
        Ok(a) => Ok(Some(a)),
        Err(Error::NoSuchProcess(_)) => Ok(None),
        Err(e) => Err(e),
    }
}

fn add(a: Cost, b: Cost) -> Cost {
    Cost { syscalls: a.syscalls + b.syscalls, wall: a.wall + b.wall, walked: a.walked + b.walked }
}

/// The groups that the kernel engine answers here, or `None` if it would leave out processes of
/// others that /proc shows.
fn kernel_groups(strategy: Strategy) -> Option<Groups> {
    let kernel = Kernel::new().ok()?;
    // If one process is hidden, that is noticed, and another engine is used. If some threads of a
    // process are hidden, that is not noticed.
    let one = strategy == Strategy::One;
    (one || kernel.sees_all()).then(|| kernel.support().groups)
}

/// The facts that are known without trying an engine. This is cheap: it opens at most
/// /proc/loadavg, and two files of a process whose mappings are asked for.
///
/// If /proc belongs to another pid namespace, its process ids are not those that BPF gives. All
/// answers of a machine should have one numbering. The numbering of /proc is used, because procfs
/// has all groups, needs no rights, and agrees with other tools.
fn facts(req: &Request) -> Facts {
    let strategy = req.strategy;
    let (processes, threads) = match strategy {
        // A few processes may have many threads, and each thread makes a listing of /proc slower.
        // So the threads are counted unless there are many processes. Then sysinfo(2) suffices,
        // although its count is modulo 65536.
        Strategy::All | Strategy::Children => {
            let processes = estimate::processes();
            (processes, (processes < 4096).then(estimate::threads))
        }
        Strategy::One => (1, Some(1)),
        Strategy::AllThread => (estimate::processes(), Some(estimate::threads())),
        Strategy::Thread => (1, Some(estimate::threads_of(req.pid).unwrap_or(1))),
    };
    let threads = threads.unwrap_or_else(|| usize::from(rustix::system::sysinfo().procs));
    let (processes, threads) = (processes as u64, threads.max(processes) as u64);
    let procfs = Procfs::new().ok().map(|p| p.support().groups);
    let is_whole = req.processes.is_all();
    let foreign_proc = procfs.is_some() && !numbering::proc_is_own();
    Facts {
        processes,
        threads,
        mappings: cost::many_mappings(req).and_then(|many| mappings::about(req.pid, many)),
        kernel: is_whole.then(|| kernel_groups(strategy)).flatten(),
        bpf: (bpf::IS_BUILT && !foreign_proc).then(|| bpf::groups(req.groups)),
        procfs,
        foreign_proc,
        service: (!foreign_proc && is_whole)
            .then(|| service::groups(strategy))
            .flatten()
            .map(|all| service::with_room(req, all)),
        denied: denied_groups::expected(req),
        is_session: false,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::Watch;
    use std::sync::Arc;
    use taskdiag_wire::{Done, StreamWriter};

    #[test]
    fn init_is_the_first_or_hidden() {
        let list = |pids: &mut dyn Iterator<Item = u32>| {
            let mut w = StreamWriter::new();
            w.info(&StreamWriter::blank_info());
            for pid in pids {
                w.begin_task(pid, pid);
                w.end_task();
            }
            w.finish(Done::default())
        };
        let (there, hidden) = (list(&mut (1..90)), list(&mut (2..90)));
        let all = Request::all(Groups::NONE);
        assert!(!lacks_init(&all, there.as_bytes()));
        assert!(lacks_init(&all, hidden.as_bytes()));
        assert!(lacks_init(&all, list(&mut (0..0)).as_bytes()));
        assert!(!lacks_init(&Request::one(7, Groups::NONE), hidden.as_bytes()));
        let stopped = Arc::new(Watch::new());
        stopped.stop();
        assert!(!lacks_init(&all.with_watch(stopped), hidden.as_bytes()));
    }
}
