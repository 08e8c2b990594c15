//! The largest users of CPU time and memory, by command name or as single processes. There are as
//! many as requested, and one more for all others.

use std::collections::HashMap;

use super::ledger::{Counts, NONE, OTHER, SYSTEM, USER};
use super::text::label;

#[derive(Clone, Copy, Debug, Default)]
struct Used {
    cpu_ns: u64,
    rss: u64,
}

/// A list with its labels.
pub type List<T> = Vec<(String, T)>;

/// Who uses most.
#[derive(Debug, Default)]
pub struct Top {
    used: Vec<(u32, Vec<u8>, Used)>,
    begun_ns: u64,
    interval_ns: u64,
    /// CPU seconds per second since the previous answer. `None`: there was none.
    pub cpu: Option<List<f64>>,
    /// Resident memory in bytes.
    pub rss: List<u64>,
}

impl Top {
    /// Prepares for the next answer, which began at this time since boot.
    pub fn begin(&mut self, now_ns: u64) {
        self.interval_ns =
            if self.begun_ns == 0 { 0 } else { now_ns.saturating_sub(self.begun_ns) };
        self.begun_ns = now_ns;
        self.used.clear();
    }
    /// Adds a process.
    pub fn add(&mut self, pid: u32, comm: &[u8], by: &Counts, rss: u64) {
        let known = |n: u64| if n == NONE { 0 } else { n };
        let cpu_ns = known(by[USER]) + known(by[SYSTEM]);
        self.used.push((pid, comm.to_vec(), Used { cpu_ns, rss }));
    }
    /// Chooses the first ones.
    pub fn choose(&mut self, n: usize, by_pid: bool) {
        let mut all: Vec<(String, Used)> = Vec::new();
        if by_pid {
            // Labels are made only for the first ones of both lists.
            let mut wanted: Vec<usize> = Vec::new();
            for key in [|u: &Used| u.cpu_ns, |u: &Used| u.rss] {
                let mut order: Vec<usize> = (0..self.used.len()).collect();
                order.sort_by_key(|i| std::cmp::Reverse(key(&self.used[*i].2)));
                wanted.extend(order.into_iter().take(n));
            }
            wanted.sort_unstable();
            wanted.dedup();
            for i in wanted {
                let (pid, comm, used) = &self.used[i];
                let pid = label("pid", pid.to_string().as_bytes());
                all.push((format!("{pid},{}", label("comm", comm)), *used));
            }
            let mut rest = Used::default();
            for (_, _, used) in &self.used {
                (rest.cpu_ns, rest.rss) = (rest.cpu_ns + used.cpu_ns, rest.rss + used.rss);
            }
            let sum = |get: fn(&Used) -> u64| all.iter().map(|(_, u)| get(u)).sum::<u64>();
            rest.cpu_ns = rest.cpu_ns.saturating_sub(sum(|u| u.cpu_ns));
            rest.rss = rest.rss.saturating_sub(sum(|u| u.rss));
            self.put(all, n, rest, format!("{},{}", label("pid", b""), label("comm", OTHER)));
        } else {
            let mut by_comm: HashMap<&[u8], Used> = HashMap::new();
            for (_, comm, used) in &self.used {
                let sum = by_comm.entry(comm).or_default();
                (sum.cpu_ns, sum.rss) = (sum.cpu_ns + used.cpu_ns, sum.rss + used.rss);
            }
            // Two names have the same label if one has a byte and the other the escape sequence of
            // that byte.
            let mut by_label: HashMap<String, Used> = HashMap::new();
            for (comm, used) in by_comm {
                let sum = by_label.entry(label("comm", comm)).or_default();
                (sum.cpu_ns, sum.rss) = (sum.cpu_ns + used.cpu_ns, sum.rss + used.rss);
            }
            all.extend(by_label);
            self.put(all, n, Used::default(), label("comm", OTHER));
        }
    }
    /// Keeps the first `n` of both lists. The others are added to `other`.
    fn put(&mut self, mut all: List<Used>, n: usize, rest: Used, other: String) {
        let mut first = |get: fn(&Used) -> u64, rest: u64| {
            all.sort_by(|a, b| get(&b.1).cmp(&get(&a.1)).then_with(|| a.0.cmp(&b.0)));
            let beyond: u64 = all.iter().skip(n).map(|(_, u)| get(u)).sum();
            let mut list: List<u64> =
                all.iter().take(n).map(|(l, u)| (l.clone(), get(u))).collect();
            // A program may have this very name.
            match list.iter_mut().find(|(l, _)| *l == other) {
                Some((_, sum)) => *sum += rest + beyond,
                None => list.push((other.clone(), rest + beyond)),
            }
            list
        };
        let cpu = first(|u| u.cpu_ns, rest.cpu_ns);
        self.rss = first(|u| u.rss, rest.rss);
        let interval = self.interval_ns as f64;
        self.cpu = (self.interval_ns > 0)
            .then(|| cpu.into_iter().map(|(l, ns)| (l, ns as f64 / interval)).collect());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn by(cpu_s: u64) -> Counts {
        [cpu_s * SECOND, 0, NONE, NONE, 0, 0, NONE, NONE, NONE, NONE, NONE]
    }
    fn top(by_pid: bool) -> Top {
        let mut top = Top::default();
        top.begin(10 * SECOND);
        top.begin(14 * SECOND);
        for (pid, comm, cpu, rss) in
            [(1, "a", 1, 10), (2, "b", 2, 40), (3, "a", 2, 20), (4, "c", 0, 5), (5, "d", 1, 1)]
        {
            top.add(pid, comm.as_bytes(), &by(cpu), rss);
        }
        top.choose(2, by_pid);
        top
    }

    #[test]
    fn the_top_of_command_names_has_all_others_in_one_sum() {
        let top = top(false);
        let cpu: Vec<(String, f64)> = top.cpu.expect("there were two answers");
        let want = [("comm=\"a\"", 0.75), ("comm=\"b\"", 0.5), ("comm=\"other\"", 0.25)];
        assert_eq!(cpu, want.map(|(l, v)| (l.to_owned(), v)));
        let want = [("comm=\"b\"", 40), ("comm=\"a\"", 30), ("comm=\"other\"", 6)];
        assert_eq!(top.rss, want.map(|(l, v)| (l.to_owned(), v)));
    }

    #[test]
    fn the_top_of_processes_has_all_others_in_one_sum() {
        let top = top(true);
        let cpu = top.cpu.expect("there were two answers");
        assert_eq!(cpu.len(), 3);
        assert!(cpu[..2].iter().all(|(_, v)| *v == 0.5) && cpu[2].1 == 0.5, "{cpu:?}");
        let want = [("pid=\"2\",comm=\"b\"", 40), ("pid=\"3\",comm=\"a\"", 20)];
        assert_eq!(top.rss[..2], want.map(|(l, v)| (l.to_owned(), v)));
        assert_eq!(top.rss[2], ("pid=\"\",comm=\"other\"".to_owned(), 16));
    }

    #[test]
    fn names_that_differ_have_one_sum_if_their_labels_are_equal() {
        let mut top = Top::default();
        top.add(1, b"\xff", &by(0), 5);
        top.add(2, b"\\xff", &by(0), 1);
        top.choose(5, false);
        assert_eq!(top.rss[0], ("comm=\"\\\\xff\"".to_owned(), 6));
        assert_eq!(top.rss.len(), 2);
    }

    #[test]
    fn a_program_called_other_is_added_to_the_others() {
        let mut top = Top::default();
        top.begin(SECOND);
        top.add(1, b"other", &by(0), 5);
        top.add(2, b"x", &by(0), 1);
        top.choose(1, false);
        assert_eq!((top.rss.len(), top.rss[0].1), (1, 6));
        assert!(top.cpu.is_none());
    }
}
