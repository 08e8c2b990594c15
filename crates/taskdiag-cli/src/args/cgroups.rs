//! The options of `taskdiag cgroups`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint};
use taskdiag::cgroups::path_of;
use taskdiag::field::CGROUPS;

use super::table;
use crate::exit::{self, Exit};

/// Parsed options of `taskdiag cgroups`.
#[derive(Clone, Debug)]
pub struct CgroupsArgs {
    /// The options that all tables have.
    pub table: table::TableArgs,
    /// The cgroups to show, with those below them. Empty: all.
    pub paths: Vec<Vec<u8>>,
    /// The option with a name or an id of a container or a pod, and its value.
    pub place: Option<(&'static str, String)>,
    /// Print paths instead of a tree?
    pub flat: bool,
    /// Look twice, this far apart, and show what happened in between.
    pub delay: Option<Duration>,
}

const EXAMPLES: &[(&str, &str)] = &[
    ("taskdiag cgroups", "show all cgroups as a tree"),
    ("taskdiag cgroups /system.slice --sort -memory", "show those of services, the largest first"),
    ("taskdiag cgroups -d 1s --flat --sort -cpu_now", "show which are the busiest in this second"),
    (
        "taskdiag cgroups --flat --where 'oom_kills > 0 or memory_share > 90%'",
        "find those without memory",
    ),
    (
        "taskdiag cgroups --where 'cpu_max < 1000' -o path,cpu_max,throttles",
        "find small CPU limits",
    ),
];

/// What `--where` takes here, for the end of `--help`.
const WHERE: &str = "\
An expression of --where compares the columns that 'taskdiag fields' lists for cgroups with values:
  'memory > 1G and oom_kills > 0'     K M G T are powers of 1024
  'throttled > 5m or cpu_some > 10%'  ms s m h d are units of time
  'path ~ \"docker|containerd\"'      ~ matches a regular expression
  'memory_max known'                  a value is known or missing
A row is left out if its value is not known. Standard error says how many were.
docs/reference/where.md has the whole language.";

/// Explains what a row is.
const INTRO: &str = "\
A cgroup is a group of processes that the kernel counts and limits together: a service, a session, a container. The values of a \
cgroup include those of the cgroups below it. A value is - if the cgroup cannot have it: its controller is not enabled for it, or \
it is the root, which has no limits.";

/// The options.
pub fn command() -> Command {
    let [filter, container, pod, unit] = table::conditions();
    let filter = filter
        .help("Show only cgroups for which this is true, such as 'memory > 1G and oom_kills > 0'");
    let container = container.help("Show cgroups of the containers with these names or ids");
    let pod = pod.help("Show cgroups of these pods of Kubernetes: NAMESPACE/NAME, NAME or uid");
    let unit = unit.help("Show cgroups of these units of systemd; sshd means sshd.service");
    table::rows_with(
        Command::new("cgroups")
            .about("Show what each cgroup (service, container) uses and may use")
            .before_help(INTRO)
            .help_template(table::TEMPLATE)
            .override_usage("taskdiag cgroups [OPTIONS] [CGROUP...]"),
        [filter, container, pod, unit],
    )
    .next_help_heading("Selection")
    .arg(
        Arg::new("paths")
            .value_name("CGROUP")
            .action(ArgAction::Append)
            .value_parser(clap::value_parser!(OsString))
            .value_hint(ValueHint::AnyPath)
            .help("Show these cgroups and those below them, by path: /system.slice or /sys/fs/cgroup/system.slice"),
    )
    .next_help_heading("Rows")
    .arg(table::flag("flat", "Print a list with paths, and no tree"))
    .next_help_heading("Output")
    .arg(
        table::delay().conflicts_with("from").help(
                "Look twice, this time apart, such as 1s or 500ms, and show what happened in between: cpu_now, read_now, \
                 write_now and other columns whose name ends in _now",
            ),
    )
    .arg(table::strict())
    .next_help_heading("Source")
    .arg(table::from().help(
        "Show the cgroups that 'taskdiag record' recorded in DIR last, with rates since the previous answer",
    ))
    .args(table::at())
    .arg(table::flag("stats", "Say on standard error what the answer cost"))
    .after_help(format!("{WHERE}\n\n{}", exit::examples(EXAMPLES)))
}

impl CgroupsArgs {
    /// From parsed options.
    pub fn from_matches(m: &ArgMatches) -> Result<CgroupsArgs, Exit> {
        let mut table = table::TableArgs::rows(m, &CGROUPS)?;
        table.stats = m.get_flag("stats");
        table.source = table::saved(m);
        let given = m.get_many::<OsString>("paths").into_iter().flatten();
        let paths: Vec<Vec<u8>> = given.map(|path| path_of(path.as_bytes()).to_vec()).collect();
        if paths.iter().any(Vec::is_empty) {
            return Err(Exit::Usage(
                "the path of a cgroup must not be empty; / is the root".into(),
            ));
        }
        let delay = m.get_one::<Duration>("delay").copied();
        if delay.is_some_and(|d| d.is_zero()) {
            return Err(Exit::Usage("--delay must be more than 0".into()));
        }
        let value = |option| m.get_one::<String>(option).map(|name| (option, name.clone()));
        let place = value("container").or_else(|| value("pod"));
        Ok(CgroupsArgs { table, paths, place, flat: m.get_flag("flat"), delay })
    }
}
