//! The cost of a repeated request: `refresh WHO ROUNDS` asks for names, states, CPU times, faults
//! and memory of all processes. It prints the median CPU time of this process for a round, in
//! nanoseconds, and the number of processes. The first round is not counted.
//!
//! WHO is `session`, `session-procfs`, `query` (a new one each time), `service` (a new query to the
//! service each time, for BASE only), `service-session` (the same, repeated), `sysinfo` or `procfs`
//! (the crates).

use std::process::ExitCode;

use rustix::time::{ClockId, clock_gettime};
use sysinfo::{ProcessRefreshKind, ProcessesToUpdate, System};
use taskdiag::{Base, Choice, EngineId, Groups, Members, Request, Session, Snapshot, Stat, Statm};

/// The request, for the same values that the other crates read.
fn request() -> Request {
    let groups = Groups::BASE | Groups::STAT | Groups::STATM;
    let base = Members::of(Groups::BASE, &["state", "comm", "ppid", "start_time_ns"]);
    let stat = Members::of(Groups::STAT, &["utime_ns", "stime_ns", "minflt", "majflt"]);
    let statm = Members::of(Groups::STATM, &["size_bytes", "rss_bytes"]);
    Request::all(groups).with_members(base.union(stat).union(statm))
}

/// Reads values of each process, as a caller would, and returns the number of processes.
fn look(snapshot: &Snapshot) -> usize {
    let (mut cpu, mut rss) = (0, 0);
    for task in snapshot.tasks() {
        if let (Some(base), Some(stat)) = (task.record::<Base>(), task.record::<Stat>()) {
            cpu += stat.utime_ns().unwrap_or(0) + u64::from(base.ppid().unwrap_or(0));
        }
        rss += task.record::<Statm>().and_then(|m| m.rss_bytes()).unwrap_or(0);
    }
    std::hint::black_box((cpu, rss));
    snapshot.tasks().len()
}

fn all_of_procfs() -> Result<usize, String> {
    let mut n = 0;
    let all = procfs::process::all_processes().map_err(|e| e.to_string())?;
    for process in all.flatten() {
        let (Ok(stat), Ok(statm)) = (process.stat(), process.statm()) else { continue };
        std::hint::black_box((stat.utime, statm.resident));
        n += 1;
    }
    Ok(n)
}

fn asker(who: &str) -> Result<Box<dyn FnMut() -> Result<usize, String>>, String> {
    let session = |choice| Session::open(request(), choice).map_err(|e| e.to_string());
    Ok(match who {
        "session" | "session-procfs" => {
            let procfs = who == "session-procfs";
            let choice = if procfs { Choice::Only(EngineId::Procfs) } else { Choice::Fastest };
            let mut session = session(choice)?;
            Box::new(move || session.refresh().map(look).map_err(|e| e.to_string()))
        }
        "query" => {
            let ask = || taskdiag::query_with(&request(), Choice::Fastest);
            Box::new(move || ask().map(|s| look(&s)).map_err(|e| e.to_string()))
        }
        "service" => {
            let ask = || {
                taskdiag::query_with(&Request::all(Groups::BASE), Choice::Only(EngineId::Service))
            };
            Box::new(move || ask().map(|s| look(&s)).map_err(|e| e.to_string()))
        }
        "service-session" => {
            let choice = Choice::Only(EngineId::Service);
            let mut session =
                Session::open(Request::all(Groups::BASE), choice).map_err(|e| e.to_string())?;
            Box::new(move || session.refresh().map(look).map_err(|e| e.to_string()))
        }
        "sysinfo" => {
            let mut system = System::new();
            Box::new(move || {
                let kind = ProcessRefreshKind::nothing().with_cpu().with_memory().without_tasks();
                system.refresh_processes_specifics(ProcessesToUpdate::All, true, kind);
                Ok(system.processes().len())
            })
        }
        "procfs" => Box::new(all_of_procfs),
        _ => return Err(format!("nobody is called {who}")),
    })
}

fn cpu_ns() -> i64 {
    let t = clock_gettime(ClockId::ProcessCPUTime);
    t.tv_sec * 1_000_000_000 + t.tv_nsec
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (Some(who), Some(rounds)) = (args.first(), args.get(1).and_then(|n| n.parse().ok())) else {
        eprintln!(
            "usage: refresh session|session-procfs|query|service|service-session|sysinfo|procfs ROUNDS"
        );
        return ExitCode::from(2);
    };
    let run = || -> Result<(i64, usize), String> {
        let mut ask = asker(who)?;
        let mut processes = ask()?;
        let mut times = Vec::with_capacity(rounds);
        for _ in 0..rounds {
            let begin = cpu_ns();
            processes = ask()?;
            times.push(cpu_ns() - begin);
        }
        times.sort_unstable();
        let median = times.get(rounds / 2).copied().ok_or("no round")?;
        Ok((median, processes))
    };
    match run() {
        Ok((median, processes)) => {
            println!("{median} {processes}");
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("refresh: {e}");
            ExitCode::FAILURE
        }
    }
}
