//! The labels of processes in the tree, and equal subtrees put together: `3*[worker]`.

use std::collections::{HashMap, HashSet};

use taskdiag::Snapshot;
use taskdiag::field::{self, Context, Row, Value};

use crate::args::tree::Labels;
use crate::forest::{Forest, Node};

/// The shape of a subtree. Subtrees that look alike have one shape.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SubtreeShape {
    /// What is shown of the process, printable.
    pub label: Vec<u8>,
    /// Is it to be highlighted?
    pub marked: bool,
    /// The subtrees below it, and the number of each.
    pub children: Vec<(usize, usize)>,
}

/// All shapes. Each comes after those below it.
#[derive(Debug, Default)]
pub struct Shapes {
    all: Vec<SubtreeShape>,
    known: HashMap<SubtreeShape, usize>,
}

impl Shapes {
    /// The i-th shape.
    pub fn get(&self, i: usize) -> &SubtreeShape {
        &self.all[i]
    }
    fn add(&mut self, shape: SubtreeShape, compact: bool) -> usize {
        if !compact {
            self.all.push(shape);
            return self.all.len() - 1;
        }
        if let Some(i) = self.known.get(&shape) {
            return *i;
        }
        self.all.push(shape.clone());
        self.known.insert(shape, self.all.len() - 1);
        self.all.len() - 1
    }
}

/// Makes the shapes of processes.
pub struct Maker<'a> {
    /// The answer.
    pub snapshot: &'a Snapshot,
    /// The context that getters of values need.
    pub cx: &'a Context,
    /// Its processes.
    pub forest: &'a Forest,
    /// What to show of each process.
    pub labels: Labels,
    /// Which processes are shown. `None` means all.
    pub wanted: Option<Vec<bool>>,
    /// Those that are only shown because they are above others. They have no threads in the tree, as in pstree.
    pub above: HashSet<usize>,
    /// The processes to highlight.
    pub marked: Vec<usize>,
    /// The user that the parent of each root is assumed to have. As in pstree, that is root, or the user whose trees are
    /// shown.
    pub user_above: u32,
}

impl Maker<'_> {
    /// The shapes of all wanted processes from these roots down, and the numbers of the roots' shapes.
    pub fn shapes(&self, roots: &[usize]) -> (Shapes, Vec<usize>) {
        // Parents come before children in this order. So backwards, the shapes of all children exist before their parent's.
        let mut order = Vec::new();
        let mut stack: Vec<usize> = roots.to_vec();
        while let Some(at) = stack.pop() {
            order.push(at);
            stack.extend(self.wanted_children(&self.forest.nodes[at]));
        }
        let mut shapes = Shapes::default();
        let mut made: Vec<usize> = vec![usize::MAX; self.forest.nodes.len()];
        let marked: HashSet<usize> = self.marked.iter().copied().collect();
        for at in order.into_iter().rev() {
            let node = &self.forest.nodes[at];
            let mut children: Vec<usize> = self.wanted_children(node).collect();
            if !self.labels.by_id {
                // As in pstree, they are sorted by name, and then by user.
                let key = |c: &usize| {
                    let row = self.row(&self.forest.nodes[*c]);
                    row.map(|r| (r.comm, r.cred.and_then(|c| c.euid())))
                };
                children.sort_by_cached_key(key);
            }
            // Threads come after processes, because their names begin with a brace, which sorts after letters.
            let children: Vec<usize> = children.into_iter().map(|c| made[c]).collect();
            let threads = match self.above.contains(&at) {
                true => Vec::new(),
                false => self.threads(node, &mut shapes),
            };
            let shape = SubtreeShape {
                label: self.label(at, node.parent.and_then(|p| self.uid(p))),
                marked: marked.contains(&at),
                children: counted(children.into_iter().chain(threads), self.labels.compact),
            };
            // If arguments are shown, only threads are put together, as in pstree.
            made[at] = shapes.add(shape, self.labels.compact && !self.labels.args);
        }
        let root = |at: &usize| {
            let label = self.label(*at, Some(self.user_above));
            let shape = SubtreeShape { label, ..shapes.get(made[*at]).clone() };
            shapes.add(shape, self.labels.compact)
        };
        let roots = roots.iter().map(root).collect();
        (shapes, roots)
    }
    fn wanted_children(&self, node: &Node) -> impl Iterator<Item = usize> + '_ {
        let wanted = |c: &usize| self.wanted.as_ref().is_none_or(|w| w[*c]);
        node.children.clone().into_iter().filter(wanted)
    }
    fn row(&self, node: &Node) -> Option<Row<'_>> {
        let stream = self.snapshot.stream();
        let tasks = || node.rows.iter().filter_map(|i| stream.get(*i as usize));
        tasks().find(|t| t.is_leader()).or_else(|| tasks().next()).map(Row::new)
    }
    fn uid(&self, at: usize) -> Option<u32> {
        self.row(&self.forest.nodes[at])?.cred?.euid()
    }
    /// The label of a process. `above` is the user of its parent, if that is known.
    fn label(&self, at: usize, above: Option<u32>) -> Vec<u8> {
        let node = &self.forest.nodes[at];
        let Some(row) = self.row(node) else { return Vec::new() };
        let mut out = Vec::new();
        // As in pstree, a process without arguments is in parentheses if arguments are shown.
        let bare = self.labels.args && self.has_no_args(&row);
        out.extend_from_slice(if bare { b"(" } else { b"" });
        field::escape(&mut out, row.comm.unwrap_or(b"?"));
        let mut notes: Vec<Vec<u8>> = Vec::new();
        if self.labels.pids {
            notes.push(node.tgid.to_string().into());
        }
        if self.labels.groups {
            notes.push(pgid(&row).into());
        }
        if self.labels.users {
            notes.extend(self.uid(at).filter(|u| Some(*u) != above).map(|u| self.user(u)));
        }
        let mark = if self.labels.args { b',' } else { b'(' };
        if !notes.is_empty() {
            out.push(mark);
            out.extend_from_slice(&notes.join(&b','));
            if !self.labels.args {
                out.push(b')');
            }
        }
        out.extend_from_slice(if bare { b")" } else { b"" });
        if self.labels.args {
            self.write_args(&mut out, &row);
        }
        out
    }
    fn has_no_args(&self, row: &Row<'_>) -> bool {
        let named = field::find("args").expect("the table has it");
        match (named.field.get)(self.cx, row) {
            Value::Args { data, .. } => data.is_empty(),
            other => other.missing().is_some_and(|m| m.is_absent()),
        }
    }
    fn user(&self, uid: u32) -> Vec<u8> {
        let mut out = Vec::new();
        match self.cx.names.user(uid) {
            Some(name) => field::escape(&mut out, &name),
            None => out.extend_from_slice(uid.to_string().as_bytes()),
        }
        out
    }
    /// Writes all arguments but the first. The name is shown in its place.
    fn write_args(&self, out: &mut Vec<u8>, row: &Row<'_>) {
        let named = field::find("args").expect("the table has it");
        if let Value::Args { data, .. } = (named.field.get)(self.cx, row) {
            for arg in data.split(|b| *b == 0).skip(1) {
                match (self.labels.octal, arg.is_empty()) {
                    (true, true) => {}
                    (true, false) => {
                        out.push(b' ');
                        octal(out, arg);
                    }
                    (false, _) => {
                        out.push(b' ');
                        field::escape(out, arg);
                    }
                }
            }
        }
    }
    /// The threads of a process but its leader.
    fn threads(&self, node: &Node, shapes: &mut Shapes) -> Vec<usize> {
        if !self.labels.threads {
            return Vec::new();
        }
        let stream = self.snapshot.stream();
        let tasks = node.rows.iter().filter_map(|i| stream.get(*i as usize));
        let of_process = self.row(node).and_then(|r| r.comm);
        let mut threads: Vec<_> = tasks
            .filter(|t| !t.is_leader())
            .map(|t| (if self.labels.thread_names { t.comm() } else { of_process }, t))
            .collect();
        if !self.labels.by_id {
            // Threads with the same name stay in the order of their ids.
            threads.sort_by_key(|(name, _)| *name);
        }
        let labels = threads.iter().map(|(name, t)| {
            let mut label = vec![b'{'];
            field::escape(&mut label, name.unwrap_or(b"?"));
            label.push(b'}');
            let mut notes = Vec::new();
            if self.labels.pids {
                notes.push(t.pid().to_string());
            }
            if self.labels.groups {
                notes.push(pgid(&Row::new(*t)));
            }
            if !notes.is_empty() {
                let mark = if self.labels.args { (",", "") } else { ("(", ")") };
                let notes = notes.join(",");
                label.extend_from_slice(format!("{}{notes}{}", mark.0, mark.1).as_bytes());
            }
            label
        });
        let leaf = |label| SubtreeShape { label, marked: false, children: Vec::new() };
        labels.map(|l| shapes.add(leaf(l), self.labels.compact)).collect()
    }
}

/// The process group, or nothing if it belongs to another pid namespace.
fn pgid(row: &Row<'_>) -> String {
    let pgid = row.base.and_then(|b| b.pgid()).filter(|p| *p != 0);
    pgid.map(|p| p.to_string()).unwrap_or_default()
}

/// Writes text as pstree does: a backslash is doubled, and bytes that are not printable ASCII become three octal digits.
fn octal(out: &mut Vec<u8>, text: &[u8]) {
    for b in text {
        match b {
            b'\\' => out.extend_from_slice(b"\\\\"),
            0x20..=0x7e => out.push(*b),
            other => out.extend_from_slice(format!("\\{other:03o}").as_bytes()),
        }
    }
}

/// Each shape once with its number, in the order of first occurrence.
fn counted(children: impl Iterator<Item = usize>, compact: bool) -> Vec<(usize, usize)> {
    if !compact {
        return children.map(|c| (c, 1)).collect();
    }
    let mut out: Vec<(usize, usize)> = Vec::new();
    let mut at: HashMap<usize, usize> = HashMap::new();
    for child in children {
        match at.get(&child) {
            Some(i) => out[*i].1 += 1,
            None => {
                at.insert(child, out.len());
                out.push((child, 1));
            }
        }
    }
    out
}
