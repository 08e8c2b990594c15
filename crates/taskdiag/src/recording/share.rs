//! Shares the room for a frame among users: removes data of users whose tasks need more than their
//! share.
//!
//! The shares are max-min fair: a user who needs less than an equal share keeps everything, and the
//! rest is divided among the others. Within a share, the rows of tasks come first, then lists and
//! names, then text. Short lists and texts stay complete, and long ones are cut to one length.
//! Values that are already in the key frame take no room, so they stay.
//!
//! Cgroups of all users together get at most an eighth of the room, and owners of cgroups have
//! equal shares of that: those nearest to the root stay.
//!
//! The size of a value is its compressed size, which is estimated from a sample for each user and
//! class. Nothing here does I/O.

use std::collections::{BTreeMap, HashMap, HashSet};

use taskdiag_wire::registry::{Shape, group_of, shape};
use taskdiag_wire::{
    A_CGROUP_PATH, A_GROUPS, A_MISSING, A_NAME, A_SHARED, AlignedBuf, BLOB_CUT, BlobHdr,
    CG_HAS_OWNER, CUT_OTHERS, Cgroup, CgroupList, CgroupView, Cred, Cut, Done, Fd, Group,
    MissingEntry, MissingHdr, Plain as _, Reason, Shared, Socket, Stream, StreamWriter, TaskView,
    Vma, build,
};

use super::codec;

/// The bytes of a user and class that are compressed to estimate the ratio.
const SAMPLE: usize = 1 << 20;
/// The samples of users with fewer bytes than this are compressed together, because a short sample
/// compresses badly.
const SMALL: u64 = 8 << 10;
/// The number of users that a frame names. Others are counted together.
const NAMED: usize = 32;
/// A name that lists refer to keeps at least this many bytes.
const NAME_LEAST: usize = 64;
/// If a user's share is less than this part of the room, and tasks had to be left out, the frame is
/// nearly useless.
const TIGHT: u64 = 8;

/// An answer that was reduced to the shares of its users.
#[derive(Debug)]
pub struct Share {
    /// The reduced stream.
    pub stream: AlignedBuf,
    /// Did many users get shares so small that some of their tasks are left out?
    pub is_tight: bool,
}

/// The classes of data, in the order in which they get room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Row,
    List,
    Text,
}

/// A value of a task that is kept or cut as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Value {
    /// All attributes of a group.
    Of(u16),
    /// The pieces of a blob: attribute and kind.
    Blob(u16, u32),
}

/// The value that an attribute belongs to.
fn place(kind: u16, attr: &[u8]) -> (Class, Value) {
    let of = |kind| Value::Of(group_of(kind).map_or(kind, |g| g as u16));
    const TEXT: [u16; 5] = [
        Group::Cmdline as u16,
        Group::Environ as u16,
        Group::Paths as u16,
        Group::Kstack as u16,
        A_GROUPS,
    ];
    let blob = || Value::Blob(kind, BlobHdr::read_from_prefix(attr).map_or(0, |(h, _)| h.kind));
    match shape(kind) {
        Some(Shape::List(_)) => (Class::List, of(kind)),
        _ if kind == A_NAME => (Class::List, blob()),
        // A cut path of a control group would name another control group.
        _ if kind == A_CGROUP_PATH => (Class::Text, of(kind)),
        _ if TEXT.contains(&kind) => (Class::Text, blob()),
        _ => (Class::Row, Value::Of(kind)),
    }
}

/// The values of a task, and the attributes of each.
type Values<'a> = BTreeMap<(Class, Value), Vec<&'a [u8]>>;

fn values<'a>(task: &TaskView<'a>) -> Values<'a> {
    let mut all = Values::new();
    for (kind, attr) in task.attrs() {
        all.entry(place(kind, attr)).or_default().push(attr);
    }
    all
}

fn uid(task: &TaskView<'_>) -> u32 {
    task.record::<Cred>().and_then(|r| r.uid()).unwrap_or(CUT_OTHERS)
}

/// The sizes of a user's values in one class.
#[derive(Debug, Default)]
struct Need {
    /// Bytes that are not in the key frame.
    new: u64,
    sample: Vec<u8>,
    /// The lengths of single values.
    lengths: Vec<u64>,
    /// The number of bytes of these values that fit. `None`: all.
    room: Option<u64>,
    /// The longest value that fits.
    longest: Option<u64>,
}

impl Need {
    fn add(&mut self, value: &[&[u8]]) {
        let len: u64 = value.iter().map(|a| a.len() as u64).sum();
        self.new += len;
        self.lengths.push(len);
        for attr in value {
            let room = SAMPLE.saturating_sub(self.sample.len());
            self.sample.extend_from_slice(&attr[..attr.len().min(room)]);
        }
    }
    /// Grants them this much of the frame, out of their total `cost`.
    fn limit(&mut self, cost: u64, share: u64) {
        if cost > share {
            let room = (self.new as f64 * share as f64 / cost as f64) as u64;
            self.room = Some(room);
            self.longest = Some(level(&mut self.lengths, room));
        }
    }
}

/// The largest limit for each size with which the sum is at most `total`.
fn level(sizes: &mut [u64], total: u64) -> u64 {
    sizes.sort_unstable();
    let (mut left, mut n) = (total, sizes.len() as u64);
    for size in sizes {
        if *size > left / n {
            return left / n;
        }
        (left, n) = (left - *size, n - 1);
    }
    u64::MAX
}

/// The needs of all users in one class.
#[derive(Debug, Default)]
struct Needs(HashMap<u32, Need>);

impl Needs {
    /// The bytes of each user's values in a frame.
    fn costs(&self, is_raw: bool) -> HashMap<u32, u64> {
        let mut packed = Vec::new();
        let mut part = |sample: &[u8]| match codec::compress(sample, &[], &mut packed) {
            Ok(()) if !is_raw && !sample.is_empty() => {
                (packed.len() as f64 / sample.len() as f64).min(1.0)
            }
            _ => 1.0,
        };
        let small = self.0.values().filter(|n| n.new <= SMALL);
        let small = small.flat_map(|n| &n.sample).copied().take(SAMPLE).collect::<Vec<u8>>();
        let of_small = part(&small);
        let cost = |(uid, need): (&u32, &Need)| {
            let part = if need.new <= SMALL { of_small } else { part(&need.sample) };
            (*uid, (need.new as f64 * part) as u64)
        };
        self.0.iter().map(cost).collect()
    }
    /// Grants each user the rest of their share. Users who are not in `shares` get everything.
    fn limit(&mut self, shares: &mut HashMap<u32, u64>, is_raw: bool) {
        let costs = self.costs(is_raw);
        for (uid, share) in shares {
            if let Some(need) = self.0.get_mut(uid) {
                need.limit(costs[uid], *share);
                *share = share.saturating_sub(costs[uid]);
            }
        }
    }
    /// The longest value of this user that stays complete.
    fn longest(&self, uid: u32) -> Option<u64> {
        self.0.get(&uid)?.longest
    }
}

/// Reduces `full` so that a frame of it fits into `room` bytes. `key` is the stream of the key
/// frame that it will be compressed with. `answers`: the number of answers that were left out
/// before it. `is_raw`: the room is for the uncompressed stream.
pub fn share<A: AsRef<[u8]>, B: AsRef<[u8]>>(
    full: &Stream<A>,
    key: Option<&Stream<B>>,
    room: u64,
    answers: u64,
    is_raw: bool,
) -> Share {
    let cgroups = CgroupsKept::within(full, key, room / 8, is_raw);
    let work = Work { full, key, room_for_names: room / 8, cgroups };
    let room = room - work.cgroups.bytes;
    let [mut rows, lists, texts] = work.needs(&|_, _| true);
    let mut costs = HashMap::<u32, u64>::new();
    for needs in [&rows, &lists, &texts] {
        needs
            .costs(is_raw)
            .into_iter()
            .for_each(|(uid, cost)| *costs.entry(uid).or_default() += cost);
    }
    let share = level(&mut costs.values().copied().collect::<Vec<_>>(), room);
    // The users who need more than their share.
    let mut left: HashMap<u32, u64> =
        costs.into_iter().filter(|(_, cost)| *cost > share).map(|(uid, _)| (uid, share)).collect();
    let has_less = left.keys().copied().collect::<HashSet<u32>>();
    rows.limit(&mut left, is_raw);
    let kept = work.kept(&mut rows);
    let [_, mut lists, mut texts] = work.needs(&|i, uid| kept[i] && has_less.contains(&uid));
    lists.limit(&mut left, is_raw);
    texts.limit(&mut left, is_raw);
    let stream = work.write(&kept, &lists, &texts, answers);
    Share { stream, is_tight: share < room / TIGHT && kept.contains(&false) }
}

struct Work<'s, A: AsRef<[u8]>, B: AsRef<[u8]>> {
    full: &'s Stream<A>,
    key: Option<&'s Stream<B>>,
    /// The most bytes of names of containers.
    room_for_names: u64,
    cgroups: CgroupsKept<'s>,
}

impl<A: AsRef<[u8]>, B: AsRef<[u8]>> Work<'_, A, B> {
    fn old(&self, pid: u32) -> Option<TaskView<'_>> {
        self.key?.task(pid)
    }
    /// Calls a function with each value of a task that is not in the key frame.
    fn each_new(&self, task: &TaskView<'_>, see: &mut dyn FnMut(Class, &[&[u8]])) {
        let old = self.old(task.pid());
        if old.is_some_and(|old| old.messages() == task.messages()) {
            return;
        }
        let old = old.map(|old| values(&old)).unwrap_or_default();
        for (place, attrs) in values(task) {
            if old.get(&place) != Some(&attrs) {
                see(place.0, &attrs);
            }
        }
    }
    /// The needs of each user's tasks in each class. `counts` selects tasks by number and user.
    fn needs(&self, counts: &dyn Fn(usize, u32) -> bool) -> [Needs; 3] {
        let mut all: [Needs; 3] = Default::default();
        for (i, task) in self.full.tasks().enumerate() {
            let uid = uid(&task);
            if counts(i, uid) {
                self.each_new(&task, &mut |class, value| {
                    all[class as usize].0.entry(uid).or_default().add(value);
                });
            }
        }
        all
    }
    /// The tasks that stay: those that are unchanged since the key frame, and others while their
    /// user has room.
    fn kept(&self, rows: &mut Needs) -> Vec<bool> {
        let stays = |task: TaskView<'_>| {
            let Some(Need { room: Some(room), .. }) = rows.0.get_mut(&uid(&task)) else {
                return true;
            };
            let mut len = 0;
            self.each_new(&task, &mut |class, value| {
                if class == Class::Row {
                    len += value.iter().map(|a| a.len() as u64).sum::<u64>();
                }
            });
            let has_room = len <= *room;
            *room -= if has_room { len } else { 0 };
            has_room
        };
        self.full.tasks().map(stays).collect()
    }
    /// The values of a task that are cut, and their new lengths.
    fn cuts(&self, task: &TaskView<'_>, lists: &Needs, texts: &Needs) -> HashMap<Value, u64> {
        let uid = uid(task);
        let limits = [(Class::List, lists.longest(uid)), (Class::Text, texts.longest(uid))];
        if limits.iter().all(|(_, longest)| longest.is_none()) {
            return HashMap::new();
        }
        let old = self.old(task.pid()).map(|old| values(&old)).unwrap_or_default();
        let mut cuts = HashMap::new();
        for (place, attrs) in values(task) {
            let len: u64 = attrs.iter().map(|a| a.len() as u64).sum();
            let limit = limits.iter().find(|(class, _)| *class == place.0).and_then(|l| l.1);
            // A list is useless if its names do not fit.
            let names = [Value::Of(Group::Vma as u16), Value::Of(Group::Fd as u16)];
            let is_cut =
                |l: &u64| len > *l || *l < NAME_LEAST as u64 * 2 && names.contains(&place.1);
            if let Some(limit) = limit.filter(|l| is_cut(l) && old.get(&place) != Some(&attrs)) {
                cuts.insert(place.1, limit);
            }
        }
        cuts
    }
    fn write(&self, kept: &[bool], lists: &Needs, texts: &Needs, answers: u64) -> AlignedBuf {
        let full = self.full;
        let mut w = StreamWriter::with_capacity(1 << 16);
        w.info(full.info());
        let mut taken = HashMap::<u32, Cut>::new();
        let mut done = build!(Done { error: full.done().error });
        let mut lacking_before = Done::default();
        // The names in the lists of tasks that are left out.
        let cuts: Vec<_> = full
            .tasks()
            .zip(kept)
            .map(|(t, kept)| if *kept { self.cuts(&t, lists, texts) } else { HashMap::new() })
            .collect();
        let mut used = HashSet::new();
        for ((task, cuts), _) in full.tasks().zip(&cuts).zip(kept).filter(|(_, kept)| **kept) {
            names_of(&task, cuts, &mut used);
        }
        let gone: HashSet<u32> =
            full.tasks().zip(kept).filter(|(_, kept)| !**kept).map(|(t, _)| t.pid()).collect();
        let mut homeless: Vec<&[u8]> = Vec::new();
        for (task, _) in full.tasks().zip(kept).filter(|(_, kept)| !**kept) {
            homeless.extend(
                task.attrs().filter(|(k, a)| *k == A_NAME && is_used(&used, a)).map(|a| a.1),
            );
        }
        for ((task, kept), cuts) in full.tasks().zip(kept).zip(&cuts) {
            count(&task, &mut lacking_before);
            let uid = uid(&task);
            let of_user = || build!(Cut { uid });
            if !kept {
                taken.entry(uid).or_insert_with(of_user).tasks += 1;
                continue;
            }
            if cuts.is_empty() && !refers_to(&task, &gone) {
                w.raw(task.messages());
                count(&task, &mut done);
                done.tasks += 1;
            } else {
                w.begin_task(task.pid(), task.tgid());
                let bytes = rewrite(&mut w, &task, cuts, &used, &gone);
                w.end_task();
                if bytes > 0 {
                    let taken = taken.entry(uid).or_insert_with(of_user);
                    (taken.cut_tasks, taken.cut_bytes) =
                        (taken.cut_tasks + 1, taken.cut_bytes + bytes);
                }
            }
            if !homeless.is_empty() {
                w.continue_task(task.pid(), task.tgid());
                std::mem::take(&mut homeless).into_iter().for_each(|name| w.raw_attr(name));
                w.end_task();
            }
        }
        // Tasks that ended before anything about them was known have no message.
        done.vanished += full.done().vanished.saturating_sub(lacking_before.vanished);
        keep_names(&mut w, full, self.room_for_names);
        self.cgroups.write(&mut w);
        for (uid, cgroups) in &self.cgroups.left {
            taken.entry(*uid).or_insert_with(|| build!(Cut { uid: *uid })).cgroups = *cgroups;
        }
        note(&mut w, full.cuts(), taken, answers);
        w.finish(done)
    }
}

/// The names that the lists of a task refer to, except for cut lists.
fn names_of(task: &TaskView<'_>, cuts: &HashMap<Value, u64>, used: &mut HashSet<u32>) {
    if !cuts.contains_key(&Value::Of(Group::Vma as u16)) {
        used.extend(task.list::<Vma>().into_iter().flatten().map(|e| e.raw.name));
    }
    if !cuts.contains_key(&Value::Of(Group::Fd as u16)) {
        used.extend(task.list::<Fd>().into_iter().flatten().map(|e| e.raw.name));
        used.extend(task.list::<Socket>().into_iter().flatten().map(|e| e.raw.name));
    }
}

fn is_used(used: &HashSet<u32>, attr: &[u8]) -> bool {
    BlobHdr::read_from_prefix(attr).is_some_and(|(h, _)| used.contains(&h.kind))
}

/// Does a task share a value with one of these?
fn refers_to(task: &TaskView<'_>, pids: &HashSet<u32>) -> bool {
    let shared = task.attrs().filter(|(kind, _)| *kind == A_SHARED);
    !pids.is_empty()
        && shared.into_iter().any(|(_, attr)| owner(attr).is_some_and(|s| pids.contains(&s.pid)))
}

fn owner(attr: &[u8]) -> Option<Shared> {
    Shared::read_from_prefix(attr).map(|(s, _)| s)
}

/// Writes a reduced task. Returns the number of bytes of values that were cut.
fn rewrite(
    w: &mut StreamWriter,
    task: &TaskView<'_>,
    cuts: &HashMap<Value, u64>,
    used: &HashSet<u32>,
    gone: &HashSet<u32>,
) -> u64 {
    let mut bytes = 0;
    let mut lost = HashSet::new();
    let mut cut = HashSet::new();
    for (kind, attr) in task.attrs() {
        let (_, value) = place(kind, attr);
        match (cuts.get(&value), value) {
            _ if kind == A_MISSING => missing(attr).for_each(|(g, why)| w.missing(g, why)),
            _ if kind == A_SHARED => match owner(attr).filter(|s| gone.contains(&s.pid)) {
                Some(shared) => lost.extend(Group::from_number(shared.group)),
                None => w.raw_attr(attr),
            },
            // The record identifies the control group, but its path is missing.
            _ if kind == Cgroup::TYPE && cuts.contains_key(&Value::Of(Cgroup::TYPE)) => {}
            (None, _) => w.raw_attr(attr),
            (Some(_), Value::Of(_)) => {
                bytes += attr.len() as u64;
                lost.extend(group_of(kind));
            }
            (Some(_), Value::Blob(..)) if kind == A_NAME && !is_used(used, attr) => {
                bytes += attr.len() as u64;
            }
            (Some(longest), Value::Blob(_, of)) => {
                if cut.insert((kind, of)) {
                    bytes += put_cut(w, task, kind, of, *longest);
                }
            }
        }
    }
    lost.into_iter().for_each(|group| w.missing(group, Reason::Truncated));
    bytes
}

/// Writes the start of a blob. Returns the number of bytes that are left out.
fn put_cut(w: &mut StreamWriter, task: &TaskView<'_>, attr: u16, kind: u32, longest: u64) -> u64 {
    let Some(blob) = task.blob(attr, kind) else { return 0 };
    if let Some(why) = blob.reason {
        w.put_blob_missing(attr, kind, why);
        return 0;
    }
    let least = if attr == A_NAME { NAME_LEAST } else { 0 };
    let head = size_of::<BlobHdr>() as u64;
    let len = usize::try_from(longest.saturating_sub(head)).unwrap_or(usize::MAX).max(least);
    // Lists of ids are cut between ids.
    let data = &blob.data[..blob.data.len().min(len / 4 * 4)];
    w.put_blob(attr, kind, blob.flags & !BLOB_CUT, data, blob.total);
    (blob.data.len() - data.len()) as u64
}

fn missing(attr: &[u8]) -> impl Iterator<Item = (Group, Reason)> + '_ {
    let entries = attr.get(size_of::<MissingHdr>()..).unwrap_or_default();
    let count = MissingHdr::read_from_prefix(attr).map_or(0, |(h, _)| h.count as usize);
    entries.chunks_exact(size_of::<MissingEntry>()).take(count).filter_map(|bytes| {
        let (entry, _) = MissingEntry::read_from_prefix(bytes)?;
        Some((Group::from_number(entry.group)?, Reason::from_number(entry.reason)?))
    })
}

/// Adds a task that is not reduced to the totals of missing values.
fn count(task: &TaskView<'_>, done: &mut Done) {
    let mut why = HashSet::new();
    for (kind, attr) in task.attrs() {
        if kind == A_MISSING {
            why.extend(missing(attr).map(|(_, why)| why as u32));
        }
        let is_blob = matches!(shape(kind), Some(Shape::Blob));
        if is_blob && BlobHdr::read_from_prefix(attr).is_some_and(|(h, _)| h.flags & BLOB_CUT != 0)
        {
            why.insert(Reason::Truncated as u32);
        }
    }
    let has = |r: Reason| u64::from(why.contains(&(r as u32)));
    done.denied += has(Reason::Denied);
    done.vanished += has(Reason::Vanished);
    done.blocked += has(Reason::Blocked);
    done.truncated += has(Reason::Truncated);
    done.over_budget += has(Reason::OverBudget);
}

/// Keeps the names of containers, up to this many bytes.
fn keep_names<B: AsRef<[u8]>>(w: &mut StreamWriter, full: &Stream<B>, most: u64) {
    let begin = w.len() as u64;
    for view in full.containers() {
        if w.len() as u64 - begin > most {
            break;
        }
        w.container(&view.parts());
    }
}

/// The cgroups of an answer that stay.
#[derive(Default)]
struct CgroupsKept<'a> {
    head: Option<CgroupList>,
    /// Their messages, with their places in the answer.
    messages: Vec<(usize, &'a [u8])>,
    /// Bytes that they take in the frame.
    bytes: u64,
    /// How many of each owner do not stay.
    left: HashMap<u32, u32>,
}

impl<'a> CgroupsKept<'a> {
    /// As many as fit into these bytes. Owners have equal shares, and of each owner those nearest
    /// to the root stay.
    fn within<A: AsRef<[u8]>, B: AsRef<[u8]>>(
        full: &'a Stream<A>,
        key: Option<&Stream<B>>,
        most: u64,
        is_raw: bool,
    ) -> CgroupsKept<'a> {
        let Some(mut head) = full.cgroup_list().copied() else { return CgroupsKept::default() };
        let old: Vec<u8> =
            key.iter().flat_map(|k| k.cgroups()).flat_map(|c| c.message()).copied().collect();
        let level = |group: &CgroupView<'_>| group.path().iter().filter(|b| **b == b'/').count();
        let mut nearest: Vec<_> = full.cgroups().enumerate().collect();
        nearest.sort_by_key(|(_, group)| level(group));
        // What of its owner comes before each of them.
        let mut taken: HashMap<u32, usize> = HashMap::new();
        let mut ranked: Vec<_> = nearest
            .into_iter()
            .map(|(at, group)| {
                let (head, message) = (group.head(), group.message());
                let uid = if head.flags & CG_HAS_OWNER != 0 { head.uid } else { CUT_OTHERS };
                let before = taken.entry(uid).or_default();
                *before += message.len();
                (*before - message.len(), at, uid, message)
            })
            .collect();
        ranked.sort_by_key(|(before, ..)| *before);
        let owners: Vec<u32> = ranked.iter().map(|(_, _, uid, _)| *uid).collect();
        let mut messages: Vec<_> = ranked.into_iter().map(|(_, at, _, m)| (at, m)).collect();
        let mut packed = Vec::new();
        loop {
            let mut in_order = messages.clone();
            in_order.sort_unstable_by_key(|(at, _)| *at);
            let all: Vec<u8> = in_order.iter().flat_map(|(_, m)| *m).copied().collect();
            let bytes = match codec::compress(&all, &old, &mut packed) {
                Ok(()) if !is_raw => packed.len() as u64,
                _ => all.len() as u64,
            };
            if messages.is_empty() || bytes <= most {
                let bytes = if messages.is_empty() { 0 } else { bytes };
                let mut left: HashMap<u32, u32> = HashMap::new();
                owners[messages.len()..].iter().for_each(|uid| *left.entry(*uid).or_default() += 1);
                return CgroupsKept { head: Some(head), messages: in_order, bytes, left };
            }
            // They are not all of the same size, so a little less than their number says.
            let before = messages.len();
            let fit = (before as f64 * 0.9 * most as f64 / bytes as f64) as usize;
            messages.truncate(fit.min(before - 1));
            head.no_room += (before - messages.len()) as u64;
        }
    }
    fn write(&self, w: &mut StreamWriter) {
        if let Some(head) = &self.head {
            w.cgroup_list(head);
            self.messages.iter().for_each(|(_, message)| w.raw(message));
        }
    }
}

/// Writes the amounts that were removed: by uid for the users who lost most, and as a sum for the
/// others.
fn note(w: &mut StreamWriter, before: &[Cut], taken: HashMap<u32, Cut>, answers: u64) {
    let mut taken: Vec<Cut> = taken.into_values().collect();
    taken.sort_unstable_by_key(|c| std::cmp::Reverse((c.tasks, c.cut_bytes, c.cgroups, c.uid)));
    let mut others = build!(Cut { uid: CUT_OTHERS, answers });
    for cut in before {
        w.cut(cut);
    }
    for (i, cut) in taken.iter().enumerate() {
        if i < NAMED && cut.uid != CUT_OTHERS {
            w.cut(cut);
            continue;
        }
        others.tasks += cut.tasks;
        others.cut_tasks += cut.cut_tasks;
        others.cut_bytes += cut.cut_bytes;
        others.cgroups = others.cgroups.saturating_add(cut.cgroups);
    }
    if others != build!(Cut { uid: CUT_OTHERS }) {
        w.cut(&others);
    }
}
