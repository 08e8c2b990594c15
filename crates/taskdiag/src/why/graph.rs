//! Joins waits and holders to chains and cycles. A thread waits for at most one holder. So each
//! chain ends in one node, its head, or leads into a cycle, a deadlock. Time and memory are
//! proportional to the number of threads.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::wait::{How, Wait, Waits};

/// A thread, or a process as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// The thread, as an index into [`Waits::all`]; of a process, one of its threads.
    pub wait: usize,
    /// Whether the node is a process any of whose threads can end the wait of others, so that the
    /// chain ends there.
    pub is_process: bool,
}

/// The threads that a node keeps waiting, directly and through others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Behind {
    /// How many threads.
    pub tasks: u32,
    /// How many of these wait in a way that is not [usual](How::is_usual).
    pub odd: u32,
    /// The longest time for which one of these has not run, ns.
    pub longest_ns: u64,
    /// Whether it is not known for how long some of these have not run.
    pub has_unknown: bool,
}

/// Chains and cycles of waits.
#[derive(Debug)]
pub struct Graph {
    nodes: Vec<Node>,
    /// The holder of the object that a node waits for.
    next: Vec<Option<u32>>,
    /// All nodes, sorted by their holder.
    waiting: Vec<(u32, u32)>,
    behind: Vec<Behind>,
    cycles: Vec<Vec<usize>>,
    is_in_cycle: Vec<bool>,
}

impl Graph {
    /// The chains and cycles of these waits.
    pub fn new(waits: &Waits) -> Graph {
        let all = waits.all();
        let mut nodes: Vec<Node> =
            (0..all.len()).map(|wait| Node { wait, is_process: false }).collect();
        let mut processes: HashMap<u32, u32> = HashMap::new();
        let mut next = Vec::with_capacity(all.len());
        for wait in all {
            let holder = wait.holder.as_ref().ok().filter(|_| wait.is_waiting());
            let to = holder.and_then(|holder| {
                if !waits.is_alone(holder) {
                    let at = waits.find(holder.tgid)?;
                    return Some(*processes.entry(holder.tgid).or_insert_with(|| {
                        nodes.push(Node { wait: at, is_process: true });
                        (nodes.len() - 1) as u32
                    }));
                }
                waits.find(holder.tid).map(|at| at as u32)
            });
            next.push(to);
        }
        next.resize(nodes.len(), None);
        let mut waiting: Vec<(u32, u32)> =
            next.iter().zip(0..).filter_map(|(to, from)| Some(((*to)?, from))).collect();
        waiting.sort_unstable();
        let behind = vec![Behind::default(); nodes.len()];
        let is_in_cycle = vec![false; nodes.len()];
        let mut graph = Graph { nodes, next, waiting, behind, cycles: Vec::new(), is_in_cycle };
        graph.count(all);
        graph
    }

    /// Adds up from the ends of the chains, and finds the cycles, which have no end.
    fn count(&mut self, all: &[Wait]) {
        let mut left = vec![0u32; self.nodes.len()];
        for to in self.next.iter().flatten() {
            left[*to as usize] += 1;
        }
        let mut ready: Vec<usize> = (0..left.len()).filter(|n| left[*n] == 0).collect();
        let mut is_done = vec![false; left.len()];
        while let Some(node) = ready.pop() {
            is_done[node] = true;
            let Some(to) = self.next[node].map(|to| to as usize) else { continue };
            self.add(all, node, to);
            left[to] -= 1;
            if left[to] == 0 {
                ready.push(to);
            }
        }
        for start in 0..is_done.len() {
            let mut cycle = Vec::new();
            let mut at = start;
            while !std::mem::replace(&mut is_done[at], true) {
                cycle.push(at);
                self.is_in_cycle[at] = true;
                at = self.next[at].expect("a node of a cycle has a next one") as usize;
            }
            if !cycle.is_empty() {
                self.cycles.push(cycle);
            }
        }
        let mut cycles = std::mem::take(&mut self.cycles);
        cycles.sort_by_key(|cycle| Reverse(self.behind_cycle(cycle).tasks));
        self.cycles = cycles;
    }

    fn add(&mut self, all: &[Wait], node: usize, to: usize) {
        let Behind { tasks, odd, longest_ns, has_unknown } = self.behind[node];
        let wait = &all[self.nodes[node].wait];
        let is_odd = wait.holder.as_ref().is_ok_and(|h| !How::is_usual(h.how));
        let own_ns = if is_odd { wait.waited() } else { Some(0) };
        let sum = &mut self.behind[to];
        sum.tasks += tasks + 1;
        sum.odd += odd + u32::from(is_odd);
        sum.longest_ns = sum.longest_ns.max(longest_ns).max(own_ns.unwrap_or(0));
        sum.has_unknown |= has_unknown || own_ns.is_none();
    }

    /// The number of nodes. The first ones are the threads of [`Waits::all`], in the same order.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there are no threads.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Whether a node is a part of a cycle.
    pub fn is_in_cycle(&self, at: usize) -> bool {
        self.is_in_cycle[at]
    }

    /// The node with this index.
    pub fn node(&self, at: usize) -> Node {
        self.nodes[at]
    }

    /// The node of the holder of what this node waits for.
    pub fn next(&self, at: usize) -> Option<usize> {
        self.next[at].map(|to| to as usize)
    }

    /// The nodes that wait for this one.
    pub fn waiting(&self, at: usize) -> impl ExactSizeIterator<Item = usize> + '_ {
        let at = at as u32;
        let from = self.waiting.partition_point(|(to, _)| *to < at);
        let to = self.waiting.partition_point(|(to, _)| *to <= at);
        self.waiting[from..to].iter().map(|(_, from)| *from as usize)
    }

    /// The threads that this node keeps waiting. For a node of a cycle, only threads outside the
    /// cycle count.
    pub fn behind(&self, at: usize) -> Behind {
        self.behind[at]
    }

    /// The threads outside a cycle that the cycle keeps waiting.
    pub fn behind_cycle(&self, cycle: &[usize]) -> Behind {
        let mut sum = Behind::default();
        for at in cycle {
            let one = self.behind[*at];
            sum.tasks += one.tasks;
            sum.odd += one.odd;
            sum.longest_ns = sum.longest_ns.max(one.longest_ns);
            sum.has_unknown |= one.has_unknown;
        }
        sum
    }

    /// The deadlocks, those that keep the most other threads waiting first. In each, a node waits
    /// for the next one, and the last one for the first.
    pub fn cycles(&self) -> &[Vec<usize>] {
        &self.cycles
    }

    /// The nodes from this one to the head of its chain. In a cycle, each node comes once.
    pub fn chain(&self, at: usize) -> Vec<usize> {
        let mut chain = vec![at];
        let mut seen = std::collections::HashSet::from([at]);
        let mut last = at;
        while let Some(next) = self.next(last) {
            if !seen.insert(next) {
                break;
            }
            chain.push(next);
            last = next;
        }
        chain
    }

    /// The heads of chains: others wait for them, and they wait for nobody who is known. The first
    /// heads are those that keep the most others waiting, and then those for whom others wait the
    /// longest.
    pub fn heads(&self) -> Vec<usize> {
        let is_head = |at: &usize| self.next[*at].is_none() && self.behind[*at].tasks > 0;
        let mut heads: Vec<usize> = (0..self.nodes.len()).filter(is_head).collect();
        heads.sort_by_key(|at| {
            let b = self.behind[*at];
            (Reverse(b.odd), Reverse(b.tasks), Reverse(b.longest_ns), *at)
        });
        heads
    }
}

#[cfg(test)]
mod tests {
    use super::super::wait::{Holder, NoHolder};
    use super::*;
    use taskdiag_wire::WaitKind;

    /// Waits of threads, each as (thread id, id of its holder); 0: no holder.
    fn waits(edges: &[(u32, u32)]) -> Waits {
        of(edges.iter().map(|(tid, to)| (*tid, *tid, *to, How::Mutex)))
    }

    fn of(all: impl Iterator<Item = (u32, u32, u32, How)>) -> Waits {
        let wait = |(tid, tgid, to, how): (u32, u32, u32, How)| Wait {
            tid,
            tgid,
            parent: 1,
            pgid: tgid,
            comm: b"t".to_vec(),
            state: b'S',
            is_kthread: false,
            kind: Some(WaitKind::Futex),
            is_uninterruptible: false,
            waited_ns: Some(u64::from(tid)),
            waited_error_ns: None,
            switches: None,
            object: None,
            call: None,
            function: Vec::new(),
            file: None,
            mount: None,
            cgroup: None,
            holder: match to {
                0 => Err(NoHolder::NotKept),
                to => Ok(Holder {
                    tid: to,
                    tgid: to,
                    is_process: how != How::Mutex,
                    is_sure: true,
                    how,
                }),
            },
        };
        Waits::new(all.map(wait).collect())
    }

    fn ids(waits: &Waits, graph: &Graph, nodes: &[usize]) -> Vec<u32> {
        nodes.iter().map(|at| waits.all()[graph.node(*at).wait].tid).collect()
    }

    #[test]
    fn a_cycle_is_found_with_its_waiters() {
        let waits = waits(&[(1, 2), (2, 3), (3, 1), (4, 1), (5, 4), (6, 0)]);
        let graph = Graph::new(&waits);
        let [cycle] = graph.cycles() else { panic!("{:?}", graph.cycles()) };
        assert_eq!(ids(&waits, &graph, cycle), [1, 2, 3]);
        let behind = graph.behind_cycle(cycle);
        assert_eq!((behind.tasks, behind.odd, behind.longest_ns), (2, 2, 5));
        assert!(graph.heads().is_empty());
        assert_eq!(ids(&waits, &graph, &graph.chain(4)), [5, 4, 1, 2, 3]);
    }

    #[test]
    fn a_thread_that_waits_for_itself_is_a_cycle() {
        let graph = Graph::new(&waits(&[(1, 1), (2, 1)]));
        assert_eq!(graph.cycles(), [vec![0]]);
        assert_eq!(graph.behind_cycle(&[0]).tasks, 1);
    }

    #[test]
    fn the_head_that_keeps_the_most_waiting_comes_first() {
        let waits = waits(&[(1, 0), (2, 1), (3, 0), (4, 3), (5, 4), (6, 4), (7, 0)]);
        let graph = Graph::new(&waits);
        let heads = graph.heads();
        assert_eq!(ids(&waits, &graph, &heads), [3, 1]);
        assert_eq!(graph.behind(heads[0]).tasks, 3);
        let direct: Vec<usize> = graph.waiting(3).collect();
        assert_eq!(ids(&waits, &graph, &direct), [5, 6]);
        assert!(graph.cycles().is_empty());
    }

    #[test]
    fn a_usual_wait_counts_less_than_a_wait_for_a_lock() {
        let shell = (1..=5).map(|n| (n, n, 6, How::Child)).chain([(6, 6, 0, How::Child)]);
        let waits = of(shell.chain([(7, 7, 0, How::Mutex), (8, 8, 7, How::Mutex)]));
        let graph = Graph::new(&waits);
        assert_eq!(ids(&waits, &graph, &graph.heads()), [7, 6]);
    }

    /// Any thread of a process can end the wait of others, so its first thread is no part of a
    /// cycle.
    #[test]
    fn a_process_with_several_threads_ends_a_chain() {
        let waits =
            of([(1, 1, 2, How::Reader), (2, 2, 1, How::Reader), (3, 2, 0, How::Mutex)].into_iter());
        let graph = Graph::new(&waits);
        assert!(graph.cycles().is_empty());
        let chain = graph.chain(1);
        assert_eq!(ids(&waits, &graph, &chain), [2, 1, 2]);
        assert!(graph.node(chain[2]).is_process);
    }

    #[test]
    fn a_thread_that_runs_waits_for_nobody() {
        let mut waits = waits(&[(1, 2), (2, 1)]);
        waits.all[0].state = b'R';
        assert!(Graph::new(&waits).cycles().is_empty());
    }

    #[test]
    fn a_chain_of_all_threads_of_a_large_machine_takes_no_stack() {
        let n = 300_000;
        let waits = waits(&(1..=n).map(|tid| (tid, (tid + 1) % (n + 1))).collect::<Vec<_>>());
        let graph = Graph::new(&waits);
        assert_eq!(graph.chain(0).len(), n as usize);
        assert_eq!(graph.behind(n as usize - 1).tasks, n - 1);
        assert_eq!(graph.heads(), [n as usize - 1]);
    }

    #[test]
    fn a_holder_that_is_not_in_the_answer_has_no_node() {
        let graph = Graph::new(&waits(&[(1, 99)]));
        assert_eq!(graph.next(0), None);
    }
}
