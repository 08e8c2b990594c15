//! Follows processes from answer to answer, and keeps the accounts of what they do.
//!
//! A process is known by its pid and start time. It is put into its group when it is first seen, by the rules of the
//! configuration or with its parent, and stays there. What it does between two answers is added to its accounts, so that
//! they do not fall when it ends. `taskdiag::Rates` compares answers, too, but a process that one answer lacks would count as new
//! in the next one. Counters that are added up for months must not count it twice. So the last counters of a process are kept here,
//! until two answers in a row lack it.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use taskdiag::field::{OwnerNames, Row};
use taskdiag::{
    Base, Choice, Cred, Group, Groups, Members, Reason, Request, Session, Snapshot, Stat,
    query_each, query_with,
};

use super::accounts::Accounts;
use super::config::{Config, Process};
use super::ledger::{Counts, Id, NONE, grown, state};
use super::places::{Places, Where};
use super::threads::Threads;
use super::top::Top;
use super::values::{Gauges, counts, note_gaps};
use crate::args::export::Families;
use crate::limits::SHORT_TEXT;

/// The groups that each scrape requests about all processes.
const GROUPS: Groups = Groups::BASE
    .union(Groups::STAT)
    .union(Groups::STATM)
    .union(Groups::IO)
    .union(Groups::SCHED)
    .union(Groups::FD_COUNT)
    .union(Groups::LIMITS);
/// The groups that are requested about a process when it is new, and seldom after that.
const IDENTITY: Groups =
    Groups::BASE.union(Groups::CMDLINE).union(Groups::CRED).union(Groups::CGROUP);
/// If there are more new processes than this, one walk over all processes asks about them.
const MANY: usize = 200;
/// A process may be moved to another control group, so `IDENTITY` is requested again for all processes after this time.
const AGAIN: Duration = Duration::from_secs(300);
/// How often `IDENTITY` is requested for a new process: twice, because systemd moves it to its control group after the fork.
const TIMES: u8 = 2;
/// Start times in /proc are rounded down to a tick, which is at most this long.
const TICK_NS: u64 = 10_000_000;

/// What to follow, and how.
#[derive(Debug)]
pub struct Options {
    /// The rules of groups.
    pub config: Config,
    /// The engine that answers.
    pub engine: Choice,
    /// Which families are made.
    pub families: Families,
    /// Do children of a process in a group, for which there is no rule, belong to that group?
    pub children: bool,
    /// Is a process named again if its command name has changed?
    pub recheck: bool,
    /// Does a process that began before the first answer count with all it did? Else it counts from then on.
    pub from_start: bool,
    /// The most accounts of each kind.
    pub limit: usize,
    /// Are groups forgotten when they are empty?
    pub remove_empty: bool,
    /// How many names the top has.
    pub top: usize,
    /// Is the top of single processes?
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
struct Known {
    start_ns: u64,
    ppid: u32,
    comm: [u8; 16],
    /// The number of the last answer that had it.
    seen: u64,
    /// How often `IDENTITY` was requested for it.
    asked: u8,
    group: Member,
    place: Where,
    /// Its counters. `None`: they were never read.
    last: Option<Counts>,
    threads: u32,
}

/// How requesting works: counts and times of this program.
#[derive(Debug, Default)]
pub struct Health {
    /// How long it took.
    pub took: Duration,
    /// How many answers there were.
    pub scrapes: u64,
    /// How often there was no answer.
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
    owners: OwnerNames,
    known: HashMap<u32, Known>,
    first_ns: Option<u64>,
    again: Instant,
    /// Groups of the configuration.
    pub accounts: Accounts,
    /// Units, slices and containers.
    pub places: Places,
    /// What is known of threads.
    pub threads: Threads,
    /// Who uses most.
    pub top: Top,
    /// Processes by state letter.
    pub states: HashMap<u8, u64>,
    /// How requesting works.
    pub health: Health,
}

impl Tracker {
    /// No request has been made yet.
    pub fn new(options: Options) -> Tracker {
        let keep = options.remove_empty.then_some(Duration::ZERO);
        Tracker {
            session: None,
            owners: OwnerNames::default(),
            known: HashMap::new(),
            first_ns: None,
            again: Instant::now(),
            accounts: Accounts::new(options.limit, keep),
            places: Places::new(options.limit),
            threads: Threads::new(options.limit, options.families.wchan),
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
                let request = Request::all(GROUPS | pages).with_members(members);
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
            // It is computed once, because start times must not move when the clock is set.
            let boot_ns = i128::from(info.realtime_ns) - i128::from(info.boottime_ns);
            self.health.boot_unix_s = boot_ns.div_euclid(1_000_000_000) as i64;
        }
        let asked = self.whom_to_ask(snapshot);
        self.identify(&asked)?;
        self.accounts.begin();
        self.places.begin();
        self.top.begin(now_ns);
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
            let Some(known) = self.known.get_mut(&task.pid()) else { continue };
            let start_ns = row.base.and_then(Base::start_time_ns).unwrap_or(0);
            if known.start_ns.abs_diff(start_ns) > TICK_NS {
                // The process that was identified has ended since, and another one has its pid.
                continue;
            }
            known.seen = seen;
            let new = counts(&row);
            let by = match &mut known.last {
                Some(last) => grown(last, &new),
                None => {
                    known.last = Some(new);
                    let counts_all = from_start || known.start_ns > first_ns;
                    new.map(|n| if counts_all || n == NONE { n } else { 0 })
                }
            };
            let threads = row.stat.and_then(Stat::num_threads);
            known.threads = threads.unwrap_or(1);
            let gauges = Gauges::of(&row, known.start_ns, threads);
            if let Member::Of(id) = known.group {
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
        self.walk_threads(first_ns)
    }
    /// Requests threads for their states and accounts, if one of the families needs them.
    fn walk_threads(&mut self, first_ns: u64) -> Result<(), String> {
        let families = self.options.families;
        let many = self.known.values().any(|k| k.threads > 1 && k.group != Member::None);
        if !(families.wchan || families.threads && many) {
            self.threads.skip();
            return Ok(());
        }
        let known = &self.known;
        let group = |pid: u32| {
            let process = known.get(&pid)?;
            match process.group {
                Member::Of(id) => Some((id, process.threads > 1)),
                _ => None,
            }
        };
        let engines = self.threads.scrape(
            self.options.engine,
            &mut self.accounts,
            &group,
            (first_ns, self.options.from_start),
        )?;
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
    /// The processes that have to be identified: those that are new, that run another program, or whose turn it is. Forgets an
    /// ended process whose pid is in use again.
    fn whom_to_ask(&mut self, snapshot: &Snapshot) -> Vec<u32> {
        let all = self.again.elapsed() >= AGAIN;
        if all {
            self.again = Instant::now();
        }
        let mut asked = Vec::new();
        for task in snapshot.tasks() {
            let Some(base) = task.record::<Base>() else { continue };
            let start = base.start_time_ns().unwrap_or(0);
            let is_due = match self.known.get_mut(&task.pid()) {
                Some(known) if known.start_ns.abs_diff(start) <= TICK_NS => {
                    all || known.asked < TIMES || known.comm != base.comm
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
    fn identify(&mut self, pids: &[u32]) -> Result<(), String> {
        if pids.is_empty() {
            return Ok(());
        }
        let members = Members::of(Groups::BASE, &["ppid", "flags", "start_time_ns", "comm"])
            .union(Members::of(Groups::CRED, &["euid"]));
        let answer = if pids.len() > MANY {
            let request = Request::all(IDENTITY).with_members(members).with_text_bytes(SHORT_TEXT);
            query_with(&request, self.options.engine)
        } else {
            let one = |pid: &u32| {
                Request::one(*pid, IDENTITY).with_members(members).with_text_bytes(SHORT_TEXT)
            };
            let requests: Vec<Request> = pids.iter().map(one).collect();
            query_each(&requests, self.options.engine).map(|(answer, _)| answer)
        };
        let answer = answer.map_err(|e| e.to_string())?;
        let info = answer.stream().info();
        let boot_ns = i128::from(info.realtime_ns) - i128::from(info.boottime_ns);
        let mut new = Vec::new();
        for pid in pids {
            // The process has ended. If its pid is in the next answer, it is identified then.
            let Some(task) = answer.task(*pid) else { continue };
            let row = Row::new(task);
            let Some(base) = row.base else { continue };
            let start_ns = base.start_time_ns().unwrap_or(0);
            let place = self.places.find(&row, self.options.families);
            match self.known.get_mut(pid) {
                Some(known) if known.start_ns.abs_diff(start_ns) <= TICK_NS => {
                    let other_name = known.comm != base.comm;
                    (known.comm, known.asked) = (base.comm, TIMES.min(known.asked + 1));
                    let before = std::mem::replace(&mut known.place, place);
                    self.places.leave(&before);
                    if other_name && self.options.recheck {
                        if let Member::Of(id) =
                            std::mem::replace(&mut known.group, Member::Undecided)
                        {
                            self.accounts.leave(id);
                        }
                        new.push((*pid, self.process(&row, boot_ns)));
                    }
                }
                // Another process has the pid by now. The next answer has it.
                Some(_) => self.places.leave(&place),
                None => {
                    let known = Known {
                        start_ns,
                        ppid: base.ppid().unwrap_or(0),
                        comm: base.comm,
                        seen: self.health.scrapes,
                        asked: 1,
                        group: Member::Undecided,
                        place,
                        last: None,
                        threads: 1,
                    };
                    self.known.insert(*pid, known);
                    new.push((*pid, self.process(&row, boot_ns)));
                }
            }
        }
        self.decide(&new);
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
        let uid = row.cred.and_then(Cred::euid);
        let user = uid.map(|uid| match self.owners.user(uid) {
            Some(name) => name.to_vec(),
            None => uid.to_string().into_bytes(),
        });
        let start_ns = row.base.and_then(Base::start_time_ns).unwrap_or(0);
        let paths = row.view.cgroups().filter_map(|(_, entry)| taskdiag::cgroup::path_of(entry));
        Process {
            comm: row.comm.unwrap_or_default().to_vec(),
            argv,
            username: user.unwrap_or_default(),
            pid: row.view.pid(),
            start_unix_ns: boot_ns + i128::from(start_ns),
            cgroups: match self.options.config.needs_cgroups() {
                true => paths.map(<[u8]>::to_vec).collect(),
                false => Vec::new(),
            },
        }
    }
    /// Puts new processes into groups: first those that fit a rule, then those with an ancestor in a group.
    fn decide(&mut self, new: &[(u32, Process)]) {
        for (pid, process) in new {
            if let Some(name) = self.options.config.name(process) {
                let id = self.accounts.join(&name);
                self.known.get_mut(pid).expect("it was just put there").group = Member::Of(id);
            }
        }
        for (pid, _) in new {
            let mut line = Vec::new();
            let mut at = *pid;
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
                if let Member::Of(id) = group {
                    self.accounts.hold(id);
                }
                self.known.get_mut(&pid).expect("it was just looked at").group = group;
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
    /// Forgets processes that neither this answer nor the one before had.
    fn forget_ended(&mut self, seen: u64) {
        let old: Vec<u32> =
            self.known.iter().filter(|(_, k)| k.seen + 1 < seen).map(|(pid, _)| *pid).collect();
        old.into_iter().for_each(|pid| self.forget(pid));
    }
}
