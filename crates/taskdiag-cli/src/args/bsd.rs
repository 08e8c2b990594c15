//! BSD-style arguments of `ps` (`aux`, `axo pid,comm`, `p 42`, bare pids), rewritten as the long
//! options that the parser knows. A pure function over a table.

use std::ffi::{OsStr, OsString};

use crate::exit::Exit;
use crate::nearest;

/// What a BSD letter stands for.
#[derive(Clone, Copy, Debug)]
enum Means {
    /// An option without a value.
    Flag(&'static str),
    /// An option with a value: the rest of the argument, or the next one.
    Value(&'static str),
    /// Not had here; what to use.
    Not(&'static str),
}

use Means::{Flag, Not, Value};

/// Letter, meaning.
const LETTERS: &[(char, Means)] = &[
    ('a', Flag("--bsd-a")),
    ('x', Flag("--bsd-x")),
    ('u', Flag("--view=bsd-user")),
    ('j', Flag("--view=bsd-jobs")),
    ('l', Flag("--view=bsd-long")),
    ('v', Flag("--view=bsd-memory")),
    ('s', Flag("--view=bsd-signals")),
    ('f', Flag("--forest")),
    ('h', Flag("--no-headers")),
    ('w', Flag("--wide")),
    ('r', Flag("--running")),
    ('H', Flag("--lwp-rows")),
    ('o', Value("--format")),
    ('k', Value("--sort")),
    ('p', Value("--pid")),
    ('q', Value("--pid")),
    ('t', Value("--tty")),
    ('U', Value("--user")),
    ('c', Not("the command name alone is the column comm")),
    ('e', Not("the environment is the column environ")),
    ('m', Not("threads are shown by -T")),
    ('L', Not("'taskdiag fields' lists the columns")),
    ('O', Not("-o lists all columns")),
    ('S', Not("the columns cutime and cstime have the time of children")),
    ('n', Not("the columns uid and gid are numbers")),
    ('T', Not("use -t with the name of the terminal")),
    ('V', Not("use 'taskdiag --version'")),
    ('X', Not("register values are not shown")),
    ('Z', Not("security labels are not shown")),
];

/// The letters that are had, with the options they stand for; for the man page.
pub fn letters_had() -> impl Iterator<Item = (char, &'static str)> {
    LETTERS.iter().filter_map(|(c, means)| match means {
        Flag(option) | Value(option) => Some((*c, *option)),
        Not(_) => None,
    })
}

/// Rewrite. `takes_value` says whether an option (`-x` as a letter, or a long name) is followed
/// by a value that must be left alone.
pub fn normalize(
    args: &[OsString],
    short_takes_value: impl Fn(char) -> bool,
    long_takes_value: impl Fn(&str) -> bool,
    long_names: &[&str],
) -> Result<Vec<OsString>, Exit> {
    let mut out = Vec::with_capacity(args.len() + 2);
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let Some(text) = arg.to_str() else {
            out.push(arg.clone());
            continue;
        };
        if text == "--" {
            out.push(arg.clone());
            out.extend(args.cloned());
            break;
        }
        let takes_next = if let Some(long) = text.strip_prefix("--") {
            out.push(arg.clone());
            !long.contains('=') && long_takes_value(long)
        } else if let Some(cluster) = text.strip_prefix('-').filter(|c| !c.is_empty()) {
            if is_bsd_after_dash(cluster) {
                letters(cluster, &mut args, &mut out, long_names)?;
                false
            } else if cluster.chars().all(|c| c.is_ascii_digit() || c == ',') {
                out.push(OsString::from(format!("--pid={cluster}")));
                false
            } else {
                out.push(arg.clone());
                // The first letter with a value ends the cluster; the value is what follows it.
                let at = cluster.char_indices().find(|(_, c)| short_takes_value(*c));
                at.is_some_and(|(i, c)| i + c.len_utf8() == cluster.len())
            }
        } else if text.starts_with(|c: char| c.is_ascii_digit()) {
            out.push(OsString::from(format!("--pid={text}")));
            false
        } else {
            letters(text, &mut args, &mut out, long_names)?;
            false
        };
        if takes_next {
            out.extend(args.next().cloned());
        }
    }
    Ok(out)
}

/// `-aux` and the like: typed so often that procps takes it as `aux` too.
fn is_bsd_after_dash(cluster: &str) -> bool {
    cluster.starts_with('a')
        && cluster.contains('x')
        && cluster.chars().all(|c| "auxfwjlv".contains(c))
}

fn letters<'a>(
    cluster: &str,
    rest: &mut impl Iterator<Item = &'a OsString>,
    out: &mut Vec<OsString>,
    long_names: &[&str],
) -> Result<(), Exit> {
    for (i, c) in cluster.char_indices() {
        match LETTERS.iter().find(|(l, _)| *l == c).map(|(_, m)| *m) {
            Some(Flag(option)) => out.push(option.into()),
            Some(Value(option)) => {
                let after = &cluster[i + c.len_utf8()..];
                let value = match after {
                    "" => rest.next().ok_or_else(|| {
                        Exit::Usage(format!("'{c}' in '{cluster}' needs a value after it"))
                    })?,
                    attached => OsStr::new(attached),
                };
                let mut joined = OsString::from(option);
                joined.push("=");
                joined.push(value);
                out.push(joined);
                return Ok(());
            }
            Some(Not(instead)) => {
                return Err(Exit::Usage(format!(
                    "'{c}' in '{cluster}' is not supported: {instead}"
                )));
            }
            None => {
                let hint = nearest::hint(cluster, long_names.iter().copied());
                return Err(Exit::Usage(format!(
                    "'{cluster}' is not an option: there is no BSD-style letter '{c}'{hint}; \
                     see 'taskdiag ps --help'"
                )));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(args: &str) -> Result<String, Exit> {
        let args: Vec<OsString> = args.split('|').map(OsString::from).collect();
        let short = |c| "opuUCgGstk".contains(c);
        let long = |l: &str| ["sort", "pid", "format", "ppid"].contains(&l);
        let out = normalize(&args, short, long, &["forest", "sort"])?;
        Ok(out.iter().map(|a| a.to_str().unwrap()).collect::<Vec<_>>().join("|"))
    }

    #[test]
    fn fingers() {
        for (typed, meant) in [
            ("aux", "--bsd-a|--view=bsd-user|--bsd-x"),
            ("-aux", "--bsd-a|--view=bsd-user|--bsd-x"),
            ("auxf", "--bsd-a|--view=bsd-user|--bsd-x|--forest"),
            ("auxww", "--bsd-a|--view=bsd-user|--bsd-x|--wide|--wide"),
            ("ax|o|pid,comm", "--bsd-a|--bsd-x|--format=pid,comm"),
            ("axo|pid,comm", "--bsd-a|--bsd-x|--format=pid,comm"),
            ("axopid,comm", "--bsd-a|--bsd-x|--format=pid,comm"),
            ("axH", "--bsd-a|--bsd-x|--lwp-rows"),
            ("aux|--sort|-rss", "--bsd-a|--view=bsd-user|--bsd-x|--sort|-rss"),
            ("aux|--sort=-rss", "--bsd-a|--view=bsd-user|--bsd-x|--sort=-rss"),
            ("aux|k|-rss", "--bsd-a|--view=bsd-user|--bsd-x|--sort=-rss"),
            ("-ef", "-ef"),
            ("-eo|pid,comm", "-eo|pid,comm"),
            ("-eLo|pid,lwp", "-eLo|pid,lwp"),
            ("-opid", "-opid"),
            ("-fp|42", "-fp|42"),
            ("-p|42|-o|comm", "-p|42|-o|comm"),
            ("-u|www|x", "-u|www|--bsd-x"),
            ("-C|aux", "-C|aux"),
            ("42|43,44", "--pid=42|--pid=43,44"),
            ("p|42", "--pid=42"),
            ("-42", "--pid=42"),
            ("--ppid|1", "--ppid|1"),
            ("--|aux", "--|aux"),
        ] {
            assert_eq!(run(typed).unwrap(), meant, "{typed}");
        }
    }

    #[test]
    fn what_is_not_had_says_so() {
        for (typed, word) in [
            ("gaux", "--help"),
            ("axo", "needs a value"),
            ("auxe", "environment"),
            ("axm", "-T"),
            ("b", "BSD-style letter 'b'"),
        ] {
            let Err(Exit::Usage(text)) = run(typed) else { panic!("{typed}") };
            assert!(text.contains(word), "{typed}: {text}");
        }
    }
}
