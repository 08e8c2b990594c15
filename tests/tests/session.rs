//! Sessions: a request that is repeated with the program kept loaded, and what changed between two
//! answers.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};

use taskdiag::engine::bpf::Bpf;
use taskdiag::{Choice, Engine, EngineId, Groups, Members, Request, Session, Snapshot, Statm};
use taskdiag_tests::answer::engines_with;
use taskdiag_tests::busy::Patience;
use taskdiag_tests::{Ended, Mktask, Source, engines, skip};

fn choices() -> Vec<EngineId> {
    let ids = engines().iter().filter_map(|s| match s {
        Source::Engine(id) => Some(*id),
        _ => None,
    });
    ids.collect()
}

/// Sessions keep files of all processes open. If the tests of this file run in one process, a test
/// that counts such files runs without the others.
static SESSIONS: RwLock<()> = RwLock::new(());

#[test]
fn a_session_reports_tasks_that_began_and_ended() {
    let _others = SESSIONS.read().unwrap_or_else(PoisonError::into_inner);
    for engine in choices() {
        let groups = Groups::BASE | Groups::STAT | Groups::CMDLINE;
        let mut session =
            Session::open(Request::all(groups), Choice::Only(engine)).expect("it opens");
        assert!(session.changes().is_none() && session.snapshot().is_none());
        let first = Ended::sleep();
        let first_pid = first.id();
        session.refresh().expect("it answers");
        assert!(session.snapshot().and_then(|s| s.task(first_pid)).is_some(), "{engine}");
        let second = Ended::sleep();
        let second_pid = second.id();
        drop(first);
        session.refresh().expect("it answers again");
        let changes = session.changes().expect("two answers");
        let began: Vec<u32> = changes.began.iter().map(|t| t.pid()).collect();
        let ended: Vec<u32> = changes.ended.iter().map(|t| t.pid()).collect();
        let me = changes.stayed.iter().find(|t| t.new.pid() == std::process::id());
        drop(second);
        assert!(began.contains(&second_pid), "{engine}: {second_pid} began: {began:?}");
        assert!(ended.contains(&first_pid), "{engine}: {first_pid} ended: {ended:?}");
        assert!(!began.contains(&first_pid) && !ended.contains(&second_pid), "{engine}");
        let me = me.unwrap_or_else(|| panic!("{engine}: I stayed"));
        assert!(me.cpu_time().is_some(), "{engine}");
        assert!(changes.interval > Duration::ZERO, "{engine}");
        let unknown: Vec<u32> = changes.unknown.iter().map(|t| t.pid()).collect();
        let known = [first_pid, second_pid, std::process::id()];
        assert!(!unknown.iter().any(|pid| known.contains(pid)), "{engine}: {unknown:?}");
    }
}

#[test]
fn cpu_time_is_what_was_used() {
    let _others = SESSIONS.read().unwrap_or_else(PoisonError::into_inner);
    for engine in choices() {
        let request = Request::one(std::process::id(), Groups::STAT);
        let mut session = Session::open(request, Choice::Only(engine)).expect("it opens");
        let used = || {
            let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            // SAFETY: the call writes to a valid timespec.
            unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut t) };
            Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
        };
        // A request takes CPU time itself, and reads the value somewhere in between.
        let first = used();
        session.refresh().expect("it answers");
        let before = used();
        while used() - before < Duration::from_millis(200) {
            std::hint::spin_loop();
        }
        let least = used() - before;
        session.refresh().expect("it answers");
        let most = used() - first;
        let changes = session.changes().expect("two answers");
        let [me] = &changes.stayed[..] else { panic!("{engine}: {changes:?}") };
        let seen = me.cpu_time().expect("STAT was asked for");
        // /proc counts user and system time in ticks.
        let off = Duration::from_millis(40);
        assert!(seen + off > least, "{engine}: {seen:?}, at least {least:?}");
        assert!(seen < most + off, "{engine}: {seen:?}, at most {most:?}");
        let cpus = me.cpus(changes.interval).expect("time has passed");
        assert!(cpus > 0.0 && cpus < 64.0, "{engine}: {cpus}");
    }
}

/// The names of all files and mappings of a task, which refer to names by numbers.
fn names(snapshot: &Snapshot, pid: u32) -> (Vec<String>, Vec<String>) {
    let task = snapshot.task(pid).expect("it is there");
    let owner = |g| task.owner(g).expect("who has it is in the answer");
    let of = |number: u32| {
        let name = snapshot.stream().name(number);
        name.map_or(String::from("-"), |n| String::from_utf8_lossy(&n.data).into_owned())
    };
    let files = owner(taskdiag::Group::Fd).list::<taskdiag::Fd>().expect("files were asked for");
    let maps = owner(taskdiag::Group::Vma).list::<taskdiag::Vma>().expect("mappings, too");
    (files.map(|e| of(e.raw.name)).collect(), maps.map(|e| of(e.raw.name)).collect())
}

#[test]
fn names_and_shared_lists_are_in_each_answer() {
    if !engines_with(taskdiag::Group::Vma).contains(&Source::KeptBpf) {
        return skip("sessions with names", "the bpf engine has no mappings here");
    }
    let child = Ended::sleep();
    let pid = child.id();
    let groups = Groups::BASE | Groups::FD | Groups::VMA | Groups::PATHS | Groups::FD_COUNT;
    let mut kept = [
        Session::open(Request::all(groups), Choice::Only(EngineId::Bpf)).expect("it opens"),
        Session::open(Request::all_threads(groups), Choice::Only(EngineId::Bpf)).expect("it opens"),
        Session::open(Request::one(pid, groups), Choice::Only(EngineId::Bpf)).expect("it opens"),
    ];
    let mut seen = BTreeMap::<usize, (Vec<String>, Vec<String>)>::new();
    for round in 0..4 {
        for (i, session) in kept.iter_mut().enumerate() {
            let snapshot = session.refresh().expect("it answers");
            let now = names(snapshot, pid);
            assert_eq!(now.0[..3], ["/dev/null"; 3], "session {i}, round {round}");
            assert!(now.1.iter().any(|n| n.contains("libc") || n.contains("busybox")), "{now:?}");
            let first = seen.entry(i).or_insert_with(|| now.clone());
            assert_eq!(*first, now, "session {i}, round {round}");
        }
    }
}

#[test]
fn an_ended_process_is_left_out_and_the_session_continues() {
    let _others = SESSIONS.read().unwrap_or_else(PoisonError::into_inner);
    for engine in choices() {
        let child = Ended::sleep();
        let request = Request::one(child.id(), Groups::BASE);
        let mut session = Session::open(request, Choice::Only(engine)).expect("it opens");
        assert_eq!(session.refresh().expect("it is there").tasks().len(), 1);
        drop(child);
        for _ in 0..2 {
            let e = session.refresh().expect_err("it has ended");
            assert!(matches!(e, taskdiag::Error::NoSuchProcess(_)), "{engine}: {e}");
        }
        // The answer before the failure stays.
        assert_eq!(session.snapshot().expect("the first").tasks().len(), 1);
    }
}

#[test]
fn more_tasks_than_before_are_all_there() {
    if !engines().contains(&Source::KeptBpf) {
        return skip("sessions that grow", "the bpf engine does not work here");
    }
    let mut kept = Bpf::untried().keeping();
    let request = Request::all_threads(Groups::BASE | Groups::CMDLINE);
    let before = Snapshot::parse(kept.run(&request).expect("it answers").stream);
    let before = before.expect("it is whole").tasks().len();
    // The list of seen tasks has room for twice as many tasks as there are, plus 2,048.
    let threads = (before + 4096).to_string();
    let Some(many) = Mktask::or_skip("sessions that grow", &["threads", &threads]) else { return };
    for round in 0..3 {
        let now = Snapshot::parse(kept.run(&request).expect("it answers").stream);
        let now = now.expect("it is whole");
        let of_it = now.tasks().filter(|t| t.tgid() == many.pid()).count();
        assert!(of_it > before + 4096, "round {round}: {of_it} of {threads} threads");
    }
}

/// A thread that calls exec becomes the first one of its process, with its pid. The walk may be at
/// any task meanwhile. The walk is rarely at the wrong place: the storms of `make test-vm`, where
/// it is slower, met it once in ten minutes.
#[test]
fn a_process_that_execs_from_a_thread_is_there_once() {
    is_there_once_in_execs(Bpf::untried);
}

/// The same claim for the kernel's own walk. It takes a task by its pid, and an exec may give the
/// pid to another task before the program runs for it.
#[test]
fn a_process_that_execs_from_a_thread_is_there_once_in_a_walk_of_the_kernel() {
    is_there_once_in_execs(Bpf::legacy);
}

/// The groups that the engine lists here for a task, in many parts.
fn of_execs() -> Groups {
    let groups = Groups::BASE | Groups::STAT | Groups::PATHS | Groups::VMA | Groups::FD;
    let has_mappings = engines_with(taskdiag::Group::Vma).contains(&Source::KeptBpf);
    if has_mappings { groups } else { groups - Groups::VMA }
}

fn is_there_once_in_execs(engine: fn() -> Bpf) {
    if !engines().contains(&Source::KeptBpf) {
        return skip("exec from threads", "the bpf engine does not work here");
    }
    let Some(execs) = Mktask::or_skip("exec from threads", &["exec-for-ever"]) else { return };
    let pid = execs.pid();
    // The longer the walk stays at one of the threads, the more often the other one calls exec
    // during that time.
    let groups = of_execs();
    for (request, rounds) in [
        (Request::threads(pid, groups), 5_000),
        (Request::all_threads(groups), 300),
        (Request::all(groups), 300),
    ] {
        let mut kept = engine().keeping();
        for round in 0..rounds {
            let answer = kept.run(&request).expect("it answers");
            let answer = Snapshot::parse(answer.stream).expect("it is whole");
            let times = answer.tasks().filter(|t| t.pid() == pid).count();
            assert_eq!(times, 1, "round {round} of {:?}", request.strategy);
        }
    }
}

/// A thread that began after the request may become the first one of its process while the walk
/// reads it, and then has the start time of the process. The walk must not take it for a process
/// that began after the request: it would end there.
#[test]
fn processes_after_one_that_execs_from_a_thread_are_there() {
    if !engines().contains(&Source::KeptBpf) {
        return skip("behind exec from threads", "the bpf engine does not work here");
    }
    let Some(execs) = (0..3)
        .map(|_| Mktask::or_skip("behind exec from threads", &["exec-for-ever"]))
        .collect::<Option<Vec<_>>>()
    else {
        return;
    };
    let behind = Ended::sleep();
    let ours: Vec<u32> = execs.iter().map(Mktask::pid).chain([behind.id()]).collect();
    let groups = of_execs();
    let mut kept = Bpf::untried().keeping();
    let until = Instant::now() + Duration::from_secs(10);
    let mut answers = 0;
    // On a busy machine ten answers take longer than that.
    while Instant::now() < until || answers <= 10 {
        let answer = kept.run(&Request::all_threads(groups)).expect("it answers");
        let answer = Snapshot::parse(answer.stream).expect("it is whole");
        let lost = ours.iter().find(|pid| !answer.tasks().any(|t| t.tgid() == **pid));
        assert_eq!(lost, None, "answer {answers} of {} tasks: {ours:?}", answer.tasks().len());
        answers += 1;
    }
}

/// A process that begins while a request runs is not in the answer. Otherwise, it would be in the
/// answer twice when one of its threads calls exec while the walk rests in it, because the walk
/// could not distinguish it from a later process with the same pid.
#[test]
fn a_process_that_begins_during_a_request_is_not_there_twice() {
    if !engines().contains(&Source::KeptBpf) {
        return skip("new processes", "the bpf engine does not work here");
    }
    // Several, so that a walk over the arguments of all of them takes several runs.
    let Some(storms) = (0..3)
        .map(|_| Mktask::or_skip("new processes", &["new-programs"]))
        .collect::<Option<Vec<_>>>()
    else {
        return;
    };
    let groups = Groups::BASE | Groups::CMDLINE;
    let ours: Vec<u32> = storms.iter().map(Mktask::pid).collect();
    let mut kept = Bpf::untried().keeping();
    let until = Instant::now() + Duration::from_secs(10);
    let mut answers = 0;
    // On a busy machine ten answers take longer than that.
    while Instant::now() < until || answers <= 10 {
        let answer = kept.run(&Request::all(groups)).expect("it answers");
        let answer = Snapshot::parse(answer.stream).expect("it is whole");
        let mut pids: Vec<u32> = answer.tasks().map(|t| t.pid()).collect();
        assert!(ours.iter().all(|pid| pids.contains(pid)), "answer {answers}: {ours:?} {pids:?}");
        pids.sort_unstable();
        let twice: Vec<u32> = pids.windows(2).filter(|w| w[0] == w[1]).map(|w| w[0]).collect();
        assert!(twice.is_empty(), "answer {answers}: {twice:?}");
        answers += 1;
    }
}

/// The largest number of files that a session on procfs keeps open.
fn held_max() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call writes to a valid rlimit.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) }, 0);
    (limit.rlim_cur / 2).min(8192) as usize
}

/// How many files of these processes this process keeps open. Other processes begin and end during
/// this, so the number of all open files would prove nothing.
fn held_files(of: &[u32]) -> usize {
    let fds = std::fs::read_dir("/proc/self/fd").expect("it is mine");
    let links: BTreeSet<PathBuf> =
        fds.filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok()).collect();
    // The kernel adds " (deleted)" for a process that has ended.
    let is_held = |file: &String| {
        links.contains(Path::new(file)) || links.contains(Path::new(&format!("{file} (deleted)")))
    };
    let files = of.iter().flat_map(|pid| ["stat", "statm"].map(|f| format!("/proc/{pid}/{f}")));
    files.filter(is_held).count()
}

/// Asserts that a later answer of a session needs at most the fraction `most` of the system calls
/// of the first. A process that begins or ends during it costs more than one that stays, so a few
/// answers may cost more.
fn later_answers_cost_less(session: &mut Session, first: u64, most: f64) {
    let mut later = Vec::new();
    let mut patience = Patience::new(Duration::from_secs(5));
    while !patience.is_over() {
        let cost = session.refresh().expect("it answers").served()[0].cost.syscalls;
        if (cost as f64) < first as f64 * most {
            return;
        }
        later.push(cost);
    }
    panic!("{first} system calls, then {later:?}");
}

#[test]
fn procfs_keeps_files_open_up_to_a_limit_and_closes_files_of_dead_processes() {
    let _alone = SESSIONS.write().unwrap_or_else(PoisonError::into_inner);
    let many: Vec<Ended> = (0..40).map(|_| Ended::sleep()).collect();
    let pids: Vec<u32> = many.iter().map(Ended::id).collect();
    let request = Request::all(Groups::BASE | Groups::STAT);
    let mut session = Session::open(request, Choice::Only(EngineId::Procfs)).expect("it opens");
    let answer = session.refresh().expect("it answers");
    let (first, processes) = (answer.served()[0].cost.syscalls, answer.tasks().len());
    if processes + 100 > held_max() {
        return skip(
            "files that a session keeps open",
            "the machine has more processes than are kept",
        );
    }
    assert_eq!(held_files(&pids), 40);
    // A kept engine makes one system call for each process instead of two or three.
    later_answers_cost_less(&mut session, first, 0.75);
    let again = session.snapshot().expect("it answered");
    assert!(pids.iter().all(|pid| again.task(*pid).is_some()));
    assert_eq!(held_files(&pids), 40);
    drop(many);
    session.refresh().expect("it answers");
    assert_eq!(held_files(&pids), 0);
    let own = [std::process::id()];
    assert_eq!(held_files(&own), 1);
    drop(session);
    assert_eq!(held_files(&own), 0);
}

#[test]
fn procfs_keeps_the_files_of_sizes_open_too() {
    let _alone = SESSIONS.write().unwrap_or_else(PoisonError::into_inner);
    let mut many: Vec<Ended> = (0..40).map(|_| Ended::sleep()).collect();
    let pids: Vec<u32> = many.iter().map(Ended::id).collect();
    let groups = Groups::BASE | Groups::STATM;
    let members =
        Members::of(Groups::BASE, &["ppid"]).union(Members::of(Groups::STATM, &["rss_bytes"]));
    let request = Request::all(groups).with_members(members);
    let mut session = Session::open(request, Choice::Only(EngineId::Procfs)).expect("it opens");
    let answer = session.refresh().expect("it answers");
    let (first, processes) = (answer.served()[0].cost.syscalls, answer.tasks().len());
    if 2 * processes + 100 > held_max() {
        return skip(
            "files of sizes that a session keeps open",
            "the machine has more processes than are kept",
        );
    }
    assert_eq!(held_files(&pids), 80, "stat and statm of 40 processes");
    // Two calls for each process instead of four.
    later_answers_cost_less(&mut session, first, 0.6);
    let gone = many.pop().expect("there are 40").id();
    let new = Ended::sleep();
    let pids: Vec<u32> = many.iter().chain([&new]).map(Ended::id).collect();
    let mut patience = Patience::new(Duration::from_secs(10));
    loop {
        let again = session.refresh().expect("it answers");
        assert!(again.task(gone).is_none_or(|t| t.record::<Statm>().is_none()));
        let rss = |pid: &u32| again.task(*pid).and_then(|t| t.record::<Statm>()?.rss_bytes());
        let got: Vec<_> = pids.iter().map(rss).collect();
        let want: Vec<_> = pids.iter().map(|pid| vm_rss(*pid)).collect();
        if got == want {
            break;
        }
        // A process that has just begun still loads its libraries.
        assert!(!patience.is_over(), "{got:?}\n{want:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The resident memory of a process, as `status` has it.
fn vm_rss(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"))?;
    line.trim().trim_end_matches(" kB").parse::<u64>().ok().map(|kib| kib << 10)
}
