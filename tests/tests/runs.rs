//! Tests that no run of a BPF program holds a processor for too long, whatever ordinary users do.
//! The measure is the processor time of the thread that makes the longest run.
//!
//! The scenes are smaller than they could be. `TASKDIAG_LONG=1` makes them as large as an ordinary
//! user can.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

use taskdiag::engine::bpf::Bpf;
use taskdiag::wire::Vma;
use taskdiag::{Engine, EngineId, Fd, Group, Groups, Request, Snapshot, Strategy, TaskView};
use taskdiag_tests::answer::engines;
use taskdiag_tests::busy::wait_for_sleep;
use taskdiag_tests::pid_max::PidMax;
use taskdiag_tests::{Ended, Mktask, Source, skip};

/// The time that a run may take. It ends after a millisecond; the rest is for steps that cannot be
/// interrupted.
const LONGEST_US: u128 = 1_500;
/// The number of answers. The median of their longest runs counts. A host that takes the processor
/// away makes some runs longer, so the measurement is repeated up to ROUNDS times.
const ANSWERS: usize = 5;
const ROUNDS: usize = 8;

/// Lets only one scene exist at a time, because several tests run in this process. `None`: the
/// test is skipped, because BPF does not work here.
fn alone(test: &str) -> Option<MutexGuard<'static, ()>> {
    static ONE: Mutex<()> = Mutex::new(());
    if !engines().contains(&Source::Engine(EngineId::Bpf)) {
        skip(test, "no BPF here");
        return None;
    }
    Some(ONE.lock().unwrap_or_else(|e| e.into_inner()))
}

fn is_long() -> bool {
    std::env::var_os("TASKDIAG_LONG").is_some()
}

/// This many objects, or as many as an ordinary user can have.
fn many(short: usize, long: usize) -> usize {
    if is_long() { long } else { short }
}

/// An answer of the engine.
fn ask(engine: &mut Bpf, request: &Request) -> Snapshot {
    let answer = engine.run(request).unwrap_or_else(|e| panic!("{engine:?}: {e}"));
    Snapshot::parse(answer.stream).expect("a stream")
}

/// Asks with each program and compares the longest run. `holds` looks at an answer, so that a run
/// is not short because something is left out.
///
/// The kernel calls the program for kernels before 6.8 once for each task, and lets others run
/// between two calls. All these calls happen in one read(2), so that program is only measured for
/// requests about one process on a machine with few others.
fn runs_end_soon(what: &str, request: &Request, holds: impl Fn(&Snapshot)) {
    type Make = fn() -> Bpf;
    let programs: [(&str, Make); 2] = [("newer", Bpf::untried), ("legacy", Bpf::legacy)];
    let few = request.strategy == Strategy::One && tasks_here() < 1_000;
    if !few && !has_newer() {
        let why = "the kernel lets others run between two calls of the program that it has";
        return skip(&format!("longest run, {what}"), why);
    }
    for (program, make) in programs.into_iter().take(if few { 2 } else { 1 }) {
        let longest = || {
            let mut engine = make();
            holds(&ask(&mut engine, request));
            engine.longest_run().as_micros()
        };
        let median = || {
            let mut all: Vec<u128> = (0..ANSWERS).map(|_| longest()).collect();
            all.sort_unstable();
            // Shown by `cargo test -- --nocapture`.
            println!("{what}, {program} program: {all:?} us");
            all[ANSWERS / 2]
        };
        let mut seen: Vec<u128> = Vec::new();
        while seen.len() < ROUNDS && seen.last().is_none_or(|m| *m > LONGEST_US) {
            seen.push(median());
        }
        let least = seen.iter().min().expect("some");
        assert!(*least <= LONGEST_US, "{what}, {program} program: runs took {seen:?} us");
    }
}

/// Does the kernel have what the newer programs need, from Linux 6.8 on?
fn has_newer() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut parts = release.split(['.', '-']).map_while(|part| part.trim().parse::<u32>().ok());
    (parts.next(), parts.next()) >= (Some(6), Some(8))
}

/// How many tasks the machine has.
fn tasks_here() -> usize {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split([' ', '/']).nth(4).and_then(|n| n.parse().ok()).unwrap_or(usize::MAX)
}

fn me() -> u32 {
    std::process::id()
}

fn task(s: &Snapshot, pid: u32) -> TaskView<'_> {
    s.tasks().find(|t| t.pid() == pid).unwrap_or_else(|| panic!("no task {pid}"))
}

/// Starts a process that sleeps, after `before` has run in it.
fn sleeping(before: impl FnMut() -> io::Result<()> + Send + Sync + 'static) -> io::Result<Ended> {
    let mut command = Command::new("sleep");
    command.arg("600").stdin(Stdio::null()).stdout(Stdio::null());
    // SAFETY: the child only makes plain system calls with data that is ready.
    let idle = unsafe { command.pre_exec(before) }.spawn().map(Ended)?;
    wait_for_sleep(idle.id());
    Ok(idle)
}

fn check(r: libc::c_int) -> io::Result<()> {
    if r < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Allows this process and its children this many open files.
fn allow_files(n: u64) -> bool {
    let limit = libc::rlimit { rlim_cur: n, rlim_max: n };
    // SAFETY: the struct is valid.
    unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) == 0 }
}

/// How many files this process may have open if it asks for no more.
fn files_allowed() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both take a struct that is there.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
    }
    limit.rlim_cur
}

const DEEP: usize = 500;

/// Directories below each other, and a directory above them that is renamed all the time.
struct Trees {
    dir: tempfile::TempDir,
    stop: Arc<AtomicBool>,
    renames: Option<JoinHandle<()>>,
}

impl Trees {
    fn grow(n: usize) -> Trees {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let dir = dir.expect("a directory");
        let one: PathBuf = dir.path().join("0");
        for tree in 0..n {
            std::fs::create_dir_all(Trees::bottom(&one, tree)).expect("directories");
        }
        let (stop, path) = (Arc::new(AtomicBool::new(false)), dir.path().to_owned());
        let ends = stop.clone();
        let renames = Some(std::thread::spawn(move || {
            let (a, b) = (path.join("0"), path.join("1"));
            while !ends.load(Ordering::Relaxed) {
                let _ = std::fs::rename(&a, &b);
                let _ = std::fs::rename(&b, &a);
            }
        }));
        Trees { dir, stop, renames }
    }
    fn bottom(one: &Path, tree: usize) -> PathBuf {
        one.join(tree.to_string()).join("d/".repeat(DEEP - 1))
    }
    /// The directory at the bottom of a tree. It may have to be looked for again, because it moves.
    fn open(&self, tree: usize) -> File {
        loop {
            if let Ok(f) = File::open(Trees::bottom(&self.dir.path().join("0"), tree)) {
                return f;
            }
        }
    }
    /// A new file at the bottom of a tree.
    fn file(&self, tree: usize) -> File {
        let dir = self.open(tree);
        let path = format!("/proc/self/fd/{}/f", dir.as_raw_fd());
        std::fs::write(&path, [0; 4096]).expect("written");
        File::open(path).expect("it is there")
    }
}

impl Drop for Trees {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(t) = self.renames.take() {
            let _ = t.join();
        }
    }
}

/// Whether the reported path of a file that is moved all the time is complete: a path that the file
/// had, or a reason.
fn is_whole(path: &[u8], dir: &Path) -> bool {
    let rest = path.strip_prefix(dir.as_os_str().as_encoded_bytes());
    rest.is_some_and(|r| r.starts_with(b"/0/") || r.starts_with(b"/1/"))
}

#[test]
fn runs_end_soon_for_open_files_in_deep_directories_that_are_renamed() {
    let Some(_one) = alone("runs_end_soon_for_open_files_in_deep_directories_that_are_renamed")
    else {
        return;
    };
    let n = many(64, 256);
    let trees = Trees::grow(n);
    let files: Vec<File> = (0..n).map(|tree| trees.open(tree)).collect();
    runs_end_soon("open files", &Request::one(me(), Groups::FD), |s| {
        let fds: Vec<u32> = task(s, me()).list::<Fd>().expect("files").map(|f| f.raw.fd).collect();
        assert!(files.iter().all(|f| fds.contains(&(f.as_raw_fd() as u32))), "{fds:?}");
        for f in task(s, me()).list::<Fd>().expect("files") {
            if !files.iter().any(|file| file.as_raw_fd() as u32 == f.raw.fd) {
                continue;
            }
            let name = s.stream().name(f.raw.name).unwrap_or_else(|| panic!("no name {f:?}"));
            let whole = is_whole(&name.data, trees.dir.path());
            assert!(whole || (name.reason.is_some() && name.data.is_empty()), "{name:?}");
        }
    });
}

#[test]
fn runs_end_soon_for_mapped_files_in_deep_directories_that_are_renamed() {
    let Some(_one) = alone("runs_end_soon_for_mapped_files_in_deep_directories_that_are_renamed")
    else {
        return;
    };
    let n = many(64, 256);
    let trees = Trees::grow(n);
    let map = |tree| {
        let file = trees.file(tree);
        // SAFETY: a new mapping at an address that the kernel chooses.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                4096,
                libc::PROT_READ,
                libc::MAP_PRIVATE,
                file.as_raw_fd(),
                0,
            )
        };
        assert_ne!(at, libc::MAP_FAILED);
        at.addr()
    };
    let all: Vec<usize> = (0..n).map(map).collect();
    runs_end_soon("mapped files", &Request::one(me(), Groups::VMA), |s| {
        let vmas = task(s, me()).list::<Vma>().expect("mappings");
        let starts: Vec<usize> = vmas.map(|v| v.raw.start as usize).collect();
        assert!(all.iter().all(|at| starts.contains(at)));
    });
    for at in all {
        // SAFETY: a mapping from above.
        unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(at), 4096) };
    }
}

#[test]
fn runs_end_soon_for_working_directories_deep_below_one_that_is_renamed() {
    let Some(_one) = alone("runs_end_soon_for_working_directories_deep_below_one_that_is_renamed")
    else {
        return;
    };
    let n = many(32, 256);
    let trees = Trees::grow(n);
    let start = |tree| {
        let dir = trees.open(tree);
        // SAFETY: a plain system call.
        sleeping(move || check(unsafe { libc::fchdir(dir.as_raw_fd()) })).expect("sleep")
    };
    let all: Vec<Ended> = (0..n).map(start).collect();
    let request = Request::all(Groups::BASE | Groups::PATHS);
    runs_end_soon("working directories", &request, |s| {
        for idle in &all {
            let t = task(s, idle.id());
            let said = t.path(taskdiag::PathKind::Cwd);
            let path = said.unwrap_or_else(|| panic!("no path: {:?}", t.reason(Group::Paths)));
            assert!(path.reason.is_some() || is_whole(&path.data, trees.dir.path()), "{path:?}");
        }
    });
}

#[test]
fn runs_end_soon_beside_all_the_groups_that_there_can_be() {
    let Some(_one) = alone("runs_end_soon_beside_all_the_groups_that_there_can_be") else { return };
    let gids: Arc<Vec<u32>> = Arc::new((1_000_000..1_065_536).collect());
    let start = |_| {
        let gids = gids.clone();
        // SAFETY: the list is valid.
        sleeping(move || check(unsafe { libc::setgroups(gids.len(), gids.as_ptr()) }))
    };
    let all: Vec<Ended> = match (0..many(48, 500)).map(start).collect() {
        Ok(all) => all,
        Err(e) => {
            return skip(
                "runs_end_soon_beside_all_the_groups_that_there_can_be",
                &format!("setgroups: {e}"),
            );
        }
    };
    runs_end_soon("groups", &Request::all(Groups::CRED), |s| {
        for idle in &all {
            assert_eq!(task(s, idle.id()).groups().map(|g| g.len()), Some(gids.len()));
        }
    });
}

#[test]
fn runs_end_soon_beside_many_namespaces() {
    let Some(_one) = alone("runs_end_soon_beside_many_namespaces") else { return };
    let flags = libc::CLONE_NEWUTS | libc::CLONE_NEWIPC | libc::CLONE_NEWCGROUP | libc::CLONE_NEWNS;
    // SAFETY: a plain system call.
    let start = |_| sleeping(move || check(unsafe { libc::unshare(flags) }));
    let all: Vec<Ended> = match (0..many(250, 2_500)).map(start).collect() {
        Ok(all) => all,
        Err(e) => return skip("runs_end_soon_beside_many_namespaces", &format!("unshare: {e}")),
    };
    let request = Request::all(Groups::NS | Groups::BASE);
    runs_end_soon("namespaces", &request, |s| {
        for idle in &all {
            task(s, idle.id()).record::<taskdiag::Ns>().expect("namespaces");
        }
    });
}

#[test]
fn runs_end_soon_for_long_lists_of_one_descriptor() {
    let Some(_one) = alone("runs_end_soon_for_long_lists_of_one_descriptor") else { return };
    let mut n = many(10_000, 100_000);
    if !allow_files(n as u64 + 1_000) {
        let allowed = files_allowed() as usize;
        if allowed < 10_000 + 1_000 {
            return skip(
                "runs_end_soon_for_long_lists_of_one_descriptor",
                "not allowed so many files",
            );
        }
        n = n.min(allowed - 1_000);
        let why = format!("not allowed so many files, so there are {n}");
        skip("runs_end_soon_for_long_lists_of_one_descriptor", &why);
    }
    // SAFETY: plain system calls, whose descriptors are ours.
    let (epoll, inotify) = unsafe {
        let epoll = OwnedFd::from_raw_fd(libc::epoll_create1(libc::EPOLL_CLOEXEC));
        (epoll, OwnedFd::from_raw_fd(libc::inotify_init1(libc::IN_CLOEXEC)))
    };
    let timer = |_| {
        // SAFETY: as above.
        let fd = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC) };
        assert!(fd >= 0);
        // SAFETY: as above.
        unsafe { OwnedFd::from_raw_fd(fd) }
    };
    let timers: Vec<OwnedFd> = (0..n).map(timer).collect();
    for fd in &timers {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 1 };
        // SAFETY: the event is there.
        let r = unsafe {
            libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd.as_raw_fd(), &mut event)
        };
        assert_eq!(r, 0);
    }
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let dir = dir.expect("a directory");
    let allowed = std::fs::read_to_string("/proc/sys/fs/inotify/max_user_watches");
    let allowed = allowed.ok().and_then(|n| n.trim().parse().ok()).unwrap_or(0);
    // Other processes may have some watches already.
    for i in 0..many(30_000, 200_000).min(allowed * 9 / 10) {
        let path = dir.path().join(i.to_string());
        std::fs::write(&path, "").expect("written");
        let path = CString::new(path.as_os_str().as_encoded_bytes()).expect("no NUL");
        // SAFETY: the path ends with a NUL.
        if unsafe { libc::inotify_add_watch(inotify.as_raw_fd(), path.as_ptr(), libc::IN_OPEN) } < 0
        {
            return skip(
                "runs_end_soon_for_long_lists_of_one_descriptor",
                "not allowed so many watches",
            );
        }
    }
    runs_end_soon("epoll, inotify, timerfd", &Request::one(me(), Groups::FD), |s| {
        let fds = task(s, me()).list::<Fd>().expect("files").count();
        assert!(fds > n, "{fds}");
    });
}

/// Unix sockets have names of up to 107 bytes, and are looked at twice: as files and as sockets.
#[test]
fn runs_end_soon_for_sockets_with_long_names() {
    use std::os::linux::net::SocketAddrExt as _;
    use std::os::unix::net::{SocketAddr, UnixDatagram};
    let Some(_one) = alone("runs_end_soon_for_sockets_with_long_names") else { return };
    let mut n = many(5_000, 50_000);
    if !allow_files(n as u64 + 1_000) {
        n = n.min(files_allowed() as usize - 1_000);
        skip(
            "runs_end_soon_for_sockets_with_long_names",
            &format!("not allowed so many files, so there are {n}"),
        );
    }
    let bind = |i: usize| {
        let name = format!("taskdiag-{}-{i:06}-{}", me(), "s".repeat(80));
        let address = SocketAddr::from_abstract_name(name).expect("it is short enough");
        UnixDatagram::bind_addr(&address).expect("a socket")
    };
    let all: Vec<UnixDatagram> = (0..n).map(bind).collect();
    runs_end_soon("sockets", &Request::one(me(), Groups::FD), |s| {
        let sockets = task(s, me()).list::<taskdiag::Socket>().expect("sockets");
        assert!(sockets.count() >= all.len());
    });
}

/// A symbol is looked up for each frame.
#[test]
fn runs_end_soon_for_stacks_of_many_threads() {
    let Some(_one) = alone("runs_end_soon_for_stacks_of_many_threads") else { return };
    let m = Mktask::start(&["threads", &many(2_000, 20_000).to_string()]).expect("allowed");
    let groups = Groups::BASE | Groups::WCHAN | Groups::KSTACK;
    runs_end_soon("stacks", &Request::threads(m.pid(), groups), |s| {
        // The first one may run by now.
        let deep = s.tasks().filter(|t| t.kstack().is_some_and(|k| k.data.len() > 50)).count();
        assert!(deep + 10 > s.tasks().len(), "{deep}");
    });
}

#[test]
fn runs_end_soon_for_mappings_with_holes_between_them() {
    let Some(_one) = alone("runs_end_soon_for_mappings_with_holes_between_them") else { return };
    const N: usize = 60_000;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping, of which every other page is given back.
    let at = unsafe {
        let at = libc::mmap(std::ptr::null_mut(), N * 2 * 4096, libc::PROT_READ, flags, -1, 0);
        assert_ne!(at, libc::MAP_FAILED);
        for i in 0..N {
            if libc::munmap(at.byte_add((2 * i + 1) * 4096), 4096) != 0 {
                break;
            }
        }
        at
    };
    runs_end_soon("mappings with holes", &Request::one(me(), Groups::VMA), |s| {
        assert!(task(s, me()).list::<Vma>().expect("mappings").count() > 20_000);
    });
    // SAFETY: the mapping from above.
    unsafe { libc::munmap(at, N * 2 * 4096) };
}

#[test]
fn runs_end_soon_for_a_million_slots_with_few_files() {
    let Some(_one) = alone("runs_end_soon_for_a_million_slots_with_few_files") else { return };
    let mut slots = 1_000_000;
    if !allow_files(slots as u64 + 1_000) {
        skip(
            "runs_end_soon_for_a_million_slots_with_few_files",
            "not allowed so many files, so it has as many slots as allowed",
        );
        slots = files_allowed() as i32;
    }
    let start = |_| {
        // SAFETY: a plain system call.
        sleeping(move || check(unsafe { libc::dup2(0, slots - 1) })).expect("sleep")
    };
    let all: Vec<Ended> = (0..many(12, 200)).map(start).collect();
    let one = |groups: Groups, test: &dyn Fn(TaskView<'_>)| {
        let what = format!("{slots} slots, {groups}");
        runs_end_soon(&what, &Request::all(groups), |s| {
            all.iter().for_each(|idle| test(task(s, idle.id())));
        });
        let what = format!("{what}, one process");
        let pid = all[0].id();
        runs_end_soon(&what, &Request::one(pid, groups), |s| test(task(s, pid)));
    };
    // Descriptors that the test itself inherited are open there, too.
    let open = std::fs::read_dir(format!("/proc/{}/fd", all[0].id())).expect("its files").count();
    one(Groups::FD_COUNT, &|t| {
        let count = t.record::<taskdiag::FdCount>().expect("a count");
        assert_eq!(count.open(), Some(open as u32), "{}", t.pid());
    });
    one(Groups::FD, &|t| {
        assert_eq!(t.list::<Fd>().expect("files").count(), open, "{}", t.pid());
    });
}

#[test]
fn runs_end_soon_for_arguments_of_six_megabytes() {
    let Some(_one) = alone("runs_end_soon_for_arguments_of_six_megabytes") else { return };
    let text = "x".repeat(120_000);
    let start = |_| {
        let mut command = Command::new("sh");
        command.args(["-c", "read x"]).args((0..48).map(|_| &text));
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        let unlimited =
            libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: the struct is there.
        unsafe { command.pre_exec(move || check(libc::setrlimit(libc::RLIMIT_STACK, &unlimited))) };
        let idle = command.spawn().map(Ended)?;
        wait_for_sleep(idle.id());
        Ok(idle)
    };
    let all: io::Result<Vec<Ended>> = (0..many(3, 20)).map(start).collect();
    let all = match all {
        Ok(all) => all,
        Err(e) => {
            return skip("runs_end_soon_for_arguments_of_six_megabytes", &format!("execve: {e}"));
        }
    };
    runs_end_soon("arguments", &Request::all(Groups::CMDLINE), |s| {
        for idle in &all {
            let args = task(s, idle.id()).cmdline().expect("arguments");
            assert!(args.data.len() >= 4_000, "{}", args.data.len());
        }
    });
}

#[test]
fn runs_end_soon_for_sums_over_many_threads() {
    let Some(_one) = alone("runs_end_soon_for_sums_over_many_threads") else { return };
    let most = many(4_000, 100_000);
    let ids = PidMax::for_processes(most);
    if let Err(why) = &ids {
        skip(
            "runs_end_soon_for_sums_over_many_threads",
            &format!("no room for {most} threads: {why}"),
        );
    }
    let threads = [most, 50_000, 25_000, 4_000].into_iter().filter(|n| *n <= most);
    let start = |n: usize| Some((n, Mktask::attempt(&["threads", &n.to_string()]).ok()?));
    let Some((n, m)) = threads.into_iter().find_map(start) else {
        return skip("runs_end_soon_for_sums_over_many_threads", "not allowed 4,000 threads");
    };
    if n < most {
        let why = format!("not allowed {most} threads, so it has {n}");
        skip("runs_end_soon_for_sums_over_many_threads", &why);
    }
    let groups = Groups::BASE | Groups::STAT | Groups::SCHED | Groups::IO;
    runs_end_soon(&format!("a sum over {n}"), &Request::one(m.pid(), groups), |s| {
        task(s, m.pid()).record::<taskdiag::Stat>().expect("values");
    });
    let groups =
        groups | Groups::CRED | Groups::SIGNALS | Groups::LIMITS | Groups::NS | Groups::CGROUP;
    runs_end_soon("threads", &Request::threads(m.pid(), groups), |s| {
        assert!(s.tasks().len() >= n);
    });
}
