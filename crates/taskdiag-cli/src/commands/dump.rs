//! `taskdiag dump`: the stream as it is.

use std::io::IsTerminal;

use taskdiag::field::Missing;
use taskdiag::{Group, Reason, Snapshot};

use crate::answer;
use crate::args::dump::Args;
use crate::exit::Exit;
use crate::output::{sink, tally};
use crate::plan::Plan;

/// Run it.
pub fn run(args: &Args) -> Result<(), Exit> {
    if std::io::stdout().is_terminal() {
        return Err(Exit::Usage(
            "the stream is binary: send it to a file, as in 'taskdiag dump > tasks.tdg'".to_owned(),
        ));
    }
    let snapshot = answer::ask(Plan::One(args.request()), args.engine)?;
    sink::write_all(snapshot.stream().bytes())?;
    answer::verdict_of(&snapshot, snapshot.tasks().len() == 0, lacking(&snapshot))
}

/// Lines that say what the answer lacks.
fn lacking(snapshot: &Snapshot) -> Vec<String> {
    let done = snapshot.stream().done();
    let mut counts: Vec<(Group, Reason, usize)> = Vec::new();
    // What an engine does not have is lacking of the first task as of any; all else is counted.
    let all = done.denied + done.blocked + done.truncated + done.over_budget > 0 || done.error != 0;
    let tasks = if all { snapshot.tasks().len() } else { 1 };
    for task in snapshot.tasks().take(tasks) {
        let reasons = task.asked().iter().filter_map(|g| Some((g, task.reason(g)?)));
        for (group, reason) in reasons {
            match counts.iter_mut().find(|c| (c.0, c.1) == (group, reason)) {
                Some(c) => c.2 += 1,
                None => counts.push((group, reason, 1)),
            }
        }
    }
    let cut = (Group::Base, Reason::Truncated, done.truncated as usize);
    let line = |(group, reason, n): (Group, Reason, usize), name| {
        tally::line(Missing::Reason(reason), n, name, group, snapshot)
    };
    let mut lines: Vec<String> = counts.into_iter().filter_map(|c| line(c, c.0.name())).collect();
    if cut.2 > 0 {
        lines.extend(line(cut, "values"));
    }
    lines
}
