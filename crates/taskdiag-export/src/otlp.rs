//! Metrics as a request of the OpenTelemetry protocol (OTLP), in its JSON encoding.
//!
//! The families are the same as in text, under other names: those of OpenTelemetry's semantic
//! conventions for processes where there is one, and `taskdiag.*` elsewhere. One family can become
//! several metrics, as memory does, and several can become one, as reading and writing do.
//! Attributes of the data points name the group, unit or container, and the resource is the host,
//! because Prometheus, for example, does not turn attributes of a resource into labels.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Value as Json, json};

use super::text::{MetricType, Sink, Value, pairs};

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    /// It only grows.
    Counter,
    /// The value goes up and down, and sums over attributes are meaningful.
    UpDown,
    /// The value goes up and down, and sums are meaningless.
    Gauge,
}
use Type::{Counter, Gauge, UpDown};

/// Maps a family, or the part of it with one value of one label, to a metric.
struct Metric {
    /// The end of the family's name, after the prefix of its scope.
    family: &'static str,
    /// The label and value that choose the part. They do not become an attribute.
    part: Option<(&'static str, &'static str)>,
    name: &'static str,
    unit: &'static str,
    kind: Type,
    /// An attribute that all values have.
    also: Option<(&'static str, &'static str)>,
    /// The description, if several families become one metric. Otherwise, the text of the family is
    /// used.
    help: Option<&'static str>,
}

const fn metric(
    family: &'static str,
    name: &'static str,
    unit: &'static str,
    kind: Type,
) -> Metric {
    Metric { family, part: None, name, unit, kind, also: None, help: None }
}
const fn direction(family: &'static str, way: &'static str) -> Metric {
    let also = Some(("disk.io.direction", way));
    let help = Some("Bytes read from and written to storage.");
    Metric { also, help, ..metric(family, "process.disk.io", "By", Counter) }
}
const fn faults(family: &'static str, kind: &'static str) -> Metric {
    let also = Some(("system.paging.fault.type", kind));
    let help = Some("Page faults, which wait for storage if they are major.");
    Metric { also, help, ..metric(family, "process.paging.faults", "{fault}", Counter) }
}
const fn memory(part: &'static str, name: &'static str) -> Metric {
    let part = Some(("memtype", part));
    Metric { part, ..metric("memory_bytes", name, "By", UpDown) }
}

/// Metrics of groups, threads, units, slices and containers.
const OF_MANY: &[Metric] = &[
    metric("num_procs", "taskdiag.process.count", "{process}", UpDown),
    metric("processes", "taskdiag.process.count", "{process}", UpDown),
    metric("cpu_seconds_total", "process.cpu.time", "s", Counter),
    direction("read_bytes_total", "read"),
    direction("write_bytes_total", "write"),
    direction("written_bytes_total", "write"),
    metric("io_bytes_total", "process.disk.io", "By", Counter),
    metric("network_bytes_total", "process.network.io", "By", Counter),
    metric("gpu_seconds_total", "taskdiag.process.gpu.time", "s", Counter),
    metric("gpu_memory_bytes", "taskdiag.process.gpu.memory", "By", UpDown),
    faults("major_page_faults_total", "major"),
    faults("minor_page_faults_total", "minor"),
    metric("context_switches_total", "process.context_switches", "{context_switch}", Counter),
    memory("resident", "process.memory.usage"),
    memory("virtual", "process.memory.virtual"),
    memory("swapped", "taskdiag.process.memory.swap"),
    memory("proportionalResident", "taskdiag.process.memory.proportional"),
    memory("proportionalSwapped", "taskdiag.process.memory.swap_proportional"),
    metric("resident_bytes", "process.memory.usage", "By", UpDown),
    metric("swapped_bytes", "taskdiag.process.memory.swap", "By", UpDown),
    metric("open_filedesc", FILES, "{file_descriptor}", UpDown),
    metric("open_files", FILES, "{file_descriptor}", UpDown),
    metric("worst_fd_ratio", "taskdiag.process.file_descriptor.utilization", "1", Gauge),
    metric("oldest_start_time_seconds", "taskdiag.process.oldest_start_time", "s", Gauge),
    metric("num_threads", "process.thread.count", "{thread}", UpDown),
    metric("threads", "process.thread.count", "{thread}", UpDown),
    metric("count", "process.thread.count", "{thread}", UpDown),
    metric("states", "taskdiag.thread.count", "{thread}", UpDown),
    metric("threads_wchan", "taskdiag.thread.waiting", "{thread}", UpDown),
    metric("threads_waiting", "taskdiag.thread.waiting", "{thread}", UpDown),
    metric("cpu_ratio", "taskdiag.process.cpu.utilization", "1", Gauge),
];
const FILES: &str = "process.unix.file_descriptor.count";

/// Metrics of the whole machine and of taskdiag itself.
const OF_ONE: &[Metric] = &[
    metric("taskdiag_processes", "system.process.count", "{process}", UpDown),
    metric("taskdiag_threads", "taskdiag.system.thread.count", "{thread}", UpDown),
    metric("taskdiag_engine_info", "taskdiag.engine.info", "1", Gauge),
    metric("taskdiag_scrape_duration_seconds", "taskdiag.scrape.duration", "s", Gauge),
    metric("taskdiag_scrapes_total", "taskdiag.scrape.count", "{scrape}", Counter),
    metric("taskdiag_scrape_failures_total", "taskdiag.scrape.failures", "{scrape}", Counter),
    metric("taskdiag_scrape_processes", "taskdiag.scrape.processes", "{process}", Gauge),
    metric("taskdiag_gaps_total", "taskdiag.gap.count", "{value}", Counter),
    metric("taskdiag_scrape_gaps", "taskdiag.scrape.gaps", "{value}", Gauge),
    metric("taskdiag_names", "taskdiag.name.count", "{name}", Gauge),
    metric("taskdiag_names_other", "taskdiag.name.other", "{task}", Gauge),
    metric("taskdiag_deadlocks", "taskdiag.deadlock.count", "{deadlock}", Gauge),
    metric("taskdiag_waits_unseen", "taskdiag.wait.unseen", "{wait}", Gauge),
    metric("process_cpu_seconds_total", "process.cpu.time", "s", Counter),
    metric("process_virtual_memory_bytes", "process.memory.virtual", "By", UpDown),
    metric("process_resident_memory_bytes", "process.memory.usage", "By", UpDown),
];

/// Families that are left out: the resource already has the version, the host and the start; there
/// is no HTTP server; families with names of process-exporter repeat others; and a collector knows
/// the names of containers itself.
const LEFT_OUT: [&str; 8] = [
    "taskdiag_build_info",
    "taskdiag_container_info",
    "taskdiag_host_info",
    "taskdiag_http_requests_total",
    "namedprocess_scrape_errors",
    "namedprocess_scrape_procread_errors",
    "namedprocess_scrape_partial_errors",
    "process_start_time_seconds",
];

/// The beginning of a family's name, and the instrumentation scope of its metrics. A metric with
/// one name can be in several scopes, with different attributes in each.
const SCOPES: [(&str, &str); 6] = [
    ("namedprocess_namegroup_thread_", "taskdiag.thread"),
    ("namedprocess_namegroup_", "taskdiag.group"),
    ("taskdiag_unit_", "taskdiag.unit"),
    ("taskdiag_slice_", "taskdiag.slice"),
    ("taskdiag_container_", "taskdiag.container"),
    ("taskdiag_top_", "taskdiag.top"),
];

/// The metrics that a family becomes, and their scope. `None`: the tables do not have the family.
fn metrics(family: &str) -> Option<(&'static str, impl Iterator<Item = &'static Metric>)> {
    let of_scope = SCOPES.iter().find_map(|(begin, s)| Some((*s, family.strip_prefix(begin)?)));
    let (scope, end, table) = match of_scope {
        Some((scope, end)) => (scope, end, OF_MANY),
        None => ("taskdiag", family, OF_ONE),
    };
    let end = end.to_owned();
    let mut found = table.iter().filter(move |m| m.family == end).peekable();
    found.peek()?;
    Some((scope, found))
}

/// The name of the attribute for a label.
fn attribute(label: &str) -> &str {
    match label {
        "groupname" => "taskdiag.group",
        "threadname" => "thread.name",
        "unit" => "systemd.unit.name",
        "slice" => "systemd.slice.name",
        "container" => "container.id",
        "runtime" => "container.runtime.name",
        "pod" => "k8s.pod.uid",
        "mode" => "cpu.mode",
        "iomode" => "disk.io.direction",
        "ctxswitchtype" => "process.context_switch.type",
        "state" => "process.state",
        "wchan" => "taskdiag.wchan",
        "waits_on" => "taskdiag.waits_on",
        "direction" => "network.io.direction",
        "comm" => "process.executable.name",
        "pid" => "process.pid",
        "engine" => "taskdiag.engine",
        "walk" => "taskdiag.walk",
        "values" => "taskdiag.values",
        "reason" => "taskdiag.reason",
        "kind" => "taskdiag.kind",
        other => other,
    }
}

fn string_attribute(key: &str, value: &str) -> Json {
    json!({ "key": key, "value": { "stringValue": value } })
}

/// The name of the attribute for a label of a group, which has names where other metrics have ids.
fn of_group(label: &str) -> &str {
    match label {
        "container" => "container.name",
        "pod" => "k8s.pod.name",
        "namespace" => "k8s.namespace.name",
        other => other,
    }
}

fn point_attribute(label: &str, value: &str) -> Json {
    match (label, value, value.parse::<i64>()) {
        // The encoding has 64-bit integers as strings.
        ("pid", _, Ok(_)) => json!({ "key": "process.pid", "value": { "intValue": value } }),
        ("ctxswitchtype", "nonvoluntary", _) => string_attribute(attribute(label), "involuntary"),
        ("state", "zombie" | "Zombie", _) => string_attribute(attribute(label), "defunct"),
        ("state", ..) => string_attribute(attribute(label), &value.to_lowercase()),
        _ => string_attribute(attribute(label), value),
    }
}

/// When a counter began, in ns since 1970, and the value that was sent last.
#[derive(Clone, Copy, Debug)]
struct Began {
    start_ns: u64,
    last: f64,
}

/// Keeps the start times of counters from push to push.
///
/// A counter is sent with its start time. A counter that was not in the previous push began after
/// that push. So did a counter whose value has fallen: its name was forgotten and came back.
#[derive(Debug)]
pub struct Starts {
    of: HashMap<String, Began>,
    before_ns: u64,
    is_once: bool,
}

impl Starts {
    /// Counters begin at this time, in ns since 1970.
    pub fn new(started_ns: u64) -> Starts {
        Starts { of: HashMap::new(), before_ns: started_ns, is_once: false }
    }
    /// For a single push. Its counters are sums over the live processes, which began at different
    /// times. Such a sum falls when a process ends, so it is sent without a start and not as
    /// monotonic.
    pub fn once() -> Starts {
        Starts { is_once: true, ..Starts::new(0) }
    }
    /// Moves all times that are later than this one back to it, because the clock may have been set
    /// back. A start after the time of its value is not valid.
    fn reach(&mut self, now_ns: u64) {
        if now_ns < self.before_ns {
            self.before_ns = now_ns;
            for began in self.of.values_mut() {
                began.start_ns = began.start_ns.min(now_ns);
            }
        }
    }
    /// A counter with this value.
    fn began(&self, key: &str, value: f64) -> Began {
        let known = self.of.get(key).filter(|began| began.last <= value);
        let start_ns = known.map_or(self.before_ns, |began| began.start_ns);
        Began { start_ns, last: value }
    }
}

/// A metric with its data points.
struct Points {
    metric: &'static Metric,
    help: String,
    points: Vec<Json>,
}

/// A request that takes metrics.
pub struct Request<'a> {
    starts: &'a mut Starts,
    seen: HashMap<String, Began>,
    now_ns: u64,
    family: &'static str,
    help: String,
    scopes: BTreeMap<&'static str, BTreeMap<&'static str, Points>>,
}

impl Request<'_> {
    /// A request for the values of this time, in ns since 1970.
    pub fn new(starts: &mut Starts, now_ns: u64) -> Request<'_> {
        starts.reach(now_ns);
        let (seen, scopes) = (HashMap::new(), BTreeMap::new());
        Request { starts, seen, now_ns, family: "", help: String::new(), scopes }
    }
    /// The request, an `ExportMetricsServiceRequest`. `resource` has the attributes of the host.
    pub fn finish(self, resource: &[(String, String)]) -> Json {
        self.starts.of = self.seen;
        self.starts.before_ns = self.now_ns;
        let is_once = self.starts.is_once;
        let scope = |(name, metrics): (&str, BTreeMap<&str, Points>)| {
            let metrics: Vec<Json> =
                metrics.into_values().map(|all| one_metric(all, is_once)).collect();
            let scope = json!({ "name": name, "version": env!("CARGO_PKG_VERSION") });
            json!({ "scope": scope, "metrics": metrics })
        };
        let scopes: Vec<Json> = self.scopes.into_iter().map(scope).collect();
        let attributes: Vec<Json> = resource.iter().map(|(k, v)| string_attribute(k, v)).collect();
        json!({ "resourceMetrics": [{ "resource": { "attributes": attributes }, "scopeMetrics": scopes }] })
    }
}

fn one_metric(all: Points, is_once: bool) -> Json {
    let Points { metric, help, points } = all;
    // 2 is cumulative: the sum since the start.
    let sum = |grows: bool, points: Vec<Json>| json!({ "aggregationTemporality": 2, "isMonotonic": grows, "dataPoints": points });
    let (kind, data) = match metric.kind {
        Counter => ("sum", sum(!is_once, points)),
        UpDown => ("sum", sum(false, points)),
        Gauge => ("gauge", json!({ "dataPoints": points })),
    };
    json!({ "name": metric.name, "unit": metric.unit, "description": metric.help.unwrap_or(&help), kind: data })
}

impl Sink for Request<'_> {
    fn family(&mut self, name: &'static str, _: MetricType, help: &str) {
        debug_assert!(LEFT_OUT.contains(&name) || metrics(name).is_some(), "{name} has no metric");
        self.family = name;
        help.clone_into(&mut self.help);
    }
    fn put(&mut self, labels: &[&str], value: Value) {
        let Some((scope, mut of_family)) = metrics(self.family) else { return };
        let labels: Vec<_> = labels.iter().flat_map(|text| pairs(text)).collect();
        let is_part = |m: &&Metric| {
            m.part.is_none_or(|(label, value)| labels.iter().any(|l| l.0 == label && l.1 == value))
        };
        let Some(metric) = of_family.find(is_part) else { return };
        let is_group = self.family.starts_with("namedprocess_");
        let attributes: Vec<Json> = labels
            .iter()
            // A label without a value, such as the pod of a container outside of Kubernetes,
            // becomes no attribute.
            .filter(|(label, value)| metric.part.is_none_or(|p| p.0 != *label) && !value.is_empty())
            .map(|(label, value)| match is_group {
                true => point_attribute(of_group(label), value),
                false => point_attribute(label, value),
            })
            .chain(metric.also.map(|(key, value)| string_attribute(key, value)))
            .collect();
        let mut point =
            json!({ "timeUnixNano": self.now_ns.to_string(), "attributes": attributes });
        let (key, number) = match value {
            Value::Count(n) => ("asInt", json!(n.min(i64::MAX as u64).to_string())),
            Value::Fraction(n) => ("asDouble", json!(n)),
        };
        point[key] = number;
        if metric.kind == Counter && !self.starts.is_once {
            let key = format!("{scope} {} {}", metric.name, point["attributes"]);
            let value = match value {
                Value::Count(n) => n as f64,
                Value::Fraction(n) => n,
            };
            let began = self.starts.began(&key, value);
            point["startTimeUnixNano"] = json!(began.start_ns.to_string());
            self.seen.insert(key, began);
        }
        let of_scope = self.scopes.entry(scope).or_default();
        let new = || Points { metric, help: self.help.clone(), points: Vec::new() };
        of_scope.entry(metric.name).or_insert_with(new).points.push(point);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(starts: &mut Starts, now_ns: u64, groups: &[(&str, u64)]) -> Json {
        let mut request = Request::new(starts, now_ns);
        let sink: &mut dyn Sink = &mut request;
        sink.family("namedprocess_namegroup_read_bytes_total", MetricType::Counter, "Read.");
        groups.iter().for_each(|(name, n)| sink.sample(&[&format!("groupname=\"{name}\"")], *n));
        sink.family("namedprocess_namegroup_write_bytes_total", MetricType::Counter, "Written.");
        groups.iter().for_each(|(name, n)| sink.sample(&[&format!("groupname=\"{name}\"")], *n));
        sink.family("namedprocess_namegroup_memory_bytes", MetricType::Gauge, "Memory.");
        sink.sample(&["groupname=\"a\"", "memtype=\"virtual\""], u64::MAX);
        sink.family("taskdiag_container_resident_bytes", MetricType::Gauge, "Resident.");
        sink.sample(&["container=\"c\",runtime=\"docker\",pod=\"\""], 1);
        request.finish(&[("host.name".into(), "h".into())])
    }

    #[test]
    fn families_and_metrics_may_join_and_split() {
        let all = request(&mut Starts::new(5), 7, &[("a", 1)]);
        let resource = &all["resourceMetrics"][0];
        assert_eq!(
            resource["resource"]["attributes"],
            json!([{ "key": "host.name", "value": { "stringValue": "h" } }])
        );
        let scopes = &resource["scopeMetrics"];
        assert_eq!(
            (&scopes[0]["scope"]["name"], &scopes[1]["scope"]["name"]),
            (&json!("taskdiag.container"), &json!("taskdiag.group"))
        );
        let metrics = &scopes[1]["metrics"];
        assert_eq!(metrics[0]["name"], "process.disk.io");
        assert_eq!(metrics[0]["sum"]["isMonotonic"], true);
        // The description is not taken from one of the families.
        assert_eq!(metrics[0]["description"], "Bytes read from and written to storage.");
        let attribute =
            |key: &str, value: &str| json!({ "key": key, "value": { "stringValue": value } });
        let group = attribute("taskdiag.group", "a");
        assert_eq!(
            metrics[0]["sum"]["dataPoints"][1],
            json!({
                "asInt": "1", "startTimeUnixNano": "5", "timeUnixNano": "7",
                "attributes": [group, attribute("disk.io.direction", "write")],
            })
        );
        assert_eq!(metrics[1]["name"], "process.memory.virtual");
        assert_eq!(
            metrics[1]["sum"]["dataPoints"],
            json!([{ "asInt": i64::MAX.to_string(), "timeUnixNano": "7", "attributes": [group] }])
        );
        assert_eq!(
            scopes[0]["metrics"][0]["sum"]["dataPoints"][0]["attributes"],
            json!([attribute("container.id", "c"), attribute("container.runtime.name", "docker")])
        );
    }

    /// The starts of the first counter of each group.
    fn began(starts: &mut Starts, now_ns: u64, groups: &[(&str, u64)]) -> Vec<String> {
        let all = request(starts, now_ns, groups);
        let metric = &all["resourceMetrics"][0]["scopeMetrics"][1]["metrics"][0];
        let points = metric["sum"]["dataPoints"].as_array().expect("points").clone();
        let start = |p: &Json| p["startTimeUnixNano"].as_str().map(str::to_owned);
        points[..groups.len()].iter().filter_map(start).collect()
    }

    #[test]
    fn a_counter_begins_after_the_push_that_lacked_it() {
        let mut starts = Starts::new(5);
        let mut began = |now, groups: &[(&str, u64)]| began(&mut starts, now, groups);
        assert_eq!(began(10, &[("a", 1)]), ["5"]);
        assert_eq!(began(20, &[("a", 2), ("b", 1)]), ["5", "10"]);
        assert_eq!(began(30, &[("b", 3)]), ["10"]);
        assert_eq!(began(40, &[("a", 1), ("b", 3)]), ["30", "10"]);
    }

    #[test]
    fn a_counter_that_fell_has_begun_again() {
        let mut starts = Starts::new(5);
        let mut began = |now, groups: &[(&str, u64)]| began(&mut starts, now, groups);
        assert_eq!(began(10, &[("a", 8), ("b", 2)]), ["5", "5"]);
        assert_eq!(began(20, &[("a", 3), ("b", 2)]), ["10", "5"]);
        assert_eq!(began(30, &[("a", 4), ("b", 1)]), ["10", "20"]);
    }

    #[test]
    fn a_start_is_not_after_its_value() {
        let mut starts = Starts::new(50);
        let mut began = |now, groups: &[(&str, u64)]| began(&mut starts, now, groups);
        assert_eq!(began(60, &[("a", 1)]), ["50"]);
        // The clock was set back.
        assert_eq!(began(20, &[("a", 2), ("b", 1)]), ["20", "20"]);
        assert_eq!(began(30, &[("a", 3), ("b", 2), ("c", 1)]), ["20", "20", "20"]);
    }

    #[test]
    fn a_single_push_has_sums_without_a_start() {
        let mut starts = Starts::once();
        assert!(began(&mut starts, 10, &[("a", 1)]).is_empty());
        let all = request(&mut starts, 10, &[("a", 1)]);
        let sum = &all["resourceMetrics"][0]["scopeMetrics"][1]["metrics"][0]["sum"];
        assert_eq!(
            (&sum["isMonotonic"], &sum["dataPoints"][0]["asInt"]),
            (&json!(false), &json!("1"))
        );
    }
}
