//! SETTINGS, PERSONA, CPUSET, NS_ID and PIDFD of every engine, against what system calls return for
//! processes and threads.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use taskdiag::{EngineId, Group, Groups, Reason, Request};
use taskdiag_tests::answer::{engines_with, is_by_proc_tasks};
use taskdiag_tests::{Answer, Mktask, read, skip};

/// The inode of a pidfd, as util-linux has it in `PID:INODE`. `None`: this kernel has none.
fn inode(id: u32, flags: i32) -> Option<u64> {
    // SAFETY: takes numbers, and returns a descriptor that nobody else has.
    let fd = unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, id, flags);
        OwnedFd::from_raw_fd(i32::try_from(fd).ok().filter(|fd| *fd >= 0)?)
    };
    taskdiag::pidfd_inode(fd).expect("it is open")
}

#[test]
fn pidfds_have_the_inodes_that_fstat_tells() {
    let test = "pidfds_have_the_inodes_that_fstat_tells";
    let Some(m) = Mktask::or_skip(test, &["threads", "3"]) else { return };
    let process = inode(m.pid(), 0);
    if process.is_none() {
        skip(test, "pidfds have no inodes of their own before Linux 6.9");
    }
    let groups = Groups::BASE | Groups::PIDFD;
    let engines = engines_with(Group::Pidfd);
    assert!(!engines.is_empty());
    for engine in engines {
        for req in [Request::one(m.pid(), groups), Request::threads(m.pid(), groups)] {
            let answer = read(engine, &req).expect("an answer");
            let pids = answer.pids();
            assert_eq!(pids.len(), if req.strategy.is_threads() { 4 } else { 1 }, "{answer}");
            for id in pids {
                let task = answer.task(id);
                let Some(process) = process else {
                    assert_eq!(task.missing("pidfd"), Some(Reason::Unsupported), "{answer}");
                    continue;
                };
                assert_eq!(task.num("pidfd.process_ino"), process.into(), "{answer} of {id}");
                let own = match req.strategy.is_threads() {
                    true => inode(id, libc::O_EXCL).expect("PIDFD_THREAD is as old as the inodes"),
                    false => process,
                };
                assert_eq!(task.num("pidfd.ino"), own.into(), "{answer} of {id}");
                let is_leader = id == m.pid();
                assert_eq!(is_leader, own == process, "{answer} of {id}: each has its own");
            }
        }
    }
}

/// Calls `check` with each answer about this process that has the group, and about its threads.
fn each_answer(m: &Mktask, group: Group, check: impl Fn(&Answer)) {
    // Through /proc, SCHED reads the status files of all threads, which have settings, too.
    let groups = Groups::BASE | Groups::SCHED | group.into();
    let engines = engines_with(group);
    assert!(!engines.is_empty(), "no engine has {group}");
    for engine in engines {
        for req in [Request::one(m.pid(), groups), Request::threads(m.pid(), groups)] {
            check(&read(engine, &req).expect("an answer"));
        }
    }
}

#[test]
fn settings_are_those_that_were_set() {
    let Some(m) = Mktask::or_skip("settings_are_those_that_were_set", &["settings"]) else {
        return;
    };
    let of = |answer: &Answer, whose: &str, group: Group| {
        let task = answer.task(m.num(&format!("{whose}tid")));
        let fact = |name: &str| m.num::<i128>(&format!("{whose}{name}"));
        match group {
            Group::Settings => {
                let class_and_level = fact("ioprio");
                assert_eq!(task.num("settings.ioprio"), class_and_level, "{answer} {whose}");
                let mut cpus = m.num::<u64>(&format!("{whose}cpus")).to_le_bytes().to_vec();
                cpus.truncate(cpus.iter().rposition(|b| *b != 0).expect("a processor") + 1);
                assert_eq!(task.bytes("settings.cpus"), cpus, "{answer} {whose}");
                // All threads share the settings of the process.
                assert_eq!(task.num("settings.umask"), m.num::<i128>("umask"), "{answer}");
                if task.get("settings.thp_enabled").is_some() {
                    let disabled = m.num::<i128>("thp_disabled");
                    assert_eq!(task.num("settings.thp_enabled"), 1 - disabled, "{answer}");
                }
                assert_eq!(task.num("settings.coredumping"), 0, "{answer}");
                let filters = if whose.is_empty() { m.num("seccomp_filters") } else { 0 };
                assert_eq!(task.num("settings.seccomp_filters"), filters, "{answer} {whose}");
            }
            Group::Persona => {
                assert_eq!(task.num("persona.personality"), fact("personality"), "{answer}");
                assert_eq!(task.num("persona.timer_slack_ns"), fact("timer_slack"), "{answer}");
            }
            _ if !m.has("cpuset") => {
                assert!(task.missing("cpuset").is_some(), "{answer} {whose}");
            }
            _ => {
                let path = m.bytes(&format!("{whose}cpuset"));
                assert_eq!(task.bytes("cpuset"), path, "{answer} {whose}");
            }
        }
    };
    for group in [Group::Settings, Group::Persona, Group::Cpuset] {
        each_answer(&m, group, |answer| {
            of(answer, "", group);
            if answer.strategy.is_threads() {
                of(answer, "other_", group);
            }
        });
    }
}

#[test]
fn guest_times_are_known_to_each_engine_except_the_kernel() {
    let me = std::process::id();
    for engine in engines_with(Group::Stat) {
        let answer = read(engine, &Request::one(me, Groups::BASE | Groups::STAT)).expect("one");
        let is_kernel = engine.id() == EngineId::Kernel && !is_by_proc_tasks(engine);
        for member in ["stat.guest_ns", "stat.cguest_ns"] {
            // The header of the kernel series is older. This process is no virtual machine.
            let want = if is_kernel { None } else { Some(0) };
            let known = answer.task(me).get(member).map(|_| answer.task(me).num(member));
            assert_eq!(known, want, "{answer}: {member}");
        }
    }
}

#[test]
fn maps_of_ids_are_those_of_the_user_namespace() {
    let test = "maps_of_ids_are_those_of_the_user_namespace";
    let Some(m) = Mktask::or_skip(test, &["userns"]) else { return };
    each_answer(&m, Group::Persona, |answer| {
        let task = answer.task(m.pid());
        assert_eq!(task.bytes("persona.uid_map"), b"[[0, 50000, 100]]", "{answer}");
        assert_eq!(task.bytes("persona.gid_map"), b"[[0, 60000, 100]]", "{answer}");
    });
    // A map with more ranges is in another place of the kernel's struct.
    let Some(m) = Mktask::or_skip(test, &["userns", "100"]) else { return };
    let ranges: Vec<[u32; 3]> = (0..100).map(|n| [2 * n, 50000 + 2 * n, 1]).collect();
    let text = format!("{ranges:?}").into_bytes();
    each_answer(&m, Group::Persona, |answer| {
        assert_eq!(answer.task(m.pid()).bytes("persona.uid_map"), text, "{answer}");
    });
}

/// `NS_GET_ID` of linux/nsfs.h.
fn ns_id(pid: u32, of: &str) -> Option<u64> {
    const NS_GET_ID: libc::Ioctl = 0x8008_b70d_u32 as libc::Ioctl;
    let file = std::fs::File::open(format!("/proc/{pid}/ns/{of}")).ok()?;
    let mut id = 0u64;
    // SAFETY: the kernel writes a u64.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), NS_GET_ID, &raw mut id) };
    (done == 0).then_some(id)
}

#[test]
fn numbers_of_namespaces_are_those_that_the_ioctl_tells() {
    let test = "numbers_of_namespaces_are_those_that_the_ioctl_tells";
    let names = "cgroup ipc mnt net pid pid_for_children time time_for_children user uts";
    let own = |of: &str| ns_id(std::process::id(), of);
    for state in ["namespaces", "pidns", "userns"] {
        let Some(m) = Mktask::or_skip(test, &[state]) else { return };
        let mut others = 0;
        for of in names.split(' ') {
            let id = ns_id(m.pid(), of);
            others += u32::from(id != own(of));
            each_answer(&m, Group::NsId, |answer| {
                let task = answer.task(m.pid());
                let key = format!("ns_id.{of}");
                match id {
                    Some(id) => assert_eq!(task.num(&key), id.into(), "{answer}: {key}"),
                    None => assert_eq!(task.get(&key), None, "{answer}: {key}"),
                }
            });
        }
        match own("mnt") {
            Some(_) => assert!(others > 0, "{state} has namespaces of its own"),
            None => skip(test, "namespaces have no such numbers before Linux 6.18"),
        }
    }
}
