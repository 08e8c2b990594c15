//! Makes requests and streams.

use crate::decode::done_at;
use crate::layout::*;
use crate::names::{ContainerPart, Group, Reason};
use crate::*;

/// A message is continued in a CONT message before it gets longer than this.
const MESSAGE_SOFT_MAX: usize = 1 << 20;

/// The request as bytes: `nlmsghdr` and `task_diag_req`.
pub fn encode_request(req: &Req) -> Vec<u8> {
    message(CMD_GET, req.as_bytes())
}

/// The supported-features request as bytes.
pub fn encode_features_request() -> Vec<u8> {
    message(CMD_FEATURES, &[])
}

fn message(kind: u16, payload: &[u8]) -> Vec<u8> {
    let hdr = NlMsgHdr {
        len: (size_of::<NlMsgHdr>() + payload.len()) as u32,
        kind,
        ..NlMsgHdr::default()
    };
    [hdr.as_bytes(), payload].concat()
}

/// Writes a stream: [`info`](Self::info), then for each task [`begin_task`](Self::begin_task), its
/// attributes, [`end_task`](Self::end_task), and finally [`finish`](Self::finish). It counts the
/// tasks for the totals in DONE.
#[derive(Debug, Default)]
pub struct StreamWriter {
    buf: AlignedBuf,
    /// Offset of the message being written, and of the first one of this task.
    msg: usize,
    task_start: usize,
    task: Option<(u32, u32)>,
    missing: Vec<MissingEntry>,
    cut: bool,
    counts: Done,
}

impl StreamWriter {
    /// An empty stream.
    pub fn new() -> StreamWriter {
        StreamWriter::default()
    }
    /// An empty stream with room for `bytes`.
    pub fn with_capacity(bytes: usize) -> StreamWriter {
        StreamWriter { buf: AlignedBuf::with_capacity(bytes), ..StreamWriter::default() }
    }
    /// An empty stream in memory that was used before.
    pub fn reusing(mut memory: AlignedBuf) -> StreamWriter {
        memory.truncate(0);
        StreamWriter { buf: memory, ..StreamWriter::default() }
    }
    /// An [`Info`] in which only magic and version are set.
    pub fn blank_info() -> Info {
        Info { magic: MAGIC, version: VERSION, ..Info::default() }
    }
    /// Number of bytes so far.
    pub fn len(&self) -> usize {
        self.buf.len()
    }
    /// Number of tasks completed so far.
    pub fn tasks(&self) -> u64 {
        self.counts.tasks
    }
    /// Is nothing written yet?
    pub fn is_empty(&self) -> bool {
        self.buf.is_empty()
    }

    /// Write the head of the stream.
    pub fn info(&mut self, info: &Info) {
        self.open(MSG_INFO);
        self.buf.push(info);
        self.close();
    }

    /// Add another stream's engines to the head of this one.
    pub fn mark_served(&mut self, other: &Info) {
        let at = size_of::<NlMsgHdr>();
        let bytes = &mut self.buf.as_mut_bytes()[at..];
        if let Some((mut info, _)) = Info::read_from_prefix(bytes) {
            info.kernel_groups |= other.kernel_groups;
            info.bpf_groups |= other.bpf_groups;
            info.procfs_groups |= other.procfs_groups;
            bytes[..size_of::<Info>()].copy_from_slice(info.as_bytes());
        }
    }

    /// Replace the head of this stream.
    pub fn replace_info(&mut self, info: &Info) {
        let at = size_of::<NlMsgHdr>();
        self.buf.as_mut_bytes()[at..at + size_of::<Info>()].copy_from_slice(info.as_bytes());
    }

    /// Append complete TASK and NOOP messages that were made elsewhere, unchanged. Their tasks are
    /// not counted here, so add them to the argument of [`finish`](Self::finish).
    pub fn raw(&mut self, messages: &[u8]) {
        debug_assert!(self.task.is_none() && messages.len() % 8 == 0);
        self.buf.extend_padded(messages);
    }

    /// Continue a finished stream, in place. Its DONE is removed and returned, to be given to
    /// [`finish`](Self::finish). `None` if the bytes do not end in a DONE.
    pub fn reopen(stream: AlignedBuf) -> Option<(StreamWriter, Done)> {
        let (at, done) = done_at(stream.as_bytes())?;
        Some((StreamWriter::resume(stream, at), done))
    }

    /// Continue after the first `at` bytes of a stream, in place. These bytes are its INFO and
    /// complete messages. Their tasks are not counted here, so add them to the argument of
    /// [`finish`](Self::finish).
    pub fn resume(mut stream: AlignedBuf, at: usize) -> StreamWriter {
        debug_assert!(at % 8 == 0);
        stream.truncate(at);
        StreamWriter { buf: stream, ..StreamWriter::default() }
    }

    /// The memory for the next `bytes`, for a caller that populates its pages first.
    pub fn spare(&mut self, bytes: usize) -> &mut [std::mem::MaybeUninit<u64>] {
        self.buf.spare(bytes)
    }

    /// Begin a task. Attributes follow; [`end_task`](Self::end_task) or
    /// [`abandon_task`](Self::abandon_task) ends it.
    pub fn begin_task(&mut self, pid: u32, tgid: u32) {
        debug_assert!(self.task.is_none());
        self.task = Some((pid, tgid));
        self.missing.clear();
        self.cut = false;
        self.task_start = self.buf.len();
        self.task_message(0);
    }

    /// Continue with the task whose messages were just written with [`raw`](Self::raw). The task is
    /// not counted again.
    pub fn continue_task(&mut self, pid: u32, tgid: u32) {
        self.begin_task(pid, tgid);
        let at = self.msg + size_of::<NlMsgHdr>() + std::mem::offset_of!(TaskMsg, flags);
        self.buf.as_mut_bytes()[at..at + 4].copy_from_slice(&FLAG_CONT.to_ne_bytes());
        self.counts.tasks = self.counts.tasks.wrapping_sub(1);
    }

    /// Add a fixed-size group.
    pub fn put<T: GroupRecord>(&mut self, record: &T) {
        self.room(size_of::<T>());
        let at = self.buf.len();
        self.buf.push(record);
        let nla = NlAttr { len: size_of::<T>() as u16, kind: T::TYPE };
        self.buf.as_mut_bytes()[at..at + 4].copy_from_slice(nla.as_bytes());
    }

    /// Add BASE with this command name. At most 63 bytes of it are kept, because the kernel has no
    /// longer names.
    pub fn put_base(&mut self, record: &Base, name: &[u8]) {
        let name = &name[..name.len().min(63)];
        let mut base = Base { valid: record.valid | Base::KNOWS_COMM, ..*record };
        let room = base.comm.len() - 1;
        let short = &name[..name.len().min(room)];
        base.comm = [0; 16];
        base.comm[..short.len()].copy_from_slice(short);
        self.put(&base);
        if name.len() > room {
            self.put_blob(A_COMM, 0, 0, name, name.len());
        }
    }

    /// Add a list, in as many attributes as it needs. `valid` marks the known members of its
    /// entries.
    pub fn put_list<T: ListEntry>(&mut self, valid: u32, entries: &[T]) {
        let most = BLOB_MAX / size_of::<T>();
        let mut rest = entries;
        loop {
            let (now, later) = rest.split_at(rest.len().min(most));
            self.room(size_of::<ArrayHdr>() + size_of_val(now));
            self.push_list(valid, now);
            rest = later;
            if rest.is_empty() {
                return;
            }
        }
    }

    /// Add a list that fits into one attribute to the message that is being written.
    fn push_list<T: ListEntry>(&mut self, valid: u32, entries: &[T]) {
        self.buf.push(&ArrayHdr {
            nla: NlAttr {
                len: (size_of::<ArrayHdr>() + size_of_val(entries)) as u16,
                kind: T::TYPE,
            },
            valid,
            size: size_of::<T>() as u32,
            count: entries.len() as u32,
        });
        self.buf.extend_padded(T::slice_as_bytes(entries));
    }

    /// Add a name that lists refer to by `number`. The number must not be 0, and no other name may
    /// have it.
    pub fn put_name(&mut self, number: u32, flags: u16, name: &[u8]) {
        self.put_blob(A_NAME, number, flags, name, name.len());
    }

    /// Adds a reference: the task shares the value of a group with task `pid` of this stream, whose
    /// message has it.
    pub fn shared(&mut self, group: Group, pid: u32) {
        self.room(size_of::<Shared>());
        let nla = NlAttr { len: size_of::<Shared>() as u16, kind: A_SHARED };
        self.buf.push(&Shared { nla, group: group as u32, pid, reserved: 0 });
    }

    /// Add a value of variable length, in as many attributes as it needs. `total` is its true
    /// length. If `data` is shorter, the value is marked as cut.
    pub fn put_blob(&mut self, attr: u16, kind: u32, mut flags: u16, data: &[u8], total: usize) {
        if data.len() < total {
            flags |= BLOB_CUT;
            self.cut = true;
        }
        let mut offset = 0;
        loop {
            let piece = &data[offset..data.len().min(offset + BLOB_MAX)];
            let last = offset + piece.len() == data.len();
            self.blob(
                BlobHdr {
                    nla: NlAttr { len: 0, kind: attr },
                    kind,
                    len: piece.len() as u32,
                    offset: offset as u32,
                    total: total as u32,
                    flags: if last { flags } else { flags & !BLOB_CUT },
                    reason: 0,
                },
                piece,
            );
            offset += piece.len();
            if last {
                return;
            }
        }
    }

    /// Marks one of several values (a path, a hierarchy) as missing, with the reason.
    pub fn put_blob_missing(&mut self, attr: u16, kind: u32, reason: Reason) {
        self.blob(
            BlobHdr {
                nla: NlAttr { len: 0, kind: attr },
                kind,
                reason: reason as u16,
                ..BlobHdr::default()
            },
            &[],
        );
    }

    fn blob(&mut self, hdr: BlobHdr, data: &[u8]) {
        self.room(size_of::<BlobHdr>() + data.len().next_multiple_of(8));
        self.push_blob(hdr, data);
    }

    /// Add a blob to the message that is being written.
    fn push_blob(&mut self, mut hdr: BlobHdr, data: &[u8]) {
        hdr.nla.len = (size_of::<BlobHdr>() + data.len().next_multiple_of(8)) as u16;
        self.buf.push(&hdr);
        self.buf.extend_padded(data);
    }

    /// Add an attribute that was made elsewhere, unchanged.
    pub fn raw_attr(&mut self, attr: &[u8]) {
        debug_assert!(attr.len() % 8 == 0);
        self.room(attr.len());
        self.buf.extend_padded(attr);
    }

    /// Marks a group as missing, with the reason.
    pub fn missing(&mut self, group: Group, reason: Reason) {
        self.missing.push(MissingEntry { group: group as u32, reason: reason as u32 });
    }

    /// Writes the data about what was removed from the stream. It comes after all tasks.
    pub fn cut(&mut self, cut: &Cut) {
        debug_assert!(self.task.is_none());
        self.open(MSG_CUT);
        self.buf.push(cut);
        self.close();
    }

    /// Writes the names of a container: its values, or why they are missing. It comes after all
    /// tasks.
    pub fn container(&mut self, parts: &[(ContainerPart, Result<&[u8], Reason>)]) {
        debug_assert!(self.task.is_none());
        self.open(MSG_CONTAINER);
        for (part, value) in parts {
            let nla = NlAttr { len: 0, kind: A_CONTAINER };
            let hdr = BlobHdr { nla, kind: *part as u32, ..BlobHdr::default() };
            match value {
                // A name has no second piece.
                Ok(data) => {
                    let piece = &data[..data.len().min(BLOB_MAX)];
                    let (len, total) = (piece.len() as u32, data.len() as u32);
                    let flags = if len < total { BLOB_CUT } else { 0 };
                    self.push_blob(BlobHdr { len, total, flags, ..hdr }, piece);
                }
                Err(why) => self.push_blob(BlobHdr { reason: *why as u16, ..hdr }, &[]),
            }
        }
        self.close();
    }

    /// Writes the head of the list of control groups. It comes after all tasks.
    pub fn cgroup_list(&mut self, list: &CgroupList) {
        debug_assert!(self.task.is_none());
        self.open(MSG_CGROUP_LIST);
        self.buf.push(list);
        self.close();
    }

    /// Writes a control group: its path, of at most [`BLOB_MAX`] bytes, and its values. It comes
    /// after the head of the list, and after the groups above it.
    pub fn cgroup(&mut self, head: &CgroupMsg, path: &[u8], values: &[CgroupValue]) {
        debug_assert!(self.task.is_none() && path.len() <= BLOB_MAX);
        self.open(MSG_CGROUP);
        self.buf.push(head);
        let nla = NlAttr { len: 0, kind: A_CGROUP_NAME };
        let len = path.len() as u32;
        self.push_blob(BlobHdr { nla, len, total: len, ..BlobHdr::default() }, path);
        self.push_list(CgroupValue::ALL_VALID, values);
        self.close();
    }

    /// Complete the task.
    pub fn end_task(&mut self) {
        if !self.missing.is_empty() {
            let len = size_of::<MissingHdr>() + self.missing.len() * size_of::<MissingEntry>();
            self.room(len);
            self.buf.push(&MissingHdr {
                nla: NlAttr { len: len as u16, kind: A_MISSING },
                count: self.missing.len() as u32,
            });
            self.buf.extend_padded(MissingEntry::slice_as_bytes(&self.missing));
            let any = |r: Reason| self.missing.iter().any(|m| m.reason == r as u32) as u64;
            self.counts.denied += any(Reason::Denied);
            self.counts.vanished += any(Reason::Vanished);
            self.counts.blocked += any(Reason::Blocked);
            self.counts.over_budget += any(Reason::OverBudget);
            self.counts.truncated += any(Reason::Truncated) & !self.cut as u64;
        }
        self.counts.truncated += self.cut as u64;
        self.counts.tasks = self.counts.tasks.wrapping_add(1);
        self.close();
        self.task = None;
    }

    /// Removes the current task, because it vanished before anything about it was known.
    pub fn abandon_task(&mut self) {
        debug_assert!(self.task.is_some());
        self.buf.truncate(self.task_start);
        self.task = None;
        self.counts.vanished += 1;
    }

    /// End the stream with DONE. The counts in `extra` are added to those of the tasks written
    /// here, and its `error` is used unchanged.
    pub fn finish(mut self, extra: Done) -> AlignedBuf {
        debug_assert!(self.task.is_none());
        let c = self.counts;
        self.open(NLMSG_DONE);
        self.buf.push(&Done {
            error: extra.error,
            reserved: 0,
            tasks: c.tasks.wrapping_add(extra.tasks),
            denied: c.denied + extra.denied,
            vanished: c.vanished + extra.vanished,
            blocked: c.blocked + extra.blocked,
            truncated: c.truncated + extra.truncated,
            over_budget: c.over_budget + extra.over_budget,
        });
        self.close();
        self.buf
    }

    /// The bytes so far, of a stream whose end is written by somebody else.
    pub fn into_open(self) -> AlignedBuf {
        debug_assert!(self.task.is_none());
        self.buf
    }

    /// Append the tasks of another writer, which has written no INFO, and count them as our own.
    pub fn append(&mut self, other: StreamWriter) {
        debug_assert!(other.task.is_none());
        self.raw(other.buf.as_bytes());
        let (c, o) = (&mut self.counts, other.counts);
        c.tasks = c.tasks.wrapping_add(o.tasks);
        c.denied += o.denied;
        c.vanished += o.vanished;
        c.blocked += o.blocked;
        c.truncated += o.truncated;
        c.over_budget += o.over_budget;
    }

    fn task_message(&mut self, flags: u32) {
        let (pid, tgid) = self.task.expect("a task has begun");
        self.open(MSG_TASK);
        self.buf.push(&TaskMsg { pid, tgid, flags, reserved: 0 });
    }
    /// Called before an attribute of `len` bytes: continues in a CONT message if this one is long.
    fn room(&mut self, len: usize) {
        let now = self.buf.len() - self.msg;
        let head = size_of::<NlMsgHdr>() + size_of::<TaskMsg>();
        if now + len > MESSAGE_SOFT_MAX && now > head {
            self.close();
            self.task_message(FLAG_CONT);
        }
    }
    fn open(&mut self, kind: u16) {
        self.msg = self.buf.len();
        self.buf.push(&NlMsgHdr { kind, ..NlMsgHdr::default() });
    }
    fn close(&mut self) {
        let len = (self.buf.len() - self.msg) as u32;
        let at = self.msg;
        self.buf.as_mut_bytes()[at..at + 4].copy_from_slice(&len.to_ne_bytes());
    }
}
