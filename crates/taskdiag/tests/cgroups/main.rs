//! Cgroups from files: directories that are laid out like the kernel's show what each odd state
//! becomes.

#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../../../../tests/src/skips.rs"]
mod skips;

mod live;
mod saved;

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use taskdiag::Reason;
use taskdiag::cgroups::{Bounds, Cgroup, Cgroups, Files, Known, Member, Session};
use tempfile::TempDir;

const ABSENT: Known = Known::Missing(Reason::Absent);
const UNSUPPORTED: Known = Known::Missing(Reason::Unsupported);
/// The value if its file was not read.
const UNREAD: Known = ABSENT;
const VANISHED: Known = Known::Missing(Reason::Vanished);

/// A directory that is laid out like cgroups.
struct Laid(TempDir);

impl Laid {
    fn out(files: &[(&str, &str)]) -> Laid {
        let laid = Laid(tempfile::tempdir().expect("a temporary directory"));
        files.iter().for_each(|(path, text)| laid.put(path, text));
        laid
    }
    fn put(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().expect("below the root")).expect("made");
        fs::write(path, text).expect("written");
    }
    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }
    fn v2(&self) -> Session {
        self.bounded(Bounds::default())
    }
    fn bounded(&self, bounds: Bounds) -> Session {
        Session::at(Some(self.0.path()), &[], Files::ALL, bounds, 0).expect("it is there")
    }
    fn list(&self) -> Cgroups {
        self.v2().list().expect("it can be read")
    }
}

/// A root of version 2 with these controllers, as the kernel lays it out: without limits.
fn root(controllers: &str) -> Vec<(&'static str, String)> {
    vec![
        ("cgroup.controllers", controllers.to_owned() + "\n"),
        ("cgroup.procs", "1\n2\n".into()),
        ("cgroup.threads", "1\n2\n3\n".into()),
        ("cgroup.stat", "nr_descendants 2\nnr_dying_descendants 1\n".into()),
        ("cpu.stat", "usage_usec 900\nuser_usec 600\nsystem_usec 300\n".into()),
        ("memory.stat", "anon 8192\nfile 4096\nkernel 100\n".into()),
        ("cpu.pressure", "some avg10=0.50 avg60=0.00 avg300=0.00 total=1\n".into()),
    ]
}

fn laid_out(controllers: &str, more: &[(&str, &str)]) -> Laid {
    let laid = Laid::out(more);
    root(controllers).iter().for_each(|(path, text)| laid.put(path, text));
    laid
}

fn find<'a>(all: &'a Cgroups, path: &str) -> &'a Cgroup {
    let found = all.list().iter().find(|c| c.path() == path.as_bytes());
    found.unwrap_or_else(|| panic!("{path} is not in {:?}", paths(all)))
}

fn paths(all: &Cgroups) -> Vec<String> {
    all.list().iter().map(|c| String::from_utf8_lossy(c.path()).into_owned()).collect()
}

/// The files of a cgroup with all controllers.
const WHOLE: [(&str, &str); 18] = [
    ("a/cgroup.controllers", "cpu io memory pids\n"),
    ("a/cgroup.type", "domain\n"),
    ("a/cgroup.procs", "7\n8\n"),
    ("a/cgroup.threads", "7\n8\n9\n"),
    ("a/cgroup.events", "populated 1\nfrozen 0\n"),
    ("a/cgroup.freeze", "1\n"),
    ("a/cgroup.stat", "nr_descendants 0\nnr_dying_descendants 3\n"),
    (
        "a/cpu.stat",
        "usage_usec 5\nuser_usec 3\nsystem_usec 2\nnr_periods 9\nnr_throttled 4\nthrottled_usec 77\n",
    ),
    ("a/cpu.max", "50000 100000\n"),
    ("a/cpu.weight", "200\n"),
    ("a/memory.current", "1048576\n"),
    ("a/memory.max", "max\n"),
    ("a/memory.high", "2097152\n"),
    ("a/memory.events", "low 0\nhigh 1\nmax 2\noom 3\noom_kill 4\n"),
    ("a/memory.stat", "anon 1\nfile 2\nkernel 3\nshmem 4\nfile_dirty 5\n"),
    ("a/pids.current", "3\n"),
    ("a/pids.max", "max\n"),
    ("a/io.stat", "8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=5 dios=6\n"),
];

#[test]
fn values_are_those_of_the_files() {
    let all = laid_out("cpu io memory pids", &WHOLE).list();
    let a = find(&all, "/a");
    let number = |m| a.get(m).number();
    for (member, want) in [
        (Member::Procs, 2),
        (Member::Threads, 3),
        (Member::Type, 0),
        (Member::Populated, 1),
        (Member::Frozen, 0),
        (Member::Freeze, 1),
        (Member::Descendants, 0),
        (Member::Dying, 3),
        (Member::CpuUsage, 5000),
        (Member::Throttles, 4),
        (Member::Throttled, 77_000),
        (Member::CpuQuota, 50_000_000),
        (Member::CpuWeight, 200),
        (Member::Memory, 1 << 20),
        (Member::MemoryHigh, 2 << 20),
        (Member::EventsMax, 2),
        (Member::OomKills, 4),
        (Member::Kernel, 3),
        (Member::FileDirty, 5),
        (Member::Pids, 3),
        (Member::WriteBytes, 2),
    ] {
        assert_eq!(number(member), Some(want), "{member:?}");
    }
    assert_eq!(a.get(Member::MemoryMax), Known::Unlimited);
    assert_eq!(a.get(Member::PidsMax), Known::Unlimited);
    // The controllers are enabled, so this kernel is too old for these members.
    for member in [Member::MemoryPeak, Member::OomGroupKills, Member::PidsPeak] {
        assert_eq!(a.get(member), UNSUPPORTED, "{member:?}");
    }
    // The root has pressure of the CPU, and this cgroup not: it has been turned off.
    assert_eq!(a.get(Member::CpuSome), ABSENT);
    assert_eq!(a.get(Member::IoSome), UNSUPPORTED);
    assert!(a.is_of_version_2());
    assert_eq!((a.name(), a.level(), a.parent()), (&b"a"[..], 1, Some(0)));
}

#[test]
fn the_root_has_no_limits_and_sums_of_what_is_below() {
    let all = laid_out("cpu io memory pids", &WHOLE).list();
    let root = find(&all, "/");
    for member in [Member::Memory, Member::MemoryMax, Member::CpuQuota, Member::Throttled] {
        assert_eq!(root.get(member), ABSENT, "{member:?}");
    }
    assert_eq!(root.get(Member::Anon), Known::Number(8192));
    assert_eq!(root.get(Member::CpuSome10), Known::Number(50));
    // Its own three tasks, and the tasks that pids.current counts below.
    assert_eq!(root.tasks(), Known::Number(6));
    assert_eq!(root.processes(), Known::Number(4));
    assert_eq!((root.name(), root.level(), root.parent()), (&b"/"[..], 0, None));
}

#[test]
fn a_controller_that_is_not_enabled_is_not_zero() {
    let b = [
        ("b/cgroup.controllers", "pids\n"),
        ("b/cgroup.type", "domain\n"),
        ("b/cgroup.procs", ""),
        ("b/cpu.stat", "usage_usec 1\nuser_usec 1\nsystem_usec 0\n"),
    ];
    let all = laid_out("memory pids", &b).list();
    let b = find(&all, "/b");
    assert_eq!(b.get(Member::Memory), ABSENT);
    assert_eq!(b.get(Member::Throttles), ABSENT);
    assert_eq!(b.get(Member::Pids), UNSUPPORTED);
    // No hierarchy has the controller.
    assert_eq!(b.get(Member::ReadBytes), UNSUPPORTED);
    assert_eq!(b.get(Member::Procs), Known::Number(0));
}

#[test]
fn a_namespace_begins_at_a_cgroup_with_limits() {
    let laid = laid_out("memory", &[("cgroup.type", "domain\n"), ("memory.max", "4096\n")]);
    assert_eq!(find(&laid.list(), "/").get(Member::MemoryMax), Known::Number(4096));
}

#[test]
fn children_follow_their_parent_in_the_order_of_names() {
    let names = ["b", "b/x", "b-1", "b/x/y", "a", "b.service", "\u{1}"];
    let files: Vec<String> = names.iter().map(|n| format!("{n}/cgroup.procs")).collect();
    let files: Vec<_> = files.iter().map(|f| (f.as_str(), "")).collect();
    let all = laid_out("", &files).list();
    let want = ["/", "/\u{1}", "/a", "/b", "/b/x", "/b/x/y", "/b-1", "/b.service"];
    assert_eq!(paths(&all), want);
    let parents: Vec<_> = all.list().iter().map(Cgroup::parent).collect();
    assert_eq!(parents, [None, Some(0), Some(0), Some(0), Some(3), Some(4), Some(0), Some(0)]);
}

#[test]
fn names_are_any_bytes() {
    let laid = laid_out("", &[]);
    let names = [&b"\\x2d"[..], b"new\nline", b"\xff\xfe", b"\x1b[31m", b" ", b"a=b,c"];
    for name in names {
        fs::create_dir(laid.0.path().join(std::ffi::OsStr::from_bytes(name))).expect("made");
    }
    let all = laid.list();
    let got: std::collections::HashSet<_> = all.list().iter().skip(1).map(Cgroup::name).collect();
    assert_eq!(got, names.into_iter().collect());
}

#[test]
fn bounds_say_what_they_leave_out() {
    let laid = laid_out("", &[]);
    let deep = (0..12).fold(String::from("deep"), |path, _| path + "/d");
    fs::create_dir_all(laid.path(&deep)).expect("made");
    (0..30).for_each(|n| fs::create_dir(laid.path(&format!("w{n}"))).expect("made"));
    let mut bounds = Bounds::default();
    bounds.levels = 5;
    let all = laid.bounded(bounds).list().expect("read");
    assert_eq!((all.list().len(), all.left_out().deep, all.left_out().cgroups), (36, 1, 0));
    assert_eq!(find(&all, "/").processes(), Known::Missing(Reason::Truncated));
    let mut bounds = Bounds::default();
    bounds.cgroups = 20;
    let all = laid.bounded(bounds).list().expect("read");
    assert_eq!(all.list().len(), 20);
    assert!(all.left_out().cgroups >= 12, "{:?}", all.left_out());
    let mut bounds = Bounds::default();
    bounds.path_bytes = 20;
    let all = laid.bounded(bounds).list().expect("read");
    assert!(all.list().len() < 10 && all.left_out().cgroups > 20, "{:?}", all.left_out());
}

fn skip(why: &str) {
    let name = std::thread::current().name().unwrap_or("cgroups").to_owned();
    skips::skip(&name, why);
}

/// Cgroups of the system, deep in the tree, and of the users 1000 and 1001. The first user makes
/// hundreds of them, some with long names and some for other uids. `None`: only root can make them.
fn hostile() -> Option<Laid> {
    let laid = laid_out("", &[]);
    let make = |path: &str, uid: u32| {
        fs::create_dir_all(laid.path(path)).expect("made");
        std::os::unix::fs::chown(laid.path(path), Some(uid), None).is_ok()
    };
    let manager = |uid: u32| format!("user.slice/user-{uid}.slice/user@{uid}.service");
    if ![1000, 1001].into_iter().all(|uid| make(&manager(uid), uid)) {
        return None;
    }
    for n in 0..300 {
        let uid = if n % 3 == 0 { 100_000 + n } else { 1000 };
        make(&format!("{}/{}{n}", manager(1000), "x".repeat(n as usize % 200)), uid);
    }
    for n in 0..20 {
        make(&format!("{}/app.slice/a/b/c/{n}", manager(1001)), 1001);
        make(&format!("kubepods.slice/burstable/pod{n}/container/init.scope/a/b"), 0);
    }
    Some(laid)
}

/// The owner of each cgroup in the hostile tree, by its path.
fn owner_of(path: &str) -> u32 {
    let of = |uid: u32| path.contains(&format!("/user@{uid}.service/")).then_some(uid);
    of(1000).or(of(1001)).unwrap_or(0)
}

#[test]
fn a_user_with_many_shallow_cgroups_takes_no_room_from_deeper_ones_of_others() {
    let Some(laid) = hostile() else { return skip("only root can give directories to others") };
    let whole = laid.list();
    assert_eq!(whole.left_out_by_owner(), []);
    let of_others = |all: &Cgroups| -> Vec<String> {
        paths(all).into_iter().filter(|path| owner_of(path) != 1000).collect()
    };
    for cgroup in whole.list() {
        let path = String::from_utf8_lossy(cgroup.path());
        assert_eq!(cgroup.owner(), Some(owner_of(&path)), "{path}");
    }
    let others = of_others(&whole);
    let (all, mut bounds) = (whole.list().len(), Bounds::default());
    // There are over 100 of the system, 24 of one user and 300 of the other.
    assert!(all - others.len() == 300 && others.len() > 124, "{}", others.len());
    bounds.cgroups = 250;
    let few = laid.bounded(bounds).list().expect("read");
    assert_eq!(of_others(&few), others);
    assert_eq!(few.list().len(), 250);
    assert_eq!(few.left_out_by_owner(), [(1000, all as u64 - 250)]);
    assert_eq!(few.left_out().cgroups, all as u64 - 250);
    let remarks = few.remarks().join("; ");
    assert!(remarks.contains(&format!("({} of uid 1000)", all - 250)), "{remarks}");
    // If there is room for few, everybody has as many. Of each owner those near the root stay.
    bounds.cgroups = 60;
    let few = laid.bounded(bounds).list().expect("read");
    let count = |uid| few.list().iter().filter(|c| c.owner() == Some(uid)).count();
    assert_eq!([0, 1000, 1001].map(count).iter().sum::<usize>(), 60);
    let [system, users @ ..] = [0, 1000, 1001].map(count);
    assert!(system >= 20 && users.iter().all(|n| *n >= 14), "{system} {users:?}");
    assert!(paths(&few).contains(&String::from("/kubepods.slice/burstable")));
    // Long paths take no room either.
    bounds.cgroups = 1000;
    bounds.path_bytes = others.iter().map(String::len).sum::<usize>() * 3;
    let few = laid.bounded(bounds).list().expect("read");
    assert_eq!(of_others(&few), others);
    assert!(few.left_out_by_owner().iter().all(|(uid, n)| *uid == 1000 && *n > 50));
}

#[test]
fn paths_choose_a_part_and_cannot_leave_the_root() {
    let laid = laid_out("", &[("a/b/cgroup.procs", "5\n"), ("ab/cgroup.procs", "6\n")]);
    let below = |paths: &[&str]| {
        let session = laid.v2().below(paths.iter().map(|p| p.as_bytes()))?;
        { session }.list().map(|all| self::paths(&all))
    };
    assert_eq!(below(&["/a"]).expect("there"), ["/a", "/a/b"]);
    assert_eq!(below(&["a/b/", "ab"]).expect("there"), ["/a/b", "/ab"]);
    assert_eq!(below(&["/a/b", "/a", "/a"]).expect("there"), ["/a", "/a/b"]);
    assert_eq!(below(&["/"]).expect("there").len(), 4);
    for bad in ["..", "/a/../..", "a//b", "/a/.", "a/\0"] {
        assert!(below(&[bad]).is_err(), "{bad:?}");
    }
    let e = below(&["/nosuch"]).expect_err("it is not there").to_string();
    assert!(e.contains("/nosuch"), "{e}");
}

#[test]
fn values_of_version_1_come_from_its_own_files() {
    let memory = Laid::out(&[
        ("cgroup.procs", "1\n"),
        ("memory.usage_in_bytes", "9000\n"),
        ("memory.limit_in_bytes", "9223372036854771712\n"),
        ("c/cgroup.procs", "4\n"),
        ("c/tasks", "4\n5\n"),
        ("c/memory.usage_in_bytes", "4096\n"),
        ("c/memory.max_usage_in_bytes", "8192\n"),
        ("c/memory.limit_in_bytes", "65536\n"),
        ("c/memory.failcnt", "3\n"),
        ("c/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"),
        ("c/memory.stat", "cache 1\ntotal_rss 11\ntotal_cache 12\ntotal_swap 13\n"),
    ]);
    let cpu = Laid::out(&[
        ("c/cpu.cfs_quota_us", "-1\n"),
        ("c/cpu.cfs_period_us", "100000\n"),
        ("c/cpu.shares", "512\n"),
        ("c/cpu.stat", "nr_periods 1\nnr_throttled 2\nthrottled_time 3\n"),
        ("c/cpuacct.usage", "12345\n"),
        ("c/cpuacct.stat", "user 2\nsystem 1\n"),
        ("only_cpu/cgroup.procs", ""),
    ]);
    let v1 = [("cpu,cpuacct", cpu.0.path()), ("memory", memory.0.path())];
    let read = |v2: Option<&Path>| {
        Session::at(v2, &v1, Files::ALL, Bounds::default(), 0).and_then(|mut s| s.list())
    };
    let all = read(None).expect("read");
    assert_eq!(paths(&all), ["/", "/c", "/only_cpu"]);
    let c = find(&all, "/c");
    for (member, want) in [
        (Member::Memory, 4096),
        (Member::MemoryPeak, 8192),
        (Member::MemoryMax, 65536),
        (Member::EventsMax, 3),
        (Member::OomKills, 2),
        (Member::Anon, 11),
        (Member::File, 12),
        (Member::Swap, 13),
        (Member::CpuShares, 512),
        (Member::CpuPeriod, 100_000_000),
        (Member::Throttled, 3),
        (Member::CpuUsage, 12345),
        (Member::CpuUser, 20_000_000),
    ] {
        assert_eq!(c.get(member).number(), Some(want), "{member:?}");
    }
    assert_eq!(c.get(Member::CpuQuota), Known::Unlimited);
    assert_eq!(find(&all, "/").get(Member::MemoryMax), Known::Unlimited);
    // Version 1 has no such files.
    assert_eq!(c.get(Member::MemoryHigh), UNSUPPORTED);
    assert_eq!(c.get(Member::CpuSome), UNSUPPORTED);
    // The hierarchy of memory does not have this one.
    assert_eq!(find(&all, "/only_cpu").get(Member::Memory), ABSENT);
    assert!(!c.is_of_version_2() && all.has_version_1());

    // The first of both, where version 2 has no controllers.
    let v2 = laid_out(
        "",
        &[
            ("c/cgroup.procs", "4\n44\n"),
            ("c/cgroup.threads", "4\n44\n45\n"),
            ("c/cpu.stat", "usage_usec 1\n"),
        ],
    );
    let all = read(Some(v2.0.path())).expect("read");
    let c = find(&all, "/c");
    assert_eq!(c.get(Member::Memory), Known::Number(4096));
    assert_eq!(
        (c.get(Member::Procs), c.get(Member::CpuUsage)),
        (Known::Number(2), Known::Number(1000))
    );
    assert!(c.is_of_version_2() && !find(&all, "/only_cpu").is_of_version_2());
    // In version 2, the paths of all processes differ from those in the other hierarchies.
    assert_eq!(find(&all, "/").processes(), Known::Number(4));
    assert_eq!(find(&all, "/").tasks(), Known::Number(6));
}

#[test]
fn only_the_files_that_are_asked_for_are_read() {
    let laid = laid_out("cpu io memory pids", &WHOLE);
    let read = |files| {
        let session = Session::at(Some(laid.0.path()), &[], files, Bounds::default(), 0);
        session.and_then(|mut s| s.list()).expect("read")
    };
    let few = read(Files::CPU_WEIGHT);
    let a = find(&few, "/a");
    assert_eq!(a.get(Member::CpuWeight), Known::Number(200));
    assert_eq!((a.get(Member::Memory), a.tasks()), (Known::NotAsked, Known::NotAsked));
    assert!(few.syscalls() + 50 < read(Files::ALL).syscalls());
}

#[test]
fn a_session_opens_the_root_once() {
    let laid = laid_out("cpu memory", &[]);
    let bounds = Bounds::default();
    let mut session =
        Session::at(Some(laid.0.path()), &[], Files::PROCS, bounds, 64).expect("it is there");
    let calls = [(); 3].map(|()| session.list().expect("it can be read").syscalls());
    // fstat and pread, without an open.
    assert_eq!((calls[1], calls[2]), (2, 2), "{calls:?}");
    assert_eq!(session.open_descriptors(), 2);
}

#[test]
fn tasks_of_version_1_are_read_only_where_no_number_of_them_is_known() {
    let laid = Laid::out(&[
        ("cpu/a/tasks", "1\n2\n"),
        ("cpu/b/tasks", "3\n"),
        ("pids/a/tasks", "1\n2\n"),
        ("pids/a/pids.current", "7\n"),
    ]);
    let (cpu, pids) = (laid.path("cpu"), laid.path("pids"));
    let listed = |v1: &[(&str, &Path)]| {
        let session = Session::at(None, v1, Files::TASK_COUNT, Bounds::default(), 0);
        session.and_then(|mut s| s.list()).expect("it can be read")
    };
    let cpu = ("cpu", cpu.as_path());
    let both = [cpu, ("pids", pids.as_path())];
    let swapped = [both[1], both[0]];
    let (first, second) = (listed(&both), listed(&swapped));
    assert_eq!(first.syscalls(), second.syscalls());
    for all in [first, second] {
        assert_eq!(find(&all, "/a").tasks(), Known::Number(7));
        assert_eq!(find(&all, "/a").get(Member::Threads), UNREAD);
        assert_eq!(find(&all, "/b").tasks(), Known::Number(1));
    }
    assert_eq!(find(&listed(&[cpu]), "/a").tasks(), Known::Number(2));
}

#[test]
fn files_that_may_not_be_read_are_denied() {
    let laid = laid_out("cpu memory", &WHOLE);
    fs::create_dir(laid.path("closed")).expect("made");
    let close = |path: &str| {
        use std::os::unix::fs::PermissionsExt as _;
        fs::set_permissions(laid.path(path), fs::Permissions::from_mode(0o0)).expect("changed");
    };
    close("a/memory.current");
    close("closed");
    if rustix::process::geteuid().is_root() {
        // Root may read everything, so a thread without its rights looks.
        use std::os::unix::fs::PermissionsExt as _;
        fs::set_permissions(laid.0.path(), fs::Permissions::from_mode(0o755)).expect("changed");
        let dropped = std::thread::scope(|s| {
            let work = s.spawn(|| {
                let no = u32::MAX;
                // SAFETY: the call takes plain numbers, and changes the ids of this thread only.
                assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, no, 65534_u32, no) }, 0);
                laid.list()
            });
            work.join().expect("it lists")
        });
        assert_denied(&dropped);
    } else {
        assert_denied(&laid.list());
    }
}

fn assert_denied(all: &Cgroups) {
    let denied = Known::Missing(Reason::Denied);
    let (a, closed) = (find(all, "/a"), find(all, "/closed"));
    assert_eq!((a.get(Member::Memory), a.get(Member::CpuWeight)), (denied, Known::Number(200)));
    assert_eq!((closed.get(Member::CpuUsage), closed.get(Member::Procs)), (denied, denied));
    // The sum is not known without it.
    assert_eq!(find(all, "/").processes(), denied);
}

#[cfg(feature = "view")]
#[test]
fn each_column_has_a_value_of_its_type_and_needs_the_files_that_it_names() {
    use std::collections::HashSet;
    use taskdiag::field::{CGROUPS, Missing, Value};
    use taskdiag::view::{CgroupRows, Query, Rows as _};

    let more = [
        ("a/memory.peak", "9\n"),
        ("a/memory.min", "0\n"),
        ("a/memory.low", "max\n"),
        ("a/memory.swap.current", "1\n"),
        ("a/memory.swap.max", "max\n"),
        ("a/pids.peak", "9\n"),
        ("a/memory.events", "low 0\nhigh 1\nmax 2\noom 3\noom_kill 4\noom_group_kill 5\n"),
        (
            "a/memory.stat",
            "anon 1\nfile 2\nkernel 3\nslab 1\nsock 1\nshmem 4\nfile_mapped 1\nfile_dirty 5\n\
             file_writeback 1\npgfault 7\npgmajfault 8\n",
        ),
    ];
    let laid = laid_out("cpu io memory pids", &[&WHOLE[..], &more].concat());
    for name in ["cpu.pressure", "memory.pressure", "io.pressure"] {
        let text = "some avg10=1.00 avg60=0 avg300=0 total=1\nfull avg10=0.50 total=1\n";
        laid.put(name, text);
        laid.put(&format!("a/{name}"), text);
    }
    let v1 = Laid::out(&[("a/cpu.shares", "1024\n")]);
    let read = |files| {
        let (v2, v1) = (Some(laid.0.path()), [("cpu", v1.0.path())]);
        Session::at(v2, &v1, files, Bounds::default(), 64).expect("it is there")
    };
    let mut seen = HashSet::new();
    let mut session = read(Files::ALL);
    session.list().expect("read");
    // Rates have values from the second listing on.
    std::thread::sleep(Duration::from_millis(2));
    let all = session.list().expect("read");
    let query = Query::new(&CGROUPS, CGROUPS.own());
    let rows = CgroupRows::new(&query, &all).expect("rows");
    let done = rows.each(&mut |item| {
        for (c, field) in CGROUPS.own().enumerate() {
            let (is, value) = (field.data_type(), item.value(rows.cx(), field, c));
            assert!(is.admits(&value), "{} is {is:?}, and has {value:?}", field.name);
            assert!(field.is_limit() || value != Value::Unlimited, "{}", field.name);
            if value.missing().is_none() {
                seen.insert(field.name);
            }
        }
        Ok(())
    });
    done.expect("nothing is written");
    // The paths are of no container, and without a limit there is no share of it.
    let rare = ["unit", "container", "runtime", "memory_share"];
    let is_rare = |n: &str| {
        rare.contains(&n) || ["container_", "image", "pod"].iter().any(|s| n.starts_with(s))
    };
    let never = CGROUPS.own().map(|f| f.name).filter(|n| !seen.contains(n) && !is_rare(n));
    assert_eq!(never.collect::<Vec<_>>(), [""; 0]);
    for field in CGROUPS.own() {
        let all = read(field.cgroup_files).list().expect("read");
        let query = Query::new(&CGROUPS, [field]);
        let rows = CgroupRows::new(&query, &all).expect("rows");
        let done = rows.each(&mut |item| {
            let why = item.value(rows.cx(), field, 0).missing();
            assert_ne!(why, Some(Missing::NotAsked), "{} does not name its files", field.name);
            Ok(())
        });
        done.expect("nothing is written");
    }
}
