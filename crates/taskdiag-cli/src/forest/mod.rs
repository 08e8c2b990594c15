//! The parents and children among the tasks of an answer.

mod rows;

pub use rows::{ASCII, INDENTED, LINES, PLAIN, Style, Tree};

use std::collections::HashMap;

use taskdiag::Snapshot;
use taskdiag::field::Row;

/// A process.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its id.
    pub tgid: u32,
    /// The id of its parent, which may be missing from the answer.
    pub ppid: u32,
    /// The rows of the process, as indices of tasks: its threads, or itself.
    pub rows: Vec<u32>,
    /// The parent of the process, if the answer has it.
    pub parent: Option<usize>,
    /// The children of the process, in the order of the rows.
    pub children: Vec<usize>,
}

/// Processes and their children. Each is below exactly one root.
#[derive(Clone, Debug, Default)]
pub struct Forest {
    /// The processes, in the order of the rows.
    pub nodes: Vec<Node>,
    /// The processes whose parent is not in the answer.
    pub roots: Vec<usize>,
}

impl Forest {
    /// Arranges the tasks with these indices, which are already in the order of siblings. A process
    /// is a root if its parent is not among them, or if `is_parent` refuses the parent.
    pub fn new(rows: &[u32], snapshot: &Snapshot, is_parent: impl Fn(u32) -> bool) -> Forest {
        let stream = snapshot.stream();
        let mut forest = Forest::default();
        let mut known: HashMap<u32, usize> = HashMap::new();
        for i in rows {
            let Some(task) = stream.get(*i as usize) else { continue };
            let at = *known.entry(task.tgid()).or_insert_with(|| {
                let ppid = Row::new(task).base.and_then(|b| b.ppid()).unwrap_or(0);
                let (rows, children) = (Vec::new(), Vec::new());
                forest.nodes.push(Node { tgid: task.tgid(), ppid, rows, parent: None, children });
                forest.nodes.len() - 1
            });
            forest.nodes[at].rows.push(*i);
        }
        for at in 0..forest.nodes.len() {
            let ppid = forest.nodes[at].ppid;
            match known.get(&ppid).copied().filter(|p| *p != at && is_parent(ppid)) {
                Some(parent) => {
                    forest.nodes[at].parent = Some(parent);
                    forest.nodes[parent].children.push(at);
                }
                None => forest.roots.push(at),
            }
        }
        forest.open_circles();
        forest
    }
    /// In an untrusted stream, parents may form a circle, which has no root. The first process of
    /// each circle becomes its root.
    fn open_circles(&mut self) {
        let mut seen = vec![false; self.nodes.len()];
        for root in &self.roots {
            self.mark(*root, &mut seen);
        }
        for at in 0..self.nodes.len() {
            if seen[at] {
                continue;
            }
            if let Some(parent) = self.nodes[at].parent.take() {
                self.nodes[parent].children.retain(|c| *c != at);
            }
            self.roots.push(at);
            self.mark(at, &mut seen);
        }
    }
    fn mark(&self, root: usize, seen: &mut [bool]) {
        let mut stack = vec![root];
        while let Some(at) = stack.pop() {
            if !std::mem::replace(&mut seen[at], true) {
                stack.extend(&self.nodes[at].children);
            }
        }
    }
    /// The process with this id.
    pub fn find(&self, tgid: u32) -> Option<usize> {
        self.nodes.iter().position(|n| n.tgid == tgid)
    }
    /// A process and its ancestors, up to its root.
    pub fn line(&self, at: usize) -> impl Iterator<Item = usize> + '_ {
        std::iter::successors(Some(at), |n| self.nodes[*n].parent)
    }
}
