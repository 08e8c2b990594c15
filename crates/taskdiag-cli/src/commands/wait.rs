//! `taskdiag wait`: until processes end.

use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit, setrlimit};
use taskdiag::field::TASKS;
use taskdiag::view::{Filter, Query};
use taskdiag::{Choice, Ended, Error, TaskId, Waiter, field};

use crate::args::wait::WaitArgs;
use crate::exit::{Exit, Partial, say};
use crate::interrupt;
use crate::output::{Sink, json, tally};

/// How many pids an error message names.
const NAMED: usize = 10;
/// When names are read again, counted from the start. A process that a shell has just forked has
/// the name of the shell until its exec, and it may be reaped before its last name can be read.
const AGAIN: [Duration; 4] = [
    Duration::from_millis(20),
    Duration::from_millis(100),
    Duration::from_millis(500),
    Duration::from_secs(3),
];
/// Names are looked up again for at most this many processes, because each takes six system calls.
const AGAIN_MAX: usize = 1000;

/// Run it.
pub fn run(args: &WaitArgs) -> Result<(), Exit> {
    let begun = Instant::now();
    let (mut waiter, mut names, some_are_lacking) = match &args.filter {
        Some(filter) => {
            let (waiter, names) = matching(filter)?;
            (waiter, names, false)
        }
        None => {
            let (waiter, names) = hold(&args.pids, true)?;
            let some_are_lacking = names.len() < args.pids.len();
            (waiter, names, some_are_lacking)
        }
    };
    if names.is_empty() {
        return Err(Exit::NoMatch);
    }
    let few = names.len() <= AGAIN_MAX;
    let mut sink = Sink::stdout();
    if !args.jsonl {
        sink.buf().extend_from_slice(b"    PID       AFTER COMMAND         STATUS\n");
        sink.finish()?;
    }
    interrupt::answered();
    let mut again = AGAIN.iter().filter(|_| few).peekable();
    let mut enough = false;
    while !enough {
        let now = begun.elapsed();
        let left = args.timeout.map(|t| t.saturating_sub(now));
        let look = again.peek().map(|at| at.saturating_sub(now));
        let soon = left.into_iter().chain(look).min();
        let Some((ended, last)) = waiter.wait_with(soon, name)? else {
            if left.is_some_and(|left| look.is_none_or(|look| left <= look)) {
                let line = still_there(names.into_keys().collect());
                return Err(Exit::Partial(Partial::always([line])));
            }
            again.next();
            for (pid, process) in waiter.processes() {
                if let Some(name) = name(process) {
                    names.insert(pid, Some(name));
                }
            }
            continue;
        };
        let comm = last.or(names.remove(&ended.pid).flatten());
        let row = if args.jsonl { write_json } else { write_text };
        row(sink.buf(), &ended, comm.as_deref(), begun.elapsed());
        sink.finish()?;
        enough = args.any || waiter.is_empty();
    }
    if some_are_lacking { Err(Exit::NoMatch) } else { Ok(()) }
}

/// The last names that were seen, because a reaped process has none.
type Names = HashMap<u32, Option<Vec<u8>>>;

/// Holds these processes. A process with an inode is held only if its pidfd has that inode. `says`:
/// reports processes that do not exist.
fn hold(pids: &[(u32, Option<u64>)], says: bool) -> Result<(Waiter, Names), Exit> {
    allow_files(pids.len());
    let mut waiter = Waiter::new()?;
    let mut names = HashMap::with_capacity(pids.len());
    for (pid, inode) in pids {
        let added = match inode {
            Some(inode) => waiter.add_with_inode(*pid, *inode),
            None => waiter.add(*pid),
        };
        match added {
            Ok(process) => {
                names.insert(*pid, name(process));
            }
            Err(Error::NoSuchProcess(_)) if !says => {}
            Err(Error::NoSuchProcess(pid)) => say(format_args!("taskdiag: no process {pid}")),
            Err(e) => return Err(e.into()),
        }
    }
    Ok((waiter, names))
}

/// Holds the processes that match, except for this one and its ancestors.
fn matching(filter: &Filter) -> Result<(Waiter, Names), Exit> {
    let mut found = ids(Some(filter), &[])?;
    let own = crate::this_program::pids();
    found.retain(|(pid, _)| !own.contains(pid));
    loop {
        let pids: Vec<u32> = found.iter().map(|(pid, _)| *pid).collect();
        let unnamed: Vec<_> = pids.iter().map(|pid| (*pid, None)).collect();
        let held = hold(&unnamed, false)?;
        if pids.is_empty() {
            return Ok(held);
        }
        // Another process may have got a number before it was held.
        let now = ids(None, &pids)?;
        let is_other = |(pid, id): &(u32, TaskId)| {
            now.iter().any(|(other, new)| other == pid && !new.is_same(id))
        };
        found.retain(|one| !is_other(one));
        if found.len() == pids.len() {
            return Ok(held);
        }
    }
}

/// Finds the processes that match a condition. Without a condition, finds the processes with these
/// pids.
fn ids(filter: Option<&Filter>, pids: &[u32]) -> Result<Vec<(u32, TaskId)>, Exit> {
    // The start time distinguishes a process from a later one with the same pid.
    let columns = ["pid", "start"].map(|n| TASKS.find(n).expect("a column of the table").field);
    let mut query = Query::new(&TASKS, columns);
    query.filter = filter.cloned();
    query.select.pids = pids.to_vec();
    let answered = query.plan().ask(Choice::Auto)?;
    let view = query.view(&answered.snapshot);
    for lack in tally::left_out(&view.left(), &answered.snapshot) {
        say(format_args!("taskdiag: {}", lack.line));
    }
    let stream = answered.snapshot.stream();
    let tasks = view.tasks().iter().filter_map(|at| stream.get(*at as usize));
    Ok(tasks.filter_map(|task| Some((task.pid(), TaskId::of(&task)?))).collect())
}

/// Raises the limit of open files as far as possible if it is too low for so many.
pub fn allow_files(files: usize) {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|n| n < files as u64 + 64) {
        limit.current = limit.maximum;
        // If the limit stays too low, opening one reports it.
        let _ = setrlimit(Resource::Nofile, limit);
    }
}

/// The name of a process that is not reaped yet, even if /proc belongs to another pid namespace.
fn name(process: BorrowedFd<'_>) -> Option<Vec<u8>> {
    taskdiag::act::of_pidfd(process)?.comm()
}

/// The message about processes that had not ended in time.
fn still_there(mut pids: Vec<u32>) -> String {
    pids.sort_unstable();
    let named: Vec<String> = pids.iter().take(NAMED).map(u32::to_string).collect();
    let more = if pids.len() > NAMED { ", and others" } else { "" };
    let word = if pids.len() == 1 { "process has" } else { "processes have" };
    format!("the time is over, and {} {word} not ended: {}{more}", pids.len(), named.join(", "))
}

/// How it ended, in words.
fn words(status: Option<ExitStatus>) -> String {
    let Some(status) = status else { return String::from("?") };
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited {code}"),
        (None, signal) => {
            let core = if status.core_dumped() { " (core dumped)" } else { "" };
            format!("killed by {}{core}", signal_name(signal.unwrap_or(0)))
        }
    }
}

/// `SIGKILL`; a signal without a name is its number.
fn signal_name(number: i32) -> String {
    let name = signal_hook::low_level::signal_name(number);
    name.map_or_else(|| format!("signal {number}"), str::to_owned)
}

fn write_text(out: &mut Vec<u8>, ended: &Ended, comm: Option<&[u8]>, after: Duration) {
    let mut name = Vec::new();
    field::escape(&mut name, comm.unwrap_or(b"?"));
    let name = String::from_utf8_lossy(&name);
    let (pid, seconds, how) = (ended.pid, after.as_secs_f64(), words(ended.status));
    out.extend_from_slice(format!("{pid:>7} {seconds:>10.3}s {name:<15} {how}\n").as_bytes());
}

fn write_json(out: &mut Vec<u8>, ended: &Ended, comm: Option<&[u8]>, after: Duration) {
    out.extend_from_slice(format!("{{\"pid\":{},\"after\":", ended.pid).as_bytes());
    json::seconds(out, after.as_nanos() as i128);
    out.extend_from_slice(b",\"comm\":");
    match comm {
        Some(comm) => json::text(out, comm),
        None => out.extend_from_slice(b"null"),
    }
    match ended.status {
        None => out.extend_from_slice(b",\"status\":null"),
        Some(status) => {
            out.extend_from_slice(b",\"status\":");
            json::text(out, words(Some(status)).as_bytes());
            // A status has either an exit code or a signal.
            if let Some(code) = status.code() {
                out.extend_from_slice(format!(",\"exit_code\":{code}").as_bytes());
            }
            if let Some(signal) = status.signal() {
                out.extend_from_slice(format!(",\"signal\":{signal}").as_bytes());
                let core = status.core_dumped();
                out.extend_from_slice(format!(",\"core_dumped\":{core}").as_bytes());
            }
        }
    }
    out.extend_from_slice(b"}\n");
}
