//! Rewrites arguments of lsof as long options of `taskdiag files`: arguments that start with `+`,
//! and short options whose meaning differs in lsof.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::exit::{self, Exit};

/// The meaning of an argument.
#[derive(Clone, Copy, Debug)]
enum Means {
    /// An option with a value: the rest of the argument, or the next one.
    Value(&'static str),
    /// An option without a meaning here; its value is dropped, if it has one.
    Nothing { value: bool },
    /// taskdiag lacks it; this names a replacement.
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
            // The seconds may be a separate word, and may be omitted.
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
                // The letter after the first option that takes a value begins that value.
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

fn lacks(arg: &OsStr, instead: &str) -> Exit {
    Exit::Usage(format!("files has no option '{}': {instead}", exit::shown(Path::new(arg))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(args: &[&str]) -> Result<String, Exit> {
        let args: Vec<OsString> = args.iter().map(|a| (*a).into()).collect();
        let out = normalize(&args, |c| "pucisdo".contains(c), |l| l == "sort")?;
        Ok(out.iter().map(|a| a.to_string_lossy()).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn words_of_lsof_become_options_of_files() {
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
