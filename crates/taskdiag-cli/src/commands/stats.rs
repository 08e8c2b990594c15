//! `--stats`: who answered, and at what cost.

use std::time::{Duration, Instant};

use taskdiag::wire::{Groups, Info};
use taskdiag::{EngineId, Snapshot};

fn ms(d: Duration) -> String {
    format!("{:.2} ms", d.as_secs_f64() * 1e3)
}

/// Print to standard error.
pub fn print(snapshot: &Snapshot, shown: usize, begin: Instant, asked: Instant) {
    let stream = snapshot.stream();
    for s in snapshot.served() {
        eprintln!(
            "engine {}: {} in {}, {} syscalls ({})",
            s.engine,
            s.groups,
            ms(s.cost.wall),
            s.cost.syscalls,
            s.why
        );
    }
    if snapshot.served().is_empty() {
        for (engine, groups) in engines(stream.info()) {
            eprintln!("engine {engine}: {groups} (when it was saved)");
        }
    }
    let d = stream.done();
    eprintln!(
        "tasks {} ({shown} shown), vanished {}, denied {}, blocked {}, truncated {}; {} bytes",
        d.tasks,
        d.vanished,
        d.denied,
        d.blocked,
        d.truncated,
        stream.bytes().len()
    );
    let (answer, output) = (asked - begin, asked.elapsed());
    eprintln!("answer {}, output {}", ms(answer), ms(output));
}

fn engines(info: &Info) -> impl Iterator<Item = (EngineId, Groups)> {
    EngineId::ALL
        .into_iter()
        .map(|e| {
            let bits = match e {
                EngineId::Kernel => info.kernel_groups,
                EngineId::Bpf => info.bpf_groups,
                EngineId::Procfs => info.procfs_groups,
            };
            (e, Groups::from_bits(bits))
        })
        .filter(|(_, g)| !g.is_empty())
}
