//! Tests tasks whose values together are larger than the buffer of an engine: no value is cut, and
//! no value overwrites another.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;

use taskdiag::engine::bpf::Bpf;
use taskdiag::wire::{Fd, VMA_READ, VMA_WRITE};
use taskdiag::{
    Base, Engine, EngineId, FdDetail, Group, Groups, Reason, Request, Snapshot, Strategy, Watch,
};
use taskdiag_tests::answer::{engines, engines_with, read};
use taskdiag_tests::busy::wait_for_sleep;
use taskdiag_tests::{Ended, Mktask, Source, skip};

/// The kernel's NGROUPS_MAX.
const GIDS: u32 = 65_536;
/// Two of these fill a chunk of the bpf engine's output. This many are in one answer.
const TASKS: usize = 5;

/// Starts a process with the largest number of supplementary groups.
fn start(gids: Vec<libc::gid_t>) -> std::io::Result<Ended> {
    let mut command = Command::new("sleep");
    command.arg("600").stdin(Stdio::null()).stdout(Stdio::null());
    // SAFETY: setgroups is async-signal-safe as a plain system call, and the list is ready.
    let command = unsafe {
        command.pre_exec(move || match libc::setgroups(gids.len(), gids.as_ptr()) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        })
    };
    let idle = command.spawn().map(Ended)?;
    wait_for_sleep(idle.id());
    Ok(idle)
}

/// A request that is ended between two runs of the BPF program has only complete tasks, and reports
/// that it was ended.
#[test]
fn a_stopped_answer_of_several_runs_has_whole_tasks() {
    let (counts, stopped) = (Arc::new(Watch::new()), Arc::new(Watch::new()));
    stopped.stop();
    if !engines().contains(&Source::Engine(EngineId::Bpf)) {
        return skip("a_stopped_answer_of_several_runs_has_whole_tasks", "no BPF here");
    }
    // The tasks have about 700 bytes each, which is more than the smallest memory can hold.
    let m = Mktask::start(&["threads", "4000"]).expect("so many threads");
    let groups = Groups::BASE | Groups::STAT | Groups::STATM | Groups::SIGNALS | Groups::LIMITS;
    let ask = |watch: &Arc<Watch>| {
        let req = Request::threads(m.pid(), groups).with_watch(watch.clone());
        let answer = Bpf::untried().run(&req).expect("an answer");
        Snapshot::parse(answer.stream).expect("a stream")
    };
    let whole = ask(&counts);
    assert_eq!((whole.tasks().len(), whole.stream().done().error), (4_001, 0));
    let (done, all) = counts.progress();
    assert!(done >= 4_001 && all > 0, "{done} of {all}");
    let part = ask(&stopped);
    assert_eq!(part.stream().done().error, -libc::EINTR);
    assert!((1..4_001).contains(&part.tasks().len()), "{} tasks", part.tasks().len());
    for t in part.tasks() {
        for g in groups.iter() {
            assert!(t.attrs().any(|a| a.0 == g as u16), "{} has no {g}", t.pid());
        }
    }
}

/// Allows this many open files in this process, which also runs other tests.
fn allow_files(n: u64) -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both take a valid struct.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) != 0 {
            return false;
        }
        limit.rlim_cur = limit.rlim_cur.max(n).min(limit.rlim_max);
        limit.rlim_cur >= n && libc::setrlimit(libc::RLIMIT_NOFILE, &limit) == 0
    }
}

/// A task whose files fill the output is continued in the next run, even if a task before it waits
/// for its command line.
#[test]
fn a_waiting_command_line_does_not_stop_lists_of_files() {
    const NAME: &str = "a_waiting_command_line_does_not_stop_lists_of_files";
    const FILES: i32 = 18_000;
    if !engines().contains(&Source::Engine(EngineId::Bpf)) {
        return skip(NAME, "no BPF here");
    }
    if !allow_files(FILES as u64 + 1_000) {
        return skip(NAME, "not allowed so many files");
    }
    // The text is longer than the part that is read at once.
    let long = "x".repeat(10_000);
    let mut waits = Command::new("sh");
    waits.args(["-c", "read x", "sh", &long]).stdin(Stdio::piped());
    let waits = waits.spawn().map(Ended).expect("sh");
    let mut has_files = Command::new("sleep");
    has_files.arg("600").stdin(Stdio::null()).stdout(Stdio::null());
    // SAFETY: dup2 is async-signal-safe.
    let has_files = unsafe {
        has_files.pre_exec(|| match (1_000..1_000 + FILES).all(|fd| libc::dup2(0, fd) == fd) {
            true => Ok(()),
            false => Err(std::io::Error::last_os_error()),
        })
    };
    let has_files = has_files.spawn().map(Ended).expect("sleep");
    [&waits, &has_files].into_iter().for_each(|idle| wait_for_sleep(idle.id()));
    let request = Request::all(Groups::BASE | Groups::CMDLINE | Groups::FD);
    for mut engine in [Bpf::untried(), Bpf::legacy()] {
        let answer = engine.run(&request).expect("an answer");
        let snapshot = Snapshot::parse(answer.stream).expect("a stream");
        let task = |idle: &Ended| snapshot.tasks().find(|t| t.pid() == idle.id()).expect("a task");
        let waits = task(&waits);
        let Some(args) = waits.cmdline() else {
            panic!("{engine:?}: no arguments: {:?}", waits.reason(Group::Cmdline));
        };
        assert!(args.data.len() > long.len(), "{engine:?}: {} bytes", args.data.len());
        let fds = task(&has_files).list::<Fd>().expect("files").filter(|f| f.raw.fd >= 1_000);
        assert_eq!(fds.count(), FILES as usize, "{engine:?}");
    }
}

/// There are more files than the smallest memory can hold. The list of a task is continued in a
/// later run, and the answer also has the tasks after it.
#[test]
fn a_list_of_files_continues_in_a_later_run() {
    const NAME: &str = "a_list_of_files_continues_in_a_later_run";
    const FILES: usize = 18_000;
    if !engines().contains(&Source::Engine(EngineId::Bpf)) {
        return skip(NAME, "no BPF here");
    }
    if !allow_files(FILES as u64 + 1_000) {
        return skip(NAME, "not allowed so many files");
    }
    let null = std::fs::File::open("/dev/null").expect("it is there");
    let files: Vec<_> = (0..FILES).map(|_| null.try_clone().expect("one more")).collect();
    let mut opened: Vec<u32> = files.iter().map(|f| f.as_raw_fd() as u32).collect();
    opened.sort_unstable();
    let later = Mktask::start(&["threads", "4"]).expect("threads");
    for mut engine in [Bpf::untried(), Bpf::legacy()] {
        let me = std::process::id();
        let requests = [
            Request::all_threads(Groups::BASE | Groups::FD),
            Request::all(Groups::FD),
            Request::threads(me, Groups::FD),
        ];
        for request in requests {
            let answer = engine.run(&request).expect("an answer");
            let snapshot = Snapshot::parse(answer.stream).expect("a stream");
            let what = format!("{engine:?}, {:?}", request.strategy);
            assert_eq!(snapshot.stream().done().truncated, 0, "{what}");
            let task = snapshot.tasks().find(|t| t.pid() == me).expect("this process");
            let owner = task.owner(Group::Fd).expect("who has the files");
            let seen: Vec<u32> = owner.list::<Fd>().expect("files").map(|f| f.raw.fd).collect();
            assert!(seen.is_sorted_by(|a, b| a < b), "{what}: each once, in order");
            let all = opened.iter().filter(|fd| seen.binary_search(fd).is_ok()).count();
            assert_eq!(all, FILES, "{what}: {} are there", seen.len());
            if request.strategy != Strategy::Thread {
                let threads = snapshot.tasks().filter(|t| t.tgid() == later.pid());
                let want = if request.strategy == Strategy::AllThread { 5 } else { 1 };
                assert_eq!(threads.count(), want, "{what}");
            }
            for t in snapshot.tasks() {
                let told = t.owner(Group::Fd).is_some_and(|o| o.list::<Fd>().is_some())
                    || t.reason(Group::Fd).is_some();
                assert!(told, "{what}: no mark for {}", t.pid());
            }
        }
    }
}

/// The entries of one descriptor of this process in an answer, by a value of each.
fn details(engine: &mut Bpf, fd: u32, value: usize) -> (Vec<u64>, Option<Reason>) {
    let request = Request::one(std::process::id(), Groups::FD);
    let answer = engine.run(&request).expect("an answer");
    let snapshot = Snapshot::parse(answer.stream).expect("a stream");
    let task = snapshot.tasks().next().expect("this process");
    let all = task.list::<FdDetail>().expect("details").filter(|d| d.raw.fd == fd);
    (all.map(|d| d.raw.value[value]).collect(), task.reason(Group::Fd))
}

/// An epoll file whose entries take many runs is listed completely, each entry once.
#[test]
fn an_epoll_file_with_very_many_entries_is_listed_whole() {
    const NAME: &str = "an_epoll_file_with_very_many_entries_is_listed_whole";
    const ENTRIES: usize = 15_000;
    if !engines().contains(&Source::Engine(EngineId::Bpf)) {
        return skip(NAME, "no BPF here");
    }
    if !allow_files(ENTRIES as u64 + 1_000) {
        return skip(NAME, "not allowed so many files");
    }
    // SAFETY: a plain system call, whose descriptor is ours.
    let epoll = unsafe { OwnedFd::from_raw_fd(libc::epoll_create1(libc::EPOLL_CLOEXEC)) };
    let (one, _other) = std::os::unix::net::UnixStream::pair().expect("sockets");
    let one = OwnedFd::from(one);
    let files: Vec<_> = (0..ENTRIES).map(|_| one.try_clone().expect("one more")).collect();
    let mut added: Vec<u64> = Vec::new();
    for file in &files {
        let fd = file.as_raw_fd();
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: fd as u64 };
        // SAFETY: the event is valid.
        let done =
            unsafe { libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &mut event) };
        assert_eq!(done, 0);
        added.push(fd as u64);
    }
    added.sort_unstable();
    for mut engine in [Bpf::untried(), Bpf::legacy()] {
        let (mut seen, reason) = details(&mut engine, epoll.as_raw_fd() as u32, 0);
        seen.sort_unstable();
        assert!(seen == added, "{engine:?}: {} of {ENTRIES}", seen.len());
        assert_eq!(reason, None, "{engine:?}");
    }
}

/// An inotify file with more watches than a run may skip is listed up to that limit, and the answer
/// reports that.
#[test]
fn an_inotify_file_with_very_many_watches_is_listed_up_to_a_limit() {
    const NAME: &str = "an_inotify_file_with_very_many_watches_is_listed_up_to_a_limit";
    const FEW: usize = 9_000;
    const MANY: usize = 60_000;
    if !engines().contains(&Source::Engine(EngineId::Bpf)) {
        return skip(NAME, "no BPF here");
    }
    // The time of a run decides how many are listed, and an emulated processor reaches about a
    // hundred or a thousand in it.
    let is_emulated = std::env::var_os("TASKDIAG_EMULATED").is_some();
    if is_emulated {
        skip(
            NAME,
            "an emulated processor does not show how many watches a run reaches, only whether the listed ones are right",
        );
    }
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let dir = dir.expect("a directory");
    for watches in [FEW, MANY] {
        // SAFETY: a plain system call, whose descriptor is ours.
        let inotify = unsafe { OwnedFd::from_raw_fd(libc::inotify_init1(libc::IN_CLOEXEC)) };
        for n in 0..watches {
            let path = dir.path().join(n.to_string());
            std::fs::write(&path, "").expect("written");
            let path = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).expect("no NUL");
            // SAFETY: the path ends with a NUL.
            let wd = unsafe {
                libc::inotify_add_watch(inotify.as_raw_fd(), path.as_ptr(), libc::IN_OPEN)
            };
            if wd < 0 {
                return skip(NAME, "not allowed so many watches");
            }
        }
        for mut engine in [Bpf::untried(), Bpf::legacy()] {
            let (mut seen, reason) = details(&mut engine, inotify.as_raw_fd() as u32, 0);
            let told = seen.len();
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen.len(), told, "{engine:?}: each once");
            match reason {
                None => assert_eq!(told, watches, "{engine:?}: all, because there is no mark"),
                Some(Reason::Truncated) => assert!(
                    if is_emulated {
                        (1..watches).contains(&told)
                    } else {
                        watches == MANY && (FEW..watches).contains(&told)
                    },
                    "{engine:?}: {told} of {watches}"
                ),
                other => panic!("{engine:?}: {other:?}"),
            }
        }
    }
}

#[test]
fn five_tasks_with_all_the_groups_there_can_be() {
    let gids: Vec<u32> = (1_000_000..1_000_000 + GIDS).collect();
    let tasks: Result<Vec<Ended>, _> = (0..TASKS).map(|_| start(gids.clone())).collect();
    let tasks = match tasks {
        Ok(tasks) => tasks,
        Err(e) => return skip("five_tasks_with_all_the_groups", &format!("setgroups: {e}")),
    };
    let groups = Groups::CRED | Groups::STAT | Groups::PATHS | Groups::CMDLINE | Groups::CGROUP;
    for engine in engines() {
        let answer =
            read(*engine, &Request::all(groups)).unwrap_or_else(|e| panic!("{engine}: {e}"));
        for task in &tasks {
            let pid = task.id();
            let view = answer.snapshot.tasks().find(|t| t.pid() == pid);
            let view = view.unwrap_or_else(|| panic!("{engine}: no task {pid}"));
            assert_eq!(view.groups().as_deref(), Some(&gids[..]), "{engine}: gids of {pid}");
            if !engine.finds(Group::Cmdline) {
                continue;
            }
            let cmdline = view.cmdline().unwrap_or_else(|| panic!("{engine}: cmdline of {pid}"));
            assert_eq!(&*cmdline.data, b"sleep\x00600\x00", "{engine}");
        }
    }
}

/// A process has so many mappings that loading a program is worth it. This is noticed before the
/// mappings are read. Each mapping is there once and in order, whichever engine answers.
#[test]
fn each_of_50_000_mappings_is_there_once() {
    // The number is odd, so that neither end can be merged with its neighbour.
    const N: usize = 50_001;
    // SAFETY: takes a number only.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let (rw, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
    );
    // SAFETY: a new mapping, of which every other page is made read-only.
    let (at, made) = unsafe {
        let at = libc::mmap(std::ptr::null_mut(), N * page, rw, flags, -1, 0);
        assert_ne!(at, libc::MAP_FAILED);
        let split = |i: &usize| libc::mprotect(at.byte_add(i * page), page, libc::PROT_READ) == 0;
        (at, (0..N).step_by(2).take_while(split).count() * 2 - 1)
    };
    let me = std::process::id();
    let range = at.addr() as u64..(at.addr() + made * page) as u64;
    let mine = |s: &Snapshot| {
        let task = s.tasks().next().expect("this process");
        let vmas = task.list::<taskdiag::Vma>().expect("its mappings");
        let inside = vmas.filter(|v| range.contains(&v.raw.start));
        inside.map(|v| (v.raw.start, v.raw.end, v.raw.perms)).collect::<Vec<_>>()
    };
    let req = Request::one(me, Groups::VMA);
    // An answer stops in a list of mappings that other threads of this program are changing, and
    // reports that.
    let asked = |req: &Request| {
        let ask = || taskdiag::query(req).expect("an answer");
        let is_whole = |a: &Snapshot| {
            a.tasks().all(|t| t.reason(Group::Vma) != Some(taskdiag::Reason::Blocked))
        };
        (0..100).map(|_| ask()).find(is_whole).expect("it is not blocked for ever")
    };
    let auto = asked(&req);
    let served: Vec<_> = auto.served().iter().map(|s| s.engine).collect();
    // The additional groups come from /proc then, and go into the same task.
    let more = Groups::VMA | Groups::BASE | Groups::CMDLINE | Groups::KSTACK | Groups::IO;
    let joined = asked(&Request::one(me, more));
    let served_joined: Vec<_> = joined.served().iter().map(|s| s.engine).collect();
    let task = joined.tasks().next().expect("this process");
    assert_eq!((joined.tasks().len(), joined.stream().asked()), (1, more));
    let base = task.record::<Base>().expect("who it is");
    assert_eq!(base.ppid(), Some(std::os::unix::process::parent_id()));
    assert!(task.cmdline().is_some() && task.record::<taskdiag::Io>().is_some());
    let answers: Vec<_> = engines_with(Group::Vma)
        .iter()
        .map(|e| {
            (
                e.to_string(),
                mine(&read(*e, &req).unwrap_or_else(|err| panic!("{e}: {err}")).snapshot),
            )
        })
        .chain([(String::from("auto"), mine(&auto)), (String::from("joined"), mine(&joined))])
        .collect();
    // SAFETY: the mapping from above.
    unsafe { libc::munmap(at, N * page) };
    if made < N {
        return skip("each_of_50_000_mappings_is_there_once", "vm.max_map_count is too low");
    }
    for (who, vmas) in &answers {
        assert_eq!(vmas.len(), N, "{who}");
        for (i, v) in vmas.iter().enumerate() {
            let start = range.start + (i * page) as u64;
            let perms = VMA_READ | if i % 2 == 0 { 0 } else { VMA_WRITE };
            assert_eq!(*v, (start, start + page as u64, perms), "{who}: mapping {i}");
        }
    }
    let bpf = engines_with(Group::Vma).contains(&Source::Engine(EngineId::Bpf));
    if bpf && has_procmap_query() && !served.contains(&EngineId::Kernel) {
        assert_eq!(served, [EngineId::Bpf]);
        assert_eq!(served_joined, [EngineId::Bpf, EngineId::Procfs]);
    }
}

/// Whether the kernel has the call by which the number of mappings is noticed (Linux 6.11).
fn has_procmap_query() -> bool {
    let maps = std::fs::File::open("/proc/self/maps").expect("our own");
    // struct procmap_query: its size, flags for the next mapping, and an address.
    let mut query = [0u64; 13];
    (query[0], query[1]) = (size_of_val(&query) as u64, 0x10);
    // SAFETY: the struct lives during the call, and has the size that is given.
    unsafe { libc::ioctl(maps.as_raw_fd(), 0xc068_6611, &mut query) == 0 }
}
