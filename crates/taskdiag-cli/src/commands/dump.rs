//! `taskdiag dump`: the stream as it is. A long one is made and written in parts.

use std::collections::HashMap;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;

use rustix::fs::{OFlags, SeekFrom};
use taskdiag::field::Missing;
use taskdiag::view::Plan;
use taskdiag::{Caveat, Group, InParts, Reason, Snapshot};

use crate::answer::{self, Source};
use crate::args::dump::DumpArgs;
use crate::exit::{Exit, Lack, say};
use crate::interrupt;
use crate::output::{Sink, sink, tally};
use crate::progress::Progress;

/// Run it.
pub fn run(args: &DumpArgs) -> Result<(), Exit> {
    if std::io::stdout().is_terminal() {
        return Err(Exit::Usage(
            "the stream is binary: send it to a file, as in 'taskdiag dump > tasks.tdg'".to_owned(),
        ));
    }
    let mut request = args.request();
    args.limits.put_into(&mut request);
    if let Some(parts) = InParts::new(request.with_watch(interrupt::watch()), args.engine)? {
        return in_parts(args, parts);
    }
    let source = Source { engine: args.engine, limits: args.limits, ..Source::default() };
    let snapshot = source.ask(Plan::One(args.request()))?;
    sink::write_all(snapshot.stream().bytes())?;
    let mut gaps = Gaps::default();
    gaps.add(&snapshot);
    let lacks = gaps.lines(&snapshot);
    answer::verdict_of(&snapshot, snapshot.tasks().len() == 0, lacks, args.asked())
}

/// Writes each part before the next one is made.
fn in_parts(args: &DumpArgs, mut parts: InParts) -> Result<(), Exit> {
    let progress = Progress::start(interrupt::watch());
    let out = std::io::stdout();
    let begin = place(&out);
    let mut gaps = Gaps::default();
    let mut sink = Sink::stdout();
    while let Some(part) = parts.next_part()? {
        gaps.add(part.snapshot);
        part.write(&mut |bytes| {
            sink.buf().extend_from_slice(bytes);
            sink.settle()
        })?;
    }
    interrupt::answered();
    drop(progress);
    let (head, tasks) = (parts.head(), parts.tasks());
    let (end, summary) = parts.end()?;
    sink.buf().extend_from_slice(end.as_bytes());
    sink.finish()?;
    if let (Some(begin), Some(head)) = (begin, head) {
        again(&out, head.as_bytes(), begin)?;
    }
    for caveat in summary.caveats().iter().filter(|c| !Caveat::is_lack(c)) {
        say(format_args!("taskdiag: {caveat}"));
    }
    let lacks = gaps.lines(&summary);
    answer::verdict_of_parts(&summary, tasks, lacks, args.asked())
}

/// The place in a file where output begins, if it can be written there again.
fn place(out: impl AsFd) -> Option<u64> {
    let is_append = rustix::fs::fcntl_getfl(&out).is_ok_and(|f| f.contains(OFlags::APPEND));
    let at = rustix::fs::seek(&out, SeekFrom::Current(0)).ok()?;
    (!is_append && !sink::is_silent()).then_some(at)
}

/// Writes the head again, which now has the engines of all parts. A pipe keeps the head of the
/// first part.
fn again(out: impl AsFd, mut bytes: &[u8], mut at: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        let n = rustix::io::retry_on_intr(|| rustix::io::pwrite(&out, bytes, at))?;
        if n == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        (bytes, at) = (&bytes[n..], at + n as u64);
    }
    Ok(())
}

/// The data that tasks of an answer lack.
#[derive(Debug, Default)]
struct Gaps(HashMap<(Group, Reason), usize>);

impl Gaps {
    /// Adds the tasks of an answer, or of a part of it.
    fn add(&mut self, snapshot: &Snapshot) {
        let done = snapshot.stream().done();
        // A group that the engine does not have is missing for all tasks alike, so the first one is
        // enough. All other reasons are counted.
        let all =
            done.denied + done.blocked + done.truncated + done.over_budget > 0 || done.error != 0;
        let tasks = if all { snapshot.tasks().len() } else { 1 };
        for task in snapshot.tasks().take(tasks) {
            let missing = task.asked().iter().filter_map(|g| Some((g, task.reason(g)?)));
            for gap in missing {
                let count = self.0.entry(gap).or_default();
                *count = if all { *count + 1 } else { (*count).max(1) };
            }
        }
    }
    /// Lines that say what the answer lacks.
    fn lines(&self, snapshot: &Snapshot) -> Vec<Lack> {
        let truncated = snapshot.stream().done().truncated;
        let mut all: Vec<_> = self.0.iter().collect();
        all.sort_unstable_by_key(|((group, reason), _)| (*group as u16, *reason as u32));
        let missing = all.into_iter().flat_map(|(gap, n)| std::iter::repeat_n(*gap, *n));
        let threads = snapshot.stream().strategy().is_threads();
        let mut lines = tally::lines_of(missing, threads, Group::name, snapshot);
        if truncated > 0 {
            let cut = Missing::Reason(Reason::Truncated);
            lines.extend(tally::line(cut, truncated as usize, "values", Group::Base, snapshot));
        }
        lines
    }
}
