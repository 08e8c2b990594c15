//! Adds what INFO of the kernel does not say yet: the machine. It is ours, so the library knows it.
//!
//! The answer is read to memory that begins with [`ROOM`] unused bytes. So a longer INFO has room
//! before the tasks, and none of them is moved.

use taskdiag_wire::{Info, MSG_INFO, NlMsgHdr, Plain};

use crate::engine::info::name_host;

const HDR: usize = size_of::<NlMsgHdr>();

/// The bytes before the answer: the members that the shortest INFO lacks.
pub(super) const ROOM: usize = size_of::<Info>() - Info::C.least;

/// Extends the INFO, which begins after [`ROOM`] bytes, to the start of `bytes`, and adds the
/// machine to it. Returns how many bytes there are now. If they are no stream, they are moved to
/// the front, and the parser says what is wrong.
pub(super) fn complete(bytes: &mut [u8]) -> usize {
    let whole = |(head, body): (NlMsgHdr, &[u8])| {
        let payload = (head.len as usize).checked_sub(HDR)?;
        let is_info = head.kind == MSG_INFO && payload >= Info::C.least && payload % 8 == 0;
        (is_info && payload <= body.len()).then_some((head, payload))
    };
    let Some((head, payload)) = NlMsgHdr::read_from_prefix(&bytes[ROOM..]).and_then(whole) else {
        bytes.copy_within(ROOM.., 0);
        return bytes.len() - ROOM;
    };
    // Everything that the kernel wrote stays, including members that only a newer version knows.
    bytes.copy_within(ROOM + HDR..ROOM + HDR + payload, HDR);
    bytes[HDR + payload..HDR + payload + ROOM].fill(0);
    let head = NlMsgHdr { len: (HDR + payload + ROOM) as u32, ..head };
    bytes[..HDR].copy_from_slice(head.as_bytes());
    if let Some((mut info, _)) = Info::read_from_prefix(&bytes[HDR..]) {
        name_host(&mut info);
        bytes[HDR..HDR + size_of::<Info>()].copy_from_slice(info.as_bytes());
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use taskdiag_wire::{AlignedBuf, Done, Groups, Stream, StreamWriter, build};

    #[test]
    fn the_machine_is_named_in_every_answer_of_the_kernel() {
        let mut w = StreamWriter::new();
        w.info(&build!(Info { clk_tck: 250, ..StreamWriter::blank_info() }));
        w.begin_task(7, 7);
        w.end_task();
        let whole = w.finish(Done::default());
        let tasks = &whole.as_bytes()[HDR + size_of::<Info>()..];
        let ours = crate::engine::info::info(&crate::Request::one(1, Groups::NONE));
        // Today's kernel, one whose INFO has some of the new members, and a newer one.
        for len in [Info::C.least, Info::C.least + 16, size_of::<Info>(), size_of::<Info>() + 24] {
            let mut message = whole.as_bytes()[..HDR + size_of::<Info>()].to_vec();
            message.resize(HDR + len, 9);
            message[..4].copy_from_slice(&((HDR + len) as u32).to_ne_bytes());
            let mut bytes = AlignedBuf::copy_of(&[&[0xee; ROOM], &message[..], tasks].concat());
            let end = complete(bytes.as_mut_bytes());
            bytes.truncate(end);
            let s = Stream::parse(bytes).expect("it is a stream");
            assert_eq!((s.info().clk_tck, s.len(), s.get(0).expect("one").pid()), (250, 1, 7));
            assert_eq!((s.info().boot_id, s.info().nodename), (ours.boot_id, ours.nodename));
            assert_eq!((s.info().release, s.info().machine), (ours.release, ours.machine));
        }
    }

    #[test]
    fn other_bytes_stay_unchanged() {
        for junk in [&b""[..], &[1; 8], &[0; 16], &[0xff; 400]] {
            let mut bytes = [&[0xee; ROOM], junk].concat();
            let end = complete(&mut bytes);
            assert_eq!(&bytes[..end], junk);
        }
    }
}
