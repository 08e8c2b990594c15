//! `taskdiag why --stack`: the stacks of threads in their programs, compared with those that mktask
//! makes. A wrong function is worse than none.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use taskdiag::EngineId;
use taskdiag_tests::cli::{Sandbox, taskdiag};
use taskdiag_tests::{Mktask, Source, engines, needs_root, skip};

/// The functions that are below each wait.
const BELOW: [&str; 5] = ["stack_inner", "stack_middle", "stack_outer", "begin", "started"];
/// A user without rights.
const NOBODY: u32 = 65534;

/// The engines that have WAIT.
fn both() -> Vec<&'static str> {
    let all = engines().iter().filter_map(|source| match source {
        Source::Engine(id @ (EngineId::Procfs | EngineId::Bpf)) => Some(id.name()),
        _ => None,
    });
    all.collect()
}

/// The entry of a thread in the document about a process.
fn thread(engine: &str, pid: u32, tid: u32) -> Value {
    let engine = format!("--engine={engine}");
    let args = ["why", "--json", "--stack", &engine, &pid.to_string()];
    let out = Command::new(taskdiag()).args(args).output().expect("it runs");
    let text = String::from_utf8_lossy(&out.stdout);
    let json: Value = serde_json::from_str(&text).unwrap_or_else(|e| {
        panic!("{e}: {text}{}", String::from_utf8_lossy(&out.stderr));
    });
    let all = json["threads"].as_array().expect("a list");
    let found = all.iter().find(|t| t["tid"] == tid);
    found.unwrap_or_else(|| panic!("no thread {tid}: {json}")).clone()
}

fn frames(thread: &Value) -> &Vec<Value> {
    thread["user_stack"].as_array().unwrap_or_else(|| panic!("no list: {thread}"))
}

/// The names of the functions in the program, which leaves out those of libraries.
fn names(thread: &Value, program: &str) -> Vec<String> {
    let is_own = |f: &&Value| f["file"].as_str().is_some_and(|file| file.starts_with(program));
    let name = |f: &Value| f["function"].as_str().unwrap_or("?").to_owned();
    frames(thread).iter().filter(is_own).map(name).collect()
}

fn end(thread: &Value) -> &str {
    thread["user_stack_end"].as_str().unwrap_or_else(|| panic!("no end: {thread}"))
}

/// Functions above the known ones.
fn with(above: &[&str]) -> Vec<String> {
    above.iter().chain(&BELOW).map(|name| (*name).to_owned()).collect()
}

#[test]
fn the_functions_of_a_waiting_thread_are_named_in_their_order() {
    if !needs_root("the_functions_of_a_waiting_thread_are_named_in_their_order") {
        return;
    }
    let m = Mktask::start(&["stacks"]).expect("any machine");
    for engine in both() {
        for (kind, above) in [
            ("read", &["by_read"][..]),
            ("futex", &["by_futex"]),
            ("sleep", &["by_sleep"]),
            // Through the trampoline of the signal and a stack of its own.
            #[cfg(target_arch = "x86_64")]
            ("signal", &["by_read", "on_signal", "stack_signalled", "by_signal"]),
        ] {
            let thread = thread(engine, m.pid(), m.num(kind));
            let names = names(&thread, Mktask::PATH);
            assert_eq!(names, with(above), "{engine} {kind}: {thread}");
            assert_eq!(end(&thread), "complete", "{engine} {kind}: {thread}");
            // The innermost function is that of the C library which makes the system call.
            let first = &frames(&thread)[0];
            assert!(first["file"].as_str().is_some_and(|f| f.contains("libc")), "{thread}");
            let kernel = thread["kernel_stack"].as_array().expect("root sees it");
            assert!(!kernel.is_empty(), "{thread}");
        }
    }
}

#[test]
fn text_has_the_functions_of_the_program_below_those_of_the_kernel() {
    if !needs_root("text_has_the_functions_of_the_program_below_those_of_the_kernel") {
        return;
    }
    let m = Mktask::start(&["stacks"]).expect("any machine");
    let tid = m.text("sleep");
    let out = Command::new(taskdiag()).args(["why", "--stack", tid]).output().expect("it runs");
    let text = String::from_utf8_lossy(&out.stdout);
    let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
    let at = |what: &str| {
        let found = lines.iter().position(|l| l.starts_with(what));
        found.unwrap_or_else(|| panic!("no {what}: {text}"))
    };
    let order = ["thread ", "[<0>] ", "by_sleep+0x", "stack_inner+0x", "stack_outer+0x"].map(at);
    assert!(order.is_sorted(), "{text}");
    assert!(lines[at("by_sleep+0x")].ends_with(" [mktask]"), "{text}");
    assert!(!text.contains('?'), "{text}");
}

#[test]
fn the_stack_of_a_holder_is_shown_once() {
    if !needs_root("the_stack_of_a_holder_is_shown_once") {
        return;
    }
    let m = Mktask::start(&["lock-crowd", "5"]).expect("any machine");
    let args = ["why", "--stack", &m.pid().to_string()];
    let out = Command::new(taskdiag()).args(args).output().expect("it runs");
    let text = String::from_utf8_lossy(&out.stdout);
    assert_eq!(text.matches(" wait_in_crowd+0x").count(), 5, "{text}");
    assert_eq!(text.matches(" crowd+0x").count(), 1, "{text}");
    let again = text.matches("(its stack is shown above)").count();
    assert!(again >= 4, "{text}");
}

#[test]
fn a_frame_pointer_comes_from_bpf_or_the_stack_ends() {
    if !needs_root("a_frame_pointer_comes_from_bpf_or_the_stack_ends") {
        return;
    }
    let m = Mktask::start(&["stacks"]).expect("any machine");
    for engine in both() {
        let thread = thread(engine, m.pid(), m.num("framed"));
        let names = names(&thread, Mktask::PATH);
        let whole = with(&["stack_framed", "by_frame"]);
        if engine == "bpf" {
            assert_eq!((names, end(&thread)), (whole, "complete"), "{thread}");
        } else {
            assert!(whole.starts_with(&names), "{thread}");
            assert_eq!(end(&thread), "no_register", "{thread}");
        }
    }
    // BPF is not asked where the environment names another engine.
    let run = |engine: Option<&str>| {
        let sandbox = Sandbox::new();
        let sandbox = engine.map_or(sandbox.clone(), |e| sandbox.env("TASKDIAG_ENGINE", e));
        sandbox.run(&["why", "--stack", m.text("framed")]).stdout
    };
    let register = "it depends on a register that only BPF can read";
    let text = run(Some("procfs"));
    assert!(text.contains(register) && !text.contains("by_frame+"), "{text}");
    if both().contains(&"bpf") {
        let text = run(None);
        assert!(!text.contains(register) && text.contains("by_frame+"), "{text}");
    }
}

#[test]
fn a_stack_ends_where_its_callers_are_unknown() {
    if !needs_root("a_stack_ends_where_its_callers_are_unknown") {
        return;
    }
    let m = Mktask::start(&["stacks"]).expect("any machine");
    for engine in both() {
        let made = thread(engine, m.pid(), m.num("made"));
        assert_eq!(names(&made, Mktask::PATH), ["by_read"], "{engine}: {made}");
        assert_eq!(end(&made), "no_file", "{engine}: {made}");
        let deep = thread(engine, m.pid(), m.num("deep"));
        let names = names(&deep, Mktask::PATH);
        assert!(names.iter().skip(1).all(|name| name == "stack_deep"), "{engine}: {deep}");
        assert_eq!((frames(&deep).len(), end(&deep)), (64, "too_deep"), "{engine}: {deep}");
    }
}

#[test]
fn a_stack_whose_memory_does_not_come_does_not_hold_up_the_answer() {
    if !needs_root("a_stack_whose_memory_does_not_come_does_not_hold_up_the_answer") {
        return;
    }
    let Some(m) = Mktask::if_possible(&["stack-no-memory"]) else { return };
    for engine in both() {
        let begun = Instant::now();
        let stuck = thread(engine, m.pid(), m.num("waits"));
        assert_eq!((frames(&stuck).len(), end(&stuck)), (0, "blocked"), "{engine}: {stuck}");
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    }
}

/// A copy of mktask that runs.
struct Copy {
    child: Child,
    facts: String,
    _end: Option<ChildStdin>,
}

impl Copy {
    fn start(path: &Path, user: Option<u32>) -> Copy {
        let mut command = Command::new(path);
        command.arg("stacks").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        if let Some(user) = user {
            command.uid(user).gid(user);
        }
        let mut child = command.spawn().expect("it was copied");
        let mut facts = String::new();
        let out = child.stdout.take().expect("piped");
        BufReader::new(out).read_line(&mut facts).expect("it says something");
        let end = child.stdin.take();
        Copy { child, facts, _end: end }
    }
    fn num(&self, key: &str) -> u32 {
        let mut pairs = self.facts.split_whitespace().filter_map(|kv| kv.split_once('='));
        let found = pairs.find(|(k, _)| *k == key);
        found.and_then(|(_, n)| n.parse().ok()).unwrap_or_else(|| panic!("{key}: {}", self.facts))
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        drop(self._end.take());
        let _ = self.child.wait();
    }
}

/// Copies a program. Another program writes the file. If this process did, a child that another
/// test has just forked could still have it open, and then it cannot be run.
fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg(from).arg(to).status().expect("cp runs").success());
}

/// A directory that every user may enter, with a copy of mktask.
fn copied() -> (tempfile::TempDir, std::path::PathBuf) {
    let dir = tempfile::tempdir().expect("a directory");
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
    let path = dir.path().join("copy");
    copy(Path::new(Mktask::PATH), &path);
    (dir, path)
}

#[test]
fn a_stripped_program_has_the_same_addresses_without_names() {
    let test = "a_stripped_program_has_the_same_addresses_without_names";
    if !needs_root(test) {
        return;
    }
    let (_dir, path) = copied();
    match Command::new("strip").arg("--strip-all").arg(&path).status() {
        Ok(status) => assert!(status.success(), "{status}"),
        Err(e) => return skip(test, &format!("no strip of binutils: {e}")),
    }
    let (whole, bare) = (Mktask::start(&["stacks"]).expect("any"), Copy::start(&path, None));
    let name = path.to_str().expect("a plain path");
    for engine in both() {
        let whole = thread(engine, whole.pid(), whole.num("sleep"));
        let bare = thread(engine, bare.num("pid"), bare.num("sleep"));
        assert_eq!(end(&bare), "complete", "{engine}: {bare}");
        let own = |thread: &Value, program: &str| -> Vec<Value> {
            let all = frames(thread).iter();
            all.filter(|f| f["file"].as_str().is_some_and(|f| f.starts_with(program)))
                .map(|f| f["address"].clone())
                .collect()
        };
        assert_eq!(own(&bare, name), own(&whole, Mktask::PATH), "{engine}: {bare} {whole}");
        assert_eq!(names(&bare, name), vec!["?"; with(&["by_sleep"]).len()], "{engine}: {bare}");
    }
}

/// Root reads the mapped file itself, whatever is at its path by now.
#[test]
fn a_program_that_was_deleted_has_its_names() {
    if !needs_root("a_program_that_was_deleted_has_its_names") {
        return;
    }
    let (_dir, path) = copied();
    let m = Copy::start(&path, None);
    fs::remove_file(&path).expect("it is ours");
    fs::write(&path, b"\x7fELF and something else").expect("it is ours");
    let thread = thread("procfs", m.num("pid"), m.num("read"));
    let program = path.to_str().expect("a plain path");
    assert_eq!(names(&thread, program), with(&["by_read"]), "{thread}");
}

/// What the user sees of a thread of this user.
fn seen_by_nobody(pid: u32, tid: u32) -> Value {
    let args = ["why", "--json", "--stack", &pid.to_string()];
    let ran = Sandbox::new().user(NOBODY).run(&args);
    let json: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|e| panic!("{e}: {ran}"));
    let all = json["threads"].as_array().expect("a list");
    all.iter().find(|t| t["tid"] == tid).unwrap_or_else(|| panic!("{ran}")).clone()
}

#[test]
fn a_user_sees_the_stacks_of_own_programs_unless_their_file_was_replaced() {
    let test = "a_user_sees_the_stacks_of_own_programs_unless_their_file_was_replaced";
    if !needs_root(test) {
        return;
    }
    let (_dir, path) = copied();
    let m = Copy::start(&path, Some(NOBODY));
    let program = path.to_str().expect("a plain path");
    let thread = seen_by_nobody(m.num("pid"), m.num("sleep"));
    if end(&thread) == "no_right" {
        return skip(test, "this machine lets no user look at own processes (Yama)");
    }
    if end(&thread) == "other_file" {
        return skip(test, "the numbers of files here differ from those of their mappings");
    }
    assert_eq!(names(&thread, program), with(&["by_sleep"]), "{thread}");
    // Another file at the same path, which would give other names to the same addresses.
    fs::remove_file(&path).expect("it is ours");
    fs::copy(taskdiag(), &path).expect("copied");
    let thread = seen_by_nobody(m.num("pid"), m.num("sleep"));
    assert_eq!(names(&thread, program), [""; 0], "{thread}");
    assert_eq!(end(&thread), "other_file", "{thread}");
    // Opening a FIFO would wait for a writer.
    fs::remove_file(&path).expect("it is ours");
    assert!(Command::new("mkfifo").arg(&path).status().expect("mkfifo runs").success());
    let thread = seen_by_nobody(m.num("pid"), m.num("sleep"));
    assert_eq!(end(&thread), "other_file", "{thread}");
}

#[test]
fn a_user_without_the_right_sees_no_stack() {
    if !needs_root("a_user_without_the_right_sees_no_stack") {
        return;
    }
    let m = Mktask::start(&["stacks"]).expect("any machine");
    let thread = seen_by_nobody(m.pid(), m.num("sleep"));
    assert_eq!((frames(&thread).len(), end(&thread)), (0, "no_right"), "{thread}");
    assert!(thread["kernel_stack"].is_null(), "{thread}");
    let ran = Sandbox::new().user(NOBODY).run(&["why", "--stack", m.text("sleep")]);
    assert!(ran.stdout.contains("? (its stack in the program is not known: no right"), "{ran}");
}

/// A kernel thread has no program, and neither has a task that has ended.
#[test]
fn a_task_without_a_program_has_no_stack_in_one() {
    if !needs_root("a_task_without_a_program_has_no_stack_in_one") {
        return;
    }
    let m = Mktask::start(&["zombie"]).expect("any machine");
    for engine in both() {
        let thread = thread(engine, m.pid(), m.pid());
        assert_eq!((frames(&thread).len(), end(&thread)), (0, "no_program"), "{thread}");
    }
}

/// These threads run, wait for a mutex or sleep. Each stack that is shown is possible for them.
#[test]
fn a_stack_of_a_thread_that_runs_meanwhile_is_not_mixed() {
    if !needs_root("a_stack_of_a_thread_that_runs_meanwhile_is_not_mixed") {
        return;
    }
    let (_dir, path) = taskdiag_tests::plain_dir();
    let m = Mktask::start(&["lock-storm", &path, "32"]).expect("any machine");
    // The first threads of the processes of the storm.
    let own = m.list("pids");
    let tid = |thread: &Value| thread["tid"].as_u64().expect("a number") as u32;
    let mut whole = 0;
    for round in 0..20 {
        let engine = if round % 2 == 0 { "procfs" } else { "bpf" };
        let engine = format!("--engine={engine}");
        let args = ["why", "--json", "--stack", &engine, &m.pid().to_string()];
        let out = Command::new(taskdiag()).args(args).output().expect("it runs");
        let Ok(json) = serde_json::from_slice::<Value>(&out.stdout) else { continue };
        for thread in json["threads"].as_array().expect("a list") {
            if frames(thread).is_empty() {
                assert!(["changed", "runs", "no_program"].contains(&end(thread)), "{thread}");
                continue;
            }
            let names = names(thread, Mktask::PATH);
            match end(thread) {
                "complete" if own.contains(&tid(thread)) => {
                    assert_eq!(names.last().map(String::as_str), Some("_start"), "{thread}");
                }
                // The threads of the storm, and what they start or fork, and wait for.
                "complete" => {
                    let ends = names.ends_with(&["live".into(), "started".into()]);
                    assert!(ends || names.ends_with(&["visit".into()]), "{thread}");
                }
                end => assert_eq!(end, "no_register", "{thread}"),
            }
            whole += usize::from(end(thread) == "complete");
        }
    }
    assert!(whole >= 20, "only {whole} stacks were whole");
}

/// A program whose header leads to tables that are not there. The kernel needs none of them to run
/// it.
#[test]
fn a_hostile_file_ends_the_stack() {
    if !needs_root("a_hostile_file_ends_the_stack") {
        return;
    }
    let (_dir, path) = copied();
    let m = Copy::start(&path, None);
    let program = path.to_str().expect("a plain path");
    let before = thread("procfs", m.num("pid"), m.num("sleep"));
    assert_eq!(names(&before, program), with(&["by_sleep"]), "{before}");
    let mut broken = fs::read(&path).expect("it is ours");
    broken[0x28..0x30].copy_from_slice(&u64::MAX.to_le_bytes());
    let (bytes, other) = (path.with_file_name("bytes"), path.with_file_name("broken"));
    fs::write(&bytes, &broken).expect("it is ours");
    copy(&bytes, &other);
    fs::set_permissions(&other, fs::Permissions::from_mode(0o755)).expect("it is ours");
    let m = Copy::start(&other, None);
    let thread = thread("procfs", m.num("pid"), m.num("sleep"));
    assert_eq!(end(&thread), "bad_file", "{thread}");
    assert_eq!(names(&thread, other.to_str().expect("plain")), [""; 0], "{thread}");
}
