//! The procfs engine on the running kernel, compared with facts that this process knows about
//! itself and its children.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;
use std::time::Duration;

use taskdiag::engine::procfs::Procfs;
use taskdiag::wire::{BLOB_DELETED, SCHED_LIVE_ONLY};
use taskdiag::{
    Autogroup, Base, Cgroup, Cred, Engine, Error, Group, Groups, Io, Login, Ns, Oom, PathKind,
    Reason, Request, Sched, Snapshot, Stat, Statm,
};

fn try_ask(req: &Request) -> Result<Snapshot, Error> {
    let mut engine = Procfs::new().unwrap();
    Snapshot::parse(engine.run(req)?.stream)
}
fn ask(req: &Request) -> Snapshot {
    try_ask(req).unwrap()
}
fn all_groups() -> Groups {
    Procfs::new().unwrap().support().groups
}

/// A child that waits until it is dropped.
struct Waiting(Child);

impl Waiting {
    fn start(program: impl AsRef<std::ffi::OsStr>) -> Waiting {
        let mut c = Command::new(program);
        c.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = c.spawn().unwrap();
        // cat answers, so it has done its exec.
        child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        Waiting(child)
    }
    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // Both calls fail if a test has ended the process already, which is fine.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn procfs_agrees_with_this_process() {
    let me = std::process::id();
    let s = ask(&Request::one(me, all_groups()));
    assert_eq!(s.tasks().len(), 1);
    let t = s.tasks().next().unwrap();
    assert_eq!((t.pid(), t.tgid()), (me, me));
    // Only root may read a kernel stack, even its own.
    let stack = match fs::read("/proc/self/stack") {
        Ok(_) => None,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Some(Reason::Unsupported),
        Err(_) => Some(Reason::Denied),
    };
    for g in all_groups().iter() {
        let why = match g {
            Group::Kstack => stack,
            Group::Label | Group::Autogroup | Group::Login => continue, // see below
            // The kernel counts these where kernel.task_delayacct is on, as the test `delays` does.
            Group::Delays => continue,
            // Linux 6.9 and 6.18 have them, and the test `settings` checks their values.
            Group::Pidfd | Group::NsId => t.reason(g).filter(|r| *r == Reason::Unsupported),
            _ => None,
        };
        assert_eq!(t.reason(g), why, "{g}");
    }
    let base = t.record::<Base>().unwrap();
    assert_eq!(base.raw().valid, Base::ALL_VALID);
    assert_eq!(base.raw().ppid, std::os::unix::process::parent_id());
    let comm = fs::read("/proc/self/comm").unwrap();
    assert_eq!(t.comm(), comm.strip_suffix(b"\n"));
    let info = s.stream().info();
    assert!(base.raw().start_time_ns < info.boottime_ns);
    assert!(info.boottime_ns - base.raw().start_time_ns < 3600 * 1_000_000_000);

    let cred = t.record::<Cred>().unwrap();
    let meta = fs::metadata("/proc/self").unwrap();
    assert_eq!((cred.euid(), cred.egid()), (Some(meta.uid()), Some(meta.gid())));
    assert_eq!(cred.securebits(), None);
    assert_eq!(t.groups().unwrap().len(), cred.ngroups().unwrap() as usize);

    let stat = t.record::<Stat>().unwrap();
    assert_eq!((stat.raw().valid, stat.raw().flags), (Stat::ALL_VALID, 0));
    assert!(stat.raw().num_threads >= 1);
    let statm = t.record::<Statm>().unwrap();
    assert!(statm.size_bytes().unwrap() >= statm.rss_bytes().unwrap());
    assert!(statm.rss_bytes().unwrap() > 100_000);

    let args: Vec<u8> = fs::read("/proc/self/cmdline").unwrap();
    assert_eq!(t.cmdline().unwrap().data, args);
    assert_eq!(t.cmdline().unwrap().flags, 0);
    let exe = std::env::current_exe().unwrap();
    assert_eq!(&*t.path(PathKind::Exe).unwrap().data, exe.as_os_str().as_encoded_bytes());
    assert_eq!(t.path(PathKind::Exe).unwrap().flags, 0);
    let cwd = std::env::current_dir().unwrap();
    assert_eq!(&*t.path(PathKind::Cwd).unwrap().data, cwd.as_os_str().as_encoded_bytes());

    assert_eq!(t.record::<Io>().unwrap().raw().valid, Io::ALL_VALID);
    assert!(t.record::<Io>().unwrap().raw().rchar > 0);
    let sched = t.record::<Sched>().unwrap();
    // Threads of other tests may have ended.
    let ended = Sched::ALL_VALID & !(1 << 3 | 1 << 4);
    assert!([Sched::ALL_VALID, ended].contains(&sched.raw().valid), "{:#x}", sched.raw().valid);
    assert_eq!(sched.raw().flags & SCHED_LIVE_ONLY, 0);
    assert!(sched.raw().run_time_ns > 0);

    let ns = t.record::<Ns>().unwrap();
    for (name, inode) in [("mnt", ns.mnt()), ("user", ns.user()), ("pid", ns.pid())] {
        let ino = fs::metadata(format!("/proc/self/ns/{name}")).unwrap().ino();
        assert_eq!(inode.map(u64::from), Some(ino), "{name}");
    }
    assert_eq!(t.nspid().unwrap()[0], me);
    let text = fs::read("/proc/self/cgroup").unwrap();
    assert_eq!(t.cgroups().count(), text.iter().filter(|b| **b == b'\n').count());
}

/// The content of a file of a task, without the newline or NUL at its end. `None` if there is no
/// such file, or it is empty.
fn word(pid: u32, file: &str) -> Option<String> {
    let text = fs::read(format!("/proc/{pid}/{file}")).ok()?;
    let text = String::from_utf8(text).expect("text");
    Some(text.trim_end_matches(['\n', '\0']).to_string()).filter(|t| !t.is_empty())
}

#[test]
fn oom_label_autogroup_and_login_are_those_of_the_files() {
    let groups = Groups::OOM | Groups::LABEL | Groups::AUTOGROUP | Groups::LOGIN;
    let cat = Waiting::start("cat");
    let pid = cat.pid();
    fs::write(format!("/proc/{pid}/oom_score_adj"), "321").expect("one may raise it");
    for req in [Request::one(pid, groups), Request::threads(pid, groups)] {
        let s = ask(&req);
        let t = s.tasks().next().expect("it waits");
        let oom = t.record::<Oom>().expect("every task has one");
        assert_eq!(oom.score_adj(), Some(321));
        assert_eq!(oom.score().map(|v| v.to_string()), word(pid, "oom_score"));

        let label = t.blob(Group::Label as u16, 0);
        let text = label.map(|b| String::from_utf8(b.data.into_owned()).expect("text"));
        assert_eq!(text, word(pid, "attr/current"));
        assert_eq!(text.is_none(), t.reason(Group::Label).is_some());

        let of = |r: taskdiag::Record<'_, Autogroup>| {
            Some(format!("/autogroup-{} nice {}", r.id()?, r.nice()?))
        };
        let group = t.record::<Autogroup>().and_then(of);
        assert_eq!(group, word(pid, "autogroup"));
        assert_eq!(group.is_none(), t.reason(Group::Autogroup).is_some());

        let login = t.record::<Login>();
        let uid = login.and_then(|r| r.uid()).map(|v| v.to_string());
        let session = login.and_then(|r| r.session()).map(|v| v.to_string());
        assert_eq!((uid, session), (word(pid, "loginuid"), word(pid, "sessionid")));
    }
}

#[test]
fn cgroup_id_is_the_inode_of_its_directory() {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let cgroup2 = mounts.lines().find(|l| l.contains(" - cgroup2 "));
    let s = ask(&Request::one(std::process::id(), Groups::CGROUP));
    let t = s.tasks().next().unwrap();
    let id = t.record::<Cgroup>().unwrap().id();
    let path = t.cgroups().find(|c| c.0 == 0).map(|c| String::from_utf8(c.1[1..].into()).unwrap());
    let (Some(mount), Some(path)) = (cgroup2, path) else {
        assert_eq!(id, None);
        return;
    };
    let words: Vec<&str> = mount.split(' ').collect();
    if words[3] == "/" {
        let dir = format!("{}{path}", words[4]);
        assert_eq!(id, fs::metadata(&dir).ok().map(|m| m.ino()), "{dir}");
    }
}

#[test]
fn threads_have_their_own_names_and_their_process() {
    let (ready, done) = (Barrier::new(4), Barrier::new(4));
    std::thread::scope(|scope| {
        for i in 0..3 {
            let (ready, done) = (&ready, &done);
            let name = format!("live) {i}");
            let thread = std::thread::Builder::new().name(name);
            let body = move || {
                ready.wait();
                done.wait();
            };
            thread.spawn_scoped(scope, body).unwrap();
        }
        ready.wait();
        let me = std::process::id();
        let s = ask(&Request::threads(me, Groups::BASE | Groups::STAT | Groups::SCHED));
        assert!(s.tasks().all(|t| t.tgid() == me));
        assert!(s.tasks().map(|t| t.pid()).is_sorted());
        let named: Vec<_> =
            s.tasks().filter(|t| t.comm().unwrap().starts_with(b"live) ")).collect();
        assert_eq!(named.len(), 3);
        for t in &named {
            assert_eq!(t.record::<Stat>().unwrap().exit_signal(), Some(-1));
            assert_eq!(t.record::<Sched>().unwrap().flags(), Some(0));
            // The id of the first thread is the pid of the process.
            let one = ask(&Request::one(t.pid(), Groups::BASE));
            assert_eq!(one.tasks().map(|t| t.pid()).collect::<Vec<_>>(), [me]);
            let same = ask(&Request::threads(t.pid(), Groups::BASE));
            assert!(same.tasks().any(|o| o.pid() == t.pid()));
        }
        let all = ask(&Request::all_threads(Groups::BASE));
        for t in &named {
            assert!(all.tasks().any(|o| (o.pid(), o.tgid()) == (t.pid(), me)));
        }
        assert!(all.tasks().map(|t| (t.tgid(), t.pid())).is_sorted());
        let processes = ask(&Request::all(Groups::BASE));
        assert!(!processes.tasks().any(|o| o.pid() == named[0].pid()));
        done.wait();
    });
}

#[test]
fn children_are_listed_by_their_parent() {
    let kids = [Waiting::start("cat"), Waiting::start("cat")];
    let s = ask(&Request::children(std::process::id(), Groups::BASE | Groups::CMDLINE));
    for kid in &kids {
        let t = s.tasks().find(|t| t.pid() == kid.pid()).unwrap();
        assert_eq!(t.record::<Base>().unwrap().ppid(), Some(std::process::id()));
        assert_eq!(&*t.cmdline().unwrap().data, b"cat\0");
    }
    let of_kid = ask(&Request::children(kids[0].pid(), Groups::BASE));
    assert_eq!(of_kid.tasks().len(), 0);
}

#[test]
fn a_pid_of_no_process_is_an_error_of_each_strategy() {
    let pid = Waiting::start("cat").pid();
    for pid in [0, pid, u32::MAX] {
        for req in [Request::one, Request::children, Request::threads] {
            let e = try_ask(&req(pid, Groups::BASE)).unwrap_err();
            assert!(matches!(e, Error::NoSuchProcess(p) if p == pid), "{e}");
        }
    }
}

#[test]
fn procfs_reads_a_zombie() {
    let mut kid = Waiting::start("cat");
    kid.0.kill().unwrap();
    let groups = all_groups();
    for _ in 0..500 {
        let s = ask(&Request::one(kid.pid(), groups));
        let t = s.tasks().next().unwrap();
        let base = t.record::<Base>().unwrap();
        if base.state() != Some(b'Z') {
            std::thread::sleep(Duration::from_millis(10));
            continue;
        }
        assert_eq!(t.comm(), Some(&b"cat"[..]));
        for g in [Group::Statm, Group::Cmdline] {
            assert_eq!(t.reason(g), Some(Reason::Absent), "{g}");
        }
        for kind in [PathKind::Exe, PathKind::Cwd, PathKind::Root] {
            assert_eq!(t.path(kind).unwrap().reason, Some(Reason::Absent), "{kind}");
        }
        for g in [Group::Cred, Group::Stat, Group::Sched, Group::Cgroup] {
            assert_eq!(t.reason(g), None, "{g}");
        }
        return;
    }
    panic!("{} did not become a zombie", kid.pid());
}

#[test]
fn the_mark_of_a_deleted_file_is_not_a_part_of_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let which = Waiting::start("cat");
    let cat = fs::read_link(format!("/proc/{}/exe", which.pid())).unwrap();
    let exe = |pid| {
        let s = ask(&Request::one(pid, Groups::PATHS));
        let t = s.tasks().next().unwrap();
        let b = t.path(PathKind::Exe).unwrap();
        (b.data.into_owned(), b.flags)
    };
    // The copy is also called cat, because one file may have many programs and choose by name.
    let odd = dir.path().join("cat (deleted)");
    fs::create_dir(dir.path().join("d")).unwrap();
    let plain = dir.path().join("d/cat");
    // Another process writes it: a test that forks while we write would keep the file open for
    // writing, and such a file cannot be executed.
    assert!(Command::new("cp").args([&cat, &plain]).status().unwrap().success());
    let kid = Waiting::start(&plain);
    let text = plain.as_os_str().as_encoded_bytes();
    assert_eq!(exe(kid.pid()), (text.to_vec(), 0));
    // The new name only looks like that of a deleted file.
    fs::rename(&plain, &odd).unwrap();
    assert_eq!(exe(kid.pid()), (odd.as_os_str().as_encoded_bytes().to_vec(), 0));
    // Another name of the file is left.
    fs::hard_link(&odd, dir.path().join("other")).unwrap();
    fs::remove_file(&odd).unwrap();
    let text = [odd.as_os_str().as_encoded_bytes(), b" (deleted)"].concat();
    assert_eq!(exe(kid.pid()), (text.clone(), BLOB_DELETED));
    fs::remove_file(dir.path().join("other")).unwrap();
    assert_eq!(exe(kid.pid()), (text, BLOB_DELETED));
}

#[test]
fn groups_without_rights_are_denied() {
    let root = fs::metadata("/proc/self").unwrap().uid() == 0;
    // A process whose program is not readable belongs to root, even if another user runs it.
    // Another process makes the copy: a file that a test holds open for writing during a fork
    // cannot be executed.
    let dir = tempfile::tempdir().unwrap();
    let cat = dir.path().join("cat");
    let copied = Command::new("install").args(["-m111", "/bin/cat"]).arg(&cat).status();
    assert!(copied.unwrap().success());
    let kid = Waiting::start(cat);
    // Only this thread becomes another user: the call is made without libc, which would change all
    // threads.
    let denied = std::thread::scope(|scope| {
        let body = || {
            if root {
                let nobody = 65534;
                // SAFETY: setresuid takes three numbers and touches no memory.
                let r = unsafe { libc::syscall(libc::SYS_setresuid, nobody, nobody, nobody) };
                assert_eq!(r, 0);
            }
            ask(&Request::one(kid.pid(), all_groups()))
        };
        scope.spawn(body).join().unwrap()
    });
    let t = denied.tasks().next().unwrap();
    // /proc denies exactly the groups that are guarded in the registry, with two exceptions. Before
    // Linux 6.2, the number of files needs a read of the directory. Delays come from netlink, which
    // needs CAP_NET_ADMIN for every task.
    for g in (all_groups() - Groups::FD_COUNT - Groups::DELAYS).iter() {
        let is_denied = t.reason(g) == Some(Reason::Denied);
        // Where there is no graphics processor, it is known that nobody uses one.
        if g == Group::Gpu && t.list::<taskdiag::Gpu>().is_some_and(|mut l| l.next().is_none()) {
            continue;
        }
        assert_eq!(is_denied, Groups::GUARDED.has(g), "{g}: {:?}", t.reason(g));
    }
    for g in [Group::Base, Group::Cred, Group::Stat, Group::Statm, Group::Cmdline, Group::Sched] {
        assert_eq!(t.reason(g), None, "{g}");
    }
    assert_eq!(t.nspid().unwrap()[0], t.pid());
    assert_eq!(denied.stream().done().denied, 1);
}

#[test]
fn an_answer_leaves_no_descriptor_open() {
    let open = || fs::read_dir("/proc/thread-self/fd").unwrap().count();
    // Other tests open files at the same time, so this tries several times.
    let steady = (0..200).any(|_| {
        let before = open();
        ask(&Request::all_threads(all_groups()));
        before == open()
    });
    assert!(steady);
}
