//! A parsed stream and its origin.

use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io::{self, Read, Write};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use taskdiag_wire::decode::Stream;
use taskdiag_wire::{AlignedBuf, ContainerPart, Groups, StreamWriter, TaskView};

use crate::bytes::Bytes;
use crate::cgroup;
use crate::containers;
use crate::error::Error;
use crate::served::{Cost, EngineId};

/// One engine's share of an answer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Served {
    /// Who.
    pub engine: EngineId,
    /// Which groups.
    pub groups: Groups,
    /// The reason for this engine, in a few words for users.
    pub why: String,
    /// What it cost.
    pub cost: Cost,
    /// Remarks about the answer for users.
    pub caveats: Vec<Caveat>,
}

/// The reason for an engine that the caller chose.
pub(crate) const ASKED_FOR: &str = "asked for";

impl Served {
    /// An engine from which the one process asked about is hidden.
    pub(crate) fn hidden(engine: EngineId) -> Served {
        let (groups, cost) = (Groups::NONE, Cost::default());
        let why = String::from(ASKED_FOR);
        Served { engine, groups, why, cost, caveats: vec![Caveat::InitHidden] }
    }
    /// Whether the caller chose this engine alone.
    pub(crate) fn is_asked_for(&self) -> bool {
        self.why == ASKED_FOR
    }
    pub(crate) fn add_caveats(&mut self, more: impl IntoIterator<Item = Caveat>) {
        for caveat in more {
            if !self.caveats.contains(&caveat) {
                self.caveats.push(caveat);
            }
        }
    }
}

/// Differences between an answer and the usual expectation, which are not in the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Caveat {
    /// Process 1 exists but is not in the answer: BPF cannot see it, and no other engine was
    /// allowed.
    InitHidden,
    /// The process ids come from /proc, whose pid namespace differs from that of the reader.
    ForeignProc,
    /// The file of the brake cannot be trusted or parsed, for this reason, so BPF is off.
    Distrust(String),
}

impl Caveat {
    /// Does the answer lack something?
    pub fn is_lack(&self) -> bool {
        matches!(self, Caveat::InitHidden)
    }
}

impl fmt::Display for Caveat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Caveat::InitHidden => f.write_str(
                "process 1 is hidden from BPF here, as some sandboxes do, and is not in the answer: \
                 without --engine, and with a /proc that is mounted, it is read from there",
            ),
            Caveat::ForeignProc => f.write_str(
                "/proc is of another pid namespace: process ids are those of that namespace, not of \
                 this one; 'mount -t proc proc /proc' here makes them the same, --engine bpf gives \
                 those of this one",
            ),
            Caveat::Distrust(why) => write!(f, "{why}; until that is fixed, BPF is not used"),
        }
    }
}

/// A complete answer: the bytes of a stream, checked and indexed, with zero-copy views.
#[derive(Clone, Debug)]
pub struct Snapshot {
    stream: Stream<Bytes>,
    served: Vec<Served>,
    later: Later,
    #[cfg(feature = "view")]
    decided: Option<Arc<Decided>>,
}

/// Data that is looked up on the machine after the answer, for columns that need it. All copies of
/// an answer share the data, so conditions and columns see the same. The module that looks it up
/// knows its type.
pub(crate) type Later = Arc<OnceLock<Box<dyn Any + Send + Sync>>>;

/// The results of a second look at the text of some tasks.
#[cfg(feature = "view")]
#[derive(Debug)]
pub(crate) struct Decided {
    /// The filter, as text.
    pub filter: String,
    /// By process: whether its conditions on text are true.
    pub results: HashMap<u32, bool>,
}

impl Snapshot {
    /// Check and index a stream.
    pub fn parse(bytes: impl Into<Bytes>) -> Result<Snapshot, Error> {
        Snapshot::with_served(bytes, Vec::new())
    }
    /// [`Snapshot::parse`], with a record of the engines.
    pub fn with_served(bytes: impl Into<Bytes>, served: Vec<Served>) -> Result<Snapshot, Error> {
        Ok(Snapshot {
            stream: Stream::parse(bytes.into())?,
            served,
            later: Later::default(),
            #[cfg(feature = "view")]
            decided: None,
        })
    }
    /// Read a saved stream to its end.
    ///
    /// # Errors
    /// [`Error::Io`] where reading fails, [`Error::Stream`] where it is cut, foreign or malformed.
    pub fn read_from(mut r: impl Read) -> Result<Snapshot, Error> {
        use taskdiag_wire::decode::Error as Wire;
        // Pieces that stay in the cache while they are copied to aligned memory.
        let mut piece = vec![0; PIECE];
        let mut bytes = AlignedBuf::new();
        let mut look = PIECE;
        loop {
            let n = fill(&mut r, &mut piece).map_err(|e| Error::io("reading the stream", e))?;
            bytes.extend_padded(&piece[..n / 8 * 8]);
            if n % 8 != 0 {
                // The padding would hide a cut, so check the original bytes first.
                let whole = Stream::parse(bytes)?;
                return Err(Wire::Trailing(whole.bytes().len()).into());
            }
            if n < PIECE {
                return Snapshot::parse(bytes);
            }
            if bytes.len() >= look {
                // Input that is not a stream, or follows one, may be endless, such as /dev/zero or
                // a growing log.
                look = 2 * bytes.len();
                match Stream::parse(bytes.as_bytes()) {
                    Ok(_) | Err(Wire::Cut(_)) => {}
                    Err(e) => return Err(e.into()),
                }
            }
        }
    }
    /// A copy of this answer with the names of its containers and pods, for readers on other
    /// machines. `None`: there are none to add, because the answer has no control groups of
    /// containers, was read from a file, or already has the names.
    pub fn with_container_names(&self) -> Option<Snapshot> {
        if self.served.is_empty() || self.stream.containers().len() > 0 {
            return None;
        }
        let mut seen = HashSet::new();
        let paths = self.tasks().flat_map(|task| task.cgroups());
        let paths = paths.filter_map(|(_, entry)| cgroup::path_of(entry));
        let paths = paths.chain(self.stream.cgroups().map(|group| group.path()));
        let new = paths.filter(|path| containers::is_contained(path) && seen.insert(*path));
        let new = by_turns(new.collect(), KEPT).into_iter();
        let all: Vec<_> = new.filter_map(|path| Some((path, containers::of_host(path)?))).collect();
        if all.is_empty() {
            return None;
        }
        let (mut out, done) = StreamWriter::reopen(AlignedBuf::copy_of(self.stream.bytes()))?;
        for (path, names) in all {
            let mut parts = vec![(ContainerPart::Path, Ok(path))];
            parts.extend(names.parts());
            out.container(&parts);
        }
        // The stream was valid before the names were added, and they are well formed.
        Snapshot::with_served(out.finish(done), self.served.clone()).ok()
    }
    /// Save the stream.
    pub fn write_to(&self, mut w: impl Write) -> io::Result<()> {
        w.write_all(self.stream.bytes())?;
        w.flush()
    }
    /// All tasks, in stream order.
    pub fn tasks(&self) -> impl ExactSizeIterator<Item = TaskView<'_>> + Clone {
        self.stream.tasks()
    }
    /// The task with this pid, or with this thread id if threads were requested. A table is made at
    /// the first call.
    pub fn task(&self, pid: u32) -> Option<TaskView<'_>> {
        self.stream.task(pid)
    }
    /// The stream of the answer: info, totals, bytes.
    pub fn stream(&self) -> &Stream<Bytes> {
        &self.stream
    }
    /// The same answer with the results of a second look.
    #[cfg(feature = "view")]
    pub(crate) fn with_decided(self, decided: Decided) -> Snapshot {
        Snapshot { decided: Some(Arc::new(decided)), ..self }
    }
    /// The results of a second look.
    #[cfg(feature = "view")]
    pub(crate) fn decided(&self) -> Option<&Decided> {
        self.decided.as_deref()
    }
    /// Returns the bytes.
    pub fn into_bytes(self) -> Bytes {
        self.stream.into_bytes()
    }
    /// Which engine served which groups, why and at what cost; empty for a saved stream (its
    /// info has the engines).
    pub fn served(&self) -> &[Served] {
        &self.served
    }
    pub(crate) fn later(&self) -> &Later {
        &self.later
    }
    /// Remarks about this answer for users that are not in the stream, each once.
    pub fn caveats(&self) -> Vec<&Caveat> {
        let mut all: Vec<&Caveat> = Vec::new();
        for caveat in self.served.iter().flat_map(|s| &s.caveats) {
            if !all.contains(&caveat) {
                all.push(caveat);
            }
        }
        all
    }
    pub(crate) fn add_caveats(&mut self, more: Option<Caveat>) {
        if let (Some(served), Some(caveat)) = (self.served.first_mut(), more) {
            served.add_caveats([caveat]);
        }
    }
    /// How long it took to make, counted from the time in its INFO. `None` for a saved snapshot,
    /// for which this is not known.
    pub fn took(&self) -> Option<Duration> {
        (!self.served.is_empty()).then(|| self.served.iter().map(|s| s.cost.wall).sum())
    }
}

/// The largest number of containers whose names are kept with an answer.
const KEPT: usize = 16_384;

/// At most this many paths, taken from each user in turn, so that a user with many groups does not
/// displace the groups of others. A path outside the slices of users counts as root's.
fn by_turns(paths: Vec<&[u8]>, most: usize) -> Vec<&[u8]> {
    if paths.len() <= most {
        return paths;
    }
    let mut turns: HashMap<Option<u32>, usize> = HashMap::new();
    let turn = |path| {
        let turn = turns.entry(cgroup::owner(path)).or_default();
        *turn += 1;
        (*turn, path)
    };
    let mut all: Vec<(usize, &[u8])> = paths.into_iter().map(turn).collect();
    all.sort_by_key(|(turn, _)| *turn);
    all.into_iter().take(most).map(|(_, path)| path).collect()
}

/// Bytes read at a time.
const PIECE: usize = 1 << 18;

/// Read until `piece` is full or the input ends.
fn fill(r: &mut impl Read, piece: &mut [u8]) -> io::Result<usize> {
    let mut n = 0;
    while n < piece.len() {
        match r.read(&mut piece[n..]) {
            Ok(0) => break,
            Ok(k) => n += k,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_that_are_kept_are_shared_by_users() {
        let many = (0..100).map(|n| format!("/user.slice/user-7.slice/libpod-{n}.scope"));
        let few = [String::from("/docker/1"), String::from("/user.slice/user-8.slice/x")];
        let all: Vec<String> = many.chain(few.clone()).collect();
        let paths = || all.iter().map(String::as_bytes).collect::<Vec<_>>();
        let kept = by_turns(paths(), 10);
        assert_eq!(kept.len(), 10);
        assert!(few.iter().all(|path| kept.contains(&path.as_bytes())));
        assert_eq!(by_turns(paths(), 200), paths());
    }
    use taskdiag_wire::decode::Error as Wire;
    use taskdiag_wire::{Base, Done, StreamWriter};

    fn stream(tasks: u32) -> AlignedBuf {
        let mut w = StreamWriter::new();
        w.info(&StreamWriter::blank_info());
        for n in 1..=tasks {
            w.begin_task(n, n);
            w.put(&Base::new());
            w.end_task();
        }
        w.finish(Done::default())
    }

    /// Gives a few bytes at a time, as a pipe may.
    struct Drip<'a>(&'a [u8]);
    impl Read for Drip<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let n = self.0.len().min(out.len()).min(4099);
            out[..n].copy_from_slice(&self.0[..n]);
            self.0 = &self.0[n..];
            Ok(n)
        }
    }

    #[test]
    fn streams_of_any_length_are_read_whole() {
        for tasks in [0, 1, 1000, 2000, 5000] {
            let bytes = stream(tasks);
            let s = Snapshot::read_from(Drip(bytes.as_bytes())).expect("it is whole");
            assert_eq!(s.stream().bytes(), bytes.as_bytes());
            assert_eq!(s.tasks().len(), tasks as usize);
        }
    }

    #[test]
    fn incomplete_streams_are_refused() {
        let bytes = stream(5000);
        let whole = bytes.as_bytes();
        for end in [0, 7, 8, 1000, PIECE - 8, PIECE, PIECE + 3, whole.len() - 8, whole.len() - 1] {
            let e = Snapshot::read_from(&whole[..end]).expect_err("it is cut");
            assert!(matches!(e, Error::Stream(Wire::Cut(_) | Wire::Foreign)), "{end}: {e}");
        }
        for tail in [1, 8, 9] {
            let more = [whole, &vec![0; tail][..]].concat();
            let e = Snapshot::read_from(&more[..]).expect_err("it has a tail");
            assert!(matches!(e, Error::Stream(Wire::Trailing(_))), "{tail}: {e}");
        }
    }

    #[test]
    fn endless_input_is_refused_soon() {
        let e = Snapshot::read_from(io::repeat(0)).expect_err("it is no stream");
        assert!(matches!(e, Error::Stream(Wire::Foreign)), "{e}");
    }
}
