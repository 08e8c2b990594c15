//! Makes a long answer in parts. Only one part is in memory at a time. `taskdiag dump` writes the
//! parts one after the other, as one stream.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use taskdiag_wire::{AlignedBuf, Done, Info, StreamWriter, build};

use super::choice::Choice;
use super::comes_in_parts;
use super::join;
use super::refs::{HighestNumbers, Renumber, patched};
use super::repeated::Repeated;
use crate::error::Error;
use crate::request::{ByteLimits, Processes, Request};
use crate::snapshot::{Served, Snapshot};

/// About how many processes a part has.
const PROCESSES: usize = 500;
/// The most parts. The engines look at the ids of all processes for each part.
const MOST: usize = 256;
/// A part may have this share of the bytes that an answer may have.
const SHARE: u64 = 4;

/// An answer about all processes that is made in parts, in the order of their ids. Together, the
/// parts are one stream.
///
/// Processes that share their memory or their files are recognized if they are in the same part.
#[derive(Debug)]
pub struct InParts {
    request: Request,
    choice: Choice,
    to_come: VecDeque<Processes>,
    repeated: Repeated,
    numbers: HighestNumbers,
    /// The INFO of the first part, with the engines of all parts so far.
    info: Option<Info>,
    done: Done,
    served: Vec<Served>,
    walked: Duration,
}

/// A part of an answer.
#[derive(Debug)]
pub struct Part<'a> {
    /// The answer about the processes of this part, as a whole stream.
    pub snapshot: &'a Snapshot,
    head: Option<AlignedBuf>,
    map: Renumber,
}

impl InParts {
    /// The answer to this request. `None` if the answer cannot be made in parts: there are few
    /// processes, the request is not about all of them, or an engine that would answer cannot
    /// divide them.
    ///
    /// # Errors
    /// [`Error::Setting`] as [`query`](super::query).
    pub fn new(request: Request, choice: Choice) -> Result<Option<InParts>, Error> {
        if request.strategy.takes_pid() || !request.processes.is_all() {
            return Ok(None);
        }
        let mut ids: Vec<u32> = Vec::new();
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            ids.extend(entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()));
        }
        let count = (ids.len() / PROCESSES).min(MOST);
        if count < 2 || !comes_in_parts(&request, choice)? {
            return Ok(None);
        }
        ids.sort_unstable();
        let ByteLimits { text_bytes, all_text_bytes, all_list_bytes } = request.limits;
        let (all_text_bytes, all_list_bytes) = (all_text_bytes / SHARE, all_list_bytes / SHARE);
        let limits = ByteLimits { text_bytes, all_text_bytes, all_list_bytes };
        Ok(Some(InParts::divided(request.with_limits(limits), choice, &ids, count)))
    }
    fn divided(request: Request, choice: Choice, ids: &[u32], count: usize) -> InParts {
        InParts {
            request,
            choice,
            to_come: Processes::divided(ids, count).into(),
            repeated: Repeated::default(),
            numbers: HighestNumbers::default(),
            info: None,
            done: Done::default(),
            served: Vec::new(),
            walked: Duration::ZERO,
        }
    }
    /// The next part, or `None` after the last one. If the request was stopped, the part that it
    /// interrupted is the last one.
    ///
    /// # Errors
    /// As [`query_with`](super::query_with).
    pub fn next_part(&mut self) -> Result<Option<Part<'_>>, Error> {
        let Some(processes) = self.to_come.pop_front().filter(|_| self.done.error == 0) else {
            return Ok(None);
        };
        let budget = self.request.budget.map(|b| b.saturating_sub(self.walked));
        let request = Request { processes, budget, ..self.request.clone() };
        let snapshot = self.repeated.ask_part(&request, self.choice)?;
        let stream = snapshot.stream();
        let is_first = self.info.is_none();
        let info = self.info.map_or(*stream.info(), |i| join::both_infos(&i, stream.info()));
        self.info = Some(info);
        self.done = join::sum(&self.done, stream.done());
        for new in snapshot.served() {
            self.walked += new.cost.walked;
            match self.served.iter_mut().find(|s| s.engine == new.engine) {
                Some(old) => {
                    old.groups |= new.groups;
                    old.cost = old.cost.plus(new.cost);
                    old.add_caveats(new.caveats.iter().cloned());
                }
                None => self.served.push(new.clone()),
            }
        }
        let head = is_first.then(|| head(&info));
        let map = self.numbers.admit(stream);
        Ok(Some(Part { snapshot, head, map }))
    }
    /// How many tasks the parts have so far.
    pub fn tasks(&self) -> u64 {
        self.done.tasks
    }
    /// The first bytes of the stream with the engines of all parts. When the first part was
    /// written, the engines of the other parts were not known yet.
    pub fn head(&self) -> Option<AlignedBuf> {
        self.info.as_ref().map(head)
    }
    /// The last bytes of the stream, and the totals of the whole answer as a snapshot without
    /// tasks.
    ///
    /// # Errors
    /// There was no part.
    pub fn end(self) -> Result<(AlignedBuf, Snapshot), Error> {
        let whole = |done: Done| {
            let mut w = StreamWriter::new();
            self.info.iter().for_each(|info| w.info(info));
            w.finish(done)
        };
        let done = StreamWriter::new().finish(self.done);
        let summary = whole(build!(Done { tasks: 0, ..self.done }));
        Ok((done, Snapshot::with_served(summary, self.served)?))
    }
}

impl Part<'_> {
    /// Writes the part to its place in the stream.
    ///
    /// # Errors
    /// The errors of `write`.
    pub fn write(&self, write: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        if let Some(head) = &self.head {
            write(head.as_bytes())?;
        }
        for task in self.snapshot.tasks() {
            write(&patched(task.messages(), task.attrs(), &self.map, |_, pid| pid))?;
        }
        Ok(())
    }
}

/// The head of a stream.
fn head(info: &Info) -> AlignedBuf {
    let mut w = StreamWriter::new();
    w.info(info);
    w.into_open()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::EngineId;
    use taskdiag_wire::{Groups, Vma};

    const PROCFS: Choice = Choice::Only(EngineId::Procfs);

    /// All parts of an answer as one stream.
    fn joined(mut parts: InParts) -> (Vec<u8>, Snapshot, usize) {
        let (mut bytes, mut count) = (Vec::new(), 0);
        while let Some(part) = parts.next_part().expect("it answers") {
            let mut write = |more: &[u8]| {
                bytes.extend_from_slice(more);
                Ok(())
            };
            part.write(&mut write).expect("a vector takes all");
            count += 1;
        }
        let (end, summary) = parts.end().expect("there were parts");
        bytes.extend_from_slice(end.as_bytes());
        (bytes, summary, count)
    }

    #[test]
    fn parts_are_one_stream() {
        let request = Request::all(Groups::BASE | Groups::VMA);
        let me = std::process::id();
        let limits = ByteLimits::LIST;
        let whole = request.clone().with_limits(limits);
        let parts = InParts::divided(whole, PROCFS, &[1, me.max(3) - 1, me, me + 1], 3);
        let (bytes, summary, count) = joined(parts);
        assert!(count > 1);
        let whole = Snapshot::read_from(&bytes[..]).expect("it is a stream");
        let one = crate::query_with(&Request::one(me, request.groups), PROCFS).expect("I live");
        // Both have the same names, although the numbers of the names differ.
        let names = |s: &Snapshot| -> Vec<Vec<u8>> {
            let vmas = s.task(me).expect("I live").list::<Vma>().expect("I have some");
            let name = |v: taskdiag_wire::Entry<'_, Vma>| s.stream().name(v.raw.name);
            vmas.filter_map(name).map(|n| n.data.into_owned()).collect()
        };
        let of_me = names(&one);
        assert!(!of_me.is_empty());
        // A thread of another test may have mapped something meanwhile.
        let there = names(&whole);
        assert!(of_me.iter().filter(|n| there.contains(n)).count() * 10 >= of_me.len() * 9);
        assert_eq!(whole.stream().info().procfs_groups, summary.stream().info().procfs_groups);
        assert_eq!(summary.served().len(), 1);
    }
}
