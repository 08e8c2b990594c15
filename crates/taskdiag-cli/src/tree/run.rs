//! `taskdiag tree`: gets and arranges processes, and draws them or writes them as JSON.

use std::collections::HashSet;
use std::time::Instant;

use taskdiag::field::{Context, Row, TASKS};
use taskdiag::view::{self, Filter, Query, Sieve};
use taskdiag::{Groups, Members};

use super::compact::Maker;
use super::document::{Document, GENERATIONS};
use super::draw::{self, Drawing};
use super::rows::{Rows, needs_processes};
use crate::answer;
use crate::args::tree::{Labels, Start, TreeArgs};
use crate::columns::{self, Column};
use crate::exit::{Exit, say};
use crate::forest::Forest;
use crate::output::{Sink, Tally};

/// pstree reads this many bytes of arguments if it does not cut lines, and as many as fit into a
/// line if it does.
const MOST_ARGS: usize = 8192;

/// Run it.
pub fn run(args: &TreeArgs) -> Result<(), Exit> {
    let begin = Instant::now();
    let columns = columns(args);
    let whole = query(args, &columns);
    let two = args.labels.threads && args.source.from.is_none() && needs_processes(whole.groups());
    let snapshot = match (&args.source.from, &args.filter) {
        // The tree needs all processes, so the filter is no part of the query.
        (None, Some(filter)) if !two => args.source.ask(whole.plan().looking_again(filter))?,
        _ => args.source.get(|| if two { query(args, &[]) } else { whole })?,
    };
    let threads = snapshot.stream().strategy().is_threads();
    let of_processes = || {
        let mut query = query(args, &columns);
        query.threads = false;
        match &args.filter {
            Some(filter) => args.source.ask(query.plan().looking_again(filter)),
            None => args.source.ask(query.plan()),
        }
    };
    let processes = two.then(of_processes).transpose()?;
    let asked = Instant::now();
    if args.labels.thread_names && !threads {
        return Err(crate::saved::no_threads());
    }
    // A saved answer about processes has no threads to show.
    let labels = Labels { threads: args.labels.threads && threads, ..args.labels };
    let cx = Context::of(&snapshot, threads);
    let mut rows: Vec<u32> = (0..snapshot.tasks().len() as u32).collect();
    view::sort(&mut rows, &snapshot, &cx, &[]);
    let forest = Forest::new(&rows, &snapshot, |_| true);
    let processes_cx = processes.as_ref().map(|p| Context::of(p, false));
    let processes = processes.as_ref().zip(processes_cx.as_ref());
    let rows = Rows { snapshot: &snapshot, cx: &cx, forest: &forest, processes };
    let asked_again = processes.map_or(&snapshot, |(processes, _)| processes);
    let sieve = Sieve::new(args.filter.as_ref()).knowing(asked_again);
    let picked = pick(args, &rows, &|cx, row| sieve.passes(cx, row));
    let mut tally = Tally::new(columns.len());
    // Missing values are counted once for the processes that are shown, in any form of output.
    let shown = shown(&forest, &picked);
    for (cx, row) in shown.iter().filter_map(|at| rows.get(*at)) {
        for (c, column) in columns.iter().enumerate() {
            if let Some(m) = (column.field.get)(cx, &row).missing() {
                tally.count(c, m);
            }
        }
    }
    let mut sink = Sink::stdout();
    let mut deeper = 0;
    if args.json {
        let wanted = picked.wanted.as_deref();
        let document = Document {
            rows: &rows,
            roots: &picked.roots,
            wanted,
            above: &picked.above,
            columns: &columns,
            threads: labels.threads,
        };
        if args.flat {
            document.flat(&mut sink)?;
        } else {
            deeper = document.nested(&mut sink)?;
        }
    } else {
        let marked = args.highlight.and_then(|pid| forest.find(pid));
        let marked = marked.map(|at| forest.line(at).collect()).unwrap_or_default();
        let terminal = args.terminal();
        // pstree has colours by age in pipes, too.
        let ages = labels.ages && (labels.strict || terminal.color);
        let labels = Labels { ages, ..labels };
        let maker = Maker {
            snapshot: &snapshot,
            cx: &cx,
            forest: &forest,
            labels,
            wanted: picked.wanted.clone(),
            above: picked.above.clone(),
            marked,
            user_above: match args.start {
                Start::User(uid) => uid,
                _ => 0,
            },
            most_args: terminal.width.unwrap_or(MOST_ARGS),
            by_space: args.by_space,
        };
        let groups = match args.by_space {
            Some(_) => maker.spaces(&picked.roots),
            None => vec![(0, picked.roots.clone())],
        };
        let roots: Vec<usize> = groups.iter().flat_map(|g| &g.1).copied().collect();
        let (shapes, roots) = maker.shapes(&roots);
        let pieces = match args.ascii || !(args.unicode || terminal.lines) {
            _ if args.vt100 => draw::VT100,
            true => draw::ASCII,
            false => draw::LINES,
        };
        let drawing = Drawing { shapes: &shapes, pieces, terminal, labels };
        let mut roots = roots.into_iter();
        for (space, trees) in &groups {
            let mut title = args.by_space.map(|_| format!("[{space}]\n"));
            for (i, root) in roots.by_ref().take(trees.len()).enumerate() {
                // pstree has an empty line between the trees of a user.
                if i > 0 && args.start.is_user() && title.is_none() {
                    sink.buf().push(b'\n');
                }
                drawing.draw(&mut sink, root, &title.take().unwrap_or_default())?;
            }
        }
    }
    sink.finish()?;
    if deeper > 0 {
        say(format_args!(
            "taskdiag: {deeper} processes are left out, because JSON nests {GENERATIONS} generations at most: --flat writes all, and PID those below it"
        ));
    }
    if args.stats {
        crate::stats::print(&snapshot, shown.len(), begin, asked);
    }
    match answer::verdict(
        &snapshot,
        shown.is_empty(),
        &sieve.left(),
        &tally,
        &columns,
        args.asked(),
    ) {
        Err(Exit::Partial(partial)) if args.labels.strict => {
            partial.say();
            Ok(())
        }
        // For pstree, the only failure is that a user has no processes.
        Err(Exit::NoMatch) if args.labels.strict && args.start.is_user() => {
            say(format_args!("No processes found."));
            Err(Exit::Code(1))
        }
        Err(Exit::NoMatch) if args.labels.strict => Ok(()),
        Err(Exit::NoMatch) if !args.words.is_empty() => {
            let words = args.words.join("' and '");
            say(format_args!(
                "taskdiag: there is no user '{words}', and no process with this in its name or arguments"
            ));
            Err(Exit::NoMatch)
        }
        end => end,
    }
}

/// The columns that are read for each process, which are the keys in JSON.
fn columns(args: &TreeArgs) -> Vec<Column> {
    let mut names = vec!["pid", "ppid", "comm"];
    if args.labels.users || args.start.is_user() {
        names.push("user");
    }
    if args.labels.args {
        names.push("args");
    }
    if args.labels.contexts && !args.labels.strict {
        names.push("label");
    }
    let of_table = |names: &[&str]| columns::parse(&names.join(",")).expect("columns of the table");
    if args.columns.is_empty() {
        return of_table(&names);
    }
    let mut columns = args.columns.clone();
    // In flat output, these two columns describe the tree.
    let lacking = |name: &&str| args.flat && !args.columns.iter().any(|c| c.field.name == *name);
    let ids: Vec<&str> = ["pid", "ppid"].into_iter().filter(lacking).collect();
    if !ids.is_empty() {
        columns.splice(0..0, of_table(&ids));
    }
    columns
}

fn query(args: &TreeArgs, columns: &[Column]) -> Query {
    let mut query = Query::new(&TASKS, columns.iter().map(|c| c.field));
    // CRED is needed, because processes with the same name are sorted by user.
    let mut groups = Groups::BASE | Groups::CRED | args.inodes.groups();
    groups |= args.filter.as_ref().map_or(Groups::NONE, Filter::groups);
    if args.labels.args {
        groups |= Groups::CMDLINE;
    }
    if args.labels.contexts {
        groups |= Groups::LABEL;
    }
    if args.labels.spaces || args.by_space.is_some() {
        groups |= Groups::NS;
    }
    query.groups = groups;
    query.members = Members::ALL;
    query.threads = args.labels.threads;
    query
}

/// The trees to show.
struct Picked {
    roots: Vec<usize>,
    /// The processes of these trees to show. `None` means all.
    wanted: Option<Vec<bool>>,
    /// Processes that are only shown as ancestors.
    above: HashSet<usize>,
}

impl Picked {
    /// The whole trees below these processes.
    fn all_below(roots: Vec<usize>) -> Picked {
        Picked { roots, wanted: None, above: HashSet::new() }
    }
}

/// Picks the trees to show. `matches` is the condition of `--where`.
fn pick(args: &TreeArgs, rows: &Rows<'_>, matches: &dyn Fn(&Context, &Row<'_>) -> bool) -> Picked {
    let (snapshot, forest) = (rows.snapshot, rows.forest);
    let row = |at: usize| rows.get(at).map(|(_, row)| row);
    let found = |pid: u32| {
        let is_meant = |at: &usize| row(*at).is_none_or(|row| args.inodes.admit(pid, &row));
        let at = forest.find(pid).filter(is_meant);
        // A hidden pid 1 is reported together with the other gaps.
        let is_hidden = pid == 1 && snapshot.caveats().iter().any(|c| c.is_lack());
        if at.is_none() && !is_hidden && !args.labels.strict {
            say(format_args!("taskdiag: there is no process {pid}"));
        }
        at
    };
    match args.start {
        Start::Pids(ref pids) => {
            let starts: Vec<usize> = pids.iter().filter_map(|p| found(*p)).collect();
            if !args.parents {
                return Picked::all_below(starts);
            }
            // The ancestors and all descendants are shown.
            let mut wanted = vec![false; forest.nodes.len()];
            let (mut roots, mut above) = (Vec::new(), HashSet::new());
            for start in starts {
                for at in forest.line(start) {
                    above.insert(at);
                    if forest.nodes[at].parent.is_none() && !roots.contains(&at) {
                        roots.push(at);
                    }
                }
                let mut stack = vec![start];
                while let Some(at) = stack.pop() {
                    wanted[at] = true;
                    stack.extend(&forest.nodes[at].children);
                }
            }
            above.retain(|at| !wanted[*at]);
            above.iter().for_each(|at| wanted[*at] = true);
            Picked { roots, wanted: Some(wanted), above }
        }
        Start::User(uid) => {
            let mut picked = highest(forest, |at| {
                let is_of_user = |r: &Row<'_>| r.cred.and_then(|c| c.euid()) == Some(uid);
                row(at).is_some_and(|r| is_of_user(&r) && (args.kernel || !r.is_kthread()))
            });
            // pstree only looks below process 1. In a container, some processes have no parent in
            // its namespace.
            let is_below = |at: &usize| forest.line(*at).any(|a| forest.nodes[a].tgid == 1);
            picked.roots.retain(|at| !args.labels.strict || is_below(at));
            picked
        }
        Start::All if args.filter.is_some() => {
            let is = |at| rows.get(at).is_some_and(|(cx, row)| matches(cx, &row));
            let wanted: Vec<bool> = (0..forest.nodes.len()).map(is).collect();
            // A wanted process below another wanted one, at any depth, belongs to the tree of that
            // one.
            let above = |at: usize| forest.line(at).skip(1).any(|a| wanted[a]);
            highest(forest, |at| wanted[at] && !above(at))
        }
        // As in pstree, kernel threads are shown only on request.
        Start::All => {
            let kthread = |at: usize| row(at).is_some_and(|r| r.is_kthread());
            let roots = forest.roots.iter().copied();
            Picked::all_below(roots.filter(|at| args.kernel || !kthread(*at)).collect())
        }
    }
}

/// The trees of the processes for which `is` is true, and false for their parent.
fn highest(forest: &Forest, is: impl Fn(usize) -> bool) -> Picked {
    let first = |at: &usize| is(*at) && !forest.nodes[*at].parent.is_some_and(&is);
    Picked::all_below((0..forest.nodes.len()).filter(first).collect())
}

/// The processes of the trees, each once, parents first.
fn shown(forest: &Forest, picked: &Picked) -> Vec<usize> {
    let mut seen = vec![false; forest.nodes.len()];
    let mut out = Vec::new();
    let mut stack: Vec<usize> = picked.roots.iter().rev().copied().collect();
    while let Some(at) = stack.pop() {
        let wanted = picked.wanted.as_ref().is_none_or(|w| w[at]);
        if wanted && !std::mem::replace(&mut seen[at], true) {
            out.push(at);
            stack.extend(&forest.nodes[at].children);
        }
    }
    out
}
