//! `taskdiag export`: metrics for Prometheus, by HTTP, as a file for node_exporter, or once on
//! standard output, and for an OpenTelemetry collector.
//!
//! `tracker` makes the requests, and adds the `values` of each task to accounts (`ledger`): of
//! groups (`config`, `template`, `yaml`, `accounts`), of units and containers (`places`), of
//! threads, and of the processes that use most (`top`). `families` gives the accounts to a sink: to
//! `text`, which `http` serves, or to `otlp`, which `push` sends.

mod accounts;
mod args;
mod collector;
mod config;
mod families;
mod http;
mod ledger;
mod otlp;
mod places;
mod push;
mod shared;
mod template;
mod text;
mod threads;
mod top;
mod tracker;
mod values;
mod yaml;

use std::collections::{BTreeMap, HashMap};
use std::fs::Permissions;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value as Json;
use taskdiag_face::{aside, exit, interrupt, replace, sink};

use self::args::To;
pub use self::args::{ExportArgs, command};
use self::config::Config;
use self::http::Served;
use self::otlp::Starts;
use self::push::Push;
use self::text::{Format, Text};
use self::tracker::{Options, Tracker};
use crate::exit::{Exit, Partial, say, shown};
use crate::replace::replace;

/// Makes the text of the metrics, and keeps it for the next clients.
struct Exporter {
    tracker: Tracker,
    server: families::Server,
    /// Clients that ask within this time after an answer get the same one.
    share: Duration,
    made: Option<Instant>,
    texts: HashMap<&'static str, Rc<[u8]>>,
}

/// The key of a format in `Exporter::texts`.
fn key(format: Format) -> &'static str {
    match format {
        Format::Prometheus => "",
        Format::OpenMetrics(version) => version,
    }
}

impl Exporter {
    /// Reads the tasks, unless that was done within the time for which an answer is shared.
    fn read(&mut self) -> Result<(), String> {
        if self.made.is_none_or(|at| at.elapsed() >= self.share) {
            self.texts.clear();
            self.made = None;
            self.tracker.scrape()?;
            self.made = Some(Instant::now());
        }
        Ok(())
    }
    fn page(&mut self, format: Format, served: &Served) -> Result<Rc<[u8]>, String> {
        self.read()?;
        if let Some(text) = self.texts.get(key(format)) {
            return Ok(text.clone());
        }
        self.server.served = served.clone();
        let mut text = Text::new(format, 1 << 16);
        families::write(&mut text, &self.tracker, &self.server);
        let text: Rc<[u8]> = text.finish().into();
        self.texts.insert(key(format), text.clone());
        Ok(text)
    }
    /// The metrics as a request for a collector.
    fn request(&mut self, starts: &mut Starts, resource: &Attributes) -> Result<Json, String> {
        self.read()?;
        let mut request = otlp::Request::new(starts, unix_ns(SystemTime::now()));
        families::write(&mut request, &self.tracker, &self.server);
        Ok(request.finish(resource))
    }
}

/// Puts a text into the file of `--textfile`, which everyone may read.
fn replace_text(path: &Path, text: &[u8]) -> Result<(), Exit> {
    let done = crate::aside::answers(path).and_then(|()| {
        replace(path, 0o644, |file| {
            // The umask is for other files. This one has only data that everyone may request from
            // the server.
            file.set_permissions(Permissions::from_mode(0o644))?;
            file.write_all(text)
        })
    });
    done.map_err(|e| not_written(path, &e))
}

/// The error for a `--textfile` that is not written.
fn not_written(path: &Path, e: &std::io::Error) -> Exit {
    match e.kind() {
        ErrorKind::InvalidInput => Exit::Usage(format!(
            "--textfile {}: {e}; with --once and no --textfile, metrics go to standard output",
            shown(path)
        )),
        _ => Exit::Output(std::io::Error::other(format!("--textfile {}: {e}", shown(path)))),
    }
}

/// Attributes of a resource.
type Attributes = [(String, String)];

/// ns since 1970.
fn unix_ns(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |t| t.as_nanos() as u64)
}

/// The attributes of this host. Attributes in `more` replace them.
fn resource(more: &Attributes) -> Vec<(String, String)> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let id = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
    let id = id.trim();
    let instance = if id.is_empty() { &host } else { id };
    let mut all = BTreeMap::from([
        ("service.name".to_owned(), "taskdiag".to_owned()),
        ("service.version".into(), env!("CARGO_PKG_VERSION").into()),
        ("service.instance.id".into(), instance.to_owned()),
        ("os.type".into(), "linux".into()),
        ("host.id".into(), id.to_owned()),
        ("host.name".into(), host.clone()),
    ]);
    all.extend(more.iter().cloned());
    all.into_iter().filter(|(_, value)| !value.is_empty()).collect()
}

/// Runs a step repeatedly, or once. It prints why a step failed, unless the previous step failed
/// for the same reason.
struct Again<'a> {
    once: bool,
    every: Duration,
    /// A description of the step, as in "writing FILE".
    does: &'a str,
    /// Does every error of the first step end the repetition, even if a later step might succeed?
    strict: bool,
}

impl Again<'_> {
    fn run(&self, mut step: impl FnMut() -> Result<(), Exit>) -> Result<(), Exit> {
        let mut said: Option<String> = None;
        for count in 0u64.. {
            let begin = Instant::now();
            let is_final =
                |why: &Exit| self.strict || !matches!(why, Exit::Output(_) | Exit::Partial(_));
            // A later try may work, and the counters are kept until then.
            let why = match step() {
                Err(why) if self.once || (count == 0 && is_final(&why)) => return Err(why),
                Err(Exit::Output(why)) => Some(why.to_string()),
                Err(Exit::Failed(why)) => Some(why),
                Err(Exit::Partial(why)) => {
                    let lines: Vec<String> = why.lacks.into_iter().map(|lack| lack.line).collect();
                    Some(lines.join("; "))
                }
                Err(other) => return Err(other),
                Ok(()) if self.once => return Ok(()),
                Ok(()) => None,
            };
            if why != said {
                match &why {
                    Some(why) => {
                        say(format_args!("taskdiag: {why}; trying again every {:?}", self.every));
                    }
                    None => say(format_args!("taskdiag: {} again", self.does)),
                }
                said = why;
            }
            crate::interrupt::rest();
            std::thread::sleep(self.every.saturating_sub(begin.elapsed()));
        }
        Ok(())
    }
}

/// Run it.
pub fn run(args: &ExportArgs) -> Result<(), Exit> {
    let config = match &args.config {
        Some(path) => Config::read(path).map_err(Exit::Usage)?,
        None => Config::default(),
    };
    for remark in &config.remarks {
        say(format_args!("taskdiag: {remark}"));
    }
    let options = Options {
        config,
        engine: args.engine,
        families: args.families,
        children: args.children,
        recheck: args.recheck,
        from_start: args.once,
        limit: args.limit,
        remove_empty: args.remove_empty,
        labels: args.labels,
        top: args.top,
        top_pids: args.top_pids,
    };
    let server = families::Server { started: SystemTime::now(), served: Served::default() };
    let tracker = Tracker::new(options);
    let mut exporter =
        Exporter { tracker, server, share: args.share, made: None, texts: HashMap::new() };
    match &args.to {
        To::Output => {
            let format = match args.openmetrics {
                true => Format::OpenMetrics("1.0.0"),
                false => Format::Prometheus,
            };
            let text = exporter.page(format, &Served::default()).map_err(Exit::Failed)?;
            crate::interrupt::answered();
            Ok(crate::sink::write_all(&text)?)
        }
        To::File { path, every } => {
            replace::check(path).map_err(|e| not_written(path, &e))?;
            exporter.share = Duration::ZERO;
            let does = format!("writing {}", shown(path));
            let again = Again { once: args.once, every: *every, does: &does, strict: true };
            again.run(|| {
                let page = exporter.page(Format::Prometheus, &Served::default());
                page.map_err(Exit::Failed).and_then(|text| replace_text(path, &text))
            })
        }
        To::Collector { collector, every } => {
            exporter.share = Duration::ZERO;
            let does = format!("sending to {}", collector.shown);
            // At boot, the collector may start later than this.
            let again = Again { once: args.once, every: *every, does: &does, strict: false };
            let mut starts = match args.once {
                true => Starts::once(),
                false => Starts::new(unix_ns(exporter.server.started)),
            };
            let resource = resource(&collector.resource);
            let push = Push::new(collector.clone());
            again.run(|| {
                let request = exporter.request(&mut starts, &resource).map_err(Exit::Failed)?;
                push.send(&request)?
                    .map_or(Ok(()), |said| Err(Exit::Partial(Partial::always([said]))))
            })
        }
        To::Listen(addresses) => {
            let mut server = http::Server::new(addresses).map_err(|e| {
                let all: Vec<String> = addresses.iter().map(ToString::to_string).collect();
                let hint = match e.kind() {
                    ErrorKind::AddrInUse => {
                        "another program listens there: end it, or name another port with --listen"
                    }
                    ErrorKind::AddrNotAvailable => "name an address of this machine with --listen",
                    ErrorKind::PermissionDenied => {
                        "name a port above 1023 with --listen, or run as root"
                    }
                    _ => "name another address with --listen",
                };
                Exit::Failed(format!("listening on {}: {e}; {hint}", all.join(", ")))
            })?;
            // Activity is counted from the first answer on, so the first one is made before the
            // first scrape.
            exporter.page(Format::Prometheus, &Served::default()).map_err(Exit::Failed)?;
            let address = server.address().map_err(|e| Exit::Failed(e.to_string()))?;
            say(format_args!("taskdiag: listening on http://{address}/metrics"));
            crate::interrupt::rest();
            let mut page = |format, served: &Served| exporter.page(format, served);
            server.run(&mut page).map_err(|e| Exit::Failed(format!("waiting for requests: {e}")))
        }
    }
}
