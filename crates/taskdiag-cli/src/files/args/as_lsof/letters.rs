//! The letters of lsof, one row each: the parser and the help are made from them.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStringExt as _;

use super::{Typed, Words, bad, repeat};
use crate::exit::Exit;
use crate::files::layout::{Ends, Form};
use crate::files::request::Instead;

/// The signs that a letter has before it.
pub(super) enum Signs {
    Minus,
    Plus,
    /// Either, with the same effect.
    Any,
}

use Signs::{Any, Minus, Plus};

/// A letter as it was typed.
pub(super) struct Asked<'a> {
    pub(super) plus: bool,
    /// With its sign.
    pub(super) name: &'a str,
}

impl Asked<'_> {
    pub(super) fn value(&self, words: &mut Words<'_>, what: &str) -> Result<Vec<u8>, Exit> {
        let given = words.value().map(|g| g.value);
        given.ok_or_else(|| bad(self.name, &format!("needs {what}")))
    }
    pub(super) fn wrong(&self, why: &str) -> Result<(), Exit> {
        Err(bad(self.name, why))
    }
}

/// A letter of lsof. The parser and the help are made from it.
pub(super) struct Letter {
    pub(super) signs: Signs,
    /// Letters of the same effect.
    pub(super) letters: &'static str,
    /// The value in the help.
    value: &'static str,
    /// Its text in the help. Empty: it is refused.
    help: &'static str,
    pub(super) read: fn(&mut Typed, &Asked<'_>, &mut Words<'_>) -> Result<(), Exit>,
}

const fn letter(
    signs: Signs,
    letters: &'static str,
    value: &'static str,
    help: &'static str,
    read: fn(&mut Typed, &Asked<'_>, &mut Words<'_>) -> Result<(), Exit>,
) -> Letter {
    Letter { signs, letters, value, help, read }
}

/// A letter that only sets something.
macro_rules! set {
    ($signs:ident $letters:literal $help:literal, |$typed:ident| $set:expr) => {
        letter($signs, $letters, "", $help, |$typed, _, _| {
            $set;
            Ok(())
        })
    };
}

/// In the order of the help.
pub(super) const LETTERS: &[Letter] = &[
    set!(Any "a" "show only what meets all conditions", |t| t.args.push("-a".into())),
    letter(Any, "b", "", "no effect: no call that may block is made", |_, _, _| Ok(())),
    letter(
        Minus,
        "c",
        "NAME",
        "commands that begin with NAME or match /REGEX/; ^NAME: all others",
        |t, asked, words| {
            t.commands.push(OsString::from_vec(asked.value(words, "the name of a command")?));
            Ok(())
        },
    ),
    letter(Plus, "c", "N", "show up to N letters of a command; 0: all", |t, asked, words| {
        match words.number() {
            Some(0) => t.layout.command = usize::MAX,
            Some(width) => t.layout.command = width as usize,
            None => return asked.wrong("needs a number"),
        }
        Ok(())
    }),
    letter(Any, "C", "", "no effect: there is no cache of names", |_, _, _| Ok(())),
    letter(
        Minus,
        "d",
        "LIST",
        "descriptors, such as 0-2,cwd; ^3: all but this one",
        |t, asked, words| t.pass("--descriptor", asked, words),
    ),
    letter(Plus, "d", "DIR", "the directory and the files in it", |t, asked, words| {
        let path = asked.value(words, "a directory after it")?;
        t.push("--in", path);
        Ok(())
    }),
    letter(Plus, "D", "DIR", "the directory and everything below it", |t, asked, words| {
        let path = asked.value(words, "a directory after it")?;
        t.push("--under", path);
        Ok(())
    }),
    letter(Minus, "D", "", "", |_, asked, _| {
        asked.wrong("is not supported: there is no device cache")
    }),
    letter(Any, "e", "PATH", "no effect: no file system is asked", |_, asked, words| {
        asked.value(words, "the path of a file system").map(drop)
    }),
    set!(Minus "E" "show the other ends of pipes, sockets and terminals", |t| t.layout.ends = Ends::Named),
    set!(Plus "E" "the same, and list the files of these ends", |t| t.layout.ends = Ends::Listed),
    letter(
        Minus,
        "f",
        "[g|G]",
        "FILE is a plain file; g, G: no column of flags",
        |t, asked, words| t.file_structure(asked, words),
    ),
    letter(
        Plus,
        "f",
        "[g|G]",
        "FILE is a file system; g: show how files were opened; G: as numbers",
        |t, asked, words| t.file_structure(asked, words),
    ),
    letter(
        Any,
        "F",
        "[LETTERS]",
        "print lines for programs; -F ? lists the letters",
        |t, _, words| t.fields(words),
    ),
    letter(Any, "g", "[LIST]", "show process groups, and select these", |t, _, words| {
        t.layout.groups = true;
        if let Some(list) = words.plain_value() {
            t.push("--group", list);
        }
        Ok(())
    }),
    set!(Any "h?" "print this help", |t| t.instead = Some(Instead::Help)),
    set!(Any "H" "show sizes with units", |t| t.layout.human = true),
    letter(
        Any,
        "i",
        "[ADDRESS]",
        "internet sockets; ADDRESS is [46][PROTO][@HOST][:PORTS]",
        |t, _, words| {
            let address = words.plain_value().unwrap_or_default();
            t.push("--inet", address);
            Ok(())
        },
    ),
    letter(Minus, "j", "", "print one JSON object a line", |t, _, _| t.be(Form::JsonLines)),
    letter(Minus, "J", "", "print one JSON document", |t, _, _| t.be(Form::Json)),
    letter(Any, "K", "[i]", "show threads, too; i: show none", |t, asked, words| {
        match words.plain_value() {
            None => t.layout.tasks = Some(true),
            Some(i) if i.eq_ignore_ascii_case(b"i") => t.layout.tasks = Some(false),
            Some(_) => return asked.wrong("takes nothing, or i"),
        }
        Ok(())
    }),
    set!(Any "l" "show uids, not names of users", |t| t.layout.numeric_users = true),
    letter(Minus, "L", "", "show no numbers of links", |t, asked, words| t.links(asked, words)),
    letter(
        Plus,
        "L",
        "[N]",
        "show numbers of links; with N, select files with fewer",
        |t, asked, words| t.links(asked, words),
    ),
    letter(Any, "M", "", "no effect: portmap is not asked", |_, _, _| Ok(())),
    letter(Any, "m", "", "", |_, asked, _| {
        asked.wrong("is not supported: mounts are in /proc/self/mountinfo")
    }),
    set!(Minus "n" "show addresses, not names of hosts", |t| t.layout.numeric_hosts = true),
    set!(Plus "n" "show names of hosts", |t| t.layout.numeric_hosts = false),
    letter(Any, "N", "", "", |_, _, _| {
        Err(bad("-N", "is not supported: files of NFS are listed like others"))
    }),
    letter(Any, "o", "[N]", "show offsets, not sizes; N: with up to N digits", |t, _, words| {
        match words.number() {
            Some(digits) => t.layout.offset_digits = digits as usize,
            None => t.layout.offset = true,
        }
        Ok(())
    }),
    letter(Any, "O", "", "no effect: no child does a call that may block", |_, _, _| Ok(())),
    letter(Any, "p", "LIST", "these processes; ^PID: all but this one", |t, asked, words| {
        t.pass("--pid", asked, words)
    }),
    set!(Minus "P" "show numbers of ports, not names of services", |t| t.layout.numeric_ports = true),
    set!(Plus "P" "show names of services", |t| t.layout.numeric_ports = false),
    set!(Any "Q" "finding nothing is no failure", |t| t.layout.nothing_is_fine = true),
    letter(
        Minus,
        "r",
        "[T[cN][mFORMAT]]",
        "repeat every T seconds (15), N times, with a line of strftime(3) between",
        |t, asked, words| {
            t.repeat = Some(repeat(asked.plus, words)?);
            Ok(())
        },
    ),
    letter(
        Plus,
        "r",
        "[T[cN][mFORMAT]]",
        "the same, until there is nothing to list",
        |t, asked, words| {
            t.repeat = Some(repeat(asked.plus, words)?);
            Ok(())
        },
    ),
    set!(Any "R" "show the pid of the parent", |t| t.args.push("-R".into())),
    letter(
        Any,
        "s",
        "[PROTO:STATES]",
        "show sizes, not offsets; with a value, sockets in these states",
        |t, _, words| {
            match words.plain_value() {
                Some(states) => t.push("--states", states),
                None => t.layout.size = true,
            }
            Ok(())
        },
    ),
    letter(Any, "S", "[T]", "no effect: no call that may block is made", |_, _, words| {
        words.number();
        Ok(())
    }),
    letter(Any, "t", "", "print only process ids", |t, _, _| {
        t.layout.quiet = true;
        t.be(Form::Terse)
    }),
    letter(
        Minus,
        "T",
        "[fqs]",
        "show no states of sockets; or flags, queues, states",
        |t, asked, words| t.states(asked, words),
    ),
    letter(
        Plus,
        "T",
        "[fqs]",
        "show states of sockets; or flags, queues, states",
        |t, asked, words| t.states(asked, words),
    ),
    letter(Any, "u", "LIST", "these users; ^USER: all but this one", |t, asked, words| {
        t.pass("--user", asked, words)
    }),
    set!(Any "U" "unix sockets", |t| t.args.push("-U".into())),
    set!(Any "v" "print the version", |t| t.instead = Some(Instead::Version)),
    set!(Any "V" "report what was not found", |t| t.layout.verbose = true),
    set!(Minus "w" "no rows that only report a denial", |t| t.layout.quiet = true),
    set!(Plus "w" "rows that only report a denial", |t| t.layout.quiet = false),
    letter(
        Any,
        "x",
        "[fl]",
        "only with +d or +D, which cross mounts and links in any case",
        |t, asked, words| match words.plain_value() {
            Some(letters) if letters.iter().any(|b| !b"fl".contains(b)) => {
                asked.wrong("takes f and l")
            }
            _ => {
                t.crosses = true;
                Ok(())
            }
        },
    ),
    set!(Any "X" "no TCP and UDP sockets", |t| t.layout.without_inet = true),
    letter(Any, "Zz", "", "", |_, asked, _| {
        asked.wrong("is not supported: see the column task.label of 'taskdiag files'")
    }),
];

/// What `-h` prints.
pub fn help() -> String {
    let mut text = String::from("Usage: lsof [LETTERS] [OPTIONS of taskdiag files] [FILE...]\n\n");
    for row in LETTERS.iter().filter(|row| !row.help.is_empty()) {
        let sign = if matches!(row.signs, Plus) { '+' } else { '-' };
        let names: Vec<String> = row.letters.chars().map(|c| format!("{sign}{c}")).collect();
        let left = format!("{} {}", names.join(", "), row.value);
        let gap = if left.len() < 20 { "" } else { "\n                      " };
        writeln!(text, "  {left:<20}{gap}{}", row.help).expect("a string takes all");
    }
    text.push_str("\nWithout -a, a file is shown if it meets one of the conditions.\n");
    text
}
