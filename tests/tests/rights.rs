//! Tests who may answer, and with which rights: the brake of a machine, the environment, a start
//! with more rights than the caller's, and the process ids in a namespace or a sandbox.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use taskdiag::{EngineId, Group, Groups, Request};
use taskdiag_tests::answer::engines_with;
use taskdiag_tests::cli::{Ran, Sandbox, taskdiag};
use taskdiag_tests::{Mktask, Source, engines, needs_root, read, skip};

const BPF: Source = Source::Engine(EngineId::Bpf);

fn has_bpf(test: &str) -> bool {
    let has = engines().contains(&BPF);
    if !has {
        skip(test, "no BPF here");
    }
    has
}

/// The engines that answered, as `--stats` names them.
fn engine_of(ran: &Ran) -> Vec<&str> {
    let lines = ran.stderr.lines().filter_map(|l| l.strip_prefix("engine "));
    lines.filter_map(|l| l.split(':').next()).collect()
}

/// Commands that ask for everything. BPF is faster for one of them on any machine.
const COMMANDS: &[&[&str]] = &[
    &["ps", "-eT", "--stats"],
    &["files", "--stats"],
    &["memory", "--stats"],
    &["maps", "--stats"],
    &["tree", "--stats"],
    &["ps", "-p", "1", "--stats"],
    &["dump"],
    &["engines"],
];

const FEW: &[&[&str]] = &[COMMANDS[0], COMMANDS[1]];

/// A sandbox in which bpf(2) ends the process. The program would let a child try that first, and
/// clone(2), which makes the child, ends the process, too. Threads are made by clone3(2), which is
/// allowed. The environment names no directory of the user, because a child may read a config file
/// in it.
fn without_bpf(sandbox: &Sandbox) -> Sandbox {
    let sandbox = sandbox.clone().env("XDG_CONFIG_HOME", "none").env("HOME", "none");
    sandbox.deadly(libc::SYS_bpf).deadly(libc::SYS_clone)
}

/// Checks that bpf(2) is not called and procfs answers.
fn is_braked(sandbox: &Sandbox, commands: &[&[&str]], why: &str) {
    let sandbox = without_bpf(sandbox);
    for args in commands {
        let ran = sandbox.run(args);
        assert!(matches!(ran.code, Some(0 | 3)), "{ran}");
        if args.contains(&"--stats") {
            assert_eq!(engine_of(&ran), ["procfs"], "{ran}");
            assert!(ran.stderr.contains(why), "{ran}");
        }
    }
    let ran = sandbox.run(&["engines"]);
    assert!(ran.stdout.contains(why), "{ran}");
    assert!(ran.stdout.contains("the procfs engine answers"), "{ran}");
    assert!(ran.stdout.contains("the bpf engine cannot be used: not tried"), "{ran}");
}

/// Checks that these surroundings notice BPF.
#[test]
fn a_sandbox_notices_calls_of_bpf() {
    if !has_bpf("a_sandbox_notices_calls_of_bpf") {
        return;
    }
    let ran = without_bpf(&Sandbox::new()).run(&["ps", "--engine", "bpf"]);
    assert_eq!(ran.code, None, "killed: {ran}");
}

/// A security module refuses a call of bpf(2) with the same error as the verifier refuses a
/// program. The verifier is only named as the cause if it has looked at the program.
#[test]
fn a_refusal_by_a_security_module_is_not_the_verifiers() {
    const NAME: &str = "a_refusal_by_a_security_module_is_not_the_verifiers";
    if !needs_root(NAME) || !has_bpf(NAME) {
        return;
    }
    // BPF_MAP_CREATE, BPF_MAP_UPDATE_ELEM, BPF_PROG_LOAD, BPF_BTF_LOAD, BPF_LINK_CREATE,
    // BPF_ITER_CREATE
    const CALLS: [u32; 6] = [0, 2, 5, 18, 28, 33];
    for (errno, words) in
        [(libc::EACCES, "Permission denied"), (libc::EPERM, "Operation not permitted")]
    {
        let some = CALLS
            .map(|command| (command, Sandbox::new().deny_command(libc::SYS_bpf, command, errno)));
        let all = (99, Sandbox::new().deny(libc::SYS_bpf, errno));
        for (command, sandbox) in some.into_iter().chain([all]) {
            let ran = sandbox.run(&["ps", "-e", "--engine", "bpf"]);
            assert_eq!(ran.code, Some(4), "{command}: {ran}");
            assert!(!ran.stderr.contains("verifier"), "{command}: {ran}");
            assert!(ran.stderr.contains("security module"), "{command}: {ran}");
            assert!(ran.stderr.contains(words), "{command}: {ran}");
        }
    }
}

#[test]
fn the_environment_chooses_the_engine() {
    let procfs = Sandbox::new().env("TASKDIAG_ENGINE", "procfs");
    is_braked(&procfs, COMMANDS, "TASKDIAG_ENGINE=procfs in the environment");
    // The command line overrides it.
    if has_bpf("the_environment: --engine") {
        let ran = procfs.run(&["ps", "--stats", "--engine", "bpf"]);
        assert_eq!(engine_of(&ran), ["bpf"], "{ran}");
        let ran = Sandbox::new().env("TASKDIAG_ENGINE", "bpf").run(&["ps", "--stats"]);
        assert_eq!(engine_of(&ran), ["bpf"], "{ran}");
        let ran = Sandbox::new()
            .env("TASKDIAG_ENGINE", "bpf")
            .run(&["memory", "--engine", "auto", "--stats"]);
        // The bpf engine alone cannot answer that.
        let others = engine_of(&ran).iter().any(|e| ["kernel", "procfs"].contains(e));
        assert!(others, "{ran}");
    }
    let wrong = Sandbox::new().env("TASKDIAG_ENGINE", "bfp");
    for args in COMMANDS {
        let ran = wrong.run(args);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran}");
        assert!(ran.stderr.contains("TASKDIAG_ENGINE=bfp"), "{ran}");
        assert!(ran.stderr.contains("auto, kernel, bpf, service, procfs"), "{ran}");
    }
    // A process of a parallel test may make readers of its arguments wait, so arguments are not
    // requested.
    let ran = wrong.run(&["ps", "--engine", "procfs", "-o", "pid,comm"]);
    assert_eq!(ran.code, Some(0), "{ran}");
}

#[test]
fn the_brake_of_the_machine_wins() {
    if !needs_root("the_brake") {
        return;
    }
    let conf = |text, mode, uid| Sandbox::new().conf(text, mode, uid);
    let pulled = conf("# A bug of this kernel.\nengine = procfs\n", 0o644, 0);
    is_braked(&pulled, COMMANDS, "/etc/taskdiag.conf says 'engine = procfs'");
    // The brake wins over everything that a caller sets, and the caller gets an error if there is
    // no answer.
    is_braked(&pulled.clone().env("TASKDIAG_ENGINE", "bpf"), FEW, "/etc/taskdiag.conf");
    let ran = without_bpf(&pulled).run(&["ps", "--engine", "auto", "--stats"]);
    assert_eq!(engine_of(&ran), ["procfs"], "{ran}");
    for engine in ["bpf", "kernel"] {
        let ran = without_bpf(&pulled).run(&["ps", "--engine", engine]);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(4), ""), "{ran}");
        assert!(ran.stderr.contains("/etc/taskdiag.conf"), "{ran}");
    }
    // There is no message if everything works as intended.
    let ran = pulled.run(&["ps", "-o", "pid"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran}");
}

/// A user who can write the configuration file can turn BPF off with it, but not on.
#[test]
fn a_brake_that_cannot_be_trusted_holds() {
    if !needs_root("a_brake_that_cannot_be_trusted_holds") {
        return;
    }
    for (text, mode, uid, word) in [
        ("engine = auto\n", 0o666, 0, "users other than root may write to it"),
        ("engine = auto\n", 0o664, 0, "users other than root may write to it"),
        ("engine = auto\n", 0o644, 65534, "users other than root may write to it"),
        ("engine = bpf\n", 0o644, 0, "line 1"),
        ("engine = procfs\nengines = all\n", 0o644, 0, "line 2"),
    ] {
        let sandbox = Sandbox::new().conf(text, mode, uid);
        is_braked(&sandbox, FEW, word);
        let ran = sandbox.run(&["ps", "-o", "pid"]);
        assert_eq!(ran.code, Some(0), "{ran}");
        assert!(ran.stderr.contains("/etc/taskdiag.conf") && ran.stderr.contains(word), "{ran}");
        let ran = sandbox.run(&["ps", "--engine", "bpf"]);
        assert_eq!(ran.code, Some(4), "{ran}");
    }
    let unreadable = Sandbox::new().conf("engine = auto\n", 0o600, 0).user(65534);
    let ran = unreadable.run(&["ps", "-o", "pid"]);
    assert!(ran.stderr.contains("it cannot be read"), "{ran}");
    if has_bpf("a brake that is not pulled") {
        let ran = Sandbox::new().conf("engine = auto\n", 0o644, 0).run(&["ps", "--engine", "bpf"]);
        assert!(matches!(ran.code, Some(0 | 3)), "{ran}");
    }
}

/// A copy of the program that everyone may run, with this mode.
fn copy(mode: u32) -> tempfile::TempDir {
    let everyone = Permissions::from_mode(0o755);
    let dir = tempfile::Builder::new().permissions(everyone).tempdir().expect("a directory");
    // Another process makes the copy, see `cli.rs`.
    let status = Command::new("install").arg("-m755").arg(taskdiag()).arg(dir.path()).status();
    assert!(status.expect("install runs").success());
    let path = dir.path().join("taskdiag");
    std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("changed");
    dir
}

/// Gives a file the capability to trace anyone, as setcap(8) does. `false` if files have no
/// capabilities here.
fn set_capability(path: &Path) -> bool {
    const REVISION_2_EFFECTIVE: u32 = 0x0200_0001;
    const SYS_PTRACE: u32 = 1 << 19;
    let value: Vec<u8> =
        [REVISION_2_EFFECTIVE, SYS_PTRACE, 0, 0, 0].iter().flat_map(|n| n.to_le_bytes()).collect();
    let path = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).expect("a plain path");
    let name = c"security.capability".as_ptr();
    // SAFETY: strings and bytes that live across the call.
    unsafe { libc::setxattr(path.as_ptr(), name, value.as_ptr().cast(), value.len(), 0) == 0 }
}

#[test]
fn a_start_with_more_rights_than_the_user_has_is_refused() {
    if !needs_root("a_start_with_more_rights_than_the_user_has_is_refused") {
        return;
    }
    let start = |dir: &tempfile::TempDir, options: &[&str]| {
        let out = Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .args(options)
            .arg(dir.path().join("taskdiag"))
            .args(["ps", "-p", "1", "-o", "pid,environ"])
            .output()
            .expect("setpriv runs");
        let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
        (out.status.code(), text(&out.stdout), text(&out.stderr))
    };
    let is_refused = |dir: &tempfile::TempDir| {
        let (code, out, err) = start(dir, &[]);
        assert_eq!((code, out.as_str()), (Some(4), ""), "{err}");
        assert!(err.contains("more rights than the user who starts it"), "{err}");
    };
    is_refused(&copy(0o4755));
    is_refused(&copy(0o2755));
    let dir = copy(0o755);
    match set_capability(&dir.path().join("taskdiag")) {
        true => is_refused(&dir),
        false => skip(
            "a_start_with_more_rights_than_the_user_has_is_refused",
            "files have no capabilities here",
        ),
    }
    // The caller may pass on rights that it has itself.
    let dir = copy(0o755);
    for options in [&[][..], &["--inh-caps=+sys_ptrace", "--ambient-caps=+sys_ptrace"]] {
        let (code, out, err) = start(&dir, options);
        assert!(
            matches!(code, Some(0 | 3)) && out.lines().count() == 2,
            "{options:?}: {out} {err}"
        );
    }
}

/// A caller who may use BPF but trace no process gets values from BPF that /proc denies, although
/// procfs is cheaper for one process. Other users get the data that /proc shows, and BPF is not
/// tried for them.
#[test]
fn groups_denied_by_proc_come_from_bpf() {
    let test = "groups_denied_by_proc_come_from_bpf";
    if !needs_root(test) || !has_bpf(test) {
        return;
    }
    let dir = copy(0o755);
    let of_root = Mktask::start(&["threads", "2"]).expect("always possible");
    let pid = of_root.pid().to_string();
    let run = |caps: &str, args: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        if !caps.is_empty() {
            command.args([format!("--inh-caps={caps}"), format!("--ambient-caps={caps}")]);
        }
        let out = command.arg(dir.path().join("taskdiag")).args(args).output().expect("it runs");
        let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
        Ran {
            code: out.status.code(),
            stdout: text(&out.stdout),
            stderr: text(&out.stderr),
            args: args.join(" "),
        }
    };
    let one = ["ps", "-p", &pid, "-o", "pid,exe", "--stats"];
    let ran = run("+bpf,+perfmon", &one);
    assert!(ran.code == Some(0) && ran.stdout.contains("mktask"), "{ran}");
    assert!(ran.stderr.contains("/proc denies it"), "{ran}");
    let has_mappings = bpf_has_mappings(test);
    for args in [
        &["files", "-p", &pid, "--paths", "--stats"][..],
        &["ps", "-p", &pid, "-o", "pid,rbytes,netns", "--stats"],
    ] {
        if args[0] == "files" && !has_mappings {
            continue;
        }
        let ran = run("+bpf,+perfmon", args);
        assert!(ran.code == Some(0) && engine_of(&ran).contains(&"bpf"), "{ran}");
    }
    // Newer kernels show mappings to holders of CAP_PERFMON. Sums over their pages are from /proc
    // only.
    if has_mappings {
        let ran = run("+bpf,+perfmon", &["maps", &pid]);
        assert!(ran.code == Some(0) && ran.stdout.contains("mktask"), "{ran}");
        let ran = run("+bpf,+perfmon", &["maps", &pid, "-o", "address,rss"]);
        let is_denied = ran.code == Some(3) && ran.stderr.contains("rss of 1 process is not shown");
        let is_listed = ran.stdout.lines().count() > 5;
        assert!((ran.code == Some(0) || is_denied) && is_listed, "{ran}");
    }
    // A caller that may trace, or may not use BPF, does not need it.
    for caps in ["", "+bpf", "+perfmon", "+bpf,+perfmon,+sys_ptrace"] {
        let ran = run(caps, &one);
        assert_eq!(engine_of(&ran), ["procfs"], "{caps}: {ran}");
        let sees = caps.contains("sys_ptrace");
        assert_eq!(
            (ran.code, ran.stdout.contains("mktask")),
            (Some(if sees { 0 } else { 3 }), sees)
        );
    }
}

/// Whether the engine bpf lists mappings here, which `maps` and `files` show: before Linux 6.1 it
/// does not.
fn bpf_has_mappings(test: &str) -> bool {
    let has = engines_with(Group::Vma).contains(&BPF);
    if !has {
        skip(test, "the bpf engine has no mappings here: commands that list them are left out");
    }
    has
}

/// If /proc belongs to another pid namespace, all answers have its process ids, and report that.
/// Only BPF has the ids of the reader's namespace.
#[test]
fn a_proc_of_another_pid_namespace_gives_its_ids_and_says_so() {
    if !needs_root("a_proc_of_another_pid_namespace_gives_its_ids_and_says_so") {
        return;
    }
    let inside = Sandbox::new().through(&["unshare", "--pid", "--fork"]);
    let m = Mktask::start(&["threads", "5000"]).expect("always possible");
    // BPF is faster at this on a machine with this many threads.
    let list = inside.run(&["ps", "-eT", "-o", "pid,tid,comm", "--stats"]);
    if list.stderr.contains("unshare") {
        return skip("a_proc_of_another_pid_namespace_gives_its_ids_and_says_so", &list.stderr);
    }
    let pid = m.pid().to_string();
    let said = |ran: &Ran| {
        assert!(matches!(ran.code, Some(0 | 3)), "{ran}");
        assert!(ran.stderr.contains("/proc is of another pid namespace"), "{ran}");
        assert!(!engine_of(ran).contains(&"bpf"), "{ran}");
    };
    said(&list);
    assert!(list.stdout.lines().any(|l| l.split_whitespace().next() == Some(&pid)), "{list}");
    let one = inside.run(&["ps", "-p", &pid, "-o", "pid,comm", "--stats"]);
    said(&one);
    assert!(one.stdout.contains("mktask"), "{one}");
    let memory = inside.run(&["memory", "-p", &pid, "--json", "--stats"]);
    said(&memory);
    assert!(memory.stdout.contains(&format!("\"pid\":{pid},")), "{memory}");
    assert!(!memory.stdout.contains("\"uss\":null"), "{memory}");
    let engines = inside.run(&["engines"]);
    assert!(engines.stdout.contains("/proc is of another pid namespace"), "{engines}");
    assert!(
        !engines.stdout.lines().any(|l| l.split_whitespace().nth(4) == Some("bpf")),
        "{engines}"
    );
    said(&inside.run(&["ps", "--engine", "procfs", "--stats"]));
    if has_bpf("a_proc_of_another_pid_namespace_gives_its_ids_and_says_so: bpf") {
        // The program is alone there, or has one child.
        let own = inside.run(&["ps", "--engine", "bpf", "-o", "pid,comm"]);
        assert_eq!(own.code, Some(0), "{own}");
        let first = own.stdout.lines().nth(1).unwrap_or_default();
        assert_eq!(first.split_whitespace().collect::<Vec<_>>(), ["1", "taskdiag"], "{own}");
        assert!(!own.stderr.contains("another pid namespace"), "{own}");
    }
    // With a separate /proc there is nothing to report.
    let whole = Sandbox::new().through(&["unshare", "--pid", "--fork", "--mount-proc"]);
    let ran = whole.run(&["ps", "-o", "pid,comm"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran}");
}

/// Some sandboxes hide process 1 from BPF. If no other engine may be asked about process 1, the
/// answer reports that, instead of claiming that the process does not exist.
#[test]
fn a_hidden_first_process_is_read_from_proc() {
    if !has_bpf("a_hidden_first_process_is_read_from_proc") {
        return;
    }
    let all = read(BPF, &Request::all(Groups::BASE)).expect("an answer");
    let is_hidden = !all.has(1);
    if !is_hidden {
        skip(
            "a_hidden_first_process_is_read_from_proc",
            "process 1 is not hidden here: it is shown, which is tested",
        );
    }
    let me = std::process::id().to_string();
    let both = format!("1,{me}");
    let has_mappings = bpf_has_mappings("a_hidden_first_process_is_read_from_proc");
    for args in [
        &["ps"][..],
        &["ps", "-eT"],
        &["ps", "-p", "1"],
        &["ps", "-p", &both],
        &["ps", "-T", "-p", "1"],
        &["files"],
        &["files", "-p", "1"],
        &["maps", "1"],
        &["tree"],
        &["tree", "1"],
        &["dump", "-g", "base"],
        &["dump", "-p", "1", "-g", "base"],
    ] {
        if ["files", "maps"].contains(&args[0]) && !has_mappings {
            continue;
        }
        let ran = Sandbox::new().run(&[args, &["--engine", "bpf"]].concat());
        assert!(!ran.stderr.contains("there is no process 1"), "{ran}");
        assert_eq!(ran.stderr.contains("process 1 is hidden from BPF"), is_hidden, "{ran}");
        // A process of a parallel test may make readers of its memory wait.
        let is_blocked = ran.stderr.contains("would have blocked");
        let is_named = args.contains(&"-p") || args.last() == Some(&"1");
        let code = if (is_hidden || is_blocked) && is_named { 3 } else { 0 };
        assert_eq!(ran.code, Some(code), "{ran}");
        // The process is read from /proc, if there is one.
        let ran = Sandbox::new().run(args);
        assert!(!ran.stderr.contains("hidden from BPF"), "{ran}");
        let ran = Sandbox::new().without_proc().run(args);
        assert!(!ran.stderr.contains("there is no process 1"), "{ran}");
        assert_eq!(ran.stderr.contains("process 1 is hidden from"), is_hidden, "{args:?}: {ran}");
    }
    let ran = Sandbox::new().run(&["ps", "-p", &both, "--engine", "bpf", "-o", "pid="]);
    assert!(ran.stdout.lines().any(|l| l.trim() == me), "{ran}");
}
