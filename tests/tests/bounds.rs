//! An answer has a bound, whatever the processes do. Any user can have hundreds of processes with megabytes of arguments
//! each, because fork() shares them. No engine and no face takes the memory that they have together, the arguments of
//! everybody else stay whole, and the lengths of those that were cut are known.

use std::sync::{Mutex, MutexGuard, PoisonError};

use taskdiag::engine::procfs::Procfs;
use taskdiag::{
    ByteLimits, Choice, Engine, EngineId, Groups, Request, Snapshot, Strategy, query_each,
};
use taskdiag_tests::{Mktask, Source, cli, engines, skip};

const MIB: usize = 1 << 20;
/// The crowd: so many processes, and the bytes of the arguments that they share.
const CROWD: usize = 200;
const LONG: usize = 6_000_000;

/// Several crowds at a time would be more than one test expects of the machine.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The crowd of a user who is not the one of the test, if that may be.
fn crowd(test: &str) -> Option<Mktask> {
    let uid = if is_root() { "54321" } else { "" };
    let (long, count) = (LONG.to_string(), CROWD.to_string());
    let mut args = vec!["crowd", &long, &count];
    args.extend(Some(uid).filter(|u| !u.is_empty()));
    Mktask::start(&args).map_err(|why| skip(test, &why)).ok()
}

fn is_root() -> bool {
    // SAFETY: it takes nothing and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

fn ask(source: Source, req: &Request) -> Snapshot {
    source.query(req).unwrap_or_else(|e| panic!("{source:?}: {e}"))
}

/// The engines that find command lines themselves.
fn sources() -> impl Iterator<Item = Source> {
    engines().iter().copied().filter(|s| s.finds(taskdiag::Group::Cmdline))
}

#[test]
fn arguments_of_a_crowd_do_not_fill_an_answer_and_those_of_others_stay_whole() {
    let _alone = alone();
    let test = "arguments_of_a_crowd_do_not_fill_an_answer_and_those_of_others_stay_whole";
    let Some(m) = crowd(test) else { return };
    // Begun later, so that the crowd comes first in the list.
    let other = Mktask::start(&["cmdline", "100000"]).expect("it is allowed");
    for source in sources() {
        let answer = ask(source, &Request::all(Groups::BASE | Groups::CMDLINE));
        let mut sum = 0;
        for pid in m.list("crowd") {
            let task = answer.task(pid).unwrap_or_else(|| panic!("{source:?}: {pid}"));
            let text = task.cmdline().unwrap_or_else(|| panic!("{source:?}: {pid}"));
            assert_eq!(text.total, m.num::<usize>("len"), "{source:?}: {pid}");
            assert!(text.is_cut(), "{source:?}: {pid}");
            assert!(
                [131_072, 4096, 256].contains(&text.data.len()),
                "{source:?}: {} bytes of {pid}",
                text.data.len()
            );
            sum += text.data.len();
        }
        assert!((12 * MIB..24 * MIB).contains(&sum), "{source:?}: {sum} bytes of the crowd");
        let truncated = answer.stream().done().truncated;
        assert!(truncated > CROWD as u64, "{source:?}: {truncated} are counted");
        assert!(answer.stream().bytes().len() < 40 * MIB, "{source:?}");
        if is_root() {
            let text = answer.task(other.pid()).expect("it lives");
            let text = text.cmdline().expect("it has some");
            assert_eq!((text.data.len(), text.is_cut()), (100_000, false), "{source:?}");
        }
    }
}

#[test]
fn a_named_process_of_a_crowd_has_all_its_arguments() {
    let _alone = alone();
    let Some(m) = crowd("a_named_process_of_a_crowd_has_all_its_arguments") else { return };
    let pids = m.list("crowd");
    for source in sources() {
        let answer = ask(source, &Request::one(pids[0], Groups::CMDLINE));
        let task = answer.tasks().next().expect("it lives");
        let text = task.cmdline().expect("it has some");
        assert_eq!((text.data.len(), text.is_cut()), (text.total, false), "{source:?}");
        assert_eq!(text.total, m.num::<usize>("len"), "{source:?}");
    }
    // Many of them share the room of an answer.
    let each: Vec<Request> = pids.iter().map(|p| Request::one(*p, Groups::CMDLINE)).collect();
    let (answer, nobody) = query_each(&each, Choice::Auto).expect("it is answered");
    assert_eq!((nobody, answer.tasks().len()), (vec![], CROWD));
    assert!(answer.stream().bytes().len() < 40 * MIB);
}

#[test]
fn all_engines_cut_at_the_same_byte() {
    let _alone = alone();
    let mut compared = 0;
    for args in [
        &["cmdline", "200000"][..],
        &["cmdline", "5000"],
        &["cmdline-rewritten"],
        &["cmdline-titled"],
    ] {
        let m = Mktask::start(args).expect("it is allowed");
        for most in [0, 1, 8, 255, 256, 4095, 4096, 4097, 32_768, 65_536, 131_072, 199_999, 200_000]
        {
            let ask = |source: Source, strategy| {
                let pid = if strategy == Strategy::One { m.pid() } else { 0 };
                let req = Request::new(strategy, pid, Groups::BASE | Groups::CMDLINE);
                let answer = ask(source, &req.with_text_bytes(most));
                let task = answer.task(m.pid()).expect("it lives");
                let text = task.cmdline().expect("it has some");
                (text.data.to_vec(), text.flags, text.total)
            };
            for strategy in [Strategy::One, Strategy::All] {
                let want = ask(Source::Engine(EngineId::Procfs), strategy);
                assert!(want.0.len() <= most as usize, "{want:?}");
                assert_eq!(want.0.len() < want.2, want.1 & 1 == 1, "{args:?} at {most}");
                for source in sources() {
                    let got = ask(source, strategy);
                    assert!(
                        got == want,
                        "{source:?} {args:?} at {most}: {} and {} bytes, {:?} and {:?}",
                        got.0.len(),
                        want.0.len(),
                        (got.1, got.2),
                        (want.1, want.2)
                    );
                    compared += 1;
                }
            }
        }
    }
    assert!(compared > 100);
}

#[test]
fn the_program_says_what_was_cut_and_reads_it_on_request() {
    let _alone = alone();
    let test = "the_program_says_what_was_cut_and_reads_it_on_request";
    let m = match Mktask::start(&["crowd", "300000", "3"]) {
        Ok(m) => m,
        Err(why) => return skip(test, &why),
    };
    let length = |args: &[&str]| {
        let ran = cli::Sandbox::new().env("COLUMNS", "400000").run(args);
        let line = ran.stdout.lines().find(|l| l.contains("crowd aaa") || l.contains("crowd bbb"));
        (line.unwrap_or_else(|| panic!("{ran}")).len(), ran)
    };
    let (cut, ran) = length(&["ps", "-eo", "args", "-ww"]);
    assert_eq!((cut, ran.code), (131_072, Some(3)));
    assert!(ran.stderr.contains("args cut short") && ran.stderr.contains("--args all"), "{ran}");
    let whole = m.num::<usize>("len") - 1;
    for args in [
        &["ps", "-eo", "args", "-ww", "--args", "all"][..],
        &["ps", "-p", &m.pid().to_string(), "-o", "args", "-ww"],
    ] {
        let (len, ran) = length(args);
        assert_eq!((len, ran.code), (whole, Some(0)), "{args:?}: {}", ran.stderr);
    }
    assert_eq!(length(&["ps", "-eo", "args", "-ww", "--args", "1K"]).0, 1024);
}

#[test]
fn a_text_of_a_task_that_may_not_be_traced_has_its_length() {
    let m = Mktask::start(&["cmdline", "200000"]).expect("it is allowed");
    // Without BASE the engine does not read the file that has the length.
    let req = Request::all(Groups::CMDLINE).with_limits(ByteLimits::LIST);
    let answer = Procfs::new().and_then(|mut e| e.run(&req)).expect("there is /proc");
    let answer = Snapshot::parse(answer.stream).expect("a stream");
    let task = answer.task(m.pid()).expect("it lives");
    let text = task.cmdline().expect("it has some");
    assert_eq!((text.data.len(), text.total), (131_072, 200_000));
}
