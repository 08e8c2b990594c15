//! DELAYS of every engine that has it, against threads that have waited for a disk and for memory
//! while the kernel counted delays, and against threads that began before.

use std::fs;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use taskdiag::wire::Delays;
use taskdiag::{Group, Groups, Reason, Request, TaskView};
use taskdiag_tests::answer::engines_with;
use taskdiag_tests::{Answer, Ended, Source, needs_root, read, skip};

const SWITCH: &str = "/proc/sys/kernel/task_delayacct";

/// Delay accounting, for as long as this lives.
struct Counted {
    before: String,
    _alone: MutexGuard<'static, ()>,
}

impl Counted {
    fn begin(test: &str) -> Option<Counted> {
        static ALONE: Mutex<()> = Mutex::new(());
        if !needs_root(test) {
            return None;
        }
        // Another test would switch it off meanwhile.
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok(before) = fs::read_to_string(SWITCH) else {
            skip(test, "the kernel is built without CONFIG_TASK_DELAY_ACCT");
            return None;
        };
        fs::write(SWITCH, "0").expect("root may switch it");
        Some(Counted { before, _alone: alone })
    }
}

impl Counted {
    fn switch_on(&self) {
        fs::write(SWITCH, "1").expect("root may switch it");
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let _ = fs::write(SWITCH, &self.before);
    }
}

/// Runs a script, and waits until it has printed a line.
fn running(test: &str, script: &str) -> Option<Ended> {
    let mut command = Command::new("python3");
    command.args(["-c", script]).stdout(Stdio::piped());
    let Ok(mut child) = command.spawn() else {
        skip(test, "there is no python3, which makes the delays");
        return None;
    };
    let mut byte = [0];
    let out = child.stdout.as_mut().expect("it is piped");
    std::io::Read::read_exact(out, &mut byte).expect("the script prints a line");
    Some(Ended(child))
}

/// Copies pages after a fork, writes to a file until it is on the disk, and has two threads on one
/// processor. Then all threads sleep.
const SCRIPT: &str = "
import os, tempfile, threading, time
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
memory = bytearray(8 << 20)
def copy(begin):
    # While a child shares the pages, a write copies each page first.
    pid = os.fork()
    if not pid:
        time.sleep(0.2)
        os._exit(0)
    for i in range(begin, begin + (2 << 20), 4096):
        memory[i] = 1
    os.waitpid(pid, 0)
def burn(begin):
    copy(begin)
    barrier.wait()
    end = time.monotonic() + 0.3
    while time.monotonic() < end:
        pass
    done.wait()
    time.sleep(3600)
copy(0)
with tempfile.TemporaryFile(dir='/var/tmp') as f:
    f.write(bytes(1 << 20))
    f.flush()
    os.fsync(f.fileno())
barrier, done = threading.Barrier(2), threading.Barrier(3)
for i in (1, 2):
    threading.Thread(target=burn, args=(i * (2 << 20),), daemon=True).start()
done.wait()
time.sleep(0.1)
os.write(1, b'%d\\n' % os.getpid())
time.sleep(3600)
";

fn answer(engine: Source, req: &Request) -> Answer {
    read(engine, req).unwrap_or_else(|e| panic!("{engine}: {e}"))
}

fn delays<'a>(a: &'a Answer, pid: u32) -> Result<&'a Delays, Option<Reason>> {
    let task: TaskView<'a> = a.snapshot.tasks().find(|t| t.pid() == pid).expect("it lives");
    task.record::<Delays>().map(|r| r.raw()).ok_or_else(|| task.reason(Group::Delays))
}

/// All numbers, in the order of the header.
fn numbers(d: &Delays) -> Vec<u64> {
    let (ns, count) = (
        [d.cpu_ns, d.io_ns, d.swapin_ns, d.reclaim_ns],
        [d.cpu_count, d.io_count, d.swapin_count, d.reclaim_count],
    );
    let more = [d.thrashing_ns, d.compact_ns, d.wpcopy_ns, d.irq_ns];
    let more_counts = [d.thrashing_count, d.compact_count, d.wpcopy_count, d.irq_count];
    [&ns[..], &count[..], &more[..], &more_counts[..], &d.max_ns[..], &d.min_ns[..]].concat()
}

/// Returns answers of `a` and `b`. `a` gave the same before and after `b`, which comes soon because
/// the threads sleep.
fn same(a: Source, b: Source, req: &Request) -> (Answer, Answer) {
    let end = Instant::now() + Duration::from_secs(20);
    let all = |a: &Answer| -> Vec<_> {
        let of = |t: TaskView<'_>| delays(a, t.pid()).map(numbers).ok();
        a.snapshot.tasks().map(of).collect()
    };
    loop {
        let (before, between, after) = (answer(a, req), answer(b, req), answer(a, req));
        if all(&before) == all(&after) || Instant::now() > end {
            return (before, between);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn delays_are_those_that_the_kernel_has_counted() {
    let Some(counted) = Counted::begin("delays of tasks") else { return };
    let script = "print(1, flush=True); import time; time.sleep(3600)";
    let Some(before) = running("delays of tasks", script) else { return };
    counted.switch_on();
    let Some(sleeper) = running("delays of tasks", SCRIPT) else { return };
    let pid = sleeper.id();
    let engines = engines_with(Group::Delays);
    assert!(engines.len() > 1, "only {engines:?}");
    for req in [Request::one(pid, Groups::DELAYS), Request::threads(pid, Groups::DELAYS)] {
        for pair in engines.windows(2) {
            let (a, b) = same(pair[0], pair[1], &req);
            let tasks = a.snapshot.tasks().count();
            assert_eq!(tasks, if req.strategy.is_threads() { 3 } else { 1 });
            for task in a.snapshot.tasks() {
                let d = delays(&a, task.pid()).unwrap_or_else(|why| panic!("{a}: {why:?}"));
                let other = delays(&b, task.pid()).unwrap_or_else(|why| panic!("{b}: {why:?}"));
                assert_eq!(d.valid, other.valid, "{a}, {b}");
                assert_eq!(numbers(d), numbers(other), "{a}, {b}: {d:?}");
                assert!(d.cpu_ns > 0 && d.cpu_count > 0, "{a}: {d:?}");
                assert!(d.wpcopy_count >= 256 && d.wpcopy_ns > 0, "{a}: {d:?}");
                let is_main = task.pid() == pid;
                assert_eq!(d.io_count > 0 && d.io_ns > 0, is_main, "{a}: {d:?}");
            }
            if !req.strategy.is_threads() {
                let threads = answer(pair[0], &Request::threads(pid, Groups::DELAYS));
                let each =
                    |t: TaskView<'_>| delays(&threads, t.pid()).expect("it is counted").cpu_ns;
                let sum: u64 = threads.snapshot.tasks().map(each).sum();
                assert_eq!(delays(&a, pid).expect("it is counted").cpu_ns, sum, "{a}");
            }
        }
    }
    // A task that began before has no delays, and never zeros.
    for engine in &engines {
        let a = answer(*engine, &Request::one(before.id(), Groups::DELAYS));
        assert_eq!(delays(&a, before.id()).err(), Some(Some(Reason::Unsupported)), "{a}");
    }
}

#[test]
fn delays_of_all_tasks_come_in_one_answer() {
    let Some(counted) = Counted::begin("delays of all tasks") else { return };
    counted.switch_on();
    let Some(sleeper) = running("delays of all tasks", SCRIPT) else { return };
    let pid = sleeper.id();
    for engine in engines_with(Group::Delays) {
        let a = answer(engine, &Request::all_threads(Groups::DELAYS));
        assert!(delays(&a, pid).is_ok(), "{a}");
        let missing = a.snapshot.tasks().filter(|t| t.record::<Delays>().is_none());
        for t in missing {
            let why = t.reason(Group::Delays);
            assert!(matches!(why, Some(Reason::Unsupported | Reason::Vanished)), "{a}: {why:?}");
        }
    }
}
