//! Command lines that are public. A BPF program reads the memory of a process directly, and may
//! find data that `/proc/PID/cmdline` does not show: the kernel refuses mapped files, and pages
//! that the process itself may not read. So the service returns a command line only after it has
//! read the same bytes from that file, as any user can. Until then, the client gets no text, and
//! reads the file itself.
//!
//! A separate thread reads the files, through the procfs engine, which cannot be blocked by a
//! process. Only a keyed hash of a text is kept.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use taskdiag::engine::procfs::Procfs;
use taskdiag::{ByteLimits, Engine, Groups, Request, Snapshot, TaskId, TaskView};

/// The limit for one command line, the same as in other engines for lists. A longer one is marked
/// as cut. If a command line was cut shorter, because its user has used up the space, the client
/// reads it.
pub const TEXT_BYTES: u32 = ByteLimits::LIST.text_bytes;

/// More processes than these are read all at once.
const FEW: usize = 256;
/// How long the service waits before it asks again about a process whose text it could not read.
const AGAIN: Duration = Duration::from_secs(2);

/// Texts by process id.
type TextsByPid = HashMap<u32, Text>;

#[derive(Clone, Copy, Debug)]
struct Text {
    /// When the process began, in whole ticks.
    start_ns: u64,
    hash: u128,
    /// The last answer that the process was in.
    answer: u64,
}

/// The public texts, and the pending ones.
#[derive(Debug)]
pub struct Texts {
    known: Arc<Mutex<TextsByPid>>,
    /// A process whose text was requested, with the time.
    asked: HashMap<u32, (u64, Instant)>,
    wanted: Vec<(u32, u64)>,
    /// The number of this answer, and of the texts in it.
    answer: u64,
    judged: usize,
    reader: SyncSender<Vec<u32>>,
    keys: Keys,
}

/// Two keys, because a hash has only 64 bits, and it must not be possible to guess a text by its
/// hash.
#[derive(Clone, Debug, Default)]
struct Keys(RandomState, RandomState);

impl Keys {
    fn hash(&self, text: &[u8]) -> u128 {
        u128::from(self.0.hash_one(text)) << 64 | u128::from(self.1.hash_one(text))
    }
}

impl Texts {
    /// No text is public yet. Starts the thread that reads.
    pub fn new() -> Texts {
        let (reader, wanted) = sync_channel::<Vec<u32>>(1);
        let (known, keys) = (Arc::new(Mutex::new(TextsByPid::new())), Keys::default());
        let (to, with) = (known.clone(), keys.clone());
        std::thread::spawn(move || {
            for pids in wanted {
                read(&pids, &with, &to);
            }
        });
        let (asked, wanted) = (HashMap::new(), Vec::new());
        Texts { known, asked, wanted, answer: 0, judged: 0, reader, keys }
    }

    /// May this text of a process be shown? If it is not known to be public, it is queued for
    /// reading.
    pub fn is_public(&mut self, task: &TaskView<'_>, text: &[u8], now: Instant) -> bool {
        let Some(start) = start(task) else { return false };
        self.judged += 1;
        let hash = self.keys.hash(text);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(k) = known.get_mut(&task.pid()).filter(|k| k.start_ns == start) {
            k.answer = self.answer;
            if k.hash == hash {
                return true;
            }
        }
        drop(known);
        match self.asked.get(&task.pid()) {
            Some((s, at)) if *s == start && now.saturating_duration_since(*at) < AGAIN => {}
            _ => self.wanted.push((task.pid(), start)),
        }
        false
    }

    /// To be called after each answer: lets the thread read the pending texts, and removes
    /// processes that have ended.
    pub fn end(&mut self, now: Instant) {
        let wanted = std::mem::take(&mut self.wanted);
        let pids = wanted.iter().map(|w| w.0).collect::<Vec<_>>();
        // If it is still reading, the rest is queued the next time.
        if !pids.is_empty() && self.reader.try_send(pids).is_ok() {
            self.asked.extend(wanted.into_iter().map(|(pid, start)| (pid, (start, now))));
        }
        let many = 2 * std::mem::take(&mut self.judged) + FEW;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() > many {
            // Processes that were read since were in no answer yet.
            known.retain(|_, text| text.answer == self.answer || text.answer == u64::MAX);
        }
        if self.asked.len() > many {
            self.asked.retain(|_, (_, at)| now.saturating_duration_since(*at) < AGAIN);
        }
        self.answer += 1;
    }
}

/// The start time of a task in whole ticks, as in /proc.
pub fn start(task: &TaskView<'_>) -> Option<u64> {
    let id = TaskId::of(task)?;
    Some(id.tick().floor(id.start_ns()))
}

/// Read the command lines of these processes from /proc.
fn read(pids: &[u32], keys: &Keys, to: &Mutex<TextsByPid>) {
    let groups = Groups::BASE | Groups::CMDLINE;
    let Ok(mut procfs) = Procfs::new() else { return };
    let reqs: Vec<Request> = match pids.len() > FEW {
        true => vec![Request::all(groups).with_text_bytes(TEXT_BYTES)],
        false => {
            pids.iter().map(|pid| Request::one(*pid, groups).with_text_bytes(TEXT_BYTES)).collect()
        }
    };
    for req in reqs {
        let Some(answer) = procfs.run(&req).ok().and_then(|a| Snapshot::parse(a.stream).ok())
        else {
            continue;
        };
        let text = |t: &TaskView<'_>| {
            let (start_ns, text) = (start(t)?, t.cmdline()?);
            let hash = keys.hash(&text.data);
            // The limit is the same as in the answers, so that cut texts can be compared, too.
            let is_it = !text.is_cut() || text.data.len() == TEXT_BYTES as usize;
            is_it.then_some((t.pid(), Text { start_ns, hash, answer: u64::MAX }))
        };
        let texts: Vec<_> = answer.tasks().filter_map(|t| text(&t)).collect();
        to.lock().unwrap_or_else(PoisonError::into_inner).extend(texts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use taskdiag::Base;
    use taskdiag::wire::{Info, StreamWriter, build};

    /// A stream about this process, with this text.
    fn me(start_ns: u64) -> Snapshot {
        let mut w = StreamWriter::new();
        w.info(&build!(Info { clk_tck: 100, ..StreamWriter::blank_info() }));
        w.begin_task(std::process::id(), std::process::id());
        w.put(&build!(Base { valid: Base::ALL_VALID, start_time_ns: start_ns, ..Base::new() }));
        w.end_task();
        Snapshot::parse(w.finish(build!(taskdiag::wire::Done {}))).expect("it is one")
    }

    #[test]
    fn a_text_is_public_once_proc_has_shown_it() {
        let me_now = Procfs::new()
            .expect("there is a /proc")
            .run(&Request::one(std::process::id(), Groups::BASE));
        let me_now = Snapshot::parse(me_now.expect("I live").stream).expect("a stream");
        let task = me_now.tasks().next().expect("one task");
        let began = start(&task).expect("it is known");
        let text = std::fs::read("/proc/self/cmdline").expect("it can be read");
        let (mut texts, now) = (Texts::new(), Instant::now());
        assert!(!texts.is_public(&task, &text, now));
        texts.end(now);
        let until = now + Duration::from_secs(20);
        while !texts.is_public(&task, &text, now) {
            assert!(Instant::now() < until, "the thread has read nothing");
            std::thread::sleep(Duration::from_millis(2));
        }
        assert!(!texts.is_public(&task, b"something else", now));
        assert!(!texts.is_public(&task, &text[..text.len() - 1], now));
        // Another process with the same number.
        let other = me(began + 50_000_000);
        assert!(!texts.is_public(&other.tasks().next().expect("one"), &text, now));
        let same = me(began + 9_999_999);
        assert!(texts.is_public(&same.tasks().next().expect("one"), &text, now));
    }
}
