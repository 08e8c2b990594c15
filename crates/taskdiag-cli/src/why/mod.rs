//! `taskdiag why`: what tasks wait for, since when, who holds it, and who is at the head.

mod document;
mod draw;
mod words;

use std::cell::RefCell;
use std::collections::HashSet;
use std::time::{Instant, SystemTime};

use taskdiag::field::Row;
use taskdiag::view::{Left, Plan, Query, Selection};
use taskdiag::why::{Graph, Limits, NoHolder, Stacks, UserStack, Wait, Waits};
use taskdiag::{Groups, Members, Request, Snapshot, field};
use taskdiag_face::moment;

use crate::answer;
use crate::args::why::WhyArgs;
use crate::exit::{Asked, Exit, Lack, Partial, say};
use crate::forest::{LINES, PLAIN, Style};
use crate::interrupt;
use crate::output::terminal::{Color, Terminal};
use crate::output::{Sink, tally};

/// Everything that is shown.
struct Report<'a> {
    args: &'a WhyArgs,
    waits: &'a Waits,
    graph: &'a Graph,
    /// For each thread, whether it is to be explained: it is named, or `--where` is true for it.
    chosen: Vec<bool>,
    /// For each node, whether a chosen one waits for it, directly or not.
    concerns: Vec<bool>,
    /// How the lines of trees are drawn.
    style: Style,
    /// The threads whose stacks were shown. Each one is looked at on its own.
    stacked: RefCell<HashSet<u32>>,
    /// Reads the stacks of threads in their programs.
    stacks: RefCell<Stacks>,
}

/// The largest number of threads whose stacks are shown.
const STACKS: usize = 64;

/// The stacks of a thread.
struct Both {
    /// The kernel's stack, a function in each line. `None`: it is not shown.
    kernel: Option<Vec<u8>>,
    /// The stack in the program.
    user: UserStack,
}

/// Run it.
pub fn run(args: &WhyArgs) -> Result<(), Exit> {
    let Some(pause) = args.watch else { return once(args, true) };
    let mut is_first = true;
    loop {
        let begun = Instant::now();
        match once(args, is_first) {
            Ok(()) | Err(Exit::Deadlock) => {}
            end => return end,
        }
        is_first = false;
        interrupt::rest();
        std::thread::sleep(pause.saturating_sub(begun.elapsed()));
    }
}

/// Writes one report. The first one also says which data the answer lacks.
fn once(args: &WhyArgs, is_first: bool) -> Result<(), Exit> {
    let query = query(args);
    let snapshot = match &args.source.from {
        Some(_) => args.source.get(|| self::query(args))?,
        None => args.source.ask(plan(args, &query))?,
    };
    if !snapshot.stream().asked().contains(query.groups) {
        let how = "make it with 'taskdiag dump --groups base,wait --strategy all-thread'";
        return Err(Exit::Failed(format!(
            "the saved answer does not hold what tasks wait for: {how}"
        )));
    }
    let mut waits = Waits::of(&snapshot);
    let (chosen, left) = chosen(args, &query, &snapshot);
    let is_all = args.is_of_machine();
    let is_other = |p: u32| {
        let mut with = snapshot.tasks().filter(|t| t.pid() == p || t.tgid() == p);
        !args.inodes.is_empty() && !with.any(|t| args.inodes.admit(p, &Row::new(t)))
    };
    let is_missing = |p: &u32| waits.find(*p).is_none() || is_other(*p);
    let missing: Vec<u32> = args.pids.iter().copied().filter(is_missing).collect();
    // With --watch, ended processes are only reported when all have ended.
    let is_missed = is_first || missing.len() == args.pids.len();
    for pid in missing.iter().filter(|_| is_missed) {
        say(format_args!("taskdiag: there is no process {pid}"));
    }
    let has_none = !chosen.contains(&true);
    let is_new = has_none && is_first;
    if is_new && !args.words.is_empty() {
        let words = args.words.join("' and '");
        say(format_args!("taskdiag: no process has '{words}' in its name or arguments"));
    } else if is_new && missing.is_empty() {
        say(format_args!("taskdiag: no thread is known to match"));
    }
    let looked: Vec<usize> = (0..chosen.len()).filter(|at| is_all || chosen[*at]).collect();
    match args.source.from {
        Some(_) => waits.leave_as_saved(),
        None => {
            let mut limits = Limits::default();
            limits.has_sockets = !is_all;
            waits.look_up(looked, args.source.engine, limits);
        }
    }
    let graph = Graph::new(&waits);
    let concerns = concerns(&graph, &chosen);
    let style = if Terminal::detect(Color::Never, true).lines { LINES } else { PLAIN };
    let stacked = RefCell::default();
    let stacks = RefCell::new(Stacks::new(args.source.engine, Limits::default()));
    let (waits, graph) = (&waits, &graph);
    let report = Report { args, waits, graph, chosen, concerns, style, stacked, stacks };
    let mut sink = Sink::stdout();
    let is_text = !args.json && !args.csv;
    if args.watch.is_some() && is_text {
        let now = moment::shown(SystemTime::now());
        let blank = if is_first { "" } else { "\n" };
        sink.buf().extend_from_slice(format!("{blank}{now}\n").as_bytes());
    }
    match (args.json, args.csv) {
        (true, _) => document::json(sink.buf(), &report),
        (_, true) => document::csv(sink.buf(), &report, is_first),
        _ if is_all && has_none => {}
        _ if is_all => draw::machine(sink.buf(), &report),
        _ => draw::named(sink.buf(), &report),
    }
    sink.finish()?;
    let has_ended = !args.pids.is_empty() && missing.len() == args.pids.len();
    if args.watch.is_some() && !is_first {
        return if has_ended { Err(Exit::NoMatch) } else { Ok(()) };
    }
    let left = tally::left_out(&left, &snapshot);
    match end(&report, &snapshot, left, has_none || !missing.is_empty()) {
        // Keep watching: matching tasks may begin later, and other named processes are still alive.
        Err(Exit::NoMatch) if args.watch.is_some() && !has_ended => Ok(()),
        end => end,
    }
}

/// The conditions of `--where`, which choose among threads.
fn query(args: &WhyArgs) -> Query {
    let mut query = Query::new(&field::TASKS, []);
    query.filter = args.filter.clone();
    query.threads = true;
    query.groups = Groups::BASE | Groups::WAIT | args.inodes.groups();
    query.members = Members::of(Groups::BASE, &[]);
    query
}

/// All threads of the machine, because anybody may hold something.
fn plan(args: &WhyArgs, query: &Query) -> Plan {
    let mut plan = Plan::new(query.groups(), &Selection::default(), true);
    plan.requests(|r| r.members = query.members());
    match &args.filter {
        Some(filter) => plan.looking_again(filter),
        None => plan,
    }
}

/// For each thread, whether it is explained. The second list has the conditions that could not be
/// decided.
fn chosen(args: &WhyArgs, query: &Query, snapshot: &Snapshot) -> (Vec<bool>, Vec<Left>) {
    let mut chosen = vec![false; snapshot.tasks().len()];
    let view = query.view(snapshot);
    for at in view.tasks() {
        chosen[*at as usize] = true;
    }
    if !args.pids.is_empty() {
        for (task, is) in snapshot.tasks().zip(&mut chosen) {
            let row = Row::new(task);
            let is_named =
                |id: u32| args.pids.binary_search(&id).is_ok() && args.inodes.admit(id, &row);
            *is &= is_named(task.tgid()) || is_named(task.pid());
        }
    }
    (chosen, view.left())
}

/// The chosen nodes, and all that lie between them and the heads of their chains.
fn concerns(graph: &Graph, chosen: &[bool]) -> Vec<bool> {
    let mut concerns = vec![false; graph.len()];
    for at in (0..chosen.len()).filter(|at| chosen[*at]) {
        let mut at = Some(at);
        while let Some(node) = at.filter(|node| !std::mem::replace(&mut concerns[*node], true)) {
            at = graph.next(node);
        }
    }
    concerns
}

impl Report<'_> {
    /// The deadlocks that concern a chosen thread.
    fn cycles(&self) -> impl Iterator<Item = &[usize]> {
        let concerns = |cycle: &&Vec<usize>| cycle.iter().any(|at| self.concerns[*at]);
        self.graph.cycles().iter().filter(concerns).map(Vec::as_slice)
    }

    /// The stacks of a thread. `None`: those of too many were asked for.
    fn stacks_of(&self, wait: &Wait) -> Option<Both> {
        if self.stacked.borrow().len() == STACKS {
            return None;
        }
        self.stacked.borrow_mut().insert(wait.tid);
        let request = Request::threads(wait.tid, Groups::KSTACK);
        let answer = taskdiag::query_with(&request, self.args.source.engine).ok();
        let task = answer.as_ref().and_then(|a| a.task(wait.tid));
        let kernel = task.as_ref().and_then(|t| t.kstack()).filter(|s| s.reason.is_none());
        let kernel = kernel.map(|s| s.data.to_vec());
        Some(Both { kernel, user: self.stacks.borrow_mut().of(wait) })
    }

    /// Whether a wait of the whole machine is long enough to count.
    fn is_long(&self, waited_ns: Option<u64>) -> bool {
        waited_ns.is_none_or(|ns| u128::from(ns) >= self.args.longer.as_nanos())
    }

    /// Whether a task counts for a report of the whole machine by itself. A throttled task runs for
    /// a while in each period of its cgroup. So it is held up although it never waits for long.
    fn is_stuck(&self, wait: &Wait) -> bool {
        let is_throttled = wait.kind == Some(taskdiag::WaitKind::Throttled);
        wait.is_odd() && (is_throttled || self.is_long(wait.waited()))
    }

    /// The heads of chains that are worth a report: somebody waits for them in a way that is not
    /// usual, or they are stuck themselves.
    fn heads(&self) -> Vec<usize> {
        let is_worth = |at: &usize| {
            let behind = self.graph.behind(*at);
            let wait = &self.waits.all()[self.graph.node(*at).wait];
            let longest_ns = Some(behind.longest_ns).filter(|_| !behind.has_unknown);
            let is_odd = behind.odd > 0 && self.is_long(longest_ns);
            self.concerns[*at] && (is_odd || self.is_stuck(wait))
        };
        self.graph.heads().into_iter().filter(is_worth).collect()
    }

    /// Stuck threads that no other thread waits for.
    fn stuck(&self) -> Vec<usize> {
        let all = self.waits.all();
        let is_stuck = |at: &usize| {
            let (wait, node) = (&all[*at], *at);
            let is_alone = self.graph.next(node).is_none_or(|_| wait.kind == ENDED)
                && self.graph.behind(node).tasks == 0;
            self.chosen[node] && is_alone && self.is_stuck(wait)
        };
        (0..all.len()).filter(is_stuck).collect()
    }
}

/// A zombie.
const ENDED: Option<taskdiag::WaitKind> = Some(taskdiag::WaitKind::Ended);

/// How the program ends: a deadlock has a code of its own, because health checks ask for it.
fn end(
    report: &Report<'_>,
    snapshot: &Snapshot,
    mut lacks: Vec<Lack>,
    is_missing: bool,
) -> Result<(), Exit> {
    let chosen = report.waits.all().iter().zip(&report.chosen).filter(|(_, is)| **is);
    let (mut denied, mut unknown) = (0, 0);
    for (wait, _) in chosen.filter(|(wait, _)| wait.is_unseen()) {
        match wait.holder {
            Err(NoHolder::NoRight) => denied += 1,
            _ => unknown += 1,
        }
    }
    let what = |n| words::count(n, "thread waits", "threads wait");
    if denied > 0 {
        let line = format!(
            "what {} for, and who holds it, is not shown: {}",
            what(denied),
            words::way_to_see()
        );
        lacks.push(Lack { line, from: Asked::Named });
    }
    if unknown > 0 {
        let line = format!(
            "what {} for is not known: the engine does not show it, or it did not come in time",
            what(unknown)
        );
        lacks.push(Lack { line, from: Asked::Named });
    }
    // If no process was named, one that the engine does not see is no failure.
    let asked = if report.args.pids.is_empty() { Asked::All } else { Asked::Named };
    let verdict = answer::verdict_of(snapshot, false, lacks, asked);
    let has_deadlock = report.cycles().next().is_some();
    match verdict {
        Err(Exit::Partial(partial)) if has_deadlock => {
            partial.say();
            Err(Exit::Deadlock)
        }
        Err(Exit::Partial(partial)) if !partial.is_failure() => {
            Partial::say(&partial);
            if is_missing { Err(Exit::NoMatch) } else { Ok(()) }
        }
        Ok(()) if has_deadlock => Err(Exit::Deadlock),
        Ok(()) if is_missing => Err(Exit::NoMatch),
        verdict => verdict,
    }
}
