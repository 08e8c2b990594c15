//! Makes requests from a query: its fields and conditions decide the groups, its selection decides
//! the strategy. Only [`Plan::ask`] does I/O.

use super::again::Again;
use super::filter::Filter;
use super::narrow::Narrow;
use super::select::Selection;
use crate::{
    Choice, Error, Groups, Request, SessionCache, Snapshot, Strategy, query_each, query_with,
};

/// Up to this many pids are requested one by one. More are picked from a list of all tasks.
pub const FEW_PIDS: usize = 32;

/// The requests to make.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Plan {
    /// One request.
    One(Request),
    /// A request for each pid.
    Each(Vec<Request>),
    /// Two steps: the values that the conditions need, and then the rest for the tasks that pass.
    Narrow(Box<Narrow>),
    /// Other requests, and after them a second look at processes whose text was cut.
    Again(Box<Plan>, Box<Again>),
}

/// An answer to a plan.
#[derive(Debug)]
#[non_exhaustive]
pub struct Answered {
    /// The answer.
    pub snapshot: Snapshot,
    /// Requested pids that do not exist. A pid that now belongs to another process than the
    /// selected one ([`Selection::inodes`]) is not among them.
    pub nobody: Vec<u32>,
}

impl Plan {
    /// A plan to read these groups for the tasks that may be selected, or for their threads.
    pub fn new(groups: Groups, select: &Selection, threads: bool) -> Plan {
        if let Some(pids) = select.only_pids().filter(|p| p.len() <= FEW_PIDS) {
            let mut pids = pids.to_vec();
            pids.sort_unstable();
            pids.dedup();
            let one = |pid| match threads {
                true => Request::threads(pid, groups),
                false => Request::one(pid, groups),
            };
            return match pids[..] {
                [pid] => Plan::One(one(pid)),
                _ => Plan::Each(pids.into_iter().map(one).collect()),
            };
        }
        if let (Some(parent), false) = (select.only_parent(), threads) {
            return Plan::One(Request::children(parent, groups));
        }
        let strategy = if threads { Strategy::AllThread } else { Strategy::All };
        Plan::One(Request::new(strategy, 0, groups))
    }
    /// This plan, with a second look at processes whose text was cut, if this filter needs the
    /// rest. [`Query::plan`](super::Query::plan) does this for its own filter. This is for a
    /// program that needs all tasks, and tests the filter with a [`Sieve`](super::Sieve).
    #[must_use]
    pub fn looking_again(self, filter: &Filter) -> Plan {
        self.then_again(Again::new(&Selection::default(), filter))
    }
    /// Adds the second look, if the requests of this plan are about a list.
    pub(super) fn then_again(mut self, again: Option<Again>) -> Plan {
        let Some(again) = again.filter(|_| self.list().is_some()) else { return self };
        self.requests(Again::prepare);
        Plan::Again(Box::new(self), Box::new(again))
    }
    /// The request for a list of processes, or of the threads of all.
    fn list(&self) -> Option<&Request> {
        let request = match self {
            Plan::One(request) => request,
            Plan::Narrow(narrow) => &narrow.all,
            Plan::Each(_) | Plan::Again(..) => return None,
        };
        Some(request).filter(|r| !matches!(r.strategy, Strategy::One | Strategy::Thread))
    }
    /// The requested groups.
    pub fn groups(&self) -> Groups {
        match self {
            Plan::One(request) => request.groups,
            Plan::Each(requests) => requests.iter().fold(Groups::NONE, |all, r| all | r.groups),
            Plan::Narrow(narrow) => narrow.all.groups,
            Plan::Again(first, _) => first.groups(),
        }
    }
    /// Change each request.
    pub fn requests(&mut self, mut change: impl FnMut(&mut Request)) {
        match self {
            Plan::One(request) => change(request),
            Plan::Each(requests) => requests.iter_mut().for_each(change),
            Plan::Narrow(narrow) => narrow.requests(change),
            Plan::Again(first, _) => first.requests(&mut change as &mut dyn FnMut(&mut Request)),
        }
    }
    /// Make the requests, and return the answer.
    ///
    /// # Errors
    /// As [`query_with`], except that pids that do not exist are no error.
    pub fn ask(&self, choice: Choice) -> Result<Answered, Error> {
        self.ask_by(choice, &|request| query_with(request, choice))
    }
    /// As [`ask`](Plan::ask), for a program that may repeat the plan soon: programs in the cache
    /// are not loaded again.
    ///
    /// # Errors
    /// As [`ask`](Plan::ask).
    pub fn ask_cached(&self, choice: Choice, cache: &SessionCache) -> Result<Answered, Error> {
        self.ask_by(choice, &|request| cache.query(request, choice))
    }
    fn ask_by(&self, choice: Choice, query: super::Answerer<'_>) -> Result<Answered, Error> {
        let (snapshot, nobody) = match self {
            Plan::One(request) => match query(request) {
                // If there are several pids, a missing process is not an error, but reported in the
                // answer.
                Err(Error::NoSuchProcess(_) | Error::Hidden { .. }) => {
                    query_each(std::slice::from_ref(request), choice)?
                }
                answer => (answer?, Vec::new()),
            },
            Plan::Each(requests) => query_each(requests, choice)?,
            Plan::Narrow(narrow) => (narrow.ask(choice, query)?, Vec::new()),
            Plan::Again(first, again) => {
                let Answered { snapshot, nobody } = first.ask_by(choice, query)?;
                let snapshot = match first.list() {
                    Some(all) => again.look(all, snapshot, choice),
                    None => snapshot,
                };
                (snapshot, nobody)
            }
        };
        Ok(Answered { snapshot, nobody })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selection_decides_strategy() {
        let g = Groups::BASE;
        let pids = |p: &[u32]| Selection { pids: p.to_vec(), ..Selection::default() };
        let plan = |select: &Selection, threads| match Plan::new(g, select, threads) {
            Plan::One(request) => vec![request],
            Plan::Each(requests) => requests,
            Plan::Narrow(_) | Plan::Again(..) => panic!("it has no conditions"),
        };
        assert_eq!(plan(&Selection::default(), false), [Request::all(g)]);
        assert_eq!(plan(&Selection::default(), true), [Request::all_threads(g)]);
        assert_eq!(plan(&pids(&[7]), false), [Request::one(7, g)]);
        assert_eq!(plan(&pids(&[7, 7]), true), [Request::threads(7, g)]);
        assert_eq!(plan(&pids(&[7, 8]), false), [Request::one(7, g), Request::one(8, g)]);
        let many: Vec<u32> = (1..100).collect();
        assert_eq!(plan(&pids(&many), false), [Request::all(g)]);
        let children = Selection { ppids: vec![7], ..Selection::default() };
        assert_eq!(plan(&children, false), [Request::children(7, g)]);
        let both = Selection { ppids: vec![7], pids: vec![7], ..Selection::default() };
        assert_eq!(plan(&both, false), [Request::all(g)]);
    }
}
