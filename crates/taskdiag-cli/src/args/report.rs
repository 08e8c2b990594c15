//! The options of `taskdiag report`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, ArgMatches, Command, ValueHint};

use super::{engine, table};
use crate::answer::Source;
use crate::exit::{self, Exit};
use crate::limits::{self, PageLimits};

/// Parsed options of `taskdiag report`.
#[derive(Clone, Debug)]
pub struct ReportArgs {
    /// Where the answer comes from.
    pub source: Source,
    /// The file to write. `None` is standard output.
    pub output: Option<PathBuf>,
    /// Ask for PSS, for which the kernel walks over all pages?
    pub pss: bool,
    /// Show open files in addition to listening sockets?
    pub files: bool,
    /// Put the arguments of processes on the page?
    pub args: bool,
    /// How much time a timeline shows.
    #[cfg_attr(not(feature = "record"), allow(dead_code))]
    pub span: Duration,
    /// The title of the page.
    pub title: Option<String>,
}

/// The default length of a timeline.
const DAY: Duration = Duration::from_secs(86_400);

/// Explains the page, and warns about secrets.
const INTRO: &str = "\
The page is one file of HTML that opens without a server and loads nothing. It shows who has the memory, the largest users of \
CPU time, memory, threads, descriptors and I/O, states, sockets that listen, and what was missing in the answer.

The page has the arguments of processes, which may hold passwords. --no-args leaves them out. docs/use/report.md tells more.";

/// The options.
pub fn command() -> Command {
    Command::new("report")
        .about("Make a page of HTML about all processes")
        .before_help(INTRO)
        .help_template(table::TEMPLATE)
        .args_override_self(true)
        .next_help_heading("Content")
        .arg(table::flag(
            "pss",
            "Show PSS, in which shared pages are shared out; the kernel walks over all pages for it, milliseconds for each GiB",
        ))
        .arg(table::flag("files", "Show open files, too, the largest first"))
        .arg(table::flag("no-args", "Leave out the arguments of processes, which may contain secrets"))
        .arg(
            Arg::new("title")
                .long("title")
                .value_name("TEXT")
                .help("Give the page this title instead of the name of the host"),
        )
        .next_help_heading("Output")
        .arg(
            Arg::new("output")
                .long("output")
                .short('o')
                .value_name("FILE")
                .value_parser(clap::value_parser!(PathBuf))
                .value_hint(ValueHint::FilePath)
                .help("Write the page to FILE, which only you may read, when it is complete; without it, to standard output"),
        )
        .next_help_heading("Source")
        .arg(table::from())
        .args(table::at())
        .args(span())
        .arg(engine())
        .args(PageLimits::options())
        .arg(table::strict())
        .after_help(exit::examples(&[
            ("taskdiag report -o now.html", "show this machine as it is now"),
            ("sudo taskdiag report --pss -o now.html", "share out shared memory"),
            ("taskdiag report --from saved.tdg > then.html", "show a saved answer"),
            ("taskdiag report --from DIR --at 03:10 -o r.html", "show a moment of a recording"),
        ]))
}

/// The time of a timeline, where recordings can be read.
fn span() -> Option<Arg> {
    let span = Arg::new("span")
        .long("span")
        .value_name("TIME")
        .requires("from")
        .value_parser(limits::duration)
        .help("With --from DIR, show this much time before the answer in the timeline, such as 30m or 7d; without it, a day");
    cfg!(feature = "record").then_some(span)
}

fn span_from(m: &ArgMatches) -> Duration {
    // There is no such option where recordings cannot be read.
    let given = m.try_get_one::<Duration>("span").ok().flatten();
    given.copied().unwrap_or(DAY)
}

impl ReportArgs {
    /// From parsed options.
    pub fn from_matches(m: &ArgMatches) -> Result<ReportArgs, Exit> {
        Ok(ReportArgs {
            source: table::source(m, PageLimits::from_matches(m).for_many_answers()),
            output: m.get_one::<PathBuf>("output").cloned(),
            pss: m.get_flag("pss"),
            files: m.get_flag("files"),
            args: !m.get_flag("no-args"),
            span: span_from(m),
            title: m.get_one::<String>("title").cloned(),
        })
    }
}
