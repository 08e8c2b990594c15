//! The options of `taskdiag export`.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, ArgGroup, ArgMatches, Command, ValueHint};
use taskdiag::Choice;
use taskdiag_face::exit::{self, Exit};
use taskdiag_face::limits;
use taskdiag_face::options::{self, engine};

use crate::collector::{self, Collector};

/// The default address: the port of process-exporter, reachable from this machine only.
const LISTEN: &str = "127.0.0.1:9256";

/// Where metrics go.
#[derive(Clone, Debug)]
pub enum To {
    /// Standard output.
    Output,
    /// Write to a file, which is replaced at each interval.
    File {
        /// Its path.
        path: PathBuf,
        /// Time between two writes.
        every: Duration,
    },
    /// An OpenTelemetry collector, to which they are sent at each interval.
    Collector {
        /// Which one.
        collector: Collector,
        /// Time between two pushes.
        every: Duration,
    },
    /// Clients that connect to one of these addresses.
    Listen(Vec<SocketAddr>),
}

/// The families of metrics to make, in addition to those about the program itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Families {
    /// Groups of the configuration.
    pub groups: bool,
    /// Threads of a group by name.
    pub threads: bool,
    /// Threads of a group by the kernel function they wait in.
    pub wchan: bool,
    /// Threads of a group by the kind of their wait.
    pub waits: bool,
    /// Threads that wait for each other.
    pub deadlocks: bool,
    /// Bytes over TCP connections, of groups, units, slices and containers.
    pub network: bool,
    /// Time and memory of graphics processors, of groups, units, slices and containers.
    pub gpu: bool,
    /// Memory of groups with shared pages shared out.
    pub pss: bool,
    /// Units of systemd.
    pub units: bool,
    /// Slices of systemd.
    pub slices: bool,
    /// Containers.
    pub containers: bool,
    /// States of all tasks.
    pub states: bool,
    /// Who uses most.
    pub top: bool,
}

/// The names of families, those that are on by default first.
const FAMILIES: [&str; 13] = [
    "groups",
    "threads",
    "wchan",
    "units",
    "slices",
    "containers",
    "states",
    "top",
    "pss",
    "waits",
    "deadlocks",
    "network",
    "gpu",
];
/// How many of them are on by default. PSS is not, because the kernel has to walk over all pages
/// for it. Waits are not, because they need the rights to trace each process. The network and
/// graphics processors are not, because they take a walk over all open files.
const DEFAULT: usize = 8;

impl Families {
    fn flag(&mut self, name: &str) -> Option<&mut bool> {
        Some(match name {
            "groups" => &mut self.groups,
            "threads" => &mut self.threads,
            "wchan" => &mut self.wchan,
            "pss" => &mut self.pss,
            "waits" => &mut self.waits,
            "deadlocks" => &mut self.deadlocks,
            "network" => &mut self.network,
            "gpu" => &mut self.gpu,
            "units" => &mut self.units,
            "slices" => &mut self.slices,
            "containers" => &mut self.containers,
            "states" => &mut self.states,
            "top" => &mut self.top,
            _ => return None,
        })
    }
    /// Reads a list of names. With a `-` before the first name, the names are removed from the
    /// default.
    fn parse(names: &[&str]) -> Result<Families, Exit> {
        let mut families = Families::default();
        let all_but = names.first().is_some_and(|n| n.starts_with('-'));
        if all_but {
            FAMILIES[..DEFAULT].iter().for_each(|n| *families.flag(n).expect("it is one") = true);
        }
        for name in names {
            let bare = if all_but { name.strip_prefix('-') } else { Some(*name) };
            let flag = bare.and_then(|n| families.flag(n));
            *flag.ok_or_else(|| {
                let known = FAMILIES.join(", ");
                Exit::Usage(format!(
                    "--families: '{name}' is none of {known}; a - before each name leaves it out"
                ))
            })? = !all_but;
        }
        Ok(families)
    }
}

/// The labels that groups have in addition to their names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupLabels {
    /// The unit of systemd.
    pub unit: bool,
    /// The name of the container, or its id if the name is not known.
    pub container: bool,
    /// The name of the pod, or its uid if the name is not known.
    pub pod: bool,
    /// The Kubernetes namespace of the pod.
    pub namespace: bool,
}

impl GroupLabels {
    fn parse(names: &[&str]) -> Result<GroupLabels, Exit> {
        let mut labels = GroupLabels::default();
        for name in names {
            match *name {
                "unit" => labels.unit = true,
                "container" => labels.container = true,
                "pod" => labels.pod = true,
                "namespace" => labels.namespace = true,
                _ => {
                    return Err(Exit::Usage(format!(
                        "--group-labels: '{name}' is none of unit, container, pod, namespace"
                    )));
                }
            }
        }
        Ok(labels)
    }
}

/// Parsed options of `taskdiag export`.
#[derive(Clone, Debug)]
pub struct ExportArgs {
    /// Where to.
    pub to: To,
    /// Only once?
    pub once: bool,
    /// OpenMetrics on standard output?
    pub openmetrics: bool,
    /// The configuration of groups.
    pub config: Option<PathBuf>,
    /// Which families.
    pub families: Families,
    /// The number of names in the family `top`.
    pub top: usize,
    /// Does `top` show single processes instead of names?
    pub top_pids: bool,
    /// The largest number of names of each kind.
    pub limit: usize,
    /// Do children belong to the groups of their parents?
    pub children: bool,
    /// Is the group of a process chosen again when its name, arguments or user have changed?
    pub recheck: bool,
    /// Are groups removed when they become empty?
    pub remove_empty: bool,
    /// The labels that groups have in addition to their names.
    pub labels: GroupLabels,
    /// For how long requests share an answer.
    pub share: Duration,
    /// Who answers.
    pub engine: Choice,
}

const EXAMPLES: &[(&str, &str)] = &[
    ("sudo taskdiag export", "serve metrics on http://127.0.0.1:9256/metrics"),
    (
        "sudo taskdiag export --config all.yaml",
        "serve groups of a configuration of process-exporter",
    ),
    ("taskdiag export --once --families top,states", "print some metrics"),
    (
        "taskdiag export --textfile /var/lib/node_exporter/taskdiag.prom",
        "keep a file for node_exporter up to date",
    ),
    ("sudo taskdiag export --otlp http://127.0.0.1:4318", "send to an OpenTelemetry collector"),
];

const INTRO: &str = "\
It serves metrics of groups of processes under the names of process-exporter, and reads its configuration file. It also has metrics of units and slices of systemd, of containers, of states, and of the processes that use most. docs/operate/metrics.md has all of them, and \
how many there can be.";

/// The options.
pub fn command() -> Command {
    Command::new("export")
        .about("Serve metrics for Prometheus, or send them to OpenTelemetry")
        .before_help(INTRO)
        .help_template(options::TEMPLATE)
        .args_override_self(true)
        .next_help_heading("Output")
        .arg(
            Arg::new("listen")
                .long("listen")
                .value_name("ADDRESS:PORT")
                .conflicts_with_all(["once", "textfile"])
                .help(format!("Serve HTTP there; without it, on {LISTEN}, which only this machine reaches")),
        )
        .arg(
            Arg::new("textfile")
                .long("textfile")
                .value_name("FILE")
                .value_parser(clap::value_parser!(PathBuf))
                .value_hint(ValueHint::FilePath)
                .help("Write to FILE instead, every 15 s, for the textfile collector of node_exporter"),
        )
        .arg(
            Arg::new("otlp")
                .long("otlp")
                .value_name("URL")
                .num_args(0..=1)
                .conflicts_with_all(["listen", "textfile"])
                .value_hint(ValueHint::Url)
                .help(format!("Send to an OpenTelemetry collector instead, every 15 s, by OTLP over HTTP; without URL, to OTEL_EXPORTER_OTLP_ENDPOINT or {}", collector::DEFAULT)),
        )
        .group(ArgGroup::new("again").args(["textfile", "otlp"]))
        .arg(
            Arg::new("every")
                .long("every")
                .value_name("TIME")
                .default_value("15s")
                .requires("again")
                .value_parser(limits::duration)
                .help("With --textfile or --otlp, write or send this often, such as 15s or 1m"),
        )
        .arg(options::flag("once", "Print, write or send once, and end; counters are then sums over the live processes"))
        .arg(options::flag("openmetrics", "Print OpenMetrics with --once").requires("once").conflicts_with("again"))
        .arg(
            Arg::new("share")
                .long("share")
                .value_name("TIME")
                .default_value("500ms")
                .value_parser(limits::duration)
                .help("Answer all requests within this time with the same answer"),
        )
        .next_help_heading("Metrics")
        .arg(
            options::list("families", "LIST", "Make these: groups, threads, wchan, units, slices, containers, states, top, pss, waits, deadlocks, network, gpu; or all but some: -wchan,-threads. Without it, all but pss, for which the kernel walks over the pages, network and gpu, which take a walk over all open files, and waits and deadlocks, which need the rights to trace all processes")
                .allow_hyphen_values(true),
        )
        .arg(
            Arg::new("top")
                .long("top")
                .value_name("N")
                .default_value("10")
                .value_parser(clap::value_parser!(u16).range(1..=1000))
                .help("Show the N names that use most CPU time, the N that use most memory, and the sum of all others"),
        )
        .arg(options::flag("top-pids", "With the family top, show single processes with their ids, instead of command names"))
        .arg(
            Arg::new("limit")
                .long("limit")
                .value_name("N")
                .default_value("1000")
                .value_parser(clap::value_parser!(u32).range(1..=100_000))
                .help("Have at most N groups, N units and so on; all others are added up in one that is called 'other'"),
        )
        .next_help_heading("Groups")
        .arg(
            Arg::new("config")
                .long("config")
                .value_name("FILE")
                .value_parser(clap::value_parser!(PathBuf))
                .value_hint(ValueHint::FilePath)
                .help("Make groups by the process_names of FILE, as process-exporter does; without it, by command name"),
        )
        .arg(options::flag("no-children", "Leave a process without a rule out, even if its parent is in a group"))
        .arg(options::flag("recheck", "Look for the group of a process again when its name, arguments or user have changed; each scrape reads them"))
        .arg(options::flag("remove-empty-groups", "Forget a group when its last process has ended"))
        .arg(options::list("group-labels", "LIST", "Give groups these labels, too: unit, container, pod, namespace. Each combination counts as a group for --limit"))
        .next_help_heading("Source")
        .arg(engine())
        .after_help(exit::examples(EXAMPLES))
}

/// The addresses to try. A port alone, as in `:9256`, means all addresses of the machine, as for
/// other exporters.
fn addresses(text: &str) -> std::io::Result<Vec<SocketAddr>> {
    match text.strip_prefix(':').and_then(|port| port.parse::<u16>().ok()) {
        Some(port) => {
            Ok(vec![(Ipv6Addr::UNSPECIFIED, port).into(), (Ipv4Addr::UNSPECIFIED, port).into()])
        }
        None => Ok(text.to_socket_addrs()?.collect()),
    }
}

impl ExportArgs {
    /// From parsed options.
    ///
    /// # Errors
    /// The arguments contradict each other or cannot be used.
    pub fn from_matches(m: &ArgMatches) -> Result<ExportArgs, Exit> {
        let path = |id: &str| m.get_one::<PathBuf>(id).cloned();
        let time = |id: &str| m.get_one::<Duration>(id).copied().expect("it has a default");
        let once = m.get_flag("once");
        let to = match path("textfile") {
            Some(path) => To::File { path, every: time("every") },
            None if m.contains_id("otlp") => {
                let url = m.get_one::<String>("otlp").map(String::as_str);
                To::Collector { collector: Collector::new(url)?, every: time("every") }
            }
            None if once => To::Output,
            None => {
                let address = m.get_one::<String>("listen").map_or(LISTEN, String::as_str);
                let wrong = |why: String| {
                    Exit::Usage(format!(
                        "--listen {address}: {why}; write ADDRESS:PORT, such as {LISTEN}"
                    ))
                };
                To::Listen(addresses(address).map_err(|e| wrong(e.to_string()))?)
            }
        };
        let names: Vec<&String> = m.get_many::<String>("families").into_iter().flatten().collect();
        let families = match names.is_empty() {
            true => FAMILIES[..DEFAULT].to_vec(),
            false => options::items(names),
        };
        let labels = options::items(m.get_many::<String>("group-labels").into_iter().flatten());
        Ok(ExportArgs {
            labels: GroupLabels::parse(&labels)?,
            to,
            once,
            openmetrics: m.get_flag("openmetrics"),
            config: path("config"),
            families: Families::parse(&families)?,
            top: usize::from(*m.get_one::<u16>("top").expect("it has a default")),
            top_pids: m.get_flag("top-pids"),
            limit: *m.get_one::<u32>("limit").expect("it has a default") as usize,
            children: !m.get_flag("no-children"),
            recheck: m.get_flag("recheck"),
            remove_empty: m.get_flag("remove-empty-groups"),
            share: time("share"),
            engine: m.get_one::<Choice>("engine").copied().unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_families_turns_them_on_or_off() {
        let all = Families::parse(&FAMILIES).expect("all of them");
        assert!(all.groups && all.top && all.wchan);
        let few = Families::parse(&["top", "states"]).expect("two of them");
        assert_eq!(few, Families { top: true, states: true, ..Families::default() });
        let less = Families::parse(&["-wchan", "-threads"]).expect("all but two");
        let off = Families {
            pss: false,
            waits: false,
            deadlocks: false,
            network: false,
            gpu: false,
            ..all
        };
        assert_eq!(less, Families { wchan: false, threads: false, ..off });
        for bad in [&["nope"][..], &["-nope"], &["top", "-states"], &["-top", "states"]] {
            assert!(Families::parse(bad).is_err(), "{bad:?}");
        }
    }
}
