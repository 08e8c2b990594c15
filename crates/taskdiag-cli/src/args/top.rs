//! The options of `taskdiag top`.

use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint};
use taskdiag::Choice;
use taskdiag::field::{Set, TOP};
use taskdiag::view::Filter;

use super::{engine, lists, table};
use crate::columns::{self, Column};
use crate::exit::{self, Asked, Exit};
use crate::limits;
use crate::order::{self, Key};
use crate::output::Form;
use crate::units::{self, Units};

/// The columns of this command.
pub static SET: &Set = &TOP;

/// Parsed options of `taskdiag top`.
#[derive(Clone, Debug)]
pub struct TopArgs {
    /// Time between two answers.
    pub delay: Duration,
    /// Which rows.
    pub filter: Option<Filter>,
    /// Only tasks of this user.
    pub user: Option<String>,
    /// Columns asked for with `-o`; empty: those of the view.
    pub columns: Vec<Column>,
    /// Sort keys; empty: those of the view.
    pub sort: Vec<Key>,
    /// One row for each value of this column.
    pub by: Option<Column>,
    /// Threads instead of processes?
    pub threads: bool,
    /// Children below their parents?
    pub tree: bool,
    /// Print once instead of using the screen?
    pub once: bool,
    /// Whether anything that is lacking is a failure, with `once`.
    pub strict: bool,
    /// Text or JSON, with `once`.
    pub form: Form,
    /// The largest number of rows, with `once`.
    pub rows: Option<usize>,
    /// The largest share of the time that scans may take, in percent.
    pub share: f64,
    /// Who answers.
    pub engine: Choice,
    /// A recording instead of this machine.
    #[cfg(feature = "record")]
    pub replay: Option<std::path::PathBuf>,
    /// The moment in the recording to begin with.
    #[cfg(feature = "record")]
    pub at: Option<crate::moment::At>,
    /// Whether colours may be used.
    pub color: bool,
    /// How sizes look as text.
    pub units: Units,
}

const EXAMPLES: &[(&str, &str)] = &[
    ("taskdiag top", "show what runs, the busiest first; the key ? shows all keys"),
    ("taskdiag top -d 5 -H -u web", "show threads of a user, every five seconds"),
    ("taskdiag top --where 'cpu_now > 5 or s == D'", "show what is busy or stuck"),
    ("taskdiag top --by unit", "add up by unit of systemd"),
    #[cfg(feature = "record")]
    ("taskdiag top --replay /var/lib/taskdiag --at 03:10", "step through a recording"),
    ("taskdiag top --once --json --sort -write_now", "print it once, for a program"),
];

/// What it is.
const INTRO: &str = "\
It uses the whole screen and asks again after each delay. It shows CPU time, I/O, faults, context switches and waits since the \
answer before, and what began and what ended. The key ? shows all keys; docs/top.md explains them and the columns.";

/// The options.
pub fn command() -> Command {
    Command::new("top")
        .about("Live view of processes (like top)")
        .before_help(INTRO)
        .help_template(table::TEMPLATE)
        .args_override_self(true)
        .next_help_heading("Selection")
        .arg(table::filter())
        .arg(
            Arg::new("user")
                .long("user")
                .short('u')
                .value_name("USER")
                .value_hint(ValueHint::Username)
                .help("Show tasks with this effective user, by name or uid"),
        )
        .next_help_heading("Rows")
        .arg(table::flag("threads", "Show threads instead of processes").short('H'))
        .arg(table::flag("tree", "Show children below their parents").conflicts_with("by"))
        .arg(
            Arg::new("by")
                .long("by")
                .value_name("COLUMN")
                .help("Show a row for each value of a column, such as unit, slice, container, user, comm or exe"),
        )
        .arg(
            table::list("sort", "KEYS", "Sort by these columns; - before one puts the largest first")
                .allow_hyphen_values(true),
        )
        .arg(
            Arg::new("rows")
                .long("rows")
                .short('n')
                .value_name("N")
                .value_parser(clap::value_parser!(u32))
                .requires("once")
                .help("Print at most N rows"),
        )
        .next_help_heading("Columns")
        .arg(table::list("format", "COLUMNS", "Show these columns: NAME, NAME=HEADER or NAME:WIDTH, with commas").short('o'))
        .next_help_heading("Output")
        .arg(
            Arg::new("delay")
                .long("delay")
                .short('d')
                .value_name("TIME")
                .default_value("1s")
                .value_parser(limits::duration)
                .help("Refresh after this time, such as 500ms or 5s; without a unit, seconds"),
        )
        .arg(
            Arg::new("share")
                .long("share")
                .value_name("PERCENT")
                .default_value("5")
                .value_parser(clap::value_parser!(u32).range(1..=100))
                .help("Make the delay longer if scans would take more than this share of the time; 100 never does"),
        )
        .arg(table::flag("once", "Print what tasks did in one delay, and end"))
        .arg(
            Arg::new("json")
                .long("json")
                .action(ArgAction::SetTrue)
                .requires("once")
                .help("Print one JSON document"),
        )
        .args(units::options())
        .arg(table::strict().requires("once"))
        .arg(table::color())
        .next_help_heading("Source")
        .arg(engine())
        .args(replay())
        .after_help(format!("{}\n\n{}", table::WHERE, exit::examples(EXAMPLES)))
}

/// The options about recordings.
fn replay() -> Vec<Arg> {
    #[cfg(feature = "record")]
    return vec![
        Arg::new("replay")
            .long("replay")
            // The name of this option in other commands.
            .visible_alias("from")
            .value_name("DIR")
            .value_parser(clap::value_parser!(std::path::PathBuf))
            .value_hint(ValueHint::AnyPath)
            .conflicts_with("engine")
            .help("Show what 'taskdiag record' recorded in DIR; the keys [ and ] step through it"),
        table::moment("replay").help(
            "With --replay, begin with the last answer recorded up to this time: 03:10, '2026-11-22 03:10:00', either with a Z \
             for UTC, or -5m for five minutes ago; without it, begin with the last answer of all",
        ),
    ];
    #[cfg(not(feature = "record"))]
    Vec::new()
}

impl TopArgs {
    /// How exactly the caller says what the answer is to be about.
    pub fn asked(&self) -> Asked {
        match (self.strict, &self.user) {
            (true, _) => Asked::Strict,
            (false, Some(_)) => Asked::Named,
            (false, None) => Asked::All,
        }
    }
    /// From parsed options.
    pub fn from_matches(m: &ArgMatches) -> Result<TopArgs, Exit> {
        let many = |id: &str| m.get_many::<String>(id).into_iter().flatten();
        let mut columns = Vec::new();
        for spec in many("format") {
            columns.extend(columns::parse_of(SET, spec)?);
        }
        let by = match m.get_one::<String>("by").map(String::as_str) {
            None => None,
            Some(name) => columns::by(SET, name)?,
        };
        let user = m.get_one::<String>("user").cloned();
        if let Some(user) = &user {
            lists::uid("--user", user)?;
        }
        let color = m.get_one::<String>("color").map_or("auto", String::as_str);
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        Ok(TopArgs {
            delay: m.get_one::<Duration>("delay").copied().unwrap_or(Duration::from_secs(1)),
            filter: table::filter_from(m, SET, &[])?,
            user,
            columns,
            sort: order::keys_in_any_case(SET, lists::items(many("sort")))?,
            by,
            threads: m.get_flag("threads"),
            tree: m.get_flag("tree"),
            once: m.get_flag("once"),
            strict: m.get_flag("strict"),
            form: if m.get_flag("json") { Form::Json } else { Form::Text },
            rows: m.get_one::<u32>("rows").map(|n| *n as usize),
            share: f64::from(m.get_one::<u32>("share").copied().unwrap_or(5)),
            engine: m.get_one::<Choice>("engine").copied().unwrap_or_default(),
            #[cfg(feature = "record")]
            replay: m.get_one::<std::path::PathBuf>("replay").cloned(),
            #[cfg(feature = "record")]
            at: m.get_one::<crate::moment::At>("at").copied(),
            units: if m.get_flag("json") { Units::Auto } else { units::from_matches(m)? },
            color: color == "always" || color == "auto" && !no_color,
        })
    }
}
