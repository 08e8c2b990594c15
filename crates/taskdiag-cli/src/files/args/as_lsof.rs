//! The options of lsof as lsof parses them, for callers that start this program under that name:
//! the value of a letter may be the rest of its word or the next word, and many letters have no
//! value. The long options of `taskdiag files` work, too.

mod letters;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

pub use letters::help;
use letters::{Asked, LETTERS, Letter, Signs};

use super::lsof::REPEAT_SECONDS;
use crate::exit::Exit;
use crate::files::layout::{Form, Layout, States};
use crate::files::letters::Fields;
use crate::files::place::PlaceKind;
use crate::files::request::Instead;

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
    /// Only the first `used` bytes are a value. The rest is read as options, or as a word.
    fn give_back(&mut self, given: Given, used: usize) {
        match given.own_word {
            true if used == 0 => self.at -= 1,
            // A separate word of digits, in which letters after the digits are options, too.
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
    fn be(&mut self, form: Form) -> Result<(), Exit> {
        self.layout.form = self.layout.form.and(form)?;
        Ok(())
    }
    fn push(&mut self, option: &str, value: Vec<u8>) {
        let mut word = OsString::from(option);
        word.push("=");
        word.push(OsString::from_vec(value));
        self.args.push(word);
    }
    fn option(&mut self, plus: bool, letter: u8, words: &mut Words<'_>) -> Result<(), Exit> {
        let name = format!("{}{}", if plus { '+' } else { '-' }, letter.escape_ascii());
        let accepts = |row: &&Letter| {
            row.letters.as_bytes().contains(&letter)
                && match row.signs {
                    Signs::Minus => !plus,
                    Signs::Plus => plus,
                    Signs::Any => true,
                }
        };
        match LETTERS.iter().find(accepts) {
            Some(row) => (row.read)(self, &Asked { plus, name: &name }, words),
            None => Err(Exit::Usage(format!("illegal option: {name}"))),
        }
    }
    /// Reads a list, and passes it on as a long option.
    fn pass(&mut self, option: &str, asked: &Asked<'_>, words: &mut Words<'_>) -> Result<(), Exit> {
        let list = asked.value(words, "at least one value after it")?;
        self.push(option, list);
        Ok(())
    }
    fn fields(&mut self, words: &mut Words<'_>) -> Result<(), Exit> {
        let letters = match words.value() {
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
            return Ok(());
        }
        let fields = Fields::of_lsof(&letters)?;
        self.layout.form = self.layout.form.and(Form::Lines)?;
        self.layout.fields = Some(match self.layout.fields.take() {
            Some(before) => before.with(&fields),
            None => fields,
        });
        Ok(())
    }
    /// `-f` and `+f`: what FILE stands for, or letters for columns of flags.
    fn file_structure(&mut self, asked: &Asked<'_>, words: &mut Words<'_>) -> Result<(), Exit> {
        let Some(letters) = words.plain_value() else {
            self.kind = if asked.plus { PlaceKind::FileSystem } else { PlaceKind::PlainFile };
            return Ok(());
        };
        for b in letters {
            if !matches!(b, b'g' | b'G') {
                return asked.wrong(&format!("takes g or G, not '{}'", b.escape_ascii()));
            }
            (self.layout.flags, self.layout.numeric_flags) = (asked.plus, b == b'G');
        }
        Ok(())
    }
    fn links(&mut self, asked: &Asked<'_>, words: &mut Words<'_>) -> Result<(), Exit> {
        self.layout.links = asked.plus;
        match words.number() {
            Some(_) if !asked.plus => return asked.wrong("takes no number"),
            Some(n) => self.push("--links-below", n.to_string().into_bytes()),
            None => {}
        }
        Ok(())
    }
    fn states(&mut self, asked: &Asked<'_>, words: &mut Words<'_>) -> Result<(), Exit> {
        let Some(letters) = words.plain_value() else {
            self.layout.states = States { state: asked.plus, ..States::default() };
            return Ok(());
        };
        let states = &mut self.layout.states;
        *states = States::default();
        for b in letters {
            match b {
                b's' => states.state = true,
                b'q' => states.queues = true,
                b'f' => states.flags = true,
                b => {
                    return asked.wrong(&format!("takes s, q and f, not '{}'", b.escape_ascii()));
                }
            }
        }
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
            return Err(bad("-a", "needs conditions to join"));
        }
        if self.layout.offset && self.layout.size {
            return Err(bad("-o and -s", "both choose the column SIZE/OFF: give one of them"));
        }
        let format = self.repeat.as_ref().and_then(|r| r.format.as_deref());
        let breaks = |f: &OsStr| f.as_bytes().windows(2).any(|w| w == b"%n");
        if self.layout.form != Form::Table && format.is_some_and(breaks) {
            return Err(bad("-r", "takes no %n with -F, where a mark is one line"));
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
    fn a_letter_that_is_read_is_in_the_help() {
        let help = help();
        let mut read = 0;
        for letter in ('A'..='Z').chain('a'..='z').chain(['?']) {
            for sign in ['-', '+'] {
                // The word 1 follows, for letters that need a value.
                let is_read = match typed(&[&format!("{sign}{letter}"), "1"]) {
                    Err(Exit::Usage(why)) => {
                        !why.contains("illegal option") && !why.contains("is not supported")
                    }
                    _ => true,
                };
                let is_listed = |sign| {
                    help.contains(&format!("{sign}{letter} "))
                        || help.contains(&format!("{sign}{letter},"))
                };
                // Most letters have the same effect after a plus.
                let is_listed = is_listed(sign) || sign == '+' && is_listed('-');
                assert!(!is_read || is_listed, "{sign}{letter}");
                read += usize::from(is_read);
            }
        }
        assert!(read > 70, "{read}");
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
        assert!(
            all.human
                && all.quiet
                && all.nothing_is_fine
                && all.ends == crate::files::layout::Ends::Listed
        );
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
