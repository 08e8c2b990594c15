//! Reading untrusted bytes without copying them.
//!
//! [`Stream::parse`] walks all bytes once and refuses what is not well formed; after that the
//! views cannot fail. What the format says is skipped (unknown messages and attributes, the tail
//! of a longer struct) is skipped.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::OnceLock;

use zerocopy::{FromBytes, IntoBytes};

use crate::layout::*;
use crate::names::{Group, Groups, Reason, Strategy};
use crate::*;

const HDR: usize = size_of::<NlMsgHdr>();
/// Of a request, what was in the first version.
const REQ_LEAST: usize = 24;
pub(crate) const TASK_HDR: usize = HDR + size_of::<TaskMsg>();

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
    /// A request with an unknown group bit, strategy, or non-zero reserved or trailing bytes.
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

/// A decoded request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Report what is supported.
    Features,
    /// Report tasks.
    Get {
        /// Which tasks.
        strategy: Strategy,
        /// About which process, or 0.
        pid: u32,
        /// Which groups.
        groups: Groups,
        /// No VMA_STAT and ROLLUP of larger processes; 0: of any.
        max_rss_bytes: u64,
        /// Time for all VMA_STAT and ROLLUP; 0: no limit.
        budget_ns: u64,
        /// Members of BASE that need not be there.
        skip_base: u32,
        /// Members of STAT that need not be there.
        skip_stat: u32,
    },
}

/// Decode a request as an engine must: nothing unknown is ignored.
///
/// `supported` are the groups that the engine knows.
pub fn decode_request(bytes: &[u8], supported: Groups) -> Result<Request, Error> {
    let (hdr, payload) = NlMsgHdr::read_from_prefix(bytes)
        .map_err(|_| Error::BadRequest("shorter than nlmsghdr"))?;
    if hdr.len as usize != bytes.len() {
        return Err(Error::BadRequest("nlmsg_len is not the length of the write"));
    }
    match hdr.kind {
        CMD_FEATURES if payload.iter().all(|b| *b == 0) => Ok(Request::Features),
        CMD_FEATURES => Err(Error::BadRequest("unknown trailing bytes are not zero")),
        CMD_GET => {
            // What a shorter request lacks is zero; what a longer one has must be.
            let (known, rest) = payload.split_at(payload.len().min(size_of::<Req>()));
            if known.len() < REQ_LEAST {
                return Err(Error::BadRequest("shorter than task_diag_req"));
            }
            let mut req = Req::default();
            req.as_mut_bytes()[..known.len()].copy_from_slice(known);
            if rest.iter().any(|b| *b != 0) {
                return Err(Error::BadRequest("unknown trailing bytes are not zero"));
            }
            if req.reserved != 0 {
                return Err(Error::BadRequest("reserved is not zero"));
            }
            let groups = Groups::from_bits(req.show_flags);
            if !supported.contains(groups) {
                return Err(Error::BadRequest("unknown group in show_flags"));
            }
            let strategy = Strategy::from_number(req.dump_strategy)
                .ok_or(Error::BadRequest("unknown dump_strategy"))?;
            if strategy.takes_pid() == (req.pid == 0) {
                return Err(Error::BadRequest("this strategy needs a pid, or takes none"));
            }
            let Req { pid, max_rss_bytes, budget_ns, skip_base, skip_stat, .. } = req;
            Ok(Request::Get {
                strategy,
                pid,
                groups,
                max_rss_bytes,
                budget_ns,
                skip_base,
                skip_stat,
            })
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

/// What [`Stream::parse`] allocates: 24 bytes a task, and 16 a name. Tasks by pid are found when
/// the first one is looked for.
#[derive(Clone, Debug)]
pub struct Index {
    pub(crate) info: Info,
    done: Done,
    tasks: Vec<TaskAt>,
    /// Offset of the attribute that has the name with this number.
    names: HashMap<u32, usize>,
    by_pid: OnceLock<HashMap<u32, usize>>,
}

/// A stream: its index and its bytes. `B` is where the bytes live.
#[derive(Clone, Debug)]
pub struct Stream<B: AsRef<[u8]>> {
    index: Index,
    bytes: B,
}

impl AsRef<[u8]> for AlignedBuf {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl<B: AsRef<[u8]>> Stream<B> {
    /// Check all of `bytes` and index its tasks.
    pub fn parse(bytes: B) -> Result<Stream<B>, Error> {
        let index = index(bytes.as_ref())?;
        Ok(Stream { index, bytes })
    }
    /// What the stream is an answer to.
    pub fn info(&self) -> &Info {
        &self.index.info
    }
    /// Totals, and the error that ended the walk if one did.
    pub fn done(&self) -> &Done {
        &self.index.done
    }
    /// Groups that were asked for.
    pub fn asked(&self) -> Groups {
        Groups::from_bits(self.index.info.show_flags)
    }
    /// The strategy that was asked for.
    pub fn strategy(&self) -> Strategy {
        Strategy::from_number(self.index.info.dump_strategy).expect("checked by parse")
    }
    /// Number of tasks.
    pub fn len(&self) -> usize {
        self.index.tasks.len()
    }
    /// No tasks?
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
        self.index.task(self.bytes.as_ref(), pid)
    }
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.as_ref()
    }
    /// The bytes, given back.
    pub fn into_bytes(self) -> B {
        self.bytes
    }
    /// The name with this number, wherever in the stream it is.
    pub fn name(&self, number: u32) -> Option<Blob<'_>> {
        self.index.name(self.bytes.as_ref(), number)
    }
    /// The numbers of all names in the stream, in no order.
    pub fn name_numbers(&self) -> impl ExactSizeIterator<Item = u32> + '_ {
        self.index.names.keys().copied()
    }
    fn view(&self, e: &TaskAt) -> TaskView<'_> {
        self.index.view(self.bytes.as_ref(), e)
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
        let (hdr, rest) = BlobHdr::ref_from_prefix(&bytes[at..]).ok()?;
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
    let (hdr, _) = NlMsgHdr::read_from_prefix(rest).map_err(|_| Error::Cut(bytes.len()))?;
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

fn index(bytes: &[u8]) -> Result<Index, Error> {
    if bytes.as_ptr().addr() % 8 != 0 {
        return Err(Error::Unaligned);
    }
    let info = info(bytes)?;
    if Strategy::from_number(info.dump_strategy).is_none() {
        return Err(Error::Malformed(0, "unknown strategy"));
    }
    let mut tasks: Vec<TaskAt> = Vec::new();
    let mut names = HashMap::new();
    // Where the last task ends, filler after it included: there it may go on.
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
                task_message(&m, end, open_end, &mut tasks, &mut names)?;
                open_end = end;
            }
            NLMSG_NOOP if open_end == at => open_end = end,
            NLMSG_DONE => {
                let (done, _) = Done::read_from_prefix(m.payload)
                    .map_err(|_| Error::Malformed(at, "DONE is too short"))?;
                if end != bytes.len() {
                    return Err(Error::Trailing(end));
                }
                if done.tasks != tasks.len() as u64 {
                    return Err(Error::Malformed(at, "DONE counts other tasks than there are"));
                }
                return Ok(Index { info, done, tasks, names, by_pid: OnceLock::new() });
            }
            _ => {}
        }
        at = end;
    }
}

fn info(bytes: &[u8]) -> Result<Info, Error> {
    if bytes.is_empty() {
        return Err(Error::Cut(0));
    }
    let (hdr, rest) = NlMsgHdr::read_from_prefix(bytes).map_err(|_| Error::Foreign)?;
    // The magic is looked at before anything else, and is where it is in every version.
    let magic = u32::read_from_prefix(rest).map_err(|_| Error::Foreign)?.0;
    if magic == MAGIC.swap_bytes() {
        return Err(Error::OtherByteOrder);
    }
    if hdr.kind != MSG_INFO || magic != MAGIC {
        return Err(Error::Foreign);
    }
    let m = next_message(bytes, 0)?;
    // The length may say that the magic just read is not part of the message.
    let [_, version] = <[u32; 2]>::read_from_prefix(m.payload)
        .map_err(|_| Error::Malformed(0, "INFO is too short"))?
        .0;
    if version != VERSION {
        return Err(Error::Version(version));
    }
    Info::read_from_prefix(m.payload)
        .map(|(i, _)| i)
        .map_err(|_| Error::Malformed(0, "INFO is too short"))
}

fn task_message(
    m: &Message<'_>,
    end: usize,
    open_end: usize,
    tasks: &mut Vec<TaskAt>,
    names: &mut HashMap<u32, usize>,
) -> Result<(), Error> {
    let (task, mut rest) = TaskMsg::read_from_prefix(m.payload)
        .map_err(|_| Error::Malformed(m.at, "task message is too short"))?;
    let mut at = m.at + TASK_HDR;
    while !rest.is_empty() {
        let nla = check_attr(rest, at)?;
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

/// Check one attribute at the start of `rest`, which lies at `at` in the stream.
fn check_attr(rest: &[u8], at: usize) -> Result<NlAttr, Error> {
    let bad = |what| Err(Error::Malformed(at, what));
    let Ok((nla, _)) = NlAttr::read_from_prefix(rest) else {
        return bad("attribute header is cut");
    };
    let len = nla.len as usize;
    if len < size_of::<NlAttr>() || len % 8 != 0 {
        return bad("attribute length is wrong");
    }
    if len > rest.len() {
        return bad("attribute is longer than its message");
    }
    let least = match nla.kind {
        Base::TYPE => size_of::<Base>(),
        Cred::TYPE => size_of::<Cred>(),
        Stat::TYPE => size_of::<Stat>(),
        Statm::TYPE => size_of::<Statm>(),
        Io::TYPE => size_of::<Io>(),
        Sched::TYPE => size_of::<Sched>(),
        Ns::TYPE => size_of::<Ns>(),
        Cgroup::TYPE => size_of::<Cgroup>(),
        Rollup::TYPE => size_of::<Rollup>(),
        Swap::TYPE => size_of::<Swap>(),
        FdCount::TYPE => size_of::<FdCount>(),
        Limits::TYPE => size_of::<Limits>(),
        Signals::TYPE => size_of::<Signals>(),
        A_SHARED => size_of::<Shared>(),
        k if entry_size(k).is_some() => size_of::<ArrayHdr>(),
        A_MISSING => size_of::<MissingHdr>(),
        k if is_blob(k) => size_of::<BlobHdr>(),
        _ => return Ok(nla),
    };
    if len < least {
        return bad("attribute is shorter than its struct");
    }
    if nla.kind == A_MISSING {
        let (hdr, tail) = MissingHdr::read_from_prefix(rest).expect("length checked");
        if hdr.count as usize > (len - size_of::<MissingHdr>()) / size_of::<MissingEntry>()
            || tail.is_empty() && hdr.count > 0
        {
            return bad("MISSING counts more than it has");
        }
    } else if let Some(least) = entry_size(nla.kind) {
        let (hdr, _) = ArrayHdr::read_from_prefix(rest).expect("length checked");
        let room = (len - size_of::<ArrayHdr>()) as u64;
        if hdr.size % 8 != 0 || (hdr.size as usize) < least {
            return bad("the size of a list's entries is wrong");
        }
        if u64::from(hdr.count) * u64::from(hdr.size) > room {
            return bad("a list counts more than it has");
        }
    } else if is_blob(nla.kind) {
        let (hdr, _) = BlobHdr::read_from_prefix(rest).expect("length checked");
        if hdr.len as usize > len - size_of::<BlobHdr>() {
            return bad("data is longer than its attribute");
        }
        let end = hdr.offset.checked_add(hdr.len);
        if end.is_none_or(|e| e > hdr.total) {
            return bad("data lies outside its value");
        }
        if matches!(nla.kind, A_GROUPS | A_NSPID) && (hdr.len % 4 != 0 || hdr.offset % 4 != 0) {
            return bad("a list of ids is not a multiple of 4");
        }
    }
    Ok(nla)
}

pub(crate) fn is_blob(kind: u16) -> bool {
    kind == Group::Cmdline as u16
        || kind == Group::Paths as u16
        || kind == Group::Environ as u16
        || kind == Group::Wchan as u16
        || kind == Group::Kstack as u16
        || matches!(kind, A_GROUPS | A_NSPID | A_CGROUP_PATH | A_NAME)
}

/// Bytes of what we know of an entry, where this is the type of a list.
fn entry_size(kind: u16) -> Option<usize> {
    Some(match kind {
        Vma::TYPE => size_of::<Vma>(),
        VmaStat::TYPE => size_of::<VmaStat>(),
        Fd::TYPE => size_of::<Fd>(),
        FileStat::TYPE => size_of::<FileStat>(),
        Socket::TYPE => size_of::<Socket>(),
        FdDetail::TYPE => size_of::<FdDetail>(),
        _ => return None,
    })
}

/// The command name behind the fixed part of a BASE attribute of a checked stream; `None`: it is
/// not known.
pub fn comm(attr: &[u8]) -> Option<&[u8]> {
    let text = attr.get(size_of::<Base>()..).filter(|t| !t.is_empty())?;
    Some(&text[..text.iter().position(|b| *b == 0).unwrap_or(text.len())])
}

/// Is there a task with this pid among the first `within`? Looks at message headers only, and
/// takes bytes that are not well formed as the end: for writers that ask about their own stream
/// before it is parsed.
pub fn has_task(bytes: &[u8], pid: u32, within: usize) -> bool {
    let (mut rest, mut tasks) = (bytes, 0);
    while let Ok((hdr, body)) = NlMsgHdr::read_from_prefix(rest) {
        if hdr.kind == MSG_TASK {
            tasks += 1;
            if TaskMsg::read_from_prefix(body).is_ok_and(|(t, _)| t.pid == pid) {
                return true;
            }
        }
        match rest.get((hdr.len as usize).max(HDR)..) {
            Some(r) if tasks < within => rest = r,
            _ => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_looked_for_among_the_first() {
        let mut w = StreamWriter::new();
        w.info(&StreamWriter::blank_info());
        for pid in [5, 1, 7] {
            w.begin_task(pid, pid);
            w.end_task();
        }
        let bytes = w.finish(Done::default());
        assert!(has_task(bytes.as_bytes(), 1, 2));
        assert!(!has_task(bytes.as_bytes(), 1, 1));
        assert!(!has_task(bytes.as_bytes(), 9, 100));
        assert!(!has_task(&bytes.as_bytes()[..20], 5, 100));
    }
}
