//! Arguments of lsof that begin with `+`, and short ones with a meaning of their own there,
//! rewritten as the long options that the parser knows.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::exit::{self, Exit};
use crate::files::lsof::Layout;

/// What an argument stands for.
#[derive(Clone, Copy, Debug)]
enum Means {
    /// An option with a value: the rest of the argument, or the next one.
    Value(&'static str),
    /// Nothing here; with a value that is dropped, or without one.
    Nothing { value: bool },
    /// taskdiag does not have it; this says what to use.
    Not(&'static str),
}

use Means::{Not, Nothing, Value};

/// Argument, meaning.
const PLUS: &[(char, Means)] = &[
    ('d', Value("--in")),
    ('D', Value("--under")),
    ('c', Nothing { value: true }),
    ('w', Nothing { value: false }),
    ('E', Nothing { value: false }),
    ('f', Not("how a file was opened is in the columns flags, dev and mnt_id of -o")),
    ('m', Not("mounts are in /proc/self/mounts")),
    ('M', Not("ports that portmap registered are not looked up")),
];

/// Options of lsof with a minus that `files` lacks, and what to use instead.
const LACKING: &[(char, &str)] = &[
    ('x', "+D crosses mounts and links where it has to"),
    ('N', "files of NFS are listed like all others"),
    ('S', "taskdiag waits for no file system, so it needs no time limit"),
    ('Z', "the security label is the column task.label of -o"),
    ('T', "the states and queues of sockets are in the columns sockstate, recvq and sendq of -o"),
    ('L', "the number of links is the column nlink of -o; +L1 lists deleted files"),
    ('C', "no cache of names is used, so it cannot be left out"),
    ('f', "how a file was opened is in the columns flags, dev and mnt_id of -o"),
    ('D', "there is no device cache"),
    ('V', "what was not found is always reported; --version prints the version"),
    ('v', "--version prints the version"),
];

/// The seconds between two lists of `-r` alone.
pub const REPEAT_SECONDS: &str = "15";

/// Rewrite. `takes_value`, `long_takes_value`: is this option followed by a value?
pub fn normalize(
    args: &[OsString],
    takes_value: impl Fn(char) -> bool,
    long_takes_value: impl Fn(&str) -> bool,
) -> Result<Vec<OsString>, Exit> {
    let mut out = Vec::with_capacity(args.len());
    let mut args = args.iter().peekable();
    while let Some(arg) = args.next() {
        let bytes = arg.as_bytes();
        if bytes == b"--" {
            out.push(arg.clone());
            out.extend(args.cloned());
            break;
        }
        match bytes {
            // +L1: link count below 1.
            b"+L1" => out.push("--deleted".into()),
            [b'+', b'L', digits @ ..] if !digits.is_empty() => {
                let mut option = OsString::from("--links-below=");
                option.push(OsStr::from_bytes(digits));
                out.push(option);
            }
            [b'+', b'L'] => {
                return Err(lacks(arg, "a number must follow; the column nlink of -o has all"));
            }
            // Threads are looked at in any case; lsof has them with -K, and not with -K i.
            b"-K" => drop(args.next_if(|a| a.as_bytes() == b"i")),
            b"-Ki" => {}
            // The seconds may be a word of their own, and need not be there.
            [sign @ (b'+' | b'-'), b'r', rest @ ..] => {
                let is_number = |a: &&OsString| a.as_bytes().iter().all(u8::is_ascii_digit);
                let next = if rest.is_empty() { args.next_if(is_number) } else { None };
                let mut option = OsString::from("--repeat=");
                option.push(match next {
                    Some(seconds) => seconds.as_os_str(),
                    None if rest.is_empty() => OsStr::new(REPEAT_SECONDS),
                    None => OsStr::from_bytes(rest),
                });
                out.push(option);
                out.extend((*sign == b'+').then(|| OsString::from("--until-none")));
            }
            [b'+', letter, rest @ ..] => {
                let known = PLUS.iter().find(|(c, _)| *c == char::from(*letter));
                match known.map(|(_, means)| *means) {
                    Some(Not(instead)) => return Err(lacks(arg, instead)),
                    Some(Nothing { value: false }) => {}
                    Some(Nothing { value: true }) if !rest.is_empty() => {}
                    Some(Nothing { value: true }) => drop(args.next()),
                    Some(Value(option)) => {
                        let value = match rest {
                            [] => args.next().cloned(),
                            rest => Some(OsStr::from_bytes(rest).to_owned()),
                        };
                        let Some(value) = value else {
                            let arg = exit::shown(Path::new(arg));
                            return Err(Exit::Usage(format!("{arg} needs a directory after it")));
                        };
                        out.push(option.into());
                        out.push(value);
                    }
                    None => return Err(lacks(arg, "see 'taskdiag files --help'")),
                }
            }
            [b'-', first, ..] if *first != b'-' => {
                let mut letters = bytes[1..].iter().map(|b| char::from(*b));
                // Up to the first that takes the rest as its value.
                if let Some((_, instead)) = letters
                    .by_ref()
                    .take_while(|c| !takes_value(*c))
                    .find_map(|c| LACKING.iter().find(|(n, _)| *n == c))
                {
                    return Err(lacks(arg, instead));
                }
                out.push(arg.clone());
                let alone = bytes.len() == 2 && takes_value(char::from(*first));
                // The value may begin with a plus or minus.
                if alone && !matches!(first, b'i' | b's') {
                    out.extend(args.next().cloned());
                }
            }
            _ => {
                out.push(arg.clone());
                let long = arg.to_str().and_then(|a| a.strip_prefix("--"));
                if long.is_some_and(&long_takes_value) {
                    out.extend(args.next().cloned());
                }
            }
        }
    }
    Ok(out)
}

/// Options of lsof that its table does not have here, and what to use instead.
const NOT_IN_TABLE: &[(char, &str)] = &[
    ('E', "'taskdiag files' names the other ends of pipes and sockets"),
    ('K', "'taskdiag files' lists threads with files of their own"),
];

/// Takes the options that only the table of lsof has out of its arguments, and gives the others.
pub fn layout(args: &[OsString]) -> Result<(Layout, Vec<OsString>), Exit> {
    let mut layout = Layout::default();
    let mut out = Vec::new();
    let mut args = args.iter().peekable();
    let is_value = |a: &&OsString| !matches!(a.as_bytes(), [b'-' | b'+', ..]);
    while let Some(arg) = args.next() {
        let bytes = arg.as_bytes();
        match bytes {
            b"--" => {
                out.push(arg.clone());
                out.extend(args.cloned());
                break;
            }
            [b'+', b'c', rest @ ..] => {
                let next = if rest.is_empty() { args.next().cloned() } else { None };
                let text = next.as_deref().map_or(rest, OsStr::as_bytes);
                let width = std::str::from_utf8(text).ok().and_then(|t| t.parse::<usize>().ok());
                let Some(width) = width else {
                    return Err(lacks(arg, "a number must follow"));
                };
                layout.command = if width == 0 { usize::MAX } else { width };
            }
            [b'+', b'L', rest @ ..] => {
                layout.links = true;
                out.extend((!rest.is_empty()).then(|| arg.clone()));
            }
            [b'+', b'E'] => return Err(lacks(arg, NOT_IN_TABLE[0].1)),
            [b'-', first, ..] if *first != b'-' => {
                let mut kept = vec![b'-'];
                let mut rest = &bytes[1..];
                while let Some((letter, after)) = rest.split_first() {
                    rest = after;
                    match char::from(*letter) {
                        'n' => layout.numeric_hosts = true,
                        'P' => layout.numeric_ports = true,
                        'l' => layout.numeric_users = true,
                        'w' => {}
                        'o' => layout.offset = true,
                        's' | 'g'
                            if rest.is_empty() && args.peek().is_none_or(|a| !is_value(a)) =>
                        {
                            layout.size |= *letter == b's';
                            layout.groups |= *letter == b'g';
                        }
                        // The rest is the value.
                        'p' | 'u' | 'g' | 'c' | 'i' | 's' | 'd' | 'F' | 'r' | 'S' => {
                            kept.push(*letter);
                            kept.extend(std::mem::take(&mut rest));
                        }
                        letter => {
                            if let Some((_, why)) = NOT_IN_TABLE.iter().find(|(l, _)| *l == letter)
                            {
                                return Err(lacks(arg, why));
                            }
                            kept.push(letter as u8);
                        }
                    }
                }
                if kept.len() > 1 {
                    // An option with a value may follow others.
                    let value = kept.last().is_some_and(|l| b"pugcsdF".contains(l));
                    out.push(OsStr::from_bytes(&kept).to_owned());
                    let takes = value && (kept.len() == 2 || !b"pugcisdFrS".contains(&kept[1]));
                    out.extend(if takes { args.next().cloned() } else { None });
                }
            }
            _ => out.push(arg.clone()),
        }
    }
    if layout.offset && layout.size {
        return Err(Exit::Usage(String::from("-o and -s are about the same column")));
    }
    Ok((layout, out))
}

fn lacks(arg: &OsStr, instead: &str) -> Exit {
    Exit::Usage(format!("files has no option '{}': {instead}", exit::shown(Path::new(arg))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_the_table() {
        let taken = |args: &[&str]| {
            let args: Vec<OsString> = args.iter().map(|a| (*a).into()).collect();
            let (layout, out) = layout(&args).expect("they are right");
            let out: Vec<_> = out.iter().map(|a| a.to_string_lossy()).collect();
            (layout, out.join(" "))
        };
        for (args, want) in [
            (&["-nPw", "-p", "1"][..], "-p 1"),
            (&["-nPo", "-c", "-x"], "-c -x"),
            (&["-ap1", "-g"], "-ap1"),
            (&["-nPp", "1", "-s"], "-p 1"),
            (&["-g", "-p", "1"], "-p 1"),
            (&["-g", "1", "-g2"], "-g 1 -g2"),
            (&["-iTCP", "-sTCP:LISTEN"], "-iTCP -sTCP:LISTEN"),
            (&["-i", "-s", "TCP:LISTEN"], "-i -s TCP:LISTEN"),
            (&["-Pi", ":22"], "-i :22"),
            (&["+c0", "+c", "3", "+L", "+L1"], "+L1"),
            (&["-a", "--", "-n"], "-a -- -n"),
        ] {
            assert_eq!(taken(args).1, want, "{args:?}");
        }
        let all = taken(&["-nPls", "+c", "0", "+L", "-g"]).0;
        assert!(all.numeric_hosts && all.numeric_ports && all.numeric_users && all.size);
        assert!(all.links && all.groups && all.command == usize::MAX && !all.offset);
    }

    fn rewritten(args: &[&str]) -> Result<String, Exit> {
        let args: Vec<OsString> = args.iter().map(|a| (*a).into()).collect();
        let out = normalize(&args, |c| "pucisdo".contains(c), |l| l == "sort")?;
        Ok(out.iter().map(|a| a.to_string_lossy()).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn habits_of_lsof() {
        for (args, want) in [
            (&["+D", "/tmp"][..], "--under /tmp"),
            (&["+D/tmp", "-t"], "--under /tmp -t"),
            (&["+d", "+x"], "--in +x"),
            (&["+L1"], "--deleted"),
            (&["+c0", "+w", "-n", "-P"], "-n -P"),
            (&["+c", "15", "-nP"], "-nP"),
            (&["-u", "^root", "-iTCP:22"], "-u ^root -iTCP:22"),
            (&["-o", "+D", "x"], "-o +D x"),
            (&["-cFoo", "-aZoo"], ""),
            (&["+L2"], "--links-below=2"),
            (&["--sort", "-fds"], "--sort -fds"),
            (&["--", "+D"], "-- +D"),
            (&["-K", "i", "-t"], "-t"),
            (&["-K", "file"], "file"),
            (&["-r"], "--repeat=15"),
            (&["-r", "5", "-t"], "--repeat=5 -t"),
            (&["-r", "file"], "--repeat=15 file"),
            (&["-r2", "5"], "--repeat=2 5"),
            (&["+r5"], "--repeat=5 --until-none"),
            (&["+r", "-t"], "--repeat=15 --until-none -t"),
            (&["-i", "+D", "/x"], "-i --under /x"),
        ] {
            match rewritten(args) {
                Ok(out) => assert_eq!(out, want),
                Err(e) => assert!(want.is_empty(), "{args:?} {e:?}"),
            }
        }
        for bad in [&["+D"][..], &["-Z"], &["-pnF", "-nZ"], &["+L"], &["-f"], &["+f", "g"], &["+q"]]
        {
            assert!(rewritten(bad).is_err(), "{bad:?}");
        }
    }
}
