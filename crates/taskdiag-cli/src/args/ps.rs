//! The options of `taskdiag ps`, and the meaning of their combinations.

use std::ffi::OsString;

use clap::{ArgMatches, Command};
use taskdiag::field::TASKS;
use taskdiag::view::{Filter, Selection};

use super::procps::{self, ForestStyle, Headers, Instead, Typed};
use super::{lists, table};
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

/// The options. The options of procps are listed for `--help`, the man page and completions, but
/// [`procps::parse`] reads them. clap reads only the options that procps lacks.
pub fn command() -> Command {
    let command = Command::new("ps")
        .about("Show processes or threads, as ps does")
        .override_usage("taskdiag ps [OPTIONS] [LETTERS as in aux] [PID...] [WORD...]")
        .args_override_self(true);
    procps::options(command).after_help(format!(
        "{HABITS}\n\n{}\n\n{}",
        table::WHERE,
        exit::examples(EXAMPLES)
    ))
}

/// The default height of a page.
fn screen_lines() -> usize {
    let env = std::env::var("LINES").ok().and_then(|n| n.parse().ok()).filter(|n| *n > 0);
    let window = || rustix::termios::tcgetwinsize(std::io::stdout()).ok();
    env.or_else(|| window().map(|w| usize::from(w.ws_row)).filter(|n| *n > 0)).unwrap_or(24)
}

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
        let mut typed = only_in_names(args, procps::parse(&words), |t| t)?;
        if let Some(format) = std::env::var_os("PS_FORMAT") {
            let taken = procps::take_format(&mut typed, &format.to_string_lossy());
            if let Err(Exit::Usage(why)) = taken {
                exit::say(format_args!("warning: $PS_FORMAT ignored. ({why})"));
            }
        }
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
        if let Some(letter) = procps::letter_of(&name[2..]) {
            theirs.push(format!("-{letter}"));
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
        let (given, mut sort) = procps::specs(t)?;
        if strict {
            procps::sort_as_procps(&mut sort);
        }
        if t.both && (form != Form::Text || is_saved) {
            return Err(Exit::Usage(String::from(
                "m and -m show processes and their threads of this machine, as text: use --threads for a saved \
                 answer or another format",
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
            sort: if sort.is_empty() { procps::keys(t)? } else { sort },
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
    fn options_that_procps_lacks_choose_our_own_view() {
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
        for name in ["seat", "zone", "nwchan", "tsid"] {
            let words = ["-eo", name].map(OsString::from);
            assert_eq!(parse_strict(&words).unwrap().columns.len(), 1, "{name}");
            assert!(matches!(parse(&words), Err(Exit::Usage(_))), "{name}");
        }
    }

    /// The parser decides which spellings there are, so that the help cannot be made from less.
    #[test]
    fn an_option_that_is_parsed_is_in_the_help_and_the_man_page() {
        let help = command().term_width(0).render_help().to_string();
        let options: String = help.split("\n\n").filter(|part| part.contains("\n  ")).collect();
        let is_listed = |word: &str| options.split([' ', ',', '\n', ')']).any(|w| w == word);
        let is_parsed = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|w| (*w).to_owned()).collect();
            let unknown = ["there is no option", "there is no letter"];
            match procps::parse(&words) {
                Err(Exit::Usage(why)) => !unknown.iter().any(|text| why.contains(text)),
                _ => true,
            }
        };
        let letters = || ('A'..='Z').chain('a'..='z');
        // There is no letter A without a dash, so the words are not read again without dashes.
        let unix: Vec<String> = letters().map(|c| format!("-{c}")).collect();
        let unix: Vec<&String> = unix.iter().filter(|c| is_parsed(&["-A", c, "1"])).collect();
        assert!(unix.len() > 25, "{unix:?}");
        for letter in unix {
            assert!(is_listed(letter), "{letter} is not in the help");
        }
        let bsd: Vec<char> = letters().filter(|c| is_parsed(&[&c.to_string(), "1"])).collect();
        // The man page has these.
        let listed: Vec<char> = procps::bsd_letters().iter().map(|(c, _)| *c).collect();
        assert_eq!(bsd, listed);
    }
}
