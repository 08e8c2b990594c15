//! The floor: the cost of a BPF program that walks all processes and only counts them, compared
//! with a request for BASE. Both are also run for one process, which is nearly only the time to
//! load, so that the walks can be compared without it. (The two take different times to load,
//! because the verifier removes the code that counting does not use.) Prints `name=nanoseconds`
//! words, each the median of some runs.

use std::time::Instant;

use taskdiag::engine::bpf::Bpf;
use taskdiag::{Engine, Error, Groups, Request, Strategy};

const RUNS: usize = 15;

fn median_ns(mut f: impl FnMut() -> Result<u64, Error>) -> Result<(u128, u64), Error> {
    let mut times = Vec::with_capacity(RUNS);
    let mut tasks = 0;
    for _ in 0..RUNS {
        let begin = Instant::now();
        tasks = f()?;
        times.push(begin.elapsed().as_nanos());
    }
    times.sort_unstable();
    Ok((times[RUNS / 2], tasks))
}

fn main() -> Result<(), Error> {
    let mut engine = Bpf::new()?;
    let bytes_of = |engine: &mut Bpf, request: &Request| -> Result<u64, Error> {
        Ok(engine.run(request)?.stream.as_ref().len() as u64)
    };
    let me = |groups| Request::one(std::process::id(), groups);
    let (count_load, _) = median_ns(|| bytes_of(&mut engine, &me(Groups::NONE)))?;
    let (base_load, _) = median_ns(|| bytes_of(&mut engine, &me(Groups::BASE)))?;
    let (count, tasks) = median_ns(|| engine.count(Strategy::All))?;
    let (base, _) = median_ns(|| bytes_of(&mut engine, &Request::all(Groups::BASE)))?;
    println!(
        "tasks={tasks} count={count} count_load={count_load} base={base} base_load={base_load}"
    );
    Ok(())
}
