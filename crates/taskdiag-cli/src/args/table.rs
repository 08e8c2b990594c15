//! The options that all commands with a table share: tasks, columns, order, form and source. `ps`
//! has separate options for these, because users know those of procps.

use std::cell::LazyCell;
use std::io::IsTerminal as _;
use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint};
use taskdiag::Choice;
use taskdiag::field::Set;
use taskdiag::view::{Filter, Selection};
pub use taskdiag_face::options::{TEMPLATE, flag, list};

use super::{engine, lists, places};
use crate::answer::Source;
use crate::columns::{self, Column};
use crate::exit::Exit;
use crate::limits::PageLimits;
use crate::order::{self, Key};
use crate::output::Form;
use crate::output::terminal::{Color, Terminal};
use crate::this_program;
use crate::units::{self, Units};

/// The parsed options.
#[derive(Clone, Debug)]
pub struct TableArgs {
    /// Which tasks.
    pub select: Selection,
    /// The conditions of `--where` on their rows.
    pub filter: Option<Filter>,
    /// Columns asked for with `-o`; empty: those of the view.
    pub columns: Vec<Column>,
    /// Sort keys.
    pub sort: Vec<Key>,
    /// A line of headers, and of totals?
    pub headers: bool,
    /// Text, JSON, CSV.
    pub form: Form,
    /// Where the answer comes from.
    pub source: Source,
    /// Is the cost printed (`--stats`)?
    pub stats: bool,
    /// How sizes look as text.
    pub units: Units,
    color: Color,
    wide: bool,
    width: Option<usize>,
}

/// `--wide`, which may be given twice as in ps.
pub fn wide() -> Arg {
    Arg::new("wide")
        .long("wide")
        .short('w')
        .action(ArgAction::Count)
        .help("Do not cut lines at the edge of the terminal")
}

/// `--columns N`.
pub fn columns() -> Arg {
    Arg::new("columns")
        .long("columns")
        .aliases(["cols", "width"])
        .value_name("N")
        .value_parser(clap::value_parser!(u16).range(1..))
        .help("Cut lines after N cells, whether on a terminal or not")
}

/// `--delay`, whose help says what happens after it.
pub fn delay() -> Arg {
    Arg::new("delay")
        .long("delay")
        .short('d')
        .value_name("TIME")
        .value_parser(crate::limits::duration)
}

/// `--where`.
pub fn filter() -> Arg {
    list(
        "where",
        "EXPRESSION",
        "Show only rows for which this is true, such as 'rss > 1G and user == web'",
    )
    .allow_hyphen_values(true)
}

/// `--where`, and the options that are conditions with a name of their own.
pub fn conditions() -> [Arg; 4] {
    let [container, pod, unit] = places::options();
    [filter(), container, pod, unit]
}

/// The conditions for rows of this set, joined by "and": those of [`conditions`], and one for each
/// word, which the name or the arguments of the task must have. The arguments of taskdiag
/// itself contain each word that it searches for, so such a search leaves it out, as pgrep does,
/// and also the programs that run it, such as sudo.
pub fn filter_from(
    m: &ArgMatches,
    set: &'static Set,
    words: &[String],
) -> Result<Option<Filter>, Exit> {
    // In a saved answer, another process may have our pid. Not every command has these options.
    let is_given = |id: &&str| matches!(m.try_get_one::<PathBuf>(id), Ok(Some(_)));
    let is_saved = ["from", "replay"].iter().any(is_given);
    // Most commands search for nothing, and do not look for who runs them.
    let own = LazyCell::new(|| if is_saved { Vec::new() } else { this_program::pids() });
    let expressions = m.get_many::<String>("where").into_iter().flatten();
    let filters = expressions.map(|text| {
        let filter = Filter::parse(set, text)?;
        let is_about_args = filter.fields().any(|f| f.name == "args");
        if is_about_args { filter.without(set, &own) } else { Ok(filter) }
    });
    let words = words.iter().map(|word| Filter::word(set, word)?.without(set, &own));
    let mut all = filters.chain(words).collect::<Result<Vec<_>, _>>().map_err(Exit::Where)?;
    all.extend(places::filters(m, set)?);
    Ok(all.into_iter().reduce(Filter::and))
}

/// Is this argument a word to find processes by, and not a process id?
pub fn is_word(arg: &str) -> bool {
    arg.starts_with(char::is_alphabetic)
}

/// The longest line of `--help`, in cells, on a terminal that is wider.
pub const HELP_WIDTH: usize = 100;

/// What `--where` takes, for the end of `--help`.
pub const WHERE: &str = "\
An expression of --where compares columns of 'taskdiag fields' with values:
  'rss > 1G and user == web'          K M G T are powers of 1024
  'etime < 10m or state in (R, D)'    ms s m h d are units of time
  'args ~ \"java.*kafka\"'              ~ matches a regular expression
  'tty known and not exe missing'     a value is known or missing
A row is left out if its value is not known. Standard error says how many were.
docs/reference/where.md has the whole language.";

/// When to colour.
pub fn color() -> Arg {
    Arg::new("color")
        .long("color")
        .value_name("WHEN")
        .default_value("auto")
        .hide_possible_values(true)
        .value_parser(["auto", "always", "never"])
        .help("Use colour always, never or auto: on a terminal, unless NO_COLOR is set")
}

/// The value of --color.
pub fn color_from(m: &ArgMatches) -> Color {
    match m.get_one::<String>("color").map(String::as_str) {
        Some("always") => Color::Always,
        Some("never") => Color::Never,
        _ => Color::Auto,
    }
}

/// The option `--from`.
pub fn from() -> Arg {
    Arg::new("from")
        .long("from")
        .value_name(if cfg!(feature = "record") { "FILE|DIR" } else { "FILE" })
        .value_parser(clap::value_parser!(PathBuf))
        .value_hint(ValueHint::AnyPath)
        .help(if cfg!(feature = "record") {
            "Show the answer that 'taskdiag dump' saved in FILE (- is standard input), or the last one that 'taskdiag record' \
             recorded in DIR"
        } else {
            "Show the answer that 'taskdiag dump' saved in FILE (- is standard input)"
        })
}

/// The option `--at`, which chooses an answer of a recording.
pub fn at() -> Option<Arg> {
    #[cfg(feature = "record")]
    return Some(moment("from").help(
        "With --from DIR, show the last answer recorded up to this time: 03:10, '2026-11-22 03:10:00', either with a Z for UTC, \
         or -5m for five minutes ago",
    ));
    #[cfg(not(feature = "record"))]
    None
}

/// `--at TIME`, which needs the option with this name.
#[cfg(feature = "record")]
pub fn moment(needs: &'static str) -> Arg {
    Arg::new("at")
        .long("at")
        .value_name("TIME")
        .requires(needs)
        .allow_hyphen_values(true)
        .value_parser(|text: &str| text.parse::<crate::moment::At>())
}

/// `--strict`.
pub fn strict() -> Arg {
    flag("strict", "End with 3 if anything could not be shown, not only if it was named")
}

/// Where the answer comes from.
pub fn source(m: &ArgMatches, limits: PageLimits) -> Source {
    let engine = m.get_one::<Choice>("engine").copied().unwrap_or_default();
    Source { engine, limits, ..saved(m) }
}

/// The part of the source that is about saved answers.
pub fn saved(m: &ArgMatches) -> Source {
    Source {
        from: m.get_one::<PathBuf>("from").cloned(),
        #[cfg(feature = "record")]
        at: m.get_one::<crate::moment::At>("at").copied(),
        // Some commands lack this option.
        strict: m.try_get_one::<bool>("strict").ok().flatten().is_some_and(|is| *is),
        ..Source::default()
    }
}

/// The options.
pub fn options(command: Command) -> Command {
    output(selection(command))
}

fn selection(command: Command) -> Command {
    command
        .next_help_heading("Selection")
        .arg(
            Arg::new("pids")
                .value_name("PID|WORD")
                .action(ArgAction::Append)
                .help("Show processes with these ids, or with this word in their name or arguments; without any condition, show all"),
        )
        .arg(list("pid", "LIST", "Show processes with these ids; PID:INODE means only the one whose pidfd has that inode").short('p'))
        .arg(list("ppid", "LIST", "Show children of these processes"))
        .arg(
            list("user", "LIST", "Show processes of these effective users, by name or uid")
                .short('u')
                .value_hint(ValueHint::Username),
        )
        .arg(
            list("command", "LIST", "Show processes whose command has one of these names")
                .short('C'),
        )
        .arg(
            flag("all", "Show all processes, even if conditions are given")
                .short('e')
                .short_alias('A'),
        )
}

/// The options except for those that select tasks.
pub fn output(command: Command) -> Command {
    of_answer(rows(command).next_help_heading("Source"))
}

/// Which rows, which columns, and how they are written.
pub fn rows(command: Command) -> Command {
    rows_with(command, conditions())
}

/// The same with these conditions, which are those of [`conditions`] with other words.
pub fn rows_with(command: Command, conditions: [Arg; 4]) -> Command {
    command
        .args_override_self(true)
        .next_help_heading("Selection")
        .args(conditions)
        .next_help_heading("Rows")
        .arg(
            list("sort", "KEYS", "Sort by these columns; - before one puts the largest first")
                .allow_hyphen_values(true),
        )
        .next_help_heading("Columns")
        .arg(
            list(
                "format",
                "COLUMNS",
                "Show these columns: NAME, NAME=HEADER or NAME:WIDTH, with commas",
            )
            .short('o'),
        )
        .next_help_heading("Output")
        .arg(flag("no-headers", "Print no headers, no title and no totals"))
        .args(forms())
        .args(units::options())
        .arg(color())
        .arg(wide())
        .arg(columns())
}

/// Which engine or file answers, and what is printed about that.
pub fn of_answer(command: Command) -> Command {
    command
        .arg(from())
        .args(at())
        .arg(engine())
        .args(PageLimits::options())
        .arg(strict())
        .arg(flag("stats", "Say on standard error which engine answered, and at what cost"))
}

/// The output formats for programs; at most one may be chosen.
pub fn forms() -> [Arg; 5] {
    let one = |arg: Arg| {
        let others = FORMS.iter().filter(|f| *f != arg.get_id());
        let others: Vec<&str> = others.copied().collect();
        arg.conflicts_with_all(others)
    };
    [
        flag("json", "Print one JSON document"),
        flag("jsonl", "Print one JSON object a line"),
        flag("csv", "Print CSV; bytes that cannot be printed, or would be a formula, are \\xHH"),
        flag(
            "arrow",
            match cfg!(feature = "arrow") {
                true => "Print an Apache Arrow IPC stream",
                false => "Print an Apache Arrow IPC stream; this build has been made without it",
            },
        )
        // Help is about what works here; the error says what to do.
        .hide(!cfg!(feature = "arrow")),
        Arg::new("parquet")
            .long("parquet")
            .value_name("FILE")
            .value_parser(clap::value_parser!(PathBuf))
            .value_hint(ValueHint::FilePath)
            .help(match cfg!(feature = "arrow") {
                true => {
                    "Write an Apache Parquet file, which only you may read; - is standard output"
                }
                false => "Write an Apache Parquet file; this build has been made without it",
            })
            .hide(!cfg!(feature = "arrow")),
    ]
    .map(one)
}

/// The names of these options.
pub const FORMS: [&str; 5] = ["json", "jsonl", "csv", "arrow", "parquet"];

/// From the options of [`forms`].
pub fn form_from(m: &ArgMatches) -> Result<Form, Exit> {
    let parquet = m.get_one::<PathBuf>("parquet");
    let arrow = m.get_flag("arrow").then_some(Form::Arrow);
    if let Some(form) = parquet.map(|file| Form::Parquet(file.clone())).or(arrow) {
        if !form.is_built() {
            let text = "this taskdiag was built without --arrow and --parquet: build it with 'cargo build --release \
                        -p taskdiag-cli --features arrow', or use --csv or the Python package";
            return Err(Exit::Usage(text.to_owned()));
        }
        let is_for_stdout = match &form {
            Form::Parquet(file) => file.as_os_str() == "-",
            _ => true,
        };
        if is_for_stdout && std::io::stdout().is_terminal() {
            let text = "Arrow and Parquet are binary: send them to a file or a program, as in '--arrow > tasks.arrow' or \
                        '--parquet tasks.parquet'";
            return Err(Exit::Usage(text.to_owned()));
        }
        return Ok(form);
    }
    let flag = |id: &str| m.get_flag(id);
    Ok(match (flag("json"), flag("jsonl"), flag("csv")) {
        (true, ..) => Form::Json,
        (_, true, _) => Form::JsonLines,
        (_, _, true) => Form::Csv,
        _ => Form::Text,
    })
}

impl TableArgs {
    /// From parsed options; the columns and keys belong to this set.
    pub fn from_matches(m: &ArgMatches, set: &'static Set) -> Result<TableArgs, Exit> {
        let positional = || m.get_many::<String>("pids").into_iter().flatten();
        let words: Vec<String> = positional().filter(|a| is_word(a)).cloned().collect();
        Ok(TableArgs { select: Self::selection(m)?, ..Self::filtered(m, set, &words)? })
    }
    fn selection(m: &ArgMatches) -> Result<Selection, Exit> {
        let many = |id: &str| m.get_many::<String>(id).into_iter().flatten();
        let items = |id: &str, option: &str| {
            let of_words = |arg: &&String| id == "pids" && is_word(arg);
            let items = lists::items(many(id).filter(|arg| !of_words(arg)));
            if items.is_empty() && m.contains_id(id) && !many(id).any(|arg| of_words(&arg)) {
                return Err(Exit::Usage(format!("{option} needs at least one value")));
            }
            Ok(items)
        };
        let ids = |id: &str, option: &str, parse: fn(&str, &str) -> Result<u32, Exit>| {
            items(id, option)?.into_iter().map(|s| parse(option, s)).collect::<Result<Vec<_>, _>>()
        };
        let named = items("pid", "--pid")?.into_iter().chain(items("pids", "PID")?);
        let pids = lists::pids("--pid", named)?;
        let mut select = Selection::default();
        (select.all, select.pids, select.inodes) = (m.get_flag("all"), pids.ids, pids.inodes);
        select.ppids = ids("ppid", "--ppid", lists::pid)?;
        select.euids = ids("user", "--user", lists::uid)?;
        select.commands = lists::commands(many("command"))?;
        Ok(select)
    }
    /// From the options of [`output`]: all tasks are selected.
    pub fn output(m: &ArgMatches, set: &'static Set) -> Result<TableArgs, Exit> {
        Self::filtered(m, set, &[])
    }
    /// From the options of [`rows`], for rows that are not from an engine.
    pub fn rows(m: &ArgMatches, set: &'static Set) -> Result<TableArgs, Exit> {
        Self::written(m, set, &[])
    }
    fn filtered(m: &ArgMatches, set: &'static Set, words: &[String]) -> Result<TableArgs, Exit> {
        let source = source(m, PageLimits::from_matches(m));
        Ok(TableArgs { source, stats: m.get_flag("stats"), ..Self::written(m, set, words)? })
    }
    fn written(m: &ArgMatches, set: &'static Set, words: &[String]) -> Result<TableArgs, Exit> {
        let many = |id: &str| m.get_many::<String>(id).into_iter().flatten();
        let flag = |id: &str| m.get_flag(id);
        let mut columns = Vec::new();
        for spec in many("format") {
            columns.extend(columns::parse_of(set, spec)?);
        }
        let form = form_from(m)?;
        Ok(TableArgs {
            select: Selection::default(),
            units: if form == Form::Text { units::from_matches(m)? } else { Units::Auto },
            filter: filter_from(m, set, words)?,
            columns,
            sort: order::keys_in_any_case(set, lists::items(many("sort")))?,
            headers: !flag("no-headers"),
            form,
            source: Source::default(),
            stats: false,
            color: color_from(m),
            wide: m.get_count("wide") > 0,
            width: m.get_one::<u16>("columns").map(|n| usize::from(*n)),
        })
    }
    /// The requested width.
    pub fn width(&self) -> Option<usize> {
        self.width
    }
    /// How to write text.
    pub fn terminal(&self) -> Terminal {
        let mut terminal = Terminal::detect(self.color, self.wide);
        terminal.width = self.width.or(terminal.width);
        terminal
    }
}
