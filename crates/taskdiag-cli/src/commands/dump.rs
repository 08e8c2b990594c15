//! `taskdiag dump`: the stream as it is.

use std::io::IsTerminal;

use taskdiag::field::Missing;
use taskdiag::view::Plan;
use taskdiag::{Group, Reason, Snapshot};

use crate::answer::{self, Source};
use crate::args::dump::DumpArgs;
use crate::exit::{Exit, Lack};
use crate::output::{sink, tally};

/// Run it.
pub fn run(args: &DumpArgs) -> Result<(), Exit> {
    if std::io::stdout().is_terminal() {
        return Err(Exit::Usage(
            "the stream is binary: send it to a file, as in 'taskdiag dump > tasks.tdg'".to_owned(),
        ));
    }
    let source = Source { engine: args.engine, limits: args.limits, ..Source::default() };
    let snapshot = source.ask(Plan::One(args.request()))?;
    sink::write_all(snapshot.stream().bytes())?;
    let asked = args.asked();
    answer::verdict_of(&snapshot, snapshot.tasks().len() == 0, lacking(&snapshot), asked)
}

/// Messages about data that the answer lacks.
fn lacking(snapshot: &Snapshot) -> Vec<Lack> {
    let done = snapshot.stream().done();
    // A group that the engine does not have is missing for all tasks alike, so the first one is
    // enough. All other reasons are counted.
    let all = done.denied + done.blocked + done.truncated + done.over_budget > 0 || done.error != 0;
    let tasks = if all { snapshot.tasks().len() } else { 1 };
    let missing = snapshot
        .tasks()
        .take(tasks)
        .flat_map(|t| t.asked().iter().filter_map(move |g| Some((g, t.reason(g)?))));
    let mut lines =
        tally::lines_of(missing, snapshot.stream().strategy().is_threads(), Group::name, snapshot);
    if done.truncated > 0 {
        let cut = Missing::Reason(Reason::Truncated);
        lines.extend(tally::line(cut, done.truncated as usize, "values", Group::Base, snapshot));
    }
    lines
}
