//! The process tree: children after their parent, with a drawing in front of the command.

use std::collections::HashMap;

use taskdiag::Snapshot;
use taskdiag::field::Row;

/// Rows in the order of the tree, each with its drawing.
#[derive(Debug, Default)]
pub struct Tree {
    /// Indices of tasks, parents first.
    pub rows: Vec<u32>,
    /// The drawings of all rows, one after the other.
    art: Vec<u8>,
    /// Where the drawing of each row ends.
    ends: Vec<usize>,
}

/// Deeper levels than this are drawn as this one: a chain of 10,000 processes must not need
/// 10,000 columns in each of 10,000 lines.
const DRAWN_LEVELS: usize = 64;

/// The pieces of a drawing: nothing below, a line goes through, a child, the last child.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    gap: &'static str,
    through: &'static str,
    child: &'static str,
    last: &'static str,
}

/// As procps.
pub const ASCII: Style = Style { gap: "    ", through: " |  ", child: " \\_ ", last: " \\_ " };
/// For a terminal that shows UTF-8.
pub const LINES: Style = Style { gap: "   ", through: "│  ", child: "├─ ", last: "└─ " };

impl Tree {
    /// The drawing in front of the i-th row.
    pub fn art(&self, i: usize) -> &[u8] {
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        &self.art[start..self.ends[i]]
    }

    /// Arrange `rows` (in the order that siblings shall have). A task whose parent is not among
    /// them is a root; threads follow their process.
    pub fn new(rows: &[u32], snapshot: &Snapshot, style: Style) -> Tree {
        let stream = snapshot.stream();
        // A node is a process: its rows, and the rows of its children.
        let mut threads: HashMap<u32, Vec<u32>> = HashMap::new();
        let mut processes = Vec::new();
        for i in rows {
            let Some(task) = stream.get(*i as usize) else { continue };
            let list = threads.entry(task.tgid()).or_default();
            if list.is_empty() {
                let ppid = Row::new(task).base.and_then(|b| b.ppid()).unwrap_or(0);
                processes.push((task.tgid(), ppid));
            }
            list.push(*i);
        }
        let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
        let mut roots = Vec::new();
        for (tgid, ppid) in &processes {
            if ppid != tgid && threads.contains_key(ppid) {
                children.entry(*ppid).or_default().push(*tgid);
            } else {
                roots.push(*tgid);
            }
        }
        let mut tree = Tree::default();
        let mut walk = Walk { tree: &mut tree, threads, children, style };
        for root in roots {
            walk.from(root);
        }
        // A foreign stream may hold parents in a circle; those have no root.
        for (tgid, _) in processes {
            walk.from(tgid);
        }
        tree
    }
}

struct Walk<'t> {
    tree: &'t mut Tree,
    threads: HashMap<u32, Vec<u32>>,
    children: HashMap<u32, Vec<u32>>,
    style: Style,
}

impl Walk<'_> {
    fn from(&mut self, root: u32) {
        // (process, level, is it the last child)
        let mut stack = vec![(root, 0, true)];
        // For each level above: does its line go on?
        let mut lines: Vec<bool> = Vec::new();
        while let Some((tgid, level, last)) = stack.pop() {
            let Some(rows) = self.threads.remove(&tgid) else { continue };
            lines.truncate(level);
            for row in rows {
                self.draw(&lines, level, last);
                self.tree.rows.push(row);
                self.tree.ends.push(self.tree.art.len());
            }
            lines.push(!last && level > 0);
            let below = self.children.remove(&tgid).unwrap_or_default();
            for (i, child) in below.iter().rev().enumerate() {
                stack.push((*child, level + 1, i == 0));
            }
        }
    }
    fn draw(&mut self, lines: &[bool], level: usize, last: bool) {
        if level == 0 {
            return;
        }
        for goes_on in lines.iter().take(DRAWN_LEVELS).skip(1) {
            let piece = if *goes_on { self.style.through } else { self.style.gap };
            self.tree.art.extend_from_slice(piece.as_bytes());
        }
        let piece = if last { self.style.last } else { self.style.child };
        self.tree.art.extend_from_slice(piece.as_bytes());
    }
}
