//! The CPU time of lists of processes with and without names of containers: `names ROUNDS [DIR]`.
//!
//! Each set of columns has a session of its own. A round asks them in turn, and writes all values
//! as text. The first round loads the programs and reads the files of the runtimes below DIR, and
//! does not count. Prints the median and the least time of an answer in us, and the engine's part
//! of it. The variable `ONLY` names one of the sets, for a profile of it: without, ids, names.
//!
//! The processes and their control groups must be there before, for example 50 of `bench/load.c`
//! in each of 200 groups with the names of containers.

use std::time::Duration;

use taskdiag::engine::EngineId;
use taskdiag::field::{self, Row, TASKS};
use taskdiag::view::{Plan, Query};
use taskdiag::{Choice, Session};

/// The columns that `ps` shows.
const PLAIN: &str = "user,pid,ppid,s,nlwp,time,rss,start,args";

fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

struct Set {
    what: &'static str,
    fields: Vec<&'static field::Field>,
    query: Query,
    session: Session,
    times: Vec<[Duration; 2]>,
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let rounds: usize = args.first().and_then(|n| n.parse().ok()).expect("names ROUNDS [DIR]");
    if let Some(dir) = args.get(1) {
        taskdiag::containers::set_host_root(dir);
    }
    let only = std::env::var("ONLY").ok();
    let sets = [("without", ""), ("ids", ",container"), ("names", ",container_name")];
    let mut sets: Vec<Set> = sets
        .into_iter()
        .filter(|(what, _)| only.as_deref().is_none_or(|only| only == *what))
        .map(|(what, more)| {
            let columns = format!("{PLAIN}{more}");
            let fields: Vec<_> =
                columns.split(',').map(|n| TASKS.find(n).expect("a column").field).collect();
            let query = Query::new(&TASKS, fields.iter().copied());
            let Plan::One(request) = query.plan() else { panic!("one request") };
            let session =
                Session::open(request, Choice::Only(EngineId::Bpf)).expect("it can be asked");
            Set { what, fields, query, session, times: Vec::new() }
        })
        .collect();
    let mut out = Vec::new();
    for round in 0..=rounds {
        for set in &mut sets {
            let begin = cpu_time();
            let snapshot = set.session.refresh().expect("an answer");
            let engine = cpu_time() - begin;
            let view = set.query.view(snapshot);
            out.clear();
            for at in view.tasks() {
                let row = Row::new(snapshot.stream().get(*at as usize).expect("a task"));
                for one in &set.fields {
                    let value = (one.get)(view.cx(), &row);
                    field::text(&mut out, view.cx(), one.text, Some(&row), &value);
                    out.push(b' ');
                }
                out.push(b'\n');
            }
            if round > 0 {
                set.times.push([cpu_time() - begin, engine]);
            }
        }
    }
    for set in &mut sets {
        let part = |of: usize| {
            let mut all: Vec<Duration> = set.times.iter().map(|t| t[of]).collect();
            all.sort();
            (all[all.len() / 2].as_micros(), all[0].as_micros())
        };
        let ((median, least), (of_engine, least_of_engine)) = (part(0), part(1));
        let what = set.what;
        println!(
            "{what}\t{median} us\t{least} at least\tengine {of_engine}\t{least_of_engine} at least"
        );
    }
}
