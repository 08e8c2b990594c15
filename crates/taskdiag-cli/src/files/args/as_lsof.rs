//! The options of lsof as lsof parses them, for callers that start this program under that name:
//! the value of a letter may be the rest of its word or the next word, and many letters have no
//! value. The long options of `taskdiag files` work, too.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use super::lsof::REPEAT_SECONDS;
use crate::exit::Exit;
use crate::files::layout::{Ends, Form, Layout, States};
use crate::files::letters::Fields;
use crate::files::place::PlaceKind;
use crate::files::request::Instead;

/// The options that have, or may have, a value, and those without one.
const VALUED: &[u8] = b"cdDefFgiKLoprsSTux";
const BARE: &[u8] = b"?abCEhHJjlMnNOPQRtUvVwX";

/// The meaning of the words.
#[derive(Debug, Default)]
pub struct Typed {
    /// How it is shown.
    pub layout: Layout,
    /// Options of `files`, and files after `--`.
    pub args: Vec<OsString>,
    /// `-c`: names of commands, which may have any bytes.
    pub commands: Vec<OsString>,
    /// `-r` and `+r`.
    pub repeat: Option<Repeat>,
    /// `-f` and `+f` without letters: what FILE stands for.
    pub kind: PlaceKind,
    /// `-x`.
    crosses: bool,
    /// Another output that was requested instead of a list.
    pub instead: Option<Instead>,
}

/// How often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repeat {
    /// The time between two lists.
    pub seconds: u32,
    /// The largest number of lists.
    pub count: Option<u32>,
    /// The line between two lists, for strftime(3).
    pub format: Option<OsString>,
    /// `+r`: until there is nothing to list.
    pub while_any: bool,
}

/// The words that are still to be read.
struct Words<'a> {
    all: &'a [OsString],
    at: usize,
    /// The rest of the word that is being read.
    rest: Vec<u8>,
}

/// The value of an option, and whether it is a word of its own.
struct Given {
    value: Vec<u8>,
    own_word: bool,
}

impl Words<'_> {
    fn peek(&self) -> Option<&[u8]> {
        self.all.get(self.at).map(|w| w.as_bytes()).filter(|w| *w != b"--")
    }
    /// The possible value of the letter that was just read.
    fn value(&mut self) -> Option<Given> {
        if !self.rest.is_empty() {
            return Some(Given { value: std::mem::take(&mut self.rest), own_word: false });
        }
        let value = self.peek()?.to_vec();
        self.at += 1;
        Some(Given { value, own_word: true })
    }
    /// The value is no value, or not all of it: the rest is read as options, or as a word.
    fn give_back(&mut self, given: Given, used: usize) {
        match given.own_word {
            true if used == 0 => self.at -= 1,
            // Digits in a separate word, and the letters after them, which are options, too.
            _ => self.rest = given.value[used..].to_vec(),
        }
    }
    /// A value that does not begin as an option does.
    fn plain_value(&mut self) -> Option<Vec<u8>> {
        let given = self.value()?;
        if matches!(given.value.first(), Some(b'-' | b'+')) {
            self.give_back(given, 0);
            return None;
        }
        Some(given.value)
    }
    fn number(&mut self) -> Option<u32> {
        let given = self.value()?;
        let digits = given.value.iter().take_while(|b| b.is_ascii_digit()).count();
        let number = std::str::from_utf8(&given.value[..digits]).ok().and_then(|d| d.parse().ok());
        if digits < given.value.len() {
            self.give_back(given, digits);
        }
        number
    }
}

fn bad(option: &str, why: &str) -> Exit {
    Exit::Usage(format!("{option} {why}"))
}

/// Reads the arguments. `long_takes_value`: is this long option followed by a value?
pub fn read(args: &[OsString], long_takes_value: impl Fn(&str) -> bool) -> Result<Typed, Exit> {
    let mut typed = Typed::default();
    let mut words = Words { all: args, at: 0, rest: Vec::new() };
    while let Some(word) = args.get(words.at) {
        let bytes = word.as_bytes();
        words.at += 1;
        match bytes {
            b"--" | b"++" => break,
            [b'-', b'-', name @ ..] => {
                typed.args.push(word.clone());
                let name = String::from_utf8_lossy(name).into_owned();
                if long_takes_value(&name) {
                    typed.args.extend(args.get(words.at).cloned());
                    words.at += 1;
                }
            }
            [sign @ (b'-' | b'+'), letters @ ..] if !letters.is_empty() => {
                words.rest = letters.to_vec();
                while !words.rest.is_empty() {
                    let letter = words.rest.remove(0);
                    typed.option(*sign == b'+', letter, &mut words)?;
                }
            }
            // As in lsof, all that follows is a file.
            _ => {
                words.at -= 1;
                break;
            }
        }
    }
    let files = args.get(words.at..).unwrap_or_default();
    if !files.is_empty() {
        typed.args.push("--".into());
        typed.args.extend_from_slice(files);
    }
    typed.check()?;
    Ok(typed)
}

impl Typed {
    fn push(&mut self, option: &str, value: Vec<u8>) {
        let mut word = OsString::from(option);
        word.push("=");
        word.push(OsString::from_vec(value));
        self.args.push(word);
    }
    fn option(&mut self, plus: bool, letter: u8, words: &mut Words<'_>) -> Result<(), Exit> {
        let name = format!("{}{}", if plus { '+' } else { '-' }, letter.escape_ascii());
        let needs = |words: &mut Words<'_>, what: &str| {
            words.value().map(|g| g.value).ok_or_else(|| bad(&name, &format!("needs {what}")))
        };
        let layout = &mut self.layout;
        match letter {
            b'a' => self.args.push("-a".into()),
            b'U' => self.args.push("-U".into()),
            b'R' => self.args.push("-R".into()),
            // Nothing here: no stat(2) that may block, no child, no cache, no portmapper, no time
            // limit.
            b'b' | b'O' | b'C' | b'M' => {}
            b'S' => drop(words.number()),
            b'e' => drop(needs(words, "the path of a file system")?),
            b'n' => layout.numeric_hosts = !plus,
            b'P' => layout.numeric_ports = !plus,
            b'l' => layout.numeric_users = true,
            b'w' => layout.quiet = !plus,
            b'H' => layout.human = true,
            b'Q' => layout.nothing_is_fine = true,
            b'V' => layout.verbose = true,
            b'X' => layout.without_inet = true,
            b'E' => layout.ends = if plus { Ends::Listed } else { Ends::Named },
            b't' => (layout.form, layout.quiet) = (layout.form.and(Form::Terse)?, true),
            b'J' if !plus => layout.form = layout.form.and(Form::Json)?,
            b'j' if !plus => layout.form = layout.form.and(Form::JsonLines)?,
            b'v' => self.instead = Some(Instead::Version),
            b'h' | b'?' => self.instead = Some(Instead::Help),
            b'c' if plus => match words.number() {
                Some(0) => layout.command = usize::MAX,
                Some(width) => layout.command = width as usize,
                None => return Err(bad("+c", "needs a number")),
            },
            b'c' => self.commands.push(OsString::from_vec(needs(words, "the name of a command")?)),
            b'd' if plus => {
                let path = needs(words, "a directory after it")?;
                self.push("--in", path);
            }
            b'D' if plus => {
                let path = needs(words, "a directory after it")?;
                self.push("--under", path);
            }
            b'D' => return Err(bad("-D", "is not supported: there is no device cache")),
            b'd' => {
                let list = needs(words, "at least one value after it")?;
                self.push("--descriptor", list);
            }
            b'p' => {
                let list = needs(words, "at least one value after it")?;
                self.push("--pid", list);
            }
            b'u' => {
                let list = needs(words, "at least one value after it")?;
                self.push("--user", list);
            }
            b'g' => {
                layout.groups = true;
                if let Some(list) = words.plain_value() {
                    self.push("--group", list);
                }
            }
            b'i' => {
                let address = words.plain_value().unwrap_or_default();
                self.push("--inet", address);
            }
            b's' => match words.plain_value() {
                Some(states) => self.push("--states", states),
                None => layout.size = true,
            },
            b'f' => match words.plain_value() {
                None => self.kind = if plus { PlaceKind::FileSystem } else { PlaceKind::PlainFile },
                Some(letters) => {
                    for b in letters {
                        if !matches!(b, b'g' | b'G') {
                            let what = format!("takes g or G, not '{}'", b.escape_ascii());
                            return Err(bad(&name, &what));
                        }
                        layout.flags = plus;
                        layout.numeric_flags = b == b'G';
                    }
                }
            },
            b'F' => {
                let given = words.value();
                let letters = match given {
                    Some(g) if matches!(g.value.first(), Some(b'-' | b'+')) => {
                        words.give_back(g, 0);
                        Vec::new()
                    }
                    Some(g) => g.value,
                    None => Vec::new(),
                };
                let letters = String::from_utf8_lossy(&letters).into_owned();
                if letters == "?" {
                    self.instead = Some(Instead::Letters);
                } else {
                    let fields = Fields::of_lsof(&letters)?;
                    layout.form = layout.form.and(Form::Lines)?;
                    layout.fields = Some(match layout.fields.take() {
                        Some(before) => before.with(&fields),
                        None => fields,
                    });
                }
            }
            b'K' => match words.plain_value() {
                None => layout.tasks = Some(true),
                Some(i) if i.eq_ignore_ascii_case(b"i") => layout.tasks = Some(false),
                Some(_) => return Err(bad("-K", "takes nothing, or i")),
            },
            b'L' => {
                layout.links = plus;
                match words.number() {
                    Some(_) if !plus => return Err(bad("-L", "takes no number")),
                    Some(n) => self.push("--links-below", n.to_string().into_bytes()),
                    None => {}
                }
            }
            b'o' => match words.number() {
                Some(digits) => layout.offset_digits = digits as usize,
                None => layout.offset = true,
            },
            b'r' => self.repeat = Some(repeat(plus, words)?),
            b'T' => {
                let Some(letters) = words.plain_value() else {
                    layout.states = States { state: plus, ..States::default() };
                    return Ok(());
                };
                layout.states = States::default();
                for b in letters {
                    match b {
                        b's' => layout.states.state = true,
                        b'q' => layout.states.queues = true,
                        b'f' => layout.states.flags = true,
                        b => {
                            let what = format!("takes s, q and f, not '{}'", b.escape_ascii());
                            return Err(bad("-T", &what));
                        }
                    }
                }
            }
            b'x' => match words.plain_value() {
                Some(letters) if letters.iter().any(|b| !b"fl".contains(b)) => {
                    return Err(bad("-x", "takes f and l"));
                }
                _ => self.crosses = true,
            },
            b'N' => return Err(bad("-N", "is not supported: files of NFS are listed like others")),
            b'Z' | b'z' => {
                return Err(bad(
                    &name,
                    "is not supported: see the column task.label of 'taskdiag files'",
                ));
            }
            b'm' => return Err(bad(&name, "is not supported: mounts are in /proc/self/mountinfo")),
            _ => return Err(Exit::Usage(format!("illegal option: {name}"))),
        }
        debug_assert!(VALUED.contains(&letter) || BARE.contains(&letter));
        Ok(())
    }
    fn check(&self) -> Result<(), Exit> {
        if self.instead.is_some() {
            return Ok(());
        }
        let begins = |arg: &OsString, option: &[u8]| arg.as_bytes().starts_with(option);
        let directories = self.args.iter().any(|a| begins(a, b"--in=") || begins(a, b"--under="));
        if self.crosses && !directories {
            return Err(bad("-x", "must accompany +d or +D"));
        }
        let selects = |a: &OsString| !["-a", "-R"].iter().any(|o| a == o);
        let tasks = self.layout.tasks == Some(true);
        let joins = !self.commands.is_empty() || tasks || self.args.iter().any(selects);
        if !joins && self.args.iter().any(|a| a == "-a") {
            return Err(bad("-a", "needs conditions that it joins"));
        }
        if self.layout.offset && self.layout.size {
            return Err(bad("-o and -s", "are about the same column"));
        }
        let format = self.repeat.as_ref().and_then(|r| r.format.as_deref());
        let breaks = |f: &OsStr| f.as_bytes().windows(2).any(|w| w == b"%n");
        if self.layout.form != Form::Table && format.is_some_and(breaks) {
            return Err(bad("-r", "takes no %n with -F: the line would be two"));
        }
        Ok(())
    }
}

/// `[t][c<N>][m<fmt>]`: seconds, at most how many lists, and the line between them.
fn repeat(plus: bool, words: &mut Words<'_>) -> Result<Repeat, Exit> {
    let every = REPEAT_SECONDS.parse().expect("a number");
    let mut out = Repeat { seconds: every, count: None, format: None, while_any: plus };
    let Some(given) = words.value() else { return Ok(out) };
    if matches!(given.value.first(), Some(b'-' | b'+')) {
        words.give_back(given, 0);
        return Ok(out);
    }
    let digits = |text: &[u8]| text.iter().take_while(|b| b.is_ascii_digit()).count();
    let number = |text: &[u8]| std::str::from_utf8(text).ok().and_then(|t| t.parse().ok());
    let value = &given.value;
    let time = digits(value);
    out.seconds = number(&value[..time]).unwrap_or(every);
    let mut at = time + value[time..].iter().take_while(|b| **b == b' ').count();
    if value.get(at) == Some(&b'c') {
        let n = digits(&value[at + 1..]);
        out.count = number(&value[at + 1..at + 1 + n]).filter(|n| *n > 0);
        at += 1 + n;
    }
    match value.get(at) {
        None => {}
        Some(b'm') => {
            if value.len() == at + 1 {
                return Err(bad("-r", "needs a format after m"));
            }
            out.format = Some(OsString::from_vec(value[at + 1..].to_vec()));
        }
        // A file, or letters of other options.
        Some(_) => {
            out.count = None;
            words.give_back(given, time);
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(args: &[&str]) -> Result<Typed, Exit> {
        let args: Vec<OsString> = args.iter().map(|a| (*a).into()).collect();
        read(&args, |l| l == "engine")
    }
    fn kept(args: &[&str]) -> String {
        let typed = typed(args).unwrap_or_else(|e| panic!("{args:?}: {e:?}"));
        typed.args.iter().map(|a| a.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn values_are_the_rest_of_the_word_or_the_next_one() {
        for (args, want) in [
            (&["-nPw", "-p", "1"][..], "--pid=1"),
            (&["-ap1", "-g"], "-a --pid=1"),
            (&["-nPp", "1", "-s"], "--pid=1"),
            (&["-g", "-p", "1"], "--pid=1"),
            (&["-g", "1", "-g2"], "--group=1 --group=2"),
            (&["-iTCP", "-sTCP:LISTEN"], "--inet=TCP --states=TCP:LISTEN"),
            (&["-i", "-s", "TCP:LISTEN"], "--inet= --states=TCP:LISTEN"),
            (&["-Pi", ":22"], "--inet=:22"),
            (&["+c0", "+c", "3", "+L", "+L1"], "--links-below=1"),
            (&["-a", "--", "-n"], "-a -- -n"),
            (&["-a", "file", "-n"], "-a -- file -n"),
            (&["-d", "fd", "+D", "/x", "+d/y"], "--descriptor=fd --under=/x --in=/y"),
            (&["-r", "file"], "-- file"),
            (&["-oU"], "-U"),
            (&["-o0U"], "-U"),
            (&["-S3U", "-S", "-M", "+M", "-K", "i"], "-U"),
            (&["+d/x", "-x", "-xf"], "--in=/x"),
            (&["+E", "-E", "+fg", "-f", "g", "-T", "qs", "-Q", "-V"], ""),
            (&["--engine", "procfs", "-t"], "--engine procfs"),
            (&["-Ka", "--engine=bpf"], "-a --engine=bpf"),
        ] {
            let got = typed(args);
            if args[0] == "-Ka" {
                // lsof takes the rest of the word for the value.
                assert!(got.is_err(), "{args:?}");
                continue;
            }
            assert_eq!(kept(args), want, "{args:?}");
        }
        for bad in [
            &["-Z"][..],
            &["-o", "-s"],
            &["-J", "-j"],
            &["-J", "-t"],
            &["-F", "-t"],
            &["-p"],
            &["-L1"],
            &["-Tw"],
            &["+fc"],
            &["-Fq"],
            &["+J"],
            &["-q"],
            &["-r1m"],
            &["-x"],
            &["-a"],
            &["-a", "-n"],
        ] {
            assert!(typed(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn options_choose_the_columns() {
        let of = |args: &[&str]| typed(args).expect("they are right").layout;
        let all = of(&["-nPls", "+c", "0", "+L", "-g", "-H", "-w", "-Q", "+E", "+fG", "-X"]);
        assert!(all.numeric_hosts && all.numeric_ports && all.numeric_users && all.size);
        assert!(all.links && all.groups && all.command == usize::MAX && !all.offset);
        assert!(all.human && all.quiet && all.nothing_is_fine && all.ends == Ends::Listed);
        assert!(all.flags && all.numeric_flags && all.without_inet);
        assert_eq!(of(&["-o5"]).offset_digits, 5);
        assert!(!of(&["-o5"]).offset && of(&["-o"]).offset);
        let states = |args: &[&str]| {
            let s = of(args).states;
            (s.state, s.queues, s.flags)
        };
        assert_eq!(states(&[]), (true, false, false));
        assert_eq!(states(&["-T"]), (false, false, false));
        assert_eq!(states(&["-Tqs"]), (true, true, false));
        assert_eq!(states(&["-T", "f"]), (false, false, true));
        let fields = of(&["-wFr", "-F0"]).fields.expect("they were asked for");
        assert!(fields.has('r') && fields.has('n') && fields.is_nul());
    }

    #[test]
    fn repeat_counts_and_delays_are_read() {
        let of = |args: &[&str]| {
            let r = typed(args).expect("they are right").repeat.expect("asked for");
            let format = r.format.map(|f| f.to_string_lossy().into_owned());
            (r.seconds, r.count, format, r.while_any)
        };
        assert_eq!(of(&["-r"]), (15, None, None, false));
        assert_eq!(of(&["-r", "5"]), (5, None, None, false));
        assert_eq!(of(&["+r2"]), (2, None, None, true));
        assert_eq!(of(&["-r", "1c5"]), (1, Some(5), None, false));
        assert_eq!(of(&["-rm%H:%M"]), (15, None, Some("%H:%M".into()), false));
        assert_eq!(of(&["-r2c3m==%T"]), (2, Some(3), Some("==%T".into()), false));
        assert_eq!(of(&["-r2n"]), (2, None, None, false));
    }

    #[test]
    fn names_of_commands_have_blanks_and_any_bytes() {
        let args = [OsString::from("-c"), OsString::from_vec(b"a b,\xff".to_vec())];
        let typed = read(&args, |_| false).expect("they are right");
        assert_eq!(typed.commands[0].as_bytes(), b"a b,\xff");
    }
}
