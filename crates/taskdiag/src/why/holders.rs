//! The holders of the objects that some threads wait for, for the columns of a table. `taskdiag
//! why` shows more.

use std::collections::HashMap;

use taskdiag_wire::{Groups, Record};

use super::lookup::Limits;
use super::wait::{self, How, NoHolder, Waits};
use crate::{Choice, Request, query_with};

/// The task that keeps a thread waiting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    /// The thread, or the first one of a process.
    pub tid: u32,
    /// The name of the holder. `None`: it is not known.
    pub comm: Option<Vec<u8>>,
    /// How that is known.
    pub how: How,
}

/// The holders for the threads of one answer. The holders were looked up a moment after the answer.
/// `None`: no engine answered.
#[derive(Debug)]
pub(crate) struct Holders(Option<HashMap<u32, (Waiting, Found)>>);

/// The holder, or the reason why none is known.
type Found = Result<Held, NoHolder>;

/// The wait of a thread when its holder was looked up. If the answer has another one, the wait has
/// changed.
#[derive(Debug, Default)]
struct Waiting {
    kind: Option<u32>,
    args: Option<[u64; 6]>,
    /// How often the thread had left a CPU.
    switches: Option<u64>,
}

impl Waiting {
    fn of(wait: Record<'_, taskdiag_wire::Wait>) -> Waiting {
        Waiting {
            kind: wait.kind(),
            args: wait.args().filter(|_| wait.syscall_nr().is_some_and(|nr| nr >= 0)),
            switches: wait.switches(),
        }
    }

    /// Whether the thread is in the same call. If it has a holder, it must be the same wait, too,
    /// because many programs wait for one thing after another in the same call.
    fn is_same(&self, now: &Waiting, has_holder: bool) -> bool {
        let has_run = self.switches.zip(now.switches).is_some_and(|(then, now)| then != now);
        (self.kind, self.args) == (now.kind, now.args) && !(has_holder && has_run)
    }
}

impl Holders {
    /// Looks up the holders for these threads, within the usual limits.
    pub(crate) fn look_up(of: &[u32], choice: Choice) -> Holders {
        let request = Request::all_threads(Groups::BASE | Groups::WAIT);
        let Ok(snapshot) = query_with(&request, choice) else { return Holders(None) };
        let mut waits = Waits::of(&snapshot);
        let found: Vec<usize> = of.iter().filter_map(|tid| waits.find(*tid)).collect();
        waits.look_up(found.iter().copied(), choice, Limits::default());
        let mut all = HashMap::with_capacity(found.len());
        let records = snapshot.tasks().map(|task| task.record().map(Waiting::of));
        let mut records: Vec<Waiting> = records.map(Option::unwrap_or_default).collect();
        for at in found {
            let one = &waits.all()[at];
            let comm = |tid| waits.find(tid).map(|at| waits.all()[at].comm.clone());
            let held = one.holder.map(|h| Held { tid: h.tid, comm: comm(h.tid), how: h.how });
            let held = if one.is_waiting() { held } else { Err(NoHolder::Nobody) };
            all.insert(one.tid, (std::mem::take(&mut records[at]), held));
        }
        Holders(Some(all))
    }

    /// The holder for the thread with this record.
    pub(crate) fn of(
        &self,
        tid: u32,
        wait: Record<'_, taskdiag_wire::Wait>,
    ) -> Result<&Held, NoHolder> {
        let Some(all) = &self.0 else { return Err(NoHolder::NotKnown) };
        match all.get(&tid) {
            Some((then, held)) if then.is_same(&Waiting::of(wait), held.is_ok()) => {
                held.as_ref().map_err(|why| *why)
            }
            _ => Err(NoHolder::Changed),
        }
    }
}

/// The holder that the record itself names, such as a record of a saved answer. Holders that only a
/// look at the machine can find are not known.
pub(crate) fn recorded(wait: Record<'_, taskdiag_wire::Wait>) -> Result<Held, NoHolder> {
    match wait::of_record(wait) {
        Ok(holder) => Ok(Held { tid: holder.tid, comm: None, how: holder.how }),
        Err(NoHolder::NotKept) => Err(NoHolder::NotKnown),
        Err(why) => Err(why),
    }
}
