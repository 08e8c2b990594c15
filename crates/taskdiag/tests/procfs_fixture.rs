//! The procfs engine on directory trees that imitate /proc: odd content whose answer is known.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use taskdiag::engine::procfs::Procfs;
use taskdiag::wire::{BLOB_CUT, BLOB_REWRITTEN, STAT_LOCKED, TASK_EXITING, TASK_KTHREAD};
use taskdiag::{
    Base, Cgroup, Cred, Engine, Error, Group, Groups, Io, Members, Ns, PathKind, Reason, Request,
    Sched, Snapshot, Stat, Statm,
};
use tempfile::TempDir;

/// A tree like /proc.
struct Proc {
    dir: TempDir,
}

impl Proc {
    fn new() -> Proc {
        Proc { dir: tempfile::tempdir().unwrap() }
    }
    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }
    fn file(&self, path: &str, data: impl AsRef<[u8]>) -> &Proc {
        fs::create_dir_all(self.path(path).parent().unwrap()).unwrap();
        fs::write(self.path(path), data).unwrap();
        self
    }
    fn link(&self, path: &str, target: impl AsRef<Path>) -> &Proc {
        fs::create_dir_all(self.path(path).parent().unwrap()).unwrap();
        symlink(target, self.path(path)).unwrap();
        self
    }
    /// A stat file, for a process or (`PID/task/TID`) a thread.
    fn stat(&self, task: &str, comm: &[u8], state: char, ppid: u32, flags: u32) -> &Proc {
        let head = format!("{} (", task.rsplit('/').next().unwrap());
        let tail = format!(
            ") {state} {ppid} 3 4 0 -1 {flags} 1 2 3 4 5 6 7 8 20 0 2 0 100 0 0 0 0 0 0 0 0 0 0 0 \
             0 0 0 0 17 1 0 0 0 0 0 0 0 0 1000 1010 1010 1020 0\n"
        );
        self.file(&format!("{task}/stat"), [head.as_bytes(), comm, tail.as_bytes()].concat())
    }
    fn ask(&self, req: &Request) -> Snapshot {
        let answer = Procfs::with_root(self.dir.path()).unwrap().run(req).unwrap();
        assert!(answer.cost.syscalls > 0);
        Snapshot::parse(answer.stream).unwrap()
    }
    fn fails(&self, req: &Request) -> Error {
        Procfs::with_root(self.dir.path()).unwrap().run(req).unwrap_err()
    }
}

fn pids(s: &Snapshot) -> Vec<(u32, u32)> {
    s.tasks().map(|t| (t.tgid(), t.pid())).collect()
}

const STATUS: &str = "Name:\tx\nTgid:\t7\nPid:\t7\nTracerPid:\t0\nUid:\t1\t2\t3\t4\n\
    Gid:\t5\t6\t7\t8\nGroups:\t9 10 \nNSpid:\t7\t1\nVmSize:\t  40 kB\nVmRSS:\t  8 kB\nThreads:\t2\n\
    CapEff:\t0000000000000001\nvoluntary_ctxt_switches:\t10\nnonvoluntary_ctxt_switches:\t20\n";

#[test]
fn every_group_of_a_plain_process_is_read() {
    let p = Proc::new();
    p.stat("7", b"x", 'S', 1, 0x400000)
        .file("7/status", STATUS)
        .file("7/cmdline", "0123456\0\0\0")
        .link("7/exe", "/bin/x")
        .link("7/cwd", "/home")
        .link("7/root", "/")
        .file("7/io", "rchar: 1\nwchar: 2\n")
        .link("7/ns/mnt", "mnt:[4026531832]")
        .link("7/ns/user", "user:[4026531837]")
        .file("7/schedstat", "100 200 3\n")
        .file("7/task/7/schedstat", "100 200 3\n")
        .file("7/task/7/status", STATUS)
        .file("7/task/8/schedstat", "1000 2000 30\n")
        .file("7/task/8/status", STATUS)
        .file("7/cgroup", "2:cpu:/a\n0::/here\n");
    // A cgroup v2 mount, with the device number that it has.
    let dir = p.path("cg mount/here");
    fs::create_dir_all(&dir).unwrap();
    let meta = fs::metadata(&dir).unwrap();
    let (major, minor) = (rustix::fs::major(meta.dev()), rustix::fs::minor(meta.dev()));
    let point = p.path("cg\\040mount");
    let mount = format!("41 31 {major}:{minor} / {} rw - cgroup2 cgroup2 rw\n", point.display());
    p.file("self/mountinfo", mount);

    let groups = taskdiag::engine::GROUPS;
    let s = p.ask(&Request::all(groups));
    assert_eq!(pids(&s), [(7, 7)]);
    assert_eq!(s.stream().info().procfs_groups, groups.bits());
    let t = s.tasks().next().unwrap();
    for g in groups.iter() {
        assert_eq!(t.reason(g), None, "{g}");
    }
    let b = t.record::<Base>().unwrap();
    assert_eq!((b.ppid(), b.pgid(), b.sid()), (Some(1), Some(3), Some(4)));
    assert_eq!(t.comm(), Some(&b"x"[..]));
    let st = t.record::<Stat>().unwrap();
    assert_eq!((st.minflt(), st.num_threads(), st.policy()), (Some(1), Some(2), Some(0)));
    let c = t.record::<Cred>().unwrap();
    assert_eq!((c.euid(), c.gid(), c.securebits()), (Some(2), Some(5), None));
    assert_eq!(t.groups(), Some(vec![9, 10]));
    assert_eq!(t.record::<Statm>().unwrap().rss_bytes(), Some(8192));
    let cmdline = t.cmdline().unwrap();
    assert_eq!((&cmdline.data[..], cmdline.flags), (&b"0123456\0\0\0"[..], 0));
    assert_eq!(&t.path(PathKind::Exe).unwrap().data[..], b"/bin/x");
    assert_eq!(&t.path(PathKind::Root).unwrap().data[..], b"/");
    let io = t.record::<Io>().unwrap();
    assert_eq!((io.rchar(), io.wchar(), io.syscr()), (Some(1), Some(2), None));
    let ns = t.record::<Ns>().unwrap();
    assert_eq!((ns.mnt(), ns.user(), ns.time()), (Some(4026531832), Some(4026531837), None));
    assert_eq!(t.nspid(), Some(vec![7, 1]));
    // The sum over both threads.
    let sched = t.record::<Sched>().unwrap();
    assert_eq!((sched.run_time_ns(), sched.run_delay_ns()), (Some(1100), Some(2200)));
    assert_eq!((sched.nvcsw(), sched.nivcsw(), sched.flags()), (Some(20), Some(40), Some(1)));
    assert_eq!(t.record::<Cgroup>().unwrap().id(), Some(meta.ino()));
    let lines: Vec<_> = t.cgroups().collect();
    assert_eq!(lines, [(2, &b"cpu:/a"[..]), (0, &b":/here"[..])]);
}

/// Which of the three files the sizes of memory come from. Each has other numbers here.
#[test]
fn sizes_come_from_the_cheapest_file() {
    let p = Proc::new();
    p.stat("7", b"x", 'S', 1, 0).file("7/status", STATUS).file("7/statm", "10 3 1 0 0 0 0\n");
    let page = rustix::param::page_size() as u64;
    let stat_size =
        std::fs::read_to_string(p.path("7/stat")).unwrap().replace(" 100 0 0 ", " 100 5 0 ");
    p.file("7/stat", stat_size);
    let ask = |groups, members| {
        let s = p.ask(&Request::all(groups).with_members(members));
        let t = s.tasks().next().unwrap();
        let m = t.record::<Statm>().unwrap();
        (m.size_bytes(), m.rss_bytes(), m.rss_anon_bytes())
    };
    let of = |names: &[&str]| Members::of(Groups::STATM, names);
    let (base, statm) = (Groups::BASE, Groups::STATM);
    let stat_has = (Some(5), None, None);
    let statm_has = (Some(10 * page), Some(3 * page), Some(2 * page));
    let status_has = (Some(40 << 10), Some(8 << 10), None);
    assert_eq!(ask(base | statm, of(&["size_bytes"])), stat_has);
    assert_eq!(ask(statm, of(&["size_bytes"])), statm_has);
    assert_eq!(ask(base | statm, of(&["rss_bytes"])), statm_has);
    assert_eq!(ask(statm, of(&["rss_anon_bytes", "rss_bytes"])), statm_has);
    assert_eq!(ask(statm, of(&["rss_bytes", "peak_rss_bytes"])), status_has);
    assert_eq!(ask(statm, Members::ALL), status_has);
    // The file is read for another group in any case, or only it knows the flags of STAT.
    assert_eq!(ask(statm | Groups::CRED, of(&["rss_bytes"])), status_has);
    let flags = Members::of(Groups::STAT, &["flags"]).union(of(&["rss_bytes"]));
    assert_eq!(ask(statm | Groups::STAT, flags), status_has);
    assert_eq!(ask(statm, flags), statm_has);
}

/// Only status reports locked pages. It is read for a request that names the flags, and not for all
/// of STAT.
#[test]
fn locked_pages_are_read_where_they_are_named() {
    let p = Proc::new();
    p.stat("7", b"x", 'S', 1, 0).file("7/status", "VmSize:\t40 kB\nVmLck:\t4 kB\n");
    p.stat("8", b"y", 'S', 1, 0).file("8/status", "VmSize:\t40 kB\nVmLck:\t0 kB\n");
    p.stat("9", b"z", 'S', 1, 0);
    let flags = |members| {
        let s = p.ask(&Request::all(Groups::BASE | Groups::STAT).with_members(members));
        s.tasks().map(|t| t.record::<Stat>().unwrap().flags()).collect::<Vec<_>>()
    };
    let named = Members::of(Groups::STAT, &["flags", "nice"]);
    assert_eq!(flags(named), [Some(STAT_LOCKED), Some(0), None]);
    assert_eq!(flags(Members::of(Groups::STAT, &["nice"])), [None; 3]);
    assert_eq!(flags(Members::ALL), [None; 3]);
}

#[test]
fn sizes_that_are_missing_have_their_reason() {
    let rss = Members::of(Groups::STATM, &["rss_bytes"]);
    let size = Members::of(Groups::STATM, &["size_bytes"]);
    let p = Proc::new();
    // A kernel thread, a process on its way out, one without the file, and a file that is no such
    // file.
    p.stat("2", b"kthreadd", 'S', 0, 0x20_0000).file("2/statm", "0 0 0 0 0 0 0\n");
    p.stat("3", b"ending", 'S', 1, 4).file("3/statm", "0 0 0 0 0 0 0\n");
    p.stat("4", b"none", 'S', 1, 0);
    p.stat("5", b"odd", 'S', 1, 0).file("5/statm", "x\n");
    let why = |groups, members| {
        let s = p.ask(&Request::all(groups).with_members(members));
        assert!(s.tasks().all(|t| t.record::<Statm>().is_none()));
        s.tasks().map(|t| t.reason(Group::Statm).unwrap()).collect::<Vec<_>>()
    };
    let want = [Reason::Absent, Reason::Absent, Reason::Unsupported, Reason::Unsupported];
    assert_eq!(why(Groups::STATM, rss), want);
    assert_eq!(why(Groups::STATM | Groups::BASE, rss), want);
    assert_eq!(why(Groups::STATM, size), want);
    // stat says that the virtual size of each is 0.
    assert_eq!(why(Groups::STATM | Groups::BASE, size), [Reason::Absent; 4]);
}

#[test]
fn comm_may_hold_anything() {
    let p = Proc::new();
    let comms: [&[u8]; 5] =
        [b")", b"a) R 9 (b", b"a\nb) Z 1", b"\xff\x80", b"kworker/u16:123-a_very_long_workqueue"];
    for (i, comm) in comms.iter().enumerate() {
        p.stat(&format!("{}", i + 1), comm, 'S', 1, 0);
    }
    let s = p.ask(&Request::all(Groups::BASE));
    let comm = |t: taskdiag::TaskView<'_>| t.comm().unwrap().to_vec();
    assert_eq!(s.tasks().map(comm).collect::<Vec<_>>(), comms);
}

#[test]
fn kernel_threads_and_zombies_lack_memory_and_arguments() {
    let p = Proc::new();
    let status = "Uid:\t0\t0\t0\t0\nThreads:\t1\n";
    for (pid, state, flags) in [("2", 'S', 0x208040), ("3", 'Z', 0x40000c)] {
        p.stat(pid, b"k", state, 0, flags)
            .file(&format!("{pid}/status"), status)
            .file(&format!("{pid}/cmdline"), "");
    }
    p.link("2/cwd", "/").link("2/root", "/");
    let more = Groups::BASE | Groups::STATM | Groups::CMDLINE | Groups::PATHS;
    for groups in [Groups::CMDLINE, more] {
        let s = p.ask(&Request::all(groups));
        for t in s.tasks() {
            assert_eq!(t.reason(Group::Cmdline), Some(Reason::Absent));
            if groups.has(Group::Statm) {
                assert_eq!(t.reason(Group::Statm), Some(Reason::Absent));
            }
        }
        assert_eq!((s.stream().done().denied, s.stream().done().vanished), (0, 0));
    }
    let s = p.ask(&Request::all(Groups::BASE | Groups::PATHS));
    let (k, z) = (s.stream().get(0).unwrap(), s.stream().get(1).unwrap());
    assert_eq!(k.record::<Base>().unwrap().flags(), Some(TASK_KTHREAD));
    assert_eq!(k.path(PathKind::Exe).unwrap().reason, Some(Reason::Absent));
    assert_eq!(&k.path(PathKind::Cwd).unwrap().data[..], b"/");
    assert_eq!(z.record::<Base>().unwrap().flags(), Some(TASK_EXITING));
    for kind in [PathKind::Exe, PathKind::Cwd, PathKind::Root] {
        assert_eq!(z.path(kind).unwrap().reason, Some(Reason::Absent));
    }
}

#[test]
fn command_lines_are_read_whole() {
    let p = Proc::new();
    let huge: Vec<u8> = (0..3_000_000u32).map(|i| (i % 251) as u8).collect();
    p.stat("1", b"empty", 'S', 0, 0).file("1/cmdline", "");
    p.stat("2", b"huge", 'S', 0, 0).file("2/cmdline", &huge);
    p.stat("3", b"title", 'S', 0, 0).file("3/cmdline", "nginx: worker process\0");
    let s = p.ask(&Request::all(Groups::BASE | Groups::CMDLINE));
    let of = |i| s.stream().get(i).unwrap().cmdline().unwrap();
    // According to its stat it has arguments, which cannot be read.
    assert_eq!(s.stream().get(0).unwrap().reason(Group::Cmdline), Some(Reason::Blocked));
    // A list has the start of the text and its length. A request that names the process gets all of
    // it.
    assert!(of(1).data[..] == huge[..128 << 10] && of(1).flags & BLOB_CUT != 0);
    assert_eq!((of(1).total, s.stream().done().truncated), (huge.len(), 1));
    p.file("2/status", "Tgid:\t2\n");
    let one = p.ask(&Request::one(2, Groups::BASE | Groups::CMDLINE));
    let whole = one.stream().get(0).unwrap().cmdline().unwrap();
    assert!(whole.data == huge && whole.flags & BLOB_CUT == 0);
    assert_eq!(of(2).flags, BLOB_REWRITTEN);
    // Without the stat file there is no evidence, and it is not read for that purpose.
    let s = p.ask(&Request::all(Groups::CMDLINE));
    assert_eq!(s.stream().get(2).unwrap().cmdline().unwrap().flags, 0);
}

#[test]
fn garbage_and_gaps_stop_nobody() {
    let p = Proc::new();
    p.file("1/stat", "garbage");
    p.file("2/cmdline", "no stat\0");
    fs::create_dir_all(p.path("3/stat")).unwrap();
    fs::create_dir_all(p.path("4")).unwrap();
    let (cwd, fifo) = (rustix::fs::CWD, p.path("4/stat"));
    rustix::fs::mknodat(cwd, &fifo, rustix::fs::FileType::Fifo, 0o400.into(), 0).unwrap();
    p.stat("5", b"good", 'S', 1, 0).file("5/cmdline", "good\0");
    p.file("6", "a file with the name of a process");
    let s = p.ask(&Request::all(Groups::BASE | Groups::CMDLINE));
    let reasons: Vec<_> =
        s.tasks().map(|t| (t.pid(), t.reason(Group::Base), t.reason(Group::Cmdline))).collect();
    let no = Some(Reason::Unsupported);
    assert_eq!(
        reasons,
        [(1, no, no), (2, no, None), (3, no, no), (4, no, no), (5, None, None), (6, no, no)]
    );
}

#[test]
fn a_task_that_is_reaped_while_it_is_read_has_vanished() {
    let p = Proc::new();
    p.file("1/stat", "1 (x) X 0 -1 -1 0 -1 4194316 0 0 0 0 0 0 0 0 20 0 0 0 5 0 0 \n");
    let s = p.ask(&Request::all(Groups::BASE));
    assert_eq!((s.tasks().len(), s.stream().done().vanished), (0, 1));
}

#[test]
fn each_strategy_has_its_tasks() {
    let p = Proc::new();
    for (pid, ppid) in [(10, 0), (9, 10), (100, 10), (11, 9)] {
        p.stat(&pid.to_string(), b"p", 'S', ppid, 0);
        p.file(&format!("{pid}/status"), format!("Tgid:\t{pid}\n"));
        p.stat(&format!("{pid}/task/{pid}"), b"p", 'S', ppid, 0);
    }
    p.stat("10/task/12", b"t", 'S', 0, 0).stat("10/task/8", b"t", 'S', 0, 0);
    let b = Groups::BASE;
    assert_eq!(pids(&p.ask(&Request::all(b))), [(9, 9), (10, 10), (11, 11), (100, 100)]);
    assert_eq!(pids(&p.ask(&Request::one(100, b))), [(100, 100)]);
    assert_eq!(pids(&p.ask(&Request::children(10, b))), [(9, 9), (100, 100)]);
    assert_eq!(pids(&p.ask(&Request::children(100, b))), []);
    assert_eq!(pids(&p.ask(&Request::threads(10, b))), [(10, 8), (10, 10), (10, 12)]);
    let all = [(9, 9), (10, 8), (10, 10), (10, 12), (11, 11), (100, 100)];
    assert_eq!(pids(&p.ask(&Request::all_threads(b))), all);
    // No group: the list alone.
    assert_eq!(p.ask(&Request::all(Groups::NONE)).tasks().len(), 4);
    // A thread has a directory of its own, and leads to its process.
    p.file("12/status", "Tgid:\t10\n");
    assert_eq!(pids(&p.ask(&Request::one(12, b))), [(10, 10)]);
    assert_eq!(pids(&p.ask(&Request::children(12, b))), [(9, 9), (100, 100)]);
    assert_eq!(p.ask(&Request::threads(12, b)).tasks().len(), 3);
    for pid in [0, 1, u32::MAX] {
        for req in [Request::one(pid, b), Request::children(pid, b), Request::threads(pid, b)] {
            let e = p.fails(&req);
            assert!(matches!(e, Error::NoSuchProcess(n) if n == pid), "{req:?}: {e}");
        }
    }
}

#[test]
fn many_tasks_keep_their_order() {
    let p = Proc::new();
    for pid in 1..=1100 {
        p.stat(&pid.to_string(), format!("c{pid}").as_bytes(), 'S', pid / 2, 0);
    }
    // The values that the kernel shows of a task that is being reaped.
    for pid in (100..=1100).step_by(100) {
        let stat = "1 (x) X 0 -1 -1 0 -1 4194316 0 0 0 0 0 0 0 0 20 0 0 0 5 0 0 \n";
        p.file(&format!("{pid}/stat"), stat);
    }
    let s = p.ask(&Request::all(Groups::BASE));
    assert_eq!((s.tasks().len(), s.stream().done().vanished), (1089, 11));
    assert!(s.tasks().map(|t| t.pid()).is_sorted());
    for t in s.tasks() {
        let comm = t.comm().unwrap().to_vec();
        assert_eq!(comm, format!("c{}", t.pid()).as_bytes());
    }
}

#[test]
fn many_threads_keep_their_order() {
    let p = Proc::new();
    for tid in 1..=1100 {
        p.stat(&format!("5/task/{tid}"), format!("t{tid}").as_bytes(), 'S', 1, 0);
    }
    for task in ["4/task/4", "6/task/6"] {
        p.stat(task, b"other", 'S', 1, 0);
    }
    let s = p.ask(&Request::all_threads(Groups::BASE));
    let want = [(4, 4)].into_iter().chain((1..=1100).map(|tid| (5, tid))).chain([(6, 6)]);
    assert!(pids(&s).into_iter().eq(want));
    let last = s.stream().get(1100).unwrap();
    assert_eq!(last.comm().unwrap(), b"t1100");
}

#[test]
fn a_root_that_is_no_proc_is_an_error_with_advice() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing");
    for root in [dir.path(), &missing] {
        let e = Procfs::with_root(root).unwrap_err();
        assert!(matches!(e, Error::Unavailable { .. }));
        assert!(e.to_string().contains("mount -t proc proc "), "{e}");
    }
}

#[test]
fn groups_that_procfs_lacks_are_unsupported() {
    let p = Proc::new();
    p.stat("1", b"x", 'S', 0, 0);
    let new = Groups::from_bits(1 << 63);
    let e = p.fails(&Request::all(Groups::BASE | new));
    assert!(matches!(e, Error::Unsupported { groups, .. } if groups == new), "{e}");
}

/// A node of a device in the tree.
fn device(p: &Proc, path: &str, major: u32, minor: u32) -> bool {
    let made = rustix::fs::mknodat(
        rustix::fs::CWD,
        p.path(path),
        rustix::fs::FileType::CharacterDevice,
        0o600.into(),
        rustix::fs::makedev(major, minor),
    );
    if made.is_err() {
        let why = "SKIPPED the group GPU: no device node can be made, which needs root\n";
        std::io::Write::write_all(&mut std::io::stderr(), why.as_bytes()).unwrap();
    }
    made.is_ok()
}

const FDINFO: &str = "pos:\t0\nflags:\t02\nmnt_id:\t21\nino:\t9\n";

fn clients(p: &Proc, busy_ns: u64) {
    let gpu = |client: u64, busy_ns: u64| {
        format!(
            "{FDINFO}drm-driver:\ti915\ndrm-client-id:\t{client}\ndrm-pdev:\t0000:00:02.0\n\
             drm-resident-system0:\t8 KiB\ndrm-engine-render:\t{busy_ns} ns\ndrm-engine-copy:\t5 ns\n"
        )
    };
    p.file("7/fdinfo/3", gpu(1, busy_ns)).file("7/fdinfo/4", gpu(1, busy_ns));
    p.file("7/fdinfo/5", FDINFO).file("8/fdinfo/3", gpu(1, busy_ns)).file("8/fdinfo/6", gpu(2, 90));
    let xe = "drm-driver:\txe\ndrm-client-id:\t1\ndrm-total-cycles-rcs:\t";
    p.file("9/fdinfo/0", format!("{FDINFO}{xe}{}\ndrm-cycles-rcs:\t{busy_ns}\n", 2 * busy_ns));
}

/// The text of a column for each task.
fn text(s: &Snapshot, name: &str) -> Vec<String> {
    let field = taskdiag::field::TASKS.find(name).unwrap().field;
    let cx = taskdiag::field::Context::new(s.stream().info(), false);
    let one = |t| {
        let row = taskdiag::field::Row::new(t);
        let (value, mut out) = ((field.get)(&cx, &row), Vec::new());
        taskdiag::field::text(&mut out, &cx, field.text, Some(&row), &value);
        String::from_utf8(out).unwrap()
    };
    s.tasks().map(one).collect()
}

#[test]
fn graphics_processors_are_read_from_drm_devices_alone() {
    let p = Proc::new();
    if !device(&p, "render", 226, 128) || !device(&p, "null", 1, 3) {
        return;
    }
    p.file("devices", "Character devices:\n  1 mem\n226 drm\n\nBlock devices:\n  7 loop\n");
    let node = p.path("render");
    for (pid, fds) in [("7", &[3, 4][..]), ("8", &[3, 6]), ("9", &[0]), ("10", &[])] {
        p.stat(pid, b"x", 'S', 1, 0x400000);
        fs::create_dir_all(p.path(&format!("{pid}/fd"))).unwrap();
        fds.iter().for_each(|fd| {
            p.link(&format!("{pid}/fd/{fd}"), &node);
        });
    }
    p.link("7/fd/5", p.path("null"));
    clients(&p, 100);
    for groups in [Groups::GPU | Groups::BASE, Groups::GPU | Groups::BASE | Groups::FD] {
        let s = p.ask(&Request::all(groups));
        assert_eq!(pids(&s), [(7, 7), (8, 8), (9, 9), (10, 10)]);
        let clients = |t: taskdiag::TaskView<'_>| t.list::<taskdiag::Gpu>().unwrap().count();
        assert_eq!(s.tasks().map(clients).collect::<Vec<_>>(), [3, 6, 1, 0]);
        let gpu = ["0000:00:02.0/i915", "0000:00:02.0/i915", "226:128/xe", "-"];
        assert_eq!(text(&s, "gpu"), gpu);
        assert_eq!(text(&s, "gpu_mem"), ["8.0K", "16.0K", "?", "0"]);
    }
    // Without a device, no directory of a task is opened.
    p.file("devices", "Character devices:\n  1 mem\n");
    let cost =
        |groups| Procfs::with_root(p.dir.path()).unwrap().run(&Request::all(groups)).unwrap().cost;
    let (with, without) = (cost(Groups::BASE | Groups::GPU), cost(Groups::BASE));
    // The additional calls read `devices` and look at /proc once.
    assert!(with.syscalls <= without.syscalls + 5, "{} and {}", with.syscalls, without.syscalls);
    assert_eq!(text(&p.ask(&Request::all(Groups::BASE | Groups::GPU)), "gpu_mem"), ["0"; 4]);
}

/// NVIDIA's driver has no counters in /proc. An unknown value is not 0.
#[test]
fn a_device_of_nvidia_is_named_and_what_it_does_is_not_known() {
    let p = Proc::new();
    if !device(&p, "nvidia0", 195, 0) || !device(&p, "nvidiactl", 195, 255) {
        return;
    }
    p.file("devices", "Character devices:\n  1 mem\n195 nvidia-frontend\n");
    for (pid, node) in [("7", "nvidia0"), ("8", "nvidiactl")] {
        p.stat(pid, b"x", 'S', 1, 0x400000);
        fs::create_dir_all(p.path(&format!("{pid}/fd"))).unwrap();
        for fd in [3, 4] {
            p.link(&format!("{pid}/fd/{fd}"), p.path(node));
        }
    }
    for groups in [Groups::GPU | Groups::BASE, Groups::GPU | Groups::BASE | Groups::FD] {
        let s = p.ask(&Request::all(groups));
        let entries = |t: taskdiag::TaskView<'_>| t.list::<taskdiag::Gpu>().unwrap().count();
        assert_eq!(s.tasks().map(entries).collect::<Vec<_>>(), [1, 0]);
        assert_eq!(text(&s, "gpu"), ["195:0/nvidia", "-"]);
        assert_eq!(text(&s, "gpu_mem"), ["?", "0"]);
        assert_eq!(text(&s, "gpu_time")[0], "?");
    }
}

#[test]
fn percentages_of_graphics_processors_count_each_client_once() {
    let p = Proc::new();
    if !device(&p, "render", 226, 128) {
        return;
    }
    p.file("devices", "226 drm\n");
    for (pid, fds) in [("7", &[3, 4][..]), ("8", &[3, 6]), ("9", &[0])] {
        p.stat(pid, b"x", 'S', 1, 0x400000);
        fds.iter().for_each(|fd| {
            p.link(&format!("{pid}/fd/{fd}"), p.path("render"));
        });
    }
    let mut rates = taskdiag::Rates::new();
    clients(&p, 100);
    rates.update(&p.ask(&Request::all(Groups::BASE | Groups::GPU)));
    clients(&p, 100 + 1_000_000_000);
    let s = p.ask(&Request::all(Groups::BASE | Groups::GPU));
    rates.update(&s);
    let field = taskdiag::field::TOP.find("gpu_percent").unwrap().field;
    let cx = taskdiag::field::Context::new(s.stream().info(), false);
    let percent: Vec<f64> = s
        .tasks()
        .enumerate()
        .map(|(i, t)| {
            let mut row = taskdiag::field::Row::new(t);
            row.part = taskdiag::field::Part::Rate(rates.get(i).unwrap());
            match (field.get)(&cx, &row) {
                taskdiag::field::Value::Percent(p) => p,
                v => panic!("{v:?}"),
            }
        })
        .collect();
    let interval = rates.interval().unwrap().as_secs_f64();
    let busy = 100.0 / interval;
    assert!((percent[0] - busy).abs() < busy / 100.0, "{percent:?} in {interval} s");
    assert!((percent[1] - busy).abs() < busy / 100.0, "{percent:?} in {interval} s");
    // Half of the cycles.
    assert!((percent[2] - 50.0).abs() < 0.001, "{percent:?}");
}
