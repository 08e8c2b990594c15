//! Changes attributes of a stream in place, after the programs have written it. It stops at the
//! first bytes that are not an attribute.

use taskdiag_wire::{MSG_TASK, NlAttr, NlMsgHdr, Plain, TaskMsg};

const HDR: usize = size_of::<NlMsgHdr>();

/// Calls a function for each attribute of each task of a stream, with the task and the kind.
pub(super) fn each_attr(mut rest: &mut [u8], mut each: impl FnMut(&TaskMsg, u16, &mut [u8])) {
    while let Some((hdr, _)) = NlMsgHdr::read_from_prefix(rest) {
        let len = hdr.len as usize;
        if len < HDR || len > rest.len() {
            return;
        }
        let (message, after) = rest.split_at_mut(len);
        if hdr.kind == MSG_TASK {
            each_of_task(&mut message[HDR..], &mut each);
        }
        rest = after;
    }
}

fn each_of_task(message: &mut [u8], each: &mut impl FnMut(&TaskMsg, u16, &mut [u8])) {
    let Some((task, _)) = TaskMsg::read_from_prefix(message) else { return };
    let mut rest = &mut message[size_of::<TaskMsg>()..];
    while let Some((attr, _)) = NlAttr::read_from_prefix(rest) {
        let len = usize::from(attr.len).next_multiple_of(8);
        if len < size_of::<NlAttr>() || len > rest.len() {
            return;
        }
        let (list, after) = rest.split_at_mut(len);
        each(&task, attr.kind, list);
        rest = after;
    }
}
