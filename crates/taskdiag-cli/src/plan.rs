//! From arguments to requests: the columns, keys and conditions decide the groups, the selection
//! decides the strategy. Pure.

use taskdiag::{Groups, Members, Request, Strategy};

use crate::columns::Column;
use crate::order::Key;
use crate::select::Selection;

/// More pids than this are picked from a list of all.
const FEW_PIDS: usize = 32;

/// What to ask of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// One request.
    One(Request),
    /// A request for each pid.
    Each(Vec<Request>),
}

impl Plan {
    /// Change each request.
    pub fn requests(&mut self, mut change: impl FnMut(&mut Request)) {
        match self {
            Plan::One(request) => change(request),
            Plan::Each(requests) => requests.iter_mut().for_each(change),
        }
    }
}

/// The groups that a view needs.
pub fn groups(columns: &[Column], keys: &[Key], select: &Selection, tree: bool) -> Groups {
    let fields = columns.iter().map(|c| c.field).chain(keys.iter().map(|k| k.field));
    let mut g = taskdiag::field::groups_of(fields) | select.groups();
    if tree || g.is_empty() {
        // A tree needs parents. A bare list of pids is asked for as the cheapest group.
        g |= Groups::BASE;
    }
    g
}

/// The members of BASE and STAT that a view of these rows as they are looks at.
pub fn members(columns: &[Column], keys: &[Key], select: &Selection) -> Members {
    if !select.is_everything() {
        return Members::ALL;
    }
    let fields = columns.iter().map(|c| c.field).chain(keys.iter().map(|k| k.field));
    taskdiag::field::members_of(fields)
}

/// The requests for a view.
pub fn plan(groups: Groups, select: &Selection, threads: bool) -> Plan {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::columns;

    fn groups_of(spec: &str) -> Groups {
        groups(&columns::parse(spec).unwrap(), &[], &Selection::default(), false)
    }

    #[test]
    fn columns_decide_groups() {
        assert_eq!(groups_of("pid"), Groups::BASE);
        assert_eq!(groups_of("pid,ppid,comm"), Groups::BASE);
        assert_eq!(groups_of("pid,user"), Groups::CRED);
        assert_eq!(groups_of("pid,rss"), Groups::STATM);
        let by_user = Selection { euids: vec![1], ..Selection::default() };
        let c = columns::parse("pid").unwrap();
        assert_eq!(groups(&c, &[], &by_user, false), Groups::BASE | Groups::CRED);
    }

    #[test]
    fn columns_and_conditions_decide_members() {
        let c = columns::parse("pid,ppid,time").unwrap();
        let wanted = Members::of(Groups::BASE, &["ppid"])
            .union(Members::of(Groups::STAT, &["utime_ns", "stime_ns"]));
        assert_eq!(members(&c, &[], &Selection::default()), wanted);
        let some = Selection { ppids: vec![1], ..Selection::default() };
        assert_eq!(members(&c, &[], &some), Members::ALL);
    }

    #[test]
    fn selection_decides_strategy() {
        let g = Groups::BASE;
        let pids = |p: &[u32]| Selection { pids: p.to_vec(), ..Selection::default() };
        assert_eq!(plan(g, &Selection::default(), false), Plan::One(Request::all(g)));
        assert_eq!(plan(g, &Selection::default(), true), Plan::One(Request::all_threads(g)));
        assert_eq!(plan(g, &pids(&[7]), false), Plan::One(Request::one(7, g)));
        assert_eq!(plan(g, &pids(&[7, 7]), true), Plan::One(Request::threads(7, g)));
        assert!(matches!(plan(g, &pids(&[7, 8]), false), Plan::Each(r) if r.len() == 2));
        assert_eq!(
            plan(g, &pids(&(1..100).collect::<Vec<_>>()), false),
            Plan::One(Request::all(g))
        );
        let children = Selection { ppids: vec![7], ..Selection::default() };
        assert_eq!(plan(g, &children, false), Plan::One(Request::children(7, g)));
        let both = Selection { ppids: vec![7], pids: vec![7], ..Selection::default() };
        assert_eq!(plan(g, &both, false), Plan::One(Request::all(g)));
    }
}
