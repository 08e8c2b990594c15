//! The selection of tasks as procps has it: lists of ids and names, joined by "or". Conditions that need more
//! than lists are filters.

use crate::field::Row;
use crate::request::Members;
use crate::{Group, Groups};

/// Which tasks to show. An empty selection shows all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Selection {
    /// Show all tasks, whatever the lists say (`-e`, `-A`).
    pub all: bool,
    /// Process ids; with threads, also thread ids.
    pub pids: Vec<u32>,
    /// Parents.
    pub ppids: Vec<u32>,
    /// Effective uids.
    pub euids: Vec<u32>,
    /// Real uids.
    pub ruids: Vec<u32>,
    /// Real gids.
    pub rgids: Vec<u32>,
    /// Sessions.
    pub sids: Vec<u32>,
    /// Command names.
    pub commands: Vec<Vec<u8>>,
    /// Terminals, by device number.
    pub ttys: Vec<u32>,
    /// Process groups.
    pub pgids: Vec<u32>,
    /// Effective gids.
    pub egids: Vec<u32>,
    /// Kinds of processes.
    pub simple: Vec<Simple>,
    /// Show only running tasks, in addition to the other conditions.
    pub running: bool,
    /// Show the tasks that are not selected (`-N`).
    pub deselect: bool,
}

/// A kind of processes. All conditions here must be true.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Simple {
    /// They have this effective uid.
    pub own: Option<u32>,
    /// They have a terminal.
    pub with_tty: bool,
    /// They have this terminal. 0 means that they have none.
    pub tty: Option<u32>,
    /// They are not session leaders.
    pub not_leaders: bool,
}

impl Simple {
    fn is_true_of(&self, row: &Row<'_>) -> bool {
        let tty = row.stat.and_then(|s| s.tty_nr());
        let leader = || row.base.and_then(|b| b.sid()) == Some(row.view.tgid());
        (self.own.is_none() || row.cred.and_then(|c| c.euid()) == self.own)
            && (!self.with_tty || tty.is_some_and(|t| t != 0))
            && (self.tty.is_none() || tty == self.tty)
            && !(self.not_leaders && leader())
    }
}

impl Selection {
    /// Is there no condition at all?
    pub fn is_everything(&self) -> bool {
        !self.deselect && !self.running && (self.all || !self.has_condition())
    }
    fn has_condition(&self) -> bool {
        !self.simple.is_empty() || self.has_list()
    }
    fn has_list(&self) -> bool {
        !(self.pids.is_empty() && self.ppids.is_empty() && self.only_rare_lists_empty())
    }
    fn only_rare_lists_empty(&self) -> bool {
        self.euids.is_empty()
            && self.ruids.is_empty()
            && self.rgids.is_empty()
            && self.egids.is_empty()
            && self.pgids.is_empty()
            && self.sids.is_empty()
            && self.commands.is_empty()
            && self.ttys.is_empty()
    }
    fn only(&self) -> bool {
        !self.all
            && !self.deselect
            && !self.running
            && self.simple.is_empty()
            && self.only_rare_lists_empty()
    }
    /// The pids, if they are the only condition.
    pub fn only_pids(&self) -> Option<&[u32]> {
        (self.only() && self.ppids.is_empty() && !self.pids.is_empty()).then_some(&self.pids)
    }
    /// The parent, if it is the only condition.
    pub fn only_parent(&self) -> Option<u32> {
        match self.ppids[..] {
            // There is no process 0 that an engine could be asked for.
            [one] if one != 0 && self.only() && self.pids.is_empty() => Some(one),
            _ => None,
        }
    }
    /// Are few tasks likely to match, because the conditions are ids or names, and not users?
    pub(super) fn is_rare(&self) -> bool {
        let broad = self.all
            || self.deselect
            || !self.simple.is_empty()
            || !(self.euids.is_empty() && self.ruids.is_empty())
            || !(self.egids.is_empty() && self.rgids.is_empty());
        !broad && self.has_list()
    }
    /// The groups that the conditions need.
    pub fn groups(&self) -> Groups {
        if self.is_everything() {
            return Groups::NONE;
        }
        let mut g = Groups::BASE;
        if !(self.euids.is_empty()
            && self.ruids.is_empty()
            && self.rgids.is_empty()
            && self.egids.is_empty())
            || self.simple.iter().any(|s| s.own.is_some())
        {
            g |= Group::Cred.into();
        }
        if !self.ttys.is_empty() || self.simple.iter().any(|s| s.with_tty || s.tty.is_some()) {
            g |= Group::Stat.into();
        }
        g
    }
    /// The members of BASE, CRED, STAT and STATM that the conditions need.
    pub fn members(&self) -> Members {
        let mut m = Members::NONE;
        let mut look = |wanted: bool, group: Groups, name| {
            if wanted && !self.is_everything() {
                m = m.union(Members::of(group, &[name]));
            }
        };
        look(!self.ppids.is_empty(), Groups::BASE, "ppid");
        let simple = |is: fn(&Simple) -> bool| self.simple.iter().any(is);
        look(!self.pgids.is_empty(), Groups::BASE, "pgid");
        look(!self.sids.is_empty() || simple(|s| s.not_leaders), Groups::BASE, "sid");
        look(!self.commands.is_empty(), Groups::BASE, "comm");
        look(self.running, Groups::BASE, "state");
        let own = simple(|s| s.own.is_some());
        look(!self.euids.is_empty() || own, Groups::CRED, "euid");
        look(!self.ruids.is_empty(), Groups::CRED, "uid");
        look(!self.egids.is_empty(), Groups::CRED, "egid");
        look(!self.rgids.is_empty(), Groups::CRED, "gid");
        let tty = simple(|s| s.with_tty || s.tty.is_some());
        look(!self.ttys.is_empty() || tty, Groups::STAT, "tty_nr");
        m
    }
    /// Is this task to be shown?
    pub fn matches(&self, row: &Row<'_>) -> bool {
        let runs = !self.running || matches!(row.state(), Some(b'R' | b'D'));
        (runs && (self.all || !self.has_condition() || self.meets_one(row))) != self.deselect
    }
    fn meets_one(&self, row: &Row<'_>) -> bool {
        let has = |list: &[u32], v: Option<u32>| v.is_some_and(|v| list.contains(&v));
        let tty = row.stat.and_then(|s| s.tty_nr());
        self.pids.contains(&row.view.tgid())
            || self.pids.contains(&row.view.pid())
            || has(&self.ppids, row.base.and_then(|b| b.ppid()))
            || has(&self.sids, row.base.and_then(|b| b.sid()))
            || has(&self.euids, row.cred.and_then(|c| c.euid()))
            || has(&self.ruids, row.cred.and_then(|c| c.uid()))
            || has(&self.rgids, row.cred.and_then(|c| c.gid()))
            || has(&self.ttys, tty)
            || has(&self.egids, row.cred.and_then(|c| c.egid()))
            || has(&self.pgids, row.base.and_then(|b| b.pgid()))
            || self.simple.iter().any(|s| s.is_true_of(row))
            || !self.commands.is_empty() && self.has_command(row)
    }
    /// As `ps -C`: the name is compared up to the 15 bytes that the kernel keeps of it.
    fn has_command(&self, row: &Row<'_>) -> bool {
        let Some(comm) = row.comm else { return false };
        self.commands.iter().any(|c| c == comm || c.len() > 15 && c[..15] == *comm)
    }
}
