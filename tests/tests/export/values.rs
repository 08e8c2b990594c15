//! Values are the same as in /proc, counters do not fall when processes end, and groups follow the
//! configuration.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};

use taskdiag::EngineId;
use taskdiag_tests::{Mktask, engines};

use crate::exporter::{EACH, Exporter, Metrics, config, end, wait};

/// A line of /proc/PID/status.
fn status(pid: u32, name: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
    let line = text.lines().find_map(|l| l.strip_prefix(name)).expect("a line");
    let words: Vec<&str> = line.trim_start_matches(':').split_whitespace().collect();
    let number: u64 = words[0].parse().expect("a number");
    if words.get(1) == Some(&"kB") { number * 1024 } else { number }
}

/// The fields of /proc/PID/stat after the name; the first one is number 3 of proc(5).
fn stat(pid: u32, number: usize) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
    let fields = text.rsplit_once(')').expect("a name").1;
    fields.split_whitespace().nth(number - 3).and_then(|n| n.parse().ok()).expect("a number")
}

fn io(pid: u32, name: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/io")).expect("we may read it");
    text.lines()
        .find_map(|l| l.strip_prefix(name))
        .and_then(|n| n.trim().parse().ok())
        .expect("a number")
}

/// Frozen tasks of known states, begun after the exporter, so that all their activity counts.
fn workload() -> Vec<Mktask> {
    let states = [
        &["burn", "300"][..],
        &["io"],
        &["threads", "6"],
        &["dead-threads", "100"],
        &["stopped"],
        &["zombie"],
        &["memory"],
    ];
    states.iter().map(|s| Mktask::start(s).expect("any machine has it")).collect()
}

#[test]
fn threads_are_counted_by_what_they_wait_for() {
    let (_file, path) = config(EACH);
    let locks = Mktask::start(&["lock-abba"]).expect("any machine has it");
    let sleeper = Mktask::start(&["stopped"]).expect("any machine has it");
    let mut ways = vec!["procfs"];
    if engines().iter().any(|s| s.id() == EngineId::Bpf) {
        ways.push("bpf");
    }
    for engine in ways {
        let engine = format!("--engine={engine}");
        let exporter = Exporter::start(&["--families=waits,deadlocks", &engine, "--config", &path]);
        let metrics = exporter.scrape();
        let waiting = |pid: u32, kind| {
            metrics.group("threads_waiting", &format!("mktask:{pid}"), &[("waits_on", kind)])
        };
        assert_eq!(waiting(locks.pid(), "futex"), Some(2.0), "{engine}");
        assert_eq!(waiting(locks.pid(), "signal"), Some(1.0), "{engine}");
        assert_eq!(waiting(sleeper.pid(), "stopped"), Some(1.0), "{engine}");
        assert_eq!(waiting(sleeper.pid(), "futex"), None, "{engine}");
        let [cycles, unseen] =
            ["taskdiag_deadlocks", "taskdiag_waits_unseen"].map(|name| metrics.get(name, &[]));
        let unseen = unseen.expect("it is always there");
        assert!(cycles >= Some(1.0) || unseen > 0.0, "{engine}: {cycles:?}, {unseen}");
        assert!(cycles.is_some(), "{engine}");
    }
}

#[test]
fn processes_that_share_memory_and_files_each_have_them_in_their_groups() {
    let (_file, path) = config(EACH);
    let task = Mktask::start(&["sharers"]).expect("any machine has it");
    let pids = [task.pid(), task.num("sharer")];
    let mut ways =
        vec![vec!["--families=groups,pss"], vec!["--families=groups", "--engine=procfs"]];
    if engines().iter().any(|s| s.id() == EngineId::Bpf) {
        ways.push(vec!["--families=groups", "--engine=bpf"]);
    }
    for way in ways {
        let metrics = Exporter::start(&[&way[..], &["--config", &path]].concat()).scrape();
        let pss = [("memtype", "proportionalResident")];
        let [open, pss] =
            [("open_filedesc", &[][..]), ("memory_bytes", &pss)].map(|(name, more)| {
                pids.map(|pid| metrics.group(name, &format!("mktask:{pid}"), more))
            });
        let count = fs::read_dir(format!("/proc/{}/fd", pids[0])).expect("we may look").count();
        assert_eq!(open, [Some(count as f64); 2], "{way:?}");
        assert!(way.len() > 1 || pss[0] > Some(0.0) && pss[0] == pss[1], "{way:?}: {pss:?}");
        for group in ["fdcount", "rollup"] {
            let labels = [("values", group), ("reason", "unsupported")];
            assert_eq!(metrics.get("taskdiag_scrape_gaps", &labels), None, "{way:?}");
        }
    }
}

/// A counter over living threads only would fall when a thread ends.
#[test]
fn context_switches_that_proc_lacks_are_gaps_and_have_no_sample() {
    let (_file, path) = config(EACH);
    let task = Mktask::start(&["dead-threads", "20"]).expect("any machine has it");
    let exporter = ["--families=groups", "--engine=procfs", "--config", &path];
    let metrics = Exporter::start(&exporter).scrape();
    let group = format!("mktask:{}", task.pid());
    assert_eq!(metrics.group("num_procs", &group, &[]), Some(1.0));
    for kind in ["voluntary", "nonvoluntary"] {
        let n = metrics.group("context_switches_total", &group, &[("ctxswitchtype", kind)]);
        assert_eq!(n, None, "{kind}");
    }
    let labels = [("values", "sched"), ("reason", "unsupported")];
    let gaps = metrics.get("taskdiag_scrape_gaps", &labels);
    assert!(gaps >= Some(1.0), "{gaps:?}");
}

#[test]
fn bytes_over_connections_stay_counted_when_these_end() {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it has one");
    let pid = std::process::id();
    let (_file, path) = config("process_names: [{name: 'is:{{.PID}}', cmdline: ['.+']}]\n");
    let exporter = Exporter::start(&["--config", &path, "--families", "groups,network"]);
    let group = format!("is:{pid}");
    let sent = || {
        let name = "network_bytes_total";
        let bytes = exporter.scrape().group(name, &group, &[("direction", "transmit")]);
        bytes.expect("it is known")
    };
    let before = sent();
    for n in [1, 2] {
        let mut client = TcpStream::connect(address).expect("a listener");
        let mut server = listener.accept().expect("a connection").0;
        client.write_all(&[7; 50_000]).expect("it is open");
        server.read_exact(&mut [0; 50_000]).expect("it is open");
        let now = sent();
        assert!(now >= before + f64::from(n * 50_000), "{before} {now}");
        drop((client, server));
        assert!(sent() >= now);
    }
}

/// CPU time is in ticks in /proc.
const TICK_S: f64 = 0.01;

#[test]
fn metrics_are_those_of_proc() {
    let (_file, path) = config(EACH);
    let exporter = Exporter::start(&["--config", &path]);
    let tasks = workload();
    let metrics = exporter.scrape();
    let mut compared = 0;
    for task in &tasks {
        let pid = task.pid();
        let group = format!("mktask:{pid}");
        let get = |name: &str, more: &[(&str, &str)]| metrics.group(name, &group, more);
        let is = |name: &str, more: &[(&str, &str)], want: u64| {
            assert_eq!(get(name, more), Some(want as f64), "{}: {name} {more:?}", task.state());
        };
        is("num_procs", &[], 1);
        for (mode, field) in [("user", 14), ("system", 15)] {
            let ours = get("cpu_seconds_total", &[("mode", mode)]).expect("it is known");
            let want = stat(pid, field) as f64 * TICK_S;
            assert!((ours - want).abs() <= TICK_S, "{}: {mode} {ours} {want}", task.state());
        }
        is("minor_page_faults_total", &[], stat(pid, 10));
        is("major_page_faults_total", &[], stat(pid, 12));
        is("num_threads", &[], stat(pid, 20));
        let letter = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
        let state = match letter.rsplit_once(')').expect("a name").1.trim().as_bytes()[0] {
            b'S' => "Sleeping",
            b'T' => "Other",
            b'Z' => "Zombie",
            other => panic!("{}: state {}", task.state(), char::from(other)),
        };
        is("states", &[("state", state)], if state == "Zombie" { 1 } else { stat(pid, 20) });
        is("read_bytes_total", &[], io(pid, "read_bytes:"));
        is("write_bytes_total", &[], io(pid, "write_bytes:"));
        if state != "Zombie" {
            is("memory_bytes", &[("memtype", "virtual")], stat(pid, 23));
            is("memory_bytes", &[("memtype", "resident")], status(pid, "VmRSS"));
            is("memory_bytes", &[("memtype", "swapped")], status(pid, "VmSwap"));
            let open = fs::read_dir(format!("/proc/{pid}/fd")).expect("we may look").count() as u64;
            is("open_filedesc", &[], open);
            let limits = fs::read_to_string(format!("/proc/{pid}/limits")).expect("it lives");
            let limit =
                limits.lines().find_map(|l| l.strip_prefix("Max open files")).expect("a line");
            let soft: f64 =
                limit.split_whitespace().next().and_then(|n| n.parse().ok()).expect("a number");
            let share = get("worst_fd_ratio", &[]).expect("it is known");
            assert!((share - open as f64 / soft).abs() < 1e-9, "{}", task.state());
        }
        if stat(pid, 20) == 1 && state == "Sleeping" && !task.state().starts_with("dead") {
            is(
                "context_switches_total",
                &[("ctxswitchtype", "voluntary")],
                status(pid, "voluntary_ctxt_switches"),
            );
            is(
                "context_switches_total",
                &[("ctxswitchtype", "nonvoluntary")],
                status(pid, "nonvoluntary_ctxt_switches"),
            );
            compared += 1;
        }
        let btime = fs::read_to_string("/proc/stat").expect("it is there");
        let btime: i64 = btime
            .lines()
            .find_map(|l| l.strip_prefix("btime "))
            .and_then(|n| n.parse().ok())
            .expect("a number");
        let start = get("oldest_start_time_seconds", &[]).expect("it is known");
        // The kernel rounds the two clocks that make btime at different moments.
        assert!(
            (start - (btime + stat(pid, 22) as i64 / 100) as f64).abs() <= 1.0,
            "{}",
            task.state()
        );
    }
    assert!(compared >= 2, "{compared} tasks had switches");
    let burnt = format!("mktask:{}", tasks[0].pid());
    assert!(
        metrics.group("cpu_seconds_total", &burnt, &[("mode", "user")]) > Some(0.1),
        "it used CPU time"
    );
    // Threads by name, for a process that has several.
    let group = format!("mktask:{}", tasks[2].pid());
    let threads = metrics.0.iter().filter(|((name, labels), _)| {
        name == "namedprocess_namegroup_thread_count" && labels.iter().any(|(_, v)| *v == group)
    });
    assert_eq!(threads.map(|(_, n)| n).sum::<f64>(), 7.0);
    let wchan = metrics.0.keys().filter(|(name, labels)| {
        name == "namedprocess_namegroup_threads_wchan" && labels.iter().any(|(_, v)| *v == group)
    });
    assert!(wchan.count() > 0, "it is not known what they wait in");
}

/// A program by another name, which sleeps.
fn sleeper(dir: &std::path::Path, name: &str) -> std::process::Child {
    let path = dir.join(name);
    if !path.exists() {
        std::os::unix::fs::symlink("/bin/sleep", &path).expect("a link");
    }
    Command::new(&path).arg("600").stdin(Stdio::null()).spawn().expect("it starts")
}

/// Until the exporter has this many processes in a group: a child is in another one before its
/// exec.
fn settled(exporter: &Exporter, group: &str, n: f64) -> Metrics {
    wait(group, || Some(exporter.scrape()).filter(|m| m.group("num_procs", group, &[]) == Some(n)))
}

#[test]
fn counters_stay_when_processes_end() {
    // Other tests have processes of mktask, too, which begin and end. The processes of this test
    // have one more argument.
    let own = format!("of-{}", std::process::id());
    let (_file, path) = config(&format!("process_names: [{{name: all, cmdline: ['{own}$']}}]"));
    for options in [&["--config", &path][..], &["--config", &path, "--engine", "procfs"]] {
        let exporter = Exporter::start(options);
        let cpu = |m: &Metrics| {
            m.group("cpu_seconds_total", "all", &[("mode", "user")]).expect("it is known")
        };
        let faults =
            |m: &Metrics| m.group("minor_page_faults_total", "all", &[]).expect("it is known");
        let base = Mktask::start(&["idle", &own]).expect("any machine has it");
        let mut last = exporter.scrape();
        for _ in 0..3 {
            let burn = Mktask::start(&["burn", "200", &own]).expect("any machine has it");
            let with = exporter.scrape();
            assert!(cpu(&with) >= cpu(&last) + 0.1, "{} after {}", cpu(&with), cpu(&last));
            assert!(faults(&with) >= faults(&last) + 1000.0);
            drop(burn);
            for _ in 0..3 {
                let without = exporter.scrape();
                assert!(cpu(&without) >= cpu(&with) && faults(&without) >= faults(&with));
                last = without;
            }
        }
        let n = last.group("num_procs", "all", &[]).expect("it is there");
        drop(base);
        wait("the end", || {
            Some(exporter.scrape()).filter(|m| m.group("num_procs", "all", &[]) < Some(n))
        });
    }
}

/// A group without processes stays, with its counters, unless it must be forgotten.
#[test]
fn empty_groups_keep_their_counters() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_file, path) = config("process_names: [{name: g, comm: [taskdiag-empty]}]");
    for (options, left) in [
        (&["--config", &path][..], Some(0.0)),
        (&["--config", &path, "--remove-empty-groups"], None),
    ] {
        let exporter = Exporter::start(options);
        let mut child = sleeper(dir.path(), "taskdiag-empty");
        let there = settled(&exporter, "g", 1.0);
        assert!(there.group("minor_page_faults_total", "g", &[]) > Some(0.0));
        end(&mut child);
        // An ended process is kept for one more answer.
        (0..3).for_each(|_| _ = exporter.scrape());
        let gone = exporter.scrape();
        assert_eq!(gone.group("num_procs", "g", &[]), left);
        assert_eq!(gone.group("memory_bytes", "g", &[("memtype", "resident")]), left);
        assert_eq!(gone.group("minor_page_faults_total", "g", &[]).is_some(), left.is_some());
    }
}

/// A process that began before the exporter counts from then on; with --once, from its own start.
#[test]
fn counters_of_a_group_begin_at_zero() {
    let (_file, path) = config(EACH);
    let burn = Mktask::start(&["burn", "300"]).expect("any machine has it");
    let group = format!("mktask:{}", burn.pid());
    let exporter = Exporter::start(&["--config", &path]);
    let metrics = exporter.scrape();
    assert_eq!(metrics.group("cpu_seconds_total", &group, &[("mode", "user")]), Some(0.0));
    let ran = taskdiag_tests::cli::Sandbox::new().run(&["export", "--once", "--config", &path]);
    let once = Metrics::parse(&ran.stdout);
    assert!(once.group("cpu_seconds_total", &group, &[("mode", "user")]) > Some(0.1), "{ran}");
}

/// Children belong to the group of their parent, unless there is a rule for them or an option
/// disables that.
#[test]
fn children_belong_to_the_group_of_their_parent() {
    let dir = tempfile::tempdir().expect("a directory");
    let script = dir.path().join("taskdiag-parent");
    let text = format!(
        "#!/bin/sh\n{0}/taskdiag-child 600 & a=$!\n{0}/taskdiag-named 600 & b=$!\necho ready\nread x\nkill $a $b; wait\n",
        dir.path().display()
    );
    fs::write(&script, text).expect("written");
    for name in ["taskdiag-child", "taskdiag-named"] {
        std::os::unix::fs::symlink("/bin/sleep", dir.path().join(name)).expect("a link");
    }
    // Another process runs the script, because a file that is open for writing cannot be executed.
    let (_file, path) = config(
        "process_names: [{name: p, cmdline: ['taskdiag-parent$']}, {name: n, comm: [taskdiag-named]}]",
    );
    for (options, procs) in [(&[][..], 2.0), (&["--no-children"], 1.0)] {
        let mut parent = Command::new("sh")
            .arg(&script)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("sh starts");
        let ready = BufReader::new(parent.stdout.take().expect("piped")).lines().next();
        assert!(ready.is_some_and(|l| l.is_ok_and(|l| l == "ready")));
        let named = |comm: &str| {
            let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", parent.id()))
                .unwrap_or_default();
            let is = |pid: &&str| {
                fs::read_to_string(format!("/proc/{pid}/comm"))
                    .is_ok_and(|c| c.trim() == &comm[..comm.len().min(15)])
            };
            children.split_whitespace().any(|pid| is(&pid))
        };
        // Both exist with their names before the exporter reads them.
        let found = std::panic::catch_unwind(|| {
            wait("the children", || {
                (named("taskdiag-child") && named("taskdiag-named")).then_some(())
            });
            let exporter = Exporter::start(&[&["--config", &path][..], options].concat());
            let m = exporter.scrape();
            (m.group("num_procs", "p", &[]), m.group("num_procs", "n", &[]))
        });
        drop(parent.stdin.take());
        let _ = parent.wait();
        assert_eq!(found.ok(), Some((Some(procs), Some(1.0))), "{options:?}");
    }
}

/// A process stays in its group when it changes its name, unless it is checked again.
#[test]
fn a_renamed_process_stays_in_its_group_unless_rechecked() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_file, path) =
        config("process_names: [{name: '{{.Comm}}', comm: [taskdiag-before, taskdiag-after]}]");
    let script = "echo ready; read x; printf taskdiag-after >/proc/$$/comm; echo done; read x";
    std::os::unix::fs::symlink("/bin/sh", dir.path().join("taskdiag-before")).expect("a link");
    for (options, before, after) in
        [(&[][..], Some(1.0), None), (&["--recheck"], Some(0.0), Some(1.0))]
    {
        let mut command = Command::new(dir.path().join("taskdiag-before"));
        command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let mut said = BufReader::new(child.stdout.take().expect("piped")).lines();
        let mut says =
            |want: &str| assert!(said.next().is_some_and(|l| l.is_ok_and(|l| l == want)));
        says("ready");
        let exporter = Exporter::start(&[&["--config", &path][..], options].concat());
        assert_eq!(exporter.scrape().group("num_procs", "taskdiag-before", &[]), Some(1.0));
        child.stdin.as_mut().expect("piped").write_all(b"x\n").expect("it reads");
        says("done");
        let m = exporter.scrape();
        end(&mut child);
        assert_eq!(m.group("num_procs", "taskdiag-before", &[]), before, "{options:?}");
        assert_eq!(m.group("num_procs", "taskdiag-after", &[]), after, "{options:?}");
    }
}

/// There are no more names than the limit. Further ones count as "other", and nothing is lost.
#[test]
fn names_have_a_limit() {
    let (_file, path) = config(EACH);
    let tasks: Vec<Mktask> =
        (0..6).map(|_| Mktask::start(&["idle"]).expect("any machine has it")).collect();
    let exporter = Exporter::start(&["--config", &path, "--limit", "3", "--top", "2"]);
    let m = exporter.scrape();
    let groups: Vec<f64> =
        m.0.iter()
            .filter(|((n, _), _)| n == "namedprocess_namegroup_num_procs")
            .map(|(_, v)| *v)
            .collect();
    assert_eq!(groups.len(), 4, "{groups:?}");
    let other = m.group("num_procs", "other", &[]).expect("it is there");
    assert!(groups.iter().sum::<f64>() >= tasks.len() as f64 && other >= 3.0, "{groups:?}");
    assert_eq!(m.get("taskdiag_names_other", &[("kind", "group")]), Some(other));
    for name in ["taskdiag_top_cpu_ratio", "taskdiag_top_resident_bytes"] {
        assert_eq!(m.0.keys().filter(|(n, _)| n == name).count(), 3, "{name}");
        assert!(m.get(name, &[("comm", "other")]).is_some(), "{name}");
    }
}

/// A process in a control group with the name of a unit is in its unit, its slice and its
/// container.
#[test]
fn a_process_counts_for_its_unit_slice_and_container() {
    let test = "a_process_counts_for_its_unit_slice_and_container";
    let id = "3f2a9c1e5b7d8f60a1b2c3d4e5f60718293a4b5c6d7e8f90112233445566778a";
    let Some(root) = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"]
        .iter()
        .find(|d| fs::exists(format!("{d}/cgroup.procs")).is_ok_and(|b| b))
    else {
        return taskdiag_tests::skip(test, "there is no control group file system");
    };
    let slice = format!("{root}/taskdiagtest{}.slice", std::process::id());
    let dirs = [
        slice.clone(),
        format!("{slice}/taskdiag-a.service"),
        format!("{slice}/docker-{id}.scope"),
    ];
    let made = dirs.iter().try_for_each(fs::create_dir);
    let remove = || dirs.iter().rev().for_each(|d| _ = fs::remove_dir(d));
    if let Err(e) = made {
        remove();
        return taskdiag_tests::skip(test, &format!("no control group can be made here: {e}"));
    }
    let tasks: Vec<Mktask> =
        (0..2).map(|_| Mktask::start(&["burn", "100"]).expect("any machine has it")).collect();
    let moved = tasks
        .iter()
        .zip(&dirs[1..])
        .try_for_each(|(t, d)| fs::write(format!("{d}/cgroup.procs"), t.pid().to_string()))
        .is_ok();
    let done = std::panic::catch_unwind(|| {
        assert!(moved, "root may move them");
        let exporter = Exporter::start(&["--config", &config(EACH).1]);
        exporter.scrape()
    });
    drop(tasks);
    wait("the control groups can be removed", || {
        remove();
        (!fs::exists(&slice).unwrap_or(true)).then_some(())
    });
    let m = done.expect("it answers");
    let name = slice.rsplit('/').next().expect("a name");
    assert_eq!(
        m.get("taskdiag_unit_processes", &[("unit", "taskdiag-a.service"), ("slice", name)]),
        Some(1.0)
    );
    assert_eq!(m.get("taskdiag_slice_processes", &[("slice", name)]), Some(2.0));
    let labels = [("container", id), ("runtime", "docker"), ("pod", "")];
    assert_eq!(m.get("taskdiag_container_processes", &labels), Some(1.0));
    assert!(m.get("taskdiag_container_resident_bytes", &labels) > Some(0.0));
    assert_eq!(
        m.get(
            "taskdiag_container_cpu_seconds_total",
            &[("container", id), ("runtime", "docker"), ("pod", ""), ("mode", "user")]
        ),
        Some(0.0)
    );
}
