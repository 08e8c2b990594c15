//! Tests the traffic of sockets (the group NET) with a transfer of a known size, and against `ss`.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use taskdiag::wire::{Entry, Net, Socket};
use taskdiag::{EngineId, Group, Groups, Request, Snapshot};
use taskdiag_tests::answer::engines_with;
use taskdiag_tests::cli::taskdiag;
use taskdiag_tests::{read, skip};

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let client = TcpStream::connect(listener.local_addr().expect("its port")).expect("a listener");
    (client, listener.accept().expect("a connection").0)
}

/// Sends this many bytes, and waits until the other end has received them.
fn transfer(from: &mut TcpStream, to: &mut TcpStream, bytes: usize) {
    thread::scope(|s| {
        s.spawn(|| from.write_all(&vec![7; bytes]).expect("it is open"));
        let mut buf = vec![0; 1 << 16];
        let mut left = bytes;
        while left > 0 {
            left -= to.read(&mut buf).expect("it is open");
        }
    });
}

/// The entries of this process, by descriptor.
fn of_this_process(engine: EngineId, groups: Groups, then: impl FnOnce(&Snapshot)) {
    let source = engines_with(Group::Net).into_iter().find(|s| s.id() == engine);
    let answer = read(source.expect("the engine"), &Request::one(std::process::id(), groups));
    then(&answer.expect("an answer").snapshot);
}

fn list<'a>(snapshot: &'a Snapshot) -> HashMap<i32, Entry<'a, Net>> {
    let task = snapshot.tasks().next().expect("this process");
    let all =
        task.list::<Net>().unwrap_or_else(|| panic!("no list: {:?}", task.reason(Group::Net)));
    all.map(|e| (e.raw.fd as i32, e)).collect()
}

fn engines() -> Vec<EngineId> {
    let all: Vec<EngineId> = engines_with(Group::Net).iter().map(|s| s.id()).collect();
    assert!(all.contains(&EngineId::Procfs), "{all:?}");
    all
}

#[test]
fn a_transfer_of_a_known_size_is_counted_to_the_byte() {
    const BYTES: usize = 3_456_789;
    let ((mut client, mut server), begun) = (pair(), Instant::now());
    transfer(&mut client, &mut server, BYTES);
    server.write_all(b"thanks").expect("it is open");
    let mut thanks = [0; 6];
    client.read_exact(&mut thanks).expect("the other end has written");
    let udp = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let (one, _other) = std::os::unix::net::UnixStream::pair().expect("two sockets");
    // Until the last bytes are acknowledged.
    thread::sleep(Duration::from_millis(300));
    for engine in engines() {
        of_this_process(engine, Groups::NET, |snapshot| {
            let all = list(snapshot);
            let (c, s) = (all[&client.as_raw_fd()], all[&server.as_raw_fd()]);
            // The kernel may send something again where this machine is busy.
            let sent = |e: &Entry<'_, Net>| Some(e.sent_bytes()? - e.retrans_bytes()?);
            assert_eq!((sent(&c), s.received_bytes()), (Some(BYTES as u64), Some(BYTES as u64)));
            assert_eq!((sent(&s), c.received_bytes()), (Some(6), Some(6)), "{engine:?}");
            assert_eq!((c.acked_bytes(), s.acked_bytes()), (Some(BYTES as u64 + 1), Some(6)));
            let since = |e: &Entry<'_, Net>| e.since_sent_ns().map(Duration::from_nanos);
            for e in [&c, &s] {
                // A tick is at most ten milliseconds.
                let since = since(e).expect("it is connected");
                assert!(since >= Duration::from_millis(280), "{engine:?}: {since:?}");
                assert!(since <= begun.elapsed() + Duration::from_millis(10), "{engine:?}");
                assert!(
                    e.rtt_ns().is_some_and(|ns| ns > 0) && e.cwnd_segs().is_some_and(|n| n > 0)
                );
                assert!(e.congestion().is_some_and(|name| name[0].is_ascii_lowercase()));
            }
            let (u, x) = (all[&udp.as_raw_fd()], all[&one.as_raw_fd()]);
            for e in [&u, &x] {
                assert_eq!((e.sent_bytes(), e.received_bytes(), e.rtt_ns()), (None, None, None));
                assert_eq!(e.drops(), Some(0), "{engine:?}");
            }
        });
    }
}

/// The numbers of `ss` for one connection: `bytes_sent:5`, `rtt:0.061/0.094`, and its algorithm.
fn of_ss<'t>(line: &'t str, key: &str) -> &'t str {
    let found = line.split_ascii_whitespace().find_map(|w| w.strip_prefix(key));
    found.and_then(|rest| rest.strip_prefix(':')).unwrap_or("0")
}

#[test]
fn a_thousand_connections_are_as_ss_has_them() {
    let test = "a_thousand_connections_are_as_ss_has_them";
    // Other tests in this process share the limit of open files, so check for `ss` first.
    if Command::new("ss").arg("-V").output().is_err() {
        return skip(test, "there is no ss(8)");
    }
    let limit = libc::rlimit { rlim_cur: 4096, rlim_max: 4096 };
    // SAFETY: the call reads this struct.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) } != 0 {
        return skip(test, "it may not have 4,096 files open");
    }
    let mut pairs: Vec<_> = (0..500).map(|_| pair()).collect();
    for (n, (client, server)) in pairs.iter_mut().enumerate() {
        transfer(client, server, n * 7);
    }
    thread::sleep(Duration::from_millis(400));
    let out = Command::new("ss").args(["-tinHO"]).output().expect("it ran before");
    let text = String::from_utf8(out.stdout).expect("ASCII");
    let ends = |line: &str| -> Option<(u16, u16)> {
        let mut words = line.split_ascii_whitespace().skip(3);
        let mut port = || words.next()?.rsplit_once(':')?.1.parse().ok();
        Some((port()?, port()?))
    };
    let by_ends: HashMap<(u16, u16), &str> =
        text.lines().filter_map(|l| Some((ends(l)?, l))).collect();
    for engine in engines() {
        of_this_process(engine, Groups::NET | Groups::FD, |snapshot| {
            let all = list(snapshot);
            let task = snapshot.tasks().next().expect("this process");
            let mut compared = 0;
            for s in task.list::<Socket>().expect("sockets") {
                let ports = (s.raw.local_port, s.raw.peer_port);
                let is_ours = pairs
                    .iter()
                    .any(|(a, b)| [a.as_raw_fd(), b.as_raw_fd()].contains(&(s.raw.fd as i32)));
                let Some(line) = by_ends.get(&ports).filter(|_| is_ours) else { continue };
                let e = all[&(s.raw.fd as i32)];
                let number = |key: &str| {
                    of_ss(line, key).parse::<u64>().unwrap_or_else(|_| panic!("{key}: {line}"))
                };
                let context = || format!("{engine:?} {e:?}\n{line}");
                let ours = [e.sent_bytes(), e.acked_bytes(), e.received_bytes(), e.retrans_bytes()];
                let theirs = ["bytes_sent", "bytes_acked", "bytes_received", "bytes_retrans"];
                assert_eq!(ours, theirs.map(|k| Some(number(k))), "{}", context());
                let ours =
                    [e.sent_segs(), e.received_segs(), e.cwnd_segs()].map(|n| n.map(u64::from));
                assert_eq!(
                    ours,
                    ["segs_out", "segs_in", "cwnd"].map(|k| Some(number(k))),
                    "{}",
                    context()
                );
                let (rtt, var) = of_ss(line, "rtt").split_once('/').expect("two numbers");
                let us = |ms: &str| (ms.parse::<f64>().expect("a number") * 1000.0).round() as u64;
                let ours = [e.rtt_ns(), e.rtt_var_ns()].map(|ns| ns.map(|ns| ns / 1000));
                assert_eq!(ours, [rtt, var].map(|ms| Some(us(ms))), "{}", context());
                let name = e.congestion().expect("it is known");
                let name = String::from_utf8(name.into_iter().take_while(|b| *b != 0).collect())
                    .expect("ASCII");
                assert!(line.split_ascii_whitespace().any(|w| w == name), "{}", context());
                compared += 1;
            }
            assert_eq!(compared, 1000, "{engine:?}");
        });
    }
}

#[test]
fn a_socket_that_processes_share_counts_once_in_a_sum() {
    let (mut client, mut server) = pair();
    transfer(&mut client, &mut server, 300);
    thread::sleep(Duration::from_millis(300));
    // The connection is the standard input of both, and descriptor 5 of the first.
    let child = |script: &str| {
        Command::new("sh")
            .args(["-c", script])
            .stdin(Stdio::from(std::os::fd::OwnedFd::from(client.try_clone().expect("a copy"))))
            .stdout(Stdio::null())
            .spawn()
            .expect("sh")
    };
    let mut all = [child("exec 5<&0; exec sleep 60"), child("exec sleep 60")];
    thread::sleep(Duration::from_millis(300));
    let pids = all.each_ref().map(|c| c.id().to_string());
    // The last word of a list of `top`.
    let sent = |pids: &str, more: &[&str]| {
        let mut command = Command::new(taskdiag());
        let out = command.args(["top", "--once", "-p", pids, "-o", "user,net_sent"]).args(more);
        let out = out.output().expect("taskdiag");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let text = String::from_utf8(out.stdout).expect("ASCII");
        let list = text.split_once("NETSENT").expect("the column").1;
        let all: Vec<_> = list.lines().filter_map(|l| l.split_whitespace().last()).collect();
        all.iter().map(|w| w.to_string()).collect::<Vec<_>>()
    };
    for engine in ["procfs", "auto"] {
        let engine = ["--engine", engine];
        let each = sent(&pids.join(","), &engine);
        assert!(each.len() == 2 && each[0] == each[1] && each[0].ends_with('B'), "{each:?}");
        let by_user = [&engine[..], &["--by", "user"]].concat();
        assert_eq!(sent(&pids.join(","), &by_user), each[..1], "{engine:?}");
    }
    for child in &mut all {
        child.kill().expect("it sleeps");
        child.wait().expect("it has ended");
    }
}

#[test]
fn rates_of_a_shared_socket_count_once_for_a_user() {
    let (mut client, mut server) = pair();
    // So many that a multiple of the rate differs from a change of it.
    let mut all: Vec<_> = (0..8)
        .map(|_| {
            let copy = std::os::fd::OwnedFd::from(client.try_clone().expect("a copy"));
            Command::new("sleep").arg("60").stdin(copy).spawn().expect("sleep")
        })
        .collect();
    let pids = all.iter().map(|c| c.id().to_string()).collect::<Vec<_>>().join(",");
    let end = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|s| {
        s.spawn(|| {
            while !end.load(std::sync::atomic::Ordering::Relaxed) {
                transfer(&mut client, &mut server, 20_000);
                thread::sleep(Duration::from_millis(10));
            }
        });
        for engine in ["procfs", "auto"] {
            let rates = |more: &[&str]| {
                let mut command = Command::new(taskdiag());
                command.args(["top", "--once", "--json", "-d", "1s", "--engine", engine]);
                let out = command.args(["-p", &pids]).args(more).output().expect("taskdiag");
                assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
                let rows: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
                let rows = rows.as_array().expect("rows").clone();
                let sent = |row: &serde_json::Value| row["net_sent_now"].as_u64().expect("known");
                rows.iter().map(sent).collect::<Vec<_>>()
            };
            let each = rates(&["-o", "pid,net_sent_now"]);
            assert!(each.len() == 8 && each.iter().all(|n| *n == each[0]), "{each:?}");
            assert!(each[0] > 10_000, "{each:?}");
            let all = rates(&["--by", "user", "-o", "user,net_sent_now"]);
            assert!(all.len() == 1 && all[0] > 10_000 && all[0] / 4 < each[0], "{all:?} {each:?}");
        }
        end.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    for child in &mut all {
        child.kill().expect("it sleeps");
        child.wait().expect("it has ended");
    }
}
