//! The holders that `taskdiag::why` finds while a thousand threads take and give back locks of all
//! kinds, fork and end. Each edge from a waiting thread to a holder is compared with the log that
//! the threads write: at one moment of the look, the thread must have waited for a lock that this
//! holder had.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use taskdiag::why::{Graph, Holder, How, Limits, Wait, Waits};
use taskdiag::{Choice, EngineId, Group, Groups, Reason, Request, WaitKind};
use taskdiag_tests::cli::taskdiag;
use taskdiag_tests::{Mktask, Source, engines, needs_root, plain_dir, skip};

/// 64-bit words of an entry of the log, and of the head of a slot.
const WORDS: usize = 8;
/// `END` of mktask's storm.c.
const END: u64 = 1 << 32;
/// The threads that are looked up together, so that a look is short.
const BATCH: usize = 16;
/// The possible error of a time that a busy machine adds.
const SLACK_NS: u64 = 20_000_000;

/// One wait for a lock, and the time for which the thread had it then. Times in ns; 0: not yet.
#[derive(Clone, Copy, Debug)]
struct Entry {
    want: u64,
    lock: u64,
    tid: u64,
    pid: u64,
    freed: u64,
    got: u64,
    released: u64,
    is_shared: u64,
}

fn or_later(time: u64) -> u64 {
    if time == 0 { u64::MAX } else { time }
}

impl Entry {
    /// When the thread can have waited.
    fn waits(&self) -> (u64, u64) {
        (self.want, or_later(self.got))
    }
    /// When the thread can have had the lock: from the moment on in which the holder before began
    /// to give it back.
    fn holds(&self) -> (u64, u64) {
        let none = self.is_shared != 0 || self.got == 0 && self.lock & END != 0;
        if none { (1, 0) } else { (self.want.max(self.freed), or_later(self.released)) }
    }
}

/// The log of mktask, which its threads write meanwhile.
struct Log {
    words: &'static [AtomicU64],
    entries: usize,
}

impl Log {
    fn open(path: &str, entries: usize) -> Log {
        let file = File::open(path).expect("the log");
        let len = file.metadata().expect("its size").len() as usize;
        let (read, shared) = (libc::PROT_READ, libc::MAP_SHARED);
        // SAFETY: a new mapping, which stays until the test ends. The file keeps its size.
        let at =
            unsafe { libc::mmap(std::ptr::null_mut(), len, read, shared, file.as_raw_fd(), 0) };
        assert_ne!(at, libc::MAP_FAILED);
        // SAFETY: the mapping is readable, aligned to pages, and written by atomic stores only.
        let words = unsafe { std::slice::from_raw_parts(at.cast(), len / 8) };
        Log { words, entries }
    }

    /// The entries that concern the time from `from` on.
    fn since(&self, from: u64) -> Entries {
        let mut all = Entries::new();
        let read = |word: &AtomicU64| word.load(Ordering::Acquire);
        for slot in self.words.chunks_exact((1 + self.entries) * WORDS) {
            let (head, entries) = slot.split_at(WORDS);
            let before = read(&head[0]);
            let mut found = Vec::with_capacity(self.entries);
            for entry in entries.chunks_exact(WORDS) {
                let [want, lock, tid, pid, freed, got, released, is_shared] =
                    std::array::from_fn(|i| read(&entry[i]));
                // An entry that is being replaced has no time, or gets another one meanwhile.
                if want != 0 && want == read(&entry[0]) {
                    found.push(Entry { want, lock, tid, pid, freed, got, released, is_shared });
                }
            }
            let oldest = found.iter().map(|e| e.want).min();
            let has_lost = read(&head[0]) > before + 1
                || before > self.entries as u64 && oldest.is_none_or(|want| want >= from);
            for entry in found {
                for id in [entry.tid, entry.pid] {
                    let (list, is_whole) = all.entry(id).or_insert((Vec::new(), true));
                    *is_whole &= !has_lost;
                    if or_later(entry.released) >= from || or_later(entry.got) >= from {
                        list.push(entry);
                    }
                    if entry.tid == entry.pid {
                        break;
                    }
                }
            }
        }
        all
    }
}

fn now_ns() -> u64 {
    // SAFETY: zeroed is a valid value, and the call writes to it.
    let mut t: libc::timespec = unsafe { std::mem::zeroed() };
    // SAFETY: `t` is valid for writes.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// What became of the edges.
#[derive(Debug, Default)]
struct Seen {
    right: BTreeMap<&'static str, u64>,
    /// The log no longer had that time.
    too_old: u64,
    /// Locks of the kernel that are not in the log.
    of_kernel: u64,
    without_holder: u64,
}

/// The entries of a thread or process, and whether the log still has all of them.
type Entries = HashMap<u64, (Vec<Entry>, bool)>;

/// The entries that a wrong edge is compared with.
fn lines(waits: &[Entry], holds: &[Entry]) -> String {
    let lines = |all: &[Entry]| all.iter().map(|e| format!("{e:?}\n")).collect::<String>();
    format!("waits:\n{}holds:\n{}", lines(waits), lines(holds))
}

/// Whether the edge was true at one moment of the look.
fn check(all: &Entries, wait: &Wait, holder: &Holder, (from, to): (u64, u64), seen: &mut Seen) {
    let none = (Vec::new(), true);
    let (waits, has_waits) = all.get(&u64::from(wait.tid)).unwrap_or(&none);
    let id = if holder.is_process { holder.tgid } else { holder.tid };
    let (holds, has_holds) = all.get(&u64::from(id)).unwrap_or(&none);
    let mut pairs = Vec::new();
    for w in waits.iter().filter(|w| w.tid == u64::from(wait.tid)) {
        for h in holds.iter().filter(|h| h.lock == w.lock && h.want != w.want) {
            let ((a, b), (c, d)) = (w.waits(), h.holds());
            if a.max(c).max(from) <= b.min(d).min(to) {
                pairs.push(w);
            }
        }
    }
    // "Since when" is not before the thread began this wait.
    let began = pairs.iter().map(|w| w.want).min();
    if let Some(began) = began {
        let error = wait.waited_error_ns.unwrap_or(0) + SLACK_NS;
        let waited = wait.waited_ns.unwrap_or(0);
        let is_since = waited <= to - began + error;
        assert!(is_since, "{wait:?} since {began}, {from} to {to}\n{}", lines(waits, holds));
        *seen.right.entry(holder.how.name()).or_default() += 1;
    } else if !has_waits || !has_holds {
        seen.too_old += 1;
    } else if holder.how == How::Kernel && wait.kind != Some(WaitKind::FutexPi) {
        seen.of_kernel += 1;
    } else {
        panic!("{wait:?}, {from} to {to}\n{}", lines(waits, holds));
    }
}

/// One look at a few of the threads.
fn look(log: &Log, engine: EngineId, pids: &[u32], round: usize, seen: &mut Seen) {
    let choice = Choice::Only(engine);
    let request = Request::all_threads(Groups::BASE | Groups::WAIT);
    let start = now_ns();
    let snapshot = taskdiag::query_with(&request, choice).expect("an answer");
    for task in snapshot.tasks().filter(|t| pids.contains(&t.tgid())) {
        let reason = task.reason(Group::Wait);
        assert!(matches!(reason, None | Some(Reason::Vanished)), "{engine}: WAIT: {reason:?}");
    }
    let mut waits = Waits::of(&snapshot);
    let answered = now_ns();
    let members: Vec<usize> =
        (0..waits.all().len()).filter(|at| pids.contains(&waits.all()[*at].tgid)).collect();
    let known: Vec<bool> = waits.all().iter().map(|w| w.holder.is_ok()).collect();
    let some = members.iter().copied().skip(round * 7 % members.len()).step_by(31).take(BATCH);
    let some: Vec<usize> = some.collect();
    waits.look_up(some.iter().copied(), choice, Limits::default());
    let end = now_ns();
    let all = log.since(start);
    let graph = Graph::new(&waits);
    // Other programs of this machine may be in a deadlock.
    let is_ours = |cycle: &&Vec<usize>| {
        cycle.iter().any(|at| pids.contains(&waits.all()[graph.node(*at).wait].tgid))
    };
    if let Some(cycle) = graph.cycles().iter().find(is_ours) {
        let told: String = cycle
            .iter()
            .map(|at| &waits.all()[graph.node(*at).wait])
            .map(|w| {
                let entries = all.get(&u64::from(w.tid)).map_or("".into(), |e| lines(&e.0, &[]));
                format!("{w:?}\n{entries}")
            })
            .collect();
        panic!("{engine}: there is no deadlock: {start} to {answered} to {end}: {told}");
    }
    for at in members {
        let wait = &waits.all()[at];
        match &wait.holder {
            Ok(holder) if known[at] => check(&all, wait, holder, (start, answered), seen),
            Ok(holder) => check(&all, wait, holder, (answered, end), seen),
            Err(_) if some.contains(&at) => seen.without_holder += 1,
            Err(_) => {}
        }
    }
}

#[test]
fn a_named_holder_had_the_lock_even_while_owners_change() {
    let test = "a_named_holder_had_the_lock_even_while_owners_change";
    if !needs_root(test) {
        return;
    }
    if !std::fs::exists("/proc/self/sched").is_ok_and(|there| there) {
        return skip(test, "this kernel has no /proc/PID/sched, which says when a thread last ran");
    }
    let seconds = match std::env::var("TASKDIAG_WHY_SECONDS") {
        Ok(text) => text.parse().expect("TASKDIAG_WHY_SECONDS is a number"),
        Err(_) => {
            eprintln!("it takes 4 s here: TASKDIAG_WHY_SECONDS=3600 is an hour");
            4
        }
    };
    let (_dir, path) = plain_dir();
    // A kernel that checks itself, in an emulator, has no time for a thousand.
    let few = std::env::var("TASKDIAG_WHY_THREADS").ok();
    let threads = few.as_deref().unwrap_or("1000");
    let Some(m) = Mktask::or_skip(test, &["lock-storm", &path, threads]) else { return };
    let log = Log::open(&format!("{path}/log"), m.num("entries"));
    let pids = m.list("pids");
    let all = engines().iter().filter_map(|source| match source {
        Source::Engine(id @ (EngineId::Procfs | EngineId::Bpf)) => Some(*id),
        _ => None,
    });
    let mut seen: Vec<(EngineId, Seen)> = all.map(|id| (id, Seen::default())).collect();
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut round = 0;
    while Instant::now() < end {
        for (engine, seen) in &mut seen {
            look(&log, *engine, &pids, round, seen);
            // The command looks up all threads, which takes longer, so chains change meanwhile.
            if round % 20 == 0 {
                let mut command = Command::new(taskdiag());
                command.args(["why", "--json", "--engine", engine.name()]);
                let out = command.args(pids.iter().map(u32::to_string)).output().expect("it runs");
                assert_eq!(out.status.code(), Some(0), "{engine}: there is no deadlock: {out:?}");
            }
        }
        round += 1;
    }
    for (engine, seen) in &seen {
        eprintln!("{engine}: {round} looks, {seen:?}");
        let right: u64 = seen.right.values().sum();
        assert!(right > seen.too_old, "{engine}: the log is too short: {seen:?}");
        // A busy machine makes a few looks only, and the last kinds are rare. With few threads, all
        // are.
        let kinds = [How::Mutex, How::Flock, How::RwlockWriter, How::Thread, How::Child];
        let expected = match round {
            _ if few.is_some() => 0,
            0..100 => 2,
            _ => 5,
        };
        for how in &kinds[..expected] {
            assert!(seen.right.contains_key(how.name()), "{engine}: {how:?}: {seen:?}");
        }
    }
}
