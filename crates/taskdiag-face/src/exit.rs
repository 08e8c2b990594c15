//! How the program ends: one table of exit codes, one place that prints errors.

use std::io::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use taskdiag::field::escape;

use crate::interrupt;
use crate::sink;

/// The program that writes messages.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// The name of the program, which begins each message.
    pub name: &'static str,
    /// How the program words an error that clap found; `None`: in the words of clap.
    pub wrong: Option<fn(&clap::Error) -> String>,
    /// May a message have several lines? Otherwise the ends of lines are escaped.
    pub has_lines: bool,
}

static PROGRAM: OnceLock<Program> = OnceLock::new();

/// Says which program this is. The first call counts; without one it is `taskdiag`.
pub fn is_program(program: Program) {
    PROGRAM.get_or_init(|| program);
}

fn program() -> &'static Program {
    const DEFAULT: Program = Program { name: "taskdiag", wrong: None, has_lines: false };
    PROGRAM.get().unwrap_or(&DEFAULT)
}

/// The words of the program about an error that clap found.
fn sentence(e: &clap::Error) -> String {
    program().wrong.map_or_else(|| e.to_string(), |wrong| wrong(e))
}

/// Why the program ends early or with an incomplete answer.
#[derive(Debug)]
pub enum Exit {
    /// Help or version was requested, or clap found a usage error: it prints both itself.
    Clap(Box<clap::Error>),
    /// The arguments do not make sense.
    Usage(String),
    /// The expression of `--where` is wrong: the message, and a line that marks the place.
    Where(taskdiag::view::FilterError),
    /// The arguments are wrong for the tool whose name was used; this is the exit code of that
    /// tool.
    Refused(String),
    /// The exit code of another program, which has printed all messages.
    Code(u8),
    /// Nothing matches the selection. Only the header is printed.
    NoMatch,
    /// There are tasks that wait for each other, and the output shows them.
    Deadlock,
    /// The output could not be written.
    Output(std::io::Error),
    /// The reader of the output is gone, as head is after its last line.
    ClosedPipe,
    /// The answer is incomplete. Its code decides whether that is a failure.
    Partial(Partial),
    /// Ctrl-C ended the walk; each line names missing data.
    Stopped(Vec<Lack>),
    /// There is no answer.
    Failed(String),
}

/// How exactly the caller named the subject of the answer. Missing data is a failure only if the
/// caller named the subject at least as exactly as the [`Lack`] requires.
///
/// Without this rule, any user could make scripts of other users fail, with a process that may not
/// be read or that takes all the room. And a script of an ordinary user would fail on each machine
/// that has processes of other users.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Asked {
    /// The answer is about everything that exists.
    #[default]
    All,
    /// The subject is named by a property that other users can choose, too: users, commands, files.
    Named,
    /// About these very processes.
    Pids,
    /// Everything, with `--strict`.
    Strict,
}

/// A sentence about data that an answer lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lack {
    /// The missing data, and how to get it.
    pub line: String,
    /// The callers for whom it is a failure.
    pub from: Asked,
}

impl Lack {
    /// A failure for everybody.
    pub fn always(line: String) -> Lack {
        Lack { line, from: Asked::All }
    }
    /// A failure for callers who asked for it by name.
    pub fn if_named(self) -> Lack {
        Lack { from: self.from.max(Asked::Named), ..self }
    }
}

/// Data that an answer lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partial {
    /// The sentences.
    pub lacks: Vec<Lack>,
    /// How exactly the caller named the subject of the answer.
    pub asked: Asked,
    /// Is nothing shown?
    pub is_empty: bool,
    /// The messages that were already written to standard error.
    pub said: Vec<Lack>,
}

impl Partial {
    /// An answer without this.
    pub fn new(lacks: Vec<Lack>, asked: Asked, is_empty: bool) -> Partial {
        Partial { lacks, asked, is_empty, said: Vec::new() }
    }
    /// Missing data that is a failure for each caller.
    pub fn always(lines: impl IntoIterator<Item = String>) -> Partial {
        Partial::new(lines.into_iter().map(Lack::always).collect(), Asked::All, false)
    }
    /// Print the sentences.
    pub fn say(&self) {
        let new = self.lacks.iter().filter(|lack| !self.said.contains(lack));
        say_all(new.map(|lack| &lack.line));
    }
    /// Is missing data a failure? This is the only place that decides that.
    pub fn is_failure(&self) -> bool {
        self.lacks.iter().any(|lack| lack.from <= self.asked)
    }
    /// The exit code.
    fn code(&self) -> u8 {
        match self.is_failure() {
            true => 3,
            false => u8::from(self.is_empty),
        }
    }
}

impl Exit {
    /// Converts the error for a call by the name of another tool: wrong arguments have that tool's
    /// exit code.
    pub fn into_refused(self) -> Exit {
        match self {
            Exit::Usage(text) => Exit::Refused(text),
            Exit::Clap(e) if e.use_stderr() => Exit::Refused(sentence(&e)),
            other => other,
        }
    }
}

/// Exit codes, for `--help` and the man page.
pub const CODES: &[(u8, &str)] = &[
    (
        0,
        "the answer has what the caller may see; if there is more, standard error says what, and how to get it (also when a pipe \
         reader such as head stops early)",
    ),
    (
        1,
        "nothing matches the selection, the output could not be written, or dropin status finds that the drop-in is not \
         installed",
    ),
    (2, "the arguments are wrong, or TASKDIAG_ENGINE is"),
    (
        3,
        "something that was named, such as a process, a user or a file, could not be shown, or only a part of it; the saved answer \
         does not hold what was asked for; with --strict, anything could not be shown; or wait ran out of time",
    ),
    (
        4,
        "there is no answer: no engine works, a saved answer or recording cannot be read, or a directory or port that \
         the command needs cannot be used",
    ),
    (5, "why: there is a deadlock"),
    (
        126,
        "run: the program cannot be executed; otherwise, the exit code of run is that of the program",
    ),
    (127, "run: there is no such program"),
    (
        interrupt::CODE,
        "stopped by Ctrl-C: what was there until then is shown, or standard error says that the \
         output is cut; record ends with 0 then, because that is how it is stopped",
    ),
];

/// The end of a command's `--help`: examples, and where to find the exit codes.
pub fn examples(all: &[(&str, &str)]) -> String {
    let width = all.iter().map(|(typed, _)| typed.len()).max().unwrap_or(0);
    // In two columns if all lines fit into 80 cells, because the terminal would break longer lines.
    let is_beside = all.iter().all(|(_, what)| 2 + width + 2 + what.len() <= 80);
    let mut out = String::from("Examples:\n");
    for (typed, what) in all {
        out.push_str(&match is_beside {
            true => format!("  {typed:<width$}  {what}\n"),
            false => format!("  {typed}\n      {what}\n"),
        });
    }
    out + "\n'taskdiag help exit-codes' says what exit codes mean."
}

/// What `taskdiag help exit-codes` prints.
pub fn codes_text() -> String {
    let mut out = String::from("Exit codes:");
    for (code, what) in CODES {
        out.push('\n');
        out += &wrapped(&format!("  {code:<4}"), what);
    }
    out
}

/// A text in lines of less than 80 cells, after a label. Further lines begin below the text.
pub fn wrapped(label: &str, text: &str) -> String {
    let mut out = label.to_owned();
    let mut width = label.len();
    for (i, word) in text.split(' ').enumerate() {
        if i > 0 && width + word.len() >= 78 {
            out.push('\n');
            out += &" ".repeat(label.len());
            width = label.len();
        } else if i > 0 {
            out.push(' ');
            width += 1;
        }
        out.push_str(word);
        width += word.len();
    }
    out
}

impl From<taskdiag::Error> for Exit {
    fn from(e: taskdiag::Error) -> Exit {
        match e {
            taskdiag::Error::Setting(why) => Exit::Usage(why),
            e => Exit::Failed(e.to_string()),
        }
    }
}

impl From<clap::Error> for Exit {
    fn from(e: clap::Error) -> Exit {
        Exit::Clap(Box::new(e))
    }
}

impl From<std::io::Error> for Exit {
    fn from(e: std::io::Error) -> Exit {
        if e.kind() == std::io::ErrorKind::BrokenPipe { Exit::ClosedPipe } else { Exit::Output(e) }
    }
}

/// A line on standard error. Names of files and tasks in it are chosen by others, so unprintable
/// characters are escaped as in a table. Errors of the write are ignored; eprintln!() would panic.
pub fn say(line: std::fmt::Arguments<'_>) {
    if QUIET.load(Ordering::Relaxed) {
        return;
    }
    let mut text = Vec::new();
    escape(&mut text, without_numbers(&line.to_string()).as_bytes());
    text.push(b'\n');
    write_error(&text);
}

/// The text without the error numbers that Rust's library adds to messages of the system.
pub fn without_numbers(text: &str) -> String {
    let mut parts = text.split(" (os error ");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once(')') {
            Some((number, rest)) if number.bytes().all(|b| b.is_ascii_digit()) => out += rest,
            _ => {
                out += " (os error ";
                out += part;
            }
        }
    }
    out
}

/// A line of the program on standard error, with its name before it.
pub fn remark(line: &str) {
    say(format_args!("{}: {line}", program().name));
}

/// Why the program ends.
fn message(text: &str) {
    match program().has_lines {
        true => text.lines().for_each(remark),
        false => remark(text),
    }
}

/// Are remarks suppressed?
static QUIET: AtomicBool = AtomicBool::new(false);

/// Runs `f`. With `quiet`, remarks are suppressed while it runs, because procps has none. A failure
/// is still reported afterwards.
pub fn quietly<T>(quiet: bool, what: impl FnOnce() -> T) -> T {
    QUIET.store(quiet, Ordering::Relaxed);
    let result = what();
    QUIET.store(false, Ordering::Relaxed);
    result
}

fn write_error(text: &[u8]) {
    if !sink::is_silent() {
        let _ = std::io::stderr().lock().write_all(text);
    }
}

/// Messages of clap: help unchanged, errors in the style of this program.
fn print(e: &clap::Error) -> std::io::Result<()> {
    if !e.use_stderr() {
        return sink::write_all(e.render().to_string().as_bytes());
    }
    // Without arguments, the help is the error.
    let is_help = e.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    match program().wrong {
        Some(wrong) if !is_help => remark(&wrong(e)),
        _ => write_error(e.render().to_string().as_bytes()),
    }
    Ok(())
}

/// A path as it is displayed.
pub fn shown(path: &std::path::Path) -> String {
    use std::os::unix::ffi::OsStrExt;
    let mut out = Vec::new();
    escape(&mut out, path.as_os_str().as_bytes());
    String::from_utf8_lossy(&out).into_owned()
}

/// Prints messages about missing data to standard error.
pub fn say_all<'l>(lines: impl IntoIterator<Item = &'l String>) {
    for line in lines {
        remark(line);
    }
}

/// Prints the messages on standard error, and returns the exit code.
pub fn report(result: Result<(), Exit>) -> u8 {
    let Err(exit) = result else { return 0 };
    match exit {
        Exit::Clap(e) => match print(&e) {
            Err(why) => report(Err(why.into())),
            Ok(()) => e.exit_code() as u8,
        },
        Exit::Usage(text) => {
            message(&text);
            2
        }
        Exit::Where(e) => {
            let [what, below @ ..] = e.lines();
            remark(&format!("--where: {what}"));
            for line in below {
                say(format_args!("{line}"));
            }
            2
        }
        Exit::Refused(text) => {
            for line in text.lines() {
                say(format_args!("{line}"));
            }
            1
        }
        Exit::Code(code) => code,
        Exit::NoMatch => 1,
        Exit::Deadlock => 5,
        Exit::Output(e) => {
            remark(&format!("the output could not be written: {e}"));
            1
        }
        Exit::ClosedPipe => 0,
        Exit::Partial(partial) => {
            partial.say();
            partial.code()
        }
        Exit::Stopped(lacks) => {
            say_all(lacks.iter().map(|lack| &lack.line));
            interrupt::CODE
        }
        Exit::Failed(text) => {
            message(&text);
            4
        }
    }
}
