//! Cuts texts in an answer while it arrives, because the kernel sends them completely: the
//! arguments of all processes may be gigabytes (see `engine/room.rs`). It reads only headers of
//! messages and attributes. The stream is parsed afterwards like any other.

use taskdiag_wire::{
    BLOB_CUT, BlobHdr, Cred, Done, FLAG_CONT, Group, MSG_TASK, NLMSG_DONE, NlAttr, NlMsgHdr, Plain,
    TaskMsg,
};

use crate::engine::room::Room;

const MESSAGE: usize = size_of::<NlMsgHdr>();
const TASK: usize = MESSAGE + size_of::<TaskMsg>();

/// The state of an answer that arrives in pieces.
#[derive(Debug)]
pub(super) struct Trim {
    room: Room,
    /// The end of the trimmed messages.
    at: usize,
    /// The bytes of CMDLINE and of ENVIRON of the current task that were kept.
    keep: [usize; 2],
    /// The real user id of the current task, if its message has it.
    uid: Option<u32>,
    /// Whether some data of the current task was cut.
    cut: bool,
    /// Tasks with data that was cut.
    tasks: u64,
}

impl Trim {
    pub(super) fn new(room: Room) -> Trim {
        Trim { room, at: 0, keep: [0; 2], uid: None, cut: false, tasks: 0 }
    }

    /// Trims the complete messages that have arrived in `bytes` since the last call, and moves the
    /// bytes after them forward. Returns how many bytes there are now. `uid` finds the real user id
    /// of a task.
    pub(super) fn advance(&mut self, bytes: &mut [u8], uid: impl Fn(u32) -> Option<u32>) -> usize {
        let (mut from, mut to) = (self.at, self.at);
        while let Some((hdr, body)) = NlMsgHdr::read_from_prefix(&bytes[from..]) {
            let len = hdr.len as usize;
            // The parser reports anything that is not a message.
            if len < MESSAGE || len % 8 != 0 || len > bytes.len() - from {
                break;
            }
            let task = TaskMsg::read_from_prefix(body).filter(|_| hdr.kind == MSG_TASK);
            let begin = to;
            if let Some((task, _)) = task {
                if task.flags & FLAG_CONT == 0 {
                    self.end_task();
                }
                bytes.copy_within(from..from + TASK, to);
                to = self.attrs(bytes, from + TASK..from + len, to + TASK, || uid(task.pid));
            } else {
                bytes.copy_within(from..from + len, to);
                to += len;
                if hdr.kind == NLMSG_DONE {
                    self.end_task();
                    self.count(&mut bytes[begin + MESSAGE..to]);
                }
            }
            let new = NlMsgHdr { len: (to - begin) as u32, ..hdr };
            bytes[begin..begin + MESSAGE].copy_from_slice(new.as_bytes());
            from += len;
        }
        self.at = to;
        bytes.copy_within(from.., to);
        bytes.len() - (from - to)
    }

    fn end_task(&mut self) {
        self.tasks += u64::from(std::mem::take(&mut self.cut));
        self.uid = None;
    }

    /// Adds the tasks that were cut to the totals.
    fn count(&self, totals: &mut [u8]) {
        if let Some((mut done, _)) = Done::read_from_prefix(totals) {
            done.truncated += self.tasks;
            totals[..size_of::<Done>()].copy_from_slice(done.as_bytes());
        }
    }

    /// Copies the attributes of a message to `to`, cut at the limits. Returns the end of the copy.
    fn attrs(
        &mut self,
        bytes: &mut [u8],
        from: std::ops::Range<usize>,
        mut to: usize,
        uid: impl Fn() -> Option<u32>,
    ) -> usize {
        let mut at = from.start;
        while at < from.end {
            let nla = NlAttr::read_from_prefix(&bytes[at..from.end]);
            let len = nla.map_or(0, |(nla, _)| usize::from(nla.len));
            let is_whole = len >= size_of::<NlAttr>() && len % 8 == 0 && len <= from.end - at;
            let (end, kind) = match nla {
                Some((nla, _)) if is_whole => (at + len, nla.kind),
                _ => (from.end, u16::MAX),
            };
            if kind == Group::Cred as u16 {
                let cred = Cred::read_from_prefix(&bytes[at..end]);
                self.uid = cred.and_then(|(cred, _)| cred.known().uid());
            }
            let text = [Group::Cmdline as u16, Group::Environ as u16];
            let text = text.iter().position(|k| *k == kind);
            match text.zip(BlobHdr::read_from_prefix(&bytes[at..end])) {
                Some((which, (hdr, _))) => {
                    to = self.text(bytes, at, end, to, which, hdr, &uid);
                }
                None => {
                    bytes.copy_within(at..end, to);
                    to += end - at;
                }
            }
            at = end;
        }
        to
    }

    /// Copies a piece of a text, up to the limit.
    #[expect(clippy::too_many_arguments)]
    fn text(
        &mut self,
        bytes: &mut [u8],
        at: usize,
        end: usize,
        to: usize,
        which: usize,
        mut hdr: BlobHdr,
        uid: &impl Fn() -> Option<u32>,
    ) -> usize {
        const HEAD: usize = size_of::<BlobHdr>();
        let (offset, len) = (hdr.offset as usize, (hdr.len as usize).min(end - at - HEAD));
        if offset == 0 {
            let known = self.uid;
            let uid = || known.or_else(uid).unwrap_or(u32::MAX);
            self.keep[which] = self.room.take(hdr.total as usize, uid);
        }
        let left = self.keep[which].saturating_sub(offset);
        if len <= left && (len < left || offset + len == hdr.total as usize) {
            bytes.copy_within(at..end, to);
            return to + (end - at);
        }
        self.cut = true;
        if left == 0 && offset > 0 {
            return to;
        }
        let keep = len.min(left);
        let size = HEAD + keep.next_multiple_of(8);
        hdr.nla.len = size as u16;
        (hdr.len, hdr.flags) = (keep as u32, hdr.flags | BLOB_CUT);
        bytes.copy_within(at + HEAD..at + HEAD + keep, to + HEAD);
        bytes[to..to + HEAD].copy_from_slice(hdr.as_bytes());
        bytes[to + HEAD + keep..to + size].fill(0);
        to + size
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::ByteLimits;
    use taskdiag_wire::{Groups, Info, Stream, StreamWriter, build};

    fn stream(texts: &[usize]) -> Vec<u8> {
        let mut w = StreamWriter::new();
        let groups = Groups::TEXTS;
        w.info(&build!(Info { show_flags: groups.bits(), ..StreamWriter::blank_info() }));
        for (pid, len) in (1..).zip(texts) {
            w.begin_task(pid, pid);
            let text: Vec<u8> = (0..*len).map(|i| i as u8).collect();
            w.put_blob(Group::Cmdline as u16, 0, 0, &text, *len);
            w.put_blob(Group::Environ as u16, 0, 0, &text[..len / 2], len / 2);
            w.end_task();
        }
        w.finish(Done::default()).as_bytes().to_vec()
    }

    #[test]
    fn an_answer_is_cut_as_it_arrives() {
        let texts = [0, 7, 1000, 4096, 4097, 65_000, 70_000, 300_000];
        let whole = stream(&texts);
        for piece in [8, 1000, 65_536, 1 << 20] {
            let limits = ByteLimits { text_bytes: 4096, ..ByteLimits::LIST };
            let mut trim = Trim::new(Room::new(limits));
            let (mut got, mut most) = (Vec::new(), 0);
            for piece in whole.chunks(piece) {
                got.extend_from_slice(piece);
                let len = trim.advance(&mut got, |_| None);
                got.truncate(len);
                most = most.max(len);
            }
            // The freed room holds the next message; the largest has 450,000 bytes.
            assert!(most < 490_000 + piece, "{most} bytes at a time");
            let s = Stream::parse(&got[..]).expect("a stream");
            assert_eq!(s.done().truncated, 4, "pieces of {piece}");
            for (task, len) in s.tasks().zip(texts) {
                for (blob, len) in [(task.cmdline(), len), (task.environ(), len / 2)] {
                    let blob = blob.expect("it is there");
                    assert_eq!((blob.data.len(), blob.total), (len.min(4096), len));
                    assert_eq!(blob.is_cut(), len > 4096);
                    assert!(blob.data.iter().enumerate().all(|(i, b)| *b == i as u8));
                }
            }
        }
    }

    #[test]
    fn one_user_does_not_take_the_room_of_others() {
        let mut bytes = stream(&[60_000; 40]);
        let limits = ByteLimits { all_text_bytes: 1 << 20, ..ByteLimits::LIST };
        let len = Trim::new(Room::new(limits))
            .advance(&mut bytes, |pid| Some(if pid > 38 { 0 } else { 1000 }));
        let s = Stream::parse(&bytes[..len]).expect("a stream");
        let cut = s.tasks().filter(|t| t.cmdline().is_some_and(|b| b.is_cut())).count();
        assert!((20..38).contains(&cut), "{cut}");
        assert!(s.tasks().skip(38).all(|t| !t.cmdline().expect("it is there").is_cut()));
    }
}
