//! Memory for the copy of a large answer, of a BPF program or of the service. It uses pages of 2
//! MiB if the machine has many free ones, because allocating, clearing and freeing small pages
//! takes several times as long as filling them: 7 ms for an answer of 20 MB, compared with 1 ms for
//! large pages.
//!
//! Large pages are requested only if far more of them are free than the answer needs. Otherwise the
//! kernel would make room: it would move the memory of other programs, or drop cached files.

use rustix::fs::{CWD, Mode, OFlags};
#[cfg(feature = "bpf")]
use taskdiag_wire::AlignedBuf;

use crate::bytes::advise;

const LARGE: usize = 2 << 20;
/// The order of a block of that size, if a page has 4 KiB.
const ORDER: usize = 9;
/// For smaller answers, looking at the free memory costs more than it gains.
const WORTH_IT: usize = 2 * LARGE;

/// An empty buffer with room for `bytes`.
#[cfg(feature = "bpf")]
pub(crate) fn buffer(bytes: usize) -> AlignedBuf {
    let mut memory = AlignedBuf::with_capacity(bytes);
    prefer(memory.spare(bytes));
    memory
}

/// Requests large pages for untouched memory, where whole ones fit. It is a hint, which a kernel
/// may not know and the administrator may have turned off.
pub(crate) fn prefer<T>(memory: &mut [T]) {
    let bytes = size_of_val(memory);
    if bytes < WORTH_IT || rustix::param::page_size() != 4096 {
        return;
    }
    if free().is_none_or(|free| free < 4 * (bytes / LARGE + 1)) {
        return;
    }
    advise(memory, libc::MADV_HUGEPAGE);
}

/// How many large pages are free on the node of the machine that has the fewest.
fn free() -> Option<usize> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(CWD, c"/proc/buddyinfo", flags, Mode::empty()).ok()?;
    let mut buf = [0; 4096];
    let n = rustix::io::read(fd, &mut buf).ok()?;
    parse(&buf[..n])
}

/// Counts free large pages in the text of /proc/buddyinfo, which has the number of free blocks of
/// each order for each zone of each node. If the text was cut, the count of the last node may be
/// too low.
fn parse(buddyinfo: &[u8]) -> Option<usize> {
    let mut nodes: Vec<(&str, usize)> = Vec::new();
    for line in std::str::from_utf8(buddyinfo).ok()?.lines() {
        let (node, zone) = line.split_once(", zone")?;
        let counts = zone.split_ascii_whitespace().skip(1 + ORDER).enumerate();
        let blocks =
            counts.map(|(i, n)| Some(n.parse::<usize>().ok()? << i)).sum::<Option<usize>>()?;
        match nodes.iter_mut().find(|n| n.0 == node) {
            Some(n) => n.1 += blocks,
            None => nodes.push((node, blocks)),
        }
    }
    nodes.iter().map(|n| n.1).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_large_pages_are_those_of_the_smallest_node() {
        let one = "Node 0, zone      DMA      0      0      0      0      0      0      0      0      0      1      3\n\
                   Node 0, zone   Normal   4381   2012    120     80     70     60      5      4      3      2     10\n";
        assert_eq!(parse(one.as_bytes()), Some(1 + 6 + 2 + 20));
        let two = format!(
            "{one}Node 1, zone   Normal      9      9      9      9      9      9      9      9      9      5      0\n"
        );
        assert_eq!(parse(two.as_bytes()), Some(5));
        assert_eq!(parse(b""), None);
        assert_eq!(parse(b"Node 0, zone Normal 1 2 3\n"), Some(0));
        assert_eq!(parse(b"Node 0, zone Normal 1 2 3 4 5 6 7 8 9 x 11\n"), None);
    }

    #[test]
    fn this_machine_says_how_many_are_free() {
        assert!(free().is_some(), "/proc/buddyinfo cannot be parsed");
    }

    #[cfg(feature = "bpf")]
    #[test]
    fn a_buffer_has_the_room_that_was_asked_for() {
        for bytes in [0, 1000, WORTH_IT, 3 * LARGE + 8] {
            let mut memory = buffer(bytes);
            assert!(memory.is_empty());
            let before = memory.spare(bytes).as_ptr();
            memory.extend_padded(&vec![7; bytes]);
            assert_eq!(memory.as_bytes().len(), bytes.next_multiple_of(8));
            if bytes > 0 {
                assert_eq!(memory.as_bytes().as_ptr(), before.cast(), "it has moved");
            }
        }
    }
}
