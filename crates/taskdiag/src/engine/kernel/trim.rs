//! Cuts texts, lists and names in an answer while it arrives, because the kernel sends them
//! completely: the arguments or mappings of all processes may be gigabytes (see `engine/room.rs`).
//! The pieces come from a small buffer, so the complete answer is never in memory. The stream is
//! parsed afterwards like any other.

use std::collections::{HashMap, HashSet};
use std::mem::offset_of;

use taskdiag_wire::registry::{Shape, group_of, shape};
use taskdiag_wire::{
    A_MISSING, A_NAME, A_SOCKET, AlignedBuf, ArrayHdr, BLOB_CUT, BlobHdr, Cred, Done, FLAG_CONT,
    Fd, Group, Groups, MSG_TASK, MissingEntry, MissingHdr, NLMSG_DONE, NLMSG_NOOP, NlAttr,
    NlMsgHdr, Plain, Reason, Socket, TaskMsg, Vma,
};

use crate::engine::room::{LIST_LEAST, NAME_LEAST, Room};
use crate::request::ByteLimits;

const MESSAGE: usize = size_of::<NlMsgHdr>();
const TASK: usize = MESSAGE + size_of::<TaskMsg>();
const BLOB: usize = size_of::<BlobHdr>();

/// The groups that have a limit.
pub(super) const LIMITED: Groups = Groups::LISTS.union(Groups::TEXTS).union(Groups::PATHS);

/// An answer that arrives in pieces.
#[derive(Debug)]
pub(super) struct Trim {
    out: AlignedBuf,
    texts: Room,
    lists: Room,
    /// The names that were left out.
    lost: Numbers,
    task: Task,
    /// Tasks with data that was cut here and that the kernel had not counted.
    tasks: u64,
}

/// The current task.
#[derive(Debug, Default)]
struct Task {
    pid: u32,
    tgid: u32,
    /// The real user id, once it is known.
    uid: Option<u32>,
    /// The bytes of CMDLINE and of ENVIRON that are kept.
    keep: [usize; 2],
    /// How many bytes of lists and names it may have. `None`: it has none so far.
    room: Option<usize>,
    taken: usize,
    /// The entries that were kept, by the type of the list.
    entries: Vec<(u16, usize)>,
    /// The groups whose lists end early.
    ended: Groups,
    /// Was data cut here? Was data cut by the kernel, which has then counted the task?
    is_cut: bool,
    is_counted: bool,
}

impl Task {
    fn entries(&mut self, kind: u16) -> &mut usize {
        let at = self.entries.iter().position(|(k, _)| *k == kind).unwrap_or_else(|| {
            self.entries.push((kind, 0));
            self.entries.len() - 1
        });
        &mut self.entries[at].1
    }
    fn user(&mut self, uid: &impl Fn(u32) -> Option<u32>) -> u32 {
        let pid = self.pid;
        *self.uid.get_or_insert_with(|| uid(pid).unwrap_or(u32::MAX))
    }
}

/// A set of numbers of names, which the kernel counts up from 1.
#[derive(Debug, Default)]
struct Numbers(Vec<u64>);

impl Numbers {
    /// The high bits say which engine gave the number.
    fn place(number: u32) -> (usize, u64) {
        let n = number & 0x0fff_ffff;
        (n as usize / 64, 1 << (n % 64))
    }
    fn insert(&mut self, number: u32) {
        let (at, bit) = Numbers::place(number);
        if self.0.len() <= at {
            self.0.resize(at + 1, 0);
        }
        self.0[at] |= bit;
    }
    /// Whether it had the number.
    fn take(&mut self, number: u32) -> bool {
        let (at, bit) = Numbers::place(number);
        let had = self.0.get(at).is_some_and(|bits| bits & bit != 0);
        if had {
            self.0[at] &= !bit;
        }
        had
    }
}

/// The parts of a message that are kept.
#[derive(Debug, Default)]
struct Plan {
    /// How many entries of each list, in their order. Empty: all.
    entries: Vec<usize>,
    /// The names that they refer to, if it is not `None`: all names of the message.
    names: Option<HashSet<u32>>,
}

impl Trim {
    /// `guess` bytes are expected.
    pub(super) fn new(limits: ByteLimits, guess: usize) -> Trim {
        let (texts, lists) = (Room::new(limits), Room::new(limits));
        let out = AlignedBuf::with_capacity(guess);
        Trim { out, texts, lists, lost: Numbers::default(), task: Task::default(), tasks: 0 }
    }

    /// The stream so far.
    pub(super) fn stream(&self) -> &[u8] {
        self.out.as_bytes()
    }

    /// The stream with the bytes that are left, which are no message.
    pub(super) fn finish(mut self, rest: &[u8]) -> AlignedBuf {
        self.out.extend_padded(rest);
        self.out
    }

    /// Takes the complete messages at the beginning of `bytes`. Returns their length. `uid` finds
    /// the real user id of a task.
    pub(super) fn advance(&mut self, bytes: &[u8], uid: impl Fn(u32) -> Option<u32>) -> usize {
        let mut at = 0;
        while let Some((hdr, body)) = NlMsgHdr::read_from_prefix(&bytes[at..]) {
            let len = hdr.len as usize;
            // The parser reports anything that is not a message.
            if len < MESSAGE || len % 8 != 0 || len > bytes.len() - at {
                break;
            }
            let message = &bytes[at..at + len];
            match TaskMsg::read_from_prefix(body) {
                Some((task, _)) if hdr.kind == MSG_TASK && len >= TASK => {
                    if task.flags & FLAG_CONT == 0 {
                        self.end_task(&uid);
                        self.task = Task { pid: task.pid, tgid: task.tgid, ..Task::default() };
                    }
                    self.message(message, &uid);
                }
                _ => self.other(hdr.kind, message, &uid),
            }
            at += len;
        }
        at
    }

    /// A message that is about no task.
    fn other(&mut self, kind: u16, message: &[u8], uid: &impl Fn(u32) -> Option<u32>) {
        if kind != NLMSG_NOOP {
            self.end_task(uid);
        }
        let begin = self.out.len();
        self.out.extend_padded(message);
        if kind == NLMSG_DONE {
            let totals = &mut self.out.as_mut_bytes()[begin + MESSAGE..];
            if let Some((mut done, _)) = Done::read_from_prefix(totals) {
                done.truncated += self.tasks;
                totals[..size_of::<Done>()].copy_from_slice(done.as_bytes());
            }
        }
    }

    /// Accounts for a task, and adds a message with the lists that end early.
    fn end_task(&mut self, uid: &impl Fn(u32) -> Option<u32>) {
        let mut task = std::mem::take(&mut self.task);
        if task.taken > 0 {
            self.lists.take_list(task.taken, || task.user(uid));
        }
        let ended = std::mem::replace(&mut task.ended, Groups::NONE);
        if !ended.is_empty() {
            let reason = Reason::Truncated as u32;
            let entries: Vec<MissingEntry> =
                ended.iter().map(|g| MissingEntry { group: g as u32, reason }).collect();
            let len = size_of::<MissingHdr>() + size_of_val(&entries[..]);
            let (count, kind) = (entries.len() as u32, A_MISSING);
            let (pid, tgid) = (task.pid, task.tgid);
            let all = (TASK + len) as u32;
            self.out.push(&NlMsgHdr { len: all, kind: MSG_TASK, ..NlMsgHdr::default() });
            self.out.push(&TaskMsg { pid, tgid, flags: FLAG_CONT, reserved: 0 });
            self.out.push(&MissingHdr { nla: NlAttr { len: len as u16, kind }, count });
            self.out.extend_padded(MissingEntry::slice_as_bytes(&entries));
        }
        self.tasks += u64::from((task.is_cut || !ended.is_empty()) && !task.is_counted);
    }

    /// Copies a message of the current task, cut at the limits.
    fn message(&mut self, message: &[u8], uid: &impl Fn(u32) -> Option<u32>) {
        let begin = self.out.len();
        self.out.extend_padded(&message[..TASK]);
        let plan = self.plan(&message[TASK..], uid);
        let mut lists = plan.entries.iter();
        for (kind, attr) in attrs(&message[TASK..]) {
            let blob = || BlobHdr::read_from_prefix(attr).map(|(hdr, _)| hdr);
            match (shape(kind), blob()) {
                (Some(Shape::List(_)), _) => match lists.next() {
                    Some(keep) => self.list(kind, attr, *keep),
                    None => self.out.extend_padded(attr),
                },
                (Some(Shape::Blob), Some(hdr)) => self.blob(kind, attr, hdr, &plan, uid),
                _ => {
                    if kind == Group::Cred as u16 {
                        let cred = Cred::read_from_prefix(attr);
                        self.task.uid = cred.and_then(|(cred, _)| cred.known().uid());
                    }
                    self.task.is_counted |= kind == A_MISSING && says_truncated(attr);
                    self.out.extend_padded(attr);
                }
            }
        }
        let len = (self.out.len() - begin) as u32;
        self.out.as_mut_bytes()[begin..begin + 4].copy_from_slice(&len.to_ne_bytes());
    }

    /// Decides how much of the lists and names of a message is kept. The kernel writes the names of
    /// entries before the list that has these.
    fn plan(&mut self, bytes: &[u8], uid: &impl Fn(u32) -> Option<u32>) -> Plan {
        let is_list = |kind| matches!(shape(kind), Some(Shape::List(_)));
        let is_limited = |kind| is_list(kind) || kind == A_NAME || kind == Group::Paths as u16;
        if !attrs(bytes).any(|(kind, _)| is_limited(kind)) {
            return Plan::default();
        }
        let (lists, task) = (&self.lists, &mut self.task);
        if task.room.is_none() {
            task.room = Some(lists.list_bytes(|| task.user(uid)));
        }
        let room = task.room.unwrap_or(0);
        if task.taken + bytes.len() <= room && self.lost.0.is_empty() {
            for (kind, attr) in attrs(bytes).filter(|(kind, _)| is_list(*kind)) {
                let more = ArrayHdr::read_from_prefix(attr).map_or(0, |(hdr, _)| hdr.count);
                *task.entries(kind) += more as usize;
            }
            // Short lists do not count.
            if task.entries.iter().any(|(_, n)| *n > LIST_LEAST) {
                let counts = |kind| is_list(kind) || kind == A_NAME;
                let all = attrs(bytes).filter(|(kind, _)| counts(*kind));
                task.taken += all.map(|(_, attr)| attr.len()).sum::<usize>();
            }
            return Plan::default();
        }
        let names = attrs(bytes).filter(|(kind, _)| *kind == A_NAME);
        let names: HashMap<u32, usize> =
            names.filter_map(|(_, a)| Some((name_number(a)?, a.len()))).collect();
        let (mut entries, mut used, mut left) = (Vec::new(), HashSet::new(), HashSet::new());
        for (kind, attr) in attrs(bytes).filter(|(kind, _)| is_list(*kind)) {
            let mut keep = 0;
            for entry in list_entries(attr) {
                let has = *task.entries(kind);
                let number = entry_name(kind, entry).unwrap_or(0);
                if has >= LIST_LEAST && task.taken >= room {
                    task.ended |= group_of(kind).map_or(Groups::NONE, Groups::from);
                    left.insert(number);
                    continue;
                }
                (keep, *task.entries(kind)) = (keep + 1, has + 1);
                let is_new = number != 0 && used.insert(number);
                if has >= LIST_LEAST {
                    let name = names.get(&number).filter(|_| is_new);
                    task.taken += entry.len() + name.copied().unwrap_or(0);
                }
            }
            // The parser reports a malformed list.
            let is_empty = list_entries(attr).next().is_none();
            entries.push(if is_empty { usize::MAX } else { keep });
        }
        // A name that no entry here has belongs to a later message.
        if task.taken < room {
            used.extend(names.into_keys().filter(|n| !left.contains(n)));
        }
        Plan { entries, names: Some(used) }
    }

    /// Copies the first entries of a list.
    fn list(&mut self, kind: u16, attr: &[u8], keep: usize) {
        let Some((mut hdr, _)) = ArrayHdr::read_from_prefix(attr) else {
            return self.out.extend_padded(attr);
        };
        for entry in list_entries(attr).take(keep) {
            let number = entry_name(kind, entry).unwrap_or(0);
            // Its text was in a list of another task that ended early.
            if number != 0 && self.lost.take(number) {
                self.out.push(&BlobHdr {
                    nla: NlAttr { len: BLOB as u16, kind: A_NAME },
                    kind: number,
                    reason: Reason::Truncated as u16,
                    ..BlobHdr::default()
                });
                self.task.is_cut = true;
            }
        }
        if keep >= hdr.count as usize {
            return self.out.extend_padded(attr);
        }
        if keep > 0 {
            let len = size_of::<ArrayHdr>() + keep * hdr.size as usize;
            (hdr.nla.len, hdr.count) = (len as u16, keep as u32);
            self.out.push(&hdr);
            self.out.extend_padded(&attr[size_of::<ArrayHdr>()..len]);
        }
    }

    fn blob(
        &mut self,
        kind: u16,
        attr: &[u8],
        hdr: BlobHdr,
        plan: &Plan,
        uid: &impl Fn(u32) -> Option<u32>,
    ) {
        let is_truncated = hdr.reason == Reason::Truncated as u16;
        self.task.is_counted |= hdr.flags & BLOB_CUT != 0 || is_truncated;
        let text = [Group::Cmdline as u16, Group::Environ as u16];
        if let Some(which) = text.iter().position(|k| *k == kind) {
            if hdr.offset == 0 {
                let (texts, task) = (&self.texts, &mut self.task);
                task.keep[which] = texts.take(hdr.total as usize, || task.user(uid));
            }
            return self.piece(attr, hdr, self.task.keep[which]);
        }
        let is_path = kind == Group::Paths as u16;
        if kind == A_NAME && plan.names.as_ref().is_some_and(|n| !n.contains(&hdr.kind)) {
            return self.lost.insert(hdr.kind);
        }
        if !(is_path || kind == A_NAME) {
            return self.out.extend_padded(attr);
        }
        if self.task.room == Some(0) {
            return self.piece(attr, hdr, NAME_LEAST);
        }
        if is_path && hdr.len as usize > NAME_LEAST {
            self.task.taken += attr.len();
        }
        self.out.extend_padded(attr);
    }

    /// Copies a piece of a text or a name. At most `most` bytes of the whole text are kept.
    fn piece(&mut self, attr: &[u8], mut hdr: BlobHdr, most: usize) {
        let (offset, len) = (hdr.offset as usize, (hdr.len as usize).min(attr.len() - BLOB));
        let left = most.saturating_sub(offset);
        if len <= left && (len < left || offset + len == hdr.total as usize) {
            return self.out.extend_padded(attr);
        }
        self.task.is_cut = true;
        if left == 0 && offset > 0 {
            return;
        }
        let keep = len.min(left);
        hdr.nla.len = (BLOB + keep.next_multiple_of(8)) as u16;
        (hdr.len, hdr.flags) = (keep as u32, hdr.flags | BLOB_CUT);
        self.out.push(&hdr);
        self.out.extend_padded(&attr[BLOB..BLOB + keep]);
    }
}

/// The attributes of a message. Bytes that are no attribute come last, with a type that has no
/// meaning.
fn attrs(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (kind, len) = match NlAttr::read_from_prefix(rest) {
            Some((nla, _)) => (nla.kind, usize::from(nla.len)),
            None => (u16::MAX, 0),
        };
        let is_whole = len >= size_of::<NlAttr>() && len % 8 == 0 && len <= rest.len();
        let (attr, left) = rest.split_at(if is_whole { len } else { rest.len() });
        rest = left;
        Some((if is_whole { kind } else { u16::MAX }, attr))
    })
}

/// The entries of a list. There are no entries if the attribute is malformed.
fn list_entries(attr: &[u8]) -> impl Iterator<Item = &[u8]> {
    let whole = ArrayHdr::read_from_prefix(attr).filter(|(hdr, rest)| {
        hdr.size >= 8 && u64::from(hdr.size) * u64::from(hdr.count) <= rest.len() as u64
    });
    whole
        .into_iter()
        .flat_map(|(hdr, rest)| rest.chunks_exact(hdr.size as usize).take(hdr.count as usize))
}

/// The number of the name of an entry. `None`: it has none.
fn entry_name(kind: u16, entry: &[u8]) -> Option<u32> {
    let at = match kind {
        _ if kind == Group::Vma as u16 => offset_of!(Vma, name),
        _ if kind == Group::Fd as u16 => offset_of!(Fd, name),
        A_SOCKET => offset_of!(Socket, name),
        _ => return None,
    };
    Some(u32::from_ne_bytes(entry.get(at..at + 4)?.try_into().ok()?))
}

fn name_number(attr: &[u8]) -> Option<u32> {
    BlobHdr::read_from_prefix(attr).map(|(hdr, _)| hdr.kind)
}

/// Whether a MISSING attribute says that something was cut.
fn says_truncated(attr: &[u8]) -> bool {
    let list = attr.get(size_of::<MissingHdr>()..).unwrap_or_default();
    let entries = list.chunks_exact(size_of::<MissingEntry>()).filter_map(|entry| {
        let (entry, _) = MissingEntry::read_from_prefix(entry)?;
        Some(entry.reason)
    });
    entries.into_iter().any(|reason| reason == Reason::Truncated as u32)
}
