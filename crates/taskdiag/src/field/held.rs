//! For the threads of one answer: the holders of the objects that they wait for. They are looked up
//! once for an answer, at the first row that shows one.

use taskdiag_wire::{Group, Record, Wait};

use crate::Choice;
use crate::engine::EngineId;
use crate::snapshot::{Later, Snapshot};
use crate::why::{Held, Holders, NoHolder, recorded};

/// Looks up holders for the threads of an answer.
#[derive(Debug, Default)]
pub struct HolderLookup {
    /// `None`: the answer is an older one, or from another machine.
    live: Option<Live>,
}

#[derive(Debug)]
struct Live {
    later: Later,
    /// The threads; for processes, their first threads.
    tids: Vec<u32>,
    choice: Choice,
}

impl HolderLookup {
    /// For the rows of this answer.
    pub fn of(snapshot: &Snapshot) -> HolderLookup {
        let is_live = snapshot.took().is_some() && snapshot.stream().asked().has(Group::Wait);
        if !is_live {
            return HolderLookup::default();
        }
        let asked = snapshot.served().iter().find(|s| s.is_asked_for());
        let choice = match asked.map(|s| s.engine) {
            Some(engine @ (EngineId::Bpf | EngineId::Procfs)) => Choice::Only(engine),
            _ => Choice::Auto,
        };
        let tids = snapshot.tasks().map(|t| t.pid()).collect();
        HolderLookup { live: Some(Live { later: snapshot.later().clone(), tids, choice }) }
    }

    /// Calls a function with the holder for this thread.
    pub fn with<T>(
        &self,
        tid: u32,
        wait: Record<'_, Wait>,
        f: impl FnOnce(Result<&Held, NoHolder>) -> T,
    ) -> T {
        let Some(live) = &self.live else {
            let held = recorded(wait);
            return f(held.as_ref().map_err(|why| *why));
        };
        let look = || -> Box<dyn std::any::Any + Send + Sync> {
            Box::new(Holders::look_up(&live.tids, live.choice))
        };
        match live.later.get_or_init(look).downcast_ref::<Holders>() {
            Some(holders) => f(holders.of(tid, wait)),
            None => f(Err(NoHolder::NotKnown)),
        }
    }
}
