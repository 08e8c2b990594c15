//! Runs the parts of a plan: asks the engines, and joins their answers.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Mode, OFlags};
use taskdiag_wire::{Groups, Strategy, Stream};

use super::cost::EnginePart;
use super::engines::Engines;
use super::{join, text};
use crate::bytes::Bytes;
use crate::engine::procfs::Procfs;
use crate::engine::{Answer, Engine, EngineId};
use crate::error::Error;
use crate::request::{Members, Request};
use crate::snapshot::{Caveat, Served, Snapshot};

pub(super) type Failed = (EngineId, Error);

pub(super) fn run(
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
        if (by_bpf || part.engine == EngineId::Kernel) && !one {
            (groups, members) = text::with_identity(groups, members);
        }
        let asked = Request { groups, members, ..req.clone() };
        let a = engines.run(part.engine, mappings, &asked).map_err(err)?;
        let (mut bytes, mut why, mut cost) = (a.stream, part.why.clone(), a.cost);
        let mut caveats = Vec::new();
        if by_bpf || part.engine == EngineId::Kernel {
            let (whole, n, extra) = text::complete(&asked, bytes).map_err(err)?;
            (bytes, cost) = (whole, cost.plus(extra));
            if n > 0 {
                why += &format!("; {n} tasks' text was not in memory and was read from /proc");
            }
        }
        if by_bpf {
            if let Some(extra) = hidden_init(req, groups, &bytes).map_err(err)? {
                cost = cost.plus(extra.cost);
                bytes = join::append(bytes, extra.stream.as_ref()).map_err(err)?;
                why += "; pid 1 is hidden from BPF here and was read from /proc";
            } else if lacks_init(req, bytes.as_ref()) {
                caveats.push(Caveat::InitHidden);
            }
        }
        // If this answer is well formed, the fault is in the answer that it is joined to.
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
pub(super) fn lacks_init(req: &Request, bytes: &[u8]) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::Watch;
    use std::sync::Arc;
    use taskdiag_wire::{Done, StreamWriter};

    #[test]
    fn a_list_of_all_that_begins_after_process_1_lacks_it() {
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
