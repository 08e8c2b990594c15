//! The part of the page about itself: the machine, the engines and their cost, and missing data.

use std::time::Instant;

use serde_json::{Value, json};
use taskdiag::Snapshot;
use taskdiag::engine::auto;
use taskdiag::field::{Context, escape};
use taskdiag::view::Selection;

use crate::args::report::ReportArgs;
use crate::exit::{Asked, Exit, Lack, Partial};

/// Collects these facts while the page is made.
#[derive(Debug)]
pub struct About {
    title: Option<String>,
    is_saved: bool,
    served: Vec<Value>,
    notes: Vec<String>,
    lacks: Vec<Lack>,
    /// The messages of `lacks` that were already printed.
    said: Vec<Lack>,
    asked: Asked,
    stopped: bool,
    took_ms: f64,
}

impl About {
    /// Nothing is known yet.
    pub fn new(args: &ReportArgs) -> About {
        About {
            title: args.title.clone(),
            is_saved: args.source.from.is_some(),
            served: Vec::new(),
            notes: Vec::new(),
            lacks: Vec::new(),
            said: Vec::new(),
            asked: args.source.asked(&Selection::default()),
            stopped: false,
            took_ms: 0.0,
        }
    }
    /// Add an answer. `what` names the part of it that the page shows.
    pub fn add_answer(&mut self, what: &str, snapshot: &Snapshot) {
        for s in snapshot.served() {
            let ms = s.cost.wall.as_secs_f64() * 1e3;
            self.took_ms += ms;
            self.served.push(json!({
                "what": what,
                "engine": s.engine.name(),
                "groups": s.groups.to_string(),
                "ms": ms,
                "syscalls": s.cost.syscalls,
                "why": s.why,
            }));
        }
        if snapshot.served().is_empty() {
            for (engine, groups) in auto::served_by(snapshot.stream().info()) {
                self.served.push(json!({
                    "what": what,
                    "engine": engine.name(),
                    "groups": groups.to_string(),
                    "why": "when it was saved",
                }));
            }
        }
        if self.is_saved && snapshot.stream().strategy().is_threads() {
            let line = "the saved answer has threads, so times and counts belong to the first thread of each process";
            self.note(line.to_owned());
        }
        for caveat in snapshot.caveats().iter().filter(|c| !c.is_lack()) {
            self.note(caveat.to_string());
        }
    }
    fn note(&mut self, line: String) {
        if !self.notes.contains(&line) {
            self.notes.push(line);
        }
    }
    /// Add messages about missing data.
    pub fn add_missing(&mut self, lacks: impl IntoIterator<Item = Lack>) {
        for lack in lacks {
            if !self.lacks.contains(&lack) {
                self.lacks.push(lack);
            }
        }
    }
    /// Add messages about missing values that were already printed.
    #[cfg(feature = "record")]
    pub fn add_said(&mut self, lacks: Vec<Lack>) {
        self.said.extend(lacks.iter().cloned());
        self.add_missing(lacks);
    }
    /// Add the messages of an answer's verdict about missing values.
    pub fn add_verdict(&mut self, verdict: Result<(), Exit>) {
        match verdict {
            Err(Exit::Partial(partial)) => self.add_missing(partial.lacks),
            Err(Exit::Stopped(lacks)) => {
                self.stopped = true;
                self.add_missing(lacks);
            }
            _ => {}
        }
    }
    /// Writes it as members of a JSON object.
    pub fn write(&self, out: &mut Vec<u8>, snapshot: &Snapshot, cx: &Context, begin: Instant) {
        let stream = snapshot.stream();
        let (info, done) = (stream.info(), stream.done());
        let of = snapshot.host();
        let host = of.name.as_deref().map(shown);
        let words: Vec<String> =
            [&of.kernel, &of.arch].into_iter().flatten().map(|text| shown(text)).collect();
        let kernel = (!words.is_empty()).then(|| words.join(" "));
        let title = match (&self.title, &host) {
            (Some(title), _) => shown(title.as_bytes()),
            (None, Some(host)) => format!("Processes of {host}"),
            (None, None) => String::from("Processes of a saved answer"),
        };
        let members = json!({
            "title": title,
            "program": concat!("taskdiag ", env!("CARGO_PKG_VERSION")),
            "time": cx.now(),
            "up_s": info.boottime_ns / 1_000_000_000,
            "host": host,
            "kernel": kernel,
            "boot_id": of.boot_id.map(|id| id.to_string()),
            "cpus": known(info.ncpus.into()),
            "mem_total": known(info.mem_total_bytes),
            "saved": self.is_saved,
            "vanished": done.vanished,
            "answer_bytes": stream.bytes().len(),
            "answer_ms": (!self.is_saved).then_some(self.took_ms),
            "ms": begin.elapsed().as_secs_f64() * 1e3,
            "served": self.served,
            "notes": self.notes,
            "gaps": self.lacks.iter().map(|lack| &lack.line).collect::<Vec<_>>(),
        });
        let text = members.to_string();
        // Without the braces, since these are members of a larger object.
        out.extend_from_slice(&text.as_bytes()[1..text.len() - 1]);
        out.push(b',');
    }
    /// How the program ends: complete, or with messages about missing data.
    pub fn verdict(self) -> Result<(), Exit> {
        let mut lacks = self.lacks;
        if lacks.is_empty() {
            return Ok(());
        }
        if self.stopped {
            lacks.retain(|lack| !self.said.contains(lack));
            return Err(Exit::Stopped(lacks));
        }
        let said = self.said;
        Err(Exit::Partial(Partial { said, ..Partial::new(lacks, self.asked, false) }))
    }
}

/// A number of INFO, where 0 means that it is not known.
fn known(n: u64) -> Option<u64> {
    (n > 0).then_some(n)
}

/// Bytes as text, with everything that is not printable escaped.
fn shown(bytes: &[u8]) -> String {
    let mut out = Vec::new();
    escape(&mut out, bytes);
    String::from_utf8_lossy(&out).into_owned()
}
