//! One task of a checked stream and its values: records, lists, and values of variable length. The
//! checks are in `decode`, so nothing here can fail.

use std::borrow::Cow;
use std::fmt;

use crate::decode::{CGROUP_HDR, Index, TASK_HDR, comm, is_blob, reason};
use crate::groups::Groups;
use crate::layout::*;
use crate::names::{CgroupMember, ContainerPart, Group, PathKind, Reason};
use crate::*;

/// One task of a checked stream.
#[derive(Clone, Copy)]
pub struct TaskView<'a> {
    pub(crate) pid: u32,
    pub(crate) tgid: u32,
    pub(crate) messages: &'a [u8],
    pub(crate) index: &'a Index,
    pub(crate) bytes: &'a [u8],
}

impl fmt::Debug for TaskView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TaskView {{ pid: {}, tgid: {} }}", self.pid, self.tgid)
    }
}

impl<'a> TaskView<'a> {
    /// Thread id (of the leader, for a process), in the reader's pid namespace.
    pub fn pid(&self) -> u32 {
        self.pid
    }
    /// Process id.
    pub fn tgid(&self) -> u32 {
        self.tgid
    }
    /// Whether this is the thread-group leader.
    pub fn is_leader(&self) -> bool {
        self.pid == self.tgid
    }
    /// The head of its stream.
    pub fn info(&self) -> &'a Info {
        &self.index.info
    }
    /// Groups that were asked for.
    pub fn asked(&self) -> Groups {
        Groups::from_bits(self.index.info.show_flags)
    }
    /// The task's messages as they are in the stream, with the filler between them.
    pub fn messages(&self) -> &'a [u8] {
        self.messages
    }
    /// Each attribute in order, as (type, bytes with header).
    pub fn attrs(&self) -> Attrs<'a> {
        Attrs { messages: self.messages, attrs: &[] }
    }
    fn find(&self, kind: u16) -> Option<&'a [u8]> {
        self.attrs().find(|a| a.0 == kind).map(|a| a.1)
    }
    /// The record of a fixed-size group, or `None` if it is not in the answer
    /// ([`reason`](Self::reason) says why).
    pub fn record<T: GroupRecord>(&self) -> Option<Record<'a, T>> {
        T::ref_from_prefix(self.find(T::TYPE)?).map(|(r, _)| Record::new(r))
    }
    /// The command name. It may contain any bytes but NUL.
    pub fn comm(&self) -> Option<&'a [u8]> {
        let long = || self.blobs(A_COMM).next().map(|(_, name)| name);
        comm(self.record::<Base>()?, long)
    }
    /// The entries of a list, or `None` if it is not in the answer ([`reason`](Self::reason) and
    /// [`shared`](Self::shared) say why).
    pub fn list<T: ListEntry>(&self) -> Option<impl Iterator<Item = Entry<'a, T>> + use<'a, T>> {
        let attrs = self.attrs().filter(|a| a.0 == T::TYPE);
        attrs.clone().next()?;
        Some(attrs.flat_map(|(_, attr)| entries(attr)))
    }
    /// The name that entries of lists refer to by this number.
    pub fn name(&self, number: u32) -> Option<Blob<'a>> {
        self.index.name(self.bytes, number)
    }
    /// Thread id of the task in this stream whose message has the value of this group. Both tasks
    /// share it.
    pub fn shared(&self, group: Group) -> Option<u32> {
        let all = self.attrs().filter(|a| a.0 == A_SHARED);
        all.filter_map(|(_, attr)| Shared::read_from_prefix(attr))
            .find_map(|(s, _)| (s.group == group as u32).then_some(s.pid))
    }
    /// The task whose message has the value of this group: this task, or a task with which it
    /// shares the value.
    pub fn owner(&self, group: Group) -> Option<TaskView<'a>> {
        match self.shared(group) {
            None => Some(*self),
            Some(pid) => self.index.task(self.bytes, pid),
        }
    }
    /// Why a group is not in the answer. `None` if it was not requested, or if it is in the answer.
    pub fn reason(&self, g: Group) -> Option<Reason> {
        if !self.asked().has(g) {
            return None;
        }
        // If the answers of two engines were joined, each has its own list.
        let lists = self.attrs().filter(|a| a.0 == A_MISSING);
        let mut entries = lists.filter_map(|(_, bytes)| {
            let (hdr, rest) = MissingHdr::read_from_prefix(bytes)?;
            <[MissingEntry] as zerocopy::FromBytes>::ref_from_prefix_with_elems(
                rest,
                hdr.count as usize,
            )
            .ok()
        });
        entries
            .find_map(|(list, _)| list.iter().find(|e| e.group == g as u32))
            .map(|e| Reason::from_number(e.reason).unwrap_or(Reason::Unsupported))
    }
    /// A value of variable length, which is borrowed if it is in one piece. `None` if it is not in
    /// the answer.
    pub fn blob(&self, attr: u16, kind: u32) -> Option<Blob<'a>> {
        let mut pieces = self.blobs(attr).filter(|(h, _)| h.kind == kind);
        let (first, data) = pieces.next()?;
        let mut out = Blob {
            // Without its first piece, a value is shown as empty.
            data: Cow::Borrowed(if first.offset == 0 { data } else { &[] }),
            flags: first.flags,
            total: first.total as usize,
            reason: reason(first),
        };
        if out.data.len() < out.total {
            for (h, piece) in pieces {
                // A piece with another total belongs to another value.
                if h.offset as usize == out.data.len() && h.total == first.total {
                    out.data.to_mut().extend_from_slice(piece);
                    out.flags |= h.flags;
                }
            }
            if out.data.len() < out.total {
                out.flags |= BLOB_CUT;
            }
        }
        Some(out)
    }
    /// All pieces of a blob attribute: header and data.
    pub fn blobs(&self, attr: u16) -> impl Iterator<Item = (&'a BlobHdr, &'a [u8])> + use<'a> {
        self.attrs().filter(move |a| a.0 == attr && is_blob(attr)).filter_map(|(_, bytes)| {
            let (hdr, rest) = BlobHdr::ref_from_prefix(bytes)?;
            Some((hdr, rest.get(..hdr.len as usize)?))
        })
    }
    /// The environment, with a NUL after each variable.
    pub fn environ(&self) -> Option<Blob<'a>> {
        self.blob(Group::Environ as u16, 0)
    }
    /// The kernel function it sleeps in.
    pub fn wchan(&self) -> Option<Blob<'a>> {
        self.blob(Group::Wchan as u16, 0)
    }
    /// The kernel stack of the task, one line for each frame.
    pub fn kstack(&self) -> Option<Blob<'a>> {
        self.blob(Group::Kstack as u16, 0)
    }
    /// The arguments, with a NUL after each unless the process wrote over them.
    pub fn cmdline(&self) -> Option<Blob<'a>> {
        self.blob(Group::Cmdline as u16, 0)
    }
    /// A path of the task.
    pub fn path(&self, kind: PathKind) -> Option<Blob<'a>> {
        self.blob(Group::Paths as u16, kind as u32)
    }
    /// Supplementary gids. The list is also known, as empty, if CRED says that there are none.
    pub fn groups(&self) -> Option<Vec<u32>> {
        let none = || self.record::<Cred>()?.ngroups().filter(|n| *n == 0).map(|_| Vec::new());
        self.blob(A_GROUPS, 0).map(|b| b.ids()).or_else(none)
    }
    /// The id of the task in each pid namespace, the reader's namespace first.
    pub fn nspid(&self) -> Option<Vec<u32>> {
        self.blob(A_NSPID, 0).map(|b| b.ids())
    }
    /// The processors that it may run on: bit 0 of the first byte stands for number 0. There are no
    /// zeros at the end.
    pub fn cpus(&self) -> Option<Vec<u8>> {
        self.mask(A_CPUS)
    }
    /// The NUMA nodes that it may have memory of, as [`cpus`](Self::cpus).
    pub fn mems(&self) -> Option<Vec<u8>> {
        self.mask(A_MEMS)
    }
    fn mask(&self, attr: u16) -> Option<Vec<u8>> {
        let mut mask = self.blob(attr, 0)?.data.into_owned();
        mask.truncate(mask.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1));
        Some(mask)
    }
    /// The map of uids ([`A_UID_MAP`]) or gids ([`A_GID_MAP`]) of its user namespace: for each
    /// range, the first id in it, the first id of the reader's, and the number of ids.
    pub fn id_map(&self, attr: u16) -> Option<Vec<[u32; 3]>> {
        let ids = self.blob(attr, 0)?.ids();
        Some(ids.chunks_exact(3).map(|range| [range[0], range[1], range[2]]).collect())
    }
    /// The cgroups of the task: the id of the hierarchy (0 is v2) and `controllers:path`.
    pub fn cgroups(&self) -> impl Iterator<Item = (u32, &'a [u8])> + use<'a> {
        self.blobs(A_CGROUP_PATH).map(|(h, d)| (h.kind, d))
    }
}

/// The names of a container that were kept with a stream.
#[derive(Clone, Copy, Debug)]
pub struct ContainerView<'a>(pub(crate) &'a [u8]);

impl<'a> ContainerView<'a> {
    /// A value of the container, or the reason why there is none. `None`: the stream has neither.
    pub fn part(self, part: ContainerPart) -> Option<Result<&'a [u8], Reason>> {
        let all = attrs_of(self.0).filter(|(kind, _)| *kind == A_CONTAINER);
        let mut blobs = all.filter_map(|(_, attr)| BlobHdr::ref_from_prefix(attr));
        let (hdr, data) = blobs.find(|(hdr, _)| hdr.kind == part as u32)?;
        Some(match reason(hdr) {
            Some(why) => Err(why),
            None => Ok(&data[..hdr.len as usize]),
        })
    }
    /// All values that the stream has of it, as [`StreamWriter::container`] takes them.
    pub fn parts(self) -> Vec<(ContainerPart, Result<&'a [u8], Reason>)> {
        ContainerPart::ALL.iter().filter_map(|part| Some((*part, self.part(*part)?))).collect()
    }
}

/// A control group that was kept with a stream.
#[derive(Clone, Copy, Debug)]
pub struct CgroupView<'a>(pub(crate) &'a [u8]);

impl<'a> CgroupView<'a> {
    /// The whole message, as it is in the stream.
    pub fn message(self) -> &'a [u8] {
        self.0
    }
    /// Its id, and when it was read.
    pub fn head(self) -> CgroupMsg {
        let head = CgroupMsg::read_from_prefix(&self.0[CGROUP_HDR - size_of::<CgroupMsg>()..]);
        head.expect("checked by parse").0
    }
    /// Its path from the root, with a slash at its start. It may have any bytes.
    pub fn path(self) -> &'a [u8] {
        let path = attrs_of(&self.0[CGROUP_HDR..]).find(|(kind, _)| *kind == A_CGROUP_NAME);
        let blob = path.and_then(|(_, attr)| BlobHdr::ref_from_prefix(attr));
        blob.map_or(&[], |(hdr, data)| &data[..hdr.len as usize])
    }
    /// Its values. Members that this version does not know are left out.
    pub fn values(self) -> impl Iterator<Item = (CgroupMember, Entry<'a, CgroupValue>)> {
        attrs_of(&self.0[CGROUP_HDR..])
            .filter(|(kind, _)| *kind == A_CGROUP_VALUE)
            .flat_map(|(_, attr)| entries::<CgroupValue>(attr))
            .filter_map(|entry| Some((CgroupMember::from_number(entry.member()?)?, entry)))
    }
}

/// The attributes in these bytes, which were checked.
fn attrs_of(attrs: &[u8]) -> Attrs<'_> {
    Attrs { messages: &[], attrs }
}

/// The entries of a list attribute, which was checked.
fn entries<'a, T: ListEntry>(attr: &'a [u8]) -> impl Iterator<Item = Entry<'a, T>> + use<'a, T> {
    let (hdr, rest) = ArrayHdr::read_from_prefix(attr).expect("checked by parse");
    let entries = rest.chunks_exact(hdr.size as usize).take(hdr.count as usize);
    entries.filter_map(move |e| Some(Entry { valid: hdr.valid, raw: T::ref_from_prefix(e)?.0 }))
}

/// A value of variable length.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Blob<'a> {
    /// The bytes that are in the answer.
    pub data: Cow<'a, [u8]>,
    /// `BLOB_*`.
    pub flags: u16,
    /// Length of the whole value in bytes.
    pub total: usize,
    /// The reason for a missing value.
    pub reason: Option<Reason>,
}

impl Blob<'_> {
    /// Is the value longer than `data`?
    pub fn is_cut(&self) -> bool {
        self.flags & BLOB_CUT != 0
    }
    fn ids(&self) -> Vec<u32> {
        let at = |c: &[u8]| u32::from_ne_bytes(c.try_into().expect("4 bytes"));
        self.data.chunks_exact(4).map(at).collect()
    }
}

/// Iterator over the attributes of a task, through all its messages.
#[derive(Clone, Debug)]
pub struct Attrs<'a> {
    messages: &'a [u8],
    attrs: &'a [u8],
}

impl<'a> Iterator for Attrs<'a> {
    type Item = (u16, &'a [u8]);
    fn next(&mut self) -> Option<(u16, &'a [u8])> {
        while self.attrs.is_empty() {
            let (hdr, _) = NlMsgHdr::read_from_prefix(self.messages)?;
            let (msg, rest) = self.messages.split_at_checked(hdr.len as usize)?;
            self.messages = rest;
            // Filler may lie between the messages of a task.
            if hdr.kind == MSG_TASK {
                self.attrs = msg.get(TASK_HDR..)?;
            }
        }
        let (nla, _) = NlAttr::read_from_prefix(self.attrs)?;
        let (attr, rest) = self.attrs.split_at_checked((nla.len as usize).max(4))?;
        self.attrs = rest;
        Some((nla.kind, attr))
    }
}
