//! The families of metrics: their names, and how they are written. docs/operate/metrics.md explains
//! each.

use std::collections::BTreeMap;
use std::time::SystemTime;

use taskdiag::Host;

use super::http::Served;
use super::ledger::{
    Account, GPU, Ledger, MAJOR, MINOR, NONVOLUNTARY, READ, RECEIVED, SENT, STATES, SYSTEM, USER,
    VOLUNTARY, WRITE,
};
use super::text::{MetricType, Sink, label};
use super::tracker::Tracker;

/// Writes the metrics of all requested families to a sink.
pub fn write(t: &mut dyn Sink, tracker: &Tracker, server: &Server) {
    let families = tracker.options.families;
    if families.groups {
        groups(t, tracker);
    }
    if families.wchan {
        t.family(
            "namedprocess_namegroup_threads_wchan",
            MetricType::Gauge,
            "Threads of this group that wait in this kernel function.",
        );
        sorted(&tracker.threads.wchans).into_iter().for_each(|(l, n)| t.sample(&[l], n));
    }
    if families.waits {
        t.family(
            "namedprocess_namegroup_threads_waiting",
            MetricType::Gauge,
            "Threads of this group that wait for this kind of thing.",
        );
        for ((labels, kind), n) in &tracker.threads.kinds {
            t.sample(&[labels, &label("waits_on", kind.as_bytes())], *n);
        }
    }
    if let Some(found) = tracker.threads.deadlocks {
        let gauge = MetricType::Gauge;
        t.family("taskdiag_deadlocks", gauge, "Cycles of threads that wait for each other.");
        t.sample(&[], found.cycles);
        t.family(
            "taskdiag_waits_unseen",
            gauge,
            "Waits that could not be looked at, so that there may be more deadlocks.",
        );
        t.sample(&[], found.unseen);
    }
    if families.threads {
        threads(t, &tracker.threads.names);
    }
    let places = &tracker.places;
    if families.units {
        place(t, tracker, &places.units, &UNIT);
    }
    if families.slices {
        place(t, tracker, &places.slices, &SLICE);
    }
    if families.containers {
        place(t, tracker, &places.containers, &CONTAINER);
        t.family(
            "taskdiag_container_info",
            MetricType::Gauge,
            "1; the labels have the names of the container, as far as they are known.",
        );
        for account in in_order(&places.containers).into_iter().filter(|a| a.now.tasks > 0) {
            if let Some(names) = places.names(&account.labels) {
                t.sample(&[&account.labels, names], 1);
            }
        }
    }
    if families.states {
        states(t, tracker);
    }
    if families.top {
        top(t, tracker);
    }
    health(t, tracker, server);
}

fn sorted<V: Copy>(map: &std::collections::HashMap<String, V>) -> BTreeMap<&str, V> {
    map.iter().map(|(l, v)| (l.as_str(), *v)).collect()
}

/// The accounts of a ledger sorted by name, so that two answers can be compared.
fn in_order(ledger: &Ledger) -> Vec<&Account> {
    let mut all: Vec<&Account> = ledger.all().collect();
    all.sort_unstable_by(|a, b| a.labels.cmp(&b.labels));
    all
}

/// Writes a value of an account. `None`: it is not known, and there is no sample.
type Get = fn(&Account) -> Option<u64>;

/// A gauge of an account: 0 if it has no tasks, and no sample if the value of none of its tasks is
/// known.
macro_rules! gauge {
    ($member:ident) => {
        |a: &Account| if a.now.tasks == 0 { Some(0) } else { a.now.$member.get() }
    };
}

fn family(
    t: &mut dyn Sink,
    all: &[&Account],
    name: &'static str,
    kind: MetricType,
    help: &str,
    parts: &[(&str, Get)],
) {
    t.family(name, kind, help);
    for account in all {
        for (label, get) in parts {
            if let Some(value) = get(account) {
                t.sample(&[&account.labels, label], value);
            }
        }
    }
}

fn seconds(t: &mut dyn Sink, all: &[&Account], name: &'static str, help: &str) {
    t.family(name, MetricType::Counter, help);
    for account in all {
        for (mode, counter) in [("mode=\"system\"", SYSTEM), ("mode=\"user\"", USER)] {
            if let Some(ns) = account.total(counter) {
                t.seconds(&[&account.labels, mode], ns);
            }
        }
    }
}

fn network(t: &mut dyn Sink, all: &[&Account], name: &'static str) {
    let help = "Bytes sent and received over TCP connections.";
    let parts: [(&str, Get); 2] = [
        ("direction=\"receive\"", |a| a.total(RECEIVED)),
        ("direction=\"transmit\"", |a| a.total(SENT)),
    ];
    family(t, all, name, MetricType::Counter, help, &parts);
}

fn gpu(t: &mut dyn Sink, all: &[&Account], seconds: &'static str, memory: &'static str) {
    let help = "Time in which engines of graphics processors worked for them.";
    t.family(seconds, MetricType::Counter, help);
    for account in all {
        if let Some(ns) = account.total(GPU) {
            t.seconds(&[&account.labels], ns);
        }
    }
    let help = "Memory for graphics processors.";
    family(t, all, memory, MetricType::Gauge, help, &[("", gauge!(gpu_memory))]);
}

fn groups(t: &mut dyn Sink, tracker: &Tracker) {
    let all = in_order(tracker.accounts.ledger());
    let all = &all[..];
    if tracker.options.families.network {
        network(t, all, "namedprocess_namegroup_network_bytes_total");
    }
    if tracker.options.families.gpu {
        let memory = "namedprocess_namegroup_gpu_memory_bytes";
        gpu(t, all, "namedprocess_namegroup_gpu_seconds_total", memory);
    }
    let counter = MetricType::Counter;
    family(
        t,
        all,
        "namedprocess_namegroup_num_procs",
        MetricType::Gauge,
        "Processes in this group.",
        &[("", |a| Some(a.now.tasks))],
    );
    seconds(t, all, "namedprocess_namegroup_cpu_seconds_total", "CPU time of this group.");
    family(
        t,
        all,
        "namedprocess_namegroup_read_bytes_total",
        counter,
        "Bytes that this group read from storage.",
        &[("", |a| a.total(READ))],
    );
    family(
        t,
        all,
        "namedprocess_namegroup_write_bytes_total",
        counter,
        "Bytes that this group wrote to storage.",
        &[("", |a| a.total(WRITE))],
    );
    family(
        t,
        all,
        "namedprocess_namegroup_major_page_faults_total",
        counter,
        "Page faults that waited for storage.",
        &[("", |a| a.total(MAJOR))],
    );
    family(
        t,
        all,
        "namedprocess_namegroup_minor_page_faults_total",
        counter,
        "Page faults that did not wait for storage.",
        &[("", |a| a.total(MINOR))],
    );
    family(
        t,
        all,
        "namedprocess_namegroup_context_switches_total",
        counter,
        "Context switches of this group.",
        &[
            ("ctxswitchtype=\"nonvoluntary\"", |a| a.total(NONVOLUNTARY)),
            ("ctxswitchtype=\"voluntary\"", |a| a.total(VOLUNTARY)),
        ],
    );
    let pss = tracker.options.families.pss;
    let memory: [(&str, Get); 5] = [
        ("memtype=\"resident\"", gauge!(rss)),
        ("memtype=\"swapped\"", gauge!(swap)),
        ("memtype=\"virtual\"", gauge!(size)),
        ("memtype=\"proportionalResident\"", gauge!(pss)),
        ("memtype=\"proportionalSwapped\"", gauge!(swap_pss)),
    ];
    let memory = if pss { &memory[..] } else { &memory[..3] };
    family(
        t,
        all,
        "namedprocess_namegroup_memory_bytes",
        MetricType::Gauge,
        "Memory of this group.",
        memory,
    );
    family(
        t,
        all,
        "namedprocess_namegroup_open_filedesc",
        MetricType::Gauge,
        "Open file descriptors of this group.",
        &[("", gauge!(open))],
    );
    t.family(
        "namedprocess_namegroup_worst_fd_ratio",
        MetricType::Gauge,
        "The largest share of its limit of file descriptors that a process of this group has open.",
    );
    for account in all {
        let none = (account.now.tasks == 0).then_some(0.0);
        if let Some(worst) = account.now.worst.or(none) {
            t.fraction(&[&account.labels], worst);
        }
    }
    t.family(
        "namedprocess_namegroup_oldest_start_time_seconds",
        MetricType::Gauge,
        "When the oldest process of this group started, since 1970.",
    );
    for account in all {
        let start = account
            .now
            .oldest_ns
            .map(|ns| tracker.health.boot_unix_s + (ns / 1_000_000_000) as i64);
        // For a group without processes, process-exporter shows a time in the year 1. Here, the
        // group has no sample.
        if let Some(start) = start {
            t.fraction(&[&account.labels], start as f64);
        }
    }
    family(
        t,
        all,
        "namedprocess_namegroup_num_threads",
        MetricType::Gauge,
        "Threads of this group.",
        &[("", gauge!(threads))],
    );
    t.family(
        "namedprocess_namegroup_states",
        MetricType::Gauge,
        "Threads of this group in each state.",
    );
    for account in all {
        for (name, n) in STATES.iter().zip(account.now.states) {
            t.sample(&[&account.labels, &label("state", name.as_bytes())], n);
        }
    }
}

fn threads(t: &mut dyn Sink, ledger: &Ledger) {
    let all = in_order(ledger);
    let all = &all[..];
    let counter = MetricType::Counter;
    family(
        t,
        all,
        "namedprocess_namegroup_thread_count",
        MetricType::Gauge,
        "Threads with this name in this group.",
        &[("", |a| Some(a.now.tasks))],
    );
    seconds(
        t,
        all,
        "namedprocess_namegroup_thread_cpu_seconds_total",
        "CPU time of threads with this name.",
    );
    family(
        t,
        all,
        "namedprocess_namegroup_thread_io_bytes_total",
        counter,
        "Bytes that threads with this name read from and wrote to storage.",
        &[("iomode=\"read\"", |a| a.total(READ)), ("iomode=\"write\"", |a| a.total(WRITE))],
    );
    family(
        t,
        all,
        "namedprocess_namegroup_thread_major_page_faults_total",
        counter,
        "Page faults of these threads that waited for storage.",
        &[("", |a| a.total(MAJOR))],
    );
    family(
        t,
        all,
        "namedprocess_namegroup_thread_minor_page_faults_total",
        counter,
        "Page faults of these threads that did not wait for storage.",
        &[("", |a| a.total(MINOR))],
    );
    family(
        t,
        all,
        "namedprocess_namegroup_thread_context_switches_total",
        counter,
        "Context switches of threads with this name.",
        &[
            ("ctxswitchtype=\"nonvoluntary\"", |a| a.total(NONVOLUNTARY)),
            ("ctxswitchtype=\"voluntary\"", |a| a.total(VOLUNTARY)),
        ],
    );
}

/// The names of the families of units, slices or containers.
struct Names {
    processes: &'static str,
    threads: &'static str,
    cpu: &'static str,
    resident: &'static str,
    swapped: &'static str,
    read: &'static str,
    written: &'static str,
    open: &'static str,
    majflt: &'static str,
    network: &'static str,
    gpu: &'static str,
    gpu_memory: &'static str,
}

macro_rules! names {
    ($kind:literal) => {
        Names {
            processes: concat!("taskdiag_", $kind, "_processes"),
            threads: concat!("taskdiag_", $kind, "_threads"),
            cpu: concat!("taskdiag_", $kind, "_cpu_seconds_total"),
            resident: concat!("taskdiag_", $kind, "_resident_bytes"),
            swapped: concat!("taskdiag_", $kind, "_swapped_bytes"),
            read: concat!("taskdiag_", $kind, "_read_bytes_total"),
            written: concat!("taskdiag_", $kind, "_written_bytes_total"),
            open: concat!("taskdiag_", $kind, "_open_files"),
            majflt: concat!("taskdiag_", $kind, "_major_page_faults_total"),
            network: concat!("taskdiag_", $kind, "_network_bytes_total"),
            gpu: concat!("taskdiag_", $kind, "_gpu_seconds_total"),
            gpu_memory: concat!("taskdiag_", $kind, "_gpu_memory_bytes"),
        }
    };
}
const UNIT: Names = names!("unit");
const SLICE: Names = names!("slice");
const CONTAINER: Names = names!("container");

fn place(t: &mut dyn Sink, tracker: &Tracker, ledger: &Ledger, names: &Names) {
    let all = in_order(ledger);
    let all = &all[..];
    if tracker.options.families.network {
        network(t, all, names.network);
    }
    if tracker.options.families.gpu {
        gpu(t, all, names.gpu, names.gpu_memory);
    }
    family(
        t,
        all,
        names.processes,
        MetricType::Gauge,
        "Processes there.",
        &[("", |a| Some(a.now.tasks))],
    );
    family(t, all, names.threads, MetricType::Gauge, "Threads there.", &[("", gauge!(threads))]);
    seconds(t, all, names.cpu, "CPU time of the processes there.");
    family(
        t,
        all,
        names.resident,
        MetricType::Gauge,
        "Resident memory of the processes there; shared pages count for each.",
        &[("", gauge!(rss))],
    );
    family(
        t,
        all,
        names.swapped,
        MetricType::Gauge,
        "Swapped-out anonymous memory of the processes there.",
        &[("", gauge!(swap))],
    );
    family(
        t,
        all,
        names.read,
        MetricType::Counter,
        "Bytes that they read from storage.",
        &[("", |a| a.total(READ))],
    );
    family(
        t,
        all,
        names.written,
        MetricType::Counter,
        "Bytes that they wrote to storage.",
        &[("", |a| a.total(WRITE))],
    );
    family(
        t,
        all,
        names.open,
        MetricType::Gauge,
        "Open file descriptors there.",
        &[("", gauge!(open))],
    );
    family(
        t,
        all,
        names.majflt,
        MetricType::Counter,
        "Page faults there that waited for storage.",
        &[("", |a| a.total(MAJOR))],
    );
}

/// All states. Each always has a sample.
const LETTERS: [(u8, &str); 9] = [
    (b'R', "running"),
    (b'S', "sleeping"),
    (b'D', "uninterruptible"),
    (b'T', "stopped"),
    (b't', "traced"),
    (b'Z', "zombie"),
    (b'X', "dead"),
    (b'I', "idle"),
    (b'P', "parked"),
];

fn states(t: &mut dyn Sink, tracker: &Tracker) {
    let mut put = |name, help, states: &std::collections::HashMap<u8, u64>| {
        t.family(name, MetricType::Gauge, help);
        let mut known = 0;
        for (letter, word) in LETTERS {
            let n = states.get(&letter).copied().unwrap_or(0);
            known += n;
            t.sample(&[&label("state", word.as_bytes())], n);
        }
        let all: u64 = states.values().sum();
        t.sample(&["state=\"unknown\""], all - known);
    };
    put("taskdiag_processes", "Processes in each state.", &tracker.states);
    if let Some(states) = &tracker.threads.states {
        put("taskdiag_threads", "Threads in each state.", states);
    }
}

fn top(t: &mut dyn Sink, tracker: &Tracker) {
    if let Some(cpu) = &tracker.top.cpu {
        t.family(
            "taskdiag_top_cpu_ratio",
            MetricType::Gauge,
            "CPU seconds per second since the previous scrape, for the names that used most.",
        );
        cpu.iter().for_each(|(labels, value)| t.fraction(&[labels], *value));
    }
    t.family(
        "taskdiag_top_resident_bytes",
        MetricType::Gauge,
        "Resident memory of the names that have most.",
    );
    tracker.top.rss.iter().for_each(|(labels, bytes)| t.sample(&[labels], *bytes));
}

/// Values about this program itself.
#[derive(Debug)]
pub struct Server {
    /// When it was started.
    pub started: SystemTime,
    /// Counters of the HTTP server.
    pub served: Served,
}

fn health(t: &mut dyn Sink, tracker: &Tracker, server: &Server) {
    let health = &tracker.health;
    let one = |t: &mut dyn Sink, name, kind, help, value| {
        t.family(name, kind, help);
        t.sample(&[], value);
    };
    t.family("taskdiag_build_info", MetricType::Gauge, "The version of taskdiag; the value is 1.");
    t.sample(&[&label("version", env!("CARGO_PKG_VERSION").as_bytes())], 1);
    t.family(
        "taskdiag_host_info",
        MetricType::Gauge,
        "The machine: its name, kernel, architecture and boot; the value is 1.",
    );
    let host = Host::here();
    let text = |text: Option<Vec<u8>>| text.unwrap_or_default();
    let boot_id = host.boot_id.map(|id| id.to_string().into_bytes());
    t.sample(
        &[
            &label("nodename", &text(host.name)),
            &label("release", &text(host.kernel)),
            &label("machine", &text(host.arch)),
            &label("boot_id", &text(boot_id)),
        ],
        1,
    );
    t.family("taskdiag_engine_info", MetricType::Gauge, "The engine of each walk; the value is 1.");
    for (engine, walk) in &health.engines {
        t.sample(&[&label("engine", engine.as_bytes()), &label("walk", walk.as_bytes())], 1);
    }
    t.family(
        "taskdiag_scrape_duration_seconds",
        MetricType::Gauge,
        "How long the last scan of the tasks took.",
    );
    t.fraction(&[], health.took.as_secs_f64());
    one(t, "taskdiag_scrapes_total", MetricType::Counter, "Scans of the tasks.", health.scrapes);
    one(
        t,
        "taskdiag_scrape_failures_total",
        MetricType::Counter,
        "Readings that gave no answer.",
        health.failures,
    );
    one(
        t,
        "taskdiag_scrape_processes",
        MetricType::Gauge,
        "Processes that the last scan saw.",
        health.processes,
    );
    one(
        t,
        "taskdiag_gaps_total",
        MetricType::Counter,
        "Values that scans lacked, such as one that was denied.",
        health.gaps_total,
    );
    t.family(
        "taskdiag_scrape_gaps",
        MetricType::Gauge,
        "Values that the last scan lacked, by kind and reason.",
    );
    let gaps: BTreeMap<String, u64> = health
        .gaps
        .iter()
        .map(|((group, reason), n)| {
            let group = label("values", format!("{group:?}").to_lowercase().as_bytes());
            let reason = format!("{reason:?}").to_lowercase();
            (format!("{group},{}", label("reason", reason.as_bytes())), *n)
        })
        .collect();
    gaps.iter().for_each(|(labels, n)| t.sample(&[labels], *n));
    t.family("taskdiag_names", MetricType::Gauge, "Number of names of each kind, at most --limit.");
    let places = &tracker.places;
    let ledgers = [
        ("kind=\"container\"", &places.containers),
        ("kind=\"group\"", tracker.accounts.ledger()),
        ("kind=\"slice\"", &places.slices),
        ("kind=\"thread\"", &tracker.threads.names),
        ("kind=\"unit\"", &places.units),
    ];
    ledgers.iter().for_each(|(kind, ledger)| t.sample(&[kind], ledger.len() as u64));
    t.family(
        "taskdiag_names_other",
        MetricType::Gauge,
        "Tasks that are counted under the name \"other\" because of the limit.",
    );
    ledgers.iter().for_each(|(kind, ledger)| t.sample(&[kind], ledger.folded()));
    t.family(
        "taskdiag_http_requests_total",
        MetricType::Counter,
        "Requests by status code; 0 is a connection that was closed without a reply.",
    );
    for (code, n) in &server.served.codes {
        t.sample(&[&label("code", code.to_string().as_bytes())], *n);
    }
    // Metrics under the names of process-exporter, because its dashboards show them.
    one(
        t,
        "namedprocess_scrape_errors",
        MetricType::Unknown,
        "Readings that gave no answer.",
        health.failures,
    );
    one(
        t,
        "namedprocess_scrape_procread_errors",
        MetricType::Unknown,
        "Always 0; values that could not be read are partial errors.",
        0,
    );
    one(
        t,
        "namedprocess_scrape_partial_errors",
        MetricType::Unknown,
        "Values that readings lacked.",
        health.gaps_total,
    );
    own(t, server);
}

/// The metrics that each exporter has about its own process.
fn own(t: &mut dyn Sink, server: &Server) {
    // SAFETY: all of it may be zero, and the call only fills it in.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        (libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) == 0).then_some(usage)
    };
    if let Some(usage) = usage {
        let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
        t.family("process_cpu_seconds_total", MetricType::Counter, "CPU time of taskdiag itself.");
        t.fraction(&[], seconds(usage.ru_utime) + seconds(usage.ru_stime));
    }
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let mut pages = pages.split(' ').filter_map(|n| n.parse::<u64>().ok());
    if let (Some(size), Some(rss)) = (pages.next(), pages.next()) {
        let page = rustix::param::page_size() as u64;
        t.family(
            "process_virtual_memory_bytes",
            MetricType::Gauge,
            "Virtual memory of taskdiag itself.",
        );
        t.sample(&[], size * page);
        t.family(
            "process_resident_memory_bytes",
            MetricType::Gauge,
            "Resident memory of taskdiag itself.",
        );
        t.sample(&[], rss * page);
    }
    if let Ok(started) = server.started.duration_since(SystemTime::UNIX_EPOCH) {
        t.family(
            "process_start_time_seconds",
            MetricType::Gauge,
            "When taskdiag was started, since 1970.",
        );
        t.fraction(&[], started.as_secs_f64());
    }
}
