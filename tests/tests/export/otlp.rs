//! `taskdiag export --otlp`: its requests have the same values as the text, and it handles a
//! collector that is absent or refuses them. Real collectors read its requests in `make otlp-test`.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};

use serde_json::Value;
use taskdiag_tests::Mktask;
use taskdiag_tests::cli::taskdiag;

use crate::exporter::{EACH, Metrics, config, end};

/// A request that a collector got: its head and its body.
type Got = (String, Value);

/// A collector that returns these answers, one for each request, and then repeats the last one.
struct Collector {
    address: SocketAddr,
    got: Receiver<Got>,
}

impl Collector {
    fn start(answers: &'static [&'static str]) -> Collector {
        Collector::on(TcpListener::bind("127.0.0.1:0").expect("a port"), answers)
    }
    fn on(listener: TcpListener, answers: &'static [&'static str]) -> Collector {
        let address = listener.local_addr().expect("an address");
        let (sender, got) = channel();
        std::thread::spawn(move || {
            let mut answers = answers.iter().peekable();
            for stream in listener.incoming() {
                let mut stream = BufReader::new(stream.expect("a connection"));
                let mut head = String::new();
                while !head.ends_with("\r\n\r\n") {
                    if stream.read_line(&mut head).expect("a line") == 0 {
                        break;
                    }
                }
                let length = head.lines().find_map(|l| {
                    let (name, value) = l.split_once(": ")?;
                    name.eq_ignore_ascii_case("content-length").then(|| value.parse().ok())?
                });
                let mut body = vec![0; length.unwrap_or(0)];
                stream.read_exact(&mut body).expect("the whole body");
                let answer = answers.next().expect("the last one stays");
                if answers.peek().is_none() {
                    answers = std::slice::from_ref(answer).iter().peekable();
                }
                let _ = stream.get_mut().write_all(answer.as_bytes());
                let body = serde_json::from_slice(&body).expect("JSON");
                if sender.send((head, body)).is_err() {
                    return;
                }
            }
        });
        Collector { address, got }
    }
    fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}";

fn export(options: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(taskdiag());
    command.arg("export").args(options).envs(variables.iter().copied()).stdin(Stdio::null());
    command.output().expect("it runs")
}

/// The values of a metric in a scope: attributes as text, in order, and the number.
fn values(request: &Value, scope: &str, metric: &str) -> Vec<(Vec<(String, String)>, f64)> {
    let scopes = request["resourceMetrics"][0]["scopeMetrics"].as_array().expect("scopes");
    let of_scope = scopes.iter().find(|s| s["scope"]["name"] == scope);
    let metrics = of_scope.and_then(|s| s["metrics"].as_array()).into_iter().flatten();
    let found = metrics.filter(|m| m["name"] == metric);
    let points = found.flat_map(|m| {
        let data = if m["sum"].is_null() { &m["gauge"] } else { &m["sum"] };
        data["dataPoints"].as_array().expect("points").clone()
    });
    let all = points.map(|point| {
        let number = match &point["asInt"] {
            Value::String(n) => n.parse().expect("a number"),
            _ => point["asDouble"].as_f64().expect("a number"),
        };
        (attributes(&point["attributes"]), number)
    });
    all.collect()
}

fn attributes(list: &Value) -> Vec<(String, String)> {
    let one = |a: &Value| {
        let value = a["value"]["stringValue"].as_str().or(a["value"]["intValue"].as_str());
        (a["key"].as_str().expect("a key").to_owned(), value.expect("a value").to_owned())
    };
    let mut all: Vec<_> = list.as_array().expect("a list").iter().map(one).collect();
    all.sort();
    all
}

#[test]
fn values_are_those_of_the_text() {
    let collector = Collector::start(&[OK]);
    let (_file, path) = config(EACH);
    let states = [&["burn", "300"][..], &["io"], &["threads", "6"], &["stopped"], &["memory"]];
    let tasks: Vec<_> = states.iter().map(|s| Mktask::start(s).expect("it starts")).collect();
    let text = export(&["--once", "--config", &path], &[]);
    let sent = export(&["--once", "--config", &path, "--otlp", &collector.url()], &[]);
    assert!(sent.status.success() && sent.stdout.is_empty(), "{sent:?}");
    let text = Metrics::parse(&String::from_utf8(text.stdout).expect("text"));
    let (head, request) = collector.got.recv().expect("a request");
    assert!(head.starts_with("POST /v1/metrics HTTP/1.1\r\n"), "{head}");
    assert!(head.to_lowercase().contains("content-type: application/json\r\n"), "{head}");
    let none: &[(&str, &str)] = &[];
    let mut compared = 0;
    for (family, more, metric, also) in [
        ("num_procs", none, "taskdiag.process.count", none),
        ("num_threads", none, "process.thread.count", none),
        ("cpu_seconds_total", &[("mode", "user")], "process.cpu.time", &[("cpu.mode", "user")]),
        ("memory_bytes", &[("memtype", "resident")], "process.memory.usage", none),
        ("memory_bytes", &[("memtype", "virtual")], "process.memory.virtual", none),
        ("open_filedesc", none, "process.unix.file_descriptor.count", none),
        ("read_bytes_total", none, "process.disk.io", &[("disk.io.direction", "read")]),
        ("write_bytes_total", none, "process.disk.io", &[("disk.io.direction", "write")]),
        (
            "context_switches_total",
            &[("ctxswitchtype", "nonvoluntary")],
            "process.context_switches",
            &[("process.context_switch.type", "involuntary")],
        ),
        (
            "minor_page_faults_total",
            none,
            "process.paging.faults",
            &[("system.paging.fault.type", "minor")],
        ),
        (
            "states",
            &[("state", "Sleeping")],
            "taskdiag.thread.count",
            &[("process.state", "sleeping")],
        ),
    ] {
        for task in &tasks {
            let group = format!("mktask:{}", task.pid());
            let mut want: Vec<(String, String)> =
                also.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
            want.push(("taskdiag.group".into(), group.clone()));
            want.sort();
            let of_text = text.group(family, &group, more);
            let mut all = values(&request, "taskdiag.group", metric).into_iter();
            let found = all.find(|(attributes, _)| *attributes == want).map(|(_, n)| n);
            assert!(found.is_some() && found == of_text, "{group} {family}: {found:?} {of_text:?}");
            compared += 1;
        }
    }
    assert_eq!(compared, 55);
    // Every family has a metric, and each point a time.
    for (scope, metric) in [
        ("taskdiag.thread", "process.cpu.time"),
        ("taskdiag.top", "process.memory.usage"),
        ("taskdiag", "system.process.count"),
        ("taskdiag", "taskdiag.scrape.duration"),
    ] {
        assert!(!values(&request, scope, metric).is_empty(), "{scope} {metric}");
    }
    let attributes = attributes(&request["resourceMetrics"][0]["resource"]["attributes"]);
    let of = |key: &str| attributes.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str());
    assert_eq!((of("service.name"), of("os.type")), (Some("taskdiag"), Some("linux")));
    assert!(of("host.name").is_some(), "{attributes:?}");
}

#[test]
fn variables_of_opentelemetry_configure_the_push() {
    let collector = Collector::start(&[OK]);
    let url = collector.url() + "/base?key=a";
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", url.as_str()),
        ("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Bearer%20other"),
        ("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "authorization=Bearer%20secret"),
        // Nothing listens there.
        ("http_proxy", "http://127.0.0.1:1"),
        ("ALL_PROXY", "http://127.0.0.1:1"),
        ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test,host.name=other"),
    ];
    let options = ["--once", "--families", "states,top", "--top-pids", "--otlp"];
    let sent = export(&options, &variables);
    assert!(sent.status.success(), "{sent:?}");
    let (head, request) = collector.got.recv().expect("a request");
    assert!(head.starts_with("POST /base/v1/metrics?key=a HTTP/1.1\r\n"), "{head}");
    assert!(head.to_lowercase().contains("authorization: bearer secret\r\n"), "{head}");
    assert!(!head.contains("other"), "{head}");
    let attributes = attributes(&request["resourceMetrics"][0]["resource"]["attributes"]);
    for (key, value) in [("deployment.environment.name", "test"), ("host.name", "other")] {
        assert!(attributes.contains(&(key.into(), value.into())), "{attributes:?}");
    }
    let top = values(&request, "taskdiag.top", "process.memory.usage");
    assert!(top.iter().any(|(a, _)| a.iter().any(|(k, _)| k == "process.pid")), "{top:?}");
    // A header that is wrong is named, and its value is not shown.
    let bad = export(&options, &[("OTEL_EXPORTER_OTLP_HEADERS", "se cret=a")]);
    let said = String::from_utf8_lossy(&bad.stderr);
    assert!(bad.status.code() == Some(2) && said.contains("OTEL_EXPORTER_OTLP_HEADERS"), "{said}");
    let bad = export(&options, &[("OTEL_EXPORTER_OTLP_HEADERS", "hunter2")]);
    let said = String::from_utf8_lossy(&bad.stderr);
    assert!(bad.status.code() == Some(2) && !said.contains("hunter2"), "{said}");
    // A password in the URL is not shown either.
    for (url, code) in [("http://u:hunter2@127.0.0.1:1/x?hunter2", 1), ("https://u:hunter2@h", 2)] {
        let ran = export(&["--once", "--families", "states", "--otlp", url], &[]);
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.code() == Some(code) && !said.contains("hunter2"), "{ran:?}");
    }
}

#[test]
fn each_reply_of_a_collector_has_its_exit_code_and_message() {
    let partial = r#"{"partialSuccess":{"rejectedDataPoints":"2","errorMessage":"late"}}"#;
    for (status, body, code, says) in [
        ("200 OK", "{}", 0, ""),
        ("200 OK", partial, 3, "rejected 2 data points: late"),
        ("404 Not Found", "", 4, "/v1/metrics"),
        ("401 Unauthorized", "", 4, "OTEL_EXPORTER_OTLP_HEADERS"),
        ("400 Bad Request", r#"{"code":3,"message":"bad \u001b"}"#, 4, "bad \\x1b"),
        ("302 Found\r\nLocation: http://127.0.0.1:1/", "", 4, "302"),
        // A later push may succeed after these.
        ("503 Busy", "", 1, "503"),
        ("", "", 1, "--otlp"),
    ] {
        let length = body.len();
        let answer = format!(
            "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        );
        let answer: &'static str =
            if status.is_empty() { "nonsense\r\n\r\n" } else { answer.leak() };
        let collector = Collector::start(vec![answer].leak());
        let ran = export(&["--once", "--families", "states", "--otlp", &collector.url()], &[]);
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.code() == Some(code) && said.contains(says), "{answer}: {ran:?}");
    }
    for bad in ["https://127.0.0.1", "127.0.0.1:4318", "http://"] {
        let ran = export(&["--once", "--otlp", bad], &[]);
        assert_eq!(ran.status.code(), Some(2), "{ran:?}");
    }
}

/// A socket that has a port and does not listen. So it refuses connections, and no other program
/// can take the port.
fn closed_port() -> (OwnedFd, SocketAddr) {
    let any = libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: 0,
        sin_addr: libc::in_addr { s_addr: u32::from(Ipv4Addr::LOCALHOST).to_be() },
        sin_zero: [0; 8],
    };
    let len = size_of_val(&any) as libc::socklen_t;
    // SAFETY: the new descriptor is ours, and the address has the given length.
    let socket = unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
        assert!(fd >= 0, "a socket");
        assert_eq!(libc::bind(fd, (&raw const any).cast(), len), 0, "a port");
        OwnedFd::from_raw_fd(fd)
    };
    // The socket has the address, but does not listen yet.
    let named = TcpListener::from(socket);
    let address = named.local_addr().expect("it has one");
    (named.into(), address)
}

/// The exporter may start before the collector, and continues after the collector was away. Its
/// counters continue, too.
#[test]
fn a_collector_that_starts_later_gets_the_data() {
    let (port, address) = closed_port();
    let mut command = Command::new(taskdiag());
    command.args(["export", "--families", "states", "--every", "50ms", "--otlp"]);
    command.arg(format!("http://{address}")).stdin(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
    let mut next = || lines.next().expect("it says something").expect("text");
    let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let refused = next();
        assert!(refused.contains("is a collector"), "{refused}");
        // SAFETY: a plain system call on a socket that is ours.
        assert_eq!(unsafe { libc::listen(port.as_raw_fd(), 128) }, 0);
        let collector = Collector::on(port.into(), &[OK]);
        let again = next();
        assert!(again.contains("sending to") && again.ends_with(" again"), "{again}");
        let scrapes = || {
            let (_, request) = collector.got.recv().expect("a request");
            values(&request, "taskdiag", "taskdiag.scrape.count")[0].1
        };
        let first = scrapes();
        assert_eq!(scrapes(), first + 1.0);
    }));
    end(&mut child);
    assert!(found.is_ok());
}
