//! What threads wait for: WAIT of every engine that has it, against the threads that mktask has
//! made, against the files of /proc, and against each other.

use std::fs;
use std::time::Duration;

use taskdiag::syscalls::Machine;
use taskdiag::wire::WAIT_UNINTERRUPTIBLE;
use taskdiag::{EngineId, Group, Groups, OwnerHow, Record, Request, TaskView, Wait, WaitKind};
use taskdiag_tests::answer::engines_with;
use taskdiag_tests::{Answer, Mktask, Source, notes_blockers, plain_dir, read, skip};

/// Kinds of waits that the state `waits` has.
const KINDS: [&str; 23] = [
    "futex",
    "futex-pi",
    "pipe-read",
    "pipe-write",
    "fifo-open",
    "tty-read",
    "accept",
    "receive",
    "send",
    "epoll",
    "poll",
    "select",
    "eventfd",
    "inotify",
    "timerfd",
    "sleep",
    "signal",
    "child",
    "flock",
    "ofd-lock",
    "posix-lock",
    "sysv-sem",
    "sysv-msg",
];

/// The answer about the threads of a process.
fn threads(engine: Source, pid: u32) -> Answer {
    let req = Request::threads(pid, Groups::BASE | Groups::WAIT);
    read(engine, &req).unwrap_or_else(|e| panic!("{engine}: {e}"))
}

fn task(a: &Answer, tid: u32) -> TaskView<'_> {
    let found = a.snapshot.tasks().find(|t| t.pid() == tid);
    found.unwrap_or_else(|| panic!("{a} does not have {tid}"))
}

fn wait(a: &Answer, tid: u32) -> Record<'_, Wait> {
    let task = task(a, tid);
    task.record().unwrap_or_else(|| panic!("{a}: WAIT of {tid}: {:?}", task.reason(Group::Wait)))
}

fn kind(w: Record<'_, Wait>) -> &'static str {
    w.kind().and_then(WaitKind::from_number).map_or("unknown", WaitKind::name)
}

fn owner_how(w: Record<'_, Wait>) -> Option<OwnerHow> {
    w.owner_how().and_then(OwnerHow::from_number)
}

fn function(w: Record<'_, Wait>) -> Vec<u8> {
    let name = w.function().unwrap_or([0; 40]);
    name.split(|b| *b == 0).next().unwrap_or_default().to_vec()
}

/// Makes the state, or says why not.
fn waits(test: &str) -> Option<(Mktask, tempfile::TempDir)> {
    let (dir, path) = plain_dir();
    Some((Mktask::or_skip(test, &["waits", &path])?, dir))
}

#[test]
fn each_kind_of_wait_is_named_with_its_system_call() {
    let Some((m, _dir)) = waits("kinds of waits") else { return };
    let engines = engines_with(Group::Wait);
    assert!(engines.len() > 1, "only {engines:?}");
    for engine in engines {
        let a = threads(engine, m.pid());
        for want in KINDS {
            let w = wait(&a, m.num(&format!("wait-{want}")));
            let what = format!("{a}: {want} in {:?}", String::from_utf8_lossy(&function(w)));
            assert_eq!(kind(w), want, "{what}");
            assert_eq!(w.state(), Some(b'S'), "{what}");
            assert_eq!(w.flags().map(|f| f & WAIT_UNINTERRUPTIBLE), Some(0), "{what}");
            let call = Machine::own().zip(w.syscall_nr()).and_then(|(m, nr)| m.syscall(nr, false));
            // arm64 lacks the older forms of some calls.
            let is_same = |call: &str| {
                let (call, fact) = (call, m.text(&format!("call-{want}")));
                call.trim_end_matches(char::is_numeric) == fact.trim_end_matches(char::is_numeric)
                    || matches!(
                        (call, fact),
                        ("ppoll", "poll") | ("pselect6", "select") | ("epoll_pwait", "epoll_wait")
                    )
            };
            assert!(call.is_some_and(is_same), "{what}: {call:?}");
        }
        let args = wait(&a, m.num("wait-futex")).args().expect("it is in a call");
        assert_eq!(args[0], m.num::<u64>("futex_word"), "{a}");
        let args = wait(&a, m.num("wait-pipe-read")).args().expect("it is in a call");
        assert_eq!(args[0], m.num::<u64>("pipe_read_fd"), "{a}");
    }
}

/// Kinds that not every kernel can have.
const RARE: [&str; 7] =
    ["seccomp", "userfaultfd", "io-uring", "futex-waitv", "mqueue", "pidfd", "signalfd"];

#[test]
fn kinds_that_not_every_kernel_has_are_named_where_they_can_be_made() {
    let Some(m) = Mktask::or_skip("rare kinds of waits", &["rare-waits"]) else { return };
    for want in RARE {
        let lacks: i32 = m.num(&format!("lacks-{want}"));
        if lacks != 0 {
            let why = std::io::Error::from_raw_os_error(lacks);
            skip(&format!("rare kinds of waits: {want}"), &why.to_string());
            continue;
        }
        for engine in engines_with(Group::Wait) {
            let a = threads(engine, m.pid());
            let w = wait(&a, m.num(&format!("wait-{want}")));
            let what = format!("{a}: {want} in {:?}", String::from_utf8_lossy(&function(w)));
            assert_eq!(kind(w), m.text(&format!("kind-{want}")), "{what}");
            let call = Machine::own().zip(w.syscall_nr()).and_then(|(m, nr)| m.syscall(nr, false));
            assert_eq!(call.unwrap_or(""), m.text(&format!("call-{want}")), "{what}");
        }
    }
}

/// Whether this kernel freezes threads where they sleep in a way that can be seen.
fn freezes_in_place_visibly() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("it is always there");
    let mut numbers = release.split(['.', '-']).map_while(|n| n.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(1))
}

#[test]
fn frozen_tasks_are_frozen_whatever_they_did_before() {
    for version in ["v1", "v2"] {
        let (_dir, path) = plain_dir();
        let test = format!("tasks that cgroups {version} freeze");
        let Some(m) = Mktask::or_skip(&test, &["frozen", version, &path]) else { continue };
        for engine in engines_with(Group::Wait) {
            for key in ["holder", "sleeper", "runner"] {
                if (version, key) == ("v1", "sleeper") && !freezes_in_place_visibly() {
                    skip(&test, "before Linux 6.1, nothing shows that a sleeping thread is frozen");
                    continue;
                }
                let a = threads(engine, m.num(key));
                assert_eq!(kind(wait(&a, m.num(key))), "frozen", "{a}: {key} by {version}");
            }
            let a = threads(engine, m.num("waiter"));
            assert_eq!(kind(wait(&a, m.num("waiter"))), "flock", "{a}");
        }
    }
}

/// The task runs for a thousandth of the time, and nothing in /proc distinguishes it from a running
/// task.
#[test]
fn bpf_distinguishes_a_throttled_task_from_a_running_one() {
    for version in ["v1", "v2"] {
        let test = format!("tasks that cgroups {version} throttle");
        let Some(m) = Mktask::or_skip(&test, &["throttled", version]) else { continue };
        for engine in engines_with(Group::Wait) {
            let want = if engine.id() == EngineId::Bpf { "throttled" } else { "runnable" };
            // The task is on a CPU for a thousandth of the time.
            let pid = m.num("throttled");
            let is_so = (0..20).any(|_| kind(wait(&threads(engine, pid), pid)) == want);
            assert!(is_so, "{engine}: it is never {want}");
        }
    }
}

/// The kernel's own text of the system call, the stack and the program, and of the function.
#[test]
fn system_calls_are_those_of_proc() {
    let Some((m, _dir)) = waits("system calls") else { return };
    for engine in engines_with(Group::Wait) {
        let a = threads(engine, m.pid());
        let mut compared = 0;
        for want in KINDS {
            let tid: u32 = m.num(&format!("wait-{want}"));
            let w = wait(&a, tid);
            let file = |name: &str| {
                fs::read_to_string(format!("/proc/{}/task/{tid}/{name}", m.pid())).expect(name)
            };
            let mut text = w.syscall_nr().expect("a number").to_string();
            for arg in w.args().expect("arguments") {
                text += &format!(" {arg:#x}");
            }
            let at = [w.user_sp(), w.user_pc()].map(|n| n.expect("it has user space"));
            text += &format!(" {:#x} {:#x}\n", at[0], at[1]);
            assert_eq!(text, file("syscall"), "{a}: {want}");
            let wchan = file("wchan");
            let known = function(w);
            assert!(wchan.as_bytes().starts_with(&known) && !known.is_empty(), "{a}: {wchan}");
            compared += 1;
        }
        assert_eq!(compared, KINDS.len());
    }
}

/// The engines that know when a thread last ran. procfs takes it from /proc/PID/sched.
fn engines_with_times() -> Vec<Source> {
    let has_sched = std::fs::exists("/proc/self/sched").is_ok_and(|there| there);
    if !has_sched {
        skip("times of waits by procfs", "this kernel has no /proc/PID/sched");
    }
    let knows = |s: &Source| has_sched || s.id() != EngineId::Procfs;
    engines_with(Group::Wait).into_iter().filter(knows).collect()
}

/// The time does not move while a thread sleeps, and lies between the start of the thread and the
/// moment at which it was seen asleep, within the error in the answer.
#[test]
fn the_time_of_a_wait_is_when_it_began() {
    let Some((m, _dir)) = waits("times of waits") else { return };
    let asleep: u64 = m.num("asleep_ns");
    for engine in engines_with_times() {
        let first = threads(engine, m.pid());
        std::thread::sleep(Duration::from_millis(200));
        let second = threads(engine, m.pid());
        let mut known = 0;
        for want in KINDS {
            let tid = m.num(&format!("wait-{want}"));
            let base = task(&first, tid).record::<taskdiag::Base>().expect("asked for");
            let begun = base.start_time_ns().expect("asked for");
            let times = [&first, &second].map(|a| {
                let w = wait(a, tid);
                w.last_ran_ns().zip(w.ran_error_ns())
            });
            // The kernel loses the time if it moves a thread that is about to sleep.
            let [Some((ns, error)), Some((later, _))] = times else { continue };
            known += 1;
            // The ticks of an emulator come late.
            let late =
                if std::env::var_os("TASKDIAG_EMULATED").is_some() { 200_000_000 } else { 0 };
            let error = error + late;
            assert!(ns + error >= begun, "{first}: {want} {ns} ± {error}, begun {begun}");
            assert!(ns <= asleep + error, "{first}: {want} {ns} ± {error}, asleep at {asleep}");
            // Each answer looks at the clock of the scheduler, which is set once in a tick. The
            // clock in /proc stops while a hypervisor takes the CPU away.
            let most = if engine.id() == EngineId::Bpf { 60_000_000 + late } else { error };
            let moved = ns.abs_diff(later);
            assert!(moved < most, "{first}: {want} from {ns} to {later}");
        }
        assert!(known > KINDS.len() / 2, "{first}: only {known} times are known");
    }
}

#[test]
fn engines_agree_when_a_thread_last_ran() {
    let Some((m, _dir)) = waits("times of engines") else { return };
    let engines = engines_with_times();
    if engines.len() < 2 {
        return skip("times of engines", "there is one engine with times");
    }
    for pair in engines.windows(2) {
        let answers = [pair[0], pair[1]].map(|engine| threads(engine, m.pid()));
        let mut compared = 0;
        for want in KINDS {
            let times = [&answers[0], &answers[1]].map(|a| {
                let w = wait(a, m.num(&format!("wait-{want}")));
                w.last_ran_ns().zip(w.ran_error_ns())
            });
            let [Some((a, a_error)), Some((b, b_error))] = times else { continue };
            compared += 1;
            let apart = a.abs_diff(b);
            assert!(apart <= a_error + b_error, "{want}: {a} ± {a_error} and {b} ± {b_error}");
        }
        assert!(compared > KINDS.len() / 2, "only {compared} were compared");
    }
}

/// The kernel keeps the owner of such a lock. /proc does not show it.
#[test]
fn a_lock_with_priority_inheritance_names_its_owner() {
    let Some((m, _dir)) = waits("owner of a PI lock") else { return };
    for engine in engines_with(Group::Wait) {
        let a = threads(engine, m.pid());
        let w = wait(&a, m.num("wait-futex-pi"));
        match engine.id() {
            EngineId::Bpf => {
                assert_eq!(owner_how(w), Some(OwnerHow::Lock), "{a}");
                assert_eq!(w.owner_tid(), Some(m.num("pi_holder")), "{a}");
                assert_eq!(w.owner_tgid(), Some(m.pid()), "{a}");
            }
            _ => assert_eq!((owner_how(w), w.owner_tid()), (Some(OwnerHow::NotLookedUp), None)),
        }
        // No task holds this lock.
        let w = wait(&a, m.num("wait-futex"));
        assert_eq!((owner_how(w), w.owner_tid()), (Some(OwnerHow::NotLookedUp), None), "{a}");
    }
}

/// A process that makes a directory holds the lock of the parent directory, for which another
/// process waits. Linux notes the lock since 6.17.
#[test]
fn a_lock_of_the_kernel_names_its_owner() {
    a_lock_is_noted("stuck-lock", &["fuse"], "rwsem-write");
}

/// A process that reads an open file holds the mutex of its position, for which another process
/// waits. Linux notes such a lock since 6.15, and this test expects it from 6.17 on.
#[test]
fn a_mutex_of_the_kernel_names_its_owner() {
    a_lock_is_noted("stuck-position", &["fuse", "page-io"], "mutex");
}

/// The state has a process whose wait is one of `held`, and another one that waits for its lock.
fn a_lock_is_noted(state: &str, held: &[&str], want: &str) {
    let (_dir, path) = plain_dir();
    let Some(m) = Mktask::or_skip("owner of a lock", &[state, &path]) else { return };
    for engine in engines_with(Group::Wait) {
        let holder: u32 = m.num("holder");
        let a = threads(engine, holder);
        let w = wait(&a, holder);
        assert!(held.contains(&kind(w)), "{a}: {}", kind(w));
        let a = threads(engine, m.pid());
        let w = wait(&a, m.pid());
        assert_eq!(w.state(), Some(b'D'), "{a}");
        assert_eq!(w.flags().map(|f| f & WAIT_UNINTERRUPTIBLE), Some(WAIT_UNINTERRUPTIBLE), "{a}");
        if kind(w) == "other" {
            assert_eq!((owner_how(w), w.owner_tid()), (Some(OwnerHow::NotLookedUp), None), "{a}");
            if engine.id() == EngineId::Bpf {
                assert!(!notes_blockers(), "{a}: this kernel notes the lock");
                skip("owner of a lock of the kernel", "this kernel does not note it");
            }
            continue;
        }
        assert_eq!((kind(w), engine.id()), (want, EngineId::Bpf), "{a}");
        assert_eq!(owner_how(w), Some(OwnerHow::Lock), "{a}");
        assert_eq!((w.owner_tid(), w.owner_tgid()), (Some(holder), Some(holder)), "{a}");
        assert!(w.object().is_some_and(|n| n != 0), "{a}: the lock has a number");
    }
}

#[test]
fn stopped_traced_and_ended_tasks_have_kinds_of_their_own() {
    let states = [
        ("zombie", "ended", None),
        ("stopped", "stopped", None),
        ("traced-stopped", "traced", Some(OwnerHow::Tracer)),
        ("vfork", "vfork", None),
        ("idle", "", None),
    ];
    for (state, want, owner) in states {
        let Some(m) = Mktask::or_skip(&format!("wait of {state}"), &[state]) else { continue };
        for engine in engines_with(Group::Wait) {
            let a = threads(engine, m.pid());
            let w = wait(&a, m.pid());
            if !want.is_empty() {
                assert_eq!(kind(w), want, "{a}");
            }
            assert_eq!(owner_how(w), owner.or(Some(OwnerHow::NotLookedUp)), "{a}: {state}");
            if owner == Some(OwnerHow::Tracer) {
                assert_eq!(w.owner_tid(), Some(m.num("tracer")), "{a}");
            }
        }
    }
    // This thread is running, because it makes the request.
    let me = std::process::id();
    // SAFETY: it has no arguments and cannot fail.
    let tid = unsafe { libc::gettid() as u32 };
    for engine in engines_with(Group::Wait) {
        let a = threads(engine, me);
        let w = wait(&a, tid);
        assert!(matches!(kind(w), "on-cpu" | "runnable" | "cpu" | "futex"), "{a}: {}", kind(w));
    }
}

/// An answer without the group opens no file of it.
#[test]
fn other_columns_cost_nothing_more() {
    let Some(m) = Mktask::or_skip("cost of other columns", &["idle"]) else { return };
    if !engines_with_times().iter().any(|s| s.id() == EngineId::Procfs) {
        return;
    }
    let engine = Source::Engine(EngineId::Procfs);
    let calls = |groups| {
        let req = Request::threads(m.pid(), groups);
        engine.query(&req).expect("an answer").served().iter().map(|s| s.cost.syscalls).sum::<u64>()
    };
    let (base, with) = (calls(Groups::BASE), calls(Groups::BASE | Groups::WAIT));
    assert_eq!(calls(Groups::BASE), base);
    // Four files of the thread, and two for the clock, with three calls each.
    assert_eq!(with - base, 6 * 3, "{base} and {with}");
}
