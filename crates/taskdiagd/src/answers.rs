//! Answers, and the programs that make them. A program is loaded once for each of a few sets of
//! groups, and an answer is made from the smallest set that has the requested groups. A caller that
//! accepts an older answer gets an existing one.
//!
//! A long answer is in a file in memory that many callers read, each at its own cost. After some
//! seconds the service truncates the file, so that callers who keep its descriptor keep no memory.
//! Callers who have spliced its pages into a pipe with splice(2) keep these pages, which count as
//! memory of the service. At its `MemoryMax=`, the service ends, systemd starts it again for the
//! next caller, and meanwhile clients read /proc.

use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, MemfdFlags, Mode, OFlags, SealFlags};
use taskdiag::engine::auto;
use taskdiag::engine::bpf::Bpf;
use taskdiag::service::{INLINE_MAX, MAX_AGE, Refusal, shown};
use taskdiag::wire::{AlignedBuf, Blob};
use taskdiag::{Cause, Choice, Engine, EngineId, Error, Groups, Request, Strategy, TaskView};

use crate::say::say;
use crate::text::{TEXT_BYTES, Texts};

/// How long a file can be read. Callers copy it at once.
const READABLE: Duration = Duration::from_secs(3);
/// The largest amount of memory for files at a time.
const FILES_MAX: u64 = 128 << 20;
/// The approximate limit for command lines in an answer. Users share it (see `ByteLimits`).
const TEXT_MAX: u64 = 16 << 20;
/// The assumed bytes per task in a program's stream and in an answer, without the command line,
/// before the first one.
const TASK_BYTES: u64 = 256;
/// How long the bytes per task of an answer are remembered, so that a request that was too large is
/// tried again.
const REMEMBERED: Duration = Duration::from_secs(60);
/// The longest answer.
const ANSWER_MAX: usize = 96 << 20;
/// The longest stream of a program that an answer is made from.
///
/// Such a stream, the answer and all files together have to fit into `MemoryMax=` of
/// taskdiagd.service.
const STREAM_MAX: usize = 128 << 20;
/// At most this much memory is kept for the next stream, and for the next answer.
const KEPT_MAX: usize = 32 << 20;

/// An answer in the form that callers get.
#[derive(Debug)]
pub enum Answer {
    /// The bytes themselves.
    Here(Vec<u8>),
    /// A file that callers may read. `cut` is the only writable descriptor of it.
    File {
        /// For callers.
        shared: OwnedFd,
        /// For us.
        cut: OwnedFd,
        /// Bytes of the answer.
        len: u64,
    },
}

impl Drop for Answer {
    fn drop(&mut self) {
        if let Answer::File { cut, .. } = self {
            // This cannot fail on such a file. If it did, the memory would be freed when the last
            // reader closes the file.
            let _ = rustix::fs::ftruncate(cut, 0);
        }
    }
}

#[derive(Debug)]
struct StoredAnswer {
    strategy: Strategy,
    groups: Groups,
    /// When the walk began.
    at: Instant,
    answer: Answer,
}

/// The bytes per task of earlier streams, by strategy and groups.
#[derive(Debug, Default)]
struct Sizes(HashMap<(u64, u64), (u64, Instant)>);

impl Sizes {
    /// The expected length of a stream about this many tasks.
    fn expect(&self, key: (u64, u64), tasks: u64, now: Instant) -> u64 {
        let is_recent = |at: Instant| now.saturating_duration_since(at) < REMEMBERED;
        let each = self.0.get(&key).filter(|(_, at)| is_recent(*at));
        tasks.saturating_mul(each.map_or(TASK_BYTES, |(each, _)| *each))
    }
    /// A stream about this many tasks had this length.
    fn learn(&mut self, key: (u64, u64), tasks: u64, len: usize, now: Instant) {
        let each = (len as u64).saturating_sub(TEXT_MAX) / tasks.max(1);
        self.0.insert(key, (each, now));
    }
    /// A stream about this many tasks would have been longer than this.
    fn exceeds(&mut self, key: (u64, u64), tasks: u64, len: usize, now: Instant) {
        self.0.insert(key, (len as u64 / tasks.max(1) + 1, now));
    }
}

/// The sets of groups for which programs are loaded, the smallest first.
fn sets(strategy: Strategy) -> [Groups; 4] {
    let numbers = Groups::BASE | Groups::CRED | Groups::STAT | Groups::STATM;
    let all = shown::groups(strategy);
    [Groups::BASE, numbers, (numbers | Groups::CMDLINE) & all, all]
}

/// All existing answers.
#[derive(Debug)]
pub struct Answers {
    engines: HashMap<(u64, u64), Bpf>,
    /// The lengths of the last streams of each program.
    streams: Sizes,
    /// How long the answers to each request were.
    told: Sizes,
    made: Vec<StoredAnswer>,
    /// Memory for the next stream of any of the programs.
    stream: AlignedBuf,
    /// Memory for the next answer.
    spare: AlignedBuf,
    texts: Texts,
    /// The groups that this kernel shows to everyone, for each strategy.
    shown: Groups,
}

impl Answers {
    /// No answer yet. A group is left out if this process cannot read the group's file of process
    /// 1, which stands for all others.
    pub fn new() -> Answers {
        let hidden = shown::TABLE.iter().filter(|s| !s.files.iter().all(|f| is_shown(f)));
        let hidden = hidden.fold(Groups::NONE, |all, s| all | s.group.into());
        let all = shown::groups(Strategy::All) | shown::groups(Strategy::AllThread);
        Answers {
            engines: HashMap::new(),
            streams: Sizes::default(),
            told: Sizes::default(),
            made: Vec::new(),
            stream: AlignedBuf::new(),
            spare: AlignedBuf::new(),
            texts: Texts::new(),
            shown: all - hidden,
        }
    }

    /// The groups that are answered.
    pub fn groups(&self, strategy: Strategy) -> Groups {
        shown::groups(strategy) & self.shown
    }

    /// The number of an existing answer whose walk began at `not_before` or later.
    pub fn made(&self, strategy: Strategy, groups: Groups, not_before: Instant) -> Option<usize> {
        let fits =
            |m: &StoredAnswer| m.strategy == strategy && m.groups == groups && m.at >= not_before;
        self.made.iter().rposition(fits)
    }

    /// An answer whose walk began at `not_before` or later. The answer is made if there is none.
    ///
    /// # Errors
    /// Why there is no answer.
    pub fn get(
        &mut self,
        strategy: Strategy,
        groups: Groups,
        not_before: Instant,
    ) -> Result<&Answer, Refusal> {
        if !self.groups(strategy).contains(groups) {
            return Err(Refusal::BadRequest);
        }
        if let Some(i) = self.made(strategy, groups, not_before) {
            return Ok(&self.made[i].answer);
        }
        let at = Instant::now();
        let answer = self.make(strategy, groups, at)?;
        self.add(strategy, groups, at, answer);
        Ok(&self.made.last().expect("it was just added").answer)
    }

    /// Keeps an answer. Older ones for the same request are not handed out any more, but their
    /// files stay, because callers may still read them.
    pub fn add(&mut self, strategy: Strategy, groups: Groups, at: Instant, answer: Answer) {
        let is_same = |m: &StoredAnswer| m.strategy == strategy && m.groups == groups;
        self.made.retain(|m| !is_same(m) || m.answer.file_len() > 0);
        self.made.push(StoredAnswer { strategy, groups, at, answer });
    }

    fn make(
        &mut self,
        strategy: Strategy,
        groups: Groups,
        now: Instant,
    ) -> Result<Answer, Refusal> {
        // The administrator may turn BPF off at any time.
        if auto::resolved(Choice::Only(EngineId::Bpf)).is_err() {
            self.engines.clear();
            return Err(Refusal::TurnedOff);
        }
        let all = self.groups(strategy);
        let set = sets(strategy)
            .into_iter()
            .find(|set| set.contains(groups))
            .ok_or(Refusal::BadRequest)?;
        // The start time identifies the process of a command line.
        let req = Request::new(strategy, 0, (set & all) | groups)
            .with_text_bytes(TEXT_BYTES)
            .with_all_text_bytes(TEXT_MAX);
        let key = (strategy as u64, req.groups.bits());
        let told_key = (strategy as u64, groups.bits());
        let tasks = tasks(strategy);
        // An answer that would not fit is refused before the walk, which takes long if there are
        // many tasks.
        if self.streams.expect(key, tasks, now) > STREAM_MAX as u64 {
            return Err(Refusal::TooLarge);
        }
        self.fits(self.told.expect(told_key, tasks, now))?;
        let new = || Bpf::untried().keeping().at_most(STREAM_MAX);
        let engine = self.engines.entry(key).or_insert_with(new);
        engine.recycle(std::mem::take(&mut self.stream));
        let stream = engine.run(&req).map_err(|e| {
            say(format_args!("{e}"));
            match e {
                Error::Unavailable { cause: Cause::Limit, .. } => {
                    self.streams.exceeds(key, tasks, STREAM_MAX, now);
                    Refusal::TooLarge
                }
                _ => Refusal::NoBpf,
            }
        })?;
        let texts = &mut self.texts;
        let mut judge = |t: &TaskView<'_>, text: &Blob<'_>| texts.is_public(t, text, now);
        let raw = stream.stream.as_ref();
        let done = taskdiag::wire::decode::done(raw).map_or(0, |d| d.tasks);
        self.streams.learn(key, done, raw.len(), now);
        let told = shown::strip(raw, groups, std::mem::take(&mut self.spare), &mut judge).map_err(
            |e| {
                say(format_args!("a program made no stream: {e}"));
                Refusal::NoBpf
            },
        )?;
        self.texts.end(now);
        self.told.learn(told_key, done, told.as_bytes().len(), now);
        // A long stream is freed before there is a file with the answer.
        if raw.len() <= KEPT_MAX {
            self.stream = stream.stream.into_owned();
        } else {
            drop(stream);
        }
        let answer = self.hand_out(told.as_bytes());
        if told.as_bytes().len() <= KEPT_MAX {
            self.spare = told;
        }
        answer
    }

    /// Whether there is room for an answer of this length in addition to the existing ones.
    fn fits(&self, len: u64) -> Result<(), Refusal> {
        let kept: u64 = self.made.iter().map(|m| m.answer.file_len()).sum();
        match len {
            len if len <= INLINE_MAX as u64 => Ok(()),
            len if len > ANSWER_MAX as u64 => Err(Refusal::TooLarge),
            len if kept + len > FILES_MAX => Err(Refusal::Busy),
            _ => Ok(()),
        }
    }

    fn hand_out(&self, told: &[u8]) -> Result<Answer, Refusal> {
        self.fits(told.len() as u64)?;
        if told.len() <= INLINE_MAX {
            return Ok(Answer::Here(told.to_vec()));
        }
        Answer::file(told).map_err(|e| {
            say(format_args!("making a file for an answer: {e}"));
            Refusal::Busy
        })
    }

    /// Forgets old answers. Returns when there is something to forget next.
    pub fn tidy(&mut self, now: Instant) -> Option<Instant> {
        let end =
            |m: &StoredAnswer| m.at + if m.answer.file_len() > 0 { READABLE } else { MAX_AGE };
        self.made.retain(|m| end(m) > now);
        self.made.iter().map(end).min()
    }
}

impl Answer {
    fn file_len(&self) -> u64 {
        match self {
            Answer::Here(_) => 0,
            Answer::File { len, .. } => *len,
        }
    }

    /// A file with these bytes. They cannot be changed any more, and only the owner can truncate
    /// the file.
    fn file(bytes: &[u8]) -> Result<Answer, rustix::io::Errno> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let cut = rustix::fs::memfd_create("taskdiag", flags)?;
        let mut at = 0;
        while at < bytes.len() {
            at += rustix::io::retry_on_intr(|| rustix::io::pwrite(&cut, &bytes[at..], at as u64))?;
        }
        // Other processes could open it again through /proc; its mode keeps them from changing it.
        rustix::fs::fchmod(&cut, Mode::RUSR)?;
        rustix::fs::fcntl_add_seals(cut.as_fd(), SealFlags::WRITE | SealFlags::GROW)?;
        let again = format!("/proc/self/fd/{}", cut.as_raw_fd());
        let read = OFlags::RDONLY | OFlags::CLOEXEC;
        let shared = rustix::fs::openat(CWD, again, read, Mode::empty())?;
        Ok(Answer::File { shared, cut, len: bytes.len() as u64 })
    }
}

/// The approximate number of tasks. It takes one to three system calls, independent of the number.
fn tasks(strategy: Strategy) -> u64 {
    let processes = rustix::fs::stat("/proc").map_or(0, |s| s.st_nlink as usize) as u64;
    let all = || {
        let text = std::fs::read_to_string("/proc/loadavg").ok()?;
        text.split(' ').nth(3)?.split_once('/')?.1.parse().ok()
    };
    match strategy {
        Strategy::All => processes,
        _ => all().unwrap_or(processes),
    }
}

/// Whether everyone may read this file of a process. Its mode must allow it, and we must be able to
/// read it for process 1, to which our user has no special rights.
fn is_shown(name: &str) -> bool {
    let everyone = Mode::RUSR | Mode::RGRP | Mode::ROTH;
    let path = format!("/proc/1/{name}");
    rustix::fs::stat(&path).is_ok_and(|s| Mode::from_raw_mode(s.st_mode).contains(everyone))
        && std::fs::read(&path).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_can_be_read_and_not_changed_until_they_are_cut() {
        let bytes = vec![5; 100_000];
        let answer = Answer::file(&bytes).expect("there is memory");
        let Answer::File { shared, cut, len } = &answer else { panic!("it is a file") };
        assert_eq!(*len, 100_000);
        let mut to = vec![0; 100_000];
        assert_eq!(rustix::io::pread(shared, &mut to, 0), Ok(100_000));
        assert_eq!(to, bytes);
        assert!(rustix::io::pwrite(shared, b"x", 0).is_err());
        assert!(rustix::fs::ftruncate(shared, 0).is_err());
        assert!(rustix::io::pwrite(cut, b"x", 0).is_err());
        let held = shared.try_clone().expect("a descriptor");
        drop(answer);
        assert_eq!(rustix::fs::fstat(&held).map(|s| (s.st_size, s.st_blocks)), Ok((0, 0)));
        assert_eq!(rustix::io::pread(&held, &mut to, 0), Ok(0));
    }

    #[test]
    fn old_answers_that_nobody_gets_are_forgotten() {
        let mut answers = Answers::new();
        let begin = Instant::now();
        let file = Answer::file(&[5; 100]).expect("there is memory");
        answers.add(Strategy::All, Groups::BASE, begin, file);
        for n in 1..=10 {
            let at = begin + Duration::from_millis(n);
            answers.add(Strategy::All, Groups::BASE, at, Answer::Here(vec![1; 1000]));
            answers.add(Strategy::AllThread, Groups::BASE, at, Answer::Here(vec![2; 1000]));
        }
        assert_eq!(answers.made.len(), 3, "the file, and the newest for processes and threads");
        assert!(
            answers.made(Strategy::All, Groups::BASE, begin + Duration::from_millis(10)).is_some()
        );
    }

    #[test]
    fn a_walk_that_does_not_fit_is_refused_for_a_minute() {
        let (mut answers, now) = (Answers::new(), Instant::now());
        let key = (Strategy::All as u64, Groups::BASE.bits());
        let many = ANSWER_MAX as u64 / TASK_BYTES;
        assert_eq!(answers.told.expect(key, many, now), ANSWER_MAX as u64);
        let len = TEXT_MAX as usize + 1_000_000;
        answers.told.learn(key, 1000, len, now);
        assert_eq!(answers.told.expect(key, 50_000, now), 50_000_000);
        assert_eq!(answers.fits(50_000_000), Ok(()));
        assert_eq!(answers.fits(answers.told.expect(key, 200_000, now)), Err(Refusal::TooLarge));
        // The walk ended at the limit, and the next one does not begin.
        answers.streams.exceeds(key, 60_000, STREAM_MAX, now);
        assert!(answers.streams.expect(key, 60_000, now) > STREAM_MAX as u64);
        assert!(answers.streams.expect(key, 30_000, now) < STREAM_MAX as u64);
        assert!(answers.streams.expect(key, 60_000, now + REMEMBERED) < STREAM_MAX as u64);
        // The space for files is taken.
        let file = Answer::file(&vec![5; 50_000_000]).expect("there is memory");
        answers.add(Strategy::All, Groups::BASE, now, file);
        assert_eq!(answers.fits(84_000_000), Ok(()));
        assert_eq!(answers.fits(85_000_000), Err(Refusal::Busy));
    }

    /// The memory that the service may need at once must fit into the limit of its unit.
    #[test]
    fn limits_fit_the_unit() {
        let unit = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib/systemd/taskdiagd.service");
        // A package of this crate does not have the unit.
        let Ok(unit) = std::fs::read_to_string(unit) else { return };
        let max = unit.lines().find_map(|l| l.strip_prefix("MemoryMax=")).expect("a limit");
        let max: usize = max.strip_suffix('M').and_then(|m| m.parse().ok()).expect("MiB");
        let all = STREAM_MAX + ANSWER_MAX + FILES_MAX as usize;
        // A part is left for the programs, connections and command lines.
        assert!(all <= (max << 20) * 3 / 4, "{} MiB of {max}", all >> 20);
    }

    #[test]
    fn each_set_contains_the_previous_sets() {
        for strategy in [Strategy::All, Strategy::AllThread] {
            let sets = sets(strategy);
            assert!(sets.windows(2).all(|w| w[1].contains(w[0])), "{sets:?}");
            assert_eq!(sets[3], shown::groups(strategy));
        }
    }

    #[test]
    fn only_public_files_of_proc_are_shown() {
        assert!(is_shown("stat") && is_shown("cmdline"));
        assert!(
            !is_shown("environ") && !is_shown("io") && !is_shown("stack") && !is_shown("no-such")
        );
    }
}
