//! Follows processes from answer to answer, and adds up their activity.
//!
//! A process is identified by its pid and start time. It gets its group when it is first seen, by
//! the rules of the configuration or from its parent, and stays there. The growth of its counters
//! between two answers is added to its accounts, so that they do not fall when it ends.
//! `taskdiag::Rates` compares answers, too, but if one answer lacks a process, it would count as
//! new in the next one. Counters that are added up for months must not count it twice. So the last
//! counters of a process are kept here until two answers in a row lack it.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use taskdiag::field::{OwnerNames, Row, gpu_memory_once, since_boot};
use taskdiag::{
    Base, ByteLimits, Choice, Group, Groups, Members, Reason, Request, Session, Snapshot, TaskId,
    query_each, query_with,
};

use super::accounts::Accounts;
use super::config::{Config, Process};
use super::ledger::{Counts, GPU, Id, NONE, RECEIVED, SENT, grown, state};
use super::places::{self, Places, Where};
use super::shared::Shared;
use super::threads::{OfProcess, Threads};
use super::top::Top;
use super::values::{Gauges, counts, is_without, note_gaps};
use crate::args::{Families, GroupLabels};

/// The groups that each scrape requests about all processes. The set is written by hand: it has the
/// groups from which the metrics are made.
const GROUPS: Groups = Groups::BASE
    .union(Groups::STAT)
    .union(Groups::STATM)
    .union(Groups::IO)
    .union(Groups::SCHED)
    .union(Groups::FD_COUNT)
    .union(Groups::LIMITS);
/// The groups that are requested for a new process, and rarely after that. The set is written by
/// hand: it has the groups that the rules of the configuration use.
const IDENTITY: Groups =
    Groups::BASE.union(Groups::CMDLINE).union(Groups::CRED).union(Groups::CGROUP);
/// If there are more new processes than this, one walk over all processes asks about them.
const MANY: usize = 200;
/// A process may be moved to another control group, so `IDENTITY` is requested again for all
/// processes after this time.
const AGAIN: Duration = Duration::from_secs(300);
/// How often `IDENTITY` is requested for a new process: twice, because systemd moves it to its
/// control group after the fork.
const TIMES: u8 = 2;

/// The options of the tracker.
#[derive(Debug)]
pub struct Options {
    /// The rules of groups.
    pub config: Config,
    /// The engine that answers.
    pub engine: Choice,
    /// Which families are made.
    pub families: Families,
    /// Do children without a rule belong to the group of their parent?
    pub children: bool,
    /// Is the group of a process chosen again if the properties in the rules have changed?
    pub recheck: bool,
    /// Does a process that began before the first answer count with everything it did? If not, it
    /// counts from this answer on.
    pub from_start: bool,
    /// The largest number of accounts of each kind.
    pub limit: usize,
    /// Are groups removed when they are empty?
    pub remove_empty: bool,
    /// The labels that groups have in addition to their names.
    pub labels: GroupLabels,
    /// The number of names in the family `top`.
    pub top: usize,
    /// Does `top` show single processes?
    pub top_pids: bool,
}

/// Which group a process belongs to.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Member {
    Undecided,
    None,
    Of(Id),
}

/// A process.
#[derive(Debug)]
struct TrackedProcess {
    id: TaskId,
    ppid: u32,
    comm: [u8; 16],
    /// The number of the last answer that had it.
    seen: u64,
    /// How often `IDENTITY` was requested for it.
    asked: u8,
    group: Member,
    place: Where,
    /// The last counters of the process. `None`: they were never read.
    last: Option<Counts>,
    /// The bytes that it has sent and received over the connections that were seen.
    network: [u64; 2],
    /// The time in which engines of graphics processors were seen to work for it, ns.
    gpu_ns: u64,
    threads: u32,
    /// Has it several threads, or had it several before?
    had_several: bool,
    /// Counts of its threads from before this time since boot (ns) are already included, or are
    /// ignored.
    threads_from_ns: u64,
    /// The number of its present membership in a group.
    membership: u64,
    /// A hash of the values that the rules for groups use.
    looks: u64,
    /// Does it have the group of an ancestor?
    is_inherited: bool,
    /// The labels that its group has in addition to the name.
    labels: String,
}

/// Statistics of this program's requests.
#[derive(Debug, Default)]
pub struct Health {
    /// How long it took.
    pub took: Duration,
    /// How many answers there were.
    pub scrapes: u64,
    /// How many requests failed.
    pub failures: u64,
    /// Processes in the last answer.
    pub processes: u64,
    /// Values that the last answer lacks, by group and reason.
    pub gaps: HashMap<(Group, Reason), u64>,
    /// The sum of these over all answers.
    pub gaps_total: u64,
    /// The engines that answered, and for which walk.
    pub engines: Vec<(&'static str, &'static str)>,
    /// When the machine was started, s since 1970.
    pub boot_unix_s: i64,
}

/// The processes that are followed, and all accounts.
#[derive(Debug)]
pub struct Tracker {
    /// What to follow, and how.
    pub options: Options,
    session: Option<Session>,
    sockets: Shared<2>,
    engines: Shared<1>,
    owners: OwnerNames,
    known: HashMap<u32, TrackedProcess>,
    /// How often a process has joined a group.
    memberships: u64,
    first_ns: Option<u64>,
    again: Instant,
    /// Groups of the configuration.
    pub accounts: Accounts,
    /// Units, slices and containers.
    pub places: Places,
    /// The known threads.
    pub threads: Threads,
    /// Who uses most.
    pub top: Top,
    /// Processes by state letter.
    pub states: HashMap<u8, u64>,
    /// Statistics of this program's requests.
    pub health: Health,
}

impl Tracker {
    /// No request has been made yet.
    pub fn new(options: Options) -> Tracker {
        let keep = options.remove_empty.then_some(Duration::ZERO);
        Tracker {
            session: None,
            sockets: Shared::default(),
            engines: Shared::default(),
            owners: OwnerNames::default(),
            known: HashMap::new(),
            memberships: 0,
            first_ns: None,
            again: Instant::now(),
            accounts: Accounts::new(options.limit, keep),
            places: Places::new(options.limit),
            threads: Threads::new(options.limit, options.families),
            top: Top::default(),
            states: HashMap::new(),
            health: Health::default(),
            options,
        }
    }
    /// Requests all processes, and brings all accounts up to date.
    ///
    /// # Errors
    /// There is no answer, or it is not complete. The accounts stay as they were.
    pub fn scrape(&mut self) -> Result<(), String> {
        let begin = Instant::now();
        let done = self.ask();
        match done {
            Ok(()) => self.health.scrapes += 1,
            Err(_) => self.health.failures += 1,
        }
        self.health.took = begin.elapsed();
        done
    }
    fn ask(&mut self) -> Result<(), String> {
        let mut session = match self.session.take() {
            Some(session) => session,
            None => {
                let members =
                    Members::of(Groups::BASE, &["ppid", "flags", "state", "start_time_ns", "comm"])
                        .union(Members::of(
                            Groups::STAT,
                            &["minflt", "majflt", "utime_ns", "stime_ns", "num_threads"],
                        ))
                        .union(Members::of(
                            Groups::STATM,
                            &["size_bytes", "rss_bytes", "swap_bytes"],
                        ));
                let pages = if self.options.families.pss { Groups::ROLLUP } else { Groups::NONE };
                let net = if self.options.families.network { Groups::NET } else { Groups::NONE };
                let gpu = if self.options.families.gpu { Groups::GPU } else { Groups::NONE };
                let request = Request::all(GROUPS | pages | net | gpu).with_members(members);
                Session::open(request, self.options.engine).map_err(|e| e.to_string())?
            }
        };
        let done = session.refresh().map(|_| ()).map_err(|e| e.to_string());
        let done =
            done.and_then(|()| self.take(session.snapshot().expect("it was just refreshed")));
        self.session = Some(session);
        done
    }
    fn take(&mut self, snapshot: &Snapshot) -> Result<(), String> {
        if snapshot.stream().done().error != 0 {
            return Err(String::from("the list of processes ended early"));
        }
        let info = snapshot.stream().info();
        let now_ns = info.boottime_ns;
        let first_ns = *self.first_ns.get_or_insert(now_ns);
        if self.health.scrapes == 0 {
            // The boot time is computed once, because start times must not move when the clock is
            // set.
            let boot_ns = i128::from(info.realtime_ns) - i128::from(info.boottime_ns);
            self.health.boot_unix_s = boot_ns.div_euclid(1_000_000_000) as i64;
        }
        let asked = self.whom_to_ask(snapshot);
        self.identify(&asked, first_ns)?;
        self.accounts.begin();
        self.places.begin();
        self.top.begin(now_ns);
        self.sockets.begin();
        self.engines.begin();
        let mut regions = HashSet::new();
        self.states.clear();
        self.health.gaps.clear();
        self.health.processes = snapshot.tasks().len() as u64;
        self.health.engines.clear();
        self.note_engines(snapshot, "processes");
        let (seen, from_start) = (self.health.scrapes, self.options.from_start);
        let is_wanted = self.options.families;
        for task in snapshot.tasks() {
            let row = Row::new(task);
            note_gaps(&row, &mut self.health.gaps);
            let letter = row.state().unwrap_or(b'?');
            *self.states.entry(letter).or_default() += 1;
            // A process that shares its memory with a process of its group is not counted again.
            let counted_in = task
                .shared(Group::Rollup)
                .and_then(|pid| self.known.get(&pid))
                .map_or(Member::None, |owner| owner.group);
            let Some(known) = self.known.get_mut(&task.pid()) else { continue };
            if TaskId::of(&task).is_none_or(|id| !known.id.is_same(&id)) {
                // The process that was identified has ended since, and another one has its pid.
                continue;
            }
            known.seen = seen;
            let mut new = counts(&row);
            if let Some(by) = is_wanted.network.then(|| self.sockets.sockets(&row)).flatten() {
                for (all, by) in known.network.iter_mut().zip(by) {
                    *all = all.saturating_add(by);
                }
                [new[SENT], new[RECEIVED]] = known.network;
            }
            let mut gpu_memory = None;
            if is_wanted.gpu {
                // Kernel threads and zombies have no open files.
                let has_none = is_without(&row, Group::Gpu);
                if let Some([ns]) = self.engines.engines(&row).or(has_none.then_some([0])) {
                    known.gpu_ns = known.gpu_ns.saturating_add(ns);
                    new[GPU] = known.gpu_ns;
                }
                gpu_memory = gpu_memory_once(&row, &mut regions).or(has_none.then_some(0));
            }
            let by = match &mut known.last {
                Some(last) => grown(last, &new),
                None => {
                    known.last = Some(new);
                    let counts_all =
                        from_start || since_boot(known.id.start_ns()) > since_boot(first_ns);
                    new.map(|n| if counts_all || n == NONE { n } else { 0 })
                }
            };
            let threads = row.stat.and_then(|r| r.num_threads());
            known.threads = threads.unwrap_or(1);
            known.had_several |= known.threads > 1;
            let gauges = Gauges { gpu_memory, ..Gauges::of(&row, known.id.start_ns(), threads) };
            if let Member::Of(id) = known.group {
                let mut gauges = gauges;
                if known.group == counted_in {
                    (gauges.pss, gauges.swap_pss) = (Some(0), Some(0));
                }
                self.accounts.add(id, &by, &gauges, state(letter));
            }
            self.places.add(&known.place, &by, &gauges);
            if is_wanted.top {
                self.top.add(task.pid(), row.comm.unwrap_or(b"?"), &by, gauges.rss.unwrap_or(0));
            }
        }
        self.health.gaps_total += self.health.gaps.values().sum::<u64>();
        if is_wanted.top {
            self.top.choose(self.options.top, self.options.top_pids);
        }
        self.forget_ended(seen);
        self.walk_threads()
    }
    /// Requests threads for their states and accounts, if one of the families needs them.
    fn walk_threads(&mut self) -> Result<(), String> {
        let families = self.options.families;
        let many = self.known.values().any(|k| k.had_several && k.group != Member::None);
        let always = families.wchan || families.waits || families.deadlocks;
        if !(always || families.threads && many) {
            self.threads.skip();
            return Ok(());
        }
        let known = &self.known;
        let process = |pid: u32| {
            let process = known.get(&pid)?;
            match process.group {
                Member::Of(group) => Some(OfProcess {
                    group,
                    membership: process.membership,
                    has_several: process.threads > 1,
                    is_followed: process.had_several,
                    counts_from_ns: process.threads_from_ns,
                }),
                _ => None,
            }
        };
        let (engines, at_ns) =
            self.threads.scrape(self.options.engine, &mut self.accounts, &process)?;
        for known in self.known.values_mut().filter(|k| k.had_several) {
            known.threads_from_ns = at_ns;
        }
        self.health.engines.extend(engines.into_iter().map(|e| (e, "threads")));
        Ok(())
    }
    fn note_engines(&mut self, snapshot: &Snapshot, walk: &'static str) {
        for served in snapshot.served() {
            let one = (served.engine.name(), walk);
            if !self.health.engines.contains(&one) {
                self.health.engines.push(one);
            }
        }
    }
    /// The processes that have to be identified: new ones, processes that run another program, and
    /// processes whose identity is old. Removes an ended process whose pid is in use again.
    fn whom_to_ask(&mut self, snapshot: &Snapshot) -> Vec<u32> {
        // A program may overwrite its arguments at any time, which changes nothing else.
        let all = self.options.recheck || self.again.elapsed() >= AGAIN;
        if all {
            self.again = Instant::now();
        }
        let mut asked = Vec::new();
        for task in snapshot.tasks() {
            let Some(base) = task.record::<Base>() else { continue };
            // Without a start time a later process could not be distinguished from it.
            let Some(id) = TaskId::of(&task) else { continue };
            let is_due = match self.known.get_mut(&task.pid()) {
                Some(known) if known.id.is_same(&id) => {
                    all || known.asked < TIMES || known.comm != base.raw().comm
                }
                Some(_) => {
                    self.forget(task.pid());
                    true
                }
                None => true,
            };
            if is_due {
                asked.push(task.pid());
            }
        }
        asked
    }
    /// Requests `IDENTITY` for these processes, and puts new ones into groups.
    fn identify(&mut self, pids: &[u32], first_ns: u64) -> Result<(), String> {
        if pids.is_empty() {
            return Ok(());
        }
        let members = Members::of(Groups::BASE, &["ppid", "flags", "start_time_ns", "comm"])
            .union(Members::of(Groups::CRED, &["euid"]));
        let answer = if pids.len() > MANY || self.options.recheck && !self.known.is_empty() {
            let request = Request::all(IDENTITY)
                .with_members(members)
                .with_text_bytes(ByteLimits::SHORT_TEXT);
            query_with(&request, self.options.engine)
        } else {
            let one = |pid: &u32| {
                Request::one(*pid, IDENTITY)
                    .with_members(members)
                    .with_text_bytes(ByteLimits::SHORT_TEXT)
            };
            let requests: Vec<Request> = pids.iter().map(one).collect();
            query_each(&requests, self.options.engine).map(|(answer, _)| answer)
        };
        let answer = answer.map_err(|e| e.to_string())?;
        let info = answer.stream().info();
        let boot_ns = i128::from(info.realtime_ns) - i128::from(info.boottime_ns);
        let mut new = Vec::new();
        for pid in pids {
            // The process has ended. If its pid is reused, the new process is identified at the
            // next answer.
            let Some(task) = answer.task(*pid) else { continue };
            let row = Row::new(task);
            let Some(base) = row.base else { continue };
            let Some(id) = TaskId::of(&task) else { continue };
            let place = self.places.find(&row, self.options.families);
            let known = self.known.get(pid);
            // The second look decides again: a process is often first seen between its fork and
            // exec.
            let is_decided_again = known.is_none_or(|k| k.asked < TIMES) || self.options.recheck;
            let process = is_decided_again.then(|| self.process(&row, boot_ns));
            let looks = process.as_ref().map_or(0, Process::looks);
            match self.known.get_mut(pid) {
                Some(known) if known.id.is_same(&id) => {
                    let is_second = known.asked < TIMES;
                    (known.comm, known.asked) = (base.raw().comm, TIMES.min(known.asked + 1));
                    let before = std::mem::replace(&mut known.place, place);
                    self.places.leave(&before);
                    if let Some(process) = process.filter(|_| is_second || known.looks != looks) {
                        known.looks = looks;
                        new.push((*pid, process));
                    }
                }
                // Another process has the pid by now; it will be in the next answer.
                Some(_) => self.places.leave(&place),
                None => {
                    let known = TrackedProcess {
                        id,
                        ppid: base.ppid().unwrap_or(0),
                        comm: base.raw().comm,
                        seen: self.health.scrapes,
                        asked: 1,
                        group: Member::Undecided,
                        place,
                        last: None,
                        network: [0; 2],
                        gpu_ns: 0,
                        threads: 1,
                        had_several: false,
                        threads_from_ns: if self.options.from_start { 0 } else { first_ns },
                        membership: 0,
                        looks,
                        is_inherited: false,
                        labels: String::new(),
                    };
                    self.known.insert(*pid, known);
                    new.extend(process.map(|process| (*pid, process)));
                }
            }
        }
        self.decide(&new, info.boottime_ns);
        Ok(())
    }
    /// The values of a process that the rules need.
    fn process(&self, row: &Row<'_>, boot_ns: i128) -> Process {
        let line = row.view.cmdline().map(|b| b.data.into_owned()).unwrap_or_default();
        let end = line.iter().rposition(|b| *b != 0).map_or(0, |at| at + 1);
        let argv: Vec<Vec<u8>> = match end {
            0 => Vec::new(),
            end => line[..end].split(|b| *b == 0).map(<[u8]>::to_vec).collect(),
        };
        let uid = row.cred.and_then(|r| r.euid());
        let user = uid.map(|uid| match self.owners.user(uid) {
            Some(name) => name.to_vec(),
            None => uid.to_string().into_bytes(),
        });
        let start_ns = row.base.and_then(|r| r.start_time_ns()).unwrap_or(0);
        let paths = row.view.cgroups().filter_map(|(_, entry)| taskdiag::cgroup::path_of(entry));
        Process {
            comm: row.comm.unwrap_or_default().to_vec(),
            argv,
            username: user.unwrap_or_default(),
            pid: row.view.pid(),
            start_unix_ns: boot_ns + i128::from(since_boot(start_ns)),
            cgroups: match self.options.config.needs_cgroups() {
                true => paths.map(<[u8]>::to_vec).collect(),
                false => Vec::new(),
            },
            labels: places::group_labels(row, self.options.labels),
        }
    }
    /// Puts processes into groups: first those that fit a rule, then those with an ancestor in a
    /// group. If a process moves, its descendants that had inherited its group move with it.
    /// `now_ns` is the time since boot.
    fn decide(&mut self, new: &[(u32, Process)], now_ns: u64) {
        // Accounts are left at the end, so that their numbers are not in use again before.
        let mut before: HashMap<u32, Member> = HashMap::new();
        for (pid, _) in new {
            before.insert(*pid, self.undecide(*pid));
        }
        for (pid, process) in new {
            let known = self.known.get_mut(pid).expect("it was just put there");
            known.labels.clone_from(&process.labels);
            if let Some(name) = self.options.config.name(process) {
                let id = self.accounts.join(&name, &process.labels);
                (known.group, known.is_inherited) = (Member::Of(id), false);
            }
        }
        self.inherit(new.iter().map(|(pid, _)| *pid));
        let has_moved = |(pid, before): (&u32, &Member)| {
            *before != Member::Undecided && self.known[pid].group != *before
        };
        if self.options.children && before.iter().any(has_moved) {
            let moved: HashSet<u32> =
                before.iter().filter(|one| has_moved(*one)).map(|(pid, _)| *pid).collect();
            let is_left = |pid: &u32| !before.contains_key(pid) && self.heir_of_one(*pid, &moved);
            let left: Vec<u32> = self.known.keys().copied().filter(is_left).collect();
            for pid in &left {
                before.insert(*pid, self.undecide(*pid));
            }
            self.inherit(left.into_iter());
        }
        for (pid, before) in before {
            let known = self.known.get_mut(&pid).expect("it was just looked at");
            if known.group != before {
                self.memberships += 1;
                known.membership = self.memberships;
                if before != Member::Undecided {
                    known.threads_from_ns = now_ns;
                }
            }
            if let Member::Of(id) = before {
                self.accounts.leave(id);
            }
        }
    }
    fn undecide(&mut self, pid: u32) -> Member {
        let known = self.known.get_mut(&pid).expect("it is known");
        std::mem::replace(&mut known.group, Member::Undecided)
    }
    /// Whether a process has inherited its group from one of these, directly or through parents
    /// that inherited it, too.
    fn heir_of_one(&self, pid: u32, of: &HashSet<u32>) -> bool {
        let mut line = Vec::new();
        let mut at = pid;
        while let Some(known) = self.known.get(&at).filter(|k| k.is_inherited) {
            // Parents can form a circle if pids are reused between two answers.
            if line.contains(&at) {
                return false;
            }
            line.push(at);
            at = known.ppid;
            // The parent may have ended, and a younger process may have its pid.
            let is_older = |k: &TrackedProcess| k.id.is_no_younger(&known.id);
            if !self.known.get(&at).is_some_and(is_older) {
                return false;
            }
            if of.contains(&at) {
                return true;
            }
        }
        false
    }
    /// Puts processes that fit no rule into the groups of their ancestors.
    fn inherit(&mut self, pids: impl Iterator<Item = u32>) {
        for pid in pids {
            let mut line = Vec::new();
            let mut at = pid;
            let group = loop {
                match self.known.get(&at) {
                    Some(known) if known.group == Member::Undecided => {
                        // Parents can form a circle if pids are reused between two answers.
                        if !self.options.children && !line.is_empty() || line.contains(&at) {
                            break Member::None;
                        }
                        line.push(at);
                        at = known.ppid;
                    }
                    Some(_) if line.is_empty() => break Member::None,
                    Some(known) if self.options.children => break known.group,
                    _ => break Member::None,
                }
            };
            for pid in line {
                let known = self.known.get_mut(&pid).expect("it was just looked at");
                let own = match group {
                    Member::Of(id) => Member::Of(self.accounts.hold(id, &known.labels)),
                    other => other,
                };
                (known.group, known.is_inherited) = (own, true);
            }
        }
    }
    fn forget(&mut self, pid: u32) {
        if let Some(known) = self.known.remove(&pid) {
            if let Member::Of(id) = known.group {
                self.accounts.leave(id);
            }
            self.places.leave(&known.place);
        }
    }
    /// Removes processes that neither this answer nor the previous one had.
    fn forget_ended(&mut self, seen: u64) {
        let old: Vec<u32> =
            self.known.iter().filter(|(_, k)| k.seen + 1 < seen).map(|(pid, _)| *pid).collect();
        old.into_iter().for_each(|pid| self.forget(pid));
    }
}
