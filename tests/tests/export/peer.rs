//! Compares process-exporter with ours: the same configuration, the same frozen tasks.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use taskdiag_tests::Mktask;

use crate::exporter::{EACH, Exporter, Metrics, Server, config, end, program, wait};

/// Differences that are meant, by the name of the family without its beginning: why.
const MEANT: &[(&str, &str)] = &[
    ("states", "process-exporter counts the first thread of a process with several threads twice"),
    (
        "threads_wchan",
        "process-exporter counts the first thread of a process with several threads twice",
    ),
    (
        "context_switches_total",
        "process-exporter leaves threads that have ended out, so that its counter can fall",
    ),
    ("cpu_seconds_total", "ours is not rounded to ticks"),
    (
        "memory_bytes",
        "process-exporter takes resident memory from stat, which newer kernels do not keep exact, and ours needs --families pss for proportional memory",
    ),
    (
        "oldest_start_time_seconds",
        "process-exporter has the year 1 for a group without processes, and both round btime",
    ),
];

/// Frozen tasks of known states.
const STATES: [&[&str]; 7] = [
    &["burn", "300"],
    &["io"],
    &["threads", "6"],
    &["stopped"],
    &["memory"],
    &["odd-comm"],
    &["idle"],
];

/// A shell that works for a moment on request, and waits otherwise. It ends with its input.
struct Worker {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Worker {
    fn start(dir: &Path) -> Worker {
        let path = dir.join("taskdiag-work");
        std::os::unix::fs::symlink("/bin/sh", &path).expect("a link");
        let work = "while read x; do head -c 300000 /dev/zero >$0.out; i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; echo done; done";
        let mut command = Command::new(path);
        command
            .args(["-c", work])
            .arg(dir.join("worker"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let said = BufReader::new(child.stdout.take().expect("piped"));
        Worker { child, said }
    }
    fn work(&mut self) {
        self.child.stdin.as_mut().expect("piped").write_all(b"x\n").expect("it reads");
        let mut line = String::new();
        self.said.read_line(&mut line).expect("it says something");
        assert_eq!(line, "done\n");
        // Wait until the stat file of the child shows that it sleeps, because then it waits for its
        // next line.
        let stat = format!("/proc/{}/stat", self.child.id());
        wait("its sleep", || std::fs::read_to_string(&stat).ok().filter(|s| s.contains(") S ")));
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

#[test]
fn process_exporter_has_the_same_names_and_values() {
    let test = "process_exporter_has_the_same_names_and_values";
    let Some(peer) = program(test, "prometheus-process-exporter") else { return };
    let (_file, path) = config(EACH);
    let dir = tempfile::tempdir().expect("a directory");
    // The tasks start before both exporters, because versions of process-exporter count new
    // processes differently.
    let tasks: Vec<Mktask> =
        STATES.iter().map(|s| Mktask::start(s).expect("any machine has it")).collect();
    let mut worker = Worker::start(dir.path());
    let ours = Exporter::start(&["--config", &path]);
    let command = |address| {
        let mut command = Command::new(&peer);
        command.args(["-config.path", &path]).arg(format!("-web.listen-address={address}"));
        command
    };
    let theirs = |address: SocketAddr| {
        let mut stream = TcpStream::connect(address).ok()?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").ok()?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply).ok()?;
        Some(reply.split_once("\r\n\r\n")?.1.to_owned())
    };
    let worked = format!("mktask:{}", worker.child.id());
    let server = Server::start("process-exporter", command, |address| theirs(address).is_some());
    ours.scrape();
    worker.work();
    let (ours, answer) = (ours.scrape(), theirs(server.address).expect("it answers"));
    let theirs = Metrics::parse(&answer);
    let mut groups: Vec<String> = tasks.iter().map(|t| format!("mktask:{}", t.pid())).collect();
    groups.push(worked.clone());
    let cpu = ours.group("cpu_seconds_total", &worked, &[("mode", "user")]);
    assert!(cpu > Some(0.02), "the worker used {cpu:?}");
    let prefix = "namedprocess_namegroup_";
    let of_peer: Vec<&str> =
        theirs.names().into_iter().filter(|n| n.starts_with("namedprocess_")).collect();
    let missing: Vec<&&str> = of_peer.iter().filter(|n| !ours.names().contains(n)).collect();
    assert!(missing.is_empty(), "we lack {missing:?}");
    assert!(of_peer.len() > 20, "the peer has {of_peer:?} only: {answer:.2000}");
    let (mut same, mut differ) = (0, Vec::new());
    for ((name, labels), value) in &theirs.0 {
        let group = labels.iter().find(|(n, _)| n == "groupname").map(|(_, v)| v);
        if !group.is_some_and(|g| groups.contains(g)) {
            continue;
        }
        let bare = name.strip_prefix(prefix).expect("it has a group");
        let our = ours.0.get(&(name.clone(), labels.clone())).copied();
        if our == Some(*value) {
            same += 1;
        } else if !(MEANT.iter().any(|(n, _)| *n == bare) && is_near(bare, labels, our, *value)) {
            differ.push(format!("{name} {labels:?}: theirs {value}, ours {our:?}"));
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
    assert!(same > 100, "only {same} samples are the same");
}

/// Is a difference as small as its reason allows?
fn is_near(name: &str, labels: &[(String, String)], ours: Option<f64>, theirs: f64) -> bool {
    let kind = |wanted: &str| labels.iter().any(|(_, v)| v == wanted);
    let Some(ours) = ours else {
        return name == "memory_bytes"
            && (kind("proportionalResident") || kind("proportionalSwapped"));
    };
    match name {
        "states" | "threads_wchan" => theirs - ours == 1.0,
        "cpu_seconds_total" => (theirs - ours).abs() <= 0.01,
        "memory_bytes" => kind("resident") && (theirs - ours).abs() < 4e6,
        "context_switches_total" => theirs <= ours,
        _ => (theirs - ours).abs() <= 1.0,
    }
}
