//! The selection of tasks as in procps: lists of ids and names, joined by "or". Other conditions
//! are filters.

use crate::field::Row;
use crate::request::Members;
use crate::{Group, Groups};

/// Which tasks to show. An empty selection shows all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Selection {
    /// Show all tasks, even if there are lists (`-e`, `-A`).
    pub all: bool,
    /// Process ids; with threads, also thread ids.
    pub pids: Vec<u32>,
    /// Inodes that the pidfds of these processes have. Another process with such a pid is not
    /// shown.
    pub inodes: PidfdInodes,
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

/// The inodes that were given with some pids, as in `PID:INODE`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PidfdInodes(Vec<(u32, u64)>);

impl PidfdInodes {
    /// Only the process or thread with this inode is meant by this id.
    pub fn add(&mut self, id: u32, inode: u64) {
        self.0.push((id, inode));
    }
    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// Adds others.
    pub fn extend(&mut self, others: PidfdInodes) {
        self.0.extend(others.0);
    }
    /// The ids with their inodes.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u64)> {
        self.0.iter().copied()
    }
    /// The group that they need.
    pub fn groups(&self) -> Groups {
        if self.is_empty() { Groups::NONE } else { Groups::PIDFD }
    }
    /// Does this id mean this task or its process?
    pub fn admit(&self, id: u32, row: &Row<'_>) -> bool {
        let mut meant = self.0.iter().filter(|(of, _)| *of == id).map(|(_, inode)| *inode);
        let Some(first) = meant.next() else { return true };
        let known = row.pidfd.and_then(|p| match row.view.tgid() == id {
            true => p.process_ino(),
            false => p.ino(),
        });
        known.is_some_and(|inode| inode == first || meant.any(|other| other == inode))
    }
}

/// A kind of processes. All conditions here must be true.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Simple {
    /// Only tasks with this effective uid.
    pub own: Option<u32>,
    /// Only tasks with a terminal.
    pub with_tty: bool,
    /// Tasks with this terminal. 0 stands for tasks without one.
    pub tty: Option<u32>,
    /// Only tasks that are not session leaders.
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
            // Engines cannot be asked for process 0, which does not exist.
            [one] if one != 0 && self.only() && self.pids.is_empty() => Some(one),
            _ => None,
        }
    }
    /// Are only a few tasks likely to match, because the conditions are ids or names, and not
    /// users?
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
        let mut g = Groups::BASE | self.inodes.groups();
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
        let has_command = |comm: &[u8]| {
            self.commands.iter().any(|c| c == comm || c.len() > COMM && c[..COMM] == *comm)
        };
        self.matches_by(row, |list, v| list.contains(&v), has_command)
    }
    /// Does the task match? The functions find an id or a command name in a list.
    fn matches_by(
        &self,
        row: &Row<'_>,
        contains: impl Fn(&[u32], u32) -> bool,
        has_command: impl Fn(&[u8]) -> bool,
    ) -> bool {
        let runs = !self.running || matches!(row.state(), Some(b'R' | b'D'));
        let meets_one = || self.meets_one(row, contains, has_command);
        (runs && (self.all || !self.has_condition() || meets_one())) != self.deselect
    }
    fn meets_one(
        &self,
        row: &Row<'_>,
        contains: impl Fn(&[u32], u32) -> bool,
        has_command: impl Fn(&[u8]) -> bool,
    ) -> bool {
        let has = |list: &[u32], v: Option<u32>| v.is_some_and(|v| contains(list, v));
        let tty = row.stat.and_then(|s| s.tty_nr());
        let is_listed = |id: u32| contains(&self.pids, id) && self.inodes.admit(id, row);
        is_listed(row.view.tgid())
            || is_listed(row.view.pid())
            || has(&self.ppids, row.base.and_then(|b| b.ppid()))
            || has(&self.sids, row.base.and_then(|b| b.sid()))
            || has(&self.euids, row.cred.and_then(|c| c.euid()))
            || has(&self.ruids, row.cred.and_then(|c| c.uid()))
            || has(&self.rgids, row.cred.and_then(|c| c.gid()))
            || has(&self.ttys, tty)
            || has(&self.egids, row.cred.and_then(|c| c.egid()))
            || has(&self.pgids, row.base.and_then(|b| b.pgid()))
            || self.simple.iter().any(|s| s.is_true_of(row))
            || !self.commands.is_empty() && row.comm.is_some_and(has_command)
    }
}

/// As in `ps -C`, a name is compared only up to the length that the kernel keeps.
const COMM: usize = 15;

/// A selection whose lists are sorted, so that many tasks can be compared with long lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sorted(Selection);

impl Sorted {
    pub(super) fn new(select: &Selection) -> Sorted {
        let mut select = select.clone();
        for list in [
            &mut select.pids,
            &mut select.ppids,
            &mut select.euids,
            &mut select.ruids,
            &mut select.rgids,
            &mut select.egids,
            &mut select.sids,
            &mut select.pgids,
            &mut select.ttys,
        ] {
            list.sort_unstable();
        }
        let cut = |c: &Vec<u8>| c.get(..COMM).filter(|_| c.len() > COMM).map(<[u8]>::to_vec);
        let cut: Vec<Vec<u8>> = select.commands.iter().filter_map(cut).collect();
        select.commands.extend(cut);
        select.commands.sort_unstable();
        Sorted(select)
    }
    /// As [`Selection::matches`].
    pub(super) fn matches(&self, row: &Row<'_>) -> bool {
        let has_command =
            |comm: &[u8]| self.0.commands.binary_search_by(|c| c[..].cmp(comm)).is_ok();
        self.0.matches_by(row, |list, v| list.binary_search(&v).is_ok(), has_command)
    }
}

impl std::ops::Deref for Sorted {
    type Target = Selection;
    fn deref(&self) -> &Selection {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use taskdiag_wire::{Base, Cred, Done, Stat, Stream, StreamWriter};

    use super::*;

    #[test]
    fn sorted_lists_select_the_same_tasks() {
        let mut w = StreamWriter::new();
        let mut info = StreamWriter::blank_info();
        info.show_flags = (Groups::BASE | Groups::CRED | Groups::STAT).bits();
        w.info(&info);
        let names: [&[u8]; 4] = [b"sh", b"a-name-of-fifte", b"kworker/u8:1-longer-name", b"zz"];
        for pid in 1..200 {
            w.begin_task(pid, pid - pid % 3);
            let mut base = Base::new();
            base.valid = Base::ALL_VALID;
            (base.ppid, base.pgid, base.sid) = (pid % 7, pid % 11, pid % 13);
            base.state = if pid % 5 == 0 { b'R' } else { b'S' };
            w.put_base(&base, names[pid as usize % 4]);
            let mut cred = Cred::new();
            cred.valid = Cred::ALL_VALID;
            (cred.euid, cred.uid, cred.egid, cred.gid) = (pid % 17, pid % 19, pid % 23, pid % 29);
            w.put(&cred);
            let mut stat = Stat::new();
            stat.valid = Stat::ALL_VALID;
            stat.tty_nr = pid % 31;
            w.put(&stat);
            w.end_task();
        }
        let stream = Stream::parse(w.finish(Done::default())).expect("it is whole");
        let ids = || vec![150, 12, 3, 12, 7, 1];
        let texts = |all: &[&str]| all.iter().map(|c| c.as_bytes().to_vec()).collect();
        let commands = texts(&["zz", "a-name-of-fifteen-and-more", "kworker/u8:1-longer-name"]);
        let none = Selection::default;
        let selections = [
            none(),
            Selection { pids: ids(), ..none() },
            Selection { pids: ids(), deselect: true, ..none() },
            Selection { ppids: ids(), running: true, ..none() },
            Selection { euids: ids(), ..none() },
            Selection { ruids: ids(), ..none() },
            Selection { egids: ids(), ..none() },
            Selection { rgids: ids(), ..none() },
            Selection { sids: ids(), pgids: vec![9, 2], ..none() },
            Selection { ttys: vec![30, 0, 8], ..none() },
            Selection { commands, ..none() },
            Selection { commands: texts(&["kworker/u8:1-lo", "a-name", "sh"]), ..none() },
        ];
        for (n, select) in selections.iter().enumerate() {
            let sorted = Sorted::new(select);
            let of = |is: &dyn Fn(&Row<'_>) -> bool| -> Vec<u32> {
                stream.tasks().filter(|t| is(&Row::new(*t))).map(|t| t.pid()).collect()
            };
            let (one, other) = (of(&|r| select.matches(r)), of(&|r| sorted.matches(r)));
            assert_eq!(one, other, "{select:?}");
            assert!(n == 0 || (1..199).contains(&one.len()), "{select:?} {}", one.len());
        }
    }
}
