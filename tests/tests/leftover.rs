//! Tests that a request leaves no descriptor, thread or BPF object behind, and that a bpf request
//! makes no inode in /proc. This is one test, so that none of its parts runs next to another.

use std::collections::BTreeSet;
use std::time::Duration;

use taskdiag::{Choice, EngineId, Groups, Request, Strategy, query_with};
use taskdiag_tests::answer::groups_of;
use taskdiag_tests::busy::Patience;
use taskdiag_tests::{Mktask, Source, engines, read, skip};

const BPF: Source = Source::Engine(EngineId::Bpf);
const PROCFS: Source = Source::Engine(EngineId::Procfs);

fn count(dir: &str) -> usize {
    std::fs::read_dir(dir).expect("it is there").count()
}

/// Waits until there are this many. They may go a moment later: on a slow machine, a thread may be
/// abandoned as stuck. It ends when its read ends, and then closes its files.
fn settles(dir: &str, want: usize, what: &str) {
    let mut wait = Patience::new(Duration::from_secs(10));
    while count(dir) != want && !wait.is_over() {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(
        count(dir),
        want,
        "{what}; the threads of this process:\n{}",
        states_of_our_threads()
    );
}

/// Describes what each thread of this process does, for people.
fn states_of_our_threads() -> String {
    let read = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap_or_default();
    let tasks = std::fs::read_dir("/proc/self/task").expect("it is there");
    let tell = |dir: std::path::PathBuf| {
        let of = ["stat", "wchan", "syscall", "stack"].map(|name| read(dir.join(name)));
        of.map(|text| text.trim_end().replace('\n', "\n    ")).join("\n    ")
    };
    tasks.flatten().map(|t| tell(t.path())).collect::<Vec<_>>().join("\n")
}

/// The ids of all BPF programs, maps and links of the machine, or `None` without the right to ask.
fn bpf_objects() -> Option<BTreeSet<(u32, u32)>> {
    /// The part of `union bpf_attr` that the GET_NEXT_ID commands use.
    #[repr(C)]
    struct Attr {
        start_id: u32,
        next_id: u32,
        open_flags: u32,
    }
    let mut found = BTreeSet::new();
    // BPF_PROG_GET_NEXT_ID, BPF_MAP_GET_NEXT_ID, BPF_LINK_GET_NEXT_ID
    for command in [11u32, 12, 31] {
        let mut attr = Attr { start_id: 0, next_id: 0, open_flags: 0 };
        loop {
            let size = size_of::<Attr>();
            // SAFETY: the pointer is to `size` bytes of ours.
            let rc = unsafe { libc::syscall(libc::SYS_bpf, command, &mut attr, size) };
            if rc != 0 {
                match std::io::Error::last_os_error().raw_os_error() {
                    Some(libc::ENOENT) => break,
                    _ => return None,
                }
            }
            found.insert((command, attr.next_id));
            attr.start_id = attr.next_id;
        }
    }
    Some(found)
}

/// The number of objects in `proc_inode_cache`.
fn proc_inodes() -> Option<i64> {
    let text = std::fs::read_to_string("/proc/slabinfo").ok()?;
    let line = text.lines().find(|l| l.starts_with("proc_inode_cache"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// The number of inodes of /proc after the objects of recently ended processes have gone.
fn settled_proc_inodes() -> i64 {
    let now = || proc_inodes().expect("it was readable");
    let mut last = now();
    for _ in 0..8 {
        std::thread::sleep(Duration::from_millis(40));
        let n = now();
        if n == last {
            break;
        }
        last = n;
    }
    last
}

#[test]
fn nothing_is_left_behind() {
    // This comes before the first request, because the kernel shows a thread for a moment after it
    // was waited for.
    let threads = count("/proc/self/task");
    let m = Mktask::start(&["family", "40"]).expect("always possible");
    for engine in engines() {
        objects(*engine, &m, threads);
    }
    inodes();
}

/// Other programs load BPF programs, too, and may keep them. Those programs are loaded once, but
/// leftovers of our requests would appear in each round.
const ROUNDS: usize = 4;

fn objects(engine: Source, m: &Mktask, threads: usize) {
    let mut all = Vec::new();
    loop {
        let left = objects_left(engine, m, threads);
        // Memory that is kept since the first round is not new in later rounds, but it would be
        // mapped here.
        let maps = std::fs::read_to_string("/proc/self/maps").expect("it is there");
        let mapped: Vec<&str> = maps.lines().filter(|l| l.contains("bpf")).collect();
        assert!(mapped.is_empty(), "after {engine}: {mapped:?}");
        if left.is_empty() {
            return;
        }
        all.push(left);
        assert!(all.len() < ROUNDS, "BPF objects (command, id) after {engine}: {all:?}");
    }
}

/// Makes requests, and returns the new BPF objects that do not go away.
fn objects_left(engine: Source, m: &Mktask, threads: usize) -> BTreeSet<(u32, u32)> {
    let groups = groups_of(engine);
    settles("/proc/self/task", threads, &format!("threads before {engine}"));
    let before_objects = bpf_objects();
    // A thread that ends may have files open for a moment more.
    let fds = count("/proc/self/fd");
    for strategy in Strategy::ALL {
        let pid = if strategy.takes_pid() { m.pid() } else { 0 };
        let req = Request::new(*strategy, pid, groups);
        for _ in 0..3 {
            engine.query(&req).unwrap_or_else(|e| panic!("{engine}/{strategy}: {e}"));
            query_with(&req, Choice::Auto).unwrap_or_else(|e| panic!("auto/{strategy}: {e}"));
        }
        // Errors leave nothing behind either.
        // The kernel has no pid of 4194304 or more.
        let bad = Request::one(4_194_304, groups);
        assert!(engine.query(&bad).is_err());
        settles("/proc/self/fd", fds, &format!("descriptors after {engine}/{strategy}"));
    }
    settles("/proc/self/task", threads, &format!("threads after {engine}"));
    let Some(before) = before_objects else {
        skip("BPF objects that are left", "no right to list them");
        return BTreeSet::new();
    };
    // The kernel frees objects a moment later, and other programs may make some. The objects that
    // exist now must go, and later objects are not ours.
    let mut left = &bpf_objects().expect("as before") - &before;
    let mut wait = Patience::new(Duration::from_secs(10));
    while !left.is_empty() && !wait.is_over() {
        std::thread::sleep(Duration::from_millis(50));
        left = &left & &bpf_objects().expect("as before");
    }
    left
}

/// A request on the bpf engine makes no inode in /proc. A request on procfs makes some, which shows
/// that the measurement works.
fn inodes() {
    let name = "/proc inodes of a request";
    if !engines().contains(&BPF) {
        return skip(name, "the bpf engine does not work here");
    }
    if proc_inodes().is_none() {
        return skip(name, "/proc/slabinfo cannot be read");
    }
    let growth = |engine: Source| {
        // No process has looked at these tasks in /proc yet.
        let fresh = Mktask::start(&["family", "200"]).expect("always possible");
        let before = settled_proc_inodes();
        let req = Request::all(Groups::BASE | Groups::STATM | Groups::CMDLINE);
        let a = read(engine, &req).expect("an answer");
        let after = proc_inodes().expect("as before");
        a.task(fresh.pid());
        after - before
    };
    // Others read /proc, too, so the least of several values is the cost of the request.
    let procfs = (0..4).map(|_| growth(PROCFS)).min().expect("4");
    if procfs < 100 {
        let why = format!("200 new processes on procfs make {procfs} more: not to be measured");
        return skip(name, &why);
    }
    // On a busy machine, other processes cause some growth nearly each time. Growth by a request
    // would come each time.
    let mut patience = Patience::new(Duration::from_secs(20));
    let mut all = Vec::new();
    loop {
        all.push(growth(BPF));
        if all.last() <= Some(&0) {
            return;
        }
        assert!(
            !patience.is_over() || all.len() < 4,
            "bpf requests made {all:?} inodes in /proc (one on procfs {procfs})"
        );
    }
}
