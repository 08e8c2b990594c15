//! `--stats`: the engines that answered, and their cost.

use std::time::{Duration, Instant};

use taskdiag::Snapshot;
use taskdiag::engine::auto;

use crate::exit::say;

fn ms(d: Duration) -> String {
    format!("{:.2} ms", d.as_secs_f64() * 1e3)
}

/// Print to standard error.
pub fn print(snapshot: &Snapshot, shown: usize, begin: Instant, asked: Instant) {
    let stream = snapshot.stream();
    for s in snapshot.served() {
        say(format_args!(
            "engine {}: {} in {}, {} syscalls ({})",
            s.engine,
            s.groups,
            ms(s.cost.wall),
            s.cost.syscalls,
            s.why
        ));
    }
    if snapshot.served().is_empty() {
        for (engine, groups) in auto::served_by(stream.info()) {
            say(format_args!("engine {engine}: {groups} (when it was saved)"));
        }
    }
    let d = stream.done();
    say(format_args!(
        "tasks {} ({shown} shown), vanished {}, denied {}, blocked {}, truncated {}, over budget {}; {} bytes",
        d.tasks,
        d.vanished,
        d.denied,
        d.blocked,
        d.truncated,
        d.over_budget,
        stream.bytes().len()
    ));
    let (answer, output) = (asked - begin, asked.elapsed());
    say(format_args!("answer {}, output {}", ms(answer), ms(output)));
}
