// SPDX-License-Identifier: MIT OR Apache-2.0
//! How the program ends. The exit codes are the same as in the command, which lists them with
//! `taskdiag help exit-codes`.

use std::io::Write;

use taskdiag::field::escape;

/// The program's name in messages.
pub const NAME: &str = "taskdiag-sql";

/// Why the program, or a statement of the shell, ends early or with an incomplete answer.
#[derive(Debug)]
pub enum Exit {
    /// Help or version was requested, or clap found a usage error: it prints both itself.
    Clap(Box<clap::Error>),
    /// The arguments or the SQL do not make sense.
    Usage(String),
    /// No query gave a row.
    NoRow,
    /// The output could not be written.
    Output(std::io::Error),
    /// The reader of the output is gone, as head is after its last line.
    ClosedPipe,
    /// The answer is incomplete; each line names missing data.
    Partial(Vec<String>),
    /// Ctrl-C ended it.
    Stopped,
    /// There is no answer.
    Failed(String),
}

impl From<std::io::Error> for Exit {
    fn from(e: std::io::Error) -> Exit {
        if e.kind() == std::io::ErrorKind::BrokenPipe { Exit::ClosedPipe } else { Exit::Output(e) }
    }
}

impl Exit {
    /// The exit code.
    pub fn code(&self) -> i32 {
        match self {
            Exit::Clap(e) => e.exit_code(),
            Exit::ClosedPipe => 0,
            Exit::NoRow | Exit::Output(_) => 1,
            Exit::Usage(_) => 2,
            Exit::Partial(_) => 3,
            Exit::Failed(_) => 4,
            Exit::Stopped => 130,
        }
    }
    /// Prints the messages on standard error.
    pub fn say(&self) {
        match self {
            Exit::Clap(e) => {
                // A write error is ignored.
                let _ = e.print();
            }
            Exit::NoRow | Exit::ClosedPipe => {}
            Exit::Output(e) => say(&format!("the output could not be written: {e}")),
            Exit::Partial(lines) => lines.iter().for_each(|line| say(line)),
            Exit::Stopped => say("stopped by Ctrl-C"),
            Exit::Usage(text) | Exit::Failed(text) => text.lines().for_each(say),
        }
    }
}

/// A line on standard error. Names in it are chosen by others, so unprintable characters are
/// escaped.
pub fn say(line: &str) {
    let mut text = format!("{NAME}: ").into_bytes();
    escape(&mut text, line.as_bytes());
    text.push(b'\n');
    let _ = std::io::stderr().lock().write_all(&text);
}
