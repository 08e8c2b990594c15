//! Makes the labels of processes in the tree, and merges equal subtrees: `3*[worker]`.

use std::collections::{HashMap, HashSet};

use taskdiag::Snapshot;
use taskdiag::field::{self, Context, Row, Value};

use crate::args::tree::{Labels, SPACES};
use crate::forest::{Forest, Node};

/// The shape of a subtree: everything that is drawn of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubtreeShape {
    /// The printable text about the process.
    pub label: Vec<u8>,
    /// The length of the name in it.
    pub name_len: usize,
    /// Arguments that are shown as far as there is room. Otherwise, arguments are in the label.
    pub args: Vec<Vec<u8>>,
    /// The escape sequence of its colour.
    pub color: &'static [u8],
    /// Is it highlighted?
    pub marked: bool,
    /// The kinds of subtrees below the process, each with its number.
    pub children: Vec<(usize, usize)>,
}

/// The key that siblings are sorted by.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct SiblingKey {
    /// 0 if they are sorted by name.
    id: u32,
    name: Vec<u8>,
    uid: Option<u32>,
}

/// Siblings in the order of their places. Siblings with equal places keep their order.
fn in_order(mut all: Vec<(SiblingKey, usize)>) -> Vec<usize> {
    all.sort_by(|(a, _), (b, _)| a.cmp(b));
    all.into_iter().map(|(_, what)| what).collect()
}

/// The properties that subtrees must have in common to be merged.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Alike {
    name: Vec<u8>,
    uid: Option<u32>,
    spaces: Spaces,
    marked: bool,
    /// The kinds of the subtrees below.
    children: Vec<usize>,
}

/// All shapes. Each shape comes after the shapes below it.
#[derive(Debug, Default)]
pub struct Shapes {
    all: Vec<SubtreeShape>,
    /// The kind of each shape, which is the first shape equal to it.
    kinds: Vec<usize>,
    known: HashMap<Alike, usize>,
}

impl Shapes {
    /// The i-th shape.
    pub fn get(&self, i: usize) -> &SubtreeShape {
        &self.all[i]
    }
    /// Adds a shape. `alike` is the key for merging it with others, if it can be merged.
    fn add(&mut self, shape: SubtreeShape, alike: Option<Alike>) -> usize {
        let at = self.all.len();
        let kind = alike.map_or(at, |alike| *self.known.entry(alike).or_insert(at));
        // Most shapes of one kind also look the same, so one is enough.
        if self.all.get(kind).is_some_and(|first| *first == shape) {
            return kind;
        }
        self.all.push(shape);
        self.kinds.push(kind);
        at
    }
    /// Each kind once with its number, in the order of first occurrence.
    fn counted(&self, children: &[usize]) -> Vec<(usize, usize)> {
        let mut out: Vec<(usize, usize)> = Vec::new();
        let mut at: HashMap<usize, usize> = HashMap::new();
        for child in children {
            match at.get(&self.kinds[*child]) {
                Some(i) => out[*i].1 += 1,
                None => {
                    at.insert(self.kinds[*child], out.len());
                    out.push((*child, 1));
                }
            }
        }
        out
    }
}

/// The namespaces of a task, in the order of [`SPACES`]. 0: it is not known.
type Spaces = [u32; SPACES.len()];

fn spaces(row: &Row<'_>) -> Spaces {
    let Some(ns) = row.ns else { return Spaces::default() };
    let all = [ns.cgroup(), ns.ipc(), ns.mnt(), ns.net(), ns.pid(), ns.user(), ns.uts(), ns.time()];
    all.map(|inode| inode.unwrap_or(0))
}

/// Makes the shapes of processes.
pub struct Maker<'a> {
    /// The answer.
    pub snapshot: &'a Snapshot,
    /// The context that getters of values need.
    pub cx: &'a Context,
    /// Its processes.
    pub forest: &'a Forest,
    /// The properties to show of each process.
    pub labels: Labels,
    /// Which processes are shown. `None` means all.
    pub wanted: Option<Vec<bool>>,
    /// Processes that are only shown as ancestors of others. They have no threads in the tree, as
    /// in pstree.
    pub above: HashSet<usize>,
    /// The processes to highlight.
    pub marked: Vec<usize>,
    /// The user that the parent of each root is assumed to have. As in pstree, this is root, or the
    /// user whose trees are shown.
    pub user_above: u32,
    /// pstree reads this many bytes of the arguments.
    pub most_args: usize,
    /// A tree ends at processes that are in another namespace of this kind.
    pub by_space: Option<usize>,
}

impl Maker<'_> {
    /// The shapes of all wanted processes from these roots down, and the numbers of the roots'
    /// shapes.
    pub fn shapes(&self, roots: &[usize]) -> (Shapes, Vec<usize>) {
        // Parents come before children in this order. So backwards, the shapes of all children
        // exist before their parent's.
        let mut order = Vec::new();
        let mut stack: Vec<usize> = roots.to_vec();
        while let Some(at) = stack.pop() {
            order.push(at);
            stack.extend(self.drawn_children(at));
        }
        let mut shapes = Shapes::default();
        let mut made: Vec<usize> = vec![usize::MAX; self.forest.nodes.len()];
        let marked: HashSet<usize> = self.marked.iter().copied().collect();
        for at in order.into_iter().rev() {
            let node = &self.forest.nodes[at];
            let children = self.children(at, &made, &mut shapes);
            let shape = SubtreeShape {
                marked: marked.contains(&at),
                children: shapes.counted(&children),
                ..self.label(at, node.parent.and_then(|p| self.uid(p)))
            };
            // If each process has its own line, only threads are merged, as in pstree.
            let compact = self.labels.compact && !self.labels.is_upright();
            let alike = compact.then(|| Alike {
                name: match self.labels.strict {
                    true => self.row(node).and_then(|r| r.comm).unwrap_or_default().to_vec(),
                    false => shape.label.clone(),
                },
                uid: if self.labels.users { self.uid(at) } else { None },
                spaces: self.spaces_of(at),
                marked: shape.marked,
                children: children.iter().map(|c| shapes.kinds[*c]).collect(),
            });
            made[at] = shapes.add(shape, alike);
        }
        let root = |at: &usize| {
            let label = self.label(*at, Some(self.user_above));
            let below = shapes.get(made[*at]);
            let shape =
                SubtreeShape { marked: below.marked, children: below.children.clone(), ..label };
            shapes.add(shape, None)
        };
        let roots = roots.iter().map(root).collect();
        (shapes, roots)
    }
    /// The namespaces of the requested kind, in the order of first occurrence below these roots,
    /// with the topmost processes of each.
    pub fn spaces(&self, roots: &[usize]) -> Vec<(u32, Vec<usize>)> {
        let kind = self.by_space.unwrap_or(0);
        let space = |at: usize| self.row(&self.forest.nodes[at]).map_or(0, |r| spaces(&r)[kind]);
        let mut out: Vec<(u32, Vec<usize>)> = Vec::new();
        // pstree invents a parent for each root, which is in the namespaces 0. So it leaves out a
        // root whose namespaces are unknown.
        let above = self.labels.strict.then_some(0);
        let mut stack: Vec<(usize, Option<u32>)> =
            roots.iter().rev().map(|r| (*r, above)).collect();
        while let Some((at, above)) = stack.pop() {
            let own = space(at);
            if above != Some(own) {
                match out.iter_mut().find(|(number, _)| *number == own) {
                    Some((_, all)) => all.push(at),
                    None => out.push((own, vec![at])),
                }
            }
            let children = self.sorted(self.wanted_children(&self.forest.nodes[at]));
            stack.extend(children.into_iter().rev().map(|c| (c, Some(own))));
        }
        out
    }
    /// The shapes below a process, in the order in which they are drawn. pstree sorts threads among
    /// the children, by the name with its braces. Otherwise they come after these.
    fn children(&self, at: usize, made: &[usize], shapes: &mut Shapes) -> Vec<usize> {
        let processes = self.drawn_children(at).map(|c| (self.place(c), made[c]));
        if self.labels.strict {
            // A thread is before a child of the same name, because pstree has read it before.
            let mut all = self.threads(at, shapes);
            all.extend(processes);
            return in_order(all);
        }
        let mut all = in_order(processes.collect());
        all.extend(in_order(self.threads(at, shapes)));
        all
    }
    /// Children in the order in which they are drawn.
    fn sorted(&self, children: impl Iterator<Item = usize>) -> Vec<usize> {
        in_order(children.map(|c| (self.place(c), c)).collect())
    }
    /// The place of a process among its siblings.
    fn place(&self, at: usize) -> SiblingKey {
        let node = &self.forest.nodes[at];
        let name = self.row(node).and_then(|r| r.comm).unwrap_or_default();
        self.place_of(node.tgid, name, at)
    }
    /// The place of a process, or a thread of one, with this number and name.
    fn place_of(&self, id: u32, name: &[u8], at: usize) -> SiblingKey {
        match self.labels.by_id {
            true => SiblingKey { id, ..SiblingKey::default() },
            // As in pstree, they are sorted by name, and then by user.
            false => SiblingKey { id: 0, name: name.to_vec(), uid: self.uid(at) },
        }
    }
    fn wanted_children(&self, node: &Node) -> impl Iterator<Item = usize> + '_ {
        let wanted = |c: &usize| self.wanted.as_ref().is_none_or(|w| w[*c]);
        node.children.clone().into_iter().filter(wanted)
    }
    /// The children that are drawn below a process.
    fn drawn_children(&self, at: usize) -> impl Iterator<Item = usize> + '_ {
        self.wanted_children(&self.forest.nodes[at]).filter(move |c| self.is_tree_of(at, *c))
    }
    fn row(&self, node: &Node) -> Option<Row<'_>> {
        let stream = self.snapshot.stream();
        let tasks = || node.rows.iter().filter_map(|i| stream.get(*i as usize));
        tasks().find(|t| t.is_leader()).or_else(|| tasks().next()).map(Row::new)
    }
    /// The row with the arguments and namespaces of a process. A first thread that has ended has
    /// none of these, while another thread still has them. pstree looks at no other thread.
    fn living_row(&self, node: &Node) -> Option<Row<'_>> {
        let stream = self.snapshot.stream();
        let has_ended = |row: &Row<'_>| row.base.and_then(|b| b.state()) == Some(b'Z');
        let threads = || node.rows.iter().filter_map(|i| stream.get(*i as usize)).map(Row::new);
        match self.row(node) {
            Some(row) if has_ended(&row) && !self.labels.strict => {
                threads().find(|t| !has_ended(t)).or(Some(row))
            }
            row => row,
        }
    }
    fn uid(&self, at: usize) -> Option<u32> {
        self.row(&self.forest.nodes[at])?.cred?.euid()
    }
    /// The namespaces of a process, if they are shown.
    fn spaces_of(&self, at: usize) -> Spaces {
        let row = if self.labels.spaces { self.living_row(&self.forest.nodes[at]) } else { None };
        row.map(|r| spaces(&r)).unwrap_or_default()
    }
    /// The shape of a process without its descendants. `above` is the user of its parent, if that
    /// is known.
    fn label(&self, at: usize, above: Option<u32>) -> SubtreeShape {
        let node = &self.forest.nodes[at];
        let Some(row) = self.row(node) else { return SubtreeShape::default() };
        let living = self.living_row(node).unwrap_or(row);
        let mut out = Vec::new();
        // As in pstree, a process without arguments is in parentheses if arguments are shown.
        let bare = self.labels.args && self.has_no_args(&living);
        out.extend_from_slice(if bare { b"(" } else { b"" });
        let before = out.len();
        self.name(&mut out, row.comm.unwrap_or(b"?"));
        let name_len = out.len() - before;
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
        self.places(&mut notes, &living, node.parent.filter(|p| self.is_tree_of(*p, at)));
        self.note(&mut out, &notes);
        out.extend_from_slice(if bare { b")" } else { b"" });
        let mut args = Vec::new();
        match self.labels.args {
            true if self.labels.strict => args = self.args_as_pstree(&row),
            true => self.write_args(&mut out, &living),
            false => {}
        }
        SubtreeShape { label: out, name_len, args, color: self.color(&row), ..Default::default() }
    }
    /// Do namespaces allow a child to be drawn below its parent?
    fn is_tree_of(&self, parent: usize, at: usize) -> bool {
        let space = |at: usize| Some(spaces(&self.row(&self.forest.nodes[at])?)[self.by_space?]);
        self.by_space.is_none() || space(parent) == space(at)
    }
    /// Appends the namespaces that are not those of the parent, and the security label.
    fn places(&self, notes: &mut Vec<Vec<u8>>, row: &Row<'_>, parent: Option<usize>) {
        if self.labels.spaces {
            let above = parent.map(|p| self.spaces_of(p)).unwrap_or_default();
            let own = spaces(row);
            for (i, name) in SPACES.iter().enumerate() {
                if own[i] != 0 && above[i] != 0 && own[i] != above[i] {
                    notes.push(name.as_bytes().to_vec());
                }
            }
        }
        if self.labels.contexts {
            let mut note = vec![b'`'];
            note.extend(self.context(row));
            note.push(b'\'');
            notes.push(note);
        }
    }
    fn context(&self, row: &Row<'_>) -> Vec<u8> {
        let named = field::find("label").expect("the table has it");
        let mut out = Vec::new();
        match (named.field.get)(self.cx, row) {
            Value::Bytes { data, .. } if self.labels.strict => {
                out.extend_from_slice(without_mode(&data));
            }
            Value::Bytes { data, .. } => field::escape(&mut out, &data),
            other if other.missing().is_some_and(|m| m.is_absent()) => {}
            _ if self.labels.strict => {}
            _ => out.push(b'?'),
        }
        out
    }
    /// The sequence for the age of a process.
    fn color(&self, row: &Row<'_>) -> &'static [u8] {
        let start = row.base.and_then(|b| b.start_time_ns()).filter(|_| self.labels.ages);
        match start.map(|s| self.cx.age_ns(s) / 1_000_000_000) {
            None => b"",
            Some(0..60) => b"\x1b[32m",
            Some(60..3600) => b"\x1b[33m",
            Some(_) => b"\x1b[31m",
        }
    }
    fn name(&self, out: &mut Vec<u8>, name: &[u8]) {
        match self.labels.strict {
            true => octal(out, name),
            false => field::escape(out, name),
        }
    }
    /// Writes notes after a name.
    fn note(&self, out: &mut Vec<u8>, notes: &[Vec<u8>]) {
        if !notes.is_empty() {
            out.push(if self.labels.args { b',' } else { b'(' });
            out.extend_from_slice(&notes.join(&b','));
            out.extend_from_slice(if self.labels.args { b"" } else { b")" });
        }
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
                out.push(b' ');
                field::escape(out, arg);
            }
        }
    }
    /// All arguments but the first, as pstree counts them: empty arguments are skipped, and appear
    /// as empty ones after the last.
    fn args_as_pstree(&self, row: &Row<'_>) -> Vec<Vec<u8>> {
        let data = row.view.cmdline().filter(|b| b.reason.is_none()).map(|b| b.data);
        let Some(data) = data.filter(|d| !d.is_empty()) else { return Vec::new() };
        let data = &data[..data.len().min(self.most_args)];
        let mut text = data.to_vec();
        text.push(0);
        let ends = text[..text.len() - 1].split(|b| *b != 0).filter(|nuls| !nuls.is_empty());
        let count = ends.count();
        text.split(|b| *b == 0).skip(1).take(count).map(<[u8]>::to_vec).collect()
    }
    /// The threads of a process but its leader, with their places.
    fn threads(&self, at: usize, shapes: &mut Shapes) -> Vec<(SiblingKey, usize)> {
        if !self.labels.threads || self.above.contains(&at) {
            return Vec::new();
        }
        let node = &self.forest.nodes[at];
        let stream = self.snapshot.stream();
        let tasks = node.rows.iter().filter_map(|i| stream.get(*i as usize));
        let process = self.row(node);
        let of_process = process.and_then(|r| r.comm);
        let color = process.map_or(&b""[..], |r| self.color(&r));
        let mut made = Vec::new();
        for t in tasks.filter(|t| !t.is_leader()) {
            let name = if self.labels.thread_names { t.comm() } else { of_process };
            let name = name.unwrap_or(b"?");
            let place = self.place_of(t.pid(), &[b"{", name, b"}"].concat(), at);
            let row = Row::new(t);
            let mut label = vec![b'{'];
            self.name(&mut label, name);
            label.push(b'}');
            let name_len = label.len();
            let mut notes = Vec::new();
            if self.labels.pids {
                notes.push(t.pid().to_string().into());
            }
            if self.labels.groups {
                notes.push(pgid(&row).into());
            }
            self.places(&mut notes, &row, Some(at));
            let bare = label.clone();
            self.note(&mut label, &notes);
            let alike = self.labels.compact.then(|| Alike {
                name: if self.labels.strict { bare } else { label.clone() },
                uid: None,
                spaces: if self.labels.spaces { spaces(&row) } else { Spaces::default() },
                marked: false,
                children: Vec::new(),
            });
            let shape = SubtreeShape { label, name_len, color, ..Default::default() };
            made.push((place, shapes.add(shape, alike)));
        }
        made
    }
}

/// A label without AppArmor's mode after it. pstree uses AppArmor's library, which returns the mode
/// separately.
fn without_mode(label: &[u8]) -> &[u8] {
    let at = label.windows(2).rposition(|w| w == b" (").filter(|_| label.ends_with(b")"));
    &label[..at.unwrap_or(label.len())]
}

/// The process group, or nothing if it belongs to another pid namespace.
fn pgid(row: &Row<'_>) -> String {
    let pgid = row.base.and_then(|b| b.pgid()).filter(|p| *p != 0);
    pgid.map(|p| p.to_string()).unwrap_or_default()
}

/// Writes text as pstree does: a backslash is doubled, and bytes that are not printable ASCII
/// become three octal digits.
pub fn octal(out: &mut Vec<u8>, text: &[u8]) {
    for b in text {
        match b {
            b'\\' => out.extend_from_slice(b"\\\\"),
            0x20..=0x7e => out.push(*b),
            other => out.extend_from_slice(format!("\\{other:03o}").as_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mode_at_the_end_of_a_label_is_left_out() {
        for (label, want) in [
            (&b"/usr/bin/man (enforce)"[..], &b"/usr/bin/man"[..]),
            (b"a (b) c (complain)", b"a (b) c"),
            (b"unconfined", b"unconfined"),
            (b"system_u:system_r:init_t:s0", b"system_u:system_r:init_t:s0"),
            (b"", b""),
        ] {
            assert_eq!(without_mode(label), want);
        }
    }
}
