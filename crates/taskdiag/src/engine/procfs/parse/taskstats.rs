//! The answer of netlink's family `TASKSTATS`: how long a thread has waited, by the kernel's delay
//! accounting.
//!
//! `struct taskstats` grows at its end, and its first member is its version. Version 15 put the
//! longest delays between other members, and version 16 moved them to the end.

use taskdiag_wire::Delays;

use super::bit;
use super::sockdiag::attrs;

/// Attributes of the answer (linux/taskstats.h).
const TYPE_STATS: u16 = 3;
const TYPE_AGGR_PID: u16 = 4;
/// Attributes of a family (linux/genetlink.h).
const FAMILY_ID: u16 = 1;
/// `struct genlmsghdr` before the attributes.
const GENL_HEAD: usize = 4;

/// For each kind of delay, in the order of the members of DELAYS: the offset of its count, which is
/// followed by the total, and the first version that has both.
const KINDS: [(usize, u16); 8] =
    [(16, 1), (32, 1), (48, 1), (312, 7), (328, 9), (352, 11), (400, 13), (416, 14)];
/// Where the longest and the shortest delay of each kind begin, in the same order.
const EXTREMES: usize = 432;
/// Where the id of the process is, and the first version with it.
const TGID: (usize, u16) = (368, 12);
/// The version whose members are in another order.
const TORN: u16 = 15;

/// The delays of one thread. The members that its kernel does not have are `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DelayCounts {
    /// The number of delays of each kind, and their sum in ns.
    pub kinds: [Option<(u64, u64)>; 8],
    /// The longest and the shortest delay of each kind, ns.
    pub extremes: Option<[(u64, u64); 8]>,
}

fn find(data: &[u8], kind: u16) -> Option<&[u8]> {
    attrs(data).find(|a| a.0 == kind).map(|a| a.1)
}

/// The number of a family, from the answer to CTRL_CMD_GETFAMILY without the head of netlink.
pub fn genl_family(payload: &[u8]) -> Option<u16> {
    let id = find(payload.get(GENL_HEAD..)?, FAMILY_ID)?;
    id.first_chunk().map(|b| u16::from_ne_bytes(*b))
}

/// The process of a thread, from the answer to TASKSTATS_CMD_GET without the head of netlink.
/// `None` if the answer does not have it.
pub fn taskstats_tgid(payload: &[u8]) -> Option<u32> {
    let stats = find(find(payload.get(GENL_HEAD..)?, TYPE_AGGR_PID)?, TYPE_STATS)?;
    let version = u16::from_ne_bytes(*stats.first_chunk()?);
    let tgid = u32::from_ne_bytes(*stats.get(TGID.0..)?.first_chunk()?);
    (version >= TGID.1 && version != TORN).then_some(tgid)
}

/// The delays of a thread, from the answer to TASKSTATS_CMD_GET without the head of netlink. `None`
/// if it is not understood, or if the kernel has counted nothing: it shows zeros also for a thread
/// that began while delay accounting was off.
pub fn taskstats(payload: &[u8]) -> Option<DelayCounts> {
    let stats = find(find(payload.get(GENL_HEAD..)?, TYPE_AGGR_PID)?, TYPE_STATS)?;
    let version = u16::from_ne_bytes(*stats.first_chunk()?);
    let at = |at: usize| stats.get(at..)?.first_chunk().map(|b| u64::from_ne_bytes(*b));
    if version == TORN {
        return None;
    }
    let kind = |(place, since): (usize, u16)| {
        if version < since { None } else { Some((at(place)?, at(place + 8)?)) }
    };
    let kinds = KINDS.map(kind);
    // The CPU is counted without delay accounting, too.
    if kinds[1..].iter().flatten().all(|(count, _)| *count == 0) {
        return None;
    }
    let mut extremes = (version > TORN).then_some([(0, 0); 8]);
    for i in 0..8 {
        let place = EXTREMES + 16 * i;
        extremes = extremes.zip(at(place).zip(at(place + 8))).map(|(mut all, pair)| {
            all[i] = pair;
            all
        });
    }
    Some(DelayCounts { kinds, extremes })
}

impl DelayCounts {
    /// Adds another thread of the same process. A member that is unknown for one thread is unknown
    /// for the sum.
    #[must_use]
    pub fn with(mut self, other: DelayCounts) -> DelayCounts {
        for (mine, other) in self.kinds.iter_mut().zip(other.kinds) {
            *mine =
                mine.zip(other).map(|(a, b)| (a.0.saturating_add(b.0), a.1.saturating_add(b.1)));
        }
        self.extremes = self.extremes.zip(other.extremes).map(|(mut all, other)| {
            for (mine, other) in all.iter_mut().zip(other) {
                mine.0 = mine.0.max(other.0);
                mine.1 = match (mine.1, other.1) {
                    (0, ns) | (ns, 0) => ns,
                    (a, b) => a.min(b),
                };
            }
            all
        });
        self
    }
    /// The record.
    pub fn record(&self) -> Delays {
        let mut r = Delays::new();
        let members = [
            (&mut r.cpu_count, &mut r.cpu_ns),
            (&mut r.io_count, &mut r.io_ns),
            (&mut r.swapin_count, &mut r.swapin_ns),
            (&mut r.reclaim_count, &mut r.reclaim_ns),
            (&mut r.thrashing_count, &mut r.thrashing_ns),
            (&mut r.compact_count, &mut r.compact_ns),
            (&mut r.wpcopy_count, &mut r.wpcopy_ns),
            (&mut r.irq_count, &mut r.irq_ns),
        ];
        for (i, ((count, ns), known)) in members.into_iter().zip(self.kinds).enumerate() {
            if let Some(known) = known {
                (*count, *ns) = known;
                r.valid |= 1 << i | 1 << (8 + i);
            }
        }
        if let Some(all) = self.extremes {
            (r.max_ns, r.min_ns) = (all.map(|e| e.0), all.map(|e| e.1));
            r.valid |= bit(Delays::MEMBERS, "max_ns") | bit(Delays::MEMBERS, "min_ns");
        }
        r
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::attr;

    /// An answer of a kernel with this version, in which each number of 8 bytes is its place.
    fn answer(version: u16, len: usize) -> Vec<u8> {
        let mut stats: Vec<u8> = (0..len as u64 / 8).flat_map(|i| (i * 8).to_ne_bytes()).collect();
        stats[..2].copy_from_slice(&version.to_ne_bytes());
        let pid = attr(1, &7u32.to_ne_bytes());
        let all = attr(TYPE_AGGR_PID, &[pid, attr(TYPE_STATS, &stats)].concat());
        [vec![0; GENL_HEAD], all].concat()
    }

    #[test]
    fn delays_of_each_version_of_taskstats_are_found() {
        let old = taskstats(&answer(8, 328)).unwrap();
        assert_eq!(
            old.kinds[..4],
            [Some((16, 24)), Some((32, 40)), Some((48, 56)), Some((312, 320))]
        );
        assert_eq!((old.kinds[4], old.extremes), (None, None));
        let known = old.record();
        assert_eq!((known.known().reclaim_ns(), known.known().irq_ns()), (Some(320), None));
        assert_eq!(taskstats(&answer(15, 560)), None);
        let tgids = [11, 12, 15, 16].map(|version| taskstats_tgid(&answer(version, 560)));
        assert_eq!(tgids, [None, Some(368), None, Some(368)]);
        let new = taskstats(&answer(16, 560)).unwrap().record();
        assert_eq!(new.valid, Delays::ALL_VALID);
        assert_eq!((new.irq_count, new.irq_ns, new.wpcopy_ns), (416, 424, 408));
        assert_eq!((new.max_ns[7], new.min_ns[7]), (544, 552));
        // A newer version has more at its end.
        assert_eq!(taskstats(&answer(18, 700)).unwrap().record(), new);
        // It is cut.
        assert_eq!(taskstats(&answer(16, 500)).unwrap().extremes, None);
    }

    #[test]
    fn a_thread_without_a_single_delay_is_not_known_to_be_counted() {
        let mut bytes = answer(16, 560);
        let begin = bytes.len() - 560;
        for (place, _) in &KINDS[1..] {
            bytes[begin + place..begin + place + 8].fill(0);
        }
        assert_eq!(taskstats(&bytes), None);
        bytes[begin + KINDS[6].0] = 1;
        assert_eq!(taskstats(&bytes).unwrap().kinds[6], Some((1, 408)));
    }

    #[test]
    fn threads_of_a_process_are_added() {
        let one = taskstats(&answer(16, 560)).unwrap();
        let mut other = one;
        other.kinds[7] = None;
        other.extremes = Some([(1000, 0), (1, 5), (0, 0), (0, 0), (0, 0), (0, 0), (0, 0), (0, 0)]);
        let sum = one.with(other).record();
        assert_eq!((sum.cpu_count, sum.cpu_ns, sum.known().irq_ns()), (32, 48, None));
        assert_eq!(
            (sum.max_ns[0], sum.min_ns[0], sum.max_ns[1], sum.min_ns[1]),
            (1000, 440, 448, 5)
        );
    }
}
