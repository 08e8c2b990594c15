//! The options of `taskdiag record`.

use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, ArgMatches, Command, ValueHint};
use taskdiag::field::{TASKS, groups_of};
use taskdiag::{Choice, Groups, Request};

use super::{dump, engine, table};
use crate::columns;
use crate::exit::{self, Exit};
use crate::limits::{self, PageLimits};
use crate::saved::RECORDED;

/// Parsed options of `taskdiag record`.
#[derive(Clone, Debug)]
pub struct RecordArgs {
    /// Where the recording is.
    pub dir: PathBuf,
    /// How often an answer is appended.
    pub every: Duration,
    /// How long answers are kept.
    pub keep: Duration,
    /// How large the recording may be.
    pub max_size: NonZeroU64,
    /// `max_size` removes no answers younger than this.
    pub keep_at_least: Duration,
    /// Print what the recording holds, and record nothing?
    pub show: bool,
    /// Threads rather than processes?
    pub threads: bool,
    /// Record cgroups, too?
    pub cgroups: bool,
    /// The groups.
    pub groups: Groups,
    /// End after this many answers.
    pub count: Option<u32>,
    /// Who answers.
    pub engine: Choice,
    /// How much of the machine's time an answer may take.
    pub limits: PageLimits,
}

/// Without `--keep-at-least`, `--max-size` leaves this part of `--keep` alone.
const KEEP_AT_LEAST: u32 = 7;

/// Explains what a recording contains, and its cost.
const INTRO: &str = "\
ps, tree, memory, files, maps, cgroups and report show what was recorded with --from DIR --at TIME, and top with --replay DIR.

DIR gets a file for each day. An answer is compressed with an earlier one as a dictionary, so what did not change takes \
nearly no room. A crash loses at most the answer that was being written. The oldest files are removed as --keep and \
--max-size say. No user can fill DIR so that others' answers are lost: --keep-at-least says what stays.

A recording has the arguments of all processes, which may contain secrets, so only its owner may open DIR. It has what ps, tree \
and top show. More groups cost more: with --groups default,files it has open files, too.";

const EXAMPLES: &[(&str, &str)] = &[
    ("sudo taskdiag record /var/lib/taskdiag", "keep the last 7 days"),
    ("sudo taskdiag ps --from /var/lib/taskdiag --at 03:10", "show the processes of that time"),
    ("taskdiag record --every 1s --keep 1d recording", "record every second"),
    ("sudo taskdiag record --cgroups /var/lib/taskdiag", "keep what each cgroup used, too"),
    (
        "sudo taskdiag record --show /var/lib/taskdiag",
        "show when it begins and ends, and what it has",
    ),
];

/// The options.
pub fn command() -> Command {
    Command::new("record")
        .about("Record processes, to look at any moment later")
        .before_help(INTRO)
        .help_template(table::TEMPLATE)
        .arg(
            Arg::new("dir")
                .value_name("DIR")
                .required(true)
                .value_parser(clap::value_parser!(PathBuf))
                .value_hint(ValueHint::DirPath)
                .help("Record to this directory, which is created if it does not exist"),
        )
        .arg(
            Arg::new("every")
                .long("every")
                .value_name("TIME")
                .default_value("10s")
                .value_parser(interval)
                .help("Append an answer this often, such as 1s, 10s or 1m"),
        )
        .arg(
            Arg::new("keep")
                .long("keep")
                .value_name("TIME")
                .default_value("7d")
                .value_parser(keep)
                .help("Remove the file of a day when the day ended longer ago than this, such as 12h or 7d"),
        )
        .arg(
            Arg::new("max-size")
                .long("max-size")
                .value_name("SIZE")
                .default_value("2G")
                .value_parser(limits::size)
                .help("Remove the oldest files when all together would take more than this, such as 500M or 2G"),
        )
        .arg(
            Arg::new("keep-at-least")
                .long("keep-at-least")
                .value_name("TIME")
                .value_parser(keep)
                .help(
                    "Do not remove answers younger than this for --max-size; record less of the users who take most space \
                     instead [default: a seventh of --keep]",
                ),
        )
        .arg(table::flag(
            "cgroups",
            "Record what each cgroup uses and may use, too, for 'taskdiag cgroups --from DIR'",
        ))
        .arg(table::flag("threads", "Record threads instead of processes, which takes more room"))
        .arg(
            Arg::new("groups")
                .long("groups")
                .short('g')
                .value_name("LIST")
                .help(
                    "Record these groups, such as base,stat, or those of commands, such as ps,files; 'default' is what is \
                     recorded without this",
                ),
        )
        .arg(
            table::list("format", "COLUMNS", "Record the groups that these columns of 'taskdiag fields' need")
                .short('o')
                .conflicts_with("groups"),
        )
        .arg(
            Arg::new("count")
                .long("count")
                .short('n')
                .value_name("N")
                .value_parser(clap::value_parser!(u32).range(1..))
                .help("End after N answers; without this, SIGTERM or Ctrl-C ends it"),
        )
        .arg(
            table::flag("show", "Print what DIR holds, from when to when and with which gaps, and record nothing")
                .conflicts_with_all(["threads", "cgroups", "groups", "format", "count"]),
        )
        .arg(engine())
        .args(PageLimits::options())
        .after_help(exit::examples(EXAMPLES))
}

/// An interval. Shorter ones would cost more than they are worth.
fn interval(text: &str) -> Result<Duration, String> {
    let every = limits::duration(text)?;
    let range = Duration::from_millis(100)..=Duration::from_secs(86_400);
    match range.contains(&every) {
        true => Ok(every),
        false => Err(String::from("the time between two answers is 100ms to 1d")),
    }
}

/// How long a file is kept. A lone number would be seconds, and most likely means days: it is
/// refused, because files would be removed.
fn keep(text: &str) -> Result<Duration, String> {
    let keep = limits::duration(text)?;
    match text.ends_with(|c: char| c.is_ascii_digit()) {
        true => Err(format!("it needs a unit: write {text}d for days, or {text}h for hours")),
        false => Ok(keep),
    }
}

impl RecordArgs {
    /// From parsed options.
    pub fn from_matches(m: &ArgMatches) -> Result<RecordArgs, Exit> {
        let mut columns = Vec::new();
        for spec in m.get_many::<String>("format").into_iter().flatten() {
            columns.extend(columns::parse_of(&TASKS, spec)?);
        }
        let groups = match m.get_one::<String>("groups") {
            Some(list) => dump::groups_with(list, RECORDED)?,
            None if columns.is_empty() => RECORDED,
            None => groups_of(columns.iter().map(|c| c.field)) | Groups::BASE,
        };
        let keep = m.get_one::<Duration>("keep").copied().expect("it has a default");
        let keep_at_least = m.get_one::<Duration>("keep-at-least").copied();
        if keep_at_least.is_some_and(|least| least > keep) {
            return Err(Exit::Usage(String::from(
                "--keep-at-least is longer than --keep, which removes files at that age: make one shorter or the other longer",
            )));
        }
        let value = |id: &str| m.get_one::<Duration>(id).copied().expect("it has a default");
        Ok(RecordArgs {
            dir: m.get_one::<PathBuf>("dir").cloned().expect("clap requires it"),
            every: value("every"),
            keep,
            keep_at_least: keep_at_least.unwrap_or(keep / KEEP_AT_LEAST),
            max_size: m.get_one::<NonZeroU64>("max-size").copied().expect("it has a default"),
            show: m.get_flag("show"),
            threads: m.get_flag("threads"),
            cgroups: m.get_flag("cgroups"),
            groups,
            count: m.get_one::<u32>("count").copied(),
            engine: m.get_one::<Choice>("engine").copied().unwrap_or_default(),
            limits: PageLimits::from_matches(m).for_many_answers(),
        })
    }
    /// The request.
    pub fn request(&self) -> Request {
        let mut request = match self.threads {
            true => Request::all_threads(self.groups),
            false => Request::all(self.groups),
        };
        self.limits.put_into(&mut request);
        request
    }
}
