//! Streams of older writers: records and entries of lists that are shorter than ours.
//!
//! A struct only ever grows at its end. So the missing bytes of an older writer are added as
//! zeroes, and their bits of `valid` are cleared, because these members are not known. This is done
//! once for the whole stream, and only if one of its structs is short, so that all views stay plain
//! casts.

use crate::decode::{CGROUP_HDR, HDR, TASK_HDR};
use crate::layout::*;
use crate::registry::{Shape, shape};
use crate::*;

/// Extends a struct that may be shorter than ours. A member that is only partly in it is not known.
pub(crate) fn extended<T: zerocopy::FromBytes + zerocopy::IntoBytes>(
    bytes: &[u8],
    table: &CStruct,
) -> T {
    let mut v = T::new_zeroed();
    let known = table.whole_within(bytes.len()).min(size_of::<T>());
    v.as_mut_bytes()[..known].copy_from_slice(&bytes[..known]);
    v
}

/// The stream with all its structs as long as ours. The stream must have been checked. `None` if a
/// message would be too long.
pub(crate) fn grow(bytes: &[u8]) -> Option<AlignedBuf> {
    let mut out = AlignedBuf::with_capacity(bytes.len() + bytes.len() / 4);
    let mut rest = bytes;
    while let Some((hdr, _)) = NlMsgHdr::read_from_prefix(rest) {
        let (message, after) = rest.split_at(hdr.len as usize);
        let start = out.len();
        match hdr.kind {
            MSG_TASK => {
                out.extend_padded(&message[..TASK_HDR]);
                attributes(&message[TASK_HDR..], &mut out);
            }
            MSG_INFO => fixed(message, &Info::C, &mut out),
            MSG_CUT => fixed(message, &Cut::C, &mut out),
            MSG_CGROUP_LIST => fixed(message, &CgroupList::C, &mut out),
            MSG_CGROUP => {
                out.extend_padded(&message[..CGROUP_HDR]);
                attributes(&message[CGROUP_HDR..], &mut out);
            }
            NLMSG_DONE => fixed(message, &Done::C, &mut out),
            _ => out.extend_padded(message),
        }
        let len = u32::try_from(out.len() - start).ok()?;
        out.as_mut_bytes()[start..start + 4].copy_from_slice(&len.to_ne_bytes());
        rest = after;
    }
    Some(out)
}

/// Copy a message that is one struct, and make it at least as long as ours.
fn fixed(message: &[u8], table: &CStruct, out: &mut AlignedBuf) {
    let start = out.len();
    let known = table.whole_within(message.len() - HDR);
    out.extend_padded(&message[..HDR + known]);
    out.grow(start + (HDR + known).max(HDR + table.size));
}

fn attributes(mut rest: &[u8], out: &mut AlignedBuf) {
    while let Some((nla, _)) = NlAttr::read_from_prefix(rest) {
        let (attr, after) = rest.split_at(nla.len as usize);
        match shape(nla.kind) {
            Some(Shape::Record(table)) if attr.len() < table.size => record(attr, table, out),
            Some(Shape::List(table)) => list(attr, table, out),
            _ => out.extend_padded(attr),
        }
        rest = after;
    }
}

fn record(attr: &[u8], table: &CStruct, out: &mut AlignedBuf) {
    let start = out.len();
    out.extend_padded(attr);
    let size = table.size;
    out.grow(start + size);
    let bytes = &mut out.as_mut_bytes()[start..];
    bytes[..2].copy_from_slice(&(size as u16).to_ne_bytes());
    if !table.valid.is_empty() {
        mask(&mut bytes[4..8], table.valid_within(attr.len()));
    }
}

/// Clears the bits of members beyond the end of the writer's struct: they are not known, even if
/// the writer has set the bits.
fn mask(valid: &mut [u8], with: u32) {
    valid.iter_mut().zip(with.to_ne_bytes()).for_each(|(v, m)| *v &= m);
}

/// Write the list with longer entries, in as many attributes as it needs.
fn list(attr: &[u8], table: &CStruct, out: &mut AlignedBuf) {
    let size = table.size;
    let (mut hdr, data) = ArrayHdr::read_from_prefix(attr).expect("checked");
    if hdr.size as usize >= size {
        return out.extend_padded(attr);
    }
    let entries = data.chunks_exact(hdr.size as usize).take(hdr.count as usize);
    hdr.valid &= table.valid_within(hdr.size as usize);
    hdr.size = size as u32;
    let mut entries = entries.peekable();
    loop {
        let start = out.len();
        hdr.count = 0;
        out.push(&hdr);
        for e in entries.by_ref().take(BLOB_MAX / size) {
            let at = out.len();
            out.extend_padded(e);
            out.grow(at + size);
            hdr.count += 1;
        }
        hdr.nla.len = (out.len() - start) as u16;
        out.as_mut_bytes()[start..start + size_of::<ArrayHdr>()].copy_from_slice(hdr.as_bytes());
        if entries.peek().is_none() {
            return;
        }
    }
}
