//! A complete answer in the memory that the program wrote to. This module only writes the head and
//! the end of the stream, and the filler between chunks.

use taskdiag_wire::{Done, Info, NLMSG_DONE, NLMSG_NOOP, NlMsgHdr, Plain};

use super::shared::CHUNK_SIZE;
use super::sys::Mapping;
use crate::bytes::StreamMemory;

const HDR: usize = size_of::<NlMsgHdr>();
/// Length of the INFO message, which the program leaves room for.
pub const HEAD: usize = HDR + size_of::<Info>();
/// How much is mapped beyond the tasks: for the end of the stream, and for a few added tasks.
pub const SPARE: usize = 64 << 10;
const END: usize = HDR + size_of::<Done>();

/// A stream in mapped memory. No program writes to it any more.
#[derive(Debug)]
pub struct MappedStream {
    memory: Mapping,
    len: usize,
}

impl MappedStream {
    /// Makes one stream of the chunks. Chunk i has `used[i]` bytes. If that is not possible in
    /// place, the error returns the memory.
    pub fn new(
        memory: Mapping,
        used: &[u32],
        head: &[u8],
        done: &Done,
    ) -> Result<MappedStream, Mapping> {
        debug_assert_eq!(head.len(), HEAD);
        let (last, len) = extent(used);
        let gap = |i: usize| CHUNK_SIZE - used[i] as usize;
        if (0..last).any(|i| (1..HDR).contains(&gap(i))) {
            return Err(memory);
        }
        let mut m = MappedStream { memory, len };
        if m.len + END > m.memory.len() {
            return Err(m.memory);
        }
        m.write(0, head);
        for i in (0..last).filter(|i| gap(*i) > 0) {
            let filler = NlMsgHdr { len: gap(i) as u32, kind: NLMSG_NOOP, ..NlMsgHdr::default() };
            m.write(i * CHUNK_SIZE + used[i] as usize, filler.as_bytes());
        }
        m.end(done);
        Ok(m)
    }

    fn end(&mut self, done: &Done) {
        let hdr = NlMsgHdr { len: END as u32, kind: NLMSG_DONE, ..NlMsgHdr::default() };
        self.write(self.len, hdr.as_bytes());
        self.write(self.len + HDR, done.as_bytes());
        self.len += END;
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        self.memory.slice_mut(at, bytes.len()).copy_from_slice(bytes);
    }
}

impl AsRef<[u8]> for MappedStream {
    fn as_ref(&self) -> &[u8] {
        self.memory.slice(0, self.len)
    }
}

impl StreamMemory for MappedStream {
    fn bytes_mut(&mut self) -> &mut [u8] {
        self.memory.slice_mut(0, self.len)
    }
    fn append(&mut self, messages: &[u8], add: &Done, more: &Info) -> bool {
        let at = self.len - END;
        if at + messages.len() + END > self.memory.len() {
            return false;
        }
        let (Some((mut done, _)), Some((mut info, _))) = (
            Done::read_from_prefix(&self.as_ref()[at + HDR..]),
            Info::read_from_prefix(&self.as_ref()[HDR..]),
        ) else {
            return false;
        };
        info.show_flags |= more.show_flags;
        info.procfs_groups |= more.procfs_groups;
        done.error = if done.error != 0 { done.error } else { add.error };
        done.tasks += add.tasks;
        done.denied += add.denied;
        done.vanished += add.vanished;
        done.blocked += add.blocked;
        done.truncated += add.truncated;
        done.over_budget += add.over_budget;
        self.write(HDR, info.as_bytes());
        self.write(at, messages);
        self.len = at + messages.len();
        self.end(&done);
        true
    }
}

/// The last chunk in use, and where its content ends. The first chunk holds at least the head,
/// which is not written yet. Any other chunk may hold as little as one short message.
pub fn extent(used: &[u32]) -> (usize, usize) {
    match used.iter().rposition(|u| *u != 0) {
        None | Some(0) => (0, (used[0] as usize).max(HEAD)),
        Some(last) => (last, last * CHUNK_SIZE + used[last] as usize),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_last_chunk_may_be_shorter_than_the_head() {
        assert_eq!(extent(&[0, 0]), (0, HEAD));
        assert_eq!(extent(&[500, 0]), (0, 500));
        assert_eq!(extent(&[500, 64, 0]), (1, CHUNK_SIZE + 64));
        assert_eq!(extent(&[500, 0, 72]), (2, 2 * CHUNK_SIZE + 72));
    }
}
