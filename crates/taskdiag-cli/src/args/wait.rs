//! The options of `taskdiag wait`.

use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command};
use taskdiag::field::TASKS;
use taskdiag::view::Filter;

use super::{lists, table};
use crate::exit::{self, Exit};
use crate::limits;

/// Parsed options of `taskdiag wait`.
#[derive(Clone, Debug)]
pub struct WaitArgs {
    /// The processes, each once, some with the inode of the pidfd.
    pub pids: Vec<(u32, Option<u64>)>,
    /// A condition. If there is one, `wait` waits for the processes that match it at the start.
    pub filter: Option<Filter>,
    /// End when the first of them has ended?
    pub any: bool,
    /// Wait no longer than this.
    pub timeout: Option<Duration>,
    /// One JSON object a line?
    pub jsonl: bool,
}

/// The options that select processes without their ids.
const CONDITIONS: [&str; 4] = ["where", "container", "pod", "unit"];

/// The options.
pub fn command() -> Command {
    Command::new("wait")
        .about("Wait until processes end, and show how they ended")
        .before_help(
            "The processes need not be children of this shell. The end of a process costs the same for any number of them, and \
             a later process with the same pid is not mistaken for it. Without ids, it waits for the processes that match when \
             it begins, except for itself.",
        )
        .help_template(super::table::TEMPLATE)
        .arg(
            Arg::new("pids")
                .value_name("PID")
                .num_args(1..)
                .action(ArgAction::Append)
                .required_unless_present_any(CONDITIONS)
                .help(
                    "Wait for these processes; ids may have commas or blanks between them. PID:INODE means only \
                     the process whose pidfd has that inode (the column pidfd_ino)",
                ),
        )
        .args(table::conditions().map(|condition| condition.conflicts_with("pids")))
        .arg(
            Arg::new("any")
                .long("any")
                .action(ArgAction::SetTrue)
                .conflicts_with("all")
                .help("End when one of them has ended"),
        )
        .arg(
            Arg::new("all")
                .long("all")
                .action(ArgAction::SetTrue)
                .help("End when all of them have ended, which is the default"),
        )
        .arg(
            Arg::new("timeout")
                .long("timeout")
                .short('t')
                .value_name("TIME")
                .value_parser(limits::duration)
                .help("Wait no longer than this, such as 500ms, 10s or 2m; the exit code is then 3"),
        )
        .arg(
            Arg::new("jsonl")
                .long("jsonl")
                .action(ArgAction::SetTrue)
                .help("Print a JSON object on a line of its own when a process ends"),
        )
        .after_help(exit::examples(&[
            ("taskdiag wait 4242", "wait until process 4242 has ended"),
            ("taskdiag wait --any 41 42 43", "wait for the first of three"),
            ("taskdiag wait --container web", "wait for the processes that a container has now"),
            ("taskdiag wait -t 30s $(pgrep -x make)", "wait for all of that name, for 30 s"),
        ]))
}

impl WaitArgs {
    /// From parsed options.
    pub fn from_matches(m: &ArgMatches) -> Result<WaitArgs, Exit> {
        let given = m.get_many::<String>("pids").into_iter().flatten();
        let mut pids = Vec::new();
        for item in lists::items(given) {
            match lists::pid_and_inode("wait", item)? {
                (0, _) => return Err(Exit::Usage(String::from("wait: there is no process 0"))),
                pid => pids.push(pid),
            }
        }
        let mut seen = std::collections::HashSet::new();
        pids.retain(|(pid, _)| seen.insert(*pid));
        let filter = table::filter_from(m, &TASKS, &[])?;
        if pids.is_empty() && filter.is_none() {
            return Err(Exit::Usage(String::from("wait needs at least one process id")));
        }
        Ok(WaitArgs {
            pids,
            filter,
            any: m.get_flag("any"),
            timeout: m.get_one::<Duration>("timeout").copied(),
            jsonl: m.get_flag("jsonl"),
        })
    }
}
