//! Tests odd requests, odd surroundings and missing rights: the result must be a clear answer or a
//! clear error, and never a hang or a wrong 0. The library is asked directly if that is enough, and
//! the program `taskdiag` if the surroundings of a whole process are needed.
//!
//! The exit codes are 0 for complete output, as far as the caller may see it, 1 if nothing matched,
//! 2 for wrong usage, 3 if a named process could not be shown, and 4 for no answer.

use std::time::{Duration, Instant};

use taskdiag::{Choice, EngineId, Error, Groups, Request, Strategy, query_with};
use taskdiag_tests::answer::{GROUPS, groups_of};
use taskdiag_tests::busy::Patience;
use taskdiag_tests::cli::{Ran, Sandbox};
use taskdiag_tests::{Mktask, Source, engines, needs_root, read, skip};

/// A pid that existed and has gone.
fn reaped_pid() -> u32 {
    let mut child = std::process::Command::new("true").spawn().expect("true runs");
    child.wait().expect("it ends");
    child.id()
}

#[test]
fn a_pid_that_does_not_exist_is_an_error_of_each_engine() {
    for engine in engines() {
        for strategy in [Strategy::One, Strategy::Thread, Strategy::Children] {
            let ask = |pid: u32| match read(*engine, &Request::new(strategy, pid, Groups::BASE)) {
                Err(Error::NoSuchProcess(p)) if p == pid => None,
                other => {
                    Some(format!("{engine}/{strategy} of {pid}: {:?}", other.map(|a| a.pids())))
                }
            };
            // The kernel has no pid of 4194304 or more.
            for pid in [4_194_304, i32::MAX as u32, u32::MAX] {
                assert_eq!(ask(pid), None);
            }
            // On a machine with tests that start very many processes, another process may have got
            // this pid by now.
            let mut patience = Patience::new(Duration::from_secs(5));
            while let Some(other) = ask(reaped_pid()) {
                assert!(!patience.is_over(), "{other}");
            }
        }
    }
}

#[test]
fn a_pid_that_the_strategy_does_not_take_is_refused() {
    for engine in engines() {
        for strategy in Strategy::ALL {
            let pid = if strategy.takes_pid() { 0 } else { 1 };
            let req = Request::new(*strategy, pid, Groups::BASE);
            for choice in [Choice::Only(engine.id()), Choice::Auto] {
                let answer = query_with(&req, choice);
                assert!(answer.is_err(), "{engine}/{strategy} takes pid {pid}");
            }
        }
    }
}

#[test]
fn no_groups_is_a_list_of_pids() {
    let m = Mktask::start(&["threads", "3"]).expect("always possible");
    for engine in engines() {
        for strategy in Strategy::ALL {
            let pid = match strategy {
                Strategy::Children => m.num("ppid"),
                s if s.takes_pid() => m.pid(),
                _ => 0,
            };
            let req = Request::new(*strategy, pid, Groups::NONE);
            let a = read(*engine, &req).unwrap_or_else(|e| panic!("{engine}/{strategy}: {e}"));
            let t = a.task(m.pid());
            assert!(t.fields.is_empty(), "{a}: {:?}", t.fields);
        }
    }
}

#[test]
fn a_request_for_one_group_gives_only_that_group() {
    let m = Mktask::start(&["idle"]).expect("always possible");
    for engine in engines() {
        for group in groups_of(*engine).iter() {
            let a = read(*engine, &Request::one(m.pid(), group.into())).expect("an answer");
            let t = a.task(m.pid());
            assert!(!t.fields.is_empty(), "{a} has nothing of {group}");
            for key in t.fields.keys() {
                let of = key.split('.').next();
                assert_eq!(of, Some(group.name()), "{a} for {group} alone has {key}");
            }
        }
    }
}

#[test]
fn a_group_that_is_not_known_is_refused() {
    for engine in engines() {
        for groups in [Groups::from_bits(1 << 63), Groups::BASE | Groups::from_bits(1 << 40)] {
            let err = engine.query(&Request::all(groups)).err();
            assert!(matches!(err, Some(Error::Unsupported { .. })), "{engine}: {err:?}");
        }
    }
}

#[test]
fn tasks_may_vanish_at_any_moment() {
    let storms: Vec<Mktask> =
        (0..2).map(|_| Mktask::start(&["storm"]).expect("always possible")).collect();
    for engine in engines() {
        let end = Instant::now() + Duration::from_millis(3000);
        let (mut n, mut vanished) = (0, 0);
        while Instant::now() < end || n < 2 {
            let strategy = [Strategy::All, Strategy::AllThread][n % 2];
            let req = Request::new(strategy, 0, groups_of(*engine));
            let a = read(*engine, &req).unwrap_or_else(|e| panic!("{engine}/{strategy}: {e}"));
            assert_eq!(a.done.tasks, a.pids().len() as u64, "{a}");
            vanished += a.done.vanished;
            for m in &storms {
                // The answer must have every task that does not vanish.
                a.task(m.pid());
                a.task(m.supervisor());
                let req = Request::children(m.pid(), Groups::BASE | Groups::CMDLINE);
                read(*engine, &req).unwrap_or_else(|e| panic!("{engine}/children: {e}"));
            }
            // This pid may or may not exist.
            let Some(pid) = a.pids().into_iter().max() else { continue };
            for strategy in [Strategy::One, Strategy::Thread] {
                match read(*engine, &Request::new(strategy, pid, GROUPS & groups_of(*engine))) {
                    Ok(a) => assert_eq!(a.done.tasks, a.pids().len() as u64, "{a}"),
                    Err(Error::NoSuchProcess(p)) => assert_eq!(p, pid),
                    Err(e) => panic!("{engine}/{strategy} of {pid}: {e}"),
                }
            }
            n += 1;
        }
        if vanished == 0 && engine.id() == EngineId::Procfs {
            skip("vanishing tasks on procfs", "none vanished within the walk in 3 s");
        }
    }
}

/// Checks that `ps` about a process of ours gives a complete answer.
fn shows(ran: &Ran, m: &Mktask) {
    assert_eq!(ran.code, Some(0), "{ran}");
    let pid = m.pid().to_string();
    let has = ran.stdout.lines().any(|l| l.split_whitespace().next() == Some(&pid));
    assert!(has, "process {pid} is not in\n{ran}");
}

/// Checks that there is no answer, and that the message has these words.
fn no_answer(ran: &Ran, words: &[&str]) {
    assert_eq!(ran.code, Some(4), "{ran}");
    assert!(ran.stdout.is_empty(), "{ran}");
    for w in words {
        assert!(ran.stderr.to_lowercase().contains(w), "'{w}' is not in the message of\n{ran}");
    }
}

const PS: &[&str] = &["ps", "-e", "-o", "pid,ppid,comm"];

#[test]
fn the_program_tells_that_a_pid_is_not_there() {
    let ran = Sandbox::new().run(&["ps", "-p", "4194303"]);
    assert_eq!(ran.code, Some(1), "{ran}");
    assert!(!ran.stdout.contains("4194303"), "{ran}");
}

#[test]
fn without_proc_the_error_names_it() {
    if !needs_root("without_proc_the_error_names_it") {
        return;
    }
    let sandbox = Sandbox::new().without_proc();
    no_answer(&sandbox.run(&["ps", "-e", "--engine", "procfs"]), &["/proc", "mount"]);
    // Another engine may give an answer.
    let ran = sandbox.run(PS);
    match ran.code {
        Some(0 | 3) => assert!(ran.stdout.lines().count() > 3, "{ran}"),
        _ => no_answer(&ran, &["/proc"]),
    }
    // The message is about values that only /proc has, and does not suggest an engine that is
    // already in use.
    for args in [&["memory"][..], &["maps", "-x", "1"], &["memory", "-p", "1,2"]] {
        let ran = sandbox.run(args);
        no_answer(&ran, &["no proc filesystem is mounted"]);
        assert!(!ran.stderr.contains("--engine auto"), "{ran}");
    }
}

/// Checks that in these surroundings `auto` answers, and bpf either answers or gives the reason.
fn auto_goes_on(name: &str, sandbox: Sandbox, bpf_must_fail: bool) {
    let m = Mktask::start(&["idle"]).expect("always possible");
    shows(&sandbox.run(PS), &m);
    shows(&sandbox.run(&[PS, &["--engine", "procfs"]].concat()), &m);
    if !engines().contains(&Source::Engine(EngineId::Bpf)) {
        return skip(&format!("{name} on the bpf engine"), "it does not work here at all");
    }
    let ran = sandbox.run(&[PS, &["--engine", "bpf"]].concat());
    if ran.code == Some(4) || bpf_must_fail {
        no_answer(&ran, &["bpf"]);
    } else {
        // Process 1 may be hidden from BPF, and the answer is partial then.
        assert!(matches!(ran.code, Some(0 | 3)), "{ran}");
        shows(&Ran { code: Some(0), ..ran }, &m);
    }
}

#[test]
fn without_locked_memory_there_is_an_answer() {
    auto_goes_on(
        "without_locked_memory_there_is_an_answer",
        Sandbox::new().limit(libc::RLIMIT_MEMLOCK, 0),
        false,
    );
}

/// If there is not enough memory, the program reports that and leaves no core.
#[test]
fn with_little_memory_there_is_an_answer_or_an_error() {
    let mut said = 0;
    // The limits range from a size at which the program cannot be loaded to one that is enough.
    for kib in (3_000..36_000).step_by(600) {
        for args in [PS, &["files"]] {
            let ran = Sandbox::new().limit(libc::RLIMIT_AS, kib << 10).run(args);
            match ran.code {
                Some(0 | 3) => {}
                Some(4) => {
                    let is_said = ["memory", "limit"].iter().any(|w| ran.stderr.contains(w));
                    assert!(is_said, "{kib} KiB: {ran}");
                    said += 1;
                }
                // This is the loader, or the kernel before it.
                Some(126 | 127) => assert!(ran.stdout.is_empty(), "{kib} KiB: {ran}"),
                None if ran.stderr.is_empty() && said == 0 => {}
                // The C library itself reports a lack of memory for a new thread.
                None if ran.stderr.contains("TLS destructor: out of memory") => said += 1,
                _ => panic!("{kib} KiB: {ran}"),
            }
        }
    }
    assert!(said > 0, "memory was never short");
}

#[test]
fn with_few_descriptors_there_is_an_answer_or_advice() {
    auto_goes_on(
        "with_few_descriptors_there_is_an_answer_or_advice",
        Sandbox::new().limit(libc::RLIMIT_NOFILE, 8),
        false,
    );
    // With next to no descriptors there may be no answer, but there must be advice.
    for n in [5, 4, 3] {
        let ran = Sandbox::new().limit(libc::RLIMIT_NOFILE, n).run(PS);
        if ran.code != Some(0) && ran.code != Some(127) {
            no_answer(&ran, &["ulimit -n"]);
        }
    }
}

#[test]
fn auto_answers_where_seccomp_denies_bpf() {
    for errno in [libc::EPERM, libc::ENOSYS] {
        auto_goes_on(
            "auto_answers_where_seccomp_denies_bpf",
            Sandbox::new().deny(libc::SYS_bpf, errno),
            true,
        );
    }
}

/// A unit of systemd with `SystemCallFilter=@system-service` has a filter that ends a process which
/// calls bpf(2).
#[test]
fn auto_answers_where_seccomp_kills_callers_of_bpf() {
    let sandbox = Sandbox::new().deadly(libc::SYS_bpf);
    auto_goes_on("auto_answers_where_seccomp_kills_callers_of_bpf", sandbox, true);
}

#[test]
fn without_new_threads_there_is_an_answer() {
    // The program must survive a thread pool that cannot start.
    let sandbox = Sandbox::new().deny(libc::SYS_clone3, libc::EAGAIN);
    let sandbox = sandbox.deny(libc::SYS_clone, libc::EAGAIN);
    auto_goes_on("without_new_threads_there_is_an_answer", sandbox, false);
}

#[test]
fn an_unprivileged_user_gets_an_answer_or_the_reason() {
    if !needs_root("an_unprivileged_user_gets_an_answer_or_the_reason") {
        return;
    }
    let sandbox = Sandbox::new().user(65534);
    auto_goes_on("an_unprivileged_user_gets_an_answer_or_the_reason", sandbox.clone(), true);
    // Files that only the owner may read are denied and reported, and their values are not 0.
    let m = Mktask::start(&["idle"]).expect("always possible");
    let pid = m.pid().to_string();
    let ran = sandbox.run(&["ps", "-p", &pid, "-o", "pid,exe"]);
    assert_eq!(ran.code, Some(3), "a partial answer: {ran}");
    assert!(ran.stderr.contains("exe of 1 process is not shown: run as root"), "{ran}");
    let own = Mktask::start(&["user", "65534"]).expect("we are root");
    let ran = sandbox.run(&["ps", "-p", &own.pid().to_string(), "-o", "pid,cwd"]);
    assert!(matches!(ran.code, Some(0 | 3)), "{ran}");
}

#[test]
fn sockets_of_another_network_namespace_are_found() {
    if !needs_root("sockets_of_another_network_namespace_are_found") {
        return;
    }
    let Some(m) =
        Mktask::or_skip("sockets_of_another_network_namespace_are_found", &["elsewhere", "65534"])
    else {
        return;
    };
    let netns = std::fs::read_link(format!("/proc/{}/ns/net", m.pid())).expect("it lives");
    let netns = netns.to_str().expect("plain");
    let pid = m.pid().to_string();
    let args = ["files", "--engine", "procfs", "-nP", "-p", &pid];
    let row = |ran: &Ran, fact: &str| {
        let fd = format!("{}u", m.num::<u32>(fact));
        let found = ran.stdout.lines().find(|l| l.split_whitespace().any(|w| w == fd));
        found.unwrap_or_else(|| panic!("no {fact}\n{ran}")).to_string()
    };
    // The owner of the process may not enter the namespace, so its sockets are read from /proc.
    for sandbox in [Sandbox::new().user(65534), Sandbox::new()] {
        let ran = sandbox.run(&args);
        for (fact, kind) in [("tcp", "IPv4"), ("udp6", "IPv6"), ("unix", "unix")] {
            let line = row(&ran, fact);
            assert!(line.contains(kind), "{line}");
        }
        let line = row(&ran, "tcp");
        assert!(line.contains("(LISTEN)") && line.contains(netns), "{line}");
    }
}

#[test]
fn hidepid_hides_processes_of_others() {
    if !needs_root("hidepid") {
        return;
    }
    let m = Mktask::start(&["user", "65534"]).expect("we are root");
    let root = Mktask::start(&["idle"]).expect("always possible");
    let sandbox = Sandbox::new().hidepid().user(65534);
    let ran = sandbox.run(PS);
    if ran.code == Some(126) {
        return skip("hidepid", "a proc with hidepid=2 cannot be mounted here");
    }
    shows(&ran, &m);
    for line in ran.stdout.lines().skip(1) {
        let pid = line.split_whitespace().next().expect("a pid");
        assert_ne!(pid, root.pid().to_string(), "a hidden process is shown\n{ran}");
        assert_ne!(pid, "1", "a hidden process is shown\n{ran}");
    }
    let ran = sandbox.run(&["ps", "-p", &root.pid().to_string()]);
    assert_eq!(ran.code, Some(1), "{ran}");
}

/// kcmp(2) may not be asked whether these threads share their files. Each table is listed once
/// nevertheless, threads whose descriptors differ have tables of their own, and the answer reports
/// that this is not certain.
#[test]
fn a_table_of_files_is_listed_once_where_sharing_may_not_be_queried() {
    let sandbox = Sandbox::new().deny(libc::SYS_kcmp, libc::EPERM);
    let dirs = [tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("another")];
    let [one, other] = dirs.each_ref().map(|d| d.path().to_str().expect("plain"));
    for (state, tables, in_doubt) in
        [(&["threads", "4"][..], 1, 4), (&["unshared-files", one, other], 2, 0)]
    {
        let Some(m) = Mktask::or_skip(
            "a_table_of_files_is_listed_once_where_sharing_may_not_be_queried",
            state,
        ) else {
            return;
        };
        let pid = m.pid().to_string();
        let doubt = format!("open files of their own, if there are any, of {in_doubt} threads");
        let code = if in_doubt > 0 { 3 } else { 0 };
        let count = ["files", "--count", "--engine", "procfs", "-p", &pid];
        let all = ["files", "--engine", "procfs", "-d", "0", "-a", "-p", &pid];
        for args in [&count[..], &all] {
            let ran = sandbox.run(args);
            let rows = ran.stdout.lines().filter(|l| l.split_whitespace().any(|w| w == pid));
            assert_eq!(rows.count(), tables, "{state:?}: {ran}");
            assert_eq!(ran.code, Some(code), "{state:?}: {ran}");
            assert_eq!(ran.stderr.contains(&doubt), in_doubt > 0, "{state:?}: {ran}");
        }
    }
}

/// A socket without an address is in no list of its network namespace, so the socket itself is
/// queried. If that is refused, text and JSON both report that something is not known.
#[test]
fn sockets_in_no_list_have_a_name_or_a_question_mark() {
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
    let socket = |family, kind| {
        // SAFETY: takes numbers, gives a new descriptor that nobody else has.
        unsafe {
            let fd = libc::socket(family, kind | libc::SOCK_CLOEXEC, 0);
            assert!(fd >= 0, "family {family}");
            OwnedFd::from_raw_fd(fd)
        }
    };
    let (inet, netlink) = (libc::AF_INET, libc::AF_NETLINK);
    let sockets = [
        (socket(inet, libc::SOCK_STREAM), "IPv4", "*:* (CLOSE)"),
        (socket(inet, libc::SOCK_DGRAM), "IPv4", "*:*"),
        (socket(netlink, libc::SOCK_RAW), "netlink", "ROUTE"),
    ];
    let me = std::process::id().to_string();
    let refused = Sandbox::new().deny(libc::SYS_pidfd_getfd, libc::EPERM);
    for (sandbox, is_told) in [(Sandbox::new(), true), (refused, false)] {
        for (fd, kind, name) in &sockets {
            let fd = fd.as_raw_fd().to_string();
            let args = ["files", "--engine", "procfs", "-nP", "-a", "-p", &me, "-d", &fd];
            let text = sandbox.run(&args);
            let json = sandbox.run(&[&args[..], &["--json"]].concat());
            let line = text.stdout.lines().nth(1).unwrap_or_else(|| panic!("{text}"));
            assert!(line.contains(kind), "{text}");
            let end = if is_told { format!(" {name}") } else { String::from(" ?") };
            assert!(line.ends_with(&end), "{text}");
            let code = Some(if is_told { 0 } else { 3 });
            assert_eq!((text.code, json.code), (code, code), "{text}\n{json}");
            assert_eq!(json.stdout.contains("\"unsupported\""), !is_told, "{json}");
        }
    }
}
