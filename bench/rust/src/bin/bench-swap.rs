//! The cost to find out how much of a process is swapped out: by the group SWAP, and by smaps, for
//! which the kernel walks over all pages. `bench-swap PID RUNS` prints `name=number` words: the
//! nanoseconds of all runs of each, by the clock and in CPU time, and the results in bytes. All
//! runs are in one process, because the start of one would hide the difference.

use std::time::Instant;

use taskdiag::{Error, Groups, Request, Swap};

fn main() -> Result<(), Error> {
    let mut args = std::env::args().skip(1);
    let mut next = || args.next().and_then(|a| a.parse::<u32>().ok());
    let (Some(pid), Some(runs)) = (next(), next()) else {
        eprintln!("usage: bench-swap PID RUNS");
        std::process::exit(2);
    };
    let mut swap = Swap::new();
    let begin = Begin::now();
    for _ in 0..runs {
        let snapshot = taskdiag::query(&Request::one(pid, Groups::SWAP))?;
        let record = snapshot.tasks().next().and_then(|t| t.record::<Swap>().map(|r| *r.raw()));
        swap = record.unwrap_or_default();
    }
    let (ours, ours_cpu) = begin.elapsed();
    let path = format!("/proc/{pid}/smaps");
    let read = || std::fs::read_to_string(&path).map_err(|e| Error::io("reading smaps", e));
    let begin = Begin::now();
    let mut text = String::new();
    for _ in 0..runs {
        text = read()?;
    }
    let (smaps, smaps_cpu) = begin.elapsed();
    let kib = |l: &str| l.strip_prefix("Swap:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok();
    let walked: u64 = text.lines().filter_map(kib).sum();
    println!(
        "swap_ns={ours} swap_cpu_ns={ours_cpu} smaps_ns={smaps} smaps_cpu_ns={smaps_cpu} anon={} shmem={} private_shmem={} smaps={}",
        swap.anon_bytes,
        swap.shmem_bytes,
        swap.private_shmem_bytes,
        walked * 1024
    );
    Ok(())
}

/// A time by the clock, and the CPU time of all threads at that moment.
struct Begin(Instant, u128);

impl Begin {
    fn now() -> Begin {
        Begin(Instant::now(), cpu_ns())
    }
    /// Nanoseconds since then.
    fn elapsed(&self) -> (u128, u128) {
        (self.0.elapsed().as_nanos(), cpu_ns() - self.1)
    }
}

fn cpu_ns() -> u128 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    t.tv_sec as u128 * 1_000_000_000 + t.tv_nsec as u128
}
