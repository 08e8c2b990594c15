//! The lines above the table: the machine, its tasks, ended tasks, and the view.

use std::time::Duration;

use taskdiag::Caveat;
use taskdiag::field::{self, TextForm, Value};

use super::app::App;
use super::machine::Machine;

/// How many lines there are.
pub const LINES: usize = 6;

/// A size in bytes with a letter for its unit; `?` if it is not known.
pub fn human(app: &App, bytes: Option<u64>) -> String {
    let (Some(bytes), Some(frame)) = (bytes, app.scanner.frame()) else { return String::from("?") };
    let mut out = Vec::new();
    field::text(&mut out, frame.cx, TextForm::Human, None, &Value::Uint(bytes));
    String::from_utf8_lossy(&out).into_owned()
}

fn or_unknown<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| String::from("?"), |v| v.to_string())
}

fn uptime(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86400, seconds / 3600 % 24, seconds / 60 % 60);
    if days > 0 {
        format!("{days}d {hours:02}:{minutes:02}")
    } else {
        format!("{hours:02}:{minutes:02}")
    }
}

/// A duration with three digits at most.
pub fn short(time: Duration) -> String {
    match time.as_secs_f64() {
        s if s >= 10.0 => format!("{s:.0} s"),
        s if s >= 1.0 => format!("{s:.1} s"),
        s if s >= 0.01 => format!("{:.0} ms", s * 1e3),
        s => format!("{:.1} ms", s * 1e3),
    }
}

/// The lines.
pub fn lines(app: &App) -> [String; LINES] {
    let machine = &app.machine;
    #[cfg(feature = "record")]
    if let Some(replay) = &app.scanner.replay {
        return replayed(app, replay);
    }
    [
        times(app, machine),
        tasks(app, machine),
        cpu(app, machine),
        memory(app, machine),
        ended(app),
        shown(app),
    ]
}

/// The lines for a recorded answer, which has tasks but little about the machine.
#[cfg(feature = "record")]
fn replayed(app: &App, replay: &super::replay::Replay) -> [String; LINES] {
    let machine = &app.machine;
    let plays = match app.paused {
        // With --once there are no keys.
        _ if app.shape.everything => String::new(),
        true => String::from("; [ ] step, g: time, Space: play"),
        false => format!("; one in {}", short(app.interval())),
    };
    let rate = |i| app.scanner.rates.get(i).and_then(|r: taskdiag::Rate| r.cpu_ns());
    let interval = app.scanner.rates.interval().unwrap_or_default().as_nanos() as f64;
    let used: u64 = (0..app.rows.all).filter_map(rate).sum();
    let used = (interval > 0.0).then(|| format!("{:.1}", used as f64 / interval * 100.0));
    [
        replay.line() + &plays,
        tasks(app, machine),
        format!("CPU % {} of one CPU by these tasks; {}", or_unknown(used), cpus(machine.cpus)),
        format!(
            "Memory {}; up {}",
            human(app, machine.memory("MemTotal")),
            or_unknown(machine.uptime_s.map(uptime))
        ),
        ended(app),
        shown(app),
    ]
}

fn times(app: &App, machine: &Machine) -> String {
    let (up, load) = (machine.uptime_s.map(uptime), machine.load.clone());
    let scan = short(app.scanner.took);
    let every = short(app.interval());
    let slowed = if app.is_slowed() { " (slowed)" } else { "" };
    let paused = if app.paused { "paused" } else { "every " };
    let every = if app.paused { String::new() } else { format!("{every}{slowed}") };
    // First, because lines are cut at the edge of the screen.
    let frame = app.scanner.frame();
    let is_foreign = frame.is_some_and(|f| f.snapshot.caveats().contains(&&Caveat::ForeignProc));
    let foreign =
        if is_foreign { "/proc of another pid namespace, so PIDs are not ours! " } else { "" };
    format!(
        "{foreign}Up {}, load {}; {paused}{every}, scan {scan} by {}",
        or_unknown(up),
        or_unknown(load),
        app.scanner.engines()
    )
}

fn tasks(app: &App, machine: &Machine) -> String {
    let word = if app.shape.threads { "Threads" } else { "Tasks" };
    let states: Vec<String> =
        app.rows.states.iter().map(|(s, n)| format!("{} {n}", char::from(*s))).collect();
    let mut line = format!("{word} {}: {}", app.rows.all, states.join(", "));
    if !app.shape.threads && machine.threads.is_some() {
        line.push_str(&format!("; {} threads", or_unknown(machine.threads)));
    }
    if let Some(interval) = app.scanner.rates.interval() {
        let began = app.scanner.rates.began().len();
        line.push_str(&format!("; +{began} -{}", app.scanner.ended_now));
        if let (Some(new), Some(old)) = (machine.forks, app.before.forks) {
            let forks = new.saturating_sub(old) as f64 / interval.as_secs_f64().max(0.001);
            line.push_str(&format!(", {forks:.0} forks/s"));
        }
    }
    line
}

/// The number of CPUs in words.
fn cpus(number: Option<usize>) -> String {
    format!("{} {}", or_unknown(number), if number == Some(1) { "CPU" } else { "CPUs" })
}

fn cpu(app: &App, machine: &Machine) -> String {
    let cpus = cpus(machine.cpus);
    match machine.shares(&app.before) {
        Some([user, nice, system, idle, iowait, irq, softirq, steal]) => format!(
            "CPU % user {user:.1}, nice {nice:.1}, system {system:.1}, idle {idle:.1}, iowait {iowait:.1}, irq {:.1}, \
             steal {steal:.1}; {cpus}",
            irq + softirq
        ),
        None => format!("CPU % ?; {cpus}"),
    }
}

fn memory(app: &App, machine: &Machine) -> String {
    let of = |name: &str| machine.memory(name);
    let used = |all: &str, free: &str| Some(of(all)?.saturating_sub(of(free)?));
    format!(
        "Memory {}, {} used, {} available, {} cached; swap {}, {} used",
        human(app, of("MemTotal")),
        human(app, used("MemTotal", "MemAvailable")),
        human(app, of("MemAvailable")),
        human(app, of("Cached")),
        human(app, of("SwapTotal")),
        human(app, used("SwapTotal", "SwapFree")),
    )
}

/// The ended tasks, with their CPU time.
fn ended(app: &App) -> String {
    let mut line = String::from("Ended");
    let all = &app.scanner.ended;
    if all.is_empty() {
        line.push_str(" none");
    }
    for (i, task) in all.iter().enumerate() {
        let mut name = Vec::new();
        field::escape(&mut name, &task.comm);
        let name = String::from_utf8_lossy(&name);
        let cpu = task.cpu_ns.map_or(String::from("?"), |ns| format!("{:.2}s", ns as f64 / 1e9));
        let more = format!("{} {name} {} {cpu}", if i == 0 { "" } else { "," }, task.pid);
        if line.len() + more.len() > usize::from(app.width).saturating_sub(12) {
            line.push_str(&format!(" and {} more", all.len() - i));
            break;
        }
        line.push_str(&more);
    }
    line
}

fn shown(app: &App) -> String {
    let shape = &app.shape;
    let mut line = format!("Rows {}", app.rows.len());
    match &shape.by {
        Some(by) => line.push_str(&format!(", added up by {}", by.name)),
        None => line.push_str(&format!(", view {}", app.view_name())),
    }
    for (is_on, word) in [
        (shape.tree, "tree"),
        (shape.threads, "threads"),
        (shape.users_only, "without kernel threads"),
    ] {
        if is_on {
            line.push_str(&format!(", {word}"));
        }
    }
    if let Some(user) = &app.user {
        line.push_str(&format!(", user {user}"));
    }
    if let Some(filter) = &app.filter {
        line.push_str(&format!(", where {filter}"));
    }
    if app.rows.unknown > 0 {
        line.push_str(&format!("; of {} it is not known", app.rows.unknown));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_cpus() {
        assert_eq!([None, Some(1), Some(2)].map(cpus), ["? CPUs", "1 CPU", "2 CPUs"]);
    }

    #[test]
    fn times_for_a_person() {
        assert_eq!(uptime(59), "00:00");
        assert_eq!(uptime(90_061), "1d 01:01");
        let text = [400, 40_000, 4_000_000, 40_000_000].map(|us| short(Duration::from_micros(us)));
        assert_eq!(text, ["0.4 ms", "40 ms", "4.0 s", "40 s"]);
    }
}
