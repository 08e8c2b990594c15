//! `taskdiag dump`: the stream as it is.

use std::io::IsTerminal;

use taskdiag::engine::GROUPS;
use taskdiag::query_with;

use crate::args::dump::Args;
use crate::exit::Exit;
use crate::output::sink;

/// Run it.
pub fn run(args: &Args) -> Result<(), Exit> {
    if std::io::stdout().is_terminal() {
        return Err(Exit::Usage(
            "the stream is binary: send it to a file, as in 'taskdiag dump > tasks.tdg'".to_owned(),
        ));
    }
    let snapshot = query_with(&args.request(GROUPS), args.engine)?;
    sink::write_all(snapshot.stream().bytes())?;
    Ok(())
}
