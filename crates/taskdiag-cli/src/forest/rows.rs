//! The tree as rows of a table: children come after their parent, with a drawing before the
//! command.

use taskdiag::Snapshot;

use super::Forest;

/// Rows in the order of the tree, each with its drawing.
#[derive(Debug, Default)]
pub struct Tree {
    /// Indices of tasks, parents first.
    pub rows: Vec<u32>,
    /// The drawings of all rows, one after the other.
    art: Vec<u8>,
    /// The end of the drawing of each row.
    ends: Vec<usize>,
    /// How many ancestors of each row are in the tree.
    #[cfg(feature = "top")]
    pub levels: Vec<u32>,
}

/// Deeper levels are drawn like this one. Otherwise a chain of 10,000 processes would need up to
/// 10,000 columns in each of 10,000 lines.
const DRAWN_LEVELS: usize = 64;

/// The pieces of a drawing: for a level whose line has ended, for one whose line continues, for a
/// child, for the last child.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// The piece below the last child.
    pub gap: &'static str,
    /// The piece below a child that has later siblings.
    pub through: &'static str,
    /// The piece before a child that has later siblings.
    pub child: &'static str,
    /// The piece before the last child.
    pub last: &'static str,
    /// Are children of process 1 roots of their own?
    without_init: bool,
    /// Are roots in the order of procps?
    as_procps: bool,
}

/// The style of procps.
pub const ASCII: Style = Style {
    gap: "    ",
    through: " |  ",
    child: " \\_ ",
    last: " \\_ ",
    without_init: true,
    as_procps: true,
};
/// The style of procps with `-H`.
pub const INDENTED: Style =
    Style { without_init: false, gap: "  ", through: "  ", child: "  ", last: "  ", ..ASCII };
/// The style of procps, but process 1 is a parent like any other.
pub const PLAIN: Style = Style { without_init: false, as_procps: false, ..ASCII };
/// The style for a terminal that shows UTF-8.
pub const LINES: Style =
    Style { gap: "   ", through: "│  ", child: "├─ ", last: "└─ ", ..PLAIN };

/// Roots in the order of procps: it sorts all processes by their parents, and begins with the last.
/// Children of process 1 that are roots follow it in their usual order.
fn as_procps(forest: &Forest) -> Vec<usize> {
    let ppid = |at: &usize| forest.nodes[*at].ppid;
    let has_init = forest.find(1).is_some();
    let is_of_init = |at: &usize| has_init && ppid(at) == 1;
    let (of_init, mut others): (Vec<usize>, Vec<usize>) =
        forest.roots.iter().copied().partition(is_of_init);
    others.sort_by_key(ppid);
    others.reverse();
    let init = others.iter().position(|at| forest.nodes[*at].tgid == 1);
    let behind = init.map_or(others.len(), |at| at + 1);
    others.splice(behind..behind, of_init);
    others
}

impl Tree {
    /// The drawing before the command of the i-th row.
    pub fn art(&self, i: usize) -> &[u8] {
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        &self.art[start..self.ends[i]]
    }

    /// Arranges `rows`, which are already in the order of siblings. A task whose parent is not
    /// among them is a root. Threads follow their process.
    pub fn new(rows: &[u32], snapshot: &Snapshot, style: Style) -> Tree {
        let forest = Forest::new(rows, snapshot, |parent| !(style.without_init && parent == 1));
        let mut tree = Tree::default();
        let roots = match style.as_procps {
            true => as_procps(&forest),
            false => forest.roots.clone(),
        };
        for root in roots {
            tree.below(root, &forest, style);
        }
        tree
    }

    fn below(&mut self, root: usize, forest: &Forest, style: Style) {
        // (process, level, is it the last child)
        let mut stack = vec![(root, 0, true)];
        // For each level above: does its line continue?
        let mut lines: Vec<bool> = Vec::new();
        while let Some((at, level, last)) = stack.pop() {
            let node = &forest.nodes[at];
            lines.truncate(level);
            for row in &node.rows {
                self.draw(style, &lines, level, last);
                self.rows.push(*row);
                self.ends.push(self.art.len());
                #[cfg(feature = "top")]
                self.levels.push(level as u32);
            }
            lines.push(!last && level > 0);
            for (i, child) in node.children.iter().rev().enumerate() {
                stack.push((*child, level + 1, i == 0));
            }
        }
    }
    fn draw(&mut self, style: Style, lines: &[bool], level: usize, last: bool) {
        if level == 0 {
            return;
        }
        for goes_on in lines.iter().take(DRAWN_LEVELS).skip(1) {
            let piece = if *goes_on { style.through } else { style.gap };
            self.art.extend_from_slice(piece.as_bytes());
        }
        let piece = if last { style.last } else { style.child };
        self.art.extend_from_slice(piece.as_bytes());
    }
}
