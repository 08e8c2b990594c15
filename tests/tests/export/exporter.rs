//! A running exporter, its metrics as values, and programs of Prometheus.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use taskdiag_tests::busy::Patience;
use taskdiag_tests::cli::taskdiag;
use taskdiag_tests::skip;
use taskdiag_tests::skips::target_dir;

/// An exporter on a port of its own. Dropping the value ends it.
pub struct Exporter {
    child: Child,
    pub address: String,
}

impl Exporter {
    /// Starts one with these options. Returns when it has made its first answer.
    pub fn start(options: &[&str]) -> Exporter {
        let mut command = Command::new(taskdiag());
        command.args(["export", "--listen", "127.0.0.1:0", "--share", "1us"]).args(options);
        command.env_remove("TASKDIAG_ENGINE").stdin(Stdio::null()).stdout(Stdio::null());
        let mut child = command.stderr(Stdio::piped()).spawn().expect("it starts");
        let mut lines = BufReader::new(child.stderr.take().expect("piped"));
        // From here on, dropping the value ends it.
        let mut exporter = Exporter { child, address: String::new() };
        let mut said = String::new();
        while exporter.address.is_empty() {
            let mut line = String::new();
            let n = lines.read_line(&mut line).expect("it says something");
            assert!(n > 0, "it ended: {said}");
            if let Some(url) = line.split("listening on http://").nth(1) {
                exporter.address = url.split('/').next().expect("an address").to_owned();
            }
            said.push_str(&line);
        }
        // The later output of the program must not fill the pipe.
        std::thread::spawn(move || _ = std::io::copy(&mut lines, &mut std::io::sink()));
        exporter
    }
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
    /// Its metrics now.
    pub fn scrape(&self) -> Metrics {
        let (code, _, body) = self.get("/metrics", "");
        assert_eq!(code, 200, "{body}");
        Metrics::parse(&body)
    }
    /// A page: status code, head and body. `headers` are whole lines.
    pub fn get(&self, path: &str, headers: &str) -> (u16, String, String) {
        self.ask(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n").as_bytes())
    }
    /// The reply to any bytes. Status 0: there was no reply.
    pub fn ask(&self, request: &[u8]) -> (u16, String, String) {
        let mut stream = self.connect();
        // The exporter may reply and close before it has read everything.
        let _ = stream.write_all(request);
        let mut reply = Vec::new();
        let _ = stream.read_to_end(&mut reply);
        let reply = String::from_utf8_lossy(&reply).into_owned();
        let (head, body) = reply.split_once("\r\n\r\n").unwrap_or((&reply, ""));
        let code = head.split(' ').nth(1).and_then(|c| c.parse().ok()).unwrap_or(0);
        (code, head.to_owned(), body.to_owned())
    }
    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(50))).expect("a number");
        stream
    }
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("it is our child").is_none()
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// Ends a program and waits for it.
pub fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

/// Samples by name and labels, which are in order.
#[derive(Debug)]
pub struct Metrics(pub BTreeMap<(String, Vec<(String, String)>), f64>);

impl Metrics {
    /// Reads the text of Prometheus. It reads only what this test needs; the parsers in judges.rs
    /// check the rest.
    pub fn parse(text: &str) -> Metrics {
        let mut all = BTreeMap::new();
        for line in text.lines().filter(|l| !l.starts_with('#') && !l.is_empty()) {
            let (series, value) = line.rsplit_once(' ').expect("a value");
            let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
            let mut labels: Vec<(String, String)> = split(labels.trim_end_matches('}'));
            labels.sort();
            let before = all.insert((name.to_owned(), labels), value.parse().expect("a number"));
            assert!(before.is_none(), "twice: {line}");
        }
        assert!(!all.is_empty(), "there are no samples");
        Metrics(all)
    }
    /// The value of a series, with its labels in any order.
    pub fn get(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let mut labels: Vec<(String, String)> =
            labels.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        labels.sort();
        self.0.get(&(name.to_owned(), labels)).copied()
    }
    /// The value of a metric of a group; `name` has no `namedprocess_namegroup_`.
    pub fn group(&self, name: &str, group: &str, more: &[(&str, &str)]) -> Option<f64> {
        let labels = [&[("groupname", group)], more].concat();
        self.get(&format!("namedprocess_namegroup_{name}"), &labels)
    }
    /// The names of all families.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.0.keys().map(|(n, _)| n.as_str()).collect();
        names.dedup();
        names
    }
}

/// `a="b",c="d"` as pairs.
fn split(labels: &str) -> Vec<(String, String)> {
    let mut all = Vec::new();
    let mut rest = labels;
    while let Some((name, after)) = rest.split_once("=\"") {
        let mut value = String::new();
        let mut chars = after.char_indices();
        let end = loop {
            match chars.next().expect("a quote at the end") {
                (_, '\\') => value.push(chars.next().expect("an escape").1),
                (at, '"') => break at,
                (_, c) => value.push(c),
            }
        };
        all.push((name.trim_start_matches(',').to_owned(), value));
        rest = &after[end + 1..];
    }
    all
}

/// A program of a package of Prometheus, from PATH or where tools/setup has unpacked it. `None` is
/// reported as a loud skip.
pub fn program(test: &str, name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let unpacked = target_dir().join("prometheus/usr/bin");
    let found = std::env::split_paths(&path).chain([unpacked]).map(|dir| dir.join(name));
    let found = found.into_iter().find(|p| p.is_file());
    if found.is_none() {
        skip(test, &format!("there is no {name}; 'tools/setup test' unpacks it where apt has it"));
    }
    found
}

/// A server of another program that listens on a port of this machine. Dropping the value ends it.
pub struct Server {
    child: Child,
    pub address: SocketAddr,
}

impl Server {
    /// Starts the program with an address to listen on, and waits until `answers` is true for it.
    /// The program opens the port itself, so it is free until then, and another program may take
    /// it. Then another one is tried.
    pub fn start(
        what: &str,
        command: impl Fn(SocketAddr) -> Command,
        answers: impl Fn(SocketAddr) -> bool,
    ) -> Server {
        // No other program uses this address by chance. A program that takes any free port on all
        // addresses gets one from 32768 to 60999 on most machines.
        let [_, a, b, c] = std::process::id().to_be_bytes();
        let ip = Ipv4Addr::new(127, a | 0x40, b, c.clamp(1, 254));
        // Each port is tried once: if another test had taken the port, its program would answer
        // until ours has ended.
        static PORTS: AtomicU16 = AtomicU16::new(20_000);
        for _ in 0..20 {
            let address = SocketAddr::from((ip, PORTS.fetch_add(1, Ordering::Relaxed)));
            let mut command = command(address);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let mut server = Server { child: command.spawn().expect("it starts"), address };
            let has_ended = |child: &mut Child| child.try_wait().expect("it is ours").is_some();
            let is_there = wait(what, || {
                if has_ended(&mut server.child) {
                    return Some(false);
                }
                answers(address).then_some(true)
            });
            if is_there {
                return server;
            }
        }
        panic!("{what} ends on each port");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// Waits until `f` gives something, for at most half a minute, or longer on a busy machine.
pub fn wait<T>(what: &str, mut f: impl FnMut() -> Option<T>) -> T {
    let mut patience = Patience::new(Duration::from_secs(30));
    loop {
        if let Some(it) = f() {
            return it;
        }
        assert!(!patience.is_over(), "{what}: it did not come");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A configuration with a separate group for each process of mktask, its zombie, and the worker of
/// [`peer`](crate::peer).
pub const EACH: &str =
    "process_names: [{name: 'mktask:{{.PID}}', comm: [mktask, deadman, taskdiag-work]}]\n";

/// A file with a configuration, and its path.
pub fn config(text: &str) -> (tempfile::NamedTempFile, String) {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(text.as_bytes()).expect("written");
    let path = file.path().to_str().expect("text").to_owned();
    (file, path)
}
