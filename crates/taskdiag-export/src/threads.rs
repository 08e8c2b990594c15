//! Threads: their states, what they wait for, and accounts of those with the same name in a group.
//!
//! As in process-exporter, there are accounts only for threads of processes with several threads,
//! and an account is removed when the last thread of its name has ended. A process that once had
//! several threads is followed until it ends, even while it has one. Otherwise, its first thread
//! would look new each time a second one begins, and count again with everything it ever did.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use taskdiag::field::Row;
use taskdiag::why::{Graph, Limits, NoHolder, Waits};
use taskdiag::{
    Choice, Groups, Members, Request, Session, Snapshot, Strategy, TaskId, Wait, WaitKind,
};

use super::accounts::Accounts;
use super::ledger::{Counts, Id, Ledger, NONE, OTHER, STATES, grown, state};
use super::text::label;
use super::values::counts;
use crate::args::Families;

#[derive(Debug)]
struct TrackedThread {
    id: TaskId,
    comm: [u8; 16],
    /// The number of the last answer that had it.
    seen: u64,
    /// The membership of its process in a group when it joined its account.
    membership: u64,
    /// `None`: the last answer lacked the thread, so it has left its account.
    account: Option<Id>,
    last: Counts,
}

/// Known facts about the process of a thread.
#[derive(Clone, Copy, Debug)]
pub struct OfProcess {
    /// Its group.
    pub group: Id,
    /// A number that changes when the process moves to another group. The group's own number may be
    /// in use again.
    pub membership: u64,
    /// Whether it has several threads at present.
    pub has_several: bool,
    /// Whether it has several threads, or had several before.
    pub is_followed: bool,
    /// When a thread is first seen that began before this time since boot (ns), its counts so far
    /// are ignored.
    pub counts_from_ns: u64,
}

/// Threads that wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlocks {
    /// How many cycles of waits there are.
    pub cycles: u64,
    /// The number of waits that could not be looked up. They may be part of further cycles.
    pub unseen: u64,
}

/// The time limit for one look at a holder, and for all looks of a scrape.
const LOOK: Duration = Duration::from_millis(100);
const LOOKS: Duration = Duration::from_secs(1);

/// The known threads and their accounts.
#[derive(Debug)]
pub struct Threads {
    session: Option<Session>,
    families: Families,
    limit: usize,
    known: HashMap<u32, TrackedThread>,
    scans: u64,
    /// Accounts by group and thread name.
    pub names: Ledger,
    /// How many threads wait in a kernel function, by group.
    waits: HashMap<Id, HashMap<Vec<u8>, u64>>,
    /// How many threads of a group wait in a kernel function, by labels.
    pub wchans: HashMap<String, u64>,
    /// How many threads wait for a kind of thing, by the labels of their group. The kinds are a
    /// closed list.
    pub kinds: BTreeMap<(String, &'static str), u64>,
    /// Threads that wait for each other. `None`: deadlocks were not searched for.
    pub deadlocks: Option<Deadlocks>,
    /// All threads by state letter. `None`: threads were not walked.
    pub states: Option<HashMap<u8, u64>>,
}

impl Threads {
    /// No request has been made yet.
    pub fn new(limit: usize, families: Families) -> Threads {
        let other = format!("{},{}", label("groupname", OTHER), label("threadname", OTHER));
        Threads {
            session: None,
            families,
            limit,
            known: HashMap::new(),
            scans: 0,
            names: Ledger::new(limit, other, Some(Duration::ZERO)),
            waits: HashMap::new(),
            wchans: HashMap::new(),
            kinds: BTreeMap::new(),
            deadlocks: None,
            states: None,
        }
    }
    /// There is no request for threads this time, because no metric needs it. Accounts are
    /// forgotten: their threads may have ended.
    pub fn skip(&mut self) {
        self.states = None;
        self.wchans.clear();
        self.kinds.clear();
        self.deadlocks = None;
        self.leave(|_| (true, true));
    }
    /// Removes the threads for which `is_gone` is true, from their accounts or completely, and then
    /// accounts without threads.
    fn leave(&mut self, is_gone: impl Fn(&TrackedThread) -> (bool, bool)) {
        let names = &mut self.names;
        self.known.retain(|_, known| {
            let (leaves, is_forgotten) = is_gone(known);
            if let Some(account) = known.account.take_if(|_| leaves) {
                names.leave(account);
            }
            !is_forgotten
        });
        names.forget_old();
    }
    /// Requests all threads. `process` looks up data about a process in a group. Returns the
    /// engines that answered, and the time since boot when the walk began, ns.
    ///
    /// # Errors
    /// There is no answer.
    pub fn scrape(
        &mut self,
        engine: Choice,
        accounts: &mut Accounts,
        process: &dyn Fn(u32) -> Option<OfProcess>,
    ) -> Result<(Vec<&'static str>, u64), String> {
        let mut session = match self.session.take() {
            Some(session) => session,
            None => {
                let mut groups = Groups::BASE | Groups::STAT | Groups::IO | Groups::SCHED;
                if self.families.wchan {
                    groups |= Groups::WCHAN;
                }
                if self.families.waits || self.families.deadlocks {
                    groups |= Groups::WAIT;
                }
                let of_base = ["state", "start_time_ns", "comm", "flags", "ppid", "pgid"];
                let of_base = if self.families.deadlocks { &of_base[..] } else { &of_base[..4] };
                let members = Members::of(Groups::BASE, of_base).union(Members::of(
                    Groups::STAT,
                    &["minflt", "majflt", "utime_ns", "stime_ns"],
                ));
                let request = Request::new(Strategy::AllThread, 0, groups).with_members(members);
                Session::open(request, engine).map_err(|e| e.to_string())?
            }
        };
        let done = session.refresh().map_err(|e| e.to_string()).and_then(|snapshot| {
            self.take(snapshot, accounts, process)?;
            self.deadlocks = self.families.deadlocks.then(|| deadlocks(snapshot, engine));
            let mut engines: Vec<_> = snapshot.served().iter().map(|s| s.engine.name()).collect();
            engines.dedup();
            Ok((engines, snapshot.stream().info().boottime_ns))
        });
        self.session = Some(session);
        done
    }
    fn take(
        &mut self,
        snapshot: &Snapshot,
        accounts: &mut Accounts,
        process: &dyn Fn(u32) -> Option<OfProcess>,
    ) -> Result<(), String> {
        if snapshot.stream().done().error != 0 {
            return Err(String::from("the list of threads ended early"));
        }
        self.scans += 1;
        self.names.clear();
        self.wchans.clear();
        self.kinds.clear();
        let mut states: HashMap<u8, u64> = HashMap::new();
        let mut kinds: HashMap<(Id, &'static str), u64> = HashMap::new();
        let mut of_group: HashMap<Id, [u64; STATES.len()]> = HashMap::new();
        for task in snapshot.tasks() {
            let row = Row::new(task);
            let letter = row.state().unwrap_or(b'?');
            *states.entry(letter).or_default() += 1;
            let Some(process) = process(task.tgid()) else { continue };
            let id = process.group;
            of_group.entry(id).or_default()[state(letter)] += 1;
            if self.families.wchan {
                self.note_wchan(&row, id);
            }
            if self.families.waits {
                let wait = task.record::<Wait>();
                let kind = wait.and_then(|w| w.kind()).and_then(WaitKind::from_number);
                *kinds.entry((id, kind.map_or("unknown", WaitKind::name))).or_default() += 1;
            }
            if process.is_followed {
                self.count(&row, accounts.labels(id), process);
            }
        }
        self.name_wchans(accounts);
        for ((id, kind), n) in kinds {
            *self.kinds.entry((accounts.labels(id).to_owned(), kind)).or_default() += n;
        }
        for (id, states) in of_group {
            accounts.put_states(id, states);
        }
        self.states = Some(states);
        // This comes last, so that an account stays if another thread with its name has begun. A
        // counter must not fall from one answer to the next, but an account that is missing from an
        // answer may start again. The counters of a thread are kept for one more answer. If only
        // one answer lacks the thread, its earlier counts must not be added again.
        let scans = self.scans;
        self.leave(|known| (known.seen < scans, known.seen + 1 < scans));
        Ok(())
    }
    fn note_wchan(&mut self, row: &Row<'_>, id: Id) {
        let wchan = row.view.wchan().map(|b| b.data).unwrap_or_default();
        // /proc shows 0 for a thread that does not wait.
        if wchan.is_empty() || *wchan == *b"0" {
            return;
        }
        let of_group = self.waits.entry(id).or_default();
        match of_group.get_mut(&*wchan) {
            Some(n) => *n += 1,
            None => _ = of_group.insert(wchan.into_owned(), 1),
        }
    }
    /// Turns the counts into labels.
    fn name_wchans(&mut self, accounts: &mut Accounts) {
        for (id, of_group) in &mut self.waits {
            for (wchan, n) in of_group.drain() {
                let mut labels = format!("{},{}", accounts.labels(*id), label("wchan", &wchan));
                if self.wchans.len() >= self.limit && !self.wchans.contains_key(&labels) {
                    labels = format!("{},{}", label("groupname", OTHER), label("wchan", OTHER));
                }
                *self.wchans.entry(labels).or_default() += n;
            }
        }
        self.waits.clear();
    }
    fn count(&mut self, row: &Row<'_>, group: &str, process: OfProcess) {
        let Some(base) = row.base else { return };
        let Some(id) = TaskId::of(&row.view) else { return };
        let new = counts(row);
        let known = self.known.entry(row.view.pid());
        let is_same = |k: &TrackedThread| k.id.is_same(&id);
        let (known, by) = match known {
            Entry::Occupied(known) if is_same(known.get()) => {
                let known = known.into_mut();
                let by = grown(&mut known.last, &new);
                (known, by)
            }
            known => {
                // All its counts are new: the thread began after the last walk, or its process was
                // not followed then. The counts of an older thread were added before.
                let counts_all =
                    process.counts_from_ns == 0 || id.may_have_begun_since(process.counts_from_ns);
                let by = new.map(|n| if counts_all || n == NONE { n } else { 0 });
                let this = TrackedThread {
                    id,
                    comm: base.raw().comm,
                    seen: 0,
                    membership: process.membership,
                    account: None,
                    last: new,
                };
                let known = match known {
                    Entry::Occupied(mut known) => {
                        if let Some(account) = known.insert(this).account {
                            self.names.leave(account);
                        }
                        known.into_mut()
                    }
                    Entry::Vacant(known) => known.insert(this),
                };
                (known, by)
            }
        };
        known.seen = self.scans;
        // Counts under the thread's old name, or in its old group, stay in that account.
        let is_moved = known.comm != base.raw().comm || known.membership != process.membership;
        (known.comm, known.membership) = (base.raw().comm, process.membership);
        if let Some(account) = known.account.take_if(|_| is_moved) {
            self.names.leave(account);
        }
        let account = *known.account.get_or_insert_with(|| {
            let name = label("threadname", row.comm.unwrap_or(b"?"));
            self.names.join(format!("{group},{name}"))
        });
        let account = self.names.account(account);
        account.grow(&by);
        account.now.tasks += u64::from(process.has_several);
    }
}

/// The threads of an answer that wait for each other.
fn deadlocks(snapshot: &Snapshot, engine: Choice) -> Deadlocks {
    let mut waits = Waits::of(snapshot);
    let mut limits = Limits::default();
    (limits.each, limits.all) = (LOOK, LOOKS);
    waits.look_up(0..waits.all().len(), engine, limits);
    let cycles = Graph::new(&waits).cycles().len() as u64;
    let is_unseen = |w: &&taskdiag::why::Wait| {
        w.is_waiting()
            && (w.is_unseen() || matches!(w.holder, Err(NoHolder::NotLookedAt | NoHolder::Blocked)))
    };
    Deadlocks { cycles, unseen: waits.all().iter().filter(is_unseen).count() as u64 }
}

#[cfg(test)]
mod tests {
    use super::super::ledger::{MAJOR, USER};
    use super::*;
    use taskdiag::wire::{Done, StreamWriter};
    use taskdiag::{Base, Stat};

    /// An answer with these threads of the process 10: tid, name, and CPU time in user mode in ns.
    fn answer(threads: &[(u32, &str, u64)]) -> Snapshot {
        let mut w = StreamWriter::new();
        w.info(&StreamWriter::blank_info());
        for (tid, name, utime_ns) in threads {
            w.begin_task(*tid, 10);
            let mut base = Base::new();
            (base.valid, base.start_time_ns) = (Base::ALL_VALID, u64::from(*tid));
            w.put_base(&base, name.as_bytes());
            let mut stat = Stat::new();
            (stat.valid, stat.utime_ns) = (Stat::ALL_VALID, *utime_ns);
            w.put(&stat);
            w.end_task();
        }
        Snapshot::parse(w.finish(Done::default())).expect("it is whole")
    }

    struct Scans(Threads, Accounts, Id);

    impl Scans {
        fn new() -> Scans {
            let mut accounts = Accounts::new(10, None);
            let id = accounts.join(b"g", "");
            Scans(Threads::new(10, Families::default()), accounts, id)
        }
        /// Takes an answer, and returns the threads and the CPU time of each name.
        fn take(&mut self, threads: &[(u32, &str, u64)]) -> Vec<(String, u64, u64)> {
            let Scans(all, accounts, id) = self;
            let process = OfProcess {
                group: *id,
                membership: 1,
                has_several: true,
                is_followed: true,
                counts_from_ns: 0,
            };
            all.take(&answer(threads), accounts, &|_| Some(process)).expect("it is whole");
            self.names()
        }
        fn names(&self) -> Vec<(String, u64, u64)> {
            let one = |a: &super::super::ledger::Account| {
                assert_eq!(a.total(MAJOR), Some(0));
                let name = a.labels.split('"').nth(3).expect("the second label").to_owned();
                (name, a.now.tasks, a.total(USER).expect("it is known"))
            };
            let mut all: Vec<_> = self.0.names.all().map(one).collect();
            all.sort();
            all
        }
    }

    fn one(name: &str, threads: u64, ns: u64) -> Vec<(String, u64, u64)> {
        vec![(name.into(), threads, ns)]
    }

    #[test]
    fn counters_of_a_name_do_not_fall() {
        let mut scans = Scans::new();
        assert_eq!(scans.take(&[(11, "a", 100)]), one("a", 1, 100));
        // The thread ended, and another one with its name began: the account continues.
        assert_eq!(scans.take(&[(12, "a", 5)]), one("a", 1, 105));
        // No thread has the name. A thread that comes later has a smaller account of its own.
        assert_eq!(scans.take(&[(13, "b", 1)]), one("b", 1, 1));
        assert_eq!(scans.take(&[(14, "a", 7)]), one("a", 1, 7));
    }

    #[test]
    fn threads_are_forgotten_while_nobody_asks_about_them() {
        let mut scans = Scans::new();
        assert_eq!(scans.take(&[(11, "a", 100), (12, "a", 1)]), one("a", 2, 101));
        scans.0.skip();
        assert_eq!(scans.names(), []);
        assert_eq!(scans.take(&[(12, "a", 2)]), one("a", 1, 2));
    }
}
