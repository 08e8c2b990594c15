//! The report as text. A sentence comes first, and then the chain as a tree.

use std::collections::BTreeMap;

use taskdiag::WaitKind;
use taskdiag::why::{Holder, Mount, Wait};

use super::words::{count, does, function, shown, stack_end, time, way_to_see, who};
use super::{ENDED, Report, STACKS};

/// The largest number of items of a section, and lines of a tree, unless `--threads` asks for all.
const ITEMS: usize = 20;
const LINES: usize = 12;
/// The largest number of cells before the pieces of a tree.
const DRAWN: usize = 60;
/// The largest number of lines of a tree with `--threads`.
const ALL_LINES: usize = 100_000;

fn line(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
    out.push(b'\n');
}

impl Report<'_> {
    fn wait(&self, node: usize) -> &Wait {
        &self.waits.all()[self.graph.node(node).wait]
    }

    fn who(&self, node: usize) -> String {
        who(self.waits, self.wait(node), self.graph.node(node).is_process)
    }

    fn does(&self, node: usize) -> String {
        let wait = self.wait(node);
        match self.waits.threads_of(wait.tgid) {
            n if n > 1 && self.graph.node(node).is_process => {
                format!("has {n} threads, and each of them may end the wait")
            }
            _ => does(self.waits, wait),
        }
    }

    fn sentence(&self, node: usize) -> String {
        format!("{} {}", self.who(node), self.does(node))
    }

    fn most(&self, usual: usize) -> usize {
        if self.args.threads { ALL_LINES } else { usual }
    }

    /// A node, and its chain to the head.
    fn chain(&self, out: &mut Vec<u8>, node: usize, sentence: &str) {
        let chain = self.graph.chain(node);
        let most = self.most(LINES);
        let next = chain.get(1);
        let next = next.map(|at| format!("; {} {}", self.short(*at), self.does(*at)));
        line(out, &format!("{sentence}{}", next.unwrap_or_default()));
        self.stack(out, node, 2);
        let back = self.graph.next(chain[chain.len() - 1]);
        if chain.len() <= 2 && back.is_none() && !self.args.stack {
            // The sentence has both.
            return;
        }
        let (last, gap) = (self.style.last, self.style.gap);
        let blanks = |depth: usize| gap.repeat(depth.min(20));
        for (depth, at) in chain.iter().skip(1).take(most).enumerate() {
            line(out, &format!("  {}{last}{}", blanks(depth), self.sentence(*at)));
            self.stack(out, *at, 5 + blanks(depth).len());
        }
        if chain.len() > most + 1 {
            line(out, &format!("  and {} more in the chain", chain.len() - 1 - most));
        }
        if let Some(back) = back {
            let depth = (chain.len() - 1).min(most);
            line(out, &format!("  {}{last}{}: DEADLOCK", blanks(depth), self.who(back)));
        }
    }

    /// `4702`, if the name was just printed.
    fn short(&self, node: usize) -> String {
        let wait = self.wait(node);
        (if self.graph.node(node).is_process { wait.tgid } else { wait.tid }).to_string()
    }

    /// A node with all that wait for it, as far as there is room.
    fn tree(&self, out: &mut Vec<u8>, node: usize, room: usize) {
        let mut left = room;
        let mut todo = self.branches(node, "", room);
        while let Some((at, before, is_last)) = todo.pop() {
            if left == 0 {
                let shown = room as u32;
                let more = self.graph.behind(node).tasks.saturating_sub(shown);
                line(out, &format!("  and {more} more; --threads shows all"));
                break;
            }
            left -= 1;
            let style = &self.style;
            let (piece, next) =
                if is_last { (style.last, style.gap) } else { (style.child, style.through) };
            line(out, &format!("  {before}{piece}{}", self.sentence(at)));
            let width = before.chars().count() + next.chars().count();
            self.stack(out, at, 2 + width);
            // Deeper levels are drawn like this one.
            let before = if width < DRAWN { before + next } else { before };
            todo.append(&mut self.branches(at, &before, room));
        }
    }

    /// The nodes that wait for a node, the last one first, each with the drawing before it, and
    /// whether it is the last on its level.
    fn branches(&self, node: usize, before: &str, room: usize) -> Vec<(usize, String, bool)> {
        let all: Vec<usize> = self.waiting(node).take(room.saturating_add(1)).collect();
        let last = all.len().saturating_sub(1);
        let branch = |(i, at)| (at, before.to_owned(), i == last);
        let mut branches: Vec<_> = all.into_iter().enumerate().map(branch).collect();
        branches.reverse();
        branches
    }

    /// The nodes that wait for a node and are not in a cycle with it.
    fn waiting(&self, node: usize) -> impl Iterator<Item = usize> + '_ {
        self.graph.waiting(node).filter(|at| !self.graph.is_in_cycle(*at))
    }

    /// Writes the kernel's stack and that of the program, if they were requested.
    fn stack(&self, out: &mut Vec<u8>, node: usize, indent: usize) {
        if !self.args.stack || self.graph.node(node).is_process {
            return;
        }
        let (wait, blanks) = (self.wait(node), " ".repeat(indent));
        let mut put = |text: &str| line(out, &format!("{blanks}{text}"));
        // Many may wait for one holder.
        if self.stacked.borrow().contains(&wait.tid) {
            return put("(its stack is shown above)");
        }
        let Some(stacks) = self.stacks_of(wait) else {
            return put(&format!("? (only {STACKS} stacks are shown: name fewer processes)"));
        };
        match stacks.kernel {
            Some(kernel) => kernel
                .split(|b| *b == b'\n')
                .filter(|f| !f.is_empty())
                .for_each(|frame| put(&shown(frame))),
            None => put(&format!("? (its stack in the kernel is not shown: {})", way_to_see())),
        }
        stacks.user.frames.iter().for_each(|frame| put(&function(frame)));
        if let Some(why) = stack_end(stacks.user.end, !stacks.user.frames.is_empty()) {
            put(&format!("? ({why})"));
        }
    }
}

/// The named processes and threads. Threads that wait alike for the same holder are one item.
pub fn named(out: &mut Vec<u8>, report: &Report<'_>) {
    let all = report.waits.all();
    let mut alike: BTreeMap<(bool, Option<usize>, String, usize), Vec<usize>> = BTreeMap::new();
    let mut runs = 0;
    for at in (0..all.len()).filter(|at| report.chosen[*at]) {
        let (wait, next) = (&all[at], report.graph.next(at));
        if !wait.is_waiting() && wait.kind.is_some() {
            runs += 1;
            continue;
        }
        // A member of a deadlock has its own place in the circle.
        let is_alone = report.args.threads || report.args.stack || report.graph.is_in_cycle(at);
        let number = if is_alone { at } else { 0 };
        let key = (next.is_none(), next, without_time(report, wait), number);
        alike.entry(key).or_default().push(at);
    }
    let most = report.most(ITEMS * 5);
    for ((_, _, text, _), same) in alike.iter().take(most) {
        let sentence = match same[..] {
            [one] => report.sentence(one),
            _ => {
                let of = all[same[0]].tgid;
                let is_one = same.iter().all(|at| all[*at].tgid == of);
                let of = if is_one { format!(" of process {of}") } else { String::new() };
                let longest = longest(report, same);
                format!("{} threads{of}: each {text}{longest}", same.len())
            }
        };
        report.chain(out, same[0], &sentence);
    }
    more(out, alike.len(), most);
    if runs > 0 {
        line(out, &count(runs, "thread runs or is ready", "threads run or are ready"));
    }
}

/// The longest time of some waits.
fn longest(report: &Report<'_>, of: &[usize]) -> String {
    let longest = of.iter().filter_map(|at| report.waits.all()[*at].waited()).max();
    longest.map_or(String::new(), |ns| format!(", the longest for {}", time(ns)))
}

/// The activity of a thread without its time, to group threads that do the same.
fn without_time(report: &Report<'_>, wait: &Wait) -> String {
    let mut wait = wait.clone();
    wait.waited_ns = None;
    // Threads that wait for one server may wait for several files.
    wait.file = wait.file.filter(|_| wait.mount.is_none());
    does(report.waits, &wait)
}

/// The whole machine.
pub fn machine(out: &mut Vec<u8>, report: &Report<'_>) {
    let begin = out.len();
    cycles(out, report);
    heads(out, report);
    stuck(out, report);
    if out.len() == begin {
        let longer = time(report.args.longer.as_nanos() as u64);
        let chosen = || report.waits.all().iter().zip(&report.chosen).filter(|(_, is)| **is);
        let all = chosen().count();
        let unseen = chosen().filter(|(wait, _)| wait.is_unseen()).count();
        let all = count(all, "thread", "threads");
        let text = match unseen {
            0 => format!(
                "Nobody is stuck for {longer} or longer, and there is no deadlock: looked at {all}."
            ),
            n => format!(
                "Nobody is stuck for {longer} or longer, or in a deadlock, as far as can be seen: {n} of {all} are hidden."
            ),
        };
        line(out, &text);
    }
}

fn more(out: &mut Vec<u8>, all: usize, shown: usize) {
    if all > shown {
        line(out, &format!("and {} more; --threads shows all", all - shown));
    }
}

fn cycles(out: &mut Vec<u8>, report: &Report<'_>) {
    let all: Vec<&[usize]> = report.cycles().collect();
    let most = report.most(ITEMS);
    for cycle in all.iter().take(most) {
        let behind = report.graph.behind_cycle(cycle).tasks as usize;
        let behind = match behind {
            0 => String::new(),
            n => format!(", and {} behind them", count(n, "more waits", "more wait")),
        };
        let head = match cycle.len() {
            1 => String::from("a thread waits for itself"),
            n => format!("{n} threads wait for each other"),
        };
        line(out, &format!("DEADLOCK: {head}{behind}"));
        for at in cycle.iter().take(report.most(LINES)) {
            line(out, &format!("  {}", report.sentence(*at)));
            report.stack(out, *at, 5);
            report.tree(out, *at, report.most(LINES));
        }
        more(out, cycle.len(), report.most(LINES));
    }
    more(out, all.len(), most);
}

fn heads(out: &mut Vec<u8>, report: &Report<'_>) {
    let heads = report.heads();
    let most = report.most(ITEMS);
    for at in heads.iter().take(most) {
        let behind = report.graph.behind(*at);
        let waiting = count(behind.tasks as usize, "task waits", "tasks wait");
        let longest = match behind.longest_ns {
            0 => String::new(),
            ns => format!(", the longest for {}", time(ns)),
        };
        line(out, &format!("{waiting} for {}{longest}; it {}", report.who(*at), report.does(*at)));
        report.stack(out, *at, 5);
        report.tree(out, *at, report.most(LINES));
    }
    more(out, heads.len(), most);
}

/// Stuck tasks for which no other task waits, grouped by the kind of their wait.
fn stuck(out: &mut Vec<u8>, report: &Report<'_>) {
    let all = report.waits.all();
    type Alike = (Option<WaitKind>, Vec<u8>, Option<u32>, Option<Vec<u8>>, Option<Mount>);
    let mut alike: BTreeMap<Alike, Vec<usize>> = BTreeMap::new();
    for at in report.stuck() {
        let wait = &all[at];
        let parent = match wait.holder {
            Ok(Holder { tid, .. }) if wait.kind == ENDED => Some(tid),
            _ => None,
        };
        // Zombies are grouped by their parents, frozen and throttled tasks by their cgroups, tasks
        // that wait for a server by its mount, and others by the function in which they sleep.
        use WaitKind::{Ended, Frozen, Fuse, Netfs, Throttled};
        let function = match wait.kind {
            Some(Ended | Frozen | Throttled) => Vec::new(),
            Some(Fuse | Netfs) if wait.mount.is_some() => Vec::new(),
            _ => wait.function.clone(),
        };
        let key = (wait.kind, function, parent, wait.cgroup.clone(), wait.mount.clone());
        alike.entry(key).or_default().push(at);
    }
    let mut groups: Vec<Vec<usize>> = alike.into_values().collect();
    groups.sort_by_key(|g| std::cmp::Reverse(g.len()));
    let most = report.most(ITEMS);
    for group in groups.iter().take(most) {
        if group.len() == 1 || report.args.threads {
            for at in group {
                line(out, &report.sentence(*at));
                report.stack(out, *at, 2);
            }
            continue;
        }
        let longest = longest(report, group);
        let text = without_time(report, &all[group[0]]);
        let names: Vec<String> = group.iter().take(5).map(|at| report.short(*at)).collect();
        let dots = if group.len() > 5 { ", ..." } else { "" };
        let n = group.len();
        line(out, &format!("{n} tasks: each {text}{longest} ({}{dots})", names.join(", ")));
    }
    more(out, groups.len(), most);
}
