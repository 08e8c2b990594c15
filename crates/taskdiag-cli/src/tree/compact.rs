//! What the tree shows of each process, and equal subtrees put together: `3*[worker]`.

use std::collections::HashMap;

use taskdiag::Snapshot;
use taskdiag::field::{self, Context, Row, Value};

use super::forest::{Forest, Node};

/// What is shown of a process beside its name.
#[derive(Clone, Copy, Debug, Default)]
pub struct Labels {
    /// Arguments.
    pub args: bool,
    /// Ids.
    pub pids: bool,
    /// The user, where it is another one than that of the parent.
    pub users: bool,
    /// Process groups.
    pub groups: bool,
    /// Threads, as children in braces.
    pub threads: bool,
    /// The name of each thread, not that of its process.
    pub thread_names: bool,
    /// Equal subtrees once, with their number.
    pub compact: bool,
    /// Children by id, not by name.
    pub by_id: bool,
    /// Arguments as pstree writes them: what is not printable ASCII in octal digits.
    pub octal: bool,
}

/// A subtree, once for all that look alike.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// What is shown of the process, printable.
    pub label: Vec<u8>,
    /// Is it to be highlighted?
    pub marked: bool,
    /// Subtrees below it, and how often each is there.
    pub children: Vec<(usize, usize)>,
}

/// Subtrees, each after those below it.
#[derive(Debug, Default)]
pub struct Shapes {
    all: Vec<Shape>,
    known: HashMap<Shape, usize>,
}

impl Shapes {
    /// The i-th.
    pub fn get(&self, i: usize) -> &Shape {
        &self.all[i]
    }
    fn add(&mut self, shape: Shape, compact: bool) -> usize {
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
    /// What its values need to be read.
    pub cx: &'a Context,
    /// Its processes.
    pub forest: &'a Forest,
    /// What to show of each.
    pub labels: Labels,
    /// Which processes are shown; `None`: all.
    pub wanted: Option<Vec<bool>>,
    /// Those to highlight.
    pub marked: Vec<usize>,
    /// Whose the process above the first of each tree is taken to be, whoever's it is: as in
    /// pstree root's, or that of the user whose trees are shown.
    pub user_above: u32,
}

impl Maker<'_> {
    /// The shapes of all that is wanted below these processes, and which those of them are.
    pub fn shapes(&self, roots: &[usize]) -> (Shapes, Vec<usize>) {
        // Parents before children; backwards, every child is there before it is looked at.
        let mut order = Vec::new();
        let mut stack: Vec<usize> = roots.to_vec();
        while let Some(at) = stack.pop() {
            order.push(at);
            stack.extend(self.wanted_children(&self.forest.nodes[at]));
        }
        let mut shapes = Shapes::default();
        let mut made: Vec<usize> = vec![usize::MAX; self.forest.nodes.len()];
        let marked: std::collections::HashSet<usize> = self.marked.iter().copied().collect();
        for at in order.into_iter().rev() {
            let node = &self.forest.nodes[at];
            let mut children: Vec<usize> = self.wanted_children(node).collect();
            if !self.labels.by_id {
                // As pstree: by name, those of the same name by their user.
                let key = |c: &usize| {
                    let row = self.row(&self.forest.nodes[*c]);
                    row.map(|r| (r.comm, r.cred.and_then(|c| c.euid())))
                };
                children.sort_by_cached_key(key);
            }
            // Threads come after processes, as the brace comes after the letters.
            let children: Vec<usize> = children.into_iter().map(|c| made[c]).collect();
            let threads = self.threads(node, &mut shapes);
            let shape = Shape {
                label: self.label(at, node.parent.and_then(|p| self.uid(p))),
                marked: marked.contains(&at),
                children: counted(children.into_iter().chain(threads), self.labels.compact),
            };
            // With arguments shown only threads are put together, as in pstree.
            made[at] = shapes.add(shape, self.labels.compact && !self.labels.args);
        }
        let root = |at: &usize| {
            let label = self.label(*at, Some(self.user_above));
            let shape = Shape { label, ..shapes.get(made[*at]).clone() };
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
    /// `above`: the user of the process above, if it is known.
    fn label(&self, at: usize, above: Option<u32>) -> Vec<u8> {
        let node = &self.forest.nodes[at];
        let Some(row) = self.row(node) else { return Vec::new() };
        let mut out = Vec::new();
        // As pstree: who has no arguments is in parentheses where they are shown.
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
    /// All arguments but the first, which the name stands for.
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
        let mut labels: Vec<Vec<u8>> = tasks
            .filter(|t| !t.is_leader())
            .map(|t| {
                let mut label = vec![b'{'];
                let name = if self.labels.thread_names { t.comm() } else { of_process };
                field::escape(&mut label, name.unwrap_or(b"?"));
                label.push(b'}');
                let mut notes = Vec::new();
                if self.labels.pids {
                    notes.push(t.pid().to_string());
                }
                if self.labels.groups {
                    notes.push(pgid(&Row::new(t)));
                }
                if !notes.is_empty() {
                    let mark = if self.labels.args { (",", "") } else { ("(", ")") };
                    let notes = notes.join(",");
                    label.extend_from_slice(format!("{}{notes}{}", mark.0, mark.1).as_bytes());
                }
                label
            })
            .collect();
        if !self.labels.by_id {
            labels.sort();
        }
        let leaf = |label| Shape { label, marked: false, children: Vec::new() };
        labels.into_iter().map(|l| shapes.add(leaf(l), self.labels.compact)).collect()
    }
}

/// The process group; nothing where it is one of another pid namespace.
fn pgid(row: &Row<'_>) -> String {
    let pgid = row.base.and_then(|b| b.pgid()).filter(|p| *p != 0);
    pgid.map(|p| p.to_string()).unwrap_or_default()
}

/// As pstree: a backslash is doubled, and other bytes than printable ASCII are three octal digits.
fn octal(out: &mut Vec<u8>, text: &[u8]) {
    for b in text {
        match b {
            b'\\' => out.extend_from_slice(b"\\\\"),
            0x20..=0x7e => out.push(*b),
            other => out.extend_from_slice(format!("\\{other:03o}").as_bytes()),
        }
    }
}

/// Each once with its number, in the order of their first ones.
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
