//! Cgroups that the tests make themselves have the values of the kernel's own files.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use super::*;

/// A process in cgroups that this test has made, each in another hierarchy.
struct Made {
    name: String,
    dirs: Vec<PathBuf>,
    child: Option<Child>,
}

impl Made {
    /// A cgroup below the root of each hierarchy that lets us make one.
    fn new(what: &str) -> Option<Made> {
        let name = format!("taskdiag-test-{what}-{}", std::process::id());
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        // A process can only go to a cgroup of cpuset that has CPUs.
        let is_cgroup = |line: &&str| line.contains(" - cgroup") && !line.contains("cpuset");
        let points = mounts.lines().filter(is_cgroup).filter_map(|l| l.split(' ').nth(4));
        let dirs = points.map(|point| Path::new(point).join(&name));
        let dirs: Vec<PathBuf> = dirs.filter(|dir| fs::create_dir(dir).is_ok()).collect();
        (!dirs.is_empty()).then_some(Made { name, dirs, child: None })
    }
    fn path(&self) -> String {
        format!("/{}", self.name)
    }
    /// Writes to a file where a hierarchy has it. Was there one?
    fn write(&self, file: &str, text: &str) -> bool {
        self.dirs.iter().any(|d| d.join(file).exists() && fs::write(d.join(file), text).is_ok())
    }
    fn read(&self, file: &str) -> Option<String> {
        let text = self.dirs.iter().find_map(|d| fs::read_to_string(d.join(file)).ok())?;
        Some(text.trim().to_owned())
    }
    fn number(&self, file: &str) -> Option<u64> {
        self.read(file)?.parse().ok()
    }
    fn key(&self, file: &str, key: &str) -> Option<u64> {
        let text = self.read(file)?;
        text.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix(' ')?.parse().ok())
    }
    fn run(&mut self, command: &str) {
        let files: Vec<PathBuf> = self.dirs.iter().map(|d| d.join("cgroup.procs")).collect();
        let mut sh = Command::new("sh");
        sh.args(["-c", command]).stderr(std::process::Stdio::null());
        // SAFETY: the closure only writes to files, and no other thread has a lock that it needs.
        unsafe {
            sh.pre_exec(move || files.iter().try_for_each(|file| fs::write(file, "0")));
        }
        self.child = Some(sh.spawn().expect("sh starts"));
    }
    fn list(&self) -> Cgroups {
        let session = Session::new(Files::ALL, Bounds::default(), 0).expect("cgroups are mounted");
        let session = session.below([self.path().as_bytes()]).expect("a path");
        { session }.list().expect("read")
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        // Processes that it has started are in the same cgroups.
        for pid in self.read("cgroup.procs").unwrap_or_default().lines() {
            let pid = pid.parse().ok().and_then(rustix::process::Pid::from_raw);
            pid.map(|pid| rustix::process::kill_process(pid, rustix::process::Signal::KILL));
        }
        if let Some(mut child) = self.child.take() {
            let _ = child.wait();
        }
        for dir in &self.dirs {
            let begin = Instant::now();
            while fs::remove_dir(dir).is_err() && begin.elapsed() < Duration::from_secs(5) {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

fn wait(mut is_done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_done() {
        assert!(begin.elapsed() < Duration::from_secs(30), "it took too long");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn live_cgroups_have_the_values_of_the_kernel() {
    let Some(mut made) = Made::new("values") else { return skip("no cgroup can be made") };
    let is_limited =
        made.write("memory.max", "67108864") | made.write("memory.limit_in_bytes", "67108864");
    made.run("sleep 60 & exec sleep 60");
    wait(|| made.read("cgroup.procs").is_some_and(|t| t.lines().count() == 2));
    const FILES: [(&str, Member); 7] = [
        ("memory.current", Member::Memory),
        ("memory.usage_in_bytes", Member::Memory),
        ("memory.peak", Member::MemoryPeak),
        ("memory.max_usage_in_bytes", Member::MemoryPeak),
        ("pids.current", Member::Pids),
        ("cpu.weight", Member::CpuWeight),
        ("cpu.shares", Member::CpuShares),
    ];
    let numbers = || FILES.map(|(file, _)| made.number(file));
    // The values change while the programs start, so they are compared when they no longer do.
    let (mut all, mut values);
    let begin = Instant::now();
    loop {
        let before = numbers();
        all = made.list();
        values = numbers();
        let of = |(_, member)| find(&all, &made.path()).get(member).number();
        let is_at_rest = before == values
            && FILES.map(of).iter().zip(values).all(|(have, want)| want.is_none() || *have == want);
        if is_at_rest || begin.elapsed() > Duration::from_secs(30) {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let row = find(&all, &made.path());
    assert_eq!(row.processes(), Known::Number(2));
    assert_eq!(row.tasks(), Known::Number(2));
    if is_limited {
        assert_eq!(row.get(Member::MemoryMax), Known::Number(64 << 20));
    }
    let mut compared = 0;
    for (i, (file, member)) in FILES.into_iter().enumerate() {
        let Some(want) = values[i] else { continue };
        compared += 1;
        assert_eq!(row.get(member), Known::Number(want), "{file}");
    }
    if compared == 0 {
        skip("no controller is enabled, so no file has a number to compare");
    }
    let id = fs::metadata(&made.dirs[0]).map(|m| std::os::unix::fs::MetadataExt::ino(&m));
    assert!(made.dirs.len() > 1 || id.is_ok_and(|id| id == row.id()));
}

#[test]
fn live_cgroups_may_have_more_processes_than_a_page_has_lines() {
    let Some(mut made) = Made::new("many") else { return skip("no cgroup can be made") };
    // The text of the list is longer than a page, wherever ids begin.
    made.run("i=0; while [ $i -lt 1100 ]; do sleep 60 & i=$((i+1)); done; wait");
    let count = || made.read("cgroup.procs").map_or(0, |text| text.lines().count());
    wait(|| count() == 1101);
    assert_eq!(find(&made.list(), &made.path()).get(Member::Procs), Known::Number(1101));
    assert_eq!(find(&made.list(), &made.path()).tasks(), Known::Number(1101));
}

#[test]
fn live_throttling_is_counted() {
    let Some(mut made) = Made::new("throttle") else { return skip("no cgroup can be made") };
    let is_limited = made.write("cpu.max", "2000 20000") | made.write("cpu.cfs_period_us", "20000");
    let is_limited =
        is_limited && (made.read("cpu.max").is_some() || made.write("cpu.cfs_quota_us", "2000"));
    if !is_limited {
        return skip("no cgroup can limit CPU time here");
    }
    made.run("ulimit -t 20; while :; do :; done");
    wait(|| {
        made.key("cpu.stat", "nr_throttled").is_some_and(|n| n > 2) || {
            // In a hybrid, the first file is that of version 2.
            made.dirs.iter().any(|d| {
                let text = fs::read_to_string(d.join("cpu.stat")).unwrap_or_default();
                text.lines().any(|l| {
                    l.strip_prefix("nr_throttled ").is_some_and(|n| n.len() > 1 || n > "2")
                })
            })
        }
    });
    let least_us = made.key("cpu.stat", "throttled_usec");
    let least_ns = least_us.map(|us| us * 1_000).or_else(|| made.key("cpu.stat", "throttled_time"));
    let files = Files::CPU_STAT.union(Files::CPU_MAX);
    let session = Session::new(files, Bounds::default(), 64).expect("mounted");
    let mut session = session.below([made.path().as_bytes()]).expect("a path");
    let first = session.list().expect("read");
    let row = find(&first, &made.path());
    assert_eq!(row.get(Member::CpuQuota), Known::Number(2_000_000));
    assert_eq!(row.get(Member::CpuPeriod), Known::Number(20_000_000));
    let throttled_ns = row.get(Member::Throttled).number().expect("throttled");
    assert!(throttled_ns > 0 && throttled_ns >= least_ns.unwrap_or(0), "{row:?} {least_ns:?}");
    assert_eq!(row.growth(Member::CpuUsage), None);
    std::thread::sleep(Duration::from_millis(500));
    let second = session.list().expect("read");
    let row = find(&second, &made.path());
    let (grown, time) = row.growth(Member::CpuUsage).expect("two listings");
    // The cgroup may use a tenth of a CPU.
    assert!(grown > 0 && grown < time.as_nanos() as u64 / 3, "{grown} in {time:?}");
    assert!(row.growth(Member::Throttles).is_some_and(|g| g.0 > 0));
}

#[test]
fn a_live_oom_kill_is_counted() {
    let Some(mut made) = Made::new("oom") else { return skip("no cgroup can be made") };
    let limit = "16777216";
    if !(made.write("memory.max", limit) | made.write("memory.limit_in_bytes", limit)) {
        return skip("no cgroup can limit memory here");
    }
    let _ = made.write("memory.swap.max", "0") | made.write("memory.memsw.limit_in_bytes", limit);
    assert_eq!(find(&made.list(), &made.path()).get(Member::OomKills), Known::Number(0));
    made.run("dd if=/dev/zero of=/dev/null bs=256M count=1; sleep 60");
    let killed =
        || made.key("memory.events", "oom_kill").or(made.key("memory.oom_control", "oom_kill"));
    let begin = Instant::now();
    while killed() == Some(0) {
        if begin.elapsed() > Duration::from_secs(20) {
            return skip("this machine does not kill");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let row_of = made.list();
    let row = find(&row_of, &made.path());
    assert_eq!(row.get(Member::OomKills).number(), killed());
    let most = made.key("memory.events", "max").or(made.number("memory.failcnt"));
    assert_eq!(row.get(Member::EventsMax).number(), most);
    assert_eq!(row.get(Member::MemoryMax), Known::Number(16 << 20));
}

#[test]
fn a_session_sees_cgroups_come_and_go() {
    let Some(mut made) = Made::new("session") else { return skip("no cgroup can be made") };
    let session = Session::new(Files::ALL, Bounds::default(), 4096).expect("mounted");
    let mut session = session.below([made.path().as_bytes()]).expect("a path");
    let list = |session: &mut Session| session.list().expect("read");
    assert_eq!(list(&mut session).list().len(), 1);
    let open = session.open_descriptors();
    assert!(open > 3, "{open}");
    made.run("exec sleep 60");
    let inner: Vec<PathBuf> = made.dirs.iter().map(|d| d.join("inner")).collect();
    inner.iter().for_each(|d| fs::create_dir(d).expect("made"));
    wait(|| made.read("cgroup.procs").is_some_and(|t| !t.is_empty()));
    let all = list(&mut session);
    assert_eq!(paths(&all), [made.path(), made.path() + "/inner"]);
    assert_eq!(find(&all, &made.path()).get(Member::Procs), Known::Number(1));
    let id = find(&all, &(made.path() + "/inner")).id();
    assert!(session.open_descriptors() > open);
    // A new cgroup at the same path shows no values of the first.
    inner.iter().for_each(|d| fs::remove_dir(d).expect("it is empty"));
    inner.iter().for_each(|d| fs::create_dir(d).expect("made"));
    let all = list(&mut session);
    let again = find(&all, &(made.path() + "/inner"));
    assert!(again.id() != id && again.growth(Member::CpuUsage).is_none());
    assert_eq!(again.get(Member::Procs), Known::Number(0));
    inner.iter().for_each(|d| fs::remove_dir(d).expect("it is empty"));
    assert_eq!(list(&mut session).list().len(), 1);
    assert_eq!(session.open_descriptors(), open);
}

#[test]
fn a_cgroup_that_vanishes_is_no_error() {
    let Some(made) = Made::new("vanish") else { return skip("no cgroup can be made") };
    let dirs = made.dirs.clone();
    let end = Instant::now() + Duration::from_secs(1);
    let churn = std::thread::spawn(move || {
        let mut n = 0;
        while Instant::now() < end {
            for dir in &dirs {
                let inner = dir.join("gone");
                fs::create_dir(&inner).expect("made");
                fs::remove_dir(&inner).expect("it is empty");
            }
            n += 1;
        }
        n
    });
    let (mut listed, mut seen, mut half) = (0, 0, 0);
    while Instant::now() < end {
        let all = made.list();
        listed += 1;
        if let Some(gone) = all.list().iter().find(|c| c.name() == b"gone") {
            seen += 1;
            half += usize::from(Member::ALL.iter().any(|m| gone.get(*m) == VANISHED));
            assert!(gone.get(Member::Procs).number().is_none_or(|n| n == 0));
        }
    }
    let made = churn.join().expect("it ends");
    eprintln!("{listed} listings beside {made} cgroups: {seen} seen, {half} vanished meanwhile");
    assert!(listed > 5 && made > 5);
    if seen == 0 {
        skip("no listing has met a cgroup before it was removed");
    }
}
