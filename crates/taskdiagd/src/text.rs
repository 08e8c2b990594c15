//! Command lines that are public. A BPF program reads the memory of a process directly, and may
//! find data that `/proc/PID/cmdline` does not show: the kernel refuses mapped files, and pages
//! that the process itself may not read. So the service returns a command line only after it has
//! read the same bytes from that file, as any user can. Until then, the client gets no text, and
//! reads the file itself.
//!
//! A separate thread reads the files, through the procfs engine, which cannot be blocked by a
//! process. It reads so many processes at a time that the texts take little memory. Only keyed
//! hashes of a text are kept: of all of it, and of the lengths at which an answer may cut it.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use taskdiag::engine::procfs::Procfs;
use taskdiag::wire::Blob;
use taskdiag::{ByteLimits, Engine, Groups, Processes, Request, Snapshot, TaskId, TaskView};

/// The limit for one command line, the same as in other engines for lists. A command line that is
/// longer, or that is cut shorter because its user has used up the space, is marked as cut.
pub const TEXT_BYTES: u32 = ByteLimits::LIST.text_bytes;
/// The lengths at which an answer cuts a text. The engines decide where.
const CUTS: [usize; 3] = [256, 4096, TEXT_BYTES as usize];

/// More processes than these are read all at once.
const FEW: usize = 256;
/// About how many processes are read at once, and the space for their texts.
const PART: usize = 1024;
const PART_BYTES: u64 = 16 << 20;
/// How long the service waits before it asks again about a process whose text it could not read.
/// Each further time, it waits twice as long, up to `AGAIN_MOST`.
const AGAIN: Duration = Duration::from_secs(2);
const AGAIN_MOST: Duration = Duration::from_secs(64);

/// Texts by process id.
type TextsByPid = HashMap<u32, Text>;

#[derive(Clone, Copy, Debug)]
struct Text {
    /// When the process began, in whole ticks.
    start_ns: u64,
    /// The length of the text, and the hash of the whole text if all of it was read.
    len: usize,
    hash: Option<u128>,
    /// The hashes of its first bytes, for these lengths, as far as the text was read.
    beginnings: [Option<u128>; CUTS.len()],
    /// The last answer that the process was in.
    answer: u64,
}

impl Text {
    fn new(start_ns: u64, text: &Blob<'_>, keys: &Keys) -> Text {
        let hash = (!text.is_cut()).then(|| keys.hash(&text.data));
        let beginnings = CUTS.map(|len| text.data.get(..len).map(|t| keys.hash(t)));
        Text { start_ns, len: text.total, hash, beginnings, answer: u64::MAX }
    }
    /// Whether the process has shown everything that this text says.
    fn shows(&self, text: &Blob<'_>, keys: &Keys) -> bool {
        let known = match text.is_cut() {
            false => self.hash,
            true => CUTS
                .iter()
                .position(|len| *len == text.data.len())
                .and_then(|n| self.beginnings[n])
                .filter(|_| self.len == text.total),
        };
        known.is_some_and(|known| known == keys.hash(&text.data))
    }
}

/// When a process was asked about, and whether it may be asked again.
#[derive(Clone, Copy, Debug)]
struct ReadAttempt {
    start_ns: u64,
    at: Instant,
    /// How long to wait from then on.
    wait: Duration,
}

impl ReadAttempt {
    fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.at) >= self.wait
    }
}

/// The public texts, and the pending ones.
#[derive(Debug)]
pub struct Texts {
    known: Arc<Mutex<TextsByPid>>,
    /// The processes whose texts were requested.
    asked: HashMap<u32, ReadAttempt>,
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
    pub fn is_public(&mut self, task: &TaskView<'_>, text: &Blob<'_>, now: Instant) -> bool {
        let Some(start) = start(task) else { return false };
        self.judged += 1;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(k) = known.get_mut(&task.pid()).filter(|k| k.start_ns == start) {
            k.answer = self.answer;
            if k.shows(text, &self.keys) {
                self.asked.remove(&task.pid());
                return true;
            }
        }
        drop(known);
        match self.asked.get(&task.pid()) {
            Some(asked) if asked.start_ns == start && !asked.is_over(now) => {}
            _ => self.wanted.push((task.pid(), start)),
        }
        false
    }

    /// To be called after each answer: lets the thread read the pending texts, and removes
    /// processes that have ended.
    pub fn end(&mut self, now: Instant) {
        let wanted = std::mem::take(&mut self.wanted);
        let pids = wanted.iter().map(|w| w.0).collect::<Vec<_>>();
        // If the reader is still busy, the pids are queued the next time.
        if !pids.is_empty() && self.reader.try_send(pids).is_ok() {
            for (pid, start_ns) in wanted {
                let before = self.asked.get(&pid).filter(|asked| asked.start_ns == start_ns);
                let wait = before.map_or(AGAIN, |asked| (asked.wait * 2).min(AGAIN_MOST));
                self.asked.insert(pid, ReadAttempt { start_ns, at: now, wait });
            }
        }
        let many = 2 * std::mem::take(&mut self.judged) + FEW;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() > many {
            // Processes that were read after the last answer stay: no answer had them yet.
            known.retain(|_, text| text.answer == self.answer || text.answer == u64::MAX);
        }
        if self.asked.len() > many {
            self.asked.retain(|_, asked| !asked.is_over(now));
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
        true => {
            let mut pids = pids.to_vec();
            pids.sort_unstable();
            let parts = pids.chunks(PART).map(|part| (part[0], part[part.len() - 1]));
            let parts = parts.map(|(first, last)| Processes { first, last });
            parts.map(|part| Request::all(groups).with_processes(part)).collect()
        }
        false => pids.iter().map(|pid| Request::one(*pid, groups)).collect(),
    };
    for req in reqs {
        let req = req.with_text_bytes(TEXT_BYTES).with_all_text_bytes(PART_BYTES);
        let Some(answer) = procfs.run(&req).ok().and_then(|a| Snapshot::parse(a.stream).ok())
        else {
            continue;
        };
        let text = |t: &TaskView<'_>| Some((t.pid(), Text::new(start(t)?, &t.cmdline()?, keys)));
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
        assert!(!texts.is_public(&task, &whole(&text), now));
        texts.end(now);
        let until = now + Duration::from_secs(20);
        while !texts.is_public(&task, &whole(&text), now) {
            assert!(Instant::now() < until, "the thread has read nothing");
            std::thread::sleep(Duration::from_millis(2));
        }
        assert!(!texts.is_public(&task, &whole(b"something else"), now));
        assert!(!texts.is_public(&task, &whole(&text[..text.len() - 1]), now));
        // Another process with the same number.
        let other = me(began + 50_000_000);
        assert!(!texts.is_public(&other.tasks().next().expect("one"), &whole(&text), now));
        let same = me(began + 9_999_999);
        assert!(texts.is_public(&same.tasks().next().expect("one"), &whole(&text), now));
    }

    fn whole(text: &[u8]) -> Blob<'static> {
        beginning(text, text.len())
    }

    /// The beginning of a text of this length, as in an answer.
    fn beginning(text: &[u8], total: usize) -> Blob<'static> {
        let mut w = StreamWriter::new();
        w.info(&StreamWriter::blank_info());
        w.begin_task(1, 1);
        w.put_blob(taskdiag::Group::Cmdline as u16, 0, 0, text, total);
        w.end_task();
        let answer = Snapshot::parse(w.finish(build!(taskdiag::wire::Done {}))).expect("it is one");
        let task = Box::leak(Box::new(answer)).tasks().next().expect("one task");
        let text = task.cmdline().expect("it has one");
        Blob::clone(&text)
    }

    #[test]
    fn a_beginning_of_a_public_text_is_public_where_answers_cut_it() {
        let keys = Keys::default();
        let long: Vec<u8> = (0..200_000u32).map(|n| b'a' + (n % 23) as u8).collect();
        let text = |len: usize, read: usize| Text::new(7, &beginning(&long[..read], len), &keys);
        let cut = |len: usize, total: usize| beginning(&long[..len], total);
        let all = text(8000, 8000);
        assert!(all.shows(&whole(&long[..8000]), &keys));
        assert!(all.shows(&cut(256, 8000), &keys) && all.shows(&cut(4096, 8000), &keys));
        assert!(!all.shows(&cut(255, 8000), &keys), "no answer cuts there");
        assert!(!all.shows(&cut(256, 9000), &keys), "it has another length");
        assert!(!all.shows(&beginning(&[b'a'; 256], 8000), &keys));
        // A text that was cut when it was read shows as much as was read.
        let part = text(8000, 4096);
        assert!(part.shows(&cut(256, 8000), &keys) && part.shows(&cut(4096, 8000), &keys));
        assert!(
            !part.shows(&whole(&long[..4096]), &keys) && !part.shows(&whole(&long[..8000]), &keys)
        );
        assert!(!text(8000, 256).shows(&cut(4096, 8000), &keys));
        let most = text(200_000, TEXT_BYTES as usize);
        assert!(most.shows(&cut(TEXT_BYTES as usize, 200_000), &keys));
    }

    #[test]
    fn a_process_that_hides_its_text_is_read_more_and_more_rarely() {
        let task = me(50_000_000);
        let task = task.tasks().next().expect("one");
        let (mut texts, begin) = (Texts::new(), Instant::now());
        // The thread may still be reading, so a request is only remembered if it was taken.
        let mut ask = |at: Duration| {
            let until = Instant::now() + Duration::from_secs(20);
            loop {
                texts.is_public(&task, &whole(b"something else"), begin + at);
                let asks = !texts.wanted.is_empty();
                texts.end(begin + at);
                let is_taken = texts.asked.get(&task.pid()).is_some_and(|a| a.at == begin + at);
                if !asks || is_taken {
                    return asks;
                }
                assert!(Instant::now() < until, "the thread does not read");
                std::thread::sleep(Duration::from_millis(2));
            }
        };
        let seconds = |n| Duration::from_secs(n);
        let asks: Vec<u64> = (0..200).filter(|n| ask(seconds(*n))).collect();
        assert_eq!(asks, [0, 2, 6, 14, 30, 62, 126, 190]);
    }
}
