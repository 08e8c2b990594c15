//! More about few of the tasks of an answer: what a first, cheap request found is asked for one by one,
//! where that costs less than another request about all.

use taskdiag_wire::{Done, Groups, Info, StreamWriter, build};

use super::choice::{Choice, rule};
use super::cost::{self, Facts};
use super::{Gathered, facts, gather, join};
use crate::engine::EngineId;
use crate::error::Error;
use crate::request::Request;
use crate::snapshot::Snapshot;

/// What each request of several costs beside its engine: the choice of who answers, and joining the answers.
const EACH: u64 = 15_000;

/// What requests would cost here.
#[derive(Debug)]
pub(crate) struct Prices {
    facts: Facts,
    only: Option<EngineId>,
}

impl Prices {
    /// For requests of no more groups than this one has.
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
    /// CPU time of so many requests of the same kind, ns.
    pub(crate) fn of_each(&self, req: &Request, count: usize) -> u64 {
        (self.of(req) + EACH).saturating_mul(count as u64)
    }
}

/// The answers to these requests as one, as of the moment when `first` was asked and for the groups `asked`.
/// An answer that is not `taken`, and a process that does not exist any more, is one that has vanished.
///
/// # Errors
/// As [`query`](super::query), but for pids that do not exist.
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
    Snapshot::with_served(join::concat(streams)?, served)
}
