// SPDX-License-Identifier: MIT OR Apache-2.0
//! A simple shell: lines are edited, names are completed with the tabulator, and a statement ends
//! with a semicolon.

use std::io::{IsTerminal, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;

use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::Validator;
use rustyline::{CompletionType, Config, Context, Editor, Helper};
use taskdiag_face::exit::{self, Exit, remark};
use tokio::runtime::Runtime;

use crate::interrupt;
use crate::output::Format;
use crate::session::Session;

/// Words of SQL that are worth completing.
const WORDS: &[&str] = &[
    "and",
    "as",
    "asc",
    "between",
    "by",
    "case",
    "cast",
    "count",
    "create view",
    "desc",
    "describe",
    "distinct",
    "else",
    "end",
    "explain",
    "from",
    "group by",
    "having",
    "in",
    "is",
    "join",
    "left join",
    "like",
    "limit",
    "not",
    "null",
    "on",
    "or",
    "order by",
    "select",
    "show tables",
    "then",
    "union all",
    "using",
    "when",
    "where",
    "with",
];

const HELP: &str = "A statement ends with a semicolon. The tabulator completes names.
  show tables;           the tables
  describe processes;    the columns of a table
  explain select ...;    what is asked of the machine for a query
  .output FORMAT         write results as table, json or csv
  .help                  this text
  .quit                  end, as Ctrl-D does; Ctrl-C ends a query
";

struct Names<'s> {
    session: &'s Session,
    runtime: &'s Runtime,
    tables: Vec<String>,
}

impl Names<'_> {
    /// Completions for the end of a line: columns of its tables, tables, and words of SQL.
    fn complete(&self, line: &str, pos: usize) -> (usize, Vec<String>) {
        let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
        let start = line[..pos].rfind(|c| !is_part(c)).map_or(0, |i| i + 1);
        let typed = line[start..pos].to_lowercase();
        let (before, typed_name) = match typed.split_once('.') {
            Some((before, name)) if !self.tables.iter().any(|t| t.starts_with(&typed)) => {
                (format!("{before}."), name)
            }
            _ => (String::new(), typed.as_str()),
        };
        let words: Vec<&str> = line.split(|c| !is_part(c)).collect();
        let named = self.tables.iter().filter(|t| words.contains(&t.as_str()));
        let mut columns: Vec<String> =
            named.flat_map(|t| self.runtime.block_on(self.session.columns(t))).collect();
        if columns.is_empty() {
            let first = self.tables.iter().find(|t| t.as_str() == "processes");
            columns =
                first.map(|t| self.runtime.block_on(self.session.columns(t))).unwrap_or_default();
        }
        let words = WORDS.iter().map(|w| (*w).to_owned());
        let mut all: Vec<String> = match before.is_empty() {
            true => columns.into_iter().chain(self.tables.iter().cloned()).chain(words).collect(),
            false => columns,
        };
        all.retain(|name| name.starts_with(typed_name));
        all.sort();
        all.dedup();
        (start, all.into_iter().map(|name| before.clone() + &name).collect())
    }
}

impl Completer for Names<'_> {
    type Candidate = String;
    fn complete(
        &self,
        line: &str,
        pos: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        Ok(self.complete(line, pos))
    }
}
impl Hinter for Names<'_> {
    type Hint = String;
}
impl Highlighter for Names<'_> {}
impl Validator for Names<'_> {}
impl Helper for Names<'_> {}

/// The file of the history, which only its owner may read. `None`: there is no directory for it.
fn history() -> Option<PathBuf> {
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/state"));
    let state = std::env::var_os("XDG_STATE_HOME")
        .map(PathBuf::from)
        .filter(|p| p.is_absolute())
        .or_else(home)?;
    let directory = state.join("taskdiag");
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory).ok()?;
    let file = directory.join("sql_history");
    std::fs::OpenOptions::new().create(true).append(true).mode(0o600).open(&file).ok()?;
    Some(file)
}

/// Runs the shell until it is left.
///
/// # Errors
/// The terminal cannot be read.
pub fn run(session: &Session, runtime: &Runtime, mut format: Format) -> Result<(), Exit> {
    let failed = |e: ReadlineError| Exit::Failed(format!("the terminal cannot be read: {e}"));
    let config = Config::builder().completion_type(CompletionType::List).build();
    // The editor would receive Ctrl-C even while a statement runs.
    let editor = interrupt::keep(|| Editor::<Names<'_>, FileHistory>::with_config(config));
    let mut editor = editor.map_err(failed)?;
    editor.set_helper(Some(Names { session, runtime, tables: session.tables() }));
    let history = history();
    if let Some(file) = &history {
        // A history that cannot be read is empty.
        let _ = editor.load_history(file);
    }
    println!("taskdiag-sql {}: .help lists the commands", env!("CARGO_PKG_VERSION"));
    let mut text = String::new();
    loop {
        let prompt = if text.is_empty() { "sql> " } else { "  -> " };
        // While a line is edited, Ctrl-C is a key. After that, it stops the statement.
        runtime.block_on(interrupt::catch());
        match editor.readline(prompt) {
            Ok(line) => {
                text.push_str(&line);
                text.push('\n');
            }
            Err(ReadlineError::Interrupted) => {
                text.clear();
                continue;
            }
            Err(ReadlineError::Eof) => break,
            Err(e) => return Err(failed(e)),
        }
        let typed = text.trim();
        if let Some(command) = typed.strip_prefix('.') {
            match command.split_whitespace().collect::<Vec<_>>()[..] {
                ["quit" | "exit"] => break,
                ["output", name] if Format::from_name(name).is_some() => {
                    format = Format::from_name(name).unwrap_or(format);
                }
                ["help"] => print!("{HELP}"),
                _ => remark("there is no such command; .help lists them"),
            }
            text.clear();
            continue;
        }
        if typed.is_empty() || !typed.ends_with(';') {
            if typed.is_empty() {
                text.clear();
            }
            continue;
        }
        // The history is only a convenience, so an error is ignored.
        let _ = editor.add_history_entry(typed);
        if let Some(file) = &history {
            let _ = editor.append_history(file);
        }
        let result = statements(session, runtime, typed, format);
        text.clear();
        match result {
            Err(e @ (Exit::Output(_) | Exit::ClosedPipe)) => return Err(e),
            Err(e) => _ = exit::report(Err(e)),
            Ok(()) => {}
        }
        if let Some(names) = editor.helper_mut() {
            names.tables = session.tables();
        }
    }
    Ok(())
}

fn statements(
    session: &Session,
    runtime: &Runtime,
    text: &str,
    format: Format,
) -> Result<(), Exit> {
    for statement in session.parse(text)? {
        let mut out = std::io::stdout();
        let ran = runtime.block_on(session.run(statement, format, &mut out))?;
        ran.remarks.iter().chain(ran.lacks.iter().map(|l| &l.line)).for_each(|line| remark(line));
        if let (Some(n), Format::Table) = (ran.rows, format) {
            println!("{n} {}", if n == 1 { "row" } else { "rows" });
        }
        out.flush()?;
    }
    Ok(())
}

/// Are statements typed by a person?
pub fn is_wanted() -> bool {
    std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
}
