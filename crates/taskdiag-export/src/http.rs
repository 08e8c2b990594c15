//! A server for one kind of request: GET of a page. The connection is closed after the reply.
//!
//! It is written by hand because little of HTTP is needed, and because its limits matter most. The
//! server limits the time and the size of a request, the time to read the reply, and the number of
//! connections. One thread waits for all connections at once, so that a slow client does not hold
//! up others. If there are too many, the oldest one that has not yet sent its request is closed.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::text::Format;

/// The largest number of connections at a time.
pub const CONNECTIONS: usize = 64;
/// The largest request, in bytes.
pub const REQUEST_MAX: usize = 8192;
/// How long a client may take to send its request.
const READ_TIME: Duration = Duration::from_secs(5);
/// How long a client may take to read the reply.
const WRITE_TIME: Duration = Duration::from_secs(20);
/// How long the server waits for the client to close the connection after the reply, because
/// closing first can discard it.
const CLOSE_TIME: Duration = Duration::from_secs(1);

/// Counters of the server.
#[derive(Clone, Debug, Default)]
pub struct Served {
    /// Replies by status code; 0: the connection was closed without one.
    pub codes: BTreeMap<u16, u64>,
}

/// A reply.
#[derive(Clone, Debug)]
struct Reply {
    code: u16,
    content_type: String,
    body: Rc<[u8]>,
    /// Leave the body out?
    head_only: bool,
}

#[derive(Debug)]
enum State {
    Read,
    Write { head: Vec<u8>, body: Rc<[u8]>, sent: usize },
    Close,
}

#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    input: Vec<u8>,
    state: State,
    deadline: Instant,
}

/// The server.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    /// Must requests name this machine as their host? Otherwise, a web page in the browser of a
    /// local user could read the metrics of a server on loopback, under a host name that resolves
    /// to this machine (DNS rebinding).
    own_names_only: bool,
    connections: Vec<Connection>,
    /// Counts of replies.
    pub served: Served,
}

/// Makes a page. Returns its body, or the reason why there is none.
pub type Page<'a> = dyn FnMut(Format, &Served) -> Result<Rc<[u8]>, String> + 'a;

impl Server {
    /// A server on the first of these addresses that works.
    ///
    /// # Errors
    /// The error of the system.
    pub fn new(addresses: &[SocketAddr]) -> io::Result<Server> {
        let listener = TcpListener::bind(addresses)?;
        listener.set_nonblocking(true)?;
        let own_names_only = listener.local_addr()?.ip().is_loopback();
        Ok(Server { listener, own_names_only, connections: Vec::new(), served: Served::default() })
    }
    /// Where it listens.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
    /// Serves for ever.
    ///
    /// # Errors
    /// Errors of the wait itself. Errors of single connections only close them.
    pub fn run(&mut self, page: &mut Page<'_>) -> io::Result<()> {
        loop {
            self.turn(page)?;
        }
    }
    /// Waits for the next event, and handles it.
    fn turn(&mut self, page: &mut Page<'_>) -> io::Result<()> {
        let now = Instant::now();
        let next = self.connections.iter().map(|c| c.deadline).min();
        let timeout = next.map(|at| {
            // One more millisecond, so that the deadline has passed afterwards.
            let rest = at.saturating_duration_since(now) + Duration::from_millis(1);
            Timespec { tv_sec: rest.as_secs() as _, tv_nsec: rest.subsec_nanos().into() }
        });
        let mut fds = vec![PollFd::from_borrowed_fd(self.listener.as_fd(), PollFlags::IN)];
        for connection in &self.connections {
            let wanted = match connection.state {
                State::Write { .. } => PollFlags::OUT,
                _ => PollFlags::IN,
            };
            fds.push(PollFd::from_borrowed_fd(connection.stream.as_fd(), wanted));
        }
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        let is_ready: Vec<bool> = fds.iter().map(|f| !f.revents().is_empty()).collect();
        drop(fds);
        let mut kept = Vec::with_capacity(self.connections.len() + 1);
        let all = std::mem::take(&mut self.connections);
        let begin = Instant::now();
        for (mut connection, is_ready) in all.into_iter().zip(&is_ready[1..]) {
            if !*is_ready || self.go_on(&mut connection, page) {
                kept.push(connection);
            }
        }
        let now = Instant::now();
        for mut connection in kept {
            // The time to make the answers does not count against the client.
            connection.deadline += now - begin;
            if connection.deadline > now {
                self.connections.push(connection);
            } else if matches!(connection.state, State::Read) && !connection.input.is_empty() {
                // The client has begun a request, so it gets a reply.
                let reply = Reply::error(408, "the request took too long");
                self.reply(&mut connection, reply);
                self.connections.push(connection);
            } else if !matches!(connection.state, State::Close) {
                *self.served.codes.entry(0).or_default() += 1;
            }
        }
        if is_ready[0] {
            self.accept()?;
        }
        Ok(())
    }
    fn accept(&mut self) -> io::Result<()> {
        // Accept only as many as the limit at a time, so that existing clients are served in
        // between.
        for _ in 0..CONNECTIONS {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) if e.kind() == ErrorKind::ConnectionAborted => continue,
                // There are no descriptors or no memory left.
                Err(_) => {
                    if !self.make_room() {
                        std::thread::sleep(Duration::from_millis(20));
                    }
                    return Ok(());
                }
            };
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            if self.connections.len() >= CONNECTIONS && !self.make_room() {
                *self.served.codes.entry(0).or_default() += 1;
                continue;
            }
            let deadline = Instant::now() + READ_TIME;
            self.connections.push(Connection {
                stream,
                input: Vec::new(),
                state: State::Read,
                deadline,
            });
        }
        Ok(())
    }
    /// Closes the connection that has used the largest part of its time. A connection that has not
    /// sent its request is closed first.
    fn make_room(&mut self) -> bool {
        let order = |c: &Connection| (matches!(c.state, State::Write { .. }), c.deadline);
        let oldest = (0..self.connections.len()).min_by_key(|i| order(&self.connections[*i]));
        let Some(oldest) = oldest else { return false };
        self.connections.remove(oldest);
        *self.served.codes.entry(0).or_default() += 1;
        true
    }
    /// Reads, answers or writes. Returns whether the connection continues.
    fn go_on(&mut self, connection: &mut Connection, page: &mut Page<'_>) -> bool {
        match &mut connection.state {
            State::Read => self.read(connection, page),
            State::Write { .. } => self.write(connection),
            State::Close => {
                // Further input from the client is discarded.
                let mut waste = [0; 4096];
                match connection.stream.read(&mut waste) {
                    Ok(n) => n > 0,
                    Err(e) => is_for_now(&e),
                }
            }
        }
    }
    fn read(&mut self, connection: &mut Connection, page: &mut Page<'_>) -> bool {
        let mut piece = [0; 2048];
        loop {
            match connection.stream.read(&mut piece) {
                Ok(0) => {
                    *self.served.codes.entry(0).or_default() += 1;
                    return false;
                }
                Ok(n) => connection.input.extend_from_slice(&piece[..n]),
                Err(e) if is_for_now(&e) => return true,
                Err(_) => {
                    *self.served.codes.entry(0).or_default() += 1;
                    return false;
                }
            }
            if let Some(end) = end_of_head(&connection.input) {
                let reply = match parse(&connection.input[..end], self.own_names_only) {
                    Ok(request) => answer(&request, page, &self.served),
                    Err(reply) => reply,
                };
                return self.reply(connection, reply);
            }
            if connection.input.len() > REQUEST_MAX {
                return self.reply(connection, Reply::error(431, "the request is too large"));
            }
        }
    }
    /// Begins a reply. Returns whether the connection continues.
    fn reply(&mut self, connection: &mut Connection, reply: Reply) -> bool {
        *self.served.codes.entry(reply.code).or_default() += 1;
        let head = reply.head();
        let body = if reply.head_only { Rc::from([]) } else { reply.body };
        connection.state = State::Write { head, body, sent: 0 };
        connection.deadline = Instant::now() + WRITE_TIME;
        self.write(connection)
    }
    fn write(&mut self, connection: &mut Connection) -> bool {
        let State::Write { head, body, sent } = &mut connection.state else { return true };
        loop {
            let rest = match head.get(*sent..) {
                Some(rest) if !rest.is_empty() => rest,
                _ => &body[*sent - head.len()..],
            };
            if rest.is_empty() {
                break;
            }
            match connection.stream.write(rest) {
                Ok(0) => return false,
                Ok(n) => *sent += n,
                Err(e) if is_for_now(&e) => return true,
                Err(_) => return false,
            }
        }
        // Close our direction, and wait until the client closes its own. If the client has sent
        // more than it should, closing both at once would discard the reply.
        let _ = connection.stream.shutdown(std::net::Shutdown::Write);
        connection.state = State::Close;
        connection.deadline = Instant::now() + CLOSE_TIME;
        true
    }
}

fn is_for_now(e: &io::Error) -> bool {
    matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// The end of the head of a request.
fn end_of_head(input: &[u8]) -> Option<usize> {
    let long = input.windows(4).position(|w| w == b"\r\n\r\n").map(|at| at + 4);
    let short = input.windows(2).position(|w| w == b"\n\n").map(|at| at + 2);
    [long, short].into_iter().flatten().min()
}

/// A parsed request.
#[derive(Debug, PartialEq)]
struct Request {
    path: String,
    head_only: bool,
    format: Format,
}

/// Reads the head of a request. The error is the reply to a request that is refused.
fn parse(head: &[u8], own_names_only: bool) -> Result<Request, Reply> {
    let bad = |why| Reply::error(400, why);
    let head =
        std::str::from_utf8(head).map_err(|_| bad("the request has bytes that are not text"))?;
    let mut lines = head.split('\n').map(|l| l.strip_suffix('\r').unwrap_or(l));
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(bad("the first line is not a request"));
    };
    match version {
        "HTTP/1.1" | "HTTP/1.0" => {}
        v if v.starts_with("HTTP/") => {
            return Err(Reply::error(505, "only HTTP/1.0 and 1.1 are served"));
        }
        _ => return Err(bad("the first line is not a request")),
    }
    let is_token = |t: &str| !t.is_empty() && t.bytes().all(|b| b.is_ascii_graphic() && b != b':');
    if !is_token(method) {
        return Err(bad("the first line is not a request"));
    }
    let (mut host, mut accept) = (None, Vec::new());
    for line in lines.take_while(|l| !l.is_empty()) {
        let (name, value) = line.split_once(':').ok_or_else(|| bad("a line is not a header"))?;
        if !is_token(name) {
            return Err(bad("a line is not a header"));
        }
        let value = value.trim_matches([' ', '\t']);
        match name.to_ascii_lowercase().as_str() {
            "host" if host.replace(value).is_some() => {
                return Err(bad("there are two headers Host"));
            }
            "accept" => accept.push(value),
            "content-length" if value != "0" => return Err(bad("a body is not accepted")),
            "transfer-encoding" => return Err(bad("a body is not accepted")),
            _ => {}
        }
    }
    if host.is_none() && version == "HTTP/1.1" {
        return Err(bad("there is no header Host"));
    }
    // A request may have the whole URL.
    let mut path = target;
    if let Some(rest) = target.strip_prefix("http://") {
        let at = rest.find('/').unwrap_or(rest.len());
        host = Some(&rest[..at]);
        path = if at == rest.len() { "/" } else { &rest[at..] };
    }
    if own_names_only && host.is_some_and(|h| !is_own_name(h)) {
        return Err(Reply::error(
            421,
            "use localhost or an address as the host: with any other name, a web site could read this in your browser",
        ));
    }
    let head_only = method == "HEAD";
    if !head_only && method != "GET" {
        return Err(Reply::error(405, "only GET and HEAD are served"));
    }
    if !path.starts_with('/') {
        return Err(bad("the target is not a path"));
    }
    let path = path.split(['?', '#']).next().unwrap_or_default().to_owned();
    Ok(Request { path, head_only, format: format(&accept) })
}

/// Is a host `localhost` or a plain address, with an optional port?
fn is_own_name(host: &str) -> bool {
    let (is_own, port) = match host.strip_prefix('[') {
        Some(rest) => {
            let Some((address, port)) = rest.split_once(']') else { return false };
            (address.parse::<Ipv6Addr>().is_ok(), port)
        }
        None => {
            let (name, port) = host.split_at(host.find(':').unwrap_or(host.len()));
            let is_address = name.parse::<Ipv4Addr>().is_ok();
            (is_address || name.is_empty() || name.eq_ignore_ascii_case("localhost"), port)
        }
    };
    is_own
        && match port.strip_prefix(':') {
            Some(port) => port.len() <= 5 && port.bytes().all(|b| b.is_ascii_digit()),
            None => port.is_empty(),
        }
}

/// The format that the client prefers. If it accepts none of them, it gets that of Prometheus.
fn format(accept: &[&str]) -> Format {
    let (mut open, mut plain): (Option<(f32, &'static str)>, f32) = (None, 0.0);
    for range in accept.iter().flat_map(|a| a.split(',')) {
        let mut parts = range.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
        let (mut weight, mut version) = (1.0, None);
        for part in parts {
            match part.split_once('=') {
                Some(("q", q)) => weight = q.trim().parse().unwrap_or(0.0),
                Some(("version", v)) => version = Some(v.trim_matches('"')),
                _ => {}
            }
        }
        match kind.as_str() {
            "application/openmetrics-text" => {
                let version = match version {
                    None | Some("1.0.0") => "1.0.0",
                    Some("0.0.1") => "0.0.1",
                    Some(_) => continue,
                };
                if weight > 0.0 && open.is_none_or(|(best, _)| weight > best) {
                    open = Some((weight, version));
                }
            }
            "text/plain" if version.is_none_or(|v| v == "0.0.4") => plain = weight.max(plain),
            "text/*" | "*/*" => plain = weight.max(plain),
            _ => {}
        }
    }
    match open {
        Some((weight, version)) if weight >= plain => Format::OpenMetrics(version),
        _ => Format::Prometheus,
    }
}

/// The page that says where the metrics are.
const INDEX: &str = "<!doctype html><title>taskdiag</title><h1>taskdiag</h1><p><a href=\"/metrics\">Metrics</a></p>\n";

fn answer(request: &Request, page: &mut Page<'_>, served: &Served) -> Reply {
    let reply = match request.path.as_str() {
        "/metrics" => match page(request.format, served) {
            Ok(body) => Reply {
                code: 200,
                content_type: request.format.content_type(),
                body,
                head_only: false,
            },
            Err(why) => Reply::error(503, &why),
        },
        "/" => Reply {
            code: 200,
            content_type: "text/html; charset=utf-8".into(),
            body: INDEX.as_bytes().into(),
            head_only: false,
        },
        // The same paths as in Prometheus' own programs, for systems that restart a program if such
        // a probe fails.
        "/-/healthy" | "/-/ready" => Reply {
            code: 200,
            content_type: "text/plain; charset=utf-8".into(),
            body: b"OK\n"[..].into(),
            head_only: false,
        },
        _ => Reply::error(404, "there are only /metrics, /-/healthy and /-/ready"),
    };
    Reply { head_only: request.head_only, ..reply }
}

impl Reply {
    fn error(code: u16, why: &str) -> Reply {
        let body = format!("{why}\n").into_bytes().into();
        Reply { code, content_type: "text/plain; charset=utf-8".into(), body, head_only: false }
    }
    fn head(&self) -> Vec<u8> {
        let word = match self.code {
            200 => "OK",
            400 => "Bad Request",
            404 => "Not Found",
            405 => "Method Not Allowed",
            408 => "Request Timeout",
            421 => "Misdirected Request",
            431 => "Request Header Fields Too Large",
            503 => "Service Unavailable",
            _ => "HTTP Version Not Supported",
        };
        let allow = if self.code == 405 { "Allow: GET, HEAD\r\n" } else { "" };
        let (code, kind, len) = (self.code, &self.content_type, self.body.len());
        format!(
            "HTTP/1.1 {code} {word}\r\nContent-Type: {kind}\r\nContent-Length: {len}\r\n{allow}\
             Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
        )
        .into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(head: &str) -> u16 {
        parse(head.as_bytes(), true).map_or_else(|reply| reply.code, |_| 200)
    }

    #[test]
    fn only_a_whole_name_is_a_host_of_this_machine() {
        for own in
            ["localhost", "LocalHost:9256", "127.0.0.1", "127.0.0.1:80", "[::1]", "[::1]:9256", ""]
        {
            assert!(is_own_name(own), "{own}");
        }
        for other in [
            "[::1].evil.com",
            "localhost:80@evil.com",
            "[::1]evil.com:80",
            "localhost.evil.com",
            "[localhost]",
            "127.0.0.1.evil.com",
            "localhost:80:80",
            "[::1",
            "[127.0.0.1]",
            "localhost:evil.com",
            "::1",
            "localhost:123456",
        ] {
            assert!(!is_own_name(other), "{other}");
        }
    }

    #[test]
    fn probes_are_answered_without_a_walk() {
        let mut page = |_: Format, _: &Served| -> Result<Rc<[u8]>, String> { panic!("no walk") };
        for (path, code) in [("/-/healthy", 200), ("/-/ready", 200), ("/healthy", 404)] {
            let request =
                Request { path: path.into(), head_only: false, format: Format::Prometheus };
            assert_eq!(answer(&request, &mut page, &Served::default()).code, code, "{path}");
        }
    }

    #[test]
    fn requests_get_the_right_reply() {
        let request = parse(b"GET /metrics?x=1 HTTP/1.1\r\nHost: localhost:9256\r\n\r\n", true);
        let want =
            Request { path: "/metrics".into(), head_only: false, format: Format::Prometheus };
        assert_eq!(request.expect("it is one"), want);
        for (head, want) in [
            ("HEAD / HTTP/1.0\r\n\r\n", 200),
            ("GET http://127.0.0.1/metrics HTTP/1.1\r\nHost: x\r\n\r\n", 200),
            ("GET / HTTP/1.1\nHost: [::1]:9256\n\n", 200),
            ("GET / HTTP/1.1\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421),
            ("GET http://evil.example/metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", 421),
            ("GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
            ("POST / HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
            ("GET / HTTP/2.0\r\nHost: localhost\r\n\r\n", 505),
            ("PRI * HTTP/2.0\r\n\r\n", 505),
            ("GET metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
            ("GET /\r\n\r\n", 400),
            ("GET  / HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: localhost\r\n folded\r\n\r\n", 400),
            ("\r\n\r\n", 400),
            ("\x16\x03\x01\r\n\r\n", 400),
        ] {
            assert_eq!(code(head), want, "{head:?}");
        }
        assert_eq!(parse(b"GET /\xff HTTP/1.1\r\n\r\n", true).map_err(|r| r.code), Err(400));
        // If every client is allowed, every host name is, too.
        assert!(parse(b"GET / HTTP/1.1\r\nHost: host.example\r\n\r\n", false).is_ok());
    }

    #[test]
    fn the_accepted_format_is_chosen() {
        let open = Format::OpenMetrics("1.0.0");
        for (accept, want) in [
            ("", Format::Prometheus),
            ("*/*", Format::Prometheus),
            ("application/openmetrics-text", open),
            ("application/openmetrics-text; version=0.0.1", Format::OpenMetrics("0.0.1")),
            ("application/openmetrics-text;version=2.0.0", Format::Prometheus),
            ("application/openmetrics-text;q=0, text/plain", Format::Prometheus),
            ("application/openmetrics-text;q=0.3, text/plain;q=0.5", Format::Prometheus),
            // What Prometheus sends.
            (
                "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                 text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                open,
            ),
            ("application/json", Format::Prometheus),
        ] {
            assert_eq!(format(&[accept]), want, "{accept}");
        }
        assert_eq!(format(&["text/plain;q=0.1", "application/openmetrics-text"]), open);
    }

    #[test]
    fn a_head_ends_at_an_empty_line() {
        assert_eq!(end_of_head(b"GET / HTTP/1.0\r\n\r\nmore"), Some(18));
        assert_eq!(end_of_head(b"GET / HTTP/1.0\n\n"), Some(16));
        assert_eq!(end_of_head(b"GET / HTTP/1.0\r\n\r"), None);
    }
}
