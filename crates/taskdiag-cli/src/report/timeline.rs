//! The timeline of a recording: sums over all processes, and the systemd units that used most, at
//! up to 240 moments before the answer of the page.

use std::collections::HashMap;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value as Json, json};
use taskdiag::field::{Context, Field, Part, Row, TOP, Value};
use taskdiag::recording::{Frame, FrameInfo, Recording};
use taskdiag::{BootId, Group, Rates, Snapshot};

use super::about::About;
use super::{chosen, field};
use crate::args::report::ReportArgs;
use crate::exit::Lack;
use crate::recorded;

/// The largest number of moments. For each, an answer is read from the recording.
const MOST: usize = 240;
/// The largest number of units in a chart. All others are added up in one more line.
const UNITS: usize = 6;
/// If there are more names than this, the smallest are only kept as a sum. Processes can choose
/// their names, so a recording can have very many.
const NAMES: usize = 4096;

/// Write the timeline as a member of an object. It is `null` if the answer is not from a recording.
pub fn write(out: &mut Vec<u8>, args: &ReportArgs, shown: &Snapshot, about: &mut About) {
    let from = args.source.from.as_deref();
    if let Some(path) = from {
        match open(path) {
            Ok(None) => {}
            Ok(Some(recording)) => {
                about.add_said(recorded::damage(&recording));
                let timeline = timeline(&recording, args, shown, about);
                out.extend_from_slice(format!("\"timeline\":{timeline},").as_bytes());
                return;
            }
            Err(e) => about.add_missing([Lack::always(format!("there is no timeline: {e}"))]),
        }
    }
    out.extend_from_slice(b"\"timeline\":null,");
}

/// The recording, if the path is one (a directory or a day file). The path was read before, but its
/// file system may have stopped answering since.
fn open(path: &Path) -> Result<Option<Recording>, String> {
    crate::aside::answers(path).map_err(|e| format!("{}: {e}", crate::exit::shown(path)))?;
    if !(path.extension().is_some_and(|e| e == "tdr") || path.is_dir()) {
        return Ok(None);
    }
    Recording::open(path).map(Some).map_err(|e| e.to_string())
}

fn timeline(recording: &Recording, args: &ReportArgs, shown: &Snapshot, about: &mut About) -> Json {
    let numbers = numbers(recording, args, shown);
    let mut all = Series::default();
    let mut rates = Rates::new();
    let (mut times, mut breaks, mut unread) = (Vec::new(), Vec::new(), 0);
    let mut before: Option<(usize, BootId)> = None;
    for number in &numbers {
        let Ok(Frame { info, snapshot, .. }) = recording.read(*number) else {
            unread += 1;
            continue;
        };
        // Nothing was recorded for a time between the two, or the machine has booted.
        let has_gap = |n| recording.gap_before(n).is_some() || has_reboot(recording, n);
        let boot = snapshot.stream().info().boot_id;
        let is_other = |(b, old): (usize, BootId)| {
            old.is_same(&boot) == Some(false) || (b + 1..=*number).any(has_gap)
        };
        if before.is_some_and(is_other) {
            breaks.push(times.len());
        }
        before = Some((*number, boot));
        times.push(seconds(info.time));
        rates.update(&snapshot);
        all.add(&snapshot, &rates, times.len() - 1);
    }
    if unread > 0 {
        about.add_missing([Lack::always(format!(
            "{unread} answers of the recording could not be read for the timeline"
        ))]);
    }
    json!({ "times": times, "breaks": breaks, "answers": span(&numbers), "charts": all.charts(times.len()) })
}

/// How many answers there are from the first to the last of these.
fn span(numbers: &[usize]) -> usize {
    numbers.first().zip(numbers.last()).map_or(0, |(first, last)| last - first + 1)
}

/// The numbers of the frames to read, evenly spaced over the time up to the answer of the page.
fn numbers(recording: &Recording, args: &ReportArgs, shown: &Snapshot) -> Vec<usize> {
    let info = shown.stream().info();
    let is_shown = |t: SystemTime| {
        t.duration_since(UNIX_EPOCH).is_ok_and(|d| d.as_nanos() == u128::from(info.realtime_ns))
    };
    let infos: Vec<FrameInfo> = recording.infos().collect();
    let Some(newest) = infos.len().checked_sub(1) else { return Vec::new() };
    let last = infos.iter().rposition(|i| is_shown(i.time)).unwrap_or(newest);
    let begin = infos[last].time.checked_sub(args.span).unwrap_or(UNIX_EPOCH);
    let first = infos[..last].iter().rposition(|i| i.time < begin).map_or(0, |n| n + 1);
    let count = last - first + 1;
    let steps = count.min(MOST);
    // The last frame is always there.
    (1..=steps).map(|step| first + step * count / steps - 1).collect()
}

fn has_reboot(recording: &Recording, number: usize) -> bool {
    let at = |n| recording.info(n).map(|i| i.boottime);
    at(number) < at(number.saturating_sub(1))
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

/// The values of a line in a chart, one for each moment. `None`: not known.
type Line = Vec<Option<f64>>;

/// The values that were read so far.
#[derive(Debug, Default)]
struct Series {
    sums: HashMap<&'static str, Line>,
    /// Memory and CPU of each unit.
    units: HashMap<Vec<u8>, [Line; 2]>,
    /// The sum of the names that were not kept.
    folded: [Line; 2],
    memory: &'static str,
}

const SUMS: [&str; 4] = ["nlwp", "read_now", "write_now", "processes"];

/// Add a value to a sum. A sum is not known only if none of its values is known.
fn add(line: &mut Line, at: usize, value: Option<f64>) {
    if line.len() <= at {
        line.resize(at + 1, None);
    }
    if let Some(v) = value {
        line[at] = Some(line[at].unwrap_or(0.0) + v);
    }
}

/// Add the values of each moment.
fn add_line(sum: &mut Line, line: &Line) {
    line.iter().enumerate().for_each(|(at, value)| add(sum, at, *value));
}

/// The largest value.
fn most(line: &Line) -> f64 {
    line.iter().flatten().copied().fold(0.0, f64::max)
}

impl Series {
    /// Add the answer of this moment.
    fn add(&mut self, snapshot: &Snapshot, rates: &Rates, at: usize) {
        let asked = snapshot.stream().asked();
        self.memory = if asked.has(Group::Rollup) { "pss" } else { "rss" };
        let memory = field(self.memory);
        let cx = Context::of(snapshot, snapshot.stream().strategy().is_threads());
        let top = |name| TOP.find(name).expect("a column of the table").field;
        let (cpu, read, write) = (top("cpu_now"), top("read_now"), top("write_now"));
        let places = ["container_name", "unit", "container", "comm"].map(field);
        for (i, task) in snapshot.tasks().enumerate() {
            let row = Row::new(task);
            let rated = match rates.get(i) {
                Some(rate) => row.with_part(Part::Rate(rate)),
                None => row,
            };
            let unit = self.units.entry(place(&cx, places, &row)).or_default();
            add(&mut unit[1], at, number(&cx, cpu, &rated));
            for (name, field) in [("read_now", read), ("write_now", write)] {
                add(self.sums.entry(name).or_default(), at, number(&cx, field, &rated));
            }
            if task.is_leader() {
                add(&mut unit[0], at, chosen::amount(&cx, memory, &row).map(|v| v as f64));
                let threads = chosen::amount(&cx, field("nlwp"), &row).map(|v| v as f64);
                add(self.sums.entry("nlwp").or_default(), at, threads);
                add(self.sums.entry("processes").or_default(), at, Some(1.0));
            }
        }
        self.fold();
    }
    /// Makes room for further names, if there are too many.
    fn fold(&mut self) {
        if self.units.len() <= NAMES {
            return;
        }
        let mut all: Vec<(Vec<u8>, [Line; 2])> = self.units.drain().collect();
        for which in [0, 1] {
            all.sort_by(|a, b| {
                let order = most(&b.1[which]).total_cmp(&most(&a.1[which]));
                order.then_with(|| a.0.cmp(&b.0))
            });
            self.units.extend(all.drain(..NAMES / 4));
        }
        for (sum, which) in self.folded.iter_mut().zip([0, 1]) {
            let lines = all.iter().map(|(_, lines)| &lines[which]);
            lines.for_each(|line| add_line(sum, line));
        }
    }
    fn charts(mut self, moments: usize) -> Json {
        for line in self.units.values_mut().flatten().chain(self.sums.values_mut()) {
            line.resize(moments, None);
        }
        let sums =
            SUMS.map(|name| (name, self.sums.remove(name).unwrap_or_else(|| vec![None; moments])));
        let [threads, read, write, processes] = sums.map(|(name, line)| drawn(name, &line));
        let named = |mut line: Json, name: &str| {
            line["name"] = name.into();
            line
        };
        json!([
            { "title": format!("{} of units, and of commands without one", self.memory.to_uppercase()), "unit": "bytes", "lines": self.largest(0, moments) },
            { "title": "CPU of the same units; 100 % is one CPU", "unit": "percent", "lines": self.largest(1, moments) },
            { "title": "Storage, a second", "unit": "bytes", "lines": [named(read, "read"), named(write, "written")] },
            { "title": "Tasks", "unit": "count", "lines": [named(processes, "processes"), named(threads, "threads")] },
        ])
    }
    /// The units with the largest values, and the sum of the others.
    fn largest(&self, which: usize, moments: usize) -> Vec<Json> {
        let mut units: Vec<(&Vec<u8>, &Line)> =
            self.units.iter().map(|(name, lines)| (name, &lines[which])).collect();
        units.retain(|(_, line)| most(line) > 0.0);
        units.sort_by(|a, b| most(b.1).total_cmp(&most(a.1)).then_with(|| a.0.cmp(b.0)));
        let shown = units.iter().take(UNITS);
        let mut lines: Vec<Json> =
            shown.map(|(name, line)| drawn(&String::from_utf8_lossy(name), line)).collect();
        let rest = units.get(UNITS..).unwrap_or_default();
        let folded = &self.folded[which];
        // A name in the sum can have come back, so the names cannot be counted.
        let name = match most(folded) > 0.0 {
            true => String::from("others"),
            false => format!("{} others", rest.len()),
        };
        if !rest.is_empty() || most(folded) > 0.0 {
            let mut sum = vec![None; moments];
            rest.iter().for_each(|(_, line)| add_line(&mut sum, line));
            add_line(&mut sum, folded);
            lines.push(drawn(&name, &sum));
        }
        lines
    }
}

/// A line with this name as JSON. Numbers have at most one decimal.
fn drawn(name: &str, line: &Line) -> Json {
    let short = |v: f64| {
        if v.fract() == 0.0 || v >= 1e4 {
            json!(v as u64)
        } else {
            json!((v * 10.0).round() / 10.0)
        }
    };
    let values: Vec<Json> = line.iter().map(|v| v.map_or(Json::Null, short)).collect();
    json!({ "name": name, "values": values })
}

fn number(cx: &Context, field: &Field, row: &Row<'_>) -> Option<f64> {
    match (field.get)(cx, row) {
        Value::Percent(p) => Some(p),
        Value::Uint(v) => Some(v as f64),
        _ => None,
    }
}

/// The container that a task belongs to, or else its unit, or else the id of a container without a
/// name, or else its command.
fn place(cx: &Context, fields: [&Field; 4], row: &Row<'_>) -> Vec<u8> {
    let mut text = Vec::new();
    for field in fields {
        let value = (field.get)(cx, row);
        if value.missing().is_none() {
            taskdiag::field::text(&mut text, cx, field.text, Some(row), &value);
            return text;
        }
    }
    b"?".to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn very_many_names_are_one_line() {
        let mut series = Series::default();
        let mut sums = [0.0; 2];
        for n in 0..10_000u32 {
            // The first ones use most memory, and the last ones most CPU.
            let values = [f64::from(10_000 - n), f64::from(n)];
            let line = |which: usize| vec![None, Some(values[which])];
            series.units.insert(n.to_string().into_bytes(), [line(0), line(1)]);
            sums = [sums[0] + values[0], sums[1] + values[1]];
            series.fold();
            assert!(series.units.len() <= NAMES);
        }
        for (which, first) in [(0, "0"), (1, "9999")] {
            let lines = series.largest(which, 2);
            assert_eq!(lines.len(), UNITS + 1);
            assert_eq!(
                (&lines[0]["name"], &lines[UNITS]["name"]),
                (&json!(first), &json!("others"))
            );
            let values = lines.iter().map(|l| l["values"][1].as_f64().expect("a number"));
            assert_eq!(values.sum::<f64>(), sums[which]);
            assert!(lines.iter().all(|l| l["values"][0].is_null()));
        }
    }
}
