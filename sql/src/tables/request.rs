// SPDX-License-Identifier: MIT OR Apache-2.0
//! The requests of one statement. Tables of the same processes are requested together, so their
//! rows come from one snapshot and match.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use taskdiag::cgroups::{Bounds, Cgroups, Files};
use taskdiag::view::{FEW_PIDS, Plan, Query, Selection};
use taskdiag::{Choice, Groups, Snapshot, Watch};

use super::lacks::Lacks;
use taskdiag_face::exit::Asked;
use taskdiag_face::limits::PageLimits;

/// The state that all tables of a statement share.
#[derive(Debug)]
pub struct Statement {
    /// Ends the requests early.
    pub watch: Arc<Watch>,
    /// The missing values of the rows.
    pub lacks: Mutex<Lacks>,
    choice: Choice,
    limits: PageLimits,
    asks: Mutex<Vec<Arc<Ask>>>,
    listing: Mutex<Option<Arc<Listing>>>,
    /// Does it name processes by their ids?
    names_pids: AtomicBool,
}

/// One request for one or several tables.
#[derive(Debug)]
pub struct Ask {
    threads: bool,
    pids: Option<BTreeSet<u32>>,
    queries: Mutex<Vec<Query>>,
    answer: OnceLock<Result<Option<Snapshot>, String>>,
}

/// The cgroups, which all tables of them share.
#[derive(Debug)]
pub struct Listing {
    files: Mutex<Files>,
    answer: OnceLock<Result<Cgroups, String>>,
}

impl Listing {
    /// The cgroups. They are listed once.
    ///
    /// # Errors
    /// They cannot be listed. The reason is for users.
    pub fn answer(&self, statement: &Statement) -> Result<&Cgroups, String> {
        let asked = self.answer.get_or_init(|| {
            let files = *self.files.lock().unwrap_or_else(PoisonError::into_inner);
            let all = Cgroups::read(files, Bounds::default()).map_err(|e| e.to_string())?;
            let mut lacks = Lacks::default();
            all.remarks().into_iter().for_each(|line| lacks.line(line, Asked::Named));
            statement.lack(lacks);
            Ok(all)
        });
        asked.as_ref().map_err(Clone::clone)
    }
}

/// For EXPLAIN.
impl fmt::Display for Listing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let files = *self.files.lock().unwrap_or_else(PoisonError::into_inner);
        write!(f, "{} files of each cgroup", files.count())
    }
}

impl Statement {
    /// A statement whose requests go to these engines, with these limits.
    pub fn new(choice: Choice, limits: PageLimits) -> Statement {
        let (lacks, asks, listing) = Default::default();
        let names_pids = AtomicBool::new(false);
        Statement { watch: Arc::default(), lacks, choice, limits, asks, listing, names_pids }
    }
    /// A table of it is about processes that it names by their ids.
    pub fn names_pids(&self) {
        self.names_pids.store(true, Ordering::Relaxed);
    }
    /// How exactly the statement names its subject. A condition is not a name, as in `--where` of
    /// the command.
    pub fn asked(&self) -> Asked {
        match self.names_pids.load(Ordering::Relaxed) {
            true => Asked::Pids,
            false => Asked::All,
        }
    }
    /// The request that also serves this query about these processes.
    pub fn ask(&self, query: &Query, pids: Option<BTreeSet<u32>>) -> Arc<Ask> {
        let mut asks = self.asks.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = |a: &&Arc<Ask>| {
            a.threads == query.threads && a.pids == pids && a.answer.get().is_none()
        };
        let found = asks.iter().find(is_same).cloned();
        let ask = found.unwrap_or_else(|| {
            let ask = Arc::new(Ask {
                threads: query.threads,
                pids,
                queries: Mutex::default(),
                answer: OnceLock::new(),
            });
            asks.push(ask.clone());
            ask
        });
        ask.queries.lock().unwrap_or_else(PoisonError::into_inner).push(query.clone());
        ask
    }
    /// The listing of cgroups that also serves this query.
    pub fn list(&self, query: &Query) -> Arc<Listing> {
        let mut listing = self.listing.lock().unwrap_or_else(PoisonError::into_inner);
        let usable = listing.take().filter(|listing| listing.answer.get().is_none());
        let found = usable.unwrap_or_else(|| {
            Arc::new(Listing { files: Mutex::new(Files::NONE), answer: OnceLock::new() })
        });
        let mut files = found.files.lock().unwrap_or_else(PoisonError::into_inner);
        *files = files.union(query.cgroup_files());
        drop(files);
        *listing = Some(found.clone());
        found
    }
    /// Adds missing values.
    pub fn lack(&self, more: Lacks) {
        self.lacks.lock().unwrap_or_else(PoisonError::into_inner).add(more);
    }
}

impl Ask {
    /// The plan of the library. `None`: it selects no process.
    fn plan(&self) -> Option<Plan> {
        if self.pids.as_ref().is_some_and(BTreeSet::is_empty) {
            return None;
        }
        let queries = self.queries.lock().unwrap_or_else(PoisonError::into_inner);
        if let [one] = &queries[..] {
            // The query of the library knows its conditions, and may ask in two steps.
            return Some(one.plan());
        }
        let groups = queries.iter().fold(Groups::NONE, |all, q| all | q.groups());
        let members = queries.iter().map(Query::members).reduce(|all, m| all.union(m));
        let mut select = Selection::default();
        select.pids = self.pids.iter().flatten().copied().collect();
        let mut plan = Plan::new(groups, &select, self.threads);
        plan.requests(|r| r.members = members.unwrap_or(r.members));
        Some(plan)
    }
    /// The answer. The request is made once.
    ///
    /// # Errors
    /// There is no answer. The reason is for users.
    pub fn answer(&self, statement: &Statement) -> Result<Option<&Snapshot>, String> {
        let asked = self.answer.get_or_init(|| {
            let Some(mut plan) = self.plan() else { return Ok(None) };
            plan.requests(|r| {
                statement.limits.put_into(r);
                r.watch = Some(statement.watch.clone());
            });
            let answered = plan.ask(statement.choice).map_err(|e| e.to_string())?;
            let mut lacks = Lacks::default();
            lacks.answer(&answered.snapshot);
            statement.lack(lacks);
            Ok(Some(answered.snapshot))
        });
        asked.as_ref().map(Option::as_ref).map_err(Clone::clone)
    }
}

/// For EXPLAIN.
impl fmt::Display for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tables = self.queries.lock().unwrap_or_else(PoisonError::into_inner).len();
        let what = if self.threads { "threads" } else { "processes" };
        let plan = self.plan().map(|plan| match plan {
            Plan::Again(first, _) => *first,
            plan => plan,
        });
        match plan {
            None => return f.write_str("nothing is asked"),
            Some(plan @ (Plan::One(_) | Plan::Each(_))) => {
                match &self.pids {
                    Some(pids) if pids.len() <= FEW_PIDS => {
                        let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
                        write!(f, "{what} of pids {}", pids.join(" "))?;
                    }
                    // If there are many, the library requests all processes, and drops the others.
                    _ => write!(f, "all {what}")?,
                }
                write!(f, ", groups {}", plan.groups())?;
            }
            Some(Plan::Narrow(narrow)) => write!(
                f,
                "groups {} of all {what}, then groups {} of those that pass",
                narrow.first.groups, narrow.all.groups
            )?,
            Some(plan) => write!(f, "groups {}", plan.groups())?,
        }
        if tables > 1 { write!(f, ", shared by {tables} tables") } else { Ok(()) }
    }
}
