//! The trees as JSON: nested, or flat.

use std::collections::HashSet;

use super::rows::Rows;
use crate::columns::Column;
use crate::exit::Exit;
use crate::output::{Item, Sink, json};

/// The document nests at most this many arrays and objects, because programs that read JSON have a
/// limit, and any user can fork any number of generations. Ruby reads 100, and serde_json 128. jq
/// before 1.7 has 256, and counts the keys, too.
const LEVELS: usize = 100;

/// This many generations are nested. Each is an array and an object, and the last one has a list of
/// threads.
pub const GENERATIONS: usize = (LEVELS - 2) / 2;

/// The columns written about each process.
pub struct Document<'a> {
    pub rows: &'a Rows<'a>,
    /// The processes at which the trees begin.
    pub roots: &'a [usize],
    /// Which processes are shown. `None` means all.
    pub wanted: Option<&'a [bool]>,
    /// Processes that are only shown as ancestors of others.
    pub above: &'a HashSet<usize>,
    pub columns: &'a [Column],
    /// Also their threads?
    pub threads: bool,
}

/// A pending step: the start or the end of a process.
enum Step {
    Begin(usize),
    End,
}

impl Document<'_> {
    /// Writes an array of processes, each with its `children`, and with its `threads` if they are
    /// shown. Returns how many processes are too deep.
    pub fn nested(&self, sink: &mut Sink) -> Result<usize, Exit> {
        // No recursion, because a forest may be deeper than the stack.
        let mut steps: Vec<Step> = self.roots.iter().rev().map(|r| Step::Begin(*r)).collect();
        let (mut comma, mut generation, mut left_out) = (false, 0, 0);
        sink.buf().push(b'[');
        while let Some(step) = steps.pop() {
            let out = sink.buf();
            match step {
                Step::End => {
                    out.extend_from_slice(b"]}");
                    comma = true;
                    generation -= 1;
                }
                Step::Begin(at) => {
                    out.extend_from_slice(if comma { b",\n" } else { b"\n" });
                    self.begin(out, at);
                    generation += 1;
                    comma = false;
                    steps.push(Step::End);
                    let below = if generation < GENERATIONS { 0 } else { self.below(at) };
                    if below > 0 {
                        out.extend_from_slice(format!("\"deeper\":{below},").as_bytes());
                        left_out += below;
                    } else {
                        steps.extend(self.children(at).rev().map(Step::Begin));
                    }
                    out.extend_from_slice(b"\"children\":[");
                }
            }
            sink.settle()?;
        }
        sink.buf().extend_from_slice(b"\n]\n");
        Ok(left_out)
    }
    /// Writes an array of all processes, parents before children, each with its `depth`.
    pub fn flat(&self, sink: &mut Sink) -> Result<(), Exit> {
        let mut left: Vec<(usize, usize)> = self.roots.iter().rev().map(|r| (*r, 0)).collect();
        let mut comma = false;
        sink.buf().push(b'[');
        while let Some((at, depth)) = left.pop() {
            let out = sink.buf();
            out.extend_from_slice(if comma { b",\n" } else { b"\n" });
            comma = true;
            self.begin(out, at);
            out.extend_from_slice(format!("\"depth\":{depth}}}").as_bytes());
            left.extend(self.children(at).rev().map(|c| (c, depth + 1)));
            sink.settle()?;
        }
        sink.buf().extend_from_slice(b"\n]\n");
        Ok(())
    }
    /// The children that are shown.
    fn children(&self, at: usize) -> impl DoubleEndedIterator<Item = usize> + '_ {
        let is_wanted = |c: &usize| self.wanted.is_none_or(|w| w[*c]);
        self.rows.forest.nodes[at].children.iter().copied().filter(is_wanted)
    }
    /// How many of the processes below this one are shown.
    fn below(&self, at: usize) -> usize {
        let mut left: Vec<usize> = self.children(at).collect();
        let mut below = 0;
        while let Some(at) = left.pop() {
            below += 1;
            left.extend(self.children(at));
        }
        below
    }
    /// `{"pid":1,...,`
    fn begin(&self, out: &mut Vec<u8>, at: usize) {
        let stream = self.rows.snapshot.stream();
        let node = &self.rows.forest.nodes[at];
        let tasks = || node.rows.iter().filter_map(|i| stream.get(*i as usize));
        out.push(b'{');
        if let Some((cx, row)) = self.rows.get(at) {
            json::members(out, cx, self.columns, Item::Row(&row));
            out.push(b',');
        }
        if self.threads {
            let has_threads = !self.above.contains(&at);
            let threads = tasks().filter(|t| has_threads && !t.is_leader());
            out.extend_from_slice(b"\"threads\":");
            json::list(out, threads, |out, t| {
                out.extend_from_slice(format!("{{\"tid\":{},\"comm\":", t.pid()).as_bytes());
                json::text(out, t.comm().unwrap_or(b"?"));
                out.push(b'}');
            });
            out.push(b',');
        }
    }
}
