// SPDX-License-Identifier: MIT OR Apache-2.0
//! Live tables: values compared with /proc, the requests that are made, and how statements fail.

mod common;

use std::collections::HashSet;
use std::io::Write;
use std::net::TcpListener;
use std::process::{Command, Stdio};

use common::{Sleeper, ended, plan, program, ran, rows, run, status};
use serde_json::{Value, json};

#[test]
fn processes_have_the_values_of_proc() {
    let sleeper = Sleeper::start();
    let pid = sleeper.pid();
    let sql = format!(
        "select pid, ppid, comm, args, user, uid, rss, vsz, nlwp, s, exe, start from processes where pid = {pid}"
    );
    let rows = rows(&sql);
    let [row] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!(row["pid"], json!(pid));
    assert_eq!(row["ppid"], json!(std::process::id()));
    assert_eq!(row["comm"], json!("sleep"));
    assert_eq!(row["args"], json!(["sleep", "600"]));
    assert_eq!(row["uid"], json!(status(pid, "Uid")));
    assert_eq!(row["rss"], json!(status(pid, "VmRSS") * 1024));
    assert_eq!(row["vsz"], json!(status(pid, "VmSize") * 1024));
    assert_eq!(row["nlwp"], json!(1));
    assert_eq!(row["s"], json!("S"));
    let exe = std::fs::read_link(format!("/proc/{pid}/exe")).expect("it is our own");
    assert_eq!(row["exe"], json!(exe.to_str().expect("UTF-8")));
    let start = row["start"].as_str().expect("a moment");
    assert!(start.starts_with("20") && start.ends_with('Z'), "{start}");
}

#[test]
fn a_pid_is_asked_for_alone() {
    let own = std::process::id();
    for (condition, pids) in [
        (format!("pid = {own}"), format!("{own}")),
        (format!("{own} = pid"), format!("{own}")),
        (format!("pid in ({own}, 1)"), format!("1 {own}")),
        (format!("pid = {own} or pid = 1"), format!("1 {own}")),
        (format!("pid in (1, 2, {own}) and pid = {own}"), format!("{own}")),
    ] {
        let plan = plan(&format!("select comm, pid from processes where {condition}"));
        assert!(
            plan.contains(&format!("request=[processes of pids {pids}, groups base]")),
            "{condition}: {plan}"
        );
    }
    let sql = format!("select count(*) as n from processes where pid = {own}");
    assert_eq!(rows(&sql), [json!({"n": 1})]);
    let many: Vec<String> = (1..=40).map(|pid: u32| pid.to_string()).collect();
    let plan_of_many =
        plan(&format!("select comm from processes where pid in ({})", many.join(", ")));
    assert!(plan_of_many.contains("request=[all processes, groups base]"), "{plan_of_many}");
    let nobody = plan("select comm from processes where pid = 1 and pid = 2");
    assert!(nobody.contains("nothing is asked") || nobody.contains("EmptyExec"), "{nobody}");
    assert_eq!(run(&["-c", "select comm from processes where pid = 4194305"]).code, 1);
}

#[test]
fn long_arguments_are_cut_as_the_options_say() {
    let text = "x".repeat(100_000);
    let mut waits = Command::new("sh");
    waits.args(["-c", "read x"]).args([&text; 3]).stdin(Stdio::piped());
    let mut waits = waits.spawn().expect("there is sh");
    let pid = waits.id();
    let list = format!(
        "select char_length(array_to_string(args, ' ')) as n from processes where ppid = {}",
        std::process::id()
    );
    let named = format!(
        "select char_length(array_to_string(args, ' ')) as n from processes where pid = {pid}"
    );
    let most = |n: u64| {
        move |rows: &[Value]| {
            rows.iter().any(|r| r["n"].as_u64().is_some_and(|v| v.abs_diff(n) <= 1))
        }
    };
    for (args, sql, is_cut, len) in [
        (&[][..], &list, true, 128 << 10),
        (&["--args", "1000"], &list, true, 1000),
        (&["--args", "1000"], &named, true, 1000),
        (&["--args", "all"], &list, false, 300_015),
        (&[], &named, false, 300_015),
    ] {
        let ran = run(&[args, &["-o", "json", "-c", sql]].concat());
        let said = ran.err.contains("args: it was too long, and was cut; --args all");
        // A cut list is a failure only for a caller who named the process.
        let is_failure = is_cut && *sql == named;
        assert_eq!((said, ran.code == 3), (is_cut, is_failure), "{args:?} {sql}: {}", ran.err);
        let rows: Vec<Value> = serde_json::from_str(&ran.out).expect("JSON");
        assert!(most(len)(&rows), "{args:?} {sql}: {rows:?}");
    }
    let _ = waits.kill();
    let _ = waits.wait();
}

/// 200 processes that share 6 MB of arguments. Dropping the value ends them.
struct Crowd(std::process::Child);

impl Crowd {
    const COUNT: u32 = 200;

    /// `None`: the limit for arguments may not be raised here.
    fn start() -> Option<Crowd> {
        use std::io::{BufRead, BufReader};
        use std::os::unix::process::CommandExt;
        let children = format!(
            "exec 3<&0; i=1; while [ $i -lt {} ]; do (read x <&3) & i=$((i+1)); done; echo ready; read x",
            Crowd::COUNT
        );
        let (stack, raised) = (libc::RLIMIT_STACK, libc::RLIM_INFINITY);
        let mut command = Command::new("sh");
        command.args(["-c", &children, "sh"]).args([&"a".repeat(119_999); 50]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let unlimited = move || {
            let limit = libc::rlimit { rlim_cur: raised, rlim_max: raised };
            // SAFETY: the struct is valid.
            match unsafe { libc::setrlimit(stack, &limit) } {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        };
        // SAFETY: the function only makes a system call.
        let mut child = unsafe { command.pre_exec(unlimited) }.spawn().ok()?;
        let mut line = String::new();
        let mut said = BufReader::new(child.stdout.as_mut().expect("a pipe"));
        said.read_line(&mut line).expect("it says something");
        assert_eq!(line, "ready\n");
        Some(Crowd(child))
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        // All of them read from this pipe.
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// Runs it, and returns its peak memory and its standard error.
#[allow(clippy::zombie_processes, reason = "wait4 waits for it")]
fn peak(args: &[&str]) -> (usize, String) {
    let mut said = tempfile::tempfile().expect("a file");
    let mut command = program(args);
    command.stdout(Stdio::null()).stderr(said.try_clone().expect("a descriptor"));
    let child = command.spawn().expect("it starts");
    // SAFETY: zeroes are a valid value.
    let (mut status, mut usage) = (0, unsafe { std::mem::zeroed::<libc::rusage>() });
    // SAFETY: the child is ours, is waited for only here, and there is room for both results.
    let waited = unsafe { libc::wait4(child.id() as i32, &mut status, 0, &mut usage) };
    assert_eq!(waited, child.id() as i32);
    assert!(libc::WIFEXITED(status), "{args:?}: {status:#x}");
    let mut text = String::new();
    std::io::Seek::rewind(&mut said).expect("a file");
    std::io::Read::read_to_string(&mut said, &mut text).expect("it is UTF-8");
    (usage.ru_maxrss as usize >> 10, text)
}

/// The peaks are those that docs/operate/limits.md states.
#[test]
fn queries_about_a_crowd_with_long_arguments_take_the_stated_memory() {
    let Some(_crowd) = Crowd::start() else {
        eprintln!("SKIPPED: execve(2) takes a quarter of the limit for the stack as arguments");
        return;
    };
    // Other processes may have long arguments, too.
    let cut = "rows of processes without args: it was too long, and was cut";
    for (most, sql) in [
        (160, "select pid, args from processes"),
        (160, "select pid, args, environ from processes"),
        (160, "select cmdline from osquery.processes"),
        (160, "select pid, args from processes where args[1] like '%nosuch%'"),
        (256, "select pid, args from processes order by args"),
        (256, "select args, count(*) from processes group by args"),
        (256, "select max(char_length(array_to_string(args, ' '))) as n from processes"),
    ] {
        for engine in ["bpf", "procfs"] {
            let (mib, said) = peak(&["--engine", engine, "-o", "csv", "-c", sql]);
            if engine == "bpf" && said.contains("cannot be used") {
                eprintln!("SKIPPED: no engine bpf here");
                continue;
            }
            assert!(said.contains(cut), "{engine}: {sql}: {said}");
            assert!(mib <= most, "{engine}: {sql}: {mib} MiB");
        }
    }
}

#[test]
fn a_limit_for_sums_over_pages_is_kept_and_stated() {
    let ran = run(&[
        "--max-rss",
        "4K",
        "-o",
        "json",
        "-c",
        &format!("select pss from memory where pid = {}", std::process::id()),
    ]);
    assert_eq!(ran.code, 3, "{}", ran.err);
    assert!(ran.err.contains("raise --budget or --max-rss"), "{}", ran.err);
    assert_eq!(serde_json::from_str::<Value>(&ran.out).expect("JSON"), json!([{"pss": null}]));
}

#[test]
fn denied_values_are_a_failure_only_if_named_or_with_strict() {
    use std::os::unix::process::CommandExt;
    // SAFETY: the call only returns a number.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("SKIPPED: it needs root, to run as another user");
        return;
    }
    // The other user may not enter the directory of the build.
    let dir = tempfile::tempdir().expect("a directory");
    let copy = dir.path().join("taskdiag-sql");
    std::fs::copy(program([""; 0]).get_program(), &copy).expect("it is there");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(dir.path(), open).expect("ours");
    let as_user = |args: &[&str]| {
        let mut command = Command::new(&copy);
        command.args(["--engine", "procfs", "-o", "csv"]).args(args).uid(4242).gid(4242);
        ran(command.output().expect("it starts"))
    };
    let sleeper = Sleeper::start();
    let (exe, pid) = ("select count(exe) > 0 as is_any from processes", sleeper.pid());
    let named = format!("select exe from processes where pid = {pid}");
    let in_view = format!("select path from osquery.processes where pid = {pid}");
    for (args, code) in [
        (vec!["-c", exe], 0),
        (vec!["--strict", "-c", exe], 3),
        (vec!["-c", "select exe from processes where comm = 'nosuchname'"], 1),
        (vec!["-c", &named], 3),
        (vec!["-c", &in_view], 3),
        (vec!["-c", exe, "-c", &named], 3),
        (vec!["-c", "select fd from files where ppid = 999999"], 1),
    ] {
        let ran = as_user(&args);
        assert_eq!(ran.code, code, "{args:?}: {}{}", ran.out, ran.err);
        let is_said = ran.err.contains("denied; run as root");
        assert!(is_said || code == 1, "{args:?}: {}", ran.err);
    }
}

#[test]
fn columns_decide_groups() {
    for (columns, groups) in [
        ("pid", "base"),
        ("comm, ppid", "base"),
        ("rss", "statm"),
        ("comm, rss", "base|statm"),
        ("user", "cred"),
        ("args", "base|cmdline"),
        ("count(*)", "base"),
        ("sum(read_bytes)", "io"),
    ] {
        let plan = plan(&format!("select {columns} from processes"));
        assert!(
            plan.contains(&format!("request=[all processes, groups {groups}]")),
            "{columns}: {plan}"
        );
    }
    let plan = plan("select pss from memory");
    assert!(plan.contains("groups statm|rollup]"), "{plan}");
}

#[test]
fn conditions_are_looked_at_before_the_rest_is_asked() {
    let plan = plan(
        "select pid, exe from processes where comm like 'slee%' and rss > 4096 and ruser = 'root'",
    );
    let wanted = "where=[((comm ~ \"(?s)^slee.*$\") and (rss > 4096)) and (ruser in (\"root\"))], \
                  request=[groups base|cred|statm of all processes, then groups base|cred|statm|paths of those that pass]";
    assert!(plan.contains(wanted), "{plan}");
    // Kernel threads have no memory, which is 0 in SQL and unknown to the library.
    let plan = self::plan("select pid from processes where rss < 4096");
    assert!(!plan.contains("where=["), "{plan}");
    assert!(
        !rows("select pid from processes where rss = 0").is_empty(),
        "there are kernel threads"
    );
    let sleeper = Sleeper::start();
    for condition in [
        "comm like 'sl%p'",
        "comm = 'sleep'",
        "comm in ('sleep', 'x')",
        "s = 'S'",
        "rss > 0",
        "nlwp <= 1",
    ] {
        let sql = format!("select pid from processes where {condition}");
        let pids: HashSet<u64> = rows(&sql).iter().filter_map(|r| r["pid"].as_u64()).collect();
        assert!(pids.contains(&sleeper.pid().into()), "{condition}");
        let not = format!(
            "select pid from processes where not ({condition}) and pid = {}",
            sleeper.pid()
        );
        assert!(rows(&not).is_empty(), "{condition}");
    }
}

#[test]
fn tables_of_one_statement_are_one_request() {
    let own = std::process::id();
    let sql = format!(
        "select p.comm, m.pss, f.fdnum, s.lport, a.path from processes p join memory m on p.pid = m.pid \
         join files f on f.pid = p.pid left join sockets s on s.pid = p.pid join maps a on a.pid = p.pid \
         where p.pid = {own}"
    );
    let plan = plan(&sql);
    let request = format!(
        "request=[processes of pids {own}, groups base|vma|statm|fd|rollup, shared by 5 tables]"
    );
    assert_eq!(plan.matches(&request).count(), 5, "{plan}");
    assert!(!rows(&sql).is_empty());
    let threads = self::plan("select t.tid from threads t join processes p on p.pid = t.pid");
    assert!(threads.contains("request=[all threads, groups base]"), "{threads}");
    assert!(threads.contains("request=[all processes, groups base]"), "{threads}");
}

#[test]
fn threads_are_those_of_proc() {
    let own = std::process::id();
    let tids: HashSet<u64> = rows(&format!("select tid from threads where pid = {own}"))
        .iter()
        .filter_map(|r| r["tid"].as_u64())
        .collect();
    assert!(tids.len() > 1, "the test harness has threads");
    assert!(tids.contains(&own.into()));
}

#[test]
fn files_are_those_of_proc() {
    let own = std::process::id();
    let file = tempfile::NamedTempFile::new().expect("a file");
    file.as_file().set_len(12_345).expect("it grows");
    let path = file.path().to_str().expect("UTF-8");
    let sql = format!(
        "select pid, kind, size, command, deleted from files where pid = {own} and path = '{path}'"
    );
    assert_eq!(
        rows(&sql)[0],
        json!({"pid": own, "kind": "reg", "size": 12_345, "command": status_name(own), "deleted": false})
    );
    let plan = plan(&sql);
    assert!(
        plan.contains(&format!(
            "where=[path in (\"{path}\")], request=[processes of pids {own}, groups base|fd]"
        )),
        "{plan}"
    );
}

fn status_name(pid: u32) -> String {
    common::proc(pid, "comm").trim().to_owned()
}

#[test]
fn sockets_are_those_that_listen() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("it is bound").port();
    let sql = format!(
        "select pid, laddr, family, protocol, sockstate from sockets where lport = {port} and sockstate = 'LISTEN'"
    );
    let rows = rows(&sql);
    let of_us = rows.iter().find(|r| r["pid"] == json!(std::process::id())).expect("we listen");
    assert_eq!(of_us["laddr"], json!("127.0.0.1"));
    assert_eq!(of_us["family"], json!("inet"));
    assert_eq!(of_us["protocol"], json!("TCP"));
}

#[test]
fn maps_and_memory_are_those_of_proc() {
    let sleeper = Sleeper::start();
    let pid = sleeper.pid();
    let maps = rows(&format!(
        "select address, \"end\", perms, path from maps where pid = {pid} order by address"
    ));
    let text = common::proc(pid, "maps");
    assert_eq!(maps.len(), text.lines().count());
    let first = text.lines().next().expect("it has mappings");
    let begin =
        u64::from_str_radix(first.split('-').next().expect("an address"), 16).expect("hexadecimal");
    assert_eq!(maps[0]["address"], json!(begin));
    let memory = rows(&format!("select pss, uss, rss from memory where pid = {pid}"));
    assert!(memory[0]["pss"].as_u64().expect("we may see our own") > 0);
    assert!(memory[0]["uss"].as_u64() <= memory[0]["pss"].as_u64());
    // Kernel threads never have rows in this table.
    let with = rows("select count(*) as n from memory where comm = 'kthreadd'");
    assert_eq!(with, [json!({"n": 0})]);
}

#[test]
fn namespaces_count_processes() {
    let own = std::fs::read_link("/proc/self/ns/uts").expect("it has one");
    let inode =
        own.to_str().and_then(|t| t.split(['[', ']']).nth(1)).expect("uts:[inode]").to_owned();
    let all = rows(&format!("select type, processes from namespaces where ns = {inode}"));
    assert_eq!(all[0]["type"], json!("uts"));
    assert!(all[0]["processes"].as_u64() > Some(0));
}

/// A cgroup of version 2 or else of version 1, which is removed at the end.
struct Made(std::path::PathBuf);

impl Made {
    fn new() -> Option<Made> {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("it can be read");
        let points = |kind: &str| {
            let lines = mounts.lines().filter(move |l| l.contains(kind) && !l.contains("cpuset"));
            lines.filter_map(|l| l.split(' ').nth(4)).map(str::to_owned).collect::<Vec<_>>()
        };
        let name = format!("taskdiag-sql-{}", std::process::id());
        let all = [points(" - cgroup2 "), points(" - cgroup ")].concat();
        let dirs = all.iter().map(|p| std::path::Path::new(p).join(&name));
        dirs.into_iter().find(|dir| std::fs::create_dir(dir).is_ok()).map(Made)
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
fn cgroups_have_the_values_of_their_files() {
    let Some(made) = Made::new() else {
        assert!(std::env::var_os("TASKDIAG_REQUIRE").is_none(), "no cgroup can be made");
        eprintln!("skipped: no cgroup can be made");
        return;
    };
    let sleeper = Sleeper::start();
    std::fs::write(made.0.join("cgroup.procs"), sleeper.pid().to_string()).expect("it is moved");
    let name = made.0.file_name().and_then(|n| n.to_str()).expect("a name of ours");
    let id = std::os::unix::fs::MetadataExt::ino(&made.0.metadata().expect("it is there"));
    let sql = format!("select path, id, procs, memory_high from cgroups where path = '/{name}'");
    let want = json!([{"path": format!("/{name}"), "id": id, "procs": 1, "memory_high": null}]);
    assert_eq!(Value::from(rows(&sql)), want);
    let plan = plan(&sql);
    assert!(plan.contains(&format!("where=[path in (\"/{name}\")]")), "{plan}");
    assert!(plan.contains("request=[2 files of each cgroup]"), "{plan}");
    // Joins a process with its cgroup. The two tables of cgroups are one listing.
    let own = std::process::id();
    let sql = format!(
        "select count(*) as n from processes p join cgroups c on c.path = p.cgroup_path \
         join cgroups r on r.path = '/' where p.pid = {own} and r.procs >= c.procs"
    );
    assert_eq!(rows(&sql), [json!({"n": 1})]);
    drop(sleeper);
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !std::fs::read_to_string(made.0.join("cgroup.procs")).is_ok_and(|t| t.is_empty()) {
        assert!(std::time::Instant::now() < until, "the process does not end");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[test]
fn waits_have_the_holder_of_a_pipe() {
    let mut cat = Command::new("cat").stdin(Stdio::piped()).spawn().expect("it starts");
    let sql =
        format!("select waits_on, waits_for, waits_for_how from waits where pid = {}", cat.id());
    // The program must get as far as reading.
    let found = (0..100).find_map(|_| {
        std::thread::sleep(std::time::Duration::from_millis(100));
        let all = rows(&sql);
        (all.first()?["waits_on"] == json!("pipe-read")).then_some(all)
    });
    let holder = json!(std::process::id());
    let want = json!([{"waits_on": "pipe-read", "waits_for": holder, "waits_for_how": "writer"}]);
    assert_eq!(found.map(Value::from), Some(want));
    drop(cat.stdin.take());
    cat.wait().expect("it ends");
}

#[test]
fn results_are_json_csv_and_tables() {
    let own = std::process::id();
    let sql = "select 1 as a, 'x,\"y' as b, null as c, true as d, '-z' as e";
    let csv = run(&["-o", "csv", "-c", sql]);
    assert_eq!((csv.code, csv.out.as_str()), (0, "a,b,c,d,e\n1,\"x,\"\"y\",,true,\\x2dz\n"));
    let json = run(&["-o", "json", "-c", sql]);
    let value: Value = serde_json::from_str(&json.out).expect("it is JSON");
    assert_eq!(value, json!([{"a": 1, "b": "x,\"y", "c": null, "d": true, "e": "-z"}]));
    let table = run(&["-c", "select 1 as a, 'x\u{1b}y' as b, null as c"]);
    assert_eq!(table.out, "a  b       c\n-  ------  ----\n1  x\\x1by  NULL\n");
    let many = run(&[
        "-o",
        "csv",
        "-c",
        &format!("select pid from processes where pid = {own}; select 2 as n"),
    ]);
    assert_eq!(many.out, format!("pid\n{own}\nn\n2\n"));
}

#[test]
fn statements_come_from_standard_input() {
    let mut command = program::<&str>([]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin
        .write_all(b"create view own as select 6 * 7 as n;\nselect n from own;\n")
        .expect("it reads");
    drop(stdin);
    let ran = ended(child);
    assert_eq!((ran.code, ran.out.as_str()), (0, " n\n--\n42\n"), "{}", ran.err);
}

#[test]
fn errors_name_the_mistake() {
    for (sql, want) in [
        ("select", "Expected"),
        ("selec 1", "Expected"),
        ("select con from processes", "there is no column 'con'"),
        ("select nice from processes", "there is no column 'nice' (did you mean 'ni'?)"),
        ("select rsss from processes", "there is no column 'rsss' (did you mean 'rss'?)"),
        ("select 1 from process", "there is no table 'process' (did you mean 'processes'?)"),
        ("select nosuch(pid) from processes", "nosuch"),
        ("insert into processes select * from processes", "nsert"),
        ("drop table processes", "cannot be dropped"),
        ("create view maps as select 1", "maps"),
        ("", "there is no statement"),
    ] {
        let ran = run(&["-c", sql]);
        assert_eq!(ran.code, 2, "{sql}: {}", ran.err);
        assert!(ran.err.contains(want), "{sql}: {}", ran.err);
        assert!(ran.err.len() < 300, "{sql}: {}", ran.err);
        assert!(ran.out.is_empty(), "{sql}: {}", ran.out);
    }
    assert_eq!(run(&["--nosuch"]).code, 2);
    assert_eq!(run(&["--engine", "nosuch", "-c", "select 1"]).code, 2);
    assert_eq!(run(&["-c", "select pid from processes where pid < 0"]).code, 1);
}

#[test]
fn tables_and_columns_are_listed() {
    let tables =
        rows("select table_name from information_schema.tables where table_schema = 'live'");
    let names: HashSet<&str> = tables.iter().filter_map(|r| r["table_name"].as_str()).collect();
    let want = [
        "processes",
        "threads",
        "files",
        "sockets",
        "maps",
        "memory",
        "namespaces",
        "waits",
        "cgroups",
    ];
    assert_eq!(names, HashSet::from(want));
    let columns = run(&["-o", "csv", "-c", "describe processes"]);
    assert!(columns.out.contains("\nrss,UInt64,YES\n"), "{}", columns.out);
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let mut command = program(["-o", "csv", "-c", "select * from generate_series(1, 3000000)"]);
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    drop(child.stdout.take());
    let ran = ended(child);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
}

#[test]
fn ctrl_c_ends_a_query() {
    let mut command = program([
        "-c",
        "select count(*) from generate_series(1, 1000000) a, generate_series(1, 1000000) b",
    ]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let pid = child.id().to_string();
    // The handler is there when SIGINT is among the caught signals.
    let caught =
        || u64::from_str_radix(status_text(&pid).trim(), 16).expect("hexadecimal") & 2 != 0;
    while !caught() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let kill =
        std::process::Command::new("kill").args(["-INT", &pid]).status().expect("there is kill");
    assert!(kill.success());
    let ran = ended(child);
    assert_eq!(ran.code, 130, "{}", ran.err);
    assert!(ran.err.contains("stopped by Ctrl-C"), "{}", ran.err);
}

fn status_text(pid: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    text.lines().find_map(|l| l.strip_prefix("SigCgt:")).expect("status has it").to_owned()
}
