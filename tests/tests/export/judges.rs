//! Independent judges of the text: promtool, the parsers of Prometheus's Python client, and a
//! Prometheus.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output, Stdio};

use taskdiag_tests::cli::Sandbox;
use taskdiag_tests::skips::target_dir;
use taskdiag_tests::{Mktask, skip};

use crate::exporter::{Exporter, Metrics, Server, end, program, wait};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The output of a program that reads `input`.
fn judged(command: &mut Command, input: &str) -> Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let mut stdin = child.stdin.take().expect("piped");
    let input = input.to_owned();
    let writer = std::thread::spawn(move || _ = stdin.write_all(input.as_bytes()));
    let out = child.wait_with_output().expect("it ends");
    writer.join().expect("it does not panic");
    out
}

/// An exporter that has seen odd names, several threads, and processes that ended.
fn busy_exporter(options: &[&str]) -> Exporter {
    let exporter = Exporter::start(options);
    let odd = Mktask::start(&["odd-comm"]).expect("any machine has it");
    let threads = Mktask::start(&["threads", "4"]).expect("any machine has it");
    exporter.scrape();
    drop((odd, threads));
    exporter.scrape();
    exporter
}

/// promtool accepts it, and only warns that a name of process-exporter ends in _count.
#[test]
fn promtool_accepts_the_metrics() {
    let Some(promtool) = program("promtool_accepts_the_metrics", "promtool") else { return };
    for options in [&[][..], &["--top-pids", "--families", "top,groups,threads,pss"]] {
        let exporter = busy_exporter(options);
        let (_, _, metrics) = exporter.get("/metrics", "");
        let out = judged(Command::new(&promtool).args(["check", "metrics"]), &metrics);
        let said = text(&out.stdout) + &text(&out.stderr);
        let of_peer = "namedprocess_namegroup_thread_count non-histogram and non-summary metrics should not have \"_count\" suffix";
        let rest: Vec<&str> = said.lines().filter(|l| *l != of_peer && !l.is_empty()).collect();
        // The exit code 3 is for remarks, and 1 for text that it cannot read.
        assert!(rest.is_empty() && matches!(out.status.code(), Some(0 | 3)), "{said}");
        // The tool does report an error.
        let wrong = metrics.replacen("# TYPE", "# TYPO", 1) + "taskdiag_odd{x=} 1\n";
        let out = judged(Command::new(&promtool).args(["check", "metrics"]), &wrong);
        assert_eq!(out.status.code(), Some(1));
    }
}

/// The parsers of Python's prometheus_client. The one for OpenMetrics is strict.
#[test]
fn python_reads_both_formats() {
    let unpacked = target_dir().join("prometheus/usr/lib/python3/dist-packages");
    let python = |code: &str, input: &str| {
        let mut command = Command::new("python3");
        command.args(["-c", code]).env("PYTHONPATH", &unpacked);
        judged(&mut command, input)
    };
    if !python("import prometheus_client.openmetrics.parser", "").status.success() {
        skip(
            "python_reads_both_formats",
            "there is no prometheus_client; 'tools/setup test' unpacks it where apt has it",
        );
        return;
    }
    let exporter = busy_exporter(&[]);
    for (accept, module) in [
        ("", "prometheus_client.parser"),
        (
            "Accept: application/openmetrics-text; version=1.0.0\r\n",
            "prometheus_client.openmetrics.parser",
        ),
    ] {
        let (_, head, metrics) = exporter.get("/metrics", accept);
        assert_eq!(
            head.contains("application/openmetrics-text; version=1.0.0"),
            !accept.is_empty(),
            "{head}"
        );
        let code = format!(
            "import sys, {module} as m\n\
             n = 0\n\
             for f in m.text_string_to_metric_families(sys.stdin.read()):\n    n += len(f.samples)\n\
             print(n)"
        );
        let out = python(&code, &metrics);
        assert!(out.status.success(), "{module}: {}", text(&out.stderr));
        let samples: usize = text(&out.stdout).trim().parse().expect("a number");
        let lines = metrics.lines().filter(|l| !l.starts_with('#')).count();
        assert!(samples == lines && samples > 100, "{module}: {samples} of {lines}");
        // The parser refuses incomplete text.
        let cut = metrics.trim_end_matches("# EOF\n").to_owned() + "namedprocess_x{a=\"b\" 1\n";
        assert!(!python(&code, &cut).status.success(), "{module}");
    }
}

/// The reply of an API of Prometheus.
fn api(address: SocketAddr, path: &str) -> Option<serde_json::Value> {
    let mut stream = TcpStream::connect(address).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").ok()?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply).ok()?;
    serde_json::from_str(reply.split_once("\r\n\r\n")?.1).ok()
}

/// A real Prometheus scrapes it, and has the same values.
#[test]
fn prometheus_scrapes_it() {
    let Some(prometheus) = program("prometheus_scrapes_it", "prometheus") else { return };
    let threads = Mktask::start(&["threads", "4"]).expect("any machine has it");
    let (_config, path) = crate::exporter::config(crate::exporter::EACH);
    // The later option counts. One answer serves all scrapes, so that one that takes too long does
    // not hold up the next.
    let exporter = Exporter::start(&["--config", &path, "--share", "600s"]);
    let dir = tempfile::tempdir().expect("a directory");
    // Prometheus abandons a scrape that takes longer than the interval. So a busy machine needs a
    // long one, which may begin late.
    let job = |seconds: u32| {
        format!(
            "{{job_name: every-{seconds}-s, scrape_interval: {seconds}s, scrape_timeout: {seconds}s, static_configs: [{{targets: ['{}']}}]}}",
            exporter.address
        )
    };
    let yaml = format!("scrape_configs: [{}, {}]\n", job(1), job(30));
    let file = dir.path().join("prometheus.yml");
    std::fs::write(&file, yaml).expect("written");
    let command = |address| {
        let mut command = Command::new(&prometheus);
        command.arg(format!("--config.file={}", file.display()));
        command.arg(format!("--storage.tsdb.path={}", dir.path().join("data").display()));
        command.arg(format!("--web.listen-address={address}")).current_dir(dir.path());
        command
    };
    let server =
        Server::start("Prometheus", command, |a| api(a, "/api/v1/query?query=up").is_some());
    let query = |q: &str| {
        let reply = api(server.address, &format!("/api/v1/query?query={q}"))?;
        let value = reply["data"]["result"].get(0)?["value"].get(1)?.as_str()?.to_owned();
        value.parse::<f64>().ok()
    };
    let group = format!("mktask:{}", threads.pid());
    let found = std::panic::catch_unwind(|| {
        wait("a scrape", || query("max(up)").filter(|up| *up == 1.0));
        let threads = format!("namedprocess_namegroup_num_threads%7Bgroupname%3D%22{group}%22%7D");
        wait("the threads", || query(&threads))
    });
    let targets = api(server.address, "/api/v1/targets").map(|t| t.to_string()).unwrap_or_default();
    assert_eq!(found.ok(), Some(5.0), "{targets}");
}

/// Standard output and files have the same text as HTTP.
#[test]
fn once_and_a_file_have_the_text_of_http() {
    let ran = Sandbox::new().run(&["export", "--once", "--families", "states,top"]);
    assert_eq!(ran.code, Some(0), "{ran}");
    let once = Metrics::parse(&ran.stdout);
    assert!(once.get("taskdiag_processes", &[("state", "sleeping")]) > Some(0.0), "{ran}");
    assert!(once.names().iter().all(|n| !n.contains("namegroup") && !n.contains("unit")), "{ran}");
    let ran = Sandbox::new().run(&["export", "--once", "--openmetrics", "--families", "top"]);
    assert!(ran.stdout.ends_with("# EOF\n"), "{ran}");
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("taskdiag.prom");
    let file = path.to_str().expect("text");
    // Everyone may read it, whatever the umask says.
    let mut command = Command::new("sh");
    command.args(["-c", "umask 077; exec \"$0\" export --once --textfile \"$1\""]);
    let ran = command.arg(taskdiag_tests::cli::taskdiag()).arg(file).output().expect("it runs");
    assert!(ran.status.success() && ran.stdout.is_empty(), "{ran:?}");
    assert_eq!(std::fs::metadata(&path).expect("it is there").permissions().mode() & 0o777, 0o644);
    let metrics = Metrics::parse(&std::fs::read_to_string(&path).expect("it is there"));
    assert!(metrics.get("taskdiag_scrapes_total", &[]) == Some(1.0));
    // The file is replaced repeatedly, and is never incomplete.
    let mut command = Command::new(taskdiag_tests::cli::taskdiag());
    command.args(["export", "--every", "20ms", "--families", "groups", "--textfile", file]);
    let mut child = command.stdin(Stdio::null()).spawn().expect("it starts");
    let scrapes = std::panic::catch_unwind(|| {
        wait("several writes", || {
            let text = std::fs::read_to_string(&path).expect("it is always there");
            let metrics = Metrics::parse(&text);
            assert!(metrics.get("process_start_time_seconds", &[]).is_some(), "it is cut: {text}");
            metrics.get("taskdiag_scrapes_total", &[]).filter(|n| *n > 3.0)
        })
    });
    end(&mut child);
    assert!(scrapes.is_ok());
    // A path that is not a regular file is not replaced by one.
    let directory = dir.path().to_str().expect("text");
    let ran = Sandbox::new().run(&["export", "--textfile", directory]);
    assert!(ran.code == Some(2) && ran.stderr.contains("not a regular file"), "{ran}");
    let ran = Sandbox::new().run(&["export", "--once", "--textfile", "/proc/x.prom"]);
    assert!(ran.code == Some(1) && ran.stderr.contains("/proc/x.prom"), "{ran}");
    // The file is looked at before anything is read.
    let ran = Sandbox::new().run(&["export", "--engine", "kernel", "--textfile", directory]);
    assert!(ran.code == Some(2) && ran.stderr.contains("not a regular file"), "{ran}");
    // If not even the first text can be written, the program ends, because its errors would not be
    // seen.
    let ran = Sandbox::new().run(&["export", "--textfile", "/proc/x.prom"]);
    assert!(ran.code == Some(1) && ran.stderr.contains("--textfile /proc/x.prom"), "{ran}");
}

/// Arguments and configurations that make no sense are refused with a message.
#[test]
fn wrong_arguments_and_configurations_are_refused() {
    let (_bad, path) = crate::exporter::config("process_names:\n- {name: x}\n");
    for (args, want) in [
        (&["--listen", "nowhere"][..], "127.0.0.1:9256"),
        (&["--families", "nope"], "wchan"),
        (&["--config", "/nowhere.yml"], "/nowhere.yml"),
        (&["--config", &path], "line 2"),
        (&["--top", "0"], "1 to 1000"),
        (&["--every", "1s"], "--textfile"),
        (&["--once", "--listen", "127.0.0.1:0"], "--once"),
    ] {
        let ran = Sandbox::new().run(&[&["export"], args].concat());
        assert!(ran.code == Some(2) && ran.stderr.contains(want), "{ran}");
    }
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("it has one").to_string();
    let ran = Sandbox::new().run(&["export", "--listen", &address]);
    assert!(ran.code == Some(4) && ran.stderr.contains(&address), "{ran}");
    assert!(ran.stderr.contains("name another port with --listen"), "{ran}");
}
