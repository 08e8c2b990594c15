//! The arguments of procps `pmap`, for `taskdiag --as pmap` and a link of that name.

use std::ffi::OsString;
use std::fmt::Write as _;

use crate::exit::Exit;

/// The columns for each mapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PmapView {
    /// Address, size, mode, name.
    #[default]
    Plain,
    /// `-x`: also resident and dirty memory.
    Extended,
    /// `-d`: also offset and device.
    Device,
    /// `-X`: the most useful values of smaps.
    More,
    /// `-XX`: all values of smaps.
    Everything,
}

/// The parsed arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PmapArgs {
    pub view: PmapView,
    /// `-q`: no headers, no totals.
    pub quiet: bool,
    /// `-p`: whole paths.
    pub paths: bool,
    /// `-k`: the kernel's names for mappings without a file, such as `[heap]`.
    pub kernel_names: bool,
    /// `-A`: only mappings that have an address between these.
    pub range: (u64, u64),
    /// In the order in which they were typed.
    pub pids: Vec<u32>,
    /// `-V`, `-h`.
    pub instead: Option<String>,
}

/// The effect of an option.
enum Does {
    /// It chooses the columns.
    View(PmapView),
    /// It has no value.
    Set(fn(&mut PmapArgs)),
    /// It has a range of addresses as its value.
    Range,
}

use Does::{Range, Set, View};

/// Letter, long name, effect, and its text in the help.
const OPTIONS: &[(char, &str, Does, &str)] = &[
    ('x', "extended", View(PmapView::Extended), "also resident and dirty memory"),
    ('X', "", View(PmapView::More), "the useful fields of smaps; -XX: all of them"),
    ('d', "device", View(PmapView::Device), "also offset and device"),
    ('q', "quiet", Set(|a| a.quiet = true), "no headers, no totals"),
    ('p', "show-path", Set(|a| a.paths = true), "whole paths"),
    (
        'k',
        "use-kernel-name",
        Set(|a| a.kernel_names = true),
        "the kernel's names, such as [heap], for what has no file",
    ),
    ('A', "range", Range, "only mappings with an address between two hexadecimal numbers"),
    ('r', "", Set(|_| {}), "no effect, as in procps"),
    ('h', "help", Set(|a| a.instead = Some(usage())), "print this help"),
    (
        'V',
        "version",
        Set(|a| a.instead = Some(format!("taskdiag {}\n", env!("CARGO_PKG_VERSION")))),
        "print the version",
    ),
];

/// What `-h` prints.
fn usage() -> String {
    let mut text =
        String::from("Usage: pmap [-x | -X | -XX | -d] [-q] [-p] [-k] [-A LOW[,HIGH]] PID...\n\n");
    for (letter, long, _, help) in OPTIONS {
        let names =
            if long.is_empty() { format!("-{letter}") } else { format!("-{letter}, --{long}") };
        // Texts begin at one column, below a name that is too long.
        let gap = if names.len() < 17 { "" } else { "\n                    " };
        writeln!(text, "  {names:<18}{gap}{help}").expect("a string takes all");
    }
    text.push_str("\nFor example: pmap -x 42, pmap -p $$\n");
    text
}

fn refused<T>(text: String) -> Result<T, Exit> {
    Err(Exit::Refused(text))
}

/// Parses them. Options may also come after process ids.
pub fn parse(args: &[OsString]) -> Result<PmapArgs, Exit> {
    let mut out = PmapArgs {
        view: PmapView::Plain,
        quiet: false,
        paths: false,
        kernel_names: false,
        range: (0, u64::MAX),
        pids: Vec::new(),
        instead: None,
    };
    let mut views = Vec::new();
    let mut words = args.iter().map(|a| a.to_string_lossy().into_owned());
    let mut only_pids = false;
    while let Some(word) = words.next() {
        if only_pids || !word.starts_with('-') || word == "-" {
            out.pids.push(pid(&word)?);
            continue;
        }
        let unknown = |option: &str| refused(format!("there is no option '{option}'\n{}", usage()));
        let (letters, mut value) = match word.strip_prefix("--") {
            Some("") => {
                only_pids = true;
                continue;
            }
            Some(long) => {
                let (name, value) =
                    long.split_once('=').map_or((long, None), |(n, v)| (n, Some(v)));
                let row = OPTIONS.iter().find(|row| row.1 == name && !name.is_empty());
                match row.filter(|row| value.is_none() || matches!(row.2, Range)) {
                    Some(row) => (row.0.to_string(), value.map(str::to_owned)),
                    None => return unknown(&word),
                }
            }
            None => (word[1..].to_owned(), None),
        };
        for (i, letter) in letters.char_indices() {
            match OPTIONS.iter().find(|row| row.0 == letter).map(|row| &row.2) {
                Some(View(PmapView::More)) if views.last() == Some(&PmapView::More) => {
                    views = vec![PmapView::Everything];
                }
                Some(View(view)) => views.push(*view),
                Some(Set(set)) => set(&mut out),
                Some(Range) => {
                    let rest = &letters[i + 1..];
                    let rest = (!rest.is_empty()).then(|| rest.to_owned());
                    let Some(value) = value.take().or(rest).or_else(|| words.next()) else {
                        return refused(String::from("-A needs a range of addresses after it"));
                    };
                    out.range = range(&value)?;
                    break;
                }
                None => return unknown(&format!("-{letter}")),
            }
        }
    }
    if views.len() > 1 {
        return refused(String::from("-x, -X and -d show different columns: choose one of them"));
    }
    out.view = views.pop().unwrap_or_default();
    if out.pids.is_empty() && out.instead.is_none() {
        return refused(format!("name a process\n{}", usage()));
    }
    Ok(out)
}

/// `42` or `/proc/42`.
fn pid(word: &str) -> Result<u32, Exit> {
    let digits = word.strip_prefix("/proc/").unwrap_or(word);
    match digits.parse().ok().filter(|p| (1..=i32::MAX as u32).contains(p)) {
        Some(pid) => Ok(pid),
        None => refused(format!("'{word}' is not a process id")),
    }
}

fn range(text: &str) -> Result<(u64, u64), Exit> {
    let number = |s: &str, none: u64| match s {
        "" => Ok(none),
        s => u64::from_str_radix(s.trim_start_matches("0x"), 16),
    };
    let (low, high) = text.split_once(',').unwrap_or((text, text));
    match (number(low, 0), number(high, u64::MAX)) {
        (Ok(low), Ok(high)) => Ok((low, high)),
        _ => refused(format!("'{text}' is not a range of addresses, such as 7f00,7fff")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &str) -> Result<PmapArgs, Exit> {
        parse(&words.split_whitespace().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn an_option_that_is_parsed_is_in_the_help() {
        let help = read("-h").unwrap().instead.unwrap();
        for letter in ('A'..='Z').chain('a'..='z') {
            let is_parsed = match read(&format!("-{letter} 1")) {
                Err(Exit::Refused(why)) => !why.contains("there is no option"),
                _ => true,
            };
            let is_listed = help.lines().any(|l| l.starts_with(&format!("  -{letter}")));
            assert_eq!(is_parsed, is_listed, "-{letter}");
        }
    }

    #[test]
    fn letters_and_long_names_choose_the_view_of_pmap() {
        assert_eq!(read("1").unwrap().view, PmapView::Plain);
        for (typed, view) in [
            ("-x 1", PmapView::Extended),
            ("1 --extended", PmapView::Extended),
            ("-qd 1", PmapView::Device),
            ("-X 1", PmapView::More),
            ("-XX 1", PmapView::Everything),
            ("-X -X 1", PmapView::Everything),
        ] {
            assert_eq!(read(typed).unwrap().view, view, "{typed}");
        }
        assert!(
            read("-k 1").unwrap().kernel_names && read("--use-kernel-name 1").unwrap().kernel_names
        );
        assert_eq!(read("-A 10,20 /proc/7").unwrap().range, (0x10, 0x20));
        assert_eq!(read("-A10 7 8").unwrap().range, (0x10, 0x10));
        assert_eq!(read("-A10 7 8").unwrap().pids, [7, 8]);
        assert_eq!(read("--range=10,20 7").unwrap().range, (0x10, 0x20));
        assert_eq!(read("--range 10,20 7").unwrap().range, (0x10, 0x20));
        for wrong in
            ["", "--quiet=1 1", "-x", "-x -d 1", "-y 1", "abc", "0", "--nosuch 1", "-A zz 1"]
        {
            assert!(matches!(read(wrong), Err(Exit::Refused(_))), "{wrong}");
        }
    }
}
