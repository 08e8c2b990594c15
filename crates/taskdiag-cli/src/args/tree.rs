//! The options of `taskdiag tree`. Options that pstree has, too, have the same meaning.

use std::ffi::OsString;

use clap::{Arg, ArgAction, ArgMatches, Command};
use taskdiag::field::TASKS;
use taskdiag::view::{Filter, PidfdInodes, Selection};

use super::table::{self, flag, list};
use super::{engine, lists, places};
use crate::answer::Source;
use crate::columns::{self, Column};
use crate::exit::{self, Asked, Exit};
use crate::limits::PageLimits;
use crate::output::terminal::{Color, Terminal};

/// The values that are shown in addition to the name of a process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Labels {
    /// Arguments.
    pub args: bool,
    /// Ids.
    pub pids: bool,
    /// The user, if it differs from that of the parent.
    pub users: bool,
    /// Process groups.
    pub groups: bool,
    /// Threads, as children in braces.
    pub threads: bool,
    /// The name of each thread instead of the name of its process.
    pub thread_names: bool,
    /// Equal subtrees only once, with their number.
    pub compact: bool,
    /// Children sorted by id instead of by name.
    pub by_id: bool,
    /// Security labels.
    pub contexts: bool,
    /// The kinds of namespaces that differ from those of the parent.
    pub spaces: bool,
    /// A colour by age.
    pub ages: bool,
    /// Exactly as pstree: bytes that are not printable ASCII become octal escapes, subtrees are
    /// equal if their names are equal, and arguments are cut at the edge of the terminal by
    /// pstree's rules.
    pub strict: bool,
}

impl Labels {
    /// Does each process have a line of its own?
    pub fn is_upright(&self) -> bool {
        self.args || self.contexts
    }
}

/// The kinds of namespaces, with the names and in the order of pstree.
pub const SPACES: [&str; 8] = ["cgroup", "ipc", "mnt", "net", "pid", "user", "uts", "time"];

/// Where the trees begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// At the first processes.
    All,
    /// At these processes.
    Pids(Vec<u32>),
    /// At the processes of a user whose parents belong to other users.
    User(u32),
}

impl Start {
    /// Does it select a user?
    pub fn is_user(&self) -> bool {
        matches!(self, Start::User(_))
    }
}

/// The default width of pstree in cells.
const WIDTH_OF_PIPES: usize = 132;

/// Parsed options of `taskdiag tree`.
#[derive(Clone, Debug)]
pub struct TreeArgs {
    /// Where the trees begin.
    pub start: Start,
    /// The inodes that the pidfds of some of these processes have.
    pub inodes: PidfdInodes,
    /// Trees begin at the processes that match this and have no matching process above them.
    pub filter: Option<Filter>,
    /// The words for finding processes. They are also a part of `filter`.
    pub words: Vec<String>,
    /// Are ancestors shown, too?
    pub parents: bool,
    /// Are kernel threads shown, too?
    pub kernel: bool,
    /// The values that are shown of each process.
    pub labels: Labels,
    /// This process and those above it in bold.
    pub highlight: Option<u32>,
    /// Draw with ASCII, even if the terminal can show more.
    pub ascii: bool,
    /// Draw with Unicode lines, even if the terminal may not show them.
    pub unicode: bool,
    /// Draw with the lines of a VT100.
    pub vt100: bool,
    /// A tree for each namespace of this kind, which is an index of [`SPACES`].
    pub by_space: Option<usize>,
    /// JSON, nested or flat?
    pub json: bool,
    /// Flat JSON?
    pub flat: bool,
    /// The keys in JSON, if they are given.
    pub columns: Vec<Column>,
    /// Where the answer comes from.
    pub source: Source,
    /// Is the cost printed (`--stats`)?
    pub stats: bool,
    color: Color,
    wide: bool,
    width: Option<usize>,
}

const EXAMPLES: &[(&str, &str)] = &[
    ("taskdiag tree", "show all processes"),
    ("taskdiag tree -p -s 42", "show those above and below process 42"),
    ("taskdiag tree www", "show the trees of a user's processes"),
    ("taskdiag tree nginx", "show those with this word in their name or arguments"),
];

/// The options.
pub fn command() -> Command {
    Command::new("tree")
        .about("Show processes as a tree, as pstree does")
        .args_override_self(true)
        .next_help_heading("Selection")
        .arg(
            Arg::new("start")
                .value_name("PID|USER|WORD")
                .action(ArgAction::Append)
                .help("Show only what is below these processes, below those of a user, or below those with this word in their name or arguments"),
        )
        .arg(table::filter().help("Show only the descendants of processes for which this is true"))
        .args(places::options())
        .arg(flag("show-parents", "Also show the processes above PID").short('s'))
        .arg(flag("kernel", "Also show the kernel's threads").short('k'))
        .next_help_heading("Rows")
        .arg(flag("arguments", "Show arguments, and each process on a line of its own").short('a'))
        .arg(flag("show-pids", "Show process ids, and each equal subtree by itself").short('p'))
        .arg(flag("uid-changes", "Show the user where it is not that of the parent").short('u'))
        .arg(flag("show-pgids", "Show process group ids").short('g'))
        .arg(
            flag("ns-changes", "Show the kinds of namespaces that are not those of the parent")
                .short('S'),
        )
        .arg(
            flag("security-context", "Show security labels, and each process on a line of its own")
                .short('Z'),
        )
        .arg(flag("hide-threads", "Do not show threads, which have names in braces").short('T'))
        .arg(
            flag("thread-names", "Show the name of each thread, not that of its process")
                .short('t'),
        )
        .arg(
            flag("no-compact", "Show each of several equal subtrees, not 3*[name]")
                .short('c')
                .alias("compact-not"),
        )
        .arg(flag("numeric-sort", "Sort children by pid, not by name").short('n'))
        .arg(
            Arg::new("ns-sort")
                .long("ns-sort")
                .short('N')
                .value_name("TYPE")
                .value_parser(SPACES)
                .conflicts_with_all(["json", "flat"])
                .help("Show a tree for each namespace of this kind"),
        )
        .arg(
            Arg::new("highlight-pid")
                .long("highlight-pid")
                .visible_alias("highlight")
                .short('H')
                .value_name("PID")
                .value_parser(clap::value_parser!(u32))
                .help("Show this process and those above it in bold, on a terminal"),
        )
        .arg(
            Arg::new("color-by")
                .long("color-by")
                .short('C')
                .value_name("WHAT")
                .value_parser(["age"])
                .ignore_case(true)
                .help(
                    "Colour processes by their age: younger than a minute, than an hour, and older",
                ),
        )
        .next_help_heading("Output")
        .arg(flag("ascii", "Draw with ASCII characters").short('A').overrides_with("unicode"))
        .arg(flag("unicode", "Draw with Unicode lines").short('U').overrides_with("ascii"))
        .arg(flag(
            "json",
            "Print one JSON document, of at most 100 levels, in which processes have their children",
        ))
        .arg(flag("flat", "Print one JSON array of all processes, each with pid, ppid and depth"))
        .arg(
            list(
                "format",
                "COLUMNS",
                "With --json or --flat, use these columns of 'taskdiag fields' as keys",
            )
            .short('o'),
        )
        .arg(table::color())
        .arg(
            Arg::new("wide")
                .long("long")
                .alias("wide")
                .short('l')
                .visible_short_alias('w')
                .action(ArgAction::Count)
                .help("Do not cut lines at the edge of the terminal"),
        )
        .arg(
            Arg::new("columns")
                .long("columns")
                .aliases(["cols", "width"])
                .value_name("N")
                .value_parser(clap::value_parser!(u16).range(1..))
                .help("Cut lines after N cells, whether on a terminal or not"),
        )
        .next_help_heading("Source")
        .arg(table::from())
        .args(table::at())
        .arg(engine())
        .arg(PageLimits::args_option())
        .arg(table::strict())
        .arg(flag("stats", "Say on standard error which engine answered, and at what cost"))
        .after_help(format!("{}\n\n{}", table::WHERE, exit::examples(EXAMPLES)))
}

/// The long name of `pstree -h`.
const SELF: &str = "highlight-all";

/// The long name of `pstree -G`.
const VT100: &str = "vt100";

/// `--color age` of pstree as its short form, because `--color` is about when to use colours here.
fn with_short_color(args: &[OsString]) -> Vec<OsString> {
    let is_age = |word: &str| word.eq_ignore_ascii_case("age");
    let mut out: Vec<OsString> = Vec::new();
    for arg in args {
        match (arg.to_str(), out.last().and_then(|l| l.to_str())) {
            (Some(word), Some("--color")) if is_age(word) => {
                out.pop();
                out.push("-Cage".into());
            }
            (Some(word), _) if word.strip_prefix("--color=").is_some_and(is_age) => {
                out.push("-Cage".into());
            }
            _ => out.push(arg.clone()),
        }
    }
    out
}

impl TreeArgs {
    /// How exactly the caller names the subject of the trees.
    pub fn asked(&self) -> Asked {
        let of_start = match self.start {
            Start::All => Asked::All,
            Start::Pids(_) => Asked::Pids,
            Start::User(_) => Asked::Named,
        };
        of_start.max(self.source.asked(&Selection::default()))
    }
    /// From parsed options.
    pub fn from_matches(m: &ArgMatches) -> Result<TreeArgs, Exit> {
        TreeArgs::from_matches_as(m, false)
    }
    fn from_matches_as(m: &ArgMatches, as_pstree: bool) -> Result<TreeArgs, Exit> {
        let flag = |id: &str| m.get_flag(id);
        let words = |id: &str| m.get_many::<String>(id).into_iter().flatten();
        let mut keys = Vec::new();
        for spec in words("format") {
            keys.extend(columns::parse(spec)?);
        }
        let is_json = flag("json") || flag("flat");
        if !keys.is_empty() && !is_json {
            return Err(Exit::Usage(String::from(
                "-o names the keys of --json; choose what the tree shows with -a, -p and -u",
            )));
        }
        let starts = lists::items(words("start"));
        let mut inodes = PidfdInodes::default();
        let number = |s: &&str| match s.contains(':') {
            true => {
                let (pid, inode) = lists::pid_and_inode("tree", s).map_err(Some)?;
                inode.into_iter().for_each(|inode| inodes.add(pid, inode));
                Ok(pid)
            }
            false => s.parse().map_err(|_| None),
        };
        let numbers: Result<Vec<u32>, Option<Exit>> = starts.iter().map(number).collect();
        let mut to_find = Vec::new();
        let start = match (&starts[..], numbers) {
            ([], _) => Start::All,
            (_, Ok(pids)) => Start::Pids(pids),
            (_, Err(Some(why))) => return Err(why),
            (all, _) => match (all, lists::uid("tree", all[0])) {
                ([_], Ok(uid)) => Start::User(uid),
                _ if !as_pstree && all.iter().all(|word| table::is_word(word)) => {
                    to_find.extend(all.iter().map(|word| (*word).to_owned()));
                    Start::All
                }
                ([_], Err(why)) => return Err(why),
                _ => {
                    let what =
                        if as_pstree { "pids, or one user" } else { "pids, one user, or words" };
                    return Err(Exit::Usage(format!("tree takes {what}")));
                }
            },
        };
        if flag("show-parents") && !matches!(start, Start::Pids(_)) {
            return Err(Exit::Usage(String::from(
                "-s shows the ancestors of a process: give its pid",
            )));
        }
        let filter = table::filter_from(m, &TASKS, &to_find)?;
        if filter.is_some() && start != Start::All {
            return Err(Exit::Usage(String::from(
                "--where and PID or USER both say where the trees begin: give one of them; \
                 --where 'pid == 1 or user == web' has both",
            )));
        }
        Ok(TreeArgs {
            start,
            inodes,
            filter,
            words: to_find,
            parents: flag("show-parents"),
            kernel: flag("kernel"),
            labels: Labels {
                args: flag("arguments"),
                pids: flag("show-pids"),
                users: flag("uid-changes"),
                groups: flag("show-pgids"),
                threads: !flag("hide-threads"),
                thread_names: flag("thread-names") && !flag("hide-threads"),
                compact: !flag("no-compact") && !flag("show-pids"),
                by_id: flag("numeric-sort"),
                contexts: flag("security-context"),
                spaces: flag("ns-changes"),
                ages: m.contains_id("color-by"),
                strict: false,
            },
            highlight: m.get_one::<u32>("highlight-pid").copied(),
            ascii: flag("ascii"),
            unicode: flag("unicode"),
            vt100: false,
            by_space: m
                .get_one::<String>("ns-sort")
                .and_then(|kind| SPACES.iter().position(|name| name == kind)),
            json: is_json,
            flat: flag("flat"),
            columns: keys,
            source: table::source(m, PageLimits::from_matches(m)),
            stats: flag("stats"),
            color: table::color_from(m),
            wide: m.get_count("wide") > 0,
            width: m.get_one::<u16>("columns").map(|n| usize::from(*n)),
        })
    }
    /// From the arguments of pstree.
    pub fn strict(args: &[OsString]) -> Result<TreeArgs, Exit> {
        let command = command()
            .bin_name("pstree")
            .display_name("taskdiag")
            .version(env!("CARGO_PKG_VERSION"))
            .no_binary_name(true)
            .disable_help_flag(true)
            .arg(Arg::new("help").long("help").action(ArgAction::Help).help("Print help"))
            .arg(flag(SELF, "As -H with the process id of pstree itself").short('h'))
            .arg(
                flag(VT100, "Draw with the lines of a VT100")
                    .short('G')
                    .overrides_with_all(["ascii", "unicode"]),
            );
        let read = || {
            let matches = command.try_get_matches_from(with_short_color(args))?;
            let mut args = TreeArgs::from_matches_as(&matches, true)?;
            if matches.get_flag(SELF) {
                args.highlight = args.highlight.or_else(crate::this_program::pid);
            }
            args.vt100 = matches.get_flag(VT100);
            Ok(args)
        };
        let mut args = read().map_err(Exit::into_refused)?;
        args.labels.strict = true;
        // Trees of namespaces always begin at process 1.
        if args.start == Start::All || args.by_space.is_some() && !args.parents {
            args.start = Start::Pids(vec![1]);
        }
        Ok(args)
    }
    /// How to draw.
    pub fn terminal(&self) -> Terminal {
        let mut terminal = Terminal::detect(self.color, self.wide);
        terminal.width = self.width.or(terminal.width);
        if self.labels.strict && !self.wide && terminal.width.is_none() {
            let columns = std::env::var("COLUMNS").ok().and_then(|c| c.parse().ok());
            terminal.width = columns.filter(|c| *c > 0).or(Some(WIDTH_OF_PIPES));
        }
        terminal
    }
}
