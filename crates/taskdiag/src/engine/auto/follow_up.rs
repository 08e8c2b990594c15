//! Reads more about a few tasks of an answer: the tasks that a first, cheap request found are
//! requested one by one, if that costs less than another request about all tasks.

use taskdiag_wire::{Done, Groups, Info, build};

use super::aliases;
use super::choice::{Choice, rule};
use super::cost::{self, Facts};
use super::facts::facts;
use super::join::Joined;
use super::{Gathered, gather};
use crate::engine::EngineId;
use crate::error::Error;
use crate::request::Request;
use crate::snapshot::Snapshot;

/// CPU time in ns of each request outside of the engine, to choose the engine and to join the
/// answers.
const EACH: u64 = 15_000;

/// The estimated costs of requests on this machine.
#[derive(Debug)]
struct Prices {
    facts: Facts,
    only: Option<EngineId>,
}

impl Prices {
    /// Prices of requests whose groups are a subset of those of `most`.
    fn new(most: &Request, choice: Choice) -> Result<Prices, Error> {
        Ok(Prices { facts: facts(most), only: rule(choice)?.only.map(|one| one.engine) })
    }
    /// CPU time of a request in ns, by the cost model.
    fn of(&self, req: &Request) -> u64 {
        match self.only {
            Some(engine) => cost::estimate(engine, req, &self.facts),
            None => cost::cheapest(req, &self.facts).unwrap_or(0),
        }
    }
    /// CPU time of `count` requests of the same kind, ns.
    fn of_each(&self, req: &Request, count: usize) -> u64 {
        (self.of(req) + EACH).saturating_mul(count as u64)
    }
}

/// The result of the first step of a request in two steps.
pub(crate) struct Found {
    /// The processes that may pass the conditions.
    pub processes: Vec<u32>,
    /// The request about each of them, without its pid.
    pub one: Request,
    /// Whether an answer about one process is about the process that was found, and not about a
    /// later one with its pid.
    pub is_same: Box<dyn Fn(&Snapshot) -> bool>,
}

/// Asks `first`, about all tasks. Then it asks for the rest of the data about the tasks that `find`
/// finds in that answer. It does so only if the two steps cost less than `all`, a single request
/// about all tasks. `query` answers conditions about all tasks; `is_rare` means that few tasks are
/// likely to be found.
///
/// # Errors
/// As [`query`](super::query).
pub(crate) fn in_two_steps(
    [first, all]: [&Request; 2],
    is_rare: bool,
    choice: Choice,
    query: &dyn Fn(&Request) -> Result<Snapshot, Error>,
    find: impl FnOnce(&Snapshot) -> Found,
) -> Result<Snapshot, Error> {
    let prices = Prices::new(all, choice)?;
    // If most tasks pass, the first step is wasted. So it is done only if it may save enough.
    let (step, whole) = (prices.of(first), prices.of(all));
    let is_worth_it = if is_rare { step * 11 <= whole * 10 } else { step * 2 <= whole };
    if !is_worth_it {
        return query(all);
    }
    let first = query(first)?;
    let Found { processes, one, is_same } = find(&first);
    let stopped = first.stream().done().error != 0;
    if !stopped && prices.of_each(&one, processes.len()) > whole {
        // Free the memory of the first answer before the next one is made.
        drop(first);
        return query(all);
    }
    let requests: Vec<Request> =
        processes.into_iter().map(|pid| Request { pid, ..one.clone() }).collect();
    few(&first, all.groups, &requests, choice, &*is_same)
}

/// The answers to these requests joined into one, with the time of `first` and for the groups
/// `asked`. A process that does not exist any more, or whose answer `taken` refuses, counts as
/// vanished.
///
/// # Errors
/// As [`query`](super::query), except that pids that do not exist are no error.
fn few(
    first: &Snapshot,
    asked: Groups,
    reqs: &[Request],
    choice: Choice,
    taken: &dyn Fn(&Snapshot) -> bool,
) -> Result<Snapshot, Error> {
    let before = first.served().to_vec();
    let info = *first.stream().info();
    let info = build!(Info { show_flags: info.show_flags | asked.bits(), ..info });
    let error = first.stream().done().error;
    let mut all = Joined::default();
    all.head(&info, &build!(Done { error, ..Done::default() }));
    let Gathered { served, nobody } = gather(reqs, choice, before, taken, &mut all)?;
    all.head(&info, &build!(Done { vanished: nobody.len() as u64, ..Done::default() }));
    aliases::joined(Snapshot::with_served(all.finish(), served)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_whose_answer_was_not_taken_has_vanished() {
        let me = std::process::id();
        let procfs = Choice::Only(crate::EngineId::Procfs);
        let one = Request::one(me, Groups::BASE);
        let first = crate::query_with(&one, procfs).expect("/proc is there");
        // No process can have the second pid.
        let requests = [one, Request::one(i32::MAX as u32, Groups::BASE)];
        for (taken, tasks) in [(true, 1), (false, 0)] {
            let answer =
                few(&first, Groups::BASE, &requests, procfs, &|_| taken).expect("it joins");
            let done = answer.stream().done();
            assert_eq!((answer.tasks().len() as u64, done.vanished), (tasks, 2 - tasks));
        }
    }
}
