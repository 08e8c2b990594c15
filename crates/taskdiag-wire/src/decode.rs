//! Reads untrusted bytes without copying them.
//!
//! [`Stream::parse`] walks all bytes once and refuses a stream that is not well formed. After that
//! the views cannot fail. Unknown messages and attributes, and the tail of a longer struct, are
//! skipped, as the format demands. A shorter struct comes from an older writer: the module `grow`
//! brings the stream to today's sizes before anything else looks at it.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::OnceLock;

use crate::groups::Groups;
use crate::grow::{extended, grow};
use crate::layout::*;
use crate::names::{Reason, Strategy};
use crate::registry::shape;
use crate::*;

pub(crate) const HDR: usize = size_of::<NlMsgHdr>();
pub(crate) const TASK_HDR: usize = HDR + size_of::<TaskMsg>();
pub(crate) const CGROUP_HDR: usize = HDR + size_of::<CgroupMsg>();

/// Why bytes are not a request or a stream. Offsets are in bytes from the start.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The bytes do not start on a multiple of 8; copy them into an [`AlignedBuf`].
    Unaligned,
    /// Not a task_diag stream at all.
    Foreign,
    /// A task_diag stream from a machine of the other byte order.
    OtherByteOrder,
    /// A version of the format that this reader does not know.
    Version(u32),
    /// The bytes end at this offset inside a message, or without DONE.
    Cut(usize),
    /// The stream was complete at this offset, and more bytes follow.
    Trailing(usize),
    /// A message or attribute at this offset breaks the format.
    Malformed(usize, &'static str),
    /// A request with an unknown group bit or strategy, or with reserved or trailing bytes that are
    /// not zero.
    BadRequest(&'static str),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Unaligned => f.write_str("the bytes are not aligned to 8"),
            Error::Foreign => f.write_str("this is not a task_diag stream"),
            Error::OtherByteOrder => {
                f.write_str("the stream was written on a machine of the other byte order")
            }
            Error::Version(v) => write!(
                f,
                "the stream has format version {v}, and this program knows {VERSION}; use a newer one"
            ),
            Error::Cut(at) => {
                write!(f, "the stream is cut at byte {at}: its end (the DONE message) is missing")
            }
            Error::Trailing(at) => {
                write!(f, "the stream ends at byte {at}, but more bytes follow")
            }
            Error::Malformed(at, what) => write!(f, "bad stream at byte {at}: {what}"),
            Error::BadRequest(what) => write!(f, "bad request: {what}"),
        }
    }
}

impl std::error::Error for Error {}

/// A decoded request: the task of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Command {
    /// Report the supported features.
    Features,
    /// Report tasks. The strategy and the groups are known; [`Req::strategy`] and [`Req::groups`]
    /// return them.
    Get(Req),
}

/// Decode a request as an engine must: nothing unknown is ignored.
///
/// `supported` are the groups that the engine knows.
pub fn decode_request(bytes: &[u8], supported: Groups) -> Result<Command, Error> {
    let (hdr, payload) =
        NlMsgHdr::read_from_prefix(bytes).ok_or(Error::BadRequest("shorter than nlmsghdr"))?;
    if hdr.len as usize != bytes.len() {
        return Err(Error::BadRequest("nlmsg_len is not the length of the write"));
    }
    match hdr.kind {
        CMD_FEATURES if payload.iter().all(|b| *b == 0) => Ok(Command::Features),
        CMD_FEATURES => Err(Error::BadRequest("unknown trailing bytes are not zero")),
        CMD_GET => {
            // Members that a shorter request lacks are zero. The rest of a longer request must be
            // zero.
            let (known, rest) = payload.split_at(payload.len().min(size_of::<Req>()));
            if known.len() < Req::C.least {
                return Err(Error::BadRequest("shorter than task_diag_req"));
            }
            let req: Req = extended(known, &Req::C);
            if rest.iter().any(|b| *b != 0) {
                return Err(Error::BadRequest("unknown trailing bytes are not zero"));
            }
            if req.reserved != 0 {
                return Err(Error::BadRequest("reserved is not zero"));
            }
            if !supported.contains(req.groups()) {
                return Err(Error::BadRequest("unknown group in show_flags"));
            }
            let strategy = req.strategy().ok_or(Error::BadRequest("unknown dump_strategy"))?;
            if strategy.takes_pid() == (req.pid == 0) {
                return Err(Error::BadRequest("this strategy needs a pid, or takes none"));
            }
            Ok(Command::Get(req))
        }
        _ => Err(Error::BadRequest("unknown message type")),
    }
}

#[derive(Clone, Copy, Debug)]
struct TaskAt {
    pid: u32,
    tgid: u32,
    start: usize,
    end: usize,
}

/// The index that [`Stream::parse`] makes. It has 24 bytes for each task, and 16 for each name. The
/// table of pids is made when a task is first looked up.
#[derive(Clone, Debug)]
pub(crate) struct Index {
    pub(crate) info: Info,
    done: Done,
    tasks: Vec<TaskAt>,
    cuts: Vec<Cut>,
    /// Where the attributes of each container begin and end.
    containers: Vec<(usize, usize)>,
    cgroup_list: Option<CgroupList>,
    /// Where the message of each control group begins and ends.
    cgroups: Vec<(usize, usize)>,
    /// Offset of the attribute that has the name with this number.
    names: HashMap<u32, usize>,
    by_pid: OnceLock<HashMap<u32, usize>>,
}

/// A stream: its index and its bytes, which `B` holds.
#[derive(Clone, Debug)]
pub struct Stream<B: AsRef<[u8]>> {
    index: Index,
    bytes: B,
    /// The stream with structs as long as ours, where those in `bytes` are shorter.
    grown: Option<AlignedBuf>,
}

impl AsRef<[u8]> for AlignedBuf {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl<B: AsRef<[u8]>> Stream<B> {
    /// Check all of `bytes` and index its tasks.
    pub fn parse(bytes: B) -> Result<Stream<B>, Error> {
        Stream::parse_as(bytes, Checked::default())
    }
    fn parse_as(bytes: B, mut checked: Checked) -> Result<Stream<B>, Error> {
        let old = index(bytes.as_ref(), &mut checked)?;
        if !checked.any_short {
            return Ok(Stream { index: old, bytes, grown: None });
        }
        let grown = grow(bytes.as_ref())
            .ok_or(Error::Malformed(0, "a message is too long for its structs to grow"))?;
        let index = index(grown.as_bytes(), &mut checked)?;
        Ok(Stream { index, bytes, grown: Some(grown) })
    }
    /// The request that the stream answers, when and where.
    pub fn info(&self) -> &Info {
        &self.index.info
    }
    /// Totals, and the error that ended the walk if one did.
    pub fn done(&self) -> &Done {
        &self.index.done
    }
    /// The data that a recorder removed from the stream, for each user. Empty for an answer of an
    /// engine.
    pub fn cuts(&self) -> &[Cut] {
        &self.index.cuts
    }
    /// The containers whose names were kept with the stream. Empty for an answer of an engine.
    pub fn containers(&self) -> impl ExactSizeIterator<Item = ContainerView<'_>> {
        self.index.containers.iter().map(|(at, end)| ContainerView(&self.bytes()[*at..*end]))
    }
    /// The head of the list of control groups that was kept with the stream. `None`: there is no
    /// list, and an engine never makes one.
    pub fn cgroup_list(&self) -> Option<&CgroupList> {
        self.index.cgroup_list.as_ref()
    }
    /// The control groups that were kept with the stream.
    pub fn cgroups(&self) -> impl ExactSizeIterator<Item = CgroupView<'_>> {
        self.index.cgroups.iter().map(|(at, end)| CgroupView(&self.bytes()[*at..*end]))
    }
    /// The requested groups.
    pub fn asked(&self) -> Groups {
        Groups::from_bits(self.index.info.show_flags)
    }
    /// The requested strategy.
    pub fn strategy(&self) -> Strategy {
        Strategy::from_number(self.index.info.dump_strategy).expect("checked by parse")
    }
    /// Number of tasks.
    pub fn len(&self) -> usize {
        self.index.tasks.len()
    }
    /// Has it no tasks?
    pub fn is_empty(&self) -> bool {
        self.index.tasks.is_empty()
    }
    /// The i-th task, in stream order.
    pub fn get(&self, i: usize) -> Option<TaskView<'_>> {
        self.index.tasks.get(i).map(|e| self.view(e))
    }
    /// All tasks, in stream order.
    pub fn tasks(&self) -> impl ExactSizeIterator<Item = TaskView<'_>> + Clone {
        self.index.tasks.iter().map(|e| self.view(e))
    }
    /// The task with this id. A table is made at the first call.
    pub fn task(&self, pid: u32) -> Option<TaskView<'_>> {
        self.index.task(self.bytes(), pid)
    }
    /// The bytes. If a struct in the parsed bytes was shorter than ours, these are not the parsed
    /// bytes, but a stream of today's sizes.
    pub fn bytes(&self) -> &[u8] {
        self.grown.as_ref().map_or(self.bytes.as_ref(), AlignedBuf::as_bytes)
    }
    /// Returns the bytes that were parsed.
    pub fn into_bytes(self) -> B {
        self.bytes
    }
    /// The name with this number. It may be anywhere in the stream.
    pub fn name(&self, number: u32) -> Option<Blob<'_>> {
        self.index.name(self.bytes(), number)
    }
    /// The numbers of all names in the stream, in no order.
    pub fn name_numbers(&self) -> impl ExactSizeIterator<Item = u32> + '_ {
        self.index.names.keys().copied()
    }
    fn view(&self, e: &TaskAt) -> TaskView<'_> {
        self.index.view(self.bytes(), e)
    }
}

impl Index {
    fn view<'a>(&'a self, bytes: &'a [u8], e: &TaskAt) -> TaskView<'a> {
        let messages = &bytes[e.start..e.end];
        TaskView { pid: e.pid, tgid: e.tgid, messages, index: self, bytes }
    }
    pub(crate) fn task<'a>(&'a self, bytes: &'a [u8], pid: u32) -> Option<TaskView<'a>> {
        let all = || self.tasks.iter().enumerate().map(|(i, t)| (t.pid, i)).collect();
        let at = *self.by_pid.get_or_init(all).get(&pid)?;
        Some(self.view(bytes, &self.tasks[at]))
    }
    pub(crate) fn name<'a>(&self, bytes: &'a [u8], number: u32) -> Option<Blob<'a>> {
        let at = *self.names.get(&number)?;
        let (hdr, rest) = BlobHdr::ref_from_prefix(&bytes[at..])?;
        let whole = hdr.offset == 0 && hdr.len == hdr.total;
        Some(Blob {
            data: Cow::Borrowed(rest.get(..hdr.len as usize)?),
            flags: if whole { hdr.flags } else { hdr.flags | BLOB_CUT },
            total: hdr.total as usize,
            reason: reason(hdr),
        })
    }
}

pub(crate) fn reason(hdr: &BlobHdr) -> Option<Reason> {
    let known = |n| Reason::from_number(n).unwrap_or(Reason::Unsupported);
    (hdr.reason != 0).then(|| known(hdr.reason.into()))
}

/// One message: its header, its offset, its payload.
struct Message<'a> {
    kind: u16,
    at: usize,
    payload: &'a [u8],
}

fn next_message(bytes: &[u8], at: usize) -> Result<Message<'_>, Error> {
    let rest = &bytes[at..];
    let (hdr, _) = NlMsgHdr::read_from_prefix(rest).ok_or(Error::Cut(bytes.len()))?;
    let len = hdr.len as usize;
    if len < HDR {
        return Err(Error::Malformed(at, "message shorter than its header"));
    }
    if len % 8 != 0 {
        return Err(Error::Malformed(at, "message length is not a multiple of 8"));
    }
    if len > rest.len() {
        return Err(Error::Cut(bytes.len()));
    }
    Ok(Message { kind: hdr.kind, at, payload: &rest[HDR..len] })
}

/// The results of checking a stream.
#[derive(Debug, Default)]
struct Checked {
    /// A struct is shorter than ours.
    any_short: bool,
    /// For tests: the least size of all structs, in the place of their own.
    #[cfg(test)]
    least: Option<usize>,
}

impl Checked {
    fn least(&self, table: &CStruct) -> usize {
        #[cfg(test)]
        if let Some(least) = self.least {
            return least;
        }
        table.least
    }
    /// Is a struct of this length long enough? This also notes whether it is shorter than ours.
    fn admit(&mut self, table: &CStruct, len: usize) -> bool {
        self.any_short |= len < table.size;
        len >= self.least(table)
    }
}

/// The index has room for at most this many tasks before any is known. It takes a few megabytes.
const TASKS_AT_FIRST: usize = 1 << 17;

fn index(bytes: &[u8], checked: &mut Checked) -> Result<Index, Error> {
    if bytes.as_ptr().addr() % 8 != 0 {
        return Err(Error::Unaligned);
    }
    let info = info(bytes, checked)?;
    if Strategy::from_number(info.dump_strategy).is_none() {
        return Err(Error::Malformed(0, "unknown strategy"));
    }
    let mut tasks: Vec<TaskAt> = Vec::new();
    let mut names = HashMap::new();
    let mut cuts = Vec::new();
    let mut containers = Vec::new();
    let mut cgroup_list = None;
    let mut cgroups = Vec::new();
    // Where the last task and the filler after it end. The task may continue only there.
    let mut open_end = 0;
    let mut at = 0;
    loop {
        if at == bytes.len() {
            return Err(Error::Cut(at));
        }
        let m = next_message(bytes, at)?;
        let end = at + HDR + m.payload.len();
        match m.kind {
            MSG_TASK => {
                if tasks.is_empty() {
                    // The estimate if all tasks were as long as the first one, which may be a short
                    // one of a long stream.
                    tasks.reserve((bytes.len() / (end - at)).min(TASKS_AT_FIRST));
                }
                task_message(&m, end, open_end, &mut tasks, &mut names, checked)?;
                open_end = end;
            }
            MSG_CUT => {
                if !checked.admit(&Cut::C, m.payload.len()) {
                    return Err(Error::Malformed(at, "CUT is too short"));
                }
                cuts.push(extended(m.payload, &Cut::C));
            }
            MSG_CONTAINER => {
                check_attrs(m.payload, end, checked, |_| ())?;
                containers.push((at + HDR, end));
            }
            MSG_CGROUP_LIST => {
                if !checked.admit(&CgroupList::C, m.payload.len()) {
                    return Err(Error::Malformed(at, "CGROUP_LIST is too short"));
                }
                if cgroup_list.is_some() {
                    return Err(Error::Malformed(at, "there are two lists of control groups"));
                }
                cgroup_list = Some(extended(m.payload, &CgroupList::C));
            }
            MSG_CGROUP => {
                if cgroup_list.is_none() {
                    return Err(Error::Malformed(at, "a control group is in no list"));
                }
                let attrs = m.payload.get(size_of::<CgroupMsg>()..);
                let attrs = attrs.ok_or(Error::Malformed(at, "CGROUP is too short"))?;
                let mut names = 0;
                check_attrs(attrs, end, checked, |attr| names += u32::from(is_path(attr)))?;
                if names != 1 {
                    return Err(Error::Malformed(at, "a control group has no path, or two"));
                }
                cgroups.push((at, end));
            }
            NLMSG_NOOP if open_end == at => open_end = end,
            NLMSG_DONE => {
                if !checked.admit(&Done::C, m.payload.len()) {
                    return Err(Error::Malformed(at, "DONE is too short"));
                }
                let done: Done = extended(m.payload, &Done::C);
                if end != bytes.len() {
                    return Err(Error::Trailing(end));
                }
                if done.tasks != tasks.len() as u64 {
                    return Err(Error::Malformed(at, "DONE has the wrong number of tasks"));
                }
                return Ok(Index {
                    info,
                    done,
                    tasks,
                    cuts,
                    containers,
                    cgroup_list,
                    cgroups,
                    names,
                    by_pid: OnceLock::new(),
                });
            }
            _ => {}
        }
        at = end;
    }
}

fn info(bytes: &[u8], checked: &mut Checked) -> Result<Info, Error> {
    if bytes.is_empty() {
        return Err(Error::Cut(0));
    }
    let (hdr, rest) = NlMsgHdr::read_from_prefix(bytes).ok_or(Error::Foreign)?;
    // The magic is checked before anything else. It has the same place in every version.
    let magic = <u32 as zerocopy::FromBytes>::read_from_prefix(rest).map_err(|_| Error::Foreign)?.0;
    if magic == MAGIC.swap_bytes() {
        return Err(Error::OtherByteOrder);
    }
    if hdr.kind != MSG_INFO || magic != MAGIC {
        return Err(Error::Foreign);
    }
    let m = next_message(bytes, 0)?;
    // The length may say that the magic just read is not part of the message.
    let [_, version] = <[u32; 2] as zerocopy::FromBytes>::read_from_prefix(m.payload)
        .map_err(|_| Error::Malformed(0, "INFO is too short"))?
        .0;
    if version != VERSION {
        return Err(Error::Version(version));
    }
    if !checked.admit(&Info::C, m.payload.len()) {
        return Err(Error::Malformed(0, "INFO is too short"));
    }
    Ok(extended(m.payload, &Info::C))
}

fn task_message(
    m: &Message<'_>,
    end: usize,
    open_end: usize,
    tasks: &mut Vec<TaskAt>,
    names: &mut HashMap<u32, usize>,
    checked: &mut Checked,
) -> Result<(), Error> {
    let (task, mut rest) = TaskMsg::read_from_prefix(m.payload)
        .ok_or(Error::Malformed(m.at, "task message is too short"))?;
    let mut at = m.at + TASK_HDR;
    while !rest.is_empty() {
        let nla = check_attr(rest, at, checked)?;
        if nla.kind == A_NAME {
            let (hdr, _) = BlobHdr::read_from_prefix(rest).expect("length checked");
            names.entry(hdr.kind).or_insert(at);
        }
        at += nla.len as usize;
        rest = &rest[nla.len as usize..];
    }
    if task.flags & FLAG_CONT != 0 {
        match tasks.last_mut() {
            Some(e) if (open_end, e.pid, e.tgid) == (m.at, task.pid, task.tgid) => e.end = end,
            _ => return Err(Error::Malformed(m.at, "CONT does not follow its task")),
        }
    } else {
        tasks.push(TaskAt { pid: task.pid, tgid: task.tgid, start: m.at, end });
    }
    Ok(())
}

/// Is this the whole path of a control group? The attribute was checked.
fn is_path(attr: &[u8]) -> bool {
    let hdr = BlobHdr::read_from_prefix(attr).map(|(hdr, _)| hdr);
    hdr.is_some_and(|h| h.nla.kind == A_CGROUP_NAME && h.len == h.total && h.reason == 0)
}

/// Check attributes that end at `end`, and look at each.
fn check_attrs(
    mut rest: &[u8],
    end: usize,
    checked: &mut Checked,
    mut see: impl FnMut(&[u8]),
) -> Result<(), Error> {
    while !rest.is_empty() {
        let nla = check_attr(rest, end - rest.len(), checked)?;
        let (attr, after) = rest.split_at(nla.len as usize);
        see(attr);
        rest = after;
    }
    Ok(())
}

/// Check one attribute at the start of `rest`, which lies at `at` in the stream.
fn check_attr(rest: &[u8], at: usize, checked: &mut Checked) -> Result<NlAttr, Error> {
    let bad = |what| Err(Error::Malformed(at, what));
    let Some((nla, _)) = NlAttr::read_from_prefix(rest) else {
        return bad("attribute header is cut");
    };
    let len = nla.len as usize;
    if len < size_of::<NlAttr>() || len % 8 != 0 {
        return bad("attribute length is wrong");
    }
    if len > rest.len() {
        return bad("attribute is longer than its message");
    }
    let shape = match shape(nla.kind) {
        Some(shape) => shape,
        None if nla.kind == A_MISSING => return check_missing(rest, len, at).map(|()| nla),
        None => return Ok(nla),
    };
    let least = match shape {
        Shape::Record(table) => checked.least(table),
        Shape::List(_) => size_of::<ArrayHdr>(),
        Shape::Blob => size_of::<BlobHdr>(),
    };
    if len < least {
        return bad("attribute is shorter than its struct");
    }
    match shape {
        Shape::Record(table) => _ = checked.admit(table, len),
        Shape::List(table) => {
            let (hdr, _) = ArrayHdr::read_from_prefix(rest).expect("length checked");
            let room = (len - size_of::<ArrayHdr>()) as u64;
            if hdr.size % 8 != 0 || !checked.admit(table, hdr.size as usize) {
                return bad("the size of a list's entries is wrong");
            }
            if u64::from(hdr.count) * u64::from(hdr.size) > room {
                return bad("a list counts more than it has");
            }
        }
        Shape::Blob => {
            let (hdr, _) = BlobHdr::read_from_prefix(rest).expect("length checked");
            if hdr.len as usize > len - size_of::<BlobHdr>() {
                return bad("data is longer than its attribute");
            }
            let end = hdr.offset.checked_add(hdr.len);
            if end.is_none_or(|e| e > hdr.total) {
                return bad("data lies outside its value");
            }
            let ids = matches!(nla.kind, A_GROUPS | A_NSPID | A_UID_MAP | A_GID_MAP);
            if ids && (hdr.len % 4 != 0 || hdr.offset % 4 != 0) {
                return bad("a list of ids is not a multiple of 4");
            }
        }
    }
    Ok(nla)
}

/// Check a MISSING attribute of `len` bytes at the start of `rest`.
fn check_missing(rest: &[u8], len: usize, at: usize) -> Result<(), Error> {
    let Some(room) = len.checked_sub(size_of::<MissingHdr>()) else {
        return Err(Error::Malformed(at, "attribute is shorter than its struct"));
    };
    let (hdr, _) = MissingHdr::read_from_prefix(rest).expect("length checked");
    if hdr.count as usize > room / size_of::<MissingEntry>() {
        return Err(Error::Malformed(at, "MISSING counts more than it has"));
    }
    Ok(())
}

pub(crate) fn is_blob(kind: u16) -> bool {
    matches!(shape(kind), Some(Shape::Blob))
}

/// The command name of a task with this BASE record, or `None` if it is not known. `long` gives the
/// content of the task's [`A_COMM`] attribute. It is called only if the name fills the record, so
/// that it may be longer.
pub fn comm<'a>(
    base: Record<'a, Base>,
    long: impl FnOnce() -> Option<&'a [u8]>,
) -> Option<&'a [u8]> {
    base.comm()?;
    let base = base.raw();
    let room = base.comm.len() - 1;
    let end = |name: &[u8]| name.iter().position(|b| *b == 0);
    match end(&base.comm).unwrap_or(room) {
        at if at < room => Some(&base.comm[..at]),
        // A foreign writer may have put a NUL into the long name, too.
        _ => {
            Some(long().map_or(&base.comm[..room], |name| &name[..end(name).unwrap_or(name.len())]))
        }
    }
}

/// The totals of a complete stream and their offset, found without a check of the rest. `None` if
/// there is no DONE at the end.
pub(crate) fn done_at(bytes: &[u8]) -> Option<(usize, Done)> {
    // A newer writer may have a longer DONE. Then it is found by a step over each message before
    // it.
    let usual = bytes.len().checked_sub(HDR + size_of::<Done>())?;
    let mut at = if is_done(bytes, usual) { usual } else { 0 };
    while !is_done(bytes, at) {
        let (hdr, _) = NlMsgHdr::read_from_prefix(bytes.get(at..)?)?;
        at += (hdr.len as usize).max(HDR).next_multiple_of(8);
    }
    Some((at, extended(&bytes[at + HDR..], &Done::C)))
}

fn is_done(bytes: &[u8], at: usize) -> bool {
    let hdr = bytes.get(at..).and_then(|b| NlMsgHdr::read_from_prefix(b));
    hdr.is_some_and(|(h, _)| h.kind == NLMSG_DONE && h.len as usize == bytes.len() - at)
}

/// The totals of a complete stream, or `None` if it has no DONE at its end.
pub fn done(bytes: &[u8]) -> Option<Done> {
    done_at(bytes).map(|(_, done)| done)
}

/// The pid of the first task, for writers that ask about their own stream before it is parsed. It
/// only reads the headers of messages, and treats malformed bytes as the end.
pub fn first_pid(bytes: &[u8]) -> Option<u32> {
    let mut rest = bytes;
    while let Some((hdr, body)) = NlMsgHdr::read_from_prefix(rest) {
        if hdr.kind == MSG_TASK {
            return TaskMsg::read_from_prefix(body).map(|(t, _)| t.pid);
        }
        rest = rest.get((hdr.len as usize).max(HDR)..)?;
    }
    None
}

#[cfg(test)]
mod tests;
