//! Choosing an engine for a request.

use std::str::FromStr;

use crate::engine::procfs::Procfs;
use crate::engine::{Engine, EngineId};
use crate::error::Error;
use crate::request::Request;
use crate::snapshot::{Served, Snapshot};

/// Who may answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// Whoever is fastest, group by group.
    #[default]
    Auto,
    /// This engine or none.
    Only(EngineId),
}

impl FromStr for Choice {
    type Err = String;
    fn from_str(s: &str) -> Result<Choice, String> {
        if s == "auto" {
            return Ok(Choice::Auto);
        }
        let names = || EngineId::ALL.map(EngineId::name).join(", ");
        EngineId::ALL
            .into_iter()
            .find(|e| e.name() == s)
            .map(Choice::Only)
            .ok_or_else(|| format!("there is no engine '{s}'; there are auto, {}", names()))
    }
}

/// Answer a request from the fastest source of this machine.
///
/// # Errors
/// [`Error::NoSuchProcess`] for a pid that is not there, [`Error::Unavailable`] where /proc
/// itself cannot be read.
pub fn query(req: &Request) -> Result<Snapshot, Error> {
    query_with(req, Choice::Auto)
}

/// [`query`] with a say in who answers.
pub fn query_with(req: &Request, choice: Choice) -> Result<Snapshot, Error> {
    let _ = choice;
    let mut engine = Procfs::new()?;
    let a = engine.run(req)?;
    let served = Served {
        engine: engine.id(),
        groups: req.groups,
        why: String::from("the only engine"),
        cost: a.cost,
    };
    Snapshot::with_served(a.stream, vec![served])
}

/// One answer for several requests of the same strategy and groups (several pids). Pids that do
/// not exist are returned beside it.
pub fn query_each(reqs: &[Request], choice: Choice) -> Result<(Snapshot, Vec<u32>), Error> {
    let _ = (reqs, choice);
    todo!("joined below")
}
