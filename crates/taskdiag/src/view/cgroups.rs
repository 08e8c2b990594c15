//! Rows that are cgroups: those that match, in their order.
//!
//! Each row is a task of the format. Its pid is the number of the cgroup in the list, from 1 on,
//! and its ppid is the number of the parent cgroup. So the code that arranges, sorts and counts
//! tasks works for cgroups, too.

use std::io;

use taskdiag_wire::{Base, Done, StreamWriter, build};

use super::filter::{Left, Sieve};
use super::order::Ranks;
use super::query::Query;
use super::rows::{Item, Rows, Take};
use crate::Groups;
use crate::cgroups::{Cgroups, Files};
use crate::engine::info::info;
use crate::error::Error;
use crate::field::{self, Context, Part, Row};
use crate::request::Request;
use crate::served::{Cost, EngineId};
use crate::snapshot::{Served, Snapshot};

/// A listing of cgroups as rows.
#[derive(Debug)]
pub struct CgroupRows<'a> {
    cgroups: &'a Cgroups,
    snapshot: Snapshot,
    cx: Context,
    /// Places in the list.
    shown: Vec<u32>,
    left: Vec<Left>,
}

impl Query {
    /// The files of cgroups that its columns, keys and conditions need.
    pub fn cgroup_files(&self) -> Files {
        field::cgroup_files_of(self.fields())
    }
}

impl<'a> CgroupRows<'a> {
    /// The cgroups that the conditions of a query select, in its order. Without keys, each is
    /// followed by those below it.
    ///
    /// # Errors
    /// No known cases; the rows are checked like every answer.
    pub fn new(query: &Query, cgroups: &'a Cgroups) -> Result<CgroupRows<'a>, Error> {
        let snapshot = stand_ins(cgroups)?;
        let cx = Context::of(&snapshot, false);
        let sieve = Sieve::new(query.filter.as_ref());
        let mut shown = Vec::new();
        let mut ranks = Ranks::default();
        for (at, row) in all(&snapshot, cgroups) {
            if sieve.passes(&cx, &row) {
                ranks.push(&cx, query.sort.iter().map(|k| (k.field.get)(&cx, &row)));
                shown.push(at);
            }
        }
        if !query.sort.is_empty() {
            shown = ranks.order(&query.sort).into_iter().map(|at| shown[at]).collect();
        }
        let left = sieve.left();
        Ok(CgroupRows { cgroups, snapshot, cx, shown, left })
    }
    /// The context that getters of values need.
    pub fn cx(&self) -> &Context {
        &self.cx
    }
    /// The stand-ins of the cgroups, in the order of the listing.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }
    /// The rows, as places in the listing.
    pub fn shown(&self) -> &[u32] {
        &self.shown
    }
    /// The cgroups that are left out because it is not known whether they match.
    pub fn left(&self) -> &[Left] {
        &self.left
    }
    /// The rows and their ancestors, which need not match. Each ancestor comes before the first row
    /// below it.
    pub fn with_ancestors(&self) -> Vec<u32> {
        let list = self.cgroups.list();
        let mut seen = vec![false; list.len()];
        let mut out = Vec::new();
        for at in &self.shown {
            let mut line = Vec::new();
            let mut next = Some(*at as usize);
            while let Some(at) = next.filter(|at| !std::mem::replace(&mut seen[*at], true)) {
                line.push(at as u32);
                next = list[at].parent();
            }
            out.extend(line.into_iter().rev());
        }
        out
    }
    /// Shows these rows of the listing, in this order.
    pub fn show(&mut self, places: Vec<u32>) {
        self.shown = places;
    }
}

impl Rows for CgroupRows<'_> {
    fn each(&self, take: &mut Take<'_>) -> io::Result<()> {
        let (stream, list) = (self.snapshot.stream(), self.cgroups.list());
        for at in &self.shown {
            let at = *at as usize;
            let (Some(task), Some(cgroup)) = (stream.get(at), list.get(at)) else { continue };
            take(Item::Row(&Row::new(task).with_part(Part::Cgroup(cgroup))))?;
        }
        Ok(())
    }
}

/// All rows, with their places.
fn all<'s>(snapshot: &'s Snapshot, cgroups: &'s Cgroups) -> impl Iterator<Item = (u32, Row<'s>)> {
    let rows = snapshot.tasks().zip(cgroups.list());
    let row = |(task, cgroup)| Row::new(task).with_part(Part::Cgroup(cgroup));
    (0..).zip(rows.map(row))
}

/// An answer with a task for each cgroup. For cgroups that were kept with an answer, it is a saved
/// one of the same time and machine.
fn stand_ins(cgroups: &Cgroups) -> Result<Snapshot, Error> {
    let mut w = StreamWriter::with_capacity(cgroups.list().len() * 128 + 1024);
    let kept = cgroups.kept_with().map(Snapshot::stream);
    w.info(&kept.map_or_else(|| info(&Request::all(Groups::BASE)), |kept| *kept.info()));
    for (at, cgroup) in (1_u32..).zip(cgroups.list()) {
        let ppid = cgroup.parent().map_or(0, |parent| parent as u32 + 1);
        w.begin_task(at, at);
        w.put(&build!(Base { valid: Base::ALL_VALID, ppid, ..Base::new() }));
        w.end_task();
    }
    if let Some(kept) = kept {
        kept.containers().for_each(|names| w.container(&names.parts()));
        return Snapshot::parse(w.finish(Done::default()));
    }
    let wall = cgroups.took();
    let cost = Cost { syscalls: cgroups.syscalls(), wall, ..Cost::default() };
    let served = Served {
        engine: EngineId::Procfs,
        groups: Groups::NONE,
        why: String::from("cgroups have no other engine"),
        cost,
        caveats: Vec::new(),
    };
    Snapshot::with_served(w.finish(Done::default()), vec![served])
}
