//! Tests what tasks have used, on every engine and strategy: CPU time, faults, switches, I/O,
//! memory.

use std::sync::{Mutex, PoisonError};

use taskdiag::{EngineId, Group, Groups, Request, Strategy, Swap};
use taskdiag_tests::answer::engines_with;
use taskdiag_tests::cli::Sandbox;
use taskdiag_tests::state::{between, parity};
use taskdiag_tests::{Mktask, Source, read, skip, skips};

/// A tick of /proc in ns.
const TICK: i128 = 10_000_000;

#[test]
fn cpu_time_and_faults_are_those_of_the_task() {
    parity("cpu_time_and_faults_are_those_of_the_task", &["burn", "200"], |m, a, t| {
        let cpu = m.num::<i128>("cpu_ns");
        let sum = t.num("stat.utime_ns") + t.num("stat.stime_ns");
        assert!(
            cpu - 2 * TICK <= sum && sum <= cpu + 4 * TICK,
            "utime + stime of {a} is {sum}, used were {cpu}"
        );
        between(a, t, "sched.run_time_ns", cpu - TICK, cpu + 4 * TICK);
        for (field, fact) in [("stat.minflt", "minflt"), ("stat.majflt", "majflt")] {
            let n = m.num::<i128>(fact);
            between(a, t, field, n, n + 5);
        }
        for (field, fact) in [("sched.nvcsw", "nvcsw"), ("sched.nivcsw", "nivcsw")] {
            let n = m.num::<i128>(fact);
            between(a, t, field, n, n + 20);
        }
    });
}

#[test]
fn times_of_virtual_processors_are_those_of_the_task() {
    parity("times_of_virtual_processors_are_those_of_the_task", &["guest"], |m, a, t| {
        for (fact, field) in [("guest_ticks", "guest_ns"), ("cguest_ticks", "cguest_ns")] {
            let ticks = m.num::<i128>(fact);
            assert!(ticks >= 20, "{fact} of {} is {ticks}", m.state());
            // Threads have no children of their own, and share those of the process.
            let field = format!("stat.{field}");
            assert_eq!(t.num(&field) / TICK, ticks, "{field} of {a}");
        }
    });
}

/// A process that just began has not used more CPU time than its threads can. Its age and its CPU
/// time are not read at the same moment.
#[test]
fn a_young_process_has_not_used_more_than_its_age() {
    // The walk over these threads is long, so for tasks after them the two moments are far apart.
    let crowd = || Mktask::start(&["threads", "3000"]).expect("always possible");
    let mut before = crowd();
    // It ends after this much CPU time, even if this test is killed.
    let spin = "ulimit -t 20; while :; do :; done";
    let end = |mut child: std::process::Child| {
        child.kill().expect("it is ours");
        child.wait().expect("it ends");
    };
    let mut seen = 0;
    // On a busy machine it may not have run yet.
    for round in 0..30 {
        if round >= 4 && seen > 0 {
            break;
        }
        let start =
            || std::process::Command::new("sh").args(["-c", spin]).spawn().expect("sh runs");
        let mut child = start();
        // If process ids have wrapped around, the walk would reach it first.
        if child.id() < before.pid() {
            end(child);
            before = crowd();
            child = start();
        }
        let args = ["ps", "-eT", "--engine", "procfs", "-o", "pid=,pcpu=,read_bytes="];
        let ran = Sandbox::new().run(&args);
        let own = child.id().to_string();
        end(child);
        for line in ran.stdout.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            if words[0] == own {
                let percent: f64 = words[1].parse().expect("a number");
                assert!(percent <= 100.0, "{line}");
                seen += u32::from(percent > 0.0);
            }
        }
    }
    assert!(seen > 0, "no young process was seen at work");
}

#[test]
fn times_of_children_that_were_waited_for_are_counted() {
    parity(
        "times_of_children_that_were_waited_for_are_counted",
        &["children", "150"],
        |m, a, t| {
            for (field, fact) in [("stat.cutime_ns", "cutime_ns"), ("stat.cstime_ns", "cstime_ns")]
            {
                let n = m.num::<i128>(fact);
                assert_eq!(t.num(field) / TICK, n / TICK, "{field} of {a}, {n} ns were used");
            }
            assert_eq!(t.num("stat.cminflt"), m.num::<i128>("cminflt"), "{a}");
            assert_eq!(t.num("stat.cmajflt"), m.num::<i128>("cmajflt"), "{a}");
        },
    );
}

#[test]
fn times_of_ended_threads_are_in_those_of_the_process() {
    parity(
        "times_of_ended_threads_are_in_those_of_the_process",
        &["dead-threads", "150"],
        |m, a, t| {
            let threads = a.strategy.is_threads();
            let cpu = m.num::<i128>(if threads { "thread_cpu_ns" } else { "cpu_ns" });
            let sum = t.num("stat.utime_ns") + t.num("stat.stime_ns");
            assert!(
                cpu - 2 * TICK <= sum && sum <= cpu + 4 * TICK,
                "utime + stime of {a} is {sum}, used were {cpu}"
            );
            if threads {
                between(a, t, "stat.minflt", 0, 100);
                let live = a.task(m.num("live_tid"));
                let cpu = m.num::<i128>("live_cpu_ns");
                between(a, &live, "sched.run_time_ns", cpu - TICK, cpu + 2 * TICK);
            } else {
                between(a, t, "stat.minflt", m.num("minflt"), m.num::<i128>("minflt") + 5);
                assert_eq!(t.num("sched.flags"), 0, "{a}");
                between(a, t, "sched.run_time_ns", cpu - TICK, cpu + 4 * TICK);
                // Ended threads are in the sum, or it is not known.
                for field in ["nvcsw", "nivcsw"] {
                    let (key, n) = (format!("sched.{field}"), m.num::<i128>(field));
                    if t.get(&key).is_some() || a.source.id() != EngineId::Procfs {
                        between(a, t, &key, n, n + 20);
                    }
                }
            }
        },
    );
}

/// A value of procfs would be too small.
#[test]
fn context_switches_with_ended_threads_are_complete_or_said_to_be_unknown() {
    let m = Mktask::start(&["dead-threads", "20"]).expect("always possible");
    let pid = m.pid().to_string();
    let shown = |engine: &str| {
        let args = ["ps", "-p", &pid, "-o", "nvcsw,nivcsw", "--json", "--engine", engine];
        let ran = Sandbox::new().run(&args);
        let rows: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON");
        (rows[0]["nvcsw"].as_i64(), rows[0]["missing"]["nvcsw"].as_str().map(str::to_owned))
    };
    assert_eq!(shown("procfs"), (None, Some("unsupported".to_owned())));
    if engines_with(Group::Sched).iter().any(|s| s.id() == EngineId::Bpf) {
        for engine in ["bpf", "auto"] {
            let (n, why) = shown(engine);
            assert!(n >= Some(m.num("nvcsw")) && why.is_none(), "{engine}: {n:?} {why:?}");
        }
    }
}

/// Sums are known if no thread has ended. So an unknown sum proves that the engine noticed an ended
/// thread.
#[test]
fn context_switches_of_living_threads_are_known_to_all_engines() {
    for state in [&["threads", "4"][..], &["burn", "20"], &["zombie"]] {
        let m = Mktask::start(state).expect("always possible");
        for source in engines_with(Group::Sched) {
            let a = read(source, &Request::one(m.pid(), Groups::SCHED)).expect("an answer");
            let t = a.task(m.pid());
            for key in ["sched.nvcsw", "sched.nivcsw", "sched.run_time_ns"] {
                assert!(t.get(key).is_some(), "{source}: {state:?} lacks {key}");
            }
            assert_eq!(t.num("sched.flags"), 0, "{source}: {state:?}");
        }
    }
}

#[test]
fn io_counts_what_was_read_and_written() {
    parity("io_counts_what_was_read_and_written", &["io"], |m, a, t| {
        let leader = if a.strategy.is_threads() { "leader_" } else { "" };
        for field in ["rchar", "wchar", "syscr", "syscw"] {
            let want = m.num::<i128>(&format!("{leader}{field}"));
            assert_eq!(t.num(&format!("io.{field}")), want, "{field} of {a}");
        }
        if a.strategy.is_threads() {
            let live = a.task(m.num("live_tid"));
            assert_eq!(live.num("io.rchar"), m.num::<i128>("live_rchar"), "{a}");
            assert_eq!(live.num("io.syscr"), m.num::<i128>("live_syscr"), "{a}");
            assert_eq!(live.num("io.wchar"), 0, "{a}");
        }
    });
}

#[test]
fn memory_is_as_large_as_what_was_allocated() {
    const SLACK: i128 = 4 << 20;
    parity("memory_is_as_large_as_what_was_allocated", &["memory"], |m, a, t| {
        let fact = |k: &str| m.num::<i128>(k);
        let (anon, shmem, reserved) = (fact("anon"), fact("shmem"), fact("reserved"));
        between(a, t, "statm.rss_anon_bytes", anon, anon + SLACK);
        between(a, t, "statm.rss_shmem_bytes", shmem, shmem + SLACK);
        let least = anon + shmem + reserved;
        between(a, t, "statm.size_bytes", least, least + 64 * SLACK);
        let peak = fact("peak");
        let size = t.num("statm.size_bytes");
        between(a, t, "statm.peak_size_bytes", size + peak - (1 << 20), size + peak + (1 << 20));
        let high = anon + shmem + peak;
        between(a, t, "statm.peak_rss_bytes", high, high + SLACK);
        let sum: i128 =
            ["anon", "file", "shmem"].map(|k| t.num(&format!("statm.rss_{k}_bytes"))).iter().sum();
        assert_eq!(t.num("statm.rss_bytes"), sum, "{a}");
        between(a, t, "statm.stack_bytes", 4096, 8 << 20);
        between(a, t, "statm.page_tables_bytes", 4096, 1 << 20);
        assert_eq!(t.num("statm.swap_bytes"), 0, "{a}");
        if m.has("locked") {
            assert_eq!(t.num("statm.locked_bytes"), fact("locked"), "{a}");
        }
    });
}

/// The test that makes swap space removes it again, with everything that is swapped out.
static SWAP_SPACE: Mutex<()> = Mutex::new(());

#[test]
fn swapped_memory_is_counted_by_its_kind() {
    let _alone = SWAP_SPACE.lock().unwrap_or_else(PoisonError::into_inner);
    // The directory is not in /tmp, because a swap file cannot be on a tmpfs.
    let dir = match tempfile::tempdir_in(skips::target_dir()) {
        Ok(dir) => dir,
        Err(e) => {
            return skip(
                "swapped_memory_is_counted_by_its_kind",
                &format!("no place for a swap file: {e}"),
            );
        }
    };
    let file = dir.path().join("swap");
    parity(
        "swapped_memory_is_counted_by_its_kind",
        &["swap", file.to_str().expect("a plain path")],
        |m, a, t| {
            // This is private memory. A shared object's swap does not belong to the process.
            let half = m.num::<i128>("half");
            let size = m.num::<i128>("size");
            between(a, t, "statm.swap_bytes", half / 2, half);
            let there = t.num("statm.rss_anon_bytes") + t.num("statm.swap_bytes");
            assert!((size..size + (4 << 20)).contains(&there), "{a}: {there} of {size}");
            between(a, t, "statm.rss_shmem_bytes", half, half + half / 2 + (1 << 20));
            if a.strategy == Strategy::One {
                swap_group(m, a.source);
            }
        },
    );
}

/// Compares SWAP with smaps, which looks at each page. Half of each of two regions was swapped out.
/// Pages in the kernel's swap cache are still resident.
fn swap_group(m: &Mktask, source: Source) {
    if !engines_with(Group::Swap).contains(&source) {
        return;
    }
    let half = m.num::<u64>("half");
    let a = read(source, &Request::one(m.pid(), Groups::SWAP)).expect("an answer");
    let view = a.snapshot.tasks().next().expect("the task");
    let s = view.record::<Swap>().expect("the group");
    let all = smaps_swap(m.pid());
    let anon = s.anon_bytes().expect("VmSwap");
    assert!((half / 2..=half + (1 << 20)).contains(&anon), "{a}: {anon} of {half}");
    match s.shmem_bytes() {
        Some(shmem) => {
            assert_eq!(anon + shmem, all, "{a}");
            assert!(shmem > half / 4, "{a}: {shmem} of {half}");
            assert_eq!(s.private_shmem_bytes(), Some(0), "{a}");
        }
        None => skip("swap of shared memory", "it needs root"),
    }
}

/// Compares parts of an object and private copies of its pages with smaps, page by page. If the
/// kernel reports copies (Linux 6.7), the sums must be equal. Otherwise they must be within the
/// bounds of the answer.
#[test]
fn swap_of_parts_of_shared_memory_is_that_of_smaps() {
    let _alone = SWAP_SPACE.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = match tempfile::tempdir_in(skips::target_dir()) {
        Ok(dir) => dir,
        Err(e) => {
            return skip(
                "swap_of_parts_of_shared_memory_is_that_of_smaps",
                &format!("no place for a swap file: {e}"),
            );
        }
    };
    let file = dir.path().join("swap");
    let Some(m) = Mktask::or_skip(
        "swap_of_parts_of_shared_memory_is_that_of_smaps",
        &["swap-parts", file.to_str().expect("a plain path")],
    ) else {
        return;
    };
    let (half, small) = (m.num::<u64>("half"), m.num::<u64>("small"));
    for source in engines_with(Group::Swap) {
        let a = read(source, &Request::one(m.pid(), Groups::SWAP)).expect("an answer");
        let view = a.snapshot.tasks().next().expect("the task");
        let s = view.record::<Swap>().expect("the group");
        let all = smaps_swap(m.pid());
        let anon = s.anon_bytes().expect("VmSwap");
        let (Some(shmem), Some(bound)) = (s.shmem_bytes(), s.private_shmem_bytes()) else {
            skip("swap of parts of shared memory", "it needs root");
            continue;
        };
        // The sum is the whole object, half of the long part, all of the short one, and the pages
        // of the private one that are not copies.
        assert!(shmem > half + half / 2 + small + half / 2, "{a}: {shmem} of {half}");
        if bound == 0 {
            assert_eq!(anon + shmem, all, "{a}");
        } else {
            skip("exact swap of a private writable mapping", "it needs PAGEMAP_SCAN of Linux 6.7");
            assert!(bound <= half, "{a}: {bound}");
            assert_eq!(anon + shmem - m.num::<u64>("copied"), all, "{a}");
        }
    }
}

fn smaps_swap(pid: u32) -> u64 {
    let smaps = std::fs::read_to_string(format!("/proc/{pid}/smaps")).expect("it lives");
    let kib = |l: &str| l.strip_prefix("Swap:")?.trim().strip_suffix(" kB")?.trim().parse().ok();
    smaps.lines().filter_map(kib).map(|n: u64| n * 1024).sum()
}
