//! Which tasks, for each strategy; and the spreading of the work over threads.

use std::num::NonZero;
use std::os::fd::{AsFd, BorrowedFd};
use std::thread;

use rustix::io::Errno;
use taskdiag_wire::{AlignedBuf, Done, Strategy, StreamWriter};

use super::parse;
use super::read::{Path, Reader};
use super::task::{Place, Plan, Stop, Worker, exhausted};
use crate::error::Error;
use crate::request::Request;

/// An answer without its end.
pub(super) struct Walked {
    pub(super) out: StreamWriter,
    /// Counts of the tasks that `out` got ready-made.
    pub(super) extra: Done,
    pub(super) syscalls: u64,
}

/// Write all tasks that the request is about.
pub(super) fn walk(
    root: BorrowedFd<'_>,
    req: &Request,
    plan: &Plan,
    mut reader: Reader,
    out: StreamWriter,
) -> Result<Walked, Error> {
    let mut pids = Vec::new();
    let mut tgid = 0;
    if req.strategy.takes_pid() {
        tgid = process_of(root, req.pid, &mut reader)?;
    }
    match req.strategy {
        Strategy::One | Strategy::Thread => pids.push(tgid),
        Strategy::All | Strategy::AllThread | Strategy::Children => {
            reader.pids(root, &mut pids).map_err(|e| Error::io("listing /proc", e))?;
        }
    }
    let walked = match req.strategy {
        Strategy::All | Strategy::One => {
            spread(plan, reader, out, &pids, |w, pid| process(w, root, pid))
        }
        Strategy::AllThread | Strategy::Thread => {
            spread(plan, reader, out, &pids, |w, pid| threads(w, root, pid))
        }
        Strategy::Children => spread(plan, reader, out, &pids, |w, pid| child(w, root, pid, tgid)),
    }?;
    // It was there a moment ago.
    let one = matches!(req.strategy, Strategy::One | Strategy::Thread);
    if one && walked.out.tasks() + walked.extra.tasks == 0 {
        return Err(Error::NoSuchProcess(req.pid));
    }
    Ok(walked)
}

/// The process that `pid`, of a process or a thread, belongs to.
fn process_of(root: BorrowedFd<'_>, pid: u32, reader: &mut Reader) -> Result<u32, Error> {
    let mut path = Path::id(pid);
    if pid == 0 {
        return Err(Error::NoSuchProcess(pid));
    }
    match reader.file(root, path.file("status")) {
        Ok(bytes) => Ok(parse::tgid(bytes).unwrap_or(pid)),
        Err(e @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM)) => Err(exhausted(e)),
        // Whatever keeps us from reading the file, the directory says whether the task is there.
        Err(_) => match reader.stat(root, path.file("")) {
            Ok(_) => Ok(pid),
            Err(_) => Err(Error::NoSuchProcess(pid)),
        },
    }
}

fn place(dir: BorrowedFd<'_>, pid: u32, tgid: u32) -> Place<'_> {
    Place { dir, path: Path::id(pid), pid, tgid }
}

fn process(w: &mut Worker<'_>, root: BorrowedFd<'_>, pid: u32) -> Result<(), Error> {
    w.task(place(root, pid, pid), None)
}

fn child(w: &mut Worker<'_>, root: BorrowedFd<'_>, pid: u32, of: u32) -> Result<(), Error> {
    let at = place(root, pid, pid);
    match w.stat_file(at) {
        Ok(s) if s.base.ppid() == Some(of) => w.task(at, Some(s)),
        Err(Stop::Failed(e)) => Err(e),
        // Another's child, or one of which nobody tells whose it is.
        _ => Ok(()),
    }
}

/// The threads of a process. A tid under /proc itself gives the times of the whole process:
/// those of the thread are under task/ only.
fn threads(w: &mut Worker<'_>, root: BorrowedFd<'_>, tgid: u32) -> Result<(), Error> {
    let mut path = Path::id(tgid);
    let dir = match w.reader.open_dir(root, path.file("task")) {
        Ok(dir) => dir,
        Err(e) => {
            return match w.meaning(place(root, tgid, tgid), e) {
                Stop::Gone => {
                    w.vanished(tgid);
                    Ok(())
                }
                Stop::Failed(e) => Err(e),
                // The process is seen, its threads are not (hidepid=1): one is known, and each
                // of its groups says why it is not there.
                Stop::Gap(_) => {
                    let path = Path::id(tgid).join_task().join_id(tgid);
                    w.task(Place { dir: root, path, pid: tgid, tgid }, None)
                }
            };
        }
    };
    w.reader.syscalls += 1; // close
    let mut tids = std::mem::take(&mut w.tids);
    let listed = w.reader.pids(dir.as_fd(), &mut tids);
    let mut result = listed.map_err(|e| Error::io(format!("listing the threads of {tgid}"), e));
    if tids.is_empty() {
        w.vanished(tgid);
    }
    for &tid in &tids {
        if result.is_err() {
            break;
        }
        result = w.task(place(dir.as_fd(), tid, tgid), None);
    }
    w.tids = tids;
    result
}

/// Fewer tasks than this are not worth another thread.
const TASKS_PER_THREAD: usize = 1000;
/// More threads than this wait for each other in the kernel.
const MAX_THREADS: usize = 8;

/// How many threads read `tasks` tasks, on a machine that lets us use `cpus`.
fn threads_for(tasks: usize, cpus: usize) -> usize {
    (tasks / TASKS_PER_THREAD).clamp(1, cpus.clamp(1, MAX_THREADS))
}

/// Do `each` for every pid, in equal parts by several threads where that pays. The order in the
/// stream is that of `pids` all the same.
fn spread(
    plan: &Plan,
    reader: Reader,
    out: StreamWriter,
    pids: &[u32],
    each: impl Fn(&mut Worker<'_>, u32) -> Result<(), Error> + Sync,
) -> Result<Walked, Error> {
    let cpus = thread::available_parallelism().map_or(1, NonZero::get);
    let parts = threads_for(pids.len(), cpus);
    let part_len = pids.len().div_ceil(parts).max(1);
    let (first, rest) = pids.split_at(part_len.min(pids.len()));
    let part = |worker: &mut Worker<'_>, pids: &[u32]| -> Result<(), Error> {
        pids.iter().try_for_each(|&pid| each(worker, pid))
    };
    let other = |pids: &[u32]| -> Result<(AlignedBuf, Done, u64), Error> {
        let mut worker = Worker::new(plan, Reader::new(), StreamWriter::new());
        part(&mut worker, pids)?;
        let syscalls = worker.reader.syscalls;
        let (messages, counts) = worker.out.into_messages();
        Ok((messages, counts, syscalls))
    };
    let mut worker = Worker::new(plan, reader, out);
    let mut extra = Done::default();
    thread::scope(|scope| -> Result<(), Error> {
        let others: Vec<_> = rest
            .chunks(part_len)
            .map(|pids| {
                let other = &other;
                (pids, thread::Builder::new().spawn_scoped(scope, move || other(pids)))
            })
            .collect();
        part(&mut worker, first)?;
        for (pids, handle) in others {
            match handle {
                Ok(handle) => {
                    let joined = handle.join().unwrap_or_else(|p| std::panic::resume_unwind(p));
                    let (messages, counts, syscalls) = joined?;
                    worker.out.raw(messages.as_bytes());
                    worker.reader.syscalls += syscalls;
                    extra.tasks += counts.tasks;
                    extra.denied += counts.denied;
                    extra.vanished += counts.vanished;
                    extra.blocked += counts.blocked;
                    extra.truncated += counts.truncated;
                }
                // No thread to be had: this one does the part.
                Err(_) => part(&mut worker, pids)?,
            }
        }
        Ok(())
    })?;
    Ok(Walked { out: worker.out, extra, syscalls: worker.reader.syscalls })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_counts() {
        assert_eq!(threads_for(0, 8), 1);
        assert_eq!(threads_for(1999, 8), 1);
        assert_eq!(threads_for(2000, 8), 2);
        assert_eq!(threads_for(100_000, 2), 2);
        assert_eq!(threads_for(100_000, 128), 8);
        assert_eq!(threads_for(100_000, 0), 1);
    }
}
