//! The options of `taskdiag ps`, and the meaning of their combinations.

use std::ffi::OsString;

use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint};
use taskdiag::field::TASKS;
use taskdiag::view::{Filter, Selection};

use super::procps::{self, ForestStyle, Headers, Instead, Typed};
use super::table::{flag, list};
use super::{engine, lists, table};
use crate::answer::Source;
use crate::columns::{self, Column};
use crate::exit::{self, Exit};
use crate::limits::PageLimits;
use crate::order::Key;
use crate::output::Form;
use crate::output::terminal::Color;
use crate::units::{self, Units};

/// How a tree is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeStyle {
    /// The best form that the terminal can show.
    Auto,
    /// As procps.
    Ascii,
    /// By indentation, as procps with `-H`.
    Indented,
}

/// Parsed options of `taskdiag ps`.
#[derive(Clone, Debug)]
pub struct PsArgs {
    /// Which tasks.
    pub select: Selection,
    /// The conditions of `--where`.
    pub filter: Option<Filter>,
    /// A row for each thread?
    pub threads: bool,
    /// A row for each process, and below it one for each of its threads?
    pub both: bool,
    /// The columns; if empty, those of taskdiag's default view.
    pub columns: Vec<Column>,
    /// Sort keys.
    pub sort: Vec<Key>,
    /// Are rows in the order of the list of pids?
    pub as_listed: bool,
    /// As a tree?
    pub tree: Option<TreeStyle>,
    /// A line of headers?
    pub headers: bool,
    /// The number of lines after which the headers are repeated.
    pub page: Option<usize>,
    /// Text, JSON, CSV.
    pub form: Form,
    /// Where the answer comes from.
    pub source: Source,
    /// Is the cost printed (`--stats`)?
    pub stats: bool,
    /// How sizes look as text.
    pub units: Units,
    /// The text between columns, in place of blanks.
    pub delimiter: Option<u8>,
    /// When to colour.
    pub color: Color,
    /// How often `-w` was given.
    pub wide: u32,
    /// The width of a line, in cells.
    pub width: Option<usize>,
    /// Exactly as procps, including exit codes.
    pub strict: bool,
    /// Printed instead of a list.
    pub instead: Option<Instead>,
}

/// Says which habits of `ps` users still work.
pub const HABITS: &str = "\
The options of procps work: ps aux, ps -ef, ps -eLf, ps axo pid,comm, ps axjf, ps -C name, ps 42.";

/// The other spellings of this option in procps.
const NO_HEADERS: [&str; 6] =
    ["no-header", "no-heading", "no-headings", "noheader", "noheaders", "noheading"];

const EXAMPLES: &[(&str, &str)] = &[
    ("taskdiag ps", "show all processes"),
    ("taskdiag ps aux", "use the columns of procps"),
    ("taskdiag ps firefox", "show those with this word in their name or arguments"),
    ("taskdiag ps -C firefox", "show those of a program"),
    ("taskdiag ps --where 'rss > 1G'", "show those that are large"),
    ("taskdiag ps --threads --sort -time", "show threads, the busiest first"),
    ("taskdiag ps --json -o pid,start_ticks,args", "print JSON for a program"),
    ("taskdiag --as ps -ef", "print just what procps prints"),
];

/// The options. Those of procps are listed for `--help`, the man page and completions, but
/// [`procps::parse`] reads them. clap only reads taskdiag's own options, [`OWN`].
pub fn command() -> Command {
    Command::new("ps")
        .about("Show processes or threads, as ps does")
        .override_usage("taskdiag ps [OPTIONS] [LETTERS as in aux] [PID...] [WORD...]")
        .args_override_self(true)
        .next_help_heading("Selection")
        .arg(list("pid", "LIST", "Show processes with these ids").short('p'))
        .arg(list("quick-pid", "LIST", "Show processes with these ids, in this order").short('q'))
        .arg(list("ppid", "LIST", "Show children of these processes"))
        .arg(
            list("user", "LIST", "Show processes of these effective users, by name or uid")
                .short('u')
                .value_hint(ValueHint::Username),
        )
        .arg(list("ruser", "LIST", "Show processes of these real users").short('U').alias("User"))
        .arg(list("group", "LIST", "Show processes of these effective groups"))
        .arg(list("rgroup", "LIST", "Show processes of these real groups").short('G').alias("Group"))
        .arg(list("command", "LIST", "Show processes whose command has one of these names").short('C'))
        .arg(list("sid", "LIST", "Show processes of these sessions").short('s').alias("session"))
        .arg(short_list("session-or-group", 'g', "LIST", "Show processes by session id, or by name of the effective group"))
        .arg(list("tty", "LIST", "Show processes on these terminals, such as pts/0").short('t'))
        .arg(flag("all", "Show all processes (also -A)").short('e').short_alias('A'))
        .arg(flag("with-tty", "Show processes with a terminal, without session leaders").short('a'))
        .arg(short_flag("not-leaders", 'd', "Show all processes but session leaders"))
        .arg(flag("deselect", "Show the processes that the other conditions do not select").short('N'))
        .arg(table::filter())
        .arg(flag("running", "Show only processes that run or are in an uninterruptible wait (R, D)"))
        .next_help_heading("Rows")
        .arg(flag("threads", "Print a row for each thread, with the column TID"))
        .arg(short_flag("spid", 'T', "Print a row for each thread, with the column SPID"))
        .arg(flag("lwp", "Print a row for each thread, with the columns LWP and NLWP").short('L'))
        .arg(short_flag("both", 'm', "Print a row for each process, and below it one for each of its threads"))
        .arg(flag("tree", "Print children below their parents, as a tree"))
        .arg(flag("forest", "Print the tree as procps draws it"))
        .arg(short_flag("indented", 'H', "Print the tree by indentation alone"))
        .arg(
            list("sort", "KEYS", "Sort by these columns; - before one puts the largest first")
                .allow_hyphen_values(true),
        )
        .next_help_heading("Columns")
        .arg(
            list(
                "format",
                "COLUMNS",
                "Show these columns of 'taskdiag fields': NAME, NAME=HEADER or NAME:WIDTH, with commas",
            )
            .short('o'),
        )
        .arg(short_list("among", 'O', "COLUMNS", "Show these columns between PID and S TTY TIME COMMAND"))
        .arg(flag("full", "Show UID PID PPID C STIME TTY TIME CMD").short('f'))
        .arg(flag("extra-full", "Show the columns of -f, and SZ RSS PSR").short('F'))
        .arg(flag("jobs", "Show PID PGID SID TTY TIME CMD").short('j'))
        .arg(flag("long", "Show F S UID PID PPID C PRI NI ADDR SZ WCHAN TTY TIME CMD").short('l'))
        .arg(short_flag("with-rss", 'y', "With -l, show RSS in place of ADDR, and no F"))
        .arg(short_flag("class", 'c', "Add a column for the scheduling class"))
        .arg(short_flag("processor", 'P', "Add a column for the processor"))
        .arg(short_flag("label", 'M', "Add a column for the security label (also -Z)").short_alias('Z'))
        .arg(flag("context", "Show PID CONTEXT COMMAND"))
        .arg(flag("cumulative", "Include reaped children in TIME"))
        .next_help_heading("Output")
        .arg(flag("no-headers", "Print no line of headers").aliases(NO_HEADERS))
        .arg(flag("headers", "Print a line of headers on each page").aliases(["header", "heading", "headings"]))
        .arg(Arg::new("lines").long("lines").alias("rows").value_name("N").help("Begin a new page after N lines (with --headers)"))
        .args(table::forms())
        .args(units::options())
        .arg(table::color())
        .arg(
            table::wide().help("Cut lines after 132 cells, not at the edge of the terminal; -ww cuts no line"),
        )
        .arg(table::columns())
        .arg(
            Arg::new("delimiter")
                .long("delimiter")
                .value_name("C")
                .help("Put this character between columns, and no blanks"),
        )
        .next_help_heading("Source")
        .arg(table::from())
        .args(table::at())
        .arg(engine())
        .args(PageLimits::options())
        .arg(PageLimits::args_option())
        .arg(table::strict())
        .arg(flag("stats", "Say on standard error which engine answered, and at what cost"))
        .arg(short_flag("show-version", 'V', "Print the version"))
        .after_help(format!("{HABITS}\n\n{}\n\n{}", table::WHERE, exit::examples(EXAMPLES)))
}

/// A letter without a long name.
fn short_flag(id: &'static str, letter: char, help: &'static str) -> Arg {
    Arg::new(id).short(letter).action(ArgAction::SetTrue).help(help)
}

/// A letter without a long name, with a list as its value.
fn short_list(id: &'static str, letter: char, value: &'static str, help: &'static str) -> Arg {
    Arg::new(id).short(letter).action(ArgAction::Append).value_name(value).help(help)
}

/// The default height of a page.
fn screen_lines() -> usize {
    let env = std::env::var("LINES").ok().and_then(|n| n.parse().ok()).filter(|n| *n > 0);
    let window = || rustix::termios::tcgetwinsize(std::io::stdout()).ok();
    env.or_else(|| window().map(|w| usize::from(w.ws_row)).filter(|n| *n > 0)).unwrap_or(24)
}

/// Long names of options that procps does not have.
#[cfg(test)]
const OWN: &[&str] = &[
    "running", "where", "threads", "tree", "json", "jsonl", "csv", "arrow", "parquet", "human",
    "units", "color", "from", "at", "engine", "budget", "max-rss", "args", "stats", "strict",
];

/// taskdiag's long names for letters of procps.
const LETTERS: &[(&str, &str)] = &[
    ("--all", "-e"),
    ("--command", "-C"),
    ("--extra-full", "-F"),
    ("--full", "-f"),
    ("--jobs", "-j"),
    ("--long", "-l"),
    ("--lwp", "-L"),
    ("--rgroup", "-G"),
    ("--ruser", "-U"),
    ("--session", "-s"),
    ("--wide", "-w"),
    ("--with-tty", "-a"),
];

/// Parse what follows `taskdiag ps`.
pub fn parse(args: &[OsString]) -> Result<PsArgs, Exit> {
    let command =
        command().bin_name("taskdiag ps").no_binary_name(true).max_term_width(table::HELP_WIDTH);
    let (own, mut theirs) = split(&command, args)?;
    for i in 0..theirs.len() {
        if i > 0 && takes_columns(&theirs[i - 1]) {
            theirs[i] = columns::tidied(&TASKS, &theirs[i]);
        } else if let Some((option @ ("--format" | "--sort"), list)) = theirs[i].split_once('=') {
            theirs[i] = format!("{option}={}", columns::tidied(&TASKS, list));
        }
    }
    let matches = command.try_get_matches_from(own)?;
    let (typed, words) = only_in_names(args, procps::parse_with_words(theirs), |(t, _)| t)?;
    PsArgs::new(&typed, &matches, &words, false)
}

/// Is the next word the columns of this option, or the keys?
fn takes_columns(option: &str) -> bool {
    let is_letter = || option.ends_with(['o', 'O', 'k']) && option.len() < 12;
    ["--format", "--sort"].contains(&option) || is_letter() && procps::wants_value(option)
}

/// Parse the arguments of a `ps` that is procps to the letter.
pub fn parse_strict(args: &[OsString]) -> Result<PsArgs, Exit> {
    let read = || {
        let words: Vec<_> = args.iter().map(|a| lists::with_bytes(a)).collect();
        let defaults = command().no_binary_name(true).try_get_matches_from([""; 0])?;
        let typed = only_in_names(args, procps::parse(&words), |t| t)?;
        PsArgs::new(&typed, &defaults, &[], true)
    };
    read().map_err(|e| match e {
        Exit::Usage(text) => Exit::Refused(format!("error: {text}")),
        other => other,
    })
}

/// Only names of programs may have bytes that are not UTF-8. Any other argument with such bytes is
/// an error, which names the argument.
fn only_in_names<T>(
    args: &[OsString],
    read: Result<T, Exit>,
    typed: impl Fn(&T) -> &Typed,
) -> Result<T, Exit> {
    let odd = args.iter().find(|a| a.to_str().is_none());
    let is_elsewhere = |t: &T| typed(t).specs.iter().any(|(_, text)| lists::has_bytes(text));
    match (odd, &read) {
        (Some(odd), Ok(t)) if is_elsewhere(t) => Err(not_text(odd)),
        (Some(odd), Err(Exit::Usage(_))) => Err(not_text(odd)),
        _ => read,
    }
}

fn not_text(arg: &OsString) -> Exit {
    Exit::Usage(format!("{} is not UTF-8", exit::shown(arg.as_ref())))
}

/// taskdiag's options with their values, and the words that are left for procps' rules.
fn split(command: &Command, args: &[OsString]) -> Result<(Vec<OsString>, Vec<String>), Exit> {
    let valued = |name: &str| {
        let own = command.get_arguments().find(|a| {
            a.get_long() == Some(name) || a.get_all_aliases().is_some_and(|v| v.contains(&name))
        });
        own.is_some_and(|a| a.get_action().takes_values())
    };
    let (mut own, mut theirs) = (Vec::new(), Vec::new());
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let Some(text) = arg.to_str().filter(|t| t.starts_with("--") && t.len() > 2) else {
            match arg.to_str() {
                Some("-h") => own.push(arg.clone()),
                _ => theirs.push(lists::with_bytes(arg)),
            }
            continue;
        };
        let name = text.split('=').next().unwrap_or(text);
        if let Some((_, letter)) = LETTERS.iter().find(|(n, _)| *n == name) {
            theirs.push((*letter).to_owned());
            theirs.extend(
                text.strip_prefix(name).and_then(|v| v.strip_prefix('=')).map(str::to_owned),
            );
        } else if procps::is_long(text) && name != "--help" {
            theirs.push(text.to_owned());
        } else {
            own.push(arg.clone());
            if name == text && valued(&text[2..]) {
                own.extend(args.next().cloned());
            }
        }
    }
    Ok((own, theirs))
}

impl PsArgs {
    /// Combines the options in procps' syntax, taskdiag's own options, and words to find processes
    /// by.
    fn new(t: &Typed, m: &ArgMatches, words: &[String], strict: bool) -> Result<PsArgs, Exit> {
        let flag = |id: &str| m.get_flag(id);
        let form = table::form_from(m)?;
        let units = match form == Form::Text && !strict {
            true => units::from_matches(m)?,
            false => Units::Auto,
        };
        let source = table::source(m, PageLimits::from_matches(m));
        let is_saved = source.from.is_some();
        let is_procps = strict || t.is_procps();
        let mut select = if is_procps { t.selection()? } else { Selection::default() };
        // A saved answer does not know the caller.
        let nothing_said = t.lists.is_empty() && t.kinds == procps::Kinds::default() && !t.all;
        if is_saved && nothing_said {
            select.simple.clear();
        }
        select.running |= flag("running");
        let (given, sort) = procps::specs(t)?;
        if t.both && (form != Form::Text || is_saved) {
            return Err(Exit::Usage(String::from(
                "m and -m show processes and threads of this machine in one table: for programs, and of a saved \
                 answer, use --threads",
            )));
        }
        let tree = match t.forest {
            Some(ForestStyle::Drawn) => Some(TreeStyle::Ascii),
            Some(ForestStyle::Indented) => Some(TreeStyle::Indented),
            None => flag("tree").then_some(TreeStyle::Auto),
        };
        let mut columns = if is_procps { procps::columns(t)? } else { given };
        if !strict {
            procps::fill(&mut columns)?;
        }
        Ok(PsArgs {
            select,
            filter: table::filter_from(m, &TASKS, words)?,
            threads: !t.both && (t.threads() || flag("threads")),
            both: t.both,
            columns,
            sort: if t.forest.is_some() { procps::keys(t)? } else { sort },
            as_listed: t.quick,
            tree,
            headers: t.headers != Some(Headers::Never),
            page: (t.headers == Some(Headers::EachPage))
                .then(|| t.lines.unwrap_or_else(screen_lines)),
            form,
            source,
            stats: flag("stats"),
            units,
            delimiter: t.delimiter,
            color: table::color_from(m),
            wide: t.wide,
            width: t.columns,
            strict,
            instead: t.instead,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(typed: &str) -> PsArgs {
        parse(&typed.split_whitespace().map(OsString::from).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn the_own_view_is_for_what_only_we_have() {
        for typed in [
            "",
            "--json",
            "--threads",
            "--tree",
            "--running",
            "--sort -rss",
            "--stats --engine procfs",
        ] {
            let args = parsed(typed);
            assert!(args.columns.is_empty() && args.select.simple.is_empty(), "{typed}");
        }
        for typed in ["-f", "u", "-T", "--forest", "-T --json"] {
            let args = parsed(typed);
            assert!(!args.columns.is_empty() && !args.select.simple.is_empty(), "{typed}");
        }
        assert!(parsed("-e --json").select.is_everything());
        assert!(parsed("-f --from x").select.is_everything());
    }

    fn typed_bytes(words: &[&[u8]]) -> Vec<OsString> {
        use std::os::unix::ffi::OsStringExt as _;
        words.iter().map(|w| OsString::from_vec(w.to_vec())).collect()
    }

    #[test]
    fn a_name_that_is_not_utf8_selects_and_other_words_must_be_text() {
        for parse in [parse, parse_strict] {
            let args = parse(&typed_bytes(&[b"-C", b"\xff\xfe.,cut\xc3"])).unwrap();
            assert_eq!(args.select.commands, [b"\xff\xfe.".to_vec(), b"cut\xc3".to_vec()]);
            for words in [[b"-u".as_slice(), b"\xff"], [b"-o", b"pid=\xff"], [b"-e", b"x\xff"]] {
                let Err(Exit::Usage(text) | Exit::Refused(text)) = parse(&typed_bytes(&words))
                else {
                    panic!("{words:?}")
                };
                assert!(text.ends_with("is not UTF-8"), "{text}");
            }
        }
    }

    #[test]
    fn columns_that_are_empty_in_procps_have_values_in_our_own_view() {
        let words = ["-eo", "cwd,nvcsw=X,vm_lib:9,cutime"].map(OsString::from);
        let theirs = parse_strict(&words).unwrap().columns;
        let ours = parse(&words).unwrap().columns;
        let of = |all: &[Column]| -> Vec<(String, &str, usize)> {
            all.iter().map(|c| (c.header.clone(), c.field.name, c.width)).collect()
        };
        assert!(theirs.iter().all(|c| c.field.source == "nothing"), "{:?}", of(&theirs));
        let names: Vec<_> = ours.iter().map(|c| (c.header.as_str(), c.field.name)).collect();
        assert_eq!(
            names,
            [("CWD", "cwd"), ("X", "nvcsw"), ("LIB", "vm_lib"), ("CUTIME", "cutime")]
        );
        assert_eq!(ours[2].width, 9);
    }

    #[test]
    fn a_delimiter_is_one_character_and_selects_nothing() {
        assert_eq!(parsed("--delimiter ,").delimiter, Some(b','));
        assert_eq!(parsed("aux --delimiter=:").delimiter, Some(b':'));
        assert!(parsed("--delimiter ,").select.simple.is_empty());
        for wrong in ["--delimiter=ab", "--delimiter=\u{e9}"] {
            assert!(matches!(parse(&[OsString::from(wrong)]), Err(Exit::Usage(_))), "{wrong}");
        }
    }

    #[test]
    fn columns_of_other_systems_are_only_for_procps_to_the_letter() {
        for name in ["seat", "zone", "nwchan", "umask", "tsid"] {
            let words = ["-eo", name].map(OsString::from);
            assert_eq!(parse_strict(&words).unwrap().columns.len(), 1, "{name}");
            assert!(matches!(parse(&words), Err(Exit::Usage(_))), "{name}");
        }
    }

    #[test]
    fn own_names_are_those_of_letters() {
        let command = command();
        for (long, letter) in LETTERS {
            let arg = command.get_arguments().find(|a| {
                a.get_long() == Some(&long[2..])
                    || a.get_all_aliases().is_some_and(|v| v.contains(&&long[2..]))
            });
            let arg = arg.unwrap_or_else(|| panic!("{long} is not in the help"));
            let letter = letter.chars().nth(1).unwrap();
            let has = arg.get_short() == Some(letter)
                || arg.get_all_short_aliases().is_some_and(|v| v.contains(&letter));
            assert!(has, "{long} is not -{letter} in the help");
        }
    }

    /// The help and the parser are two tables, which must have the same options.
    #[test]
    fn the_help_has_all_letters_and_no_others() {
        let command = command();
        let mut helped: Vec<char> = Vec::new();
        for arg in command.get_arguments() {
            helped.extend(arg.get_short());
            helped.extend(arg.get_all_short_aliases().unwrap_or_default());
        }
        helped.sort_unstable();
        let parsed: Vec<char> = procps::UNIX.iter().map(|r| r.0).collect();
        assert_eq!(helped, parsed);
        for arg in command.get_arguments().filter_map(Arg::get_long) {
            let known = procps::is_long(arg)
                || LETTERS.iter().any(|(n, _)| n[2..] == *arg)
                || OWN.contains(&arg);
            assert!(known, "--{arg}");
        }
    }
}
