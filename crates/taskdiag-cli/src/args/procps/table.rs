//! The options of `ps`, one row each: the parser, `--help`, the man page and the completions are
//! made from it.

use clap::{Arg, ArgAction, Command, ValueHint};

use super::{Bsd, ForestStyle, Headers, Instead, Selector, Typed, TypedAs};
use crate::args::{lists, table};
use crate::exit::Exit;
use crate::limits::PageLimits;
use crate::units;

/// The effect of an option.
#[derive(Clone, Copy)]
pub enum Does {
    /// It has no value.
    Set(fn(&mut Typed)),
    /// It has no value, and more of an effect if it is given twice.
    Add(fn(&mut Typed)),
    /// It has a value: its name in the help, what it is, and the effect.
    Take(&'static str, &'static str, fn(&mut Typed, &str) -> Result<(), Exit>),
    /// It has a value only if an argument follows.
    May(fn(&mut Typed, Option<&str>) -> Result<(), Exit>),
}

use Does::{Add, May, Set, Take};

/// An option of procps with all of its spellings.
pub struct OptionRow {
    /// Letters after a dash.
    unix: &'static str,
    /// Letters without one.
    bsd: &'static str,
    /// Long names of procps.
    long: &'static [&'static str],
    /// More long names, which only taskdiag has.
    own: &'static [&'static str],
    /// Its effect.
    pub does: Does,
    /// What it does.
    pub help: &'static str,
}

const fn letters(
    unix: &'static str,
    bsd: &'static str,
    does: Does,
    help: &'static str,
) -> OptionRow {
    OptionRow { unix, bsd, long: &[], own: &[], does, help }
}

const fn bsd(letter: &'static str, does: Does, help: &'static str) -> OptionRow {
    letters("", letter, does, help)
}

const fn only_long(long: &'static [&'static str], does: Does, help: &'static str) -> OptionRow {
    letters("", "", does, help).long(long)
}

impl OptionRow {
    const fn long(self, long: &'static [&'static str]) -> Self {
        OptionRow { long, ..self }
    }
    const fn own(self, own: &'static [&'static str]) -> Self {
        OptionRow { own, ..self }
    }
    /// The option for the help, the man page and completions.
    fn arg(&self) -> Arg {
        let names: Vec<&'static str> = self.long.iter().chain(self.own).copied().collect();
        // Names that differ in their first letter only would be confused: Group is --rgroup.
        let is_lower = |n: &&&str| n.chars().all(|c| !c.is_ascii_uppercase());
        let shown = names.iter().find(is_lower).copied();
        let mut short = self.unix.chars();
        let mut arg = Arg::new(shown.unwrap_or(self.unix)).action(match self.does {
            Add(_) => ArgAction::Count,
            Set(_) => ArgAction::SetTrue,
            Take(..) | May(_) => ArgAction::Append,
        });
        if let Some(name) = shown {
            arg = arg.long(name).aliases(names.into_iter().filter(|n| *n != name));
        }
        if let Some(letter) = short.next() {
            arg = arg.short(letter);
        }
        if let Take(value, what, _) = self.does {
            arg = arg.value_name(value);
            if what == USERS {
                arg = arg.value_hint(ValueHint::Username);
            }
        }
        match short.next() {
            Some(other) => arg.short_alias(other).help(format!("{} (also -{other})", self.help)),
            None => arg.help(self.help),
        }
    }
}

/// Where an option comes from.
enum Source {
    /// procps has it, and this program reads it by procps' rules.
    Procps(OptionRow),
    /// Only taskdiag has them, and clap reads them.
    Own(fn(Command) -> Command),
}

use Source::{Own, Procps};

fn ids(text: &str, make: fn(Vec<u32>) -> Selector, to: &mut Typed) -> Result<(), Exit> {
    let all = lists::strict(text)?.into_iter().map(|s| lists::pid("a list of processes", s));
    let all: Vec<u32> = all.collect::<Result<_, _>>()?;
    if all.contains(&0) && !matches!(make(Vec::new()), Selector::Parent(_)) {
        return no_process_0();
    }
    to.lists.push(make(all));
    Ok(())
}

fn no_process_0() -> Result<(), Exit> {
    Err(Exit::Usage(String::from("there is no process 0: ids begin at 1")))
}

fn names(
    text: &str,
    make: fn(Vec<u32>) -> Selector,
    find: fn(&str, &str) -> Result<u32, Exit>,
    to: &mut Typed,
) -> Result<(), Exit> {
    let found = lists::strict(text)?.into_iter().map(|s| match find("a list of owners", s) {
        // Nobody is deselected then.
        Err(_) if to.deselect => Ok(u32::MAX),
        other => other,
    });
    let found = found.collect::<Result<_, _>>()?;
    to.lists.push(make(found));
    Ok(())
}

fn pids(t: &mut Typed, s: &str) -> Result<(), Exit> {
    let all = lists::pids("a list of processes", lists::strict(s)?)?;
    if all.ids.contains(&0) {
        return no_process_0();
    }
    t.lists.push(Selector::Pid(all.ids));
    t.inodes.extend(all.inodes);
    Ok(())
}
fn quick(t: &mut Typed, s: &str) -> Result<(), Exit> {
    t.quick = true;
    pids(t, s)
}
fn parents(t: &mut Typed, s: &str) -> Result<(), Exit> {
    ids(s, Selector::Parent, t)
}
fn sessions(t: &mut Typed, s: &str) -> Result<(), Exit> {
    ids(s, Selector::Session, t)
}
fn effective_users(t: &mut Typed, s: &str) -> Result<(), Exit> {
    names(s, Selector::EffectiveUser, lists::uid, t)
}
fn real_users(t: &mut Typed, s: &str) -> Result<(), Exit> {
    names(s, Selector::RealUser, lists::uid, t)
}
fn effective_groups(t: &mut Typed, s: &str) -> Result<(), Exit> {
    names(s, Selector::EffectiveGroup, lists::gid, t)
}
fn real_groups(t: &mut Typed, s: &str) -> Result<(), Exit> {
    names(s, Selector::RealGroup, lists::gid, t)
}
fn sessions_or_groups(t: &mut Typed, s: &str) -> Result<(), Exit> {
    sessions(t, s).or_else(|_| effective_groups(t, s))
}
fn terminals(t: &mut Typed, s: &str) -> Result<(), Exit> {
    let found = lists::strict(s)?.into_iter().map(|s| lists::tty("a list of terminals", s));
    let found = found.collect::<Result<_, _>>()?;
    t.lists.push(Selector::Terminal(found));
    Ok(())
}
fn terminals_or_own(t: &mut Typed, s: Option<&str>) -> Result<(), Exit> {
    match s {
        Some(s) => terminals(t, s),
        None => {
            t.lists.push(Selector::OwnTerminal);
            Ok(())
        }
    }
}
fn commands(t: &mut Typed, s: &str) -> Result<(), Exit> {
    let all = lists::strict(s)?.into_iter().map(lists::bytes).collect();
    t.lists.push(Selector::Command(all));
    Ok(())
}
fn spec(t: &mut Typed, place: TypedAs, s: &str) -> Result<(), Exit> {
    t.specs.push((place, s.to_owned()));
    Ok(())
}
fn count(s: &str, what: &str) -> Result<usize, Exit> {
    let n = s.parse().ok().filter(|n| (1..2_000_000_000).contains(n));
    n.ok_or_else(|| Exit::Usage(format!("{what} is a number from 1 on, not '{s}'")))
}
fn columns(t: &mut Typed, s: &str) -> Result<(), Exit> {
    t.columns = Some(count(s, "the width of the output")?);
    Ok(())
}
fn lines(t: &mut Typed, s: &str) -> Result<(), Exit> {
    t.lines = Some(count(s, "the height of a page")?);
    Ok(())
}
fn delimiter(t: &mut Typed, s: &str) -> Result<(), Exit> {
    match s.as_bytes() {
        [c] if c.is_ascii() => {
            t.delimiter = Some(*c);
            Ok(())
        }
        _ => Err(Exit::Usage(format!("a delimiter is one ASCII character, not '{s}'"))),
    }
}
fn view(t: &mut Typed, view: Bsd) {
    if !t.bsd_views.contains(&view) {
        t.bsd_views.push(view);
    }
}

const USERS: &str = "a list of users";
const NO_HEADERS: Does = Set(|t| t.headers = Some(Headers::Never));
const HEADERS: Does = Set(|t| t.headers = Some(Headers::EachPage));

const fn list(what: &'static str, take: fn(&mut Typed, &str) -> Result<(), Exit>) -> Does {
    Take("LIST", what, take)
}

const RUNNING: &str = "Show only processes that run or are in an uninterruptible wait (R, D)";

/// The options under the headings of the help.
const LISTED: &[(&str, &[Source])] = &[
    (
        "Selection",
        &[
            Procps(letters("p", "p", list("a list of process ids", pids), "Show processes with these ids").long(&["pid"])),
            Procps(
                letters("q", "q", list("a list of process ids", quick), "Show processes with these ids, in this order")
                    .long(&["quick-pid"]),
            ),
            Procps(only_long(&["ppid"], list("a list of process ids", parents), "Show children of these processes")),
            Procps(
                letters("u", "U", list(USERS, effective_users), "Show processes of these effective users, by name or uid")
                    .long(&["user"]),
            ),
            Procps(
                letters("U", "", list(USERS, real_users), "Show processes of these real users")
                    .long(&["User"])
                    .own(&["ruser"]),
            ),
            Procps(only_long(&["group"], list("a list of groups", effective_groups), "Show processes of these effective groups")),
            Procps(
                letters("G", "", list("a list of groups", real_groups), "Show processes of these real groups")
                    .long(&["Group"])
                    .own(&["rgroup"]),
            ),
            Procps(
                letters("C", "", list("a list of command names", commands), "Show processes whose command has one of these names")
                    .own(&["command"]),
            ),
            Procps(
                letters("s", "", list("a list of sessions", sessions), "Show processes of these sessions")
                    .long(&["sid"])
                    .own(&["session"]),
            ),
            Procps(letters(
                "g",
                "",
                list("a list of sessions or of groups", sessions_or_groups),
                "Show processes by session id, or by name of the effective group",
            )),
            Procps(
                letters("t", "", list("a list of terminals", terminals), "Show processes on these terminals, such as pts/0")
                    .long(&["tty"]),
            ),
            Procps(letters("eA", "", Set(|t| t.all = true), "Show all processes").own(&["all"])),
            Procps(
                letters("a", "", Set(|t| t.kinds.unix_a = true), "Show processes with a terminal, without session leaders")
                    .own(&["with-tty"]),
            ),
            Procps(letters("d", "", Set(|t| t.kinds.unix_d = true), "Show all processes but session leaders")),
            Procps(
                letters("N", "", Set(|t| t.deselect = true), "Show the processes that the other conditions do not select")
                    .long(&["deselect"]),
            ),
            Own(|c| c.args(table::conditions()).arg(table::flag("running", RUNNING))),
        ],
    ),
    (
        "Rows",
        &[
            Own(|c| c.arg(table::flag("threads", "Print a row for each thread, with the column TID"))),
            Procps(letters("T", "", Set(|t| t.spid = true), "Print a row for each thread, with the column SPID")),
            Procps(
                letters("L", "", Set(|t| t.lwp = true), "Print a row for each thread, with the columns LWP and NLWP")
                    .own(&["lwp"]),
            ),
            Procps(letters(
                "m",
                "mM",
                Set(|t| t.both = true),
                "Print a row for each process, and below it one for each of its threads",
            )),
            Own(|c| c.arg(table::flag("tree", "Print children below their parents, as a tree"))),
            Procps(
                letters("", "f", Set(|t| t.forest = Some(ForestStyle::Drawn)), "Print the tree as procps draws it")
                    .long(&["forest"]),
            ),
            Procps(letters(
                "H",
                "",
                Set(|t| t.forest = Some(ForestStyle::Indented)),
                "Print the tree by indentation alone",
            )),
            Procps(
                letters(
                    "",
                    "k",
                    Take("KEYS", "a list of columns", |t, s| spec(t, TypedAs::Keys, s)),
                    "Sort by these columns; - before one puts the largest first",
                )
                .long(&["sort"]),
            ),
        ],
    ),
    (
        "Columns",
        &[
            Procps(
                letters(
                    "o",
                    "o",
                    Take("COLUMNS", "a list of columns", |t, s| spec(t, TypedAs::Columns, s)),
                    "Show these columns of 'taskdiag fields': NAME, NAME=HEADER or NAME:WIDTH, with commas",
                )
                .long(&["format"]),
            ),
            Procps(letters("O", "", Take("COLUMNS", "a list of columns", |t, s| spec(t, TypedAs::UnixAmong, s)), "Show these columns between PID and S TTY TIME COMMAND")),
            Procps(letters("f", "", Set(|t| t.full = true), "Show UID PID PPID C STIME TTY TIME CMD").own(&["full"])),
            Procps(
                letters("F", "", Set(|t| (t.full, t.extra_full) = (true, true)), "Show the columns of -f, and SZ RSS PSR")
                    .own(&["extra-full"]),
            ),
            Procps(letters("j", "", Set(|t| t.jobs = true), "Show PID PGID SID TTY TIME CMD").own(&["jobs"])),
            Procps(
                letters("l", "", Set(|t| t.long = true), "Show F S UID PID PPID C PRI NI ADDR SZ WCHAN TTY TIME CMD")
                    .own(&["long"]),
            ),
            Procps(letters("y", "", Set(|t| t.with_rss = true), "With -l, show RSS in place of ADDR, and no F")),
            Procps(letters("c", "", Set(|t| t.class = true), "Add a column for the scheduling class")),
            Procps(letters("P", "", Set(|t| t.processor = true), "Add a column for the processor")),
            Procps(letters("MZ", "Z", Set(|t| t.label = true), "Add a column for the security label")),
            Procps(only_long(&["context"], Set(|t| view(t, Bsd::Context)), "Show PID CONTEXT COMMAND")),
            Procps(
                letters("", "S", Set(|t| t.cumulative = true), "Include reaped children in TIME").long(&["cumulative"]),
            ),
        ],
    ),
    (
        "Output",
        &[
            Procps(letters("", "h", NO_HEADERS, "Print no line of headers").long(&[
                "no-headers", "no-header", "no-heading", "no-headings", "noheader", "noheaders", "noheading", "noheadings",
            ])),
            Procps(only_long(
                &["headers", "header", "heading", "headings"],
                HEADERS,
                "Print a line of headers on each page",
            )),
            Procps(only_long(
                &["lines", "rows"],
                Take("N", "a number", lines),
                "Begin a new page after N lines (with --headers)",
            )),
            Own(|c| c.args(table::forms()).args(units::options()).arg(table::color())),
            Procps(
                letters(
                    "w",
                    "w",
                    Add(|t| t.wide += 1),
                    "Cut lines after 132 cells, not at the edge of the terminal; -ww cuts no line",
                )
                .own(&["wide"]),
            ),
            Procps(only_long(
                &["columns", "cols", "width"],
                Take("N", "a number", columns),
                "Cut lines after N cells, whether on a terminal or not",
            )),
            Procps(only_long(
                &["delimiter"],
                Take("C", "a character", delimiter),
                "Put this character between columns, and no blanks",
            )),
        ],
    ),
    (
        "Source",
        &[
            Own(|c| table::of_answer(c).arg(PageLimits::args_option())),
            Procps(
                letters("V", "V", Set(|t| t.instead = Some(Instead::Version)), "Print the version")
                    .long(&["version", "info"]),
            ),
        ],
    ),
];

/// Letters without a dash that have no other spelling, and `--help`, which clap lists.
const OTHERS: &[OptionRow] = &[
    bsd(
        "H",
        Set(|t| t.thread_rows = true),
        "Print a row for each thread, without a column for its id",
    ),
    bsd("L", Set(|t| t.instead = Some(Instead::Columns)), "List the names of all columns"),
    bsd(
        "O",
        Take("LIST", "a list of columns or keys", |t, s| spec(t, TypedAs::BsdAmong, s)),
        "Show these columns between PID and S TTY TIME COMMAND; or sort by keys of one letter",
    ),
    bsd("T", Set(|t| t.lists.push(Selector::OwnTerminal)), "Show processes on this terminal"),
    bsd(
        "X",
        Set(|t| view(t, Bsd::Registers)),
        "Show PID STACKP ESP EIP TMOUT ALARM STAT TTY TIME COMMAND",
    ),
    bsd("a", Set(|t| t.kinds.bsd_a = true), "Also show processes of other users; with x, show all"),
    bsd("c", Set(|t| t.command_name = true), "Show the name of the command, not its arguments"),
    bsd("e", Set(|t| t.environment = true), "Show the environment after the arguments"),
    bsd("g", Set(|t| t.kinds.bsd_g = true), "Also show session leaders, which are shown anyway"),
    bsd("j", Set(|t| view(t, Bsd::Jobs)), "Show PPID PID PGID SID TTY TPGID STAT UID TIME COMMAND"),
    bsd(
        "l",
        Set(|t| view(t, Bsd::Long)),
        "Show F UID PID PPID PRI NI VSZ RSS WCHAN STAT TTY TIME COMMAND",
    ),
    bsd("n", Set(|t| t.numeric = true), "Show numbers for users"),
    bsd("r", Set(|t| t.running = true), RUNNING),
    bsd(
        "s",
        Set(|t| view(t, Bsd::Signals)),
        "Show UID PID PENDING BLOCKED IGNORED CAUGHT STAT TTY TIME COMMAND",
    ),
    bsd("t", May(terminals_or_own), "Show processes on these terminals, or on this one"),
    bsd(
        "u",
        Set(|t| view(t, Bsd::User)),
        "Show USER PID %CPU %MEM VSZ RSS TTY STAT START TIME COMMAND",
    ),
    bsd(
        "v",
        Set(|t| view(t, Bsd::Memory)),
        "Show PID TTY STAT TIME MAJFL TRS DRS RSS %MEM COMMAND",
    ),
    bsd(
        "x",
        Set(|t| t.kinds.bsd_x = true),
        "Also show processes without a terminal; with a, show all",
    ),
    only_long(&["help"], Set(|t| t.instead = Some(Instead::Help)), "Print help"),
];

/// All options of procps.
fn rows() -> impl Iterator<Item = &'static OptionRow> {
    let listed = LISTED.iter().flat_map(|(_, sources)| sources.iter());
    let theirs = listed.filter_map(|source| match source {
        Procps(row) => Some(row),
        Own(_) => None,
    });
    theirs.chain(OTHERS)
}

/// How letters are read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// After a dash.
    Unix,
    /// Without one.
    Bsd,
}

impl Style {
    /// The option of this letter.
    pub fn find(self, letter: char) -> Option<&'static OptionRow> {
        rows().find(|row| match self {
            Style::Unix => row.unix.contains(letter),
            Style::Bsd => row.bsd.contains(letter),
        })
    }
}

/// The long names of procps.
pub fn long_names() -> impl Iterator<Item = &'static str> {
    rows().flat_map(|row| row.long).copied()
}

/// The option of procps with this long name.
pub fn find_long(name: &str) -> Option<&'static OptionRow> {
    rows().find(|row| row.long.contains(&name))
}

/// The letter that stands for this long name, which only taskdiag has.
pub fn letter_of(name: &str) -> Option<char> {
    rows().find(|row| row.own.contains(&name))?.unix.chars().next()
}

/// The letters without a dash, in order, with what they do.
pub fn bsd_letters() -> Vec<(char, &'static str)> {
    let mut all: Vec<_> =
        rows().flat_map(|row| row.bsd.chars().map(|letter| (letter, row.help))).collect();
    all.sort_unstable();
    all
}

/// Adds all options to the command.
pub fn options(mut command: Command) -> Command {
    for (heading, sources) in LISTED {
        command = command.next_help_heading(*heading);
        for source in *sources {
            command = match source {
                Procps(row) => command.arg(row.arg()),
                Own(add) => add(command),
            };
        }
    }
    command
}
