//! The options of `taskdiag why`.

use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command};
use taskdiag::field::TASKS;
use taskdiag::view::{Filter, PidfdInodes};

use super::{engine, lists, table};
use crate::answer::Source;
use crate::exit::{self, Exit};
use crate::limits::{self, PageLimits};

/// Parsed options of `taskdiag why`.
#[derive(Clone, Debug)]
pub struct WhyArgs {
    /// The processes or threads, each once. Empty: the whole machine.
    pub pids: Vec<u32>,
    /// The inodes that the pidfds of some of them have.
    pub inodes: PidfdInodes,
    /// Words to find processes by, which are conditions in `filter`, too.
    pub words: Vec<String>,
    /// The conditions of `--where`, and the words.
    pub filter: Option<Filter>,
    /// A line for each thread, instead of one for threads that wait alike?
    pub threads: bool,
    /// The stacks in the kernel and in the program, too?
    pub stack: bool,
    /// Waits of the whole machine that are shorter are left out.
    pub longer: Duration,
    /// One JSON document?
    pub json: bool,
    /// CSV?
    pub csv: bool,
    /// Repeats the report after this time.
    pub watch: Option<Duration>,
    /// Who answers: an engine, or a saved answer.
    pub source: Source,
}

/// How long a wait must be to count for the whole machine, in text.
const LONGER: &str = "1s";

/// The time between two reports. A report reads all threads.
fn interval(text: &str) -> Result<Duration, String> {
    let time = limits::duration(text)?;
    if time < Duration::from_millis(100) {
        return Err(String::from(
            "the shortest time is 100ms, because each report reads all threads",
        ));
    }
    Ok(time)
}

/// The options.
pub fn command() -> Command {
    Command::new("why")
        .about("Say what tasks wait for, since when, and who holds it")
        .before_help(
            "For each thread that waits: what for, since when, who holds it, and who is at the head of the queue. Without a PID or \
             a word, the deadlocks of the whole machine, then those who keep others waiting, and then tasks that are stuck. It needs no tracing, \
             and stops nobody. A holder is named only if somebody keeps it; condition variables, semaphores and the locks of Go, \
             Java and Rust have none. It needs the rights to trace a process: use it as root.",
        )
        .help_template(table::TEMPLATE)
        .args_override_self(true)
        .override_usage("taskdiag why [OPTIONS] [PID...] [WORD...]")
        .arg(
            Arg::new("pids")
                .value_name("PID|WORD")
                .action(ArgAction::Append)
                .help("Explain the threads of these processes, or these threads; a word selects processes with it in their name or arguments"),
        )
        .next_help_heading("Selection")
        .arg(
            table::list("pid", "LIST", "Explain the threads of these processes, as PID does")
                .short('p'),
        )
        .args(table::conditions())
        .arg(
            Arg::new("longer")
                .long("longer")
                .value_name("TIME")
                .value_parser(limits::duration)
                .default_value(LONGER)
                .help("Without a PID, leave out waits that are shorter, unless they are deadlocks"),
        )
        .next_help_heading("Output")
        .arg(table::flag("threads", "Show each thread, even if many wait alike"))
        .arg(table::flag("stack", "Show the stack of each thread that is explained, in the kernel and in its program"))
        .arg(super::json())
        .arg(
            table::flag("csv", "Print CSV, with a row for each thread and its holder")
                .conflicts_with("json"),
        )
        .arg(
            Arg::new("watch")
                .long("watch")
                .value_name("TIME")
                .value_parser(interval)
                .help("Repeat the report after this time, until Ctrl-C; with --json, a document in each line"),
        )
        .next_help_heading("Source")
        .arg(engine().conflicts_with("from"))
        .arg(table::from().conflicts_with_all(["watch", "stack"]))
        .args(table::at())
        .after_help(exit::examples(&[
            ("taskdiag why", "find deadlocks and those who keep others waiting"),
            ("taskdiag why 4242", "explain what the threads of a process wait for"),
            ("taskdiag why nginx", "explain those of processes with this word in their name or arguments"),
            ("taskdiag why --where 'user == web'", "only where tasks of this user wait"),
            ("taskdiag why --stack 4242", "with the functions of the kernel and of the program"),
            ("taskdiag why --json 4242", "print waits, holders and chains for a program"),
            ("taskdiag why --watch 10s", "look again every 10 seconds"),
        ]))
}

impl WhyArgs {
    /// Is it about the whole machine?
    pub fn is_of_machine(&self) -> bool {
        self.pids.is_empty() && self.words.is_empty()
    }
    /// From parsed options.
    pub fn from_matches(m: &ArgMatches) -> Result<WhyArgs, Exit> {
        let given = || m.get_many::<String>("pids").into_iter().flatten();
        let words: Vec<String> = given().filter(|a| table::is_word(a)).cloned().collect();
        let of_option = || m.get_many::<String>("pid").into_iter().flatten();
        if of_option().next().is_some() && lists::items(of_option()).is_empty() {
            return Err(Exit::Usage(String::from("--pid needs at least one value")));
        }
        let ids = lists::items(given().filter(|a| !table::is_word(a)).chain(of_option()));
        let lists::Pids { ids: mut pids, inodes } = lists::pids("why", ids)?;
        if pids.contains(&0) {
            return Err(Exit::Usage(String::from("why: there is no process 0")));
        }
        if pids.is_empty() && words.is_empty() && m.contains_id("pids") {
            return Err(Exit::Usage(String::from("PID needs at least one value")));
        }
        pids.sort_unstable();
        pids.dedup();
        let flag = |id: &str| m.get_flag(id);
        let longer = m.get_one::<Duration>("longer").copied().unwrap_or_default();
        if flag("stack") && flag("csv") {
            let text = "--stack is for text and for --json, because a stack has many functions";
            return Err(Exit::Usage(text.to_owned()));
        }
        Ok(WhyArgs {
            pids,
            inodes,
            filter: table::filter_from(m, &TASKS, &words)?,
            words,
            threads: flag("threads"),
            stack: flag("stack"),
            longer,
            json: flag("json"),
            csv: flag("csv"),
            watch: m.get_one::<Duration>("watch").copied(),
            source: table::source(m, PageLimits::default()),
        })
    }
}
