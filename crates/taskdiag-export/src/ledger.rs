//! Accounts of groups of processes: counters that do not fall when processes end, and current sums.
//!
//! A ledger has a limit of names. When it is reached, further names are counted in the account
//! "other". So neither configurations nor processes can make the metrics grow without bound.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The counters, as indices of [`Counts`].
pub const USER: usize = 0;
/// CPU time in the kernel, ns.
pub const SYSTEM: usize = 1;
/// Bytes read from storage.
pub const READ: usize = 2;
/// Bytes written to storage.
pub const WRITE: usize = 3;
/// Major page faults.
pub const MAJOR: usize = 4;
/// Minor page faults.
pub const MINOR: usize = 5;
/// Context switches because it waited.
pub const VOLUNTARY: usize = 6;
/// Context switches because another task had to run.
pub const NONVOLUNTARY: usize = 7;
/// Bytes sent over TCP connections.
pub const SENT: usize = 8;
/// Bytes received over TCP connections.
pub const RECEIVED: usize = 9;
/// Time in which engines of graphics processors worked for it, ns.
pub const GPU: usize = 10;
/// The number of counters.
pub const COUNTERS: usize = 11;

/// The counters of a task; [`NONE`] is one that is not known.
pub type Counts = [u64; COUNTERS];
/// A counter that is not known.
pub const NONE: u64 = u64::MAX;

/// The name of the account for all names beyond the limit.
pub const OTHER: &[u8] = b"other";

/// A sum of values. Some of the values may be unknown.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    sum: u64,
    known: bool,
}

impl Sum {
    /// Adds a value.
    pub fn add(&mut self, value: Option<u64>) {
        if let Some(value) = value {
            (self.sum, self.known) = (self.sum.saturating_add(value), true);
        }
    }
    /// The sum of the known values. `None`: no value is known.
    pub fn get(self) -> Option<u64> {
        self.known.then_some(self.sum)
    }
}

/// The states of tasks that are counted in a group, as in process-exporter.
pub const STATES: [&str; 5] = ["Running", "Sleeping", "Waiting", "Zombie", "Other"];

/// The index of a state letter in [`STATES`].
pub fn state(letter: u8) -> usize {
    match letter {
        b'R' => 0,
        b'S' => 1,
        b'D' => 2,
        b'Z' => 3,
        _ => 4,
    }
}

/// The present values of an account, summed over its processes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Now {
    /// Processes, or threads in an account of threads.
    pub tasks: u64,
    /// Threads.
    pub threads: Sum,
    /// Resident memory, bytes.
    pub rss: Sum,
    /// Virtual memory, bytes.
    pub size: Sum,
    /// Swapped-out anonymous memory, bytes.
    pub swap: Sum,
    /// Resident memory with shared pages shared out, bytes.
    pub pss: Sum,
    /// Swapped-out memory with shared pages shared out, bytes.
    pub swap_pss: Sum,
    /// Memory for graphics processors, bytes.
    pub gpu_memory: Sum,
    /// Open files.
    pub open: Sum,
    /// The largest share of its limit that a process has open.
    pub worst: Option<f64>,
    /// When the oldest process started, ns since 1970.
    pub oldest_ns: Option<u64>,
    /// Tasks by state.
    pub states: [u64; STATES.len()],
}

/// One account.
#[derive(Debug)]
pub struct Account {
    /// The labels of the account as text.
    pub labels: String,
    total: Counts,
    known: [bool; COUNTERS],
    /// The present values.
    pub now: Now,
    refs: u32,
    empty_since: Option<Instant>,
}

impl Account {
    /// A counter. `None`: it was not known for any process so far.
    pub fn total(&self, counter: usize) -> Option<u64> {
        self.known[counter].then_some(self.total[counter])
    }
    /// Adds the activity of a task. Counters that are not known stay as they are.
    pub fn grow(&mut self, by: &Counts) {
        for (counter, by) in by.iter().enumerate().filter(|(_, by)| **by != NONE) {
            self.total[counter] = self.total[counter].saturating_add(*by);
            self.known[counter] = true;
        }
    }
}

/// The number of an account in its ledger.
pub type Id = u32;

/// Accounts by their labels.
#[derive(Debug)]
pub struct Ledger {
    ids: HashMap<String, Id>,
    accounts: Vec<Option<Account>>,
    free: Vec<Id>,
    limit: usize,
    other: String,
    /// How long an account without processes is kept; `None` means for ever.
    keep: Option<Duration>,
}

impl Ledger {
    /// An empty one. `other` are the labels of the account beyond the limit.
    pub fn new(limit: usize, other: String, keep: Option<Duration>) -> Ledger {
        let (ids, accounts, free) = (HashMap::new(), Vec::new(), Vec::new());
        Ledger { ids, accounts, free, limit, other, keep }
    }
    /// The account with these labels. The task counts as a member until [`leave`](Self::leave).
    pub fn join(&mut self, labels: String) -> Id {
        let id = match self.ids.get(&labels) {
            Some(id) => *id,
            None => self.open(labels),
        };
        self.account(id).refs += 1;
        id
    }
    fn open(&mut self, mut labels: String) -> Id {
        // "other" is one more than the limit.
        let named = self.ids.len() - usize::from(self.ids.contains_key(&self.other));
        let room = named < self.limit || self.forget_one();
        if !room {
            labels = self.other.clone();
            if let Some(id) = self.ids.get(&labels) {
                return *id;
            }
        }
        let id = self.free.pop().unwrap_or_else(|| {
            self.accounts.push(None);
            self.accounts.len() as Id - 1
        });
        self.ids.insert(labels.clone(), id);
        self.accounts[id as usize] = Some(Account {
            labels,
            total: [0; COUNTERS],
            known: [false; COUNTERS],
            now: Now::default(),
            refs: 0,
            empty_since: None,
        });
        id
    }
    /// Makes room by forgetting the account that has been empty for the longest time.
    fn forget_one(&mut self) -> bool {
        let is_empty = |a: &&Account| a.refs == 0 && a.labels != self.other;
        let empty = self.accounts.iter().flatten().filter(is_empty);
        let oldest = empty.min_by_key(|a| a.empty_since).map(|a| a.labels.clone());
        oldest.is_some_and(|labels| self.forget(&labels))
    }
    fn forget(&mut self, labels: &str) -> bool {
        let Some(id) = self.ids.remove(labels) else { return false };
        self.accounts[id as usize] = None;
        self.free.push(id);
        true
    }
    /// Removes a task from an account.
    pub fn leave(&mut self, id: Id) {
        let account = self.account(id);
        account.refs -= 1;
        if account.refs == 0 {
            account.empty_since = Some(Instant::now());
        }
    }
    /// The account with this number. It exists as long as it has members.
    pub fn account(&mut self, id: Id) -> &mut Account {
        self.accounts[id as usize].as_mut().expect("a task is a part of it")
    }
    /// Prepares for the next answer: clears the present values, and removes accounts that have been
    /// empty for long.
    pub fn begin(&mut self) {
        self.forget_old();
        self.clear();
    }
    /// Clears the present values.
    pub fn clear(&mut self) {
        self.accounts.iter_mut().flatten().for_each(|a| a.now = Now::default());
    }
    /// Removes accounts that have been empty for long.
    pub fn forget_old(&mut self) {
        let keep = self.keep;
        let old = |a: &Account| {
            let for_long = |since: Instant| keep.is_some_and(|keep| since.elapsed() >= keep);
            a.refs == 0 && a.empty_since.is_some_and(for_long)
        };
        let old = self.accounts.iter().flatten().filter(|a| old(a)).map(|a| a.labels.clone());
        for labels in old.collect::<Vec<_>>() {
            self.forget(&labels);
        }
    }
    /// All accounts.
    pub fn all(&self) -> impl Iterator<Item = &Account> + Clone {
        self.accounts.iter().flatten()
    }
    /// How many there are.
    pub fn len(&self) -> usize {
        self.ids.len()
    }
    /// How many tasks are in the account "other".
    pub fn folded(&self) -> u64 {
        let other = self.ids.get(&self.other).and_then(|id| self.accounts[*id as usize].as_ref());
        other.map_or(0, |a| a.now.tasks)
    }
}

/// The growth of a task's counters from `last` to `new`, which becomes the new `last`. CPU times
/// that the kernel scales can seem to fall. Such a counter counts as unchanged, and its highest
/// value stays in `last`.
pub fn grown(last: &mut Counts, new: &Counts) -> Counts {
    std::array::from_fn(|i| match (last[i], new[i]) {
        (_, NONE) => NONE,
        (NONE, now) => {
            last[i] = now;
            0
        }
        (before, now) => {
            last[i] = now.max(before);
            now.saturating_sub(before)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(ledger: &Ledger) -> Vec<String> {
        let mut all: Vec<String> = ledger.all().map(|a| a.labels.clone()).collect();
        all.sort();
        all
    }

    #[test]
    fn counters_stay_when_tasks_leave() {
        let mut ledger = Ledger::new(10, "other".into(), None);
        let id = ledger.join("a".into());
        ledger.account(id).grow(&[7, NONE, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        ledger.leave(id);
        ledger.begin();
        let again = ledger.join("a".into());
        ledger.account(again).grow(&[3, NONE, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let account = ledger.all().next().expect("it is there");
        assert_eq!(
            (account.total(USER), account.total(SYSTEM), account.total(READ)),
            (Some(10), None, Some(0))
        );
    }

    #[test]
    fn a_ledger_has_a_limit() {
        let mut ledger = Ledger::new(2, "other".into(), None);
        let a = ledger.join("a".into());
        let b = ledger.join("b".into());
        let c = ledger.join("c".into());
        assert_eq!(ledger.join("d".into()), c);
        assert_eq!(labels(&ledger), ["a", "b", "other"]);
        ledger.account(c).now.tasks = 2;
        assert_eq!(ledger.folded(), 2);
        // Empty accounts make room. "other" is one account above the limit.
        ledger.leave(a);
        ledger.leave(c);
        ledger.leave(c);
        let e = ledger.join("e".into());
        assert_ne!(e, b);
        ledger.join("f".into());
        ledger.join("g".into());
        assert_eq!(labels(&ledger), ["b", "e", "other"]);
    }

    #[test]
    fn empty_accounts_are_removed_on_request() {
        for (keep, left) in
            [(None, 1), (Some(Duration::ZERO), 0), (Some(Duration::from_secs(600)), 1)]
        {
            let mut ledger = Ledger::new(2, "other".into(), keep);
            let id = ledger.join("a".into());
            ledger.begin();
            assert_eq!(ledger.len(), 1);
            ledger.leave(id);
            ledger.begin();
            assert_eq!(ledger.len(), left, "{keep:?}");
        }
    }

    #[test]
    fn counters_grow_and_never_fall() {
        let mut last = [5, NONE, 9, 1, NONE, 0, 0, 0, 0, 0, 0];
        let by = grown(&mut last, &[7, 3, 8, NONE, NONE, 0, 0, 0, 0, 0, 0]);
        assert_eq!(by, [2, 0, 0, NONE, NONE, 0, 0, 0, 0, 0, 0]);
        assert_eq!(last, [7, 3, 9, 1, NONE, 0, 0, 0, 0, 0, 0]);
        // Going back from 9 to 8 is no growth.
        assert_eq!(
            grown(&mut last, &[7, 3, 9, 2, 4, 0, 0, 0, 0, 0, 0]),
            [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]
        );
    }
}
