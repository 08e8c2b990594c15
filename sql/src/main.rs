// SPDX-License-Identifier: MIT OR Apache-2.0
//! SQL over the processes of this machine, over recordings of them, and over the Parquet files of
//! many hosts. `docs/use/sql.md` explains it.
//!
//! DataFusion parses, plans and computes. This program gives it tables, which the library
//! `taskdiag` makes. `tables/` derives the requests from a query.

mod args;
mod catalog;
mod interrupt;
mod lake;
mod output;
mod rewrite;
mod session;
mod shell;
mod system;
mod tables;

use std::io::{IsTerminal, Read, Write};

use taskdiag_face::exit::{self, Exit, Partial, Program, remark};
use taskdiag_face::{aside, elevated};

use crate::args::Args;
use crate::session::Session;

fn main() {
    exit::is_program(Program { name: "taskdiag-sql", wrong: None, has_lines: true });
    let code = i32::from(exit::report(run()));
    // A request may still be running in a thread that is not waited for.
    std::process::exit(code);
}

fn run() -> Result<(), Exit> {
    if let Some(why) = elevated::reason() {
        return Err(Exit::Failed(format!(
            "this copy has more rights than the user who starts it ({why}), so it does nothing: take those rights from the file"
        )));
    }
    let args = Args::parse()?;
    // No other thread has begun yet, and Ctrl-C still ends the program.
    for path in [&args.places.recording, &args.places.lake].into_iter().flatten() {
        aside::answers(path).map_err(|e| Exit::Failed(format!("{}: {e}", exit::shown(path))))?;
    }
    // It waits. Computations run in other threads.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Exit::Failed(format!("no thread can be started: {e}")))?;
    runtime.block_on(interrupt::catch());
    let open = Session::open(&args.places, args.choice, args.limits, args.osquery, args.strict);
    let session = runtime.block_on(open)?;
    if args.commands.is_empty() && shell::is_wanted() {
        return shell::run(&session, &runtime, args.format);
    }
    let text = match args.commands.is_empty() {
        true => standard_input()?,
        false => args.commands.join(";\n"),
    };
    let statements = session.parse(&text)?;
    if statements.is_empty() {
        return Err(Exit::Usage(
            "there is no statement: give one with -c, or to standard input".to_owned(),
        ));
    }
    let (mut rows, mut is_query) = (0, false);
    let mut partial = Vec::new();
    for statement in statements {
        let mut out = std::io::stdout();
        let ran = runtime.block_on(session.run(statement, args.format, &mut out))?;
        out.flush()?;
        is_query |= ran.rows.is_some();
        rows += ran.rows.unwrap_or(0);
        ran.remarks.iter().for_each(|line| remark(line));
        let lacks = Partial::new(ran.lacks, ran.asked, false);
        match lacks.is_failure() {
            true => partial.extend(lacks.lacks.into_iter().map(|lack| lack.line)),
            false => lacks.say(),
        }
    }
    match (partial.is_empty(), is_query && rows == 0) {
        (false, _) => Err(Exit::Partial(Partial::always(partial))),
        (true, true) => Err(Exit::NoMatch),
        (true, false) => Ok(()),
    }
}

fn standard_input() -> Result<String, Exit> {
    if std::io::stdin().is_terminal() {
        remark("statements are read from the terminal up to Ctrl-D");
    }
    let mut text = String::new();
    let read = std::io::stdin().lock().read_to_string(&mut text);
    read.map_err(|e| Exit::Failed(format!("standard input cannot be read: {e}")))?;
    Ok(text)
}
