//! The lines above the table: the machine, its tasks, ended tasks, and the view.

use std::time::Duration;

use taskdiag::field::{self, Value};
use taskdiag::{Base, Caveat};

use super::app::App;
use super::machine::Machine;
use super::meters;
use crate::units::Units;

/// The screen on which the line about pressure has room.
const ROOM_FOR_PRESSURE: u16 = 20;
/// The longest host name that is shown whole on a narrow screen.
const HOST: usize = 20;

/// A line above the table.
#[derive(Debug)]
pub struct Line {
    /// Its text.
    pub text: String,
    /// Does the line have meters, whose parts have colours?
    pub is_meter: bool,
}

fn plain(text: String) -> Line {
    Line { text, is_meter: false }
}

/// A size in the form that was chosen; `?` if it is not known.
pub fn size(app: &App, bytes: Option<u64>) -> String {
    let (Some(bytes), Some(frame)) = (bytes, app.scanner.frame()) else { return String::from("?") };
    let mut out = Vec::new();
    let form = app.summary_units.form_on_screen();
    field::text(&mut out, frame.cx, form, None, &Value::Uint(bytes));
    String::from_utf8_lossy(&out).into_owned()
}

/// The unit after sizes without a letter.
fn unit(app: &App) -> &'static str {
    match app.summary_units {
        Units::Auto | Units::Human => "",
        Units::Kib => " KiB",
        Units::Bytes => " bytes",
    }
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
pub fn lines(app: &App) -> Vec<Line> {
    let machine = &app.machine;
    #[cfg(feature = "record")]
    if let Some(replay) = &app.scanner.replay {
        return replayed(app, replay).into_iter().map(plain).collect();
    }
    let meter = |text| Line { text, is_meter: app.bars };
    let mut all = vec![
        plain(times(app, machine)),
        plain(tasks(app, machine)),
        meter(cpu(app, machine)),
        meter(memory(app, machine)),
    ];
    if app.args.once || app.height >= ROOM_FOR_PRESSURE {
        all.push(plain(pressure(app, machine)));
    }
    if has_meters(app) {
        let shares = machine.shares_of_each(&app.before);
        let of_each = meters::lines(&shares, usize::from(app.width), room_for_meters(app));
        all.extend(of_each.into_iter().map(|text| Line { text, is_meter: true }));
    }
    all.extend([plain(ended(app)), plain(shown(app))]);
    all
}

/// The number of lines for the meters of single CPUs.
fn room_for_meters(app: &App) -> usize {
    usize::from(app.height).saturating_sub(10) / 3
}

/// Is there a meter for each CPU? Without a choice, there is one if there is room for it.
pub fn has_meters(app: &App) -> bool {
    let cpus = app.machine.each.len();
    let fits =
        app.height >= 40 && meters::count(cpus, usize::from(app.width)) * 5 <= app.height.into();
    !app.args.once
        && !app.scanner.is_replay()
        && cpus > 0
        && app.per_cpu.unwrap_or(cpus > 1 && fits)
}

/// The lines for a recorded answer, which has tasks but little about the machine.
#[cfg(feature = "record")]
fn replayed(app: &App, replay: &super::replay::Replay) -> [String; 6] {
    let machine = &app.machine;
    let plays = match app.paused {
        // With --once there are no keys.
        _ if app.shape.everything => String::new(),
        true => String::from("; [ ] step, g: time, Space: play"),
        false => format!("; one in {}", short(app.interval())),
    };
    let rate = |i| app.scanner.rates.get(i).and_then(|r: taskdiag::Rate<'_>| r.cpu_ns());
    let interval = app.scanner.rates.interval().unwrap_or_default().as_nanos() as f64;
    let used: u64 = (0..app.rows.all).filter_map(rate).sum();
    let used = (interval > 0.0).then(|| format!("{:.1}", used as f64 / interval * 100.0));
    let host = replay.now().map(taskdiag::Snapshot::host).filter(|host| !host.is_unknown());
    [
        replay.line() + &plays,
        tasks(app, machine),
        format!("CPU % {} of one CPU by these tasks; {}", or_unknown(used), cpus(machine.cpus)),
        format!(
            "Memory {}; up {}{}",
            size(app, machine.memory("MemTotal")),
            or_unknown(machine.uptime_s.map(uptime)),
            host.map_or_else(String::new, |host| format!("; {host}"))
        ),
        ended(app),
        shown(app),
    ]
}

fn times(app: &App, machine: &Machine) -> String {
    let load = or_unknown(machine.load.as_ref());
    let whole = if machine.is_inner { " (whole machine)" } else { "" };
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
        "{foreign}Up {}{}, load {load}{whole}; {paused}{every}, scan {scan} by {}",
        up(app, machine),
        host(app, machine),
        app.scanner.engines()
    )
}

/// The time since the machine was started. In a separate pid namespace, the age of the namespace
/// (of its process 1) comes first.
fn up(app: &App, machine: &Machine) -> String {
    let of_machine = or_unknown(machine.uptime_s.map(uptime));
    let of_first = || {
        let snapshot = app.scanner.frame()?.snapshot;
        let start_ns = snapshot.task(1)?.record::<Base>()?.start_time_ns()?;
        snapshot.stream().info().boottime_ns.checked_sub(start_ns)
    };
    match machine.is_inner.then(of_first).flatten() {
        Some(ns) => format!("{} (machine {of_machine})", uptime(ns / 1_000_000_000)),
        None => of_machine,
    }
}

/// The name of the host of this UTS namespace.
fn host(app: &App, machine: &Machine) -> String {
    let Some(name) = &machine.host else { return String::new() };
    let is_long = app.width < 120 && name.chars().count() > HOST;
    let short: String = name.chars().take(HOST - 2).collect();
    if is_long { format!(" on {short}..") } else { format!(" on {name}") }
}

fn tasks(app: &App, machine: &Machine) -> String {
    let word = if app.shape.threads { "Threads" } else { "Tasks" };
    let states: Vec<String> =
        app.rows.states.iter().map(|(s, n)| format!("{} {n}", char::from(*s))).collect();
    let mut line = format!("{word} {}: {}", app.rows.all, states.join(", "));
    // In an inner pid namespace, the kernel's number is of the whole machine.
    let threads = if machine.is_inner { Some(app.rows.threads) } else { machine.threads };
    if !app.shape.threads && threads.is_some() {
        let word = if threads == Some(1) { "thread" } else { "threads" };
        line.push_str(&format!("; {} {word}", or_unknown(threads)));
    }
    if let Some(interval) = app.scanner.rates.interval() {
        let began = app.scanner.rates.began().len();
        line.push_str(&format!("; +{began} -{}", app.scanner.ended_now));
        if let (Some(new), Some(old)) = (machine.forks, app.before.forks) {
            let forks = new.saturating_sub(old) as f64 / interval.as_secs_f64().max(0.001);
            let whole = if machine.is_inner { " on the whole machine" } else { "" };
            line.push_str(&format!(", {forks:.0} forks/s{whole}"));
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
    let Some(shares) = machine.shares(&app.before) else { return format!("CPU % ?; {cpus}") };
    let [user, nice, system, idle, iowait, irq, softirq, steal] = shares;
    let width = usize::from(app.width);
    if !app.bars && width >= 100 {
        return format!(
            "CPU % user {user:.1}, nice {nice:.1}, system {system:.1}, idle {idle:.1}, iowait {iowait:.1}, irq {:.1}, \
             steal {steal:.1}; {cpus}",
            irq + softirq
        );
    }
    let said = format!(
        "user {:.1}, sys {:.1}, wait {iowait:.1}, steal {steal:.1}; {cpus}",
        user + nice,
        system + irq + softirq
    );
    if !app.bars {
        return format!("CPU % idle {idle:.1}, {said}");
    }
    let room = width.saturating_sub(said.len() + 11).clamp(12, 60);
    format!("CPU %  [{}] {said}", meters::of_cpu(&shares, room))
}

fn memory(app: &App, machine: &Machine) -> String {
    let of = |name: &str| machine.memory(name);
    let less = |all: &str, free: &str| Some(of(all)?.saturating_sub(of(free)?));
    let (total, used) = (of("MemTotal"), less("MemTotal", "MemAvailable"));
    let (swap, swapped) = (of("SwapTotal"), less("SwapTotal", "SwapFree"));
    let has_swap = swap.is_none_or(|bytes| bytes > 0);
    if !app.bars {
        let swap = match has_swap {
            true => format!("swap {}, {} used", size(app, swap), size(app, swapped)),
            false => String::from("no swap"),
        };
        return format!(
            "Memory {}, {} used, {} available, {} cached; {swap}{}",
            size(app, total),
            size(app, used),
            size(app, of("MemAvailable")),
            size(app, of("Cached")),
            unit(app)
        );
    }
    let share = |part: Option<u64>, all: Option<u64>| match (part, all) {
        (Some(part), Some(all)) if all > 0 => part as f64 / all as f64,
        _ => 0.0,
    };
    let room = usize::from(app.width).saturating_sub(18).clamp(30, 110);
    let memory = meters::bar(
        &[('|', share(used, total)), (':', share(less("MemAvailable", "MemFree"), total))],
        &format!("{}/{}", size(app, used), size(app, total)),
        room * 3 / 5,
    );
    let swap = match has_swap {
        true => {
            let label = format!("{}/{}", size(app, swapped), size(app, swap));
            format!("swap [{}]", meters::bar(&[('|', share(swapped, swap))], &label, room * 2 / 5))
        }
        false => String::from("no swap"),
    };
    format!("Memory [{memory}] {swap}{}", unit(app))
}

/// How long tasks waited for CPUs, memory and devices.
fn pressure(app: &App, machine: &Machine) -> String {
    let one = |(i, name): (usize, &&str)| {
        let (some, full) = machine.pressure(&app.before, i)?;
        // Some task always runs, so the whole machine never waits for a CPU.
        let full = full.filter(|_| *name != "CPU").map(|full| format!(", full {full:.1}"));
        Some(format!("{name} {some:.1}{}", full.unwrap_or_default()))
    };
    let all: Vec<String> = ["CPU", "memory", "I/O"].iter().enumerate().filter_map(one).collect();
    match all.is_empty() {
        true => String::from("Pressure % ?, because this kernel does not measure it"),
        false => format!("Pressure % {}", all.join("; ")),
    }
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
        (shape.adds_up_subtrees(), "sums of all below"),
        (shape.users_only, "without kernel threads"),
        (shape.busy_only, "without idle tasks"),
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
    if let Some((pid, _)) = app.follow {
        line.push_str(&format!(", follows {pid}"));
    }
    if !app.marks.is_empty() {
        line.push_str(&format!(", {} marked", app.marks.len()));
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
    fn a_number_of_cpus_has_its_noun_or_a_question_mark() {
        assert_eq!([None, Some(1), Some(2)].map(cpus), ["? CPUs", "1 CPU", "2 CPUs"]);
    }

    #[test]
    fn times_are_short_for_people() {
        assert_eq!(uptime(59), "00:00");
        assert_eq!(uptime(90_061), "1d 01:01");
        let text = [400, 40_000, 4_000_000, 40_000_000].map(|us| short(Duration::from_micros(us)));
        assert_eq!(text, ["0.4 ms", "40 ms", "4.0 s", "40 s"]);
    }
}
