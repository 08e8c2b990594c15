//! Finds the tasks of each strategy, and spreads the work over threads.

use std::num::NonZero;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::resume_unwind;
use std::thread;

use rustix::io::Errno;
use taskdiag_wire::{Strategy, StreamWriter};

use super::carriers::Shares;
use super::parse;
use super::path::{Path, TaskDir};
use super::read::Reader;
use super::stop::{Stop, exhausted};
use super::worker::Worker;
use crate::error::Error;
use crate::request::Request;

/// The processes of the request, and the process that it names, if any.
pub(super) fn processes(
    root: BorrowedFd<'_>,
    req: &Request,
    reader: &mut Reader,
) -> Result<(Vec<u32>, u32), Error> {
    let mut pids = Vec::new();
    let mut tgid = 0;
    if req.strategy.takes_pid() {
        tgid = process_of(root, req.pid, reader)?;
    }
    match req.strategy {
        Strategy::One | Strategy::Thread => pids.push(tgid),
        Strategy::All | Strategy::AllThread | Strategy::Children => {
            reader.pids(root, &mut pids).map_err(|e| Error::io("listing /proc", e))?;
            pids.retain(|pid| req.processes.has(*pid));
        }
    }
    if !req.strategy.is_threads() {
        req.expect(pids.len());
    }
    Ok((pids, tgid))
}

/// Checks that a request about one process has found a task of it.
pub(super) fn found(req: &Request, out: &StreamWriter) -> Result<(), Error> {
    // The process existed when the walk began, so it has ended since.
    let one = matches!(req.strategy, Strategy::One | Strategy::Thread);
    if one && out.tasks() == 0 && !req.is_stopped() {
        return Err(Error::NoSuchProcess(req.pid));
    }
    Ok(())
}

/// Writes all tasks that the request is about.
pub(super) fn walk(
    root: BorrowedFd<'_>,
    req: &Request,
    worker: &mut Worker<'_>,
) -> Result<(), Error> {
    let (pids, tgid) = processes(root, req, &mut worker.reader)?;
    match req.strategy {
        Strategy::All | Strategy::One => {
            spread(worker, &pids, |w, pid| w.task(place(root, pid, pid), None))
        }
        Strategy::AllThread | Strategy::Thread => {
            spread(worker, &pids, |w, pid| threads(w, root, pid))
        }
        Strategy::Children => spread(worker, &pids, |w, pid| child(w, place(root, pid, pid), tgid)),
    }?;
    found(req, &worker.out)
}

/// Lists the threads of processes as (process, thread), for a walk that needs all of them before it
/// reads one.
pub(super) fn all_threads(
    root: BorrowedFd<'_>,
    pids: &[u32],
    w: &mut Worker<'_>,
) -> Result<Vec<(u32, u32)>, Error> {
    let (mut items, mut tids) = (Vec::new(), Vec::new());
    for &tgid in pids {
        match list_threads(w, root, tgid, &mut tids) {
            Ok(_) if tids.is_empty() => w.vanished(tgid),
            Ok(_) => items.extend(tids.iter().map(|tid| (tgid, *tid))),
            Err(Stop::Failed(e)) => return Err(e),
            // The threads cannot be listed, but the first one is known.
            Err(Stop::Gap(_)) => items.push((tgid, tgid)),
            Err(Stop::Gone | Stop::Lost) => w.vanished(tgid),
        }
    }
    Ok(items)
}

/// The thread ids of a process, and the directory that lists them.
fn list_threads(
    w: &mut Worker<'_>,
    root: BorrowedFd<'_>,
    tgid: u32,
    tids: &mut Vec<u32>,
) -> Result<OwnedFd, Stop> {
    let mut path = Path::id(tgid);
    let dir = w.reader.open_dir(root, path.file("task"));
    w.reader.syscalls += u64::from(dir.is_ok()); // close
    let listed = dir.and_then(|dir| w.reader.pids(dir.as_fd(), tids).map(|()| dir));
    if let (Some(watch), Ok(_)) = (&w.run.watch, &listed) {
        watch.expect(tids.len() as u64);
    }
    listed.map_err(|e| w.meaning(place(root, tgid, tgid), e))
}

/// The process that `pid` belongs to, where `pid` is a process or a thread.
fn process_of(root: BorrowedFd<'_>, pid: u32, reader: &mut Reader) -> Result<u32, Error> {
    let mut path = Path::id(pid);
    if pid == 0 {
        return Err(Error::NoSuchProcess(pid));
    }
    match reader.file(root, path.file("status")) {
        Ok(bytes) => Ok(parse::tgid(bytes).unwrap_or(pid)),
        Err(e @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM)) => Err(exhausted(e)),
        // The file cannot be read for any reason. The directory shows whether the task exists.
        Err(_) => match reader.stat(root, path.file("")) {
            Ok(_) => Ok(pid),
            Err(_) => Err(Error::NoSuchProcess(pid)),
        },
    }
}

fn place(dir: BorrowedFd<'_>, pid: u32, tgid: u32) -> TaskDir<'_> {
    TaskDir { dir, path: Path::id(pid), pid, tgid }
}

/// Writes a process if it is a child of `of`.
pub(super) fn child(w: &mut Worker<'_>, at: TaskDir<'_>, of: u32) -> Result<(), Error> {
    match w.stat_file(at) {
        Ok(s) if s.base.known().ppid() == Some(of) => w.task(at, Some(s)),
        Err(Stop::Failed(e)) => Err(e),
        // The task is not a child of `of`, or its parent is unknown.
        _ => Ok(()),
    }
}

/// Writes the threads of a process. A tid directly under /proc would give the times of the whole
/// process, because only the directories under task/ have those of the thread.
fn threads(w: &mut Worker<'_>, root: BorrowedFd<'_>, tgid: u32) -> Result<(), Error> {
    let mut tids = std::mem::take(&mut w.tids);
    let result = match list_threads(w, root, tgid, &mut tids) {
        Ok(_) if tids.is_empty() => {
            w.vanished(tgid);
            Ok(())
        }
        Ok(dir) => {
            let one = |w: &mut Worker<'_>, tid| w.task(place(dir.as_fd(), tid, tgid), None);
            // Shared values must be found before the threads are divided among readers.
            w.shares = Shares::default();
            let mut rest = &tids[..];
            let mut first = Ok(());
            while let (Some((&tid, more)), true) =
                (rest.split_first(), first.is_ok() && !w.shares.settled(w.run.groups))
            {
                (first, rest) = (one(w, tid), more);
            }
            first.and_then(|()| spread(w, rest, one))
        }
        Err(Stop::Gone | Stop::Lost) => {
            w.vanished(tgid);
            Ok(())
        }
        Err(Stop::Failed(e)) => Err(e),
        // The process can be seen, but its threads cannot (hidepid=1). One thread is known, and
        // each of its groups has the reason why it is missing.
        Err(Stop::Gap(_)) => {
            let path = Path::id(tgid).join_task().join_id(tgid);
            w.task(TaskDir { dir: root, path, pid: tgid, tgid }, None)
        }
    };
    w.tids = tids;
    result
}

/// Fewer tasks than this are not worth another thread, because a thread costs about 0.1 ms and a
/// task 5 to 20 µs.
const TASKS_PER_THREAD: usize = 500;
/// More threads than this would wait for each other in the kernel.
const MAX_THREADS: usize = 8;

/// The number of threads that read `tasks` tasks on this machine.
pub(super) fn readers_for(tasks: usize) -> usize {
    threads_for(tasks, thread::available_parallelism().map_or(1, NonZero::get))
}

/// The number of threads that read `tasks` tasks on a machine where we may use `cpus` processors.
fn threads_for(tasks: usize, cpus: usize) -> usize {
    (tasks / TASKS_PER_THREAD).clamp(1, cpus.clamp(1, MAX_THREADS))
}

/// Calls `each` for every id. Several threads do equal parts if that is worth it. The order in the
/// stream is always that of `ids`.
fn spread(
    worker: &mut Worker<'_>,
    ids: &[u32],
    each: impl Fn(&mut Worker<'_>, u32) -> Result<(), Error> + Sync,
) -> Result<(), Error> {
    let part = |w: &mut Worker<'_>, ids: &[u32]| ids.iter().try_for_each(|&id| each(w, id));
    if ids.len() < 2 * TASKS_PER_THREAD {
        return part(worker, ids);
    }
    let (first, rest) = ids.split_at(ids.len().div_ceil(readers_for(ids.len())));
    let (run, shares) = (worker.run, worker.shares);
    let other = |ids: &[u32]| {
        let mut w = Worker::new(run, Reader::new(), StreamWriter::new());
        w.shares = shares;
        part(&mut w, ids).map(|()| (w.out, w.reader.syscalls))
    };
    thread::scope(|scope| {
        let other = &other;
        let others: Vec<_> = rest
            .chunks(first.len())
            .map(|ids| (ids, thread::Builder::new().spawn_scoped(scope, move || other(ids))))
            .collect();
        part(worker, first)?;
        for (ids, thread) in others {
            let Ok(thread) = thread else {
                // The system gives us no more threads, so this one does the part.
                part(worker, ids)?;
                continue;
            };
            let done = thread.join().unwrap_or_else(|panic| resume_unwind(panic));
            let (out, syscalls) = done?;
            worker.out.append(out);
            worker.reader.syscalls += syscalls;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_reading_threads_follows_tasks_and_processors() {
        assert_eq!(threads_for(0, 8), 1);
        assert_eq!(threads_for(999, 8), 1);
        assert_eq!(threads_for(1000, 8), 2);
        assert_eq!(threads_for(100_000, 2), 2);
        assert_eq!(threads_for(100_000, 128), 8);
        assert_eq!(threads_for(100_000, 0), 1);
    }
}
