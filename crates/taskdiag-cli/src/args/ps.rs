//! The options of `taskdiag ps`, and what they mean together.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Arg, ArgMatches, Command, ValueHint};
use taskdiag::Choice;
use taskdiag::field::TASKS;
use taskdiag::view::{Filter, Selection};

use super::limits::Limits;
use super::table::{flag, list};
use super::{bsd, engine, lists, table};
use crate::answer::Source;
use crate::columns::{self, Column, ThreadColumns, View};
use crate::exit::{self, Exit};
use crate::order::{self, Key};
use crate::output::terminal::Color;

/// The form of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A table.
    Text,
    /// One JSON document.
    Json,
    /// A JSON object a line.
    JsonLines,
    /// CSV.
    Csv,
}

/// How a tree is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeStyle {
    /// As fits the terminal.
    Auto,
    /// As procps.
    Ascii,
}

/// What `taskdiag ps` was asked for.
#[derive(Clone, Debug)]
pub struct Args {
    /// Which tasks.
    pub select: Selection,
    /// Which of them, by `--where`.
    pub filter: Option<Filter>,
    /// A row for each thread?
    pub threads: bool,
    /// Columns asked for with `-o`; empty: those of the view.
    pub columns: Vec<Column>,
    /// The view, where there is no `-o`.
    pub view: View,
    /// How the view shows threads.
    pub thread_columns: ThreadColumns,
    /// Sort keys.
    pub sort: Vec<Key>,
    /// As a tree?
    pub tree: Option<TreeStyle>,
    /// A line of headers?
    pub headers: bool,
    /// Text, JSON, CSV.
    pub form: Form,
    /// Where the answer comes from.
    pub source: Source,
    /// Say what it cost?
    pub stats: bool,
    /// When to colour.
    pub color: Color,
    /// Lines longer than the terminal?
    pub wide: bool,
    /// Lines of at most so many cells.
    pub width: Option<usize>,
}

const VIEWS: &[(&str, View)] = &[
    ("default", View::Default),
    ("sysv", View::SysV),
    ("full", View::Full),
    ("extra-full", View::ExtraFull),
    ("jobs", View::Jobs),
    ("full-jobs", View::FullJobs),
    ("long", View::Long),
    ("full-long", View::FullLong),
    ("bsd", View::Bsd),
    ("bsd-user", View::BsdUser),
    ("bsd-jobs", View::BsdJobs),
    ("bsd-long", View::BsdLong),
    ("bsd-memory", View::BsdMemory),
    ("bsd-signals", View::BsdSignals),
];

/// What `ps` users need not learn anew.
pub const HABITS: &str = "\
The habits of procps work: ps aux, ps -ef, ps -eLf, ps axo pid,comm, ps axjf, ps -C name, ps 42.";

/// The other spellings that procps has for it.
const NO_HEADERS: [&str; 6] =
    ["no-header", "no-heading", "no-headings", "noheader", "noheaders", "noheading"];

/// The options.
pub fn command() -> Command {
    Command::new("ps")
        .about("Show processes or threads: all, or those that meet one of the conditions")
        .override_usage("taskdiag ps [OPTIONS] [LETTERS as in aux] [PID...]")
        .args_override_self(true)
        .next_help_heading("Selection")
        .arg(
            list("pid", "LIST", "Processes by id (with -T also threads)")
                .short('p')
                .short_alias('q')
                .alias("quick-pid"),
        )
        .arg(list("ppid", "LIST", "Children of these processes"))
        .arg(
            list("user", "LIST", "By effective user, name or uid")
                .short('u')
                .value_hint(ValueHint::Username),
        )
        .arg(list("ruser", "LIST", "By real user").short('U').alias("User"))
        .arg(list("rgroup", "LIST", "By real group").short('G').alias("Group"))
        .arg(list("command", "LIST", "By command name").short('C'))
        .arg(list("sid", "LIST", "By session").short('s').alias("session"))
        .arg(list("tty", "LIST", "By terminal, such as pts/0").short('t'))
        .arg(flag("all", "All, whatever else is said (-A too)").short('e').short_alias('A'))
        .arg(flag("with-tty", "Those with a terminal, but not session leaders").short('a'))
        .arg(flag("deselect", "Those that are not selected").short('N'))
        .arg(table::filter())
        .arg(flag("running", "Only those that run, or wait for what cannot be interrupted (R, D)"))
        .next_help_heading("Rows")
        .arg(flag("threads", "A row for each thread; adds the column TID").short('T'))
        .arg(flag("lwp", "A row for each thread; adds LWP and NLWP").short('L'))
        .arg(flag("tree", "Children below their parents"))
        .arg(flag("forest", "The same, drawn as procps does").short('H'))
        .arg(
            list("sort", "KEYS", "Sort by columns; - before one: largest first")
                .allow_hyphen_values(true),
        )
        .next_help_heading("Columns")
        .arg(
            list(
                "format",
                "COLUMNS",
                "Columns of 'taskdiag fields', with commas; NAME=HEADER, NAME:WIDTH",
            )
            .short('o'),
        )
        .arg(flag("full", "UID PID PPID C STIME TTY TIME CMD").short('f'))
        .arg(flag("extra-full", "As -f, and SZ RSS PSR").short('F'))
        .arg(flag("jobs", "PID PGID SID TTY TIME CMD").short('j'))
        .arg(flag("long", "F S UID PID PPID C PRI NI ADDR SZ WCHAN TTY TIME CMD").short('l'))
        .next_help_heading("Output")
        .arg(flag("no-headers", "No line of headers").aliases(NO_HEADERS))
        .arg(flag("json", "One JSON document").conflicts_with_all(["jsonl", "csv"]))
        .arg(flag("jsonl", "A JSON object a line").conflicts_with("csv"))
        .arg(flag(
            "csv",
            "CSV; unprintable bytes are \\xHH, characters \\u{HEX}, a backslash is doubled",
        ))
        .arg(table::color())
        .arg(table::wide())
        .arg(table::columns())
        .next_help_heading("Source")
        .arg(table::from())
        .arg(engine())
        .args(Limits::options())
        .arg(flag("stats", "Say on standard error who answered, and at what cost"))
        .arg(flag("bsd-a", "Those with a terminal").hide(true))
        .arg(flag("bsd-x", "Your own").hide(true))
        .arg(flag("lwp-rows", "A row for each thread, without a column for it").hide(true))
        .arg(
            Arg::new("view")
                .long("view")
                .hide(true)
                .value_parser(clap::builder::PossibleValuesParser::new(VIEWS.iter().map(|v| v.0)))
                .help("A ready-made set of columns"),
        )
        .after_help(format!("{HABITS}\n\n{}\n\n{}", table::WHERE, exit::codes_text()))
}

/// What an option of the rewritten BSD letters does: its own name, or what it says of itself where
/// users do not see it; of a view, its columns.
pub fn meaning(option: &str) -> String {
    if let Some(name) = option.strip_prefix("--view=") {
        let view = VIEWS.iter().find(|(n, _)| *n == name).map(|(_, v)| *v);
        let columns = view.map(|v| v.columns(ThreadColumns::None)).unwrap_or_default();
        return columns.iter().map(|c| c.header.as_str()).collect::<Vec<_>>().join(" ");
    }
    let command = command();
    let long = option.trim_start_matches('-');
    match command.get_arguments().find(|a| a.get_long() == Some(long)) {
        Some(a) if a.is_hide_set() => a.get_help().map(ToString::to_string).unwrap_or_default(),
        _ => option.to_owned(),
    }
}

/// Parse what follows `taskdiag ps`.
pub fn parse(args: Vec<OsString>) -> Result<Args, Exit> {
    let command = command().bin_name("taskdiag ps").no_binary_name(true);
    let args = normalize(&command, &args)?;
    Args::from_matches(&command.try_get_matches_from(args)?)
}

/// Rewrite BSD-style arguments, knowing from the option table what takes a value.
fn normalize(command: &Command, args: &[OsString]) -> Result<Vec<OsString>, Exit> {
    let valued = || command.get_arguments().filter(|a| a.get_action().takes_values());
    let short = |c| {
        valued().any(|a| {
            a.get_short() == Some(c) || a.get_all_short_aliases().is_some_and(|v| v.contains(&c))
        })
    };
    let long = |l: &str| {
        valued()
            .any(|a| a.get_long() == Some(l) || a.get_all_aliases().is_some_and(|v| v.contains(&l)))
    };
    let names: Vec<&str> = command.get_arguments().filter_map(Arg::get_long).collect();
    bsd::normalize(args, short, long, &names)
}

impl Args {
    /// From parsed options.
    pub fn from_matches(m: &ArgMatches) -> Result<Args, Exit> {
        let many = |id: &str| m.get_many::<String>(id).into_iter().flatten();
        let flag = |id: &str| m.get_flag(id);
        let mut columns = Vec::new();
        for spec in many("format") {
            columns.extend(columns::parse(spec)?);
        }
        let form = match (flag("json"), flag("jsonl"), flag("csv")) {
            (true, ..) => Form::Json,
            (_, true, _) => Form::JsonLines,
            (_, _, true) => Form::Csv,
            _ => Form::Text,
        };
        let tree = match (flag("forest"), flag("tree")) {
            (true, _) => Some(TreeStyle::Ascii),
            (_, true) => Some(TreeStyle::Auto),
            _ => None,
        };
        Ok(Args {
            select: selection(m)?,
            filter: table::filter_from(m, &TASKS)?,
            threads: flag("threads") || flag("lwp") || flag("lwp-rows"),
            columns,
            view: view(m),
            thread_columns: match (flag("threads"), flag("lwp")) {
                (true, _) => ThreadColumns::Tid,
                (_, true) => ThreadColumns::Lwp,
                _ => ThreadColumns::None,
            },
            sort: order::keys(&TASKS, lists::items(many("sort")))?,
            tree,
            headers: !flag("no-headers"),
            form,
            source: Source {
                from: m.get_one::<PathBuf>("from").cloned(),
                engine: m.get_one::<Choice>("engine").copied().unwrap_or_default(),
                limits: Limits::from_matches(m),
            },
            stats: flag("stats"),
            color: table::color_from(m),
            wide: m.get_count("wide") > 0,
            width: m.get_one::<u16>("columns").map(|n| usize::from(*n)),
        })
    }
}

fn selection(m: &ArgMatches) -> Result<Selection, Exit> {
    let items = |id: &str| lists::items(m.get_many::<String>(id).into_iter().flatten());
    let ids = |id: &str, option: &str, parse: fn(&str, &str) -> Result<u32, Exit>| {
        let list: Vec<u32> =
            items(id).into_iter().map(|s| parse(option, s)).collect::<Result<_, _>>()?;
        if list.is_empty() && m.contains_id(id) {
            return Err(Exit::Usage(format!("{option} needs at least one value")));
        }
        Ok(list)
    };
    let (a, x) = (m.get_flag("bsd-a"), m.get_flag("bsd-x"));
    Ok(Selection {
        all: m.get_flag("all") || a && x,
        pids: ids("pid", "--pid", lists::pid)?,
        ppids: ids("ppid", "--ppid", lists::pid)?,
        euids: ids("user", "--user", lists::uid)?,
        ruids: ids("ruser", "--ruser", lists::uid)?,
        rgids: ids("rgroup", "--rgroup", lists::gid)?,
        sids: ids("sid", "--sid", lists::pid)?,
        commands: lists::commands(m.get_many::<String>("command").into_iter().flatten())?,
        ttys: ids("tty", "--tty", lists::tty)?,
        with_tty: a && !x || m.get_flag("with-tty"),
        not_leaders: m.get_flag("with-tty"),
        own: (x && !a).then(|| rustix::process::geteuid().as_raw()),
        running: m.get_flag("running"),
        deselect: m.get_flag("deselect"),
    })
}

fn view(m: &ArgMatches) -> View {
    if let Some(name) = m.get_one::<String>("view") {
        let named = VIEWS.iter().find(|(n, _)| n == name);
        return named.map_or(View::Default, |(_, v)| *v);
    }
    let flag = |id: &str| m.get_flag(id);
    match (flag("full"), flag("jobs"), flag("long")) {
        _ if flag("extra-full") => View::ExtraFull,
        (true, _, true) => View::FullLong,
        (true, true, _) => View::FullJobs,
        (true, ..) => View::Full,
        (_, _, true) => View::Long,
        (_, true, _) => View::Jobs,
        _ if flag("bsd-a") || flag("bsd-x") => View::Bsd,
        _ if flag("all") || flag("with-tty") || flag("lwp") => View::SysV,
        _ => View::Default,
    }
}
