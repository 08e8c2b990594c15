//! `taskdiag export`: metrics for Prometheus, by HTTP, as a file for node_exporter, or once on standard output.
//!
//! `tracker` makes the requests, and adds the `values` of each task to accounts (`ledger`): of groups (`config`, `template`, `yaml`,
//! `accounts`), of units and containers (`places`), of threads, and of the processes that use most (`top`). `families` writes the
//! accounts as `text`, and `http` serves it.

mod accounts;
mod config;
mod families;
mod http;
mod ledger;
mod places;
mod template;
mod text;
mod threads;
mod top;
mod tracker;
mod values;
mod yaml;

use std::collections::HashMap;
use std::io::{ErrorKind, Write as _};
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

use self::config::Config;
use self::http::Served;
use self::text::Format;
use self::tracker::{Options, Tracker};
use crate::args::export::{ExportArgs, To};
use crate::exit::{Exit, say, shown};
use crate::replace::replace;

/// Makes the text of the metrics, and keeps it for those who ask soon after.
struct Exporter {
    tracker: Tracker,
    server: families::Server,
    /// Those who ask within this time after an answer get the same one.
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
    fn page(&mut self, format: Format, served: &Served) -> Result<Rc<[u8]>, String> {
        if self.made.is_none_or(|at| at.elapsed() >= self.share) {
            self.texts.clear();
            self.made = None;
            self.tracker.scrape()?;
            self.made = Some(Instant::now());
            self.server.served = served.clone();
        }
        if let Some(text) = self.texts.get(key(format)) {
            return Ok(text.clone());
        }
        let text: Rc<[u8]> = families::text(&self.tracker, &self.server, format, 1 << 16).into();
        self.texts.insert(key(format), text.clone());
        Ok(text)
    }
}

/// Puts a text into the file of `--textfile`, which everyone may read.
fn replace_text(path: &Path, text: &[u8]) -> Result<(), Exit> {
    let named = |e| std::io::Error::other(format!("--textfile {}: {e}", shown(path)));
    let done = replace(path, 0o644, |file| file.write_all(text));
    done.map_err(|e| Exit::Output(named(e)))
}

/// Says why there is no new text, unless that was said of the time before.
fn say_new(said: &mut Option<String>, why: String, every: Duration) {
    if said.as_ref() != Some(&why) {
        say(format_args!("taskdiag: {why}; trying again every {every:?}"));
        *said = Some(why);
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
            Ok(crate::output::sink::write_all(&text)?)
        }
        To::File { path, every } => {
            exporter.share = Duration::ZERO;
            let mut said: Option<String> = None;
            for count in 0u64.. {
                let begin = Instant::now();
                let page = exporter.page(Format::Prometheus, &Served::default());
                let done = page.map_err(Exit::Failed).and_then(|text| replace_text(path, &text));
                match done {
                    Err(why) if args.once || count == 0 => return Err(why),
                    // A later try may work, and the counters are kept until then.
                    Err(Exit::Output(why)) => say_new(&mut said, why.to_string(), *every),
                    Err(Exit::Failed(why)) => say_new(&mut said, why, *every),
                    Err(other) => return Err(other),
                    Ok(()) if args.once => return Ok(()),
                    Ok(()) => {
                        if said.take().is_some() {
                            say(format_args!("taskdiag: writing {} again", shown(path)));
                        }
                    }
                }
                crate::interrupt::rest();
                std::thread::sleep(every.saturating_sub(begin.elapsed()));
            }
            Ok(())
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
            // What processes do is counted from the first answer on, so the first one is made before anybody asks.
            exporter.page(Format::Prometheus, &Served::default()).map_err(Exit::Failed)?;
            let address = server.address().map_err(|e| Exit::Failed(e.to_string()))?;
            say(format_args!("taskdiag: listening on http://{address}/metrics"));
            crate::interrupt::rest();
            let mut page = |format, served: &Served| exporter.page(format, served);
            server.run(&mut page).map_err(|e| Exit::Failed(format!("waiting for requests: {e}")))
        }
    }
}
