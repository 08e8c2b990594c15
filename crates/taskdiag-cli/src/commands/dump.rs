//! `taskdiag dump`: the stream as it is.

use std::io::IsTerminal;

use taskdiag::{Groups, query_with};

use crate::args::dump::Args;
use crate::exit::Exit;
use crate::output::sink;

/// The groups that engines provide; the others come with later commands.
const ALL: Groups = Groups::BASE
    .union(Groups::CRED)
    .union(Groups::STAT)
    .union(Groups::STATM)
    .union(Groups::CMDLINE)
    .union(Groups::PATHS)
    .union(Groups::IO)
    .union(Groups::SCHED)
    .union(Groups::NS)
    .union(Groups::CGROUP);

/// Run it.
pub fn run(args: &Args) -> Result<(), Exit> {
    if std::io::stdout().is_terminal() {
        return Err(Exit::Usage(
            "the stream is binary: send it to a file, as in 'taskdiag dump > tasks.tdg'".to_owned(),
        ));
    }
    let snapshot = query_with(&args.request(ALL), args.engine)?;
    sink::write_all(snapshot.stream().bytes())?;
    Ok(())
}
