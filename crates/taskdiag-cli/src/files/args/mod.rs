//! The options of `taskdiag files`. Where lsof has the same option, the letter is the same.

pub mod as_lsof;
mod lsof;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint};
use taskdiag::FdType;
use taskdiag::field::FILES;
use taskdiag::files::TYPES;
use taskdiag::view::{Pattern, PidfdInodes};

use super::layout::Form as LsofForm;
use super::request::{FilesArgs, Instead, Repeat};
use crate::args::lists;
use crate::args::table::{self, flag, list};
use crate::aside;
use crate::columns::{self, Column};
use crate::exit::{self, Asked, Exit, Lack};
use crate::files::inet::{Inet, States};
use crate::files::letters::Fields;
use crate::files::place::Place;
use crate::files::select::{Among, CommandName, FileSelection, Label, WORDS, Words};

/// An introduction for users of lsof, and the differences from it.
const INTRO: &str = "\
The options of lsof work: -i :443, -iTCP -sTCP:LISTEN, -a -p 1,2 -d 0-9, -u ^root, -c ssh, -U, -t, +D DIR, +d DIR, \
+L1, -nP. A file is shown if it meets one of the conditions, or all of them with -a. ^ before a value excludes.

Rows are descriptors. --paths adds cwd, rtd and txt, and --mem adds mapped files; FILE, +d, +D and --deleted look at \
all of these. A table of files that threads share is listed once, and THR says how many share it. With -p, a pipe or \
socket names its other end only if that is in these processes.";

/// A short option of lsof that changes nothing here.
fn nothing(id: &'static str, letter: char) -> Arg {
    Arg::new(id).short(letter).action(ArgAction::SetTrue).hide(true)
}

fn path_list(id: &'static str, help: &'static str) -> Arg {
    Arg::new(id)
        .long(id)
        .action(ArgAction::Append)
        .value_name("DIR")
        .value_parser(clap::value_parser!(PathBuf))
        .value_hint(ValueHint::DirPath)
        .help(help)
}

const EXAMPLES: &[(&str, &str)] = &[
    ("taskdiag files -nP -iTCP -sTCP:LISTEN", "show who listens"),
    ("taskdiag files +D /srv", "show who uses a file below a directory"),
    ("taskdiag files --deleted --sort -size", "show deleted files that are kept"),
    ("taskdiag files --count --sort -fds", "count the open files of each process"),
    ("taskdiag files -p 42 -F pfn", "print lines for a program"),
];

/// The options.
pub fn command() -> Command {
    let selected = Command::new("files")
        .about("Show open files and sockets, as lsof does")
        .before_help(INTRO)
        .help_template(table::TEMPLATE)
        .override_usage("taskdiag files [OPTIONS] [FILE|WORD...]")
        .next_help_heading("Selection")
        .arg(
            Arg::new("file")
                .value_name("FILE")
                .action(ArgAction::Append)
                .value_parser(clap::value_parser!(PathBuf))
                .value_hint(ValueHint::AnyPath)
                .help("Show who uses this file, or any file of the file system mounted here; a word that is no file also finds processes that have it in their name or arguments"),
        )
        .arg(list("pid", "LIST", "Show files of these processes; ^PID means all but this one, PID:INODE only one whose pidfd has that inode").short('p'))
        .arg(
            list("user", "LIST", "Show files of these users, by name or effective uid; ^USER means all but this one")
                .short('u')
                .value_hint(ValueHint::Username),
        )
        .arg(list("group", "LIST", "Show files of these process groups; ^PGID means all but this one").short('g'))
        .arg(list("command", "LIST", "Show files of commands whose name begins with NAME or matches /REGEX/; ^NAME means all others").short('c'))
        .arg(
            Arg::new("inet")
                .long("inet")
                .short('i')
                .action(ArgAction::Append)
                .num_args(0..=1)
                .default_missing_value("")
                .value_name("ADDRESS")
                .help("Show internet sockets; ADDRESS is [46][PROTO][@HOST][:PORTS], such as :443"),
        )
        .arg(
            list("states", "PROTO:STATES", "Show only internet sockets in these states, such as TCP:LISTEN")
                .short('s'),
        )
        .arg(flag("unix", "Show unix sockets").short('U'))
        .arg(list("net", "NS", "Show sockets of a network namespace, by its inode or by a path to it"))
        .arg(list("type", "LIST", "Show files of these types, as in the columns TYPE and KIND: REG,DIR,unix,eventfd"))
        .arg(list("descriptor", "LIST", "Show these descriptors, such as 0-2,7 or cwd,rtd,txt,mem,DEL; ^3 means all but this one").short('d'))
        .arg(flag("deleted", "Show files that were deleted (also +L1)"))
        .arg(
            Arg::new("links-below")
                .long("links-below")
                .value_name("N")
                .value_parser(clap::value_parser!(u32))
                .help("Show files with fewer than N hard links (also +LN)"),
        )
        .arg(path_list("in", "Show who uses the directory or a file in it (also +d)"))
        .arg(path_list("under", "Show who uses the directory or anything below it (also +D)"))
        .arg(flag("and", "Show only what meets all conditions").short('a'));
    let rows = selected
        .next_help_heading("Rows")
        .arg(flag("paths", "Also show the working directory, root and program: cwd, rtd, txt"))
        .arg(flag("mem", "Also show mapped files: mem, DEL"))
        .arg(flag("count", "Print a row for each process, with the number of its open files"))
        .arg(
            Arg::new("summary")
                .long("summary")
                .value_name("COLUMN")
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value("kind")
                .conflicts_with_all(["count", "terse", "fields"])
                .help("Print how many files there are for each value of a column, such as type, user or command; kind if none is named"),
        )
        .arg(flag("terse", "Print only process ids").short('t').conflicts_with_all(table::FORMS))
        .arg(
            Arg::new("fields")
                .long("fields")
                .short('F')
                .num_args(0..=1)
                .require_equals(false)
                .default_missing_value("")
                .value_name("LETTERS")
                .conflicts_with_all(table::FORMS)
                .help(
                    "Print lines for programs, as lsof -F: a letter and a value each; 0 ends each with NUL",
                ),
        );
    table::output(rows)
        .next_help_heading("Columns")
        .arg(flag("numeric-users", "Show uids in place of the names of users").short('l'))
        .arg(flag("parents", "Add a column for the pid of the parent").short('R'))
        .next_help_heading("Output")
        .arg(
            Arg::new("repeat")
                .long("repeat")
                .short('r')
                .num_args(0..=1)
                .default_missing_value(lsof::REPEAT_SECONDS)
                .value_name("SECONDS")
                .value_parser(clap::value_parser!(u32).range(1..))
                .conflicts_with("from")
                .conflicts_with_all(table::FORMS)
                .help("Print the list repeatedly, every 15 seconds if no number is given"),
        )
        .arg(
            flag("until-none", "With --repeat, end when there is nothing to list (also +r)")
                .requires("repeat"),
        )
        .args([
            nothing("numeric-hosts", 'n'),
            nothing("numeric-ports", 'P'),
            nothing("no-blocking", 'b'),
            nothing("no-fork", 'O'),
            nothing("tasks", 'K'),
            nothing("endpoints", 'E'),
        ])
        .after_help(format!("{}\n\n{}", table::WHERE, exit::examples(EXAMPLES)))
}

/// Parse what follows `taskdiag files`.
pub fn parse(args: &[OsString]) -> Result<FilesArgs, Exit> {
    let command =
        command().bin_name("taskdiag files").no_binary_name(true).max_term_width(table::HELP_WIDTH);
    let valued = |c: char| {
        let mut valued = command.get_arguments().filter(|a| a.get_action().takes_values());
        valued.any(|a| a.get_short() == Some(c))
    };
    let long = |l: &str| long_takes_value(&command, l);
    let args = lsof::normalize(args, valued, long)?;
    FilesArgs::from_matches(&command.try_get_matches_from(args)?)
}

/// Is this long option followed by a value?
fn long_takes_value(command: &Command, name: &str) -> bool {
    let mut valued = command.get_arguments().filter(|a| a.get_action().takes_values());
    valued
        .any(|a| a.get_long() == Some(name) && a.get_num_args().is_none_or(|n| n.min_values() != 0))
}

/// The names of `-c`, between commas. A name may have blanks in it.
fn commands(m: &ArgMatches) -> Vec<&str> {
    let all = m.get_many::<String>("command").into_iter().flatten();
    all.flat_map(|list| list.split(',')).filter(|name| !name.is_empty()).collect()
}

/// The items of a list, and those with `^` before them.
fn among<T>(
    items: Vec<&str>,
    mut parse: impl FnMut(&str) -> Result<T, Exit>,
) -> Result<Among<T>, Exit> {
    let mut out = Among::default();
    for item in items {
        match item.strip_prefix('^') {
            Some(not) => out.not.push(parse(not)?),
            None => out.only.push(parse(item)?),
        }
    }
    Ok(out)
}

/// The column of `--summary`.
fn summary(m: &ArgMatches) -> Result<Option<Column>, Exit> {
    m.get_one::<String>("summary").map_or(Ok(None), |name| columns::by(&FILES, name))
}

fn label(item: &str) -> Result<Label, Exit> {
    if let Some(word) = WORDS.iter().find(|w| w.eq_ignore_ascii_case(item)) {
        return Ok(Label::Word(word));
    }
    if item.eq_ignore_ascii_case("fd") {
        return Ok(Label::Fds);
    }
    let number = |s: &str| s.parse::<u32>().ok();
    let range = item.split_once('-').and_then(|(a, b)| Some((number(a)?, number(b)?)));
    let range = range.or_else(|| number(item).map(|n| (n, n))).filter(|(a, b)| a <= b);
    range.map(|(a, b)| Label::Range(a, b)).ok_or_else(|| {
        Exit::Usage(format!(
            "-d takes descriptors such as 0-2,7 or fd for all, or {}, not '{item}'",
            WORDS.join(",")
        ))
    })
}

fn type_name(item: &str) -> Result<String, Exit> {
    let names = || {
        let ours = FdType::ALL.iter().map(|t| t.name());
        TYPES.iter().map(|(name, _)| *name).chain(ours).chain(["inet"])
    };
    if names().any(|n| n.eq_ignore_ascii_case(item)) {
        return Ok(item.to_ascii_lowercase());
    }
    let hint = crate::nearest::hint(item, names());
    let all: Vec<&str> = names().collect();
    Err(Exit::Usage(format!("there is no type '{item}'{hint}; there are {}", all.join(", "))))
}

/// `NSFS_MAGIC` of linux/magic.h.
const NSFS_MAGIC: rustix::fs::FsWord = 0x6e73_6673;

/// A network namespace: `4026531840`, `net:[4026531840]`, or a path such as /run/netns/x and
/// /proc/1/ns/net.
fn netns(item: &str) -> Result<u32, Exit> {
    use std::io::Write as _;
    use std::os::unix::fs::MetadataExt;
    let number = item.strip_prefix("net:[").and_then(|s| s.strip_suffix(']')).unwrap_or(item);
    if let Ok(n) = number.parse() {
        return Ok(n);
    }
    let path =
        if item.contains('/') { PathBuf::from(item) } else { Path::new("/run/netns").join(item) };
    let (said, end) = aside::ask(|to| {
        // Only the kernel's own file system of namespaces has them.
        let is = rustix::fs::statfs(&path)?.f_type == NSFS_MAGIC;
        let inode = if is { path.metadata()?.ino() } else { u64::MAX };
        to.write_all(&inode.to_ne_bytes())
    });
    if let Err(e) = end {
        return Err(Exit::Usage(format!("--net {item}: {}: {e}", exit::shown(&path))));
    }
    let inode = said.try_into().ok().map(u64::from_ne_bytes);
    inode
        .and_then(|n| u32::try_from(n).ok())
        .ok_or_else(|| Exit::Usage(format!("--net {item}: that is no network namespace")))
}

/// How a command's name begins; or a regular expression, `/TEXT/` with the flags of lsof.
fn command_name(item: &[u8]) -> Result<CommandName, Exit> {
    let Ok(item) = std::str::from_utf8(item) else {
        return Ok(CommandName::Begins(item.to_vec()));
    };
    let flags = |s: &str| s.chars().all(|c| "bix".contains(c));
    let regex = item.strip_prefix('/').and_then(|rest| rest.rsplit_once('/'));
    let Some((regex, flags)) = regex.filter(|(_, f)| flags(f)) else {
        return Ok(CommandName::Begins(item.as_bytes().to_vec()));
    };
    let made = Pattern::new(regex, flags.contains('i'));
    made.map(CommandName::Matches).map_err(|why| {
        Exit::Usage(format!("-c {item}: the regular expression '{regex}' is wrong: {why}"))
    })
}

impl FilesArgs {
    /// From the arguments of lsof.
    pub fn strict(args: &[OsString]) -> Result<FilesArgs, Exit> {
        let read = || {
            let command = command();
            let typed = as_lsof::read(args, |name| long_takes_value(&command, name))?;
            let is_help = typed.instead == Some(Instead::Help);
            let args = if is_help { Vec::new() } else { typed.args };
            let bin = command.bin_name("lsof").no_binary_name(true);
            let matches = bin.max_term_width(table::HELP_WIDTH).try_get_matches_from(args)?;
            let mut args = FilesArgs::from_matches_as(&matches, true)?;
            let names = || typed.commands.iter().map(|c| c.as_encoded_bytes());
            for name in names() {
                match name.strip_prefix(b"^") {
                    Some(not) => {
                        args.select.commands.not.push(command_name(not)?);
                        args.excluded_commands.push(not.to_vec());
                    }
                    None => args.select.commands.only.push(command_name(name)?),
                }
            }
            args.commands = names().filter(|n| !n.starts_with(b"^")).map(<[u8]>::to_vec).collect();
            (args.select.paths, args.select.mapped) = (true, true);
            args.groups |= typed.layout.groups;
            args.repeat = typed.repeat.filter(|r| r.seconds > 0).map(|r| Repeat {
                every: Duration::from_secs(u64::from(r.seconds)),
                while_any: r.while_any,
                count: r.count,
                format: r.format,
            });
            args.instead = typed.instead;
            args.table.source.quiet = true;
            for place in &mut args.select.places {
                place.be_strict();
                if place.is_file() && !place.be(typed.kind) {
                    return Err(Exit::Usage(format!(
                        "not a file system: {}",
                        exit::shown(Path::new(OsStr::from_bytes(place.path())))
                    )));
                }
            }
            args.terse = typed.layout.form == LsofForm::Terse;
            args.strict = Some(typed.layout);
            Ok(args)
        };
        read().map_err(Exit::into_refused)
    }
    /// The FILEs that do not exist, with the reason.
    fn missing(nowhere: &[PathBuf]) -> Vec<(PathBuf, String)> {
        let why = |path: &PathBuf| {
            let error = std::fs::metadata(path).err()?;
            Some((path.clone(), exit::without_numbers(&error.to_string())))
        };
        nowhere.iter().filter_map(why).collect()
    }
    /// From parsed options.
    pub fn from_matches(m: &ArgMatches) -> Result<FilesArgs, Exit> {
        FilesArgs::from_matches_as(m, false)
    }
    fn from_matches_as(m: &ArgMatches, as_lsof: bool) -> Result<FilesArgs, Exit> {
        let words = |id: &str| m.get_many::<String>(id).into_iter().flatten();
        let items = |id: &str| lists::items(words(id));
        for (id, option) in [
            ("pid", "-p"),
            ("user", "-u"),
            ("command", "-c"),
            ("group", "-g"),
            ("descriptor", "-d"),
            ("type", "--type"),
            ("net", "--net"),
        ] {
            if m.contains_id(id) && items(id).is_empty() {
                return Err(Exit::Usage(format!("{option} needs at least one value after it")));
            }
        }
        let paths = |id: &str| m.get_many::<PathBuf>(id).into_iter().flatten();
        let table = table::TableArgs::output(m, &FILES)?;
        let look = table.source.from.is_none();
        let mut places = Vec::new();
        let (mut nowhere, mut unseen) = (Vec::new(), Vec::new());
        for path in paths("file") {
            let text = path.to_string_lossy();
            let is_port = text.strip_prefix(':').is_some_and(|p| p.parse::<u16>().is_ok());
            if is_port && look && std::fs::symlink_metadata(path).is_err() {
                return Err(Exit::Usage(format!(
                    "there is no file '{text}': -i {text} shows who has the port open"
                )));
            }
        }
        let mut add = |id: &str, make: fn(&Path, bool) -> Place| {
            for path in paths(id) {
                let place = make(path, look);
                match place.is_silent() {
                    Some(why) => {
                        let line = format!(
                            "{}: {why}: its open files are found only by their paths",
                            exit::shown(path)
                        );
                        unseen.push(Lack { line, from: Asked::Named });
                    }
                    None if look && !place.is_there() => nowhere.push(path.clone()),
                    None => {}
                }
                places.push(place);
            }
        };
        add("file", Place::file);
        add("in", Place::directory);
        add("under", Place::below);
        // A saved answer may be of another machine, where each name may be a file.
        let is_word = |path: &&PathBuf| {
            let text = path.to_string_lossy();
            let is_nowhere = !look || nowhere.contains(path);
            !as_lsof && is_nowhere && table::is_word(&text) && !text.contains('/')
        };
        let to_find = paths("file").filter(is_word).map(|p| p.as_os_str().as_bytes().to_vec());
        let to_find: Vec<Vec<u8>> = to_find.collect();
        let searches = look && !to_find.is_empty();
        let except = if searches { crate::this_program::pids() } else { Vec::new() };
        let to_find = Words::new(to_find, except);
        let mut inodes = PidfdInodes::default();
        let select = FileSelection {
            pids: among(items("pid"), |s| {
                let (pid, inode) = lists::pid_and_inode("-p", s)?;
                inode.into_iter().for_each(|inode| inodes.add(pid, inode));
                Ok(pid)
            })?,
            inodes,
            uids: among(items("user"), |s| lists::uid("-u", s))?,
            pgids: among(items("group"), |s| lists::pid("-g", s))?,
            commands: among(commands(m), |s| command_name(s.as_bytes()))?,
            inet: words("inet").map(|s| Inet::parse(s)).collect::<Result<_, _>>()?,
            states: words("states").map(|s| States::parse(s)).collect::<Result<_, _>>()?,
            unix: m.get_flag("unix"),
            labels: among(items("descriptor"), label)?,
            types: items("type").into_iter().map(type_name).collect::<Result<_, _>>()?,
            deleted: m.get_flag("deleted"),
            links_below: m.get_one::<u32>("links-below").copied(),
            netns: items("net").into_iter().map(netns).collect::<Result<_, _>>()?,
            places,
            words: to_find,
            and: m.get_flag("and"),
            paths: m.get_flag("paths"),
            mapped: m.get_flag("mem"),
        };
        let args = FilesArgs {
            terse: m.get_flag("terse"),
            fields: m.get_one::<String>("fields").map(|f| Fields::of_lsof(f)).transpose()?,
            groups: m.contains_id("group"),
            count: m.get_flag("count"),
            summary: summary(m)?,
            repeat: m.get_one::<u32>("repeat").map(|seconds| Repeat {
                every: Duration::from_secs(u64::from(*seconds)),
                while_any: m.get_flag("until-none"),
                count: None,
                format: None,
            }),
            numeric_users: m.get_flag("numeric-users"),
            parents: m.get_flag("parents"),
            strict: None,
            table,
            select,
            missing: if as_lsof { FilesArgs::missing(&nowhere) } else { Vec::new() },
            inet: words("inet").cloned().collect(),
            commands: Vec::new(),
            excluded_commands: Vec::new(),
            instead: None,
            nowhere,
            unseen,
        };
        if args.count && (args.select.has_file_condition() || args.terse) {
            return Err(Exit::Usage(String::from(
                "--count counts the files of processes: it goes with -p, -u and -c only",
            )));
        }
        Ok(args)
    }
}
