//! The memory groups of the procfs engine, against the kernel's own text read by another parser.

use std::collections::HashMap;
use std::fs;
use std::num::NonZeroU64;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use taskdiag::engine::procfs::Procfs;
use taskdiag::{
    Choice, Engine, EngineId, FdCount, Group, Groups, Limits, Reason, Request, Rollup, Signals,
    Snapshot, Vma, VmaKind, VmaStat, Watch, query_each,
};

fn ask(req: &Request) -> Snapshot {
    Snapshot::parse(Procfs::new().unwrap().run(req).unwrap().stream).unwrap()
}

/// A process that does nothing.
struct Sleeping(Child);
impl Sleeping {
    fn start() -> Sleeping {
        let child = Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().unwrap();
        let exe = |pid| fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        let wchan = |pid| fs::read_to_string(format!("/proc/{pid}/wchan")).unwrap_or_default();
        while exe(child.id()) == exe(std::process::id()) || !wchan(child.id()).contains("nanosleep")
        {
            std::thread::sleep(Duration::from_millis(1));
        }
        Sleeping(child)
    }
}
impl Drop for Sleeping {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The lines of maps, made again from the records.
fn maps_text(s: &Snapshot) -> String {
    let t = s.tasks().next().unwrap();
    let mut out = String::new();
    for v in t.list::<Vma>().unwrap() {
        let perm = |bit, c| if v.perms().unwrap() & bit != 0 { c } else { '-' };
        let shared = if v.perms().unwrap() & 8 != 0 { 's' } else { 'p' };
        let (dev, kind) = (v.dev().unwrap(), VmaKind::from_number(v.kind().unwrap()).unwrap());
        let name = match (kind, v.name().unwrap()) {
            (VmaKind::Heap | VmaKind::Stack | VmaKind::Vdso, _) => format!("[{kind}]"),
            (_, 0) => String::new(),
            (_, n) => {
                let b = t.name(n).unwrap();
                let text = String::from_utf8(b.data.into_owned()).unwrap();
                text + if b.flags != 0 { " (deleted)" } else { "" }
            }
        };
        let head = format!(
            "{:08x}-{:08x} {}{}{}{} {:08x} {:02x}:{:02x} {}",
            v.start().unwrap(),
            v.end().unwrap(),
            perm(1, 'r'),
            perm(2, 'w'),
            perm(4, 'x'),
            shared,
            v.offset_bytes().unwrap(),
            dev >> 8 & 0xfff,
            dev & 0xff | dev >> 12 & 0xfff00,
            v.inode().unwrap(),
        );
        out += &if name.is_empty() { format!("{head} \n") } else { format!("{head:<73}{name}\n") };
    }
    out
}

#[test]
fn mappings_are_those_of_maps() {
    let child = Sleeping::start();
    let pid = child.0.id();
    for groups in [Groups::VMA, Groups::VMA | Groups::VMA_STAT] {
        let s = ask(&Request::one(pid, groups));
        assert_eq!(maps_text(&s), fs::read_to_string(format!("/proc/{pid}/maps")).unwrap());
    }
}

/// `Key: N kB` lines summed by key, in bytes.
fn keys(text: &str) -> HashMap<String, u64> {
    let mut sums = HashMap::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        if let (Some(key), Some(n), Some("kB")) = (words.next(), words.next(), words.next()) {
            *sums.entry(key.trim_end_matches(':').to_string()).or_insert(0) +=
                n.parse::<u64>().unwrap() * 1024;
        }
    }
    sums
}

#[test]
fn sums_are_those_of_smaps() {
    let child = Sleeping::start();
    let pid = child.0.id();
    let groups = Groups::VMA | Groups::VMA_STAT | Groups::ROLLUP;
    let read = || fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap();
    // Processes that begin or stop mapping the same files change the shares of a page. One that
    // does both between two readings changes only our sums. So only a lasting difference counts.
    let quiet = || {
        let (before, s) = (read(), ask(&Request::one(pid, groups)));
        (read() == before).then_some((s, before))
    };
    let agrees = |(s, text): &(Snapshot, String)| {
        let t = s.tasks().next().unwrap();
        let pss = t.list::<VmaStat>().unwrap().map(|e| e.raw.pss_bytes).sum::<u64>();
        pss == keys(text)["Pss"]
    };
    let mut last = None;
    // On a machine where other processes start all the time, no moment is quiet.
    for _ in 0..5_000 {
        last = quiet().or(last);
        if last.as_ref().is_some_and(agrees) {
            break;
        }
    }
    let (s, text) = last.expect("a quiet moment");
    let (t, sums) = (s.tasks().next().unwrap(), keys(&text));
    let total =
        |f: fn(&VmaStat) -> u64| t.list::<VmaStat>().unwrap().map(|e| f(e.raw)).sum::<u64>();
    assert_eq!(total(|v| v.rss_bytes), sums["Rss"]);
    assert_eq!(total(|v| v.pss_bytes), sums["Pss"]);
    assert_eq!(total(|v| v.private_dirty_bytes), sums["Private_Dirty"]);
    assert_eq!(total(|v| v.shared_clean_bytes), sums["Shared_Clean"]);
    assert_eq!(total(|v| v.anonymous_bytes), sums["Anonymous"]);
    assert!(sums["Rss"] > 0 && sums["Anonymous"] > 0);
    assert_eq!(t.list::<Vma>().unwrap().count(), t.list::<VmaStat>().unwrap().count());
    let r = t.record::<Rollup>().unwrap();
    assert_eq!(r.rss_bytes(), Some(sums["Rss"]));
    assert!(r.pss_bytes().unwrap().abs_diff(sums["Pss"]) < 1024 * 100, "it rounds once");
    assert!(r.pss_anon_bytes().unwrap() > 0);
    let flags: Option<Vec<u32>> = t.list::<Vma>().unwrap().map(|v| v.flags()).collect();
    assert!(flags.unwrap().iter().any(|f| *f != 0));
}

#[test]
fn limits_of_the_request_leave_out_sums_over_pages() {
    let child = Sleeping::start();
    let groups = Groups::VMA | Groups::VMA_STAT | Groups::ROLLUP;
    let req = Request::one(child.0.id(), groups);
    let small = req.clone().with_max_rss(NonZeroU64::new(4096).unwrap());
    let large = req.clone().with_max_rss(NonZeroU64::new(1 << 40).unwrap());
    let no_time = req.clone().with_budget(Duration::ZERO);
    let time = req.with_budget(Duration::from_secs(100));
    for (req, reason) in [
        (small, Some(Reason::OverBudget)),
        (no_time, Some(Reason::OverBudget)),
        (large, None),
        (time, None),
    ] {
        let s = ask(&req);
        let t = s.tasks().next().unwrap();
        assert_eq!((t.reason(Group::VmaStat), t.reason(Group::Rollup)), (reason, reason));
        assert_eq!(t.list::<VmaStat>().is_none(), reason.is_some());
        assert!(t.list::<Vma>().is_some(), "the list of mappings is not limited");
        assert_eq!(s.stream().done().over_budget, u64::from(reason.is_some()));
    }
}

/// A budget covers all requests together. If no walk fits, none starts.
#[test]
fn a_budget_is_for_several_processes_together() {
    let children = [Sleeping::start(), Sleeping::start(), Sleeping::start()];
    for group in [Group::Rollup, Group::VmaStat] {
        let reasons = |budget| {
            let one = |c: &Sleeping| {
                Request::one(c.0.id(), Groups::BASE | group.into()).with_budget(budget)
            };
            let requests: Vec<Request> = children.iter().map(one).collect();
            let (s, gone) = query_each(&requests, Choice::Only(EngineId::Procfs)).unwrap();
            assert_eq!((s.tasks().len(), gone.len()), (3, 0));
            s.tasks().map(|t| t.reason(group)).collect::<Vec<_>>()
        };
        let over = Some(Reason::OverBudget);
        assert_eq!(reasons(Duration::from_secs(100)), [None; 3], "{group}");
        assert_eq!(reasons(Duration::from_micros(1)), [over; 3], "{group}");
        // Enough to start a walk, and too little to finish it.
        let few = reasons(Duration::from_micros(11));
        assert_eq!(few[1..], [over; 2], "{group}");
    }
}

#[test]
fn threads_share_and_the_list_is_there_once() {
    let barrier = std::sync::Barrier::new(11);
    std::thread::scope(|scope| {
        for _ in 0..10 {
            scope.spawn(|| {
                barrier.wait();
                barrier.wait();
            });
        }
        barrier.wait();
        let groups = Groups::VMA | Groups::ROLLUP | Groups::FD_COUNT;
        let s = ask(&Request::threads(std::process::id(), groups));
        barrier.wait();
        let first = s.tasks().next().unwrap();
        for g in groups.iter() {
            let has = s.tasks().filter(|t| t.shared(g).is_none() && t.reason(g).is_none());
            assert_eq!(has.map(|t| t.pid()).collect::<Vec<_>>(), [first.pid()], "{g}");
            assert!(s.tasks().skip(1).all(|t| t.shared(g) == Some(first.pid())), "{g}");
        }
        assert!(s.tasks().len() >= 11);
        assert!(first.list::<Vma>().unwrap().count() > 10);
    });
}

#[test]
fn names_are_in_the_answer_once() {
    let _children = [Sleeping::start(), Sleeping::start()];
    let s = ask(&Request::all(Groups::VMA));
    let mut seen = HashMap::new();
    for n in s.stream().name_numbers() {
        assert_eq!(n >> 28, 3);
        let b = s.stream().name(n).unwrap();
        assert_eq!(seen.insert((b.data, b.flags), n), None);
    }
    let libc = |t: &taskdiag::TaskView<'_>| {
        let mut names = t.list::<Vma>()?.filter_map(|v| v.name());
        names.find(|n| t.name(*n).is_some_and(|b| b.data.windows(5).any(|w| w == b"libc.")))
    };
    let numbers: Vec<u32> = _children
        .iter()
        .map(|c| libc(&s.tasks().find(|t| t.pid() == c.0.id()).unwrap()).unwrap())
        .collect();
    assert_eq!(numbers[0], numbers[1]);
    // Each number that is used has its name.
    for t in s.tasks() {
        for v in t.list::<Vma>().into_iter().flatten() {
            assert!(v.raw.name == 0 || t.name(v.raw.name).is_some());
        }
    }
}

#[test]
fn short_groups_are_those_of_their_files() {
    let child = Sleeping::start();
    let pid = child.0.id();
    let groups = Groups::ENVIRON
        | Groups::LIMITS
        | Groups::SIGNALS
        | Groups::WCHAN
        | Groups::KSTACK
        | Groups::FD_COUNT;
    let s = ask(&Request::one(pid, groups));
    let t = s.tasks().next().unwrap();
    assert_eq!(t.environ().unwrap().data, fs::read(format!("/proc/{pid}/environ")).unwrap());
    let l = t.record::<Limits>().unwrap();
    let mut want = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a valid place for the answer.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut want) }, 0);
    let at = libc::RLIMIT_NOFILE as usize;
    assert_eq!((l.soft().unwrap()[at], l.hard().unwrap()[at]), (want.rlim_cur, want.rlim_max));
    assert_eq!(t.record::<Signals>().unwrap().raw().valid, Signals::ALL_VALID);
    assert!(t.wchan().unwrap().data.ends_with(b"nanosleep"));
    let fds = t.record::<FdCount>().unwrap();
    let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    assert_eq!(fds.open(), Some(open as u32));
    assert!(fds.size().is_some_and(|size| size as usize >= open));
    match (fs::read(format!("/proc/{pid}/stack")), t.kstack()) {
        (Ok(want), Some(b)) => assert_eq!(b.data, want),
        (Err(_), None) => assert!(t.reason(Group::Kstack).is_some()),
        other => panic!("{other:?}"),
    }
    // A process that has ended has no memory.
    let mut child = child;
    child.0.kill().unwrap();
    while !fs::read_to_string(format!("/proc/{pid}/stat")).unwrap().contains(") Z ") {
        std::thread::sleep(Duration::from_millis(1));
    }
    let none = Groups::ENVIRON | Groups::VMA | Groups::ROLLUP | Groups::VMA_STAT;
    let s = ask(&Request::one(pid, none));
    for g in none.iter() {
        // Files of a process without memory belong to root; other users may not open some of them.
        let refused = g == Group::Environ
            && fs::File::open(format!("/proc/{pid}/environ"))
                .is_err_and(|e| e.kind() == std::io::ErrorKind::PermissionDenied);
        let why = if refused { Reason::Denied } else { Reason::Absent };
        assert_eq!(s.tasks().next().unwrap().reason(g), Some(why), "{g}");
    }
}

#[test]
fn a_watched_request_counts_and_can_be_stopped() {
    let (counts, stopped) = (Arc::new(Watch::new()), Arc::new(Watch::new()));
    stopped.stop();
    for groups in [Groups::BASE, Groups::BASE | Groups::VMA] {
        let before = counts.progress();
        let s = ask(&Request::all(groups).with_watch(counts.clone()));
        let now = counts.progress();
        assert!(now.0 - before.0 >= s.tasks().len() as u64 && now.1 > before.1);
        assert_eq!(s.stream().done().error, 0);
        let s = ask(&Request::all(groups).with_watch(stopped.clone()));
        assert_eq!((s.tasks().len(), s.stream().done().error), (0, -libc::EINTR));
    }
}
