//! The requests to the engines, and their answers.

use taskdiag::{Choice, Error, Processes, Repeated, Request, Snapshot, comes_in_parts};

use crate::guard::{self, Failed};
use crate::plan::{self, Plan};
use crate::real::Version;

/// Why the real library has to answer a call.
#[derive(Debug)]
pub enum Refused {
    /// An engine failed.
    Engine(Error),
    /// There is too little memory, or a thread cannot be made.
    Failed(Failed),
    /// The real library would not make a context for items.
    Old,
    /// A value is missing, and the real library would leak a descriptor for a single task.
    Missing,
}

impl From<Error> for Refused {
    fn from(e: Error) -> Refused {
        Refused::Engine(e)
    }
}

impl From<Failed> for Refused {
    fn from(e: Failed) -> Refused {
        Refused::Failed(e)
    }
}

impl From<std::collections::TryReserveError> for Refused {
    fn from(_: std::collections::TryReserveError) -> Refused {
        Refused::Failed(Failed::Memory)
    }
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Refused::Engine(e) => e.fmt(f),
            Refused::Failed(Failed::Memory) => f.write_str("there may be too little memory"),
            Refused::Failed(Failed::Thread(e)) => write!(f, "a thread cannot be made: {e}"),
            Refused::Old => f.write_str("it refuses some of its own items"),
            Refused::Missing => f.write_str(
                "a value is missing, and its function for single processes leaves files open",
            ),
        }
    }
}

/// The requests of one kind of call: about processes, and about threads.
#[derive(Default)]
pub struct Sources([Pair; 2]);

/// A request about the tasks of a list, and another one about their processes.
#[derive(Default)]
struct Pair {
    tasks: Repeated,
    processes: Repeated,
    has_processes: bool,
}

impl Pair {
    fn ask(
        &mut self,
        tasks: &Request,
        processes: Option<&Request>,
        finds: bool,
    ) -> Result<(), Error> {
        // A table for finding tasks is made at the first search, and it may be large.
        let snapshot = one(&mut self.tasks, tasks)?;
        if finds {
            snapshot.task(1);
        }
        self.has_processes = processes.is_some();
        if let Some(request) = processes {
            one(&mut self.processes, request)?.task(1);
        }
        Ok(())
    }
}

/// Makes a request for all processes, or for some.
fn one<'a>(repeated: &'a mut Repeated, request: &Request) -> Result<&'a Snapshot, Error> {
    if request.processes.is_all() {
        return repeated.ask(request, Choice::Auto);
    }
    repeated.ask_part(request, Choice::Auto)
}

/// Whether the planned answers can be made in parts.
pub fn divides(plan: &Plan, threads: bool, version: Version) -> bool {
    let requests = [Some(plan.request(threads)), plan.processes(threads, version)];
    // An engine that cannot be chosen fails when it is asked.
    requests.iter().flatten().all(|r| comes_in_parts(r, Choice::Auto).unwrap_or(false))
}

impl Sources {
    /// Requests the planned groups for these processes. `finds`: tasks will be looked up by their
    /// ids. `is_guarded`: allocations may fail.
    pub fn ask(
        &mut self,
        plan: &Plan,
        is_guarded: bool,
        threads: bool,
        version: Version,
        finds: bool,
        part: Processes,
    ) -> Result<(), Refused> {
        let tasks = plan::part(plan.request(threads), part);
        let processes = plan.processes(threads, version).map(|r| plan::part(r, part));
        let place = &mut self.0[usize::from(threads)];
        if !is_guarded {
            return Ok(place.ask(&tasks, processes.as_ref(), finds)?);
        }
        let mut pair = std::mem::take(place);
        let (pair, asked) = guard::run(move || {
            let asked = pair.ask(&tasks, processes.as_ref(), finds);
            (pair, asked)
        })?;
        *place = pair;
        Ok(asked?)
    }

    /// Marks that all parts were requested, and frees their memory.
    pub fn end_parts(&mut self, threads: bool) {
        let pair = &mut self.0[usize::from(threads)];
        pair.tasks.end_parts();
        if pair.has_processes {
            pair.processes.end_parts();
        }
    }

    /// The answers about the tasks, and about their processes.
    pub fn answers(&self, threads: bool) -> Result<(&Snapshot, Option<&Snapshot>), Refused> {
        let pair = &self.0[usize::from(threads)];
        let none = || Refused::Failed(Failed::Memory);
        let tasks = pair.tasks.answer().ok_or_else(none)?;
        let processes = match pair.has_processes {
            true => Some(pair.processes.answer().ok_or_else(none)?),
            false => None,
        };
        Ok((tasks, processes))
    }
}
