//! Serves requests for groups that may wait: other threads read, and this one makes sure that the
//! answer does not wait for them. `guard` describes the readers.

use std::os::fd::{AsFd, OwnedFd};
use std::panic::resume_unwind;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use taskdiag_wire::{Groups, StreamWriter};

use super::handover::{Parked, Slot, ended, is_running};
use super::path::{Path, TaskDir};
use super::read::Reader;
use super::run::Run;
use super::walk::{child, readers_for};
use super::worker::Worker;
use crate::error::Error;

/// The interval of looks at a read, and how often in a row it must be found waiting.
const LOOK: Duration = Duration::from_millis(20);
const LOOKS: u32 = 5;

/// The data that all threads of a request share.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) run: Run,
    pub(super) root: OwnedFd,
    /// The tasks in the order of the answer, as (process, thread). Thread 0 is the process itself.
    pub(super) items: Vec<(u32, u32)>,
    /// If set, only children of this process are written.
    pub(super) children_of: Option<u32>,
}

/// The result of a thread.
#[derive(Debug)]
struct ReaderResult {
    out: StreamWriter,
    syscalls: u64,
    result: Result<(), Error>,
}

/// Where threads report that they are done.
#[derive(Debug, Default)]
struct Bell {
    rung: Mutex<bool>,
    cond: Condvar,
}

impl Bell {
    fn ring(&self) {
        *self.rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.cond.notify_one();
    }
    fn wait(&self, at_most: Duration) {
        let rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut rung, _) = self
            .cond
            .wait_timeout_while(rung, at_most, |rung| !*rung)
            .unwrap_or_else(PoisonError::into_inner);
        *rung = false;
    }
}

/// A part of the items, the thread that reads it, and the last state of that thread as seen by the
/// supervisor.
struct ReaderPart {
    end: usize,
    slot: Arc<Slot>,
    thread: Option<JoinHandle<()>>,
    seen: Option<u64>,
    times: u32,
    /// Where the thread puts its result.
    result: Arc<Mutex<Option<ReaderResult>>>,
    done: Option<ReaderResult>,
}

/// Reads all items of a job, and writes them after the output of `main`.
pub(super) fn read_all(
    job: &Arc<Job>,
    out: &mut StreamWriter,
    syscalls: &mut u64,
) -> Result<(), Error> {
    let bell = Arc::new(Bell::default());
    // The first part continues in the same output, so that it need not be copied.
    let mut parts: Vec<ReaderPart> = cut(&job.items, job.run.wants(Groups::SHARED))
        .map(|(begin, end)| start(job, &bell, Begin::New(begin, std::mem::take(out)), end))
        .collect();
    let mut last = Instant::now();
    while parts.iter().any(|p| p.done.is_none()) {
        bell.wait(LOOK.saturating_sub(last.elapsed()));
        let look = last.elapsed() >= LOOK;
        if look {
            last = Instant::now();
        }
        for part in &mut parts {
            collect(part);
            if look && part.done.is_none() {
                if let Some(parked) = stuck(part) {
                    *part = start(job, &bell, Begin::Over(Box::new(parked)), part.end);
                }
            }
        }
    }
    for (n, done) in parts.into_iter().filter_map(|p| p.done).enumerate() {
        match n {
            0 => *out = done.out,
            _ => out.append(done.out),
        }
        *syscalls += done.syscalls;
        done.result?;
    }
    Ok(())
}

/// Cuts the items into a worthwhile number of parts of about equal length. It does not cut within a
/// process if its threads share groups that must be read only once.
fn cut(items: &[(u32, u32)], whole: bool) -> impl Iterator<Item = (usize, usize)> {
    let size = items.len().div_ceil(readers_for(items.len())).max(1);
    let mut begin = 0;
    std::iter::from_fn(move || {
        let mut end = (begin + size).min(items.len());
        while whole && end < items.len() && items[end].0 == items[end - 1].0 {
            end += 1;
        }
        let part = (begin, end);
        begin = end;
        (part.0 < part.1).then_some(part)
    })
}

/// The initial data of a thread.
enum Begin {
    /// The thread begins with this item, and appends its answer to this stream.
    New(usize, StreamWriter),
    /// The thread continues the work of another thread.
    Over(Box<Parked>),
}

fn start(job: &Arc<Job>, bell: &Arc<Bell>, begin: Begin, end: usize) -> ReaderPart {
    let slot = Arc::new(Slot::default());
    let result = Arc::new(Mutex::new(None));
    let begin = Arc::new(Mutex::new(Some(begin)));
    let run = {
        let (job, bell, slot) = (Arc::clone(job), Arc::clone(bell), Arc::clone(&slot));
        let (begin, result) = (Arc::clone(&begin), Arc::clone(&result));
        move || {
            // SAFETY: takes no arguments, and cannot fail.
            let tid = unsafe { libc::syscall(libc::SYS_gettid) };
            slot.tid.store(tid as i32, Ordering::Relaxed);
            let begin = begin.lock().unwrap_or_else(PoisonError::into_inner).take();
            let done = begin.and_then(|b| read_part(&job, Some(&slot), b, end));
            *result.lock().unwrap_or_else(PoisonError::into_inner) = done;
            bell.ring();
        }
    };
    let thread = thread::Builder::new().name(String::from("procfs")).spawn(run).ok();
    let mut done = None;
    if thread.is_none() {
        // The system gives us no more threads, so this one reads, and waits if it must.
        if let Some(begin) = begin.lock().unwrap_or_else(PoisonError::into_inner).take() {
            done = read_part(job, None, begin, end);
        }
    }
    ReaderPart { end, slot, thread, seen: None, times: 0, result, done }
}

/// The work of a thread. It returns `None` if another thread has taken over.
fn read_part(job: &Job, slot: Option<&Slot>, begin: Begin, end: usize) -> Option<ReaderResult> {
    let mut w = Worker::new(&job.run, Reader::new(), StreamWriter::default());
    w.slot = slot;
    let mut result = Ok(());
    let mut next = match begin {
        Begin::New(item, out) => {
            w.out = out;
            item
        }
        Begin::Over(parked) => {
            let p = *parked;
            (w.out, w.said, w.shares, w.item) = (p.out, p.said, p.shares, p.item);
            w.blocked = (p.tgid, p.blocked);
            w.reader.syscalls = p.syscalls;
            result = w.go_on(place(job, p.item));
            p.item + 1
        }
    };
    while result.is_ok() && !w.lost && next < end {
        let at = place(job, next);
        w.item = next;
        if next == 0 || job.items[next - 1].0 != at.tgid {
            w.shares = Default::default();
        }
        result = match job.children_of {
            Some(parent) => child(&mut w, at, parent),
            None => w.task(at, None),
        };
        next += 1;
    }
    if w.lost {
        ended();
        return None;
    }
    Some(ReaderResult { out: w.out, syscalls: w.reader.syscalls, result })
}

fn place(job: &Job, item: usize) -> TaskDir<'_> {
    let (tgid, tid) = job.items[item];
    let path = Path::id(tgid);
    match tid {
        0 => TaskDir { dir: job.root.as_fd(), path, pid: tgid, tgid },
        tid => {
            TaskDir { dir: job.root.as_fd(), path: path.join_task().join_id(tid), pid: tid, tgid }
        }
    }
}

/// Collects the result of a thread. The thread has ended by then, so nothing remains of it after
/// the request.
fn collect(part: &mut ReaderPart) {
    let take =
        |r: &Mutex<Option<ReaderResult>>| r.lock().unwrap_or_else(PoisonError::into_inner).take();
    if part.done.is_none() {
        part.done = take(&part.result);
    }
    let ends = |t: &mut JoinHandle<()>| part.done.is_some() || t.is_finished();
    if let Some(thread) = part.thread.take_if(ends) {
        thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        // The thread may have finished since the first look.
        part.done = part.done.take().or_else(|| take(&part.result));
    }
}

/// If the thread was found waiting in one read often enough, takes its work, because the answer no
/// longer waits for it.
fn stuck(part: &mut ReaderPart) -> Option<Parked> {
    let now = part.slot.waiting();
    let same = now.is_some() && now == part.seen;
    // A long read that works, such as a sum over a large memory, is not a wait.
    if !same || (part.times > 0 && is_running(part.slot.tid.load(Ordering::Relaxed))) {
        (part.seen, part.times) = (now, u32::from(now.is_some()));
        return None;
    }
    part.times += 1;
    if part.times <= LOOKS {
        return None;
    }
    part.slot.take_over(now?)
}

/// Whether requests for these groups are read here.
pub(super) fn is_for(groups: Groups) -> bool {
    groups.intersects(Groups::WAITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_all_tasks_and_keep_a_process_whole() {
        let processes: Vec<(u32, u32)> = (1..=5000).map(|p| (p, 0)).collect();
        let all: Vec<_> = cut(&processes, true).collect();
        assert_eq!((all[0].0, all.last().map(|p| p.1)), (0, Some(5000)));
        assert!(all.windows(2).all(|w| w[0].1 == w[1].0));
        let threads: Vec<(u32, u32)> = (1..=5000).map(|t| (7, t)).collect();
        assert_eq!(cut(&threads, true).collect::<Vec<_>>(), [(0, 5000)]);
        assert_eq!(cut(&[], true).count(), 0);
    }
}
