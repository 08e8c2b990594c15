//! How the program ends: one table of exit codes, one place that prints errors.

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};

use taskdiag::field::escape;

use crate::interrupt;
use crate::sink;

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
    /// Nothing matches the selection. Nothing is printed but the header.
    NoMatch,
    /// The output could not be written.
    Output(std::io::Error),
    /// The reader of the output is gone, as head is after its last line.
    ClosedPipe,
    /// The answer lacks something; each line says what and how to get it.
    Partial(Vec<String>),
    /// Ctrl-C ended it; each line says what is lacking.
    Stopped(Vec<String>),
    /// There is no answer.
    Failed(String),
}

impl Exit {
    /// The same for calls by the name of another tool: wrong arguments have that tool's exit code.
    pub fn into_refused(self) -> Exit {
        match self {
            Exit::Usage(text) => Exit::Refused(text),
            Exit::Clap(e) if e.use_stderr() => Exit::Refused(e.render().to_string()),
            other => other,
        }
    }
}

/// Exit codes, for `--help` and the man page.
pub const CODES: &[(u8, &str)] = &[
    (0, "the answer is complete (also when a pipe reader such as head stops early)"),
    (
        1,
        "nothing matches the selection, the output could not be written, or dropin status finds that the drop-in is not \
         installed",
    ),
    (2, "the arguments are wrong, or TASKDIAG_ENGINE is"),
    (
        3,
        "the answer is partial: something asked for was denied, blocked, cut or unsupported; \
         standard error says what, and how to get it; or the time of wait was over",
    ),
    (
        4,
        "there is no answer: no engine works, a saved answer or recording cannot be read, or a directory or port that \
         the command needs cannot be used",
    ),
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
        out.push_str(&format!("\n  {code:<3}"));
        let mut width = 5;
        for word in what.split(' ') {
            if width + word.len() >= 78 {
                out.push_str("\n     ");
                width = 5;
            }
            out.push(' ');
            out.push_str(word);
            width += word.len() + 1;
        }
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
    escape(&mut text, line.to_string().as_bytes());
    text.push(b'\n');
    write_error(&text);
}

/// Are remarks suppressed?
static QUIET: AtomicBool = AtomicBool::new(false);

/// Runs `f`, and suppresses remarks meanwhile if `quiet`, because procps has none. A failure is
/// still reported afterwards.
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

/// What clap has to say: help as it is, errors with what was typed escaped, which the shell may have made of
/// the names of files.
fn print(e: &clap::Error) -> std::io::Result<()> {
    let text = e.render().to_string();
    if !e.use_stderr() {
        return sink::write_all(text.as_bytes());
    }
    let mut safe = Vec::new();
    for line in text.lines() {
        escape(&mut safe, line.as_bytes());
        safe.push(b'\n');
    }
    write_error(&safe);
    Ok(())
}

/// A path as it is displayed.
pub fn shown(path: &std::path::Path) -> String {
    use std::os::unix::ffi::OsStrExt;
    let mut out = Vec::new();
    escape(&mut out, path.as_os_str().as_bytes());
    String::from_utf8_lossy(&out).into_owned()
}

/// Lines about what is lacking, on standard error.
pub fn say_all(lines: &[String]) {
    for line in lines {
        say(format_args!("taskdiag: {line}"));
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
            say(format_args!("taskdiag: {text}"));
            2
        }
        Exit::Where(e) => {
            let [what, below @ ..] = e.lines();
            say(format_args!("taskdiag: --where: {what}"));
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
        Exit::Output(e) => {
            say(format_args!("taskdiag: the output could not be written: {e}"));
            1
        }
        Exit::ClosedPipe => 0,
        Exit::Partial(lines) => {
            say_all(&lines);
            3
        }
        Exit::Stopped(lines) => {
            say_all(&lines);
            interrupt::CODE
        }
        Exit::Failed(text) => {
            say(format_args!("taskdiag: {text}"));
            4
        }
    }
}
