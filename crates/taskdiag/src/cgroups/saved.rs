//! Cgroups in a stream: a recorder adds them to its answer, and a reader finds them there.
//!
//! The values are those of the listing, with the sums over cgroups below. A reader on another
//! machine cannot make the sums, because a listing may lack cgroups.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use taskdiag_wire::{
    AlignedBuf, BLOB_MAX, CG_HAS_OWNER, CG_HAS_V1, CG_IS_V2, CG_UNLIMITED, CUT_OTHERS, CgroupList,
    CgroupMsg, CgroupValue, CgroupView, Cut, Done, Groups, Info, Reason, Strategy, StreamWriter,
    build,
};

use super::{
    Bounds, Cgroup, Cgroups, Files, Known, LeftOut, Member, Values, arrange, bit, by_path,
    compare_with,
};
use crate::error::Error;
#[cfg(feature = "record")]
use crate::recording::Recording;
use crate::snapshot::Snapshot;

/// The most owners of left-out cgroups that an answer names.
const OWNERS_KEPT: usize = 8;

impl Cgroups {
    /// The cgroups that were kept with an answer, at most as many as a listing has by default.
    /// `None`: it has none.
    pub fn of(snapshot: &Snapshot) -> Option<Cgroups> {
        let stream = snapshot.stream();
        let head = stream.cgroup_list()?;
        let at = Duration::from_nanos(head.boottime_ns);
        // A cgroup takes more memory than its message, and an answer may be from anybody.
        let most = Bounds::default().cgroups;
        let more = stream.cgroups().len().saturating_sub(most) as u64;
        let groups = stream.cgroups().take(most);
        let mut list: Vec<Cgroup> = groups.map(|view| cgroup(view, at)).collect();
        arrange(&mut list);
        let left = LeftOut {
            cgroups: head.left_out,
            deep: head.too_deep,
            no_room: head.no_room.saturating_add(more),
        };
        let bounds = Bounds {
            cgroups: head.most as usize,
            levels: head.levels as usize,
            ..Bounds::default()
        };
        let mut by_owner: HashMap<u32, u64> = HashMap::new();
        for cut in stream.cuts().iter().filter(|cut| cut.cgroups > 0 && cut.uid != CUT_OTHERS) {
            *by_owner.entry(cut.uid).or_default() += u64::from(cut.cgroups);
        }
        let mut left_by_owner: Vec<(u32, u64)> = by_owner.into_iter().collect();
        left_by_owner.sort_unstable_by_key(|(uid, n)| (Reverse(*n), *uid));
        let has_v1 = head.flags & CG_HAS_V1 != 0;
        let (syscalls, took) = (0, Duration::ZERO);
        Some(Cgroups {
            list,
            left,
            left_by_owner,
            bounds,
            syscalls,
            took,
            has_v1,
            at,
            kept_with: without_tasks(snapshot),
        })
    }
    /// The cgroups of a frame of a recording, with their growth since the frame before it, if both
    /// are of the same boot. `None`: the frame has none.
    ///
    /// # Errors
    /// As [`Recording::read`] for this frame. If the frame before it cannot be read, nothing is
    /// known about growth.
    #[cfg(feature = "record")]
    pub fn of_frame(recording: &Recording, number: usize) -> Result<Option<Cgroups>, Error> {
        let snapshot = recording.read(number)?.snapshot;
        let Some(mut all) = Cgroups::of(&snapshot) else { return Ok(None) };
        let before = number.checked_sub(1).and_then(|before| recording.read(before).ok());
        let before = before.map(|frame| frame.snapshot);
        let is_same_boot = |e: &Snapshot| e.host().is_same_boot(&snapshot.host()) != Some(false);
        if let Some(earlier) = before.filter(is_same_boot).as_ref().and_then(Cgroups::of) {
            all.compare(&earlier);
        }
        Ok(Some(all))
    }
    /// Gives each cgroup its growth since an earlier listing of the same boot.
    pub fn compare(&mut self, earlier: &Cgroups) {
        compare_with(&mut self.list, by_path(&earlier.list));
    }
    /// Keeps only these cgroups and those below them. The paths are as in
    /// [`Session::below`](super::Session::below).
    ///
    /// # Errors
    /// As [`Session::below`](super::Session::below), and [`Error::Io`] if a cgroup is not there.
    pub fn only<'a>(&mut self, paths: impl IntoIterator<Item = &'a [u8]>) -> Result<(), Error> {
        let paths = super::checked_paths(paths)?;
        for path in &paths {
            if !self.list.iter().any(|c| c.path == *path) {
                return Err(super::no_cgroup(path));
            }
        }
        let is_in = |c: &Cgroup| paths.iter().any(|p| c.path == *p || super::is_below(&c.path, p));
        self.list.retain(is_in);
        arrange(&mut self.list);
        Ok(())
    }
    /// Sentences about what a recording lacks.
    pub(super) fn remarks_of_kept(&self) -> Vec<String> {
        let LeftOut { cgroups, deep, no_room } = self.left;
        let mut remarks = Vec::new();
        // One number of each owner has both reasons.
        let mut whose = Some(self.whose()).into_iter();
        if cgroups > 0 {
            remarks.push(format!(
                "{cgroups} cgroups or more are not in this recorded answer{}, because at most {} are",
                whose.next().unwrap_or_default(),
                self.bounds.cgroups
            ));
        }
        if deep > 0 {
            remarks.push(format!(
                "cgroups below {deep} others are not in this recorded answer, because these are {} levels deep",
                self.bounds.levels
            ));
        }
        if no_room > 0 {
            remarks.push(format!(
                "{no_room} cgroups are not in this recorded answer{}, because it had no room for them",
                whose.next().unwrap_or_default()
            ));
        }
        remarks
    }
}

/// The head of an answer and the names of its containers.
fn without_tasks(snapshot: &Snapshot) -> Option<Snapshot> {
    let stream = snapshot.stream();
    let mut w = StreamWriter::new();
    let (show_flags, dump_strategy) = (Groups::BASE.bits(), Strategy::All as u64);
    w.info(&build!(Info { show_flags, dump_strategy, pid: 0, ..*stream.info() }));
    stream.containers().for_each(|names| w.container(&names.parts()));
    Snapshot::parse(w.finish(Done::default())).ok()
}

/// A cgroup of a stream, without its place in the tree.
fn cgroup(view: CgroupView<'_>, begin: Duration) -> Cgroup {
    let head = view.head();
    let mut values = Values::missing(Files::NONE, |_| Reason::Absent);
    for (member, entry) in view.values() {
        let unknown = Known::Missing(Reason::Unsupported);
        let known = match (entry.reason(), entry.flags(), entry.value()) {
            (Some(0), Some(flags), _) if flags & CG_UNLIMITED != 0 => Known::Unlimited,
            (Some(0), Some(_), Some(n)) => Known::Number(n),
            (Some(why), ..) => Reason::from_number(why.into()).map_or(unknown, Known::Missing),
            _ => unknown,
        };
        values.set(member, known);
    }
    let is_v2 = head.flags & CG_IS_V2 != 0;
    Cgroup {
        path: view.path().to_vec(),
        id: head.id,
        owner: (head.flags & CG_HAS_OWNER != 0).then_some(head.uid),
        hierarchies: bit(0),
        is_v2,
        level: 0,
        parent: None,
        at: begin.saturating_add(Duration::from_nanos(head.after_ns)),
        values: Arc::new(values),
        earlier: None,
    }
}

/// A value as it is in a stream. `None`: it was not asked for, so the stream does not have it.
fn entry(member: Member, known: Known) -> Option<CgroupValue> {
    let new = build!(CgroupValue { member: member as u32 });
    match known {
        Known::NotAsked => None,
        Known::Number(value) => Some(build!(CgroupValue { value, ..new })),
        Known::Unlimited => Some(build!(CgroupValue { flags: CG_UNLIMITED, ..new })),
        Known::Missing(why) => Some(build!(CgroupValue { reason: why as u16, ..new })),
    }
}

impl Snapshot {
    /// A copy of this answer that has these cgroups, too. The times at which they were read are
    /// rounded down to multiples of `grain`, so that a cgroup that does nothing is the same in each
    /// answer of a recording and takes no room there. A thousandth of the time between two answers
    /// is a good one.
    ///
    /// `None`: the answer has cgroups already.
    pub fn with_cgroups(&self, cgroups: &Cgroups, grain: Duration) -> Option<Snapshot> {
        if self.stream().cgroup_list().is_some() {
            return None;
        }
        let (mut out, done) = StreamWriter::reopen(AlignedBuf::copy_of(self.stream().bytes()))?;
        out.cgroup_list(&build!(CgroupList {
            boottime_ns: ns(cgroups.at),
            left_out: cgroups.left.cgroups,
            too_deep: cgroups.left.deep,
            no_room: cgroups.left.no_room,
            most: u32::try_from(cgroups.bounds.cgroups).unwrap_or(u32::MAX),
            levels: u32::try_from(cgroups.bounds.levels).unwrap_or(u32::MAX),
            flags: if cgroups.has_v1 { CG_HAS_V1 } else { 0 },
        }));
        let grain = ns(grain).max(1);
        for one in cgroups.list.iter().filter(|c| c.path.len() <= BLOB_MAX) {
            let after = ns(one.at.saturating_sub(cgroups.at));
            let head = CgroupMsg {
                id: one.id,
                after_ns: after / grain * grain,
                flags: if one.is_v2 { CG_IS_V2 } else { 0 }
                    | if one.owner.is_some() { CG_HAS_OWNER } else { 0 },
                uid: one.owner.unwrap_or(0),
            };
            let values = Member::ALL.iter().filter_map(|m| entry(*m, one.get(*m)));
            let values: Vec<_> = values.collect();
            out.cgroup(&head, &one.path, &values);
        }
        for (place, (uid, left)) in cgroups.left_by_owner.iter().enumerate() {
            let cgroups = u32::try_from(*left).unwrap_or(u32::MAX);
            if place < OWNERS_KEPT {
                out.cut(&build!(Cut { uid: *uid, cgroups }));
            }
        }
        // The stream was valid before, and what is added is well formed.
        Snapshot::with_served(out.finish(done), self.served().to_vec()).ok()
    }
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
