//! No client can keep the exporter from serving others.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use taskdiag_tests::busy::{crowd, worth};

use crate::exporter::Exporter;

/// The longest time of a scrape while hostile clients do their worst.
const SOON: Duration = Duration::from_secs(4);
/// The largest number of connections of the server, and its other descriptors.
const DESCRIPTORS: usize = 64 + 60;

fn open_files(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).expect("it lives").count()
}

fn is_served_soon(exporter: &Exporter, what: &str) {
    // The load of the machine changes within a scrape, so one that took long is repeated.
    let mut all = Vec::new();
    for _ in 0..3 {
        let begin = Instant::now();
        let (code, ..) = exporter.get("/metrics", "");
        all.push(worth(begin.elapsed()));
        assert_eq!(code, 200, "{what}: after {all:?}");
        if all.last() < Some(&SOON) {
            return;
        }
    }
    panic!("{what}: {all:?}");
}

#[test]
fn odd_requests_get_the_reply_of_http() {
    let mut exporter = Exporter::start(&["--families", "states"]);
    let long =
        format!("GET /metrics HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(20_000));
    let host = "Host: localhost\r\n";
    for (request, want) in [
        (format!("GET /metrics HTTP/1.1\r\n{host}\r\n"), 200),
        (format!("GET /metrics?name[]=x HTTP/1.0\r\n{host}\r\n"), 200),
        (format!("GET / HTTP/1.1\r\n{host}\r\n"), 200),
        (format!("GET /nope HTTP/1.1\r\n{host}\r\n"), 404),
        (format!("GET /../etc/passwd HTTP/1.1\r\n{host}\r\n"), 404),
        (format!("POST /metrics HTTP/1.1\r\n{host}Content-Length: 3\r\n\r\nabc"), 400),
        (format!("DELETE /metrics HTTP/1.1\r\n{host}\r\n"), 405),
        ("GET /metrics HTTP/1.1\r\nHost: rebound.example\r\n\r\n".into(), 421),
        ("GET /metrics HTTP/1.1\r\n\r\n".into(), 400),
        ("GET /metrics HTTP/2.0\r\n\r\n".into(), 505),
        ("nonsense\r\n\r\n".into(), 400),
        (long, 431),
    ] {
        let (code, head, body) = exporter.ask(request.as_bytes());
        assert_eq!(code, want, "{}: {head}\n{body}", &request[..request.len().min(80)]);
        let len = head.lines().find_map(|l| l.strip_prefix("Content-Length: ")).expect("a length");
        assert_eq!(len.parse(), Ok(body.len()), "{head}");
        assert!(head.contains("Connection: close"), "{head}");
    }
    let (code, head, body) =
        exporter.ask(format!("HEAD /metrics HTTP/1.1\r\n{host}\r\n").as_bytes());
    assert_eq!((code, body.as_str()), (200, ""));
    assert!(!head.contains("Content-Length: 0"), "{head}");
    let (_, head, _) = exporter.ask(format!("PUT / HTTP/1.1\r\n{host}\r\n").as_bytes());
    assert!(head.contains("Allow: GET, HEAD"), "{head}");
    assert_eq!(exporter.ask(&[0xff; 300]).0, 408, "it has no end");
    assert!(exporter.is_running());
}

/// Bytes of a simple generator, so that a failure can be repeated.
fn noise(seed: &mut u64, n: usize) -> Vec<u8> {
    let mut next = || {
        *seed ^= *seed << 13;
        *seed ^= *seed >> 7;
        *seed ^= *seed << 17;
        *seed as u8
    };
    (0..n).map(|_| next()).collect()
}

#[test]
fn requests_of_any_bytes_do_not_end_the_exporter() {
    let mut exporter = Exporter::start(&["--families", "states"]);
    let good = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: a/b;q=0.1\r\n\r\n";
    let mut seed = 0x9e37_79b9_7f4a_7c15;
    for round in 0..300 {
        let mut request = good.to_vec();
        let bytes = noise(&mut seed, 6);
        for pair in bytes.chunks(2) {
            let at = usize::from(pair[0]) % request.len();
            match round % 3 {
                0 => request[at] = pair[1],
                1 => request.truncate(at.max(1)),
                _ => request.insert(at, pair[1]),
            }
        }
        let mut stream = exporter.connect();
        let _ = stream.write_all(&request);
        let _ = stream.shutdown(Shutdown::Write);
        let mut reply = Vec::new();
        let _ = stream.read_to_end(&mut reply);
        assert!(reply.is_empty() || reply.starts_with(b"HTTP/1.1 "), "round {round}: {request:?}");
    }
    assert!(exporter.is_running());
    is_served_soon(&exporter, "after odd requests");
}

/// Many connections that send nothing, a byte now and then, half a request, or do not read the
/// reply.
#[test]
fn slow_clients_delay_no_others() {
    let mut exporter = Exporter::start(&[]);
    let files = open_files(exporter.pid());
    let silent: Vec<TcpStream> = (0..200).map(|_| exporter.connect()).collect();
    is_served_soon(&exporter, "beside 200 that say nothing");
    let mut deaf = Vec::new();
    for _ in 0..100 {
        let mut stream = exporter.connect();
        let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
        deaf.push(stream);
    }
    is_served_soon(&exporter, "beside 100 that do not read");
    let mut slow: Vec<TcpStream> = (0..100).map(|_| exporter.connect()).collect();
    for byte in b"GET /metrics HTTP".chunks(1) {
        slow.iter_mut().for_each(|s| _ = s.write_all(byte));
        is_served_soon(&exporter, "beside 100 slow ones");
        assert!(open_files(exporter.pid()) <= DESCRIPTORS + files);
    }
    assert!(exporter.is_running());
    drop((silent, deaf, slow));
    let m = exporter.scrape();
    let closed = m.get("taskdiag_http_requests_total", &[("code", "0")]);
    assert!(closed > Some(100.0), "{closed:?} were closed without a reply");
    let begin = Instant::now();
    while open_files(exporter.pid()) > files + 2 {
        assert!(begin.elapsed() < Duration::from_secs(30).mul_f64(crowd()), "connections are left");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A client that takes too long gets an error.
#[test]
fn a_request_has_a_time_limit() {
    let exporter = Exporter::start(&["--families", "states"]);
    // The time counts from the connection on.
    let begin = Instant::now();
    let mut stream = exporter.connect();
    stream.write_all(b"GET /metrics HTT").expect("it listens");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).expect("a reply");
    assert!(reply.starts_with("HTTP/1.1 408 "), "{reply}");
    assert!(begin.elapsed() > Duration::from_secs(4));
}

/// Clients that ask all the time get the same answer, so that they cost no more than one client.
#[test]
fn answers_are_shared() {
    // The later option counts.
    let exporter = Exporter::start(&["--families", "states", "--share", "60s"]);
    let scrapes = |e: &Exporter| e.scrape().get("taskdiag_scrapes_total", &[]);
    let first = scrapes(&exporter);
    for _ in 0..50 {
        assert_eq!(scrapes(&exporter), first);
    }
}
