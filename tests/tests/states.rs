//! Tests every state of mktask on every engine and strategy: existence, names, credentials, places.
//! `usage.rs` tests what tasks have used.

use std::process::Command;

use taskdiag::{Base, Cred, EngineId, Groups, Members, Reason, Request, Stat, Statm, Strategy};
use taskdiag_tests::answer::is_by_proc_tasks;
use taskdiag_tests::mktask::hash;
use taskdiag_tests::state::{ask, between, in_state, parity, parity_near};
use taskdiag_tests::{Answer, Mktask, Source, Task, Value, cli, engines, read, skip};

fn nothing_else(_: &Mktask, _: &Answer, _: &Task) {}

fn path(dir: &tempfile::TempDir) -> String {
    let path = std::fs::canonicalize(dir.path()).expect("it exists");
    path.to_str().expect("a plain path").to_string()
}

#[test]
fn engines_agree_on_an_idle_process() {
    parity("idle", &["idle"], |m, a, t| {
        in_state(a, t, "S");
        assert_eq!(t.tgid, m.pid());
        assert_eq!(t.bytes("base.comm"), b"mktask");
        assert_eq!(t.num("base.flags"), 0, "{a}");
        assert_eq!(t.num("stat.exit_signal"), libc::SIGCHLD as i128, "{a}");
        assert_eq!(t.bytes("paths.exe"), Mktask::PATH.as_bytes());
        let cmdline = [t.bytes("paths.exe"), b"\0idle\0"].concat();
        assert_eq!(t.bytes("cmdline"), cmdline);
        assert_eq!(t.num("cmdline.flags"), 0, "{a}: cmdline is whole and not rewritten");
    });
}

/// Members of BASE, CRED, STAT and STATM that were not requested may be left out. Everything that
/// is there is as in a whole answer, from whichever file of /proc it comes.
#[test]
fn requested_members_are_those_of_a_whole_answer() {
    for state in ["idle", "creds", "zombie", "leader-gone"] {
        match Mktask::start(&[state]) {
            Ok(m) => members_of(state, &m),
            Err(why) => skip("requested_members_are_those_of_a_whole_answer", &why),
        }
    }
}

const WITH_MEMBERS: Groups =
    Groups::BASE.union(Groups::CRED).union(Groups::STAT).union(Groups::STATM);

/// A member, after the name of its group.
type Named = (&'static str, &'static str);

fn group_of(name: &str) -> Groups {
    match name {
        "base" => Groups::BASE,
        "cred" => Groups::CRED,
        "stat" => Groups::STAT,
        _ => Groups::STATM,
    }
}

fn member(named: &Named) -> Members {
    Members::of(group_of(named.0), &[named.1])
}

/// The requests with few members: each member alone. Verifying a BPF program takes long in an
/// emulator, and the other ways to use BPF run the same code. So there each member is in half of a
/// dozen requests, and for any two members some request has only one of them.
fn parts(engine: Source, wanted: &[Named]) -> Vec<(Groups, Vec<Named>)> {
    let is_emulated = std::env::var_os("TASKDIAG_EMULATED").is_some();
    if engine.id() == EngineId::Bpf && (is_emulated || engine != Source::Engine(EngineId::Bpf)) {
        let bits = usize::BITS - wanted.len().leading_zeros();
        let half = |bit: u32, value: usize| {
            let numbered = wanted.iter().enumerate().filter(|(n, _)| n >> bit & 1 == value);
            (WITH_MEMBERS, numbered.map(|(_, named)| *named).collect())
        };
        return (0..bits).flat_map(|bit| [half(bit, 0), half(bit, 1)]).collect();
    }
    let alone = wanted.iter().map(|named| (WITH_MEMBERS, vec![*named]));
    // In /proc, STATM is read from another file if it is requested alone.
    let statm = wanted.iter().filter(|named| named.0 == "statm");
    alone.chain(statm.map(|named| (Groups::STATM, vec![*named]))).collect()
}

fn members_of(state: &str, m: &Mktask) {
    let names = |group: &'static str, of: &[&'static str]| {
        of.iter().map(|name| (group, *name)).collect::<Vec<Named>>()
    };
    let mut wanted = names("base", Base::MEMBERS);
    wanted.extend([("base", "comm")]);
    wanted.extend(names("cred", Cred::MEMBERS));
    wanted.extend(names("stat", Stat::MEMBERS));
    wanted.extend(names("statm", Statm::MEMBERS));
    for engine in engines() {
        for strategy in [Strategy::One, Strategy::Thread] {
            let mut req = Request::new(strategy, m.pid(), WITH_MEMBERS);
            let who = format!("{state} {engine:?} {strategy}");
            let task = |req: &Request| read(*engine, req).expect("an answer").task(m.pid());
            let whole = task(&req);
            let mut compared = 0;
            for (groups, few) in parts(*engine, &wanted) {
                req.groups = groups;
                req.members = few.iter().fold(Members::NONE, |all, m| all.union(member(m)));
                let some = task(&req);
                for (group, name) in few {
                    let key = format!("{group}.{name}");
                    assert_eq!(some.get(&key), whole.get(&key), "{who}: {key}");
                    assert_eq!(some.missing(group), whole.missing(group), "{who}: {key}");
                    if name == "ngroups" {
                        assert_eq!(some.get("cred.groups"), whole.get("cred.groups"), "{who}");
                    }
                }
                for (k, v) in &some.fields {
                    assert_eq!(whole.get(k), Some(v), "{who}: {k} with {:?}", req.members);
                    compared += 1;
                }
            }
            assert!(compared > wanted.len(), "{who}");
        }
    }
}

#[test]
fn engines_agree_on_a_zombie() {
    parity("zombie", &["zombie"], |_, a, t| {
        in_state(a, t, "Z");
        assert_eq!(t.bytes("base.comm"), b"deadman");
        assert_eq!(t.num("base.flags"), 2, "{a}: exiting");
        for group in ["statm", "cmdline"] {
            assert_eq!(t.missing(group), Some(Reason::Absent), "{a}: {group}");
        }
    });
}

#[test]
fn engines_agree_on_a_process_whose_leader_has_ended() {
    parity("leader_gone", &["leader-gone"], |m, a, t| {
        in_state(a, t, "Z");
        let tids = m.list("tids");
        for tid in &tids {
            if a.strategy.is_threads() {
                let thread = a.task(*tid);
                assert_eq!(thread.tgid, m.pid());
                in_state(a, &thread, "S");
                assert_eq!(thread.num("stat.exit_signal"), -1, "{a}");
            } else {
                assert!(!a.has(*tid), "{a} has thread {tid}");
            }
        }
        if a.strategy == Strategy::Thread {
            assert_eq!(a.pids().len(), 4, "{a}");
        }
        // A thread that has ended has no memory, but the process has.
        if a.strategy.is_threads() {
            assert_eq!(t.missing("statm"), Some(Reason::Absent), "{a}");
            return;
        }
        assert!(t.num("statm.rss_bytes") > 0, "{a}");
        let cmdline = [Mktask::PATH.as_bytes(), b"\0leader-gone\0"].concat();
        assert_eq!(t.bytes("cmdline"), cmdline, "{a}");
    });
}

#[test]
fn a_tree_has_the_arguments_of_a_process_whose_leader_has_ended() {
    let test = "a_tree_has_the_arguments_of_a_process_whose_leader_has_ended";
    let Some(m) = Mktask::or_skip(test, &["leader-gone"]) else { return };
    for engine in engines() {
        let Source::Engine(id) = engine else { continue };
        if is_by_proc_tasks(*engine) {
            // A tree needs threads of a process and their members of CRED, which it lacks.
            continue;
        }
        for options in ["-a", "-ap", "-aS"] {
            let mut tree = Command::new(cli::taskdiag());
            tree.args(["tree", options, &m.pid().to_string(), "--engine", id.name()]);
            let out = tree.output().expect("it runs");
            let text = String::from_utf8_lossy(&out.stdout);
            let first = text.lines().next().unwrap_or_default();
            assert!(first.starts_with("mktask"), "{id:?} {options}: {text}");
            assert!(first.ends_with(" leader-gone"), "{id:?} {options}: {text}");
        }
    }
}

#[test]
fn a_thread_names_its_process() {
    let Some(m) = Mktask::or_skip("a_thread_names_its_process", &["leader-gone"]) else { return };
    for engine in engines() {
        for tid in m.list("tids") {
            let one = ask(*engine, Strategy::One, tid);
            assert_eq!(one.pids(), [m.pid()], "{one} of {tid}");
            let threads = ask(*engine, Strategy::Thread, tid);
            assert_eq!(threads.pids().len(), 4, "{threads} of {tid}");
        }
    }
}

#[test]
fn exec_by_another_thread_leaves_one_process_of_the_same_age() {
    parity(
        "exec_by_another_thread_leaves_one_process_of_the_same_age",
        &["exec-thread"],
        |m, a, t| {
            // Another process may have got its id since.
            let gone = m.num("gone_tid");
            assert!(!a.pids_of(m.pid()).contains(&gone), "{a} has the thread that is gone");
            assert_eq!(t.bytes("cmdline"), b"exec-from-thread\0x\0");
            // The process is as old as it was before the exec.
            let start = m.num::<i128>("old_start_ns");
            between(a, t, "base.start_time_ns", start - 5_000_000_000, start + 10_000_000);
        },
    );
}

#[test]
fn engines_agree_on_a_stopped_process() {
    parity("stopped", &["stopped"], |_, a, t| in_state(a, t, "T"));
}

#[test]
fn engines_agree_on_a_traced_process() {
    parity("traced_running", &["traced-running"], |_, a, t| in_state(a, t, "S"));
    parity_near("traced_stopped", &["traced-stopped"], |_, a, t| in_state(a, t, "t"));
}

#[test]
fn a_parent_in_vfork_waits_and_shares_its_memory() {
    parity("a_parent_in_vfork_waits_and_shares_its_memory", &["vfork"], |m, a, t| {
        in_state(a, t, "D");
        if matches!(a.strategy, Strategy::All | Strategy::AllThread) {
            let child = a.task(m.num("child"));
            assert_eq!(child.num("base.ppid"), m.pid().into());
            assert_eq!(child.get("statm.size_bytes"), t.get("statm.size_bytes"), "one mm");
        }
    });
}

#[test]
fn the_dead_leader_of_a_session_is_not_there() {
    parity("the_dead_leader_of_a_session_is_not_there", &["orphan"], |m, a, _| {
        assert!(!a.has(m.num("sid")), "{a} has the dead leader");
    });
}

#[test]
fn engines_agree_on_a_family() {
    parity("family", &["family", "3"], |_, _, _| {});
    let Some(m) = Mktask::or_skip("family", &["family", "5"]) else { return };
    for engine in engines() {
        let a = ask(*engine, Strategy::Children, m.pid());
        let mut want = m.list("children");
        want.sort_unstable();
        assert_eq!(a.pids(), want, "{a}");
        // Having no children is an answer, too.
        let none = ask(*engine, Strategy::Children, m.num("grandchild"));
        assert_eq!(none.pids().len(), 0, "{none}");
    }
}

#[test]
fn pids_wrap() {
    parity("pids_wrap", &["pid-wrap"], |m, a, t| {
        assert!(i128::from(t.pid) < t.num("base.ppid"), "{a} of {}", m.state());
    });
    parity_near("pids_wrap_ns", &["pid-wrap-ns"], |m, _, t| {
        let want = format!("[{}, {}]", m.pid(), m.text("inner_pid"));
        assert_eq!(t.bytes("ns.nspid"), want.as_bytes());
    });
}

/// There are 4,000 threads, or `TASKDIAG_THREADS`. All files of each are read several times, which
/// takes minutes in software emulation.
#[test]
fn a_process_with_many_threads_has_all_of_them() {
    let given = std::env::var("TASKDIAG_THREADS").ok();
    let n: usize = given.map_or(4000, |n| n.parse().expect("TASKDIAG_THREADS is a number"));
    parity(
        "a_process_with_many_threads_has_all_of_them",
        &["threads", &n.to_string()],
        |m, a, _| {
            let seen = a.pids_of(m.pid()).len();
            assert_eq!(seen, if a.strategy.is_threads() { n + 1 } else { 1 }, "{a}");
        },
    );
}

#[test]
fn a_thread_with_its_own_files_has_its_own_directory() {
    let (one, other) = (tempfile::tempdir().expect("dir"), tempfile::tempdir().expect("dir"));
    let args = ["unshared-files", &path(&one), &path(&other)];
    parity("a_thread_with_its_own_files_has_its_own_directory", &args, |m, a, _| {
        if a.strategy.is_threads() {
            let thread = a.task(m.num("other_tid"));
            assert_eq!(thread.bytes("paths.cwd"), m.bytes("other_cwd"), "{a}");
            assert_eq!(thread.bytes("base.comm"), m.bytes("other_comm"), "{a}");
        }
    });
}

#[test]
fn engines_agree_on_odd_command_names() {
    parity("odd_comm", &["odd-comm"], |_, a, t| in_state(a, t, "S"));
}

#[test]
fn engines_agree_on_a_deleted_program() {
    let dir = tempfile::tempdir().expect("dir");
    parity("exe_deleted", &["exe-deleted", &path(&dir)], |_, a, t| {
        assert_eq!(t.num("paths.exe.flags"), 4, "{a}: deleted");
        assert_eq!(t.num("paths.cwd.flags"), 0, "{a}");
    });
}

#[test]
fn an_exe_in_memory_is_deleted() {
    parity("an_exe_in_memory_is_deleted", &["exe-memfd"], |_, a, t| {
        assert_eq!(t.num("paths.exe.flags"), 4, "{a}: deleted");
    });
}

/// Checks the whole command line by its hash. A very long list only has its start.
fn whole_cmdline(m: &Mktask, a: &Answer, t: &Task) {
    let got = t.bytes("cmdline");
    let most = Request::new(a.strategy, m.pid(), Groups::CMDLINE).limits.text_bytes as usize;
    if m.num::<usize>("len") > most {
        assert_eq!(got.len(), most, "{a} of {}", m.state());
        assert_eq!(t.num("cmdline.total"), m.num::<i128>("len"), "{a} of {}", m.state());
        assert_eq!(t.num("cmdline.flags"), 1, "{a} of {}: cut", m.state());
        return;
    }
    assert_eq!(got.len(), m.num::<usize>("len"), "length of cmdline of {a} of {}", m.state());
    assert_eq!(t.num("cmdline.total"), got.len() as i128, "{a}");
    if m.has("hash") {
        assert_eq!(hash(got), m.num::<u64>("hash"), "cmdline of {a} of {} differs", m.state());
    }
    assert_eq!(t.num("cmdline.flags") & 1, 0, "{a} of {}: not cut", m.state());
}

#[test]
fn engines_agree_on_long_command_lines() {
    // The sizes are around a page, the 32 KiB of one attribute, the 64 KiB of an nlattr, and a
    // megabyte.
    for n in [4095, 4096, 4097, 8192, 32767, 32768, 32769, 65536, 65537, 200_000, 1 << 20] {
        parity_near("long_cmdlines", &["cmdline", &n.to_string()], whole_cmdline);
    }
}

/// A process can name any range of its memory as its arguments. No reader takes more of that memory
/// than execve() allows, and none claims that the arguments are complete.
#[test]
fn arguments_beyond_all_memory_are_cut_at_the_limit() {
    for len in [8u64 << 20, 3 << 30] {
        parity_near("mapped arguments", &["cmdline-mapped", &len.to_string()], |_, a, t| {
            let got = t.bytes("cmdline");
            let most = Request::new(a.strategy, 1, Groups::CMDLINE).limits.text_bytes;
            let is_whole = got.len() == most as usize && got.iter().all(|b| *b == b'x');
            assert!(is_whole, "{a}: {} bytes", got.len());
            assert_eq!(t.num("cmdline.total"), i128::from(len.min(0x7fff_ffff)), "{a}");
            assert_eq!(t.num("cmdline.flags"), 1, "{a}: cut, and not rewritten");
        });
    }
}

#[test]
fn engines_agree_on_a_process_without_arguments() {
    parity("no_arguments", &["argc0"], nothing_else);
    parity_near("no_arguments", &["cmdline-none"], |_, a, t| match t.get("cmdline") {
        Some(Value::Bytes(b)) if b.is_empty() => {}
        other => panic!("{a}: {other:?}"),
    });
}

#[test]
fn engines_agree_on_rewritten_command_lines() {
    parity_near("wiped", &["cmdline-wiped"], whole_cmdline);
    parity_near("titled", &["cmdline-titled"], whole_cmdline);
    parity("rewritten", &["cmdline-rewritten"], |m, a, t| {
        whole_cmdline(m, a, t);
        assert_eq!(t.num("cmdline.flags"), 2, "{a}: rewritten");
    });
}

#[test]
fn engines_agree_on_credentials() {
    parity("credentials", &["creds"], |m, a, t| {
        if let Some(bits) = t.get("cred.securebits") {
            assert_eq!(*bits, Value::Num(m.num("securebits")), "{a}");
        }
    });
    parity_near("user", &["user", "65534"], nothing_else);
    parity("thread_credentials", &["thread-creds"], |m, a, _| {
        if a.strategy.is_threads() {
            let other = a.task(m.num("other_tid"));
            assert_eq!(other.num("cred.uid"), m.num::<i128>("other_uid"), "{a}");
        }
    });
}

#[test]
fn engines_agree_on_seccomp() {
    parity("seccomp_filter", &["seccomp-filter"], nothing_else);
    parity_near("seccomp_strict", &["seccomp-strict"], nothing_else);
}

#[test]
fn engines_agree_on_an_undumpable_process() {
    parity("undumpable", &["undumpable"], |_, a, t| in_state(a, t, "S"));
}

#[test]
fn engines_agree_on_namespaces() {
    parity("namespaces", &["namespaces"], nothing_else);
    parity_near("pid_namespaces", &["pidns"], nothing_else);
    parity_near("user_namespace", &["userns"], nothing_else);
}

#[test]
fn engines_agree_on_a_terminal() {
    parity("terminal", &["tty"], |m, a, _| {
        if a.strategy == Strategy::All {
            let child = a.task(m.num("child"));
            assert_eq!(child.num("stat.tty_nr"), m.num::<i128>("tty_nr"), "{a}");
            assert_eq!(child.num("base.pgid"), child.pid.into(), "{a}");
        }
    });
}

#[test]
fn engines_agree_on_directories() {
    let dir = tempfile::tempdir().expect("dir");
    let odd = format!("{}/a b\u{e9}\u{1b}", path(&dir));
    std::fs::create_dir(&odd).expect("made");
    parity("cwd", &["cwd", &odd], |_, a, t| {
        assert_eq!(t.num("paths.cwd.flags"), 0, "{a}");
    });
    parity_near("chroot", &["root", &odd], |_, a, t| {
        assert_eq!(t.num("paths.exe.flags"), 0, "{a}");
    });
    // The name ends like the kernel's mark of a deleted file.
    let trap = format!("{} (deleted)", path(&dir));
    std::fs::create_dir(&trap).expect("made");
    parity_near("cwd_trap", &["cwd", &trap], |_, a, t| {
        assert_eq!(t.num("paths.cwd.flags"), 0, "{a}");
    });
    std::fs::remove_dir(&trap).expect("removed");
}

#[test]
fn engines_agree_on_a_deleted_directory() {
    let dir = tempfile::tempdir().expect("dir");
    let gone = format!("{}/gone", path(&dir));
    std::fs::create_dir(&gone).expect("made");
    parity("deleted_directory", &["cwd-deleted", &gone], |_, a, t| {
        assert_eq!(t.num("paths.cwd.flags"), 4, "{a}: deleted");
    });
}

#[test]
fn engines_agree_on_control_groups() {
    parity("cgroups", &["cgroup"], |m, a, t| {
        if m.has("v2") {
            let want = [b":", m.bytes("v2").as_slice()].concat();
            assert_eq!(t.bytes("cgroup.0"), want, "{a}");
            assert_eq!(t.num("cgroup.id"), m.num::<i128>("v2_id"), "{a}");
        }
        if m.has("pids") {
            let want = [b"pids:", m.bytes("pids").as_slice()].concat();
            let found = |v: &Value| *v == Value::Bytes(want.clone());
            assert!(t.fields.values().any(found), "{a}: no {}", want.escape_ascii());
        }
    });
}

#[test]
fn engines_agree_on_scheduling_policies() {
    for args in [
        ["sched", "fifo", "7"],
        ["sched", "rr", "50"],
        ["sched", "batch", "5"],
        ["sched", "idle", "0"],
        ["sched", "other", "-5"],
        ["sched", "other", "19"],
    ] {
        parity_near("scheduling_policies", &args, nothing_else);
    }
}
