//! An answer has a bound, whatever the processes do. Any user can have hundreds of processes with
//! megabytes of arguments each, because fork() shares them. No engine and no face uses as much
//! memory as all these arguments together, the arguments of other users stay complete, and the
//! lengths of cut arguments are known.

use std::fs::File;
use std::sync::{Mutex, MutexGuard, PoisonError};

use taskdiag::engine::procfs::Procfs;
use taskdiag::{
    ByteLimits, Choice, Engine, EngineId, Fd, Group, Groups, PathKind, Processes, Reason, Request,
    Snapshot, Strategy, Vma, query_each,
};
use taskdiag_tests::answer::engines_with;
use taskdiag_tests::{Ended, Mktask, Source, cli, engines, is_root};

const MIB: usize = 1 << 20;
/// The crowd: the number of processes, and the bytes of the arguments that they share.
const CROWD: usize = 200;
const LONG: usize = 6_000_000;

/// Several crowds at a time would be more than one test expects of the machine.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A crowd of processes of another user than that of the test, if the test may start it.
fn crowd(test: &str) -> Option<Mktask> {
    let uid = if is_root() { "54321" } else { "" };
    let (long, count) = (LONG.to_string(), CROWD.to_string());
    let mut args = vec!["crowd", &long, &count];
    args.extend(Some(uid).filter(|u| !u.is_empty()));
    Mktask::or_skip(test, &args)
}

fn ask(source: Source, req: &Request) -> Snapshot {
    source.query(req).unwrap_or_else(|e| panic!("{source:?}: {e}"))
}

/// The engines that find command lines themselves.
fn sources() -> impl Iterator<Item = Source> {
    engines().iter().copied().filter(|s| s.finds(taskdiag::Group::Cmdline))
}

#[test]
fn arguments_of_a_crowd_do_not_fill_an_answer_and_arguments_of_others_stay_whole() {
    let _alone = alone();
    let test = "arguments_of_a_crowd_do_not_fill_an_answer_and_arguments_of_others_stay_whole";
    let Some(m) = crowd(test) else { return };
    // This one begins later, so that the crowd comes first in the list.
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
    let Some(m) = Mktask::or_skip(test, &["crowd", "300000", "3"]) else { return };
    let length = |args: &[&str]| {
        let ran = cli::Sandbox::new().env("COLUMNS", "400000").run(args);
        // There may also be processes of another test.
        let mut lines = ran.stdout.lines().filter_map(|l| l.trim_start().split_once(' '));
        let pid = m.pid().to_string();
        let args = lines.find(|l| l.0 == pid).map(|l| l.1.trim_start().len());
        (args.unwrap_or_else(|| panic!("{ran}")), ran)
    };
    let (cut, ran) = length(&["ps", "-eo", "pid,args", "-ww"]);
    // Any user may have a process with long arguments, so cut arguments are no failure for a list
    // of all processes.
    assert_eq!((cut, ran.code), (131_072, Some(0)), "{ran}");
    let (_, strict) = length(&["ps", "-eo", "pid,args", "-ww", "--strict"]);
    assert_eq!(strict.code, Some(3), "{strict}");
    let named = ["ps", "-p", &m.pid().to_string(), "-o", "pid,args", "-ww", "--args", "1K"];
    assert_eq!(length(&named).1.code, Some(3), "the process was named");
    assert!(ran.stderr.contains("cut short") && ran.stderr.contains("--args all"), "{ran}");
    let whole = m.num::<usize>("len") - 1;
    for args in [
        &["ps", "-eo", "pid,args", "-ww", "--args", "all"][..],
        &["ps", "-p", &m.pid().to_string(), "-o", "pid,args", "-ww"],
    ] {
        let (len, ran) = length(args);
        assert_eq!((len, ran.code), (whole, Some(0)), "{args:?}: {}", ran.stderr);
    }
    assert_eq!(length(&["ps", "-eo", "pid,args", "-ww", "--args", "1K"]).0, 1024);
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

#[test]
fn lists_of_a_crowd_end_early_and_those_of_others_are_whole() {
    let _alone = alone();
    let test = "lists_of_a_crowd_end_early_and_those_of_others_are_whole";
    let Some(m) = crowd(test) else { return };
    let args = ["crowd", "1000", "1", "54322"];
    let Some(other) = Mktask::or_skip(test, &args[..if is_root() { 4 } else { 3 }]) else { return };
    for source in engines_with(Group::Vma) {
        let ask = |bytes: usize| {
            let answer = ask(
                source,
                &Request::all(Groups::BASE | Groups::VMA).with_all_list_bytes(bytes as u64),
            );
            let count = |pid| {
                let task = answer.task(pid).unwrap_or_else(|| panic!("{source}: {pid}"));
                (task.list::<Vma>().map_or(0, Iterator::count), task.reason(Group::Vma))
            };
            let crowd: Vec<_> = m.list("crowd").into_iter().map(count).collect();
            (crowd, count(other.pid()), answer.stream().done().truncated)
        };
        let (whole, of_other, truncated) = ask(1 << 30);
        assert_eq!(truncated, 0, "{source}");
        assert!(whole.iter().all(|(n, why)| *n > 16 && why.is_none()), "{source}: {whole:?}");
        if !is_root() {
            continue;
        }
        // The lists of the crowd alone need more than this limit, besides the least size of each
        // list.
        let (cut, still, truncated) = ask(CROWD * (whole[0].0 - 16) * size_of::<Vma>() / 2);
        assert_eq!(of_other, still, "{source}");
        let ended = cut.iter().filter(|c| **c == (16, Some(Reason::Truncated))).count();
        assert!((CROWD / 4..=CROWD).contains(&ended), "{source}: {ended}");
        assert!(truncated as usize >= ended, "{source}: {truncated}");
    }
    // With almost no room, each list has its least size.
    for source in engines_with(Group::Vma) {
        let req = Request::all(Groups::BASE | Groups::VMA).with_all_list_bytes(1);
        let answer = ask(source, &req);
        assert!(answer.stream().done().truncated >= CROWD as u64, "{source}");
        let mut more = 0;
        for pid in m.list("crowd") {
            let task = answer.task(pid).unwrap_or_else(|| panic!("{source}: {pid}"));
            let n = task.list::<Vma>().map_or(0, Iterator::count);
            assert_eq!(task.reason(Group::Vma), Some(Reason::Truncated), "{source}");
            assert!(n == 16 || n == 17, "{source}: {n}");
            more += n - 16;
        }
        // The one byte of room admits one more entry, in whichever list asks first.
        assert!(more <= 1, "{source}: {more}");
    }
}

/// The answer has each name once, so names that processes share count once.
#[test]
fn lists_with_the_same_long_names_are_whole() {
    const FILES: usize = 40;
    const OTHERS: usize = 30;
    let _alone = alone();
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().to_str().expect("a plain path");
    let args = ["long-names", path, &FILES.to_string(), &OTHERS.to_string()];
    let Some(m) = Mktask::or_skip("lists_with_the_same_long_names_are_whole", &args) else {
        return;
    };
    for group in [Group::Vma, Group::Fd] {
        for source in engines_with(group) {
            // All lists with all their names would have 5 MB.
            let req = Request::all(Groups::BASE | group.into()).with_all_list_bytes(6 << 20);
            let answer = ask(source, &req);
            for pid in m.list("crowd") {
                let task = answer.task(pid).unwrap_or_else(|| panic!("{source}: {pid}"));
                let n = match group {
                    Group::Vma => task.list::<Vma>().map_or(0, Iterator::count),
                    _ => task.list::<Fd>().map_or(0, Iterator::count),
                };
                assert!(n >= FILES && task.reason(group).is_none(), "{source}: {group:?} {n}");
            }
        }
    }
}

/// A long list can be requested in parts, so that only one part is in memory at a time.
#[test]
fn parts_of_a_list_have_each_process_once() {
    let threads = Mktask::start(&["threads", "20"]).expect("it is allowed");
    let sleep = |_| std::process::Command::new("sleep").arg("60").spawn().expect("there is sleep");
    let crowd: Vec<Ended> = (0..5).map(sleep).map(Ended).collect();
    let all: Vec<u32> = crowd.iter().map(|c| c.0.id()).chain([threads.pid()]).collect();
    let middle = all[2];
    type Run = Box<dyn FnMut(&Request) -> Snapshot>;
    let parsed = |a: taskdiag::Answer| Snapshot::parse(a.stream).expect("a stream");
    let mut runs: Vec<(String, Run)> = Vec::new();
    for source in engines().iter().copied() {
        if matches!(source.id(), EngineId::Bpf | EngineId::Procfs) {
            runs.push((source.to_string(), Box::new(move |r| ask(source, r))));
        }
    }
    if runs.iter().any(|r| r.0 == "bpf") {
        let mut kept = taskdiag::engine::bpf::Bpf::untried().keeping();
        runs.push(("kept".into(), Box::new(move |r| parsed(kept.run(r).expect("answered")))));
        let mut legacy = taskdiag::engine::bpf::Bpf::legacy();
        runs.push(("legacy".into(), Box::new(move |r| parsed(legacy.run(r).expect("answered")))));
    }
    let parts = [(0, middle - 1), (middle, middle), (middle + 1, u32::MAX)];
    for (name, run) in &mut runs {
        for request in [
            Request::all(Groups::BASE | Groups::CMDLINE),
            Request::all_threads(Groups::BASE | Groups::STAT),
            Request::children(std::process::id(), Groups::BASE),
        ] {
            // The process with threads is a child of another process.
            let is_of_children = request.strategy == Strategy::Children;
            let ours = if is_of_children { &all[..5] } else { &all[..] };
            let whole = run(&request);
            let count = |answer: &Snapshot, pid| answer.tasks().filter(|t| t.tgid() == pid).count();
            let mut found = vec![0; ours.len()];
            for (first, last) in parts {
                let part = Processes { first, last };
                let answer = run(&request.clone().with_processes(part));
                let strange: Vec<u32> =
                    answer.tasks().map(|t| t.tgid()).filter(|t| !part.has(*t)).collect();
                assert_eq!(strange, [0; 0], "{name} {request:?} {part:?}");
                let done = answer.stream().done();
                assert_eq!(done.tasks, answer.tasks().len() as u64, "{name} {request:?}");
                for (n, pid) in ours.iter().enumerate() {
                    found[n] += count(&answer, *pid);
                }
            }
            let want: Vec<usize> = ours.iter().map(|pid| count(&whole, *pid)).collect();
            assert!(want.iter().all(|n| *n > 0), "{name} {request:?}: {want:?}");
            assert_eq!(found, want, "{name} {request:?}");
        }
    }
    assert!(!runs.is_empty());
}

#[test]
fn many_open_files_and_long_paths_have_a_bound() {
    let _alone = alone();
    let files: Vec<File> = (0..900).map(|_| File::open("/dev/null").expect("it opens")).collect();
    let me = std::process::id();
    for source in engines_with(Group::Fd) {
        let req = Request::one(me, Groups::BASE | Groups::FD);
        let count = |req: &Request| {
            let answer = ask(source, req);
            let task = answer.tasks().next().expect("I live");
            (task.list::<Fd>().map_or(0, Iterator::count), task.reason(Group::Fd))
        };
        let (all, why) = count(&req);
        assert!(all >= files.len() && why.is_none(), "{source}: {all} {why:?}");
        let (some, why) = count(&req.with_all_list_bytes(40_000));
        assert!((100..600).contains(&some), "{source}: {some}");
        assert_eq!(why, Some(Reason::Truncated), "{source}");
    }
    let dir = tempfile::tempdir().expect("a directory");
    let deep = (0..10)
        .fold(dir.path().to_owned(), |at, _| at.join("a name of forty characters, about as usual"));
    std::fs::create_dir_all(&deep).expect("it can be made");
    let child = std::process::Command::new("sleep").arg("60").current_dir(&deep).spawn();
    let child = Ended(child.expect("there is sleep"));
    for source in engines_with(Group::Paths) {
        let req = Request::one(child.0.id(), Groups::BASE | Groups::PATHS);
        for (room, len) in [(1 << 20, deep.as_os_str().len()), (0, 128)] {
            let answer = ask(source, &req.clone().with_all_list_bytes(room));
            let task = answer.tasks().next().expect("it lives");
            let cwd = task.path(PathKind::Cwd).expect("it has one");
            assert_eq!((cwd.data.len(), cwd.total), (len, deep.as_os_str().len()), "{source}");
            assert_eq!(cwd.is_cut(), room == 0, "{source}");
            assert_eq!(answer.stream().done().truncated, u64::from(room == 0), "{source}");
        }
    }
}
