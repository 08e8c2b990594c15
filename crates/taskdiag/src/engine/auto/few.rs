//! Reads more about a few tasks of an answer: the tasks that a first, cheap request found are
//! requested one by one, if that costs less than another request about all tasks.

use taskdiag_wire::{Done, Groups, Info, StreamWriter, build};

use super::aliases;
use super::choice::{Choice, rule};
use super::cost::{self, Facts};
use super::{Gathered, facts, gather, join};
use crate::engine::EngineId;
use crate::error::Error;
use crate::request::Request;
use crate::snapshot::Snapshot;

/// CPU time in ns of each request outside of the engine, to choose the engine and to join the
/// answers.
const EACH: u64 = 15_000;

/// The estimated costs of requests on this machine.
#[derive(Debug)]
pub(crate) struct Prices {
    facts: Facts,
    only: Option<EngineId>,
}

impl Prices {
    /// Costs of requests whose groups are a subset of those of `most`.
    pub(crate) fn new(most: &Request, choice: Choice) -> Result<Prices, Error> {
        Ok(Prices { facts: facts(most), only: rule(choice)?.only.map(|one| one.engine) })
    }
    /// CPU time of a request in ns, by the cost model.
    pub(crate) fn of(&self, req: &Request) -> u64 {
        match self.only {
            Some(engine) => cost::estimate(engine, req, &self.facts),
            None => cost::cheapest(req, &self.facts).unwrap_or(0),
        }
    }
    /// CPU time of `count` requests of the same kind, ns.
    pub(crate) fn of_each(&self, req: &Request, count: usize) -> u64 {
        (self.of(req) + EACH).saturating_mul(count as u64)
    }
}

/// The answers to these requests joined into one, with the time of `first` and for the groups `asked`. A process that does
/// not exist any more, or whose answer `taken` refuses, counts as vanished.
///
/// # Errors
/// As [`query`](super::query), except that pids that do not exist are no error.
pub(crate) fn few(
    first: &Snapshot,
    asked: Groups,
    reqs: &[Request],
    choice: Choice,
    taken: &dyn Fn(&Snapshot) -> bool,
) -> Result<Snapshot, Error> {
    let before = first.served().to_vec();
    let Gathered { mut streams, served, nobody } = gather(reqs, choice, before, taken)?;
    let info = *first.stream().info();
    let mut w = StreamWriter::new();
    w.info(&build!(Info { show_flags: info.show_flags | asked.bits(), ..info }));
    let error = first.stream().done().error;
    streams.insert(
        0,
        w.finish(build!(Done { error, vanished: nobody.len() as u64, ..Done::default() })),
    );
    aliases::joined(Snapshot::with_served(join::concat(streams)?, served)?)
}
