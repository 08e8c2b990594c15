//! The options of `taskdiag top`.

use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint};
use taskdiag::Choice;
use taskdiag::field::{Set, TOP};
use taskdiag::view::Filter;

use super::{engine, lists, table};
use crate::columns::{self, Column};
use crate::exit::{self, Asked, Exit};
use crate::order::{self, Key};
use crate::output::Form;
use crate::units::{self, Units};

/// The columns of this command.
pub static SET: &Set = &TOP;

/// Parsed options of `taskdiag top`.
#[derive(Clone, Debug)]
pub struct TopArgs {
    /// Time between two answers. `None`: the saved one, or a second.
    pub delay: Option<Duration>,
    /// Which rows.
    pub filter: Option<Filter>,
    /// Only tasks of this user.
    pub user: Option<String>,
    /// Are processes named by their ids?
    pub has_pids: bool,
    /// Only tasks that used CPU time since the last refresh?
    pub busy: bool,
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
    /// Print instead of using the screen?
    pub once: bool,
    /// Print after each delay?
    pub batch: bool,
    /// End after this many refreshes.
    pub refreshes: Option<u32>,
    /// Cells in a line of printed rows.
    pub width: Option<usize>,
    /// Show arguments rather than names, also if saved columns have names?
    pub arguments: bool,
    /// Show a meter for each CPU?
    pub per_cpu: bool,
    /// Whether any missing data is a failure, with `once`.
    pub strict: bool,
    /// Text or JSON, if printed.
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

/// The interval if nobody chooses another one.
pub const DELAY: Duration = Duration::from_secs(1);

/// Columns that top and htop call otherwise, in small letters.
const THEIRS: &[(&[&str], &str)] = &[
    (&["%cpu", "percent_cpu", "cpu%"], "cpu_now"),
    (&["%mem", "percent_mem", "mem%"], "pmem"),
    (&["res", "m_resident"], "rss"),
    (&["virt", "m_virt", "m_size"], "vsz"),
    (&["shr", "m_share"], "rss_shmem"),
    (&["time+"], "time"),
    (&["command"], "args"),
    (&["nth"], "nlwp"),
    (&["p", "processor"], "psr"),
    (&["ppid"], "ppid"),
];

/// The column that users of top or htop mean by a name.
fn meant(name: &str) -> String {
    let small = name.to_lowercase();
    let own = THEIRS.iter().find(|(names, _)| names.contains(&small.as_str()));
    own.map_or(small, |(_, ours)| (*ours).to_owned())
}

/// A single name after `-o` is what rows are sorted by, as in top: the largest first, unless `-` is
/// before it. More names are columns.
fn key_of_top(items: &[&str]) -> Option<String> {
    let [one] = items else { return None };
    let (sign, name) = match one.strip_prefix(['-', '+']) {
        Some(name) => (&one[..1], name),
        None => ("+", *one),
    };
    let is_name = !name.contains(['=', ':']);
    let order = if sign == "-" { "" } else { "-" };
    is_name.then(|| format!("{order}{}", meant(name)))
}

const EXAMPLES: &[(&str, &str)] = &[
    ("taskdiag top", "show what runs, the busiest first; the key ? shows all keys"),
    ("taskdiag top -d 5 -H -u web", "show threads of a user, every five seconds"),
    ("taskdiag top --where 'cpu_now > 5 or s == D'", "show what is busy or stuck"),
    ("taskdiag top --by unit", "add up by unit of systemd"),
    #[cfg(feature = "record")]
    ("taskdiag top --replay /var/lib/taskdiag --at 03:10", "step through a recording"),
    ("taskdiag top --once --json --sort -write_now", "print it once, for a program"),
    ("taskdiag top -b -n 3 -d 5 > log", "print it three times, as top does"),
];

/// What it is.
const INTRO: &str = "\
It uses the whole screen and refreshes it after each delay. It shows CPU time, I/O, faults, context switches and waits since the \
last refresh, and what began and what ended. The usual options and keys of top and htop work; the key ? shows all keys, and the key \
W keeps the columns and their order for the next time.";

/// The options.
pub fn command() -> Command {
    Command::new("top")
        .about("Live view of processes (like top)")
        .before_help(INTRO)
        .help_template(table::TEMPLATE)
        .args_override_self(true)
        .next_help_heading("Selection")
        .arg(
            Arg::new("words")
                .value_name("WORD")
                .action(ArgAction::Append)
                .help("Show processes with this word in their name or arguments"),
        )
        .args(table::conditions())
        .arg(table::list("pid", "LIST", "Show processes with these ids, or PID:INODE").short('p'))
        .arg(
            table::list("filter", "WORD", "Show processes with this word, as the key F4 of htop")
                .short('F')
                .hide(true),
        )
        .arg(table::flag("busy", "Leave out what used no CPU time since the last refresh").short('i'))
        .arg(
            Arg::new("user")
                .long("user")
                .short('u')
                .visible_short_alias('U')
                .value_name("USER")
                .value_hint(ValueHint::Username)
                .help("Show tasks with this effective user, by name or uid"),
        )
        .next_help_heading("Rows")
        .arg(table::flag("threads", "Show threads instead of processes").short('H'))
        .arg(table::flag("tree", "Show children below their parents").short('t').conflicts_with("by"))
        .arg(
            Arg::new("by")
                .long("by")
                .value_name("COLUMN")
                .help("Show a row for each value of a column, such as unit, slice, container, pod, image, user, comm or exe"),
        )
        .arg(
            table::list("sort", "KEYS", "Sort by these columns; - before one puts the largest first")
                .short('s')
                .alias("sort-key")
                .allow_hyphen_values(true),
        )
        .arg(
            Arg::new("rows")
                .long("rows")
                .value_name("N")
                .value_parser(clap::value_parser!(u32))
                .help("Print at most N rows, with --once or -b"),
        )
        .next_help_heading("Columns")
        .arg(
            table::list(
                "format",
                "COLUMNS",
                "Show these columns: NAME, NAME=HEADER or NAME:WIDTH, with commas; without --once, a single name is the order, \
                 as in top",
            )
            .short('o')
            .allow_hyphen_values(true),
        )
        .arg(table::flag("arguments", "Show arguments rather than names, which is the default").short('c'))
        .arg(table::flag("per-cpu", "Show a meter for each CPU").short('1'))
        .next_help_heading("Output")
        .arg(
            table::delay().help("Refresh after this time, such as 500ms or 5s; without a unit, seconds; 1s if it is not given"),
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
        .arg(table::flag("batch", "Print again after each delay, until -n or Ctrl-C ends it").short('b'))
        .arg(
            Arg::new("refreshes")
                .long("refreshes")
                .alias("iterations")
                .short('n')
                .value_name("N")
                .value_parser(clap::value_parser!(u32).range(1..))
                .help("End after N refreshes; with --once, print at most N rows"),
        )
        .arg(
            Arg::new("width")
                .long("width")
                .short('w')
                .value_name("CELLS")
                .num_args(0..=1)
                .value_parser(clap::value_parser!(u16).range(1..))
                .help("Cut printed lines after this many cells; without a number, never"),
        )
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
        .arg(
            Arg::new("no-color")
                .long("no-color")
                .short('C')
                .action(ArgAction::SetTrue)
                .hide(true)
                .help("Use no colour, as --color never"),
        )
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
    /// How exactly the caller names the subject of the answer.
    pub fn asked(&self) -> Asked {
        match (self.strict, &self.user) {
            (true, _) => Asked::Strict,
            _ if self.has_pids => Asked::Pids,
            (false, Some(_)) => Asked::Named,
            (false, None) => Asked::All,
        }
    }
    /// From parsed options.
    pub fn from_matches(m: &ArgMatches) -> Result<TopArgs, Exit> {
        let many = |id: &str| m.get_many::<String>(id).into_iter().flatten();
        let (once, batch) = (m.get_flag("once"), m.get_flag("batch") && !m.get_flag("once"));
        let formats: Vec<&str> = many("format").map(String::as_str).collect();
        let key = key_of_top(&lists::items(many("format"))).filter(|_| !once);
        let mut columns = Vec::new();
        for spec in formats.iter().filter(|_| key.is_none()) {
            columns.extend(columns::parse_of(SET, spec)?);
        }
        let mut keys: Vec<String> = Vec::new();
        for item in lists::items(many("sort")) {
            // Names of htop, for which the largest comes first.
            let ours = meant(item);
            let is_theirs = SET.find(item).is_none() && !item.starts_with(['-', '+']);
            keys.push(if is_theirs && SET.find(&ours).is_some() && ours != item.to_lowercase() {
                format!("-{ours}")
            } else {
                item.to_owned()
            });
        }
        if keys.is_empty() {
            keys.extend(key);
        }
        let ids = lists::items(many("pid"));
        let lists::Pids { ids: pids, inodes } = lists::pids("--pid", ids)?;
        if pids.is_empty() && m.contains_id("pid") {
            return Err(Exit::Usage(String::from("--pid needs at least one process id")));
        }
        let words: Vec<String> = many("words").chain(many("filter")).cloned().collect();
        let mut filter = table::filter_from(m, SET, &words)?;
        if !pids.is_empty() {
            let list: Vec<String> = pids.iter().map(u32::to_string).collect();
            let mut text = format!("tgid in ({})", list.join(", "));
            for (pid, inode) in inodes.iter() {
                text += &format!(" and (tgid != {pid} or pidfd_ino == {inode})");
            }
            let one = Filter::parse(SET, &text).map_err(Exit::Where)?;
            filter = Some(match filter {
                Some(filter) => filter.and(one),
                None => one,
            });
        }
        let refreshes = m.get_one::<u32>("refreshes").copied();
        let rows = m.get_one::<u32>("rows").copied();
        if rows.is_some() && !once && !batch {
            return Err(Exit::Usage(String::from(
                "--rows needs --once or -b: on the screen, there are as many rows as fit",
            )));
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
            delay: m.get_one::<Duration>("delay").copied(),
            filter,
            user,
            has_pids: !pids.is_empty(),
            busy: m.get_flag("busy"),
            columns,
            sort: order::keys_in_any_case(SET, keys.iter().map(String::as_str).collect())?,
            by,
            threads: m.get_flag("threads"),
            tree: m.get_flag("tree"),
            once: once || batch,
            batch,
            refreshes: refreshes.filter(|_| !once),
            width: match m.contains_id("width") {
                true => Some(m.get_one::<u16>("width").map_or(usize::MAX, |w| usize::from(*w))),
                false => None,
            },
            arguments: m.get_flag("arguments"),
            per_cpu: m.get_flag("per-cpu"),
            strict: m.get_flag("strict"),
            form: if m.get_flag("json") { Form::Json } else { Form::Text },
            rows: rows.or(refreshes.filter(|_| once)).map(|n| n as usize),
            share: f64::from(m.get_one::<u32>("share").copied().unwrap_or(5)),
            engine: m.get_one::<Choice>("engine").copied().unwrap_or_default(),
            #[cfg(feature = "record")]
            replay: m.get_one::<std::path::PathBuf>("replay").cloned(),
            #[cfg(feature = "record")]
            at: m.get_one::<crate::moment::At>("at").copied(),
            units: if m.get_flag("json") { Units::Auto } else { units::from_matches(m)? },
            color: !m.get_flag("no-color") && (color == "always" || color == "auto" && !no_color),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<TopArgs, Exit> {
        let words = line.split(' ').filter(|w| !w.is_empty());
        let matches = command().try_get_matches_from(["top"].into_iter().chain(words));
        TopArgs::from_matches(&matches.map_err(Exit::from)?)
    }
    fn sort(line: &str) -> Vec<(&'static str, bool)> {
        let args = parsed(line).unwrap_or_else(|e| panic!("{line}: {e:?}"));
        args.sort.iter().map(|k| (k.field.name, k.descending)).collect()
    }

    #[test]
    fn options_of_top_and_htop_are_taken() {
        let args = parsed("-bn3 -d1.5 -p1,2 -u root -Hic1 -w 200").expect("as in top");
        assert!(args.batch && args.once && args.threads && args.busy && args.per_cpu);
        assert_eq!((args.refreshes, args.rows, args.width), (Some(3), None, Some(200)));
        assert_eq!(args.delay, Some(Duration::from_millis(1500)));
        assert!(args.has_pids && args.filter.is_some_and(|f| f.to_string().contains("1, 2")));
        let args = parsed("-t -C -s PERCENT_MEM -F nginx").expect("as in htop");
        assert!(args.tree && !args.color && args.filter.is_some());
        for line in ["-p x", "-p ,", "-n 0", "--rows 5", "-w 0"] {
            assert!(parsed(line).is_err(), "{line}");
        }
    }

    #[test]
    fn a_single_name_is_an_order_and_several_are_columns() {
        for (line, want) in [
            ("-o %MEM", ("pmem", true)),
            ("-o +%CPU", ("cpu_now", true)),
            ("-o -PID", ("pid", false)),
            ("-o RES", ("rss", true)),
            ("-s PERCENT_CPU", ("cpu_now", true)),
            ("--sort -rss", ("rss", true)),
        ] {
            assert_eq!(sort(line), [want], "{line}");
        }
        let columns = |line: &str| parsed(line).map(|a| a.columns.len()).expect("good");
        assert_eq!((columns("-o pid,comm"), columns("-o %MEM")), (2, 0));
        assert_eq!((columns("--once -o comm"), columns("-o comm=NAME")), (1, 1));
        let once = parsed("--once -n 1").expect("as before");
        assert_eq!((once.rows, once.refreshes, once.batch), (Some(1), None, false));
    }
}
