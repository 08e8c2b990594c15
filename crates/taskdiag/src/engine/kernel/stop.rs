//! Ends an answer early. It keeps the complete tasks that have arrived, and adds its own DONE. It
//! reads only message headers. The stream is parsed later like any other.

use taskdiag_wire::{
    AlignedBuf, Done, FLAG_CONT, Info, MSG_TASK, NLMSG_DONE, NlMsgHdr, Plain, StreamWriter,
    TaskMsg, build,
};

use crate::engine::info::info;
use crate::request::Request;

/// The progress of an answer that arrives in pieces.
#[derive(Debug)]
pub(super) struct Arrival<'a> {
    req: &'a Request,
    /// The offset of the next message.
    at: usize,
    /// The offset of the last task, which may not be complete.
    last: usize,
    tasks: u64,
    done: bool,
}

/// The answer to a request that was stopped before it began.
pub(super) fn nothing(req: &Request) -> AlignedBuf {
    let mut w = StreamWriter::new();
    w.info(&build!(Info { kernel_groups: req.groups.bits(), ..info(req) }));
    w.finish(build!(Done { error: -libc::EINTR, ..Done::default() }))
}

impl<'a> Arrival<'a> {
    pub(super) fn new(req: &'a Request) -> Arrival<'a> {
        Arrival { req, at: 0, last: 0, tasks: 0, done: false }
    }

    /// Whether the answer is complete.
    pub(super) fn is_done(&self) -> bool {
        self.done
    }

    /// Reads the headers of the messages that have arrived since the last call.
    pub(super) fn advance(&mut self, stream: &[u8]) {
        let before = self.tasks;
        while let Some((hdr, body)) = NlMsgHdr::read_from_prefix(&stream[self.at..]) {
            let len = (hdr.len as usize).max(size_of::<NlMsgHdr>());
            if len > stream.len() - self.at {
                break;
            }
            let first =
                TaskMsg::read_from_prefix(body).is_some_and(|(t, _)| t.flags & FLAG_CONT == 0);
            if hdr.kind == MSG_TASK && first {
                self.last = self.at;
                self.tasks += 1;
            }
            self.done = hdr.kind == NLMSG_DONE;
            self.at += len;
        }
        self.req.advance((self.tasks - before) as usize);
    }

    /// Returns the stream up to its last task, which may be incomplete, with a DONE that marks it
    /// as stopped.
    pub(super) fn finish(&self, stream: &[u8]) -> AlignedBuf {
        let mut w = StreamWriter::new();
        let whole = if self.tasks == 0 { self.at } else { self.last };
        w.raw(&stream[..whole]);
        w.finish(build!(Done {
            error: -libc::EINTR,
            tasks: self.tasks.saturating_sub(1),
            ..Done::default()
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use taskdiag_wire::{Groups, Stream};

    #[test]
    fn a_prefix_of_whole_tasks_is_a_stream() {
        let mut w = StreamWriter::new();
        w.info(&StreamWriter::blank_info());
        for pid in 1..=3 {
            w.begin_task(pid, pid);
            w.end_task();
        }
        let whole = w.finish(Done::default());
        let req = Request::all(Groups::NONE);
        for cut in (size_of::<NlMsgHdr>()..whole.len()).step_by(8) {
            let bytes = &whole.as_bytes()[..cut];
            let mut p = Arrival::new(&req);
            p.advance(&bytes[..cut / 2 / 8 * 8]);
            p.advance(bytes);
            if p.at == 0 {
                continue; // not even INFO
            }
            assert!(!p.is_done());
            let s = Stream::parse(p.finish(bytes)).expect("a stream");
            assert_eq!(s.done().error, -libc::EINTR);
            let pids: Vec<u32> = s.tasks().map(|t| t.pid()).collect();
            assert!([1, 2, 3].starts_with(&pids) && pids.len() < 3, "{pids:?}");
        }
        let mut p = Arrival::new(&req);
        p.advance(whole.as_bytes());
        assert!(p.is_done());
    }

    #[test]
    fn a_request_stopped_before_its_start_gives_a_stream() {
        let s = Stream::parse(nothing(&Request::all(Groups::ROLLUP))).expect("a stream");
        assert_eq!((s.len(), s.done().error), (0, -libc::EINTR));
        assert_eq!(s.asked(), Groups::ROLLUP);
    }
}
