//! `taskdiag why` compared with facts: mktask makes tasks that wait for each other, and says who
//! holds what. A wrong holder is worse than none, so a wait without a holder must not get one.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::Value;
use taskdiag::EngineId;
use taskdiag_tests::cli::taskdiag;
use taskdiag_tests::{Ended, Mktask, Source, engines, needs_root, notes_blockers, skip};

/// The engines that have WAIT.
fn both() -> Vec<&'static str> {
    let all = engines().iter().filter_map(|source| match source {
        Source::Engine(id @ (EngineId::Procfs | EngineId::Bpf)) => Some(id.name()),
        _ => None,
    });
    all.collect()
}

/// Whether the caller is root, and the kernel has the files that show locks and times.
fn can_look(test: &str) -> bool {
    if !needs_root(test) {
        return false;
    }
    if !std::fs::exists("/proc/self/sched").is_ok_and(|there| there) {
        skip(test, "this kernel has no /proc/PID/sched, which says when a thread last ran");
        return false;
    }
    let (mut byte, from) = (0u8, 1u8);
    let of = |at: *mut u8| libc::iovec { iov_base: at.cast(), iov_len: 1 };
    let (local, remote) = (of(&mut byte), of((&raw const from).cast_mut()));
    // SAFETY: both vectors are a byte of ours, and the kernel only reads the second one.
    let n = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    if n != 1 {
        skip(test, "this kernel has no process_vm_readv(2)");
    }
    n == 1
}

fn output(args: &[&str]) -> (i32, String, String) {
    let out = Command::new(taskdiag()).arg("why").args(args).output().expect("it runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (out.status.code().expect("not killed"), text(&out.stdout), text(&out.stderr))
}

/// The report of the whole machine. All looks together may take ten seconds, which are not enough
/// for each if many tests run at once, so the report is repeated a few times until it is right.
fn machine(is_right: impl Fn(&str) -> bool) -> String {
    let ask = || output(&["--longer=1ms"]).1;
    (0..4).map(|_| ask()).find(|text| is_right(text)).unwrap_or_else(ask)
}

/// The exit code, and the document about these processes.
fn why(engine: &str, pids: &[u32]) -> (i32, Value) {
    let mut args = vec![String::from("--json"), format!("--engine={engine}")];
    args.extend(pids.iter().map(u32::to_string));
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let (code, out, err) = output(&args);
    let json = serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out}{err}"));
    (code, json)
}

/// The entry of a thread in the document.
fn of(json: &Value, tid: u32) -> Value {
    let all = json["threads"].as_array().expect("a list");
    let found = all.iter().find(|t| t["tid"] == tid);
    found.unwrap_or_else(|| panic!("no thread {tid}: {json}")).clone()
}

fn deadlocks(json: &Value) -> Vec<BTreeSet<u64>> {
    let all = json["deadlocks"].as_array().expect("a list").iter();
    let ids = |one: &Value| {
        one.as_array().expect("a list").iter().map(|id| id.as_u64().expect("an id")).collect()
    };
    all.map(ids).collect()
}

fn pair(m: &Mktask, key: &str) -> (u32, u32) {
    let [waits, holds] = m.list(key)[..] else { panic!("{key}: a pair") };
    (waits, holds)
}

/// Asserts the holder of the object that a thread waits for, and how the holder is known.
fn held(json: &Value, (waits, holds): (u32, u32), how: &str) {
    let wait = of(json, waits);
    assert_eq!((&wait["waits_for"], &wait["how"]), (&holds.into(), &how.into()), "{wait}");
    let error = wait["waited_error"].as_f64().unwrap_or(0.0);
    assert!(wait["waited"].as_f64().is_some_and(|s| s < 600.0 + error), "{wait}");
}

#[test]
fn threads_that_wait_for_each_others_mutex_are_a_deadlock() {
    if !can_look("threads_that_wait_for_each_others_mutex_are_a_deadlock") {
        return;
    }
    let m = Mktask::start(&["lock-abba"]).expect("any machine");
    let (one, two) = (pair(&m, "one"), pair(&m, "two"));
    for engine in both() {
        let (code, json) = why(engine, &[m.pid()]);
        assert_eq!(code, 5, "{engine}: {json}");
        held(&json, one, "pthread_mutex");
        held(&json, two, "pthread_mutex");
        let both = BTreeSet::from([u64::from(one.0), u64::from(two.0)]);
        assert_eq!(deadlocks(&json), [both], "{engine}");
    }
    let (code, text, _) = output(&[&m.pid().to_string()]);
    assert_eq!((code, text.matches("DEADLOCK").count()), (5, 2), "{text}");
    assert!(text.contains(&format!("for a mutex that thread {} (", one.1)), "{text}");
    let (code, text, err) = output(&[]);
    assert_eq!(code, 5, "{text}{err}");
    assert!(text.starts_with("DEADLOCK: 2 threads wait for each other"), "{text}");
    // A time that does not exceed its error is left out.
    let said = ["has waited", "waits"].map(|word| format!("thread {} (one) {word}", one.0));
    assert!(said.iter().any(|s| text.contains(s)), "{text}");
}

#[test]
fn a_ring_of_mutexes_over_two_processes_is_a_deadlock() {
    if !can_look("a_ring_of_mutexes_over_two_processes_is_a_deadlock") {
        return;
    }
    let m = Mktask::start(&["lock-across"]).expect("any machine");
    for engine in both() {
        let (code, json) = why(engine, &[m.num("child")]);
        assert_eq!(code, 5, "{engine}: {json}");
        let mut ring = BTreeSet::new();
        for key in ["first", "second", "third"] {
            held(&json, pair(&m, key), "pthread_mutex");
            ring.insert(u64::from(pair(&m, key).0));
        }
        assert_eq!(deadlocks(&json), [ring], "{engine}");
    }
}

#[test]
fn locks_that_keep_an_owner_have_it() {
    if !can_look("locks_that_keep_an_owner_have_it") {
        return;
    }
    let m = Mktask::start(&["lock-owners"]).expect("any machine");
    let kinds = [
        ("normal", "pthread_mutex"),
        ("recursive", "pthread_mutex"),
        ("checked", "pthread_mutex"),
        ("adaptive", "pthread_mutex"),
        ("robust", "pthread_mutex"),
        ("inherits", "futex_word"),
        ("timed", "pthread_mutex"),
        ("reads", "pthread_rwlock"),
        ("writes", "pthread_rwlock"),
        ("joins", "thread_end"),
    ];
    for engine in both() {
        let (code, json) = why(engine, &[m.pid()]);
        assert_eq!(code, 0, "{engine}: {json}");
        for (key, how) in kinds {
            // The kernel's own list of waiters needs no look at the word.
            let is_in_kernel = engine == "bpf" && key == "inherits";
            held(&json, pair(&m, key), if is_in_kernel { "kernel" } else { how });
        }
        assert_eq!(json["heads"][0]["id"], m.pid(), "{engine}");
        assert_eq!(json["heads"][0]["behind"], kinds.len(), "{engine}");
    }
}

#[test]
fn waits_without_an_owner_have_no_holder() {
    let m = Mktask::start(&["lock-no-owners"]).expect("any machine");
    let kinds =
        ["condition", "timed-condition", "semaphore", "barrier", "readers", "own-lock", "by-hand"];
    for engine in both() {
        let (_, json) = why(engine, &[m.pid()]);
        for key in kinds {
            let wait = of(&json, m.num(key));
            assert_eq!(wait["waits_for"], Value::Null, "{engine} {key}: {wait}");
            if can_look("why waits have no owner") {
                assert_eq!(wait["why_none"], "not_kept", "{engine} {key}: {wait}");
            }
        }
        // The kernel defines the lock word of this kind, whichever code calls it.
        if can_look("why waits have no owner") {
            let wait = of(&json, m.num("pi-by-hand"));
            assert_eq!(wait["waits_for"], m.pid(), "{engine}: {wait}");
        }
    }
}

#[test]
fn a_mutex_of_rust_keeps_no_owner() {
    static LOCK: Mutex<[u32; 12]> = Mutex::new([0; 12]);
    // SAFETY: no arguments, cannot fail.
    let tid = || unsafe { libc::gettid() } as u32;
    let mut data = LOCK.lock().expect("nobody panics");
    // The data that follows the lock looks like the rest of a mutex of the C library.
    *data = [0; 12];
    (data[0], data[1], data[2]) = (tid(), 1, 0);
    let (to, from) = std::sync::mpsc::channel();
    let waiter = std::thread::spawn(move || {
        to.send(tid()).expect("it is received");
        drop(LOCK.lock().expect("nobody panics"));
    });
    let waits = from.recv().expect("it is sent");
    let syscall = format!("/proc/self/task/{waits}/syscall");
    let futex = format!("{} ", libc::SYS_futex);
    let end = Instant::now() + Duration::from_secs(20);
    while !std::fs::read_to_string(&syscall).unwrap_or_default().starts_with(&futex) {
        assert!(Instant::now() < end, "{syscall} does not show that it waits");
        std::thread::sleep(Duration::from_millis(1));
    }
    for engine in both() {
        let (_, json) = why(engine, &[waits]);
        let wait = of(&json, waits);
        assert_eq!(wait["waits_for"], Value::Null, "{engine}: {json}");
        if can_look("why a mutex of Rust has no owner") {
            assert_eq!(wait["why_none"], "not_kept", "{engine}: {json}");
        }
    }
    drop(data);
    waiter.join().expect("it ends");
}

#[test]
fn a_chain_of_file_locks_leads_to_its_head() {
    if !can_look("a_chain_of_file_locks_leads_to_its_head") {
        return;
    }
    let (_dir, path) = taskdiag_tests::plain_dir();
    let m = Mktask::start(&["lock-files", &path]).expect("any machine");
    for engine in both() {
        let (last, _) = pair(&m, "posix");
        let (code, json) = why(engine, &[last]);
        assert_eq!(code, 0, "{engine}: {json}");
        held(&json, pair(&m, "posix"), "posix_lock");
        held(&json, pair(&m, "ofd"), "ofd_lock");
        held(&json, pair(&m, "flock"), "flock");
        // A child of the head has the open file with the flock, too.
        let is_sure = |name| of(&json, pair(&m, name).0)["is_sure"].clone();
        assert_eq!([is_sure("posix"), is_sure("ofd"), is_sure("flock")], [true, true, false]);
        assert_eq!(of(&json, last)["file"], format!("{path}/by-posix"), "{engine}");
        assert_eq!(json["heads"][0]["id"], m.pid(), "{engine}: {json}");
        assert_eq!(json["heads"][0]["behind"], 3, "{engine}");
    }
    let (_, text, _) = output(&["--longer=1ms"]);
    let head = format!("3 tasks wait for process {} (head)", m.pid());
    assert!(text.contains(&head), "{text}");
}

#[test]
fn the_other_end_of_a_pipe_and_a_child_are_waited_for() {
    if !can_look("the_other_end_of_a_pipe_and_a_child_are_waited_for") {
        return;
    }
    let m = Mktask::start(&["lock-ends"]).expect("any machine");
    for engine in both() {
        let (full, empty, parent) = (pair(&m, "full"), pair(&m, "empty"), m.num("parent"));
        let (_, json) = why(engine, &[full.0, empty.0, parent]);
        held(&json, full, "reader");
        held(&json, empty, "writer");
        let child = of(&json, parent);
        assert_eq!(child["how"], "child", "{engine}: {child}");
        let of_child = of(&json, child["waits_for"].as_u64().expect("an id") as u32);
        assert_eq!(of_child["waits_on"], "signal", "{engine}: {of_child}");
    }
}

#[test]
fn the_address_and_the_other_end_of_a_socket_are_named() {
    if !can_look("the_address_and_the_other_end_of_a_socket_are_named") {
        return;
    }
    let m = Mktask::start(&["lock-sockets"]).expect("any machine");
    let (reads, sends, mutual) = (pair(&m, "reads"), pair(&m, "sends"), pair(&m, "mutual"));
    let (hears, accepts, port) =
        (m.num::<u32>("hears"), m.num::<u32>("accepts"), m.num::<u32>("port"));
    for engine in both() {
        let pids = [reads.0, sends.0, mutual.0, mutual.1, hears, accepts];
        let (code, json) = why(engine, &pids);
        // Two that wait for data of each other may have limits of time.
        assert_eq!((code, &json["deadlocks"]), (0, &serde_json::json!([])), "{engine}: {json}");
        held(&json, reads, "sender");
        held(&json, sends, "receiver");
        let file = |tid| of(&json, tid)["file"].as_str().expect("a socket").to_owned();
        let own = format!("TCP 127.0.0.1:{port}->127.0.0.1:");
        let is_connected = |name: &str| name.ends_with(" (ESTABLISHED)");
        assert!(
            file(reads.0).starts_with(&own) && is_connected(&file(reads.0)),
            "{engine}: {json}"
        );
        assert_eq!(file(accepts), format!("TCP 127.0.0.1:{port} (LISTEN)"), "{engine}");
        assert!(file(hears).starts_with("UDP 127.0.0.1:"), "{engine}: {json}");
        assert_eq!(file(sends.0), "unix", "{engine}");
        for (tid, other) in [mutual, (mutual.1, mutual.0)] {
            let wait = of(&json, tid);
            assert_eq!(
                (&wait["how"], &wait["is_sure"]),
                (&"sender".into(), &false.into()),
                "{wait}"
            );
            assert_eq!(wait["waits_for"], other, "{engine}: {wait}");
        }
        for (tid, kind) in [(hears, "receive"), (accepts, "accept")] {
            let wait = of(&json, tid);
            assert_eq!(
                (&wait["waits_on"], &wait["waits_for"]),
                (&kind.into(), &Value::Null),
                "{wait}"
            );
        }
        let (_, text, _) = output(&["--engine", engine, &reads.0.to_string()]);
        assert!(text.contains(&format!("data from the socket {own}")), "{text}");
        assert!(text.contains(&format!("whose other end process {} (", reads.1)), "{text}");
    }
}

/// The rows of `taskdiag ps` about these processes, by thread.
fn rows(engine: &str, pids: &[u32], more: &[&str]) -> Vec<Value> {
    let pids = pids.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let columns = "tid,waits_on,waits_for,waits_for_comm,waits_for_how";
    let engine = format!("--engine={engine}");
    let args = ["ps", "-L", "--json", "-p", &pids, "-o", columns, &engine];
    let out = Command::new(taskdiag()).args(args).args(more).output().expect("it runs");
    serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{e}: {out:?}"))
}

#[test]
fn columns_have_the_holders_and_reasons_of_why() {
    if !can_look("columns_have_the_holders_and_reasons_of_why") {
        return;
    }
    let (_dir, path) = taskdiag_tests::plain_dir();
    let states: [&[&str]; 5] = [
        &["lock-owners"],
        &["lock-no-owners"],
        &["lock-abba"],
        &["lock-files", &path],
        &["traced-stopped"],
    ];
    for state in states {
        let m = Mktask::start(state).expect("any machine");
        let pid = match m.has("posix") {
            true => pair(&m, "posix").0,
            false => m.pid(),
        };
        for engine in both() {
            let (_, json) = why(engine, &[pid]);
            let threads = json["threads"].as_array().expect("a list");
            let id = |t: &Value, key: &str| t[key].as_u64().expect("an id") as u32;
            let pids: BTreeSet<u32> = threads.iter().map(|t| id(t, "pid")).collect();
            let pids: Vec<u32> = pids.into_iter().collect();
            let rows = rows(engine, &pids, &[]);
            let mut held = 0;
            for thread in threads {
                let what = format!("{engine} {state:?}: {thread}");
                let row =
                    rows.iter().find(|r| r["tid"] == thread["tid"]).expect("the thread lives");
                assert_eq!(row["waits_for"], thread["waits_for"], "{what}: {row}");
                let how = thread.get("how").unwrap_or(&thread["why_none"]);
                assert_eq!(&row["waits_for_how"], how, "{what}: {row}");
                let holder = threads.iter().find(|t| t["tid"] == thread["waits_for"]);
                if let Some(holder) = holder {
                    assert_eq!(row["waits_for_comm"], holder["comm"], "{what}: {row}");
                    // The condition has the same look as the columns.
                    let is = format!("waits_for == {}", id(holder, "tid"));
                    if held == 0 {
                        let found = self::rows(engine, &pids, &["--where", &is]);
                        assert!(found.contains(row), "{what}: {found:?}");
                    }
                    held += 1;
                }
            }
            assert!(held > 0, "{engine} {state:?}: {json}");
        }
    }
}

#[test]
fn a_saved_answer_has_the_waits_that_were_known_when_it_was_saved() {
    if !can_look("a_saved_answer_has_the_waits_that_were_known_when_it_was_saved") {
        return;
    }
    let (_dir, path) = taskdiag_tests::plain_dir();
    let file = format!("{path}/saved");
    let save = |engine: &str, groups: &str, pid: u32| {
        let pid = pid.to_string();
        let args = ["--engine", engine, "--strategy", "thread", "--pid", &pid, "--groups", groups];
        let out = std::fs::File::create(&file).expect("made");
        let status = Command::new(taskdiag()).arg("dump").args(args).stdout(out).status();
        assert!(status.expect("it runs").success(), "{engine}");
    };
    let saved = |engine: &str, tid: u32| {
        let (code, out, err) = output(&["--json", "--from", &file, &tid.to_string()]);
        assert_eq!(code, 0, "{engine}: {err}");
        let json = serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out}{err}"));
        of(&json, tid)
    };
    let traced = Mktask::start(&["traced-stopped"]).expect("any machine");
    let locked = Mktask::start(&["lock-abba"]).expect("any machine");
    for engine in both() {
        save(engine, "base,wait", traced.pid());
        let wait = saved(engine, traced.pid());
        assert_eq!(wait["waits_on"], "traced", "{engine}: {wait}");
        // /proc has the thread that traces, but not its process.
        if engine == "bpf" {
            assert_eq!(wait["how"], "tracer", "{engine}: {wait}");
            assert_eq!(wait["waits_for"], traced.num::<u32>("tracer"), "{engine}: {wait}");
        } else {
            assert_eq!(wait["why_none"], "not_known", "{engine}: {wait}");
        }
        save(engine, "base,wait", locked.pid());
        // Nothing has looked into the memory of this process.
        let wait = saved(engine, pair(&locked, "one").0);
        assert_eq!((&wait["waits_on"], &wait["waits_for"]), (&"futex".into(), &Value::Null));
        assert_eq!(wait["why_none"], "not_known", "{engine}: {wait}");
        assert!(wait["waited"].as_f64().is_some(), "{engine}: {wait}");
    }
    save("procfs", "base", locked.pid());
    let (code, _, err) = output(&["--from", &file]);
    assert_eq!(code, 4, "{err}");
    assert!(err.contains("--groups base,wait"), "{err}");
}

#[test]
fn stopped_and_traced_tasks_are_reported() {
    if !can_look("stopped_and_traced_tasks_are_reported") {
        return;
    }
    let stopped = Mktask::start(&["stopped"]).expect("any machine");
    let traced = Mktask::start(&["traced-stopped"]).expect("any machine");
    for engine in both() {
        let (_, json) = why(engine, &[stopped.pid(), traced.pid()]);
        assert_eq!(of(&json, stopped.pid())["waits_on"], "stopped", "{engine}");
        let wait = of(&json, traced.pid());
        assert_eq!((&wait["waits_on"], &wait["how"]), (&"traced".into(), &"tracer".into()));
        assert_eq!(wait["waits_for"], traced.num::<u32>("tracer"), "{engine}: {wait}");
    }
    let (_, text, _) = output(&["--longer=1ms", "--threads"]);
    let said = ["is", "has been"]
        .map(|is| format!("process {} (mktask) {is} stopped by a signal", stopped.pid()));
    assert!(said.iter().any(|s| text.contains(s)), "{text}");
}

/// A process makes a directory in a file system whose server does not answer, and so holds the lock
/// of the directory above it, for which another process waits.
#[test]
fn a_server_that_does_not_answer_is_the_head_of_the_queue() {
    let name = "a_server_that_does_not_answer_is_the_head_of_the_queue";
    if !can_look(name) {
        return;
    }
    let (_dir, path) = taskdiag_tests::plain_dir();
    let Some(m) = Mktask::or_skip(name, &["stuck-lock", &path]) else { return };
    let holder = m.num("holder");
    for engine in both() {
        let (_, json) = why(engine, &[m.pid(), holder]);
        let fuse = of(&json, holder);
        assert_eq!(fuse["waits_on"], "fuse", "{engine}: {fuse}");
        assert_eq!(fuse["file"], format!("{path}/lost"), "{engine}: {fuse}");
        assert_eq!(fuse["mount"], path.as_str(), "{engine}: {fuse}");
        assert_eq!(fuse["mount_type"], "fuse.mktask", "{engine}: {fuse}");
        let wait = of(&json, m.pid());
        match engine {
            "bpf" if notes_blockers() => {
                assert_eq!(wait["waits_for"], holder, "{wait}");
                assert_eq!(wait["how"], "kernel", "{wait}");
            }
            _ => assert_eq!(wait["waits_for"], Value::Null, "{engine}: {wait}"),
        }
    }
    let said = format!("process {holder} (mktask)");
    let server = format!("the server of {path} (fuse.mktask mktask)");
    let is_right = |text: &str| text.contains(&said) && text.contains(&server);
    let text = machine(is_right);
    assert!(is_right(&text), "{text}");
}

/// A task in a pid namespace of its own, with a /proc of its own, whose addresses are the same in
/// each start. The option `--kill-child` ends the processes inside.
struct Contained(Ended);

impl Contained {
    fn start(test: &str, args: &[&str]) -> Option<Contained> {
        let around = "-R unshare --mount --pid --fork --kill-child --mount-proc";
        let mut command = Command::new("setarch");
        command.args(around.split(' ')).arg(Mktask::PATH).args(args);
        let made = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let Ok(mut made) = made else {
            skip(test, "there is no setarch");
            return None;
        };
        let mut facts = String::new();
        BufReader::new(made.stdout.take().expect("piped")).read_line(&mut facts).expect("text");
        let made = Contained(Ended(made));
        if !facts.contains("holder=") {
            skip(test, &format!("namespaces or a file system without a server: {facts}"));
            return None;
        }
        Some(made)
    }
    /// The pid of its process 1 in our namespace.
    fn init(&self) -> String {
        let path = format!("/proc/{0}/task/{0}/children", self.0.id());
        std::fs::read_to_string(path).expect("it lives").trim().to_owned()
    }
}

/// The path of a system call is in the memory of its process, which is found by pid. In a /proc of
/// another pid namespace, the pid belongs to another process, which has a different path in its
/// memory.
#[test]
fn with_a_foreign_proc_no_memory_of_another_process_is_read() {
    let name = "with_a_foreign_proc_no_memory_of_another_process_is_read";
    if !can_look(name) {
        return;
    }
    let (_dirs, paths): (Vec<_>, Vec<_>) = (0..2).map(|_| taskdiag_tests::plain_dir()).unzip();
    let start = |path: &String| Contained::start(name, &["stuck-lock", path]);
    let (Some(ours), Some(theirs)) = (start(&paths[0]), start(&paths[1])) else { return };
    let waits = |ids: &Contained, mounts: &Contained| {
        let enter =
            format!("--pid=/proc/{}/ns/pid --mount=/proc/{}/ns/mnt --", ids.init(), mounts.init());
        let mut command = Command::new("nsenter");
        command.args(enter.split(' ')).arg(taskdiag());
        command.args(["why", "--json", "--engine=procfs", "-p", "1,2,3,4,5,6"]);
        let out = command.output().expect("it runs").stdout;
        let json: Value = serde_json::from_slice(&out).expect("JSON");
        let all = json["threads"].as_array().expect("a list").clone();
        all.into_iter().find(|t| t["waits_on"] == "fuse").expect("it waits")
    };
    // The two processes are so much alike that the memory of one could be taken for that of the
    // other.
    let [one, other] = [waits(&ours, &ours), waits(&theirs, &theirs)];
    assert_eq!((&one["pid"], &one["args"]), (&other["pid"], &other["args"]));
    assert_eq!(one["file"], format!("{}/lost", paths[0]));
    assert_eq!(other["file"], format!("{}/lost", paths[1]));
    let foreign = waits(&ours, &theirs);
    assert_eq!((&foreign["pid"], &foreign["args"]), (&one["pid"], &one["args"]));
    assert_eq!(foreign["file"], Value::Null, "{foreign}");
}

/// The lock of a file is held by a process that is frozen, and so nobody else gets it.
#[test]
fn a_frozen_holder_is_the_head_of_the_queue() {
    let name = "a_frozen_holder_is_the_head_of_the_queue";
    if !can_look(name) {
        return;
    }
    for version in ["v1", "v2"] {
        let (_dir, path) = taskdiag_tests::plain_dir();
        let Some(m) = Mktask::or_skip(name, &["frozen", version, &path]) else { continue };
        let (holder, waiter) = (m.num("holder"), m.num("waiter"));
        for engine in both() {
            let (_, json) = why(engine, &[waiter, m.num("runner")]);
            held(&json, (waiter, holder), "flock");
            for pid in [holder, m.num("runner")] {
                let wait = of(&json, pid);
                assert_eq!(wait["waits_on"], "frozen", "{engine}: {wait}");
                assert_eq!(wait["cgroup"], m.text("cgroup"), "{engine}: {wait}");
            }
        }
        let is = format!("is frozen with its cgroup {}", m.text("cgroup"));
        let head = format!("1 task waits for process {holder} (mktask)");
        let is_head = |l: &str| l.starts_with(&head) && l.contains(&is);
        // The other tasks are stuck in the same way.
        let others = format!("2 tasks: each {is}");
        let is_right = |text: &str| text.lines().any(is_head) && text.contains(&others);
        let text = machine(is_right);
        assert!(is_right(&text), "{text}");
    }
}

#[test]
fn a_task_without_cpu_time_of_its_cgroup_counts_though_it_runs_in_each_period() {
    let name = "a_task_without_cpu_time_of_its_cgroup_counts_though_it_runs_in_each_period";
    if !both().contains(&"bpf") {
        return skip(name, "/proc does not show it");
    }
    for version in ["v1", "v2"] {
        let Some(m) = Mktask::or_skip(name, &["throttled", version]) else { continue };
        let said = format!("is out of CPU time of its cgroup {}", m.text("cgroup"));
        let pid = m.text("throttled");
        // It is on a CPU for a thousandth of the time.
        let found = |args: &[&str]| (0..20).any(|_| output(args).1.contains(&said));
        assert!(found(&["--engine=bpf", pid]), "{:?}", output(&["--engine=bpf", pid]));
        assert!(found(&["--engine=bpf", "--threads"]), "{:?}", output(&["--engine=bpf"]));
    }
}

#[test]
fn memory_that_does_not_come_does_not_hold_up_the_answer() {
    if !can_look("memory_that_does_not_come_does_not_hold_up_the_answer") {
        return;
    }
    let Some(m) = Mktask::if_possible(&["lock-no-memory"]) else { return };
    for engine in both() {
        let begun = Instant::now();
        let (_, json) = why(engine, &[m.pid()]);
        let wait = of(&json, m.num("waits"));
        assert_eq!(wait["why_none"], "blocked", "{engine}: {wait}");
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    }
}

#[test]
fn each_thread_of_a_crowd_has_the_holder() {
    if !can_look("each_thread_of_a_crowd_has_the_holder") {
        return;
    }
    let m = Mktask::start(&["lock-crowd", "500"]).expect("any machine");
    for engine in both() {
        // The last ones may still be on their way into the sleep.
        let end = Instant::now() + Duration::from_secs(20);
        let json = loop {
            let (code, json) = why(engine, &[m.pid()]);
            assert_eq!(code, 0, "{engine}");
            let head = &json["heads"][0];
            if head["behind"] == 500 || Instant::now() > end {
                break json;
            }
        };
        assert_eq!(json["heads"][0]["id"], m.pid(), "{engine}");
        assert_eq!(json["heads"][0]["behind"], 500, "{engine}");
    }
    let (_, text, _) = output(&[&m.pid().to_string()]);
    let said = format!("500 threads of process {}: each waits for a mutex that thread", m.pid());
    assert!(text.starts_with(&said), "{text}");
    assert!(text.lines().count() <= 3, "{text}");
}

#[test]
fn a_machine_without_stuck_tasks_is_one_line_and_exit_code_0() {
    if !can_look("a_machine_without_stuck_tasks_is_one_line_and_exit_code_0") {
        return;
    }
    let m = Mktask::start(&["idle"]).expect("any machine");
    let (code, text, err) = output(&["--where", &format!("pid == {}", m.pid())]);
    assert_eq!((code, err.as_str(), text.lines().count()), (0, "", 1), "{text}");
    assert!(text.contains("nobody is stuck") || text.starts_with("Nobody is stuck"), "{text}");
    let (code, text, err) = output(&["2147483646"]);
    assert_eq!((code, text.as_str()), (1, ""), "{err}");
    assert_eq!(err, "taskdiag: there is no process 2147483646\n");
}

/// The lines of a program, which is ended when it has written enough of them.
fn lines_of(args: &[&str], enough: usize) -> Vec<String> {
    let mut child = Command::new(taskdiag());
    child.arg("why").args(args).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = Ended(child.spawn().expect("it runs"));
    let out = BufReader::new(child.0.stdout.take().expect("piped"));
    out.lines().map_while(Result::ok).take(enough).collect()
}

#[test]
fn a_watched_process_is_reported_until_it_ends() {
    if !can_look("a_watched_process_is_reported_until_it_ends") {
        return;
    }
    let m = Mktask::start(&["lock-abba"]).expect("any machine");
    let pid = m.pid().to_string();
    for line in lines_of(&["--json", "--watch=100ms", &pid], 3) {
        let json = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"));
        assert_eq!(deadlocks(&json).len(), 1, "{line}");
    }
    let rows = lines_of(&["--csv", "--watch=100ms", &pid], 8);
    assert_eq!(rows.iter().filter(|row| row.starts_with("tid,")).count(), 1, "{rows:?}");
    let mut child = Command::new(taskdiag());
    child.args(["why", "--watch=100ms", &pid]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = child.spawn().expect("it runs");
    drop(m);
    let out = child.wait_with_output().expect("it ends");
    assert_eq!(out.status.code(), Some(1));
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(said.contains(&format!("there is no process {pid}")), "{said}");
    let (code, _, err) = output(&["--watch=1ms"]);
    assert_eq!(code, 2, "{err}");
    assert!(err.contains("100ms"), "{err}");
}

#[test]
fn a_csv_row_has_a_thread_and_its_holder() {
    if !can_look("a_csv_row_has_a_thread_and_its_holder") {
        return;
    }
    let m = Mktask::start(&["lock-abba"]).expect("any machine");
    let (waits, holds) = pair(&m, "one");
    let (code, text, _) = output(&["--csv", &m.pid().to_string()]);
    assert_eq!(code, 5, "{text}");
    let begin = format!("{waits},{},one,S,", m.pid());
    let row = text.lines().find(|l| l.starts_with(&begin)).unwrap_or_else(|| panic!("{text}"));
    assert!(row.ends_with(&format!(",{holds},{},two,pthread_mutex,", m.pid())), "{row}");
}
