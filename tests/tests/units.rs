//! Programs that run for long survive within the memory limits of their units (`MemoryMax=` in
//! contrib/systemd) next to a crowd of processes with long arguments, and need far less. Otherwise
//! any user could end the recorder before doing anything else. The service is tested with its other
//! tests.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use taskdiag_tests::busy::Patience;
use taskdiag_tests::memcg::{Memcg, arguments, limits_memory, memory_max};
use taskdiag_tests::{Ended, Mktask, Source, cli, engines, skip};

/// The largest amount of memory that each of them may have, whatever its unit allows.
const MOST_KIB: u64 = 128 << 10;

fn crowd(test: &str) -> Option<Mktask> {
    Mktask::or_skip(test, &["crowd", "6000000", "200"])
}

/// A group with the memory of a unit. That its limit works was checked.
fn group(test: &str, unit: &str) -> Option<Memcg> {
    let group = Memcg::new(memory_max(unit)).map_err(|why| skip(test, &why)).ok()?;
    let small = Memcg::new(64 << 20).expect("as the previous one");
    assert!(limits_memory(&small), "a group of 64 MiB does not limit memory");
    Some(group)
}

/// The largest amount of memory that a process had so far, in KiB.
fn peak_kib(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
    let line = text.lines().find_map(|l| l.strip_prefix("VmHWM:")).expect("it has memory");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

fn names() -> Vec<&'static str> {
    let has =
        |name: &&str| engines().iter().any(|s| matches!(s, Source::Engine(e) if e.name() == *name));
    ["bpf", "procfs"].into_iter().filter(has).collect()
}

#[test]
fn the_recorder_lives_in_the_memory_of_its_unit() {
    const UNIT: &str = "taskdiag-record.service";
    let test = "the_recorder_lives_in_the_memory_of_its_unit";
    let (Some(group), Some(_crowd)) = (group(test, UNIT), crowd(test)) else { return };
    for engine in names() {
        let dir = tempfile::tempdir().expect("a directory");
        let place = dir.path().join("recording");
        let args = arguments(UNIT).into_iter().map(|word| match word.as_str() {
            "/var/lib/taskdiag" => place.to_str().expect("a plain path").to_owned(),
            "10s" => "1s".to_owned(),
            _ => word,
        });
        let mut command = Command::new(cli::taskdiag());
        command.args(args).args(["-n", "4", "--engine", engine]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        group.run_in(&mut command);
        let (status, peak) = taskdiag_tests::peak::run(&mut command);
        let code = libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status));
        assert!(matches!(code, Some(0 | 3)), "{engine}: {code:?}, status {status:#x}");
        assert!(peak as u64 <= MOST_KIB << 10, "{engine}: {} KiB", peak >> 10);
        assert_eq!(group.killed(), 0, "{engine}");
        let frames = fs::read_dir(&place).expect("a recording").count();
        assert!(frames > 0, "{engine}: nothing was recorded");
        println!("record, {engine}: {} KiB", peak >> 10);
    }
}

/// The exporter prints on standard error where it listens.
fn exporter(group: &Memcg, engine: &str) -> (Ended, String) {
    let mut command = Command::new(cli::taskdiag());
    let own = arguments("taskdiag-export.service").into_iter().filter(|word| word != "$OPTIONS");
    command.args(own).args(["--listen", "127.0.0.1:0", "--share", "1us", "--engine", engine]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    group.run_in(&mut command);
    let mut child: Child = command.spawn().expect("it starts");
    let mut lines = BufReader::new(child.stderr.take().expect("piped"));
    let child = Ended(child);
    loop {
        let mut line = String::new();
        assert!(lines.read_line(&mut line).expect("it says something") > 0, "it has ended");
        if let Some(url) = line.split("listening on http://").nth(1) {
            // The later output of the program must not fill the pipe.
            std::thread::spawn(move || _ = std::io::copy(&mut lines, &mut std::io::sink()));
            return (child, url.split('/').next().expect("an address").to_owned());
        }
    }
}

#[test]
fn the_exporter_lives_in_the_memory_of_its_unit() {
    let test = "the_exporter_lives_in_the_memory_of_its_unit";
    let Some(group) = group(test, "taskdiag-export.service") else { return };
    let Some(_crowd) = crowd(test) else { return };
    for engine in names() {
        let (mut child, address) = exporter(&group, engine);
        for _ in 0..4 {
            let mut patience = Patience::new(Duration::from_secs(30));
            let mut reply = String::new();
            while !reply.starts_with("HTTP/1.1 200") {
                assert!(!patience.is_over(), "{engine}: {reply}");
                reply.clear();
                let mut stream = TcpStream::connect(&address).expect("it listens");
                let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
                let _ = stream.read_to_string(&mut reply);
            }
            assert!(reply.contains("taskdiag") || reply.contains("namedprocess"), "{engine}");
        }
        assert!(child.0.try_wait().expect("it is our child").is_none(), "{engine}: it ended");
        let peak = peak_kib(child.0.id());
        assert!(peak <= MOST_KIB, "{engine}: {peak} KiB");
        assert_eq!(group.killed(), 0, "{engine}");
        println!("export, {engine}: {peak} KiB");
    }
}
