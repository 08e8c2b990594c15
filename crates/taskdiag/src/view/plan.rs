//! From a query to requests: its fields and conditions decide the groups, its selection decides the
//! strategy. Pure.

use super::select::Selection;
use crate::{Groups, Request, Strategy};

/// More pids than this are picked from a list of all tasks.
pub const FEW_PIDS: usize = 32;

/// What to ask of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// One request.
    One(Request),
    /// A request for each pid.
    Each(Vec<Request>),
}

impl Plan {
    /// These groups of the tasks that may be selected, or of their threads.
    pub fn new(groups: Groups, select: &Selection, threads: bool) -> Plan {
        if let Some(pids) = select.only_pids().filter(|p| p.len() <= FEW_PIDS) {
            let mut pids = pids.to_vec();
            pids.sort_unstable();
            pids.dedup();
            let one = |pid| match threads {
                true => Request::threads(pid, groups),
                false => Request::one(pid, groups),
            };
            let requests: Vec<_> = pids.into_iter().map(one).collect();
            return match requests[..] {
                [one] => Plan::One(one),
                _ => Plan::Each(requests),
            };
        }
        if let (Some(parent), false) = (select.only_parent(), threads) {
            return Plan::One(Request::children(parent, groups));
        }
        let strategy = if threads { Strategy::AllThread } else { Strategy::All };
        Plan::One(Request::new(strategy, 0, groups))
    }
    /// Change each request.
    pub fn requests(&mut self, mut change: impl FnMut(&mut Request)) {
        match self {
            Plan::One(request) => change(request),
            Plan::Each(requests) => requests.iter_mut().for_each(change),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selection_decides_strategy() {
        let g = Groups::BASE;
        let pids = |p: &[u32]| Selection { pids: p.to_vec(), ..Selection::default() };
        let plan = |select: &Selection, threads| Plan::new(g, select, threads);
        assert_eq!(plan(&Selection::default(), false), Plan::One(Request::all(g)));
        assert_eq!(plan(&Selection::default(), true), Plan::One(Request::all_threads(g)));
        assert_eq!(plan(&pids(&[7]), false), Plan::One(Request::one(7, g)));
        assert_eq!(plan(&pids(&[7, 7]), true), Plan::One(Request::threads(7, g)));
        assert!(matches!(plan(&pids(&[7, 8]), false), Plan::Each(r) if r.len() == 2));
        let many: Vec<u32> = (1..100).collect();
        assert_eq!(plan(&pids(&many), false), Plan::One(Request::all(g)));
        let children = Selection { ppids: vec![7], ..Selection::default() };
        assert_eq!(plan(&children, false), Plan::One(Request::children(7, g)));
        let both = Selection { ppids: vec![7], pids: vec![7], ..Selection::default() };
        assert_eq!(plan(&both, false), Plan::One(Request::all(g)));
    }
}
