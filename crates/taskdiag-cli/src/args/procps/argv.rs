//! The words of a command line, read as in procps: first as System V options, with BSD options for
//! words without a dash. If that fails, they are read again without their dashes (`-aux`).

use super::table::{Does, OptionRow, Style, find_long, long_names};
use super::{Instead, Selector, Typed};
use crate::args::lists;
use crate::exit::Exit;
use crate::nearest;

fn usage<T>(text: String) -> Result<T, Exit> {
    Err(Exit::Usage(text))
}

/// Is this a long option of procps, with or without two dashes before it and a value after it?
pub fn is_long(word: &str) -> bool {
    let name = word.trim_start_matches("--");
    let name = name.split(['=', ':']).next().unwrap_or(name);
    find_long(name).is_some()
}

/// Parse the command line.
pub fn parse(words: &[String]) -> Result<Typed, Exit> {
    let checked = |t: Typed| match t.instead {
        Some(Instead::Version | Instead::Columns) if words.len() > 1 => {
            usage(String::from("an option that lists no processes must stand alone"))
        }
        _ => checked(t),
    };
    let first = TypedWords { words, at: 0, dashes: true }.read().and_then(checked);
    let has_dash =
        |w: &String| w.starts_with('-') && w.chars().nth(1).is_some_and(char::is_alphabetic);
    match first {
        Err(why) if words.iter().any(has_dash) => {
            let again = TypedWords { words, at: 0, dashes: false }.read().and_then(checked);
            // Messages name the words as they were typed.
            again.map_err(|_| why)
        }
        other => other,
    }
}

/// Parses the arguments of `taskdiag ps`, which also takes words to find processes by, as in `ps
/// nginx`. A word is one that makes no sense as letters in the style of BSD. Returns the words
/// together with the result of the parser.
///
/// # Errors
/// The errors of [`parse`], if there are no such words.
pub fn parse_with_words(typed: Vec<String>) -> Result<(Typed, Vec<String>), Exit> {
    let why = match parse(&typed) {
        Ok(t) => return Ok((t, Vec::new())),
        Err(why) => why,
    };
    // After -o, the name of a column without its comma was meant as a column.
    let is_column = |i: &usize| {
        let (option, value, word) = (&typed[i - 2], &typed[i - 1], &typed[*i]);
        wants_value(option)
            && !wants_value(value)
            && taskdiag::field::TASKS.find(word).is_some()
            && is_word(word)
    };
    if let Some(i) = (2..typed.len()).find(is_column) {
        let (columns, word) = (&typed[i - 1], &typed[i]);
        return usage(format!(
            "'{word}' stands alone: for the column of this name, write {columns},{word}"
        ));
    }
    let is_found = |i: usize| is_word(&typed[i]) && (i == 0 || !wants_value(&typed[i - 1]));
    let (words, letters): (Vec<_>, Vec<_>) = (0..typed.len()).partition(|i| is_found(*i));
    let texts = |places: Vec<usize>| places.into_iter().map(|i| typed[i].clone()).collect();
    let letters: Vec<String> = texts(letters);
    match words.is_empty() {
        true => Err(why),
        // If the rest makes no sense either, the message is about the whole command line.
        false => parse(&letters).map(|t| (t, texts(words))).map_err(|_| why),
    }
}

/// Whether the value of an option of this word is the next word.
pub fn wants_value(word: &str) -> bool {
    let takes = |row: &OptionRow| matches!(row.does, Does::Take(..));
    if let Some(name) = word.strip_prefix("--") {
        return find_long(name).is_some_and(takes);
    }
    let (letters, style) = match word.strip_prefix('-') {
        Some(letters) => (letters, Style::Unix),
        None => (word, Style::Bsd),
    };
    let first = letters.char_indices().find(|(_, c)| style.find(*c).is_some_and(takes));
    first.is_some_and(|(i, c)| i + c.len_utf8() == letters.len())
}

/// Is this a word to find processes by? Words that begin as `ps aux` are likely to be misspelt
/// letters.
fn is_word(word: &str) -> bool {
    word.starts_with(char::is_alphabetic)
        && word.chars().count() > 2
        && !["ax", "aux"].iter().any(|begin| word.starts_with(begin))
        && word.chars().all(|c| c.is_alphanumeric() || "-_./:@+".contains(c))
        && parse(&[word.to_owned()]).is_err()
}

/// Options that exclude each other.
fn checked(t: Typed) -> Result<Typed, Exit> {
    if (t.threads() || t.both) && t.forest.is_some() {
        return usage(String::from(
            "a forest shows processes: leave out the options that show threads",
        ));
    }
    if t.thread_rows && t.both {
        return usage(String::from(
            "H cannot be joined with m: each has rows of threads of its own",
        ));
    }
    if t.lwp && t.spid {
        return usage(String::from(
            "-L and -T cannot be joined: each adds a column with the thread's id",
        ));
    }
    if t.is_procps() {
        t.selection()?;
    }
    super::layout::columns(&t)?;
    Ok(t)
}

struct TypedWords<'a> {
    words: &'a [String],
    at: usize,
    /// Does a dash have a meaning?
    dashes: bool,
}

impl<'a> TypedWords<'a> {
    fn read(mut self) -> Result<Typed, Exit> {
        let mut t = Typed { bsd: !self.dashes, ..Typed::default() };
        while let Some(word) = self.words.get(self.at) {
            self.at += 1;
            let mut letters = word.chars();
            match (letters.next(), letters.next(), letters.next()) {
                (Some('-'), Some('-'), Some(c)) if c.is_alphabetic() => {
                    self.long(word, &mut t)?;
                    // The word after --help names a section, as in 'ps --help simple'. The help has
                    // all of them.
                    if matches!(t.instead, Some(Instead::Help)) {
                        return Ok(t);
                    }
                }
                (Some('-'), Some(c), _) if c.is_alphabetic() && self.dashes => {
                    self.letters(word, &word[1..], Style::Unix, &mut t)?;
                }
                (Some('-'), Some(c), _) if c.is_alphabetic() => {
                    self.letters(word, &word[1..], Style::Bsd, &mut t)?;
                }
                (Some(c), ..) if c.is_alphabetic() && self.dashes => {
                    t.bsd = true;
                    self.letters(word, word, Style::Bsd, &mut t)?;
                }
                (Some('0'..='9' | '+'), ..) | (Some('-'), Some('0'..='9'), _) => {
                    t.bsd = true;
                    self.at -= 1;
                    self.ids(&mut t)?;
                }
                _ => return usage(format!("'{word}' is no option, and no process id")),
            }
        }
        Ok(t)
    }
    /// The rest is process ids; with a dash groups of processes, with a plus sessions.
    fn ids(&mut self, t: &mut Typed) -> Result<(), Exit> {
        let (mut pids, mut groups, mut sessions) = (Vec::new(), Vec::new(), Vec::new());
        for word in &self.words[self.at..] {
            let (to, digits) = match (word.strip_prefix('-'), word.strip_prefix('+')) {
                (Some(digits), _) => (&mut groups, digits),
                (_, Some(digits)) => (&mut sessions, digits),
                _ => (&mut pids, word.as_str()),
            };
            let listed = lists::pids("what follows a process id", lists::strict(digits)?)?;
            if listed.ids.contains(&0) {
                return usage(String::from("there is no process 0: ids begin at 1"));
            }
            let is_of_groups = digits.len() < word.len();
            if is_of_groups && !listed.inodes.is_empty() {
                return usage(format!("'{word}': only a process has an inode"));
            }
            to.extend(listed.ids);
            t.inodes.extend(listed.inodes);
        }
        self.at = self.words.len();
        for (ids, make) in [
            (pids, Selector::Pid as fn(Vec<u32>) -> Selector),
            (groups, Selector::Group),
            (sessions, Selector::Session),
        ] {
            if !ids.is_empty() {
                t.lists.push(make(ids));
            }
        }
        Ok(())
    }
    /// The value of an option: the rest of the word, or the next one.
    fn value(&mut self, rest: &'a str) -> Option<&'a str> {
        if !rest.is_empty() {
            return Some(rest);
        }
        let next = self.words.get(self.at).filter(|w| !w.is_empty())?;
        self.at += 1;
        Some(next)
    }
    fn letters(
        &mut self,
        word: &str,
        letters: &'a str,
        style: Style,
        t: &mut Typed,
    ) -> Result<(), Exit> {
        for (i, c) in letters.char_indices() {
            let rest = &letters[i + c.len_utf8()..];
            if let ('0'..='9', Style::Bsd) = (c, style) {
                return (|| {
                    let all = lists::pids("a list of processes", lists::strict(&letters[i..])?)?;
                    t.lists.push(Selector::Pid(all.ids));
                    t.inodes.extend(all.inodes);
                    Ok(())
                })();
            }
            let Some(row) = style.find(c) else {
                return usage(unknown(word, c, style));
            };
            match row.does {
                Does::Set(set) | Does::Add(set) => set(t),
                Does::Take(_, what, take) => {
                    let Some(value) = self.value(rest) else {
                        let why = format!("'{c}' in '{word}' needs {what} after it");
                        let usual = ["ax", "aux"].iter().any(|begin| word.starts_with(begin));
                        let name = i > 2 && !usual && is_name(word, word, style);
                        return usage(if name { why + &by_name(word) } else { why });
                    };
                    let name = is_name(word, rest, style);
                    return take(t, value)
                        .map_err(|why| if name { for_name(word, why) } else { why });
                }
                Does::May(take) => {
                    let value = self.value(rest);
                    return take(t, value);
                }
            }
        }
        Ok(())
    }
    fn long(&mut self, word: &'a str, t: &mut Typed) -> Result<(), Exit> {
        let text = &word[2..];
        let end = text.find(['=', ':']).unwrap_or(text.len());
        let (name, rest) = text.split_at(end);
        let Some(row) = find_long(name) else {
            let hint = nearest::hint(name, long_names());
            return usage(format!("there is no option '--{name}'{hint}"));
        };
        match row.does {
            Does::Set(_) | Does::Add(_) if !rest.is_empty() => {
                usage(format!("'--{name}' takes no value, so '{rest}' has no place there"))
            }
            Does::Set(set) | Does::Add(set) => {
                let before = t.headers;
                set(t);
                if before.is_some() && t.headers != before {
                    return usage(String::from(
                        "headers are either left out or repeated, not both",
                    ));
                }
                Ok(())
            }
            Does::Take(_, what, take) => {
                let value = match rest.get(1..) {
                    Some("") => None,
                    Some(value) => Some(value),
                    None => self.value(""),
                };
                match value {
                    Some(value) => take(t, value),
                    None => usage(format!("'--{name}' needs {what} after it")),
                }
            }
            Does::May(take) => take(t, rest.get(1..)),
        }
    }
}

/// Whether a word may be the name of a program. One of its letters was read as an option, with the
/// rest as its value.
fn is_name(word: &str, rest: &str, style: Style) -> bool {
    style == Style::Bsd
        && !rest.is_empty()
        && word.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

fn for_name(word: &str, why: Exit) -> Exit {
    match why {
        Exit::Usage(why) => Exit::Usage(format!(
            "'{word}' is read as letters in the style of BSD (as in aux), and then {why}{}",
            by_name(word)
        )),
        other => other,
    }
}

/// The advice for a word that may be the name of a program.
fn by_name(word: &str) -> String {
    format!(": to find processes by the name of their program, use -C {word}")
}

/// There is no such letter: was the name of a program or user meant?
fn unknown(word: &str, c: char, style: Style) -> String {
    if style == Style::Unix {
        return format!("there is no option '-{c}' (in '{word}'); 'taskdiag ps --help' lists all");
    }
    format!(
        "'{word}' is read as letters in the style of BSD (as in aux), and there is no letter '{c}'{}; \
         'taskdiag help letters' lists all",
        by_name(word)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::procps::{Bsd, ForestStyle, TypedAs};

    fn read(words: &str) -> Result<Typed, Exit> {
        parse(&words.split('|').filter(|w| !w.is_empty()).map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn command_lines_are_read_as_in_procps() {
        for typed in ["aux", "-aux"] {
            let t = read(typed).unwrap();
            assert!(t.bsd && t.kinds.bsd_a && t.kinds.bsd_x, "{typed}");
            assert_eq!(t.bsd_views, [Bsd::User], "{typed}");
        }
        let pids = |t: Typed| t.lists;
        for typed in
            ["42|43", "p|42,43", "p42,43", "-p|42,43", "-p42 43", "--pid=42,43", "--pid|42,43"]
        {
            assert_eq!(pids(read(typed).unwrap()), [Selector::Pid(vec![42, 43])], "{typed}");
        }
        assert_eq!(read("-42").unwrap().lists, [Selector::Group(vec![42])]);
        assert_eq!(read("+42").unwrap().lists, [Selector::Session(vec![42])]);
        for typed in [
            "axo|pid,comm",
            "axopid,comm",
            "ax|o|pid,comm",
            "-axo|pid,comm",
            "ax|--format=pid,comm",
        ] {
            let t = read(typed).unwrap();
            assert_eq!(t.specs, [(TypedAs::Columns, String::from("pid,comm"))], "{typed}");
        }
        assert_eq!(read("axf").unwrap().forest, Some(ForestStyle::Drawn));
        assert_eq!(read("-eH").unwrap().forest, Some(ForestStyle::Indented));
        assert_eq!(read("-C|aux").unwrap().lists, [Selector::Command(vec![b"aux".to_vec()])]);
    }

    #[test]
    fn output_options_alone_are_not_a_procps_command_line() {
        for (typed, is) in [
            ("", false),
            ("-o|pid", false),
            ("--sort|-rss|-w", false),
            ("-f", true),
            ("-e", true),
            ("1", true),
            ("u", true),
            ("h", true),
            ("-T|-o|pid", true),
        ] {
            assert_eq!(read(typed).unwrap().is_procps(), is, "{typed}");
        }
    }

    #[test]
    fn a_word_that_is_not_option_letters_finds_processes() {
        for (typed, words, lists) in [
            ("nginx", "nginx", 0),
            ("-f|postgres", "postgres", 0),
            ("-C|nginx|worker", "worker", 1),
            ("firefox|-C|nginx", "firefox", 1),
            ("nginx|firefox", "nginx|firefox", 0),
            ("axo|pid|firefox", "firefox", 0),
            ("--ppid|1|nginx", "nginx", 1),
            ("aux", "", 0),
            ("-C|nginx", "", 1),
        ] {
            let typed: Vec<String> = typed.split('|').map(str::to_owned).collect();
            let (t, found) = parse_with_words(typed.clone()).unwrap();
            assert_eq!((found.join("|").as_str(), t.lists.len()), (words, lists), "{typed:?}");
        }
        for typed in ["auxq", "axo", "no such", "b", "-o|pid|user"] {
            let typed: Vec<String> = typed.split('|').map(str::to_owned).collect();
            assert!(parse_with_words(typed.clone()).is_err(), "{typed:?}");
        }
    }

    #[test]
    fn errors_name_the_wrong_word() {
        for (typed, word) in [
            ("axo", "needs a list of columns"),
            ("b", "letter 'b'"),
            ("firefox", "-C firefox"),
            ("postgres", "-C postgres"),
            ("nginx", "-C nginx"),
            ("-b", "'-b'"),
            ("--nosuch", "'--nosuch'"),
            ("--srot|pid", "'sort'"),
            ("-p|1,,2", "1,,2"),
            ("-LT|-e", "-L and -T"),
        ] {
            let Err(Exit::Usage(text)) = read(typed) else { panic!("{typed}") };
            assert!(text.contains(word), "{typed}: {text}");
        }
    }
}
