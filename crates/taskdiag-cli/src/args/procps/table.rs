//! The options of procps `ps`, one row each.

use super::{Bsd, ForestStyle, Headers, Instead, Selector, Typed, TypedAs};
use crate::args::lists;
use crate::exit::Exit;

/// The effect of an option.
#[derive(Clone, Copy)]
pub enum Does {
    /// It has no value.
    Set(fn(&mut Typed)),
    /// It has a value, which is this.
    Take(&'static str, fn(&mut Typed, &str) -> Result<(), Exit>),
    /// It may have one, where one follows.
    May(fn(&mut Typed, Option<&str>) -> Result<(), Exit>),
}

use Does::{May, Set, Take};

/// An option: its name, its effect, and a description of that.
pub type OptionRow<N> = (N, Does, &'static str);

fn ids(text: &str, make: fn(Vec<u32>) -> Selector, to: &mut Typed) -> Result<(), Exit> {
    let all = lists::strict(text)?.into_iter().map(|s| lists::pid("a list of processes", s));
    let all: Vec<u32> = all.collect::<Result<_, _>>()?;
    if all.contains(&0) && !matches!(make(Vec::new()), Selector::Parent(_)) {
        return Err(Exit::Usage(String::from("there is no process 0: ids begin at 1")));
    }
    to.lists.push(make(all));
    Ok(())
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
    ids(s, Selector::Pid, t)
}
fn quick(t: &mut Typed, s: &str) -> Result<(), Exit> {
    t.quick = true;
    ids(s, Selector::Pid, t)
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

const NO_HEADERS: Does = Set(|t| t.headers = Some(Headers::Never));
const HEADERS: Does = Set(|t| t.headers = Some(Headers::EachPage));
const COLUMNS: Does = Take("a list of columns", |t, s| spec(t, TypedAs::Columns, s));
const KEYS: Does = Take("a list of columns", |t, s| spec(t, TypedAs::Keys, s));
const PIDS: Does = Take("a list of process ids", pids);
const QUICK: Does = Take("a list of process ids", quick);

/// Letters after a dash.
pub const UNIX: &[OptionRow<char>] = &[
    ('A', Set(|t| t.all = true), "All processes"),
    ('C', Take("a list of command names", commands), "By command name"),
    ('F', Set(|t| (t.full, t.extra_full) = (true, true)), "As -f, and SZ RSS PSR"),
    ('G', Take("a list of groups", real_groups), "By real group"),
    (
        'H',
        Set(|t| t.forest = Some(ForestStyle::Indented)),
        "Children below their parents, indented",
    ),
    ('L', Set(|t| t.lwp = true), "A row for each thread; adds LWP and NLWP"),
    ('M', Set(|t| t.label = true), "Adds the security label"),
    ('N', Set(|t| t.deselect = true), "Those that are not selected"),
    (
        'O',
        Take("a list of columns", |t, s| spec(t, TypedAs::UnixAmong, s)),
        "As -o, between PID and S TTY TIME COMMAND",
    ),
    ('P', Set(|t| t.processor = true), "Adds PSR"),
    ('T', Set(|t| t.spid = true), "A row for each thread; adds SPID"),
    ('U', Take("a list of users", real_users), "By real user"),
    ('V', Set(|t| t.instead = Some(Instead::Version)), "The version"),
    ('Z', Set(|t| t.label = true), "Adds the security label"),
    ('a', Set(|t| t.kinds.unix_a = true), "Those with a terminal, but not session leaders"),
    ('c', Set(|t| t.class = true), "Adds the scheduling class"),
    ('d', Set(|t| t.kinds.unix_d = true), "All but session leaders"),
    ('e', Set(|t| t.all = true), "All processes"),
    ('f', Set(|t| t.full = true), "UID PID PPID C STIME TTY TIME CMD"),
    (
        'g',
        Take("a list of sessions or of groups", sessions_or_groups),
        "By session, or by the name of the effective group",
    ),
    ('j', Set(|t| t.jobs = true), "PID PGID SID TTY TIME CMD"),
    ('l', Set(|t| t.long = true), "F S UID PID PPID C PRI NI ADDR SZ WCHAN TTY TIME CMD"),
    ('m', Set(|t| t.both = true), "Threads below their process"),
    ('o', COLUMNS, "These columns"),
    ('p', PIDS, "By process id"),
    ('q', QUICK, "By process id, in this order"),
    ('s', Take("a list of sessions", sessions), "By session"),
    ('t', Take("a list of terminals", terminals), "By terminal"),
    ('u', Take("a list of users", effective_users), "By effective user"),
    ('w', Set(|t| t.wide += 1), "Wider output; twice: as wide as it takes"),
    ('y', Set(|t| t.with_rss = true), "With -l: RSS instead of F and ADDR"),
];

/// Letters without a dash.
pub const BSD: &[OptionRow<char>] = &[
    (
        'H',
        Set(|t| t.thread_rows = true),
        "Print a row for each thread, without a column for its id",
    ),
    ('L', Set(|t| t.instead = Some(Instead::Columns)), "List the names of all columns"),
    ('M', Set(|t| t.both = true), "Do the same as m"),
    (
        'O',
        Take("a list of columns or keys", |t, s| spec(t, TypedAs::BsdAmong, s)),
        "Show these columns between PID and S TTY TIME COMMAND; or sort by keys of one letter",
    ),
    (
        'S',
        Set(|t| t.cumulative = true),
        "Add to TIME that of children that have ended and were waited for",
    ),
    ('T', Set(|t| t.lists.push(Selector::OwnTerminal)), "Show processes on this terminal"),
    ('U', Take("a list of users", effective_users), "Show processes of these effective users"),
    ('V', Set(|t| t.instead = Some(Instead::Version)), "Print the version"),
    (
        'X',
        Set(|t| view(t, Bsd::Registers)),
        "Show PID STACKP ESP EIP TMOUT ALARM STAT TTY TIME COMMAND",
    ),
    ('Z', Set(|t| t.label = true), "Add a column for the security label"),
    ('a', Set(|t| t.kinds.bsd_a = true), "Also show processes of other users; with x, show all"),
    ('c', Set(|t| t.command_name = true), "Show the name of the command, not its arguments"),
    ('e', Set(|t| t.environment = true), "Show the environment after the arguments"),
    (
        'f',
        Set(|t| t.forest = Some(ForestStyle::Drawn)),
        "Print children below their parents, as a tree",
    ),
    ('g', Set(|t| t.kinds.bsd_g = true), "Also show session leaders, which are shown anyway"),
    ('h', NO_HEADERS, "Print no line of headers"),
    ('j', Set(|t| view(t, Bsd::Jobs)), "Show PPID PID PGID SID TTY TPGID STAT UID TIME COMMAND"),
    ('k', KEYS, "Sort by these columns"),
    (
        'l',
        Set(|t| view(t, Bsd::Long)),
        "Show F UID PID PPID PRI NI VSZ RSS WCHAN STAT TTY TIME COMMAND",
    ),
    ('m', Set(|t| t.both = true), "Print the threads below their process"),
    ('n', Set(|t| t.numeric = true), "Show numbers for users"),
    ('o', COLUMNS, "Show these columns"),
    ('p', PIDS, "Show processes with these ids"),
    ('q', QUICK, "Show processes with these ids, in this order"),
    (
        'r',
        Set(|t| t.running = true),
        "Show only processes that run or are in an uninterruptible wait",
    ),
    (
        's',
        Set(|t| view(t, Bsd::Signals)),
        "Show UID PID PENDING BLOCKED IGNORED CAUGHT STAT TTY TIME COMMAND",
    ),
    ('t', May(terminals_or_own), "Show processes on these terminals, or on this one"),
    (
        'u',
        Set(|t| view(t, Bsd::User)),
        "Show USER PID %CPU %MEM VSZ RSS TTY STAT START TIME COMMAND",
    ),
    ('v', Set(|t| view(t, Bsd::Memory)), "Show PID TTY STAT TIME MAJFL TRS DRS RSS %MEM COMMAND"),
    ('w', Set(|t| t.wide += 1), "Cut lines after 132 cells; ww cuts no line"),
    (
        'x',
        Set(|t| t.kinds.bsd_x = true),
        "Also show processes without a terminal; with a, show all",
    ),
];

/// Long names.
pub const LONG: &[OptionRow<&str>] = &[
    ("Group", Take("a list of groups", real_groups), "By real group"),
    ("User", Take("a list of users", real_users), "By real user"),
    ("cols", Take("a number", columns), "The width of the output"),
    ("columns", Take("a number", columns), "The width of the output"),
    ("context", Set(|t| view(t, Bsd::Context)), "PID CONTEXT COMMAND"),
    ("cumulative", Set(|t| t.cumulative = true), "As S"),
    (
        "delimiter",
        Take("a character", delimiter),
        "A character between columns, in place of blanks",
    ),
    ("deselect", Set(|t| t.deselect = true), "As -N"),
    ("forest", Set(|t| t.forest = Some(ForestStyle::Drawn)), "As f"),
    ("format", COLUMNS, "As -o"),
    ("group", Take("a list of groups", effective_groups), "By effective group"),
    ("header", HEADERS, "Headers on each page"),
    ("headers", HEADERS, "Headers on each page"),
    ("heading", HEADERS, "Headers on each page"),
    ("headings", HEADERS, "Headers on each page"),
    ("help", Set(|t| t.instead = Some(Instead::Help)), "Help"),
    ("info", Set(|t| t.instead = Some(Instead::Version)), "The version"),
    ("lines", Take("a number", lines), "The height of a page"),
    ("no-header", NO_HEADERS, "No line of headers"),
    ("no-headers", NO_HEADERS, "No line of headers"),
    ("no-heading", NO_HEADERS, "No line of headers"),
    ("no-headings", NO_HEADERS, "No line of headers"),
    ("noheader", NO_HEADERS, "No line of headers"),
    ("noheaders", NO_HEADERS, "No line of headers"),
    ("noheading", NO_HEADERS, "No line of headers"),
    ("noheadings", NO_HEADERS, "No line of headers"),
    ("pid", PIDS, "As -p"),
    ("ppid", Take("a list of process ids", parents), "Children of these processes"),
    ("quick-pid", QUICK, "As -q"),
    ("rows", Take("a number", lines), "The height of a page"),
    ("sid", Take("a list of sessions", sessions), "As -s"),
    ("sort", KEYS, "Sort by these columns"),
    ("tty", Take("a list of terminals", terminals), "As -t"),
    ("user", Take("a list of users", effective_users), "As -u"),
    ("version", Set(|t| t.instead = Some(Instead::Version)), "The version"),
    ("width", Take("a number", columns), "The width of the output"),
];
