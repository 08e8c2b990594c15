//! Asks for tasks with one of the BPF programs, over and over, during the storm of
//! `tests/vm/storm`, and checks the answers. `tests/vm/lab storm` runs it in virtual machines.
//!
//! The exit code is 1 if a value is wrong, a sentinel is missing, an answer is malformed or has a
//! task twice, or if nothing was compared. It is 2 if an argument is wrong.

use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::{Duration, Instant};

use taskdiag::engine::bpf::Bpf;
use taskdiag::{Engine, Error, Groups, Request, Snapshot, Strategy};
use taskdiag_tests::Source;
use taskdiag_tests::answer::indexed;
use taskdiag_tests::storm::{Found, Truth};

const USAGE: &str = "usage: storm_reader --base DIR --program lite|more|snapshot|legacy \
                     [--seconds N] [--seed N] [--processor N] [--ready FILE]";
/// How long the storm may take to begin.
const BEGIN: Duration = Duration::from_secs(300);
/// How many answers a program gives if it is kept loaded.
const KEPT: u32 = 40;
/// How many wrong values are shown.
const SHOWN: usize = 20;

/// A BPF program.
#[derive(Clone, Copy, PartialEq)]
enum Program {
    Lite,
    More,
    Snapshot,
    Legacy,
}

impl FromStr for Program {
    type Err = String;
    fn from_str(name: &str) -> Result<Program, String> {
        match name {
            "lite" => Ok(Program::Lite),
            "more" => Ok(Program::More),
            "snapshot" => Ok(Program::Snapshot),
            "legacy" => Ok(Program::Legacy),
            _ => Err(format!("no program is called {name}")),
        }
    }
}

impl Program {
    /// A choice of groups that loads this program. The program for older kernels answers any
    /// groups.
    fn groups(self, rnd: &mut Random) -> Groups {
        let (all, one_of) = match self {
            // The groups decide which program is loaded, see engine/bpf/mod.rs.
            Program::Lite => (Groups::BPF_LITE, Groups::BPF_LITE),
            Program::More => (Groups::BPF_LITE | Groups::BPF_MORE, Groups::BPF_MORE),
            Program::Snapshot => (Groups::BPF, Groups::BPF_RARE),
            Program::Legacy => (Groups::BPF, Groups::BPF),
        };
        // BASE has the command name, by which a child of a sentinel is recognised.
        let mut groups = Groups::BASE | rnd.one(one_of.iter()).into();
        // All groups are rarely asked for, because most of the time goes to the load of the
        // program, which takes longer with more groups.
        if rnd.below(12) == 0 {
            return all;
        }
        for g in all.iter() {
            if rnd.below(6) == 0 {
                groups |= g.into();
            }
        }
        groups
    }
}

/// Pseudo-random numbers, which are the same for the same seed (xorshift64*).
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) % n
    }
    fn one<T>(&mut self, of: impl Iterator<Item = T>) -> T {
        let mut all: Vec<T> = of.collect();
        let i = self.below(all.len() as u64) as usize;
        all.swap_remove(i)
    }
}

struct Options {
    base: PathBuf,
    program: Program,
    seconds: u64,
    seed: u64,
    /// The only processor to run on.
    processor: Option<usize>,
    /// A file that is created when the first program is loaded, so that the storm may begin.
    ready: Option<PathBuf>,
}

fn options() -> Result<Options, String> {
    let (mut base, mut program, mut seconds, mut seed, mut processor) = (None, None, 10, 1, None);
    let mut ready = None;
    let mut args = std::env::args().skip(1);
    while let Some(name) = args.next() {
        let value = args.next().ok_or_else(|| format!("{name} needs a value"))?;
        let number = || value.parse().map_err(|_| format!("{name}: {value} is not a number"));
        match name.as_str() {
            "--base" => base = Some(PathBuf::from(&value)),
            "--program" => program = Some(value.parse()?),
            "--seconds" => seconds = number()?,
            "--seed" => seed = number()?,
            "--ready" => ready = Some(PathBuf::from(&value)),
            "--processor" => processor = Some(number()? as usize),
            _ => return Err(format!("there is no option {name}")),
        }
    }
    let (Some(base), Some(program)) = (base, program) else {
        return Err("--base and --program are needed".into());
    };
    Ok(Options { base, program, seconds, seed, processor, ready })
}

/// Run on this processor only.
///
/// # Panics
/// If there is no such processor.
fn stay_on(processor: usize) {
    // SAFETY: a set of processors is plain bits, and all zeros is the empty set. CPU_SET writes
    // only within it, and the system call reads a set of the given size.
    let done = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        assert!(
            processor < libc::CPU_SETSIZE as usize,
            "--processor {processor}: there are fewer processors"
        );
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &set)
    };
    assert_eq!(done, 0, "--processor {processor}: {}", std::io::Error::last_os_error());
}

/// The strategy and pid of a request, and the processes that must be in its answer.
fn whom(truth: &Truth, rnd: &mut Random) -> (Strategy, u32, Vec<u32>) {
    let all: Vec<u32> = truth.sentinels.keys().copied().collect();
    let one = rnd.one(all.iter().copied());
    match rnd.below(8) {
        0..=2 => (Strategy::All, 0, all),
        3 => (Strategy::AllThread, 0, all),
        4 => (Strategy::Children, truth.parent(), all),
        // A task among the many that come and go. It may not exist.
        5 => (Strategy::One, one + 20 + rnd.below(200) as u32, Vec::new()),
        6 => (Strategy::One, one, vec![one]),
        _ => (Strategy::Thread, one, vec![one]),
    }
}

/// An engine and its request.
struct Asker {
    engine: Bpf,
    source: Source,
    req: Request,
    /// The number of requests.
    times: u32,
}

impl Asker {
    fn new(o: &Options, rnd: &mut Random, strategy: Strategy, pid: u32) -> Asker {
        let (engine, source) = match o.program {
            Program::Legacy => (Bpf::legacy(), Source::LegacyBpf),
            // A list of so few tasks would not look ahead, and a walk over them would not lose its
            // place.
            _ => match rnd.below(8) {
                0 => (Bpf::untried(), Source::KeptBpf),
                1 => (Bpf::untried().forgetful(), Source::KeptBpf),
                2 => (Bpf::untried().looking_ahead().forgetful(), Source::KeptBpf),
                _ => (Bpf::untried().looking_ahead(), Source::KeptBpf),
            },
        };
        // Under emulation the load of a program takes a hundred times as long as an answer.
        let times = if rnd.below(4) == 0 { 1 } else { KEPT };
        let engine = if times > 1 { engine.keeping() } else { engine };
        let req = Request::new(strategy, pid, o.program.groups(rnd));
        Asker { engine, source, req, times }
    }

    /// Ask once, and compare the answer with the facts of the storm. `Err` if the wrong program
    /// answered.
    fn ask(&mut self, truth: &Truth, must: &[u32]) -> Result<Found, String> {
        let (mut found, strategy, source) = (Found::default(), self.req.strategy, self.source);
        match self.engine.run(&self.req).and_then(|a| Snapshot::parse(a.stream)) {
            Ok(snapshot) => truth.check(&indexed(source, strategy, snapshot), must, &mut found),
            Err(Error::NoSuchProcess(_)) if must.is_empty() => {}
            Err(e) => {
                found
                    .wrong
                    .push(format!("{strategy} of {}, {}: {e}", self.req.pid, self.req.groups));
            }
        }
        if Bpf::fell_back() && source != Source::LegacyBpf {
            return Err(
                "this kernel refused the program, and the one for older kernels was used".into()
            );
        }
        Ok(found)
    }
}

/// Ask until the time or the storm is over. Returns the number of requests.
fn ask(o: &Options, found: &mut Found) -> Result<u64, String> {
    let mut rnd = Random(o.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let strategy = if o.seed % 2 == 0 { Strategy::All } else { Strategy::AllThread };
    let mut first = Some(Asker::new(o, &mut rnd, strategy, 0));
    if let Some(Asker { engine, req, times, .. }) = &mut first {
        *times = KEPT;
        *engine = std::mem::take(engine).keeping();
        engine.run(req).map_err(|e| format!("before the storm: {e}"))?;
    }
    if let Some(ready) = &o.ready {
        std::fs::write(ready, "").map_err(|e| format!("{}: {e}", ready.display()))?;
    }
    let begin = Instant::now();
    let truth = loop {
        match Truth::read(&o.base) {
            Some(truth) => break truth,
            None if begin.elapsed() > BEGIN => {
                return Err(format!("no storm begins in {}", o.base.display()));
            }
            None => std::thread::sleep(Duration::from_millis(100)),
        }
    };
    let (begin, mut requests) = (Instant::now(), 0);
    let is_over = || begin.elapsed() >= Duration::from_secs(o.seconds);
    while !is_over() {
        let all = truth.sentinels.keys().copied().collect();
        let (mut asker, must) = match first.take() {
            Some(asker) => (asker, all),
            None => {
                let (strategy, pid, must) = whom(&truth, &mut rnd);
                (Asker::new(o, &mut rnd, strategy, pid), must)
            }
        };
        for _ in 0..asker.times {
            let asked = Instant::now();
            let now = asker.ask(&truth, &must)?;
            if Truth::read(&o.base).is_none() {
                // The storm is over, so sentinels may be missing in this answer.
                if requests == 0 {
                    let (took, req) = (asked.elapsed().as_secs(), &asker.req);
                    println!("the first answer took {took} s: {} of {}", req.strategy, req.groups);
                }
                return Ok(requests);
            }
            requests += 1;
            found.add(now);
            if found.wrong.len() >= SHOWN {
                return Ok(requests);
            }
            if is_over() {
                break;
            }
        }
    }
    Ok(requests)
}

fn main() -> ExitCode {
    let o = match options() {
        Ok(o) => o,
        Err(why) => {
            eprintln!("storm_reader: {why}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    if let Some(n) = o.processor {
        stay_on(n);
    }
    let mut found = Found::default();
    let requests = match ask(&o, &mut found) {
        Ok(n) => n,
        Err(why) => {
            println!("storm_reader: {why}");
            return ExitCode::FAILURE;
        }
    };
    found.judge();
    let compared: u64 = found.values.values().sum();
    println!(
        "{requests} requests, {} rows, {compared} values compared {:?}, missing {:?}, {} wrong",
        found.rows,
        found.values,
        found.missing,
        found.wrong.len()
    );
    for w in found.wrong.iter().take(SHOWN) {
        println!("WRONG: {w}");
    }
    if compared == 0 {
        println!("storm_reader: nothing was compared");
    }
    if found.wrong.is_empty() && compared > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
