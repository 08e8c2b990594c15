//! The arguments of procps `pmap`, for `taskdiag --as pmap` and a link of that name.

use std::ffi::OsString;

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
    pub instead: Option<&'static str>,
}

/// What `-h` prints.
pub const USAGE: &str = "\
Usage: pmap [-x | -X | -XX | -d] [-q] [-p] [-k] [-A LOW[,HIGH]] PID...

  -x, --extended    also resident and dirty memory
  -X                what smaps has that is of interest; -XX: all of it
  -d, --device      also offset and device
  -q, --quiet       no headers, no totals
  -p, --show-path   whole paths
  -k, --use-kernel-name
                    the kernel's names, such as [heap], for what has no file
  -A, --range       only mappings with an address between two hexadecimal numbers
  -V, --version     print the version

For example: pmap -x 42, pmap -p $$
";

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
        let letters = match word.strip_prefix("--") {
            Some("") => {
                only_pids = true;
                continue;
            }
            Some("extended") => "x",
            Some("device") => "d",
            Some("quiet") => "q",
            Some("show-path") => "p",
            Some("use-kernel-name") => "k",
            Some("help") => "h",
            Some("version") => "V",
            Some(long) => match long.strip_prefix("range") {
                Some("") => "A",
                Some(value) if value.starts_with('=') => {
                    out.range = range(&value[1..])?;
                    continue;
                }
                _ => return refused(format!("there is no option '{word}'\n{USAGE}")),
            },
            None => &word[1..],
        };
        for (i, letter) in letters.char_indices() {
            match letter {
                'x' => views.push(PmapView::Extended),
                'd' => views.push(PmapView::Device),
                'X' if views.last() == Some(&PmapView::More) => views = vec![PmapView::Everything],
                'X' => views.push(PmapView::More),
                'q' => out.quiet = true,
                'p' => out.paths = true,
                'k' => out.kernel_names = true,
                'r' => {}
                'V' => out.instead = Some(concat!("taskdiag ", env!("CARGO_PKG_VERSION"), "\n")),
                'h' => out.instead = Some(USAGE),
                'A' => {
                    let rest = &letters[i + 1..];
                    let value = if rest.is_empty() { words.next() } else { Some(rest.to_owned()) };
                    let Some(value) = value else {
                        return refused(String::from("-A needs a range of addresses after it"));
                    };
                    out.range = range(&value)?;
                    break;
                }
                _ => return refused(format!("there is no option '-{letter}'\n{USAGE}")),
            }
        }
    }
    if views.len() > 1 {
        return refused(String::from("-x, -X and -d show different columns: choose one of them"));
    }
    out.view = views.pop().unwrap_or_default();
    if out.pids.is_empty() && out.instead.is_none() {
        return refused(format!("name a process\n{USAGE}"));
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
    fn letters_and_names() {
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
        for wrong in ["", "-x", "-x -d 1", "-y 1", "abc", "0", "--nosuch 1", "-A zz 1"] {
            assert!(matches!(read(wrong), Err(Exit::Refused(_))), "{wrong}");
        }
    }
}
